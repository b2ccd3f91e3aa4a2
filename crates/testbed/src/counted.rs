//! Trials between two readings of the DUT's counters.
//!
//! # Counters and answers
//!
//! `model::counters` defines what each counter of the kernel or of IF-MIB counts. `Hosts` count the frames other than
//! test frames that they send and receive, so a trial with `Trial::counters` can compute the exact value of each
//! counter (`counter_accuracy`). `Trial::ask` asks a router questions while a trial runs. The emulated device of the
//! first port sends pings at events of the trial, also in virtual time. SNMP questions, and all questions over a
//! management link (`lab/src/management.rs`), come from threads in a separate namespace, never from the packet loop.
//! `Trial::echo` splits round trips into their parts: the device that answers records when a request arrived and when
//! its reply left (`emulation/src/ping/session.rs`). The delay of ports and links is measured on the loop without a DUT
//! (`testbed/src/runner/own_delay.rs`).

use crate::bench::failed;
use crate::setup::TestSetup;
use drophammer_methods::{CountersSeen, TestError, Testbed};
use drophammer_model::counters::{DutCounter, OtherFrames, tester_counter};
use std::collections::BTreeMap;
use std::time::Duration;

/// The network must be silent for this long after the counters are read, so that every frame that the device has
/// counted arrives.
const SILENCE: Duration = Duration::from_millis(20);
/// Maximum number of attempts at a reading without traffic.
const READINGS: usize = 12;

/// The device's counters, and the frames other than test frames that each of the tester's ports had sent and received by then.
pub(crate) struct Reading {
    counters: Vec<DutCounter>,
    others: Vec<(OtherFrames, OtherFrames)>,
    /// Frames that passed while the counters were read.
    unsure: OtherFrames,
}

/// Returns the number of frames that the kernel received at each of the tester's `ports` ports between two readings of
/// the device's counters; `None` if any of them is unknown.
pub(crate) fn received_between(
    ports: usize,
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> Option<Vec<u64>> {
    let grown = |port| {
        let name = tester_counter(port, "rx_packets");
        after.get(&name)?.checked_sub(*before.get(&name)?)
    };
    (0..ports).map(grown).collect()
}

impl TestSetup<'_> {
    /// Reads the counters before a trial.
    pub(crate) fn first_reading(&mut self, settle: Duration) -> Result<Reading, TestError> {
        let before = self.reading(settle)?;
        if before.counters.is_empty() {
            return Err(TestError::NotApplicable("no counter of this DUT is known to the tester".into()));
        }
        Ok(before)
    }

    /// Reads the counters after the trial too, and returns both readings.
    pub(crate) fn counters_since(&mut self, before: Reading, settle: Duration) -> Result<CountersSeen, TestError> {
        let after = self.reading(settle)?;
        let since = after.others.iter().zip(&before.others);
        let (sent, received) = since.map(|(now, then)| (now.0.since(then.0), now.1.since(then.1))).unzip();
        let unsure = before.unsure.plus(after.unsure);
        Ok(CountersSeen { before: before.counters, after: after.counters, sent, received, unsure })
    }

    /// Reads the counters while no frame is sent or received. The network is silent for `settle` before, because an
    /// agent may cache values, and for [`SILENCE`] after.
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
        let hosts = self.routing.bench.rig.hosts();
        let ports = 0..self.routing.bench.facts.ports.len();
        ports.map(|port| (hosts.sent(port), hosts.received(port))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_received_is_known_for_all_ports_or_not_at_all() {
        let of = |all: &[(&str, u64)]| all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<BTreeMap<_, _>>();
        let before = of(&[("t0.rx_packets", 100), ("t1.rx_packets", 7), ("t0.tx_packets", 3), ("d0.rx_packets", 9)]);
        let after = of(&[("t0.rx_packets", 112), ("t1.rx_packets", 7), ("t0.tx_packets", 30), ("d0.rx_packets", 99)]);
        assert_eq!(received_between(2, &before, &after), Some(vec![12, 0]));
        // There is no third interface.
        assert_eq!(received_between(3, &before, &after), None);
        // An interface that was created again counts from 0.
        assert_eq!(received_between(2, &after, &before), None);
    }
}
