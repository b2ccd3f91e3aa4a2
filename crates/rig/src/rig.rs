//! The rig: ports, what is emulated behind them, and traffic.

use crate::act::Act;
use crate::config::Config;
use crate::hosts::{Hosts, SessionIndex};
use crate::metrics::Metrics;
use crate::ports::Ports;
use drophammer_model::Instant;
use drophammer_model::trial::{PortIndex, TrialResult, TrialSpec};
use drophammer_port::PortError;
use drophammer_traffic::{
    FlowSelect, LaneError, Live, Plan, PlanError, Timing, Traffic, TransmitAction, TransmitError, merge,
};
use std::time::Duration;

/// Why a rig does not do what it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// The configuration cannot be.
    #[error("{0}")]
    Config(String),
    /// The traffic cannot be laid out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A port stopped working.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A thread failed.
    #[error(transparent)]
    Lane(LaneError),
    /// Traffic is under way.
    #[error("traffic is under way; end it first")]
    Busy,
    /// There is no traffic.
    #[error("there is no traffic; start it first")]
    NoTraffic,
    /// Flows cannot be started or stopped.
    #[error(transparent)]
    Transmit(#[from] TransmitError),
}

impl From<LaneError> for RigError {
    fn from(e: LaneError) -> RigError {
        match e {
            LaneError::Port(e) => RigError::Port(e),
            e => RigError::Lane(e),
        }
    }
}

/// Which sessions.
#[derive(Clone, Copy, Debug)]
pub enum Select<'a> {
    /// All.
    All,
    /// These.
    These(&'a [SessionIndex]),
}

/// What to do with protocols.
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
    /// The traffic is over; what it counted. Trial number, elapsed time, validity and DUT load are the caller's to fill in.
    TrafficEnded(Box<TrialResult>),
    /// A session came up.
    SessionUp(SessionIndex),
    /// A session went down; the cause.
    SessionDown(SessionIndex, String),
}

/// Traffic, and what the emulated devices do at its events.
struct Running {
    traffic: Traffic,
    acts: Vec<Vec<(PortIndex, Act)>>,
}

/// Ports, their clock, the emulated devices behind them, and traffic. One thread owns it; while it does not drive the rig, nothing is
/// sent or received, unless the kernel makes the frames.
pub struct Rig {
    /// Ports with their clock.
    pub ports: Ports,
    /// Emulated hosts and routers, one host per port.
    pub hosts: Hosts,
    running: Option<Running>,
    /// When the traffic that ended last had started.
    started: Option<Instant>,
    /// Sessions that were up when they were last looked at.
    up: Vec<bool>,
}

/// How often a rig without traffic looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

impl Rig {
    /// A rig of these ports with what `config` says behind them.
    ///
    /// # Panics
    /// When `config` is of more or fewer ports, or [`Config::check`] refuses it otherwise.
    pub fn new(ports: Ports, config: &Config) -> Rig {
        assert_eq!(ports.len(), config.ports.len(), "each port is configured");
        let hosts = Hosts::new(config);
        let up = vec![false; hosts.sessions()];
        Rig { ports, hosts, running: None, started: None, up }
    }

    /// Replaces what is emulated behind the ports. Sessions that were up are lost without a word to their peers.
    ///
    /// # Errors
    /// [`RigError::Config`] for a configuration of more or fewer ports, or of two hosts with one MAC address, [`RigError::Busy`].
    pub fn apply(&mut self, config: &Config) -> Result<(), RigError> {
        if self.running.is_some() {
            return Err(RigError::Busy);
        }
        config.check(self.ports.len()).map_err(RigError::Config)?;
        self.hosts = Hosts::new(config);
        self.up = vec![false; self.hosts.sessions()];
        Ok(())
    }

    /// Now, by the clock of the ports.
    pub fn now(&self) -> Instant {
        self.ports.clock().now()
    }

    /// Starts or ends BGP sessions; [`Rig::drive`] tells when they are up or down.
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

    /// Does `act` at `port` at once.
    ///
    /// # Errors
    /// [`PortError::Link`] for a link that cannot be switched.
    pub fn command(&mut self, port: PortIndex, act: &Act) -> Result<(), PortError> {
        if let Act::Link(up) = act {
            return self.ports.get(port).set_link(*up);
        }
        let now = self.now();
        self.hosts.run(now, port, act);
        Ok(())
    }

    /// Serves the emulated devices for `time`, or until `enough` says so; it is asked whenever they may have something new. Frames
    /// for none of them are dropped.
    ///
    /// # Errors
    /// The port's.
    pub fn serve(&mut self, time: Duration, enough: &mut dyn FnMut(Instant, &Hosts) -> bool) -> Result<(), PortError> {
        let end = self.now() + time;
        self.ports.serve(&mut self.hosts, end, enough)
    }

    /// Lays out `spec` and has it ready: it starts when the rig is driven next. At event i the devices do what `acts[i]` says. Traffic of
    /// [`drophammer_traffic::CONTINUOUS`] duration goes on until [`Rig::end_traffic`] or [`Live::end_sending`].
    ///
    /// # Errors
    /// [`RigError::Plan`] where a flow cannot be, or a device has not told its MAC address; [`RigError::Busy`].
    pub fn start_traffic(
        &mut self,
        spec: &TrialSpec,
        timing: &Timing,
        acts: Vec<Vec<(PortIndex, Act)>>,
    ) -> Result<Live, RigError> {
        let layout = self.ports.layout().for_flows(&spec.flows);
        let plan = Plan::on_lanes(spec, &self.hosts.neighbours(), timing, layout)?;
        self.start_plan(plan, acts)
    }

    /// The same with a plan that is laid out already, for [`Ports::layout`] or fewer lanes.
    ///
    /// # Errors
    /// [`RigError::Busy`].
    pub fn start_plan(&mut self, plan: Plan, acts: Vec<Vec<(PortIndex, Act)>>) -> Result<Live, RigError> {
        if self.running.is_some() {
            return Err(RigError::Busy);
        }
        let traffic = Traffic::new(plan);
        let live = traffic.live();
        self.running = Some(Running { traffic, acts });
        Ok(live)
    }

    /// Starts, stops, pauses or resumes flows of the traffic, at once or when it has lasted for `at`; see [`Live::transmit`]. Flows that
    /// are stopped before the rig is driven are stopped from the beginning.
    ///
    /// # Errors
    /// [`RigError::NoTraffic`]; [`RigError::Transmit`] for flows that are not there, or whose frames the kernel makes.
    pub fn transmit(
        &self,
        which: FlowSelect<'_>,
        action: TransmitAction,
        at: Option<Duration>,
    ) -> Result<(), RigError> {
        let running = self.running.as_ref().ok_or(RigError::NoTraffic)?;
        Ok(running.traffic.transmit(which, action, at)?)
    }

    /// Ends what is sent; the traffic drains while the rig is driven. Nothing happens where there is none.
    pub fn end_traffic(&mut self) {
        if let Some(running) = &self.running {
            running.traffic.live().end_sending();
        }
    }

    /// When the traffic that ended last had started; `None` where there was none.
    pub fn started(&self) -> Option<Instant> {
        self.started
    }

    /// Is there traffic?
    pub fn has_traffic(&self) -> bool {
        self.running.is_some()
    }

    /// Drives traffic and emulated devices until `until`, until `stopped` says so, or until something has happened, and tells what. Traffic
    /// that is stopped so ends at once, without a drain. While there is traffic, sessions are looked at when `until` is reached.
    ///
    /// # Errors
    /// A port that stopped working, a thread that failed: the traffic is gone then.
    pub fn drive(&mut self, until: Instant, stopped: &dyn Fn() -> bool) -> Result<Vec<Event>, RigError> {
        loop {
            let mut events = Vec::new();
            if let Some(mut running) = self.running.take() {
                let Rig { ports, hosts, .. } = self;
                let Running { traffic, acts } = &mut running;
                ports.drive(traffic, hosts, acts, stopped, until)?;
                if traffic.is_over() {
                    self.started = traffic.started();
                    events.push(Event::TrafficEnded(Box::new(merge(&traffic.reports()))));
                } else {
                    self.running = Some(running);
                }
            } else {
                let time = until.since(self.now()).min(LOOK);
                let before = self.up.clone();
                self.serve(time, &mut |_, hosts| before != up(hosts))?;
            }
            events.extend(self.session_events());
            if !events.is_empty() || self.now() >= until || stopped() {
                return Ok(events);
            }
        }
    }

    /// Sessions that came up or went down since the last look.
    fn session_events(&mut self) -> Vec<Event> {
        let up = up(&self.hosts);
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

    /// A trial (RFC 2544 section 23): `spec` laid out, driven to its end, its outcome. At event i the devices do what `acts[i]` says.
    ///
    /// # Errors
    /// Those of [`Rig::start_traffic`] and [`Rig::drive`].
    pub fn trial(
        &mut self,
        spec: &TrialSpec,
        timing: &Timing,
        acts: Vec<Vec<(PortIndex, Act)>>,
        stopped: &dyn Fn() -> bool,
    ) -> Result<TrialResult, RigError> {
        self.start_traffic(spec, timing, acts)?;
        self.finish(stopped)
    }

    /// Drives traffic to its end.
    ///
    /// # Errors
    /// Those of [`Rig::drive`].
    ///
    /// # Panics
    /// Where there is none.
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

    /// What ports, flows and sessions are at. For counts while another thread drives the rig there are [`Live::snapshot`] and
    /// [`crate::SessionWatch`] ([`Hosts::watch`]), which ends with [`Rig::apply`].
    pub fn metrics(&mut self) -> Metrics {
        let at = self.now();
        let traffic = self.running.as_mut().map(|running| running.traffic.snapshot(at));
        let sessions = (0..self.hosts.sessions()).map(|session| self.hosts.session_metrics(session)).collect();
        Metrics { at, traffic, sessions }
    }

    /// Time that a hypervisor took from the processor of each thread since boot, in ns; `None` where that is not known.
    pub fn stolen(&self) -> Option<Vec<u64>> {
        crate::processors::stolen(&self.ports)
    }
}

/// Which sessions are up.
fn up(hosts: &Hosts) -> Vec<bool> {
    let established = |session| hosts.session(session).is_some_and(|(routers, router)| routers.established(router));
    (0..hosts.sessions()).map(established).collect()
}
