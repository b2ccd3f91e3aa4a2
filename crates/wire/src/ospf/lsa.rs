//! The header of an LSA (RFC 2328 appendix A.4.1), its checksum (section 12.1.7), and which of two instances is newer.
//!
//! ```text
//! +-------------------------------+---------------+---------------+
//! |            LS age             |    Options    |    LS type    |
//! +-------------------------------+---------------+---------------+
//! |                        Link State ID                          |
//! |                     Advertising Router                        |
//! |                     LS sequence number                        |
//! +-------------------------------+-------------------------------+
//! |         LS checksum           |            length             |
//! +-------------------------------+-------------------------------+
//! ```

use super::{address_at, u16_at, u32_at};
use crate::Malformed;
use std::cmp::Ordering;
use std::net::Ipv4Addr;

/// Length of the header.
pub const LEN: usize = 20;
/// Age at which an LSA is flushed, in seconds.
pub const MAX_AGE: u16 = 3600;
/// Instances whose ages differ by more than this are different, in seconds.
pub const MAX_AGE_DIFF: u16 = 900;
/// First sequence number.
pub const INITIAL_SEQUENCE: i32 = i32::MIN + 1;
/// Last sequence number.
pub const MAX_SEQUENCE: i32 = i32::MAX;
/// Offset of the checksum.
const CHECKSUM: usize = 16;

/// Names an LSA in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LsaKey {
    /// LS type; see [`lsa_type`](super::lsa_type).
    pub kind: u8,
    /// Link State ID.
    pub id: Ipv4Addr,
    /// Advertising Router.
    pub router: Ipv4Addr,
}

/// The header of an instance of an LSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LsaHeader {
    /// LS age in seconds, [`MAX_AGE`] at most; the highest bit is DoNotAge (RFC 1793).
    pub age: u16,
    /// See [`option`](super::option).
    pub options: u8,
    /// Type, Link State ID and Advertising Router.
    pub key: LsaKey,
    /// LS sequence number.
    pub sequence: i32,
    /// LS checksum.
    pub checksum: u16,
    /// Length of the LSA, header included.
    pub length: u16,
}

impl LsaHeader {
    /// Reads a header.
    pub fn read(bytes: &[u8; LEN]) -> LsaHeader {
        LsaHeader {
            age: u16_at(bytes, 0),
            options: bytes[2],
            key: LsaKey { kind: bytes[3], id: address_at(bytes, 4), router: address_at(bytes, 8) },
            sequence: u32_at(bytes, 12) as i32,
            checksum: u16_at(bytes, CHECKSUM),
            length: u16_at(bytes, 18),
        }
    }

    /// Appends the header to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.age.to_be_bytes());
        out.extend([self.options, self.key.kind]);
        out.extend(self.key.id.octets());
        out.extend(self.key.router.octets());
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.checksum.to_be_bytes());
        out.extend(self.length.to_be_bytes());
    }

    /// Compares two instances of an LSA (section 13.1): `Greater` if this one is newer, `Equal` if both are the same.
    pub fn newness(&self, other: &LsaHeader) -> Ordering {
        let aged = |header: &LsaHeader| header.age.min(MAX_AGE) == MAX_AGE;
        self.sequence
            .cmp(&other.sequence)
            .then(self.checksum.cmp(&other.checksum))
            .then(aged(self).cmp(&aged(other)))
            .then_with(|| match self.age.abs_diff(other.age) > MAX_AGE_DIFF {
                true => other.age.cmp(&self.age),
                false => Ordering::Equal,
            })
    }

    /// Whether both are the same instance.
    pub fn is_same(&self, other: &LsaHeader) -> bool {
        self.key == other.key && self.newness(other) == Ordering::Equal
    }
}

/// A received LSA whose length and checksum are right and whose type exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lsa<'a> {
    /// The header.
    pub header: LsaHeader,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// Splits the first LSA from the rest, by its length.
pub(super) fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let length = bytes.get(18..LEN).map_or(0, |field| usize::from(u16_at(field, 0)));
    if length < LEN || length > bytes.len() {
        return Err(Malformed::new("ospf lsa", "length does not fit"));
    }
    Ok(bytes.split_at(length))
}

impl<'a> Lsa<'a> {
    /// Parses a whole LSA. An age above [`MAX_AGE`] counts as MaxAge: freeRtr goes on counting while it floods an LSA of MaxAge.
    ///
    /// # Errors
    /// Length, checksum or type.
    pub fn parse(bytes: &'a [u8]) -> Result<Lsa<'a>, Malformed> {
        let bad = |reason| Err(Malformed::new("ospf lsa", reason));
        let Some((head, body)) = bytes.split_first_chunk::<LEN>() else { return bad("length does not fit") };
        let mut header = LsaHeader::read(head);
        header.age = header.age.min(MAX_AGE);
        if usize::from(header.length) != bytes.len() {
            return bad("length does not fit");
        }
        if fletcher(&bytes[2..]) != (0, 0) || header.checksum == 0 {
            return bad("wrong checksum");
        }
        if !matches!(header.key.kind, 1..=5 | 9..=11) {
            return bad("unknown type");
        }
        Ok(Lsa { header, body })
    }
}

/// Writes length and checksum of a whole LSA, and returns the checksum.
///
/// # Panics
/// If `lsa` is shorter than [`LEN`].
pub fn seal(lsa: &mut [u8]) -> u16 {
    let length = lsa.len() as u16;
    lsa[18..LEN].copy_from_slice(&length.to_be_bytes());
    lsa[CHECKSUM..CHECKSUM + 2].fill(0);
    let (c0, c1) = fletcher(&lsa[2..]);
    // The two bytes that make both sums zero (RFC 905 annex B).
    let after = (lsa.len() - CHECKSUM - 1) as u32 % 255;
    let x = (after * c0 + 255 - c1) % 255;
    let y = (510 - c0 - x) % 255;
    // Zero would mean "no checksum"; 255 is the same in this arithmetic.
    let [x, y] = [x, y].map(|n| if n == 0 { 255 } else { n as u8 });
    lsa[CHECKSUM..CHECKSUM + 2].copy_from_slice(&[x, y]);
    u16::from_be_bytes([x, y])
}

/// The two Fletcher sums, modulo 255.
fn fletcher(bytes: &[u8]) -> (u32, u32) {
    let (mut c0, mut c1) = (0u32, 0u32);
    // The sums of one block fit into 32 bits.
    for block in bytes.chunks(4096) {
        for byte in block {
            c0 += u32::from(*byte);
            c1 += c0;
        }
        (c0, c1) = (c0 % 255, c1 % 255);
    }
    (c0, c1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn newness_follows_section_13_1() {
        let key = LsaKey { kind: 1, id: [10, 0, 0, 1].into(), router: [10, 0, 0, 1].into() };
        let one = LsaHeader { age: 100, options: 2, key, sequence: -5, checksum: 7, length: 24 };
        let cases = [
            (LsaHeader { sequence: -4, age: 3000, ..one }, Ordering::Greater),
            (LsaHeader { sequence: 1, ..one }, Ordering::Greater),
            (LsaHeader { checksum: 6, ..one }, Ordering::Less),
            (LsaHeader { age: MAX_AGE, ..one }, Ordering::Greater),
            (LsaHeader { age: 1000, ..one }, Ordering::Equal),
            (LsaHeader { age: 1001, ..one }, Ordering::Less),
        ];
        for (other, expected) in cases {
            assert_eq!((other.newness(&one), one.newness(&other)), (expected, expected.reverse()), "{other:?}");
        }
        assert!(one.is_same(&LsaHeader { age: 0, ..one }));
        assert_eq!((INITIAL_SEQUENCE as u32, MAX_SEQUENCE as u32), (0x8000_0001, 0x7fff_ffff));
    }

    proptest! {
        #[test]
        fn a_sealed_lsa_is_right_and_a_changed_byte_is_not(
            body in proptest::collection::vec(any::<u8>(), 0..3000), age in 0u16..=3600, sequence: i32, at: usize, bit in 0u8..8,
        ) {
            let key = LsaKey { kind: 10, id: [1, 2, 3, 4].into(), router: [5, 6, 7, 8].into() };
            let mut bytes = Vec::new();
            LsaHeader { age, options: 0x42, key, sequence, checksum: 9, length: 9 }.emit(&mut bytes);
            bytes.extend(&body);
            let checksum = seal(&mut bytes);
            let length = bytes.len() as u16;
            let header = LsaHeader { age, options: 0x42, key, sequence, checksum, length };
            prop_assert_eq!(Lsa::parse(&bytes), Ok(Lsa { header, body: &body }));
            let at = 2 + at % (bytes.len() - 2);
            bytes[at] ^= 1 << bit;
            // 0 and 255 are the same number in this arithmetic; flipping one bit never turns one into the other.
            prop_assert!(Lsa::parse(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Lsa::parse(&bytes);
            if let Ok((one, rest)) = split(&bytes) {
                prop_assert_eq!(one.len() + rest.len(), bytes.len());
            }
        }
    }
}
