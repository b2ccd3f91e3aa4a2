//! Helpers of the command's tests. Not every test uses all of them.
#![allow(dead_code)]

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

/// The folder of a stored run.
pub fn stored() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/stored_run/format-1")
}
