//! How fast trials in virtual time are: frames per second of real time through generator, simulated ports, reference router,
//! hosts and analyzer, at 10 Gbit/s in both directions. Prints medians; seconds are those that the processor worked for this
//! program, so that others on the machine matter less.
//!
//! `cargo bench -p drophammer-testbed --bench virtual_time`; needs no privilege. `-- 64` measures only this size. With
//! `-- search 1518` (or another size) it runs a whole conformant throughput search of that size instead, and prints the
//! time that it took.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Memory, read_suite, run, with_bed};
use drophammer_methods::Testbed;
use drophammer_model::trial::{Family, FlowSpec, Load, TrialSpec};

/// Seconds that a processor has worked for this thread.
fn worked_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

const ROUNDS: usize = 7;
/// Frame size with FCS, capacity of the router and load per port in fps, both together in frames of two ports.
const CASES: [(&str, u64, f64, f64); 4] = [
    ("64", 10_400_000, 5_000_000.0, 0.1),
    ("64", 10_400_000, 7_000_000.0, 0.1),
    ("1518", 570_000, 280_000.0, 0.5),
    ("1518", 570_000, 400_000.0, 0.5),
];

/// A conformant search on a router of 7 Gbit/s.
fn search(size: &str) {
    let bytes: f64 = size.parse().unwrap();
    let capacity = (7e9 / ((bytes + 20.0) * 8.0)) as u64;
    let suite = read_suite(&format!(
        "suite: virtual\nprofile: conformant\nduts: [{{name: box, kind: reference, capacity: {capacity} fps}}]\n\
         ports: [{{name: p1, speed: 10 Gbit/s}}, {{name: p2, speed: 10 Gbit/s}}]\n\
         tests: [throughput: {{frame_sizes: [{size}]}}]\n"
    ));
    let mut memory = Memory::default();
    let start = worked_s();
    run(&suite, &mut memory).unwrap();
    let real_s = worked_s() - start;
    let trials = memory.trials();
    for (name, rank) in memory.outcome("throughput").ranks.iter().map(|r| (&r.key, r.value)) {
        println!("{name}: {rank:?}, half of the capacity is {}", capacity / 2);
    }
    let long = trials.iter().filter(|t| t.spec.duration_s == 60.0).count();
    let (seconds, frames) =
        trials.iter().fold((0.0, 0), |(seconds, frames), t| (seconds + t.spec.duration_s, frames + t.result.offered()));
    println!(
        "{} trials, {long} of them of 60 s, {seconds:.0} s in all; {frames} frames in {real_s:.1} s: {:.0} frames/s",
        trials.len(),
        frames as f64 / real_s
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if let [word, size] = &words[..]
        && word == "search"
    {
        return search(size);
    }
    println!(
        "{:>5} {:>12} {:>12} {:>10} {:>14} {:>9}",
        "size", "capacity", "load/port", "lost", "frames/s", "ns/frame"
    );
    for (size, capacity, rate_pps, duration_s) in CASES {
        if !words.is_empty() && !words.iter().any(|word| word == size) {
            continue;
        }
        let suite = read_suite(&format!(
            "suite: virtual\nduts: [{{name: box, kind: reference, capacity: {capacity} fps}}]\n\
             ports: [{{name: p1, speed: 10 Gbit/s}}, {{name: p2, speed: 10 Gbit/s}}]\ntests: [throughput]\n"
        ));
        let mut lost = 0;
        let mut rates = with_bed(
            &suite,
            &[Family::Ipv4],
            |_| {},
            |bed, _| {
                let flow = |from: usize, to: usize| {
                    let range = |port: usize| bed.ports()[port].addressing(Family::Ipv4).unwrap().destinations;
                    let (sources, destinations) = (range(from), range(to));
                    FlowSpec::new(format!("{from}"), from, to, sources, destinations)
                };
                let spec = TrialSpec {
                    purpose: "virtual time".into(),
                    size: size.parse().unwrap(),
                    flows: vec![flow(0, 1), flow(1, 0)],
                    load: Load::Constant { rate_pps },
                    duration_s,
                    bin_s: None,
                    drain_s: 0.01,
                    events: vec![],
                };
                let round = |_| {
                    let start = worked_s();
                    let result = bed.trial(&spec).unwrap();
                    lost = result.lost();
                    result.offered() as f64 / (worked_s() - start)
                };
                (0..ROUNDS).map(round).collect::<Vec<_>>()
            },
        );
        rates.sort_by(f64::total_cmp);
        let rate = rates[ROUNDS / 2];
        println!("{size:>5} {capacity:>12} {rate_pps:>12} {lost:>10} {rate:>14.0} {:>9.1}", 1e9 / rate);
    }
}
