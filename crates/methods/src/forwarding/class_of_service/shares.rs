//! Division of a capacity by weights or by strict priority.

use super::rows::FULL;
use drophammer_model::classes::{Scheduling, ServiceClass};

/// How the classes share a capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharing {
    scheduling: Scheduling,
    weights: Vec<f64>,
}

impl Sharing {
    /// The sharing of these classes.
    pub fn of(classes: &[ServiceClass], scheduling: Scheduling) -> Sharing {
        Sharing { scheduling, weights: classes.iter().map(|class| f64::from(class.weight)).collect() }
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.weights.len()
    }

    /// Shares of `capacity` for classes that want `wanted` of it: no class gets more than it wants, and nothing is left
    /// over while a class wants more.
    pub fn shares(&self, capacity: f64, wanted: &[f64]) -> Vec<f64> {
        match self.scheduling {
            Scheduling::Weights => shares(capacity, wanted, &self.weights),
            Scheduling::Priority => {
                let mut given = vec![0.0; wanted.len()];
                let mut left = capacity.max(0.0);
                for class in self.order() {
                    given[class] = wanted[class].min(left);
                    left -= given[class];
                }
                given
            }
        }
    }

    /// The part of `capacity` that a class always gets. With weights, it does not depend on what the others want; with
    /// priority, the classes before it want `wanted`. If a line is completely full, even a class with priority may lose
    /// a frame, hence the margin.
    pub fn guaranteed(&self, class: usize, capacity: f64, wanted: &[f64]) -> f64 {
        match self.scheduling {
            Scheduling::Weights => capacity * self.weights[class] / self.weights.iter().sum::<f64>(),
            Scheduling::Priority => {
                let before: f64 = self.order().into_iter().take_while(|other| *other != class).map(|i| wanted[i]).sum();
                (capacity * FULL - before).max(0.0)
            }
        }
    }

    /// All classes, the highest weight first; classes of the same weight keep their order.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.weights.len()).collect();
        order.sort_by(|a, b| self.weights[*b].total_cmp(&self.weights[*a]));
        order
    }
}

/// Shares of `capacity`, by weight, for classes that want `wanted` of it: no class gets more than it wants, and the
/// others share what it leaves.
pub fn shares(capacity: f64, wanted: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut given = vec![0.0; wanted.len()];
    let mut left = capacity.max(0.0);
    let mut open: Vec<usize> = (0..wanted.len()).collect();
    // Each round satisfies the classes that want less than their part; the last round satisfies none.
    while !open.is_empty() {
        let sum: f64 = open.iter().map(|i| weights[*i]).sum();
        let part = |i: usize| left * weights[i] / sum;
        let content: Vec<usize> = open.iter().copied().filter(|i| wanted[*i] <= part(*i)).collect();
        if content.is_empty() {
            open.iter().for_each(|i| given[*i] = part(*i));
            break;
        }
        let taken: f64 = content.iter().map(|i| wanted[*i]).sum();
        content.iter().for_each(|i| given[*i] = wanted[*i]);
        left = (left - taken).max(0.0);
        open.retain(|i| !content.contains(i));
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_more_than_it_wants_and_nothing_is_left_while_somebody_wants_more() {
        let weights = [70.0, 20.0, 5.0];
        let near = |found: Vec<f64>, expected: [f64; 3]| {
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}, not {expected:?}");
        };
        // 150 %: gold is satisfied with less than its 73.7; the others share the rest four to one.
        near(shares(100.0, &[50.0; 3], &weights), [50.0, 40.0, 10.0]);
        // 300 %: none is satisfied.
        near(shares(95.0, &[95.0; 3], &weights), [70.0, 20.0, 5.0]);
        // 120 %: gold and silver are satisfied.
        near(shares(100.0, &[40.0; 3], &weights), [40.0, 40.0, 20.0]);
        // No overload: all are satisfied.
        near(shares(100.0, &[30.0; 3], &weights), [30.0; 3]);
        near(shares(0.0, &[1.0; 3], &weights), [0.0; 3]);
        near(shares(100.0, &[50.0, 0.0, 60.0], &weights), [50.0, 0.0, 50.0]);
    }

    #[test]
    fn with_priority_a_class_has_what_those_before_it_leave() {
        let class = |weight| ServiceClass { name: String::new(), dscp: 0, weight };
        let by = |scheduling, weights: [u32; 3]| Sharing::of(&weights.map(class), scheduling);
        let strict = by(Scheduling::Priority, [20, 5, 70]);
        assert_eq!(strict.shares(100.0, &[50.0; 3]), [50.0, 0.0, 50.0]);
        assert_eq!(strict.shares(100.0, &[40.0; 3]), [40.0, 20.0, 40.0]);
        assert_eq!(strict.shares(100.0, &[100.0; 3]), [0.0, 0.0, 100.0]);
        assert_eq!(strict.shares(100.0, &[30.0; 3]), [30.0; 3]);
        assert_eq!(strict.shares(-1.0, &[30.0; 3]), [0.0; 3]);
        // Among classes of the same weight, the first one has priority.
        assert_eq!(by(Scheduling::Priority, [1, 1, 1]).shares(100.0, &[60.0; 3]), [60.0, 40.0, 0.0]);
        assert_eq!([0, 1, 2].map(|class| strict.guaranteed(class, 100.0, &[40.0; 3])), [58.0, 18.0, 98.0]);
        assert_eq!(strict.guaranteed(0, 100.0, &[50.0, 50.0, 99.0]), 0.0);
        let weights = by(Scheduling::Weights, [70, 20, 10]);
        assert_eq!((weights.classes(), weights.guaranteed(1, 50.0, &[0.0; 3])), (3, 10.0));
        assert_eq!(weights.shares(100.0, &[100.0; 3]), shares(100.0, &[100.0; 3], &[70.0, 20.0, 10.0]));
    }

    proptest::proptest! {
        #[test]
        fn shares_add_up(wanted in proptest::collection::vec(0.0f64..100.0, 2..8), capacity in 0.0f64..500.0, weight in 1u32..100) {
            let weights: Vec<f64> = (0..wanted.len()).map(|i| f64::from(weight * (i as u32 + 1))).collect();
            let given = shares(capacity, &wanted, &weights);
            let sum: f64 = given.iter().sum();
            proptest::prop_assert!((sum - capacity.min(wanted.iter().sum())).abs() < 1e-6);
            proptest::prop_assert!(given.iter().zip(&wanted).all(|(g, w)| *g <= w + 1e-9));
        }
    }
}
