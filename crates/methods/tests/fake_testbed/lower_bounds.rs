//! Throughputs that are only lower bounds are not the router's limit. The cause is `max_load`, the tester, or a search
//! that ended early.

use crate::common::{Fake, cell, pattern, rank, rows, run, size};
use drophammer_methods::LowerBound;
use drophammer_model::outcome::{Outcome, RankFigure};
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::ParamValue;

/// The suite's highest load.
fn most() -> (&'static str, ParamValue) {
    ("max_load", ParamValue::Rate(FrameRate(100_000.0)))
}

/// Corrected buffer time, and the marks of its row.
fn buffer_of(outcome: &Outcome) -> (Option<f64>, String) {
    assert!(cell(outcome, 0, "implied_buffer_s").is_some() && rank(outcome, "back_to_back_64_frames").is_some());
    (cell(outcome, 0, "corrected_buffer_s"), rows(outcome)[0].marks.join("; "))
}

#[test]
fn a_buffer_does_not_follow_from_a_lower_bound() {
    let router = || Fake { capacity_pps: 800_000.0, buffer: 2_048, ..Fake::new() };
    let fills_s = 2_048.0 / 1_488_095.0;
    let is_right = |(buffer_s, marks): (Option<f64>, String)| {
        marks.is_empty() && buffer_s.is_some_and(|s| (s / fills_s - 1.0).abs() < 0.1)
    };
    let buffer = |bed: &mut Fake, over: &[(&str, ParamValue)]| {
        let (outcome, end) = run("back_to_back", bed, over);
        end.unwrap();
        buffer_of(&outcome)
    };
    assert!(is_right(buffer(&mut router(), &[size("64")])));
    let mut bed = router();
    let (buffer_s, marks) = buffer(&mut bed, &[size("64"), most()]);
    assert!(buffer_s.is_none() && marks.contains("limited by max_load"), "{buffer_s:?} {marks}");
    // A later test without a highest load uses this bound too, until a test has found the throughput.
    let (buffer_s, marks) = buffer(&mut bed, &[size("64")]);
    assert!(buffer_s.is_none() && marks.contains("limited by max_load"), "{buffer_s:?} {marks}");
    run("throughput", &mut bed, &[size("64")]).1.unwrap();
    assert!(is_right(buffer(&mut bed, &[size("64")])));
    for (bound, mark) in [(LowerBound::Tester, "tester-limited"), (LowerBound::Unfinished, "ended early")] {
        let mut bed = router();
        bed.known.throughput.insert(pattern("64"), Some(FrameRate(500_000.0)));
        bed.known.bounds.insert(pattern("64"), bound);
        let (buffer_s, marks) = buffer(&mut bed, &[size("64")]);
        assert!(buffer_s.is_none() && marks.contains(mark), "{buffer_s:?} {marks}");
    }
}

#[test]
fn a_latency_at_a_share_of_a_lower_bound_says_so() {
    let latency = |more: &[(&'static str, ParamValue)]| {
        let over = [&[size("64"), ("loads", ParamValue::Numbers(vec![50.0]))][..], more].concat();
        let (outcome, end) = run("latency", &mut Fake::new(), &over);
        end.unwrap();
        (rows(&outcome)[0].marks.join("; "), outcome.ranks[0].clone())
    };
    assert_eq!(latency(&[]).0, "");
    let (marks, figure) = latency(&[most()]);
    assert_eq!(marks, "share of a throughput that is only a lower bound");
    // The figure is exact, and is compared at its load.
    assert!(!figure.tester_limited && !figure.capped, "{figure:?}");
    assert!(figure.load_pps.is_some_and(|pps| (pps / 50_000.0 - 1.0).abs() < 0.01), "{figure:?}");
}

#[test]
fn a_throughput_of_mixed_traffic_says_what_limited_it() {
    let mixed = |bed: &mut Fake, more: &[(&'static str, ParamValue)]| {
        let over = [&[size("128"), ("ipv6_shares", ParamValue::Numbers(vec![15.0]))][..], more].concat();
        let (outcome, end) = run("mixed_families", bed, &over);
        end.unwrap();
        let figure = |share: u32| -> RankFigure {
            let key = format!("mixed_128_{share}_throughput_pps");
            outcome.ranks.iter().find(|figure| figure.key == key).unwrap().clone()
        };
        let limits = [0, 15].map(|share| (figure(share).capped, figure(share).tester_limited));
        let marks: Vec<String> = rows(&outcome).iter().flat_map(|row| row.marks.clone()).collect();
        (limits, marks.join("; "))
    };
    let exact = ([(false, false); 2], String::new());
    assert_eq!(mixed(&mut Fake::new(), &[]), exact);
    let mut bed = Fake::new();
    let capped = ([(true, false); 2], "limited by max_load; limited by max_load".to_owned());
    assert_eq!(mixed(&mut bed, &[most()]), capped);
    // A test with a higher load still uses these bounds.
    assert_eq!(mixed(&mut bed, &[]), capped);
    for bound in bed.known.bounds.values_mut() {
        *bound = LowerBound::Unfinished;
    }
    let (limits, marks) = mixed(&mut bed, &[]);
    assert_eq!(limits, [(false, true); 2]);
    assert!(marks.starts_with("tester-limited: the search for the throughput ended early"), "{marks}");
}

#[test]
fn a_share_with_extension_headers_says_what_limited_it() {
    let headers = |bed: &mut Fake, more: &[(&'static str, ParamValue)]| {
        let chain = ("headers", ParamValue::Texts(vec!["routing".into()]));
        let over = [&[size("128"), chain][..], more].concat();
        let (outcome, end) = run("extension_headers", bed, &over);
        end.unwrap();
        outcome
    };
    let limits = |outcome: &Outcome| -> Option<(bool, bool)> {
        let share = outcome.ranks.iter().find(|figure| figure.key == "extension_headers_128_routing_percent");
        share.filter(|figure| figure.value.is_some()).map(|figure| (figure.capped, figure.tester_limited))
    };
    let mut bed = Fake::new();
    assert_eq!(limits(&headers(&mut bed, &[])), Some((false, false)));
    // If only the throughput with headers is a lower bound, the share is also a lower bound.
    let with = bed.known.throughput.keys().find(|key| !key.extensions.is_empty()).unwrap().clone();
    bed.known.bounds.insert(with, LowerBound::MaxLoad);
    let outcome = headers(&mut bed, &[]);
    assert_eq!(limits(&outcome), Some((true, false)));
    assert_eq!([0, 1].map(|row| rows(&outcome)[row].marks.join("; ")), ["", "limited by max_load"]);
    // A lower bound has no share.
    let outcome = headers(&mut Fake::new(), &[most()]);
    assert_eq!((limits(&outcome), cell(&outcome, 1, "of_baseline_percent")), (None, None));
    for row in rows(&outcome) {
        assert_eq!(row.marks.first().map(String::as_str), Some("limited by max_load"));
    }
}
