//! RSVP-TE (RFC 2205, RFC 2210, RFC 3209, RFC 2961): LSPs that begin or end at a device.
//!
//! LSPs are configured as ranges ([`LspRange`]), so a device stores only their dynamic state. Paths go to the device's gateway. An
//! egress answers the Paths of its ranges, and of up to [`MOST_FOREIGN`] other LSPs to an address of the device; it refuses and counts
//! the rest.
//!
//! Not supported: IPv6 sessions, wildcard filters, authentication, policy, and several LSPs in a tunnel of a range.

mod config;
mod lsp;
mod neighbour;
mod receive;
mod send;
mod timers;

pub use config::{
    EgressRange, HelloConfig, IngressRange, LabelPolicy, LspKey, LspRange, MOST_LSPS, RefreshReduction,
    ReservationStyle, RouteHop, RsvpConfig,
};
pub use lsp::{MOST_FOREIGN, Phase};
pub use neighbour::MOST_NEIGHBOURS;

use crate::device::DeviceConfig;
use crate::protocol::{Command, Input, Match, Output, Protocol, Refused, State};
use drophammer_model::Instant;
use drophammer_wire::ipv4::protocol;
use drophammer_wire::rsvp::kind;
use lsp::{Lsps, NEVER};
use neighbour::Neighbours;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::Range;
use timers::{Deadlines, Jitter};

/// Its name.
pub const NAME: &str = "rsvp";
const MATCHES: [Match; 3] = [Match::IpProtocol(protocol::RSVP), Match::RouterAlert(protocol::RSVP), Match::Neighbour];
/// LSPs that share one Srefresh: their identifiers fit into a packet.
const CHUNK: u32 = 350;
/// Maximum number of commands that wait.
const MOST_JOBS: usize = 64;
/// Maximum number of different errors that are counted by code.
const MOST_ERRORS: usize = 64;

/// Commands of RSVP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RsvpCommand {
    /// Sets up LSPs that begin here and are not set up.
    SetUp(Pace),
    /// Tears down LSPs that begin here, with PathTear.
    TearDown(Pace),
    /// Ends reservations of LSPs that end here, with ResvTear.
    Release(Pace),
}

/// LSPs, and how fast they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Numbers of the LSPs.
    pub lsps: Range<u32>,
    /// LSPs per second; 0 for as fast as the device can send.
    pub per_second: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    SetUp,
    Tear,
    /// This neighbour has restarted or is lost.
    Renew(usize),
}

/// LSPs that change one after the other.
struct Job {
    action: Action,
    lsps: Range<u32>,
    per_second: u32,
    /// Time of the first change, and the number of changes since.
    started: Option<Instant>,
    done: u32,
}

impl Job {
    fn new(action: Action, lsps: Range<u32>, per_second: u32) -> Job {
        Job { action, lsps, per_second, started: None, done: 0 }
    }

    fn due(&self) -> Instant {
        match (self.started, self.per_second) {
            (Some(started), 1..) => {
                Instant(started.0 + u64::from(self.done) * 1_000_000_000 / u64::from(self.per_second))
            }
            _ => Instant(0),
        }
    }
}

/// Counters that do not belong to one type of message.
#[derive(Default)]
struct Counts {
    malformed: u64,
    unknown_objects: u64,
    out_of_order: u64,
    acks_received: u64,
    nacks_received: u64,
    nacks_sent: u64,
    retransmissions: u64,
    summary_ids_sent: u64,
    summary_ids_received: u64,
    timeouts: u64,
    lost_neighbours: u64,
    foreign_refused: u64,
    errors_uncounted: u64,
}

/// Which error messages: `PathErr` or `ResvErr`, with code and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErrorKind {
    /// ResvErr instead of PathErr.
    pub resv: bool,
    /// Error code, see [`drophammer_wire::rsvp::error`].
    pub code: u8,
    /// Error value.
    pub value: u16,
}

/// RSVP of one device.
pub struct Rsvp {
    config: RsvpConfig,
    /// Explicit route of each ingress range, without the endpoint.
    routes: Vec<Vec<u8>>,
    running: bool,
    lsps: Lsps,
    neighbours: Neighbours,
    deadlines: Deadlines,
    jitter: Jitter,
    seed: u64,
    /// Epoch of the device's identifiers, and the last identifier used.
    epoch: u32,
    last_id: u32,
    /// LSPs by the identifier of the device's message.
    own_ids: HashMap<u32, u32>,
    /// When each chunk of [`CHUNK`] LSPs is refreshed by Srefresh; chunks without acknowledged LSPs have no entry.
    chunks: BinaryHeap<Reverse<(Instant, u32)>>,
    chunk_scheduled: Vec<bool>,
    jobs: VecDeque<Job>,
    /// The gateway is not resolved.
    waits: bool,
    hello_due: Instant,
    errors: BTreeMap<ErrorKind, u64>,
    counts: Counts,
    /// Reused memory.
    stage: [Vec<u8>; 2],
    name: String,
}

impl Rsvp {
    /// RSVP with this configuration. It is silent before [`Command::Start`].
    ///
    /// # Errors
    /// A wrong configuration, or a device without IPv4 address.
    pub fn new(device: &DeviceConfig, config: RsvpConfig) -> Result<Rsvp, Refused> {
        config.check().map_err(|reason| Refused::new(NAME, reason))?;
        let Some(own) = device.ipv4 else {
            return Err(Refused::new(NAME, "the device has no IPv4 address: give it one and a gateway"));
        };
        let routes = config.ingress.iter().map(send::explicit_route).collect();
        Ok(Rsvp {
            routes,
            running: false,
            lsps: Lsps::new(&config),
            neighbours: Neighbours::new(&config, own.address, own.gateway),
            deadlines: Deadlines::default(),
            jitter: Jitter::new(device.seed, config.refresh, config.jitter_percent),
            seed: device.seed,
            epoch: 0,
            last_id: 0,
            own_ids: HashMap::new(),
            chunks: BinaryHeap::new(),
            chunk_scheduled: Vec::new(),
            jobs: VecDeque::new(),
            waits: false,
            hello_due: NEVER,
            errors: BTreeMap::new(),
            counts: Counts::default(),
            stage: Default::default(),
            name: String::new(),
            config,
        })
    }

    /// Number of LSPs in ingress ranges.
    pub fn ingress_len(&self) -> u32 {
        self.lsps.ingress_count
    }

    /// Number of LSPs in egress ranges. Foreign LSPs have the numbers after them.
    pub fn egress_len(&self) -> u32 {
        self.lsps.ranged - self.lsps.ingress_count
    }

    /// Number of LSPs that end here and are in no range.
    pub fn foreign_len(&self) -> usize {
        self.lsps.foreign_count()
    }

    /// Phase of an LSP that begins here.
    pub fn ingress_phase(&self, lsp: u32) -> Phase {
        self.ingress(lsp).map_or(Phase::Idle, |lsp| lsp.phase)
    }

    /// The label that an LSP of this device must use, while it is up.
    pub fn label_of(&self, lsp: u32) -> Option<u32> {
        self.ingress(lsp).filter(|lsp| lsp.phase == Phase::Up).map(|lsp| lsp.word)
    }

    /// When an LSP that begins here came up, while it is up.
    pub fn up_since(&self, lsp: u32) -> Option<Instant> {
        self.ingress(lsp).filter(|lsp| lsp.phase == Phase::Up).map(|lsp| lsp.since)
    }

    fn ingress(&self, lsp: u32) -> Option<&lsp::Lsp> {
        self.lsps.all[..self.lsps.ingress_count as usize].get(lsp as usize)
    }

    /// An LSP that ends here and is up: its identification, label, and when it came up.
    pub fn egress_of(&self, lsp: u32) -> Option<(LspKey, u32, Instant)> {
        let number = lsp.checked_add(self.lsps.ingress_count)?;
        let found = self.lsps.all.get(number as usize).filter(|lsp| lsp.phase == Phase::Up)?;
        Some((self.lsps.key(number), self.lsps.own_label(number), found.since))
    }

    /// All LSPs that end here and are up: identification, label, and when each came up.
    pub fn ends(&self) -> impl Iterator<Item = (LspKey, u32, Instant)> + '_ {
        (0..self.lsps.all.len() as u32 - self.lsps.ingress_count).filter_map(|lsp| self.egress_of(lsp))
    }

    /// Received PathErr and ResvErr by code and value, at most 64 different ones.
    pub fn errors(&self) -> impl Iterator<Item = (ErrorKind, u64)> + '_ {
        self.errors.iter().map(|(kind, count)| (*kind, *count))
    }

    /// Starts a job, unless too many wait.
    fn add_job(&mut self, job: Job) -> Result<(), Refused> {
        if self.jobs.len() >= MOST_JOBS {
            return Err(Refused::new(NAME, format!("{MOST_JOBS} commands are in progress: wait until one is done")));
        }
        self.jobs.push_back(job);
        Ok(())
    }

    fn work(&mut self, now: Instant, budget: usize, out: &mut Output<'_>) {
        let mut room = budget;
        self.greet(now, out);
        self.run_jobs(now, &mut room, out);
        while room > 0
            && let Some(number) = self.deadlines.pop(now, &mut self.lsps.all)
        {
            let lsp = &self.lsps.all[number as usize];
            if lsp.expires <= now {
                self.expire(number, now, out);
            } else if lsp.next <= now {
                room = room.saturating_sub(self.send_lsp(number, now, out));
            }
            self.deadlines.schedule(number, &mut self.lsps.all);
        }
        while room > 0
            && let Some(Reverse((_, chunk))) = self.chunks.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            self.chunks.pop();
            room = room.saturating_sub(self.summarize(chunk, now, out));
        }
        self.neighbours.flush(out);
        if !self.running && self.jobs.is_empty() {
            self.silence();
        }
    }

    /// Ends all timers.
    fn silence(&mut self) {
        if self.hello_due == NEVER && self.chunks.is_empty() && self.deadlines.next().is_none() {
            return;
        }
        self.hello_due = NEVER;
        self.chunks.clear();
        self.chunk_scheduled.fill(false);
        for number in 0..self.lsps.all.len() as u32 {
            self.end(number, Instant(0));
            self.lsps.all[number as usize].due = NEVER;
        }
        self.deadlines = Deadlines::default();
    }

    fn run_jobs(&mut self, now: Instant, room: &mut usize, out: &mut Output<'_>) {
        let gateway = IpAddr::from(self.neighbours.list[0].address);
        self.waits = !self.jobs.is_empty() && out.neighbours().mac(gateway).is_none();
        for at in 0..if self.waits { 0 } else { self.jobs.len() } {
            while self.jobs[at].due() <= now && *room > 0 {
                let job = &mut self.jobs[at];
                let Some(number) = job.lsps.next() else { break };
                job.started.get_or_insert(now);
                job.done += 1;
                let sent = match job.action {
                    Action::SetUp => self.set_up(number, now, out),
                    Action::Tear => self.tear(number, now, out),
                    Action::Renew(neighbour) => self.renew(number, neighbour, now, out),
                };
                // LSPs without a message also count a little, so that a poll ends.
                *room = room.saturating_sub(sent.max(8));
                self.deadlines.schedule(number, &mut self.lsps.all);
            }
        }
        self.jobs.retain(|job| !job.lsps.is_empty());
    }

    fn greet(&mut self, now: Instant, out: &mut Output<'_>) {
        let Some(interval) = self.config.hello.as_ref().map(|hello| hello.interval) else { return };
        if self.neighbours.lost_at(0, interval) <= now && self.hello_due != NEVER {
            self.neighbours.lose(0);
            self.neighbour_down(0);
        }
        if self.hello_due <= now {
            if !self.neighbours.requests(0, now, interval) {
                self.neighbours.hello(0, true, out);
            }
            self.hello_due = now + interval;
        }
    }

    /// Restarts the LSPs of a neighbour that has restarted or is lost.
    fn neighbour_down(&mut self, neighbour: usize) {
        self.counts.lost_neighbours += 1;
        // Repeated restarts of a neighbour must not pile up work.
        self.jobs.retain(|job| job.action != Action::Renew(neighbour));
        self.jobs.push_back(Job::new(Action::Renew(neighbour), 0..self.lsps.all.len() as u32, 0));
    }

    fn count_error(&mut self, kind: ErrorKind) {
        if self.errors.len() < MOST_ERRORS || self.errors.contains_key(&kind) {
            *self.errors.entry(kind).or_default() += 1;
        } else {
            self.counts.errors_uncounted += 1;
        }
    }
}

impl Protocol for Rsvp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self) -> &[Match] {
        &MATCHES
    }

    fn receive(&mut self, now: Instant, input: Input<'_>, out: &mut Output<'_>) {
        match input {
            Input::Packet(packet) if self.running => self.take(now, &packet, out),
            Input::Neighbour(_) => self.waits = false,
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant, budget: usize, out: &mut Output<'_>) {
        self.work(now, budget, out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let jobs = self.jobs.iter().filter(|_| !self.waits).map(Job::due).min();
        let chunk = self.chunks.peek().map(|Reverse((at, _))| *at);
        let hello = self.config.hello.as_ref().filter(|_| self.hello_due != NEVER);
        let hello = hello.map(|hello| self.hello_due.min(self.neighbours.lost_at(0, hello.interval)));
        let times = [jobs, self.deadlines.next(), chunk, hello, Some(self.neighbours.soon())];
        times.into_iter().flatten().min().filter(|at| *at != NEVER)
    }

    fn command(&mut self, now: Instant, command: &Command) -> Result<(), Refused> {
        let (ingress, all) = (self.lsps.ingress_count, self.lsps.all.len() as u32);
        let command = match command {
            Command::Start if self.running => return Ok(()),
            Command::Start => {
                self.running = true;
                // Neighbours recognize a restart of the device by these two numbers.
                let life = Jitter::new(self.seed.wrapping_add(now.0), self.config.refresh, 0).random();
                let epoch = life as u32 & 0xff_ffff;
                self.epoch = if epoch == self.epoch { epoch ^ 1 } else { epoch };
                self.neighbours.begin_life((life >> 32) as u32);
                self.hello_due = if self.config.hello.is_some() { now } else { NEVER };
                return Ok(());
            }
            Command::Stop => {
                self.running = false;
                self.jobs.clear();
                return self.add_job(Job::new(Action::Tear, 0..all, 0));
            }
            Command::Rsvp(command) => command,
            _ => return Err(Refused::unknown(NAME)),
        };
        if !self.running {
            return Err(Refused::new(NAME, "RSVP is stopped: send `Start` first"));
        }
        let (action, pace, first, end) = match command {
            RsvpCommand::SetUp(pace) => (Action::SetUp, pace, 0, ingress),
            RsvpCommand::TearDown(pace) => (Action::Tear, pace, 0, ingress),
            RsvpCommand::Release(pace) => (Action::Tear, pace, ingress, all),
        };
        if pace.lsps.end > end - first || pace.lsps.start > pace.lsps.end {
            let reason = format!("there are no LSPs {:?}: the device has {}, numbered from 0", pace.lsps, end - first);
            return Err(Refused::new(NAME, reason));
        }
        self.add_job(Job::new(action, first + pace.lsps.start..first + pace.lsps.end, pace.per_second))
    }

    fn state(&self) -> State {
        let (n, c) = (&self.neighbours, &self.counts);
        let mut counters = vec![
            ("malformed", c.malformed),
            ("unknown_objects", c.unknown_objects),
            ("out_of_order", c.out_of_order),
            ("acks_received", c.acks_received),
            ("nacks_received", c.nacks_received),
            ("nacks_sent", c.nacks_sent),
            ("retransmissions", c.retransmissions),
            ("summary_ids_sent", c.summary_ids_sent),
            ("summary_ids_received", c.summary_ids_received),
            ("timeouts", c.timeouts),
            ("lost_neighbours", c.lost_neighbours),
            ("neighbours_refused", n.refused),
            ("foreign_refused", c.foreign_refused),
            ("errors_uncounted", c.errors_uncounted),
            ("unresolved", n.unresolved),
            ("lsps_lost", self.lsps.lost),
            ("bytes_sent", n.bytes_sent),
            ("bytes_received", n.bytes_received),
        ];
        for (kind, sent, received) in MESSAGES {
            counters.extend([(sent, n.sent[usize::from(kind)]), (received, n.received[usize::from(kind)])]);
        }
        State { sessions: self.lsps.ranged, up: self.lsps.up, counters }
    }
}

/// Types of messages, and the names of their counters.
const MESSAGES: [(u8, &str, &str); 11] = [
    (kind::PATH, "path_sent", "path_received"),
    (kind::RESV, "resv_sent", "resv_received"),
    (kind::PATH_ERR, "path_err_sent", "path_err_received"),
    (kind::RESV_ERR, "resv_err_sent", "resv_err_received"),
    (kind::PATH_TEAR, "path_tear_sent", "path_tear_received"),
    (kind::RESV_TEAR, "resv_tear_sent", "resv_tear_received"),
    (kind::RESV_CONF, "resv_conf_sent", "resv_conf_received"),
    (kind::BUNDLE, "bundle_sent", "bundle_received"),
    (kind::ACK, "ack_sent", "ack_received"),
    (kind::SREFRESH, "srefresh_sent", "srefresh_received"),
    (kind::HELLO, "hello_sent", "hello_received"),
];
