//! A router that reads slowly and a tester that sends slowly look the same from outside: the test determines which of
//! the two it was, and reports it.

use super::*;
use bed::{faults, say, with};
use drophammer_methods::METHODS;
use drophammer_methods::routing::TableChoice;
use drophammer_model::Instant;
use drophammer_model::figure::RoundFigure;
use drophammer_model::routes::AfiSafi;
use drophammer_port::Clock;
use drophammer_port::simulated::SimulatedClock;
use drophammer_reference::BgpFaults;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// A clock whose waits last longer than requested by this time: the tester does not get the processor.
struct Sluggish {
    clock: SimulatedClock,
    by: Rc<Cell<Duration>>,
}

impl Clock for Sluggish {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn wait(&mut self, deadline: Instant) {
        self.clock.wait(deadline);
        let end = self.clock.now() + self.by.get();
        while self.clock.now() < end {
            self.clock.wait(end);
        }
    }

    fn wall_offset(&self) -> i128 {
        self.clock.wall_offset()
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

#[test]
fn the_time_that_a_slow_reader_takes_is_the_devices() {
    with("{}", 60_000, |bed, device, all, watch| {
        assert!(say(bed, &all, watch, 0..1_000, true).complete);
        let mut times = Vec::new();
        for bytes in [200_000, 400_000] {
            faults(device, BgpFaults { reads_per_second: bytes, ..BgpFaults::default() });
            let settled = say(bed, &all, watch, 1_000..60_000, true);
            assert!(settled.complete, "{settled:?}");
            let (sent, sending) = (settled.sent_s.unwrap(), settled.sending);
            // After the first full window, the session continues only when the device reads.
            let theirs = sending.held_s + sending.unanswered_s;
            assert!(theirs > 0.98 * sent && sending.held_s > sent / 2.0 && sending.late_s < 0.001, "{settled:?}");
            assert!(sending.held_s + sending.unanswered_s + sending.late_s <= sent + 1e-9, "{settled:?}");
            times.push(settled.last_change_s);
            faults(device, BgpFaults::default());
            assert!(say(bed, &all, watch, 1_000..60_000, false).complete);
        }
        assert!((times[0] / times[1] - 2.0).abs() < 0.02 && times[1] > 1.0, "{times:?}");
        let settled = say(bed, &all, watch, 1_000..60_000, true);
        assert!(settled.complete && settled.sent_s.unwrap() < 0.05, "{settled:?}");
    });
}

/// A bed whose tester is delayed by the time in the cell.
fn sluggish<T>(
    suite: &Suite,
    use_it: impl FnOnce(&mut drophammer_testbed::setup::TestSetup<'_>, &Cell<Duration>) -> T,
) -> T {
    let by = Rc::new(Cell::new(Duration::ZERO));
    let own = by.clone();
    let clock = |clock| Box::new(Sluggish { clock, by: own }) as Box<dyn Clock>;
    crate::common::with_bed_by(suite, &[Family::Ipv4], |_| {}, clock, |bed, _| use_it(bed, &by))
}

#[test]
fn the_time_that_the_tester_is_held_up_is_its_own() {
    let suite = suite("", 2, "{}", "  - bgp_table_capacity\n");
    sluggish(&suite, |bed, by| {
        use drophammer_methods::Testbed;
        let routing = bed.routing().unwrap();
        routing.establish(&[0, 2], Duration::from_secs(5)).unwrap();
        let all = routing.table(&TableChoice::named("internet"), AfiSafi::IPV4_UNICAST, 60_000).unwrap();
        let watch = routing.watch(2, 0, &all);
        by.set(Duration::from_millis(300));
        let settled = say(bed, &all, watch, 0..60_000, true);
        let (sent, sending) = (settled.sent_s.unwrap(), settled.sending);
        // The tester packs some messages at a time, and then sleeps; the last of them is answered during another sleep.
        assert!(settled.complete && sent > 1.4, "{settled:?}");
        assert!(sending.late_s > sent - 0.31 && sending.held_s + sending.unanswered_s < 0.1, "{settled:?}");
    });
}

fn rate(more: &str) -> String {
    format!("bgp_update_rate: {{table: uniform, routes: 2000, duration: 1 s, lag: 1 s, refinements: 2{more}}}")
}

/// Marks of the rows whose rate was not reached.
fn marks(outcome: &Outcome) -> Vec<String> {
    rows(outcome, "bgp_update_rate").iter().flat_map(|row| row.marks.clone()).collect()
}

#[test]
fn a_pace_that_the_tester_does_not_keep_is_nobodys_bound() {
    let suite = suite("", 2, "{}", &format!("  - {}\n", rate(", first_rate: 2000, max_rate: 4000")));
    let method = METHODS.iter().find(|m| m.spec().name == "bgp_update_rate").unwrap();
    sluggish(&suite, |bed, by| {
        for (held_up_ms, limited) in [(0, false), (150, true)] {
            by.set(Duration::from_millis(held_up_ms));
            let mut outcome = Outcome::default();
            method.run(bed, &suite.tests[0].params, &mut outcome).unwrap();
            let marks = marks(&outcome);
            if !limited {
                assert_eq!((outcome.ranks[0].value, marks), (Some(4_000.0), vec![]));
                continue;
            }
            // If the tester did not keep the pace, nothing is known about the router.
            let yes = drophammer_model::outcome::Cell::from("yes");
            let kept = rows(&outcome, "bgp_update_rate").iter().any(|row| row.cells.last() == Some(&yes));
            let [rank] = &outcome.ranks[..] else { panic!("{:?}", outcome.ranks) };
            let bound = rank.tester_limited && rank.value.is_some_and(|v| v < 4_000.0);
            assert!(if kept { bound } else { rank.round() == RoundFigure::NotMeasured }, "{rank:?}");
            assert!(
                !marks.is_empty() && marks.iter().all(|m| m == "the tester fell short" || m == "repeated"),
                "{marks:?}"
            );
            assert_eq!(
                marks.iter().filter(|m| *m == "repeated").count() * 3,
                2 * (marks.len() - marks.iter().filter(|m| *m == "repeated").count())
            );
            assert!(noted(&outcome, &["the tester itself fell short of", "while the router had room"]));
        }
    });
}
