//! What was received: of each group, and at each port.

use crate::histogram::Latencies;
use crate::plan::spaced;
use drophammer_model::latency::LatencySummary;
use drophammer_model::quantity::Instant;

/// Bins of a group at its receivers.
#[derive(Clone, Debug, Default)]
pub struct ReceiveBins {
    /// By departure.
    pub delivered: Vec<u64>,
    /// By arrival.
    pub arrived: Vec<u64>,
}

/// Counts of a group at its receivers.
#[repr(align(64))]
pub struct GroupReceived {
    /// Intact at the wrong port, or at the right one with the MAC address of somebody else.
    pub stray: u64,
    /// Not intact.
    pub corrupted: u64,
    /// Later than the threshold.
    pub late: u64,
    /// Bytes of distinct intact frames with FCS.
    pub bytes: u64,
    /// Time bins.
    pub bins: ReceiveBins,
    /// Strays, and received frames that came to another port than the `to` of their flow, by port of arrival.
    pub elsewhere: Vec<u64>,
    latencies: Latencies,
    latency_sum: u128,
    latency_min: u64,
    latency_max: u64,
}

impl GroupReceived {
    pub(crate) fn new(bins: usize, ports: usize) -> GroupReceived {
        GroupReceived {
            stray: 0,
            corrupted: 0,
            late: 0,
            bytes: 0,
            bins: ReceiveBins { delivered: spaced(bins), arrived: spaced(bins) },
            elsewhere: spaced(ports),
            latencies: Latencies::new(),
            latency_sum: 0,
            latency_min: u64::MAX,
            latency_max: 0,
        }
    }

    #[inline]
    pub(super) fn latency(&mut self, ns: u64) {
        self.latencies.record(ns);
        self.latency_sum += u128::from(ns);
        self.latency_min = self.latency_min.min(ns);
        self.latency_max = self.latency_max.max(ns);
    }

    /// Latency of the distinct intact frames.
    pub fn latency_summary(&self) -> LatencySummary {
        LatencySummary::from_histogram(
            &self.latencies.histogram(),
            self.latency_min,
            self.latency_max,
            self.latency_sum,
        )
    }

    /// Adds what another lane has received of the same group.
    pub(crate) fn add(&mut self, other: &GroupReceived) {
        self.stray += other.stray;
        self.corrupted += other.corrupted;
        self.late += other.late;
        self.bytes += other.bytes;
        let bins = self.bins.delivered.iter_mut().zip(&other.bins.delivered);
        bins.chain(self.bins.arrived.iter_mut().zip(&other.bins.arrived)).for_each(|(sum, n)| *sum += n);
        self.elsewhere.iter_mut().zip(&other.elsewhere).for_each(|(sum, n)| *sum += n);
        self.latencies.add(&other.latencies);
        self.latency_sum += other.latency_sum;
        self.latency_min = self.latency_min.min(other.latency_min);
        self.latency_max = self.latency_max.max(other.latency_max);
    }
}

/// Counted arrivals at one port.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Arrivals {
    frames: u64,
    first: Instant,
    last: Instant,
}

impl Arrivals {
    #[inline]
    pub(super) fn take(&mut self, at: Instant) {
        if self.frames == 0 {
            self.first = at;
        }
        self.frames += 1;
        self.last = self.last.max(at);
    }

    /// Time that these frames stand for: n frames span n - 1 intervals from first to last, so one mean interval is
    /// added; else n frames over that time would be a rate above the one at which they came.
    pub(super) fn ns(&self) -> u64 {
        let span = u128::from(self.last.0.saturating_sub(self.first.0));
        match u128::from(self.frames) {
            0 | 1 => 0,
            n => u64::try_from(span * n / (n - 1)).unwrap_or(u64::MAX),
        }
    }
}

/// Finds the time bin of an instant; remembers the last one, because the next frame is mostly in the same.
#[derive(Clone, Copy)]
pub(super) struct Bins {
    ns: u64,
    start: u64,
    from: u64,
    index: usize,
}

impl Bins {
    pub(super) fn new(ns: u64) -> Bins {
        Bins { ns, start: 0, from: 0, index: 0 }
    }

    pub(super) fn begin(&mut self, start: Instant) {
        (self.start, self.from, self.index) = (start.0, start.0, 0);
    }

    #[inline]
    pub(super) fn of(&mut self, at: u64) -> usize {
        if at.wrapping_sub(self.from) >= self.ns {
            let index = at.saturating_sub(self.start) / self.ns;
            self.from = self.start.saturating_add(index * self.ns);
            self.index = index as usize;
        }
        self.index
    }
}
