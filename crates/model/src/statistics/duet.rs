//! Two DUTs that were measured in the same instants: their ratio and its interval.
//!
//! What disturbs the machine disturbs both DUTs of a pair alike, so the ratio of a pair is far steadier than either
//! figure (duet benchmarking: Bulej and others, ICPE 2020).

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Confidence of the intervals of [`ratio_of_pairs`].
pub const DUET_CONFIDENCE: f64 = 0.99;

/// Fewest pairs that give an interval.
pub const FEWEST_PAIRS: usize = 4;

/// Correlation of neighbouring pairs that is assumed at most: beyond it the pairs hold hardly any information.
const MOST_CORRELATED: f64 = 0.9;

/// The ratio of two DUTs over pairs of figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairedRatio {
    /// Geometric mean of the ratios of all pairs.
    pub ratio: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// Number of pairs.
    pub pairs: usize,
    /// Standard deviation of the logarithm of one pair's ratio.
    pub deviation: f64,
    /// Probability of a ratio this far from 1, in either direction, if the DUTs are equal.
    pub p: f64,
}

/// The ratio of the first to the second figure of each pair, with the interval of [`DUET_CONFIDENCE`]: Student's t on
/// logarithms. Neighbouring pairs that resemble each other hold less information, so the interval is widened by their
/// correlation (lag 1). `None` with fewer than [`FEWEST_PAIRS`] pairs of positive figures.
pub fn ratio_of_pairs(pairs: &[(f64, f64)]) -> Option<PairedRatio> {
    let positive = |(a, b): &&(f64, f64)| *a > 0.0 && *b > 0.0 && a.is_finite() && b.is_finite();
    let logs: Vec<f64> = pairs.iter().filter(positive).map(|(a, b)| (a / b).ln()).collect();
    let n = logs.len();
    if n < FEWEST_PAIRS {
        return None;
    }
    let mean = logs.iter().sum::<f64>() / n as f64;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let neighbours: f64 = logs.windows(2).map(|two| (two[0] - mean) * (two[1] - mean)).sum();
    let correlated = if squares > 0.0 { (neighbours / squares).clamp(0.0, MOST_CORRELATED) } else { 0.0 };
    let deviation = (squares / (n - 1) as f64).sqrt();
    let error = deviation / (n as f64).sqrt() * ((1.0 + correlated) / (1.0 - correlated)).sqrt();
    let t = StudentsT::new(0.0, 1.0, (n - 1) as f64).ok()?;
    let half = t.inverse_cdf(0.5 + DUET_CONFIDENCE / 2.0) * error;
    let p = match (error > 0.0, mean == 0.0) {
        (true, _) => 2.0 * t.sf((mean / error).abs()),
        // All pairs are equal: as likely as n heads in n tosses.
        (false, false) => (2.0 * 0.5f64.powi(n as i32)).min(1.0),
        (false, true) => 1.0,
    };
    Some(PairedRatio {
        ratio: mean.exp(),
        low: (mean - half).exp(),
        high: (mean + half).exp(),
        pairs: n,
        deviation,
        p,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_interval_is_that_of_students_t() {
        // Logarithms 0.01, 0.03, 0.01, 0.03: mean 0.02, s = 0.011547, and neighbours differ, so nothing is widened.
        let pairs = [0.01f64, 0.03, 0.01, 0.03].map(|log| (log.exp(), 1.0));
        let found = ratio_of_pairs(&pairs).unwrap();
        // t of 99 % with 3 degrees of freedom is 5.8409.
        let half = 5.8409 * 0.011547 / 2.0;
        assert!((found.ratio.ln() - 0.02).abs() < 1e-9 && (found.high.ln() - 0.02 - half).abs() < 1e-5, "{found:?}");
        assert!((found.low.ln() - 0.02 + half).abs() < 1e-5 && found.pairs == 4, "{found:?}");
    }

    #[test]
    fn pairs_that_resemble_their_neighbours_widen_it() {
        let width = |logs: [f64; 8]| {
            let found = ratio_of_pairs(&logs.map(|log| (log.exp(), 1.0))).unwrap();
            (found.high / found.low).ln()
        };
        let by_turns = [0.0, 0.02, 0.0, 0.02, 0.0, 0.02, 0.0, 0.02];
        let in_blocks = [0.0, 0.0, 0.0, 0.0, 0.02, 0.02, 0.02, 0.02];
        assert!(width(in_blocks) > 1.9 * width(by_turns), "{} {}", width(in_blocks), width(by_turns));
    }

    #[test]
    fn too_few_pairs_say_nothing() {
        assert_eq!(ratio_of_pairs(&[(1.0, 1.0); 3]), None);
        assert_eq!(ratio_of_pairs(&[(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.0, 1.0)]), None, "a router that is down");
        assert_eq!(ratio_of_pairs(&[(1.0, 1.0); 4]).unwrap().p, 1.0);
    }

    proptest! {
        #[test]
        fn places_swapped_give_the_inverse(pairs in prop::collection::vec((1.0f64..1e6, 1.0f64..1e6), 4..40)) {
            let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            let (one, other) = (ratio_of_pairs(&pairs).unwrap(), ratio_of_pairs(&swapped).unwrap());
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
            prop_assert!(near(one.ratio, 1.0 / other.ratio) && near(one.low, 1.0 / other.high));
        }

        #[test]
        fn a_disturbance_of_both_changes_nothing(pairs in prop::collection::vec((1.0f64..1e6, 1.0f64..1e6, 0.1f64..1.0), 4..40)) {
            let calm: Vec<(f64, f64)> = pairs.iter().map(|(a, b, _)| (*a, *b)).collect();
            let disturbed: Vec<(f64, f64)> = pairs.iter().map(|(a, b, share)| (a * share, b * share)).collect();
            let (one, other) = (ratio_of_pairs(&calm).unwrap(), ratio_of_pairs(&disturbed).unwrap());
            prop_assert!((one.ratio / other.ratio - 1.0).abs() < 1e-9);
        }
    }
}
