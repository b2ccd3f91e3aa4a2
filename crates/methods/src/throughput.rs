//! Throughput (RFC 2544 section 26.1, RFC 1242 section 3.17): the highest rate at which no offered frame is lost.
//!
//! RFC 2544 section 26.1 leaves the search open; here it is Multiple Loss Ratio Search (RFC 9971).

use crate::Method;
use crate::mlrsearch::{GoalResult, Irregular, SearchEnd};
use crate::parameters::{self, common_deviations};
use crate::pattern::Pattern;
use crate::report::{SeriesKind, for_each_size, note, plot, point, row, table};
use crate::testbed::{TestError, Testbed};
use crate::throughput_search::{Searched, estimate, goal_deviations, goals, search};
use drophammer_model::outcome::{Cell, Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use std::time::Duration;

/// The test.
pub struct Throughput;

static SPEC: TestSpec = TestSpec {
    name: "throughput",
    title: "Throughput",
    summary: "highest rate per frame size at which the router loses no frame",
    source: "RFC 2544 section 26.1, RFC 9971",
    params: &[
        parameters::FRAME_SIZES,
        parameters::FAMILIES,
        parameters::DIRECTION,
        parameters::GOAL,
        parameters::FINAL_TRIAL,
        parameters::WIDTH,
        ParamSpec::new(
            "pdr",
            ParamKind::Flag,
            "true",
            "true",
            "also search the rate at 0.5 % loss, PDR(0.5%) (the goal csit always does)",
        ),
        parameters::MAX_LOAD,
        parameters::SEARCH_MAX,
        parameters::PAUSE,
        parameters::DRAIN,
    ],
    figures: &[
        FigureSpec { key: "throughput_{size}_pps", help: "throughput NDR(0) per sending port in fps" },
        FigureSpec { key: "pdr_{size}_pps", help: "rate per sending port in fps at 0.5 % loss, PDR(0.5%)" },
    ],
    needs: &[],
};

const TABLE: &str = "throughput";
const BARS: &str = "throughput";
const DOTS: &str = "throughput_trials";

impl Method for Throughput {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        prepare(outcome);
        let goals = goals(params);
        let senders = Pattern::new(parameters::sizes(params).first().cloned().unwrap_or(FALLBACK), params)
            .senders(bed.ports().len());
        note(
            outcome,
            format!(
                "Rates are frames per second per sending port; ports that send: {senders}, so the aggregate is {senders} times the rate."
            ),
        );
        for goal in &goals {
            note(
                outcome,
                format!(
                    "{}: goal loss ratio {} %, exceed ratio {} %, final trial {} s, duration sum {} s, width {} %. The \
                     figure is the relevant lower bound, or the offered load where that was less.",
                    goal.name,
                    goal.loss_ratio * 100.0,
                    goal.exceed_ratio * 100.0,
                    goal.final_trial_duration_s,
                    goal.duration_sum_s,
                    goal.relative_width * 100.0
                ),
            );
        }
        for_each_size(bed, params, outcome, |bed, pattern, outcome, index| {
            let searched = search(bed, pattern, goals.clone(), params)?;
            if searched.limits.retreated {
                note(outcome, format!("{}: {}.", pattern.size_text(), searched.limits.statement()));
            }
            if let Some((load, why)) = &searched.unfit {
                let (size, why) = (pattern.size_text(), why.join("; "));
                let text = "the search ended early: the tester could not offer";
                note(outcome, format!("{size}: {text} {load} per port validly ({why})."));
            }
            write(outcome, pattern, &searched, f64::from(index), senders);
            searched.keep(bed, pattern);
            match (searched.error, searched.unfit) {
                (Some(error), _) => Err(error),
                // Nothing at all was found; with a bound the row says what is missing.
                (None, Some((_, why))) if searched.results.iter().all(|r| r.lower.is_none()) => {
                    Err(TestError::Unfit(why))
                }
                (None, _) => Ok(()),
            }
        })
    }

    fn estimate(&self, params: &Params) -> Duration {
        estimate(params, &goals(params))
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        common_deviations(params).into_iter().chain(goal_deviations(params)).collect()
    }
}

const FALLBACK: drophammer_model::PacketSize =
    drophammer_model::PacketSize::Fixed(drophammer_model::FrameSize::Frame(64));

fn prepare(outcome: &mut Outcome) {
    table(
        outcome,
        TABLE,
        "Throughput",
        &[
            ("frame_size", "Frame size", ""),
            ("protocol", "Protocol", ""),
            ("theoretical_pps", "Theoretical", "fps"),
            ("ceiling_pps", "Tester ceiling", "fps"),
            ("intended_load_pps", "Intended load", "fps"),
            ("offered_load_pps", "Offered load", "fps"),
            ("throughput_pps", "Throughput, NDR(0)", "fps"),
            ("upper_bound_pps", "Upper bound", "fps"),
            ("line_percent", "Of line rate", "%"),
            ("aggregate_pps", "Aggregate", "fps"),
            ("l1_bps", "Layer 1", "bit/s"),
            ("l2_bps", "Layer 2", "bit/s"),
            ("pdr_0_5_pps", "PDR(0.5%)", "fps"),
            ("pdr_0_5_conditional_pps", "PDR(0.5%) conditional throughput", "fps"),
            ("trials", "Trials", ""),
        ],
    );
    plot(outcome, BARS, "Throughput by frame size", PlotKind::Bars, "frame size", "fps per port", false);
    plot(
        outcome,
        DOTS,
        "Loss in every trial of the search",
        PlotKind::Dots,
        "offered load, fps per port",
        "loss, %",
        false,
    );
}

fn write(outcome: &mut Outcome, pattern: &Pattern, searched: &Searched, x: f64, senders: u32) {
    let limits = &searched.limits;
    let zero = searched.results.first();
    let partial = searched.results.get(1);
    let lower = zero.and_then(|r| r.lower.as_ref());
    let found = searched.throughput();
    let tester_limited = [zero, partial].into_iter().flatten().any(|r| limited(searched, r));
    let mut marks: Vec<String> = Vec::new();
    for result in &searched.results {
        marks.extend(irregularities(result));
    }
    match searched.end {
        SearchEnd::OutOfBudget => marks.push("the time for the search ran out".into()),
        SearchEnd::Running if searched.unfit.is_some() => marks.push("the tester was unfit in the midst of it".into()),
        SearchEnd::Running => marks.push("the search was stopped".into()),
        SearchEnd::FailedFast | SearchEnd::Completed => {}
    }
    if tester_limited {
        marks.push("tester-limited".into());
    }
    let pdr = partial.and_then(GoalResult::rate_pps);
    row(
        outcome,
        TABLE,
        Row {
            cells: vec![
                pattern.size.to_string().into(),
                pattern.protocol().into(),
                limits.line.pps().into(),
                limits.ceiling.map(FrameRate::pps).into(),
                lower.map(|b| b.load_pps).into(),
                lower.map(|b| b.offered_pps).into(),
                found.map(FrameRate::pps).into(),
                zero.and_then(|r| r.upper.as_ref()).map(|b| b.load_pps).into(),
                found.map(|f| f.pps() / limits.line.pps() * 100.0).into(),
                found.map(|f| f.pps() * f64::from(senders)).into(),
                found.map(|f| pattern.l1_bps(f)).into(),
                found.map(|f| pattern.l2_bps(f)).into(),
                pdr.into(),
                partial.and_then(|r| r.conditional_throughput_pps).into(),
                Cell::Count(searched.trials.len() as u64),
            ],
            trials: searched.trials.iter().map(|t| t.trial).collect(),
            marks,
        },
    );
    let label = Some(pattern.size.to_string());
    let bar = |y: f64, range| Point { x, y, label: label.clone(), range, trial: None };
    point(outcome, BARS, "theoretical line rate", SeriesKind::Reference, bar(limits.line.pps(), None));
    if let Some(ceiling) = limits.ceiling {
        point(outcome, BARS, "tester ceiling", SeriesKind::Reference, bar(ceiling.pps(), None));
    }
    if let Some(found) = found {
        let upper = zero.and_then(|r| r.upper.as_ref()).map(|b| (found.pps(), b.load_pps));
        point(outcome, BARS, "throughput, NDR(0)", SeriesKind::Curve, bar(found.pps(), upper));
    }
    if let Some(pdr) = pdr {
        point(outcome, BARS, "PDR(0.5%)", SeriesKind::Curve, bar(pdr, None));
    }
    for trial in &searched.trials {
        let dot =
            Point { x: trial.offered.pps(), y: trial.loss_ratio * 100.0, trial: Some(trial.trial), ..Point::default() };
        point(outcome, DOTS, &pattern.size_text(), SeriesKind::Dots, dot);
    }
    rank(
        outcome,
        searched,
        zero,
        format!("throughput_{}_pps", pattern.size),
        format!("Throughput, {}", pattern.size_text()),
    );
    let title = format!("Rate at 0.5 % loss, PDR(0.5%), {}", pattern.size_text());
    rank(outcome, searched, partial, format!("pdr_{}_pps", pattern.size), title);
}

/// Is the figure of this goal the tester's limit?
fn limited(searched: &Searched, result: &GoalResult) -> bool {
    let open = searched.unfit.is_some() && result.irregular.contains(&Irregular::Unfinished);
    result.rate_pps().is_some_and(|rate| open || searched.limits.tester_limited(FrameRate(rate)))
}

fn rank(outcome: &mut Outcome, searched: &Searched, result: Option<&GoalResult>, key: String, title: String) {
    let Some(result) = result else { return };
    let value = result.rate_pps();
    let open = result.irregular.contains(&Irregular::Unfinished);
    // A search that was stopped, or ended without a bound, says nothing about the DUT; it must not rank last.
    if searched.error.is_some() || (open && value.is_none()) {
        return;
    }
    outcome.ranks.push(RankFigure {
        key,
        title,
        unit: "fps".into(),
        value,
        higher_is_better: true,
        tester_limited: limited(searched, result),
        // The bounds of a search that ended early may be wider than its goal.
        resolution: result.relative_width().unwrap_or_default().max(result.goal.relative_width),
    });
}

/// Marks of a result.
fn irregularities(result: &GoalResult) -> Vec<String> {
    let name = &result.goal.name;
    let mut marks: Vec<String> = result.irregular.iter().map(|i| format!("{name} {i}")).collect();
    if let Some((lower, upper)) = result.preliminary {
        marks.push(format!("{name} preliminary bounds {lower:.0} to {upper:.0} fps, from fewer or shorter trials"));
    }
    if result.inverted {
        marks.push(format!("{name} loss inversion: a load above the upper bound met the goal"));
    }
    marks
}
