//! A trial on several threads. A lane is one thread with some of the ports; each carries its part of the trial out by the
//! same loop as a trial on one thread.
//!
//! Lanes share no state that anyone writes per frame. What a lane tells the others, a line of the cache of its own, it
//! writes when it has nothing more to send, and the others read it then.

use crate::engine::{Control, Fared, LanePort, Ready, lead};
use crate::outcome::result;
use crate::plan::{Part, Plan, PlannedEvent};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{PortIndex, TrialResult};
use drophammer_port::priority::{Favoured, pin};
use drophammer_port::{Clock, Port, PortError, SystemClock};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, scope};

/// Why a trial on several lanes ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// A port stopped working.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The system does not give the thread that it should.
    #[error("lane {lane} of the tester cannot {what}: {source}")]
    Thread {
        /// Lane, from 0.
        lane: usize,
        /// What it cannot do.
        what: String,
        /// The system's word.
        source: std::io::Error,
    },
    /// A fault of this program.
    #[error("lane {lane} of the tester failed: {message}")]
    Panicked {
        /// Lane, from 0.
        lane: usize,
        /// Message of the panic.
        message: String,
    },
    /// Another lane failed before the trial started; that one says why.
    #[error("the trial ended before it started")]
    NotStarted,
}

/// What one lane tells the others. Only it writes here.
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
    /// The user's wish, or a lane that failed: all stop.
    ended: AtomicBool,
    /// When the trial starts; 0 before that is known.
    start: AtomicU64,
    ready: AtomicUsize,
}

/// How the lanes of a trial see each other.
pub(crate) struct Board {
    lanes: Box<[Progress]>,
    signals: Signals,
}

impl Board {
    pub(crate) fn new(lanes: usize) -> Board {
        Board { lanes: (0..lanes).map(|_| Progress::default()).collect(), signals: Signals::default() }
    }

    /// `lane` has nothing more to send since `at`, and has sent `sent` frames that no ring refused.
    pub(crate) fn done(&self, lane: usize, at: Instant, sent: u64) {
        self.lanes[lane].sent.store(sent, Ordering::Relaxed);
        // Whoever sees the instant sees the count.
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
        self.signals.ended.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn ended(&self) -> bool {
        self.signals.ended.load(Ordering::Relaxed)
    }

    /// A further lane is ready and waits for the start.
    fn await_start(&self) -> Result<Instant, LaneError> {
        self.signals.ready.fetch_add(1, Ordering::Relaxed);
        self.wait(|| match self.signals.start.load(Ordering::Relaxed) {
            0 => None,
            start => Some(Instant(start)),
        })
    }

    /// The first lane is ready; when all are it says when the trial starts.
    fn start(&self, clock: &SystemClock) -> Result<Instant, LaneError> {
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
            if self.ended() {
                return Err(LaneError::NotStarted);
            }
            std::thread::yield_now();
        }
    }
}

/// Stops the other lanes when the one that holds it fails or panics.
struct StopsOthers<'a>(Option<&'a Board>);

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        if let Some(board) = self.0 {
            board.end();
        }
    }
}

/// What all lanes of a trial know.
#[derive(Clone, Copy)]
struct Common<'a> {
    board: &'a Board,
    clock: SystemClock,
    events: &'a [PlannedEvent],
    drain_ns: u64,
}

/// What a lane has to itself.
struct Lane<'a> {
    number: usize,
    part: &'a mut Part,
    ports: Vec<LanePort<'a>>,
    control: &'a mut dyn Control,
    /// Where its thread is to run, if that is not left open.
    processor: Option<usize>,
}

impl Lane<'_> {
    /// Makes itself ready, waits for the start as `start` says, carries its part out. Whatever ends it but success ends the
    /// others too.
    fn work(
        mut self,
        common: Common<'_>,
        start: impl FnOnce(&Board) -> Result<Instant, LaneError>,
    ) -> Result<Fared, LaneError> {
        let mut guard = StopsOthers(Some(common.board));
        if let Some(processor) = self.processor {
            let what = || format!("run on processor {processor}");
            pin(processor).map_err(|source| LaneError::Thread { lane: self.number, what: what(), source })?;
        }
        let _favoured = Favoured::new();
        let ready = Ready::new(self.part, &mut self.ports, common.events, common.drain_ns)?;
        let start = start(common.board)?;
        let fared = ready.run(start, &mut { common.clock }, self.control, self.number, common.board)?;
        guard.0 = None;
        Ok(fared)
    }
}

type Share<'a> = Vec<(PortIndex, &'a mut (dyn Port + Send))>;

fn lane_ports(share: Share<'_>) -> Vec<LanePort<'_>> {
    share.into_iter().map(|(index, port)| LanePort { index, port: port as &mut dyn Port }).collect()
}

/// Runs `plan` over `ports`, one thread per lane; `ports[i]` is port i of the plan. The first lane runs on the calling thread,
/// where its caller has put it, under `first`; the others run on threads of their own, on `processors` in order (on whatever
/// the calling thread may use if there are none), before other work where that is allowed, each under its one of `others`.
/// The result is what [`crate::run`] returns.
///
/// # Errors
/// [`LaneError`] of the first lane that has one to tell.
///
/// # Panics
/// When there are not as many processors (or none) and controls as further lanes, or ports as in the plan, and when the first
/// lane does; the others have ended by then.
pub fn run_lanes<C: Control + Send>(
    mut plan: Plan,
    ports: &mut [Box<dyn Port + Send>],
    clock: SystemClock,
    processors: &[usize],
    first: &mut dyn Control,
    others: &mut [C],
) -> Result<TrialResult, LaneError> {
    let lanes = plan.parts.len();
    assert_eq!(others.len() + 1, lanes, "each lane has its control");
    assert_eq!(ports.len(), plan.layout.ports(), "all ports of the plan are there");
    assert!(processors.is_empty() || processors.len() + 1 == lanes, "each further lane has its processor");
    let mut shares: Vec<Share<'_>> = (0..lanes).map(|_| Vec::new()).collect();
    for (index, port) in ports.iter_mut().enumerate() {
        let port: &mut (dyn Port + Send) = port.as_mut();
        shares[plan.layout.lane_of(index)].push((index, port));
    }
    let board = Board::new(lanes);
    let common = Common { board: &board, clock, events: &plan.events, drain_ns: plan.drain_ns };
    let wall_before = clock.wall_offset();
    let mut work = plan.parts.iter_mut().zip(shares);
    let (part, share) = work.next().expect("a plan has a lane");
    let own = Lane { number: 0, part, ports: lane_ports(share), control: first, processor: None };

    let fared: Vec<Result<Fared, LaneError>> = scope(|scope| {
        let threads: Vec<_> = work
            .zip(others)
            .enumerate()
            .map(|(n, ((part, share), control))| {
                let (number, processor) = (n + 1, processors.get(n).copied());
                let body = move || {
                    let lane = Lane { number, part, ports: lane_ports(share), control, processor };
                    lane.work(common, Board::await_start)
                };
                Builder::new().name(format!("lane {number}")).spawn_scoped(scope, body).map_err(|source| {
                    common.board.end();
                    LaneError::Thread { lane: number, what: "start".into(), source }
                })
            })
            .collect();
        let own = own.work(common, |board| board.start(&clock));
        let joined = threads.into_iter().enumerate().map(|(n, thread)| match thread?.join() {
            Ok(fared) => fared,
            Err(panic) => Err(LaneError::Panicked { lane: n + 1, message: message(panic.as_ref()) }),
        });
        std::iter::once(own).chain(joined).collect()
    });
    let step = clock.wall_offset() - wall_before;
    let mut whole = Vec::with_capacity(lanes);
    let mut failed = None;
    for fared in fared {
        match (fared, &failed) {
            (Ok(fared), _) => whole.push(fared),
            // The lane that failed knows more than those that only ended with it.
            (Err(e), None | Some(LaneError::NotStarted)) => failed = Some(e),
            (Err(_), Some(_)) => {}
        }
    }
    match failed {
        Some(e) => Err(e),
        None => Ok(result(&mut plan, &whole, i64::try_from(step).unwrap_or(i64::MAX))),
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}
