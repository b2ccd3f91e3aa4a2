//! Collects a flow's lost frames as runs of sequence numbers, which later become episodes of the trial.
//!
//! # When frames were lost
//!
//! After the trial, each lane reads the windows of its flows, 64 frames at a time, and builds runs of lost sequence
//! numbers. This costs nothing while frames arrive. Frames that the tester's own ring refused are not losses: the
//! generator counts them by flow and stores them as runs (`generator.rs`). A flow with more of them than the generator
//! can store has no times. `outcome.rs` computes the scheduled departures of both ends of each run and joins runs that
//! are at most 2 ms apart into episodes (`TrialResult::losses`). A trial stores 64 episodes. If there are more, the
//! distance is doubled until they fit, and `within_ns` contains the distance.

use crate::lane_report::SenderReport;
use drophammer_model::trial::WITHIN_NS;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Lost frames in quick succession. A run starts and ends with a lost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossRun {
    /// Lowest sequence number.
    pub first: u64,
    /// Highest sequence number.
    pub last: u64,
    /// Number of lost frames.
    pub lost: u64,
}

/// All runs of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossRuns {
    /// Largest difference between consecutive lost numbers in a run.
    pub apart: u64,
    /// The runs, ascending.
    pub runs: Vec<LossRun>,
}

/// Maximum number of runs of all flows of a trial together.
const MOST: usize = 1 << 16;

/// Returns the maximum number of runs for each of `flows` flows.
fn most(flows: usize) -> usize {
    (MOST / flows.max(1)).max(64)
}

/// Collects the runs of a flow. Takes lost frames in ascending order.
pub(crate) struct Collector<'a> {
    found: LossRuns,
    most: usize,
    /// Numbers that the tester's own ring refused, ascending. They are not lost.
    never_left: &'a [Range<u64>],
}

impl<'a> Collector<'a> {
    /// Continues the runs `found` in lower numbers.
    pub(crate) fn new(found: LossRuns, flows: usize, never_left: &'a [Range<u64>]) -> Collector<'a> {
        Collector { found, most: most(flows), never_left }
    }

    /// Adds the frames from `first` on whose bit in `missing` is set.
    pub(crate) fn word(&mut self, first: u64, mut missing: u64) {
        let end = first + 64;
        while let [gone, rest @ ..] = self.never_left
            && gone.start < end
        {
            let part = gone.start.max(first)..gone.end.min(end);
            if !part.is_empty() {
                missing &= !(u64::MAX >> (64 - (part.end - part.start)) << (part.start - first));
            }
            if gone.end > end {
                // The run continues in the next word.
                break;
            }
            self.never_left = rest;
        }
        if missing == 0 {
            return;
        }
        if self.found.apart >= 64 {
            let last = first + 63 - u64::from(missing.leading_zeros());
            let first = first + u64::from(missing.trailing_zeros());
            return self.add(LossRun { first, last, lost: missing.count_ones().into() });
        }
        while missing != 0 {
            let skip = missing.trailing_zeros();
            let run = (missing >> skip).trailing_ones();
            self.consecutive(first + u64::from(skip)..first + u64::from(skip + run));
            missing &= u64::MAX.checked_shl(skip + run).unwrap_or(0);
        }
    }

    /// Adds all frames of a range.
    pub(crate) fn range(&mut self, mut range: Range<u64>) {
        while let [gone, rest @ ..] = self.never_left
            && gone.start < range.end
        {
            if gone.end > range.start {
                self.consecutive(range.start..gone.start);
                range.start = gone.end;
            }
            if gone.end > range.end {
                break;
            }
            self.never_left = rest;
        }
        self.consecutive(range);
    }

    fn consecutive(&mut self, mut range: Range<u64>) {
        while self.found.apart == 0 && !range.is_empty() {
            self.add(LossRun { first: range.start, last: range.start, lost: 1 });
            range.start += 1;
        }
        if !range.is_empty() {
            self.add(LossRun { first: range.start, last: range.end - 1, lost: range.end - range.start });
        }
    }

    fn add(&mut self, run: LossRun) {
        let LossRuns { apart, runs } = &mut self.found;
        if let Some(last) = runs.last_mut()
            && run.first - last.last <= *apart
        {
            (last.last, last.lost) = (run.last, last.lost + run.lost);
            return;
        }
        runs.push(run);
        while runs.len() > self.most {
            *apart = (*apart * 2).max(1);
            runs.dedup_by(|run, last| {
                let joins = run.first - last.last <= *apart;
                if joins {
                    (last.last, last.lost) = (run.last, last.lost + run.lost);
                }
                joins
            });
        }
    }

    pub(crate) fn found(self) -> LossRuns {
        self.found
    }
}

/// The largest distance between two losses of one episode.
#[derive(Clone)]
pub(crate) struct Distance {
    /// The distance as a time in ns.
    pub(crate) within_ns: u64,
    /// Highest rate of each sent flow, in frames per second.
    rates: BTreeMap<u32, f64>,
}

impl Distance {
    /// Returns [`WITHIN_NS`], or the mean interval of a port's frames if that is longer.
    pub(crate) fn of<'a>(senders: impl Iterator<Item = &'a SenderReport> + Clone) -> Distance {
        let ports = senders.clone().map(|s| s.port).collect::<BTreeSet<_>>().len();
        let sum: f64 = senders.clone().map(|s| s.schedule.peak_pps()).sum();
        let interval = if sum > 0.0 { ports as f64 * 1e9 / sum } else { 0.0 };
        let within_ns = if interval > WITHIN_NS as f64 { interval.round() as u64 + 1 } else { WITHIN_NS };
        let mut rates = BTreeMap::new();
        for sender in senders {
            let of_place = sender.schedule.peak_pps() / sender.round.len().max(1) as f64;
            sender.round.iter().for_each(|flow| *rates.entry(*flow).or_default() += of_place);
        }
        Distance { within_ns, rates }
    }

    /// Returns the distance as a difference of sequence numbers of `flow`.
    pub(crate) fn apart(&self, flow: usize) -> u64 {
        // The small addend compensates for rounding, so that the result does not depend on the queues that send the frames.
        (self.within_ns as f64 * self.rate(flow) / 1e9 + 1e-6) as u64
    }

    /// Returns the time in ns between two frames of `flow` whose numbers differ by `apart`.
    pub(crate) fn ns(&self, flow: usize, apart: u64) -> u64 {
        let rate = self.rate(flow);
        if rate > 0.0 { (apart as f64 * 1e9 / rate) as u64 } else { 0 }
    }

    fn rate(&self, flow: usize) -> f64 {
        u32::try_from(flow).ok().and_then(|flow| self.rates.get(&flow)).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs(apart: u64, flows: usize, lost: &[u64], never_left: &[Range<u64>], end: u64) -> LossRuns {
        let mut collector = Collector::new(LossRuns { apart, runs: vec![] }, flows, never_left);
        for first in (0..end).step_by(64) {
            let bits =
                lost.iter().filter(|n| (first..first + 64).contains(*n)).fold(0, |bits, n| bits | 1 << (n - first));
            collector.word(first, bits);
        }
        collector.found()
    }

    #[test]
    fn losses_that_are_near_are_one_run() {
        let lost = [3, 4, 6, 63, 64, 200];
        let never_left = [6..7, 300..301];
        let told = |apart| {
            let found = runs(apart, 1, &lost, &never_left, 256);
            found.runs.iter().map(|r| (r.first, r.last, r.lost)).collect::<Vec<_>>()
        };
        assert_eq!(told(0), [(3, 3, 1), (4, 4, 1), (63, 63, 1), (64, 64, 1), (200, 200, 1)]);
        assert_eq!(told(1), [(3, 4, 2), (63, 64, 2), (200, 200, 1)]);
        assert_eq!(told(58), told(1));
        assert_eq!(told(59), [(3, 64, 4), (200, 200, 1)]);
        assert_eq!(told(136), [(3, 200, 5)]);
        let before = LossRuns { apart: 1, runs: vec![LossRun { first: 7, last: 9, lost: 2 }] };
        let never_left = [12..13, 20..21];
        let mut rest = Collector::new(before, 1, &never_left);
        rest.range(10..30);
        let ends: Vec<_> = rest.found().runs.iter().map(|r| (r.first, r.last, r.lost)).collect();
        assert_eq!(ends, [(7, 11, 4), (13, 19, 7), (21, 29, 9)]);
    }

    #[test]
    fn frames_that_never_left_are_not_lost_in_whatever_parts_they_are_taken() {
        // Within a word, across words, over whole words, and beyond the last word.
        let never_left: [Range<u64>; 5] = [3..5, 60..70, 100..300, 310..320, 390..500];
        let lost = |number: &u64| !never_left.iter().any(|gone| gone.contains(number));
        let expected: Vec<u64> = (0..600).filter(lost).collect();
        for words in 0..=9u64 {
            let mut collector = Collector::new(LossRuns::default(), 1, &never_left);
            (0..words).for_each(|word| collector.word(64 * word, u64::MAX));
            collector.range(64 * words..450);
            collector.range((64 * words).max(450)..600);
            let found = collector.found();
            let numbers: Vec<u64> = found.runs.iter().flat_map(|run| run.first..=run.last).collect();
            assert_eq!(numbers, expected, "{words} words");
            assert!(found.runs.iter().all(|run| run.lost == run.last - run.first + 1), "{:?}", found.runs);
        }
    }

    proptest! {
        /// All runs at most `apart` apart are joined, and no others.
        #[test]
        fn runs_are_those_of_the_numbers(
            lost in proptest::collection::btree_set(0u64..20_000, 0..800), apart in prop_oneof![0u64..100, 0u64..5_000]
        ) {
            let lost: Vec<u64> = lost.into_iter().collect();
            // With this many flows, each can report 64 runs.
            let told = runs(apart, 1 << 20, &lost, &[], 20_032);
            prop_assert!(told.runs.len() <= 64);
            prop_assert!(told.apart >= apart);
            let expected = |apart: u64| {
                let mut runs: Vec<LossRun> = vec![];
                for n in &lost {
                    match runs.last_mut() {
                        Some(last) if n - last.last <= apart => (last.last, last.lost) = (*n, last.lost + 1),
                        _ => runs.push(LossRun { first: *n, last: *n, lost: 1 }),
                    }
                }
                runs
            };
            prop_assert_eq!(&told.runs, &expected(told.apart));
            if told.apart > apart {
                prop_assert!(expected(told.apart / 2).len() > 64, "no coarser than necessary");
            }
        }
    }
}
