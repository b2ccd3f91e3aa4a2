//! Checks that tests run as many trials as they announce.

use crate::common::{Fake, method, params, size};
use drophammer_methods::TrialCount;
use drophammer_model::outcome::Outcome;
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::ParamValue;

/// Number of trials that a test runs on this bed, and the number that it announces, with `searches` unknown
/// throughputs.
fn counted(
    name: &str,
    bed: &mut Fake,
    conformant: bool,
    over: &[(&str, ParamValue)],
    searches: usize,
) -> (usize, TrialCount) {
    let (method, before) = (method(name), bed.trials.len());
    let params = params(method, conformant, over);
    let said = method.plan(&params).trial_count(searches);
    method.run(bed, &params, &mut Outcome::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    (bed.trials.len() - before, said)
}

/// True if the number is about right: a search on an unusual device may need fewer or more trials.
fn is_about(found: usize, said: TrialCount) -> bool {
    said.most.is_none() && found >= said.least && found * 3 >= said.about && found <= said.about * 3
}

#[test]
fn a_count_that_parameters_fix_is_exact() {
    for conformant in [false, true] {
        let mut bed = Fake { capacity_pps: 60_000.0, buffer: 1_000, beyond: 0.5, ..Fake::new() };
        let (found, said) = counted("throughput", &mut bed, conformant, &[], 0);
        assert!(is_about(found, said), "throughput: {found}, not {said}");
        for name in ["forwarding_rate", "latency", "system_recovery", "counter_accuracy", "ping_delay"] {
            let (found, said) = counted(name, &mut bed, conformant, &[], 0);
            assert_eq!(said, TrialCount::exactly(found), "{name}");
        }
        let at = |pps: f64| [("processor_time_at", ParamValue::Rate(FrameRate(pps)))];
        let (found, said) = counted("forwarding_rate", &mut bed, conformant, &at(1_000.0), 0);
        assert_eq!(said, TrialCount::between(found / 2, found), "with processor time");
        // No port can carry this load.
        let (found, said) = counted("forwarding_rate", &mut bed, conformant, &at(2e7), 0);
        assert_eq!(said, TrialCount::between(found, 2 * found), "without processor time");
        // A router without a throughput gets only the flood.
        let (found, said) = counted("overload", &mut bed, conformant, &[], 0);
        assert_eq!(said, TrialCount::between(found / 3, found), "overload");
        let (found, said) = counted("frame_loss_rate", &mut bed, conformant, &[], 0);
        assert!(said.least < found && Some(found) <= said.most, "{found}, not {said}");
        let (found, said) = counted("back_to_back", &mut bed, conformant, &[], 0);
        assert!(is_about(found, said), "back_to_back: {found}, not {said}");
    }
}

#[test]
fn a_search_comes_first_where_no_test_has_found_the_throughput() {
    let mut bed = Fake { capacity_pps: 60_000.0, ..Fake::new() };
    let over = [size("64 512"), ("loads", ParamValue::Numbers(vec![10.0, 50.0, 100.0]))];
    let (found, said) = counted("latency", &mut bed, false, &over, 2);
    assert_eq!((said.least, said.most), (6, None));
    assert!(said.about > 6 + 2 * 5 && is_about(found, said), "{found}, not {said}");
    let (found, said) = counted("latency", &mut bed, false, &over, 0);
    assert_eq!((found, said), (6, TrialCount::exactly(6)));
}

#[test]
fn only_frames_that_can_be_are_counted() {
    let mut bed = Fake { capacity_pps: 60_000.0, ..Fake::new() };
    let sizes = [size("80 imix 128")];
    let (found, said) = counted("ping_delay", &mut bed, false, &sizes, 0);
    assert_eq!((found, said), (2, TrialCount::exactly(2)), "an echo request has one size");
    let (found, said) = counted("counter_accuracy", &mut bed, false, &sizes, 0);
    assert_eq!((found, said), (6, TrialCount::exactly(6)), "octets are known of one size");
    // With 80 bytes there is no room for any header; with 128 bytes there is room for four chains of headers.
    let (found, said) = counted("extension_headers", &mut bed, false, &[size("80 128")], 6);
    assert_eq!(said.least, 1 + 5 + 2 * 3);
    assert!(is_about(found, said), "{found}, not {said}");
    let (found, said) = counted("extension_headers", &mut bed, false, &[size("80 128")], 0);
    assert_eq!((found, said), (12, TrialCount::exactly(12)));
}

#[test]
fn a_device_without_loss_needs_the_least() {
    let mut bed = Fake { capacity_pps: 1e9, ..Fake::new() };
    let (found, said) = counted("frame_loss_rate", &mut bed, true, &[size("64 512")], 0);
    assert_eq!((found, said), (4, TrialCount::between(4, 20)));
}

#[test]
fn tests_know_their_trials() {
    for (name, text) in [
        ("idle_traffic", "no trials"),
        ("bgp_table_dump", "no trials"),
        ("fixed_rate", "1 trial"),
        ("soak", "up to 24 trials"),
        ("error_frames", "29 to 30 trials"),
        ("rib_fib_capacity", "about 2 trials"),
        ("route_flap", "3 or more trials"),
        ("reset", "3 trials"),
    ] {
        let params = params(method(name), false, &[]);
        assert_eq!(method(name).plan(&params).trial_count(0).to_string(), text, "{name}");
    }
    let over_routes = params(method("latency"), false, &[("routes", ParamValue::Count(1_000))]);
    assert_eq!(method("latency").plan(&over_routes).trial_count(0).to_string(), "12 or more trials");
}
