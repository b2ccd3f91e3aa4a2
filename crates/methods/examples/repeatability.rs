//! Reliability of ranks: over 1,000 simulated runs of four equal DUTs, the share with any false rank and the share of
//! intervals that contain the true value; then, with two DUTs, the share of figures in which a difference is found.
//!
//! `cargo run --release -p drophammer-methods --example repeatability`; a number after `--` is the number of runs.

#[path = "../tests/repeatability/host.rs"]
mod host;
#[path = "../tests/repeatability/simulation.rs"]
mod simulation;

use drophammer_judge::statistics::Test;
use host::{DIFFERENCES, DUET, HOSTS, MISSED_AT_MOST, MORE_TURNS, ONE_AFTER_ANOTHER, POWER, TURNS};
use simulation::{NOISES, STILL, between_runs, errors, lossy, power};

fn main() {
    let runs = std::env::args().nth(1).and_then(|runs| runs.parse().ok()).unwrap_or(1_000);
    println!("Any false rank among 4 DUTs that are alike, 6 ranked figures, {runs} runs (aim: at most 5 %)\n");
    println!("{:<42} {:>6} {:>10} {:>14} {:>17}", "noise", "rounds", "false", "upper bound", "intervals hold");
    for noise in NOISES {
        for rounds in [6, 12] {
            let (wrong, upper, hold) = errors(*noise, rounds, runs, 1);
            let percent = |share: f64| format!("{:.1} %", share * 100.0);
            println!(
                "{:<42} {rounds:>6} {:>10} {:>14} {:>17}",
                noise.name,
                percent(wrong),
                percent(upper),
                percent(hold)
            );
        }
    }
    println!("\nShare of figures in which a router that is slower by so much is found, 2 DUTs, {} runs\n", runs / 10);
    println!("{:<42} {:>6} {:>7} {:>7} {:>7} {:>7}", "noise", "rounds", "3 %", "5 %", "10 %", "30 %");
    for noise in NOISES {
        for rounds in [6, 12] {
            let shares = [0.97, 0.95, 0.9, 0.7].map(|ratio| 100.0 * power(*noise, rounds, ratio, runs / 10, 2));
            let [a, b, c, d] = shares.map(|share| format!("{share:.0} %"));
            println!("{:<42} {rounds:>6} {a:>7} {b:>7} {c:>7} {d:>7}", noise.name);
        }
    }
    println!(
        "\nShare of runs in which a router that loses one frame in 100,000 is told from one that loses none, 12 rounds, {runs} runs\n"
    );
    println!("{:<42} {:>12} {:>12}", "rounds that lose hundreds beside it", "t-test", "either test");
    for astray in [0.0, 0.01, 0.02, 0.05] {
        let [t, either] =
            [Test::T, Test::Either].map(|test| format!("{:.1} %", 100.0 * lossy(test, astray, 12, runs, 3)));
        println!("{:<42} {t:>12} {either:>12}", format!("{:.0} %", 100.0 * astray));
    }
    println!(
        "\nTwo runs of 2 DUTs compared, 12 figures, {runs} pairs of runs: pairs with any false difference (aim: at most 5 %); share of the"
    );
    println!("figures in which routers that are slower by so much are found, 6 rounds each\n");
    println!("{:<42} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}", "noise", "6 + 6", "6 + 12", "4 + 6", "5 %", "10 %", "30 %");
    for noise in [STILL].iter().chain(NOISES) {
        let wrong = [(6, 6), (6, 12), (4, 6)].map(|rounds| between_runs(*noise, rounds, 1.0, runs, 6).0);
        let found = [0.95, 0.9, 0.7].map(|ratio| between_runs(*noise, (6, 6), ratio, runs / 10, 7).1);
        let [a, b, c] = wrong.map(|share| format!("{:.1} %", 100.0 * share));
        let [d, e, f] = found.map(|share| format!("{:.0} %", 100.0 * share));
        println!("{:<42} {a:>7} {b:>7} {c:>7} {d:>7} {e:>7} {f:>7}", noise.name);
    }
    shared_machine(runs);
}

/// What the order of trials is worth on a machine whose speed changes.
fn shared_machine(runs: usize) {
    println!(
        "\nA shared machine: its speed changes by so much, and stays alike for so long. {runs} runs of 4 DUTs that are alike, 3 figures:"
    );
    println!(
        "runs with any false rank (aim: at most 5 %) and, of duets, intervals that miss (aim: at most {:.0} %). {} runs of 2 DUTs: share of the",
        100.0 * MISSED_AT_MOST,
        runs / 4
    );
    println!(
        "figures that find a router that is slower by so much, and the smallest of these differences that {:.0} % find\n",
        100.0 * POWER
    );
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let columns = DIFFERENCES.map(|slower| format!("{:>6}", percent(slower))).join(" ");
    println!(
        "{:<36} {:<20} {:>7} {:>7} {:>7} {columns} {:>8}",
        "speed", "DUTs measured", "minutes", "false", "miss", "smallest"
    );
    for shared in HOSTS {
        for way in [ONE_AFTER_ANOTHER, TURNS, MORE_TURNS, DUET] {
            let errors = host::errors(*shared, way, runs, 9);
            let shares = host::found(*shared, way, runs / 4, 10);
            println!(
                "{:<36} {:<20} {:>7.1} {:>7} {:>7} {} {:>8}",
                shared.name,
                way.name,
                host::minutes(way),
                format!("{:.1} %", 100.0 * errors.false_ranks),
                errors.missed.map_or(String::new(), |missed| format!("{:.1} %", 100.0 * missed)),
                shares.map(|share| format!("{:>6}", percent(share))).join(" "),
                host::smallest(&shares).map_or("none".to_owned(), percent),
            );
        }
    }
}
