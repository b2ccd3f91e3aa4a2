//! A row of flow metrics: the frames of a flow from one port to another.

use super::counts::{Counts, Disturbance, Latencies};
use super::rates::Rates;
use super::tagged::Tagged;
use crate::build::{PlannedFlow, PlannedStream};
use drophammer_model::Instant;
use drophammer_model::latency::IpdvSummary;
use drophammer_model::trial::PortIndex;

/// Flows with the same name and the same ports. They share one row of metrics.
#[derive(Clone, Debug)]
pub struct Row {
    /// Index of the flow.
    pub flow: usize,
    /// Sending port.
    pub from: PortIndex,
    /// Receiving port.
    pub to: PortIndex,
    /// Its streams.
    pub(super) streams: Vec<usize>,
    /// Name of its group in the traffic, and its number there.
    pub(super) group: String,
    pub(super) group_at: Option<usize>,
    /// False if the flow has no receiver, so that its arrivals do not count.
    pub receives: bool,
    /// Ports at which its frames may arrive, if it has a receiver.
    pub(super) receivers: Vec<PortIndex>,
    /// Time that a frame takes on the line, in ns, if latency does not contain it.
    pub line_ns: f64,
    /// True if it has ever started.
    pub started: bool,
    /// True if it has started in the running or last traffic.
    pub(super) current: bool,
    /// Counts of that traffic: now, and when the row started.
    pub whole: Counts,
    pub(super) base: Counts,
    /// Counts since then.
    pub counts: Counts,
    /// True if it measures latency.
    pub(super) measures: bool,
    /// Latencies of the traffic when the row started, and when the traffic ended.
    pub(super) base_latencies: Latencies,
    pub(super) last_latencies: Latencies,
    /// Counts by tagged values.
    pub(super) tagged: Tagged,
    /// Disturbances when the row started, and those since then.
    pub(super) undisturbed: Disturbance,
    pub disturbance: Disturbance,
    /// Variation of latency in the last traffic, if the row started only once in it.
    pub variation: Option<IpdvSummary>,
    /// How its rate compares with the threshold.
    pub rates: Rates,
    /// When it started.
    pub since: Instant,
    /// When it stopped sending; `None` if it sends or will send.
    pub(super) ended: Option<Instant>,
    /// True if it ended so long ago that nothing more can spoil its counts, while other flows send.
    pub(super) closed: bool,
    /// What spoilt the traffic in which it last sent, once it is closed or there is later traffic.
    pub(super) faults: Faults,
}

/// What spoilt the traffic of a row, besides [`Disturbance`].
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Frames that were due and did not leave.
    pub unsent: u64,
    /// What ended the traffic prematurely.
    pub failure: Option<String>,
    /// Largest step of the wall clock since the traffic began, in ns; known once the traffic has ended or the row is closed.
    pub clock_step_ns: i64,
}

impl Row {
    /// A row of flow `flow`, which is `planned`, that has not started. Its first stream is `stream`, the one with this `number`.
    pub fn new(flow: usize, planned: &PlannedFlow, stream: &PlannedStream, number: usize) -> Row {
        let spec = &stream.spec;
        let receivers = std::iter::once(spec.to).chain(spec.also.iter().copied()).filter(|_| planned.receives);
        Row {
            flow,
            from: spec.from,
            to: spec.to,
            streams: vec![number],
            group: spec.group.clone(),
            group_at: None,
            receives: planned.receives,
            receivers: receivers.collect(),
            line_ns: stream.line_ns,
            started: false,
            current: false,
            whole: Counts::default(),
            base: Counts::default(),
            counts: Counts::default(),
            measures: planned.metrics.latency && planned.receives,
            base_latencies: Latencies::default(),
            last_latencies: Latencies::default(),
            tagged: Tagged::new(&planned.tags),
            undisturbed: Disturbance::default(),
            disturbance: Disturbance::default(),
            variation: None,
            rates: Rates::default(),
            since: Instant(0),
            ended: None,
            closed: false,
            faults: Faults::default(),
        }
    }
}
