//! ROUTE-REFRESH (RFC 2918), with the markers of enhanced route refresh (RFC 7313).
//!
//! ```text
//! +-------------------------------+---------------+---------------+
//! |             AFI               |    Subtype    |     SAFI      |
//! +-------------------------------+---------------+---------------+
//! ```

use super::AfiSafi;
use super::message::{self, HEADER_LEN, kind};
use super::notification::{Notification, REFRESH_INVALID_LENGTH, code};

/// Length of the message in bytes.
pub const LEN: usize = HEADER_LEN + 4;

pub use crate::numbers::bgp_refresh as subtype;

/// A ROUTE-REFRESH message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteRefresh {
    /// Family of the routes.
    pub family: AfiSafi,
    /// One of [`subtype`]; other values are ignored.
    pub subtype: u8,
}

impl RouteRefresh {
    /// Creates a request for all routes of `family`.
    pub const fn request(family: AfiSafi) -> RouteRefresh {
        RouteRefresh { family, subtype: subtype::REQUEST }
    }

    /// Parses the body of a message. A request can contain filters after its four bytes (RFC 5291), which are ignored.
    ///
    /// # Errors
    /// The NOTIFICATION of RFC 7313 section 5, which contains the message: fewer than four bytes, or more than four in a marker.
    pub fn parse(body: &[u8]) -> Result<RouteRefresh, Notification> {
        match *body {
            [a, b, subtype, safi, ref filters @ ..]
                if filters.is_empty() || !matches!(subtype, subtype::BEGIN | subtype::END) =>
            {
                Ok(RouteRefresh { family: AfiSafi::new(u16::from_be_bytes([a, b]), safi), subtype })
            }
            _ => {
                let mut whole = vec![0; HEADER_LEN];
                message::emit_header(&mut whole, kind::ROUTE_REFRESH, HEADER_LEN + body.len());
                whole.extend_from_slice(body);
                Err(Notification::new(code::ROUTE_REFRESH, REFRESH_INVALID_LENGTH, whole))
            }
        }
    }

    /// Writes the whole message to the front of `buffer`, which has at least [`LEN`] bytes, and returns its length.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        message::emit_header(buffer, kind::ROUTE_REFRESH, LEN);
        let [a, b] = self.family.afi.to_be_bytes();
        buffer[HEADER_LEN..LEN].copy_from_slice(&[a, b, self.subtype, self.family.safi]);
        LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_written_and_read() {
        let mut out = [0; LEN];
        let request = RouteRefresh::request(AfiSafi::IPV6_UNICAST);
        assert_eq!(request.emit(&mut out), 23);
        assert_eq!(out[16..], [0, 23, 5, 0, 2, 0, 1]);
        assert_eq!(RouteRefresh::parse(&out[HEADER_LEN..]), Ok(request));
    }

    #[test]
    fn wrong_lengths_are_answered_with_the_message() {
        let answer = RouteRefresh::parse(&[0, 1, 1]).unwrap_err();
        assert_eq!((answer.code, answer.subcode, &answer.data[16..]), (7, 1, &[0, 22, 5, 0, 1, 1][..]));
        assert!(RouteRefresh::parse(&[0, 1, subtype::END, 1, 9]).is_err());
        assert!(RouteRefresh::parse(&[0, 1, subtype::REQUEST, 1, 9]).is_ok(), "filters");
    }

    proptest! {
        #[test]
        fn parse_undoes_emit(afi: u16, safi: u8, subtype: u8) {
            let message = RouteRefresh { family: AfiSafi::new(afi, safi), subtype };
            let mut out = [0; LEN];
            message.emit(&mut out);
            prop_assert_eq!(RouteRefresh::parse(&out[HEADER_LEN..]), Ok(message));
        }
    }
}
