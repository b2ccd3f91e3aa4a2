//! The analyzer: nothing but what this trial's generator made counts as received, and the counts add up.
//!
//! A trial is laid out, its frames are generated. Then the input decides what comes in: these frames as they are, changed, at
//! the wrong port, twice, cut; those of another trial; arbitrary bytes.
//!
//! What a router may change is left open: a frame whose UDP payload is that of a generated one, bit by bit, may count, for
//! the addresses around it are checked by checksums alone. So changes of the signature are not followed by a mended
//! checksum here: its own check has 16 bits, which a fuzzer can guess.

use super::frames::spoil;
use super::input::Input;
use drophammer_model::Instant;
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load, TrialSpec};
use drophammer_port::simulated::{Device, SimulatedPort, world};
use drophammer_port::{Arrival, Port};
use drophammer_traffic::analyzer::{Analyzer, Class};
use drophammer_traffic::{Neighbour, Plan, Timing};
use drophammer_wire::signature::{self, TrialKey};
use drophammer_wire::{MacAddr, checksum, ethernet, ipv4, ipv6, udp};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const START: Instant = Instant(1_000);

/// Keeps what is sent: the port and the frame.
struct Keep(Kept);

impl Device for Keep {
    fn receive(&mut self, _: Instant, _: usize, frame: &[u8]) {
        self.0.borrow_mut().push(frame.to_vec());
    }
    fn poll(&mut self, _: Instant, _: &mut dyn FnMut(Instant, usize, &[u8])) {}
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

type Kept = Rc<RefCell<Vec<Vec<u8>>>>;

thread_local! {
    /// Made once: they are large.
    static PORTS: RefCell<(Kept, Vec<SimulatedPort>)> = RefCell::new({
        let kept = Kept::default();
        let (_, ports) = world(Box::new(Keep(kept.clone())), &[MacAddr::local(1), MacAddr::local(2)], 1500);
        (kept, ports)
    });
}

struct Trial {
    analyzer: Analyzer,
    frames: Vec<Vec<u8>>,
    flows: usize,
}

fn trial(shape: u8, seed: u64, number: u64) -> Trial {
    let flow = |family, first: &str, from, to| {
        let range = AddressRange { first: first.parse().unwrap(), step: 1, count: 3 };
        let group = Family::to_string(&family);
        FlowSpec { per_destination: true, ..FlowSpec::new(group, from, to, range, range) }
    };
    let mut flows = vec![flow(Family::Ipv4, "198.18.0.1", 0, 1), flow(Family::Ipv6, "2001:2::1", 0, 1)];
    if shape & 1 == 1 {
        flows.push(flow(Family::Ipv4, "198.19.0.1", 1, 0));
    }
    let spec = TrialSpec {
        purpose: String::new(),
        size: ["78", "128", "imix", "64"][usize::from(shape >> 1 & 3)].parse().unwrap(),
        flows,
        load: Load::Burst { frames: 16, rate_pps: 1e6 },
        duration_s: 0.0,
        bin_s: (shape & 8 == 0).then_some(0.000_01),
        drain_s: 0.001,
        events: vec![],
    };
    let macs = [MacAddr::local(1), MacAddr::local(2)];
    // Each port faces the other one.
    let facing =
        |mac, device| Neighbour { mac, device_ipv4: Some(device), device_ipv6: Some(device), vlans: Vec::new() };
    let ports = [facing(macs[0], macs[1]), facing(macs[1], macs[0])];
    let (key, earlier) = (TrialKey::new(seed, number), vec![TrialKey::new(seed, number.wrapping_sub(1))]);
    let timing = Timing { seed, key, earlier, max_backlog_ns: 0, late_ns: 1_000_000 };
    let flows = spec.flows.len();
    let (mut generators, analyzer) = Plan::new(&spec, &ports, &timing).unwrap().into_parts(START);
    let frames = PORTS.with_borrow_mut(|(kept, sim)| {
        for generator in &mut generators {
            let port: &mut dyn Port = &mut sim[generator.port()];
            port.slots().forget();
            while let Some(next) = generator.next_departure() {
                assert!(generator.send_due(port, next).unwrap() > 0);
            }
        }
        kept.take()
    });
    Trial { analyzer, frames, flows }
}

/// The UDP payload of a frame of ours, as far as its headers are believed.
fn payload(frame: &[u8]) -> Option<&[u8]> {
    let at = ethernet::LEN + if frame.get(12)? == &0x08 { ipv4::LEN } else { ipv6::LEN };
    let length = usize::from(u16::from_be_bytes([*frame.get(at + 4)?, *frame.get(at + 5)?]));
    frame.get(at + udp::LEN..at + length)
}

/// Makes the checksums of a frame right again.
fn mend(frame: &mut [u8]) {
    let v4 = frame.get(12) == Some(&0x08);
    let at = ethernet::LEN + if v4 { ipv4::LEN } else { ipv6::LEN };
    if frame.len() < at + udp::LEN {
        return;
    }
    if v4 {
        frame[24..26].fill(0);
        let sum = checksum::finish(checksum::sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let length = usize::from(u16::from_be_bytes([frame[at + 4], frame[at + 5]])).min(frame.len() - at);
    if length >= udp::LEN {
        frame[at + 6..at + 8].fill(0);
        let addresses = if v4 { 26..34 } else { 22..54 };
        let pseudo = checksum::sum(&frame[addresses]) + 17 + length as u64;
        let sum = udp::field(pseudo + checksum::sum(&frame[at..at + length]));
        frame[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// What came in, by what it was judged to be.
#[derive(Default)]
struct Told {
    test: u64,
    stale: u64,
    corrupted: u64,
}

/// Feeds an analyzer.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (shape, seed) = (input.u8(), input.u64());
    let Trial { mut analyzer, frames, flows } = trial(shape, seed, 2);
    // Of the trial before, which is stale, or of one that nobody knows.
    let foreign =
        if shape & 16 == 0 { Vec::new() } else { trial(shape, seed, 1 + 2 * u64::from(shape >> 5 & 1)).frames };
    // Payload → index and port at which it is awaited: payloads differ, for each carries its flow and number.
    let from = |frame: &[u8]| usize::from(frame[6..12] == MacAddr::local(2).0);
    let known: BTreeMap<&[u8], (usize, usize)> =
        frames.iter().enumerate().map(|(i, f)| (payload(f).unwrap(), (i, 1 - from(f)))).collect();
    assert_eq!(known.len(), frames.len());
    let mut arrived = vec![false; frames.len()];
    let mut certain = vec![false; frames.len()];
    let mut told = Told::default();
    let mut now = START;
    while !input.is_empty() {
        now = Instant(now.0 + u64::from(input.u16()));
        let (what, port) = (input.below(10), input.below(2));
        let pick = usize::from(input.u8());
        let own = &frames[pick % frames.len()];
        let mut frame = own.clone();
        match what {
            0..4 => {}
            4 => frame = input.bytes(pick).to_vec(),
            5 => spoil(&mut input, &mut frame),
            6 => {
                // Headers and pattern may be mended, the signature not.
                let end = frame.len() - signature::LEN;
                spoil(&mut input, &mut frame[..end]);
                mend(&mut frame);
            }
            7 => {
                frame.truncate(usize::from(input.u16()) % (own.len() + 1));
                if input.flag() {
                    mend(&mut frame);
                }
            }
            8 => frame.resize(own.len() + input.below(40), input.u8()),
            _ if foreign.is_empty() => {
                // The head of one and the tail of another.
                let other = &frames[input.below(frames.len())];
                let cut = usize::from(input.u16()) % own.len().min(other.len());
                frame = [&own[..cut], &other[cut..]].concat();
            }
            _ => frame = foreign[pick % foreign.len()].clone(),
        }
        let before = analyzer.distinct();
        let class = analyzer.take(port, Arrival { frame: &frame, at: now });
        let ours = payload(&frame).and_then(|p| known.get(p)).copied();
        let counted = analyzer.distinct() - before;
        match class {
            Class::Test => {
                told.test += 1;
                let (i, to) = ours.unwrap_or_else(|| panic!("never sent: {frame:02x?}"));
                // At the right port, and for the host that is there.
                let home = to == port && frame[..6] == MacAddr::local(port as u64 + 1).0;
                assert_eq!(counted, u64::from(home && !arrived[i]), "{frame:02x?}");
                arrived[i] |= home;
            }
            Class::Stale => told.stale += 1,
            Class::Corrupted => told.corrupted += 1,
            Class::Other => {}
        }
        assert!(class == Class::Test || counted == 0);
        let at_home = frames.iter().position(|f| *f == frame);
        if let Some(i) = at_home {
            assert_eq!(class, Class::Test, "its own frame is not known: {frame:02x?}");
            certain[i] |= known[payload(&frame).unwrap()].1 == port;
        }
    }
    analyzer.settle();
    check(&analyzer, flows, &frames, &arrived, &certain, &told);
    // Reading a histogram takes longer than all the rest.
    if shape >> 6 == 3 && seed & 15 == 0 {
        let summaries: Vec<_> = analyzer.groups().iter().map(|g| g.latency_summary()).collect();
        assert_eq!(summaries.iter().map(|s| s.frames).sum::<u64>(), analyzer.distinct());
        assert!(summaries.iter().all(|s| s.min_ns as f64 <= s.mean_ns && s.mean_ns <= s.max_ns as f64));
    }
}

fn check(a: &Analyzer, flows: usize, frames: &[Vec<u8>], arrived: &[bool], certain: &[bool], told: &Told) {
    let distinct = arrived.iter().filter(|a| **a).count() as u64;
    assert_eq!(a.distinct(), distinct);
    assert!(certain.iter().zip(arrived).all(|(certain, arrived)| *arrived || !certain));
    assert_eq!(a.stale(), told.stale);
    let sum =
        |count: fn(&drophammer_traffic::analyzer::GroupReceived) -> u64| a.groups().iter().map(count).sum::<u64>();
    assert_eq!(sum(|g| g.corrupted), told.corrupted);
    let (mut received, mut duplicated) = (0, 0);
    assert_eq!(a.flows().count(), flows);
    for (_, _, state) in a.flows() {
        received += state.received();
        duplicated += state.duplicated();
        assert!(state.reordered_3() <= state.reordered() && state.reordered() <= state.received());
        assert!(state.in_sequence() <= state.received() && state.received() <= frames.len() as u64);
        assert!(state.max_extent() <= state.received());
        let missing = state.last_missing(frames.len() as u64, &[]);
        assert!(missing.is_none_or(|m| m < frames.len() as u64));
    }
    assert_eq!(received, distinct);
    assert_eq!(told.test, distinct + duplicated + sum(|g| g.stray));
    for group in a.groups() {
        let bins = |bins: &[u64]| bins.iter().sum::<u64>();
        assert!(bins(&group.bins.delivered) <= distinct && bins(&group.bins.arrived) <= distinct);
        assert!(group.late <= distinct && (group.bytes >= 64) == (group.bytes > 0));
    }
    assert!((a.receiving_ns() > 0) <= (distinct > 1));
}
