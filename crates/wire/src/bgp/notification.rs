//! NOTIFICATION (RFC 4271 section 4.5): the reason for the end of a session. Codes, subcodes and their names follow
//! IANA's registry; also the shutdown text of RFC 9003 and the hard reset of RFC 8538.
//!
//! ```text
//! +-------------------------------+
//! |  Code (1)     |  Subcode (1)  |  Data (the rest)
//! +-------------------------------+
//! ```

use super::message::{self, HEADER_LEN, kind};
use std::fmt;

/// Error codes.
pub mod code {
    /// The header of a message is wrong.
    pub const MESSAGE_HEADER: u8 = 1;
    /// An OPEN is wrong or not acceptable.
    pub const OPEN: u8 = 2;
    /// An UPDATE is wrong.
    pub const UPDATE: u8 = 3;
    /// No message arrived during the hold time.
    pub const HOLD_TIMER_EXPIRED: u8 = 4;
    /// A message that is not allowed in the current state (subcodes: RFC 6608).
    pub const FINITE_STATE_MACHINE: u8 = 5;
    /// The speaker ends the session, not because of an error (subcodes: RFC 4486).
    pub const CEASE: u8 = 6;
    /// A ROUTE-REFRESH is wrong (RFC 7313).
    pub const ROUTE_REFRESH: u8 = 7;
    /// The peer has not read for the send hold time (RFC 9687).
    pub const SEND_HOLD_TIMER_EXPIRED: u8 = 8;
}

/// Subcodes of [`code::MESSAGE_HEADER`].
pub mod header {
    /// The marker is not all ones.
    pub const NOT_SYNCHRONIZED: u8 = 1;
    /// The length is invalid for this type; data: the length.
    pub const BAD_LENGTH: u8 = 2;
    /// The type is unknown; data: the type.
    pub const BAD_TYPE: u8 = 3;
}

/// Subcodes of [`code::OPEN`].
pub mod open {
    /// Fields or parameters are inconsistent.
    pub const UNSPECIFIC: u8 = 0;
    /// Data: the largest version that is supported (2 bytes).
    pub const UNSUPPORTED_VERSION: u8 = 1;
    /// The AS differs from the expected one.
    pub const BAD_PEER_AS: u8 = 2;
    /// The identifier is zero, or (RFC 6286) an internal peer has the speaker's own identifier.
    pub const BAD_IDENTIFIER: u8 = 3;
    /// An unknown optional parameter.
    pub const UNSUPPORTED_PARAMETER: u8 = 4;
    /// A hold time of one or two seconds.
    pub const UNACCEPTABLE_HOLD_TIME: u8 = 6;
    /// Data: the required capabilities (RFC 5492).
    pub const UNSUPPORTED_CAPABILITY: u8 = 7;
    /// The roles of the speakers do not match (RFC 9234).
    pub const ROLE_MISMATCH: u8 = 11;
}

/// Subcodes of [`code::UPDATE`].
pub mod update {
    /// Lengths are inconsistent.
    pub const MALFORMED_ATTRIBUTE_LIST: u8 = 1;
    /// Data: the attribute.
    pub const UNRECOGNIZED_WELL_KNOWN: u8 = 2;
    /// Data: the type code of the attribute.
    pub const MISSING_WELL_KNOWN: u8 = 3;
    /// Data: the attribute.
    pub const ATTRIBUTE_FLAGS: u8 = 4;
    /// Data: the attribute.
    pub const ATTRIBUTE_LENGTH: u8 = 5;
    /// Data: the attribute.
    pub const INVALID_ORIGIN: u8 = 6;
    /// Data: the attribute.
    pub const INVALID_NEXT_HOP: u8 = 8;
    /// Data: the attribute.
    pub const OPTIONAL_ATTRIBUTE: u8 = 9;
    /// A prefix that is invalid for its length.
    pub const INVALID_NETWORK_FIELD: u8 = 10;
    /// The AS path is syntactically wrong.
    pub const MALFORMED_AS_PATH: u8 = 11;
}

/// Subcodes of [`code::FINITE_STATE_MACHINE`] (RFC 6608): the state in which an unexpected message arrived.
pub mod fsm {
    /// In OpenSent.
    pub const OPEN_SENT: u8 = 1;
    /// In OpenConfirm.
    pub const OPEN_CONFIRM: u8 = 2;
    /// In Established.
    pub const ESTABLISHED: u8 = 3;
}

/// Subcodes of [`code::CEASE`] (RFC 4486, RFC 8538, RFC 9384).
pub mod cease {
    /// More prefixes than allowed.
    pub const MAXIMUM_PREFIXES: u8 = 1;
    /// The operator ends the session; data: a text (RFC 9003).
    pub const ADMINISTRATIVE_SHUTDOWN: u8 = 2;
    /// The peer is no longer configured.
    pub const PEER_DECONFIGURED: u8 = 3;
    /// The operator restarts the session; data: a text (RFC 9003).
    pub const ADMINISTRATIVE_RESET: u8 = 4;
    /// The peer is not allowed to connect.
    pub const CONNECTION_REJECTED: u8 = 5;
    /// Another change of the configuration.
    pub const OTHER_CONFIGURATION_CHANGE: u8 = 6;
    /// The other connection to this peer is kept (RFC 4271 section 6.8).
    pub const CONNECTION_COLLISION: u8 = 7;
    /// Memory or another resource is exhausted.
    pub const OUT_OF_RESOURCES: u8 = 8;
    /// No graceful restart; data: code, subcode and data of the real reason (RFC 8538).
    pub const HARD_RESET: u8 = 9;
    /// BFD reports that the peer is down.
    pub const BFD_DOWN: u8 = 10;
}

/// Subcode of [`code::ROUTE_REFRESH`]: the length is wrong; data: the message.
pub const REFRESH_INVALID_LENGTH: u8 = 1;

/// Longest shutdown text in bytes (RFC 9003; 128 before, in RFC 8203).
pub const SHUTDOWN_TEXT_MAX: usize = 255;

/// A NOTIFICATION, sent to a peer or received from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// See [`code`].
    pub code: u8,
    /// Its meaning depends on the code; 0: not specified.
    pub subcode: u8,
    /// Meaning depends on code and subcode. [`Notification::emit`] truncates it to the largest message.
    pub data: Vec<u8>,
}

impl Notification {
    /// A NOTIFICATION with data.
    pub fn new(code: u8, subcode: u8, data: impl Into<Vec<u8>>) -> Notification {
        Notification { code, subcode, data: data.into() }
    }

    /// A NOTIFICATION without data.
    pub const fn bare(code: u8, subcode: u8) -> Notification {
        Notification { code, subcode, data: Vec::new() }
    }

    /// A [`code::CEASE`] for shutdown or reset with a text for the peer's operator, truncated at a character boundary
    /// to at most [`SHUTDOWN_TEXT_MAX`] bytes.
    pub fn cease(subcode: u8, text: &str) -> Notification {
        let mut end = text.len().min(SHUTDOWN_TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut data = Vec::new();
        if end > 0 {
            data.push(end as u8);
            data.extend_from_slice(&text.as_bytes()[..end]);
        }
        Notification { code: code::CEASE, subcode, data }
    }

    /// The reason inside a hard reset; `None` if this is not a hard reset or its data is too short.
    pub fn inside_hard_reset(&self) -> Option<Notification> {
        match *self.data {
            [code, subcode, ref data @ ..] if (self.code, self.subcode) == (code::CEASE, cease::HARD_RESET) => {
                Some(Notification::new(code, subcode, data))
            }
            _ => None,
        }
    }

    /// The text for the operator in a shutdown or reset, also inside a hard reset; bytes that are not UTF-8 are
    /// replaced. `None` if there is none or its length is inconsistent (RFC 9003 section 2).
    pub fn text(&self) -> Option<String> {
        if let Some(inner) = self.inside_hard_reset() {
            // A hard reset inside a hard reset has no meaning. Not following it also avoids unlimited recursion.
            return if inner.subcode == cease::HARD_RESET { None } else { inner.text() };
        }
        let (&length, rest) = self.data.split_first()?;
        let with_text = [cease::ADMINISTRATIVE_SHUTDOWN, cease::ADMINISTRATIVE_RESET].contains(&self.subcode);
        if self.code != code::CEASE || !with_text || length == 0 {
            return None;
        }
        rest.get(..usize::from(length)).map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// Parses the body of a message. The session ends whatever it contains, so only the minimum of two bytes is
    /// checked.
    ///
    /// # Errors
    /// The answer "bad length". It is not sent, because a NOTIFICATION is never answered by another one.
    pub fn parse(body: &[u8]) -> Result<Notification, Notification> {
        match *body {
            [code, subcode, ref data @ ..] => Ok(Notification::new(code, subcode, data)),
            _ => Err(message::bad_length(HEADER_LEN + body.len())),
        }
    }

    /// Length of the whole message in bytes, at most [`message::MAX_LEN`].
    pub fn message_len(&self) -> usize {
        (HEADER_LEN + 2 + self.data.len()).min(message::MAX_LEN)
    }

    /// Writes the whole message to the front of `buffer`, at least [`Notification::message_len`] bytes, and returns its
    /// length. Data that does not fit is truncated.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = self.message_len();
        message::emit_header(buffer, kind::NOTIFICATION, length);
        buffer[HEADER_LEN] = self.code;
        buffer[HEADER_LEN + 1] = self.subcode;
        buffer[HEADER_LEN + 2..length].copy_from_slice(&self.data[..length - HEADER_LEN - 2]);
        length
    }

    /// Name of the code: `Cease`.
    pub fn code_name(&self) -> &'static str {
        match self.code {
            code::MESSAGE_HEADER => "Message Header Error",
            code::OPEN => "OPEN Message Error",
            code::UPDATE => "UPDATE Message Error",
            code::HOLD_TIMER_EXPIRED => "Hold Timer Expired",
            code::FINITE_STATE_MACHINE => "Finite State Machine Error",
            code::CEASE => "Cease",
            code::ROUTE_REFRESH => "ROUTE-REFRESH Message Error",
            code::SEND_HOLD_TIMER_EXPIRED => "Send Hold Timer Expired",
            _ => "unknown code",
        }
    }

    /// Name of the subcode: `Administrative Shutdown`; `None` for an unknown one, and for "not specified".
    pub fn subcode_name(&self) -> Option<&'static str> {
        Some(match (self.code, self.subcode) {
            (code::MESSAGE_HEADER, header::NOT_SYNCHRONIZED) => "Connection Not Synchronized",
            (code::MESSAGE_HEADER, header::BAD_LENGTH) => "Bad Message Length",
            (code::MESSAGE_HEADER, header::BAD_TYPE) => "Bad Message Type",
            (code::OPEN, open::UNSUPPORTED_VERSION) => "Unsupported Version Number",
            (code::OPEN, open::BAD_PEER_AS) => "Bad Peer AS",
            (code::OPEN, open::BAD_IDENTIFIER) => "Bad BGP Identifier",
            (code::OPEN, open::UNSUPPORTED_PARAMETER) => "Unsupported Optional Parameter",
            (code::OPEN, open::UNACCEPTABLE_HOLD_TIME) => "Unacceptable Hold Time",
            (code::OPEN, open::UNSUPPORTED_CAPABILITY) => "Unsupported Capability",
            (code::OPEN, open::ROLE_MISMATCH) => "Role Mismatch",
            (code::UPDATE, update::MALFORMED_ATTRIBUTE_LIST) => "Malformed Attribute List",
            (code::UPDATE, update::UNRECOGNIZED_WELL_KNOWN) => "Unrecognized Well-known Attribute",
            (code::UPDATE, update::MISSING_WELL_KNOWN) => "Missing Well-known Attribute",
            (code::UPDATE, update::ATTRIBUTE_FLAGS) => "Attribute Flags Error",
            (code::UPDATE, update::ATTRIBUTE_LENGTH) => "Attribute Length Error",
            (code::UPDATE, update::INVALID_ORIGIN) => "Invalid ORIGIN Attribute",
            (code::UPDATE, update::INVALID_NEXT_HOP) => "Invalid NEXT_HOP Attribute",
            (code::UPDATE, update::OPTIONAL_ATTRIBUTE) => "Optional Attribute Error",
            (code::UPDATE, update::INVALID_NETWORK_FIELD) => "Invalid Network Field",
            (code::UPDATE, update::MALFORMED_AS_PATH) => "Malformed AS_PATH",
            (code::FINITE_STATE_MACHINE, fsm::OPEN_SENT) => "Unexpected Message in OpenSent",
            (code::FINITE_STATE_MACHINE, fsm::OPEN_CONFIRM) => "Unexpected Message in OpenConfirm",
            (code::FINITE_STATE_MACHINE, fsm::ESTABLISHED) => "Unexpected Message in Established",
            (code::CEASE, cease::MAXIMUM_PREFIXES) => "Maximum Number of Prefixes Reached",
            (code::CEASE, cease::ADMINISTRATIVE_SHUTDOWN) => "Administrative Shutdown",
            (code::CEASE, cease::PEER_DECONFIGURED) => "Peer De-configured",
            (code::CEASE, cease::ADMINISTRATIVE_RESET) => "Administrative Reset",
            (code::CEASE, cease::CONNECTION_REJECTED) => "Connection Rejected",
            (code::CEASE, cease::OTHER_CONFIGURATION_CHANGE) => "Other Configuration Change",
            (code::CEASE, cease::CONNECTION_COLLISION) => "Connection Collision Resolution",
            (code::CEASE, cease::OUT_OF_RESOURCES) => "Out of Resources",
            (code::CEASE, cease::HARD_RESET) => "Hard Reset",
            (code::CEASE, cease::BFD_DOWN) => "BFD Down",
            (code::ROUTE_REFRESH, REFRESH_INVALID_LENGTH) => "Invalid Message Length",
            _ => return None,
        })
    }
}

impl fmt::Display for Notification {
    /// Formats as `Cease / Administrative Shutdown (6/2): "maintenance"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code_name())?;
        if let Some(name) = self.subcode_name() {
            write!(f, " / {name}")?;
        }
        write!(f, " ({}/{})", self.code, self.subcode)?;
        if let Some(inner) = self.inside_hard_reset() {
            write!(f, " because of {}", inner.code_name())?;
            if let Some(name) = inner.subcode_name() {
                write!(f, " / {name}")?;
            }
        }
        if let Some(text) = self.text() {
            write!(f, ": {text:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(notification: &Notification) -> Vec<u8> {
        let mut out = vec![0; message::MAX_LEN];
        let length = notification.emit(&mut out);
        out.truncate(length);
        out
    }

    #[test]
    fn a_shutdown_speaks() {
        let shutdown = Notification::cease(cease::ADMINISTRATIVE_SHUTDOWN, "maintenance");
        assert_eq!(written(&shutdown)[16..], *b"\x00\x21\x03\x06\x02\x0bmaintenance");
        assert_eq!(shutdown.to_string(), "Cease / Administrative Shutdown (6/2): \"maintenance\"");
        let data = [&[shutdown.code, shutdown.subcode][..], &shutdown.data].concat();
        let hard = Notification::new(code::CEASE, cease::HARD_RESET, data);
        assert_eq!(hard.data[..3], [6, 2, 11]);
        assert_eq!(hard.inside_hard_reset(), Some(shutdown));
        assert_eq!(
            hard.to_string(),
            "Cease / Hard Reset (6/9) because of Cease / Administrative Shutdown: \"maintenance\""
        );
    }

    #[test]
    fn a_text_is_cut_at_a_character_and_an_empty_one_is_none() {
        let long = Notification::cease(cease::ADMINISTRATIVE_RESET, &"é".repeat(200));
        assert_eq!((long.data.len(), long.data[0]), (255, 254));
        assert_eq!(long.text().unwrap(), "é".repeat(127));
        assert!(Notification::cease(2, "").data.is_empty());
        assert_eq!(Notification::new(6, 2, [3, b'a', b'b']).text(), None, "shorter than it says");
        assert_eq!(Notification::new(6, 3, [1, b'a']).text(), None, "no text in this subcode");
        assert_eq!(Notification::new(6, 2, [2, 0xff, b'b']).text().unwrap(), "\u{fffd}b");
    }

    #[test]
    fn hard_resets_in_hard_resets_end() {
        let deep = Notification::new(6, 9, [6, 9].repeat(2000));
        assert_eq!(deep.text(), None);
        assert_eq!(deep.to_string(), "Cease / Hard Reset (6/9) because of Cease / Hard Reset");
    }

    #[test]
    fn what_is_not_known_is_named_by_number() {
        assert_eq!(Notification::bare(77, 1).to_string(), "unknown code (77/1)");
        assert_eq!(Notification::bare(code::HOLD_TIMER_EXPIRED, 0).to_string(), "Hold Timer Expired (4/0)");
    }

    #[test]
    fn too_short_is_refused_and_too_long_is_cut() {
        assert_eq!(Notification::parse(&[6]), Err(Notification::new(1, 2, [0, 20])));
        let long = Notification::new(1, 2, vec![7; 5000]);
        assert_eq!(written(&long).len(), 4096);
    }

    proptest! {
        #[test]
        fn parse_undoes_emit(code: u8, subcode: u8, data in proptest::collection::vec(any::<u8>(), 0..300)) {
            let notification = Notification::new(code, subcode, data);
            let out = written(&notification);
            prop_assert_eq!(out.len(), notification.message_len());
            prop_assert_eq!(Notification::parse(&out[HEADER_LEN..]), Ok(notification.clone()));
            let numbers = format!("({code}/{subcode})");
            prop_assert!(notification.to_string().contains(&numbers));
        }
    }
}
