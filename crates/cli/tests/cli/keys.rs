//! Keys of BGP sessions that a suite names: they come from a file or from the environment, and never appear in the files
//! or the output of a run.

use crate::common::{drophammer, files_with, text, unwrapped};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The key, which also appears in a fact of the suite and within a longer title.
const SUITE: &str = "suite: keys
title: The run with x-sesame4711-y
about: {note: \"password sesame4711.\"}
duts:
  - {name: known, kind: reference, capacity: 100 kfps}
ports:
  - {name: p1, speed: 1 Gbit/s}
  - {name: p2, speed: 1 Gbit/s}
bgp: {md5_file: key}
tests:
  - fib_convergence: {routes: 100, families: [ipv4]}
";
/// The line and column of the key's place.
const PLACE: &str = "suite.yaml:9:17:";

/// Runs the command in the parent folder of the suite's folder, with the key in `$BGP_KEY`.
fn run_in(folder: &Path, args: &[&str]) -> Output {
    drophammer().args(args).current_dir(folder).env("BGP_KEY", "sesame4711\n").output().unwrap()
}

fn said(output: &Output) -> String {
    unwrapped(&format!("{} {}", text(&output.stdout), text(&output.stderr)))
}

/// A folder `lab` with the suite, which has `bgp` in place of its own section, and the key.
fn lab(bgp: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lab")).unwrap();
    std::fs::write(folder.path().join("lab/suite.yaml"), SUITE.replace("{md5_file: key}", bgp)).unwrap();
    std::fs::write(folder.path().join("lab/key"), "sesame4711\n").unwrap();
    folder
}

#[test]
fn a_key_from_elsewhere_is_in_nothing_that_a_run_leaves() {
    for bgp in ["{md5_file: key}", "{md5_env: BGP_KEY}"] {
        let folder = lab(bgp);
        let output = run_in(folder.path(), &["run", "lab/suite.yaml", "--json", "--out", "out"]);
        assert!(output.status.success(), "{bgp}: {}", said(&output));
        assert!(!said(&output).contains("sesame4711"), "{bgp}: {}", said(&output));
        let out = folder.path().join("out");
        assert_eq!(files_with(&out, "sesame4711"), Vec::<PathBuf>::new(), "{bgp}");
        // The text around the key stays.
        let kept = std::fs::read_to_string(out.join("suite.yaml")).unwrap();
        assert!(kept.contains("title: The run with x-<secret>-y") && kept.contains(bgp), "{kept}");
        let records = std::fs::read_to_string(out.join("run.jsonl")).unwrap();
        assert!(records.contains("The run with x-<secret>-y") && records.contains("password <secret>."), "{records}");
        let shown = run_in(folder.path(), &["plan", "lab/suite.yaml", "--config", "frr"]);
        assert!(said(&shown).contains("password <secret>") && !said(&shown).contains("sesame4711"), "{}", said(&shown));
    }
}

#[test]
fn a_key_that_cannot_be_read_is_told_at_its_place() {
    let folder = lab("{md5_file: key}");
    let key = folder.path().join("lab/key");
    let check = || run_in(folder.path(), &["check", "lab/suite.yaml"]);
    assert!(check().status.success(), "{}", said(&check()));
    let refused = |why: &str| {
        let output = check();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        let said = said(&output);
        assert!(said.contains(PLACE) && said.contains(why) && said.contains("help:"), "{why}: {said}");
    };
    std::fs::write(&key, "\n").unwrap();
    refused("a key has 1 to 80 characters");
    std::fs::write(&key, "x".repeat(1 << 20)).unwrap();
    refused("it is larger than 4 KiB");
    std::fs::remove_file(&key).unwrap();
    refused("No such file");
    // Commands that do not need the key do not read it.
    assert!(run_in(folder.path(), &["plan", "lab/suite.yaml"]).status.success());
    std::os::unix::fs::symlink("/dev/zero", &key).unwrap();
    refused("it is not a regular file");
    std::fs::remove_file(&key).unwrap();
    assert!(Command::new("mkfifo").arg(&key).status().unwrap().success());
    refused("it is not a regular file");
    // `bgp` accepts a pipe, even one whose other end is opened later.
    let words = ["bgp", "nosuch0", "--address", "192.0.2.2/24", "--to", "192.0.2.1", "--md5-file", "lab/key"];
    let mut command = drophammer();
    command.args(words).current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let (pipe, begun) = (key.canonicalize().unwrap(), Instant::now());
    let fds = format!("/proc/{}/fd", child.id());
    let is_open = || {
        let mut all = std::fs::read_dir(&fds).unwrap().flatten();
        all.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == pipe))
    };
    while !is_open() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the pipe is not opened");
        std::thread::yield_now();
    }
    std::fs::write(&key, [0xff]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("it is not text in UTF-8"), "{}", said(&output));
}

#[test]
fn a_variable_that_is_missing_is_told_at_its_place() {
    let folder = lab("{md5_env: NO_SUCH_KEY}");
    let output = run_in(folder.path(), &["check", "lab/suite.yaml"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("suite.yaml:9:16:") && said.contains("no environment variable `NO_SUCH_KEY`"), "{said}");
}
