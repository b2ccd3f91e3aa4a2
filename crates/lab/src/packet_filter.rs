//! Packet filters of routers that forward with this machine's kernel: lists of rules as nftables rulesets.
//!
//! They are in separate tables, one for each family, so the user's own rules stay as they are. Lists of both directions
//! use the hook `forward`: the kernel routes a packet before it filters it in either direction.

use crate::router::interface_at;
use crate::{LabError, Netns};
use drophammer_model::Param;
use drophammer_model::counters::DENIED;
use drophammer_model::filter::{self, FilterDirection, FilterList, FilterRule};
use drophammer_model::role::RouterRole;
use drophammer_model::trial::Family;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

drophammer_model::choice! {
    /// How the kernel looks up rules.
    pub(crate) enum FilterStyle {
        /// Each rule is a rule of nftables; the kernel evaluates one after the other.
        List = "list",
        /// Consecutive rules with the same verdict and fields become a set with a single lookup.
        Sets = "sets",
    }
}

/// Parameter of the kinds whose forwarding is the kernel's.
pub(crate) const FILTERS: Param<FilterStyle> = Param::fixed(
    "filters",
    "list",
    "how the filters of a test become nftables rules: one by one, or as sets, which look up consecutive rules with the same fields together",
);

/// The style as an entry of a router's record, so that routers with different styles do not look like one router. `None` for the default.
pub(crate) fn recorded(style: FilterStyle) -> Option<(String, String)> {
    (style != FilterStyle::List).then(|| (FILTERS.spec().key.to_owned(), style.word().to_owned()))
}

/// The program, and the Debian package that contains it.
pub(crate) const NEED: (&str, &str) = ("nft", "nftables");
/// Name of the tables.
const TABLE: &str = "drophammer_filter";
/// Maximum number of rules of a filter whose rules are counted separately: more counters would dominate the records of
/// a run.
pub const MOST_COUNTED: usize = 1_000;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Replaces the current lists by `lists` in one transaction; an empty slice removes them.
pub(crate) fn set(netns: &Netns, role: &RouterRole, lists: &[FilterList], style: FilterStyle) -> Result<(), LabError> {
    if let Some(why) = filter::refuse(lists, role.interfaces.len()) {
        return Err(LabError::unusable(why, "this is a bug in Drophammer"));
    }
    netns.output(NEED.0, NEED.1, &["--file", "-"], Some(&ruleset(role, lists, style))).map(drop)
}

/// Adds the counter of each rule, named after the place of the rule among the rules of all lists (a set counts for its
/// first rule), and the sum of all rules that drop.
pub(crate) fn counters(netns: &Netns, counters: &mut BTreeMap<String, u64>) -> Result<(), LabError> {
    for family in ["ip", "ip6"] {
        let text = netns.output(NEED.0, NEED.1, &["--json", "list", "table", family, TABLE], None)?;
        let listed: Value = serde_json::from_str(&text).map_err(LabError::io("cannot read the JSON of nft(8)"))?;
        for (rule, packets, drops) in counted(&listed) {
            *counters.entry(counter_name(rule)).or_default() += packets;
            if drops {
                *counters.entry(DENIED.to_owned()).or_default() += packets;
            }
        }
    }
    Ok(())
}

/// Name of the counter of rule `rule`, numbered from 0 over all lists.
pub fn counter_name(rule: usize) -> String {
    format!("filter{rule}.matches")
}

/// Parses the output of `nft --json list table`: each rule, its number of packets, and true if it drops them.
fn counted(listed: &Value) -> Vec<(usize, u64, bool)> {
    let of_rule = |rule: &Value| {
        let number = rule["comment"].as_str()?.parse().ok()?;
        let expressions = rule["expr"].as_array()?;
        let packets = expressions.iter().find_map(|e| e["counter"]["packets"].as_u64())?;
        Some((number, packets, expressions.iter().any(|e| e.get("drop").is_some())))
    };
    let rules = listed["nftables"].as_array().into_iter().flatten().filter_map(|entry| entry.get("rule"));
    rules.filter_map(of_rule).collect()
}

/// The file for `nft -f`: it removes the tables, and creates them again if there are lists.
fn ruleset(role: &RouterRole, lists: &[FilterList], style: FilterStyle) -> String {
    let mut text = String::new();
    for (family, word) in [(Family::Ipv4, "ip"), (Family::Ipv6, "ip6")] {
        // Only existing tables can be deleted.
        let _ = writeln!(text, "table {word} {TABLE}\ndelete table {word} {TABLE}");
        if lists.is_empty() {
            continue;
        }
        let _ = writeln!(text, "table {word} {TABLE} {{");
        let mut number = 0;
        for (i, list) in lists.iter().enumerate() {
            let _ = writeln!(text, "  chain list{i} {{");
            for line in lines(list, number, family, style) {
                let _ = writeln!(text, "    {line}");
            }
            let _ = writeln!(text, "  }}");
            number += list.rules.len();
        }
        for (direction, priority) in [(FilterDirection::Ingress, -10), (FilterDirection::Egress, 10)] {
            let Some(dispatch) = dispatch(role, lists, direction) else { continue };
            let _ = writeln!(
                text,
                "  chain {direction} {{\n    type filter hook forward priority {priority}; policy accept;\n    {dispatch}\n  }}"
            );
        }
        let _ = writeln!(text, "}}");
    }
    text
}

/// The rule that jumps to the lists of a direction; `None` if there are none.
fn dispatch(role: &RouterRole, lists: &[FilterList], direction: FilterDirection) -> Option<String> {
    let mut of_direction = lists.iter().enumerate().filter(|(_, list)| list.direction == direction).peekable();
    let (first, list) = of_direction.peek()?;
    if list.interfaces.is_empty() {
        return Some(format!("goto list{first}"));
    }
    let names = |ports: &[usize]| {
        let places = role.places().filter(|(at, _, _)| ports.contains(&at.port));
        places.map(|(at, _, _)| interface_at(role, at)).collect::<Vec<_>>()
    };
    let one = |(i, list): (usize, &FilterList)| {
        names(&list.interfaces).iter().map(|name| format!("\"{name}\" : goto list{i}")).collect::<Vec<_>>()
    };
    let all: Vec<String> = of_direction.flat_map(one).collect();
    let key = if direction == FilterDirection::Ingress { "iifname" } else { "oifname" };
    Some(format!("{key} vmap {{ {} }}", all.join(", ")))
}

/// The fields that a rule matches: source, destination, protocol, ports.
type Form = [bool; 4];

fn form(rule: &FilterRule) -> Form {
    let ports = rule.destination_ports.is_some();
    [rule.source.is_some(), rule.destination.is_some(), rule.protocol.is_some() || ports, ports]
}

/// The rules of one family as lines of a chain; `number` is the number of the list's first rule.
fn lines(list: &FilterList, number: usize, family: Family, style: FilterStyle) -> Vec<String> {
    let rules = list.rules.iter().enumerate().filter(|(_, rule)| rule.is_of(family) && can_match(rule));
    let rules: Vec<(usize, &FilterRule)> = rules.collect();
    let alike = |a: &(usize, &FilterRule), b: &(usize, &FilterRule)| {
        style == FilterStyle::Sets && a.1.deny == b.1.deny && form(a.1) == form(b.1)
    };
    let line = |group: &[(usize, &FilterRule)]| {
        let verdict = if group[0].1.deny { "drop" } else { "accept" };
        let tail = format!("counter {verdict} comment \"{}\"", number + group[0].0);
        let condition = match group {
            [(_, one)] => condition(one, family),
            several => set_condition(several, family),
        };
        if condition.is_empty() { tail } else { format!("{condition} {tail}") }
    };
    rules.chunk_by(alike).map(line).collect()
}

/// False for rules that match no packet: only TCP and UDP have ports, and no packet belongs to both families.
fn can_match(rule: &FilterRule) -> bool {
    let of_both = |a: (IpAddr, u8), b: (IpAddr, u8)| a.0.is_ipv4() != b.0.is_ipv4();
    let mixed = rule.source.zip(rule.destination).is_some_and(|(a, b)| of_both(a, b));
    let portless = rule.destination_ports.is_some() && rule.protocol.is_some_and(|p| p != TCP && p != UDP);
    !mixed && !portless
}

fn word(family: Family) -> &'static str {
    if family == Family::Ipv4 { "ip" } else { "ip6" }
}

fn prefix((address, length): (IpAddr, u8)) -> String {
    if length == if address.is_ipv4() { 32 } else { 128 } { address.to_string() } else { format!("{address}/{length}") }
}

fn ports((first, last): (u16, u16)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// The condition of one rule.
fn condition(rule: &FilterRule, family: Family) -> String {
    let ip = word(family);
    let source = rule.source.map(|p| format!("{ip} saddr {}", prefix(p)));
    let destination = rule.destination.map(|p| format!("{ip} daddr {}", prefix(p)));
    let protocol = match (rule.protocol, rule.destination_ports) {
        (Some(protocol), _) => Some(format!("meta l4proto {protocol}")),
        (None, Some(_)) => Some(format!("meta l4proto {{ {TCP}, {UDP} }}")),
        (None, None) => None,
    };
    let ports = rule.destination_ports.map(|p| format!("th dport {}", ports(p)));
    [source, destination, protocol, ports].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The condition for a match with one of several rules of the same form.
fn set_condition(rules: &[(usize, &FilterRule)], family: Family) -> String {
    let ip = word(family);
    let form = form(rules[0].1);
    let keys = [format!("{ip} saddr"), format!("{ip} daddr"), "meta l4proto".into(), "th dport".into()];
    let key: Vec<&str> = keys.iter().zip(form).filter(|(_, used)| *used).map(|(key, _)| key.as_str()).collect();
    if key.is_empty() {
        return String::new();
    }
    let elements: BTreeSet<String> = rules.iter().flat_map(|(_, rule)| elements(rule)).collect();
    format!("{} {{ {} }}", key.join(" . "), elements.into_iter().collect::<Vec<_>>().join(", "))
}

/// A rule as elements of a set.
fn elements(rule: &FilterRule) -> Vec<String> {
    let protocols: Vec<Option<u8>> = match (rule.protocol, rule.destination_ports) {
        (None, Some(_)) => vec![Some(TCP), Some(UDP)],
        (protocol, _) => vec![protocol],
    };
    let element = |protocol: Option<u8>| {
        let parts = [
            rule.source.map(prefix),
            rule.destination.map(prefix),
            protocol.map(|p| p.to_string()),
            rule.destination_ports.map(ports),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" . ")
    };
    protocols.into_iter().map(element).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{two_ports, with_vlans};

    fn rule(deny: bool, source: &str, destination: &str) -> FilterRule {
        let prefix = |text: &str| {
            let (address, length) = text.split_once('/')?;
            Some((address.parse().unwrap(), length.parse().unwrap()))
        };
        FilterRule { deny, source: prefix(source), destination: prefix(destination), ..FilterRule::default() }
    }

    fn list(direction: FilterDirection, interfaces: &[usize], rules: &[FilterRule]) -> FilterList {
        FilterList { direction, interfaces: interfaces.to_vec(), rules: rules.to_vec() }
    }

    fn rules() -> Vec<FilterRule> {
        let test = FilterRule {
            protocol: Some(UDP),
            destination_ports: Some((9, 9)),
            ..rule(false, "198.18.64.0/18", "198.19.64.0/18")
        };
        vec![
            rule(true, "198.18.64.1/32", "198.18.64.2/32"),
            rule(true, "198.18.64.2/32", "198.18.64.0/24"),
            test,
            rule(true, "2001:2::/48", ""),
            FilterRule { destination_ports: Some((7, 8)), ..FilterRule::DENY_ALL },
            FilterRule::DENY_ALL,
        ]
    }

    #[test]
    fn rules_stand_in_their_order_with_their_numbers() {
        let all = list(FilterDirection::Ingress, &[], &rules());
        assert_eq!(
            lines(&all, 10, Family::Ipv4, FilterStyle::List),
            [
                "ip saddr 198.18.64.1 ip daddr 198.18.64.2 counter drop comment \"10\"",
                "ip saddr 198.18.64.2 ip daddr 198.18.64.0/24 counter drop comment \"11\"",
                "ip saddr 198.18.64.0/18 ip daddr 198.19.64.0/18 meta l4proto 17 th dport 9 counter accept comment \"12\"",
                "meta l4proto { 6, 17 } th dport 7-8 counter drop comment \"14\"",
                "counter drop comment \"15\"",
            ]
        );
        assert_eq!(
            lines(&all, 10, Family::Ipv6, FilterStyle::List)[0],
            "ip6 saddr 2001:2::/48 counter drop comment \"13\""
        );
    }

    #[test]
    fn the_record_has_the_style_that_is_not_the_default() {
        assert_eq!(recorded(FilterStyle::List), None);
        assert_eq!(recorded(FilterStyle::Sets), Some(("filters".to_owned(), "sets".to_owned())));
    }

    #[test]
    fn neighbours_of_one_verdict_and_form_are_a_set() {
        let all = list(FilterDirection::Ingress, &[], &rules());
        assert_eq!(
            lines(&all, 0, Family::Ipv4, FilterStyle::Sets)[0],
            "ip saddr . ip daddr { 198.18.64.1 . 198.18.64.2, 198.18.64.2 . 198.18.64.0/24 } counter drop comment \"0\""
        );
        assert_eq!(lines(&all, 0, Family::Ipv4, FilterStyle::Sets).len(), 4);
        // A permit between two denials separates them, and rules that can never match are in no set.
        let gre = FilterRule { protocol: Some(47), destination_ports: Some((1, 2)), ..FilterRule::default() };
        let any = |port| FilterRule { destination_ports: Some((port, port)), ..FilterRule::DENY_ALL };
        let mixed = list(FilterDirection::Ingress, &[], &[any(1), rule(false, "", ""), any(2), gre, any(3)]);
        assert_eq!(
            lines(&mixed, 0, Family::Ipv6, FilterStyle::Sets),
            [
                "meta l4proto { 6, 17 } th dport 1 counter drop comment \"0\"",
                "counter accept comment \"1\"",
                "meta l4proto . th dport { 17 . 2, 17 . 3, 6 . 2, 6 . 3 } counter drop comment \"2\"",
            ]
        );
    }

    #[test]
    fn each_interface_leads_to_its_list_with_its_sub_interfaces() {
        let role = RouterRole::of(&with_vlans(two_ports()));
        let (ingress, egress) = (FilterDirection::Ingress, FilterDirection::Egress);
        let lists = [list(ingress, &[0], &rules()), list(ingress, &[1], &[]), list(egress, &[], &[])];
        let names = ["d0", "d0.100", "d0.s100.200", "d0.s100.201"].map(|name| format!("\"{name}\" : goto list0"));
        let expected = format!("iifname vmap {{ {}, \"d1\" : goto list1 }}", names.join(", "));
        assert_eq!(dispatch(&role, &lists, ingress), Some(expected));
        assert_eq!(dispatch(&role, &lists, egress), Some("goto list2".into()));
        assert_eq!(dispatch(&role, &lists[..2], egress), None);
        let text = ruleset(&role, &lists, FilterStyle::List);
        assert!(text.contains("table ip6 drophammer_filter {\n  chain list0 {\n    ip6 saddr 2001:2::/48"), "{text}");
        assert!(text.contains("  chain egress {\n    type filter hook forward priority 10;"), "{text}");
        let none = ruleset(&role, &[], FilterStyle::Sets);
        assert!(none.contains("delete table ip6 drophammer_filter\n") && !none.contains('{'), "{none}");
    }

    #[test]
    fn counters_are_those_of_the_rules() {
        let listed = serde_json::json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"rule": {"chain": "list0", "comment": "3", "expr": [{"counter": {"packets": 7, "bytes": 9}}, {"drop": null}]}},
            {"rule": {"chain": "list0", "comment": "4", "expr": [{"counter": {"packets": 5, "bytes": 6}}, {"accept": null}]}},
            {"rule": {"chain": "ingress", "expr": [{"goto": {"target": "list0"}}]}},
        ]});
        assert_eq!(counted(&listed), [(3, 7, true), (4, 5, false)]);
        assert_eq!(counter_name(3), "filter3.matches");
    }
}
