//! Flows that start, stop and pause: exactly the frames leave that are due while their flow sends.

mod kernel;
mod threads;

use crate::common::*;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{
    AddressRange, Family, FlowDuration, FlowSchedule, FlowSpec, Load, LoadStep, StoppedFlow, TrialResult, TrialSpec,
};
use drophammer_port::{Arrival, Clock, Port, PortError};
use drophammer_traffic::{
    CONTINUOUS, Control, FlowSelect, Layout, Live, Neighbour, Plan, PlanError, SendFrame, Timing, Traffic, Transmit,
    TransmitAction, TransmitError, merge,
};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::{LEN, Signature};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use TransmitAction::{DropBacklog, Pause, Resume, Start, Stop};

/// Departure of the first frame in virtual time, which begins at 1 ns.
const LEAD: u64 = 1_001;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Departure in ns after the start, and flow, of each frame at the device.
type Notes = Rc<RefCell<Vec<(u64, u32)>>>;

/// Ports 0 and 1 with this many queues each, joined by a device that records all frames and loses every `lose`-th one. The destination address
/// decides at which queue a frame arrives.
fn joined(queues: usize, lose: u64) -> (Bench, Notes) {
    let notes: Notes = Rc::default();
    let kept = notes.clone();
    let bench = Bench::new(2 * queues, move |f, out| {
        let signature = Signature::read(f.frame[f.frame.len() - LEN..].try_into().unwrap()).0;
        kept.borrow_mut().push((f.at.0 - LEAD, signature.flow));
        if f.nth(lose) {
            return;
        }
        let to = 1 - f.port / queues;
        let queue = f.frame[33] as usize % queues;
        let mut frame = f.frame.to_vec();
        frame[..6].copy_from_slice(&MacAddr::local(to as u64).0);
        out.push(Out { at: Instant(f.at.0 + DELAY), port: to * queues + queue, frame });
    });
    (bench, notes)
}

/// Each host is the other's next hop.
fn planned(spec: &TrialSpec, layout: Layout, backlog_ns: u64) -> Result<Plan, PlanError> {
    let device_ipv4 = |i: u64| Some(MacAddr::local(i ^ 1));
    let neighbour = |i| Neighbour { mac: MacAddr::local(i), device_ipv4: device_ipv4(i), ..Neighbour::default() };
    let timing = Timing { seed: 7, key: key(1), earlier: vec![], max_backlog_ns: backlog_ns, late_ns: 60 * SECOND };
    Plan::on_lanes(spec, &[neighbour(0), neighbour(1)], &timing, layout)
}

fn traffic_of(spec: &TrialSpec, layout: Layout, backlog_ns: u64) -> Traffic {
    Traffic::new(planned(spec, layout, backlog_ns).unwrap())
}

fn on_queues(spec: &TrialSpec, queues: usize) -> Traffic {
    traffic_of(spec, Layout::queues(&[queues, queues], 1), 200_000)
}

fn drive(bench: &mut Bench, traffic: &mut Traffic, until: u64) {
    traffic.drive(&mut bench.ports, &mut bench.clock, &mut bench.control, Instant(until)).unwrap();
}

fn own(group: &str, rate_pps: f64, delay_s: f64, duration: FlowDuration) -> FlowSpec {
    let schedule = Some(FlowSchedule { rate_pps, delay_s, duration });
    FlowSpec { schedule, ..flow(group, 0, 1, Family::Ipv4, 5, 1.0) }
}

/// Two groups that leave port 0 at 100,000 and 50,000 frames per second for 4 ms, with rates of their own or by weight.
fn two(shared: bool) -> TrialSpec {
    if shared {
        let flows = vec![flow("a", 0, 1, Family::Ipv4, 5, 2.0), flow("b", 0, 1, Family::Ipv4, 5, 1.0)];
        return spec("64", flows, Load::Constant { rate_pps: 150_000.0 }, 0.004);
    }
    let flows =
        vec![own("a", 100_000.0, 0.0, FlowDuration::Continuous), own("b", 50_000.0, 0.0, FlowDuration::Continuous)];
    TrialSpec { duration_s: 0.004, ..spec("64", flows, Load::Flows, 0.004) }
}

/// Checks the counts of a group that sent this many frames, if all arrived.
fn whole(result: &TrialResult, group: usize, frames: u64) {
    let g = &result.groups[group];
    let counts = [g.intended, g.offered, g.received, g.bins.iter().map(|bin| bin.offered).sum()];
    assert_eq!(counts, [frames; 4]);
    assert_eq!([g.lost, g.refused, g.duplicated, g.corrupted, g.stray, g.reordered], [0; 6], "{g:#?}");
    assert_eq!(g.in_sequence + g.order_unknown, frames, "the sequence numbers go on: {g:#?}");
}

#[test]
fn a_flow_that_is_stopped_leaves_its_places_empty() {
    for (shared, queues, timed) in [(false, 1), (true, 1), (false, 2), (true, 2), (true, 3)]
        .iter()
        .flat_map(|(a, b)| [(*a, *b, false), (*a, *b, true)])
    {
        let spec = two(shared);
        let (mut bench, notes) = joined(queues, u64::MAX);
        let mut traffic = on_queues(&spec, queues);
        let groups = FlowSelect::Groups(&["a"]);
        if timed {
            // In any order, and before the start.
            traffic.live().transmit(groups, Start, Some(ms(2))).unwrap();
            traffic.live().transmit(groups, Stop, Some(ms(1))).unwrap();
        } else {
            drive(&mut bench, &mut traffic, LEAD + MS);
            traffic.live().transmit(groups, Stop, None).unwrap();
            drive(&mut bench, &mut traffic, LEAD + 2 * MS);
            assert_eq!(traffic.snapshot(bench.clock.now()).flows[&0].transmit, Transmit::Stopped);
            assert_eq!(traffic.snapshot(bench.clock.now()).flows[&1].transmit, Transmit::Started);
            traffic.live().transmit(FlowSelect::Flows(&[0]), Start, None).unwrap();
        }
        drive(&mut bench, &mut traffic, u64::MAX);
        let result = merge(&traffic.reports());
        let case = format!("shared {shared}, {queues} queues, timed {timed}");
        whole(&result, 0, 300);
        whole(&result, 1, 200);
        assert_eq!((result.health.unsent, result.sending_s), (0, 0.004), "{case}");
        let stopped = StoppedFlow { flow: 0, stops: 1, stopped_s: 0.001, sending_s: 0.003 };
        assert_eq!((result.groups[0].stopped.clone(), result.groups[1].stopped.clone()), (vec![stopped], vec![]));
        // In that time no frame of the flow left, and no frame of the other flow was late.
        let notes = notes.borrow();
        let of = |flow| notes.iter().filter(move |(_, f)| *f == flow).map(|(at, _)| *at);
        assert!(of(0).all(|at| !(MS..2 * MS).contains(&at)), "{case}");
        assert_eq!(of(1).filter(|at| (MS..2 * MS).contains(at)).count(), 50, "{case}");
        assert_eq!(result.health.departure_errors, [(0, 500)], "{case}");
    }
}

#[test]
fn what_is_paused_is_resumed_and_what_is_stopped_is_not() {
    let (mut bench, notes) = joined(1, u64::MAX);
    let mut spec = two(false);
    spec.duration_s = CONTINUOUS.as_secs_f64();
    spec.bin_s = None;
    let mut traffic = on_queues(&spec, 1);
    let states = |traffic: &mut Traffic, bench: &Bench| {
        traffic.snapshot(bench.clock.now()).flows.values().map(|f| f.transmit).collect::<Vec<_>>()
    };
    // Stopped from the beginning.
    traffic.live().transmit(FlowSelect::Groups(&["b"]), Stop, None).unwrap();
    drive(&mut bench, &mut traffic, LEAD + MS);
    assert_eq!(states(&mut traffic, &bench), [Transmit::Started, Transmit::Stopped]);
    traffic.live().transmit(FlowSelect::All, Pause, None).unwrap();
    drive(&mut bench, &mut traffic, LEAD + 3 * MS);
    assert_eq!(states(&mut traffic, &bench), [Transmit::Paused, Transmit::Stopped]);
    assert_eq!(notes.borrow().len(), 100);
    traffic.live().transmit(FlowSelect::All, Resume, None).unwrap();
    drive(&mut bench, &mut traffic, LEAD + 4 * MS);
    assert_eq!(states(&mut traffic, &bench), [Transmit::Started, Transmit::Stopped]);
    traffic.live().transmit(FlowSelect::Flows(&[1]), Start, None).unwrap();
    drive(&mut bench, &mut traffic, LEAD + 5 * MS);
    assert_eq!(states(&mut traffic, &bench), [Transmit::Started, Transmit::Started]);
    traffic.live().end_sending();
    drive(&mut bench, &mut traffic, u64::MAX);
    let result = merge(&traffic.reports());
    // Until the end, including the frames due at that instant.
    let frames = result.groups.iter().map(|g| (g.intended, g.offered, g.received)).collect::<Vec<_>>();
    assert_eq!(frames, [(301, 301, 301), (51, 51, 51)]);
    assert_eq!((result.lost(), result.health.unsent), (0, 0));
    // No frame in between, and no burst afterwards: every frame leaves at its scheduled time.
    let grid = |at: u64| at.is_multiple_of(10_000) && !(MS..3 * MS).contains(&at);
    assert!(notes.borrow().iter().all(|(at, _)| grid(*at)));
    assert!(notes.borrow().windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn a_backlog_that_is_dropped_never_leaves_and_that_of_other_flows_does() {
    // Flows that share a load keep their backlog unless all of them are selected.
    for (shared, all, sent) in [
        (false, false, [1_100, 1_000]),
        (false, true, [1_100, 949]),
        (true, false, [1_200, 1_000]),
        (true, true, [1_100, 950]),
    ] {
        let (mut bench, _) = joined(1, u64::MAX);
        let mut traffic = traffic_of(&TrialSpec { duration_s: 0.02, ..two(shared) }, Layout::one(2), SECOND);
        drive(&mut bench, &mut traffic, LEAD + MS);
        // Nobody drives the traffic for a millisecond, in which 100 and 50 frames become due, and one at its end.
        while bench.clock.now() < Instant(LEAD + 2 * MS) {
            bench.clock.wait(Instant(LEAD + 2 * MS));
        }
        let first = FlowSelect::Flows(&[0]);
        traffic.live().transmit(first, Stop, None).unwrap();
        traffic.live().transmit(if all { FlowSelect::All } else { first }, DropBacklog, None).unwrap();
        traffic.live().transmit(first, Start, Some(ms(10))).unwrap();
        drive(&mut bench, &mut traffic, u64::MAX);
        let case = format!("shared {shared}, all {all}");
        assert_eq!(traffic.handed_over(), sent, "{case}");
        let result = merge(&traffic.reports());
        for (g, sent) in result.groups.iter().zip(sent) {
            let counts = (g.offered, g.received, g.lost, g.duplicated, g.reordered);
            assert_eq!(counts, (sent, sent, 0, 0, 0), "{case}: {g:#?}");
            assert_eq!(g.in_sequence + g.order_unknown, sent, "the sequence numbers go on: {g:#?}");
        }
        // What was dropped is known.
        assert_eq!((result.intended(), result.health.unsent), (2_200, 2_200 - sent[0] - sent[1]), "{case}");
    }
}

#[test]
fn a_flow_that_nobody_starts_ends_with_its_schedule() {
    for queues in [1, 2] {
        let (mut bench, notes) = joined(queues, u64::MAX);
        let mut traffic = on_queues(&two(true), queues);
        traffic.live().transmit(FlowSelect::All, Stop, None).unwrap();
        drive(&mut bench, &mut traffic, LEAD + 3 * MS);
        assert!(!traffic.is_over(), "somebody may start it");
        drive(&mut bench, &mut traffic, u64::MAX);
        assert!(traffic.is_over() && notes.borrow().is_empty());
        let result = merge(&traffic.reports());
        assert_eq!((result.intended(), result.offered(), result.health.unsent), (0, 0, 0));
        assert_eq!(traffic.live().transmit(FlowSelect::All, Start, None), Err(TransmitError::Over));
    }
}

#[test]
fn flows_that_are_not_there_are_refused() {
    let (mut bench, _) = joined(1, u64::MAX);
    let mut traffic = on_queues(&two(true), 1);
    let error = traffic.live().transmit(FlowSelect::Flows(&[0, 2]), Stop, None).unwrap_err().to_string();
    assert_eq!(error, "there is no flow 2; the traffic has 2 flows, numbered from 0");
    let error = traffic.live().transmit(FlowSelect::Groups(&["a", "c"]), Stop, None).unwrap_err().to_string();
    assert_eq!(error, "there is no group `c` of flows; there are a, b");
    drive(&mut bench, &mut traffic, u64::MAX);
    let result = merge(&traffic.reports());
    whole(&result, 0, 400);
    assert!(result.groups.iter().all(|g| g.stopped.is_empty()), "nothing was done");
}

#[test]
fn the_most_that_ports_take_can_be_paused() {
    let (mut bench, notes) = joined(1, u64::MAX);
    let load = Load::Maximum { limit_pps: 100_000.0 };
    let spec = spec("64", vec![flow("a", 0, 1, Family::Ipv4, 5, 1.0)], load, 0.004);
    let mut traffic = on_queues(&spec, 1);
    traffic.live().transmit(FlowSelect::All, Pause, Some(ms(1))).unwrap();
    traffic.live().transmit(FlowSelect::All, Resume, Some(ms(3))).unwrap();
    drive(&mut bench, &mut traffic, u64::MAX);
    assert!(notes.borrow().iter().all(|(at, _)| !(MS..3 * MS).contains(at)));
    whole(&merge(&traffic.reports()), 0, 200);
}

/// Uses [`Live`] from within the loop.
struct Acting {
    live: Live,
    acts: Vec<(FlowSelect<'static>, TransmitAction)>,
}

impl Control for Acting {
    fn receive(&mut self, _: usize, _: Arrival<'_>) -> Result<(), PortError> {
        Ok(())
    }
    fn poll(&mut self, now: Instant, _: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        Ok(now + ms(500))
    }
    fn event(&mut self, _: Instant, event: usize, _: &mut SendFrame<'_>) -> Result<bool, PortError> {
        let (which, action) = self.acts[event];
        self.live.transmit(which, action, None).unwrap();
        Ok(true)
    }
    fn stop(&self) -> bool {
        false
    }
}

#[test]
fn commands_come_while_the_loop_runs() {
    let mut spec = two(true);
    let at = |at_s, event| drophammer_model::trial::TimedEvent::new(at_s, event, "act");
    spec.events = vec![at(0.001, 0), at(0.002, 1)];
    let (mut bench, _) = joined(1, u64::MAX);
    let mut traffic = on_queues(&spec, 1);
    let live = traffic.live();
    let mut control = Acting { live, acts: vec![(FlowSelect::Groups(&["b"]), Stop), (FlowSelect::Flows(&[1]), Start)] };
    traffic.drive(&mut bench.ports, &mut bench.clock, &mut control, Instant(u64::MAX)).unwrap();
    let result = merge(&traffic.reports());
    whole(&result, 0, 400);
    whole(&result, 1, 150);
}

/// A command on these flows: given at this time, or timed to take effect then.
#[derive(Clone, Debug)]
struct Told {
    at_ns: u64,
    flows: Vec<usize>,
    action: TransmitAction,
    timed: bool,
}

fn told(flows: usize) -> impl Strategy<Value = Told> {
    let action = prop_oneof![Just(Start), Just(Stop), Just(Pause), Just(Resume)];
    // Often exactly when frames are due.
    let at = prop_oneof![0u64..5_000_000, (0u64..500).prop_map(|n| n * 10_000)];
    (at, proptest::collection::vec(0..flows, 1..4), action, any::<bool>())
        .prop_map(|(at_ns, flows, action, timed)| Told { at_ns, flows, action, timed })
}

/// A load, and flows with a share of it or with schedules of their own.
fn trials() -> impl Strategy<Value = TrialSpec> {
    let load = prop_oneof![
        prop_oneof![Just(100_000.0), 1_000.0f64..400_000.0].prop_map(|rate_pps| Load::Constant { rate_pps }),
        (1u64..1_500, 10_000.0f64..400_000.0).prop_map(|(frames, rate_pps)| Load::Burst { frames, rate_pps }),
        (1_000.0f64..300_000.0, 1_000.0f64..300_000.0).prop_map(|(a, b)| Load::Steps {
            steps: [a, b].map(|rate_pps| LoadStep { duration_s: 0.002, rate_pps }).into()
        }),
    ];
    // Often a rate with frames due at the times of commands.
    let rate = || prop_oneof![Just(100_000.0), 1_000.0f64..200_000.0];
    let duration = prop_oneof![
        Just(FlowDuration::Continuous),
        (1u64..200).prop_map(FlowDuration::Frames),
        (0.0f64..0.004).prop_map(FlowDuration::Seconds),
    ];
    let kind = prop_oneof![
        (1u8..4).prop_map(|weight| flow("", 0, 1, Family::Ipv4, 5, weight.into())),
        (rate(), prop_oneof![Just(0.0), 0.0f64..0.003], duration)
            .prop_map(|(rate, delay, duration)| own("", rate, delay, duration)),
    ];
    (load, proptest::collection::vec((kind, 0usize..2, 0usize..2), 1..6)).prop_map(|(load, flows)| {
        let flow = |(flow, group, from): (FlowSpec, usize, usize)| {
            let (sources, destinations) = if from == 0 { (flow.sources, flow.destinations) } else { both_back(&flow) };
            let group = ["a", "b"][group].to_owned();
            FlowSpec { group, from, to: 1 - from, sources, destinations, ..flow }
        };
        let flows: Vec<_> = flows.into_iter().map(flow).collect();
        TrialSpec { bin_s: Some(0.001), ..spec("64", flows, load, 0.004) }
    })
}

/// Addresses of the reverse direction.
fn both_back(flow: &FlowSpec) -> (AddressRange, drophammer_model::trial::Targets) {
    let back = crate::common::flow("", 1, 0, Family::Ipv4, 5, flow.weight);
    (back.sources, back.destinations)
}

/// Runs `spec` on this many queues with these commands. Gives untimed commands when their time has come.
fn carried_out(spec: &TrialSpec, queues: usize, lose: u64, commands: &[Told]) -> (TrialResult, Vec<(u64, u32)>) {
    let (mut bench, notes) = joined(queues, lose);
    let mut traffic = on_queues(spec, queues);
    let mut commands = commands.to_vec();
    commands.sort_by_key(|told| told.at_ns);
    for told in commands.iter().filter(|told| told.timed) {
        let at = Some(Duration::from_nanos(told.at_ns));
        traffic.live().transmit(FlowSelect::Flows(&told.flows), told.action, at).unwrap();
    }
    for told in commands.iter().filter(|told| !told.timed) {
        drive(&mut bench, &mut traffic, LEAD + told.at_ns);
        if !traffic.is_over() {
            traffic.live().transmit(FlowSelect::Flows(&told.flows), told.action, None).unwrap();
        }
    }
    drive(&mut bench, &mut traffic, u64::MAX);
    (merge(&traffic.reports()), notes.take())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_leaves_is_what_the_schedule_says_while_a_flow_sends(
        (spec, commands) in trials().prop_flat_map(|spec| {
            let flows = spec.flows.len();
            (Just(spec), proptest::collection::vec(told(flows), 0..8))
        }),
        queues in 1usize..4, lose in prop_oneof![Just(u64::MAX), 3u64..20]
    ) {
        // The trial without commands sends every frame on time.
        let planned = {
            let (mut bench, notes) = joined(queues, u64::MAX);
            let plan = planned(&spec, Layout::queues(&[queues; 2], 1), 200_000);
            // A plan without frames, or a flow without a load, is not a case.
            prop_assume!(plan.is_ok());
            let mut traffic = Traffic::new(plan.unwrap());
            drive(&mut bench, &mut traffic, u64::MAX);
            notes.take()
        };
        let (result, departed) = carried_out(&spec, queues, lose, &commands);
        // In order of time; of simultaneous commands, timed ones were given first.
        let mut commands = commands;
        commands.sort_by_key(|told| (told.at_ns, !told.timed));
        let state = |flow: u32, at: u64| {
            let until = commands.iter().filter(|told| told.at_ns <= at && told.flows.contains(&(flow as usize)));
            until.fold(Transmit::Started, |state, told| match (told.action, state) {
                (Start, _) | (Resume, Transmit::Paused) => Transmit::Started,
                (Stop, _) => Transmit::Stopped,
                (Pause, Transmit::Started) => Transmit::Paused,
                (Pause | Resume | TransmitAction::DropBacklog, state) => state,
            })
        };
        let mut expected: Vec<_> =
            planned.into_iter().filter(|(at, flow)| state(*flow, *at) == Transmit::Started).collect();
        let mut departures = departed.clone();
        // Simultaneous frames of several flows and queues leave in any order.
        expected.sort_unstable();
        departures.sort_unstable();
        prop_assert_eq!(&departures, &expected);
        let mut by_group: BTreeMap<&str, Vec<(u64, bool)>> = BTreeMap::new();
        for (i, (at, flow)) in departed.iter().enumerate() {
            let lost = (i as u64 + 1).is_multiple_of(lose);
            by_group.entry(&spec.flows[*flow as usize].group).or_default().push((*at, lost));
        }
        for g in &result.groups {
            let frames = by_group.remove(g.group.as_str()).unwrap_or_default();
            let (sent, lost) = (frames.len() as u64, frames.iter().filter(|(_, lost)| *lost).count() as u64);
            prop_assert_eq!((g.intended, g.offered, g.received, g.lost), (sent, sent, sent - lost, lost));
            prop_assert_eq!((g.duplicated, g.reordered, g.corrupted, g.stray, g.refused), (0, 0, 0, 0, 0));
            let last = frames.iter().filter(|(_, lost)| *lost).map(|(at, _)| *at).max();
            // The last frame of a step may leave a nanosecond after the first frame of the next step is due.
            prop_assert_eq!(g.last_loss_ns.is_some(), last.is_some());
            let (told, last) = (g.last_loss_ns.unwrap_or(0), last.unwrap_or(0));
            prop_assert!(last - told <= 1, "{last} {told}");
            let bins: Vec<u64> = g.bins.iter().map(|bin| bin.offered).collect();
            let mut expected = vec![0; bins.len()];
            frames.iter().for_each(|(at, _)| expected[(at / MS) as usize] += 1);
            prop_assert_eq!(bins, expected);
        }
        prop_assert_eq!(result.health.unsent, 0);
    }
}
