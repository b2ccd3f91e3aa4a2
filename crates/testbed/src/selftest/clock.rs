//! The clock of all measurements: its resolution, the cost of reading it, and how long this machine keeps a program
//! from reading it.

use drophammer_methods::columns;
use drophammer_methods::figure::FigureSpec;
use drophammer_methods::report::note;
use drophammer_methods::table::TableSpec;
use drophammer_model::outcome::{Outcome, RankFigure};
use drophammer_port::{Clock, SystemClock};
use std::time::Duration;

pub(super) const NAME: &str = "clock";
pub(super) const TITLE: &str = "Clock";
/// Time spent reading the clock.
pub(super) const DURATION: Duration = Duration::from_secs(1);
/// Limits, in ns, for counting gaps between two readings. In a gap another program used the processor.
const GAPS_NS: [u64; 3] = [10_000, 100_000, 1_000_000];

const GAP: FigureSpec = FigureSpec::lower("longest_gap_us", "µs", "longest time for which a busy loop did not run");

columns! {
    /// Results of reading the clock for one second.
    pub(super) struct ClockRow {
        resolution_ns: u64 = "Smallest step" ["ns"],
        reading_ns: f64 = "Cost of a reading" ["ns"],
        backwards: u64 = "Steps backwards",
        gaps_10us: f64 = "Gaps above 10 µs" ["per s"],
        gaps_100us: f64 = "above 100 µs" ["per s"],
        gaps_1ms: f64 = "above 1 ms" ["per s"],
        longest_gap_us: f64 ["µs"],
        lost_percent: f64 = "Processor time lost to others" ["%"],
        wall_drift_ns: f64 = "Wall clock against steady clock" ["ns"],
    }
}

pub(super) const TABLE: TableSpec<ClockRow> = TableSpec::new(NAME, "Clock, read in a loop for one second");

/// Reads the clock in a busy loop for [`DURATION`].
pub(super) fn measure(clock: &SystemClock, outcome: &mut Outcome) {
    TABLE.begin(outcome);
    note(
        outcome,
        "In a gap the tester neither sends nor receives. Frames that are due in a gap are sent or read late.",
    );
    let wall = clock.wall_offset();
    let begin = clock.now();
    let end = begin + DURATION;
    let (mut last, mut readings, mut backwards, mut smallest, mut longest, mut lost) =
        (begin, 0u64, 0u64, u64::MAX, 0, 0);
    let mut gaps = [0u64; GAPS_NS.len()];
    while last < end {
        let now = clock.now();
        readings += 1;
        if now < last {
            backwards += 1;
        }
        let step = now.0.saturating_sub(last.0);
        if step > 0 {
            smallest = smallest.min(step);
        }
        longest = longest.max(step);
        for (count, limit) in gaps.iter_mut().zip(GAPS_NS) {
            *count += u64::from(step > limit);
        }
        if step > GAPS_NS[0] {
            lost += step;
        }
        last = now;
    }
    let seconds = last.since(begin).as_secs_f64();
    let drift = i64::try_from(clock.wall_offset() - wall).unwrap_or(i64::MAX);
    // The cost of a reading excludes gaps.
    let reading = (seconds * 1e9 - lost as f64) / readings.max(1) as f64;
    let per_second = |n: u64| n as f64 / seconds;
    let longest_gap_us = longest as f64 / 1e3;
    let row = ClockRow {
        resolution_ns: smallest,
        reading_ns: reading,
        backwards,
        gaps_10us: per_second(gaps[0]),
        gaps_100us: per_second(gaps[1]),
        gaps_1ms: per_second(gaps[2]),
        longest_gap_us,
        lost_percent: lost as f64 / seconds / 1e7,
        wall_drift_ns: drift as f64,
    };
    TABLE.add(outcome, row, [], (backwards > 0).then(|| "this clock runs backwards: no figure may be trusted".into()));
    let figure = GAP.of(&[], "Longest gap of a busy loop", Some(longest_gap_us));
    // The resolution is coarse, because other programs on the machine determine the gap.
    outcome.ranks.push(RankFigure { resolution: 0.9, ..figure });
}
