//! Small exact devices in virtual time, and a bench that runs trials through them.

#![allow(dead_code)] // each test file uses its part

use drophammer_model::quantity::Instant;
use drophammer_model::trial::{AddressRange, Family, FlowSpec, GroupCounts, Load, TrialResult, TrialSpec};
use drophammer_port::simulated::{self, SimulatedClock};
use drophammer_port::{Arrival, Clock, Port, PortError};
use drophammer_traffic::{Control, Neighbour, Plan, PlanError, SendFrame, Timing, VlanNeighbour, run};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::{Signature, TrialKey};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

pub const RUN: u64 = 0x1234_5678_9abc;
pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
/// Default delay of devices.
pub const DELAY: u64 = 12_345;

/// A frame that reaches a device.
pub struct Offered<'a> {
    /// Number among all frames, from 1.
    pub number: u64,
    pub at: Instant,
    pub port: usize,
    pub frame: &'a [u8],
}

impl Offered<'_> {
    /// The other port of its pair.
    pub fn other(&self) -> usize {
        self.port ^ 1
    }

    /// The unchanged frame, `delay` ns later, at the other port of its pair.
    pub fn on(&self, delay: u64) -> Out {
        Out { at: Instant(self.at.0 + delay), port: self.other(), frame: self.frame.to_vec() }
    }

    /// True for every `n`-th frame.
    pub fn nth(&self, n: u64) -> bool {
        self.number.is_multiple_of(n)
    }
}

/// A frame that leaves a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    pub at: Instant,
    pub port: usize,
    pub frame: Vec<u8>,
}

/// Address of the device at `port`.
pub fn device_mac(port: usize) -> MacAddr {
    MacAddr::local(100 + port as u64)
}

type Behaviour = Box<dyn FnMut(&Offered<'_>, &mut Vec<Out>)>;

/// Time, order, port and bytes.
type Waiting = (Instant, u64, usize, Vec<u8>);

/// A device that applies a behaviour to each frame.
pub struct Device {
    behaviour: Behaviour,
    seen: u64,
    sent: u64,
    out: BinaryHeap<Reverse<Waiting>>,
    scratch: Vec<Out>,
}

impl simulated::Device for Device {
    fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
        self.seen += 1;
        (self.behaviour)(&Offered { number: self.seen, at: now, port, frame }, &mut self.scratch);
        for mut out in self.scratch.drain(..) {
            self.sent += 1;
            // Like a router, the device replaces its own address by the address of the host at the output port.
            if out.frame.get(..6) == Some(&device_mac(port).0) {
                out.frame[..6].copy_from_slice(&MacAddr::local(out.port as u64).0);
            }
            self.out.push(Reverse((out.at, self.sent, out.port, out.frame)));
        }
    }

    fn poll(&mut self, now: Instant, deliver: &mut dyn FnMut(Instant, usize, &[u8])) {
        while self.out.peek().is_some_and(|o| o.0.0 <= now) {
            let Some(Reverse((at, _, port, frame))) = self.out.pop() else { return };
            deliver(at, port, &frame);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.out.peek().map(|o| o.0.0)
    }
}

/// Hosts that send nothing and keep the frames they receive.
#[derive(Default)]
pub struct Still {
    pub handed: Vec<Vec<u8>>,
}

impl Control for Still {
    fn receive(&mut self, _: usize, arrival: Arrival<'_>) -> Result<(), PortError> {
        self.handed.push(arrival.frame.to_vec());
        Ok(())
    }

    fn poll(&mut self, now: Instant, _: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        Ok(now + Duration::from_millis(500))
    }

    fn stop(&self) -> bool {
        false
    }
}

/// Ports, clock and device; trials run one after the other.
pub struct Bench {
    pub clock: SimulatedClock,
    pub ports: Vec<Box<dyn Port>>,
    pub control: Still,
    trials: u64,
}

pub fn key(trial: u64) -> TrialKey {
    TrialKey::new(RUN, trial)
}

impl Bench {
    pub fn new(ports: usize, behaviour: impl FnMut(&Offered<'_>, &mut Vec<Out>) + 'static) -> Bench {
        let device =
            Device { behaviour: Box::new(behaviour), seen: 0, sent: 0, out: BinaryHeap::new(), scratch: Vec::new() };
        let macs: Vec<_> = (0..ports as u64).map(MacAddr::local).collect();
        let (clock, ports) = simulated::world(Box::new(device), &macs, 9_198);
        let ports = ports.into_iter().map(|p| Box::new(p) as Box<dyn Port>).collect();
        Bench { clock, ports, control: Still::default(), trials: 0 }
    }

    /// Plans the next trial.
    pub fn plan(&mut self, spec: &TrialSpec) -> Plan {
        self.try_plan(spec).unwrap()
    }

    /// Plans the next trial.
    pub fn try_plan(&mut self, spec: &TrialSpec) -> Result<Plan, PlanError> {
        self.trials += 1;
        let timing = Timing {
            seed: 7,
            key: key(self.trials),
            earlier: (1..self.trials).map(key).collect(),
            max_backlog_ns: 200_000,
            late_ns: SECOND,
        };
        let neighbours: Vec<_> = (0..self.ports.len() as u64)
            .map(|i| Neighbour {
                mac: MacAddr::local(i),
                device_ipv4: Some(device_mac(i as usize)),
                device_ipv6: Some(device_mac(i as usize)),
                vlans: [vec![100], vec![100, 200]]
                    .map(|vids| VlanNeighbour {
                        vids,
                        mac: MacAddr::local(i),
                        device_ipv4: Some(device_mac(i as usize)),
                        device_ipv6: Some(device_mac(i as usize)),
                    })
                    .into(),
            })
            .collect();
        Plan::new(spec, &neighbours, &timing)
    }

    /// Runs the next trial.
    pub fn run(&mut self, spec: &TrialSpec) -> TrialResult {
        let plan = self.plan(spec);
        let result = run(plan, &mut self.ports, &mut self.clock, &mut self.control).unwrap();
        reconcile(spec, &result);
        result
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) {
        let until = self.clock.now() + time;
        while self.clock.now() < until {
            self.clock.wait(until);
        }
    }
}

/// Checks what holds for every trial, whatever the device does.
pub fn reconcile(spec: &TrialSpec, result: &TrialResult) {
    reconcile_episodes(result);
    if spec.flows.iter().all(|flow| flow.schedule.is_none()) {
        assert_eq!(result.intended(), spec.intended_per_port() * spec.senders().len() as u64);
    }
    for g in &result.groups {
        assert_eq!(g.offered, g.received + g.lost, "{g:?}");
        assert_eq!(g.latency.frames, g.received, "{g:?}");
        assert!(g.deviations.values().sum::<u64>() <= g.lost, "{g:?}");
        assert_eq!(g.last_loss_ns.is_some(), g.lost > 0, "{g:?}");
        assert!(g.late <= g.received && g.reordered_3 <= g.reordered && g.in_sequence <= g.received, "{g:?}");
        if spec.bin_s.is_some() {
            assert_eq!(g.bins.iter().map(|b| b.offered).sum::<u64>(), g.offered, "{g:?}");
            assert_eq!(g.bins.iter().map(|b| b.delivered).sum::<u64>(), g.received, "{g:?}");
            assert!(g.bins.iter().all(|b| b.delivered <= b.offered), "{g:?}");
            assert_eq!(g.bins.iter().map(|b| b.arrived).sum::<u64>(), g.received, "{g:?}");
        }
    }
}

/// Checks that episodes have every lost frame, end with the last one, and do not touch.
fn reconcile_episodes(result: &TrialResult) {
    let episodes = &result.losses.episodes;
    assert_eq!(result.losses.lost(), result.lost(), "{:?}", result.losses);
    let last = result.groups.iter().filter_map(|g| g.last_loss_ns).max();
    assert_eq!(episodes.iter().map(|e| e.to_ns).max(), last, "{:?}", result.losses);
    for e in episodes {
        assert!(e.from_ns <= e.to_ns && e.lost > 0 && e.flows > 0, "{e:?}");
        assert!(e.groups.iter().all(|g| result.groups[*g].lost > 0) && !e.groups.is_empty(), "{e:?}");
    }
    assert!(episodes.windows(2).all(|e| e[1].from_ns - e[0].to_ns > result.losses.within_ns), "{episodes:?}");
    assert!(episodes.len() <= drophammer_model::trial::MOST_EPISODES);
}

/// A wire with a delay of [`DELAY`].
pub fn wire() -> Bench {
    Bench::new(2, |f, out| out.push(f.on(DELAY)))
}

/// A wire that loses the `number`-th frame.
pub fn losing(number: u64) -> Bench {
    Bench::new(2, move |f, out| {
        if f.number != number {
            out.push(f.on(DELAY));
        }
    })
}

/// A wire that notes something about each frame.
pub fn noted<T: 'static>(note: impl Fn(&Offered<'_>) -> T + 'static) -> (Bench, Rc<RefCell<Vec<T>>>) {
    let notes = Rc::new(RefCell::new(Vec::new()));
    let kept = notes.clone();
    let bench = Bench::new(2, move |f, out| {
        kept.borrow_mut().push(note(f));
        out.push(f.on(DELAY));
    });
    (bench, notes)
}

/// A flow from `from` to `to` over `count` destinations.
pub fn flow(group: &str, from: usize, to: usize, family: Family, count: u32, weight: f64) -> FlowSpec {
    let range = |port: usize, count| {
        let first: IpAddr = match family {
            Family::Ipv4 => Ipv4Addr::new(198, 18 + port as u8 % 2, 0, 1).into(),
            Family::Ipv6 => Ipv6Addr::new(0x2001, 2, 0, port as u16, 0, 0, 0, 1).into(),
        };
        AddressRange { first, step: 1, count }
    };
    let (sources, destinations) = (range(from, 16), range(to, count));
    FlowSpec { weight, ..FlowSpec::new(group, from, to, sources, destinations) }
}

pub fn spec(size: &str, flows: Vec<FlowSpec>, load: Load, duration_s: f64) -> TrialSpec {
    TrialSpec {
        purpose: "test".into(),
        size: size.parse().unwrap(),
        flows,
        load,
        duration_s,
        bin_s: Some(duration_s / 8.0),
        drain_s: 2.0,
        events: vec![],
    }
}

/// One flow of `family` at `rate` for a second.
pub fn one(size: &str, family: Family, rate: f64) -> TrialSpec {
    spec(size, vec![flow("all", 0, 1, family, 256, 1.0)], Load::Constant { rate_pps: rate }, 1.0)
}

/// Counts of a group of `frames` frames that all arrive in order.
pub fn all_well(result: &TrialResult, group: usize, frames: u64, frame_bytes: u64) -> GroupCounts {
    let found = &result.groups[group];
    GroupCounts {
        group: found.group.clone(),
        intended: frames,
        offered: frames,
        received: frames,
        in_sequence: frames,
        received_bytes: frames * frame_bytes,
        latency: found.latency.clone(),
        bins: found.bins.clone(),
        ..GroupCounts::default()
    }
}

/// Offset of the UDP header.
pub fn udp_at(frame: &[u8]) -> usize {
    if frame[12..14] == [0x08, 0x00] { 34 } else { 54 }
}

/// RFC 1071, one word at a time.
pub fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Corrects the UDP checksum.
pub fn mend(frame: &mut [u8]) {
    let at = udp_at(frame);
    let addresses = if at == 34 { 26..34 } else { 22..54 };
    let end = at + usize::from(u16::from_be_bytes([frame[at + 4], frame[at + 5]]));
    frame[at + 6..at + 8].fill(0);
    let length = ((end - at) as u16).to_be_bytes();
    let sum = internet_checksum(&[&frame[addresses], &[0, 17], &length, &frame[at..end]]);
    let sum = if sum == 0 { 0xffff } else { sum };
    frame[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
}

/// Offset of the signature: the last 12 bytes of the datagram.
pub fn signature_at(frame: &[u8]) -> usize {
    let at = udp_at(frame);
    at + usize::from(u16::from_be_bytes([frame[at + 4], frame[at + 5]])) - 12
}

/// The frame with another signature, and correct checksums.
pub fn signed(frame: &[u8], signature: Signature, key: TrialKey) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let at = signature_at(&frame);
    frame[at..at + 12].copy_from_slice(&signature.emit(key));
    mend(&mut frame);
    frame
}

/// Destination address.
pub fn destination(frame: &[u8]) -> IpAddr {
    if udp_at(frame) == 34 {
        <[u8; 4]>::try_from(&frame[30..34]).unwrap().into()
    } else {
        <[u8; 16]>::try_from(&frame[38..54]).unwrap().into()
    }
}

pub const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];
/// Frames in a trial of [`run_both`].
pub const N: u64 = 5_000;

/// Runs a trial of N frames of 128 bytes through the device, for each family.
pub fn run_both(
    behaviour: impl FnMut(&Offered<'_>, &mut Vec<Out>) + Clone + 'static,
    judge: impl Fn(&TrialResult, GroupCounts, &Bench),
) {
    for family in FAMILIES {
        let mut bench = Bench::new(4, behaviour.clone());
        let result = bench.run(&one("128", family, N as f64));
        let expected = all_well(&result, 0, N, 128);
        judge(&result, expected, &bench);
    }
}

/// Counts of a trial of N frames if every 50th one, including the last, did not arrive.
pub fn every_50th_gone(expected: GroupCounts) -> GroupCounts {
    let n = N / 50;
    GroupCounts {
        received: N - n,
        lost: n,
        received_bytes: (N - n) * 128,
        // The last frame is lost, and none follows it.
        in_sequence: N - 2 * n + 1,
        last_loss_ns: Some((N - 1) * SECOND / N),
        ..expected
    }
}
