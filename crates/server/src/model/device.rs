//! Emulated devices: interfaces with addresses, and BGP.

use super::ospf::{self, OspfRouter};
use super::read::Object;
use super::rsvp::{self, RsvpRouter};
use drophammer_emulation::bgp::GracefulRestartConfig;
use drophammer_emulation::device::{Tag, Tags};
use drophammer_model::mac::MacAddr;
use drophammer_model::routes::{Origin, PathSegment, PathSegmentKind, Prefix, RouteAttributes};
use drophammer_wire::bgp::update::Labels;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its interfaces.
    pub ethernets: Vec<Interface>,
    /// Addresses that are not on a link.
    pub loopbacks: Vec<Loopback>,
    /// Its BGP router.
    pub bgp: Option<Bgp>,
    /// Its OSPFv2 router.
    pub ospf: Option<OspfRouter>,
    /// Its RSVP-TE router.
    pub rsvp: Option<RsvpRouter>,
}

/// An interface of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Name of its port.
    pub port: String,
    /// MAC address; made up if absent.
    pub mac: Option<MacAddr>,
    /// VLAN tags.
    pub tags: Tags,
    /// Addresses.
    pub addresses: Vec<Address>,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its name.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Length of the prefix of the link.
    pub prefix_len: u8,
    /// The DUT.
    pub gateway: IpAddr,
}

/// An address of a device that is not on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loopback {
    /// Its name.
    pub name: String,
    /// Name of the interface behind which it is.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
}

/// A BGP router.
#[derive(Clone, Debug, PartialEq)]
pub struct Bgp {
    /// BGP identifier.
    pub router_id: Ipv4Addr,
    /// Its sessions.
    pub peers: Vec<Peer>,
}

/// A BGP session.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Name of the address that it uses.
    pub address_name: String,
    /// Address of the DUT.
    pub dut: IpAddr,
    /// AS number of this router.
    pub asn: u32,
    /// True if AS numbers of the session may have four octets (RFC 6793).
    pub four_octet_as: bool,
    /// True if the DUT is in the same AS.
    pub internal: bool,
    /// Proposed hold time.
    pub hold: Duration,
    /// Key of TCP MD5.
    pub md5_key: Option<String>,
    /// True to only wait for the DUT to connect.
    pub passive: bool,
    /// True for IPv4 unicast and for IPv6 unicast.
    pub unicast: [bool; 2],
    /// True for IPv4 and for IPv6 with labels (RFC 8277).
    pub labelled: [bool; 2],
    /// True for IPv4 and for IPv6 unicast with several paths per prefix (RFC 7911).
    pub add_path: [bool; 2],
    /// Graceful restart, if it offers that.
    pub graceful_restart: Option<GracefulRestartConfig>,
    /// True for each family whose received prefixes are kept: IPv4 and IPv6 unicast, IPv4 and IPv6 with labels.
    pub learns: [bool; 4],
    /// The routes that it advertises.
    pub routes: Vec<RouteRange>,
}

/// Routes with the same attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteRange {
    /// Its name.
    pub name: String,
    /// The prefixes.
    pub prefixes: Vec<Prefix>,
    /// Their attributes.
    pub attributes: RouteAttributes,
    /// Their labels; `None` for routes without.
    pub labels: Option<Labels>,
    /// Their path identifier, if the client gives one.
    pub path_id: Option<u32>,
}

/// MTU of an ethernet in the API's model, if a client gives none.
const MTU: u64 = 1_500;
/// The largest label.
const LAST_LABEL: u64 = (1 << 20) - 1;
/// Maximum number of routes of a range.
const MOST_ROUTES: u64 = 2_000_000;

/// Reads a device.
pub fn device(mut o: Object<'_>) -> Device {
    let name = o.name("name");
    let ethernets = o.objects("ethernets").into_iter().map(interface).collect();
    let mut loopbacks: Vec<Loopback> = o.objects("ipv4_loopbacks").into_iter().map(loopback::<Ipv4Addr>).collect();
    loopbacks.extend(o.objects("ipv6_loopbacks").into_iter().map(loopback::<Ipv6Addr>));
    let ospf = o.object("ospfv2").map(ospf::router);
    let rsvp = o.object("rsvp").map(rsvp::router);
    Device { name, ethernets, loopbacks, bgp: o.object("bgp").map(bgp), ospf, rsvp }
}

/// An address family, for what IPv4 and IPv6 have in common.
trait Family: std::str::FromStr<Err = std::net::AddrParseError> + Into<IpAddr> {
    const PREFIX: u8;
    const BITS: u8;
    const NOBODY: IpAddr;
    const PEERS: &'static str;
    const ADDRESS_NAME: &'static str;
}

impl Family for Ipv4Addr {
    const PREFIX: u8 = 24;
    const BITS: u8 = 32;
    const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    const PEERS: &'static str = "ipv4_interfaces";
    const ADDRESS_NAME: &'static str = "ipv4_name";
}

impl Family for Ipv6Addr {
    const PREFIX: u8 = 64;
    const BITS: u8 = 128;
    const NOBODY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    const PEERS: &'static str = "ipv6_interfaces";
    const ADDRESS_NAME: &'static str = "ipv6_name";
}

/// Takes an address that must be there.
fn required<F: Family>(o: &mut Object<'_>, key: &str) -> IpAddr {
    if !o.has(key) {
        o.wrong(key, "this is required");
    }
    o.parsed::<F>(key).map_or(F::NOBODY, Into::into)
}

fn loopback<F: Family>(mut o: Object<'_>) -> Loopback {
    Loopback { name: o.name("name"), interface: o.name("eth_name"), address: required::<F>(&mut o, "address") }
}

fn interface(mut o: Object<'_>) -> Interface {
    let mut connection = o.object_or_empty("connection");
    connection.choice(&["port_name"], "port_name");
    let port = connection.name("port_name");
    drop(connection);
    if let Some(mtu) = o.number("mtu", u16::MAX.into()).filter(|mtu| *mtu != MTU) {
        let text = format_args!("{mtu} has no effect: frames of devices have the size that they need");
        o.errors().warn(&o.path_of("mtu"), text);
    }
    let tags: Vec<Tag> = o.objects("vlans").into_iter().map(tag).collect();
    let tags = Tags::new(&tags).unwrap_or_else(|why| {
        o.wrong("vlans", why);
        Tags::NONE
    });
    let mut addresses: Vec<Address> = o.objects("ipv4_addresses").into_iter().map(address::<Ipv4Addr>).collect();
    addresses.extend(o.objects("ipv6_addresses").into_iter().map(address::<Ipv6Addr>));
    Interface { name: o.name("name"), port, mac: o.parsed("mac"), tags, addresses }
}

fn tag(mut o: Object<'_>) -> Tag {
    let tpids = [("x8100", 0x8100), ("x88A8", 0x88a8), ("x9100", 0x9100)];
    let tpid = tpids[o.word("tpid", &tpids.map(|(word, _)| word), 0)].1;
    o.note("priority", || json!({"const": 0}));
    if o.number("priority", 7).is_some_and(|priority| priority > 0) {
        o.wrong("priority", "only 0 is supported for frames of devices");
    }
    o.ignore("name");
    Tag { tpid, vid: o.number_or("id", 4_094, 1) as u16 }
}

fn address<F: Family>(mut o: Object<'_>) -> Address {
    if let Some(mut mac) = o.object("gateway_mac") {
        mac.choice(&["auto"], "auto");
        mac.ignore("auto");
    }
    Address {
        name: o.name("name"),
        address: required::<F>(&mut o, "address"),
        prefix_len: o.number_or("prefix", F::BITS.into(), F::PREFIX.into()) as u8,
        gateway: required::<F>(&mut o, "gateway"),
    }
}

fn bgp(mut o: Object<'_>) -> Bgp {
    let router_id: Option<Ipv4Addr> = o.parsed("router_id");
    if router_id.is_none_or(|id| id.is_unspecified()) {
        o.wrong("router_id", "this is required, and must not be 0.0.0.0");
    }
    let mut peers = peers::<Ipv4Addr>(&mut o);
    peers.extend(self::peers::<Ipv6Addr>(&mut o));
    Bgp { router_id: router_id.unwrap_or(Ipv4Addr::UNSPECIFIED), peers }
}

fn peers<F: Family>(bgp: &mut Object<'_>) -> Vec<Peer> {
    let of_interface = |mut o: Object<'_>| {
        let name = o.name(F::ADDRESS_NAME);
        o.objects("peers").into_iter().map(|o| peer::<F>(o, &name)).collect::<Vec<_>>()
    };
    bgp.objects(F::PEERS).into_iter().flat_map(of_interface).collect()
}

/// Default of the model for the time between two KEEPALIVE messages, in seconds.
const KEEP_ALIVE: u64 = 30;

fn peer<F: Family>(mut o: Object<'_>, address_name: &str) -> Peer {
    let internal = o.word("as_type", &["ibgp", "ebgp"], 1) == 0;
    o.note("as_number", || json!({"type": "integer", "minimum": 1, "maximum": u32::MAX}));
    let asn = o.number_or("as_number", u32::MAX.into(), 0) as u32;
    if asn == 0 {
        o.wrong("as_number", "this is required, and must not be 0");
    }
    let four_octet_as = o.word("as_number_width", &["four", "two"], 0) == 0;
    if !four_octet_as && asn > u32::from(u16::MAX) {
        o.wrong("as_number", format_args!("{asn} has more than the two octets of `as_number_width`"));
    }
    let mut advanced = o.object_or_empty("advanced");
    let hold = Duration::from_secs(advanced.number_or("hold_time_interval", u16::MAX.into(), 90));
    // A KEEPALIVE leaves in a third of the hold time at the latest. Clients write the default of the model, whatever the hold time.
    let keep_alive = hold.as_secs() / 3;
    let interval = advanced.number("keep_alive_interval", u16::MAX.into());
    if interval.is_some_and(|interval| ![keep_alive, KEEP_ALIVE].contains(&interval)) {
        let text = format_args!("only a third of the hold time is supported, {keep_alive} s; leave it out");
        advanced.wrong("keep_alive_interval", text);
    }
    advanced.note("update_interval", || json!({"const": 0}));
    if advanced.number("update_interval", u32::MAX.into()).is_some_and(|interval| interval > 0) {
        advanced.wrong("update_interval", "only 0 is supported");
    }
    advanced.only("time_to_live", 64);
    for key in ["listen_port", "neighbor_port"] {
        advanced.note(key, || json!({"const": 179}));
        if advanced.number(key, u16::MAX.into()).is_some_and(|port| port != 179) {
            advanced.wrong(key, "only 179 is supported");
        }
    }
    let (md5_key, passive) = (advanced.text("md5_key"), advanced.flag("passive_mode", false));
    drop(advanced);
    let mut capability = o.object_or_empty("capability");
    let unicast = ["ipv4_unicast", "ipv6_unicast"].map(|key| capability.flag(key, true));
    let labelled = ["ipv4_mpls", "ipv6_mpls"].map(|key| capability.flag(key, false));
    let add_path = ["ipv4_unicast_add_path", "ipv6_unicast_add_path"].map(|key| capability.flag(key, false));
    capability.without_effect("route_refresh", true, "devices always offer route refresh");
    capability.drop_false();
    drop(capability);
    let mut filter = o.object_or_empty("learned_information_filter");
    let learns = ["unicast_ipv4_prefix", "unicast_ipv6_prefix", "ipv4_mpls_unicast_prefix", "ipv6_mpls_unicast_prefix"]
        .map(|key| filter.flag(key, false));
    drop(filter);
    let text = "IPv4 routes are in the NLRI of UPDATE messages";
    o.without_effect("traditional_nlri_for_ipv4_routes", true, text);
    let graceful_restart = o.object("graceful_restart").and_then(graceful_restart);
    let mut routes: Vec<RouteRange> =
        o.objects("v4_routes").into_iter().map(|o| route_range::<Ipv4Addr>(o, asn)).collect();
    routes.extend(o.objects("v6_routes").into_iter().map(|o| route_range::<Ipv6Addr>(o, asn)));
    for range in &routes {
        let v6 = usize::from(range.prefixes.first().is_some_and(|prefix| prefix.address().is_ipv6()));
        if range.labels.is_some() && !labelled[v6] {
            let key = ["ipv4_mpls", "ipv6_mpls"][v6];
            o.wrong("capability", format_args!("`{}` has labels, which need the capability `{key}`", range.name));
        }
        // The model has path identifiers for routes without labels only.
        if range.path_id.is_some() && (range.labels.is_some() || !add_path[v6]) {
            let key = ["ipv4_unicast_add_path", "ipv6_unicast_add_path"][v6];
            let text = format_args!("`{}` has a path identifier, which needs `{key}` and no labels", range.name);
            o.wrong("capability", text);
        }
    }
    Peer {
        name: o.name("name"),
        address_name: address_name.to_owned(),
        dut: required::<F>(&mut o, "peer_address"),
        asn,
        four_octet_as,
        internal,
        hold,
        md5_key,
        passive,
        unicast,
        labelled,
        add_path,
        graceful_restart,
        learns,
        routes,
    }
}

/// Graceful restart, if it is enabled.
fn graceful_restart(mut o: Object<'_>) -> Option<GracefulRestartConfig> {
    let enabled = o.flag("enable_gr", false);
    o.note("enable_llgr", || json!({"const": false}));
    if o.flag("enable_llgr", false) {
        o.wrong("enable_llgr", "not supported");
    }
    o.without_effect("stale_time", 10, "devices forget the routes of a peer that restarts");
    let seconds = o.number_or("restart_time", 4_095, 45);
    let notification = o.flag("enable_notification", true);
    // Devices receive and answer frames whatever their sessions do.
    let (restart_time, forwarding) = (Duration::from_secs(seconds), true);
    enabled.then_some(GracefulRestartConfig { restart_time, notification, restarted: false, forwarding })
}

fn route_range<F: Family>(mut o: Object<'_>, asn: u32) -> RouteRange {
    let name = o.name("name");
    let mut prefixes = Vec::new();
    for mut range in o.objects("addresses") {
        let first = required::<F>(&mut range, "address");
        let length = range.number_or("prefix", F::BITS.into(), F::PREFIX.into()) as u8;
        let (count, step) = ["count", "step"].map(|key| range.number_or(key, u32::MAX.into(), 1)).into();
        if prefixes.len() as u64 + count > MOST_ROUTES {
            range.wrong("count", format_args!("a range has at most {MOST_ROUTES} routes"));
            continue;
        }
        if let Err(why) = range.errors().spend_routes(count) {
            range.wrong("count", why);
            continue;
        }
        match ascending(first, length, count, step) {
            Some(list) => prefixes.extend(list),
            None => range.wrong("count", "the last prefix is outside the address space"),
        }
    }
    if prefixes.is_empty() {
        o.wrong("addresses", "this needs at least one");
    }
    let manual = o.word("next_hop_mode", &["local_ip", "manual"], 0) == 1;
    let v6 = o.word("next_hop_address_type", &["ipv4", "ipv6"], usize::from(F::BITS == 128)) == 1;
    let (hop4, hop6) = (o.parsed::<Ipv4Addr>("next_hop_ipv4_address"), o.parsed::<Ipv6Addr>("next_hop_ipv6_address"));
    let next_hop = if v6 { hop6.map(IpAddr::V6) } else { hop4.map(IpAddr::V4) }.filter(|_| manual);
    if manual && next_hop.is_none() {
        o.wrong("next_hop_mode", "`manual` needs the address of the next hop");
    }
    let mut advanced = o.object_or_empty("advanced");
    let has_med = advanced.flag("include_multi_exit_discriminator", true);
    let med = advanced.number("multi_exit_discriminator", u32::MAX.into()).map(|med| med as u32);
    let med = med.filter(|_| has_med);
    advanced.note("include_origin", || json!({"const": true}));
    if !advanced.flag("include_origin", true) {
        advanced.wrong("include_origin", "routes without origin are not supported");
    }
    let origin = Origin::from_code(advanced.word("origin", &["igp", "egp", "incomplete"], 0) as u8).unwrap_or_default();
    let local_pref = advanced.number_or("local_preference", u32::MAX.into(), 100) as u32;
    let local_pref = Some(local_pref).filter(|_| advanced.flag("include_local_preference", true));
    drop(advanced);
    let mut communities: Vec<u32> = o.objects("communities").into_iter().map(community).collect();
    communities.sort_unstable();
    communities.dedup();
    let labels = o.object("mpls_labels").and_then(|bindings| labels(bindings, prefixes.len() as u64));
    let path_id = o.object("add_path").map(|mut add| add.number_or("path_id", u32::MAX.into(), 1) as u32);
    let path = as_path(&mut o, asn);
    let attributes =
        RouteAttributes { origin, path, med, local_pref, communities, next_hop, ..RouteAttributes::default() };
    RouteRange { name, prefixes, attributes, labels, path_id }
}

/// The labels of `count` routes: one for each, or the same for all. `None` after an error.
fn labels(mut o: Object<'_>, count: u64) -> Option<Labels> {
    o.choice(&["labels"], "labels");
    let mut stack = o.objects("labels").into_iter();
    let Some(mut first) = stack.next() else {
        o.wrong("labels", "this needs one");
        return None;
    };
    for further in stack {
        further.errors().add(further.path(), "only one label per route is supported");
    }
    let [start, max, step] = [("start", 16), ("max", LAST_LABEL), ("step", 1)]
        .map(|(key, default)| first.number_or(key, LAST_LABEL, default));
    if start > max || step > 0 && start + count.saturating_sub(1) > max {
        first.wrong("max", format_args!("{count} labels from {start} on go beyond it"));
    }
    match step {
        0 => Some(Labels::Same(start as u32)),
        1 => Some(Labels::Counting(start as u32)),
        _ => {
            first.wrong("step", "only 0 and 1 are supported");
            None
        }
    }
}

/// `count` prefixes of this length, each `step` prefixes after the one before; `None` beyond the address space.
fn ascending(first: IpAddr, length: u8, count: u64, step: u64) -> Option<Vec<Prefix>> {
    let (bits, start) = match first {
        IpAddr::V4(address) => (32, u128::from(u32::from(address))),
        IpAddr::V6(address) => (128, u128::from(address)),
    };
    let each = |i: u64| {
        // A default route has no next prefix.
        let distance = if length == 0 {
            (i == 0).then_some(0)?
        } else {
            u128::from(i) * u128::from(step) * (1u128 << (bits - length))
        };
        let number = start.checked_add(distance)?;
        let address = match first {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(number).ok()?.into()),
            IpAddr::V6(_) => IpAddr::V6(number.into()),
        };
        Prefix::masked(address, length)
    };
    (0..count).map(each).collect()
}

fn community(mut o: Object<'_>) -> u32 {
    let known = [("no_export", 0xffff_ff01), ("no_advertised", 0xffff_ff02), ("no_export_subconfed", 0xffff_ff03)];
    let words = ["manual_as_number", known[0].0, known[1].0, known[2].0, "llgr_stale", "no_llgr"];
    let [asn, custom] = ["as_number", "as_custom"].map(|key| o.number_or(key, u16::MAX.into(), 0) as u32);
    match o.word("type", &words, 0) {
        0 => asn << 16 | custom,
        4 => 0xffff_0006,
        5 => 0xffff_0007,
        at => known[at - 1].1,
    }
}

/// The path as it is sent, if the client describes one. The mode determines how this router's AS is added.
fn as_path(range: &mut Object<'_>, asn: u32) -> Option<Vec<PathSegment>> {
    use PathSegmentKind::{ConfederationSequence, ConfederationSet, Sequence, Set};
    let mut o = range.object("as_path")?;
    let modes = [
        "do_not_include_local_as",
        "include_as_seq",
        "include_as_set",
        "include_as_confed_seq",
        "include_as_confed_set",
        "prepend_to_first_segment",
    ];
    let mode = o.word("as_set_mode", &modes, 0);
    let kinds = [Sequence, Set, ConfederationSequence, ConfederationSet];
    let mut path: Vec<PathSegment> = o.objects("segments").into_iter().map(|o| segment(o, kinds)).collect();
    match mode {
        0 => {}
        5 if !path.is_empty() => path[0].ases.insert(0, asn),
        _ => path.insert(0, PathSegment { kind: kinds[(mode - 1) % kinds.len()], ases: vec![asn] }),
    }
    if path.iter().map(|segment| segment.ases.len()).sum::<usize>() > MOST_ASES {
        o.wrong("segments", format_args!("a path has at most {MOST_ASES} ASes"));
    }
    Some(path)
}

/// Maximum number of ASes in a path.
const MOST_ASES: usize = 254;

fn segment(mut o: Object<'_>, kinds: [PathSegmentKind; 4]) -> PathSegment {
    let kind = kinds[o.word("type", &["as_seq", "as_set", "as_confed_seq", "as_confed_set"], 0)];
    let accepted = || json!({"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": u32::MAX}});
    let list = o.take("as_numbers", accepted).unwrap_or_default();
    let number = |value| super::read::whole(value).and_then(|number| u32::try_from(number).ok()).filter(|asn| *asn > 0);
    let ases: Option<Vec<u32>> = list.as_array().and_then(|list| list.iter().map(number).collect());
    if ases.as_ref().is_none_or(|ases| ases.is_empty()) {
        o.wrong("as_numbers", "this must be a list of AS numbers");
    }
    PathSegment { kind, ases: ases.unwrap_or_default() }
}
