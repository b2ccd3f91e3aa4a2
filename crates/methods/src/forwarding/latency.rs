//! Latency (RFC 2544 section 26.2 as revised by RFC 8219 section 7.2): the median and the 99.9th percentile of the
//! latency of all frames, at several shares of the throughput.
//!
//! The RFCs tag 500 frames of a stream; here every frame carries its departure time, so the test measures all of them.

mod ipdv;
mod spread;

use crate::kit::prelude::*;
use crate::lossy::Lossy;
use crate::{modifiers, routed};
use drophammer_model::latency::PERCENTILES;
use drophammer_model::trial::GroupCounts;
use ipdv::IPDV;

/// The test.
pub struct Latency;

const LOADS: Param<Vec<Percent>> =
    Param::fixed("loads", "[10, 50, 90, 100]", "loads, as percentages of the throughput at the same frame size");
const COMPARE_AT: Param<Option<FrameRate>> = Param::optional(
    "compare_at",
    "one more load, in fps per sending port, at which routers are compared; without it, they are compared at about 50 % of their \
     throughput if that is the same load for all",
);
const TRIAL_DURATION: Param<Duration> =
    Param::new("trial_duration", "1 s", "120 s", "length of a trial (RFC 2544 section 26.2: 120 s)");
const REPEATS: Param<u32> =
    Param::new("repeats", "1", "20", "trials per load; the report shows their medians (RFC 8219 section 7.2: 20)");

const MEDIAN: FigureSpec = FigureSpec::lower(
    "latency_{size}_median_us",
    "µs",
    "typical latency (median) in µs at `compare_at`; without it, at the load nearest to 50 % of the throughput",
);
const P99_9: FigureSpec =
    FigureSpec::lower("latency_{size}_p99_9_us", "µs", "99.9th percentile of latency in µs at the same load");

static SPEC: TestSpec = TestSpec {
    name: "latency",
    title: "Latency",
    summary: "latency of every frame at shares of the throughput: minimum, median, percentiles, maximum",
    source: "RFC 8219 section 7.2, RFC 2544 section 26.2",
    params: params![
        &TRAFFIC,
        &LABELLED,
        &MODIFIED,
        &[LOADS.spec(), COMPARE_AT.spec(), TRIAL_DURATION.spec(), REPEATS.spec(), IPDV.spec()],
        &SEARCH
    ],
    figures: &[MEDIAN.shape(), P99_9.shape()],
    tables: &[TABLE.shape(), ipdv::TABLE.shape(), spread::TABLE.shape(), routed::SHAPE, modifiers::SHAPE],
    needs: &[],
};

columns! {
    /// One load and flow group, over all its trials.
    struct LatencyRow {
        frame_size: PacketSize,
        flows: String,
        load_percent: Option<f64> = "Share of throughput" ["%"],
        load_pps: f64 ["fps"],
        offered_load_pps: f64 ["fps"],
        min_us: Option<f64> = "Minimum" ["µs"],
        p50_us: Option<f64> = "Median" ["µs"],
        p90_us: Option<f64> = "90 %" ["µs"],
        p99_us: Option<f64> = "99 %" ["µs"],
        p99_9_us: Option<f64> = "99.9 %" ["µs"],
        max_us: Option<f64> = "Maximum" ["µs"],
        mean_us: Option<f64> ["µs"],
        pdv_us: Option<f64> = "Delay variation (99.9 % - minimum)" ["µs"],
        loss_percent: Option<f64> ["%"],
    }
}

const TABLE: TableSpec<LatencyRow> = TableSpec::new("latency", "Latency");
/// The mark of a row whose share of the throughput may be smaller.
const OF_LOWER_BOUND: &str = "share of a throughput that is only a lower bound";
const RANGES: PlotSpec = PlotSpec::new(
    "latency_ranges",
    "Latency by frame size and load",
    PlotKind::Ranges,
    "frame size at load",
    "latency, µs",
)
.logarithmic();

/// Latency of one group over the repetitions, in µs.
struct Figures {
    min: f64,
    max: f64,
    mean: f64,
    percentiles: Vec<(f64, f64)>,
    /// Delay variation (RFC 8219 section 7.3.1): the 99.9th percentile minus the minimum, for each trial; then the
    /// median over the trials.
    variation: Option<f64>,
}

impl Figures {
    /// `None` when nothing arrived.
    fn of(results: &[TrialResult], group: &str) -> Option<Self> {
        let all = groups_named(results, group).map(|g| &g.latency);
        let all: Vec<_> = all.filter(|l| l.frames > 0).collect();
        let us = |ns: u64| ns as f64 / 1e3;
        let medians = PERCENTILES.iter().filter_map(|p| {
            let values: Vec<f64> = all.iter().filter_map(|l| l.percentile(*p)).map(us).collect();
            Some((*p, median(&values)?))
        });
        let variations = all.iter().filter_map(|l| Some(us(l.percentile(99.9)?.saturating_sub(l.min_ns))));
        Some(Figures {
            variation: median(&variations.collect::<Vec<_>>()),
            min: all.iter().map(|l| us(l.min_ns)).min_by(f64::total_cmp)?,
            max: all.iter().map(|l| us(l.max_ns)).max_by(f64::total_cmp)?,
            mean: mean(&all.iter().map(|l| l.mean_ns / 1e3).collect::<Vec<_>>()),
            percentiles: medians.collect(),
        })
    }

    fn percentile(&self, percentile: f64) -> Option<f64> {
        self.percentiles.iter().find(|(p, _)| (p - percentile).abs() < 1e-9).map(|(_, us)| *us)
    }
}

impl Method for Latency {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let whole = LOADS.get(params).iter().any(|load| (load.0 - 100.0).abs() < 1e-9);
        Plan::by_size(params)
            .searching()
            .trials(loads_of(params) * REPEATS.get(params) as usize, TRIAL_DURATION.seconds(params), 0.2)
            .deviating(common_deviations(params))
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 120.0, "RFC 2544 section 26.2"))
            .deviating(fewer(params, &REPEATS, "trials per load", 20, "RFC 8219 section 7.2"))
            .deviating((!whole).then(|| "no latency at 100 % of the throughput (RFC 2544 section 26.2)".to_owned()))
            .deviating(goal_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        let loads: Vec<f64> = LOADS.get(params).into_iter().map(|load| load.0).collect();
        prepare(outcome, &loads, COMPARE_AT.get(params));
        if IPDV.get(params) {
            ipdv::TABLE.begin(outcome);
        }
        let repeats = REPEATS.get(params);
        if repeats > 1 {
            note(
                outcome,
                format!("Percentiles are medians of {repeats} trials, the minimum and maximum are over all of them."),
            );
        }
        let mut lossy = Lossy::default();
        let each = watched(|bed, pattern, outcome, index| {
            let compare_at = COMPARE_AT.get(params);
            let throughput = match known_throughput(bed, pattern, params, outcome) {
                // Without a throughput, its shares cannot be measured, but a stated load can.
                Err(e @ (TestError::NotApplicable(_) | TestError::Unfit(_))) if compare_at.is_some() => {
                    note_of(outcome, pattern, format!("loads in % of the throughput left out: {e}"));
                    None
                }
                found => found?,
            };
            let bound = throughput.and_then(|_| known_bound(bed, pattern));
            let steps = steps(&loads, compare_at, throughput);
            if steps.is_empty() {
                lossy.leave_out(outcome, pattern);
                return Ok(());
            }
            let (mut measured, mut unfit) = (0, Vec::new());
            for (at, step) in steps.iter().enumerate() {
                let rate = step.rate;
                let number = index * steps.len() as u32 + at as u32;
                let what = format!("latency, {} at {}", pattern.size_text(), step.label);
                bed.progress(&what);
                let mut results = Vec::new();
                let stopped = (0..repeats).try_for_each(|repeat| {
                    let purpose = format!("latency {}: {}, trial {}", pattern.size, step.purpose(), repeat + 1);
                    let duration_s = TRIAL_DURATION.seconds(params);
                    let load = Load::Constant { rate_pps: rate.pps() };
                    let mut spec = pattern.trial(bed.ports(), purpose, load, duration_s)?;
                    if IPDV.get(params) {
                        ipdv::request(&mut spec.flows);
                    }
                    results.push(bed.latency_trial(&spec)?);
                    bed.settle(PAUSE.get(params))
                });
                let unreached = note_reached(bed, outcome, pattern, &format!("at {}", step.label), &trials(&results));
                // The latency at this load is exact all the same.
                let of_bound = step.percent.and(bound).map(|_| OF_LOWER_BOUND.to_owned());
                let marks: Vec<String> = unreached.into_iter().chain(of_bound).collect();
                write(outcome, pattern, step, &results, f64::from(number), &marks);
                match stopped {
                    Err(TestError::Unfit(why)) => {
                        let what = format!("{} left out or cut short,", step.label);
                        note_unfit(outcome, pattern, &what, rate, &why);
                        unfit.push(why.join("; "));
                    }
                    other => other?,
                }
                measured += results.len();
                if step.compared {
                    rank(outcome, pattern, rate, &results, unfit.last().filter(|_| results.is_empty()));
                }
            }
            if measured == 0 { Err(TestError::Unfit(unfit)) } else { Ok(()) }
        });
        for_each_size(bed, params, outcome, each)?;
        lossy.end()
    }
}

/// Index of the load nearest to 50 %. Routers are ranked there, because at this load the router causes the latency, not
/// full queues.
fn middle(loads: &[f64]) -> Option<usize> {
    (0..loads.len()).min_by(|a, b| (loads[*a] - 50.0).abs().total_cmp(&(loads[*b] - 50.0).abs()))
}

/// Number of loads for each size.
fn loads_of(params: &Params) -> usize {
    LOADS.get(params).len() + usize::from(COMPARE_AT.get(params).is_some())
}

/// One load of a test.
struct Step {
    rate: FrameRate,
    /// In % of the throughput, if it is known.
    percent: Option<f64>,
    /// The load as text: `50 %`, `100 kfps`.
    label: String,
    /// True if the load was requested as a share of the throughput.
    share: bool,
    /// True if routers are compared at this load.
    compared: bool,
}

impl Step {
    fn purpose(&self) -> String {
        if self.share { format!("{} of throughput", self.label) } else { self.label.clone() }
    }

    /// Calls `work` with the plot of percentiles at this load.
    fn with_percentiles(&self, work: impl FnOnce(PlotSpec<'_>)) {
        with_percentiles(self.share.then_some(self.percent).flatten(), &self.purpose(), work);
    }
}

/// The loads for one size, without shares of the throughput if there is no throughput.
fn steps(loads: &[f64], compare_at: Option<FrameRate>, throughput: Option<FrameRate>) -> Vec<Step> {
    let share = |(at, percent): (usize, &f64)| {
        throughput.map(|throughput| Step {
            rate: throughput.scaled(percent / 100.0),
            percent: Some(*percent),
            label: format!("{percent} %"),
            share: true,
            compared: compare_at.is_none() && Some(at) == middle(loads),
        })
    };
    let common = compare_at.map(|rate| Step {
        rate,
        percent: throughput.filter(|t| t.pps() > 0.0).map(|t| rate.pps() / t.pps() * 100.0),
        label: rate.to_string(),
        share: false,
        compared: true,
    });
    loads.iter().enumerate().filter_map(share).chain(common).collect()
}

/// Calls `work` with the plot of percentiles at a load: a share of the throughput in %, or the load at which routers
/// are compared.
fn with_percentiles(percent: Option<f64>, load: &str, work: impl FnOnce(PlotSpec<'_>)) {
    work(
        PlotSpec::new(
            &percent.map_or("latency_percentiles_compared".into(), |p| format!("latency_percentiles_{p}")),
            &format!("Latency by percentile at {load}"),
            PlotKind::Percentiles,
            "percentile",
            "latency, µs",
        )
        .logarithmic(),
    );
}

fn prepare(outcome: &mut Outcome, loads: &[f64], compare_at: Option<FrameRate>) {
    TABLE.begin(outcome);
    RANGES.begin(outcome);
    for load in loads {
        with_percentiles(Some(*load), &format!("{load} % of throughput"), |plot| plot.begin(outcome));
    }
    if let Some(rate) = compare_at {
        with_percentiles(None, &rate.to_string(), |plot| plot.begin(outcome));
    }
    note(
        outcome,
        "Latency is the time from the instant at which the tester hands a frame to its port until the instant at which the \
         complete frame is seen at the other port: the store-and-forward definition of RFC 1242 section 3.8 plus \
         the time that the tester's own ports take. No bias is subtracted. Every frame is measured.",
    );
    note(outcome, "Loads are frames per second per sending port.");
}

/// The counts of one group in all these trials.
fn groups_named<'r>(results: &'r [TrialResult], name: &str) -> impl Iterator<Item = &'r GroupCounts> {
    results.iter().flat_map(|result| &result.groups).filter(move |group| group.group == name)
}

fn write(outcome: &mut Outcome, pattern: &Pattern, step: &Step, results: &[TrialResult], x: f64, marks: &[String]) {
    let Some(first) = results.first() else { return };
    let offered = mean(&results.iter().map(|r| r.offered_load().pps()).collect::<Vec<_>>());
    for group in first.groups.iter().map(|g| g.group.clone()) {
        let counts: Vec<_> = groups_named(results, &group).collect();
        let sent: u64 = counts.iter().map(|g| g.offered).sum();
        let lost: u64 = counts.iter().map(|g| g.lost).sum();
        let figures = Figures::of(results, &group);
        let at = |p: f64| figures.as_ref().and_then(|f| f.percentile(p));
        let lossy = (lost > 0).then(|| "frames were lost; the figures do not include them".into());
        TABLE.add(
            outcome,
            LatencyRow {
                frame_size: pattern.size.clone(),
                flows: group.clone(),
                load_percent: step.percent,
                load_pps: step.rate.pps(),
                offered_load_pps: offered,
                min_us: figures.as_ref().map(|f| f.min),
                p50_us: at(50.0),
                p90_us: at(90.0),
                p99_us: at(99.0),
                p99_9_us: at(99.9),
                max_us: figures.as_ref().map(|f| f.max),
                mean_us: figures.as_ref().map(|f| f.mean),
                pdv_us: figures.as_ref().and_then(|f| f.variation),
                loss_percent: percent_of(lost, sent),
            },
            trials(results),
            lossy.into_iter().chain(marks.iter().cloned()),
        );
        let load = (step.percent, step.rate.pps());
        ipdv::write(outcome, &pattern.size, &group, load, results);
        spread::write(outcome, &pattern.size, &group, load, results);
        let Some(figures) = figures else { continue };
        // A single group needs no name: it contains all frames.
        let name =
            if first.groups.len() > 1 { format!("{}, {group}", pattern.size_text()) } else { pattern.size_text() };
        let label = Some(format!("{} at {}", pattern.label(), step.label));
        let range = Some((figures.min, figures.max));
        let series = if first.groups.len() > 1 { group.as_str() } else { "latency" };
        RANGES.curve(outcome, series, Point { x, y: figures.mean, label, range, trial: None });
        // A logarithmic axis of nines cannot show 100 %; the maximum is in the table.
        step.with_percentiles(|plot| {
            for (p, us) in figures.percentiles.iter().filter(|(p, _)| *p < 100.0) {
                plot.curve(outcome, &name, xy(*p, *us));
            }
        });
    }
}

/// The figures that rank routers. If a router loses frames at a load, full queues cause the latency, so there is no
/// figure.
fn rank(outcome: &mut Outcome, pattern: &Pattern, rate: FrameRate, results: &[TrialResult], spoilt: Option<&String>) {
    let overloaded = is_overloaded(results);
    let groups: Vec<String> =
        results.first().map(|r| r.groups.iter().map(|g| g.group.clone()).collect()).unwrap_or_default();
    let figures: Vec<Figures> = groups.iter().filter_map(|g| Figures::of(results, g)).collect();
    for (spec, percentile, title) in [(MEDIAN, 50.0, "Median latency"), (P99_9, 99.9, "99.9th percentile of latency")] {
        // If there are several groups, the slowest one counts.
        let value = figures.iter().filter_map(|f| f.percentile(percentile)).max_by(f64::total_cmp);
        let value = value.filter(|_| !overloaded);
        let title = format!("{title}, {}", pattern.size_text());
        let figure = spec.of(&[("size", &pattern.size)], title, value);
        let figure = RankFigure { load_pps: Some(rate.pps()), ..figure };
        outcome.ranks.push(match spoilt {
            Some(why) => figure.spoilt(why.clone()),
            None if overloaded => {
                figure.because("frames were lost at this load, so this is the latency of full queues")
            }
            None => figure.because("no frame arrived"),
        });
    }
}
