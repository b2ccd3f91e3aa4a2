//! DUTs that are alike tie, and a difference is found: see `simulation.rs`. The same with more runs and as a table:
//! `cargo run --release -p drophammer-methods --example repeatability`.

mod simulation;

use simulation::{NOISES, errors, power};

/// So few that the whole is done in seconds; the bounds below leave room for their chance.
const RUNS: usize = 60;

#[test]
fn duts_that_are_alike_tie_whatever_the_machine_does() {
    for noise in NOISES {
        let (wrong, _, hold) = errors(*noise, 6, RUNS, 3);
        // With a true rate of 5 %, eight of 60 or more occur once in 80 times; the seed is fixed.
        assert!(wrong < 8.0 / RUNS as f64, "{}: {wrong}", noise.name);
        // Drift moves the truth itself, and what is the same for all rounds of a run cannot be in an interval.
        assert!(hold > 0.88 || noise.drift != 1.0, "{}: {hold}", noise.name);
    }
}

#[test]
fn a_slower_dut_is_found() {
    let found = |noise: usize, ratio| power(NOISES[noise], 12, ratio, RUNS / 4, 4);
    assert!(found(0, 0.9) > 0.9, "{}", found(0, 0.9));
    assert!(found(1, 0.7) > 0.9, "{}", found(1, 0.7));
    assert!(found(0, 1.0) < 0.05);
}
