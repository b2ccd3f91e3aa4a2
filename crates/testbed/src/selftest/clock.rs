//! The clock that everything is timed by: how finely it tells time, what a reading costs, and how long this machine keeps
//! a program from looking at it.

use drophammer_methods::report::{note, row, table};
use drophammer_model::outcome::{Outcome, RankFigure, Row};
use drophammer_port::{Clock, SystemClock};
use std::time::Duration;

pub(super) const NAME: &str = "clock";
pub(super) const TITLE: &str = "Clock";
/// Time that is spent looking at it.
pub(super) const DURATION: Duration = Duration::from_secs(1);
/// Column of the resolution, in ns.
pub(super) const RESOLUTION: &str = "resolution_ns";
/// A gap between two readings that somebody else had the processor for.
const GAPS: [(u64, &str); 3] = [(10_000, "gaps_10us"), (100_000, "gaps_100us"), (1_000_000, "gaps_1ms")];

/// Reads the clock as fast as it goes for [`DURATION`].
pub(super) fn measure(clock: &SystemClock, outcome: &mut Outcome) {
    let columns = [
        (RESOLUTION, "Smallest step", "ns"),
        ("reading_ns", "Cost of a reading", "ns"),
        ("backwards", "Steps backwards", ""),
        (GAPS[0].1, "Gaps above 10 µs", "per s"),
        (GAPS[1].1, "above 100 µs", "per s"),
        (GAPS[2].1, "above 1 ms", "per s"),
        ("longest_gap_us", "Longest gap", "µs"),
        ("lost_percent", "Processor time lost to others", "%"),
        ("wall_drift_ns", "Wall clock against steady clock", "ns"),
    ];
    table(outcome, NAME, "Clock, read in a loop for one second", &columns);
    note(outcome, "In a gap the tester neither sends nor looks. Frames that fall into it are handed over late.");
    let wall = clock.wall_offset();
    let begin = clock.now();
    let end = begin + DURATION;
    let (mut last, mut readings, mut backwards, mut smallest, mut longest, mut lost) =
        (begin, 0u64, 0u64, u64::MAX, 0, 0);
    let mut gaps = [0u64; GAPS.len()];
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
        for (count, (limit, _)) in gaps.iter_mut().zip(GAPS) {
            *count += u64::from(step > limit);
        }
        if step > GAPS[0].0 {
            lost += step;
        }
        last = now;
    }
    let seconds = last.since(begin).as_secs_f64();
    let drift = i64::try_from(clock.wall_offset() - wall).unwrap_or(i64::MAX);
    // Gaps are not the cost of reading.
    let reading = (seconds * 1e9 - lost as f64) / readings.max(1) as f64;
    let per_second = |n: u64| n as f64 / seconds;
    let cells = vec![
        smallest.into(),
        reading.into(),
        backwards.into(),
        per_second(gaps[0]).into(),
        per_second(gaps[1]).into(),
        per_second(gaps[2]).into(),
        (longest as f64 / 1e3).into(),
        (lost as f64 / seconds / 1e7).into(),
        (drift as f64).into(),
    ];
    let marks =
        if backwards > 0 { vec!["this clock runs backwards: no figure may be trusted".into()] } else { Vec::new() };
    row(outcome, NAME, Row { cells, trials: Vec::new(), marks });
    outcome.ranks.push(RankFigure {
        key: "longest_gap_us".into(),
        title: "Longest gap of a busy loop".into(),
        unit: "µs".into(),
        value: Some(longest as f64 / 1e3),
        higher_is_better: false,
        tester_limited: false,
        // Whoever shares the machine decides it.
        resolution: 0.9,
    });
}
