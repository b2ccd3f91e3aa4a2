//! The turn of the tests that run for all DUTs at the same time.

use super::plan::shown;
use super::{RunError, Runner, method, title};
use crate::config::hosts_and_routers;
use crate::kinds::{is_virtual, not_applicable};
use crate::observer::{Observer, Progress};
use crate::records::{problem_of, status_of, test_record, verdicts};
use crate::setup::{Left, TestSetup};
use crate::together::{self, Together};
use crate::{real, simulated};
use drophammer_lab::Dut;
use drophammer_methods::{Contestant, TestError};
use drophammer_model::outcome::Outcome;
use drophammer_model::record::TestStatus;
use drophammer_model::registry::Arrivals;
use drophammer_model::suite::{DutConfig, PortConfig, TestConfig};
use drophammer_port::{Port, SystemClock};
use drophammer_rig::{Config, Ports, Rig};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Subfolder of a DUT's folder for the logs of the joint turn.
const FOLDER: &str = "together";

/// A running DUT with its ports and its folder.
type Up = (Contestant, Box<dyn Dut>, PathBuf);

/// All running DUTs, and the tester's parts at their ports.
struct Bed {
    device: Together,
    /// Folder of each DUT, in the order of the suite; empty in virtual time.
    folders: Vec<PathBuf>,
    ports: Ports,
    configs: Vec<PortConfig>,
    config: Config,
}

impl Runner<'_, '_, '_> {
    /// Brings up all DUTs and runs the tests of the turn on all of them at the same time. If one DUT does not come up,
    /// the turn fails for all, because the suite asks for a comparison of all of them.
    pub(super) fn joint_turn(&mut self) -> Result<(), RunError> {
        let suite = self.state.suite;
        let virtual_ones = suite.duts.iter().filter(|dut| is_virtual(dut)).count();
        let bed = match virtual_ones {
            0 => self.real_bed()?,
            all if all == suite.duts.len() => self.simulated_bed(),
            _ => Err("some routers run in virtual time, the others do not".to_owned()),
        };
        let failed = match bed {
            Ok(bed) => self.joint_tests(bed)?,
            Err(problem) => Some(problem),
        };
        if let Some(problem) = failed {
            self.note(None, &problem)?;
            let why = problem.lines().next().unwrap_or(&problem).to_owned();
            while let Some(index) = self.state.turn.tests.get(self.state.number - self.state.begun).copied() {
                self.state.number += 1;
                let status = TestStatus::Failed(format!("not begun: {why}"));
                let outcomes = vec![Outcome::default(); suite.duts.len()];
                self.keep_all(&suite.tests[index], Duration::ZERO, &status, outcomes)?;
            }
        }
        if self.observer.stopped() {
            return Err(RunError::Interrupted);
        }
        Ok(())
    }

    /// Returns the configurations of all DUTs' ports, and the DUTs in the order of the suite.
    fn joint_ports(&self) -> (Vec<PortConfig>, Vec<Contestant>) {
        let duts = &self.state.suite.duts;
        let names: Vec<&str> = self.state.turn.duts.iter().map(|dut| duts[*dut].name.as_str()).collect();
        let (ports, mut contestants) = together::ports(&self.state.suite.ports, &names);
        let place = |one: &Contestant| duts.iter().position(|dut| dut.name == one.name);
        contestants.sort_by_key(place);
        (ports, contestants)
    }

    fn simulated_bed(&mut self) -> Result<Bed, String> {
        let (configs, contestants) = self.joint_ports();
        let (clock, ports, devices) =
            simulated::bring_up_together(&self.state.suite.duts, &contestants, &configs, self.state.suite.seed)?;
        let ports = ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect();
        let config = hosts_and_routers(&configs, &super::families(self.state.suite), self.state.suite.seed);
        Ok(Bed {
            device: Together::new(contestants.into_iter().zip(devices).collect()),
            folders: Vec::new(),
            ports: Ports::One { ports, clock: Box::new(clock) },
            configs,
            config,
        })
    }

    fn real_bed(&mut self) -> Result<Result<Bed, String>, RunError> {
        let (configs, contestants) = self.joint_ports();
        let mut up: Vec<Up> = Vec::new();
        let mut problem = None;
        for dut in self.state.turn.duts.clone() {
            match self.bring_up_one(&self.state.suite.duts[dut], &contestants) {
                Ok(one) => up.push(one),
                Err(Ok(why)) => problem = Some(why),
                Err(Err(error)) => {
                    self.take_down_all(up.into_iter().map(|(one, device, folder)| (one.name, device, folder)))?;
                    return Err(error);
                }
            }
            if problem.is_some() {
                break;
            }
        }
        if let Some(mut lab) = self.lab() {
            lab.begin_at_port(0);
        }
        up.sort_by_key(|(one, ..)| contestants.iter().position(|other| other == one));
        let (mut parts, mut folders) = (Vec::new(), Vec::new());
        for (one, device, folder) in up {
            parts.push((one, device));
            folders.push(folder);
        }
        let device = Together::new(parts);
        let clock = SystemClock::start();
        let opened = match (problem, self.lab()) {
            (Some(why), _) => Err(why),
            (None, Some(lab)) => {
                real::open(&lab, device.interfaces(), self.backend_for(Arrivals::Counted), self.state.queues, clock)
            }
            (None, None) => Err("no lab".into()),
        };
        let open = match opened {
            Ok(open) => open,
            Err(why) => {
                self.take_down_all(
                    device.into_parts().zip(folders).map(|((name, device), folder)| (name, device, folder)),
                )?;
                return Ok(Err(why));
            }
        };
        let mut config = hosts_and_routers(&configs, &super::families(self.state.suite), self.state.suite.seed);
        for (port, interface) in config.ports.iter_mut().zip(device.interfaces()) {
            port.dut = interface.dut_mac.map(drophammer_wire::MacAddr);
        }
        Ok(Ok(Bed { device, folders, ports: Ports::real(open, clock, self.state.processors), configs, config }))
    }

    /// Brings up one DUT at its place among `contestants`. The error is a problem of the DUT, or of the run.
    fn bring_up_one(&mut self, dut: &DutConfig, contestants: &[Contestant]) -> Result<Up, Result<String, RunError>> {
        self.observer.progress(&Progress::BringUp { dut: &dut.name, kind: &dut.kind });
        let folder = self.folder(dut).join(FOLDER);
        if let Err(e) = std::fs::create_dir_all(&folder) {
            return Err(Err(RunError::Store(format!("cannot create `{}`: {e}", folder.display()))));
        }
        let one = contestants.iter().find(|one| one.name == dut.name).cloned();
        let (Some(mut lab), Some(one)) = (self.lab(), one) else {
            return Err(Ok(format!("kind `{}` needs the lab", dut.kind)));
        };
        // With an odd number of ports, the last port of each DUT exists but is unused.
        let place = one.ports.start / one.ports.len().max(1);
        lab.begin_at_port(place * self.state.suite.ports.len());
        let observer: &dyn Observer = self.observer;
        match real::bring_up(&mut lab, dut, self.state.suite, &folder, &|| observer.stopped()) {
            Ok(device) => Ok((one, device, folder)),
            Err(_) if self.observer.stopped() => Err(Err(RunError::Interrupted)),
            Err(e) => Err(Ok(format!("{} did not come up together with the others: {e}", dut.name))),
        }
    }

    fn take_down_all(&mut self, all: impl Iterator<Item = (String, Box<dyn Dut>, PathBuf)>) -> Result<(), RunError> {
        for (name, device, folder) in all {
            if let Err(e) = real::take_down(device, &folder) {
                self.note(Some(&name), &format!("{name} could not be taken down: {e}"))?;
            }
        }
        Ok(())
    }

    /// Runs the tests of the turn, and takes the DUTs down. Returns the reason why the remaining tests cannot run, if there is one.
    fn joint_tests(&mut self, bed: Bed) -> Result<Option<String>, RunError> {
        let Bed { mut device, folders, ports, configs, config } = bed;
        let contestants = device.contestants();
        for (dut, one) in self.state.suite.duts.iter().zip(&contestants) {
            if !self.state.recorded.contains(&dut.name) {
                let record = device.record_of(&dut.name);
                self.keep_record(dut, record, &ports, &config, one.ports.start)?;
            }
        }
        let rig = Rig::new(ports, &config);
        let result = self.joint_tests_on(&mut device, rig, &configs, &contestants);
        let parts = device.into_parts();
        if folders.is_empty() {
            return result;
        }
        self.take_down_all(parts.zip(folders).map(|((name, device), folder)| (name, device, folder)))?;
        result
    }

    fn joint_tests_on(
        &mut self,
        device: &mut Together,
        rig: Rig,
        configs: &[PortConfig],
        contestants: &[Contestant],
    ) -> Result<Option<String>, RunError> {
        let suite = self.state.suite;
        let left = self.left();
        let names = device.record().name;
        let mut setup = TestSetup::new(&names, configs, rig, device, &mut self.state.session, self.observer);
        setup.facts_mut().contestants = contestants.to_vec();
        setup.bench().bear_host();
        match setup.await_forwarding(&super::families(suite)) {
            Ok(()) => {}
            Err(TestError::Interrupted) => return Err(RunError::Interrupted),
            Err(TestError::Store(e)) => return Err(RunError::Store(e)),
            Err(e) => return Ok(Some(e.to_string())),
        }
        let mut done = Vec::new();
        let mut ended = Ok(None);
        for (index, left) in self.state.turn.tests.iter().copied().zip(left) {
            let test = &suite.tests[index];
            self.state.number += 1;
            let (method, title) = (method(test), title(test));
            setup.begin_test(method, &test.params, Left { since: Instant::now(), ..left });
            let left = setup.left.now();
            let (number, of) = shown(&self.state.plan, self.state.number);
            setup.observer().progress(&Progress::Test { dut: &names, title: &title, number, of, left });
            let mut outcomes = vec![Outcome::default(); contestants.len()];
            let spec = method.spec();
            let refused = |dut: &DutConfig| {
                let why = not_applicable(dut, spec, test)?;
                Some(format!("{}: {why}", dut.name))
            };
            let result = match suite.duts.iter().find_map(refused) {
                Some(why) => Err(TestError::NotApplicable(why)),
                None => method.run_together(&mut setup, &test.params, &mut outcomes),
            };
            let taken_back = setup.end_test();
            let elapsed = setup.left.since.elapsed();
            let status = status_of(&result);
            setup.observer().progress(&Progress::TestEnded {
                dut: &names,
                title: &title,
                problem: problem_of(&status),
            });
            done.push((index, elapsed, status, outcomes));
            match result {
                Err(TestError::Interrupted) => ended = Err(RunError::Interrupted),
                Err(TestError::Store(e)) => ended = Err(RunError::Store(e)),
                Err(TestError::DutDied(e)) => ended = Ok(Some(format!("a DUT died: {e}"))),
                _ => match taken_back {
                    Ok(()) => continue,
                    Err(e) => ended = Ok(Some(format!("filters could not be removed after a test: {e}"))),
                },
            }
            break;
        }
        drop(setup);
        for (index, elapsed, status, outcomes) in done {
            if status == TestStatus::Completed {
                self.state.elapsed.insert(index, elapsed);
            }
            self.keep_all(&suite.tests[index], elapsed, &status, outcomes)?;
        }
        ended
    }

    /// Records a test for every DUT.
    fn keep_all(
        &mut self,
        test: &TestConfig,
        elapsed: Duration,
        status: &TestStatus,
        outcomes: Vec<Outcome>,
    ) -> Result<(), RunError> {
        let round = self.state.session.round;
        for (dut, mut outcome) in self.state.suite.duts.iter().zip(outcomes) {
            outcome.verdicts.extend(verdicts(&dut.name, test, &outcome, status));
            self.state.tally.count(status);
            self.keep(&test_record(dut, test, round, elapsed, status.clone(), outcome))?;
        }
        Ok(())
    }
}
