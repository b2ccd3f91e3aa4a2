//! Four figures of a sorted curve: minimum, median, 99 % and maximum.

use crate::format::{nanoseconds, number};
use drophammer_model::outcome::{Point, Series};

/// Shares with a guide line.
pub const GUIDES: [(f64, &str); 2] = [(50.0, "median"), (99.0, "99 %")];

/// The figures of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures<'a> {
    pub minimum: &'a Point,
    /// The first point at 50 % or beyond; absent if the curve ends before.
    pub median: Option<&'a Point>,
    /// The first point at 99 % or beyond.
    pub p99: Option<&'a Point>,
    /// The last point; its x is the share that the curve reaches.
    pub maximum: &'a Point,
}

impl<'a> Figures<'a> {
    /// The figures of a curve; absent for an empty one. Points may be in any order.
    pub fn new(series: &'a Series) -> Option<Figures<'a>> {
        let mut points: Vec<&Point> = series.points.iter().filter(|p| p.x.is_finite() && p.y.is_finite()).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        // A share of 49.999999999 is one half with a binary rounding error.
        let from = |share: f64| points.iter().copied().find(|p| p.x >= share - 1e-9);
        Some(Figures { minimum: points.first()?, median: from(50.0), p99: from(99.0), maximum: points.last()? })
    }

    /// The figures by name, in order.
    pub fn named(&self) -> [(&'static str, Option<&'a Point>); 4] {
        [("minimum", Some(self.minimum)), ("median", self.median), ("99 %", self.p99), ("maximum", Some(self.maximum))]
    }

    /// True if the curve ends before 100 %.
    pub fn is_partial(&self) -> bool {
        self.maximum.x < 100.0 - 1e-9
    }
}

/// The unit in the title of an axis, after the last comma or in brackets: `time, s`, `Time [s]`; empty if there is none.
pub fn unit(title: &str) -> &str {
    let bracket = title.strip_suffix(']').and_then(|t| t.rsplit_once('[')).map(|(_, unit)| unit);
    bracket.or_else(|| title.rsplit_once(", ").map(|(_, unit)| unit)).unwrap_or("").trim()
}

/// A value with the unit of the axis of this title. Times get a suitable unit.
pub fn value(y: f64, title: &str) -> String {
    match (unit(title), y) {
        (_, 0.0) => format!("0 {}", unit(title)).trim().to_owned(),
        ("s", y) => nanoseconds(y * 1e9),
        ("ms", y) => nanoseconds(y * 1e6),
        ("\u{b5}s", y) => nanoseconds(y * 1e3),
        (unit, y) => format!("{} {unit}", number(y, unit)).trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Series {
        let points = points.iter().map(|(x, y)| Point { x: *x, y: *y, ..Default::default() }).collect();
        Series { name: String::new(), reference: false, dots: false, points }
    }

    #[test]
    fn figures_of_a_curve_and_of_one_that_never_ends() {
        let thousand: Vec<(f64, f64)> = (1..=1000).map(|i| (f64::from(i) / 10.0, f64::from(i))).collect();
        let series = curve(&thousand);
        let figures = Figures::new(&series).unwrap();
        let ys = figures.named().map(|(_, p)| p.map(|p| p.y));
        assert_eq!(ys, [Some(1.0), Some(500.0), Some(990.0), Some(1000.0)]);
        assert!(!figures.is_partial());
        let series = curve(&[(60.0, 3.0), (30.0, 1.0)]);
        let figures = Figures::new(&series).unwrap();
        assert_eq!(figures.named().map(|(_, p)| p.map(|p| p.y)), [Some(1.0), Some(3.0), None, Some(3.0)]);
        assert!(figures.is_partial());
        assert!(Figures::new(&curve(&[])).is_none());
    }

    #[test]
    fn values_have_the_unit_of_the_axis() {
        assert_eq!(value(0.0123, "convergence time, s"), "12.3 ms");
        assert_eq!(value(2.5, "Time [s]"), "2.5 s");
        assert_eq!(value(7.0, "latency, \u{b5}s"), "7 \u{b5}s");
        assert_eq!(value(200_000.0, "routes"), "200,000");
        assert_eq!(value(0.0, "time, s"), "0 s");
    }
}
