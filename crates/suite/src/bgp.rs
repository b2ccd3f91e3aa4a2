//! The `bgp:` section: AS numbers and peers of all ports.

use super::addresses::{Prefix, to_number};
use super::errors::Problems;
use super::fields::Fields;
use super::keys::{self, wrong_key};
use super::raw::{Entry, Value};
use super::values::{Given, params, resolve};
use drophammer_model::label_edge::PROVIDER_AS;
use drophammer_model::param::Param;
use drophammer_model::registry::{ParamKind, ParamSpec};
use drophammer_model::routes::RouteKind;
use drophammer_model::suite::{Addressing, BgpConfig, BgpProtection, Params, PortBgp, PortConfig, Profile, Secret};
use drophammer_model::trial::Family;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

/// Maximum number of emulated routers on a port.
pub(crate) const MAX_PEERS: u64 = 10_000;
/// Hold Time in seconds: at least 3 (RFC 4271 section 4.2), in a field of 16 bits.
const HOLD: RangeInclusive<u64> = 3..=65_535;

/// `routes`
const ROUTES: Param<RouteKind> = Param::fixed(
    "routes",
    "unicast",
    "what the routes of all sessions have in addition to prefixes: nothing, a label (RFC 8277), or a label and a route distinguisher (RFC 4364); \
     routes with labels need internal ports",
);

/// Keys of the section.
pub(crate) static PARAMS: [ParamSpec; 13] = [
    ParamSpec::fixed("dut_as", ParamKind::Count, "65000", "AS number of the DUT"),
    ParamSpec::fixed(
        "tester_as",
        ParamKind::Count,
        "65001",
        "AS number of the peers on the first port; each later port has the next number",
    ),
    ParamSpec::fixed(
        "peers_per_port",
        ParamKind::Count,
        "1",
        "emulated routers on each port: the host and the addresses that follow it",
    ),
    ParamSpec::optional(
        "peers_per_vlan",
        ParamKind::Count,
        "emulated routers on each VLAN sub-interface, in addition to those on the port itself; default: none",
    ),
    ParamSpec::optional(
        "families",
        ParamKind::Families,
        "IP versions whose routes are exchanged, each in separate sessions; default: those of the ports",
    ),
    ParamSpec::fixed("hold_time", ParamKind::Duration, "90 s", "Hold Time, 3 s to 65535 s (RFC 4271 section 4.2)"),
    ParamSpec::optional(
        "internal",
        ParamKind::Ports,
        "ports whose peers are in the DUT's AS; the DUT is their route reflector and they are its clients (RFC 4456); default: none",
    ),
    ParamSpec::fixed(
        "next_hop_self",
        ParamKind::Flag,
        "false",
        "the DUT advertises external routes to internal peers with itself as next hop (RFC 4271 section 5.1.3)",
    ),
    ROUTES.spec(),
    ParamSpec::optional(
        "md5",
        ParamKind::Text,
        "key with which both sides sign their segments: TCP MD5 (RFC 2385); stored configurations do not show it; default: none",
    ),
    ParamSpec::optional(
        keys::FILE,
        ParamKind::File,
        "instead of `md5`: a file with the key on one line, relative to the suite file",
    ),
    ParamSpec::optional(keys::ENV, ParamKind::Text, "instead of `md5`: the environment variable with the key"),
    ParamSpec::fixed(
        "gtsm",
        ParamKind::Flag,
        "false",
        "both sides send TTL or hop limit 255 and accept no segment with less (RFC 5082)",
    ),
];

/// Reads the section, and sets `bgp` of each port. `ports` are the ports of the suite, if they could be read.
pub(crate) fn read(
    entry: &Entry,
    profile: Profile,
    ports: Option<&mut Vec<PortConfig>>,
    problems: &mut Problems,
) -> Option<BgpConfig> {
    let before = problems.len();
    let known = PARAMS.each_ref().map(|p| p.key);
    let fields = match &entry.value.value {
        Value::Null => None,
        _ => {
            Some(Fields::with_keys(&entry.value, "`bgp`", &known, "bgp: {dut_as: 65000, tester_as: 65001}", problems)?)
        }
    };
    let find = |key: &str| fields.and_then(|f| f.value(key));
    let given = resolve(&PARAMS, profile, find, (&entry.key_span, "`bgp`"), problems)?;
    let span = |key: &str| given.get(key).and_then(|g: &Given| g.node).map_or(&entry.key_span, |n| &n.span);
    let params = params(&given);

    let dut_as = as_number(&params, "dut_as", span("dut_as"), problems);
    let tester_as = as_number(&params, "tester_as", span("tester_as"), problems);
    let mut peers = |key: &str| match params.count(key).unwrap_or(0) {
        n if n <= MAX_PEERS => u32::try_from(n).ok(),
        n => {
            let help = format!("write a number from 1 to {MAX_PEERS}");
            problems.refuse(span(key), format!("`{key}` is {n}, which is out of range"), help)
        }
    };
    let (peers, vlan_peers) = (peers("peers_per_port"), peers("peers_per_vlan"));
    let fits = |time: &Duration| time.subsec_nanos() == 0 && HOLD.contains(&time.as_secs());
    let hold_time = params.duration("hold_time").filter(fits).or_else(|| {
        let help = "write whole seconds, from `3 s` to `65535 s` (RFC 4271 section 4.2)";
        problems.refuse(span("hold_time"), "a BGP message cannot carry this Hold Time", help)
    });
    let internal = params.texts("internal").unwrap_or_default();
    let md5 = params.text("md5");
    if let Some(why) = md5.as_deref().and_then(wrong_key) {
        problems.add(span("md5"), format!("`md5` cannot be a key of TCP MD5: {why}"), "write another key");
    }
    let ports = ports?;
    for name in internal.iter().filter(|name| ports.iter().all(|p| p.name != **name)) {
        let known: Vec<&str> = ports.iter().map(|p| p.name.as_str()).collect();
        let help = format!("the ports are {}", known.join(", "));
        problems.add(span("internal"), format!("there is no port `{name}`"), help);
    }
    let has = |family: Family| ports.iter().all(|p| p.addressing(family).is_some());
    let both = || [Family::Ipv4, Family::Ipv6].into_iter().filter(|f| has(*f)).collect();
    let families: Vec<Family> = params.families("families").unwrap_or_else(both);
    for family in families.iter().filter(|f| !has(**f)) {
        let word = family.to_string().to_lowercase();
        let message = format!("BGP should exchange {family} routes, but the ports have `{word}: off`");
        let help = format!("remove `{word}: off` from the ports, or {family} from `families`");
        problems.add(span("families"), message, help);
    }
    let config = BgpConfig {
        dut_as: dut_as?,
        tester_as: tester_as?,
        peers_per_port: peers?,
        peers_per_vlan: vlan_peers?,
        families,
        hold_time: hold_time?,
        internal,
        next_hop_self: params.flag("next_hop_self") == Some(true),
        routes: ROUTES.find(&params).unwrap_or_default(),
        protection: BgpProtection { md5: md5.map(Secret::new), gtsm: params.flag("gtsm") == Some(true) },
    };
    check_as_numbers(&config, ports, [span("dut_as"), span("tester_as")], problems);
    if config.dut_as != u32::from(PROVIDER_AS) && ports.iter().any(|port| port.customers > 0) {
        let message = format!("the ports have `customers`, whose VPNs are those of AS {PROVIDER_AS}");
        problems.add(span("dut_as"), message, format!("write `dut_as: {PROVIDER_AS}`, or leave it out"));
    }
    check_rooms(&config, ports, &span, problems);
    let external = ports.iter().find(|port| !config.internal.contains(&port.name));
    if let Some(port) = external.filter(|_| config.routes != RouteKind::Unicast) {
        let message = format!(
            "the peers of port `{}` are external: a router that advertises {} routes to them would have to forward by its own labels",
            port.name, config.routes
        );
        let all: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        let help = format!("make the DUT a route reflector: write `internal: [{}]`", all.join(", "));
        problems.add(span(ROUTES.spec().key), message, help);
    }
    if problems.len() > before {
        return None;
    }
    for (i, port) in ports.iter_mut().enumerate() {
        port.bgp = Some(PortBgp {
            asn: if config.internal.contains(&port.name) { config.dut_as } else { config.tester_as + i as u32 },
            dut_as: config.dut_as,
            peers: config.peers_per_port,
            vlan_peers: config.peers_per_vlan,
            hold: config.hold_time,
            families: config.families.clone(),
            next_hop_self: config.next_hop_self,
            routes: config.routes,
            protection: config.protection.clone(),
        });
    }
    Some(config)
}

/// Returns why an AS number cannot be used; `None` if it can.
fn reserved(asn: u64) -> Option<&'static str> {
    match asn {
        0 => Some("stands for no AS (RFC 7607)"),
        23_456 => Some("is AS_TRANS, a placeholder for AS numbers of four octets (RFC 6793)"),
        65_535 | 0xffff_ffff => Some("is reserved (RFC 7300)"),
        asn if asn > 0xffff_ffff => Some("has more than four octets"),
        _ => None,
    }
}

const AS_HELP: &str = "write a number for private use, 64512 to 65534 or 4200000000 to 4294967294 (RFC 6996)";

fn as_number(params: &Params, key: &str, span: &Range<usize>, problems: &mut Problems) -> Option<u32> {
    let asn = params.count(key).unwrap_or(0);
    match reserved(asn) {
        None => u32::try_from(asn).ok(),
        Some(why) => problems.refuse(span, format!("`{key}` is {asn}, which {why}"), AS_HELP),
    }
}

/// The AS numbers of external ports must be valid and differ from the DUT's AS number.
fn check_as_numbers(config: &BgpConfig, ports: &[PortConfig], spans: [&Range<usize>; 2], problems: &mut Problems) {
    let own = |i: usize| u64::from(config.tester_as) + i as u64;
    let external = |i: &usize| !config.internal.contains(&ports[*i].name);
    let last = ports.len() - 1;
    if let Some((asn, why)) = (0..ports.len()).filter(external).find_map(|i| Some((own(i), reserved(own(i))?))) {
        let message =
            format!("the {} ports have the AS numbers {} to {}, but {asn} {why}", ports.len(), own(0), own(last));
        problems.add(spans[1], message, AS_HELP);
    } else if (0..ports.len()).filter(external).any(|i| own(i) == u64::from(config.dut_as)) {
        let (first, last) = (own(0), own(last));
        let message =
            format!("the DUT and a port both have the AS number {}: the ports have {first} to {last}", config.dut_as);
        let help = "give the DUT a number below `tester_as` or beyond the last port's; name ports whose peers are in its AS as `internal`";
        problems.add(spans[0], message, help);
    }
}

/// Checks that peers on sub-interfaces have sub-interfaces, and that all peers have addresses on their links.
fn check_rooms<'s>(
    config: &BgpConfig,
    ports: &[PortConfig],
    span: &dyn Fn(&str) -> &'s Range<usize>,
    problems: &mut Problems,
) {
    if config.peers_per_vlan > 0 && ports.iter().all(|p| p.vlans.is_empty()) {
        let message = "`peers_per_vlan` needs VLAN sub-interfaces, but no port has any";
        problems.add(span("peers_per_vlan"), message, "give a port `vlans: [{id: 100}]`, or remove `peers_per_vlan`");
    }
    for (port, family) in ports.iter().flat_map(|p| config.families.iter().map(move |f| (p, *f))) {
        let own = port.addressing(family).map(|link| (link, format!("port `{}`", port.name), false));
        let vlans = port
            .vlans
            .iter()
            .filter_map(|vlan| Some((vlan.addressing(family)?, format!("{vlan} of port `{}`", port.name), true)));
        for (link, name, is_vlan) in own.into_iter().chain(vlans) {
            let (key, of, peers) = match is_vlan {
                false => ("peers_per_port", "the ports", config.peers_per_port),
                true => ("peers_per_vlan", "the sub-interfaces", config.peers_per_vlan),
            };
            let room = room(link, family);
            if u128::from(peers) > room {
                let message =
                    format!("{name} has room for {room} {family} peers from {} on, not for {peers}", link.host);
                let word = family.to_string().to_lowercase();
                let help = format!(
                    "write `{key}: {room}` or less, or give {of} a shorter prefix with `{word}: {{dut: …, host: …}}`"
                );
                problems.add(span(key), message, help);
            }
        }
    }
}

/// Number of peers that fit on a link: the host's address and those above it, below the DUT's and the broadcast
/// address.
fn room(addressing: &Addressing, family: Family) -> u128 {
    let link = Prefix::around(addressing.dut, addressing.prefix_len);
    let (host, dut) = (to_number(addressing.host), to_number(addressing.dut));
    let broadcast = u128::from(family == Family::Ipv4 && link.has_reserved_ends());
    let top = link.last() - broadcast;
    let top = if dut > host { top.min(dut - 1) } else { top };
    (top + 1).saturating_sub(host)
}
