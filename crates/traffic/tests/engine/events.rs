//! In virtual time events happen on time, to the nanosecond, and the trial lasts until the last one.

use crate::common::*;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load, LoadStep, TimedEvent, TrialResult, TrialSpec};
use drophammer_port::{Arrival, Clock, Port, PortError, memory, pass_on};
use drophammer_traffic::{Control, Layout, Neighbour, Plan, PlanError, SendFrame, Timing, run, run_lanes};
use drophammer_wire::MacAddr;
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

/// A port that cannot send ahead.
struct FrameByFrame(Box<dyn Port>);

impl Port for FrameByFrame {
    pass_on!(0: info, slots, send, receive, counters);
}

/// Opens (even events) and closes (odd events) a gate in the device. Each event sends a frame.
struct Gate {
    closed: Rc<Cell<bool>>,
    seen: Vec<(Instant, usize)>,
    polls: Vec<Instant>,
}

impl Control for Gate {
    fn receive(&mut self, _: usize, _: Arrival<'_>) -> Result<(), PortError> {
        Ok(())
    }

    fn poll(&mut self, now: Instant, _: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        self.polls.push(now);
        Ok(now + Duration::from_millis(500))
    }

    fn event(&mut self, now: Instant, event: usize, send: &mut SendFrame<'_>) -> Result<bool, PortError> {
        self.seen.push((now, event));
        self.closed.set(event % 2 == 1);
        send(1, &[9; 60])?;
        Ok(true)
    }

    fn stop(&self) -> bool {
        false
    }
}

fn event(at_s: f64, event: usize) -> TimedEvent {
    TimedEvent::new(at_s, event, format!("event {event}"))
}

/// Runs the trial on a wire with a gate; returns the gate's events with their times after the start of the trial.
fn gated(spec: &TrialSpec, frame_by_frame: bool) -> (TrialResult, Vec<(u64, usize)>) {
    let closed = Rc::new(Cell::new(false));
    let gate = closed.clone();
    let mut bench = Bench::new(2, move |f, out| {
        // The frames of the events end at the device.
        if f.frame.len() > 60 && !gate.get() {
            out.push(f.on(DELAY));
        }
    });
    if frame_by_frame {
        bench.ports = bench.ports.into_iter().map(|p| Box::new(FrameByFrame(p)) as Box<dyn Port>).collect();
    }
    let plan = bench.plan(spec);
    let start = bench.clock.now().0 + US;
    let mut control = Gate { closed, seen: vec![], polls: vec![] };
    let result = run(plan, &mut bench.ports, &mut bench.clock, &mut control).unwrap();
    reconcile(spec, &result);
    assert!(control.seen.iter().all(|(at, _)| control.polls.contains(at)), "each event is followed by a poll");
    (result, control.seen.into_iter().map(|(at, event)| (at.0 - start, event)).collect())
}

fn two_ways(rate_pps: f64, second_weight: f64) -> TrialSpec {
    let flows = vec![
        flow("a", 0, 1, Family::Ipv4, 16, 1.0),
        flow("b", 0, 1, Family::Ipv6, 16, second_weight),
        flow("c", 1, 0, Family::Ipv4, 16, 1.0),
    ];
    let mut spec = spec("128", flows, Load::Constant { rate_pps }, 1.0);
    spec.bin_s = Some(0.1);
    spec
}

#[test]
fn a_gate_that_closes_for_200_ms_costs_exactly_the_frames_of_these() {
    let mut spec = two_ways(10_000.0, 1.0);
    // Not in order of time.
    spec.events = vec![event(0.7, 0), event(0.5, 1)];
    for frame_by_frame in [false, true] {
        let (result, seen) = gated(&spec, frame_by_frame);
        assert_eq!(seen, [(500 * MS, 1), (700 * MS, 0)]);
        let told: Vec<_> = result.events.iter().map(|e| (e.at_s, e.took_s, e.label.as_str())).collect();
        assert_eq!(told, [(0.5, 0.0, "event 1"), (0.7, 0.0, "event 0")]);
        for (g, share) in result.groups.iter().zip([500, 500, 1_000]) {
            let lost: Vec<u64> = g.bins.iter().take(10).map(|b| b.offered - b.delivered).collect();
            assert_eq!(lost, [0, 0, 0, 0, 0, share, share, 0, 0, 0], "frames of the instant leave after the event");
            assert!(g.bins[..10].iter().all(|b| b.offered == share));
            // Frames of the last 12.345 µs of a bin arrive in the next one; at this rate there are none.
            let arrived: Vec<u64> = g.bins.iter().take(10).map(|b| b.arrived).collect();
            assert_eq!(arrived, [share, share, share, share, share, 0, 0, share, share, share]);
            assert_eq!(
                (g.lost, g.last_loss_ns),
                (2 * share, Some(if g.group == "a" { 699_800_000 } else { 699_900_000 }))
            );
        }
    }
}

#[test]
fn the_trial_waits_for_events_after_its_last_frame() {
    let mut spec = two_ways(1_000.0, 1.0);
    (spec.duration_s, spec.drain_s) = (0.1, 0.5);
    spec.events = vec![event(0.0, 0), event(0.1, 2), event(3.0, 4)];
    for frame_by_frame in [false, true] {
        let mut wait = spec.clone();
        wait.drain_s = 0.5;
        let (result, seen) = gated(&wait, frame_by_frame);
        assert_eq!(seen, [(0, 0), (100 * MS, 2), (3_000 * MS, 4)]);
        assert_eq!((result.lost(), result.events.len(), result.events[2].at_s), (0, 3, 3.0));
    }
}

#[test]
fn an_event_that_closes_the_gate_before_the_first_frame_costs_all() {
    let mut spec = two_ways(1_000.0, 1.0);
    spec.events = vec![event(0.0, 1)];
    let (result, _) = gated(&spec, false);
    assert_eq!((result.received(), result.offered()), (0, 2_000));
}

#[test]
fn a_time_that_is_none_is_refused() {
    for at_s in [-1e-9, f64::NAN, f64::INFINITY, 1e9] {
        let mut spec = two_ways(1_000.0, 1.0);
        spec.events = vec![event(at_s, 0)];
        let timing = Timing { seed: 7, key: key(1), earlier: vec![], max_backlog_ns: 0, late_ns: 0 };
        let mac = Some(MacAddr::local(1));
        let port = Neighbour { mac: MacAddr::local(2), device_ipv4: mac, device_ipv6: mac, vlans: Vec::new() };
        let refused = Plan::new(&spec, &[port.clone(), port], &timing).err();
        assert!(matches!(refused, Some(PlanError::NoTime { .. })), "{at_s}: {refused:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A gate has the same effect on bursts sent ahead and on single frames, whenever it opens and closes.
    #[test]
    fn events_are_exact_whatever_the_load(
        rates in proptest::array::uniform2(500.0f64..300_000.0), weight in 0.2f64..3.0,
        at in proptest::collection::vec((0u64..60_000_000, 0usize..9), 0..8), kind in 0..3
    ) {
        let mut spec = two_ways(rates[0], weight);
        spec.duration_s = 0.05;
        spec.bin_s = Some(0.003);
        match kind {
            0 => {}
            1 => spec.load = Load::Burst { frames: 3_000, rate_pps: rates[1] },
            _ => {
                let steps = rates.map(|rate_pps| LoadStep { duration_s: 0.025, rate_pps });
                spec.load = Load::Steps { steps: steps.to_vec() };
            }
        }
        spec.events = at.iter().map(|(ns, n)| event(*ns as f64 / 1e9, *n)).collect();
        let (ahead, seen) = gated(&spec, false);
        let (one_by_one, also_seen) = gated(&spec, true);
        let mut expected = at.clone();
        expected.sort_by_key(|(ns, _)| *ns);
        prop_assert_eq!(&seen, &expected);
        prop_assert_eq!(seen, also_seen);
        prop_assert_eq!(ahead.groups, one_by_one.groups);
    }
}

/// Records the calls, and claims one event.
struct Claims<'a> {
    own: usize,
    told: &'a Mutex<Vec<(usize, usize)>>,
}

impl Control for Claims<'_> {
    fn receive(&mut self, _: usize, _: Arrival<'_>) -> Result<(), PortError> {
        Ok(())
    }
    fn poll(&mut self, now: Instant, _: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        Ok(now + Duration::from_millis(1))
    }
    fn event(&mut self, _: Instant, event: usize, _: &mut SendFrame<'_>) -> Result<bool, PortError> {
        self.told.lock().unwrap().push((self.own, event));
        Ok(event == self.own)
    }
    fn stop(&self) -> bool {
        false
    }
}

#[test]
fn every_lane_is_told_in_real_time_and_the_trial_waits_for_all() {
    let range = |n: u32| AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: n };
    let flow = |from: usize| FlowSpec { sources: range(1), ..flow("all", from, from ^ 1, Family::Ipv4, 4, 1.0) };
    let mut spec = spec("64", vec![flow(0), flow(1)], Load::Constant { rate_pps: 2_000.0 }, 0.02);
    (spec.bin_s, spec.drain_s) = (None, 0.2);
    spec.events = vec![event(0.005, 1), event(0.05, 0), event(0.06, 9)];
    let timing = Timing { seed: 7, key: key(1), earlier: vec![], max_backlog_ns: SECOND, late_ns: SECOND };
    let neighbour = |i: u64| Neighbour {
        mac: MacAddr::local(i),
        device_ipv4: Some(MacAddr::local(i ^ 1)),
        device_ipv6: None,
        vlans: Vec::new(),
    };
    let plan = Plan::on_lanes(&spec, &[neighbour(0), neighbour(1)], &timing, Layout::round_robin(2, 2)).unwrap();
    let clock = drophammer_port::SystemClock::start();
    let mut ports =
        memory::pair([MacAddr::local(0), MacAddr::local(1)], 1_500, clock).map(|p| Box::new(p) as Box<dyn Port + Send>);
    let told = Mutex::new(Vec::new());
    let mut others = [Claims { own: 1, told: &told }];
    let result = run_lanes(plan, &mut ports, clock, &[], &mut Claims { own: 0, told: &told }, &mut others).unwrap();
    let mut told = told.into_inner().unwrap();
    told.sort_unstable();
    assert_eq!(told, [(0, 0), (0, 1), (0, 9), (1, 0), (1, 1), (1, 9)]);
    for (record, planned) in result.events.iter().zip([0.005, 0.05, 0.06]) {
        assert!(record.at_s >= planned && record.took_s >= 0.0, "{record:?}");
    }
    assert_eq!((result.events.len(), result.lost()), (3, 0));
    assert!(clock.now() > Instant(60_000_000));
}
