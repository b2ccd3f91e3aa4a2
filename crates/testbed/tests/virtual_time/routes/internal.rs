//! Internal peers: the device is their route reflector. Each attribute of received routes is checked against RFC 4271
//! section 5.1 and RFC 4456, by code that shares nothing with the device.

use super::*;

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
