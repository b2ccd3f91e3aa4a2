//! Traffic to routes that come and go: the time at which each is forwarded to is known to the nanosecond.

use super::*;
use drophammer_judge::losses::{Cause, causes};
use std::collections::BTreeSet;

#[test]
fn each_route_converges_when_the_forwarding_table_has_it() {
    for (delay_ms, each_us, count, family) in
        [(0.0, 0.0, 400, "ipv4"), (80.0, 0.0, 400, "ipv4"), (100.0, 1_000.0, 500, "ipv4"), (33.0, 700.0, 300, "ipv6")]
    {
        let device = format!(", fib_delay: {delay_ms} ms, fib_time_per_route: {each_us} us");
        let test = format!(
            "fib_convergence: {{families: [{family}], routes: {count}, window: 1 s, rate: 200 kfps, drain: 100 ms}}"
        );
        let (_, outcome) = completed(&device, 2, &test);
        let get = |name| full(&outcome, "fib_convergence", name)[0];
        let resolution = f64::from(count) / 200e3 * 1e3;
        assert!((get("resolution_ms") - resolution).abs() < 1e-9);
        assert_eq!((get("routes"), get("unreachable")), (f64::from(count), 0.0));
        let truth = |i: u32| delay_ms + each_us / 1e3 * f64::from(i);
        // Frames to a route are sent at equal distances, so the loss may differ by one frame.
        let near = |found: f64, i: u32| {
            let truth = truth(i);
            assert!((found - truth).abs() <= resolution + 0.1, "{device}: route {i}: {found} ms, not {truth}");
        };
        let name = if family == "ipv4" { "IPv4" } else { "IPv6" };
        let curve = points(&outcome, "fib_convergence", name);
        assert_eq!(curve.len(), count as usize);
        // Routes start to be forwarded to in the order of their announcement, so a sorted curve has the same order.
        (0..count).for_each(|i| near(curve[i as usize].y, i));
        near(get("min_ms"), 0);
        near(get("median_ms"), count.div_ceil(2) - 1);
        near(get("p99_ms"), (0.99 * f64::from(count)).ceil() as u32 - 1);
        near(get("max_ms"), count - 1);
        let mean = (truth(0) + truth(count - 1)) / 2.0;
        assert!((get("loss_derived_ms") - mean).abs() <= resolution, "{} {mean}", get("loss_derived_ms"));
        assert_eq!(figure(&outcome, &format!("fib_convergence_{family}_median_ms")), Some(get("median_ms")));
        assert_eq!(figure(&outcome, &format!("fib_convergence_{family}_max_ms")), Some(get("max_ms")));
    }
}

#[test]
fn a_route_that_never_converges_leaves_no_time() {
    let (_, outcome) = completed(
        ", blackhole_every: 100, fib_delay: 50 ms",
        2,
        "fib_convergence: {routes: 500, window: 500 ms, rate: 100 kfps, drain: 100 ms}",
    );
    let all = internet(Family::Ipv4, 500);
    let named: Vec<String> = [99, 199, 299, 399, 499].iter().map(|i| all.prefix(*i).to_string()).collect();
    assert_eq!(texts(&outcome, "fib_convergence_unreachable"), named);
    assert_eq!(full(&outcome, "fib_convergence", "unreachable"), [5.0]);
    about(full(&outcome, "fib_convergence", "max_ms")[0], 50.0 - 5.0, 10.0);
    assert_eq!(figure(&outcome, "fib_convergence_ipv4_max_ms"), None);
}

#[test]
fn the_skyline_has_the_edges_of_the_forwarding_table() {
    let (memory, outcome) = completed(
        ", fib_delay: 100 ms, fib_time_per_route: 100 us",
        2,
        "convergence_skyline: {routes: 1000, interval: 1 s, cycles: 2, rate: 100 kfps, bin: 20 ms, drain: 100 ms}",
    );
    let (first, last) =
        (column(&outcome, "convergence_skyline", "first_s"), column(&outcome, "convergence_skyline", "last_s"));
    assert_eq!((first.len(), last.len()), (4, 4));
    // The ends of the bins in which 1 % and from which 99 % of the frames pass, of a ramp from 100 to 200 ms.
    for at in 0..4 {
        about(first[at].unwrap(), 0.101, 0.0191);
        about(last[at].unwrap(), 0.199, 0.0211);
    }
    about(figure(&outcome, "convergence_up_ipv4_s").unwrap(), 0.199, 0.0211);
    about(figure(&outcome, "convergence_down_ipv4_s").unwrap(), 0.199, 0.0211);
    // The area under the skyline is the number of received frames.
    let area: f64 = points(&outcome, "convergence_skyline", "IPv4").iter().map(|p| p.y * 0.02).sum();
    let trial = &memory.trials()[0].result;
    assert!((area - trial.received() as f64).abs() < 0.5, "{area}");
    // The routes are present twice for a second, with the same delay when they come and when they go.
    assert!((trial.received() as f64 - 200_000.0).abs() <= 2.0 * 2.0 * 1_000.0, "{}", trial.received());
    // Nobody is to blame for frames that no route was advertised for.
    let found = causes(&memory.trials()[0].spec, trial, None);
    assert_eq!(found, vec![Cause::NoRoute; 3], "before, between and after the two times");
}

/// A router that forwards almost nothing is also tested at lower loads (core router test of 2001), at which it is not
/// compared with others.
#[test]
fn a_router_that_forwards_next_to_nothing_has_a_skyline_at_a_lower_load() {
    let test = "convergence_skyline: {routes: 100, interval: 1 s, cycles: 1, rate: 100 kfps, lower_loads: [40, 20, 5], bin: 20 ms, drain: 100 ms}";
    let (memory, outcome) = completed(", capacity: 9 kfps, buffer: 10", 2, test);
    let loads: Vec<f64> = memory.trials().iter().map(|t| (t.result.offered_load().pps() / 1e3).round()).collect();
    assert_eq!(loads, [100.0, 40.0, 20.0, 5.0], "9 % are next to nothing; with 22 and 45 % it does not converge");
    assert!(noted(&outcome, &["forwarded 9.0 % of the frames"]), "{:?}", outcome.notes);
    assert_eq!(figure(&outcome, "convergence_up_ipv4_s"), None);
    assert!(figure(&outcome, "convergence_up_ipv4_at_5_percent_s").is_some(), "{:?}", outcome.ranks);
    // With 22 % of the frames the table goes in time, but it had not come.
    assert_eq!(figure(&outcome, "convergence_down_ipv4_s"), None);
    assert!(figure(&outcome, "convergence_down_ipv4_at_5_percent_s").is_some(), "{:?}", outcome.ranks);
    let trials: Vec<_> = rows(&outcome, "convergence_skyline").iter().map(|row| row.trials[0]).collect();
    assert_eq!(trials, [3, 3].map(|at: usize| memory.trials()[at].result.trial));
    // A router that forwards everything is tested at one load only, however low.
    let (memory, outcome) = completed("", 2, &test.replace("100 kfps", "20 kfps"));
    assert_eq!(memory.trials().len(), 1);
    assert!(figure(&outcome, "convergence_up_ipv4_s").is_some());
    let whole = ", capacity: 9 kfps, buffer: 10";
    let (memory, outcome) = completed(whole, 2, &test.replace("[40, 20, 5]", "[5]"));
    assert_eq!(memory.trials().len(), 2);
    assert_eq!(figure(&outcome, "convergence_up_ipv4_s"), None);
    assert!(figure(&outcome, "convergence_up_ipv4_at_5_percent_s").is_some(), "{:?}", outcome.ranks);
    assert!(figure(&outcome, "convergence_down_ipv4_at_5_percent_s").is_some());
}

/// A direction that is complete at the requested load keeps its figure there.
#[test]
fn only_the_direction_that_was_not_complete_is_measured_at_a_lower_load() {
    let (memory, outcome) = completed(
        ", withdraw_late: 1100 ms",
        2,
        "convergence_skyline: {routes: 500, interval: 1 s, cycles: 1, rate: 50 kfps, lower_loads: [50], bin: 20 ms, drain: 100 ms}",
    );
    assert_eq!(memory.trials().len(), 2);
    let keys: Vec<_> = outcome.ranks.iter().map(|rank| (rank.key.as_str(), rank.value.is_some())).collect();
    let expected = [
        ("convergence_up_ipv4_s", true),
        ("convergence_down_ipv4_s", false),
        ("convergence_down_ipv4_at_50_percent_s", false),
    ];
    assert_eq!(keys, expected);
    let rows = rows(&outcome, "convergence_skyline");
    let trials: Vec<_> = rows.iter().map(|row| row.trials[0]).collect();
    assert_eq!(trials, [0, 1].map(|at: usize| memory.trials()[at].result.trial));
    assert!(rows[0].marks.is_empty() && rows[1].marks == ["not before the next event"], "{rows:?}");
    assert!(noted(&outcome, &["routes down are measured again at 50 %"]), "{:?}", outcome.notes);
}

#[test]
fn a_table_that_goes_late_has_no_edge_before_the_next_event() {
    let (_, outcome) = completed(
        ", withdraw_late: 2 s",
        2,
        "convergence_skyline: {routes: 500, interval: 1 s, cycles: 1, rate: 50 kfps, bin: 20 ms, drain: 100 ms}",
    );
    let last = column(&outcome, "convergence_skyline", "last_s");
    assert!(last[0].is_some() && last[1].is_none(), "{last:?}");
    assert_eq!(rows(&outcome, "convergence_skyline")[1].marks, ["not before the next event"]);
    assert_eq!(figure(&outcome, "convergence_down_ipv4_s"), None);
    assert!(figure(&outcome, "convergence_up_ipv4_s").is_some());
}

const LONGEST: &str =
    "longest_match: {routes: 2000, covering: 300, frames_per_route: 5, rate: 100 kfps, drain: 100 ms, pause: 1 ms}";

#[test]
fn shorter_masks_draw_no_frame_until_they_are_alone() {
    let (_, outcome) = completed("", 4, LONGEST);
    let column = |name| full(&outcome, "longest_match", name);
    assert_eq!((&column("routes")[..2], &column("offered")[..2]), (&[2_000.0; 2][..], &[10_000.0; 2][..]));
    let covered = column("routes")[2];
    assert!((300.0..=2_000.0).contains(&covered), "{covered}");
    assert_eq!((column("offered")[2], column("right")), (covered * 5.0, column("offered")));
    assert_eq!((column("wrong"), column("lost")), (vec![0.0; 3], vec![0.0; 3]));
    for what in ["wrong", "stale"] {
        assert_eq!(figure(&outcome, &format!("longest_match_ipv4_{what}_frames")), Some(0.0), "{what}");
    }
    assert!(noted(&outcome, &["300 covering prefixes"]), "{:?}", outcome.notes);
}

/// Fully meshed traffic in the frame sizes of the core router test.
const LONGEST_MESHED: &str = "longest_match: {routes: 1999, covering: 301, frames_per_route: 3, rate: 30 kfps, drain: 100 ms, pause: 1 ms, \
     distribution: fully_meshed, frame_sizes: [ip40, imix-2001]}";

#[test]
fn shorter_masks_draw_no_frame_of_meshed_traffic() {
    let (memory, outcome) = completed("", 4, LONGEST_MESHED);
    let column = |name| full(&outcome, "longest_match", name);
    // Three states with two sizes each.
    assert_eq!((column("routes")[..4].to_vec(), column("routes").len()), (vec![1_999.0; 4], 6));
    assert_eq!((column("right"), column("wrong"), column("lost")), (column("offered"), vec![0.0; 6], vec![0.0; 6]));
    // All ports together send this number of frames to a route; the share of each port may be off by part of a frame.
    for (offered, routes) in column("offered").into_iter().zip(column("routes")) {
        assert!((offered - routes * 3.0).abs() <= 4.0, "{offered} to {routes} routes");
    }
    let covered = column("routes")[4];
    assert!((301.0..1_999.0).contains(&covered), "{covered}");
    for key in ["longest_match_ipv4_ip40_percent", "longest_match_ipv4_imix-2001_percent"] {
        about(figure(&outcome, key).unwrap(), 100.0, 0.1);
    }
    assert_eq!(figure(&outcome, "longest_match_ipv4_wrong_frames"), Some(0.0));
    assert!(
        noted(&outcome, &["499 routes behind each of 4 ports; 301 covering prefixes over "]),
        "{:?}",
        outcome.notes
    );
    for trial in memory.trials().into_iter().filter(|trial| trial.spec.purpose.starts_with("longest match")) {
        let ways: BTreeSet<_> = trial.spec.flows.iter().map(|flow| (flow.from, flow.to)).collect();
        assert_eq!((ways.len(), trial.result.senders), (12, 4), "{}", trial.spec.purpose);
    }
}

#[test]
fn frames_of_meshed_traffic_at_a_wrong_port_are_counted() {
    let (memory, outcome) = completed(", misroute_every: 40", 4, LONGEST_MESHED);
    let astray = full(&outcome, "longest_match", "wrong");
    let sum = |rows: &[f64]| rows.iter().sum::<f64>();
    assert!(sum(&astray) > 400.0, "{astray:?}");
    assert_eq!(sum(&astray), counted(&memory, "truth.misrouted") as f64);
    // Two sizes in each state; in the last one the longer masks are withdrawn.
    assert_eq!(figure(&outcome, "longest_match_ipv4_wrong_frames"), Some(sum(&astray[..4])));
    assert_eq!(figure(&outcome, "longest_match_ipv4_stale_frames"), Some(sum(&astray[4..])));
}

#[test]
fn the_load_of_meshed_traffic_is_a_share_of_its_own_throughput() {
    let search = "final_trial_duration: 200 ms, width: 0.5, search_duration_max: 20 s, drain: 100 ms, pause: 1 ms";
    let test = format!(
        "longest_match: {{routes: 1000, covering: 100, frames_per_route: 20, load: 50, distribution: fully_meshed, {search}}}"
    );
    // 40,000 frames per second for each of four ports.
    let outcome = completed(", capacity: 40 kfps, buffer: 20, delay: 50 us", 4, &test).1;
    for share in full(&outcome, "longest_match", "of_throughput_percent") {
        assert!((share - 50.0).abs() < 0.25, "{share}");
    }
    assert!(
        noted(&outcome, &["50 % of the throughput of", "per port, from each to all others"]),
        "{:?}",
        outcome.notes
    );
}

#[test]
fn frames_at_a_wrong_port_are_counted() {
    let (memory, outcome) = completed(", misroute_every: 40", 4, LONGEST);
    let column = |name| full(&outcome, "longest_match", name);
    let wrong = column("wrong");
    assert_eq!(wrong.iter().sum::<f64>(), counted(&memory, "truth.misrouted") as f64);
    assert_eq!((&wrong[..2], column("lost")), (&[250.0; 2][..], vec![0.0; 3]));
    // Those of the last state did not take a mask that is too short.
    assert!(wrong[2] > 0.0, "{wrong:?}");
    assert_eq!(figure(&outcome, "longest_match_ipv4_wrong_frames"), Some(500.0));
    assert_eq!(figure(&outcome, "longest_match_ipv4_stale_frames"), Some(wrong[2]));
}
