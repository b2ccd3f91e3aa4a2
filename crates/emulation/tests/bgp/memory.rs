//! Sending and verifying full tables takes little memory.

use super::common::*;
use drophammer_emulation::bgp::{
    AdjRibIn, AdjRibOut, Distinguishers, Expected, NextHops, Packing, VpnPart, VpnRouteSet,
};
use drophammer_model::Instant;
use drophammer_model::routes::{AttributePattern, Change, LabelPer, RouteRange, Routes, VpnId};
use drophammer_wire::bgp::AfiSafi;
use std::sync::Arc;

/// Begins a new measurement of the peak memory of this process, and returns the memory in use in KiB.
fn begin() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak()
}

/// Peak memory of this process in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn tables_take_little_memory() {
    // In ascending order, because freed memory is used again without being counted.
    routes_of_vrfs(LabelPer::Vrf, false, 1.0);
    a_million_and_a_half();
    routes_of_vrfs(LabelPer::Route, true, 9.0);
}

/// Checks that 800,000 routes of 80 VRFs take at most `most` bytes each.
fn routes_of_vrfs(label_per: LabelPer, times: bool, most: f64) {
    let (agreed, mut buffer) = (agreed(false, true), vec![1; 65_536]);
    let before = begin();
    let routes = vpn_routes(AfiSafi::VPNV4, 80, 10_000, VpnId::as2(65_000, 1), label_per);
    let (mut adj_rib_out, mut adj_rib_in) = (AdjRibOut::new(), AdjRibIn::new());
    let expected = Expected { times, labels: true, check_attributes: true, ..Expected::default() };
    let expected = Expected { as_path_prefix: vec![65_001], ..expected };
    let keys = VpnPart { routes: routes.clone(), distinguishers: Distinguishers::Configured };
    let id = adj_rib_in.expect_vpn(Instant(0), keys, expected);
    adj_rib_out.push_vpn(Change::Advertise, VpnRouteSet::all(routes.clone(), Packing::default()));
    while !adj_rib_out.is_empty() {
        let bytes = adj_rib_out.write(Instant(1), &agreed, next_hops(), &mut buffer);
        let mut rest = &buffer[..bytes];
        while let Some(message) = drophammer_wire::bgp::frame(rest, 4096).unwrap() {
            adj_rib_in.update(Instant(2), message.body, &agreed).unwrap();
            rest = &rest[message.message_len()..];
        }
    }
    assert!(adj_rib_in.complete() && adj_rib_in.report(id).is_right());
    assert_eq!(adj_rib_in.label_of(id, 79, 9_999), Some(&[routes.label(79, 9_999)][..]));
    let per_route = (peak() - before) as f64 * 1024.0 / 800_000.0;
    println!("{label_per:?}, times: {times}: {per_route:.2} bytes per route");
    // Other tests of this binary may run at the same time.
    let noise = 4.0;
    assert!(per_route <= most + noise, "{per_route} bytes per route");
}

fn a_million_and_a_half() {
    let pattern = AttributePattern { med_percent: 0, ..AttributePattern::internet(1) };
    let (agreed, mut buffer) = (agreed(false, true), vec![0; 65_536]);
    buffer.fill(1);
    let before = begin();
    let tables = [("1.0.0.0/24", 1_000_000), ("2a00::/48", 500_000)].map(|(first, count)| {
        Arc::new(Routes::from(RouteRange::uniform(first.parse().unwrap(), count, 3, pattern).unwrap()))
    });
    let (mut adj_rib_out, mut adj_rib_in) = (AdjRibOut::new(), AdjRibIn::new());
    let ids = tables.each_ref().map(|routes| {
        adj_rib_out.advertise(routes.clone(), 0..routes.len(), Packing::default());
        let expected = Expected { as_path_prefix: vec![65_001], check_attributes: true, ..Expected::default() };
        adj_rib_in.expect(Instant(0), routes.clone(), 0..routes.len(), expected)
    });
    let mut now = Instant(0);
    let mut run = |adj_rib_out: &mut AdjRibOut, adj_rib_in: &mut AdjRibIn| {
        while !adj_rib_out.is_empty() {
            now.0 += 10_000;
            let bytes = adj_rib_out.write(now, &agreed, NextHops { link_local: None, ..next_hops() }, &mut buffer);
            let mut rest = &buffer[..bytes];
            while let Some(message) = drophammer_wire::bgp::frame(rest, 4096).unwrap() {
                adj_rib_in.update(now, message.body, &agreed).unwrap();
                rest = &rest[message.message_len()..];
            }
        }
    };
    run(&mut adj_rib_out, &mut adj_rib_in);
    assert!(adj_rib_in.complete() && ids.iter().all(|id| adj_rib_in.report(*id).is_right()));
    assert_eq!(adj_rib_out.progress().advertised, 1_500_000);
    for (routes, id) in tables.iter().zip(ids) {
        adj_rib_out.withdraw(routes.clone(), 0..routes.len(), Packing::default());
        adj_rib_in.change(Instant(9), id, 0..routes.len(), false);
    }
    run(&mut adj_rib_out, &mut adj_rib_in);
    assert!(adj_rib_in.complete() && ids.iter().all(|id| adj_rib_in.report(*id).present == 0));
    let added = peak() - before;
    println!("{added} KiB");
    // Other tests of this binary may run at the same time.
    assert!(added <= 64 << 10, "{added} KiB");
}
