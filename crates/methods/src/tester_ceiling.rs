//! The tester's own ceiling: what it sends *and* receives of a pattern. Runs on a loop without DUT, which the runner
//! provides; on a bed with a DUT it would measure the DUT.

use crate::Method;
use crate::parameters::{self, beside_s, count, pause, seconds, sizes};
use crate::pattern::Pattern;
use crate::report::{for_each_size, median, note, row, table};
use crate::testbed::{Known, TestError, Testbed};
use drophammer_model::outcome::{Cell, Outcome, Row};
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{ParamKind, ParamSpec, TestSpec};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, FlowSpec, Load, TrialResult, TrialSpec};
use std::collections::BTreeMap;
use std::time::Duration;

/// The test.
pub struct TesterCeiling;

/// Name of the test.
pub const NAME: &str = "tester_ceiling";

static SPEC: TestSpec = TestSpec {
    name: NAME,
    title: "Tester ceiling",
    summary: "what the tester itself sends and receives through a loop without router",
    source: "own; compare RFC 2285 section 3.5.3 (maximum offered load)",
    params: &[
        parameters::FRAME_SIZES,
        parameters::FAMILIES,
        parameters::DIRECTION,
        ParamSpec::new("trial_duration", ParamKind::Duration, "1 s", "10 s", "length of a trial"),
        ParamSpec::new("repeats", ParamKind::Count, "3", "5", "trials per frame size; the median is the ceiling"),
        parameters::PAUSE,
        parameters::DRAIN,
    ],
    figures: &[],
    needs: &[],
};

const TABLE: &str = NAME;
const CEILING: &str = "ceiling_pps";
/// Factor by which the load goes down while the tester cannot receive what it sends.
const RETREAT: f64 = 0.8;
/// What is asked of the tester, in line rates. A loop of virtual links has no line, and a ceiling that is cut off at the
/// line rate would look like the tester's limit where it is the line's.
const BEYOND_LINE: f64 = 4.0;
/// Retreats before giving up: down to 11 % of line rate.
const RETREATS: i32 = 16;

/// Ceiling of one trial through the loop, per sending port: what was offered or what came back, whichever is less.
pub fn ceiling_of(result: &TrialResult) -> FrameRate {
    FrameRate(result.offered_load().pps().min(result.forwarding_rate().pps()))
}

/// Ceilings by [`Known::key`] from trials through the loop: per pattern the median over its trials.
pub fn ceilings<'a>(trials: impl IntoIterator<Item = (&'a TrialSpec, &'a TrialResult)>) -> BTreeMap<String, FrameRate> {
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (spec, result) in trials {
        if matches!(spec.load, Load::Maximum { .. }) && result.validity.is_valid() {
            found.entry(key_of(spec)).or_default().push(ceiling_of(result).pps());
        }
    }
    found.into_iter().filter_map(|(key, rates)| Some((key, FrameRate(median(&rates)?)))).collect()
}

/// Ceilings by [`Known::key`] that one run of the test with these parameters has found.
pub fn ceilings_in(outcome: &Outcome, params: &Params) -> BTreeMap<String, FrameRate> {
    let Some(table) = outcome.tables.iter().find(|t| t.key == TABLE) else { return BTreeMap::new() };
    let Some(column) = table.columns.iter().position(|c| c.key == CEILING) else { return BTreeMap::new() };
    let of = |size: PacketSize| {
        let row = table.rows.iter().find(|r| r.cells[0] == Cell::Text(size.to_string()))?;
        match row.cells[column] {
            Cell::Number(pps) => Some((Pattern::new(size, params).key(), FrameRate(pps))),
            _ => None,
        }
    };
    sizes(params).into_iter().filter_map(of).collect()
}

/// Key of the pattern that a trial offers, as [`Pattern::key`] gives it.
pub fn key_of(spec: &TrialSpec) -> String {
    let mut families: Vec<Family> = Vec::new();
    for flow in &spec.flows {
        if !families.contains(&flow.family) {
            families.push(flow.family);
        }
    }
    let back = |flow: &FlowSpec| spec.flows.iter().any(|other| (other.from, other.to) == (flow.to, flow.from));
    let direction = if spec.flows.iter().all(back) { "bidirectional" } else { "unidirectional" };
    Known::key(&spec.size, &families, direction)
}

impl Method for TesterCeiling {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(
            outcome,
            TABLE,
            "Tester ceiling, without router",
            &[
                ("frame_size", "Frame size", ""),
                ("protocol", "Protocol", ""),
                ("line_pps", "Line rate", "fps"),
                ("sent_pps", "Sent", "fps"),
                ("received_pps", "Received", "fps"),
                (CEILING, "Ceiling", "fps"),
                ("line_percent", "Of line rate", "%"),
                ("loss_percent", "Loss", "%"),
                ("latency_min_us", "Latency, minimum", "µs"),
                ("latency_p50_us", "Latency, median", "µs"),
            ],
        );
        note(outcome, "Rates are frames per second per sending port, medians of the trials. Latency is at full load.");
        let repeats = count(params, "repeats");
        for_each_size(bed, params, outcome, |bed, pattern, outcome, index| {
            let mut results: Vec<TrialResult> = Vec::new();
            let stopped = (0..repeats).try_for_each(|repeat| {
                let what = format!("tester ceiling, {}", pattern.size_text());
                bed.progress(&what, index * repeats + repeat, sizes(params).len() as u32 * repeats);
                results.push(highest(bed, pattern, params)?);
                bed.settle(pause(params))
            });
            write(outcome, pattern, pattern.limits(bed).line, &results);
            stopped
        })
    }

    fn estimate(&self, params: &Params) -> Duration {
        let trials = f64::from(count(params, "repeats")) * sizes(params).len() as f64;
        Duration::from_secs_f64(seconds(params, "trial_duration", 1.0) * trials + beside_s(params, trials, 0.5))
    }
}

/// One valid trial at the highest load that the tester can also receive.
fn highest(bed: &mut dyn Testbed, pattern: &Pattern, params: &Params) -> Result<TrialResult, TestError> {
    let line = pattern.limits(bed).line;
    let mut unfit = TestError::Unfit(vec!["no load could be offered".into()]);
    for retreat in 0..=RETREATS {
        let limit_pps = line.pps() * BEYOND_LINE * RETREAT.powi(retreat);
        let purpose = format!("tester ceiling {}: up to {limit_pps:.0} fps per port", pattern.size);
        let load = Load::Maximum { limit_pps };
        let spec = pattern.trial(bed.ports(), purpose, load, seconds(params, "trial_duration", 1.0))?;
        match bed.trial(&spec) {
            Err(error @ TestError::Unfit(_)) => unfit = error,
            other => return other,
        }
    }
    Err(unfit)
}

fn write(outcome: &mut Outcome, pattern: &Pattern, line: FrameRate, results: &[TrialResult]) {
    let middle = |figure: &dyn Fn(&TrialResult) -> f64| median(&results.iter().map(figure).collect::<Vec<_>>());
    let Some(ceiling) = middle(&|r| ceiling_of(r).pps()) else { return };
    let latencies = || results.iter().flat_map(|r| &r.groups).map(|g| &g.latency).filter(|l| l.frames > 0);
    let medians: Vec<f64> = latencies().filter_map(|l| l.percentile(50.0)).map(|ns| ns as f64 / 1e3).collect();
    let lost = results.iter().any(|r| r.lost() > 0);
    row(
        outcome,
        TABLE,
        Row {
            cells: vec![
                pattern.size.to_string().into(),
                pattern.protocol().into(),
                line.pps().into(),
                middle(&|r| r.offered_load().pps()).into(),
                middle(&|r| r.forwarding_rate().pps()).into(),
                ceiling.into(),
                (ceiling / line.pps() * 100.0).into(),
                middle(&|r| r.loss_ratio() * 100.0).into(),
                latencies().map(|l| l.min_ns).min().map(|ns| ns as f64 / 1e3).into(),
                median(&medians).into(),
            ],
            trials: results.iter().map(|r| r.trial).collect(),
            marks: lost.then(|| "the loop itself loses frames at full load".into()).into_iter().collect(),
        },
    );
}
