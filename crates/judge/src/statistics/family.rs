//! Judges all comparisons of a run together.

use super::Comparison;

/// Maximum probability that any rank of a run is false.
pub const ERROR: f64 = 0.05;

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A is better than B.
    ABetter,
    /// B is better than A.
    BBetter,
    /// Neither is proven to be better.
    Undecided,
}

/// The comparisons of all pairs of DUTs in all ranked figures. Each additional comparison makes a chance finding more
/// likely, so the method of Holm (1979) judges them together: the smallest of m probabilities must be at most
/// [`ERROR`] / m, the next one at most [`ERROR`] / (m - 1), and so on until the first one that is not.
#[derive(Clone, Debug)]
pub struct Family {
    /// True for each comparison that is proven.
    proven: Vec<bool>,
}

impl Family {
    /// Judges the comparisons with these probabilities.
    pub fn new(p: &[f64]) -> Family {
        let mut order: Vec<usize> = (0..p.len()).collect();
        order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
        let mut proven = vec![false; p.len()];
        for (place, index) in order.iter().enumerate() {
            if p[*index] > ERROR / (p.len() - place) as f64 || p[*index].is_nan() {
                break;
            }
            proven[*index] = true;
        }
        Family { proven }
    }

    /// Verdict on comparison `index`.
    pub fn verdict(&self, index: usize, comparison: &Comparison) -> Verdict {
        match (self.proven[index] && comparison.matters, comparison.a_is_better) {
            (false, _) => Verdict::Undecided,
            (true, true) => Verdict::ABetter,
            (true, false) => Verdict::BBetter,
        }
    }

    /// True if comparison `index` proves a difference of any size.
    pub fn is_proven(&self, index: usize) -> bool {
        self.proven.get(index) == Some(&true)
    }

    /// A probability small enough to prove one of `m` comparisons, whatever the others are.
    pub fn strictest(m: usize) -> f64 {
        ERROR / m.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holms_own_example() {
        // Thresholds 0.0125, 0.0167, 0.025, 0.05: the third fails, so the fourth fails with it.
        let family = Family::new(&[0.04, 0.01, 0.03, 0.005]);
        assert_eq!(family.proven, [false, true, false, true]);
        assert_eq!(Family::new(&[]).proven, Vec::<bool>::new());
        assert_eq!(Family::new(&[0.05]).proven, [true]);
        assert_eq!(Family::new(&[f64::NAN, 0.001]).proven, [false, true]);
    }
}
