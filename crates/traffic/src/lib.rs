//! Sends frames of flows on time (generator), and computes loss, order and latency from received frames (analyzer).
//!
//! [`Plan`] prepares a [`drophammer_model::trial::TrialSpec`] before the trial: templates, schedules, state. [`run`] then drives
//! ports and clock on one thread, [`run_lanes`] on several. From the first to the last frame neither allocates nor locks, with two
//! exceptions: the first frames of a flow in an unexpected encapsulation allocate their counts, and flows can be started and
//! stopped ([`Live::transmit`]).

pub mod analyzer;
mod arriving;
mod counts;
pub mod engine;
pub mod flow_state;
mod gaps;
pub mod generator;
mod headers;
pub mod histogram;
mod intact;
pub mod lanes;
mod layout;
mod live;
mod losses;
mod outcome;
pub mod payload;
pub mod permutation;
pub mod plan;
mod recognize;
mod refusals;
mod report;
pub mod schedule;
pub mod template;
mod totals;
mod traffic;
mod transmit;

pub use counts::{FlowCounts, GroupCounts, LaneCounts, Received, Snapshot};
pub use engine::{Control, SendFrame, run};
pub use flow_state::Arrived;
pub use lanes::{LaneError, run_lanes};
pub use live::Live;
pub use losses::{LossRun, LossRuns};
pub use outcome::merge;
pub use plan::{Layout, Neighbour, Plan, PlanError, QueueIndex, Timing, VlanNeighbour};
pub use recognize::TestTraffic;
pub use report::{
    DeviatingReport, EventReport, FlowReport, GroupReport, GroupSentReport, LaneReport, PortArrivals, SenderReport,
    StoppedReport, StretchReport, Trial,
};
pub use totals::Totals;
pub use traffic::{CONTINUOUS, Traffic};
pub use transmit::{FlowSelect, Transmit, TransmitAction, TransmitError};
