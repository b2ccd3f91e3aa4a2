//! Sends frames of flows on time (generator), and computes loss, order and latency from received frames (analyzer).
//!
//! [`Plan`] prepares a [`drophammer_model::trial::TrialSpec`] before the trial: templates, schedules, state. [`run`]
//! then drives ports and clock on one thread, [`run_lanes`] on several. From the first to the last frame, neither
//! allocates nor locks, except in these rare cases:
//!
//! - The first frame of a flow with each deviation, and the first frame in each wrong place, allocate counts.
//! - Another thread starts or stops flows ([`Live::transmit`]), switches a link, or asks for all counts
//!   ([`Live::snapshot`]).
//! - With more than 1,310 groups (times lanes), long latencies allocate their counts. So does a latency that is counted
//!   2^32 times.
//!
//! # Trials
//!
//! A trial (RFC 2544 section 23) has flows, a load and a duration. Flows of a group are counted together. The load is
//! constant, in steps, a burst, or the maximum. A flow sends to a range of addresses or to a part of `model::routes`,
//! once to each destination per round, in a computed order. So the sequence number determines the destination, and
//! counting by destination costs one addition per arrival. A flow can have alternate paths, with more ports where its
//! frames may arrive; these ports then share a lane (`Layout::for_flows`).
//!
//! A trial discards old frames, sends evenly spaced frames, and ends when every frame is accounted for or the drain
//! time is over. On real interfaces its thread is pinned to the tester's processor, at high priority if the user has
//! permission.

pub mod analyzer;
mod arriving;
mod counts;
pub mod engine;
mod far;
pub mod flow_state;
mod gaps;
pub mod generator;
mod headers;
pub mod histogram;
mod intact;
mod lane_report;
pub mod lanes;
mod layout;
mod live;
mod losses;
mod outcome;
pub mod payload;
pub mod permutation;
pub mod plan;
mod recognize;
pub mod schedule;
pub mod template;
mod totals;
mod traffic;
mod transmit;

pub use counts::{Arrivals, FlowCounts, GroupCounts, LaneCounts, PlaceCounts, Received, Snapshot};
pub use engine::{Control, SendFrame, run};
pub use far::{FarTraffic, Standing, Wish};
pub use flow_state::Arrived;
pub use lane_report::{
    DeviatingReport, EventReport, FlowReport, GroupReport, GroupSentReport, LaneReport, PortArrivals, Refusals,
    SenderReport, StoppedReport, StretchReport, Trial,
};
pub use lanes::{LaneError, run_lanes};
pub use live::Live;
pub use losses::{LossRun, LossRuns};
pub use outcome::merge;
pub use plan::{CONTINUOUS_BINS, Layout, Neighbour, Plan, PlanError, QueueIndex, Timing, VlanNeighbour};
pub use recognize::TestTraffic;
pub use totals::Totals;
pub use traffic::{Agreed, CONTINUOUS, Traffic};
pub use transmit::{FlowSelect, Transmit, TransmitAction, TransmitError};
