//! The `ports:` section.

use super::addresses::{self, MAX_PORTS, Owner, Placed};
use super::errors::{Problems, quote};
use super::fields::{Fields, add_quantity, items, name, refuse_repeated, text, whole, word};
use super::label_list;
use super::raw::Node;
use super::vlan_list::{self, Vlan};
use drophammer_model::medium::Medium;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::suite::PortConfig;
use drophammer_model::trial::Family;
use std::ops::Range;

/// Media as a suite names them.
pub(crate) const MEDIA: [&str; 3] = ["ethernet", "ppp-over-sonet", "ppp-over-sonet-fcs16"];

const EXAMPLE: &str = "{name: p1, speed: 10 Gbit/s}";
/// Default MTU, in bytes.
const DEFAULT_MTU: u32 = 1500;
/// Smallest MTU: that of IPv6 (RFC 8200 section 5), in bytes.
const MIN_MTU: u64 = 1280;
/// Smallest MTU without IPv6 (RFC 791), in bytes.
const MIN_MTU_IPV4: u64 = 68;
/// Largest MTU: that of the largest frame that the tester builds, in bytes.
const MAX_MTU: u64 = (drophammer_model::size::MAX_FRAME - drophammer_model::size::ETHERNET_OVERHEAD) as u64;

struct Port<'n> {
    name: String,
    name_span: &'n Range<usize>,
    speed: Bandwidth,
    medium: Medium,
    mtu: u32,
    ipv4: Option<Placed<'n>>,
    ipv6: Option<Placed<'n>>,
    vlans: Vec<Vlan<'n>>,
    labels: Vec<label_list::Entry<'n>>,
}

/// Reads the ports. `public` is true if public addresses may be used, `routed` if the suite has BGP: then a port
/// without a partner is one that routes lead to.
pub(crate) fn read(node: &Node, public: bool, routed: bool, problems: &mut Problems) -> Option<Vec<PortConfig>> {
    let nodes = items(node, "`ports`", &format!("- {EXAMPLE}"), problems)?;
    let left_over = !nodes.len().is_multiple_of(2) && (!routed || nodes.len() < 3) && nodes.len() != 1;
    if nodes.len() > MAX_PORTS || left_over {
        let at = nodes.last().map_or(&node.span, |n| &n.span);
        problems.add(
            at,
            format!("the suite has {} {}", nodes.len(), if nodes.len() == 1 { "port" } else { "ports" }),
            format!("traffic runs between pairs of ports: write 2, 4 or another even number up to {MAX_PORTS} (with `bgp:` a further one), or 1 with `vlans`"),
        );
    }
    let ports: Vec<_> =
        nodes.iter().take(MAX_PORTS).enumerate().filter_map(|(i, n)| one(n, i, public, problems)).collect();
    refuse_repeated("ports", ports.iter().map(|p| (p.name.as_str(), p.name_span)), problems);
    if ports.len() != nodes.len() {
        return None;
    }
    let before = problems.len();
    if let [only] = ports.as_slice()
        && only.vlans.len() < 2
    {
        let help =
            "write 2, 4 or another even number; or 1 with `vlans: [{id: 100}, {id: 200}]` and flows between them";
        problems.add(
            only.name_span,
            "the suite has 1 port, and traffic runs between two ports or sub-interfaces",
            help,
        );
    }
    check_families(&ports, problems);
    check_overlaps(&ports, public, problems);
    label_list::refuse_repeated(ports.iter().flat_map(|p| &p.labels), problems);
    (problems.len() == before).then(|| ports.into_iter().map(finish).collect())
}

fn finish(port: Port) -> PortConfig {
    let (mut labels, mut pushed) = (Vec::new(), Vec::new());
    for (entry, _) in port.labels {
        match entry {
            label_list::Read::Label(entry) => labels.push(entry),
            label_list::Read::Fec(entry) => pushed.push(entry),
        }
    }
    PortConfig {
        name: port.name,
        speed: port.speed,
        medium: port.medium,
        mtu: port.mtu,
        ipv4: port.ipv4.map(|p| p.addressing),
        ipv6: port.ipv6.map(|p| p.addressing),
        bgp: None,
        vlans: port.vlans.into_iter().map(Vlan::finish).collect(),
        labels,
        pushed,
    }
}

fn one<'n>(node: &'n Node, index: usize, public: bool, problems: &mut Problems) -> Option<Port<'n>> {
    let fields = Fields::of(node, "a port", EXAMPLE, problems)?;
    fields.refuse_unknown("a port", &["name", "speed", "medium", "mtu", "ipv4", "ipv6", "vlans", "labels"], problems);
    let name_node = fields.required("name", "a port", "name: p1", problems);
    let name = name_node.and_then(|n| name(n, "the name of a port", true, problems));
    let speed = fields.required("speed", "a port", "speed: 10 Gbit/s", problems).and_then(|n| speed(n, problems));
    let medium = match fields.get("medium") {
        Some(entry) => medium(&entry.value, problems),
        None => Some(Medium::default()),
    };
    // Errors about defaults point at the name of the port, not at all of its lines.
    let place = name_node.map_or(&node.span, |n| &n.span);
    let get = |key: &str| fields.get(key).map(|e| &e.value);
    let ipv4 = addresses::read(get("ipv4"), Family::Ipv4, Owner::Port(index), place, public, problems);
    let ipv6 = addresses::read(get("ipv6"), Family::Ipv6, Owner::Port(index), place, public, problems);
    let (ipv4, ipv6) = (ipv4?, ipv6?);
    if ipv4.is_none() && ipv6.is_none() {
        problems.add(place, "this port has neither IPv4 nor IPv6", "remove `ipv4: off` or `ipv6: off`");
        return None;
    }
    let has = [ipv4.is_some(), ipv6.is_some()];
    let vlans = match get("vlans") {
        Some(node) => vlan_list::read(node, index, has, public, problems)?,
        None => Vec::new(),
    };
    let labels = match get("labels") {
        Some(node) => label_list::read(node, problems)?,
        None => Vec::new(),
    };
    let least = if ipv6.is_some() { MIN_MTU } else { MIN_MTU_IPV4 };
    let mtu = match get("mtu") {
        Some(node) => whole(node, "`mtu`", least, MAX_MTU, problems)?,
        None => u64::from(DEFAULT_MTU),
    };
    let mtu = u32::try_from(mtu).unwrap_or(DEFAULT_MTU);
    Some(Port { name: name?, name_span: place, speed: speed?, medium: medium?, mtu, ipv4, ipv6, vlans, labels })
}

fn speed(node: &Node, problems: &mut Problems) -> Option<Bandwidth> {
    let text = text(node, "`speed`", "10 Gbit/s", problems)?;
    if text.len() > 100 {
        problems.add(&node.span, format!("{} is not a line speed", quote(text)), "write for instance `10 Gbit/s`");
        return None;
    }
    text.parse()
        .map_err(|error: drophammer_model::quantity::QuantityError| add_quantity(&node.span, &error.0, problems))
        .ok()
}

fn medium(node: &Node, problems: &mut Problems) -> Option<Medium> {
    Some(match word(node, "`medium`", &MEDIA, problems)?.as_str() {
        "ppp-over-sonet" => Medium::PppOverSonet { fcs32: true },
        "ppp-over-sonet-fcs16" => Medium::PppOverSonet { fcs32: false },
        _ => Medium::Ethernet,
    })
}

/// A flow needs addresses of its family at both ends.
fn check_families(ports: &[Port], problems: &mut Problems) {
    let Some((first, others)) = ports.split_first() else { return };
    for port in others {
        for (has, first_has, family) in
            [(port.ipv4.is_some(), first.ipv4.is_some(), "ipv4"), (port.ipv6.is_some(), first.ipv6.is_some(), "ipv6")]
        {
            if has != first_has {
                let (with, without) = if has { (port, first) } else { (first, port) };
                problems.add(
                    port.name_span,
                    format!("port {} has {family}, but port {} has not", quote(&with.name), quote(&without.name)),
                    format!("write `{family}: off` on every port or on none"),
                );
            }
        }
    }
}

/// No prefix may lead to two places.
fn check_overlaps(ports: &[Port], public: bool, problems: &mut Problems) {
    let mut seen: Vec<(addresses::Prefix, String)> = Vec::new();
    for port in ports {
        let own = [&port.ipv4, &port.ipv6].into_iter().flatten().map(|placed| (placed, quote(&port.name)));
        let vlans = port.vlans.iter().flat_map(|v| {
            let whose = format!("{} of {}", v.show(), quote(&port.name));
            [&v.ipv4, &v.ipv6].into_iter().flatten().map(move |placed| (placed, whose.clone()))
        });
        for (placed, whose) in own.chain(vlans) {
            let own = [
                (placed.link(), format!("the link of {whose}"), placed.link_span),
                (placed.behind(), format!("what is behind {whose}"), placed.behind_span),
            ];
            for (prefix, what, span) in own {
                if let Some((other, whose)) = seen.iter().find(|(p, _)| p.overlaps(&prefix)) {
                    let help =
                        "give every link and every `behind` a prefix of its own; without any the defaults are apart";
                    problems.add(span, format!("`{prefix}`, {what}, overlaps `{other}`, {whose}"), help);
                }
                seen.push((prefix, what));
            }
        }
    }
    let entries = ports.iter().flat_map(|port| port.labels.iter().map(move |entry| (port, entry)));
    for (port, (entry, span)) in entries {
        let label_list::Read::Fec(fec) = entry else { continue };
        let prefix = addresses::Prefix::around(fec.to.address(), fec.to.length());
        let has = if fec.to.address().is_ipv4() { port.ipv4.is_some() } else { port.ipv6.is_some() };
        if !has {
            problems.add(
                span,
                format!("port {} has no addresses of the family of `{prefix}`", quote(&port.name)),
                "give the port such addresses, or remove this entry",
            );
        }
        addresses::check_block(&prefix, span, public, problems);
        if let Some((other, whose)) = seen.iter().find(|(p, _)| p.overlaps(&prefix)) {
            let help = "give it a prefix of its own: packets to other networks get no labels";
            problems.add(span, format!("`{prefix}` overlaps `{other}`, {whose}"), help);
        }
        seen.push((prefix, format!("a network of {}", quote(&port.name))));
    }
}
