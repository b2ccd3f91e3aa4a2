//! Relevant bounds (RFC 9971 section 4.8): the smallest upper bound, and the largest lower bound below it.

use super::load_stats::{Classification, LoadStats};
use super::target::Target;
use std::collections::BTreeMap;

/// Relevant bounds of one target as indices of the load grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelevantBounds {
    /// Largest lower bound below the relevant upper bound.
    pub lower: Option<u32>,
    /// Smallest upper bound.
    pub upper: Option<u32>,
    /// True if a load above the relevant upper bound meets the target: loss does not grow with load here.
    pub inverted: bool,
}

/// Derives the bounds of `target` from all trials so far.
pub fn relevant_bounds(loads: &BTreeMap<u32, LoadStats>, target: &Target) -> RelevantBounds {
    let mut bounds = RelevantBounds::default();
    for (index, stats) in loads {
        match stats.classify(target) {
            Classification::Upper if bounds.upper.is_none() => bounds.upper = Some(*index),
            Classification::Lower if bounds.upper.is_none() => bounds.lower = Some(*index),
            Classification::Lower => bounds.inverted = true,
            _ => {}
        }
    }
    bounds
}
