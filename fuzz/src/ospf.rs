//! OSPF: any bytes are packets and LSAs or refused, and a router takes whatever its neighbour sends at whatever time.

use super::input::Input;
use drophammer_emulation::ospf::{
    Externals, NetworkType, Networks, Ospf, OspfCommand, OspfConfig, Part, Shape, Topology,
};
use drophammer_emulation::protocol::{Command, Protocol};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_wire::ospf::lsa::{self, LsaHeader, LsaKey};
use drophammer_wire::ospf::{
    Authentication, Body, DatabaseDescription, Header, Hello, LinkStateAck, LinkStateRequest, LinkStateUpdate, Lsa,
    Opened, packet,
};
use drophammer_wire::{MacAddr, ipv4};
use std::net::Ipv4Addr;
use std::time::Duration;

const MOST_LEARNED: u32 = 20;
const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// A packet, or the life of a router.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    if input.flag() { parse(&mut input) } else { router(&mut input) }
}

fn parse(input: &mut Input) {
    let kind = input.u8();
    let bytes = input.0;
    for with in [Authentication::Null, Authentication::Simple([0; 8]), Authentication::Md5 { key_id: 0, key: [0; 16] }]
    {
        let _ = Opened::parse(bytes, &with);
    }
    if let Ok(hello) = Hello::parse(bytes) {
        let mut again = Vec::new();
        hello.emit(&mut again);
        assert_eq!(again, bytes);
    }
    let mut again = Vec::new();
    if let Ok((description, headers)) = DatabaseDescription::parse(bytes) {
        description.emit(&mut again);
        headers.iter().for_each(|header| header.emit(&mut again));
        assert_eq!(again, bytes);
    }
    if let Ok(request) = LinkStateRequest::parse(bytes) {
        assert_eq!(request.iter().count(), bytes.len() / 12);
    }
    if let Ok(update) = LinkStateUpdate::parse(bytes) {
        assert!(update.iter().count() <= bytes.len() / lsa::LEN + 1);
    }
    let _ = LinkStateAck::parse(bytes);
    let mut sealed = bytes.to_vec();
    if sealed.len() >= lsa::LEN {
        (sealed[0], sealed[3]) = (0, 1 + kind % 5);
        lsa::seal(&mut sealed);
        assert_eq!(Lsa::parse(&sealed).unwrap().body.len(), bytes.len() - lsa::LEN);
    }
    if let Ok(Body::Router(router)) = Body::parse(kind % 12, bytes) {
        assert_eq!(router.links().count(), usize::from(router.count));
    }
}

fn config(network: NetworkType, priority: u8) -> OspfConfig {
    let networks = |first: [u8; 4]| Networks { first: first.into(), length: 24, count: 4, metric: 5 };
    OspfConfig {
        network,
        priority,
        hello_interval: 1,
        dead_interval: 4,
        retransmit_interval: 2,
        most_learned: MOST_LEARNED,
        topology: Some(Topology {
            routers: 4,
            shape: Shape::Grid { columns: 2 },
            first_router_id: [10, 0, 0, 0].into(),
            link_cost: 1,
            stubs: 1,
            first_stub: [20, 0, 0, 0].into(),
            stub_length: 24,
            stub_cost: 1,
        }),
        inter_area: Some(networks([40, 0, 0, 0])),
        external: Some(Externals {
            networks: networks([30, 0, 0, 0]),
            type_2: false,
            tag: 0,
            forwarding: Ipv4Addr::UNSPECIFIED,
        }),
        ..OspfConfig::new([1, 1, 1, 1].into())
    }
}

/// Name of an LSA of the router, of one behind it, or of its neighbour.
fn key(input: &mut Input) -> LsaKey {
    let kind = [1, 2, 3, 4, 5, 9, 10, 11][input.below(8)];
    let n = input.u8() % 32;
    let routers = [[1, 1, 1, 1], [10, 0, 0, n], [2, 2, 2, 2]].map(Ipv4Addr::from);
    let router = routers[input.below(3)];
    let id = match kind {
        1 => router,
        2 => OWN,
        3 => [40, 0, n, 0].into(),
        _ => [30, 0, n, 0].into(),
    };
    LsaKey { kind, id, router }
}

fn header(input: &mut Input) -> LsaHeader {
    let age = [0, 1, 1000, 3600][input.below(4)];
    let sequence = [lsa::INITIAL_SEQUENCE, lsa::INITIAL_SEQUENCE + 1, 0, lsa::MAX_SEQUENCE][input.below(4)];
    let checksum = input.u8().into();
    LsaHeader { age, options: 2, key: key(input), sequence, checksum, length: 24 }
}

/// Body of a packet that a neighbour may send.
fn body(input: &mut Input, kind: u8, out: &mut Vec<u8>) {
    match kind {
        1 => {
            let both: [[u8; 4]; 1] = [[1, 1, 1, 1]];
            let roles = [Ipv4Addr::UNSPECIFIED, OWN, OTHER];
            let hello = Hello {
                mask: [255, 255, 255, 0].into(),
                hello_interval: 1,
                options: 2,
                priority: input.u8(),
                dead_interval: 4,
                designated: roles[input.below(3)],
                backup: roles[input.below(3)],
                neighbours: &both[..input.below(2)],
            };
            hello.emit(out);
        }
        2 => {
            let (flags, sequence) = (input.u8() % 8, u32::from(input.u8()));
            DatabaseDescription { mtu: 1500, options: 0x42, flags, sequence }.emit(out);
            (0..input.below(4)).for_each(|_| header(input).emit(out));
        }
        3 => (0..input.below(4)).for_each(|_| LinkStateRequest::push(out, &key(input))),
        4 => {
            let count = input.below(4);
            out.extend((count as u32).to_be_bytes());
            for _ in 0..count {
                let mut one = Vec::new();
                header(input).emit(&mut one);
                let length = input.below(40);
                one.extend_from_slice(input.bytes(length));
                lsa::seal(&mut one);
                out.extend(one);
            }
        }
        5 => (0..input.below(4)).for_each(|_| header(input).emit(out)),
        _ => {
            let length = input.below(64);
            out.extend_from_slice(input.bytes(length));
        }
    }
}

fn frame(input: &mut Input) -> Vec<u8> {
    let kind = input.u8() % 8;
    let mut payload = vec![0; packet::LEN];
    body(input, kind, &mut payload);
    let header = Header { kind, router_id: [2, 2, 2, 2].into(), area_id: Ipv4Addr::UNSPECIFIED };
    header.seal(&mut payload, &Authentication::Null, 0);
    let ip = ipv4::Repr {
        tos: 0,
        identification: 0,
        dont_fragment: false,
        ttl: 1,
        protocol: ipv4::protocol::OSPF,
        source: OTHER,
        destination: OWN,
        payload_len: payload.len(),
    };
    let mut frame = vec![0; 34];
    frame[..6].copy_from_slice(&MacAddr::local(1).0);
    frame[6..12].copy_from_slice(&MacAddr::local(2).0);
    frame[12..14].copy_from_slice(&[8, 0]);
    ip.emit(&mut frame[14..]);
    frame.extend(payload);
    frame
}

/// What it sends is a packet with sound LSAs.
fn assert_sound(frame: &[u8]) {
    let (ip, payload) = ipv4::Repr::parse(&frame[14..]).unwrap();
    assert_eq!((ip.ttl, ip.protocol), (1, ipv4::protocol::OSPF));
    let Opened { header, body, .. } = Opened::parse(payload, &Authentication::Null).unwrap();
    match header.kind {
        1 => assert!(Hello::parse(body).is_ok()),
        2 => assert!(DatabaseDescription::parse(body).is_ok()),
        3 => assert!(LinkStateRequest::parse(body).unwrap().iter().all(|key| key.is_some())),
        4 => {
            let all: Vec<_> = LinkStateUpdate::parse(body).unwrap().iter().map(Result::unwrap).collect();
            assert!(!all.is_empty() && all.iter().all(|lsa| Body::parse(lsa.header.key.kind, lsa.body).is_ok()));
        }
        _ => assert!(!LinkStateAck::parse(body).unwrap().is_empty()),
    }
}

fn router(input: &mut Input) {
    let own = Address { address: OWN, prefix_len: 24, gateway: OTHER };
    let of = DeviceConfig { ipv4: Some(own), ..DeviceConfig::new("d", MacAddr::local(1), 1) };
    let network = if input.flag() { NetworkType::Broadcast } else { NetworkType::PointToPoint };
    let mut device = Device::new(of.clone());
    device.fix_gateway(MacAddr::local(2));
    device.add_protocol(Box::new(Ospf::configured(&of, &config(network, input.u8())).unwrap()));
    let mut now = Instant(1);
    while !input.is_empty() {
        match input.below(8) {
            0 => {
                let command = if input.below(4) > 0 { Command::Start } else { Command::Stop };
                device.command(now, "ospf", &command).unwrap();
            }
            1 => {
                let range = u32::from(input.u8() % 3)..4;
                let part = [Part::Routers(range.clone()), Part::InterArea(range.clone()), Part::External(range)]
                    [input.below(3)]
                .clone();
                let command = match input.below(3) {
                    0 => OspfCommand::Advertise(part),
                    1 => OspfCommand::Withdraw(part),
                    _ => OspfCommand::Metric(part, input.u8().into()),
                };
                device.command(now, "ospf", &Command::Ospf(command)).unwrap();
            }
            2 => now = now + Duration::from_millis(input.u16().into()),
            _ => {
                let frame = frame(input);
                let mut answers = 0;
                device.receive(now, &frame, &mut |frame| {
                    assert_sound(frame);
                    answers += 1;
                });
                assert!(answers <= 16, "{answers} packets for one");
            }
        }
        let mut polls = 0;
        while device.next_deadline().is_some_and(|next| next <= now) {
            device.poll(now, 1500, &mut assert_sound);
            polls += 1;
            assert!(polls < 200, "it would be polled for ever");
        }
        let ospf = device.protocol::<Ospf>().unwrap();
        // The ends of LSAs that it does not know any more stay until they are acknowledged.
        assert!(ospf.learned_len() <= MOST_LEARNED as usize + 40, "{}", ospf.learned_len());
        assert!(ospf.neighbours().count() <= 1 && ospf.progress().advertised <= 14);
        assert!(ospf.state().up <= 1);
    }
}
