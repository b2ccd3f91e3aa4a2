//! Times at which a trial lost frames, and at which tester and host were delayed.

use serde::{Deserialize, Serialize};

/// Lost frames belong to one episode if they are due at most this long after one another, in ns.
pub const WITHIN_NS: u64 = 2_000_000;
/// Maximum number of episodes of a trial.
pub const MOST_EPISODES: usize = 64;

/// Due times of the lost frames of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Losses at most this long after one another belong to one episode, in ns: [`WITHIN_NS`], or longer to stay within
    /// [`MOST_EPISODES`]. In a flow whose rate changes, it is the time for the same number of frames at the highest
    /// rate. 0 if nothing was lost.
    pub within_ns: u64,
    /// Episodes in order of time. They contain all lost frames, unless the receiver's window was shorter than the
    /// trial, or the tester's own ring refused more frames than the generator can remember.
    pub episodes: Vec<LossEpisode>,
}

impl Losses {
    /// True if nothing was lost, or if the times are unknown.
    pub fn is_empty(&self) -> bool {
        self.episodes.is_empty()
    }

    /// Lost frames of all episodes.
    pub fn lost(&self) -> u64 {
        super::total(self.episodes.iter().map(|episode| episode.lost))
    }
}

/// Frames lost one after the other. Stored as a list of the fields in order, because a run can have hundreds of
/// thousands of episodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub struct LossEpisode {
    /// Scheduled departure of the first lost frame, in ns after the start of the trial.
    pub from_ns: u64,
    /// Scheduled departure of the last lost frame.
    pub to_ns: u64,
    /// Lost frames.
    pub lost: u64,
    /// Number of flows that lost frames.
    pub flows: u64,
    /// Groups of these flows, as indices in [`super::TrialResult::groups`], ascending.
    pub groups: Vec<usize>,
}

type Fields = (u64, u64, u64, u64, Vec<usize>);

impl From<Fields> for LossEpisode {
    fn from((from_ns, to_ns, lost, flows, groups): Fields) -> LossEpisode {
        LossEpisode { from_ns, to_ns, lost, flows, groups }
    }
}

impl From<LossEpisode> for Fields {
    fn from(episode: LossEpisode) -> Fields {
        (episode.from_ns, episode.to_ns, episode.lost, episode.flows, episode.groups)
    }
}

/// A period in which something was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Beginning, in ns after the start of the trial; negative if before the start.
    pub from_ns: i64,
    /// Duration in ns.
    pub ns: u64,
}

impl Held {
    /// End, in ns after the start of the trial.
    pub fn to_ns(&self) -> i64 {
        self.from_ns.saturating_add(i64::try_from(self.ns).unwrap_or(i64::MAX))
    }
}

/// Periods of a trial without an arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silences {
    /// The longest periods, in order of time, without overlaps.
    pub longest: Vec<Held>,
    /// All other periods were at most this long, in ns.
    pub others_ns: u64,
}

impl Silences {
    /// Periods in which neither of two threads had an arrival.
    pub fn and(&self, other: &Silences) -> Silences {
        let both = self.longest.iter().flat_map(|silence| other.within(silence.from_ns, silence.to_ns()));
        Silences { longest: both.collect(), others_ns: self.others_ns.max(other.others_ns) }
    }

    /// The parts of the longest periods between two instants, in ns after the start of the trial.
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
