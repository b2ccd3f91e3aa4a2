//! PDUs (RFC 5036 section 3.1), the split of a TCP byte stream, and the packing of messages into PDUs.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  Version                      |         PDU Length            |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                         LDP Identifier                        |
//! +                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                               |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use super::message::{Hello, MESSAGE_HEADER, Message};
use super::status::{Status, code};
use super::tlv::UNKNOWN;
use super::{LdpId, kind};

/// Length of the header.
pub const HEADER_LEN: usize = 10;
/// Maximum PDU Length before the session has negotiated one, and the default after it.
pub const DEFAULT_MAX: u16 = 4096;
/// The only version.
pub const VERSION: u16 = 1;
/// Bytes before those that PDU Length counts.
const UNCOUNTED: usize = 4;
/// Smallest PDU Length: an LDP Identifier and the header of one message.
const SHORTEST: usize = HEADER_LEN - UNCOUNTED + MESSAGE_HEADER;

/// A whole PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// LDP identifier of the sender.
    pub id: LdpId,
    /// The messages.
    pub body: &'a [u8],
}

impl<'a> Pdu<'a> {
    /// Length of the PDU in bytes.
    pub fn pdu_len(&self) -> usize {
        HEADER_LEN + self.body.len()
    }

    /// The messages. The iterator ends after an error.
    pub fn messages(&self) -> impl Iterator<Item = Result<RawMessage<'a>, Status>> + use<'a> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            let bytes = std::mem::take(&mut rest);
            if bytes.is_empty() {
                return None;
            }
            let whole = RawMessage::split(bytes);
            if let Ok((_, after)) = whole {
                rest = after;
            }
            Some(whole.map(|(message, _)| message))
        })
    }
}

/// A message whose content has not been parsed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawMessage<'a> {
    /// Type, without the bit U; one of [`kind`] if it is known.
    pub kind: u16,
    /// Bit U: a receiver that does not know the type ignores the message.
    pub ignorable: bool,
    /// Message ID.
    pub id: u32,
    /// The parameters.
    pub body: &'a [u8],
}

impl<'a> RawMessage<'a> {
    /// The first message, and the bytes after it.
    fn split(bytes: &'a [u8]) -> Result<(RawMessage<'a>, &'a [u8]), Status> {
        const BAD: Status = Status::new(code::BAD_MESSAGE_LENGTH);
        let (&[a, b, c, d, rest @ ..], after) = bytes.split_first_chunk::<MESSAGE_HEADER>().ok_or(BAD)?;
        let (head, id) = (u16::from_be_bytes([a, b]), u32::from_be_bytes(rest));
        // The length counts the Message ID.
        let length = usize::from(u16::from_be_bytes([c, d])).checked_sub(4);
        let about = BAD.about(id, head);
        let (body, after) = length.and_then(|length| after.split_at_checked(length)).ok_or(about)?;
        Ok((RawMessage { kind: head & !UNKNOWN, ignorable: head & UNKNOWN != 0, id, body }, after))
    }
}

/// The PDU at the front of `bytes`, the unread part of a TCP stream; `None` if it is incomplete. `max` is the largest PDU Length
/// that the peer may send.
///
/// # Errors
/// Bad Protocol Version or Bad PDU Length (RFC 5036 section 3.5.1.2.1). The rest of the stream cannot be parsed.
pub fn frame(bytes: &[u8], max: u16) -> Result<Option<Pdu<'_>>, Status> {
    if bytes.first_chunk().is_some_and(|version| u16::from_be_bytes(*version) != VERSION) {
        return Err(Status::new(code::BAD_PROTOCOL_VERSION));
    }
    let Some(&[_, _, high, low]) = bytes.first_chunk::<UNCOUNTED>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if !(SHORTEST..=max.into()).contains(&length) {
        return Err(Status::new(code::BAD_PDU_LENGTH));
    }
    let Some(pdu) = bytes.get(UNCOUNTED..UNCOUNTED + length) else { return Ok(None) };
    Ok(pdu.split_first_chunk().map(|(id, body)| Pdu { id: LdpId::from_bytes(*id), body }))
}

/// The hello in a UDP datagram, and its sender.
///
/// # Errors
/// The status of the first error; a receiver of hellos does not answer.
pub fn parse_hello(datagram: &[u8]) -> Result<(LdpId, Hello), Status> {
    let pdu = frame(datagram, DEFAULT_MAX)?.ok_or(Status::new(code::BAD_PDU_LENGTH))?;
    for message in pdu.messages() {
        let message = message?;
        if message.kind == kind::HELLO
            && let Some(Message::Hello(hello)) = message.parse()?
        {
            return Ok((pdu.id, hello));
        }
    }
    Err(Status::new(code::UNKNOWN_MESSAGE_TYPE))
}

/// Packs messages into as few PDUs as possible.
pub struct PduWriter<'a> {
    room: &'a mut [u8],
    id: LdpId,
    max: usize,
    /// Start of the last PDU.
    start: usize,
    end: usize,
}

impl<'a> PduWriter<'a> {
    /// Writes PDUs of `id` into `room`, from its front on, each of at most `max` bytes in all.
    pub fn new(room: &'a mut [u8], id: LdpId, max: u16) -> PduWriter<'a> {
        PduWriter { room, id, max: max.into(), start: 0, end: 0 }
    }

    /// Adds a message; false if there is no room for it.
    pub fn push(&mut self, id: u32, message: &Message<'_>) -> bool {
        let Some(place) = self.place(message.message_len()) else { return false };
        message.emit(id, place);
        true
    }

    /// Adds a message that [`Message::emit`] has written; false if there is no room for it.
    pub fn push_written(&mut self, message: &[u8]) -> bool {
        let Some(place) = self.place(message.len()) else { return false };
        place.copy_from_slice(message);
        true
    }

    /// Number of written bytes: whole PDUs.
    pub fn written(&self) -> usize {
        self.end
    }

    /// Room for a message of this length, in the last PDU or a new one.
    fn place(&mut self, length: usize) -> Option<&mut [u8]> {
        let opens = self.end == self.start || self.end - self.start + length > self.max;
        let at = if opens { self.end + HEADER_LEN } else { self.end };
        if at + length > self.room.len() {
            return None;
        }
        if opens {
            self.start = self.end;
            self.room[self.start..self.start + 2].copy_from_slice(&VERSION.to_be_bytes());
            self.room[self.start + UNCOUNTED..at].copy_from_slice(&self.id.to_bytes());
        }
        self.end = at + length;
        let counted = (self.end - self.start - UNCOUNTED) as u16;
        self.room[self.start + 2..self.start + UNCOUNTED].copy_from_slice(&counted.to_be_bytes());
        Some(&mut self.room[at..at + length])
    }
}
