//! Multiple Loss Ratio Search, compared with the results of the reference package on the same simulated devices.

use crate::recorded::{Device, Dut, Goal, Recorded, SEARCHES, read};
use drophammer_methods::mlrsearch::{
    Budget, Classification, GoalResult, Irregular, LoadStats, Measurement, Search, SearchEnd, SearchGoal, Target,
};
use proptest::prelude::*;
use serde::Deserialize;
use std::convert::Infallible;

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}
#[derive(Deserialize)]
struct Case {
    goal: CaseGoal,
    trials: Vec<CaseTrial>,
    classification: String,
    quantile_loss_ratio: Option<f64>,
}
#[derive(Deserialize)]
struct CaseGoal {
    loss_ratio: f64,
    exceed_ratio: f64,
    final_trial_duration: f64,
    duration_sum: f64,
}
#[derive(Deserialize)]
struct CaseTrial {
    duration_s: f64,
    loss_ratio: f64,
    effective_duration_s: f64,
}

#[test]
fn every_recorded_load_is_classified_alike() {
    let cases: Cases = serde_json::from_str(&read("classification.json")).unwrap();
    assert_eq!(cases.cases.len(), 75);
    const FRAMES: u64 = 1_000_000;
    for (n, case) in cases.cases.iter().enumerate() {
        let target = Target {
            loss_ratio: case.goal.loss_ratio,
            exceed_ratio: case.goal.exceed_ratio,
            trial_duration_s: case.goal.final_trial_duration,
            duration_sum_s: case.goal.duration_sum,
            width: 1,
        };
        let trial = |t: &CaseTrial| Measurement {
            duration_s: t.duration_s,
            effective_duration_s: t.effective_duration_s,
            intended: FRAMES,
            received: FRAMES - (t.loss_ratio * FRAMES as f64).round() as u64,
            offered_pps: 0.0,
            trial: 0,
        };
        let stats = LoadStats { trials: case.trials.iter().map(trial).collect() };
        let found = match stats.classify(&target) {
            Classification::Lower => "lower",
            Classification::Upper => "upper",
            Classification::Undecided => "undecided",
        };
        assert_eq!(found, case.classification, "case {n}");
        if found == "lower" {
            assert_eq!(stats.quantile_loss_ratio(&target), case.quantile_loss_ratio, "case {n}");
        }
    }
}

const NO_LIMIT: Budget = Budget { trial_seconds: f64::INFINITY, trials: 10_000 };

/// The load that corresponds to one frame more or less, because counts are whole numbers.
fn one_frame(goal: &SearchGoal) -> f64 {
    1.01 / goal.initial_trial_duration_s
}

fn check(result: &GoalResult, device: &Device, longest_s: f64, min: f64, max: f64) {
    let (low, high) = device.answer(&result.goal, longest_s);
    let context = || format!("{:?} {:?}", device.dut, result);
    let lower = result.lower.as_ref().map_or(0.0, |b| b.load_pps);
    let upper = result.upper.as_ref().map_or(f64::INFINITY, |b| b.load_pps);
    // If only a few of the frames above the knee are lost, one lost frame corresponds to several frames of load.
    let slack = match device.dut {
        Dut::Knee { slope, .. } => one_frame(&result.goal) / slope,
        _ => one_frame(&result.goal),
    };
    assert!(lower <= high + slack, "{}", context());
    assert!(upper >= low - slack, "{}", context());
    match (&result.lower, &result.upper) {
        (Some(_), Some(_)) => {
            assert!(result.irregular.is_empty(), "{}", context());
            assert!(result.relative_width().unwrap() <= result.goal.relative_width, "{}", context());
            let conditional = result.conditional_throughput_pps.unwrap();
            assert!(
                conditional <= lower && conditional >= lower * (1.0 - result.goal.loss_ratio) * 0.99,
                "{}",
                context()
            );
        }
        (Some(_), None) => {
            assert_eq!(result.irregular, [Irregular::NoUpperBound], "{}", context());
            assert_eq!(lower, max);
        }
        (None, _) => {
            assert_eq!(result.irregular, [Irregular::NoLowerBound], "{}", context());
            assert_eq!(upper, min);
        }
    }
}

fn search(recorded: &Recorded, budget: Budget) -> (Search, Device) {
    let goals = recorded.goals.iter().map(Goal::ours).collect();
    let mut search = Search::new(goals, recorded.config.min_load, recorded.config.max_load, budget).unwrap();
    let mut device = Device::new(&recorded.dut);
    search.run(&mut |d: f64, l: f64| device.measure(d, l)).unwrap();
    (search, device)
}

#[test]
fn recorded_devices_are_found_out_as_well_as_the_reference_does() {
    for name in SEARCHES {
        let recorded: Recorded = serde_json::from_str(&read(&format!("{name}.json"))).unwrap();
        assert_eq!(recorded.name, name);
        let (search, device) = search(&recorded, NO_LIMIT);
        let results = search.results();
        match &recorded.results {
            Some(theirs) => {
                assert_eq!(search.end(), SearchEnd::Completed, "{name}");
                for (ours, theirs) in results.iter().zip(theirs) {
                    check(
                        ours,
                        &device,
                        ours.goal.final_trial_duration_s,
                        recorded.config.min_load,
                        recorded.config.max_load,
                    );
                    assert_eq!(ours.irregular.is_empty(), theirs.regular, "{name}");
                    assert_eq!(ours.lower.is_some(), theirs.relevant_lower_bound.is_some(), "{name}");
                    assert_eq!(ours.upper.is_some(), theirs.relevant_upper_bound.is_some(), "{name}");
                    let same = ours.lower.as_ref().map(|b| b.index)
                        == theirs.relevant_lower_bound.as_ref().map(|b| b.int_load);
                    // If the losses of a device are random, its bounds may differ; all other devices give the same
                    // answer.
                    assert!(same || matches!(recorded.dut, Dut::Noisy { .. }), "{name}: {ours:?}");
                    if let (true, Some(found), Some(asked)) =
                        (same, ours.conditional_throughput_pps, theirs.conditional_throughput_pps)
                    {
                        assert!((found - asked).abs() < 1e-6, "{name}: {found} {asked}");
                    }
                }
            }
            None => {
                assert_eq!(search.end(), SearchEnd::FailedFast, "{name}");
                assert_eq!(results[0].irregular, [Irregular::NoLowerBound], "{name}");
            }
        }
        // The standard does not promise this, but a search must not take twice as long as the reference.
        let spent = search.spent();
        println!(
            "{name}: {} trials, {:.1} s (reference {}, {:.1} s)",
            spent.trials, spent.trial_seconds, recorded.summary.trials, recorded.summary.trial_seconds
        );
        assert!(spent.trials <= recorded.summary.trials * 3 / 2 + 5, "{name}: {spent:?}");
        assert!(spent.trial_seconds <= recorded.summary.trial_seconds * 1.5 + 5.0, "{name}: {spent:?}");
    }
}

#[test]
fn grids_and_target_chains_are_those_of_the_reference() {
    for name in SEARCHES {
        let recorded: Recorded = serde_json::from_str(&read(&format!("{name}.json"))).unwrap();
        let goals: Vec<SearchGoal> = recorded.goals.iter().map(Goal::ours).collect();
        let width = goals.iter().map(|g| g.relative_width).fold(1.0, f64::min);
        let grid =
            drophammer_methods::mlrsearch::LoadGrid::new(recorded.config.min_load, recorded.config.max_load, width)
                .unwrap();
        assert_eq!(grid.last(), recorded.rounding.max_int_load, "{name}");
        for theirs in &recorded.targets {
            let ours = drophammer_methods::mlrsearch::target::chain(&goals[theirs.goal], &grid);
            assert_eq!(ours.len(), theirs.chain.len());
            for (ours, theirs) in ours.iter().zip(&theirs.chain) {
                assert!((ours.trial_duration_s - theirs.trial_duration_s).abs() < 1e-9, "{name}");
                assert!((ours.duration_sum_s - theirs.duration_sum_s).abs() < 1e-9, "{name}");
                assert_eq!(ours.width, theirs.int_width, "{name}");
            }
        }
    }
}

#[test]
fn a_spent_budget_ends_the_search_with_what_is_known() {
    let recorded: Recorded = serde_json::from_str(&read("v02_csit_knee.json")).unwrap();
    let (search, device) = search(&recorded, Budget { trial_seconds: 12.0, trials: 10_000 });
    assert_eq!(search.end(), SearchEnd::OutOfBudget);
    assert!(search.spent().trial_seconds <= 12.0);
    let results = search.results();
    for result in &results {
        assert!(result.irregular.contains(&Irregular::Unfinished), "{result:?}");
        let (low, high) = device.answer(&result.goal, 1.0);
        assert!(result.lower.as_ref().is_none_or(|b| b.load_pps <= high));
        assert!(result.upper.as_ref().is_none_or(|b| b.load_pps >= low));
    }
    let (lower, upper) = results[0].preliminary.unwrap();
    assert!(lower <= 3_200_000.0 && upper >= 3_200_000.0, "{lower} {upper}");
}

#[test]
fn a_failing_measurer_leaves_the_bounds_that_were_found() {
    let goal = SearchGoal::csit_ndr();
    let mut search = Search::new(vec![goal], 1_000.0, 1e6, NO_LIMIT).unwrap();
    let mut device = Device::new(&Dut::Hard { capacity_pps: 123_456.0 });
    let mut left = 12;
    let stopped = search.run(&mut |d: f64, l: f64| {
        left -= 1;
        if left < 0 { Err("unplugged") } else { Ok(device.measure(d, l).unwrap()) }
    });
    assert_eq!(stopped, Err("unplugged"));
    let result = &search.results()[0];
    assert_eq!(result.irregular, [Irregular::Unfinished]);
    assert!(result.preliminary.is_some_and(|(lower, upper)| lower <= 123_456.0 && upper >= 123_456.0), "{result:?}");
}

#[test]
fn frames_that_were_never_sent_are_no_pass() {
    let mut search = Search::new(vec![SearchGoal::quick()], 1_000.0, 1e6, NO_LIMIT).unwrap();
    let limit = 250_000.0;
    let end = search.run(&mut |d: f64, l: f64| {
        Ok::<_, Infallible>(Measurement {
            duration_s: d,
            effective_duration_s: d,
            intended: (d * l) as u64,
            received: (d * l.min(limit)) as u64,
            offered_pps: l.min(limit),
            trial: 0,
        })
    });
    assert_eq!(end, Ok(SearchEnd::Completed));
    assert!(search.results()[0].upper.as_ref().unwrap().load_pps <= limit * 1.03);
}

#[test]
fn the_offered_load_is_the_figure_where_it_is_below_the_intended_one() {
    let mut search = Search::new(vec![SearchGoal::quick()], 1_000.0, 1e6, NO_LIMIT).unwrap();
    let mut device = Device::new(&Dut::Hard { capacity_pps: 500_000.0 });
    search
        .run(&mut |d: f64, l: f64| device.measure(d, l).map(|m| Measurement { offered_pps: l * 0.9995, ..m }))
        .unwrap();
    let result = &search.results()[0];
    let lower = result.lower.as_ref().unwrap();
    assert!((result.rate_pps().unwrap() - lower.load_pps * 0.9995).abs() < 1e-6);
}

#[test]
fn senseless_goals_are_refused() {
    let bad = [
        SearchGoal { exceed_ratio: 1.0, ..SearchGoal::quick() },
        SearchGoal { loss_ratio: -0.1, ..SearchGoal::quick() },
        SearchGoal { relative_width: 0.0, ..SearchGoal::quick() },
        SearchGoal { duration_sum_s: 0.4, ..SearchGoal::quick() },
        SearchGoal { initial_trial_duration_s: 2.0, ..SearchGoal::quick() },
        SearchGoal { expansion: 1.0, ..SearchGoal::quick() },
    ];
    for goal in bad {
        assert!(Search::new(vec![goal.clone()], 1.0, 2.0, NO_LIMIT).is_err(), "{goal:?}");
    }
    assert!(Search::new(vec![], 1.0, 2.0, NO_LIMIT).is_err());
    assert!(Search::new(vec![SearchGoal::quick()], 2.0, 1.0, NO_LIMIT).is_err());
    assert_eq!(SearchGoal::csit_ndr().partial_drop(0.005).name, "PDR(0.5%)");
}

#[test]
fn the_quick_goal_takes_few_trials() {
    for capacity in [1_234.0, 55_555.0, 345_678.0, 1_400_000.0] {
        let mut search = Search::new(vec![SearchGoal::quick()], 148.8, 1_488_095.0, NO_LIMIT).unwrap();
        let mut device = Device::new(&Dut::Buffered { capacity_pps: capacity, buffer_packets: 512.0 });
        search.run(&mut |d: f64, l: f64| device.measure(d, l)).unwrap();
        println!("{capacity}: {:?}", search.spent());
        check(&search.results()[0], &device, 0.5, 148.8, 1_488_095.0);
        assert!(search.spent().trials <= 25, "{capacity}: {:?}", search.spent());
    }
}

#[test]
fn quick_goals_for_no_loss_and_half_a_percent_fit_into_15_seconds() {
    let noisy = |bad_loss_ratio, seed| Dut::Noisy { p0_pps: 100_000.0, p1_pps: 400_000.0, bad_loss_ratio, seed };
    let duts = [
        Dut::Hard { capacity_pps: 55_555.0 },
        Dut::Hard { capacity_pps: 345_678.0 },
        Dut::Buffered { capacity_pps: 345_678.0, buffer_packets: 1_512.0 },
        Dut::Knee { knee_pps: 160_000.0, slope: 0.1 },
        Dut::Knee { knee_pps: 160_000.0, slope: 0.5 },
        noisy(0.002, 1),
        noisy(0.02, 1),
        noisy(0.002, 2),
        noisy(0.02, 3),
    ];
    for dut in duts {
        let zero = SearchGoal::quick();
        let goals = vec![zero.clone(), zero.partial_drop(0.005)];
        let mut search = Search::new(goals, 60.0, 600_000.0, NO_LIMIT).unwrap();
        let mut device = Device::new(&dut);
        search.run(&mut |d: f64, l: f64| device.measure(d, l)).unwrap();
        let spent = search.spent();
        println!("{dut:?}: {spent:?}");
        assert!(spent.trial_seconds <= 15.01 && spent.trials <= 40, "{dut:?}: {spent:?}");
        if !matches!(dut, Dut::Noisy { .. }) {
            assert!(spent.trials <= 25, "{dut:?}: {spent:?}");
            search.results().iter().for_each(|r| check(r, &device, 0.5, 60.0, 600_000.0));
        }
    }
}

fn dut() -> impl Strategy<Value = Dut> {
    let pps = 2_000.0f64..2_000_000.0;
    prop_oneof![
        pps.clone().prop_map(|capacity_pps| Dut::Hard { capacity_pps }),
        (pps.clone(), 0.05f64..1.0).prop_map(|(knee_pps, slope)| Dut::Knee { knee_pps, slope }),
        (pps.clone(), 0.0f64..100_000.0)
            .prop_map(|(capacity_pps, b)| Dut::Buffered { capacity_pps, buffer_packets: b.floor() }),
        (pps, any::<u64>()).prop_map(|(p0_pps, seed)| Dut::Noisy {
            p0_pps,
            p1_pps: p0_pps * 1.3,
            bad_loss_ratio: 0.02,
            seed
        }),
    ]
}

fn goal() -> impl Strategy<Value = SearchGoal> {
    let durations = (0.5f64..1.0, 1.0f64..5.0, 1.0f64..5.0);
    let loss = prop_oneof![Just(0.0), 0.001f64..0.01];
    (loss, prop_oneof![Just(0.0), 0.01f64..0.6], 0.002f64..0.1, durations, 0u32..5, 1.1f64..4.0).prop_map(
        |(loss, exceed, width, (initial, final_factor, sum_factor), preceding, expansion)| SearchGoal {
            exceed_ratio: exceed,
            relative_width: width,
            initial_trial_duration_s: initial,
            final_trial_duration_s: initial * final_factor,
            duration_sum_s: initial * final_factor * sum_factor,
            preceding_targets: preceding,
            expansion,
            fail_fast: false,
            ..SearchGoal::csit_ndr().partial_drop(loss)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_goal_on_any_device_is_answered(dut in dut(), goals in proptest::collection::vec(goal(), 1..3)) {
        let longest = goals.iter().map(|g| g.final_trial_duration_s).fold(0.0, f64::max);
        let mut search = Search::new(goals, 1_000.0, 1_488_095.0, NO_LIMIT).unwrap();
        let mut device = Device::new(&dut);
        let end = search.run(&mut |d: f64, l: f64| device.measure(d, l)).unwrap();
        prop_assert_eq!(end, SearchEnd::Completed);
        let noisy = matches!(dut, Dut::Noisy { .. });
        for result in search.results() {
            // The losses of a noisy device end at 2 %, and losses below the goal do not count, so there is no device
            // answer in either case.
            if noisy { prop_assert!(!result.irregular.contains(&Irregular::Unfinished)); }
            else { check(&result, &device, longest, 1_000.0, 1_488_095.0); }
        }
    }
}
