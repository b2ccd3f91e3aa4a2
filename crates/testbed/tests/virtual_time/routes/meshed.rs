//! Routes that come and go behind all ports, under traffic from every port to every other one.

use super::*;
use std::collections::BTreeSet;

fn flap(more: &str) -> String {
    format!(
        "route_flap: {{routes: 2000, flapped: 500, interval: 500 ms, cycles: 2, bin: 50 ms, drain: 100 ms, pause: 1 ms, \
         distribution: fully_meshed, {more}}}"
    )
}

/// Ways on which the frames of a trial go.
fn ways(memory: &Memory, purpose: &str) -> Vec<usize> {
    let trials = memory.trials().into_iter().filter(|trial| trial.spec.purpose.starts_with(purpose));
    trials
        .map(|trial| trial.spec.flows.iter().map(|flow| (flow.from, flow.to)).collect::<BTreeSet<_>>().len())
        .collect()
}

#[test]
fn routes_that_flap_at_all_ports_move_to_the_next_one_and_back_without_a_loss() {
    for ports in [3, 4] {
        let device = ", fib_delay: 30 ms, fib_time_per_route: 100 us";
        let (memory, outcome) = completed(device, ports, &flap("rate: 30 kfps"));
        let column = |name| full(&outcome, "route_flap", name);
        assert_eq!((column("routes"), column("lost")), (vec![1_500.0, 500.0], vec![0.0; 2]));
        assert_eq!(column("received"), column("offered"));
        // 2.5 s of 30,000 fps from each port, divided by the number of routes; no port sends to its own, so parts that
        // are not of one size shift some frames.
        let (offered, all) = (column("offered"), ports as f64 * 75_000.0);
        assert_eq!(offered.iter().sum::<f64>(), all);
        assert!((offered[0] - all * 0.75).abs() <= if ports == 4 { 0.0 } else { all * 0.001 }, "{offered:?}");
        // Withdrawn two times for half a second, with the same delay in both directions; from each port a frame per route
        // more or less each time.
        let alternate = column("alternate");
        assert_eq!(alternate[0], 0.0);
        let each = 2.0 * 500.0 * (ports - 1) as f64;
        assert!((alternate[1] - offered[1] * 0.4).abs() <= each, "{alternate:?} of {offered:?}");
        // Per sending port.
        for (at, rate) in [22_500.0, 7_500.0].into_iter().enumerate() {
            assert!((column("mean_pps")[at] - rate).abs() < 20.0, "{:?}", column("mean_pps"));
            assert!((column("lowest_pps")[at] - rate).abs() <= 60.0, "{:?}", column("lowest_pps"));
        }
        for name in ["stable_lost", "flapped_lost", "outage_s"] {
            assert_eq!(full(&outcome, "route_flap_events", name), [0.0; 4], "{name}");
        }
        // Frames to a route come from all other ports.
        let resolution = full(&outcome, "route_flap_events", "resolution_s");
        assert_eq!(resolution, [0.05; 4]);
        assert_eq!(ways(&memory, "route flap"), [ports * (ports - 1)]);
        assert!(!noted(&outcome, &["not ready"]), "{:?}", outcome.notes);
        assert!(noted(&outcome, &["routes behind each of", "500 of all flapped"]), "{:?}", outcome.notes);
    }
}

/// The number of routes in the device is right from the worst paths on, and does not show when it has moved them to the best.
#[test]
fn traffic_starts_when_the_device_has_moved_all_routes_to_the_best_path() {
    let device = ", fib_delay: 30 ms, fib_time_per_route: 1 ms";
    let (memory, outcome) = completed(device, 4, &flap("rate: 10 kfps, patience: 2 s"));
    let column = |name| full(&outcome, "route_flap", name);
    assert_eq!((column("lost")[0], column("alternate")[0]), (0.0, 0.0));
    assert!(!noted(&outcome, &["not ready"]), "{:?}", outcome.notes);
    // The third, the second and the best paths are probed; a few routes, until they have come, then all of them.
    let probes = |text: &str| memory.trials().iter().filter(|trial| trial.spec.purpose.starts_with(text)).count();
    assert!(probes("probe of 2,000") >= 3 * 3 && probes("probe of 128") >= 3, "{}", probes("probe"));
}

/// Two routers with two ports each. The second paths to the routes of p1 and p3 are at the same router, those of p2 and p4 at the
/// other one, which does not advertise it while it has a better one (RFC 4271 section 9.1): until it hears of the withdrawal
/// and answers it, frames to these routes are lost.
#[test]
fn flapped_routes_lose_what_the_system_takes_to_find_the_other_path() {
    let device = ", topology: {mesh: 2, core_speed: 10 Gbit/s}, propagation_delay: 40 ms, fib_delay: 10 ms";
    let (memory, outcome) = completed(device, 4, &flap("rate: 30 kfps"));
    let column = |name| full(&outcome, "route_flap", name);
    // From each port 2,500 fps to the 125 flapped routes behind each other one. Frames that enter at the router that lost
    // the routes are lost for 80 ms, from both ports at the other one for 40 ms; this for two ports, in two cycles.
    let lost = 2_500.0 * (0.08 + 0.04 + 0.04) * 2.0;
    assert_eq!((column("offered"), column("lost")), (vec![225_000.0, 75_000.0], vec![0.0, 2.0 * lost]));
    assert_eq!(column("loss_percent"), [0.0, 2.0 * lost / 750.0]);
    let events = |name| full(&outcome, "route_flap_events", name);
    assert_eq!((events("stable_lost"), events("flapped_lost")), (vec![0.0; 4], vec![lost, 0.0, lost, 0.0]));
    // From 10 to 90 ms after the change, in bins of 50 ms.
    for (found, end) in events("outage_s").into_iter().zip([0.1, 0.0, 0.1, 0.0]) {
        about(found, end, 0.0);
    }
    assert_eq!(figure(&outcome, "flap_stable_loss_ipv4_percent"), Some(0.0));
    assert_eq!(figure(&outcome, "flap_flapped_loss_ipv4_percent"), Some(2.0 * lost / 750.0));
    // Frames from p1 and p2 to p3 and p4, and back, cross the link between the routers.
    assert_eq!(ways(&memory, "route flap"), [12]);
}

#[test]
fn an_outage_is_not_stated_where_frames_were_lost_before() {
    // 120,000 fps for a device of 80,000.
    let (_, outcome) = completed(", capacity: 80 kfps, buffer: 20, delay: 50 us", 4, &flap("rate: 30 kfps"));
    assert_eq!(column(&outcome, "route_flap_events", "outage_s"), [None; 4]);
    for row in rows(&outcome, "route_flap_events") {
        assert_eq!(row.marks, ["frames were lost before this event too, so no outage is stated"]);
    }
    for loss in full(&outcome, "route_flap", "loss_percent") {
        assert!((loss - 100.0 / 3.0).abs() < 1.0, "{loss}");
    }
    // One way as well.
    let one_way = flap("rate: 30 kfps").replace("fully_meshed", "non_meshed");
    let (_, outcome) = completed(", capacity: 20 kfps, buffer: 20, delay: 50 us", 4, &one_way);
    assert_eq!(column(&outcome, "route_flap_events", "outage_s"), [None; 4]);
}

const SEARCH: &str =
    "final_trial_duration: 200 ms, width: 0.5, search_duration_max: 20 s, patience: 2 s, frame_size: ip40";

/// The load is a share of the throughput of the mesh per port, and rates are shares of it.
#[test]
fn rates_are_shares_of_the_throughput_of_the_mesh() {
    let device = ", capacity: 40 kfps, buffer: 20, delay: 50 us";
    let (_, outcome) = completed(device, 4, &flap(&format!("load: 90, {SEARCH}")));
    for share in full(&outcome, "route_flap", "of_throughput_percent") {
        about(share, 89.6, 0.8);
    }
    assert_eq!(full(&outcome, "route_flap", "lost"), [0.0; 2]);
    assert!(
        noted(&outcome, &["90 % of the throughput of", "per port, from each to all others"]),
        "{:?}",
        outcome.notes
    );
    let (_, outcome) = completed(device, 4, &skyline(&format!("cycles: 1, load: 90, {SEARCH}")));
    let shares = column(&outcome, "convergence_skyline", "of_throughput_percent");
    about(shares[0].unwrap(), 89.6, 0.8);
    assert_eq!(shares[1], None);
    // 10,000 fps for each of four ports, and what the buffer takes.
    about(full_first(&outcome, "rate_pps"), 8_990.0, 60.0);
}

fn full_first(outcome: &Outcome, name: &str) -> f64 {
    column(outcome, "convergence_skyline", name)[0].unwrap()
}

/// A router that forwards to the table only at the end of its time is not one that forwards next to nothing.
#[test]
fn a_router_that_converges_slowly_stays_at_the_load() {
    for ports in [2, 4] {
        let distribution = if ports == 2 { "non_meshed" } else { "fully_meshed" };
        let test = skyline(&format!("cycles: 1, load: 90, lower_loads: [25, 5], {SEARCH}"));
        let test = test.replace("fully_meshed", distribution);
        let device = ", capacity: 40 kfps, buffer: 20, delay: 50 us, fib_delay: 920 ms";
        let (memory, outcome) = completed(device, ports, &test);
        let trials = memory.trials().into_iter().filter(|t| t.spec.purpose.starts_with("convergence skyline"));
        assert_eq!(trials.count(), 1, "{:?}", outcome.notes);
        let last = column(&outcome, "convergence_skyline", "last_s");
        about(last[0].unwrap(), 0.94, 0.0);
        // In the last tenth, the first 20 ms bring nothing.
        about(full_first(&outcome, "of_throughput_percent"), 0.8 * 89.5, 1.0);
        assert!(figure(&outcome, "convergence_up_ipv4_s").is_some());
        assert!(outcome.ranks.iter().all(|rank| !rank.key.contains("_at_")), "{:?}", outcome.ranks);
    }
}

#[test]
fn a_router_that_does_not_converge_in_time_is_measured_at_a_lower_load() {
    // 120,000 fps from four ports for a device of 40,000, which loses two thirds of them; a quarter of that passes.
    let device = ", capacity: 40 kfps, buffer: 20, delay: 50 us";
    let (memory, outcome) = completed(device, 4, &skyline("cycles: 1, rate: 30 kfps, lower_loads: [25, 5]"));
    let trials = memory.trials().into_iter().filter(|t| t.spec.purpose.starts_with("convergence skyline"));
    let trials: Vec<u64> = trials.map(|trial| trial.result.trial).collect();
    assert_eq!(trials.len(), 2, "{:?}", outcome.notes);
    let told = ["33.3 %", "not complete before the next one", "measured again at 25 %"];
    assert!(noted(&outcome, &told), "{:?}", outcome.notes);
    assert_eq!(figure(&outcome, "convergence_up_ipv4_s"), None);
    about(figure(&outcome, "convergence_up_ipv4_at_25_percent_s").unwrap(), 0.02, 0.0);
    // The table goes in time at the requested load, but it had not come.
    assert_eq!(figure(&outcome, "convergence_down_ipv4_s"), None);
    about(figure(&outcome, "convergence_down_ipv4_at_25_percent_s").unwrap(), 0.02, 0.02);
    let rows = rows(&outcome, "convergence_skyline").iter();
    assert_eq!(rows.map(|row| row.trials.clone()).collect::<Vec<_>>(), [[trials[1]], [trials[1]]]);
}

fn skyline(more: &str) -> String {
    format!(
        "convergence_skyline: {{routes: 1000, interval: 1 s, bin: 20 ms, drain: 100 ms, distribution: fully_meshed, {more}}}"
    )
}

#[test]
fn the_skyline_of_a_mesh_has_the_edges_of_the_forwarding_table() {
    for ports in [3, 4] {
        let device = ", fib_delay: 100 ms, fib_time_per_route: 100 us";
        let (memory, outcome) = completed(device, ports, &skyline("cycles: 2, rate: 30 kfps"));
        let (first, last) =
            (column(&outcome, "convergence_skyline", "first_s"), column(&outcome, "convergence_skyline", "last_s"));
        assert_eq!(full(&outcome, "convergence_skyline", "routes"), [1_000.0; 4]);
        for at in 0..4 {
            // The ends of the bins in which 1 % and from which 99 % of the frames pass, of a ramp from 100 to 200 ms.
            about(first[at].unwrap(), 0.12, 0.0);
            about(last[at].unwrap(), 0.22, 0.0);
        }
        for key in ["convergence_up_ipv4_s", "convergence_down_ipv4_s"] {
            about(figure(&outcome, key).unwrap(), 0.22, 0.0);
        }
        // Per sending port; the curve too, over the arrivals at all ports.
        let rates = column(&outcome, "convergence_skyline", "rate_pps");
        assert_eq!(rates, [Some(30_000.0), None, Some(30_000.0), None]);
        assert_eq!(full(&outcome, "convergence_skyline", "after_frames"), [0.0; 4]);
        let trial = &memory.trials()[0].result;
        let area: f64 = points(&outcome, "convergence_skyline", "IPv4").iter().map(|p| p.y * 0.02 * ports as f64).sum();
        assert!((area - trial.received() as f64).abs() < 0.5, "{area}");
        let all = ports as f64 * 30_000.0 * 2.0;
        // There for two seconds, with the same delay when they come and when they go.
        assert!((trial.received() as f64 - all).abs() <= 2.0 * 2.0 * 1_000.0 * (ports - 1) as f64);
        assert_eq!((ways(&memory, "convergence skyline"), trial.senders), (vec![ports * (ports - 1)], ports as u32));
    }
}
