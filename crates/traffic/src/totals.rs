//! Sums of a trial under way, for a display that looks at it once a second.
//!
//! Unlike [`crate::Snapshot`] they have no latencies, and an answer never waits: a lane that finds its place taken leaves the answer out.

use crate::plan::Part;
use drophammer_model::quantity::Instant;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Flows of a lane up to which missing frames are counted. Each costs a look at its state, which delays the frames that are due meanwhile.
const MOST_FLOWS: usize = 1_024;

/// Sums over all flows of a trial under way. Each lane counts at its own moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Time since the start of the trial, on the clock of its ports.
    pub elapsed: Duration,
    /// Frames offered.
    pub offered: u64,
    /// Distinct intact frames received.
    pub received: u64,
    /// Frames below the highest sequence number of their flow that have not arrived. `None` if a lane receives more than 1,024 flows.
    pub missing: Option<u64>,
}

/// Sums of one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneTotals {
    at: Instant,
    offered: u64,
    received: u64,
    /// Frames that the tester's own ring refused. They are among the missing ones, but have not left.
    never_left: u64,
    /// Of each flow that has arrived here: number, next expected sequence number, distinct frames. `None` for too many flows.
    flows: Option<Vec<(usize, u64, u64)>>,
}

/// The last answer of a lane.
#[derive(Default)]
pub(crate) struct Answer {
    number: AtomicU64,
    totals: Mutex<LaneTotals>,
}

impl Answer {
    /// Number of the request that it answers.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Called by the lane: answers request `number`. A reader takes the answer only when its number is there, so the place is free
    /// unless two threads ask.
    pub(crate) fn put(&self, number: u64, totals: LaneTotals) {
        if let Ok(mut place) = self.totals.try_lock() {
            *place = totals;
        }
        self.number.store(number, Ordering::Release);
    }

    /// The answer.
    pub(crate) fn get(&self) -> LaneTotals {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Part {
    /// Sums at `now`.
    pub(crate) fn totals(&mut self, now: Instant) -> LaneTotals {
        let Part { generators, analyzer } = self;
        let flows = (analyzer.flow_count() <= MOST_FLOWS).then(|| {
            analyzer.settle();
            let all = analyzer.flows().map(|(flow, _, state)| (flow, state.next_expected(), state.received()));
            all.filter(|(_, next, _)| *next > 0).collect()
        });
        let refused = generators.iter().map(|generator| generator.refused_by_tester()).sum();
        LaneTotals {
            at: now,
            offered: generators.iter().map(|generator| generator.handed_over()).sum::<u64>().saturating_sub(refused),
            received: analyzer.distinct(),
            never_left: refused,
            flows,
        }
    }
}

impl Totals {
    /// Adds up the lanes of a trial that started at `start`.
    pub(crate) fn of(start: Instant, lanes: &[LaneTotals]) -> Totals {
        let sum = |count: fn(&LaneTotals) -> u64| lanes.iter().map(count).sum::<u64>();
        // Frames of one flow may arrive on several lanes.
        let mut flows: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for (flow, next, received) in lanes.iter().filter_map(|lane| lane.flows.as_ref()).flatten() {
            let all = flows.entry(*flow).or_default();
            *all = (all.0.max(*next), all.1 + received);
        }
        let gaps: u64 = flows.values().map(|(next, received)| next.saturating_sub(*received)).sum();
        Totals {
            elapsed: lanes.iter().map(|lane| lane.at.since(start)).max().unwrap_or_default(),
            offered: sum(|lane| lane.offered),
            received: sum(|lane| lane.received),
            missing: lanes
                .iter()
                .all(|lane| lane.flows.is_some())
                .then(|| gaps.saturating_sub(sum(|lane| lane.never_left))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(at: u64, offered: u64, flows: Option<Vec<(usize, u64, u64)>>) -> LaneTotals {
        let received = flows.iter().flatten().map(|(.., received)| received).sum();
        LaneTotals { at: Instant(at), offered, received, never_left: 0, flows }
    }

    #[test]
    fn a_flow_that_arrives_on_two_lanes_has_its_gaps_once() {
        let lanes = [lane(2_000, 30, Some(vec![(0, 10, 4), (1, 7, 7)])), lane(3_000, 0, Some(vec![(0, 12, 6)]))];
        let totals = Totals { elapsed: Duration::from_nanos(2_500), offered: 30, received: 17, missing: Some(2) };
        assert_eq!(Totals::of(Instant(500), &lanes), totals);
        let refused = LaneTotals { never_left: 1, ..lanes[0].clone() };
        assert_eq!(Totals::of(Instant(500), &[refused, lanes[1].clone()]).missing, Some(1));
        assert_eq!(Totals::of(Instant(500), &[lanes[0].clone(), lane(0, 5, None)]).missing, None);
    }

    #[test]
    fn an_answer_never_waits() {
        let answer = Answer::default();
        let reader = answer.totals.lock().unwrap();
        answer.put(1, lane(1, 1, None));
        drop(reader);
        assert_eq!((answer.number(), answer.get()), (1, LaneTotals::default()));
        answer.put(2, lane(1, 1, None));
        assert_eq!((answer.number(), answer.get().offered), (2, 1));
    }
}
