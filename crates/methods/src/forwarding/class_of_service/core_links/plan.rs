//! Which links go down, and how much load the remaining ones then have to carry.

use super::fluid::Demand;
use crate::class_of_service::BOTTLENECK;
use crate::kit::prelude::*;
use drophammer_model::Medium;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::topology::{CoreLinkName, CoreLinksDown, CoreLoads, System};
use std::collections::BTreeSet;

/// The links of a test.
pub(in crate::forwarding::class_of_service) struct CorePlan {
    pub(super) system: System,
    pub(super) down: BTreeSet<CoreLinkName>,
    /// Loads of the remaining paths, in units of the load that one port sends.
    pub(super) loads: CoreLoads,
    /// Rate of each remaining link, in each direction.
    pub(super) rate: Bandwidth,
}

impl CorePlan {
    /// The plan for the DUT of this bed.
    ///
    /// # Errors
    /// [`TestError::NotApplicable`] if the DUT is a single router, if its links have no rate, or if some port could not
    /// reach another.
    pub fn new(bed: &dyn Testbed, params: &Params, wanted: &CoreLinksDown) -> Result<CorePlan, TestError> {
        let refused = |why: String| TestError::NotApplicable(why);
        let system = bed.facts().system.clone();
        let system = system.ok_or_else(|| {
            refused(
                "`core_links_down` needs a DUT of several routers; give it a `topology`, or remove the parameter"
                    .into(),
            )
        })?;
        let down = match wanted {
            CoreLinksDown::Count(count) => system.choose_down(*count).map_err(refused)?,
            CoreLinksDown::Named(names) => names.iter().copied().collect(),
        };
        if let Some(name) = down.iter().find(|name| system.links.iter().all(|link| link.name != **name)) {
            let all: Vec<String> = system.links.iter().map(|link| link.name.to_string()).collect();
            return Err(refused(format!("the DUT has no link {name} between routers; it has {}", all.join(", "))));
        }
        let loads = system.full_mesh_loads(&down).ok_or_else(|| {
            refused(format!("without {} some port does not reach another; take other links down", text(&down)))
        })?;
        if loads.most() <= 0.0 {
            return Err(refused("no traffic crosses a link between routers".into()));
        }
        let rate = match (BOTTLENECK.get(params), system.topology.core_speed) {
            (Some(rate), Some(speed)) if rate > speed => {
                let why = format!(
                    "`bottleneck` of {rate} is more than the speed of a link between routers ({speed}); give a lower one"
                );
                return Err(refused(why));
            }
            (Some(rate), _) | (None, Some(rate)) => rate,
            (None, None) => {
                let why =
                    "the links between the routers have no speed; give `bottleneck`, or `core_speed` in `topology`";
                return Err(refused(why.into()));
            }
        };
        Ok(CorePlan { system, down, loads, rate })
    }

    /// Frames of this pattern per second that a link carries, with the overhead of an Ethernet line.
    pub(super) fn link_pps(&self, pattern: &Pattern) -> f64 {
        self.rate.0 as f64 / pattern.l1_bps(FrameRate(1.0), Medium::Ethernet)
    }

    /// Returns true if these ports are on different routers.
    pub(super) fn crosses(&self, from: usize, to: usize) -> bool {
        let router = |port| self.system.edge(port).map(|(router, _)| router);
        router(from) != router(to)
    }

    /// Traffic from each router to each other one if every port sends `class_pps` frames per second of each class,
    /// evenly to all other ports.
    pub(super) fn demands(&self, class_pps: f64) -> Vec<Demand> {
        let routers = || self.system.routers.iter().filter(|router| !router.ports.is_empty());
        let ports: usize = routers().map(|router| router.ports.len()).sum();
        let between = |(from, to): (&std::ops::Range<usize>, &std::ops::Range<usize>)| {
            let pps = class_pps * (from.len() * to.len()) as f64 / (ports - 1) as f64;
            self.system.ways(from.start, to.start, &self.down).map(|ways| Demand { ways, class_pps: pps })
        };
        let pairs = routers().flat_map(|from| routers().map(move |to| (&from.ports, &to.ports)));
        pairs.filter(|(from, to)| from != to).filter_map(between).collect()
    }

    /// Number of links in the longest path.
    pub(super) fn longest(&self) -> usize {
        self.demands(1.0).iter().map(|demand| demand.ways.len()).max().unwrap_or(1)
    }

    /// Describes the plan in words.
    pub(super) fn text(&self) -> String {
        let down = match self.down.is_empty() {
            true => "All links between routers are up".to_owned(),
            false => format!("Links between routers that are down: {}", text(&self.down)),
        };
        let share = |load: f64| load / self.loads.most() * 100.0;
        let least = share(self.loads.least());
        format!(
            "{down}. Every port sends to every other one, equally in each class. Loads refer to the most loaded path between routers, as given by \
             the \
             routes; the least loaded path has {least:.0} % of that load."
        )
    }
}

fn text(names: &BTreeSet<CoreLinkName>) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
