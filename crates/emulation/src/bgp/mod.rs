//! Emulated BGP speakers.
//!
//! [`session`] is one session with one peer: the state machine of RFC 4271 section 8 with its timers, from bytes and instants
//! to bytes and the next deadline. It needs a TCP connection, which it asks for by a [`Wish`], and hands the body of each UPDATE to
//! whoever holds routes. [`outbox`] packs routes into UPDATEs while they are sent, [`inbox`] holds those that come against what must
//! come. [`collision`] decides between two connections with the same peer. [`routers`] joins all of it to TCP: the routers behind a port.

pub mod cause;
pub mod collision;
pub mod config;
pub mod inbox;
pub mod negotiated;
pub mod outbox;
pub mod routers;
pub mod session;
mod standing;

pub use cause::{Cause, Closed};
pub use config::{GracefulRestartConfig, SessionConfig};
pub use inbox::{ExpectationId, Expected, Inbox, Teller, Totals, Verified};
pub use negotiated::Negotiated;
pub use outbox::{Encapsulation, EncapsulationKind, NextHops, Outbox, Packing, Sent};
pub use routers::{PeerConfig, Pressure, Routers};
pub use session::{Counters, Event, Session, State, Wish};
