//! Sessions with TCP MD5 and GTSM between the emulated routers and DUTs of every kind, external and internal, in both
//! families: routes pass, and no stored file contains the key. With another key in the router's configuration no
//! session comes up, and none between a peer without GTSM and a router with it.
//!
//! The lab must be entered by a process with one thread, so this test has no harness. The guest of kind `uml` and the
//! reference device are further instances of this program.

mod common;

use common::program::verdicts::Verdicts;
use common::program::{as_device, run_in_lab};
use common::{cell, rows};
use drophammer_lab::kinds::uml::{self, guest};
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::record::TestStatus;
use std::path::Path;
use std::process::ExitCode;

const KEY: &str = "sesame4711";

/// Routers with a configuration in files, as `(kind, file, template)`.
const TEMPLATES: [(&str, &str, &str); 4] = [
    ("frr", "bgpd.conf", FRR),
    ("bird", "bird.conf", include_str!("../../lab/templates/bird.conf.j2")),
    ("openbgpd", "bgpd.conf", include_str!("../../lab/templates/openbgpd.conf.j2")),
    ("uml", "bgpd.conf", FRR),
];

/// The user's template of FRR covers all daemons.
const FRR: &str =
    concat!(include_str!("../../lab/templates/frr.conf.j2"), include_str!("../../lab/templates/bgpd.conf.j2"));

/// Those of [`TEMPLATES`] that this machine's processor can run.
fn templates() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let without_uml = uml::unfit_processor().is_some();
    TEMPLATES.into_iter().filter(move |(kind, ..)| !(without_uml && *kind == "uml"))
}

/// Both kinds of protection.
fn both() -> String {
    format!("md5: {KEY}, gtsm: true, ")
}

fn suite(duts: &str, protection: &str) -> String {
    format!(
        "suite: protected\nprofile: quick\nrounds: 1\nduts:\n{duts}ports:\n  - {{name: p1, speed: 10 Mbit/s}}\n  \
         - {{name: p2, speed: 10 Mbit/s}}\nbgp: {{{protection}internal: [p2]}}\n\
         tests:\n  - bgp_pass_through: {{samples: 20, families: [ipv4, ipv6], establish: 20 s}}\n"
    )
}

/// Checks that no file in the folder contains the key.
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
    let mut duts: String = templates().map(|(kind, ..)| format!("  - {{name: {kind}, kind: {kind}}}\n")).collect();
    duts += "  - {name: reference, kind: reference, links: veth}\n";
    let memory = run_in_lab(lab, &suite(&duts, &both()), folder.path())?;
    let tests = memory.tests();
    let outcomes: Vec<_> = tests.iter().filter(|t| t.test == "bgp_pass_through").collect();
    let routers = templates().count() + 1;
    if outcomes.len() != routers {
        return Err(format!("{} of {routers} routers were tested", outcomes.len()));
    }
    for test in outcomes {
        let table = "bgp_pass_through";
        if test.status != TestStatus::Completed {
            return Err(format!("{}: {:?}", test.dut, test.status));
        }
        let all: Vec<_> =
            (0..rows(&test.outcome, table).len()).map(|row| cell(&test.outcome, table, row, "samples")).collect();
        // Advertised and withdrawn, in both families.
        if all != [Some(20.0); 4] {
            return Err(format!("{}: of 20 routes each {all:?} passed", test.dut));
        }
    }
    let kept = serde_json::to_string(&memory.records).map_err(|e| e.to_string())?;
    if kept.contains(KEY) || !kept.contains("password") {
        return Err("the records show the key, or no configuration".into());
    }
    for (kind, file, _) in templates() {
        let shown = std::fs::read_to_string(folder.path().join(kind).join(file)).map_err(|e| e.to_string())?;
        if !shown.contains("<secret>") {
            return Err(format!("{file} of {kind} is kept as\n{shown}"));
        }
    }
    key_is_not_in(folder.path())
}

/// A router with the configuration `template` accepts no session of peers with this protection; the test fails with a
/// cause that `because` accepts.
fn refuses(
    lab: &mut Lab,
    kind: &str,
    template: &str,
    protection: &str,
    because: fn(&str) -> bool,
) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = folder.path().join("template");
    std::fs::write(&file, template).map_err(|e| e.to_string())?;
    let dut = format!("  - {{name: {kind}, kind: {kind}, template: {}}}\n", file.display());
    let memory = run_in_lab(lab, &suite(&dut, protection).replace("20 s}", "3 s}"), folder.path())?;
    match memory.tests().iter().find(|test| test.test == "bgp_pass_through").map(|test| &test.status) {
        Some(TestStatus::Completed) => Err("the session came up".into()),
        Some(ended) if because(&format!("{ended:?}")) => key_is_not_in(folder.path()),
        Some(ended) => Err(format!("it ended otherwise: {ended:?}")),
        None => Err("there was no test".into()),
    }
}

fn main() -> ExitCode {
    if let Some(code) = as_device() {
        return code;
    }
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|a| a == guest::SUBCOMMAND) {
        return match guest::run(&args[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        };
    }
    let mut verdicts = Verdicts::begin();
    match Lab::enter(&LabOptions::default()) {
        Ok(mut lab) => {
            verdicts.count("sessions with every kind are signed and routes pass", same_keys(&mut lab));
            if let Some(why) = uml::unfit_processor() {
                println!("    without uml: {why}");
            }
            for (kind, _, template) in templates() {
                // The kernel drops segments signed with another key without an answer.
                let silent = |why: &str| {
                    why.contains("does not answer on TCP") && why.contains("keys of the two sides may differ")
                };
                let other_key = template.replace("{{ bgp.md5 }}", "another");
                let name = format!("{kind} with another key takes no session");
                verdicts.count(&name, refuses(&mut lab, kind, &other_key, &both(), silent));
                // It may accept what arrives before it has set the socket's least TTL, an OPEN, and nothing after it.
                let deaf = |why: &str| why.contains("is not up after 3 s") || why.contains("was not passed on");
                let with_gtsm = template.replace("{% if bgp.gtsm %}", "{% if true %}");
                let name = format!("{kind} with GTSM takes no session of peers without");
                verdicts.count(&name, refuses(&mut lab, kind, &with_gtsm, "", deaf));
            }
        }
        Err(e) => verdicts.count("the lab is entered", Err(e.to_string())),
    }
    verdicts.end()
}
