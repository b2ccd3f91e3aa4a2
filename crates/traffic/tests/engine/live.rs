//! Traffic driven in several calls, observed while it runs, and ended from outside.

use crate::common::*;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Family, FlowDuration, FlowSchedule, FlowSpec, Load, TimedEvent, TrialResult, TrialSpec};
use drophammer_port::{Clock, Port, SystemClock, memory};
use drophammer_traffic::{CONTINUOUS, FlowCounts, Layout, Neighbour, Plan, Snapshot, Timing, Traffic, merge};
use drophammer_wire::MacAddr;
use std::thread;
use std::time::Duration;

/// A device that loses, duplicates and delays frames.
fn faulty() -> Bench {
    Bench::new(2, |f, out| {
        if f.nth(7) {
            return;
        }
        out.push(f.on(if f.nth(11) { 20 * DELAY } else { DELAY }));
        if f.nth(13) {
            out.push(f.on(2 * DELAY));
        }
    })
}

fn both_ways(rate_pps: f64, duration_s: f64) -> TrialSpec {
    let flows = vec![
        flow("a", 0, 1, Family::Ipv4, 20, 1.0),
        flow("b", 0, 1, Family::Ipv6, 3, 2.0),
        flow("a", 1, 0, Family::Ipv4, 9, 1.0),
    ];
    spec("128", flows, Load::Constant { rate_pps }, duration_s)
}

/// Runs `spec` in calls of `step`.
fn in_steps(bench: &mut Bench, spec: &TrialSpec, step: Duration) -> (TrialResult, u32) {
    let mut traffic = Traffic::new(bench.plan(spec));
    let mut calls = 0;
    while !traffic.is_over() {
        let until = bench.clock.now() + step;
        traffic.drive(&mut bench.ports, &mut bench.clock, &mut bench.control, until).unwrap();
        calls += 1;
    }
    (merge(&traffic.reports()), calls)
}

#[test]
fn in_several_calls_the_result_is_that_of_one() {
    let mut spec = both_ways(50_000.0, 0.05);
    spec.bin_s = Some(0.001);
    spec.events = vec![TimedEvent::new(0.02, 0, "half")];
    let whole = faulty().run(&spec);
    assert!(whole.lost() > 0 && whole.sum(|g| g.reordered) > 0 && whole.sum(|g| g.duplicated) > 0);
    for step in [Duration::from_micros(137), Duration::from_millis(1), Duration::from_millis(20)] {
        let (stepped, calls) = in_steps(&mut faulty(), &spec, step);
        assert!(calls > 2);
        assert_eq!(stepped, whole, "in steps of {step:?}");
    }
}

#[test]
fn traffic_without_end_ends_when_somebody_ends_it() {
    let mut bench = faulty();
    let spec = both_ways(100_000.0, CONTINUOUS.as_secs_f64());
    let mut traffic = Traffic::new(bench.plan(&spec));
    let live = traffic.live();
    let start = bench.clock.now();
    let mut before = Snapshot::default();
    for turn in 1..=5 {
        let until = start + Duration::from_millis(10 * turn);
        traffic.drive(&mut bench.ports, &mut bench.clock, &mut bench.control, until).unwrap();
        assert!(!traffic.is_over());
        let now = traffic.snapshot(bench.clock.now());
        let (sent, received) = (now.sum(|f| f.offered), now.sum(|f| f.received.frames));
        // Both ports send 100 kfps; a burst may be ahead.
        assert!((2_000 * turn - 10..=2_000 * turn + 130).contains(&sent), "{sent} after {turn}");
        assert!(received > before.sum(|f| f.received.frames) && received < sent);
        assert_eq!(now.ports.values().map(|p| p.0).sum::<u64>(), sent);
        assert_eq!(now.ports.values().map(|p| p.1).sum::<u64>(), received);
        assert_eq!(now.groups.iter().flat_map(|g| &g.latencies).map(|(_, n)| n).sum::<u64>(), received);
        // Reading less gives the same.
        let mut quick = traffic.counts(bench.clock.now());
        assert!(quick.groups.iter().all(|g| g.latencies.is_empty()));
        for (group, counts) in quick.groups.iter_mut().enumerate() {
            counts.latencies = traffic.latencies(group);
        }
        assert_eq!(quick, now);
        assert_eq!(traffic.handed_over().iter().sum::<u64>(), sent);
        before = now;
    }
    live.end_sending();
    traffic.drive(&mut bench.ports, &mut bench.clock, &mut bench.control, Instant(u64::MAX)).unwrap();
    assert!(traffic.is_over());
    let last = traffic.snapshot(bench.clock.now());
    let result = merge(&traffic.reports());
    assert_eq!((result.intended(), result.health.unsent), (result.offered(), 0));
    assert!((9_990..=10_130).contains(&result.offered()), "{}", result.offered());
    // One of seven is lost; the last snapshot agrees with the result.
    assert_eq!(result.lost(), result.offered() / 7);
    assert_eq!(last.sum(|f| f.offered), result.offered());
    assert_eq!(last.sum(|f| f.received.frames), result.received());
    assert_eq!(last.sum(|f| f.received.duplicated), result.sum(|g| g.duplicated));
    assert_eq!(last.sum(|f| f.received.reordered), result.sum(|g| g.reordered));
    // Nothing reveals that the last frames of a flow are missing.
    assert!((result.lost() - 3..=result.lost()).contains(&last.sum(|f| f.received.missing)));
}

#[test]
fn sums_of_a_trial_under_way_are_those_of_its_frames() {
    let mut bench = faulty();
    let spec = both_ways(50_000.0, CONTINUOUS.as_secs_f64());
    let mut traffic = Traffic::new(bench.plan(&spec));
    let live = traffic.live();
    thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let sums: Vec<_> = (0..20).filter_map(|_| live.totals(Duration::from_secs(60))).collect();
            live.end_sending();
            sums
        });
        traffic.drive(&mut bench.ports, &mut bench.clock, &mut bench.control, Instant(u64::MAX)).unwrap();
        let sums = watcher.join().unwrap();
        assert!(sums.len() == 20 && sums.is_sorted_by_key(|s| (s.elapsed, s.offered, s.received)), "{sums:?}");
        let last = sums[19];
        assert!(last.received > 0, "{last:?}");
        // Both ports send 50 kfps; a burst may be ahead.
        let due = (last.elapsed.as_secs_f64() * 100_000.0) as u64;
        assert!((due.saturating_sub(10)..=due + 130).contains(&last.offered), "{last:?}");
        // One of seven is lost; frames in flight may be missing for a while.
        let lost = last.offered / 7;
        let missing = last.missing.unwrap();
        assert!((lost.saturating_sub(50)..=lost + 250).contains(&missing), "{last:?}");
    });
    assert!(traffic.is_over());
}

#[test]
fn traffic_that_is_ended_has_what_was_due_until_then() {
    let mut bench = wire();
    let spec = spec("64", vec![flow("a", 0, 1, Family::Ipv4, 5, 1.0)], Load::Constant { rate_pps: 1_000.0 }, 10.0);
    let mut traffic = Traffic::new(bench.plan(&spec));
    traffic.live().end_sending();
    traffic.drive(&mut bench.ports, &mut bench.clock, &mut bench.control, Instant(u64::MAX)).unwrap();
    let result = merge(&traffic.reports());
    assert_eq!((result.intended(), result.offered(), result.received()), (1, 1, 1), "the first is due at once");
}

#[test]
fn flows_with_rates_of_their_own_end_too() {
    let own = |group: &str, rate_pps, delay_s| FlowSpec {
        schedule: Some(FlowSchedule { rate_pps, delay_s, duration: FlowDuration::Continuous }),
        ..flow(group, 0, 1, Family::Ipv4, 5, 1.0)
    };
    let flows = vec![own("a", 1_000.0, 0.0), own("b", 50.0, 0.0), own("late", 10.0, 0.5)];
    let whole = wire().run(&spec("64", flows.clone(), Load::Flows, 0.2));
    assert_eq!(whole.groups.iter().map(|g| g.offered).collect::<Vec<_>>(), [200, 10, 0]);
    let (stepped, _) = in_steps(&mut wire(), &spec("64", flows.clone(), Load::Flows, 0.2), Duration::from_micros(731));
    assert_eq!(stepped, whole);
    let mut bench = wire();
    let mut traffic = Traffic::new(bench.plan(&spec("64", flows, Load::Flows, CONTINUOUS.as_secs_f64())));
    let until = bench.clock.now() + Duration::from_millis(200);
    traffic.drive(&mut bench.ports, &mut bench.clock, &mut bench.control, until).unwrap();
    traffic.live().end_sending();
    traffic.drive(&mut bench.ports, &mut bench.clock, &mut bench.control, Instant(u64::MAX)).unwrap();
    let result = merge(&traffic.reports());
    assert_eq!(
        result.groups.iter().map(|g| (g.intended, g.received)).collect::<Vec<_>>(),
        [(200, 200), (10, 10), (0, 0)]
    );
}

#[test]
fn lanes_are_looked_at_and_ended_by_another_thread() {
    let flows = vec![flow("a", 0, 1, Family::Ipv4, 50, 1.0), flow("b", 1, 0, Family::Ipv4, 50, 1.0)];
    let spec = spec("64", flows, Load::Constant { rate_pps: 20_000.0 }, CONTINUOUS.as_secs_f64());
    let macs = [MacAddr::local(0), MacAddr::local(1)];
    for lanes in [1, 2] {
        let clock = SystemClock::start();
        let mut ports = memory::pair(macs, 1_500, clock).map(|port| Box::new(port) as Box<dyn Port + Send>);
        let neighbour = |i: usize| Neighbour { mac: macs[i], device_ipv4: Some(macs[i ^ 1]), ..Neighbour::default() };
        // A lane sends all frames, however late, because the machine may be busy.
        let backlog = 60 * SECOND;
        let timing = Timing { seed: 7, key: key(1), earlier: vec![], max_backlog_ns: backlog, late_ns: backlog };
        let layout = Layout::round_robin(2, lanes);
        let plan = Plan::on_lanes(&spec, &[neighbour(0), neighbour(1)], &timing, layout).unwrap();
        let mut traffic = Traffic::new(plan);
        let live = traffic.live();
        let (mut first, mut others) = (Still::default(), Vec::new());
        others.resize_with(lanes - 1, Still::default);
        let (seen, sums) = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut seen = Vec::new();
                let enough = |s: &Snapshot| s.sum(|f| f.received.frames) >= 1_000;
                let mut sums = Vec::new();
                while !live.is_over() && !seen.last().is_some_and(enough) {
                    sums.extend(live.totals(Duration::from_secs(20)));
                    seen.extend(live.snapshot(Duration::from_secs(20)));
                }
                live.end_sending();
                (seen, sums)
            });
            traffic.drive_lanes(&mut ports, clock, &[], &mut first, &mut others, Instant(u64::MAX)).unwrap();
            watcher.join().unwrap()
        });
        assert!(traffic.is_over() && live.snapshot(Duration::from_secs(20)).is_none(), "nobody answers any more");
        assert_eq!(live.totals(Duration::from_secs(20)), None, "nobody answers any more");
        // Asked in turn, each answer lies between the ones before and after it.
        assert_eq!(sums.len(), seen.len());
        for (turn, sums) in sums.iter().enumerate() {
            let before = turn.checked_sub(1).map_or(0, |before| seen[before].sum(|f| f.offered));
            assert!((before..=seen[turn].sum(|f| f.offered)).contains(&sums.offered), "{sums:?}");
            let before = turn.checked_sub(1).map_or(0, |before| seen[before].sum(|f| f.received.frames));
            assert!((before..=seen[turn].sum(|f| f.received.frames)).contains(&sums.received), "{sums:?}");
            assert!(sums.missing.is_some(), "{sums:?}");
        }
        assert!(sums.is_sorted_by_key(|s| s.elapsed));
        let result = merge(&traffic.reports());
        let grown = |count: fn(&FlowCounts) -> u64| {
            assert!(seen.is_sorted_by_key(|s| s.sum(count)));
            seen.last().unwrap().sum(count)
        };
        assert!(grown(|f| f.offered) <= result.offered());
        assert!((1_000..=result.received()).contains(&grown(|f| f.received.frames)));
        // A lane that is late when traffic ends leaves due frames unsent.
        let due = result.offered() + result.health.unsent;
        assert_eq!((result.intended(), result.offered()), (due, result.received() + result.lost()));
        assert_eq!(result.lost(), result.sum(|g| g.refused), "the links lose nothing but what they refuse");
    }
}
