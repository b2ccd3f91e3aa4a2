//! Trials between two readings of the DUT's counters.

use crate::bench::failed;
use crate::setup::TestSetup;
use drophammer_methods::{CountedTrial, TestError, Testbed};
use drophammer_model::counters::{DutCounter, OtherFrames};
use drophammer_model::trial::TrialSpec;
use std::time::Duration;

/// The network must be silent for this long after the counters were read, so that every frame that the device counted has arrived.
const SILENCE: Duration = Duration::from_millis(20);
/// Most attempts at a silent reading.
const READINGS: usize = 12;

/// The device's counters, and the frames other than test frames that each port of the tester had sent and received by then.
struct Reading {
    counters: Vec<DutCounter>,
    others: Vec<(OtherFrames, OtherFrames)>,
    /// Frames that passed while the counters were read.
    unsure: OtherFrames,
}

impl TestSetup<'_> {
    /// An attempt at a trial with the counters before and after it; also returns whether a port failed.
    pub(crate) fn counted_attempt(
        &mut self,
        spec: &TrialSpec,
        settle: Duration,
        attempt: u32,
    ) -> Result<(CountedTrial, bool), TestError> {
        let before = self.reading(settle)?;
        if before.counters.is_empty() {
            return Err(TestError::NotApplicable("no counter of this DUT is known to the tester".into()));
        }
        let (result, port_failed) = self.routing.bench.attempt(spec, &[], attempt)?;
        let after = self.reading(settle)?;
        let since = after.others.iter().zip(&before.others);
        let (sent, received) = since.map(|(now, then)| (now.0.since(then.0), now.1.since(then.1))).unzip();
        let unsure = before.unsure.plus(after.unsure);
        let counted = CountedTrial { result, before: before.counters, after: after.counters, sent, received, unsure };
        Ok((counted, port_failed))
    }

    /// Reads the counters while no frame is sent or received: for `settle` before, because an agent may cache values,
    /// and for [`SILENCE`] after.
    fn reading(&mut self, settle: Duration) -> Result<Reading, TestError> {
        let mut others = self.others();
        for reading in 1.. {
            self.settle(settle)?;
            let counters = self.routing.bench.device.known_counters().map_err(failed)?;
            self.settle(SILENCE)?;
            let now = self.others();
            let passed = now.iter().zip(&others).map(|(now, then)| now.0.since(then.0).plus(now.1.since(then.1)));
            let unsure = passed.fold(OtherFrames::default(), OtherFrames::plus);
            others = now;
            if unsure.frames == 0 || reading == READINGS {
                return Ok(Reading { counters, others, unsure });
            }
        }
        unreachable!("the last reading is returned")
    }

    fn others(&self) -> Vec<(OtherFrames, OtherFrames)> {
        let hosts = &self.routing.bench.rig.hosts;
        let ports = 0..self.routing.bench.views.len();
        ports.map(|port| (hosts.sent(port), hosts.received(port))).collect()
    }
}
