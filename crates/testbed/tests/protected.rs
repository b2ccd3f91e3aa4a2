//! Sessions with TCP MD5 and GTSM between the emulated routers and real ones, FRR and BIRD on the kernel's TCP: routes pass, and the key
//! is in nothing that is kept. With another key in the router's configuration no session comes up.
//!
//! The lab has to be entered by a process with one thread, so this test has no harness.

mod common;
#[path = "../../lab/tests/verdicts/mod.rs"]
mod verdicts;

use common::{Memory, cell, read_suite, rows};
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::environment::Environment;
use drophammer_model::record::TestStatus;
use drophammer_testbed::{Run, run_suite};
use std::path::Path;
use std::process::ExitCode;
use verdicts::Verdicts;

const KEY: &str = "sesame4711";

fn suite(duts: &str) -> String {
    format!(
        "suite: protected\nprofile: quick\nrounds: 1\nduts:\n{duts}ports:\n  - {{name: p1, speed: 1 Gbit/s}}\n  \
         - {{name: p2, speed: 1 Gbit/s}}\nbgp: {{md5: {KEY}, gtsm: true}}\n\
         tests:\n  - bgp_pass_through: {{samples: 20, establish: 20 s}}\n"
    )
}

fn run(lab: &mut Lab, text: &str, work_dir: &Path) -> Result<Memory, String> {
    let suite = read_suite(text);
    let mut memory = Memory::default();
    for dut in &suite.duts {
        std::fs::create_dir_all(work_dir.join(&dut.name)).map_err(|e| e.to_string())?;
    }
    let run = Run {
        suite: &suite,
        lab: Some(lab),
        backend: &drophammer_port::INTERFACE_BACKENDS[0],
        processors: &[],
        busy_host: true,
        work_dir,
        queues: 1,
        capture: false,
        command: vec!["drophammer".into(), "run".into()],
        environment: Environment::default(),
        secret: 5,
    };
    run_suite(run, &mut memory).map_err(|e| e.to_string())?;
    Ok(memory)
}

/// No file in the folder holds the key.
fn key_is_not_in(folder: &Path) -> Result<(), String> {
    for entry in std::fs::read_dir(folder).map_err(|e| e.to_string())? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            key_is_not_in(&path)?;
        } else if String::from_utf8_lossy(&std::fs::read(&path).map_err(|e| e.to_string())?).contains(KEY) {
            return Err(format!("the key is in {}", path.display()));
        }
    }
    Ok(())
}

fn same_keys(lab: &mut Lab) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let memory = run(lab, &suite("  - {name: frr, kind: frr}\n  - {name: bird, kind: bird}\n"), folder.path())?;
    let tests = memory.tests();
    let outcomes: Vec<_> = tests.iter().filter(|t| t.test == "bgp_pass_through").collect();
    if outcomes.len() != 2 {
        return Err(format!("{} of 2 routers were tested", outcomes.len()));
    }
    for test in outcomes {
        let table = "bgp_pass_through";
        if test.status != TestStatus::Completed {
            return Err(format!("{}: {:?}", test.dut, test.status));
        }
        let all: Vec<_> =
            (0..rows(&test.outcome, table).len()).map(|row| cell(&test.outcome, table, row, "samples")).collect();
        // Advertised and withdrawn.
        if all != [Some(20.0); 2] {
            return Err(format!("{}: of 20 routes each {all:?} passed", test.dut));
        }
    }
    let kept = serde_json::to_string(&memory.records).map_err(|e| e.to_string())?;
    if kept.contains(KEY) || !kept.contains("password") {
        return Err("the records show the key, or no configuration".into());
    }
    let shown = std::fs::read_to_string(folder.path().join("frr/bgpd.conf")).map_err(|e| e.to_string())?;
    if !shown.contains("password <secret>") {
        return Err(format!("bgpd.conf is kept as\n{shown}"));
    }
    key_is_not_in(folder.path())
}

/// A router whose configuration has another key takes no session.
fn other_key(lab: &mut Lab) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let template = folder.path().join("bird.conf.j2");
    let ours = include_str!("../../lab/templates/bird.conf.j2");
    std::fs::write(&template, ours.replace("{{ bgp.md5 }}", "another")).map_err(|e| e.to_string())?;
    let dut = format!("  - {{name: bird, kind: bird, template: {}}}\n", template.display());
    let memory = run(lab, &suite(&dut).replace("20 s}", "3 s}"), folder.path())?;
    match memory.tests().iter().find(|test| test.test == "bgp_pass_through").map(|test| &test.status) {
        Some(TestStatus::Completed) => Err("the session came up with another key".into()),
        // The kernel drops what another key has signed, and answers nothing.
        Some(ended)
            if format!("{ended:?}").contains("does not answer on TCP")
                && format!("{ended:?}").contains("keys of the two sides may differ") =>
        {
            Ok(())
        }
        Some(ended) => Err(format!("it ended otherwise: {ended:?}")),
        None => Err("there was no test".into()),
    }
}

fn main() -> ExitCode {
    let mut verdicts = Verdicts::begin();
    match Lab::enter(&LabOptions::default()) {
        Ok(mut lab) => {
            verdicts.count("sessions with FRR and BIRD are signed and routes pass", same_keys(&mut lab));
            verdicts.count("a router with another key takes no session", other_key(&mut lab));
        }
        Err(e) => verdicts.count("the lab is entered", Err(e.to_string())),
    }
    verdicts.end()
}
