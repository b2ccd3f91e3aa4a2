//! 64 ports, and traffic between any of them, in virtual time.
use crate::common::{Memory, read_suite, run};
use drophammer_model::record::Record;
use std::fmt::Write;

#[test]
fn each_of_64_ports_sends_to_three_others() {
    let mut text = String::from("suite: many\nduts:\n  - {name: box, kind: reference}\nports:\n");
    for port in 1..=64 {
        writeln!(text, "  - {{name: p{port}, speed: 1 Gbit/s}}").unwrap();
    }
    text += "flows:\n";
    for from in 0..64 {
        for step in [1, 7, 32] {
            let to = (from + step) % 64;
            let (a, b) = (from + 1, to + 1);
            let rate = 100 + from;
            writeln!(text, "  - {{name: f{a}-{b}, from: p{a}, to: p{b}, size: 64, rate: {rate} fps}}").unwrap();
        }
    }
    text += "tests:\n  - fixed_rate: {trial_duration: 1 s}\n";
    let mut memory = Memory::default();
    run(&read_suite(&text), &mut memory).unwrap();
    let trials = memory.records.iter().filter_map(|r| match r {
        Record::Trial(trial) if trial.test == "fixed_rate" => Some(trial),
        _ => None,
    });
    let trials: Vec<_> = trials.collect();
    let [trial] = trials.as_slice() else { panic!("one trial, not {}", trials.len()) };
    assert_eq!((trial.result.groups.len(), trial.result.senders), (192, 64));
    for group in &trial.result.groups {
        let from: u64 = group.group[1..].split('-').next().unwrap().parse().unwrap();
        let frames = 100 + from - 1;
        assert_eq!((group.offered, group.received, group.in_sequence), (frames, frames, frames), "{}", group.group);
        assert_eq!((group.stray, group.corrupted), (0, 0), "{}", group.group);
    }
}
