//! Consecutive tests of a DUT that use the same backend. A test that only measures rates just counts frames, so the
//! automatic choice gives it a faster backend than a test that reads times. The ports are opened again between the two.
//!
//! # Which backend
//!
//! Each test declares what it needs to know about arrivals (`Method::arrivals`). With `auto`, `runner/stretches.rs`
//! opens the ports of a DUT again when this changes: `af_xdp` for counts, `af_packet` for times. `lab/src/receiving.rs`
//! moves the tester's receive work to its own processors.

use super::{Problem, RunError, Runner, method};
use crate::real;
use crate::route_ceiling::Ceilings;
use crate::setup::TestSetup;
use drophammer_lab::{Dut, Where};
use drophammer_methods::pattern::TESTER_LIMITED_SHARE;
use drophammer_methods::{Known, TestError, Testbed as _};
use drophammer_model::pattern::PatternKey;
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::Arrivals;
use drophammer_model::suite::DutConfig;
use drophammer_port::auto::for_arrivals;
use drophammer_port::capture::CaptureStatus;
use drophammer_port::{Backend, SystemClock};
use drophammer_rig::{Ports, Rig};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Time limit for a DUT to end its sessions before other ports are opened.
const SESSIONS_END: Duration = Duration::from_secs(10);

/// Adds to `known` the throughput that tests with another backend have found, as far as this backend can offer it.
fn learn(known: &mut Known, other: &Known, ceilings: &BTreeMap<PatternKey, FrameRate>) {
    let within = |key: &PatternKey, found: FrameRate| {
        ceilings.get(&key.on_loop()).is_some_and(|most| found.pps() < TESTER_LIMITED_SHARE * most.pps())
    };
    for (key, found) in &other.throughput {
        if found.is_some_and(|found| within(key, found)) && !other.bounds.contains_key(key) {
            known.throughput.entry(key.clone()).or_insert(*found);
        }
    }
}

/// Ends the sessions of the emulated routers, whose ports are about to be closed. Returns the problem if the DUT kept
/// some of their routes.
pub(super) fn end_sessions(setup: &mut TestSetup<'_>) -> Result<Option<Problem>, RunError> {
    // Without BGP there is nothing to end.
    let Ok(routing) = setup.routing() else { return Ok(None) };
    match routing.reset(SESSIONS_END) {
        Ok(()) => Ok(None),
        Err(TestError::Store(e)) => Err(RunError::Store(e)),
        Err(TestError::Interrupted) => Err(RunError::Interrupted),
        Err(e) => Ok(Some(Problem::of(&e, format!("its sessions could not be ended: {}", e.reason())))),
    }
}

impl Runner<'_, '_, '_> {
    /// Returns what the tests of this turn have found, for tests with `backend`, which has these ceilings.
    pub(super) fn known_with(&mut self, backend: &str, ceilings: &BTreeMap<PatternKey, FrameRate>) -> Known {
        let mut known = self.state.known.remove(backend).unwrap_or_default();
        for other in self.state.known.values() {
            learn(&mut known, other, ceilings);
        }
        known.highest = self.state.highest.get(backend).cloned().unwrap_or_default();
        // The sessions that filled the tables ended with the ports.
        known.tables = None;
        known
    }

    /// Returns ranges of consecutive tests of the turn that use the same backend, by their place in the turn.
    fn stretches(&self) -> Vec<(&'static Backend, Range<usize>)> {
        let mut found: Vec<(&'static Backend, Range<usize>)> = Vec::new();
        for (index, test) in self.state.turn.tests.iter().enumerate() {
            let test = &self.state.suite.tests[*test];
            let backend = self.backend_for(method(test).plan(&test.params).arrivals);
            match found.last_mut() {
                Some((last, tests)) if std::ptr::eq(*last, backend) => tests.end = index + 1,
                _ => found.push((backend, index..index + 1)),
            }
        }
        found
    }

    /// Returns the backend for a test that needs to know this about arrivals.
    pub(super) fn backend_for(&self, arrivals: Arrivals) -> &'static Backend {
        // A capture must continue from test to test.
        if self.state.capture { self.state.backend } else { for_arrivals(self.state.backend, arrivals) }
    }

    pub(super) fn real_tests(
        &mut self,
        dut: &DutConfig,
        device: &mut dyn Dut,
        ceilings: &Ceilings,
    ) -> Result<Option<Problem>, RunError> {
        for (backend, tests) in self.stretches() {
            let problem = self.tests_with(backend, tests, dut, device, ceilings)?;
            if problem.is_some() {
                return Ok(problem);
            }
        }
        Ok(None)
    }

    /// Opens the ports and runs `tests`.
    fn tests_with(
        &mut self,
        backend: &'static Backend,
        tests: Range<usize>,
        dut: &DutConfig,
        device: &mut dyn Dut,
        ceilings: &Ceilings,
    ) -> Result<Option<Problem>, RunError> {
        let clock = SystemClock::start();
        if device.interfaces().iter().any(|interface| interface.netns == Where::Agent) {
            if self.state.capture {
                let why = "ports of other hosts cannot be captured here; leave --capture out";
                return Ok(Some(Problem::of_tester(why)));
            }
            let ports = match real::open_far(self.state.lender, device.interfaces(), clock) {
                Ok(ports) => ports,
                Err(e) => return Ok(Some(Problem::of_tester(e))),
            };
            return self.tests_on(ports, tests, dut, device, ceilings);
        }
        let open = match self.lab() {
            Some(lab) => real::open_apart(&lab, device.interfaces(), backend, self.state.queues, clock),
            None => return Ok(Some(Problem::of_tester("no lab"))),
        };
        let (open, captures) = match open {
            Ok(open) if self.state.capture => {
                match real::capture(open, &self.state.suite.ports, &self.folder(dut), clock, self.state.suite.seed) {
                    Ok(captured) => captured,
                    Err(e) => return Err(RunError::Store(e)),
                }
            }
            Ok(open) => (open, Vec::new()),
            Err(e) => return Ok(Some(Problem::of_tester(e))),
        };
        let ports = Ports::real(open, clock, self.state.processors);
        let result = self.tests_on(ports, tests, dut, device, ceilings);
        for note in captures.iter().filter_map(CaptureStatus::note) {
            self.note(Some(&dut.name), &note)?;
        }
        result
    }

    /// Runs `tests` on open ports.
    fn tests_on(
        &mut self,
        ports: Ports,
        tests: Range<usize>,
        dut: &DutConfig,
        device: &mut dyn Dut,
        ceilings: &Ceilings,
    ) -> Result<Option<Problem>, RunError> {
        let mut config = self.config(dut);
        for (port, interface) in config.ports.iter_mut().zip(device.interfaces()) {
            port.dut = interface.dut_mac.map(drophammer_wire::MacAddr);
        }
        self.keep_record(dut, device.record(), &ports, &config, 0)?;
        self.tests(dut, Rig::new(ports, &config), device, ceilings, tests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_methods::LowerBound;
    use drophammer_methods::pattern::Pattern;
    use drophammer_model::trial::Family;

    #[test]
    fn a_throughput_is_known_to_a_backend_that_can_offer_it() {
        let key = |size: &str| Pattern::one_way(size.parse().unwrap(), vec![Family::Ipv4], 0.0).key();
        let keys = ["64", "128", "256"].map(key);
        let (within, beyond, bound) = (&keys[0], &keys[1], &keys[2]);
        let mut other = Known::default();
        other.throughput.extend(keys.iter().map(|key| (key.clone(), Some(FrameRate(100.0)))));
        other.bounds.insert(bound.clone(), LowerBound::Tester);
        let ceiling = |key: &PatternKey, pps| (key.on_loop(), FrameRate(pps));
        let ceilings = BTreeMap::from([ceiling(within, 200.0), ceiling(beyond, 110.0), ceiling(bound, 200.0)]);
        let mut known = Known::default();
        learn(&mut known, &other, &ceilings);
        assert_eq!(known.throughput.keys().collect::<Vec<_>>(), [within]);
    }
}
