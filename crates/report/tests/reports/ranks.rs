//! Ranks of a synthetic run: which DUTs get one, and what removes it.

use crate::synthetic::{rate, report};
use drophammer_model::environment::DutRecord;
use drophammer_model::figure::{REFUTED, RoundFigure, Scale};
use drophammer_model::outcome::{Cell, Column, DOUBTFUL, RankFigure, Verdict};
use drophammer_model::record::{TestStatus, TrialRecord};
use drophammer_model::suite::Expectation;
use drophammer_model::trial::Validity;
use drophammer_report::combined;
use drophammer_report::ending::Ending;
use drophammer_report::view::View;
use drophammer_report::{Criteria, criteria, ending, summary_text};
use drophammer_store::Run;

#[test]
fn ranks_come_from_rounds_and_leave_the_simulated_aside() {
    let once = crate::synthetic::run(4);
    let unranked = View::new(&once).ranking;
    assert!(unranked.figures.iter().flat_map(|f| &f.entries).all(|e| e.rank.is_none()), "one round proves nothing");
    let run = crate::synthetic::in_rounds(&once, 6);
    let combined = combined(&run);
    let view = View::new(&combined);
    let ranks = |key: &str| -> Vec<Option<u32>> {
        view.ranking.figures.iter().find(|f| f.key == key).unwrap().entries.iter().map(|e| e.rank).collect()
    };
    assert_eq!(ranks("throughput_64_pps"), [Some(1), Some(1), Some(3), None]);
    assert_eq!(ranks("latency_64_p99_us"), [Some(1), Some(2), Some(3), None], "no value is last");
    assert_eq!(ranks("convergence_s"), [Some(1), Some(2), Some(3), None], "a failed test is last");
    let overall: Vec<_> = view.ranking.overall.iter().map(|o| (o.rank, o.mean)).collect();
    assert_eq!(
        overall[..3],
        [(Some(1), Some(1.0)), (Some(2), Some(5.0 / 3.0)), (Some(3), Some(3.0))],
        "one vote per test"
    );
    assert_eq!(view.ranking.order, [0, 1, 2, 3]);
    let text = summary_text(&run, false);
    assert!(text.contains("reference (simulated)") && text.contains("\u{2265} 1,442,034"), "{text}");
    assert!(text.contains("810,364  =1") && text.contains("652,905  #3") && text.contains("\u{2013}  #3"), "{text}");
    assert!(text.contains("NOT RFC-conformant (profile quick): 2 deviations, listed in the report"));
    assert!(!text.contains('\u{1b}') && summary_text(&run, true).contains('\u{1b}'));
}

/// The words of a section of the text report, line by line, without the frame of its table.
fn board(text: &str, title: &str) -> Vec<Vec<String>> {
    let from = text.find(&format!("== {title} ==")).unwrap_or_else(|| panic!("no {title}: {text}"));
    let lines = text[from..].lines().skip(2).take_while(|line| !line.is_empty());
    let cells = |line: &str| {
        line.split(['\u{2502}', '\u{2506}']).map(|cell| cell.trim().to_owned()).filter(|c| !c.is_empty()).collect()
    };
    lines.filter(|line| line.contains('\u{2506}')).map(cells).collect()
}

#[test]
fn two_rounds_are_too_few_to_say_which_difference_would_have_been_found() {
    let page = |rounds| {
        let folder = tempfile::tempdir().unwrap();
        let run = crate::synthetic::in_rounds(&crate::synthetic::run(4), rounds);
        drophammer_report::write_all(&run, folder.path()).unwrap();
        std::fs::read_to_string(folder.path().join("report.html")).unwrap()
    };
    let told = "smallest detectable difference";
    assert_eq!([2, 3].map(|rounds| page(rounds).contains(told)), [false, true]);
}

#[test]
fn each_test_has_places_a_winner_and_reasons() {
    let run = crate::synthetic::in_rounds(&crate::synthetic::run(4), 6);
    let files = report(&run);
    let text = &files["report.txt"];
    let found = board(text, "Ranks by test");
    assert_eq!(found[0], ["Test", "linux", "frr", "bird-2.17", "reference (simulated)", "Best"]);
    let line = |test: &str| found.iter().find(|line| line[0] == test).unwrap_or_else(|| panic!("no {test}: {found:?}"));
    assert_eq!(line("Throughput")[1..], ["=1", "=1", "3", "N/A", "linux, frr"]);
    assert_eq!(line("Latency")[1..], ["1", "2", "3", "N/A", "linux"]);
    let why = "reference (simulated): there is no other DUT of its kind to compare with (Throughput, ";
    assert!(text.contains(why), "{text}");
    let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
    let first = &json["ranking"]["by_test"][0];
    assert_eq!((&first["test"], &first["best"]), (&"throughput".into(), &serde_json::json!(["linux", "frr"])));
    assert_eq!((&first["duts"][2]["place"], &first["duts"][0]["tied"]), (&3.into(), &true.into()));
    for name in ["report.html", "report.md"] {
        assert!(
            files[name].contains("Ranks by test") && files[name].contains("there is no other DUT of its kind"),
            "{name}"
        );
    }
    // One round gives no places, and the report says why.
    let once = report(&crate::synthetic::run(2));
    let found = board(&once["report.txt"], "Ranks by test");
    assert!(found[1..].iter().all(|line| line[1..3] == ["N/A", "N/A"] && line[3] == "\u{2013}"), "{found:?}");
    assert!(once["report.txt"].contains("linux: one round proves nothing (Throughput"));
    assert!(!report(&crate::synthetic::run(1))["report.txt"].contains("Ranks by test"), "one DUT has no place");
}

#[test]
fn a_test_that_does_not_apply_says_why() {
    let mut once = crate::synthetic::run(3);
    let test = once.tests.iter_mut().find(|test| test.dut == "bird-2.17" && test.test == "latency").unwrap();
    test.status = TestStatus::Skipped("it has no clock".into());
    test.outcome.ranks.clear();
    let text = &report(&crate::synthetic::in_rounds(&once, 6))["report.txt"];
    let found = board(text, "Ranks by test");
    let latency = found.iter().find(|line| line[0] == "Latency").unwrap();
    assert_eq!(latency[1..], ["1", "2", "N/A", "linux"]);
    assert!(text.contains("bird-2.17: it has no clock (Latency)"), "{text}");
}

#[test]
fn facts_of_the_devices_stand_side_by_side_with_the_price_of_a_rate() {
    let mut once = crate::synthetic::run(3);
    for table in once.tests.iter_mut().filter(|t| t.test == "throughput").flat_map(|t| &mut t.outcome.tables) {
        table.columns.push(Column::new("aggregate_pps", "Aggregate", "fps"));
        // The first size has the highest rate.
        for (i, row) in table.rows.iter_mut().enumerate() {
            row.cells.push(Cell::Number(4e6 / (i + 1) as f64));
        }
    }
    let mut run = crate::synthetic::in_rounds(&once, 6);
    let fact = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    run.started.about.duts.push(("frr".into(), vec![fact("memory", "256 MB"), fact("price", "USD 86,000")]));
    run.started.about.duts.push(("bird-2.17".into(), vec![fact("price", "free")]));
    let files = report(&run);
    let found = board(&files["report.txt"], "The devices");
    assert_eq!(found[0], ["Fact", "linux", "frr", "bird-2.17"]);
    assert_eq!(found[1], ["memory", "\u{2013}", "256 MB", "\u{2013}"]);
    assert_eq!(found[2], ["price", "\u{2013}", "USD 86,000", "free"]);
    assert_eq!(found[3], ["price per million frames per second", "\u{2013}", "USD 21,500", "\u{2013}"]);
    assert!(files["report.html"].contains("id=\"facts\"") && files["report.md"].contains("## The devices"));
    // One doubtful round is enough for a mark, and the rate is then a lower bound.
    let mut marked = |mark: String| {
        let test = run.tests.iter_mut().find(|test| test.dut == "frr" && test.test == "throughput").unwrap();
        test.outcome.tables[0].rows[0].marks.push(mark);
        board(&report(&run)["report.txt"], "The devices")[3][2].clone()
    };
    let doubtful = marked(format!("{DOUBTFUL}frames were lost beside an idle processor"));
    assert_eq!(doubtful, "\u{2264} USD 21,500 (doubtful)");
    assert_eq!(marked(format!("zero loss{REFUTED}another trial")), "USD 21,500 (refuted)");
}

#[test]
fn routers_that_all_failed_share_no_rank() {
    let mut once = crate::synthetic::run(2);
    for figure in once.tests.iter_mut().flat_map(|test| &mut test.outcome.ranks).filter(|f| f.key == "convergence_s") {
        figure.value = None;
    }
    let run = crate::synthetic::in_rounds(&once, 6);
    let combined = combined(&run);
    let view = View::new(&combined);
    let figure = view.ranking.figures.iter().find(|figure| figure.key == "convergence_s").unwrap();
    assert!(figure.entries.iter().all(|entry| entry.rank.is_none() && entry.is_known()));
    let files = report(&run);
    assert!(files["report.html"].contains("not compared: failed on all"));
    let why = "linux: failed on all: no DUT of its kind has a figure (Route flap)";
    assert!(files["report.txt"].contains(why), "{}", files["report.txt"]);
}

/// Six rounds of three DUTs; the last DUT has much lower rates.
fn unequal() -> Run {
    let mut once = crate::synthetic::run(3);
    let last = once.tests.iter_mut().filter(|test| test.dut == "bird-2.17");
    let rates = last.flat_map(|test| &mut test.outcome.ranks).filter(|figure| figure.higher_is_better);
    rates.for_each(|figure| figure.value = figure.value.map(|value| value * 0.6));
    crate::synthetic::in_rounds(&once, 6)
}

/// The same, but the host made every `step`th trial of frr invalid.
fn held_up(step: usize) -> (Run, usize, usize) {
    let mut run = unequal();
    let own = run.trials.iter_mut().filter(|trial| trial.dut == "frr");
    let spoilt = own.step_by(step).map(|trial| {
        trial.result.validity =
            Validity::Invalid(vec!["host busy: other programs (mainly `cc1`) kept the DUT off its processor".into()]);
    });
    let spoilt = spoilt.count();
    let of = run.trials.iter().filter(|trial| trial.dut == "frr").count();
    (run, spoilt, of)
}

#[test]
fn the_share_of_disturbed_trials_changes_no_rank() {
    let usual = unequal();
    for step in [4, 1] {
        let (run, spoilt, of) = held_up(step);
        let (with, without) = (combined(&run), combined(&usual));
        assert_eq!(View::new(&with).ranking, View::new(&without).ranking, "{spoilt} of {of}");
        assert_eq!(ending(&run), ending(&usual));
        let all = run.trials.len();
        let own = format!(
            "Of {all} trials, {spoilt} were disturbed by other programs and repeated and 1 was spoilt by the tester itself."
        );
        let text = summary_text(&run, false).replace('\n', " ");
        assert!(text.contains(&own), "{text}");
        assert!(text.contains(&format!("Disturbed by: cc1 {spoilt}. By router: frr {spoilt} of {of} (")), "{text}");
        let files = report(&run);
        let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
        assert_eq!((&json["held_up"][1]["invalid"], &json["restrictions"]), (&spoilt.into(), &serde_json::Value::Null));
        assert!(files["report.html"].contains(&own) && files["report.html"].contains("<details class=\"trust\">"));
    }
}

#[test]
fn the_line_on_trust_names_nobody_if_some_disturbances_have_no_known_cause() {
    let told = |reasons: [&str; 2]| {
        let mut run = unequal();
        for (trial, reason) in run.trials.iter_mut().filter(|trial| trial.dut == "frr").zip(reasons) {
            trial.result.validity = Validity::Invalid(vec![format!("host busy: {reason}")]);
        }
        summary_text(&run, false).replace('\n', " ")
    };
    let stolen = "a hypervisor took the DUT's processor for 670 ms";
    let text = told([stolen, stolen]);
    assert!(text.contains("2 were disturbed by a hypervisor and repeated"), "{text}");
    let text = told([stolen, "the DUT's processor stood still for 24.29 ms"]);
    assert!(text.contains("2 were disturbed by the host and repeated"), "{text}");
}

/// [`held_up`] in which the tester could not measure throughput on frr in `rounds` rounds.
fn unfit(rounds: u32) -> Run {
    let (mut run, ..) = held_up(1);
    for test in run.tests.iter_mut().filter(|t| t.dut == "frr" && t.test == "throughput" && t.round <= rounds) {
        test.status = TestStatus::Unfit("host busy: a hypervisor took the DUT's processor for 9 ms".into());
        test.outcome = Default::default();
    }
    // Another router fails a test of the synthetic run, which would decide the exit code.
    run.tests.retain(|test| test.test != "route_flap");
    run.started.tests.retain(|(test, _)| test != "route_flap");
    // So would its criteria.
    run.tests.iter_mut().for_each(|test| test.outcome.verdicts.clear());
    run
}

#[test]
fn only_what_no_round_has_measured_is_unmeasured() {
    let (some, all) = (unfit(5), unfit(6));
    assert_eq!((ending(&some), ending(&all)), (Ending::Good, Ending::Unmeasured(1)));
    let (some, all) = (summary_text(&some, false), summary_text(&all, false));
    assert!(!some.contains("could not be measured") && !some.contains("! "), "{some}");
    assert!(report(&unfit(5))["report.txt"].contains("frr: measured in 1 of 6 rounds (round 1: host busy"));
    assert!(all.contains("quick-look: 1 test could not be measured"), "{all}");
    assert!(
        all.contains("Host busy: Throughput of frr could not be measured: ") && all.contains("Next: Stop `cc1`"),
        "{all}"
    );
    let html = &report(&unfit(6))["report.html"];
    assert!(html.contains("<span class=\"chip bad\">1 test could not be measured</span>"));
    let files = report(&unfit(5));
    assert!(files["report.html"].contains("<span class=\"chip good\">Run complete, ended"));
    let junit = &files["junit.xml"];
    assert!(junit.contains("<system-out>measured in 1 of 6 rounds") && !junit.contains("<error"), "{junit}");
}

#[test]
fn what_to_do_next_follows_from_what_could_not_be_measured() {
    let said = |why: &str| {
        let mut run = unfit(6);
        for test in run.tests.iter_mut().filter(|test| matches!(test.status, TestStatus::Unfit(_))) {
            test.status = TestStatus::Unfit(why.into());
        }
        assert_eq!(ending(&run), Ending::Unmeasured(1));
        let text = summary_text(&run, false).replace('\n', " ");
        ["Stop `cc1` first", "lower `max_load`, or use a faster backend"].map(|step| text.contains(step))
    };
    // The host disturbed trials too, but that is not why the test has no result.
    assert_eq!(said("the tester lost 3 frames in its own receive path"), [false, true]);
    assert_eq!(said("the tester was held off the processor for 60 ms"), [true, false]);
}

#[test]
fn a_round_that_was_not_measured_is_no_failure_and_hides_none() {
    for failed in [1, 3] {
        let mut run = crate::synthetic::in_rounds(&crate::synthetic::run(3), 6);
        let own = run.tests.iter_mut().filter(|test| test.dut == "bird-2.17" && test.test == "route_flap");
        for test in own.filter(|test| test.round > failed) {
            test.status = TestStatus::Unfit("host busy: a hypervisor took the DUT's processor for 9 ms".into());
        }
        assert_eq!(ending(&run), Ending::Failed(1));
        let combined = combined(&run);
        let view = View::new(&combined);
        let figure = view.ranking.figures.iter().find(|figure| figure.key == "convergence_s").unwrap();
        let expected = (1..=6).map(|round| match round <= failed {
            true => RoundFigure::Failed,
            false => RoundFigure::NotMeasured,
        });
        assert_eq!(figure.entries[2].rounds, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_trial_that_a_router_or_the_user_ended_is_not_spoilt_by_the_tester() {
    let mut run = crate::synthetic::run(2);
    let all = run.trials.len();
    run.trials.iter_mut().for_each(|trial| trial.result.validity = Validity::Valid);
    let causes = [
        "the device under test died: signal 11",
        "a device under test died (signal 11)",
        "stopped by the user",
        "the tester lost 3 frames in its own receive path",
    ];
    let mut invalid = |count: usize| {
        for (trial, why) in run.trials.iter_mut().zip(&causes[..count]) {
            trial.result.validity = Validity::Invalid(vec![(*why).to_owned()]);
        }
        ending::trust(&View::new(&run)).unwrap()
    };
    assert_eq!(invalid(1), format!("Of {all} trials, 1 ended when a router died. No figure uses them."));
    let two = "2 ended when a router died and 1 was stopped by the user";
    assert_eq!(invalid(3), format!("Of {all} trials, {two}. No figure uses them."));
    let own = "1 was spoilt by the tester itself, 2 ended when a router died and 1 was stopped by the user";
    assert_eq!(invalid(4), format!("Of {all} trials, {own}. No figure uses them."));
}

#[test]
fn two_bounds_are_not_compared_and_have_no_rank() {
    let mut once = crate::synthetic::run(2);
    once.tests.retain(|test| test.test == "throughput");
    for figure in once.tests.iter_mut().flat_map(|test| &mut test.outcome.ranks) {
        (figure.tester_limited, figure.resolution) = (true, 0.0);
    }
    let run = crate::synthetic::in_rounds(&once, 6);
    let combined = combined(&run);
    let view = View::new(&combined);
    assert!(view.ranking.figures.iter().flat_map(|f| &f.entries).all(|e| e.rank.is_none() && e.tester_limited()));
    assert!(view.ranking.overall.iter().all(|place| place.rank.is_none()));
    let files = report(&run);
    assert!(files["report.html"].contains("not compared: limits of the tester"));
    assert!(!files["report.html"].contains("place first") && !files["report.html"].contains(">=1<"));
    let text = summary_text(&run, false);
    assert!(text.contains("Not compared: 2 figures (limits of the tester 2)."), "{text}");
    assert!(files["report.txt"].contains("limits of the tester: all figures are bounds (Throughput)"));
    // A round that the tester spoilt is not why there is no place.
    let mut spoilt = run.clone();
    let test = spoilt.tests.iter_mut().find(|test| test.dut == "frr").unwrap();
    (test.status, test.outcome) = (TestStatus::Unfit("the host was busy".into()), Default::default());
    let why = "frr: limits of the tester: all figures are bounds (Throughput)";
    assert!(report(&spoilt)["report.txt"].contains(why));
    // A bound against a figure is compared.
    let mut apart = run.clone();
    for figure in apart.tests.iter_mut().filter(|t| t.dut == "frr").flat_map(|t| &mut t.outcome.ranks) {
        (figure.tester_limited, figure.value) = (false, figure.value.map(|value| value * 0.5));
    }
    let apart = crate::ranks::combined(&apart);
    assert_eq!(View::new(&apart).ranking.figures[0].entries[0].rank, Some(1));
}

#[test]
fn only_routers_that_nothing_tells_apart_are_one_router() {
    let said = |kind: &str, apart: &dyn Fn(&mut DutRecord)| {
        let mut run = crate::synthetic::in_rounds(&crate::synthetic::run(2), 6);
        for (place, dut) in run.duts.iter_mut().enumerate() {
            (dut.kind, dut.version) = (kind.into(), "not known to the tester".into());
            dut.config.clear();
            dut.ports[0].interface = format!("eth{place}");
        }
        apart(&mut run.duts[0]);
        summary_text(&run, false).replace('\n', " ").contains("one router under several names")
    };
    // Each router of the lab has interfaces of its own; an external router is known by its interfaces alone.
    assert!(said("linux", &|_| {}) && !said("external", &|_| {}));
    assert!(said("external", &|dut| dut.ports[0].interface = "eth1".into()), "both names have the same interfaces");
    assert!(!said("linux", &|dut| _ = dut.config.insert("filters".into(), "sets".into())));
}

/// Six rounds in which the first DUT's throughput has a claim that a trial of the first round refutes.
fn contradictory() -> Run {
    let mut once = crate::synthetic::run(3);
    let refuting = crate::synthetic::contradict(&mut once);
    let mut run = crate::synthetic::in_rounds(&once, 6);
    run.trials.push(refuting);
    run
}

#[test]
fn a_figure_that_a_trial_refutes_is_marked_and_has_no_rank() {
    let run = contradictory();
    let combined = combined(&run);
    let view = View::new(&combined);
    let figure = |key: &str| view.ranking.figures.iter().find(|f| f.key == key).unwrap();
    let refuted = figure("throughput_1518_pps");
    assert!(refuted.entries[0].refuted() && refuted.entries[0].rank.is_none());
    let others: Vec<_> = refuted.entries[1..].iter().map(|e| (e.refuted(), e.rank)).collect();
    assert_eq!(others, [(false, Some(1)), (false, Some(2))], "compared with each other alone");
    assert!(figure("throughput_64_pps").entries.iter().all(|e| e.rank.is_some()));
    let files = report(&run);
    for name in ["report.html", "report.txt", "report.md", "csv/throughput.csv"] {
        assert!(files[name].contains("refuted by trial 950"), "{name}");
    }
    let summary = summary_text(&run, false).replace('\n', " ");
    assert!(summary.contains("refuted") && summary.contains("has no rank"), "{summary}");
    // A limit of the tester does not hide it.
    let mut limited = run.clone();
    for rank in limited.tests.iter_mut().filter(|test| test.test == "throughput").flat_map(|t| &mut t.outcome.ranks) {
        rank.tester_limited = true;
    }
    assert!(report(&limited)["report.md"].contains("\u{2020}  refuted"));
    let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
    let found = &json["ranking"]["figures"][1]["duts"][0]["refuted"][0];
    assert_eq!((&found["trial"], &found["more"]), (&950.into(), &true.into()));
    // The same trial with loss does not contradict the claim.
    let mut agreeing = run.clone();
    let last = agreeing.trials.len() - 1;
    agreeing.trials[last] =
        crate::synthetic::trial(950, "linux", "frame_loss_rate", 1518, rate(0, 1518) * 2.0, 800_000);
    assert!(!summary_text(&agreeing, false).contains("refuted by"));
}

#[test]
fn loss_beside_an_idle_processor_makes_a_figure_doubtful() {
    let with = |dut_cpu| {
        let mut once = crate::synthetic::run(3);
        crate::synthetic::lose(&mut once, dut_cpu);
        let mut run = crate::synthetic::in_rounds(&once, 6);
        for round in 2..=6 {
            run.trials.extend(once.trials.iter().cloned().map(|trial| TrialRecord { round, ..trial }));
        }
        run
    };
    let run = with(0.57);
    let combined = combined(&run);
    let view = View::new(&combined);
    let figure = |key: &str| view.ranking.figures.iter().find(|f| f.key == key).unwrap();
    let doubtful = figure("throughput_64_pps");
    assert!(doubtful.entries[0].doubtful() && doubtful.entries[0].rank.is_none());
    assert!(doubtful.entries[1..].iter().all(|e| !e.doubtful() && e.rank.is_some()));
    assert!(figure("throughput_1518_pps").entries.iter().all(|e| !e.doubtful()));
    let files = report(&run);
    let text = "% of the frames were lost while the DUT's processor was 57 % busy";
    for name in ["report.html", "report.txt", "report.md", "report.json", "csv/throughput.csv"] {
        assert!(files[name].replace("&#39;", "'").contains(text), "{name}");
    }
    assert!(files["report.html"].contains(">doubtful</text>"), "on the first screen");
    let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
    let figures = json["ranking"]["figures"].as_array().unwrap();
    let found = figures.iter().find(|f| f["key"] == "throughput_64_pps").unwrap();
    assert_eq!(found["duts"][0]["doubts"].as_array().unwrap().len(), 6, "in each round");
    assert!(!summary_text(&with(0.97), false).contains("doubtful"));
}

#[test]
fn a_refuted_figure_leaves_open_what_it_does_not_prove() {
    let with = |at_least, bound| {
        let mut run = contradictory();
        let expected = Expectation::new("throughput_1518_pps", at_least, bound);
        for test in run.tests.iter_mut().filter(|t| t.test == "throughput" && t.dut == "linux") {
            test.outcome.verdicts =
                vec![Verdict { expected: Some(expected.clone()), ..Verdict::decided("c", true, "f") }];
        }
        run.tests.retain(|t| t.dut == "linux");
        let files = report(&run);
        (criteria(&run), files["junit.xml"].contains("type=\"undecided\""))
    };
    let found = rate(0, 1518);
    assert_eq!(with(true, found * 0.9), (Criteria { met: 1, missed: 0, undecided: 0 }, false));
    assert_eq!(with(false, found * 1.1), (Criteria { met: 0, missed: 0, undecided: 1 }, true));
    assert_eq!(with(false, found * 0.9), (Criteria { met: 0, missed: 1, undecided: 0 }, false));
}

#[test]
fn a_criterion_is_not_judged_on_a_dut_that_its_test_does_not_apply_to() {
    let with = |skipped: &[&str], named: Option<&str>| {
        let mut run = crate::synthetic::run(2);
        let expected =
            Expectation { dut: named.map(str::to_owned), ..Expectation::new("throughput_1518_pps", true, 1.0) };
        for test in run.tests.iter_mut().filter(|t| t.test == "throughput") {
            let open = Verdict { expected: Some(expected.clone()), ..Verdict::decided("c", true, "f") };
            test.outcome.verdicts = if named.is_none_or(|dut| dut == test.dut) { vec![open] } else { vec![] };
            if skipped.contains(&test.dut.as_str()) {
                test.status = TestStatus::Skipped("it has no filters".into());
                test.outcome.ranks.clear();
            }
        }
        let Criteria { met, missed, undecided } = criteria(&crate::synthetic::in_rounds(&run, 6));
        [met, missed, undecided]
    };
    let duts = crate::synthetic::run(2).started.duts;
    let [a, b] = [&duts[0], &duts[1]].map(String::as_str);
    assert_eq!(with(&[], None), [2, 0, 0]);
    assert_eq!(with(&[a], None), [1, 0, 0]);
    assert_eq!(with(&[a, b], None), [0, 0, 2], "nothing was measured");
    assert_eq!(with(&[a], Some(a)), [0, 0, 1], "it was asked of this DUT");
}

#[test]
fn a_router_beside_one_that_died_keeps_what_was_compared_before() {
    let mut run = crate::synthetic::run(2);
    run.tests.retain(|test| test.test == "throughput");
    run.started.tests.retain(|(test, _)| test == "throughput");
    let judged = |figure: &str| {
        let expected = Some(Expectation::new(figure, true, 1.0));
        Verdict { expected, ..Verdict::decided(figure, true, "f") }
    };
    for test in &mut run.tests {
        test.outcome.ranks.retain(|figure| figure.key == "throughput_64_pps");
        (test.status, test.outcome.verdicts) = match test.dut.as_str() {
            "frr" => (TestStatus::Failed("it died".into()), vec![]),
            _ => {
                let why = "`frr` died, so there was nothing to compare with".into();
                (TestStatus::Skipped(why), ["throughput_64_pps", "throughput_1518_pps"].map(judged).to_vec())
            }
        };
    }
    assert_eq!(ending(&run), Ending::Failed(1), "the other one does not fail");
    assert!(summary_text(&run, false).contains("809,150"));
    assert_eq!(criteria(&run), Criteria { met: 1, missed: 0, undecided: 0 });
    let junit = &report(&run)["junit.xml"];
    assert!(junit.contains("<skipped message=\"`frr` died, so there was nothing to compare with\"/>"), "{junit}");
}

#[test]
fn a_figure_that_does_not_apply_says_nothing_against_a_dut() {
    let mut run = crate::synthetic::run(2);
    let test = run.tests.iter_mut().find(|t| t.status == TestStatus::Completed && !t.outcome.ranks.is_empty()).unwrap();
    let (dut, gone) = (test.dut.clone(), test.outcome.ranks.remove(0));
    let place = run.started.duts.iter().position(|d| *d == dut).unwrap();
    let rank = |run: &Run| {
        let run = combined(&crate::synthetic::in_rounds(run, 6));
        let view = View::new(&run);
        let figure = view.ranking.figures.iter().find(|f| f.key == gone.key).unwrap();
        figure.entries[place].rank
    };
    assert_eq!(rank(&run), None, "line rate leaves no burst to find");
    // A figure without a value counts as not given by the DUT, so it ranks last.
    let test = run.tests.iter_mut().find(|t| t.dut == dut && t.status == TestStatus::Completed).unwrap();
    test.outcome.ranks.insert(0, RankFigure { value: None, ..gone.clone() });
    assert_eq!(rank(&run), Some(2));
}

#[test]
fn a_bound_of_which_less_is_better_says_so() {
    let mut once = crate::synthetic::run(2);
    let latency = once.tests[1].outcome.ranks[0].clone();
    // The tester was the limit of one DUT of two.
    for test in &mut once.tests {
        let tester_limited = test.dut == "linux";
        match test.test.as_str() {
            "latency" => test.outcome.ranks[0].tester_limited = tester_limited,
            "frame_loss_rate" => test.outcome.ranks.push(RankFigure {
                key: "frame_loss_64_percent".into(),
                title: "Loss, 64 bytes".into(),
                unit: "%".into(),
                value: Some(0.0),
                tester_limited,
                scale: Scale::Difference,
                least: 0.0005,
                ..latency.clone()
            }),
            _ => {}
        }
    }
    let files = report(&crate::synthetic::in_rounds(&once, 6));
    for name in ["report.txt", "report.md"] {
        let words = files[name].split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("99th percentile: \u{2264} "), "{name}: {words}");
        assert!(words.contains("Loss, 64 bytes: 0 % (tester-limited) on linux and 0 % on frr."), "{name}: {words}");
        assert!(words.contains(" 0 (tester-limited) "), "{name}: {words}");
    }
    let html = &files["report.html"];
    assert!(html.contains("\u{2264} ") && html.contains("the DUT may do worse at a higher load"));
}

#[test]
fn a_limit_of_the_suite_is_none_of_the_tester() {
    let mut once = crate::synthetic::run(2);
    let latency = once.tests[1].outcome.ranks[0].clone();
    for test in once.tests.iter_mut().filter(|test| test.test == "frame_loss_rate") {
        test.outcome.ranks.push(RankFigure {
            key: "frame_loss_64_percent".into(),
            title: "Loss, 64 bytes".into(),
            unit: "%".into(),
            value: Some(0.0),
            capped: test.dut == "linux",
            scale: Scale::Difference,
            least: 0.0005,
            ..latency.clone()
        });
    }
    let files = report(&crate::synthetic::in_rounds(&once, 6));
    for name in ["report.txt", "report.md"] {
        let words = files[name].split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("Loss, 64 bytes: 0 % (limit of the suite) on linux and 0 % on frr."), "{name}: {words}");
    }
    let html = &files["report.html"];
    assert!(html.contains("the suite asks for no more: the DUT may do worse at a higher load"));
    let json: serde_json::Value = serde_json::from_str(&files["report.json"]).unwrap();
    let figures = json["ranking"]["figures"].as_array().unwrap();
    let found = &figures.iter().find(|f| f["key"] == "frame_loss_64_percent").unwrap()["duts"];
    let limits = [0, 1].map(|dut| ["tester_limited", "suite_limited"].map(|limit| found[dut][limit] == true));
    assert_eq!(limits, [[false, true], [false, false]]);
    let csv = &files["csv/summary.csv"];
    let row = csv.lines().find(|line| line.contains(",frame_loss_64_percent,%,false,linux,")).unwrap();
    assert!(csv.lines().next().unwrap().ends_with(",suite_limited") && row.ends_with(",true"), "{row}");
    assert!(row.contains(",linux,false,0,false,6,"), "{row}");
}

#[test]
fn a_test_for_one_router_says_nothing_about_the_limit_of_another() {
    let mut once = crate::synthetic::run(2);
    for test in once.tests.iter_mut().filter(|test| test.test == "throughput") {
        match test.dut.as_str() {
            "linux" => test.outcome.ranks.iter_mut().for_each(|figure| figure.capped = true),
            _ => (test.status, test.outcome) = (TestStatus::NotAsked, Default::default()),
        }
    }
    let text = summary_text(&crate::synthetic::in_rounds(&once, 6), false).replace('\n', " ");
    assert!(!text.contains("tester-limited, not compared") && !text.contains("a faster backend"), "{text}");
    assert!(text.contains("\u{2021} not compared: ") && text.contains("Where the suite was the limit"), "{text}");
}
