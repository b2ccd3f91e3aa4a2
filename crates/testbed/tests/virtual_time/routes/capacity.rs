//! Capacities: of the routing table, of the forwarding table, of sessions.

use super::*;

const FIVE: &str = "among the missing routes: ";

#[test]
fn a_full_routing_table_is_found_to_the_step_and_its_missing_routes_to_the_prefix() {
    // Twice, so that the second one starts from the same state as the first.
    let test = "  - bgp_table_capacity: {step: 1000, max_routes: 10000, patience: 2 s, hold: 100 ms}\n";
    let memory = run_all(", rib_limit: 7300, propagation_delay: 30 ms", 2, "{}", &test.repeat(2));
    let all = internet(Family::Ipv4, 10_000);
    for record in memory.tests() {
        assert_eq!(record.status, TestStatus::Completed);
        let outcome = &record.outcome;
        let column = |name| full(outcome, "bgp_table_capacity", name);
        assert_eq!(column("routes"), (1..=8).map(|n| f64::from(n) * 1_000.0).collect::<Vec<_>>());
        assert_eq!(column("verified")[..7], column("routes")[..7]);
        assert_eq!((column("verified")[7], &column("missing")[..]), (7_300.0, &[0., 0., 0., 0., 0., 0., 0., 700.][..]));
        assert_eq!(column("wrong"), [0.0; 8]);
        assert_eq!(figure(outcome, "bgp_capacity_ipv4_routes"), Some(7_000.0));
        assert_eq!(figure(outcome, "bgp_load_ipv4_s"), None);
        let mark = &rows(outcome, "bgp_table_capacity")[7].marks[0];
        assert!(mark.contains("700 missing") && mark.contains("nothing more came for 2 s"), "{mark}");
        let note = outcome.notes.iter().find_map(|n| n.split_once(FIVE)).unwrap().1;
        let named: Vec<u32> = note.split(", ").map(|p| all.index_of(&p.parse().unwrap()).unwrap()).collect();
        assert_eq!(named, [7_300, 7_301, 7_302, 7_303, 7_304]);
    }
}

#[test]
fn a_table_without_limit_takes_the_propagation_delay_and_the_way_there() {
    for (delay_ms, family) in [(0, "ipv4"), (40, "ipv4"), (250, "ipv6")] {
        let device = format!(", propagation_delay: {delay_ms} ms");
        let test = format!("bgp_table_capacity: {{families: [{family}], step: 1000, max_routes: 5000, hold: 1 s}}");
        let (_, outcome) = completed(&device, 2, &test);
        let times = full(&outcome, "bgp_table_capacity", "step_s");
        assert_eq!(times.len(), 5);
        let rates = column(&outcome, "bgp_table_capacity", "rate_rps");
        assert!(
            rates.iter().zip(&times).all(|(rate, time)| *rate == (*time > 0.0).then(|| 1_000.0 / time)),
            "{rates:?}"
        );
        // The first UPDATE leaves at the instant of the step, and all fit into the buffers of TCP.
        times.iter().for_each(|time| about(*time, f64::from(delay_ms) / 1e3, 2.0 * TICK_S));
        assert_eq!(figure(&outcome, &format!("bgp_capacity_{family}_routes")), Some(5_000.0));
        let sum = figure(&outcome, &format!("bgp_load_{family}_s")).unwrap();
        assert!((sum - times.iter().sum::<f64>()).abs() < 1e-9);
        assert!(noted(&outcome, &["at least 5,000 routes"]), "{:?}", outcome.notes);
    }
}

/// With frames to each route twice at 100,000 fps.
fn rib_fib(step: u32, most: u32) -> String {
    format!("rib_fib_capacity: {{step: {step}, max_routes: {most}, rate: 100 kfps, install: 200 ms, drain: 100 ms}}")
}

#[test]
fn a_full_forwarding_table_is_found_and_what_is_beyond_it_named() {
    // The networks behind the ports use room too: with two ports two of either family.
    for (limit, own, capacity) in [("fib_limit", 4, 2_000), ("fib_limit_ipv4", 2, 2_000)] {
        let (memory, outcome) = completed(&format!(", {limit}: 2500"), 2, &rib_fib(500, 4_000));
        let all = internet(Family::Ipv4, 4_000);
        let column = |name| full(&outcome, "rib_fib_capacity", name);
        assert_eq!(column("routes"), [500., 1_000., 1_500., 2_000., 2_500.]);
        assert_eq!(column("verified"), column("routes"), "{limit}: every one is told all the same");
        assert_eq!(column("offered"), [1_000., 2_000., 3_000., 4_000., 5_000.]);
        assert_eq!(column("lost"), [0., 0., 0., 0., f64::from(2 * own)]);
        assert_eq!(column("unreachable")[4], f64::from(own));
        let beyond: Vec<String> = (2_500 - own..2_500).map(|i| all.prefix(i).to_string()).collect();
        assert_eq!(texts(&outcome, "rib_fib_capacity_unreachable"), beyond);
        assert_eq!(figure(&outcome, "rib_fib_ipv4_routes"), Some(f64::from(capacity)));
        assert_eq!(figure(&outcome, "rib_fib_time_ipv4_s"), None);
        assert!(counted(&memory, "truth.dropped.fib_full") >= u64::from(2 * own));
        assert!(rows(&outcome, "rib_fib_capacity")[4].marks[0].contains("frames are lost"));
    }
    // Room for the routes of the last step, to the route.
    let (_, outcome) = completed(", fib_limit: 2504", 2, &rib_fib(500, 3_000));
    let exact = super::column(&outcome, "rib_fib_capacity", "exact_s");
    assert_eq!(
        exact,
        [Some(0.0), Some(0.0), Some(0.0), Some(0.0), Some(0.0), None],
        "no traffic was lost before the limit"
    );
    assert_eq!(figure(&outcome, "rib_fib_ipv4_routes"), Some(2_500.0));
    assert_eq!(full(&outcome, "rib_fib_capacity", "unreachable")[5], 500.0);
}

#[test]
fn each_route_that_is_told_and_not_forwarded_to_is_named() {
    let (memory, outcome) = completed(", blackhole_every: 7", 2, &rib_fib(1_000, 1_000));
    let all = internet(Family::Ipv4, 1_000);
    let get = |name| full(&outcome, "rib_fib_capacity", name)[0];
    assert_eq!((get("verified"), get("unreachable"), get("lost")), (1_000.0, 142.0, 284.0));
    let sunk: Vec<String> = (6..1_000).step_by(7).map(|i| all.prefix(i).to_string()).collect();
    assert_eq!(texts(&outcome, "rib_fib_capacity_unreachable"), sunk);
    assert_eq!(figure(&outcome, "rib_fib_ipv4_routes"), Some(0.0));
    assert!(counted(&memory, "truth.dropped.fault_blackhole").is_multiple_of(284));
}

#[test]
fn a_route_that_lost_its_frame_by_chance_is_not_called_unreachable() {
    let one_each = rib_fib(1_000, 1_000).replace("step", "frames_per_route: 1, step");
    let all = internet(Family::Ipv4, 1_000);
    for (faults, unreachable, says) in [
        (", drop_every: 37", vec![], "every route was forwarded to"),
        (", drop_every: 37, blackhole_every: 7", (6..1_000).step_by(7).collect::<Vec<u32>>(), "some routes always"),
    ] {
        let (_, outcome) = completed(faults, 2, &one_each);
        let get = |name| full(&outcome, "rib_fib_capacity", name)[0];
        assert!(get("lost") > unreachable.len() as f64, "{faults}");
        assert_eq!((get("verified"), get("unreachable")), (1_000.0, unreachable.len() as f64), "{faults}");
        let named: Vec<String> = unreachable.iter().map(|i| all.prefix(*i).to_string()).collect();
        let table = outcome.tables.iter().any(|table| table.key == "rib_fib_capacity_unreachable");
        assert_eq!(table, !named.is_empty(), "{faults}");
        assert!(!table || texts(&outcome, "rib_fib_capacity_unreachable") == named, "{faults}");
        assert!(rows(&outcome, "rib_fib_capacity")[0].marks[0].contains(says), "{faults}");
        assert_eq!(figure(&outcome, "rib_fib_ipv4_routes"), Some(0.0));
    }
}

#[test]
fn a_slow_forwarding_table_is_waited_for() {
    // The last of 1,000 routes is installed 150 + 999 * 0.2 ms after the first UPDATE; the traffic of a try takes 20
    // ms, with 100 ms after it.
    let (memory, outcome) = completed(
        ", fib_delay: 150 ms, fib_time_per_route: 200 us",
        2,
        "rib_fib_capacity: {step: 1000, max_routes: 1000, rate: 100 kfps, install: 5 s, drain: 100 ms}",
    );
    let get = |name| full(&outcome, "rib_fib_capacity", name)[0];
    assert_eq!((get("lost"), get("unreachable"), figure(&outcome, "rib_fib_ipv4_routes")), (0.0, 0.0, Some(1_000.0)));
    let tries = memory.trials();
    assert!(tries.len() > 1 && tries.iter().rev().skip(1).all(|t| t.result.lost() > 0));
    // The successful try begins when all are installed, or a little before because each is addressed in turn; and is no
    // later than one try.
    let each = tries.iter().map(|t| t.result.elapsed_s).fold(0.0, f64::max);
    about(get("forward_s"), 0.150 + 0.1998 - 0.02, each);
    // Its excess reaches back at most to the first try, when they were not installed.
    let lossy: f64 = tries[..tries.len() - 1].iter().map(|t| t.result.elapsed_s).sum();
    about(get("exact_s"), lossy, each);
    assert!(get("forward_s") - get("exact_s") < 0.150 + 0.1998);
    let time = outcome.ranks.iter().find(|f| f.key == "rib_fib_time_ipv4_s").unwrap();
    assert_eq!(time.resolution, get("exact_s") / get("forward_s"), "ranks know it");
    assert_eq!(figure(&outcome, "rib_fib_time_ipv4_s"), Some(get("forward_s")));
}

#[test]
fn sessions_are_brought_up_as_many_as_there_are() {
    let memory = run_all("", 2, "{peers_per_port: 20}", "  - bgp_session_capacity: {step: 30, hold: 200 s}\n");
    let outcome = memory.outcome("bgp_session_capacity");
    let column = |name| full(outcome, "bgp_session_capacity", name);
    // Two ports, two families.
    assert_eq!(column("sessions"), [30.0, 60.0, 80.0]);
    assert_eq!(column("lost"), [0.0; 3]);
    // The device resolves the address of a peer that connects, keeps its packet meanwhile, and no attempt has to be repeated.
    assert!(column("slowest_s").iter().all(|s| *s < 0.1), "{:?}", column("slowest_s"));
    assert!((figure(outcome, "bgp_sessions_s").unwrap() - column("step_s").iter().sum::<f64>()).abs() < 1e-9);
    assert_eq!(figure(outcome, "bgp_sessions"), Some(80.0), "{:?}", outcome.notes);
    assert!(noted(outcome, &["at least 80 sessions"]));
}
