//! A rig whose ports are on other hosts.
//!
//! # Ports on other hosts
//!
//! Such a rig differs from any other in its ports and in what drives traffic. Its ports ([`Relayed`]) send and receive over a
//! connection to the host that has the interface, but only frames of emulated devices: ARP, ping, BGP. So the devices, with
//! their sessions and routes, stay in this process, and everything that works with them works the same. Test frames never take
//! this path: each host plans the whole trial, sends and counts the test frames of its own ports (`rig::lent`), and hands in
//! the reports of its lanes. A [`Far`] carries messages between hosts.
//!
//! Either all ports of a rig are on hosts that a [`Far`] reaches, or none is. This host can be one of those hosts.
//!
//! Two quantities are less exact than on one host, and the result says so (`BetweenHosts`). Clocks of hosts agree only
//! within an uncertainty, so a latency below it is removed from the result. Hosts start at the same instant only within
//! this uncertainty. Frames of emulated devices leave later by the one-way delay of the management network.

use crate::act::Acts;
use crate::bell::{Bell, Ear, bell};
use crate::filters::CaptureSettings;
use crate::hosts::Hosts;
use crate::ports::Ports;
use crate::rig::RigError;
use crate::shared_routes;
use crate::until::Until;
use drophammer_model::Instant;
use drophammer_model::latency::LatencySummary;
use drophammer_model::trial::{BetweenHosts, HostRecord, Load, PortIndex, TrialResult, TrialSpec};
use drophammer_port::{
    BURST, Batch, Filled, Port, PortCounters, PortError, PortInfo, Received, Sent, SystemClock, info_and_slots,
};
use drophammer_traffic::{FarTraffic, LaneCounts, LaneReport, Layout, Neighbour, Plan, Timing, Wish, merge};
use drophammer_wire::signature::TrialKey;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A trial, for the hosts that have its ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The trial. It names the ports of all hosts.
    pub spec: TrialSpec,
    /// The routes to which its flows lead.
    #[serde(default)]
    pub routes: Vec<shared_routes::Shared>,
    /// What is known about the link of each port.
    pub neighbours: Vec<Neighbour>,
    /// Seed of the run.
    pub seed: u64,
    /// Key of the trial, as a number.
    pub key: u64,
    /// Keys of earlier trials.
    pub earlier: Vec<u64>,
    /// See [`Timing::max_backlog_ns`].
    pub max_backlog_ns: u64,
    /// See [`Timing::late_ns`].
    pub late_ns: u64,
    /// Starts and stops of flows that were requested before the start.
    #[serde(default)]
    pub orders: Vec<Wish>,
    /// True if the hosts hand in the last counts of their lanes at the end.
    #[serde(default)]
    pub counts: bool,
}

impl Job {
    /// Describes a trial.
    ///
    /// # Errors
    /// Its tables of routes are too large.
    pub fn new(spec: &TrialSpec, timing: &Timing, neighbours: Vec<Neighbour>) -> Result<Job, String> {
        Ok(Job {
            spec: spec.clone(),
            routes: shared_routes::of(spec)?,
            neighbours,
            seed: timing.seed,
            key: timing.key.word(),
            earlier: timing.earlier.iter().map(|key| key.word()).collect(),
            max_backlog_ns: timing.max_backlog_ns,
            late_ns: timing.late_ns,
            orders: Vec::new(),
            counts: false,
        })
    }

    /// Checks that times and loads are finite, for a job from another host. Planning checks the rest.
    ///
    /// # Errors
    /// What is out of range.
    pub fn check(&self) -> Result<(), String> {
        let spec = &self.spec;
        let times = [spec.duration_s, spec.drain_s, spec.bin_s.unwrap_or(0.0)];
        let of_flow = spec.flows.iter().filter_map(|flow| flow.schedule.as_ref()).map(|schedule| schedule.delay_s);
        let rates: Vec<f64> = match &spec.load {
            Load::Constant { rate_pps } | Load::Burst { rate_pps, .. } => vec![*rate_pps],
            Load::Steps { steps } => steps.iter().flat_map(|step| [step.rate_pps, step.duration_s]).collect(),
            Load::Maximum { limit_pps } => vec![*limit_pps],
            Load::Flows => Vec::new(),
        };
        let finite = |number: &f64| (0.0..=1e12).contains(number);
        match times.into_iter().chain(of_flow).chain(rates).all(|number| finite(&number)) {
            true => Ok(()),
            false => Err("a time or a load of the trial is negative, too large or not a number".into()),
        }
    }

    /// Returns the identity of the trial.
    pub fn timing(&self) -> Timing {
        let Job { seed, key, max_backlog_ns, late_ns, .. } = *self;
        let earlier = self.earlier.iter().map(|key| TrialKey::of_word(*key)).collect();
        Timing { seed, key: TrialKey::of_word(key), earlier, max_backlog_ns, late_ns }
    }
}

/// The end of a trial on all hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct FarResult {
    /// Reports of all lanes of all hosts.
    pub reports: Vec<LaneReport>,
    /// The last counts of these lanes, if the job asks for them.
    pub counts: Vec<LaneCounts>,
    /// The hosts.
    pub hosts: Vec<HostRecord>,
    /// Longest time that a host's port thread was ready to run while other programs had its processor, in ns; `None` if
    /// a kernel does not count it.
    pub waited_ns: Option<u64>,
    /// The most that a hypervisor took from the processor of a port thread of a host, in ns; `None` if no host knows it.
    pub stolen_ns: Option<u64>,
    /// Frames to and from devices that could not be passed on.
    pub lost: u64,
    /// For each port, the number of its clock, and its uncertainty against the clock of the rig in ns. Ports with the same
    /// number have the same clock.
    pub clocks: Vec<(usize, u64)>,
}

/// What a capture of a port does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CaptureOrder {
    /// It begins anew.
    Start {
        /// What it keeps.
        settings: CaptureSettings,
        /// Wall clock in ns since 1970 at instant 0 of the rig.
        origin_ns: u64,
    },
    /// It ends. Its frames are kept.
    Stop,
}

/// What happened on the hosts of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// The lanes of a host have these counts.
    Counts(usize, Vec<LaneCounts>),
    /// The trial is over on all hosts, and its records are stored.
    Over(Box<FarResult>),
    /// The user has stopped, and the records were not there soon afterwards.
    Stopped,
}

/// Carries messages between a rig and the hosts that have its ports. Every method returns soon: after the time that
/// messages take, or with an error that names the host. Those that may take longer end when the user stops. After an error
/// the trial has no result, and the next trial starts afresh.
pub trait Far: Send {
    /// Returns the number of hosts.
    fn hosts(&self) -> usize;

    /// Lets all hosts plan a trial and start it at the returned instant, which is in the future. Waits for hosts that cannot be
    /// reached. `None` if `stopped` returned true before; some hosts may have started.
    ///
    /// # Errors
    /// [`PortError::Lost`] with the host and the cause.
    fn begin(&mut self, job: &Job, stopped: &dyn Fn() -> bool) -> Result<Option<Instant>, PortError>;

    /// Passes a request on to all hosts.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn ask(&mut self, wish: &Wish) -> Result<(), PortError>;

    /// Returns what happened since the last call, if anything did. When all hosts have ended the trial, this collects their
    /// records, and does not wait long for them once `stopped` returns true.
    ///
    /// # Errors
    /// [`PortError::Lost`] if a host is gone or has ended the trial.
    fn news(&mut self, stopped: &dyn Fn() -> bool) -> Result<Option<News>, PortError>;

    /// Ends a trial without a result on all hosts that can be reached.
    fn abandon(&mut self);

    /// Switches the link of a port.
    ///
    /// # Errors
    /// [`PortError::Link`] or [`PortError::Lost`].
    fn set_link(&mut self, port: PortIndex, up: bool) -> Result<(), PortError>;

    /// True if the link of a port has carrier.
    ///
    /// # Errors
    /// [`PortError::Link`] or [`PortError::Lost`].
    fn has_carrier(&mut self, port: PortIndex) -> Result<bool, PortError>;

    /// Starts or ends the capture of a port.
    ///
    /// # Errors
    /// [`PortError::Lost`].
    fn capture(&mut self, port: PortIndex, order: &CaptureOrder) -> Result<(), PortError>;

    /// Ends the capture of a port and requests its file. Does not wait for the file.
    ///
    /// # Errors
    /// [`PortError::Lost`] if no capture of the port was started.
    fn captured(&mut self, port: PortIndex) -> Result<Captured, PortError>;
}

/// A file on its way, or why it does not arrive.
pub type Captured = Receiver<Result<Vec<u8>, String>>;

/// The ports of a rig, on other hosts.
pub struct FarPorts {
    /// The ports, in the order of the rig.
    pub ports: Vec<Relayed>,
    /// The clock of this host. The other hosts set their clocks by it.
    pub clock: SystemClock,
    /// Carries messages to the hosts.
    pub far: Box<dyn Far>,
}

/// Opens ports on other hosts.
pub trait Lender: Sync {
    /// Leases the ports with these names (`host/interface`) and opens them. Times are on `clock`.
    ///
    /// # Errors
    /// The cause and the remedy: no such host or port, held by somebody else, another version.
    fn open(&self, names: &[String], clock: SystemClock) -> Result<FarPorts, String>;
}

/// Maximum number of frames that wait at a port. It bounds memory during a flood.
const WAITING: usize = 4096;

/// Frames from another host that wait at a port.
#[derive(Default)]
struct Inbox {
    frames: Mutex<VecDeque<(Instant, Vec<u8>)>>,
    lost: AtomicU64,
}

/// Hands frames of another host to a port.
pub struct Arriving {
    inbox: Arc<Inbox>,
    bell: Bell,
}

impl Arriving {
    /// Hands over a frame that arrived at `at`, on the clock of the rig. Frames for which there is no room are counted as
    /// lost by the tester.
    pub fn put(&self, at: Instant, frame: &[u8]) {
        let mut frames = self.inbox.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if frames.len() >= WAITING {
            self.inbox.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        frames.push_back((at, frame.to_vec()));
        drop(frames);
        self.bell.ring();
    }
}

/// Passes a frame on; false if there is no room.
type Passing = Box<dyn Fn(&[u8]) -> bool + Send>;

/// A port on another host, for frames of emulated devices.
pub struct Relayed {
    info: PortInfo,
    slots: Batch,
    inbox: Arc<Inbox>,
    ear: Ear,
    send: Passing,
    lent: Vec<u8>,
    filled: Vec<Filled>,
}

impl Relayed {
    /// Creates a port with these properties. `send` passes a frame on, and returns false if there is no room.
    ///
    /// # Errors
    /// The operating system has no descriptors left.
    pub fn new(info: PortInfo, send: impl Fn(&[u8]) -> bool + Send + 'static) -> io::Result<(Relayed, Arriving)> {
        let (bell, ear) = bell()?;
        let inbox = Arc::<Inbox>::default();
        let size = info.largest_frame.max(64);
        let arriving = Arriving { inbox: inbox.clone(), bell };
        let slots = Batch::new(BURST, size);
        let (lent, filled) = (vec![0; BURST * size], Vec::with_capacity(BURST));
        Ok((Relayed { info, slots, inbox, ear, send: Box::new(send), lent, filled }, arriving))
    }
}

impl Port for Relayed {
    info_and_slots!();

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        for slot in 0..frames {
            match (self.send)(self.slots.frame(slot)) {
                true => sent.accepted += 1,
                false => sent.refuse(slot),
            }
        }
        Ok(sent)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        self.ear.forget();
        let size = self.slots.slot_size();
        self.filled.clear();
        let mut frames = self.inbox.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let count = frames.len().min(BURST);
        for (slot, (at, frame)) in frames.drain(..count).enumerate() {
            let len = frame.len().min(size);
            self.lent[slot * size..][..len].copy_from_slice(&frame[..len]);
            self.filled.push(Filled::new(len, at));
        }
        Ok(Received::new(&self.lent, size, &self.filled))
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters { receive_drops: self.inbox.lost.load(Ordering::Relaxed) })
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ear.as_fd())
    }
}

/// Traffic of a rig whose ports are on other hosts.
pub(crate) struct FarRun {
    pub(crate) traffic: FarTraffic,
    job: Job,
    end: Option<Box<FarResult>>,
    /// Frames that had been lost on their way to the devices, in this process, when the trial began.
    lost_before: u64,
    /// When the reports must be there at the latest.
    latest: Instant,
    /// When the hosts were last asked for counts.
    asked: Option<Instant>,
}

/// How long to serve the devices before asking the hosts for news.
const SLICE: Duration = Duration::from_millis(2);
/// How often hosts are asked for counts at the most.
const PACE: Duration = Duration::from_millis(50);
/// How long hosts may take to answer a question for counts before they are asked again.
const TO_COUNT: Duration = Duration::from_secs(1);
/// How long hosts may take to report after sending and draining, or after a stop.
const PATIENCE: Duration = Duration::from_secs(30);

impl FarRun {
    /// Checks a trial, and prepares it for `hosts` hosts, which hand in their last counts if `counts` is true.
    pub(crate) fn new(
        spec: &TrialSpec,
        timing: &Timing,
        neighbours: Vec<Neighbour>,
        hosts: usize,
        counts: bool,
    ) -> Result<FarRun, RigError> {
        let layout = Layout::one(0).on_host(&[], neighbours.len());
        let plan = Plan::on_lanes(spec, &neighbours, timing, layout)?;
        let job = Job { counts, ..Job::new(spec, timing, neighbours).map_err(RigError::Config)? };
        let (traffic, latest) = (FarTraffic::new(plan, hosts), Instant(u64::MAX));
        Ok(FarRun { traffic, job, end: None, lost_before: 0, latest, asked: None })
    }

    /// Serves the devices and follows the trial until its end or `until`.
    pub(crate) fn drive(
        &mut self,
        ports: &mut Ports,
        hosts: &mut Hosts,
        acts: Acts<'_>,
        stopped: &dyn Fn() -> bool,
        until: Instant,
    ) -> Result<(), RigError> {
        let driven = self.follow(ports, hosts, acts, stopped, until);
        if driven.is_err() {
            self.traffic.fail();
            if let Ports::Far(far) = ports {
                far.far.abandon();
            }
        }
        driven
    }

    fn follow(
        &mut self,
        ports: &mut Ports,
        hosts: &mut Hosts,
        acts: Acts<'_>,
        stopped: &dyn Fn() -> bool,
        until: Instant,
    ) -> Result<(), RigError> {
        let FarRun { traffic, job, end, lost_before, latest, .. } = self;
        if traffic.started().is_none() {
            // Flows that are stopped before the start send nothing, however long a message takes.
            let of_flows = |wish: &Wish| matches!(wish, Wish::Transmit { .. });
            let (orders, others): (Vec<Wish>, Vec<Wish>) = traffic.wishes().into_iter().partition(of_flows);
            job.orders = orders;
            *lost_before = lost_here(ports)?;
            let start = ports.far().begin(job, stopped)?.ok_or(RigError::Stopped)?;
            traffic.begin(start);
            *latest = latest_end(&job.spec, start);
            others.iter().try_for_each(|wish| ports.far().ask(wish))?;
        }
        let mut ended = false;
        loop {
            let now = ports.clock().now();
            while let Some((at, event)) = traffic.next_event().filter(|(at, _)| *at <= now) {
                let from = ports.clock().now().max(at);
                let mut own = false;
                for (port, act) in acts.get(event).into_iter().flatten() {
                    own = true;
                    match act {
                        crate::Act::Link(up) => ports.far().set_link(*port, *up)?,
                        act => hosts.run_at_event(from, *port, act),
                    }
                }
                traffic.carried_out(from, ports.clock().now(), own);
            }
            if stopped() && !ended {
                traffic.live().end();
                ended = true;
            }
            for wish in traffic.wishes() {
                *latest = match wish {
                    Wish::End => now + PATIENCE,
                    Wish::EndSending => (*latest).min(now + after_sending(&job.spec)),
                    _ => *latest,
                };
                ports.far().ask(&wish)?;
            }
            while let Some(news) = ports.far().news(stopped)? {
                match news {
                    News::Counts(host, counts) => traffic.counted(host, counts),
                    News::Stopped => return Err(RigError::Stopped),
                    News::Over(mut result) => {
                        result.lost = result.lost.saturating_add(lost_here(ports)?.saturating_sub(*lost_before));
                        let counts = std::mem::take(&mut result.counts);
                        let fits = traffic.end(std::mem::take(&mut result.reports), counts);
                        *end = Some(result);
                        return fits.map_err(RigError::Reports);
                    }
                }
            }
            if now >= until {
                return Ok(());
            }
            if now >= *latest {
                return Err(RigError::Reports("they did not arrive in time".into()));
            }
            let next = traffic.next_event().map_or(now + SLICE, |(at, _)| at.min(now + SLICE));
            ports.serve(hosts, &Until::At(next.min(until)), &|| false)?;
        }
    }

    /// Asks the hosts for their counts, unless they have been asked and still have time to answer.
    pub(crate) fn ask_counts(&mut self, now: Instant) {
        let counted = self.traffic.counts().map(|(at, _)| at);
        let may = |asked: Instant| match now.since(asked) {
            since if counted >= Some(asked) => since >= PACE,
            since => since > TO_COUNT,
        };
        if self.asked.is_none_or(may) {
            self.asked = Some(now);
            self.traffic.ask_counts();
        }
    }

    /// Merges the reports of all hosts.
    ///
    /// # Errors
    /// [`RigError::Reports`] if they contradict each other in a way that [`FarTraffic::end`] does not notice.
    pub(crate) fn result(&self) -> Result<TrialResult, RigError> {
        let reports = self.traffic.reports();
        // Data from other hosts must not crash this program.
        let merged = catch_unwind(AssertUnwindSafe(|| merge(reports)));
        let mut result = merged.map_err(|_| RigError::Reports("their counts contradict each other".into()))?;
        if let Some(end) = &self.end {
            bound_latency(&mut result, &self.job.spec, end, &early(reports));
        }
        Ok(result)
    }
}

/// Returns the number of frames from other hosts for which no port of this process has had room.
fn lost_here(ports: &mut Ports) -> Result<u64, PortError> {
    (0..ports.len()).map(|port| ports.get(port).counters().map(|counters| counters.receive_drops)).sum()
}

/// Returns when the trial must have ended on every host.
fn latest_end(spec: &TrialSpec, start: Instant) -> Instant {
    start + spec.sending_time() + after_sending(spec)
}

/// Returns how long after its last frame a trial may go on.
fn after_sending(spec: &TrialSpec) -> Duration {
    let drain = Duration::from_secs_f64(spec.drain_s.clamp(0.0, 1e6)).max(Duration::from_secs(2));
    // After the drain, frames that wait at a port are read for up to a minute.
    drain * 2 + Duration::from_secs(60) + PATIENCE
}

/// Returns by how much frames arrived before they were sent, in ns, by group.
fn early(reports: &[LaneReport]) -> BTreeMap<&str, u64> {
    let mut early = BTreeMap::new();
    for lane in reports {
        for (name, group) in lane.trial.groups.iter().zip(&lane.groups) {
            let most: &mut u64 = early.entry(name.as_str()).or_default();
            *most = group.early_ns.max(*most);
        }
    }
    early
}

/// Error of time stamps on two hosts.
const STAMP_NS: u64 = 10_000;
/// By how much two readings of one clock can be out of order.
const ONE_CLOCK_NS: u64 = 1_000_000;

/// What is known of the clocks between which the frames of a group travel.
#[derive(Default)]
struct Clocks {
    uncertainty_ns: u64,
    /// Numbers of different clocks, the lower one first.
    pairs: BTreeSet<(usize, usize)>,
}

/// Returns the clocks of each group.
fn clocks_of<'a>(spec: &'a TrialSpec, clocks: &[(usize, u64)]) -> BTreeMap<&'a str, Clocks> {
    let clock = |port: usize| clocks.get(port).copied().unwrap_or((usize::MAX, u64::MAX / 4));
    let mut groups: BTreeMap<&str, Clocks> = BTreeMap::new();
    for flow in &spec.flows {
        let group = groups.entry(&flow.group).or_default();
        for to in flow.also.iter().chain([&flow.to]) {
            let ((a, at_a), (b, at_b)) = (clock(flow.from), clock(*to));
            if a != b {
                group.uncertainty_ns = group.uncertainty_ns.max(at_a.saturating_add(at_b));
                group.pairs.insert((a.min(b), a.max(b)));
            }
        }
    }
    groups
}

/// Records the conditions between hosts, and removes latencies that these clocks cannot measure: those within the uncertainty, and
/// all between two clocks that differ by more than that, as a frame shows that arrived before it was sent. A frame that took longer
/// than time stamps can tell looks the same.
fn bound_latency(result: &mut TrialResult, spec: &TrialSpec, end: &FarResult, early: &BTreeMap<&str, u64>) {
    let clocks = clocks_of(spec, &end.clocks);
    let too_early = |(name, clocks): &(&&str, &Clocks)| {
        let stamps = if clocks.pairs.is_empty() { ONE_CLOCK_NS } else { STAMP_NS };
        early.get(**name).is_some_and(|ns| *ns > clocks.uncertainty_ns.saturating_add(stamps))
    };
    let too_early: BTreeMap<&str, &Clocks> =
        clocks.iter().filter(too_early).map(|(name, clocks)| (*name, clocks)).collect();
    let refuted: BTreeSet<_> = too_early.values().flat_map(|clocks| &clocks.pairs).collect();
    let most = |of: fn(&HostRecord) -> u64| end.hosts.iter().map(of).max().unwrap_or(0);
    let mut between = BetweenHosts {
        hosts: end.hosts.len() as u32,
        start_skew_ns: most(|host| host.start_skew_ns),
        one_way_ns: most(|host| host.one_way_ns),
        each: end.hosts.clone(),
        clocks_refuted: !too_early.is_empty(),
        ..BetweenHosts::default()
    };
    for group in result.groups.iter_mut().chain(&mut result.background) {
        let Some(Clocks { uncertainty_ns, pairs }) = clocks.get(group.group.as_str()) else { continue };
        between.clock_uncertainty_ns = between.clock_uncertainty_ns.max(*uncertainty_ns);
        let within = *uncertainty_ns > 0 && group.latency.min_ns <= *uncertainty_ns;
        let is_refuted =
            too_early.contains_key(group.group.as_str()) || pairs.iter().any(|pair| refuted.contains(pair));
        if group.latency.frames > 0 && (within || is_refuted) {
            group.latency = LatencySummary::default();
            between.unmeasurable.push(group.group.clone());
        }
    }
    result.health.tester_waited_ns = end.waited_ns;
    result.health.tester_stolen_ns = end.stolen_ns;
    result.health.receive_drops = result.health.receive_drops.saturating_add(end.lost);
    result.health.between_hosts = Some(between);
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_port::memory;
    use drophammer_wire::MacAddr;

    /// Nobody is there.
    struct Nobody;

    impl Far for Nobody {
        fn hosts(&self) -> usize {
            1
        }

        fn begin(&mut self, _: &Job, _: &dyn Fn() -> bool) -> Result<Option<Instant>, PortError> {
            Ok(None)
        }

        fn ask(&mut self, _: &Wish) -> Result<(), PortError> {
            Ok(())
        }

        fn news(&mut self, _: &dyn Fn() -> bool) -> Result<Option<News>, PortError> {
            Ok(None)
        }

        fn abandon(&mut self) {}

        fn set_link(&mut self, _: PortIndex, _: bool) -> Result<(), PortError> {
            Ok(())
        }

        fn has_carrier(&mut self, _: PortIndex) -> Result<bool, PortError> {
            Ok(true)
        }

        fn capture(&mut self, _: PortIndex, _: &CaptureOrder) -> Result<(), PortError> {
            Ok(())
        }

        fn captured(&mut self, _: PortIndex) -> Result<Captured, PortError> {
            unreachable!("nothing is captured")
        }
    }

    #[test]
    fn frames_for_which_this_process_has_no_room_are_lost() {
        let clock = SystemClock::start();
        let [end, _] = memory::pair([MacAddr::local(1), MacAddr::local(2)], 1_500, clock);
        let (mut ports, mut arriving) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (port, end) = Relayed::new(end.info().clone(), |_| true).unwrap();
            ports.push(port);
            arriving.push(end);
        }
        let mut ports = Ports::Far(FarPorts { ports, clock, far: Box::new(Nobody) });
        for (at, more) in [3, 5].into_iter().enumerate() {
            (0..WAITING + more).for_each(|_| arriving[at].put(Instant(0), &[0; 60]));
        }
        assert_eq!(lost_here(&mut ports).unwrap(), 8);
    }
}
