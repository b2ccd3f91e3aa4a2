//! Loss over time as episodes: when each period of loss began and ended, and how many frames were lost.

use crate::kit::prelude::*;
use drophammer_model::trial::Bin;

/// Number of bins without a lost frame that separates two episodes.
const QUIET_BINS: usize = 2;

/// A period in which frames were lost, by their departures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Episode {
    /// From the start of the first to the end of the last bin with a lost frame, in seconds after the first departure.
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    /// Lost frames.
    pub(crate) lost: u64,
}

/// The episodes of `bins` of `bin_s` seconds, in order of time.
pub(crate) fn episodes(bins: &[Bin], bin_s: f64) -> Vec<Episode> {
    let mut found: Vec<Episode> = Vec::new();
    for (at, bin) in bins.iter().enumerate() {
        let lost = bin.offered.saturating_sub(bin.delivered);
        if lost == 0 {
            continue;
        }
        let (from_s, to_s) = (at as f64 * bin_s, (at + 1) as f64 * bin_s);
        match found.last_mut() {
            Some(last) if from_s - last.to_s < (QUIET_BINS as f64 - 0.5) * bin_s => {
                (last.to_s, last.lost) = (to_s, last.lost + lost);
            }
            _ => found.push(Episode { from_s, to_s, lost }),
        }
    }
    found
}

/// Sum of the bins of all groups.
pub(crate) fn bins(result: &TrialResult) -> Vec<Bin> {
    let mut sum: Vec<Bin> = Vec::new();
    for group in &result.groups {
        sum.resize(sum.len().max(group.bins.len()), Bin::default());
        for (sum, bin) in sum.iter_mut().zip(&group.bins) {
            sum.offered += bin.offered;
            sum.delivered += bin.delivered;
            sum.arrived += bin.arrived;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_quiet_bins_part_episodes() {
        let lost = [0u64, 5, 2, 0, 1, 0, 0, 3, 0, 0, 0];
        let bins: Vec<Bin> = lost.iter().map(|n| Bin { offered: 10, delivered: 10 - n, arrived: 10 }).collect();
        let found = episodes(&bins, 0.5);
        assert_eq!(
            found,
            [Episode { from_s: 0.5, to_s: 2.5, lost: 8 }, Episode { from_s: 3.5, to_s: 4.0, lost: 3 }],
            "one bin without loss does not end an episode"
        );
        assert_eq!(episodes(&[], 0.5), []);
    }
}
