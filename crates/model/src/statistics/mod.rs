//! From repeated figures to statements: a median with its interval, whether two DUTs differ, and ranks.
//!
//! The round is the sample. A DUT is brought up anew in each round, so trials of one bring-up are not taken for independent
//! ones. The same functions serve ranks, `expect` of suites, and comparisons of runs.
//!
//! - [`Figure`]: what one round says: a number, or bounds where a limit of the tester or of the test came first.
//! - [`summarize`]: median and a confidence interval without an assumed distribution (order statistics).
//! - [`compare`]: is one DUT better than another? Rounds are paired.
//! - [`Family`]: all comparisons of a run together, so that the chance of any false rank stays within 5 %.
//! - [`judge`]: is a criterion met for certain, missed for certain, or undecided?

mod compare;
mod family;
mod summary;

pub use compare::{Comparison, Rule, Scale, compare};
pub use family::{ERROR, Family, Verdict};
pub use summary::{CONFIDENCE, Decision, Summary, judge, summarize};

use serde::{Deserialize, Serialize};

/// A figure of one round: a value, or bounds between which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// It is not below this.
    pub low: f64,
    /// It is not above this.
    pub high: f64,
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

    /// Was it measured rather than bounded?
    pub fn is_exact(self) -> bool {
        self.low == self.high
    }

    /// The finite bound.
    pub fn bound(self) -> f64 {
        if self.low.is_finite() { self.low } else { self.high }
    }
}
