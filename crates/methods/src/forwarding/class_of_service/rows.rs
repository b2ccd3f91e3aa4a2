//! The table of classes, its plots, and the figures that rank routers.

use super::{ERROR, LOSS, RATE};
use crate::kit::prelude::*;
use drophammer_model::classes::ServiceClass;
use drophammer_model::trial::{Bin, GroupCounts};

/// Time bins of a trial.
pub(super) const BINS: usize = 20;
/// Bins at the beginning of a trial in which queues fill and shares are not yet stable.
pub(super) const FILLING: usize = 2;
/// An output port that sends at least this share of its rate counts as full.
pub(super) const FULL: f64 = 0.98;
/// If more frames leave than the rate of the output port plus this share, the port did not limit them.
pub(super) const EXCESS: f64 = 0.01;
/// Errors of shares that differ by less than this, in percentage points, count as equal.
pub(super) const LEAST_POINTS: f64 = 0.1;
/// Verdict on a class that was treated correctly.
pub(super) const AS_WANTED: &str = "as expected";

columns! {
    /// One class at one load. Rates are sums over all sending ports.
    pub(super) struct ClassRow {
        frame_size: PacketSize,
        protocol: String,
        load_percent: f64 = "Load of the output port" ["%"],
        class: String,
        dscp: u64 = "DSCP",
        weight: u64,
        offered: u64 ["frames"],
        offered_pps: f64 = "Offered load" ["fps"],
        received: u64 ["frames"],
        received_pps: f64 = "Forwarding rate" ["fps"],
        lost: u64 ["frames"],
        loss_percent: Option<f64> ["%"],
        share_percent: Option<f64> = "Share of received frames" ["%"],
        expected_percent: Option<f64> = "Expected share" ["%"],
        error_points: Option<f64> = "Difference" ["points"],
        latency_mean_us: Option<f64> = "Mean latency" ["µs"],
        latency_p99_us: Option<f64> = "99 % latency" ["µs"],
        latency_max_us: Option<f64> = "Worst latency" ["µs"],
        jitter_us: Option<f64> = "Delay variation, 99 %" ["µs"],
        reordered: Option<u64> ["frames"],
        verdict: String,
    }
}

pub(super) const TABLE: TableSpec<ClassRow> = TableSpec::new("class_of_service", "Classes of service");
pub(super) const BARS: PlotSpec = PlotSpec::new(
    "class_of_service",
    "Share of each class under overload",
    PlotKind::Bars,
    "class",
    "% of all frames received",
);
pub(super) const RATE_BARS: PlotSpec = PlotSpec::new(
    "class_of_service_rate",
    "Forwarding rate of each class under overload",
    PlotKind::Bars,
    "class",
    "fps, all sending ports",
);

/// A trial at one load.
pub(super) struct Trial {
    /// In % of the capacity that is overloaded.
    pub percent: f64,
    /// True for the overload to which the figures refer.
    pub first: bool,
    pub result: TrialResult,
    pub bin_s: f64,
}

/// Received and offered rates of each class while the queues were full, in frames per second.
pub(super) struct Steady {
    pub offered: Vec<f64>,
    pub arrived: Vec<f64>,
}

impl Steady {
    pub fn of(trial: &Trial, classes: &[ServiceClass]) -> Steady {
        let of = |class: &ServiceClass, count: fn(&Bin) -> u64| {
            let bins = group(&trial.result, &class.name).map_or(&[][..], |counts| &counts.bins);
            let bins = bins.iter().take(BINS).skip(FILLING);
            bins.map(count).sum::<u64>() as f64 / (trial.bin_s * (BINS - FILLING) as f64)
        };
        Steady {
            offered: classes.iter().map(|class| of(class, |bin| bin.offered)).collect(),
            arrived: classes.iter().map(|class| of(class, |bin| bin.arrived)).collect(),
        }
    }

    /// Frames per second that arrived, over all classes.
    pub fn rate(&self) -> f64 {
        self.arrived.iter().sum()
    }

    /// `(share, expected share)` of each class in % of all received frames, given the expected rates; none if nothing
    /// arrived.
    pub fn shares(&self, expected: &[f64]) -> Option<Vec<(f64, f64)>> {
        let (sum, whole) = (self.rate(), expected.iter().sum::<f64>());
        let percent = |(arrived, expected): (&f64, &f64)| (arrived / sum * 100.0, expected / whole * 100.0);
        (sum > 0.0 && whole > 0.0).then(|| self.arrived.iter().zip(expected).map(percent).collect())
    }
}

pub(super) fn group<'r>(result: &'r TrialResult, name: &str) -> Option<&'r GroupCounts> {
    result.groups.iter().find(|counts| counts.group == name)
}

/// Result of one class in a trial.
pub(super) struct Fare<'a> {
    pub class: &'a ServiceClass,
    pub counts: &'a GroupCounts,
    pub offered_pps: f64,
    pub received_pps: f64,
    /// Share in % of all received frames, and the expected share.
    pub share: Option<(f64, f64)>,
    pub faults: Vec<String>,
    /// Why the trial proves nothing about a class without faults.
    pub unknown: Option<&'static str>,
    /// Other remarks for the row.
    pub marks: Vec<String>,
}

impl<'a> Fare<'a> {
    /// A class with these rates and without faults; `unknown` is why the trial would prove nothing about it.
    pub fn new(
        class: &'a ServiceClass,
        counts: &'a GroupCounts,
        (offered_pps, received_pps): (f64, f64),
        share: Option<(f64, f64)>,
        unknown: Option<&'static str>,
    ) -> Fare<'a> {
        let (faults, marks) = (Vec::new(), Vec::new());
        Fare { class, counts, offered_pps, received_pps, share, faults, unknown, marks }
    }

    /// Share minus expected share, in percentage points.
    pub fn error(&self) -> Option<f64> {
        self.share.map(|(share, expected)| share - expected)
    }

    /// Adds the row of the class, and under overload its bars, in position `place` of `of` classes.
    pub fn write(self, outcome: &mut Outcome, pattern: &Pattern, trial: &Trial, (place, of): (usize, usize)) {
        let error = self.error();
        let Fare { class, counts, offered_pps, received_pps, share, faults, unknown, marks } = self;
        let wrong: u64 = counts.deviations.values().sum();
        let deviating =
            (wrong > 0).then(|| format!("{wrong} frames arrived in a wrong encapsulation and count as lost"));
        let latency = &counts.latency;
        let us = |ns: f64| (latency.frames > 0).then_some(ns / 1e3);
        let p99 = latency.percentile(99.0);
        let row = ClassRow {
            frame_size: pattern.size.clone(),
            protocol: pattern.protocol(),
            load_percent: trial.percent,
            class: class.name.clone(),
            dscp: class.dscp.into(),
            weight: class.weight.into(),
            offered: counts.offered,
            offered_pps,
            received: counts.received,
            received_pps,
            lost: counts.lost,
            loss_percent: percent_of(counts.lost, counts.offered),
            share_percent: share.map(|(share, _)| share),
            expected_percent: share.map(|(_, expected)| expected),
            error_points: error,
            latency_mean_us: us(latency.mean_ns),
            latency_p99_us: p99.and_then(|ns| us(ns as f64)),
            latency_max_us: us(latency.max_ns as f64),
            jitter_us: p99.and_then(|ns| us(ns.saturating_sub(latency.min_ns) as f64)),
            reordered: counts.known_reordered(),
            verdict: unknown.filter(|_| faults.is_empty()).map_or_else(|| verdict(&faults), Into::into),
        };
        TABLE.add(outcome, row, [trial.result.trial], faults.into_iter().chain(marks).chain(deviating));
        if trial.percent > 100.0 {
            let x = trial.percent * of as f64 + place as f64;
            let label = Some(format!("{}: {} at {} %", pattern.size, class.name, trial.percent));
            let bar = |y: f64| Point { x, y, label: label.clone(), ..Point::default() };
            RATE_BARS.curve(outcome, "received", bar(received_pps));
            if let Some((share, expected)) = share {
                BARS.curve(outcome, "received", bar(share));
                BARS.reference(outcome, "expected", bar(expected));
            }
        }
    }
}

/// Text for the verdict column.
pub(super) fn verdict(faults: &[String]) -> String {
    if faults.is_empty() { AS_WANTED.into() } else { faults.join("; ") }
}

/// Errors of shares below this many percentage points are due to rounding.
const ROUNDING: f64 = 1e-9;

/// Describes the error of a share that is off by `tolerance` percentage points or more.
pub(super) fn off(error: Option<f64>, tolerance: f64) -> Option<String> {
    let error = error.filter(|error| error.abs() >= (tolerance - ROUNDING).max(ROUNDING))?;
    Some(format!("its share is {:.2} points too {}", error.abs(), if error > 0.0 { "high" } else { "low" }))
}

/// The figures that rank routers, without values if there is no `result`. `of` is what was overloaded: `an output
/// port`. `rate` counts all frames that left, in frames per second.
pub(super) fn figures(
    pattern: &Pattern,
    classes: &[ServiceClass],
    result: Option<&TrialResult>,
    (rate, error): (Option<f64>, Option<f64>),
    of: &str,
) -> Vec<RankFigure> {
    let (size, text) = (&pattern.size, pattern.size_text());
    // The first of the classes with the highest weight.
    let best = classes.iter().rev().max_by_key(|class| class.weight).map(|best| {
        let counts = result.and_then(|result| group(result, &best.name));
        let loss = counts.and_then(|counts| percent_of(counts.lost, counts.offered));
        let title = format!("Loss of class {} under overload, {text}", best.name);
        LOSS.of(&[("size", size)], title, loss)
    });
    let title = format!("Largest error of a share, {text}");
    let share = ERROR.of(&[("size", size)], title, error);
    let title = format!("Forwarding rate of {of}, {text}");
    let rate = RATE.of(&[("size", size)], title, rate);
    best.into_iter().chain([share, rate]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_as_large_as_the_tolerance_is_wrong() {
        let high = Some("its share is 1.00 points too high".to_owned());
        assert_eq!(off(Some(1.0), 1.0), high);
        // Rounding error of the difference of two shares.
        assert_eq!((off(Some(41.1 - 40.1), 1.0), off(Some(0.1 + 0.2 + 0.7), 1.0)), (high.clone(), high));
        assert_eq!(off(Some(-1.0), 1.0), Some("its share is 1.00 points too low".to_owned()));
        assert_eq!([Some(0.9999), Some(-0.9999), None].map(|error| off(error, 1.0)), [None, None, None]);
        // Without tolerance, every error is wrong except 0.
        assert_eq!((off(Some(0.001), 0.0).is_some(), off(Some(0.0), 0.0)), (true, None));
    }
}
