//! An emulated LSR that speaks LDP (RFC 5036): basic discovery, sessions over IPv4, downstream unsolicited advertisement, liberal
//! retention, no loop detection. It sends no capabilities, so that a peer uses none.
//!
//! [`lsr`] is the protocol of the device: hellos, connections, commands. [`peer`] is a neighbour with its adjacency, session and labels,
//! [`session`] the state machine of one session without TCP. [`fecs`] computes the FECs of a range and their labels, and [`bindings`]
//! holds the labels that a peer has advertised.

pub mod bindings;
pub mod config;
mod counters;
pub mod fecs;
pub mod lsr;
mod outbox;
pub mod peer;
pub mod session;

pub use bindings::Bindings;
pub use config::LsrConfig;
pub use fecs::{AdvertisedFecs, FecRange, LabelPattern};
pub use lsr::{LdpCommand, Lsr, NAME};
pub use peer::Peer;
pub use session::{Cause, Session, State};
