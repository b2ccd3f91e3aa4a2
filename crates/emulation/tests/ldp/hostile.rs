//! A hostile peer: floods and garbage.

use super::common::*;
use drophammer_emulation::Device;
use drophammer_emulation::ldp::bindings::MOST_OTHERS;
use drophammer_emulation::ldp::lsr::MOST_PEERS;
use drophammer_emulation::ldp::peer::MOST_ADDRESSES;
use drophammer_emulation::ldp::session::Event;
use drophammer_emulation::ldp::{AdvertisedFecs, Cause, FecRange, LabelPattern, LdpCommand, LsrConfig, Session, State};
use drophammer_emulation::protocol::{Command, Protocol};
use drophammer_model::Instant;
use drophammer_wire::ipv4::{self, protocol};
use drophammer_wire::ldp::status::code;
use drophammer_wire::ldp::{
    self, Addresses, Fecs, Hello, Initialization, Label, LdpId, Message, PduWriter, PrefixFec, Status, frame,
};
use drophammer_wire::{ethernet, udp};
use std::net::Ipv4Addr;
use std::time::Duration;

#[test]
fn labels_that_nobody_expects_are_counted() {
    let flood = FecRange::new("172.16.0.0/32".parse().unwrap(), 50_000);
    let labels = LabelPattern::Counting { first: 16, step: 1 };
    let other = LsrConfig { advertised: vec![AdvertisedFecs { fecs: flood, labels }], ..config(1, 10) };
    let mut world = World::new([config(0, 10), other]);
    world.start();
    world.ldp(1, LdpCommand::Advertise { range: 0, part: 0..50_000 });
    world.run_for(Duration::from_secs(5));
    let bindings = world.peer(0).bindings();
    assert_eq!((bindings.others().len(), bindings.not_held()), (MOST_OTHERS, 50_000 - MOST_OTHERS as u64));
    assert_eq!(world.counter(0, "mappings_received"), 50_000);
    world.ldp(1, LdpCommand::Withdraw { range: 0, part: 0..50_000 });
    world.run_for(Duration::from_secs(5));
    assert_eq!((world.counter(0, "releases_sent"), world.peer(0).bindings().len()), (50_000, 0));
}

/// A frame with a hello from the LSR with this ID.
fn hello(device: &Device, id: u32, hello: Hello) -> Vec<u8> {
    let mut datagram = vec![0; ethernet::LEN + ipv4::LEN + udp::LEN + 64];
    let (at, mut pdus) = (ethernet::LEN + ipv4::LEN + udp::LEN, [0; 64]);
    let mut writer = PduWriter::new(&mut pdus, LdpId::platform(Ipv4Addr::from(id)), 4096);
    assert!(writer.push(1, &Message::Hello(hello)));
    let length = writer.written();
    datagram.truncate(at + length);
    datagram[at..].copy_from_slice(&pdus[..length]);
    let ip = ipv4::Repr {
        tos: 0,
        identification: 0,
        dont_fragment: false,
        ttl: 1,
        protocol: protocol::UDP,
        source: LINK[1],
        destination: ldp::GROUP,
        payload_len: udp::LEN + length,
    };
    udp::Repr { source: ldp::PORT, destination: ldp::PORT }
        .emit(&mut datagram[ethernet::LEN + ipv4::LEN..], ip.pseudo_header_sum());
    ip.emit(&mut datagram[ethernet::LEN..]);
    let group = drophammer_wire::MacAddr([1, 0, 0x5e, 0, 0, 2]);
    ethernet::Repr { destination: group, source: MACS[1], ethertype: ethernet::ethertype::IPV4 }.emit(&mut datagram);
    assert_ne!(device.mac(), MACS[1]);
    datagram
}

#[test]
fn only_so_many_neighbours() {
    let mut device = device(0, config(0, 10));
    device.command(second(1), "ldp", &Command::Start).unwrap();
    let lsr = |device: &Device| {
        let lsr: &drophammer_emulation::ldp::Lsr = device.protocol().unwrap();
        (lsr.peers().len(), lsr.state())
    };
    // Their transport addresses are smaller, so this side would connect to each.
    for id in 1..=1000 {
        let said = hello(&device, id, Hello::link(15, Ipv4Addr::from(0x0a00_0000 + id)));
        device.receive(second(2), &said, &mut |_| {});
        let targeted = Hello { targeted: true, ..Hello::link(15, LSR[1]) };
        let said = hello(&device, 5000 + id, targeted);
        device.receive(second(2), &said, &mut |_| {});
    }
    let (peers, state) = lsr(&device);
    assert_eq!((peers, state.sessions), (MOST_PEERS, MOST_PEERS as u32));
    assert_eq!(
        (state.counter("hellos_received"), state.counter("hellos_ignored")),
        (MOST_PEERS as u64, 2000 - MOST_PEERS as u64)
    );
    let mut sent = 0;
    device.poll(second(2), 1500, &mut |_| sent += 1);
    assert_eq!(sent, 1 + MOST_PEERS, "a hello, and a SYN to each");
    // Once the adjacencies have expired, other peers may come.
    device.poll(second(18), 1500, &mut |_| {});
    let said = hello(&device, 9999, Hello::link(15, LSR[1]));
    device.receive(second(19), &said, &mut |_| {});
    let (peers, state) = lsr(&device);
    assert_eq!((peers, state.sessions, state.counter("adjacencies_lost")), (MOST_PEERS, 1, MOST_PEERS as u64));
}

const PEER: LdpId = LdpId::platform(LSR[1]);

/// The PDUs that carry these messages of the peer.
fn said(messages: &[Message<'_>]) -> Vec<u8> {
    let mut room = vec![0; 70_000];
    let mut pdus = PduWriter::new(&mut room, PEER, 4096);
    (1..).zip(messages).for_each(|(id, message)| assert!(pdus.push(id, message)));
    let length = pdus.written();
    room.truncate(length);
    room
}

fn init() -> Message<'static> {
    Message::Initialization(Initialization::new(60, LdpId::platform(LSR[0])))
}

/// The state and end of a passive session that receives `bytes`, and the messages that it sends.
fn hears(bytes: &[u8]) -> (State, Option<Cause>, Vec<u16>) {
    let mut session = Session::new(second(1), &config(0, 1), PEER, false);
    let mut kinds = Vec::new();
    assert!(session.receive(second(1), bytes, &mut |_, _| {}) <= bytes.len());
    let mut room = vec![0; 5000];
    let mut length = session.write(second(1), &mut room, &mut |_, _| {});
    let mut rest = &room[..length];
    while let Some(pdu) = frame(rest, 4096).unwrap() {
        kinds.extend(pdu.messages().map(|message| message.unwrap().kind));
        length -= pdu.pdu_len();
        rest = &rest[pdu.pdu_len()..];
    }
    assert_eq!(length, 0);
    (session.state(), session.ended(), kinds)
}

#[test]
fn errors_of_the_peer_have_their_status() {
    let ends = |bytes: &[u8]| match hears(bytes).1 {
        Some(Cause::Sent(status)) => Some(status.code),
        _ => None,
    };
    let open = [init(), Message::KeepAlive];
    assert_eq!(hears(&said(&open)), (State::Operational, None, vec![0x200, 0x201]));
    assert_eq!(ends(&said(&[Message::KeepAlive])), Some(code::SHUTDOWN));
    assert_eq!(ends(&said(&[init(), init()])), Some(code::SHUTDOWN));
    // An Operational session stays Operational (section 2.5.4).
    let late = [open[0], open[1], init(), Message::Hello(Hello::link(15, LSR[1]))];
    assert_eq!(hears(&said(&late)), (State::Operational, None, vec![0x200, 0x201]));
    // Before that, no other message is allowed: not even one that a receiver may ignore, or must only answer (section
    // 2.5.3).
    let advice = Message::Notification(Status::new(code::NO_ROUTE));
    let capability = |mut pdu: Vec<u8>| {
        pdu[10..12].copy_from_slice(&[0x82, 2]);
        pdu
    };
    let unnamed = |mut pdu: Vec<u8>| {
        pdu[10..12].copy_from_slice(&[2, 0]);
        pdu
    };
    for (bytes, what) in [
        (said(&[advice]), "advice"),
        (capability(said(&[Message::KeepAlive])), "a message with bit U"),
        (unnamed(said(&[Message::KeepAlive])), "an Initialization without parameters"),
        (said(&[init(), Message::Address(Addresses::ipv4(&[[10, 0, 0, 1]]))]), "an address"),
    ] {
        assert_eq!(ends(&bytes), Some(code::SHUTDOWN), "{what}");
    }
    let after = [said(&open), capability(said(&[Message::KeepAlive]))].concat();
    assert_eq!(hears(&after), (State::Operational, None, vec![0x200, 0x201]));
    let other = Initialization::new(60, LdpId::platform(LSR[1]));
    assert_eq!(ends(&said(&[Message::Initialization(other)])), Some(code::NO_HELLO));
    let never = Initialization::new(0, LdpId::platform(LSR[0]));
    assert_eq!(ends(&said(&[Message::Initialization(never)])), Some(code::BAD_KEEPALIVE_TIME));
    let mut stranger = said(&open);
    stranger[7] ^= 1;
    assert_eq!(ends(&stranger), Some(code::BAD_LDP_IDENTIFIER));
    let mut long = said(&open);
    long[2] = 0xff;
    assert_eq!(ends(&long), Some(code::BAD_PDU_LENGTH));
    // The LSR answers an unknown message, and the session stays up.
    let mut unknown = said(&open);
    let mut odd = said(&[Message::KeepAlive]);
    odd[10] = 0x0f;
    unknown.extend(odd);
    assert_eq!(hears(&unknown), (State::Operational, None, vec![0x200, 0x201, 0x001]));
    let fatal = Status::new(code::INTERNAL_ERROR);
    let (_, ended, _) = hears(&said(&[open[0], open[1], Message::Notification(fatal)]));
    assert_eq!(ended, Some(Cause::Received(fatal)));
    assert_eq!(hears(&said(&[open[0], open[1], Message::Notification(Status::new(code::NO_ROUTE))])).1, None);
}

/// A peer may request a label in the segment of its first KeepAlive.
#[test]
fn the_user_hears_that_the_session_is_operational_before_anything_else() {
    let mut session = Session::new(second(1), &config(0, 1), PEER, false);
    let fec = PrefixFec::new("10.0.0.0/8".parse().unwrap());
    let request = Message::LabelRequest { fecs: fec.fecs() };
    let mut heard = Vec::new();
    let bytes = said(&[init(), Message::KeepAlive, request, Message::KeepAlive]);
    session.receive(second(1), &bytes, &mut |event, _| match event {
        Event::Message(id, message) => heard.push((id, message.kind())),
        Event::Notified(status) => panic!("{status}"),
    });
    assert_eq!(heard, [(2, 0x201), (3, 0x401)]);
}

#[test]
fn answers_that_nobody_reads_stop_the_reading() {
    let mut session = Session::new(second(1), &config(0, 1), PEER, false);
    session.receive(second(1), &said(&[init(), Message::KeepAlive]), &mut |_, _| {});
    let fec = PrefixFec::new("10.0.0.0/8".parse().unwrap());
    let requests = said(&vec![Message::LabelRequest { fecs: fec.fecs() }; 1000]);
    let mut rounds = 0;
    // The peer reads none of the answers to its requests.
    let hear = |session: &mut Session| {
        session.receive(second(2), &requests, &mut |event, outbox| {
            if let Event::Message(id, _) = event {
                outbox.push(&Message::LabelMapping {
                    fecs: fec.fecs(),
                    label: Label::IMPLICIT_NULL,
                    request: Some(id),
                });
            }
        })
    };
    while hear(&mut session) > 0 {
        rounds += 1;
        assert!(rounds < 1000, "it reads for ever");
    }
    assert!(session.is_full());
    let mut room = vec![0; 65_536];
    while session.wants_write() {
        assert!(session.write(second(2), &mut room, &mut |_, _| {}) > 0);
    }
    assert_eq!(hear(&mut session), requests.len(), "then it reads again");
}

/// Messages that an LSR of this crate never sends on its own.
#[test]
fn a_peer_that_says_everything() {
    let mut world = World::up(10);
    let session = |world: &mut World, messages: &[Message<'_>]| {
        // They go through the real connection: side 1's outbox takes any message.
        let lsr: &mut drophammer_emulation::ldp::Lsr = world.devices[1].protocol_mut().unwrap();
        lsr.say(messages);
        world.run_for(Duration::from_secs(1));
    };
    let fec = PrefixFec::new(fecs(0, 10).prefix(3));
    let fecs_of = fec.fecs();
    session(&mut world, &[Message::LabelRequest { fecs: fecs_of }]);
    assert_eq!((world.counter(0, "requests_received"), world.counter(0, "mappings_sent")), (1, 11));
    let unknown = PrefixFec::new("9.0.0.0/8".parse().unwrap());
    session(
        &mut world,
        &[
            Message::LabelRequest { fecs: unknown.fecs() },
            Message::LabelAbortRequest { fecs: unknown.fecs(), request: 1 },
        ],
    );
    assert_eq!(world.counter(0, "notifications_sent_no_route"), 1);
    assert_eq!(world.counter(1, "notifications_received_no_route"), 1);
    let many: Vec<[u8; 4]> = (0..900u16).map(|n| [10, 9, (n >> 8) as u8, n as u8]).collect();
    session(&mut world, &[Message::Address(Addresses::ipv4(&many))]);
    assert_eq!(world.peer(0).addresses().len(), MOST_ADDRESSES);
    session(&mut world, &[Message::AddressWithdraw(Addresses::ipv4(&many))]);
    assert_eq!(world.peer(0).addresses().len(), 2);
    let expected = PrefixFec::new(fecs(1, 10).prefix(0));
    let label = Label::new(77).unwrap();
    session(&mut world, &[Message::LabelMapping { fecs: expected.fecs(), label, request: None }]);
    assert_eq!(
        (world.lsr(0).label_for(fecs(1, 10).prefix(0)), world.counter(0, "releases_sent")),
        (Some(label), 1),
        "the old label goes back"
    );
    // First typed wildcards of both families (RFC 5918), then the wildcard.
    for (elements, label, left) in
        [(&[5, 2, 2, 0, 2][..], None, 10), (&[5, 2, 2, 0, 1], Some(label), 9), (Fecs::WILDCARD.as_bytes(), None, 0)]
    {
        session(&mut world, &[Message::LabelWithdraw { fecs: Fecs::parse(elements).unwrap(), label }]);
        assert_eq!(world.peer(0).bindings().len(), left, "{elements:?}");
    }
    assert_eq!((world.counter(0, "releases_sent"), world.counter(0, "withdraws_received")), (4, 3));
    assert_eq!((world.both("sessions_lost"), world.both("malformed")), ([0, 0], [0, 0]));
}

#[test]
fn garbage_on_the_port_ends_nothing() {
    let mut world = World::up(10);
    let mut frame = hello(&world.devices[0], 7, Hello::link(15, LSR[1]));
    let at = ethernet::LEN + ipv4::LEN + udp::LEN;
    frame[at + 1] = 2;
    let sum = u16::from_be_bytes([frame[at - 2], frame[at - 1]]);
    frame[at - 2..at].copy_from_slice(&(sum - 1).to_be_bytes());
    let now = Instant(world.now.0);
    world.devices[0].receive(now, &frame, &mut |_| {});
    assert_eq!((world.counter(0, "malformed"), world.counter(0, "hellos_ignored")), (1, 1));
    assert_eq!(world.devices[0].oddities().malformed, 1);
    assert_eq!(world.state(0).up, 1);
}
