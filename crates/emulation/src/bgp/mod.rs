//! Emulated BGP speakers.
//!
//! [`session`] is one session with one peer: the state machine of RFC 4271 section 8 with its timers. Its
//! input is received bytes and the current time; its output is bytes to send and the next deadline. It requests a TCP connection with a [`TcpAction`], and passes the body of each UPDATE to its user.
//! [`adj_rib_out`] packs routes into UPDATEs while they are sent, [`adj_rib_in`] compares received routes with the expected ones.
//! Labelled unicast routes (RFC 8277) are a [`RouteSet`] with an [`EncapsulationKind`], routes of many VRFs (RFC 4364) a [`VpnRouteSet`];
//! [`AdjRibIn::label_of`] returns the labels that the peer has assigned.
//! [`collision`] decides between two connections with the same peer. [`routers`] runs all of this over the TCP of an
//! emulated device, as one of its protocols.

pub mod adj_rib_in;
pub mod adj_rib_out;
mod advertised;
pub mod cause;
pub mod collision;
pub mod config;
pub mod negotiated;
pub mod routers;
pub mod session;

pub use adj_rib_in::{
    AdjRibIn, Distinguishers, ExpectationId, Expected, LearnedAttributes, LearnedRoute, RouteKey, RoutePart,
    RouteSource, Totals, Verified, VpnFault, VpnFaultKind, VpnPart,
};
pub use adj_rib_out::{AdjRibOut, Encapsulation, EncapsulationKind, NextHops, Packing, RouteSet, Sent, VpnRouteSet};
pub use cause::{Cause, Closed};
pub use config::{GracefulRestartConfig, SessionConfig};
pub use negotiated::Negotiated;
pub use routers::{BgpCommand, NAME, PeerConfig, Pressure, Routers};
pub use session::{Counters, Event, Heard, Session, State, TcpAction};
