//! Tests that end before their last trial. A router that died must not look like one that survived, and the missing
//! trials may be those with the worst result.

use crate::common::{Fake, as_fake, cell, method, params, rank, rows, run, secs, size};
use drophammer_methods::{Known, Seen, TestError, Testbed, Trial};
use drophammer_model::outcome::Outcome;
use drophammer_model::pattern::ExtensionHeader;
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::ParamValue;
use drophammer_model::trial::Family;
use std::time::Duration;

fn late() -> TestError {
    TestError::Unfit(vec!["late".into()])
}

fn died() -> TestError {
    TestError::DutDied("killed by signal 11".into())
}

/// Keys of the figures.
fn keys(outcome: &Outcome) -> Vec<&str> {
    outcome.ranks.iter().map(|rank| rank.key.as_str()).collect()
}

/// A bed on which the user stops the test in the pause after the first trial.
struct Stopped(Fake);

impl Testbed for Stopped {
    as_fake!(0);

    fn attempt(&mut self, trial: &Trial, number: u32) -> Result<Seen, TestError> {
        self.0.attempt(trial, number)
    }

    fn settle(&mut self, _: Duration) -> Result<(), TestError> {
        Err(TestError::Interrupted)
    }
}

/// The outcome of a test that is stopped in the pause after its first trial. Its throughputs are `known`.
fn stopped(name: &str, known: Known, over: &[(&str, ParamValue)]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut bed = Stopped(Fake { known, ..Fake::new() });
    let end = method(name).run(&mut bed, &params(method(name), false, over), &mut outcome);
    assert_eq!(end, Err(TestError::Interrupted));
    outcome
}

#[test]
fn a_router_that_dies_in_a_soak_has_failed() {
    let soaked = |error: Option<TestError>| {
        let mut bed = Fake { fail: error.map(|error| (10, error)), ..Fake::new() };
        let over = [("duration", secs(20.0)), ("interval", secs(1.0)), ("rate", ParamValue::Rate(FrameRate(1e3)))];
        let (outcome, _) = run("soak", &mut bed, &over);
        let figures = ["loss", "rate_growth", "latency_growth"];
        (rows(&outcome).len(), figures.map(|what| rank(&outcome, &format!("soak_{what}_percent"))))
    };
    assert_eq!(soaked(None), (20, [Some(0.0); 3]));
    // An invalid interval is left out, and a stop keeps the results so far.
    assert_eq!(soaked(Some(TestError::Interrupted)), (9, [Some(0.0); 3]));
    assert_eq!(soaked(Some(late())).1, [Some(0.0); 3]);
    // Nine intervals without loss do not show that the router survives.
    assert_eq!(soaked(Some(died())), (9, [None; 3]));
}

#[test]
fn a_router_that_dies_in_an_overload_does_not_recover() {
    let recovered = |error: TestError| {
        let mut bed = Fake { recovery_ns: 1_000_000, fail: Some((2, error)), ..Fake::new() };
        bed.known.throughput.insert(crate::common::pattern("64"), Some(FrameRate(300_000.0)));
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
    // The first trials use 64 bytes in IPv4 and IPv6, the next ones 128 bytes.
    for trial in [1, 2] {
        assert_eq!(pinged(Some((trial, late()))), (figures(&[128]), Err(late())));
    }
    assert_eq!(pinged(Some((4, late()))), (figures(&[64]), Err(late())));
    assert_eq!(pinged(Some((4, died()))), (figures(&[64]), Err(died())));
}

#[test]
fn a_chain_that_kills_the_router_costs_the_others_nothing() {
    let over = [size("128")];
    let mut whole = Fake::new();
    let (all, end) = run("extension_headers", &mut whole, &over);
    assert_eq!((rows(&all).len(), end), (5, Ok(())));
    // Without headers, with destination options and with a routing header, the throughput is known. So the first trial
    // has a fragment header.
    let mut known = whole.known.clone();
    known.throughput.retain(|key, _| !key.extensions.contains(&ExtensionHeader::Fragment));
    assert_eq!(known.throughput.len(), 3);
    let shares = ["destination_options", "routing"].map(|chain| format!("extension_headers_128_{chain}_percent"));
    for error in [died(), TestError::Interrupted] {
        let mut bed = Fake { known: known.clone(), fail: Some((1, error.clone())), ..Fake::new() };
        let (outcome, end) = run("extension_headers", &mut bed, &over);
        assert_eq!((rows(&outcome).len(), bed.asked, end), (3, 1, Err(error)));
        assert_eq!((keys(&outcome), outcome.plots[0].series[0].points.len()), (vec![&*shares[0], &*shares[1]], 3));
    }
    // The first trial is the trial of latency without headers.
    let outcome = stopped("extension_headers", whole.known.clone(), &over);
    let latencies: Vec<bool> = (0..5).map(|row| cell(&outcome, row, "latency_p50_us").is_some()).collect();
    assert_eq!((latencies, keys(&outcome).len()), (vec![true, false, false, false, false], 4));
}

#[test]
fn a_throughput_stays_when_the_router_dies_at_the_highest_load() {
    let over = [size("128"), ("ipv6_shares", ParamValue::Numbers(vec![15.0]))];
    let mut whole = Fake::new();
    run("mixed_families", &mut whole, &over).1.unwrap();
    let (throughput, loss) = ("mixed_128_0_throughput_pps", "mixed_128_0_loss_percent");
    // The throughputs are known, so the first trial is the trial of pure IPv4 at the highest load.
    for error in [died(), late()] {
        let mut bed = Fake { known: whole.known.clone(), fail: Some((1, error.clone())), ..Fake::new() };
        let (outcome, end) = run("mixed_families", &mut bed, &over);
        assert_eq!((keys(&outcome)[0], end), (throughput, Err(error)));
        assert!(rank(&outcome, throughput).is_some() && !keys(&outcome).contains(&loss), "{:?}", outcome.ranks);
    }
    let outcome = stopped("mixed_families", whole.known.clone(), &over);
    assert_eq!((rows(&outcome).len(), keys(&outcome)), (1, vec![throughput, loss]));
}
