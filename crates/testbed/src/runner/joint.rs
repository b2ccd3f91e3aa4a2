//! The turn of the tests that run for all DUTs at the same time.

use super::plan::shown;
use super::{Problem, RunError, Runner, Tally, method, title};
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
use drophammer_model::suite::{DutConfig, PortConfig, Suite, TestConfig};
use drophammer_port::{Port, SystemClock};
use drophammer_rig::{Config, Ports, Rig};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Subfolder of a DUT's folder for the logs of the joint turn.
const FOLDER: &str = "together";
/// What happened to a DUT that is no longer alive.
const DIED: &str = "died";

/// A running DUT with its ports and its folder.
type Up = (Contestant, Box<dyn Dut>, PathBuf);

/// The reason why the remaining tests of the turn cannot run.
struct JointProblem {
    problem: Problem,
    /// Names of the DUTs at fault; empty if there is no such DUT, or if it is not known.
    at_fault: Vec<String>,
    /// What happened to them.
    what: &'static str,
}

impl From<Problem> for JointProblem {
    /// A problem that is not known to be the fault of any of the DUTs.
    fn from(problem: Problem) -> JointProblem {
        JointProblem { problem, at_fault: Vec::new(), what: "" }
    }
}

impl JointProblem {
    /// Returns the status of a test on `dut` if its status is `status` on the DUTs at fault. The others are not
    /// to blame, and neither is the tester.
    fn status_on(&self, dut: &str, status: TestStatus) -> TestStatus {
        if self.at_fault.is_empty() || self.at_fault.iter().any(|name| name == dut) {
            return status;
        }
        let names = self.at_fault.join("`, `");
        TestStatus::Skipped(format!("`{names}` {}, so there was nothing to compare with", self.what))
    }
}

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
    /// no test runs, because the suite asks for a comparison of all of them.
    pub(super) fn joint_turn(&mut self) -> Result<(), RunError> {
        let suite = self.state.suite;
        let virtual_ones = suite.duts.iter().filter(|dut| is_virtual(dut)).count();
        let bed = match virtual_ones {
            0 => self.real_bed()?,
            all if all == suite.duts.len() => self.simulated_bed().map_err(|why| Problem::of_dut(why).into()),
            _ => Err(Problem::of_dut("some routers run in virtual time, the others do not").into()),
        };
        let failed = match bed {
            Ok(bed) => self.joint_tests(bed)?,
            Err(problem) => Some(problem),
        };
        if let Some(failed) = failed {
            self.note(None, &failed.problem.why)?;
            while let Some(index) = self.state.turn.tests.get(self.state.number - self.state.begun).copied() {
                self.state.number += 1;
                let ended = |dut: &DutConfig| failed.status_on(&dut.name, failed.problem.status());
                let each = suite.duts.iter().map(|dut| (ended(dut), Outcome::default())).collect();
                let kept = Kept { test: &suite.tests[index], round: self.state.session.round, elapsed: Duration::ZERO };
                kept.store(&mut *self.observer, &mut self.state.tally, suite, each)?;
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

    fn real_bed(&mut self) -> Result<Result<Bed, JointProblem>, RunError> {
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
                    .map_err(|why| Problem::of_tester(why).into())
            }
            (None, None) => Err(Problem::of_tester("no lab").into()),
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
    fn bring_up_one(
        &mut self,
        dut: &DutConfig,
        contestants: &[Contestant],
    ) -> Result<Up, Result<JointProblem, RunError>> {
        self.observer.progress(&Progress::BringUp { dut: &dut.name, kind: &dut.kind });
        let folder = self.folder(dut).join(FOLDER);
        if let Err(e) = std::fs::create_dir_all(&folder) {
            return Err(Err(RunError::Store(format!("cannot create `{}`: {e}", folder.display()))));
        }
        let one = contestants.iter().find(|one| one.name == dut.name).cloned();
        let (Some(mut lab), Some(one)) = (self.lab(), one) else {
            return Err(Ok(Problem::of_tester(format!("kind `{}` needs the lab", dut.kind)).into()));
        };
        // With an odd number of ports, the last port of each DUT exists but is unused.
        let place = one.ports.start / one.ports.len().max(1);
        lab.begin_at_port(place * self.state.suite.ports.len());
        let observer: &dyn Observer = self.observer;
        match real::bring_up(&mut lab, dut, self.state.suite, &folder, &|| observer.stopped()) {
            Ok(device) => Ok((one, device, folder)),
            Err(_) if self.observer.stopped() => Err(Err(RunError::Interrupted)),
            Err(e) => {
                let why = format!("{} did not come up together with the others: {e}", dut.name);
                let at_fault = vec![dut.name.clone()];
                Err(Ok(JointProblem { problem: Problem::of_dut(why), at_fault, what: "did not come up" }))
            }
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
    fn joint_tests(&mut self, bed: Bed) -> Result<Option<JointProblem>, RunError> {
        let Bed { mut device, folders, ports, configs, config } = bed;
        let contestants = device.contestants();
        let mut duts = self.state.suite.duts.iter().zip(&contestants);
        let known = duts.try_for_each(|(dut, one)| {
            let record = device.record_of(&dut.name);
            self.check_version(dut, &record)?;
            match self.state.recorded.contains(&dut.name) {
                true => Ok(()),
                false => self.keep_record(dut, record, &ports, &config, one.ports.start),
            }
        });
        let result = known.and_then(|()| {
            let rig = Rig::new(ports, &config);
            self.joint_tests_on(&mut device, rig, &configs, &contestants)
        });
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
    ) -> Result<Option<JointProblem>, RunError> {
        let suite = self.state.suite;
        let round = self.state.session.round;
        let left = self.left();
        let names = device.record().name;
        let mut setup = TestSetup::new(&names, configs, rig, device, &mut self.state.session, self.observer);
        setup.facts_mut().contestants = contestants.to_vec();
        setup.bench().bear_host();
        match setup.await_forwarding(&super::families(suite)) {
            Ok(()) => {}
            Err(TestError::Interrupted) => return Err(RunError::Interrupted),
            Err(TestError::Store(e)) => return Err(RunError::Store(e)),
            Err(e) => {
                let ports = std::mem::take(&mut setup.bench().not_ready);
                drop(setup);
                let dead = device.dead();
                let is_not_ready = |one: &&Contestant| one.ports.clone().any(|port| ports.contains(&port));
                let not_ready = contestants.iter().filter(is_not_ready).map(|one| one.name.clone());
                let problem = Problem::of(&e, e.reason());
                return Ok(Some(match dead.is_empty() {
                    true => JointProblem { problem, at_fault: not_ready.collect(), what: "did not forward" },
                    false => JointProblem { problem, at_fault: dead, what: DIED },
                }));
            }
        }
        // The test in which a DUT died, with its results, and how it died.
        let mut fatal = None;
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
            if status == TestStatus::Completed {
                self.state.elapsed.insert(index, elapsed);
            }
            let kept = Kept { test, round, elapsed };
            if let Err(TestError::DutDied(e)) = result {
                fatal = Some((kept, status, outcomes, e));
                break;
            }
            let each = outcomes.into_iter().map(|outcome| (status.clone(), outcome)).collect();
            kept.store(setup.observer(), &mut self.state.tally, suite, each)?;
            match (result, taken_back) {
                (Err(TestError::Interrupted), _) => return Err(RunError::Interrupted),
                (Err(TestError::Store(e)), _) | (_, Err(TestError::Store(e))) => return Err(RunError::Store(e)),
                (_, Ok(())) => {}
                (_, Err(e)) => {
                    drop(setup);
                    let why = format!("filters could not be removed after a test: {}", e.reason());
                    let problem = Problem::of(&e, why);
                    return Ok(Some(JointProblem { problem, at_fault: device.dead(), what: DIED }));
                }
            }
        }
        drop(setup);
        let Some((kept, status, outcomes, e)) = fatal else { return Ok(None) };
        let problem = Problem::of_dut(format!("a DUT died: {e}"));
        let ended = JointProblem { problem, at_fault: device.dead(), what: DIED };
        // Every DUT keeps the sizes that were compared before the death.
        let each = suite.duts.iter().zip(outcomes);
        let each = each.map(|(dut, outcome)| (ended.status_on(&dut.name, status.clone()), outcome)).collect();
        kept.store(&mut *self.observer, &mut self.state.tally, suite, each)?;
        Ok(Some(ended))
    }
}

/// A test of all DUTs that has ended.
struct Kept<'a> {
    test: &'a TestConfig,
    round: u32,
    elapsed: Duration,
}

impl Kept<'_> {
    /// Stores a record for every DUT, with its status and outcome. They are in the order of the suite.
    fn store(
        self,
        observer: &mut dyn Observer,
        tally: &mut Tally,
        suite: &Suite,
        each: Vec<(TestStatus, Outcome)>,
    ) -> Result<(), RunError> {
        let Kept { test, round, elapsed } = self;
        for (dut, (status, mut outcome)) in suite.duts.iter().zip(each) {
            outcome.verdicts.extend(verdicts(&dut.name, test, &outcome, &status));
            tally.count(&status);
            let record = test_record(dut, test, round, elapsed, status, outcome);
            observer.record(&record).map_err(RunError::Store)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_dut_that_died_fails() {
        let failed = || TestStatus::Failed("the device under test died".into());
        let problem = || Problem::of_dut("a DUT died");
        let died = JointProblem { problem: problem(), at_fault: vec!["b".into()], what: DIED };
        assert_eq!(died.status_on("b", failed()), failed());
        let skipped = TestStatus::Skipped("`b` died, so there was nothing to compare with".into());
        assert_eq!(died.status_on("a", failed()), skipped);
        assert_eq!(JointProblem::from(problem()).status_on("a", failed()), failed(), "nobody is known to be at fault");
    }
}
