//! Hostile neighbours: every count of foreign items is bounded, and nothing panics.

use super::common::*;
use drophammer_emulation::device::Device;
use drophammer_emulation::protocol::Command;
use drophammer_emulation::rsvp::{MOST_FOREIGN, MOST_NEIGHBOURS, NAME, RefreshReduction, RsvpConfig};
use drophammer_model::Instant;
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::rsvp::*;
use drophammer_wire::{MacAddr, ipv4};
use proptest::prelude::*;
use std::net::Ipv4Addr;

/// A frame to device 2 (198.18.1.2) with a message from `source`.
fn frame(source: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::LEN + ipv4::LEN_ROUTER_ALERT];
    let [destination, mac] = [2, 1].map(MacAddr::local);
    ethernet::Repr { destination, source: mac, ethertype: ethertype::IPV4 }.emit(&mut frame);
    let ip = ipv4::Repr {
        tos: 0,
        identification: 1,
        dont_fragment: false,
        ttl: 255,
        protocol: ipv4::protocol::RSVP,
        source,
        destination: [198, 18, 1, 2].into(),
        payload_len: message.len(),
    };
    ip.emit_with_router_alert(&mut frame[ethernet::LEN..]);
    frame.extend_from_slice(message);
    frame
}

fn egress() -> Device {
    let config = RsvpConfig { refresh_reduction: Some(RefreshReduction::default()), ..RsvpConfig::default() };
    let mut device = device(2, 1, config);
    device.command(Instant(0), NAME, &Command::Start).unwrap();
    device
}

fn counter(device: &Device, name: &str) -> u64 {
    device.protocols().find(|p| p.name() == NAME).unwrap().state().counter(name)
}

fn foreign(device: &Device) -> usize {
    device.protocol::<drophammer_emulation::rsvp::Rsvp>().unwrap().foreign_len()
}

/// The `n`-th Path to the device.
fn path(n: u32, hop: Ipv4Addr, refresh: u32) -> Vec<u8> {
    let sender = Sender { address: Ipv4Addr::from_bits(0x0a00_0000 + n), lsp_id: n as u16 };
    let body = Body::Path(Path {
        session: Session {
            destination: [198, 18, 1, 2].into(),
            tunnel_id: n as u16,
            extended_tunnel_id: sender.address,
        },
        hop: Hop { address: hop, interface: n },
        refresh,
        explicit_route: None,
        label_request: Some(0x800),
        attribute: None,
        sender,
        tspec: Tspec::constant(1e6, 1500),
        adspec: None,
        record_route: None,
    });
    let mut message = Vec::new();
    let id = MessageId { flags: MessageId::ACK_DESIRED, epoch: n / 700, id: n };
    body.emit(flag::REFRESH_REDUCTION_CAPABLE, 255, &[Object::MessageId(id)], &mut message);
    message
}

#[test]
fn foreign_state_is_bounded() {
    let mut device = egress();
    let (mut sent, mut bytes) = (0u64, 0);
    for n in 0..100_000u32 {
        // 100 previous hops, each of which changes its epoch from time to time.
        let hop = Ipv4Addr::new(198, 18, 1, 100 + (n % 100) as u8);
        let hop = if n % 2 == 0 { Ipv4Addr::new(198, 18, 1, 1) } else { hop };
        device.receive(Instant(u64::from(n)), &frame(hop, &path(n, hop, 30_000)), &mut |out| {
            sent += 1;
            bytes += out.len();
        });
    }
    assert_eq!(foreign(&device), MOST_FOREIGN);
    assert!(sent <= 110_000, "{sent} frames for 100000: about one answer each");
    // Half of the Paths are from 50 hops other than the gateway.
    let others = MOST_NEIGHBOURS as u64 - 1;
    assert_eq!(counter(&device, "neighbours_refused"), 50_000 / 50 * (50 - others));
    assert!(counter(&device, "foreign_refused") > 50_000);
    // They expire together.
    let later = Instant(200_000_000_000);
    while device.next_deadline().is_some_and(|due| due <= later) {
        device.poll(later, BUDGET, &mut |_| {});
    }
    assert_eq!(foreign(&device), 0);
    // Then others may have their places.
    let refused = counter(&device, "neighbours_refused");
    for n in 0..30 {
        let hop = Ipv4Addr::new(198, 18, 1, 200 + n as u8);
        device.receive(later, &frame(hop, &path(100_000 + n, hop, 30_000)), &mut |_| {});
    }
    assert_eq!(foreign(&device), MOST_NEIGHBOURS - 1);
    assert_eq!(counter(&device, "neighbours_refused") - refused, 30 - others);
}

#[test]
fn lifetimes_that_shrink_do_not_pile_up_deadlines() {
    let mut device = egress();
    for n in 0..200_000u32 {
        let hop = Ipv4Addr::new(198, 18, 1, 1);
        device.receive(Instant(1), &frame(hop, &path(1, hop, 1_000_000 - n)), &mut |_| {});
    }
    let mut polls = 0;
    while device.next_deadline().is_some_and(|due| due <= Instant(2)) {
        device.poll(Instant(2), BUDGET, &mut |_| {});
        polls += 1;
    }
    assert!(polls < 10, "{polls}");
    assert_eq!(foreign(&device), 1);
}

#[test]
fn a_neighbour_that_always_restarts_costs_little() {
    let mut device = egress();
    let mut sent = 0;
    for n in 0..100_000u32 {
        let mut message = Vec::new();
        let hello = HelloObject { request: true, source: n + 1, destination: n };
        Body::Hello(Hello { hello }).emit(0, 255, &[], &mut message);
        let arriving = frame([198, 18, 1, 1].into(), &message);
        device.receive(Instant(u64::from(n)), &arriving, &mut |_| sent += 1);
    }
    assert_eq!((sent, counter(&device, "lost_neighbours")), (100_000, 99_999));
    device.poll(Instant(100_000), BUDGET, &mut |_| {});
    assert_eq!(device.next_deadline(), None);
}

#[test]
fn unknown_reservations_summaries_and_errors_are_counted() {
    let mut device = egress();
    let source = Ipv4Addr::new(198, 18, 1, 1);
    let mut answers = Vec::new();
    for n in 0..1_000u16 {
        let mut message = Vec::new();
        let error = ErrorSpec { node: source, flags: 0, code: n as u8, value: n };
        let session = Session { destination: source, tunnel_id: n, extended_tunnel_id: source };
        let sender = Sender { address: source, lsp_id: n };
        Body::PathErr(PathErr { session, error, sender, tspec: None }).emit(0, 255, &[], &mut message);
        device.receive(Instant(1), &frame(source, &message), &mut |_| panic!("no answer to an error"));
    }
    let errors: u64 = device.protocol::<drophammer_emulation::rsvp::Rsvp>().unwrap().errors().map(|(_, n)| n).sum();
    assert_eq!((errors, counter(&device, "errors_uncounted")), (64, 936));
    let ids: Vec<_> = (0..300u32).map(u32::to_be_bytes).collect();
    let mut message = Vec::new();
    Body::Srefresh.emit(1, 255, &[Object::MessageIdList(MessageIdList::new(7, &ids))], &mut message);
    device.receive(Instant(1), &frame(source, &message), &mut |out| answers.push(out.to_vec()));
    device.poll(Instant(1), BUDGET, &mut |out| answers.push(out.to_vec()));
    assert_eq!(counter(&device, "nacks_sent"), 300);
    let acks: Vec<_> = answers.iter().filter(|out| out[12..14] == [8, 0]).collect();
    assert_eq!((acks.len(), counter(&device, "ack_sent")), (3, 3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_messages_never_panic(
        changes in proptest::collection::vec((any::<u16>(), any::<u16>(), any::<u8>()), 1..60),
    ) {
        let mut world = World::new(20, RsvpConfig {
            refresh_reduction: Some(RefreshReduction { bundle: false, ..RefreshReduction::default() }),
            ..RsvpConfig::default()
        });
        world.log = Some(Vec::new());
        world.set_up(0..20, 0);
        world.run_to(seconds(50.0));
        let log = world.log.take().unwrap();
        for (which, at, value) in changes {
            let mut frame = log[usize::from(which) % log.len()].1.clone();
            let header = 14 + usize::from(frame[14] & 15) * 4;
            let at = header + 8 + usize::from(at) % (frame.len() - header - 8);
            frame[at] = value;
            // No checksum.
            frame[header + 2..header + 4].fill(0);
            for device in &mut world.devices {
                frame[..6].copy_from_slice(&device.mac().0);
                device.receive(world.now, &frame, &mut |_| {});
            }
        }
        world.run_to(seconds(400.0));
        prop_assert!(world.state(EGRESS).up >= 15, "{:?}", world.up());
    }
}
