//! Correct routes are accepted, and each kind of error is detected.

use super::*;
use crate::bgp::{AdjRibOut, Encapsulation, EncapsulationKind, NextHops, Packing, RouteSet, SessionConfig};
use drophammer_model::routes::{AttributePattern, Change, GroupSizes, Origin, RouteAttributes, RouteRange, RouteTable};
use drophammer_model::trial::Family;
use drophammer_wire::bgp::notification::code;
use drophammer_wire::bgp::update::Labels;
use proptest::prelude::*;
use std::net::Ipv4Addr;

const HOP: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);

fn agreed() -> Negotiated {
    let families = vec![AfiSafi::IPV4_UNICAST, AfiSafi::IPV6_UNICAST, AfiSafi::IPV4_LABELLED, AfiSafi::VPNV4];
    let config = |local, peer, id: u32| SessionConfig {
        families: families.clone(),
        ..SessionConfig::new(local, peer, Ipv4Addr::from(id))
    };
    Negotiated::from_opens(&config(65_001, 65_000, 1), config(65_000, 65_001, 2).open()).unwrap()
}

fn next_hops() -> NextHops {
    NextHops { ipv4: Some(HOP), ipv6: Some("2001:2::2".parse().unwrap()), link_local: None }
}

/// Bodies of the UPDATEs of routes.
fn bodies(routes: &Arc<Routes>, part: Range<u32>, announce: bool, routes_per_update: u16) -> Vec<Vec<u8>> {
    let packing = Packing { routes_per_update, pace: None, prepend: 0 };
    let change = if announce { Change::Advertise } else { Change::Withdraw };
    bodies_of(change, RouteSet::unicast(routes.clone(), part, packing))
}

fn bodies_of(change: Change, set: RouteSet) -> Vec<Vec<u8>> {
    let mut adj_rib_out = AdjRibOut::new();
    adj_rib_out.push(change, set);
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let bytes = adj_rib_out.write(Instant(0), &agreed(), next_hops(), &mut buffer);
        let mut rest = &buffer[..bytes];
        while let Some(message) = drophammer_wire::bgp::frame(rest, 4096).unwrap() {
            all.push(message.body.to_vec());
            rest = &rest[message.message_len()..];
        }
        if bytes == 0 {
            return all;
        }
    }
}

fn feed(adj_rib_in: &mut AdjRibIn, at: u64, bodies: &[Vec<u8>]) {
    bodies.iter().for_each(|body| adj_rib_in.update(Instant(at), body, &agreed()).unwrap());
}

fn expected(times: bool) -> Expected {
    let source = RouteSource::Peer;
    Expected {
        source,
        as_path_prefix: vec![65_001],
        next_hop: Some(HOP.into()),
        check_attributes: true,
        times,
        labels: false,
        label: None,
    }
}

/// Groups like the Internet's, without MED, which a router would not pass on.
fn internet(count: u32) -> Arc<Routes> {
    let pattern = AttributePattern { med_percent: 0, ..AttributePattern::internet(3) };
    Arc::new(RouteRange::uniform("20.0.0.0/24".parse().unwrap(), count, 1, pattern).unwrap().into())
}

proptest! {
    #[test]
    fn a_route_is_of_the_first_expectation_that_includes_it(
        parts in prop::collection::vec((0usize..3, 0u32..100, 0u32..100), 1..20),
        lookups in prop::collection::vec((0u32..100, any::<bool>()), 1..60),
    ) {
        // The prefixes are the same, but not their order.
        let tables = [internet(100), internet(100), internet(90)];
        let (mut adj_rib_in, mut parts) = (AdjRibIn::new(), parts.into_iter());
        for (first, more) in lookups {
            if more && let Some((table, a, b)) = parts.next() {
                adj_rib_in.expect(Instant(0), tables[table].clone(), a.min(b)..a.max(b), expected(false));
            }
            for prefix in (first..(first + 4).min(100)).map(|i| tables[0].prefix(i)) {
                let IpAddr::V4(address) = prefix.address() else { unreachable!() };
                let (family, length) = (AfiSafi::IPV4_UNICAST, prefix.length());
                let bytes = &address.octets()[..];
                let route = Nlri { family, path_id: None, labels: &[], distinguisher: None, length, bytes };
                let place = |found: Option<(usize, Found)>| found.map(|(at, found)| (at, found.number, found.index));
                let expected = place(adj_rib_in.find_among_all(&route, &prefix));
                prop_assert_eq!(place(adj_rib_in.find(&route, &prefix)), expected);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_model_of_sets(
        count in 1u32..400, per_update in 0u16..9,
        steps in prop::collection::vec((any::<bool>(), 0u32..400, 0u32..400, any::<bool>()), 1..12),
    ) {
        let routes = internet(count);
        let mut adj_rib_in = AdjRibIn::new();
        let half = count / 2;
        let ids = [
            adj_rib_in.expect(Instant(0), routes.clone(), 0..half, expected(false)),
            adj_rib_in.expect(Instant(0), routes.clone(), half..count, expected(false)),
        ];
        let (mut there, mut wanted) = (vec![false; count as usize], vec![true; count as usize]);
        for (come, a, b, change) in steps {
            let part = a.min(b).min(count)..a.max(b).min(count);
            if change {
                ids.iter().for_each(|id| adj_rib_in.change(Instant(0), *id, part.clone(), come));
                part.for_each(|i| wanted[i as usize] = come);
            } else {
                feed(&mut adj_rib_in, 1, &bodies(&routes, part.clone(), come, per_update));
                part.for_each(|i| there[i as usize] = come);
            }
            let count_of = |of: &dyn Fn(usize) -> bool, part: Range<u32>| part.filter(|i| of(*i as usize)).count() as u32;
            for (id, part) in ids.iter().zip([0..half, half..count]) {
                let report = adj_rib_in.report(*id);
                prop_assert_eq!(report.expected, count_of(&|i| wanted[i], part.clone()));
                prop_assert_eq!(report.present, count_of(&|i| wanted[i] && there[i], part.clone()));
                prop_assert_eq!(report.missing, count_of(&|i| wanted[i] && !there[i], part.clone()));
                prop_assert_eq!(report.unexpected, count_of(&|i| !wanted[i] && there[i], part.clone()));
                prop_assert_eq!(report.wrong, 0);
                let missing: Vec<_> =
                    part.filter(|i| wanted[*i as usize] && !there[*i as usize]).map(|i| routes.prefix(i)).collect();
                prop_assert_eq!(adj_rib_in.missing(*id, usize::MAX), missing);
            }
            prop_assert_eq!(adj_rib_in.complete(), wanted == there);
        }
        prop_assert_eq!(adj_rib_in.totals().unexpected, 0);
        adj_rib_in.session_lost(Instant(2));
        prop_assert!(ids.iter().all(|id| adj_rib_in.present(*id) == 0));
        prop_assert!(adj_rib_in.skyline().last().is_none_or(|(_, n)| *n == 0));
    }
}

/// One route received with attributes `came` that was sent with attributes `sent`.
fn verdict(sent: RouteAttributes, came: RouteAttributes, change: impl Fn(&mut Expected)) -> Verified {
    let prefix = "20.0.0.0/8".parse().unwrap();
    let table = |attributes| Arc::new(Routes::from(RouteTable::new("t", Family::Ipv4, [(prefix, attributes)])));
    let mut adj_rib_in = AdjRibIn::new();
    let mut expected = Expected { as_path_prefix: vec![65_001, 10], source: RouteSource::External, ..expected(false) };
    change(&mut expected);
    let id = adj_rib_in.expect(Instant(0), table(sent), 0..1, expected);
    feed(&mut adj_rib_in, 1, &bodies(&table(came), 0..1, true, 0));
    assert!(adj_rib_in.complete(), "it is there, right or wrong");
    adj_rib_in.report(id)
}

#[test]
fn each_kind_of_wrong() {
    let sent = RouteAttributes {
        as_path: vec![70_000],
        med: Some(5),
        communities: vec![1, 2],
        large_communities: vec![[1, 2, 3]],
        ..Default::default()
    };
    let same = RouteAttributes { as_path: vec![10, 70_000], med: None, ..sent.clone() };
    let wrong = |came: &RouteAttributes, change: &dyn Fn(&mut Expected)| {
        let report = verdict(sent.clone(), came.clone(), change);
        assert_eq!(report.is_right(), report.wrong == 0);
        [report.wrong_next_hop, report.wrong_as_path, report.wrong_attributes]
    };
    let keep: &dyn Fn(&mut Expected) = &|_| {};
    assert_eq!(wrong(&same, keep), [0, 0, 0]);
    assert_eq!(wrong(&RouteAttributes { med: Some(5), ..same.clone() }, keep), [0, 0, 1], "the MED of another AS");
    assert_eq!(wrong(&RouteAttributes { med: Some(6), ..same.clone() }, keep), [0, 0, 0], "the router's own MED");
    assert_eq!(wrong(&RouteAttributes { as_path: vec![10], ..same.clone() }, keep), [0, 1, 0]);
    assert_eq!(wrong(&RouteAttributes { as_path: vec![10, 70_000, 1], ..same.clone() }, keep), [0, 1, 0]);
    assert_eq!(wrong(&RouteAttributes { origin: Origin::Egp, ..same.clone() }, keep), [0, 0, 1]);
    assert_eq!(wrong(&RouteAttributes { communities: vec![2, 1], ..same.clone() }, keep), [0, 0, 0], "in any order");
    assert_eq!(wrong(&RouteAttributes { communities: vec![1], ..same.clone() }, keep), [0, 0, 1]);
    assert_eq!(wrong(&RouteAttributes { large_communities: vec![], ..same.clone() }, keep), [0, 0, 1]);
    let elsewhere = RouteAttributes { next_hop: Some([9, 9, 9, 9].into()), ..same.clone() };
    assert_eq!(wrong(&elsewhere, keep), [1, 0, 0]);
    assert_eq!(wrong(&elsewhere, &|e| e.next_hop = None), [0, 0, 0]);
    assert_eq!(wrong(&same, &|e| e.as_path_prefix = vec![65_000, 65_001]), [0, 1, 0]);
    let straight: &dyn Fn(&mut Expected) = &|e| (e.as_path_prefix, e.source) = (vec![65_001], RouteSource::Peer);
    assert_eq!(wrong(&sent, straight), [0, 0, 0], "the speaker's own MED");
    assert_eq!(wrong(&RouteAttributes { med: None, ..sent.clone() }, straight), [0, 0, 1]);
    let other = RouteAttributes { as_path: vec![], origin: Origin::Egp, ..Default::default() };
    assert_eq!(wrong(&other, &|e| e.check_attributes = false), [0, 0, 0]);
}

/// One route, sent with this MED and LOCAL_PREF 90, received from the internal peer 0.0.0.2 with these attributes in addition to ORIGIN and an
/// empty AS_PATH. True if it is right.
fn inside(source: RouteSource, med: Option<u32>, came: &[&[u8]]) -> bool {
    let prefix = "20.0.0.0/8".parse().unwrap();
    let sent = RouteAttributes { med, local_pref: Some(90), ..Default::default() };
    let routes = Arc::new(Routes::from(RouteTable::new("t", Family::Ipv4, [(prefix, sent)])));
    let config = |id: u32| SessionConfig::new(65_000, 65_000, Ipv4Addr::from(id));
    let agreed = Negotiated::from_opens(&config(1), config(2).open()).unwrap();
    let mut adj_rib_in = AdjRibIn::new();
    let expected = Expected { source, check_attributes: true, ..Expected::default() };
    let id = adj_rib_in.expect(Instant(0), routes, 0..1, expected);
    let attributes = [&[0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 3, 4, 198, 18, 1, 2], &came.concat()[..]].concat();
    let body = [&[0, 0], &(attributes.len() as u16).to_be_bytes()[..], &attributes, &[8, 20]].concat();
    adj_rib_in.update(Instant(1), &body, &agreed).unwrap();
    let report = adj_rib_in.report(id);
    assert_eq!((report.wrong_as_path, report.wrong_next_hop), (0, 0));
    // Without LOCAL_PREF the route is treated as withdrawn (RFC 7606 section 3 d).
    assert_eq!(report.present + adj_rib_in.totals().treated_as_withdraw as u32, 1);
    report.is_right()
}

#[test]
fn what_an_internal_peer_must_and_must_not_add() {
    let med: &[u8] = &[0x80, 4, 4, 0, 0, 0, 5];
    let [pref, other]: [&[u8]; 2] = [&[0x40, 5, 4, 0, 0, 0, 90], &[0x40, 5, 4, 0, 0, 0, 91]];
    let own: &[u8] = &[0x80, 9, 4, 0, 0, 0, 2];
    let [origin, stranger]: [&[u8]; 2] = [&[0x80, 9, 4, 0, 0, 0, 7], &[0x80, 9, 4, 0, 0, 0, 8]];
    let [through, elsewhere]: [&[u8]; 2] = [&[0x80, 10, 4, 0, 0, 0, 2], &[0x80, 10, 4, 0, 0, 0, 3]];
    let twice: &[u8] = &[0x80, 10, 8, 0, 0, 0, 2, 0, 0, 0, 2];
    let reflected = RouteSource::Internal(Ipv4Addr::new(0, 0, 0, 7));
    for (source, came, right) in [
        (reflected, vec![med, pref, origin, through], true),
        (reflected, vec![pref, origin, through], false),
        (reflected, vec![med, origin, through], false),
        (reflected, vec![med, other, origin, through], false),
        (reflected, vec![med, pref, through], false),
        (reflected, vec![med, pref, stranger, through], false),
        (reflected, vec![med, pref, origin], false),
        (reflected, vec![med, pref, origin, elsewhere], false),
        (reflected, vec![med, pref, origin, twice], false),
        (reflected, vec![med, pref], false),
        // The MED may be kept or removed; the preference is the router's choice.
        (RouteSource::External, vec![med, other], true),
        (RouteSource::External, vec![pref], true),
        (RouteSource::External, vec![med], false),
        (RouteSource::External, vec![&[0x80, 4, 4, 0, 0, 0, 6], pref], false),
        // Marked, but only with the reflector as originator.
        (RouteSource::External, vec![med, pref, own, through], true),
        (RouteSource::External, vec![med, pref, own], false),
        (RouteSource::External, vec![med, pref, origin, through], false),
        (RouteSource::External, vec![med, pref, own, elsewhere], false),
        (RouteSource::External, vec![med, pref, origin], false),
        (RouteSource::External, vec![med, pref, through], false),
        (RouteSource::Peer, vec![med, pref], true),
        (RouteSource::Peer, vec![med, other], false),
        (RouteSource::Peer, vec![med, pref, origin, through], false),
    ] {
        assert_eq!(inside(source, Some(5), &came), right, "{source:?}: {came:x?}");
    }
    let zero: &[u8] = &[0x80, 4, 4, 0, 0, 0, 0];
    for (sent, came, right) in
        [(None, vec![], true), (None, vec![zero], true), (Some(0), vec![], true), (None, vec![med], false)]
    {
        let came = [came, vec![pref, origin, through]].concat();
        assert_eq!(inside(reflected, sent, &came), right, "{sent:?}: {came:x?}");
    }
}

#[test]
fn a_wrong_route_that_is_mended_is_right() {
    let prefix = "20.0.0.0/8".parse().unwrap();
    let table = |asn| {
        let attributes = RouteAttributes { as_path: vec![asn], ..Default::default() };
        Arc::new(Routes::from(RouteTable::new("t", Family::Ipv4, [(prefix, attributes)])))
    };
    let mut adj_rib_in = AdjRibIn::new();
    let id = adj_rib_in.expect(Instant(0), table(7), 0..1, expected(false));
    feed(&mut adj_rib_in, 1, &bodies(&table(8), 0..1, true, 0));
    assert_eq!((adj_rib_in.report(id).wrong, adj_rib_in.report(id).is_right()), (1, false));
    feed(&mut adj_rib_in, 2, &bodies(&table(7), 0..1, true, 0));
    let report = adj_rib_in.report(id);
    assert_eq!((report.wrong, report.wrong_as_path, report.repeated, report.is_right()), (0, 1, 1, true));
    feed(&mut adj_rib_in, 3, &bodies(&table(8), 0..1, true, 0));
    feed(&mut adj_rib_in, 4, &bodies(&table(7), 0..1, false, 0));
    let report = adj_rib_in.report(id);
    assert_eq!((report.wrong, report.missing, report.withdrawn_in_error), (0, 1, 1));
}

#[test]
fn times_and_changes() {
    let routes = internet(100);
    let mut adj_rib_in = AdjRibIn::new();
    let id = adj_rib_in.expect(Instant(1_000_000), routes.clone(), 0..100, expected(true));
    assert_eq!(adj_rib_in.times(id).unwrap(), [u32::MAX; 100]);
    feed(&mut adj_rib_in, 3_000_000, &bodies(&routes, 0..50, true, 0));
    feed(&mut adj_rib_in, 5_000_000, &bodies(&routes, 50..100, true, 1));
    let times = adj_rib_in.times(id).unwrap();
    assert!(times[..50] == [2000; 50] && times[50..] == [4000; 50], "{times:?}");
    let report = adj_rib_in.report(id);
    assert_eq!((report.first_at, report.last_at), (Some(Instant(3_000_000)), Some(Instant(5_000_000))));
    assert_eq!(adj_rib_in.skyline(), [(Instant(3_000_000), 50), (Instant(5_000_000), 100)]);
    adj_rib_in.change(Instant(6_000_000), id, 0..10, false);
    assert!(!adj_rib_in.complete());
    assert_eq!(adj_rib_in.unexpected(3).len(), 3);
    feed(&mut adj_rib_in, 6_250_000, &bodies(&routes, 0..10, false, 0));
    assert!(adj_rib_in.complete() && adj_rib_in.report(id).withdrawn_in_error == 0);
    let times = adj_rib_in.times(id).unwrap();
    assert!(times[..10] == [250; 10] && times[10..] == [u32::MAX; 90]);
    // Routes that moved at or after a time; moves before the last change are unknown.
    let moved = |since| adj_rib_in.moved_since(id, Instant(since));
    assert_eq!((moved(0), moved(6_250_000)), ((10, Some(routes.prefix(0))), (10, Some(routes.prefix(0)))));
    assert_eq!(moved(6_251_000), (0, None));
    adj_rib_in.session_lost(Instant(7_000_000));
    let report = adj_rib_in.report(id);
    assert_eq!((report.missing, report.present, report.last_at), (90, 0, Some(Instant(7_000_000))));
    let times = adj_rib_in.times(id).unwrap();
    assert!(times[..10] == [250; 10] && times[10..] == [1000; 90]);
    assert_eq!(adj_rib_in.totals().sessions_lost, 1);
}

#[test]
fn a_prefix_is_another_route_in_another_family() {
    let (routes, labels) = (internet(3), Labels::Same(7));
    let vpn = |n| EncapsulationKind::Vpn { labels, distinguisher: [n; 8], communities: [0; 8] };
    let kinds = [EncapsulationKind::Unicast, EncapsulationKind::Labelled(labels), vpn(1), vpn(2)];
    let set = |kind| RouteSet {
        encapsulation: Encapsulation { kind, path_id: 0 },
        ..RouteSet::unicast(routes.clone(), 0..3, Packing::default())
    };
    let key = |kind: EncapsulationKind| {
        let distinguisher = match kind {
            EncapsulationKind::Vpn { distinguisher, .. } => Some(distinguisher),
            _ => None,
        };
        RoutePart { afi_safi: set(kind).afi_safi(), distinguisher, routes: routes.clone(), part: 0..2 }
    };
    let mut adj_rib_in = AdjRibIn::new();
    let ids = kinds.map(|kind| adj_rib_in.expect_in(Instant(0), key(kind), Expected::default()));
    for (number, kind) in kinds.into_iter().enumerate() {
        let present: u32 = ids[number..].iter().map(|id| adj_rib_in.present(*id)).sum();
        assert_eq!(present, 0, "{kind:?}");
        feed(&mut adj_rib_in, 1, &bodies_of(Change::Advertise, set(kind)));
        assert!(adj_rib_in.is_complete(ids[number]), "{kind:?}");
        assert_eq!(adj_rib_in.unexpected(9).len(), number + 1, "the third route of each family");
    }
    feed(&mut adj_rib_in, 2, &bodies_of(Change::Withdraw, set(kinds[1])));
    let left = adj_rib_in.unexpected(9);
    assert!(left.iter().all(|key| key.prefix == routes.prefix(2) && key.afi_safi != AfiSafi::IPV4_LABELLED));
    assert_eq!((left.len(), ids.map(|id| adj_rib_in.present(id))), (3, [2, 0, 2, 2]));
}

#[test]
fn a_route_with_another_label_is_wrong() {
    let routes = internet(3);
    let set = |label| RouteSet {
        encapsulation: Encapsulation { kind: EncapsulationKind::Labelled(Labels::Same(label)), path_id: 0 },
        ..RouteSet::unicast(routes.clone(), 0..3, Packing::default())
    };
    let key = RoutePart { afi_safi: set(7).afi_safi(), distinguisher: None, routes: routes.clone(), part: 0..3 };
    let mut adj_rib_in = AdjRibIn::new();
    let id = adj_rib_in.expect_in(Instant(0), key, Expected { label: Some(7), ..expected(false) });
    for (at, label, wrong) in [(1, 8, 3), (2, 7, 0), (3, 0x8_0007, 3)] {
        feed(&mut adj_rib_in, at, &bodies_of(Change::Advertise, set(label)));
        assert_eq!(adj_rib_in.report(id).wrong, wrong, "{label}");
    }
    assert_eq!(adj_rib_in.report(id).wrong_attributes, 6);
}

#[test]
fn what_nobody_expects() {
    let routes = internet(40_000);
    let mut adj_rib_in = AdjRibIn::new();
    let id = adj_rib_in.expect(Instant(0), routes.clone(), 0..10, expected(false));
    feed(&mut adj_rib_in, 1, &bodies(&routes, 0..40_000, true, 0));
    assert_eq!(adj_rib_in.totals().unexpected, 39_990);
    assert_eq!(adj_rib_in.unexpected(usize::MAX).len(), MOST_UNEXPECTED);
    assert!(adj_rib_in.complete() && adj_rib_in.report(id).is_right());
    feed(&mut adj_rib_in, 2, &bodies(&routes, 10..40_000, false, 0));
    assert_eq!(adj_rib_in.unexpected(usize::MAX), []);
}

#[test]
fn what_a_refresh_leaves_out_is_gone_at_its_end() {
    use Heard::{RefreshBegins, RefreshEnds};
    let (v4, v6) = (AfiSafi::IPV4_UNICAST, AfiSafi::IPV6_UNICAST);
    let (routes, with) = (internet(30), agreed());
    let mut adj_rib_in = AdjRibIn::new();
    adj_rib_in.keep_learned();
    // The last ten are unexpected.
    let id = adj_rib_in.expect(Instant(0), routes.clone(), 0..20, expected(false));
    feed(&mut adj_rib_in, 1, &bodies(&routes, 0..30, true, 0));
    let counts = |adj_rib_in: &AdjRibIn| {
        let [unexpected, learned] = [adj_rib_in.unexpected(99).len(), adj_rib_in.learned().count()];
        (adj_rib_in.present(id), unexpected, learned)
    };
    for marker in [RefreshEnds(v4), RefreshBegins(v6), RefreshEnds(v6), RefreshBegins(v4)] {
        adj_rib_in.receive(Instant(2), marker, &with).unwrap();
        assert_eq!(counts(&adj_rib_in), (20, 10, 30), "{marker:?}");
    }
    feed(&mut adj_rib_in, 3, &bodies(&routes, 5..20, true, 0));
    feed(&mut adj_rib_in, 3, &bodies(&routes, 25..30, true, 0));
    feed(&mut adj_rib_in, 3, &bodies(&routes, 5..6, false, 0));
    assert_eq!(counts(&adj_rib_in), (19, 10, 29));
    adj_rib_in.receive(Instant(4), RefreshEnds(v4), &with).unwrap();
    assert_eq!(counts(&adj_rib_in), (14, 5, 19));
    assert_eq!((adj_rib_in.report(id).withdrawn, adj_rib_in.skyline().last()), (6, Some(&(Instant(4), 14))));
    // The end of a session is the end of a refresh.
    adj_rib_in.receive(Instant(5), RefreshBegins(v4), &with).unwrap();
    adj_rib_in.session_lost(Instant(6));
    feed(&mut adj_rib_in, 7, &bodies(&routes, 0..30, true, 0));
    adj_rib_in.receive(Instant(8), RefreshEnds(v4), &with).unwrap();
    assert_eq!(counts(&adj_rib_in), (20, 10, 30));
}

#[test]
fn errors_and_ends_of_rib() {
    let routes = internet(3);
    let mut adj_rib_in = AdjRibIn::new();
    let id = adj_rib_in.expect(Instant(0), routes.clone(), 0..3, expected(false));
    let good = bodies(&routes, 0..3, true, 0);
    feed(&mut adj_rib_in, 1, &good);
    assert_eq!(adj_rib_in.report(id).present, 3);
    // ORIGIN 9: all routes are treated as withdrawn (RFC 7606).
    for body in &good {
        let mut bad = body.clone();
        assert_eq!(bad[4..7], [0x40, 1, 1]);
        bad[7] = 9;
        adj_rib_in.update(Instant(2), &bad, &agreed()).unwrap();
    }
    let report = adj_rib_in.report(id);
    assert_eq!((report.present, report.withdrawn_in_error), (0, 3));
    let totals = adj_rib_in.totals();
    assert_eq!((totals.treated_as_withdraw, totals.fault.unwrap().kind), (good.len() as u64, 1));
    assert_eq!(adj_rib_in.update(Instant(3), &[0, 0, 0, 9], &agreed()).unwrap_err().code, code::UPDATE);
    adj_rib_in.update(Instant(4), &[0; 4], &agreed()).unwrap();
    assert_eq!(adj_rib_in.end_of_rib(AfiSafi::IPV4_UNICAST), Some(Instant(4)));
    assert_eq!(adj_rib_in.end_of_rib(AfiSafi::IPV6_UNICAST), None);
}

#[test]
fn a_route_both_ways_in_a_message_is_there() {
    let routes = Arc::new(Routes::from(
        RouteRange::uniform("20.0.0.0/8".parse().unwrap(), 1, 1, AttributePattern::default()).unwrap(),
    ));
    let mut body = bodies(&routes, 0..1, true, 0).remove(0);
    body.splice(..2, [0, 2, 8, 20]);
    let mut adj_rib_in = AdjRibIn::new();
    let id = adj_rib_in.expect(Instant(0), routes, 0..1, expected(false));
    adj_rib_in.update(Instant(1), &body, &agreed()).unwrap();
    assert_eq!((adj_rib_in.report(id).present, adj_rib_in.report(id).withdrawn), (1, 1));
}

#[test]
fn attributes_that_come_again_are_judged_the_same() {
    let routes = internet(4);
    let body = |withdrawn: &[u8], attributes: &[u8], announced: &[u8]| {
        let lengths = [withdrawn, attributes].map(|part| (part.len() as u16).to_be_bytes());
        [&lengths[0], withdrawn, &lengths[1], attributes, announced].concat()
    };
    let first = bodies(&routes, 0..1, true, 0).remove(0);
    let route = &first[first.len() - 4..];
    let mut adj_rib_in = AdjRibIn::new();
    let id = adj_rib_in.expect(Instant(0), routes.clone(), 0..4, expected(false));
    // Mandatory attributes are missing; that matters only for the second UPDATE, which announces.
    let incomplete = [0x40, 1, 1, 0];
    feed(&mut adj_rib_in, 1, &[body(&[8, 30], &incomplete, &[]), body(&[], &incomplete, route)]);
    assert_eq!((adj_rib_in.report(id).present, adj_rib_in.totals().treated_as_withdraw), (0, 1));
    // Routes of another group with the attributes of the first group are wrong, whichever message carries them.
    let groups: Vec<u32> = (0..4).map(|i| routes.group_of(i)).collect();
    assert!(groups[3] != groups[0]);
    let other = bodies(&routes, 3..4, true, 0).remove(0);
    let mixed = [&first[..first.len() - 4], &other[other.len() - 4..]].concat();
    feed(&mut adj_rib_in, 2, &[first.clone(), mixed, first]);
    let report = adj_rib_in.report(id);
    assert_eq!((report.present, report.wrong, report.wrong_as_path), (2, 1, 1));
    // A route that cannot be parsed ends the session with known attributes too.
    let mut long = bodies(&routes, 0..1, true, 0).remove(0);
    let at = long.len() - 4;
    long[at] = 33;
    assert_eq!(adj_rib_in.update(Instant(3), &long, &agreed()).unwrap_err().subcode, 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_is_remembered_changes_nothing(
        steps in prop::collection::vec((0u32..12, any::<bool>(), any::<bool>(), prop::option::of((0usize..90, 1u8..))), 1..40),
    ) {
        let pattern = AttributePattern { routes_per_group: GroupSizes::Fixed(4), ..AttributePattern::internet(9) };
        let tables = ["20.0.0.0/24", "2a00::/48"].map(|first| {
            Arc::new(Routes::from(RouteRange::uniform(first.parse().unwrap(), 12, 1, pattern).unwrap()))
        });
        let mut boxes = [AdjRibIn::new(), AdjRibIn::new()];
        let expected = Expected { next_hop: None, ..expected(false) };
        for adj_rib_in in &mut boxes {
            tables.iter().for_each(|routes| _ = adj_rib_in.expect(Instant(0), routes.clone(), 0..12, expected.clone()));
        }
        for (i, v6, announce, damage) in steps {
            let mut body = bodies(&tables[usize::from(v6)], i..i + 1, announce, 0).remove(0);
            if let Some((at, xor)) = damage {
                let at = at % body.len();
                body[at] ^= xor;
            }
            let [with, without] = &mut boxes;
            let left = with.update(Instant(1), &body, &agreed());
            without.judged = Judged::default();
            prop_assert_eq!(left, without.update(Instant(1), &body, &agreed()));
            prop_assert_eq!(with.totals(), without.totals());
            for id in [0, 1].map(ExpectationId) {
                prop_assert_eq!(with.report(id), without.report(id));
                prop_assert_eq!(with.missing(id, 99), without.missing(id, 99));
            }
            prop_assert_eq!(with.unexpected(99), without.unexpected(99));
        }
    }
}
