//! The figure of one round, how to compare figures, and reasons to doubt a figure. Crate `judge` draws the conclusions.

use serde::{Deserialize, Serialize};

/// Result of one round for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RoundFigure {
    /// The DUT's figure.
    Measured(Figure),
    /// The DUT failed, so there is no figure.
    Failed,
    /// Not measured or not applicable, which proves nothing about the DUT.
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

/// A figure of one round: a value, or bounds.
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
    /// A measured figure.
    pub fn exactly(value: f64) -> Figure {
        Figure { low: value, high: value }
    }

    /// The figure is `value` or more, because another limit was reached first.
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

    /// True if the figure was measured, false if there are only bounds.
    pub fn is_exact(self) -> bool {
        self.low == self.high
    }

    /// The finite bound.
    pub fn bound(self) -> f64 {
        if self.low.is_finite() { self.low } else { self.high }
    }
}

/// How to compare figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// By ratio: rates, latencies, times, table sizes. Figures are above 0.
    #[default]
    Ratio,
    /// By difference: loss, and all other figures that can be 0.
    Difference,
}

/// The decision on a criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The whole interval meets the criterion.
    Met,
    /// No part of the interval meets it.
    Missed,
    /// Only a part of the interval meets it.
    Undecided,
}

/// A trial that lost frames while the processor was idle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Round of the run.
    pub round: u32,
    /// The trial that lost the most.
    pub trial: u64,
    /// Explanation: `41 % of the frames were lost while the DUT's processor was 57 % busy (trial 12): bursts of the
    /// tester may cause this loss`.
    pub text: String,
}

/// What the result of a search implies for other loads. Rates are frames per second per sending port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Name of the goal: `NDR(0)`.
    pub goal: String,
    /// Number of a trial of the search. Only trials with the same frame sizes and flows can contradict the claim.
    pub trial: u64,
    /// Trials that the search repeated and that therefore no longer count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<u64>,
    /// Every load up to this one meets the goal; absent if the search found no such load.
    pub met_pps: Option<f64>,
    /// No load from this one upwards meets the goal; absent if the search found no such load.
    pub missed_pps: Option<f64>,
    /// Relative distance of the two bounds at which the search ended.
    pub width: f64,
    /// A trial that loses a larger share of its frames (0 to 1) is lossy.
    pub loss_ratio: f64,
    /// Share of the trial time at a load that may be lossy, 0 to 1.
    pub exceed_ratio: f64,
    /// Duration of a full trial; shorter trials can only count against a load.
    pub trial_duration_s: f64,
    /// Trial time that decides a load.
    pub duration_sum_s: f64,
}

/// A trial that contradicts a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refutation {
    /// Round of the run.
    pub round: u32,
    /// The trial that contradicts it most clearly.
    pub trial: u64,
    /// True if the DUT can do more than the figure, false if less.
    pub more: bool,
    /// Description of the trial: `trial 57: 0 of 190,000 frames lost at 190,000 fps`.
    pub text: String,
}

/// Text between the goal and the trial in the mark of a refuted row.
pub const REFUTED: &str = " refuted by ";
