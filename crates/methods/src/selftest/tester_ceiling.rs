//! The tester's own ceiling: the rate of a pattern that it both sends *and* receives. The test runs on a loop without
//! DUT, which the runner provides; on a bed with a DUT it would measure the DUT.

use crate::kit::prelude::*;
use crate::routed;
use crate::selftest::TRIAL_DURATION;
use drophammer_model::pattern::PatternKey;
use drophammer_model::trial::GroupCounts;
use std::collections::BTreeMap;

/// The test.
pub struct TesterCeiling;

/// Name of the test.
pub const NAME: &str = "tester_ceiling";

/// `repeats`
pub const REPEATS: Param<u32> = Param::new("repeats", "3", "5", "trials per frame size; the median is the ceiling");

static SPEC: TestSpec = TestSpec {
    name: NAME,
    title: "Tester ceiling",
    summary: "rate that the tester itself can send and receive through a loop without router",
    source: "own; compare RFC 2285 section 3.5.3 (maximum offered load)",
    params: params![&TRAFFIC, &LABELLED, &[EXTENSIONS.spec(), TRIAL_DURATION.spec(), REPEATS.spec()], &AFTER_TRIAL],
    figures: &[],
    tables: &[TABLE.shape(), routed::SHAPE],
    needs: &[],
};

columns! {
    /// One frame size: medians over its trials, rates per sending port.
    struct CeilingRow {
        frame_size: PacketSize,
        protocol: String,
        backend: String,
        line_pps: f64 = "Line rate" ["fps"],
        sent_pps: Option<f64> ["fps"],
        received_pps: Option<f64> ["fps"],
        ceiling_pps: f64 ["fps"],
        line_percent: f64 = "Of line rate" ["%"],
        loss_percent: Option<f64> ["%"],
        latency_min_us: Option<f64> = "Latency, minimum" ["µs"],
        latency_p50_us: Option<f64> = "Latency, median" ["µs"],
    }
}

const TABLE: TableSpec<CeilingRow> = TableSpec::new(NAME, "Tester ceiling, without router");
/// Factor by which the load is reduced while the tester cannot receive what it sends.
const RETREAT: f64 = 0.8;
/// Load requested from the tester, as a multiple of line rate. A loop of virtual links has no line, and a ceiling cut
/// off at line rate would look like the tester's limit although it is the line's.
const BEYOND_LINE: f64 = 4.0;
/// Number of reductions before giving up: down to 11 % of line rate.
const RETREATS: i32 = 16;

/// Ceiling of one trial through the loop, per sending port: the lower of the offered and the received rate.
pub fn ceiling_of(result: &TrialResult) -> FrameRate {
    FrameRate(result.offered_load().pps().min(result.forwarding_rate().pps()))
}

/// Ceilings by pattern from trials through the loop: the median over the trials of each pattern.
pub fn ceilings<'a>(
    trials: impl IntoIterator<Item = (&'a TrialSpec, &'a TrialResult)>,
) -> BTreeMap<PatternKey, FrameRate> {
    let mut found: BTreeMap<PatternKey, Vec<f64>> = BTreeMap::new();
    for (spec, result) in trials {
        if matches!(spec.load, Load::Maximum { .. }) && result.validity.is_valid() {
            found.entry(PatternKey::of(spec).on_loop()).or_default().push(ceiling_of(result).pps());
        }
    }
    found.into_iter().filter_map(|(key, rates)| Some((key, FrameRate(median(&rates)?)))).collect()
}

/// Order of the frames of a pattern on the loop, over all its valid trials at the highest load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopOrder {
    /// Trials.
    pub trials: u64,
    /// Frames received.
    pub received: u64,
    /// Reordered frames (RFC 4737) among the received ones.
    pub reordered: u64,
    /// Largest share of reordered frames in one trial, in per cent.
    pub worst_percent: f64,
}

impl LoopOrder {
    /// Share of reordered frames over all trials, in %; 0 without frames.
    pub fn percent(&self) -> f64 {
        percent_of(self.reordered, self.received).unwrap_or(0.0)
    }
}

/// Order by pattern, from trials through the loop. Patterns are omitted if their order is unknown in some trial,
/// because frames arrived at several queues.
pub fn orders<'a>(
    trials: impl IntoIterator<Item = (&'a TrialSpec, &'a TrialResult)>,
) -> BTreeMap<PatternKey, LoopOrder> {
    let mut found: BTreeMap<PatternKey, Option<LoopOrder>> = BTreeMap::new();
    for (spec, result) in trials {
        if !matches!(spec.load, Load::Maximum { .. }) || !result.validity.is_valid() {
            continue;
        }
        let order = found.entry(PatternKey::of(spec)).or_insert(Some(LoopOrder::default()));
        let reordered: Option<u64> = result.groups.iter().map(GroupCounts::known_reordered).sum();
        *order = order.zip(reordered).map(|(order, reordered)| LoopOrder {
            trials: order.trials + 1,
            received: order.received + result.received(),
            reordered: order.reordered + reordered,
            worst_percent: order.worst_percent.max(percent_of(reordered, result.received()).unwrap_or(0.0)),
        });
    }
    found.into_iter().filter_map(|(key, order)| Some((key, order?))).collect()
}

/// Ceilings by pattern from one run of the test with these parameters.
pub fn ceilings_in(outcome: &Outcome, params: &Params) -> BTreeMap<PatternKey, FrameRate> {
    let rows = TABLE.rows(&outcome.tables).into_iter();
    rows.map(|row| (Pattern::new(row.frame_size, params).key().on_loop(), FrameRate(row.ceiling_pps))).collect()
}

impl Method for TesterCeiling {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan::by_size(params).trials(REPEATS.get(params) as usize, TRIAL_DURATION.seconds(params), 0.5)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        note(outcome, "Rates are frames per second per sending port, medians of the trials. Latency is at full load.");
        let repeats = REPEATS.get(params);
        for_each_size(bed, params, outcome, |bed, pattern, outcome, _| {
            let mut results: Vec<TrialResult> = Vec::new();
            let stopped = (0..repeats).try_for_each(|_| {
                bed.progress(&format!("tester ceiling, {}", pattern.size_text()));
                results.push(highest(bed, pattern, params)?);
                bed.settle(PAUSE.get(params))
            });
            let (backend, line) = (bed.facts().backend.to_owned(), pattern.limits(bed).line);
            write(outcome, pattern, &backend, line, &results);
            stopped
        })
    }
}

/// Runs one valid trial at the highest load that the tester can also receive.
fn highest(bed: &mut dyn Testbed, pattern: &Pattern, params: &Params) -> Result<TrialResult, TestError> {
    let line = pattern.limits(bed).line;
    let mut unfit = TestError::Unfit(vec!["no load could be offered".into()]);
    for retreat in 0..=RETREATS {
        let limit_pps = line.pps() * BEYOND_LINE * RETREAT.powi(retreat);
        let purpose = format!("tester ceiling {}: up to {limit_pps:.0} fps per port", pattern.size);
        let load = Load::Maximum { limit_pps };
        let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
        match bed.trial(&spec) {
            Err(error @ TestError::Unfit(_)) => unfit = error,
            other => return other,
        }
    }
    Err(unfit)
}

fn write(outcome: &mut Outcome, pattern: &Pattern, backend: &str, line: FrameRate, results: &[TrialResult]) {
    let middle = |figure: &dyn Fn(&TrialResult) -> f64| median(&results.iter().map(figure).collect::<Vec<_>>());
    let Some(ceiling) = middle(&|r| ceiling_of(r).pps()) else { return };
    let latencies = || results.iter().flat_map(|r| &r.groups).map(|g| &g.latency).filter(|l| l.frames > 0);
    let medians: Vec<f64> = latencies().filter_map(|l| l.percentile(50.0)).map(|ns| ns as f64 / 1e3).collect();
    let lossy = results.iter().any(|r| r.lost() > 0).then(|| "the loop itself loses frames at full load".into());
    TABLE.add(
        outcome,
        CeilingRow {
            frame_size: pattern.size.clone(),
            protocol: pattern.protocol(),
            backend: backend.to_owned(),
            line_pps: line.pps(),
            sent_pps: middle(&|r| r.offered_load().pps()),
            received_pps: middle(&|r| r.forwarding_rate().pps()),
            ceiling_pps: ceiling,
            line_percent: ceiling / line.pps() * 100.0,
            loss_percent: middle(&|r| r.loss_ratio() * 100.0),
            latency_min_us: latencies().map(|l| l.min_ns).min().map(|ns| ns as f64 / 1e3),
            latency_p50_us: median(&medians),
        },
        trials(results),
        lossy,
    );
}
