//! Emulated BGP speakers.
//!
//! [`session`] is one session with one peer: the state machine of RFC 4271 section 8 with its timers, from bytes and instants
//! to bytes and the next deadline. It needs a TCP connection, which it asks for by a [`Wish`], and hands the body of each UPDATE to
//! whoever holds routes. [`collision`] decides between two connections with the same peer.

pub mod cause;
pub mod collision;
pub mod config;
pub mod negotiated;
pub mod session;

pub use cause::{Cause, Closed};
pub use config::{GracefulRestartConfig, SessionConfig};
pub use negotiated::Negotiated;
pub use session::{Counters, Event, Session, State, Wish};
