//! The trial, the unit of every test (RFC 2544 section 23): its offered traffic and its result.

use crate::latency::{IpdvSummary, LatencySummary};
use crate::quantity::FrameRate;
use crate::size::PacketSize;
use crate::traffic::{Arriving, Deviation, Header};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

mod health;
mod losses;
mod targets;

pub use health::{BetweenHosts, ChronyRecord, Health, HostRecord, ProcessorRecord};
pub use losses::Silences;
pub use losses::{Held, LossEpisode, Losses, MOST_EPISODES, WITHIN_NS};
pub use targets::{AddressRange, DestinationCounts, DestinationSummary, MAX_TARGETS, Targets};

/// Index of a tester port within the testbed, from 0.
pub type PortIndex = usize;

/// IP version of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        })
    }
}

/// Frames from one port to another. Each flow has its own sequence numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowSpec {
    /// Flows of the same group are counted together. A test compares groups ("IPv4", "stable", "gold").
    pub group: String,
    /// Sending port.
    pub from: PortIndex,
    /// Port at which every frame must arrive; an arrival elsewhere is a stray.
    pub to: PortIndex,
    /// Other ports at which an arrival is also correct (an alternate path). Such a frame counts as received, with order
    /// and latency, as if it had arrived at `to`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<PortIndex>,
    /// IP version; must match the addresses.
    pub family: Family,
    /// Source addresses, taken in pseudo-random order (RFC 4814). If it is the unspecified address alone, the outermost IP header
    /// may set the source.
    pub sources: AddressRange,
    /// Destinations, taken in pseudo-random order: each exactly once in every `count` frames. If it is the unspecified address
    /// alone, the outermost IP header may set the destination.
    pub destinations: Targets,
    /// True to also count by destination ([`TrialResult::destinations`]).
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub per_destination: bool,
    /// Number of frames after which its fields repeat, to also count by place in this cycle: frame n is at place n modulo `cycle`.
    /// 0 for no such counts. Not together with `per_destination`.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub cycle: u32,
    /// True to also measure the variation of latency from frame to frame ([`GroupCounts::ipdv`]).
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub ipdv: bool,
    /// Share of the sending port's load, relative to the other flows of that port that have no schedule.
    pub weight: f64,
    /// Headers of its frames, the outermost first; empty for Ethernet, IP and UDP. A missing Ethernet header is added.
    /// The outermost IP header sets an address only if `sources` or `destinations` leaves it to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
    /// True if the DUT is configured to drop all frames of this flow, so that none may arrive.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub denied: bool,
    /// True for background traffic that is not measured: its group counts in [`TrialResult::background`], and its
    /// frames count neither as lost nor as stray.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub background: bool,
    /// The expected encapsulation on arrival; absent for no tags, no labels, and tunnels as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrives: Option<Arriving>,
    /// True if an intact frame counts as received in any encapsulation and with any MAC address. `arrives` then says nothing.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub lenient: bool,
    /// Sizes of this flow's frames, if they differ from the trial's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<PacketSize>,
    /// The flow's own rate, start and length. Such a flow does not take part in the load of its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<FlowSchedule>,
}

impl FlowSpec {
    /// A flow of `group` between two ports, with the family of its sources, full weight and no other settings.
    pub fn new(
        group: impl Into<String>,
        from: PortIndex,
        to: PortIndex,
        sources: AddressRange,
        destinations: impl Into<Targets>,
    ) -> FlowSpec {
        FlowSpec {
            group: group.into(),
            from,
            to,
            also: Vec::new(),
            family: sources.family(),
            sources,
            destinations: destinations.into(),
            per_destination: false,
            cycle: 0,
            ipdv: false,
            weight: 1.0,
            headers: Vec::new(),
            denied: false,
            background: false,
            arrives: None,
            lenient: false,
            size: None,
            schedule: None,
        }
    }
}

/// The sum of counts. It saturates, because a stored run may contain any number.
pub fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The load over the time of a trial. Rates are frames per second *per sending port*.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Load {
    /// A constant rate with evenly spaced frames.
    Constant {
        /// Rate per sending port.
        rate_pps: f64,
    },
    /// The maximum that the port accepts, up to a limit: the maximum offered load (RFC 2285 section 3.5.3). A rate
    /// below the limit does not make the trial invalid; the actual offered load is measured.
    Maximum {
        /// Line rate, the highest rate that may be offered per sending port.
        limit_pps: f64,
    },
    /// Consecutive steps. The duration of the trial is the sum of their lengths.
    Steps {
        /// In order of time.
        steps: Vec<LoadStep>,
    },
    /// One burst of `frames` per sending port at `rate_pps` (the highest rate of the medium), then silence (RFC 9004).
    Burst {
        /// Frames of the burst per sending port.
        frames: u64,
        /// Rate within the burst per sending port.
        rate_pps: f64,
    },
    /// Only flows with a [`FlowSchedule`]; the ports have no other load.
    Flows,
}

/// One step of [`Load::Steps`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadStep {
    /// Length in seconds.
    pub duration_s: f64,
    /// Rate per sending port.
    pub rate_pps: f64,
}

/// The traffic that one trial offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialSpec {
    /// Purpose of this trial, shown as progress and stored in the record ("throughput 64: bisect").
    pub purpose: String,
    /// Sizes of the frames.
    pub size: PacketSize,
    /// The flows. Flows with the same sending port share that port's load by weight.
    pub flows: Vec<FlowSpec>,
    /// Load per sending port.
    pub load: Load,
    /// Sending time in seconds (ignored for a burst, which ends with its last frame).
    pub duration_s: f64,
    /// Width of time bins in seconds; absent for no bins.
    pub bin_s: Option<f64>,
    /// Time to wait for late frames, in seconds (RFC 2544 section 23 d: 2 s). It begins after the last departure and
    /// the last event, and ends early when every frame is accounted for. Each frame that arrives extends it by this
    /// time, up to 2 s.
    pub drain_s: f64,
    /// Events during the trial. The trial does not end before its last event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<TimedEvent>,
}

impl TrialSpec {
    /// Maximum number of flows that a record stores.
    pub const MOST_STORED: usize = 1_024;

    /// The specification as stored, and the number of flows that it leaves out. Flows to thousands of VRFs differ in tags and
    /// labels only.
    pub fn stored(&self) -> (TrialSpec, u64) {
        let step = self.flows.len().div_ceil(TrialSpec::MOST_STORED).max(1);
        let flows: Vec<FlowSpec> = self.flows.iter().step_by(step).cloned().collect();
        let left_out = (self.flows.len() - flows.len()) as u64;
        let (purpose, size, load, events) =
            (self.purpose.clone(), self.size.clone(), self.load.clone(), self.events.clone());
        (TrialSpec { purpose, size, flows, load, events, ..*self }, left_out)
    }

    /// Sending ports, ascending, without duplicates.
    pub fn senders(&self) -> Vec<PortIndex> {
        let mut ports: Vec<_> = self.flows.iter().map(|f| f.from).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Steps of the load per sending port, without flows that have a schedule: `(duration, rate)`.
    pub fn steps(&self) -> Vec<(Duration, FrameRate)> {
        // A damaged run folder may contain any number.
        let secs = |s: f64| Duration::try_from_secs_f64(s.max(0.0)).unwrap_or_default();
        match &self.load {
            Load::Constant { rate_pps } => vec![(secs(self.duration_s), FrameRate(*rate_pps))],
            Load::Maximum { limit_pps } => vec![(secs(self.duration_s), FrameRate(*limit_pps))],
            Load::Steps { steps } => steps.iter().map(|s| (secs(s.duration_s), FrameRate(s.rate_pps))).collect(),
            Load::Burst { frames, rate_pps } => vec![(secs(*frames as f64 / rate_pps), FrameRate(*rate_pps))],
            Load::Flows => vec![(secs(self.duration_s), FrameRate(0.0))],
        }
    }

    /// Frames that each port must send, not counting flows with a schedule.
    pub fn intended_per_port(&self) -> u64 {
        match &self.load {
            Load::Burst { frames, .. } => *frames,
            _ => total(self.steps().iter().map(|(d, r)| r.frames_in(*d))),
        }
    }

    /// The highest rate that any port must send, in frames per second.
    pub fn peak_pps(&self) -> f64 {
        let shared = self.steps().iter().map(|(_, rate)| rate.pps()).fold(0.0, f64::max);
        let of_port = |port: PortIndex| {
            let own = self.flows.iter().filter(|flow| flow.from == port);
            let scheduled: f64 = own.clone().filter_map(|flow| flow.schedule).map(|s| s.rate_pps).sum();
            scheduled + if own.clone().any(|flow| flow.schedule.is_none()) { shared } else { 0.0 }
        };
        self.senders().into_iter().map(of_port).fold(0.0, f64::max)
    }

    /// Time from first to last intended departure.
    pub fn sending_time(&self) -> Duration {
        self.steps().iter().fold(Duration::ZERO, |all, (d, _)| all.saturating_add(*d))
    }
}

/// Counts of one flow group.
///
/// `offered = received + lost`, exactly. `received` counts each frame once; duplicates are counted separately.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupCounts {
    /// Name of the group.
    pub group: String,
    /// Frames required by the load.
    pub intended: u64,
    /// Frames handed to the port (RFC 2285 offered load), including those that a device's receive ring refused.
    pub offered: u64,
    /// Offered frames that the device's receive ring refused, if the port can detect it (veth). The DUT lost them.
    pub refused: u64,
    /// Distinct frames that arrived intact at the right port before the end of the drain.
    pub received: u64,
    /// `offered - received`.
    pub lost: u64,
    /// Repeated arrivals of frames that had already arrived.
    pub duplicated: u64,
    /// RFC 4737 type-P-reordered frames: their sequence number is below the next expected one.
    pub reordered: u64,
    /// RFC 4737 maximum reordering extent, in frames.
    pub max_reordering_extent: u64,
    /// RFC 4737 n-reordering with n = 3, which TCP mistakes for loss.
    pub reordered_3: u64,
    /// Frames in sequence, counted as in the core router test of 2001: the sequence number is exactly one above that of
    /// the previous frame.
    pub in_sequence: u64,
    /// Received frames of flows whose frames arrived at several queues of a port, or at a port whose network card has
    /// more receive queues than the port reads. Their order is unknown, so the counts of reordering and sequence above
    /// do not include them.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub order_unknown: u64,
    /// Received frames that arrived later than the late threshold after departure; part of `received`.
    pub late: u64,
    /// Frames that arrived with a wrong checksum or signature; not part of `received`.
    pub corrupted: u64,
    /// Frames that arrived intact at the correct port, but only with an unexpected encapsulation, counted by the
    /// difference of the first arrival. Part of `lost`; each frame counts once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub deviations: BTreeMap<Deviation, u64>,
    /// Additional arrivals, with an unexpected encapsulation, of frames that were received or already count in
    /// `deviations`.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub deviating_copies: u64,
    /// Frames that arrived at a port that is not a destination of the flow, or with the MAC address of another host;
    /// not part of `received`.
    pub stray: u64,
    /// Bytes of received frames, FCS included.
    pub received_bytes: u64,
    /// Latency of the received frames.
    pub latency: LatencySummary,
    /// Inter-packet delay variation; absent unless requested ([`FlowSpec::ipdv`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipdv: Option<IpdvSummary>,
    /// Departure of the last lost frame in ns after the first departure; absent if nothing was lost or the time is unknown
    /// ([`Health::refused_by_tester`]).
    pub last_loss_ns: Option<u64>,
    /// Time bins; empty unless requested.
    pub bins: Vec<Bin>,
    /// Flows that were stopped or paused for part of the time. `intended` does not include the frames that were due in
    /// that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<StoppedFlow>,
    /// Received frames and strays by port of arrival; empty if every frame arrived at the `to` port of its flow and no
    /// other port was correct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrived_at: Vec<u64>,
}

/// A flow that was stopped or paused for part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoppedFlow {
    /// Index among the flows of the trial.
    pub flow: usize,
    /// Number of stops and pauses.
    pub stops: u64,
    /// Stopped or paused time between the start of the trial and the end of the flow's schedule, in seconds.
    pub stopped_s: f64,
    /// Time in that period in which the flow was sending, in seconds.
    pub sending_s: f64,
}

/// Counts of one time bin. Bins are of equal width ([`TrialSpec::bin_s`]) from the first departure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// Frames that departed in this bin.
    pub offered: u64,
    /// Frames that departed in this bin and arrived at any time; `offered - delivered` frames were lost.
    pub delivered: u64,
    /// Frames that arrived in this bin, regardless of their departure (the forwarding rate over time).
    pub arrived: u64,
}

/// Validity of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "reasons", rename_all = "snake_case")]
pub enum Validity {
    /// The trial is valid.
    #[default]
    Valid,
    /// The tester spoilt the trial, for these reasons.
    Invalid(Vec<String>),
}

impl Validity {
    /// True for [`Validity::Valid`].
    pub fn is_valid(&self) -> bool {
        matches!(self, Validity::Valid)
    }

    /// Makes the trial invalid, with these reasons added.
    #[must_use]
    pub fn and_not(self, more: Vec<String>) -> Validity {
        match self {
            Validity::Valid => Validity::Invalid(more),
            Validity::Invalid(reasons) => Validity::Invalid([reasons, more].concat()),
        }
    }
}

/// The result of one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Number within the run, from 1, assigned by the testbed. It identifies the stored record.
    pub trial: u64,
    /// From first to last departure in seconds.
    pub sending_s: f64,
    /// From first to last arrival of a test frame plus one mean interval (n frames span n - 1 intervals), in seconds,
    /// at the port with the longest time. It exceeds `sending_s` when a buffer drains.
    pub receiving_s: f64,
    /// Wall-clock time of the whole trial in seconds (set-up, sending, drain).
    pub elapsed_s: f64,
    /// Counts per group, in the order in which the groups first appear in the flows.
    pub groups: Vec<GroupCounts>,
    /// Counts of groups whose flows are all in the background ([`FlowSpec::background`]). Sums over groups do not
    /// include them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<GroupCounts>,
    /// State of the tester.
    pub health: Health,
    /// Validity of the trial.
    pub validity: Validity,
    /// Processor time of the DUT's forwarding and daemons over the trial, as a share of the time of load (`sending_s`,
    /// or `receiving_s` if a buffer drains longer; 1.0 = one full core); absent if it cannot be read.
    pub dut_cpu: Option<f64>,
    /// Growth of the DUT's own counters over the trial (`d0.rx_packets`, `ip.InHdrErrors`). Contains only counters that
    /// grew; empty if the DUT has no counters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dut_counters: BTreeMap<String, u64>,
    /// Number of sending ports (loads are per sending port; aggregate = load x senders).
    pub senders: u32,
    /// Frames between each pair of ports, if a port sends to several. They show whether all pairs had the same load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<WayCounts>,
    /// Executed events in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventRecord>,
    /// Counts by destination of the flows that request them, in order. Not stored, because they can be 16 million
    /// numbers.
    #[serde(skip)]
    pub destinations: Vec<DestinationCounts>,
    /// Summaries of `destinations`, which are stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destination_summaries: Vec<DestinationSummary>,
    /// Times of the lost frames.
    #[serde(default, skip_serializing_if = "Losses::is_empty")]
    pub losses: Losses,
    /// Frames that arrived in another place than their flow, in the order of the flows. A record stores the first
    /// [`MOST_STORED`] entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misdelivered: Vec<Misdelivered>,
    /// Such frames whose place is not in `misdelivered`, because a thread had already counted [`MOST_MISDELIVERED`] places.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub misdelivered_elsewhere: u64,
}

/// Maximum number of entries of [`TrialResult::misdelivered`] that a receiving thread counts.
pub const MOST_MISDELIVERED: usize = 65_536;
/// Maximum number of these entries that a record stores.
pub const MOST_STORED: usize = 1_000;

/// Frames of one flow that arrived at another port, or at the right port with other VLAN tags or MPLS labels than expected. Every arrival
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Misdelivered {
    /// Index of the flow in the trial.
    pub flow: usize,
    /// Port of arrival.
    pub port: PortIndex,
    /// VLAN identifier of the innermost tag; absent without tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Label at the bottom of the stack; absent without labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<u32>,
    /// Number of frames.
    pub frames: u64,
}

/// Frames from one port to another, of all flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayCounts {
    /// Sending port.
    pub from: PortIndex,
    /// Destination port.
    pub to: PortIndex,
    /// Frames offered.
    pub offered: u64,
    /// Number of these frames that were received.
    pub received: u64,
}

impl GroupCounts {
    /// RFC 4737 type-P-reordered frames; `None` if the order of some frames is unknown ([`GroupCounts::order_unknown`]).
    pub fn known_reordered(&self) -> Option<u64> {
        (self.order_unknown == 0).then_some(self.reordered)
    }
}

impl TrialResult {
    /// The result as stored, without counts by destination.
    pub fn stored(&self) -> TrialResult {
        TrialResult {
            groups: self.groups.clone(),
            background: self.background.clone(),
            health: self.health.clone(),
            validity: self.validity.clone(),
            dut_counters: self.dut_counters.clone(),
            events: self.events.clone(),
            ways: self.ways.clone(),
            destinations: Vec::new(),
            destination_summaries: self.destination_summaries.clone(),
            losses: self.losses.clone(),
            misdelivered: self.misdelivered.iter().take(MOST_STORED).copied().collect(),
            ..*self
        }
    }

    /// Sum of one count over all groups.
    pub fn sum(&self, count: impl Fn(&GroupCounts) -> u64) -> u64 {
        total(self.groups.iter().map(count))
    }

    /// Frames offered, all groups.
    pub fn offered(&self) -> u64 {
        self.sum(|g| g.offered)
    }

    /// Frames received, all groups.
    pub fn received(&self) -> u64 {
        self.sum(|g| g.received)
    }

    /// Frames lost, all groups.
    pub fn lost(&self) -> u64 {
        self.sum(|g| g.lost)
    }

    /// Frames intended, all groups.
    pub fn intended(&self) -> u64 {
        self.sum(|g| g.intended)
    }

    /// Share of offered frames that were lost, 0 to 1 (RFC 1242 frame loss rate); 0 if nothing was offered.
    pub fn loss_ratio(&self) -> f64 {
        let offered = self.offered();
        if offered == 0 { 0.0 } else { self.lost() as f64 / offered as f64 }
    }

    /// Measured offered load per sending port.
    pub fn offered_load(&self) -> FrameRate {
        if self.sending_s <= 0.0 || self.senders == 0 {
            return FrameRate(0.0);
        }
        FrameRate(self.offered() as f64 / self.sending_s / f64::from(self.senders))
    }

    /// Forwarding rate per sending port (RFC 2285 section 3.6): frames received, divided by the sending or the
    /// receiving time, whichever is longer. So frames that leave a buffer after the sending time do not increase the
    /// rate.
    pub fn forwarding_rate(&self) -> FrameRate {
        let seconds = self.sending_s.max(self.receiving_s);
        if seconds <= 0.0 || self.senders == 0 {
            return FrameRate(0.0);
        }
        FrameRate(self.received() as f64 / seconds / f64::from(self.senders))
    }
}

/// An event during a trial, for example that a route is withdrawn or a link goes down.
///
/// A trial can change routes or links at given times (`RouteAction`). `testbed` translates each action into an `Act` at
/// a port. Every lane calls `Control::event` before it sends the frames that are due at the same instant; the lane of
/// the port performs the action. In virtual time this is exact to the nanosecond. The drain time starts after the last
/// frame and the last event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedEvent {
    /// Time in seconds after the first departure, possibly at or after the last departure. Frames that are due at the
    /// same instant leave after the event.
    pub at_s: f64,
    /// Number of the event. Only the owner of the emulated routers knows its meaning.
    pub event: usize,
    /// Name in records and plots ("withdraw 1,000 routes").
    pub label: String,
    /// True if the event advertises the routes to all destinations of the trial, false if it withdraws the only routes
    /// to them. Before the first advertisement, and after a withdrawal, no frame can arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed: Option<bool>,
}

impl TimedEvent {
    /// An event that does not change routes.
    pub fn new(at_s: f64, event: usize, label: impl Into<String>) -> TimedEvent {
        TimedEvent { at_s, event, label: label.into(), routed: None }
    }
}

/// An executed event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Time in seconds after the first departure at which the last lane involved began.
    pub at_s: f64,
    /// Duration in seconds; 0 in virtual time.
    #[serde(default)]
    pub took_s: f64,
    /// [`TimedEvent::label`].
    pub label: String,
}

/// Evenly spaced departures of one flow's frames, at the flow's own rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowSchedule {
    /// Frames per second.
    pub rate_pps: f64,
    /// First departure after the start of the trial, in seconds.
    #[serde(default)]
    pub delay_s: f64,
    /// How long the flow sends.
    pub duration: FlowDuration,
}

/// How long a flow sends. It never sends longer than its trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowDuration {
    /// Until the trial stops sending.
    Continuous,
    /// A number of frames.
    Frames(u64),
    /// A number of seconds.
    Seconds(f64),
}
