//! The `drophammer` command: arguments, progress, exit codes.
//!
//! # Commands other than run
//!
//! `drophammer listen` counts the frames that arrive at an interface (`testbed/src/listen.rs`) by `wire::conversation`, without a rig.
//! `drophammer bgp` is a rig of one port with one emulated router (`testbed/src/speaker.rs`), and so are `ospf`, `ldp`, `rsvp` and `bfd`
//! (`testbed/src/neighbour.rs`). `drophammer blast --dut` brings a router up as a run does
//! (`testbed::real`), with the addresses of a suite of two ports.
//!
//! `run --live` serves a page from separate threads, one per connection (`cli/src/live.rs`). The observer passes each
//! event to them. `live/request.rs` reads the requests: the server has only a few paths, so it needs no web library.
//! One more thread (`live/rates.rs`) gets the rates of the current trial: `Progress::Traffic` passes `Live` to it, and
//! the lanes answer `Live::totals` between two bursts without a lock (`traffic/src/totals.rs`).
//!
//! `run --detach` (`cli/src/detach.rs`) starts the program again, in a separate session, before the run does anything
//! else. Each run records its process in `process.jsonl` and locks the file (`cli/src/running.rs`). `watch` and `stop`
//! (`cli/src/watch.rs`) read that file to see whether the run is still active. `serve` starts runs of its clients in the same way
//! (`cli/src/served.rs`), and confines what their suites name (`cli/src/confined.rs`).
//!
//! `drophammer history` (`report/src/compare/history.rs`) compares each run with the previous one. `drophammer doctor`
//! (`cli/src/doctor.rs`) checks what a run would check (backends, kinds, the lab) and judges the results. It measures
//! nothing.
//!
//! `drophammer compare` reads several run folders. `report/src/compare` pairs their figures by test, figure and DUT, compares them without pairing
//! rounds (`judge::statistics::compare_unpaired`), and names the conditions that differ.
//!
//! `drophammer plan` prints the suite as it would run (`testbed::estimates`; `Method::trials` gives the trials of each
//! test). `lab/src/by_hand.rs` makes the configuration for the role: FRR and BIRD use the templates of their kinds,
//! other vendors have separate templates.
//!
//! `drophammer selftest` is a run whose DUTs are the tester's own backends. `testbed/src/selftest/` connects the ports
//! in a loop, runs the methods of `methods/src/selftest/` on it, starts the reference device once per fault, and
//! computes the verdict. `port/src/auto.rs` chooses the backend of a run for which the user names none.
//!
//! `drophammer agent` and `drophammer bed` (`cli/src/hosts.rs`) are all of the crate `agent` that has no suite. A run whose suite
//! names interfaces of other hosts connects to them (`Run::lender`).

// These macros panic when a pipe is closed; `output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bgp;
mod blast;
mod clock;
mod compare;
mod confined;
mod describe;
mod detach;
mod diagnostics;
mod doctor;
mod hosts;
mod init;
mod key_file;
mod listen;
mod live;
mod masked;
mod neighbour;
mod observer;
mod on_link;
mod output;
mod pdf;
mod plan;
mod progress;
mod resume;
mod run;
mod running;
mod selftest;
mod serve;
mod served;
mod suite_file;
mod watch;

use args::{Command, parse};
use drophammer_model::visible::visible;
use drophammer_testbed::{device, xdp_router};
use output::err;
use std::fmt::Display;
use std::process::ExitCode;

/// Exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All tests were done and all criteria were met.
    Good = 0,
    /// A test failed or a DUT died, but the report exists; or a run is worse than another.
    Failed = 1,
    /// The command line or the suite is wrong; nothing was started.
    Usage = 2,
    /// The machine forbids or lacks something that the command needs.
    Environment = 3,
    /// Results could not be stored.
    Store = 4,
    /// All tests were done and no criterion missed, but the rounds do not show whether one is met; or no figure of a
    /// run could be compared with another run.
    Undecided = 5,
    /// The tester or its machine spoilt a test in every round, so that nothing is known about the DUT. No other test
    /// failed.
    Unfit = 6,
    /// A criterion of the suite was missed; no router failed a test.
    Missed = 7,
    /// Stopped by the user; the report contains the results so far.
    Interrupted = 130,
}

impl Exit {
    fn of(code: i32) -> Option<Exit> {
        use Exit::*;
        let all = [Good, Failed, Usage, Environment, Store, Undecided, Unfit, Missed, Interrupted];
        all.into_iter().find(|exit| *exit as i32 == code)
    }

    /// What it means for a run.
    fn meaning(self) -> &'static str {
        match self {
            Exit::Good => "done; all criteria are met",
            Exit::Failed => "a router failed a test",
            Exit::Usage => "the command line or the suite is wrong",
            Exit::Environment => "the machine lacks something",
            Exit::Store => "results could not be stored",
            Exit::Undecided => "a criterion is undecided",
            Exit::Unfit => "the tester or its machine spoilt a test",
            Exit::Missed => "a criterion was missed",
            Exit::Interrupted => "the run was stopped",
        }
    }

    /// The exit code of a comparison of runs.
    fn compared(is_worse: bool, is_open: bool) -> Exit {
        match (is_worse, is_open) {
            (true, _) => Exit::Failed,
            (_, true) => Exit::Undecided,
            _ => Exit::Good,
        }
    }
}

/// The reason why a command ended early.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    /// The cause, with the remedy after the last semicolon; empty if it was already printed.
    text: String,
}

impl Failure {
    /// A failure with this exit code.
    pub fn new(exit: Exit, text: impl Display) -> Failure {
        Failure { exit, text: text.to_string() }
    }

    /// The command line or the suite is wrong.
    pub fn usage(text: impl Display) -> Failure {
        Failure::new(Exit::Usage, text)
    }

    /// The machine forbids or lacks something.
    pub fn environment(text: impl Display) -> Failure {
        Failure::new(Exit::Environment, text)
    }

    /// Results could not be stored.
    pub fn store(text: impl Display) -> Failure {
        Failure::new(Exit::Store, text)
    }

    /// A wrong command line or suite whose errors were already printed.
    pub fn told() -> Failure {
        Failure::usage("")
    }

    /// Prints the error and returns the exit code.
    pub fn print(self) -> Exit {
        if !self.text.is_empty() {
            err!("error: {}", diagnostics::with_help(&visible(&self.text, &['\n'])));
        }
        self.exit
    }
}

/// The result of a command.
pub type Ended = Result<Exit, Failure>;

fn main() -> ExitCode {
    let part = |ended: Result<(), String>| ended.map(|()| Exit::Good).map_err(Failure::environment);
    let ended = match parse() {
        Command::Run(args) => run::run(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::Stop { dir } => watch::stop(&dir),
        Command::Blast(args) => blast::run(&args),
        Command::Listen(args) => listen::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Bgp(args) => bgp::run(&args),
        Command::Ospf(args) => neighbour::ospf(&args),
        Command::Ldp(args) => neighbour::ldp(&args),
        Command::Rsvp(args) => neighbour::rsvp(&args),
        Command::Bfd(args) => neighbour::bfd(&args),
        Command::Check(args) => suite_file::check(&args),
        Command::Init { ports, out } => init::init(&ports, &out),
        Command::Plan(args) => plan::plan(&args),
        Command::Schema => describe::schema(),
        Command::List { what } => describe::list(what),
        Command::Report { dir, out, pdf } => run::report(&dir, out.as_deref(), pdf),
        Command::Compare { runs, json } => compare::compare(&runs, json),
        Command::History(args) => compare::history(&args),
        Command::Selftest(args) => selftest::run(&args),
        Command::Doctor { json } => doctor::run(json),
        Command::Completions { shell } => describe::completions(shell),
        Command::Man { out } => describe::manual(&out),
        Command::Agent(args) => hosts::agent(&args),
        Command::Bed(command) => hosts::bed(&command),
        Command::Clean => run::clean(),
        Command::UmlGuest { arguments } => part(drophammer_lab::kinds::uml::guest::run(&arguments)),
        Command::XdpRouter { arguments } => part(xdp_router::run(&arguments)),
        Command::ReferenceDevice { arguments } => part(device::run(&arguments)),
    };
    ExitCode::from(ended.unwrap_or_else(Failure::print) as u8)
}
