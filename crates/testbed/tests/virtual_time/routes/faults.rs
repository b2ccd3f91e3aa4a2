//! Devices with faulty BGP: faults are counted exactly, and a session that ends leaves its cause and the results so far.

use super::*;

#[test]
fn routes_that_are_lost_or_told_wrong_are_counted() {
    for (fault, wrong, missing) in
        [("route_lost_every", 0, 100), ("route_wrong_next_hop_every", 100, 0), ("route_wrong_as_path_every", 100, 0)]
    {
        for (family, name) in [("ipv4", "IPv4"), ("ipv6", "IPv6")] {
            let test = format!(
                "bgp_table_capacity: {{families: [{family}], step: 1000, max_routes: 3000, patience: 1 s, hold: 100 ms}}"
            );
            let (_, outcome) = completed(&format!(", {fault}: 10"), 2, &test);
            let get = |name| full(&outcome, "bgp_table_capacity", name);
            assert_eq!((get("wrong"), get("missing")), (vec![f64::from(wrong)], vec![f64::from(missing)]), "{fault}");
            assert_eq!(get("verified"), [900.0]);
            assert_eq!(figure(&outcome, &format!("bgp_capacity_{family}_routes")), Some(0.0));
            let mark = &rows(&outcome, "bgp_table_capacity")[0].marks[0];
            let said = if missing > 0 { "100 missing" } else { "100 with wrong attributes" };
            assert!(mark.contains(said) && noted(&outcome, &[name, "stopped at 1,000 routes", said]), "{mark}");
        }
    }
}

#[test]
fn a_full_table_whose_routes_flap_ends_with_what_was_measured() {
    let test = "bgp_table_capacity: {step: 1000, max_routes: 5000, patience: 2 s, hold: 100 ms}";
    let (_, outcome) = completed(", rib_limit: 2500, route_flap_every: 10", 2, test);
    let column = |name| full(&outcome, "bgp_table_capacity", name);
    // 250 of the 2,500 that it accepted may be present or not.
    assert_eq!((column("routes"), &column("verified")[..2]), (vec![1e3, 2e3, 3e3], &[1e3, 2e3][..]));
    assert!([500.0, 750.0].contains(&column("missing")[2]), "{:?}", column("missing"));
    let mark = &rows(&outcome, "bgp_table_capacity")[2].marks[0];
    let named = format!("in the last second 250 of these routes, such as {},", internet(Family::Ipv4, 5_000).prefix(9));
    assert!(mark.contains("no progress for 12 s: the router keeps changing routes") && mark.contains(&named), "{mark}");
    assert_eq!(figure(&outcome, "bgp_capacity_ipv4_routes"), Some(2_000.0));
}

/// A capacity test twice: something happens to the session in the middle of the first.
fn twice(params: &str, bgp: &str) -> Memory {
    let test = "  - bgp_table_capacity: {step: 1000, max_routes: 4000, patience: 2 s, hold: 20 s, establish: 5 s}\n";
    run_all(params, 2, bgp, &test.repeat(2))
}

#[test]
fn a_session_that_the_device_resets_ends_the_test_with_its_words_and_the_next_one_works() {
    let memory = twice(", bgp_reset_after: 2500", "{}");
    let [first, second] = memory.tests()[..] else { panic!() };
    assert_eq!((&first.status, &second.status), (&TestStatus::Completed, &TestStatus::Completed));
    let column = |name| full(&first.outcome, "bgp_table_capacity", name);
    assert_eq!((column("routes"), &column("verified")[..2]), (vec![1e3, 2e3, 3e3], &[1e3, 2e3][..]));
    assert_eq!(figure(&first.outcome, "bgp_capacity_ipv4_routes"), Some(2_000.0));
    let mark = &rows(&first.outcome, "bgp_table_capacity")[2].marks[0];
    assert!(mark.contains("the session of p1 ended") && mark.contains("Cease / Administrative Reset (6/4)"), "{mark}");
    assert!(noted(&first.outcome, &["stopped at 3,000 routes", "(6/4)"]));
    // Once and no more.
    assert_eq!(figure(&second.outcome, "bgp_capacity_ipv4_routes"), Some(4_000.0));
}

#[test]
fn a_malformed_update_ends_the_session_and_is_said_to_be_one() {
    let memory = twice(", bgp_malformed_after: 2500", "{}");
    let [first, second] = memory.tests()[..] else { panic!() };
    assert_eq!((&first.status, &second.status), (&TestStatus::Completed, &TestStatus::Completed));
    assert_eq!(figure(&first.outcome, "bgp_capacity_ipv4_routes"), Some(2_000.0));
    let mark = &rows(&first.outcome, "bgp_table_capacity")[2].marks[0];
    let said = "the peer sent a message that is not allowed: UPDATE Message Error";
    assert!(mark.contains("the session of p2 ended") && mark.contains(said), "{mark}");
    assert_eq!(figure(&second.outcome, "bgp_capacity_ipv4_routes"), Some(4_000.0));
}

#[test]
fn a_device_that_falls_silent_runs_into_the_hold_timer() {
    let memory = twice(", bgp_hold_silence: true", "{hold_time: 9 s}");
    for record in memory.tests() {
        assert_eq!(record.status, TestStatus::Completed);
        // The table is received within the hold time, and is not held for the configured 20 s.
        assert_eq!(full(&record.outcome, "bgp_table_capacity", "verified"), [1e3, 2e3, 3e3, 4e3]);
        assert!(noted(&record.outcome, &["did not stay so", "hold time of 9 s"]), "{:?}", record.outcome.notes);
        assert_eq!(figure(&record.outcome, "bgp_capacity_ipv4_routes"), None);
    }
}

#[test]
fn a_device_that_never_reads_is_waited_for_and_named() {
    let memory = twice(", bgp_never_reads: true", "{}");
    for record in memory.tests() {
        let TestStatus::Failed(why) = &record.status else { panic!("{:?}", record.status) };
        assert!(why.contains("the BGP session of p1") && why.contains("not up after 5 s"), "{why}");
        assert!(rows(&record.outcome, "bgp_table_capacity").is_empty());
    }
}

#[test]
fn routes_that_stay_are_waited_for_and_named_when_they_stay_too_long() {
    for (late_s, stays) in [(2, false), (30, false), (120, true)] {
        let test =
            "  - bgp_table_capacity: {step: 500, max_routes: 500, patience: 5 s, hold: 100 ms, establish: 5 s}\n";
        let memory = run_all(&format!(", withdraw_late: {late_s} s"), 2, "{}", test);
        let record = memory.tests()[0];
        assert_eq!(figure(&record.outcome, "bgp_capacity_ipv4_routes"), Some(500.0));
        match &record.status {
            TestStatus::Completed => assert!(!stays),
            TestStatus::Failed(why) => assert_eq!(why, "500 IPv4 routes stay in the forwarding plane"),
            other => panic!("{other:?}"),
        }
        assert_eq!(record.status != TestStatus::Completed, stays);
    }
}

#[test]
fn a_session_that_ends_under_traffic_is_named_with_its_cause() {
    let (count, traffic) = (", routes: 1000", ", rate: 100 kfps, drain: 100 ms");
    for (test, after, name) in [
        (format!("fib_convergence: {{window: 1 s{count}{traffic}}}"), 500, "p2"),
        (format!("convergence_skyline: {{interval: 1 s, cycles: 1, bin: 20 ms{count}{traffic}}}"), 500, "p2"),
        // All are present when the first are withdrawn and come back.
        (
            format!(
                "route_flap: {{flapped: 500, interval: 500 ms, cycles: 1, bin: 50 ms, pause: 1 s{count}{traffic}}}"
            ),
            3_100,
            "p2",
        ),
    ] {
        let memory = run_all(&format!(", bgp_reset_after: {after}"), 4, "{}", &format!("  - {test}\n").repeat(2));
        let [first, second] = memory.tests()[..] else { panic!() };
        assert_eq!((&first.status, &second.status), (&TestStatus::Completed, &TestStatus::Completed), "{test}");
        let said = [&format!("the session of {name} went down")[..], "Cease / Administrative Reset (6/4)"];
        assert!(noted(&first.outcome, &said), "{test}: {:?}", first.outcome.notes);
        assert!(!noted(&second.outcome, &["went down"]), "{test}: {:?}", second.outcome.notes);
    }
}

#[test]
fn a_session_that_ends_under_the_traffic_of_a_capacity_test_ends_the_step() {
    // No KEEPALIVE for 9 s, of which the traffic of a step takes 4.
    let memory = run_all(
        ", bgp_hold_silence: true",
        2,
        "{hold_time: 9 s}",
        "  - rib_fib_capacity: {step: 1000, max_routes: 5000, rate: 10 kfps, frames_per_route: 20, install: 1 s, drain: 100 ms}\n",
    );
    let record = memory.tests()[0];
    assert_eq!(record.status, TestStatus::Completed);
    let last = rows(&record.outcome, "rib_fib_capacity").last().unwrap();
    assert!(last.marks[0].contains("went down: nothing was heard from the peer for the hold time of 9 s"), "{last:?}");
    assert_eq!(figure(&record.outcome, "rib_fib_ipv4_routes"), Some(2_000.0));
}
