//! The tests `overload` and `flood`: rates that are only lower bounds, and floods that the tester cannot offer.

use crate::common::{Fake, any_cell, as_fake, method, params, pattern, rows, run, size, unmeasured};
use drophammer_methods::{LowerBound, Seen, TestError, Testbed, Trial};
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::ParamValue;
use std::time::Duration;

/// What `overload` reports as a lower bound, the marks of its row, and whether the tester and the suite limited the
/// rate at 25 % more.
fn overloaded(bed: &mut Fake, more: &[(&'static str, ParamValue)]) -> (String, String, [bool; 2]) {
    let over = [&[size("64")][..], more].concat();
    let (outcome, end) = run("overload", bed, &over);
    end.unwrap();
    let cell = any_cell(&outcome, 0, "at_least");
    let at_least = if let Cell::Text(text) = cell { text.clone() } else { String::new() };
    let figure = outcome.ranks.iter().find(|figure| figure.key == "overload_64_pps").unwrap();
    (at_least, rows(&outcome)[0].marks.join("; "), [figure.tester_limited, figure.capped])
}

#[test]
fn a_load_above_a_lower_bound_may_be_no_overload() {
    let found = |at_least: &str, marks: &str, limits| (at_least.to_owned(), marks.to_owned(), limits);
    assert_eq!(overloaded(&mut Fake::new(), &[]), found("", "", [false; 2]));
    let most = || ("max_load", ParamValue::Rate(FrameRate(100_000.0)));
    let mut bed = Fake { capacity_pps: 400_000.0, ..Fake::new() };
    let capped = found("throughput, +25 %", "limited by max_load", [false, true]);
    assert_eq!(overloaded(&mut bed, &[most()]), capped);
    // A test without a highest load still uses the bound.
    assert_eq!(overloaded(&mut bed, &[]), capped);
    // At 25 % more the router loses frames, so the rate there is its own limit.
    let mut bed = Fake { capacity_pps: 110_000.0, ..Fake::new() };
    assert_eq!(overloaded(&mut bed, &[most()]), found("throughput", "limited by max_load", [false; 2]));
    let mut bed = Fake::new();
    bed.known.throughput.insert(pattern("64"), Some(FrameRate(200_000.0)));
    bed.known.bounds.insert(pattern("64"), LowerBound::Unfinished);
    let early = "tester-limited: the search for the throughput ended early";
    assert_eq!(overloaded(&mut bed, &[]), found("throughput, +25 %", early, [true, false]));
}

/// A tester that cannot offer floods whose purpose contains this text.
struct Tester {
    inner: Fake,
    unfit: Option<&'static str>,
}

impl Testbed for Tester {
    as_fake!(inner);

    fn attempt(&mut self, trial: &Trial, number: u32) -> Result<Seen, TestError> {
        if self.unfit.is_some_and(|what| trial.spec.purpose.contains(what)) {
            return Err(TestError::Unfit(vec!["late".into()]));
        }
        self.inner.attempt(trial, number)
    }

    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        self.inner.settle(time)
    }
}

#[test]
fn a_size_without_one_of_its_floods_is_not_finished() {
    let flooded = |unfit: Option<&'static str>| {
        let mut bed = Tester { inner: Fake::new(), unfit };
        let (method, mut outcome) = (method("flood"), Outcome::default());
        let end = method.run(&mut bed, &params(method, false, &[size("64")]), &mut outcome);
        (rows(&outcome).len(), outcome.ranks.len(), unmeasured(&outcome).len(), end)
    };
    let late = || Err(TestError::Unfit(vec!["late".into()]));
    assert_eq!(flooded(None), (3, 3, 0, Ok(())));
    assert_eq!(flooded(Some(" to own")), (2, 3, 1, late()));
    assert_eq!(flooded(Some("flood 64")), (0, 3, 3, late()));
}
