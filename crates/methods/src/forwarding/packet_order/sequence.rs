//! Frames out of sequence, counted as in the core router test of 2001.

use super::known;
use crate::kit::prelude::*;

/// Number of frames, over all trials, whose sequence number is not one above that of the previous frame of their flow.
/// `None` if the order is unknown in any trial, or if gaps of the tester cannot be told apart from gaps of the router.
pub(super) fn out_of_sequence(results: &[TrialResult]) -> Option<u64> {
    let told_apart = results.iter().all(has_no_gaps_of_the_tester);
    known(results, |g| g.received.saturating_sub(g.in_sequence)).filter(|_| told_apart)
}

/// A frame that the tester's own ring refused has used up its number, so this gap is not the router's. The counts are
/// free of such gaps only if all frames that left arrived in order.
fn has_no_gaps_of_the_tester(result: &TrialResult) -> bool {
    result.health.refused_by_tester == 0 || result.sum(|g| g.lost + g.reordered) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{GroupCounts, Health};

    /// A trial of 1,000 frames.
    fn trial(refused_by_tester: u64, lost: u64, reordered: u64, in_sequence: u64) -> TrialResult {
        let offered = 1_000 - refused_by_tester;
        let group =
            GroupCounts { offered, received: offered - lost, lost, reordered, in_sequence, ..GroupCounts::default() };
        let health = Health { refused_by_tester, ..Health::default() };
        TrialResult { groups: vec![group], health, ..TrialResult::default() }
    }

    #[test]
    fn gaps_of_the_tester_are_not_the_routers() {
        assert_eq!(out_of_sequence(&[trial(0, 10, 5, 970)]), Some(20));
        assert_eq!(out_of_sequence(&[trial(8, 0, 0, 992)]), Some(0));
        // Gaps of the tester are counted together with those of the router.
        assert_eq!(out_of_sequence(&[trial(8, 1, 0, 983)]), None);
        assert_eq!(out_of_sequence(&[trial(8, 0, 1, 982)]), None);
        assert_eq!(out_of_sequence(&[trial(0, 10, 0, 980), trial(8, 1, 0, 983)]), None);
        assert_eq!(out_of_sequence(&[trial(0, 10, 0, 980), trial(8, 0, 0, 992)]), Some(10));
    }

    #[test]
    fn without_order_there_is_no_sequence() {
        let mut one = trial(0, 0, 0, 0);
        one.groups[0].order_unknown = 1_000;
        assert_eq!(out_of_sequence(&[one]), None);
    }
}
