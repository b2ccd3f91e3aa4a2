//! A trial on several threads. A lane is one thread that drives some queues of the ports. It runs its part of the trial
//! in the same loop as a trial on one thread.
//!
//! Lanes share no state that they write per frame. A lane that has finished sending writes its counts to its own cache
//! line, where the other lanes read them.
//!
//! # Lanes
//!
//! `--threads N` splits a trial into lanes, each on its own processor with a share of the queues: counted over all
//! ports, queue i is on lane i modulo N (`traffic::Layout`). A lane sends the flows that leave through its queues and
//! counts the frames that arrive there, even at a wrong port. The lane of a port's first queue serves the devices of
//! the port; other lanes pass frames for these devices to that lane. Lanes exchange three numbers: when they finished
//! sending, and the frames sent and received. A stop request, a failed port or a panic in one lane ends all lanes.
//! Virtual time has one lane.
//!
//! # Queues
//!
//! A `Port` is an interface or one of its queues (`PortInfo::queue`). `--queues M` opens M queues of each interface
//! (`Backend::begin`). In a list of ports the queues of an interface are adjacent. All frames of a flow leave through
//! one queue. If the flows of a port share a load, the load has one schedule, and each queue sends a part of it
//! (`Schedule::part`), so frames leave at the same times with any number of queues. A frame can arrive at any queue,
//! and a flow with many addresses at several. Each lane with a queue of the port has its own state of the flow. Three
//! rules make the sum exact:
//!
//! - All copies of a frame arrive at one lane, because they have the same addresses and ports (RSS). The merge checks
//!   this with the bits of received frames, within the windows; copies on two lanes are `Health::copies_apart` and make
//!   the trial invalid.
//! - A frame in another encapsulation may arrive at another queue. Lanes report these frames too, and
//!   `outcome.rs` counts each once, within the windows; if its copies differ in several ways, the lowest lane
//!   decides.
//! - One lane receives a flow with an alternate path or with counts by destination. `Layout::for_flows` joins lanes for
//!   this; planning for another layout fails (`PlanError::Apart`).
//!
//! The order of frames in different queues is unknown. A flow with frames at several queues counts as `order_unknown`
//! and adds nothing to the counts of reordering; reports then show reordering as unknown. The same applies to a port
//! whose network card has more receive queues than the port reads (`PortInfo::merges_queues`, `Layout::merging`).

use crate::engine::{Control, Course, LanePort, LaneState};
use crate::live::Board;
use crate::outcome::merge;
use crate::plan::{Part, Plan, PlannedEvent, QueueIndex};
use crate::traffic::Traffic;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{PortIndex, TrialResult};
use drophammer_port::priority::{HighPriority, pin};
use drophammer_port::{Port, PortError, SystemClock};

/// The reason why a trial on several lanes ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// A port stopped working.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The operating system did not start the thread, or did not place it on its processor.
    #[error("lane {lane} of the tester cannot {what}: {source}")]
    Thread {
        /// Number of the lane, from 0.
        lane: usize,
        /// What failed.
        what: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A bug in this program.
    #[error("lane {lane} of the tester failed: {message}")]
    Panicked {
        /// Number of the lane, from 0.
        lane: usize,
        /// Message of the panic.
        message: String,
    },
    /// Another lane failed before the trial started; see that lane's error.
    #[error("the trial ended before it started")]
    NotStarted,
}

/// Stops the other lanes if its holder fails or panics.
struct StopsOthers<'a>(Option<&'a Board>);

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        if let Some(board) = self.0 {
            board.end();
        }
    }
}

/// Data shared by all lanes of a trial.
#[derive(Clone, Copy)]
pub(crate) struct Common<'a> {
    pub(crate) board: &'a Board,
    pub(crate) clock: SystemClock,
    pub(crate) events: &'a [PlannedEvent],
    pub(crate) drain_ns: u64,
    /// When the trial started, if it has started.
    pub(crate) start: Option<Instant>,
    pub(crate) until: Instant,
}

/// Data of one lane.
pub(crate) struct Lane<'a> {
    pub(crate) number: usize,
    pub(crate) part: &'a mut Part,
    pub(crate) state: &'a mut Option<LaneState>,
    pub(crate) ports: Vec<LanePort<'a>>,
    pub(crate) control: &'a mut dyn Control,
    /// Processor of the lane's thread; `None` for any processor.
    pub(crate) processor: Option<usize>,
}

impl Lane<'_> {
    /// Prepares the lane, waits for `start`, and runs the lane's part of the trial. If that fails, the other lanes end
    /// too. Returns when the trial started.
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

/// Queues for the thread of a lane.
pub(crate) type Share<'a> = Vec<(PortIndex, QueueIndex, &'a mut (dyn Port + Send))>;

pub(crate) fn lane_ports(share: Share<'_>) -> Vec<LanePort<'_>> {
    share.into_iter().map(|(index, queue, port)| LanePort { index, queue, port: port as &mut dyn Port }).collect()
}

/// Runs `plan` over `ports` with one thread per lane; `ports[i]` is queue i of the plan's layout. See
/// [`Traffic::drive_lanes`] for the threads, and [`crate::run`] for the result.
///
/// # Errors
/// [`LaneError`] of the first lane that has a cause to report.
///
/// # Panics
/// Like [`Traffic::drive_lanes`].
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
