//! From repeated figures to statements: a median with its interval, whether two DUTs differ, and ranks.
//!
//! The round is the sample. A DUT is brought up anew in each round, so trials of one bring-up are not taken for independent
//! ones. The same functions serve ranks, `expect` of suites, and comparisons of runs.
//!
//! - [`Figure`]: what one round says: a number, or bounds where a limit of the tester or of the test came first.
//! - [`summarize`]: median and a confidence interval without an assumed distribution (order statistics).
//! - [`compare`]: is one DUT better than another? Rounds are paired.
//! - [`compare_unpaired`]: is a DUT better in one run than in another? Rounds are not paired.
//! - [`Family`]: all comparisons of a run together, so that the chance of any false rank stays within 5 %.
//! - [`trend`]: does a figure change with time? A slope and its interval.
//! - [`judge`], [`judge_rounds`]: is a criterion met for certain, missed for certain, or undecided?

mod compare;
mod family;
mod summary;
mod trend;
mod unpaired;

pub use compare::{Comparison, Rule, SIGNS_FROM, Scale, Test, chance_of_more, compare, compare_by, compare_failures};
pub use family::{ERROR, Family, Verdict};
pub use summary::{CONFIDENCE, Decision, Summary, judge, judge_rounds, judged_interval, summarize};
pub use trend::{TREND_CONFIDENCE, Trend, trend};
pub use unpaired::{UNPAIRED_FROM, Unpaired, compare_unpaired};

use serde::{Deserialize, Serialize};

/// What one round says of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RoundFigure {
    /// The DUT's figure.
    Measured(Figure),
    /// The DUT gave none: it failed.
    Failed,
    /// It was not measured, or does not apply; this says nothing of the DUT.
    NotMeasured,
}

impl RoundFigure {
    /// The figure, if there is one.
    pub fn figure(self) -> Option<Figure> {
        match self {
            RoundFigure::Measured(figure) => Some(figure),
            RoundFigure::Failed | RoundFigure::NotMeasured => None,
        }
    }
}

/// A figure of one round: a value, or bounds between which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// It is not below this.
    pub low: f64,
    /// It is not above this.
    pub high: f64,
}

impl From<f64> for Figure {
    fn from(value: f64) -> Figure {
        Figure::exactly(value)
    }
}

impl Figure {
    /// A figure that was measured.
    pub fn exactly(value: f64) -> Figure {
        Figure { low: value, high: value }
    }

    /// A limit came first: the figure is `value` or more.
    pub fn at_least(value: f64) -> Figure {
        Figure { low: value, high: f64::INFINITY }
    }

    /// The figure is `value` or less.
    pub fn at_most(value: f64) -> Figure {
        Figure { low: f64::NEG_INFINITY, high: value }
    }

    /// Nothing is known.
    pub fn unknown() -> Figure {
        Figure { low: f64::NEG_INFINITY, high: f64::INFINITY }
    }

    /// Was it measured rather than bounded?
    pub fn is_exact(self) -> bool {
        self.low == self.high
    }

    /// The finite bound.
    pub fn bound(self) -> f64 {
        if self.low.is_finite() { self.low } else { self.high }
    }
}
