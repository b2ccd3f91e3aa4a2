//! The agent: lends the interfaces of its host.

use crate::Problem;
use crate::captures::{PortCapture, store};
use crate::chrony::wall;
use crate::clock::{Domain, steady_ns};
use crate::link::{Access, LIFE, Link, RENEW, patiently};
use crate::message::{
    Announcement, Beat, LARGEST_REPORTS, Lease, Loan, MOST_PORTS, Over, PART, PROTOCOL, Reply, Request, State, Stored,
    What, decode, encode, fits, is_host_name, lease_key, pack, speed_mbps, unpack,
};
use crate::trial::Trial;
use crate::worker::{Work, Worker};
use async_nats::jetstream::kv::{CreateErrorKind, UpdateErrorKind};
use async_nats::{HeaderMap, Message};
use drophammer_model::Instant;
use drophammer_model::trial::PortIndex;
use drophammer_port::{Backend, Clock, unplugged};
use drophammer_rig::{Agreed, FlowSelect, Live, Standing, TransmitError, Wish};
use futures_util::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// How an agent works.
#[derive(Clone)]
pub struct Options {
    /// The server.
    pub access: Access,
    /// Name of this host in suites.
    pub name: String,
    /// Interfaces that it may lend.
    pub ports: Vec<String>,
    /// Backend that drives the interfaces.
    pub backend: &'static Backend,
    /// Queues of each interface.
    pub queues: u32,
    /// Processors for the threads that drive the interfaces, one thread each. If empty, one thread runs on any
    /// processor.
    pub processors: Vec<usize>,
    /// Version of the program. The controller must have the same version.
    pub version: String,
    /// The steady clock of this host.
    pub clock: Domain,
}

/// How often a host looks at its state, during a trial and between trials. It publishes a change at once, and the state again
/// after the longer time.
const TELL: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];
/// Limit of device frames that wait to be passed on. Frames beyond it are lost and counted.
const WAITING: usize = 4096;
/// Limit of frame bytes in one message.
const BATCH: usize = 64 << 10;
/// How much earlier than its effect an order to flows must arrive, so that all lanes see it in time.
const IN_TIME: Duration = Duration::from_millis(5);
/// How long a lane may take to switch a link.
const BY_LANE: Duration = Duration::from_secs(1);
/// What to do if the server does not store.
const NO_ROOM: &str = "see the log of the server: if its disk is full, make room and start it again";

/// Lends ports until `stop` is true.
///
/// # Errors
/// The options are wrong, or the server cannot be reached at the start. Later the agent reconnects by itself.
pub fn run(options: Options, stop: &dyn Fn() -> bool, told: &dyn Fn(&str)) -> Result<(), Problem> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| Problem::of("the agent cannot start its threads", e))?;
    let ended = runtime.block_on(serve(options, stop, told));
    // Ports are closed by now; nothing else needs an orderly shutdown.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn serve(options: Options, stop: &dyn Fn() -> bool, told: &dyn Fn(&str)) -> Result<(), Problem> {
    let name = options.name.clone();
    if !is_host_name(&name) {
        return Err(Problem(format!("`{name}` is not a host name; use letters, digits and `-`")));
    }
    // If a link cannot be brought up, the error of opening the port says so.
    for port in options.ports.iter().filter(|port| unplugged::restore(port).unwrap_or(false)) {
        told(&format!("the link of {port}, which a killed process left down, is up again"));
    }
    let link = Link::connect(&options.access, &format!("drophammer agent {name}")).await?;
    if !prepared(&link, stop, told).await? {
        return Ok(());
    }
    let announcement = Announcement {
        version: options.version.clone(),
        protocol: PROTOCOL,
        clock: options.clock.clone(),
        threads: options.processors.len().max(1),
        ports: options.ports.iter().map(|port| (port.clone(), speed_mbps(port))).collect(),
        backend: options.backend.spec.name.into(),
    };
    let mut requests = loop {
        let stale = refuse_second(&link, &name).await?;
        let requests = link.client.subscribe(format!("drophammer.agent.{name}")).await;
        let requests = requests.map_err(|e| Problem::of("the server", e))?;
        // The server must know the subscription before anybody finds the announcement.
        link.client.flush().await.map_err(|e| Problem::of("the server", e))?;
        if claim(&link, &name, &announcement, stale).await? {
            break requests;
        }
    };
    told(&format!("{name} lends {}", options.ports.join(", ")));
    let host =
        Arc::new(Host { link: link.clone(), options, loan: Mutex::default(), busy: tokio::sync::Mutex::default() });
    let (mut renew, mut look) = (interval(RENEW), interval(Duration::from_millis(100)));
    loop {
        tokio::select! {
            message = requests.next() => match message {
                Some(message) => {
                    let host = host.clone();
                    tokio::spawn(async move { host.answer(message).await });
                }
                None => return Err(Problem("the connection to the server has ended".into())),
            },
            _ = renew.tick() => {
                let (link, name, announcement) = (link.clone(), name.clone(), announcement.clone());
                // The server may be unreachable for a while.
                tokio::spawn(async move { announce(&link, &name, &announcement).await });
            }
            _ = look.tick() => {
                if stop() {
                    break;
                }
                let silent = host.loan().as_ref().is_some_and(|loan| loan.is_silent(LIFE));
                if silent {
                    told("the controller is gone; its ports are closed");
                    host.clone().close().await;
                }
            }
        }
    }
    host.clone().close().await;
    if let Ok(agents) = link.agents().await {
        let _ = agents.delete(&name).await;
    }
    let _ = timeout(Duration::from_secs(1), link.client.flush()).await;
    Ok(())
}

/// Waits until the server has its buckets. An agent may not have the right to make them; the first controller makes them
/// then. Returns false if the agent is stopped before.
async fn prepared(link: &Link, stop: &dyn Fn() -> bool, told: &dyn Fn(&str)) -> Result<bool, Problem> {
    let mut waits = false;
    while link.agents().await.is_err() {
        if stop() {
            return Ok(false);
        }
        // A server does not answer a user without the right.
        match timeout(Duration::from_secs(2), link.prepare()).await {
            Ok(prepared) => return prepared.map(|()| true),
            Err(_) if waits => {}
            Err(_) => {
                told("the server is new, and this user may not prepare it; `drophammer bed status` as controller does")
            }
        }
        waits = true;
    }
    Ok(true)
}

/// Fails if an agent with this name is running, so that its entry keeps changing. Returns the revision of an entry that a dead agent
/// has left behind.
async fn refuse_second(link: &Link, name: &str) -> Result<Option<u64>, Problem> {
    let agents = link.agents().await?;
    let entry = || patiently("the bucket of agents", || agents.entry(name));
    let before = entry().await?.map(|entry| entry.revision);
    if before.is_none() {
        return Ok(None);
    }
    tokio::time::sleep(RENEW + Duration::from_secs(1)).await;
    let now = entry().await?.map(|entry| entry.revision);
    if now.is_some() && now != before {
        return Err(Problem(format!("an agent `{name}` is already there; stop it, or choose another --name")));
    }
    Ok(now)
}

/// Announces the host for the first time, in place of the entry with revision `stale` if there is one. Returns false if another
/// agent was faster.
async fn claim(link: &Link, name: &str, announcement: &Announcement, stale: Option<u64>) -> Result<bool, Problem> {
    let agents = link.agents().await?;
    let put = || async {
        match stale {
            Some(revision) => match agents.update(name, encode(announcement).into(), revision).await {
                Ok(_) => Ok(true),
                Err(e) if e.kind() == UpdateErrorKind::WrongLastRevision => Ok(false),
                Err(e) => Err(e.to_string()),
            },
            None => match agents.create(name, encode(announcement).into()).await {
                Ok(_) => Ok(true),
                Err(e) if e.kind() == CreateErrorKind::AlreadyExists => Ok(false),
                Err(e) => Err(e.to_string()),
            },
        }
    };
    patiently("the agent cannot announce itself", put).await
}

async fn announce(link: &Link, name: &str, announcement: &Announcement) -> Result<(), Problem> {
    let agents = link.agents().await?;
    let put = || agents.put(name, encode(announcement).into());
    patiently("the agent cannot announce itself", put).await.map(drop)
}

/// A host and what it lends.
struct Host {
    link: Link,
    options: Options,
    loan: Mutex<Option<Loaned>>,
    /// The lease of the last loan and the number of its request. Held while ports are opened or closed.
    busy: tokio::sync::Mutex<(String, u64)>,
}

/// Captures by port of the trial.
type Captures = Arc<BTreeMap<PortIndex, PortCapture>>;
/// Ports of the trial whose links the controller has taken down.
type Unplugged = Arc<Mutex<BTreeSet<PortIndex>>>;

/// Ports that are lent.
struct Loaned {
    lease: String,
    terms: Loan,
    worker: Arc<Worker>,
    trial: Arc<Mutex<Trial<Live>>>,
    captures: Captures,
    unplugged: Unplugged,
    /// When the controller sent its last sign of life, on the steady clock.
    beaten_ns: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl Loaned {
    /// True if the controller has been silent for `time`.
    fn is_silent(&self, time: Duration) -> bool {
        let heard = self.beaten_ns.load(Ordering::Relaxed);
        (steady_ns() as u64).saturating_sub(heard) > time.as_nanos() as u64
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    fn loan(&self) -> MutexGuard<'_, Option<Loaned>> {
        locked(&self.loan)
    }

    async fn answer(self: Arc<Self>, message: Message) {
        let Some(reply) = message.reply.clone() else { return };
        let answer = match decode::<Request>(&message.payload) {
            Ok(Request { what: What::Time, .. }) => Reply::Time(steady_ns()),
            Ok(Request { what: What::Wall, .. }) => Reply::Wall(wall().await),
            Ok(request) => self.clone().carry_out(request).await,
            Err(e) => Reply::Refused(e.to_string()),
        };
        let mut bytes = encode(&answer);
        if bytes.len() > self.link.client.max_payload() {
            let most = self.link.client.max_payload();
            bytes =
                encode(&Reply::Refused(format!("the answer is larger than {most} bytes, the server's max_payload")));
        }
        // The connection may be down; the controller asks again or gives up.
        let _ = self.link.client.publish(reply, bytes.into()).await;
    }

    async fn carry_out(self: Arc<Self>, request: Request) -> Reply {
        let Request { lease, what } = request;
        if let What::Lend(loan) = what {
            return match self.lend(lease, loan).await {
                Ok(reply) => reply,
                Err(e) => Reply::Refused(e),
            };
        }
        let lent = self.loan().as_ref().filter(|loan| loan.lease == lease).map(|loan| {
            loan.beaten_ns.store(steady_ns() as u64, Ordering::Relaxed);
            let shared = (loan.captures.clone(), loan.unplugged.clone());
            (loan.worker.clone(), loan.trial.clone(), loan.terms.clone(), shared)
        });
        let Some((worker, trial, terms, (captures, unplugged))) = lent else { return Reply::NotLent };
        let done = match what {
            What::Plan { attempt, job } => plan(&worker, &trial, attempt, job).await,
            What::Start { attempt, at_ns, early_ns } => {
                let agreed = Agreed { start: Instant(at_ns), early: Duration::from_nanos(early_ns) };
                start(&worker, &trial, attempt, agreed).await.map(|()| Reply::Done)
            }
            What::Wishes { attempt, wishes } => fulfil(&worker, &trial, attempt, wishes).await,
            What::Report { attempt, refusals } => {
                let mine = locked(&trial).state().0 == attempt && refusals.is_sound();
                match mine {
                    true => self.report(&worker, &lease, &terms, attempt, refusals).await,
                    false => Err(format!("attempt {attempt} is not the last one")),
                }
            }
            What::Abandon { attempt } => {
                let ending = locked(&trial).abandon(attempt);
                ending.iter().for_each(Live::end);
                Ok(Reply::Done)
            }
            What::Link { number, port, up } => switch(&worker, &trial, number, port, up).await.map(|()| {
                let mut unplugged = locked(&unplugged);
                _ = if up { unplugged.remove(&port) } else { unplugged.insert(port) };
                Reply::Done
            }),
            What::Carrier(port) => {
                let own = terms.ports.iter().find(|(_, place)| *place == port);
                own.map_or(Ok(true), |(interface, _)| has_carrier(interface)).map(Reply::Carrier)
            }
            What::Capture { number, port, order } => {
                capture_of(&captures, port).and_then(|capture| capture.carry_out(number, order)).map(|()| Reply::Done)
            }
            What::Captured { number, started, port } => {
                let object = format!("{lease}.{port}.{number}");
                self.store_capture(captures, port, [number, started], object).await
            }
            What::Return => {
                drop(worker);
                self.close().await;
                Ok(Reply::Done)
            }
            What::Time | What::Wall | What::Lend(_) => Ok(Reply::Done),
        };
        done.unwrap_or_else(Reply::Refused)
    }

    /// Opens ports for the holder of their leases.
    async fn lend(self: Arc<Self>, lease: String, loan: Loan) -> Result<Reply, String> {
        let mut last = self.busy.lock().await;
        let newest = if last.0 == lease { last.1 } else { 0 };
        if loan.number <= newest {
            let same = self.loan().as_ref().filter(|lent| lent.terms == loan).map(|lent| lent.worker.facts.clone());
            // The request came twice, or late.
            return same.map(Reply::Lent).ok_or_else(|| format!("a late loan {}", loan.number));
        }
        let Options { name, ports, version, .. } = &self.options;
        fits(&loan.version, name, version, PROTOCOL)?;
        if loan.protocol != PROTOCOL || loan.ports.is_empty() || loan.all > MOST_PORTS {
            return Err("a loan with impossible terms".into());
        }
        if loan.host >= loan.all || !(50..=60_000).contains(&loan.silence_ms) {
            return Err("a loan with impossible terms".into());
        }
        let leases = self.link.leases().await.map_err(|e| e.to_string())?;
        for (interface, _) in &loan.ports {
            if !ports.contains(interface) {
                return Err(format!("{name} does not lend {interface}; it lends {}", ports.join(", ")));
            }
            let held = patiently("the bucket of leases", || leases.get(lease_key(name, interface)));
            let held = held.await.map_err(|e| e.to_string())?;
            match held.and_then(|bytes| decode::<Lease>(&bytes).ok()) {
                Some(held) if held.id == lease => {}
                Some(held) => return Err(format!("{name}/{interface} is held by {}", held.holder)),
                None => return Err(format!("nobody has leased {name}/{interface}")),
            }
        }
        *last = (lease.clone(), loan.number);
        // What was captured before stays, and links that are down stay down, although the ports are opened anew.
        let is_same = |lent: &&Loaned| lent.lease == lease && lent.terms.ports == loan.ports;
        let kept = self.loan().as_ref().filter(is_same).map(|lent| (lent.captures.clone(), lent.unplugged.clone()));
        let new = || loan.ports.iter().filter(|_| loan.captures).map(|(_, place)| (*place, PortCapture::default()));
        let (captures, unplugged) = kept.unwrap_or_else(|| (Arc::new(new().collect()), Unplugged::default()));
        self.close_now().await;
        let trial = Arc::<Mutex<Trial<Live>>>::default();
        let (frames, passed) = mpsc::channel::<(PortIndex, Instant, Vec<u8>)>(WAITING);
        let lost = Arc::<AtomicU64>::default();
        let lost_up = lost.clone();
        let up = Box::new(move |port: PortIndex, at: Instant, frame: &[u8]| {
            // If the queue is full, the frame is lost, as on a link that is too slow.
            if frames.try_send((port, at, frame.to_vec())).is_err() {
                lost_up.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (of_trial, terms, options) = (trial.clone(), loan.clone(), self.options.clone());
        let ended = Box::new(move |attempt, over| locked(&of_trial).ended(attempt, over));
        let taps = captures.values().map(|port| port.capture.clone()).collect();
        let lost_down = lost.clone();
        let open = move || Worker::open(&options, &terms, taps, up, lost, ended);
        let opened = tokio::task::spawn_blocking(open).await;
        let worker = Arc::new(opened.map_err(|e| e.to_string())??);
        // Links are up when ports are opened.
        let down: Vec<PortIndex> = locked(&unplugged).iter().copied().collect();
        for port in down {
            answer(order(&worker, |reply| Work::Link(port, false, reply))?).await?;
        }
        let facts = worker.facts.clone();
        let beaten_ns = Arc::new(AtomicU64::new(steady_ns() as u64));
        let mut tasks = JoinSet::new();
        let subscribe = |subject: String| self.link.client.subscribe(subject);
        let failed = |e: async_nats::SubscribeError| e.to_string();
        let beats = subscribe(format!("drophammer.beat.{lease}")).await.map_err(failed)?;
        let down = subscribe(format!("drophammer.down.{lease}.{}", loan.host)).await.map_err(failed)?;
        tasks.spawn(pass_up(self.link.clone(), format!("drophammer.up.{lease}"), passed));
        tasks.spawn(tell(self.link.clone(), format!("drophammer.state.{lease}"), loan.host, trial.clone()));
        tasks.spawn(hear(beats, worker.clone(), trial.clone(), beaten_ns.clone()));
        tasks.spawn(pass_down(down, worker.clone(), lost_down));
        *self.loan() = Some(Loaned { lease, terms: loan, worker, trial, captures, unplugged, beaten_ns, tasks });
        Ok(Reply::Lent(facts))
    }

    async fn close(self: Arc<Self>) {
        let _busy = self.busy.lock().await;
        self.close_now().await;
    }

    /// Ends traffic and closes the ports. The caller holds `busy`.
    async fn close_now(&self) {
        let Some(mut loan) = self.loan().take() else { return };
        let ending = locked(&loan.trial).end();
        ending.iter().for_each(Live::end);
        loan.tasks.shutdown().await;
        // Dropping it waits for its thread.
        let _ = tokio::task::spawn_blocking(move || drop(loan)).await;
    }

    /// Ends the capture of a port, and stores its file as `object`. The numbers are those of this request, and of the one that started
    /// the capture.
    async fn store_capture(
        &self,
        captures: Captures,
        port: PortIndex,
        [number, started]: [u64; 2],
        object: String,
    ) -> Result<Reply, String> {
        let file = move || capture_of(&captures, port)?.file(number, started);
        let file = tokio::task::spawn_blocking(file).await.map_err(|e| e.to_string())??;
        store(&self.link, &object, &file).await.map_err(|e| format!("{e}; {NO_ROOM}"))?;
        Ok(Reply::Captured(object, file.len()))
    }

    /// Stores the reports of the trial in the stream.
    async fn report(
        &self,
        worker: &Worker,
        lease: &str,
        terms: &Loan,
        attempt: u64,
        refusals: drophammer_rig::Refusals,
    ) -> Result<Reply, String> {
        let (told, reports) = oneshot::channel();
        worker.order(Work::Report(refusals, told))?;
        let (reports, counts) = reports.await.map_err(|_| "the ports failed".to_owned())?;
        if reports.is_empty() {
            return Err("there is no trial to report".into());
        }
        let stored = Stored { lease: lease.into(), attempt, host: terms.host, reports, counts };
        let bytes = encode(&stored);
        if bytes.len() > LARGEST_REPORTS {
            return Err(format!("the reports have {} bytes, more than {LARGEST_REPORTS}", bytes.len()));
        }
        let subject = format!("drophammer.record.{lease}.{attempt}.{}", terms.host);
        let mut parts = Vec::new();
        for (number, part) in bytes.chunks(PART).enumerate() {
            let mut headers = HeaderMap::new();
            // The stream stores each part once, even if it is sent several times.
            headers.insert("Nats-Msg-Id", format!("{lease}.{attempt}.{}.{number}", terms.host));
            let (jetstream, subject) = (&self.link.jetstream, &subject);
            let store = || async {
                jetstream.publish_with_headers(subject.clone(), headers.clone(), part.to_vec().into()).await?.await
            };
            let stored = patiently("the reports are not stored", store).await;
            parts.push(stored.map_err(|e| format!("{e}; {NO_ROOM}"))?.sequence);
        }
        Ok(Reply::Stored { parts, bytes: bytes.len() })
    }
}

type Answer<T> = oneshot::Receiver<Result<T, String>>;

/// Sends an order to the thread that drives the ports.
fn order<T>(
    worker: &Worker,
    work: impl FnOnce(oneshot::Sender<Result<T, String>>) -> Work,
) -> Result<Answer<T>, String> {
    let (reply, answer) = oneshot::channel();
    worker.order(work(reply))?;
    Ok(answer)
}

fn capture_of(captures: &BTreeMap<PortIndex, PortCapture>, port: PortIndex) -> Result<&PortCapture, String> {
    captures.get(&port).ok_or_else(|| format!("frames of port {port} are not captured under this lease"))
}

/// True if the link of an interface has carrier.
fn has_carrier(interface: &str) -> Result<bool, String> {
    let of = |file: &str| std::fs::read_to_string(format!("/sys/class/net/{interface}/{file}"));
    // An interface that is down does not tell whether it has carrier.
    of("flags").map_err(|e| format!("the interface {interface} cannot be read: {e}"))?;
    Ok(of("carrier").is_ok_and(|carrier| carrier.trim() == "1"))
}

const PORTS_FAILED: &str = "the ports of this host failed";

async fn answer<T>(answer: Answer<T>) -> Result<T, String> {
    answer.await.map_err(|_| PORTS_FAILED)?
}

async fn plan(
    worker: &Worker,
    trial: &Mutex<Trial<Live>>,
    attempt: u64,
    job: Box<drophammer_rig::Job>,
) -> Result<Reply, String> {
    let planned = {
        let mut trial = locked(trial);
        trial.plan(attempt)?.iter().for_each(Live::end);
        // Sending under the lock makes plans reach the thread in the order of their numbers.
        order(worker, |reply| Work::Plan(job, reply))?
    };
    let planned = planned.await.map_err(|_| PORTS_FAILED)?;
    Ok(planned.map_or_else(Reply::Impossible, |()| Reply::Done))
}

async fn start(worker: &Worker, trial: &Mutex<Trial<Live>>, attempt: u64, agreed: Agreed) -> Result<(), String> {
    if agreed.start > worker.clock.now() + Duration::from_secs(60) {
        return Err("the start is more than a minute away".into());
    }
    let started = {
        let mut trial = locked(trial);
        if !trial.start(attempt)? {
            return Ok(());
        }
        order(worker, |live| Work::Start { attempt, agreed, live })?
    };
    let live = answer(started).await?;
    let ending = locked(trial).started(attempt, live);
    ending.iter().for_each(Live::end);
    Ok(())
}

async fn switch(
    worker: &Worker,
    trial: &Mutex<Trial<Live>>,
    number: u64,
    port: PortIndex,
    up: bool,
) -> Result<(), String> {
    let live = {
        let mut trial = locked(trial);
        if !trial.link(number)? {
            return Ok(());
        }
        trial.live().filter(|_| trial.state().1.is_none()).cloned()
    };
    // During a trial its lanes have the ports.
    let by_lane = move || live.and_then(|live| live.set_link(port, up, BY_LANE));
    if let Some(done) = tokio::task::spawn_blocking(by_lane).await.map_err(|e| e.to_string())? {
        return done;
    }
    let switched = {
        let trial = locked(trial);
        if trial.newest_link() != number {
            return Err(format!("a late request {number} to switch a link"));
        }
        order(worker, |reply| Work::Link(port, up, reply))?
    };
    answer(switched).await
}

async fn fulfil(worker: &Worker, trial: &Mutex<Trial<Live>>, attempt: u64, wishes: Vec<Wish>) -> Result<Reply, String> {
    let live = locked(trial).live_of(attempt).cloned().ok_or("there is no such traffic")?;
    for wish in wishes {
        match wish {
            Wish::End => live.end(),
            Wish::EndSending => live.end_sending(),
            Wish::Transmit { flows, action, at } => {
                let elapsed = live.start().map(|start| (worker.clock.now() + IN_TIME).since(start));
                if let Some((elapsed, at)) = elapsed.zip(at).filter(|(elapsed, at)| elapsed > at) {
                    let late = elapsed - at;
                    return Err(format!("an order to start or stop flows came {late:?} too late"));
                }
                match live.transmit(FlowSelect::Flows(&flows), action, at) {
                    // No flow sends any more on any host.
                    Ok(()) | Err(TransmitError::Over) => {}
                    Err(e) => return Err(e.to_string()),
                }
            }
            Wish::Count => {
                let counts = tokio::task::spawn_blocking(move || live.counts(Duration::from_millis(500))).await;
                let counts = counts.map_err(|e| e.to_string())?.ok_or("the traffic is over")?;
                return Ok(Reply::Counts(counts));
            }
        }
    }
    Ok(Reply::Done)
}

/// Publishes the state of the host until the task is aborted.
async fn tell(link: Link, subject: String, host: usize, trial: Arc<Mutex<Trial<Live>>>) {
    let mut told = None::<(std::time::Instant, State)>;
    loop {
        let state = {
            let trial = locked(&trial);
            let standing = trial.live().map_or(Standing::default(), Live::standing);
            let (attempt, over) = trial.state();
            State { host, attempt, standing, over: over.cloned() }
        };
        let is_running = state.attempt > 0 && state.over.is_none();
        if told.as_ref().is_none_or(|(at, known)| *known != state || at.elapsed() >= TELL[1]) {
            let mut bytes = encode(&state);
            if bytes.len() > link.client.max_payload() {
                let over = Some(Over::Failed("its own rings refused too many frames to name them".into()));
                bytes = encode(&State { over, ..state });
            }
            let _ = link.client.publish(subject.clone(), bytes.into()).await;
            told = Some((std::time::Instant::now(), state));
        }
        tokio::time::sleep(TELL[usize::from(!is_running)]).await;
    }
}

/// Receives the controller's heartbeats. Each carries the time when it was sent, because one that was delayed for long
/// does not show that the controller is alive.
async fn hear(
    mut beats: async_nats::Subscriber,
    worker: Arc<Worker>,
    trial: Arc<Mutex<Trial<Live>>>,
    beaten_ns: Arc<AtomicU64>,
) {
    while let Some(message) = beats.next().await {
        let Ok(beat) = decode::<Beat>(&message.payload) else { continue };
        let (sent, now) = (Instant(beat.sent_ns), worker.clock.now());
        worker.relay.heard(sent.min(now));
        let sent_ns = (steady_ns() as u64).saturating_sub(now.since(sent).as_nanos() as u64);
        beaten_ns.fetch_max(sent_ns, Ordering::Relaxed);
        if let Some((attempt, all)) = beat.running
            && let Some(live) = locked(&trial).live_of(attempt)
        {
            live.tell(all, now);
        }
    }
}

/// Passes frames from the ports to the devices.
async fn pass_up(link: Link, subject: String, mut frames: mpsc::Receiver<(PortIndex, Instant, Vec<u8>)>) {
    while let Some((port, at, frame)) = frames.recv().await {
        let mut batch = Vec::new();
        pack(&mut batch, port, at.0, &frame);
        while batch.len() < BATCH
            && let Ok((port, at, frame)) = frames.try_recv()
        {
            pack(&mut batch, port, at.0, &frame);
        }
        let _ = link.client.publish(subject.clone(), batch.into()).await;
    }
}

/// Passes frames from the devices to the ports.
async fn pass_down(mut messages: async_nats::Subscriber, worker: Arc<Worker>, lost: Arc<AtomicU64>) {
    while let Some(message) = messages.next().await {
        for (port, _, frame) in unpack(&message.payload) {
            // If the queue is full, the frame is lost, as on a link that is too slow.
            if !worker.relay.down(port, frame) {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
