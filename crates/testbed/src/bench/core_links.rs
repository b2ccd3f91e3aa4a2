//! Links between the routers of a device of several routers: taken down for a test, and up again after it.

use super::{Bench, Failure, failed};
use crate::learning::between_all;
use drophammer_lab::no_core_link;
use drophammer_methods::TestError;
use drophammer_model::record::{CoreLinkRecord, Record};
use drophammer_model::topology::CoreLinkName;
use drophammer_model::trial::{Family, GroupCounts};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two routers at most one frame in this many may be missing.
const LOSSY_BELOW: u64 = 100;

/// Time for the routers of a system to find other ways. A daemon that is still removing the routes of the previous test
/// from the kernel is slow.
const WAYS: Duration = Duration::from_secs(60);

impl Bench<'_> {
    /// Takes these links between the device's routers down and brings all others up, records that, and waits until
    /// frames of `families` take the remaining ways.
    ///
    /// # Errors
    /// A link does not exist, the device refuses, it does not forward afterwards, or the record could not be stored.
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
        // Links come up first, so that no router is cut off in between. All are tried, even if one fails.
        let mut set = Ok(());
        for name in self.links_down.difference(down).copied().collect::<Vec<_>>() {
            match self.set_core_link(name, true) {
                Ok(()) => drop(self.links_down.remove(&name)),
                Err(e) => set = set.and(Err(e)),
            }
        }
        set?;
        for name in down {
            // Inserted first: a link that is down at one end only must be brought up again too.
            if self.links_down.insert(*name) {
                self.set_core_link(*name, false)?;
            }
        }
        let (dut, test, round) = (self.dut.clone(), self.test.clone(), self.session.round);
        let record = CoreLinkRecord { dut, test, round, down: down.iter().copied().collect() };
        self.observer.record(&Record::CoreLinks(record)).map_err(TestError::Store)?;
        // A stopped run has no more trials.
        if self.observer.stopped() { Ok(()) } else { self.await_ways(families) }
    }

    fn set_core_link(&mut self, link: CoreLinkName, up: bool) -> Result<(), TestError> {
        let links = self.device.core_links().ok_or_else(|| no_core_link(link));
        links.and_then(|links| links.set_core_link(link, up)).map_err(failed)
    }

    /// Waits until frames from each port to each other one pass the expected number of routers; returns at once for a
    /// device of one router.
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
                    // A router that loses a frame now and then has found its ways nevertheless.
                    let lossy: Vec<_> =
                        result.groups.iter().filter(|group| group.lost * LOSSY_BELOW > group.offered).collect();
                    if lossy.is_empty() {
                        return Ok(());
                    }
                    let told = |group: &GroupCounts| {
                        let wrong: u64 = group.deviations.values().sum();
                        format!(
                            "{}: {} of {} frames as they must, {wrong} by another way",
                            group.group, group.received, group.offered
                        )
                    };
                    lossy.into_iter().map(told).collect::<Vec<_>>().join("; ")
                }
                Err(Failure::Port(e)) => e.to_string(),
                Err(e) => return Err(e.into()),
            };
            if self.rig.now() > deadline {
                return Err(TestError::Failed(format!(
                    "frames do not take the ways that are left between the routers within {} s ({problem})",
                    WAYS.as_secs()
                )));
            }
            match self.serve(Duration::from_millis(50)) {
                Err(Failure::Port(_)) => {}
                other => other?,
            }
        }
    }
}
