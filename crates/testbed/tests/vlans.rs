//! Suites with VLAN sub-interfaces on the reference device: they are emulated, awaited and sent through like the ports themselves.

mod common;

use common::*;
use drophammer_methods::{TestError, Testbed};
use drophammer_model::suite::Suite;
use drophammer_model::trial::Family;

/// One tag and two on both ports; the flows take all kinds of ways.
const SUITE: &str = "suite: vlans\nprofile: quick\nseed: 11\nduts:\n  - {name: box, kind: reference}\n\
    ports:\n  - {name: p1, speed: 100 Mbit/s, vlans: [{id: 100}, {id: [100, 200]}]}\n  \
    - {name: p2, speed: 100 Mbit/s, vlans: [{id: 300}, {id: [7, 8]}]}\n\
    flows:\n  - {name: same, from: p1.100, to: p2.300, size: 128, rate: 1 kfps}\n  \
    - {name: six, from: p2.7.8, to: p1.100.200, size: 128, rate: 1 kfps, headers: [ipv6, udp]}\n  \
    - {name: out, from: p1, to: p2.7.8, size: 128, rate: 1 kfps}\n  \
    - {name: in, from: p1.100.200, to: p2, size: 128, rate: 1 kfps}\n\
    tests:\n  - fixed_rate: {trial_duration: 1 s}\n";

#[test]
fn flows_between_sub_interfaces_arrive_with_their_tags() {
    let mut memory = Memory::default();
    run(&read_suite(SUITE), &mut memory).unwrap();
    let outcome = memory.outcome("fixed_rate");
    assert_eq!(rows(outcome, "fixed_rate").len(), 4);
    for row in 0..4 {
        let of = |column| cell(outcome, "fixed_rate", row, column).unwrap();
        assert_eq!((of("offered"), of("lost"), of("deviating")), (1_000.0, 0.0, 0.0), "flow {row}");
    }
    let mut again = Memory::default();
    run(&read_suite(SUITE), &mut again).unwrap();
    assert_eq!(again.outcome("fixed_rate"), outcome, "virtual time has no chance in it");
}

fn bed(suite: &Suite, change: impl FnOnce(&mut drophammer_reference::Config)) -> Result<(), TestError> {
    let dut = &suite.duts[0];
    let mut config = drophammer_testbed::simulated::config(dut, &suite.ports, suite.seed);
    change(&mut config);
    await_with(suite, config)
}

/// Waits with a device of `config` as every run does.
fn await_with(suite: &Suite, config: drophammer_reference::Config) -> Result<(), TestError> {
    use drophammer_port::Port;
    use drophammer_rig::{Ports, Rig};
    use drophammer_testbed::config::hosts_and_routers;
    use drophammer_testbed::setup::TestSetup;
    use drophammer_testbed::simulated::{self, NoDut};
    let families = [Family::Ipv4, Family::Ipv6];
    let parts = simulated::build_with(config, &suite.duts[0], &suite.ports, suite.seed).unwrap();
    let ports = parts.ports.into_iter().map(|p| Box::new(p) as Box<dyn Port>).collect();
    let rig = Rig::new(
        Ports::One { ports, clock: Box::new(parts.clock) },
        &hosts_and_routers(&suite.ports, &families, suite.seed),
    );
    let mut session = drophammer_testbed::Session::new(suite.seed, suite.profile, 5);
    let mut memory = Memory::default();
    let mut setup = TestSetup::new("box", &suite.ports, rig, Box::new(NoDut), &mut session, &mut memory);
    assert_eq!(setup.ports()[0].vlans, [vec![100], vec![100, 200]]);
    setup.await_forwarding(&families)
}

#[test]
fn a_sub_interface_that_the_device_lacks_or_does_not_forward_to_is_named() {
    let suite = read_suite(SUITE);
    bed(&suite, |_| {}).unwrap();
    // The last sub-interface of the second port has no address that answers.
    let silent = bed(&suite, |config| config.sub_interfaces[3].ipv6 = None).unwrap_err().to_string();
    assert!(silent.contains("on port p2, VLANs 7.8 within 10 s"), "{silent}");
    // It answers, and what goes there is dropped.
    let hole = bed(&suite, |config| config.routes.retain(|route| route.port != 5 || route.prefix.is_ipv6()));
    let hole = hole.unwrap_err().to_string();
    assert!(hole.contains("IPv4 p1.100.200 to p2.7.8: 0 of"), "{hole}");
    assert!(!hole.contains("p1 to p2") && !hole.contains("IPv6") && !hole.contains("p2.7.8 to"), "{hole}");
}
