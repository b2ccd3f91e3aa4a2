//! Suites on the reference device, and an observer that stores everything in memory.

#![allow(dead_code)] // each test file uses only a part

pub mod label_chain;
pub mod program;

use drophammer_lab::Dut;
use drophammer_methods::METHODS;
use drophammer_methods::pattern::Pattern;
use drophammer_model::environment::Environment;
use drophammer_model::outcome::{Cell, Outcome, Row};
use drophammer_model::pattern::PatternKey;
use drophammer_model::record::{Record, TestRecord, TrialRecord};
use drophammer_model::registry::Registry;
use drophammer_model::suite::Suite;
use drophammer_model::trial::Family;
use drophammer_port::simulated::SimulatedClock;
use drophammer_port::{Clock, Port, pass_on};
use drophammer_reference::{Config, Faults};
use drophammer_rig::{Ports, Rig};
use drophammer_suite::{Overrides, read};
use drophammer_testbed::config::hosts_and_routers;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::{self, NoDut, Reference, ReferenceSystem};
use drophammer_testbed::validity::HostTolerance;
use drophammer_testbed::{Observer, Progress, Run, RunError, Session, kinds, run_suite};
use std::path::Path;
use std::time::Duration;

/// Reads a suite with ports of 100 Mbit/s (148,809 fps of 64 bytes) and one reference device with `params`.
pub fn suite(params: &str, rest: &str) -> Suite {
    let text = format!(
        "suite: known\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference{params}}}\n\
         ports:\n  - {{name: p1, speed: 100 Mbit/s}}\n  - {{name: p2, speed: 100 Mbit/s}}\n{rest}"
    );
    read_suite(&text)
}

/// Reads a suite for a run in one round.
pub fn read_suite(text: &str) -> Suite {
    read_suite_in_rounds(text, Some(1))
}

/// Reads a suite for a run in `rounds` rounds, or in the number of rounds that the suite gives.
pub fn read_suite_in_rounds(text: &str, rounds: Option<u32>) -> Suite {
    let tests: Vec<_> = METHODS.iter().map(|m| m.spec()).collect();
    let kinds = kinds::specs();
    let registry = Registry { tests: &tests, kinds: &kinds };
    let overrides = Overrides { rounds, ..Overrides::default() };
    read::read(text, "known.yaml", &registry, &overrides).unwrap_or_else(|e| panic!("{e:?}\n{text}"))
}

/// Stores records; stops and fails on request.
#[derive(Clone, Default)]
pub struct Memory {
    pub records: Vec<Record>,
    /// Requests a stop when this many trials are stored.
    pub stop_after: Option<usize>,
    /// Fails to store a trial when this many are stored.
    pub full_after: Option<usize>,
    pub tests_begun: Vec<(usize, usize)>,
}

impl Memory {
    pub fn trials(&self) -> Vec<&TrialRecord> {
        self.records.iter().filter_map(|r| if let Record::Trial(t) = r { Some(&**t) } else { None }).collect()
    }

    pub fn tests(&self) -> Vec<&TestRecord> {
        self.records.iter().filter_map(|r| if let Record::Test(t) = r { Some(&**t) } else { None }).collect()
    }

    pub fn outcome(&self, test: &str) -> &Outcome {
        &self.tests().into_iter().find(|t| t.test == test).unwrap_or_else(|| panic!("no {test}")).outcome
    }
}

impl Observer for Memory {
    fn record(&mut self, record: &Record) -> Result<(), String> {
        // A full disk still has room for a short line.
        if matches!(record, Record::Trial(_)) && self.full_after.is_some_and(|n| self.trials().len() >= n) {
            return Err("no space left on device".into());
        }
        self.records.push(record.clone());
        Ok(())
    }

    fn progress(&mut self, progress: &Progress<'_>) {
        if let Progress::Test { number, of, .. } = progress {
            self.tests_begun.push((*number, *of));
        }
    }

    fn stopped(&self) -> bool {
        self.stop_after.is_some_and(|n| self.trials().len() >= n)
    }

    fn time(&self) -> String {
        "2026-01-01T00:00:00Z".into()
    }
}

/// Runs a suite to its end.
pub fn run(suite: &Suite, memory: &mut Memory) -> Result<drophammer_testbed::runner::Tally, RunError> {
    run_on_queues(suite, 1, memory)
}

/// Like [`run`], with `queues` queues for each port of the tester.
pub fn run_on_queues(
    suite: &Suite,
    queues: u32,
    memory: &mut Memory,
) -> Result<drophammer_testbed::runner::Tally, RunError> {
    run_suite(run_of(suite, queues), memory)
}

/// A run of `suite` without a lab, on a host where other programs may disturb it.
pub fn run_of(suite: &Suite, queues: u32) -> Run<'_> {
    Run {
        suite,
        lab: None,
        backend: &drophammer_port::INTERFACE_BACKENDS[0],
        processors: &[],
        lender: None,
        busy_host: true,
        work_dir: Path::new("/nonexistent"),
        queues,
        capture: false,
        command: vec!["drophammer".into(), "run".into()],
        environment: Environment::default(),
        digest: String::new(),
        earlier: None,
        secret: 5,
    }
}

/// Makes a bed with the reference device of `suite`'s first DUT, changed by `change`, and resolves `families`. Passes
/// the bed and the device to `use_it`.
pub fn with_bed<T>(
    suite: &Suite,
    families: &[Family],
    change: impl FnOnce(&mut Config),
    use_it: impl FnOnce(&mut TestSetup<'_>, &Reference) -> T,
) -> T {
    with_bed_by(suite, families, change, |clock| Box::new(clock), use_it)
}

/// Like [`with_bed`], with another clock for the tester.
pub fn with_bed_by<T>(
    suite: &Suite,
    families: &[Family],
    change: impl FnOnce(&mut Config),
    clock: impl FnOnce(SimulatedClock) -> Box<dyn Clock>,
    use_it: impl FnOnce(&mut TestSetup<'_>, &Reference) -> T,
) -> T {
    let dut = &suite.duts[0];
    let mut config = simulated::config(dut, &suite.ports, suite.seed);
    change(&mut config);
    let parts = simulated::build_with(config, dut, &suite.ports, suite.seed).unwrap();
    let ports = one_thread(parts.ports, clock(parts.clock));
    with_setup(suite, families, ports, &mut NoDut, &mut Memory::default(), |bed| {
        resolve(bed);
        use_it(bed, &parts.reference)
    })
}

/// Combines these ports and their clock, all in one thread.
pub fn one_thread<P: Port + 'static>(ports: Vec<P>, clock: Box<dyn Clock>) -> Ports {
    Ports::One { ports: ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect(), clock }
}

/// Connects `device` to these ports of the first DUT of `suite`.
pub fn with_setup<T>(
    suite: &Suite,
    families: &[Family],
    ports: Ports,
    device: &mut dyn Dut,
    observer: &mut dyn Observer,
    use_it: impl FnOnce(&mut TestSetup<'_>) -> T,
) -> T {
    let rig = Rig::new(ports, &hosts_and_routers(&suite.ports, families, suite.seed));
    let mut session = Session::new(suite.seed, suite.profile, 5);
    session.tolerance.host = HostTolerance::ANY;
    use_it(&mut TestSetup::new(&suite.duts[0].name, &suite.ports, rig, device, &mut session, observer))
}

/// Waits until the hosts know the addresses of the device.
pub fn resolve(bed: &mut TestSetup<'_>) {
    let mut left = 100;
    while bed.rig().unresolved().is_some() {
        assert!(left > 0, "the device does not tell its address");
        left -= 1;
        drophammer_methods::Testbed::settle(bed, Duration::from_millis(20)).unwrap();
    }
}

/// Makes a bed with the system of routers of `suite`'s first DUT, and resolves the hosts. Records all events in
/// `memory`.
pub fn with_system<T>(
    suite: &Suite,
    families: &[Family],
    memory: &mut Memory,
    use_it: impl FnOnce(&mut TestSetup<'_>, &ReferenceSystem) -> T,
) -> T {
    let dut = &suite.duts[0];
    let topology = dut.topology.as_ref().unwrap();
    let mut parts = simulated::build_system(dut, topology, &suite.ports, 1, suite.seed).unwrap();
    let ports = one_thread(parts.ports, Box::new(parts.clock));
    with_setup(suite, families, ports, &mut parts.device, memory, |bed| {
        bed.await_forwarding(families).unwrap();
        use_it(bed, &parts.reference)
    })
}

/// Runs the only test of `suite`. Only the first router of the system has faults.
pub fn with_faults_of_the_first(suite: &Suite, faults: Faults) -> (Outcome, Memory) {
    let (mut memory, mut outcome) = (Memory::default(), Outcome::default());
    let test = &suite.tests[0];
    with_system(suite, &[Family::Ipv4], &mut memory, |bed, system| {
        system.change(|network| network.change(0, |router| router.set_faults(faults))).unwrap();
        drophammer_methods::find(&test.test).unwrap().run(bed, &test.params, &mut outcome).unwrap();
        bed.end_test().unwrap();
    });
    (outcome, memory)
}

/// The faults that a suite configures for its first DUT.
pub fn faults_of(suite: &Suite) -> Faults {
    simulated::config(&suite.duts[0], &suite.ports, suite.seed).faults
}

/// Rows of a table.
pub fn rows<'a>(outcome: &'a Outcome, table: &str) -> &'a [Row] {
    &outcome.tables.iter().find(|t| t.key == table).unwrap_or_else(|| panic!("no table {table}")).rows
}

/// The number in a cell.
pub fn cell(outcome: &Outcome, table: &str, row: usize, column: &str) -> Option<f64> {
    let t = outcome.tables.iter().find(|t| t.key == table).unwrap_or_else(|| panic!("no table {table}"));
    let at = t.columns.iter().position(|c| c.key == column).unwrap_or_else(|| panic!("no column {column}"));
    match &t.rows[row].cells[at] {
        Cell::Count(n) => Some(*n as f64),
        Cell::Number(x) => Some(*x),
        Cell::None => None,
        Cell::Text(text) => panic!("{column} is the text {text}"),
    }
}

/// The pattern with frames of this size in IPv4, with the first port of each pair sending.
pub fn one_way(size: &str) -> PatternKey {
    Pattern::one_way(size.parse().unwrap(), vec![Family::Ipv4], 0.0).key()
}

/// A port that cannot send ahead.
pub struct FrameByFrame(pub Box<dyn Port>);

/// Makes all ports of a bed ports that cannot send ahead.
pub fn one_by_one(bed: &mut TestSetup<'_>) {
    let Ports::One { ports, .. } = bed.rig().parts().0 else { panic!("virtual time has one thread") };
    *ports = std::mem::take(ports).into_iter().map(|port| Box::new(FrameByFrame(port)) as _).collect();
}

impl Port for FrameByFrame {
    pass_on!(0: info, slots, send, receive, counters);
}
