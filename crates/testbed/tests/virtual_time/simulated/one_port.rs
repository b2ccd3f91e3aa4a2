//! A router on a stick: one port, and flows between its sub-interfaces.

use crate::common::{Memory, cell, read_suite, run};
use drophammer_methods::METHODS;
use drophammer_model::registry::Registry;
use drophammer_suite::read::{self, Overrides};
use drophammer_testbed::kinds;

const SUITE: &str = "\
suite: known
profile: quick
seed: 11
duts:
  - {name: box, kind: reference, drop_every: 10}
ports:
  - {name: p1, speed: 1 Gbit/s, vlans: [{id: 100}, {id: 200}]}
flows:
  - {name: there, from: p1.100, to: p1.200, size: 64, rate: 10 kfps, headers: [ipv4, udp]}
  - {name: back, from: p1.200, to: p1.100, size: 500, rate: 1 kfps, headers: [ipv6, udp]}
tests:
  - fixed_rate: {trial_duration: 100 ms}
";

#[test]
fn flows_run_between_the_sub_interfaces_of_one_port() {
    let mut memory = Memory::default();
    let tally = run(&read_suite(SUITE), &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (1, 0), "{:?}", memory.tests());
    let flows = memory.outcome("fixed_rate");
    let count = |row, column| cell(flows, "fixed_rate", row, column).unwrap();
    assert_eq!((count(0, "offered"), count(1, "offered")), (1_000.0, 100.0));
    assert_eq!(count(0, "lost") + count(1, "lost"), 110.0, "every tenth frame");
    for row in 0..2 {
        assert_eq!(count(row, "received"), count(row, "offered") - count(row, "lost"));
        assert_eq!((count(row, "deviating"), count(row, "stray"), count(row, "corrupted")), (0.0, 0.0, 0.0));
    }
}

#[test]
fn one_port_is_refused_where_traffic_needs_two() {
    let tests: Vec<_> = METHODS.iter().map(|m| m.spec()).collect();
    let kinds = kinds::specs();
    let registry = Registry { tests: &tests, kinds: &kinds };
    let refused = |from: &str, to: &str| {
        let text = SUITE.replace(from, to);
        let errors = read::read(&text, "known.yaml", &registry, &Overrides::default()).unwrap_err().errors;
        errors.iter().map(|e| format!("{}: {}", e.message, e.help)).collect::<Vec<_>>()
    };
    let other = refused("  - fixed_rate: {trial_duration: 100 ms}", "  - fixed_rate\n  - throughput");
    assert_eq!(other.len(), 1);
    assert!(
        other[0].contains("`throughput` sends from port to port") && other[0].contains("`fixed_rate`"),
        "{other:?}"
    );
    let few = refused(", {id: 200}", "");
    assert!(
        few.iter().any(|e| e.contains("the suite has 1 port") && e.contains("vlans: [{id: 100}, {id: 200}]")),
        "{few:?}"
    );
}
