//! UDP (RFC 768).
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |          Source Port          |       Destination Port        |
//! +-------------------------------+-------------------------------+
//! |            Length             |           Checksum            |
//! +-------------------------------+-------------------------------+
//! ```

use crate::{Malformed, checksum};

/// Length of the header in bytes.
pub const LEN: usize = 8;

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

impl Repr {
    /// Parses and checks a datagram: `(header, payload)`. `pseudo_sum` is the sum of the IP header's pseudo-header. A
    /// checksum of zero is refused, because test traffic always has a checksum and IPv6 requires one.
    /// On a virtual link, the kernel leaves the checksum to an interface that does not exist: the field then contains the
    /// sum of the pseudo-header, which is accepted.
    ///
    /// # Errors
    /// Lengths are inconsistent, or the checksum is wrong.
    pub fn parse(datagram: &[u8], pseudo_sum: u64) -> Result<(Repr, &[u8]), Malformed> {
        let (repr, payload) = Repr::split(datagram)?;
        let found = u16::from_be_bytes([datagram[6], datagram[7]]);
        let is_offloaded = found == checksum::fold(pseudo_sum);
        let is_right = || checksum::fold(pseudo_sum + checksum::sum(&datagram[..LEN + payload.len()])) == 0xffff;
        if found == 0 || !(is_offloaded || is_right()) {
            return Err(Malformed::new("udp", "wrong checksum"));
        }
        Ok((repr, payload))
    }

    /// Like [`Repr::parse`], for a datagram in IPv4: a checksum of zero is accepted, because the sender has computed none
    /// (RFC 768, RFC 1122 section 4.1.3.4).
    ///
    /// # Errors
    /// Lengths are inconsistent, or the checksum is wrong.
    pub fn parse_ipv4(datagram: &[u8], pseudo_sum: u64) -> Result<(Repr, &[u8]), Malformed> {
        if datagram.get(6..LEN) == Some(&[0, 0]) { Repr::split(datagram) } else { Repr::parse(datagram, pseudo_sum) }
    }

    /// Header and payload, without a check of the checksum.
    fn split(datagram: &[u8]) -> Result<(Repr, &[u8]), Malformed> {
        if datagram.len() < LEN {
            return Err(Malformed::new("udp", "fewer than 8 bytes"));
        }
        let length = usize::from(u16::from_be_bytes([datagram[4], datagram[5]]));
        if length < LEN || length > datagram.len() {
            return Err(Malformed::new("udp", "length does not fit"));
        }
        let port = |at| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
        Ok((Repr { source: port(0), destination: port(2) }, &datagram[LEN..length]))
    }

    /// Writes the header in front of the payload, which is already at `datagram[8..]`, with the checksum over both.
    pub fn emit(&self, datagram: &mut [u8], pseudo_sum: u64) {
        let length = datagram.len() as u16;
        datagram[0..2].copy_from_slice(&self.source.to_be_bytes());
        datagram[2..4].copy_from_slice(&self.destination.to_be_bytes());
        datagram[4..6].copy_from_slice(&length.to_be_bytes());
        datagram[6..8].fill(0);
        let sum = field(pseudo_sum + checksum::sum(datagram));
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the checksum field for a sum. Zero is sent as all ones, because zero means "none".
#[inline]
pub fn field(sum: u64) -> u16 {
    match checksum::finish(sum) {
        0 => 0xffff,
        sum => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_that_the_kernel_left_to_the_interface_is_accepted() {
        let pseudo_sum = 0x1_c0a8;
        let mut datagram = [0, 0, 0, 0, 0, 0, 0, 0, b'h', b'i', b'!'];
        Repr { source: 7, destination: 9 }.emit(&mut datagram, pseudo_sum);
        let right = [datagram[6], datagram[7]];
        for (field, accepted) in [(right, true), ([0xc0, 0xa9], true), ([0xc0, 0xa8], false), ([0, 0], false)] {
            datagram[6..8].copy_from_slice(&field);
            assert_eq!(Repr::parse(&datagram, pseudo_sum).is_ok(), accepted, "{field:?}");
            let without = field == [0, 0];
            assert_eq!(Repr::parse_ipv4(&datagram, pseudo_sum).is_ok(), accepted || without, "{field:?}");
        }
    }
}
