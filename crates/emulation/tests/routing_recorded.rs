//! Exchanges of an emulated device with FRR 8.4.4 and BIRD 2.0.12, recorded by `tests/routing_daemons`, and with freeRtr, recorded by `tests/freertr`. A
//! device with the same configuration receives the daemon's packets at the recorded times, and must reach the same states.

use drophammer_emulation::bfd::{self, Bfd, SessionConfig};
use drophammer_emulation::ospf::{
    self, Expected, Externals, NeighbourState, NetworkType, Networks, Ospf, OspfCommand, OspfConfig, Part,
};
use drophammer_emulation::protocol::{Command, Protocol, ProtocolConfig};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use drophammer_wire::bfd::{Control, State, diagnostic};
use drophammer_wire::ospf::{Authentication, Body, Hello, LinkStateUpdate, Opened, kind};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

struct Line {
    at: Instant,
    /// True if the emulated device sent it.
    own: bool,
    frame: Vec<u8>,
}

fn lines(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let [at, sender, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let at = Instant((at.parse::<f64>().unwrap() * 1e9) as u64);
        Line { at, own: sender == "device", frame: hex.as_bytes().chunks(2).map(byte).collect() }
    };
    text.lines().filter(|l| !l.starts_with('#')).map(line).collect()
}

fn device(protocol: &ProtocolConfig) -> Device {
    let ipv4 = Address { address: [198, 18, 0, 2].into(), prefix_len: 24, gateway: [198, 18, 0, 1].into() };
    let [address, gateway] = [2, 1].map(|n| [0x2001, 2, 0, 0, 0, 0, 0, n].into());
    let config = DeviceConfig {
        ipv4: Some(ipv4),
        ipv6: Some(Address { address, prefix_len: 64, gateway }),
        ..DeviceConfig::new("station", MacAddr::local(2), 1)
    };
    let mut device = Device::new(config.clone());
    device.fix_gateway(MacAddr::local(1));
    device.add_protocol(protocol.create(&config).unwrap());
    device
}

/// An OSPF packet without its frame.
fn packet(frame: &[u8]) -> Opened<'_> {
    Opened::parse(&frame[34..], &Authentication::Null).unwrap()
}

/// True if an Update flushes an LSA.
fn ends(frame: &[u8]) -> bool {
    let packet = packet(frame);
    packet.header.kind == kind::LINK_STATE_UPDATE
        && LinkStateUpdate::parse(packet.body).unwrap().iter().any(|lsa| lsa.unwrap().header.age == 3600)
}

#[test]
fn ospf_with_each_daemon() {
    let recordings = [
        ("frr", NetworkType::PointToPoint, include_str!("recorded/ospf-frr.txt")),
        ("bird", NetworkType::Broadcast, include_str!("recorded/ospf-bird.txt")),
        ("freertr", NetworkType::PointToPoint, include_str!("recorded/ospf-freertr.txt")),
    ];
    for (name, network, text) in recordings {
        let networks = Networks { first: [30, 0, 0, 0].into(), length: 24, count: 5, metric: 20 };
        let external = Externals { networks, type_2: true, tag: 0, forwarding: Ipv4Addr::UNSPECIFIED };
        let config = OspfConfig {
            network,
            priority: 0,
            hello_interval: 1,
            dead_interval: 4,
            retransmit_interval: 2,
            external: Some(external),
            ..OspfConfig::new(Ipv4Addr::new(100, 64, 0, 2))
        };
        let mut device = device(&ProtocolConfig::Ospf(Box::new(config)));
        device.command(Instant(0), ospf::NAME, &Command::Start).unwrap();
        let loopback = Expected::Prefix("203.0.113.1/32".parse().unwrap());
        device.protocol_mut::<Ospf>().unwrap().expect(Instant(0), [loopback], false);
        let (mut withdrawn, mut kinds, mut last) = (false, BTreeSet::new(), Instant(0));
        for line in lines(text) {
            last = line.at;
            if !line.own {
                let opened = packet(&line.frame);
                kinds.insert(opened.header.kind);
                if opened.header.kind == kind::HELLO {
                    let hello = Hello::parse(opened.body).unwrap();
                    assert_eq!((hello.hello_interval, hello.dead_interval), (1, 4), "{name}");
                }
                if opened.header.kind == kind::LINK_STATE_UPDATE {
                    for lsa in LinkStateUpdate::parse(opened.body).unwrap().iter() {
                        let lsa = lsa.unwrap();
                        Body::parse(lsa.header.key.kind, lsa.body).unwrap();
                    }
                }
                device.receive(line.at, &line.frame, &mut |_| {});
            } else if ends(&line.frame) && !withdrawn {
                let full = |n: ospf::NeighbourReport| n.state == NeighbourState::Full;
                let ospf = device.protocol::<Ospf>().unwrap();
                assert!(ospf.neighbours().any(full) && ospf.verification().is_right(), "{name}");
                let withdraw = Command::Ospf(OspfCommand::Withdraw(Part::External(0..5)));
                device.command(line.at, ospf::NAME, &withdraw).unwrap();
                withdrawn = true;
            }
            while device.next_deadline().is_some_and(|at| at <= line.at) {
                device.poll(line.at, 1500, &mut |_| {});
            }
        }
        let ospf = device.protocol::<Ospf>().unwrap();
        assert_eq!((withdrawn, kinds), (true, [1, 2, 3, 4, 5].into()), "{name}");
        assert_eq!((ospf.rejected().sum(), ospf.progress().is_settled()), (0, true), "{name}: {:?}", ospf.state());
        assert_eq!((ospf.state().counter("adjacencies_full"), ospf.progress().advertised), (1, 1), "{name}");
        assert!(ospf.verification().is_right() && ospf.learned(last).all(|header| header.age < 60));
    }
}

#[test]
fn bfd_with_each_daemon() {
    let peers: [IpAddr; 2] = [[198, 18, 0, 1].into(), [0x2001, 2, 0, 0, 0, 0, 0, 1].into()];
    let recordings = [
        ("frr", &peers[..], include_str!("recorded/bfd-frr.txt")),
        ("bird", &peers[..], include_str!("recorded/bfd-bird.txt")),
        ("freertr", &peers[..1], include_str!("recorded/bfd-freertr.txt")),
    ];
    for (name, peers, text) in recordings {
        let session = |peer| SessionConfig {
            desired_min_tx: 50_000,
            required_min_rx: 50_000,
            detect_mult: 5,
            ..SessionConfig::new(peer)
        };
        let mut device = device(&ProtocolConfig::Bfd(peers.iter().map(|peer| session(*peer)).collect()));
        let reports = |device: &Device| device.protocol::<Bfd>().unwrap().sessions().collect::<Vec<_>>();
        device.command(Instant(0), bfd::NAME, &Command::Start).unwrap();
        let (mut started, mut changes) = (true, 0);
        for line in lines(text) {
            let at = if line.frame[12] == 8 { 42 } else { 62 };
            let control = Control::parse(&line.frame[at..]).unwrap();
            if line.own && started == (control.state == State::AdminDown) {
                let command = if started { Command::Stop } else { Command::Start };
                device.command(line.at, bfd::NAME, &command).unwrap();
                started = !started;
                changes += 1;
            } else if !line.own {
                device.receive(line.at, &line.frame, &mut |_| {});
            }
            while device.next_deadline().is_some_and(|next| next <= line.at) {
                device.poll(line.at, 1500, &mut |_| {});
            }
        }
        assert_eq!(changes, 2, "{name}: stopped and started again");
        // The daemon was killed: the detection time of the last packet ends.
        while reports(&device).iter().any(|report| report.state == State::Up) {
            let next = device.next_deadline().unwrap();
            device.poll(next, 1500, &mut |_| {});
        }
        for report in reports(&device) {
            assert_eq!((report.detection_time, report.times_up), (Duration::from_millis(300), 2), "{name}");
            let expected =
                (State::Down, diagnostic::DETECTION_TIME_EXPIRED, report.heard_at.map(|at| at + report.detection_time));
            assert_eq!((report.state, report.diagnostic), (expected.0, expected.1), "{name}");
            assert!(report.down_at >= expected.2, "{name}");
        }
        let discarded = device.protocol::<Bfd>().unwrap().discarded();
        assert_eq!(discarded.sum(), discarded.get("session is AdminDown"), "{name}: {discarded:?}");
    }
}
