//! Trials whose packets stay inside a device of several routers: what each router counted of them.

use crate::setup::TestSetup;
use drophammer_methods::{CirclingTrial, Stillness, TestError, Testbed};
use drophammer_model::quantity::Instant;
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::trial::TrialSpec;
use std::time::Duration;

/// Processor time that each router used.
fn used(before: &Option<Vec<Duration>>, after: &Option<Vec<Duration>>) -> Option<Vec<Duration>> {
    let (before, after) = before.as_ref().zip(after.as_ref())?;
    Some(after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before)).collect())
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
        let start = self.now_with_cpu();
        self.routing.bench.begin_observation(Vec::new());
        let attempted = self.routing.bench.attempt(spec, &[], attempt);
        let settled = attempted.and_then(|attempted| {
            let ended = traffic_end(start.0, self.routing.bench.rig.now(), attempted.0.elapsed_s);
            Ok((attempted, self.await_stillness(stillness, ended)?))
        });
        // Ends the observation even if the trial failed.
        let bench = &mut self.routing.bench;
        let now = bench.rig.now();
        let other = bench.rig.hosts.observed(now);
        let ((result, port_failed), Still { counters: after, still_after, since }) = settled?;
        let cpu = cpu_of_load(&start, &since, &self.now_with_cpu(), result.sending_s);
        Ok((CirclingTrial { result, before, after, cpu, still_after, other }, port_failed))
    }

    /// The processor time of the routers, and when it was read.
    fn now_with_cpu(&mut self) -> At {
        (self.routing.bench.rig.now(), self.router_cpu())
    }

    fn counted_inside(&mut self) -> Result<Vec<RouterInterface>, TestError> {
        let why = "the routers of this DUT show no counters of their interfaces";
        self.router_interfaces()?.ok_or_else(|| TestError::NotApplicable(why.into()))
    }

    /// Reads the counters until they stand still, and returns with them how long after `ended` they last grew; `None` if
    /// they never stood still.
    fn await_stillness(&mut self, stillness: Stillness, ended: Instant) -> Result<Still, TestError> {
        let mut counters = self.counted_inside()?;
        let mut since = self.now_with_cpu();
        // Counters that no longer grow after the first reading have done so before it.
        let mut grew = Duration::ZERO;
        loop {
            self.settle(stillness.step)?;
            let now = self.counted_inside()?;
            let at = self.routing.bench.rig.now();
            if now != counters {
                (counters, grew) = (now, at.since(ended));
                since = self.now_with_cpu();
            } else if at.since(since.0) >= stillness.quiet {
                return Ok(Still { counters, still_after: Some(grew), since });
            }
            if grew > stillness.patience {
                return Ok(Still { counters, still_after: None, since });
            }
        }
    }
}

/// An instant, and the processor time of each router until then.
type At = (Instant, Option<Vec<Duration>>);

/// Counters that stand still.
struct Still {
    counters: Vec<RouterInterface>,
    /// How long after the traffic they last grew.
    still_after: Option<Duration>,
    /// Since when they do.
    since: At,
}

/// The instant at which the traffic of an attempt ended. The attempt took longer than its traffic: it was planned and
/// counters were read before, and counters were read and the result was stored after. Each is taken for half of it.
fn traffic_end(begun: Instant, ended: Instant, traffic_s: f64) -> Instant {
    let beside = ended.since(begun).saturating_sub(Duration::from_secs_f64(traffic_s.max(0.0)));
    Instant(ended.0 - (beside / 2).as_nanos() as u64)
}

/// Processor time of each router for a load of `load_s`: from `begun` to `ended`, less what the routers used while they
/// forwarded nothing, `still` to `ended`, for all the time beyond that of the load. `None` if not known.
fn cpu_of_load(begun: &At, still: &At, ended: &At, load_s: f64) -> Option<Vec<Duration>> {
    let seconds = |from: &At| ended.0.since(from.0).as_secs_f64();
    let (idle_s, beyond_s) = (seconds(still), (seconds(begun) - load_s).max(0.0));
    let (used, idle) = (used(&begun.1, &ended.1)?, used(&still.1, &ended.1)?);
    let share = if idle_s > 0.0 { beyond_s / idle_s } else { 0.0 };
    Some(used.iter().zip(idle).map(|(used, idle)| used.saturating_sub(idle.mul_f64(share))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, cpu: &[u64]) -> At {
        (Instant(ms * 1_000_000), Some(cpu.iter().map(|ms| Duration::from_millis(*ms)).collect()))
    }

    /// A router that is idle at 10 % and forwards for 500 ms of processor time, another one that only forwards.
    #[test]
    fn what_an_idle_router_uses_beside_the_load_is_not_its_share() {
        // 2 s of load in 3 s; the last 400 ms nothing is forwarded.
        let (begun, still, ended) = (at(1_000, &[50, 7]), at(3_600, &[50 + 260 + 500, 807]), at(4_000, &[850, 807]));
        let found = cpu_of_load(&begun, &still, &ended, 2.0).unwrap();
        // What it uses by itself during the load stays.
        assert_eq!(found, [Duration::from_millis(500 + 200), Duration::from_millis(800)]);
        assert_eq!(cpu_of_load(&(begun.0, None), &still, &ended, 2.0), None);
        // Nothing is known about an idle router.
        let found = cpu_of_load(&begun, &ended, &ended, 2.0).unwrap();
        assert_eq!(found, [Duration::from_millis(800); 2]);
    }

    #[test]
    fn traffic_ends_before_its_result_is_stored() {
        let (begun, ended) = (Instant(1_000_000_000), Instant(3_100_000_000));
        assert_eq!(traffic_end(begun, ended, 2.0), Instant(3_050_000_000));
        assert_eq!(traffic_end(begun, ended, 2.1), ended);
        assert_eq!(traffic_end(begun, ended, 9.0), ended);
    }
}
