//! A suite's wishes for BGP as the reference device gets them.

mod common;

use common::read_suite;
use drophammer_model::quantity::Instant;
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
    };
    assert_eq!(simulated::config(&suite.duts[0], &suite.ports, 1).faults.bgp, expected);
    assert!(parts.record.config["reference.txt"].contains("asn: 65000"));
    parts.reference.set_link(Instant(1), 1, false);
    assert_eq!(parts.reference.truth().bgp.sessions, 0);
}
