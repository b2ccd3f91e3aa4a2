//! Flows to frames on time (generator), and frames to loss, order and latency (analyzer).
//!
//! [`Plan`] lays a [`drophammer_model::trial::TrialSpec`] out before the trial: templates, schedules, state. [`run`]
//! then drives ports and clock; from first to last frame it neither allocates nor locks.

pub mod analyzer;
pub mod engine;
pub mod flow_state;
pub mod generator;
pub mod histogram;
pub mod payload;
pub mod permutation;
pub mod plan;
pub mod schedule;
pub mod template;

pub use engine::{Control, run};
pub use plan::{Neighbour, Plan, PlanError, Timing};
