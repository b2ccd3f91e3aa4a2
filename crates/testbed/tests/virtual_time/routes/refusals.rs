//! A router that refuses new sessions for a while after sessions have ended: no measured time may include the wait.

use super::*;
use crate::common::{one_thread, resolve, with_setup};
use crate::shared_clock::SharedClock;
use drophammer_lab::{Dut, LabError};
use drophammer_model::environment::DutRecord;
use drophammer_port::Clock;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated;
use std::cell::Cell as Shared;
use std::rc::Rc;
use std::time::Duration;

/// A device for which the tester must wait after sessions have ended.
struct Refusing {
    clock: SharedClock,
    waits: Rc<Shared<u32>>,
}

impl Dut for Refusing {
    fn record(&self) -> DutRecord {
        DutRecord::default()
    }

    fn check(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn sessions_ended(&mut self) -> Result<(), LabError> {
        let end = self.clock.now() + Duration::from_secs(2);
        while self.clock.now() < end {
            self.clock.wait(end);
        }
        self.waits.set(self.waits.get() + 1);
        Ok(())
    }
}

/// Calls `use_it` with a bed that has such a device. The cell counts the waits.
fn on_refusing_device(suite: &Suite, use_it: impl FnOnce(&mut TestSetup<'_>, &Shared<u32>)) {
    let dut = &suite.duts[0];
    let config = simulated::config(dut, &suite.ports, suite.seed);
    let parts = simulated::build_with(config, dut, &suite.ports, suite.seed).unwrap();
    let clock = SharedClock::new(parts.clock);
    let ports = one_thread(parts.ports, Box::new(clock.clone()));
    let waits = Rc::new(Shared::new(0));
    let mut device = Refusing { clock, waits: waits.clone() };
    with_setup(suite, &[Family::Ipv4, Family::Ipv6], ports, &mut device, &mut Memory::default(), |bed| {
        resolve(bed);
        use_it(bed, &waits);
    });
}

#[test]
fn the_wait_after_a_session_that_ended_is_in_no_time() {
    let tests = "  - bgp_table_dump: {routes: 1000, repeats: 2}\n  - bgp_session_capacity: {step: 2, hold: 1 s}\n";
    let suite = suite(", propagation_delay: 300 ms", 2, "{}", tests);
    on_refusing_device(&suite, |bed, waits| {
        let mut found = Outcome::default();
        let dump = drophammer_methods::find("bgp_table_dump").unwrap();
        dump.run(bed, &suite.tests[0].params, &mut found).unwrap();
        // It waits once for each session that was closed.
        assert_eq!(waits.get(), 2);
        for column in ["first_s", "last_s"] {
            full(&found, "bgp_table_dump", column).iter().for_each(|s| about(*s, 0.0, 20.0 * TICK_S));
        }
        let curve = points(&found, "bgp_table_dump", "IPv4");
        curve.iter().for_each(|point| about(point.x, 0.0, 20.0 * TICK_S));

        let mut found = Outcome::default();
        let capacity = drophammer_methods::find("bgp_session_capacity").unwrap();
        capacity.run(bed, &suite.tests[1].params, &mut found).unwrap();
        assert_eq!((waits.get(), figure(&found, "bgp_sessions")), (3, Some(4.0)), "{:?}", found.notes);
        let steps = full(&found, "bgp_session_capacity", "step_s");
        assert!(steps.len() == 2 && steps.iter().all(|s| *s < 0.5), "{steps:?}");
    });
}
