//! Computes loss, order and latency from received frames. It takes every frame that arrives at the test ports, and
//! returns frames that are not test frames to the caller.
//!
//! # What is counted once
//!
//! State that only some flows need is separate from the path of each frame (`analyzer/extras.rs`): counts by
//! destination, alternate ports, and delay variation from frame to frame.
//!
//! Each sent frame counts once: as received if it ever arrives as `Arriving` specifies, otherwise as lost. A lost frame
//! that arrived in a different encapsulation is also in `deviations`, under the difference of its first arrival
//! (`analyzer/deviating.rs`). All other such arrivals are `deviating_copies`.

mod awaited;
mod burst;
mod deviating;
pub(crate) mod extras;
mod misdelivered;
mod received;

pub(crate) use received::on_link;
pub use received::{GroupReceived, ReceiveBins};

use crate::arriving::Encapsulation;
use crate::counts::PlaceCounts;
use crate::flow_state::{Arrival as Verdict, FlowState};
use crate::headers::{self, Unjudged};
use crate::intact::HOME;
use crate::lane_report::{DeviatingReport, PortArrivals};
use crate::layout::QueueIndex;
use crate::payload::Pattern;
use crate::plan::{Layout, Timing, spaced};
use crate::recognize::{Candidate, candidate};
use crate::transmit::FlowNames;
use awaited::Awaited;
use burst::Burst;
use deviating::Deviating;
pub(crate) use deviating::{Deviations, count};
use drophammer_model::quantity::Instant;
use drophammer_model::traffic::{Arriving, Deviation};
use drophammer_model::trial::{Family, FlowSpec, Misdelivered, PortIndex, TrialSpec};
use drophammer_port::Arrival;
use drophammer_wire::signature::{Signature, TrialKey, unwrap_time};
pub(crate) use extras::FlowExtras;
use misdelivered::Misdeliveries;
use received::{Arrivals, Bins};
use std::sync::Arc;

/// Classification of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Test traffic of this trial; counted.
    Test,
    /// Test traffic of an earlier trial; counted as stale.
    Stale,
    /// Sent to the test port, but either not intact or not from a known trial; counted as corrupted.
    Corrupted,
    /// Not a test frame; passed to the caller.
    Other,
}

/// Receiver state of a flow, for frames out of order. Frames in order need only [`Awaited`].
#[repr(align(64))]
struct ReceiveFlow {
    /// Destination port of the flow.
    to: u16,
    /// Queue of that port at which the flow's last frame arrived.
    queue: u16,
    group: u32,
    frames: u64,
    state: FlowState,
}

impl ReceiveFlow {
    /// Adds the frames that `awaited` has counted.
    #[cold]
    fn take_note(&mut self, awaited: &mut Awaited) {
        awaited.settle(&mut self.state);
        awaited.follow(&self.state, self.frames, self.queue.into());
    }

    /// Counts an intact frame, in the form of [`awaited::frame`], other than the awaited one. Returns `None` if it
    /// arrived at a different queue than the frame before it, or was never sent.
    #[inline(never)]
    fn take_out_of_order(&mut self, awaited: &mut Awaited, frame: u64) -> Option<Verdict> {
        if frame >> 32 != u64::from(self.queue) {
            return None;
        }
        awaited.settle(&mut self.state);
        let sequence = self.state.unwrap(frame as u32);
        if sequence >= self.frames {
            return None;
        }
        let verdict = self.state.arrive(sequence);
        awaited.follow(&self.state, self.frames, self.queue.into());
        Some(verdict)
    }
}

const _: () = assert!(size_of::<ReceiveFlow>() == 64);

/// Memory for the counts of latencies of all groups on all lanes (128 MiB). If each of them gets less than it needs for
/// all latencies, longer ones allocate what they need when they arrive.
const LATENCY_BUDGET: usize = 1 << 27;

/// The analyzer of a trial, or of one of its lanes. A lane has the state of a flow if it has a queue of the flow's
/// port. Callers pass frames with the number of their queue ([`QueueIndex`]), which is the port number if every port
/// has one queue.
#[repr(align(128))]
pub struct Analyzer {
    key: TrialKey,
    earlier: Vec<TrialKey>,
    pattern: Pattern,
    flows: Vec<ReceiveFlow>,
    /// Next frame of each flow. It counts frames in order, so `flows` can lag behind it.
    awaited: Vec<Awaited>,
    /// Frames of a burst, between the two passes over it.
    looked: Box<Burst>,
    /// True if `flows` contain all frames that `awaited` has counted.
    settled: bool,
    /// Number of each flow in the trial.
    ids: Vec<u32>,
    /// Additional state of each flow; empty if no flow needs it.
    extras: Vec<FlowExtras>,
    /// Expected encapsulation of each flow; empty if all flows expect plain Ethernet.
    encapsulations: Vec<Encapsulation>,
    /// [`HOME`], or 0 if frames of all flows may have any destination.
    destinations: u64,
    /// True for each flow that may arrive in any encapsulation and with any MAC address; empty if there is none.
    lenient: Vec<bool>,
    /// Exceptions from the checks of each flow; empty if there are none.
    unjudged: Vec<Unjudged>,
    /// The encapsulation of plain Ethernet.
    plain: Encapsulation,
    /// Frames of each flow that arrived in a different encapsulation, if any.
    deviating: Vec<Option<Box<Deviating>>>,
    misdelivered: Misdeliveries,
    home: Home,
    groups: Vec<GroupReceived>,
    /// Group of corrupted frames whose flow is unreadable, by port.
    port_groups: Vec<usize>,
    /// Port of each queue.
    ports: Vec<PortIndex>,
    /// True for each flow whose frames have arrived at several queues, or may have overtaken each other in the card;
    /// empty if that is impossible.
    spread: Vec<bool>,
    /// Time bins of departures and of arrivals.
    bins: [Bins; 2],
    late_ns: u64,
    /// How far a departure can be after the arrival, in ns.
    ahead: u64,
    /// True for each flow that this host also sends, so that one clock has both times. Empty if it sends all of them.
    same_clock: Vec<bool>,
    stale: u64,
    /// Address of the host on the port of each queue, in the form of [`destination`].
    hosts: Vec<u64>,
    /// Arrivals at each queue.
    arrivals: Vec<Arrivals>,
    distinct: u64,
    /// True if there are background flows.
    background: bool,
}

impl Analyzer {
    #[allow(clippy::too_many_arguments)] // one caller, which lays out a trial
    pub(crate) fn new(
        spec: &TrialSpec,
        hosts: Vec<u64>,
        layout: &Layout,
        lane: usize,
        register: Option<Register>,
        names: &FlowNames,
        frames: &[u64],
        window: u64,
        timing: &Timing,
        pattern: Pattern,
        bin_ns: Option<u64>,
        bins: usize,
    ) -> Analyzer {
        let own = || spec.flows.iter().enumerate().filter(|(_, flow)| layout.receives(lane, flow.to));
        let narrow = |index: usize| u16::try_from(index).expect("a tester has up to 65,535 queues");
        let flows: Vec<_> = own()
            .map(|(id, flow)| ReceiveFlow {
                to: narrow(flow.to),
                queue: narrow(layout.queues_of(flow.to).start),
                group: group_of(names, id),
                frames: frames[id],
                state: FlowState::new(frames[id].max(1), window),
            })
            .collect();
        // Unused room follows: see `plan::spaced`.
        let mut awaited = Vec::with_capacity(flows.len() + 4);
        awaited.extend(flows.iter().map(|flow| {
            let mut awaited = Awaited::new(flow.group);
            awaited.follow(&flow.state, flow.frames, flow.queue.into());
            awaited
        }));
        let ports = layout.ports();
        let port_of: Vec<PortIndex> = (0..layout.queue_count()).map(|queue| layout.port_of(queue)).collect();
        let places = register.is_some().then(|| {
            let mut places = vec![u32::MAX; spec.flows.len()];
            own().zip(0..).for_each(|((id, _), place)| places[id] = place);
            places.into_boxed_slice()
        });
        let leads_to = |f: &FlowSpec, port| f.to == port || f.also.contains(&port);
        let port_groups = (0..ports)
            .map(|port| spec.flows.iter().position(|f| leads_to(f, port)).map_or(0, |id| group_of(names, id)));
        let mut varies = vec![false; names.groups().len()];
        let varying = spec.flows.iter().enumerate().filter(|(_, flow)| flow.ipdv);
        varying.for_each(|(id, _)| varies[group_of(names, id) as usize] = true);
        let mut latency_bytes = vec![0; names.groups().len()];
        let share = LATENCY_BUDGET / (names.groups().len() * layout.lanes());
        flows.iter().for_each(|flow| latency_bytes[flow.group as usize] = share);
        let extras = own().any(|(_, flow)| FlowExtras::asked_for(flow));
        let encapsulations: Vec<_> =
            own().map(|(_, flow)| Encapsulation::new(headers::arriving(flow), flow.family)).collect();
        let plain = encapsulations.iter().all(Encapsulation::is_plain);
        let lenient = own().any(|(_, flow)| flow.lenient);
        let unjudged: Vec<_> = own().map(|(_, flow)| Unjudged::of(flow)).collect();
        let all_judged = unjudged.iter().all(|u| *u == Unjudged::default());
        let deviating = flows.iter().map(|_| None).collect();
        let same_clock: Vec<bool> = own().map(|(_, flow)| layout.has(flow.from)).collect();
        let one_clock = !same_clock.contains(&false);
        let mut spread = if layout.may_lose_order() { spaced(own().count()) } else { Vec::new() };
        spread.iter_mut().zip(own()).for_each(|(spread, (_, flow))| *spread = layout.merges(flow.to));
        Analyzer {
            key: timing.key,
            earlier: timing.earlier.clone(),
            pattern,
            flows,
            awaited,
            looked: Box::default(),
            settled: true,
            ids: own().map(|(id, _)| id as u32).collect(),
            extras: own().filter(|_| extras).map(|(_, flow)| FlowExtras::new(flow)).collect(),
            encapsulations: if plain { Vec::new() } else { encapsulations },
            destinations: if lenient && own().all(|(_, flow)| flow.lenient) { 0 } else { HOME },
            lenient: own().filter(|_| lenient).map(|(_, flow)| flow.lenient).collect(),
            unjudged: if all_judged { Vec::new() } else { unjudged },
            plain: Encapsulation::new(Arriving::default(), Family::Ipv4),
            deviating,
            misdelivered: Misdeliveries::default(),
            home: Home { places, register },
            groups: varies
                .into_iter()
                .zip(latency_bytes)
                .map(|(ipdv, latency_bytes)| GroupReceived::new(bins, ports, latency_bytes, ipdv))
                .collect(),
            port_groups: port_groups.map(|group| group as usize).collect(),
            bins: [Bins::new(bin_ns); 2],
            late_ns: timing.late_ns,
            ahead: if one_clock { AHEAD } else { AHEAD_BETWEEN_HOSTS },
            same_clock: if one_clock { Vec::new() } else { same_clock },
            stale: 0,
            hosts: port_of.iter().map(|port| hosts[*port]).collect(),
            arrivals: vec![Arrivals::default(); port_of.len()],
            spread,
            ports: port_of,
            distinct: 0,
            background: spec.flows.iter().any(|flow| flow.background),
        }
    }

    pub(crate) fn begin(&mut self, start: Instant) {
        self.bins.iter_mut().for_each(|bins| bins.begin(start));
    }

    #[inline]
    fn place(&self, flow: u32) -> usize {
        self.home.place(flow) as usize
    }

    /// Classifies and counts any frame that arrived at `queue`.
    fn take_at_length(&mut self, queue: QueueIndex, arrival: Arrival<'_>) -> Class {
        let Some(found) = candidate(arrival.frame) else { return Class::Other };
        let (signature, check) = Signature::read(found.signature);
        if found.fragment && found.sums_hold {
            return self.take_fragment(queue, signature, signature.belongs_to(self.key, check), arrival);
        }
        // Background frames may have a protocol without a known signature, so the signature's own check must suffice.
        let looks_ours = found.looks_ours(&self.pattern) || (self.background && signature.belongs_to(self.key, check));
        if !signature.belongs_to(self.key, check) {
            return if looks_ours {
                self.foreign(self.ports[queue], &signature, check, found.whole && found.sums_hold)
            } else {
                Class::Other
            };
        }
        let place = self.place(signature.flow);
        let intact = self.unjudged.get(place).copied().unwrap_or_default().is_intact(&found, &self.pattern);
        if place >= self.flows.len() {
            return if looks_ours {
                self.received_elsewhere(self.ports[queue], &signature, intact, arrival.frame)
            } else {
                Class::Other
            };
        }
        if !looks_ours && !intact {
            return Class::Other;
        }
        let deviation = self.deviation(place, &found, arrival.frame);
        self.take_of_flow(queue, place, signature, intact, deviation, arrival)
    }

    /// Returns how `found`, a frame of the flow at `place`, differs from its expected encapsulation.
    fn deviation(&self, place: usize, found: &Candidate<'_>, frame: &[u8]) -> Option<Deviation> {
        match self.encapsulations.get(place) {
            Some(encapsulation) => encapsulation.deviation(frame, &found.layers),
            None => self.plain.deviation(frame, &found.layers),
        }
    }

    /// Counts a frame of the flow at `place`. The frame has `signature`, and differs by `deviation` from its expected
    /// encapsulation.
    fn take_of_flow(
        &mut self,
        queue: QueueIndex,
        place: usize,
        signature: Signature,
        intact: bool,
        deviation: Option<Deviation>,
        arrival: Arrival<'_>,
    ) -> Class {
        let (flow, awaited) = (&mut self.flows[place], &mut self.awaited[place]);
        let group_index = flow.group as usize;
        let port = self.ports[queue];
        let elsewhere = usize::from(flow.to) != port;
        if elsewhere && !self.extras.get(place).is_some_and(|f| f.also.contains(&port)) {
            let known = intact && u64::from(signature.sequence) < flow.frames;
            return self.astray(port, &signature, group_index, known, arrival.frame);
        }
        awaited.settle(&mut flow.state);
        let sequence = flow.state.unwrap(signature.sequence);
        if !intact || sequence >= flow.frames {
            return self.corrupted(port, Some(group_index));
        }
        let group = &mut self.groups[group_index];
        let lenient = self.lenient.get(place).copied().unwrap_or(false);
        if destination(arrival.frame) != self.hosts[queue] && !lenient {
            group.stray += 1;
            group.elsewhere[port] += 1;
            return Class::Test;
        }
        if let Some(deviation) = deviation.filter(|found| !lenient || *found == Deviation::Fragmented) {
            let known = self.deviating[place].get_or_insert_with(|| Box::new(Deviating::of(&flow.state)));
            known.arrive(sequence, deviation, &flow.state);
            if misdelivered::is_elsewhere(deviation) {
                self.misdelivered.count(signature.flow as usize, port, arrival.frame);
            }
            return Class::Test;
        }
        let first = flow.state.next_expected() == 0;
        let verdict = flow.state.arrive(sequence);
        // Frames at an alternate port are counted here, one by one. The next frame at the flow's own port can use the
        // fast path again.
        if !elsewhere && usize::from(flow.queue) != queue {
            flow.queue = queue as u16;
            if let Some(spread) = self.spread.get_mut(place) {
                *spread |= !first;
            }
        }
        if elsewhere && let Some(spread) = self.spread.get_mut(place) {
            *spread = true;
        }
        awaited.follow(&flow.state, flow.frames, flow.queue.into());
        match verdict {
            Verdict::New => {}
            Verdict::Duplicate => {
                self.arrivals[queue].take_copies(1, on_link(arrival.frame.len() as u32));
                return Class::Test;
            }
            Verdict::TooOld => {
                self.stale += 1;
                return Class::Stale;
            }
        }
        let ahead = if self.same_clock.get(place) == Some(&true) { AHEAD } else { self.ahead };
        let departure = departure(signature.time, arrival.at, ahead);
        if let Some(extras) = self.extras.get_mut(place) {
            let (at, bytes) = (arrival.at.0, arrival.frame.len() as u32);
            if let Some(variation) = extras.take(sequence, at.saturating_sub(departure), at, bytes) {
                group.vary(variation);
            }
            if elsewhere {
                extras.elsewhere += 1;
                group.elsewhere[port] += 1;
            }
        }
        self.count(queue, group_index, arrival, departure);
        Class::Test
    }

    /// Counts a frame of this trial whose flow, if it exists, goes to a port of another lane.
    #[cold]
    fn received_elsewhere(&mut self, port: PortIndex, signature: &Signature, intact: bool, frame: &[u8]) -> Class {
        let entry = self.home.register.as_ref().and_then(|r| r.0.get(signature.flow as usize)).copied();
        match entry {
            None => self.corrupted(port, None),
            Some(entry) => {
                let known = intact && u64::from(signature.sequence) < entry.frames;
                self.astray(port, signature, entry.group as usize, known, frame)
            }
        }
    }

    /// Counts a frame of this trial at a port that is not a destination of its flow.
    #[cold]
    fn astray(&mut self, port: PortIndex, signature: &Signature, group: usize, intact: bool, frame: &[u8]) -> Class {
        if !intact {
            return self.corrupted(port, Some(group));
        }
        self.misdelivered.count(signature.flow as usize, port, frame);
        self.groups[group].stray += 1;
        self.groups[group].elsewhere[port] += 1;
        Class::Test
    }

    #[cold]
    fn foreign(&mut self, port: PortIndex, signature: &Signature, check: u16, intact: bool) -> Class {
        // A damaged signature may look like a signature of an earlier trial; the checksum decides.
        if intact && self.earlier.iter().any(|key| signature.belongs_to(*key, check)) {
            self.stale += 1;
            return Class::Stale;
        }
        let flow = self.flows.get(self.place(signature.flow));
        let group = flow.filter(|f| usize::from(f.to) == port).map(|f| f.group as usize);
        self.corrupted(port, group)
    }

    #[cold]
    fn corrupted(&mut self, port: PortIndex, group: Option<usize>) -> Class {
        let group = group.unwrap_or_else(|| self.port_groups.get(port).copied().unwrap_or(0));
        self.groups[group].corrupted += 1;
        Class::Corrupted
    }

    /// Returns the number of distinct intact frames at the right port so far.
    #[inline]
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    /// Returns the number of frames of earlier trials so far.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Returns the time from the first to the last counted arrival plus one mean interval, in ns, at the port where it is longest.
    pub fn receiving_ns(&self) -> u64 {
        self.arrivals().iter().map(PortArrivals::ns).max().unwrap_or(0)
    }

    /// Returns the counted arrivals by port.
    pub(crate) fn arrivals(&self) -> Vec<PortArrivals> {
        let mut by_port = vec![PortArrivals::default(); self.port_groups.len()];
        self.arrivals.iter().zip(&self.ports).for_each(|(arrivals, port)| by_port[*port].add(&arrivals.report()));
        by_port
    }

    /// Returns frames and bytes (FCS included) that arrived where their flow may arrive, copies included, by port.
    pub(crate) fn arrived(&self) -> Vec<(u64, u64)> {
        let mut by_port = vec![(0, 0); self.port_groups.len()];
        for (arrivals, port) in self.arrivals.iter().zip(&self.ports) {
            let ((frames, bytes), sum) = (arrivals.with_copies(), &mut by_port[*port]);
            *sum = (sum.0 + frames, sum.1 + bytes);
        }
        by_port
    }

    /// Returns the counts by group.
    pub fn groups(&self) -> &[GroupReceived] {
        &self.groups
    }

    /// Returns the frames of each group that arrived in an unexpected encapsulation, for flows to ports where `whole`
    /// is true, which means that this lane has all queues of the port. Flows must be settled.
    pub(crate) fn deviations(&self, whole: impl Fn(PortIndex) -> bool) -> Vec<Deviations> {
        assert!(self.settled, "flows are settled before deviations are counted");
        let mut groups = vec![Deviations::default(); self.groups.len()];
        for (flow, deviating) in self.flows.iter().zip(&self.deviating) {
            if let Some(deviating) = deviating
                && whole(flow.to.into())
            {
                groups[flow.group as usize].add(&deviating.counts(&flow.state));
            }
        }
        groups
    }

    /// Returns the frames that arrived in another place than their flow.
    pub(crate) fn misdelivered(&self) -> Vec<Misdelivered> {
        self.misdelivered.report()
    }

    /// Returns the number of such frames that are not among these.
    pub(crate) fn misdelivered_elsewhere(&self) -> u64 {
        self.misdelivered.elsewhere()
    }

    /// Returns the frames of the flow at `place` of [`Analyzer::flows`] that arrived in a different encapsulation;
    /// `None` if there are none.
    pub(crate) fn deviating(&self, place: usize) -> Option<DeviatingReport> {
        self.deviating.get(place)?.as_ref().map(|deviating| deviating.report())
    }

    /// Updates [`Analyzer::flows`].
    pub fn settle(&mut self) {
        self.flows.iter_mut().zip(&self.awaited).for_each(|(flow, awaited)| awaited.settle(&mut flow.state));
        self.settled = true;
    }

    /// Returns the number of [`Analyzer::flows`].
    pub(crate) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Iterates over `(flow, group, state)` of every flow received here.
    ///
    /// # Panics
    /// If a frame was counted after the last [`Analyzer::settle`].
    pub fn flows(&self) -> impl Iterator<Item = (usize, usize, &FlowState)> {
        assert!(self.settled, "flows are settled before their states are read");
        self.flows.iter().zip(&self.ids).map(|(f, id)| (*id as usize, f.group as usize, &f.state))
    }

    /// Iterates over the destination ports of [`Analyzer::flows`], in their order.
    pub(crate) fn to(&self) -> impl Iterator<Item = PortIndex> {
        self.flows.iter().map(|f| f.to.into())
    }

    /// True if the order of the flow at `place` of [`Analyzer::flows`] is unknown: its frames have arrived at several
    /// queues, or may have overtaken each other in the card.
    pub(crate) fn is_spread(&self, place: usize) -> bool {
        self.spread.get(place).copied().unwrap_or(false)
    }

    /// Returns the counts by place of each flow that has a cycle: `(flow, places)`.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, &[PlaceCounts])> {
        self.ids.iter().zip(&self.extras).filter_map(|(flow, extras)| Some((*flow as usize, extras.by_place()?)))
    }

    /// Returns the additional state of each of [`Analyzer::flows`], in their order; empty if no flow needs it.
    pub(crate) fn extras(&self) -> &[FlowExtras] {
        &self.extras
    }
}

/// Returns the destination address of an Ethernet frame in the lower 48 bits; 0 if the frame is too short.
#[inline]
pub(crate) fn destination(frame: &[u8]) -> u64 {
    const ADDRESS: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    frame.first_chunk().map_or(0, |head| u64::from_le_bytes(*head) & ADDRESS)
}

/// How long before its departure a frame can seem to arrive, in ns. First if one host sends and receives, by one clock; then between
/// hosts, whose clocks differ by far less than this. Latencies above 4.29 s less this time look negative.
const AHEAD: u64 = 1_000_000;
const AHEAD_BETWEEN_HOSTS: u64 = 1_000_000_000;

/// Returns the full departure time. It is after the arrival by up to `ahead` ns if the clocks say so.
#[inline(always)]
fn departure(time: u32, at: Instant, ahead: u64) -> u64 {
    let departure = unwrap_time(time, at.0);
    if at.0.wrapping_sub(departure) > u64::from(u32::MAX) - ahead { departure.wrapping_add(1 << 32) } else { departure }
}

/// A flow from the view of a lane that does not receive it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    pub group: u32,
    pub frames: u64,
}

/// All flows of a trial on several lanes. All lanes read it and none writes it.
#[derive(Clone)]
pub(crate) struct Register(Arc<[Entry]>);

impl Register {
    pub(crate) fn new(names: &FlowNames, frames: &[u64]) -> Register {
        let entry = |(id, frames): (usize, &u64)| Entry { group: group_of(names, id), frames: *frames };
        Register(frames.iter().enumerate().map(entry).collect())
    }
}

/// Maps the flows of the trial to the flows of a lane.
struct Home {
    /// Index of each flow of the trial among the flows received here, [`u32::MAX`] for all others. `None` with a single
    /// lane, which receives all flows in order.
    pub places: Option<Box<[u32]>>,
    pub register: Option<Register>,
}

impl Home {
    /// Returns the index of `flow` among the flows received here. It is beyond their end if the flow is not received here.
    #[inline]
    pub fn place(&self, flow: u32) -> u32 {
        match &self.places {
            None => flow,
            Some(places) => places.get(flow as usize).copied().unwrap_or(u32::MAX),
        }
    }
}

fn group_of(names: &FlowNames, flow: usize) -> u32 {
    names.group_of(flow).unwrap_or(0) as u32
}

#[cfg(test)]
mod tests;
