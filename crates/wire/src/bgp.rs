//! BGP-4 (RFC 4271): messages as bytes.
//!
//! [`message`] splits a TCP byte stream into messages; [`open`], [`notification`] and [`route_refresh`] parse and write
//! their bodies, [`update`] routes, and a KEEPALIVE has no body. An error in received bytes is returned as the
//! [`Notification`] that the RFC says to answer with.

pub mod capability;
pub mod message;
pub mod notification;
pub mod open;
pub mod route_refresh;
pub mod update;

pub use capability::{Capability, GracefulRestart, PathDirection};
pub use drophammer_model::routes::AfiSafi;
pub use message::{Message, frame};
pub use notification::Notification;
pub use open::Open;
pub use route_refresh::RouteRefresh;
pub use update::Update;

/// The TCP port.
pub const PORT: u16 = 179;
