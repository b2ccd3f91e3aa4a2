//! Label switching and VRFs of a role: lines of ip(8), settings of the kernel, and variables of configuration templates.

use crate::router::Names;
use drophammer_model::label_edge::{CoreProtocol, OSPF_DEAD_S, OSPF_HELLO_S, PROVIDER_AS};
use drophammer_model::role::{CoreLink, CoreRole, Interface, RouterRole, VrfRole};
use minijinja::{Value, context};
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// Routing table of the first VRF. Policies have tables from 1001 on.
const FIRST_TABLE: u32 = 10_001;
/// Metric of the last route of a VRF, which is worse than any other (the kernel's `vrf.rst`). Without it, a packet that no
/// route of the VRF matches would follow the routes outside.
const LAST_METRIC: u32 = 4_278_198_272;
/// Bytes of the labels of a VPN packet: one for the PE router, one for the VRF (RFC 4364 section 5).
const LABELS: u32 = 8;
/// Bytes of an IEEE 802.1Q tag.
const TAG: u32 = 4;
/// Number of labels that the kernel accepts: all of them.
const PLATFORM_LABELS: &str = "1048575";

/// Time until OSPF repeats what was not acknowledged, in seconds (RxmtInterval, RFC 2328 appendix C.3).
const RETRANSMIT: u32 = 2;

/// True if the router forwards packets with labels on the core link of this port.
fn has_labels(role: &RouterRole, port: usize) -> bool {
    let labels = |link: &CoreLink| link.has(CoreProtocol::Ldp) || link.has(CoreProtocol::Rsvp);
    role.core.iter().flat_map(|core| &core.links).any(|link| link.port == port && labels(link))
}

/// True if a link to a P or CE router of the role has this protocol.
pub(crate) fn speaks(role: &RouterRole, protocol: CoreProtocol) -> bool {
    role.core.iter().flat_map(|core| &core.links).any(|link| link.has(protocol))
        || protocol == CoreProtocol::Bfd && role.vrfs.iter().any(|vrf| vrf.bfd)
}

/// True if the router forwards by labels that a protocol assigns.
pub(crate) fn switches_labels(role: &RouterRole) -> bool {
    (0..role.interfaces.len()).any(|port| has_labels(role, port)) || !role.vrfs.is_empty()
}

/// MTU of the DUT's interface at a port, in bytes: the port's MTU plus room for labels, which Linux counts as part of the packet.
pub(crate) fn link_mtu(role: &RouterRole, port: usize) -> u32 {
    role.interfaces[port].mtu + if has_labels(role, port) { LABELS } else { 0 }
}

/// The interfaces of a role, whose MTU has room for labels.
pub(crate) fn with_room(role: &RouterRole) -> Vec<Interface> {
    let with_room = |(port, own): (usize, &Interface)| Interface { mtu: link_mtu(role, port), ..own.clone() };
    role.interfaces.iter().enumerate().map(with_room).collect()
}

/// The neighbours in its system with which a router has LDP: their LSR-IDs.
pub(crate) fn ldp_neighbours(role: &RouterRole) -> impl Iterator<Item = Ipv4Addr> {
    let links = role.core.iter().flat_map(|core| &core.links);
    links.filter(|link| link.pe.is_none() && link.has(CoreProtocol::Ldp)).map(|link| link.neighbour_id)
}

/// Bytes that labels and tags add to the largest packet of a port.
pub(crate) fn extra(role: &RouterRole, port: usize) -> u32 {
    let tag = if role.vrfs.iter().any(|vrf| vrf.port == port) { TAG } else { 0 };
    tag.max(link_mtu(role, port) - role.interfaces[port].mtu)
}

/// Names of the interfaces on which packets with labels arrive.
fn label_interfaces(role: &RouterRole, names: Names<'_>) -> Vec<String> {
    (0..role.interfaces.len()).filter(|port| has_labels(role, *port)).map(|port| names.port(port)).collect()
}

/// Protocols of the core link at a port, as words; empty if it is not a core port.
pub(crate) fn protocols(role: &RouterRole, port: usize) -> Vec<String> {
    let link = role.core.iter().flat_map(|core| &core.links).find(|link| link.port == port);
    link.map_or(Vec::new(), words)
}

fn words(link: &CoreLink) -> Vec<String> {
    link.protocols.iter().map(ToString::to_string).collect()
}

/// Routing table of a VRF.
fn table(vrf: &VrfRole) -> u32 {
    FIRST_TABLE + vrf.number
}

/// Lines of ip(8) that make the VRFs, each with its sub-interface.
pub(crate) fn vrf_lines(role: &RouterRole, names: Names<'_>) -> Vec<String> {
    let of = |vrf: &VrfRole| {
        let (name, table, link) = (vrf.name(), table(vrf), names.port(vrf.port));
        let (vid, mtu) = (vrf.vid, role.interfaces[vrf.port].mtu);
        let mut lines = Vec::new();
        if vrf.site == 0 {
            lines.push(format!("link add name {name} type vrf table {table}"));
            lines.push(format!("link set {name} up"));
            lines.push(format!("route add unreachable default table {table} metric {LAST_METRIC}"));
            lines.extend(vrf.ipv6.map(|_| format!("route add unreachable ::/0 table {table} metric {LAST_METRIC}")));
        }
        lines.push(format!("link add link {link} name {link}.{vid} mtu {mtu} type vlan protocol 802.1Q id {vid}"));
        lines.push(format!("link set {link}.{vid} master {name} up"));
        lines.push(format!("address add {}/{} dev {link}.{vid}", vrf.local, vrf.prefix_len));
        if let Some(ipv6) = &vrf.ipv6 {
            lines.push(format!("address add {}/{} dev {link}.{vid} nodad", ipv6.local, ipv6.prefix_len));
        }
        lines
    };
    role.vrfs.iter().flat_map(of).collect()
}

/// These lines as a configuration file, if there are any.
pub(crate) fn vrfs_file(role: &RouterRole) -> Option<(String, String)> {
    let lines = vrf_lines(role, Names::Lab);
    (!lines.is_empty()).then(|| ("vrfs.ip".to_owned(), lines.join("\n") + "\n"))
}

/// Settings of the kernel, `(key, value)`: it accepts labels on core links, and has room for a neighbour in each VRF.
pub(crate) fn settings(role: &RouterRole, names: Names<'_>) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    if switches_labels(role) {
        settings.push(("net/mpls/platform_labels".to_owned(), PLATFORM_LABELS.to_owned()));
        let input = |name: String| (format!("net/mpls/conf/{name}/input"), "1".to_owned());
        settings.extend(label_interfaces(role, names).into_iter().map(input));
    }
    if !role.vrfs.is_empty() {
        let room = (4 * role.vrfs.len()).next_power_of_two().max(1024);
        let thresholds = [("gc_thresh3", 4 * room), ("gc_thresh2", 2 * room), ("gc_thresh1", room)];
        let families = if role.vrfs.iter().any(|vrf| vrf.ipv6.is_some()) { &["ipv4", "ipv6"][..] } else { &["ipv4"] };
        for family in families {
            let setting =
                |(key, value): (&str, usize)| (format!("net/{family}/neigh/default/{key}"), value.to_string());
            settings.extend(thresholds.map(setting));
        }
    }
    settings
}

/// Returns a message about the first VRF for whose packets the kernel lacks a label, of which each family has one; `labels` are the
/// routes in the form of `ip -j -f mpls route show`. bgpd resets CE routers that connect before it knows its VRFs.
pub(crate) fn missing(role: &RouterRole, labels: &[serde_json::Value]) -> Option<String> {
    let mut held: HashMap<&str, usize> = HashMap::new();
    for device in labels.iter().filter_map(|route| route.get("dev")?.as_str()) {
        *held.entry(device).or_default() += 1;
    }
    let lacks = |vrf: &&VrfRole| held.get(vrf.name().as_str()).copied().unwrap_or(0) < vrf.links().count();
    let vrf = role.vrfs.iter().find(lacks)?;
    Some(format!("the kernel has no label for packets of {}", vrf.name()))
}

/// The variable `core` of templates: `loopback`, the timers `hello`, `dead` and `retransmit` of OSPF in seconds, the
/// `protocols` of all links, `links` with `interface`, `local`, `length`, `neighbour`, `neighbour_id`, `pe` and `protocols`, and the networks
/// `unlabelled`.
pub(crate) fn core_context(core: &CoreRole, names: Names<'_>) -> Value {
    let link = |link: &CoreLink| {
        context! {
            interface => names.port(link.port), local => link.local.to_string(), length => link.prefix_len,
            neighbour => link.neighbour.to_string(), neighbour_id => link.neighbour_id.to_string(),
            pe => link.pe.map(|pe| pe.to_string()), protocols => words(link),
        }
    };
    let links: Vec<Value> = core.links.iter().map(link).collect();
    let protocols: Vec<String> = core.links.iter().flat_map(words).collect();
    let loopback = core.loopback.to_string();
    let unlabelled = core.unlabelled.iter().map(|(address, length)| format!("{address}/{length}"));
    let unlabelled: Vec<String> = unlabelled.collect();
    context! { loopback, hello => OSPF_HELLO_S, dead => OSPF_DEAD_S, retransmit => RETRANSMIT, protocols, links, unlabelled }
}

/// Addresses of the CE router.
fn ces(vrf: &VrfRole) -> Vec<String> {
    vrf.links().map(|link| link.ce.to_string()).collect()
}

/// The variable `vrfs` of templates, a list: `name`, `number`, `provider_as`, `distinguisher`, `target`, `table`, `ipv6` (true if it has IPv6), `ases`
/// (of all CE routers, of all VRFs) and `sites`, each with `name`, `interface`, `parent`, `vid`, `mtu`, `local`, `length`, `ce`, `ces` (its addresses, one for each family)
/// and `ce_as`, `bfd` (true if it has BFD, over IPv4), and `ipv6` with `local`, `length` and `ce`, or none.
pub(crate) fn vrfs_context(role: &RouterRole, names: Names<'_>) -> Vec<Value> {
    let site = |vrf: &VrfRole| {
        let parent = names.port(vrf.port);
        let ipv6 = vrf.ipv6.map(|link| {
            context! { local => link.local.to_string(), length => link.prefix_len, ce => link.ce.to_string() }
        });
        context! {
            name => vrf.name(), interface => format!("{parent}.{}", vrf.vid), parent, vid => vrf.vid, ipv6,
            mtu => role.interfaces[vrf.port].mtu, local => vrf.local.to_string(), length => vrf.prefix_len,
            ce => vrf.ce.to_string(), ces => ces(vrf), ce_as => vrf.ce_as, bfd => vrf.bfd,
        }
    };
    let ases: BTreeSet<u32> = role.vrfs.iter().map(|vrf| vrf.ce_as).collect();
    let of = |vrf: &VrfRole| {
        let sites: Vec<Value> = role.vrfs.iter().filter(|other| other.number == vrf.number).map(site).collect();
        context! {
            name => vrf.name(), number => vrf.number, provider_as => PROVIDER_AS, ipv6 => vrf.ipv6.is_some(),
            distinguisher => vrf.distinguisher.to_string(), target => vrf.target.to_string(), table => table(vrf), sites,
            ases => &ases,
        }
    };
    role.vrfs.iter().filter(|vrf| vrf.site == 0).map(of).collect()
}
