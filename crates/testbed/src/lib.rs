//! The facade that tests use: brings up topology, ports, flows, emulated hosts and DUT, and runs a suite.
//!
//! [`runner::run_suite`] goes through DUTs and tests; a [`setup::TestSetup`] is what one test sees: a rig beside a DUT. It is the same for a
//! router in a namespace, one on real interfaces and the reference device in virtual time: only ports and clock differ.

mod asked;
pub mod bench;
mod circling;
pub mod config;
mod counted;
pub mod deviations;
pub mod device;
mod echoed;
mod extra;
mod host;
pub mod kinds;
mod learning;
pub mod listen;
pub mod mrt;
pub mod observer;
pub mod real;
mod records;
mod reset;
pub mod route_ceiling;
pub mod routers;
mod routing;
pub mod runner;
pub mod selftest;
pub mod session;
pub mod setup;
pub mod simulated;
pub mod speaker;
mod together;
mod turnstile;
pub mod validity;
pub mod xdp_router;

pub use observer::{Observer, Progress};
pub use runner::{Earlier, Refusal, Run, RunError, estimate, estimates, rounds_within, run_suite};
pub use session::Session;
