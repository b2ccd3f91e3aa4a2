//! Decides whether a DUT is better in one run than in another. Rounds of different runs are unrelated, so they are not
//! paired.

use super::{CONFIDENCE, Rule, mean_and_variance};
use drophammer_model::figure::{Figure, Scale};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Comparison of two samples A and B.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unpaired {
    /// Number of figures of A and of B.
    pub rounds: (usize, usize),
    /// How much higher the mean of A is than the mean of B: a share of B (by ratio, of geometric means) or in the
    /// figure's unit. A bound if figures are bounds.
    pub difference: Figure,
    /// Confidence interval ([`CONFIDENCE`]) of `difference`; open if figures are bounds.
    pub interval: Figure,
    /// True if A is better, provided that they differ.
    pub a_is_better: bool,
    /// Probability of such a difference, in either direction, between equal samples.
    pub p: f64,
    /// True if the difference is at least [`Rule::least`].
    pub matters: bool,
}

/// Minimum number of figures in each sample. With two or three, the t-test finds false differences more often than its
/// probability suggests if the samples have different sizes or occasional outliers.
pub const UNPAIRED_FROM: usize = 4;

/// Compares two independent samples of figures; `None` if either has fewer than [`UNPAIRED_FROM`] figures.
///
/// The test is the two-sided t-test of Welch (1947), which does not assume equal variances, on logarithms or, by
/// difference, on the figures. As in [`compare`](super::compare), a bound counts with the value that contradicts the
/// claim. The variance of each sample is at least the variance of rounding to [`Rule::resolution`]. If both are still
/// 0, the exact permutation test replaces the t-test.
pub fn compare_unpaired(a: &[Figure], b: &[Figure], rule: &Rule) -> Option<Unpaired> {
    if a.len().min(b.len()) < UNPAIRED_FROM {
        return None;
    }
    let sample = |figures: &[Figure], end: fn(&Figure) -> f64| rule.sample(figures.iter().map(end));
    let (a_least, a_most) = (sample(a, |f| f.low), sample(a, |f| f.high));
    let (b_least, b_most) = (sample(b, |f| f.low), sample(b, |f| f.high));
    // The certain part, for each of the two claims.
    let (above, below) = (Claim::new(&a_least, &b_most), Claim::new(&b_least, &a_most));
    let (claim, a_is_above) = if above.p <= below.p { (&above, true) } else { (&below, false) };
    let shown = |low: f64, high: f64| Figure { low: rule.change(low), high: rule.change(high) };
    Some(Unpaired {
        rounds: (a.len(), b.len()),
        difference: shown(above.difference, -below.difference),
        interval: shown(above.low, -below.low),
        a_is_better: a_is_above == rule.higher_is_better,
        p: (2.0 * claim.p).min(1.0),
        matters: rule.matters(claim.difference),
    })
}

/// A sample on the scale of the comparison.
struct Sample {
    size: f64,
    /// Mean of the figures; infinite or NaN if a figure has no bound in this direction.
    mean: f64,
    variance: f64,
}

/// The claim that one sample is above another.
struct Claim {
    difference: f64,
    /// Lower end of the interval of `difference`.
    low: f64,
    /// One-sided probability.
    p: f64,
}

impl Claim {
    /// The claim of which nothing is certain.
    const NOTHING: Claim = Claim { difference: f64::NEG_INFINITY, low: f64::NEG_INFINITY, p: 1.0 };

    fn new(upper: &Sample, lower: &Sample) -> Claim {
        let difference = upper.mean - lower.mean;
        let (of_upper, of_lower) = (upper.variance / upper.size, lower.variance / lower.size);
        let error = (of_upper + of_lower).sqrt();
        if !difference.is_finite() || !error.is_finite() {
            return Claim::NOTHING;
        }
        // Tolerance for the rounding error of sums of equal numbers.
        let negligible = upper.mean.abs().max(lower.mean.abs()) * 1e-12;
        if error <= negligible {
            // All figures within each sample are equal: only one of all ways to split the figures separates them this
            // far.
            let p = if difference > negligible { 1.0 / ways(upper.size, lower.size) } else { 1.0 };
            return Claim { difference, low: difference, p };
        }
        let freedom = (of_upper + of_lower).powi(2)
            / (of_upper.powi(2) / (upper.size - 1.0) + of_lower.powi(2) / (lower.size - 1.0));
        let Ok(by_chance) = StudentsT::new(0.0, 1.0, freedom) else { return Claim::NOTHING };
        let low = difference - by_chance.inverse_cdf((1.0 + CONFIDENCE) / 2.0) * error;
        Claim { difference, low, p: by_chance.sf(difference / error) }
    }
}

/// Number of ways to split `a + b` figures into two samples of these sizes.
fn ways(a: f64, b: f64) -> f64 {
    let (mut ways, mut taken) = (1.0, 1.0);
    while taken <= a.min(b) {
        ways *= (a.max(b) + taken) / taken;
        taken += 1.0;
    }
    ways
}

impl Rule {
    /// Mean and variance; the variance is at least the variance of rounding.
    fn sample(&self, values: impl Iterator<Item = f64>) -> Sample {
        let values: Vec<f64> = values.map(|value| self.scaled(value)).collect();
        let (mean, variance) = mean_and_variance(&values);
        // Half of the variance that rounding adds to the difference of two figures.
        let rounding = self.rounding().powi(2) / 2.0;
        // If a bound is missing, the variance is NaN, and this comparison keeps it NaN.
        let variance = if variance < rounding { rounding } else { variance };
        Sample { size: values.len() as f64, mean, variance }
    }

    /// Converts a figure to the scale of the comparison.
    fn scaled(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Difference => value,
            // Unlike in `difference`, a missing lower bound stays negative infinity.
            Scale::Ratio if value == f64::NEG_INFINITY => value,
            Scale::Ratio => value.max(f64::MIN_POSITIVE).ln(),
        }
    }

    /// Converts a difference on this scale to a share, or to the figure's unit.
    fn change(&self, difference: f64) -> f64 {
        match self.scale {
            Scale::Difference => difference,
            Scale::Ratio if difference == f64::NEG_INFINITY => difference,
            Scale::Ratio => difference.exp_m1(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rule = Rule { scale: Scale::Ratio, higher_is_better: true, least: 0.03, resolution: 0.0 };
    const PLAIN: Rule = Rule { scale: Scale::Difference, higher_is_better: true, least: 0.0, resolution: 0.0 };

    fn exact(values: &[f64]) -> Vec<Figure> {
        values.iter().map(|v| Figure::exactly(*v)).collect()
    }

    fn compared(a: &[f64], b: &[f64], rule: &Rule) -> Unpaired {
        compare_unpaired(&exact(a), &exact(b), rule).unwrap()
    }

    #[test]
    fn p_and_interval_agree_with_welchs_test() {
        let (a, b) = ([18.0, 25.2, 17.5, 23.0, 20.4], [22.1, 25.6, 23.0, 24.1]);
        let found = compared(&a, &b, &PLAIN);
        assert!((found.difference.low + 2.88).abs() < 1e-9 && found.difference.is_exact(), "{found:?}");
        let expected = welch_by_integration(&a, &b);
        assert!((found.p - expected).abs() < 1e-6, "{} {expected}", found.p);
        assert!(!found.a_is_better && found.rounds == (5, 4));
        let turned = compared(&b, &a, &PLAIN);
        assert!((turned.p - found.p).abs() < 1e-12 && turned.a_is_better);
        assert!((turned.interval.low + found.interval.high).abs() < 1e-9);
        // The interval contains 0 while p is above 1 minus the confidence.
        assert!(found.interval.low < 0.0 && found.interval.high > 0.0);
        let less = PLAIN.higher_is_better;
        assert_ne!(compared(&a, &b, &Rule { higher_is_better: !less, ..PLAIN }).a_is_better, found.a_is_better);
    }

    /// Two-sided p of Welch's test: the tail of Student's density, integrated by Simpson's rule.
    fn welch_by_integration(a: &[f64], b: &[f64]) -> f64 {
        let of = |values: &[f64]| {
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            (mean, values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0) / n, n)
        };
        let ((ma, va, na), (mb, vb, nb)) = (of(a), of(b));
        let t = (ma - mb).abs() / (va + vb).sqrt();
        let df = (va + vb) * (va + vb) / (va * va / (na - 1.0) + vb * vb / (nb - 1.0));
        let density = |x: f64| (1.0 + x * x / df).powf(-f64::midpoint(df, 1.0));
        let simpson = |from: f64, to: f64| {
            let steps = 200_000;
            let h = (to - from) / f64::from(steps);
            let inner: f64 =
                (1..steps).map(|i| density(from + h * f64::from(i)) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
            (density(from) + inner + density(to)) * h / 3.0
        };
        // The density is not normalised. The tail beyond 2,000 is smaller than the tolerance.
        simpson(t, 2_000.0) / simpson(0.0, 2_000.0)
    }

    #[test]
    fn ratios_compare_geometric_means() {
        let found = compared(&[110.0, 110.0, 110.0 * 1.1, 110.0 / 1.1], &[100.0, 100.0, 101.0, 100.0 / 1.01], &RATE);
        assert!((found.difference.low - 0.1).abs() < 1e-12, "{found:?}");
        assert!(found.interval.low < 0.1 && found.interval.high > 0.1 && found.matters);
        let small = compared(&[102.0, 102.1, 101.9, 102.0], &[100.0, 100.1, 99.9, 100.0], &RATE);
        assert!(small.p < 0.01 && !small.matters, "{small:?}");
    }

    #[test]
    fn rounds_are_not_paired() {
        // A paired test would find 10 % in each round.
        let b = [100.0, 1_000.0, 10_000.0, 100_000.0];
        let a = b.map(|b| b * 1.1);
        assert!(compared(&a, &b, &RATE).p > 0.9);
        let mut turned = a;
        turned.reverse();
        let (p, other_order) = (compared(&a, &b, &RATE).p, compared(&turned, &b, &RATE).p);
        assert!((p - other_order).abs() < 1e-9, "{p} {other_order}");
    }

    #[test]
    fn without_variance_the_permutation_test_decides_unless_there_is_a_resolution() {
        let found = compared(&[110.0; 6], &[100.0; 4], &RATE);
        assert!((found.p - 2.0 / 210.0).abs() < 1e-12, "{found:?}");
        assert!(found.interval == found.difference && found.matters);
        let same = compared(&[100.0; 6], &[100.0; 4], &RATE);
        assert_eq!((same.p, same.matters), (1.0, false));
        let coarse = Rule { resolution: 0.2, ..RATE };
        let found = compared(&[110.0; 4], &[100.0; 4], &coarse);
        assert!(found.p > 0.05 && found.interval.low < 0.0, "a step of the measurement proves nothing: {found:?}");
    }

    #[test]
    fn bounds_stay_bounds_and_speak_against_the_claim() {
        let around = |v: f64| [v, v + 1.0, v - 1.0, v + 0.5].to_vec();
        let at_least = |v: f64| -> Vec<Figure> { around(v).into_iter().map(Figure::at_least).collect() };
        let found = compare_unpaired(&at_least(200.0), &exact(&around(100.0)), &RATE).unwrap();
        assert!(found.p < 1e-4 && found.a_is_better && found.matters);
        assert!((found.difference.low - 1.0).abs() < 0.02 && found.difference.high == f64::INFINITY, "{found:?}");
        assert!(found.interval.low > 0.9 && found.interval.high == f64::INFINITY);
        let open = compare_unpaired(&at_least(200.0), &exact(&around(250.0)), &RATE).unwrap();
        assert!(open.p == 1.0 && open.difference.low < 0.0 && open.difference.high == f64::INFINITY, "{open:?}");
        let both = compare_unpaired(&at_least(200.0), &at_least(100.0), &RATE).unwrap();
        assert_eq!((both.p, both.difference), (1.0, Figure::unknown()));
        let at_most: Vec<Figure> = around(10.0).into_iter().map(Figure::at_most).collect();
        let times = Rule { higher_is_better: false, ..RATE };
        let found = compare_unpaired(&at_most, &exact(&around(20.0)), &times).unwrap();
        assert!(found.a_is_better && found.p < 1e-3 && found.difference.low == f64::NEG_INFINITY, "{found:?}");
        // A single bound among the figures leaves the mean without an upper end.
        let mut mixed = exact(&around(100.0));
        mixed[0] = Figure::at_least(100.0);
        let found = compare_unpaired(&mixed, &exact(&around(150.0)), &RATE).unwrap();
        assert!(found.p == 1.0 && found.difference.high == f64::INFINITY, "{found:?}");
    }

    #[test]
    fn strange_figures_prove_nothing() {
        for strange in [f64::MAX, -f64::MAX, f64::MIN_POSITIVE, 0.0, -1.0] {
            for rule in [RATE, PLAIN] {
                let found = compared(&[strange, -strange, 1.0, 1.0], &[strange; 4], &rule);
                assert!((0.0..=1.0).contains(&found.p), "{strange}: {found:?}");
            }
        }
        let found = compared(&[f64::MAX; 4], &[-f64::MAX; 4], &PLAIN);
        assert_eq!(found.p, 1.0, "the difference is not a number");
        assert_eq!(compare_unpaired(&exact(&[1.0; 3]), &exact(&[1.0; 9]), &RATE), None);
        assert_eq!(compare_unpaired(&exact(&[1.0; 9]), &[], &RATE), None);
    }
}
