//! Soak: a steady load for hours, and whether loss, latency, memory or processor time of the router drift.
//!
//! The load is a sequence of trials without a pause, one for each interval. Each is stored as it ends, so a stopped run
//! keeps its results so far. A drift is a slope over the intervals, by the estimator of Theil and Sen, which a few
//! disturbed intervals hardly affect. It counts if the confidence interval of the slope excludes 0 and the change over
//! the whole soak is large enough to matter.

mod drift;

use crate::kit::prelude::*;
use crate::lossy::NO_THROUGHPUT;
use drift::{Drift, Least, Verdict, drift};

/// The test.
pub struct Soak;

const SIZE: Param<PacketSize> = Param::fixed("frame_size", "512", "frame size with FCS, or a mix");
const DURATION: Param<Duration> = Param::new("duration", "2 min", "12 h", "how long the load lasts");
const INTERVAL: Param<Duration> =
    Param::new("interval", "5 s", "60 s", "length of the trials; each trial gives one value of each quantity");
const LOAD: Param<Percent> = Param::fixed("load", "90", "load in % of the throughput, unless `rate` is given");
const RATE: Param<Option<FrameRate>> =
    Param::optional("rate", "load per sending port instead of a share of the throughput");
const LEAST_DRIFT: Param<Percent> = Param::fixed(
    "least_drift",
    "5",
    "smallest change over the whole soak, in % of the median, that counts as a drift of the rate, latency, memory or processor time",
);
const LEAST_LOSS: Param<Percent> = Param::fixed(
    "least_loss_drift",
    "0.001",
    "smallest change over the whole soak, in percentage points, that counts as a drift of the loss",
);

/// Maximum number of intervals, because a report has a row for each.
const MOST_INTERVALS: u64 = 5_000;

const LOSS: FigureSpec =
    FigureSpec::lower_by_difference("soak_loss_percent", "%", "frames lost in all intervals, in %")
        .by(LEAST_LOSS_PERCENT);
const RATE_GROWTH: FigureSpec = FigureSpec::higher_by_difference(
    "soak_rate_growth_percent",
    "%",
    "growth of the forwarding rate over the soak, in % of its median, below 0 if it falls; 0 if it does not drift",
);
const LATENCY_GROWTH: FigureSpec = FigureSpec::lower_by_difference(
    "soak_latency_growth_percent",
    "%",
    "growth of the median latency over the soak, in % of its median; 0 if it does not drift",
);
const MEMORY_GROWTH: FigureSpec = FigureSpec::lower_by_difference(
    "soak_memory_growth_percent",
    "%",
    "growth of the memory of the router's daemons over the soak, in % of its median; 0 if it does not drift",
);

static SPEC: TestSpec = TestSpec {
    name: "soak",
    title: "Soak",
    summary: "a steady load for hours: loss, latency, memory and processor time of the router in each interval, and whether they drift",
    source: "no RFC; slopes by Theil (1950) and Sen (1968)",
    params: params![
        &[
            SIZE.spec(),
            FAMILIES.spec(),
            DIRECTION.spec(),
            DURATION.spec(),
            INTERVAL.spec(),
            LOAD.spec(),
            RATE.spec(),
            LEAST_DRIFT.spec(),
            LEAST_LOSS.spec()
        ],
        &SEARCH,
    ],
    figures: &[LOSS.shape(), RATE_GROWTH.shape(), LATENCY_GROWTH.shape(), MEMORY_GROWTH.shape()],
    tables: &[INTERVALS.shape(), DRIFTS.shape()],
    needs: &[],
};

columns! {
    /// One interval. Rates are per sending port.
    struct IntervalRow {
        at_s: f64 = "Middle of the interval" ["s"],
        offered_load_pps: f64 ["fps"],
        forwarding_rate_pps: f64 ["fps"],
        offered: u64 ["frames"],
        lost: u64 ["frames"],
        loss_percent: Option<f64> ["%"],
        latency_median_us: Option<f64> = "Median latency" ["µs"],
        latency_p99_us: Option<f64> = "99 % latency" ["µs"],
        cpu_percent: Option<f64> = "CPU of the router" ["%"],
        memory_mib: Option<f64> = "Memory of the router's daemons" ["MiB"],
    }
}

columns! {
    /// One quantity over all intervals.
    struct DriftRow {
        quantity: String,
        unit: String,
        intervals: u64,
        level: f64 = "Median",
        per_hour: Option<f64> = "Slope per hour",
        per_hour_low: Option<f64> = "At least (99 %)",
        per_hour_high: Option<f64> = "At most (99 %)",
        change: f64 = "Change over the soak",
        change_percent: Option<f64> ["% of the median"],
        verdict: String,
    }
}

const INTERVALS: TableSpec<IntervalRow> = TableSpec::new("soak_intervals", "Intervals of the soak");
const DRIFTS: TableSpec<DriftRow> = TableSpec::new("soak_drift", "Drift over the soak");

const LATENCY_PLOT: PlotSpec = PlotSpec::new("soak_latency", "Latency over the soak", PlotKind::Line, "time, s", "µs");
const LOSS_PLOT: PlotSpec =
    PlotSpec::new("soak_loss", "Loss over the soak", PlotKind::Line, "time, s", "% of the frames");
const MEMORY_PLOT: PlotSpec =
    PlotSpec::new("soak_memory", "Memory of the router's daemons over the soak", PlotKind::Line, "time, s", "MiB");

/// A quantity: name, unit, its value in an interval, and whether its changes are in percentage points instead of per
/// cent.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    of: fn(&IntervalRow) -> Option<f64>,
    points: bool,
}

const QUANTITIES: [Quantity; 6] = [
    Quantity { name: "Loss", unit: "%", of: |row| row.loss_percent, points: true },
    Quantity { name: FORWARDING, unit: "fps", of: |row| Some(row.forwarding_rate_pps), points: false },
    Quantity { name: LATENCY, unit: "µs", of: |row| row.latency_median_us, points: false },
    Quantity { name: "99 % latency", unit: "µs", of: |row| row.latency_p99_us, points: false },
    Quantity { name: "CPU of the router", unit: "%", of: |row| row.cpu_percent, points: false },
    Quantity { name: MEMORY, unit: "MiB", of: |row| row.memory_mib, points: false },
];
const FORWARDING: &str = "Forwarding rate";
const LATENCY: &str = "Median latency";
const MEMORY: &str = "Memory of the router's daemons";

impl Method for Soak {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        // Setting up the trials takes a part of the duration; the last trial may wait for late frames.
        let intervals = TrialCount::up_to(intervals(params).map_or(0, |intervals| intervals as usize));
        let mut plan = Plan::of(params, vec![pattern(params)])
            .counting(intervals)
            .taking(DURATION.seconds(params) + unpaused_s(params, 1.0, 1.0));
        // A router that rests between the intervals would show no drift.
        plan.may_pause = false;
        if RATE.get(params).is_some() { plan } else { plan.searching().deviating(goal_deviations(params)) }
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        let intervals = intervals(params)?;
        let pattern = pattern(params);
        let rate = rate(bed, &pattern, params, outcome)?;
        INTERVALS.begin(outcome);
        DRIFTS.begin(outcome);
        for plot in [LATENCY_PLOT, LOSS_PLOT, MEMORY_PLOT] {
            plot.begin(outcome);
        }
        note(
            outcome,
            format!(
                "The load is {rate} per sending port, in consecutive trials of {}. A quantity drifts if the confidence interval of its slope \
                 excludes 0 and its change over the soak is large enough: {} % of its median, or {} percentage points for loss.",
                show_duration(INTERVAL.get(params)),
                LEAST_DRIFT.get(params).0,
                LEAST_LOSS.get(params).0,
            ),
        );
        let mut soaked = Soaked { rows: Vec::new(), invalid: 0, hidden: None };
        let ended = soaked.measure(bed, &pattern, params, outcome, (rate, intervals));
        // Writes the results so far even after an error. The interval in which a router died is missing, so the earlier
        // intervals must not replace the whole soak.
        let failed = matches!(ended, Err(TestError::DutDied(_) | TestError::Failed(_)));
        soaked.write(outcome, &pattern, params, rate, failed);
        if let Err(TestError::Unfit(why)) = &ended {
            push_spoilt(outcome, loss_figure(&pattern, None), why);
        }
        ended
    }
}

fn pattern(params: &Params) -> Pattern {
    Pattern {
        direction: DIRECTION.get(params),
        ..Pattern::one_way(SIZE.get(params), FAMILIES.get(params), DRAIN.seconds(params))
    }
}

/// Number of intervals.
fn intervals(params: &Params) -> Result<u64, TestError> {
    let (duration, interval) = (DURATION.seconds(params), INTERVAL.seconds(params));
    let intervals = if interval > 0.0 { (duration / interval).round() } else { f64::INFINITY };
    if intervals < 1.0 {
        let why = "`duration` is shorter than half of an `interval`; give a longer `duration` or a shorter `interval`";
        return Err(TestError::NotApplicable(why.into()));
    }
    if intervals > MOST_INTERVALS as f64 {
        return Err(TestError::NotApplicable(format!(
            "`duration` has more than {MOST_INTERVALS} times `interval`; give an `interval` of {:.0} s or more",
            (duration / MOST_INTERVALS as f64).ceil()
        )));
    }
    Ok(intervals as u64)
}

fn rate(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
) -> Result<FrameRate, TestError> {
    // Builds the flows now, so that no search runs for ports that cannot send them.
    pattern.flows(bed.ports())?;
    if let Some(rate) = RATE.get(params) {
        return Ok(rate);
    }
    let throughput = known_throughput(bed, pattern, params, outcome)?;
    // The router failed. "Not applicable" would drop the criteria for the test.
    let found = throughput.ok_or_else(|| TestError::Failed(format!("{NO_THROUGHPUT}; give `rate`")))?;
    Ok(found.scaled(LOAD.get(params).0 / 100.0))
}

/// The intervals so far.
struct Soaked {
    rows: Vec<(IntervalRow, u64)>,
    /// Number of intervals that the tester spoilt.
    invalid: u64,
    /// Why the clocks of several hosts do not show the latency of some interval.
    hidden: Option<String>,
}

impl Soaked {
    fn measure(
        &mut self,
        bed: &mut dyn Testbed,
        pattern: &Pattern,
        params: &Params,
        outcome: &mut Outcome,
        (rate, intervals): (FrameRate, u64),
    ) -> Result<(), TestError> {
        let (interval_s, begun_s) = (INTERVAL.seconds(params), bed.now_s());
        // If the testbed has no clock, the sum of the trials is the time.
        let mut trials_s = 0.0;
        let mut spoilt = Vec::new();
        for number in 0..intervals {
            let passed = begun_s.zip(bed.now_s()).map_or(trials_s, |(begun, now)| now - begun);
            // Setting trials up and repeating invalid ones also takes time.
            if passed + interval_s / 2.0 > DURATION.seconds(params) {
                break;
            }
            let what = format!("soak, {} at {rate}: {} intervals", pattern.size_text(), self.rows.len());
            bed.progress(&what);
            let purpose = format!("soak {}: interval {}", pattern.size, number + 1);
            let load = Load::Constant { rate_pps: rate.pps() };
            let spec = pattern.trial(bed.ports(), purpose, load, interval_s)?;
            let result = match bed.trial(&spec) {
                Ok(result) => result,
                Err(TestError::Unfit(why)) => {
                    self.invalid += 1;
                    note_of(outcome, pattern, format!("an interval was invalid ({})", why.join("; ")));
                    spoilt = why;
                    continue;
                }
                Err(other) => return Err(other),
            };
            trials_s += result.elapsed_s;
            if let Some(why) = hidden_latency(&result, None) {
                note_of(outcome, pattern, format!("intervals have no latency: {why}"));
                self.hidden.get_or_insert(why);
            }
            let ended_s = begun_s.zip(bed.now_s()).map_or(trials_s, |(begun, now)| now - begun);
            let memory = bed.memory().iter().map(|(_, bytes)| *bytes).sum::<u64>();
            let at_s = ended_s - result.elapsed_s + result.sending_s / 2.0;
            let row = row(&result, at_s, memory);
            draw(outcome, &row, result.trial);
            INTERVALS.add(outcome, row.clone(), [result.trial], []);
            self.rows.push((row, result.trial));
        }
        if !self.rows.is_empty() {
            return Ok(());
        }
        Err(TestError::Unfit(vec![format!("every interval was invalid, the last one because {}", spoilt.join("; "))]))
    }

    /// Adds the drifts and the figures. If the router `failed`, the figures have no value.
    fn write(&self, outcome: &mut Outcome, pattern: &Pattern, params: &Params, rate: FrameRate, failed: bool) {
        if self.invalid > 0 {
            outcome.deviations.push(format!(
                "{} of {} intervals were invalid",
                self.invalid,
                self.invalid + self.rows.len() as u64
            ));
        }
        let (mut forwarding, mut latency, mut memory) = (None, None, None);
        for quantity in &QUANTITIES {
            let points: Vec<(f64, f64)> =
                self.rows.iter().filter_map(|(row, _)| Some((row.at_s, (quantity.of)(row)?))).collect();
            let least = match quantity.points {
                true => Least::Absolute(LEAST_LOSS.get(params).0),
                false => Least::Percent(LEAST_DRIFT.get(params).0),
            };
            let Some(drift) = drift(&points, least) else { continue };
            if drift.verdict == Verdict::Drifts {
                let (name, unit) = (quantity.name, quantity.unit);
                let slope = drift.per_hour.map_or(0.0, |trend| trend.slope);
                note_of(outcome, pattern, format!("{name} drifts by {} {unit} per hour", signed(slope)));
            }
            // Too few intervals show neither drift nor stability.
            let known = drift.verdict != Verdict::Unknown;
            let growth = if drift.verdict == Verdict::Drifts { drift.change_percent } else { Some(0.0) };
            match quantity.name {
                FORWARDING => forwarding = growth.filter(|_| known),
                LATENCY => latency = growth.filter(|_| known),
                MEMORY => memory = growth.filter(|_| known),
                _ => {}
            }
            DRIFTS.add(outcome, drift_row(quantity, points.len(), &drift), [], []);
        }
        let least = LEAST_DRIFT.get(params).0;
        let (offered, lost) = self.rows.iter().fold((0, 0), |(o, l), (row, _)| (o + row.offered, l + row.lost));
        let size = pattern.size_text();
        let mut rank = |figure: RankFigure| {
            // Figures at different loads are not comparable.
            outcome.ranks.push(RankFigure { load_pps: Some(rate.pps()), ..figure });
        };
        let loss = percent_of(lost, offered);
        if loss.is_some() || failed {
            rank(loss_figure(pattern, loss.filter(|_| !failed)));
        }
        // A falling rate is worse; for the others, rising is worse.
        let growths = [
            (RATE_GROWTH, "forwarding rate", forwarding, None),
            (LATENCY_GROWTH, "median latency", latency, self.hidden.as_ref()),
            (MEMORY_GROWTH, "memory", memory, None),
        ];
        for (spec, name, growth, hidden) in growths {
            let title = format!("Growth of {name} over the soak, {size}");
            let figure = spec.by(least).of(&[], title, growth.filter(|_| !failed));
            match hidden {
                _ if growth.is_some() => rank(figure),
                Some(why) => rank(figure.beyond(why)),
                None => {}
            }
        }
    }
}

fn loss_figure(pattern: &Pattern, loss: Option<f64>) -> RankFigure {
    let title = format!("Loss over the soak, {}", pattern.size_text());
    LOSS.of(&[], title, loss)
}

fn row(result: &TrialResult, at_s: f64, memory: u64) -> IntervalRow {
    let hidden = hidden_latency(result, None).is_some();
    let latency = |percentile| {
        // Each group is an IP version; the slowest one counts.
        let of_groups = result.groups.iter().filter_map(|group| group.latency.percentile(percentile));
        of_groups.max().filter(|_| !hidden).map(|ns| ns as f64 / 1e3)
    };
    IntervalRow {
        at_s,
        offered_load_pps: result.offered_load().pps(),
        forwarding_rate_pps: result.forwarding_rate().pps(),
        offered: result.offered(),
        lost: result.lost(),
        loss_percent: percent_of(result.lost(), result.offered()),
        latency_median_us: latency(50.0),
        latency_p99_us: latency(99.0),
        cpu_percent: result.dut_cpu.map(|share| share * 100.0),
        memory_mib: (memory > 0).then(|| memory as f64 / f64::from(1 << 20)),
    }
}

fn draw(outcome: &mut Outcome, row: &IntervalRow, trial: u64) {
    let curves = [
        (LATENCY_PLOT, "median", row.latency_median_us),
        (LATENCY_PLOT, "99 %", row.latency_p99_us),
        (LOSS_PLOT, "loss", row.loss_percent),
        (MEMORY_PLOT, "memory", row.memory_mib),
    ];
    for (plot, series, y) in curves {
        if let Some(y) = y {
            plot.curve(outcome, series, xy_of(row.at_s, y, trial));
        }
    }
}

fn drift_row(quantity: &Quantity, intervals: usize, drift: &Drift) -> DriftRow {
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    DriftRow {
        quantity: quantity.name.into(),
        unit: quantity.unit.into(),
        intervals: intervals as u64,
        level: drift.level,
        per_hour: drift.per_hour.map(|trend| trend.slope),
        per_hour_low: finite(drift.per_hour.map(|trend| trend.low)),
        per_hour_high: finite(drift.per_hour.map(|trend| trend.high)),
        change: drift.change,
        change_percent: drift.change_percent,
        verdict: drift.verdict.text().into(),
    }
}

/// A number with its sign and three significant digits.
fn signed(value: f64) -> String {
    let digits = (2 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:+.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        assert_eq!([12_345.6, 1.234_5, -0.012_34, 0.0].map(signed), ["+12346", "+1.23", "-0.0123", "+0.000000000"]);
    }
}
