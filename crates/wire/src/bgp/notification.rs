//! NOTIFICATION (RFC 4271 section 4.5): the reason why a session ends. Codes, subcodes and their names follow IANA's
//! registry. The shutdown text of RFC 9003 and the hard reset of RFC 8538 are included.
//!
//! ```text
//! +-------------------------------+
//! |  Code (1)     |  Subcode (1)  |  Data (the rest)
//! +-------------------------------+
//! ```

use super::message::{self, HEADER_LEN, kind};
use std::fmt;

/// Tables of codes and subcodes: name, number, name in IANA's registry (if it has one), and meaning.
macro_rules! registry {
    ($($(#[$doc:meta])* mod $module:ident of $code:expr => { $($name:ident = $number:literal $([$title:literal])?, $meaning:literal;)* })*) => {
        $($(#[$doc])* pub mod $module { $(#[doc = $meaning] pub const $name: u8 = $number;)* })*

        /// Returns the name of a subcode. If `code` is 0, `number` is itself a code.
        fn title(code: u8, number: u8) -> Option<&'static str> {
            $($($(if (code, number) == ($code, $number) {
                return Some($title);
            })?)*)*
            None
        }
    };
}

registry! {
    /// Error codes.
    mod code of 0 => {
        MESSAGE_HEADER = 1 ["Message Header Error"], "The header of a message is wrong.";
        OPEN = 2 ["OPEN Message Error"], "An OPEN is wrong or not acceptable.";
        UPDATE = 3 ["UPDATE Message Error"], "An UPDATE is wrong.";
        HOLD_TIMER_EXPIRED = 4 ["Hold Timer Expired"], "No message arrived during the hold time.";
        FINITE_STATE_MACHINE = 5 ["Finite State Machine Error"], "A message that is not allowed in the current state (subcodes: RFC 6608).";
        CEASE = 6 ["Cease"], "The speaker ends the session, not because of an error (subcodes: RFC 4486).";
        ROUTE_REFRESH = 7 ["ROUTE-REFRESH Message Error"], "A ROUTE-REFRESH is wrong (RFC 7313).";
        SEND_HOLD_TIMER_EXPIRED = 8 ["Send Hold Timer Expired"], "The peer has not read for the send hold time (RFC 9687).";
    }

    /// Subcodes of [`code::MESSAGE_HEADER`].
    mod header of code::MESSAGE_HEADER => {
        NOT_SYNCHRONIZED = 1 ["Connection Not Synchronized"], "The marker is not all ones.";
        BAD_LENGTH = 2 ["Bad Message Length"], "The length is invalid for this type; data: the length.";
        BAD_TYPE = 3 ["Bad Message Type"], "The type is unknown; data: the type.";
    }

    /// Subcodes of [`code::OPEN`].
    mod open of code::OPEN => {
        UNSPECIFIC = 0, "Fields or parameters are inconsistent.";
        UNSUPPORTED_VERSION = 1 ["Unsupported Version Number"], "Data: the largest version that is supported (2 bytes).";
        BAD_PEER_AS = 2 ["Bad Peer AS"], "The AS differs from the expected one.";
        BAD_IDENTIFIER = 3 ["Bad BGP Identifier"], "The identifier is zero, or (RFC 6286) an internal peer has the speaker's own identifier.";
        UNSUPPORTED_PARAMETER = 4 ["Unsupported Optional Parameter"], "An unknown optional parameter.";
        UNACCEPTABLE_HOLD_TIME = 6 ["Unacceptable Hold Time"], "A hold time of one or two seconds.";
        UNSUPPORTED_CAPABILITY = 7 ["Unsupported Capability"], "Data: the required capabilities (RFC 5492).";
        ROLE_MISMATCH = 11 ["Role Mismatch"], "The roles of the speakers do not match (RFC 9234).";
    }

    /// Subcodes of [`code::UPDATE`].
    mod update of code::UPDATE => {
        MALFORMED_ATTRIBUTE_LIST = 1 ["Malformed Attribute List"], "Lengths are inconsistent.";
        UNRECOGNIZED_WELL_KNOWN = 2 ["Unrecognized Well-known Attribute"], "Data: the attribute.";
        MISSING_WELL_KNOWN = 3 ["Missing Well-known Attribute"], "Data: the type code of the attribute.";
        ATTRIBUTE_FLAGS = 4 ["Attribute Flags Error"], "Data: the attribute.";
        ATTRIBUTE_LENGTH = 5 ["Attribute Length Error"], "Data: the attribute.";
        INVALID_ORIGIN = 6 ["Invalid ORIGIN Attribute"], "Data: the attribute.";
        INVALID_NEXT_HOP = 8 ["Invalid NEXT_HOP Attribute"], "Data: the attribute.";
        OPTIONAL_ATTRIBUTE = 9 ["Optional Attribute Error"], "Data: the attribute.";
        INVALID_NETWORK_FIELD = 10 ["Invalid Network Field"], "A prefix that is invalid for its length.";
        MALFORMED_AS_PATH = 11 ["Malformed AS_PATH"], "The AS path is syntactically wrong.";
    }

    /// Subcodes of [`code::FINITE_STATE_MACHINE`] (RFC 6608): the state in which an unexpected message arrived.
    mod fsm of code::FINITE_STATE_MACHINE => {
        OPEN_SENT = 1 ["Unexpected Message in OpenSent"], "In OpenSent.";
        OPEN_CONFIRM = 2 ["Unexpected Message in OpenConfirm"], "In OpenConfirm.";
        ESTABLISHED = 3 ["Unexpected Message in Established"], "In Established.";
    }

    /// Subcodes of [`code::CEASE`] (RFC 4486, RFC 8538, RFC 9384).
    mod cease of code::CEASE => {
        MAXIMUM_PREFIXES = 1 ["Maximum Number of Prefixes Reached"], "More prefixes than allowed.";
        ADMINISTRATIVE_SHUTDOWN = 2 ["Administrative Shutdown"], "The operator ends the session; data: a text (RFC 9003).";
        PEER_DECONFIGURED = 3 ["Peer De-configured"], "The peer is no longer configured.";
        ADMINISTRATIVE_RESET = 4 ["Administrative Reset"], "The operator restarts the session; data: a text (RFC 9003).";
        CONNECTION_REJECTED = 5 ["Connection Rejected"], "The peer is not allowed to connect.";
        OTHER_CONFIGURATION_CHANGE = 6 ["Other Configuration Change"], "Another change of the configuration.";
        CONNECTION_COLLISION = 7 ["Connection Collision Resolution"], "The other connection to this peer is kept (RFC 4271 section 6.8).";
        OUT_OF_RESOURCES = 8 ["Out of Resources"], "Memory or another resource is exhausted.";
        HARD_RESET = 9 ["Hard Reset"], "No graceful restart; data: code, subcode and data of the real reason (RFC 8538).";
        BFD_DOWN = 10 ["BFD Down"], "BFD reports that the peer is down.";
    }
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
    /// The meaning depends on the code. 0 means not specified.
    pub subcode: u8,
    /// The meaning depends on code and subcode. [`Notification::emit`] truncates the data to the longest message.
    pub data: Vec<u8>,
}

impl Notification {
    /// Creates a NOTIFICATION with data.
    pub fn new(code: u8, subcode: u8, data: impl Into<Vec<u8>>) -> Notification {
        Notification { code, subcode, data: data.into() }
    }

    /// Creates a NOTIFICATION without data.
    pub const fn bare(code: u8, subcode: u8) -> Notification {
        Notification { code, subcode, data: Vec::new() }
    }

    /// Creates a [`code::CEASE`] for a shutdown or reset with a text for the peer's operator. The text is truncated at
    /// a character boundary to at most [`SHUTDOWN_TEXT_MAX`] bytes.
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

    /// Returns the reason inside a hard reset; `None` if this is not a hard reset or its data is too short.
    pub fn inside_hard_reset(&self) -> Option<Notification> {
        match *self.data {
            [code, subcode, ref data @ ..] if (self.code, self.subcode) == (code::CEASE, cease::HARD_RESET) => {
                Some(Notification::new(code, subcode, data))
            }
            _ => None,
        }
    }

    /// Returns the text for the operator in a shutdown or reset, including one inside a hard reset. Bytes that are not
    /// UTF-8 are replaced. `None` if there is no text or its length is inconsistent (RFC 9003 section 2).
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

    /// Parses the body of a message. The session ends whatever it contains, so only the minimum of two bytes is checked.
    ///
    /// # Errors
    /// The answer "bad length". It is not sent, because a NOTIFICATION is never answered with another.
    pub fn parse(body: &[u8]) -> Result<Notification, Notification> {
        match *body {
            [code, subcode, ref data @ ..] => Ok(Notification::new(code, subcode, data)),
            _ => Err(message::bad_length(HEADER_LEN + body.len())),
        }
    }

    /// Returns the length of the whole message in bytes, at most [`message::MAX_LEN`].
    pub fn message_len(&self) -> usize {
        (HEADER_LEN + 2 + self.data.len()).min(message::MAX_LEN)
    }

    /// Writes the whole message to the front of `buffer`, which has at least [`Notification::message_len`] bytes, and
    /// returns its length. Data that does not fit is truncated.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let length = self.message_len();
        message::emit_header(buffer, kind::NOTIFICATION, length);
        buffer[HEADER_LEN] = self.code;
        buffer[HEADER_LEN + 1] = self.subcode;
        buffer[HEADER_LEN + 2..length].copy_from_slice(&self.data[..length - HEADER_LEN - 2]);
        length
    }

    /// Returns the name of the code, for example `Cease`.
    pub fn code_name(&self) -> &'static str {
        title(0, self.code).unwrap_or("unknown code")
    }

    /// Returns the name of the subcode, for example `Administrative Shutdown`; `None` for an unknown subcode, and for
    /// "not specified".
    pub fn subcode_name(&self) -> Option<&'static str> {
        match (self.code, self.subcode) {
            (code::ROUTE_REFRESH, REFRESH_INVALID_LENGTH) => Some("Invalid Message Length"),
            // Code 0 does not exist.
            (0, _) => None,
            (code, subcode) => title(code, subcode),
        }
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
