//! Which records of an interrupted run are kept when it is resumed.

use crate::common::{Memory, read_suite, read_suite_in_rounds, run};
use drophammer_model::environment::Environment;
use drophammer_model::record::{Note, Record, TestStatus};
use drophammer_testbed::{Earlier, Refusal};

const SIX_ROUNDS: &str = "suite: resumed\nprofile: quick\nseed: 4\nrounds: 6\n\
     duts: [{name: a, kind: reference}, {name: b, kind: reference}]\n\
     ports: [{name: p1, speed: 100 Mbit/s}, {name: p2, speed: 100 Mbit/s}]\n\
     tests:\n  - forwarding_rate: {frame_sizes: [64], repeats: 1, trial_duration: 50 ms}\n";

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
    // The run is cut off in the turn of b.
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
        assert_eq!((earlier.todo.as_slice(), earlier.keep.last().unwrap().end), (&[1][..], a + 1 + kept));
    }
}

#[test]
fn turns_of_a_router_that_never_comes_up_are_kept() {
    let suite = read_suite_in_rounds(SIX_ROUNDS, None);
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let first = memory.tests()[0].dut.clone();
    // A router that does not come up has a note and failed tests, but no record of its own.
    let mut records = Vec::new();
    for record in memory.records {
        match record {
            Record::Started(mut started) => {
                started.digest = "of the suite".into();
                records.push(Record::Started(started));
            }
            Record::Dut(dut) if dut.name == first => records.push(remark(Some(&first))),
            Record::Trial(trial) if trial.dut == first => {}
            Record::Test(mut test) if test.dut == first => {
                test.status = TestStatus::Failed("not begun: the DUT did not come up".into());
                records.push(Record::Test(test));
            }
            other => records.push(other),
        }
    }
    let earlier = |records: &[Record]| Earlier::of(&suite, "of the suite", &Environment::default(), records);
    assert_eq!(earlier(&records).unwrap_err(), Refusal::Complete);
    // The run is stopped in round 5.
    let of_round = |record: &Record, round: u32| matches!(record, Record::Test(test) if test.round == round);
    let at = records.iter().position(|record| of_round(record, 5)).unwrap();
    records.truncate(at);
    let found = earlier(&records).unwrap();
    assert_eq!((found.todo.as_slice(), found.of), (&[4, 5][..], 6));
    let kept = || found.keep.iter().flat_map(|range| &records[range.clone()]);
    for round in 1..=4 {
        assert_eq!(kept().filter(|record| of_round(record, round)).count(), 2, "round {round}");
    }
}

#[test]
fn a_complete_run_measures_its_spoilt_turns_again() {
    let suite = read_suite_in_rounds(SIX_ROUNDS, None);
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let mut records = memory.records;
    let Record::Started(started) = &mut records[0] else { panic!("no start of a run") };
    started.digest = "of the suite".into();
    let earlier = |records: &[Record]| Earlier::of(&suite, "of the suite", &Environment::default(), records);
    assert_eq!(earlier(&records).unwrap_err(), Refusal::Complete);
    for record in &mut records {
        if let Record::Test(test) = record
            && test.round == 3
            && test.dut == "b"
        {
            test.status = TestStatus::Unfit("host busy".into());
        }
    }
    let found = earlier(&records).unwrap();
    assert_eq!((found.todo.as_slice(), found.of), (&[2][..], 6), "both routers of a round are up together");
    let kept: Vec<Record> = found.keep.iter().flat_map(|range| records[range.clone()].iter().cloned()).collect();
    let rounds: Vec<u32> =
        kept.iter().filter_map(|r| if let Record::Test(test) = r { Some(test.round) } else { None }).collect();
    assert_eq!(rounds, [1, 1, 2, 2, 4, 4, 5, 5, 6, 6]);
    assert!(kept.len() < records.len() && !kept.iter().any(|record| matches!(record, Record::Ended(_))));
    // Rounds in which only a figure was spoilt are also repeated, because the report says that this helps.
    let mut figure = records.clone();
    for record in &mut figure {
        if let Record::Test(test) = record {
            test.status = TestStatus::Completed;
            if test.round == 4 && test.dut == "a" {
                let rank = test.outcome.ranks.remove(0);
                test.outcome.ranks.push(rank.spoilt("host busy"));
            }
        }
    }
    assert_eq!(earlier(&figure).unwrap().todo, [3]);
    // The records of the turn follow, and the run is complete again.
    let again = records.iter().filter(|r| matches!(r, Record::Test(test) if test.round == 3)).map(|record| {
        let mut record = record.clone();
        if let Record::Test(test) = &mut record {
            test.status = TestStatus::Completed;
        }
        record
    });
    let ended = records.last().cloned();
    let whole: Vec<Record> = kept.into_iter().chain(again).chain(ended).collect();
    assert_eq!(earlier(&whole).unwrap_err(), Refusal::Complete);
    // A resumed run starts with the tests that are left.
    records.pop();
    records.truncate(records.len() - 1);
    assert_eq!(earlier(&records).unwrap().todo, [5]);
}
