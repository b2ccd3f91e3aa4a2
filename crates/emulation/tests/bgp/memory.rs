//! A full table of both families is sent and verified in little memory.

use super::common::*;
use drophammer_emulation::bgp::{AdjRibIn, AdjRibOut, Expected, NextHops, Packing};
use drophammer_model::Instant;
use drophammer_model::routes::{AttributePattern, RouteRange, Routes};
use std::sync::Arc;

/// Peak memory of this process in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_million_and_a_half() {
    let pattern = AttributePattern { med_percent: 0, ..AttributePattern::internet(1) };
    let (agreed, mut buffer) = (agreed(false, true), vec![0; 65_536]);
    buffer.fill(1);
    let before = peak();
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
