//! The figures of the filter test that rank routers. If the tester spoilt a trial, the figure has this reason: a
//! missing value without a reason would mean that the router failed.

use super::{DENIED_FRAMES, LATENCY, LEAKED_FRAMES, Measured, SHARE, THROUGHPUT};
use crate::filter_lists::Case;
use crate::kit::prelude::*;
use drophammer_model::outcome::Blame;

/// Number of conditions of the ranked figures; if the test has no case with this number, the largest one is ranked.
const RANKED: u64 = 10;

/// Adds the figures of a pattern. `all` has the result without filters first, then one result for each case that was
/// measured before the test `ended`.
pub(super) fn rank(
    outcome: &mut Outcome,
    pattern: &Pattern,
    cases: &[Case],
    all: &[Measured],
    ended: &Result<(), TestError>,
) {
    let conditions = cases.iter().map(|case| case.conditions);
    let most = conditions.clone().max();
    let Some(number) = conditions.clone().find(|n| *n == RANKED).or(most) else { return };
    let Some(case) = cases.iter().find(|case| case.conditions == number) else { return };
    let one = all.iter().find(|one| one.case.is_some_and(|case| case.conditions == number));
    let spoilt = match ended {
        Err(TestError::Unfit(why)) => Some(why.join("; ")),
        _ => None,
    };
    let what = case.text();
    let titled = |title: &str| format!("{title}, {}", pattern.size_text());
    let mut figures = vec![throughput(pattern, number, &titled(&format!("Throughput with {what}")), one)];
    if let Some(without) = all.first().filter(|one| !one.is_lossy()) {
        let title = titled(&format!("Throughput with {what}, relative to no filters"));
        figures.push(share(pattern, number, &title, one, without));
        let title = titled(&format!("Median latency with {what}, relative to no filters"));
        figures.push(latency(pattern, number, &title, one, without));
    }
    for (spec, title, of) in [
        (LEAKED_FRAMES, "Frames leaked through filters", Measured::leaked as fn(&Measured) -> Option<u64>),
        (DENIED_FRAMES, "Permitted frames that filters denied", Measured::permitted_lost),
    ] {
        let measured = || all.iter().filter(|one| one.case.is_some());
        let sum = measured().map(of).sum::<Option<u64>>().filter(|_| measured().count() == cases.len());
        let figure = spec.of(&[("size", &pattern.size)], titled(title), sum.map(|frames| frames as f64));
        figures.push(if sum.is_some() { figure } else { figure.spoilt("not every filter had a valid trial") });
    }
    // If a pattern was not finished, a figure without a value does not blame the router, unless the router failed.
    let by_router = |figure: &RankFigure| figure.missing.as_ref().is_some_and(|missing| missing.by == Blame::Dut);
    let told = |figure: RankFigure| match &spoilt {
        _ if figure.value.is_some() || by_router(&figure) => Some(figure),
        Some(why) => Some(figure.spoilt(why.clone())),
        None if ended.is_err() || all.first().is_some_and(Measured::is_lossy) => None,
        None => Some(figure),
    };
    outcome.ranks.extend(figures.into_iter().filter_map(told));
}

fn throughput(pattern: &Pattern, number: u64, title: &str, one: Option<&Measured>) -> RankFigure {
    let pps = one.and_then(|one| one.throughput).map(FrameRate::pps);
    let figure = THROUGHPUT.of(&[("size", &pattern.size), ("conditions", &number)], title, pps);
    match one {
        Some(one) if one.known => RankFigure {
            tester_limited: one.tester_limited,
            capped: one.capped,
            ..figure.because("it lost frames at every load")
        },
        Some(one) => figure.spoilt(one.marks.join("; ")),
        None => figure,
    }
}

fn share(pattern: &Pattern, number: u64, title: &str, one: Option<&Measured>, without: &Measured) -> RankFigure {
    let percent = one.and_then(|one| one.share(without));
    let figure = SHARE.of(&[("size", &pattern.size), ("conditions", &number)], title, percent);
    match one {
        // A share needs a throughput without filters that only the router limits.
        Some(_) if without.throughput.is_none() || without.limited() => {
            figure.nothing("the throughput without filters is only a lower bound, so the share is not known")
        }
        Some(one) if one.known => RankFigure {
            tester_limited: one.tester_limited || one.at_line_rate,
            capped: one.capped,
            ..figure.because("it lost frames at every load")
        },
        Some(one) => figure.spoilt(one.marks.join("; ")),
        None => figure,
    }
}

fn latency(pattern: &Pattern, number: u64, title: &str, one: Option<&Measured>, without: &Measured) -> RankFigure {
    let (with, whole) = (one.and_then(|one| one.latency_us(50.0)), without.latency_us(50.0));
    let percent = with.zip(whole).map(|(with, whole)| with / whole * 100.0);
    let figure = LATENCY.of(&[("size", &pattern.size), ("conditions", &number)], title, percent);
    let load_pps = one.and_then(|one| one.latency.as_ref()).map(|result| result.offered_load().pps());
    let figure = RankFigure { load_pps, ..figure };
    let mut results = one.into_iter().chain([without]).filter_map(|one| one.latency.as_ref());
    match (one, results.find_map(|result| hidden_latency(result, None))) {
        (None, _) => figure,
        (Some(_), Some(why)) => figure.beyond(why),
        // Another valid trial has no latency only if no frame arrived.
        (Some(one), None) if one.latency.is_some() && whole.is_some() => figure.because("no frame arrived"),
        (Some(_), None) => figure.spoilt("no valid trial for latency, with or without filters"),
    }
}
