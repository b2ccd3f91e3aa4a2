//! Emulated hosts and routers, without I/O: bytes and an instant go in, bytes and the next deadline come out.
//!
//! [`hosts`] is the neighbour that a DUT sees on each of its ports: it has addresses, answers ARP, Neighbor Discovery and
//! pings, and keeps the DUT's own address resolved. [`tcp`] is TCP for any number of addresses behind a port. [`compose`]
//! builds the few control frames that this takes, and [`tally`] names what a DUT says by itself.

pub mod bgp;
pub mod compose;
pub mod hosts;
pub mod tally;
pub mod tcp;

pub use hosts::{HostAddress, HostConfig, HostStack};
pub use tally::{Protocol, Tally};
