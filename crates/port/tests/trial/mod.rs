//! Trials between two ports without hosts, for tests and benchmarks of backends.

use drophammer_model::quantity::Instant;
use drophammer_model::trial::TrialSpec;
use drophammer_port::{Arrival, Clock, PortError, SystemClock};
use drophammer_traffic::{Control, Neighbour, Plan, SendFrame, Timing};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::TrialKey;

/// No hosts; may stop the trial at a given time.
pub struct Nobody(pub Option<(SystemClock, Instant)>);

impl Control for Nobody {
    fn receive(&mut self, _: usize, _: Arrival<'_>) -> Result<(), PortError> {
        Ok(())
    }
    fn poll(&mut self, now: Instant, _: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        Ok(Instant(now.0 + if self.0.is_some() { 1_000_000 } else { 1_000_000_000 }))
    }
    fn stop(&self) -> bool {
        self.0.is_some_and(|(clock, at)| clock.now() >= at)
    }
}

/// The plan of trial number `trial` between ports with these addresses; a late generator skips frames beyond this backlog.
pub fn plan(spec: &TrialSpec, macs: [MacAddr; 2], trial: u64, max_backlog_ns: u64) -> Result<Plan, String> {
    let neighbours = [0, 1].map(|i| Neighbour {
        mac: macs[i],
        device_ipv4: Some(macs[1 - i]),
        device_ipv6: Some(macs[1 - i]),
        vlans: Vec::new(),
    });
    let timing =
        Timing { seed: 5, key: TrialKey::new(7, trial), earlier: vec![], max_backlog_ns, late_ns: 1_000_000_000 };
    Plan::new(spec, &neighbours, &timing).map_err(|e| e.to_string())
}
