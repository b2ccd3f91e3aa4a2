//! Which records of an interrupted run are kept when it goes on.

mod common;

use common::{Memory, read_suite, run};
use drophammer_model::environment::Environment;
use drophammer_model::record::{Note, Record};
use drophammer_testbed::Earlier;

fn remark(dut: Option<&str>) -> Record {
    let (time, dut, text) = (String::new(), dut.map(str::to_owned), "a remark".into());
    Record::Note(Note { time, dut, text, problem: false })
}

#[test]
fn remarks_after_the_last_test_of_a_turn_are_kept_with_the_turn() {
    let suite = read_suite(
        "suite: resumed\nprofile: quick\nseed: 4\nduts: [{name: a, kind: reference}, {name: b, kind: reference}]\n\
         ports: [{name: p1, speed: 100 Mbit/s}, {name: p2, speed: 100 Mbit/s}]\n\
         tests:\n  - forwarding_rate: {frame_sizes: [64], repeats: 1, trial_duration: 50 ms}\n",
    );
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let mut records = memory.records;
    let Record::Started(started) = &mut records[0] else { panic!("no start of a run") };
    started.digest = "of the suite".into();
    let tests = |records: &[Record]| -> Vec<usize> {
        (0..records.len()).filter(|at| matches!(records[*at], Record::Test(_))).collect()
    };
    // Cut off in the turn of b.
    let [a, b] = tests(&records)[..] else { panic!("one test on each of two DUTs") };
    records.truncate(b);
    let own = [remark(Some("a")), remark(Some("a"))];
    for (after, kept) in [
        (vec![], 0),
        (own.to_vec(), 2),
        ([&own[..], &[remark(None), remark(Some("a"))]].concat(), 2),
        ([&own[..], &[remark(Some("b"))]].concat(), 2),
    ] {
        let mut records = records.clone();
        records.splice(a + 1..a + 1, after);
        let earlier = Earlier::of(&suite, "of the suite", &Environment::default(), &records).unwrap();
        assert_eq!((earlier.turns, earlier.records), (1, a + 1 + kept));
    }
}
