//! Within a card and between cards: the same ports in two pairings, only one of which has a limit.

use crate::common::*;
use drophammer_model::pattern::{Distribution, PatternKey};
use drophammer_model::record::{Record, TestStatus, TrialRecord};
use drophammer_model::suite::Suite;
use std::path::Path;

/// The shipped suite with a simulated router as each card, and ports of 100 Mbit/s with a backplane of 20 Mbit/s.
fn suite(more: &str) -> Suite {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/cards.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let changed = [
        ("name: linux, kind: linux", &format!("name: known, kind: reference{more}")[..]),
        ("core_speed: 100 Mbit/s", "core_speed: 20 Mbit/s"),
        ("speed: 1 Gbit/s", "speed: 100 Mbit/s"),
        ("compare_at: 5 kfps", "compare_at: 1 kfps"),
    ];
    read_suite(&changed.into_iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    }))
}

fn of<'a>(memory: &'a Memory, id: &str) -> &'a drophammer_model::record::TestRecord {
    memory.tests().into_iter().find(|test| test.id.as_deref() == Some(id)).unwrap_or_else(|| panic!("no test {id}"))
}

/// The trials of a test with this id: those recorded after the previous test and before this test.
fn trials_of<'a>(memory: &'a Memory, id: &str) -> Vec<&'a TrialRecord> {
    let mut trials = Vec::new();
    for record in &memory.records {
        match record {
            Record::Trial(trial) => trials.push(&**trial),
            Record::Test(test) if test.id.as_deref() == Some(id) => return trials,
            Record::Test(_) => trials.clear(),
            _ => {}
        }
    }
    panic!("no test {id}")
}

#[test]
fn each_pairing_has_a_row_and_its_own_limit() {
    let mut memory = Memory::default();
    run(&suite(", delay: 10 us"), &mut memory).unwrap();
    assert_eq!(memory.tests().len(), 4);
    assert!(memory.tests().iter().all(|test| test.status == TestStatus::Completed));
    let figure = |id: &str, key: &str| {
        let ranks = &of(&memory, id).outcome.ranks;
        ranks.iter().find(|rank| rank.key == key).unwrap_or_else(|| panic!("no {key}: {ranks:?}")).value.unwrap()
    };
    // In each direction, two ports share the link between the cards; the line of a port carries the frames of one other
    // port.
    let line = |bits: f64| bits / 8.0 / 532.0;
    let within = figure("within-a-card", "throughput_512_pps");
    assert!((within / line(100e6) - 1.0).abs() < 1e-4, "{within}");
    let between = figure("between-cards", "throughput_512_pps");
    let expected = line(20e6) / 2.0;
    // The buffer of the link holds 1,024 frames, which a short trial does not fill at a few per cent more.
    assert!((expected * 0.97..expected + 1_030.0).contains(&between), "{between}, not {expected}");
    // A frame between cards passes a second router, 10 us, and the link between them, 532 bytes at 20 Mbit/s.
    let least = |id: &str| {
        let trials = trials_of(&memory, id).into_iter();
        trials.map(|trial| trial.result.groups[0].latency.min_ns).min().unwrap()
    };
    let extra = least("latency-between-cards") - least("latency-within-a-card");
    assert!((10_000 + 212_800..=10_000 + 212_900).contains(&extra), "{extra} ns");
    let ids = ["within-a-card", "between-cards", "latency-within-a-card", "latency-between-cards"];
    for (id, trial) in ids.iter().flat_map(|id| trials_of(&memory, id).into_iter().map(move |trial| (id, trial))) {
        let crossed = id.contains("between");
        let distribution = PatternKey::of(&trial.spec).distribution;
        assert_eq!(distribution == Distribution::Crossed, crossed, "{}", trial.test);
        let ways: Vec<_> = trial.spec.flows.iter().map(|flow| (flow.from, flow.to)).collect();
        assert_eq!(ways.contains(&(0, 2)) && ways.contains(&(3, 1)), crossed, "{ways:?}");
        assert_eq!(ways.contains(&(0, 1)) && ways.contains(&(3, 2)), !crossed, "{ways:?}");
    }
}

#[test]
fn tests_of_routes_have_no_crossed_pairs() {
    let text = "suite: s\nprofile: quick\nduts: [{name: box, kind: reference}]\nports:\n  - {name: p1, speed: 1 Gbit/s}\n  - {name: p2, speed: 1 Gbit/s}\n  - {name: p3, speed: 1 Gbit/s}\n  - {name: p4, speed: 1 Gbit/s}\n\
                bgp: {}\ntests:\n  - route_flap: {distribution: crossed, routes: 100, flapped: 10}\n";
    let mut memory = Memory::default();
    run(&read_suite(text), &mut memory).unwrap();
    let test = memory.tests()[0];
    let said =
        |status: &TestStatus| format!("{status:?}").contains("crossed pairs need a test that sends between pairs");
    assert!(
        said(&test.status) || test.outcome.notes.iter().any(|note| note.contains("crossed pairs need a")),
        "{test:?}"
    );
}
