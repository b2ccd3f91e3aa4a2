//! An input queue of a port with head-of-line blocking: a fault.

use drophammer_model::Instant;
use std::collections::VecDeque;

/// The waiting frames of one port, in order, until the line of the first of them has room.
#[derive(Clone, Debug, Default)]
pub struct InputQueue {
    /// When each of them leaves it, ascending.
    leaves: VecDeque<Instant>,
}

impl InputQueue {
    /// A frame arrives at `at` at a queue of `room` frames. Returns the earliest instant at which all before it are
    /// gone; `None` if the queue is full.
    pub fn behind(&mut self, at: Instant, room: usize) -> Option<Instant> {
        while self.leaves.front().is_some_and(|leave| *leave <= at) {
            self.leaves.pop_front();
        }
        (self.leaves.len() < room).then(|| self.leaves.back().copied().unwrap_or(at))
    }

    /// The frame leaves the queue at `leave`, not before the one ahead of it.
    pub fn push(&mut self, leave: Instant) {
        self.leaves.push_back(leave);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_waits_for_the_one_before_it_and_a_full_queue_takes_none() {
        let mut queue = InputQueue::default();
        assert_eq!(queue.behind(Instant(5), 2), Some(Instant(5)));
        queue.push(Instant(5));
        // The first went at once, so two more have room.
        for leave in [40, 60] {
            assert!(queue.behind(Instant(6), 2).is_some());
            queue.push(Instant(leave));
        }
        assert_eq!(queue.behind(Instant(39), 2), None);
        assert_eq!(queue.behind(Instant(40), 2), Some(Instant(60)));
    }
}
