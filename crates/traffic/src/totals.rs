//! Sums of a running trial, for a display that updates once a second.
//!
//! Unlike [`crate::Snapshot`], sums contain no latencies, and a lane neither allocates nor waits to answer: it writes
//! into memory allocated before the trial. A reader that is interrupted by this reads again.

use crate::counts::Snapshot;
use crate::plan::Part;
use drophammer_model::quantity::Instant;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// With more flows than this, a lane does not count missing frames: reading the state of each flow would delay frames
/// that become due in the meantime.
const MOST_FLOWS: usize = 1_024;

/// Sums over all flows of a running trial. Lanes count at slightly different times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Time since the start of the trial, on the clock of its ports.
    pub elapsed: Duration,
    /// Frames offered.
    pub offered: u64,
    /// Distinct intact frames received.
    pub received: u64,
    /// Frames below the highest arrived sequence number of their flow that have not arrived. `None` if a lane receives
    /// more than 1,024 flows.
    pub missing: Option<u64>,
}

/// Sums of one lane over all its flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    at: Instant,
    offered: u64,
    received: u64,
    /// Frames that the tester's own ring refused. They seem missing, but never left.
    never_left: u64,
}

/// Sums of one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneTotals {
    sums: Sums,
    /// Number, next expected sequence number and distinct frames of each flow that has arrived here. `None` if there
    /// are too many flows.
    flows: Option<Vec<(usize, u64, u64)>>,
}

/// The last answer of a lane. No other lane writes it.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Answer {
    /// Number of the answered request; written after the counts.
    number: AtomicU64,
    /// The same number, written before the counts. While the counts change, the two numbers differ.
    begun: AtomicU64,
    at: AtomicU64,
    offered: AtomicU64,
    received: AtomicU64,
    never_left: AtomicU64,
    /// Flows of the lane, in the order of its analyzer; `None` if there are too many.
    flows: Option<Vec<FlowPlace>>,
}

/// Counts of one flow.
#[derive(Default)]
struct FlowPlace {
    /// Number of the flow.
    flow: usize,
    next: AtomicU64,
    received: AtomicU64,
}

impl Answer {
    /// Creates the memory for a lane that receives flows with these numbers.
    fn of(flows: Option<Vec<usize>>) -> Answer {
        let places = |flows: Vec<usize>| {
            // Unused room follows: see `plan::spaced`.
            let mut places = Vec::with_capacity(flows.len() + 64usize.div_ceil(size_of::<FlowPlace>()));
            places.extend(flows.into_iter().map(|flow| FlowPlace { flow, ..FlowPlace::default() }));
            places
        };
        Answer { flows: flows.map(places), ..Answer::default() }
    }

    /// Returns the number of the answered request.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Answers request `number`. Called by the lane. `flows` contains the next expected sequence number and the
    /// distinct frames of each flow.
    fn put(&self, number: u64, sums: Sums, flows: impl Iterator<Item = (u64, u64)>) {
        self.begun.store(number, Ordering::Relaxed);
        // A reader that sees any of the following counts also sees `begun`.
        fence(Ordering::Release);
        self.at.store(sums.at.0, Ordering::Relaxed);
        self.offered.store(sums.offered, Ordering::Relaxed);
        self.received.store(sums.received, Ordering::Relaxed);
        self.never_left.store(sums.never_left, Ordering::Relaxed);
        for (place, (next, received)) in self.flows.iter().flatten().zip(flows) {
            place.next.store(next, Ordering::Relaxed);
            place.received.store(received, Ordering::Relaxed);
        }
        // A reader that sees the number also sees the counts.
        self.number.store(number, Ordering::Release);
    }

    /// Returns the answer to request `number` or a later one. `None` if there is none yet, or the lane is writing another one.
    pub(crate) fn get(&self, number: u64) -> Option<LaneTotals> {
        let answered = self.number.load(Ordering::Acquire);
        if answered < number {
            return None;
        }
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let sums = Sums {
            at: Instant(count(&self.at)),
            offered: count(&self.offered),
            received: count(&self.received),
            never_left: count(&self.never_left),
        };
        let flow = |place: &FlowPlace| (place.flow, count(&place.next), count(&place.received));
        let arrived = |places: &Vec<FlowPlace>| places.iter().map(flow).filter(|(_, next, _)| *next > 0).collect();
        let flows = self.flows.as_ref().map(arrived);
        fence(Ordering::Acquire);
        (self.begun.load(Ordering::Relaxed) == answered).then_some(LaneTotals { sums, flows })
    }
}

impl Part {
    /// Creates the memory for the lane's answers. Called before the trial starts.
    pub(crate) fn answer(&self) -> Answer {
        let flows = || self.analyzer.flows().map(|(flow, ..)| flow).collect();
        Answer::of((self.analyzer.flow_count() <= MOST_FLOWS).then(flows))
    }

    /// Answers request `number` with the sums at `now`.
    pub(crate) fn tell_totals(&mut self, answer: &Answer, number: u64, now: Instant) {
        let Part { generators, analyzer } = self;
        let refused: u64 = generators.iter().map(|generator| generator.refused_by_tester()).sum();
        let handed_over: u64 = generators.iter().map(|generator| generator.handed_over()).sum();
        let sums = Sums {
            at: now,
            offered: handed_over.saturating_sub(refused),
            received: analyzer.distinct(),
            never_left: refused,
        };
        if answer.flows.is_none() {
            answer.put(number, sums, std::iter::empty());
            return;
        }
        analyzer.settle();
        answer.put(number, sums, analyzer.flows().map(|(_, _, state)| (state.next_expected(), state.received())));
    }
}

impl Totals {
    /// Returns the sums of a snapshot of traffic that started at `start`.
    pub(crate) fn of_snapshot(start: Instant, snapshot: &Snapshot) -> Totals {
        Totals {
            elapsed: snapshot.at.since(start),
            offered: snapshot.sum(|flow| flow.offered),
            received: snapshot.sum(|flow| flow.received.frames),
            missing: Some(snapshot.sum(|flow| flow.received.missing)),
        }
    }

    /// Adds up the lanes of a trial that started at `start`.
    pub(crate) fn of(start: Instant, lanes: &[LaneTotals]) -> Totals {
        let sum = |count: fn(&Sums) -> u64| lanes.iter().map(|lane| count(&lane.sums)).sum::<u64>();
        // Frames of one flow can arrive on several lanes.
        let mut flows: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (flow, next, received) in lanes.iter().filter_map(|lane| lane.flows.as_ref()).flatten() {
            let all = flows.entry(*flow).or_default();
            *all = (all.0.max(*next), all.1 + received);
        }
        let gaps: u64 = flows.values().map(|(next, received)| next.saturating_sub(*received)).sum();
        Totals {
            elapsed: lanes.iter().map(|lane| lane.sums.at.since(start)).max().unwrap_or_default(),
            offered: sum(|sums| sums.offered),
            received: sum(|sums| sums.received),
            missing: lanes
                .iter()
                .all(|lane| lane.flows.is_some())
                .then(|| gaps.saturating_sub(sum(|sums| sums.never_left))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(at: u64, offered: u64, flows: Option<Vec<(usize, u64, u64)>>) -> LaneTotals {
        let received = flows.iter().flatten().map(|(.., received)| received).sum();
        LaneTotals { sums: Sums { at: Instant(at), offered, received, never_left: 0 }, flows }
    }

    #[test]
    fn a_flow_that_arrives_on_two_lanes_has_its_gaps_once() {
        let lanes = [lane(2_000, 30, Some(vec![(0, 10, 4), (1, 7, 7)])), lane(3_000, 0, Some(vec![(0, 12, 6)]))];
        let totals = Totals { elapsed: Duration::from_nanos(2_500), offered: 30, received: 17, missing: Some(2) };
        assert_eq!(Totals::of(Instant(500), &lanes), totals);
        let mut refused = lanes.clone();
        refused[0].sums.never_left = 1;
        assert_eq!(Totals::of(Instant(500), &refused).missing, Some(1));
        assert_eq!(Totals::of(Instant(500), &[lanes[0].clone(), lane(0, 5, None)]).missing, None);
    }

    /// Returns sums that are all `n`.
    fn sums(n: u64) -> Sums {
        Sums { at: Instant(n), offered: n, received: n, never_left: n }
    }

    #[test]
    fn an_answer_is_there_when_all_of_it_is_written() {
        let answer = Answer::of(Some(vec![4, 9]));
        assert_eq!(answer.get(1), None, "nobody has answered");
        answer.put(1, sums(1), [(0, 0), (7, 5)].into_iter());
        assert_eq!(answer.get(1), Some(LaneTotals { sums: sums(1), flows: Some(vec![(9, 7, 5)]) }));
        assert_eq!(answer.get(2), None, "the second request has no answer");
        // The lane starts writing an answer while a reader is still reading the first one.
        answer.begun.store(2, Ordering::Relaxed);
        assert_eq!(answer.get(1), None);
        answer.put(2, sums(2), [(1, 1), (8, 5)].into_iter());
        assert_eq!(answer.get(1), Some(LaneTotals { sums: sums(2), flows: Some(vec![(4, 1, 1), (9, 8, 5)]) }));
        let of_many = Answer::of(None);
        of_many.put(1, sums(1), std::iter::empty());
        assert_eq!(of_many.get(1), Some(LaneTotals { sums: sums(1), flows: None }));
    }

    #[test]
    fn a_reader_never_has_parts_of_two_answers() {
        const ANSWERS: u64 = 20_000;
        let answer = Answer::of(Some((0..64).collect()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=ANSWERS {
                    answer.put(n, sums(n), std::iter::repeat_n((n, n), 64));
                }
            });
            while answer.number() < ANSWERS {
                if let Some(read) = answer.get(1) {
                    let n = read.sums.offered;
                    let flows = (0..64).map(|flow| (flow, n, n)).collect();
                    assert_eq!(read, LaneTotals { sums: sums(n), flows: Some(flows) });
                }
            }
        });
    }
}
