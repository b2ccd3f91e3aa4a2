//! The same frames at the same times give the same result on any number of lanes and queues.

use super::*;
use crate::engine::LaneState;
use crate::lane_report::Refusals;
use crate::plan::{Layout, Neighbour, Plan, Timing};
use drophammer_model::quantity::Instant;
use drophammer_model::traffic::Arriving;
use drophammer_model::trial::{AddressRange, DestinationCounts, FlowSpec, Load, LoadStep, TrialSpec};
use drophammer_port::{Arrival, BURST, Batch, Port, PortCounters, PortError, PortInfo, Received, Sent};
use drophammer_wire::signature::{LEN, Signature, TrialKey};
use drophammer_wire::stack::locate;
use drophammer_wire::{MacAddr, checksum};
use proptest::prelude::*;

/// A port that stores all frames and refuses every n-th frame.
struct Catch {
    info: PortInfo,
    slots: Batch,
    frames: Vec<Vec<u8>>,
    refuse_every: u64,
}

/// Creates port `port`, which refuses every n-th frame.
fn caught(port: usize, refuse_every: u64, refusal_is_device_loss: bool) -> Catch {
    let info = PortInfo {
        refusal_is_device_loss,
        ..PortInfo::new(&format!("c{port}"), &drophammer_port::memory::SPEC, "none", MacAddr::local(port as u64), 1_500)
    };
    Catch { info, slots: Batch::new(BURST, 2_048), frames: vec![], refuse_every }
}

fn signature_of(frame: &[u8]) -> Signature {
    Signature::read(frame[frame.len() - LEN..].try_into().unwrap()).0
}

/// Returns the number that decides the fate of a frame. It does not depend on the queue that sends the frame.
fn number_of(frame: &[u8]) -> u64 {
    let Signature { flow, sequence, .. } = signature_of(frame);
    (u64::from(flow) << 32 | u64::from(sequence)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

impl Port for Catch {
    fn info(&self) -> &PortInfo {
        &self.info
    }
    fn slots(&mut self) -> &mut Batch {
        &mut self.slots
    }
    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        for i in 0..frames {
            if number_of(self.slots.frame(i)).is_multiple_of(self.refuse_every) {
                sent.refused += 1;
                sent.refused_mask |= 1 << i;
            } else {
                sent.accepted += 1;
                self.frames.push(self.slots.frame(i).to_vec());
            }
        }
        Ok(sent)
    }
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        unreachable!("arrivals are handed to the analyzers")
    }
    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }
}

/// What a device does to every n-th frame, with n at least 1.
#[derive(Clone, Debug)]
struct Faults {
    lose: u64,
    twice: u64,
    astray: u64,
    corrupt: u64,
    stale: u64,
    late: u64,
    refuse: u64,
    refusal_is_loss: bool,
}

const NEVER: u64 = u64::MAX;
const HARMLESS: Faults = Faults {
    lose: NEVER,
    twice: NEVER,
    astray: NEVER,
    corrupt: NEVER,
    stale: NEVER,
    late: NEVER,
    refuse: NEVER,
    refusal_is_loss: true,
};

const START: Instant = Instant(1_000_000);
const MS: u64 = 1_000_000;

fn timing() -> Timing {
    let (key, earlier) = (TrialKey::new(1, 2), vec![TrialKey::new(1, 1)]);
    Timing { seed: 3, key, earlier, max_backlog_ns: 10 * MS, late_ns: 2 * MS }
}

fn planned(spec: &TrialSpec, layout: Layout) -> Plan {
    let neighbour = |i| Neighbour {
        mac: MacAddr::local(i),
        device_ipv4: Some(MacAddr(*b"device")),
        device_ipv6: Some(MacAddr(*b"device")),
        vlans: Vec::new(),
    };
    let ports: Vec<_> = (0..layout.ports() as u64).map(neighbour).collect();
    Plan::on_lanes(spec, &ports, &timing(), layout).unwrap()
}

/// Returns the plan of a started trial, and the frames that port 0 sends in its first millisecond.
fn begun(spec: &TrialSpec, layout: Layout) -> (Plan, Vec<Vec<u8>>) {
    let mut plan = planned(spec, layout);
    plan.parts.iter_mut().for_each(|part| part.begin(START));
    let mut catch = caught(0, NEVER, false);
    while plan.parts[0].generators[0].send_due(&mut catch, Instant(START.0 + MS)).unwrap() > 0 {}
    (plan, catch.frames)
}

/// Lets a frame of [`begun`] arrive at `queue`.
fn arrive(plan: &mut Plan, queue: usize, frame: &[u8]) {
    let arrival = Arrival { frame, at: Instant(START.0 + MS + 500) };
    plan.parts[plan.layout.lane_of_queue(queue)].analyzer.take(queue, arrival);
}

fn result_of(plan: &mut Plan, lanes: usize) -> TrialResult {
    let states: Vec<LaneState> = (0..lanes).map(|_| LaneState::through(0, 0, 0, 0)).collect();
    merge(&plan.reports(&states.iter().collect::<Vec<_>>(), 0, &Refusals::default()))
}

/// Signs a frame as a frame of another trial, with the correct UDP checksum.
fn sign(frame: &mut [u8], signature: &Signature, key: TrialKey) {
    let tail = frame.len() - LEN;
    let udp = if frame[12..14] == [0x08, 0x00] { 34 } else { 54 };
    assert_eq!((tail - udp) % 2, 0, "words of the checksum are those of the signature");
    let word = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    let new = signature.emit(key);
    let mut sum = word(&frame[udp + 6..]);
    for i in (0..LEN).step_by(2) {
        sum = checksum::update(sum, word(&frame[tail + i..]), word(&new[i..]));
    }
    frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    frame[tail..].copy_from_slice(&new);
}

/// Returns the queue at which a device delivers a frame, by the number of the frame.
type Spread = fn(u64) -> usize;

/// Runs the trial with fixed times, without real ports and threads.
fn carried_out(spec: &TrialSpec, layout: Layout, faults: &Faults, spread: Spread) -> TrialResult {
    carried_out_by(&mut [planned(spec, layout)], spec, faults, spread, 0)
}

/// Like [`carried_out`], with a plan for each host. The reports of lanes are merged in another order for each `order`.
fn carried_out_by(plans: &mut [Plan], spec: &TrialSpec, faults: &Faults, spread: Spread, order: usize) -> TrialResult {
    let ports = plans[0].layout.ports();
    plans.iter_mut().flat_map(|plan| &mut plan.parts).for_each(|part| part.begin(START));
    // Host and queue of each port, and the frames that left there.
    let queues = |(host, plan): (usize, &Plan)| plan.layout.here().map(|queue| (host, queue)).collect::<Vec<_>>();
    let queues: Vec<(usize, usize)> = plans.iter().enumerate().flat_map(queues).collect();
    let host_of: Vec<usize> = (0..ports)
        .map(|port| queues.iter().find(|(host, queue)| plans[*host].layout.port_of(*queue) == port).unwrap().0)
        .collect();
    let mut catches: Vec<Catch> = queues
        .iter()
        .map(|(host, queue)| caught(plans[*host].layout.port_of(*queue), faults.refuse, faults.refusal_is_loss))
        .collect();
    // Frames in flight: arrival, order, host and queue, frame.
    type InFlight = (u64, u64, (usize, usize), Vec<u8>);
    let mut under_way: Vec<InFlight> = Vec::new();
    for step in 0..400 {
        let now = Instant(START.0 + step * 37_003);
        for ((host, queue), catch) in queues.iter().copied().zip(&mut catches) {
            let plan = &mut plans[host];
            let generators = &mut plan.parts[plan.layout.lane_of_queue(queue)].generators;
            let Some(generator) = generators.iter_mut().find(|g| g.queue() == queue) else { continue };
            while generator.send_due(catch, now).unwrap() > 0 {}
            for mut frame in catch.frames.drain(..) {
                let number = number_of(&frame);
                let nth = |every: u64| number.is_multiple_of(every);
                let flow = signature_of(&frame).flow as usize;
                let to = if nth(faults.astray) { (spec.flows[flow].to + 1) % ports } else { spec.flows[flow].to };
                // Like a router, the device replaces its own address with the address of the host on the output port.
                frame[..6].copy_from_slice(&MacAddr::local(to as u64).0);
                if nth(faults.lose) {
                    continue;
                }
                if nth(faults.corrupt) {
                    // Anywhere at the end of the datagram, including the flow number.
                    let at = frame.len() - 1 - (number as usize * 7) % 20;
                    frame[at] ^= 1 << (number % 8);
                }
                if nth(faults.stale) {
                    let signature = signature_of(&frame);
                    sign(&mut frame, &signature, TrialKey::new(1, 1));
                }
                let delay = if nth(faults.late) { 3 * MS } else { 20_000 + number * 7_919 % 90_000 };
                let at = now.0 + delay;
                // Copies have the same addresses, so they arrive at the same queue.
                let of_port = plans[host_of[to]].layout.queues_of(to);
                let to = (host_of[to], of_port.start + spread(number) % of_port.len());
                under_way.push((at, number, to, frame.clone()));
                if nth(faults.twice) {
                    under_way.push((at + 500, number, to, frame));
                }
            }
        }
    }
    under_way.sort();
    for burst in under_way.chunk_by(|(_, _, a, _), (_, _, b, _)| a == b) {
        let (host, queue) = burst[0].2;
        let get = |i: usize| Arrival { frame: &burst[i].3, at: Instant(burst[i].0) };
        let plan = &mut plans[host];
        let analyzer = &mut plan.parts[plan.layout.lane_of_queue(queue)].analyzer;
        analyzer.take_burst(queue, burst.len(), get, |_| Ok::<_, ()>(())).unwrap();
    }
    let mut refusals = Refusals::default();
    plans.iter().for_each(|plan| refusals.join(plan.refusals()));
    let mut reports = Vec::new();
    for plan in plans {
        let lanes = 0..plan.layout.lanes() as u64;
        let states: Vec<LaneState> = lanes.map(|lane| LaneState::through(lane, 2 * lane, 1, 1)).collect();
        reports.extend(plan.reports(&states.iter().collect::<Vec<_>>(), 5, &refusals));
    }
    let rotated = order % reports.len();
    reports.rotate_left(rotated);
    if order.is_multiple_of(2) {
        reports.reverse();
    }
    // A report is data: it does not change when it is written and read again.
    let told = serde_json::to_string(&reports).unwrap();
    let read: Vec<LaneReport> = serde_json::from_str(&told).unwrap();
    assert_eq!(read, reports);
    merge(&read)
}

fn flow(group: u8, from: usize, to: usize, ipv6: bool, weight: f64) -> FlowSpec {
    let first = if ipv6 { "2001:2::1" } else { "198.18.0.1" };
    let range = |count| AddressRange { first: first.parse().unwrap(), step: 1, count };
    FlowSpec { weight, ..FlowSpec::new(format!("g{group}"), from, to, range(3), range(5)) }
}

fn trial(flows: Vec<FlowSpec>, load: Load, size: &str) -> TrialSpec {
    TrialSpec {
        purpose: String::new(),
        size: size.parse().unwrap(),
        flows,
        load,
        duration_s: 0.01,
        bin_s: Some(0.001),
        drain_s: 0.02,
        events: vec![],
    }
}

fn loads() -> impl Strategy<Value = Load> {
    prop_oneof![
        (1e4..3e5f64).prop_map(|rate_pps| Load::Constant { rate_pps }),
        (1u64..3_000).prop_map(|frames| Load::Burst { frames, rate_pps: 3e5 }),
        (1e4..2e5f64, 1e4..2e5f64).prop_map(|(a, b)| Load::Steps {
            steps: [a, b].map(|rate_pps| LoadStep { rate_pps, duration_s: 0.005 }).to_vec(),
        }),
    ]
}

prop_compose! {
    fn all_faults()(
        every in proptest::array::uniform7(1u64..60), without in proptest::array::uniform7(any::<bool>()), refusal_is_loss: bool
    ) -> Faults {
        let every: Vec<u64> =
            every.iter().zip(without).map(|(every, without)| if without { NEVER } else { every + 1 }).collect();
        let [lose, twice, astray, corrupt, stale, late, refuse] = every.try_into().unwrap();
        Faults { lose, twice, astray, corrupt, stale, late, refuse, refusal_is_loss }
    }
}

/// Removes figures that depend on the lanes.
fn of_all_lanes(mut result: TrialResult) -> TrialResult {
    let health = &mut result.health;
    (health.max_gap_ns, health.gaps_over_1ms_ns, health.other_received, health.receive_drops) = (0, 0, 0, 0);
    result
}

/// Removes counts of frame order if the order is not known for all frames. Also removes departure errors, because there
/// is one per burst, and each queue has its own bursts.
fn without_order(mut result: TrialResult, also_of: &TrialResult) -> TrialResult {
    (result.health.departure_error, result.health.departure_errors) = (vec![], vec![]);
    for (g, other) in result.groups.iter_mut().zip(&also_of.groups) {
        if g.order_unknown > 0 || other.order_unknown > 0 {
            (g.order_unknown, g.reordered, g.reordered_3, g.in_sequence, g.max_reordering_extent) = (0, 0, 0, 0, 0);
        }
    }
    result
}

/// Checks that counts by destination agree with their summaries, and with the counts of groups.
fn by_destination_as_by_flow(result: &TrialResult) {
    let sum = |counts: &[u32]| counts.iter().map(|n| u64::from(*n)).sum::<u64>();
    let offered: u64 = result.destinations.iter().map(|d| sum(&d.offered)).sum();
    let received: u64 = result.destinations.iter().map(|d| sum(&d.received)).sum();
    for (i, d) in result.destinations.iter().enumerate() {
        assert_eq!(d.summary(), result.destination_summaries[i]);
        for i in 0..d.offered.len() {
            let never = DestinationCounts::NEVER;
            assert_eq!((d.lost(i) == 0, d.lost(i) == 0), (d.first_lost_us[i] == never, d.last_lost_us[i] == never));
            assert!(
                d.first_lost_us[i] <= d.last_lost_us[i] && (d.lost(i) != 1 || d.first_lost_us[i] == d.last_lost_us[i])
            );
        }
    }
    assert!(offered <= result.offered() && received <= result.received());
    for g in &result.groups {
        assert!(g.arrived_at.is_empty() && g.stray == 0 || g.arrived_at.iter().sum::<u64>() == g.received + g.stray);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn lanes_make_no_difference(
        ports in 2usize..6, also in 0u8..4, counted in 0u8..4,
        flows in proptest::collection::vec((0u8..3, 0usize..6, 0usize..6, any::<bool>(), 1u8..4), 1..20),
        load in loads(), size in proptest::sample::select(&["64", "128", "imix"]), faults in all_faults(), lanes in 2usize..6
    ) {
        let mut flows: Vec<_> =
            flows.into_iter().map(|(g, a, b, v6, w)| flow(g, a % ports, b % ports, v6, w.into())).collect();
        for (i, flow) in flows.iter_mut().enumerate() {
            // For these flows, stray frames arrive at a valid port.
            if also == 1 || also == 2 && i % 3 == 0 {
                flow.also = vec![(flow.to + 1) % ports];
            }
            flow.per_destination = counted == 1 || counted == 2 && i % 2 == 0;
        }
        let spec = trial(flows, load, size);
        let one = carried_out(&spec, Layout::one(ports), &faults, |_| 0);
        let many = carried_out(&spec, Layout::round_robin(ports, lanes).for_flows(&spec.flows), &faults, |_| 0);
        by_destination_as_by_flow(&one);
        prop_assert_eq!(of_all_lanes(one), of_all_lanes(many));
    }

    /// Hosts have one to three ports each, with up to two lanes and with one or two queues per port.
    #[test]
    fn hosts_make_no_difference(
        hosts in proptest::collection::vec((1usize..4, 1usize..3, 1usize..3), 1..4), place in any::<usize>(),
        counted in 0u8..4, flows in proptest::collection::vec((0u8..3, 0usize..9, 0usize..9, any::<bool>(), 1u8..4), 1..20),
        load in loads(), size in proptest::sample::select(&["64", "128", "imix"]), faults in all_faults(), order in 0usize..20
    ) {
        let ports: usize = hosts.iter().map(|(ports, ..)| ports).sum();
        let mut flows: Vec<_> =
            flows.into_iter().map(|(g, a, b, v6, w)| flow(g, a % ports, b % ports, v6, w.into())).collect();
        for (i, flow) in flows.iter_mut().enumerate() {
            flow.per_destination = counted == 1 || counted == 2 && i % 2 == 0;
        }
        let spec = trial(flows, load, size);
        // The ports of a host are not adjacent in the trial.
        let mut of_trial: Vec<usize> = (0..ports).collect();
        (0..ports).for_each(|port| of_trial.swap(port, place.wrapping_mul(port + 7) % ports));
        let mut plans = Vec::new();
        for (count, lanes, queues) in hosts {
            let mut places: Vec<usize> = of_trial.drain(..count).collect();
            places.sort_unstable();
            let layout = Layout::queues(&vec![queues; count], lanes).on_host(&places, ports);
            plans.push(planned(&spec, layout.for_flows(&spec.flows)));
        }
        let many = carried_out_by(&mut plans, &spec, &faults, |_| 1, order);
        let one = carried_out(&spec, Layout::one(ports), &faults, |_| 0);
        by_destination_as_by_flow(&many);
        let (many, one) = (of_all_lanes(without_order(many.clone(), &one)), of_all_lanes(without_order(one, &many)));
        prop_assert_eq!(one, many);
    }

    #[test]
    fn every_split_of_flows_to_queues_gives_the_same_counts(
        queues in proptest::collection::vec(1usize..4, 2..5), also in 0u8..4, counted in 0u8..4,
        flows in proptest::collection::vec((0u8..3, 0usize..6, 0usize..6, any::<bool>(), 1u8..4), 1..20),
        load in loads(), size in proptest::sample::select(&["64", "128", "imix"]), faults in all_faults(), lanes in 1usize..6,
        spread in 0usize..4
    ) {
        let ports = queues.len();
        let mut flows: Vec<_> =
            flows.into_iter().map(|(g, a, b, v6, w)| flow(g, a % ports, b % ports, v6, w.into())).collect();
        for (i, flow) in flows.iter_mut().enumerate() {
            if also == 1 && i % 3 == 0 {
                flow.also = vec![(flow.to + 1) % ports];
            }
            flow.per_destination = counted == 1 && i % 2 == 0;
        }
        let spec = trial(flows, load, size);
        // Round robin, random, in runs, or all at the last queue.
        let ways: [Spread; 4] = [|n| n as usize, |n| n as usize / 7, |n| (n / 10_000) as usize, |_| 11];
        let one = carried_out(&spec, Layout::one(ports), &faults, |_| 0);
        let many = carried_out(&spec, Layout::queues(&queues, lanes).for_flows(&spec.flows), &faults, ways[spread]);
        by_destination_as_by_flow(&many);
        prop_assert_eq!(many.health.copies_apart, 0);
        for (g, whole) in many.groups.iter().zip(&one.groups) {
            prop_assert!(g.order_unknown <= g.received && whole.order_unknown == 0);
            prop_assert!(g.reordered <= whole.reordered && g.in_sequence <= whole.in_sequence, "{:?} {:?}", g, whole);
        }
        // If all frames of a port arrive at one queue, their order is known, except with alternate ports.
        prop_assert!(spread < 3 || also == 1 || many.groups.iter().all(|g| g.order_unknown == 0));
        let (many, one) = (of_all_lanes(without_order(many.clone(), &one)), of_all_lanes(without_order(one, &many)));
        prop_assert_eq!(one, many);
    }
}

#[test]
fn order_between_queues_is_not_known_and_copies_on_two_lanes_are_told() {
    // Two flows to port 1; the frames of each are distributed over its queues round robin.
    let spec = trial(vec![flow(0, 0, 1, false, 1.0), flow(1, 0, 1, true, 1.0)], Load::Constant { rate_pps: 1e5 }, "64");
    let faults = Faults { lose: 31, twice: 7, ..HARMLESS };
    let one = carried_out(&spec, Layout::one(2), &faults, |_| 0);
    let mut told = Vec::new();
    for lanes in [1, 2] {
        let many = carried_out(&spec, Layout::queues(&[1, 2], lanes), &faults, |n| n as usize);
        for (g, whole) in many.groups.iter().zip(&one.groups) {
            assert_eq!((g.received, g.lost, g.duplicated), (whole.received, whole.lost, whole.duplicated));
            assert_eq!((g.order_unknown, g.reordered, g.in_sequence), (g.received, 0, 0), "{lanes} lanes");
            assert!(whole.lost > 0 && whole.duplicated > 0 && whole.reordered > 0 && whole.order_unknown == 0);
        }
        // Copies that arrive at a different queue than the frame are counted correctly on one lane, and reported on two.
        let (mut plan, frames) = begun(&spec, Layout::queues(&[1, 2], lanes));
        let sent = frames.len() as u64;
        for (n, mut frame) in frames.into_iter().enumerate() {
            frame[..6].copy_from_slice(&MacAddr::local(1).0);
            for queue in [1 + n % 2, 2 - n % 2].into_iter().take(if n < 10 { 2 } else { 1 }) {
                arrive(&mut plan, queue, &frame);
            }
        }
        let result = result_of(&mut plan, lanes);
        let sum = |count: fn(&GroupCounts) -> u64| result.groups.iter().map(count).sum::<u64>();
        assert_eq!((sum(|g| g.received), sum(|g| g.duplicated), sum(|g| g.lost)), (sent, 10, 0));
        told.push(result.health.copies_apart);
    }
    assert_eq!(told, [0, 10]);
}

#[test]
fn the_order_at_a_port_that_merges_queues_of_a_card_is_not_known() {
    // Frames overtake each other on the way to both ports. At port 1, the tester's card may have caused that.
    let flows = [1, 0].map(|to: usize| flow(to as u8, 1 - to, to, false, 1.0));
    let spec = trial(flows.to_vec(), Load::Constant { rate_pps: 1e5 }, "64");
    let faults = Faults { lose: 31, twice: 7, ..HARMLESS };
    for lanes in [1, 2] {
        let layout = Layout::round_robin(2, lanes);
        let known = carried_out(&spec, layout.clone(), &faults, |_| 0);
        assert!(known.groups.iter().all(|g| g.order_unknown == 0 && g.reordered > 0));
        let merged = carried_out(&spec, layout.merging(1).for_flows(&spec.flows), &faults, |_| 0);
        for (g, whole) in merged.groups.iter().zip(&known.groups) {
            assert_eq!((g.received, g.lost, g.duplicated), (whole.received, whole.lost, whole.duplicated));
            let unknown = g.group == "g1";
            assert_eq!(g.order_unknown, if unknown { g.received } else { 0 }, "{lanes} lanes");
            assert_eq!(g.known_reordered(), (!unknown).then_some(whole.reordered));
        }
    }
}

#[test]
fn a_frame_that_differs_counts_once_at_the_queues_of_any_number_of_lanes() {
    let arrives = Some(Arriving { ttl: Some(64), ..Arriving::default() });
    let flow = FlowSpec { arrives, ..flow(0, 0, 1, false, 1.0) };
    let spec = trial(vec![flow], Load::Constant { rate_pps: 1e5 }, "64");
    let mut results = Vec::new();
    for lanes in [1, 2] {
        let (mut plan, frames) = begun(&spec, Layout::queues(&[1, 2], lanes));
        assert_eq!(frames.len(), 32);
        for (n, mut whole) in frames.into_iter().enumerate() {
            whole[..6].copy_from_slice(&MacAddr::local(1).0);
            let mut other = whole.clone();
            other[22] = 9;
            let sums: Vec<_> = locate(&other).checksums(&other).collect();
            sums.iter().for_each(|sum| sum.write(&mut other));
            // The arrivals at each of the two queues.
            let copies: &[(usize, &[u8])] = match n % 6 {
                // With a deviation: once at both queues; twice at one queue and once at the other; after or before an
                // arrival as expected; once.
                0 => &[(1, &other), (2, &other)],
                1 => &[(1, &other), (1, &other), (2, &other)],
                2 => &[(1, &whole), (2, &other)],
                3 => &[(1, &other), (2, &whole), (1, &other)],
                4 => &[(2, &other)],
                _ => &[],
            };
            for (queue, frame) in copies {
                arrive(&mut plan, *queue, frame);
            }
        }
        let result = result_of(&mut plan, lanes);
        let group = &result.groups[0];
        assert_eq!((group.offered, group.received, result.health.copies_apart), (32, 10, 0));
        results.push((group.deviations.clone(), group.deviating_copies));
    }
    // Six frames of each of the first two kinds, and five of each other kind.
    assert_eq!(results[0], (BTreeMap::from([(Deviation::Ttl, 6 + 6 + 5)]), 6 + 12 + 5 + 10));
    assert_eq!(results[0], results[1]);
}

#[test]
fn every_count_is_carried_over() {
    let pairs = [(0, 1), (1, 0), (2, 3), (3, 2), (0, 3), (1, 2)];
    let flows: Vec<_> =
        pairs.iter().enumerate().map(|(i, (a, b))| flow(i as u8 % 2, *a, *b, i % 3 == 0, 1.0)).collect();
    let spec = trial(flows, Load::Constant { rate_pps: 2e5 }, "imix");
    let faults =
        Faults { lose: 31, twice: 7, astray: 11, corrupt: 13, stale: 17, late: 5, refuse: 19, refusal_is_loss: true };
    let one = carried_out(&spec, Layout::one(4), &faults, |_| 0);
    for g in &one.groups {
        let counts =
            [g.lost, g.refused, g.duplicated, g.reordered, g.reordered_3, g.late, g.corrupted, g.stray, g.in_sequence];
        assert!(counts.iter().all(|n| *n > 0) && g.last_loss_ns.is_some() && g.max_reordering_extent > 0, "{g:#?}");
    }
    assert!(one.health.stale > 0);
    for layout in [Layout::round_robin(4, 4), Layout::round_robin(4, 3), Layout::round_robin(4, 2)] {
        let lanes = layout.lanes() as u64;
        let many = carried_out(&spec, layout, &faults, |_| 0);
        let health = &many.health;
        assert_eq!((health.max_gap_ns, health.gaps_over_1ms_ns), (lanes - 1, 2 * (lanes - 1)), "the worst lane's");
        assert_eq!((health.other_received, health.receive_drops), (lanes, lanes), "the sum of all lanes");
        assert_eq!(of_all_lanes(one.clone()), of_all_lanes(many));
    }
}

#[test]
fn a_layout_has_no_lane_without_a_port() {
    for (ports, lanes) in [(1, 1), (2, 1), (2, 2), (2, 9), (5, 3), (8, 3), (3, 0)] {
        let layout = Layout::round_robin(ports, lanes);
        assert_eq!(layout.lanes(), lanes.clamp(1, ports));
        let used: std::collections::BTreeSet<_> = (0..ports).map(|port| layout.lane_of(port)).collect();
        assert_eq!(used.into_iter().collect::<Vec<_>>(), (0..layout.lanes()).collect::<Vec<_>>());
    }
    let lanes = |layout: Layout| (0..4).map(|port| layout.lane_of(port)).collect::<Vec<_>>();
    assert_eq!(lanes(Layout::round_robin(4, 2)), [0, 1, 0, 1]);
}
