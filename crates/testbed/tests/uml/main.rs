//! User Mode Linux as a router under test: VLAN tags, BGP peers on sub-interfaces, and a run whose guest is killed.
//!
//! The lab must be entered by a process with one thread, so this test has no harness: `main` starts itself again for
//! each scenario. The guest's first process is another instance of this program.

#[path = "../common/mod.rs"]
mod common;
mod killed;
mod peers;
mod vlans;

use common::program::verdicts::Verdicts;
use drophammer_lab::kinds::uml::{self, guest};
use drophammer_lab::{Lab, LabOptions};
use std::path::Path;
use std::process::{Command, ExitCode};

type Scenario = fn(&mut Lab, &Path) -> Result<(), String>;

const SCENARIOS: [(&str, Scenario); 3] = [
    ("frames_carry_the_tags_of_the_suite", vlans::tags),
    ("peers_on_sub_interfaces_exchange_routes", peers::many),
    ("a_killed_guest_ends_only_its_own_tests", killed::in_a_trial),
];

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|a| a == guest::SUBCOMMAND) {
        return code(guest::run(&args[1..]));
    }
    if let [flag, name] = &args[..]
        && flag == "--scenario"
    {
        return code(scenario(&name.to_string_lossy()));
    }
    let filter = args.iter().map(|a| a.to_string_lossy()).find(|a| !a.starts_with('-')).unwrap_or_default();
    let mut verdicts = Verdicts::begin();
    let unfit = uml::unfit_processor();
    for (name, _) in SCENARIOS {
        if let Some(why) = &unfit {
            println!("    {name} is left out: {why}");
            verdicts.leave_out(1);
        } else if !name.contains(&*filter) {
            verdicts.leave_out(1);
        } else if args.iter().any(|a| a == "--list") {
            println!("{name}: test");
        } else {
            let program = std::env::current_exe().expect("Linux knows it");
            let status = Command::new(program).args(["--scenario", name]).status();
            verdicts.count(
                name,
                match status {
                    Ok(status) if status.success() => Ok(()),
                    Ok(status) => Err(status.to_string()),
                    Err(e) => Err(e.to_string()),
                },
            );
        }
    }
    verdicts.end()
}

fn code(result: Result<(), String>) -> ExitCode {
    result.map_or_else(
        |e| {
            eprintln!("{e}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn scenario(name: &str) -> Result<(), String> {
    let (_, scenario) = SCENARIOS.iter().find(|(known, _)| *known == name).ok_or("no such scenario")?;
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut lab =
        Lab::enter(&LabOptions { keep: vec![folder.path().to_path_buf()], queues: 1, ..LabOptions::default() })
            .map_err(|e| e.to_string())?;
    scenario(&mut lab, folder.path())
}

/// Kernels of the guests that this process has started.
fn guests() -> Vec<u32> {
    let children = |pid: u32| -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().filter_map(|c| c.parse().ok()).collect::<Vec<u32>>()).collect()
    };
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let all = children(std::process::id()).into_iter().filter(|pid| name(pid) == "init\n").flat_map(children);
    all.filter(|pid| name(pid) == "linux.uml\n").collect()
}

/// A guest that has ended leaves neither taps nor processes.
fn nothing_left() -> Result<(), String> {
    if Path::new("/sys/class/net/t0").exists() || Path::new("/sys/class/net/m0").exists() {
        return Err("a tap is still there".into());
    }
    match &guests()[..] {
        [] => Ok(()),
        left => Err(format!("guests are still there: {left:?}")),
    }
}
