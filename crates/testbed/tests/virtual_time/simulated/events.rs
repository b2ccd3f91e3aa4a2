//! Trials with events, routes and counts by destination, on the reference device. Its behaviour is known, so the
//! expected value of every count is known.

use crate::common::*;
use drophammer_methods::Testbed;
use drophammer_model::quantity::Instant;
use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::suite::Suite;
use drophammer_model::trial::{
    DestinationCounts, DestinationSummary, Family, FlowSpec, Load, PortIndex, Targets, TimedEvent, TrialResult,
    TrialSpec,
};
use drophammer_port::{Arrival, PortError};
use drophammer_reference::{Faults, Misroute, Route};
use drophammer_rig::{HostControl, Ports};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::Reference;
use drophammer_traffic::{Control, Layout, Plan, SendFrame, Timing, run};
use drophammer_wire::signature::TrialKey;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const V4: [Family; 1] = [Family::Ipv4];

fn two_ports() -> Suite {
    suite("", "tests: [throughput]\n")
}

/// A flow from port 0 to port 1, counted by destination.
fn flow(bed: &TestSetup<'_>, destinations: Option<Targets>) -> FlowSpec {
    let range = |port: usize| bed.ports()[port].addressing(Family::Ipv4).unwrap().destinations;
    FlowSpec {
        per_destination: true,
        ..FlowSpec::new("all", 0, 1, range(0), destinations.unwrap_or_else(|| range(1).into()))
    }
}

fn trial(flow: FlowSpec, rate_pps: f64, duration_s: f64) -> TrialSpec {
    TrialSpec {
        purpose: "events".into(),
        size: "64".parse().unwrap(),
        flows: vec![flow],
        load: Load::Constant { rate_pps },
        duration_s,
        bin_s: Some(0.1),
        drain_s: 2.0,
        events: vec![],
    }
}

/// The hosts of the bed, and faults of the device that events activate.
struct Switch<'a, C> {
    hosts: C,
    device: &'a Reference,
    faults: &'a [Faults],
}

impl<C: Control> Control for Switch<'_, C> {
    fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Result<(), PortError> {
        self.hosts.receive(port, arrival)
    }
    fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        self.hosts.poll(now, send)
    }
    fn event(&mut self, _: Instant, event: usize, _: &mut SendFrame<'_>) -> Result<bool, PortError> {
        self.device.set_faults(self.faults[event].clone()).unwrap();
        Ok(true)
    }
    fn stop(&self) -> bool {
        false
    }
}

/// Runs a trial whose events activate these faults on the device.
fn switched(bed: &mut TestSetup<'_>, device: &Reference, spec: &TrialSpec, faults: &[Faults]) -> TrialResult {
    let timing =
        Timing { seed: 11, key: TrialKey::new(9, 9), earlier: vec![], max_backlog_ns: 0, late_ns: 1_000_000_000 };
    let (ports, hosts) = bed.rig().parts();
    let plan = Plan::new(spec, &hosts.neighbours(), &timing).unwrap();
    let hosts = hosts.by_lane(&Layout::one(ports.len())).pop().unwrap();
    let mut control =
        Switch { hosts: HostControl { hosts, acts: &[], links: Vec::new(), stopped: || false }, device, faults };
    let Ports::One { ports, clock } = ports else { panic!("virtual time has one thread") };
    run(plan, ports, clock.as_mut(), &mut control).unwrap()
}

#[test]
fn a_fault_that_an_event_switches_on_begins_exactly_then() {
    with_bed(
        &two_ports(),
        &V4,
        |_| {},
        |bed, device| {
            let mut spec = trial(flow(bed, None), 10_000.0, 1.0);
            bed.trial(&spec).unwrap();
            let event = |at_s, event, label: &str| TimedEvent::new(at_s, event, label);
            spec.events = vec![event(0.5, 0, "on"), event(0.72345, 1, "off")];
            let faults = [Faults { drop_every: 1, ..Faults::default() }, Faults::default()];
            let result = switched(bed, device, &spec, &faults);
            let g = &result.groups[0];
            let lost: Vec<u64> = g.bins.iter().take(10).map(|b| b.offered - b.delivered).collect();
            // One frame is sent every 100 µs; the last lost frame is at 723.4 ms.
            assert_eq!(lost, [0, 0, 0, 0, 0, 1_000, 1_000, 235, 0, 0]);
            let arrived: Vec<u64> = g.bins.iter().take(10).map(|b| b.arrived).collect();
            assert_eq!(arrived, [1_000, 1_000, 1_000, 1_000, 1_000, 0, 0, 765, 1_000, 1_000]);
            assert_eq!((g.lost, g.last_loss_ns), (2_235, Some(723_400_000)));
            assert_eq!(device.truth().dropped.fault_every, 2_235);
            let told: Vec<_> = result.events.iter().map(|e| (e.at_s, e.label.as_str())).collect();
            assert_eq!(told, [(0.5, "on"), (0.72345, "off")]);
            // By destination: nothing is lost before the first event or after the second.
            let d = &result.destinations[0];
            let first = d.first_lost_us.iter().min().unwrap();
            let last = d.last_lost_us.iter().filter(|us| **us != DestinationCounts::NEVER).max().unwrap();
            assert_eq!((*first, *last, d.received.iter().sum::<u32>()), (500_000, 723_400, 10_000 - 2_235));
        },
    );
}

#[test]
fn a_fault_that_begins_when_traffic_is_over_hits_nothing_and_the_trial_waits_for_it() {
    with_bed(
        &two_ports(),
        &V4,
        |_| {},
        |bed, device| {
            let mut spec = trial(flow(bed, None), 1_000.0, 0.2);
            bed.trial(&spec).unwrap();
            let before = bed.rig().now();
            spec.events = vec![TimedEvent::new(5.0, 0, "late")];
            let result = switched(bed, device, &spec, &[Faults { drop_every: 1, ..Faults::default() }]);
            assert_eq!((result.lost(), result.events[0].at_s), (0, 5.0));
            let took = bed.rig().now().since(before);
            assert!((Duration::from_secs(5)..Duration::from_millis(5_010)).contains(&took), "{took:?}");
        },
    );
}

#[test]
fn a_window_of_loss_hits_the_destinations_whose_turn_it_was() {
    with_bed(
        &two_ports(),
        &V4,
        |_| {},
        |bed, device| {
            let count = flow(bed, None).destinations.count();
            // Shorter trials show the order of the frames.
            let mut offered = |frames: u64| {
                let mut spec = trial(flow(bed, None), 10_000.0, 1.0);
                spec.load = Load::Burst { frames, rate_pps: 10_000.0 };
                let result = bed.trial(&spec).unwrap();
                assert_eq!(result.lost(), 0);
                result.destinations[0].offered.clone()
            };
            let (from, to) = (offered(1_200), offered(1_350));
            let whole = offered(3_000);
            let start = bed.rig().now() + Duration::from_micros(1);
            let window = (start + Duration::from_millis(120), start + Duration::from_millis(135));
            device.set_faults(Faults { drop_window: Some(window), ..Faults::default() }).unwrap();
            let result = bed.trial(&trial(flow(bed, None), 10_000.0, 0.3)).unwrap();
            let d = &result.destinations[0];
            assert_eq!((d.flow, &d.offered), (0, &whole));
            let lost: Vec<u32> = (0..count as usize).map(|i| d.lost(i)).collect();
            let expected: Vec<u32> = to.iter().zip(&from).map(|(to, from)| to - from).collect();
            assert_eq!(lost, expected);
            assert_eq!((lost.iter().sum::<u32>(), result.lost()), (150, 150));
            assert_eq!(result.destination_summaries[0].with_loss, lost.iter().filter(|n| **n > 0).count() as u64);
        },
    );
}

#[test]
fn routes_beyond_a_full_forwarding_table_are_those_that_nothing_arrives_of() {
    let routes: Arc<Routes> = Arc::new(RouteRange::internet(Family::Ipv4, 2_000, 3).unwrap().into());
    let suite = two_ports();
    let host = suite.ports[1].ipv4.as_ref().unwrap().host;
    let add = |config: &mut drophammer_reference::Config| {
        for i in 0..2_000 {
            let prefix = routes.prefix(i);
            let next_hop: IpAddr = host;
            config.routes.push(Route { prefix: prefix.address(), prefix_len: prefix.length(), port: 1, next_hop });
        }
        // The suite's own routes come first.
        config.fib_limit = Some(config.routes.len() - 300);
    };
    with_bed(&suite, &V4, add, |bed, device| {
        let all = Targets::Routes { routes: routes.clone(), first: 0, count: 2_000 };
        let result = bed.trial(&trial(flow(bed, Some(all)), 20_000.0, 0.5)).unwrap();
        let d = &result.destinations[0];
        assert_eq!(d.offered, vec![5; 2_000]);
        assert_eq!((&d.received[..1_700], &d.received[1_700..]), (&[5; 1_700][..], &[0; 300][..]));
        assert_eq!((result.lost(), device.truth().dropped.fib_full), (1_500, 1_500));
        let expected =
            DestinationSummary { flow: 0, destinations: 2_000, offered: 2_000, with_loss: 300, unreached: 300 };
        assert_eq!(result.destination_summaries, [expected]);
        // Use only a part of the routes.
        let part = Targets::Routes { routes: routes.clone(), first: 1_600, count: 200 };
        let result = bed.trial(&trial(flow(bed, Some(part)), 20_000.0, 0.1)).unwrap();
        let d = &result.destinations[0];
        assert_eq!((&d.received[..100], &d.received[100..]), (&[10; 100][..], &[0; 100][..]));
    });
}

#[test]
fn frames_by_another_port_are_received_where_the_flow_allows_it() {
    let suite = read_suite(
        "suite: known\nprofile: quick\nseed: 11\nduts:\n  - {name: box, kind: reference}\n\
         ports:\n  - {name: p1, speed: 100 Mbit/s}\n  - {name: p2, speed: 100 Mbit/s}\n\
         \u{20} - {name: p3, speed: 100 Mbit/s}\n  - {name: p4, speed: 100 Mbit/s}\ntests: [throughput]\n",
    );
    with_bed(
        &suite,
        &V4,
        |_| {},
        |bed, device| {
            // The device learns the host on port 2.
            let to_p3 =
                FlowSpec { to: 2, ..flow(bed, Some(bed.ports()[2].ipv4.as_ref().unwrap().destinations.into())) };
            bed.trial(&trial(to_p3, 1_000.0, 0.1)).unwrap();
            bed.trial(&trial(flow(bed, None), 1_000.0, 0.1)).unwrap();
            let misroute = Some(Misroute { every: 5, to_port: 2 });
            for (also, received) in [(vec![], 800), (vec![2], 1_000)] {
                device.set_faults(Faults { misroute, ..Faults::default() }).unwrap();
                let before = device.truth().misrouted;
                let result = bed.trial(&trial(FlowSpec { also, ..flow(bed, None) }, 1_000.0, 1.0)).unwrap();
                let g = &result.groups[0];
                assert_eq!((g.received, g.stray), (received, 1_000 - received));
                assert_eq!((g.arrived_at.as_slice(), device.truth().misrouted - before), (&[0, 800, 200, 0][..], 200));
            }
        },
    );
}
