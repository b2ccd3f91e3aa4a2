//! A run in rounds: every round brings every DUT up again, in an order that changes.

use crate::common::{Memory, read_suite_in_rounds, run};
use drophammer_judge::rounds::combine;
use drophammer_judge::statistics::{Family, Rule, Verdict, compare};
use drophammer_model::record::{Record, TestStatus};
use std::collections::BTreeSet;

fn suite(more: &str, tests: &str) -> String {
    format!(
        "suite: rounds\nprofile: quick\n{more}duts:\n  - {{name: a, kind: reference, capacity: 60 kfps}}\n  \
         - {{name: b, kind: reference, capacity: 54 kfps}}\n  - {{name: c, kind: reference, capacity: 60 kfps}}\n\
         ports:\n  - {{name: p1, speed: 100 Mbit/s}}\n  - {{name: p2, speed: 100 Mbit/s}}\ntests:\n{tests}"
    )
}

const FORWARDING: &str = "  - forwarding_rate: {frame_sizes: [64], repeats: 1, trial_duration: 100 ms}\n";

#[test]
fn every_round_has_every_dut_and_places_take_turns() {
    let suite = read_suite_in_rounds(&suite("", FORWARDING), None);
    assert_eq!(suite.rounds, 6, "several DUTs, profile quick");
    let mut memory = Memory::default();
    let tally = run(&suite, &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (18, 0));
    let tests = memory.tests();
    let order: Vec<(u32, &str)> =
        tests.iter().filter(|t| t.dut != "tester").map(|t| (t.round, t.dut.as_str())).collect();
    let rounds: Vec<Vec<&str>> =
        (1..=6).map(|round| order.iter().filter(|(r, _)| *r == round).map(|(_, dut)| *dut).collect()).collect();
    assert!(rounds.iter().all(|duts| duts.iter().collect::<BTreeSet<_>>().len() == 3), "{rounds:?}");
    assert!(order.is_sorted_by_key(|(round, _)| *round), "one round after the other");
    for place in 0..3 {
        let at: BTreeSet<&str> = rounds[..3].iter().map(|duts| duts[place]).collect();
        assert_eq!(at.len(), 3, "in three rounds each is once at place {place}: {rounds:?}");
    }
    let reversed: Vec<&str> = rounds[3].iter().rev().copied().collect();
    assert_eq!(reversed, rounds[0]);
    let ups = memory.records.iter().filter(|r| matches!(r, Record::Dut(dut) if dut.name != "tester")).count();
    assert_eq!(ups, 18, "brought up anew each time");
    assert!(memory.trials().iter().all(|trial| (1..=6).contains(&trial.round)));

    // Known properties of the devices: b is 10 % slower, a and c are equal.
    let figures = |dut: &str| {
        let own: Vec<_> = tests.iter().copied().filter(|t| t.dut == dut).collect();
        let all = combine(&own).unwrap();
        assert_eq!(all.outcome.tables[0].rows.len(), own[0].outcome.tables[0].rows.len());
        all.outcome.ranks[0].clone()
    };
    let (a, b, c) = (figures("a"), figures("b"), figures("c"));
    let values = |f: &drophammer_model::outcome::RankFigure| f.rounds.iter().map(|r| r.figure()).collect::<Vec<_>>();
    let compared = [(&a, &b), (&a, &c)].map(|(x, y)| compare(&values(x), &values(y), &Rule::from(x)).unwrap());
    let family = Family::new(&compared.map(|comparison| comparison.p));
    assert_eq!(family.verdict(1, &compared[1]), Verdict::Undecided);
    assert!((compared[0].difference - 60.0 / 54.0 + 1.0).abs() < 0.01 && compared[0].a_is_better, "{compared:?}");
}

#[test]
fn one_dut_has_one_round_and_conformant_runs_have_ten() {
    let one = suite("", FORWARDING).replace("  - {name: b, kind: reference, capacity: 54 kfps}\n", "");
    let one = one.replace("  - {name: c, kind: reference, capacity: 60 kfps}\n", "");
    assert_eq!(read_suite_in_rounds(&one, None).rounds, 1);
    let conformant = suite("", FORWARDING).replace("quick", "conformant");
    assert_eq!(read_suite_in_rounds(&conformant, None).rounds, 10);
    assert_eq!(read_suite_in_rounds(&suite("rounds: 3\n", FORWARDING), None).rounds, 3);
}

#[test]
fn a_dut_that_does_not_come_up_in_a_round_has_its_tests_failed_in_that_round() {
    let text = suite("rounds: 2\n", FORWARDING)
        .replace("name: a, kind: reference, capacity: 60 kfps", "name: a, kind: reference, capacity: 1 fps");
    let mut memory = Memory::default();
    let tally = run(&read_suite_in_rounds(&text, None), &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (4, 2));
    let failed: Vec<_> = memory.tests().into_iter().filter(|t| t.dut == "a").collect();
    assert_eq!(failed.iter().map(|t| t.round).collect::<Vec<_>>(), [1, 2]);
    assert!(failed.iter().all(|t| matches!(&t.status, TestStatus::Failed(why) if why.contains("not begun"))));
}
