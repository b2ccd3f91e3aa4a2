//! From the server to the wire: the line of each port, and all frames that wait at their output port, in order of
//! departure.

use crate::moment::Moment;
use crate::pool::Slot;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::{Instant, Medium};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

/// Time that a frame of `len` bytes, FCS included, takes on an Ethernet line.
pub fn time_on_line(len: usize, bits_per_second: u64) -> Moment {
    let bits = 8 * (len.max(64) as u128 + u128::from(Medium::Ethernet.overhead()));
    Moment::ratio(bits * 1_000_000_000, bits_per_second)
}

/// The line of one port.
#[derive(Clone, Debug)]
pub struct Line {
    speed_bps: Option<u64>,
    buffer: usize,
    ends: VecDeque<Moment>,
    free_at: Moment,
    last: Instant,
}

impl Line {
    pub fn new(speed: Option<Bandwidth>, buffer: usize) -> Line {
        let ends = VecDeque::with_capacity(if speed.is_some() { buffer.min(65_536) } else { 0 });
        Line { speed_bps: speed.map(|s| s.0), buffer, ends, free_at: Moment::default(), last: Instant(0) }
    }

    /// The time when the buffer has room for a frame that is ready at `at`, behind all earlier frames.
    pub fn room_at(&self, at: Instant) -> Instant {
        let at = at.max(self.last);
        match self.ends.len().checked_sub(self.buffer) {
            Some(first) if self.speed_bps.is_some() => at.max(self.ends[first].ceil()),
            _ => at,
        }
    }

    /// Adds a frame of `len` bytes (without FCS) that is ready at `ready`. Returns when its last bit is out, or `None`
    /// if the buffer is full. A frame that is ready before its predecessor waits for its predecessor.
    #[inline]
    pub fn offer(&mut self, ready: Instant, len: usize) -> Option<Instant> {
        let ready = ready.max(self.last);
        if let Some(speed) = self.speed_bps {
            let arrival = Moment::at(ready);
            while self.ends.front().is_some_and(|end| *end <= arrival) {
                self.ends.pop_front();
            }
            if self.ends.len() >= self.buffer {
                return None;
            }
            let end = self.free_at.max(arrival).plus(time_on_line(len + 4, speed), speed);
            self.free_at = end;
            self.ends.push_back(end);
            self.last = ready;
            return Some(end.ceil());
        }
        self.last = ready;
        Some(ready)
    }
}

/// A frame at its output port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Departure {
    pub at: Instant,
    /// Determines the order of frames with the same instant: first scheduled, first out.
    number: u64,
    pub port: usize,
    pub slot: Slot,
    /// True for transit frames, false for the device's own frames.
    pub transit: bool,
    /// True if another station may answer the frame; false for test frames.
    notice: bool,
    /// True if the frame is certainly unicast.
    pub unicast: bool,
}

/// All frames at their output ports.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    /// For each port, the test frames that depart in their turn, in order of departure.
    lanes: Vec<VecDeque<Departure>>,
    /// Instant, number and port of the first frame of each port that has one, so that no frame costs a look at all ports.
    fronts: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    /// All other frames.
    heap: BinaryHeap<Reverse<Departure>>,
    /// Departures of the frames that another station may answer.
    notices: BinaryHeap<Reverse<Instant>>,
    scheduled: u64,
}

impl Departures {
    pub fn new(ports: usize) -> Departures {
        Departures { lanes: vec![VecDeque::new(); ports], ..Departures::default() }
    }

    /// Adds a test frame that departs in its turn; `unicast` if it is certainly unicast.
    #[inline(always)]
    pub fn schedule(&mut self, at: Instant, port: usize, slot: Slot, unicast: bool) {
        let departure = Departure { unicast, ..self.number(at, port, slot, true, false) };
        match self.lanes[port].back() {
            Some(last) if last.at > at => return self.heap.push(Reverse(departure)),
            Some(_) => {}
            None => self.fronts.push(Reverse((at, departure.number, port))),
        }
        self.lanes[port].push_back(departure);
    }

    /// Adds a test frame that departs out of its turn.
    pub fn schedule_apart(&mut self, at: Instant, port: usize, slot: Slot) {
        let departure = self.number(at, port, slot, true, false);
        self.heap.push(Reverse(departure));
    }

    /// Adds any other frame: a transit frame, or one of the device's own.
    pub fn schedule_other(&mut self, at: Instant, port: usize, slot: Slot, transit: bool) {
        let departure = self.number(at, port, slot, transit, true);
        self.heap.push(Reverse(departure));
        self.notices.push(Reverse(at));
    }

    #[inline]
    fn number(&mut self, at: Instant, port: usize, slot: Slot, transit: bool, notice: bool) -> Departure {
        self.scheduled += 1;
        Departure { at, number: self.scheduled, port, slot, transit, notice, unicast: false }
    }

    /// Instant, number and lane of the next frame. The heap counts as the lane after the last one.
    #[inline]
    fn first(&self) -> Option<(Instant, u64, usize)> {
        let apart = self.heap.peek().map(|d| (d.0.at, d.0.number, self.lanes.len()));
        self.fronts.peek().map(|front| front.0).into_iter().chain(apart).min()
    }

    pub fn next(&self) -> Option<Instant> {
        self.first().map(|(at, ..)| at)
    }

    /// When the next frame departs through one of these ports. Frames out of turn count for all ports.
    pub fn next_at(&self, ports: &[bool]) -> Option<Instant> {
        let apart = self.heap.peek().map(|departure| departure.0.at);
        let lanes = self.lanes.iter().zip(ports).filter(|(_, named)| **named);
        lanes.filter_map(|(lane, _)| Some(lane.front()?.at)).chain(apart).min()
    }

    /// When the next frame departs that another station may answer.
    pub fn next_notice(&self) -> Option<Instant> {
        self.notices.peek().map(|at| at.0)
    }

    /// Takes the next frame if it departs at or before `now`.
    #[inline(always)]
    pub fn take(&mut self, now: Instant) -> Option<Departure> {
        let (_, _, lane) = self.first().filter(|(at, ..)| *at <= now)?;
        if let Some(frames) = self.lanes.get_mut(lane) {
            let departure = frames.pop_front();
            let mut front = self.fronts.peek_mut()?;
            match frames.front() {
                Some(next) => *front = Reverse((next.at, next.number, lane)),
                None => drop(PeekMut::pop(front)),
            }
            return departure;
        }
        let departure = self.heap.pop()?.0;
        if departure.notice {
            // Nothing departs before this frame, so its notice is the first.
            self.notices.pop();
        }
        Some(departure)
    }
}

/// A frame that is held until a number of others have passed it.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    pub slot: Slot,
    /// Frames that still have to pass it.
    pub to_pass: u64,
    /// Latest time of departure.
    pub limit: Instant,
}

/// The input queue of a port with head-of-line blocking, which is a fault: frames wait in order until the line of the
/// first one has room.
#[derive(Clone, Debug, Default)]
pub struct InputQueue {
    /// The time when each frame leaves, ascending.
    leaves: VecDeque<Instant>,
}

impl InputQueue {
    /// Adds a frame that arrives at `at` to a queue with room for `room` frames. Returns the time when all frames
    /// before it have left; `None` if the queue is full.
    pub fn behind(&mut self, at: Instant, room: usize) -> Option<Instant> {
        while self.leaves.front().is_some_and(|leave| *leave <= at) {
            self.leaves.pop_front();
        }
        (self.leaves.len() < room).then(|| self.leaves.back().copied().unwrap_or(at))
    }

    /// Lets the frame leave the queue at `leave`, but not before the frame ahead of it.
    pub fn push(&mut self, leave: Instant) {
        self.leaves.push_back(leave);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabit_line_takes_672_ns_for_64_bytes() {
        let mut line = Line::new(Some(Bandwidth(1_000_000_000)), 3);
        let ends: Vec<_> = (0..4).map(|_| line.offer(Instant(100), 60).map(|i| i.0)).collect();
        assert_eq!(ends, [Some(772), Some(1_444), Some(2_116), None]);
        assert_eq!(line.offer(Instant(772), 60), Some(Instant(2_788)), "the first is out");
        // A frame that waits for room is accepted at the instant when there is room.
        assert_eq!(line.room_at(Instant(772)), Instant(1_444));
        assert_eq!((line.offer(Instant(1_444), 60), line.room_at(Instant(0))), (Some(Instant(3_460)), Instant(2_116)));
        assert_eq!(Line::new(None, 1).room_at(Instant(7)), Instant(7));
        // At 10 Gbit/s each frame takes 67.2 ns, without drift.
        let mut line = Line::new(Some(Bandwidth(10_000_000_000)), 10);
        let ends: Vec<_> = (0..5).map(|_| line.offer(Instant(0), 60).map(|i| i.0)).collect();
        assert_eq!(ends, [68, 135, 202, 269, 336].map(Some));
    }

    #[test]
    fn a_frame_waits_for_the_one_before_it_and_a_full_queue_takes_none() {
        let mut queue = InputQueue::default();
        assert_eq!(queue.behind(Instant(5), 2), Some(Instant(5)));
        queue.push(Instant(5));
        // The first frame left immediately, so there is room for two more.
        for leave in [40, 60] {
            assert!(queue.behind(Instant(6), 2).is_some());
            queue.push(Instant(leave));
        }
        assert_eq!(queue.behind(Instant(39), 2), None);
        assert_eq!(queue.behind(Instant(40), 2), Some(Instant(60)));
    }
}
