//! A run folder of an earlier version is readable, and its report has the same figures.
//!
//! `stored_run/format-1` is a run of two simulated routers by the program at commit ec5d74d, with its `run.jsonl`,
//! `run.lock`, `suite.yaml` and `duts/`. Only the environment is made up. `expected/` holds tables of the report from that
//! time, of which `summary.csv` has only figures. These files never change. A version that stores runs in another way gets
//! another folder.

use drophammer_model::record::{Record, TestStatus};
use drophammer_model::trial::Load;
use drophammer_report::{summary_text, write_all};
use drophammer_store::{Run, RunReader, RunState};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Number of trials in the run.
const TRIALS: usize = 47;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stored_run/format-1")
}

fn run() -> Run {
    RunReader::open(&folder()).unwrap()
}

#[test]
fn the_run_is_read_whole() {
    let run = run();
    assert_eq!((run.state(), run.running, run.warnings.len()), (RunState::Complete, false, 0));
    let started = &run.started;
    assert_eq!((started.format, started.seed, started.conformant, started.deviations.len()), (1, 11, false, 13));
    assert_eq!((started.suite.as_str(), started.profile.as_str()), ("layout", "quick"));
    assert_eq!((started.duts.len(), started.tests.len(), started.environment.tester_threads), (2, 6, 1));
    assert_eq!((run.duts.len(), run.trials.len(), run.tests.len(), run.notes.len()), (2, TRIALS, 12, 0));
    assert!(run.duts.iter().all(|d| d.simulated && d.ports.len() == 2 && d.config.contains_key("reference.txt")));
    assert!(run.tests.iter().all(|t| t.status == TestStatus::Completed) && run.unfinished().is_empty());
    assert!(run.trials.iter().all(|t| t.result.validity.is_valid() && t.attempt == 1));
    let verdicts: Vec<_> = run.tests.iter().flat_map(|t| &t.outcome.verdicts).map(|v| v.pass).collect();
    assert_eq!(verdicts, [true, false]);

    // Two families in both directions at line rate.
    let trial = run.trial(2).unwrap();
    assert_eq!((trial.dut.as_str(), trial.test.as_str()), ("good", "frame_loss_rate"));
    assert_eq!((trial.spec.purpose.as_str(), trial.spec.duration_s), ("frame loss rate 96: 100 %", 0.2));
    assert_eq!((trial.spec.flows.len(), trial.result.senders), (4, 2));
    assert!(matches!(trial.spec.load, Load::Constant { rate_pps } if (rate_pps - 1e7 / 928.0).abs() < 1e-9));
    let [v4, v6] = &trial.result.groups[..] else { panic!("{:?}", trial.result.groups) };
    assert_eq!((v4.group.as_str(), v4.offered, v4.received, v4.lost), ("IPv4", 2156, 508, 1648));
    assert_eq!((v6.group.as_str(), v6.offered, v6.received, v6.lost), ("IPv6", 2154, 511, 1643));
    assert_eq!((v4.latency.frames, v4.latency.min_ns, v4.latency.max_ns), (508, 250_000, 4_050_000));
    assert_eq!((v4.latency.mean_ns, v4.latency.percentiles.len()), (3954135.433070866, 14));

    // Traffic to routes under events.
    let skyline = run.trials.iter().find(|t| t.test == "convergence_skyline").unwrap();
    assert_eq!((skyline.result.events.len(), skyline.result.trial), (6, 21));
    let group = &skyline.result.groups[0];
    assert_eq!(group.bins.iter().map(|b| b.offered).sum::<u64>(), group.offered);
    assert_eq!(group.bins.iter().map(|b| b.offered - b.delivered).sum::<u64>(), group.lost);
    assert_eq!((group.offered, group.lost), (7000, 4000));
}

/// Asserts that `read` has everything in `stored` with the same value.
fn held(path: &str, stored: &Value, read: &Value) {
    match (stored, read) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                let found = b.get(key).unwrap_or_else(|| panic!("{path}/{key} is not read"));
                held(&format!("{path}/{key}"), value, found);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{path}");
            a.iter().zip(b).enumerate().for_each(|(i, (a, b))| held(&format!("{path}/{i}"), a, b));
        }
        (a, b) => assert_eq!(a, b, "{path}"),
    }
}

#[test]
fn no_result_and_no_outcome_loses_anything_by_being_read() {
    let text = fs::read_to_string(folder().join("run.jsonl")).unwrap();
    let mut seen = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let stored: Value = serde_json::from_str(line).unwrap();
        let read: Record = serde_json::from_str(line).unwrap();
        let part = match &read {
            Record::Trial(trial) => ("result", serde_json::to_value(&trial.result).unwrap()),
            Record::Test(test) => ("outcome", serde_json::to_value(&test.outcome).unwrap()),
            _ => continue,
        };
        held(&format!("line {}: {}", index + 1, part.0), &stored[part.0], &part.1);
        *seen.entry(part.0).or_insert(0) += 1;
    }
    assert_eq!(seen, [("result", TRIALS), ("outcome", 12)].into());
}

/// Records of a CSV file (RFC 4180), each by its columns' names.
fn table(path: &Path) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines = text.split_terminator("\r\n").map(fields);
    let names = lines.next().unwrap_or_default();
    lines.map(|fields| names.iter().cloned().zip(fields).collect()).collect()
}

/// Fields of a record without line breaks in it.
fn fields(line: &str) -> Vec<String> {
    let (mut all, mut quoted) = (vec![String::new()], false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let last = all.last_mut().unwrap();
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                last.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(String::new()),
            c => last.push(c),
        }
    }
    all
}

#[test]
fn the_report_has_the_figures_that_it_had() {
    let (run, out) = (run(), tempfile::tempdir().unwrap());
    let paths = write_all(&run, out.path()).unwrap();
    for name in ["report.html", "report.txt", "report.md", "report.json", "junit.xml"] {
        assert!(paths.contains(&out.path().join(name)), "{name}");
        assert!(fs::metadata(out.path().join(name)).unwrap().len() > 1_000, "{name}");
    }
    let mut values = 0;
    for file in fs::read_dir(folder().join("expected")).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        let (expected, mut now) = (table(&file.path()), table(&out.path().join("csv").join(&name)));
        if name == "summary.csv" {
            now.retain(|row| row["figure"] != "overall_mean_rank");
        }
        assert_eq!(now.len(), expected.len(), "records of {name}");
        for (index, (expected, now)) in expected.iter().zip(&now).enumerate() {
            for (column, value) in expected {
                assert_eq!(now.get(column), Some(value), "{name}, record {}, column {column}", index + 1);
                values += 1;
            }
        }
    }
    assert!(values > 2_500, "{values} values compared");
}

#[test]
fn the_summary_and_the_page_show_its_key_figures() {
    let (run, out) = (run(), tempfile::tempdir().unwrap());
    write_all(&run, out.path()).unwrap();
    let text = summary_text(&run, false);
    let page = fs::read_to_string(out.path().join("report.html")).unwrap();
    for figure in ["76.36", "81.39", "250.1", "298.2", "544.5", "0.605"] {
        assert!(text.contains(figure), "{figure} is not in the summary: {text}");
        assert!(page.contains(figure), "{figure} is not on the page");
    }
    assert!(text.contains("good (simulated)") && text.contains("complete"), "{text}");
    assert!(page.contains("A run folder as it was stored") && page.contains("Debian GNU/Linux 12"));
    let json: Value = serde_json::from_str(&fs::read_to_string(out.path().join("report.json")).unwrap()).unwrap();
    assert_eq!((&json["state"], &json["running"]), (&"complete".into(), &false.into()));
}
