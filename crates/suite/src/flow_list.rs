//! The `flows:` section: traffic that the suite defines, for the test `fixed_rate`.

use super::addresses::{Prefix, check_block};
use super::errors::{Problems, did_you_mean, quote};
use super::fields::{Fields, add_quantity, items, name, refuse_repeated, such_as};
use super::flow_overlap;
use super::raw::Node;
use super::typed;
use drophammer_model::quantity::{QuantityError, parse_duration};
use drophammer_model::size::{ETHERNET_OVERHEAD, FrameSize, PacketSize};
use drophammer_model::suite::{Endpoint, FlowConfig, FlowRate, PortConfig, VlanTag};
use drophammer_model::traffic::{Arriving, ArrivingTag, Bits, Field, Header, HeaderKind, Vlan};
use drophammer_model::trial::{AddressRange, Family, FlowDuration};
use serde::Deserialize;
use std::net::IpAddr;
use std::time::Duration;

const EXAMPLE: &str = "{name: voice, from: p1, to: p2, rate: 10 kfps, size: 128}";
/// Maximum number of flows of a suite.
const MOST_FLOWS: usize = 4_096;

/// A flow as written in the suite.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    from: String,
    to: String,
    family: Option<Family>,
    #[serde(default)]
    headers: Vec<Header>,
    source: Option<Addresses>,
    destination: Option<Addresses>,
    size: PacketSize,
    rate: String,
    start: Option<String>,
    duration: Option<String>,
    frames: Option<u64>,
    arrives: Option<Arriving>,
    #[serde(default)]
    observe: Vec<Observe>,
}

/// One address or several.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Addresses {
    One(IpAddr),
    Many(Range),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    start: IpAddr,
    #[serde(default = "one")]
    step: u64,
    count: u32,
}

fn one() -> u64 {
    1
}

/// Observations in addition to loss, order, latency and rate.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Observe {
    Destinations,
}

impl Addresses {
    fn range(self) -> AddressRange {
        match self {
            Addresses::One(first) => AddressRange { first, step: 1, count: 1 },
            Addresses::Many(Range { start, step, count }) => AddressRange { first: start, step, count },
        }
    }
}

/// Reads the flows between `ports`. `public` is true if public addresses may be used.
pub(crate) fn read(
    node: &Node,
    ports: &[PortConfig],
    public: bool,
    problems: &mut Problems,
) -> Option<Vec<FlowConfig>> {
    let nodes = items(node, "`flows`", &format!("- {EXAMPLE}"), problems)?;
    if nodes.len() > MOST_FLOWS {
        let help = format!("write at most {MOST_FLOWS}; fields of headers can take many values within one flow");
        return problems.refuse(&node.span, format!("the suite has {} flows", nodes.len()), help);
    }
    let before = problems.len();
    let flows: Vec<_> = nodes.iter().filter_map(|n| Some((n, flow(n, ports, public, problems)?))).collect();
    refuse_repeated("flows", flows.iter().map(|(n, f)| (f.name.as_str(), &n.span)), problems);
    flow_overlap::refuse(&flows, EXAMPLE, problems);
    (problems.len() == before).then(|| flows.into_iter().map(|(_, flow)| flow).collect())
}

fn flow(node: &Node, ports: &[PortConfig], public: bool, problems: &mut Problems) -> Option<FlowConfig> {
    let written: Written = typed::read(node, &such_as(EXAMPLE), problems)?;
    let fields = Fields::of(node, "a flow", EXAMPLE, problems)?;
    let get = |key: &str| fields.get(key).map_or(node, |entry| &entry.value);
    name(get("name"), "the name of a flow", true, problems)?;
    let from = endpoint(get("from"), &written.from, ports, problems)?;
    let to = endpoint(get("to"), &written.to, ports, problems)?;
    let family = family(&written, get("family"), problems)?;
    let tags = tags_of(&from, ports);
    let headers = with_tags(&written.headers, &tags, family, get("from"), problems)?;
    check_mtu(&written.size, &headers, &ports[from.port], get("size"), problems);
    let ends = [("source", written.source, &from), ("destination", written.destination, &to)];
    let mut ranges = Vec::new();
    for (key, given, end) in ends {
        ranges.push(addresses((key, get(key)), given, end, family, ports, public, problems)?);
    }
    let mut time = |key: &str, text: &Option<String>| -> Option<Option<Duration>> {
        let time = text.as_deref().map(parse_duration).transpose();
        time.map_err(|QuantityError(error)| add_quantity(&get(key).span, &error, problems)).ok()
    };
    let (start, duration) = (time("start", &written.start)?, time("duration", &written.duration)?);
    let duration = match (duration, written.frames) {
        (None, None) => FlowDuration::Continuous,
        (Some(time), None) if !time.is_zero() => FlowDuration::Seconds(time.as_secs_f64()),
        (None, Some(frames)) if frames > 0 => FlowDuration::Frames(frames),
        (Some(_), Some(_)) => {
            let message = "the flow has `duration` and `frames`";
            return problems.refuse(
                &get("frames").span,
                message,
                "write one of them; without both it sends for the whole trial",
            );
        }
        _ => {
            return problems.refuse(&node.span, "the flow sends nothing", "write a `duration` or `frames` above 0");
        }
    };
    let rate = written.rate.parse::<FlowRate>();
    let rate = rate.map_err(|QuantityError(error)| add_quantity(&get("rate").span, &error, problems)).ok()?;
    let arrives = written.arrives.clone().or_else(|| {
        // Frames that leave the DUT through a sub-interface have its tags.
        let vlans: Vec<_> = tags_of(&to, ports).into_iter().map(|(_, vid)| ArrivingTag { vid, pcp: None }).collect();
        (!vlans.is_empty()).then(|| Arriving { vlans, ..Arriving::default() })
    });
    let (source, destination) = (ranges[0], ranges[1]);
    Some(FlowConfig {
        name: written.name,
        from,
        to,
        family,
        headers,
        source,
        destination,
        size: written.size,
        rate,
        start: start.unwrap_or(Duration::ZERO),
        duration,
        per_destination: written.observe.contains(&Observe::Destinations),
        arrives,
    })
}

/// The largest packet must fit the MTU of the sending port.
fn check_mtu(size: &PacketSize, headers: &[Header], port: &PortConfig, node: &Node, problems: &mut Problems) {
    let in_front = headers.iter().take_while(|h| !matches!(h.kind(), HeaderKind::Ipv4 | HeaderKind::Ipv6));
    let tags = in_front.filter(|h| matches!(h.kind(), HeaderKind::Vlan | HeaderKind::Mpls)).count() as u32 * 4;
    let packet = |size: &FrameSize| match size {
        FrameSize::Frame(bytes) => u32::from(*bytes).saturating_sub(u32::from(ETHERNET_OVERHEAD) + tags),
        FrameSize::Ip(bytes) => u32::from(*bytes),
    };
    let largest = size.round().iter().map(packet).max().unwrap_or(0);
    if largest > port.mtu {
        let message =
            format!("`{size}` has packets of {largest} bytes, more than the MTU {} of port `{}`", port.mtu, port.name);
        problems.add(
            &node.span,
            message,
            format!("set `mtu: {largest}` or more on every port, or send smaller frames"),
        );
    }
}

/// Reads `p1`, or `p1.100` and `p1.100.200` for sub-interfaces of it.
fn endpoint(node: &Node, text: &str, ports: &[PortConfig], problems: &mut Problems) -> Option<Endpoint> {
    if let Some(port) = ports.iter().position(|p| p.name == text) {
        return Some(Endpoint { port, vlan: None });
    }
    let shown = |port: &PortConfig, vlan: usize| {
        let vids: Vec<_> = port.vlans[vlan].tags.iter().map(|tag| tag.vid.to_string()).collect();
        format!("{}.{}", port.name, vids.join("."))
    };
    let all = || ports.iter().enumerate().flat_map(|(p, port)| (0..port.vlans.len()).map(move |v| (p, port, v)));
    if let Some((port, _, vlan)) = all().find(|(_, port, vlan)| shown(port, *vlan) == text) {
        return Some(Endpoint { port, vlan: Some(vlan) });
    }
    let known: Vec<String> =
        ports.iter().map(|p| p.name.clone()).chain(all().map(|(_, port, vlan)| shown(port, vlan))).collect();
    let help = did_you_mean(text, known.iter().map(String::as_str));
    problems.refuse(&node.span, format!("there is no port or sub-interface {}", quote(text)), help)
}

/// TPID and VLAN identifier of each tag of an endpoint.
fn tags_of(end: &Endpoint, ports: &[PortConfig]) -> Vec<(u16, Bits<12>)> {
    let Some(vlan) = end.vlan else { return Vec::new() };
    let tag = |tag: &VlanTag| Some((tag.tpid, Bits::try_from(u64::from(tag.vid)).ok()?));
    ports[end.port].vlans[vlan].tags.iter().filter_map(tag).collect()
}

/// The headers with the tags of the sub-interface; an error if the flow has VLAN tags already.
fn with_tags(
    headers: &[Header],
    tags: &[(u16, Bits<12>)],
    family: Family,
    from: &Node,
    problems: &mut Problems,
) -> Option<Vec<Header>> {
    let mut headers = headers.to_vec();
    if tags.is_empty() {
        return Some(headers);
    }
    if headers.iter().any(|h| h.kind() == HeaderKind::Vlan) {
        let message = "the flow leaves through a sub-interface and has `vlan` headers as well";
        return problems.refuse(&from.span, message, "write the port alone, or leave the `vlan` headers out");
    }
    fill(&mut headers, family);
    let at = usize::from(headers[0].kind() == HeaderKind::Ethernet);
    let tag = |(tpid, vid): &(u16, Bits<12>)| {
        Header::Vlan(Vlan { tpid: Some(Field::Value(*tpid)), vid: Field::Value(*vid), ..Vlan::default() })
    };
    headers.splice(at..at, tags.iter().map(tag));
    Some(headers)
}

/// Fills in the headers of a flow that has none.
pub(super) fn fill(headers: &mut Vec<Header>, family: Family) {
    if headers.is_empty() {
        headers.push(match family {
            Family::Ipv4 => Header::Ipv4(Default::default()),
            Family::Ipv6 => Header::Ipv6(Default::default()),
        });
        headers.push(Header::Udp(Default::default()));
    }
}

/// The family of the outermost IP header; without such a header, the family as written, or IPv4.
fn family(written: &Written, node: &Node, problems: &mut Problems) -> Option<Family> {
    let outermost = written.headers.iter().find_map(|header| match header.kind() {
        HeaderKind::Ipv4 => Some(Family::Ipv4),
        HeaderKind::Ipv6 => Some(Family::Ipv6),
        _ => None,
    });
    match (outermost, written.family) {
        (Some(found), Some(asked)) if found != asked => {
            let message = format!("the outermost IP header is {found}, not {asked}");
            problems.refuse(&node.span, message, "leave `family` out; it follows from the headers")
        }
        (found, asked) => Some(found.or(asked).unwrap_or(Family::Ipv4)),
    }
}

/// The addresses of one end: those in the suite, or the test addresses of the port or sub-interface.
fn addresses(
    (key, node): (&str, &Node),
    given: Option<Addresses>,
    end: &Endpoint,
    family: Family,
    ports: &[PortConfig],
    public: bool,
    problems: &mut Problems,
) -> Option<AddressRange> {
    let Some(range) = given.map(Addresses::range) else {
        let port = &ports[end.port];
        let own = end.vlan.map_or_else(|| port.addressing(family), |vlan| port.vlans[vlan].addressing(family));
        let own = own.map(|addressing| addressing.destinations);
        if own.is_none() {
            let message = format!("port `{}` has no {family} addresses", ports[end.port].name);
            problems.add(&node.span, message, format!("write `{key}`, or give the port {family} addresses"));
        }
        return own;
    };
    if range.family() != family {
        let message = format!("`{key}` is not an {family} address");
        return problems.refuse(&node.span, message, "write addresses of the family of the outermost IP header");
    }
    if range.count == 0 || range.count > 1_000_000 {
        return problems.refuse(&node.span, format!("`{key}` has {} addresses", range.count), "write 1 to 1000000");
    }
    let before = problems.len();
    let length = if family == Family::Ipv4 { 32 } else { 128 };
    for address in [Some(range.first), range.last()] {
        match address {
            Some(address) => check_block(&Prefix::around(address, length), &node.span, public, problems),
            None => problems.add(&node.span, format!("`{key}` leaves the address space"), "lower `count` or `step`"),
        }
    }
    (problems.len() == before).then_some(range)
}
