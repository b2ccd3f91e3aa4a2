//! Ranks of DUTs with given figures.

use super::*;

fn entry(rounds: Vec<RoundFigure>) -> Entry {
    let mut entry = Entry::new(None, rounds);
    let value = entry.summary.map(|summary| summary.median.bound());
    let figure = RankFigure::new("k", "K", "fps", value);
    entry.figure = Some(RankFigure { higher_is_better: true, rounds: entry.rounds.clone(), ..figure });
    entry
}

fn around(value: f64) -> Vec<RoundFigure> {
    let mut noise = [0.0, 0.004, -0.003, 0.002, -0.005, 0.001];
    // The same noise on all DUTs would cancel out.
    noise.rotate_left(value as usize / 50 % 6);
    noise.map(|noise| RoundFigure::Measured(Figure::exactly(value * (1.0 + noise)))).to_vec()
}

fn limited(value: f64) -> Vec<RoundFigure> {
    vec![RoundFigure::Measured(Figure::at_least(value)); 6]
}

fn ranks(entries: Vec<Entry>) -> Vec<Option<u32>> {
    judged(entries).iter().map(|entry| entry.rank).collect()
}

fn judged(entries: Vec<Entry>) -> Vec<Entry> {
    let simulated = vec![false; entries.len()];
    let mut figures = [Ranked {
        section: 0,
        test: "throughput".into(),
        key: "k".into(),
        title: "K".into(),
        unit: "fps".into(),
        higher_is_better: true,
        entries,
        detectable: None,
        duets: Vec::new(),
        by_difference: false,
        different_loads: false,
    }];
    let mut pairs = Vec::new();
    for a in 0..simulated.len() {
        for b in a + 1..simulated.len() {
            let comparison = compared(&figures[0].entries[a], &figures[0].entries[b]);
            pairs.extend(comparison.map(|comparison| Pair { figure: 0, a, b, comparison }));
        }
    }
    let family = Family::new(&pairs.iter().map(|pair| pair.comparison.p).collect::<Vec<_>>());
    assign(&mut figures, &pairs, &family, &simulated);
    let [figure] = figures;
    figure.entries
}

#[test]
fn the_first_need_not_be_better_than_the_second() {
    // The first is better than the last. The second is too noisy for any result.
    let noisy = [10.0, 200.0, 40.0, 15.0, 150.0, 60.0].map(|value| RoundFigure::Measured(Figure::exactly(value)));
    let entries = judged(vec![entry(around(100.0)), entry(noisy.to_vec()), entry(around(90.0))]);
    assert_eq!(entries.iter().map(|entry| entry.rank).collect::<Vec<_>>(), [Some(1), Some(1), Some(2)]);
    assert_eq!(entries.iter().map(|entry| entry.better_than.clone()).collect::<Vec<_>>(), [vec![2], vec![], vec![]]);
}

#[test]
fn proven_differences_make_ranks_and_nothing_else_does() {
    let apart = vec![entry(around(100.0)), entry(around(300.0)), entry(around(200.0))];
    assert_eq!(ranks(apart), [Some(3), Some(1), Some(2)]);
    let close = vec![entry(around(100.0)), entry(around(101.0)), entry(around(50.0))];
    assert_eq!(ranks(close), [Some(1), Some(1), Some(3)]);
    let once = vec![entry(around(100.0)[..1].to_vec()), entry(around(300.0)[..1].to_vec())];
    assert_eq!(ranks(once), [None, None]);
}

#[test]
fn figures_of_different_loads_are_not_compared() {
    let at = |load_pps: f64, value: f64| {
        let mut entry = entry(around(value));
        entry.figure.as_mut().unwrap().load_pps = Some(load_pps);
        entry
    };
    assert_eq!(ranks(vec![at(1e5, 100.0), at(1.04e5, 200.0)]), [Some(2), Some(1)]);
    assert_eq!(ranks(vec![at(1e5, 100.0), at(1.06e5, 200.0)]), [None, None]);
    // The third was measured at a different load.
    assert_eq!(ranks(vec![at(1e5, 100.0), at(1e5, 200.0), at(2e5, 300.0)]), [Some(2), Some(1), None]);
}

#[test]
fn the_testers_limit_is_a_bound() {
    // At least 1,000 is better than 900, but perhaps not better than 1,100.
    let entries = vec![entry(limited(1000.0)), entry(around(900.0)), entry(around(1100.0))];
    assert_eq!(ranks(entries), [Some(1), Some(3), Some(1)]);
    let entries = vec![entry(limited(1000.0)), entry(limited(500.0))];
    assert_eq!(ranks(entries), [None, None], "nothing was compared");
}

#[test]
fn failing_is_worse_and_not_being_measured_is_nothing() {
    let failed = vec![RoundFigure::Failed; 6];
    let absent = vec![RoundFigure::NotMeasured; 6];
    let entries = vec![entry(failed.clone()), entry(around(5.0)), entry(absent)];
    assert_eq!(ranks(entries), [Some(2), Some(1), None]);
    // One failure in six rounds is chance.
    let mut once = around(5.0);
    once[3] = RoundFigure::Failed;
    assert_eq!(ranks(vec![entry(once), entry(around(5.0))]), [Some(1), Some(1)]);
    let both = vec![entry(failed.clone()), entry(failed.clone())];
    assert_eq!(ranks(both), [None, None], "nothing was compared");
    let entries = judged(vec![entry(failed.clone()), entry(around(5.0)), entry(failed)]);
    let places: Vec<_> = entries.iter().map(|entry| (entry.rank, entry.tied)).collect();
    assert_eq!(places, [(Some(2), true), (Some(1), false), (Some(2), true)]);
}

#[test]
fn rounds_at_two_loads_are_no_pair() {
    let at = |value, loads: [f64; 6]| {
        let mut entry = entry(around(value));
        let figure = entry.figure.as_mut().unwrap();
        figure.load_pps = Some(1_000.0);
        figure.round_loads = loads.map(Some).to_vec();
        entry
    };
    let same = [1_000.0; 6];
    assert_eq!(ranks(vec![at(100.0, same), at(50.0, same)]), [Some(1), Some(2)]);
    // Only the last round has the same load for both.
    let other = [700.0, 700.0, 700.0, 700.0, 700.0, 1_000.0];
    assert_eq!(ranks(vec![at(100.0, same), at(50.0, other)]), [None, None]);
}
