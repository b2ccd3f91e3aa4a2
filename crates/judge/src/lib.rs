//! Draws conclusions from the records of a run: intervals, ranks, verdicts, and reasons to distrust a figure. Everything
//! here is a pure function of records.

pub mod criteria;
pub mod doubt;
pub mod drops;
pub mod held_up;
pub mod losses;
#[cfg(test)]
mod made;
pub mod refutation;
pub mod rounds;
pub mod statistics;

/// Returns each item once, in the order of first appearance.
pub fn distinct<T: Clone + Eq + std::hash::Hash>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = std::collections::HashSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}
