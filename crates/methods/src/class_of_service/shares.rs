//! What weights give to those who share something.

/// Parts of `capacity` for those that want `wanted` of it, by weight: nobody has more than it wants, and what one leaves the others share.
pub fn shares(capacity: f64, wanted: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut given = vec![0.0; wanted.len()];
    let mut left = capacity.max(0.0);
    let mut open: Vec<usize> = (0..wanted.len()).collect();
    // In each round all who want less than their part are content; in the last one nobody is.
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
        // 150 %: gold is content with less than its 73.7, the others share the rest four to one.
        near(shares(100.0, &[50.0; 3], &weights), [50.0, 40.0, 10.0]);
        // 300 %: nobody is content.
        near(shares(95.0, &[95.0; 3], &weights), [70.0, 20.0, 5.0]);
        // 120 %: gold and silver are.
        near(shares(100.0, &[40.0; 3], &weights), [40.0, 40.0, 20.0]);
        // No overload: all are.
        near(shares(100.0, &[30.0; 3], &weights), [30.0; 3]);
        near(shares(0.0, &[1.0; 3], &weights), [0.0; 3]);
        near(shares(100.0, &[50.0, 0.0, 60.0], &weights), [50.0, 0.0, 50.0]);
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
