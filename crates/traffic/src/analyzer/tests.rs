//! Of all frames that arrive at a test port, only frames of this trial count as test frames.

use super::*;
use crate::plan::{Neighbour, Plan};
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load};
use drophammer_wire::{MacAddr, checksum, udp};
use proptest::prelude::*;

/// Creates the analyzer of a trial with 1,000 IPv4 and 1,000 IPv6 frames of 128 bytes from port 0 to port 1.
fn analyzer() -> Analyzer {
    analyzer_of(false)
}

/// Like [`analyzer`]. With `further`, both flows are also counted by destination, measure delay variation and may
/// arrive at port 0.
fn analyzer_of(further: bool) -> Analyzer {
    let further = |flow: FlowSpec| FlowSpec {
        also: if further { vec![0] } else { vec![] },
        per_destination: further,
        ipdv: further,
        ..flow
    };
    planned([flow(false, 0), flow(true, 0)].map(further).into(), Layout::one(2))
}

/// Creates an IPv4 or IPv6 flow to port 1.
fn flow(v6: bool, from: usize) -> FlowSpec {
    let (family, first) = if v6 { (Family::Ipv6, "2001:2::1") } else { (Family::Ipv4, "198.18.0.1") };
    let range = AddressRange { first: first.parse().unwrap(), step: 1, count: 4 };
    FlowSpec::new(Family::to_string(&family), from, 1, range, range)
}

/// Creates the analyzer of the first lane of a trial with these flows.
fn planned(flows: Vec<FlowSpec>, layout: Layout) -> Analyzer {
    let spec = TrialSpec {
        purpose: String::new(),
        size: "128".parse().unwrap(),
        flows,
        load: Load::Burst { frames: 2_000, rate_pps: 1e6 },
        duration_s: 0.0,
        bin_s: Some(0.001),
        drain_s: 1.0,
        events: vec![],
    };
    let (key, earlier) = (TrialKey::new(1, 2), vec![TrialKey::new(1, 1)]);
    let timing = Timing { seed: 3, key, earlier, max_backlog_ns: 0, late_ns: 1_000_000_000 };
    let mac = MacAddr([2; 6]);
    let port = Neighbour { mac, device_ipv4: Some(mac), device_ipv6: Some(mac), vlans: vec![] };
    let mut plan = Plan::on_lanes(&spec, &vec![port; layout.ports()], &timing, layout).unwrap();
    plan.parts[0].begin(Instant(1_000));
    plan.parts.remove(0).analyzer
}

/// Builds a frame with the headers of test traffic.
fn alike(v6: bool, mut payload: Vec<u8>, claims: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    let length = (payload.len() as u16 + 8).wrapping_add(claims).to_be_bytes();
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], 17, 64]);
        frame.extend([7; 32]);
    } else {
        let total = (payload.len() as u16 + 28).wrapping_add(claims).to_be_bytes();
        frame.extend([0x08, 0x00, 0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend([7; 8]);
    }
    frame.extend([0xc0, 0, 0, 9, length[0], length[1], 0, 0]);
    frame.append(&mut payload);
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_never_panic_and_never_count(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), at: u64, port in 0usize..2
    ) {
        let mut analyzer = analyzer();
        let class = analyzer.take(port, Arrival { frame: &bytes, at: Instant(at) });
        prop_assert!(class != Class::Test && class != Class::Stale, "{:?}", class);
        prop_assert_eq!(analyzer.distinct(), 0);
    }

    #[test]
    fn test_ports_without_signature_never_panic_and_never_count(
        v6: bool, payload in proptest::collection::vec(any::<u8>(), 0..120), claims in prop_oneof![Just(0u16), 0u16..40, any::<u16>()],
        cut in 0usize..200, at: u64, port in 0usize..2
    ) {
        let mut analyzer = analyzer();
        let mut frame = alike(v6, payload, claims);
        if cut < frame.len() {
            frame.truncate(frame.len() - cut);
        }
        let class = analyzer.take(port, Arrival { frame: &frame, at: Instant(at) });
        prop_assert!(class == Class::Other || class == Class::Corrupted || class == Class::Stale, "{:?}", class);
        prop_assert_eq!((analyzer.distinct(), analyzer.groups()[0].stray + analyzer.groups()[1].stray), (0, 0));
    }

    #[test]
    fn a_signature_alone_does_not_count(
        v6: bool, flow in 0u32..4, sequence in 0u32..1 << 28, time: u32, at: u64, port in 0usize..2,
        head in proptest::collection::vec(any::<u8>(), 0..100)
    ) {
        // The key is right, but there is neither checksum nor pattern.
        let mut analyzer = analyzer();
        let mut payload = head;
        payload.extend(Signature { flow, sequence, time }.emit(TrialKey::new(1, 2)));
        let class = analyzer.take(port, Arrival { frame: &alike(v6, payload, 0), at: Instant(at) });
        prop_assert_eq!((class, analyzer.distinct()), (Class::Corrupted, 0));
    }
}

/// Builds an intact frame with `length` bytes of pattern.
fn whole(v6: bool, length: usize, signature: &Signature, key: TrialKey) -> Vec<u8> {
    let mut payload = Pattern::new(3).bytes(length).to_vec();
    payload.extend(signature.emit(key));
    let mut frame = alike(v6, payload, 0);
    mend(v6, &mut frame);
    frame
}

/// Corrects the checksums of a frame.
fn mend(v6: bool, frame: &mut [u8]) {
    let udp = if v6 { 54 } else { 34 };
    if !v6 {
        frame[24..26].fill(0);
        let sum = checksum::finish(checksum::sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame[udp + 6..udp + 8].fill(0);
    let addresses = if v6 { 22..54 } else { 26..34 };
    let pseudo = checksum::sum(&frame[addresses]) + 17 + (frame.len() - udp) as u64;
    let sum = udp::field(pseudo + checksum::sum(&frame[udp..]));
    frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn whole_frames_count_once_each() {
    // Proves that the other tests refuse frames only for their faults: the same frame without a fault counts.
    let mut analyzer = analyzer();
    for (flow, v6) in [(0, false), (1, true)] {
        let at = if v6 { 128 - 4 - 14 - 40 - 8 } else { 128 - 4 - 14 - 20 - 8 } - drophammer_wire::signature::LEN;
        let mut frame = whole(v6, at, &Signature { flow, sequence: 0, time: 1_000 }, TrialKey::new(1, 2));
        let mut take = |port| analyzer.take(port, Arrival { frame: &frame, at: Instant(1_500) });
        assert_eq!([take(1), take(1), take(0)], [Class::Test; 3]);
        // Each byte of the destination address matters; the source address does not.
        for byte in 0..12 {
            frame[byte] ^= 1;
            let strays = |a: &Analyzer| a.groups()[flow as usize].stray;
            let before = strays(&analyzer);
            assert_eq!(analyzer.take(1, Arrival { frame: &frame, at: Instant(1_500) }), Class::Test);
            assert_eq!(strays(&analyzer) - before, u64::from(byte < 6), "byte {byte}");
            frame[byte] ^= 1;
        }
    }
    analyzer.settle();
    assert_eq!((analyzer.distinct(), analyzer.groups()[0].stray, analyzer.groups()[1].stray), (2, 7, 7));
    assert!(analyzer.flows().all(|(_, _, state)| (state.received(), state.duplicated()) == (1, 7)));
    assert_eq!(analyzer.groups()[1].latency_summary().mean_ns, 500.0);
}

#[test]
fn a_frame_that_arrives_before_it_was_sent_has_no_latency_of_seconds() {
    // Half a millisecond is in order on one host, and half a second between hosts whose clocks differ.
    for (ahead, early_ns) in [(AHEAD, 500_000u64), (AHEAD_BETWEEN_HOSTS, 500_000_000)] {
        let mut analyzer = analyzer();
        analyzer.ahead = ahead;
        let (sent, at) = (6_000_000_000u64, 6_000_000_000 - early_ns);
        for (sequence, at) in [at, sent + 7].into_iter().enumerate() {
            let signature = Signature { flow: 0, sequence: sequence as u32, time: sent as u32 };
            let frame =
                whole(false, 128 - 4 - 14 - 20 - 8 - drophammer_wire::signature::LEN, &signature, TrialKey::new(1, 2));
            assert_eq!(analyzer.take(1, Arrival { frame: &frame, at: Instant(at) }), Class::Test);
        }
        let report = analyzer.groups[0].report(&Deviations::default());
        assert_eq!((report.early_ns, report.latency_min_ns, report.latency_max_ns), (early_ns, 0, 7));
        assert_eq!((report.latency_sum_ns, report.late), (7, 0));
    }
}

#[test]
fn a_frame_that_takes_seconds_has_its_latency_if_one_host_sends_and_receives_it() {
    // Port 2 is on another host, whose clock may be ahead.
    let layout = || Layout::one(2).on_host(&[0, 1], 3);
    let took = 3_500_000_000u64;
    for (from, latency_ns, early_ns) in [(0, took, 0), (2, 0, (1 << 32) - took)] {
        // The other flow comes from the other host.
        let flows = vec![flow(false, from), flow(true, 2)];
        for at_length in [false, true] {
            let mut analyzer = planned(flows.clone(), layout());
            let sent = 6_000_000_000u64;
            let signature = Signature { flow: 0, sequence: 0, time: sent as u32 };
            let length = 128 - 4 - 14 - 20 - 8 - drophammer_wire::signature::LEN;
            let frame = whole(false, length, &signature, TrialKey::new(1, 2));
            let arrival = Arrival { frame: &frame, at: Instant(sent + took) };
            let class = if at_length { analyzer.take_at_length(1, arrival) } else { analyzer.take(1, arrival) };
            assert_eq!(class, Class::Test);
            let report = analyzer.groups[0].report(&Deviations::default());
            assert_eq!((report.latency_max_ns, report.early_ns), (latency_ns, early_ns), "{from} {at_length}");
        }
    }
}

#[test]
fn a_port_counts_what_arrives_there_with_all_copies() {
    let mut analyzer = analyzer_of(true);
    let length = 128 - 4 - 14 - 20 - 8 - drophammer_wire::signature::LEN;
    // Both copies of frame 2, and one of frame 1, arrive at the alternate port.
    for (port, sequence) in [(1, 0), (1, 1), (0, 1), (0, 2), (0, 2), (1, 0)] {
        let frame = whole(false, length, &Signature { flow: 0, sequence, time: 1_000 }, TrialKey::new(1, 2));
        assert_eq!(analyzer.take(port, Arrival { frame: &frame, at: Instant(1_500) }), Class::Test);
    }
    assert_eq!((analyzer.arrived(), analyzer.distinct()), (vec![(3, 3 * 128), (3, 3 * 128)], 3));
}

/// Returns everything that an analyzer has counted.
fn told(analyzer: &mut Analyzer) -> String {
    analyzer.settle();
    let counted =
        |bins: &[u64]| -> Vec<(usize, u64)> { bins.iter().copied().enumerate().filter(|(_, n)| *n > 0).collect() };
    let bins = |bins: &ReceiveBins| (counted(&bins.delivered), counted(&bins.arrived));
    let groups: Vec<_> = analyzer
        .groups()
        .iter()
        .map(|g| {
            let variation = g.report(&Deviations::default()).ipdv;
            (g.stray, g.corrupted, g.late, g.bytes, bins(&g.bins), g.elsewhere.clone(), g.latency_summary(), variation)
        })
        .collect();
    let flows: Vec<_> = analyzer
        .flows()
        .map(|(flow, group, s)| {
            let missing: Vec<u64> = s.missing(1_000, &[]).collect();
            let order = (s.in_sequence(), s.reordered(), s.reordered_3(), s.max_extent());
            (flow, group, s.received(), s.duplicated(), s.next_expected(), order, missing)
        })
        .collect();
    let extras = analyzer.extras();
    let arrived = analyzer.arrived();
    format!("{:?}", (groups, flows, extras, arrived, analyzer.distinct(), analyzer.stale(), analyzer.receiving_ns()))
}

/// How a frame is altered.
#[derive(Clone, Debug)]
struct Fate {
    v6: bool,
    /// Bytes of pattern.
    length: usize,
    /// Number of the fault. Most numbers mean no fault.
    fault: u8,
    /// Difference to the next sequence number of the flow.
    step: i64,
    at: usize,
    change: u8,
    /// Time since the previous frame, and since the frame's own departure.
    after: u64,
    sent: u64,
}

prop_compose! {
    /// Mostly intact frames of 64 bytes in order.
    fn fate()(
        v6: bool, odd in 0usize..40, plain in 0u8..4, fault in 0u8..40, step in prop_oneof![9 => Just(1i64), 1 => -6i64..8],
        at: u16, change: u8, after in prop_oneof![9 => 0u64..3_000, 1 => Just(3_000_000_000u64)], sent in 0u64..5_000
    ) -> Fate {
        let length = match (plain, v6) { (0, _) => odd, (_, false) => 6, (_, true) => 0 };
        Fate { v6, length, fault, step, at: at.into(), change, after, sent }
    }
}

/// Returns the frames of both flows as they arrive, with port and time.
fn arrivals(fates: &[Fate]) -> Vec<(usize, Vec<u8>, Instant)> {
    let (mut next, mut now) = ([0i64; 2], 1_000u64);
    let frames = fates.iter().map(|fate| {
        let Fate { v6, length, change, .. } = *fate;
        now += fate.after;
        let flow = usize::from(v6);
        let (sequence, time) = (next[flow] as u32, now.wrapping_sub(fate.sent) as u32);
        next[flow] = (next[flow] + fate.step).clamp(0, 1_003);
        let signature = Signature { flow: flow as u32, sequence, time };
        let mut frame = whole(v6, length, &signature, TrialKey::new(1, if fate.fault == 1 { 1 } else { 2 }));
        let spot = fate.at % frame.len();
        match fate.fault {
            2 => frame[spot] ^= change,
            3 => {
                frame[spot] ^= change;
                mend(v6, &mut frame);
            }
            4 => frame.truncate(spot),
            5 => frame.extend(vec![change; spot % 30]),
            6 if !v6 => frame[15] = change,
            7 => frame[fate.at % 6] ^= change,
            8 => frame = (0..spot).map(|i| change.wrapping_mul(i as u8)).collect(),
            // The number of another flow, which may or may not exist.
            9 => {
                frame = whole(v6, length, &Signature { flow: u32::from(change) % 4, ..signature }, TrialKey::new(1, 2))
            }
            _ => {}
        }
        if fate.fault != 4 {
            frame.resize(frame.len().max(60), 0);
        }
        (usize::from(fate.fault != 10), frame, Instant(now))
    });
    frames.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_short_way_and_bursts_change_nothing(
        fates in proptest::collection::vec(fate(), 1..300), sizes in proptest::collection::vec(1usize..150, 1..6), further: bool
    ) {
        let [mut by_burst, mut one_by_one, mut at_length] = [0; 3].map(|_| analyzer_of(further));
        let frames = arrivals(&fates);
        let (mut others, mut expected_others) = (Vec::new(), Vec::new());
        for (n, (port, frame, at)) in frames.iter().enumerate() {
            let arrival = Arrival { frame, at: *at };
            let class = at_length.take_at_length(*port, arrival);
            prop_assert_eq!(one_by_one.take(*port, arrival), class, "frame {}: {:02x?}", n, frame);
            expected_others.extend((class == Class::Other).then(|| frame.clone()));
        }
        let mut sizes = sizes.iter().cycle();
        for mut rest in frames.chunk_by(|a, b| a.0 == b.0) {
            while !rest.is_empty() {
                let (burst, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                let get = |i: usize| Arrival { frame: &burst[i].1, at: burst[i].2 };
                let mut keep = |other: Arrival<'_>| {
                    others.push(other.frame.to_vec());
                    Ok::<_, ()>(())
                };
                by_burst.take_burst(burst[0].0, burst.len(), get, &mut keep).unwrap();
                rest = behind;
            }
        }
        prop_assert_eq!(others, expected_others);
        let expected = told(&mut at_length);
        prop_assert_eq!(told(&mut one_by_one), expected.clone());
        prop_assert_eq!(told(&mut by_burst), expected);
    }
}
