//! Edges of the skyline: when the first and the last route changed, derived from time bins.

use drophammer_model::trial::Bin;

/// The table counts as gone if at most this share of the frames of a bin is delivered. It counts as present if at most
/// this share is missing, because the load may exceed what the router forwards while it works.
const EDGE: f64 = 0.01;
/// Number of consecutive bins (or all bins up to the next change if those are fewer) in which the frames must arrive.
/// Convergence must be sustained (RFC 6413 section 3.3.2): if a router loses frames later, that is loss, not slow
/// convergence.
pub(super) const SUSTAINED: usize = 10;
/// The last part of the time between two changes. A router that forwards must have converged at least in part by then.
const LAST_PART: f64 = 0.1;

/// When the first and the last route changed, in seconds after the change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Edge {
    pub(super) first: Option<f64>,
    pub(super) last: Option<f64>,
    /// Wrong frames after the last route changed: lost frames if the table is present, received frames if it is gone.
    pub(super) after: u64,
}

/// Reads an edge from the bins between a change at `at_s` and the next one.
pub(super) fn edge(bins: &[Bin], bin_s: f64, at_s: f64, until_s: f64, up: bool) -> Edge {
    let share = |bin: &Bin| if bin.offered == 0 { None } else { Some(bin.delivered as f64 / bin.offered as f64) };
    // The bin that contains the next change belongs to that change.
    let range = (at_s / bin_s).floor() as usize..((until_s / bin_s + 1e-9).floor() as usize).min(bins.len());
    let after = |bin: usize| ((bin as f64 + 1.0) * bin_s - at_s).max(0.0);
    let shares: Vec<(usize, f64)> = range.filter_map(|i| Some((i, share(&bins[i])?))).collect();
    let began = |s: f64| if up { s > EDGE } else { s < 1.0 - EDGE };
    let ended = |s: f64| if up { s >= 1.0 - EDGE } else { s <= EDGE };
    let first = shares.iter().find(|(_, s)| began(*s)).map(|(i, _)| after(*i));
    let lasts = |from: &usize| shares[*from..].iter().take(SUSTAINED).all(|(_, s)| ended(*s));
    let place = (0..shares.len()).find(lasts);
    let wrong = |(i, _): &(usize, f64)| match up {
        true => bins[*i].offered.saturating_sub(bins[*i].delivered),
        false => bins[*i].delivered,
    };
    let last = place.map(|place| after(shares[place].0));
    Edge { first, last, after: place.map_or(0, |place| shares[place + 1..].iter().map(wrong).sum()) }
}

/// The bins in the last part of the time between a change at `at_s` and the next one; at least one bin, if there are
/// any.
pub(super) fn last_bins(bins: &[Bin], bin_s: f64, at_s: f64, until_s: f64) -> &[Bin] {
    let bin = |s: f64| ((s / bin_s + 1e-9).floor() as usize).min(bins.len());
    // The bin that contains the next change belongs to that change.
    let (begin, end) = (bin(at_s), bin(until_s));
    let from = bin(until_s - (until_s - at_s) * LAST_PART).min(end.saturating_sub(1)).max(begin);
    bins.get(from..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(shares: &[f64]) -> Vec<Bin> {
        let bin = |s: &f64| Bin { offered: 1000, delivered: (s * 1000.0) as u64, arrived: (s * 1000.0) as u64 };
        shares.iter().map(bin).collect()
    }

    #[test]
    fn edges_are_found_to_the_bin() {
        let all = bins(&[0.0, 0.0, 0.0, 0.3, 0.7, 1.0, 1.0, 1.0, 0.6, 0.0, 0.0]);
        // The change was at 0.2 s; 30 % of the bin that ends at 0.4 s were delivered, and all frames from the bin that ends
        // at 0.6 s.
        let up = edge(&all, 0.1, 0.2, 0.75, true);
        assert!((up.first.unwrap() - 0.2).abs() < 1e-9 && (up.last.unwrap() - 0.4).abs() < 1e-9, "{up:?}");
        let down = edge(&all, 0.1, 0.8, 1.1, false);
        assert!((down.first.unwrap() - 0.1).abs() < 1e-9 && (down.last.unwrap() - 0.2).abs() < 1e-9, "{down:?}");
    }

    #[test]
    fn the_next_change_and_a_stumble_are_no_lack_of_convergence() {
        // All frames arrive from 0.3 s on; a dip at 1.5 s; the bin of the next change, at 1.95 s, is ignored.
        let mut shares = [0.0, 0.0, 0.4].to_vec();
        shares.extend([1.0; 12]);
        shares.extend([0.5, 1.0, 1.0, 1.0, 0.3, 0.0]);
        let up = edge(&bins(&shares), 0.1, 0.2, 1.95, true);
        assert!((up.last.unwrap() - 0.2).abs() < 1e-9, "{up:?}");
        assert_eq!(up.after, 500);
        let down = edge(&bins(&[1.0, 0.5, 0.0, 0.0, 0.02, 0.0]), 0.1, 0.1, 0.6, false);
        assert!((down.last.unwrap() - 0.5).abs() < 1e-9 && down.after == 0, "{down:?}");
    }

    #[test]
    fn a_table_that_never_comes_has_no_last_route() {
        let found = edge(&bins(&[0.0, 0.0, 0.5, 0.5, 0.5]), 0.1, 0.1, 0.5, true);
        assert!(found.first.is_some() && found.last.is_none());
        assert_eq!(edge(&bins(&[0.0; 5]), 0.1, 0.1, 0.5, true), Edge::default());
    }

    #[test]
    fn the_last_part_is_a_tenth_of_the_time_and_ends_before_the_next_change() {
        // Changes at 0.2 and 1.25 s: the last tenth begins at 1.145 s, and the bin of the next change is left out.
        let mut shares = [0.0; 20];
        (shares[11], shares[12]) = (0.7, 0.9);
        let all = bins(&shares);
        assert_eq!(last_bins(&all, 0.1, 0.2, 1.25), &all[11..12]);
        // At least one bin, if there is one.
        assert_eq!(last_bins(&all, 0.1, 0.2, 0.4), &all[3..4]);
        assert_eq!((last_bins(&all, 0.1, 0.2, 0.25), last_bins(&[], 0.1, 0.2, 0.4)), (&[][..], &[][..]));
    }
}
