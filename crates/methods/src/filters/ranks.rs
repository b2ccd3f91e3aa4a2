//! The figures of the filter test that rank routers. Where a trial is missing, there is no figure: one without a value
//! would say that the router failed.

use super::Measured;
use crate::pattern::Pattern;
use crate::report::{higher, lower, lower_by_difference};
use drophammer_model::outcome::{Outcome, RankFigure};
use drophammer_model::quantity::FrameRate;

/// Number of conditions whose figures are ranked; the largest number of the test if it has no case with this one.
const RANKED: u64 = 10;

pub(super) fn rank(outcome: &mut Outcome, pattern: &Pattern, all: &[Measured]) {
    let (size, text) = (&pattern.size, pattern.size_text());
    let cases = || all.iter().filter(|one| one.case.is_some());
    let conditions = cases().filter_map(|one| one.case).map(|case| case.conditions);
    let most = conditions.clone().max();
    let Some(number) = conditions.clone().find(|n| *n == RANKED).or(most) else { return };
    let ranked = cases().find(|one| one.case.is_some_and(|case| case.conditions == number));
    if let (Some(one), Some(without)) = (ranked, all.first()) {
        let what = one.case.map_or(String::new(), |case| case.text());
        if one.known {
            let pps = one.throughput.map(FrameRate::pps);
            let title = format!("Throughput with {what}, {text}");
            let figure = higher(format!("filters_{size}_{number}_pps"), title, "fps", pps);
            outcome.ranks.push(RankFigure { tester_limited: one.tester_limited, capped: one.capped, ..figure });
        }
        // Without a throughput that is the router's own there is no whole of which to take a share.
        if one.known && without.throughput.is_some() && !without.limited() {
            let title = format!("Throughput with {what}, of that without filters, {text}");
            let figure = higher(format!("filters_{size}_{number}_percent"), title, "%", one.share(without));
            let tester_limited = one.tester_limited || one.at_line_rate;
            outcome.ranks.push(RankFigure { tester_limited, capped: one.capped, ..figure });
        }
        // A valid trial without latency is one in which no frame arrived.
        if let (Some(_), Some(whole)) = (&one.latency, without.latency_us(50.0)) {
            let latency = one.latency_us(50.0).map(|with| with / whole * 100.0);
            let title = format!("Median latency with {what}, of that without filters, {text}");
            outcome.ranks.push(lower(format!("latency_filters_{size}_{number}_percent"), title, "%", latency));
        }
    }
    let sum = |of: fn(&Measured) -> Option<u64>| cases().map(of).sum::<Option<u64>>().map(|frames| frames as f64);
    for (key, title, value) in [
        ("leaked", "Frames leaked through filters", sum(Measured::leaked)),
        ("denied", "Frames denied that filters permit", sum(Measured::permitted_lost)),
    ] {
        if value.is_some() {
            let title = format!("{title}, {text}");
            outcome.ranks.push(lower_by_difference(format!("filters_{size}_{key}"), title, "frames", value, 1.0));
        }
    }
}
