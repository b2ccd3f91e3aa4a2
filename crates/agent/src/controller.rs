//! The controller: leases ports of agents, and runs trials on them.

mod collect;
mod compare;

use self::compare::Compared;
use crate::Problem;
use crate::captures;
use crate::clock::{Domain, Offset, steady_ns};
use crate::find::{Host, find};
use crate::heard::Heard;
use crate::leases::{end, keep, take_from_dead};
use crate::link::{Access, LIFE, Link, patiently};
use crate::message::{
    Announcement, Beat, LARGEST, Lease, Loan, Over, PROTOCOL, PortFacts, Reply, Request, State, What, decode, encode,
    lease_key, pack, unpack,
};
use async_nats::Request as NatsRequest;
use drophammer_model::Instant;
use drophammer_model::trial::PortIndex;
use drophammer_port::{Clock, PortError, SystemClock};
use drophammer_rig::{Arriving, CaptureOrder, Captured, Far, FarPorts, Job, Lender, News, Refusals, Relayed, Wish};
use futures_util::StreamExt;
use futures_util::future::{join_all, try_join_all};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How a controller works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The server.
    pub access: Access,
    /// The holder that messages name.
    pub holder: String,
    /// Version of the program. Agents must have the same version.
    pub version: String,
    /// Traffic of agents stops if they hear nothing of the controller for this long.
    pub silence: Duration,
    /// The steady clock of this host.
    pub clock: Domain,
    /// True if frames of the ports may be captured.
    pub captures: bool,
}

/// Longest time between heartbeats of the controller; a short `silence` shortens it.
const BEAT: Duration = Duration::from_millis(100);
/// During a trial, the controller looks this many times per heartbeat whether hosts need one earlier.
const LOOKS: u32 = 5;
/// What to do about a host that is gone. A server whose disk is full can stop to answer, instead of saying so.
const REMEDY: &str = "see that the agent and the server run, and that the server has room on its disk";
/// A host that has sent nothing for this long counts as gone.
const GONE: Duration = Duration::from_secs(3);
/// How long an agent may take to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// How long an agent may take to open ports, plan a trial or store reports.
const LONG: Duration = Duration::from_secs(20);
/// How long to wait for reports after the user has stopped.
const HURRY: Duration = Duration::from_secs(3);
/// How often to ask whether the user has stopped.
const STOP: Duration = Duration::from_millis(50);
/// How long to wait before a trial for hosts that cannot be reached.
const RETURN: Duration = Duration::from_secs(45);
/// How often to try to reach them.
const AGAIN: Duration = Duration::from_millis(500);
/// Time from ordering a start to the start itself. The order must reach all hosts within it.
const LEAD: Duration = Duration::from_millis(200);
const LONGEST_LEAD: Duration = Duration::from_secs(3);
/// Limit of device frames that wait to be passed on.
const WAITING: usize = 4096;
/// How long an agent may take to store captured frames.
const TO_STORE: Duration = Duration::from_secs(120);
/// Most requests of users in one message, and most numbers of flows in them.
const WISHES: usize = 1024;
const FLOWS: usize = 100_000;
/// Limit of frame bytes in one message.
const BATCH: usize = 64 << 10;

/// A connection to agents.
pub struct Controller {
    runtime: Arc<Runtime>,
    link: Link,
    settings: Settings,
}

/// Agents and leases, each with its name.
pub type Inventory = (Vec<(String, Announcement)>, Vec<(String, Lease)>);

impl Controller {
    /// Connects to the server. All sockets, including those of later reconnections, are in the network namespace of the
    /// calling thread.
    ///
    /// # Errors
    /// The cause and the remedy.
    pub fn connect(settings: Settings) -> Result<Controller, Problem> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = Arc::new(runtime.map_err(|e| Problem::of("the threads of the connection", e))?);
        let (access, name) = (settings.access.clone(), format!("drophammer {}", settings.holder));
        let captures = settings.captures;
        let connected = runtime.spawn(async move {
            let link = Link::connect(&access, &name).await?;
            link.prepare().await?;
            if captures {
                link.prepare_captures().await?;
            }
            Ok::<_, Problem>(link)
        });
        let link = runtime.block_on(connected).map_err(|e| Problem::of("the connection", e))??;
        Ok(Controller { runtime, link, settings })
    }

    /// Returns the agents and the leases, each with its name.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn inventory(&self) -> Result<Inventory, Problem> {
        self.runtime.block_on(async { Ok((self.link.announced().await?, self.link.leased().await?)) })
    }
}

impl Lender for Controller {
    fn open(&self, names: &[String], clock: SystemClock) -> Result<FarPorts, String> {
        let (mut bond, facts) = Bond::make(self, names, clock).map_err(|e| e.0)?;
        let mut ports = Vec::new();
        let (down, frames) = mpsc::channel(WAITING);
        let mut arriving = Vec::new();
        for (port, name) in names.iter().enumerate() {
            let info = facts[port].info(name)?;
            let down = down.clone();
            let send = move |frame: &[u8]| down.try_send((port, frame.to_vec())).is_ok();
            let (relayed, end) = Relayed::new(info, send).map_err(|e| format!("{name}: {e}"))?;
            ports.push(relayed);
            arriving.push(end);
        }
        bond.pass_frames(frames, arriving).map_err(|e| e.0)?;
        Ok(FarPorts { ports, clock, far: Box::new(bond) })
    }
}

/// Leased ports.
struct Bond {
    runtime: Arc<Runtime>,
    link: Link,
    settings: Settings,
    lease: Lease,
    hosts: Vec<Host>,
    all: usize,
    clock: SystemClock,
    /// The clocks when the ports were opened; one per clock.
    offsets: Vec<Offset>,
    /// The clocks when the trial was planned, and when that was.
    before: (Compared, std::time::Instant),
    /// The largest uncertainty of each clock since the trial began.
    uncertain: Vec<u64>,
    keys: Arc<Mutex<Vec<(String, u64)>>>,
    heard: Arc<Mutex<Heard>>,
    /// Number of the last request that must not be carried out late.
    number: AtomicU64,
    attempt: u64,
    /// True if a host may have started the attempt.
    launched: bool,
    /// Requests of users for each host, with their attempts.
    wishes: Vec<mpsc::UnboundedSender<(u64, Wish)>>,
    /// For each port, the number of the request that started its capture.
    captures: BTreeMap<PortIndex, u64>,
    /// [`LEAD`], or more after a host was not ready in time.
    lead: Duration,
    tasks: JoinSet<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bond {
    /// Leases ports and has them opened. After an error, it holds no lease.
    fn make(controller: &Controller, names: &[String], clock: SystemClock) -> Result<(Bond, Vec<PortFacts>), Problem> {
        let Controller { runtime, link, settings } = controller;
        let hosts = runtime.block_on(find(link, settings, names))?;
        let clocks = hosts.iter().map(|host| host.clock).max().unwrap_or(0) + 1;
        let random = || RandomState::new().hash_one(steady_ns());
        let lease = Lease { id: format!("{:016x}{:016x}", random(), random()), holder: settings.holder.clone() };
        let heard = Heard { states: vec![None; hosts.len()], ..Heard::default() };
        let mut bond = Bond {
            runtime: runtime.clone(),
            link: link.clone(),
            settings: settings.clone(),
            lease,
            hosts,
            all: names.len(),
            clock,
            offsets: vec![Offset::NONE; clocks],
            before: (Compared::default(), std::time::Instant::now()),
            uncertain: vec![0; clocks],
            keys: Arc::default(),
            heard: Arc::new(Mutex::new(heard)),
            number: AtomicU64::new(0),
            attempt: 0,
            launched: false,
            wishes: Vec::new(),
            captures: BTreeMap::new(),
            lead: LEAD,
            tasks: JoinSet::new(),
        };
        let facts = runtime.block_on(async {
            bond.take_leases().await?;
            bond.listen().await?;
            let failed = "the ports cannot be opened";
            bond.offsets = patiently(failed, || bond.compare()).await?.offsets;
            patiently(failed, || bond.lend_all()).await
        });
        Ok((bond, facts?))
    }

    /// Takes the leases of all ports, or of none.
    async fn take_leases(&mut self) -> Result<(), Problem> {
        let bucket = self.link.leases().await?;
        // The first leases must not expire while the last ones are taken.
        let (keys, heard, lease) = (self.keys.clone(), self.heard.clone(), self.lease.clone());
        let kept = bucket.clone();
        let keep = async move {
            let lost = keep(kept, keys, lease).await;
            locked(&heard).lost = Some(lost);
        };
        self.tasks.spawn_on(keep, self.runtime.handle());
        // One after the other, so that of two runs of the same suite, one gets all of them.
        for host in &self.hosts {
            for (interface, _) in &host.ports {
                let key = lease_key(&host.name, interface);
                match take_from_dead(&bucket, &key, &self.lease).await? {
                    Ok(revision) => locked(&self.keys).push((key, revision)),
                    Err(held) => {
                        return Err(Problem(format!(
                            "{}/{interface} is held by {}; wait until it is free, or use another port (a lease ends {} s \
                             after its holder does)",
                            host.name,
                            held.holder,
                            LIFE.as_secs()
                        )));
                    }
                }
            }
        }
        Ok(())
    }

    /// Starts sending heartbeats and receiving the states of hosts.
    async fn listen(&mut self) -> Result<(), Problem> {
        let states = self.link.client.subscribe(format!("drophammer.state.{}", self.lease.id)).await;
        let mut states = states.map_err(|e| Problem::of("the server", e))?;
        let (heard, hosts) = (self.heard.clone(), self.hosts.len());
        let hear = async move {
            while let Some(message) = states.next().await {
                if let Ok(state) = decode::<State>(&message.payload)
                    && state.host < hosts
                {
                    let host = state.host;
                    locked(&heard).states[host] = Some((std::time::Instant::now(), state));
                }
            }
        };
        self.tasks.spawn_on(hear, self.runtime.handle());
        let (client, subject) = (self.link.client.clone(), format!("drophammer.beat.{}", self.lease.id));
        let (clock, every, heard) = (self.clock, self.beat(), self.heard.clone());
        let beat = async move {
            let mut told = None;
            loop {
                let running = locked(&heard).running();
                if told.is_none_or(|(at, known): (std::time::Instant, _)| known != running || at.elapsed() >= every) {
                    let beat = Beat { sent_ns: clock.now().0, running };
                    let _ = client.publish(subject.clone(), encode(&beat).into()).await;
                    told = Some((std::time::Instant::now(), running));
                }
                tokio::time::sleep(if running.is_some() { every / LOOKS } else { every }).await;
            }
        };
        self.tasks.spawn_on(beat, self.runtime.handle());
        for number in 0..self.hosts.len() {
            let (wish, wishes) = mpsc::unbounded_channel();
            self.wishes.push(wish);
            self.tasks.spawn_on(self.pass_wishes(number, wishes), self.runtime.handle());
        }
        Ok(())
    }

    /// Returns the time between heartbeats: several fit into the silence that stops traffic.
    fn beat(&self) -> Duration {
        (self.settings.silence / 10).min(BEAT)
    }

    /// Passes requests of users on to a host in their order, because a start and a stop must not be swapped. Those that wait go together,
    /// because each has its time.
    fn pass_wishes(
        &self,
        number: usize,
        mut wishes: mpsc::UnboundedReceiver<(u64, Wish)>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (link, name, heard) = (self.link.clone(), self.hosts[number].name.clone(), self.heard.clone());
        let lease = self.lease.id.clone();
        async move {
            let mut next = None;
            while let Some((attempt, wish)) = match next.take() {
                Some(next) => Some(next),
                None => wishes.recv().await,
            } {
                let (mut all, mut flows) = (vec![wish], 0);
                while all.len() < WISHES && flows < FLOWS && next.is_none() {
                    match wishes.try_recv() {
                        Ok((same, wish)) if same == attempt => {
                            flows += if let Wish::Transmit { flows, .. } = &wish { flows.len() } else { 0 };
                            all.push(wish);
                        }
                        Ok(other) => next = Some(other),
                        Err(_) => break,
                    }
                }
                let request = Request { lease: lease.clone(), what: What::Wishes { attempt, wishes: all } };
                let why = match ask(&link, &name, &request, ANSWER).await {
                    Ok(Reply::Refused(why)) => format!("agent {name}: {why}"),
                    Ok(Reply::NotLent) => format!("agent {name} no longer lends it"),
                    Ok(_) => continue,
                    Err(e) => e.to_string(),
                };
                locked(&heard).unfulfilled = Some((attempt, number, why));
            }
        }
    }

    /// Starts passing frames of the devices in both directions.
    fn pass_frames(
        &mut self,
        mut frames: mpsc::Receiver<(PortIndex, Vec<u8>)>,
        arriving: Vec<Arriving>,
    ) -> Result<(), Problem> {
        let subscribed = self.link.client.subscribe(format!("drophammer.up.{}", self.lease.id));
        let mut up = self.runtime.block_on(subscribed).map_err(|e| Problem::of("the server", e))?;
        let take_up = async move {
            while let Some(message) = up.next().await {
                for (port, at_ns, frame) in unpack(&message.payload) {
                    if let Some(arriving) = arriving.get(port) {
                        arriving.put(Instant(at_ns), frame);
                    }
                }
            }
        };
        self.tasks.spawn_on(take_up, self.runtime.handle());
        let (client, lease) = (self.link.client.clone(), self.lease.id.clone());
        let mut host_of = vec![0; self.all];
        for (number, host) in self.hosts.iter().enumerate() {
            host.ports.iter().for_each(|(_, port)| host_of[*port] = number);
        }
        let pass_down = async move {
            while let Some(first) = frames.recv().await {
                let mut batches: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
                let mut next = Some(first);
                let mut size = 0;
                while let Some((port, frame)) = next {
                    pack(batches.entry(host_of[port]).or_default(), port, 0, &frame);
                    size += frame.len();
                    next = if size < BATCH { frames.try_recv().ok() } else { None };
                }
                for (host, batch) in batches {
                    let _ = client.publish(format!("drophammer.down.{lease}.{host}"), batch.into()).await;
                }
            }
        };
        self.tasks.spawn_on(pass_down, self.runtime.handle());
        Ok(())
    }

    /// Returns the host of a port.
    fn host_of(&self, port: PortIndex) -> Option<&Host> {
        self.hosts.iter().find(|host| host.ports.iter().any(|(_, own)| *own == port))
    }

    fn lost(&self, host: &Host, why: impl std::fmt::Display) -> PortError {
        failed(host, std::io::Error::other(format!("{why}")))
    }

    /// Asks an agent, and returns its reply.
    async fn request(&self, host: &Host, what: What, patience: Duration) -> Result<Reply, PortError> {
        let request = Request { lease: self.lease.id.clone(), what };
        let asked = ask(&self.link, &host.name, &request, patience);
        if patience <= ANSWER {
            return asked.await.map_err(|e| failed(host, e));
        }
        // A request can get lost with the connection, so give up as soon as the host no longer answers.
        tokio::select! {
            reply = asked => reply.map_err(|e| failed(host, e)),
            gone = self.gone(host) => Err(failed(host, gone)),
        }
    }

    /// Returns once the host no longer answers.
    async fn gone(&self, host: &Host) -> std::io::Error {
        let question = Request { lease: String::new(), what: What::Time };
        loop {
            tokio::time::sleep(AGAIN).await;
            if let Err(e) = ask(&self.link, &host.name, &question, ANSWER).await {
                return e;
            }
        }
    }

    /// Like [`Bond::request`], but a refusal is an error.
    async fn demand(&self, host: &Host, what: What, patience: Duration) -> Result<Reply, PortError> {
        match self.request(host, what, patience).await? {
            Reply::Refused(why) => Err(self.lost(host, format!("agent {}: {why}", host.name))),
            Reply::NotLent => Err(self.lost(host, format!("agent {} no longer lends it", host.name))),
            reply => Ok(reply),
        }
    }

    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed) + 1
    }

    async fn lend(&self, number: usize) -> Result<Vec<PortFacts>, PortError> {
        let host = &self.hosts[number];
        let origin_ns = self.clock.origin_ns() as i64 + self.offsets[host.clock].ns;
        let loan = Loan {
            version: self.settings.version.clone(),
            protocol: PROTOCOL,
            number: self.next_number(),
            host: number,
            ports: host.ports.clone(),
            all: self.all,
            origin_ns,
            // A margin for clock errors and for threads that wait for a processor.
            silence_ms: self.settings.silence.saturating_sub(self.beat() * 2).as_millis() as u64,
            captures: self.settings.captures,
        };
        match self.demand(host, What::Lend(loan), LONG).await? {
            Reply::Lent(facts) if facts.len() == host.ports.len() => Ok(facts),
            _ => Err(self.lost(host, format!("agent {} did not open all ports", host.name))),
        }
    }

    /// Has the ports of all hosts opened. Returns the facts about each port.
    async fn lend_all(&self) -> Result<Vec<PortFacts>, PortError> {
        let lent = try_join_all((0..self.hosts.len()).map(|host| self.lend(host))).await?;
        let mut facts: Vec<Option<PortFacts>> = vec![None; self.all];
        for (host, lent) in self.hosts.iter().zip(lent) {
            host.ports.iter().zip(lent).for_each(|((_, port), found)| facts[*port] = Some(found));
        }
        Ok(facts.into_iter().flatten().collect())
    }

    /// Plans a trial on all hosts, and starts it.
    async fn start(&mut self, job: &Job) -> Result<Instant, PortError> {
        if let Some(why) = locked(&self.heard).lost.clone() {
            return Err(self.lost(&self.hosts[0], why));
        }
        self.attempt += 1;
        self.launched = false;
        let compared = self.compare().await?;
        let now = &compared.offsets;
        // A clock that has drifted away, or was set, is set again.
        if now.iter().zip(&self.offsets).any(|(now, then)| now.has_moved_since(*then, Duration::ZERO)) {
            self.offsets.clone_from(now);
            self.lend_all().await?;
        }
        self.uncertain = now.iter().zip(&self.offsets).map(|(now, then)| now.uncertainty_since(*then)).collect();
        self.before = (compared, std::time::Instant::now());
        let bond = &*self;
        let plan = |number: usize| async move {
            let host = &bond.hosts[number];
            let plan = || What::Plan { attempt: bond.attempt, job: Box::new(job.clone()) };
            // The agent may have been restarted, may have given up the controller, or its ports may have failed.
            let mut reply = bond.request(host, plan(), LONG).await?;
            if !matches!(reply, Reply::Done | Reply::Impossible(_)) {
                bond.lend(number).await?;
                reply = bond.demand(host, plan(), LONG).await?;
            }
            match reply {
                Reply::Impossible(why) => {
                    Err(failed(host, std::io::Error::new(IMPOSSIBLE, format!("agent {}: {why}", host.name))))
                }
                _ => Ok(()),
            }
        };
        try_join_all((0..bond.hosts.len()).map(plan)).await?;
        // States received before a host's answer are about an earlier attempt, and the answer itself shows that the
        // host is alive.
        let answered = std::time::Instant::now();
        {
            let mut heard = locked(&bond.heard);
            heard.states.iter_mut().flatten().for_each(|(at, state)| (*at, state.over) = (answered, None));
            heard.running = Some(self.attempt);
        }
        self.launched = true;
        let bond = &*self;
        let early = Duration::from_nanos(bond.apart_ns());
        let at = self.clock.now() + self.lead + early;
        let start = What::Start { attempt: bond.attempt, at_ns: at.0, early_ns: early.as_nanos() as u64 };
        try_join_all(bond.hosts.iter().map(|host| bond.demand(host, start.clone(), ANSWER))).await?;
        Ok(at)
    }

    /// Returns how far the clocks of two hosts may be apart, in ns.
    fn apart_ns(&self) -> u64 {
        // Each of them is compared with the own one.
        self.uncertain.iter().max().copied().unwrap_or(0).saturating_mul(2)
    }
}

fn failed(host: &Host, source: std::io::Error) -> PortError {
    let interface = host.ports.first().map_or("", |(interface, _)| interface);
    PortError::Lost { interface: format!("{}/{interface}", host.name), source }
}

/// Kind of the error if a host cannot plan a trial, or cannot be asked to. Waiting does not help then.
const IMPOSSIBLE: std::io::ErrorKind = std::io::ErrorKind::InvalidInput;

fn is_impossible(error: &PortError) -> bool {
    matches!(error, PortError::Lost { source, .. } if source.kind() == IMPOSSIBLE)
}

async fn ask(link: &Link, host: &str, request: &Request, patience: Duration) -> std::io::Result<Reply> {
    let other = std::io::Error::other::<String>;
    let bytes = encode(request);
    if bytes.len() > LARGEST {
        let size = bytes.len();
        let why = format!("a request to agent {host} has {size} bytes, more than {LARGEST}; use fewer flows or routes");
        return Err(std::io::Error::new(IMPOSSIBLE, why));
    }
    let request = NatsRequest::new().payload(bytes.into()).timeout(Some(patience));
    let reply = link.client.send_request(format!("drophammer.agent.{host}"), request).await;
    let reply = reply.map_err(|e| other(format!("agent {host} does not answer: {e}; {REMEDY}")))?;
    decode(&reply.payload).map_err(|e| other(format!("agent {host}: {e}")))
}

/// Returns what `work` returns, or `None` if it does not return within `more` after `stopped` has returned true.
async fn unless_stopped<T>(work: impl Future<Output = T>, stopped: &dyn Fn() -> bool, more: Duration) -> Option<T> {
    let stop = async {
        while !stopped() {
            tokio::time::sleep(STOP).await;
        }
        tokio::time::sleep(more).await;
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = stop => None,
    }
}

impl Far for Bond {
    fn hosts(&self) -> usize {
        self.hosts.len()
    }

    fn begin(&mut self, job: &Job, stopped: &dyn Fn() -> bool) -> Result<Option<Instant>, PortError> {
        let runtime = self.runtime.clone();
        let begun = std::time::Instant::now();
        loop {
            // After a stop the caller abandons what was planned or started until then.
            let started = runtime.block_on(unless_stopped(self.start(job), stopped, Duration::ZERO));
            let Some(started) = started else { return Ok(None) };
            match started {
                // A host that was restarted or lost its network has some time to come back. But once a host has started
                // an attempt, its frames could be counted in the next attempt, which therefore needs its own key.
                Err(e) if !self.launched && begun.elapsed() < RETURN && locked(&self.heard).lost.is_none() => {
                    self.abandon();
                    if is_impossible(&e) || begun.elapsed() + AGAIN >= RETURN {
                        return Err(e);
                    }
                    std::thread::sleep(AGAIN);
                }
                other => return other.map(Some),
            }
        }
    }

    fn ask(&mut self, wish: &Wish) -> Result<(), PortError> {
        let attempt = self.attempt;
        if *wish != Wish::Count {
            // The tasks that receive them live as long as this object.
            self.wishes.iter().for_each(|host| _ = host.send((attempt, wish.clone())));
            return Ok(());
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let what = What::Wishes { attempt, wishes: vec![wish.clone()] };
            let request = Request { lease: self.lease.id.clone(), what };
            let (link, name, heard) = (self.link.clone(), host.name.clone(), self.heard.clone());
            self.runtime.spawn(async move {
                // If there is no answer, the display simply shows nothing new.
                if let Ok(Reply::Counts(counts)) = ask(&link, &name, &request, ANSWER).await {
                    locked(&heard).counts.push_back((attempt, number, counts));
                }
            });
        }
        Ok(())
    }

    fn news(&mut self, stopped: &dyn Fn() -> bool) -> Result<Option<News>, PortError> {
        let mut heard = locked(&self.heard);
        while let Some((attempt, host, counts)) = heard.counts.pop_front() {
            if attempt == self.attempt {
                return Ok(Some(News::Counts(host, counts)));
            }
        }
        if let Some((_, host, why)) = heard.unfulfilled.as_ref().filter(|(attempt, ..)| *attempt == self.attempt) {
            return Err(self.lost(&self.hosts[*host], why));
        }
        if let Some(why) = heard.lost.clone() {
            return Err(self.lost(&self.hosts[0], why));
        }
        let (mut refusals, mut waited, mut stolen) = (Refusals::default(), Some(0), None::<u64>);
        let (mut lost, mut ended) = (0u64, 0);
        for (host, state) in self.hosts.iter().zip(&heard.states) {
            let Some((at, state)) = state else { continue };
            if at.elapsed() > GONE {
                let silent = at.elapsed().as_secs_f64();
                return Err(self.lost(host, format!("agent {} was not heard for {silent:.1} s; {REMEDY}", host.name)));
            }
            match &state.over {
                Some(Over::Failed(why)) if [self.attempt, 0].contains(&state.attempt) => {
                    return Err(self.lost(host, format!("agent {}: {why}", host.name)));
                }
                Some(Over::Good { refusals, .. }) if !refusals.is_sound() => {
                    return Err(self.lost(host, format!("agent {} names impossible frames", host.name)));
                }
                Some(Over::Good { refusals: own, waited_ns, stolen_ns, lost: own_lost })
                    if state.attempt == self.attempt =>
                {
                    refusals.join(own.clone());
                    waited = waited.zip(*waited_ns).map(|(most, own): (u64, u64)| most.max(own));
                    stolen = stolen.max(*stolen_ns);
                    lost = lost.saturating_add(*own_lost);
                    ended += 1;
                }
                _ => {}
            }
        }
        drop(heard);
        if ended < self.hosts.len() {
            return Ok(None);
        }
        let runtime = self.runtime.clone();
        let collected = unless_stopped(self.collect(refusals, [waited, stolen], lost), stopped, HURRY);
        Ok(Some(match runtime.block_on(collected) {
            Some(result) => News::Over(Box::new(result?)),
            None => News::Stopped,
        }))
    }

    fn abandon(&mut self) {
        let what = What::Abandon { attempt: self.attempt };
        locked(&self.heard).running = None;
        self.attempt += 1;
        self.lead = (self.lead * 2).min(LONGEST_LEAD);
        for host in &self.hosts {
            let request = Request { lease: self.lease.id.clone(), what: what.clone() };
            let (link, name) = (self.link.clone(), host.name.clone());
            // An agent that does not receive this stops by itself.
            self.runtime.spawn(async move { ask(&link, &name, &request, ANSWER).await });
        }
    }

    fn set_link(&mut self, port: PortIndex, up: bool) -> Result<(), PortError> {
        let Some(host) = self.host_of(port) else { return Ok(()) };
        // The kernel switches one link at a time, on the whole machine.
        let what = What::Link { number: self.next_number(), port, up };
        self.runtime.block_on(self.demand(host, what, LONG)).map(drop)
    }

    fn has_carrier(&mut self, port: PortIndex) -> Result<bool, PortError> {
        let Some(host) = self.host_of(port) else { return Ok(true) };
        let reply = self.runtime.block_on(self.demand(host, What::Carrier(port), ANSWER))?;
        Ok(reply != Reply::Carrier(false))
    }

    fn capture(&mut self, port: PortIndex, order: &CaptureOrder) -> Result<(), PortError> {
        let Some(host) = self.host_of(port) else { return Ok(()) };
        let number = self.next_number();
        let what = What::Capture { number, port, order: order.clone() };
        self.runtime.block_on(self.demand(host, what, ANSWER))?;
        if let CaptureOrder::Start { .. } = order {
            self.captures.insert(port, number);
        }
        Ok(())
    }

    fn captured(&mut self, port: PortIndex) -> Result<Captured, PortError> {
        let known = self.host_of(port).zip(self.captures.get(&port));
        let Some((host, started)) = known else {
            return Err(self.lost(&self.hosts[0], format!("no capture of port {port} was started")));
        };
        let (link, name) = (self.link.clone(), host.name.clone());
        let what = What::Captured { number: self.next_number(), started: *started, port };
        let request = Request { lease: self.lease.id.clone(), what };
        let (file, captured) = std::sync::mpsc::channel();
        self.runtime.spawn(async move {
            let of_agent = |why: String| Problem(format!("agent {name}: {why}"));
            let fetched = match ask(&link, &name, &request, TO_STORE).await {
                Ok(Reply::Captured(object, bytes)) => {
                    captures::fetch(&link, &object, bytes).await.map_err(|e| of_agent(e.to_string()))
                }
                Ok(Reply::Refused(why)) => Err(of_agent(why)),
                Ok(_) => Err(of_agent("it no longer lends the port".into())),
                Err(e) => Err(Problem(e.to_string())),
            };
            let _ = file.send(fetched.map_err(|e| e.to_string()));
        });
        Ok(captured)
    }
}

impl Drop for Bond {
    fn drop(&mut self) {
        let runtime = self.runtime.clone();
        self.tasks.abort_all();
        let keys = locked(&self.keys).clone();
        let returned = async {
            let patience = Duration::from_secs(2);
            let give_back = self.hosts.iter().map(|host| self.request(host, What::Return, patience));
            let _ = timeout(patience, join_all(give_back)).await;
            let end_all = async {
                let Ok(bucket) = self.link.leases().await else { return };
                join_all(keys.iter().map(|(key, _)| end(&bucket, key, &self.lease))).await;
            };
            let _ = timeout(LIFE, end_all).await;
        };
        // Inside the runtime nothing may block; the leases then expire by themselves.
        if tokio::runtime::Handle::try_current().is_err() {
            runtime.block_on(returned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[test]
    fn a_user_who_stops_ends_the_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let hour = Duration::from_secs(3_600);
        let waited = runtime.block_on(unless_stopped(pending::<()>(), &|| true, Duration::from_millis(1)));
        assert_eq!(waited, None);
        let asked = std::cell::Cell::new(0);
        let at_the_third = || asked.replace(asked.get() + 1) == 2;
        assert_eq!(runtime.block_on(unless_stopped(pending::<()>(), &at_the_third, Duration::ZERO)), None);
        assert_eq!(asked.get(), 3);
        // What is there in time counts.
        assert_eq!(runtime.block_on(unless_stopped(ready(7), &|| true, Duration::ZERO)), Some(7));
        let soon = async { tokio::time::sleep(Duration::from_millis(10)).await };
        assert_eq!(runtime.block_on(unless_stopped(soon, &|| true, hour)), Some(()));
    }
}
