//! Further addresses of a host: consecutive ranges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most addresses of one range.
pub const MOST: u32 = 65_536;

/// First and last address as numbers.
type Range<N> = (N, N);

/// Ranges of both families.
#[derive(Clone, Debug, Default)]
pub(super) struct Also {
    v4: Vec<Range<u32>>,
    v6: Vec<Range<u128>>,
}

impl Also {
    /// Adds `count` consecutive addresses; false when there are none, more than [`MOST`] or more than the family has.
    pub fn add(&mut self, first: IpAddr, count: u32) -> bool {
        if !(1..=MOST).contains(&count) {
            return false;
        }
        let last = count - 1;
        match first {
            IpAddr::V4(a) => a.to_bits().checked_add(last).map(|z| self.v4.push((a.to_bits(), z))).is_some(),
            IpAddr::V6(a) => a.to_bits().checked_add(last.into()).map(|z| self.v6.push((a.to_bits(), z))).is_some(),
        }
    }

    pub fn has_v4(&self, address: Ipv4Addr) -> bool {
        self.v4.iter().any(|(a, z)| (*a..=*z).contains(&address.to_bits()))
    }

    pub fn has_v6(&self, address: Ipv6Addr) -> bool {
        self.v6.iter().any(|(a, z)| (*a..=*z).contains(&address.to_bits()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_both_ends_and_no_more() {
        let mut also = Also::default();
        assert!(also.add("198.18.0.250".parse().unwrap(), 10) && also.add("2001:2::fffe".parse().unwrap(), 3));
        for (address, has) in
            [("198.18.0.249", false), ("198.18.0.250", true), ("198.18.1.3", true), ("198.18.1.4", false)]
        {
            assert_eq!(also.has_v4(address.parse().unwrap()), has, "{address}");
        }
        for (address, has) in [("2001:2::fffd", false), ("2001:2::1:0", true), ("2001:2::1:1", false)] {
            assert_eq!(also.has_v6(address.parse().unwrap()), has, "{address}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        let mut also = Also::default();
        let (v4, v6): (IpAddr, IpAddr) = ("198.18.0.0".parse().unwrap(), "2001:2::".parse().unwrap());
        assert!([(v4, 0), (v6, MOST + 1)].iter().all(|(first, count)| !also.add(*first, *count)));
        assert!(!also.add("255.255.255.255".parse().unwrap(), 2) && also.add("255.255.255.255".parse().unwrap(), 1));
        assert!(also.add(v4, MOST) && also.has_v4("198.18.255.255".parse().unwrap()));
    }
}
