//! Counts of a trial in progress.

use crate::analyzer::on_link;
use crate::plan::Part;
use crate::transmit::Transmit;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::PortIndex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of one lane at an instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneCounts {
    /// Time of the counts, on the clock of the lane's ports.
    pub at: Instant,
    /// Flows that the lane sends: `(flow, group, frames offered)`.
    pub sent: Vec<(u32, usize, u64)>,
    /// Flows that are currently not sending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quiet: Vec<(u32, Transmit)>,
    /// Frames that the tester's own ring refused: `(flow, frames)`.
    pub never_left: Vec<(u32, u64)>,
    /// Flows that the lane receives.
    pub received: Vec<(usize, Received)>,
    /// Groups of the trial.
    pub groups: Vec<GroupCounts>,
    /// Ports of the trial: frames offered and test frames received.
    pub ports: Vec<(u64, u64)>,
    /// Ports of the trial: frames and bytes (FCS included) that arrived where their flow may arrive, copies included.
    #[serde(default)]
    pub arrived: Vec<(u64, u64)>,
    /// Ports of the trial: frames that left more than 1 ms (2^20 ns) late, and all that left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departures: Vec<(u64, u64)>,
    /// Received frames that the tester itself lost at a port since the traffic began: `(port, frames)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<(PortIndex, u64)>,
    /// Flows with a cycle ([`FlowSpec::cycle`](drophammer_model::trial::FlowSpec::cycle)), by place. Empty in counts without latencies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<(usize, Vec<PlaceCounts>)>,
}

/// Counts of received frames of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Distinct intact frames.
    pub frames: u64,
    /// Frames below the highest arrived sequence number that have not arrived.
    pub missing: u64,
    /// Copies after the first.
    pub duplicated: u64,
    /// Frames that are RFC 4737 type-P-reordered.
    pub reordered: u64,
    /// All frames, if they arrived at several queues and their order is unknown; otherwise 0.
    pub order_unknown: u64,
}

impl Received {
    /// Adds the counts of another lane for the same flow.
    fn add(&mut self, other: &Received) {
        let next = (self.frames + self.missing).max(other.frames + other.missing);
        let apart = self.frames > 0 && other.frames > 0;
        self.frames += other.frames;
        self.missing = next.saturating_sub(self.frames);
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.order_unknown += other.order_unknown;
        if apart {
            (self.reordered, self.order_unknown) = (0, self.frames);
        }
    }
}

/// Counts by group rather than by flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCounts {
    /// Offered frames that the device's receive ring refused.
    pub refused: u64,
    /// Frames that arrived but were not intact.
    pub corrupted: u64,
    /// Frames that arrived at the wrong port.
    pub stray: u64,
    /// Bytes of received frames, FCS included.
    pub bytes: u64,
    /// Latencies: `(lower end of the histogram's bucket in ns, frames)`, ascending. Empty in counts without them
    /// ([`crate::Traffic::counts`]).
    pub latencies: Vec<(u64, u64)>,
    /// Highest latency so far in ns.
    pub latency_max_ns: u64,
    /// Times of the received frames; `None` without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
}

/// When the received frames of a group arrived, and how long they took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrivals {
    /// First arrival, on the clock of the lane's ports.
    pub first: Instant,
    /// Last arrival.
    pub last: Instant,
    /// Lowest latency in ns.
    pub latency_min_ns: u64,
    /// Sum of all latencies in ns.
    pub latency_sum_ns: u128,
}

impl Arrivals {
    /// Returns the arrivals of both together.
    fn and(self, other: Arrivals) -> Arrivals {
        Arrivals {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            latency_min_ns: self.latency_min_ns.min(other.latency_min_ns),
            latency_sum_ns: self.latency_sum_ns + other.latency_sum_ns,
        }
    }
}

/// Counts of the frames at one place of a flow's cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceCounts {
    /// Number of offered frames. If the tester's own ring refused frames so often that it is not known which, this contains some of
    /// them, and the sum over all places exceeds [`FlowCounts::offered`].
    pub offered: u64,
    /// Distinct intact frames.
    pub received: u64,
    /// Bytes of these frames, FCS included.
    pub bytes: u64,
    /// Highest latency in ns.
    pub latency_max_ns: u64,
    /// Times of the received frames; `None` without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
}

impl PlaceCounts {
    /// Counts a frame of `bytes` bytes without FCS that arrived at `at` ns after `latency` ns.
    #[inline]
    pub(crate) fn take(&mut self, latency: u64, at: u64, bytes: u32) {
        let (at, sum) = (Instant(at), u128::from(latency));
        let arrivals = Arrivals { first: at, last: at, latency_min_ns: latency, latency_sum_ns: sum };
        self.add(&PlaceCounts {
            offered: 0,
            received: 1,
            bytes: on_link(bytes),
            latency_max_ns: latency,
            arrivals: Some(arrivals),
        });
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &PlaceCounts) {
        self.offered += other.offered;
        self.received += other.received;
        self.bytes += other.bytes;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
        self.arrivals = self.arrivals.into_iter().chain(other.arrivals).reduce(Arrivals::and);
    }
}

/// Returns the sums of the places of each flow.
pub(crate) fn sums_by_place(
    counts: impl IntoIterator<Item = (usize, Vec<PlaceCounts>)>,
) -> BTreeMap<usize, Vec<PlaceCounts>> {
    let mut all: BTreeMap<usize, Vec<PlaceCounts>> = BTreeMap::new();
    for (flow, places) in counts {
        let sums = all.entry(flow).or_default();
        sums.resize(sums.len().max(places.len()), PlaceCounts::default());
        sums.iter_mut().zip(&places).for_each(|(sum, place)| sum.add(place));
    }
    all
}

/// Counts of a flow, summed over all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCounts {
    /// Group.
    pub group: usize,
    /// Whether the flow sends.
    pub transmit: Transmit,
    /// Number of offered frames.
    pub offered: u64,
    /// Counts of the flow's received frames.
    pub received: Received,
}

/// Counts of all lanes. Lanes count at slightly different times, so a frame may already count as received but not yet as offered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time at which the last lane counted.
    pub at: Instant,
    /// By flow.
    pub flows: BTreeMap<usize, FlowCounts>,
    /// By group.
    pub groups: Vec<GroupCounts>,
    /// By port: frames offered and test frames received.
    pub ports: BTreeMap<PortIndex, (u64, u64)>,
    /// By port: frames and bytes that arrived; see [`LaneCounts::arrived`].
    #[serde(default)]
    pub arrived: BTreeMap<PortIndex, (u64, u64)>,
    /// By port: frames that left more than 1 ms late, and all that left.
    #[serde(default)]
    pub departures: BTreeMap<PortIndex, (u64, u64)>,
    /// By port: received frames that the tester itself lost since the traffic began, as far as lanes report them ([`LaneCounts::drops`]).
    #[serde(default)]
    pub drops: BTreeMap<PortIndex, u64>,
    /// Flows with a cycle, by place; see [`LaneCounts::places`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<usize, Vec<PlaceCounts>>,
}

impl Part {
    /// Returns the counts so far by place of each flow that has a cycle and is sent or received here. A flow may occur twice.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, Vec<PlaceCounts>)> {
        let offered = |offered| PlaceCounts { offered, ..PlaceCounts::default() };
        let sent = self.generators.iter().flat_map(|generator| generator.offered_by_place());
        let sent = sent.map(move |(flow, frames)| (flow as usize, frames.into_iter().map(offered).collect()));
        sent.chain(self.analyzer.places().map(|(flow, places)| (flow, places.to_vec())))
    }

    /// Returns the counts at `now`, with the frames of each latency and by place.
    pub(crate) fn counts(&mut self, now: Instant) -> LaneCounts {
        let mut counts = self.counts_without_latencies(now);
        let groups = counts.groups.iter_mut().zip(self.analyzer.groups());
        groups.for_each(|(counts, group)| counts.latencies = group.latency_steps().collect());
        counts.places = self.places().collect();
        counts
    }

    /// Returns the counts at `now`, in a time that grows with the flows only.
    pub(crate) fn counts_without_latencies(&mut self, now: Instant) -> LaneCounts {
        let Part { generators, analyzer } = self;
        analyzer.settle();
        let mut groups: Vec<GroupCounts> = analyzer.groups().iter().map(|g| g.counts()).collect();
        let mut ports = analyzer.arrivals().iter().map(|at| (0, at.frames)).collect::<Vec<_>>();
        let mut departures = vec![(0, 0); ports.len()];
        for generator in &*generators {
            generator.groups().iter().for_each(|group| groups[group.group].refused += group.refused);
            let sent: u64 = generator.offered().iter().map(|(.., frames)| frames).sum();
            ports[generator.port()].0 += sent.saturating_sub(generator.refused_by_tester());
            let (late, all) = generator.departures();
            let sum = &mut departures[generator.port()];
            *sum = (sum.0 + late, sum.1 + all);
        }
        let received = analyzer.flows().enumerate().map(|(place, (flow, _, state))| {
            let (frames, spread) = (state.received(), analyzer.is_spread(place));
            let received = Received {
                frames,
                missing: state.next_expected() - frames,
                duplicated: state.duplicated(),
                reordered: if spread { 0 } else { state.reordered() },
                order_unknown: if spread { frames } else { 0 },
            };
            (flow, received)
        });
        LaneCounts {
            at: now,
            received: received.collect(),
            sent: generators.iter().flat_map(|g| g.offered()).collect(),
            quiet: generators.iter().flat_map(|g| g.transmits(now)).filter(|(_, t)| *t != Transmit::Started).collect(),
            never_left: generators.iter().flat_map(|g| g.refused_by_flow()).collect(),
            groups,
            ports,
            arrived: analyzer.arrived(),
            departures,
            drops: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl Snapshot {
    /// Adds up the counts of the lanes of a trial.
    pub fn of<'a>(lanes: impl IntoIterator<Item = &'a LaneCounts>) -> Snapshot {
        let mut all = Snapshot::default();
        let mut never_left: BTreeMap<usize, u64> = BTreeMap::new();
        let mut places = Vec::new();
        for lane in lanes {
            places.extend(lane.places.iter().cloned());
            all.at = all.at.max(lane.at);
            for (flow, group, frames) in &lane.sent {
                let flow = all.flows.entry(*flow as usize).or_default();
                (flow.group, flow.offered) = (*group, flow.offered + frames);
            }
            for (flow, transmit) in &lane.quiet {
                all.flows.entry(*flow as usize).or_default().transmit = *transmit;
            }
            lane.received
                .iter()
                .for_each(|(flow, received)| all.flows.entry(*flow).or_default().received.add(received));
            lane.never_left.iter().for_each(|(flow, n)| *never_left.entry(*flow as usize).or_default() += n);
            for (port, (sent, received)) in lane.ports.iter().enumerate() {
                let sum = all.ports.entry(port).or_default();
                *sum = (sum.0 + sent, sum.1 + received);
            }
            for (port, (frames, bytes)) in lane.arrived.iter().enumerate() {
                let sum = all.arrived.entry(port).or_default();
                *sum = (sum.0 + frames, sum.1 + bytes);
            }
            for (port, (late, left)) in lane.departures.iter().enumerate() {
                let sum = all.departures.entry(port).or_default();
                *sum = (sum.0 + late, sum.1 + left);
            }
            lane.drops.iter().for_each(|(port, frames)| *all.drops.entry(*port).or_default() += frames);
            all.groups.resize(all.groups.len().max(lane.groups.len()), GroupCounts::default());
            all.groups.iter_mut().zip(&lane.groups).for_each(|(sum, group)| sum.add(group));
        }
        all.places = sums_by_place(places);
        for (flow, n) in never_left {
            let flow = all.flows.entry(flow).or_default();
            flow.offered -= n.min(flow.offered);
            flow.received.missing = flow.received.missing.saturating_sub(n);
        }
        all
    }

    /// Returns the sum of one count over all flows.
    pub fn sum(&self, count: impl Fn(&FlowCounts) -> u64) -> u64 {
        self.flows.values().map(count).sum()
    }
}

impl GroupCounts {
    pub(crate) fn add(&mut self, other: &GroupCounts) {
        self.refused += other.refused;
        self.corrupted += other.corrupted;
        self.stray += other.stray;
        self.bytes += other.bytes;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
        self.arrivals = self.arrivals.into_iter().chain(other.arrivals).reduce(Arrivals::and);
        if other.latencies.is_empty() {
            return;
        }
        let mut sum: BTreeMap<u64, u64> = self.latencies.drain(..).collect();
        other.latencies.iter().for_each(|(ns, frames)| *sum.entry(*ns).or_default() += frames);
        self.latencies = sum.into_iter().collect();
    }
}
