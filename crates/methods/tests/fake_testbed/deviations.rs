//! Deviations of tests from the documents that define them: by parameters, and by what the test did.

use crate::common::{Fake, method, params, run, secs, size};
use drophammer_methods::METHODS;
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::ParamValue;
use std::time::Duration;

#[test]
fn parameters_that_are_below_the_rfcs_are_named() {
    let percent = |loads: &[f64]| ParamValue::Numbers(loads.to_vec());
    let load = ("max_load", ParamValue::Rate(FrameRate(100_000.0)));
    let cases = [
        ("throughput", load.clone(), "loads up to 100"),
        ("latency", load.clone(), "loads up to 100"),
        ("latency", ("loads", percent(&[10.0])), "no latency at 100 % of the throughput"),
        ("latency", ("repeats", ParamValue::Count(1)), "1 trials per load instead of 20"),
        ("forwarding_rate", ("repeats", ParamValue::Count(1)), "1 trials per frame size instead of 10"),
        ("system_recovery", ("repeats", ParamValue::Count(1)), "1 trials per frame size instead of 5"),
        ("back_to_back", ("repeats", ParamValue::Count(1)), "1 searches per frame size instead of 50"),
        ("route_flap", ("flapped", ParamValue::Count(10_000)), "10000 flapped routes instead of 50000"),
        ("route_flap", ("load", ParamValue::Number(50.0)), "a load of 50 % instead of 90 % of the throughput"),
        ("route_flap", ("rate", ParamValue::Rate(FrameRate(5_000.0))), "a load of 5"),
        ("route_flap", ("routes", ParamValue::Count(60_000)), "60000 routes instead of 200000"),
        ("route_flap", ("cycles", ParamValue::Count(1)), "1 cycles instead of 3"),
        ("route_flap", ("interval", secs(2.0)), "2 s between changes instead of 30 s"),
        ("convergence_skyline", ("routes", ParamValue::Count(50_000)), "50000 routes instead of 200000"),
        ("convergence_skyline", ("cycles", ParamValue::Count(1)), "1 cycles instead of 3"),
        ("convergence_skyline", ("interval", secs(3.0)), "3 s between changes instead of 60 s"),
        ("bgp_table_capacity", ("max_routes", ParamValue::Count(200_000)), "200000 routes at most instead of 2400000"),
        ("bgp_table_capacity", ("hold", secs(1.0)), "the full table is held for 1 s instead of 120 s"),
        ("filters", ("conditions", ParamValue::Counts(vec![1, 25, 100])), "no filter of 10 conditions (Bradner 1989)"),
        ("filters", ("conditions", ParamValue::Counts(vec![1, 10])), "no filter of 25 conditions (RFC 2544"),
        ("filters", ("filter_at", ParamValue::Texts(vec!["ingress".into()])), "no filters at egress"),
        ("filters", size("64 128 256 512"), "fewer than 5 frame sizes"),
        ("idle_traffic", ("duration", secs(59.0)), "listening of 59 s instead of"),
    ];
    for (name, change, expected) in cases {
        let method = method(name);
        assert_eq!(method.plan(&params(method, true, &[])).deviations, Vec::<String>::new(), "{name}");
        let found = method.plan(&params(method, true, &[change])).deviations;
        assert!(found.len() == 1 && found[0].starts_with(expected), "{name}: {found:?}");
    }
}

#[test]
fn what_was_not_done_as_asked_is_a_deviation() {
    let deviations = |name: &str, mut bed: Fake, over: &[(&str, ParamValue)]| {
        let (outcome, _) = run(name, &mut bed, over);
        outcome.deviations
    };
    for name in ["throughput", "frame_loss_rate", "latency", "system_recovery", "forwarding_rate"] {
        assert_eq!(deviations(name, Fake::new(), &[size("64")]), Vec::<String>::new(), "{name}");
        let ceiling = Fake { ceiling: Some(FrameRate(400_000.0)), ..Fake::new() };
        let found = deviations(name, ceiling, &[size("64")]);
        assert!(found.iter().any(|d| d.contains("instead of line rate")), "{name}: {found:?}");
    }
    // A reduction of the load in the middle of the run.
    let found = deviations("throughput", Fake { unfit_above_pps: 800_000.0, ..Fake::new() }, &[size("64")]);
    assert!(found.iter().any(|d| d.contains("instead of line rate")), "{found:?}");
    // A search that does not have enough time.
    let found = deviations("throughput", Fake::new(), &[size("64"), ("search_duration_max", secs(1.0))]);
    assert_eq!(found, ["64 bytes: the search for the throughput ended before its goal was reached"]);
    // A load that the tester could not offer.
    let band = Fake { unfit_band_pps: (1_100_000.0, 1_300_000.0), ..Fake::new() };
    let found = deviations("frame_loss_rate", band, &[size("64")]);
    assert!(found.len() == 1 && found[0].contains("could not be offered validly"), "{found:?}");
}

#[test]
fn quick_runs_say_in_what_they_deviate_and_conformant_ones_have_nothing_to_say() {
    for method in METHODS {
        let name = method.spec().name;
        let conformant = method.plan(&params(*method, true, &[])).deviations;
        assert!(conformant.is_empty(), "{name}: {conformant:?}");
        let quick = method.plan(&params(*method, false, &[])).deviations;
        assert!(!quick.is_empty() || name == "tester_ceiling", "{name}");
        let [short, long] = [false, true].map(|conformant| method.plan(&params(*method, conformant, &[])).estimate(1));
        assert!(short > Duration::ZERO && long > short, "{name}: {short:?}, {long:?}");
    }
    let throughput = method("throughput").plan(&params(method("throughput"), false, &[])).deviations;
    assert!(throughput.iter().any(|d| d.contains("500 ms instead of 60 s")), "{throughput:?}");
    assert!(throughput.contains(&"wait for late frames of 200 ms instead of 2 s (RFC 2544 section 23 d)".to_owned()));
    // The wording of common deviations is the same in each test.
    for name in ["latency", "back_to_back", "system_recovery"] {
        let other = method(name).plan(&params(method(name), false, &[])).deviations;
        assert!(throughput.iter().all(|d| other.contains(d)), "{name}: {other:?}");
        let title = method(name).spec().title.to_lowercase();
        assert!(other.iter().all(|d| !d.to_lowercase().contains(&title)), "{other:?}");
    }
}
