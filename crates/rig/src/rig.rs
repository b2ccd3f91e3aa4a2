//! The rig: ports, the emulated devices behind them, and traffic.
//!
//! # The rig
//!
//! `rig::Rig` combines ports, clock, emulated devices and traffic. It knows nothing about DUTs or tests. `apply`
//! configures it (`testbed/src/config.rs` creates the configuration from a suite), `protocols` starts and stops
//! sessions, `command` makes a device act, `serve` runs the devices until a condition (`Until`) is true,
//! `start_traffic` starts flows, `transmit` stops and starts single flows, and `drive` runs everything until an instant
//! or an `Event`. A trial drives traffic to its end; `drophammer blast` drives it until the user stops it. Between two
//! calls, `LaneState` stores the state of a loop, so results do not depend on the number of calls
//! (`traffic/tests/engine/live.rs`). Through `Live`, another thread can stop traffic or some of its flows, or request
//! counts, at no cost per frame.

use crate::act::Act;
use crate::config::Config;
use crate::far::{CaptureOrder, Captured, FarRun};
use crate::hosts::{Hosts, ProtocolPlace, SessionIndex, Unresolved};
use crate::metrics::Metrics;
use crate::other::Extra;
use crate::ports::Ports;
use crate::until::Until;
use drophammer_emulation::bgp::Routers;
use drophammer_emulation::protocol::{Command, ProtocolConfig, Refused};
use drophammer_model::Instant;
use drophammer_model::beside::OtherTraffic;
use drophammer_model::trial::{Bin, PortIndex, TrialResult, TrialSpec};
use drophammer_port::{PortError, PortInfo};
use drophammer_traffic::{
    FlowSelect, LaneError, Live, PlaceCounts, Plan, PlanError, Snapshot, TestTraffic, Timing, Traffic, TransmitAction,
    TransmitError, merge,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// The reason why a rig refuses a request or fails.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// The configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// The traffic cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A port stopped working.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A thread failed.
    #[error(transparent)]
    Lane(LaneError),
    /// Traffic is running.
    #[error("traffic is running; end it first")]
    Busy,
    /// There is no traffic.
    #[error("there is no traffic; start it first")]
    NoTraffic,
    /// Flows cannot be started or stopped.
    #[error(transparent)]
    Transmit(#[from] TransmitError),
    /// The reports of hosts have no result.
    #[error("the reports of the other hosts cannot be used: {0}")]
    Reports(String),
    /// The user stopped before the other hosts had begun, or before their reports were there.
    #[error("stopped before the other hosts had counted")]
    Stopped,
    /// A protocol of an emulated device refuses a command.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl From<LaneError> for RigError {
    fn from(e: LaneError) -> RigError {
        match e {
            LaneError::Port(e) => RigError::Port(e),
            e => RigError::Lane(e),
        }
    }
}

/// Selects sessions.
#[derive(Clone, Copy, Debug)]
pub enum Select<'a> {
    /// All sessions.
    All,
    /// These sessions.
    These(&'a [SessionIndex]),
}

/// What to do with BGP sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bring the sessions up.
    Start,
    /// End them.
    Stop,
}

/// Something that happened while the rig was driven.
#[derive(Clone, Debug)]
pub enum Event {
    /// The traffic has ended with this result. The caller fills in trial number, elapsed time, validity and DUT load.
    TrafficEnded(Box<TrialResult>),
    /// A session came up.
    SessionUp(SessionIndex),
    /// A session went down, with the cause.
    SessionDown(SessionIndex, String),
}

/// Traffic on ports of this host, or of other hosts.
enum Course {
    Here(Box<Traffic>),
    Far(Box<FarRun>),
}

/// Traffic, and the actions of the emulated devices at its events.
struct Running {
    traffic: Course,
    acts: Vec<Vec<(PortIndex, Act)>>,
}

impl Course {
    fn is_over(&self) -> bool {
        match self {
            Course::Here(traffic) => traffic.is_over(),
            Course::Far(run) => run.traffic.is_over(),
        }
    }

    fn started(&self) -> Option<Instant> {
        match self {
            Course::Here(traffic) => traffic.started(),
            Course::Far(run) => run.traffic.started(),
        }
    }

    fn result(&mut self) -> Result<TrialResult, RigError> {
        match self {
            Course::Here(traffic) => Ok(merge(&traffic.reports())),
            Course::Far(run) => run.result(),
        }
    }
}

/// Ports, their clock, the emulated devices behind them, and traffic. One thread owns the rig. Nothing is sent or
/// received while that thread does not drive the rig, except frames that the kernel generates.
pub struct Rig {
    /// Ports with their clock.
    ports: Ports,
    /// Emulated hosts and routers, one host per port.
    hosts: Hosts,
    running: Option<Running>,
    /// Start of the last traffic that has ended.
    started: Option<Instant>,
    /// Counts of the traffic that ended with a failure.
    cut_off: Option<Box<TrialResult>>,
    /// True to keep the last counts of traffic that ends.
    keeps_counts: bool,
    last_counts: Option<Snapshot>,
    /// State of each session at the last check: true if it was up.
    up: Vec<bool>,
}

/// How often a rig without traffic checks for a stop request.
const LOOK: Duration = Duration::from_millis(50);

impl Rig {
    /// Creates a rig with these ports and the devices of `config` behind them.
    ///
    /// # Panics
    /// If `config` has a different number of ports, or [`Config::check`] refuses it.
    pub fn new(ports: Ports, config: &Config) -> Rig {
        assert_eq!(ports.len(), config.ports.len(), "each port is configured");
        let hosts = Hosts::new(config);
        let up = vec![false; hosts.sessions()];
        Rig { ports, hosts, running: None, started: None, cut_off: None, keeps_counts: false, last_counts: None, up }
    }

    /// Replaces the emulated devices. Sessions that were up are dropped without a notification to their peers.
    ///
    /// # Errors
    /// [`RigError::Config`] if `config` has a different number of ports, or devices on two ports have the same MAC
    /// address; [`RigError::Busy`] if traffic is running.
    pub fn apply(&mut self, config: &Config) -> Result<(), RigError> {
        if self.running.is_some() {
            return Err(RigError::Busy);
        }
        config.check(self.ports.len()).map_err(RigError::Config)?;
        self.hosts = Hosts::new(config);
        self.up = vec![false; self.hosts.sessions()];
        Ok(())
    }

    /// Current time on the clock of the ports.
    pub fn now(&self) -> Instant {
        self.ports.clock().now()
    }

    /// Starts or ends BGP sessions. [`Rig::drive`] reports when they come up or go down.
    pub fn protocols(&mut self, which: Select<'_>, action: Action) {
        let now = self.now();
        let all: Vec<_> = (0..self.hosts.sessions()).collect();
        let which = match which {
            Select::All => &all,
            Select::These(sessions) => sessions,
        };
        for session in which {
            let Some((routers, router)) = self.hosts.session_mut(*session) else { continue };
            match action {
                Action::Start => routers.start(now, router),
                Action::Stop => routers.stop(now, router),
            }
        }
    }

    /// Performs `act` at `port` immediately.
    ///
    /// # Errors
    /// [`PortError::Link`] if the link cannot be switched; [`RigError::Refused`] if a protocol refuses the command.
    pub fn command(&mut self, port: PortIndex, act: &Act) -> Result<(), RigError> {
        if let Act::Link(up) = act {
            match &mut self.ports {
                Ports::Far(far) => far.far.set_link(port, *up)?,
                ports => drophammer_port::set_link(ports.get(port), *up)?,
            }
            return Ok(());
        }
        let now = self.now();
        Ok(self.hosts.run(now, port, act)?)
    }

    /// Gives a command to one protocol of a device now.
    ///
    /// # Errors
    /// [`RigError::Refused`].
    pub fn command_to(&mut self, place: ProtocolPlace, command: &Command) -> Result<(), RigError> {
        let now = self.now();
        Ok(self.hosts.command(now, place, command)?)
    }

    /// Adds a protocol to a device, or replaces the one with the same name. If one is replaced, the TCP connections of the device are lost.
    /// It is not started. Returns its place. BGP speakers cannot be replaced by a different number of them.
    ///
    /// # Errors
    /// [`RigError::Refused`] if there is no such device, or it cannot have this protocol.
    pub fn set_protocol(
        &mut self,
        port: PortIndex,
        device: usize,
        config: &ProtocolConfig,
    ) -> Result<ProtocolPlace, RigError> {
        Ok(self.hosts.set_protocol(port, device, config)?)
    }

    /// Returns the ports and the devices, for tests that drive both themselves.
    pub fn parts(&mut self) -> (&mut Ports, &mut Hosts) {
        (&mut self.ports, &mut self.hosts)
    }

    /// Returns the emulated devices, read-only.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// See [`Hosts::forget_late`].
    pub fn forget_late(&mut self) {
        self.hosts.forget_late();
    }

    /// Returns the first device that has not resolved the DUT's address.
    pub fn unresolved(&self) -> Option<Unresolved> {
        self.hosts.unresolved()
    }

    /// Returns the number of BGP sessions; see [`Hosts::sessions`].
    pub fn sessions(&self) -> usize {
        self.hosts.sessions()
    }

    /// Returns the routers that the session belongs to, and its index among them.
    pub fn session(&self, session: SessionIndex) -> Option<(&Routers, usize)> {
        self.hosts.session(session)
    }

    /// Like [`Rig::session`], but mutable.
    pub fn session_mut(&mut self, session: SessionIndex) -> Option<(&mut Routers, usize)> {
        self.hosts.session_mut(session)
    }

    /// Forgets the results of pings and of banner requests; see [`Hosts::forget_pings`] and [`Hosts::forget_banners`].
    pub fn forget_answers(&mut self) {
        self.hosts.forget_pings();
        (0..self.ports.len()).for_each(|port| self.hosts.forget_banners(port));
    }

    /// Starts counting received frames that are not test frames of `test`, and sending `extra`, whose marks contain `key`.
    pub fn observe(&mut self, test: &TestTraffic, key: u64, extra: Vec<Extra>) {
        let now = self.now();
        self.hosts.observe(now, test, key, extra);
    }

    /// Ends [`Rig::observe`] and returns its counts.
    pub fn observed(&mut self) -> OtherTraffic {
        let now = self.now();
        self.hosts.observed(now)
    }

    /// Returns the properties of a port.
    pub fn port(&self, index: PortIndex) -> &PortInfo {
        self.ports.info(index)
    }

    /// True if the link of a port has carrier.
    ///
    /// # Errors
    /// The port failed.
    pub fn has_carrier(&mut self, index: PortIndex) -> Result<bool, PortError> {
        match &mut self.ports {
            Ports::Far(far) => far.far.has_carrier(index),
            ports => drophammer_port::has_carrier(ports.get(index)),
        }
    }

    /// Starts or ends the capture of a port on another host.
    ///
    /// # Errors
    /// [`PortError::Lost`] if the host does not answer.
    pub fn capture(&mut self, port: PortIndex, order: &CaptureOrder) -> Result<(), PortError> {
        self.ports.far().capture(port, order)
    }

    /// Ends the capture of a port on another host, and fetches its file; see [`crate::Far::captured`].
    ///
    /// # Errors
    /// [`PortError::Lost`].
    pub fn captured(&mut self, port: PortIndex) -> Result<Captured, PortError> {
        self.ports.far().captured(port)
    }

    /// Returns the size of the largest frame that a port sends, in bytes without FCS.
    pub fn largest_frame(&mut self, index: PortIndex) -> usize {
        self.port(index).largest_frame
    }

    /// True if the ports use virtual time.
    pub fn is_virtual(&self) -> bool {
        self.ports.clock().is_virtual()
    }

    /// True if the ports are on other hosts.
    pub fn is_far(&self) -> bool {
        matches!(self.ports, Ports::Far(_))
    }

    /// Returns the processors of the tester's other threads; see [`Ports::further_processors`].
    pub fn further_processors(&self) -> &[usize] {
        self.ports.further_processors()
    }

    /// Serves the emulated devices until `until` is true or `stopped` returns true, and returns the time of that check.
    /// Drops frames that are not for any device.
    ///
    /// # Errors
    /// Errors of the port.
    pub fn serve(&mut self, until: &Until, stopped: &dyn Fn() -> bool) -> Result<Instant, PortError> {
        self.ports.serve(&mut self.hosts, until, stopped)
    }

    /// True if `condition` is true now.
    pub fn holds(&self, condition: &Until) -> bool {
        condition.holds(self.now(), &self.hosts)
    }

    /// Plans `spec`. The traffic starts when the rig is next driven. At event i the devices perform `acts[i]`. Traffic
    /// with [`drophammer_traffic::CONTINUOUS`] duration continues until [`Live::end_sending`].
    ///
    /// # Errors
    /// [`RigError::Plan`] if a flow is impossible, or a device has not resolved the DUT's MAC address;
    /// [`RigError::Busy`] if traffic is already running.
    pub fn start_traffic(
        &mut self,
        spec: &TrialSpec,
        timing: &Timing,
        acts: Vec<Vec<(PortIndex, Act)>>,
    ) -> Result<Live, RigError> {
        if let Ports::Far(far) = &self.ports {
            if self.running.is_some() {
                return Err(RigError::Busy);
            }
            let _ = self.hosts.take_refused();
            let run = FarRun::new(spec, timing, self.hosts.neighbours(), far.far.hosts(), self.keeps_counts)?;
            let live = run.traffic.live();
            self.running = Some(Running { traffic: Course::Far(Box::new(run)), acts });
            return Ok(live);
        }
        let layout = self.ports.layout().for_flows(&spec.flows);
        let plan = Plan::on_lanes(spec, &self.hosts.neighbours(), timing, layout)?;
        self.start_plan(plan, acts)
    }

    /// Like [`Rig::start_traffic`], but with a finished plan for [`Ports::layout`] or fewer lanes.
    ///
    /// # Errors
    /// [`RigError::Busy`] if traffic is already running; [`RigError::Config`] if the ports are on other hosts, which plan
    /// themselves.
    pub fn start_plan(&mut self, plan: Plan, acts: Vec<Vec<(PortIndex, Act)>>) -> Result<Live, RigError> {
        if self.running.is_some() {
            return Err(RigError::Busy);
        }
        if matches!(self.ports, Ports::Far(_)) {
            return Err(RigError::Config("ports on other hosts need a trial, not a finished plan".into()));
        }
        // Commands that were refused in failed traffic do not count against this traffic.
        let _ = self.hosts.take_refused();
        let traffic = Traffic::new(plan);
        let live = traffic.live();
        self.running = Some(Running { traffic: Course::Here(Box::new(traffic)), acts });
        Ok(live)
    }

    /// Starts, stops, pauses or resumes flows of the traffic, immediately or at time `at` of the traffic; see
    /// [`Live::transmit`]. Flows that are stopped before the rig is driven never start.
    ///
    /// # Errors
    /// [`RigError::NoTraffic`]; [`RigError::Transmit`] for unknown flows and for flows whose frames the kernel
    /// generates.
    pub fn transmit(
        &self,
        which: FlowSelect<'_>,
        action: TransmitAction,
        at: Option<Duration>,
    ) -> Result<(), RigError> {
        let running = self.running.as_ref().ok_or(RigError::NoTraffic)?;
        let live = match &running.traffic {
            Course::Here(traffic) => traffic.live(),
            Course::Far(run) => run.traffic.live(),
        };
        Ok(live.transmit(which, action, at)?)
    }

    /// Returns the start of the last traffic that has ended; `None` if no traffic has ended.
    pub fn started(&self) -> Option<Instant> {
        self.started
    }

    /// Returns the start of the traffic, which is known once it has been driven.
    pub fn traffic_start(&self) -> Option<Instant> {
        self.running.as_ref()?.traffic.started()
    }

    /// Returns the counts of traffic that ended because a port or thread of this host failed. They are not the result of a
    /// trial.
    pub fn cut_off(&mut self) -> Option<Box<TrialResult>> {
        self.cut_off.take()
    }

    /// True if there is traffic.
    pub fn has_traffic(&self) -> bool {
        self.running.is_some()
    }

    /// Drives traffic and emulated devices until `until`, until `stopped` returns true, or until an event. Returns the
    /// events. Traffic that `stopped` ends has no drain time. During traffic, sessions are checked only when `until` is
    /// reached.
    ///
    /// # Errors
    /// A port stopped working or a thread failed. The traffic has then ended.
    pub fn drive(&mut self, until: Instant, stopped: &dyn Fn() -> bool) -> Result<Vec<Event>, RigError> {
        loop {
            let mut events = Vec::new();
            if let Some(mut running) = self.running.take() {
                let Rig { ports, hosts, .. } = self;
                let Running { traffic, acts } = &mut running;
                match traffic {
                    Course::Here(traffic) => {
                        if let Err(e) = ports.drive(traffic, hosts, acts, stopped, until) {
                            // Empty if the traffic could not be prepared.
                            let reports = traffic.reports();
                            self.cut_off = (!reports.is_empty()).then(|| Box::new(merge(&reports)));
                            self.last_counts = self.keeps_counts.then(|| traffic.snapshot(ports.clock().now()));
                            return Err(e.into());
                        }
                    }
                    // Halves are never merged: what some hosts counted before another one failed is not a result.
                    Course::Far(run) => run.drive(ports, hosts, acts, stopped, until)?,
                }
                if let Some(refused) = hosts.take_refused() {
                    return Err(refused.into());
                }
                if traffic.is_over() {
                    self.started = traffic.started();
                    if self.keeps_counts {
                        self.last_counts = match traffic {
                            Course::Here(traffic) => Some(traffic.snapshot(ports.clock().now())),
                            Course::Far(run) => run.traffic.snapshot(),
                        };
                    }
                    events.push(Event::TrafficEnded(Box::new(traffic.result()?)));
                } else {
                    self.running = Some(running);
                }
            } else {
                let end = until.min(self.now() + LOOK);
                self.serve(&Until::SessionChange(self.up.clone()).or_at(end), &|| false)?;
            }
            events.extend(self.session_events());
            if !events.is_empty() || self.now() >= until || stopped() {
                return Ok(events);
            }
        }
    }

    /// Returns the sessions that came up or went down since the last check.
    fn session_events(&mut self) -> Vec<Event> {
        let up: Vec<bool> = self.hosts.up().collect();
        let changed: Vec<_> = (0..up.len()).filter(|session| up[*session] != self.up[*session]).collect();
        self.up = up;
        let event = |session: SessionIndex| {
            if self.up[session] {
                return Event::SessionUp(session);
            }
            let (_, cause) = self.hosts.session(session).map_or((0, None), |(routers, router)| routers.losses(router));
            Event::SessionDown(session, cause.map_or(String::new(), ToString::to_string))
        };
        changed.into_iter().map(event).collect()
    }

    /// Drives traffic to its end.
    ///
    /// # Errors
    /// The errors of [`Rig::drive`].
    ///
    /// # Panics
    /// If there is no traffic.
    pub fn finish(&mut self, stopped: &dyn Fn() -> bool) -> Result<TrialResult, RigError> {
        assert!(self.has_traffic(), "there is traffic to be driven");
        loop {
            for event in self.drive(Instant(u64::MAX), stopped)? {
                if let Event::TrafficEnded(result) = event {
                    return Ok(*result);
                }
            }
        }
    }

    /// Returns state and counters of ports, flows and sessions. While another thread drives the rig, use
    /// [`Live::snapshot`] and [`crate::SessionWatch`] ([`Hosts::watch`]). The latter becomes invalid with
    /// [`Rig::apply`].
    pub fn metrics(&mut self) -> Metrics {
        let at = self.now();
        let traffic = self.traffic_mut().map(|traffic| traffic.snapshot(at));
        let sessions = (0..self.hosts.sessions()).map(|session| self.hosts.session_metrics(session)).collect();
        Metrics { at, traffic, sessions }
    }

    /// Returns the counts of the traffic without the frames of each latency; see [`Traffic::counts`]. `None` without
    /// traffic. Ports on other hosts have the counts with which the hosts have answered [`Rig::ask_counts`].
    pub fn counts(&mut self) -> Option<Snapshot> {
        let at = self.now();
        match &mut self.running.as_mut()?.traffic {
            Course::Here(traffic) => Some(traffic.counts(at)),
            Course::Far(run) => run.traffic.snapshot(),
        }
    }

    /// Asks other hosts for their counts, if they have the ports. They answer while the rig is driven.
    pub fn ask_counts(&mut self) {
        let now = self.now();
        if let Some(Running { traffic: Course::Far(run), .. }) = &mut self.running {
            run.ask_counts(now);
        }
    }

    /// Returns when [`Rig::counts`] were counted: now, or for ports on other hosts when the first of them counted. `None` without
    /// counts.
    pub fn counted_at(&self) -> Option<Instant> {
        match &self.running.as_ref()?.traffic {
            Course::Here(_) => Some(self.now()),
            Course::Far(run) => run.traffic.counts().map(|(at, _)| at),
        }
    }

    /// Returns the frames of each latency of a group of the traffic; see [`Traffic::latencies`]. Empty without traffic.
    pub fn latencies(&self, group: usize) -> Vec<(u64, u64)> {
        match self.running.as_ref().map(|running| &running.traffic) {
            Some(Course::Here(traffic)) => traffic.latencies(group),
            Some(Course::Far(run)) => run.traffic.latencies(group),
            None => Vec::new(),
        }
    }

    /// Returns the counts by place of each flow of the traffic that has a cycle; see [`Traffic::places`]. Empty without traffic.
    pub fn places(&self) -> BTreeMap<usize, Vec<PlaceCounts>> {
        match self.running.as_ref().map(|running| &running.traffic) {
            Some(Course::Here(traffic)) => traffic.places(),
            Some(Course::Far(run)) => run.traffic.places(),
            None => BTreeMap::new(),
        }
    }

    /// Returns how many frames each flow of the traffic has handed over to its port; see [`Traffic::handed_over`].
    /// Empty without traffic.
    pub fn handed_over(&self) -> Vec<u64> {
        match self.running.as_ref().map(|running| &running.traffic) {
            Some(Course::Here(traffic)) => traffic.handed_over(),
            Some(Course::Far(run)) => run.traffic.handed_over(),
            None => Vec::new(),
        }
    }

    /// The traffic of this host.
    fn traffic(&self) -> Option<&Traffic> {
        match &self.running.as_ref()?.traffic {
            Course::Here(traffic) => Some(traffic),
            Course::Far(_) => None,
        }
    }

    fn traffic_mut(&mut self) -> Option<&mut Traffic> {
        match &mut self.running.as_mut()?.traffic {
            Course::Here(traffic) => Some(traffic),
            // Its hosts answer while the rig is driven.
            Course::Far(_) => None,
        }
    }

    /// From now on, keeps the last counts of traffic that ends, for [`Rig::take_last_counts`].
    pub fn keep_last_counts(&mut self) {
        self.keeps_counts = true;
    }

    /// Takes the counts of the last traffic at its end.
    pub fn take_last_counts(&mut self) -> Option<Snapshot> {
        self.last_counts.take()
    }

    /// Returns these time bins of a group of the traffic; see [`Traffic::bins`]. Empty without traffic.
    pub fn bins(&self, group: usize, range: Range<usize>) -> Vec<Bin> {
        self.traffic().map_or(Vec::new(), |traffic| traffic.bins(group, range))
    }

    /// Returns how many test frames of a port left more than 1 ms late, and how many left in all, since the traffic
    /// started; `None` without traffic on this host.
    pub fn late_departures(&self, port: PortIndex) -> Option<(u64, u64)> {
        self.traffic().map(|traffic| traffic.late_departures(port))
    }

    /// Returns the largest step of the wall clock since the traffic started, in ns; see [`Traffic::clock_step_ns`]. `None` without traffic
    /// on this host.
    pub fn clock_step_ns(&self) -> Option<i64> {
        self.traffic().map(Traffic::clock_step_ns)
    }

    /// Returns how many received frames the tester lost at the first queue of a port, since the port was opened. Of ports on other
    /// hosts, only frames of devices; [`Snapshot::drops`] has the others.
    ///
    /// # Errors
    /// The port failed.
    pub fn receive_drops(&mut self, port: PortIndex) -> Result<u64, PortError> {
        Ok(self.ports.get(port).counters()?.receive_drops)
    }

    /// Returns the time in ns that a hypervisor took from the processor of each thread since boot; `None` if unknown.
    pub fn stolen(&self) -> Option<Vec<u64>> {
        crate::processors::stolen(&self.ports)
    }
}
