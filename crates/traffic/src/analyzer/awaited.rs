//! State of a flow whose frames arrive in order, so small that thousands of flows fit in the cache.

use crate::flow_state::{FlowState, RUN};
use drophammer_model::trial::PortIndex;

/// The next frame in order of a flow. Frames that arrive in order are counted only here. [`FlowState`] lags behind
/// until it is settled.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(super) struct Awaited {
    /// The flow's port, and in the lower half the sequence number as carried in frames; [`NONE`] if no frame can be counted here.
    frame: u64,
    /// Sequence number at which counting here ends: the end of the flow, or the next update of the state.
    until: u32,
    pub(super) group: u32,
}

const _: () = assert!(size_of::<Awaited>() == 16);

/// Matches no frame: sequence numbers have 28 bits.
const NONE: u64 = u64::MAX;
const SEQUENCE: u64 = (1 << 28) - 1;
// Numbers must not wrap before the next update of the state.
const _: () = assert!(RUN.is_power_of_two() && RUN <= SEQUENCE);

/// Combines port and sequence number in the form of [`Awaited`].
#[inline]
pub(super) fn frame(port: PortIndex, sequence: u32) -> u64 {
    (port as u64) << 32 | u64::from(sequence)
}

/// Position of a frame in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The awaited frame.
    InOrder,
    /// The awaited frame. The state must be updated before the next frame.
    InOrderAndLast,
    /// Any other frame.
    Other,
}

impl Awaited {
    /// Awaits no frame at first; call [`Awaited::follow`] next.
    pub(super) fn new(group: u32) -> Awaited {
        Awaited { frame: NONE, until: 0, group }
    }

    /// Continues after `state`, for a flow of `frames` frames to `port`.
    pub(super) fn follow(&mut self, state: &FlowState, frames: u64, port: PortIndex) {
        let next = state.next_expected();
        if next >= frames || !state.is_in_order() {
            self.frame = NONE;
            return;
        }
        self.frame = frame(port, (next & SEQUENCE) as u32);
        let until = ((next / RUN + 1) * RUN).min(frames);
        self.until = ((next & SEQUENCE) + (until - next)) as u32;
    }

    /// Counts a frame if it is the awaited frame.
    #[inline(always)]
    pub(super) fn take(&mut self, frame: u64) -> Place {
        if frame != self.frame {
            return Place::Other;
        }
        self.frame = frame + 1;
        if self.frame as u32 == self.until { Place::InOrderAndLast } else { Place::InOrder }
    }

    /// Updates `state`, which this value follows. Call [`Awaited::follow`] next.
    pub(super) fn settle(&self, state: &mut FlowState) {
        if self.frame != NONE {
            let from = (state.next_expected() & SEQUENCE) as u32;
            state.arrive_in_order(u64::from(self.frame as u32 - from));
        }
    }

    /// Reads the state that the next frame needs, so that it gets into the cache.
    #[inline(always)]
    pub(super) fn look(&self) -> u64 {
        self.frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_state::Arrival;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn beside_or_in_the_state_the_counts_are_the_same(
            start in prop_oneof![Just(0u64), Just(1 << 28), Just(5 << 28)], before in 0u64..2 * RUN, rest in 0u64..3 * RUN,
            runs in proptest::collection::vec((prop_oneof![1u64..3, 1u64..2 * RUN], -3i64..4), 1..8), looks: bool
        ) {
            // A running flow, near a wrap of the sequence numbers on the wire, and possibly near its end.
            let first = start.saturating_sub(before);
            let frames = first + before + rest;
            let (mut plain, mut state) = (FlowState::new(1 << 20, 1 << 20), FlowState::new(1 << 20, 1 << 20));
            let mut awaited = Awaited::new(0);
            if first > 0 {
                assert_eq!([plain.arrive(first - 1), state.arrive(first - 1)], [Arrival::New; 2]);
            }
            awaited.follow(&state, frames, 3);
            let mut next = first;
            for (run, step) in runs {
                for _ in 0..run {
                    if next >= frames {
                        // Refused frames are not counted.
                        prop_assert_eq!(awaited.take(frame(3, (next & SEQUENCE) as u32)), Place::Other);
                        break;
                    }
                    let place = awaited.take(frame(3, (next & SEQUENCE) as u32));
                    prop_assert_eq!(place == Place::Other, !plain.is_in_order() || next != plain.next_expected());
                    let verdict = plain.arrive(next);
                    match place {
                        Place::InOrder => prop_assert_eq!(verdict, Arrival::New),
                        Place::InOrderAndLast => {
                            prop_assert_eq!(verdict, Arrival::New);
                            awaited.settle(&mut state);
                            awaited.follow(&state, frames, 3);
                        }
                        Place::Other => {
                            awaited.settle(&mut state);
                            prop_assert_eq!(state.arrive(next), verdict);
                            awaited.follow(&state, frames, 3);
                        }
                    }
                    if looks {
                        // Settling twice makes no difference.
                        awaited.settle(&mut state);
                        awaited.settle(&mut state);
                        prop_assert_eq!(state.next_expected(), plain.next_expected());
                    }
                    prop_assert_eq!(awaited.take(frame(2, (next & SEQUENCE) as u32 + 1)), Place::Other, "another port");
                    next += 1;
                }
                next = next.saturating_add_signed(step);
            }
            awaited.settle(&mut state);
            prop_assert_eq!(format!("{state:?}"), format!("{plain:?}"));
        }
    }
}
