//! `drophammer selftest`: what this tester can do on this machine and these ports. For each backend it measures the
//! ceiling, the load without loss, the evenness of sending and the latency that the tester adds, and checks each
//! counter against the reference device.
//!
//! The result is stored like a run, with the backends in place of routers, so that the same report shows them side by side.

mod clock;
mod counters;
mod verdict;

use crate::config::joined_in_pairs;
use crate::observer::{Observer, Progress};
use crate::records::{problem_of, status_of};
use crate::runner::{RunError, Tally};
use crate::session::Session;
use crate::setup::{Left, TestSetup};
use crate::{real, simulated};
use drophammer_lab::{Lab, LabError, TesterInterface};
use drophammer_methods::parameters::{DRAIN, FRAME_SIZES, PAUSE};
use drophammer_methods::selftest::{TRIAL_DURATION, latency_floor, loss_floor, pacing};
use drophammer_methods::tester_ceiling::REPEATS;
use drophammer_methods::{Method, TestError, tester_ceiling};
use drophammer_model::environment::{DutRecord, Environment, TESTER_KIND};
use drophammer_model::outcome::Outcome;
use drophammer_model::record::{Ended, FORMAT, Note, Record, SELF_TEST, Started, TestRecord, TestStatus};
use drophammer_model::role::RouterRole;
use drophammer_model::size::PacketSize;
use drophammer_model::suite::{DutConfig, Params, PortConfig, Profile};
use drophammer_model::trial::Family;
use drophammer_port::{Backend, SystemClock};
use drophammer_rig::{Ports, Rig};
use std::path::Path;
use std::time::{Duration, Instant};

/// Parameters of a self-test.
pub struct SelfTest<'a> {
    /// The lab.
    pub lab: &'a mut Lab,
    /// Backends to test, in order.
    pub backends: Vec<&'static Backend>,
    /// Interfaces of the host that are connected by a cable, instead of a loop of virtual links: a DUT of kind `external`.
    pub cabled: Option<DutConfig>,
    /// Two ports, with addresses.
    pub ports: Vec<PortConfig>,
    /// Frame sizes.
    pub sizes: Vec<PacketSize>,
    /// Length of a trial.
    pub trial: Duration,
    /// Number of trials for each figure.
    pub repeats: u32,
    /// Seed of every pseudo-random choice.
    pub seed: u64,
    /// Folder for logs.
    pub work_dir: &'a Path,
    /// Command line, for the record.
    pub command: Vec<String>,
    /// The machine, for the record.
    pub environment: Environment,
    /// Secret that distinguishes this run's frames from frames of other runs.
    pub secret: u64,
}

/// Name of the run.
pub const NAME: &str = "selftest";

/// A step of the self-test.
#[derive(Clone, Copy)]
enum Step {
    /// A test on the loop.
    Loop(&'static dyn Method),
    /// The clock.
    Clock,
    /// The counters, on the reference device.
    Counters,
}

/// The steps in order of execution. The verdict, which follows from them, comes first in the report.
static STEPS: &[Step] = &[
    Step::Loop(&tester_ceiling::TesterCeiling),
    Step::Loop(&loss_floor::LossFloor),
    Step::Clock,
    Step::Loop(&pacing::Pacing),
    Step::Loop(&latency_floor::LatencyFloor),
    Step::Counters,
];

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Loop(method) => method.spec().name,
            Step::Clock => clock::NAME,
            Step::Counters => counters::NAME,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Step::Loop(method) => method.spec().title,
            Step::Clock => clock::TITLE,
            Step::Counters => counters::TITLE,
        }
    }
}

/// Runs the self-test and reports everything to `observer`.
///
/// # Errors
/// [`RunError`]. Limits of a backend are not errors of the run; they are in the records and in the tally.
pub fn run_self_test(test: SelfTest<'_>, observer: &mut dyn Observer) -> Result<Tally, RunError> {
    let session = Session::new(test.seed, Profile::Quick, test.secret);
    let mut runner = Runner { test, observer, session, tally: Tally::default() };
    let started = Record::Started(Box::new(runner.started()));
    runner.keep(&started)?;
    let ended = runner.all();
    if let Err(RunError::Store(e)) = ended {
        return Err(RunError::Store(e));
    }
    let time = runner.observer.time();
    runner.keep(&Record::Ended(Ended { time, interrupted: ended.is_err() }))?;
    ended?;
    Ok(runner.tally)
}

struct Runner<'a> {
    test: SelfTest<'a>,
    observer: &'a mut dyn Observer,
    session: Session,
    tally: Tally,
}

/// How the tester's ports are connected.
enum Joined {
    Virtual(drophammer_lab::Loop),
    Cabled(Box<dyn drophammer_lab::Dut>),
}

impl Joined {
    fn interfaces(&self) -> &[TesterInterface] {
        match self {
            Joined::Virtual(links) => links.interfaces(),
            Joined::Cabled(ports) => ports.interfaces(),
        }
    }

    fn confinement(&self) -> String {
        match self {
            Joined::Virtual(links) => links.confinement().to_owned(),
            Joined::Cabled(ports) => ports.record().confinement,
        }
    }

    fn take_down(self) -> Result<(), LabError> {
        match self {
            Joined::Virtual(links) => links.take_down(),
            Joined::Cabled(ports) => ports.take_down(),
        }
    }
}

impl Runner<'_> {
    fn started(&self) -> Started {
        let verdict = [(verdict::NAME.to_owned(), verdict::TITLE.to_owned())];
        let steps = STEPS.iter().map(|s| (s.name().to_owned(), s.title().to_owned()));
        Started {
            format: FORMAT,
            time: self.observer.time(),
            suite: NAME.into(),
            title: "Self-test: what this tester is good for, by backend".into(),
            about: Default::default(),
            profile: SELF_TEST.into(),
            conformant: false,
            deviations: Vec::new(),
            seed: self.test.seed,
            duts: self.test.backends.iter().map(|b| b.spec.name.to_owned()).collect(),
            tests: verdict.into_iter().chain(steps).collect(),
            rounds: 1,
            command: self.test.command.clone(),
            digest: String::new(),
            environment: self.test.environment.clone(),
            baseline: None,
        }
    }

    fn keep(&mut self, record: &Record) -> Result<(), RunError> {
        self.observer.record(record).map_err(RunError::Store)
    }

    fn problem(&mut self, backend: &str, text: &str) -> Result<(), RunError> {
        self.observer.progress(&Progress::Note { text: &format!("{backend}: {text}"), problem: true });
        let time = self.observer.time();
        self.keep(&Record::Note(Note { time, dut: Some(backend.to_owned()), text: text.to_owned(), problem: true }))
    }

    /// Returns the parameters of a step.
    fn params(&self, method: &dyn Method) -> Params {
        let test = &self.test;
        let short = Duration::from_millis(500).min(test.trial);
        // Pacing is measured with one size, because other sizes only differ in processor time per byte.
        let sizes = if method.spec().name == "pacing" { vec![test.sizes[0].clone()] } else { test.sizes.clone() };
        let ceiling = method.spec().name == tester_ceiling::NAME;
        let mut params = drophammer_suite::defaults(method.spec().params, Profile::Quick);
        FRAME_SIZES.set(&mut params, sizes);
        TRIAL_DURATION.set(&mut params, if ceiling { short } else { test.trial });
        if REPEATS.find(&params).is_some() {
            REPEATS.set(&mut params, test.repeats);
        }
        DRAIN.set(&mut params, Duration::from_millis(200));
        PAUSE.set(&mut params, Duration::from_millis(20));
        params
    }

    /// Returns the time that the steps from `from` take for one backend.
    fn estimate(&self, from: usize) -> Duration {
        let one = |step: &Step| match step {
            Step::Loop(method) => method.plan(&self.params(*method)).estimate(0),
            Step::Clock => clock::DURATION,
            Step::Counters => counters::estimate(),
        };
        STEPS[from.min(STEPS.len())..].iter().map(one).sum()
    }

    fn all(&mut self) -> Result<(), RunError> {
        for index in 0..self.test.backends.len() {
            let backend = self.test.backends[index];
            let name = backend.spec.name;
            let mut found = verdict::Found::default();
            self.observer.progress(&Progress::BringUp { dut: name, kind: TESTER_KIND });
            if let Err(problem) = self.on_loop(backend, index, &mut found)? {
                self.problem(name, &problem)?;
                self.tally.failed += 1;
            }
            self.counters(backend, index, &mut found)?;
            let outcome = found.outcome();
            let status = TestStatus::Completed;
            let record = test_record(name, (verdict::NAME, verdict::TITLE), &Params::default(), 0.0, status, outcome);
            self.keep(&record)?;
        }
        Ok(())
    }

    /// Connects the ports.
    fn join(&mut self) -> Result<Joined, LabError> {
        let test = &mut self.test;
        let Some(cabled) = &test.cabled else {
            return test.lab.loop_without_dut(&test.ports).map(Joined::Virtual);
        };
        let kind = drophammer_lab::find(&cabled.kind).ok_or_else(|| LabError::Unusable {
            what: format!("there is no kind `{}`", cabled.kind),
            remedy: "this is a bug in Drophammer".into(),
        })?;
        let observer: &dyn Observer = self.observer;
        let role = RouterRole::of(&test.ports);
        kind.bring_up(test.lab, cabled, &role, test.work_dir, &|| observer.stopped()).map(Joined::Cabled)
    }

    /// Runs all steps on the loop. The inner error is reported to the user and ends the part of this backend.
    fn on_loop(
        &mut self,
        backend: &'static Backend,
        index: usize,
        found: &mut verdict::Found,
    ) -> Result<Result<(), String>, RunError> {
        let name = backend.spec.name;
        if let Err(e) = (backend.usable)() {
            return Ok(Err(e));
        }
        let joined = match self.join() {
            Ok(joined) => joined,
            Err(_) if self.observer.stopped() => return Err(RunError::Interrupted),
            Err(e) => return Ok(Err(format!("the ports could not be connected: {e}"))),
        };
        let clock = SystemClock::start();
        let ports = match real::open_apart(self.test.lab, joined.interfaces(), backend, 1, clock) {
            Ok(ports) => Ports::real(ports, clock, &[]),
            Err(e) => return Ok(Err(e)),
        };
        let configs = self.test.ports[..ports.len()].to_vec();
        let config = joined_in_pairs(&configs, self.test.seed);
        let record = DutRecord {
            name: name.into(),
            kind: TESTER_KIND.into(),
            version: concat!("Drophammer ", env!("CARGO_PKG_VERSION")).into(),
            confinement: joined.confinement(),
            ports: real::port_records(&configs, &ports, &config, 0),
            ..DutRecord::default()
        };
        found.ports.clone_from(&record.ports);
        self.keep(&Record::Dut(record))?;
        let lefts: Vec<Left> = (0..STEPS.len()).map(|at| self.left(index, at)).collect();
        let params: Vec<Params> = STEPS.iter().map(|s| self.step_params(*s)).collect();
        let of = STEPS.len() * self.test.backends.len();
        let device = &mut simulated::NoDut;
        let rig = Rig::new(ports, &config);
        let mut setup = TestSetup::new(name, &configs, rig, device, &mut self.session, self.observer);
        let mut ended = setup.await_forwarding(&[Family::Ipv4]);
        for (at, step) in STEPS.iter().enumerate() {
            if ended.is_err() {
                break;
            }
            let left = Left { since: Instant::now(), ..lefts[at] };
            match step {
                Step::Loop(method) if step.name() == tester_ceiling::NAME => {
                    setup.begin_test(*method, &params[at], left);
                }
                _ => setup.begin_own(step.name(), left),
            }
            let progress = Progress::Test {
                dut: name,
                title: step.title(),
                number: index * STEPS.len() + at + 1,
                of,
                left: setup.left.now(),
            };
            let mut outcome = Outcome::default();
            let result = match step {
                Step::Loop(method) => {
                    setup.observer().progress(&progress);
                    method.run(&mut setup, &params[at], &mut outcome)
                }
                Step::Clock => {
                    setup.observer().progress(&progress);
                    clock::measure(&clock, &mut outcome);
                    Ok(())
                }
                Step::Counters => continue,
            };
            if step.name() == tester_ceiling::NAME {
                setup.facts_mut().ceilings = tester_ceiling::ceilings_in(&outcome, &params[at]);
            }
            found.take(&outcome);
            let status = status_of(&result);
            let elapsed = setup.left.since.elapsed().as_secs_f64();
            match problem_of(&status) {
                None => self.tally.completed += 1,
                Some(_) => self.tally.failed += 1,
            }
            let ended_now = Progress::TestEnded { dut: name, title: step.title(), problem: problem_of(&status) };
            setup.observer().progress(&ended_now);
            let record = test_record(name, (step.name(), step.title()), &params[at], elapsed, status, outcome);
            setup.observer().record(&record).map_err(RunError::Store)?;
            // A step that the tester could not perform does not prevent the next step.
            ended = match result {
                Err(e @ (TestError::Interrupted | TestError::Store(_) | TestError::DutDied(_))) => Err(e),
                _ => Ok(()),
            };
        }
        drop(setup);
        if let Err(e) = joined.take_down() {
            self.problem(name, &format!("the loop could not be removed: {e}"))?;
        }
        match ended {
            Ok(()) => Ok(Ok(())),
            Err(TestError::Interrupted) => Err(RunError::Interrupted),
            Err(TestError::Store(e)) => Err(RunError::Store(e)),
            Err(e) => Ok(Err(format!("frames do not pass the loop: {e}"))),
        }
    }

    fn step_params(&self, step: Step) -> Params {
        match step {
            Step::Loop(method) => self.params(method),
            Step::Clock | Step::Counters => Params::default(),
        }
    }

    /// Returns the time left at step `at` of backend `index`.
    fn left(&self, index: usize, at: usize) -> Left {
        let backends_after = (self.test.backends.len() - index - 1) as u32;
        let after = self.estimate(at + 1) + self.estimate(0) * backends_after;
        Left::new(after, self.estimate(at).saturating_sub(self.estimate(at + 1)))
    }

    /// Checks the counters of a backend on the reference device.
    fn counters(
        &mut self,
        backend: &'static Backend,
        index: usize,
        found: &mut verdict::Found,
    ) -> Result<(), RunError> {
        let name = backend.spec.name;
        if (backend.usable)().is_err() {
            return Ok(());
        }
        let at = STEPS.len() - 1;
        let left = self.left(index, at);
        let (number, of) = ((index + 1) * STEPS.len(), STEPS.len() * self.test.backends.len());
        self.observer.progress(&Progress::Test { dut: name, title: counters::TITLE, number, of, left: left.now() });
        let begun = Instant::now();
        let mut outcome = Outcome::default();
        let result = counters::prove(&mut self.test, backend, &mut self.session, self.observer, left, &mut outcome);
        found.take(&outcome);
        // The verdict appears only once, for all devices.
        outcome.verdicts.clear();
        let status = status_of(&result);
        match problem_of(&status) {
            None => self.tally.completed += 1,
            Some(_) => self.tally.failed += 1,
        }
        self.observer.progress(&Progress::TestEnded {
            dut: name,
            title: counters::TITLE,
            problem: problem_of(&status),
        });
        let elapsed = begun.elapsed().as_secs_f64();
        self.keep(&test_record(name, (counters::NAME, counters::TITLE), &Params::default(), elapsed, status, outcome))?;
        match result {
            Err(TestError::Interrupted) => Err(RunError::Interrupted),
            Err(TestError::Store(e)) => Err(RunError::Store(e)),
            _ => Ok(()),
        }
    }
}

fn test_record(
    backend: &str,
    (test, title): (&str, &str),
    params: &Params,
    elapsed_s: f64,
    status: TestStatus,
    outcome: Outcome,
) -> Record {
    let (dut, test, title) = (backend.to_owned(), test.to_owned(), title.to_owned());
    Record::Test(Box::new(TestRecord {
        dut,
        test,
        id: None,
        round: 1,
        title,
        parameters: params.to_json(),
        elapsed_s,
        status,
        outcome,
    }))
}
