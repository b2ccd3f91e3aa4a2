//! UPDATEs from a peer: any bytes are read or refused, what is read adds up, and the Adj-RIB-In counts no route that is not there.

use super::input::Input;
use drophammer_emulation::bgp::{
    AdjRibIn, AdjRibOut, Distinguishers, Expected, Negotiated, NextHops, Packing, SessionConfig, VpnPart, VpnRouteSet,
};
use drophammer_model::Instant;
use drophammer_model::routes::{
    Change, Counting, LabelPer, PrefixesPerVrf, RouteRange, Routes, VpnId, VpnRoutes, VrfRange,
};
use drophammer_model::trial::Family;
use drophammer_wire::bgp::message::HEADER_LEN;
use drophammer_wire::bgp::update::{Context, FamilySet, LabelStacks, Treatment, Update, as_path, attributes};
use drophammer_wire::bgp::{AfiSafi, PathDirection};
use std::net::Ipv4Addr;
use std::sync::Arc;

const FAMILIES: [AfiSafi; 5] =
    [AfiSafi::IPV4_UNICAST, AfiSafi::IPV6_UNICAST, AfiSafi::IPV4_LABELLED, AfiSafi::VPNV6, AfiSafi::VPNV4];
const ROUTES: u32 = 64;
/// VRFs, each with an equal part of the routes of each family.
const VRFS: u32 = 16;

/// A session's UPDATEs, some made of attributes, some as they would be sent and then damaged, some of any bytes.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let way = input.u8();
    let agreed = agreed(way);
    let context = Context {
        four_octet_as: agreed.four_octet_as,
        ibgp: agreed.ibgp,
        path_ids: FamilySet::of(agreed.add_path.iter().map(|(family, _)| *family)),
        label_stacks: LabelStacks::of(agreed.label_stacks.iter().copied()),
    };
    let tables = [Family::Ipv4, Family::Ipv6]
        .map(|family| Arc::new(Routes::from(RouteRange::internet(family, ROUTES, u64::from(way)).unwrap())));
    let mut adj_rib_in = AdjRibIn::new();
    let expected =
        Expected { as_path_prefix: vec![65_001], check_attributes: true, times: true, ..Expected::default() };
    let [v4, v6] =
        tables.each_ref().map(|routes| adj_rib_in.expect(Instant(0), routes.clone(), 0..ROUTES, expected.clone()));
    let distinguishers = if way & 16 == 0 { Distinguishers::Configured } else { Distinguishers::Learned };
    let of_vrfs = tables.each_ref().map(|routes| {
        let keys = VpnPart { routes: vrfs(routes, 0, 0), distinguishers };
        adj_rib_in.expect_vpn(Instant(0), keys, Expected { labels: true, ..expected.clone() })
    });
    let ids = [v4, v6, of_vrfs[0], of_vrfs[1]];
    let mut now = Instant(0);
    while !input.is_empty() {
        now.0 += u64::from(input.u16());
        let body = match input.below(4) {
            0 => input.bytes(60).to_vec(),
            1 => made(&mut input),
            2 => {
                adj_rib_in.session_lost(now);
                continue;
            }
            _ if way & 8 != 0 => sent_vpn(&mut input, &tables[usize::from(way & 64 == 0)], &agreed),
            _ => sent(&mut input, &tables, &agreed),
        };
        check(&body, &context);
        let before = adj_rib_in.totals();
        let taken = adj_rib_in.update(now, &body, &agreed);
        assert_eq!(taken.is_ok(), Update::parse(&body, &context).is_ok());
        assert!(taken.is_ok() || adj_rib_in.totals() == before, "an UPDATE that ends the session changes nothing");
        for id in ids {
            let report = adj_rib_in.report(id);
            assert_eq!(report.present + report.missing, report.expected);
            assert!(report.wrong <= report.present && report.unexpected == 0);
            assert!(u64::from(report.present) <= report.received);
            assert_eq!(adj_rib_in.missing(id, usize::MAX).len() as u32, report.missing);
        }
        let present: u32 = ids.iter().map(|id| adj_rib_in.present(*id)).sum();
        assert!(adj_rib_in.skyline().last().map_or(present == 0, |(_, n)| *n == present));
        assert_eq!(adj_rib_in.complete(), present == 4 * ROUTES);
        for id in of_vrfs {
            let routes = (0..VRFS).flat_map(|vrf| (0..ROUTES / VRFS).map(move |route| (vrf, route)));
            let labels = routes.filter(|(vrf, route)| adj_rib_in.label_of(id, *vrf, *route).is_some()).count();
            assert_eq!(labels as u32, adj_rib_in.present(id), "each present route has a label");
            assert!(adj_rib_in.learned_distinguishers(id).len() <= 4 * VRFS as usize);
            let report = adj_rib_in.report(id);
            let faults = adj_rib_in.vpn_faults(id).len() as u64;
            assert!(faults <= 1_000 && faults <= report.wrong_target + report.wrong_vrf);
        }
    }
}

fn agreed(way: u8) -> Negotiated {
    let peer = if way & 1 == 0 { 65_000 } else { 65_001 };
    let add_path = match way & 2 {
        0 => vec![],
        _ => FAMILIES.map(|family| (family, PathDirection { receive: true, send: true })).to_vec(),
    };
    let config = |local, peer, id: u32| SessionConfig {
        families: FAMILIES.to_vec(),
        add_path: add_path.clone(),
        multiple_labels: if way & 32 == 0 { vec![] } else { FAMILIES.map(|family| (family, 3)).to_vec() },
        ..SessionConfig::new(local, peer, Ipv4Addr::from(id))
    };
    let agreed = Negotiated::from_opens(&config(65_001, peer, 1), config(peer, 65_001, 2).open()).unwrap();
    Negotiated { four_octet_as: way & 4 == 0, ..agreed }
}

/// Withdrawn routes, attributes and announced routes of the input's choice, with lengths that fit.
fn made(input: &mut Input) -> Vec<u8> {
    const KINDS: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18, 32];
    let mut all = Vec::new();
    for _ in 0..input.below(6) {
        let kind = KINDS[input.below(KINDS.len())];
        let usual = match kind {
            1 | 2 | 3 | 5 | 6 => 0x40,
            4 | 9 | 10 | 14 | 15 => 0x80,
            _ => 0xc0,
        };
        let flags = if input.flag() { input.u8() } else { usual };
        let length = input.below(48);
        attributes::append(&mut all, flags, kind, input.bytes(length));
    }
    let length = input.below(12);
    let withdrawn = input.bytes(length);
    let mut body = (withdrawn.len() as u16).to_be_bytes().to_vec();
    body.extend_from_slice(withdrawn);
    body.extend((all.len() as u16).to_be_bytes());
    body.extend(all);
    let length = input.below(20);
    body.extend_from_slice(input.bytes(length));
    body
}

/// An UPDATE of the table, perhaps with one byte changed.
fn sent(input: &mut Input, tables: &[Arc<Routes>; 2], agreed: &Negotiated) -> Vec<u8> {
    let routes = &tables[input.below(2)];
    let first = input.below(ROUTES as usize) as u32;
    let mut adj_rib_out = AdjRibOut::new();
    let packing = Packing { routes_per_update: u16::from(input.u8()), pace: None, prepend: 0 };
    match input.flag() {
        true => adj_rib_out.advertise(routes.clone(), first..first + 1 + input.below(9) as u32, packing),
        false => adj_rib_out.withdraw(routes.clone(), first..first + 1 + input.below(9) as u32, packing),
    }
    first_body(input, adj_rib_out, agreed)
}

/// The routes of VRFs with route distinguishers and route targets that are this much higher than the expected ones.
fn vrfs(routes: &Arc<Routes>, distinguishers: u32, targets: u32) -> Arc<VpnRoutes> {
    let id = |n| Counting::from(VpnId::as2(65_000, n));
    let (distinguisher, targets) = (id(1 + distinguishers), vec![id(1 + targets)]);
    let vrfs = VrfRange { count: VRFS, distinguisher, targets, first_label: 16, label_per: LabelPer::Route };
    Arc::new(VpnRoutes::new(vrfs, routes.clone(), PrefixesPerVrf::Own).unwrap())
}

/// The first UPDATE of some VRFs, perhaps with other identifiers than expected, and perhaps with one byte changed.
fn sent_vpn(input: &mut Input, routes: &Arc<Routes>, agreed: &Negotiated) -> Vec<u8> {
    let mut adj_rib_out = AdjRibOut::new();
    let routes = vrfs(routes, input.below(3) as u32, input.below(3) as u32);
    let (vrf, route) = (input.below(VRFS as usize) as u32, input.below(4) as u32);
    let change = if input.flag() { Change::Advertise } else { Change::Withdraw };
    let all = VpnRouteSet::all(routes, Packing::default());
    adj_rib_out.push_vpn(change, VpnRouteSet { vrfs: vrf..vrf + 1, part: route..4, ..all });
    first_body(input, adj_rib_out, agreed)
}

/// The body of the first message, perhaps with one byte changed.
fn first_body(input: &mut Input, mut adj_rib_out: AdjRibOut, agreed: &Negotiated) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    let next_hops =
        NextHops { ipv4: Some(Ipv4Addr::new(198, 18, 1, 2)), ipv6: "2001:2::2".parse().ok(), link_local: None };
    let bytes = adj_rib_out.write(Instant(0), &Negotiated { max_send: 4096, ..agreed.clone() }, next_hops, &mut buffer);
    let message = drophammer_wire::bgp::frame(&buffer[..bytes], 4096).unwrap().unwrap();
    let mut body = buffer[HEADER_LEN..message.message_len()].to_vec();
    if input.flag() {
        let (at, xor) = (usize::from(input.u16()) % body.len(), input.u8());
        body[at] ^= xor;
    }
    body
}

/// What the walker says of one UPDATE does not contradict itself.
fn check(body: &[u8], context: &Context) {
    let Ok(update) = Update::parse(body, context) else { return };
    let (announced, withdrawn) = (update.announced().count(), update.withdrawn().count());
    assert_eq!(update.fault.is_some(), update.treatment != Treatment::Whole);
    if update.treatment == Treatment::TreatAsWithdraw {
        assert_eq!(announced, 0);
    } else if announced > 0 {
        let a = &update.attributes;
        let path = a.as_path.expect("mandatory");
        assert!(path.check().is_ok() && a.origin.is_some_and(|origin| origin <= 2));
        assert!(as_path::merged(path, a.as4_path).all(|asn| asn != 0));
        assert!(a.local_pref.is_some() == context.ibgp, "an internal peer's alone");
    }
    if update.end_of_rib().is_some() {
        assert_eq!(announced + withdrawn, 0);
    }
    for route in update.announced().chain(update.withdrawn()) {
        assert!(route.length <= route.family.address_bits().unwrap());
        assert_eq!(route.path_id.is_some(), context.path_ids.has(route.family));
        assert_eq!(route.distinguisher.is_some(), route.family.is_vpn());
        assert_eq!(route.label(0).is_some(), route.family.is_labelled());
    }
}
