//! Octets: which bytes of a frame a counter counts, and whether it counts the frames that the interface discarded.

use super::judge::{Discards, Facts, beyond, growth, may_be_off};
use crate::trial::CountersSeen;
use drophammer_model::counters::{Counts, DutCounter};
use std::collections::BTreeMap;

/// Number of bytes of each frame that an octet counter leaves out, and the name of that convention. RFC 2863 counts the
/// whole frame; most Linux drivers leave out the FCS, and veth also leaves out the Ethernet header of received frames.
pub(super) const CONVENTIONS: [(u64, &str); 3] =
    [(0, "octets with FCS"), (4, "octets without FCS"), (18, "octets without Ethernet header and FCS")];

/// Frames at a port in one direction, whose bytes an octet counter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Octets {
    pub(super) frames: u64,
    /// Bytes of these frames, FCS included.
    pub(super) bytes: u64,
    /// How many of these frames the interface counts as discarded. It is not known which ones.
    pub(super) discarded: u64,
    /// Bytes of the shortest and of the longest test frame, FCS included.
    pub(super) lengths: (u64, u64),
}

impl Octets {
    /// Octets of all frames, if the counter leaves out `without` bytes of each.
    pub(super) fn all(&self, without: u64) -> u64 {
        self.bytes.saturating_sub(without * self.frames)
    }

    /// Smallest and largest number of octets of the frames that were not discarded.
    pub(super) fn passed(&self, without: u64) -> (u64, u64) {
        let less = |length: u64| self.all(without).saturating_sub(self.discarded * length.saturating_sub(without));
        (less(self.lengths.1), less(self.lengths.0))
    }

    /// Distance of `counted` from what a counter of this convention shows, with or without the discarded frames.
    fn distance(&self, without: u64, counted: u64) -> u64 {
        counted.abs_diff(self.all(without)).min(beyond(self.passed(without), counted).unsigned_abs())
    }
}

/// The octet convention of each source and direction, as an index into [`CONVENTIONS`]. It holds for all trials of a
/// test: a counter that changes its convention is wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conventions(BTreeMap<(String, bool), usize>);

impl Conventions {
    /// For each source and direction, the convention that most readings of these trials agree with; if several do, the
    /// closest one.
    pub(super) fn of<'t>(trials: impl IntoIterator<Item = (&'t CountersSeen, &'t Facts)>) -> Conventions {
        let mut fits: BTreeMap<(String, bool), [(u64, u64); 3]> = BTreeMap::new();
        for (trial, facts) in trials {
            let grown = growth(trial);
            for (counter, counted) in &grown {
                let discarded = Discards::of(counter, &grown).at_port;
                let octets = facts.octets(counter.counts, counter.port, discarded).filter(|octets| octets.frames > 0);
                let Some(octets) = octets else { continue };
                let fits = fits.entry((counter.source.clone(), is_incoming(counter))).or_default();
                for ((without, _), (wrong, off)) in CONVENTIONS.iter().zip(fits) {
                    let by = octets.distance(*without, *counted);
                    *wrong += u64::from(by > may_be_off(counter.counts, trial.unsure));
                    *off = off.saturating_add(by);
                }
            }
        }
        let best = |fits: [(u64, u64); 3]| (0..3).min_by_key(|at| fits[*at]).unwrap_or_default();
        Conventions(fits.into_iter().map(|(of, fits)| (of, best(fits))).collect())
    }

    pub(super) fn get(&self, counter: &DutCounter) -> usize {
        self.0.get(&(counter.source.clone(), is_incoming(counter))).copied().unwrap_or_default()
    }
}

fn is_incoming(counter: &DutCounter) -> bool {
    counter.counts == Counts::InOctets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_frames_may_be_left_out() {
        // 90 frames of 64 bytes and 10 of 128 bytes.
        let octets = Octets { frames: 100, bytes: 7_040, discarded: 5, lengths: (64, 128) };
        assert_eq!((octets.all(4), octets.passed(4)), (6_640, (6_640 - 5 * 124, 6_640 - 5 * 60)));
        let off = |counted| octets.distance(4, counted);
        assert_eq!([6_640, 6_340, 6_100, 6_020].map(off), [0; 4]);
        assert_eq!([6_641, 6_341, 6_019].map(off), [1; 3]);
        let none = Octets { discarded: 0, ..octets };
        assert_eq!((none.passed(4), none.distance(4, 6_340)), ((6_640, 6_640), 300));
    }
}
