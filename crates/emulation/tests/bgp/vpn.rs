//! Routes of many VRFs: independent decoders read them, and they are verified whatever a peer sends.

use super::common::*;
use super::oracle::{Route, read, theirs};
use super::tshark::{check_attributes, decode, is_whole, of_field};
use drophammer_emulation::bgp::{
    AdjRibIn, AdjRibOut, Distinguishers, Encapsulation, EncapsulationKind, ExpectationId, Expected, Heard, NextHops,
    Packing, RoutePart, RouteSet, VpnFaultKind, VpnPart, VpnRouteSet,
};
use drophammer_model::Instant;
use drophammer_model::routes::{Administrator, Change, Counting, LabelPer, PrefixesPerVrf, VpnId, VpnRoutes, VrfRange};
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::update::Labels;
use proptest::prelude::*;
use std::net::IpAddr;
use std::sync::Arc;

/// A speaker without IPv6 addresses.
const IPV4_ALONE: NextHops = NextHops { ipv4: Some(NEXT_HOP), ipv6: None, link_local: None };

fn set(routes: &Arc<VpnRoutes>) -> VpnRouteSet {
    VpnRouteSet { path_id: PATH_ID, ..VpnRouteSet::all(routes.clone(), Packing::default()) }
}

/// Identifiers of each type.
fn any_id() -> impl Strategy<Value = VpnId> {
    (0usize..3, 1u32..60_000).prop_map(|(kind, number)| {
        let kinds =
            [Administrator::As2(65_000), Administrator::Ipv4([192, 0, 2, 1].into()), Administrator::As4(4_200_000_000)];
        VpnId { administrator: kinds[kind], number }
    })
}

/// The names of an identifier in netgauze: as a route distinguisher, and as a route target.
fn names(id: VpnId) -> [String; 2] {
    let number = id.number;
    let distinguisher = match id.administrator {
        Administrator::As2(asn) => format!("As2Administrator {{ asn2: {asn}, number: {number} }}"),
        Administrator::Ipv4(ip) => format!("Ipv4Administrator {{ ip: {ip}, number: {number} }}"),
        Administrator::As4(asn) => format!("As4Administrator {{ asn4: {asn}, number: {number} }}"),
    };
    [distinguisher, format!("rt:{id}")]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn netgauze_reads_what_was_written(
        ipv6: bool, vrfs in 1u32..9, per_vrf in 1u32..400, id in any_id(), per_ce in 1u32..90, per in 0usize..3, announce: bool,
        add_path: bool, ipv4_alone: bool,
    ) {
        let family = if ipv6 { AfiSafi::VPNV6 } else { AfiSafi::VPNV4 };
        let label_per = [LabelPer::Vrf, LabelPer::Ce(per_ce), LabelPer::Route][per];
        let routes = vpn_routes(family, vrfs, per_vrf, id, label_per);
        let agreed = agreed(add_path, true);
        let hops = if ipv4_alone { IPV4_ALONE } else { next_hops() };
        let change = if announce { Change::Advertise } else { Change::Withdraw };
        let all = vpn_messages(change, set(&routes), &agreed, hops);
        let mut next = 0;
        for message in &all {
            let theirs = theirs(&read(message, add_path, true));
            let first = next / per_vrf;
            let some = if announce { &theirs.announced } else { &theirs.withdrawn };
            for route in some {
                let (vrf, n) = (next / per_vrf, next % per_vrf);
                let label = if announce { routes.label(vrf, n) } else { 0x80_0000 >> 4 };
                let id = names(id.plus(vrf).unwrap())[0].clone();
                let prefix = routes.prefix(vrf, n).to_string();
                let expected: Route = (add_path.then_some(PATH_ID), vec![label], Some(id), prefix);
                prop_assert_eq!(route, &expected);
                prop_assert!(!announce || vrf == first, "one VRF in a message");
                next += 1;
            }
            let full = message.len() > 4096 - 32;
            let end = if announce { next % per_vrf == 0 } else { next == vrfs * per_vrf };
            prop_assert!(full || end, "a message with room before the end: {}", message.len());
            if announce {
                let vrf = first;
                prop_assert_eq!(theirs.extended, [names(id.plus(vrf).unwrap())[1].clone(), "rt:65000:9".into()]);
                let hop: IpAddr = match (ipv6, ipv4_alone) {
                    (false, _) => NEXT_HOP.into(),
                    (true, false) => next_hops().ipv6.unwrap().into(),
                    (true, true) => NEXT_HOP.to_ipv6_mapped().into(),
                };
                prop_assert_eq!(theirs.next_hop, Some(hop));
            }
        }
        prop_assert_eq!(next, vrfs * per_vrf);
    }
}

#[test]
fn tshark_finds_every_kind_whole() {
    for (n, family) in [AfiSafi::VPNV4, AfiSafi::VPNV6].into_iter().enumerate() {
        for announce in [true, false] {
            for id in ["65000:7", "192.0.2.1:7", "4200000000:7"] {
                let routes = vpn_routes(family, 5, 300, id.parse().unwrap(), LabelPer::Ce(100));
                let change = if announce { Change::Advertise } else { Change::Withdraw };
                let all = vpn_messages(change, set(&routes), &agreed(false, true), IPV4_ALONE);
                all.iter().for_each(|message| check_attributes(message, family, announce));
                let Some(lines) = decode(&format!("vpn-{n}-{announce}-{}", &id[..1]), &all) else { return };
                assert!(lines.iter().all(|line| is_whole(line)), "{family} {id}");
                assert_eq!(of_field(&lines, 2).len(), all.len(), "{family} {id}");
                if family == AfiSafi::VPNV4 {
                    // In VPNv6, tshark has no field for distinguishers, and some labels are format strings.
                    let (rds, labels) = (of_field(&lines, 7), of_field(&lines, 8));
                    assert_eq!((rds.len(), labels.len()), (1_500, 1_500), "{id} {announce}");
                    assert!(rds[1_499].ends_with(":11"), "{}", rds[1_499]);
                    let label = if announce { format!("{} (bottom)", routes.label(4, 299)) } else { labels[0].clone() };
                    assert_eq!(labels[1_499], label);
                }
                if announce {
                    let hops = of_field(&lines, 10);
                    assert!(hops.iter().all(|hop| hop == "::ffff:198.18.1.2"), "{hops:?}");
                    assert_eq!(hops.len(), if family == AfiSafi::VPNV6 { all.len() } else { 0 });
                }
            }
        }
    }
}

#[test]
fn the_next_hops_of_the_rfcs() {
    // The next hop with its length, after AFI and SAFI, in the first attribute of each UPDATE.
    let hop = |message: &[u8]| message[30..31 + usize::from(message[30])].to_vec();
    let first = |family: AfiSafi| {
        let id = VpnId::as2(65_000, 1);
        vpn_messages(
            Change::Advertise,
            set(&vpn_routes(family, 1, 1, id, LabelPer::Vrf)),
            &agreed(false, true),
            IPV4_ALONE,
        )
        .remove(0)
    };
    // RFC 4364 section 4.3.2: route distinguisher 0 before the address.
    assert_eq!(hop(&first(AfiSafi::VPNV4)), [&[12, 0, 0, 0, 0, 0, 0, 0, 0][..], &NEXT_HOP.octets()].concat());
    // RFC 4659 section 3.2.1.2.
    let mapped = NEXT_HOP.to_ipv6_mapped().octets();
    assert_eq!(hop(&first(AfiSafi::VPNV6)), [&[24, 0, 0, 0, 0, 0, 0, 0, 0][..], &mapped].concat());
    // 6PE (RFC 4798 section 2): IPv6 with labels over an IPv4 core.
    let kind = EncapsulationKind::Labelled(Labels::Counting(FIRST_LABEL));
    let mut adj_rib_out = AdjRibOut::new();
    let unicast = RouteSet::unicast(routes(AfiSafi::IPV6_LABELLED, 3, 1, false), 0..3, Packing::default());
    adj_rib_out.push(Change::Advertise, RouteSet { encapsulation: Encapsulation { kind, path_id: 0 }, ..unicast });
    let all = drain(&mut adj_rib_out, &agreed(false, true), IPV4_ALONE);
    assert_eq!(hop(&all[0]), [&[16][..], &mapped].concat());
    check_attributes(&all[0], AfiSafi::IPV6_LABELLED, true);
    let Some(lines) = decode("6pe", &all) else { return };
    assert!(lines.iter().all(|line| is_whole(line)));
    assert_eq!(theirs(&read(&all[0], false, true)).next_hop, Some(NEXT_HOP.to_ipv6_mapped().into()));
}

#[test]
fn the_buffer_leaves_no_trace_in_withdrawals_of_many_vrfs() {
    let routes = vpn_routes(AfiSafi::VPNV4, 1_500, 3, VpnId::as2(65_000, 1), LabelPer::Vrf);
    let through = |room: usize, packing: Packing| {
        let mut adj_rib_out = AdjRibOut::new();
        let some = VpnRouteSet { part: 1..3, packing, ..set(&routes) };
        adj_rib_out.push_vpn(Change::Withdraw, some);
        let (mut all, mut buffer) = (Vec::new(), vec![0; room]);
        while !adj_rib_out.is_empty() {
            let bytes = adj_rib_out.write(Instant(1), &agreed(false, true), next_hops(), &mut buffer);
            assert!(bytes > 0, "stuck");
            all.extend_from_slice(&buffer[..bytes]);
        }
        assert_eq!((adj_rib_out.progress().withdrawn, adj_rib_out.progress().bytes), (3_000, all.len() as u64));
        (all, adj_rib_out.progress().messages)
    };
    let (all, messages) = through(4096, Packing::default());
    assert_eq!(messages, 12, "3,000 routes of 15 bytes");
    for room in [4097, 5000, 20_000, 1 << 20] {
        assert_eq!(through(room, Packing::default()), (all.clone(), messages), "{room}");
    }
    let one = Packing { routes_per_update: 1, ..Packing::default() };
    assert_eq!(through(4096, one).1, 3_000);
}

#[test]
fn a_stack_of_labels_is_kept_if_both_offer_it() {
    let routes = vpn_routes(AfiSafi::VPNV4, 1, 1, VpnId::as2(65_000, 1), LabelPer::Vrf);
    let mut body = vpn_messages(Change::Advertise, set(&routes), &agreed(false, true), next_hops())[0][19..].to_vec();
    // One more label, 18, before the label 16 of the only route, whose length is the byte before: all lengths grow.
    let at = 4 + 4 + 3 + 1 + 12 + 1;
    assert_eq!(body[at..at + 4], [112, 0, 1, 1]);
    let grow = |body: &mut Vec<u8>| {
        body.splice(at + 1..at + 1, [0, 1, 0x20]);
        (body[at], body[3], body[7]) = (body[at] + 24, body[3] + 3, body[7] + 3);
    };
    grow(&mut body);
    let (mut adj_rib_in, id) = expect(&routes, Distinguishers::Configured);
    let agreed = |most| drophammer_emulation::bgp::Negotiated {
        label_stacks: vec![(AfiSafi::VPNV4, most)],
        ..agreed(false, true)
    };
    adj_rib_in.update(Instant(1), &body, &agreed(2)).unwrap();
    assert_eq!(adj_rib_in.label_of(id, 0, 0), Some(&[18, 16][..]));
    // More labels than this speaker can receive: the UPDATE withdraws (RFC 8277 section 2.1), the second time too.
    grow(&mut body);
    for n in 1..3 {
        adj_rib_in.update(Instant(1), &body, &agreed(2)).unwrap();
        assert_eq!((adj_rib_in.present(id), adj_rib_in.totals().treated_as_withdraw), (0, n));
    }
    for most in [3, 255] {
        adj_rib_in.update(Instant(1), &body, &agreed(most)).unwrap();
        assert_eq!(adj_rib_in.label_of(id, 0, 0), Some(&[18, 18, 16][..]));
    }
}

/// VRFs that each have their own prefixes.
fn own(vrfs: u32, per_vrf: u32, targets: u32, distinguishers: u32) -> Arc<VpnRoutes> {
    let vrfs = VrfRange {
        count: vrfs,
        distinguisher: Counting::from(VpnId::as2(65_000, distinguishers)),
        targets: vec![Counting::from(VpnId::as2(65_000, targets))],
        first_label: 16,
        label_per: LabelPer::Vrf,
    };
    let prefixes = routes(AfiSafi::VPNV4, vrfs.count * per_vrf, 1, false);
    Arc::new(VpnRoutes::new(vrfs, prefixes, PrefixesPerVrf::Own).unwrap())
}

fn expect(expected: &Arc<VpnRoutes>, distinguishers: Distinguishers) -> (AdjRibIn, ExpectationId) {
    let mut adj_rib_in = AdjRibIn::new();
    let all = Expected { labels: true, times: true, ..Expected::default() };
    let id = adj_rib_in.expect_vpn(Instant(0), VpnPart { routes: expected.clone(), distinguishers }, all);
    (adj_rib_in, id)
}

fn take(adj_rib_in: &mut AdjRibIn, change: Change, routes: &Arc<VpnRoutes>) {
    for message in vpn_messages(change, set(routes), &agreed(false, true), next_hops()) {
        adj_rib_in.update(Instant(1_000_000), &message[19..], &agreed(false, true)).unwrap();
    }
}

#[test]
fn what_is_wrong_with_a_route_is_named() {
    let right = own(10, 5, 1_001, 1);
    let with = |received: &Arc<VpnRoutes>, distinguishers| {
        let (mut adj_rib_in, id) = expect(&right, distinguishers);
        take(&mut adj_rib_in, Change::Advertise, received);
        let report = adj_rib_in.report(id);
        let faults: Vec<_> = adj_rib_in.vpn_faults(id).iter().map(|fault| (fault.vrf, fault.kind)).collect();
        let counts =
            (report.present, report.wrong, report.wrong_target, report.wrong_vrf, adj_rib_in.totals().unexpected);
        (counts, faults)
    };
    let (configured, learned) = (Distinguishers::Configured, Distinguishers::Learned);
    assert_eq!(with(&right, configured), ((50, 0, 0, 0, 0), vec![]));
    // Targets that no VRF has.
    let (counts, faults) = with(&own(10, 5, 9_000, 1), configured);
    assert_eq!((counts, faults[49]), ((50, 50, 50, 0, 0), (9, VpnFaultKind::WrongTarget)));
    // Targets of the next VRF; there is none after the last one.
    let (counts, faults) = with(&own(10, 5, 1_002, 1), configured);
    assert_eq!(
        (counts, faults[0], faults[49]),
        ((50, 50, 5, 45, 0), (0, VpnFaultKind::WrongVrf(1)), (9, VpnFaultKind::WrongTarget))
    );
    // Distinguishers of the next VRF, which has other prefixes.
    let (counts, faults) = with(&own(10, 5, 1_001, 2), configured);
    assert_eq!((counts, faults[0]), ((0, 0, 0, 45, 50), (1, VpnFaultKind::WrongVrf(0))));
    // Distinguishers of no VRF, unless they are learned.
    assert_eq!(with(&own(10, 5, 1_001, 700), configured), ((0, 0, 0, 0, 50), vec![]));
    assert_eq!(with(&own(10, 5, 1_001, 700), learned), ((50, 0, 0, 0, 0), vec![]));
    // If the targets are unknown, nothing can be learned.
    assert_eq!(with(&own(10, 5, 9_000, 700), learned), ((0, 0, 0, 0, 50), vec![]));
}

#[test]
fn wrong_routes_are_named_up_to_a_limit_and_all_counted() {
    let right = own(10, 150, 1_001, 1);
    let (mut adj_rib_in, id) = expect(&right, Distinguishers::Configured);
    take(&mut adj_rib_in, Change::Advertise, &own(10, 150, 9_000, 1));
    assert_eq!((adj_rib_in.vpn_faults(id).len(), adj_rib_in.report(id).wrong_target), (1_000, 1_500));
    assert!(adj_rib_in.complete() && !adj_rib_in.report(id).is_right());
    // The right ones replace them.
    take(&mut adj_rib_in, Change::Advertise, &right);
    assert!(adj_rib_in.report(id).is_right());
    assert_eq!(adj_rib_in.label_of(id, 9, 149), Some(&[25][..]));
    take(&mut adj_rib_in, Change::Withdraw, &right);
    assert_eq!((adj_rib_in.report(id).missing, adj_rib_in.missing_vpn(id, 3).len()), (1_500, 3));
    assert_eq!(adj_rib_in.missing_vpn(id, usize::MAX)[1_499], (9, right.prefix(9, 149)));
    // Learned distinguishers are limited to four for each VRF.
    let (mut adj_rib_in, id) = expect(&right, Distinguishers::Learned);
    for n in 0..9 {
        take(&mut adj_rib_in, Change::Advertise, &own(10, 150, 1_001, 1 + 20 * n));
    }
    assert_eq!(adj_rib_in.learned_distinguishers(id).len(), 40);
    let (report, totals) = (adj_rib_in.report(id), adj_rib_in.totals());
    assert_eq!((report.received, report.repeated, totals.unexpected), (6_000, 4_500, 7_500));
    assert_eq!(adj_rib_in.unexpected(usize::MAX).len(), 1_000);
}

#[test]
fn a_route_with_two_distinguishers_is_gone_when_both_are() {
    let right = own(10, 5, 1_001, 1);
    let (old, new) = (own(10, 5, 1_001, 700), own(10, 5, 1_001, 800));
    let (mut adj_rib_in, id) = expect(&right, Distinguishers::Learned);
    take(&mut adj_rib_in, Change::Advertise, &old);
    take(&mut adj_rib_in, Change::Advertise, &new);
    // Repeating a withdrawal changes nothing.
    for _ in 0..2 {
        take(&mut adj_rib_in, Change::Withdraw, &old);
        let report = adj_rib_in.report(id);
        assert_eq!((report.present, report.missing, report.withdrawn, report.withdrawn_in_error), (50, 0, 0, 0));
    }
    assert!(adj_rib_in.complete() && adj_rib_in.label_of(id, 9, 4).is_some());
    take(&mut adj_rib_in, Change::Withdraw, &new);
    let report = adj_rib_in.report(id);
    assert_eq!((report.present, report.withdrawn, report.withdrawn_in_error), (0, 50, 50));
    // The same happens in the next session, which knows nothing about the last one.
    take(&mut adj_rib_in, Change::Advertise, &old);
    take(&mut adj_rib_in, Change::Advertise, &new);
    adj_rib_in.session_lost(Instant(2));
    take(&mut adj_rib_in, Change::Advertise, &new);
    take(&mut adj_rib_in, Change::Withdraw, &new);
    assert_eq!(adj_rib_in.present(id), 0);
}

#[test]
fn a_refresh_leaves_out_routes_with_a_distinguisher_that_is_no_longer_used() {
    let right = own(10, 5, 1_001, 1);
    let (old, new) = (own(10, 5, 1_001, 700), own(10, 5, 1_001, 800));
    let begins = Heard::RefreshBegins(AfiSafi::VPNV4);
    let ends = Heard::RefreshEnds(AfiSafi::VPNV4);
    let mark = |adj_rib_in: &mut AdjRibIn, marker: Heard<'_>| {
        adj_rib_in.receive(Instant(1_000_000), marker, &agreed(false, true)).unwrap();
    };
    // The new one is learned before the refresh, or in it.
    for before in [true, false] {
        let (mut adj_rib_in, id) = expect(&right, Distinguishers::Learned);
        take(&mut adj_rib_in, Change::Advertise, &old);
        if before {
            take(&mut adj_rib_in, Change::Advertise, &new);
        }
        mark(&mut adj_rib_in, begins);
        take(&mut adj_rib_in, Change::Advertise, &new);
        mark(&mut adj_rib_in, ends);
        assert_eq!((adj_rib_in.present(id), adj_rib_in.report(id).withdrawn), (50, 0), "{before}");
        take(&mut adj_rib_in, Change::Withdraw, &new);
        assert_eq!((adj_rib_in.present(id), adj_rib_in.report(id).withdrawn), (0, 50), "{before}");
    }
    // Withdrawn with one, and not advertised again with the other.
    let (mut adj_rib_in, id) = expect(&right, Distinguishers::Learned);
    take(&mut adj_rib_in, Change::Advertise, &old);
    take(&mut adj_rib_in, Change::Advertise, &new);
    mark(&mut adj_rib_in, begins);
    take(&mut adj_rib_in, Change::Advertise, &old);
    take(&mut adj_rib_in, Change::Withdraw, &old);
    assert_eq!(adj_rib_in.present(id), 50);
    mark(&mut adj_rib_in, ends);
    let report = adj_rib_in.report(id);
    assert_eq!((report.present, report.withdrawn, report.withdrawn_in_error), (0, 50, 50));
}

#[test]
fn a_distinguisher_belongs_to_the_vrf_with_the_prefix() {
    // Each VRF also exports to the one before it, whose target is lower.
    let right = own(10, 5, 1_001, 1);
    let targets = [1_000, 1_001].map(|first| Counting::from(VpnId::as2(65_000, first))).to_vec();
    let theirs = VrfRange { targets, ..own(10, 5, 1_001, 700).vrfs().clone() };
    let theirs = Arc::new(VpnRoutes::new(theirs, right.routes().clone(), PrefixesPerVrf::Own).unwrap());
    let (mut adj_rib_in, id) = expect(&right, Distinguishers::Learned);
    take(&mut adj_rib_in, Change::Advertise, &theirs);
    let learned = adj_rib_in.learned_distinguishers(id);
    assert!(learned.iter().all(|(distinguisher, vrf)| theirs.vrf_of_distinguisher(*distinguisher) == Some(*vrf)));
    let (report, totals) = (adj_rib_in.report(id), adj_rib_in.totals());
    assert_eq!((report.present, report.wrong_target, report.wrong_vrf, totals.unexpected), (50, 50, 0, 0));
}

#[test]
fn routes_are_no_longer_unexpected_once_their_vrf_is_known() {
    let right = own(10, 5, 1_001, 1);
    let (unknown, known) = (own(10, 5, 9_000, 700), own(10, 5, 1_001, 700));
    for learned_by in [1, 5] {
        let (mut adj_rib_in, id) = expect(&right, Distinguishers::Learned);
        take(&mut adj_rib_in, Change::Advertise, &unknown);
        assert_eq!((adj_rib_in.unexpected(usize::MAX).len(), adj_rib_in.present(id)), (50, 0));
        let some = VpnRouteSet { part: 0..learned_by, ..set(&known) };
        for message in vpn_messages(Change::Advertise, some, &agreed(false, true), next_hops()) {
            adj_rib_in.update(Instant(2), &message[19..], &agreed(false, true)).unwrap();
        }
        assert_eq!(adj_rib_in.present(id), 10 * learned_by);
        assert_eq!(adj_rib_in.unexpected(usize::MAX).len() as u32, 50 - 10 * learned_by);
        take(&mut adj_rib_in, Change::Withdraw, &known);
        assert_eq!((adj_rib_in.unexpected(usize::MAX), adj_rib_in.present(id)), (vec![], 0));
    }
}

#[test]
fn labels_of_labelled_unicast_are_kept() {
    for family in [AfiSafi::IPV4_LABELLED, AfiSafi::IPV6_LABELLED] {
        let routes = routes(family, 200, 1, false);
        let (part, mut adj_rib_in) = (50..200, AdjRibIn::new());
        let keys = RoutePart { afi_safi: family, distinguisher: None, routes: routes.clone(), part };
        let id = adj_rib_in.expect_in(Instant(0), keys, Expected { labels: true, ..Expected::default() });
        for message in messages(&routes, true, Packing::default(), encapsulation(family), &agreed(false, true)) {
            adj_rib_in.update(Instant(9), &message[19..], &agreed(false, true)).unwrap();
        }
        assert!(adj_rib_in.is_complete(id));
        assert_eq!(adj_rib_in.label_of(id, 0, 7), Some(&[FIRST_LABEL + 57][..]), "{family}");
        assert_eq!((adj_rib_in.label_of(id, 0, 150), adj_rib_in.label_of(id, 1, 0)), (None, None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn whatever_a_peer_sends_adds_up(
        learned: bool, steps in prop::collection::vec((0u32..3, 0u32..3, any::<bool>(), any::<u16>(), any::<u8>()), 1..30),
    ) {
        let right = own(4, 9, 1_001, 1);
        let (mut adj_rib_in, id) = expect(&right, if learned { Distinguishers::Learned } else { Distinguishers::Configured });
        let agreed = agreed(false, true);
        for (targets, distinguishers, announce, at, xor) in steps {
            let change = if announce { Change::Advertise } else { Change::Withdraw };
            let routes = own(4, 9, 1_001 + targets, 1 + distinguishers);
            for mut message in vpn_messages(change, set(&routes), &agreed, next_hops()) {
                let at = 19 + usize::from(at) % (message.len() - 19);
                message[at] ^= xor;
                let before = adj_rib_in.totals();
                let taken = adj_rib_in.update(Instant(1), &message[19..], &agreed);
                prop_assert!(taken.is_ok() || adj_rib_in.totals() == before);
            }
            let report = adj_rib_in.report(id);
            prop_assert_eq!(report.present + report.missing, 36);
            prop_assert!(report.wrong <= report.present && adj_rib_in.learned_distinguishers(id).len() <= 16);
            prop_assert_eq!(adj_rib_in.missing_vpn(id, usize::MAX).len() as u32, report.missing);
            let labelled = (0..4).flat_map(|v| (0..9).map(move |r| (v, r)));
            let labelled = labelled.filter(|(v, r)| adj_rib_in.label_of(id, *v, *r).is_some()).count();
            prop_assert_eq!(labelled as u32, report.present, "each present route has a label");
            prop_assert!(adj_rib_in.vpn_faults(id).len() as u64 <= report.wrong_target + report.wrong_vrf);
        }
        adj_rib_in.session_lost(Instant(2));
        prop_assert_eq!((adj_rib_in.present(id), adj_rib_in.learned_distinguishers(id).len()), (0, 0));
    }
}
