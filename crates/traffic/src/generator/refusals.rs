//! Frames that the tester's own ring refused: how many of each flow, and which ones as long as there is room.

use crate::plan::spaced;

/// Consecutive frames of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Place of the flow in the generator.
    pub(super) flow: usize,
    /// First sequence number.
    pub(super) first: u64,
    /// Number of frames.
    pub(super) frames: u64,
}

/// The refused frames of a generator.
pub(super) struct Refusals {
    /// Frames of each flow, counted even if there is no room for another run.
    frames: Vec<u64>,
    /// Number of the last run of each flow, from 1; 0 before the first.
    last: Vec<usize>,
    runs: Vec<Run>,
}

impl Refusals {
    /// Room for `most` runs of `flows` flows.
    pub(super) fn new(flows: usize, most: usize) -> Refusals {
        Refusals { frames: spaced(flows), last: spaced(flows), runs: Vec::with_capacity(most) }
    }

    /// Adds a frame of the flow at this place. Frames of a flow come in order.
    pub(super) fn add(&mut self, flow: usize, sequence: u64) {
        self.frames[flow] += 1;
        if let Some(last) = self.last[flow].checked_sub(1)
            && self.runs[last].first + self.runs[last].frames == sequence
        {
            self.runs[last].frames += 1;
        } else if self.runs.len() < self.runs.capacity() {
            self.runs.push(Run { flow, first: sequence, frames: 1 });
            self.last[flow] = self.runs.len();
        }
    }

    /// Frames of each flow.
    pub(super) fn frames(&self) -> &[u64] {
        &self.frames
    }

    /// The stored runs, ascending within a flow.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_follow_each_other_in_their_flow_are_one_run() {
        let mut refusals = Refusals::new(2, 8);
        // The frames of two flows alternate.
        for sequence in [5, 6, 7, 9] {
            refusals.add(0, sequence);
            refusals.add(1, 2 * sequence);
        }
        assert_eq!(refusals.frames(), [4, 4]);
        let of = |flow: usize| -> Vec<(u64, u64)> {
            refusals.runs().iter().filter(|run| run.flow == flow).map(|run| (run.first, run.frames)).collect()
        };
        assert_eq!(of(0), [(5, 3), (9, 1)]);
        assert_eq!(of(1), [(10, 1), (12, 1), (14, 1), (18, 1)]);
    }

    #[test]
    fn all_frames_count_even_without_room_for_them() {
        let mut refusals = Refusals::new(1, 4);
        let most = refusals.runs.capacity() as u64;
        // Every second frame: none follows another one.
        (0..most + 100).for_each(|n| refusals.add(0, 2 * n));
        assert_eq!(refusals.frames(), [most + 100]);
        assert_eq!(refusals.runs().len() as u64, most);
        // A frame after one that was not stored does not extend the last run.
        refusals.add(0, 2 * (most + 99) + 1);
        assert_eq!(refusals.frames(), [most + 101]);
        assert_eq!(refusals.runs().last(), Some(&Run { flow: 0, first: 2 * (most - 1), frames: 1 }));
    }
}
