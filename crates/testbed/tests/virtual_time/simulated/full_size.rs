//! The largest beds of `suites/` in virtual time: one trial on each, from every port to each other one, with exact counts.

use crate::common::{Memory, read_suite, with_bed, with_system};
use drophammer_methods::Testbed;
use drophammer_model::suite::Suite;
use drophammer_model::trial::{Family, FlowSpec, Load, TrialResult, TrialSpec, WayCounts};
use drophammer_testbed::setup::TestSetup;
use std::path::Path;

/// Frames of each flow.
const FRAMES: u64 = 20;

/// A suite of the project, without what it includes.
fn shipped(name: &str) -> Suite {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let own: String =
        text.lines().filter(|line| !line.starts_with("include:")).map(|line| format!("{line}\n")).collect();
    read_suite(&own)
}

/// Sends [`FRAMES`] frames of 64 bytes from each port to each other one, at `rate_pps` per port.
fn fully_meshed(bed: &mut TestSetup<'_>, rate_pps: f64) -> TrialResult {
    let ports = bed.ports().len();
    let range = |port: usize| bed.ports()[port].addressing(Family::Ipv4).unwrap().destinations;
    let flow = |from: usize, to: usize| FlowSpec::new(format!("p{from}"), from, to, range(from), range(to));
    let flows = (0..ports).flat_map(|from| (1..ports).map(move |step| (from, (from + step) % ports)));
    let spec = TrialSpec {
        purpose: "full size".into(),
        size: "64".parse().unwrap(),
        flows: flows.map(|(from, to)| flow(from, to)).collect(),
        load: Load::Constant { rate_pps },
        duration_s: ((ports as u64 - 1) * FRAMES) as f64 / rate_pps,
        bin_s: None,
        drain_s: 0.1,
        events: vec![],
    };
    bed.trial(&spec).unwrap()
}

/// Checks that every frame arrived at its port, in order, and that nothing else did.
fn all_arrived(result: &TrialResult, ports: u64) {
    let of_port = (ports - 1) * FRAMES;
    assert_eq!((u64::from(result.senders), result.groups.len() as u64), (ports, ports));
    for group in &result.groups {
        let counts = [group.offered, group.received, group.in_sequence];
        assert_eq!((counts, group.stray, group.corrupted), ([of_port; 3], 0, 0), "{}", group.group);
    }
    let all = (0..ports as usize).flat_map(|from| (0..ports as usize).map(move |to| (from, to)));
    let way = |(from, to)| WayCounts { from, to, offered: FRAMES, received: FRAMES };
    let expected: Vec<WayCounts> = all.filter(|(from, to)| from != to).map(way).collect();
    assert_eq!(result.ways, expected);
}

#[test]
fn each_of_64_ports_sends_to_all_others() {
    let suite = shipped("router-64x400g-known.yaml");
    assert!(suite.ports.iter().all(|port| port.speed.0 == 40_000_000));
    with_bed(
        &suite,
        &[Family::Ipv4],
        |_| {},
        |bed, device| {
            let before = device.truth().forwarded;
            // 10,000 of the 12,500 frames per second that the router can forward for each port.
            all_arrived(&fully_meshed(bed, 10_000.0), 64);
            assert_eq!(device.truth().forwarded - before, 64 * 63 * FRAMES);
        },
    );
}

#[test]
fn each_of_48_ports_on_four_routers_sends_to_all_others() {
    let suite = shipped("core-2001-oc192-known.yaml");
    with_system(&suite, &[Family::Ipv4], &mut Memory::default(), |bed, system| {
        // Frames that each router has forwarded. They pass one router if both ports are on it, otherwise two.
        let forwarded = || system.look(|all| all.routers().iter().map(|one| one.truth().forwarded).collect::<Vec<_>>());
        let before = forwarded();
        // Less than the 4,247 frames per second that the routers can forward for each port.
        all_arrived(&fully_meshed(bed, 4_000.0), 48);
        let here = 12 * 11 * FRAMES;
        let through = 2 * 12 * 36 * FRAMES;
        let each: Vec<u64> = forwarded().iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(each, [here + through; 4]);
    });
}
