//! Multiple Loss Ratio Search, RFC 9971: finds the highest load that a DUT carries, for several goals at the same time.
//!
//! One file per term of the standard. Nothing here depends on frames or a testbed: a [`Measurer`] runs a trial of a
//! given duration at a given load and returns how many frames were offered and lost. A caller can also drive [`Search`]
//! one trial at a time, so that its results survive an interruption.
//! The classification of a load is normative and exact ([`load_stats`]); the choice of the next load is free
//! ([`strategy`]). MLRsearch finds *a* load at which the goal changes from met to missed. It does not notice if a DUT
//! also loses frames at a lower load that no trial used.
//! also loses frames at some lower load that no trial visited.

pub mod goal;
pub mod goal_result;
pub mod load;
pub mod load_stats;
pub mod measurement;
pub mod relevant_bounds;
pub mod search;
pub mod strategy;
pub mod target;

pub use goal::{GoalError, SearchGoal};
pub use goal_result::{Bound, GoalResult, Irregular};
pub use load::LoadGrid;
pub use load_stats::{Classification, LoadStats};
pub use measurement::{Measurement, Measurer};
pub use search::{Budget, Search, SearchEnd};
pub use target::Target;
