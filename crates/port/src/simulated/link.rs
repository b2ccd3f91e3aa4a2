//! The links between tester ports and the device, in both directions. Frames change hands with their memory if the
//! device supports it, so that a frame is written once and read in place.

use crate::spread::queue_of;
use crate::{BURST, Batch, Filled, Queue};
use drophammer_model::quantity::Instant;
use drophammer_wire::frame::Frame;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

/// Later than any event.
const NEVER: Instant = Instant(u64::MAX);

/// Frames on their way to the device: the slots from `next` on, each with its time.
struct Burst {
    slots: Batch,
    at: Vec<Instant>,
    next: usize,
}

/// Frames that the tester receives together.
pub(super) struct Block {
    pub(super) frames: Vec<Frame>,
    /// Time at which each frame arrived.
    pub(super) slots: Vec<Filled>,
}

impl Block {
    pub(super) fn new() -> Block {
        Block { frames: Vec::with_capacity(BURST), slots: Vec::with_capacity(BURST) }
    }
}

/// Unused memory. The most recently used memory is taken first, because it is still in the cache.
pub(super) struct Spares {
    memory: Vec<Frame>,
    /// Size in bytes of a slot of a port with this MTU.
    slot: usize,
}

/// Maximum number of spare frames.
const MOST_SPARE: usize = 8_192;

impl Spares {
    pub(super) fn new(slot: usize) -> Spares {
        Spares { memory: Vec::new(), slot }
    }

    /// Returns memory with arbitrary content and room for a slot.
    #[inline]
    fn take(&mut self) -> Frame {
        self.memory.pop().unwrap_or_else(|| Frame::with_room(self.slot))
    }

    /// Keeps memory that is no longer in use. A device that makes frames of its own brings new memory with each of them, which would grow
    /// without bound.
    fn keep(&mut self, memory: impl Iterator<Item = Frame>) {
        let room = MOST_SPARE.saturating_sub(self.memory.len());
        self.memory.extend(memory.take(room));
    }

    /// Provides memory for the slots without memory.
    pub(super) fn fill(&mut self, slots: &mut Batch) {
        slots.fill(|| self.take());
    }
}

/// One link, or a queue's part of it. Bursts and blocks are reused, so allocation soon stops.
pub(super) struct Link {
    /// Port number at both ends.
    pub(super) port: usize,
    queue: Queue,
    out: VecDeque<Burst>,
    out_spare: Vec<Burst>,
    /// Time at which the next frame of `out` reaches the device.
    next_out: Instant,
    back: VecDeque<Block>,
    back_spare: Vec<Block>,
    pub(super) down: bool,
}

impl Link {
    pub(super) fn new(port: usize, queue: Queue) -> Link {
        Link {
            port,
            queue,
            out: VecDeque::new(),
            out_spare: Vec::new(),
            next_out: NEVER,
            back: VecDeque::new(),
            back_spare: Vec::new(),
            down: false,
        }
    }

    /// Sends `slots`, each at its time, except the first `gone`, and replaces them with a spare batch. Returns the time of
    /// the first one if nothing was in flight before.
    pub(super) fn send(&mut self, slots: &mut Batch, at: &[Instant], gone: usize) -> Option<Instant> {
        self.retire();
        let mut burst = self.out_spare.pop().unwrap_or_else(|| Burst {
            slots: Batch::of_frames(BURST, slots.slot_size()),
            at: Vec::with_capacity(BURST),
            next: 0,
        });
        burst.slots.follow(slots);
        std::mem::swap(&mut burst.slots, slots);
        burst.at.clear();
        burst.at.extend_from_slice(at);
        burst.next = gone;
        let first = self.out.is_empty().then_some(at[gone]);
        self.next_out = first.unwrap_or(self.next_out);
        self.out.push_back(burst);
        first
    }

    /// Recycles bursts that have left. This happens later, because the last frame may still be in use.
    fn retire(&mut self) {
        while let Some(burst) = self.out.pop_front_if(|b| b.next == b.at.len()) {
            self.out_spare.push(burst);
        }
    }

    /// Removes the next frame: returns its index in the first burst.
    #[inline]
    fn leave(&mut self) -> Option<usize> {
        if self.out.front().is_some_and(|b| b.next == b.at.len()) {
            self.retire();
        }
        let burst = self.out.front_mut()?;
        let place = burst.next;
        burst.next += 1;
        match burst.at.get(burst.next) {
            Some(at) => self.next_out = *at,
            None => self.next_out = self.out.get(1).map_or(NEVER, |b| b.at[b.next]),
        }
        Some(place)
    }

    /// Stores `frame`, which arrives at `at`.
    #[inline]
    fn arrive(&mut self, at: Instant, frame: Frame) {
        if self.back.back().is_none_or(|b| b.slots.len() == BURST) {
            self.back.push_back(self.back_spare.pop().unwrap_or_else(Block::new));
        }
        if let Some(block) = self.back.back_mut() {
            block.slots.push(Filled::new(frame.len(), at));
            block.frames.push(frame);
        }
    }

    /// Replaces `lent`, which has been read, with received frames.
    pub(super) fn lend(&mut self, lent: &mut Block, spares: &mut Spares) {
        lent.slots.clear();
        spares.keep(lent.frames.drain(..).rev());
        if let Some(block) = self.back.pop_front() {
            self.back_spare.push(std::mem::replace(lent, block));
        }
    }
}

/// For each link with frames in flight, the time at which the next one reaches the device, and the index of the link.
pub(super) type Heads = BinaryHeap<Reverse<(Instant, usize)>>;

/// Time at which the next frame in flight reaches the device.
pub(super) fn next_out(heads: &Heads) -> Instant {
    heads.peek().map_or(NEVER, |head| head.0.0)
}

/// Frames that reach the device, in order of time. At the same time, the frame at the lowest port comes first.
pub struct Arrivals<'a> {
    links: &'a mut [Link],
    heads: &'a mut Heads,
    now: &'a mut Instant,
    before: Instant,
    left: usize,
}

/// A frame that reaches the device.
pub struct Arriving<'a> {
    /// Time at which its last bit arrives.
    pub at: Instant,
    /// The port at which it arrives.
    pub port: usize,
    slots: &'a mut Batch,
    place: usize,
}

impl<'a> Arrivals<'a> {
    /// Returns the first `most` frames on `links` that arrive before `before`. `now` advances with them.
    pub(super) fn new(
        links: &'a mut [Link],
        heads: &'a mut Heads,
        now: &'a mut Instant,
        before: Instant,
        most: usize,
    ) -> Self {
        Arrivals { links, heads, now, before, left: most }
    }

    /// Returns the next frame, which the device must take. Frames on a link that is down are lost.
    #[inline]
    #[allow(clippy::should_implement_trait)] // lends itself
    pub fn next(&mut self) -> Option<Arriving<'_>> {
        let (next, place) = loop {
            if self.left == 0 {
                return None;
            }
            let mut head = self.heads.peek_mut()?;
            let Reverse((first, next)) = *head;
            if first >= self.before {
                return None;
            }
            let link = &mut self.links[next];
            let place = link.leave()?;
            match link.next_out {
                NEVER => drop(PeekMut::pop(head)),
                at => *head = Reverse((at, next)),
            }
            *self.now = first.max(*self.now);
            self.left -= 1;
            if !link.down {
                break (next, place);
            }
        };
        let link = &mut self.links[next];
        Some(Arriving { at: *self.now, port: link.port, slots: &mut link.out.front_mut()?.slots, place })
    }
}

impl Arriving<'_> {
    /// Returns the frame's bytes, without FCS.
    #[inline]
    pub fn frame(&self) -> &[u8] {
        self.slots.frame(self.place)
    }

    /// Returns the frame's memory, exactly as long as the frame. The device can take it, and leave other memory or none
    /// in its place.
    #[inline]
    pub fn memory(&mut self) -> &mut Frame {
        self.slots.give_away(self.place).expect("slots on a link are apart")
    }
}

/// Delivers frames that leave the device to the tester's ports.
pub struct Deliveries<'a> {
    pub(super) links: &'a mut [Link],
    pub(super) spares: &'a mut Spares,
}

/// Returns the link through which `frame` leaves `port`. All ports have the same number of queues.
#[inline]
fn link_of<'a>(links: &'a mut [Link], port: usize, frame: &[u8]) -> &'a mut Link {
    let queues = links[0].queue.count as usize;
    &mut links[port * queues + queue_of(frame, queues)]
}

impl Deliveries<'_> {
    /// Sends a copy of `frame` through `port` at `at`.
    pub fn copy(&mut self, at: Instant, port: usize, frame: &[u8]) {
        let link = link_of(self.links, port, frame);
        if link.down {
            return;
        }
        let mut memory = self.spares.take();
        let bytes = memory.bytes_mut();
        bytes.clear();
        bytes.extend_from_slice(&frame[..frame.len().min(self.spares.slot)]);
        link.arrive(at, memory);
    }

    /// Sends `frame` itself through `port` at `at`. No memory is left in its place.
    #[inline]
    pub fn hand_over(&mut self, at: Instant, port: usize, frame: &mut Frame) {
        let link = link_of(self.links, port, frame);
        if link.down || frame.len() > self.spares.slot {
            return self.copy(at, port, frame);
        }
        link.arrive(at, std::mem::take(frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_a_device_brings_is_not_kept_without_bound() {
        let mut spares = Spares::new(64);
        for _ in 0..3 {
            spares.keep((0..MOST_SPARE / 2 + 1).map(|_| Frame::with_room(64)));
        }
        assert_eq!(spares.memory.len(), MOST_SPARE);
    }
}
