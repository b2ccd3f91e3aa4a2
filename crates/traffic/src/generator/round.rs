//! Turns weights of flows into a round: which flow sends at which place.

/// Longest round. Weights are rounded to multiples of its inverse.
const MAX_ROUND: usize = 10_000;

/// A round: the flow at each place. Flows are spread as evenly as their weights allow.
pub(super) fn weighted_round(weights: &[f64]) -> Vec<u32> {
    // The same result as below, but fast: there may be very many flows.
    if weights.windows(2).all(|pair| pair[0] == pair[1]) {
        return (0..weights.len() as u32).collect();
    }
    let smallest = weights.iter().copied().fold(f64::INFINITY, f64::min);
    let sum: f64 = weights.iter().sum();
    let shares: Vec<f64> = weights.iter().map(|w| w / sum).collect();
    // The shortest round that gives each flow a whole number of places, up to a limit.
    let exact = (1..=1000).find(|m| {
        weights.iter().all(|w| {
            let places = w / smallest * f64::from(*m);
            (places - places.round()).abs() < 1e-9 * places.max(1.0)
        })
    });
    let places = exact.map_or(MAX_ROUND, |m| (sum / smallest * f64::from(m)).round() as usize);
    let places = places.min(MAX_ROUND.max(weights.len()));
    let mut used = vec![0.0f64; weights.len()];
    (1..=places)
        .map(|place| {
            let behind = |i: &usize| shares[*i] * place as f64 - used[*i];
            let next = (0..weights.len()).max_by(|a, b| behind(a).total_cmp(&behind(b)).then(b.cmp(a))).unwrap_or(0);
            used[next] += 1.0;
            next as u32
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_become_shares() {
        let round = weighted_round(&[70.0, 20.0, 5.0]);
        let count = |i| round.iter().filter(|f| **f == i).count();
        assert_eq!((round.len(), count(0), count(1), count(2)), (19, 14, 4, 1));
        assert_eq!(weighted_round(&[1.0, 1.0]), vec![0, 1]);
        assert_eq!(weighted_round(&[0.3]), vec![0]);
        // Too many for a search of the next one at each place.
        assert_eq!(weighted_round(&vec![0.5; 500_000]).last(), Some(&499_999));
        let odd = weighted_round(&[std::f64::consts::PI, 1.0]);
        let share = odd.iter().filter(|f| **f == 0).count() as f64 / odd.len() as f64;
        assert!((share - std::f64::consts::PI / (std::f64::consts::PI + 1.0)).abs() < 1e-3);
    }
}
