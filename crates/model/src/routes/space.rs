//! Address space for routes: global unicast addresses that the test itself does not use.

use super::Prefix;
use crate::trial::Family;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const fn v4(a: u8, b: u8, c: u8, length: u8) -> (IpAddr, u8) {
    (IpAddr::V4(Ipv4Addr::new(a, b, c, 0)), length)
}

const fn v6(a: u16, b: u16, length: u8) -> (IpAddr, u8) {
    (IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)), length)
}

/// IPv4 outside global unicast (RFC 6890 and its registry), in order. The links of the testbed are in 198.18.0.0/15.
const FORBIDDEN_IPV4: [(IpAddr, u8); 14] = [
    v4(0, 0, 0, 8),
    v4(10, 0, 0, 8),
    v4(100, 64, 0, 10),
    v4(127, 0, 0, 8),
    v4(169, 254, 0, 16),
    v4(172, 16, 0, 12),
    v4(192, 0, 0, 24),
    v4(192, 0, 2, 24),
    v4(192, 88, 99, 24),
    v4(192, 168, 0, 16),
    v4(198, 18, 0, 15),
    v4(198, 51, 100, 24),
    v4(203, 0, 113, 24),
    v4(224, 0, 0, 3),
];

/// IPv6 outside global unicast, in order: everything but 2000::/3, and special blocks within it. The links of the
/// testbed are in 2001:2::/48.
const FORBIDDEN_IPV6: [(IpAddr, u8); 7] = [
    v6(0, 0, 3),
    v6(0x2001, 0, 23),
    v6(0x2001, 0xdb8, 32),
    v6(0x2002, 0, 16),
    v6(0x3fff, 0, 20),
    v6(0x4000, 0, 2),
    v6(0x8000, 0, 1),
];

fn forbidden(family: Family) -> &'static [(IpAddr, u8)] {
    match family {
        Family::Ipv4 => &FORBIDDEN_IPV4,
        Family::Ipv6 => &FORBIDDEN_IPV6,
    }
}

/// The forbidden block that overlaps `prefix`, if any.
pub fn reserved(prefix: &Prefix) -> Option<Prefix> {
    let (first, last) = prefix.bounds();
    let blocks = forbidden(prefix.family()).iter().filter_map(|(a, l)| Prefix::new(*a, *l));
    blocks.into_iter().find(|b| b.bounds().0 <= last && first <= b.bounds().1)
}

/// The private block 10.0.0.0/8 (RFC 1918) or fd00::/8 (RFC 4193) as numbers, if it contains `prefix`.
pub(super) fn private(prefix: &Prefix) -> Option<(u128, u128)> {
    let block = match prefix.family() {
        Family::Ipv4 => v4(10, 0, 0, 8),
        Family::Ipv6 => v6(0xfd00, 0, 8),
    };
    let block = Prefix::new(block.0, block.1)?.bounds();
    let (first, last) = prefix.bounds();
    (block.0 <= first && last <= block.1).then_some(block)
}

/// The space between the forbidden blocks, in order: first and last address of each piece as numbers.
pub(super) fn usable(family: Family) -> impl Iterator<Item = (u128, u128)> {
    let blocks = forbidden(family).iter().filter_map(|(a, l)| Prefix::new(*a, *l)).map(|p| p.bounds());
    let gaps = blocks.scan(0u128, |next, (first, last)| {
        let gap = (*next < first).then(|| (*next, first - 1));
        *next = last.saturating_add(1);
        Some(gap)
    });
    gaps.flatten()
}

/// Blocks for tables like the Internet's: in IPv4 all /8 without a forbidden block, in IPv6 each /16 in the /12 from
/// which the five registries assign.
pub(super) mod blocks {
    use crate::trial::Family;

    const NOT_IPV4: [u32; 9] = [0, 10, 100, 127, 169, 172, 192, 198, 203];
    const COUNT_IPV4: usize = 224 - NOT_IPV4.len();
    /// Leading bits by index, and index by leading bits (255: none).
    static BITS_IPV4: [u8; COUNT_IPV4] = tables_ipv4().0;
    static INDEX_IPV4: [u8; 256] = tables_ipv4().1;

    const fn tables_ipv4() -> ([u8; COUNT_IPV4], [u8; 256]) {
        let (mut bits, mut index) = ([0; COUNT_IPV4], [u8::MAX; 256]);
        let (mut block, mut next, mut not) = (0, 0, 0);
        while block < 224 {
            if not < NOT_IPV4.len() && NOT_IPV4[not] == block as u32 {
                not += 1;
            } else {
                (bits[next], index[block]) = (block as u8, next as u8);
                next += 1;
            }
            block += 1;
        }
        (bits, index)
    }

    const IPV6: [u32; 5] = [0x240, 0x260, 0x280, 0x2a0, 0x2c0];

    /// Number of blocks.
    pub fn count(family: Family) -> u32 {
        match family {
            Family::Ipv4 => COUNT_IPV4 as u32,
            Family::Ipv6 => 16 * IPV6.len() as u32,
        }
    }

    /// Number of leading bits that identify a block.
    pub const fn length(family: Family) -> u8 {
        match family {
            Family::Ipv4 => 8,
            Family::Ipv6 => 16,
        }
    }

    /// The leading bits of block `index`, which is below [`count`].
    #[inline]
    pub fn bits(family: Family, index: u32) -> u32 {
        match family {
            Family::Ipv4 => u32::from(BITS_IPV4[index as usize]),
            Family::Ipv6 => IPV6[(index >> 4) as usize] << 4 | index & 15,
        }
    }

    /// The block with these leading bits.
    #[inline]
    pub fn index(family: Family, bits: u32) -> Option<u32> {
        match family {
            Family::Ipv4 => {
                INDEX_IPV4.get(bits as usize).filter(|index| **index < u8::MAX).map(|index| u32::from(*index))
            }
            Family::Ipv6 => IPV6.iter().position(|b| *b == bits >> 4).map(|at| (at as u32) << 4 | bits & 15),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::prefix::width;
    use super::*;

    #[test]
    fn usable_and_forbidden_are_all_there_is() {
        for (family, least, most) in [(Family::Ipv4, 0.85, 0.87), (Family::Ipv6, 0.1249, 0.125)] {
            let pieces: Vec<_> = usable(family).collect();
            assert!(pieces.windows(2).all(|w| w[0].1 < w[1].0), "{pieces:x?}");
            let share = pieces.iter().map(|(a, b)| (b - a) as f64).sum::<f64>() / (2f64).powi(i32::from(width(family)));
            assert!((least..most).contains(&share), "{share}");
            for (first, last) in pieces {
                for n in [first, last] {
                    let host = Prefix::trusted(family, n, width(family));
                    assert_eq!(reserved(&host), None, "{host}");
                }
                for n in [first - 1, last + 1] {
                    let host = Prefix::trusted(family, n, width(family));
                    assert!(reserved(&host).is_some(), "{host}");
                }
            }
        }
    }

    #[test]
    fn blocks_are_free_of_forbidden_space() {
        for family in [Family::Ipv4, Family::Ipv6] {
            let length = blocks::length(family);
            for index in 0..blocks::count(family) {
                let bits = blocks::bits(family, index);
                assert_eq!(blocks::index(family, bits), Some(index));
                let block = Prefix::trusted(family, u128::from(bits) << (width(family) - length), length);
                assert_eq!(reserved(&block), None, "{block}");
            }
            let all = (0..1u32 << length).filter(|bits| blocks::index(family, *bits).is_some()).count();
            assert_eq!(all as u32, blocks::count(family));
        }
    }
}
