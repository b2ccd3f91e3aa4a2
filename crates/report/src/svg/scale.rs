//! Axes: positions of values, and ticks.

use crate::format::trim;

/// An axis with its ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    kind: Kind,
    low: f64,
    high: f64,
    /// `(value, label)` in ascending order.
    pub ticks: Vec<(f64, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Linear,
    /// `low` and `high` are decimal logarithms; `zero` if there is room for zero at the lower end.
    Log {
        zero: bool,
    },
    /// `low` and `high` are numbers of nines.
    Nines,
}

/// Share of a logarithmic axis for zero, if there are zeros.
const ZERO_ROOM: f64 = 0.07;

impl Axis {
    /// A linear axis over `low..=high`, which `nice` widens to whole ticks. Without `nice`, ticks are within.
    pub fn linear(low: f64, high: f64, about: usize, nice: bool) -> Axis {
        let (low, high) = if high > low { (low, high) } else { widen(low) };
        let step = nice_step((high - low) / about.max(1) as f64);
        let (first, last) = if nice {
            ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil())
        } else {
            ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor())
        };
        let count = (last - first).clamp(0.0, 50.0) as usize;
        let values: Vec<f64> = (0..=count).map(|i| (first + i as f64) * step).collect();
        let labels = labels(&values, step);
        let (low, high) = if nice { (first * step, last * step) } else { (low, high) };
        Axis { kind: Kind::Linear, low, high, ticks: values.into_iter().zip(labels).collect() }
    }

    /// A logarithmic axis over the positive `values`, between 1, 2 or 5 of a decade. Zeros get a separate place at the
    /// lower end. Absent if no value is positive.
    pub fn log(values: impl Iterator<Item = f64> + Clone) -> Option<Axis> {
        let positive = values.clone().filter(|v| *v > 0.0);
        let low = positive.clone().fold(f64::INFINITY, f64::min);
        let high = positive.fold(0.0, f64::max);
        if !low.is_finite() || high <= 0.0 {
            return None;
        }
        let zero = values.clone().any(|v| v <= 0.0);
        // The 1, 2 and 5 of every decade around the values.
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32 + 1);
        let all = (first..=last).flat_map(|d| [1.0, 2.0, 5.0].map(|m| (m == 1.0, m * 10f64.powi(d))));
        let from = all.clone().map(|(_, v)| v).filter(|v| *v <= low * (1.0 + 1e-9)).fold(0.0, f64::max);
        let reaches = |v: &f64| *v >= high * (1.0 - 1e-9) && *v >= from * 9.0;
        let to = all.clone().map(|(_, v)| v).filter(reaches).fold(f64::INFINITY, f64::min);
        let within = all.filter(|(_, v)| *v >= from * 0.999 && *v <= to * 1.001);
        let decades = (to / from).log10();
        let every = (decades / 8.0).ceil().max(1.0) as i32;
        let mut ticks: Vec<(f64, String)> = Vec::new();
        if zero {
            ticks.push((0.0, "0".into()));
        }
        for (whole, value) in within {
            // The ends also have ticks, unless decades are left out.
            let end = every == 1 && (value < from * 1.001 || value > to * 0.999);
            let kept = value.log10().round() as i32 % every == 0;
            if decades <= 2.01 || end || (whole && kept) {
                ticks.push((value, short(value)));
            }
        }
        Some(Axis { kind: Kind::Log { zero }, low: from.log10(), high: to.log10(), ticks })
    }

    /// Gives each tick of a logarithmic axis of times a suitable unit: `50 µs`, `10 ms`. `ns` is the unit of the axis.
    #[must_use]
    pub fn of_times(mut self, ns: f64) -> Axis {
        for (value, label) in self.ticks.iter_mut().filter(|(v, _)| *v != 0.0) {
            *label = crate::format::nanoseconds(*value * ns);
        }
        self
    }

    /// The axis of nines for percentiles up to `largest` (below 100). If the data have the `maximum` (100), it is one nine
    /// higher.
    pub fn nines(largest: f64, maximum: bool) -> Axis {
        let all = [
            (0.0, "0"),
            (50.0, "50 %"),
            (90.0, "90 %"),
            (99.0, "99 %"),
            (99.9, "99.9 %"),
            (99.99, "99.99 %"),
            (99.999, "99.999 %"),
            (99.9999, "99.9999 %"),
        ];
        let high = nines(largest.clamp(90.0, 99.9999)).ceil();
        let mut ticks: Vec<(f64, String)> =
            all.iter().filter(|(p, _)| nines(*p) <= high + 1e-6).map(|(p, l)| (*p, (*l).to_owned())).collect();
        if maximum {
            ticks.push((100.0, "max".into()));
        }
        Axis { kind: Kind::Nines, low: 0.0, high: high + f64::from(u8::from(maximum)), ticks }
    }

    /// Like [`Axis::at`], but above 1 for values beyond the upper end of a linear axis.
    pub fn beyond(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Linear if value > self.high => (value - self.low) / (self.high - self.low),
            _ => self.at(value),
        }
    }

    /// Position of `value`, from 0 at the lower end to 1 at the upper end. Values outside are at the ends.
    pub fn at(&self, value: f64) -> f64 {
        let share = |v: f64| ((v - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        match self.kind {
            Kind::Linear => share(value),
            Kind::Log { .. } if value.is_nan() || value <= 0.0 => 0.0,
            Kind::Log { zero: false } => share(value.log10()),
            Kind::Log { zero: true } => ZERO_ROOM + (1.0 - ZERO_ROOM) * share(value.log10()),
            Kind::Nines => share(if value >= 100.0 { self.high } else { nines(value) }),
        }
    }
}

/// Number of nines of a percentile: 90 is 1, 99 is 2.
fn nines(percentile: f64) -> f64 {
    -(1.0 - (percentile / 100.0).clamp(0.0, 0.999_999_9)).log10()
}

fn widen(value: f64) -> (f64, f64) {
    if value == 0.0 {
        (0.0, 1.0)
    } else if value > 0.0 {
        (0.0, value * 1.25)
    } else {
        (value * 1.25, 0.0)
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `raw`.
fn nice_step(raw: f64) -> f64 {
    let base = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * base >= raw * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * base
}

const PREFIXES: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e3, "k")];

/// Labels of a row of ticks, all with the same prefix and the same number of decimals.
fn labels(values: &[f64], step: f64) -> Vec<String> {
    let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    if largest > 0.0 && !(1e-4..1e13).contains(&largest) {
        return values.iter().map(|v| if *v == 0.0 { "0".into() } else { format!("{v:.1e}") }).collect();
    }
    let (divisor, prefix) = if largest >= 10_000.0 {
        PREFIXES.into_iter().find(|(d, _)| largest >= *d).unwrap_or((1.0, ""))
    } else {
        (1.0, "")
    };
    // Prefer 200k, 400k, ... 1M to 0.2M, 0.4M, ... 1.0M.
    if divisor > 1.0 && largest <= divisor {
        return values.iter().map(|v| if v.abs() < step / 2.0 { "0".into() } else { short(*v) }).collect();
    }
    let scaled = step / divisor;
    let decimals = usize::try_from((-(scaled.log10() + 1e-9).floor() as i32).max(0)).unwrap_or(0);
    values
        .iter()
        .map(|v| if v.abs() < step / 2.0 { "0".into() } else { format!("{:.decimals$}{prefix}", v / divisor) })
        .collect()
}

/// A value in few characters for labels in a plot, not for tables: `1.23M`.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let (divisor, prefix) = PREFIXES.into_iter().find(|(d, _)| size >= *d * 0.9995).unwrap_or((1.0, ""));
    let scaled = value / divisor;
    if size > 0.0 && size < 1e-3 {
        return format!("{value:.0e}");
    }
    // Three significant digits, but at most three decimals.
    let decimals = [1.0, 10.0, 100.0].iter().filter(|least| scaled.abs() < **least).count();
    format!("{}{prefix}", trim(&format!("{scaled:.decimals$}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|t| t.1.as_str()).collect()
    }

    #[test]
    fn linear_ticks_are_nice() {
        assert_eq!(texts(&Axis::linear(0.0, 14_880_952.0, 6, true)), ["0", "5M", "10M", "15M"]);
        assert_eq!(texts(&Axis::linear(0.0, 0.93, 5, true)), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(&Axis::linear(0.0, 0.0, 4, true)), ["0", "0.5", "1.0"]);
        assert_eq!(texts(&Axis::linear(0.0, 1e6, 5, true)), ["0", "200k", "400k", "600k", "800k", "1M"]);
        assert_eq!(texts(&Axis::linear(-3.0, 3.0, 3, true)), ["-4", "-2", "0", "2", "4"]);
        assert_eq!(texts(&Axis::linear(0.0, 2_500.0, 5, true)), ["0", "500", "1000", "1500", "2000", "2500"]);
        assert_eq!(texts(&Axis::linear(64.0, 1518.0, 6, false)), ["500", "1000", "1500"]);
        assert_eq!(Axis::linear(0.0, 10.0, 5, true).at(5.0), 0.5);
    }

    #[test]
    fn a_log_axis_has_decades_and_a_place_for_zero() {
        let axis = Axis::log([1.0, 90_000.0].into_iter()).unwrap();
        assert_eq!(texts(&axis), ["1", "10", "100", "1k", "10k", "100k"]);
        assert!((axis.at(10.0) - 0.2).abs() < 1e-12);
        // Latency from 5 µs to 50 ms.
        let axis = Axis::log([5.3, 48_000.0].into_iter()).unwrap().of_times(1e3);
        assert_eq!(texts(&axis), ["5 \u{b5}s", "10 \u{b5}s", "100 \u{b5}s", "1 ms", "10 ms", "50 ms"]);
        assert!(axis.at(5.3) > 0.0 && axis.at(5.3) < 0.01 && axis.at(48_000.0) > 0.99);
        assert_eq!(texts(&Axis::log([30.0, 70.0].into_iter()).unwrap()), ["20", "50", "100", "200"]);
        assert_eq!(texts(&Axis::log([1e-9, 1e9].into_iter()).unwrap()).len(), 7);
        let axis = Axis::log([0.0, 1e-3, 100.0].into_iter()).unwrap();
        assert_eq!(axis.ticks[0], (0.0, "0".into()));
        assert!(axis.at(0.0) < axis.at(1e-3));
        assert!(Axis::log([0.0].into_iter()).is_none());
        assert!(Axis::log([7.0].into_iter()).is_some());
    }

    #[test]
    fn the_axis_of_nines_is_even_and_ends_with_the_maximum() {
        assert_eq!(texts(&Axis::nines(99.0, false)), ["0", "50 %", "90 %", "99 %"]);
        let axis = Axis::nines(99.999, true);
        assert_eq!(texts(&axis), ["0", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "max"]);
        assert!((axis.at(99.0) - axis.at(90.0) - (axis.at(99.9) - axis.at(99.0))).abs() < 1e-9);
        assert_eq!(axis.at(100.0), 1.0);
        assert!(axis.at(99.999) < 1.0);
    }

    #[test]
    fn short_values() {
        for (value, text) in
            [(0.0, "0"), (1_234_567.0, "1.23M"), (999.7, "1k"), (812.0, "812"), (0.25, "0.25"), (14.88e6, "14.9M")]
        {
            assert_eq!(short(value), text);
        }
    }
}
