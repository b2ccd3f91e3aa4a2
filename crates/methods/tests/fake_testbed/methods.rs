//! Each test on a testbed with known behaviour: its results must match exactly.

use crate::common::{Fake, cell, pattern, rank, rows, run, secs, size, unmeasured};
use drophammer_methods::tester_ceiling::ceilings;
use drophammer_methods::{LowerBound, METHODS, Method, TestError};
use drophammer_model::figure::RoundFigure;
use drophammer_model::outcome::PlotKind;
use drophammer_model::pattern::PatternKey;
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{FigureShape, Registry};
use drophammer_model::suite::ParamValue;
use drophammer_model::trial::{Family, Load};
use drophammer_suite::check_specs;

const LINE_64: f64 = 1e9 / (8.0 * 84.0);

fn both() -> (&'static str, ParamValue) {
    ("families", ParamValue::Families(vec![Family::Ipv4, Family::Ipv6]))
}

#[test]
fn throughput_is_found_within_the_width_and_kept_for_later_tests() {
    for capacity in [777.0, 33_333.0, 123_456.0, 1_400_000.0] {
        let mut bed = Fake { capacity_pps: capacity, ..Fake::new() };
        let (outcome, end) = run("throughput", &mut bed, &[size("64")]);
        end.unwrap();
        let found = cell(&outcome, 0, "throughput_pps").unwrap();
        let upper = cell(&outcome, 0, "upper_bound_pps").unwrap();
        assert!(found <= capacity + 2.0 && found >= capacity * 0.965, "{capacity}: {found}");
        assert!(upper > capacity - 2.0 && (upper - found) / upper <= 0.03 + 2.0 / found, "{capacity}: {found} {upper}");
        assert!((cell(&outcome, 0, "theoretical_pps").unwrap() - LINE_64).abs() < 1e-6);
        assert!((cell(&outcome, 0, "aggregate_pps").unwrap() - 2.0 * found).abs() < 1e-6);
        assert!((cell(&outcome, 0, "l1_bps").unwrap() - found * 84.0 * 8.0).abs() < 1e-3);
        assert!((cell(&outcome, 0, "l2_bps").unwrap() - found * 64.0 * 8.0).abs() < 1e-3);
        assert!(cell(&outcome, 0, "pdr_0_5_pps").unwrap() >= found);
        assert_eq!(rank(&outcome, "pdr_64_pps"), cell(&outcome, 0, "pdr_0_5_pps"));
        assert!(rows(&outcome)[0].marks.is_empty(), "{:?}", rows(&outcome)[0].marks);
        assert_eq!(rows(&outcome)[0].trials.len(), bed.trials.len());
        assert_eq!(rank(&outcome, "throughput_64_pps"), Some(found));
        assert_eq!(bed.known.throughput[&pattern("64")], Some(FrameRate(found)));
        assert!(bed.trials.len() <= 25, "{} trials", bed.trials.len());
        let dots = &outcome.plots[1];
        assert_eq!((dots.kind, dots.series[0].points.len()), (PlotKind::Dots, bed.trials.len()));
    }
}

#[test]
fn a_router_at_line_rate_has_an_irregular_result_not_an_invented_one() {
    let mut bed = Fake { capacity_pps: 1e9, ..Fake::new() };
    let (outcome, end) = run("throughput", &mut bed, &[size("64")]);
    end.unwrap();
    // The fake counts whole frames: one frame in a trial of 0.5 s is 2 fps.
    assert!((cell(&outcome, 0, "throughput_pps").unwrap() - LINE_64).abs() < 2.0);
    assert_eq!(cell(&outcome, 0, "upper_bound_pps"), None);
    assert!(rows(&outcome)[0].marks.iter().any(|m| m.contains("no upper bound")));
    assert!(!outcome.ranks[0].tester_limited);
}

#[test]
fn near_the_tester_s_ceiling_results_are_marked() {
    let ceiling = Some(FrameRate(200_000.0));
    let mut bed = Fake { capacity_pps: 190_000.0, ceiling, ..Fake::new() };
    let (outcome, _) = run("throughput", &mut bed, &[size("64")]);
    assert!(bed.trials.iter().all(|(s, _)| s.steps()[0].1.pps() <= 190_000.001));
    assert!(rows(&outcome)[0].marks.contains(&"tester-limited".to_owned()));
    assert!(outcome.ranks[0].tester_limited);
    assert_eq!(cell(&outcome, 0, "ceiling_pps"), Some(200_000.0));
    let mut bed = Fake { capacity_pps: 150_000.0, ceiling, ..Fake::new() };
    let (outcome, _) = run("throughput", &mut bed, &[size("64")]);
    assert!(!outcome.ranks[0].tester_limited && rows(&outcome)[0].marks.is_empty());
}

/// A disturbance of two trials, anywhere in a search, must not count as the router's limit.
#[test]
fn a_disturbance_that_has_passed_is_no_upper_bound() {
    let mut undisturbed = Fake::new();
    run("throughput", &mut undisturbed, &[size("64")]).1.unwrap();
    let mut superseded = 0;
    for first in 1..undisturbed.asked {
        let mut bed = Fake { disturbed: first..first + 2, ..Fake::new() };
        let (outcome, end) = run("throughput", &mut bed, &[size("64")]);
        end.unwrap();
        for (column, key) in [("throughput_pps", "throughput_64_pps"), ("pdr_0_5_pps", "pdr_64_pps")] {
            let found = cell(&outcome, 0, column).unwrap();
            assert!((0.96 * 300_000.0..=300_000.0 / 0.995).contains(&found), "{first}: {key} {found}");
        }
        let claim = outcome.ranks[0].claim.as_ref().unwrap();
        superseded += claim.superseded.len();
    }
    assert!(superseded > 0);
}

#[test]
fn an_upper_bound_is_looked_at_again_before_the_search_ends() {
    let mut bed = Fake::new();
    let (outcome, end) = run("throughput", &mut bed, &[size("64"), ("pdr", ParamValue::Flag(false))]);
    end.unwrap();
    let claim = outcome.ranks[0].claim.as_ref().unwrap();
    let upper = claim.missed_pps.unwrap();
    let rate = |load: &Load| matches!(load, Load::Constant { rate_pps } if *rate_pps == upper);
    let at: Vec<usize> = (0..bed.trials.len()).filter(|n| rate(&bed.trials[*n].0.load)).collect();
    let last = *at.last().unwrap();
    assert!(at.len() > 1 && last + 1 == bed.trials.len(), "{at:?} of {}", bed.trials.len());
    assert!(!at.contains(&(last - 1)), "after other trials: {at:?}");
    assert_eq!(bed.trials[last].0.duration_s, claim.trial_duration_s);
}

#[test]
fn a_router_that_always_loses_has_no_throughput_but_may_have_a_pdr() {
    let mut bed = Fake { floor: 0.1, ..Fake::new() };
    let goals = [size("64"), ("pdr", ParamValue::Flag(true))];
    let (outcome, end) = run("throughput", &mut bed, &goals);
    end.unwrap();
    assert_eq!(cell(&outcome, 0, "throughput_pps"), None);
    assert_eq!(rank(&outcome, "throughput_64_pps"), None);
    assert_eq!(bed.known.throughput[&pattern("64")], None);
    assert!(rows(&outcome)[0].marks.iter().any(|m| m.contains("no lower bound")));
    let mut bed = Fake::new();
    let (outcome, _) = run("throughput", &mut bed, &goals);
    let pdr = cell(&outcome, 0, "pdr_0_5_pps").unwrap();
    assert!((300_000.0 * 0.97..=300_000.0 / 0.995 + 2.0).contains(&pdr), "{pdr}");
    assert!(cell(&outcome, 0, "pdr_0_5_conditional_pps").unwrap() <= pdr);
}

#[test]
fn the_offered_load_is_claimed_not_the_intended_one() {
    let mut bed = Fake { offer_share: 0.9995, ..Fake::new() };
    let (outcome, _) = run("throughput", &mut bed, &[size("64")]);
    let intended = cell(&outcome, 0, "intended_load_pps").unwrap();
    let found = cell(&outcome, 0, "throughput_pps").unwrap();
    assert!((found - intended * 0.9995).abs() < 2.0, "{found} {intended}");
}

#[test]
fn a_search_out_of_time_says_so_and_claims_nothing() {
    let mut bed = Fake::new();
    let (outcome, end) = run("throughput", &mut bed, &[size("64"), ("search_duration_max", secs(1.0))]);
    end.unwrap();
    assert_eq!(cell(&outcome, 0, "throughput_pps"), None);
    assert!(rows(&outcome)[0].marks.iter().any(|m| m.contains("ran out")));
    assert!(bed.known.throughput.is_empty());
    let too_long = "the search took too long; see `search_duration_max`";
    assert_eq!(unmeasured(&outcome), [("throughput_64_pps", too_long), ("pdr_64_pps", too_long)]);
    let (_, end) = run("latency", &mut bed, &[size("64"), ("search_duration_max", secs(1.0))]);
    assert!(matches!(&end, Err(TestError::NotApplicable(why)) if why.starts_with("no throughput known: ")), "{end:?}");
}

#[test]
fn forwarding_rate_is_what_comes_out_at_maximum_load() {
    let mut bed = Fake { capacity_pps: 250_000.0, tester_pps: 1_000_000.0, ..Fake::new() };
    let (outcome, end) = run("forwarding_rate", &mut bed, &[size("64")]);
    end.unwrap();
    assert!((cell(&outcome, 0, "intended_load_pps").unwrap() - LINE_64).abs() < 1e-6);
    assert_eq!(cell(&outcome, 0, "offered_load_pps"), Some(1_000_000.0));
    for column in ["forwarding_rate_pps", "min_pps", "max_pps"] {
        assert_eq!(cell(&outcome, 0, column), Some(250_000.0));
    }
    assert_eq!(cell(&outcome, 0, "stdev_pps"), Some(0.0));
    assert_eq!(cell(&outcome, 0, "loss_percent"), Some(75.0));
    assert_eq!((bed.trials.len(), rank(&outcome, "forwarding_rate_64_pps")), (3, Some(250_000.0)));
    assert!(bed.trials.iter().all(|(s, _)| matches!(s.load, Load::Maximum { .. })));
}

#[test]
fn frame_loss_rate_follows_the_curve_until_two_clean_loads() {
    let mut bed = Fake { capacity_pps: LINE_64 * 0.55, ..Fake::new() };
    let step = ("step", ParamValue::Number(10.0));
    let (outcome, end) = run("frame_loss_rate", &mut bed, &[size("64"), step]);
    end.unwrap();
    assert_eq!(rows(&outcome).len(), 7); // 100, 90, 80, 70 and 60 % lose frames; 50 and 40 % do not
    for (row, load) in [100.0, 90.0, 80.0, 70.0, 60.0, 50.0, 40.0].into_iter().enumerate() {
        assert_eq!(cell(&outcome, row, "load_percent"), Some(load));
        assert!((cell(&outcome, row, "line_percent").unwrap() - load).abs() < 0.001);
        let loss = f64::max(0.0, (load - 55.0) / load * 100.0);
        assert!((cell(&outcome, row, "loss_percent").unwrap() - loss).abs() < 0.001);
        let (sent, back) = (cell(&outcome, row, "offered").unwrap(), cell(&outcome, row, "received").unwrap());
        assert_eq!(sent - back, cell(&outcome, row, "lost").unwrap());
    }
    let plot = &outcome.plots[0];
    assert_eq!(plot.series.iter().map(|s| (s.dots, s.points.len())).collect::<Vec<_>>(), [(false, 7), (true, 7)]);
    // The x axis of the curve is the intended load, which is the same in every round.
    let mut bed = Fake { offer_share: 0.9995, ..Fake::new() };
    let (outcome, _) = run("frame_loss_rate", &mut bed, &[size("64")]);
    for (row, point) in outcome.plots[0].series[0].points.iter().enumerate() {
        let load = cell(&outcome, row, "load_percent").unwrap();
        assert!((point.x - load).abs() < 1e-9, "{point:?}");
        assert!(cell(&outcome, row, "line_percent").unwrap() < load - 0.001, "less was offered");
    }
    // Every load loses frames. The test goes down to the smallest load and reports the result there.
    let mut bed = Fake { floor: 0.01, ..Fake::new() };
    let (outcome, _) = run("frame_loss_rate", &mut bed, &[size("64")]);
    assert_eq!(rows(&outcome).len(), 5);
    assert!(outcome.notes.iter().any(|n| n.contains("no two successive loads")));
}

#[test]
fn routers_are_compared_at_the_load_that_the_suite_names() {
    let at = |rate: f64| ("compare_at", ParamValue::Rate(FrameRate(rate)));
    let mut bed = Fake::new();
    let (outcome, end) = run("latency", &mut bed, &[size("64"), at(60_000.0)]);
    end.unwrap();
    assert_eq!(rows(&outcome).len(), 5);
    assert_eq!(cell(&outcome, 4, "load_pps"), Some(60_000.0));
    assert!((cell(&outcome, 4, "load_percent").unwrap() - 20.0).abs() < 1.0);
    assert_eq!(outcome.ranks.iter().map(|r| r.load_pps).collect::<Vec<_>>(), [Some(60_000.0); 2]);
    let finite = drophammer_model::latency::PERCENTILES.iter().filter(|p| **p < 100.0).count();
    assert_eq!(outcome.plots.last().unwrap().series[0].points.len(), finite);
    // If the load exceeds the capacity, there is no latency.
    let (outcome, end) = run("latency", &mut bed, &[size("64"), at(600_000.0)]);
    end.unwrap();
    assert_eq!(outcome.ranks.iter().map(|r| r.value).collect::<Vec<_>>(), [None; 2]);
    // Shares of different throughputs are different loads, so they are not compared.
    let (outcome, _) = run("latency", &mut Fake { capacity_pps: 100_000.0, ..Fake::new() }, &[size("64")]);
    let (other, _) = run("latency", &mut Fake::new(), &[size("64")]);
    assert!(outcome.ranks[0].load_pps.is_some() && !outcome.ranks[0].same_load(&other.ranks[0]));
    assert!(other.ranks[0].same_load(&other.ranks[1]));
}

#[test]
fn latency_is_reported_per_load_and_group() {
    let mut bed = Fake::new();
    let (outcome, end) = run("latency", &mut bed, &[size("64 512"), both(), ("repeats", ParamValue::Count(3))]);
    end.unwrap();
    assert_eq!(rows(&outcome).len(), 2 * 4 * 2);
    for row in 0..rows(&outcome).len() {
        for (column, us) in [
            ("min_us", 10.0),
            ("p50_us", 11.0),
            ("p99_us", 11.0),
            ("p99_9_us", 15.0),
            ("max_us", 19.0),
            ("mean_us", 12.0),
            ("pdv_us", 5.0),
        ] {
            assert_eq!(cell(&outcome, row, column), Some(us), "{column}");
        }
        assert_eq!(cell(&outcome, row, "loss_percent"), Some(0.0));
        assert_eq!(rows(&outcome)[row].trials.len(), 3);
    }
    let throughput = bed.known.throughput[&PatternKey { families: vec![Family::Ipv4, Family::Ipv6], ..pattern("64") }]
        .unwrap()
        .pps();
    assert!((cell(&outcome, 0, "load_pps").unwrap() - throughput * 0.1).abs() < 1e-6);
    let spread = outcome.tables.iter().find(|table| table.key == "latency_spread").unwrap();
    assert_eq!((spread.rows.len(), &spread.rows[0].trials), (2 * 4 * 2, &rows(&outcome)[0].trials));
    assert_eq!(rank(&outcome, "latency_64_median_us"), Some(11.0));
    assert_eq!(rank(&outcome, "latency_64_p99_9_us"), Some(15.0));
    assert_eq!(outcome.plots.len(), 5);
    assert!(outcome.plots[1..].iter().all(|p| p.kind == PlotKind::Percentiles && p.series.len() == 4));
}

#[test]
fn back_to_back_finds_the_buffer_to_the_frame() {
    // After a burst at line rate, (1 - capacity / line) of the burst is in the buffer of the router.
    for (capacity, buffer) in [(100_000.0, 512u64), (LINE_64 / 2.0, 1_000), (700_000.0, 77)] {
        let mut bed = Fake { capacity_pps: capacity, buffer, ..Fake::new() };
        let (outcome, end) = run("back_to_back", &mut bed, &[size("64"), ("step", ParamValue::Count(1))]);
        end.unwrap();
        let passes = |frames: u64| frames <= (capacity * frames as f64 / LINE_64 + 1e-6) as u64 + buffer;
        let found = cell(&outcome, 0, "average_frames").unwrap() as u64;
        assert!(passes(found) && !passes(found + 1), "{capacity} {buffer}: {found}");
        assert_eq!(cell(&outcome, 0, "min_frames"), cell(&outcome, 0, "max_frames"));
        assert_eq!(cell(&outcome, 0, "stdev_frames"), Some(0.0));
        let implied = found as f64 / LINE_64;
        assert!((cell(&outcome, 0, "implied_buffer_s").unwrap() - implied).abs() < 1e-12);
        let throughput = cell(&outcome, 0, "throughput_pps").unwrap();
        let corrected = cell(&outcome, 0, "corrected_buffer_s").unwrap();
        assert!((corrected - implied * (1.0 - throughput / LINE_64)).abs() < 1e-12);
        // The buffer fills in this time at line rate, within the width of the throughput search.
        let buffer_s = buffer as f64 / LINE_64;
        assert!((corrected - buffer_s).abs() < 0.1 * buffer_s, "{corrected} {buffer_s}");
        assert_eq!(cell(&outcome, 0, "searches"), Some(2.0));
    }
}

#[test]
fn back_to_back_has_no_answer_where_no_burst_overflows() {
    let mut bed = Fake { capacity_pps: 1e9, ..Fake::new() };
    let (outcome, end) = run("back_to_back", &mut bed, &[size("64")]);
    end.unwrap();
    assert_eq!(cell(&outcome, 0, "average_frames"), None);
    let [(key, why)] = unmeasured(&outcome)[..] else { panic!("{:?}", outcome.ranks) };
    assert!(key == "back_to_back_64_frames" && why.ends_with("so no burst fills a buffer"), "{key}: {why}");
    assert_eq!(rows(&outcome)[0].marks, ["faster than the tester"]);
    // If the buffer is deeper than the longest burst, the result is "at least".
    let mut bed = Fake { buffer: 100_000_000, ..Fake::new() };
    bed.known.throughput.insert(pattern("64"), Some(FrameRate(300_000.0)));
    let (outcome, end) = run("back_to_back", &mut bed, &[size("64")]);
    end.unwrap();
    assert_eq!(cell(&outcome, 0, "average_frames"), cell(&outcome, 0, "max_burst_frames"));
    assert!(rows(&outcome)[0].marks[0].contains("lower bound") && outcome.ranks[0].capped);
}

#[test]
fn recovery_time_is_exact() {
    for recovery_ns in [0, 1_234_567, 654_321_987] {
        let mut bed = Fake { recovery_ns, ..Fake::new() };
        let (outcome, end) = run("system_recovery", &mut bed, &[size("64")]);
        end.unwrap();
        let found = cell(&outcome, 0, "recovery_ms").unwrap();
        assert!((found - recovery_ns as f64 / 1e6).abs() < 1e-5, "{found} {recovery_ns}");
        // The figure is as exact as the table; otherwise a report would say "less than a time bin".
        assert_eq!(Some(outcome.ranks[0].resolution), cell(&outcome, 0, "resolution_ms"));
        let throughput = cell(&outcome, 0, "throughput_pps").unwrap();
        assert!((cell(&outcome, 0, "overload_pps").unwrap() - 1.1 * throughput).abs() < 1e-6);
        let (spec, _) = bed.trials.last().unwrap();
        assert!((spec.steps()[1].1.pps() - 0.55 * throughput).abs() < 1e-6);
        let plot = &outcome.plots[0];
        assert_eq!((plot.events[0].0, plot.series[0].points.len()), (1.0, 40));
        assert!(plot.series[0].points[0].y > plot.series[0].points[39].y);
    }
}

#[test]
fn a_recovery_from_a_smaller_overload_is_not_ranked() {
    let recovered = |capacity_pps: f64, bound: Option<LowerBound>, recovery_ns: u64| {
        let mut bed = Fake { capacity_pps, recovery_ns, ..Fake::new() };
        bed.known.throughput.insert(pattern("64"), Some(FrameRate(capacity_pps)));
        bed.known.bounds.extend(bound.map(|bound| (pattern("64"), bound)));
        let (outcome, end) = run("system_recovery", &mut bed, &[size("64")]);
        end.unwrap();
        (cell(&outcome, 0, "recovery_ms").is_some(), outcome.ranks[0].clone())
    };
    let (known, figure) = recovered(300_000.0, None, 1_000_000);
    assert!(known && figure.value.is_some(), "{figure:?}");
    // The line carries 1,488,095 frames per second, 106.3 % of the throughput.
    let (known, figure) = recovered(1_400_000.0, None, 1_000_000);
    assert!(known && figure.round() == RoundFigure::NotMeasured, "{figure:?}");
    assert!(figure.missing.unwrap().why.starts_with("overload is 106.3 % of throughput"));
    let (known, figure) = recovered(300_000.0, Some(LowerBound::Unfinished), 1_000_000);
    assert!(known && figure.round() == RoundFigure::NotMeasured, "{figure:?}");
    assert!(figure.missing.unwrap().why.contains("only a lower bound"));
    // A router that does not recover from less has failed.
    let (known, figure) = recovered(1_400_000.0, None, 1_000_000_000);
    assert!(!known && figure.round() == RoundFigure::Failed, "{figure:?}");
}

#[test]
fn no_recovery_is_not_a_short_one() {
    let mut bed = Fake { recovery_ns: 1_000_000_000, ..Fake::new() };
    let (outcome, end) = run("system_recovery", &mut bed, &[size("64")]);
    end.unwrap();
    assert_eq!(cell(&outcome, 0, "recovery_ms"), None);
    assert_eq!(rank(&outcome, "system_recovery_64_ms"), None);
    assert!(rows(&outcome)[0].marks[0].contains("still losing"));
    // If nothing is lost under overload, the recovery is not 0 ms.
    let mut bed = Fake { buffer: 1_000_000, ..Fake::new() };
    bed.known.throughput.insert(pattern("64"), Some(FrameRate(300_000.0)));
    let (outcome, _) = run("system_recovery", &mut bed, &[size("64")]);
    assert_eq!(cell(&outcome, 0, "recovery_ms"), None);
    assert!(rows(&outcome)[0].marks[0].contains("no loss under overload"));
    assert!(unmeasured(&outcome)[0].1.ends_with("nothing to recover from"), "{:?}", outcome.ranks);
    // At line rate there is no overload.
    let mut bed = Fake { capacity_pps: 1e9, ..Fake::new() };
    let (outcome, end) = run("system_recovery", &mut bed, &[size("64")]);
    assert!(unmeasured(&outcome)[0].1.ends_with("no overload is possible"), "{:?}", outcome.ranks);
    assert!(matches!(end, Err(TestError::NotApplicable(_))), "{end:?}");
}

#[test]
fn the_ceiling_is_what_the_loop_sends_and_returns() {
    let mut bed = Fake { capacity_pps: 1e9, tester_pps: 800_000.0, ..Fake::new() };
    let (outcome, end) = run("tester_ceiling", &mut bed, &[size("64 1518"), both()]);
    end.unwrap();
    assert_eq!(cell(&outcome, 0, "ceiling_pps"), Some(800_000.0));
    assert_eq!(cell(&outcome, 0, "latency_min_us"), Some(10.0));
    let found = ceilings(bed.trials.iter().map(|(s, r)| (s, r)));
    assert_eq!(found.len(), 2);
    assert_eq!(
        found[&PatternKey { families: vec![Family::Ipv4, Family::Ipv6], ..pattern("64") }],
        FrameRate(800_000.0)
    );
    assert!(bed.known.throughput.is_empty());
    // The ceiling is the received rate, not the sent rate.
    let mut bed = Fake { capacity_pps: 600_000.0, ..Fake::new() };
    let (outcome, _) = run("tester_ceiling", &mut bed, &[size("64")]);
    assert_eq!(cell(&outcome, 0, "ceiling_pps"), Some(600_000.0));
    // If the tester drops received frames, its load is reduced until it no longer does.
    let mut bed = Fake { capacity_pps: 1e9, unfit_above_pps: 1_000_000.0, ..Fake::new() };
    let (outcome, end) = run("tester_ceiling", &mut bed, &[size("64")]);
    end.unwrap();
    let found = cell(&outcome, 0, "ceiling_pps").unwrap();
    assert!(found <= 1_000_000.0 && found > 800_000.0, "{found}");
}

#[test]
fn a_known_throughput_is_not_searched_again() {
    for name in ["latency", "back_to_back", "system_recovery"] {
        let mut bed = Fake { buffer: 10, ..Fake::new() };
        run("throughput", &mut bed, &[size("64")]).1.unwrap();
        let before = bed.trials.len();
        run(name, &mut bed, &[size("64")]).1.unwrap();
        assert!(bed.trials[before..].iter().all(|(s, _)| !s.purpose.starts_with("throughput")), "{name}");
        let mut bed = Fake { buffer: 10, ..Fake::new() };
        run(name, &mut bed, &[size("64")]).1.unwrap();
        assert!(bed.trials.iter().any(|(s, _)| s.purpose.starts_with("throughput")), "{name}");
        assert!(bed.known.throughput[&pattern("64")].is_some(), "{name}");
    }
}

/// True if this test iterates over frame sizes between pairs of ports. Tests of flows with individual sizes, tests of
/// four ports and tests of several routers do not.
fn is_by_size(method: &dyn Method) -> bool {
    let by_size =
        ["frame_sizes", "direction"].iter().all(|key| method.spec().params.iter().any(|param| param.key == *key));
    by_size && !method.is_joint()
}

#[test]
fn whatever_stops_a_test_keeps_what_was_measured() {
    for method in METHODS.iter().filter(|m| m.spec().needs.is_empty() && is_by_size(**m)) {
        let name = method.spec().name;
        let mut whole = Fake { buffer: 10, ..Fake::new() };
        let (full, end) = run(name, &mut whole, &[size("64 512")]);
        end.unwrap();
        let total = whole.trials.len() as u64;
        for error in
            [TestError::Interrupted, TestError::DutDied("segfault".into()), TestError::Unfit(vec!["late".into()])]
        {
            let mut bed = Fake { buffer: 10, fail: Some((total, error.clone())), ..Fake::new() };
            let (part, end) = run(name, &mut bed, &[size("64 512")]);
            // A tester that is unfit in one trial costs a test at most one load or burst.
            if !matches!(error, TestError::Unfit(_)) {
                assert_eq!(end, Err(error.clone()), "{name}");
            }
            assert!(!rows(&part).is_empty(), "{name}: {error}");
            // The first size was completed, with the same figures.
            assert_eq!(rows(&part)[0], rows(&full)[0], "{name}");
        }
    }
}

#[test]
fn an_unfit_size_does_not_cost_the_others() {
    let mut bed = Fake { fail: Some((3, TestError::Unfit(vec!["late".into()]))), ..Fake::new() };
    let (outcome, end) = run("throughput", &mut bed, &[size("64")]);
    assert_eq!(end, Err(TestError::Unfit(vec!["late".into()])));
    assert!(rows(&outcome)[0].marks.iter().any(|m| m.contains("the tester was unfit")));
    assert_eq!(rows(&outcome)[0].trials, [1, 2]);
    assert!(bed.known.throughput.is_empty());
    assert_eq!(unmeasured(&outcome), [("throughput_64_pps", "late"), ("pdr_64_pps", "late")]);
    // 64-byte frames cannot be offered even at a reduced load; 1518-byte frames can.
    let mut bed = Fake { unfit_above_pps: 200_000.0, ..Fake::new() };
    let (outcome, end) = run("throughput", &mut bed, &[size("64 1518")]);
    assert!(matches!(end, Err(TestError::Unfit(_))));
    assert!(cell(&outcome, 1, "throughput_pps").is_some());
    assert!(outcome.notes.iter().any(|n| n.starts_with("64 bytes not finished")));
    // Later tests do not try again: they omit that size, report the reason, and complete the other size.
    for name in ["latency", "back_to_back", "system_recovery"] {
        let before = bed.trials.len();
        bed.known.throughput.insert(pattern("1518"), Some(FrameRate(50_000.0)));
        bed.capacity_pps = 50_000.0;
        let (outcome, end) = run(name, &mut bed, &[size("64 1518")]);
        end.unwrap();
        assert!(outcome.notes.iter().any(|n| n.starts_with("64 bytes not tested: no throughput known: ")), "{name}");
        assert!(!rows(&outcome).is_empty());
        assert!(bed.trials[before..].iter().all(|(s, _)| !s.purpose.starts_with("throughput")), "{name}");
    }
    // If a later test searches without success, the test after it does not try again either.
    let mut bed = Fake { unfit_above_pps: 200_000.0, ..Fake::new() };
    assert!(matches!(run("latency", &mut bed, &[size("64")]).1, Err(TestError::Unfit(_))));
    assert!(matches!(run("back_to_back", &mut bed, &[size("64")]).1, Err(TestError::NotApplicable(_))));
}

#[test]
fn sizes_that_do_not_fit_are_noted_and_left_out() {
    let mut bed = Fake::new();
    let (outcome, end) = run("throughput", &mut bed, &[size("9000 64")]);
    end.unwrap();
    assert_eq!(rows(&outcome).len(), 1);
    assert!(outcome.notes.iter().any(|n| n.contains("MTU")), "{:?}", outcome.notes);
    let (_, end) = run("throughput", &mut bed, &[size("9000")]);
    assert!(matches!(end, Err(TestError::NotApplicable(_))));
    bed.facts.ports[1].ipv6 = None;
    let (_, end) = run("throughput", &mut bed, &[size("64"), both()]);
    assert_eq!(end, Err(TestError::NotApplicable("port p2 has no IPv6 addresses".into())));
}

#[test]
fn the_descriptions_of_all_tests_are_in_order() {
    let tests: Vec<_> = METHODS.iter().map(|m| m.spec()).collect();
    assert_eq!(check_specs(&Registry { tests: &tests, kinds: &[] }), Vec::<String>::new());
}

#[test]
fn every_method_has_a_page_that_names_all_its_parameters_and_columns() {
    for method in METHODS {
        let spec = method.spec();
        let path = format!("{}/../../docs/tests/{}.md", env!("CARGO_MANIFEST_DIR"), spec.name);
        let page = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        for param in spec.params {
            assert!(page.contains(&format!("`{}`", param.key)), "{path}: {}", param.key);
        }
        for figure in spec.figures {
            let of_both = figure.key.replace("ipv4", "{family}").replace("ipv6", "{family}");
            let named = |key: &str| page.contains(&format!("`{key}`"));
            assert!(named(figure.key) || named(&of_both), "{path}: {}", figure.key);
        }
        if !spec.needs.is_empty() || !is_by_size(*method) {
            // Their columns are checked elsewhere: tests that need routers in the tests of the testbed, tests of flows
            // next to the test itself.
            continue;
        }
        let mut bed = Fake { buffer: 10, ..Fake::new() };
        // Extension headers need space in the frame.
        let bytes = if spec.name == "extension_headers" { "128" } else { "64" };
        let (outcome, end) = run(spec.name, &mut bed, &[size(bytes)]);
        end.unwrap();
        for column in &outcome.tables[0].columns {
            assert!(page.contains(&format!("`{}`", column.key)), "{path}: {}", column.key);
        }
        // This testbed has no BGP sessions and does not measure processor time.
        let on_request = ["_sessions_lost", "_frames_per_cpu_s", "_frame_ns"];
        let always = |figure: &&FigureShape| !on_request.iter().any(|end| figure.key.ends_with(end));
        for figure in spec.figures.iter().filter(always) {
            let key = figure.key.replace("{size}", bytes).replace("{share}", "15").replace("{target}", "own");
            let key = key.replace("{headers}", "chain");
            assert!(outcome.ranks.iter().any(|r| r.key == key), "{}: {key}", spec.name);
        }
    }
    let names: Vec<_> = METHODS.iter().map(|m| m.spec().name).collect();
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
}
