//! The paragraph of each test in every form of the report.

use crate::synthetic::report;
use drophammer_model::outcome::Verdict;

#[test]
fn each_test_has_a_paragraph_of_its_own_figures() {
    let mut run = crate::synthetic::run(2);
    let verdict = |pass| Verdict {
        criterion: format!("throughput_64_pps >= {pass}"),
        pass,
        undecided: false,
        found: "1".into(),
        expected: None,
    };
    run.tests[0].outcome.verdicts = vec![verdict(true), verdict(false)];
    let files = report(&run);
    let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
    let of = |test: &str| {
        let tests = json["tests"].as_array().unwrap();
        tests.iter().find(|t| t["test"] == test).unwrap()["paragraph"].as_str().unwrap().to_owned()
    };
    let throughput = of("throughput");
    assert!(throughput.starts_with("Tested: "), "{throughput}");
    assert!(throughput.contains("in one round with "), "{throughput}");
    assert!(throughput.contains("Throughput, 64 bytes: 809,150 fps on linux and 802,876 fps on frr."), "{throughput}");
    assert!(throughput.ends_with("2 of 3 criteria are met, 1 is missed."), "{throughput}");
    assert!(of("latency").contains("Latency, 64 bytes, 99th percentile"), "{}", of("latency"));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for file in ["report.txt", "report.md", "report.html"] {
        assert!(words(&files[file]).contains("2 of 3 criteria are met, 1 is missed."), "{file}");
    }
}

#[test]
fn a_stopped_run_tells_its_own_rounds() {
    let run = |rounds| {
        let mut run = crate::synthetic::in_rounds(&crate::synthetic::run(2), rounds);
        run.started.rounds = 4;
        run
    };
    let one = &report(&run(1))["report.md"];
    assert!(one.contains("The run was stopped before a second round of every DUT."), "{one}");
    assert!(one.contains(" in one round with ") && !one.contains("In 4 rounds"), "{one}");
    let three = &report(&run(3))["report.md"];
    assert!(three.contains(" in 3 rounds with ") && !three.contains("4 rounds"), "{three}");
}

#[test]
fn a_run_that_was_stopped_in_its_first_turn_proves_nothing() {
    let mut run = crate::synthetic::run(2);
    run.started.rounds = 6;
    run.ended = None;
    // The first DUT ended one test, and the second had no turn.
    run.tests.retain(|test| test.dut == "linux" && test.test == "throughput");
    run.trials.retain(|trial| trial.dut == "linux" && trial.test == "throughput");
    let markdown = &report(&run)["report.md"];
    assert!(markdown.contains("The run was stopped before a second round of every DUT."), "{markdown}");
    assert!(!markdown.contains("no difference was proven"), "{markdown}");
}
