//! Whatever comes in at a test port, nothing but this trial's frames counts as such.

use super::*;
use crate::plan::{Neighbour, Plan};
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load};
use drophammer_wire::{MacAddr, checksum, udp};
use proptest::prelude::*;

/// The analyzer of a trial of 1,000 IPv4 and 1,000 IPv6 frames of 128 bytes from port 0 to port 1.
fn analyzer() -> Analyzer {
    let flow = |family, first: &str| {
        let range = AddressRange { first: first.parse().unwrap(), step: 1, count: 4 };
        let group = Family::to_string(&family);
        FlowSpec {
            group,
            from: 0,
            to: 1,
            also: vec![],
            family,
            sources: range,
            destinations: range.into(),
            per_destination: false,
            weight: 1.0,
        }
    };
    let spec = TrialSpec {
        purpose: String::new(),
        size: "128".parse().unwrap(),
        flows: vec![flow(Family::Ipv4, "198.18.0.1"), flow(Family::Ipv6, "2001:2::1")],
        load: Load::Burst { frames: 2_000, rate_pps: 1e6 },
        duration_s: 0.0,
        bin_s: Some(0.001),
        drain_s: 1.0,
        events: vec![],
    };
    let (key, earlier) = (TrialKey::new(1, 2), vec![TrialKey::new(1, 1)]);
    let timing = Timing { seed: 3, key, earlier, max_backlog_ns: 0, late_ns: 1_000_000_000 };
    let mac = MacAddr([2; 6]);
    let port = Neighbour { mac, device_ipv4: Some(mac), device_ipv6: Some(mac) };
    let mut plan = Plan::new(&spec, &[port, port], &timing).unwrap();
    plan.parts[0].begin(Instant(1_000));
    plan.parts.remove(0).analyzer
}

/// A frame that looks like test traffic as far as its headers go.
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
        // The right key, but no checksum and no pattern.
        let mut analyzer = analyzer();
        let mut payload = head;
        payload.extend(Signature { flow, sequence, time }.emit(TrialKey::new(1, 2)));
        let class = analyzer.take(port, Arrival { frame: &alike(v6, payload, 0), at: Instant(at) });
        prop_assert_eq!((class, analyzer.distinct()), (Class::Corrupted, 0));
    }
}

#[test]
fn whole_frames_count_once_each() {
    // What the other tests refuse is refused for what is wrong with it: the same way made right counts.
    let mut analyzer = analyzer();
    for (flow, v6) in [(0, false), (1, true)] {
        let at = if v6 { 128 - 4 - 14 - 40 - 8 } else { 128 - 4 - 14 - 20 - 8 } - signature::LEN;
        let mut payload = Pattern::new(3).bytes(at).to_vec();
        payload.extend(Signature { flow, sequence: 0, time: 1_000 }.emit(TrialKey::new(1, 2)));
        let mut frame = alike(v6, payload, 0);
        let udp = if v6 { 54 } else { 34 };
        if !v6 {
            let sum = checksum::finish(checksum::sum(&frame[14..34]));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let addresses = if v6 { 22..54 } else { 26..34 };
        let pseudo = checksum::sum(&frame[addresses]) + 17 + (frame.len() - udp) as u64;
        let sum = udp::field(pseudo + checksum::sum(&frame[udp..]));
        frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        let mut take = |port| analyzer.take(port, Arrival { frame: &frame, at: Instant(1_500) });
        assert_eq!([take(1), take(1), take(0)], [Class::Test; 3]);
        // Each byte of the destination address counts, the source address does not.
        for byte in 0..12 {
            frame[byte] ^= 1;
            let strays = |a: &Analyzer| a.groups()[flow as usize].stray;
            let before = strays(&analyzer);
            assert_eq!(analyzer.take(1, Arrival { frame: &frame, at: Instant(1_500) }), Class::Test);
            assert_eq!(strays(&analyzer) - before, u64::from(byte < 6), "byte {byte}");
            frame[byte] ^= 1;
        }
    }
    assert_eq!((analyzer.distinct(), analyzer.groups()[0].stray, analyzer.groups()[1].stray), (2, 7, 7));
    assert!(analyzer.flows().all(|(_, _, state)| (state.received(), state.duplicated()) == (1, 7)));
    assert_eq!(analyzer.groups()[1].latency_summary().mean_ns, 500.0);
}
