//! The role of IPv4 and IPv6 router: the routes that a DUT must have.

use crate::{LabError, Netns};
use drophammer_model::suite::PortConfig;
use drophammer_model::trial::Family;
use std::net::IpAddr;

/// A static route of the role; also what templates see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// `ipv4` or `ipv6`.
    pub(crate) family: &'static str,
    /// `198.18.64.0/18`
    pub(crate) prefix: String,
    /// Next hop: the tester's emulated router.
    pub(crate) via: IpAddr,
    /// Interface of the DUT.
    pub(crate) interface: String,
    destination: (IpAddr, u8),
}

/// Name of the DUT's interface of port `i`.
pub(crate) fn dut_interface(i: usize) -> String {
    format!("d{i}")
}

/// How templates and suites write a family.
pub(crate) fn word(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    }
}

/// Lines of ip(8) that give the DUT the routes.
pub(crate) fn route_lines(routes: &[Route]) -> Vec<String> {
    routes.iter().map(|r| format!("route add {} via {} dev {}", r.prefix, r.via, r.interface)).collect()
}

/// Routes of all ports, IPv4 before IPv6.
pub(crate) fn routes(ports: &[PortConfig]) -> Vec<Route> {
    let of = |family: Family| {
        ports.iter().enumerate().filter_map(move |(i, port)| {
            let a = port.addressing(family)?;
            Some(Route {
                family: word(family),
                prefix: format!("{}/{}", a.behind.0, a.behind.1),
                via: a.host,
                interface: dut_interface(i),
                destination: a.behind,
            })
        })
    };
    of(Family::Ipv4).chain(of(Family::Ipv6)).collect()
}

/// Lines of ip(8) that give the DUT's ports their addresses.
pub(crate) fn address_lines(ports: &[PortConfig]) -> Vec<String> {
    let mut lines = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        for a in port.ipv4.iter().chain(&port.ipv6) {
            // Duplicate address detection would keep the address silent for a second.
            let no_dad = if a.dut.is_ipv6() { " nodad" } else { "" };
            lines.push(format!("address add {}/{} dev {}{no_dad}", a.dut, a.prefix_len, dut_interface(i)));
        }
    }
    lines
}

/// The first route that the kernel of `netns` does not hold, in words; `None` when all are there.
pub(crate) fn missing(netns: &Netns, routes: &[Route]) -> Result<Option<String>, LabError> {
    for (name, option) in [("ipv4", "-4"), ("ipv6", "-6")] {
        let mut wanted = routes.iter().filter(|r| r.family == name).peekable();
        if wanted.peek().is_none() {
            continue;
        }
        let held = netns.ip_json(&[option, "route", "show"])?;
        if let Some(route) = wanted.find(|w| !held.iter().any(|h| is(h, w))) {
            return Ok(Some(format!(
                "the kernel has no route to {} via {} on {}",
                route.prefix, route.via, route.interface
            )));
        }
    }
    Ok(None)
}

/// Is this entry of `ip -j route` the route?
fn is(entry: &serde_json::Value, route: &Route) -> bool {
    let text = |key: &str| entry.get(key).and_then(|v| v.as_str()).unwrap_or_default();
    let unusable = entry
        .get("flags")
        .and_then(|f| f.as_array())
        .is_some_and(|flags| flags.iter().any(|f| matches!(f.as_str(), Some("dead" | "linkdown"))));
    prefix(text("dst"), route.via.is_ipv6()) == Some(route.destination)
        && text("gateway").parse() == Ok(route.via)
        && text("dev") == route.interface
        && !unusable
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
    use serde_json::json;

    fn route() -> Route {
        Route {
            family: "ipv6",
            prefix: "2001:2:0:8000::/49".into(),
            via: "2001:2::2".parse().unwrap(),
            interface: "d0".into(),
            destination: ("2001:2:0:8000::".parse().unwrap(), 49),
        }
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
        let good = json!({"dst": "2001:2:0:8000::/49", "gateway": "2001:2::2", "dev": "d0", "flags": []});
        assert!(is(&good, &route()));
        for (key, value) in [
            ("dst", json!("2001:2:0:8000::/50")),
            ("gateway", json!("2001:2::3")),
            ("dev", json!("d1")),
            ("flags", json!(["dead", "linkdown"])),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert!(!is(&bad, &route()), "{key}");
        }
    }
}
