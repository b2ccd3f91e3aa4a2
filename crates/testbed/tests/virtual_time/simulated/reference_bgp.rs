//! A suite's BGP parameters, as the reference device receives them.

use crate::common::{cell, read_suite, rows, with_bed};
use drophammer_lab::Dut as _;
use drophammer_methods::METHODS;
use drophammer_model::outcome::Outcome;
use drophammer_model::quantity::Instant;
use drophammer_model::suite::{BgpProtection, Secret};
use drophammer_model::trial::Family;
use drophammer_reference::{Beyond, BgpFaults, RibLimit, Router};
use drophammer_testbed::simulated;
use std::time::Duration;

fn text(params: &str, rest: &str) -> String {
    format!(
        "suite: known\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference{params}}}\n\
         ports:\n  - {{name: p1, speed: 1 Gbit/s}}\n  - {{name: p2, speed: 1 Gbit/s}}\n{rest}tests: [throughput]\n"
    )
}

#[test]
fn each_port_has_its_peers_in_its_own_as() {
    let params = ", propagation_delay: 2 ms, fib_delay: 5 ms, fib_time_per_route: 700 ns, ack_delay: 40 ms, rib_limit: 9, rib_beyond: reset, \
                  fib_limit_ipv4: 7, fib_limit_ipv6: 8";
    let bgp = "bgp: {dut_as: 64500, tester_as: 64600, peers_per_port: 3, hold_time: 30 s}\n";
    let suite = read_suite(&text(params, bgp));
    let config = simulated::config(&suite.duts[0], &suite.ports, 1);
    assert_eq!((config.fib_limit_ipv4, config.fib_limit_ipv6, config.fib_limit), (Some(7), Some(8), None));
    let bgp = config.bgp.clone().unwrap();
    assert_eq!((bgp.asn, bgp.hold_time, bgp.peers.len()), (64_500, Duration::from_secs(30), 12));
    assert_eq!(bgp.rib_limit, Some(RibLimit { paths: 9, beyond: Beyond::Reset }));
    assert_eq!(bgp.ack_delay, Duration::from_millis(40));
    let times = (bgp.propagation_delay, bgp.fib_delay, bgp.fib_time_per_route);
    assert_eq!(times, (Duration::from_millis(2), Duration::from_millis(5), Duration::from_nanos(700)));
    for (index, port) in suite.ports.iter().enumerate() {
        let own: Vec<_> = bgp.peers.iter().filter(|p| p.port == index).collect();
        assert!(own.iter().all(|p| p.asn == 64_600 + index as u32 && !p.connect));
        let hosts = [port.ipv4.as_ref().unwrap().host, port.ipv6.as_ref().unwrap().host];
        assert!(hosts.iter().all(|host| own.iter().any(|p| p.address == *host)));
        assert_eq!((own.iter().filter(|p| p.address.is_ipv4()).count(), own.len()), (3, 6));
    }
    assert!(Router::new(config).is_ok());
    let without = read_suite(&text("", ""));
    assert_eq!(simulated::config(&without.duts[0], &without.ports, 1).bgp, None);
}

#[test]
fn each_fault_has_its_parameter() {
    let params = ", blackhole_every: 2, withdraw_late: 3 s, route_wrong_next_hop_every: 4, route_wrong_as_path_every: 5, \
                  route_lost_every: 6, route_flap_every: 9, route_flap_interval: 20 ms, bgp_reads_per_second: 10, bgp_never_reads: true, bgp_reset_after: 7, bgp_malformed_after: 8, \
                  bgp_hold_silence: true";
    let suite = read_suite(&text(params, "bgp: {}\n"));
    let parts = simulated::build(&suite.duts[0], &suite.ports, 1, 1).unwrap();
    let expected = BgpFaults {
        blackhole_every: 2,
        withdraw_late: Duration::from_secs(3),
        wrong_next_hop_every: 4,
        wrong_as_path_every: 5,
        lost_route_every: 6,
        never_reads: true,
        reads_per_second: 10,
        flap_every: 9,
        flap_interval: Duration::from_millis(20),
        reset_after: 7,
        malformed_after: 8,
        hold_silence: true,
        leak_vpn_route: false,
    };
    assert_eq!(simulated::config(&suite.duts[0], &suite.ports, 1).faults.bgp, expected);
    assert!(parts.device.record().config["reference.txt"].contains("asn: 65000"));
    parts.reference.set_link(Instant(1), 1, false);
    assert_eq!(parts.reference.truth().bgp.sessions, 0);
}

#[test]
fn sessions_come_up_where_both_sides_have_the_same_protection() {
    const TABLE: &str = "bgp_pass_through";
    let protection = |md5: Option<&str>, gtsm| BgpProtection { md5: md5.map(Secret::new), gtsm };
    let both = "{md5: sesame4711, gtsm: true, internal: [p2]}";
    for (tester, device, up) in [
        (both, protection(Some("sesame4711"), true), true),
        (both, protection(Some("another"), true), false),
        (both, protection(None, true), false),
        (both, protection(Some("sesame4711"), false), false),
        ("{md5: sesame4711}", protection(Some("sesame4711"), false), true),
        ("{md5: sesame4711}", protection(None, false), false),
        ("{gtsm: true}", protection(None, true), true),
        ("{gtsm: true}", protection(None, false), false),
        ("{}", protection(None, true), false),
        ("{}", protection(Some("sesame4711"), false), false),
    ] {
        let case = format!("{tester} and {device:?}");
        let tests = "bgp_pass_through: {samples: 20, families: [ipv4, ipv6], establish: 3 s}";
        let text = text("", &format!("bgp: {tester}\n")).replace("[throughput]", &format!("\n  - {tests}"));
        let suite = read_suite(&text);
        let method = METHODS.iter().find(|method| method.spec().name == TABLE).unwrap();
        let mut outcome = Outcome::default();
        let same = device.clone();
        let result = with_bed(
            &suite,
            &[Family::Ipv4, Family::Ipv6],
            |config| config.bgp.as_mut().unwrap().protection = device,
            |bed, _| method.run(bed, &suite.tests[0].params, &mut outcome),
        );
        match result {
            Ok(()) => {
                assert!(up, "{case}: sessions came up");
                let samples: Vec<_> = (0..4).map(|row| cell(&outcome, TABLE, row, "samples")).collect();
                assert_eq!((rows(&outcome, TABLE).len(), samples), (4, vec![Some(20.0); 4]), "{case}");
            }
            Err(e) => assert!(!up && e.to_string().contains("does not answer on TCP"), "{case}: {e}"),
        }
        let mut config = simulated::config(&suite.duts[0], &suite.ports, 1);
        config.bgp.as_mut().unwrap().protection = same;
        let parts = simulated::build_with(config, &suite.duts[0], &suite.ports, 1).unwrap();
        assert!(!parts.device.record().config["reference.txt"].contains("4711"), "{case}: the record shows the key");
    }
}
