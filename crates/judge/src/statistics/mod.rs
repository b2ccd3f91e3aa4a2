//! Statistics of repeated figures: a median with its interval, whether two DUTs differ, and ranks.
//!
//! The round is the sample. The runner brings a DUT up again in each round, because the trials of one bring-up are not
//! independent. Ranks, `expect` in suites, and comparisons of runs use the same functions.
//!
//! - [`Figure`](drophammer_model::figure::Figure) is the result of one round: a number, or bounds if the tester or the
//!   test set the limit.
//! - [`summarize`] gives a median and a confidence interval, assuming no distribution (order statistics).
//! - [`compare`] decides whether one DUT is better than another. It pairs rounds.
//! - [`compare_unpaired`] decides whether a DUT is better in one run than in another. It does not pair rounds.
//! - [`ratio_of_rounds`] gives the ratio of two DUTs that were measured at the same time.
//! - [`Family`] judges all comparisons of a run together, so that any rank is false with a probability of at most 5 %.
//! - [`trend`] decides whether a figure changes with time: a slope and its interval.
//! - [`judge_rounds`] decides whether a criterion is certainly met, certainly missed, or undecided.

mod compare;
mod duet;
mod family;
mod summary;
mod trend;
mod unpaired;

pub use compare::{Comparison, Rule, SIGNS_FROM, Test, chance_of_more, compare, compare_by, compare_failures};
pub use duet::{DUET_CONFIDENCE, FEWEST_PAIRS, PairedRatio, ratio_of_pairs, ratio_of_rounds};
pub use family::{ERROR, Family, Verdict};
pub use summary::{CONFIDENCE, Summary, judge_rounds, judged_interval, summarize};
pub use trend::{TREND_CONFIDENCE, Trend, trend};
pub use unpaired::{UNPAIRED_FROM, Unpaired, compare_unpaired};

/// The median; for an even number of values, the mean of the two in the middle. Sorts `values`.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

/// Mean and variance of at least two values.
fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let n = values.len();
    let mean = values.iter().sum::<f64>() / n as f64;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1) as f64)
}
