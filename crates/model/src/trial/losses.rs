//! When frames of a trial were lost, and when tester and host were held up.

use serde::{Deserialize, Serialize};

/// Lost frames that are due at most this long after one another are of one episode, in ns.
pub const WITHIN_NS: u64 = 2_000_000;
/// Episodes of a trial at most.
pub const MOST_EPISODES: usize = 64;

/// When the lost frames of a trial were due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Losses at most this long after one another are of one episode, in ns: [`WITHIN_NS`], or more where there would be more than
    /// [`MOST_EPISODES`]. Within a flow whose rate changes it is the time of as many frames at its highest rate. 0 where nothing was lost.
    pub within_ns: u64,
    /// In order of time. They hold all lost frames, unless the receiver's window was shorter than the trial.
    pub episodes: Vec<LossEpisode>,
}

impl Losses {
    /// Was nothing lost, or is it not known when?
    pub fn is_empty(&self) -> bool {
        self.episodes.is_empty()
    }

    /// Frames of all episodes.
    pub fn lost(&self) -> u64 {
        self.episodes.iter().map(|episode| episode.lost).sum()
    }
}

/// Frames that were lost one after the other. Stored as a list of its fields in their order: a run may have hundreds of thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub struct LossEpisode {
    /// Scheduled departure of the first of them, in ns after the start of the trial.
    pub from_ns: u64,
    /// Scheduled departure of the last of them.
    pub to_ns: u64,
    /// Frames.
    pub lost: u64,
    /// Flows that lost some.
    pub flows: u64,
    /// Their groups, as places in [`super::TrialResult::groups`], ascending.
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

/// A time in which something could not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// When it began, in ns after the start of the trial; negative before it.
    pub from_ns: i64,
    /// How long it took, in ns.
    pub ns: u64,
}

impl Held {
    /// When it ended, in ns after the start of the trial.
    pub fn to_ns(&self) -> i64 {
        self.from_ns.saturating_add(i64::try_from(self.ns).unwrap_or(i64::MAX))
    }
}
