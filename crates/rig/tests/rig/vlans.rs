//! Devices with VLAN tags behind two ports that are connected to each other: each device is the gateway of its
//! counterpart.

use crate::common::LONG;
use drophammer_emulation::bgp::PeerConfig;
use drophammer_model::traffic::{Arriving, ArrivingTag, Bits, Deviation, Header, Ipv4, Udp, Vlan};
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialResult, TrialSpec};
use drophammer_port::{Port, SystemClock, memory};
use drophammer_rig::{
    Action, Address, Config, DeviceConfig, Event, PortConfig, Ports, Rig, RigError, RouterPlace, Select, Tag, Tags,
    Timing, TrialKeys, Unresolved, Until, host_mac,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

fn tags(number: usize) -> Tags {
    let tag = |tpid, vid| Tag { tpid, vid };
    let tags = [vec![], vec![tag(0x8100, 100)], vec![tag(0x88a8, 100), tag(0x8100, 200)]];
    Tags::new(&tags[number]).unwrap()
}

fn ipv4(port: usize, number: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, number as u8, 1 + port as u8)
}

fn ipv6(port: usize, number: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 2, 0, number as u16, 0, 0, 0, 1 + port as u16)
}

/// Each port has a device without tags, one with one tag and one with two; all devices of a port have one MAC address.
fn config() -> Config {
    let device = |port: usize, number: usize| DeviceConfig {
        tags: tags(number),
        ipv4: Some(Address { address: ipv4(port, number), prefix_len: 24, gateway: ipv4(port ^ 1, number) }),
        ipv6: Some(Address { address: ipv6(port, number), prefix_len: 64, gateway: ipv6(port ^ 1, number) }),
        ..DeviceConfig::new(&format!("p{port}.{number}"), host_mac(5, port))
    };
    let port = |port: usize| PortConfig {
        devices: (0..3).map(|number| device(port, number)).collect(),
        ..PortConfig::new(&format!("p{port}"), host_mac(5, port), 1_500)
    };
    Config { seed: 5, ports: vec![port(0), port(1)] }
}

fn rig(config: &Config) -> Rig {
    let clock = SystemClock::start();
    // The links have room for tags in addition to the MTU.
    let ports = memory::pair([0, 1].map(|i| host_mac(5, i)), 1_500, clock);
    let ports = ports.map(|port| Box::new(port) as Box<dyn Port + Send>).into_iter().collect();
    Rig::new(Ports::real(ports, clock, &[]), config)
}

fn resolved(config: &Config) -> Rig {
    let mut rig = rig(config);
    let end = rig.now() + LONG;
    rig.serve(&Until::Resolved.or_at(end), &|| false).unwrap();
    assert_eq!(rig.unresolved(), None, "all devices find their gateways");
    rig
}

/// Runs a trial with these flows.
fn run(rig: &mut Rig, flows: Vec<FlowSpec>) -> TrialResult {
    rig.start_traffic(&trial(flows), &timing(), vec![]).unwrap();
    rig.finish(&|| false).unwrap()
}

fn flow(number: usize, arrives: usize) -> FlowSpec {
    let host = |port: usize| AddressRange { first: ipv4(port, number).into(), step: 1, count: 1 };
    let vlan = |tag: &Tag| {
        let (tpid, vid) = (Some(tag.tpid.into()), Bits::new(tag.vid.into()).into());
        Header::Vlan(Vlan { tpid, vid, ..Vlan::default() })
    };
    let (tags, arriving) = (tags(number), tags(arrives));
    let headers = tags.as_slice().iter().map(vlan);
    let headers = headers.chain([Header::Ipv4(Ipv4::default()), Header::Udp(Udp::default())]).collect();
    let vlans = arriving.as_slice().iter().map(|tag| ArrivingTag { vid: Bits::new(tag.vid.into()), pcp: None });
    FlowSpec {
        headers,
        arrives: Some(Arriving { vlans: vlans.collect(), ..Arriving::default() }),
        ..FlowSpec::new(format!("{number}"), 0, 1, host(0), host(1))
    }
}

fn trial(flows: Vec<FlowSpec>) -> TrialSpec {
    TrialSpec {
        purpose: "test".into(),
        size: "128".parse().unwrap(),
        flows,
        load: Load::Constant { rate_pps: 6_000.0 },
        duration_s: 0.1,
        bin_s: None,
        drain_s: 1.0,
        events: vec![],
    }
}

fn timing() -> Timing {
    let (_, key, earlier) = TrialKeys::new(9).next_trial();
    Timing { seed: 1, key, earlier, max_backlog_ns: LONG.as_nanos() as u64, late_ns: LONG.as_nanos() as u64 }
}

#[test]
fn every_device_resolves_its_gateway_and_flows_take_its_address() {
    let mut rig = resolved(&config());
    for (port, neighbour) in rig.hosts().neighbours().iter().enumerate() {
        let other = Some(host_mac(5, port ^ 1));
        assert_eq!((neighbour.mac, neighbour.device_ipv4, neighbour.device_ipv6), (host_mac(5, port), other, other));
        let vlans: Vec<_> = neighbour.vlans.iter().map(|v| (&v.vids[..], v.device_ipv4, v.device_ipv6)).collect();
        assert_eq!(vlans, [(&[100][..], other, other), (&[100, 200][..], other, other)]);
    }
    let flows = (0..3).map(|number| flow(number, number)).collect();
    let result = run(&mut rig, flows);
    assert_eq!(result.groups.len(), 3);
    for group in &result.groups {
        assert_eq!((group.offered, group.received, group.deviations.len()), (200, 200, 0), "{}", group.group);
    }
    // The counterpart in VLAN 100 does not answer in any other VLAN.
    let result = run(&mut rig, vec![flow(1, 2), flow(2, 1)]);
    let how: Vec<_> = result.groups.iter().map(|g| (g.received, g.deviations.clone())).collect();
    let all = |deviation| (0, [(deviation, 300)].into());
    assert_eq!(how, [all(Deviation::VlanMissing), all(Deviation::VlanUnexpected)]);
}

#[test]
fn test_frames_behind_tags_need_the_address_of_the_port() {
    let mut config = config();
    config.ports[1].devices[1].mac = host_mac(5, 7);
    let mut rig = resolved(&config);
    // Frames to VLAN 100 would arrive at another address than the one where they are counted.
    let mut refused = |sent, arrives| rig.start_traffic(&trial(vec![flow(sent, arrives)]), &timing(), vec![]);
    for (sent, arrives, possible) in [(1, 1, false), (0, 1, false), (2, 2, true)] {
        match refused(sent, arrives) {
            Ok(_) => assert!(possible, "{sent} to {arrives}"),
            Err(e) => {
                let text = e.to_string();
                assert!(!possible && text.contains("VLAN 100") && text.contains("the same address"), "{text}");
            }
        }
    }
    // A second device with the MAC address of the port is enough.
    let mut also = config.ports[1].devices[1].clone();
    (also.mac, also.ipv4, also.ipv6) = (host_mac(5, 1), None, None);
    config.ports[1].devices.push(also);
    let neighbours = resolved(&config).hosts().neighbours();
    assert_eq!(neighbours[1].vlans[0].mac, host_mac(5, 1));
}

#[test]
fn a_device_whose_gateway_is_silent_is_named() {
    let mut config = config();
    // No gateway at the other end.
    let silent = config.ports[1].devices.pop().unwrap();
    let mut rig = rig(&config);
    let first = Unresolved { port: 0, tags: silent.tags };
    let end = rig.now() + LONG;
    while rig.unresolved() != Some(first) && rig.now() < end {
        let soon = rig.now() + Duration::from_millis(5);
        rig.serve(&Until::At(soon), &|| false).unwrap();
    }
    assert_eq!(rig.unresolved(), Some(first));
    assert_eq!(first.tags.to_string(), "VLANs 100.200");
    // Traffic without these tags can be sent; traffic with them cannot.
    let refused = rig.start_traffic(&trial(vec![flow(2, 2)]), &timing(), vec![]);
    assert!(matches!(refused, Err(RigError::Plan(_))));
    assert_eq!(run(&mut rig, vec![flow(1, 1)]).lost(), 0);
}

#[test]
fn a_fixed_address_of_the_dut_holds_for_all_devices() {
    let mut config = config();
    for port in 0..2 {
        config.ports[port].dut = Some(host_mac(5, port ^ 1));
        for device in &mut config.ports[port].devices {
            (device.ipv4, device.ipv6) = (None, None);
        }
    }
    let mut rig = rig(&config);
    assert_eq!(rig.unresolved(), None);
    let result = run(&mut rig, (0..3).map(|n| flow(n, n)).collect());
    assert_eq!((result.offered(), result.lost()), (600, 0));
}

#[test]
fn sessions_run_behind_tags() {
    let mut config = config();
    for (port, number) in [(0, 0), (0, 2), (1, 0), (1, 2)] {
        let (address, dut) = (ipv4(port, number), ipv4(port ^ 1, number));
        let asn = |port: usize| 65_001 + port as u32;
        let peer = PeerConfig::new(address.into(), dut.into(), asn(port), asn(port ^ 1), address);
        config.ports[port].devices[number].add_bgp([PeerConfig { passive: port == 1, ..peer }]);
    }
    let mut rig = resolved(&config);
    let places: Vec<_> = (0..rig.sessions()).map(|session| rig.hosts().place(session)).collect();
    let place = |port, device| RouterPlace { port, device, router: 0 };
    assert_eq!(places, [place(0, 0), place(0, 2), place(1, 0), place(1, 2)]);
    // No untagged session is started.
    rig.protocols(Select::These(&[1, 3]), Action::Start);
    let (mut up, end) = (Vec::new(), rig.now() + LONG);
    while up.len() < 2 {
        let events = rig.drive(end, &|| false).unwrap();
        assert!(!events.is_empty(), "the sessions behind tags do not come up");
        for event in events {
            let Event::SessionUp(session) = event else { panic!("{event:?}") };
            up.push(session);
        }
    }
    up.sort_unstable();
    assert_eq!(up, [1, 3]);
    let established: Vec<_> = rig.metrics().sessions.iter().map(|s| s.established).collect();
    assert_eq!(established, [false, true, false, true]);
}

#[test]
fn devices_that_cannot_be_told_apart_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        config.check(2).unwrap_err()
    };
    let twins = refused(|config| config.ports[1].devices[2].tags = config.ports[1].devices[1].tags);
    assert!(twins.contains("`p1.1` and `p1.2`"), "{twins}");
    assert!(twins.contains("VLAN 100"), "{twins}");
    let same = refused(|config| config.ports[1].devices[2].mac = config.ports[0].mac());
    assert!(same.contains("ports p0 and p1 have the same MAC address"), "{same}");
    let none = refused(|config| config.ports[0].devices.clear());
    assert!(none.contains("port p0 has no device"), "{none}");
    let many = refused(|config| config.ports[0].devices[0].also = vec![(Ipv4Addr::BROADCAST.into(), 2)]);
    assert!(many.contains("cannot have 2 addresses from 255.255.255.255 on"), "{many}");
    assert_eq!(config().check(2), Ok(()));
}
