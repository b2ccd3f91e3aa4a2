//! A port of the tester that fails and does not recover: nothing is known about the router.

use crate::common::{Memory, one_thread, suite, with_setup};
use crate::shared_clock::SharedClock;
use drophammer_methods::pattern::Pattern;
use drophammer_methods::{TestError, Testbed};
use drophammer_model::trial::{Family, Load};
use drophammer_port::simulated::SimulatedPort;
use drophammer_port::{Clock, Port, PortError, Received, pass_on};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::{self, NoDut};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const FAMILIES: [Family; 1] = [Family::Ipv4];
const GONE: &str = "a port of the tester failed (interface `sim0` stopped working: it is gone)";

/// A port that receives nothing but errors once `gone` is true.
struct Failing {
    inner: SimulatedPort,
    clock: SharedClock,
    gone: Rc<Cell<bool>>,
}

impl Port for Failing {
    pass_on!(inner: info, slots, send, counters);

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        if !self.gone.get() {
            return self.inner.receive();
        }
        // A loop that tries again must reach its deadline.
        let later = self.clock.now() + Duration::from_millis(20);
        while self.clock.now() < later {
            self.clock.wait(later);
        }
        Err(PortError::lost(self.info(), std::io::Error::other("it is gone")))
    }
}

/// A bed whose ports fail once the flag is true.
fn with_bed(act: impl FnOnce(&mut TestSetup<'_>, &Cell<bool>)) {
    let suite = suite("", "tests: [throughput]\n");
    let dut = &suite.duts[0];
    let config = simulated::config(dut, &suite.ports, suite.seed);
    let parts = simulated::build_with(config, dut, &suite.ports, suite.seed).unwrap();
    let clock = SharedClock::new(parts.clock);
    let gone = Rc::new(Cell::new(false));
    let failing = |inner| Failing { inner, clock: clock.clone(), gone: gone.clone() };
    let ports = one_thread(parts.ports.into_iter().map(failing).collect(), Box::new(clock.clone()));
    with_setup(&suite, &FAMILIES, ports, &mut NoDut, &mut Memory::default(), |bed| act(bed, &gone));
}

fn assert_unfit<T: std::fmt::Debug>(found: Result<T, TestError>) {
    match found {
        Err(e @ TestError::Unfit(_)) => {
            // No trial need have begun.
            assert_eq!(e.reason(), GONE);
            assert_eq!(e.to_string(), format!("the tester could not measure validly: {GONE}"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_port_that_never_works_does_not_fail_the_router() {
    with_bed(|bed, gone| {
        gone.set(true);
        assert_unfit(bed.await_forwarding(&FAMILIES));
    });
}

#[test]
fn a_port_that_stops_working_does_not_fail_the_router() {
    with_bed(|bed, gone| {
        bed.await_forwarding(&FAMILIES).unwrap();
        let pattern = Pattern::one_way("64".parse().unwrap(), FAMILIES.to_vec(), 0.3);
        let spec = pattern.trial(bed.ports(), "a trial".into(), Load::Constant { rate_pps: 1_000.0 }, 0.1).unwrap();
        bed.trial(&spec).unwrap();
        gone.set(true);
        assert_unfit(bed.trial(&spec));
        assert_unfit(bed.observe(Duration::from_millis(100)));
        assert_unfit(bed.await_forwarding(&FAMILIES));
    });
}
