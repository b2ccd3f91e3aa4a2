//! Many LSPs set up at a rate and held, with exact counts of messages.

use super::common::*;
use drophammer_emulation::rsvp::{RefreshReduction, RsvpConfig};
use std::time::Duration;

const RATE: u32 = 2_000;
const R: f64 = 30.0;

/// Sets up `count` LSPs at 2000 per second and holds them for 3.5 refresh periods after the last one.
fn hold(count: u32, config: RsvpConfig) -> World {
    let mut world = World::new(count, RsvpConfig { jitter_percent: 0, ..config });
    world.set_up(0..count, RATE);
    let last = f64::from(count - 1) / f64::from(RATE);
    // Halfway through, half of them are up.
    world.run_to(seconds(last / 2.0));
    assert_eq!(world.up(), [count.div_ceil(2); 2]);
    world.run_to(seconds(last + 3.5 * R));
    assert_eq!(world.up(), [count; 2]);
    for lsp in [0, count / 2, count - 1] {
        assert_eq!(world.rsvp(INGRESS).label_of(lsp), Some(FIRST_LABEL + lsp));
        let up = seconds(0.0) + Duration::from_nanos(u64::from(lsp) * 1_000_000_000 / u64::from(RATE));
        assert_eq!(world.rsvp(INGRESS).up_since(lsp), Some(up));
        let (_, label, since) = world.rsvp(EGRESS).egress_of(lsp).unwrap();
        assert_eq!((label, since), (FIRST_LABEL + lsp, up));
    }
    world.assert_conserved();
    world
}

/// Number of messages of `count` LSPs until 3.5 periods after the last LSP: the first one, and one every 30 s.
fn messages(count: u32) -> u64 {
    let end = u64::from(count - 1) * 500_000 + 105_000_000_000;
    (0..u64::from(count)).map(|lsp| 1 + (end - lsp * 500_000) / 30_000_000_000).sum()
}

#[test]
fn without_refresh_reduction() {
    for count in [1, 1_000, 100_000] {
        let world = hold(count, RsvpConfig::default());
        let all = messages(count);
        assert_eq!([world.counter(INGRESS, "path_sent"), world.counter(EGRESS, "resv_sent")], [all; 2]);
        assert_eq!(world.frames, 2 * all, "nothing else");
        println!("{count}: {} frames, {} bytes", world.frames, world.bytes);
    }
}

#[test]
fn with_refresh_reduction() {
    for count in [1, 1_000, 100_000] {
        let config = RsvpConfig { refresh_reduction: Some(RefreshReduction::default()), ..RsvpConfig::default() };
        let world = hold(count, config);
        let n = u64::from(count);
        // The first Path is sent before the neighbour is known. Its refresh carries the identifier.
        assert_eq!([world.counter(INGRESS, "path_sent"), world.counter(EGRESS, "resv_sent")], [n + 1; 2]);
        assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "retransmissions")), [0; 2]);
        assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "nacks_sent")), [0; 2]);
        assert_eq!([world.counter(INGRESS, "acks_received"), world.counter(EGRESS, "acks_received")], [n, n + 1]);
        // The first LSP of the ingress is acknowledged after 30 s, when its Path has an identifier.
        let first = |chunk: u64| {
            if chunk == 0 { if count > 1 { 500_000 } else { 30_000_000_000 } } else { chunk * CHUNK * 500_000 }
        };
        let srefreshes = [summaries(count, first), summaries(count, |chunk| chunk * CHUNK * 500_000)];
        assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "srefresh_sent")), srefreshes);
        // All messages except the first Path are in Bundles, unless they carry no state.
        let frames =
            |at| ["bundle_sent", "ack_sent", "srefresh_sent"].map(|name| world.counter(at, name)).iter().sum::<u64>();
        assert_eq!(world.frames, frames(INGRESS) + frames(EGRESS) + 1);
        println!("{count}: {} frames, {} bytes, Srefreshes {srefreshes:?}", world.frames, world.bytes);
    }
}

/// LSPs that share a Srefresh.
const CHUNK: u64 = 350;

/// Number of Srefreshes of `count` LSPs whose chunks get their first acknowledgement at these times: one every 30 s.
fn summaries(count: u32, first: impl Fn(u64) -> u64) -> u64 {
    let end = u64::from(count - 1) * 500_000 + 105_000_000_000;
    (0..u64::from(count).div_ceil(CHUNK)).map(|chunk| (end - first(chunk)) / 30_000_000_000).sum()
}

#[test]
fn jitter_spreads_refreshes_over_the_period() {
    let count = 2_000;
    let mut world = World::new(count, RsvpConfig::default());
    world.set_up(0..count, 0);
    world.run_to(seconds(150.0));
    let mut before = world.counter(INGRESS, "path_sent");
    let mut most = 0;
    for second in 151..=450 {
        world.run_to(seconds(f64::from(second)));
        let sent = world.counter(INGRESS, "path_sent");
        most = most.max(sent - before);
        before = sent;
    }
    let refreshes = world.counter(INGRESS, "path_sent") - u64::from(count);
    assert!(refreshes.abs_diff(u64::from(count) * 15) < 1_000, "{refreshes} in 15 periods");
    assert!(most < u64::from(count) / 30 * 2, "{most} in one second; the mean is 67");
    assert_eq!(world.up(), [count; 2]);
}
