//! A test program that runs each case in its own process, because a process can enter only one lab, and only while it has
//! one thread. Most cases measure, so they run one after the other, except those that mostly wait.
//!
//! The program runs itself again for each case, and shows the output of a case that fails. Long cases are marked as ignored:
//! `make test` skips them, `make test-all` runs them.

#![allow(dead_code)] // each program uses its part

use drophammer_lab::{Lab, LabOptions};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::io::{Read as _, Seek as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Result of a case: why it failed.
pub type Checked = Result<(), String>;

/// Environment variable with the name of the case that the process runs.
const CASE: &str = "DROPHAMMER_TEST_CASE";

/// Cases that mostly wait and run at the same time: each may have routers or guests of its own.
const THREADS: usize = 3;
/// Longer than any case takes, however busy the machine is. A case that hangs fails, and the others still run.
const LIMIT: Duration = Duration::from_secs(600);
/// Held for reading by cases that may run together, for writing by a case that must run alone.
static MACHINE: RwLock<()> = RwLock::new(());

/// A test.
pub struct Case {
    name: String,
    body: Box<dyn Fn() -> Checked + Send>,
    /// Skipped unless the user asks for all tests.
    long: bool,
    /// Other load on the machine may spoil it, so it may fail once.
    again: bool,
    /// It mostly waits, so it runs at the same time as other such cases.
    waits: bool,
    /// Why this machine cannot run it.
    left_out: Option<String>,
}

impl Case {
    /// A case that enters a lab itself, or needs none.
    pub fn alone(name: impl Into<String>, body: impl Fn() -> Checked + Send + 'static) -> Case {
        Case { name: name.into(), body: Box::new(body), long: false, again: false, waits: false, left_out: None }
    }

    /// A case in a lab, on the tester's processor.
    pub fn in_lab(name: impl Into<String>, body: impl Fn(&mut Lab) -> Checked + Send + 'static) -> Case {
        Case::alone(name, move || {
            let mut lab = Lab::enter(&LabOptions::default()).map_err(|e| format!("the lab cannot be entered: {e}"))?;
            lab.pin_current_thread(lab.cpus().tester).map_err(|e| e.to_string())?;
            body(&mut lab)
        })
    }

    /// It takes more than a few seconds.
    #[must_use]
    pub fn long(self) -> Case {
        Case { long: true, ..self }
    }

    /// It measures, and other load on the machine may spoil a figure: it may fail once.
    #[must_use]
    pub fn again(self) -> Case {
        Case { again: true, ..self }
    }

    /// It mostly waits, and measures nothing.
    #[must_use]
    pub fn waits(self) -> Case {
        Case { waits: true, ..self }
    }

    /// Skips the case if there is a reason.
    #[must_use]
    pub fn unless(self, why: Option<impl Into<String>>) -> Case {
        Case { left_out: why.map(Into::into), ..self }
    }
}

/// Runs the case that this process was started for, or else the cases that the arguments select.
pub fn run(cases: Vec<Case>) -> ExitCode {
    run_at_once(THREADS, cases)
}

/// Like [`run`], with this number of cases that mostly wait at the same time.
pub fn run_at_once(threads: usize, mut cases: Vec<Case>) -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        let case = cases.iter().find(|case| case.name == name);
        return match case.map_or_else(|| Err("there is no such case".to_owned()), |case| (case.body)()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads);
    let shown = arguments.nocapture;
    let trial = move |Case { name, long, again, waits, left_out, .. }: Case| {
        let title = name.clone();
        let body = move || match left_out {
            Some(why) => Ok(Completion::ignored_with(why)),
            None if waits => {
                let _beside = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
                completed(in_process(&name, again, shown))
            }
            None => {
                let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
                completed(in_process(&name, again, shown))
            }
        };
        Trial::ignorable_test(title, body).with_ignored_flag(long)
    };
    libtest_mimic::run(&arguments, cases.drain(..).map(trial).collect()).exit_code()
}

fn completed(result: Checked) -> Result<Completion, Failed> {
    result.map(|()| Completion::Completed).map_err(Failed::from)
}

/// Runs the case of this name in its own process, and a second time if it may fail once. Shows its output immediately if
/// `shown`.
fn in_process(name: &str, again: bool, shown: bool) -> Checked {
    match once(name, shown) {
        Err(why) if again => {
            eprintln!("{name}: tried twice, because it failed: {why}");
            once(name, shown)
        }
        other => other,
    }
}

/// Its output goes to a file, because a program that outlives the case would keep a pipe open.
fn once(name: &str, shown: bool) -> Checked {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut output = tempfile::tempfile().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.env(CASE, name).stdin(Stdio::null());
    if !shown {
        let to = || output.try_clone().map_err(|e| e.to_string());
        command.stdout(to()?).stderr(to()?);
    }
    let mut case = command.spawn().map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let ended = loop {
        match case.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => break status.to_string(),
            None if begun.elapsed() > LIMIT => {
                case.kill().and_then(|()| case.wait()).map_err(|e| e.to_string())?;
                break format!("killed after {} s", LIMIT.as_secs());
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut text = Vec::new();
    output.rewind().and_then(|()| output.read_to_end(&mut text)).map_err(|e| e.to_string())?;
    Err(format!("{ended}\n{}", String::from_utf8_lossy(&text)))
}
