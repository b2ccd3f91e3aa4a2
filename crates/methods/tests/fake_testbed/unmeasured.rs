//! A figure without a value reports that the router failed, or why it was not measured: the tester was unfit, or there
//! was too little time. Figures that need no throughput are measured without one.

use crate::common::{Fake, cell, method, params, rank, rows, run, secs, size, unmeasured};
use drophammer_methods::{Facts, Known, Seen, Setting, TestError, Testbed, Trial};
use drophammer_model::outcome::{Blame, Outcome, RankFigure};
use drophammer_model::pattern::PatternKey;
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::ParamValue;
use drophammer_model::trial::TrialSpec;
use std::time::Duration;

const LINE_64: f64 = 1e9 / (8.0 * 84.0);
const NO_THROUGHPUT: &str = "no throughput was found: the router loses frames at every load";

/// A bed with a router that behaves like another router while it has filters.
struct Filtered {
    plain: Fake,
    filtered: Fake,
    is_filtered: bool,
    /// Trials whose purpose contains this text are unfit.
    unfit: &'static str,
    /// Half of the frames of this size are lost, regardless of load and filter.
    lossy: &'static str,
}

impl Filtered {
    fn now(&mut self) -> &mut Fake {
        if self.is_filtered { &mut self.filtered } else { &mut self.plain }
    }
}

impl Testbed for Filtered {
    fn facts(&self) -> &Facts {
        self.plain.facts()
    }

    fn attempt(&mut self, trial: &Trial, number: u32) -> Result<Seen, TestError> {
        let spec = &trial.spec;
        if !self.unfit.is_empty() && spec.purpose.contains(self.unfit) {
            return Err(TestError::Unfit(vec!["host busy".into()]));
        }
        let lossy = spec.size.to_string() == self.lossy;
        let bed = self.now();
        let floor = bed.floor;
        if lossy {
            bed.floor = 0.5;
        }
        let seen = bed.attempt(trial, number);
        bed.floor = floor;
        seen
    }

    fn set(&mut self, setting: Setting<'_>) -> Result<(), TestError> {
        let Setting::Filters(lists) = setting else { panic!("{setting:?}") };
        self.is_filtered = !lists.is_empty();
        Ok(())
    }

    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        self.plain.settle(time)
    }

    fn known(&mut self) -> &mut Known {
        self.now().known()
    }

    fn ceiling(&self, pattern: &PatternKey) -> Option<FrameRate> {
        self.plain.ceiling(pattern)
    }

    fn progress(&mut self, _: &str) {}

    fn note(&mut self, _: &str) {}
}

/// The test with one filter of 10 conditions on this router; some trials are unfit.
fn filters(plain: Fake, filtered: Fake, unfit: &'static str, over: &[(&str, ParamValue)]) -> Outcome {
    let (outcome, end) = one_filter(&mut Filtered { plain, filtered, is_filtered: false, unfit, lossy: "" }, over);
    end.unwrap();
    outcome
}

/// Runs the test with one filter of 10 conditions.
fn one_filter(bed: &mut Filtered, over: &[(&str, ParamValue)]) -> (Outcome, Result<(), TestError>) {
    let method = method("filters");
    let conditions = ("conditions", ParamValue::Counts(vec![10]));
    let positions = ("permit", ParamValue::Texts(vec!["last".into()]));
    let over = [&[size("64"), conditions, positions][..], over].concat();
    let mut outcome = Outcome::default();
    let end = method.run(bed, &params(method, false, &over), &mut outcome);
    (outcome, end)
}

/// Keys of the figures about the router, and true for those that have a value.
fn figures(outcome: &Outcome) -> Vec<(&str, bool)> {
    let known = |rank: &&RankFigure| rank.missing.as_ref().is_none_or(|missing| missing.by == Blame::Dut);
    outcome.ranks.iter().filter(known).map(|rank| (rank.key.as_str(), rank.value.is_some())).collect()
}

const PPS: &str = "filters_64_10_pps";
const PERCENT: &str = "filters_64_10_percent";
const LATENCY: &str = "latency_filters_64_10_percent";
const LEAKED: &str = "filters_64_leaked";
const DENIED: &str = "filters_64_denied";

#[test]
fn filters_whose_search_has_no_result_have_no_figure_of_it() {
    let marked = |outcome: &Outcome, text: &str| {
        let marks = &rows(outcome)[1].marks;
        assert!(marks.iter().any(|mark| mark.contains(text)), "{marks:?}");
        assert_eq!(marks.iter().any(|mark| mark.contains("at every load")), text.contains("at every load"));
    };
    let all = [(PPS, true), (PERCENT, true), (LATENCY, true), (LEAKED, true), (DENIED, true)];
    assert_eq!(figures(&filters(Fake::new(), Fake::new(), "", &[])), all);
    // The router loses frames, so it failed.
    let outcome = filters(Fake::new(), Fake { floor: 0.5, ..Fake::new() }, "", &[]);
    marked(&outcome, "loses frames at every load");
    assert_eq!(figures(&outcome), [(PPS, false), (PERCENT, false), (LATENCY, true), (LEAKED, true), (DENIED, true)]);
    // The time is over before a load without loss has been found.
    let slow = Fake { capacity_pps: 500.0, ..Fake::new() };
    let fast = Fake { capacity_pps: 1e9, ..Fake::new() };
    let outcome = filters(fast, slow, "", &[("search_duration_max", secs(2.0))]);
    marked(&outcome, "not found within the time for its search");
    assert_eq!(figures(&outcome), [(LATENCY, true), (LEAKED, true), (DENIED, true)]);
    let reasons = unmeasured(&outcome);
    assert!(reasons[0].1.contains("not found within the time"), "{reasons:?}");
    assert!(reasons[1].0 == PERCENT && reasons[1].1.contains("only a lower bound"), "{reasons:?}");
    // The tester is unfit at a load in the middle, or at all loads.
    let unfit = Fake { unfit_band_pps: (0.0, 1_000_000.0), ..Fake::new() };
    let outcome = filters(Fake::new(), unfit, "", &[]);
    marked(&outcome, "the tester could not offer");
    assert!(figures(&outcome).is_empty() && unmeasured(&outcome).len() == 5, "{:?}", outcome.ranks);
    let unfit = Fake { unfit_above_pps: 0.0, ..Fake::new() };
    let outcome = filters(Fake::new(), unfit, "", &[]);
    marked(&outcome, "the search was stopped");
    assert!(figures(&outcome).is_empty() && rows(&outcome).len() == 2, "{:?}", outcome.ranks);
    assert_eq!(unmeasured(&outcome).len(), 5);
}

#[test]
fn filters_whose_trials_were_unfit_have_no_figure_of_them() {
    let without = |unfit, missing: &[&str]| {
        let outcome = filters(Fake::new(), Fake::new(), unfit, &[]);
        let found: Vec<&str> = figures(&outcome).into_iter().map(|(key, _)| key).collect();
        let all = [PPS, PERCENT, LATENCY, LEAKED, DENIED].into_iter().filter(|key| !missing.contains(key));
        assert_eq!(found, all.collect::<Vec<_>>(), "{unfit}");
        assert_eq!(unmeasured(&outcome).iter().map(|(key, _)| *key).collect::<Vec<_>>(), missing, "{unfit}");
    };
    without("latency, filters 64: 10", &[LATENCY]);
    without("latency, filters 64: none", &[LATENCY]);
    without("leaks, filters 64: 10", &[LEAKED, DENIED]);
    without("leaks, filters 64: none", &[]);
}

/// Shares of latencies at different loads are not compared.
#[test]
fn a_share_of_latency_has_the_load_of_its_trial() {
    let is_of_load = |outcome: &Outcome, key: &str| {
        let figure = outcome.ranks.iter().find(|rank| rank.key == key).unwrap();
        assert_eq!(figure.load_pps, cell(outcome, 1, "load_pps"), "{key}");
        assert!(figure.load_pps.is_some(), "{key}");
    };
    is_of_load(&filters(Fake::new(), Fake::new(), "", &[]), LATENCY);
    let over = [size("128"), ("headers", ParamValue::Texts(vec!["routing".into()]))];
    let (outcome, end) = run("extension_headers", &mut Fake::new(), &over);
    end.unwrap();
    is_of_load(&outcome, "latency_extension_headers_128_routing_percent");
}

#[test]
fn extension_headers_that_were_not_measured_have_no_figure() {
    let share = |chain: &str| format!("extension_headers_128_{chain}_percent");
    let latency = |chain: &str| format!("latency_extension_headers_128_{chain}_percent");
    let headers = |bed: &mut Fake| {
        let over = [size("128"), ("headers", ParamValue::Texts(vec!["routing".into(), "fragment".into()]))];
        let (outcome, end) = run("extension_headers", bed, &over);
        end.unwrap();
        outcome
    };
    let mut bed = Fake::new();
    let all = headers(&mut bed);
    let keys = |outcome: &Outcome| figures(outcome).iter().map(|(key, _)| (*key).to_owned()).collect::<Vec<_>>();
    assert_eq!(keys(&all), [share("routing"), latency("routing"), share("fragment"), latency("fragment")]);
    let latencies = |bed: &Fake| -> Vec<u64> {
        let of_latency = |(n, (spec, _)): (u64, &(TrialSpec, _))| spec.purpose.ends_with(": latency").then_some(n);
        (1..).zip(&bed.trials).filter_map(of_latency).collect()
    };
    // The latency trial with a routing header, or the one without headers, is unfit.
    for (at, missing) in [(1, vec![latency("routing")]), (0, vec![latency("routing"), latency("fragment")])] {
        let unfit = TestError::Unfit(vec!["late".into()]);
        let mut spoilt = Fake { fail: Some((latencies(&bed)[at], unfit)), ..Fake::new() };
        let outcome = headers(&mut spoilt);
        let wanted: Vec<String> = keys(&all).into_iter().filter(|key| !missing.contains(key)).collect();
        assert_eq!(keys(&outcome), wanted);
        let late: Vec<_> = missing.iter().map(|key| (key.as_str(), "late")).collect();
        assert_eq!(unmeasured(&outcome), late);
    }
    // The throughput with a routing header is not known; the throughput with a fragment header is.
    let (with_routing, _) = bed.trials.iter().find(|(spec, _)| spec.purpose.contains("routing")).unwrap();
    assert!(with_routing.purpose.contains("latency"));
    let key =
        bed.known.throughput.keys().find(|key| key.extensions.len() == 1 && key.extensions[0].word() == "routing");
    let mut spoilt = Fake::new();
    spoilt.known.failed.insert(key.unwrap().clone(), "the tester was late".into());
    assert_eq!(keys(&headers(&mut spoilt)), [share("fragment"), latency("fragment")]);
    // A router that loses frames with this header has failed.
    let mut lossy = Fake::new();
    lossy.known.throughput.insert(key.unwrap().clone(), None);
    let outcome = headers(&mut lossy);
    assert_eq!(keys(&outcome), keys(&all));
    assert_eq!((rank(&outcome, &share("routing")), rank(&outcome, &latency("routing"))), (Some(0.0), None));
}

#[test]
fn a_latency_that_the_clocks_of_hosts_hide_is_not_the_routers_failure() {
    let hidden = || Fake { hides_latency: true, ..Fake::new() };
    let check = |outcome: &Outcome| {
        let latency = |rank: &&RankFigure| rank.key.contains("latency");
        let (latencies, others): (Vec<&RankFigure>, Vec<&RankFigure>) = outcome.ranks.iter().partition(latency);
        assert!(!latencies.is_empty() && !others.is_empty(), "{:?}", outcome.ranks);
        for figure in latencies {
            let missing = figure.missing.as_ref().unwrap();
            assert!(missing.by == Blame::Beyond && missing.why.contains("clock"), "{figure:?}");
        }
        assert!(others.iter().all(|figure| figure.value.is_some()), "{others:?}");
    };
    check(&filters(hidden(), hidden(), "", &[]));
    let chain = ("headers", ParamValue::Texts(vec!["routing".into()]));
    let shares = ("ipv6_shares", ParamValue::Numbers(vec![15.0]));
    for (name, own) in [("extension_headers", chain), ("mixed_families", shares)] {
        let (outcome, end) = run(name, &mut hidden(), &[size("128"), own]);
        end.unwrap();
        check(&outcome);
    }
    let over = [("duration", secs(20.0)), ("interval", secs(1.0)), ("rate", ParamValue::Rate(FrameRate(1e3)))];
    let (outcome, end) = run("soak", &mut hidden(), &over);
    end.unwrap();
    check(&outcome);
    assert!(outcome.notes.iter().any(|note| note.contains("intervals have no latency")), "{:?}", outcome.notes);
}

#[test]
fn queries_that_travel_between_hosts_are_no_figures_of_the_router() {
    let mut bed = Fake { hides_latency: true, ..Fake::new() };
    let (outcome, end) = run("ping_delay", &mut bed, &[size("64")]);
    assert!(matches!(&end, Err(TestError::NotApplicable(why)) if why.contains("between these hosts")), "{end:?}");
    assert!(outcome.ranks.iter().all(|figure| figure.value.is_none()), "{:?}", outcome.ranks);
    let (outcome, end) = run("overload", &mut bed, &[size("64")]);
    end.unwrap();
    assert!(outcome.notes.iter().any(|note| note.contains("not queried over a port")), "{:?}", outcome.notes);
}

#[test]
fn a_flood_needs_no_throughput() {
    let flooded = |bed: &mut Fake, why: &str| {
        let (outcome, end) = run("overload", bed, &[size("64")]);
        assert_eq!((rows(&outcome).len(), cell(&outcome, 0, "throughput_pps")), (1, None), "{why}");
        assert_eq!((cell(&outcome, 0, "overload_pps"), cell(&outcome, 0, "flood_offered_pps").is_some()), (None, true));
        assert!(rows(&outcome)[0].marks.iter().any(|mark| mark.contains(why)), "{:?}", rows(&outcome)[0].marks);
        assert_eq!(figures(&outcome)[..2], [("flood_64_pps", true), ("flood_64_answered_percent", true)]);
        let overload = outcome.ranks.iter().find(|rank| rank.key == "overload_64_pps").unwrap();
        assert!(overload.missing.as_ref().unwrap().why.contains(why), "{overload:?}");
        assert_eq!(outcome.tables[1].rows.len(), 1, "whether it answers");
        (rank(&outcome, "flood_64_pps").unwrap(), end)
    };
    // A router that loses half of the frames at any load.
    let (rate, end) = flooded(&mut Fake { floor: 0.5, ..Fake::new() }, "loses frames at every load");
    assert_eq!((rate, end), (300_000.0, Ok(())));
    let mut bed = Fake::new();
    bed.known.failed.insert(crate::common::pattern("64"), "the time was over".into());
    assert_eq!(flooded(&mut bed, "the time was over"), (300_000.0, Ok(())));
    // No search is possible. The test reports that, and keeps the flood.
    let mut bed = Fake { unfit_band_pps: (0.0, f64::INFINITY), ..Fake::new() };
    let (rate, end) = flooded(&mut bed, "receive ring overflowed");
    assert!(rate == 300_000.0 && matches!(end, Err(TestError::Unfit(_))), "{end:?}");
}

#[test]
fn mixed_traffic_at_the_highest_load_needs_no_throughput() {
    let mixed = |bed: &mut Fake| {
        let over = [size("128"), ("ipv6_shares", ParamValue::Numbers(vec![15.0]))];
        let (outcome, end) = run("mixed_families", bed, &over);
        end.unwrap();
        outcome
    };
    let mut bed = Fake::new();
    assert_eq!(mixed(&mut bed).ranks.len(), 6);
    let mut later = Fake::new();
    for key in bed.known.throughput.into_keys() {
        later.known.failed.insert(key, "the time was over".into());
    }
    let outcome = mixed(&mut later);
    assert_eq!(rows(&outcome).len(), 2);
    for row in 0..2 {
        assert_eq!(cell(&outcome, row, "throughput_pps"), None);
        assert!(cell(&outcome, row, "received_pps").unwrap() < cell(&outcome, row, "sent_pps").unwrap());
        assert!(rows(&outcome)[row].marks[0].ends_with("the time was over"), "{:?}", rows(&outcome)[row].marks);
    }
    let loss = ["mixed_128_0_loss_percent", "mixed_128_15_loss_percent"];
    assert_eq!(figures(&outcome), loss.map(|key| (key, true)));
    assert!(unmeasured(&outcome).iter().all(|(_, why)| why.ends_with("the time was over")), "{:?}", outcome.ranks);
    // A router that loses frames at every load has a throughput of 0.
    let outcome = mixed(&mut Fake { floor: 0.5, ..Fake::new() });
    assert_eq!(rank(&outcome, "mixed_128_15_throughput_pps"), Some(0.0));
}

#[test]
fn back_to_back_says_where_the_router_is_faster_than_the_tester() {
    let tested = |bed: &mut Fake| {
        let (outcome, end) = run("back_to_back", bed, &[size("64"), ("max_burst_duration", secs(3.0))]);
        end.unwrap();
        assert!(figures(&outcome).is_empty() && unmeasured(&outcome).len() == 1, "{:?}", outcome.ranks);
        let empty = ["average_frames", "max_frames", "stdev_frames", "implied_buffer_s", "corrected_buffer_s"];
        assert_eq!(empty.map(|column| cell(&outcome, 0, column)), [None; 5]);
        assert_eq!(cell(&outcome, 0, "searches"), Some(0.0));
        // Three seconds at line rate, regardless of what the tester reaches.
        assert_eq!(cell(&outcome, 0, "theoretical_frames"), Some((3.0 * LINE_64).floor()));
        (cell(&outcome, 0, "max_burst_frames").unwrap(), rows(&outcome)[0].marks.clone())
    };
    let fast = || Fake { capacity_pps: 1e9, ..Fake::new() };
    assert_eq!(tested(&mut fast()), ((3.0 * LINE_64).floor(), vec!["faster than the tester".to_owned()]));
    let (most, marks) = tested(&mut Fake { ceiling: Some(FrameRate(1e6)), ..fast() });
    assert_eq!((most, marks.len(), marks[0].as_str()), (2_850_000.0, 2, "faster than the tester"));
    assert!(marks[1].contains("below line rate"), "{marks:?}");
    // The other sizes have their bursts.
    let mut bed = Fake { capacity_pps: 1_000_000.0, buffer: 100, ..Fake::new() };
    let (outcome, end) = run("back_to_back", &mut bed, &[size("64 1518")]);
    end.unwrap();
    assert!(cell(&outcome, 0, "average_frames").is_some() && cell(&outcome, 1, "average_frames").is_none());
    assert_eq!((figures(&outcome).len(), unmeasured(&outcome).len()), (1, 1));
}

/// A test that does not apply has no verdicts, so this router would pass.
#[test]
fn a_router_that_loses_frames_at_every_load_fails_the_tests_that_need_a_throughput() {
    for name in ["latency", "packet_order", "system_recovery"] {
        let mut bed = Fake::new();
        bed.known.throughput.insert(crate::common::pattern("64"), None);
        bed.known.throughput.insert(crate::common::pattern("1518"), Some(FrameRate(50_000.0)));
        let of = (name == "packet_order").then(|| ("load_of", ParamValue::Text("throughput".into())));
        let over: Vec<_> = of.into_iter().chain([size("64 1518")]).collect();
        let (outcome, end) = run(name, &mut bed, &over);
        assert_eq!(end, Err(TestError::Failed(NO_THROUGHPUT.into())), "{name}");
        let said = format!("64 bytes not tested: {NO_THROUGHPUT}");
        assert!(outcome.notes.contains(&said), "{name}: {:?}", outcome.notes);
        assert!(outcome.deviations.contains(&"64 bytes: not tested".to_owned()), "{name}: {:?}", outcome.deviations);
        // The other size still has results.
        assert!(!rows(&outcome).is_empty(), "{name}");
        assert!(bed.trials.iter().all(|(spec, _)| spec.size.to_string() == "1518"), "{name}");
    }
    let (outcome, end) = run("soak", &mut Fake { floor: 0.5, ..Fake::new() }, &[]);
    assert_eq!(end, Err(TestError::Failed(format!("{NO_THROUGHPUT}; give `rate`"))));
    assert!(outcome.tables.is_empty());
    // A load that is stated in the suite needs no throughput.
    let mut bed = Fake::new();
    bed.known.throughput.insert(crate::common::pattern("64"), None);
    let at = ("compare_at", ParamValue::Rate(FrameRate(1_000.0)));
    run("latency", &mut bed, &[size("64"), at]).1.unwrap();
}

/// The same for the test that does its own search, first without filters.
#[test]
fn a_router_that_loses_frames_at_every_load_fails_the_test_of_filters() {
    let (plain, filtered) = (Fake::new(), Fake::new());
    let mut bed = Filtered { plain, filtered, is_filtered: false, unfit: "", lossy: "64" };
    let (outcome, end) = one_filter(&mut bed, &[size("64 128")]);
    assert_eq!(end, Err(TestError::Failed(NO_THROUGHPUT.into())));
    let said = format!("64 bytes not tested: {NO_THROUGHPUT}");
    assert!(outcome.notes.contains(&said), "{:?}", outcome.notes);
    assert!(outcome.deviations.contains(&"64 bytes: not tested".to_owned()), "{:?}", outcome.deviations);
    // With the filter no throughput is found either. The other size still has results.
    let of_128 = [
        "filters_128_10_pps",
        "filters_128_10_percent",
        "latency_filters_128_10_percent",
        "filters_128_leaked",
        "filters_128_denied",
    ];
    let wanted: Vec<_> = std::iter::once((PPS, false)).chain(of_128.map(|key| (key, true))).collect();
    assert_eq!(figures(&outcome), wanted);
}
