//! Ports that refuse frames, and a loop that falls behind.

use crate::common::*;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{
    DestinationCounts, Family, FlowDuration, FlowSchedule, FlowSpec, GroupCounts, Load, TrialSpec,
};
use drophammer_port::{Clock, Port, PortError, PortInfo, Sent, pass_on};
use drophammer_traffic::{Traffic, merge};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Refuses every n-th frame.
struct Refusing {
    inner: Box<dyn Port>,
    info: PortInfo,
    every: u64,
    handed: u64,
}

impl Port for Refusing {
    pass_on!(inner: slots, receive, counters);

    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        let copies: Vec<Vec<u8>> = (0..frames).map(|i| self.inner.slots().frame(i).to_vec()).collect();
        for (i, copy) in copies.iter().enumerate() {
            self.handed += 1;
            if self.handed.is_multiple_of(self.every) {
                sent.refused += 1;
                sent.refused_mask |= 1 << i;
            } else {
                self.inner.slots().put(0, copy);
                sent.accepted += self.inner.send(1)?.accepted;
            }
        }
        Ok(sent)
    }
}

/// Ports that refuse every n-th frame; a refusal is loss of the device or of the tester.
fn refusing(mut bench: Bench, every: u64, device_loss: bool) -> Bench {
    bench.ports = bench
        .ports
        .into_iter()
        .map(|inner| {
            let info = PortInfo { refusal_is_device_loss: device_loss, ..inner.info().clone() };
            Box::new(Refusing { inner, info, every, handed: 0 }) as Box<dyn Port>
        })
        .collect();
    bench
}

#[test]
fn what_the_devices_ring_refuses_is_offered_and_lost() {
    let mut bench = refusing(wire(), 10, true);
    let result = bench.run(&one("64", Family::Ipv4, 1_000.0));
    let expected = GroupCounts {
        refused: 100,
        received: 900,
        lost: 100,
        received_bytes: 900 * 64,
        in_sequence: 1_000 - 2 * 100 + 1,
        last_loss_ns: Some(999 * MS),
        ..all_well(&result, 0, 1_000, 64)
    };
    assert_eq!(result.groups, [expected]);
    assert_eq!(result.health.unsent, 0);
}

#[test]
fn what_the_testers_ring_refuses_is_neither_offered_nor_lost() {
    let mut bench = refusing(wire(), 10, false);
    let result = bench.run(&one("64", Family::Ipv4, 1_000.0));
    // Nor are the following frames out of sequence.
    let expected = GroupCounts { intended: 1_000, in_sequence: 900, ..all_well(&result, 0, 900, 64) };
    assert_eq!(result.groups, [expected]);
    assert_eq!((result.health.unsent, result.health.refused_by_tester), (100, 100));
}

/// A second of 140,000 frames. If every second frame is refused, there are more single refusals than the generator
/// remembers.
fn too_many_to_remember() -> TrialSpec {
    let mut spec = one("64", Family::Ipv4, 140_000.0);
    spec.flows[0].per_destination = true;
    spec
}

#[test]
fn what_the_testers_ring_refuses_is_not_lost_however_much_it_is() {
    let mut bench = refusing(wire(), 2, false);
    let spec = too_many_to_remember();
    let mut traffic = Traffic::new(bench.plan(&spec));
    traffic.drive(&mut bench.ports, &mut bench.clock, &mut bench.control, Instant(u64::MAX)).unwrap();
    let last = traffic.snapshot(bench.clock.now());
    let counted = (last.sum(|f| f.offered), last.sum(|f| f.received.frames), last.sum(|f| f.received.missing));
    assert_eq!(counted, (70_000, 70_000, 0));
    let result = merge(&traffic.reports());
    reconcile(&spec, &result);
    let expected = GroupCounts { intended: 140_000, ..all_well(&result, 0, 70_000, 64) };
    assert_eq!(result.groups, [expected]);
    assert_eq!((result.health.unsent, result.health.refused_by_tester), (70_000, 70_000));
    let counts = &result.destinations[0];
    assert_eq!(counts.offered, counts.received);
    assert!(counts.first_lost_us.iter().chain(&counts.last_lost_us).all(|us| *us == DestinationCounts::NEVER));
}

#[test]
fn losses_have_no_times_if_not_all_refused_frames_are_known() {
    // The device loses one frame, early. No refused frame may be taken for it.
    let mut bench = refusing(losing(300), 2, false);
    let plan = bench.plan(&too_many_to_remember());
    let result = drophammer_traffic::run(plan, &mut bench.ports, &mut bench.clock, &mut bench.control).unwrap();
    let g = &result.groups[0];
    assert_eq!((g.offered, g.received, g.lost, g.last_loss_ns), (70_000, 69_999, 1, None));
    assert!(result.losses.is_empty(), "{:?}", result.losses);
    let counts = &result.destinations[0];
    assert!(counts.first_lost_us.is_empty() && counts.last_lost_us.is_empty());
}

#[test]
fn no_way_between_two_ports_loses_what_the_testers_ring_refuses() {
    // IPv4 goes to port 1, IPv6 to port 2.
    let forked = Bench::new(3, |f, out| {
        let port = if f.frame[12..14] == [0x08, 0x00] { 1 } else { 2 };
        out.push(Out { port, ..f.on(DELAY) });
    });
    let mut bench = refusing(forked, 3, false);
    let flows = vec![flow("a", 0, 1, Family::Ipv4, 16, 1.0), flow("b", 0, 2, Family::Ipv6, 16, 1.0)];
    let result = bench.run(&spec("64", flows, Load::Constant { rate_pps: 1_000.0 }, 1.0));
    assert_eq!((result.offered(), result.lost(), result.ways.len()), (667, 0, 2));
    assert_eq!(result.ways.iter().map(|way| way.offered).sum::<u64>(), 667);
    assert!(result.ways.iter().all(|way| way.offered == way.received), "{:?}", result.ways);
}

#[test]
fn flows_with_rates_of_their_own_remember_what_was_refused() {
    // The frames of both flows alternate. Every third frame is refused: 666 or 667 of each flow. The device loses the 500th frame it sees: the
    // tester's 749th, and the 375th of its flow.
    let mut bench = refusing(losing(500), 3, false);
    let schedule = FlowSchedule { rate_pps: 2_000.0, delay_s: 0.0, duration: FlowDuration::Continuous };
    let own = |group| FlowSpec { schedule: Some(schedule), ..flow(group, 0, 1, Family::Ipv4, 16, 1.0) };
    let result = bench.run(&spec("64", vec![own("a"), own("b")], Load::Flows, 1.0));
    let last = result.groups.iter().filter_map(|g| g.last_loss_ns).max();
    assert_eq!((result.offered(), result.lost(), last), (4_000 - 1_333, 1, Some(187 * MS)));
    assert_eq!(result.losses.lost(), 1);
}

#[test]
fn by_destination_refusals_of_the_device_are_loss_and_those_of_the_tester_are_nothing() {
    for device_loss in [true, false] {
        // Ten destinations in a repeated order, every 25th frame refused: alternately places 4 and 9 of the order.
        let mut bench = refusing(wire(), 25, device_loss);
        let mut spec = one("64", Family::Ipv4, 1_000.0);
        spec.flows = vec![FlowSpec { per_destination: true, ..flow("all", 0, 1, Family::Ipv4, 10, 1.0) }];
        let result = bench.run(&spec);
        let counts = &result.destinations[0];
        let mut pairs: Vec<_> = counts.offered.iter().zip(&counts.received).map(|(o, r)| (*o, *r)).collect();
        pairs.sort_unstable();
        let hit = if device_loss { (100, 80) } else { (80, 80) };
        let mut expected = vec![hit, hit];
        expected.extend([(100, 100); 8]);
        assert_eq!(pairs, expected);
        let mut last = counts.last_lost_us.clone();
        last.sort_unstable();
        let lost = if device_loss { [974_000, 999_000] } else { [DestinationCounts::NEVER; 2] };
        assert_eq!((&last[..2], last[2]), (&lost[..], DestinationCounts::NEVER));
    }
}

#[test]
fn the_last_loss_is_the_devices_own_and_not_what_the_tester_did_not_send() {
    // The device loses its 300th frame, the generator's 333rd; the tester goes on refusing others.
    let mut bench = refusing(losing(300), 10, false);
    let result = bench.run(&one("64", Family::Ipv4, 1_000.0));
    let g = &result.groups[0];
    assert_eq!((g.offered, g.lost, g.last_loss_ns), (900, 1, Some(332 * MS)));
}

#[test]
fn the_last_loss_is_known_for_each_flow_of_a_port() {
    // The frames of two flows alternate. The device loses a single frame, the tester refuses frames of both flows.
    let mut bench = refusing(losing(500), 7, false);
    let flows = vec![flow("a", 0, 1, Family::Ipv4, 16, 1.0), flow("b", 0, 1, Family::Ipv6, 16, 1.0)];
    let result = bench.run(&spec("64", flows, Load::Constant { rate_pps: 1_000.0 }, 1.0));
    // Of the first 583 frames 83 were refused, so frame 583 was the 500th that the device saw.
    let lost: Vec<_> = result.groups.iter().map(|g| (g.lost, g.last_loss_ns)).collect();
    assert_eq!(lost, [(1, Some(582 * MS)), (0, None)]);
}

/// A clock that wakes too late once.
struct Oversleeping<'a> {
    inner: &'a mut dyn Clock,
    at: u64,
    by: Duration,
}

impl Clock for Oversleeping<'_> {
    fn now(&self) -> Instant {
        self.inner.now()
    }
    fn wait(&mut self, deadline: Instant) {
        self.inner.wait(deadline);
        if self.inner.now().0 >= self.at {
            self.at = u64::MAX;
            let until = self.inner.now() + self.by;
            while self.inner.now() < until {
                self.inner.wait(until);
            }
        }
    }
    fn wall_offset(&self) -> i128 {
        0
    }
    fn is_virtual(&self) -> bool {
        true
    }
}

/// A clock that advances by itself, like a real one, and jumps once between two passes of the loop.
struct Passing<'a> {
    inner: RefCell<&'a mut dyn Clock>,
    at: Cell<u64>,
    by: Duration,
}

impl Clock for Passing<'_> {
    fn now(&self) -> Instant {
        let mut inner = self.inner.borrow_mut();
        let mut until = inner.now() + Duration::from_micros(1);
        if until.0 >= self.at.get() {
            self.at.set(u64::MAX);
            until = until + self.by;
        }
        while inner.now() < until {
            inner.wait(until);
        }
        inner.now()
    }
    fn wait(&mut self, _: Instant) {}
    fn wall_offset(&self) -> i128 {
        0
    }
    fn is_virtual(&self) -> bool {
        false
    }
}

#[test]
fn what_came_in_while_the_loop_was_held_up_is_received_however_long_that_was() {
    // When the last frame leaves, 1,000 are in flight, more than the loop takes from a port in one pass.
    let mut bench = Bench::new(2, |f, out| out.push(f.on(100 * MS)));
    let spec = one("64", Family::Ipv4, 10_000.0);
    let plan = bench.plan(&spec);
    let by = Duration::from_secs_f64(spec.drain_s * 1.5);
    let mut clock = Passing { inner: RefCell::new(&mut bench.clock), at: Cell::new(1_050 * MS), by };
    let result = drophammer_traffic::run(plan, &mut bench.ports, &mut clock, &mut bench.control).unwrap();
    let g = &result.groups[0];
    assert_eq!((g.offered, g.received, g.lost), (10_000, 10_000, 0), "stalled for {by:?}");
}

#[test]
fn a_loop_that_fell_behind_leaves_out_what_is_overdue_and_owns_up() {
    let mut bench = wire();
    let mut spec = one("64", Family::Ipv4, 100_000.0);
    spec.flows[0].per_destination = true;
    let plan = bench.plan(&spec);
    let mut clock = Oversleeping { inner: &mut bench.clock, at: 400 * MS, by: Duration::from_millis(10) };
    let result = drophammer_traffic::run(plan, &mut bench.ports, &mut clock, &mut bench.control).unwrap();
    reconcile(&spec, &result);
    let g = &result.groups[0];
    // 10 ms are 1,000 frames. The generator catches up with a backlog of 200 µs, at least 32 frames.
    assert!((960..=1_000).contains(&result.health.unsent), "{}", result.health.unsent);
    assert_eq!((g.offered + result.health.unsent, g.lost, g.received), (100_000, 0, g.offered));
    // Skipped frames leave no gap in the order of destinations.
    let counts = &result.destinations[0];
    let (rounds, rest) = ((g.offered / 256) as u32, (g.offered % 256) as usize);
    assert_eq!(counts.offered.iter().filter(|n| **n == rounds + 1).count(), rest);
    assert_eq!(counts.offered.iter().filter(|n| **n == rounds).count(), 256 - rest);
    assert_eq!(counts.offered, counts.received);
    let latest = result.health.departure_error.iter().map(|e| e.1).max().unwrap();
    assert!(latest >= 150 * US, "{:?}", result.health.departure_error);
}
