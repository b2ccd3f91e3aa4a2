//! The role of a router as lines of ip(8): VLAN sub-interfaces, addresses, static routes, labels, tunnels, policies.

use crate::{LabError, Netns};
use drophammer_model::role::{
    InterfaceAddress, LabelRoute, Place, Policy, PolicySource, PolicyTarget, PushedRoute, RouterRole, StaticRoute,
    TUNNEL_TTL, Tunnel,
};
use drophammer_model::router_interfaces::{InterfaceOf, RouterInterface};
use drophammer_model::suite::VlanTag;
use drophammer_model::topology::LOOP_PREFIX;
use drophammer_model::trial::Family;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

/// EtherType of IEEE 802.1ad.
const S_TAG: u16 = 0x88a8;

/// The kernel's default metric of an IPv6 route; for IPv4 it is 0.
const IPV6_METRIC: u32 = 1_024;

/// Table of the first policy of a role. The kernel itself uses 253 to 255.
const FIRST_POLICY: usize = 1_001;

/// Settings of a router in a deliberate loop ([`LOOP_PREFIX`]): it answers every packet whose TTL ends there, so that
/// the number of answers in the counters is known.
pub(crate) const LOOP: [(&str, &str); 1] = [("net/ipv4/icmp_ratemask", "0")];

/// Settings of each interface of such a router: it resolves a neighbour once and keeps it for four hours, as many routers
/// do, so that packet counters contain no ARP. By default the kernel asks every half minute.
const LOOP_NEIGHBOURS: [(&str, &str); 2] = [("base_reachable_time_ms", "14400000"), ("delay_first_probe_time", "0")];

/// Name of the DUT's interface of port `i`.
pub(crate) fn dut_interface(i: usize) -> String {
    format!("d{i}")
}

/// Names of the DUT's interfaces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Names<'a> {
    /// The lab's names.
    Lab,
    /// The user's names, one for each port.
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

/// Name of the DUT's tunnel `i` of its role. The kernel itself uses the name `gre0`.
pub(crate) fn tunnel_name(i: usize) -> String {
    format!("gre{}", i + 1)
}

/// The name of a family in templates and suites.
pub(crate) fn word(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    }
}

/// The family of an address, as named in templates and suites.
pub(crate) fn family_of(address: IpAddr) -> &'static str {
    word(if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 })
}

/// `198.18.64.0/18`
pub(crate) fn prefix_of(route: &StaticRoute) -> String {
    format!("{}/{}", route.prefix.0, route.prefix.1)
}

/// Lines of ip(8) that add the routes.
pub(crate) fn route_lines(role: &RouterRole) -> Vec<String> {
    role.routes.iter().map(|route| format!("route add {}", route_text(role, route))).collect()
}

/// Lines of ip(8) for the family `mpls` that add the label entries. With `as`, the kernel replaces the incoming label by
/// these labels; without it, the kernel removes the label.
pub(crate) fn label_lines(role: &RouterRole, names: Names<'_>) -> Vec<String> {
    let line = |entry: &LabelRoute| {
        let out: Vec<String> = entry.out.iter().map(u32::to_string).collect();
        let out = if out.is_empty() { String::new() } else { format!(" as {}", out.join("/")) };
        let family = if entry.via.is_ipv4() { "inet" } else { "inet6" };
        format!("route add {}{out} via {family} {} dev {}", entry.label, entry.via, names.at(role, entry.at))
    };
    role.labels.iter().map(line).collect()
}

/// Lines of ip(8) for the routes that push labels.
pub(crate) fn pushed_lines(role: &RouterRole, names: Names<'_>) -> Vec<String> {
    let line = |route: &PushedRoute| {
        let out: Vec<String> = route.out.iter().map(u32::to_string).collect();
        let (address, length) = route.prefix;
        let to = format!("{address}/{length} encap mpls {}", out.join("/"));
        format!("route add {to} via {} dev {}", route.via, names.at(role, route.at))
    };
    role.pushed.iter().map(line).collect()
}

/// Returns lines as a configuration file, `(name, text)`, if there are any.
fn file(name: &str, lines: &[String]) -> Option<(String, String)> {
    (!lines.is_empty()).then(|| (name.to_owned(), lines.join("\n") + "\n"))
}

/// The label entries as a configuration file, if there are any.
pub(crate) fn labels_file(role: &RouterRole) -> Option<(String, String)> {
    file("labels.ip", &[label_lines(role, Names::Lab), pushed_lines(role, Names::Lab)].concat())
}

/// True if the router is in a deliberate loop ([`LOOP_PREFIX`]).
pub(crate) fn in_a_loop(role: &RouterRole) -> bool {
    role.routes.iter().any(|route| route.prefix == (LOOP_PREFIX.0.into(), LOOP_PREFIX.1))
}

/// Settings of the neighbour tables of a router in a loop: `(key, value)`.
pub(crate) fn neighbour_settings(role: &RouterRole) -> Vec<(String, &'static str)> {
    let of =
        |i: usize| LOOP_NEIGHBOURS.map(|(key, value)| (format!("net/ipv4/neigh/{}/{key}", dut_interface(i)), value));
    (0..role.interfaces.len()).flat_map(of).collect()
}

/// Lines of ip(8) that make the tunnels of the role, but do not set them up.
pub(crate) fn tunnel_lines(role: &RouterRole) -> Vec<String> {
    let line = |(i, tunnel): (usize, &Tunnel)| {
        let Tunnel { local, remote, mtu } = tunnel;
        let name = tunnel_name(i);
        format!("link add name {name} mtu {mtu} type gre local {local} remote {remote} ttl {TUNNEL_TTL}")
    };
    role.tunnels.iter().enumerate().map(line).collect()
}

/// Settings, as `(key, value)`, that keep the kernel's own IPv6 packets out of the tunnels, which carry only IPv4.
pub(crate) fn tunnel_settings(role: &RouterRole) -> Vec<(String, &'static str)> {
    let key = |i: usize| format!("net/ipv6/conf/{}/disable_ipv6", tunnel_name(i));
    (0..role.tunnels.len()).map(|i| (key(i), "1")).collect()
}

/// The routing table of policy `i` of a role, which is also the preference of its rule: between the table of local
/// addresses and the main table.
fn policy_table(i: usize) -> usize {
    FIRST_POLICY + i
}

/// Lines of ip(8) that set the tunnels up and add the policies.
pub(crate) fn policy_lines(role: &RouterRole) -> Vec<String> {
    let up = (0..role.tunnels.len()).map(|i| format!("link set {} up", tunnel_name(i)));
    let rule = |(i, policy): (usize, &Policy)| {
        let from = match policy.from {
            PolicySource::Interface(interface) => dut_interface(interface),
            PolicySource::Tunnel(tunnel) => tunnel_name(tunnel),
        };
        let table = policy_table(i);
        [format!("route add {}", policy_route(i, policy)), format!("rule add pref {table} iif {from} lookup {table}")]
    };
    up.chain(role.policies.iter().enumerate().flat_map(rule)).collect()
}

/// The only route of a policy's table, in the syntax of ip(8).
fn policy_route(i: usize, policy: &Policy) -> String {
    let table = policy_table(i);
    match policy.to {
        PolicyTarget::NextHop { via, interface } => {
            format!("default via {via} dev {} table {table}", dut_interface(interface))
        }
        PolicyTarget::Tunnel(tunnel) => format!("default dev {} table {table}", tunnel_name(tunnel)),
    }
}

/// Tunnels and policies as a configuration file, if there are any.
pub(crate) fn policies_file(role: &RouterRole) -> Option<(String, String)> {
    file("policies.ip", &[tunnel_lines(role), policy_lines(role)].concat())
}

/// The kernel's counters of the interfaces and tunnels of a role, from counters by name such as `d0.rx_packets`. `header`:
/// bytes of each arriving frame that the driver of an interface does not count. `None` if a counter is missing.
pub(crate) fn counted(
    role: &RouterRole,
    counters: &BTreeMap<String, u64>,
    header: u64,
) -> Option<Vec<RouterInterface>> {
    let interfaces = (0..role.interfaces.len()).map(|i| (InterfaceOf::Interface(i), dut_interface(i), header));
    let tunnels = (0..role.tunnels.len()).map(|i| (InterfaceOf::Tunnel(i), tunnel_name(i), 0));
    let one = |(at, name, header): (InterfaceOf, String, u64)| {
        let count = |what: &str| counters.get(&format!("{name}.{what}")).copied();
        let in_packets = count("rx_packets")?;
        Some(RouterInterface {
            router: 0,
            at,
            in_packets,
            out_packets: count("tx_packets")?,
            in_bytes: count("rx_bytes")? + header * in_packets,
            out_bytes: count("tx_bytes")?,
        })
    };
    interfaces.chain(tunnels).map(one).collect()
}

/// A route in the syntax of ip(8). The kernel uses the route with the lowest metric whose interface is up.
fn route_text(role: &RouterRole, route: &StaticRoute) -> String {
    let text = format!("{} via {} dev {}", prefix_of(route), route.via, interface_at(role, route.at));
    let first = if route.via.is_ipv4() { 0 } else { IPV6_METRIC };
    if route.rank == 0 { text } else { format!("{text} metric {}", first + route.rank) }
}

/// Lines of ip(8) that restore what the kernel removed from an interface that went down: its IPv6 addresses, its routes if
/// the lab set them, and the routes of policies.
pub(crate) fn lines_of_link(role: &RouterRole, interface: usize, with_routes: bool) -> Vec<String> {
    let name = dut_interface(interface);
    let addresses = role.interfaces[interface].addresses.iter();
    let addresses = addresses.map(|a| address_line("replace", a, &name));
    let routes = role.routes.iter().filter(|route| with_routes && route.at.port == interface);
    let routes = routes.map(|route| format!("route replace {}", route_text(role, route)));
    // The lab always sets the routes of policies. A route into a tunnel stays, because the tunnel stays.
    let by_it = |policy: &Policy| matches!(policy.to, PolicyTarget::NextHop { interface: by, .. } if by == interface);
    let policies = role.policies.iter().enumerate().filter(|(_, policy)| by_it(policy));
    let policies = policies.map(|(i, policy)| format!("route replace {}", policy_route(i, policy)));
    addresses.chain(routes).chain(policies).collect()
}

/// The routes as a configuration file.
pub(crate) fn routes_file(role: &RouterRole) -> (String, String) {
    ("routes.ip".into(), route_lines(role).join("\n") + "\n")
}

/// Lines of ip(8) that make the VLAN sub-interfaces, from outer tags to inner ones, and set them up.
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

/// A line of ip(8) for an address.
pub(crate) fn address_line(verb: &str, a: &InterfaceAddress, interface: &str) -> String {
    // Duplicate address detection would keep the address silent for a second.
    let no_dad = if a.address.is_ipv6() { " nodad" } else { "" };
    format!("address {verb} {}/{} dev {interface}{no_dad}", a.address, a.prefix_len)
}

/// Lines of ip(8) that add the addresses of the DUT's interfaces and sub-interfaces.
pub(crate) fn address_lines(role: &RouterRole, names: Names<'_>) -> Vec<String> {
    let line = |(at, _, addresses): (Place, &[VlanTag], &[InterfaceAddress])| {
        let interface = names.at(role, at);
        addresses.iter().map(|a| address_line("add", a, &interface)).collect::<Vec<_>>()
    };
    // Of a router of a system, they contain the address of the core.
    let core = role.core.iter().filter(|_| role.member.is_none()).map(|core| IpAddr::V4(core.loopback));
    let loopbacks = role.member.iter().flat_map(|member| &member.loopbacks).copied().chain(core);
    let loopbacks = loopbacks.map(|address| format!("address add {address} dev lo"));
    role.places().flat_map(line).chain(loopbacks).collect()
}

/// Returns a message about the first static route that is missing in the kernel of `netns`, if any.
pub(crate) fn missing(netns: &Netns, role: &RouterRole) -> Result<Option<String>, LabError> {
    missing_of(role, |option| netns.ip_json(&[option, "route", "show"]))
}

/// Like [`missing`]; `ask` returns the routes in the form of `ip -j OPTION route show`.
pub(crate) fn missing_of(
    role: &RouterRole,
    ask: impl Fn(&str) -> Result<Vec<Value>, LabError>,
) -> Result<Option<String>, LabError> {
    for (ipv4, option) in [(true, "-4"), (false, "-6")] {
        // Of several routes to the same prefix, a daemon gives the kernel only the best.
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

/// Prefix, next hop and interface of an entry of `ip -j route` if it has a next hop and is in use.
fn usable(entry: &Value, ipv6: bool) -> Option<((IpAddr, u8), IpAddr, String)> {
    let text = |key: &str| entry.get(key).and_then(|v| v.as_str()).unwrap_or_default();
    let unusable = entry
        .get("flags")
        .and_then(|f| f.as_array())
        .is_some_and(|flags| flags.iter().any(|f| matches!(f.as_str(), Some("dead" | "linkdown"))));
    let (prefix, via) = (prefix(text("dst"), ipv6)?, text("gateway").parse().ok()?);
    (!unusable).then(|| (prefix, via, text("dev").to_owned()))
}

/// Parses a prefix as ip(8) prints it, including `default` and a host route without prefix length.
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
    use drophammer_model::topology::{Shape, System, Topology};
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
        let prefix = ("10.99.0.0".parse().unwrap(), 24);
        role.pushed = vec![PushedRoute { prefix, out: vec![300, 301], via: "198.18.1.2".parse().unwrap(), at: first }];
        let line = "route add 10.99.0.0/24 encap mpls 300/301 via 198.18.1.2 dev d0";
        assert_eq!(labels_file(&role).unwrap().1.lines().last(), Some(line));
    }

    /// The roles of the routers of a loop.
    fn loop_roles() -> Vec<RouterRole> {
        let topology = Topology { shape: Shape::Loop, routers: 4, core_speed: None, wan: None };
        System::of(&two_ports(), &topology).unwrap().routers.into_iter().map(|router| router.role).collect()
    }

    #[test]
    fn tunnels_and_policies_lead_around_the_loop() {
        let roles = loop_roles();
        let lines = |router: usize| [tunnel_lines(&roles[router]), policy_lines(&roles[router])].concat();
        assert!(lines(0).is_empty() && lines(3).is_empty());
        assert!(roles.iter().all(in_a_loop) && !in_a_loop(&RouterRole::of(&two_ports())));
        assert_eq!(policies_file(&roles[0]), None);
        let second = [
            "link add name gre1 mtu 1500 type gre local 100.64.0.9 remote 100.64.0.10 ttl 64",
            "link set gre1 up",
            "route add default via 100.64.0.5 dev d1 table 1001",
            "rule add pref 1001 iif gre1 lookup 1001",
        ];
        assert_eq!(lines(1), second);
        let third = [
            "link add name gre1 mtu 1500 type gre local 100.64.0.10 remote 100.64.0.9 ttl 64",
            "link set gre1 up",
            "route add default dev gre1 table 1001",
            "rule add pref 1001 iif d2 lookup 1001",
        ];
        assert_eq!(lines(2), third);
        assert_eq!(policies_file(&roles[2]).unwrap().1.lines().collect::<Vec<_>>(), third);
        assert_eq!(tunnel_settings(&roles[2]), [("net/ipv6/conf/gre1/disable_ipv6".to_owned(), "1")]);
        let circle = "route add 100.126.0.0/16 via 100.64.0.2 dev d1";
        assert!(route_lines(&roles[0]).iter().any(|line| line == circle), "{:?}", route_lines(&roles[0]));
        // What the kernel removes with a link is restored, whether the lab or a daemon sets the routes.
        let back = "route replace default via 100.64.0.5 dev d1 table 1001".to_owned();
        assert!(lines_of_link(&roles[1], 1, false).contains(&back));
        assert!(lines_of_link(&roles[2], 2, true).iter().all(|line| !line.contains("table")));
    }

    #[test]
    fn counters_are_those_of_interfaces_and_tunnels() {
        let role = &loop_roles()[2];
        let names = ["d0", "d1", "d2", "gre1"];
        let counts = ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes"];
        let all = names.iter().flat_map(|name| counts.map(|count| format!("{name}.{count}"))).zip(1..);
        let mut counters: BTreeMap<String, u64> = all.collect();
        let found = counted(role, &counters, 14).unwrap();
        let numbers = |i: &RouterInterface| (i.at, i.in_packets, i.out_packets, i.in_bytes, i.out_bytes);
        let expected = [
            (InterfaceOf::Interface(0), 1, 2, 3 + 14, 4),
            (InterfaceOf::Interface(1), 5, 6, 7 + 5 * 14, 8),
            (InterfaceOf::Interface(2), 9, 10, 11 + 9 * 14, 12),
            (InterfaceOf::Tunnel(0), 13, 14, 15, 16),
        ];
        assert_eq!(found.iter().map(numbers).collect::<Vec<_>>(), expected);
        counters.remove("gre1.tx_bytes");
        assert_eq!(counted(role, &counters, 0), None, "a missing counter is not zero");
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
