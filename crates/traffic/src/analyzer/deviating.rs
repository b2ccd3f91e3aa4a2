//! Frames that arrive in an unexpected encapsulation. Each sent frame counts once, however often it arrives: as
//! received if it ever arrived as expected, otherwise by the deviation of its first arrival.

use super::{Analyzer, Class};
use crate::flow_state::{Arrived, FlowState};
use crate::lane_report::DeviatingReport;
use crate::layout::QueueIndex;
use drophammer_model::traffic::Deviation;
use drophammer_port::Arrival;
use drophammer_wire::signature::Signature;

/// Number of kinds of deviations.
pub(crate) const KINDS: usize = Deviation::ALL.len();

/// Counts of deviating frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deviations {
    /// Sent frames that never arrived as expected, by the deviation of the first arrival, in the order of
    /// [`Deviation::ALL`].
    pub(crate) frames: [u64; KINDS],
    /// All other deviating arrivals: their frame also arrived as expected, or had already arrived with a deviation.
    pub(crate) copies: u64,
}

impl Deviations {
    /// Adds the counts of another flow.
    pub(crate) fn add(&mut self, other: &Deviations) {
        self.frames.iter_mut().zip(other.frames).for_each(|(sum, frames)| *sum += frames);
        self.copies += other.copies;
    }
}

impl Analyzer {
    /// Counts a fragment that arrived at `queue`. The last fragment of a test frame ends with the signature and counts
    /// for the frame. Other fragments look like fragments of any packet, so they go to the caller. `ours` is true if
    /// the signature's check is correct.
    #[cold]
    pub(super) fn take_fragment(
        &mut self,
        queue: QueueIndex,
        signature: Signature,
        ours: bool,
        arrival: Arrival<'_>,
    ) -> Class {
        let place = self.place(signature.flow);
        if !ours || place >= self.flows.len() {
            return Class::Other;
        }
        self.take_of_flow(queue, place, signature, true, Some(Deviation::Fragmented), arrival)
    }
}

/// The deviating frames of one flow. Few flows have any. The first one allocates this value, and the first one of each
/// kind allocates a window.
///
/// A window is a ring with one bit per sequence number, as large as the window of [`FlowState`]. Counts are exact,
/// except that an arrival older than the window counts as a copy.
#[derive(Debug)]
pub(super) struct Deviating {
    /// Size of a window in bits, a multiple of 64.
    bits: u64,
    /// The windows cover numbers below this one.
    end: u64,
    /// First arrivals, by kind.
    windows: Vec<(usize, Box<[u64]>)>,
    /// Counts of frames that have left the windows.
    left: Deviations,
}

impl Deviating {
    /// Creates the counts for a flow with this state.
    pub(super) fn of(state: &FlowState) -> Deviating {
        Deviating { bits: state.window_bits(), end: 0, windows: Vec::new(), left: Deviations::default() }
    }

    /// Counts an arrival of frame `sequence` that differs by `deviation`.
    pub(super) fn arrive(&mut self, sequence: u64, deviation: Deviation, state: &FlowState) {
        if sequence >= self.end {
            self.advance(sequence + 1, state);
        }
        let (word, mask) = self.place(sequence);
        let too_old = sequence + self.bits < self.end;
        if too_old || state.may_have(sequence) || self.windows.iter().any(|(_, window)| window[word] & mask != 0) {
            self.left.copies += 1;
            return;
        }
        let kind = deviation as usize;
        let known = self.windows.iter().position(|(k, _)| *k == kind);
        let known = known.unwrap_or_else(|| {
            self.windows.push((kind, vec![0; (self.bits / 64) as usize].into_boxed_slice()));
            self.windows.len() - 1
        });
        self.windows[known].1[word] |= mask;
    }

    /// Word index and bit mask of a sequence number.
    fn place(&self, sequence: u64) -> (usize, u64) {
        ((sequence % self.bits / 64) as usize, 1 << (sequence % 64))
    }

    /// Moves the windows up to below `end`, and finally counts the numbers that leave them.
    fn advance(&mut self, end: u64, state: &FlowState) {
        let gone = self.end.saturating_sub(self.bits)..end.saturating_sub(self.bits).min(self.end);
        self.end = end;
        let mut sequence = gone.start;
        while sequence < gone.end {
            let (word, mask) = self.place(sequence);
            if self.windows.iter().all(|(_, window)| window[word] == 0) {
                sequence = (sequence / 64 + 1) * 64;
                continue;
            }
            for (kind, window) in self.windows.iter_mut().filter(|(_, window)| window[word] & mask != 0) {
                window[word] &= !mask;
                count(&mut self.left, *kind, state.may_have(sequence));
            }
            sequence += 1;
        }
    }

    /// Returns counts and windows as data, for flows that other lanes may have received too.
    pub(super) fn report(&self) -> DeviatingReport {
        let lowest = self.end.saturating_sub(self.bits);
        let from = lowest / 64 * 64;
        let window = |(kind, window): &(usize, Box<[u64]>)| {
            let mut bits = vec![0; (self.end - from).div_ceil(64) as usize];
            self.numbers(window).for_each(|number| bits[((number - from) / 64) as usize] |= 1 << (number % 64));
            (*kind, Arrived { from, bits })
        };
        DeviatingReport {
            frames: self.left.frames.to_vec(),
            copies: self.left.copies,
            first: self.windows.iter().map(window).collect(),
        }
    }

    /// Iterates over the sequence numbers in a window.
    fn numbers<'a>(&self, window: &'a [u64]) -> impl Iterator<Item = u64> + use<'a> {
        let (all, lowest) = (self.bits, self.end.saturating_sub(self.bits));
        window.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(move |(index, word)| {
            let set = (0..64).filter(move |bit| word >> bit & 1 == 1);
            // The sequence number of this bit.
            set.map(move |bit| lowest + (index as u64 * 64 + bit + all - lowest % all) % all)
        })
    }

    /// Returns the counts so far.
    pub(super) fn counts(&self, state: &FlowState) -> Deviations {
        let mut all = self.left;
        for (kind, window) in &self.windows {
            self.numbers(window).for_each(|number| count(&mut all, *kind, state.may_have(number)));
        }
        all
    }
}

/// Counts the first deviating arrival of a frame; `received` is true if the frame also arrived as expected.
pub(crate) fn count(all: &mut Deviations, kind: usize, received: bool) {
    if received {
        all.copies += 1;
    } else {
        all.frames[kind] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn a_frame_counts_by_its_first_arrival() {
        let mut state = FlowState::new(10, 10);
        let mut deviating = Deviating::of(&state);
        deviating.arrive(3, Deviation::Ttl, &state);
        deviating.arrive(3, Deviation::Dscp, &state);
        deviating.arrive(4, Deviation::Dscp, &state);
        let counted = deviating.counts(&state);
        let expected = |deviation: Deviation| counted.frames[deviation as usize];
        assert_eq!((expected(Deviation::Ttl), expected(Deviation::Dscp), counted.copies), (1, 1, 1));
        // Frame 3 arrives as expected after all.
        state.arrive(3);
        let counted = deviating.counts(&state);
        assert_eq!((counted.frames.iter().sum::<u64>(), counted.copies), (1, 2));
    }

    proptest! {
        #[test]
        fn each_arrival_counts_once_and_each_frame_once(
            window in prop_oneof![Just(512u64), Just(4_096)], step in prop_oneof![Just(1u64), Just(37)],
            arrivals in proptest::collection::vec((0u64..120, any::<bool>(), 0usize..3), 0..400)
        ) {
            let mut state = FlowState::new(100_000, window);
            let mut deviating = Deviating::of(&state);
            let (mut received, mut first, mut all) = (BTreeSet::new(), BTreeMap::new(), 0);
            for (sequence, whole, kind) in &arrivals {
                let sequence = sequence * step;
                if *whole {
                    if state.arrive(sequence) != crate::flow_state::Arrival::TooOld {
                        received.insert(sequence);
                    }
                } else {
                    all += 1;
                    first.entry(sequence).or_insert(*kind);
                    deviating.arrive(sequence, Deviation::ALL[*kind], &state);
                }
            }
            let counted = deviating.counts(&state);
            let mut frames = [0; KINDS];
            first.iter().filter(|(sequence, _)| !received.contains(sequence)).for_each(|(_, kind)| frames[*kind] += 1);
            prop_assert_eq!(counted.frames.iter().sum::<u64>() + counted.copies, all);
            // The fate of a frame beyond the window is unknown.
            if 120 * step <= window {
                prop_assert_eq!(counted.frames, frames);
            }
        }
    }
}
