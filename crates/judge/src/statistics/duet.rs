//! The ratio of two DUTs that were measured at the same time, and its interval.
//!
//! A disturbance of the machine affects both DUTs alike, so the ratio of a pair is far steadier than either figure (duet
//! benchmarking: Bulej and others, ICPE 2020).

use statrs::distribution::{ContinuousCDF, FisherSnedecor, StudentsT};

/// Confidence of the intervals of [`ratio_of_pairs`] and [`ratio_of_rounds`].
pub const DUET_CONFIDENCE: f64 = 0.99;

/// Minimum number of pairs for which a round gives an interval.
pub const FEWEST_PAIRS: usize = 4;

/// Limit of the correlation of neighbouring pairs. Pairs with a higher correlation contain hardly any information.
const MOST_CORRELATED: f64 = 0.9;

/// Standard deviation that a bring-up adds to the logarithm of the ratio: the placement in memory and caches does not
/// change while the DUTs are up. Chosen from six duets of equal routers: with the pairs alone, the intervals of two
/// duets missed 1.000. Their ratios of processor time scattered by 0.4 %.
const BRING_UP: f64 = 0.004;

/// The means of the rounds differ by more than their pairs explain if the F test gives a probability below this. The
/// limit is high, because overlooking a difference is worse than losing pairs: a simulation of equal routers whose
/// bring-ups change the ratio by 1 % had 9 % false ranks at 0.25, and 2 % at 0.75.
const ROUNDS_DIFFER: f64 = 0.75;

/// The ratio of two DUTs over pairs of figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedRatio {
    /// Geometric mean of the ratios of all pairs.
    pub ratio: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// Number of pairs.
    pub pairs: usize,
    /// Number of independent observations: pairs, or rounds if the rounds differ.
    pub observations: usize,
    /// Standard deviation of the logarithm of one observation's ratio.
    pub deviation: f64,
    /// Probability of a ratio this far from 1, in either direction, if the DUTs are equal.
    pub p: f64,
}

/// [`ratio_of_rounds`] for a single round.
pub fn ratio_of_pairs(pairs: &[(f64, f64)]) -> Option<PairedRatio> {
    ratio_of_rounds(std::slice::from_ref(&pairs))
}

/// The ratio of the first to the second figure, over the pairs of all rounds, with an interval of confidence
/// [`DUET_CONFIDENCE`]: Student's t on logarithms.
///
/// Neighbouring pairs that resemble each other contain less information, so their correlation (lag 1) widens the
/// interval, and so does the spread of bring-ups. If the means of the rounds differ by more than the pairs explain (F
/// test), the observations are the rounds, not the pairs. A round counts only if it has at least [`FEWEST_PAIRS`] pairs
/// of positive figures; `None` if no round counts.
pub fn ratio_of_rounds<R: AsRef<[(f64, f64)]>>(rounds: &[R]) -> Option<PairedRatio> {
    let positive = |(a, b): &&(f64, f64)| *a > 0.0 && *b > 0.0 && a.is_finite() && b.is_finite();
    let logs = |round: &R| round.as_ref().iter().filter(positive).map(|(a, b)| (a / b).ln()).collect();
    let rounds: Vec<Round> = rounds.iter().map(logs).filter_map(Round::of).collect();
    let pairs: usize = rounds.iter().map(|round| round.pairs).sum();
    let (count, weight) = (rounds.len() as f64, pairs as f64);
    if rounds.is_empty() {
        return None;
    }
    let mean = rounds.iter().map(|round| round.mean * round.pairs as f64).sum::<f64>() / weight;
    let freedom = weight - count;
    let within = rounds.iter().map(|round| round.squares).sum::<f64>() / freedom;
    // Correlated pairs count as fewer independent ones.
    let widened = rounds.iter().map(|round| round.widened * round.pairs as f64).sum::<f64>() / weight;
    let spread = |round: &Round| (round.mean - mean).powi(2) * round.pairs as f64;
    let between = rounds.iter().map(spread).sum::<f64>() / (count - 1.0);
    let rounds_differ = rounds.len() > 1 && {
        let f = FisherSnedecor::new(count - 1.0, freedom).ok()?;
        between > 0.0 && f.sf(between / (within * widened).max(f64::MIN_POSITIVE)) < ROUNDS_DIFFER
    };
    let pooled = Estimate {
        error: (within * widened / weight + BRING_UP.powi(2) / count).sqrt(),
        freedom,
        observations: pairs,
        deviation: (within * widened).sqrt(),
    };
    let by_rounds = Estimate {
        error: (between / weight).sqrt(),
        freedom: count - 1.0,
        observations: rounds.len(),
        deviation: (between * count / weight).sqrt(),
    };
    let Estimate { error, freedom, observations, deviation } = if rounds_differ { by_rounds } else { pooled };
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let half = t.inverse_cdf(0.5 + DUET_CONFIDENCE / 2.0) * error;
    let p = 2.0 * t.sf((mean / error).abs());
    Some(PairedRatio {
        ratio: mean.exp(),
        low: (mean - half).exp(),
        high: (mean + half).exp(),
        pairs,
        observations,
        deviation,
        p,
    })
}

/// Summary of the logarithms of the ratios of one round.
struct Round {
    pairs: usize,
    mean: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
    /// Factor by which the correlation of neighbours raises the variance of the mean.
    widened: f64,
}

impl Round {
    fn of(logs: Vec<f64>) -> Option<Round> {
        if logs.len() < FEWEST_PAIRS {
            return None;
        }
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let neighbours: f64 = logs.windows(2).map(|two| (two[0] - mean) * (two[1] - mean)).sum();
        let correlated = if squares > 0.0 { (neighbours / squares).clamp(0.0, MOST_CORRELATED) } else { 0.0 };
        Some(Round { pairs: logs.len(), mean, squares, widened: (1.0 + correlated) / (1.0 - correlated) })
    }
}

/// The mean of all logarithms, and its error.
struct Estimate {
    error: f64,
    freedom: f64,
    observations: usize,
    deviation: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_interval_agrees_with_students_t() {
        // Logarithms 0.01, 0.03, 0.01, 0.03: mean 0.02, s = 0.011547. Neighbours differ, so nothing widens the interval.
        let pairs = [0.01f64, 0.03, 0.01, 0.03].map(|log| (log.exp(), 1.0));
        let found = ratio_of_pairs(&pairs).unwrap();
        // t of 99 % with 3 degrees of freedom is 5.8409.
        let half = 5.8409 * (0.011547f64.powi(2) / 4.0 + BRING_UP.powi(2)).sqrt();
        assert!((found.ratio.ln() - 0.02).abs() < 1e-9 && (found.high.ln() - 0.02 - half).abs() < 1e-5, "{found:?}");
        assert!((found.low.ln() - 0.02 + half).abs() < 1e-5 && found.pairs == 4, "{found:?}");
    }

    #[test]
    fn pairs_that_resemble_their_neighbours_widen_the_interval() {
        let width = |logs: [f64; 8]| {
            let found = ratio_of_pairs(&logs.map(|log| (log.exp(), 1.0))).unwrap();
            (found.high / found.low).ln()
        };
        let by_turns = [0.0, 0.1, 0.0, 0.1, 0.0, 0.1, 0.0, 0.1];
        let in_blocks = [0.0, 0.0, 0.0, 0.0, 0.1, 0.1, 0.1, 0.1];
        assert!(width(in_blocks) > 1.9 * width(by_turns), "{} {}", width(in_blocks), width(by_turns));
    }

    #[test]
    fn too_few_pairs_say_nothing() {
        assert_eq!(ratio_of_pairs(&[(1.0, 1.0); 3]), None);
        assert_eq!(ratio_of_pairs(&[(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.0, 1.0)]), None, "a router that is down");
        let equal = ratio_of_pairs(&[(1.0, 1.0); 4]).unwrap();
        assert!((equal.p - 1.0).abs() < 1e-9 && equal.low < 1.0 && equal.high > 1.0, "{equal:?}");
    }

    #[test]
    fn rounds_that_differ_are_the_observations() {
        let round = |shift: f64| -> Vec<(f64, f64)> {
            [-0.01, 0.01, -0.01, 0.01, -0.01, 0.01].map(|log: f64| ((log + shift).exp(), 1.0)).to_vec()
        };
        let same = ratio_of_rounds(&[round(0.05), round(0.05), round(0.05), round(0.05)]).unwrap();
        assert_eq!((same.pairs, same.observations), (24, 24));
        assert!(same.p < 1e-4, "{same:?}");
        let differ = ratio_of_rounds(&[round(0.0), round(0.1), round(0.02), round(0.08)]).unwrap();
        assert_eq!((differ.pairs, differ.observations), (24, 4));
        // A paired t-test of the four means gives 0.05 with s = 0.0476.
        assert!((differ.ratio.ln() - 0.05).abs() < 1e-9 && (differ.deviation - 0.04761).abs() < 1e-4, "{differ:?}");
        assert!(differ.p > 0.05 && differ.low < 1.0, "{differ:?}");
    }

    /// Even if bring-ups of equal DUTs differ by 1 %, false claims stay rare.
    #[test]
    fn equal_routers_are_seldom_told_apart() {
        let mut state = 1u64;
        // A sum of uniform numbers is close enough to normal.
        let mut normal = || {
            let mut uniform = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 11) as f64 / (1u64 << 53) as f64
            };
            (0..12).map(|_| uniform()).sum::<f64>() - 6.0
        };
        let mut wrong = [0; 2];
        for _ in 0..400 {
            for (case, bring_up) in [0.003, 0.01].into_iter().enumerate() {
                let rounds: Vec<Vec<(f64, f64)>> = (0..6)
                    .map(|_| {
                        let shift = normal() * bring_up;
                        (0..10).map(|_| ((shift + normal() * 0.02).exp(), 1.0)).collect()
                    })
                    .collect();
                wrong[case] += usize::from(ratio_of_rounds(&rounds).unwrap().p < 0.01);
            }
        }
        // 4 of 400 are expected at this probability. The F test must detect a bring-up effect of 1 %.
        assert!(wrong[0] <= 8 && wrong[1] <= 16, "{wrong:?}");
    }

    proptest! {
        #[test]
        fn swapped_duts_give_the_inverse(pairs in prop::collection::vec((1.0f64..1e6, 1.0f64..1e6), 4..40)) {
            let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            let (one, other) = (ratio_of_pairs(&pairs).unwrap(), ratio_of_pairs(&swapped).unwrap());
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
            prop_assert!(near(one.ratio, 1.0 / other.ratio) && near(one.low, 1.0 / other.high));
        }

        #[test]
        fn a_disturbance_of_both_changes_nothing(
            pairs in prop::collection::vec((1.0f64..1e6, 1.0f64..1e6, 0.1f64..1.0), 4..40),
        ) {
            let calm: Vec<(f64, f64)> = pairs.iter().map(|(a, b, _)| (*a, *b)).collect();
            let disturbed: Vec<(f64, f64)> = pairs.iter().map(|(a, b, share)| (a * share, b * share)).collect();
            let (one, other) = (ratio_of_pairs(&calm).unwrap(), ratio_of_pairs(&disturbed).unwrap());
            prop_assert!((one.ratio / other.ratio - 1.0).abs() < 1e-9);
        }
    }
}
