//! The bed of one DUT: ports, clock, emulated hosts and the device, joined into what a test may ask for.

use crate::hosts::{Act, Acts, Hosts};
use crate::observer::{Observer, Progress};
use crate::ports::Ports;
use crate::processors;
use crate::routers::RoutingState;
use crate::session::Session;
use crate::validity::{self, Tolerance};
use drophammer_methods::{Known, PortView, RouteAction, Routing, TestError, Testbed};
use drophammer_model::Instant;
use drophammer_model::quantity::FrameRate;
use drophammer_model::record::{Note, Record, TrialRecord};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::PortConfig;
use drophammer_model::trial::{Family, FlowSpec, Load, TrialResult, TrialSpec, Validity};
use drophammer_port::PortError;
use drophammer_port::priority::Favoured;
use drophammer_traffic::{LaneError, Plan, Timing};
use std::collections::BTreeMap;
use std::time::Duration;

/// The device on the bed, as far as the bed must know it.
pub trait Device {
    /// Is it still alive?
    ///
    /// # Errors
    /// What happened to it.
    fn check(&mut self) -> Result<(), String>;

    /// It has been found to forward; see [`drophammer_lab::Dut::forwards`].
    ///
    /// # Errors
    /// What it says against that.
    fn forwards(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Processor time that it has used; `None` where that is not known.
    fn cpu_time(&mut self) -> Option<Duration>;

    /// Frames that it sent and the tester's end of the link had no room for, since it came up; `None` where that is not
    /// known.
    fn lost_by_tester(&mut self) -> Option<u64> {
        None
    }

    /// Memory in RAM of each of its daemons in bytes; empty where that is not known.
    fn memory(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Routes in its forwarding plane; `None` where that is not known.
    fn fib_routes(&mut self, family: Family) -> Option<u64> {
        let _ = family;
        None
    }

    /// All its BGP sessions have been ended; see [`drophammer_lab::Dut::sessions_ended`].
    ///
    /// # Errors
    /// What it says against that.
    fn sessions_ended(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Its own counters by name; empty where it tells none.
    fn counters(&mut self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// Why a trial has no result.
pub(crate) enum Failure {
    /// A port stopped working while the device lives: the tester's doing, worth another attempt.
    Port(PortError),
    /// Anything else.
    Test(TestError),
}

impl From<TestError> for Failure {
    fn from(e: TestError) -> Failure {
        Failure::Test(e)
    }
}

impl From<Failure> for TestError {
    fn from(failure: Failure) -> TestError {
        match failure {
            Failure::Port(e) => TestError::Failed(e.to_string()),
            Failure::Test(e) => e,
        }
    }
}

/// Attempts at a trial while the tester spoils it.
const ATTEMPTS: u32 = 3;
/// A generator that was held up for longer leaves the rest unsent; up to this it catches up, a little faster than asked
/// for. Shared machines hold a thread up for some milliseconds every now and then.
const MAX_BACKLOG_NS: u64 = 20_000_000;
/// A frame is late from this latency on.
const LATE_NS: u64 = 1_000_000_000;
/// Time for the device to answer ARP and neighbour discovery, and to forward.
const READY: Duration = Duration::from_secs(10);

/// A bed.
pub struct Bed<'a> {
    /// Name of the DUT.
    pub dut: String,
    /// Test that runs, for the records.
    pub test: String,
    /// Ports of the tester, with their clock.
    pub ports: Ports,
    /// Emulated hosts.
    pub hosts: Hosts,
    /// The device.
    pub device: Box<dyn Device + 'a>,
    /// Tester ceilings by [`Known::key`].
    pub ceilings: BTreeMap<String, FrameRate>,
    /// Time left for the run without the running test, and the running test's estimate and start.
    pub left: Left,
    /// Emulated routers; absent where the suite has no BGP.
    pub routing: Option<RoutingState>,
    pub(crate) views: Vec<PortView>,
    known: Known,
    tolerance: Tolerance,
    session: &'a mut Session,
    observer: &'a mut dyn Observer,
}

/// For the estimate of the time left.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Of all tests after the running one.
    pub after: Duration,
    /// Of the running one in all.
    pub test: Duration,
    /// When it started.
    pub since: std::time::Instant,
}

impl Left {
    /// What is left now.
    pub fn now(&self) -> Duration {
        self.after + self.test.saturating_sub(self.since.elapsed())
    }
}

impl<'a> Bed<'a> {
    /// Joins the parts.
    #[allow(clippy::too_many_arguments)] // the parts of a bed, joined in one place
    pub fn new(
        dut: &str,
        configs: &[PortConfig],
        ports: Ports,
        hosts: Hosts,
        device: Box<dyn Device + 'a>,
        ceilings: BTreeMap<String, FrameRate>,
        session: &'a mut Session,
        observer: &'a mut dyn Observer,
    ) -> Bed<'a> {
        let views = configs
            .iter()
            .map(|p| PortView {
                name: p.name.clone(),
                speed: p.speed,
                mtu: p.mtu,
                ipv4: p.ipv4.clone(),
                ipv6: p.ipv6.clone(),
            })
            .collect();
        let left = Left { after: Duration::ZERO, test: Duration::ZERO, since: std::time::Instant::now() };
        let tolerance = Tolerance::of(session.profile);
        Bed {
            dut: dut.to_owned(),
            test: String::new(),
            ports,
            hosts,
            device,
            ceilings,
            left,
            routing: None,
            views,
            known: Known::default(),
            tolerance,
            session,
            observer,
        }
    }

    /// Ports, hosts, and who watches, at once.
    pub(crate) fn parts(&mut self) -> (&mut Ports, &mut Hosts, &dyn Observer) {
        (&mut self.ports, &mut self.hosts, self.observer)
    }

    /// Who watches.
    pub fn observer(&mut self) -> &mut dyn Observer {
        self.observer
    }

    /// Waits until the device has told its addresses on every port and forwards `families` between the ports of each
    /// pair in both directions without loss: then it is ready, whatever its daemons say.
    ///
    /// # Errors
    /// What it does not do.
    pub fn await_forwarding(&mut self, families: &[Family]) -> Result<(), TestError> {
        let deadline = self.ports.clock().now() + READY;
        let mut port_failure = None;
        while let Some(port) = self.hosts.unresolved() {
            if self.ports.clock().now() > deadline {
                let name = &self.views[port].name;
                let cause = port_failure.map_or(String::new(), |e: PortError| format!(" ({e})"));
                return Err(TestError::Failed(format!(
                    "the device does not answer ARP or neighbour discovery on port {name} within {} s{cause}",
                    READY.as_secs()
                )));
            }
            match self.serve(Duration::from_millis(20)) {
                Err(Failure::Port(e)) => port_failure = Some(e),
                other => other?,
            }
        }
        let probe = self.probe(families);
        if probe.flows.is_empty() {
            return self.device.forwards().map_err(TestError::Failed);
        }
        loop {
            let problem = match self.execute(&probe, &[]) {
                Ok(result) if result.lost() == 0 => return self.device.forwards().map_err(TestError::Failed),
                Ok(result) => {
                    let lossy = result.groups.iter().filter(|g| g.lost > 0);
                    let lossy: Vec<_> =
                        lossy.map(|g| format!("{}: {} of {} frames", g.group, g.received, g.offered)).collect();
                    let lossy = lossy.join(", ");
                    format!("the device does not forward the probe at 2,000 fps without loss ({lossy})")
                }
                // It may be switched on again.
                Err(Failure::Port(e)) => e.to_string(),
                Err(e) => return Err(e.into()),
            };
            if self.ports.clock().now() > deadline {
                return Err(TestError::Failed(problem));
            }
            match self.serve(Duration::from_millis(50)) {
                Err(Failure::Port(_)) => {}
                other => other?,
            }
        }
    }

    /// Learning frames (RFC 2544 section 23 b): every destination of every pair once and more, slowly.
    fn probe(&self, families: &[Family]) -> TrialSpec {
        let mut flows = Vec::new();
        for a in (0..self.views.len() & !1).step_by(2) {
            for (from, to) in [(a, a + 1), (a + 1, a)] {
                for family in families {
                    let range = |port: usize| self.views[port].addressing(*family).map(|x| x.destinations);
                    let (Some(sources), Some(destinations)) = (range(from), range(to)) else { continue };
                    let group = format!("{family} {} to {}", self.views[from].name, self.views[to].name);
                    flows.push(FlowSpec::new(group, from, to, sources, destinations));
                }
            }
        }
        TrialSpec {
            purpose: "learning frames".into(),
            size: PacketSize::Fixed(drophammer_model::FrameSize::Frame(128)),
            flows,
            load: Load::Constant { rate_pps: 2_000.0 },
            duration_s: 0.2,
            bin_s: None,
            drain_s: 0.3,
            events: vec![],
        }
    }

    /// Answers the device and throws everything else away for `time`.
    fn serve(&mut self, time: Duration) -> Result<(), Failure> {
        self.serve_until(time, &mut |_, _| false)
    }

    /// The same until `enough` says so of the hosts, which is asked whenever they may have something new.
    pub(crate) fn serve_until(
        &mut self,
        time: Duration,
        enough: &mut dyn FnMut(Instant, &Hosts) -> bool,
    ) -> Result<(), Failure> {
        let end = self.ports.clock().now() + time;
        let Bed { ports, hosts, observer, .. } = self;
        let mut stopped = false;
        let served = ports.serve(hosts, end, &mut |now, hosts| {
            stopped = observer.stopped();
            stopped || enough(now, hosts)
        });
        if stopped {
            return Err(TestError::Interrupted.into());
        }
        served.map_err(Failure::Port)
    }

    /// One attempt, judged but not stored; at event i the routers do what `acts[i]` says.
    fn execute(&mut self, spec: &TrialSpec, acts: Acts<'_>) -> Result<TrialResult, Failure> {
        let (trial, key, earlier) = self.session.next_trial();
        let timing = Timing { seed: self.session.seed, key, earlier, max_backlog_ns: MAX_BACKLOG_NS, late_ns: LATE_NS };
        let layout = self.ports.layout().for_flows(&spec.flows);
        let plan = Plan::on_lanes(spec, &self.hosts.neighbours(), &timing, layout)
            .map_err(|e| TestError::Failed(e.to_string()))?;
        let (lost_before, counters) = (self.device.lost_by_tester(), self.device.counters());
        let before = (self.ports.clock().now(), self.device.cpu_time(), processors::stolen(&self.ports));
        let observer: &dyn Observer = self.observer;
        let favoured = (!self.ports.clock().is_virtual()).then(Favoured::new);
        let outcome = self.ports.run(plan, &mut self.hosts, acts, &|| observer.stopped());
        drop(favoured);
        let mut result = match outcome {
            Ok(result) => result,
            Err(e) => {
                // The port fails with the device when its end of a virtual link goes: the device is the cause.
                self.device.check().map_err(TestError::DutDied)?;
                return Err(match e {
                    LaneError::Port(e) => Failure::Port(e),
                    e => Failure::Test(TestError::Failed(e.to_string())),
                });
            }
        };
        result.trial = trial;
        result.elapsed_s = self.ports.clock().now().since(before.0).as_secs_f64();
        if let (Some(a), Some(b)) = (before.1, self.device.cpu_time()) {
            result.dut_cpu = Some(b.saturating_sub(a).as_secs_f64() / result.elapsed_s.max(1e-9));
        }
        // Frames that the device sent into a link that was taken down are lost as they ought to be.
        let unplugged = acts.iter().flatten().any(|(_, act)| matches!(act, Act::Link(false)));
        if let (Some(a), Some(b), false) = (lost_before, self.device.lost_by_tester(), unplugged) {
            result.health.receive_drops += b.saturating_sub(a);
        }
        let grown = |(name, now): (String, u64)| match now.saturating_sub(counters.get(&name).copied().unwrap_or(0)) {
            0 => None,
            by => Some((name, by)),
        };
        result.dut_counters = self.device.counters().into_iter().filter_map(grown).collect();
        if !self.ports.clock().is_virtual()
            && let (Some(a), Some(b)) = (before.2, processors::stolen(&self.ports))
        {
            result.health.tester_stolen_ns = a.iter().zip(b).map(|(a, b)| b.saturating_sub(*a)).max();
        }
        result.validity = if self.observer.stopped() {
            Validity::Invalid(vec!["stopped by the user".into()])
        } else {
            validity::judge(spec, &result, self.tolerance)
        };
        Ok(result)
    }

    /// Stores what came of an attempt and tells the user; says with it whether a port failed. What ended the test is an error, and
    /// stored as well.
    fn conclude(
        &mut self,
        spec: &TrialSpec,
        outcome: Result<TrialResult, Failure>,
        attempt: u32,
    ) -> Result<(TrialResult, bool), TestError> {
        let port_failed = matches!(outcome, Err(Failure::Port(_)));
        let mut result = match outcome {
            Ok(result) => result,
            Err(Failure::Port(e)) => {
                validity::spoilt(self.session.next_trial().0, spec, &format!("a port of the tester failed ({e})"))
            }
            Err(Failure::Test(TestError::DutDied(cause))) => {
                let result = validity::spoilt(
                    self.session.next_trial().0,
                    spec,
                    &format!("the device under test died ({cause})"),
                );
                self.store(spec, &result, attempt)?;
                return Err(TestError::DutDied(cause));
            }
            Err(Failure::Test(e)) => return Err(e),
        };
        let alive = self.device.check();
        if let Err(cause) = &alive {
            result.validity = Validity::Invalid(vec![format!("the device under test died: {cause}")]);
        }
        self.store(spec, &result, attempt)?;
        self.observer.progress(&Progress::TrialEnded { spec, result: &result, attempt });
        alive.map_err(TestError::DutDied)?;
        if self.observer.stopped() {
            return Err(TestError::Interrupted);
        }
        Ok((result, port_failed))
    }

    fn store(&mut self, spec: &TrialSpec, result: &TrialResult, attempt: u32) -> Result<(), TestError> {
        let record = Record::Trial(Box::new(TrialRecord {
            dut: self.dut.clone(),
            test: self.test.clone(),
            attempt,
            time: self.observer.time(),
            spec: spec.clone(),
            result: result.stored(),
        }));
        self.observer.record(&record).map_err(TestError::Store)
    }
}

impl Testbed for Bed<'_> {
    fn ports(&self) -> &[PortView] {
        &self.views
    }

    fn trial(&mut self, spec: &TrialSpec) -> Result<TrialResult, TestError> {
        let mut attempt = 1;
        loop {
            self.observer.progress(&Progress::TrialStarted { spec });
            // Answers to the device's requests and frames that still came in belong to no trial.
            let outcome = self.serve(Duration::ZERO).and_then(|()| self.execute(spec, &[]));
            let (result, port_failed) = self.conclude(spec, outcome, attempt)?;
            match result.validity {
                Validity::Valid => return Ok(result),
                Validity::Invalid(reasons) if attempt == ATTEMPTS => return Err(TestError::Unfit(reasons)),
                Validity::Invalid(_) => attempt += 1,
            }
            if port_failed {
                // The device may have to learn again what is behind the port.
                let mut families: Vec<_> = spec.flows.iter().map(|f| f.family).collect();
                families.sort_unstable();
                families.dedup();
                self.await_forwarding(&families)?;
            }
        }
    }

    fn routing(&mut self) -> Result<&mut dyn Routing, TestError> {
        if self.routing.is_none() {
            return Err(TestError::NotApplicable("the suite has no BGP; `bgp: {}` adds it".into()));
        }
        Ok(self)
    }

    fn routed_trial(
        &mut self,
        spec: &TrialSpec,
        actions: &[Vec<RouteAction>],
        attempt: u32,
    ) -> Result<TrialResult, TestError> {
        self.observer.progress(&Progress::TrialStarted { spec });
        let acts = self.acts(actions)?;
        let outcome = self.serve(Duration::ZERO).and_then(|()| self.execute(spec, &acts));
        self.conclude(spec, outcome, attempt).map(|(result, _)| result)
    }

    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        match self.serve(time) {
            // The next trial finds it too, and is the one to be repeated.
            Err(Failure::Port(_)) => {}
            other => other?,
        }
        self.device.check().map_err(TestError::DutDied)
    }

    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn ceiling(&self, size: &PacketSize, families: &[Family], direction: &str) -> Option<FrameRate> {
        self.ceilings.get(&Known::key(size, families, direction)).copied()
    }

    fn progress(&mut self, what: &str, done: u32, of: u32) {
        self.observer.progress(&Progress::Step { what, done, of, left: self.left.now() });
    }

    fn note(&mut self, text: &str) {
        let note =
            Note { time: self.observer.time(), dut: Some(self.dut.clone()), text: text.to_owned(), problem: false };
        // A remark that cannot be stored shows at the next trial, which cannot be stored either.
        let _ = self.observer.record(&Record::Note(note));
        self.observer.progress(&Progress::Note { text, problem: false });
    }
}
