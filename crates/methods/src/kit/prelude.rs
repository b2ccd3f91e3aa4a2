//! Imports that almost every test needs, for `use crate::kit::prelude::*`.

pub use crate::kit::figure::FigureSpec;
pub use crate::kit::parameters::*;
pub(crate) use crate::kit::pattern::arrivals::{note_reached, watched};
pub use crate::kit::pattern::{Limits, Pattern};
pub use crate::kit::plan::Plan;
pub use crate::kit::report::*;
pub use crate::kit::table::TableSpec;
pub use crate::kit::testbed::{LowerBound, PortView, Setting, TestError, Testbed};
pub use crate::kit::throughput_search::{goal_deviations, known_bound, known_throughput, zero_loss_goal};
pub use crate::kit::trial::{Seen, Trial};
pub use crate::kit::trial_count::TrialCount;
pub use crate::{Method, columns};
pub use drophammer_model::capabilities::Need;
pub use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure};
pub use drophammer_model::param::{Param, Percent};
pub use drophammer_model::pattern::{Direction, Distribution};
pub use drophammer_model::quantity::{FrameRate, show_duration};
pub use drophammer_model::registry::TestSpec;
pub use drophammer_model::size::PacketSize;
pub use drophammer_model::suite::Params;
pub use drophammer_model::trial::{Family, Load, PortIndex, TrialResult, TrialSpec};
pub use std::time::Duration;
