//! Fluid model of traffic that crosses several links, each shared by weight or by priority.

use crate::class_of_service::Sharing;
use drophammer_model::topology::CoreWay;
use std::collections::BTreeMap;

/// Traffic from one router to another.
pub(super) struct Demand {
    /// Links that it crosses, in order.
    pub ways: Vec<CoreWay>,
    /// Frames per second of each class.
    pub class_pps: f64,
}

/// Maximum number of rounds of [`delivered`].
const ROUNDS: usize = 200;

/// Frames per second of each class that arrive, if each link carries `pps` frames per second, shares them by `sharing`,
/// and drops the same share of all flows of a class.
///
/// Frames that one link drops do not reach the next one. So the function recomputes the share that passes each link
/// from what arrives there, until it no longer changes. This may not converge if traffic circles around the routers:
/// then the result of round [`ROUNDS`] counts.
pub(super) fn delivered(demands: &[Demand], pps: f64, sharing: &Sharing) -> Vec<f64> {
    let classes = sharing.classes();
    // The share of each class that passes each link.
    let mut passed: BTreeMap<CoreWay, Vec<f64>> = BTreeMap::new();
    for demand in demands {
        passed.extend(demand.ways.iter().map(|way| (*way, vec![1.0; classes])));
    }
    for _ in 0..ROUNDS {
        let mut coming: BTreeMap<CoreWay, Vec<f64>> = passed.keys().map(|way| (*way, vec![0.0; classes])).collect();
        for demand in demands {
            for class in 0..classes {
                let mut left = demand.class_pps;
                for way in &demand.ways {
                    if let Some(sum) = coming.get_mut(way) {
                        sum[class] += left;
                    }
                    left *= passed.get(way).map_or(1.0, |parts| parts[class]);
                }
            }
        }
        let next: BTreeMap<CoreWay, Vec<f64>> = coming
            .iter()
            .map(|(way, wanted)| {
                let given = sharing.shares(pps, wanted);
                let part = |(given, wanted): (&f64, &f64)| if *wanted > 0.0 { given / wanted } else { 1.0 };
                (*way, given.iter().zip(wanted).map(part).collect())
            })
            .collect();
        let same = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        let settled = next.values().zip(passed.values()).all(same);
        passed = next;
        if settled {
            break;
        }
    }
    let through = |demand: &Demand, class: usize| {
        let parts = demand.ways.iter().map(|way| passed.get(way).map_or(1.0, |parts| parts[class]));
        demand.class_pps * parts.product::<f64>()
    };
    (0..classes).map(|class| demands.iter().map(|demand| through(demand, class)).sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::classes::{Scheduling, ServiceClass};

    fn demand(hops: &[usize], class_pps: f64) -> Demand {
        let ways = hops.windows(2).map(|hop| CoreWay { from: hop[0], to: hop[1] }).collect();
        Demand { ways, class_pps }
    }

    fn near(found: &[f64], expected: [f64; 3]) {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}, not {expected:?}");
    }

    fn by(scheduling: Scheduling) -> Sharing {
        let class = |weight| ServiceClass { name: String::new(), dscp: 0, weight };
        Sharing::of(&[70, 20, 5].map(class), scheduling)
    }

    #[test]
    fn a_link_is_shared_by_weight() {
        let weights = by(Scheduling::Weights);
        near(&delivered(&[demand(&[1, 2], 50.0)], 100.0, &weights), [50.0, 40.0, 10.0]);
        near(&delivered(&[demand(&[1, 2], 30.0)], 100.0, &weights), [30.0; 3]);
        near(&delivered(&[], 100.0, &weights), [0.0; 3]);
    }

    #[test]
    fn with_priority_the_last_class_loses_first() {
        let priority = by(Scheduling::Priority);
        near(&delivered(&[demand(&[1, 2], 40.0)], 100.0, &priority), [40.0, 40.0, 20.0]);
        // Gold and silver fill both links and leave nothing for bronze on either.
        let demands = [demand(&[1, 2], 25.0), demand(&[1, 2, 3], 25.0), demand(&[2, 3], 25.0)];
        near(&delivered(&demands, 100.0, &priority), [75.0, 75.0, 0.0]);
    }

    #[test]
    fn what_one_link_loses_does_not_come_to_the_next() {
        // Half of the first link's traffic continues to the second, which already has the same amount of traffic.
        let demands = [demand(&[1, 2], 25.0), demand(&[1, 2, 3], 25.0), demand(&[2, 3], 25.0)];
        // First link: 50, 40, 10 of 50 each. Second: 25 + 25 gold, 25 + 20 silver, 25 + 5 bronze; silver and bronze share 50 four to one.
        let weights = by(Scheduling::Weights);
        near(&delivered(&demands, 100.0, &weights), [75.0, 20.0 + 40.0, 5.0 + 10.0]);
        // The order of the demands does not matter.
        let turned = [demand(&[2, 3], 25.0), demand(&[1, 2, 3], 25.0), demand(&[1, 2], 25.0)];
        near(&delivered(&turned, 100.0, &weights), [75.0, 60.0, 15.0]);
    }
}
