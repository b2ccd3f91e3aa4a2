//! Decides from the rounds of one run whether one DUT is better than another.

use super::{mean_and_variance, median};
use drophammer_model::figure::{Figure, Scale};
use drophammer_model::outcome::RankFigure;
use statrs::distribution::{Binomial, ContinuousCDF, Discrete, DiscreteCDF, Hypergeometric, StudentsT};

/// How to compare a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// By ratio or by difference.
    pub scale: Scale,
    /// True if a larger figure is better.
    pub higher_is_better: bool,
    /// Smaller differences do not matter in practice. A share (0.03 is 3 %) or, by difference, in the figure's unit.
    pub least: f64,
    /// Step of the measurement, for example the width of a search: a share or, by difference, in the figure's unit.
    pub resolution: f64,
}

/// With at least this many rounds, the sign test complements the t-test. With fewer, its smallest possible probability
/// is too large to rank by.
pub const SIGNS_FROM: usize = 10;

/// Tests of paired differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// The paired t-test alone. A single outlier can hide a difference that all other rounds show.
    T,
    /// The t-test and, from [`SIGNS_FROM`] rounds on, the exact sign test. The result is twice the smaller probability,
    /// because there are two tests.
    Either,
}

/// Comparison of two DUTs A and B over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Rounds in which both have a figure.
    pub rounds: usize,
    /// How much higher A is than B, as a share of B or in the figure's unit. If figures are bounds, only the certain
    /// part.
    pub difference: f64,
    /// True if A is better, provided that they differ.
    pub a_is_better: bool,
    /// Probability of such a difference, in either direction, between equal DUTs.
    pub p: f64,
    /// Standard deviation of the difference in one round (by ratio, of its logarithm).
    pub deviation: f64,
    /// True if the difference is at least [`Rule::least`].
    pub matters: bool,
}

/// Compares the figures of two DUTs round by round. A round in which either DUT has no figure does not count. `None`
/// with fewer than two rounds, because the noise is then unknown.
///
/// The test is a two-sided paired t-test, on logarithms of ratios or on differences. A bound counts with the value that
/// contradicts the claim: A is better only if the lowest possible A is better than the highest possible B. The
/// deviation is at least the deviation of rounding to [`Rule::resolution`]. If it is still 0, the exact sign test
/// replaces the t-test. From [`SIGNS_FROM`] rounds on, the sign test complements the t-test; see [`Test::Either`].
pub fn compare(a: &[Option<Figure>], b: &[Option<Figure>], rule: &Rule) -> Option<Comparison> {
    compare_by(Test::Either, a, b, rule)
}

/// Like [`compare`], but with a given test, to compare the tests themselves.
pub fn compare_by(test: Test, a: &[Option<Figure>], b: &[Option<Figure>], rule: &Rule) -> Option<Comparison> {
    let pairs: Vec<(Figure, Figure)> = a.iter().zip(b).filter_map(|(a, b)| Some(((*a)?, (*b)?))).collect();
    if pairs.len() < 2 {
        return None;
    }
    // The part of each difference that is certain, for each of the two claims.
    let above: Vec<f64> = pairs.iter().map(|(a, b)| rule.difference(a.low, b.high)).collect();
    let below: Vec<f64> = pairs.iter().map(|(a, b)| rule.difference(b.low, a.high)).collect();
    let (is_above, is_below) = (rule.test(test, &above), rule.test(test, &below));
    let (claim, sign) = if is_above.p <= is_below.p { (is_above, 1.0) } else { (is_below, -1.0) };
    let difference = match rule.scale {
        Scale::Ratio => (sign * claim.median).exp() - 1.0,
        Scale::Difference => sign * claim.median,
    };
    Some(Comparison {
        rounds: pairs.len(),
        difference,
        a_is_better: (sign > 0.0) == rule.higher_is_better,
        p: (2.0 * claim.p).min(1.0),
        deviation: claim.deviation,
        matters: rule.matters(claim.median),
    })
}

/// Probability that failures are distributed at least as unevenly as these if both DUTs fail equally often: Fisher's
/// exact test, two-sided. `a` and `b` are `(failed rounds, rounds)`. They can also count trials, up to thousands.
pub fn compare_failures(a: (usize, usize), b: (usize, usize)) -> f64 {
    let (failed, rounds) = ((a.0 + b.0) as u64, (a.1 + b.1) as u64);
    let Ok(by_chance) = Hypergeometric::new(rounds, failed, a.1 as u64) else { return 1.0 };
    // Uses logarithms, because the binomial coefficients of a thousand trials overflow a float.
    let chance = |count: u64| by_chance.ln_pmf(count).exp();
    let seen = chance(a.0 as u64);
    let least = (failed + a.1 as u64).saturating_sub(rounds);
    let all = (least..=failed.min(a.1 as u64)).map(chance);
    // A small tolerance, so that outcomes of equal probability count despite rounding errors.
    all.filter(|p| *p <= seen * (1.0 + 1e-9)).sum::<f64>().min(1.0)
}

/// Probability that `a` has at least as many events as observed if both have the same rate: the exact test of two rates,
/// one-sided, given the sum of both. `a` and `b` are `(events, opportunities)`; the number of opportunities may be large.
pub fn chance_of_more(a: (u64, u64), b: (u64, u64)) -> f64 {
    let Some(below) = a.0.checked_sub(1) else { return 1.0 };
    let share = a.1 as f64 / (a.1 + b.1).max(1) as f64;
    Binomial::new(share, a.0 + b.0).map_or(1.0, |by_chance| by_chance.sf(below))
}

/// The result of a one-sided test.
struct Claim {
    median: f64,
    deviation: f64,
    p: f64,
}

impl From<&RankFigure> for Rule {
    /// The rule for comparing this figure.
    fn from(figure: &RankFigure) -> Rule {
        let RankFigure { scale, higher_is_better, least, resolution, .. } = *figure;
        Rule { scale, higher_is_better, least, resolution }
    }
}

impl Rule {
    /// How much higher `a` is than `b`.
    fn difference(&self, a: f64, b: f64) -> f64 {
        match self.scale {
            Scale::Difference => a - b,
            // Replaces zero by the smallest positive number, so that a router that forwards nothing can be compared.
            Scale::Ratio => a.max(f64::MIN_POSITIVE).ln() - b.max(f64::MIN_POSITIVE).ln(),
        }
    }

    /// True if a difference on the scale of the comparison is at least [`Rule::least`]. The threshold is the same for
    /// both signs: a ratio of 1 + least above, and of 1 / (1 + least) below.
    pub(super) fn matters(&self, difference: f64) -> bool {
        let least = match self.scale {
            Scale::Ratio => self.least.ln_1p(),
            Scale::Difference => self.least,
        };
        difference >= least && difference > 0.0
    }

    /// Standard deviation that rounding to the resolution adds to the difference of two figures.
    pub(super) fn rounding(&self) -> f64 {
        self.resolution.max(0.0) / 6f64.sqrt()
    }

    /// Tests whether these differences (at least two) are above 0.
    fn test(&self, test: Test, differences: &[f64]) -> Claim {
        let by_mean = self.t_test(differences);
        if test == Test::T || differences.len() < SIGNS_FROM || by_mean.deviation.is_nan() {
            return by_mean;
        }
        // Differences within one step of the measurement count for neither side.
        let p = by_mean.p.min(sign_test(differences, self.resolution.max(0.0)));
        Claim { p: (2.0 * p).min(1.0), ..by_mean }
    }

    /// Tests whether the mean of these differences (at least two) is above 0.
    fn t_test(&self, differences: &[f64]) -> Claim {
        let n = differences.len();
        let median = median(&mut differences.to_vec()).unwrap_or(f64::NAN);
        if !differences.iter().all(|d| d.is_finite()) {
            return Claim { median, deviation: f64::NAN, p: 1.0 };
        }
        let (mean, variance) = mean_and_variance(differences);
        let deviation = variance.sqrt().max(self.rounding());
        let negligible = mean.abs() * 1e-12;
        let p = if deviation <= negligible {
            // All are equal: the probability of n heads in n tosses.
            if mean > 0.0 { 0.5f64.powi(n as i32) } else { 1.0 }
        } else if mean == 0.0 {
            0.5
        } else {
            let t = mean / (deviation / (n as f64).sqrt());
            StudentsT::new(0.0, 1.0, (n - 1) as f64).map_or(1.0, |t_distribution| t_distribution.sf(t))
        };
        Claim { median, deviation, p }
    }

    /// The smallest difference that `rounds` rounds detect with probability `power`, if the difference in one round has
    /// this standard deviation and a comparison is significant at `p` or below: a share, or in the figure's unit, and
    /// at least [`Rule::least`]. `None` if they cannot detect any difference: with fewer than two rounds, with bounds
    /// (whose deviation is unknown), or without any noise in so few rounds that the sign test cannot reach `p`.
    pub fn detectable(&self, deviation: f64, rounds: usize, p: f64, power: f64) -> Option<f64> {
        if deviation.is_nan() {
            return None;
        }
        // With two tests, each has half of the probability.
        let each = if rounds < SIGNS_FROM { p } else { p / 2.0 };
        if deviation.max(self.rounding()) == 0.0 {
            return (2.0 * 0.5f64.powi(rounds as i32) <= each).then_some(self.least);
        }
        let freedom = rounds.checked_sub(1).filter(|f| *f > 0)? as f64;
        let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
        let steps = t.inverse_cdf(1.0 - each / 2.0) + t.inverse_cdf(power);
        let difference = steps * deviation.max(self.rounding()) / (rounds as f64).sqrt();
        let difference = match self.scale {
            Scale::Ratio => difference.exp_m1(),
            Scale::Difference => difference,
        };
        difference.is_finite().then_some(difference.max(self.least))
    }
}

/// Probability of at least this many differences above 0 if both signs are equally likely: the exact sign test,
/// one-sided. Ignores differences of `step` or less.
fn sign_test(differences: &[f64], step: f64) -> f64 {
    let above = differences.iter().filter(|d| **d > step).count() as u64;
    let below = differences.iter().filter(|d| **d < -step).count() as u64;
    let Some(fewer) = above.checked_sub(1) else { return 1.0 };
    Binomial::new(0.5, above + below).map_or(1.0, |by_chance| by_chance.sf(fewer))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rule = Rule { scale: Scale::Ratio, higher_is_better: true, least: 0.03, resolution: 0.0 };

    fn exact(values: &[f64]) -> Vec<Option<Figure>> {
        values.iter().map(|v| Some(Figure::exactly(*v))).collect()
    }

    fn near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 1e-9
    }

    #[test]
    fn rare_events_are_compared_among_millions() {
        let m = 1_000_000;
        // Heads five and ten times in a row.
        assert!(near(chance_of_more((5, m), (0, m)), 1.0 / 32.0), "{}", chance_of_more((5, m), (0, m)));
        assert!(near(chance_of_more((10, m), (0, m)), 1.0 / 1_024.0));
        // Two or three of three, at three quarters each.
        assert!(near(chance_of_more((2, 3 * m), (1, m)), 27.0 / 32.0));
        assert!(chance_of_more((0, m), (9, m)) == 1.0 && chance_of_more((3, m), (0, 0)) > 0.999);
        assert!(chance_of_more((500_000, m), (10, m)) < 1e-12);
    }

    #[test]
    fn p_agrees_with_the_paired_t_test() {
        // Differences 5, 8, 2, 7, 3: mean 5, s = 2.549510, t = 4.385290 with 4 degrees of freedom.
        let rule = Rule { scale: Scale::Difference, least: 0.0, ..RATE };
        let (a, b) = (exact(&[15.0, 28.0, 32.0, 47.0, 53.0]), exact(&[10.0, 20.0, 30.0, 40.0, 50.0]));
        let compared = compare(&a, &b, &rule).unwrap();
        assert!((compared.p - 0.011_828).abs() < 1e-5, "{}", compared.p);
        assert_eq!((compared.rounds, compared.difference, compared.a_is_better), (5, 5.0, true));
        let other_way = compare(&b, &a, &rule).unwrap();
        assert_eq!((other_way.p, other_way.difference, other_way.a_is_better), (compared.p, -5.0, false));
    }

    #[test]
    fn one_outlier_does_not_hide_what_all_rounds_show() {
        // Lost frames of a million in twelve rounds. In one round 341 more frames were lost, because another program
        // disturbed the tester.
        let lossy = [13.0, 10.0, 8.0, 12.0, 354.0, 9.0, 11.0, 14.0, 10.0, 7.0, 12.0, 10.0];
        let rule = Rule { scale: Scale::Difference, higher_is_better: false, least: 5.0, resolution: 0.0 };
        let by = |test| compare_by(test, &exact(&lossy), &exact(&[0.0; 12]), &rule).unwrap();
        assert!(by(Test::T).p > 0.1, "{:?}", by(Test::T));
        let either = by(Test::Either);
        // Two-sided, and doubled for two tests: 4 / 2^12.
        assert!((either.p - 4.0 / 4_096.0).abs() < 1e-12 && !either.a_is_better && either.matters, "{either:?}");
        // Even one round with the opposite sign does not hide it, also among three comparisons.
        let mut one_back = lossy;
        one_back[1] = -200.0;
        let either = compare(&exact(&one_back), &exact(&[0.0; 12]), &rule).unwrap();
        assert!(either.p < 0.05 / 3.0 && !either.a_is_better, "{either:?}");
        // A difference within one step of the measurement does not count.
        let coarse = Rule { resolution: 10.0, ..rule };
        assert!(compare(&exact(&lossy), &exact(&[0.0; 12]), &coarse).unwrap().p > 0.02);
        // Nine rounds: the t-test alone.
        let few = compare(&exact(&lossy[..9]), &exact(&[0.0; 9]), &rule);
        assert_eq!(few, compare_by(Test::T, &exact(&lossy[..9]), &exact(&[0.0; 9]), &rule));
    }

    #[test]
    fn signs_are_counted_exactly() {
        assert!(near(sign_test(&[-1.0, 2.0, 3.0, 4.0], 0.0), 5.0 / 16.0));
        // Neither 0 nor a difference within the step counts.
        assert!(near(sign_test(&[0.0, 0.1, -0.1, 5.0, 6.0], 0.1), 1.0 / 4.0));
        assert_eq!((sign_test(&[], 0.0), sign_test(&[-1.0, -2.0], 0.0)), (1.0, 1.0));
    }

    #[test]
    fn rounds_are_paired() {
        // Rounds differ by a factor of ten, the two DUTs by 10 % in each round.
        let b: Vec<f64> = (0..6).map(|round| 10f64.powi(round)).collect();
        let noise = [0.01, -0.01, 0.005, 0.0, -0.005, 0.002];
        let a: Vec<f64> = b.iter().zip(noise).map(|(b, noise)| b * (1.1 + noise)).collect();
        let compared = compare(&exact(&a), &exact(&b), &RATE).unwrap();
        assert!(compared.p < 1e-5 && compared.matters && compared.a_is_better, "{compared:?}");
        assert!((compared.difference - 0.1).abs() < 0.01);
        let mut holes = exact(&b);
        holes[1] = None;
        assert_eq!(compare(&exact(&a), &holes, &RATE).unwrap().rounds, 5);
        assert_eq!(compare(&exact(&a[..1]), &exact(&b[..1]), &RATE), None);
    }

    #[test]
    fn small_differences_do_not_matter_however_certain() {
        let a = exact(&[102.0, 102.1, 101.9, 102.0, 102.05, 101.95]);
        let compared = compare(&a, &exact(&[100.0; 6]), &RATE).unwrap();
        assert!(compared.p < 1e-6 && !compared.matters);
    }

    #[test]
    fn without_variance_the_sign_test_decides_unless_there_is_a_resolution() {
        let compared = compare(&exact(&[110.0; 6]), &exact(&[100.0; 6]), &RATE).unwrap();
        assert_eq!(compared.p, 2.0 / 64.0);
        let coarse = Rule { resolution: 0.01, ..RATE };
        let compared = compare(&exact(&[110.0; 6]), &exact(&[100.0; 6]), &coarse).unwrap();
        assert!(compared.p < 1e-6 && compared.matters);
        assert_eq!(compare(&exact(&[100.0; 6]), &exact(&[100.0; 6]), &RATE).unwrap().p, 1.0);
    }

    #[test]
    fn bounds_speak_against_the_claim() {
        let noise = [0.0, 1.0, -1.0, 0.5, -0.5, 0.2];
        let around = |v: f64| noise.map(|n| v + n);
        let at_least = |v: f64| around(v).map(|v| Some(Figure::at_least(v)));
        // At least 200 is better than 100; whether it is better than 250 is unknown.
        let compared = compare(&at_least(200.0), &exact(&around(100.0)), &RATE).unwrap();
        assert!(compared.p < 1e-6 && compared.a_is_better && compared.matters);
        assert_eq!(compare(&at_least(200.0), &exact(&around(250.0)), &RATE).unwrap().p, 1.0);
        assert_eq!(compare(&at_least(200.0), &at_least(100.0), &RATE).unwrap().p, 1.0);
        // If lower is better, at most 10 beats 20.
        let loss = Rule { higher_is_better: false, ..RATE };
        let at_most = around(10.0).map(|v| Some(Figure::at_most(v)));
        assert!(compare(&at_most, &exact(&around(20.0)), &loss).unwrap().a_is_better);
    }

    #[test]
    fn nothing_can_be_compared_with_something() {
        let compared = compare(&exact(&[0.0; 6]), &exact(&[100.0, 99.0, 101.0, 98.0, 102.0, 100.0]), &RATE).unwrap();
        assert!(compared.p < 1e-6 && !compared.a_is_better && compared.matters);
        assert!((compared.difference + 1.0).abs() < 1e-9);
    }

    #[test]
    fn failures_are_compared_by_fishers_test() {
        // Two of the C(12, 6) tables have all failures on one side.
        assert!((compare_failures((6, 6), (0, 6)) - 2.0 / 924.0).abs() < 1e-9);
        // The lady tasting tea: 3 of 4 right, two-sided 0.4857.
        assert!((compare_failures((3, 4), (1, 4)) - 0.485_714).abs() < 1e-6);
        assert!((compare_failures((0, 6), (0, 6)) - 1.0).abs() < 1e-9);
        // With this many trials, the binomial coefficients overflow a float. The expected values were computed with the
        // logarithm of the gamma function.
        assert!((compare_failures((4, 471), (5, 890)) - 0.506_242).abs() < 1e-6);
        assert!((compare_failures((36, 982), (13, 883)) - 0.003_410).abs() < 1e-6);
        assert!((compare_failures((8, 1_150), (3, 538)) - 1.0).abs() < 1e-6);
        assert!(compare_failures((0, 20_000), (4_000, 20_000)) < 1e-300);
    }

    #[test]
    fn more_rounds_show_smaller_differences() {
        let with = |rounds| RATE.detectable(0.05, rounds, 0.05, 0.9).unwrap();
        assert!(with(6) > with(12) && with(12) > with(100));
        assert_eq!(with(100_000), 0.03, "never below what matters");
        // n = 9: (2.306004 + 1.396815) * 0.05 / sqrt(9).
        assert!((with(9) - 0.061_714f64.exp_m1()).abs() < 1e-5, "{}", with(9));
        // n = 10, two tests: (2.685011 + 1.383029) * 0.05 / sqrt(10).
        assert!((with(10) - 0.064_321f64.exp_m1()).abs() < 1e-5, "{}", with(10));
        assert_eq!(RATE.detectable(0.05, 1, 0.05, 0.9), None);
    }

    #[test]
    fn a_difference_that_cannot_be_shown_has_no_size() {
        // Both are bounds, so the difference is unknown, whatever it looks like.
        let at_least = |v: f64| vec![Some(Figure::at_least(v)); 6];
        let compared = compare(&at_least(200.0), &at_least(100.0), &RATE).unwrap();
        assert_eq!(RATE.detectable(compared.deviation, 6, 0.05, 0.9), None);
        // Six rounds without noise: the sign test gives 2 / 64.
        assert_eq!(RATE.detectable(0.0, 6, 0.05, 0.9), Some(0.03));
        assert_eq!(RATE.detectable(0.0, 6, 0.01, 0.9), None);
    }
}
