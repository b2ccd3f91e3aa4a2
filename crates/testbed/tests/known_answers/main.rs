//! Known answers on real interfaces: whatever the reference device in a separate process does to frames, the analyzer
//! counts what the device reports, and not one frame is unaccounted for.
//!
//! The lab must be entered by a process with one thread, so this test has no harness. With `DROPHAMMER_FRAMES=10000000`
//! it sends at least this many frames through the device with all faults at once, instead of the cases.

mod bench;
mod cases;
#[path = "../../../lab/tests/verdicts/mod.rs"]
mod verdicts;

use bench::Bench;
use drophammer_lab::{Lab, LabOptions, Links};
use drophammer_testbed::device;
use std::ffi::OsString;
use std::process::ExitCode;
use verdicts::Verdicts;

type Checked = Result<(), String>;
type Case = (&'static str, fn(&Bench) -> Checked);

fn check(good: bool, what: impl FnOnce() -> String) -> Checked {
    if good { Ok(()) } else { Err(what()) }
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|a| a == device::SUBCOMMAND) {
        return match device::run(&args[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("error: {e}");
                ExitCode::FAILURE
            }
        };
    }
    let args: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let all = |links| cases::CASES.iter().map(move |case| (links, case));
    let all: Vec<(Links, &Case)> = all(Links::Veth)
        .chain(all(Links::Tap))
        .filter(|(links, (name, _))| *links == Links::Veth || cases::ON_TAP.contains(name))
        .collect();
    let title = |links: Links, name: &str| format!("{name} on {}", if links == Links::Veth { "veth" } else { "tap" });
    if args.iter().any(|a| a == "--list") {
        all.iter().for_each(|(links, (name, _))| println!("{}: test", title(*links, name)));
        return ExitCode::SUCCESS;
    }
    let filter = args.iter().find(|a| !a.starts_with('-')).cloned().unwrap_or_default();
    let lab = match Lab::enter(&LabOptions::default()) {
        Ok(lab) => lab,
        Err(e) => {
            println!("the lab cannot be entered: {e}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(e) = lab.pin_current_thread(lab.cpus().tester) {
        println!("{e}");
        return ExitCode::FAILURE;
    }
    let mut verdicts = Verdicts::begin();
    if let Ok(frames) = std::env::var("DROPHAMMER_FRAMES") {
        let frames = frames.parse().map_err(|e| format!("DROPHAMMER_FRAMES: {e}"));
        for links in [Links::Veth, Links::Tap] {
            let name = title(links, "all_faults_at_once");
            if name.contains(&filter) {
                let result = frames.clone().and_then(|frames| cases::account(&Bench { lab: &lab, links }, frames));
                verdicts.count(&name, result);
            }
        }
    } else {
        for (links, (name, run)) in all {
            let name = title(links, name);
            if !name.contains(&filter) {
                verdicts.leave_out(1);
                continue;
            }
            // The error must name what the machine does not allow, with the remedy.
            if links == Links::Tap
                && let Err(why) = drophammer_port::tap::usable()
            {
                verdicts.count(&format!("{name} is refused"), cases::refused(&Bench { lab: &lab, links }, &why));
                continue;
            }
            verdicts.count(&name, run(&Bench { lab: &lab, links }));
        }
    }
    verdicts.end()
}
