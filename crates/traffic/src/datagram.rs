//! Tells test traffic from everything else.

use drophammer_wire::signature::{self, TEST_PORT};
use drophammer_wire::{checksum, ethernet, ipv4, udp};

/// A datagram to the test port, taken apart.
pub(crate) struct TestDatagram<'a> {
    /// Signature included.
    pub(crate) payload: &'a [u8],
    /// Do all its checksums hold?
    pub(crate) intact: bool,
}

/// The UDP payload of a frame to the test port, if it is one, and whether all its checksums hold.
#[inline]
pub(crate) fn test_datagram(frame: &[u8]) -> Option<TestDatagram<'_>> {
    let head: &[u8; ethernet::LEN + ipv4::LEN + udp::LEN] = frame.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    // Where addresses and datagram begin; they follow on each other.
    let (addresses, udp_at, ip_length, mut intact) = match word(12) {
        ethernet::ethertype::IPV4 => {
            if head[14] != 0x45 || head[23] != ipv4::protocol::UDP {
                return None;
            }
            let intact = checksum::fold(checksum::sum_le(&head[14..34])) == 0xffff;
            (26, 34, usize::from(word(16)).wrapping_sub(ipv4::LEN), intact)
        }
        ethernet::ethertype::IPV6 => {
            if head[14] >> 4 != 6 || head[20] != ipv4::protocol::UDP {
                return None;
            }
            (22, 54, usize::from(word(18)), true)
        }
        _ => return None,
    };
    let udp: &[u8; udp::LEN] = frame.get(udp_at..)?.first_chunk()?;
    if u16::from_be_bytes([udp[2], udp[3]]) != TEST_PORT {
        return None;
    }
    let length = u16::from_be_bytes([udp[4], udp[5]]);
    let mut end = udp_at + usize::from(length);
    if usize::from(length) < udp::LEN + signature::LEN {
        return None;
    }
    intact &= ip_length == usize::from(length);
    // A datagram that claims more than there is was cut off on its way: corrupted, read as far as it goes.
    if end > frame.len() {
        intact = false;
        end = frame.len();
        if end < udp_at + udp::LEN + signature::LEN {
            return None;
        }
    }
    if intact {
        // The rest of the pseudo header: protocol and length, as little-endian words like all in this sum.
        let pseudo = u64::from(ipv4::protocol::UDP) << 8 | u64::from(length.swap_bytes()) << 16;
        intact = checksum::fold(pseudo + checksum::sum_le(&frame[addresses..end])) == 0xffff;
    }
    Some(TestDatagram { payload: &frame[udp_at + udp::LEN..end], intact })
}
