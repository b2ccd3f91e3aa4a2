//! The role of a router in the words of ip(8): interfaces, VLAN sub-interfaces, addresses, static routes.

use crate::{LabError, Netns};
use drophammer_model::role::{LabelRoute, Place, RouterRole, StaticRoute};
use drophammer_model::suite::VlanTag;
use drophammer_model::trial::Family;
use serde_json::Value;
use std::collections::HashSet;
use std::net::IpAddr;

/// EtherType of IEEE 802.1ad.
const S_TAG: u16 = 0x88a8;

/// Metric of a route of IPv6 without one; of IPv4 it is 0.
const IPV6_METRIC: u32 = 1_024;

/// Name of the DUT's interface of port `i`.
pub(crate) fn dut_interface(i: usize) -> String {
    format!("d{i}")
}

/// What the DUT's interfaces are called.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Names<'a> {
    /// As the lab calls them.
    Lab,
    /// One for each port, as the user calls them.
    Given(&'a [String]),
}

impl Names<'_> {
    /// The interface of port `i`.
    pub(crate) fn port(self, i: usize) -> String {
        match self {
            Names::Given(names) => names.get(i).cloned().unwrap_or_else(|| dut_interface(i)),
            Names::Lab => dut_interface(i),
        }
    }

    /// The interface for frames at port `i` that carry `tags`: `d0`, `d0.100`, `d0.s100.200` (`s`: an 802.1ad tag).
    fn tagged(self, i: usize, tags: &[VlanTag]) -> String {
        let tag = |t: &VlanTag| format!(".{}{}", if t.tpid == S_TAG { "s" } else { "" }, t.vid);
        tags.iter().fold(self.port(i), |name, t| name + &tag(t))
    }

    /// The interface at a place of a role.
    pub(crate) fn at(self, role: &RouterRole, at: Place) -> String {
        self.tagged(at.port, role.tags(at))
    }
}

/// Name of the DUT's interface at a place of its role.
pub(crate) fn interface_at(role: &RouterRole, at: Place) -> String {
    Names::Lab.at(role, at)
}

/// How templates and suites write a family.
pub(crate) fn word(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    }
}

/// The family of an address, as templates and suites write it.
pub(crate) fn family_of(address: IpAddr) -> &'static str {
    word(if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 })
}

/// `198.18.64.0/18`
pub(crate) fn prefix_of(route: &StaticRoute) -> String {
    format!("{}/{}", route.prefix.0, route.prefix.1)
}

/// Lines of ip(8) that give the DUT the routes.
pub(crate) fn route_lines(role: &RouterRole) -> Vec<String> {
    role.routes.iter().map(|route| format!("route add {}", route_text(role, route))).collect()
}

/// Lines of ip(8) for the family `mpls` that give the DUT its label entries. The kernel takes `as` for labels in the place of the one that
/// came, and takes the label off without it.
pub(crate) fn label_lines(role: &RouterRole, names: Names<'_>) -> Vec<String> {
    let line = |entry: &LabelRoute| {
        let out: Vec<String> = entry.out.iter().map(u32::to_string).collect();
        let out = if out.is_empty() { String::new() } else { format!(" as {}", out.join("/")) };
        let family = if entry.via.is_ipv4() { "inet" } else { "inet6" };
        format!("route add {}{out} via {family} {} dev {}", entry.label, entry.via, names.at(role, entry.at))
    };
    role.labels.iter().map(line).collect()
}

/// The label entries as a configuration file, `(name, text)`; `None` for a role without any.
pub(crate) fn labels_file(role: &RouterRole) -> Option<(String, String)> {
    (!role.labels.is_empty()).then(|| ("labels.ip".into(), label_lines(role, Names::Lab).join("\n") + "\n"))
}

/// A route as ip(8) takes it. The kernel uses the one with the lowest metric whose interface is up.
fn route_text(role: &RouterRole, route: &StaticRoute) -> String {
    let text = format!("{} via {} dev {}", prefix_of(route), route.via, interface_at(role, route.at));
    let first = if route.via.is_ipv4() { 0 } else { IPV6_METRIC };
    if route.rank == 0 { text } else { format!("{text} metric {}", first + route.rank) }
}

/// Lines of ip(8) that give an interface back what the kernel took from it when it went down: its IPv6 addresses, and where they are the
/// lab's the routes by it.
pub(crate) fn lines_of_link(role: &RouterRole, interface: usize, with_routes: bool) -> Vec<String> {
    let name = dut_interface(interface);
    let addresses = role.interfaces[interface].addresses.iter();
    let addresses = addresses.map(|a| {
        let no_dad = if a.address.is_ipv6() { " nodad" } else { "" };
        format!("address replace {}/{} dev {name}{no_dad}", a.address, a.prefix_len)
    });
    let routes = role.routes.iter().filter(|route| with_routes && route.at.port == interface);
    addresses.chain(routes.map(|route| format!("route replace {}", route_text(role, route)))).collect()
}

/// The routes as a configuration file, `(name, text)`.
pub(crate) fn routes_file(role: &RouterRole) -> (String, String) {
    ("routes.ip".into(), route_lines(role).join("\n") + "\n")
}

/// Lines of ip(8) that make the VLAN sub-interfaces, outer tags before inner ones, and set them up.
pub(crate) fn vlan_lines(role: &RouterRole, names: Names<'_>) -> Vec<String> {
    let mut made = Vec::new();
    let mut lines = Vec::new();
    for (at, tags, _) in role.places() {
        for depth in 1..=tags.len() {
            let (outside, tag) = (&tags[..depth - 1], tags[depth - 1]);
            let (link, name) = (names.tagged(at.port, outside), names.tagged(at.port, &tags[..depth]));
            if made.contains(&name) {
                continue;
            }
            let protocol = if tag.tpid == S_TAG { "802.1ad" } else { "802.1Q" };
            let mtu = role.interfaces[at.port].mtu;
            lines.push(format!(
                "link add link {link} name {name} mtu {mtu} type vlan protocol {protocol} id {}",
                tag.vid
            ));
            lines.push(format!("link set {name} up"));
            made.push(name);
        }
    }
    lines
}

/// Lines of ip(8) that give the DUT's interfaces and sub-interfaces their addresses.
pub(crate) fn address_lines(role: &RouterRole, names: Names<'_>) -> Vec<String> {
    let line = |(at, _, addresses): (Place, &[VlanTag], &[_])| {
        let interface = names.at(role, at);
        let line = move |a: &drophammer_model::role::InterfaceAddress| {
            // Duplicate address detection would keep the address silent for a second.
            let no_dad = if a.address.is_ipv6() { " nodad" } else { "" };
            format!("address add {}/{} dev {interface}{no_dad}", a.address, a.prefix_len)
        };
        addresses.iter().map(line).collect::<Vec<_>>()
    };
    let loopbacks = role.member.iter().flat_map(|member| &member.loopbacks);
    let loopbacks = loopbacks.map(|address| format!("address add {address} dev lo"));
    role.places().flat_map(line).chain(loopbacks).collect()
}

/// The first static route that the kernel of `netns` does not hold, in words; `None` when all are there.
pub(crate) fn missing(netns: &Netns, role: &RouterRole) -> Result<Option<String>, LabError> {
    missing_of(role, |option| netns.ip_json(&[option, "route", "show"]))
}

/// The same, where `ask` gives the routes as `ip -j OPTION route show` writes them.
pub(crate) fn missing_of(
    role: &RouterRole,
    ask: impl Fn(&str) -> Result<Vec<Value>, LabError>,
) -> Result<Option<String>, LabError> {
    for (ipv4, option) in [(true, "-4"), (false, "-6")] {
        // Of several to the same prefix a daemon gives the kernel the best alone.
        let mut wanted = role.routes.iter().filter(|r| r.via.is_ipv4() == ipv4 && r.rank == 0).peekable();
        if wanted.peek().is_none() {
            continue;
        }
        let entries = ask(option)?;
        let held: HashSet<_> = entries.iter().filter_map(|entry| usable(entry, !ipv4)).collect();
        if let Some(route) = wanted.find(|w| !held.contains(&(w.prefix, w.via, interface_at(role, w.at)))) {
            let interface = interface_at(role, route.at);
            return Ok(Some(format!(
                "the kernel has no route to {} via {} on {interface}",
                prefix_of(route),
                route.via
            )));
        }
    }
    Ok(None)
}

/// Prefix, next hop and interface of an entry of `ip -j route`; `None` for one without next hop, or that is not in use.
fn usable(entry: &Value, ipv6: bool) -> Option<((IpAddr, u8), IpAddr, String)> {
    let text = |key: &str| entry.get(key).and_then(|v| v.as_str()).unwrap_or_default();
    let unusable = entry
        .get("flags")
        .and_then(|f| f.as_array())
        .is_some_and(|flags| flags.iter().any(|f| matches!(f.as_str(), Some("dead" | "linkdown"))));
    let (prefix, via) = (prefix(text("dst"), ipv6)?, text("gateway").parse().ok()?);
    (!unusable).then(|| (prefix, via, text("dev").to_owned()))
}

/// A prefix as ip(8) writes it: with `default`, and without length for one host.
fn prefix(text: &str, ipv6: bool) -> Option<(IpAddr, u8)> {
    let (any, host) = if ipv6 { ("::", 128) } else { ("0.0.0.0", 32) };
    if text == "default" {
        return Some((any.parse().ok()?, 0));
    }
    match text.split_once('/') {
        Some((address, length)) => Some((address.parse().ok()?, length.parse().ok()?)),
        None => Some((text.parse().ok()?, host)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{two_ports, with_vlans};
    use serde_json::json;

    fn route() -> StaticRoute {
        StaticRoute {
            prefix: ("2001:2:0:8000::".parse().unwrap(), 49),
            via: "2001:2::2".parse().unwrap(),
            at: Place { port: 0, vlan: None },
            rank: 0,
        }
    }

    #[test]
    fn labels_are_swapped_pushed_and_taken_off() {
        let mut role = RouterRole::of(&with_vlans(two_ports()));
        assert_eq!(labels_file(&role), None);
        let entry =
            |label, out: &[u32], via: &str, at| LabelRoute { label, out: out.into(), via: via.parse().unwrap(), at };
        let [first, second] = [0, 1].map(|port| Place { port, vlan: None });
        role.labels = vec![
            entry(100, &[200], "198.18.1.2", first),
            entry(101, &[201, 301], "198.18.1.2", first),
            entry(102, &[], "2001:2:0:1::2", second),
        ];
        let lines = [
            "route add 100 as 200 via inet 198.18.1.2 dev d0",
            "route add 101 as 201/301 via inet 198.18.1.2 dev d0",
            "route add 102 via inet6 2001:2:0:1::2 dev d1",
        ];
        assert_eq!(labels_file(&role).unwrap().1.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn prefixes_as_ip_writes_them() {
        assert_eq!(prefix("default", false), Some(("0.0.0.0".parse().unwrap(), 0)));
        assert_eq!(prefix("198.18.1.9", false), Some(("198.18.1.9".parse().unwrap(), 32)));
        assert_eq!(prefix("2001:2::/48", true), Some(("2001:2::".parse().unwrap(), 48)));
        assert_eq!(prefix("unreachable", true), None);
    }

    #[test]
    fn a_route_counts_only_whole_and_alive() {
        let is = |entry: &Value, route: &StaticRoute, interface: &str| {
            usable(entry, true) == Some((route.prefix, route.via, interface.to_owned()))
        };
        let good = json!({"dst": "2001:2:0:8000::/49", "gateway": "2001:2::2", "dev": "d0", "flags": []});
        assert!(is(&good, &route(), "d0"));
        for (key, value) in [
            ("dst", json!("2001:2:0:8000::/50")),
            ("gateway", json!("2001:2::3")),
            ("dev", json!("d1")),
            ("flags", json!(["dead", "linkdown"])),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert!(!is(&bad, &route(), "d0"), "{key}");
        }
    }

    #[test]
    fn sub_interfaces_are_made_from_the_outer_tag_to_the_inner() {
        assert!(vlan_lines(&RouterRole::of(&two_ports()), Names::Lab).is_empty());
        let role = RouterRole::of(&with_vlans(two_ports()));
        let lines = vlan_lines(&role, Names::Lab);
        let made: Vec<_> = lines.iter().filter(|l| l.starts_with("link add")).map(String::as_str).collect();
        let expected = [
            "link add link d0 name d0.100 mtu 1500 type vlan protocol 802.1Q id 100",
            "link add link d0 name d0.s100 mtu 1500 type vlan protocol 802.1ad id 100",
            "link add link d0.s100 name d0.s100.200 mtu 1500 type vlan protocol 802.1Q id 200",
            "link add link d0.s100 name d0.s100.201 mtu 1500 type vlan protocol 802.1Q id 201",
        ];
        assert_eq!(made, expected);
        assert_eq!(lines.len(), 8);
        let addresses = address_lines(&role, Names::Lab);
        assert_eq!(addresses.len(), 7);
        assert!(addresses.contains(&"address add 198.18.32.1/27 dev d0.100".to_owned()), "{addresses:?}");
        let routes = route_lines(&role);
        assert!(
            routes.contains(&"route add 198.18.48.64/26 via 198.18.32.34 dev d0.s100.200".to_owned()),
            "{routes:?}"
        );
    }
}
