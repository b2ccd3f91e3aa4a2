//! Sessions with TCP MD5 and GTSM between the emulated routers and DUTs of every kind, external and internal, in both
//! families: routes are exchanged, and no stored file contains the key. If the router's configuration contains another
//! key, no session comes up, and neither does one between a peer without GTSM and a router with GTSM.

use crate::anew::{Case, Checked};
use crate::common::program::run_in_lab;
use crate::common::{cell, rows};
use drophammer_lab::kinds::uml;
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::record::TestStatus;
use std::path::Path;

/// The result of a test, and its name.
type Named = (String, Checked);

const KEY: &str = "sesame4711";

/// Routers with a configuration in files, as `(kind, file, template)`.
const TEMPLATES: [(&str, &str, &str); 4] = [
    ("frr", "bgpd.conf", FRR),
    ("bird", "bird.conf", include_str!("../../../lab/templates/bird.conf.j2")),
    ("openbgpd", "bgpd.conf", include_str!("../../../lab/templates/openbgpd.conf.j2")),
    ("uml", "bgpd.conf", FRR),
];

/// The user's template for FRR covers all daemons.
const FRR: &str =
    concat!(include_str!("../../../lab/templates/frr.conf.j2"), include_str!("../../../lab/templates/bgpd.conf.j2"));

/// The entries of [`TEMPLATES`] that this machine's processor can run.
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
fn key_is_not_in(folder: &Path) -> Checked {
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

fn same_keys(lab: &mut Lab) -> Checked {
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
        // 20 routes were advertised and withdrawn in both families.
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

/// Checks that routers whose templates were modified by `change` accept no session with peers of this protection, and
/// that the test fails with a cause that `because` accepts. Returns one result for each kind.
fn refuse(
    lab: &mut Lab,
    change: fn(&str) -> String,
    protection: &str,
    because: fn(&str) -> bool,
) -> Result<Vec<(&'static str, Checked)>, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut duts = String::new();
    for (kind, _, template) in templates() {
        let file = folder.path().join(format!("{kind}-template"));
        std::fs::write(&file, change(template)).map_err(|e| e.to_string())?;
        duts += &format!("  - {{name: {kind}, kind: {kind}, template: {}}}\n", file.display());
    }
    // For a session that seems to be up, the test waits for a route as long as for the session.
    let suite = suite(&duts, protection).replace("establish: 20 s}", "establish: 3 s, patience: 3 s}");
    let memory = run_in_lab(lab, &suite, folder.path())?;
    let tests = memory.tests();
    let judged = |kind: &str| match tests.iter().find(|t| t.test == "bgp_pass_through" && t.dut == kind) {
        None => Err("there was no test".to_owned()),
        Some(test) if test.status == TestStatus::Completed => Err("the session came up".to_owned()),
        Some(test) if because(&format!("{:?}", test.status)) => key_is_not_in(folder.path()),
        Some(test) => Err(format!("it ended otherwise: {:?}", test.status)),
    };
    Ok(templates().map(|(kind, ..)| (kind, judged(kind))).collect())
}

/// The results of [`refuse`] as `KIND WHAT`.
fn named(what: &str, refused: Result<Vec<(&'static str, Checked)>, String>) -> Vec<Named> {
    match refused {
        Ok(all) => all.into_iter().map(|(kind, result)| (format!("{kind} {what}"), result)).collect(),
        Err(e) => vec![(format!("every kind {what}"), Err(e))],
    }
}

/// The first failure of several results.
fn all_good(results: Vec<Named>) -> Checked {
    results.into_iter().try_for_each(|(name, result)| result.map_err(|why| format!("{name}: {why}")))
}

fn with_every_kind(lab: &mut Lab) -> Vec<Named> {
    vec![("sessions with every kind are signed and routes pass".into(), same_keys(lab))]
}

fn with_another_key(lab: &mut Lab) -> Vec<Named> {
    // The kernel silently drops segments that are signed with another key.
    let silent = |why: &str| why.contains("does not answer on TCP") && why.contains("keys of the two sides may differ");
    let refused = refuse(lab, |template| template.replace("{{ bgp.md5 }}", "another"), &both(), silent);
    named("with another key takes no session", refused)
}

fn with_gtsm_alone(lab: &mut Lab) -> Vec<Named> {
    // The router may accept an OPEN that arrives before it has set the minimum TTL of the socket, but nothing after
    // that.
    let deaf = |why: &str| why.contains("is not up after 3 s") || why.contains("was not re-advertised");
    let refused = refuse(lab, |template| template.replace("{% if bgp.gtsm %}", "{% if true %}"), "", deaf);
    named("with GTSM takes no session of peers without", refused)
}

/// The cases. They measure nothing, but they wait for daemons.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, of: fn(&mut Lab) -> Vec<Named>| {
        let run = move || {
            if let Some(why) = uml::unfit_processor() {
                println!("without uml: {why}");
            }
            all_good(of(&mut Lab::enter(&LabOptions::default()).map_err(|e| e.to_string())?))
        };
        Case::alone(name, run).waits().again().long()
    };
    vec![
        case("sessions with every kind are signed and routes pass", with_every_kind),
        case("no session with another key", with_another_key),
        case("no session of peers without GTSM with routers that have it", with_gtsm_alone),
    ]
}
