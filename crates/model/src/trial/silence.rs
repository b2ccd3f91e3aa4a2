//! Periods in which nothing arrived at the tester.

use super::Held;
use serde::{Deserialize, Serialize};

/// Periods of a trial without an arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silences {
    /// The longest periods, in order of time, without overlaps.
    pub longest: Vec<Held>,
    /// No other period was longer than this, in ns.
    pub others_ns: u64,
}

impl Silences {
    /// Periods in which neither of two threads had an arrival.
    pub fn and(&self, other: &Silences) -> Silences {
        let both = self.longest.iter().flat_map(|silence| other.within(silence.from_ns, silence.to_ns()));
        Silences { longest: both.collect(), others_ns: self.others_ns.max(other.others_ns) }
    }

    /// The parts of the longest periods between two instants, given in ns from the start of the trial.
    pub fn within(&self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = Held> {
        self.longest.iter().filter_map(move |silence| {
            let (from_ns, to_ns) = (silence.from_ns.max(from_ns), silence.to_ns().min(to_ns));
            (from_ns < to_ns).then(|| Held { from_ns, ns: from_ns.abs_diff(to_ns) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silences(longest: &[(i64, u64)], others_ns: u64) -> Silences {
        let held = |(from_ns, ns): &(i64, u64)| Held { from_ns: *from_ns, ns: *ns };
        Silences { longest: longest.iter().map(held).collect(), others_ns }
    }

    #[test]
    fn a_silence_of_two_is_one_of_each() {
        let one = silences(&[(0, 10), (20, 30), (90, 10)], 2);
        let other = silences(&[(5, 20), (40, 20), (60, 5)], 3);
        assert_eq!(one.and(&other), silences(&[(5, 5), (20, 5), (40, 10)], 3));
        assert_eq!(other.and(&one), one.and(&other));
    }

    #[test]
    fn only_the_part_between_two_instants_counts() {
        let within = |from, to| silences(&[(10, 20), (50, 5)], 0).within(from, to).collect::<Vec<_>>();
        assert_eq!(within(0, 10), []);
        assert_eq!(within(-5, 100), silences(&[(10, 20), (50, 5)], 0).longest);
        assert_eq!(within(15, 52), silences(&[(15, 15), (50, 2)], 0).longest);
    }
}
