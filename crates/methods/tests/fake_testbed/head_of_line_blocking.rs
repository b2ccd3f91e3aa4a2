//! Head-of-line blocking on eight ports, in two blocks whose sources are held back differently.

use crate::common::{Fake, as_fake, cell, method, params, rows, size};
use drophammer_methods::{Facts, PortView, Seen, TestError, Testbed, Trial};
use drophammer_model::outcome::{Cell, Outcome};
use std::time::Duration;

/// A router that forwards everything. Under congestion it holds back the sources of the second block to three quarters
/// of their load.
struct OneHeldBack(Fake);

impl OneHeldBack {
    fn new() -> OneHeldBack {
        let bed = Fake::new();
        let port = |n: u32| PortView { name: format!("p{n}"), ..bed.facts.ports[0].clone() };
        let facts = Facts { ports: (1..=8).map(port).collect(), ..Facts::default() };
        OneHeldBack(Fake { facts, capacity_pps: 1e9, ..Fake::new() })
    }
}

impl Testbed for OneHeldBack {
    as_fake!(0);

    fn attempt(&mut self, trial: &Trial, number: u32) -> Result<Seen, TestError> {
        let mut seen = self.0.attempt(trial, number)?;
        let result = &mut seen.result;
        if trial.spec.purpose.ends_with(": with congestion") {
            for group in result.groups.iter_mut().filter(|group| ["to p7", "to p8"].contains(&group.group.as_str())) {
                group.offered = group.offered * 3 / 4;
                group.received = group.offered;
            }
        }
        Ok(seen)
    }
    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        self.0.settle(time)
    }
}

#[test]
fn each_block_has_the_load_and_the_backpressure_of_its_own_sources() {
    let (mut bed, mut outcome) = (OneHeldBack::new(), Outcome::default());
    let test = method("head_of_line_blocking");
    test.run(&mut bed, &params(test, false, &[size("64")]), &mut outcome).unwrap();
    let backpressure = |row: usize| {
        let Some(Cell::Text(text)) = rows(&outcome)[row].cells.last() else { panic!("{:?}", rows(&outcome)[row]) };
        text.as_str()
    };
    assert_eq!(rows(&outcome).len(), 2);
    assert!(backpressure(0).starts_with("no: no frame was lost, because buffers held them all"), "{}", backpressure(0));
    assert_eq!(backpressure(1), "yes: the sources were held back to 75.0 % of their load");
    for (row, share) in [(0, 1.0), (1, 0.75)] {
        let at = |column| cell(&outcome, row, column).unwrap();
        let (offered, intended) = (at("offered_load_pps"), at("intended_load_pps"));
        assert!((offered / intended - share).abs() < 1e-5, "{offered} of {intended}");
    }
}
