//! Flows: each becomes one stream per pair of ends, with its share of the flow's rate and frames.
//!
//! A stream is a flow of a trial whose frames are evenly spaced and never end. The engine starts and stops it so that exactly
//! the right number of frames leaves, whenever a client starts the flow.

use super::{Link, LspPlace, Place};
use crate::model::flow::{Ends, Flow, FlowMetrics, Gap, Length, Rate};
use crate::model::packet::NO_PROTOCOL;
use crate::model::read::Errors;
use crate::model::tag::Tags;
use crate::model::{Config, Port};
use drophammer_model::mac::MacAddr;
use drophammer_model::size::{MIN_FRAME, PacketSize};
use drophammer_model::traffic::{Bits, Ethernet, Field, FieldName, Header, HeaderKind, Ipv4, Ipv6, Vlan};
use drophammer_model::trial::{AddressRange, Family, FlowDuration, FlowSchedule, FlowSpec, Targets};
use drophammer_rig::Config as RigConfig;
use drophammer_wire::stack::{Payload, compile, fit};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A flow of the configuration.
#[derive(Clone, Debug)]
pub struct PlannedFlow {
    /// Its name.
    pub name: String,
    /// Its streams; those with the same ports are adjacent.
    pub streams: Vec<Stream>,
    /// What it measures.
    pub metrics: FlowMetrics,
    /// Tags of its headers.
    pub tags: Tags,
    /// False if the flow has no receiver, so that its arrivals do not count.
    pub receives: bool,
}

/// Frames of a flow from one end to another.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The flow of the trial. If it has no destination MAC address, frames go to the MAC address of `gateway`.
    pub spec: FlowSpec,
    /// Device whose gateway gets the frames, if the flow has no destination MAC address.
    pub gateway: Option<usize>,
    /// The header that gets the label of an LSP.
    pub label: Option<(usize, LspPlace)>,
    /// When it sends.
    pub program: Program,
    /// Total length of the frames in one round, with FCS, in bytes.
    pub sizes: Vec<u64>,
    /// The streams of a flow in one direction take turns: its place in the turn, and the number of streams.
    pub turn: (usize, usize),
    /// Time that a frame takes on the line to the receiver, in ns, if latency does not contain it.
    pub line_ns: f64,
}

/// When a stream sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Program {
    /// Frames per second.
    pub rate_pps: f64,
    /// Time before the first frame.
    pub delay: Duration,
    /// Frames of each burst; `None` to send until the flow is stopped.
    pub frames: Option<u64>,
    /// Number of bursts; `None` for bursts until the flow is stopped.
    pub bursts: Option<u64>,
    /// Time between two bursts.
    pub gap: Duration,
}

/// Maximum number of places in the cycles of tagged fields, of all streams together. All of them are read four times a second.
const MOST_PLACES: usize = 16_384;
/// Largest rate in frames per second.
const MOST_RATE: f64 = 1e9;

pub(super) fn flows(
    config: &Config,
    links: &[Link],
    rig: &RigConfig,
    places: &HashMap<String, Place>,
    errors: &Errors,
    warnings: &mut Vec<String>,
) -> Vec<PlannedFlow> {
    let (mut planned, mut tagged) = (Vec::new(), 0);
    for (i, flow) in config.flows.iter().enumerate() {
        let mut builder =
            FlowBuilder { config, links, rig, places, errors, warnings, path: format!("flows[{i}]"), index: i };
        let flow = builder.flow(flow);
        tagged += flow.as_ref().map_or(0, |flow| flow.tags.of_place.len() * flow.streams.len());
        if tagged > MOST_PLACES {
            let text =
                "the frames after which tagged fields repeat, of all flows (times pairs of ends) together, are at most";
            builder.wrong("packet", format_args!("{text} {MOST_PLACES}, and {tagged} with this flow"));
            break;
        }
        planned.extend(flow);
    }
    planned
}

/// Where frames of a flow start, and where they go.
type Pairs<'a> = Vec<(End<'a>, End<'a>)>;

/// One end of a stream.
#[derive(Clone)]
struct End<'a> {
    port: usize,
    place: Option<&'a Place>,
}

struct FlowBuilder<'a, 'w> {
    config: &'a Config,
    links: &'a [Link],
    rig: &'a RigConfig,
    places: &'a HashMap<String, Place>,
    errors: &'a Errors,
    warnings: &'w mut Vec<String>,
    path: String,
    index: usize,
}

impl<'a> FlowBuilder<'a, '_> {
    fn wrong(&self, key: &str, reason: impl std::fmt::Display) {
        self.errors.add(&format!("{}.{key}", self.path), reason);
    }

    fn port(&self, name: &str, key: &str) -> Option<usize> {
        let found = self.config.ports.iter().position(|port: &Port| port.name == name);
        if found.is_none() {
            self.wrong(key, format_args!("there is no port `{name}`"));
        }
        found
    }

    fn end(&self, name: &str, key: &str) -> Option<End<'a>> {
        let found = self.places.get(name);
        if found.is_none() {
            self.wrong(key, format_args!("there is no device, ethernet, address or route range `{name}`"));
        }
        found.map(|place| End { port: place.port, place: Some(place) })
    }

    /// The pairs of ends in the order of their names, and other ports at which frames may arrive. `None` after an error.
    fn pairs(&self, flow: &Flow) -> Option<(Pairs<'a>, Vec<usize>)> {
        match &flow.ends {
            Ends::Port { tx, rx } => {
                let from = self.port(tx, "tx_rx.port.tx_name")?;
                let to: Option<Vec<usize>> = rx.iter().map(|rx| self.port(rx, "tx_rx.port.rx_names")).collect();
                let to = to?;
                let end = |port| End { port, place: None };
                Some(match to.split_first() {
                    Some((first, also)) => (vec![(end(from), end(*first))], also.to_vec()),
                    // The frames may arrive anywhere, and count at the port where they arrive. The first receiver is another port if there is
                    // one: few frames come back to their own port, and frames at a port other than the first one take longer to count.
                    None => {
                        let mut also = self.others_on_its_host(from);
                        let to = also.first_mut().map_or(from, |other| std::mem::replace(other, from));
                        (vec![(end(from), end(to))], also)
                    }
                })
            }
            Ends::Device { tx, rx, mesh, .. } => {
                let ends =
                    |names: &[String], key| names.iter().map(|name| self.end(name, key)).collect::<Option<Vec<_>>>();
                let (tx, rx) = (ends(tx, "tx_rx.device.tx_names")?, ends(rx, "tx_rx.device.rx_names")?);
                let pairs = if *mesh {
                    tx.iter().flat_map(|from| rx.iter().map(|to| (from.clone(), to.clone()))).collect()
                } else {
                    tx.into_iter().zip(rx).collect()
                };
                Some((pairs, Vec::new()))
            }
        }
    }

    /// All other ports on the host of this one. The frames of a flow are counted on one host only.
    fn others_on_its_host(&self, port: usize) -> Vec<usize> {
        let host = |port: usize| self.config.ports[port].interface.split_once('/').map(|(host, _)| host);
        (0..self.config.ports.len()).filter(|other| *other != port && host(*other) == host(port)).collect()
    }

    fn flow(&mut self, flow: &Flow) -> Option<PlannedFlow> {
        let (pairs, also) = self.pairs(flow)?;
        if flow.smallest < u64::from(MIN_FRAME) {
            self.warnings.push(format!(
                "{}.size: Ethernet frames have at least {MIN_FRAME} bytes, so frames of {} bytes are sent with {MIN_FRAME}",
                self.path, flow.smallest
            ));
        }
        let mut streams = self.streams(flow, &flow.packet, pairs.clone(), &also)?;
        if matches!(flow.ends, Ends::Device { both_ways: true, .. }) {
            let back = pairs.into_iter().map(|(from, to)| (to, from)).collect();
            let mut packet = flow.packet.clone();
            packet.iter_mut().for_each(reverse);
            streams.extend(self.streams(flow, &packet, back, &also)?);
        }
        let (name, metrics, tags) = (flow.name.clone(), flow.metrics, flow.tags.clone());
        Some(PlannedFlow { name, streams, metrics, tags, receives: flow.receives() })
    }

    /// One stream for each pair. The streams share the flow's rate, frames and values in the order of the pairs.
    fn streams(
        &mut self,
        flow: &Flow,
        packet: &[Header],
        pairs: Vec<(End<'a>, End<'a>)>,
        also: &[usize],
    ) -> Option<Vec<Stream>> {
        let count = pairs.len();
        let mut pairs: Vec<_> = pairs.into_iter().enumerate().collect();
        pairs.sort_by_key(|(_, (from, to))| (from.port, to.port));
        let each = |(i, (from, to))| self.stream(flow, packet, from, to, also, (i, count));
        pairs.into_iter().map(each).collect()
    }

    fn stream(
        &mut self,
        flow: &Flow,
        packet: &[Header],
        from: End<'a>,
        to: End<'a>,
        also: &[usize],
        share: (usize, usize),
    ) -> Option<Stream> {
        let mut headers = packet.to_vec();
        self.share(&mut headers, share);
        if headers.first().is_none_or(|first| first.kind() != HeaderKind::Ethernet) {
            if !headers.is_empty() {
                self.wrong("packet", "the first header must be `ethernet`");
                return None;
            }
            let between_devices = from.place.is_some();
            let ethertype = (!between_devices).then_some(Field::Value(0xffff));
            headers.push(Header::Ethernet(Ethernet { ethertype, ..Ethernet::default() }));
            // Devices speak IP.
            headers.extend(between_devices.then(|| empty_packet(self.family(&[], &from, &to))));
        }
        let family = self.family(&headers, &from, &to);
        let (sources, destinations) = self.addresses(&mut headers, family, &from, &to)?;
        let gateway = self.link_addresses(&mut headers, &from);
        let untagged = headers.len();
        self.tag(&mut headers, &from);
        let tags = headers.len() - untagged;
        let lsp = from.place.and_then(|place| place.lsp);
        let label = flow.learned_label.zip(lsp).map(|(at, lsp)| (at + tags, lsp));
        let size = self.fitted(&headers, flow, &self.links[from.port])?;
        let sizes: Vec<u64> = size.round().iter().map(|size| u64::from(size.frame_bytes(false))).collect();
        let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
        let cut_through = flow.metrics.cut_through && flow.receives();
        let line_ns = if cut_through { self.line_ns(&sizes, &self.links[to.port])? } else { 0.0 };
        let program = self.program(flow, mean, from.port, share)?;
        let group = format!("{}/{}/{}", self.index, from.port, to.port);
        let schedule = FlowSchedule { rate_pps: program.rate_pps, delay_s: 0.0, duration: FlowDuration::Continuous };
        let spec = FlowSpec {
            also: also.to_vec(),
            family,
            headers,
            lenient: true,
            size: Some(size),
            schedule: Some(schedule),
            ipdv: flow.metrics.latency && flow.receives(),
            cycle: flow.tags.of_place.len() as u32,
            ..FlowSpec::new(group, from.port, to.port, sources, destinations)
        };
        Some(Stream { spec, gateway, label, program, sizes, turn: share, line_ns })
    }

    /// Gives the headers the values of this pair's frames. The pairs take turns in sending the frames of the flow.
    fn share(&mut self, headers: &mut [Header], (number, count): (usize, usize)) {
        if count == 1 {
            return;
        }
        let mut all = true;
        headers.iter_mut().for_each(|header| all &= header.share(number as u64, count as u64));
        if !all && number == 0 {
            self.warnings.push(format!(
                "{}.packet: a field has too many values to share them between {count} pairs, so each pair sends all of them",
                self.path
            ));
        }
    }

    /// Time that a frame takes on this line, in ns. The tester sees whole frames, so latency until the first bit is shorter by
    /// this time. Over a virtual link, the whole frame arrives at one instant.
    fn line_ns(&self, sizes: &[u64], link: &Link) -> Option<f64> {
        const MODE: &str = "metrics.latency.mode";
        if link.is_virtual {
            return Some(0.0);
        }
        let Some(speed) = link.speed else {
            self.wrong(MODE, "cut_through needs the speed of the receiving port; set `speed` in layer1");
            return None;
        };
        if sizes.iter().any(|size| *size != sizes[0]) {
            self.wrong(MODE, "cut_through is measured for frames of one size only; use store_forward");
            return None;
        }
        Some((sizes[0] * 8) as f64 * 1e9 / speed.0 as f64)
    }

    /// IP version of the outermost IP header; if there is none, of the ends.
    fn family(&self, headers: &[Header], from: &End<'_>, to: &End<'_>) -> Family {
        let of_headers = headers.iter().find_map(|header| match header {
            Header::Ipv4(_) => Some(Family::Ipv4),
            Header::Ipv6(_) => Some(Family::Ipv6),
            _ => None,
        });
        let of_end = |end: &End<'_>| {
            let place = end.place?;
            let of_routes = place.routes.as_ref().map(|routes| routes.family());
            let of_address = place.addresses.first().map(|a| if a.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 });
            of_routes.or(of_address)
        };
        of_headers.or_else(|| of_end(from)).or_else(|| of_end(to)).unwrap_or(Family::Ipv4)
    }

    /// Takes single addresses out of the outermost IP header, because the generator writes them faster from the flow, and
    /// gives all other headers their addresses. Returns the addresses of the flow.
    fn addresses(
        &self,
        headers: &mut [Header],
        family: Family,
        from: &End<'_>,
        to: &End<'_>,
    ) -> Option<(AddressRange, Targets)> {
        let nobody = match family {
            Family::Ipv4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::Ipv6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let one = |first| AddressRange { first, step: 1, count: 1 };
        let mut found = [None, None];
        let mut outermost = true;
        for header in headers {
            let fields = match header {
                Header::Ipv4(ip) => [take(&mut ip.source, outermost), take(&mut ip.destination, outermost)],
                Header::Ipv6(ip) => [take(&mut ip.source, outermost), take(&mut ip.destination, outermost)],
                _ => continue,
            };
            if std::mem::take(&mut outermost) {
                found = fields;
            }
        }
        if outermost {
            return Some((one(nobody), one(nobody).into()));
        }
        let own = |end: &End<'_>| {
            let place = end.place?;
            let of_routes = place
                .routes
                .as_ref()
                .filter(|routes| routes.family() == family)
                .map(|routes| routes.prefix(0).address());
            of_routes.or_else(|| place.addresses.iter().copied().find(|address| address.is_ipv4() == nobody.is_ipv4()))
        };
        let missing = |key: &str| {
            let text = format_args!("the device has no {family} address; write one");
            self.wrong(&format!("packet: {key}"), text);
        };
        let source = match found[0] {
            Some(Taken::Address(address)) => address,
            Some(Taken::Left) => nobody,
            None if from.place.is_none() => nobody,
            None => own(from).or_else(|| {
                missing("src");
                None
            })?,
        };
        let destinations = match found[1] {
            Some(Taken::Address(address)) => one(address).into(),
            Some(Taken::Left) => one(nobody).into(),
            None => match to.place.and_then(|place| place.routes.as_ref()).filter(|routes| routes.family() == family) {
                Some(routes) => Targets::Routes { routes: routes.clone(), first: 0, count: routes.len() },
                None if to.place.is_none() => one(nobody).into(),
                None => {
                    let address = own(to).or_else(|| {
                        missing("dst");
                        None
                    })?;
                    one(address).into()
                }
            },
        };
        Some((one(source), destinations))
    }

    /// Sets the MAC addresses. Returns the device whose gateway is the destination, unless the flow has its own
    /// destination.
    fn link_addresses(&self, headers: &mut [Header], from: &End<'_>) -> Option<usize> {
        let mut gateway = None;
        for (i, header) in headers.iter_mut().enumerate() {
            let Header::Ethernet(ethernet) = header else { continue };
            let nobody = || Some(Field::Value(MacAddr([0; 6])));
            match from.place.filter(|_| i == 0) {
                Some(place) => {
                    let own = self.rig.ports[place.port].devices[place.device].mac;
                    ethernet.source = ethernet.source.take().or(Some(Field::Value(MacAddr(own.0))));
                    gateway = ethernet.destination.is_none().then_some(place.device);
                }
                None => {
                    ethernet.source = ethernet.source.take().or_else(nobody);
                    ethernet.destination = ethernet.destination.take().or_else(nobody);
                }
            }
        }
        gateway
    }

    /// Adds the VLAN tags of the sending device, unless the flow has tags.
    fn tag(&self, headers: &mut Vec<Header>, from: &End<'_>) {
        let Some(place) = from.place else { return };
        if headers.iter().any(|header| header.kind() == HeaderKind::Vlan) {
            return;
        }
        let tags = self.rig.ports[place.port].devices[place.device].tags;
        for (i, tag) in tags.as_slice().iter().enumerate() {
            let tpid = Some(Field::Value(tag.tpid));
            let vlan = Vlan { tpid, vid: Bits::new(tag.vid.into()).into(), ..Vlan::default() };
            headers.insert(1 + i, Header::Vlan(vlan));
        }
        // The type that stands for a payload without one moves behind the tags.
        let last = tags.as_slice().len();
        let given = match headers.first_mut() {
            Some(Header::Ethernet(ethernet)) if last > 0 => ethernet.ethertype.take(),
            _ => None,
        };
        if let Some(Header::Vlan(vlan)) = headers.get_mut(last) {
            vlan.ethertype = given;
        }
    }

    /// The frame sizes that are sent. A size that is too small for the headers is enlarged, with a warning.
    fn fitted(&mut self, headers: &[Header], flow: &Flow, link: &Link) -> Option<PacketSize> {
        let mut whole = headers.to_vec();
        for header in &mut whole {
            for name in [FieldName::Source, FieldName::Destination] {
                let is_address = matches!(header.kind(), HeaderKind::Ethernet | HeaderKind::Ipv4 | HeaderKind::Ipv6);
                if is_address && header.field(name).is_none() {
                    header.set(name, 0);
                }
            }
        }
        let fill = |_: &mut [u8]| {};
        let payload = Payload::Signed(&fill);
        let mut enlarged = Vec::new();
        let mut resize = |size| {
            let fitted = fit(&whole, size, payload)?;
            compile(&whole, fitted, payload)?;
            if fitted != size {
                enlarged.push((size.to_string(), fitted.to_string()));
            }
            Ok(fitted)
        };
        let size = match &flow.size {
            PacketSize::Fixed(size) => resize(*size).map(PacketSize::Fixed),
            PacketSize::Mix { name, parts } => {
                let parts: Result<Vec<_>, _> = parts.iter().map(|(size, n)| Ok((resize(*size)?, *n))).collect();
                parts.map(|parts| PacketSize::Mix { name: name.clone(), parts })
            }
        };
        let size = size.map_err(|e: drophammer_wire::stack::StackError| self.wrong("packet", e)).ok()?;
        if let Some((small, needed)) = enlarged.first() {
            let text = "the headers and the 12 bytes that count a frame need more";
            self.warnings
                .push(format!("{}.size: frames of {small} bytes are sent with {needed} bytes: {text}", self.path));
        }
        let largest = size.round().iter().map(|size| usize::from(size.frame_bytes(false)) - 4).max().unwrap_or(0);
        if largest > link.largest_frame {
            let most = link.largest_frame + 4;
            self.wrong(
                "size",
                format_args!("frames of {} bytes are larger than the {most} bytes that the port sends", largest + 4),
            );
            return None;
        }
        Some(size)
    }

    fn program(&mut self, flow: &Flow, mean: f64, from: usize, (place, count): (usize, usize)) -> Option<Program> {
        let link = &self.links[from];
        let rate = match flow.rate {
            Rate::Frames(rate) => rate,
            Rate::Bits(bits) => bits / (8.0 * mean),
            Rate::Percent(percent) => {
                let Some(speed) = link.speed.or(link.reported) else {
                    self.wrong("rate.percentage", "the speed of the port is unknown; write layer1.speed");
                    return None;
                };
                if link.speed.is_none() {
                    let text = format!(
                        "{}.rate.percentage: port `{}` has no speed of its own, so the rate is a share of the {speed} that its virtual link reports; layer1.speed sets another one",
                        self.path, self.config.ports[from].name
                    );
                    // Several pairs may start at one port.
                    if !self.warnings.contains(&text) {
                        self.warnings.push(text);
                    }
                }
                speed.line_rate(mean).scaled(percent / 100.0).pps()
            }
        };
        if rate > MOST_RATE {
            self.wrong("rate", "more than 1,000,000,000 frames per second are not supported");
            return None;
        }
        let time = |gap: Gap, key: &str| match (gap, link.speed) {
            (Gap::Time(time), _) => Some(time),
            (Gap::Bytes(bytes), Some(speed)) => Duration::try_from_secs_f64(bytes * 8.0 / speed.0 as f64).ok(),
            (Gap::Bytes(bytes), None) if bytes <= 12.0 => Some(Duration::ZERO),
            _ => {
                self.wrong(key, "the speed of the port is unknown; write layer1.speed, or the time");
                None
            }
        };
        let own = |frames: u64| frames / count as u64 + u64::from((place as u64) < frames % count as u64);
        let rate_pps = rate / count as f64;
        let once = |delay, frames| Program { rate_pps, delay, frames, bursts: Some(1), gap: Duration::ZERO };
        Some(match flow.length {
            Length::Continuous { delay } => once(time(delay, "duration.continuous.delay")?, None),
            Length::Frames { frames, delay } => once(time(delay, "duration.fixed_packets.delay")?, Some(own(frames))),
            Length::Seconds { seconds, delay } => {
                let frames = ((rate * seconds + 1e-9) as u64).max(1);
                once(time(delay, "duration.fixed_seconds.delay")?, Some(own(frames)))
            }
            Length::Bursts { bursts, frames, gap } => {
                let gap = time(gap, "duration.burst.inter_burst_gap")?;
                Program { rate_pps, delay: Duration::ZERO, frames: Some(own(frames)), bursts, gap }
            }
        })
    }
}

/// Swaps the addresses and ports of a header.
fn reverse(header: &mut Header) {
    use std::mem::swap;
    match header {
        Header::Ethernet(ethernet) => swap(&mut ethernet.source, &mut ethernet.destination),
        Header::Ipv4(ip) => swap(&mut ip.source, &mut ip.destination),
        Header::Ipv6(ip) => swap(&mut ip.source, &mut ip.destination),
        Header::Udp(udp) => swap(&mut udp.source_port, &mut udp.destination_port),
        Header::Tcp(tcp) => swap(&mut tcp.source_port, &mut tcp.destination_port),
        _ => {}
    }
}

/// An IP header that is the innermost header of the packet.
fn empty_packet(family: Family) -> Header {
    match family {
        Family::Ipv4 => Header::Ipv4(Ipv4 { protocol: Some(Field::Value(NO_PROTOCOL.0)), ..Ipv4::default() }),
        Family::Ipv6 => Header::Ipv6(Ipv6 { next_header: Some(Field::Value(NO_PROTOCOL.1)), ..Ipv6::default() }),
    }
}

/// The content of an address field.
enum Taken {
    /// One address, which was taken out of the header.
    Address(IpAddr),
    /// Several addresses, which stay in the header.
    Left,
}

/// Takes a single address out of the field of the outermost packet; other packets get the unspecified address if they have none.
fn take<A>(field: &mut Option<Field<A>>, outermost: bool) -> Option<Taken>
where
    A: drophammer_model::traffic::FieldValue + Into<IpAddr>,
{
    if !outermost {
        field.get_or_insert_with(|| Field::Value(A::from_bits(0)));
        return None;
    }
    match field.take() {
        None => None,
        Some(Field::Value(address)) => Some(Taken::Address(address.into())),
        several => {
            *field = several;
            Some(Taken::Left)
        }
    }
}
