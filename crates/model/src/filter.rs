//! Packet filters as data: lists of rules for the packets that a router forwards.
//!
//! # Filters
//!
//! A test sets filters with `methods::Setting::Filters`. `Filters::set_filter` translates them for the DUT: into
//! nftables for all routers that forward with this machine's kernel (`lab/src/packet_filter.rs`), or for the reference
//! device (`reference/src/filter.rs`). The bench records every change (`Record::Filter`), and removes the filters when
//! the test ends, however it ends (`Bench::end_test`). It marks trials with filters (`TrialRecord::filtered`,
//! `filter_rules`), so that they do not contradict figures without filters or with a different number of rules. Flows
//! that filters must drop are marked (`FlowSpec::denied`), so that their loss raises no doubt.

use crate::trial::Family;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

crate::choice! {
    /// Where a filter applies to a packet.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum FilterDirection {
        /// At the interface where the packet arrives.
        Ingress = "ingress",
        /// At the interface where it leaves.
        Egress = "egress",
    }
}

/// A rule of a filter. An absent field matches everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterRule {
    /// True to drop matching packets without an ICMP message, false to permit them.
    pub deny: bool,
    /// Prefix of the source address: address and length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<(IpAddr, u8)>,
    /// Prefix of the destination address: address and length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<(IpAddr, u8)>,
    /// IPv4 protocol or IPv6 next header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// First and last destination port. Packets without ports (neither TCP nor UDP, or not the first fragment) do not
    /// match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_ports: Option<(u16, u16)>,
}

/// A list of rules at some interfaces, in one direction. The first matching rule decides; packets that match no rule
/// are permitted. An interface has at most one list in each direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterList {
    /// Direction in which it applies.
    pub direction: FilterDirection,
    /// Indices of the interfaces in the DUT's role, VLAN sub-interfaces included; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<usize>,
    /// The rules in order.
    pub rules: Vec<FilterRule>,
}

impl FilterRule {
    /// The rule that denies every packet.
    pub const DENY_ALL: FilterRule =
        FilterRule { deny: true, source: None, destination: None, protocol: None, destination_ports: None };

    /// The IP version of packets that the rule can match; `None` for both. A rule with prefixes of both versions
    /// matches nothing, and has the version of its source.
    pub fn family(&self) -> Option<Family> {
        let (address, _) = self.source.or(self.destination)?;
        Some(if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 })
    }

    /// True if the rule can match packets of this IP version.
    pub fn is_of(&self, family: Family) -> bool {
        self.family().is_none_or(|own| own == family)
    }
}

/// Display form: `permit udp 198.18.64.0/18 -> 198.19.64.0/18 port 9`.
impl fmt::Display for FilterRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.deny { "deny" } else { "permit" })?;
        match self.protocol {
            Some(6) => f.write_str(" tcp")?,
            Some(17) => f.write_str(" udp")?,
            Some(protocol) => write!(f, " protocol {protocol}")?,
            None => {}
        }
        let prefix = |prefix: Option<(IpAddr, u8)>| prefix.map_or("any".into(), |(a, length)| format!("{a}/{length}"));
        write!(f, " {} -> {}", prefix(self.source), prefix(self.destination))?;
        match self.destination_ports {
            Some((first, last)) if first == last => write!(f, " port {first}"),
            Some((first, last)) => write!(f, " ports {first} to {last}"),
            None => Ok(()),
        }
    }
}

/// Returns why a router with this many interfaces cannot have these lists; `None` if it can.
pub fn refuse(lists: &[FilterList], interfaces: usize) -> Option<String> {
    let mut taken = std::collections::BTreeSet::new();
    for list in lists {
        let all: Vec<usize> = (0..interfaces).collect();
        for interface in if list.interfaces.is_empty() { &all } else { &list.interfaces } {
            if *interface >= interfaces {
                return Some(format!("a filter names interface {interface}, but there are only {interfaces}"));
            }
            if !taken.insert((list.direction, *interface)) {
                return Some(format!("interface {interface} has two filters on {}", list.direction));
            }
        }
        let prefixes = || list.rules.iter().flat_map(|rule| [rule.source, rule.destination]).flatten();
        if let Some((address, length)) = prefixes().find(|(a, length)| *length > if a.is_ipv4() { 32 } else { 128 }) {
            return Some(format!("a filter has the prefix {address}/{length}, which is too long for this family"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(source: &str, length: u8) -> FilterRule {
        FilterRule { source: Some((source.parse().unwrap(), length)), ..FilterRule::default() }
    }

    #[test]
    fn rules_are_shown_and_stored() {
        let web = FilterRule { protocol: Some(6), destination_ports: Some((80, 81)), ..rule("198.18.0.0", 15) };
        let test = FilterRule { protocol: Some(17), destination_ports: Some((9, 9)), ..rule("2001:2::", 48) };
        assert_eq!(web.to_string(), "permit tcp 198.18.0.0/15 -> any ports 80 to 81");
        assert_eq!(test.to_string(), "permit udp 2001:2::/48 -> any port 9");
        assert_eq!(FilterRule::DENY_ALL.to_string(), "deny any -> any");
        assert!(web.is_of(Family::Ipv4) && !web.is_of(Family::Ipv6) && FilterRule::DENY_ALL.is_of(Family::Ipv6));
        let list = FilterList {
            direction: FilterDirection::Egress,
            interfaces: vec![1],
            rules: vec![web, test, FilterRule::DENY_ALL],
        };
        let text = serde_json::to_string(&list).unwrap();
        assert!(text.contains(r#"{"direction":"egress","interfaces":[1],"rules":[{"deny":false,"#), "{text}");
        assert_eq!(serde_json::from_str::<FilterList>(&text).unwrap(), list);
    }

    #[test]
    fn an_interface_has_one_list_in_each_direction() {
        let list = |direction, interfaces: &[usize], rules: Vec<FilterRule>| FilterList {
            direction,
            interfaces: interfaces.to_vec(),
            rules,
        };
        let (ingress, egress) = (FilterDirection::Ingress, FilterDirection::Egress);
        let refused = |lists: &[FilterList]| refuse(lists, 2);
        assert_eq!(refused(&[list(ingress, &[], vec![]), list(egress, &[], vec![])]), None);
        assert_eq!(refused(&[list(ingress, &[0], vec![]), list(ingress, &[1], vec![rule("::", 0)])]), None);
        let why = refused(&[list(ingress, &[], vec![]), list(ingress, &[1], vec![])]).unwrap();
        assert!(why.contains("interface 1 has two filters on ingress"), "{why}");
        assert!(refused(&[list(egress, &[2], vec![])]).unwrap().contains("interface 2"));
        assert!(refused(&[list(egress, &[0], vec![rule("198.18.0.0", 33)])]).unwrap().contains("/33"));
    }
}
