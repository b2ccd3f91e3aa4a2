//! Packet order by load (RFC 4737; "packet ordering" of the core router test of 2001): the share of frames that arrive
//! out of order at each load, and the load at which this begins.
//!
//! A router that spreads the frames of one flow over parallel paths keeps them in order while the paths are idle. So
//! the order depends on the load.

mod onset;
mod sequence;

use crate::kit::prelude::*;
use crate::lossy::Lossy;
use crate::routed::{self, with_routes};
use crate::tester_ceiling::LoopOrder;
use drophammer_model::registry::ParamSpec;
use drophammer_model::trial::GroupCounts;
use onset::{At, Order, judge, onset};
use sequence::out_of_sequence;

/// The test.
pub struct PacketOrder;

drophammer_model::choice! {
    /// The rate to which the loads in % refer.
    enum Of {
        /// The line rate.
        Line = "line",
        /// The highest load: the line rate, or what the tester can offer.
        Highest = "highest",
        /// The throughput of the pattern.
        Throughput = "throughput",
    }
}

const FRAME_SIZES: Param<Vec<PacketSize>> = Param::fixed(
    "frame_sizes",
    "[ip40, imix]",
    "frame sizes with FCS, or mixes; defaults to the sizes of the core router test of 2001: IP packets of 40 bytes, and a mix",
);
const LOADS: Param<Vec<Percent>> = Param::new(
    "loads",
    "[100, 80, 60, 40, 20]",
    "[100, 95, 90, 85, 80, 75, 70, 65, 60, 55, 50, 40, 30, 20, 10]",
    "loads in % of `load_of`",
);
const LOAD_OF: Param<Of> = Param::fixed(
    "load_of",
    "highest",
    "reference for `loads`: line rate, highest load (line rate, or what the tester can offer), throughput",
);
const TRIAL_DURATION: Param<Duration> = trial_of_60_s("500 ms");
const REPEATS: Param<u32> = Param::fixed("repeats", "3", "trials per load");

/// Parameters of the traffic: the common ones, with different frame sizes.
const TRAFFIC_HERE: [ParamSpec; 7] =
    [FRAME_SIZES.spec(), TRAFFIC[1], TRAFFIC[2], TRAFFIC[3], TRAFFIC[4], TRAFFIC[5], TRAFFIC[6]];

const BEGINS: FigureSpec = FigureSpec::higher_by_difference(
    "reordering_begins_{size}_percent",
    "% of line rate",
    "load in % of line rate at which frames begin to arrive out of order: the lowest load for which it and all higher loads reorder",
);
const REORDERED: FigureSpec = FigureSpec::lower_by_difference(
    "reordered_{size}_percent",
    "%",
    "share of the received frames that are reordered (RFC 4737) at the highest load, in %",
)
.by(LEAST_LOSS_PERCENT);

static SPEC: TestSpec = TestSpec {
    name: "packet_order",
    title: "Packet order",
    summary: "share of frames that arrive out of order at each load, and the load at which this begins",
    source: "RFC 4737 sections 3, 4.2 and 5; core router test of 2001 (packet ordering)",
    params: params![
        &TRAFFIC_HERE,
        &LABELLED,
        &[LOADS.spec(), LOAD_OF.spec(), TRIAL_DURATION.spec(), REPEATS.spec()],
        &SEARCH,
    ],
    figures: &[BEGINS.shape(), REORDERED.shape()],
    tables: &[TABLE.shape(), ONSET.shape(), routed::SHAPE],
    needs: &[],
};

columns! {
    /// One load, over all its trials. Rates are per sending port, frames over all ports.
    struct OrderRow {
        frame_size: PacketSize,
        protocol: String,
        load_percent: f64 ["%"],
        line_percent: f64 = "Offered load, of line rate" ["%"],
        offered_load_pps: f64 ["fps"],
        received: u64 ["frames"],
        loss_percent: Option<f64> ["%"],
        duplicated: u64 = "Duplicates" ["frames"],
        reordered: Option<u64> = "Reordered (RFC 4737)" ["frames"],
        reordered_percent: Option<f64> = "Reordered (RFC 4737)" ["%"],
        least_percent: Option<f64> = "Reordered, best trial" ["%"],
        most_percent: Option<f64> = "Reordered, worst trial" ["%"],
        out_of_sequence_percent: Option<f64> = "Out of sequence (2001)" ["%"],
        reordered_3_percent: Option<f64> = "3-reordered" ["%"],
        max_extent: Option<u64> = "Reordering extent, maximum" ["frames"],
        worst_flow: Option<String>,
        worst_flow_percent: Option<f64> = "Reordered, worst flow" ["%"],
        loop_percent: Option<f64> = "Reordered, loop without router" ["%"],
        order: String,
        trials: u64,
    }
}

columns! {
    /// One frame size.
    struct OnsetRow {
        frame_size: PacketSize,
        protocol: String,
        begins: String = "Reordering begins",
        begins_percent: Option<f64> = "Lowest load from which on all reorder" ["%"],
        begins_pps: Option<f64> = "Lowest load from which on all reorder" ["fps"],
        below_percent: Option<f64> = "Next lower load" ["%"],
        doubt: Option<String> = "Trials that disagree",
    }
}

const TABLE: TableSpec<OrderRow> = TableSpec::new("packet_order", "Order of frames by load");
const ONSET: TableSpec<OnsetRow> = TableSpec::new("packet_order_onset", "Load at which reordering begins");
const PLOT: PlotSpec = PlotSpec::new(
    "packet_order",
    "Frames out of order (RFC 4737)",
    PlotKind::Line,
    "offered load, % of line rate",
    "reordered, %",
);

/// Loads in % without duplicates, the highest first.
fn loads(params: &Params) -> Vec<f64> {
    let mut loads: Vec<f64> = LOADS.get(params).into_iter().map(|load| load.0).filter(|load| *load > 0.0).collect();
    loads.sort_by(|a, b| b.total_cmp(a));
    loads.dedup();
    loads
}

/// The patterns, with the sizes of this test.
fn patterns(params: &Params) -> Vec<Pattern> {
    FRAME_SIZES.get(params).into_iter().map(|size| Pattern::new(size, params)).collect()
}

impl Method for PacketOrder {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let (most, of) = (loads(params).len() * REPEATS.get(params) as usize, LOAD_OF.get(params));
        // The tester may not reach line rate.
        let trials = if of == Of::Line { TrialCount::up_to(most) } else { TrialCount::exactly(most) };
        let plan = Plan::of(params, patterns(params))
            .trials(trials, TRIAL_DURATION.seconds(params), 0.5)
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 60.0, "RFC 2544 section 24"));
        if of == Of::Throughput { plan.searching().deviating(goal_deviations(params)) } else { plan }
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        ONSET.begin(outcome);
        PLOT.begin(outcome);
        note(
            outcome,
            "Frames are counted within their flow. Reordered: the sequence number is below the highest that arrived before (RFC 4737). Out \
             of sequence: the sequence number is not one above that of the previous frame, as the core router test of 2001 counts; loss \
             alone also puts frames out of sequence.",
        );
        let loads = loads(params);
        let mut lossy = Lossy::default();
        let each = watched(|bed, pattern, outcome, _| {
            let limits = pattern.limits(bed);
            note_of(outcome, pattern, limits.statement());
            let Some(whole) = whole(bed, pattern, params, outcome, &limits)? else {
                lossy.leave_out(outcome, pattern);
                return Ok(());
            };
            let without = bed.facts().orders.get(&pattern.key().on_loop()).copied();
            note_of(outcome, pattern, loop_text(without));
            let (mut found, mut unfit) = (Vec::new(), Vec::new());
            let mut ended = Ok(());
            for load in &loads {
                let rate = whole.scaled(load / 100.0);
                if rate.pps() > limits.max.pps() * 1.000_1 {
                    note_of(outcome, pattern, format!("{load} % left out: the tester cannot offer {rate}"));
                    continue;
                }
                bed.progress(&format!("packet order, {}", pattern.size_text()));
                let (results, stopped) = measure(bed, pattern, params, *load, rate);
                let unreached = note_reached(bed, outcome, pattern, &format!("at {load} %"), &trials(&results));
                let order = row(outcome, pattern, &limits, (*load, rate), &results, without, unreached);
                let (percent, disagree) = (line_percent(rate, &limits), order_by_trial(&results));
                found.push(At { load: percent, rate_pps: rate.pps(), order, disagree });
                match stopped {
                    Err(TestError::Unfit(why)) => {
                        note_unfit(outcome, pattern, &format!("{load} % left out or cut short,"), rate, &why);
                        unfit.push(why.join("; "));
                    }
                    Err(other) => {
                        ended = Err(other);
                        break;
                    }
                    Ok(()) => {
                        if found.len() == 1 && order != Order::Unknown {
                            rank_share(outcome, pattern, rate, &results, order);
                        }
                    }
                }
            }
            write_onset(outcome, pattern, &limits, &found, ended.is_ok());
            ended?;
            if found.iter().all(|at| at.disagree.1 == 0) { Err(TestError::Unfit(unfit)) } else { Ok(()) }
        });
        with_routes(bed, params, outcome, |bed, outcome| for_each_pattern(bed, patterns(params), outcome, each))?;
        lossy.end()
    }
}

/// The rate to which the loads refer; `None` if this is the throughput, and the router loses frames at every load.
fn whole(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
    limits: &Limits,
) -> Result<Option<FrameRate>, TestError> {
    match LOAD_OF.get(params) {
        Of::Line => Ok(Some(limits.line)),
        Of::Highest => Ok(Some(limits.max)),
        Of::Throughput => known_throughput(bed, pattern, params, outcome),
    }
}

/// Describes the reordering by the tester alone, for a note.
fn loop_text(without: Option<LoopOrder>) -> String {
    match without {
        None => "the tester was not measured without a router, so its own share of reordered frames is unknown".into(),
        Some(LoopOrder { trials, received, reordered, worst_percent }) => {
            let worst =
                if reordered > 0 { format!(", at most {worst_percent:.6} % of a trial") } else { String::new() };
            format!(
                "in {trials} trials through the loop without router, {reordered} of {received} frames were reordered{worst}"
            )
        }
    }
}

/// Runs the trials of a load. Returns the results so far even after an error.
fn measure(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    load: f64,
    rate: FrameRate,
) -> (Vec<TrialResult>, Result<(), TestError>) {
    let mut results = Vec::new();
    let stopped = (0..REPEATS.get(params)).try_for_each(|repeat| {
        let purpose = format!("packet order {}: {load} %, trial {}", pattern.size, repeat + 1);
        let load = Load::Constant { rate_pps: rate.pps() };
        let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
        let spec = each_flow_by_itself(spec, bed.ports());
        results.push(bed.trial(&spec)?);
        bed.settle(PAUSE.get(params))
    });
    (results, stopped)
}

/// Puts each flow of the trial into a separate group: `IPv4, p1 to p2`.
fn each_flow_by_itself(mut spec: TrialSpec, ports: &[PortView]) -> TrialSpec {
    for flow in &mut spec.flows {
        flow.group = format!("{}, {} to {}", flow.family, ports[flow.from].name, ports[flow.to].name);
    }
    spec
}

fn line_percent(rate: FrameRate, limits: &Limits) -> f64 {
    rate.pps() / limits.line.pps() * 100.0
}

/// Sum over trials and groups; `None` if the order in any of them is unknown.
fn known(results: &[TrialResult], count: impl Fn(&GroupCounts) -> u64) -> Option<u64> {
    results.iter().flat_map(|result| &result.groups).map(|g| g.known_reordered().map(|_| count(g))).sum()
}

fn received(results: &[TrialResult]) -> u64 {
    results.iter().map(TrialResult::received).sum()
}

/// Share of reordered frames in % for each trial in which the order is known.
fn shares(results: &[TrialResult]) -> Vec<f64> {
    let of =
        |result: &TrialResult| percent_of(known(std::slice::from_ref(result), |g| g.reordered)?, result.received());
    results.iter().filter_map(of).collect()
}

/// Number of trials with reordered frames, and number of all trials.
fn order_by_trial(results: &[TrialResult]) -> (u64, u64) {
    let reordered = results.iter().filter(|result| result.sum(|g| g.reordered) > 0).count();
    (reordered as u64, results.len() as u64)
}

/// Name and share in % of the flow with the largest share of reordered frames over all trials, if any were reordered.
fn worst_flow(results: &[TrialResult]) -> Option<(String, f64)> {
    let groups = results.first()?.groups.iter().map(|g| g.group.as_str());
    let share = |name: &str| {
        let own: Vec<&GroupCounts> = results.iter().flat_map(|r| &r.groups).filter(|g| g.group == name).collect();
        percent_of(own.iter().map(|g| g.reordered).sum(), own.iter().map(|g| g.received).sum())
    };
    let all = groups.filter_map(|name| Some((name.to_owned(), share(name)?)));
    all.filter(|(_, share)| *share > 0.0).max_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// Writes a row, and returns the verdict on the order. `load` is in %, `rate` the intended one.
fn row(
    outcome: &mut Outcome,
    pattern: &Pattern,
    limits: &Limits,
    (load, rate): (f64, FrameRate),
    results: &[TrialResult],
    without: Option<LoopOrder>,
    unreached: Option<String>,
) -> Order {
    if results.is_empty() {
        return Order::Unknown;
    }
    let all = received(results);
    let reordered = known(results, |g| g.reordered);
    let order = judge(reordered, all, without);
    let share = |count: Option<u64>| count.and_then(|count| percent_of(count, all));
    let offered = results.iter().map(|r| r.offered_load().pps()).sum::<f64>() / results.len() as f64;
    let percents = shares(results);
    let worst = worst_flow(results).filter(|_| reordered.is_some());
    let (some, of) = order_by_trial(results);
    let mut marks: Vec<String> = unreached.into_iter().collect();
    if reordered.is_some() && some > 0 && some < of {
        marks.push(format!("{some} of {of} trials have reordered frames"));
    }
    if limits.tester_limited(FrameRate(offered)) {
        marks.push("near the tester's ceiling".into());
    }
    TABLE.add(
        outcome,
        OrderRow {
            frame_size: pattern.size.clone(),
            protocol: pattern.protocol(),
            load_percent: load,
            line_percent: line_percent(FrameRate(offered), limits),
            offered_load_pps: offered,
            received: all,
            loss_percent: loss_percent(results),
            duplicated: results.iter().map(|r| r.sum(|g| g.duplicated)).sum(),
            reordered,
            reordered_percent: share(reordered),
            least_percent: extremes(&percents).map(|(least, _)| least),
            most_percent: extremes(&percents).map(|(_, most)| most),
            out_of_sequence_percent: share(out_of_sequence(results)),
            reordered_3_percent: share(known(results, |g| g.reordered_3)),
            max_extent: reordered.and(results.iter().flat_map(|r| &r.groups).map(|g| g.max_reordering_extent).max()),
            worst_flow: worst.as_ref().map(|(name, _)| name.clone()),
            worst_flow_percent: worst.map(|(_, percent)| percent),
            loop_percent: without.map(|without| without.percent()),
            order: order.text().into(),
            trials: results.len() as u64,
        },
        trials(results),
        marks,
    );
    if let Some(percent) = share(reordered) {
        // The offered load differs a little from round to round, which would leave the curve without a median.
        let x = line_percent(rate, limits);
        PLOT.curve(outcome, &pattern.size_text(), xy_of(x, percent, results[0].trial));
        for (result, percent) in results.iter().zip(percents) {
            PLOT.dot(outcome, &pattern.size_text(), xy_of(x, percent, result.trial));
        }
    }
    order
}

/// Ranks the share at the highest load. If the tester may have caused the reordering, there is no figure.
fn rank_share(outcome: &mut Outcome, pattern: &Pattern, rate: FrameRate, results: &[TrialResult], order: Order) {
    let share = known(results, |g| g.reordered).and_then(|count| percent_of(count, received(results)));
    let title = format!("Reordered frames at the highest load, {}", pattern.size_text());
    let figure = REORDERED.of(&[("size", &pattern.size)], title, share);
    let figure = RankFigure { load_pps: Some(rate.pps()), ..figure };
    outcome.ranks.push(match order {
        Order::Doubtful => figure.beyond("reordering at the highest load cannot be told apart from the tester's own"),
        _ => figure.because("no frame arrived"),
    });
}

fn write_onset(outcome: &mut Outcome, pattern: &Pattern, limits: &Limits, found: &[At], whole: bool) {
    let onset = onset(found);
    let doubt = onset.doubt();
    let marks = if whole { None } else { Some("lower loads were not measured".to_owned()) };
    ONSET.add(
        outcome,
        OnsetRow {
            frame_size: pattern.size.clone(),
            protocol: pattern.protocol(),
            begins: onset.text(),
            begins_percent: onset.begins,
            begins_pps: onset.begins_pps,
            below_percent: onset.below,
            doubt,
        },
        [],
        marks,
    );
    // If only a part of the loads was measured, the onset is not comparable.
    let Some((value, step, at_least)) = onset.figure().filter(|_| whole) else { return };
    let title = format!("Load at which reordering begins, {}", pattern.size_text());
    // Order was kept at the highest load that the tester, or else the suite, has.
    let highest = found.iter().map(|at| at.rate_pps).fold(0.0, f64::max);
    let by_tester = limits.below_line() && highest >= limits.max.pps() * 0.999;
    outcome.ranks.push(RankFigure {
        tester_limited: at_least && by_tester,
        capped: at_least && !by_tester,
        ..BEGINS.by(step).of(&[("size", &pattern.size)], title, Some(value))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Columns;

    #[test]
    fn the_page_names_every_column() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tests/packet_order.md");
        let page = std::fs::read_to_string(path).unwrap();
        for key in OrderRow::KEYS.iter().chain(OnsetRow::KEYS) {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }
}
