//! A rig connected to a device under test. It runs trials, judges them and stores the results.

mod carriers;
mod configured;
mod core_links;
mod counters;
mod joint;
mod own_losses;
mod through;

use crate::extra::{self, Compiled};
use crate::host::{HostSince, HostWatch};
use crate::learning::learning;
use crate::observer::{Observer, Progress};
use crate::session::Session;
use crate::validity::{self, Read, Tolerance};
use drophammer_lab::{Dut, LabError};
use drophammer_methods::{Facts, Plan, PortView, TestError};
use drophammer_model::Instant;
use drophammer_model::beside::OtherTraffic;
use drophammer_model::quantity::show_duration;
use drophammer_model::record::{Record, TrialRecord};
use drophammer_model::registry::TestSpec;
use drophammer_model::suite::PortConfig;
use drophammer_model::topology::CoreLinkName;
use drophammer_model::trial::{BetweenHosts, Family, GroupCounts, PortIndex, TrialResult, TrialSpec, Validity};
use drophammer_port::PortError;
use drophammer_rig::{Acts, ProtocolPlace, Rig, RigError, Timing, Unresolved, Until};
use drophammer_traffic::TestTraffic;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Turns an error of the device into a failed test.
pub(crate) fn failed(e: LabError) -> TestError {
    TestError::Failed(e.to_string())
}

/// Describes the failure of a port.
fn of_port(e: &PortError) -> String {
    format!("a port of the tester failed ({e})")
}

/// The reason why a trial has no result.
pub(crate) enum Failure {
    /// A port stopped working although the device is alive. The tester is at fault, so the trial is repeated.
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
            Failure::Port(e) => TestError::Unfit(vec![of_port(&e)]),
            Failure::Test(e) => e,
        }
    }
}

/// A generator that was delayed by at most this long catches up, slightly above the requested rate. After a longer
/// delay it leaves frames unsent. Shared machines occasionally delay a thread by some milliseconds.
const MAX_BACKLOG_NS: u64 = 20_000_000;
/// A frame is late if its latency is at least this.
const LATE_NS: u64 = 1_000_000_000;
/// Time limit for the device to answer ARP and Neighbor Discovery, and to start forwarding.
const READY: Duration = Duration::from_secs(10);

/// A test in progress.
pub(crate) struct Running {
    pub spec: &'static TestSpec,
    pub plan: Plan,
    /// Valid trials so far.
    pub done: usize,
    /// Estimated total number of trials.
    pub of: usize,
}

/// A rig with a device under test at its ports.
pub struct Bench<'a> {
    /// Name of the DUT.
    pub dut: String,
    /// Name of the current test, for the records.
    pub test: String,
    /// The current test, if it is in the registry.
    pub(crate) running: Option<Running>,
    /// Ports, clock and emulated devices.
    pub rig: Rig,
    /// The device under test.
    pub device: &'a mut dyn Dut,
    /// Facts for tests.
    pub facts: Facts,
    host: HostWatch,
    ports: Vec<PortConfig>,
    tolerance: Tolerance,
    /// True if a test has installed filters on the device, or may have.
    filtered: bool,
    /// Names of the DUTs with filters, if several DUTs are up.
    filtered_duts: Vec<String>,
    /// Number of filter rules at all interfaces together; per DUT, if several are up.
    filter_rules: u64,
    /// Like `filtered`, but for classes of service.
    classed: bool,
    /// Links between the device's routers that are or may be down. `around` holds the families of the test that took
    /// them down.
    links_down: BTreeSet<CoreLinkName>,
    around: Vec<Family>,
    /// Protocols that the test started on P routers.
    pub(crate) core_protocols: Vec<ProtocolPlace>,
    /// True if a port failed in the last trial. The device may have to learn its neighbours on that port again.
    pub(crate) port_failed: bool,
    /// Failure of one of the tester's ports in the last wait, if it ended with one.
    port_failure: Option<String>,
    /// Ports at which the device did not answer or forward when [`Bench::await_forwarding`] last checked them.
    pub(crate) not_ready: BTreeSet<PortIndex>,
    /// True if the latency of the next trial is read.
    pub(crate) reads_latency: bool,
    pub(crate) session: &'a mut Session,
    pub(crate) observer: &'a mut dyn Observer,
    /// Extra frames to send during the next trials.
    pub(crate) extra: Option<Vec<Compiled>>,
    /// Key of the marks in the extra frames.
    pub(crate) extra_key: u64,
    /// Other traffic during the last trial with extra frames.
    pub(crate) other: OtherTraffic,
    /// The worst conditions between hosts in the trials of the current test, if its ports are on other hosts.
    between_hosts: Option<BetweenHosts>,
}

impl<'a> Bench<'a> {
    /// Assembles the bench. `ports` are the ports of `rig` as the suite configures them.
    pub(crate) fn new(
        dut: &str,
        ports: &[PortConfig],
        mut rig: Rig,
        device: &'a mut dyn Dut,
        session: &'a mut Session,
        observer: &'a mut dyn Observer,
    ) -> Bench<'a> {
        let views = ports
            .iter()
            .enumerate()
            .map(|(index, p)| PortView {
                name: p.name.clone(),
                speed: p.speed,
                medium: p.medium,
                mtu: p.mtu,
                ipv4: p.ipv4.clone(),
                ipv6: p.ipv6.clone(),
                vlans: p.vlans.iter().map(|vlan| vlan.tags.iter().map(|tag| tag.vid).collect()).collect(),
                labels: p.labels.clone(),
                pushed: p.pushed.clone(),
                core: p.core.clone(),
                customers: p.customers,
                largest_frame: rig.largest_frame(index) + extra::FCS,
                routed: BTreeMap::new(),
            })
            .collect();
        let backend = if ports.is_empty() { "" } else { rig.port(0).backend };
        let facts = Facts { ports: views, backend, system: device.system().cloned(), ..Facts::default() };
        let tolerance = session.tolerance;
        let (dut, test, ports) = (dut.to_owned(), String::new(), ports.to_vec());
        let host = HostWatch::new(&rig, device.usage().and_then(|usage| usage.processor()));
        let extra_key = extra::key(session.seed);
        let other = OtherTraffic::default();
        let extra = None;
        Bench {
            dut,
            test,
            running: None,
            rig,
            device,
            facts,
            host,
            ports,
            tolerance,
            filtered: false,
            filtered_duts: Vec::new(),
            filter_rules: 0,
            classed: false,
            links_down: BTreeSet::new(),
            around: Vec::new(),
            core_protocols: Vec::new(),
            port_failed: false,
            port_failure: None,
            not_ready: BTreeSet::new(),
            reads_latency: false,
            session,
            observer,
            extra,
            extra_key,
            other,
            between_hosts: None,
        }
    }

    /// Waits until the device answers ARP and Neighbor Discovery on every port and sub-interface, and forwards
    /// `families` without loss in both directions between each pair of ports. The device is then ready, whatever its
    /// daemons report.
    ///
    /// # Errors
    /// Describes what the device fails to do. [`TestError::Unfit`] if a port of the tester does not recover.
    pub fn await_forwarding(&mut self, families: &[Family]) -> Result<(), TestError> {
        let mut deadline = self.rig.now() + READY;
        let mut port_failure = None;
        while let Some(Unresolved { port, tags }) = self.rig.unresolved() {
            if self.rig.now() > deadline {
                if let Some(e) = port_failure {
                    return Err(self.blamed(Failure::Port(e)));
                }
                let mut name = self.facts.ports[port].name.clone();
                if !tags.as_slice().is_empty() {
                    name = format!("{name}, {tags}");
                }
                self.not_ready = [port].into();
                return Err(TestError::Failed(format!(
                    "nothing answers ARP or Neighbor Discovery on port {name} within {} s; check the link, and \
                     the addresses of the DUT",
                    READY.as_secs()
                )));
            }
            port_failure = match self.serve(Duration::from_millis(20)) {
                Ok(()) => None,
                Err(Failure::Port(e)) => Some(e),
                Err(Failure::Test(e)) => return Err(e),
            };
        }
        let probe = learning(&self.ports, families);
        if probe.flows.is_empty() {
            return self.device.forwards().map_err(failed);
        }
        loop {
            self.not_ready.clear();
            let begun = self.rig.now();
            let tried = self.execute(&probe, &[]);
            if let (Ok(_), Some(started), true) = (&tried, self.rig.started(), self.rig.is_far()) {
                // The device's time does not include the wait for the hosts of the ports.
                deadline = deadline + started.since(begun);
            }
            let problem = match tried {
                Ok(result) if result.lost() == 0 => {
                    // The routers between the ports have neighbours to learn too.
                    self.await_ways(families)?;
                    return self.device.forwards().map_err(failed);
                }
                Ok(result) => {
                    let lossy = result.groups.iter().filter(|g| g.lost > 0);
                    let is_lossy = |group: &str| lossy.clone().any(|g| g.group == group);
                    let flows = probe.flows.iter().filter(|flow| is_lossy(&flow.group));
                    self.not_ready = flows.flat_map(|flow| [flow.from, flow.to]).collect();
                    let wrong = |g: &GroupCounts| {
                        let all = g.deviations.iter().map(|(how, frames)| format!(", {frames} with {}", how.text()));
                        all.collect::<String>()
                    };
                    let told =
                        |g: &GroupCounts| format!("{}: {} of {} frames{}", g.group, g.received, g.offered, wrong(g));
                    let lossy: Vec<_> = lossy.map(told).collect();
                    let lossy = lossy.join(", ");
                    let lost = format!("learning frames at 2,000 fps are lost ({lossy}); check the routes of the DUT");
                    Failure::Test(TestError::Failed(lost))
                }
                // The port may recover.
                Err(e @ Failure::Port(_)) => e,
                Err(Failure::Test(e)) => return Err(e),
            };
            if self.rig.now() > deadline {
                return Err(self.blamed(problem));
            }
            match self.serve(Duration::from_millis(50)) {
                Err(Failure::Port(_)) => {}
                other => other?,
            }
        }
    }

    /// The error for a failure that lasts. A port also fails if the device dies, because its end of a virtual link dies with it.
    fn blamed(&mut self, failure: Failure) -> TestError {
        if matches!(failure, Failure::Port(_))
            && let Err(died) = self.check_device()
        {
            return died;
        }
        failure.into()
    }

    /// The ports, as the suite configures them.
    pub(crate) fn ports(&self) -> &[PortConfig] {
        &self.ports
    }

    /// Checks that the device is still alive.
    ///
    /// # Errors
    /// [`TestError::DutDied`] with what happened to it.
    pub(crate) fn check_device(&mut self) -> Result<(), TestError> {
        self.device.check().map_err(|e| match e {
            LabError::OwnInterface(_) => TestError::Unfit(vec![e.to_string()]),
            e => TestError::DutDied(e.to_string()),
        })
    }

    /// Number of routes in the device's forwarding plane, or `None` if it cannot be read.
    pub(crate) fn fib_routes(&mut self, family: Family) -> Option<u64> {
        self.device.fib_routes(family).ok().flatten()
    }

    /// Answers the device's requests and discards all other frames for `time`.
    pub(crate) fn serve(&mut self, time: Duration) -> Result<(), Failure> {
        let end = self.rig.now() + time;
        self.serve_until(&Until::At(end)).map(|_| ())
    }

    /// Answers the device's requests and discards all other frames until `until` is true. Returns the time of that
    /// check.
    pub(crate) fn serve_until(&mut self, until: &Until) -> Result<Instant, Failure> {
        let Bench { rig, observer, .. } = self;
        let interrupted = Cell::new(false);
        let served = rig.serve(until, &|| {
            interrupted.set(observer.stopped());
            interrupted.get()
        });
        if interrupted.get() {
            return Err(TestError::Interrupted.into());
        }
        self.port_failure = served.as_ref().err().map(of_port);
        served.map_err(Failure::Port)
    }

    /// Blames the tester for a wait that failed, if one of its ports did not work at the end of the wait.
    ///
    /// # Errors
    /// [`TestError::Unfit`].
    pub(crate) fn port_works(&self) -> Result<(), TestError> {
        self.port_failure.as_ref().map_or(Ok(()), |why| Err(TestError::Unfit(vec![why.clone()])))
    }

    /// Counts received frames other than test frames for `time`.
    pub(crate) fn observe(&mut self, time: Duration) -> Result<OtherTraffic, TestError> {
        self.serve(Duration::ZERO).map_err(|e| self.blamed(e))?;
        self.begin_observation(Vec::new());
        let served = self.serve(time);
        let seen = self.rig.observed();
        served.map_err(|e| self.blamed(e))?;
        Ok(seen)
    }

    pub(crate) fn begin_observation(&mut self, extra: Vec<drophammer_rig::Extra>) {
        self.rig.observe(&TestTraffic::of_run(self.session.seed), self.extra_key, extra);
    }

    /// Runs attempt number `attempt` at a trial, judges it and stores it. At event i the devices perform `acts[i]`.
    /// `amend` corrects the result before it is stored; its argument is the start of the traffic.
    pub(crate) fn attempt(
        &mut self,
        spec: &TrialSpec,
        acts: Acts<'_>,
        attempt: u32,
        amend: &dyn Fn(Instant, &mut TrialResult),
    ) -> Result<TrialResult, TestError> {
        let spec = &self.through(spec);
        self.observer.progress(&Progress::TrialStarted { spec });
        // Answers to the device's requests, and frames that arrived earlier, do not belong to the trial.
        let mut outcome = self.serve(Duration::ZERO).and_then(|()| self.execute(spec, acts));
        if let (Ok(result), Some(started)) = (&mut outcome, self.rig.started()) {
            amend(started, result);
        }
        let outcome = self.with_carriers(spec, outcome, acts);
        self.conclude(spec, outcome, attempt)
    }

    /// Starts watching the host outside of a trial.
    pub(crate) fn watch_host(&mut self) -> HostSince {
        HostSince { readings: self.host.begin(&self.rig, &mut *self.device), at: self.rig.now() }
    }

    /// Returns the disturbances by the host since then that exceed the limits for a trial.
    pub(crate) fn disturbed(&mut self, since: HostSince) -> Vec<String> {
        let elapsed_s = self.rig.now().since(since.at).as_secs_f64();
        let mut seen = TrialResult { elapsed_s, sending_s: elapsed_s, ..TrialResult::default() };
        self.host.end(since.readings, &self.rig, &mut *self.device, &mut seen);
        validity::disturbed(&seen, &self.tolerance.host)
    }

    /// See [`drophammer_methods::Testbed::may_repeat`].
    pub(crate) fn may_repeat(&mut self, took: Duration) -> bool {
        self.session.spend(took)
    }

    /// Number of frames that the emulated devices of all ports have sent.
    fn sent_beside(&self) -> u64 {
        (0..self.ports.len()).map(|port| self.rig.hosts().sent(port).frames).sum()
    }

    /// Runs one attempt and judges it, but does not store it. At event i the routers perform `acts[i]`.
    fn execute(&mut self, spec: &TrialSpec, acts: Acts<'_>) -> Result<TrialResult, Failure> {
        let (trial, key, earlier) = self.session.next_trial();
        let timing = Timing { seed: self.session.seed, key, earlier, max_backlog_ns: MAX_BACKLOG_NS, late_ns: LATE_NS };
        let read = |e: LabError| TestError::Failed(format!("the counters cannot be read: {e}"));
        // Read the counters first, so that an error leaves no frames in flight. Nothing is sent before `finish`.
        let (lost_before, counters) =
            (self.device.lost_by_tester().map_err(read)?, self.device.counters().map_err(read)?);
        let started = self.rig.start_traffic(spec, &timing, acts.to_vec());
        let live = started.map_err(|e| TestError::Failed(e.to_string()))?;
        self.observer.progress(&Progress::Traffic { dut: &self.dut, test: &self.test, spec, live: &live });
        let other_before = self.sent_beside();
        let start = self.rig.now();
        let host = self.host.begin(&self.rig, &mut *self.device);
        if let Some(extra) = &self.extra {
            let hops = |from| (0..self.ports.len()).map(|to| self.device.hops(from, to) as u8).collect();
            let extra = extra.iter().map(|frame| frame.at(start, hops(frame.port()))).collect();
            self.begin_observation(extra);
        }
        let observer: &dyn Observer = self.observer;
        let mut outcome = self.rig.finish(&|| observer.stopped());
        if self.extra.is_some() {
            // Answers to the last extra frames may still be in flight: the trial ended as soon as its test frames were
            // back.
            let late = if outcome.is_ok() { self.serve(Duration::from_secs_f64(spec.drain_s)) } else { Ok(()) };
            self.other = self.rig.observed();
            match late {
                Err(Failure::Port(e)) => outcome = Err(RigError::Port(e)),
                other => other?,
            }
        }
        let mut result = match outcome {
            Ok(result) => result,
            Err(e) => {
                // If the device dies, its end of a virtual link disappears and the port fails too. Blame the device,
                // not the port.
                self.check_device()?;
                return Err(match e {
                    RigError::Port(e) => Failure::Port(e),
                    e @ RigError::Reports(_) => Failure::Port(PortError::Lost {
                        interface: self.facts.ports[0].name.clone(),
                        source: std::io::Error::other(e.to_string()),
                    }),
                    RigError::Stopped => Failure::Test(TestError::Interrupted),
                    e => Failure::Test(TestError::Failed(e.to_string())),
                });
            }
        };
        result.trial = trial;
        self.note_hosts(&result)?;
        let extra = self.extra.as_ref().map_or(0, |_| self.other.extra.iter().filter(|fate| fate.sent).count() as u64);
        result.health.other_sent = Some(self.sent_beside() - other_before + extra);
        self.host.end(host, &self.rig, &mut *self.device, &mut result);
        result.elapsed_s = self.rig.now().since(start).as_secs_f64();
        let mut unread = Vec::new();
        match self.device.lost_by_tester() {
            Ok(now) => {
                let lost = own_losses::lost_between(lost_before.as_deref(), now.as_deref(), acts);
                result.health.receive_drops += lost;
            }
            Err(e) => unread.push(format!("the tester's own losses cannot be read: {e}")),
        }
        match self.device.counters() {
            Ok(now) => result.dut_counters = counters::grown(&counters, now, self.device.counters_begin_at_zero()),
            Err(e) => unread.push(format!("the DUT's counters cannot be read: {e}")),
        }
        result.validity = if self.observer.stopped() {
            Validity::Invalid(vec!["stopped by the user".into()])
        } else {
            let read = match self.running.as_ref().map(|running| running.spec) {
                Some(_) if self.reads_latency => Read::Latency,
                Some(spec) if !spec.measures_times() => Read::Counts,
                _ => Read::Times,
            };
            let stall = self.running.as_ref().map_or(0.0, |running| running.plan.tolerated_stall);
            let stall = Duration::from_secs_f64(result.elapsed_s * stall);
            let tolerance = validity::bear_stall(spec, &mut result, stall, self.tolerance);
            validity::judge(spec, &result, read, tolerance)
        };
        // If the device is gone, the next check reports it.
        if !unread.is_empty() && self.device.check().is_ok() {
            result.validity = result.validity.and_not(unread);
        }
        Ok(result)
    }

    /// Returns a remark about the trials since the last call, if their ports were on other hosts.
    pub(crate) fn take_hosts_note(&mut self) -> Option<String> {
        self.between_hosts.take().as_ref().map(hosts_note)
    }

    /// Remembers the conditions between hosts. Ends a test that measures nothing but latency if the clocks of the hosts
    /// cannot measure it.
    fn note_hosts(&mut self, result: &TrialResult) -> Result<(), TestError> {
        if let Some(now) = &result.health.between_hosts {
            let worst = self.between_hosts.get_or_insert_with(|| now.clone());
            worst.start_skew_ns = worst.start_skew_ns.max(now.start_skew_ns);
            worst.clock_uncertainty_ns = worst.clock_uncertainty_ns.max(now.clock_uncertainty_ns);
            worst.one_way_ns = worst.one_way_ns.max(now.one_way_ns);
            worst.clocks_refuted |= now.clocks_refuted;
            for (worst, now) in worst.each.iter_mut().zip(&now.each) {
                if now.chrony.is_some_and(|chrony| chrony.contradicted) {
                    worst.chrony = now.chrony;
                }
            }
        }
        let measures = self.running.as_ref().is_some_and(|running| running.spec.measures_only_latency());
        match &result.health.between_hosts {
            Some(between) if measures && between.clocks_refuted => Err(TestError::NotApplicable(
                "latency is not measurable between these hosts: a frame arrived before it was sent, so a clock is wrong by more \
                 than its error, or it took more than 3.3 s; check the time synchronization of the hosts, or use ports of one host"
                    .into(),
            )),
            Some(between) if measures && !between.unmeasurable.is_empty() => Err(TestError::NotApplicable(format!(
                "latency is not measurable between these hosts: the latency of {} is below the uncertainty of their clocks, {} µs; \
                 use ports of one host, or hosts with a faster management network",
                between.unmeasurable.join(", "),
                between.clock_uncertainty_ns.div_ceil(1000),
            ))),
            _ => Ok(()),
        }
    }

    /// Tells the user that an attempt has ended.
    fn ended(&mut self, spec: &TrialSpec, result: &TrialResult, attempt: u32) {
        if let Some(running) = self.running.as_mut().filter(|_| result.validity == Validity::Valid) {
            running.done += 1;
        }
        self.observer.progress(&Progress::TrialEnded { spec, result, attempt });
    }

    /// Stores the result of an attempt and reports it to the user. A problem that ends the test is stored too, and
    /// returned as an error.
    fn conclude(
        &mut self,
        spec: &TrialSpec,
        outcome: Result<TrialResult, Failure>,
        attempt: u32,
    ) -> Result<TrialResult, TestError> {
        self.port_failed = matches!(outcome, Err(Failure::Port(_)));
        let mut result = match outcome {
            Ok(result) => result,
            Err(Failure::Port(e)) => validity::spoilt(self.session.next_trial().0, spec, &of_port(&e)),
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
        let alive = self.check_device();
        if let Err(TestError::DutDied(cause)) = &alive {
            result.validity = Validity::Invalid(vec![format!("the device under test died: {cause}")]);
        }
        self.store(spec, &result, attempt)?;
        self.ended(spec, &result, attempt);
        alive?;
        if self.observer.stopped() {
            return Err(TestError::Interrupted);
        }
        Ok(result)
    }

    fn store(&mut self, spec: &TrialSpec, result: &TrialResult, attempt: u32) -> Result<(), TestError> {
        let dut = self.dut.clone();
        self.store_of(&dut, spec, result, attempt)
    }

    fn store_of(&mut self, dut: &str, spec: &TrialSpec, result: &TrialResult, attempt: u32) -> Result<(), TestError> {
        let (spec, flows_left_out) = spec.stored();
        let record = Record::Trial(Box::new(TrialRecord {
            dut: dut.to_owned(),
            test: self.test.clone(),
            round: self.session.round,
            attempt,
            filtered: self.filtered,
            filter_rules: self.filtered.then_some(self.filter_rules),
            classed: self.classed,
            links_down: !self.links_down.is_empty(),
            joint: dut != self.dut,
            time: self.observer.time(),
            spec,
            flows_left_out,
            result: result.stored(),
        }));
        self.observer.record(&record).map_err(TestError::Store)
    }
}

/// Returns a remark about these conditions. Without it, figures of convergence would look like those of local ports.
fn hosts_note(between: &BetweenHosts) -> String {
    let time = |ns| show_duration(Duration::from_nanos(ns));
    let BetweenHosts { hosts, start_skew_ns, clock_uncertainty_ns, one_way_ns, clocks_refuted, .. } = *between;
    let clocks = match clock_uncertainty_ns {
        0 => format!("the ports are on {hosts} hosts with one clock"),
        ns => format!(
            "the ports are on {hosts} hosts: latencies between them are uncertain by up to {}, and they started within {} of \
             each other",
            time(ns),
            time(start_skew_ns)
        ),
    };
    let wrong = if clocks_refuted {
        "; a frame arrived before it was sent, so a clock is wrong by more than that, or it took more than 3.3 s: latencies between \
         such clocks are left out"
    } else {
        ""
    };
    let contradicted = between.each.iter().filter(|host| host.chrony.is_some_and(|chrony| chrony.contradicted));
    let contradicted: Vec<&str> = contradicted.map(|host| host.name.as_str()).collect();
    let ignored = match contradicted.join(", ") {
        none if none.is_empty() => none,
        names => format!(
            "; what chrony says about the clock of {names} contradicts the comparison with messages, and was ignored: check its \
             time source"
        ),
    };
    format!(
        "{clocks}{wrong}{ignored}; messages of emulated devices cross the management network, so times of routes are wrong by about {} (half of \
         the median round trip)",
        time(one_way_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{ChronyRecord, HostRecord};

    #[test]
    fn the_remark_says_how_wrong_times_are() {
        let one = BetweenHosts { hosts: 3, one_way_ns: 84_200, ..BetweenHosts::default() };
        assert_eq!(
            hosts_note(&one),
            "the ports are on 3 hosts with one clock; messages of emulated devices cross the management network, so times of \
             routes are wrong by about 84.2 µs (half of the median round trip)"
        );
        let two = BetweenHosts { clock_uncertainty_ns: 25_100_000, start_skew_ns: 50_200_000, ..one };
        let note = hosts_note(&two);
        assert!(
            note.contains("uncertain by up to 25.1 ms, and they started within 50.2 ms of each other; messages"),
            "{note}"
        );
        let chrony = |contradicted| Some(ChronyRecord { bound_ns: 1, contradicted });
        let host = |name: &str, chrony| HostRecord { name: name.into(), chrony, ..HostRecord::default() };
        let each = vec![host("left", chrony(false)), host("right", chrony(true)), host("middle", None)];
        let note = hosts_note(&BetweenHosts { clocks_refuted: true, each, ..two });
        assert!(note.contains("of each other; a frame arrived before it was sent, so a clock is wrong"), "{note}");
        assert!(note.contains("what chrony says about the clock of right contradicts the comparison"), "{note}");
    }
}
