//! State of flows with alternate ports, counts by destination or delay variation from frame to frame.

use super::ipdv::Before;
use drophammer_model::trial::{FlowSpec, PortIndex};

/// State that only some flows need, in another cache line than the state of all flows.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct FlowExtras {
    /// Alternate ports, where its frames may arrive too.
    pub(super) also: Vec<PortIndex>,
    /// Distinct frames that arrived at alternate ports.
    pub(crate) elsewhere: u64,
    /// Counts by destination, if the flow has them.
    pub(crate) tally: Option<Tally>,
    /// The last frame, if the flow measures delay variation.
    before: Option<Before>,
}

impl FlowExtras {
    pub(super) fn new(flow: &FlowSpec) -> FlowExtras {
        let tally = flow.per_destination.then(|| Tally::new(flow.destinations.count()));
        FlowExtras { also: flow.also.clone(), elsewhere: 0, tally, before: flow.ipdv.then(Before::default) }
    }

    /// True if `flow` needs this state.
    pub(super) fn asked_for(flow: &FlowSpec) -> bool {
        flow.per_destination || flow.ipdv || !flow.also.is_empty()
    }

    /// True if it has alternate ports.
    pub(crate) fn has_alternate(&self) -> bool {
        !self.also.is_empty()
    }

    /// Counts the distinct frame `sequence` with its latency in ns. Returns by how much longer that is than the latency of the frame before, if the
    /// flow measures it and that frame arrived directly before.
    #[inline]
    pub(super) fn take(&mut self, sequence: u64, latency: u64) -> Option<i64> {
        if let Some(tally) = &mut self.tally {
            tally.take(sequence);
        }
        self.before.as_mut()?.take(sequence, latency)
    }
}

/// Distinct frames by destination. They are counted by place in the order of destinations, so that consecutive frames use neighbouring words.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    count: u64,
    /// Sequence number at which the round of the last frame began.
    round: u64,
    frames: Vec<u32>,
}

/// See [`crate::plan::spaced`]; these words have half the size.
const GAP: usize = 16;

impl Tally {
    fn new(count: u32) -> Tally {
        let mut frames = Vec::with_capacity(count as usize + GAP);
        // Touches every page now rather than during the trial.
        frames.resize(count as usize, 0);
        Tally { count: u64::from(count), round: 0, frames }
    }

    #[inline]
    fn take(&mut self, sequence: u64) {
        let mut place = sequence.wrapping_sub(self.round);
        if place >= self.count {
            place = sequence % self.count;
            self.round = sequence - place;
        }
        self.frames[place as usize] += 1;
    }

    /// Frames by place.
    pub(crate) fn frames(&self) -> &[u32] {
        &self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn in_any_order_a_frame_counts_at_its_place(count in 1u32..50, arrivals in proptest::collection::vec(0u64..500, 0..300)) {
            let mut tally = Tally::new(count);
            arrivals.iter().for_each(|s| tally.take(*s));
            for place in 0..count {
                let expected = arrivals.iter().filter(|s| *s % u64::from(count) == u64::from(place)).count();
                prop_assert_eq!(tally.frames()[place as usize] as usize, expected);
            }
        }
    }
}
