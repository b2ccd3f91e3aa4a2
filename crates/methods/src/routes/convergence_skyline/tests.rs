use super::*;
use drophammer_model::trial::{Bin, EventRecord, GroupCounts};

/// A trial of one cycle in bins of 100 ms with these shares of delivered frames: up at 0.2 s, down at 2.2 s, end at 3.2
/// s.
fn run(trial: u64, shares: &[f64], lowered: Option<f64>) -> Run {
    let bin = |s: &f64| Bin { offered: 1_000, delivered: (s * 1e3) as u64, arrived: (s * 1e3) as u64 };
    let group = GroupCounts { bins: shares.iter().map(bin).collect(), ..GroupCounts::default() };
    let event = |at_s, label: &str| EventRecord { at_s, took_s: 0.0, label: label.into() };
    let result = TrialResult {
        trial,
        sending_s: 3.2,
        receiving_s: 3.2,
        elapsed_s: 3.2,
        groups: vec![group],
        senders: 1,
        events: vec![event(0.2, "routes up"), event(2.2, "routes down")],
        ..TrialResult::default()
    };
    let lowered = lowered.map(Percent);
    let (stall_s, stalled, duration_s) = (0.05, false, 3.2);
    let times = Times { bin_s: 0.1, every_s: 0.001, stall_s, stalled, duration_s, lowered, throughput: None };
    Run { result, times }
}

/// The table is present from 0.2 to 2.2 s.
fn whole() -> Vec<f64> {
    [vec![0.0; 2], vec![1.0; 20], vec![0.0; 10]].concat()
}

fn written(runs: Vec<Run>, of: [Option<usize>; 2]) -> Outcome {
    let mut outcome = Outcome::default();
    PLOT.begin(&mut outcome);
    Measured { runs, of }.write(&mut outcome, Family::Ipv4, 500);
    outcome
}

fn about(found: Option<f64>, expected: f64) {
    assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "{found:?}, not {expected}");
}

#[test]
fn a_stall_beyond_the_limit_of_other_tests_is_no_loss_of_the_router() {
    // Half of the frames are lost in the fourth bin of the table, a tenth in the nineteenth: the ten consecutive bins
    // begin after the first loss.
    let mut shares = whole();
    (shares[5], shares[20]) = (0.5, 0.9);
    let of = [Some(0), Some(0)];
    let with = |stalled| {
        let mut run = run(7, &shares, None);
        run.times.stalled = stalled;
        let outcome = written(vec![run], of);
        (TABLE.rows(&outcome.tables), outcome)
    };
    let (rows, outcome) = with(false);
    about(rows[0].last_s, 0.5);
    assert_eq!((rows[0].after_frames, rows[0].resolution_s, rows[1].after_frames), (Some(100), 0.1, Some(0)));
    assert!(!outcome.notes.iter().any(|note| note.contains("once stalled")), "{:?}", outcome.notes);
    let (rows, outcome) = with(true);
    about(rows[0].last_s, 0.5);
    // The stall of 50 ms, plus ten bins.
    rows.iter().for_each(|row| about(Some(row.resolution_s), 1.05));
    assert_eq!((rows[0].after_frames, rows[1].after_frames), (None, Some(0)));
    about(rows[0].rate_rps, 500.0 / 1.05);
    about(Some(outcome.ranks[0].resolution), 1.05);
    let told = ["stalled for 50 ms", "no more exact than 1050 ms", "may not be the router's"];
    assert!(outcome.notes.iter().any(|note| told.iter().all(|part| note.contains(part))), "{:?}", outcome.notes);
}

#[test]
fn each_direction_has_the_figure_of_the_load_at_which_it_was_complete() {
    let values = |outcome: &Outcome| {
        let ranks = outcome.ranks.iter();
        ranks.map(|rank| (rank.key.clone(), rank.value.map(|s| (s * 10.0).round() / 10.0))).collect::<Vec<_>>()
    };
    let of = |key: &str, value| (format!("convergence_{key}_s"), value);
    // At the requested load, the table comes in time and is not withdrawn.
    let stays = [vec![0.0; 2], vec![1.0; 30]].concat();
    let outcome = written(vec![run(7, &stays, None), run(9, &whole(), Some(25.0))], [Some(0), Some(1)]);
    let lower = of("down_ipv4_at_25_percent", Some(0.1));
    assert_eq!(values(&outcome), [of("up_ipv4", Some(0.1)), of("down_ipv4", None), lower]);
    let trials: Vec<_> = outcome.tables[0].rows.iter().map(|row| row.trials.clone()).collect();
    assert_eq!(trials, [[7_u64], [9]]);
    let curves: Vec<_> = outcome.plots[0].series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(curves, ["IPv4", "IPv4, at 25 % load"]);
    // Both directions at one lower load.
    let outcome = written(vec![run(7, &stays, None), run(9, &whole(), Some(25.0))], [Some(1), Some(1)]);
    let upper = of("up_ipv4_at_25_percent", Some(0.1));
    let lower = of("down_ipv4_at_25_percent", Some(0.1));
    assert_eq!(values(&outcome), [of("up_ipv4", None), upper, of("down_ipv4", None), lower]);
    assert_eq!(outcome.plots[0].series.len(), 1);
    // The trial at the lower load failed: earlier measurements remain valid.
    let outcome = written(vec![run(7, &stays, None)], [Some(0), None]);
    assert_eq!(values(&outcome), [of("up_ipv4", Some(0.1))]);
    assert_eq!(outcome.tables[0].rows.len(), 1);
}
