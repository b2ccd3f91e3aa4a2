//! BGP-4 (RFC 4271): messages as bytes.
//!
//! [`message`] splits a TCP byte stream into messages. [`open`], [`notification`] and [`route_refresh`] parse and write
//! their bodies, [`update`] does this for routes. A KEEPALIVE has no body. An error in received bytes is returned as
//! the [`Notification`] with which the RFC says to answer.

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

/// The TCP port of BGP.
pub const PORT: u16 = 179;
