//! RSVP-TE (RFC 2205, RFC 2210, RFC 2961, RFC 3209): messages as bytes.
//!
//! [`Message`] is a message with its header and whole objects, checksum verified; [`Object`] is one object. [`Body`] is the content of a
//! message by its type, with all mandatory objects; [`Refresh`](Body::Srefresh) and acknowledgements are in [`Message::ids`].
//! Objects of IPv6 sessions are not supported.

mod body;
mod ids;
mod message;
mod object;
mod route;
#[cfg(test)]
mod tests;
mod traffic;

pub use body::{Body, Flow, Flows, Hello, Path, PathErr, PathTear, Resv, ResvConf, ResvErr, ResvTear, UnknownObject};
pub use ids::{Ids, MessageId, MessageIdAck, MessageIdList};
pub use message::{HEADER_LEN, Message, Objects, RawObject, Writer, flag};
pub use object::{
    ErrorSpec, HelloObject, Hop, Object, Sender, Session, SessionAttribute, Style, UnknownClass, attribute_flag,
};
pub use route::{ExplicitHop, ExplicitRoute, RecordRoute, RecordedHop};
pub use traffic::{Adspec, Tspec};

pub use crate::numbers::rsvp_class as class;
pub use crate::numbers::rsvp_error as error;
pub use crate::numbers::rsvp_message as kind;
pub use crate::numbers::rsvp_routing as routing;

/// Largest label (20 bits).
pub const MAX_LABEL: u32 = (1 << 20) - 1;
/// Implicit null: the previous hop pops the label (RFC 3032 section 2.1).
pub const IMPLICIT_NULL: u32 = 3;
/// Explicit null: packets carry this label, but only for its TTL and traffic class.
pub const EXPLICIT_NULL: u32 = 0;

use crate::Malformed;

const fn malformed(reason: &'static str) -> Malformed {
    Malformed::new("rsvp", reason)
}
