//! Counts of received frames, by group and by port.

use super::Deviations;
use super::extras::Ipdv;
use crate::counts::{Arrivals as Times, GroupCounts};
use crate::histogram::Latencies;
use crate::lane_report::{GroupReport, PortArrivals};
use crate::plan::spaced;
use drophammer_model::latency::LatencySummary;
use drophammer_model::quantity::Instant;
use drophammer_model::size::MIN_FRAME;

/// Time bins of a group at its receivers.
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
    /// Intact frames at the wrong port, or at the right port with another host's MAC address.
    pub stray: u64,
    /// Frames that are not intact.
    pub corrupted: u64,
    /// Frames with a latency above the limit.
    pub late: u64,
    /// Bytes of distinct intact frames, FCS included.
    pub bytes: u64,
    /// Time bins.
    pub bins: ReceiveBins,
    /// Stray frames, and frames received at an alternate port, by port of arrival.
    pub elsewhere: Vec<u64>,
    latencies: Latencies,
    latency_sum: u128,
    latency_min: u64,
    latency_max: u64,
    /// By how much a frame arrived before it left.
    early: u64,
    /// First and last arrival of a distinct intact frame.
    arrivals: [u64; 2],
    /// Variations of latency from frame to frame, if the group measures them.
    ipdv: Option<Box<Ipdv>>,
}

impl GroupReceived {
    /// Creates empty counts. Latencies have places for as many as fit into `latency_bytes`.
    pub(crate) fn new(bins: usize, ports: usize, latency_bytes: usize, ipdv: bool) -> GroupReceived {
        GroupReceived {
            stray: 0,
            corrupted: 0,
            late: 0,
            bytes: 0,
            bins: ReceiveBins { delivered: spaced(bins), arrived: spaced(bins) },
            elsewhere: spaced(ports),
            latencies: Latencies::within(latency_bytes),
            latency_sum: 0,
            latency_min: u64::MAX,
            latency_max: 0,
            early: 0,
            arrivals: [u64::MAX, 0],
            ipdv: ipdv.then(|| Box::new(Ipdv::within(latency_bytes))),
        }
    }

    /// Returns the counts of each frame's latency and its variation. A [`Run`] counts everything else.
    #[inline]
    pub(super) fn latencies(&mut self) -> (&mut Latencies, Option<&mut Ipdv>) {
        (&mut self.latencies, self.ipdv.as_deref_mut())
    }

    /// Counts a variation of latency.
    pub(super) fn vary(&mut self, variation: i64) {
        if let Some(ipdv) = &mut self.ipdv {
            ipdv.record(variation);
        }
    }

    /// Adds the frames of a run.
    pub(super) fn take(&mut self, run: &Run) {
        self.late += run.late;
        self.bytes += run.bytes;
        self.latency_sum += u128::from(run.latency_sum);
        self.latency_min = self.latency_min.min(run.latency_min);
        self.latency_max = self.latency_max.max(run.latency_max);
        self.early = self.early.max(run.early);
        self.arrivals = [self.arrivals[0].min(run.first), self.arrivals[1].max(run.last)];
        if let Some(count) = self.bins.delivered.get_mut(run.departures.index) {
            *count += run.frames;
        }
        if let Some(count) = self.bins.arrived.get_mut(run.arrivals.index) {
            *count += run.frames;
        }
    }

    /// Summarizes the latency of the distinct intact frames.
    pub fn latency_summary(&self) -> LatencySummary {
        self.latencies.summary(self.latency_min, self.latency_max, self.latency_sum)
    }

    /// Returns the frames of each latency so far: `(lower end of the histogram's bucket in ns, frames)`, ascending.
    pub(crate) fn latency_steps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.latencies.steps()
    }

    /// Returns the counts so far, without the frames of each latency.
    pub(crate) fn counts(&self) -> GroupCounts {
        GroupCounts {
            refused: 0,
            corrupted: self.corrupted,
            stray: self.stray,
            bytes: self.bytes,
            latencies: Vec::new(),
            latency_max_ns: self.latency_max,
            arrivals: (self.latency_min <= self.latency_max).then_some(Times {
                first: Instant(self.arrivals[0]),
                last: Instant(self.arrivals[1]),
                latency_min_ns: self.latency_min,
                latency_sum_ns: self.latency_sum,
            }),
        }
    }

    /// Returns the counts as data, with the deviations of the group's flows.
    pub(crate) fn report(&self, deviations: &Deviations) -> GroupReport {
        GroupReport {
            stray: self.stray,
            corrupted: self.corrupted,
            deviations: deviations.frames.to_vec(),
            deviating_copies: deviations.copies,
            late: self.late,
            bytes: self.bytes,
            bins: self.bins.delivered.iter().copied().zip(self.bins.arrived.iter().copied()).collect(),
            elsewhere: self.elsewhere.clone(),
            latencies: self.latencies.steps().collect(),
            latency_sum_ns: self.latency_sum,
            latency_min_ns: self.latency_min,
            early_ns: self.early,
            latency_max_ns: self.latency_max,
            ipdv: self.ipdv.as_ref().map(|ipdv| ipdv.report()),
        }
    }
}

/// Counted arrivals at one queue.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Arrivals {
    frames: u64,
    first: Instant,
    last: Instant,
    /// Bytes of these frames and of the copies, FCS included.
    bytes: u64,
    /// Further copies of frames that had arrived before, at any queue.
    copies: u64,
}

impl Arrivals {
    pub(super) fn take(&mut self, run: &Run) {
        if self.frames == 0 {
            self.first = Instant(run.first);
        }
        self.frames += run.frames;
        self.bytes += run.bytes;
        self.last = self.last.max(Instant(run.last));
    }

    /// Adds copies, which have this many bytes in all.
    pub(super) fn take_copies(&mut self, copies: u64, bytes: u64) {
        self.copies += copies;
        self.bytes += bytes;
    }

    /// Returns frames and bytes, copies included.
    pub(super) fn with_copies(&self) -> (u64, u64) {
        (self.frames + self.copies, self.bytes)
    }

    /// Returns the counts as data.
    pub(super) fn report(&self) -> PortArrivals {
        PortArrivals { frames: self.frames, first_ns: self.first.0, last_ns: self.last.0 }
    }
}

/// A time bin.
#[derive(Clone, Copy)]
struct Bin {
    from: u64,
    /// Shorter than other bins if the range of time ends here.
    ns: u64,
    index: usize,
}

impl Bin {
    #[inline(always)]
    fn holds(&self, at: u64) -> bool {
        at.wrapping_sub(self.from) < self.ns
    }
}

/// Finds the time bin of an instant. Remembers the last bin, because the next frame is usually in the same one.
#[derive(Clone, Copy)]
pub(super) struct Bins {
    ns: u64,
    start: u64,
    last: Bin,
}

impl Bins {
    /// Without a length, a single bin contains all times.
    pub(super) fn new(ns: Option<u64>) -> Bins {
        Bins { ns: ns.unwrap_or(u64::MAX), start: 0, last: Bin { from: 0, ns: 0, index: 0 } }
    }

    pub(super) fn begin(&mut self, start: Instant) {
        self.start = start.0;
        self.last = Bin { from: start.0, ns: 0, index: 0 };
    }

    #[inline]
    fn of(&mut self, at: u64) -> Bin {
        if !self.last.holds(at) {
            self.find(at);
        }
        self.last
    }

    #[cold]
    fn find(&mut self, at: u64) {
        let index = at.saturating_sub(self.start) / self.ns;
        let from = self.start + index * self.ns;
        self.last = Bin { from, ns: self.ns.min(u64::MAX - from), index: index as usize };
    }
}

/// Returns the bytes on the link, FCS included, of a frame of `bytes` bytes without FCS. A device may have removed its padding.
#[inline(always)]
pub(crate) fn on_link(bytes: u32) -> u64 {
    (u64::from(bytes) + 4).max(u64::from(MIN_FRAME))
}

/// Consecutive distinct frames of one group at one port, with all departures in one time bin and all arrivals in one.
/// Most of a burst is one run, so its sums stay in registers.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) group: usize,
    departures: Bin,
    arrivals: Bin,
    pub(super) frames: u64,
    bytes: u64,
    late: u64,
    /// Sum over at most one burst of frames, each below 2^33 ns.
    latency_sum: u64,
    pub(super) latency_min: u64,
    latency_max: u64,
    pub(super) early: u64,
    first: u64,
    last: u64,
}

impl Run {
    /// Creates an empty run of `group` that fits a frame with this departure and this arrival.
    #[inline(always)]
    pub(super) fn new(group: usize, [departures, arrivals]: &mut [Bins; 2], departure: u64, at: u64) -> Run {
        Run {
            group,
            departures: departures.of(departure),
            arrivals: arrivals.of(at),
            frames: 0,
            bytes: 0,
            late: 0,
            latency_sum: 0,
            latency_min: u64::MAX,
            latency_max: 0,
            early: 0,
            first: at,
            last: at,
        }
    }

    /// True if a frame of the same group belongs to the run. This always holds for the first frame.
    #[inline(always)]
    pub(super) fn fits(&self, departure: u64, at: u64) -> bool {
        self.departures.holds(departure) && self.arrivals.holds(at) || self.frames == 0
    }

    /// Adds a frame of `bytes` bytes without FCS and a latency of `latency` ns.
    #[inline(always)]
    pub(super) fn add(&mut self, bytes: u32, latency: u64, late_ns: u64, at: u64) {
        self.frames += 1;
        self.bytes += on_link(bytes);
        self.late += u64::from(latency > late_ns);
        self.latency_sum += latency;
        self.latency_min = self.latency_min.min(latency);
        self.latency_max = self.latency_max.max(latency);
        self.last = self.last.max(at);
    }
}
