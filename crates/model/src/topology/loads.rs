//! Load of a system's links when every port sends to every other port, and which links to take down to overload the
//! others.

use super::{CoreLinkName, CoreWay, System};
use std::collections::{BTreeMap, BTreeSet};

/// Most sets of links that [`System::choose_down`] compares.
const MOST_SETS: usize = 20_000;
/// Loads that differ by less are equal: they are sums of a few fractions.
const SAME: f64 = 1e-9;

/// Load of each way between routers, relative to the load that one port sends to all others together.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreLoads(pub BTreeMap<CoreWay, f64>);

impl CoreLoads {
    /// The largest load; 0 if there is none.
    pub fn most(&self) -> f64 {
        self.0.values().copied().fold(0.0, f64::max)
    }

    /// The smallest load.
    pub fn least(&self) -> f64 {
        self.0.values().copied().fold(f64::INFINITY, f64::min)
    }
}

impl System {
    /// The load of both ways over each link outside `down`, while the links in `down` are down and every port sends the
    /// same load to each other port. Diverted traffic follows [`System::route`]. `None` if some port does not reach
    /// another.
    pub fn full_mesh_loads(&self, down: &BTreeSet<CoreLinkName>) -> Option<CoreLoads> {
        let ports: usize = self.routers.iter().map(|router| router.ports.len()).sum();
        let mut loads: BTreeMap<CoreWay, f64> = self.ways_up(down).into_iter().map(|way| (way, 0.0)).collect();
        let edges = || self.routers.iter().filter(|router| !router.ports.is_empty());
        for from in edges() {
            for to in edges().filter(|to| to.ports != from.ports) {
                let share = (from.ports.len() * to.ports.len()) as f64 / (ports - 1) as f64;
                for way in self.ways(from.ports.start, to.ports.start, down)? {
                    *loads.entry(way).or_default() += share;
                }
            }
        }
        Some(CoreLoads(loads))
    }

    /// Selects `count` links whose loss overloads the others as evenly as possible, for traffic from every port to
    /// every other port, and still lets every port reach every other port. The best set has the smallest load on the
    /// most loaded way; if there are several, the largest load on the least loaded way; then the first in the order of
    /// the links.
    ///
    /// # Errors
    /// If each set cuts off some port, or there are too many sets to compare.
    pub fn choose_down(&self, count: usize) -> Result<BTreeSet<CoreLinkName>, String> {
        let names: Vec<CoreLinkName> = self.links.iter().map(|link| link.name).collect();
        if count > names.len() {
            return Err(format!("there are {} links between routers, not {count}", names.len()));
        }
        let sets = (0..count).try_fold(1usize, |sets, i| Some(sets.checked_mul(names.len() - i)? / (i + 1)));
        if sets.is_none_or(|sets| sets > MOST_SETS) {
            return Err(format!("there are too many sets of {count} links; name the links to take down"));
        }
        let mut best: Option<(f64, f64, BTreeSet<CoreLinkName>)> = None;
        for down in subsets(&names, count) {
            let Some(loads) = self.full_mesh_loads(&down) else { continue };
            let (most, least) = (loads.most(), loads.least());
            let better = best.as_ref().is_none_or(|(best_most, best_least, _)| {
                most < best_most - SAME || (most <= best_most + SAME && least > best_least + SAME)
            });
            if better {
                best = Some((most, least, down));
            }
        }
        best.map(|(_, _, down)| down)
            .ok_or_else(|| format!("without {count} of its {} links, some port does not reach another", names.len()))
    }
}

/// All sets of `count` of these names, in their order.
fn subsets(names: &[CoreLinkName], count: usize) -> Vec<BTreeSet<CoreLinkName>> {
    let Some(rest) = count.checked_sub(1) else { return vec![BTreeSet::new()] };
    let with_first = |first: usize| {
        subsets(&names[first + 1..], rest).into_iter().map(move |mut set| {
            set.insert(names[first]);
            set
        })
    };
    (0..names.len()).flat_map(with_first).collect()
}
