//! OPEN (RFC 4271 section 4.2), with the extended parameters of RFC 9072.
//!
//! ```text
//! +---------------+
//! |   Version     |
//! +---------------+---------------+
//! |     My Autonomous System      |
//! +-------------------------------+
//! |           Hold Time           |
//! +-------------------------------+-------------------------------+
//! |                         BGP Identifier                        |
//! +---------------+-----------------------------------------------+
//! | Params length | Params: type (1), length (1 or 2), value      |
//! +---------------+-----------------------------------------------+
//! ```
//! If the type of the first parameter is 255, the actual length of the parameters follows in two bytes, and each
//! parameter has a length of two bytes.

use super::capability::Capability;
use super::message::{self, HEADER_LEN, kind};
use super::notification::{Notification, code, open};
use crate::Malformed;
use std::net::Ipv4Addr;

/// The version of BGP.
pub const VERSION: u8 = 4;
pub use super::update::attributes::AS_TRANS;
/// Length of the body without parameters, in bytes.
const FIXED_LEN: usize = 10;
/// The parameter with capabilities (RFC 5492).
const PARAMETER_CAPABILITIES: u8 = 2;
/// Marks extended parameters, as a length and as a type (RFC 9072).
const EXTENDED: u8 = 255;

/// An OPEN message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The speaker's AS number in two bytes; see [`Open::speaker_as`].
    pub my_as: u16,
    /// Proposed hold time in seconds: 0, or at least 3.
    pub hold_time: u16,
    /// BGP identifier. It is not zero.
    pub identifier: Ipv4Addr,
    /// Capabilities in order, including repeated ones.
    pub capabilities: Vec<Capability>,
}

/// Returns the two-byte form of an AS number.
pub fn two_octets(asn: u32) -> u16 {
    u16::try_from(asn).unwrap_or(AS_TRANS)
}

fn unspecific() -> Notification {
    Notification::bare(code::OPEN, open::UNSPECIFIC)
}

impl Open {
    /// Returns the speaker's AS number, from its capability if present, otherwise from the field.
    pub fn speaker_as(&self) -> u32 {
        let four = |capability: &Capability| match capability {
            Capability::FourOctetAs(asn) => Some(*asn),
            _ => None,
        };
        self.capabilities.iter().rev().find_map(four).unwrap_or(u32::from(self.my_as))
    }

    /// Parses the body of an OPEN and checks everything that does not depend on the peer.
    ///
    /// # Errors
    /// The NOTIFICATION of RFC 4271 section 6.2: for the version, the identifier, the hold time or an unknown
    /// parameter, and "unspecific" for inconsistent lengths.
    pub fn parse(body: &[u8]) -> Result<Open, Notification> {
        let Some((head, parameters)) = body.split_first_chunk::<FIXED_LEN>() else {
            return Err(message::bad_length(HEADER_LEN + body.len()));
        };
        let [version, as_high, as_low, hold_high, hold_low, a, b, c, d, length] = *head;
        if version != VERSION {
            return Err(Notification::new(code::OPEN, open::UNSUPPORTED_VERSION, [0, VERSION]));
        }
        let hold_time = u16::from_be_bytes([hold_high, hold_low]);
        if matches!(hold_time, 1 | 2) {
            return Err(Notification::bare(code::OPEN, open::UNACCEPTABLE_HOLD_TIME));
        }
        let identifier = Ipv4Addr::new(a, b, c, d);
        if identifier.is_unspecified() {
            return Err(Notification::new(code::OPEN, open::BAD_IDENTIFIER, identifier.octets()));
        }
        let (parameters, length, extended) = match *parameters {
            // The length before the mark has no meaning, except that 0 means "no parameters".
            [EXTENDED, high, low, ref rest @ ..] if length != 0 => {
                (rest, usize::from(u16::from_be_bytes([high, low])), true)
            }
            _ => (parameters, usize::from(length), false),
        };
        if parameters.len() != length {
            return Err(unspecific());
        }
        let mut capabilities = Vec::new();
        let mut rest = parameters;
        while !rest.is_empty() {
            let (kind, length, after) = match *rest {
                [kind, high, low, ref after @ ..] if extended => {
                    (kind, usize::from(u16::from_be_bytes([high, low])), after)
                }
                [kind, length, ref after @ ..] if !extended => (kind, usize::from(length), after),
                _ => return Err(unspecific()),
            };
            let (value, after) = after.split_at_checked(length).ok_or_else(unspecific)?;
            if kind != PARAMETER_CAPABILITIES {
                return Err(Notification::bare(code::OPEN, open::UNSUPPORTED_PARAMETER));
            }
            read_capabilities(value, &mut capabilities)?;
            rest = after;
        }
        Ok(Open { my_as: u16::from_be_bytes([as_high, as_low]), hold_time, identifier, capabilities })
    }

    /// Returns the whole message, with all capabilities in one parameter, in the extended form if necessary.
    ///
    /// # Errors
    /// A capability is longer than 255 bytes, or the message is longer than [`message::MAX_LEN`].
    pub fn message(&self) -> Result<Vec<u8>, Malformed> {
        let mut values = Vec::new();
        for capability in &self.capabilities {
            capability.append(&mut values)?;
        }
        let mut out = vec![0; HEADER_LEN];
        out.push(VERSION);
        out.extend_from_slice(&self.my_as.to_be_bytes());
        out.extend_from_slice(&self.hold_time.to_be_bytes());
        out.extend_from_slice(&self.identifier.octets());
        match values.len() {
            0 => out.push(0),
            length @ ..=252 => out.extend_from_slice(&[length as u8 + 2, PARAMETER_CAPABILITIES, length as u8]),
            length => {
                let [high, low] = (length as u16).to_be_bytes();
                let [all_high, all_low] = (length as u16).wrapping_add(3).to_be_bytes();
                out.extend_from_slice(&[EXTENDED, EXTENDED, all_high, all_low, PARAMETER_CAPABILITIES, high, low]);
            }
        }
        out.extend_from_slice(&values);
        if out.len() > message::MAX_LEN {
            return Err(Malformed::new("bgp open", "capabilities do not fit 4096 bytes"));
        }
        let length = out.len();
        message::emit_header(&mut out, kind::OPEN, length);
        Ok(out)
    }
}

fn read_capabilities(mut value: &[u8], into: &mut Vec<Capability>) -> Result<(), Notification> {
    while !value.is_empty() {
        let [code, length, ref rest @ ..] = *value else { return Err(unspecific()) };
        let (one, rest) = rest.split_at_checked(usize::from(length)).ok_or_else(unspecific)?;
        into.push(Capability::parse(code, one).map_err(|_| unspecific())?);
        value = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::capability::tests::any_capability;
    use super::super::{AfiSafi, frame};
    use super::*;
    use proptest::prelude::*;

    fn plain() -> Open {
        Open { my_as: 65001, hold_time: 90, identifier: Ipv4Addr::new(192, 0, 2, 1), capabilities: Vec::new() }
    }

    fn body(open: &Open) -> Vec<u8> {
        open.message().unwrap()[HEADER_LEN..].to_vec()
    }

    fn refused(body: &[u8]) -> (u8, u8, Vec<u8>) {
        let answer = Open::parse(body).unwrap_err();
        (answer.code, answer.subcode, answer.data)
    }

    #[test]
    fn an_open_with_a_large_as() {
        let capabilities = vec![
            Capability::Multiprotocol(AfiSafi::IPV4_UNICAST),
            Capability::RouteRefresh,
            Capability::FourOctetAs(70_000),
        ];
        let open = Open { my_as: two_octets(70_000), capabilities, ..plain() };
        assert_eq!(
            body(&open),
            [4, 0x5b, 0xa0, 0, 90, 192, 0, 2, 1, 16, 2, 14, 1, 4, 0, 1, 0, 1, 2, 0, 65, 4, 0, 1, 0x11, 0x70]
        );
        assert_eq!(open.speaker_as(), 70_000);
        assert_eq!(plain().speaker_as(), 65001);
    }

    #[test]
    fn each_field_has_its_error() {
        let good = body(&plain());
        assert_eq!(Open::parse(&good), Ok(plain()));
        let with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            refused(&bad)
        };
        assert_eq!(with(0, 3), (2, 1, vec![0, 4]));
        assert_eq!(with(4, 1), (2, 6, vec![]));
        assert_eq!(with(4, 2), (2, 6, vec![]));
        assert_eq!(with(9, 1), (2, 0, vec![]));
        let mut nobody = good.clone();
        nobody[5..9].fill(0);
        assert_eq!(refused(&nobody), (2, 3, vec![0, 0, 0, 0]));
        assert_eq!(refused(&good[..9]), (1, 2, vec![0, 28]));
        let mut endless = good.clone();
        endless[3..5].fill(0);
        assert_eq!(Open::parse(&endless).unwrap().hold_time, 0);
    }

    #[test]
    fn parameters_that_do_not_add_up() {
        let with = |parameters: &[u8]| {
            let mut bytes = body(&plain());
            bytes[9] = parameters.len() as u8;
            bytes.extend_from_slice(parameters);
            refused(&bytes)
        };
        assert_eq!(with(&[1, 1, 0]), (2, 4, vec![]), "authentication is not known any more");
        assert_eq!(with(&[2]), (2, 0, vec![]));
        assert_eq!(with(&[2, 3, 2, 0]), (2, 0, vec![]));
        assert_eq!(with(&[2, 1, 2]), (2, 0, vec![]), "half a capability");
        assert_eq!(with(&[2, 4, 65, 4, 0, 1]), (2, 0, vec![]), "capability beyond its parameter");
        assert_eq!(with(&[2, 4, 65, 2, 0, 1]), (2, 0, vec![]), "AS of two bytes");
        assert_eq!(with(&[255, 0, 3, 2, 0]), (2, 0, vec![]));
        assert_eq!(with(&[255, 0, 9]), (2, 0, vec![]));
    }

    #[test]
    fn longer_parameters_are_written_when_needed_and_read_with_any_length_beside_the_mark() {
        let value = vec![5; 200];
        let capabilities: Vec<_> = (200..210).map(|code| Capability::Unknown { code, value: value.clone() }).collect();
        let open = Open { capabilities, ..plain() };
        let mut bytes = body(&open);
        assert_eq!(bytes[9..16], [255, 255, 0x07, 0xe7, 2, 0x07, 0xe4]);
        assert_eq!(Open::parse(&bytes), Ok(open.clone()));
        bytes[9] = 1;
        assert_eq!(Open::parse(&bytes), Ok(open.clone()));
        bytes[9] = 0;
        assert!(Open::parse(&bytes).is_err());
        let many = Open { capabilities: [&open.capabilities[..]; 3].concat(), ..plain() };
        assert!(many.message().is_err());
    }

    #[test]
    fn the_longer_form_begins_where_the_shorter_ends() {
        for length in [250, 251] {
            let capability = Capability::Unknown { code: 200, value: vec![0; length] };
            let open = Open { capabilities: vec![capability], ..plain() };
            assert_eq!(body(&open)[10] == 255, length == 251);
            assert_eq!(Open::parse(&body(&open)), Ok(open));
        }
    }

    proptest! {
        #[test]
        fn parse_undoes_message(
            my_as: u16, hold_time in prop_oneof![Just(0u16), 3u16..], identifier in 1u32..,
            capabilities in proptest::collection::vec(any_capability(), 0..12),
        ) {
            let open = Open { my_as, hold_time, identifier: identifier.into(), capabilities };
            let bytes = open.message().unwrap();
            let message = frame(&bytes, message::MAX_LEN).unwrap().unwrap();
            prop_assert_eq!((message.kind, message.message_len()), (kind::OPEN, bytes.len()));
            prop_assert_eq!(Open::parse(message.body), Ok(open));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), fix: bool) {
            if fix && bytes.len() > 12 {
                bytes[0] = VERSION;
                bytes[3] = 1;
                bytes[9] = (bytes.len() - 10) as u8;
                bytes[10] = PARAMETER_CAPABILITIES;
                bytes[11] = (bytes.len() - 12) as u8;
            }
            if let Ok(open) = Open::parse(&bytes) {
                prop_assert_eq!(Open::parse(&body(&open)), Ok(open));
            }
        }
    }
}
