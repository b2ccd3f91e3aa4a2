//! Figures over time: which run changed them, and how the history shows it.

use drophammer_report::compare::Verdict;
use drophammer_report::compare::history::{History, history, json_of};
use drophammer_store::Run;
use std::path::PathBuf;

/// Run `number` of two DUTs in six rounds, with 64-byte throughput of the first DUT that is `factor` times as high.
fn run(number: usize, factor: f64) -> Run {
    let mut run = crate::synthetic::in_rounds(&crate::synthetic::run(2), 6);
    run.dir = PathBuf::from(format!("run-{number}"));
    run.started.time = format!("2026-01-0{number}T00:00:00Z");
    for test in run.tests.iter_mut().filter(|test| test.dut == "linux") {
        for figure in test.outcome.ranks.iter_mut().filter(|figure| figure.key == "throughput_64_pps") {
            figure.value = figure.value.map(|value| value * factor);
        }
    }
    run
}

fn verdicts(history: &History) -> Vec<Option<Verdict>> {
    let of =
        |s: &&drophammer_report::compare::history::Series| s.line.dut == "linux" && s.line.key == "throughput_64_pps";
    let series = history.series.iter().find(of).unwrap();
    series.points.iter().map(|point| point.finding.as_ref().map(|finding| finding.verdict.clone())).collect()
}

#[test]
fn each_change_stands_at_the_run_that_made_it() {
    let mut past = history(&[run(1, 1.0), run(2, 1.0), run(3, 0.8), run(4, 0.8)]);
    assert_eq!(verdicts(&past), [None, Some(Verdict::Undecided), Some(Verdict::Worse), Some(Verdict::Undecided)]);
    assert_eq!(
        past.runs.iter().map(|past| past.count.map(|c| (c.worse, c.better))).collect::<Vec<_>>(),
        [None, Some((0, 0)), Some((1, 0)), Some((0, 0))]
    );
    assert!(!past.is_worse(), "the newest run is as the one before");
    let index = past.index(false);
    assert!(index.contains("run-3") && index.lines().all(|line| line.chars().count() <= 100), "{index}");
    past.keep(Some("THROUGHPUT.throughput_64"), Some("linux"));
    assert_eq!(past.series.len(), 1);
    let text = past.text(false);
    assert!(text.contains("WORSE") && text.contains('\u{2587}') && !text.contains('\u{1b}'), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let json: serde_json::Value = serde_json::from_str(&json_of(&[past])).unwrap();
    assert_eq!(json["suites"][0]["runs"][2]["worse"], 1);
    assert_eq!(json["suites"][0]["figures"][0]["runs"][2]["against_the_run_before"]["verdict"], "worse");
}

#[test]
fn a_newest_run_that_is_worse_is_told() {
    assert!(history(&[run(1, 1.0), run(2, 0.8)]).is_worse());
    assert!(!history(&[run(1, 0.8), run(2, 1.0)]).is_worse());
}

#[test]
fn one_run_and_none_are_histories_too() {
    let one = history(&[run(1, 1.0)]);
    assert_eq!((one.runs.len(), verdicts(&one)), (1, vec![None]));
    assert!(history(&[]).series.is_empty());
}

#[test]
fn a_figure_that_a_run_lacks_has_a_gap() {
    let mut without = run(2, 1.0);
    for test in &mut without.tests {
        test.outcome.ranks.retain(|figure| figure.key != "throughput_64_pps");
    }
    let past = history(&[run(1, 1.0), without, run(3, 1.0)]);
    let gap = verdicts(&past);
    assert!(
        matches!(gap[1], Some(Verdict::NotCompared(_))) && matches!(gap[2], Some(Verdict::NotCompared(_))),
        "{gap:?}"
    );
}

#[test]
fn a_run_under_other_conditions_says_so() {
    let with = |number: usize, factor: f64, kernel: &str, profile: &str| {
        let mut run = run(number, factor);
        run.started.environment.kernel = kernel.into();
        run.started.profile = profile.into();
        run
    };
    let (old, new) = ("6.12.0", "6.18.0");
    let first = [with(1, 1.0, old, "quick"), with(2, 0.8, new, "quick")];
    let last = [with(3, 0.8, old, "usual"), with(4, 0.8, old, "usual")];
    let mut past = history(&[first.clone(), last].concat());
    assert_eq!(past.runs.iter().map(|past| past.conditions.len()).collect::<Vec<_>>(), [0, 1, 2, 0]);
    let kernel = &past.runs[1].conditions[0];
    assert_eq!((kernel.name.as_str(), kernel.text().as_str()), ("Kernel", "A 6.12.0 | B 6.18.0"));
    let index = past.index(false);
    let words = index.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("`drophammer compare A B` names them"), "{index}");
    past.keep(Some("throughput.throughput_64"), Some("linux"));
    let text = past.text(false);
    for shown in [&index, &text] {
        assert_eq!(shown.matches("1 condition differs").count(), 1, "{shown}");
        assert_eq!(shown.matches("2 conditions differ").count(), 1, "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    }
    let json: serde_json::Value = serde_json::from_str(&json_of(&[past])).unwrap();
    let of = |run: usize| &json["suites"][0]["runs"][run]["conditions"];
    assert_eq!(of(1), &serde_json::json!([{"name": "Kernel", "values": ["6.12.0", "6.18.0"]}]));
    assert_eq!((of(0), of(3)), (&serde_json::json!([]), &serde_json::json!([])));
    // The same conditions need no words.
    let same = history(&[run(1, 1.0), run(2, 0.8)]).index(false);
    assert!(!same.contains("differ") && !same.contains("drophammer compare"), "{same}");
    // What is worse stays worse.
    assert!(history(&first).is_worse());
}
