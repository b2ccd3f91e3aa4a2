//! Median, interval, and criteria.

use super::median;
use drophammer_model::figure::{Decision, Figure, RoundFigure};
use statrs::distribution::{Binomial, DiscreteCDF};

/// Confidence of intervals, if there are enough rounds.
pub const CONFIDENCE: f64 = 0.95;

/// The summary of a figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of rounds with a figure.
    pub rounds: usize,
    /// The median; for an even number of rounds, the mean of the two in the middle.
    pub median: Figure,
    /// Confidence interval of the median: the k-th smallest and the k-th largest figure.
    pub interval: Figure,
    /// Confidence of `interval`: at least [`CONFIDENCE`] from six rounds on (with six rounds the interval is minimum to
    /// maximum, 96.9 %); 0 with one round.
    pub confidence: f64,
}

/// Summarizes the figures of all rounds; `None` if there are no figures.
///
/// The interval is valid for any distribution: the number of figures below the true median is binomial with p = 1/2. It
/// is the narrowest symmetrical interval with [`CONFIDENCE`], or minimum to maximum if there are too few rounds.
pub fn summarize(figures: &[Figure]) -> Option<Summary> {
    let n = figures.len();
    let mut low: Vec<f64> = figures.iter().map(|figure| figure.low).collect();
    let mut high: Vec<f64> = figures.iter().map(|figure| figure.high).collect();
    // If one of the two middle figures has an open end, their mean is open too.
    let median = Figure { low: median(&mut low)?, high: median(&mut high)? };
    let k = (1..=n / 2).rev().find(|k| confidence(n, *k) >= CONFIDENCE).unwrap_or(1);
    Some(Summary {
        rounds: n,
        median,
        interval: Figure { low: low[k - 1], high: high[n - k] },
        confidence: confidence(n, k),
    })
}

/// Confidence of the interval from the `k`-th smallest to the `k`-th largest of `n` figures.
fn confidence(n: usize, k: usize) -> f64 {
    let Ok(below) = Binomial::new(0.5, n as u64) else { return 0.0 };
    (1.0 - 2.0 * below.cdf(k as u64 - 1)).max(0.0)
}

/// Judges whether the figure is at least `bound` (or at most `bound` if `at_least` is false). If `bound` is an interval
/// itself, such as a share of another run's figure, the criterion is certainly met only if the figure meets all values
/// of the bound.
fn judge(interval: Figure, at_least: bool, bound: impl Into<Figure>) -> Decision {
    let bound = bound.into();
    let (surely, possibly) = match at_least {
        true => (interval.low >= bound.high, interval.high >= bound.low),
        // An infinite figure misses every bound, even an unknown one.
        false => (interval.high <= bound.low, interval.low <= bound.high && interval.low < f64::INFINITY),
    };
    match (surely, possibly) {
        (true, _) => Decision::Met,
        (false, true) => Decision::Undecided,
        (false, false) => Decision::Missed,
    }
}

/// Judges the [`judged_interval`] of all rounds by the criterion that the figure is at least (or at most) `bound`. The
/// interval of a single round is its figure.
pub fn judge_rounds(rounds: &[RoundFigure], at_least: bool, bound: impl Into<Figure>) -> Decision {
    judged_interval(rounds, at_least).map_or(Decision::Undecided, |interval| judge(interval, at_least, bound))
}

/// The interval of [`summarize`] over all rounds, for a criterion; `None` if there are no rounds.
///
/// A round in which the DUT failed has the worst possible figure. The figure of a round without a measurement is unknown.
pub fn judged_interval(rounds: &[RoundFigure], at_least: bool) -> Option<Figure> {
    let worst = if at_least { f64::NEG_INFINITY } else { f64::INFINITY };
    let figure = |round: &RoundFigure| match round {
        RoundFigure::Measured(figure) => *figure,
        RoundFigure::Failed => Figure::exactly(worst),
        RoundFigure::NotMeasured => Figure::unknown(),
    };
    summarize(&rounds.iter().map(figure).collect::<Vec<_>>()).map(|summary| summary.interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Summary {
        summarize(&values.iter().map(|v| Figure::exactly(*v)).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn intervals_agree_with_tables_of_order_statistics() {
        let six = of(&[3.0, 1.0, 2.0, 6.0, 5.0, 4.0]);
        assert_eq!((six.median, six.interval), (Figure::exactly(3.5), Figure { low: 1.0, high: 6.0 }));
        assert!((six.confidence - 0.96875).abs() < 1e-12);
        // Tables of the sign test: n = 10 gives the 2nd and 9th, 97.85 %; n = 20 the 6th and 15th, 95.86 %.
        let counted = |n: i32| of(&(1..=n).map(f64::from).collect::<Vec<_>>());
        assert_eq!(counted(10).interval, Figure { low: 2.0, high: 9.0 });
        assert!((counted(10).confidence - 0.978_515_625).abs() < 1e-12);
        assert_eq!(counted(20).interval, Figure { low: 6.0, high: 15.0 });
        assert!((counted(20).confidence - 0.958_610_534).abs() < 1e-8);
        // Too few rounds: minimum to maximum, with the confidence of that interval.
        assert_eq!(counted(3).interval, Figure { low: 1.0, high: 3.0 });
        assert!((counted(3).confidence - 0.75).abs() < 1e-12);
        assert_eq!(counted(1).median, Figure::exactly(1.0));
        assert!(counted(1).confidence < 1e-12);
        assert_eq!(summarize(&[]), None);
    }

    #[test]
    fn bounds_stay_bounds() {
        let mut figures = vec![Figure::exactly(5.0); 3];
        figures.extend([Figure::at_least(6.0); 3]);
        let all = summarize(&figures).unwrap();
        assert_eq!(all.median, Figure { low: 5.5, high: f64::INFINITY });
        assert_eq!(all.interval, Figure { low: 5.0, high: f64::INFINITY });
        assert_eq!(judge(all.interval, true, 5.0), Decision::Met);
        assert_eq!(judge(all.interval, true, 7.0), Decision::Undecided);
        assert_eq!(judge(all.interval, false, 4.0), Decision::Missed);
        assert_eq!(judge(all.interval, false, 100.0), Decision::Undecided, "the tester was the limit");
        assert_eq!(judge(Figure::at_most(2.0), false, 2.0), Decision::Met);
    }

    fn rounds(values: &[f64]) -> Vec<RoundFigure> {
        values.iter().map(|v| RoundFigure::Measured(Figure::exactly(*v))).collect()
    }

    #[test]
    fn the_whole_interval_passes_or_fails() {
        let six = rounds(&[98.0, 101.0, 99.0, 100.0, 103.0, 102.0]);
        assert_eq!(judge_rounds(&six, true, 98.0), Decision::Met);
        assert_eq!(judge_rounds(&six, true, 98.5), Decision::Undecided);
        assert_eq!(judge_rounds(&six, true, 103.0), Decision::Undecided);
        assert_eq!(judge_rounds(&six, true, 103.5), Decision::Missed);
        assert_eq!(judge_rounds(&six, false, 103.0), Decision::Met);
        assert_eq!(judge_rounds(&six, false, 102.0), Decision::Undecided);
        assert_eq!(judge_rounds(&six, false, 97.0), Decision::Missed);
        // The interval of ten rounds ranges from the second to the ninth, so a single outlier does not decide.
        let mut ten = rounds(&[100.0; 10]);
        ten[4] = RoundFigure::Measured(Figure::exactly(1.0));
        assert_eq!(judge_rounds(&ten, true, 100.0), Decision::Met);
        ten[7] = RoundFigure::Failed;
        assert_eq!(judge_rounds(&ten, true, 100.0), Decision::Undecided);
    }

    #[test]
    fn one_round_is_a_point() {
        assert_eq!(judge_rounds(&rounds(&[5.0]), true, 5.0), Decision::Met);
        assert_eq!(judge_rounds(&rounds(&[5.0]), true, 5.1), Decision::Missed);
        assert_eq!(judge_rounds(&[RoundFigure::Failed], true, 0.0), Decision::Missed);
        assert_eq!(judge_rounds(&[RoundFigure::Failed], false, 1e9), Decision::Missed);
        assert_eq!(judge_rounds(&[RoundFigure::NotMeasured], true, 0.0), Decision::Undecided);
        assert_eq!(judge_rounds(&[], true, 0.0), Decision::Undecided);
    }

    #[test]
    fn a_bound_passes_only_what_it_proves() {
        let at_least = [RoundFigure::Measured(Figure::at_least(200.0))];
        assert_eq!(judge_rounds(&at_least, true, 100.0), Decision::Met);
        assert_eq!(judge_rounds(&at_least, true, 300.0), Decision::Undecided);
        assert_eq!(judge_rounds(&at_least, false, 300.0), Decision::Undecided);
        assert_eq!(judge_rounds(&at_least, false, 100.0), Decision::Missed);
        let at_most = [RoundFigure::Measured(Figure::at_most(200.0))];
        assert_eq!(judge_rounds(&at_most, false, 200.0), Decision::Met);
        assert_eq!(judge_rounds(&at_most, false, 100.0), Decision::Undecided);
        assert_eq!(judge_rounds(&at_most, true, 100.0), Decision::Undecided);
        assert_eq!(judge_rounds(&at_most, true, 300.0), Decision::Missed);
        // If the tester limits one round of six, only the upper end is unknown.
        let mut six = rounds(&[100.0; 6]);
        six[2] = at_least[0];
        assert_eq!(judge_rounds(&six, true, 100.0), Decision::Met);
        assert_eq!(judge_rounds(&six, false, 1000.0), Decision::Undecided);
    }

    #[test]
    fn a_bound_that_is_an_interval_is_met_as_a_whole() {
        let bound = Figure { low: 95.0, high: 100.0 };
        let at = |low, high| Figure { low, high };
        assert_eq!(judge(at(100.0, 104.0), true, bound), Decision::Met);
        assert_eq!(judge(at(99.0, 104.0), true, bound), Decision::Undecided);
        assert_eq!(judge(at(90.0, 95.0), true, bound), Decision::Undecided);
        assert_eq!(judge(at(90.0, 94.0), true, bound), Decision::Missed);
        assert_eq!(judge(at(90.0, 95.0), false, bound), Decision::Met);
        assert_eq!(judge(at(90.0, 96.0), false, bound), Decision::Undecided);
        assert_eq!(judge(at(101.0, 104.0), false, bound), Decision::Missed);
        // The other run may have been better by an unknown amount.
        assert_eq!(judge(at(200.0, 200.0), true, Figure::at_least(95.0)), Decision::Undecided);
        assert_eq!(judge(at(90.0, 90.0), true, Figure::at_least(95.0)), Decision::Missed);
        assert_eq!(judge(at(90.0, 90.0), false, Figure::at_least(95.0)), Decision::Met);
        assert_eq!(judge_rounds(&[RoundFigure::Failed], false, Figure::at_least(95.0)), Decision::Missed);
        assert_eq!(judge_rounds(&[RoundFigure::NotMeasured], true, bound), Decision::Undecided);
    }
}
