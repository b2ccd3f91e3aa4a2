//! Filters (Bradner 1989, "filter 1" and "filter 10"; RFC 2544 section 11.4): the cost of packet filters, and whether
//! they work.
//!
//! The test searches the throughput without filters and with each of them, so that drift of the machine between tests
//! does not affect the shares. Then all cases get the same load, which the router sustains in each of them: this gives
//! the latency, and shows that exactly the permitted frames pass.

mod measured;
mod ranks;

use crate::filter_lists::{Case, MOST_CONDITIONS, Position, destination};
use crate::kit::prelude::*;
use crate::lossy::Lossy;
use crate::route_tests::CONFORMANT;
use crate::routed::{self, routes};
use crate::throughput_search::{estimate_one, known_trials, search};
use drophammer_model::filter::FilterDirection;
use drophammer_model::outcome::FPS_PER_PORT;
use drophammer_model::traffic::{Header, Ipv4, Ipv6, Udp};
use drophammer_model::trial::FlowSpec;
use measured::Measured;
use ranks::rank;

/// The test.
pub struct Filters;

const CONDITIONS: Param<Vec<u64>> = Param::fixed(
    "conditions",
    "[1, 10, 25]",
    "numbers of filter conditions (Bradner 1989: 1 and 10; RFC 2544 section 11.4: 1 and 25)",
)
.at_most(MOST_CONDITIONS);
const PERMIT: Param<Vec<Position>> = Param::fixed(
    "permit",
    "[last, first]",
    "whether the condition that permits the traffic comes first or last; the other conditions do not match it",
);
/// `filter_at`
pub const FILTER_AT: Param<Vec<FilterDirection>> =
    Param::new("filter_at", "[ingress]", "[ingress, egress]", "side of the router on which filters apply");
const LOAD: Param<Percent> = Param::fixed(
    "load",
    "50",
    "load of the trials for latency and leaks, in % of the lowest throughput found, with or without filters",
);
const TRIAL_DURATION: Param<Duration> = Param::new(
    "trial_duration",
    "500 ms",
    "60 s",
    "length of the trials for latency and leaks (RFC 2544 section 24: 60 s)",
);

/// Numbers of conditions that the sources of the test require.
const SOURCE_CONDITIONS: [(u64, &str); 3] =
    [(1, "RFC 2544 section 11.4"), (10, "Bradner 1989"), (25, "RFC 2544 section 11.4")];
/// UDP port of the frames that the filters must deny: echo (RFC 862).
const DENIED_PORT: u16 = 7;
/// Maximum number of rows for each case and flow; each row is a destination of wrongly treated frames.
const MOST_NAMED: usize = 20;
/// Flow groups of the trial for leaks.
const PERMITTED: &str = "permitted";
const DENIED: &str = "denied";

const THROUGHPUT: FigureSpec = FigureSpec::higher(
    "filters_{size}_{conditions}_pps",
    FPS_PER_PORT,
    "throughput per sending port in fps with 10 conditions, or the highest number in the test, in the first position and direction",
);
const SHARE: FigureSpec = FigureSpec::higher(
    "filters_{size}_{conditions}_percent",
    "%",
    "throughput with these conditions in % of the throughput without filters",
);
const LATENCY: FigureSpec = FigureSpec::lower(
    "latency_filters_{size}_{conditions}_percent",
    "%",
    "median latency with these conditions in % of the latency without filters, at the same load",
);
const LEAKED_FRAMES: FigureSpec = FigureSpec::lower_by_difference(
    "filters_{size}_leaked",
    "frames",
    "frames that passed although a filter denies them, over all cases",
)
.by(1.0);
const DENIED_FRAMES: FigureSpec = FigureSpec::lower_by_difference(
    "filters_{size}_denied",
    "frames",
    "frames that did not pass although the filter permits them, at a load below every throughput, over all cases",
)
.by(1.0);

static SPEC: TestSpec = TestSpec {
    name: "filters",
    title: "Packet filters",
    summary: "throughput and latency with filters, relative to no filters, and frames that leak or are wrongly denied",
    source: "Bradner 1989 (filter 1, filter 10), RFC 2544 section 11.4",
    params: params![
        &TRAFFIC,
        &[CONDITIONS.spec(), PERMIT.spec(), FILTER_AT.spec(), LOAD.spec(), TRIAL_DURATION.spec()],
        &SEARCH,
    ],
    figures: &[THROUGHPUT.shape(), SHARE.shape(), LATENCY.shape(), LEAKED_FRAMES.shape(), DENIED_FRAMES.shape()],
    tables: &[TABLE.shape(), WRONG.shape(), routed::SHAPE],
    needs: &[Need::Filters],
};

columns! {
    /// One filter, or no filter. Rates are per sending port.
    struct FilterRow {
        frame_size: PacketSize,
        protocol: String,
        filter_at: Option<String>,
        conditions: u64,
        permit: Option<String>,
        throughput_pps: Option<f64> = "Throughput, NDR(0)" ["fps"],
        upper_bound_pps: Option<f64> ["fps"],
        of_baseline_percent: Option<f64> = "Share of throughput without filters" ["%"],
        load_pps: Option<f64> = "Load of the trial for latency and leaks" ["fps"],
        latency_p50_us: Option<f64> = "Median latency" ["µs"],
        latency_p99_us: Option<f64> = "99 % latency" ["µs"],
        latency_percent: Option<f64> = "Share of latency without filters" ["%"],
        permitted: Option<u64> = "Offered, permitted" ["frames"],
        permitted_lost: Option<u64> = "Lost, permitted" ["frames"],
        denied: Option<u64> = "Offered, denied" ["frames"],
        leaked: Option<u64> ["frames"],
    }
}

columns! {
    /// Frames to one destination that a filter treated wrongly.
    struct WrongRow {
        frame_size: PacketSize,
        filter_at: String,
        conditions: u64,
        permit: String,
        wrong: String = "What went wrong",
        flow: String,
        destination: String,
        frames: u64 ["frames"],
    }
}

const TABLE: TableSpec<FilterRow> = TableSpec::new("filters", "Packet filters");
const WRONG: TableSpec<WrongRow> = TableSpec::new("filters_wrong", "Frames that a filter treated wrongly");
const BARS: PlotSpec =
    PlotSpec::new("filters", "Throughput with packet filters", PlotKind::Bars, "filter conditions", "fps per port");

impl Method for Filters {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let (conditions, sides) = (CONDITIONS.get(params), FILTER_AT.get(params));
        let numbers = SOURCE_CONDITIONS.into_iter().filter(|(number, _)| !conditions.contains(number));
        let numbers = numbers.map(|(number, source)| format!("no filter of {number} conditions ({source})"));
        let missing = [FilterDirection::Ingress, FilterDirection::Egress].into_iter().filter(|at| !sides.contains(at));
        let missing = missing.map(|at| format!("no filters at {at} ({CONFORMANT})"));
        let cases = Case::all(&conditions, &PERMIT.get(params), &sides).len() + 1;
        let trials_s = 2.0 * TRIAL_DURATION.seconds(params) + beside_s(params, 2.0, 0.5) + 2.0 * PAUSE.seconds(params);
        let search_s = estimate_one(params, &[zero_loss_goal(params)]).as_secs_f64();
        // Searches in every case, even if a throughput is already known.
        let count =
            (known_trials(params, 1) + TrialCount::exactly(2)).times(if routes(params) > 0 { 0 } else { cases });
        Plan::by_size(params)
            .counting(count)
            .taking((search_s + trials_s) * cases as f64)
            .deviating(common_deviations(params))
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 60.0, "RFC 2544 section 24"))
            .deviating(numbers)
            .deviating(missing)
            .deviating(goal_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        if routes(params) > 0 {
            let why = "its filters permit the networks behind the ports; use `route_filtering` with `routes`";
            return Err(TestError::NotApplicable(why.into()));
        }
        TABLE.begin(outcome);
        BARS.begin(outcome);
        let cases = Case::all(&CONDITIONS.get(params), &PERMIT.get(params), &FILTER_AT.get(params));
        note(
            outcome,
            format!(
                "A filter is a list of rules at each port; the first rule that matches decides: one condition permits the test \
                 traffic (UDP port {} from the networks behind one port to those behind the other), the others deny host addresses \
                 that no frame has, and a last rule, which is not counted, denies everything else. Rates are frames per second per sending port.",
                drophammer_model::traffic::DISCARD
            ),
        );
        let mut lossy = Lossy::default();
        for_each_size(bed, params, outcome, |bed, pattern, outcome, index| {
            let mut all = Vec::new();
            let stopped = measure(bed, pattern, params, &cases, outcome, &mut all);
            write(outcome, pattern, bed.ports(), &all, index);
            rank(outcome, pattern, &cases, &all, &stopped);
            if stopped.is_ok() && all.first().is_some_and(Measured::is_lossy) {
                lossy.leave_out(outcome, pattern);
            }
            stopped
        })?;
        lossy.end()
    }
}

/// Searches the throughput in every case, then measures latency and leaks at one load.
fn measure(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    cases: &[Case],
    outcome: &mut Outcome,
    all: &mut Vec<Measured>,
) -> Result<(), TestError> {
    for case in std::iter::once(None).chain(cases.iter().copied().map(Some)) {
        bed.progress(&step_text(pattern, case));
        install(bed, pattern, params, case)?;
        let searched = search(bed, pattern, vec![zero_loss_goal(params)], params)?;
        all.push(Measured::of(case, &searched));
        match searched.error {
            // If this case fails, the others can still be measured. Without the baseline, none can.
            Some(TestError::Unfit(why)) if case.is_some() => {
                note_of(outcome, pattern, format!("{}: the tester was unfit: {}", text_of(case), why.join("; ")));
            }
            Some(error) => return Err(error),
            None => {}
        }
    }
    if all[0].is_lossy() {
        return Ok(());
    }
    if all[0].throughput.is_none() {
        let why = all[0].marks.join("; ");
        return Err(TestError::NotApplicable(format!("no throughput without filters to compare with: {why}")));
    }
    // This includes a case in which the router forwards no frame at any load, but not a case without any trial, because
    // no load for it is known.
    let borne = all.iter().map(|one| one.borne).filter(|borne| *borne > 0.0);
    let lowest = borne.min_by(f64::total_cmp).unwrap_or_default();
    let rate_pps = lowest * LOAD.get(params).0 / 100.0;
    let load = Load::Constant { rate_pps };
    let seconds = TRIAL_DURATION.seconds(params);
    for one in all.iter_mut().filter(|one| one.is_tried()) {
        let text = step_text(pattern, one.case);
        bed.progress(&text);
        install(bed, pattern, params, one.case)?;
        let spec = pattern.trial(bed.ports(), format!("latency, {text}"), load.clone(), seconds)?;
        one.latency = valid(bed, pattern, outcome, &spec)?;
        bed.settle(PAUSE.get(params))?;
        let flows = sorting_flows(pattern, bed.ports(), one.case.is_some())?;
        let spec = TrialSpec {
            purpose: format!("leaks, {text}"),
            size: pattern.size.clone(),
            flows: flows.clone(),
            load: load.clone(),
            duration_s: seconds,
            bin_s: None,
            drain_s: DRAIN.seconds(params),
            events: vec![],
        };
        one.sorting = valid(bed, pattern, outcome, &spec)?.map(|result| (result, flows));
        bed.settle(PAUSE.get(params))?;
    }
    bed.set(Setting::Filters(&[]))
}

/// Runs a trial; returns `None`, with a note, if the tester spoilt every attempt.
fn valid(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    outcome: &mut Outcome,
    spec: &TrialSpec,
) -> Result<Option<TrialResult>, TestError> {
    match bed.latency_trial(spec) {
        Err(TestError::Unfit(why)) => {
            note_unfit(outcome, pattern, &format!("{} left out,", spec.purpose), spec.steps()[0].1, &why);
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Installs the filter of a case on the DUT, or no filter, and lets the DUT settle.
fn install(bed: &mut dyn Testbed, pattern: &Pattern, params: &Params, case: Option<Case>) -> Result<(), TestError> {
    let flows = pattern.flows(bed.ports())?;
    let lists = case.map(|case| case.lists(&flows, bed.ports())).unwrap_or_default();
    bed.set(Setting::Filters(&lists))?;
    bed.settle(PAUSE.get(params))
}

fn step_text(pattern: &Pattern, case: Option<Case>) -> String {
    format!("filters {}: {}", pattern.size, text_of(case))
}

fn text_of(case: Option<Case>) -> String {
    case.map_or("none".into(), |case| case.text())
}

/// The flows of the pattern, which filters permit, and if `filtered` the same flows with another UDP port, which every
/// filter denies.
fn sorting_flows(pattern: &Pattern, ports: &[PortView], filtered: bool) -> Result<Vec<FlowSpec>, TestError> {
    let flows = pattern.flows(ports)?;
    let permitted =
        flows.iter().map(|flow| FlowSpec { group: PERMITTED.into(), per_destination: true, ..flow.clone() });
    let denied = flows.iter().map(|flow| FlowSpec {
        group: DENIED.into(),
        per_destination: true,
        denied: filtered,
        headers: vec![
            match flow.family {
                Family::Ipv4 => Header::Ipv4(Ipv4::default()),
                Family::Ipv6 => Header::Ipv6(Ipv6::default()),
            },
            Header::Udp(Udp { destination_port: DENIED_PORT.into(), ..Udp::default() }),
        ],
        ..flow.clone()
    });
    Ok(permitted.chain(denied).collect())
}

fn write(outcome: &mut Outcome, pattern: &Pattern, ports: &[PortView], all: &[Measured], index: u32) {
    let baseline = all.first();
    let latency_without = baseline.and_then(|one| one.latency_us(50.0));
    for (at, one) in all.iter().enumerate() {
        let share = |value: Option<f64>, whole: Option<f64>| Some(value? / whole.filter(|whole| *whole > 0.0)? * 100.0);
        let found = one.throughput.map(FrameRate::pps);
        let of_baseline_percent = baseline.and_then(|without| one.share(without));
        let mut marks = one.marks.clone();
        let unknown = one.case.is_some() && baseline.is_some_and(Measured::limited);
        marks.extend(unknown.then(|| "share unknown: without filters the router may be faster".to_owned()));
        marks.extend(one.leaked().filter(|n| *n > 0).map(|n| format!("leaked {n} frames that it must deny")));
        let lost = one.permitted_lost().filter(|n| *n > 0);
        marks.extend(lost.map(|n| format!("lost {n} frames that it must permit")));
        // Frames that the router does not forward even without a filter prove nothing about a filter.
        let not_forwarded =
            one.counts(DENIED).filter(|_| one.case.is_none()).map(|(offered, received)| offered - received);
        if let Some(frames) = not_forwarded.filter(|frames| *frames > 0) {
            marks.push(format!("without filters, lost {frames} of the frames that filters deny"));
        }
        let later = one.latency.iter().chain(one.sorting.iter().map(|(result, _)| result));
        TABLE.add(
            outcome,
            FilterRow {
                frame_size: pattern.size.clone(),
                protocol: pattern.protocol(),
                filter_at: one.case.map(|case| case.direction.to_string()),
                conditions: one.case.map_or(0, |case| case.conditions),
                permit: one.case.map(|case| case.permit_word().to_owned()),
                throughput_pps: found,
                upper_bound_pps: one.upper,
                of_baseline_percent,
                load_pps: one.latency.as_ref().map(|result| result.offered_load().pps()),
                latency_p50_us: one.latency_us(50.0),
                latency_p99_us: one.latency_us(99.0),
                latency_percent: share(one.latency_us(50.0), latency_without),
                permitted: one.counts(PERMITTED).map(|(offered, _)| offered),
                permitted_lost: one.permitted_lost(),
                denied: one.counts(DENIED).map(|(offered, _)| offered),
                leaked: one.leaked(),
            },
            one.trials.iter().copied().chain(later.map(|result| result.trial)),
            marks,
        );
        name_wrong(outcome, pattern, ports, one);
        if let Some(rate) = found {
            let label = one.case.map_or("none".into(), |case| match case.permit {
                Some(permit) => format!("{} {permit}, {}", case.conditions, case.direction),
                None => format!("{}, {}", case.conditions, case.direction),
            });
            let x = f64::from(index) * all.len() as f64 + at as f64;
            let label = Some(format!("{}: {label}", pattern.size));
            BARS.curve(outcome, "throughput", Point { x, y: rate, label, range: None, trial: None });
        }
    }
}

/// Reports the frames that a filter treated wrongly, by flow and destination.
fn name_wrong(outcome: &mut Outcome, pattern: &Pattern, ports: &[PortView], one: &Measured) {
    let (Some(case), Some((result, flows))) = (one.case, &one.sorting) else { return };
    for counts in &result.destinations {
        let flow = &flows[counts.flow];
        let leaks = flow.group == DENIED;
        let frames = |i: usize| if leaks { counts.received[i] } else { counts.lost(i) };
        let wrong = (0..counts.offered.len()).filter(|i| frames(*i) > 0).collect::<Vec<_>>();
        let port = if leaks { DENIED_PORT } else { drophammer_model::traffic::DISCARD };
        let name = format!("{} to {}, {}, UDP port {port}", ports[flow.from].name, ports[flow.to].name, flow.family);
        for i in wrong.iter().copied().take(MOST_NAMED) {
            let row = WrongRow {
                frame_size: pattern.size.clone(),
                filter_at: case.direction.to_string(),
                conditions: case.conditions,
                permit: case.permit_word().into(),
                wrong: if leaks { "leaked" } else { "denied" }.into(),
                flow: name.clone(),
                destination: destination(flow, i),
                frames: frames(i).into(),
            };
            WRONG.add(outcome, row, [result.trial], []);
        }
        if wrong.len() > MOST_NAMED {
            let more = wrong.len() - MOST_NAMED;
            note_of(
                outcome,
                pattern,
                format!("{}: {name}: {more} more destinations were treated wrongly", case.text()),
            );
        }
    }
}
