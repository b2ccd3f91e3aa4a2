//! Routers that only pass BGP routes on: GoBGP between external peers, and GoBGP and BIRD as reflectors of routes with labels and of VPN
//! routes. Every route arrives at the other peer, right, and leaves again.

use crate::anew::{Case, Checked};
use crate::common::program::run_in_lab;
use crate::common::{cell, rows};
use drophammer_lab::{Lab, missing};
use drophammer_model::record::TestStatus;
use drophammer_model::suite::{DutConfig, Params};

/// Number of routes of a table, and of routes that are sent one at a time.
const ROUTES: u32 = 4_000;
const SAMPLES: u32 = 10;

fn passes_on(lab: &mut Lab, kind: &str, bgp: &str) -> Checked {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let suite = format!(
        "suite: reflectors\nprofile: quick\nrounds: 1\nduts:\n  - {{name: dut, kind: {kind}}}\nports:\n  \
         - {{name: p1, speed: 100 Mbit/s}}\n  - {{name: p2, speed: 100 Mbit/s}}\nbgp: {bgp}\n\
         defaults: {{families: [ipv4, ipv6], establish: 30 s}}\ntests:\n  \
         - bgp_table_capacity: {{step: {ROUTES}, max_routes: {ROUTES}, hold: 100 ms}}\n  \
         - bgp_pass_through: {{samples: {SAMPLES}}}\n"
    );
    let memory = run_in_lab(lab, &suite, folder.path())?;
    let of_dut: Vec<_> = memory.tests().into_iter().filter(|test| test.dut == "dut").collect();
    if let Some(test) = of_dut.iter().find(|test| test.status != TestStatus::Completed) {
        return Err(format!("{}: {:?} {:?}", test.test, test.status, test.outcome.notes));
    }
    let [table, one_by_one] = of_dut[..] else { return Err(format!("{} tests", of_dut.len())) };
    let told = table.outcome.notes.iter().any(|note| note.contains("which the router reflects"));
    if told != bgp.contains("routes:") {
        return Err(format!("{:?}", table.outcome.notes));
    }
    for row in 0..2 {
        let of = |column| cell(&table.outcome, "bgp_table_capacity", row, column).unwrap_or(f64::NAN);
        eprintln!(
            "{kind} {bgp}: {} routes verified in {:.3} s, {:.3} s of processor, {:.1} MiB",
            of("verified"),
            of("step_s"),
            of("cpu_s"),
            of("memory_mib")
        );
        if [of("verified"), of("missing"), of("wrong")] != [f64::from(ROUTES), 0.0, 0.0] {
            return Err(format!("{:?} {:?}", table.outcome.tables, table.outcome.notes));
        }
    }
    // Advertised and withdrawn, in both families.
    let all = 0..rows(&one_by_one.outcome, "bgp_pass_through").len();
    let samples: Vec<_> = all.map(|row| cell(&one_by_one.outcome, "bgp_pass_through", row, "samples")).collect();
    if samples != [Some(f64::from(SAMPLES)); 4] {
        return Err(format!("of {SAMPLES} routes each {samples:?} passed"));
    }
    Ok(())
}

/// GoBGP gives external routes that it advertises to a client the ORIGINATOR_ID of a router in another AS (RFC 4456 section 8).
fn marks_external_routes(lab: &mut Lab) -> Checked {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let suite = "suite: marked\nprofile: quick\nrounds: 1\nduts:\n  - {name: dut, kind: gobgp}\nports:\n  \
                 - {name: p1, speed: 100 Mbit/s}\n  - {name: p2, speed: 100 Mbit/s}\nbgp: {internal: [p2]}\n\
                 tests:\n  - bgp_table_capacity: {step: 10, max_routes: 10, patience: 1 s, families: [ipv4, ipv6]}\n";
    let memory = run_in_lab(lab, suite, folder.path())?;
    let outcome = memory.outcome("bgp_table_capacity");
    for row in 0..2 {
        let of = |column| cell(outcome, "bgp_table_capacity", row, column);
        if [of("verified"), of("missing"), of("wrong")] != [Some(0.0), Some(0.0), Some(10.0)] {
            return Err(format!("{:?} {:?}", outcome.tables, outcome.notes));
        }
    }
    Ok(())
}

/// The cases.
pub fn cases() -> Vec<Case> {
    let all = [
        ("gobgp", "{}"),
        ("gobgp", "{md5: sesame, gtsm: true}"),
        ("gobgp", "{internal: [p1, p2]}"),
        ("gobgp", "{internal: [p1, p2], routes: labelled}"),
        ("gobgp", "{internal: [p1, p2], routes: vpn}"),
        ("bird", "{internal: [p1, p2], routes: labelled}"),
        ("bird", "{internal: [p1, p2], routes: vpn}"),
    ];
    let lacks = |kind: &str| {
        let dut = DutConfig { name: "dut".into(), kind: kind.into(), params: Params::default(), topology: None };
        missing(&dut, &[]).first().map(ToString::to_string)
    };
    let case = |(kind, bgp): (&'static str, &'static str)| {
        let case = Case::in_lab(format!("{kind} passes routes on, bgp: {bgp}"), move |lab| passes_on(lab, kind, bgp));
        case.waits().again().long().unless(lacks(kind))
    };
    let marked = Case::in_lab("the ORIGINATOR_ID of external routes of gobgp is wrong", marks_external_routes);
    all.into_iter().map(case).chain([marked.waits().again().long().unless(lacks("gobgp"))]).collect()
}
