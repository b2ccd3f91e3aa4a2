//! Frames to loss, order and latency. Fed with everything that comes in at test ports; what is not test traffic is handed
//! back to the caller.

mod further;
mod received;

pub use received::{GroupReceived, ReceiveBins};

use crate::datagram::test_datagram;
use crate::flow_state::{Arrival as Verdict, FlowState};
use crate::payload::Pattern;
use crate::plan::{Layout, Timing};
use drophammer_model::quantity::Instant;
use drophammer_model::size::MIN_FRAME;
use drophammer_model::trial::{FlowSpec, PortIndex, TrialSpec};
use drophammer_port::Arrival;
use drophammer_wire::signature::{self, Signature, TrialKey, unwrap_sequence, unwrap_time};
pub(crate) use further::Further;
use received::{Arrivals, Bins};
use std::sync::Arc;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Test traffic of this trial, counted.
    Test,
    /// Test traffic of an earlier trial, counted as stale.
    Stale,
    /// Aimed at the test port, but neither intact nor of any known trial; counted as corrupted.
    Corrupted,
    /// Something else; the caller's.
    Other,
}

/// A flow as its receiver sees it: all that a frame in order needs, in one line of the cache.
#[repr(align(64))]
struct ReceiveFlow {
    to: u32,
    group: u32,
    frames: u64,
    state: FlowState,
}

/// States of fewer flows fit a first-level cache with room to spare.
const MANY_FLOWS: usize = 256;

const _: () = assert!(size_of::<ReceiveFlow>() == 64);

/// A flow as a lane sees it that does not receive it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Lane that receives it, and its place among the flows there.
    lane: u32,
    place: u32,
    group: u32,
    frames: u64,
}

/// All flows of a trial on several lanes. Shared by all and written by none.
#[derive(Clone)]
pub(crate) struct Register(Arc<[Entry]>);

impl Register {
    pub(crate) fn new(spec: &TrialSpec, groups: &[String], frames: &[u64], layout: &Layout) -> Register {
        let mut places = vec![0; layout.lanes()];
        let entries = spec.flows.iter().zip(frames).map(|(flow, frames)| {
            let lane = layout.lane_of(flow.to);
            let place = places[lane];
            places[lane] += 1;
            Entry { lane: lane as u32, place, group: group_of(groups, &flow.group), frames: *frames }
        });
        Register(entries.collect())
    }
}

fn group_of(groups: &[String], name: &str) -> u32 {
    groups.iter().position(|g| g == name).unwrap_or(0) as u32
}

/// The analyzer of one trial, or of one lane of it: then it has the states of the flows that lead to the lane's ports.
#[repr(align(128))]
pub struct Analyzer {
    key: TrialKey,
    earlier: Vec<TrialKey>,
    pattern: Pattern,
    flows: Vec<ReceiveFlow>,
    /// Number of each of them in the trial.
    ids: Vec<u32>,
    /// What is kept of them beside; empty where none asks for it.
    further: Vec<Further>,
    lane: u32,
    /// Where the flows are; absent with one lane, which has them all in their order.
    register: Option<Register>,
    groups: Vec<GroupReceived>,
    /// Group to blame for a corrupted frame whose flow cannot be read, by port.
    port_groups: Vec<usize>,
    /// Of departures and of arrivals.
    bins: Option<[Bins; 2]>,
    late_ns: u64,
    stale: u64,
    /// Address of the host on each port, as [`destination`] reads it.
    hosts: Vec<u64>,
    /// By port.
    arrivals: Vec<Arrivals>,
    distinct: u64,
}

impl Analyzer {
    #[allow(clippy::too_many_arguments)] // one caller, which lays out a trial
    pub(crate) fn new(
        spec: &TrialSpec,
        hosts: Vec<u64>,
        layout: &Layout,
        lane: usize,
        register: Option<Register>,
        groups: &[String],
        frames: &[u64],
        window: u64,
        timing: &Timing,
        pattern: Pattern,
        bin_ns: Option<u64>,
        bins: usize,
    ) -> Analyzer {
        let own = || spec.flows.iter().enumerate().filter(|(_, flow)| layout.lane_of(flow.to) == lane);
        let flows = own()
            .map(|(id, flow)| ReceiveFlow {
                to: flow.to as u32,
                group: group_of(groups, &flow.group),
                frames: frames[id],
                state: FlowState::new(frames[id].max(1), window),
            })
            .collect();
        let ports = layout.ports();
        let leads_to = |f: &FlowSpec, port| f.to == port || f.also.contains(&port);
        let port_groups = (0..ports)
            .map(|port| spec.flows.iter().find(|f| leads_to(f, port)).map_or(0, |f| group_of(groups, &f.group)));
        let further = own().any(|(_, flow)| Further::asked_for(flow));
        Analyzer {
            key: timing.key,
            earlier: timing.earlier.clone(),
            pattern,
            flows,
            ids: own().map(|(id, _)| id as u32).collect(),
            further: own().filter(|_| further).map(|(_, flow)| Further::new(flow)).collect(),
            lane: lane as u32,
            register,
            groups: groups.iter().map(|_| GroupReceived::new(bins, ports)).collect(),
            port_groups: port_groups.map(|group| group as usize).collect(),
            bins: bin_ns.map(|ns| [Bins::new(ns); 2]),
            late_ns: timing.late_ns,
            stale: 0,
            hosts,
            arrivals: vec![Arrivals::default(); ports],
            distinct: 0,
        }
    }

    pub(crate) fn begin(&mut self, start: Instant) {
        self.bins.iter_mut().flatten().for_each(|bins| bins.begin(start));
    }

    /// Index of `flow` among the flows that are received here; beyond their end if it is not.
    #[inline]
    fn place(&self, flow: u32) -> usize {
        match &self.register {
            None => flow as usize,
            Some(Register(entries)) => match entries.get(flow as usize) {
                Some(entry) if entry.lane == self.lane => entry.place as usize,
                _ => usize::MAX,
            },
        }
    }

    /// Looks at the frames of a burst before they are taken one by one, so that the states of their flows come into the
    /// cache all at once instead of one after the other. Only a hint: it counts nothing and may look at the wrong flow.
    #[inline]
    pub fn look_ahead<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) {
        if self.flows.len() < MANY_FLOWS {
            return;
        }
        for frame in frames {
            // Where the signature is unless the frame is padded.
            let Some(tail) = frame.last_chunk::<{ signature::LEN }>() else { continue };
            if let Some(flow) = self.flows.get(self.place(Signature::read(tail).0.flow)) {
                std::hint::black_box(flow.state.next_expected());
            }
        }
    }

    /// Takes a frame that arrived at `port`.
    #[inline]
    pub fn take(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Class {
        let Some(datagram) = test_datagram(arrival.frame) else { return Class::Other };
        let at = datagram.payload.len() - signature::LEN;
        let Some(tail) = datagram.payload.last_chunk::<{ signature::LEN }>() else { return Class::Other };
        let (signature, check) = Signature::read(tail);
        if !signature.belongs_to(self.key, check) {
            return self.foreign(port, &signature, check, datagram.intact);
        }
        let place = self.place(signature.flow);
        let intact = datagram.intact && self.pattern.starts_with(&datagram.payload[..at]);
        let Some(flow) = self.flows.get_mut(place) else {
            return self.received_elsewhere(port, &signature, intact);
        };
        let group_index = flow.group as usize;
        let elsewhere = flow.to as usize != port;
        if elsewhere && !self.further.get(place).is_some_and(|f| f.also.contains(&port)) {
            let frames = flow.frames;
            return self.astray(port, group_index, intact && u64::from(signature.sequence) < frames);
        }
        let sequence = unwrap_sequence(signature.sequence, flow.state.next_expected());
        if !intact || sequence >= flow.frames {
            return self.corrupted(port, Some(group_index));
        }
        let group = &mut self.groups[group_index];
        if destination(arrival.frame) != self.hosts[port] {
            group.stray += 1;
            group.elsewhere[port] += 1;
            return Class::Test;
        }
        match flow.state.arrive(sequence) {
            Verdict::New => {}
            Verdict::Duplicate => return Class::Test,
            Verdict::TooOld => {
                self.stale += 1;
                return Class::Stale;
            }
        }
        if let Some(further) = self.further.get_mut(place) {
            further.take(sequence);
            if elsewhere {
                further.elsewhere += 1;
                group.elsewhere[port] += 1;
            }
        }
        let departure = departure(signature.time, arrival.at);
        let latency = arrival.at.0.saturating_sub(departure);
        group.latency(latency);
        group.late += u64::from(latency > self.late_ns);
        // Padding that a router cut off is there on every line.
        group.bytes += (arrival.frame.len() as u64 + 4).max(u64::from(MIN_FRAME));
        self.distinct += 1;
        self.arrivals[port].take(arrival.at);
        if let Some([departures, arrivals]) = &mut self.bins {
            if let Some(count) = group.bins.delivered.get_mut(departures.of(departure)) {
                *count += 1;
            }
            if let Some(count) = group.bins.arrived.get_mut(arrivals.of(arrival.at.0)) {
                *count += 1;
            }
        }
        Class::Test
    }

    /// A frame of this trial whose flow, if there is such a one, leads to a port of another lane.
    #[cold]
    fn received_elsewhere(&mut self, port: PortIndex, signature: &Signature, intact: bool) -> Class {
        let entry = self.register.as_ref().and_then(|r| r.0.get(signature.flow as usize)).copied();
        match entry {
            None => self.corrupted(port, None),
            Some(entry) => {
                self.astray(port, entry.group as usize, intact && u64::from(signature.sequence) < entry.frames)
            }
        }
    }

    /// A frame of this trial at a port to which its flow does not lead.
    #[cold]
    fn astray(&mut self, port: PortIndex, group: usize, intact: bool) -> Class {
        if !intact {
            return self.corrupted(port, Some(group));
        }
        self.groups[group].stray += 1;
        self.groups[group].elsewhere[port] += 1;
        Class::Test
    }

    #[cold]
    fn foreign(&mut self, port: PortIndex, signature: &Signature, check: u16, intact: bool) -> Class {
        // A damaged signature may look like one of an earlier trial; its checksum tells.
        if intact && self.earlier.iter().any(|key| signature.belongs_to(*key, check)) {
            self.stale += 1;
            return Class::Stale;
        }
        let flow = self.flows.get(self.place(signature.flow));
        let group = flow.filter(|f| f.to as usize == port).map(|f| f.group as usize);
        self.corrupted(port, group)
    }

    #[cold]
    fn corrupted(&mut self, port: PortIndex, group: Option<usize>) -> Class {
        let group = group.unwrap_or_else(|| self.port_groups.get(port).copied().unwrap_or(0));
        self.groups[group].corrupted += 1;
        Class::Corrupted
    }

    /// Distinct intact frames at the right port so far.
    #[inline]
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    /// Frames of earlier trials so far.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Time from first to last counted arrival and one mean interval more in ns, of the port where that is longest.
    pub fn receiving_ns(&self) -> u64 {
        self.arrivals.iter().map(Arrivals::ns).max().unwrap_or(0)
    }

    /// Counts by group.
    pub fn groups(&self) -> &[GroupReceived] {
        &self.groups
    }

    /// `(flow, group, state)` of every flow that is received here.
    pub fn flows(&self) -> impl Iterator<Item = (usize, usize, &FlowState)> {
        self.flows.iter().zip(&self.ids).map(|(f, id)| (*id as usize, f.group as usize, &f.state))
    }

    /// Port that each of [`Analyzer::flows`] leads to, in their order.
    pub(crate) fn to(&self) -> impl Iterator<Item = PortIndex> {
        self.flows.iter().map(|f| f.to as usize)
    }

    /// What is kept beside of each of [`Analyzer::flows`], in their order; nothing where none asks for it.
    pub(crate) fn further(&self) -> &[Further] {
        &self.further
    }
}

/// The destination address of an Ethernet frame in the lower 48 bits; 0 where there is no header.
#[inline]
pub(crate) fn destination(frame: &[u8]) -> u64 {
    const ADDRESS: u64 = u64::from_le_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    frame.first_chunk().map_or(0, |head| u64::from_le_bytes(*head) & ADDRESS)
}

/// Full departure time. The stamps of sending and receiving come from two readings of one clock; where they cross by less
/// than a millisecond the departure is after the arrival and the frame took no time, rather than 4.29 s.
#[inline]
fn departure(time: u32, at: Instant) -> u64 {
    let departure = unwrap_time(time, at.0);
    if at.0.wrapping_sub(departure) > u64::from(u32::MAX) - 1_000_000 {
        departure.wrapping_add(1 << 32)
    } else {
        departure
    }
}

#[cfg(test)]
mod tests;
