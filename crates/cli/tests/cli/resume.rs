//! `run --resume` in virtual time: a resumed run has the same results as an uninterrupted one.

use crate::common::{drophammer, good, kind_of, records, refused, run, run_suite, suite, text};
use nix::fcntl::{FcntlArg, fcntl};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const DUTS: &str = "  - {name: fast, kind: reference, capacity: 60 kfps}\n  - {name: slow, kind: reference, capacity: 40 kfps, jitter: 20 us}\n";
const TESTS: &str = "  - throughput: {frame_sizes: [64], final_trial_duration: 100 ms}\n  - forwarding_rate: {frame_sizes: [64], repeats: 2, trial_duration: 50 ms}\n";

/// The tests of a run, without times of the machine's clock.
fn measured(dir: &Path) -> Vec<serde_json::Value> {
    let mut tests: Vec<_> =
        records(dir).into_iter().filter(|r| matches!(kind_of(r), "test" | "trial" | "dut")).collect();
    for test in &mut tests {
        for clock in ["time", "elapsed_s"] {
            test.as_object_mut().unwrap().remove(clock);
        }
    }
    tests
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn a_run_that_was_cut_off_anywhere_goes_on_and_finds_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = suite(dir.path(), DUTS, TESTS);
    let path = path.to_str().unwrap();
    let whole = dir.path().join("whole");
    good(&run_suite(Path::new(path), &whole, &["--rounds", "3"]));
    let text = std::fs::read_to_string(whole.join("run.jsonl")).unwrap();
    let lines = text.lines().count();
    let resume = |dir: &Path, more: &[&str]| run(&[&["run", path, "--resume", dir.to_str().unwrap()], more].concat());
    // Cut off at the very beginning, within a turn, between two turns, and before the last record.
    let ends: Vec<usize> =
        (0..lines).filter(|i| text.lines().nth(*i).unwrap().contains("\"record\":\"test\"")).collect();
    assert_eq!(ends.len(), 12);
    for (n, keep) in [1, ends[0] - 2, ends[1] + 1, ends[6] + 1, lines - 1].into_iter().enumerate() {
        let cut = dir.path().join(format!("cut-{n}"));
        std::fs::create_dir(&cut).unwrap();
        let mut kept: String = text.split_inclusive('\n').take(keep).collect();
        // A record that was only half written.
        kept.push_str("{\"record\":\"tr");
        std::fs::write(cut.join("run.jsonl"), kept).unwrap();
        good(&resume(&cut, &["--rounds", "3"]));
        let (cut_at, all) = (cut.display(), whole.display());
        assert!(measured(&cut) == measured(&whole), "{keep} records kept: {cut_at} and {all} differ");
        let notes: Vec<_> = records(&cut).into_iter().filter(|r| kind_of(r) == "note").collect();
        assert!(notes.iter().any(|n| n["text"].as_str().unwrap().starts_with("the run continues: ")), "{notes:?}");
        assert!(cut.join("cut-off-1.jsonl").exists() && cut.join("report.html").exists());
    }
    // Each of these is refused with its reason, and changes nothing.
    let cut = dir.path().join("cut-0");
    for (more, why) in
        [(&["--rounds", "3"][..], "the run is complete"), (&["--rounds", "2"], "differs from that of the run")]
    {
        refused(&resume(&cut, more), 2, why);
    }
    let records = std::fs::read_to_string(cut.join("run.jsonl")).unwrap();
    let other = records.replacen("\"drophammer\":\"", "\"drophammer\":\"0.0.0 ", 1);
    std::fs::write(cut.join("run.jsonl"), &other).unwrap();
    refused(&resume(&cut, &["--rounds", "3"]), 2, "the run was begun by Drophammer 0.0.0 ");
    refused(&resume(&cut, &["--rounds", "3"]), 2, "\n  help: use that version, or begin a new run");
    assert_eq!(std::fs::read_to_string(cut.join("run.jsonl")).unwrap(), other);
}

/// A run of three rounds: its suite and its folder.
fn three_rounds(dir: &Path) -> (PathBuf, PathBuf) {
    let (path, out) = (suite(dir, DUTS, TESTS), dir.join("out"));
    good(&run_suite(&path, &out, &["--rounds", "3"]));
    (path, out)
}

/// Starts the run, and kills its process (SIGKILL) after its `nth` event. The run is never far ahead of its reader, because the pipe for its
/// events is small.
fn killed_after(path: &str, out: &Path, nth: usize) {
    let mut child = drophammer()
        .args(["run", path, "--rounds", "3", "--json", "--out", out.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let events = child.stdout.take().unwrap();
    fcntl(&events, FcntlArg::F_SETPIPE_SZ(4_096)).unwrap();
    let told = BufReader::with_capacity(256, events).lines().map_while(Result::ok).take(nth).count();
    child.kill().unwrap();
    assert_eq!((told, child.wait().unwrap().signal()), (nth, Some(9)), "it was killed while it ran");
}

#[test]
#[ignore = "long: `make test-all` runs it"]
fn a_run_that_is_killed_at_five_places_goes_on_and_finds_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = suite(dir.path(), DUTS, TESTS);
    let path = path.to_str().unwrap();
    let whole = dir.path().join("whole");
    let events = good(&run_suite(Path::new(path), &whole, &["--rounds", "3", "--json"])).lines().count();
    assert!(events > 100, "{events}");
    let mut stored = vec![0];
    for place in 0..5 {
        let out = dir.path().join(format!("killed-{place}"));
        killed_after(path, &out, 1 + events * place / 6);
        let before = records(&out);
        assert!(before.iter().all(|record| kind_of(record) != "ended"));
        stored.push(before.len());
        good(&run(&["run", path, "--rounds", "3", "--resume", out.to_str().unwrap()]));
        assert!(measured(&out) == measured(&whole), "{} and {} differ", out.display(), whole.display());
        let figures = |dir: &Path| std::fs::read_to_string(dir.join("csv/summary.csv")).unwrap();
        assert_eq!(figures(&out), figures(&whole));
    }
    assert!(stored.is_sorted_by(|a, b| a < b) && stored[5] < records(&whole).len(), "{stored:?} records");
}

#[test]
fn a_run_does_not_go_on_with_another_version_of_a_router() {
    let dir = tempfile::tempdir().unwrap();
    let (path, out) = three_rounds(dir.path());
    let (path, folder) = (path.to_str().unwrap(), out.to_str().unwrap());
    let whole = measured(&out);
    // The run is cut off in the second round, after a router had its turn with another version.
    let text = std::fs::read_to_string(out.join("run.jsonl")).unwrap();
    let ends: Vec<usize> =
        (0..text.lines().count()).filter(|i| text.lines().nth(*i).unwrap().contains("\"record\":\"test\"")).collect();
    let kept: Vec<&str> = text.lines().take(ends[4] + 1).collect();
    let now = records(&out).into_iter().find(|record| kind_of(record) == "dut").unwrap()["version"].clone();
    let now = now.as_str().unwrap();
    let other = |line: &&str| match line.contains("\"record\":\"dut\"") {
        true => line.replace(&format!("\"version\":\"{now}\""), "\"version\":\"0.1 of old\""),
        false => (*line).to_owned(),
    };
    let changed: Vec<String> = kept.iter().map(other).collect();
    assert_ne!(changed, kept);
    std::fs::write(out.join("run.jsonl"), changed.join("\n") + "\n").unwrap();
    let output = run(&["run", path, "--rounds", "3", "--resume", folder]);
    let said = refused(&output, 3, "the run cannot continue: ");
    let why = format!(
        " was `0.1 of old` when the run began, but now it is `{now}`\n  help: install `0.1 of old` again, or begin a new run without --resume"
    );
    assert!(said.contains(&why), "{said}");
    // The measurements are kept, and with the original version the run continues.
    let left = std::fs::read_to_string(out.join("run.jsonl")).unwrap();
    assert_eq!(left.lines().filter(|line| line.contains("\"record\":\"test\"")).count(), 4, "the complete turns");
    assert!(!left.contains("\"record\":\"ended\""));
    std::fs::write(out.join("run.jsonl"), left.replace("0.1 of old", now)).unwrap();
    good(&run(&["run", path, "--rounds", "3", "--resume", folder]));
    assert!(measured(&out) == whole);
}

#[test]
fn a_spoilt_round_of_a_complete_run_is_measured_again_and_finds_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (path, out) = three_rounds(dir.path());
    let (path, folder) = (path.to_str().unwrap(), out.to_str().unwrap());
    let summary = || std::fs::read_to_string(out.join("csv/summary.csv")).unwrap();
    let whole = summary();
    let output = run(&["run", path, "--rounds", "3", "--resume", folder]);
    refused(&output, 2, "the run is complete, and no test was spoilt");
    refused(&output, 2, &format!("\n  help: `drophammer report {folder}` writes its report again"));
    // The host spoils the last test of each round on one router.
    let records = std::fs::read_to_string(out.join("run.jsonl")).unwrap();
    let (mut lines, mut spoilt) = (Vec::new(), 0);
    let name = self::records(&out).iter().find(|r| kind_of(r) == "test").unwrap()["dut"].clone();
    let last = self::records(&out).iter().rfind(|r| kind_of(r) == "test" && r["dut"] == name).unwrap()["test"].clone();
    for line in records.lines() {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        if kind_of(&record) == "test" && record["dut"] == name && record["test"] == last {
            record["status"] = serde_json::json!({"status": "unfit", "cause": "host busy: `cc1`"});
            record["outcome"]["ranks"] = serde_json::json!([]);
            spoilt += 1;
        }
        lines.push(record.to_string());
    }
    assert_eq!(spoilt, 3);
    std::fs::write(out.join("run.jsonl"), lines.join("\n") + "\n").unwrap();
    let report = run(&["report", folder]);
    let said = text(&report.stdout).replace('\n', " ");
    let remedy = format!("`drophammer run {path} --rounds 3 --resume {folder}`");
    assert!(
        said.contains("could not be measured") && said.replace(' ', "").contains(&remedy.replace(' ', "")),
        "{said}"
    );
    good(&run(&["run", path, "--rounds", "3", "--resume", folder]));
    assert_eq!(summary(), whole);
    assert!(out.join("cut-off-1.jsonl").exists(), "what was spoilt is kept");
}

#[test]
fn what_differs_from_the_start_of_a_run_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = suite(dir.path(), DUTS, TESTS);
    let name = path.to_str().unwrap();
    let out = dir.path().join("out");
    let folder = out.to_str().unwrap();
    killed_after(name, &out, 20);
    let refused = |args: &[&str]| refused(&run(&[&["run", name, "--resume", folder][..], args].concat()), 2, "");
    let said = refused(&["--rounds", "4"]);
    assert!(said.contains("differs: the run had `--rounds 3`"), "{said}");
    assert!(said.contains(&format!("help: drophammer run {name} --rounds 3 --resume {folder}")), "{said}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("title: A small one", "title: Another one")).unwrap();
    let said = refused(&["--rounds", "3"]);
    assert!(
        said.contains("differs: suite.yaml, line 2: now `title: Another one`; the run had `title: A small one`"),
        "{said}"
    );
}
