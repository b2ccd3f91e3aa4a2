//! Choice of the next load for a target. RFC 9971 leaves this free; this strategy is our own.
//!
//! Bounds of the preceding, coarser target serve as hints. In this order: halve the hinted interval; confirm a hinted
//! bound; if a bound is missing or refuted, step outwards in growing steps; if the bounds are too far apart, try the
//! load that the upper bound's forwarding rate suggests (first target only), or else the middle.

use super::load::LoadGrid;
use super::relevant_bounds::RelevantBounds;
use super::target::Target;

/// State of one target, from which the strategy chooses the next load.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The loads.
    pub grid: &'a LoadGrid,
    /// The current target.
    pub target: &'a Target,
    /// Relevant bounds of the target so far.
    pub bounds: RelevantBounds,
    /// Relevant bounds of the preceding target; empty for the first.
    pub hints: RelevantBounds,
    /// Index of the load that the forwarding rate at the upper bound suggests; set only while guesses are allowed.
    pub guess: Option<u32>,
    /// Size of the next outward step.
    pub step: u32,
}

/// Next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The target is reached, or a bound is missing because the answer lies outside the grid.
    Done,
    /// Try this load.
    Try(u32),
    /// Try this load as an outward step; the next one will be larger.
    Step(u32),
    /// Try this load, guessed from a forwarding rate.
    Guess(u32),
}

/// Chooses the next action.
pub fn next(s: &Situation<'_>) -> Next {
    let last = s.grid.last();
    match (s.bounds.lower, s.bounds.upper) {
        (Some(lo), Some(hi)) => between(s, lo, hi),
        (Some(lo), None) if lo == last => Next::Done,
        (Some(lo), None) => match (s.hints.lower, s.hints.upper) {
            (Some(hint), _) | (_, Some(hint)) if hint > lo => Next::Try(hint),
            _ => Next::Step(lo.saturating_add(s.step).min(last)),
        },
        (None, Some(0)) => Next::Done,
        (None, Some(hi)) => match (s.hints.upper, s.hints.lower, s.guess) {
            (Some(hint), ..) | (_, Some(hint), _) if hint < hi => Next::Try(hint),
            (.., Some(guess)) if guess < hi => Next::Guess(guess),
            _ => Next::Step(hi.saturating_sub(s.step)),
        },
        (None, None) => match (s.hints.lower, s.hints.upper) {
            (Some(lo), Some(hi)) if hi - lo > 1 => Next::Try(lo + (hi - lo) / 2),
            (Some(lo), _) => Next::Try(lo),
            (None, Some(hi)) => Next::Try(hi),
            (None, None) => Next::Try(last),
        },
    }
}

fn between(s: &Situation<'_>, lo: u32, hi: u32) -> Next {
    if hi - lo <= s.target.width {
        return Next::Done;
    }
    let inside = |i: &u32| *i > lo && *i < hi;
    let middle = lo + (hi - lo) / 2;
    if let Some(hint) = s.hints.lower.filter(inside).or(s.hints.upper.filter(inside)) {
        return Next::Try(hint);
    }
    match s.guess {
        Some(guess) if inside(&guess) => Next::Guess(guess),
        // According to the forwarding rate, the answer is just above the lower bound.
        Some(guess) if guess <= lo && lo + s.step < middle => Next::Step(lo + s.step),
        _ => Next::Try(middle),
    }
}
