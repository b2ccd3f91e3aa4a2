//! Decides from the values of the intervals whether a quantity drifts.

use drophammer_judge::statistics::{Trend, trend};

/// Seconds of an hour.
const HOUR_S: f64 = 3_600.0;

/// Verdict on one quantity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drift {
    /// Median of all intervals.
    pub level: f64,
    /// Change per hour, with its confidence interval; `None` for fewer than two intervals.
    pub per_hour: Option<Trend>,
    /// The slope times the time from the first to the last interval.
    pub change: f64,
    /// The change in % of the level; `None` if the level is 0.
    pub change_percent: Option<f64>,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The confidence interval of the slope excludes 0, and the change is large enough to count.
    Drifts,
    /// The interval includes 0, or the change is too small to count.
    Steady,
    /// Too few intervals.
    Unknown,
}

impl Verdict {
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Drifts => "drifts",
            Verdict::Steady => "steady",
            Verdict::Unknown => "not known: too few intervals",
        }
    }
}

/// Smallest change that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Least {
    /// In % of the level.
    Percent(f64),
    /// In the unit of the quantity.
    Absolute(f64),
}

/// The drift of `points`: `(seconds, value)` of each interval that has a value. `None` without points.
pub(super) fn drift(points: &[(f64, f64)], least: Least) -> Option<Drift> {
    let mut values: Vec<f64> = points.iter().map(|point| point.1).collect();
    values.sort_by(f64::total_cmp);
    let level = *values.get(values.len() / 2)?;
    let found = trend(points);
    let length_s = points.last()?.0 - points.first()?.0;
    let change = found.map_or(0.0, |found| found.slope * length_s);
    let change_percent = (level != 0.0).then(|| change / level.abs() * 100.0);
    let counts = match least {
        Least::Absolute(least) => change.abs() >= least,
        // If the level is 0, every change counts.
        Least::Percent(least) => change_percent.map_or(change != 0.0, |percent| percent.abs() >= least),
    };
    let verdict = match found {
        Some(found) if found.is_certain() && counts => Verdict::Drifts,
        Some(found) if found.low.is_finite() => Verdict::Steady,
        _ => Verdict::Unknown,
    };
    let hourly =
        |found: Trend| Trend { slope: found.slope * HOUR_S, low: found.low * HOUR_S, high: found.high * HOUR_S };
    Some(Drift { level, per_hour: found.map(hourly), change, change_percent, verdict })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(slope: f64, intervals: u32, least: Least) -> Drift {
        let points: Vec<_> =
            (0..intervals).map(|i| (f64::from(i) * 10.0, 100.0 + slope * f64::from(i) * 10.0)).collect();
        drift(&points, least).unwrap()
    }

    #[test]
    fn a_drift_is_certain_and_large_enough() {
        let found = of(0.1, 21, Least::Percent(5.0));
        assert_eq!((found.level, found.verdict), (110.0, Verdict::Drifts));
        assert!((found.change - 20.0).abs() < 1e-9 && (found.per_hour.unwrap().slope - 360.0).abs() < 1e-6);
        assert_eq!(of(0.1, 21, Least::Percent(18.5)).verdict, Verdict::Steady);
        assert_eq!(of(0.1, 21, Least::Absolute(20.5)).verdict, Verdict::Steady);
        assert_eq!(of(-0.1, 21, Least::Absolute(19.5)).verdict, Verdict::Drifts);
        assert_eq!(of(0.0, 21, Least::Percent(5.0)).verdict, Verdict::Steady);
    }

    #[test]
    fn too_few_intervals_say_nothing() {
        assert_eq!(of(0.1, 5, Least::Percent(0.1)).verdict, Verdict::Unknown);
        assert_eq!(of(0.1, 1, Least::Percent(0.1)).verdict, Verdict::Unknown);
        assert_eq!(drift(&[], Least::Percent(1.0)), None);
    }
}
