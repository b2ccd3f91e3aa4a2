//! Tests that end before their last trial. A router that died is not one that survived, and the trials that are missing
//! may be those with the worst result.

mod common;

use common::{Fake, cell, rank, rows, run, secs, size};
use drophammer_methods::TestError;
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::ParamValue;
use drophammer_model::trial::Family;

fn late() -> TestError {
    TestError::Unfit(vec!["late".into()])
}

fn died() -> TestError {
    TestError::DutDied("killed by signal 11".into())
}

#[test]
fn a_router_that_dies_in_a_soak_has_failed() {
    let soaked = |error: Option<TestError>| {
        let mut bed = Fake { fail: error.map(|error| (10, error)), ..Fake::new() };
        let over = [("duration", secs(20.0)), ("interval", secs(1.0)), ("rate", ParamValue::Rate(FrameRate(1e3)))];
        let (outcome, _) = run("soak", &mut bed, &over);
        (rows(&outcome).len(), ["loss", "latency_growth"].map(|what| rank(&outcome, &format!("soak_{what}_percent"))))
    };
    assert_eq!(soaked(None), (20, [Some(0.0); 2]));
    // An invalid interval is left out, and a stop keeps the results so far.
    assert_eq!(soaked(Some(TestError::Interrupted)), (9, [Some(0.0); 2]));
    assert_eq!(soaked(Some(late())).1, [Some(0.0); 2]);
    // Nine intervals without loss are not those of a router that survives.
    assert_eq!(soaked(Some(died())), (9, [None; 2]));
}

#[test]
fn a_router_that_dies_in_an_overload_does_not_recover() {
    let recovered = |error: TestError| {
        let mut bed = Fake { recovery_ns: 1_000_000, fail: Some((2, error)), ..Fake::new() };
        bed.known.throughput.insert(common::pattern("64"), Some(FrameRate(300_000.0)));
        let (outcome, end) = run("system_recovery", &mut bed, &[size("64"), ("repeats", ParamValue::Count(3))]);
        assert!(end.is_err());
        assert!(cell(&outcome, 0, "recovery_ms").is_some() && cell(&outcome, 0, "trials") == Some(1.0));
        rank(&outcome, "system_recovery_64_ms")
    };
    assert!(recovered(TestError::Interrupted).is_some());
    assert!(recovered(late()).is_some());
    assert_eq!(recovered(died()), None);
}

#[test]
fn counters_that_agree_in_a_part_of_the_trials_have_no_figure() {
    let counted = |fail: Option<(u64, TestError)>| {
        let mut bed = Fake { fail, ..Fake::new() };
        let off = ParamValue::Flag(false);
        let over = [size("64 128"), ("overload", off.clone()), ("discard", off)];
        let (outcome, end) = run("counter_accuracy", &mut bed, &over);
        assert!(!rows(&outcome).is_empty());
        let figures: Vec<Option<f64>> = outcome.ranks.iter().map(|rank| rank.value).collect();
        let passes: Vec<bool> = outcome.verdicts.iter().map(|verdict| verdict.pass).collect();
        (figures, passes, end)
    };
    assert_eq!(counted(None), (vec![Some(0.0)], vec![true], Ok(())));
    assert_eq!(counted(Some((2, late()))), (vec![], vec![], Err(late())));
}

#[test]
fn the_slowest_ip_version_is_known_only_if_each_was_measured() {
    let pinged = |fail: Option<(u64, TestError)>| {
        let mut bed = Fake { fail, ..Fake::new() };
        let families = ("families", ParamValue::Families(vec![Family::Ipv4, Family::Ipv6]));
        let (outcome, end) = run("ping_delay", &mut bed, &[size("64 128"), families]);
        let keys: Vec<String> = outcome.ranks.into_iter().map(|rank| rank.key).collect();
        (keys, end)
    };
    let figures = |sizes: &[u16]| -> Vec<String> {
        let keys = ["ping_delay_{size}_us", "ping_answer_{size}_us", "ping_answered_{size}_percent"];
        sizes.iter().flat_map(|size| keys.map(|key| key.replace("{size}", &size.to_string()))).collect()
    };
    assert_eq!(pinged(None), (figures(&[64, 128]), Ok(())));
    // The trials are those of 64 bytes in IPv4 and IPv6, then those of 128 bytes.
    for trial in [1, 2] {
        assert_eq!(pinged(Some((trial, late()))), (figures(&[128]), Err(late())));
    }
    assert_eq!(pinged(Some((4, late()))), (figures(&[64]), Err(late())));
    assert_eq!(pinged(Some((4, died()))), (figures(&[64]), Err(died())));
}
