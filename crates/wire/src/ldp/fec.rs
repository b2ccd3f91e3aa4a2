//! FEC elements (RFC 5036 section 3.4.1, RFC 5918).

use super::status::{Status, code};
use drophammer_model::routes::Prefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use crate::numbers::ldp_fec as element;

/// Address family numbers of IANA.
pub(super) const IPV4: u16 = 1;
pub(super) const IPV6: u16 = 2;

/// A FEC element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FecElement {
    /// All FECs; allowed only in withdraws and releases.
    Wildcard,
    /// A prefix.
    Prefix(Prefix),
    /// All prefixes of a family (RFC 5918 section 6).
    PrefixWildcard {
        /// True for IPv6.
        ipv6: bool,
    },
}

/// The elements of a FEC TLV, at least one, all of them well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fecs<'a>(&'a [u8]);

impl<'a> Fecs<'a> {
    /// All FECs.
    pub const WILDCARD: Fecs<'static> = Fecs(&[element::WILDCARD]);

    /// Checks the elements.
    ///
    /// # Errors
    /// Unknown FEC, Unsupported Address Family, Malformed TLV Value (RFC 5036 section 3.4.1.1).
    pub fn parse(value: &'a [u8]) -> Result<Fecs<'a>, Status> {
        let (mut rest, mut count, mut wildcard) = (value, 0, false);
        while !rest.is_empty() {
            let (found, after) = split(rest)?;
            // A typed wildcard is the only element that counts (RFC 5918 section 4).
            if let FecElement::PrefixWildcard { .. } = found {
                return Ok(Fecs(&rest[..rest.len() - after.len()]));
            }
            wildcard |= found == FecElement::Wildcard;
            count += 1;
            rest = after;
        }
        // The wildcard is the only element of its TLV.
        if count == 0 || wildcard && count > 1 {
            return Err(Status::new(code::MALFORMED_TLV_VALUE));
        }
        Ok(Fecs(value))
    }

    /// The elements as bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The elements.
    pub fn iter(&self) -> impl Iterator<Item = FecElement> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (found, after) = split(rest).ok()?;
            rest = after;
            Some(found)
        })
    }

    /// The elements that are prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> + use<'a> {
        self.iter().filter_map(|found| if let FecElement::Prefix(prefix) = found { Some(prefix) } else { None })
    }

    /// True if there are only prefixes.
    pub fn are_prefixes(&self) -> bool {
        self.iter().all(|found| matches!(found, FecElement::Prefix(_)))
    }
}

/// The first element, and the bytes after it.
fn split(bytes: &[u8]) -> Result<(FecElement, &[u8]), Status> {
    const MALFORMED: Status = Status::new(code::MALFORMED_TLV_VALUE);
    let (&kind, rest) = bytes.split_first().ok_or(MALFORMED)?;
    match kind {
        element::WILDCARD => Ok((FecElement::Wildcard, rest)),
        element::PREFIX => {
            let (&[high, low, length], rest) = rest.split_first_chunk::<3>().ok_or(MALFORMED)?;
            let ipv6 = is_ipv6([high, low])?;
            let (address, rest) = rest.split_at_checked(usize::from(length.div_ceil(8))).ok_or(MALFORMED)?;
            let address: IpAddr = match ipv6 {
                false => Ipv4Addr::from(padded(address).ok_or(MALFORMED)?).into(),
                true => Ipv6Addr::from(padded(address).ok_or(MALFORMED)?).into(),
            };
            Ok((FecElement::Prefix(Prefix::masked(address, length).ok_or(MALFORMED)?), rest))
        }
        element::TYPED_WILDCARD => {
            let (&[kind, length], rest) = rest.split_first_chunk::<2>().ok_or(MALFORMED)?;
            // RFC 5918 section 4: a type that is not supported is an unknown FEC.
            if kind != element::PREFIX {
                return Err(Status::new(code::UNKNOWN_FEC));
            }
            let (info, rest) = rest.split_at_checked(length.into()).ok_or(MALFORMED)?;
            let family = info.try_into().map_err(|_| MALFORMED)?;
            Ok((FecElement::PrefixWildcard { ipv6: is_ipv6(family)? }, rest))
        }
        _ => Err(Status::new(code::UNKNOWN_FEC)),
    }
}

/// True for the family number of IPv6, false for IPv4.
fn is_ipv6(family: [u8; 2]) -> Result<bool, Status> {
    match u16::from_be_bytes(family) {
        IPV4 => Ok(false),
        IPV6 => Ok(true),
        _ => Err(Status::new(code::UNSUPPORTED_ADDRESS_FAMILY)),
    }
}

/// The bytes, padded with zeros; `None` if there are more than `N`.
fn padded<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut whole = [0; N];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(whole)
}

/// The FEC element of one prefix, as bytes.
#[derive(Clone, Copy, Debug)]
pub struct PrefixFec {
    bytes: [u8; 20],
    length: usize,
}

impl PrefixFec {
    /// The element of `prefix`.
    pub fn new(prefix: Prefix) -> PrefixFec {
        let mut bytes = [0; 20];
        let used = usize::from(prefix.length().div_ceil(8));
        let family = match prefix.address() {
            IpAddr::V4(address) => {
                bytes[4..4 + used].copy_from_slice(&address.octets()[..used]);
                IPV4
            }
            IpAddr::V6(address) => {
                bytes[4..4 + used].copy_from_slice(&address.octets()[..used]);
                IPV6
            }
        };
        let [high, low] = family.to_be_bytes();
        bytes[..4].copy_from_slice(&[element::PREFIX, high, low, prefix.length()]);
        PrefixFec { bytes, length: 4 + used }
    }

    /// The element, for a message.
    pub fn fecs(&self) -> Fecs<'_> {
        Fecs(&self.bytes[..self.length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_both_ways() {
        let cases: [(&str, &[u8]); 5] = [
            ("0.0.0.0/0", &[2, 0, 1, 0]),
            ("10.1.2.0/24", &[2, 0, 1, 24, 10, 1, 2]),
            ("192.0.2.128/25", &[2, 0, 1, 25, 192, 0, 2, 128]),
            ("192.0.2.1/32", &[2, 0, 1, 32, 192, 0, 2, 1]),
            ("2001:db8::/33", &[2, 0, 2, 33, 0x20, 1, 0x0d, 0xb8, 0]),
        ];
        for (text, bytes) in cases {
            let prefix: Prefix = text.parse().unwrap();
            assert_eq!(PrefixFec::new(prefix).fecs().as_bytes(), bytes);
            assert_eq!(Fecs::parse(bytes).unwrap().iter().collect::<Vec<_>>(), [FecElement::Prefix(prefix)]);
        }
    }

    #[test]
    fn bits_beyond_the_length_do_not_count() {
        let fecs = Fecs::parse(&[2, 0, 1, 20, 10, 1, 0xff]).unwrap();
        assert_eq!(fecs.iter().next(), Some(FecElement::Prefix("10.1.240.0/20".parse().unwrap())));
    }

    #[test]
    fn several_elements_and_wildcards() {
        let fecs = Fecs::parse(&[2, 0, 1, 8, 10, 2, 0, 2, 0]).unwrap();
        let [a, b] = ["10.0.0.0/8", "::/0"].map(|text| FecElement::Prefix(text.parse().unwrap()));
        assert_eq!(fecs.iter().collect::<Vec<_>>(), [a, b]);
        assert_eq!(fecs.prefixes().map(FecElement::Prefix).collect::<Vec<_>>(), [a, b]);
        assert!(fecs.are_prefixes());
        assert_eq!(Fecs::parse(&[1]).unwrap(), Fecs::WILDCARD);
    }

    #[test]
    fn a_typed_wildcard_is_the_only_element_that_counts() {
        for (ipv6, family) in [(false, 1), (true, 2)] {
            let typed = FecElement::PrefixWildcard { ipv6 };
            for bytes in [&[5, 2, 2, 0, family][..], &[2, 0, 1, 8, 10, 5, 2, 2, 0, family, 2, 0, 2, 0]] {
                let fecs = Fecs::parse(bytes).unwrap();
                assert_eq!(fecs.iter().collect::<Vec<_>>(), [typed], "{bytes:?}");
                assert_eq!((fecs.as_bytes(), fecs.are_prefixes()), (&[5, 2, 2, 0, family][..], false));
            }
        }
    }

    #[test]
    fn what_is_wrong_has_its_status() {
        let status = |bytes: &[u8]| Fecs::parse(bytes).unwrap_err().code;
        for malformed in
            [&[][..], &[1, 1], &[2, 0, 1], &[2, 0, 1, 33, 1, 2, 3, 4, 5], &[2, 0, 1, 16, 10], &[5, 2, 9], &[5, 2, 0]]
        {
            assert_eq!(status(malformed), code::MALFORMED_TLV_VALUE, "{malformed:?}");
        }
        for family in [&[2, 0, 3, 8, 1][..], &[2, 0, 3, 200, 1], &[5, 2, 2, 0, 25]] {
            assert_eq!(status(family), code::UNSUPPORTED_ADDRESS_FAMILY, "{family:?}");
        }
        for element in [1, 3, 0x80] {
            assert_eq!(status(&[5, element, 0]), code::UNKNOWN_FEC, "a typed wildcard of type {element}");
        }
        assert_eq!(status(&[3, 0, 1, 4, 1, 2, 3, 4]), code::UNKNOWN_FEC, "host address of RFC 3036");
        assert_eq!(status(&[2, 0, 1, 8, 10, 0x80, 0]), code::UNKNOWN_FEC, "a pseudowire");
    }
}
