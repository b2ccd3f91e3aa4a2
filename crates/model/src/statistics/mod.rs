//! From repeated figures to conclusions: a median with its interval, whether two DUTs differ, and ranks.
//!
//! The round is the sample. A DUT is brought up again in each round, because trials of one bring-up are not
//! independent. The same functions serve ranks, `expect` of suites, and comparisons of runs.
//!
//! - [`Figure`]: the result of one round: a number, or bounds if the tester or the test set the limit.
//! - [`summarize`]: median and a confidence interval without an assumed distribution (order statistics).
//! - [`compare`]: whether one DUT is better than another. Rounds are paired.
//! - [`compare_unpaired`]: whether a DUT is better in one run than in another. Rounds are not paired.
//! - [`ratio_of_rounds`]: the ratio of two DUTs that were measured in the same instants.
//! - [`Family`]: all comparisons of a run together, so that the probability of any false rank is at most 5 %.
//! - [`trend`]: whether a figure changes with time: a slope and its interval.
//! - [`judge`], [`judge_rounds`]: whether a criterion is met for certain, missed for certain, or undecided.

mod compare;
mod duet;
mod family;
mod summary;
mod trend;
mod unpaired;

pub use compare::{Comparison, Rule, SIGNS_FROM, Scale, Test, chance_of_more, compare, compare_by, compare_failures};
pub use duet::{DUET_CONFIDENCE, FEWEST_PAIRS, PairedRatio, ratio_of_pairs, ratio_of_rounds};
pub use family::{ERROR, Family, Verdict};
pub use summary::{CONFIDENCE, Decision, Summary, judge, judge_rounds, judged_interval, summarize};
pub use trend::{TREND_CONFIDENCE, Trend, trend};
pub use unpaired::{UNPAIRED_FROM, Unpaired, compare_unpaired};

use serde::{Deserialize, Serialize};

/// The result of one round for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RoundFigure {
    /// The DUT's figure.
    Measured(Figure),
    /// The DUT failed, so there is no figure.
    Failed,
    /// Not measured, or not applicable; this says nothing about the DUT.
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
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
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

    /// A limit was reached first: the figure is `value` or more.
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

    /// True if it was measured, false if it is only bounded.
    pub fn is_exact(self) -> bool {
        self.low == self.high
    }

    /// The finite bound.
    pub fn bound(self) -> f64 {
        if self.low.is_finite() { self.low } else { self.high }
    }
}
