//! Plans a trial before it starts: computes and allocates everything that the packet path needs.

use crate::analyzer::{Analyzer, Register, destination};
use crate::generator::{PortGenerator, Stream, destination_orders};
use crate::headers;
pub use crate::layout::{Layout, QueueIndex};
use crate::losses::Distance;
use crate::payload::Pattern;
use crate::permutation::Permutation;
use crate::transmit::FlowNames;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Family, FlowDuration, FlowSpec, Load, MAX_TARGETS, PortIndex, TrialSpec};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::{MAX_FLOWS, TrialKey};
use serde::{Deserialize, Serialize};

/// What a tester port knows about its link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// MAC address of the port.
    pub mac: MacAddr,
    /// The device's MAC address, from ARP.
    pub device_ipv4: Option<MacAddr>,
    /// The device's MAC address, from Neighbor Discovery.
    pub device_ipv6: Option<MacAddr>,
    /// The addresses for each VLAN.
    pub vlans: Vec<VlanNeighbour>,
}

/// What a tester port knows about the device behind VLAN tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanNeighbour {
    /// VLAN identifiers, outermost first.
    pub vids: Vec<u16>,
    /// The tester's MAC address behind these tags.
    pub mac: MacAddr,
    /// The device's MAC address, from ARP.
    pub device_ipv4: Option<MacAddr>,
    /// The device's MAC address, from Neighbor Discovery.
    pub device_ipv6: Option<MacAddr>,
}

impl Neighbour {
    /// Returns the tester's MAC address behind tags with these identifiers; the port's address if the tags are unknown.
    fn own(&self, vids: &[u16]) -> MacAddr {
        self.vlans.iter().find(|vlan| vlan.vids == vids).map_or(self.mac, |vlan| vlan.mac)
    }

    /// Returns the device's MAC address behind tags with these identifiers.
    pub(crate) fn device(&self, family: Family, vids: &[u16]) -> Option<MacAddr> {
        let (ipv4, ipv6) = if vids.is_empty() {
            (self.device_ipv4, self.device_ipv6)
        } else {
            let vlan = self.vlans.iter().find(|vlan| vlan.vids == vids)?;
            (vlan.device_ipv4, vlan.device_ipv6)
        };
        match family {
            Family::Ipv4 => ipv4,
            Family::Ipv6 => ipv6,
        }
    }
}

/// Identity of a trial within a run.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Seed of the run, so that all trials have the same addresses (RFC 4814).
    pub seed: u64,
    /// Key of this trial.
    pub key: TrialKey,
    /// Keys of earlier trials, to recognise stale frames.
    pub earlier: Vec<TrialKey>,
    /// Maximum backlog in ns of load that a late generator catches up with; it skips frames beyond that. It sends at
    /// most 1.2 times the load, so that it offers no burst that was not requested.
    pub max_backlog_ns: u64,
    /// Latency in ns above which a frame counts as late.
    pub late_ns: u64,
}

/// The reason why a trial cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages name the fields
pub enum PlanError {
    /// A flow uses a port that does not exist.
    #[error("flow {flow} uses port {port}, but there are {ports} ports")]
    NoSuchPort { flow: usize, port: PortIndex, ports: usize },
    /// The tester has a different MAC address behind tags than without, but a port sends test frames from a single address.
    #[error("the emulated devices on port {port}{} have the MAC address {mac}; give them the same address as the first device of the port", in_vlan(.vids))]
    OtherMac { port: PortIndex, vids: Vec<u16>, mac: MacAddr },
    /// The device's MAC address on a port is unknown.
    #[error("the device does not answer on port {port} for {family}{} (no MAC address)", in_vlan(.vids))]
    NoNeighbour { port: PortIndex, family: Family, vids: Vec<u16> },
    /// The headers do not form a frame.
    #[error("flow {flow} ({group}): {reason}")]
    Headers { flow: usize, group: String, reason: String },
    /// Addresses do not match the flow's family, or are missing.
    #[error("flow {flow}: it has no source, or addresses of another family than {family}")]
    WrongAddresses { flow: usize, family: Family },
    /// There are no destinations, more than can be counted separately, or some that do not exist.
    #[error("flow {flow}: it needs 1 to {MAX_TARGETS} destinations, and all of them must exist")]
    NoSuchDestinations { flow: usize },
    /// A flow must be received by one lane, but may arrive at queues of several lanes.
    #[error(
        "flow {flow} has an alternate path, is counted by destination or place, or its delay variation is measured, so one lane must \
         receive it, but queues of port {port} are on another lane or host than the port that it leads to"
    )]
    Apart { flow: usize, port: PortIndex },
    /// An event without a time.
    #[error("event `{label}` has the time {at_s} s; write 0 to 1,000,000 s")]
    NoTime { label: String, at_s: String },
    /// No flows, too many flows, or nothing to send.
    #[error("{0}")]
    Empty(String),
}

fn in_vlan(vids: &[u16]) -> String {
    let vids: Vec<_> = vids.iter().map(u16::to_string).collect();
    if vids.is_empty() { String::new() } else { format!(" in VLAN {}", vids.join(" in ")) }
}

/// Returns `n` zeros, followed by an unused cache line. Data that a thread writes per frame either fills whole cache
/// lines (types with `repr(align)`) or has such a gap behind it, so that no two threads write to the same line.
pub(crate) fn spaced<T: Clone + Default>(n: usize) -> Vec<T> {
    let mut zeros = Vec::with_capacity(n + 64usize.div_ceil(size_of::<T>()));
    zeros.resize(n, T::default());
    zeros
}

/// Generators and analyzer of one lane.
pub(crate) struct Part {
    pub(crate) generators: Vec<PortGenerator>,
    pub(crate) analyzer: Analyzer,
}

impl Part {
    /// Sets the start of the trial.
    pub(crate) fn begin(&mut self, start: Instant) {
        self.generators.iter_mut().for_each(|g| g.begin(start));
        self.analyzer.begin(start);
    }
}

/// A trial, ready to run.
pub struct Plan {
    /// The parts of the lanes, one per lane.
    pub(crate) parts: Vec<Part>,
    pub(crate) layout: Layout,
    pub(crate) groups: Vec<String>,
    /// Groups that consist of background flows.
    pub(crate) background: Vec<usize>,
    pub(crate) flows: FlowNames,
    /// Flows counted by destination, with the order of their destinations.
    pub(crate) destinations: Vec<(usize, Permutation)>,
    /// The events, in order of time.
    pub(crate) events: Vec<PlannedEvent>,
    pub(crate) drain_ns: u64,
    pub(crate) maximum: bool,
    /// Distance between losses of one episode, if other hosts send some of the flows.
    pub(crate) distance: Option<Distance>,
}

/// An event with its time in ns after the start.
#[derive(Clone, Debug)]
pub(crate) struct PlannedEvent {
    pub(crate) at_ns: u64,
    pub(crate) event: usize,
    pub(crate) label: String,
}

/// Latest possible time of an event.
const LAST_EVENT_S: f64 = 1e6;

fn planned_events(spec: &TrialSpec) -> Result<Vec<PlannedEvent>, PlanError> {
    let mut events = Vec::with_capacity(spec.events.len());
    for e in &spec.events {
        if !(0.0..=LAST_EVENT_S).contains(&e.at_s) {
            return Err(PlanError::NoTime { label: e.label.clone(), at_s: e.at_s.to_string() });
        }
        events.push(PlannedEvent { at_ns: (e.at_s * 1e9).round() as u64, event: e.event, label: e.label.clone() });
    }
    // A stable sort keeps the order of simultaneous events.
    events.sort_by_key(|e| e.at_ns);
    Ok(events)
}

/// Returns the flows that are counted by destination, with the order of their destinations.
fn tallied(spec: &TrialSpec, orders: &[Permutation]) -> Vec<(usize, Permutation)> {
    let flows = spec.flows.iter().zip(orders).enumerate().filter(|(_, (flow, _))| flow.per_destination);
    flows.map(|(id, (_, order))| (id, *order)).collect()
}

/// Returns the groups that contain only background flows.
fn background(spec: &TrialSpec, names: &FlowNames) -> Vec<usize> {
    let mut tested = vec![false; names.groups().len()];
    for (id, _) in spec.flows.iter().enumerate().filter(|(_, flow)| !flow.background) {
        names.group_of(id).into_iter().for_each(|group| tested[group] = true);
    }
    (0..tested.len()).filter(|group| !tested[*group]).collect()
}

fn check_addresses(i: usize, flow: &FlowSpec) -> Result<(), PlanError> {
    let families = [flow.sources.family(), flow.destinations.family()];
    if families != [flow.family; 2] || flow.sources.count == 0 {
        return Err(PlanError::WrongAddresses { flow: i, family: flow.family });
    }
    if !flow.destinations.exist() || !(1..=MAX_TARGETS).contains(&flow.destinations.count()) {
        return Err(PlanError::NoSuchDestinations { flow: i });
    }
    Ok(())
}

fn check_headers(i: usize, flow: &FlowSpec) -> Result<(), PlanError> {
    let wrong = |reason: String| Err(PlanError::Headers { flow: i, group: flow.group.clone(), reason });
    for header in &flow.headers {
        for (name, field) in header.fields() {
            if let Some(Err(e)) = field.map(|field| field.check()) {
                return wrong(format!("`{name}` of `{}`: {e}", header.kind()));
            }
        }
    }
    headers::wrong_ip(flow).map_or(Ok(()), |reason| wrong(reason.into()))
}

fn check_schedule(i: usize, flow: &FlowSpec, load: &Load) -> Result<(), PlanError> {
    let bad = |why: &str| Err(PlanError::Empty(format!("flow {i}: {why}")));
    let Some(schedule) = &flow.schedule else {
        return match load {
            Load::Flows => bad("it has no rate of its own, and its port has no load"),
            _ => Ok(()),
        };
    };
    if !(schedule.rate_pps.is_finite() && schedule.rate_pps > 0.0) {
        return bad("its rate is not above 0");
    }
    let length = match schedule.duration {
        FlowDuration::Seconds(seconds) => seconds,
        FlowDuration::Continuous | FlowDuration::Frames(_) => 0.0,
    };
    if [schedule.delay_s, length].iter().all(|s| (0.0..=LAST_EVENT_S).contains(s)) {
        Ok(())
    } else {
        bad("its delay or its length is not between 0 and 1,000,000 s")
    }
}

/// Maximum length of a flow's cycle.
pub(crate) const MAX_CYCLE: u32 = 65_536;

fn check_cycle(i: usize, flow: &FlowSpec) -> Result<(), PlanError> {
    if flow.cycle > MAX_CYCLE || flow.cycle > 0 && flow.per_destination {
        let why =
            format!("flow {i}: a cycle has at most {MAX_CYCLE} places, and none of its flows counts by destination");
        return Err(PlanError::Empty(why));
    }
    Ok(())
}

/// Window bits of all flows together, to distinguish duplicates from late frames (256 MiB).
const WINDOW_BUDGET: u64 = 1 << 31;
/// Window bits for continuous traffic (2 MiB), which would outlast any window.
const CONTINUOUS_WINDOW_BUDGET: u64 = 1 << 24;
/// How far arriving frames may extend a drain (RFC 2544 section 23 d).
const RESIDUAL_NS: u64 = 2_000_000_000;

/// Returns the maximum length of a drain of `drain_ns`.
pub(crate) fn longest_drain(drain_ns: u64) -> u64 {
    if drain_ns == 0 { 0 } else { drain_ns.max(RESIDUAL_NS) }
}

/// Maximum number of time bins per group.
pub(crate) const MAX_BINS: usize = 1_000_000;
/// Number of time bins per group of continuous traffic, which would outlast any number. Later frames are in no bin.
pub const CONTINUOUS_BINS: usize = 300_000;

impl Plan {
    /// Plans `spec` over `ports`, for one lane.
    ///
    /// # Errors
    /// [`PlanError`]. Nothing has been sent.
    pub fn new(spec: &TrialSpec, ports: &[Neighbour], timing: &Timing) -> Result<Plan, PlanError> {
        Plan::on_lanes(spec, ports, timing, Layout::one(ports.len()))
    }

    /// Plans `spec` over `ports`, for the lanes of `layout`, which must have the same number of ports. Frames and their
    /// times do not depend on the number of lanes and queues. Only lanes with a queue of a flow's destination port have
    /// receiver state for the flow. A layout with queues of other hosts ([`Layout::on_host`]) plans only the part of this
    /// host, but checks the whole trial.
    ///
    /// # Errors
    /// [`PlanError`]. Nothing has been sent.
    pub fn on_lanes(spec: &TrialSpec, ports: &[Neighbour], timing: &Timing, layout: Layout) -> Result<Plan, PlanError> {
        assert_eq!(layout.ports(), ports.len(), "the layout is for as many ports");
        if spec.flows.is_empty() || spec.flows.len() > MAX_FLOWS as usize {
            return Err(PlanError::Empty(format!("a trial has 1 to {MAX_FLOWS} flows, not {}", spec.flows.len())));
        }
        for (i, flow) in spec.flows.iter().enumerate() {
            check_addresses(i, flow)?;
            for port in [flow.from, flow.to].into_iter().chain(flow.also.iter().copied()) {
                if port >= ports.len() {
                    return Err(PlanError::NoSuchPort { flow: i, port, ports: ports.len() });
                }
            }
            if let Some(port) = layout.apart(flow) {
                return Err(PlanError::Apart { flow: i, port });
            }
            check_headers(i, flow)?;
            let vids = headers::tags(&flow.headers);
            if headers::needs_device(&flow.headers) && ports[flow.from].device(flow.family, &vids).is_none() {
                return Err(PlanError::NoNeighbour { port: flow.from, family: flow.family, vids });
            }
            let arriving = headers::arriving(flow).vlans;
            let ends = [
                headers::needs_source(&flow.headers).then_some((flow.from, vids)),
                (!flow.lenient).then(|| (flow.to, arriving.iter().map(|tag| tag.vid.get() as u16).collect())),
            ];
            for (port, vids) in ends.into_iter().flatten() {
                let (link, mac) = (&ports[port], ports[port].own(&vids));
                if mac != link.mac {
                    return Err(PlanError::OtherMac { port, vids, mac });
                }
            }
            if !(flow.weight.is_finite() && flow.weight > 0.0) {
                return Err(PlanError::Empty(format!("flow {i} has no share of the load")));
            }
            check_schedule(i, flow, &spec.load)?;
            check_cycle(i, flow)?;
        }
        let names = FlowNames::new(&spec.flows);
        let background = background(spec, &names);
        // Tested groups must have the same index with and without the background groups.
        if background.first().is_some_and(|first| first + background.len() != names.groups().len()) {
            return Err(PlanError::Empty("background flows must come after all others".into()));
        }
        let events = planned_events(spec)?;
        let pattern = Pattern::new(timing.seed);
        let bin_ns = spec.bin_s.map(|s| (s * 1e9).round() as u64).filter(|ns| *ns > 0);
        let drain_ns = (spec.drain_s.max(0.0) * 1e9).round() as u64;
        let continuous = spec.duration_s >= crate::CONTINUOUS.as_secs_f64();
        let most_bins = if continuous { CONTINUOUS_BINS } else { MAX_BINS };
        let bins_to = |drain_ns: u64| {
            bin_ns.map_or(0, |ns| {
                let last_event = events.last().map_or(0, |e| e.at_ns);
                let span = (spec.sending_time().as_nanos() as f64).max(last_event as f64) + drain_ns as f64;
                (((span / ns as f64).ceil() as usize) + 1).min(most_bins)
            })
        };
        // Arriving frames can extend the drain.
        let (bins, most_bins) = (bins_to(drain_ns), bins_to(longest_drain(drain_ns)));
        let queues = layout.senders(&spec.flows);
        let orders = destination_orders(&spec.flows, timing.seed);
        let mut generators = Vec::new();
        for stream in spec.senders().into_iter().flat_map(|port| Stream::of_port(spec, port, &queues)) {
            let link = &ports[stream.port];
            generators.push(PortGenerator::new(spec, stream, link, &names, timing, &pattern, &orders, bin_ns, bins)?);
        }
        if generators.iter().all(|g| g.total() == 0) {
            return Err(PlanError::Empty("the load is less than one frame".into()));
        }
        let frames: Vec<u64> = {
            let mut frames = vec![0; spec.flows.len()];
            generators.iter().for_each(|g| g.planned(&mut frames));
            frames
        };
        let budget = if continuous { CONTINUOUS_WINDOW_BUDGET } else { WINDOW_BUDGET };
        // Each lane that receives a flow has its own window.
        let split = spec.flows.iter().any(|flow| layout.is_split(flow.to));
        let windows = spec.flows.len() * if split { layout.lanes() } else { 1 };
        let window = (budget / windows as u64).max(64);
        let hosts: Vec<u64> = ports.iter().map(|p| destination(&[p.mac.0.as_slice(), &[0; 2]].concat())).collect();
        let register = (layout.lanes() > 1 || !layout.is_whole()).then(|| Register::new(&names, &frames));
        let analyzer = |lane, register, pattern| {
            let hosts = hosts.clone();
            Analyzer::new(
                spec, hosts, &layout, lane, register, &names, &frames, window, timing, pattern, bin_ns, most_bins,
            )
        };
        let mut parts: Vec<Part> = (0..layout.lanes())
            .map(|lane| Part { generators: Vec::new(), analyzer: analyzer(lane, register.clone(), pattern.clone()) })
            .collect();
        let distance = (!layout.is_whole()).then(|| {
            let all: Vec<_> = generators.iter().map(PortGenerator::report).collect();
            Distance::of(all.iter())
        });
        for generator in generators {
            // The generators of other hosts were needed only to count the frames of all flows.
            if let Some(part) = parts.get_mut(layout.lane_of_queue(generator.queue())) {
                part.generators.push(generator);
            }
        }
        Ok(Plan {
            parts,
            distance,
            layout,
            groups: names.groups().to_vec(),
            flows: names,
            background,
            destinations: tallied(spec, &orders),
            events,
            drain_ns,
            maximum: matches!(spec.load, Load::Maximum { .. }),
        })
    }

    /// Returns the layout of the plan's lanes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns generators and analyzer of a trial on one lane that starts at `start`, for callers that drive them
    /// without a clock.
    pub fn into_parts(mut self, start: Instant) -> (Vec<PortGenerator>, Analyzer) {
        assert_eq!(self.parts.len(), 1, "the plan is for one lane");
        let mut part = self.parts.swap_remove(0);
        part.begin(start);
        (part.generators, part.analyzer)
    }
}
