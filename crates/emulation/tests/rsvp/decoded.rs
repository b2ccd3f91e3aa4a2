//! tshark decodes everything that two devices send in a scenario with every kind of message.

use super::common::*;
use super::tshark;
use drophammer_emulation::protocol::Command;
use drophammer_emulation::rsvp::{
    HelloConfig, IngressRange, LabelPolicy, LspRange, Pace, RefreshReduction, RouteHop, RsvpCommand, RsvpConfig,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// All frames of a scenario in which LSPs are set up, refreshed, refused, released and torn down.
fn life(refresh_reduction: Option<RefreshReduction>) -> Vec<(u64, Vec<u8>)> {
    let hello = Some(HelloConfig { interval: Duration::from_secs(20) });
    let base = RsvpConfig { refresh_reduction, hello, confirm: true, ..RsvpConfig::default() };
    let lsps = |endpoint| LspRange::new(8, [10, 1, 0, 1].into(), endpoint);
    let range = IngressRange {
        explicit_route: vec![RouteHop { address: [198, 18, 1, 2].into(), prefix_len: 32, loose: false }],
        record_route: true,
        shared_explicit: true,
        bandwidth: 1_000_000,
        ..IngressRange::new(lsps([198, 18, 1, 2].into()))
    };
    let refused = IngressRange::new(lsps([10, 9, 9, 9].into()));
    let ingress = RsvpConfig { ingress: vec![range, refused], ..base.clone() };
    let mut world = World::of([ingress, RsvpConfig { foreign: LabelPolicy::From(16), ..base }]);
    world.log = Some(Vec::new());
    world.set_up(0..12, 4);
    world.run_to(seconds(100.0));
    world.command(EGRESS, RsvpCommand::Release(Pace { lsps: 0..2, per_second: 0 }));
    world.tear_down(3..4, 0);
    world.run_to(seconds(101.0));
    world.each(&Command::Stop);
    world.run_to(seconds(102.0));
    world.log.take().unwrap()
}

#[test]
fn tshark_finds_no_fault() {
    let mut all = life(None);
    all.extend(life(Some(RefreshReduction::default())));
    let frames: Vec<(u64, &[u8])> = all.iter().map(|(at, frame)| (*at, frame.as_slice())).collect();
    let fields = ["_ws.malformed", "_ws.expert.severity", "ip.checksum.status", "rsvp.msg"];
    let Some(lines) = tshark::decode("life", &frames, &fields) else { return };
    const ERROR: u32 = 0x0060_0000;
    let mut kinds = BTreeSet::new();
    for (line, (at, frame)) in lines.iter().zip(&all) {
        assert!(line[0].is_empty() && line[2] == "1", "{at}: {line:?} {frame:02x?}");
        assert!(line[1].split(',').filter_map(|s| s.parse().ok()).all(|severity: u32| severity < ERROR), "{line:?}");
        kinds.extend(line[3].split(',').map(|kind| kind.parse::<u8>().unwrap()));
    }
    assert_eq!(kinds, BTreeSet::from([1, 2, 3, 5, 6, 7, 12, 13, 15, 20]), "all but ResvErr");
    let text = tshark::text("life", &frames).unwrap();
    assert!(text.lines().filter(|line| line.contains("Message Checksum") && line.contains("[correct]")).count() > 100);
    for wrong in ["incorrect", "alformed", "unknown", "Unrecognized"] {
        let lines: Vec<_> = text.lines().filter(|line| line.contains(wrong)).take(5).collect();
        assert!(lines.is_empty(), "{lines:?}");
    }
}
