//! `run --resume` in virtual time: an interrupted run has the same results as one that was not interrupted.

mod common;

use common::{kind_of, records, run, suite, text};
use std::path::Path;

/// Tests of a run without times of the machine's clock.
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
fn a_run_that_was_cut_off_anywhere_goes_on_and_finds_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let duts = "  - {name: fast, kind: reference, capacity: 60 kfps}\n  - {name: slow, kind: reference, capacity: 40 kfps, jitter: 20 us}\n";
    let tests = "  - throughput: {frame_sizes: [64], final_trial_duration: 100 ms}\n  - forwarding_rate: {frame_sizes: [64], repeats: 2, trial_duration: 50 ms}\n";
    let path = suite(dir.path(), duts, tests);
    let path = path.to_str().unwrap();
    let whole = dir.path().join("whole");
    let begin = |out: &Path, more: &[&str]| {
        let all = [&["run", path, "--rounds", "3", "--out", out.to_str().unwrap()], more].concat();
        run(&all)
    };
    assert_eq!(begin(&whole, &[]).status.code(), Some(0));
    let text = std::fs::read_to_string(whole.join("run.jsonl")).unwrap();
    let lines = text.lines().count();
    let resume = |dir: &Path, more: &[&str]| run(&[&["run", path, "--resume", dir.to_str().unwrap()], more].concat());
    // At the very beginning, within turns, between two of them, before the last record.
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
        let output = resume(&cut, &["--rounds", "3"]);
        assert_eq!(output.status.code(), Some(0), "{keep}: {}", self::text(&output.stderr));
        assert!(
            measured(&cut) == measured(&whole),
            "{keep} records kept: {} and {} differ",
            cut.display(),
            whole.display()
        );
        let notes: Vec<_> = records(&cut).into_iter().filter(|r| kind_of(r) == "note").collect();
        assert!(notes.iter().any(|n| n["text"].as_str().unwrap().starts_with("the run goes on: ")), "{notes:?}");
        assert!(cut.join("cut-off-1.jsonl").exists() && cut.join("report.html").exists());
    }
    // Refused, each with its reason, and nothing is changed.
    let cut = dir.path().join("cut-0");
    for (more, why) in [(&["--rounds", "3"][..], "the run is complete"), (&["--rounds", "2"], "is not that of the run")]
    {
        let output = resume(&cut, more);
        assert_eq!(output.status.code(), Some(2), "{}", self::text(&output.stderr));
        assert!(self::text(&output.stderr).contains(why), "{}", self::text(&output.stderr));
    }
    let other = std::fs::read_to_string(cut.join("run.jsonl")).unwrap().replacen(
        "\"drophammer\":\"",
        "\"drophammer\":\"0.0.0 ",
        1,
    );
    std::fs::write(cut.join("run.jsonl"), &other).unwrap();
    let output = resume(&cut, &["--rounds", "3"]);
    assert!(
        self::text(&output.stderr).contains("the run was begun by Drophammer 0.0.0 "),
        "{}",
        self::text(&output.stderr)
    );
    assert_eq!(std::fs::read_to_string(cut.join("run.jsonl")).unwrap(), other);
}
