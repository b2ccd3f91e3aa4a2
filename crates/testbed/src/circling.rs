//! Trials whose packets stay inside a device of several routers. Reports how many packets each router counted.

use crate::setup::TestSetup;
use drophammer_methods::{LastGrowth, RoutersSeen, Stillness, TestError, Testbed};
use drophammer_model::beside::OtherTraffic;
use drophammer_model::quantity::Instant;
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::trial::TrialResult;
use std::time::Duration;

/// Processor time that each router used.
fn used(before: &Option<Vec<Duration>>, after: &Option<Vec<Duration>>) -> Option<Vec<Duration>> {
    let (before, after) = before.as_ref().zip(after.as_ref())?;
    Some(after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before)).collect())
}

/// The routers' counters before a trial, and when they were read.
pub(crate) struct RoutersBefore {
    counters: Vec<RouterInterface>,
    start: At,
}

impl TestSetup<'_> {
    /// Reads the routers' counters before a trial. From now on, frames other than test frames are observed.
    pub(crate) fn routers_before(&mut self) -> Result<RoutersBefore, TestError> {
        let counters = self.counted_inside()?;
        let start = self.now_with_cpu();
        self.routing.bench.begin_observation(Vec::new());
        Ok(RoutersBefore { counters, start })
    }

    /// Returns the routers' counters after the trial with this outcome, once they stop changing, and the frames
    /// observed until then.
    pub(crate) fn routers_since(
        &mut self,
        before: RoutersBefore,
        stillness: Stillness,
        outcome: &Result<TrialResult, TestError>,
    ) -> Result<Option<(RoutersSeen, OtherTraffic)>, TestError> {
        let RoutersBefore { counters: before, start } = before;
        let result = outcome.as_ref().ok();
        let settled = result.map(|result| {
            let ended = self.load_ended(start.0, result);
            self.await_stillness(stillness, ended)
        });
        // Ends the observation even if the trial failed.
        let bench = &mut self.routing.bench;
        let other = bench.rig.observed();
        let Some((result, still)) = result.zip(settled) else { return Ok(None) };
        let Still { counters: after, grew, since } = still?;
        let cpu = cpu_of_load(&start, &since, &self.now_with_cpu(), result.sending_s);
        Ok(Some((RoutersSeen { before, after, cpu, grew }, other)))
    }

    /// Returns when the load of the last trial ended: at the end of its schedule or at the last departure, whichever is later.
    /// `begun` is before the trial. An earlier start belongs to another trial: a port failed, and the result is spoilt.
    fn load_ended(&mut self, begun: Instant, result: &TrialResult) -> Instant {
        let rig = &self.routing.bench.rig;
        let started = rig.started().filter(|started| *started >= begun);
        started.map_or(rig.now(), |started| started + Duration::from_secs_f64(result.sending_s.max(0.0)))
    }

    /// Returns the processor time of the routers, and when it was read.
    fn now_with_cpu(&mut self) -> At {
        (self.routing.bench.rig.now(), self.router_cpu())
    }

    fn counted_inside(&mut self) -> Result<Vec<RouterInterface>, TestError> {
        let why = "the routers of this DUT do not show interface counters";
        self.router_interfaces()?.ok_or_else(|| TestError::NotApplicable(why.into()))
    }

    /// Reads the counters until they stop changing, and returns them with the time after `ended` at which each last
    /// grew. These times are missing if the counters never stopped changing.
    fn await_stillness(&mut self, stillness: Stillness, ended: Instant) -> Result<Still, TestError> {
        let mut begun = self.routing.bench.rig.now();
        let mut counters = self.counted_inside()?;
        let mut since = self.now_with_cpu();
        let mut grew =
            vec![[LastGrowth { at_least: Duration::ZERO, at_most: since.0.since(ended) }; 2]; counters.len()];
        loop {
            self.settle(stillness.step)?;
            let before = std::mem::replace(&mut begun, self.routing.bench.rig.now());
            let now = self.counted_inside()?;
            let at = self.routing.bench.rig.now();
            if now != counters {
                let between = LastGrowth { at_least: before.since(ended), at_most: at.since(ended) };
                note_growth(&mut grew, &counters, &now, between);
                counters = now;
                since = self.now_with_cpu();
                if between.at_most > stillness.patience {
                    return Ok(Still { counters, grew: None, since });
                }
            } else if at.since(since.0) >= stillness.quiet {
                return Ok(Still { counters, grew: Some(grew), since });
            }
        }
    }
}

/// Notes in `grew` which counters grew between two readings.
fn note_growth(grew: &mut [[LastGrowth; 2]], before: &[RouterInterface], now: &[RouterInterface], between: LastGrowth) {
    for (last, (before, now)) in grew.iter_mut().zip(before.iter().zip(now)) {
        let grown = [now.in_packets != before.in_packets, now.out_packets != before.out_packets];
        last.iter_mut().zip(grown).filter(|(_, grown)| *grown).for_each(|(last, _)| *last = between);
    }
}

/// An instant, and each router's processor time until then.
type At = (Instant, Option<Vec<Duration>>);

/// Counters that no longer change.
struct Still {
    counters: Vec<RouterInterface>,
    /// Time after the load at which each counter last grew; `None` if they did not stop changing.
    grew: Option<Vec<[LastGrowth; 2]>>,
    /// Time since which the counters have not changed.
    since: At,
}

/// Processor time of each router for a load of `load_s`: its time from `begun` to `ended`, less its idle use over the time beyond
/// the load. The idle use is measured from `still` to `ended`, when the routers forwarded nothing. `None` if unknown.
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

    /// One router uses 10 % when idle and 500 ms of processor time to forward. Another router only forwards.
    #[test]
    fn what_an_idle_router_uses_beside_the_load_is_not_its_share() {
        // 2 s of load in 3 s; nothing is forwarded in the last 400 ms.
        let (begun, still, ended) = (at(1_000, &[50, 7]), at(3_600, &[50 + 260 + 500, 807]), at(4_000, &[850, 807]));
        let found = cpu_of_load(&begun, &still, &ended, 2.0).unwrap();
        // Processor time that the router uses for its own tasks during the load is included.
        assert_eq!(found, [Duration::from_millis(500 + 200), Duration::from_millis(800)]);
        assert_eq!(cpu_of_load(&(begun.0, None), &still, &ended, 2.0), None);
        // The idle use of the routers is unknown.
        let found = cpu_of_load(&begun, &ended, &ended, 2.0).unwrap();
        assert_eq!(found, [Duration::from_millis(800); 2]);
    }

    #[test]
    fn each_counter_has_the_readings_between_which_it_last_grew() {
        use drophammer_model::router_interfaces::InterfaceOf;
        let counted = |router, in_packets, out_packets| RouterInterface {
            router,
            at: InterfaceOf::Interface(0),
            in_packets,
            out_packets,
            in_bytes: 0,
            out_bytes: 0,
        };
        let between = |at_least, at_most| {
            let [at_least, at_most] = [at_least, at_most].map(Duration::from_millis);
            LastGrowth { at_least, at_most }
        };
        let mut grew = vec![[between(0, 3); 2]; 2];
        let readings = [
            [counted(0, 10, 10), counted(1, 10, 10)],
            [counted(0, 11, 12), counted(1, 10, 11)],
            [counted(0, 11, 13), counted(1, 10, 11)],
        ];
        note_growth(&mut grew, &readings[0], &readings[1], between(1, 14));
        note_growth(&mut grew, &readings[1], &readings[2], between(12, 25));
        assert_eq!(grew, [[between(1, 14), between(12, 25)], [between(0, 3), between(1, 14)]]);
    }
}
