//! Internal peers: the device is their route reflector. Received routes are checked against RFC 4271 section 5.1 and
//! RFC 4456 to the attribute, by code that shares nothing with the device's.

use super::*;

/// Ports with internal peers, and whether the device is the next hop of external routes for them.
const LAYOUTS: [&str; 6] = [
    "{internal: [p1]}",
    "{internal: [p2]}",
    "{internal: [p2], next_hop_self: true}",
    "{internal: [p1, p2]}",
    "{internal: [p1, p2], next_hop_self: true}",
    "{internal: [p1], peers_per_port: 3, dut_as: 65001}",
];

fn capacity(params: &str, bgp: &str, family: &str) -> Outcome {
    let test = format!(
        "  - bgp_table_capacity: {{families: [{family}], step: 1000, max_routes: 3000, patience: 1 s, hold: 100 ms}}\n"
    );
    let memory = run_all(params, 2, bgp, &test);
    let record = memory.tests()[0];
    assert_eq!(record.status, TestStatus::Completed, "{bgp}: {:#?}", record.outcome);
    record.outcome.clone()
}

#[test]
fn whoever_is_inside_every_route_comes_out_right() {
    for bgp in LAYOUTS {
        for family in ["ipv4", "ipv6"] {
            let outcome = capacity("", bgp, family);
            let column = |name| full(&outcome, "bgp_table_capacity", name);
            assert_eq!(column("verified"), [1e3, 2e3, 3e3], "{bgp} {family}: {:?}", outcome.notes);
            assert_eq!((column("wrong"), column("missing")), (vec![0.0; 3], vec![0.0; 3]), "{bgp} {family}");
            assert_eq!(figure(&outcome, &format!("bgp_capacity_{family}_routes")), Some(3_000.0));
        }
    }
}

#[test]
fn wrong_next_hops_and_paths_are_counted_inside_as_outside() {
    for bgp in LAYOUTS {
        for fault in ["route_wrong_next_hop_every", "route_wrong_as_path_every"] {
            let outcome = capacity(&format!(", {fault}: 10"), bgp, "ipv4");
            assert_eq!(full(&outcome, "bgp_table_capacity", "wrong"), [100.0], "{bgp} {fault}");
            assert_eq!(full(&outcome, "bgp_table_capacity", "verified"), [900.0], "{bgp} {fault}");
        }
    }
}

#[test]
fn alternates_of_internal_peers_are_less_preferred_and_traffic_takes_the_same_ways() {
    let traffic = "rate: 100 kfps, drain: 100 ms";
    let tests = [
        format!("rib_fib_capacity: {{step: 500, max_routes: 1000, {traffic}}}"),
        format!("longest_match: {{routes: 1000, covering: 100, pause: 1 ms, {traffic}}}"),
        format!("fib_convergence: {{routes: 500, window: 500 ms, {traffic}}}"),
        format!("route_flap: {{routes: 800, flapped: 200, interval: 500 ms, cycles: 1, pause: 1 s, {traffic}}}"),
        format!("link_failover: {{routes: 500, window: 1 s, {traffic}}}"),
        format!("link_failover: {{routes: 500, window: 1 s, failure: session, {traffic}}}"),
    ];
    let list: String = tests.iter().map(|test| format!("  - {test}\n")).collect();
    let device = ", propagation_delay: 20 ms, fib_delay: 30 ms, fib_time_per_route: 20 us";
    let outside = run_all(device, 4, "{}", &list);
    for bgp in ["{internal: [p1, p2, p3, p4]}", "{internal: [p2]}", "{internal: [p1, p3], next_hop_self: true}"] {
        let inside = run_all(device, 4, bgp, &list);
        for (a, b) in outside.tests().iter().zip(inside.tests()) {
            assert_eq!((&a.status, &b.status), (&TestStatus::Completed, &TestStatus::Completed), "{bgp} {}", b.test);
            for (a, b) in a.outcome.ranks.iter().zip(&b.outcome.ranks) {
                let (x, y) = (a.value.unwrap(), b.value.unwrap_or_else(|| panic!("{bgp}: {b:?}")));
                assert!((x - y).abs() <= 0.02 * x.abs().max(0.01), "{bgp}: {}: {x} outside, {y} inside", b.key);
            }
        }
    }
}
