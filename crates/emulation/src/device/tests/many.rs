//! Tests of many devices behind one port.

use super::*;
use crate::device::{Devices, Tag, tags};
use crate::protocol::{Input, Output, State};

/// Device `n` of 1,000, each in its own VLANs: all have the same IP addresses.
fn tagged(n: u16) -> DeviceConfig {
    let tags = Tags::new(&[Tag { tpid: tags::DOT1AD, vid: n / 100 + 1 }, Tag { tpid: tags::DOT1Q, vid: n % 100 + 1 }]);
    DeviceConfig {
        tags: tags.unwrap(),
        ipv4: address4(1, 2),
        ipv6: address6(1, 2),
        ..DeviceConfig::new(format!("d{n}"), MacAddr::local(u64::from(n) + 1), u64::from(n))
    }
}

fn broadcast(tags: Tags, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[..6].copy_from_slice(&MacAddr::BROADCAST.0);
    frame[6..12].copy_from_slice(&MacAddr::local(0xff).0);
    let at = tags.write(&mut frame, ethertype::ARP);
    arp::Repr::request(MacAddr::local(0xff), [198, 18, 1, 2].into(), target).emit(&mut frame[at..]);
    frame
}

#[test]
fn a_thousand_devices_are_told_apart_by_their_tags_and_idle_ones_are_left_alone() {
    let mut devices = Devices::new();
    for n in 0..1_000 {
        devices.add(Device::new(tagged(n))).unwrap();
    }
    let mut asked = Vec::new();
    while asked.len() < 2_000 {
        devices.poll(Instant(1), BUDGET, &mut |frame| asked.push(frame.to_vec()));
    }
    // Each device requests both gateways in its own VLANs, once.
    assert_eq!(asked.len(), 2_000);
    let seen: std::collections::BTreeSet<Tags> = asked.iter().map(|frame| Tags::read(frame).unwrap().0).collect();
    assert_eq!(seen.len(), 1_000);
    assert_eq!(devices.next_deadline(), Some(Instant(1) + Duration::from_millis(100)));
    // The device in a VLAN answers a broadcast in that VLAN.
    for n in [0, 7, 999] {
        let config = tagged(n);
        let mut answers = Vec::new();
        let frame = broadcast(config.tags, [198, 18, 1, 1].into());
        assert!(devices.receive(Instant(2), &frame, &mut |frame| answers.push(frame.to_vec())));
        assert_eq!(answers.len(), 1);
        let (tags, kind, payload) = Tags::read(&answers[0]).unwrap();
        let reply = arp::Repr::parse(payload).unwrap();
        assert_eq!((tags, kind, reply.sender_mac), (config.tags, ethertype::ARP, config.mac));
        // Only this device has resolved its gateway.
        let known = devices.iter().filter(|(_, d)| d.gateway_mac(Family::Ipv4).is_some()).map(|(_, d)| d.mac());
        assert!(known.into_iter().any(|mac| mac == config.mac));
    }
    assert_eq!(devices.iter().filter(|(_, d)| d.gateway_mac(Family::Ipv4).is_some()).count(), 3);
    // Frames with tags of no device, and an unknown address with the tags of a device.
    let before = devices.unclaimed();
    let mut silent = |frame: &[u8]| devices.receive(Instant(2), frame, &mut |_| panic!("no request is due"));
    assert!(!silent(&broadcast(Tags::dot1q(7).unwrap(), [198, 18, 1, 1].into())));
    assert!(!silent(&broadcast(tagged(7).tags, [198, 18, 1, 9].into())));
    assert_eq!(devices.unclaimed(), before + 2);
}

#[test]
fn a_thousand_devices_in_one_network_answer_for_themselves() {
    let mut devices = Devices::new();
    for n in 0..1_000u32 {
        let address = |base: u32| Ipv4Addr::from_bits(base + n);
        let own = Address { address: address(0xc612_0100), prefix_len: 16, gateway: [198, 18, 0, 1].into() };
        let six = Ipv6Addr::from_bits((0x2001_0002 << 96) | (u128::from(n) + 256));
        let own6 = Address { address: six, prefix_len: 64, gateway: "2001:2::1".parse().unwrap() };
        let config = DeviceConfig::new(format!("d{n}"), MacAddr::local(n.into()), n.into());
        devices.add(Device::new(DeviceConfig { ipv4: Some(own), ipv6: Some(own6), ..config })).unwrap();
    }
    let router = MacAddr::local(0xffff);
    let mut frame = Vec::new();
    for n in [0u32, 500, 999] {
        let mut answers = Vec::new();
        compose::request(&mut frame, router, [198, 18, 0, 1].into(), Ipv4Addr::from_bits(0xc612_0100 + n));
        devices.receive(Instant(1), &frame, &mut |frame| answers.push(frame.to_vec()));
        let six = Ipv6Addr::from_bits((0x2001_0002 << 96) | (u128::from(n) + 256));
        compose::solicitation(&mut frame, router, "2001:2::1".parse().unwrap(), six);
        devices.receive(Instant(1), &frame, &mut |frame| answers.push(frame.to_vec()));
        assert_eq!(answers.len(), 2);
        assert!(answers.iter().all(|frame| frame[6..12] == MacAddr::local(n.into()).0));
    }
    let known = |devices: &Devices, family| devices.iter().filter(|(_, d)| d.gateway_mac(family).is_some()).count();
    assert_eq!((known(&devices, Family::Ipv4), known(&devices, Family::Ipv6)), (3, 3));
    // An announcement of the gateway reaches all devices with this gateway.
    compose::request(&mut frame, router, [198, 18, 0, 1].into(), [198, 18, 0, 1].into());
    devices.receive(Instant(2), &frame, &mut |_| panic!("it asks nothing"));
    assert_eq!(known(&devices, Family::Ipv4), 1_000);
    // Ping all nodes.
    let all: Ipv6Addr = "ff02::1".parse().unwrap();
    let echo = icmpv6::Repr::EchoRequest { identifier: 1, sequence: 1, data: b"x" };
    let link = Link { source: router, destination: ndp::multicast_mac(all) };
    compose::icmpv6(&mut frame, link, "2001:2::1".parse().unwrap(), all, 64, &echo);
    let mut answers = 0;
    devices.receive(Instant(3), &frame, &mut |_| answers += 1);
    assert_eq!(answers, 1_000);
}

#[test]
fn two_devices_that_cannot_be_told_apart_are_refused_by_name() {
    let mut devices = Devices::new();
    let config = |name: &str, mac, own| DeviceConfig {
        ipv4: address4(own, 2),
        ..DeviceConfig::new(name, MacAddr::local(mac), 1)
    };
    let first = devices.add(Device::new(config("first", 1, 1))).unwrap();
    let refused = devices.add(Device::new(config("second", 1, 9))).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "devices `first` and `second` both have MAC address 02:00:00:00:00:01 (untagged): change the address or the tags of one of them"
    );
    let refused = devices.add(Device::new(config("third", 3, 1))).unwrap_err();
    assert_eq!((&refused.first[..], &refused.second[..], &refused.what[..]), ("first", "third", "198.18.1.1"));
    // In another VLAN, a device may have the MAC and IP addresses of `first`.
    let tags = Tags::dot1q(5).unwrap();
    devices.add(Device::new(DeviceConfig { tags, ..config("tagged", 1, 1) })).unwrap();
    let other = devices.add(Device::new(config("other", 4, 40))).unwrap();
    assert_eq!(devices.add_addresses(first, [198, 18, 1, 10].into(), 30), Ok(true));
    let refused = devices.add_addresses(other, [198, 18, 1, 30].into(), 20).unwrap_err();
    assert_eq!((&refused.first[..], &refused.what[..]), ("first", "198.18.1.30 to 198.18.1.39"));
    // A device's own addresses can be added again. A refused range changes nothing.
    assert_eq!(devices.add_addresses(other, [198, 18, 1, 40].into(), 20), Ok(true));
    assert_eq!(devices.add_addresses(first, [198, 18, 1, 1].into(), 20), Ok(true));
    assert_eq!(devices.add_addresses(first, [198, 18, 1, 5].into(), 0), Ok(false));
    assert_eq!((devices.len(), devices.get(other).addresses().owns_v4([198, 18, 1, 30].into())), (3, false));
    let asked = |devices: &mut Devices, target: [u8; 4]| {
        let mut answers = Vec::new();
        let frame = broadcast(Tags::NONE, target.into());
        devices.receive(Instant(1), &frame, &mut |frame| answers.push(frame[11]));
        answers
    };
    assert_eq!(asked(&mut devices, [198, 18, 1, 39]), [1]);
    assert_eq!(asked(&mut devices, [198, 18, 1, 59]), [4]);
    assert!(asked(&mut devices, [198, 18, 1, 60]).is_empty());
}

/// Counts the inputs that it receives.
#[derive(Default)]
struct Listener {
    matches: Vec<Match>,
    heard: u64,
}

impl Protocol for Listener {
    fn name(&self) -> &'static str {
        "listener"
    }
    fn matches(&self) -> &[Match] {
        &self.matches
    }
    fn receive(&mut self, _: Instant, _: Input<'_>, _: &mut Output<'_>) {
        self.heard += 1;
    }
    fn poll(&mut self, _: Instant, _: usize, _: &mut Output<'_>) {}
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
    fn command(&mut self, _: Instant, _: &Command) -> Result<(), Refused> {
        Err(Refused::unknown("listener"))
    }
    fn state(&self) -> State {
        State { counters: vec![("heard", self.heard)], ..State::default() }
    }
}

#[test]
fn groups_reach_those_that_joined_them_and_types_those_that_match() {
    let mut devices = Devices::new();
    let ospf = "224.0.0.5".parse().unwrap();
    let isis = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x14]);
    let kinds = [
        vec![Match::IpProtocol(89), Match::Group(ospf)],
        vec![Match::IpProtocol(89)],
        vec![Match::Llc(0xfe), Match::LinkGroup(isis)],
        vec![Match::UdpPort(646), Match::Group("224.0.0.2".parse().unwrap())],
    ];
    let ids: Vec<_> = (10..)
        .zip(kinds)
        .map(|(n, matches)| {
            let config = DeviceConfig::new(format!("d{n}"), MacAddr::local(n.into()), 1);
            let id = devices.add(Device::new(DeviceConfig { ipv4: address4(n, 2), ..config })).unwrap();
            devices.add_protocol(id, Box::new(Listener { matches, heard: 0 }));
            id
        })
        .collect();
    let mut send = |to: MacAddr, kind: u16, payload: &[u8]| {
        let mut frame = vec![0; 14 + payload.len()];
        ethernet::Repr { destination: to, source: MacAddr::local(99), ethertype: kind }.emit(&mut frame);
        frame[14..].copy_from_slice(payload);
        devices.receive(Instant(1), &frame, &mut |_| panic!("no device answers"));
        let heard = |id| devices.get(id).protocols().last().unwrap().state().counter("heard");
        ids.iter().map(|id| heard(*id)).collect::<Vec<_>>()
    };
    let packet = |protocol, destination: Ipv4Addr, payload: &[u8]| {
        let mut packet = vec![0; 20 + payload.len()];
        let (source, payload_len) = ([198, 18, 1, 2].into(), payload.len());
        let ip = ipv4::Repr {
            tos: 0,
            identification: 0,
            dont_fragment: false,
            ttl: 1,
            protocol,
            source,
            destination,
            payload_len,
        };
        ip.emit(&mut packet);
        packet[20..].copy_from_slice(payload);
        if protocol == 17 {
            drophammer_wire::udp::Repr { source: 646, destination: 646 }
                .emit(&mut packet[20..], ip.pseudo_header_sum());
        }
        packet
    };
    let group = |last| MacAddr([1, 0, 0x5e, 0, 0, last]);
    let hello = packet(89, [224, 0, 0, 5].into(), b"hello");
    assert_eq!(send(group(5), ethertype::IPV4, &hello), [1, 0, 0, 0]);
    let unicast = packet(89, [198, 18, 1, 11].into(), b"hello");
    assert_eq!(send(MacAddr::local(11), ethertype::IPV4, &unicast), [1, 1, 0, 0]);
    // An LLC frame: the length, then the service access points.
    assert_eq!(send(isis, 6, &[0xfe, 0xfe, 3, 0x83, 0, 0, 9, 9]), [1, 1, 1, 0]);
    assert_eq!(send(isis, 3, &[0x42, 0x42, 3, 0x83, 0, 0]), [1, 1, 1, 0]);
    let ldp = packet(17, [224, 0, 0, 2].into(), &[0; 12]);
    assert_eq!(send(group(2), ethertype::IPV4, &ldp), [1, 1, 1, 1]);
    // A damaged datagram is counted and not delivered.
    let mut damaged = ldp.clone();
    damaged[31] ^= 1;
    assert_eq!(send(group(2), ethertype::IPV4, &damaged), [1, 1, 1, 1]);
    assert_eq!(devices.get(ids[3]).oddities().malformed, 1);
}
