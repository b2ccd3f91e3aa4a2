//! Throughput (RFC 2544 section 26.1, RFC 1242 section 3.17): the highest rate at which no offered frame is lost.
//!
//! RFC 2544 section 26.1 does not prescribe the search; this one is Multiple Loss Ratio Search (RFC 9971).

use crate::kit::prelude::*;
use crate::mlrsearch::{GoalResult, Irregular, SearchEnd};
use crate::parameters;
use crate::throughput_search::{SearchTrial, Searched, estimate_one, goals, search, search_trials};
use crate::{modifiers, routed};
use drophammer_model::figure::Claim;
use drophammer_model::outcome::{CAPPED, FPS_PER_PORT};

/// The test.
pub struct Throughput;

/// `pdr`
pub const PDR: Param<bool> =
    Param::fixed("pdr", "true", "also search for the rate at 0.5 % loss, PDR(0.5%) (goal `csit` always does)");

const NDR: FigureSpec =
    FigureSpec::higher("throughput_{size}_pps", FPS_PER_PORT, "throughput NDR(0) per sending port in fps");
const PDR_RATE: FigureSpec =
    FigureSpec::higher("pdr_{size}_pps", FPS_PER_PORT, "rate per sending port in fps at 0.5 % loss, PDR(0.5%)");

static SPEC: TestSpec = TestSpec {
    name: "throughput",
    title: "Throughput",
    summary: "highest rate per frame size at which the router loses no frame",
    source: "RFC 2544 section 26.1, RFC 9971",
    params: parameters::params![
        &TRAFFIC,
        &LABELLED,
        &MODIFIED,
        &[parameters::GOAL.spec(), parameters::FINAL_TRIAL.spec(), parameters::WIDTH.spec(), PDR.spec()],
        &[parameters::MAX_LOAD.spec(), parameters::SEARCH_MAX.spec()],
        &parameters::AFTER_TRIAL,
    ],
    figures: &[NDR.shape(), PDR_RATE.shape()],
    tables: &[TABLE.shape(), routed::SHAPE, modifiers::SHAPE],
    needs: &[],
};

columns! {
    /// The throughput of one frame size. Rates are per sending port unless their heading says otherwise.
    struct ThroughputRow {
        frame_size: PacketSize,
        protocol: String,
        theoretical_pps: f64 ["fps"],
        ceiling_pps: Option<f64> = "Tester ceiling" ["fps"],
        intended_load_pps: Option<f64> ["fps"],
        offered_load_pps: Option<f64> ["fps"],
        throughput_pps: Option<f64> = "Throughput, NDR(0)" ["fps"],
        upper_bound_pps: Option<f64> ["fps"],
        line_percent: Option<f64> = "Of line rate" ["%"],
        aggregate_pps: Option<f64> ["fps"],
        l1_bps: Option<f64> = "Layer 1" ["bit/s"],
        l2_bps: Option<f64> = "Layer 2" ["bit/s"],
        pdr_0_5_pps: Option<f64> = "PDR(0.5%)" ["fps"],
        pdr_0_5_conditional_pps: Option<f64> = "PDR(0.5%) conditional throughput" ["fps"],
        trials: u64,
    }
}

const TABLE: TableSpec<ThroughputRow> = TableSpec::new("throughput", "Throughput");
const BARS: PlotSpec =
    PlotSpec::new("throughput", "Throughput by frame size", PlotKind::Bars, "frame size", "fps per port");
const DOTS: PlotSpec = PlotSpec::new(
    "throughput_trials",
    "Loss in every trial of the search",
    PlotKind::Dots,
    "offered load, fps per port",
    "loss, %",
);

impl Method for Throughput {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let goals = goals(params, PDR.get(params));
        Plan::by_size(params)
            .finding()
            .counting(search_trials(params, &goals, 1))
            .taking(estimate_one(params, &goals).as_secs_f64())
            .counts_alone()
            .deviating(common_deviations(params))
            .deviating(goal_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        BARS.begin(outcome);
        DOTS.begin(outcome);
        let goals = goals(params, PDR.get(params));
        let first = FRAME_SIZES.get(params).into_iter().next();
        let senders = first.map_or(0, |size| Pattern::new(size, params).senders(bed.ports().len()));
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
                     figure is the relevant lower bound, or the offered load if that was less.",
                    goal.name,
                    goal.loss_ratio * 100.0,
                    goal.exceed_ratio * 100.0,
                    goal.final_trial_duration_s,
                    goal.duration_sum_s,
                    goal.relative_width * 100.0
                ),
            );
        }
        let each = watched(|bed, pattern, outcome, index| {
            let searched = search(bed, pattern, goals.clone(), params)?;
            if searched.limits.retreated {
                note_of(outcome, pattern, searched.limits.statement());
            }
            if let Some((load, why)) = &searched.unfit {
                note_unfit(outcome, pattern, "the search ended early:", *load, why);
            }
            let lower = searched.results.first().and_then(|result| result.lower.as_ref());
            let unreached = lower.and_then(|b| note_reached(bed, outcome, pattern, "at the throughput", &b.trials));
            write(outcome, pattern, &searched, f64::from(index), senders, unreached);
            searched.keep(bed, pattern);
            searched.deviate(pattern, outcome);
            match (searched.error, searched.unfit) {
                (Some(error), _) => Err(error),
                // No goal has a lower bound. If one had, the marks of the row would show what is missing.
                (None, Some((_, why))) if searched.results.iter().all(|r| r.lower.is_none()) => {
                    Err(TestError::Unfit(why))
                }
                (None, _) => Ok(()),
            }
        });
        let figures = |pattern: &Pattern| {
            let pdr = PDR.get(params).then(|| pdr_figure(pattern));
            std::iter::once(ndr_figure(pattern)).chain(pdr).collect()
        };
        for_each_size(bed, params, outcome, or_spoilt(figures, each))
    }
}

fn write(
    outcome: &mut Outcome,
    pattern: &Pattern,
    searched: &Searched,
    x: f64,
    senders: u32,
    unreached: Option<String>,
) {
    let limits = &searched.limits;
    let zero = searched.results.first();
    let partial = searched.results.get(1);
    let lower = zero.and_then(|r| r.lower.as_ref());
    let found = searched.throughput();
    let tester_limited = [zero, partial].into_iter().flatten().any(|r| limited(searched, r));
    let mut marks: Vec<String> = unreached.into_iter().collect();
    for result in &searched.results {
        marks.extend(irregularities(result));
    }
    marks.extend(zero.and_then(|result| buffered(searched, result)));
    match searched.end {
        SearchEnd::OutOfBudget => marks.push("the time for the search ran out".into()),
        SearchEnd::Running if searched.unfit.is_some() => marks.push("the tester was unfit during the search".into()),
        SearchEnd::Running => marks.push("the search was stopped".into()),
        SearchEnd::FailedFast | SearchEnd::Completed => {}
    }
    if tester_limited {
        marks.push("tester-limited".into());
    }
    if [zero, partial].into_iter().flatten().any(|r| capped(searched, r)) {
        marks.push(CAPPED.into());
    }
    let pdr = partial.and_then(GoalResult::rate_pps);
    TABLE.add(
        outcome,
        ThroughputRow {
            frame_size: pattern.size.clone(),
            protocol: pattern.protocol(),
            theoretical_pps: limits.line.pps(),
            ceiling_pps: limits.ceiling.map(FrameRate::pps),
            intended_load_pps: lower.map(|b| b.load_pps),
            offered_load_pps: lower.map(|b| b.offered_pps),
            throughput_pps: found.map(FrameRate::pps),
            upper_bound_pps: zero.and_then(|r| r.upper.as_ref()).map(|b| b.load_pps),
            line_percent: found.map(|f| f.pps() / limits.line.pps() * 100.0),
            aggregate_pps: found.map(|f| f.pps() * f64::from(senders)),
            l1_bps: found.map(|f| pattern.l1_bps(f, limits.medium)),
            l2_bps: found.map(|f| pattern.l2_bps(f)),
            pdr_0_5_pps: pdr,
            pdr_0_5_conditional_pps: partial.and_then(|r| r.conditional_throughput_pps),
            trials: searched.trials.len() as u64,
        },
        searched.trials.iter().map(|t| t.trial),
        marks,
    );
    let label = Some(pattern.label());
    let bar = |y: f64, range| Point { x, y, label: label.clone(), range, trial: None };
    BARS.reference(outcome, "theoretical line rate", bar(limits.line.pps(), None));
    if let Some(ceiling) = limits.ceiling {
        BARS.reference(outcome, "tester ceiling", bar(ceiling.pps(), None));
    }
    if let Some(found) = found {
        let upper = zero.and_then(|r| r.upper.as_ref()).map(|b| (found.pps(), b.load_pps));
        BARS.curve(outcome, "throughput, NDR(0)", bar(found.pps(), upper));
    }
    if let Some(pdr) = pdr {
        BARS.curve(outcome, "PDR(0.5%)", bar(pdr, None));
    }
    for trial in &searched.trials {
        let dot = xy_of(trial.offered.pps(), trial.loss_ratio * 100.0, trial.trial);
        DOTS.dot(outcome, &pattern.size_text(), dot);
    }
    rank(outcome, searched, zero, ndr_figure(pattern));
    rank(outcome, searched, partial, pdr_figure(pattern));
}

/// The throughput of a pattern, without a value yet.
fn ndr_figure(pattern: &Pattern) -> RankFigure {
    let title = format!("Throughput, {}", pattern.size_text());
    NDR.of(&[("size", &pattern.size)], title, None)
}

/// The rate at 0.5 % loss of a pattern, without a value yet.
fn pdr_figure(pattern: &Pattern) -> RankFigure {
    let title = format!("Rate at 0.5 % loss, PDR(0.5%), {}", pattern.size_text());
    PDR_RATE.of(&[("size", &pattern.size)], title, None)
}

/// Returns true if the tester limits the figure of this goal.
fn limited(searched: &Searched, result: &GoalResult) -> bool {
    // Without an upper bound, a search that ran out of time has found only a lower bound.
    let unbounded = searched.unfit.is_some() || result.relative_width().is_none();
    let open = unbounded && result.irregular.contains(&Irregular::Unfinished);
    result.rate_pps().is_some_and(|rate| open || searched.limits.tester_limited(FrameRate(rate)))
}

/// Returns true if the search reached the suite's highest load before it found a load that was too high.
fn capped(searched: &Searched, result: &GoalResult) -> bool {
    searched.capped && result.irregular.contains(&Irregular::NoUpperBound)
}

fn rank(outcome: &mut Outcome, searched: &Searched, result: Option<&GoalResult>, figure: RankFigure) {
    let Some(result) = result else { return };
    let value = result.rate_pps();
    let open = result.irregular.contains(&Irregular::Unfinished);
    // A search that was stopped, or that ended without a bound, is not a result of the DUT and must not rank last.
    if searched.error.is_some() {
        return;
    }
    if open && value.is_none() {
        let out_of_time = || vec!["the search took too long; see `search_duration_max`".to_owned()];
        let why = searched.unfit.as_ref().map_or_else(out_of_time, |(_, why)| why.clone());
        return push_spoilt(outcome, figure, &why);
    }
    outcome.ranks.push(RankFigure {
        tester_limited: limited(searched, result),
        capped: capped(searched, result),
        claim: claim(searched, result),
        // If a search ended early, its bounds may be wider than the goal.
        resolution: result.relative_width().unwrap_or_default().max(result.goal.relative_width),
        value,
        ..figure.because("the router lost frames at every load")
    });
}

/// What the result claims about loads that the search did not try.
fn claim(searched: &Searched, result: &GoalResult) -> Option<Claim> {
    let goal = &result.goal;
    Some(Claim {
        goal: goal.name.clone(),
        trial: searched.trials.first()?.trial,
        superseded: searched.superseded.clone(),
        met_pps: result.rate_pps(),
        missed_pps: result.upper.as_ref().map(|bound| bound.load_pps),
        width: goal.relative_width,
        loss_ratio: goal.loss_ratio,
        exceed_ratio: goal.exceed_ratio,
        trial_duration_s: goal.final_trial_duration_s,
        duration_sum_s: goal.duration_sum_s,
    })
}

/// Marks a load at which nothing was lost only because buffers absorbed a share of it larger than the width of the
/// search: in a longer trial they would overflow.
fn buffered(searched: &Searched, result: &GoalResult) -> Option<String> {
    let trials = &result.lower.as_ref()?.trials;
    let share = |trial: &SearchTrial| trial.drained_s / trial.duration_s;
    let passed = |trial: &&SearchTrial| trials.contains(&trial.trial) && trial.loss_ratio <= result.goal.loss_ratio;
    let most = searched.trials.iter().filter(passed).max_by(|a, b| share(a).total_cmp(&share(b)))?;
    (share(most) > result.goal.relative_width).then(|| {
        format!(
            "{} with buffers that took {:.1} % of the load (trial {})",
            result.goal.name,
            share(most) * 100.0,
            most.trial
        )
    })
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
