//! Counts of a row of flow metrics, and what makes them doubtful.

use drophammer_model::Instant;
use drophammer_rig::{PlaceCounts, Snapshot};
use std::collections::HashMap;

/// Counts of one row of flow metrics. They are small, because all of them are read several times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Frames sent.
    pub frames_tx: u64,
    /// Bytes of these frames, FCS included.
    pub bytes_tx: u64,
    /// Distinct intact frames received.
    pub frames_rx: u64,
    /// Bytes of these frames, FCS included.
    pub bytes_rx: u64,
    /// Repeated arrivals of frames that were already received.
    pub duplicates: u64,
    /// Frames received out of order.
    pub reordered: u64,
    /// Received frames whose order is unknown.
    pub order_unknown: u64,
    /// Frames that arrived damaged.
    pub corrupted: u64,
    /// Frames that arrived at a wrong port.
    pub stray: u64,
    /// First arrival; `None` if there are no frames, or if the row was started again while other flows sent.
    pub first: Option<Instant>,
    /// Last arrival.
    pub last: Option<Instant>,
    latency_sum_ns: u128,
    /// Smallest and largest latency in ns, if they are known more exactly than from [`Latencies`].
    extremes: Option<(u64, u64)>,
}

impl Counts {
    /// Adds the stream of the traffic that has this number and has sent this much.
    pub fn add_stream(&mut self, snapshot: &Snapshot, number: Option<usize>, frames_tx: u64, bytes_tx: u64) {
        self.frames_tx += frames_tx;
        self.bytes_tx += bytes_tx;
        let Some(flow) = number.and_then(|number| snapshot.flows.get(&number)) else { return };
        self.frames_rx += flow.received.frames;
        self.duplicates += flow.received.duplicated;
        self.reordered += flow.received.reordered;
        self.order_unknown += flow.received.order_unknown;
    }

    /// Adds the counts that all streams of a row share.
    pub fn add_group(&mut self, snapshot: &Snapshot, group: usize) {
        let Some(group) = snapshot.groups.get(group) else { return };
        self.bytes_rx = group.bytes;
        self.corrupted = group.corrupted;
        self.stray = group.stray;
        if let Some(arrivals) = group.arrivals {
            (self.first, self.last) = (Some(arrivals.first), Some(arrivals.last));
            self.latency_sum_ns = arrivals.latency_sum_ns;
            self.extremes = Some((arrivals.latency_min_ns, group.latency_max_ns));
        }
    }

    /// Adds the frames at a place of a stream's cycle. Those sent have `bytes_tx` bytes.
    pub fn add_place(&mut self, place: &PlaceCounts, bytes_tx: u64) {
        self.frames_tx += place.offered;
        self.bytes_tx += bytes_tx;
        self.frames_rx += place.received;
        self.bytes_rx += place.bytes;
        let Some(arrivals) = place.arrivals else { return };
        self.first = Some(self.first.map_or(arrivals.first, |first| first.min(arrivals.first)));
        self.last = self.last.max(Some(arrivals.last));
        self.latency_sum_ns += arrivals.latency_sum_ns;
        let (min, max) = self.extremes.unwrap_or((u64::MAX, 0));
        self.extremes = Some((min.min(arrivals.latency_min_ns), max.max(place.latency_max_ns)));
    }

    /// Keeps only the counts of sent frames.
    pub fn forget_arrivals(&mut self) {
        *self = Counts { frames_tx: self.frames_tx, bytes_tx: self.bytes_tx, ..Counts::default() };
    }

    /// The difference between these counts and the earlier counts `base`.
    pub fn since(&self, base: &Counts) -> Counts {
        if *base == Counts::default() {
            return *self;
        }
        let first_ones = base.frames_rx == 0;
        Counts {
            frames_tx: self.frames_tx.saturating_sub(base.frames_tx),
            bytes_tx: self.bytes_tx.saturating_sub(base.bytes_tx),
            frames_rx: self.frames_rx.saturating_sub(base.frames_rx),
            bytes_rx: self.bytes_rx.saturating_sub(base.bytes_rx),
            duplicates: self.duplicates.saturating_sub(base.duplicates),
            reordered: self.reordered.saturating_sub(base.reordered),
            order_unknown: self.order_unknown.saturating_sub(base.order_unknown),
            corrupted: self.corrupted.saturating_sub(base.corrupted),
            stray: self.stray.saturating_sub(base.stray),
            first: self.first.filter(|_| first_ones),
            last: self.last.filter(|_| self.frames_rx > base.frames_rx),
            latency_sum_ns: self.latency_sum_ns.saturating_sub(base.latency_sum_ns),
            extremes: self.extremes.filter(|_| first_ones),
        }
    }

    /// Smallest, mean and largest latency in ns; `None` without frames. `latencies` has them if they are not counted here.
    pub fn latency_ns(&self, latencies: impl FnOnce() -> Latencies) -> Option<[f64; 3]> {
        let (min, max) = self.extremes.or_else(|| latencies().extremes())?;
        Some([min as f64, self.mean_latency_ns(), max as f64])
    }

    /// Mean latency in ns; 0 without frames.
    pub fn mean_latency_ns(&self) -> f64 {
        self.latency_sum_ns as f64 / self.frames_rx.max(1) as f64
    }
}

/// Disturbances of a port's frames by the tester itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Received frames that it lost.
    pub drops: u64,
    /// Frames that left more than 1 ms late.
    pub late: u64,
    /// All frames that left.
    pub departures: u64,
}

/// Frames of each latency, ascending: lower end of the bucket in ns, and frames.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies(pub Vec<(u64, u64)>);

/// Number of leading bits of a latency that count: three significant digits.
const BITS: u32 = 11;

/// The largest latency in the bucket that begins with this one.
fn largest(lowest_ns: u64) -> u64 {
    let width = 1 << (u64::BITS - lowest_ns.leading_zeros()).saturating_sub(BITS);
    lowest_ns + (width - 1)
}

impl Latencies {
    /// The difference between these latencies and the earlier ones `base`.
    pub fn since(mut self, base: &Latencies) -> Latencies {
        let before: HashMap<u64, u64> = base.0.iter().copied().collect();
        self.0.iter_mut().for_each(|(ns, frames)| *frames -= (*frames).min(before.get(ns).copied().unwrap_or(0)));
        self.0.retain(|(_, frames)| *frames > 0);
        self
    }

    /// At most `most` steps, ascending: upper end in ns, and frames. If there are more buckets, neighbours become one.
    pub fn steps(&self, most: usize) -> Vec<(u64, u64)> {
        let together = self.0.len().div_ceil(most).max(1);
        let step = |buckets: &[(u64, u64)]| {
            let last = buckets.last().map_or(0, |(ns, _)| *ns);
            (largest(last), buckets.iter().map(|(_, frames)| frames).sum::<u64>())
        };
        self.0.chunks(together).map(step).collect()
    }

    fn extremes(&self) -> Option<(u64, u64)> {
        Some((self.0.first()?.0, self.0.last()?.0))
    }

    /// The latency in ns that this percentage of the frames does not exceed: the lower end of its bucket.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let all: u64 = self.0.iter().map(|(_, frames)| frames).sum();
        let wanted = (all as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        let found = self.0.iter().find(|(_, frames)| {
            seen += frames;
            seen >= wanted
        });
        found.map(|(ns, _)| *ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_rig::{Arrivals, FlowCounts, GroupCounts, LaneCounts, Received};

    /// A row with these latencies.
    fn counts(latencies: &[(u64, u64)], last: u64) -> Counts {
        let frames: u64 = latencies.iter().map(|(_, frames)| frames).sum();
        let sum = latencies.iter().map(|(ns, frames)| u128::from(ns * frames)).sum();
        let arrivals =
            Arrivals { first: Instant(5), last: Instant(last), latency_min_ns: latencies[0].0, latency_sum_ns: sum };
        let group = GroupCounts { latency_max_ns: 1_001, arrivals: Some(arrivals), ..GroupCounts::default() };
        let received = Received { frames, ..Received::default() };
        let flow = FlowCounts { received, ..FlowCounts::default() };
        let snapshot = Snapshot { flows: [(0, flow)].into(), groups: vec![group], ..Snapshot::default() };
        let mut counts = Counts::default();
        counts.add_stream(&snapshot, Some(0), 100, 6_400);
        counts.add_group(&snapshot, 0);
        counts
    }

    #[test]
    fn percentiles_are_those_of_the_frames() {
        let latencies = Latencies(vec![(10, 500), (20, 400), (30, 90), (1_000, 10)]);
        let counts = counts(&latencies.0, 9);
        assert_eq!([50.0, 90.0, 99.0, 99.9].map(|p| latencies.percentile_ns(p)), [10, 20, 30, 1_000].map(Some));
        assert_eq!(counts.latency_ns(|| panic!("it is counted")), Some([10.0, 25.7, 1_001.0]));
        assert_eq!((counts.first, counts.last), (Some(Instant(5)), Some(Instant(9))));
        assert_eq!(
            (Counts::default().latency_ns(Latencies::default), Latencies::default().percentile_ns(50.0)),
            (None, None)
        );
    }

    #[test]
    fn steps_have_all_frames_however_few_they_are() {
        // The analyzer puts 2,048 and 2,049 ns into one bucket, and 10.003 to 10.01 ms into another.
        let latencies = Latencies(vec![(10, 5), (2_047, 1), (2_048, 2), (4_000, 3), (10_002_432, 4)]);
        let all = [(10, 5), (2_047, 1), (2_049, 2), (4_001, 3), (10_010_623, 4)];
        assert_eq!(latencies.steps(5), all);
        assert_eq!(latencies.steps(9), all);
        assert_eq!(latencies.steps(2), [(2_049, 8), (10_010_623, 7)]);
        assert_eq!(latencies.steps(1), [(10_010_623, 15)]);
        assert!(Latencies::default().steps(1).is_empty());
    }

    #[test]
    fn a_flow_that_arrives_on_several_lanes_has_the_mean_of_all_its_frames() {
        let lane = |sent: u64, latencies: &[u64]| {
            let arrivals = latencies.iter().min().zip(latencies.iter().max()).map(|(min, max)| Arrivals {
                first: Instant(1_000 + min),
                last: Instant(9_000 + max),
                latency_min_ns: *min,
                latency_sum_ns: u128::from(latencies.iter().sum::<u64>()),
            });
            let latency_max_ns = latencies.iter().max().copied().unwrap_or(0);
            let frames = latencies.len() as u64;
            // The frames on other lanes are missing here, and the lane that sends receives as well.
            let received = Received { frames, missing: 6 - frames, duplicated: 1, ..Received::default() };
            LaneCounts {
                at: Instant(10_000),
                sent: if sent > 0 { vec![(0, 0, sent)] } else { Vec::new() },
                quiet: Vec::new(),
                never_left: Vec::new(),
                received: vec![(0, received)],
                groups: vec![GroupCounts { bytes: frames * 64, latency_max_ns, arrivals, ..GroupCounts::default() }],
                ports: vec![(sent, 0), (0, frames)],
                arrived: Vec::new(),
                departures: Vec::new(),
                drops: Vec::new(),
                places: Vec::new(),
            }
        };
        let snapshot = Snapshot::of(&[lane(7, &[10, 20, 60]), lane(0, &[5, 110]), lane(0, &[]), lane(0, &[35])]);
        let mut counts = Counts::default();
        counts.add_stream(&snapshot, Some(0), snapshot.flows[&0].offered, 448);
        counts.add_group(&snapshot, 0);
        assert_eq!((counts.frames_tx, counts.frames_rx, counts.bytes_rx, counts.duplicates), (7, 6, 384, 4));
        assert_eq!(counts.latency_ns(|| panic!("it is counted")), Some([5.0, 40.0, 110.0]));
        assert_eq!((counts.first, counts.last), (Some(Instant(1_005)), Some(Instant(9_110))));
    }

    #[test]
    fn a_row_that_starts_again_has_its_own_latencies() {
        let (before, after) = (counts(&[(10, 5)], 9), counts(&[(10, 5), (40, 2)], 99));
        let since = after.since(&before);
        let latencies = Latencies(vec![(10, 5), (40, 2)]).since(&Latencies(vec![(10, 5)]));
        assert_eq!(latencies, Latencies(vec![(40, 2)]));
        assert_eq!((since.frames_rx, since.latency_ns(|| latencies)), (2, Some([40.0, 40.0, 40.0])));
        assert_eq!((since.first, since.last), (None, Some(Instant(99))));
        assert_eq!(before.since(&before).last, None);
    }
}
