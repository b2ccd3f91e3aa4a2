//! A trial on several threads. A lane is one thread with some queues of the ports; each carries its part of the trial out by the
//! same loop as a trial on one thread.
//!
//! Lanes share no state that anyone writes per frame. What a lane tells the others, a line of the cache of its own, it
//! writes when it has nothing more to send, and the others read it then.

use crate::engine::{Control, Course, LanePort, LaneState};
use crate::live::Board;
use crate::outcome::merge;
use crate::plan::{Part, Plan, PlannedEvent, QueueIndex};
use crate::traffic::Traffic;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{PortIndex, TrialResult};
use drophammer_port::priority::{HighPriority, pin};
use drophammer_port::{Port, PortError, SystemClock};

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
pub(crate) struct Common<'a> {
    pub(crate) board: &'a Board,
    pub(crate) clock: SystemClock,
    pub(crate) events: &'a [PlannedEvent],
    pub(crate) drain_ns: u64,
    /// When the trial started; `None` if it has not.
    pub(crate) start: Option<Instant>,
    pub(crate) until: Instant,
}

/// What a lane has to itself.
pub(crate) struct Lane<'a> {
    pub(crate) number: usize,
    pub(crate) part: &'a mut Part,
    pub(crate) state: &'a mut Option<LaneState>,
    pub(crate) ports: Vec<LanePort<'a>>,
    pub(crate) control: &'a mut dyn Control,
    /// Where its thread is to run, if that is not left open.
    pub(crate) processor: Option<usize>,
}

impl Lane<'_> {
    /// Makes itself ready, waits for the start as `start` says, carries its part out. Whatever ends it but success ends the
    /// others too. Returns when the trial started.
    pub(crate) fn work(
        mut self,
        common: Common<'_>,
        start: impl FnOnce(&Board) -> Result<Instant, LaneError>,
    ) -> Result<Instant, LaneError> {
        let mut guard = StopsOthers(Some(common.board));
        if let Some(processor) = self.processor {
            let what = || format!("run on processor {processor}");
            pin(processor).map_err(|source| LaneError::Thread { lane: self.number, what: what(), source })?;
        }
        let _priority = HighPriority::new();
        let (state, start) = match (self.state, common.start) {
            (Some(state), Some(start)) => (state, start),
            (state, _) => {
                let ready =
                    state.insert(LaneState::new(self.part, &mut self.ports, common.events.len(), common.board)?);
                let start = start(common.board)?;
                ready.begin(self.part, &mut self.ports, start, (self.number, common.board));
                (ready, start)
            }
        };
        let Common { board: live, events, drain_ns, until, .. } = common;
        let course = Course { start, until, lane: self.number, live, events, drain_ns };
        state.drive(self.part, &mut self.ports, &mut { common.clock }, self.control, course)?;
        guard.0 = None;
        Ok(start)
    }
}

/// Queues of a lane that go to its thread.
pub(crate) type Share<'a> = Vec<(PortIndex, QueueIndex, &'a mut (dyn Port + Send))>;

pub(crate) fn lane_ports(share: Share<'_>) -> Vec<LanePort<'_>> {
    share.into_iter().map(|(index, queue, port)| LanePort { index, queue, port: port as &mut dyn Port }).collect()
}

/// Runs `plan` over `ports`, one thread per lane; `ports[i]` is queue i of the plan's layout. The first lane runs on the calling thread,
/// where its caller has put it, under `first`; the others run on threads of their own, on `processors` in order (on whatever
/// the calling thread may use if there are none), before other work where that is allowed, each under its one of `others`.
/// The result is what [`crate::run`] returns.
///
/// # Errors
/// [`LaneError`] of the first lane that has one to tell.
///
/// # Panics
/// When there are not as many processors (or none) and controls as further lanes, or ports as queues in the plan, and when the first
/// lane does; the others have ended by then.
pub fn run_lanes<C: Control + Send>(
    plan: Plan,
    ports: &mut [Box<dyn Port + Send>],
    clock: SystemClock,
    processors: &[usize],
    first: &mut dyn Control,
    others: &mut [C],
) -> Result<TrialResult, LaneError> {
    let mut traffic = Traffic::new(plan);
    traffic.drive_lanes(ports, clock, processors, first, others, Instant(u64::MAX))?;
    Ok(merge(&traffic.reports()))
}

pub(crate) fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}
