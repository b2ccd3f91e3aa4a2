//! A rig without a DUT: its two ports are connected to each other.

use crate::common::{self, LONG, config, timing};
use drophammer_emulation::bgp::{BgpCommand, Packing, RouteSet, State};
use drophammer_model::Instant;
use drophammer_model::routes::{AttributePattern, Change, RouteRange, Routes};
use drophammer_model::trial::{AddressRange, FlowSpec, GroupCounts, Load, TrialResult, TrialSpec};
use drophammer_port::{Port, PortCounters, PortError, SystemClock, memory, pass_on};
use drophammer_rig::{
    Act, Action, CONTINUOUS, Config, Event, FlowSelect, Ports, Rig, RigError, Select, Timing, Transmit, TransmitAction,
    TrialKeys, Until, host_mac,
};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type BoxedPort = Box<dyn Port + Send>;

fn rig() -> Rig {
    rig_of(1, 1)
}

/// A rig with this number of queues per port, shared by this number of threads.
fn rig_of(queues: u32, threads: usize) -> Rig {
    rig_with(queues, threads, |port| port)
}

/// Like [`rig_of`], with each queue wrapped by `around`.
fn rig_with(queues: u32, threads: usize, around: impl Fn(BoxedPort) -> BoxedPort) -> Rig {
    let clock = SystemClock::start();
    let ends = memory::queues([0, 1].map(|i| host_mac(5, i)), 1_500, clock, [queues; 2]);
    let ports = ends.into_iter().flatten().map(|port| around(Box::new(port))).collect();
    let ports = Ports::real(ports, clock, &processors(threads));
    assert_eq!((ports.len(), ports.queues(), ports.layout().lanes()), (2, 2 * queues as usize, threads));
    let mut rig = Rig::new(ports, &config());
    let end = rig.now() + LONG;
    rig.serve(&Until::Resolved.or_at(end), &|| false).unwrap();
    assert_eq!(rig.unresolved(), None, "the hosts find each other by ARP");
    rig
}

/// `count` processors that this process may use; they repeat if there are fewer.
fn processors(count: usize) -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let ends = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse().unwrap()..=last.parse().unwrap()
    };
    let allowed: Vec<usize> = list.split(',').flat_map(ends).collect();
    allowed.into_iter().cycle().take(count).collect()
}

/// Runs a trial.
fn run(rig: &mut Rig, spec: &TrialSpec, timing: &Timing) -> TrialResult {
    rig.start_traffic(spec, timing, vec![]).unwrap();
    rig.finish(&|| false).unwrap()
}

fn both_ways(duration: Duration) -> TrialSpec {
    common::both_ways(10_000.0, duration)
}

/// Drives `rig` until `seen` returns true for an event.
fn until(rig: &mut Rig, what: &str, mut seen: impl FnMut(&mut Rig, &Event) -> bool) {
    let end = rig.now() + LONG;
    loop {
        let events = rig.drive(end, &|| false).unwrap();
        assert!(!events.is_empty(), "{what}: nothing happened for {LONG:?}");
        if events.iter().any(|event| seen(rig, event)) {
            return;
        }
    }
}

#[test]
fn traffic_that_nobody_ends_goes_on_beside_sessions() {
    // One thread reads as much as it sends.
    assert_eq!(goes_on_beside_sessions(rig()).health.unsent, 0);
}

#[test]
fn traffic_goes_on_beside_sessions_where_two_threads_share_the_queues_of_each_port() {
    goes_on_beside_sessions(rig_of(2, 2));
}

fn goes_on_beside_sessions(mut rig: Rig) -> TrialResult {
    let mut keys = TrialKeys::new(9);
    let live = rig.start_traffic(&both_ways(CONTINUOUS), &timing(&mut keys), vec![]).unwrap();
    assert!(matches!(rig.start_traffic(&both_ways(LONG), &timing(&mut keys), vec![]), Err(RigError::Busy)));
    assert!(matches!(rig.apply(&config()), Err(RigError::Busy)));
    rig.protocols(Select::All, Action::Start);
    // Drives in slices: sessions come up while the traffic runs.
    let mut up = 0;
    let end = rig.now() + LONG;
    while up < 2 {
        assert!(rig.now() < end, "the sessions do not come up");
        let slice = rig.now() + Duration::from_millis(10);
        for event in rig.drive(slice, &|| false).unwrap() {
            assert!(matches!(event, Event::SessionUp(_)), "{event:?}");
            up += 1;
        }
    }
    let range = RouteRange::uniform("20.0.0.0/24".parse().unwrap(), 1_000, 1, AttributePattern::internet(1)).unwrap();
    let (routes, packing) = (Arc::new(Routes::Range(range)), Packing::default());
    let set = RouteSet::unicast(routes, 0..1_000, packing);
    let advertise = Act::bgp(0, BgpCommand::Routes { peer: 0, change: Change::Advertise, set });
    let before = rig.metrics();
    let watch = rig.hosts().watch();
    assert_eq!(watch.snapshot(Duration::ZERO), None, "no thread drives the rig");
    rig.command(0, &advertise).unwrap();
    // Another thread watches the routes arrive while this one drives.
    let watcher = std::thread::spawn(move || {
        let end = std::time::Instant::now() + LONG;
        while std::time::Instant::now() < end {
            let sessions = watch.snapshot(LONG).expect("an answer");
            assert!(sessions.iter().all(|s| s.established && s.state == State::Established), "{sessions:?}");
            if sessions[1].routes_announced == 1_000 {
                return true;
            }
        }
        false
    });
    let taken = |rig: &mut Rig| rig.metrics().sessions[1].bytes_received - before.sessions[1].bytes_received;
    // 1,000 prefixes of four bytes each, plus the rest of the messages.
    while taken(&mut rig) < 4_000 {
        assert!(rig.now() < end, "the routes do not arrive");
        rig.drive(rig.now() + Duration::from_millis(10), &|| false).unwrap();
    }
    while !watcher.is_finished() {
        rig.drive(rig.now() + Duration::from_millis(10), &|| false).unwrap();
    }
    assert!(watcher.join().unwrap(), "the other thread sees all routes");
    let after = rig.metrics();
    assert!(after.sessions[1].updates_received > 0 && after.sessions.iter().all(|s| s.established && s.losses == 0));
    let sums = [&before, &after].map(|m| m.traffic.as_ref().unwrap().sum(|f| f.received.frames));
    assert!(sums[0] > 0 && sums[1] > sums[0], "{sums:?}");
    live.end_sending();
    let mut result = None;
    until(&mut rig, "the traffic ends", |_, event| {
        if let Event::TrafficEnded(ended) = event {
            result = Some(ended.clone());
        }
        result.is_some()
    });
    let result = result.unwrap();
    // A ring in memory may have refused some while a thread did not get its processor.
    assert_eq!(result.intended(), result.offered() + result.health.unsent);
    assert_eq!(result.offered(), result.received() + result.sum(|g| g.refused), "the links lose only what they refuse");
    assert!(!rig.has_traffic() && rig.metrics().traffic.is_none());
    rig.protocols(Select::These(&[0]), Action::Stop);
    let mut down = 0;
    until(&mut rig, "the session ends at both sides", |_, event| {
        down += u32::from(matches!(event, Event::SessionDown(..)));
        down == 2
    });
    *result
}

#[test]
fn flows_are_stopped_and_started_on_one_thread_and_on_two() {
    let (stop, start) = (TransmitAction::Stop, TransmitAction::Start);
    for (queues, threads) in [(1, 1), (1, 2), (2, 2)] {
        let mut rig = rig_of(queues, threads);
        let way_back = FlowSelect::Groups(&["10"]);
        assert!(matches!(rig.transmit(way_back, stop, None), Err(RigError::NoTraffic)));
        let mut keys = TrialKeys::new(9);
        // Frames leave exactly at times of the schedule. A ring in memory may have refused some while a thread did not get its processor.
        let whole = (0..50).find_map(|_| {
            let spec = both_ways(Duration::from_millis(100));
            rig.start_traffic(&spec, &timing(&mut keys), vec![]).unwrap();
            rig.transmit(way_back, stop, Some(Duration::from_millis(20))).unwrap();
            rig.transmit(way_back, start, Some(Duration::from_millis(50))).unwrap();
            let result = rig.finish(&|| false).unwrap();
            assert_eq!(result.groups.iter().map(|g| g.intended).collect::<Vec<_>>(), [1_000, 700]);
            assert_eq!((result.lost(), result.offered() + result.health.unsent), (0, 1_700));
            (result.health.unsent == 0).then_some(result)
        });
        let result = whole.expect("one of 50 trials has all its frames");
        assert_eq!(result.groups.iter().map(|g| g.received).collect::<Vec<_>>(), [1_000, 700]);
        let stopped = &result.groups[1].stopped[0];
        assert_eq!((stopped.flow, stopped.stops, stopped.stopped_s, stopped.sending_s), (1, 1, 0.03, 0.07));
        assert!(result.groups[0].stopped.is_empty());

        // A flow that is stopped from the beginning, until it is started between two calls.
        let live = rig.start_traffic(&both_ways(CONTINUOUS), &timing(&mut keys), vec![]).unwrap();
        rig.transmit(FlowSelect::Flows(&[1]), stop, None).unwrap();
        let error = rig.transmit(FlowSelect::Groups(&["11"]), stop, None).unwrap_err().to_string();
        assert_eq!(error, "there is no group `11` of flows; there are 01, 10");
        let flows = |rig: &mut Rig| {
            rig.drive(rig.now() + Duration::from_millis(10), &|| false).unwrap();
            let flows = rig.metrics().traffic.unwrap().flows;
            [0, 1].map(|flow| (flows[&flow].offered, flows[&flow].transmit))
        };
        let end = rig.now() + LONG;
        while flows(&mut rig)[0].0 < 100 {
            assert!(rig.now() < end, "nothing is sent");
        }
        assert_eq!(flows(&mut rig)[1], (0, Transmit::Stopped));
        rig.transmit(FlowSelect::All, start, None).unwrap();
        while flows(&mut rig)[1].0 < 100 {
            assert!(rig.now() < end, "the flow does not start");
        }
        live.end_sending();
        let result = rig.finish(&|| false).unwrap();
        assert_eq!(result.intended(), result.offered() + result.health.unsent);
        assert!(result.groups[1].intended < result.groups[0].intended);
    }
}

#[test]
fn counts_before_and_at_the_end_are_those_of_the_result() {
    for mut rig in [rig(), rig_of(2, 2)] {
        let mut keys = TrialKeys::new(9);
        rig.keep_last_counts();
        let spec = TrialSpec { bin_s: Some(0.001), ..both_ways(CONTINUOUS) };
        let live = rig.start_traffic(&spec, &timing(&mut keys), vec![]).unwrap();
        let end = rig.now() + LONG;
        let few = |rig: &mut Rig| {
            let flows = rig.metrics().traffic.unwrap().flows;
            [0, 1].iter().any(|flow| flows.get(flow).is_none_or(|counts| counts.received.frames < 1_000))
        };
        while few(&mut rig) {
            assert!(rig.now() < end, "too few arrive");
            rig.drive(rig.now() + Duration::from_millis(10), &|| false).unwrap();
        }
        // At 10,000 frames per second, the first ten bins of each flow are complete by far.
        let bins = rig.bins(1, 0..10);
        let (late, all) = rig.late_departures(1).unwrap();
        assert!(late <= all && all >= bins.iter().map(|bin| bin.offered).sum::<u64>());
        live.end_sending();
        let result = rig.finish(&|| false).unwrap();
        let counts = rig.take_last_counts().unwrap();
        assert_eq!(rig.take_last_counts(), None);
        assert_eq!(counts.sum(|flow| flow.offered), result.offered());
        assert_eq!(counts.sum(|flow| flow.received.frames), result.received());
        assert_eq!(bins, result.groups[1].bins[..10]);
        assert_eq!(result.groups[1].bins.len(), drophammer_rig::CONTINUOUS_BINS);
        for (counts, group) in counts.groups.iter().zip(&result.groups) {
            let (arrivals, latency) = (counts.arrivals.unwrap(), &group.latency);
            assert!(
                arrivals.first < arrivals.last
                    && arrivals.last.since(arrivals.first).as_secs_f64() < LONG.as_secs_f64()
            );
            assert_eq!((arrivals.latency_min_ns, counts.latency_max_ns), (latency.min_ns, latency.max_ns));
            assert_eq!(arrivals.latency_sum_ns as f64 / latency.frames as f64, latency.mean_ns);
        }
        assert!(rig.bins(1, 0..10).is_empty() && rig.late_departures(1).is_none(), "the traffic is over");
    }
}

#[test]
fn a_trial_is_one_use_of_it() {
    let mut rig = rig();
    let mut keys = TrialKeys::new(9);
    for _ in 0..2 {
        let result = run(&mut rig, &both_ways(Duration::from_millis(50)), &timing(&mut keys));
        assert_eq!(result.groups.iter().map(|g| g.offered).collect::<Vec<_>>(), [500, 500]);
        assert_eq!(result.received() + result.sum(|g| g.refused), 1_000);
    }
    // Stopped before any frame was sent.
    rig.start_traffic(&both_ways(LONG), &timing(&mut keys), vec![]).unwrap();
    let stopped = rig.finish(&|| true).unwrap();
    assert!(stopped.offered() < stopped.intended());
    assert!(rig.drive(Instant(0), &|| false).unwrap().is_empty(), "nothing is left of it");
}

/// Flows of one address each, and one of many addresses, in both directions.
fn many_flows() -> TrialSpec {
    let of = |group: &str, (a, b): (usize, usize), first: u8, count| {
        let range = |host: [u8; 4]| AddressRange { first: Ipv4Addr::from(host).into(), step: 1, count };
        let host = |end: usize| range([198, 19, end as u8, first]);
        FlowSpec::new(format!("{group} {a}{b}"), a, b, host(a), host(b))
    };
    let both = [(0, 1), (1, 0)];
    let steady = both.iter().flat_map(|ends| (0..8).map(move |n| of("steady", *ends, n, 1)));
    let spread = both.iter().map(|ends| of("spread", *ends, 64, 100));
    TrialSpec {
        size: "imix".parse().unwrap(),
        flows: steady.chain(spread).collect(),
        load: Load::Burst { frames: 3_000, rate_pps: 20_000.0 },
        ..both_ways(Duration::ZERO)
    }
}

#[test]
fn two_queues_on_two_threads_count_what_one_queue_on_one_thread_does() {
    let spec = many_flows();
    let mut counted = Vec::new();
    for (queues, threads) in [(1, 1), (2, 1), (2, 2), (3, 2)] {
        let mut rig = rig_of(queues, threads);
        let mut keys = TrialKeys::new(9);
        // Rings in memory are short: they may have refused frames while a thread did not get its processor.
        let whole = (0..50).find_map(|_| {
            let result = run(&mut rig, &spec, &timing(&mut keys));
            assert_eq!((result.lost(), result.offered() + result.health.unsent), (0, result.intended()));
            (result.health.unsent == 0).then_some(result)
        });
        let result = whole.expect("one of 50 trials has all its frames");
        assert_eq!((result.senders, result.health.copies_apart, result.health.receive_drops), (2, 0, 0));
        for group in &result.groups {
            assert_eq!((group.received, group.latency.frames), (group.offered, group.offered), "{group:?}");
            assert_eq!((group.duplicated, group.reordered, group.corrupted, group.stray), (0, 0, 0, 0));
            // A flow with one address arrives at one queue.
            let spread = group.group.starts_with("spread") && queues > 1;
            assert_eq!(group.order_unknown, if spread { group.received } else { 0 }, "{queues} queues: {group:?}");
            assert_eq!(group.in_sequence, if spread { 0 } else { group.received });
        }
        let counts = |g: &GroupCounts| (g.group.clone(), g.intended, g.offered, g.received, g.received_bytes);
        counted.push(result.groups.iter().map(counts).collect::<Vec<_>>());
    }
    assert_eq!(counted[0].iter().map(|(.., received, _)| received).sum::<u64>(), 6_000);
    assert!(counted.windows(2).all(|pair| pair[0] == pair[1]), "{counted:#?}");
}

/// A queue whose counters cannot be read once `fails` is true.
struct Failing {
    inner: BoxedPort,
    fails: Arc<AtomicBool>,
}

impl Port for Failing {
    pass_on!(inner: info, slots, send, receive);

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(PortError::lost(self.info(), std::io::Error::other("it is gone")));
        }
        self.inner.counters()
    }
}

#[test]
fn traffic_that_cannot_be_prepared_has_no_counts() {
    for (queues, threads) in [(1, 1), (2, 2)] {
        let fails = Arc::new(AtomicBool::new(false));
        let mut rig = rig_with(queues, threads, |inner| {
            // The last queue of a port belongs to the last lane.
            let is_last = inner.info().queue.index + 1 == queues;
            Box::new(Failing { inner, fails: if is_last { fails.clone() } else { Arc::default() } })
        });
        let mut keys = TrialKeys::new(9);
        fails.store(true, Ordering::Relaxed);
        rig.start_traffic(&both_ways(LONG), &timing(&mut keys), vec![]).unwrap();
        let ended = rig.finish(&|| false);
        assert!(matches!(ended, Err(RigError::Port(_))), "{ended:?}");
        assert!(rig.cut_off().is_none());
        fails.store(false, Ordering::Relaxed);
        assert_eq!(run(&mut rig, &both_ways(Duration::from_millis(10)), &timing(&mut keys)).senders, 2);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let mut rig = rig();
    let mut twins = config();
    twins.ports[1].devices[0].mac = twins.ports[0].mac();
    let error = rig.apply(&twins).unwrap_err().to_string();
    assert!(error.contains("have the same MAC address"), "{error}");
    let one = Config { seed: 5, ports: config().ports[..1].to_vec() };
    assert!(rig.apply(&one).unwrap_err().to_string().contains("1 ports are configured, but there are 2"));
    rig.apply(&config()).unwrap();
    // The resolved neighbours are gone with the hosts.
    let mut keys = TrialKeys::new(9);
    assert!(matches!(rig.start_traffic(&both_ways(LONG), &timing(&mut keys), vec![]), Err(RigError::Plan(_))));
}
