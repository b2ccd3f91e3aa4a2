//! The filters of the test `filters` and, in part, of `route_filtering`: one condition that permits the test traffic,
//! others that do not match it, and a last rule that denies everything else (RFC 2544 section 11.4).

use crate::testbed::PortView;
use drophammer_model::filter::{FilterDirection, FilterList, FilterRule};
use drophammer_model::suite::Addressing;
use drophammer_model::traffic::DISCARD;
use drophammer_model::trial::{FlowSpec, Targets};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

drophammer_model::choice! {
    /// Position of the condition that permits the traffic.
    pub enum Position {
        /// After the other conditions, so the router evaluates all of them for every frame.
        Last = "last",
        /// Before the other conditions.
        First = "first",
    }
}

drophammer_model::choice! {
    /// Action of filter rules on half of the routes.
    pub enum Action {
        /// Permit them.
        Allow = "allow",
        /// Deny them.
        Deny = "deny",
        /// Deny them, and permit the other half.
        Both = "both",
    }
}

/// Maximum number of conditions of a filter. Each one needs a rule per flow, which is kept in memory and sent to the
/// router.
pub const MOST_CONDITIONS: u64 = 100_000;

/// UDP.
const UDP: u8 = 17;

/// A filter to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Number of conditions, including the one that permits the traffic, but without the last rule, which denies
    /// everything else.
    pub conditions: u64,
    /// Position of the permitting condition; `None` if it is the only one.
    pub permit: Option<Position>,
    /// Where the filter applies.
    pub direction: FilterDirection,
}

impl Case {
    /// All cases, in the order of measurement. A single condition has only one position.
    pub fn all(conditions: &[u64], permit: &[Position], directions: &[FilterDirection]) -> Vec<Case> {
        let mut cases: Vec<Case> = Vec::new();
        for direction in directions.iter().copied() {
            for conditions in conditions.iter().copied() {
                for permit in permit.iter().map(|at| Some(*at).filter(|_| conditions > 1)) {
                    let case = Case { conditions, permit, direction };
                    if !cases.contains(&case) {
                        cases.push(case);
                    }
                }
            }
        }
        cases
    }

    /// `last` or `first`; `only` for a single condition.
    pub fn permit_word(&self) -> &'static str {
        self.permit.map_or("only", Position::word)
    }

    /// The case as text: `10 conditions, permit last, ingress`.
    pub fn text(&self) -> String {
        match self.permit {
            Some(at) => format!("{} conditions, permit {at}, {}", self.conditions, self.direction),
            None => format!("{} condition, {}", self.conditions, self.direction),
        }
    }

    /// The filter lists for this traffic: one at each port where it enters or leaves the router.
    pub fn lists(&self, flows: &[FlowSpec], ports: &[PortView]) -> Vec<FilterList> {
        let mut lists: Vec<FilterList> = Vec::new();
        for flow in flows {
            let ends = (ports[flow.from].addressing(flow.family), ports[flow.to].addressing(flow.family));
            let (Some(from), Some(to)) = ends else { continue };
            let port = if self.direction == FilterDirection::Ingress { flow.from } else { flow.to };
            let list = match lists.iter_mut().find(|list| list.interfaces == [port]) {
                Some(list) => list,
                None => {
                    lists.push(FilterList { direction: self.direction, interfaces: vec![port], rules: Vec::new() });
                    let last = lists.len() - 1;
                    &mut lists[last]
                }
            };
            list.rules.extend(self.conditions(from, to));
        }
        lists.iter_mut().for_each(|list| list.rules.push(FilterRule::DENY_ALL));
        lists
    }

    /// The conditions for traffic from one port to another.
    fn conditions(&self, from: &Addressing, to: &Addressing) -> Vec<FilterRule> {
        let permit = FilterRule {
            deny: false,
            source: Some(from.behind),
            destination: Some(to.behind),
            protocol: Some(UDP),
            destination_ports: Some((DISCARD, DISCARD)),
        };
        let mut rules: Vec<FilterRule> = (1..self.conditions).map(|n| unrelated(from.behind, n)).collect();
        let at = if self.permit == Some(Position::First) { 0 } else { rules.len() };
        rules.insert(at, permit);
        rules
    }
}

/// Condition `n` that does not match the traffic: both addresses are behind the sending port, as in RFC 2544 section
/// 11.4.1.
fn unrelated(behind: (IpAddr, u8), n: u64) -> FilterRule {
    // As in the RFC, each address is in a different network, and source and destination differ.
    let host = |n: u64| {
        let address = nth(behind, n.wrapping_mul(257));
        Some((address, if address.is_ipv4() { 32 } else { 128 }))
    };
    FilterRule { deny: true, source: host(n), destination: host(n.wrapping_add(99)), ..FilterRule::default() }
}

/// Address `n` of a prefix, wrapping around at its end.
fn nth((address, length): (IpAddr, u8), n: u64) -> IpAddr {
    match address {
        IpAddr::V4(first) => {
            let mask = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv4Addr::from_bits(first.to_bits() & !mask | n as u32 & mask).into()
        }
        IpAddr::V6(first) => {
            let mask = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv6Addr::from_bits(first.to_bits() & !mask | u128::from(n) & mask).into()
        }
    }
}

/// Destination address `i` of a flow as text.
pub fn destination(flow: &FlowSpec, i: usize) -> String {
    match &flow.destinations {
        Targets::Addresses(range) => {
            let n = (i as u64).wrapping_mul(range.step);
            let address: IpAddr = match range.first {
                IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits().wrapping_add(n as u32)).into(),
                IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits().wrapping_add(n.into())).into(),
            };
            address.to_string()
        }
        Targets::Routes { .. } => format!("route {i}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_condition_is_one_case() {
        let both = [FilterDirection::Ingress, FilterDirection::Egress];
        let cases = Case::all(&[1, 10], &[Position::Last, Position::First], &both);
        let text: Vec<String> = cases.iter().map(Case::text).collect();
        let of = |direction| {
            [
                format!("1 condition, {direction}"),
                format!("10 conditions, permit last, {direction}"),
                format!("10 conditions, permit first, {direction}"),
            ]
        };
        assert_eq!(text, [of("ingress"), of("egress")].concat());
    }

    #[test]
    fn conditions_other_than_the_permit_match_nothing_of_the_traffic() {
        for behind in [("198.18.64.0", 18), ("10.0.0.0", 8), ("2001:2:0:4000::", 50), ("198.18.244.64", 26)] {
            let behind: (IpAddr, u8) = (behind.0.parse().unwrap(), behind.1);
            let mut seen = std::collections::BTreeSet::new();
            for n in 1..25 {
                let rule = unrelated(behind, n);
                let inside = |prefix: Option<(IpAddr, u8)>| {
                    let (address, length) = prefix.unwrap();
                    assert_eq!(length, if address.is_ipv4() { 32 } else { 128 });
                    nth((address, behind.1), 0) == behind.0
                };
                assert!(rule.deny && inside(rule.source) && inside(rule.destination), "{rule}");
                assert!(seen.insert(rule.to_string()), "{rule} twice");
            }
        }
        assert_eq!(
            unrelated(("198.18.64.0".parse().unwrap(), 18), 1).to_string(),
            "deny 198.18.65.1/32 -> 198.18.100.100/32"
        );
    }
}
