//! Routes with alternates behind other ports: flapped, and withdrawn by a failure.

use super::*;

fn flap(more: &str) -> String {
    format!(
        "route_flap: {{routes: 2000, flapped: 500, interval: 500 ms, cycles: 2, bin: 50 ms, rate: 100 kfps, drain: 100 ms, \
         pause: 1 s{more}}}"
    )
}

#[test]
fn flapped_routes_move_to_the_alternate_and_back_without_a_loss() {
    for ports in [4, 6] {
        let (_, outcome) = completed(", fib_delay: 30 ms, fib_time_per_route: 100 us", ports, &flap(""));
        let column = |name| full(&outcome, "route_flap", name);
        assert_eq!((column("routes"), column("lost")), (vec![1_500.0, 500.0], vec![0.0; 2]));
        assert_eq!(column("received"), column("offered"));
        // 2.5 s of 100,000 fps, divided by the number of routes.
        assert_eq!(column("offered"), [187_500.0, 62_500.0]);
        // Withdrawn two times for half a second, with the same delay in both directions; a frame per route more or less each time.
        let alternate = column("alternate");
        assert_eq!(alternate[0], 0.0);
        assert!((alternate[1] - 25_000.0).abs() <= 2.0 * 500.0, "{alternate:?}");
        // Full bins of 50 ms at 75,000 and 25,000 fps, none of them after the end of the traffic.
        for (at, rate) in [75_000.0, 25_000.0].into_iter().enumerate() {
            assert!((column("mean_pps")[at] - rate).abs() < 20.0, "{:?}", column("mean_pps"));
            assert!((column("lowest_pps")[at] - rate).abs() <= 60.0, "{:?}", column("lowest_pps"));
        }
        for name in ["stable_lost", "flapped_lost", "outage_s"] {
            assert_eq!(full(&outcome, "route_flap_events", name), [0.0; 4], "{name}");
        }
        assert_eq!(figure(&outcome, "flap_stable_loss_ipv4_percent"), Some(0.0));
        assert_eq!(figure(&outcome, "flap_flapped_loss_ipv4_percent"), Some(0.0));
    }
}

#[test]
fn loss_under_flaps_is_counted_where_it_is() {
    let (memory, outcome) = completed(", drop_every: 51", 4, &flap(""));
    let column = |name| full(&outcome, "route_flap", name);
    let lost: f64 = column("lost").iter().sum();
    // Every 51st of 250,000, whatever the count began with; probes before that are not included, and never passed.
    let truth = memory.trials().last().unwrap().result.dut_counters["truth.dropped.fault_every"] as f64;
    assert!(lost == truth && (4_901.0..=4_902.0).contains(&lost), "{lost} of {truth}");
    assert!(noted(&outcome, &["the forwarding plane was not ready: frames to ", "no fewer were lost for 10 s"]));
    let stable = figure(&outcome, "flap_stable_loss_ipv4_percent").unwrap();
    assert!((stable - 100.0 / 51.0).abs() < 0.05 && stable == column("loss_percent")[0], "{stable}");
    // From the first event on: five sixths of the time less the first half second.
    let events: f64 = full(&outcome, "route_flap_events", "stable_lost").iter().sum();
    assert!((events / column("lost")[0] - 0.8).abs() < 0.01, "{events}");
}

fn failover(more: &str) -> String {
    format!("link_failover: {{routes: 500, window: 1 s, rate: 100 kfps, drain: 100 ms{more}}}")
}

#[test]
fn the_outage_of_a_cut_link_is_what_the_forwarding_table_takes() {
    for (delay_ms, each_us, failure) in [(60.0, 400.0, "link"), (0.0, 0.0, "link"), (60.0, 400.0, "session")] {
        let device = format!(", fib_delay: {delay_ms} ms, fib_time_per_route: {each_us} us");
        let (memory, outcome) = completed(&device, 4, &failover(&format!(", failure: {failure}")));
        let get = |name| full(&outcome, "link_failover", name)[0];
        let curve = points(
            &outcome,
            "link_failover",
            if failure == "link" { "IPv4, link down" } else { "IPv4, session ended" },
        );
        assert_eq!((curve.len(), get("unreachable")), (500, 0.0), "{:?}", outcome.notes);
        // Unless it is cut, the old path carries all traffic until the routes have moved.
        let truth = |i: u32| if failure == "link" { delay_ms + each_us / 1e3 * f64::from(i) } else { 0.0 };
        for (i, point) in (0..).zip(curve) {
            let truth = truth(i);
            assert!((point.y - truth).abs() <= get("resolution_ms") + 0.1, "{device}: {i}: {} not {truth}", point.y);
        }
        assert_eq!(column(&outcome, "link_failover", "reordered"), [None], "by two ports");
        let mean = (truth(0) + truth(499)) / 2.0;
        assert!((get("loss_derived_ms") - mean).abs() <= get("resolution_ms"), "{}", get("loss_derived_ms"));
        let trial = &memory.trials().last().unwrap().result;
        let cut =
            if failure == "link" { trial.dut_counters.get("truth.dropped.link_down").copied().unwrap_or(0) } else { 0 };
        assert_eq!(trial.lost(), cut);
        assert!(trial.groups[0].arrived_at[2] > 0);
    }
}

#[test]
fn routes_that_have_not_moved_when_traffic_ends_are_unreachable_and_leave_no_figure() {
    // A frame to each route every 5 ms, until 300 ms after the failure.
    let test = "link_failover: {routes: 500, window: 300 ms, rate: 100 kfps, drain: 100 ms}";
    // None has moved by then; or those up to the 240th, of which the last six had perhaps no frame in time.
    for (delay_ms, each_us, left) in [(500, 0, 500..=500), (60, 1_000, 259..=265)] {
        let device = format!(", fib_delay: {delay_ms} ms, fib_time_per_route: {each_us} us");
        let (_, outcome) = completed(&device, 4, test);
        let unreachable = full(&outcome, "link_failover", "unreachable")[0] as usize;
        assert!(left.contains(&unreachable), "{device}: {unreachable}");
        assert_eq!(texts(&outcome, "link_failover_unreachable").len(), unreachable);
        match column(&outcome, "link_failover", "max_ms")[0] {
            Some(max_ms) => about(max_ms, 285.0, 15.0),
            None => assert_eq!(unreachable, 500),
        }
        for word in ["median", "max"] {
            assert_eq!(figure(&outcome, &format!("link_failover_ipv4_{word}_ms")), None, "{device}");
        }
    }
}

#[test]
fn routes_to_which_no_frame_was_sent_have_no_outage_and_leave_no_figure() {
    let test = "link_failover: {routes: 500, failure: session, window: 200 ms, rate: 400 fps, drain: 100 ms}";
    let (memory, outcome) = completed("", 4, test);
    // One frame to each of most routes, and none of them lost.
    let trial = &memory.trials().last().unwrap().result;
    let sent = trial.offered() as usize;
    assert!((470..500).contains(&sent) && trial.lost() == 0, "{sent}");
    assert_eq!(points(&outcome, "link_failover", "IPv4, session ended").len(), sent);
    assert_eq!(full(&outcome, "link_failover", "unreachable"), [0.0]);
    let mark = format!("routes to which no frame was sent: {}", 500 - sent);
    assert_eq!(rows(&outcome, "link_failover")[0].marks, [mark]);
    for word in ["median", "max"] {
        assert_eq!(figure(&outcome, &format!("link_failover_ipv4_{word}_ms")), None);
    }
}

#[test]
fn without_a_third_port_there_is_no_alternate() {
    let memory = run_all("", 2, "{}", &format!("  - {}\n", failover("")));
    let TestStatus::Skipped(why) = &memory.tests()[0].status else { panic!("{:?}", memory.tests()[0].status) };
    assert!(why.contains("3 ports"), "{why}");
}
