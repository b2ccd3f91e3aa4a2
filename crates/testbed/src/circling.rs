//! Trials whose packets stay inside a device of several routers: what each router counted of them.

use crate::setup::TestSetup;
use drophammer_methods::{CirclingTrial, Stillness, TestError, Testbed};
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::trial::TrialSpec;
use std::time::Duration;

/// Processor time that each router used.
fn used(before: Option<Vec<Duration>>, after: Option<Vec<Duration>>) -> Option<Vec<Duration>> {
    let (before, after) = before.zip(after)?;
    Some(after.iter().zip(&before).map(|(after, before)| after.saturating_sub(*before)).collect())
}

impl TestSetup<'_> {
    /// An attempt at a trial with the counters of the routers before it, and after it once they stand still; also
    /// returns whether a port failed.
    pub(crate) fn circling_attempt(
        &mut self,
        spec: &TrialSpec,
        stillness: Stillness,
        attempt: u32,
    ) -> Result<(CirclingTrial, bool), TestError> {
        let before = self.counted_inside()?;
        let cpu_before = self.router_cpu();
        self.routing.bench.begin_observation(Vec::new());
        let attempted = self.routing.bench.attempt(spec, &[], attempt);
        let settled = attempted.and_then(|attempted| Ok((attempted, self.await_stillness(stillness)?)));
        // Ends the observation even if the trial failed.
        let bench = &mut self.routing.bench;
        let now = bench.rig.now();
        let other = bench.rig.hosts.observed(now);
        let ((result, port_failed), (after, still_after)) = settled?;
        let cpu = used(cpu_before, self.router_cpu());
        Ok((CirclingTrial { result, before, after, cpu, still_after, other }, port_failed))
    }

    fn counted_inside(&mut self) -> Result<Vec<RouterInterface>, TestError> {
        let why = "the routers of this DUT show no counters of their interfaces";
        self.router_interfaces()?.ok_or_else(|| TestError::NotApplicable(why.into()))
    }

    /// Reads the counters until they stand still, and returns with them how long after the beginning they last grew;
    /// `None` if they never stood still.
    fn await_stillness(&mut self, stillness: Stillness) -> Result<(Vec<RouterInterface>, Option<Duration>), TestError> {
        let start = self.routing.bench.rig.now();
        let mut last = self.counted_inside()?;
        let mut grew = Duration::ZERO;
        loop {
            self.settle(stillness.step)?;
            let now = self.counted_inside()?;
            let waited = self.routing.bench.rig.now().since(start);
            if now != last {
                (last, grew) = (now, waited);
            } else if waited.saturating_sub(grew) >= stillness.quiet {
                return Ok((last, Some(grew)));
            }
            if grew > stillness.patience {
                return Ok((last, None));
            }
        }
    }
}
