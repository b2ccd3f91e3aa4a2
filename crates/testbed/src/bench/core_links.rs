//! Links between the routers of a DUT: a test takes them down, and they come up again after it.

use super::{Bench, Failure, failed};
use crate::learning::between_all;
use drophammer_lab::no_core_link;
use drophammer_methods::TestError;
use drophammer_model::record::{CoreLinkRecord, Record};
use drophammer_model::topology::CoreLinkName;
use drophammer_model::trial::{Family, GroupCounts};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two routers, at most one in this many frames may be lost.
const LOSSY_BELOW: u64 = 100;

/// Time limit for the routers of a system to find other paths. A daemon that is still removing the routes of the
/// previous test from the kernel is slow.
const WAYS: Duration = Duration::from_secs(60);

impl Bench<'_> {
    /// Takes these links between the device's routers down and brings all others up, records the change, and waits
    /// until frames of `families` follow the remaining paths.
    ///
    /// # Errors
    /// A link does not exist, the device refuses the change or does not forward afterwards, a port of the tester does not
    /// recover, or the record cannot be stored.
    pub(crate) fn set_core_links(
        &mut self,
        down: &BTreeSet<CoreLinkName>,
        families: &[Family],
    ) -> Result<(), TestError> {
        let names: Vec<CoreLinkName> =
            self.device.system().iter().flat_map(|system| system.links.iter()).map(|link| link.name).collect();
        if let Some(unknown) = down.iter().find(|name| !names.contains(name)) {
            let why = format!("this DUT has no link {unknown} between routers");
            return Err(TestError::NotApplicable(why));
        }
        self.around = families.to_vec();
        // Bring links up first, so that no router is cut off in between. Try all of them, even if one fails.
        let mut set = Ok(());
        for name in self.links_down.difference(down).copied().collect::<Vec<_>>() {
            match self.set_core_link(name, true) {
                Ok(()) => drop(self.links_down.remove(&name)),
                Err(e) => set = set.and(Err(e)),
            }
        }
        set?;
        for name in down {
            // Insert before the change: a link that is down at only one end must be brought up again too.
            if self.links_down.insert(*name) {
                self.set_core_link(*name, false)?;
            }
        }
        let (dut, test, round) = (self.dut.clone(), self.test.clone(), self.session.round);
        let record = CoreLinkRecord { dut, test, round, down: down.iter().copied().collect() };
        self.observer.record(&Record::CoreLinks(record)).map_err(TestError::Store)?;
        // If the user has stopped the run, no more trials follow.
        if self.observer.stopped() { Ok(()) } else { self.await_ways(families) }
    }

    fn set_core_link(&mut self, link: CoreLinkName, up: bool) -> Result<(), TestError> {
        let links = self.device.core_links().ok_or_else(|| no_core_link(link));
        links.and_then(|links| links.set_core_link(link, up)).map_err(failed)
    }

    /// Waits until frames from each port to each other port pass the expected number of routers. Returns immediately
    /// for a device with one router.
    pub(super) fn await_ways(&mut self, families: &[Family]) -> Result<(), TestError> {
        let probe = match self.device.system() {
            Some(system) => between_all(&self.ports, families, system, &self.links_down),
            None => return Ok(()),
        };
        let deadline = self.rig.now() + WAYS;
        loop {
            let spec = self.through(&probe).into_owned();
            let problem = match self.execute(&spec, &[]) {
                Ok(result) => {
                    // A router that loses an occasional frame has still found its paths.
                    let lossy: Vec<_> =
                        result.groups.iter().filter(|group| group.lost * LOSSY_BELOW > group.offered).collect();
                    if lossy.is_empty() {
                        return Ok(());
                    }
                    let told = |group: &GroupCounts| {
                        let wrong: u64 = group.deviations.values().sum();
                        format!(
                            "{}: {} of {} frames as expected, {wrong} by another path",
                            group.group, group.received, group.offered
                        )
                    };
                    let lossy = lossy.into_iter().map(told).collect::<Vec<_>>().join("; ");
                    Failure::Test(TestError::Failed(format!(
                        "frames do not follow the remaining paths between the routers within {} s ({lossy})",
                        WAYS.as_secs()
                    )))
                }
                Err(e @ Failure::Port(_)) => e,
                Err(Failure::Test(e)) => return Err(e),
            };
            if self.rig.now() > deadline {
                return Err(self.blamed(problem));
            }
            match self.serve(Duration::from_millis(50)) {
                Err(Failure::Port(_)) => {}
                other => other?,
            }
        }
    }
}
