//! Counts by reason.

/// How often each reason occurred. The reasons are texts of this program, so there are few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons(Vec<(&'static str, u64)>);

impl Reasons {
    /// Counts `reason` once.
    pub fn count(&mut self, reason: &'static str) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, n)) => *n += 1,
            None => self.0.push((reason, 1)),
        }
    }

    /// All reasons that occurred, in the order of their first occurrence.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().copied()
    }

    /// How often `reason` occurred.
    pub fn get(&self, reason: &str) -> u64 {
        self.iter().find(|(known, _)| *known == reason).map_or(0, |(_, n)| n)
    }

    /// Sum over all reasons.
    pub fn sum(&self) -> u64 {
        self.iter().map(|(_, n)| n).sum()
    }
}
