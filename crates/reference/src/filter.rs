//! Filters: lists of rules; the first rule that matches decides.

use crate::config::ConfigError;
use drophammer_model::filter::{self, FilterDirection, FilterList, FilterRule};
use drophammer_model::trial::Family;
use std::net::IpAddr;

/// The fields that rules examine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub destination_port: Option<u16>,
}

/// The decision of a list on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub permits: bool,
    /// Number of rules of the packet's family that were examined, including the one that decides.
    pub looked_at: u64,
}

/// The lists, and the counters of their rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    lists: Vec<FilterList>,
    /// Index of the first rule of each list among all rules.
    first: Vec<usize>,
    /// Index of the list for each direction and port.
    at: [Vec<Option<usize>>; 2],
    /// Number of packets that each rule decided on, list after list.
    pub matches: Vec<u64>,
}

fn within(address: IpAddr, prefix: (IpAddr, u8)) -> bool {
    match (address, prefix.0) {
        (IpAddr::V4(a), IpAddr::V4(p)) => {
            (a.to_bits() ^ p.to_bits()).checked_shr(32 - u32::from(prefix.1)).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(p)) => {
            (a.to_bits() ^ p.to_bits()).checked_shr(128 - u32::from(prefix.1)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

fn matches(rule: &FilterRule, packet: &Packet) -> bool {
    let in_ports = |(first, last)| packet.destination_port.is_some_and(|p| (first..=last).contains(&p));
    rule.source.is_none_or(|prefix| within(packet.source, prefix))
        && rule.destination.is_none_or(|prefix| within(packet.destination, prefix))
        && rule.protocol.is_none_or(|protocol| packet.protocol == protocol)
        && rule.destination_ports.is_none_or(in_ports)
}

impl Filter {
    /// Filter of a device with `ports` ports.
    pub fn new(lists: Vec<FilterList>, ports: usize) -> Result<Filter, ConfigError> {
        if let Some(why) = filter::refuse(&lists, ports) {
            return Err(ConfigError::Filter(why));
        }
        let mut at = [vec![None; ports], vec![None; ports]];
        let (mut first, mut rules) = (Vec::new(), 0);
        for (i, list) in lists.iter().enumerate() {
            first.push(rules);
            rules += list.rules.len();
            let at = &mut at[list.direction as usize];
            match list.interfaces.as_slice() {
                [] => at.fill(Some(i)),
                some => some.iter().for_each(|port| at[*port] = Some(i)),
            }
        }
        Ok(Filter { lists, first, at, matches: vec![0; rules] })
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The decision of a port's list on a packet; `None` if the port has no list. The packet is counted for the rule
    /// that decides.
    pub fn decide(&mut self, direction: FilterDirection, port: usize, packet: &Packet) -> Option<Decision> {
        let list = self.at[direction as usize][port]?;
        let family = if packet.source.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
        let mut looked_at = 0;
        for (i, rule) in self.lists[list].rules.iter().enumerate().filter(|(_, rule)| rule.is_of(family)) {
            looked_at += 1;
            if matches(rule, packet) {
                self.matches[self.first[list] + i] += 1;
                return Some(Decision { permits: !rule.deny, looked_at });
            }
        }
        Some(Decision { permits: true, looked_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(destination: &str, protocol: u8, destination_port: Option<u16>) -> Packet {
        let destination: IpAddr = destination.parse().unwrap();
        let source = if destination.is_ipv4() { "198.18.0.9" } else { "2001:2::9" };
        Packet { source: source.parse().unwrap(), destination, protocol, destination_port }
    }

    fn list(direction: FilterDirection, interfaces: &[usize], rules: Vec<FilterRule>) -> FilterList {
        FilterList { direction, interfaces: interfaces.to_vec(), rules }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_counts() {
        let prefix = |text: &str, length| Some((text.parse().unwrap(), length));
        let rules = vec![
            FilterRule { destination: prefix("198.19.0.0", 24), protocol: Some(17), ..FilterRule::default() },
            FilterRule { deny: true, destination: prefix("198.19.0.0", 16), ..FilterRule::default() },
            FilterRule { deny: true, destination_ports: Some((9, 10)), ..FilterRule::default() },
            FilterRule { deny: true, source: prefix("2001:2::", 0), ..FilterRule::default() },
        ];
        let mut filter = Filter::new(vec![list(FilterDirection::Ingress, &[], rules)], 2).unwrap();
        for (destination, protocol, port, permits, looked_at) in [
            ("198.19.0.1", 17, Some(9), true, 1),
            ("198.19.0.1", 6, Some(9), false, 2),
            ("198.19.1.1", 17, Some(7), false, 2),
            ("198.20.1.1", 17, Some(10), false, 3),
            ("198.20.1.1", 17, Some(11), true, 3),
            ("198.20.1.1", 17, None, true, 3),
            ("2001:2::1", 17, Some(11), false, 2),
        ] {
            let packet = packet(destination, protocol, port);
            let decision = filter.decide(FilterDirection::Ingress, 1, &packet);
            assert_eq!(decision, Some(Decision { permits, looked_at }), "{packet:?}");
            assert_eq!(filter.decide(FilterDirection::Egress, 1, &packet), None);
        }
        assert_eq!(filter.matches, [1, 2, 1, 1]);
        let bad = FilterRule { source: prefix("198.18.0.0", 33), ..FilterRule::default() };
        let refused = Filter::new(vec![list(FilterDirection::Ingress, &[], vec![bad])], 2);
        assert!(matches!(refused, Err(ConfigError::Filter(why)) if why.contains("/33")));
    }

    #[test]
    fn each_port_has_its_own_list_in_each_direction() {
        let deny = || vec![FilterRule::DENY_ALL];
        let lists = vec![
            list(FilterDirection::Ingress, &[1], vec![]),
            list(FilterDirection::Egress, &[0, 2], deny()),
            list(FilterDirection::Egress, &[1], deny()),
        ];
        let mut filter = Filter::new(lists, 3).unwrap();
        let mut permits = |direction, port| {
            filter.decide(direction, port, &packet("198.19.0.1", 17, Some(9))).map(|decision| decision.permits)
        };
        assert_eq!([0, 1, 2].map(|port| permits(FilterDirection::Ingress, port)), [None, Some(true), None]);
        assert_eq!([0, 1, 2].map(|port| permits(FilterDirection::Egress, port)), [Some(false); 3]);
        assert_eq!(filter.matches, [2, 1]);
    }
}
