//! From repeated figures to conclusions: a median with its interval, whether two DUTs differ, and ranks.
//!
//! The round is the sample. A DUT is brought up again in each round, because trials of one bring-up are not
//! independent. The same functions serve ranks, `expect` of suites, and comparisons of runs.
//!
//! - [`Figure`](drophammer_model::figure::Figure): the result of one round: a number, or bounds if the tester or the test set the limit.
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

pub use compare::{Comparison, Rule, SIGNS_FROM, Test, chance_of_more, compare, compare_by, compare_failures};
pub use duet::{DUET_CONFIDENCE, FEWEST_PAIRS, PairedRatio, ratio_of_pairs, ratio_of_rounds};
pub use family::{ERROR, Family, Verdict};
pub use summary::{CONFIDENCE, Summary, judge, judge_rounds, judged_interval, summarize};
pub use trend::{TREND_CONFIDENCE, Trend, trend};
pub use unpaired::{UNPAIRED_FROM, Unpaired, compare_unpaired};
