//! A suite that has a test twice: the report tells the figures of both apart.

use crate::synthetic::report;
use drophammer_model::record::{TestRecord, TrialRecord};
use drophammer_store::Run;

/// One round of three DUTs, with the test of throughput a second time, under the id `swap`.
fn twice(once: &Run) -> Run {
    let mut run = once.clone();
    run.started.tests.insert(1, ("throughput".into(), "Throughput".into()));
    let again = |record: &TestRecord| {
        let mut records = vec![record.clone()];
        let second = || TestRecord { id: Some("swap".into()), ..record.clone() };
        records.extend((record.test == "throughput").then(second));
        records
    };
    run.tests = once.tests.iter().flat_map(again).collect();
    run
}

/// The sentences above the summary.
fn conclusion(run: &Run) -> String {
    let files = report(run);
    let (_, rest) = files["report.md"].split_once("## Summary\n\n").unwrap();
    rest.split("\n| ").next().unwrap().to_owned()
}

#[test]
fn the_csv_file_of_the_summary_names_the_test() {
    let run = crate::synthetic::in_rounds(&twice(&crate::synthetic::run(3)), 6);
    let csv = &report(&run)["csv/summary.csv"];
    assert!(csv.starts_with("test,figure,unit,"), "{csv}");
    for start in ["throughput,throughput_64_pps,fps,true,linux,", "throughput-swap,throughput_64_pps,fps,true,linux,"] {
        assert_eq!(csv.lines().filter(|line| line.starts_with(start)).count(), 1, "{start}: {csv}");
    }
    assert_eq!(csv.lines().filter(|line| line.starts_with(",overall_mean_rank,,false,")).count(), 3, "{csv}");
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
}

#[test]
fn the_conclusion_names_the_test_of_each_leader() {
    let run = crate::synthetic::in_rounds(&twice(&crate::synthetic::run(3)), 6);
    let said = conclusion(&run);
    for title in ["Throughput, 64 bytes \u{2013} Throughput (8", "Throughput, 64 bytes \u{2013} Throughput (swap) (8"] {
        assert!(said.contains(title), "{title}: {said}");
    }
    let html = &report(&run)["report.html"];
    assert!(html.contains("Throughput, 64 bytes \u{2013} Throughput (swap)</a>"), "the main figures");
    // If the suite has the test only once, its title would add nothing.
    let once = conclusion(&crate::synthetic::in_rounds(&crate::synthetic::run(3), 6));
    assert!(once.contains("Throughput, 64 bytes (8"), "{once}");
}

#[test]
fn the_conclusion_names_the_test_of_figures_at_different_loads() {
    let mut run = twice(&crate::synthetic::run(3));
    for test in run.tests.iter_mut().filter(|test| test.test == "throughput") {
        test.outcome.ranks[0].load_pps = Some(if test.dut == "linux" { 1e5 } else { 2e5 });
    }
    let said = conclusion(&crate::synthetic::in_rounds(&run, 6));
    let expected = "Throughput, 64 bytes \u{2013} Throughput and one more figure: DUTs that were measured";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn the_conclusion_names_the_test_of_a_refuted_figure() {
    let mut once = crate::synthetic::run(3);
    let refuting = crate::synthetic::contradict(&mut once);
    let mut run = crate::synthetic::in_rounds(&twice(&once), 6);
    run.trials.push(refuting);
    let said = conclusion(&run);
    for title in ["Throughput, 1518 bytes \u{2013} Throughput", "Throughput, 1518 bytes \u{2013} Throughput (swap)"] {
        assert!(said.contains(&format!("{title} of linux is refuted by trial 950")), "{title}: {said}");
    }
}

#[test]
fn a_doubt_is_of_the_test_whose_trials_raise_it() {
    let mut once = crate::synthetic::run(3);
    crate::synthetic::lose(&mut once, 0.57);
    let mut run = crate::synthetic::in_rounds(&twice(&once), 6);
    for round in 2..=6 {
        run.trials.extend(once.trials.iter().cloned().map(|trial| TrialRecord { round, ..trial }));
    }
    let said = conclusion(&run);
    let doubtful = |title: &str| format!("Throughput, 64 bytes \u{2013} {title} of linux is doubtful and has no rank");
    assert!(said.contains(&doubtful("Throughput")) && !said.contains(&doubtful("Throughput (swap)")), "{said}");
    // All trials that it names belong to the second test.
    let own = run.trials.iter().filter(|trial| trial.test == "throughput");
    run.earlier = own.map(|trial| (trial.result.trial, 1)).collect();
    let said = conclusion(&run);
    assert!(said.contains(&doubtful("Throughput (swap)")) && !said.contains(&doubtful("Throughput")), "{said}");
}

#[test]
fn each_trial_names_its_dut_its_round_and_its_test() {
    let mut run = twice(&crate::synthetic::run(2));
    run.started.rounds = 2;
    let last = TrialRecord { round: 2, ..crate::synthetic::trial(7_000, "frr", "throughput", 64, 3e5, 0) };
    run.trials.push(last);
    run.earlier.insert(7_000, 1);
    let files = report(&run);
    let csv = &files["csv/trials.csv"];
    assert!(csv.lines().next().unwrap().ends_with(",tester_on_dut_ns,drops,round,section"), "{csv}");
    let of = |trial: &str| csv.lines().find(|line| line.starts_with(trial)).unwrap().to_owned();
    assert!(of("1,linux,throughput,").ends_with(",1,throughput"), "{csv}");
    assert!(of("7000,frr,throughput,").ends_with(",2,throughput-swap"), "{csv}");
    let columns = csv.lines().next().unwrap().split(',').count();
    assert_eq!(of("7000,").split(',').count(), columns);
    let row = ">7000</th><td rowspan=\"2\">frr</td><td rowspan=\"2\">2</td>";
    assert!(files["report.html"].contains(row), "DUT and round follow the number");
}
