//! The `ports:` section: ports, the VLAN sub-interfaces of the DUT's ports, and its static label entries.

use super::addresses::{self, MAX_PORTS, Owner, Placed, Prefix};
use super::errors::{Problems, quote};
use super::fields::{Fields, few, flag, items, name, quantity, refuse_repeated, such_as, text, whole, word};
use super::raw::{Node, Value};
use super::typed;
use drophammer_model::label_edge::{self, CoreProtocol};
use drophammer_model::medium::Medium;
use drophammer_model::param::ChoiceWord;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::routes;
use drophammer_model::size::{ETHERNET_OVERHEAD, MAX_FRAME};
use drophammer_model::suite::{FecConfig, LabelConfig, PortConfig, VlanConfig, VlanTag};
use drophammer_model::traffic::Bits;
use drophammer_model::trial::Family;
use serde::Deserialize;
use std::collections::HashSet;
use std::ops::Range;

/// Media, as named in a suite.
pub(crate) const MEDIA: [&str; 3] = ["ethernet", "ppp-over-sonet", "ppp-over-sonet-fcs16"];

const EXAMPLE: &str = "{name: p1, speed: 10 Gbit/s}";
const VLAN_EXAMPLE: &str = "{id: 100}";
const LABEL_EXAMPLE: &str = "{label: 100, out: [200]}";
const CUSTOMERS_EXAMPLE: &str = "{count: 94, bfd: true}";
const FEC_EXAMPLE: &str = "{to: 10.99.0.0/24, out: [200]}";
/// Default MTU, in bytes.
pub(crate) const DEFAULT_MTU: u64 = 1500;
/// Smallest MTU with IPv6 (RFC 8200 section 5), in bytes.
const MIN_MTU: u64 = 1280;
/// Smallest MTU without IPv6 (RFC 791), in bytes.
pub(crate) const MIN_MTU_IPV4: u64 = 68;
/// Largest MTU, in bytes: the MTU for the largest frame that the tester builds.
pub(crate) const MAX_MTU: u64 = (MAX_FRAME - ETHERNET_OVERHEAD) as u64;
/// EtherType of a C-TAG (IEEE 802.1Q).
const C_TAG: u16 = 0x8100;
/// EtherType of an S-TAG (IEEE 802.1ad).
const S_TAG: u16 = 0x88a8;
/// The EtherTypes that a tag can have, as written in a suite.
pub(crate) const TPIDS: [(&str, u16); 2] = [("0x8100", C_TAG), ("0x88a8", S_TAG)];
/// Highest VLAN identifier; 0 and 4095 have special meanings (IEEE 802.1Q table 9-2).
pub(crate) const MAX_ID: u64 = 4094;
/// Maximum number of sub-interfaces of a port.
pub(crate) const MAX_VLANS: usize = 4094;
/// Labels below this one are reserved (RFC 3032 section 2.1).
pub(crate) const FIRST_LABEL: u32 = 16;
/// Maximum number of label entries of a port.
pub(crate) const MOST_ENTRIES: usize = 65_536;
/// Maximum number of labels that replace one label.
pub(crate) const MOST_OUT: usize = 4;

/// A port that was read, with the positions to which errors refer.
struct Port<'n> {
    name: String,
    name_span: &'n Range<usize>,
    speed: Bandwidth,
    medium: Medium,
    mtu: u32,
    ipv4: Option<Placed<'n>>,
    ipv6: Option<Placed<'n>>,
    vlans: Vec<Vlan<'n>>,
    labels: Vec<(Entry, &'n Range<usize>)>,
    core: Vec<CoreProtocol>,
    customers: Customers,
    /// Name of the port whose VRFs its customers are in, and its position.
    sites_of: Option<(String, &'n Range<usize>)>,
}

/// The CE routers behind a port, and whether they have BFD and, if the port has it, IPv6.
#[derive(Clone, Copy)]
struct Customers {
    count: u32,
    bfd: bool,
    ipv6: bool,
}

impl Customers {
    fn new(count: u32) -> Customers {
        Customers { count, bfd: false, ipv6: true }
    }
}

/// A sub-interface.
struct Vlan<'n> {
    tags: Vec<VlanTag>,
    ipv4: Option<Placed<'n>>,
    ipv6: Option<Placed<'n>>,
    /// Position of its identifier.
    span: &'n Range<usize>,
}

impl Vlan<'_> {
    /// Text for messages: `VLAN 100`, `VLAN 100.200`.
    fn show(&self) -> String {
        let ids: Vec<String> = self.tags.iter().map(|t| t.vid.to_string()).collect();
        format!("VLAN {}", ids.join("."))
    }
}

/// A label entry as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    label: Option<Bits<20>>,
    to: Option<String>,
    #[serde(default)]
    out: Vec<Bits<20>>,
}

/// Action of the DUT on packets that have a label, or on packets to a network.
enum Entry {
    Label(LabelConfig),
    Fec(FecConfig),
}

/// Reads the ports. `public` permits public addresses. `routed` is true if the suite has BGP: a port without a partner
/// is then allowed, because routes may lead to it.
pub(crate) fn read(node: &Node, public: bool, routed: bool, problems: &mut Problems) -> Option<Vec<PortConfig>> {
    let nodes = items(node, "`ports`", &format!("- {EXAMPLE}"), problems)?;
    let left_over = !nodes.len().is_multiple_of(2) && (!routed || nodes.len() < 3) && nodes.len() != 1;
    if nodes.len() > MAX_PORTS || left_over {
        let at = nodes.last().map_or(&node.span, |n| &n.span);
        let help = format!(
            "traffic runs between pairs of ports: write 2, 4 or another even number up to {MAX_PORTS} (one more with `bgp:`), or 1 with `vlans`"
        );
        problems.add(at, format!("the suite has {} ports", nodes.len()), help);
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
        let message = "the suite has 1 port, and traffic runs between two ports or sub-interfaces";
        let help =
            "write 2, 4 or another even number; or 1 with `vlans: [{id: 100}, {id: 200}]` and flows between them";
        problems.add(only.name_span, message, help);
    }
    check_families(&ports, problems);
    check_overlaps(&ports, public, problems);
    refuse_repeated_labels(&ports, problems);
    check_edges(&ports, problems);
    let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
    (problems.len() == before).then(|| ports.into_iter().map(|port| finish(port, &names)).collect())
}

/// The port among those with these names.
fn finish(port: Port, names: &[String]) -> PortConfig {
    let sites_of = port.sites_of.and_then(|(owner, _)| names.iter().position(|name| *name == owner));
    let (mut labels, mut pushed) = (Vec::new(), Vec::new());
    for (entry, _) in port.labels {
        match entry {
            Entry::Label(entry) => labels.push(entry),
            Entry::Fec(entry) => pushed.push(entry),
        }
    }
    let of = |placed: Option<Placed>| placed.map(|placed| placed.addressing);
    let vlan = |vlan: Vlan| VlanConfig { tags: vlan.tags, ipv4: of(vlan.ipv4), ipv6: of(vlan.ipv6) };
    PortConfig {
        name: port.name,
        speed: port.speed,
        medium: port.medium,
        mtu: port.mtu,
        ipv4: of(port.ipv4),
        ipv6: of(port.ipv6),
        bgp: None,
        vlans: port.vlans.into_iter().map(vlan).collect(),
        labels,
        pushed,
        core: port.core,
        customers: port.customers.count,
        customer_bfd: port.customers.bfd,
        customer_ipv6: port.customers.ipv6,
        sites_of,
    }
}

fn one<'n>(node: &'n Node, index: usize, public: bool, problems: &mut Problems) -> Option<Port<'n>> {
    let known = ["name", "speed", "medium", "mtu", "ipv4", "ipv6", "vlans", "labels", "core", "customers", "sites_of"];
    let fields = Fields::with_keys(node, "a port", &known, EXAMPLE, problems)?;
    let name_node = fields.required("name", "a port", "name: p1", problems);
    let name = name_node.and_then(|n| name(n, "the name of a port", true, problems));
    let speed = fields.required("speed", "a port", "speed: 10 Gbit/s", problems);
    let speed = speed.and_then(|node| quantity(node, "`speed`", "10 Gbit/s", str::parse, problems));
    let medium = fields.or("medium", Medium::default(), |node| medium(node, problems));
    // Errors about defaults refer to the name of the port, not to all of its lines.
    let place = name_node.map_or(&node.span, |n| &n.span);
    let mut placed = |key: &str, family: Family| {
        addresses::read(fields.value(key), family, Owner::Port(index), place, public, problems)
    };
    let (ipv4, ipv6) = (placed("ipv4", Family::Ipv4), placed("ipv6", Family::Ipv6));
    let (ipv4, ipv6) = (ipv4?, ipv6?);
    if ipv4.is_none() && ipv6.is_none() {
        return problems.refuse(place, "this port has neither IPv4 nor IPv6", "remove `ipv4: off` or `ipv6: off`");
    }
    let has = [ipv4.is_some(), ipv6.is_some()];
    let vlans = fields.or("vlans", Vec::new(), |node| vlans(node, index, has, public, problems))?;
    let labels = fields.or("labels", Vec::new(), |node| labels(node, problems))?;
    let core = fields.or("core", Vec::new(), |node| core(node, problems))?;
    let customers = fields.or("customers", Customers::new(0), |node| customers(node, problems))?;
    let sites_of = fields.optional("sites_of", |node| owner(node, problems))?;
    let least = if ipv6.is_some() { MIN_MTU } else { MIN_MTU_IPV4 };
    let mtu = fields.or("mtu", DEFAULT_MTU, |node| whole(node, "`mtu`", least, MAX_MTU, problems))? as u32;
    let (name, speed, medium) = (name?, speed?, medium?);
    Some(Port { name, name_span: place, speed, medium, mtu, ipv4, ipv6, vlans, labels, core, customers, sites_of })
}

/// The protocols of a core port.
fn core(node: &Node, problems: &mut Problems) -> Option<Vec<CoreProtocol>> {
    let words = items(node, "`core`", "core: [ospf, ldp]", problems)?;
    let one = |node| CoreProtocol::of_word(&word(node, "an item of `core`", CoreProtocol::WORDS, problems)?);
    let all: Vec<CoreProtocol> = words.iter().map(one).collect::<Option<_>>()?;
    let repeated = (1..all.len()).find(|i| all[..*i].contains(&all[*i]));
    match repeated {
        Some(at) => problems.refuse(&words[at].span, format!("`{}` is listed twice", all[at]), "remove one of them"),
        None => Some(all),
    }
}

/// Customers: their number, or a map that also says whether they have BFD and IPv6.
fn customers(node: &Node, problems: &mut Problems) -> Option<Customers> {
    let most = u64::from(label_edge::MOST_CUSTOMERS);
    if !matches!(node.value, Value::Map(_)) {
        return Some(Customers::new(whole(node, "`customers`", 1, most, problems)? as u32));
    }
    let fields = Fields::with_keys(node, "`customers`", &["count", "bfd", "ipv6"], CUSTOMERS_EXAMPLE, problems)?;
    let count = fields.required("count", "`customers`", "count: 94", problems);
    let count = count.and_then(|node| whole(node, "`count`", 1, most, problems));
    let bfd = fields.or("bfd", false, |node| flag(node, "`bfd`", problems));
    let ipv6 = fields.or("ipv6", true, |node| flag(node, "`ipv6`", problems));
    Some(Customers { count: count? as u32, bfd: bfd?, ipv6: ipv6? })
}

/// Refuses core and customer ports that cannot work.
fn check_edges(ports: &[Port], problems: &mut Problems) {
    let has_core = ports.iter().any(|port| !port.core.is_empty());
    for port in ports {
        let mut refuse = |message: &str, help: &str| problems.add(port.name_span, message, help);
        if !port.core.is_empty() && port.ipv4.is_none() {
            refuse("a core port needs IPv4", "remove `ipv4: off`");
        }
        if !port.core.is_empty() && port.customers.count > 0 {
            refuse("a port faces either the core or customers", "write `core` and `customers` on different ports");
        }
        if port.customers.count > 0 && !port.vlans.is_empty() {
            refuse("a port with `customers` has VLANs from 101 on", "remove `vlans`");
        }
        if port.customers.count > 0 && !has_core {
            refuse("there is no core port to remote sites", "add a port with `core: [ospf, ldp]`");
        }
        if port.core.contains(&CoreProtocol::Bfd) && !port.core.contains(&CoreProtocol::Ospf) {
            refuse("BFD on a core port is for OSPF", "add `ospf` to `core`");
        }
    }
    check_sites(ports, problems);
    let of = |wanted: &dyn Fn(&Port) -> bool| ports.iter().filter(|port| wanted(port)).collect::<Vec<_>>();
    let (facing, core) =
        (of(&|port| port.customers.count > 0 && port.sites_of.is_none()), of(&|port| !port.core.is_empty()));
    let customers: u64 = facing.iter().map(|port| u64::from(port.customers.count)).sum();
    if let Some(last) = facing.last().filter(|_| customers > u64::from(label_edge::MOST_VRFS)) {
        let most = label_edge::MOST_VRFS;
        problems.add(last.name_span, format!("the DUT has {customers} VRFs in all"), format!("write at most {most}"));
    }
    if let Some(last) = facing.last().filter(|_| has_core && facing.len() > core.len()) {
        let message = format!("{} ports with `customers` share {} core ports", facing.len(), core.len());
        problems.add(last.name_span, message, "add core ports: one for each port with `customers`");
    }
    let incomplete = |port: &&Port| {
        !port.core.is_empty() && ![CoreProtocol::Ospf, CoreProtocol::Ldp].iter().all(|p| port.core.contains(p))
    };
    if ports.iter().any(|port| port.customers.count > 0) {
        for port in ports.iter().filter(incomplete) {
            let message = "VPN traffic needs a label-switched path to the PE router behind this port";
            problems.add(port.name_span, message, "write `core: [ospf, ldp]`");
        }
    }
}

/// The port of `sites_of`, and the position of its name.
fn owner<'n>(node: &'n Node, problems: &mut Problems) -> Option<(String, &'n Range<usize>)> {
    Some((name(node, "`sites_of`", true, problems)?, &node.span))
}

/// Refuses impossible further sites of VRFs.
fn check_sites(ports: &[Port], problems: &mut Problems) {
    for (index, port) in ports.iter().enumerate() {
        let Some((owner, span)) = &port.sites_of else { continue };
        let mut refuse = |message: String, help: &str| problems.add(span, message, help);
        let example = "write for instance `customers: 10` on one port, and `customers: 10, sites_of: c1` on a later one, where `c1` is the first one";
        let found = ports[..index]
            .iter()
            .find(|other| other.name == *owner && other.customers.count > 0 && other.sites_of.is_none());
        let Some(found) = found.filter(|_| port.customers.count > 0) else {
            let message = match port.customers.count {
                0 => "a port with `sites_of` needs `customers`".to_owned(),
                _ => format!("no earlier port {} has VRFs of its own", quote(owner)),
            };
            refuse(message, example);
            continue;
        };
        if port.customers.ipv6 != found.customers.ipv6 {
            let message = format!(
                "the VRFs of port {} {} IPv6",
                quote(owner),
                if found.customers.ipv6 { "have" } else { "have no" }
            );
            refuse(message, "write the same `ipv6` in `customers` of both ports");
        }
        if port.customers.count > found.customers.count {
            let message = format!("port {} has {} VRFs", quote(owner), found.customers.count);
            refuse(message, "write at most as many `customers` here");
        }
        let sites = ports.iter().filter(|other| other.sites_of.as_ref().is_some_and(|(name, _)| name == owner));
        if sites.count() as u32 >= label_edge::MOST_SITES {
            let most = label_edge::MOST_SITES - 1;
            refuse(
                format!("too many ports have sites of {}", quote(owner)),
                &format!("write `sites_of` at most {most} times"),
            );
        }
    }
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
                let (with, without) = (quote(&with.name), quote(&without.name));
                let message = format!("port {with} has {family}, but port {without} has not");
                problems.add(port.name_span, message, format!("write `{family}: off` on every port or on none"));
            }
        }
    }
}

/// Reports prefixes that would lead to two places.
fn check_overlaps(ports: &[Port], public: bool, problems: &mut Problems) {
    let mut seen: Vec<(Prefix, String)> = Vec::new();
    for port in ports {
        let own = [&port.ipv4, &port.ipv6].into_iter().flatten().map(|placed| (placed, quote(&port.name)));
        let vlans = port.vlans.iter().flat_map(|v| {
            let whose = format!("{} of {}", v.show(), quote(&port.name));
            [&v.ipv4, &v.ipv6].into_iter().flatten().map(move |placed| (placed, whose.clone()))
        });
        for (placed, whose) in own.chain(vlans) {
            let own = [
                (placed.link(), format!("the link of {whose}"), placed.link_span),
                (placed.behind(), format!("the network behind {whose}"), placed.behind_span),
            ];
            for (prefix, what, span) in own {
                if let Some((other, whose)) = seen.iter().find(|(p, _)| p.overlaps(&prefix)) {
                    let help = "give every link and every `behind` a different prefix; the defaults do not overlap";
                    problems.add(span, format!("`{prefix}`, {what}, overlaps `{other}`, {whose}"), help);
                }
                seen.push((prefix, what));
            }
        }
    }
    let entries = ports.iter().flat_map(|port| port.labels.iter().map(move |entry| (port, entry)));
    for (port, (entry, span)) in entries {
        let Entry::Fec(fec) = entry else { continue };
        let prefix = Prefix::around(fec.to.address(), fec.to.length());
        let has = if fec.to.address().is_ipv4() { port.ipv4.is_some() } else { port.ipv6.is_some() };
        if !has {
            let message = format!("port {} has no addresses of the family of `{prefix}`", quote(&port.name));
            problems.add(span, message, "give the port such addresses, or remove this entry");
        }
        addresses::check_block(&prefix, span, public, problems);
        if let Some((other, whose)) = seen.iter().find(|(p, _)| p.overlaps(&prefix)) {
            let help = "give it a separate prefix: packets to other networks get no labels";
            problems.add(span, format!("`{prefix}` overlaps `{other}`, {whose}"), help);
        }
        seen.push((prefix, format!("a network of {}", quote(&port.name))));
    }
}

/// Reads the sub-interfaces of port `port`. `has` is whether the port has IPv4 and IPv6.
fn vlans<'n>(
    node: &'n Node,
    port: usize,
    has: [bool; 2],
    public: bool,
    problems: &mut Problems,
) -> Option<Vec<Vlan<'n>>> {
    if matches!(&node.value, Value::List(items) if items.is_empty()) {
        return Some(Vec::new());
    }
    let nodes = few(node, "`vlans`", &format!("- {VLAN_EXAMPLE}"), MAX_VLANS, problems)?;
    let owned = nodes.iter().enumerate().map(|(i, node)| (node, Owner::Vlan(port, i)));
    let vlans: Vec<_> = owned.filter_map(|(node, owner)| vlan(node, owner, has, public, problems)).collect();
    let mut seen = HashSet::new();
    for vlan in &vlans {
        if !seen.insert(&vlan.tags) {
            let help = "give each one a different identifier; the first tag may differ in `tpid` instead";
            problems.add(vlan.span, format!("two sub-interfaces of this port are {}", vlan.show()), help);
        }
    }
    (vlans.len() == nodes.len()).then_some(vlans)
}

fn vlan<'n>(node: &'n Node, owner: Owner, has: [bool; 2], public: bool, problems: &mut Problems) -> Option<Vlan<'n>> {
    let what = "a sub-interface";
    let fields = Fields::with_keys(node, what, &["id", "tpid", "ipv4", "ipv6"], VLAN_EXAMPLE, problems)?;
    let id = fields.required("id", what, "id: 100", problems)?;
    let tags = tags(id, fields.value("tpid"), problems);
    let mut placed = |key: &str, family: Family, has: bool| match fields.value(key) {
        None if !has => Some(None),
        Some(node) if !has && !matches!(&node.value, Value::Scalar { text, .. } if text == "off") => {
            let message = format!("the port has `{key}: off`, so its sub-interfaces have none either");
            let help = format!("remove `{key}: off` from the ports, or `{key}` from this sub-interface");
            problems.refuse(&node.span, message, help)
        }
        node => addresses::read(node, family, owner, &id.span, public, problems),
    };
    let (ipv4, ipv6) = (placed("ipv4", Family::Ipv4, has[0]), placed("ipv6", Family::Ipv6, has[1]));
    let (tags, ipv4, ipv6) = (tags?, ipv4?, ipv6?);
    if ipv4.is_none() && ipv6.is_none() {
        let message = "this sub-interface has neither IPv4 nor IPv6";
        return problems.refuse(&id.span, message, "remove `ipv4: off` or `ipv6: off`");
    }
    Some(Vlan { tags, ipv4, ipv6, span: &id.span })
}

/// Reads the tags of `id: 100` or `id: [100, 200]`; the outer tag can have a `tpid`.
fn tags(id: &Node, tpid: Option<&Node>, problems: &mut Problems) -> Option<Vec<VlanTag>> {
    let nodes = match &id.value {
        Value::List(nodes) => &nodes[..],
        _ => std::slice::from_ref(id),
    };
    if !(1..=2).contains(&nodes.len()) {
        return problems.refuse(
            &id.span,
            format!("a sub-interface has one tag or two, not {}", nodes.len()),
            "write `id: 100`, or the outer and the inner one, `id: [100, 200]`",
        );
    }
    let outer = match tpid {
        None if nodes.len() == 2 => S_TAG,
        None => C_TAG,
        Some(node) => {
            let written = text(node, "`tpid`", "0x88a8", problems)?.to_lowercase();
            match TPIDS.iter().find(|(text, _)| *text == written) {
                Some((_, tpid)) => *tpid,
                None => {
                    let help = "write `0x8100` (IEEE 802.1Q) or `0x88a8` (IEEE 802.1ad)";
                    return problems.refuse(
                        &node.span,
                        format!("{} is not a `tpid` of a VLAN tag", quote(&written)),
                        help,
                    );
                }
            }
        }
    };
    let tag = |(i, node)| {
        let vid = whole(node, "a VLAN identifier", 1, MAX_ID, problems)? as u16;
        Some(VlanTag { tpid: if i == 0 { outer } else { C_TAG }, vid })
    };
    // Reports all wrong identifiers, not just the first.
    let tags: Vec<Option<VlanTag>> = nodes.iter().enumerate().map(tag).collect();
    tags.into_iter().collect()
}

/// Reads the label entries of a port, each with its position.
fn labels<'n>(node: &'n Node, problems: &mut Problems) -> Option<Vec<(Entry, &'n Range<usize>)>> {
    let nodes = few(node, "`labels`", &format!("- {LABEL_EXAMPLE}"), MOST_ENTRIES, problems)?;
    let entries: Vec<_> = nodes.iter().filter_map(|n| Some((label(n, problems)?, &n.span))).collect();
    (entries.len() == nodes.len()).then_some(entries)
}

fn label(node: &Node, problems: &mut Problems) -> Option<Entry> {
    let written: Written = typed::read(node, &such_as(LABEL_EXAMPLE), problems)?;
    let out: Vec<u32> = written.out.iter().map(|label| label.get()).collect();
    if out.len() > MOST_OUT {
        let message = format!("`out` has {} labels", out.len());
        return problems.refuse(&node.span, message, format!("write {MOST_OUT} at most, the outermost first"));
    }
    let label = written.label.map(|label| label.get());
    if let Some(reserved) = label.iter().chain(&out).find(|label| **label < FIRST_LABEL) {
        let help = format!("write {FIRST_LABEL} to 1048575; to remove a label, leave `out` out");
        return problems.refuse(&node.span, format!("label {reserved} is reserved (RFC 3032 section 2.1)"), help);
    }
    match (label, written.to) {
        (Some(label), None) => Some(Entry::Label(LabelConfig { label, out })),
        (None, Some(to)) => fec(node, &to, out, problems).map(Entry::Fec),
        _ => {
            let message = "an entry is either for a `label` or for packets `to` a network";
            problems.refuse(&node.span, message, format!("write for instance `{LABEL_EXAMPLE}` or `{FEC_EXAMPLE}`"))
        }
    }
}

fn fec(node: &Node, to: &str, out: Vec<u32>, problems: &mut Problems) -> Option<FecConfig> {
    let Ok(to) = to.parse::<routes::Prefix>() else {
        return problems.refuse(&node.span, format!("{} is not a network", quote(to)), such_as(FEC_EXAMPLE));
    };
    if out.is_empty() {
        return problems.refuse(&node.span, "packets to this network get no label", such_as(FEC_EXAMPLE));
    }
    Some(FecConfig { to, out })
}

/// Reports labels that are not unique over all ports.
fn refuse_repeated_labels(ports: &[Port], problems: &mut Problems) {
    let mut seen = HashSet::new();
    for (entry, span) in ports.iter().flat_map(|port| &port.labels) {
        if let Entry::Label(entry) = entry
            && !seen.insert(entry.label)
        {
            let message = format!("two entries are for label {}", entry.label);
            problems.add(span, message, "give each entry of the suite a different label; the DUT has one label space");
        }
    }
}
