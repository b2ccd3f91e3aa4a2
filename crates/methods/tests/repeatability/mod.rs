//! Equal DUTs tie, and a difference is found: see `simulation.rs` and, for shared machines, `host.rs`. To run this with
//! more runs and print a table: `cargo run --release -p drophammer-methods --example repeatability`.

mod host;
mod simulation;

use drophammer_judge::statistics::Test;
use host::{DUET, HOSTS, MISSED_AT_MOST, MORE_TURNS, ONE_AFTER_ANOTHER, SLOW, TURNS, minutes, smallest};
use simulation::{NOISES, Noise, STILL, between_runs, errors, lossy, power};

/// Small enough to finish within seconds; the bounds below allow for chance.
const RUNS: usize = 200;

#[test]
fn duts_that_are_alike_tie_whatever_the_machine_does() {
    for noise in NOISES {
        let (wrong, _, hold) = errors(*noise, 6, RUNS, 3);
        assert!(wrong <= 0.05, "{}: {wrong}", noise.name);
        // Drift changes the true value itself, and an interval cannot include an effect that is common to all rounds of
        // a run.
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

#[test]
fn a_loss_in_100_000_is_found_although_a_round_goes_astray() {
    assert!(lossy(Test::Either, 0.0, 12, 5 * RUNS, 5) > 0.99);
    let [t, either] = [Test::T, Test::Either].map(|test| lossy(test, 0.02, 12, 5 * RUNS, 5));
    assert!(either > 0.9 && either > t + 0.1, "t-test {t}, either {either}");
}

#[test]
fn two_runs_of_a_suite_differ_only_where_the_routers_do() {
    for noise in [STILL].iter().chain(NOISES) {
        for rounds in [(6, 6), (6, 12), (4, 6)] {
            let (wrong, _) = between_runs(*noise, rounds, 1.0, RUNS, 6);
            assert!(wrong <= 0.05, "{} {rounds:?}: {wrong}", noise.name);
        }
    }
    // With three rounds there would be too many errors, so no difference is reported.
    assert_eq!(between_runs(NOISES[0], (3, 6), 0.1, 5, 8).0, 0.0);
    let found = |noise: Noise, ratio| between_runs(noise, (6, 6), ratio, RUNS / 4, 7).1;
    assert!(found(STILL, 0.9) > 0.9, "{}", found(STILL, 0.9));
    assert!(found(NOISES[0], 0.9) > 0.9, "{}", found(NOISES[0], 0.9));
    assert!(found(NOISES[1], 0.7) > 0.9, "{}", found(NOISES[1], 0.7));
}

/// Shares of false ranks and of missed intervals that this many runs may have by chance, in addition to the targets of
/// 5 % and 1 %.
const BY_CHANCE: (f64, f64) = (0.03, 0.01);

#[test]
fn equal_duts_tie_on_a_shared_machine_however_they_are_measured() {
    for shared in HOSTS {
        for way in [ONE_AFTER_ANOTHER, TURNS, MORE_TURNS, DUET] {
            let errors = host::errors(*shared, way, RUNS, 9);
            let missed = errors.missed.unwrap_or(0.0);
            assert!(
                errors.false_ranks <= 0.05 + BY_CHANCE.0 && missed <= MISSED_AT_MOST + BY_CHANCE.1,
                "{}, {}: {} {missed}",
                shared.name,
                way.name,
                errors.false_ranks
            );
        }
    }
}

#[test]
fn trials_close_in_time_find_smaller_differences() {
    let found = |way| smallest(&host::found(SLOW, way, RUNS / 4, 10)).unwrap_or(1.0);
    let [before, turns, duet] = [ONE_AFTER_ANOTHER, TURNS, DUET].map(found);
    assert!(before > turns && turns > duet, "{before} {turns} {duet}");
    // Turns take no additional time, and more trials by turns do not replace a duet.
    assert!((minutes(ONE_AFTER_ANOTHER) - minutes(TURNS)).abs() < 1e-6);
    assert!(minutes(MORE_TURNS) > minutes(DUET) && found(MORE_TURNS) > duet);
}
