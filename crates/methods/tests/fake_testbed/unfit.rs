//! Tests whose load the tester cannot offer validly: they reduce or omit the load, report that, and never lose other
//! results.

use crate::common::{Fake, any_cell, as_fake, cell, params, pattern, rank, rows, size, unmeasured};
use drophammer_methods::attempts::Attempts;
use drophammer_methods::{METHODS, Method, Seen, TestError, Testbed, Trial, find};
use drophammer_model::figure::RoundFigure;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::quantity::FrameRate;
use drophammer_model::reset::{ResetKind, ResetSeen};
use drophammer_model::suite::ParamValue;
use drophammer_model::trial::{Load, TrialResult, Validity};
use std::time::Duration;

const LINE_64: f64 = 1e9 / (8.0 * 84.0);

fn method(name: &str) -> &'static dyn Method {
    find(name).unwrap()
}

fn run(name: &str, bed: &mut Fake, over: &[(&str, ParamValue)]) -> (Outcome, Result<(), TestError>) {
    let mut outcome = Outcome::default();
    let end = method(name).run(bed, &params(method(name), false, over), &mut outcome);
    (outcome, end)
}

fn noted(outcome: &Outcome, text: &str) -> bool {
    outcome.notes.iter().any(|n| n.contains(text))
}

#[test]
fn a_search_steps_back_from_loads_that_the_tester_cannot_offer() {
    let mut bed = Fake { unfit_above_pps: 800_000.0, ..Fake::new() };
    let (outcome, end) = run("throughput", &mut bed, &[size("64")]);
    end.unwrap();
    let found = cell(&outcome, 0, "throughput_pps").unwrap();
    assert!((290_000.0..=300_002.0).contains(&found), "{found}");
    let highest = bed.known.highest.constant[&pattern("64")].pps();
    assert!((highest - LINE_64 * 0.9f64.powi(6)).abs() < 1.0, "{highest}");
    assert!(noted(&outcome, "the tester cannot offer more than 790,835 fps per port validly"), "{:?}", outcome.notes);
    assert!(outcome.ranks.iter().all(|r| !r.tester_limited) && rows(&outcome)[0].marks.is_empty());
    // Later tests use this limit and do not exceed it.
    let (outcome, end) = run("frame_loss_rate", &mut bed, &[size("64")]);
    end.unwrap();
    assert!((cell(&outcome, 0, "intended_load_pps").unwrap() - highest).abs() < 1e-6);
    assert!(noted(&outcome, "the tester cannot offer more than"));
    let (outcome, end) = run("back_to_back", &mut Fake { buffer: 100, ..bed }, &[size("64")]);
    end.unwrap();
    assert!((cell(&outcome, 0, "burst_rate_pps").unwrap() - highest).abs() < 1e-6);
    assert!(rows(&outcome)[0].marks.iter().any(|m| m.contains("below line rate")));
}

/// The other routers of a run get the load that the tester was able to offer to the first router.
#[test]
fn what_the_tester_cannot_offer_holds_for_the_next_router() {
    for (test, column) in [("throughput", None), ("forwarding_rate", Some("intended_load_pps"))] {
        let mut first = Fake { unfit_above_pps: 800_000.0, ..Fake::new() };
        run(test, &mut first, &[size("64")]).1.unwrap();
        let mut next = Fake::new();
        next.known.highest = first.known.highest.clone();
        let (outcome, end) = run(test, &mut next, &[size("64")]);
        end.unwrap();
        let asked = |spec: &drophammer_model::trial::TrialSpec| match spec.load {
            Load::Constant { rate_pps } => rate_pps,
            Load::Maximum { limit_pps } => limit_pps,
            _ => panic!("another load"),
        };
        assert!(next.trials.iter().all(|(spec, _)| asked(spec) <= 800_000.0), "{test}");
        assert!(noted(&outcome, "the tester cannot offer more than"), "{test}: {:?}", outcome.notes);
        if let Some(column) = column {
            assert_eq!(outcome.ranks[0].load_pps, cell(&outcome, 0, column));
            assert!(rows(&outcome)[0].marks.contains(&"the tester could not offer line rate validly".to_owned()));
        }
    }
    // A busy host says nothing about the load, even if the same trial had other faults.
    let busy = "host busy: the tester waited for its processor";
    for reasons in [vec![busy], vec!["the tester was late", busy]] {
        let reasons = reasons.into_iter().map(str::to_owned).collect();
        let mut bed = Fake { fail: Some((1, TestError::Unfit(reasons))), ..Fake::new() };
        run("throughput", &mut bed, &[size("64")]).1.unwrap();
        assert_eq!(bed.known.highest, drophammer_methods::HighestLoads::default());
    }
}

#[test]
fn a_result_at_the_load_stepped_back_to_is_the_tester_s() {
    for capacity_pps in [1e9, 780_000.0] {
        let mut bed = Fake { unfit_above_pps: 800_000.0, capacity_pps, ..Fake::new() };
        let (outcome, end) = run("throughput", &mut bed, &[size("64")]);
        end.unwrap();
        assert!(cell(&outcome, 0, "throughput_pps").unwrap() <= 790_836.0);
        assert!(rows(&outcome)[0].marks.contains(&"tester-limited".to_owned()));
        assert_eq!(outcome.ranks.len(), 2);
        assert!(outcome.ranks.iter().all(|r| r.tester_limited));
    }
    // A test that uses this throughput reports that it is the tester's limit.
    let mut bed = Fake { unfit_above_pps: 800_000.0, capacity_pps: 1e9, ..Fake::new() };
    let (outcome, end) = run("latency", &mut bed, &[size("64")]);
    end.unwrap();
    assert!(noted(&outcome, "is the tester's limit"), "{:?}", outcome.notes);
    let (_, end) = run("system_recovery", &mut bed, &[size("64")]);
    assert!(matches!(end, Err(TestError::NotApplicable(_))), "{end:?}");
}

#[test]
fn a_maximum_set_by_the_suite_is_no_fault_of_the_tester() {
    let mut bed = Fake { capacity_pps: 1e9, ..Fake::new() };
    bed.known.highest.constant.insert(pattern("64"), FrameRate(800_000.0));
    let max = ("max_load", ParamValue::Rate(FrameRate(100_000.0)));
    let (outcome, end) = run("throughput", &mut bed, &[size("64"), max]);
    end.unwrap();
    assert!((cell(&outcome, 0, "throughput_pps").unwrap() - 100_000.0).abs() < 1.0);
    assert!(!outcome.ranks[0].tester_limited && !noted(&outcome, "the tester cannot offer"));
}

/// If any single trial of a search fails permanently, the result is either right or absent, and an incomplete result
/// never looks regular.
#[test]
fn a_tester_unfit_at_any_one_trial_never_makes_a_wrong_figure() {
    let mut open = 0;
    for (capacity_pps, floor) in [(300_000.0, 0.0), (1e9, 0.0), (300_000.0, 0.002)] {
        let mut bed = Fake { capacity_pps, floor, ..Fake::new() };
        let (full, _) = run("throughput", &mut bed, &[size("64")]);
        let mut early = 0;
        for n in 1..=bed.asked {
            let fail = Some((n, TestError::Unfit(vec!["late".into()])));
            let mut bed = Fake { capacity_pps, floor, fail, ..Fake::new() };
            let (outcome, end) = run("throughput", &mut bed, &[size("64 1518")]);
            assert_eq!(rows(&outcome).len(), 2, "the other size is done");
            let marks = &rows(&outcome)[0].marks;
            let unfit = marks.iter().any(|m| m.contains("the tester was unfit"));
            early += u32::from(unfit);
            for (column, key) in [("throughput_pps", "throughput_64_pps"), ("pdr_0_5_pps", "pdr_64_pps")] {
                let true_pps = cell(&full, 0, column).unwrap_or(0.0);
                let value = cell(&outcome, 0, column);
                assert!(value.unwrap_or(0.0) <= true_pps * 1.04, "{n} {column}: {value:?} {true_pps}");
                let figure = outcome.ranks.iter().find(|r| r.key == key).expect("never absent");
                if figure.value.is_none() {
                    assert!(value.is_none() && unmeasured(&outcome).contains(&(key, "late")), "{figure:?}");
                    continue;
                }
                open += u32::from(unfit && figure.resolution > 0.031);
                let near = value.unwrap_or(0.0) >= true_pps * 0.96;
                assert!(near || figure.tester_limited, "{n} {column}: {value:?} {true_pps} {marks:?}");
            }
            if unfit {
                assert!(noted(&outcome, "the search ended early"), "{:?}", outcome.notes);
                assert!(marks.iter().any(|m| m.contains("irregular")), "{marks:?}");
                let nothing = ["throughput_pps", "pdr_0_5_pps"].iter().all(|c| cell(&outcome, 0, c).is_none());
                assert_eq!(matches!(end, Err(TestError::Unfit(_))), nothing, "{n}: {end:?}");
            } else {
                end.unwrap();
            }
            let known = cell(&outcome, 0, "throughput_pps").is_some();
            assert!(!known || bed.known.throughput[&pattern("64")].is_some());
            // Later tests do not mistake a throughput that is too low for the router's limit.
            let near = |pps: f64| pps >= cell(&full, 0, "throughput_pps").unwrap_or(0.0) * 0.96;
            let bounded = bed.known.bounds.contains_key(&pattern("64"));
            assert!(bounded || cell(&outcome, 0, "throughput_pps").is_none_or(near), "{n} {marks:?}");
            assert!(bed.known.throughput.contains_key(&pattern("64")) != bed.known.failed.contains_key(&pattern("64")));
        }
        assert!(early > 0 || capacity_pps == 1e9);
    }
    println!("{open} figures from bounds that were left wide");
    assert!(open > 0);
}

#[test]
fn frame_loss_leaves_out_what_cannot_be_offered() {
    let mut bed = Fake { capacity_pps: LINE_64 * 0.7, unfit_above_pps: LINE_64 * 0.9, ..Fake::new() };
    let (outcome, end) = run("frame_loss_rate", &mut bed, &[size("64")]);
    end.unwrap();
    let loads: Vec<_> = (0..rows(&outcome).len()).map(|r| cell(&outcome, r, "load_percent").unwrap()).collect();
    assert_eq!(loads, [80.0, 60.0, 40.0]);
    assert!(noted(&outcome, "64 bytes: 100.0 % left out"), "{:?}", outcome.notes);
    let spoilt = |outcome: &Outcome| outcome.ranks.iter().all(|rank| rank.round() == RoundFigure::NotMeasured);
    assert!(outcome.ranks.len() == 1 && spoilt(&outcome), "the loss at 80 % is not the loss at the highest load");
    // Two lossless loads with an unknown one between them are not consecutive.
    let band = (LINE_64 * 0.55, LINE_64 * 0.65);
    let mut bed = Fake { capacity_pps: LINE_64 * 0.85, unfit_band_pps: band, ..Fake::new() };
    let (outcome, end) = run("frame_loss_rate", &mut bed, &[size("64")]);
    end.unwrap();
    let loads: Vec<_> = (0..rows(&outcome).len()).map(|r| cell(&outcome, r, "load_percent").unwrap()).collect();
    assert_eq!(loads, [100.0, 80.0, 40.0, 20.0]);
    assert!(rank(&outcome, "frame_loss_64_percent").is_some());
    let mut bed = Fake { unfit_above_pps: 1.0, ..Fake::new() };
    let (_, end) = run("frame_loss_rate", &mut bed, &[size("64")]);
    assert!(matches!(end, Err(TestError::Unfit(_))));
}

#[test]
fn a_tiny_step_does_not_make_endless_loads() {
    let mut bed = Fake { floor: 0.01, ..Fake::new() };
    let (outcome, end) = run("frame_loss_rate", &mut bed, &[size("64"), ("step", ParamValue::Number(1e-7))]);
    end.unwrap();
    assert_eq!(rows(&outcome).len(), 1_000);
}

#[test]
fn forwarding_rate_steps_back_and_repeats_at_one_load() {
    let mut bed = Fake { unfit_above_pps: 1_000_000.0, ..Fake::new() };
    let (outcome, end) = run("forwarding_rate", &mut bed, &[size("64")]);
    end.unwrap();
    let limit = LINE_64 * 0.9f64.powi(4);
    assert!((cell(&outcome, 0, "intended_load_pps").unwrap() - limit).abs() < 1.0);
    assert_eq!(cell(&outcome, 0, "forwarding_rate_pps"), Some(300_000.0));
    assert!(noted(&outcome, "the tester cannot offer more than") && !outcome.ranks[0].tester_limited);
    assert!(rows(&outcome)[0].marks[0].contains("could not offer line rate"));
    // If the last repetition is unfit, all are repeated at one load.
    let mut bed = Fake { fail: Some((3, TestError::Unfit(vec!["late".into()]))), ..Fake::new() };
    let (outcome, end) = run("forwarding_rate", &mut bed, &[size("64")]);
    end.unwrap();
    assert_eq!(rows(&outcome)[0].trials, [3, 4, 5]);
    // The reduction starts at a known ceiling; a rate near the limit is the tester's.
    let ceiling = Some(FrameRate(500_000.0));
    let mut bed = Fake { unfit_above_pps: 480_000.0, ceiling, capacity_pps: 1e9, ..Fake::new() };
    let (outcome, end) = run("forwarding_rate", &mut bed, &[size("64")]);
    end.unwrap();
    assert!((cell(&outcome, 0, "intended_load_pps").unwrap() - 450_000.0).abs() < 1e-6);
    assert!(outcome.ranks[0].tester_limited);
}

#[test]
fn back_to_back_keeps_the_bound_below_an_unfit_burst() {
    // With a buffer of 10,000 frames the longest burst is about 12,500 at line rate; the tester reaches 5,000.
    let mut bed = Fake { buffer: 10_000, unfit_above_frames: 5_000, ..Fake::new() };
    bed.known.throughput.insert(pattern("64"), Some(FrameRate(300_000.0)));
    let (outcome, end) = run("back_to_back", &mut bed, &[size("64")]);
    end.unwrap();
    assert_eq!(cell(&outcome, 0, "average_frames"), Some(4_096.0));
    assert!(rows(&outcome)[0].marks[0].contains("in 2 of 2 searches") && outcome.ranks[0].tester_limited);
    // If no burst is valid, there is no result, and the error says so.
    let mut bed = Fake { unfit_above_frames: 100, known: bed.known, ..Fake::new() };
    let (outcome, end) = run("back_to_back", &mut bed, &[size("64")]);
    assert!(matches!(end, Err(TestError::Unfit(_))), "{end:?}");
    assert!(rows(&outcome).is_empty() && unmeasured(&outcome)[0].0 == "back_to_back_64_frames");
}

#[test]
fn a_router_that_dies_between_bursts_has_no_longest_burst() {
    let repeats = || ("repeats", ParamValue::Count(5));
    let bursts = |fail: Option<(u64, TestError)>| {
        let mut bed = Fake { buffer: 100, fail, ..Fake::new() };
        bed.known.throughput.insert(pattern("64"), Some(FrameRate(300_000.0)));
        let (outcome, end) = run("back_to_back", &mut bed, &[size("64"), repeats()]);
        let figure = rank(&outcome, "back_to_back_64_frames");
        (bed.asked, cell(&outcome, 0, "searches"), cell(&outcome, 0, "average_frames"), figure, end)
    };
    let (all, searches, frames, figure, end) = bursts(None);
    assert!(searches == Some(5.0) && figure == frames && frames.is_some() && end.is_ok());
    // The failure is in the third of five searches.
    let third = all / 2;
    let stopped = bursts(Some((third, TestError::Interrupted)));
    assert_eq!(stopped, (third, Some(2.0), frames, frames, Err(TestError::Interrupted)));
    let died = TestError::DutDied("killed by signal 11".into());
    assert_eq!(bursts(Some((third, died.clone()))), (third, Some(2.0), frames, None, Err(died)));
}

#[test]
fn latency_goes_on_at_the_other_loads() {
    let mut bed = Fake { unfit_band_pps: (140_000.0, 160_000.0), ..Fake::new() };
    bed.known.throughput.insert(pattern("64"), Some(FrameRate(300_000.0)));
    let (outcome, end) = run("latency", &mut bed, &[size("64")]);
    end.unwrap();
    assert_eq!(rows(&outcome).len(), 3);
    assert!(noted(&outcome, "50 % left out") && outcome.ranks.len() == 2);
    assert!(outcome.ranks.iter().all(|rank| rank.round() == RoundFigure::NotMeasured), "{:?}", outcome.ranks);
}

/// In these tests a trial becomes invalid after a shorter wait of the DUT than in others, so the list is repeated here.
#[test]
fn these_tests_measure_latency() {
    let names: Vec<_> = METHODS.iter().map(|m| m.spec()).filter(|s| s.measures_latency()).map(|s| s.name).collect();
    let all = "latency mixed_families extension_headers fixed_rate soak filters head_to_head vpn_scale";
    assert_eq!(names.join(" "), all);
    let only: Vec<_> = METHODS.iter().map(|m| m.spec()).filter(|s| s.measures_only_latency()).map(|s| s.name).collect();
    assert_eq!(only, ["latency"]);
}

/// Delays of pings are no latencies of frames: the port that sends a request receives the reply.
#[test]
fn every_figure_that_is_a_latency_says_so() {
    for spec in METHODS.iter().map(|method| method.spec()).filter(|spec| spec.name != "ping_delay") {
        for figure in spec.figures {
            let named = figure.key.contains("delay") || figure.help.contains("latenc");
            assert!(figure.is_latency() || !named, "{}: {}", figure.key, figure.help);
        }
    }
}

/// A router that forwards on during resets. The host spoils every reset in which the daemons are asked to terminate.
struct Resets(Fake);

impl Testbed for Resets {
    as_fake!(0);

    fn attempt(&mut self, trial: &Trial, number: u32) -> Result<Seen, TestError> {
        let Some((reset, _)) = &trial.reset else { return self.0.attempt(trial, number) };
        if reset.kind == ResetKind::Software {
            return Err(TestError::Unfit(vec!["host busy".into()]));
        }
        let seen = self.0.attempt(&Trial::new(trial.spec.clone()), number)?;
        Ok(Seen { reset: Some(ResetSeen { at_s: reset.at_s, ..ResetSeen::default() }), ..seen })
    }

    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        self.0.settle(time)
    }
}

#[test]
fn the_other_kinds_of_reset_are_measured_after_a_spoilt_one() {
    let (mut bed, mut outcome) = (Resets(Fake::new()), Outcome::default());
    let over = [("rate", ParamValue::Rate(FrameRate(1_000.0)))];
    let reset = method("reset");
    let end = reset.run(&mut bed, &params(reset, false, &over), &mut outcome);
    assert_eq!(end, Err(TestError::Unfit(vec!["host busy".into()])));
    assert!(noted(&outcome, "IPv4, software reset not finished, the tester was unfit: host busy."));
    assert_eq!(unmeasured(&outcome), [("reset_software_ipv4_ms", "host busy")]);
    let times = ["process", "link"].map(|kind| rank(&outcome, &format!("reset_{kind}_ipv4_ms")));
    assert_eq!(times, [Some(0.0); 2]);
}

/// A stated load needs no throughput.
#[test]
fn latency_at_a_stated_load_is_measured_without_a_throughput() {
    let at = ("compare_at", ParamValue::Rate(FrameRate(100_000.0)));
    let failed = |bed: &mut Fake| {
        bed.known.failed.insert(pattern("64"), "the tester was late".into());
    };
    // The search does not find a load that the tester can offer.
    let hopeless = |bed: &mut Fake| bed.unfit_above_pps = 150_000.0;
    for prepare in [&failed as &dyn Fn(&mut Fake), &hopeless] {
        let mut bed = Fake::new();
        prepare(&mut bed);
        let (outcome, end) = run("latency", &mut bed, &[size("64"), at.clone()]);
        end.unwrap();
        assert_eq!(cell(&outcome, 0, "load_pps"), Some(100_000.0));
        assert_eq!((rows(&outcome).len(), cell(&outcome, 0, "load_percent")), (1, None));
        assert!(
            outcome.ranks.iter().any(|r| r.key == "latency_64_median_us" && r.value.is_some()),
            "{:?}",
            outcome.ranks
        );
        assert!(noted(&outcome, "loads in % of the throughput left out"), "{:?}", outcome.notes);
        // Without a stated load, there is no load at which to measure.
        let mut bed = Fake::new();
        prepare(&mut bed);
        run("latency", &mut bed, &[size("64")]).1.unwrap_err();
    }
}

#[test]
fn every_trial_waits_as_long_as_the_suite_says() {
    for name in ["throughput", "forwarding_rate", "frame_loss_rate", "latency", "back_to_back", "system_recovery"] {
        for (over, drain_s) in [(None, 0.2), (Some(("drain", ParamValue::Duration(Duration::from_millis(700)))), 0.7)] {
            let mut bed = Fake { buffer: 10, ..Fake::new() };
            let over: Vec<_> = over.into_iter().chain([size("64")]).collect();
            run(name, &mut bed, &over).1.unwrap();
            assert!(bed.trials.iter().all(|(s, _)| s.drain_s == drain_s), "{name}");
        }
    }
}

/// The time that the fake bed would have needed: for each trial its sending time, the pause and 0.12 s, and for trials
/// with loss the drain time.
fn taken(bed: &Fake) -> f64 {
    let trial = |spec: &drophammer_model::trial::TrialSpec, lost: u64| {
        let sending = if matches!(spec.load, Load::Burst { .. }) { 0.0 } else { spec.duration_s };
        sending + 0.12 + if lost > 0 { spec.drain_s } else { 0.0 }
    };
    bed.trials.iter().map(|(s, r)| trial(s, r.lost())).sum::<f64>() + bed.settled.as_secs_f64()
}

#[test]
fn estimates_are_about_what_tests_take_and_a_quick_look_is_quick() {
    let mut bed = Fake { capacity_pps: 60_000.0, buffer: 1_000, beyond: 0.5, ..Fake::new() };
    let mut all = 0.0;
    for name in ["throughput", "forwarding_rate", "frame_loss_rate", "latency", "back_to_back", "system_recovery"] {
        let before = taken(&bed);
        run(name, &mut bed, &[size("64 512 1518")]).1.unwrap_or_else(|e| panic!("{name}: {e}"));
        let real = taken(&bed) - before;
        let estimate = method(name).plan(&params(method(name), false, &[])).estimate(0).as_secs_f64();
        println!("{name}: {real:.1} s, estimate {estimate:.1} s");
        assert!(estimate > real * 0.6 && estimate < real * 2.5, "{name}: {real} {estimate}");
        all += estimate;
    }
    // Two routers must fit into four minutes, including start and end.
    assert!(all < 100.0 && taken(&bed) < 100.0, "{all} {}", taken(&bed));
}

#[test]
fn a_rate_under_overload_near_the_ceiling_is_the_tester_s() {
    let overloaded = |capacity_pps: f64| {
        let ceiling = Some(FrameRate(400_000.0));
        let mut bed = Fake { capacity_pps, ceiling, tester_pps: 400_000.0, ..Fake::new() };
        let (outcome, end) = run("overload", &mut bed, &[size("64")]);
        end.unwrap();
        let rank = |key: &str| outcome.ranks.iter().find(|r| r.key == key).unwrap();
        let limited = ["overload_64_pps", "flood_64_pps"].map(|key| rank(key).tester_limited);
        // Routers are compared at the requested load, even if the tester offered less.
        assert_eq!(rank("flood_64_pps").load_pps, Some(LINE_64));
        let at_least = match any_cell(&outcome, 0, "at_least") {
            Cell::Text(text) => text.clone(),
            _ => String::new(),
        };
        (limited, at_least)
    };
    assert_eq!(overloaded(250_000.0), ([false, false], String::new()));
    // The router loses frames at both loads, but with a faster tester it might forward more frames.
    assert_eq!(overloaded(370_000.0), ([true, true], "throughput, +25 %, flood".into()));
    // The tester cannot offer 25 % more than the throughput here.
    assert_eq!(overloaded(350_000.0), ([false, false], String::new()));
    assert_eq!(overloaded(1e6), ([true, true], "throughput, +25 %, flood".into()));
}

/// Number of attempts until the trial is given up, and true if the last attempt was valid. `spoil` returns the reasons
/// that spoil an attempt.
fn attempts(bed: &mut Fake, spoil: impl Fn(u32) -> &'static [&'static str]) -> (u32, bool) {
    let mut attempts = Attempts::begin(bed);
    loop {
        let reasons: Vec<String> = spoil(attempts.number()).iter().map(|reason| (*reason).to_owned()).collect();
        let validity = if reasons.is_empty() { Validity::Valid } else { Validity::Invalid(reasons) };
        match attempts.passed(bed, &TrialResult { validity, elapsed_s: 2.0, ..TrialResult::default() }) {
            Ok(true) => return (attempts.number(), true),
            Ok(false) => {}
            Err(end) => {
                assert!(matches!(end, TestError::Unfit(why) if !why.is_empty()));
                return (attempts.number(), false);
            }
        }
    }
}

#[test]
fn a_busy_host_costs_time_and_not_the_attempts_of_the_tester() {
    let busy: &[&str] =
        &["host busy: the tester waited for its processor", "the tester was held off the processor for 1 s"];
    let own: &[&str] = &["host busy: the tester waited for its processor", "the tester sent 3 % less than intended"];
    let mut bed = Fake::new();
    assert_eq!(attempts(&mut bed, |_| own), (3, false));
    assert_eq!(attempts(&mut bed, |number| if number <= 15 { busy } else { &[] }), (16, true));
    assert_eq!(attempts(&mut bed, |number| if number <= 15 { busy } else { own }), (18, false));
    assert_eq!(attempts(&mut bed, |_| busy), (20, false));
    // There are two more attempts than the three that every trial has.
    bed.time_to_repeat = Duration::from_secs(5);
    assert_eq!(attempts(&mut bed, |_| busy), (5, false));
    assert_eq!(attempts(&mut bed, |_| busy), (3, false));
}
