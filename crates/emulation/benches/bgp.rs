//! Performance of BGP without a peer: packing routes into UPDATEs, parsing UPDATEs, and comparing UPDATEs with the
//! expected routes.
//!
//! Prints the median of several rounds in million routes per second of processor time, and for VPN routes the ratio to
//! unicast routes. `cargo bench -p drophammer-emulation --bench bgp`; a word
//! after `--` runs only the parts that contain it.

mod rounds;

use drophammer_emulation::bgp::{
    AdjRibIn, AdjRibOut, Distinguishers, Expected, Negotiated, NextHops, Packing, SessionConfig, VpnPart, VpnRouteSet,
};
use drophammer_model::Instant;
use drophammer_model::routes::{
    AttributePattern, Change, Counting, FIRST_LABEL, GroupSizes, LabelPer, PrefixesPerVrf, RouteRange, Routes, VpnId,
    VpnRoutes, VrfRange,
};
use drophammer_model::trial::Family;
use drophammer_wire::bgp::update::{Context, Update};
use drophammer_wire::bgp::{AfiSafi, frame};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;

const ROUTES: u32 = 1_000_000;
/// The send buffer.
const BUFFER: usize = 1 << 18;

fn agreed() -> Negotiated {
    let config = |local, peer, id: u32| SessionConfig {
        families: vec![AfiSafi::IPV4_UNICAST, AfiSafi::IPV6_UNICAST, AfiSafi::VPNV4, AfiSafi::VPNV6],
        extended_messages: false,
        ..SessionConfig::new(local, peer, Ipv4Addr::from(id))
    };
    Negotiated::from_opens(&config(65_001, 65_000, 1), config(65_000, 65_001, 2).open())
        .unwrap_or_else(|cause| panic!("{cause}"))
}

fn next_hops() -> NextHops {
    NextHops { ipv4: Some(Ipv4Addr::new(198, 18, 1, 2)), ipv6: "2001:2::2".parse().ok(), link_local: None }
}

fn uniform(first: &str, group: u32) -> Arc<Routes> {
    let pattern = AttributePattern { routes_per_group: GroupSizes::Fixed(group), ..AttributePattern::default() };
    Arc::new(RouteRange::uniform(first.parse().unwrap(), ROUTES, 1, pattern).unwrap().into())
}

fn internet(family: Family) -> Arc<Routes> {
    Arc::new(RouteRange::internet(family, ROUTES, 1).unwrap().into())
}

/// Runs `part` several times, prints how many million routes it handles per second, and returns that.
fn measure(name: &str, only: &[String], part: impl FnMut()) -> Option<f64> {
    if !only.is_empty() && !only.iter().any(|word| name.contains(word.as_str())) {
        return None;
    }
    let rate = rounds::per_second(ROUTES.into(), part) / 1e6;
    println!("{name:<58} {rate:>7.1} M routes/s");
    Some(rate)
}

/// Writes all UPDATEs of the routes repeatedly into one buffer; `each` gets the bytes.
fn pack(routes: &Arc<Routes>, announce: bool, per_update: u16, agreed: &Negotiated, mut each: impl FnMut(&[u8])) {
    let packing = Packing { routes_per_update: per_update, pace: None, prepend: 0 };
    let (mut adj_rib_out, mut buffer) = (AdjRibOut::new(), vec![0; BUFFER]);
    match announce {
        true => adj_rib_out.advertise(routes.clone(), 0..ROUTES, packing),
        false => adj_rib_out.withdraw(routes.clone(), 0..ROUTES, packing),
    }
    while !adj_rib_out.is_empty() {
        let bytes = adj_rib_out.write(Instant(1), agreed, next_hops(), &mut buffer);
        each(&buffer[..bytes]);
    }
    let sent = adj_rib_out.progress();
    assert_eq!(sent.advertised + sent.withdrawn, u64::from(ROUTES));
}

/// The bytes of all UPDATEs.
fn stream(routes: &Arc<Routes>, per_update: u16, agreed: &Negotiated) -> Vec<u8> {
    let mut all = Vec::new();
    pack(routes, true, per_update, agreed, |bytes| all.extend_from_slice(bytes));
    all
}

fn bodies(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = stream;
    std::iter::from_fn(move || {
        let message = frame(rest, 4096).ok()??;
        rest = &rest[message.message_len()..];
        Some(message.body)
    })
}

/// `ROUTES` routes of this many VRFs with the same prefixes.
fn vrfs(first: &str, count: u32, label_per: LabelPer) -> Arc<VpnRoutes> {
    let pattern = AttributePattern { routes_per_group: GroupSizes::Fixed(u32::MAX), ..AttributePattern::default() };
    let prefixes = RouteRange::uniform(first.parse().unwrap(), ROUTES / count, 1, pattern).unwrap();
    let ids = Counting::from(VpnId::as2(65_000, 1));
    let vrfs = VrfRange { count, distinguisher: ids, targets: vec![ids], first_label: FIRST_LABEL, label_per };
    Arc::new(VpnRoutes::new(vrfs, Arc::new(prefixes.into()), PrefixesPerVrf::Same).unwrap())
}

/// Writes all UPDATEs of the routes of VRFs repeatedly into one buffer; `each` gets the bytes.
fn pack_vpn(routes: &Arc<VpnRoutes>, change: Change, agreed: &Negotiated, mut each: impl FnMut(&[u8])) {
    let (mut adj_rib_out, mut buffer) = (AdjRibOut::new(), vec![0; BUFFER]);
    adj_rib_out.push_vpn(change, VpnRouteSet::all(routes.clone(), Packing::default()));
    while !adj_rib_out.is_empty() {
        let bytes = adj_rib_out.write(Instant(1), agreed, next_hops(), &mut buffer);
        each(&buffer[..bytes]);
    }
    let sent = adj_rib_out.progress();
    assert_eq!(sent.advertised + sent.withdrawn, u64::from(ROUTES));
}

/// VPN routes against unicast routes of the same length, with one attribute set per VRF and full UPDATEs.
fn vpn(only: &[String], agreed: &Negotiated) {
    let ratio = |vpn: Option<f64>, unicast: Option<f64>| {
        if let (Some(vpn), Some(unicast)) = (vpn, unicast) {
            println!("{:<58} {:>7.2} of unicast", "", vpn / unicast);
        }
    };
    let verify = |bytes: &[u8], expect: &dyn Fn(&mut AdjRibIn, Expected)| {
        let mut adj_rib_in = AdjRibIn::new();
        let expected = Expected { check_attributes: true, labels: true, ..Expected::default() };
        expect(&mut adj_rib_in, Expected { as_path_prefix: vec![65_001], ..expected });
        bodies(bytes).for_each(|body| {
            adj_rib_in.update(Instant(1), body, agreed).unwrap_or_else(|answer| panic!("{answer}"));
        });
        assert!(adj_rib_in.complete());
    };
    for (ip, first) in [("v4", "1.0.0.0/24"), ("v6", "2a00::/48")] {
        let plain = uniform(first, 12_500);
        let name = format!("VPN{ip} baseline: IP{ip} unicast, groups of 12500");
        let unicast = measure(&format!("pack: {name}"), only, || pack(&plain, true, 0, agreed, |b| _ = black_box(b)));
        let gone = measure(&format!("withdraw: {name}"), only, || pack(&plain, false, 0, agreed, |b| _ = black_box(b)));
        let bytes = stream(&plain, 0, agreed);
        let read = measure(&format!("verify: {name}"), only, || {
            verify(&bytes, &|adj_rib_in, expected| {
                adj_rib_in.expect(Instant(0), plain.clone(), 0..ROUTES, Expected { labels: false, ..expected });
            });
        });
        for (count, label_per, what) in [
            (80, LabelPer::Vrf, "label per VRF"),
            (80, LabelPer::Route, "label per route"),
            (10_000, LabelPer::Vrf, "label per VRF"),
        ] {
            let routes = vrfs(first, count, label_per);
            let name = format!("VPN{ip}, {count} VRFs of {}, {what}", routes.per_vrf());
            let said = |change| pack_vpn(&routes, change, agreed, |b| _ = black_box(b));
            ratio(measure(&format!("pack: {name}"), only, || said(Change::Advertise)), unicast);
            ratio(measure(&format!("withdraw: {name}"), only, || said(Change::Withdraw)), gone);
            let mut bytes = Vec::new();
            pack_vpn(&routes, Change::Advertise, agreed, |b| bytes.extend_from_slice(b));
            for distinguishers in [Distinguishers::Configured, Distinguishers::Learned] {
                let rate = measure(&format!("verify: {name}, {distinguishers:?}"), only, || {
                    verify(&bytes, &|adj_rib_in, expected| {
                        adj_rib_in.expect_vpn(Instant(0), VpnPart { routes: routes.clone(), distinguishers }, expected);
                    });
                });
                ratio(rate, read);
            }
        }
    }
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let agreed = agreed();
    let kinds = [
        ("IPv4 /24, groups of 500", uniform("1.0.0.0/24", 500), 500),
        ("IPv4 /24, groups of 5", uniform("1.0.0.0/24", 5), 5),
        ("IPv4 like the Internet", internet(Family::Ipv4), 0),
        ("IPv6 /48, groups of 200", uniform("2a00::/48", 200), 200),
        ("IPv6 like the Internet", internet(Family::Ipv6), 0),
    ];
    for (name, routes, per_update) in &kinds {
        measure(&format!("prefixes: {name}"), &only, || {
            black_box(routes.iter(0..ROUTES).fold(0u32, |sum, p| sum.wrapping_add(u32::from(p.length()))));
        });
        measure(&format!("index_of: {name}"), &only, || {
            let found = routes.iter(0..ROUTES).filter(|prefix| routes.index_of(prefix).is_some()).count();
            assert_eq!(found as u32, ROUTES);
        });
        measure(&format!("pack: {name}"), &only, || pack(routes, true, *per_update, &agreed, |b| _ = black_box(b)));
    }
    let (_, plain, _) = &kinds[0];
    measure("pack: withdrawals, IPv4 /24", &only, || pack(plain, false, 0, &agreed, |b| _ = black_box(b)));
    let context = Context { four_octet_as: true, ibgp: false, ..Context::default() };
    for (name, routes, per_update) in &kinds {
        let bytes = stream(routes, *per_update, &agreed);
        measure(&format!("walk: {name}"), &only, || {
            let mut found = 0;
            for body in bodies(&bytes) {
                let update = Update::parse(body, &context).unwrap_or_else(|answer| panic!("{answer}"));
                found +=
                    update.announced().filter(|route| black_box(route.address()).is_ipv4() || route.length > 0).count();
            }
            assert_eq!(found as u32, ROUTES);
        });
    }
    for times in [false, true] {
        let kinds = if times { &kinds[..1] } else { &kinds[..] };
        for (name, routes, per_update) in kinds {
            for per_update in [1, *per_update] {
                let bytes = stream(routes, per_update, &agreed);
                let size = if per_update == 1 { "one in an UPDATE" } else { "full" };
                let with = if times { ", times" } else { "" };
                measure(&format!("verify: {name}, {size}{with}"), &only, || {
                    let mut adj_rib_in = AdjRibIn::new();
                    let as_path_prefix = vec![65_001];
                    let expected = Expected { as_path_prefix, check_attributes: true, times, ..Expected::default() };
                    adj_rib_in.expect(Instant(0), routes.clone(), 0..ROUTES, expected);
                    bodies(&bytes).for_each(|body| {
                        adj_rib_in.update(Instant(1), body, &agreed).unwrap_or_else(|answer| panic!("{answer}"));
                    });
                    assert!(adj_rib_in.complete());
                });
            }
        }
    }
    vpn(&only, &agreed);
}
