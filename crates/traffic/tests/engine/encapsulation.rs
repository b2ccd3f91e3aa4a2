//! Frames with any stack of headers are sent, and counted on arrival; frames in an unexpected encapsulation count by
//! deviation.

use crate::common::*;
use drophammer_model::traffic::{
    Arriving, ArrivingLabel, ArrivingTag, ArrivingTunnel, Bits, Deviation, FieldName, Header,
};
use drophammer_model::trial::{AddressRange, Family, FlowSpec, GroupCounts, Load, TrialSpec};
use drophammer_wire::stack::{decode, locate};
use std::collections::{BTreeMap, BTreeSet};

use Family::{Ipv4, Ipv6};

/// The headers of a flow, from JSON.
fn headers(text: &str) -> Vec<Header> {
    serde_json::from_str(text).unwrap()
}

fn tag(vid: u32) -> ArrivingTag {
    ArrivingTag { vid: Bits::new(vid), pcp: None }
}

fn label(label: u32) -> ArrivingLabel {
    ArrivingLabel { label: Bits::new(label), tc: None, ttl: None }
}

fn with(family: Family, text: &str, arrives: Option<Arriving>) -> FlowSpec {
    FlowSpec { headers: headers(text), arrives, ..flow("all", 0, 1, family, 16, 1.0) }
}

fn trial(size: &str, flow: FlowSpec) -> TrialSpec {
    spec(size, vec![flow], Load::Constant { rate_pps: 2_000.0 }, 0.5)
}

const FRAMES: u64 = 1_000;

#[test]
fn every_header_goes_out_and_comes_back() {
    let tags = |vids: &[u32]| Some(Arriving { vlans: vids.iter().map(|v| tag(*v)).collect(), ..Arriving::default() });
    let labels =
        |all: &[u32]| Some(Arriving { labels: all.iter().map(|l| label(*l)).collect(), ..Arriving::default() });
    let cases = [
        (Ipv4, r#"[{"ipv4":{"dscp":46}},{"udp":{"source_port":5000,"destination_port":5001}}]"#, None),
        (Ipv6, r#"[{"ipv6":{"dscp":10,"flow_label":77}},{"udp":{}}]"#, None),
        (Ipv4, r#"[{"ipv4":{}},{"tcp":{"source_port":80,"destination_port":{"start":1024,"count":50}}}]"#, None),
        (Ipv6, r#"[{"ipv6":{}},{"tcp":{}}]"#, None),
        (Ipv4, r#"[{"ipv4":{}},{"icmp_echo":{"identifier":7,"sequence_number":{"start":0,"count":65536}}}]"#, None),
        (Ipv6, r#"[{"ipv6":{}},{"icmp_echo":{"identifier":7}}]"#, None),
        (Ipv4, r#"[{"vlan":{"vid":100,"pcp":5}},{"ipv4":{}},{"udp":{}}]"#, tags(&[100])),
        (Ipv6, r#"[{"vlan":{"vid":100}},{"vlan":{"vid":200}},{"ipv6":{}},{"udp":{}}]"#, tags(&[100, 200])),
        (Ipv4, r#"[{"mpls":{"label":16}},{"ipv4":{}},{"udp":{}}]"#, labels(&[16])),
        (
            Ipv6,
            r#"[{"mpls":{"label":16}},{"mpls":{"label":17}},{"mpls":{"label":18}},{"ipv6":{}},{"udp":{}}]"#,
            labels(&[16, 17, 18]),
        ),
        (
            Ipv4,
            r#"[{"ipv4":{}},{"gre":{"key":9}},{"ipv4":{"source":"10.0.0.1","destination":"10.0.0.2"}},{"udp":{}}]"#,
            None,
        ),
        (Ipv4, r#"[{"ipv4":{}},{"ipv6":{"source":"fd00::1","destination":"fd00::2"}},{"udp":{}}]"#, None),
        (Ipv6, r#"[{"ipv6":{"extensions":[{"hop_by_hop":{}},{"destination_options":{}}]}},{"udp":{}}]"#, None),
        (Ipv4, r#"[{"ipv4":{"options":"94040000"}},{"udp":{}}]"#, None),
        (Ipv4, r#"[{"ipv4":{"protocol":253}},{"raw":{"bytes":"0102030405"}}]"#, None),
        (
            Ipv4,
            r#"[{"ipv4":{"dscp":{"values":[0,10,46]}}},{"udp":{"source_port":{"random":{"min":1024,"max":65535,"count":100}}}}]"#,
            None,
        ),
    ];
    for (family, text, arrives) in cases {
        let (mut bench, seen) = noted(|f| f.frame.to_vec());
        // The neighbours of the bench include VLAN 100, and VLAN 200 in 100.
        for size in ["64", "200", "imix:2x128,1x1500"] {
            seen.borrow_mut().clear();
            let result = bench.run(&trial(size, with(family, text, arrives.clone())));
            let group = &result.groups[0];
            let expected = GroupCounts {
                received_bytes: group.received_bytes,
                bins: group.bins.clone(),
                ..all_well(&result, 0, FRAMES, 0)
            };
            assert_eq!(*group, expected, "{text}, size {size}");
            let seen = seen.borrow();
            assert!(seen.iter().all(|frame| locate(frame).wrong_checksums(frame).next().is_none()), "{text}");
            let bytes: u64 = seen.iter().map(|frame| frame.len() as u64 + 4).sum();
            assert_eq!(group.received_bytes, bytes, "{text}, size {size}");
            if size == "200" {
                assert!(seen.iter().all(|frame| frame.len() == 196), "{text}: all headers count in a frame size");
            }
        }
    }
}

#[test]
fn fields_take_their_values_one_after_the_other() {
    let text = r#"[{"ethernet":{"destination":"02:00:00:00:00:99"}},{"vlan":{"vid":{"start":10,"step":2,"count":3},"pcp":{"values":[1,7]}}},
        {"ipv4":{"ttl":{"values":[9,8]}}},{"udp":{"source_port":{"start":7000,"count":4}}}]"#;
    let (mut bench, seen) = noted(|f| f.frame.to_vec());
    bench.run(&trial("100", with(Ipv4, text, None)));
    let seen = seen.borrow();
    assert_eq!(seen.len() as u64, FRAMES);
    for (i, frame) in seen.iter().enumerate() {
        let layers = locate(frame);
        let read = |index: usize, name| layers.place(frame, index, name).unwrap().read(frame).unwrap();
        let i = i as u128;
        assert_eq!(read(1, FieldName::Vid), 10 + i % 3 * 2);
        assert_eq!(read(1, FieldName::Pcp), [1, 7][i as usize % 2]);
        assert_eq!(read(2, FieldName::Ttl), [9, 8][i as usize % 2]);
        assert_eq!(read(3, FieldName::SourcePort), 7000 + i % 4);
        assert_eq!(read(0, FieldName::Destination), 0x0200_0000_0099);
        assert_eq!(layers.wrong_checksums(frame).count(), 0);
    }
    // The outermost packet has the addresses of the flow, and all of them occur.
    let destinations: BTreeSet<_> = seen.iter().map(|frame| frame[34..38].to_vec()).collect();
    assert_eq!(destinations.len(), 16);
}

/// Sets a field of the header at `index`, and corrects the checksums.
fn set(frame: &mut [u8], index: usize, name: FieldName, value: u128) {
    let layers = locate(frame);
    layers.place(frame, index, name).unwrap().write(frame, value);
    let sums: Vec<_> = layers.checksums(frame).collect();
    sums.iter().for_each(|sum| sum.write(frame));
}

/// Inserts a tag or a label.
fn insert(frame: &mut Vec<u8>, at: usize, bytes: &[u8; 4]) {
    frame.splice(at..at, *bytes);
}

/// Removes four bytes: a tag, or a label above the bottom of its stack.
fn cut(frame: &mut Vec<u8>, at: usize) {
    frame.drain(at..at + 4);
}

/// Adds a label to a stack of two.
fn push_label(frame: &mut Vec<u8>) {
    insert(frame, 14, &[0, 1, 0x36, 60]);
    [16, 17, 18].into_iter().enumerate().for_each(|(i, label)| set(frame, i + 1, FieldName::Label, label));
}

/// Removes the lower label of two.
fn pop_label(frame: &mut Vec<u8>) {
    set(frame, 1, FieldName::BottomOfStack, 1);
    cut(frame, 18);
}

type Change = fn(&mut Vec<u8>);

#[test]
fn each_deviation_is_found_by_its_kind() {
    let vlan = r#"[{"vlan":{"vid":100,"pcp":5}},{"ipv4":{"dscp":46,"ecn":1}},{"udp":{}}]"#;
    let vlan_arrives = Arriving {
        vlans: vec![ArrivingTag { vid: Bits::new(100), pcp: Some(Bits::new(5)) }],
        dscp: Some(Bits::new(46)),
        ecn: Some(Bits::new(1)),
        ttl: Some(64),
        ..Arriving::default()
    };
    let mpls = r#"[{"mpls":{"label":16,"tc":3,"ttl":60}},{"mpls":{"label":17}},{"ipv6":{}},{"udp":{}}]"#;
    let mpls_arrives = Arriving {
        labels: vec![
            ArrivingLabel { label: Bits::new(16), tc: Some(Bits::new(3)), ttl: Some(60) },
            ArrivingLabel { label: Bits::new(17), tc: None, ttl: None },
        ],
        ttl: Some(64),
        ..Arriving::default()
    };
    let gre = r#"[{"ipv4":{}},{"gre":{"key":9}},{"ipv4":{"source":"10.0.0.1","destination":"10.0.0.2"}},{"udp":{}}]"#;
    let tunnel = ArrivingTunnel { gre: true, key: Some(9), ..ArrivingTunnel::default() };
    let at_source = ArrivingTunnel { source: Some("192.0.2.1".parse().unwrap()), ..tunnel };
    let in_ip = ArrivingTunnel { gre: false, ..ArrivingTunnel::default() };
    let plain = r#"[{"ipv4":{}},{"udp":{}}]"#;

    let tunnels = |tunnel| Some(Arriving { tunnel: Some(tunnel), ..Arriving::default() });
    let (vlan_arrives, mpls_arrives) = (Some(vlan_arrives), Some(mpls_arrives));

    type Case = (Change, Deviation);
    type Flow<'a> = (Family, &'a str, Option<Arriving>, &'a [Case]);
    let in_vlan: &[Case] = &[
        (|f| cut(f, 12), Deviation::VlanMissing),
        (|f| insert(f, 16, &[0x81, 0x00, 0, 7]), Deviation::VlanUnexpected),
        (|f| set(f, 1, FieldName::Vid, 101), Deviation::VlanId),
        (|f| set(f, 1, FieldName::Pcp, 4), Deviation::VlanPriority),
        (|f| set(f, 2, FieldName::Dscp, 0), Deviation::Dscp),
        (|f| set(f, 2, FieldName::Ecn, 3), Deviation::Ecn),
        (|f| set(f, 2, FieldName::Ttl, 62), Deviation::Ttl),
    ];
    let labelled: &[Case] = &[
        (|f| cut(f, 14), Deviation::Label),
        (push_label, Deviation::LabelUnexpected),
        (pop_label, Deviation::LabelMissing),
        (|f| set(f, 2, FieldName::Label, 99), Deviation::Label),
        (|f| set(f, 1, FieldName::Tc, 0), Deviation::LabelTc),
        (|f| set(f, 1, FieldName::Ttl, 59), Deviation::LabelTtl),
        (|f| set(f, 3, FieldName::HopLimit, 63), Deviation::Ttl),
    ];
    let out_of_tunnel: Change = |f| drop(f.drain(14..42));
    let in_tunnel: &[Case] =
        &[(|f| set(f, 2, FieldName::Key, 10), Deviation::TunnelKey), (out_of_tunnel, Deviation::TunnelMissing)];
    let unlabelled: &[Case] = &[
        (|f| insert(f, 12, &[0x81, 0x00, 0, 5]), Deviation::VlanUnexpected),
        (last_fragment, Deviation::Fragmented),
        (|f| drop(f.splice(12..14, [0x88, 0x47, 0, 1, 1, 64])), Deviation::LabelUnexpected),
    ];
    let flows: [Flow<'_>; 7] = [
        (Ipv4, vlan, vlan_arrives, in_vlan),
        (Ipv6, mpls, mpls_arrives, labelled),
        (Ipv4, gre, tunnels(tunnel), in_tunnel),
        (Ipv4, gre, tunnels(at_source), &[(|_| {}, Deviation::TunnelAddress)]),
        (Ipv4, gre, tunnels(in_ip), &[(|_| {}, Deviation::TunnelKind)]),
        (Ipv4, gre, Some(Arriving::default()), &[(|_| {}, Deviation::TunnelUnexpected)]),
        (Ipv4, plain, None, unlabelled),
    ];
    let cases = flows.into_iter().flat_map(|(family, text, arrives, cases)| {
        cases.iter().map(move |(change, deviation)| (family, text, arrives.clone(), *change, *deviation))
    });
    let mut kinds = BTreeSet::new();
    for (family, text, arrives, change, deviation) in cases {
        // The device changes every 20th frame. If the change does nothing, the flow expects another encapsulation than
        // it sends.
        let mut bench = Bench::new(2, move |f, out| {
            let mut copy = f.on(DELAY);
            if f.nth(20) {
                change(&mut copy.frame);
            }
            out.push(copy);
        });
        let result = bench.run(&trial("200", with(family, text, arrives)));
        let group = &result.groups[0];
        let every = matches!(deviation, Deviation::TunnelAddress | Deviation::TunnelKind | Deviation::TunnelUnexpected);
        let changed = if every { FRAMES } else { FRAMES / 20 };
        assert_eq!(group.deviations, BTreeMap::from([(deviation, changed)]), "{text}: {deviation}");
        assert_eq!(
            (group.lost, group.received, group.corrupted, group.stray),
            (changed, FRAMES - changed, 0, 0),
            "{text}: {deviation}"
        );
        assert_eq!(result.health.other_received, 0, "{text}: {deviation}");
        kinds.insert(deviation);
    }
    assert_eq!(kinds.len(), Deviation::ALL.len(), "every kind has a case");
}

/// Turns a packet into its last fragment: all but the UDP header.
fn last_fragment(frame: &mut Vec<u8>) {
    frame.drain(34..42);
    let length = (frame.len() - 14) as u128;
    set(frame, 1, FieldName::TotalLength, length);
    set(frame, 1, FieldName::FragmentOffset, 1);
}

#[test]
fn fragments_are_neither_corrupted_nor_received() {
    // Each packet arrives in two fragments; every tenth one loses the last.
    let mut bench = Bench::new(2, |f, out| {
        let whole = f.on(DELAY);
        let mut first = whole.clone();
        first.frame.truncate(34 + 96);
        set(&mut first.frame, 1, FieldName::MoreFragments, 1);
        set(&mut first.frame, 1, FieldName::TotalLength, 20 + 96);
        out.push(first);
        if !f.nth(10) {
            let mut last = whole;
            last_fragment(&mut last.frame);
            out.push(last);
        }
    });
    let result = bench.run(&trial("200", with(Ipv4, r#"[{"ipv4":{}},{"udp":{}}]"#, None)));
    let group = &result.groups[0];
    assert_eq!((group.received, group.lost, group.corrupted, group.stray), (0, FRAMES, 0, 0));
    assert_eq!(group.deviations, BTreeMap::from([(Deviation::Fragmented, FRAMES - FRAMES / 10)]));
    assert_eq!(result.health.other_received, FRAMES, "the first fragments");
}

#[test]
fn a_router_that_takes_a_tag_off_and_rewrites_a_class_is_followed() {
    let text = r#"[{"vlan":{"vid":100}},{"ipv4":{"dscp":10}},{"udp":{}}]"#;
    let arrives = Arriving { dscp: Some(Bits::new(46)), ttl: Some(63), ..Arriving::default() };
    let mut bench = Bench::new(2, |f, out| {
        let mut copy = f.on(DELAY);
        set(&mut copy.frame, 2, FieldName::Dscp, 46);
        set(&mut copy.frame, 2, FieldName::Ttl, 63);
        cut(&mut copy.frame, 12);
        out.push(copy);
    });
    let result = bench.run(&trial("128", with(Ipv4, text, Some(arrives))));
    assert_eq!(result.groups, [all_well(&result, 0, FRAMES, 124)]);
}

#[test]
fn a_packet_that_is_taken_out_of_its_tunnel_is_received() {
    let text = r#"[{"ipv4":{}},{"gre":{}},{"ipv4":{"source":"10.0.0.1","destination":"10.0.0.2"}},{"udp":{}}]"#;
    let mut bench = Bench::new(2, |f, out| {
        let mut copy = f.on(DELAY);
        copy.frame.drain(14..38);
        out.push(copy);
    });
    let result = bench.run(&trial("256", with(Ipv4, text, Some(Arriving::default()))));
    assert_eq!(result.groups, [all_well(&result, 0, FRAMES, 232)]);
}

#[test]
fn stacks_that_cannot_be_are_refused_with_cause_and_remedy() {
    let mut bench = wire();
    for (text, parts) in [
        (r#"[{"vlan":{"vid":100}}]"#, ["vlan", "type"]),
        (r#"[{"mpls":{"label":16,"bottom_of_stack":false}},{"ipv4":{}},{"udp":{}}]"#, ["mpls", "no end"]),
        (r#"[{"udp":{}}]"#, ["udp", "cannot follow"]),
        (r#"[{"ipv4":{"source":"10.0.0.1"}},{"udp":{}}]"#, ["outermost IP header", "sets addresses"]),
        (r#"[{"ipv6":{}},{"udp":{}}]"#, ["families", "outermost"]),
        (r#"[{"vlan":{"vid":4000}},{"ipv4":{}},{"udp":{}}]"#, ["VLAN 4000", "does not answer"]),
    ] {
        let error =
            bench.try_plan(&trial("64", with(Ipv4, text, None))).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
    }
}

#[test]
fn what_goes_out_reads_as_it_was_described() {
    let text = r#"[{"vlan":{"vid":100,"pcp":3}},{"ipv4":{"dscp":46,"ttl":9}},{"tcp":{"source_port":80,"flags":18}}]"#;
    let (mut bench, seen) = noted(|f| f.frame.to_vec());
    bench.run(&trial("128", with(Ipv4, text, None)));
    let first = &seen.borrow()[0];
    let found = decode(first).headers;
    for (asked, found) in headers(text).iter().zip(&found[1..]) {
        for (name, field) in asked.fields() {
            if let Some(field) = field {
                assert_eq!(found.field(name).map(|f| f.bits(0)), Some(field.bits(0)), "{name} of {}", asked.kind());
            }
        }
    }
}

#[test]
fn lenient_flows_arrive_in_any_encapsulation_and_may_set_their_addresses() {
    let text = r#"[
        {"ethernet":{"source":"00:00:00:00:00:00","destination":"00:ab:00:00:00:01"}},{"vlan":{"vid":5}},
        {"ipv4":{"source":"1.1.1.1","destination":{"start":"2.2.2.2","count":3}}},{"udp":{}}
    ]"#;
    let nobody = AddressRange { first: "0.0.0.0".parse().unwrap(), step: 1, count: 1 };
    let strict = FlowSpec { sources: nobody, destinations: nobody.into(), ..with(Ipv4, text, None) };
    for (lenient, received) in [(false, 0), (true, FRAMES)] {
        let (mut bench, seen) = noted(|f| f.frame[30..38].to_vec());
        let group = bench.run(&trial("64", FlowSpec { lenient, ..strict.clone() })).groups.remove(0);
        assert_eq!((group.offered, group.received, group.corrupted), (FRAMES, received, 0), "{lenient}");
        let expected = [2, 3, 4].map(|last| vec![1, 1, 1, 1, 2, 2, 2, last]);
        assert_eq!(seen.borrow()[..3], expected, "in the order of the field");
    }
}

#[test]
fn a_lenient_flow_excuses_no_other_flow_from_its_destination() {
    let flows = |lenient: [bool; 2]| {
        let flow = |(name, lenient)| FlowSpec { lenient, ..flow(name, 0, 1, Ipv4, 4, 1.0) };
        [("first", lenient[0]), ("second", lenient[1])].map(flow).to_vec()
    };
    for lenient in [[false, false], [false, true], [true, true]] {
        // A device that sends all frames to an address that no host has.
        let mut bench = Bench::new(2, |f, out| {
            let mut forwarded = f.on(DELAY);
            forwarded.frame[..6].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
            out.push(forwarded);
        });
        let groups = bench.run(&spec("64", flows(lenient), Load::Constant { rate_pps: 1_000.0 }, 1.0)).groups;
        let counts: Vec<_> = groups.iter().map(|g| (g.offered, g.received, g.stray)).collect();
        assert_eq!(counts, lenient.map(|lenient| if lenient { (500, 500, 0) } else { (500, 0, 500) }), "{lenient:?}");
    }
}
