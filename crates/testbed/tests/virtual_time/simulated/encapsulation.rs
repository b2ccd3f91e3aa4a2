//! Flows with any encapsulation through the reference device: VLAN sub-interfaces, and every way in which a forwarded
//! frame can be wrong.

use crate::common::*;
use drophammer_emulation::compose::{self, Link};
use drophammer_methods::Testbed;
use drophammer_model::Instant;
use drophammer_model::suite::VlanTag;
use drophammer_model::traffic::{Arriving, ArrivingTag, ArrivingTunnel, Bits, Deviation, Header};
use drophammer_model::trial::{
    AddressRange, Family, FlowDuration, FlowSchedule, FlowSpec, Load, TrialResult, TrialSpec,
};
use drophammer_port::simulated::Device;
use drophammer_reference::{Config, Corrupt, Encapsulation, Faults, Hold, Reorder, Route, SubInterface, Truth};
use drophammer_rig::host_mac;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::Reference;
use drophammer_wire::ethernet::ethertype;
use drophammer_wire::icmpv6::ndp;
use drophammer_wire::{MacAddr, arp, icmpv6};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use Family::{Ipv4, Ipv6};

const SEED: u64 = 11;
const BOTH: [Family; 2] = [Ipv4, Ipv6];

/// The tags of each sub-interface; the same number means the same sub-interface on both ports.
fn tags(port: usize, number: u8) -> Vec<VlanTag> {
    let vid = 100 * (port as u16 + 1);
    let tag = |tpid, vid| VlanTag { tpid, vid };
    match number {
        0 => vec![],
        1 => vec![tag(ethertype::VLAN, vid)],
        _ => vec![tag(ethertype::SERVICE_VLAN, vid), tag(ethertype::VLAN, vid + 1)],
    }
}

fn link4(port: usize, number: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, port as u8, number, host)
}

fn link6(port: usize, number: u8, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, port as u16, number.into(), 0, 0, 0, 0, host)
}

/// Addresses behind a sub-interface, or behind the port itself if the number is 0.
fn behind(port: usize, number: u8, family: Family, count: u32) -> AddressRange {
    let first: IpAddr = match family {
        Ipv4 => Ipv4Addr::new(172, 16 + port as u8, number, 1).into(),
        Ipv6 => Ipv6Addr::new(0xfd01, port as u16, number.into(), 0, 0, 0, 0, 1).into(),
    };
    AddressRange { first, step: 1, count }
}

fn device_mac(port: usize) -> MacAddr {
    MacAddr::local(0xd0_0000_0000 | port as u64)
}

/// A device with two sub-interfaces on each of its two ports, and routes through all of them.
fn with_vlans(config: &mut Config) {
    config.neighbour_lifetime = None;
    for port in 0..2 {
        for number in 0..3 {
            let interface = if number == 0 {
                let static_route = config.routes.iter().filter(|route| route.port == port);
                let hops: Vec<IpAddr> = static_route.map(|route| route.next_hop).collect();
                route(config, port, number, port, &hops);
                continue;
            } else {
                config.ports.len() + config.sub_interfaces.len()
            };
            config.sub_interfaces.push(SubInterface {
                port,
                tags: tags(port, number),
                ipv4: Some((link4(port, number, 1), 24)),
                ipv6: Some((link6(port, number, 1), 64)),
            });
            let hops = [link4(port, number, 2).into(), link6(port, number, 2).into()];
            route(config, port, number, interface, &hops);
        }
    }
}

fn route(config: &mut Config, port: usize, number: u8, interface: usize, next_hops: &[IpAddr]) {
    for next_hop in next_hops {
        let (family, prefix_len) = if next_hop.is_ipv4() { (Ipv4, 24) } else { (Ipv6, 64) };
        let prefix = behind(port, number, family, 1).first;
        config.routes.push(Route { prefix, prefix_len, port: interface, next_hop: *next_hop });
    }
}

/// Makes hosts behind the tags send requests to the device, which learns their addresses.
fn hosts_behind_tags_ask(reference: &Reference, now: Instant) {
    let mut device = reference.clone();
    for port in 0..2 {
        for number in 1..3 {
            let source = host_mac(SEED, port);
            let mut frame = Vec::new();
            let link = Link { source, destination: MacAddr::BROADCAST };
            let (own, device_address) = (link4(port, number, 2), link4(port, number, 1));
            compose::arp(&mut frame, link, &arp::Repr::request(source, own, device_address));
            device.receive(now, port, &tagged(frame, port, number));
            let (own, target) = (link6(port, number, 2), link6(port, number, 1));
            let ask = ndp::Repr::NeighborSolicitation { target, source_mac: Some(source) };
            let link = Link { source, destination: device_mac(port) };
            let mut frame = Vec::new();
            compose::icmpv6(&mut frame, link, own, target, 255, &icmpv6::Repr::Ndp(ask));
            device.receive(now, port, &tagged(frame, port, number));
        }
    }
}

fn tagged(mut frame: Vec<u8>, port: usize, number: u8) -> Vec<u8> {
    let bytes = tags(port, number).into_iter().flat_map(|tag| [tag.tpid.to_be_bytes(), tag.vid.to_be_bytes()].concat());
    frame.splice(12..12, bytes);
    frame
}

/// Calls `use_it` with a bed whose device knows all hosts.
fn with_device<T>(use_it: impl FnOnce(&mut TestSetup<'_>, &Reference) -> T) -> T {
    let suite = suite("", "tests: [throughput]\n");
    assert_eq!(suite.seed, SEED);
    with_bed(&suite, &BOTH, with_vlans, |bed, reference| {
        let before = reference.truth();
        hosts_behind_tags_ask(reference, bed.rig().now());
        bed.settle(Duration::from_millis(20)).unwrap();
        let truth = reference.truth();
        assert_eq!(truth.resolution_replies - before.resolution_replies, 8, "ARP and ND of four sub-interfaces");
        assert_eq!((truth.unknown_vlan, truth.encapsulation), (0, 0));
        use_it(bed, reference)
    })
}

/// Headers from IP on, after the tags of a sub-interface of the first port.
fn headers(number: u8, pcp: u32, text: &str) -> Vec<Header> {
    let tags = tags(0, number).into_iter();
    let tags: String = tags.map(|tag| format!(r#"{{"vlan":{{"vid":{},"pcp":{pcp}}}}},"#, tag.vid)).collect();
    serde_json::from_str(&format!(r#"[{{"ethernet":{{"destination":"{}"}}}},{tags}{text}]"#, device_mac(0))).unwrap()
}

/// The frame that must arrive on a sub-interface of the second port.
fn arriving(number: u8) -> Arriving {
    let tag = |tag: VlanTag| ArrivingTag { vid: Bits::new(tag.vid.into()), pcp: Some(Bits::new(0)) };
    Arriving { vlans: tags(1, number).into_iter().map(tag).collect(), ..Arriving::default() }
}

/// A flow from one sub-interface of the first port to one sub-interface of the second port.
fn flow(group: &str, (from, to): (u8, u8), family: Family, text: &str, arrives: Option<Arriving>) -> FlowSpec {
    let (sources, destinations) = (behind(0, from, family, 1), behind(1, to, family, 16));
    FlowSpec { headers: headers(from, 5, text), arrives, ..FlowSpec::new(group, 0, 1, sources, destinations) }
}

fn trial(size: &str, flows: Vec<FlowSpec>, load: Load) -> TrialSpec {
    TrialSpec {
        purpose: "encapsulation".into(),
        size: size.parse().unwrap(),
        flows,
        load,
        duration_s: 0.5,
        bin_s: None,
        drain_s: 2.0,
        events: vec![],
    }
}

/// Runs a trial; also returns the device's counts before and after it.
fn run_trial(bed: &mut TestSetup<'_>, reference: &Reference, spec: &TrialSpec) -> (TrialResult, Truth, Truth) {
    let before = reference.truth();
    let result = bed.trial(spec).unwrap();
    assert!(result.validity.is_valid(), "{:?}", result.validity);
    (result, before, reference.truth())
}

const GRE: &str =
    r#"{"ipv4":{}},{"gre":{"key":9}},{"ipv4":{"source":"10.9.0.1","destination":"10.9.0.2","dscp":8}},{"udp":{}}"#;

#[test]
fn flows_of_every_encapsulation_arrive_completely_each_at_its_own_rate() {
    let with = |arrives: Arriving, dscp: u32| Some(Arriving { dscp: Some(Bits::new(dscp)), ttl: Some(63), ..arrives });
    let tunnel = Arriving {
        tunnel: Some(ArrivingTunnel { gre: true, key: Some(9), ..ArrivingTunnel::default() }),
        dscp: Some(Bits::new(8)),
        ttl: Some(64),
        ..arriving(1)
    };
    let v4 = r#"{"ipv4":{}},{"udp":{}}"#;
    let v6 = r#"{"ipv6":{}},{"udp":{}}"#;
    let flows = vec![
        flow("plain", (0, 0), Ipv4, v4, with(arriving(0), 0)),
        flow("vlan to vlan", (1, 1), Ipv4, v4, with(arriving(1), 0)),
        flow("vlan to plain", (1, 0), Ipv4, v4, with(arriving(0), 0)),
        flow("plain to vlan", (0, 1), Ipv4, v4, with(arriving(1), 0)),
        flow("q in q", (2, 2), Ipv4, v4, with(arriving(2), 0)),
        flow("vlan to q in q, IPv6", (1, 2), Ipv6, v6, with(arriving(2), 0)),
        flow("q in q to vlan", (2, 1), Ipv6, v6, with(arriving(1), 0)),
        flow("class", (1, 1), Ipv4, r#"{"ipv4":{"dscp":46}},{"udp":{}}"#, with(arriving(1), 46)),
        flow("class, IPv6", (1, 1), Ipv6, r#"{"ipv6":{"dscp":10,"flow_label":7}},{"udp":{}}"#, with(arriving(1), 10)),
        flow("TCP", (1, 1), Ipv4, r#"{"ipv4":{}},{"tcp":{"source_port":80}}"#, with(arriving(1), 0)),
        flow("TCP, IPv6", (0, 2), Ipv6, r#"{"ipv6":{}},{"tcp":{}}"#, with(arriving(2), 0)),
        flow("ICMP", (0, 0), Ipv4, r#"{"ipv4":{}},{"icmp_echo":{"identifier":7}}"#, with(arriving(0), 0)),
        flow("ICMPv6", (2, 2), Ipv6, r#"{"ipv6":{}},{"icmp_echo":{"identifier":7}}"#, with(arriving(2), 0)),
        flow("GRE", (1, 1), Ipv4, GRE, Some(tunnel)),
        flow("options", (1, 1), Ipv4, r#"{"ipv4":{"options":"94040000"}},{"udp":{}}"#, with(arriving(1), 0)),
        flow(
            "extension headers",
            (1, 1),
            Ipv6,
            r#"{"ipv6":{"extensions":[{"hop_by_hop":{}},{"destination_options":{}}]}},{"udp":{}}"#,
            with(arriving(1), 0),
        ),
        flow(
            "another protocol",
            (1, 1),
            Ipv4,
            r#"{"ipv4":{"protocol":253}},{"raw":{"bytes":"01"}}"#,
            with(arriving(1), 0),
        ),
    ];
    let rate = |i: usize| 100.0 * (i + 1) as f64;
    let schedule = |i| Some(FlowSchedule { rate_pps: rate(i), delay_s: 0.0, duration: FlowDuration::Continuous });
    let flows: Vec<_> =
        flows.into_iter().enumerate().map(|(i, flow)| FlowSpec { schedule: schedule(i), ..flow }).collect();
    with_device(|bed, reference| {
        for size in ["64", "200", "imix:2x128,1x1500"] {
            let (result, before, after) = run_trial(bed, reference, &trial(size, flows.clone(), Load::Flows));
            for (i, group) in result.groups.iter().enumerate() {
                let all = (rate(i) / 2.0) as u64;
                assert_eq!((group.offered, group.received, group.lost), (all, all, 0), "{}, {size}", group.group);
                assert_eq!((&group.deviations, group.reordered), (&BTreeMap::new(), 0), "{}, {size}", group.group);
                assert_eq!((group.corrupted, group.stray, group.duplicated), (0, 0, 0), "{}, {size}", group.group);
            }
            assert_eq!(result.health.other_received, 0, "{size}");
            assert_eq!(after.forwarded - before.forwarded, result.offered());
            assert_eq!(after.dropped.total(), before.dropped.total());
        }
    });
}

#[test]
fn frames_of_unknown_vlans_are_dropped_and_counted() {
    with_device(|bed, reference| {
        let mut unknown = flow("unknown", (1, 1), Ipv4, r#"{"ipv4":{}},{"udp":{}}"#, Some(arriving(1)));
        for header in &mut unknown.headers {
            if let Header::Vlan(vlan) = header {
                vlan.vid = Bits::new(999).into();
            }
        }
        let known = flow("known", (1, 1), Ipv4, r#"{"ipv4":{}},{"udp":{}}"#, Some(arriving(1)));
        let spec = trial("100", vec![unknown, known], Load::Constant { rate_pps: 2_000.0 });
        let (result, before, after) = run_trial(bed, reference, &spec);
        let lost: Vec<_> = result.groups.iter().map(|g| (g.received, g.lost)).collect();
        assert_eq!(lost, [(0, 500), (500, 0)]);
        assert_eq!((after.unknown_vlan - before.unknown_vlan, after.ignored - before.ignored), (500, 500));
        assert_eq!(after.transit - before.transit, 500);
    });
}

#[test]
fn each_deviation_that_is_dialled_in_is_found_by_its_kind() {
    let vlan = r#"{"ipv4":{"dscp":46,"ecn":1}},{"udp":{}}"#;
    let exact =
        |arrives: Arriving| Arriving { dscp: Some(Bits::new(46)), ecn: Some(Bits::new(1)), ttl: Some(63), ..arrives };
    let v6 = r#"{"ipv6":{"dscp":46,"ecn":1}},{"tcp":{}}"#;
    let tunnel =
        ArrivingTunnel { gre: true, key: Some(9), source: Some(behind(0, 1, Ipv4, 1).first), destination: None };
    let in_gre = || Arriving { tunnel: Some(tunnel), dscp: Some(Bits::new(8)), ttl: Some(64), ..arriving(1) };
    let ip_in_ip = r#"{"ipv6":{}},{"ipv4":{"source":"10.9.0.1","destination":"10.9.0.2"}},{"udp":{}}"#;
    let in_ip = || Arriving { tunnel: Some(ArrivingTunnel::default()), ..arriving(2) };
    let flows = [
        (
            flow("vlan", (0, 1), Ipv4, vlan, Some(exact(arriving(1)))),
            &[
                Deviation::VlanMissing,
                Deviation::VlanUnexpected,
                Deviation::VlanId,
                Deviation::VlanPriority,
                Deviation::LabelUnexpected,
                Deviation::TunnelUnexpected,
                Deviation::Fragmented,
                Deviation::Dscp,
                Deviation::Ecn,
                Deviation::Ttl,
            ][..],
        ),
        (
            flow("q in q", (2, 2), Ipv6, v6, Some(exact(arriving(2)))),
            &[
                Deviation::VlanMissing,
                Deviation::VlanUnexpected,
                Deviation::VlanId,
                Deviation::VlanPriority,
                Deviation::LabelUnexpected,
                Deviation::TunnelUnexpected,
                Deviation::Dscp,
                Deviation::Ecn,
                Deviation::Ttl,
            ],
        ),
        (
            flow("plain", (1, 0), Ipv4, vlan, Some(exact(arriving(0)))),
            &[
                Deviation::VlanUnexpected,
                Deviation::LabelUnexpected,
                Deviation::TunnelUnexpected,
                Deviation::Dscp,
                Deviation::Ecn,
                Deviation::Ttl,
            ],
        ),
        (
            flow("gre", (1, 1), Ipv4, GRE, Some(in_gre())),
            &[
                Deviation::TunnelMissing,
                Deviation::TunnelKind,
                Deviation::TunnelKey,
                Deviation::TunnelAddress,
                Deviation::Dscp,
                Deviation::Ttl,
            ],
        ),
        (
            flow("ip in ip", (1, 2), Ipv6, ip_in_ip, Some(in_ip())),
            &[Deviation::TunnelMissing, Deviation::TunnelKind, Deviation::VlanMissing],
        ),
    ];
    const FRAMES: u64 = 1_000;
    let mut kinds = BTreeSet::new();
    with_device(|bed, reference| {
        for (flow, deviations) in flows {
            let spec = trial("200", vec![flow], Load::Constant { rate_pps: 2_000.0 });
            let (result, ..) = run_trial(bed, reference, &spec);
            assert_eq!((result.received(), result.lost()), (FRAMES, 0), "{}", result.groups[0].group);
            assert_eq!(result.groups[0].deviations, BTreeMap::new(), "{}", result.groups[0].group);
            for deviation in deviations {
                let fault = Some(Encapsulation { every: 20, change: *deviation });
                reference.set_faults(Faults { encapsulation: fault, ..Faults::default() }).unwrap();
                let (result, before, after) = run_trial(bed, reference, &spec);
                reference.set_faults(Faults::default()).unwrap();
                let group = &result.groups[0];
                let changed = after.encapsulation - before.encapsulation;
                assert_eq!(changed, FRAMES / 20, "{}: {deviation}", group.group);
                assert_eq!(group.deviations, BTreeMap::from([(*deviation, changed)]), "{}: {deviation}", group.group);
                assert_eq!((group.lost, group.received), (changed, FRAMES - changed), "{}: {deviation}", group.group);
                assert_eq!((group.corrupted, group.stray, group.duplicated), (0, 0, 0), "{}: {deviation}", group.group);
                // All frames are identified. The others are periodic requests of the bed's hosts.
                let replies = after.resolution_replies - before.resolution_replies;
                assert!(result.health.other_received <= replies, "{}: {deviation}", group.group);
                assert_eq!(after.dropped.total(), before.dropped.total());
                kinds.insert(*deviation);
            }
        }
    });
    // Deviations of labels are tested in `labels.rs`.
    let labels = [Deviation::Label, Deviation::LabelMissing, Deviation::LabelTc, Deviation::LabelTtl];
    let possible = Deviation::ALL.iter().copied().filter(|d| !labels.contains(d));
    assert_eq!(kinds, possible.collect());
}

#[test]
fn a_ttl_that_is_not_decremented_is_a_wrong_ttl() {
    let ttl = |ttl, arrives: Arriving| Some(Arriving { ttl: Some(ttl), ..arrives });
    let flows = vec![
        flow("vlan", (1, 2), Ipv4, r#"{"ipv4":{"ttl":9}},{"udp":{}}"#, ttl(8, arriving(2))),
        flow("IPv6", (0, 1), Ipv6, r#"{"ipv6":{"hop_limit":2}},{"tcp":{}}"#, ttl(1, arriving(1))),
    ];
    let spec = trial("200", flows, Load::Constant { rate_pps: 2_000.0 });
    with_device(|bed, reference| {
        let (result, ..) = run_trial(bed, reference, &spec);
        assert_eq!((result.received(), result.lost()), (1_000, 0));
        reference.set_faults(Faults { ttl_kept_every: 10, ..Faults::default() }).unwrap();
        let (result, before, after) = run_trial(bed, reference, &spec);
        reference.set_faults(Faults::default()).unwrap();
        let kept = after.ttl_kept - before.ttl_kept;
        assert_eq!((kept, result.lost(), result.received()), (100, 100, 900));
        let kinds: BTreeSet<_> = result.groups.iter().flat_map(|g| g.deviations.keys().copied()).collect();
        assert_eq!((kinds, result.sum(|g| g.deviations.values().sum())), ([Deviation::Ttl].into(), kept));
    });
}

#[test]
fn a_suite_dials_the_fault_in_by_the_name_of_the_deviation() {
    assert_eq!(faults_of(&suite(", ttl_kept_every: 9", "tests: [throughput]\n")).ttl_kept_every, 9);
    for (deviation, name) in Deviation::ALL.iter().zip(Deviation::NAMES) {
        let suite = suite(&format!(", encapsulation_every: 20, encapsulation_change: {name}"), "tests: [throughput]\n");
        assert_eq!(faults_of(&suite).encapsulation, Some(Encapsulation { every: 20, change: *deviation }));
    }
    assert_eq!(faults_of(&suite("", "tests: [throughput]\n")).encapsulation, None);
}

#[test]
fn other_faults_act_on_every_transport_and_in_tunnels() {
    let flows = vec![
        flow("TCP", (1, 2), Ipv4, r#"{"ipv4":{}},{"tcp":{}}"#, Some(arriving(2))),
        flow("ICMPv6", (2, 1), Ipv6, r#"{"ipv6":{}},{"icmp_echo":{}}"#, Some(arriving(1))),
        flow("GRE", (1, 0), Ipv4, GRE, None),
        flow("options", (0, 1), Ipv4, r#"{"ipv4":{"options":"94040000"}},{"udp":{}}"#, Some(arriving(1))),
        flow("extension", (2, 2), Ipv6, r#"{"ipv6":{"extensions":[{"hop_by_hop":{}}]}},{"udp":{}}"#, Some(arriving(2))),
    ];
    let spec = trial("200", flows, Load::Constant { rate_pps: 4_000.0 });
    // The offset is neither in the signature nor in the first four bytes, which identify a frame that is not sent to
    // the port of test traffic.
    let corrupt = |fix_checksum| Some(Corrupt { every: 7, offset: Some(20), fix_checksum });
    let hold = Some(Hold { every: 11, time: Duration::from_millis(1_200) });
    let faults = [
        Faults { drop_every: 9, ..Faults::default() },
        Faults { corrupt: corrupt(false), ..Faults::default() },
        Faults { corrupt: corrupt(true), ..Faults::default() },
        Faults { duplicate_every: 3, ..Faults::default() },
        Faults { hold, ..Faults::default() },
        Faults { reorder: Some(Reorder { every: 40, positions: 30 }), ..Faults::default() },
    ];
    with_device(|bed, reference| {
        for faults in faults {
            let before = reference.truth();
            reference.set_faults(faults.clone()).unwrap();
            let (result, ..) = run_trial(bed, reference, &spec);
            let after = reference.truth();
            reference.set_faults(Faults::default()).unwrap();
            let grown = |count: fn(&Truth) -> u64| count(&after) - count(&before);
            assert_eq!(grown(|t| t.test_frames), result.offered(), "{faults:?}");
            let (dropped, corrupted) = (grown(|t| t.dropped.total()), grown(|t| t.corrupted));
            assert_eq!(result.lost(), dropped + corrupted, "{faults:?}");
            assert_eq!(result.sum(|g| g.corrupted), corrupted, "{faults:?}");
            assert_eq!(result.sum(|g| g.duplicated), grown(|t| t.duplicated), "{faults:?}");
            assert_eq!(result.sum(|g| g.late), grown(|t| t.held), "{faults:?}");
            assert_eq!(result.sum(|g| g.reordered) > 0, grown(|t| t.reordered + t.held) > 0, "{faults:?}");
            let done = dropped + corrupted + grown(|t| t.duplicated + t.held + t.reordered);
            assert!(done > 40, "{faults:?}: {done}");
            // All other frames were forwarded as without a fault, and each group lost a part.
            assert!(result.groups.iter().all(|g| g.offered == 400 && g.received > 300), "{faults:?}");
        }
    });
}

#[test]
fn ports_of_a_suite_with_vlans_are_ports_with_sub_interfaces() {
    let text = "suite: known\nseed: 11\nduts:\n  - {name: box, kind: reference}\nports:\n  - name: p1\n    speed: 1 Gbit/s\n    \
                vlans: [{id: 100}, {id: [200, 7], ipv6: off}]\n  - {name: p2, speed: 1 Gbit/s, vlans: [{id: 300}]}\n\
                tests: [throughput]\n";
    let suite = read_suite(text);
    let config = drophammer_testbed::simulated::config(&suite.duts[0], &suite.ports, suite.seed);
    let found: Vec<_> = config.sub_interfaces.iter().map(|s| (s.port, s.tags.clone())).collect();
    let expected = suite.ports.iter().enumerate();
    let expected = expected.flat_map(|(port, p)| p.vlans.iter().map(move |vlan| (port, vlan.tags.clone())));
    assert_eq!(found, expected.collect::<Vec<_>>());
    assert_eq!(found.iter().map(|(port, tags)| (*port, tags.len())).collect::<Vec<_>>(), [(0, 1), (0, 2), (1, 1)]);
    // The second sub-interface is interface 3 of the device, and has no IPv6.
    let vlan = &suite.ports[0].vlans[1];
    let (own, sub) = (vlan.ipv4.as_ref().unwrap(), &config.sub_interfaces[1]);
    assert_eq!((sub.ipv4.map(|a| IpAddr::V4(a.0)), sub.ipv6), (Some(own.dut), None));
    let by_it: Vec<_> = config.routes.iter().filter(|r| r.port == 3).map(|r| (r.prefix, r.next_hop)).collect();
    assert_eq!(by_it, [(own.behind.0, own.host)]);
    drophammer_reference::Router::new(config).unwrap();
}
