//! Status codes (RFC 5036 section 3.9) and the Status TLV (section 3.4.6).

use std::fmt;

/// Table of codes: name, number, true if it ends the session, name in the registry.
macro_rules! codes {
    ($($name:ident = $number:literal, $fatal:literal, $title:literal;)*) => {
        /// Status codes, without the bits E and F.
        pub mod code {
            $(#[doc = concat!("\"", $title, "\".")] pub const $name: u32 = $number;)*
        }

        /// Whether a code ends the session, and its name.
        const fn known(code: u32) -> Option<(bool, &'static str)> {
            match code {
                $($number => Some(($fatal, $title)),)*
                _ => None,
            }
        }

        #[cfg(test)]
        const ALL: &[u32] = &[$($number),*];
    };
}

codes! {
    SUCCESS = 0x00, false, "Success";
    BAD_LDP_IDENTIFIER = 0x01, true, "Bad LDP Identifier";
    BAD_PROTOCOL_VERSION = 0x02, true, "Bad Protocol Version";
    BAD_PDU_LENGTH = 0x03, true, "Bad PDU Length";
    UNKNOWN_MESSAGE_TYPE = 0x04, false, "Unknown Message Type";
    BAD_MESSAGE_LENGTH = 0x05, true, "Bad Message Length";
    UNKNOWN_TLV = 0x06, false, "Unknown TLV";
    BAD_TLV_LENGTH = 0x07, true, "Bad TLV Length";
    MALFORMED_TLV_VALUE = 0x08, true, "Malformed TLV Value";
    HOLD_TIMER_EXPIRED = 0x09, true, "Hold Timer Expired";
    SHUTDOWN = 0x0a, true, "Shutdown";
    LOOP_DETECTED = 0x0b, false, "Loop Detected";
    UNKNOWN_FEC = 0x0c, false, "Unknown FEC";
    NO_ROUTE = 0x0d, false, "No Route";
    NO_LABEL_RESOURCES = 0x0e, false, "No Label Resources";
    LABEL_RESOURCES_AVAILABLE = 0x0f, false, "Label Resources / Available";
    NO_HELLO = 0x10, true, "Session Rejected/No Hello";
    ADVERTISEMENT_MODE = 0x11, true, "Session Rejected/Parameters Advertisement Mode";
    MAX_PDU_LENGTH = 0x12, true, "Session Rejected/Parameters Max PDU Length";
    LABEL_RANGE = 0x13, true, "Session Rejected/Parameters Label Range";
    KEEPALIVE_TIMER_EXPIRED = 0x14, true, "KeepAlive Timer Expired";
    LABEL_REQUEST_ABORTED = 0x15, false, "Label Request Aborted";
    MISSING_MESSAGE_PARAMETERS = 0x16, false, "Missing Message Parameters";
    UNSUPPORTED_ADDRESS_FAMILY = 0x17, false, "Unsupported Address Family";
    BAD_KEEPALIVE_TIME = 0x18, true, "Session Rejected/Bad KeepAlive Time";
    INTERNAL_ERROR = 0x19, true, "Internal Error";
    UNSUPPORTED_CAPABILITY = 0x2e, false, "Unsupported Capability";
    END_OF_LIB = 0x2f, false, "End-of-LIB";
    TRANSPORT_CONNECTION_MISMATCH = 0x32, true, "Transport Connection Mismatch";
    DUAL_STACK_NONCOMPLIANCE = 0x33, true, "Dual-Stack Noncompliance";
}

/// Bit E: the status ends the session.
const FATAL: u32 = 1 << 31;
/// Bit F: the status is to be passed along the path.
const FORWARD: u32 = 1 << 30;

/// A Status TLV: an event or error, and the message that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// One of [`code`]; 30 bits.
    pub code: u32,
    /// Bit E: the sender ends the session.
    pub fatal: bool,
    /// Bit F: the receiver passes it on along the path.
    pub forward: bool,
    /// Message ID of the message that it refers to; 0 for none.
    pub message_id: u32,
    /// Type of this message; 0 for none.
    pub message_type: u16,
}

impl Status {
    /// Length of the TLV's value.
    pub(super) const LEN: usize = 10;

    /// A status of this code, fatal as the RFC says, about no message.
    pub const fn new(code: u32) -> Status {
        let fatal = matches!(known(code), Some((true, _)));
        Status { code, fatal, forward: false, message_id: 0, message_type: 0 }
    }

    /// A status of this code about a message.
    pub const fn about(self, message_id: u32, message_type: u16) -> Status {
        Status { message_id, message_type, ..self }
    }

    pub(super) fn from_bytes(bytes: [u8; Status::LEN]) -> Status {
        let [a, b, c, d, e, f, g, h, i, j] = bytes;
        let word = u32::from_be_bytes([a, b, c, d]);
        Status {
            code: word & !(FATAL | FORWARD),
            fatal: word & FATAL != 0,
            forward: word & FORWARD != 0,
            message_id: u32::from_be_bytes([e, f, g, h]),
            message_type: u16::from_be_bytes([i, j]),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; Status::LEN] {
        let bits = if self.fatal { FATAL } else { 0 } | if self.forward { FORWARD } else { 0 };
        let [a, b, c, d] = (self.code & !(FATAL | FORWARD) | bits).to_be_bytes();
        let [e, f, g, h] = self.message_id.to_be_bytes();
        let [i, j] = self.message_type.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j]
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match known(self.code) {
            Some((_, title)) => f.write_str(title)?,
            None => write!(f, "status {:#x}", self.code)?,
        }
        match (self.message_type, self.message_id) {
            (0, 0) => Ok(()),
            (kind, id) => write!(f, " (message {id} of type {kind:#06x})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_both_ways() {
        for code in ALL {
            let status = Status::new(*code).about(7, 0x400);
            assert_eq!(Status::from_bytes(status.to_bytes()), status);
            assert!(!status.to_string().starts_with("status"));
        }
        let odd = Status { code: 0x3fff_ffff, fatal: true, forward: true, ..Status::new(0) };
        assert_eq!((Status::from_bytes(odd.to_bytes()), odd.to_string()), (odd, "status 0x3fffffff".into()));
    }

    #[test]
    fn bits_of_frr() {
        // A Shutdown as FRR sends it.
        let shutdown = Status::new(code::SHUTDOWN);
        assert_eq!(shutdown.to_bytes(), [0x80, 0, 0, 0x0a, 0, 0, 0, 0, 0, 0]);
        assert_eq!(shutdown.to_string(), "Shutdown");
        let text = Status::new(code::NO_ROUTE).about(3, 0x401).to_string();
        assert_eq!(text, "No Route (message 3 of type 0x0401)");
    }
}
