//! Decides whether a figure drifts: a slope that single outliers do not change, with a confidence interval.

use super::median;
use statrs::distribution::{ContinuousCDF, Normal};

/// Confidence of the interval of a slope. It is higher than for a single figure, because one measurement checks several
/// figures.
pub const TREND_CONFIDENCE: f64 = 0.99;
/// Maximum number of points. Beyond it, medians of groups replace them, because the number of slopes grows
/// quadratically.
const MOST_POINTS: usize = 1_000;

/// How a figure changes with time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Median of the slopes between all pairs of points (Theil and Sen).
    pub slope: f64,
    /// Lower end of the interval; negative infinity if there are too few points for an interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Trend {
    /// True if the interval excludes a slope of 0.
    pub fn is_certain(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// The slope of `points`, which are `(time, figure)`, and its interval of confidence [`TREND_CONFIDENCE`] (Sen 1968: by
/// Kendall's tau, assuming no distribution). `None` for fewer than two distinct times. The errors of the points are
/// assumed to be independent: a figure that wanders for a long time before it returns can look like a drift.
pub fn trend(points: &[(f64, f64)]) -> Option<Trend> {
    let points = thinned(points);
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (i, (x, y)) in points.iter().enumerate() {
        let of = points[i + 1..].iter().filter(|(other, _)| other != x).map(|(later, other)| (other - y) / (later - x));
        slopes.extend(of);
    }
    let slope = median(&mut slopes)?;
    let n = points.len() as f64;
    let z = Normal::new(0.0, 1.0).map_or(f64::INFINITY, |normal| normal.inverse_cdf(0.5 + TREND_CONFIDENCE / 2.0));
    // Standard deviation of Kendall's S without ties. Ties reduce it, so with ties the interval is wide enough, too.
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    // Number of ordered slopes that the interval leaves out at each end.
    let outside = ((slopes.len() as f64 - z * deviation) / 2.0).floor();
    if outside < 1.0 {
        return Some(Trend { slope, low: f64::NEG_INFINITY, high: f64::INFINITY });
    }
    let outside = outside as usize;
    Some(Trend { slope, low: slopes[outside - 1], high: slopes[slopes.len() - outside] })
}

/// Reduces the points to at most [`MOST_POINTS`].
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let group = points.len().div_ceil(MOST_POINTS).max(1);
    let middle = |mut values: Vec<f64>| median(&mut values);
    let of = |points: &[(f64, f64)]| {
        middle(points.iter().map(|p| p.0).collect()).zip(middle(points.iter().map(|p| p.1).collect()))
    };
    points.chunks(group).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(slope: f64, n: u32) -> Vec<(f64, f64)> {
        (0..n).map(|i| (f64::from(i), 5.0 + slope * f64::from(i))).collect()
    }

    #[test]
    fn outliers_do_not_change_the_slope_of_a_line() {
        let straight = trend(&line(0.25, 20)).unwrap();
        assert_eq!((straight.slope, straight.low, straight.high), (0.25, 0.25, 0.25));
        assert!(straight.is_certain());
        let mut wild = line(0.25, 20);
        (wild[3].1, wild[11].1) = (1e6, -1e6);
        let found = trend(&wild).unwrap();
        assert!((found.slope - 0.25).abs() < 1e-9 && found.is_certain(), "{found:?}");
        assert!(!trend(&line(0.0, 20)).unwrap().is_certain());
    }

    #[test]
    fn few_points_are_no_drift() {
        assert_eq!(trend(&[]), None);
        assert_eq!(trend(&[(1.0, 2.0), (1.0, 3.0)]), None);
        let five = trend(&line(1.0, 5)).unwrap();
        assert_eq!((five.slope, five.is_certain()), (1.0, false));
        assert!(trend(&line(1.0, 7)).unwrap().is_certain());
    }

    /// Sen's rule by hand: 8 points have 28 slopes. Kendall's S has a variance of 65.33 and a deviation of 8.08, so
    /// 2.576 deviations leave out 3 slopes at each end.
    #[test]
    fn the_interval_agrees_with_sens_rule() {
        let values = [3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0];
        let points: Vec<_> = values.iter().enumerate().map(|(i, y)| (i as f64, *y)).collect();
        let mut slopes: Vec<f64> = Vec::new();
        for i in 0..8 {
            for j in i + 1..8 {
                slopes.push((values[j] - values[i]) / (j - i) as f64);
            }
        }
        slopes.sort_by(f64::total_cmp);
        let found = trend(&points).unwrap();
        assert_eq!((found.slope, found.low, found.high), ((slopes[13] + slopes[14]) / 2.0, slopes[2], slopes[25]));
        assert!(!found.is_certain());
    }

    #[test]
    fn many_points_are_combined() {
        let found = trend(&line(-2.0, 12_345)).unwrap();
        assert!((found.slope + 2.0).abs() < 1e-9 && found.is_certain());
    }

    proptest! {
        #[test]
        fn a_slope_scales_with_its_axes(values in proptest::collection::vec(-10.0f64..10.0, 8..40), scale in 0.1f64..10.0) {
            let points: Vec<_> = values.iter().enumerate().map(|(i, y)| (i as f64, *y)).collect();
            let scaled: Vec<_> = points.iter().map(|(x, y)| (x * 2.0, y * scale + 7.0)).collect();
            let (a, b) = (trend(&points).unwrap(), trend(&scaled).unwrap());
            prop_assert!((a.slope * scale / 2.0 - b.slope).abs() < 1e-6);
            prop_assert!((a.low * scale / 2.0 - b.low).abs() < 1e-6);
            prop_assert!(a.low <= a.slope && a.slope <= a.high);
        }
    }
}
