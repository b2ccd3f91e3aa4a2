//! Trials on several threads, over ports in memory. The faults of the device between them depend on the contents of frames, not on times, so the
//! counts are the same on any number of lanes.

mod device;

use crate::common::{flow, key, reconcile, spec};
use device::{Failure, Faults, NO, NONE, OTHER, Ways, Wired};
use drophammer_model::latency::LatencySummary;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Bin, Family, GroupCounts, Health, Load, TrialResult, TrialSpec};
use drophammer_port::memory;
use drophammer_port::{Arrival, BURST, Batch, Clock, Port, PortError, PortInfo, Queue, SystemClock};
use drophammer_traffic::{
    Control, LaneError, Layout, Neighbour, Plan, SendFrame, Timing, Traffic, merge, run, run_lanes,
};
use drophammer_wire::MacAddr;
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Stopwatch};

/// Hosts behind some ports, which answer frames that are not test frames.
struct Hosts {
    ports: Vec<usize>,
    received: u64,
    due: Vec<usize>,
    stop: Box<dyn Fn() -> bool + Send>,
}

impl Control for Hosts {
    fn receive(&mut self, port: usize, arrival: Arrival<'_>) -> Result<(), PortError> {
        assert!(self.ports.contains(&port), "port {port} is another lane's");
        assert_eq!(arrival.frame, OTHER);
        self.received += 1;
        self.due.push(port);
        Ok(())
    }

    fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        self.due.drain(..).try_for_each(|port| send(port, &OTHER).map(drop))?;
        Ok(now + Duration::from_millis(500))
    }

    fn stop(&self) -> bool {
        (self.stop)()
    }
}

/// A device with its ports, and the tester's hosts.
struct Bench {
    ports: Vec<Box<dyn Port + Send>>,
    hosts: Vec<Hosts>,
    layout: Layout,
    clock: SystemClock,
    progress: Arc<AtomicU64>,
    answers: Arc<AtomicU64>,
}

impl Bench {
    fn new(spec: &TrialSpec, layout: Layout, faults: Faults, fails: impl Fn(usize) -> Failure) -> Bench {
        let clock = SystemClock::start();
        let to = Arc::new(spec.flows.iter().map(|f| f.to).collect::<Vec<_>>());
        let ways: Ways = Arc::new((0..layout.queue_count()).map(|_| Mutex::default()).collect());
        let (progress, answers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let port = |at: usize| {
            let step = memory::pair([MacAddr::local(0), MacAddr::local(1)], 9_000, clock);
            let wired = Wired {
                info: PortInfo {
                    interface: format!("w{at}"),
                    queue: Queue::ONLY,
                    refusal_is_device_loss: layout.port_of(at).is_multiple_of(2),
                    ..step[0].info().clone()
                },
                slots: Batch::new(BURST, 9_216),
                faults,
                failure: fails(at),
                to: to.clone(),
                ways: ways.clone(),
                at,
                step,
                held: vec![None; spec.flows.len()],
                sent: 0,
                progress: progress.clone(),
                answers: answers.clone(),
                layout: layout.clone(),
            };
            Box::new(wired) as Box<dyn Port + Send>
        };
        let hosts = |lane| {
            let own = (0..layout.queue_count()).filter(|queue| layout.lane_of_queue(*queue) == lane);
            let ports = own.map(|queue| layout.port_of(queue)).collect();
            Hosts { ports, received: 0, due: vec![], stop: Box::new(|| false) }
        };
        let (ports, hosts) = ((0..layout.queue_count()).map(port).collect(), (0..layout.lanes()).map(hosts).collect());
        Bench { ports, hosts, layout, clock, progress, answers }
    }

    fn plan(&self, spec: &TrialSpec) -> Plan {
        let neighbour = |i| {
            let device = Some(MacAddr::local(100));
            Neighbour { mac: MacAddr::local(i), device_ipv4: device, device_ipv6: device, vlans: Vec::new() }
        };
        let neighbours: Vec<_> = (0..self.layout.ports() as u64).map(neighbour).collect();
        // A lane sends all frames, however late, because the machine may be busy.
        let timing = Timing {
            seed: 7,
            key: key(2),
            earlier: vec![key(1)],
            max_backlog_ns: 60_000_000_000,
            late_ns: 60_000_000_000,
        };
        Plan::on_lanes(spec, &neighbours, &timing, self.layout.clone()).unwrap()
    }

    fn run(&mut self, spec: &TrialSpec) -> Result<TrialResult, LaneError> {
        let plan = self.plan(spec);
        let (first, others) = self.hosts.split_first_mut().unwrap();
        run_lanes(plan, &mut self.ports, self.clock, &[], first, others)
    }

    /// Like [`Bench::run`], on one thread.
    fn run_here(mut self, spec: &TrialSpec) -> TrialResult {
        let plan = self.plan(spec);
        let mut ports: Vec<_> = self.ports.into_iter().map(|port| port as Box<dyn Port>).collect();
        run(plan, &mut ports, &mut self.clock, &mut self.hosts[0]).unwrap()
    }
}

/// Counts that do not depend on arrival times.
fn timeless(result: &TrialResult) -> (Vec<GroupCounts>, Health, u32) {
    let groups = result.groups.iter().map(|g| {
        let sum = g.bins.iter().fold(Bin::default(), |sum, b| Bin {
            offered: sum.offered + b.offered,
            delivered: sum.delivered + b.delivered,
            arrived: sum.arrived + b.arrived,
        });
        GroupCounts {
            latency: LatencySummary { frames: g.latency.frames, ..LatencySummary::default() },
            bins: vec![sum],
            ..g.clone()
        }
    });
    let h = &result.health;
    let health = Health {
        unsent: h.unsent,
        receive_drops: h.receive_drops,
        stale: h.stale,
        other_received: h.other_received,
        ..Health::default()
    };
    (groups.collect(), health, result.senders)
}

fn short_drain(mut spec: TrialSpec) -> TrialSpec {
    spec.drain_s = 1.0;
    // On a busy machine, no frame may be later than the last bin.
    spec.bin_s = Some(1_000.0);
    spec
}

fn ring(ports: usize, load: Load, seconds: f64) -> TrialSpec {
    let flows = (0..ports).flat_map(|from| {
        let to = (from + 1) % ports;
        [flow("v4", from, to, Family::Ipv4, 16, 1.0), flow("v6", from, (to + 1) % ports, Family::Ipv6, 16, 2.0)]
    });
    short_drain(spec("128", flows.collect(), load, seconds))
}

const FAULTS: Faults =
    Faults { lose: 31, twice: 7, astray: 11, corrupt: 13, swap: 17, stale: 23, other: 41, refuse: 19 };

#[test]
fn every_count_is_the_same_on_one_thread_and_on_several() {
    let spec = ring(4, Load::Constant { rate_pps: 20_000.0 }, 0.1);
    let here = Bench::new(&spec, Layout::one(4), FAULTS, |_| Failure::Never).run_here(&spec);
    for g in &here.groups {
        let counts = [g.lost, g.refused, g.duplicated, g.reordered, g.corrupted, g.stray, g.in_sequence];
        assert!(counts.iter().all(|n| *n > 0) && g.last_loss_ns.is_some(), "nothing is proven by this: {g:#?}");
    }
    assert!(here.health.unsent > 0 && here.health.stale > 0 && here.health.other_received > 0, "{:?}", here.health);
    at_once([1, 2, 3, 4], |lanes| {
        let layout = Layout::round_robin(4, lanes);
        let mut bench = Bench::new(&spec, layout.clone(), FAULTS, |_| Failure::Never);
        let result = bench.run(&spec).unwrap();
        reconcile(&spec, &result);
        assert_eq!(timeless(&result), timeless(&here), "{layout:?}");
        // Each lane's hosts received the frames of their ports, and their answers were sent.
        assert_eq!(bench.hosts.iter().map(|h| h.received).sum::<u64>(), result.health.other_received);
        assert!(bench.hosts.iter().all(|h| h.received > 0));
        assert_eq!(bench.answers.load(Relaxed), result.health.other_received);
    });
}

/// Calls `check` with each of `all`, at the same time: a trial with losses waits a second for late frames.
fn at_once<T: Send, const N: usize>(all: [T; N], check: impl Fn(T) + Sync) {
    let check = &check;
    std::thread::scope(|scope| all.into_iter().for_each(|one| drop(scope.spawn(move || check(one)))));
}

/// Removes the counts of frame order where either side does not know the order.
fn without_order(mut groups: Vec<GroupCounts>, other: &[GroupCounts]) -> Vec<GroupCounts> {
    for (g, _) in groups.iter_mut().zip(other).filter(|(g, other)| g.order_unknown + other.order_unknown > 0) {
        (g.order_unknown, g.reordered, g.reordered_3, g.in_sequence, g.max_reordering_extent) = (0, 0, 0, 0, 0);
    }
    groups
}

#[test]
fn every_count_is_the_same_on_one_queue_and_on_several() {
    let spec = ring(3, Load::Constant { rate_pps: 20_000.0 }, 0.1);
    // A port refuses every n-th frame of a queue.
    let faults = Faults { refuse: NO, ..FAULTS };
    let here = Bench::new(&spec, Layout::one(3), faults, |_| Failure::Never).run_here(&spec);
    at_once([([2, 2, 2], 1), ([2, 2, 2], 2), ([1, 3, 2], 3), ([2, 2, 2], 6)], |(queues, lanes)| {
        let layout = Layout::queues(&queues, lanes);
        let mut bench = Bench::new(&spec, layout.clone(), faults, |_| Failure::Never);
        let result = bench.run(&spec).unwrap();
        reconcile(&spec, &result);
        let (many, one) = (timeless(&result), timeless(&here));
        assert_eq!(without_order(many.0.clone(), &one.0), without_order(one.0, &many.0), "{layout:?}");
        assert_eq!((many.1, many.2), (one.1, one.2), "{layout:?}");
        // The order is known for frames at a port with one queue.
        let all = queues.iter().all(|queues| *queues > 1);
        let unknown = |g: &GroupCounts| g.order_unknown > 0 && (g.order_unknown == g.received) == all;
        assert!(result.groups.iter().all(unknown), "{layout:?}");
        assert_eq!(bench.hosts.iter().map(|h| h.received).sum::<u64>(), result.health.other_received);
        assert_eq!(bench.answers.load(Relaxed), result.health.other_received);
    });
}

#[test]
fn counts_so_far_have_the_latencies_of_a_flow_on_all_its_lanes() {
    let flows = vec![flow("all", 0, 1, Family::Ipv4, 4, 1.0)];
    let spec = short_drain(spec("64", flows, Load::Constant { rate_pps: 10_000.0 }, 0.2));
    let faults = Faults { twice: 7, ..NONE };
    let mut bench = Bench::new(&spec, Layout::queues(&[1, 3], 3), faults, |_| Failure::Never);
    let mut traffic = Traffic::new(bench.plan(&spec));
    let (first, others) = bench.hosts.split_first_mut().unwrap();
    traffic.drive_lanes(&mut bench.ports, bench.clock, &[], first, others, Instant(u64::MAX)).unwrap();
    let counts = traffic.counts(bench.clock.now());
    let (received, group) = (counts.flows[&0].received, &counts.groups[0]);
    assert_eq!((received.frames, received.duplicated, received.order_unknown), (2_000, 285, 2_000), "on several lanes");
    let (arrivals, result) = (group.arrivals.unwrap(), merge(&traffic.reports()));
    let latency = &result.groups[0].latency;
    assert_eq!((arrivals.latency_min_ns, group.latency_max_ns), (latency.min_ns, latency.max_ns));
    assert_eq!((arrivals.latency_sum_ns as f64 / 2_000.0, 2_000), (latency.mean_ns, latency.frames));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn lanes_make_no_difference(
        ports in 2usize..5, lanes in 2usize..5,
        flows in proptest::collection::vec((0usize..3, 0usize..5, 0usize..5, any::<bool>(), 1u8..4), 1..8),
        every in proptest::array::uniform8(2u64..80), without in proptest::array::uniform8(any::<bool>()),
        frames in 1u64..2_000
    ) {
        let flows = flows.into_iter().map(|(group, a, b, v6, weight)| {
            let family = if v6 { Family::Ipv6 } else { Family::Ipv4 };
            flow(["a", "b", "c"][group], a % ports, b % ports, family, 9, weight.into())
        });
        let spec = short_drain(spec("imix", flows.collect(), Load::Burst { frames, rate_pps: 2e5 }, 0.0));
        let every: Vec<u64> = every.into_iter().zip(without).map(|(n, no)| if no { NO } else { n }).collect();
        let [lose, twice, astray, corrupt, swap, stale, other, refuse] = every.try_into().unwrap();
        let faults = Faults { lose, twice, astray, corrupt, swap, stale, other, refuse };
        let bench = |layout| Bench::new(&spec, layout, faults, |_| Failure::Never);
        let (here, many) = std::thread::scope(|scope| {
            let here = scope.spawn(|| bench(Layout::one(ports)).run_here(&spec));
            (bench(Layout::round_robin(ports, lanes)).run(&spec).unwrap(), here.join().unwrap())
        });
        prop_assert_eq!(timeless(&here), timeless(&many));
    }
}

/// A trial so long that it ends only if it is stopped.
fn endless() -> TrialSpec {
    ring(3, Load::Constant { rate_pps: 10_000.0 }, 600.0)
}

/// The result of `work`, which must not wait for the end of the trial.
fn soon<T>(work: impl FnOnce() -> T) -> T {
    let watch = Stopwatch::now();
    let result = work();
    assert!(watch.elapsed() < Duration::from_secs(60), "the other lanes went on: {:?}", watch.elapsed());
    result
}

#[test]
fn a_port_that_fails_ends_all_lanes_and_is_named() {
    let spec = endless();
    for at in 0..3 {
        for failure in [Failure::Gone, Failure::After(0), Failure::After(500)] {
            let fails = |port| if port == at { failure } else { Failure::Never };
            let mut bench = Bench::new(&spec, Layout::round_robin(3, 3), NONE, fails);
            match soon(|| bench.run(&spec)) {
                Err(LaneError::Port(PortError::Lost { interface, .. })) => assert_eq!(interface, format!("w{at}")),
                other => panic!("{failure:?} at {at}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_lane_that_panics_ends_all_lanes_and_is_named() {
    let spec = endless();
    for at in 0..3 {
        let fails = |port| if port == at { Failure::Panic(200) } else { Failure::Never };
        let mut bench = Bench::new(&spec, Layout::round_robin(3, 3), NONE, fails);
        let result = soon(|| catch_unwind(AssertUnwindSafe(|| bench.run(&spec))));
        let wanted = format!("w{at} was told to");
        match result {
            // The calling thread passes its panic on.
            Err(panic) if at == 0 => assert_eq!(panic.downcast_ref::<String>(), Some(&wanted)),
            Ok(Err(LaneError::Panicked { lane, message })) => assert_eq!((lane, message), (at, wanted)),
            other => panic!("{at}: {other:?}"),
        }
    }
}

#[test]
fn a_processor_that_cannot_be_had_is_named_before_anything_is_sent() {
    let spec = endless();
    let mut bench = Bench::new(&spec, Layout::round_robin(3, 2), NONE, |_| Failure::Never);
    let plan = bench.plan(&spec);
    let (first, others) = bench.hosts.split_first_mut().unwrap();
    let error = soon(|| run_lanes(plan, &mut bench.ports, bench.clock, &[100_000], first, others)).unwrap_err();
    assert!(error.to_string().starts_with("lane 1 of the tester cannot run on processor 100000"), "{error}");
    assert_eq!(bench.progress.load(Relaxed), 0);
}

#[test]
fn the_wish_to_stop_reaches_all_lanes() {
    let spec = endless();
    for lane in 0..3 {
        let mut bench = Bench::new(&spec, Layout::round_robin(3, 3), NONE, |_| Failure::Never);
        let progress = bench.progress.clone();
        bench.hosts[lane].stop = Box::new(move || progress.load(Relaxed) > 3_000);
        let result = soon(|| bench.run(&spec)).unwrap();
        assert!(result.offered() > 3_000 && result.offered() < result.intended(), "{result:#?}");
        assert_eq!(result.offered(), bench.progress.load(Relaxed));
    }
}

#[test]
fn a_trial_ends_when_every_frame_of_every_lane_is_accounted_for() {
    // One lane sends, another receives, and a third has nothing to do.
    let flows = vec![flow("all", 0, 1, Family::Ipv4, 4, 1.0)];
    let mut spec = short_drain(spec("64", flows, Load::Constant { rate_pps: 10_000.0 }, 0.2));
    spec.drain_s = 600.0;
    let mut bench = Bench::new(&spec, Layout::round_robin(3, 3), NONE, |_| Failure::Never);
    let result = soon(|| bench.run(&spec)).unwrap();
    assert_eq!((result.offered(), result.received(), result.lost()), (2_000, 2_000, 0));
}
