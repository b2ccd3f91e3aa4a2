//! A guest is killed while it forwards frames: the run reports that and continues with the next router.

use crate::common::{Memory, read_suite};
use drophammer_lab::Lab;
use drophammer_model::record::{Record, TestStatus};
use drophammer_testbed::{Observer, Progress, Run, run_suite};
use std::path::Path;
use std::process::Command;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

const SUITE: &str = "suite: killed\nprofile: quick\nrounds: 1\nduts:\n  - {name: first, kind: uml, routing: static, memory: 64}\n  \
                     - {name: second, kind: linux}\nports:\n  - {name: p1, speed: 1 Mbit/s, ipv6: off}\n  \
                     - {name: p2, speed: 1 Mbit/s, ipv6: off}\ntests:\n  \
                     - frame_loss_rate: {frame_sizes: [64], families: [ipv4], trial_duration: 2 s}\n";
/// Time limit, even on a busy machine, for the end of a guest to be detected and reported, and for everything after it.
const LIMIT: Duration = Duration::from_secs(90);
/// Number of frames that have been sent when the guest is killed.
const FRAMES: u64 = 200;

/// Kills the guest in the first trial.
#[derive(Default)]
struct Killer {
    memory: Memory,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Observer for Killer {
    fn record(&mut self, record: &Record) -> Result<(), String> {
        self.memory.record(record)
    }

    fn progress(&mut self, progress: &Progress<'_>) {
        let [guest] = super::guests()[..] else { return };
        if matches!(progress, Progress::TrialStarted { .. }) && self.thread.is_none() {
            self.thread = Some(spawn(move || kill_under_load(guest)));
        }
    }

    fn stopped(&self) -> bool {
        false
    }

    fn time(&self) -> String {
        self.memory.time()
    }
}

fn kill_under_load(guest: u32) -> Result<(), String> {
    let sent = || -> Option<u64> {
        std::fs::read_to_string("/sys/class/net/t0/statistics/tx_packets").ok()?.trim().parse().ok()
    };
    let (begun, before) = (Instant::now(), sent().ok_or("t0 has no counter")?);
    while sent().is_some_and(|now| now < before + FRAMES) {
        if begun.elapsed() > LIMIT {
            return Err(format!("no {FRAMES} frames left in {LIMIT:?}"));
        }
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-KILL", &guest.to_string()]).status().map_err(|e| e.to_string())?;
    if killed.success() { Ok(()) } else { Err(killed.to_string()) }
}

/// Checks that the test of the killed guest fails with the cause, that the test of the next router completes, and that
/// nothing is left behind.
pub fn in_a_trial(lab: &mut Lab, folder: &Path) -> Result<(), String> {
    let suite = read_suite(SUITE);
    let mut killer = Killer::default();
    let begun = Instant::now();
    let run = Run {
        suite: &suite,
        lab: Some(lab),
        backend: &drophammer_port::INTERFACE_BACKENDS[0],
        queues: 1,
        processors: &[],
        lender: None,
        busy_host: true,
        work_dir: folder,
        capture: false,
        command: vec!["drophammer".into(), "run".into()],
        environment: Default::default(),
        digest: String::new(),
        earlier: None,
        secret: 5,
    };
    run_suite(run, &mut killer).map_err(|e| e.to_string())?;
    killer.thread.ok_or("no trial was started")?.join().map_err(|_| "the thread that kills panicked")??;
    let tests = killer.memory.tests();
    let statuses: Vec<_> = tests.iter().filter(|t| t.dut != "tester").map(|t| (t.dut.as_str(), &t.status)).collect();
    let why = match &statuses[..] {
        [("first", TestStatus::Failed(why)), ("second", TestStatus::Completed)] => why,
        other => return Err(format!("the first fails, the second completes: {other:?}")),
    };
    if !why.contains("died") || !why.contains("uml") || !why.contains("signal: 9") {
        return Err(format!("the cause is not told: {why}"));
    }
    let took = begun.elapsed();
    println!("    two routers in {:.1} s; {}", took.as_secs_f64(), why.lines().next().unwrap_or_default());
    if took > LIMIT {
        return Err(format!("it took {took:?}"));
    }
    super::nothing_left()
}
