//! The header of every message (RFC 4271 section 4.1), and splitting a TCP byte stream.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                   Marker: 16 bytes of ones                    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |          Length               |      Type     |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use super::notification::{Notification, code, header};

/// Length of the header in bytes. The shortest message has only a header.
pub const HEADER_LEN: usize = 19;
/// Longest message without the capability "extended messages". With that capability, it is still the longest OPEN and KEEPALIVE.
pub const MAX_LEN: usize = 4096;
/// Longest message with the capability "extended messages" (RFC 8654).
pub const MAX_LEN_EXTENDED: usize = 65535;
/// Length of the marker in bytes.
const MARKER_LEN: usize = 16;

pub use crate::numbers::bgp_message as kind;

/// A complete message: its type and its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// One of [`kind`].
    pub kind: u8,
    /// The bytes after the header.
    pub body: &'a [u8],
}

impl Message<'_> {
    /// Returns the length of the whole message in bytes.
    pub fn message_len(&self) -> usize {
        HEADER_LEN + self.body.len()
    }
}

/// Returns the NOTIFICATION that answers a message whose header contains `length`.
pub fn bad_length(length: usize) -> Notification {
    Notification::new(code::MESSAGE_HEADER, header::BAD_LENGTH, (length as u16).to_be_bytes())
}

/// Returns the shortest length of a message of a type, header included; `None` for an unknown type.
const fn min_len(kind: u8) -> Option<usize> {
    Some(match kind {
        kind::OPEN => 29,
        kind::UPDATE => 23,
        kind::NOTIFICATION => 21,
        kind::KEEPALIVE => 19,
        // Shorter messages have their own error code (RFC 7313 section 5).
        kind::ROUTE_REFRESH => 19,
        _ => return None,
    })
}

/// Returns the message at the front of `bytes`, the unread part of a TCP stream; `None` if it is incomplete. A header
/// is checked as soon as it is complete, a marker as soon as its first wrong byte has arrived. `max` is the longest
/// message that the peer is allowed to send: [`MAX_LEN`], or [`MAX_LEN_EXTENDED`] if both speakers support it.
///
/// # Errors
/// The NOTIFICATION of RFC 4271 section 6.1: marker, length or type is wrong. The rest of the stream cannot be parsed.
pub fn frame(bytes: &[u8], max: usize) -> Result<Option<Message<'_>>, Notification> {
    let marked = match bytes.first_chunk::<MARKER_LEN>() {
        Some(marker) => *marker == [0xff; MARKER_LEN],
        None => bytes.iter().all(|&byte| byte == 0xff),
    };
    if !marked {
        return Err(Notification::bare(code::MESSAGE_HEADER, header::NOT_SYNCHRONIZED));
    }
    let Some(head) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let [.., high, low, kind] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if !(HEADER_LEN..=max).contains(&length) {
        return Err(bad_length(length));
    }
    let Some(least) = min_len(kind) else {
        return Err(Notification::new(code::MESSAGE_HEADER, header::BAD_TYPE, [kind]));
    };
    let most = match kind {
        kind::KEEPALIVE => HEADER_LEN,
        // RFC 8654 section 4: OPEN and KEEPALIVE cannot be extended.
        kind::OPEN => MAX_LEN.min(max),
        _ => max,
    };
    if !(least..=most).contains(&length) {
        return Err(bad_length(length));
    }
    Ok(bytes.get(HEADER_LEN..length).map(|body| Message { kind, body }))
}

/// Writes the header of a message of `length` bytes, header included, to the front of `buffer`.
pub fn emit_header(buffer: &mut [u8], kind: u8, length: usize) {
    debug_assert!((HEADER_LEN..=MAX_LEN_EXTENDED).contains(&length));
    buffer[..MARKER_LEN].fill(0xff);
    buffer[MARKER_LEN..MARKER_LEN + 2].copy_from_slice(&(length as u16).to_be_bytes());
    buffer[HEADER_LEN - 1] = kind;
}

/// Writes a KEEPALIVE to the front of `buffer`, which has at least [`HEADER_LEN`] bytes, and returns its length.
pub fn emit_keepalive(buffer: &mut [u8]) -> usize {
    emit_header(buffer, kind::KEEPALIVE, HEADER_LEN);
    HEADER_LEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![0; HEADER_LEN + body.len()];
        emit_header(&mut out, kind, HEADER_LEN + body.len());
        out[HEADER_LEN..].copy_from_slice(body);
        out
    }

    fn refused(bytes: &[u8], max: usize) -> (u8, u8, Vec<u8>) {
        let answer = frame(bytes, max).unwrap_err();
        (answer.code, answer.subcode, answer.data)
    }

    #[test]
    fn a_keepalive_is_written_and_read() {
        let mut out = [0; HEADER_LEN];
        assert_eq!(emit_keepalive(&mut out), 19);
        assert_eq!(out[16..], [0, 19, 4]);
        assert_eq!(frame(&out, MAX_LEN), Ok(Some(Message { kind: kind::KEEPALIVE, body: &[] })));
        assert_eq!(frame(&out[..18], MAX_LEN), Ok(None));
    }

    #[test]
    fn a_wrong_marker_is_refused_before_the_header_is_whole() {
        let mut bytes = message(kind::KEEPALIVE, &[]);
        bytes[15] = 0xfe;
        assert_eq!(refused(&bytes[..16], MAX_LEN), (1, 1, vec![]));
        assert_eq!(frame(&bytes[..15], MAX_LEN), Ok(None));
    }

    #[test]
    fn lengths_of_each_type() {
        for (kind, least) in [(1, 29), (2, 23), (3, 21), (4, 19), (5, 19)] {
            assert!(frame(&message(kind, &vec![0; least - 19]), MAX_LEN).unwrap().is_some(), "type {kind}");
            if least > 19 {
                let short = message(kind, &vec![0; least - 20]);
                assert_eq!(refused(&short, MAX_LEN), (1, 2, vec![0, least as u8 - 1]), "type {kind}");
            }
        }
        assert_eq!(refused(&message(4, &[0]), MAX_LEN), (1, 2, vec![0, 20]));
        let mut tiny = message(2, &[0; 4]);
        tiny[17] = 18;
        assert_eq!(refused(&tiny, MAX_LEN), (1, 2, vec![0, 18]));
    }

    #[test]
    fn long_messages_need_the_capability_and_an_open_may_never_be_one() {
        for length in [4096, 4097, 65535] {
            let update = message(kind::UPDATE, &vec![0; length - 19]);
            assert_eq!(frame(&update, MAX_LEN).is_ok(), length == 4096);
            assert_eq!(frame(&update, MAX_LEN_EXTENDED).unwrap().unwrap().message_len(), length);
            let open = message(kind::OPEN, &vec![0; length - 19]);
            assert_eq!(frame(&open, MAX_LEN_EXTENDED).is_ok(), length == 4096);
        }
    }

    #[test]
    fn an_unknown_type_is_refused_with_it() {
        assert_eq!(refused(&message(6, &[]), MAX_LEN), (1, 3, vec![6]));
        assert_eq!(refused(&message(0, &[]), MAX_LEN), (1, 3, vec![0]));
    }

    /// Splits a stream that arrives in pieces of the given sizes.
    fn split(stream: &[u8], pieces: &[usize], max: usize) -> (Vec<(u8, Vec<u8>)>, Option<Notification>) {
        let (mut held, mut messages, mut rest) = (Vec::new(), Vec::new(), stream);
        for &size in pieces.iter().chain([&stream.len()]) {
            let (piece, later) = rest.split_at(size.min(rest.len()));
            rest = later;
            held.extend_from_slice(piece);
            loop {
                let length = match frame(&held, max) {
                    Ok(Some(message)) => {
                        messages.push((message.kind, message.body.to_vec()));
                        message.message_len()
                    }
                    Ok(None) => break,
                    Err(answer) => return (messages, Some(answer)),
                };
                held.drain(..length);
            }
        }
        (messages, None)
    }

    proptest! {
        #[test]
        fn any_boundaries_give_the_same_messages(
            sent in proptest::collection::vec((prop_oneof![Just(2u8), Just(3), Just(5)], proptest::collection::vec(any::<u8>(), 4..80)), 0..8),
            pieces in proptest::collection::vec(0usize..60, 0..30),
            garbage in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut stream: Vec<u8> = sent.iter().flat_map(|(kind, body)| message(*kind, body)).collect();
            prop_assert_eq!(split(&stream, &pieces, MAX_LEN), (sent, None));
            stream.extend_from_slice(&garbage);
            prop_assert_eq!(split(&stream, &pieces, MAX_LEN), split(&stream, &[], MAX_LEN));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), marked: bool, extended: bool) {
            if marked {
                bytes.iter_mut().take(16).for_each(|byte| *byte = 0xff);
            }
            let max = if extended { MAX_LEN_EXTENDED } else { MAX_LEN };
            if let Ok(Some(found)) = frame(&bytes, max) {
                prop_assert_eq!(&message(found.kind, found.body), &bytes[..found.message_len()]);
            }
        }
    }
}
