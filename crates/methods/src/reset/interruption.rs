//! The time in which a router did not forward, derived from lost frames (RFC 6201 section 3).

use drophammer_model::trial::{LossEpisode, TrialResult};

/// Loss that begins up to this time before a reset counts as its effect, in seconds, because the two times are read one
/// after the other.
const TOGETHER_S: f64 = 0.02;
/// Frames that must have arrived at the end of a trial; otherwise the interruption may not have ended.
const BACK: f64 = 20.0;

/// Interruption of a group of frames by a reset.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interruption {
    /// Frames lost before the reset.
    pub(super) lost_before: u64,
    /// Frames lost since the reset, divided by the rate, in seconds.
    pub(super) loss_s: f64,
    /// From the first lost frame to the first received one after the last lost one, in seconds; `None` if none was
    /// lost.
    pub(super) stamps_s: Option<f64>,
    /// From the reset to the first lost frame, in seconds; `None` if none was lost, or if frames were already being
    /// lost at the reset.
    pub(super) begins_s: Option<f64>,
    /// True if frames were already being lost at the reset.
    pub(super) lossy: bool,
    /// Number of periods in which frames were lost.
    pub(super) episodes: u64,
    /// True if frames arrived at the end.
    pub(super) back: bool,
    /// Time between two frames, in seconds.
    pub(super) resolution_s: f64,
}

impl Interruption {
    /// The interruption of group `index`, which was sent at `rate_pps`, by a reset `at_s` seconds after the first
    /// departure.
    pub(super) fn of(result: &TrialResult, index: usize, rate_pps: f64, at_s: f64) -> Interruption {
        let group = &result.groups[index];
        let own = result.losses.episodes.iter().filter(|episode| episode.groups.contains(&index));
        let last_s = group.last_loss_ns.map(seconds);
        // If an episode has losses of several groups, the loss of each group before the reset is unknown: all of it
        // counts for the reset.
        let alone = |episode: &&&LossEpisode| episode.groups.len() == 1;
        let (before, since): (Vec<&LossEpisode>, Vec<&LossEpisode>) =
            own.partition(|episode| seconds(episode.to_ns) < at_s - TOGETHER_S);
        let lost_before: u64 = before.iter().filter(alone).map(|episode| episode.lost).sum();
        let gap_s = 1.0 / rate_pps;
        let first_s = since.iter().map(|episode| seconds(episode.from_ns)).min_by(f64::total_cmp);
        let begins_s = first_s.map(|first| first - at_s);
        let lossy = begins_s.is_some_and(|begins| begins < -TOGETHER_S);
        Interruption {
            lost_before,
            loss_s: group.lost.saturating_sub(lost_before) as f64 * gap_s,
            stamps_s: first_s.zip(last_s).map(|(first, last)| last - first + gap_s),
            begins_s: begins_s.filter(|_| !lossy),
            lossy,
            episodes: since.len() as u64,
            back: group.received > 0 && last_s.is_none_or(|last| last <= result.sending_s - BACK * gap_s),
            resolution_s: gap_s,
        }
    }

    /// In words.
    pub(super) fn text(&self) -> &'static str {
        match (self.back, self.episodes) {
            (false, _) => "not back within the window",
            (true, 0) => "went on",
            (true, _) => "interrupted",
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{GroupCounts, Health, Losses, TrialResult, Validity};

    /// A trial of 4 s at 1,000 fps with these episodes (from, to, frames) in ms.
    fn trial(episodes: &[(u64, u64, u64)]) -> TrialResult {
        let lost = episodes.iter().map(|(_, _, lost)| lost).sum();
        let group = GroupCounts {
            offered: 4_000,
            received: 4_000 - lost,
            lost,
            last_loss_ns: episodes.last().map(|(_, to, _)| to * 1_000_000),
            ..GroupCounts::default()
        };
        let episode = |(from, to, lost): &(u64, u64, u64)| LossEpisode {
            from_ns: from * 1_000_000,
            to_ns: to * 1_000_000,
            lost: *lost,
            flows: 1,
            groups: vec![0],
        };
        TrialResult {
            trial: 1,
            sending_s: 4.0,
            receiving_s: 4.0,
            elapsed_s: 4.0,
            groups: vec![group],
            health: Health::default(),
            validity: Validity::Valid,
            dut_cpu: None,
            dut_counters: Default::default(),
            senders: 1,
            ways: vec![],
            background: vec![],
            events: vec![],
            destinations: vec![],
            destination_summaries: vec![],
            losses: Losses { episodes: episodes.iter().map(episode).collect(), ..Losses::default() },
        }
    }

    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 1e-9)
    }

    #[test]
    fn both_times_are_those_of_the_gap() {
        let found = Interruption::of(&trial(&[(1_100, 1_599, 500)]), 0, 1_000.0, 1.0);
        assert!(near(Some(found.loss_s), 0.5) && near(found.stamps_s, 0.5) && near(found.begins_s, 0.1), "{found:?}");
        assert_eq!((found.text(), found.episodes, found.lost_before), ("interrupted", 1, 0));
        // Two gaps with traffic in between.
        let found = Interruption::of(&trial(&[(1_100, 1_199, 100), (1_500, 1_599, 100)]), 0, 1_000.0, 1.0);
        assert!(near(Some(found.loss_s), 0.2) && near(found.stamps_s, 0.5), "{found:?}");
    }

    #[test]
    fn what_was_lost_before_is_not_the_resets() {
        let found = Interruption::of(&trial(&[(200, 209, 10), (1_100, 1_199, 100)]), 0, 1_000.0, 1.0);
        assert!(near(Some(found.loss_s), 0.1) && near(found.stamps_s, 0.1) && found.lost_before == 10, "{found:?}");
        let found = Interruption::of(&trial(&[(200, 209, 10)]), 0, 1_000.0, 1.0);
        assert_eq!((found.text(), found.stamps_s, found.loss_s), ("went on", None, 0.0));
        // No frame arrived when the reset began.
        let found = Interruption::of(&trial(&[(200, 1_799, 1_600)]), 0, 1_000.0, 1.0);
        assert!(found.lossy && found.begins_s.is_none() && found.lost_before == 0, "{found:?}");
    }

    #[test]
    fn a_router_that_is_not_back_has_no_time() {
        let found = Interruption::of(&trial(&[(1_000, 3_999, 3_000)]), 0, 1_000.0, 1.0);
        assert_eq!((found.text(), found.back), ("not back within the window", false));
        let found = Interruption::of(&trial(&[]), 0, 1_000.0, 1.0);
        assert_eq!((found.text(), found.back, found.begins_s), ("went on", true, None));
    }
}
