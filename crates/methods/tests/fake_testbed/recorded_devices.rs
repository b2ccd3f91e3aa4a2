//! The test `throughput` on the recorded devices: for every goal that a suite can request, the device's true answer
//! lies within the bounds, which are at most the goal's width apart.
//!
//! A suite cannot express the goals of all recordings (exceed ratio 0.5 % in v01, `fail_fast` together with a second
//! goal in v01 to v10, no preceding targets in v13, the smallest load in all of them). `mlrsearch.rs` runs the search
//! controller with exactly these goals. Here, every device is tested with every goal that a suite can request.

use crate::common::{Fake, cell, params, rows, size};
use crate::recorded::{Device, Dut, Recorded, SEARCHES, read};
use drophammer_methods::mlrsearch::SearchGoal;
use drophammer_methods::throughput::PDR;
use drophammer_methods::throughput::Throughput;
use drophammer_methods::throughput_search::{goals, zero_loss_goal};
use drophammer_methods::{Facts, Known, Method, Seen, TestError, Testbed, Trial};
use drophammer_model::outcome::Outcome;
use drophammer_model::quantity::{Bandwidth, FrameRate};
use drophammer_model::suite::{ParamValue, Params};
use drophammer_model::trial::{GroupCounts, Load, TrialResult};
use std::time::Duration;

/// A bed with one sending port, whose trials have the results of the recorded device.
struct Bed {
    facts: Facts,
    known: Known,
    device: Device,
}

impl Bed {
    fn new(dut: &Dut, speed: Bandwidth) -> Bed {
        let mut facts = Fake::new().facts;
        facts.ports.iter_mut().for_each(|p| p.speed = speed);
        Bed { facts, known: Known::default(), device: Device::new(dut) }
    }
}

impl Testbed for Bed {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn attempt(&mut self, trial: &Trial, _: u32) -> Result<Seen, TestError> {
        let spec = &trial.spec;
        let Load::Constant { rate_pps } = spec.load else { panic!("{:?}", spec.load) };
        assert_eq!(spec.senders().len(), 1);
        let Ok(measured) = self.device.measure(spec.duration_s, rate_pps);
        let group = GroupCounts {
            group: spec.flows[0].group.clone(),
            intended: measured.intended,
            offered: measured.intended,
            received: measured.received,
            lost: measured.intended - measured.received,
            ..GroupCounts::default()
        };
        Ok(TrialResult {
            trial: measured.trial,
            sending_s: spec.duration_s,
            receiving_s: spec.duration_s,
            elapsed_s: measured.effective_duration_s,
            groups: vec![group],
            senders: 1,
            ..TrialResult::default()
        }
        .into())
    }

    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        self.device.clock += time.as_secs_f64();
        Ok(())
    }

    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn progress(&mut self, _: &str) {}

    fn note(&mut self, _: &str) {}
}

/// The highest load that meets the goal is between these two loads: the first certainly meets it, and loads above the
/// second never do.
fn truth(dut: &Dut, goal: &SearchGoal) -> (f64, f64) {
    let (loss, trial_s) = (goal.loss_ratio, goal.final_trial_duration_s);
    match *dut {
        Dut::Stall { capacity_pps, stall_s, period_s, .. } => {
            // A trial contains either the lowest possible number of stalls or one more. With n stalls its loss is n
            // times the length of a stall over its duration up to the capacity, plus the part of the load above the
            // capacity.
            let fewest = (trial_s / period_s).floor();
            let answer = |n: f64| {
                let stalled = n * stall_s / trial_s;
                if stalled > loss { 0.0 } else { capacity_pps * (1.0 - stalled) / (1.0 - loss) }
            };
            // If trials are much shorter than the period, less than half of them contain a stall.
            let most = if fewest == 0.0 && goal.exceed_ratio >= 0.5 { 0.0 } else { fewest + 1.0 };
            (answer(most), answer(fewest))
        }
        // With fewer than `1 / loss_ratio` frames in a trial, none is lost.
        Dut::Floor { loss_ratio } if loss < loss_ratio => (1.0 / loss_ratio / trial_s, 1.0 / loss_ratio / trial_s),
        Dut::Noisy { bad_loss_ratio, .. } if loss >= bad_loss_ratio => (f64::INFINITY, f64::INFINITY),
        _ => Device::new(dut).answer(goal, trial_s),
    }
}

/// The load that corresponds to one frame more or less in a trial.
fn one_frame(dut: &Dut, goal: &SearchGoal) -> f64 {
    let frame = 1.01 / goal.initial_trial_duration_s;
    if let Dut::Knee { slope, .. } = dut { frame / slope } else { frame }
}

fn settings(goal: &str, max_load: f64) -> Params {
    let over = [
        size("64"),
        ("goal", ParamValue::Text(goal.into())),
        ("direction", ParamValue::Text("unidirectional".into())),
        ("max_load", ParamValue::Rate(FrameRate(max_load))),
        ("search_duration_max", ParamValue::Duration(Duration::from_secs(1_000_000))),
    ];
    params(&Throughput, true, &over)
}

fn measure(dut: &Dut, params: &Params, max_load: f64) -> Outcome {
    let needed = Bandwidth((max_load * (64.0 + 20.0) * 8.0).ceil() as u64);
    let mut bed = Bed::new(dut, needed);
    let mut outcome = Outcome::default();
    Throughput.run(&mut bed, params, &mut outcome).unwrap();
    outcome
}

/// Compares the result of a run with the truth.
fn check(dut: &Dut, goal: &str, max_load: f64) {
    let params = settings(goal, max_load);
    let outcome = measure(dut, &params, max_load);
    let text = || format!("{dut:?}, goal {goal}: {:?}", rows(&outcome)[0]);
    let zero = zero_loss_goal(&params);
    let (low, high) = truth(dut, &zero);
    let (lower, upper) = (cell(&outcome, 0, "intended_load_pps"), cell(&outcome, 0, "upper_bound_pps"));
    let slack = one_frame(dut, &zero);
    let marked = |words: &str| rows(&outcome)[0].marks.iter().any(|m| m.contains("NDR(0)") && m.contains(words));
    if let Some(lower) = lower {
        assert!(lower <= high + slack, "{}", text());
        let found = cell(&outcome, 0, "throughput_pps").unwrap();
        assert!(found <= lower && found >= lower - slack, "{}", text());
    }
    if let Some(upper) = upper {
        assert!(upper >= low - slack, "{}", text());
    }
    match (lower, upper) {
        (Some(lower), Some(upper)) => {
            assert!(upper - lower <= zero.relative_width * upper + 1e-6, "{}", text());
            assert!(rows(&outcome)[0].marks.iter().all(|m| !m.contains("NDR(0)")), "{}", text());
        }
        (Some(lower), None) => {
            assert!((lower - max_load).abs() < 1e-6 * max_load && high > max_load - slack, "{}", text());
            assert!(marked("no upper bound"), "{}", text());
        }
        (None, Some(upper)) => {
            assert!(upper <= max_load * 1e-4 + 100.0 && low <= upper, "{}", text());
            assert!(marked("no lower bound"), "{}", text());
        }
        (None, None) => panic!("{}", text()),
    }
    for partial in goals(&params, PDR.get(&params)).iter().filter(|g| g.loss_ratio > 0.0) {
        // The upper bound is not in the table: the figure is at most the width below it.
        let (low, high) = truth(dut, partial);
        let found = cell(&outcome, 0, "pdr_0_5_pps").unwrap_or_else(|| panic!("no PDR, {}", text()));
        assert!(found <= high + slack && found <= max_load + 1e-6, "PDR {found}, {}", text());
        let least = low.min(max_load) * (1.0 - partial.relative_width) - slack;
        assert!(found >= least, "PDR {found} below {least}, {}", text());
    }
}

const GOALS: [&str; 5] = ["quick", "ci-quick", "rfc2544", "tst009", "csit"];

#[test]
fn the_truth_of_every_recorded_device_lies_within_the_bounds_of_every_goal() {
    for name in SEARCHES {
        let recorded: Recorded = serde_json::from_str(&read(&format!("{name}.json"))).unwrap();
        for goal in GOALS {
            check(&recorded.dut, goal, recorded.config.max_load);
        }
    }
}

#[test]
fn random_loss_does_not_lead_astray_with_any_seed() {
    for seed in 0..40 {
        for (bad_loss_ratio, span) in [(0.001, 600_000.0), (0.02, 600_000.0), (0.5, 10_000.0)] {
            let dut = Dut::Noisy { p0_pps: 1_800_000.0, p1_pps: 1_800_000.0 + span, bad_loss_ratio, seed };
            for goal in GOALS {
                // A device that sometimes loses more is between the same bounds if the goal allows that in half a per
                // cent of the time.
                check(&dut, goal, 14_880_952.0);
            }
        }
    }
}

#[test]
fn a_wrong_truth_would_be_noticed() {
    // The bounds are narrow enough to exclude a device that differs by more than the width and the effect of a buffer.
    for goal in GOALS {
        let outcome = measure(&Dut::Hard { capacity_pps: 1e6 }, &settings(goal, 14_880_952.0), 14_880_952.0);
        let (lower, upper) = (cell(&outcome, 0, "intended_load_pps"), cell(&outcome, 0, "upper_bound_pps"));
        assert!(lower.unwrap() > 0.96e6 && upper.unwrap() < 1.04e6, "{goal}: {lower:?} {upper:?}");
    }
}
