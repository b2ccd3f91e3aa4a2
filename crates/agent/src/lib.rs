//! A rig whose ports are on other hosts, over NATS with JetStream.
//!
//! # Hosts
//!
//! An **agent** ([`agent::run`]) lends the interfaces of its host. The **controller** ([`Controller`]) is a `rig::Lender`: a run
//! asks it for ports by name (`host1/eth1`), and gets a rig that works like any other (`rig/src/far.rs`). Both talk only to a
//! NATS server: hosts have no other connection, and no message carries a shell command.
//!
//! | what | by |
//! |---|---|
//! | who is there, with which ports and version | key-value bucket `drophammer-agents`; entries live for 10 s |
//! | who holds which port | key-value bucket `drophammer-leases`; one key per port, created by the holder, lives for 10 s |
//! | plan, start, end, report; compare clocks | requests to `drophammer.agent.HOST`, with replies |
//! | that the controller is there | a beat every 100 ms or more often, with its time; without one sent in the last 2 s (a parameter), traffic stops |
//! | where the lanes of a host stand | messages of each host to the controller, at each change and every 200 ms; beats carry the sum of all hosts |
//! | frames of emulated devices | messages in both directions, at most once, like a cable |
//! | captured frames | JetStream object store `drophammer-captures`; the controller deletes each file that it has fetched |
//! | reports of lanes | JetStream stream `drophammer-records`, stored before the trial counts |
//!
//! A trial is complete or void: the controller merges it only if every host has ended it and the stream has stored the reports
//! of all lanes. If a host, the server or the network fails, the trial has no result, and the test repeats it like any trial
//! that the tester spoilt; each attempt plans and leases again. Each request names its attempt, because it can arrive late.
//!
//! # Time
//!
//! Each host has its own steady clock. Before and after each trial, the controller compares it with its own by two-way
//! exchanges ([`clock`]); half of the shortest round trip bounds the error. Agents open their ports with a clock that
//! shows the controller's time. Hosts with one kernel (namespaces, containers) share a clock, without error. A trial in which
//! clocks moved against each other by more than they drift is void.
//!
//! # Bounds
//!
//! Messages come from other machines. [`message`] decodes them with limits, and indices and sums are checked before
//! reports are merged (`traffic/src/far/check.rs`).

pub mod agent;
pub mod bed;
mod captures;
pub mod chrony;
pub mod clock;
mod controller;
mod find;
mod heard;
mod leases;
pub mod link;
pub mod message;
mod trial;
mod worker;

pub use controller::{Controller, Settings};

/// The reason why something between hosts failed, with the remedy if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Problem(pub String);

impl Problem {
    fn of(what: &str, cause: impl std::fmt::Display) -> Problem {
        Problem(format!("{what}: {cause}"))
    }
}
