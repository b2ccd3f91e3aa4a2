//! Runs a suite. For each DUT it brings the DUT up, waits until it forwards, runs the tests and takes it down. A DUT
//! that does not come up or dies affects only its own tests.

mod abreast;
mod ceilings;
mod joint;
mod memory;
mod own_delay;
mod plan;
mod problem;
mod resume;
mod started;
mod stretches;
mod tally;

use crate::config::hosts_and_routers;
use crate::kinds::{installs_routes, is_virtual, mixed_installation, not_applicable, placement, ports_of};
use crate::observer::{Observer, Progress};
use crate::records::{problem_of, status_of, test_record, verdicts};
use crate::route_ceiling::{self, Ceilings};
use crate::routers::carried;
use crate::session::Session;
use crate::setup::{Left, TestSetup};
use crate::validity::HostTolerance;
use crate::{real, simulated};
pub use plan::{estimate, estimates, rounds_within};
pub use resume::{Earlier, Refusal};
pub use tally::Tally;

use ceilings::sending_ceilings;
use drophammer_lab::{Dut, Lab, receiving};
use drophammer_methods::parameters::FAMILIES;
use drophammer_methods::{HighestLoads, Known, METHODS, Method, TestError, Testbed as _, routed};
use drophammer_model::capabilities::{Need, Placement};
use drophammer_model::environment::{DutRecord, Environment};
use drophammer_model::outcome::Outcome;
use drophammer_model::pattern::PatternKey;
use drophammer_model::quantity::FrameRate;
use drophammer_model::record::{Ended, Note, Record, TestStatus};
use drophammer_model::suite::{DutConfig, Suite, TestConfig};
use drophammer_port::{Backend, Port};
use drophammer_rig::{Config, Lender, Ports, Rig, TrialKeys};
use plan::{Mode, Turn, families, plan, shown, turns};
use problem::Problem;
use started::started;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Parameters of a run.
pub struct Run<'a> {
    /// The suite.
    pub suite: &'a Suite,
    /// The lab; `None` if every DUT is simulated.
    pub lab: Option<&'a mut Lab>,
    /// The backend that transfers frames to and from routers that are not simulated.
    pub backend: &'static Backend,
    /// Number of queues of each of the tester's ports, at least one.
    pub queues: u32,
    /// Processors of the tester's threads, one per thread. The first one is for the calling thread, which already
    /// exists. With at most one, the calling thread does all the work.
    pub processors: &'a [usize],
    /// True if trials are kept even if the host was busy with other work.
    pub busy_host: bool,
    /// Opens ports on other hosts, if the run has a connection to them.
    pub lender: Option<&'a dyn Lender>,
    /// Folder for logs and configurations, one subfolder per DUT.
    pub work_dir: &'a Path,
    /// True if frames other than test frames are captured, in a file per port in the DUT's folder.
    pub capture: bool,
    /// Command line, for the record.
    pub command: Vec<String>,
    /// The machine, for the record.
    pub environment: Environment,
    /// Secret that distinguishes this run's frames from frames of other runs.
    pub secret: u64,
    /// Digest of the suite and of everything else that must not change when a run is resumed; see [`Started::digest`].
    pub digest: String,
    /// The earlier part of this run, if it is resumed.
    pub earlier: Option<Earlier>,
}

/// The reason why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Results could not be stored.
    #[error("{0}")]
    Store(String),
    /// A DUT has changed since the run began.
    #[error("the run cannot continue: {0}")]
    Changed(String),
    /// The user stopped the run; all results until then are stored.
    #[error("stopped by the user")]
    Interrupted,
}

pub(crate) fn method(test: &TestConfig) -> &'static dyn Method {
    // The suite was checked against the same list.
    METHODS.iter().copied().find(|m| m.spec().name == test.test).unwrap_or(METHODS[0])
}

/// Returns the title of a test, with its id.
fn title(test: &TestConfig) -> String {
    let id = test.id.as_ref().map_or(String::new(), |id| format!(" ({id})"));
    method(test).spec().title.to_owned() + &id
}

/// Runs `run` and reports everything to `observer`.
///
/// # Errors
/// [`RunError`]. A failure of a DUT is not an error of the run; it is in the records and in the tally.
pub fn run_suite(run: Run<'_>, observer: &mut (dyn Observer + Send)) -> Result<Tally, RunError> {
    let suite = run.suite;
    // If all DUTs are simulated, there is no host to watch.
    let unwatched = run.busy_host && run.lab.is_some();
    let going_on = run.earlier.is_some();
    let earlier = run.earlier.unwrap_or_default();
    let keys = TrialKeys::after(run.secret, earlier.trial);
    let mut session = Session::with(suite.seed, suite.profile, keys, plan::time_for_repeats(suite));
    if run.busy_host {
        session.tolerance.host = HostTolerance::ANY;
    }
    let lab = run.lab.map(Mutex::new);
    let state = State {
        session,
        plan: plan(suite),
        suite,
        lab: lab.as_ref(),
        backend: run.backend,
        queues: run.queues,
        processors: run.processors,
        lender: run.lender,
        work_dir: run.work_dir,
        capture: run.capture,
        tally: earlier.tally,
        number: earlier.done(suite),
        step: 1,
        first_port: 0,
        at_once: None,
        turn: Turn::default(),
        begun: 0,
        elapsed: earlier.elapsed.clone(),
        recorded: earlier.versions.keys().cloned().collect(),
        highest: BTreeMap::new(),
        known: BTreeMap::new(),
        beaten: BTreeMap::new(),
        earlier,
    };
    let mut runner = Runner { observer, state };
    if going_on {
        let of = runner.state.earlier.of;
        let turns = of - runner.state.earlier.todo.len();
        runner
            .note(None, &format!("the run continues: {turns} of {of} turns (one router in one round) are complete"))?;
    } else {
        let started = started(suite, &run.command, run.digest, run.environment, unwatched);
        runner.keep(&Record::Started(Box::new(started)))?;
    }
    let ended = runner.all();
    // An end record would make a run look complete although records could not be stored: a line as short as this might
    // still fit on the disk.
    if let Err(e @ (RunError::Store(_) | RunError::Changed(_))) = ended {
        return Err(e);
    }
    let interrupted = matches!(ended, Err(RunError::Interrupted));
    let time = runner.observer.time();
    runner.keep(&Record::Ended(Ended { time, interrupted }))?;
    ended?;
    Ok(runner.state.tally)
}

struct Runner<'o, 'a, 'l> {
    observer: &'o mut (dyn Observer + Send),
    state: State<'a, 'l>,
}

/// The state of a run, except for its observer. Each of several DUTs that are up at the same time has a copy.
#[derive(Clone)]
struct State<'a, 'l> {
    suite: &'a Suite,
    lab: Option<&'a Mutex<&'l mut Lab>>,
    backend: &'static Backend,
    queues: u32,
    processors: &'a [usize],
    lender: Option<&'a dyn Lender>,
    work_dir: &'a Path,
    capture: bool,
    session: Session,
    /// `(test, estimate)` for the whole run, in order.
    plan: Vec<(usize, Duration)>,
    /// Number of tests started.
    number: usize,
    /// The current turn.
    turn: Turn,
    /// Value of `number` when the turn started.
    begun: usize,
    /// By how much the number grows from one test of this DUT to the next: the number of DUTs that share the turn.
    step: usize,
    /// The tester's first port that faces this DUT.
    first_port: usize,
    /// How many DUTs of a turn can be up at the same time, if already decided.
    at_once: Option<usize>,
    /// DUTs that have a record.
    recorded: BTreeSet<String>,
    /// Duration of each test on an earlier DUT, as the best estimate for the next DUT.
    elapsed: BTreeMap<usize, Duration>,
    /// Highest loads, by backend. A load that the tester could not offer to one DUT is not offered to later DUTs.
    highest: BTreeMap<&'static str, HighestLoads>,
    /// Findings of the tests of this turn, by backend: a throughput found with one backend may be too high for another.
    known: BTreeMap<&'static str, Known>,
    /// Rates that exceeded the tester's measured ceiling and so prove it too low, by backend.
    beaten: BTreeMap<&'static str, BTreeMap<PatternKey, FrameRate>>,
    tally: Tally,
    /// Results of the earlier part of this run.
    earlier: Earlier,
}

impl<'a, 'l> Runner<'_, 'a, 'l> {
    /// Locks the lab for a short time. The thread whose turn it is to use the machine also uses the lab.
    fn lab(&self) -> Option<MutexGuard<'a, &'l mut Lab>> {
        self.state.lab.map(|lab| lab.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&mut self, record: &Record) -> Result<(), RunError> {
        let mut record = record.clone();
        if let Record::Started(started) = &mut record {
            started.time = self.observer.time();
        }
        self.observer.record(&record).map_err(RunError::Store)
    }

    fn note(&mut self, dut: Option<&str>, text: &str) -> Result<(), RunError> {
        let shown = dut.map_or(text.to_owned(), |dut| format!("{dut}: {text}"));
        self.observer.progress(&Progress::Note { text: &shown, problem: true });
        let note =
            Note { time: self.observer.time(), dut: dut.map(str::to_owned), text: text.to_owned(), problem: true };
        self.keep(&Record::Note(note))
    }

    fn all(&mut self) -> Result<(), RunError> {
        let suite = self.state.suite;
        // The loop uses the same kind of interfaces as routers in namespaces. It does not measure the ceiling of the
        // user's own interfaces.
        let in_namespace = |d: &DutConfig| placement(d) == Some(Placement::Lab);
        let namespaces = suite.duts.iter().any(in_namespace);
        if namespaces && let Some(problem) = self.lab().and_then(|lab| lab.too_many_neighbours(&suite.ports, 1)) {
            self.note(None, &problem)?;
        }
        let ceilings = match self.state.earlier.ceilings.take() {
            Some(ceilings) => ceilings,
            None if namespaces => self.ceilings()?,
            None => Ceilings::default(),
        };
        let all = turns(suite).into_iter().enumerate();
        let todo = std::mem::take(&mut self.state.earlier.todo);
        for (_, turn) in all.filter(|(at, _)| self.state.earlier.of == 0 || todo.contains(at)).collect::<Vec<_>>() {
            self.state.session.round = turn.round;
            self.state.begun = self.state.number;
            self.state.turn = turn;
            match self.state.turn.mode {
                Mode::Alone => self.turn(&suite.duts[self.state.turn.duts[0]], &ceilings)?,
                Mode::Abreast => self.abreast(&ceilings)?,
                Mode::Joint => self.joint_turn()?,
            }
        }
        Ok(())
    }

    /// Brings a DUT up and runs the tests of its turn.
    fn turn(&mut self, dut: &DutConfig, ceilings: &Ceilings) -> Result<(), RunError> {
        self.state.known.clear();
        let problem = if is_virtual(dut) { self.simulated(dut, ceilings)? } else { self.real(dut, ceilings)? };
        if let Some(problem) = problem {
            self.note(Some(&dut.name), &problem.why)?;
            self.skip_rest(dut, &problem)?;
        }
        if self.observer.stopped() {
            return Err(RunError::Interrupted);
        }
        Ok(())
    }

    /// Returns the folder of a DUT; with several rounds, there is one per round.
    fn folder(&self, dut: &DutConfig) -> PathBuf {
        let folder = self.state.work_dir.join(&dut.name);
        if self.state.suite.rounds > 1 { folder.join(format!("round-{}", self.state.session.round)) } else { folder }
    }

    /// Records that the remaining tests of a DUT could not be started, with the reason.
    fn skip_rest(&mut self, dut: &DutConfig, problem: &Problem) -> Result<(), RunError> {
        while let Some(index) = self.state.turn.tests.get((self.state.number - self.state.begun) / self.state.step) {
            let test = &self.state.suite.tests[*index];
            self.state.number += self.state.step;
            let status = match test.is_for(&dut.name) {
                true => problem.status(),
                false => TestStatus::NotAsked,
            };
            self.state.tally.count(&status);
            let round = self.state.session.round;
            self.keep(&test_record(dut, test, round, Duration::ZERO, status, Outcome::default()))?;
        }
        Ok(())
    }

    /// Records the properties of a DUT and of its ports, which start at the tester's port `first`.
    fn keep_record(
        &mut self,
        dut: &DutConfig,
        record: DutRecord,
        ports: &Ports,
        config: &Config,
        first: usize,
    ) -> Result<(), RunError> {
        let mut record = DutRecord {
            ports: real::port_records(&self.state.suite.ports, ports, config, first),
            installs_routes: self.state.suite.bgp.as_ref().and_then(|_| installs_routes(dut)),
            ..record
        };
        if !is_virtual(dut) {
            record.confinement += receiving();
        }
        self.check_version(dut, &record)?;
        self.state.recorded.insert(dut.name.clone());
        self.keep(&Record::Dut(record))
    }

    /// Checks that a DUT has the same version as in the earlier part of the run.
    fn check_version(&self, dut: &DutConfig, record: &DutRecord) -> Result<(), RunError> {
        let (name, now) = (&dut.name, &record.version);
        let Some(then) = self.state.earlier.versions.get(name).filter(|then| *then != now) else { return Ok(()) };
        let remedy = format!("install `{then}` again, or begin a new run without --resume");
        Err(RunError::Changed(format!("{name} was `{then}` when the run began, but now it is `{now}`; {remedy}")))
    }

    fn simulated(&mut self, dut: &DutConfig, ceilings: &Ceilings) -> Result<Option<Problem>, RunError> {
        self.observer.progress(&Progress::BringUp { dut: &dut.name, kind: &dut.kind });
        let (clock, ports, mut device) = match simulated::bring_up(
            dut,
            &ports_of(dut, &self.state.suite.ports),
            self.state.queues,
            self.state.suite.seed,
        ) {
            Ok(parts) => parts,
            Err(e) => return Ok(Some(Problem::of_dut(e))),
        };
        let ports = ports.into_iter().map(|p| Box::new(p) as Box<dyn Port>).collect();
        let ports = Ports::One { ports, clock: Box::new(clock) };
        let config = self.config(dut);
        self.keep_record(dut, device.record(), &ports, &config, 0)?;
        self.tests(dut, Rig::new(ports, &config), device.as_mut(), ceilings, 0..self.state.turn.tests.len())
    }

    /// Returns the configuration of the suite's emulated hosts and routers in front of this DUT.
    fn config(&self, dut: &DutConfig) -> Config {
        hosts_and_routers(&ports_of(dut, &self.state.suite.ports), &families(self.state.suite), self.state.suite.seed)
    }

    fn real(&mut self, dut: &DutConfig, ceilings: &Ceilings) -> Result<Option<Problem>, RunError> {
        self.observer.progress(&Progress::BringUp { dut: &dut.name, kind: &dut.kind });
        let folder = self.folder(dut);
        if let Err(e) = std::fs::create_dir_all(&folder) {
            return Err(RunError::Store(format!("cannot create `{}`: {e}", folder.display())));
        }
        let observer: &dyn Observer = self.observer;
        let brought_up = match self.lab() {
            Some(mut lab) => {
                lab.begin_at_port(self.state.first_port);
                let device = real::bring_up(&mut lab, dut, self.state.suite, &folder, &|| observer.stopped());
                lab.begin_at_port(0);
                device
            }
            None => return Ok(Some(Problem::of_tester(format!("kind `{}` needs the lab", dut.kind)))),
        };
        let mut device = match brought_up {
            Ok(device) => device,
            Err(_) if self.observer.stopped() => return Err(RunError::Interrupted),
            Err(e) => return Ok(Some(Problem::of_dut(format!("the DUT did not come up: {e}")))),
        };
        let result = self.real_tests(dut, device.as_mut(), ceilings);
        if let Err(e) = real::take_down(device, &folder) {
            self.note(Some(&dut.name), &format!("{} could not be taken down: {e}", dut.name))?;
        }
        result
    }

    /// Returns the time that the rest of the run after test `number` (from 0) will take.
    fn after(&self, number: usize) -> Duration {
        let left = self.state.plan.iter().skip(number + 1);
        left.map(|step| self.time_of(step)).sum()
    }

    /// Returns the time that a step of the plan takes: the time of its test on another DUT, or the estimate.
    fn time_of(&self, (test, estimate): &(usize, Duration)) -> Duration {
        // The test does not apply to the DUT of this step.
        if estimate.is_zero() {
            return Duration::ZERO;
        }
        self.state.elapsed.get(test).copied().unwrap_or(*estimate)
    }

    /// Returns the time left at the start of each test of the turn.
    fn left(&self) -> Vec<Left> {
        let of = |place: usize| {
            let first = self.state.begun + place * self.state.step;
            let time = self.time_of(&self.state.plan[first]);
            // The steps that run this test on the other DUTs are adjacent to this one.
            let around = self.state.step - 1;
            let near = first.saturating_sub(around)..(first + around + 1).min(self.state.plan.len());
            let same = |at: &usize| *at != first && self.state.plan[*at].0 == self.state.plan[first].0;
            let others = near.filter(same).take(around).map(|at| self.time_of(&self.state.plan[at])).sum();
            Left { others, ..Left::new(self.after(self.state.begun + (place + 1) * self.state.step - 1), time) }
        };
        (0..self.state.turn.tests.len()).map(of).collect()
    }

    fn tests(
        &mut self,
        dut: &DutConfig,
        rig: Rig,
        device: &mut dyn Dut,
        ceilings: &Ceilings,
        tests: Range<usize>,
    ) -> Result<Option<Problem>, RunError> {
        let suite = self.state.suite;
        let backend = rig.port(0).backend;
        let left = self.left();
        let round = self.state.session.round;
        let mut frames = ceilings.frames.get(backend).cloned().unwrap_or_default();
        frames.extend(self.state.beaten.get(backend).cloned().unwrap_or_default());
        let known = self.known_with(backend, &frames);
        let ports = ports_of(dut, &suite.ports);
        let mut setup = TestSetup::new(&dut.name, &ports, rig, device, &mut self.state.session, self.observer);
        setup.facts_mut().ceilings = frames;
        setup.facts_mut().flows = suite.flows.clone();
        *setup.known() = known;
        // The sessions of the tests before this ended with their ports.
        setup.routing.state.ended_some = tests.start > 0;
        let placement = placement(dut);
        if placement == Some(Placement::Lab) {
            setup.routing.state.ceilings = ceilings.routes.clone();
            setup.facts_mut().orders = ceilings.orders.clone();
            setup.facts_mut().own_delays = ceilings.own_delays.clone();
        }
        if let Err(e) = setup.await_forwarding(&families(suite)) {
            return match e {
                TestError::Interrupted => Err(RunError::Interrupted),
                TestError::Store(e) => Err(RunError::Store(e)),
                e => Ok(Some(Problem::of(&e, e.reason()))),
            };
        }
        let on_host = placement == Some(Placement::Host);
        if on_host && let Err(e) = sending_ceilings(&mut setup, dut, suite) {
            return match e {
                TestError::Interrupted => Err(RunError::Interrupted),
                TestError::Store(e) => Err(RunError::Store(e)),
                e => {
                    let why = format!("the load that the tester can offer could not be measured: {}", e.reason());
                    Ok(Some(Problem::of(&e, why)))
                }
            };
        }
        if on_host && !route_ceiling::pairs(suite).is_empty() {
            drophammer_methods::Testbed::note(
                &mut setup,
                "the tester's own time for routes is not measured, because its ports are not connected to each other",
            );
        }
        for place in tests.clone() {
            let index = self.state.turn.tests[place];
            let test = &suite.tests[index];
            let (method, title) = (method(test), title(test));
            setup.reach(place + 1);
            let number = self.state.number + 1;
            self.state.number += self.state.step;
            if !test.is_for(&dut.name) {
                let record = test_record(dut, test, round, Duration::ZERO, TestStatus::NotAsked, Outcome::default());
                setup.observer().record(&record).map_err(RunError::Store)?;
                continue;
            }
            setup.begin_test(method, &test.params, Left { since: Instant::now(), ..left[place] });
            let left = setup.left.now();
            let (number, of) = shown(&self.state.plan, number);
            setup.observer().progress(&Progress::Test { dut: &dut.name, title: &title, number, of, left });
            let mut outcome = Outcome::default();
            let result = match not_applicable(dut, method.spec(), test) {
                Some(why) => Err(TestError::NotApplicable(why)),
                None => routed::release(&mut setup, method.spec(), &test.params)
                    .and_then(|()| method.run(&mut setup, &test.params, &mut outcome)),
            };
            // A test that only counts sessions has no routes.
            if method.spec().needs == [Need::Bgp] && FAMILIES.find(&test.params).is_some() {
                outcome.notes.extend(mixed_installation(suite));
                outcome.notes.extend(carried::note(&suite.ports));
            }
            outcome.notes.extend(setup.routing.bench.take_hosts_note());
            self.state.highest.insert(backend, setup.known().highest.clone());
            self.state.beaten.entry(backend).or_default().extend(setup.beaten.clone());
            let taken_back = setup.end_test();
            let elapsed = setup.left.since.elapsed();
            let status = status_of(&result);
            outcome.verdicts.extend(verdicts(&dut.name, test, &outcome, &status));
            self.state.tally.count(&status);
            if status == TestStatus::Completed {
                self.state.elapsed.insert(index, elapsed);
            }
            let problem = problem_of(&status);
            setup.observer().progress(&Progress::TestEnded { dut: &dut.name, title: &title, problem });
            let record = test_record(dut, test, round, elapsed, status, outcome);
            setup.observer().record(&record).map_err(RunError::Store)?;
            match result {
                Err(TestError::Interrupted) => return Err(RunError::Interrupted),
                Err(TestError::Store(e)) => return Err(RunError::Store(e)),
                Err(TestError::DutDied(e)) => return Ok(Some(Problem::of_dut(format!("the DUT died: {e}")))),
                _ => {}
            }
            match taken_back {
                Ok(()) => {}
                Err(TestError::Store(e)) => return Err(RunError::Store(e)),
                Err(e) => {
                    let why = format!("filters, classes or links could not be restored after a test: {}", e.reason());
                    return Ok(Some(Problem::of(&e, why)));
                }
            }
        }
        if tests.end == self.state.turn.tests.len() {
            memory::note(&mut setup);
            return Ok(None);
        }
        self.state.known.insert(backend, std::mem::take(setup.known()));
        stretches::end_sessions(&mut setup)
    }
}
