//! BGP-4 (RFC 4271): messages as bytes.
//!
//! [`message`] splits a TCP byte stream into messages, [`notification`] reads and writes the one that ends a session.
//! What is wrong with received bytes is said by the [`Notification`] that the RFC wants as the answer.

pub mod afi;
pub mod message;
pub mod notification;

pub use afi::AfiSafi;
pub use message::{Message, frame};
pub use notification::Notification;

/// The TCP port.
pub const PORT: u16 = 179;
