//! Multiple Loss Ratio Search, RFC 9971: finds for several goals at once the highest load that a DUT still carries.
//!
//! One file per term of the standard. Nothing here knows frames or a testbed: a [`Measurer`] is asked for a trial of some
//! duration at some load and tells how many frames were offered and lost. [`Search`] can also be driven by hand, one
//! trial at a time, so that what was found until then survives an interruption.
//!
//! The classification of a load is normative and exact ([`load_stats`]); which load is tried next is free ([`strategy`]).
//! MLRsearch finds *a* load at which the goal turns from met to missed; a DUT that loses frames at some lower load which
//! no trial visited goes unnoticed.

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
