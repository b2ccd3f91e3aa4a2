//! Comparison of runs: proven differences, figures that are not compared, and the conditions that are named.

use drophammer_model::environment::PortRecord;
use drophammer_model::outcome::RankFigure;
use drophammer_model::record::TestStatus;
use drophammer_model::trial::Validity;
use drophammer_report::compare::{Compared, Count, Line, Verdict, compare_runs};
use drophammer_store::Run;
use std::path::PathBuf;

/// A run of these DUTs in six rounds, with figures of 64-byte throughput of the first DUT that are `factor` times as high.
fn run(duts: usize, factor: f64, folder: &str) -> Run {
    let mut run = crate::synthetic::in_rounds(&crate::synthetic::run(duts), 6);
    run.dir = PathBuf::from(folder);
    for figure in of(&mut run, "linux", "throughput_64_pps") {
        figure.value = figure.value.map(|value| value * factor);
    }
    run
}

fn of<'a>(run: &'a mut Run, dut: &'a str, key: &'a str) -> impl Iterator<Item = &'a mut RankFigure> {
    let own = run.tests.iter_mut().filter(move |test| test.dut == dut);
    own.flat_map(|test| &mut test.outcome.ranks).filter(move |figure| figure.key == key)
}

fn line<'a>(compared: &'a Compared, dut: &str, key: &str) -> &'a Line {
    compared.lines.iter().find(|line| line.dut == dut && line.key == key).unwrap_or_else(|| panic!("no {key} of {dut}"))
}

fn verdict<'a>(compared: &'a Compared, dut: &str, key: &str) -> &'a Verdict {
    &line(compared, dut, key).findings[0].verdict
}

fn why(compared: &Compared, dut: &str, key: &str) -> String {
    match verdict(compared, dut, key) {
        Verdict::NotCompared(why) => why.clone(),
        other => panic!("{key} of {dut}: {other:?}"),
    }
}

#[test]
fn a_figure_that_got_worse_is_found_and_nothing_else() {
    let compared = compare_runs(&[run(3, 1.0, "old"), run(3, 0.9, "new")]);
    assert_eq!(verdict(&compared, "linux", "throughput_64_pps"), &Verdict::Worse);
    let count = compared.count(1);
    assert_eq!((count.worse, count.better), (1, 0), "{count:?}");
    assert!(compared.is_worse());
    let values = line(&compared, "linux", "throughput_64_pps").findings[0].values.unwrap();
    assert!((values.difference.low + 0.1).abs() < 0.001 && values.interval.high < -0.09, "{values:?}");
    assert_eq!(compared.conditions, []);
    let text = compared.text(false);
    assert!(text.contains("No recorded condition differs.") && text.contains("-10 %  WORSE"), "{text}");
    assert!(text.contains("B against A: 1 worse, 0 better") && !text.contains('\u{1b}'), "{text}");
    assert!(compared.text(true).contains('\u{1b}'));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");

    let other_way = compare_runs(&[run(3, 0.9, "old"), run(3, 1.0, "new")]);
    assert_eq!(other_way.count(1), Count { better: 1, worse: 0, ..count });
    assert!(!other_way.is_worse());
    // A difference too small to matter, and none at all.
    for factor in [0.99, 1.0] {
        let compared = compare_runs(&[run(3, 1.0, "old"), run(3, factor, "new")]);
        assert_eq!((compared.count(1).worse, compared.count(1).better), (0, 0), "{factor}");
    }
}

#[test]
fn less_is_better_where_the_figure_says_so() {
    let mut slow = run(2, 1.0, "slow");
    of(&mut slow, "frr", "latency_64_p99_us").for_each(|figure| figure.value = figure.value.map(|v| v * 2.5));
    let compared = compare_runs(&[run(2, 1.0, "fast"), slow]);
    assert_eq!(verdict(&compared, "frr", "latency_64_p99_us"), &Verdict::Worse);
    assert!(compared.text(false).contains("2.5 times  WORSE"), "{}", compared.text(false));
}

#[test]
fn every_run_is_held_against_the_first() {
    let runs = [run(2, 1.0, "a"), run(2, 0.8, "b"), run(2, 1.2, "c")];
    let compared = compare_runs(&runs);
    let verdicts: Vec<_> =
        line(&compared, "linux", "throughput_64_pps").findings.iter().map(|f| f.verdict.clone()).collect();
    assert_eq!(verdicts, [Verdict::Worse, Verdict::Better]);
    let text = compared.text(false);
    assert!(text.contains("B against A: 1 worse") && text.contains("C against A: 0 worse, 1 better"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&compared.json()).unwrap();
    assert_eq!((&json["runs"][0]["run"], &json["runs"][1]["worse"]), (&"A".into(), &1.into()));
    let figure = json["figures"].as_array().unwrap().iter().find(|f| f["key"] == "throughput_64_pps").unwrap();
    assert_eq!((&figure["against"][1]["verdict"], &figure["dut"]), (&"better".into(), &"linux".into()));
    assert!(figure["against"][0]["p"].as_f64().unwrap() < 0.001);
    assert_eq!(figure["runs"][2]["rounds"].as_array().unwrap().len(), 6);
}

#[test]
fn bounds_stay_bounds() {
    let mut limited = run(2, 1.0, "limited");
    for figure in of(&mut limited, "linux", "throughput_64_pps") {
        figure.tester_limited = true;
    }
    // At least 100 against 90 is better; against 120 the result is unknown.
    let compared = compare_runs(&[run(2, 0.9, "slower"), limited.clone()]);
    assert_eq!(verdict(&compared, "linux", "throughput_64_pps"), &Verdict::Better);
    let text = compared.text(false);
    assert!(text.contains("\u{2265} 810,364") && text.contains("\u{2265} +11."), "{text}");
    assert!(text.contains("Limit of Throughput, 64 bytes [fps] of linux: A the DUT"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&compared.json()).unwrap();
    assert!(json["figures"][0]["against"][0]["difference"]["high"].is_null());
    let compared = compare_runs(&[run(2, 1.2, "faster"), limited.clone()]);
    assert_eq!(verdict(&compared, "linux", "throughput_64_pps"), &Verdict::Undecided);
    let mut other = run(2, 1.5, "limited too");
    of(&mut other, "linux", "throughput_64_pps").for_each(|figure| figure.tester_limited = true);
    let compared = compare_runs(&[limited, other]);
    assert_eq!(verdict(&compared, "linux", "throughput_64_pps"), &Verdict::Undecided);
    assert!(compared.text(false).contains("bounds say nothing"));
}

#[test]
fn what_one_run_lacks_is_listed_with_the_reason() {
    let mut less = run(2, 1.0, "less");
    less.started.duts.retain(|dut| dut != "frr");
    less.duts.retain(|dut| dut.name != "frr");
    less.tests.retain(|test| test.dut != "frr" && test.test != "route_flap");
    less.trials.retain(|trial| trial.dut != "frr");
    for test in &mut less.tests {
        test.outcome.ranks.retain(|figure| figure.key != "throughput_1518_pps");
    }
    let compared = compare_runs(&[run(2, 1.0, "more"), less.clone()]);
    assert_eq!(why(&compared, "frr", "throughput_64_pps"), "not in B: it has no DUT of this name");
    assert_eq!(why(&compared, "linux", "throughput_1518_pps"), "not in B: the test gave no such figure");
    assert_eq!(why(&compared, "linux", "convergence_s"), "not in B: not run; see the problems");
    // In the later run only.
    let compared = compare_runs(&[less, run(2, 1.0, "more")]);
    assert_eq!(why(&compared, "linux", "throughput_1518_pps"), "not in A: the test gave no such figure");
    assert!(compared.text(false).replace('\n', " ").contains("not compared"), "{}", compared.text(false));
    assert!(!compared.is_worse());
}

#[test]
fn a_test_that_fails_in_every_round_is_worse() {
    let mut failing = run(1, 1.0, "failing");
    for test in failing.tests.iter_mut().filter(|test| test.test == "throughput") {
        test.status = TestStatus::Failed("it died".into());
        test.outcome.ranks.clear();
    }
    let compared = compare_runs(&[run(1, 1.0, "good"), failing]);
    assert_eq!(verdict(&compared, "linux", "throughput_64_pps"), &Verdict::Worse);
    let text = compared.text(false);
    assert!(
        text.contains("failed in 6 of 6") && text.contains("Throughput on linux: A \u{2013} | B failed: it died"),
        "{text}"
    );
    // A failure in one round is chance.
    let mut once = run(1, 1.0, "once");
    let test = once.tests.iter_mut().find(|test| test.test == "throughput" && test.round == 3).unwrap();
    test.status = TestStatus::Failed("it died".into());
    test.outcome.ranks.clear();
    assert!(!compare_runs(&[run(1, 1.0, "good"), once]).is_worse());
}

#[test]
fn an_outage_needs_no_rounds_and_a_comparison_of_nothing_is_open() {
    let one = |fails: bool| {
        let mut run = crate::synthetic::run(1);
        for test in run.tests.iter_mut().filter(|test| fails && test.test == "throughput") {
            test.status = TestStatus::Failed("no frame passed".into());
            test.outcome.ranks.clear();
        }
        run
    };
    let key = "throughput_64_pps";
    let compared = compare_runs(&[one(false), one(true)]);
    assert_eq!(verdict(&compared, "linux", key), &Verdict::Worse);
    assert!(compared.is_worse() && !compared.is_open() && compared.text(false).contains("WORSE"));
    assert_eq!(verdict(&compare_runs(&[one(true), one(false)]), "linux", key), &Verdict::Better);
    // A simulated router that fails says nothing about a real one.
    let mut simulated = one(true);
    simulated.duts.iter_mut().for_each(|dut| dut.simulated = true);
    let compared = compare_runs(&[one(false), simulated]);
    assert_eq!(why(&compared, "linux", key), "simulated in one run, real in the other");
    // A doubtful figure does not prove that the test worked.
    let mut doubtful = one(false);
    crate::synthetic::lose(&mut doubtful, 0.57);
    let compared = compare_runs(&[doubtful, one(true)]);
    assert!(why(&compared, "linux", key).starts_with("A has 1 round"));
    let same = compare_runs(&[one(false), one(false)]);
    assert!(same.is_open() && !same.is_worse(), "one round each proves nothing");
    assert!(!compare_runs(&[run(1, 1.0, "a"), run(1, 1.0, "b")]).is_open());
}

#[test]
fn what_cannot_be_compared_is_not() {
    let base = || run(2, 1.0, "base");
    let with = |change: &dyn Fn(&mut RankFigure)| {
        let mut run = run(2, 0.5, "changed");
        of(&mut run, "linux", "throughput_64_pps").for_each(change);
        compare_runs(&[base(), run])
    };
    let key = "throughput_64_pps";
    let compared = with(&|figure| figure.title = "Throughput of something else".into());
    assert_eq!(why(&compared, "linux", key), "another figure: Throughput of something else");
    let compared = with(&|figure| figure.unit = "kfps".into());
    assert_eq!(why(&compared, "linux", key), "its unit or meaning differs");
    let mut at_load = base();
    of(&mut at_load, "linux", key).for_each(|figure| figure.load_pps = Some(100_000.0));
    let mut at_other = run(2, 0.5, "other load");
    of(&mut at_other, "linux", key).for_each(|figure| figure.load_pps = Some(50_000.0));
    let compared = compare_runs(&[at_load, at_other]);
    assert_eq!(why(&compared, "linux", key), "measured at different loads: 100,000 and 50,000 fps per port");
    let loads = compared.conditions.iter().find(|c| c.name == "Load of Throughput, 64 bytes [fps] of linux").unwrap();
    assert_eq!(loads.text(), "A 100,000 fps | B 50,000 fps");
    // One round.
    let mut once = crate::synthetic::run(2);
    of(&mut once, "linux", key).for_each(|figure| figure.value = Some(1.0));
    let compared = compare_runs(&[base(), once]);
    assert_eq!(why(&compared, "linux", key), "B has 1 round, and fewer than 4 prove nothing");
    assert!(!compared.is_worse());
    // A simulated router and a real one.
    let mut simulated = run(2, 0.5, "simulated");
    simulated.duts.iter_mut().for_each(|dut| dut.simulated = true);
    assert_eq!(why(&compare_runs(&[base(), simulated]), "linux", key), "simulated in one run, real in the other");
    // A host that held the DUT up costs time, and no comparison.
    let mut busy = run(2, 0.5, "busy");
    for trial in busy.trials.iter_mut().filter(|trial| trial.dut == "linux").step_by(3) {
        trial.result.validity = Validity::Invalid(vec!["host busy: others ran".into()]);
    }
    let compared = compare_runs(&[base(), busy]);
    assert_eq!(
        *verdict(&compared, "linux", key),
        *verdict(&compare_runs(&[base(), run(2, 0.5, "idle")]), "linux", key)
    );
}

#[test]
fn conditions_that_differ_are_named_above_the_figures() {
    let mut other = run(2, 1.0, "other");
    let started = &mut other.started;
    started.profile = "conformant".into();
    started.rounds = 12;
    started.environment.drophammer = "0.2.0".into();
    started.environment.kernel = "6.18.0".into();
    started.environment.cpu_model = "Another processor".into();
    started.environment.more.insert("governor".into(), "powersave".into());
    started.deviations.push("trials are kept although the host was busy (--busy-host)".into());
    other.duts[1].version = "frr 10.4".into();
    other.duts[1].ports[0].backend = "af_xdp".into();
    other.duts[0].config.insert("linux.conf".into(), "! other\nip forwarding\n".into());
    for test in other.tests.iter_mut().filter(|test| test.test == "latency") {
        test.parameters["trial_duration"] = "2 min".into();
    }
    let compared = compare_runs(&[run(2, 1.0, "base"), other]);
    let shown: Vec<String> = compared.conditions.iter().map(|c| format!("{}: {}", c.name, c.text())).collect();
    for expected in [
        "Profile: A quick | B conformant",
        "Rounds: A 6 | B 12",
        "Drophammer: A 0.1.0 | B 0.2.0",
        "Kernel: A 6.12.0 | B 6.18.0",
        "Processor: A Some processor | B Another processor",
        "governor: A performance | B powersave",
        "frr: version: A frr 10.3 | B frr 10.4",
        "frr: port p1: A veth-p1, af_packet, ",
        "linux: configuration linux.conf: A line 1: ! </pre>",
        "Latency: trial_duration: A 1 s | B 2 min",
        "Deviations from the RFCs: A \u{2013} | B trials are kept although the host was busy",
    ] {
        assert!(shown.iter().any(|line| line.starts_with(expected)), "{expected}: {shown:#?}");
    }
    assert_eq!(shown.len(), 11, "{shown:#?}");
    let text = compared.text(false);
    let (conditions, figures) = (text.find("Different conditions"), text.find("Throughput, 64 bytes [fps]"));
    assert!(conditions.is_some() && conditions < figures, "{text}");
}

#[test]
fn beds_of_different_size_are_columns_and_their_ports_one_condition() {
    let mut large = run(2, 4.0, "large");
    large.started.suite = "large-bed".into();
    let small = run(2, 1.0, "small");
    for dut in &mut large.duts {
        for name in ["p7", "p8"] {
            dut.ports.push(PortRecord { name: name.into(), ..dut.ports[0].clone() });
        }
    }
    let names = |run: &Run| run.duts[0].ports.iter().map(|port| port.name.clone()).collect::<Vec<_>>().join(", ");
    let (few, many) = (names(&small), names(&large));
    let (counted, more) = (small.duts[0].ports.len(), large.duts[0].ports.len());
    let compared = compare_runs(&[small, large]);
    let shown: Vec<String> = compared.conditions.iter().map(|c| format!("{}: {}", c.name, c.text())).collect();
    for dut in ["linux", "frr"] {
        let expected = format!("{dut}: ports: A {counted}: {few} | B {more}: {many}");
        assert!(shown.contains(&expected), "{expected}: {shown:#?}");
    }
    // The ports that only one bed has make no further conditions.
    assert_eq!(shown.len(), 3, "{shown:#?}");
    let text = compared.text(false);
    assert!(text.contains("A small: ") && text.contains("B large: large-bed"), "{text}");
    let row = text.lines().find(|line| line.contains("Throughput, 64 bytes")).unwrap();
    let cells: Vec<&str> = row.split('┆').map(|cell| cell.trim_matches(['│', ' '])).collect();
    assert_eq!(cells[1..3], ["810,364", "3,241,457"], "{text}");
}

#[test]
fn a_dut_that_one_run_lacks_is_one_condition() {
    let both = run(2, 1.0, "both");
    let mut one = both.clone();
    let gone = one.duts.iter().position(|dut| dut.name == "linux").unwrap();
    one.duts.remove(gone);
    one.started.duts.retain(|dut| dut != "linux");
    one.tests.retain(|test| test.dut != "linux");
    one.trials.retain(|trial| trial.dut != "linux");
    let compared = compare_runs(&[both, one]);
    let shown: Vec<String> = compared.conditions.iter().map(|c| format!("{}: {}", c.name, c.text())).collect();
    let named: Vec<&String> = shown.iter().filter(|line| line.contains("linux")).collect();
    assert_eq!(named, ["DUT linux: A there | B \u{2013}"], "{shown:#?}");
}

#[test]
fn a_port_that_one_bed_lacks_is_compared_between_the_others() {
    let with = |backend: &str| {
        let mut run = run(1, 1.0, backend);
        let ports = &mut run.duts[0].ports;
        ports.push(PortRecord { name: "p9".into(), backend: backend.into(), ..ports[0].clone() });
        run
    };
    let compared = compare_runs(&[run(1, 1.0, "small"), with("af_packet"), with("af_xdp")]);
    let port = compared.conditions.iter().find(|condition| condition.name == "linux: port p9");
    let shown = port.map(|condition| condition.text()).unwrap_or_default();
    assert!(shown.starts_with("A \u{2013} | B veth-p1, af_packet") && shown.contains("| C veth-p1, af_xdp"), "{shown}");
    let same = compare_runs(&[run(1, 1.0, "small"), with("af_xdp"), with("af_xdp")]);
    assert!(!same.conditions.iter().any(|condition| condition.name.contains("port p9")));
}

#[test]
fn hostile_texts_do_not_reach_the_terminal() {
    let mut hostile = run(2, 1.0, "\u{1b}[2J");
    let text = "\u{1b}]0;title\u{7}\u{202e}\nnext";
    hostile.started.suite = text.into();
    hostile.started.environment.kernel = text.into();
    hostile.started.rounds = u32::MAX;
    hostile.duts[0].version = text.repeat(10_000);
    for test in &mut hostile.tests {
        test.status = TestStatus::Failed(text.into());
        test.outcome.ranks.iter_mut().for_each(|figure| {
            (figure.title, figure.unit, figure.value) = (text.into(), text.into(), Some(f64::MAX));
        });
    }
    // No round has a figure of this test.
    hostile.tests.iter_mut().filter(|test| test.test == "latency").for_each(|test| test.outcome.ranks.clear());
    let compared = compare_runs(&[run(2, 1.0, "good"), hostile]);
    let visible = |text: &str| !text.chars().any(|c| drophammer_model::visible::is_hidden(c) && c != '\n');
    assert!(visible(&compared.text(false)) && visible(&compared.json()));
    assert!(compared.text(false).len() < 100_000);
    serde_json::from_str::<serde_json::Value>(&compared.json()).unwrap();
}
