//! What the tests of the program share.

pub mod command_lines;
pub mod devtools;
pub mod pages;
pub mod workers;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PORTS: &str = "ports:\n  - {name: p1, speed: 1 Gbit/s}\n  - {name: p2, speed: 1 Gbit/s}\n";

pub fn drophammer() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drophammer"));
    command.stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

pub fn run(args: &[&str]) -> Output {
    drophammer().args(args).output().expect("the command starts")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes a suite with these routers and tests into `dir`.
pub fn suite(dir: &Path, duts: &str, tests: &str) -> PathBuf {
    let path = dir.join("suite.yaml");
    let defaults = "defaults: {frame_sizes: [64], direction: unidirectional}\n";
    let content = format!("suite: small\ntitle: A small one\nduts:\n{duts}{PORTS}{defaults}tests:\n{tests}");
    std::fs::write(&path, content).expect("the suite is written");
    path
}

pub fn records(dir: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(dir.join("run.jsonl")).expect("records");
    text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
}

pub fn kind_of(record: &serde_json::Value) -> &str {
    record["record"].as_str().unwrap_or("")
}

/// Most frames by which the kernel's count of a trial may differ. The router may send frames of its own, such as ARP
/// requests, between a reading of the counters and the trial.
const MOST_OFF: i64 = 5;

/// Checks how the kernel's counters of the tester's interfaces agree with the tester's own counts, as `report.json` of the
/// run in `dir` tells it of a test: to the frame, but for single frames in few trials. All valid trials must have been
/// compared; returns their number.
pub fn assert_the_kernel_agrees(dir: &Path, test: &str) -> usize {
    let report = std::fs::read_to_string(dir.join("report.json")).expect("the report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let tests = report["tests"].as_array().expect("tests").iter().filter(|of| of["test"] == test);
    let results = tests.flat_map(|of| of["results"].as_array().expect("results"));
    let all: Vec<&serde_json::Value> = results.map(|of| &of["kernel_counts"]).filter(|of| !of.is_null()).collect();
    let number = |value: &serde_json::Value| value.as_i64().expect("a number");
    for counts in &all {
        for way in ["sent", "received"] {
            let (agree, most_off) = (number(&counts[way]["agree"]), number(&counts[way]["most_off"]));
            // Only the tester sends at its own interfaces; at the router's, its kernel may.
            let trials = number(&counts["trials"]);
            let least = if way == "sent" { trials - 1 } else { (trials - 1) / 2 };
            assert!(most_off.abs() <= MOST_OFF && agree >= least, "{test}, {way}: {counts}");
        }
    }
    let is_valid = |r: &&serde_json::Value| {
        kind_of(r) == "trial" && r["test"] == test && r["result"]["validity"]["verdict"] == "valid"
    };
    let valid = records(dir).iter().filter(is_valid).count();
    assert_eq!(all.iter().map(|counts| number(&counts["trials"])).sum::<i64>(), valid as i64, "{test}: {all:?}");
    valid
}

/// The folder of a stored run.
pub fn stored() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/stored_run/format-1")
}
