//! Filters: lists of rules; the first rule that matches decides.

use crate::config::ConfigError;
use drophammer_model::filter::{self, FilterDirection, FilterList, FilterRule};
use drophammer_model::trial::Family;
use std::collections::BTreeMap;
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
    indices: Vec<Index>,
    /// Index of the first rule of each list among all rules.
    first: Vec<usize>,
    /// Index of the list for each direction and port.
    at: [Vec<Option<usize>>; 2],
    /// Number of packets that each rule decided on, list after list.
    pub matches: Vec<u64>,
}

/// The rules of a list by destination, because a list may have a rule for each of 100,000 routes, and each frame is
/// compared with it.
#[derive(Clone, Debug, Default)]
struct Index {
    /// Rules with a destination prefix, in order, by length and leading bits, for IPv4 and IPv6.
    by_destination: [BTreeMap<(u8, u128), Vec<usize>>; 2],
    /// The lengths of these prefixes.
    lengths: [Vec<u8>; 2],
    /// Rules without a destination prefix, in order.
    others: Vec<usize>,
    /// For each rule, the number of rules of IPv4, and of IPv6, up to this one.
    examined: Vec<[u64; 2]>,
}

impl Index {
    fn new(rules: &[FilterRule]) -> Index {
        let (mut index, mut examined) = (Index::default(), [0; 2]);
        for (place, rule) in rules.iter().enumerate() {
            match rule.destination {
                Some((address, length)) => {
                    let prefixes = &mut index.by_destination[usize::from(address.is_ipv6())];
                    prefixes.entry((length, leading(address, length))).or_default().push(place);
                }
                None => index.others.push(place),
            }
            let families = [Family::Ipv4, Family::Ipv6].into_iter();
            examined.iter_mut().zip(families).for_each(|(count, family)| *count += u64::from(rule.is_of(family)));
            index.examined.push(examined);
        }
        for (lengths, prefixes) in index.lengths.iter_mut().zip(&index.by_destination) {
            *lengths = prefixes.keys().map(|(length, _)| *length).collect();
            lengths.dedup();
        }
        index
    }

    /// The first of `rules` that matches.
    fn first(&self, rules: &[FilterRule], packet: &Packet) -> Option<usize> {
        let version = usize::from(packet.destination.is_ipv6());
        let of_length = |length: &u8| {
            self.by_destination[version].get(&(*length, leading(packet.destination, *length))).map(Vec::as_slice)
        };
        let named = self.lengths[version].iter().filter_map(of_length).chain([self.others.as_slice()]);
        named.filter_map(|places| places.iter().find(|place| matches(&rules[**place], packet))).min().copied()
    }
}

/// The first `length` bits of an address.
fn leading(address: IpAddr, length: u8) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(a.to_bits()).checked_shr(32 - u32::from(length)).unwrap_or(0),
        IpAddr::V6(a) => a.to_bits().checked_shr(128 - u32::from(length)).unwrap_or(0),
    }
}

fn within(address: IpAddr, prefix: (IpAddr, u8)) -> bool {
    match (address, prefix.0) {
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
            leading(address, prefix.1) == leading(prefix.0, prefix.1)
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
        let indices = lists.iter().map(|list| Index::new(&list.rules)).collect();
        Ok(Filter { lists, indices, first, at, matches: vec![0; rules] })
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The decision of a port's list on a packet; `None` if the port has no list. The packet is counted for the rule
    /// that decides.
    pub fn decide(&mut self, direction: FilterDirection, port: usize, packet: &Packet) -> Option<Decision> {
        let list = self.at[direction as usize][port]?;
        let (index, version) = (&self.indices[list], usize::from(packet.source.is_ipv6()));
        let rules = &self.lists[list].rules;
        let Some(rule) = index.first(rules, packet) else {
            return Some(Decision { permits: true, looked_at: index.examined.last().map_or(0, |all| all[version]) });
        };
        self.matches[self.first[list] + rule] += 1;
        Some(Decision { permits: !rules[rule].deny, looked_at: index.examined[rule][version] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn an_index_decides_like_one_rule_after_the_other(
            rules in proptest::collection::vec(any_rule(), 0..30), packets in proptest::collection::vec(any_packet(), 1..30)
        ) {
            let mut filter = Filter::new(vec![list(FilterDirection::Egress, &[], rules.clone())], 1).unwrap();
            let mut counts = vec![0; rules.len()];
            for packet in packets {
                let family = if packet.source.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
                let found = rules.iter().position(|rule| matches(rule, &packet));
                let examined = &rules[..found.map_or(rules.len(), |rule| rule + 1)];
                let looked_at = examined.iter().filter(|rule| rule.is_of(family)).count() as u64;
                found.iter().for_each(|rule| counts[*rule] += 1);
                let permits = found.is_none_or(|rule| !rules[rule].deny);
                let decided = filter.decide(FilterDirection::Egress, 0, &packet);
                prop_assert_eq!(decided, Some(Decision { permits, looked_at }));
            }
            prop_assert_eq!(filter.matches, counts);
        }
    }

    /// Few addresses, so that many match.
    fn any_address() -> impl Strategy<Value = IpAddr> {
        let v4 = (0u32..8).prop_map(|n| IpAddr::from((0xc612_0000 | n << 8).to_be_bytes()));
        let v6 = (0u128..8).prop_map(|n| IpAddr::from((0x2001_0002_u128 << 96 | n << 64).to_be_bytes()));
        prop_oneof![v4, v6]
    }

    fn any_prefix() -> impl Strategy<Value = Option<(IpAddr, u8)>> {
        let lengths = prop_oneof![Just(0u8), 14..26u8, Just(32)];
        proptest::option::weighted(0.7, (any_address(), lengths))
    }

    fn any_rule() -> impl Strategy<Value = FilterRule> {
        let protocol = proptest::option::weighted(0.3, 6u8..8);
        let ports = proptest::option::weighted(0.3, (0u16..3, 0u16..3));
        (any::<bool>(), any_prefix(), any_prefix(), protocol, ports).prop_map(
            |(deny, source, destination, protocol, destination_ports)| FilterRule {
                deny,
                source,
                destination,
                protocol,
                destination_ports,
            },
        )
    }

    fn any_packet() -> impl Strategy<Value = Packet> {
        let same_version = |(source, destination): &(IpAddr, IpAddr)| source.is_ipv4() == destination.is_ipv4();
        let addresses = (any_address(), any_address()).prop_filter("one IP version", same_version);
        (addresses, 6u8..8, proptest::option::of(0u16..3)).prop_map(
            |((source, destination), protocol, destination_port)| Packet {
                source,
                destination,
                protocol,
                destination_port,
            },
        )
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
