//! State that the lanes of a trial share, and access for other threads during the trial.

use crate::counts::{LaneCounts, Snapshot};
use crate::engine::{LanePort, lead};
use crate::far::Standing;
use crate::far::check::MOST;
use crate::lanes::LaneError;
use crate::plan::Part;
use crate::totals::{Answer, LaneTotals, Totals};
use crate::transmit::{Command, FlowNames, FlowSelect, TransmitAction, TransmitError};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::PortIndex;
use drophammer_port::{Clock, PortError, SystemClock, set_link};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Handle of a running trial, for other threads.
#[derive(Clone)]
pub struct Live(pub(crate) Arc<Board>);

impl Live {
    /// Ends sending. Frames that are already due still leave, and the trial then drains as usual.
    pub fn end_sending(&self) {
        self.0.signals.requests.fetch_or(END_OF_SENDING, Ordering::Relaxed);
    }

    /// Starts, stops, pauses or resumes flows, immediately or at time `at` of the traffic. This is also possible before
    /// the traffic starts. A flow sends the frames of its schedule from the time it starts until just before the time
    /// it stops. It never catches up with frames in between, and its sequence numbers have no gap. Flows that share the
    /// load of a port keep their share. Traffic ends with its schedule, whether flows send or not.
    ///
    /// Without `at`, each lane acts as soon as it sees the request, and frames due until then still leave. A request
    /// for a time in the past is handled the same way.
    ///
    /// # Errors
    /// [`TransmitError`]. Nothing has changed in this case.
    pub fn transmit(
        &self,
        which: FlowSelect<'_>,
        action: TransmitAction,
        at: Option<Duration>,
    ) -> Result<(), TransmitError> {
        self.0.transmit(which, action, at)
    }

    /// Returns when the traffic starts or started; `None` while no lane knows that.
    pub fn start(&self) -> Option<Instant> {
        Some(Instant(self.0.signals.start.load(Ordering::Relaxed))).filter(|start| start.0 > 0)
    }

    /// Takes the link of a port of a running trial down or up, and waits at most `patience` until that is done. Returns `None` if no lane
    /// has done it: the trial is over, or the port belongs to no lane.
    pub fn set_link(&self, port: PortIndex, up: bool, patience: Duration) -> Option<Result<(), String>> {
        let number = self.0.signals.links_asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.inbox().links.push((number, port, up));
        self.0.signals.requests.fetch_add(COMMAND, Ordering::Relaxed);
        let published = self.0.published();
        let done = |p: &Published| p.switched.iter().any(|(at, _)| *at == number);
        let waited = self.0.changed.wait_timeout_while(published, patience, |p| !p.closed && !done(p));
        let mut published = waited.unwrap_or_else(PoisonError::into_inner).0;
        let at = published.switched.iter().position(|(at, _)| *at == number);
        let done = at.map(|at| published.switched.swap_remove(at).1);
        drop(published);
        // Nobody may do it later.
        self.0.inbox().links.retain(|(at, ..)| *at != number);
        done
    }

    /// Ends the trial immediately, without a drain.
    pub fn end(&self) {
        self.0.end();
    }

    /// True if the trial is over or has failed.
    pub fn is_over(&self) -> bool {
        self.0.published().closed
    }

    /// Requests the counts of all lanes and waits at most `patience` for the answers. Returns `None` if a lane did not
    /// answer in time, or the trial is over. Lanes do no work for this unless somebody calls it.
    pub fn snapshot(&self, patience: Duration) -> Option<Snapshot> {
        self.counts(patience).map(|lanes| Snapshot::of(&lanes))
    }

    /// Like [`Live::snapshot`], but returns the counts of each lane.
    pub fn counts(&self, patience: Duration) -> Option<Vec<LaneCounts>> {
        let number = self.0.ask(&self.0.signals.counts_asked);
        let answered = |p: &Published| p.lanes.iter().all(|l| l.as_ref().is_some_and(|(at, _)| *at >= number));
        let waits = |p: &mut Published| !p.closed && !answered(p);
        let waited = self.0.changed.wait_timeout_while(self.0.published(), patience, waits);
        let published = waited.unwrap_or_else(PoisonError::into_inner).0;
        let counts = || published.lanes.iter().flatten().flat_map(|(_, counts)| counts.iter().cloned()).collect();
        answered(&published).then(counts)
    }

    /// Returns what the lanes of this host have sent and received so far.
    pub fn standing(&self) -> Standing {
        let lanes = &*self.0.lanes;
        // A lane that has finished has written its counts.
        let done = lanes.iter().all(|lane| lane.done_at.load(Ordering::Acquire) > 0);
        Standing { done, sent: sum(lanes, |l| &l.sent), distinct: sum(lanes, |l| &l.distinct) }
    }

    /// Tells the lanes of this host what the lanes of all hosts together, these included, have sent and received by `now`.
    /// Without effect if the traffic is on this host only.
    pub fn tell(&self, all: Standing, now: Instant) {
        let Some(known) = &self.0.all_hosts else { return };
        // Messages can overtake each other. Counts never shrink. Sums must not overflow.
        known.distinct.fetch_max(all.distinct.min(MOST), Ordering::Relaxed);
        if all.done && known.done_at.load(Ordering::Relaxed) == 0 {
            known.sent.store(all.sent.min(MOST), Ordering::Relaxed);
            known.done_at.store(now.0.max(1), Ordering::Release);
        }
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    /// Requests the sums of all lanes and waits at most `patience` for the answers. Returns `None` if a lane did not
    /// answer in time, or the trial is over or has not started. Lanes neither allocate nor lock to answer.
    pub fn totals(&self, patience: Duration) -> Option<Totals> {
        let start = Instant(self.0.signals.start.load(Ordering::Relaxed));
        if self.0.lanes.is_empty() {
            return self.snapshot(patience).map(|snapshot| Totals::of_snapshot(start, &snapshot));
        }
        let number = self.0.ask(&self.0.signals.totals_asked);
        let deadline = std::time::Instant::now() + patience;
        let lanes: Option<Vec<LaneTotals>> =
            self.0.answers.iter().map(|answer| self.await_totals(answer, number, deadline)).collect();
        let start = Instant(self.0.signals.start.load(Ordering::Relaxed)).max(start);
        Some(Totals::of(start, &lanes?))
    }

    fn await_totals(&self, answer: &Answer, number: u64, deadline: std::time::Instant) -> Option<LaneTotals> {
        loop {
            // Checks this before the answer, so that an answer given before the end counts.
            let is_last = self.is_over() || std::time::Instant::now() > deadline;
            let totals = answer.get(number);
            if totals.is_some() || is_last {
                return totals;
            }
            std::thread::sleep(GLANCE);
        }
    }
}

/// How often a thread checks for answers. Lanes answer within microseconds.
const GLANCE: Duration = Duration::from_micros(200);

/// One lane's counts, for the other lanes. No other lane writes them.
#[derive(Default)]
#[repr(align(128))]
struct Progress {
    /// When the lane finished sending; 0 before that.
    done_at: AtomicU64,
    /// Number of sent frames that no ring refused; final once the lane has finished sending.
    sent: AtomicU64,
    /// Number of distinct received frames; updated once the lane has finished sending.
    distinct: AtomicU64,
    /// Number of the last request for counts that the lane answered.
    counted: AtomicU64,
}

/// Words that are rarely written but continuously read.
#[derive(Default)]
#[repr(align(128))]
struct Signals {
    /// Requests to all lanes; see [`Requests`].
    requests: AtomicU64,
    /// Number of the last request for counts, and of the last request for totals.
    counts_asked: AtomicU64,
    totals_asked: AtomicU64,
    /// Number of the last request to switch a link.
    links_asked: AtomicU64,
    /// Start of the trial; 0 until it is known.
    start: AtomicU64,
    ready: AtomicUsize,
}

fn sum<'a>(all: impl IntoIterator<Item = &'a Progress>, count: fn(&Progress) -> &AtomicU64) -> u64 {
    all.into_iter().map(|progress| count(progress).load(Ordering::Relaxed)).sum()
}

/// State shared by the lanes of a trial.
pub(crate) struct Board {
    lanes: Box<[Progress]>,
    /// The lanes of all hosts together, as far as known here; `None` if this host has all lanes.
    all_hosts: Option<Progress>,
    /// Sums of each lane, for other threads.
    answers: Box<[Answer]>,
    signals: Signals,
    published: Mutex<Published>,
    changed: Condvar,
    flows: FlowNames,
    inbox: Mutex<Inbox>,
}

/// Commands to flows, and the flows that cannot obey them.
struct Inbox {
    /// Commands that are not yet taken, by lane.
    commands: Vec<Vec<Command>>,
    /// Flows whose frames the kernel generates.
    in_kernel: BTreeSet<u32>,
    /// Links that are yet to be switched, each with the number of its request.
    links: Vec<(u64, PortIndex, bool)>,
}

/// Counts requested from lanes.
struct Published {
    /// Counts of each lane, or of the lanes of each host if all are on other hosts, with the number of the request.
    lanes: Vec<Option<(u64, Vec<LaneCounts>)>>,
    /// Requests to switch links that lanes have carried out, with what came of it.
    switched: Vec<(u64, Result<(), String>)>,
    /// True once no lane answers requests any more.
    closed: bool,
}

/// Requests to all lanes, in one word that the loops read in every pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests(u64);

const END: u64 = 1;
const END_OF_SENDING: u64 = 2;
/// Increment for a new command. There is room for 2^30 commands.
const COMMAND: u64 = 4;
/// Increment for a new request for counts or totals.
const REQUEST: u64 = 1 << 32;

impl Requests {
    /// True if all lanes must stop immediately because the user asked for it or a lane failed.
    pub(crate) fn is_end(self) -> bool {
        self.0 & END != 0
    }

    /// True if nothing more may be sent.
    pub(crate) fn is_end_of_sending(self) -> bool {
        self.0 & END_OF_SENDING != 0
    }

    /// True if somebody requested counts or totals since `before`.
    pub(crate) fn asks_more_than(self, before: Requests) -> bool {
        self.0 / REQUEST != before.0 / REQUEST
    }

    /// True if there are new commands since `before`.
    pub(crate) fn commands_more_than(self, before: Requests) -> bool {
        let commands = |requests: Requests| requests.0 % REQUEST / COMMAND;
        commands(self) != commands(before)
    }
}

impl Board {
    /// Creates the state for lanes that run these parts of a trial. `hosts` is true if there may be lanes on other hosts.
    pub(crate) fn new(parts: &[Part], flows: FlowNames, hosts: bool) -> Board {
        let lanes = parts.len();
        Board {
            lanes: (0..lanes).map(|_| Progress::default()).collect(),
            all_hosts: hosts.then(Progress::default),
            answers: parts.iter().map(Part::answer).collect(),
            signals: Signals::default(),
            published: Mutex::new(Published { lanes: vec![None; lanes], switched: Vec::new(), closed: false }),
            changed: Condvar::new(),
            flows,
            inbox: Mutex::new(Inbox {
                commands: vec![Vec::new(); lanes],
                in_kernel: BTreeSet::new(),
                links: Vec::new(),
            }),
        }
    }

    /// Creates the state for a trial whose lanes are on `hosts` other hosts.
    pub(crate) fn far(flows: FlowNames, hosts: usize) -> Board {
        let board = Board::new(&[], flows, false);
        board.published().lanes = vec![None; hosts];
        // One place for the commands to all hosts.
        board.inbox().commands = vec![Vec::new()];
        board
    }

    /// Returns the number of the last request for counts.
    pub(crate) fn counts_asked(&self) -> u64 {
        fence(Ordering::Acquire);
        self.signals.counts_asked.load(Ordering::Relaxed)
    }

    /// Requests the counts of all lanes.
    pub(crate) fn ask_counts(&self) {
        self.ask(&self.signals.counts_asked);
    }

    /// Stores the answer of a host to request `number` for counts.
    pub(crate) fn publish(&self, host: usize, number: u64, counts: Vec<LaneCounts>) {
        if let Some(place) = self.published().lanes.get_mut(host) {
            *place = Some((number, counts));
        }
        self.changed.notify_all();
    }

    /// See [`Live::transmit`].
    pub(crate) fn transmit(
        &self,
        which: FlowSelect<'_>,
        action: TransmitAction,
        at: Option<Duration>,
    ) -> Result<(), TransmitError> {
        let command = Command { flows: self.flows.select(which)?, action, at };
        if self.published().closed {
            return Err(TransmitError::Over);
        }
        let mut inbox = self.inbox();
        if let Some(flow) = inbox.in_kernel.iter().find(|flow| command.names(**flow)) {
            let flow = *flow as usize;
            return Err(TransmitError::InKernel { flow, group: self.flows.group(flow) });
        }
        inbox.commands.iter_mut().for_each(|lane| lane.push(command.clone()));
        self.signals.requests.fetch_add(COMMAND, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the new commands for `lane`.
    pub(crate) fn commands(&self, lane: usize) -> Vec<Command> {
        std::mem::take(&mut self.inbox().commands[lane])
    }

    /// Switches the links of these ports that are yet to be switched.
    pub(crate) fn switch_links(&self, ports: &mut [LanePort<'_>]) {
        // The first queue of a port switches its link.
        let own = |port: PortIndex| ports.iter().position(|at| at.index == port && at.port.info().queue.index == 0);
        let mut links = Vec::new();
        self.inbox().links.retain(|(number, port, up)| {
            let place = own(*port);
            links.extend(place.map(|place| (*number, place, *up)));
            place.is_none()
        });
        for (number, place, up) in links {
            let done = set_link(&mut *ports[place].port, up).map_err(|e| e.to_string());
            self.published().switched.push((number, done));
            self.changed.notify_all();
        }
    }

    /// Reserves these flows for the kernel, after which they obey no commands. Returns false if a command for one of
    /// them is pending.
    pub(crate) fn lend_to_kernel(&self, flows: &[u32]) -> bool {
        let mut inbox = self.inbox();
        let named = |command: &Command| flows.iter().any(|flow| command.names(*flow));
        if inbox.commands.iter().flatten().any(named) {
            return false;
        }
        inbox.in_kernel.extend(flows);
        true
    }

    /// Releases flows that the kernel does not generate after all.
    pub(crate) fn take_from_kernel(&self, flows: &[u32]) {
        let mut inbox = self.inbox();
        flows.iter().for_each(|flow| _ = inbox.in_kernel.remove(flow));
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that `lane` has finished sending at `at`, with `sent` frames that no ring refused.
    pub(crate) fn done(&self, lane: usize, at: Instant, sent: u64) {
        self.lanes[lane].sent.store(sent, Ordering::Relaxed);
        // A lane that sees the time also sees the count.
        self.lanes[lane].done_at.store(at.0.max(1), Ordering::Release);
    }

    /// Records that `lane` has received `distinct` frames.
    pub(crate) fn received(&self, lane: usize, distinct: u64) {
        self.lanes[lane].distinct.store(distinct, Ordering::Relaxed);
    }

    /// Returns when the last lane finished sending; `None` while any lane has not. Of lanes on other hosts, this is when it
    /// became known here.
    pub(crate) fn all_done(&self) -> Option<Instant> {
        let mut done = self.lanes.iter().chain(&self.all_hosts).map(|l| l.done_at.load(Ordering::Acquire));
        done.try_fold(0, |last, at| (at > 0).then_some(last.max(at))).map(Instant)
    }

    /// True if every sent frame has been received. All lanes must have finished sending, so that the counts of sent
    /// frames are final. Counts of received frames only grow, so an outdated count can make this false, but never true.
    pub(crate) fn accounted(&self) -> bool {
        let counted = self.all_hosts.as_ref().map_or(&*self.lanes, std::slice::from_ref);
        sum(counted, |l| &l.sent) <= sum(counted, |l| &l.distinct)
    }

    /// Returns a number that grows when a lane receives a frame, on whatever host, as soon as that is known here.
    pub(crate) fn arrived(&self) -> u64 {
        sum(self.lanes.iter().chain(&self.all_hosts), |l| &l.distinct)
    }

    /// Stops all lanes.
    pub(crate) fn end(&self) {
        self.signals.requests.fetch_or(END, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn requests(&self) -> Requests {
        Requests(self.signals.requests.load(Ordering::Relaxed))
    }

    /// Makes another request of this kind, and returns its number.
    fn ask(&self, kind: &AtomicU64) -> u64 {
        let number = kind.fetch_add(1, Ordering::Relaxed) + 1;
        // A lane that sees the request also sees its number.
        self.signals.requests.fetch_add(REQUEST, Ordering::Release);
        number
    }

    /// Answers the open requests to `lane`.
    ///
    /// # Errors
    /// Those of `drops`, which returns the frames that the tester has lost at each port since the traffic began.
    pub(crate) fn answer(
        &self,
        lane: usize,
        part: &mut Part,
        now: Instant,
        drops: impl FnOnce() -> Result<Vec<(PortIndex, u64)>, PortError>,
    ) -> Result<(), PortError> {
        fence(Ordering::Acquire);
        let number = self.signals.totals_asked.load(Ordering::Relaxed);
        if self.answers[lane].number() < number {
            part.tell_totals(&self.answers[lane], number, now);
        }
        let number = self.signals.counts_asked.load(Ordering::Relaxed);
        // Takes no lock if there is no request.
        if self.lanes[lane].counted.swap(number, Ordering::Relaxed) < number {
            // A rig on this host reads the counters of its ports itself.
            let drops = if self.all_hosts.is_some() { drops()? } else { Vec::new() };
            let counts = LaneCounts { drops, ..part.counts(now) };
            self.published().lanes[lane] = Some((number, vec![counts]));
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Records that from now on no lane answers requests.
    pub(crate) fn close(&self) {
        self.published().closed = true;
        self.changed.notify_all();
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        // The counts are complete even if a lane panicked while holding the lock.
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the start for the only lane.
    pub(crate) fn begin(&self, start: Instant) {
        self.signals.start.store(start.0, Ordering::Relaxed);
    }

    /// Waits for the start. Called by every lane except the first when it is ready.
    pub(crate) fn await_start(&self) -> Result<Instant, LaneError> {
        self.signals.ready.fetch_add(1, Ordering::Relaxed);
        self.wait(|| match self.signals.start.load(Ordering::Relaxed) {
            0 => None,
            start => Some(Instant(start)),
        })
    }

    /// Waits for all lanes and sets the start of the trial: `at`, or soon. Called by the first lane when it is ready.
    pub(crate) fn start(&self, clock: &SystemClock, at: Option<Instant>) -> Result<Instant, LaneError> {
        let further = self.lanes.len() - 1;
        self.wait(|| (self.signals.ready.load(Ordering::Relaxed) == further).then_some(()))?;
        let start = at.unwrap_or_else(|| clock.now() + lead(clock));
        self.signals.start.store(start.0, Ordering::Relaxed);
        Ok(start)
    }

    /// Waits for `value`, or for the end of the trial.
    fn wait<T>(&self, value: impl Fn() -> Option<T>) -> Result<T, LaneError> {
        loop {
            if let Some(value) = value() {
                return Ok(value);
            }
            if self.requests().is_end() {
                return Err(LaneError::NotStarted);
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::follow_requests;
    use crate::plan::{Neighbour, Plan, Timing};
    use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialSpec};
    use drophammer_wire::MacAddr;
    use drophammer_wire::signature::TrialKey;
    use std::sync::mpsc::channel;

    /// Plans one flow for one lane.
    fn plan() -> Plan {
        let range = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: 4 };
        let spec = TrialSpec {
            purpose: String::new(),
            size: "128".parse().unwrap(),
            flows: vec![FlowSpec::new("all", 0, 1, range, range)],
            load: Load::Constant { rate_pps: 1_000.0 },
            duration_s: 1.0,
            bin_s: None,
            drain_s: 1.0,
            events: vec![],
        };
        let timing = Timing { seed: 3, key: TrialKey::new(1, 2), earlier: vec![], max_backlog_ns: 0, late_ns: 1 };
        let mac = MacAddr([2; 6]);
        let port = Neighbour { mac, device_ipv4: Some(mac), device_ipv6: Some(mac), vlans: vec![] };
        Plan::new(&spec, &[port.clone(), port], &timing).unwrap()
    }

    #[test]
    fn lanes_of_hosts_are_done_when_all_hosts_are() {
        let plan = plan();
        let board = Arc::new(Board::new(&plan.parts, plan.flows.clone(), true));
        let live = Live(board.clone());
        let known = || (board.all_done().map(|at| at.0), board.accounted());
        board.done(0, Instant(5), 30);
        board.received(0, 10);
        assert_eq!(live.standing(), Standing { done: true, sent: 30, distinct: 10 });
        assert_eq!(known().0, None, "nobody has told of the other hosts");
        let other = |done, distinct| Standing { done, sent: 70, distinct };
        let all = |other| [live.standing(), other].into_iter().sum::<Standing>();
        live.tell(all(other(false, 20)), Instant(7));
        assert_eq!(known().0, None, "the other host still sends");
        live.tell(all(other(true, 60)), Instant(8));
        assert_eq!(known(), (Some(8), false), "70 of 100 frames");
        // A later frame of this host, and an older message.
        let before = board.arrived();
        board.received(0, 40);
        assert_eq!(board.arrived(), before + 30);
        live.tell(all(other(true, 50)), Instant(9));
        assert_eq!(known(), (Some(8), false), "90 of 100 frames");
        live.tell(all(other(true, 60)), Instant(10));
        assert_eq!(known(), (Some(8), true));
        live.tell(Standing { done: false, sent: 0, distinct: 0 }, Instant(11));
        assert_eq!(known(), (Some(8), true), "a message that comes late");
        // Numbers of a foreign program.
        live.tell([Standing { done: true, sent: u64::MAX, distinct: u64::MAX }; 3].into_iter().sum(), Instant(12));
        assert_eq!(known(), (Some(8), true));
        assert_eq!([].into_iter().sum::<Standing>(), Standing { done: true, sent: 0, distinct: 0 });
    }

    #[test]
    fn a_lane_that_is_asked_for_sums_waits_for_no_lock() {
        let mut plan = plan();
        let board = Board::new(&plan.parts, plan.flows.clone(), false);
        board.ask(&board.signals.totals_asked);
        let held = (board.inbox(), board.published());
        let (told, answered) = channel();
        let (shared, part) = (&board, &mut plan.parts[0]);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                follow_requests(part, (&mut [], &[]), &mut [], Instant(1_000), 0, shared, Requests::default()).unwrap();
                let _ = told.send(());
            });
            let in_time = answered.recv_timeout(Duration::from_secs(60)).is_ok();
            // The thread ends in any case.
            drop(held);
            assert!(in_time, "the lane waits for a lock");
        });
        assert!(board.answers[0].get(1).is_some());
    }
}
