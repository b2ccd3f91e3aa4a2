//! How the lanes of a trial see each other, and how others see the trial while it runs.

use crate::counts::{LaneCounts, Snapshot};
use crate::engine::lead;
use crate::lanes::LaneError;
use crate::transmit::{Command, FlowNames, FlowSelect, TransmitAction, TransmitError};
use drophammer_model::quantity::Instant;
use drophammer_port::{Clock, SystemClock};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A trial under way, for other threads than those that carry it out.
#[derive(Clone)]
pub struct Live(pub(crate) Arc<Board>);

impl Live {
    /// Ends what is sent. What was due until now still leaves; then the trial drains as at its planned end.
    pub fn end_sending(&self) {
        self.0.signals.requests.fetch_or(END_OF_SENDING, Ordering::Relaxed);
    }

    /// Starts, stops, pauses or resumes flows, at once or when the traffic has lasted for `at`; before the traffic starts too. A flow
    /// sends the frames that are due by its schedule from the instant at which it is started until that at which it is stopped, this one
    /// excluded; those in between are left out, so it never catches up, and its sequence numbers go on without a gap. Flows that share the
    /// load of a port keep their own share. Traffic ends when its schedule does, whether flows send or not.
    ///
    /// Without `at` each lane does so at its next look, and what was due until then still leaves. What is asked for later than it is to
    /// happen is done at once.
    ///
    /// # Errors
    /// [`TransmitError`]; nothing is done then.
    pub fn transmit(
        &self,
        which: FlowSelect<'_>,
        action: TransmitAction,
        at: Option<Duration>,
    ) -> Result<(), TransmitError> {
        self.0.transmit(which, action, at)
    }

    /// Ends the trial at once, without a drain.
    pub fn end(&self) {
        self.0.end();
    }

    /// Is it over, or has it failed?
    pub fn is_over(&self) -> bool {
        self.0.published().closed
    }

    /// Asks all lanes for their counts and waits until they have answered: for `patience` at most. `None` when they have not, or when
    /// the trial is over. Lanes do nothing for this unless it is called.
    pub fn snapshot(&self, patience: Duration) -> Option<Snapshot> {
        let number = Requests(self.0.signals.requests.fetch_add(REQUEST, Ordering::Relaxed)).request() + 1;
        let answered = |p: &Published| p.lanes.iter().all(|l| l.as_ref().is_some_and(|(at, _)| *at >= number));
        let waits = |p: &mut Published| !p.closed && !answered(p);
        let waited = self.0.changed.wait_timeout_while(self.0.published(), patience, waits);
        let published = waited.unwrap_or_else(PoisonError::into_inner).0;
        answered(&published).then(|| Snapshot::of(published.lanes.iter().flatten().map(|(_, counts)| counts)))
    }
}

/// Counts of one lane for the others. Only this lane writes them.
#[derive(Default)]
#[repr(align(128))]
struct Progress {
    /// Since when it has nothing more to send; 0 while it has.
    done_at: AtomicU64,
    /// Frames that it has sent and that no ring refused; final when it is done.
    sent: AtomicU64,
    /// Distinct frames that it has received, up to date once it is done.
    distinct: AtomicU64,
}

/// Written before and at the end of a trial, read all the time.
#[derive(Default)]
#[repr(align(128))]
struct Signals {
    /// Requests to all lanes; see [`Requests`].
    requests: AtomicU64,
    /// When the trial starts; 0 before that is known.
    start: AtomicU64,
    ready: AtomicUsize,
}

/// How the lanes of a trial see each other.
pub(crate) struct Board {
    lanes: Box<[Progress]>,
    signals: Signals,
    published: Mutex<Published>,
    changed: Condvar,
    flows: FlowNames,
    inbox: Mutex<Inbox>,
}

/// Commands to flows, and who cannot follow them.
struct Inbox {
    /// By lane: those that it has not taken yet.
    commands: Vec<Vec<Command>>,
    /// Flows whose frames the kernel makes.
    in_kernel: BTreeSet<u32>,
}

/// Counts that lanes were asked for.
struct Published {
    /// Of each lane, with the number of the request.
    lanes: Vec<Option<(u64, LaneCounts)>>,
    /// True when no lane answers any more.
    closed: bool,
}

/// Requests to all lanes, in one word that their loops read at every turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests(u64);

const END: u64 = 1;
const END_OF_SENDING: u64 = 2;
/// There is a further command; 2^30 of them are counted.
const COMMAND: u64 = 4;
/// There is a further request for counts.
const REQUEST: u64 = 1 << 32;

impl Requests {
    /// All lanes stop at once: the user asked for it, or a lane failed.
    pub(crate) fn is_end(self) -> bool {
        self.0 & END != 0
    }

    /// Nothing more is sent.
    pub(crate) fn is_end_of_sending(self) -> bool {
        self.0 & END_OF_SENDING != 0
    }

    /// Number of the last request for counts.
    pub(crate) fn request(self) -> u64 {
        self.0 / REQUEST
    }
}

impl Board {
    pub(crate) fn new(lanes: usize, flows: FlowNames) -> Board {
        Board {
            lanes: (0..lanes).map(|_| Progress::default()).collect(),
            signals: Signals::default(),
            published: Mutex::new(Published { lanes: vec![None; lanes], closed: false }),
            changed: Condvar::new(),
            flows,
            inbox: Mutex::new(Inbox { commands: vec![Vec::new(); lanes], in_kernel: BTreeSet::new() }),
        }
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

    /// The commands that `lane` has not taken yet.
    pub(crate) fn commands(&self, lane: usize) -> Vec<Command> {
        std::mem::take(&mut self.inbox().commands[lane])
    }

    /// May the kernel make the frames of these flows? Then they follow no command from here on. Not where one waits for them.
    pub(crate) fn lend_to_kernel(&self, flows: &[u32]) -> bool {
        let mut inbox = self.inbox();
        let named = |command: &Command| flows.iter().any(|flow| command.names(*flow));
        if inbox.commands.iter().flatten().any(named) {
            return false;
        }
        inbox.in_kernel.extend(flows);
        true
    }

    /// The kernel does not make them after all.
    pub(crate) fn take_from_kernel(&self, flows: &[u32]) {
        let mut inbox = self.inbox();
        flows.iter().for_each(|flow| _ = inbox.in_kernel.remove(flow));
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `lane` has nothing more to send since `at`, and has sent `sent` frames that no ring refused.
    pub(crate) fn done(&self, lane: usize, at: Instant, sent: u64) {
        self.lanes[lane].sent.store(sent, Ordering::Relaxed);
        // A lane that sees the instant also sees the count.
        self.lanes[lane].done_at.store(at.0.max(1), Ordering::Release);
    }

    /// `lane` has received `distinct` frames.
    pub(crate) fn received(&self, lane: usize, distinct: u64) {
        self.lanes[lane].distinct.store(distinct, Ordering::Relaxed);
    }

    /// When the last lane was done; `None` while one has something to send.
    pub(crate) fn all_done(&self) -> Option<Instant> {
        let done = self.lanes.iter().map(|l| l.done_at.load(Ordering::Acquire));
        done.into_iter().try_fold(0, |last, at| (at > 0).then_some(last.max(at))).map(Instant)
    }

    /// Has every frame that was sent been received? Final counts of what was sent are needed, so all must be done. Counts of
    /// what was received only grow: an old one can make this false, but never true.
    pub(crate) fn accounted(&self) -> bool {
        let sum = |count: fn(&Progress) -> &AtomicU64| -> u64 {
            self.lanes.iter().map(|l| count(l).load(Ordering::Relaxed)).sum()
        };
        sum(|l| &l.sent) <= sum(|l| &l.distinct)
    }

    /// Stops all lanes.
    pub(crate) fn end(&self) {
        self.signals.requests.fetch_or(END, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn requests(&self) -> Requests {
        Requests(self.signals.requests.load(Ordering::Relaxed))
    }

    /// A lane answers request `number`.
    pub(crate) fn publish(&self, lane: usize, number: u64, counts: LaneCounts) {
        self.published().lanes[lane] = Some((number, counts));
        self.changed.notify_all();
    }

    /// From now on no lane answers.
    pub(crate) fn close(&self) {
        self.published().closed = true;
        self.changed.notify_all();
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        // A lane that panicked while it held it has left whole counts behind.
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A further lane is ready and waits for the start.
    pub(crate) fn await_start(&self) -> Result<Instant, LaneError> {
        self.signals.ready.fetch_add(1, Ordering::Relaxed);
        self.wait(|| match self.signals.start.load(Ordering::Relaxed) {
            0 => None,
            start => Some(Instant(start)),
        })
    }

    /// The first lane is ready; when all are it says when the trial starts.
    pub(crate) fn start(&self, clock: &SystemClock) -> Result<Instant, LaneError> {
        let further = self.lanes.len() - 1;
        self.wait(|| (self.signals.ready.load(Ordering::Relaxed) == further).then_some(()))?;
        let start = clock.now() + lead(clock);
        self.signals.start.store(start.0, Ordering::Relaxed);
        Ok(start)
    }

    /// Waits for `value`, or for the end.
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
