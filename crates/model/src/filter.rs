//! Packet filters as data: lists of rules that a router applies to the packets that it forwards.
//!
//! # Filters
//!
//! A test gives the DUT packet filters as data (`model::filter`: lists of rules, each at some interfaces, on ingress or
//! egress) by `methods::Setting::Filters`. `Filters::set_filter` translates them for the DUT: `lab/src/packet_filter.rs` into
//! nftables for all routers that forward with this machine's kernel, `reference/src/filter.rs` for the reference
//! device. The bench records every change (`Record::Filter`). It marks trials with filters (`TrialRecord::filtered`),
//! so that they contradict no figure without filters or with another number of rules (`filter_rules`). It removes the
//! filters when the test ends, however it ends (`Bench::end_test`). Flows that must be denied say so
//! (`FlowSpec::denied`): their loss raises no doubt.

use crate::trial::Family;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

crate::choice! {
    /// Interface at which a filter applies to a packet.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum FilterDirection {
        /// The interface at which the packet arrives.
        Ingress = "ingress",
        /// The interface at which it leaves.
        Egress = "egress",
    }
}

/// A rule of a filter. Absent fields match everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilterRule {
    /// Drop matching packets, without an ICMP message; otherwise permit them.
    pub deny: bool,
    /// Prefix of the source address, with its length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<(IpAddr, u8)>,
    /// Prefix of the destination address, with its length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<(IpAddr, u8)>,
    /// IPv4 protocol or IPv6 next header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// First and last destination port. Packets without ports (of other protocols than TCP and UDP, later fragments) do not
    /// match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_ports: Option<(u16, u16)>,
}

/// A list of rules at some interfaces, in one direction. The first rule that matches a packet decides; a packet that no rule
/// matches is permitted. An interface has at most one list in each direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterList {
    /// Where it applies.
    pub direction: FilterDirection,
    /// The interfaces, by their index in the DUT's role, VLAN sub-interfaces included; empty for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<usize>,
    /// The rules, in the order of evaluation.
    pub rules: Vec<FilterRule>,
}

impl FilterRule {
    /// The rule that denies every packet.
    pub const DENY_ALL: FilterRule =
        FilterRule { deny: true, source: None, destination: None, protocol: None, destination_ports: None };

    /// The IP version of the packets that the rule can match; `None` for both. A rule with prefixes of both versions
    /// matches nothing; it is assigned the version of its source.
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

/// Why a router cannot have these lists; `None` when it can. `interfaces` is the number of its interfaces.
pub fn refuse(lists: &[FilterList], interfaces: usize) -> Option<String> {
    let mut taken = std::collections::BTreeSet::new();
    for list in lists {
        let all: Vec<usize> = (0..interfaces).collect();
        for interface in if list.interfaces.is_empty() { &all } else { &list.interfaces } {
            if *interface >= interfaces {
                return Some(format!("a filter names interface {interface}, but there are {interfaces}"));
            }
            if !taken.insert((list.direction, *interface)) {
                return Some(format!("interface {interface} has two filters on {}", list.direction));
            }
        }
        let prefixes = || list.rules.iter().flat_map(|rule| [rule.source, rule.destination]).flatten();
        if let Some((address, length)) = prefixes().find(|(a, length)| *length > if a.is_ipv4() { 32 } else { 128 }) {
            return Some(format!("a filter has the prefix {address}/{length}: no prefix of this family is so long"));
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
