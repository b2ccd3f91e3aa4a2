//! Faulty or malicious peers.

use super::*;
use proptest::prelude::*;

/// A segment from the peer of an established connection: ends and checksum are valid, everything else is random.
#[derive(Clone, Debug)]
struct Wild {
    sequence: i64,
    acknowledgment: i64,
    flags: u8,
    window: u16,
    options: Vec<u8>,
    payload: usize,
    wait_ms: u64,
}

fn wild() -> impl Strategy<Value = Wild> {
    let near = prop_oneof![Just(0i64), Just(-1), Just(1), -70_000i64..70_000, any::<i32>().prop_map(i64::from)];
    let flags = prop_oneof![Just(0x10u8), Just(0x18), Just(0x11), Just(0x02), Just(0x12), Just(0x14), any::<u8>()];
    let options = proptest::collection::vec(any::<u8>(), 0..40);
    let payload = prop_oneof![Just(0usize), 1usize..3_000, Just(65_000)];
    let window = prop_oneof![Just(0u16), any::<u16>()];
    let wait = prop_oneof![Just(0u64), 0u64..5_000];
    (near.clone(), near, flags, window, options, payload, wait).prop_map(
        |(sequence, acknowledgment, flags, window, options, payload, wait_ms)| Wild {
            sequence,
            acknowledgment,
            flags,
            window,
            options,
            payload,
            wait_ms,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn wild_segments_never_panic(segments in proptest::collection::vec(wild(), 1..30), passive in any::<bool>(),
                                 close_after in 0usize..40) {
        let config = TcpConfig { verify_checksums: false, backlog: 8, ..TcpConfig::new(1500, 5) };
        let mut world = World::new(config, Trouble::default());
        let ids = world.pair(false);
        let side = usize::from(passive);
        // Take the sequence numbers from the last packet of the peer.
        let (stack, id) = (&mut world.sides[side], ids[side]);
        stack.send_with(id, &mut |_| 10_000);
        let mut last = Vec::new();
        stack.poll(world.now, &mut |p| last = p.to_vec());
        let number = |at: usize| u32::from_be_bytes([last[at], last[at + 1], last[at + 2], last[at + 3]]);
        let (mut peer_next, acknowledged) = (number(28), number(24).wrapping_sub(8_000));
        let mut now = world.now;
        let (mut answers, mut longest) = (0, 0);
        for (i, w) in segments.iter().enumerate() {
            now = now + Duration::from_millis(w.wait_ms);
            if i == close_after {
                stack.close(id);
            }
            let mut packet = last[..40].to_vec();
            packet[12..16].copy_from_slice(&last[16..20]);
            packet[16..20].copy_from_slice(&last[12..16]);
            packet[20..22].copy_from_slice(&last[22..24]);
            packet[22..24].copy_from_slice(&last[20..22]);
            packet[24..28].copy_from_slice(&peer_next.wrapping_add(w.sequence as u32).to_be_bytes());
            packet[28..32].copy_from_slice(&acknowledged.wrapping_add(w.acknowledgment as u32).to_be_bytes());
            let options = w.options.len() / 4 * 4;
            packet[32] = (5 + options as u8 / 4) << 4;
            packet[33] = w.flags;
            packet[34..36].copy_from_slice(&w.window.to_be_bytes());
            packet.extend_from_slice(&w.options[..options]);
            packet.resize(packet.len() + w.payload, 1);
            let len = packet.len() as u16;
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            let sum = etherparse::Ipv4HeaderSlice::from_slice(&packet).unwrap().to_header().calc_header_checksum();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            prop_assert!(stack.receive(now, &packet));
            if w.sequence == 0 && w.flags & 7 == 0 {
                peer_next = peer_next.wrapping_add(w.payload as u32);
            }
            if i % 3 == 0 {
                stack.receive_with(id, &mut |bytes| bytes.len() / 2);
            }
            stack.poll(now, &mut |p| {
                answers += 1;
                longest = longest.max(p.len());
            });
            if let Some(at) = stack.next_deadline() {
                stack.poll(at, &mut |_| answers += 1);
            }
        }
        prop_assert!(longest <= 1500 && answers < 64 * (segments.len() + 1), "{answers} answers");
        prop_assert!(stack.connections() <= 1 + 8);
    }

    #[test]
    fn floods_never_take_more_than_the_backlog(ports in proptest::collection::vec(1u16.., 1..300), tail in any::<u8>()) {
        let mut stack = TcpStack::new(TcpConfig { backlog: 16, ..TcpConfig::default() });
        stack.add_host(Ipv4Addr::new(198, 18, 0, 1).into());
        stack.listen(Ipv4Addr::new(198, 18, 0, 1).into(), 179);
        for port in &ports {
            let mut packet = Vec::new();
            let builder = etherparse::PacketBuilder::ipv4([198, 18, 0, 2], [198, 18, 0, 1], 64);
            builder.tcp(*port, 179, u32::from(tail), 100).syn().write(&mut packet, b"").unwrap();
            stack.receive(Instant(0), &packet);
        }
        prop_assert!(stack.connections() <= 16);
        // Half-open connections time out.
        let mut answers = 0;
        while let Some(at) = stack.next_deadline() {
            stack.poll(at, &mut |_| answers += 1);
        }
        prop_assert!(stack.connections() == 0 && answers < 16 * 10 + ports.len());
    }
}
