//! The time during which a router did not forward, derived from lost frames (RFC 6201 section 3).

use super::BIN_S;
use crate::kit::prelude::*;
use drophammer_model::trial::{GroupCounts, LossEpisode};

/// Loss that begins up to this many seconds before a reset counts as its effect, because the tester reads the two times
/// one after the other.
const TOGETHER_S: f64 = 0.02;
/// Number of frames that must arrive at the end of a trial; otherwise the interruption may not have ended.
const BACK: f64 = 20.0;

/// Interruption of a group of frames by a reset.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interruption {
    /// Frames lost before the reset.
    pub(super) lost_before: u64,
    /// Frames lost since the reset, divided by the rate, in seconds.
    pub(super) loss_s: f64,
    /// From the first lost frame to the first received one after the last lost one, in seconds; `None` if no frame was
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
        let (before, since): (Vec<&LossEpisode>, Vec<&LossEpisode>) =
            own.partition(|episode| seconds(episode.to_ns) < at_s - TOGETHER_S);
        let first_ns = since.iter().map(|episode| episode.from_ns).min();
        let lost_before = lost_in(group, &before, first_ns.unwrap_or(u64::MAX));
        let gap_s = 1.0 / rate_pps;
        let first_s = first_ns.map(seconds);
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

    /// Describes in words whether forwarding recovered.
    pub(super) fn text(&self) -> &'static str {
        match (self.back, self.episodes) {
            (false, _) => "not back within the window",
            (true, 0) => "continued",
            (true, _) => "interrupted",
        }
    }
}

/// Frames that `group` lost in these episodes, which end before its next loss at `next_ns`.
fn lost_in(group: &GroupCounts, episodes: &[&LossEpisode], next_ns: u64) -> u64 {
    let lost = |alone: bool| -> u64 {
        let of = episodes.iter().filter(|episode| (episode.groups.len() == 1) == alone);
        of.map(|episode| episode.lost).sum()
    };
    let (own, shared) = (lost(true), lost(false));
    // If several groups lost frames at the same time, only the time bins show how many of them this group lost. A bin
    // in which the next loss begins would include that loss too.
    let bin_ns = (BIN_S * 1e9).round() as u64;
    let ended = usize::try_from(next_ns / bin_ns).unwrap_or(usize::MAX);
    let bins = || group.bins.iter().take(ended);
    let offered: u64 = bins().map(|bin| bin.offered).sum();
    let delivered: u64 = bins().map(|bin| bin.delivered).sum();
    offered.saturating_sub(delivered).clamp(own, own + shared)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{Bin, Losses};

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
            senders: 1,
            losses: Losses { episodes: episodes.iter().map(episode).collect(), ..Losses::default() },
            ..TrialResult::default()
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
        assert_eq!((found.text(), found.stamps_s, found.loss_s), ("continued", None, 0.0));
        // No frame arrived when the reset began.
        let found = Interruption::of(&trial(&[(200, 1_799, 1_600)]), 0, 1_000.0, 1.0);
        assert!(found.lossy && found.begins_s.is_none() && found.lost_before == 0, "{found:?}");
    }

    #[test]
    fn what_groups_lost_together_before_is_not_the_resets() {
        // 25 frames of each of two groups in 50 ms. A stall of 10 ms before the reset loses 5 of each.
        let shared = |episodes: &[(u64, u64, u64)], lossy: &[(usize, u64)]| {
            let mut result = trial(episodes);
            let mut bins = vec![Bin { offered: 25, delivered: 25, arrived: 25 }; 80];
            for (at, lost) in lossy {
                bins[*at].delivered -= lost;
            }
            let lost: u64 = lossy.iter().map(|(_, lost)| lost).sum();
            result.groups[0] = GroupCounts {
                offered: 2_000,
                received: 2_000 - lost,
                lost,
                last_loss_ns: result.groups[0].last_loss_ns,
                bins,
                ..GroupCounts::default()
            };
            result.groups.push(result.groups[0].clone());
            result.losses.episodes.iter_mut().for_each(|episode| episode.groups = vec![0, 1]);
            Interruption::of(&result, 1, 500.0, 1.0)
        };
        let found = shared(&[(400, 409, 10)], &[(8, 5)]);
        assert_eq!((found.text(), found.lost_before, found.loss_s), ("continued", 5, 0.0));
        let found = shared(&[(400, 409, 10), (1_000, 1_199, 200)], &[(8, 5), (20, 25), (21, 25), (22, 25), (23, 25)]);
        assert_eq!((found.text(), found.lost_before, found.episodes), ("interrupted", 5, 1));
        assert!(near(Some(found.loss_s), 0.2), "{found:?}");
        // Frames lost in the bin of the first loss after the reset may be its effect.
        let found = shared(&[(955, 959, 4), (990, 1_199, 210)], &[(19, 7), (20, 25), (21, 25), (22, 25), (23, 25)]);
        assert!(found.lost_before == 0 && near(Some(found.loss_s), 0.214), "{found:?}");
        // Nothing was lost before the reset, although the bins of departure and delivery differ.
        let found = shared(&[(1_000, 1_199, 200)], &[(19, 1), (20, 24), (21, 25), (22, 25), (23, 25)]);
        assert!(found.lost_before == 0 && near(Some(found.loss_s), 0.2), "{found:?}");
    }

    #[test]
    fn a_router_that_is_not_back_has_no_time() {
        let found = Interruption::of(&trial(&[(1_000, 3_999, 3_000)]), 0, 1_000.0, 1.0);
        assert_eq!((found.text(), found.back), ("not back within the window", false));
        let found = Interruption::of(&trial(&[]), 0, 1_000.0, 1.0);
        assert_eq!((found.text(), found.back, found.begins_s), ("continued", true, None));
    }
}
