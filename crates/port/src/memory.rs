//! Two ports joined by rings in memory, on one thread: no device, no system call per frame or burst.
//!
//! It shows what generator and analyzer can do by themselves, and lets the loop of a trial run where there is no network
//! at all. A burst travels as one block that sender and receiver hand to and fro, so a frame is copied once.

use crate::{BURST, Batch, Clock, Port, PortCounters, PortError, PortInfo, Received, Sent, SystemClock};
use drophammer_model::quantity::Instant;
use drophammer_model::registry::BackendSpec;
use drophammer_wire::{MacAddr, ethernet};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// This backend.
pub static SPEC: BackendSpec =
    BackendSpec { name: "memory", summary: "a pair of ports joined in memory; measures the tester's own engine" };

/// Blocks of [`BURST`] frames that a direction holds; what is handed over beyond them is refused.
pub const RING_BLOCKS: usize = 4;

const CACHE_LINE: usize = 64;

/// Frames that arrive together.
struct Block {
    memory: Box<[u8]>,
    slots: Vec<(usize, Instant)>,
}

impl Block {
    fn new(slot_size: usize) -> Block {
        Block { memory: vec![0; BURST * slot_size].into_boxed_slice(), slots: Vec::with_capacity(BURST) }
    }
}

/// One direction: blocks under way, oldest first, and empty ones.
struct Ring {
    full: VecDeque<Block>,
    empty: Vec<Block>,
}

/// One end of a pair.
pub struct MemoryPort {
    info: PortInfo,
    clock: SystemClock,
    slots: Batch,
    outgoing: Rc<RefCell<Ring>>,
    incoming: Rc<RefCell<Ring>>,
    /// What was lent last.
    lent: Block,
    slot_size: usize,
}

/// Two joined ports with these addresses: `m0` and `m1`. What one sends arrives at the other at the instant, by `clock`,
/// at which it was handed over.
pub fn pair(macs: [MacAddr; 2], mtu: u32, clock: SystemClock) -> [MemoryPort; 2] {
    // Slots an even number of cache lines apart share few sets of a cache; an odd number spreads them over all.
    let slot_size = ((ethernet::LEN + mtu as usize).div_ceil(CACHE_LINE) | 1) * CACHE_LINE;
    let ring = || {
        let empty = (0..RING_BLOCKS).map(|_| Block::new(slot_size)).collect();
        Rc::new(RefCell::new(Ring { full: VecDeque::with_capacity(RING_BLOCKS), empty }))
    };
    let rings = [ring(), ring()];
    [0, 1].map(|i| MemoryPort {
        info: PortInfo {
            interface: format!("m{i}"),
            backend: SPEC.name,
            driver: "memory".into(),
            mac: macs[i],
            mtu,
            refusal_is_device_loss: false,
        },
        clock,
        slots: Batch::new(BURST, slot_size),
        outgoing: rings[i].clone(),
        incoming: rings[1 - i].clone(),
        lent: Block::new(slot_size),
        slot_size,
    })
}

impl Port for MemoryPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn slots(&mut self) -> &mut Batch {
        &mut self.slots
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let now = self.clock.now();
        let mut ring = self.outgoing.borrow_mut();
        let mut sent = 0;
        while sent < frames {
            // The last block goes on being filled until it is full or taken.
            if ring.full.back().is_none_or(|b| b.slots.len() == BURST) {
                let Some(block) = ring.empty.pop() else { break };
                ring.full.push_back(block);
            }
            let Some(block) = ring.full.back_mut() else { break };
            let free = BURST - block.slots.len();
            for i in sent..frames.min(sent + free) {
                let frame = self.slots.frame(i);
                let start = block.slots.len() * self.slot_size;
                block.memory[start..start + frame.len()].copy_from_slice(frame);
                block.slots.push((frame.len(), now));
            }
            sent = frames.min(sent + free);
        }
        let refused_mask = if sent < frames { (u64::MAX >> (BURST - frames)) & !((1u64 << sent) - 1) } else { 0 };
        Ok(Sent { accepted: sent as u32, refused: (frames - sent) as u32, refused_mask })
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let mut ring = self.incoming.borrow_mut();
        self.lent.slots.clear();
        if let Some(block) = ring.full.pop_front() {
            ring.empty.push(std::mem::replace(&mut self.lent, block));
        }
        Ok(Received::new(&self.lent.memory, self.slot_size, &self.lent.slots))
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> [MemoryPort; 2] {
        pair([MacAddr::local(1), MacAddr::local(2)], 1_500, SystemClock::start())
    }

    fn offer(port: &mut MemoryPort, frames: std::ops::Range<usize>) -> Sent {
        for (slot, n) in frames.clone().enumerate() {
            port.slots().put(slot, &[(n >> 8) as u8, n as u8, 7][..2 + n % 2]);
        }
        port.send(frames.len()).unwrap()
    }

    fn take(port: &mut MemoryPort) -> Vec<usize> {
        let number = |f: &[u8]| usize::from(f[0]) << 8 | usize::from(f[1]);
        let arrived = port.receive().unwrap();
        arrived
            .iter()
            .map(|a| {
                assert_eq!(a.frame.len(), 2 + number(a.frame) % 2);
                number(a.frame)
            })
            .collect()
    }

    #[test]
    fn frames_arrive_at_the_other_end_in_order_and_once() {
        let [mut a, mut b] = ports();
        let clock = a.clock;
        let before = clock.now();
        assert_eq!(offer(&mut a, 0..10).accepted, 10);
        assert_eq!(offer(&mut a, 10..74).accepted, 64);
        assert_eq!(offer(&mut b, 200..203).accepted, 3);
        let after = clock.now();
        assert!(b.receive().unwrap().iter().all(|f| before <= f.at && f.at <= after && !f.frame.is_empty()));
        assert_eq!(take(&mut b), (64..74).collect::<Vec<_>>());
        assert_eq!(take(&mut a), [200, 201, 202]);
        assert!(take(&mut a).is_empty() && take(&mut b).is_empty());
    }

    #[test]
    fn what_finds_no_room_is_refused_and_no_other() {
        let [mut a, mut b] = ports();
        let room = RING_BLOCKS * BURST;
        for n in 0..RING_BLOCKS - 1 {
            assert_eq!(offer(&mut a, n * BURST..(n + 1) * BURST).refused, 0);
        }
        assert_eq!(offer(&mut a, room - BURST..room - 4).refused, 0);
        assert_eq!(offer(&mut a, room - 4..room + 2), Sent { accepted: 4, refused: 2, refused_mask: 0b11_0000 });
        assert_eq!(offer(&mut a, 0..64), Sent { accepted: 0, refused: 64, refused_mask: u64::MAX });
        let mut all = Vec::new();
        for _ in 0..RING_BLOCKS {
            all.extend(take(&mut b));
        }
        assert_eq!(all, (0..room).collect::<Vec<_>>());
        // Blocks go round: it works as well the hundredth time.
        for n in 0..100 {
            assert_eq!(offer(&mut a, n..n + 50).accepted, 50);
            assert_eq!(take(&mut b), (n..n + 50).collect::<Vec<_>>());
        }
    }
}
