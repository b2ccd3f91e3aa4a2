//! A router that sends all frames with tags of VLAN 0, as IEEE 802.1Q section 6.9.3 allows: they name no VLAN.

use crate::common::{Memory, cell, faults_of, read_suite, rows, run};
use drophammer_model::outcome::Outcome;

const SUITE: &str = "\
suite: known
profile: quick
seed: 11
duts:
  - {name: box, kind: reference, priority_tags: true}
ports:
  - {name: p1, speed: 1 Gbit/s, vlans: [{id: 100}]}
  - {name: p2, speed: 1 Gbit/s, vlans: [{id: 200}]}
bgp: {}
flows:
  - {name: plain, from: p1, to: p2, size: 64, rate: 10 kfps, headers: [ipv4, udp]}
  - {name: long, from: p2, to: p1, size: 500, rate: 1 kfps, headers: [ipv6, udp]}
  - {name: class, from: p1, to: p2, size: 128, rate: 1 kfps, headers: [{ipv4: {dscp: 46}}, udp], arrives: {dscp: 46}}
  - {name: vlan, from: p1.100, to: p2.200, size: 64, rate: 1 kfps, headers: [ipv4, udp]}
tests:
  - fixed_rate: {trial_duration: 100 ms}
  - bgp_pass_through: {samples: 20, families: [ipv4, ipv6], establish: 3 s}
";

#[test]
fn priority_tags_count_as_no_tags_in_arp_nd_bgp_and_test_frames() {
    let suite = read_suite(SUITE);
    assert!(faults_of(&suite).priority_tags);
    let mut memory = Memory::default();
    let tally = run(&suite, &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (2, 0), "{:?}", memory.tests());
    let flows: &Outcome = memory.outcome("fixed_rate");
    for (row, offered) in [1_000.0, 100.0, 100.0, 100.0].into_iter().enumerate() {
        let count = |column| cell(flows, "fixed_rate", row, column);
        assert_eq!(
            (count("offered"), count("received"), count("lost")),
            (Some(offered), Some(offered), Some(0.0)),
            "{row}"
        );
        assert_eq!(
            (count("deviating"), count("corrupted"), count("stray")),
            (Some(0.0), Some(0.0), Some(0.0)),
            "{row}"
        );
    }
    let sessions = memory.outcome("bgp_pass_through");
    assert_eq!(
        (rows(sessions, "bgp_pass_through").len(), cell(sessions, "bgp_pass_through", 0, "samples")),
        (4, Some(20.0))
    );
}
