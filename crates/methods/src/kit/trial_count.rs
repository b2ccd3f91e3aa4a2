//! Number of trials of a test, as far as its parameters determine it in advance.

use std::fmt;
use std::ops::Add;

/// A number of trials. Repetitions of invalid trials do not count. There are fewer if a test does not apply to a router
/// or to one of its frame sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialCount {
    /// Minimum number.
    pub least: usize,
    /// Approximate number with an ordinary router.
    pub about: usize,
    /// Maximum number; `None` if a search or the router determines it.
    pub most: Option<usize>,
}

impl TrialCount {
    /// Exactly this number, regardless of the router.
    pub fn exactly(count: usize) -> TrialCount {
        TrialCount::between(count, count)
    }

    /// From `least` to `most`.
    pub fn between(least: usize, most: usize) -> TrialCount {
        TrialCount { least, about: most, most: Some(most) }
    }

    /// `most`, or fewer.
    pub fn up_to(most: usize) -> TrialCount {
        TrialCount::between(0, most)
    }

    /// A number that a search or the router determines, about `count`.
    pub fn about(count: usize) -> TrialCount {
        TrialCount { least: 0, about: count, most: None }
    }

    /// This number, with possible further trials if the router makes them necessary. Zero stays zero.
    pub fn or_more(self) -> TrialCount {
        if self.most == Some(0) {
            return self;
        }
        let sure = self.most.is_some() && self.least > 0;
        TrialCount { about: if sure { self.least } else { self.about }, most: None, ..self }
    }

    /// Multiplies this number by `often`.
    pub fn times(self, often: usize) -> TrialCount {
        if often == 0 {
            return TrialCount::exactly(0);
        }
        let TrialCount { least, about, most } = self;
        TrialCount { least: least * often, about: about * often, most: most.map(|most| most * often) }
    }
}

impl From<usize> for TrialCount {
    fn from(count: usize) -> TrialCount {
        TrialCount::exactly(count)
    }
}

impl Add for TrialCount {
    type Output = TrialCount;

    fn add(self, other: TrialCount) -> TrialCount {
        TrialCount {
            least: self.least + other.least,
            about: self.about + other.about,
            most: self.most.zip(other.most).map(|(a, b)| a + b),
        }
    }
}

impl fmt::Display for TrialCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrialCount { least, about, most } = *self;
        let trials = |count: usize| if count == 1 { "trial" } else { "trials" };
        match most {
            Some(0) => f.write_str("no trials"),
            Some(most) if least == most => write!(f, "{most} {}", trials(most)),
            Some(most) if least == 0 => write!(f, "up to {most} {}", trials(most)),
            Some(most) => write!(f, "{least} to {most} {}", trials(most)),
            None if about > least => write!(f, "about {about} {}", trials(about)),
            None => write!(f, "{least} or more trials"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_as_they_are_known() {
        for (count, text) in [
            (TrialCount::exactly(0), "no trials"),
            (TrialCount::exactly(1), "1 trial"),
            (TrialCount::exactly(12), "12 trials"),
            (TrialCount::between(6, 15), "6 to 15 trials"),
            (TrialCount::up_to(1), "up to 1 trial"),
            (TrialCount::up_to(24), "up to 24 trials"),
            (TrialCount::about(40), "about 40 trials"),
            (TrialCount::exactly(3).or_more(), "3 or more trials"),
            (TrialCount::exactly(0).or_more(), "no trials"),
            (TrialCount::between(6, 15).or_more(), "6 or more trials"),
            (TrialCount::up_to(24).or_more(), "about 24 trials"),
            (TrialCount::about(40).or_more(), "about 40 trials"),
        ] {
            assert_eq!(count.to_string(), text);
        }
    }

    #[test]
    fn counts_add_up() {
        let sum = TrialCount::exactly(12) + TrialCount::about(30);
        assert_eq!(sum, TrialCount { least: 12, about: 42, most: None });
        assert_eq!(TrialCount::between(1, 2) + TrialCount::exactly(3), TrialCount::between(4, 5));
        assert_eq!(TrialCount::between(2, 5).times(3), TrialCount::between(6, 15));
        assert_eq!(TrialCount::about(5).times(2), TrialCount::about(10));
        // A skipped search leaves a count exact.
        assert_eq!(TrialCount::exactly(12) + TrialCount::about(30).times(0), TrialCount::exactly(12));
    }
}
