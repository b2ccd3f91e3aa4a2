//! A rig whose ports are lent by two hosts: threads of this process, joined by channels instead of a network.

use crate::common::{self, LONG, config, timing};
use drophammer_model::Instant;
use drophammer_model::trial::{HostRecord, PortIndex, TrialResult, TrialSpec};
use drophammer_port::{Clock, Port, PortError, SystemClock, memory};
use drophammer_rig::{
    Action, Agreed, Arriving, CONTINUOUS, CaptureOrder, Captured, Far, FarPorts, FarResult, FlowCounts, FlowSelect,
    Job, LaneCounts, LaneReport, Lent, Live, News, Ports, Refusals, Relay, Relayed, Rig, RigError, Select, Timing,
    TransmitAction, TrialKeys, Until, Wish, host_mac,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Stopwatch};

/// A message to a host.
enum Order {
    Plan(Box<Job>, Sender<Result<(), String>>),
    Start(Agreed, Sender<Live>),
    Report(Refusals, Sender<Vec<LaneReport>>),
    Counts(Sender<Vec<LaneCounts>>),
}

type Ended = Result<Refusals, String>;

/// A host with one port.
struct Side {
    orders: Option<Sender<Order>>,
    relay: Arc<Relay>,
    ended: Receiver<Ended>,
    live: Option<Live>,
    end: Option<Ended>,
    thread: Option<JoinHandle<()>>,
}

impl Side {
    fn begin(port: Box<dyn Port + Send>, place: PortIndex, clock: SystemClock, silence: Duration, up: Up) -> Side {
        let ((orders, told), (ends, ended), (opened, open)) = (channel(), channel(), channel());
        let thread = std::thread::spawn(move || {
            let up = Box::new(move |port, at, frame: &[u8]| {
                assert_eq!(port, place);
                if let Some(arriving) = up.get() {
                    arriving.put(at, frame);
                }
            });
            let (lent, relay) = Lent::new(Ports::real(vec![port], clock, &[]), &[place], 2, silence, up).unwrap();
            opened.send(relay).unwrap();
            Side::serve(lent, &told, &ends);
        });
        let relay = open.recv().unwrap();
        Side { orders: Some(orders), relay, ended, live: None, end: None, thread: Some(thread) }
    }

    fn serve(mut lent: Lent, told: &Receiver<Order>, ends: &Sender<Ended>) {
        loop {
            match told.try_recv() {
                Ok(Order::Plan(job, reply)) => reply.send(lent.plan(&job).map_err(|e| e.to_string())).unwrap(),
                Ok(Order::Start(at, reply)) => {
                    reply.send(lent.start(at).unwrap()).unwrap();
                    let _ = ends.send(lent.run().map_err(|e| e.to_string()));
                }
                Ok(Order::Report(refusals, reply)) => reply.send(lent.reports(&refusals)).unwrap(),
                Ok(Order::Counts(reply)) => reply.send(lent.last_counts()).unwrap(),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return,
            }
            lent.pass().unwrap();
        }
    }

    fn order<T>(&self, order: impl FnOnce(Sender<T>) -> Order) -> T {
        let (reply, answer) = channel();
        self.orders.as_ref().unwrap().send(order(reply)).unwrap();
        self.relay.ring();
        answer.recv().unwrap()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(live) = &self.live {
            live.end();
        }
        self.orders = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

type Up = Arc<OnceLock<Arriving>>;
type Failed = Arc<Mutex<Option<String>>>;

/// Both hosts.
struct Sides {
    sides: Vec<Side>,
    counted: Vec<(usize, Vec<LaneCounts>)>,
    clock: SystemClock,
    clocks: Vec<(usize, u64)>,
    /// By how much the frames of the first group arrived too early, in ns, as a host with a wrong clock says.
    early_ns: Arc<AtomicU64>,
    lead: Duration,
    /// True if the hosts no longer receive anything.
    silent: Arc<AtomicBool>,
    /// The failure that a host reported.
    failed: Failed,
}

impl Far for Sides {
    fn hosts(&self) -> usize {
        2
    }

    fn begin(&mut self, job: &Job, _: &dyn Fn() -> bool) -> Result<Option<Instant>, PortError> {
        // It travels as data, as over a network.
        let text = serde_json::to_string(job).unwrap();
        for side in &mut self.sides {
            let job = Box::new(serde_json::from_str(&text).unwrap());
            side.order(|reply| Order::Plan(job, reply)).unwrap();
            // Discards the end of the last trial, if it failed on both hosts.
            while side.ended.try_recv().is_ok() {}
            side.end = None;
        }
        let agreed = Agreed { start: self.clock.now() + self.lead, early: Duration::ZERO };
        for side in &mut self.sides {
            side.relay.heard(self.clock.now());
            side.live = Some(side.order(|reply| Order::Start(agreed, reply)));
        }
        Ok(Some(agreed.start))
    }

    fn ask(&mut self, wish: &Wish) -> Result<(), PortError> {
        for live in self.sides.iter().filter_map(|side| side.live.as_ref()) {
            match wish {
                Wish::End => live.end(),
                Wish::EndSending => live.end_sending(),
                Wish::Transmit { flows, action, at } => {
                    live.transmit(FlowSelect::Flows(flows), *action, *at).unwrap();
                }
                Wish::Count => {}
            }
        }
        if *wish == Wish::Count {
            let of = |side: &Side| side.live.as_ref().and_then(|live| live.counts(LONG));
            self.counted.extend(self.sides.iter().enumerate().filter_map(|(host, side)| Some((host, of(side)?))));
        }
        Ok(())
    }

    fn news(&mut self, _: &dyn Fn() -> bool) -> Result<Option<News>, PortError> {
        if let Some((host, counts)) = self.counted.pop() {
            return Ok(Some(News::Counts(host, counts)));
        }
        let now = self.clock.now();
        for side in &mut self.sides {
            if !self.silent.load(Ordering::Relaxed) {
                side.relay.heard(now);
            }
            side.end = side.end.take().or_else(|| side.ended.try_recv().ok());
            if let Some(Err(why)) = &side.end {
                *self.failed.lock().unwrap() = Some(why.clone());
                let source = std::io::Error::other(why.clone());
                return Err(PortError::Lost { interface: "host/port".into(), source });
            }
        }
        let lives = || self.sides.iter().filter_map(|side| side.live.as_ref());
        let all = lives().map(Live::standing).sum();
        lives().for_each(|live| live.tell(all, now));
        let mut refusals = Refusals::default();
        for side in &self.sides {
            match &side.end {
                Some(Ok(own)) => refusals.join(own.clone()),
                _ => return Ok(None),
            }
        }
        let reports = self.sides.iter().flat_map(|side| side.order(|reply| Order::Report(refusals.clone(), reply)));
        let mut reports: Vec<LaneReport> = reports.collect();
        reports[1].groups[0].early_ns += self.early_ns.load(Ordering::Relaxed);
        let text = serde_json::to_string(&reports).unwrap();
        let reports = serde_json::from_str(&text).unwrap();
        let host = |start_skew_ns, one_way_ns| HostRecord { start_skew_ns, one_way_ns, ..HostRecord::default() };
        let (hosts, waited_ns, stolen_ns) = (vec![host(7, 2), host(6, 3)], None, Some(STOLEN_NS));
        let clocks = self.clocks.clone();
        let counts = self.sides.iter().flat_map(|side| side.order(Order::Counts)).collect::<Vec<_>>();
        let counts = serde_json::from_str(&serde_json::to_string(&counts).unwrap()).unwrap();
        let result = FarResult { reports, counts, hosts, waited_ns, stolen_ns, lost: LOST, clocks };
        Ok(Some(News::Over(Box::new(result))))
    }

    fn abandon(&mut self) {
        self.sides.iter().filter_map(|side| side.live.as_ref()).for_each(Live::end);
    }

    fn set_link(&mut self, _: PortIndex, _: bool) -> Result<(), PortError> {
        unreachable!("no test switches a link")
    }

    fn has_carrier(&mut self, _: PortIndex) -> Result<bool, PortError> {
        Ok(true)
    }

    fn capture(&mut self, _: PortIndex, _: &CaptureOrder) -> Result<(), PortError> {
        unreachable!("no test captures")
    }

    fn captured(&mut self, _: PortIndex) -> Result<Captured, PortError> {
        unreachable!("no test captures")
    }
}

struct Bench {
    rig: Rig,
    keys: TrialKeys,
    silent: Arc<AtomicBool>,
    failed: Failed,
    early_ns: Arc<AtomicU64>,
}

/// Time from ordering a start to the start itself, long enough for a busy machine.
const LEAD: Duration = Duration::from_millis(700);

/// A rig on two hosts whose ports are connected to each other. Clocks are numbered, and have an uncertainty in ns.
fn bench(clocks: [(usize, u64); 2], silence: Duration, lead: Duration) -> Bench {
    let clock = SystemClock::start();
    let ends = memory::pair([0, 1].map(|i| host_mac(5, i)), 1_500, clock);
    let (mut sides, mut ports) = (Vec::new(), Vec::new());
    for (place, end) in ends.into_iter().enumerate() {
        let info = end.info().clone();
        let up = Up::default();
        let side = Side::begin(Box::new(end), place, clock, silence, up.clone());
        let relay = side.relay.clone();
        let (port, arriving) = Relayed::new(info, move |frame| relay.down(place, frame)).unwrap();
        assert!(up.set(arriving).is_ok());
        sides.push(side);
        ports.push(port);
    }
    let (silent, failed) = (Arc::<AtomicBool>::default(), Failed::default());
    let early_ns = Arc::<AtomicU64>::default();
    let far = Sides {
        sides,
        counted: Vec::new(),
        clock,
        clocks: clocks.to_vec(),
        early_ns: early_ns.clone(),
        lead,
        silent: silent.clone(),
        failed: failed.clone(),
    };
    let mut rig = Rig::new(Ports::Far(FarPorts { ports, clock, far: Box::new(far) }), &config());
    let end = rig.now() + LONG;
    rig.serve(&Until::Resolved.or_at(end), &|| false).unwrap();
    assert_eq!(rig.unresolved(), None, "the devices find each other by ARP, over both hosts");
    Bench { rig, keys: TrialKeys::new(9), silent, failed, early_ns }
}

impl Bench {
    fn timing(&mut self) -> Timing {
        timing(&mut self.keys)
    }

    /// Returns why a host failed.
    fn failure(&self) -> String {
        self.failed.lock().unwrap().clone().unwrap_or_default()
    }

    /// Starts traffic and calls `follow`, and again if a host was not ready in time or heard nothing, because the machine is busy.
    fn in_time<T>(&mut self, spec: &TrialSpec, follow: impl Fn(&mut Rig) -> Result<T, RigError>) -> (Live, T) {
        for attempt in 1..=TRIES {
            let timing = self.timing();
            let live = self.rig.start_traffic(spec, &timing, vec![]).unwrap();
            assert!(self.rig.has_traffic() && !live.is_over());
            let error = match follow(&mut self.rig) {
                Ok(done) => return (live, done),
                Err(e) => e,
            };
            let why = self.failed.lock().unwrap().take().unwrap_or_default();
            let busy = ["later than agreed", "was not heard for"].iter().any(|busy| why.contains(busy));
            assert!(busy, "{error}: {why}");
            println!("attempt {attempt}: {why}");
        }
        panic!("no host was ready in time in {TRIES} attempts")
    }

    /// Runs trials until one has all its frames: the memory between the ports may refuse some while a thread waits for its processor.
    fn whole(&mut self, spec: &TrialSpec) -> (Live, TrialResult) {
        for attempt in 1..=TRIES {
            let (live, result) = self.in_time(spec, |rig| rig.finish(&|| false));
            assert_eq!((result.lost(), result.offered() + result.health.unsent), (0, result.intended()));
            if result.health.unsent == 0 {
                return (live, result);
            }
            println!("attempt {attempt}: {} frames refused", result.health.unsent);
        }
        panic!("no trial of {TRIES} had all its frames")
    }
}

/// What a hypervisor took from a host.
const STOLEN_NS: u64 = 10_000_000;
/// Frames of devices that the hosts could not pass on.
const LOST: u64 = 2;

/// Maximum number of attempts.
const TRIES: usize = 10;

/// 500 frames per second in each direction: the memory between the ports holds half a second of frames.
fn both_ways(duration: Duration) -> TrialSpec {
    common::both_ways(500.0, duration)
}

#[test]
fn a_trial_on_two_hosts_counts_every_frame_once() {
    let mut bench = bench([(0, 0), (0, 0)], LONG, LEAD);
    for trial in 1..=2 {
        let (live, result) = bench.whole(&both_ways(Duration::from_millis(400)));
        let counts: Vec<_> = result.groups.iter().map(|g| (g.intended, g.offered, g.received, g.lost)).collect();
        assert_eq!(counts, [(200, 200, 200, 0); 2], "trial {trial}: {result:#?}");
        assert!(result.groups.iter().all(|g| g.latency.frames == 200 && g.stray + g.duplicated + g.corrupted == 0));
        let between = result.health.between_hosts.unwrap();
        let times = (between.start_skew_ns, between.one_way_ns, between.clock_uncertainty_ns);
        assert_eq!((between.hosts, between.each.len(), times), (2, 2, (7, 3, 0)));
        assert_eq!((between.unmeasurable.len(), result.senders), (0, 2));
        assert_eq!((result.health.tester_stolen_ns, result.health.receive_drops), (Some(STOLEN_NS), LOST));
        assert!(live.is_over() && bench.rig.started().is_some());
    }
}

#[test]
fn routers_behind_ports_of_other_hosts_have_sessions() {
    let mut bench = bench([(0, 0), (1, 9)], LONG, LEAD);
    bench.rig.protocols(Select::All, Action::Start);
    let end = bench.rig.now() + LONG;
    bench.rig.serve(&Until::Established(vec![0, 1]).or_at(end), &|| false).unwrap();
    assert!(bench.rig.holds(&Until::Established(vec![0, 1])));
    // The devices keep working during a trial.
    let (_, result) = bench.whole(&both_ways(Duration::from_millis(200)));
    assert_eq!((result.offered(), result.received()), (200, 200));
    assert!(bench.rig.holds(&Until::Established(vec![0, 1])));
}

#[test]
fn a_latency_below_the_uncertainty_of_the_clocks_is_no_number() {
    let second = 1_000_000_000;
    let mut bench = bench([(1, second), (2, 5)], LONG, LEAD);
    let (_, result) = bench.whole(&both_ways(Duration::from_millis(100)));
    assert_eq!((result.offered(), result.received()), (100, 100));
    assert!(result.groups.iter().all(|g| g.latency == Default::default()), "{:?}", result.groups);
    let between = result.health.between_hosts.unwrap();
    assert_eq!((between.clock_uncertainty_ns, between.unmeasurable), (second + 5, vec!["01".into(), "10".into()]));
}

#[test]
fn a_frame_that_arrives_before_it_was_sent_refutes_the_clocks() {
    let mut bench = bench([(1, 2_000), (2, 1_000)], LONG, LEAD);
    let unmeasurable = |bench: &mut Bench, early_ns| {
        bench.early_ns.store(early_ns, Ordering::Relaxed);
        let (_, result) = bench.whole(&both_ways(Duration::from_millis(100)));
        let between = result.health.between_hosts.clone().unwrap();
        let without: Vec<_> = result.groups.iter().filter(|g| g.latency.frames == 0).map(|g| g.group.clone()).collect();
        assert_eq!(
            (without, between.clock_uncertainty_ns),
            (between.unmeasurable.clone(), 3_000),
            "{:?}",
            result.groups
        );
        (between.clocks_refuted, between.unmeasurable.len())
    };
    // Within the uncertainty of the clocks and of a time stamp.
    assert!(!unmeasurable(&mut bench, 5_000).0);
    // Two readings of one clock can be out of order by a millisecond.
    let mut one = self::bench([(0, 0), (0, 0)], LONG, LEAD);
    for (early_ns, refuted) in [(900_000, false), (3_000_000, true)] {
        one.early_ns.store(early_ns, Ordering::Relaxed);
        let (_, result) = one.whole(&both_ways(Duration::from_millis(100)));
        let between = result.health.between_hosts.clone().unwrap();
        let unknown = result.groups.iter().filter(|group| group.latency.frames == 0).count();
        assert_eq!((between.clocks_refuted, unknown), (refuted, usize::from(refuted)), "{between:?}");
    }
    // The frames of one direction show that the other direction cannot be measured either.
    assert_eq!(unmeasurable(&mut bench, 1_000_000), (true, 2));
}

#[test]
fn traffic_stops_when_the_controller_is_silent_and_the_next_trial_is_whole() {
    let mut bench = bench([(0, 0), (0, 0)], Duration::from_secs(2), LEAD);
    let drive = |rig: &mut Rig| rig.drive(rig.now() + LEAD + Duration::from_millis(2_300), &|| false);
    let (_, events) = bench.in_time(&both_ways(Duration::from_secs(600)), drive);
    assert!(events.is_empty(), "traffic must go on while the agent hears the controller");
    bench.silent.store(true, Ordering::Relaxed);
    let watch = Stopwatch::now();
    let error = bench.rig.finish(&|| false).unwrap_err();
    assert!(watch.elapsed() < LONG, "{:?}", watch.elapsed());
    assert!(matches!(error, RigError::Port(PortError::Lost { .. })), "{error}");
    assert!(bench.failure().contains("was not heard for 2s"), "{error}");
    assert!(!bench.rig.has_traffic());
    bench.silent.store(false, Ordering::Relaxed);
    let (_, result) = bench.whole(&both_ways(Duration::from_millis(100)));
    assert_eq!((result.offered(), result.received()), (100, 100));
}

#[test]
fn a_user_who_stops_has_the_counts_so_far() {
    let mut bench = bench([(0, 0), (0, 0)], LONG, LEAD);
    let counted = |rig: &mut Rig| {
        rig.drive(rig.now() + LEAD + Duration::from_millis(500), &|| false)?;
        rig.finish(&|| true)
    };
    let (_, result) = bench.in_time(&both_ways(Duration::from_secs(600)), counted);
    assert!(result.offered() > 0 && result.offered() < result.intended(), "{}", result.offered());
}

#[test]
fn a_host_that_is_not_ready_in_time_makes_the_trial_void() {
    let mut bench = bench([(0, 0), (0, 0)], LONG, Duration::ZERO);
    let timing = bench.timing();
    bench.rig.start_traffic(&both_ways(Duration::from_millis(50)), &timing, vec![]).unwrap();
    let error = bench.rig.finish(&|| false).unwrap_err();
    assert!(matches!(error, RigError::Port(PortError::Lost { .. })), "{error}");
    assert!(bench.failure().contains("later than agreed"), "{:?}", bench.failed);
}

#[test]
fn flows_start_and_stop_one_by_one_and_their_counts_are_known_meanwhile_and_at_the_end() {
    let mut bench = bench([(0, 0), (0, 0)], LONG, LEAD);
    bench.rig.keep_last_counts();
    let ms = Duration::from_millis;
    let transmit = |rig: &Rig, flow, action, at| rig.transmit(FlowSelect::Flows(&[flow]), action, Some(at)).unwrap();
    let counted = |rig: &mut Rig| {
        // Both are told before the start, so flow 1 sends nothing at all, and flow 0 its first 50 frames.
        transmit(rig, 1, TransmitAction::Stop, Duration::ZERO);
        transmit(rig, 0, TransmitAction::Stop, Duration::from_micros(99_500));
        assert!(rig.counts().is_none() && rig.counted_at().is_none(), "nobody has counted");
        let begun = Stopwatch::now();
        loop {
            assert!(rig.drive(rig.now() + ms(5), &|| false)?.is_empty() && begun.elapsed() < LONG);
            rig.ask_counts();
            // The hosts count one after the other, so the receiver's count may be the newer one.
            let whole = |flow: &FlowCounts| (flow.offered, flow.received.frames) == (50, 50);
            if let Some(counts) = rig.counts().filter(|counts| whole(&counts.flows[&0])) {
                return Ok(counts);
            }
        }
    };
    let (live, counts) = bench.in_time(&both_ways(CONTINUOUS), counted);
    assert_eq!((counts.flows[&0].offered, counts.flows[&1].offered, bench.rig.handed_over()), (50, 0, vec![50, 0]));
    assert_eq!((counts.departures[&0].1, counts.departures[&1].1, counts.drops[&1]), (50, 0, 0));
    assert!(bench.rig.latencies(0).iter().map(|(_, frames)| frames).sum::<u64>() == 50);
    // Later, 25 frames of flow 1. Both orders must be there in time, although the lanes leave little of the processors.
    let elapsed = bench.rig.now().since(bench.rig.traffic_start().unwrap()).as_millis() as u64 + 1_000;
    for (action, at) in [(TransmitAction::Start, elapsed), (TransmitAction::Stop, elapsed + 50)] {
        transmit(&bench.rig, 1, action, ms(at) + Duration::from_micros(500));
    }
    bench.rig.drive(bench.rig.now() + ms(1_200), &|| false).unwrap();
    live.end_sending();
    let result = bench.rig.finish(&|| false).unwrap();
    assert_eq!(result.groups.iter().map(|g| (g.offered, g.received)).collect::<Vec<_>>(), [(50, 50), (25, 25)]);
    let last = bench.rig.take_last_counts().unwrap();
    assert_eq!([0, 1].map(|flow| (last.flows[&flow].offered, last.flows[&flow].received.frames)), [(50, 50), (25, 25)]);
    assert_eq!(last.drops.len(), 2);
}
