//! Database Description, Link State Request, Update and Acknowledgment (RFC 2328 appendix A.3.3 to A.3.6).
//!
//! ```text
//! DD      | Interface MTU (2) | Options | 00000 I M MS | DD sequence number (4) | LSA headers (20 each) |
//! Request | LS type (4), Link State ID (4), Advertising Router (4), repeated |
//! Update  | # LSAs (4) | LSAs |
//! Ack     | LSA headers (20 each) |
//! ```

use super::lsa::{self, Lsa, LsaHeader, LsaKey};
use super::{address_at, u16_at, u32_at};
use crate::Malformed;

/// Length of a Database Description without headers.
pub const DESCRIPTION_LEN: usize = 8;
/// Length of one entry of a Link State Request.
pub const REQUEST_LEN: usize = 12;
/// Length of an empty Link State Update.
pub const UPDATE_LEN: usize = 4;

/// LSA headers in a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a>(&'a [[u8; lsa::LEN]]);

impl<'a> Headers<'a> {
    /// Splits bytes into headers.
    ///
    /// # Errors
    /// Half a header at the end.
    fn parse(bytes: &'a [u8]) -> Result<Headers<'a>, Malformed> {
        match bytes.as_chunks() {
            (headers, []) => Ok(Headers(headers)),
            _ => Err(Malformed::new("ospf", "half an LSA header")),
        }
    }

    /// The headers.
    pub fn iter(self) -> impl Iterator<Item = LsaHeader> + use<'a> {
        self.0.iter().map(LsaHeader::read)
    }

    /// Number of headers.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// Flags of a Database Description.
pub mod flag {
    /// MS: the sender is the master.
    pub const MASTER: u8 = 1;
    /// M: more packets follow.
    pub const MORE: u8 = 2;
    /// I: the first packet of the exchange.
    pub const INIT: u8 = 4;
}

/// A Database Description without its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseDescription {
    /// Largest IP packet that the sender can send unfragmented, in bytes.
    pub mtu: u16,
    /// See [`option`](super::option).
    pub options: u8,
    /// See [`flag`].
    pub flags: u8,
    /// DD sequence number.
    pub sequence: u32,
}

impl DatabaseDescription {
    /// Parses the body of a packet.
    ///
    /// # Errors
    /// Fewer than 8 bytes, half a header.
    pub fn parse(body: &[u8]) -> Result<(DatabaseDescription, Headers<'_>), Malformed> {
        if body.len() < DESCRIPTION_LEN {
            return Err(Malformed::new("ospf dd", "fewer than 8 bytes"));
        }
        let description =
            DatabaseDescription { mtu: u16_at(body, 0), options: body[2], flags: body[3], sequence: u32_at(body, 4) };
        Ok((description, Headers::parse(&body[DESCRIPTION_LEN..])?))
    }

    /// Appends the body to `out`; the headers must follow.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.mtu.to_be_bytes());
        out.extend([self.options, self.flags]);
        out.extend(self.sequence.to_be_bytes());
    }
}

/// A Link State Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStateRequest<'a>(&'a [[u8; REQUEST_LEN]]);

impl<'a> LinkStateRequest<'a> {
    /// Parses the body of a packet.
    ///
    /// # Errors
    /// Half an entry.
    pub fn parse(body: &'a [u8]) -> Result<LinkStateRequest<'a>, Malformed> {
        match body.as_chunks() {
            (entries, []) => Ok(LinkStateRequest(entries)),
            _ => Err(Malformed::new("ospf request", "half an entry")),
        }
    }

    /// The requested LSAs; `None` for a type that does not exist.
    pub fn iter(self) -> impl Iterator<Item = Option<LsaKey>> + use<'a> {
        self.0.iter().map(|entry| {
            let kind = u8::try_from(u32_at(entry, 0)).ok()?;
            Some(LsaKey { kind, id: address_at(entry, 4), router: address_at(entry, 8) })
        })
    }

    /// Appends an entry to the body `out`.
    pub fn push(out: &mut Vec<u8>, key: &LsaKey) {
        out.extend(u32::from(key.kind).to_be_bytes());
        out.extend(key.id.octets());
        out.extend(key.router.octets());
    }
}

/// A Link State Update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStateUpdate<'a> {
    count: u32,
    lsas: &'a [u8],
}

impl<'a> LinkStateUpdate<'a> {
    /// Parses the body of a packet.
    ///
    /// # Errors
    /// Fewer than 4 bytes.
    pub fn parse(body: &'a [u8]) -> Result<LinkStateUpdate<'a>, Malformed> {
        match body.split_first_chunk() {
            Some((count, lsas)) => Ok(LinkStateUpdate { count: u32::from_be_bytes(*count), lsas }),
            None => Err(Malformed::new("ospf update", "fewer than 4 bytes")),
        }
    }

    /// The LSAs. A faulty LSA is an error; the ones after it follow unless its length is unknown.
    pub fn iter(self) -> impl Iterator<Item = Result<Lsa<'a>, Malformed>> {
        let (mut rest, mut left) = (self.lsas, self.count);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            match lsa::split(rest) {
                Ok((one, after)) => {
                    rest = after;
                    Some(Lsa::parse(one))
                }
                Err(e) => {
                    left = 0;
                    Some(Err(e))
                }
            }
        })
    }
}

/// A Link State Acknowledgment.
pub struct LinkStateAck;

impl LinkStateAck {
    /// Parses the body of a packet.
    ///
    /// # Errors
    /// Half a header.
    pub fn parse(body: &[u8]) -> Result<Headers<'_>, Malformed> {
        Headers::parse(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn emit_undoes_parse(bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            if let Ok((description, headers)) = DatabaseDescription::parse(&bytes) {
                let mut again = Vec::new();
                description.emit(&mut again);
                headers.iter().for_each(|header| header.emit(&mut again));
                prop_assert_eq!(&again, &bytes);
                prop_assert_eq!(headers.is_empty(), bytes.len() == DESCRIPTION_LEN);
            }
            if let Ok(headers) = LinkStateAck::parse(&bytes) {
                prop_assert_eq!(headers.len() * lsa::LEN, bytes.len());
            }
            let mut request = bytes.clone();
            request.truncate(bytes.len() / REQUEST_LEN * REQUEST_LEN);
            request.chunks_mut(REQUEST_LEN).for_each(|entry| entry[..3].fill(0));
            let mut again = Vec::new();
            LinkStateRequest::parse(&request).unwrap().iter().for_each(|key| LinkStateRequest::push(&mut again, &key.unwrap()));
            prop_assert_eq!(again, request);
            if let Ok(update) = LinkStateUpdate::parse(&bytes) {
                prop_assert!(update.iter().count() <= bytes.len() / lsa::LEN + 1);
            }
        }
    }

    #[test]
    fn a_type_beyond_one_byte_does_not_exist() {
        let entry = [0, 0, 1, 1, 10, 0, 0, 1, 10, 0, 0, 1];
        assert_eq!(LinkStateRequest::parse(&entry).unwrap().iter().collect::<Vec<_>>(), [None]);
        assert!(LinkStateRequest::parse(&entry[..11]).is_err() && DatabaseDescription::parse(&entry[..9]).is_err());
    }
}
