//! Two ports connected by rings in memory: no device, no system call per frame or burst, and no lock between two threads.
//!
//! They measure generator and analyzer alone, and run the loop of a trial without a network. A frame is copied once,
//! into a ring with one writer and one reader, and is read in place.

use crate::spread::queue_of;
use crate::{BURST, Batch, Clock, Filled, Port, PortCounters, PortError, PortInfo, Queue, Received, Sent, SystemClock};
use drophammer_model::quantity::Instant;
use drophammer_model::registry::BackendSpec;
use drophammer_wire::{MacAddr, ethernet};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// This backend.
pub static SPEC: BackendSpec =
    BackendSpec { name: "memory", summary: "a pair of ports joined in memory; measures the tester's own engine" };

/// Number of bursts of [`BURST`] frames that fit into a direction, including the lent burst. Further frames are refused.
pub const RING_BURSTS: usize = 4;
/// Number of frames that fit into a direction.
const ROOM: u64 = (RING_BURSTS * BURST) as u64;

const CACHE_LINE: usize = 64;

/// A counter in its own pair of cache lines (processors fetch lines in pairs).
#[repr(align(128))]
struct Count(AtomicU64);

/// One direction. Frame n is in slot n modulo [`ROOM`]. Frames `taken..written` belong to the reader, all others to the writer.
struct Ring {
    memory: Box<[UnsafeCell<u8>]>,
    slots: Box<[UnsafeCell<Filled>]>,
    slot_size: usize,
    /// Number of frames handed over. Only the writer changes it.
    written: Count,
    /// Number of frames that the reader has finished with. Only the reader changes it.
    taken: Count,
}

// SAFETY: only the port at one end writes slots and `written`. Only the port at the other end reads slots and writes
// `taken`. Both need `&mut` on their port, which exists once. A slot changes hands by a release store and an acquire
// load of a count, so nobody reads a slot while somebody writes it.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(slot_size: usize) -> Ring {
        let memory = std::iter::repeat_with(|| UnsafeCell::new(0)).take(ROOM as usize * slot_size).collect();
        let slots =
            std::iter::repeat_with(|| UnsafeCell::new(Filled::new(0, Instant(0)))).take(ROOM as usize).collect();
        Ring { memory, slots, slot_size, written: Count(AtomicU64::new(0)), taken: Count(AtomicU64::new(0)) }
    }

    /// Copies `frame` into slot `n`. Only for the writer, and only before `n` is counted as written.
    #[inline]
    fn put(&self, n: u64, frame: &[u8], at: Instant) {
        let place = (n % ROOM) as usize;
        let slot = &self.memory[place * self.slot_size..][..frame.len()];
        // SAFETY: the slot belongs to the writer (see `Sync`). Source and target have the length of `frame` and do not
        // overlap, because the ring's memory is lent only to readers.
        unsafe {
            std::ptr::copy_nonoverlapping(frame.as_ptr(), UnsafeCell::raw_get(slot.as_ptr()), frame.len());
            *self.slots[place].get() = Filled::new(frame.len(), at);
        }
    }

    /// Lends `count` frames from `n` on, which must be adjacent in memory. Only for the reader, and only before they
    /// are counted as taken.
    #[inline]
    fn lend(&self, n: u64, count: usize) -> Received<'_> {
        let place = (n % ROOM) as usize;
        let memory = &self.memory[place * self.slot_size..][..count * self.slot_size];
        let slots = &self.slots[place..][..count];
        // SAFETY: these slots belong to the reader (see `Sync`) until it counts them as taken, for which it needs
        // `&mut` on the port from which they are borrowed. `UnsafeCell<T>` has the layout of `T`.
        unsafe {
            let memory = std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), memory.len());
            let slots = std::slice::from_raw_parts(slots.as_ptr().cast::<Filled>(), count);
            Received::new(memory, self.slot_size, slots)
        }
    }
}

/// One end of a pair. Two threads can use the two ends.
#[repr(align(128))]
pub struct MemoryPort {
    info: PortInfo,
    clock: SystemClock,
    slots: Batch,
    outgoing: Arc<Ring>,
    incoming: Arc<Ring>,
    /// Number of frames handed over.
    written: u64,
    /// The other end's count when it was last read.
    seen_taken: u64,
    /// Number of frames taken, including the lent frames.
    lent: u64,
}

/// Creates two connected ports with these addresses: `m0` and `m1`. A frame that one of them sends arrives at the other
/// with the time, by `clock`, at which it was handed over.
pub fn pair(macs: [MacAddr; 2], mtu: u32, clock: SystemClock) -> [MemoryPort; 2] {
    // Slots an even number of cache lines apart share few sets of a cache; an odd number spreads them over all sets.
    let slot_size = ((ethernet::LEN + mtu as usize).div_ceil(CACHE_LINE) | 1) * CACHE_LINE;
    let rings = [Arc::new(Ring::new(slot_size)), Arc::new(Ring::new(slot_size))];
    [0, 1].map(|i| MemoryPort {
        info: PortInfo::new(&format!("m{i}"), &SPEC, "memory", macs[i], mtu),
        clock,
        slots: Batch::new(BURST, slot_size),
        outgoing: rings[i].clone(),
        incoming: rings[1 - i].clone(),
        written: 0,
        seen_taken: 0,
        lent: 0,
    })
}

impl MemoryPort {
    /// True if there are frames to receive.
    fn waits(&self) -> bool {
        self.incoming.written.0.load(Ordering::Acquire) > self.lent
    }
}

impl Port for MemoryPort {
    info_and_slots!();

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let now = self.clock.now();
        if self.written + frames as u64 > self.seen_taken + ROOM {
            self.seen_taken = self.outgoing.taken.0.load(Ordering::Acquire);
        }
        let sent = frames.min((self.seen_taken + ROOM - self.written) as usize);
        for i in 0..sent {
            self.outgoing.put(self.written + i as u64, self.slots.frame(i), now);
        }
        self.written += sent as u64;
        self.outgoing.written.0.store(self.written, Ordering::Release);
        let refused_mask = if sent < frames { (u64::MAX >> (BURST - frames)) & !((1u64 << sent) - 1) } else { 0 };
        Ok(Sent { accepted: sent as u32, refused: (frames - sent) as u32, refused_mask })
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        // Takes back the lent frames.
        self.incoming.taken.0.store(self.lent, Ordering::Release);
        let waiting = self.incoming.written.0.load(Ordering::Acquire) - self.lent;
        // Frames that continue at the start of the memory follow with the next call.
        let count = waiting.min(BURST as u64).min(ROOM - self.lent % ROOM);
        let first = self.lent;
        self.lent += count;
        Ok(self.incoming.lend(first, count as usize))
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }
}

/// One queue of an end. Different threads can use different queues. A ring has one writer and one reader, so there is
/// one ring from each queue to each queue of the other end. Addresses and ports determine the queue at which a frame
/// arrives.
pub struct MemoryQueue {
    info: PortInfo,
    slots: Batch,
    /// One port for each queue of the other end.
    ways: Vec<MemoryPort>,
    /// The port that the next call reads first.
    turn: usize,
}

/// Creates the queues, at least one, of two connected interfaces with these addresses, `m0` and `m1`. They behave like
/// the ports of [`pair`]. Frames with the same addresses and ports that leave through one queue arrive at one queue, in
/// order.
pub fn queues(macs: [MacAddr; 2], mtu: u32, clock: SystemClock, queues: [u32; 2]) -> [Vec<MemoryQueue>; 2] {
    let counts = queues.map(|count| count.max(1));
    let mut ends = [0, 1].map(|end| (0..counts[end]).map(|_| Vec::new()).collect::<Vec<Vec<MemoryPort>>>());
    for near in 0..counts[0] as usize {
        for far in 0..counts[1] as usize {
            let [a, b] = pair(macs, mtu, clock);
            ends[0][near].push(a);
            ends[1][far].push(b);
        }
    }
    let mut end = 0;
    ends.map(|queues| {
        let count = counts[end];
        end += 1;
        (0..).zip(queues).map(|(index, ways)| MemoryQueue::new(Queue { index, count }, ways)).collect()
    })
}

impl MemoryQueue {
    fn new(queue: Queue, ways: Vec<MemoryPort>) -> MemoryQueue {
        let info = PortInfo { queue, ..ways[0].info().clone() };
        let slots = Batch::new(BURST, ways[0].slots.slot_size());
        MemoryQueue { info, slots, ways, turn: 0 }
    }
}

impl Port for MemoryQueue {
    info_and_slots!();

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut all = Sent::default();
        let count = self.ways.len();
        for (n, way) in self.ways.iter_mut().enumerate() {
            let mut slots = [0; BURST];
            let mut filled = 0;
            for slot in 0..frames {
                let frame = self.slots.frame(slot);
                if queue_of(frame, count) == n {
                    way.slots().put(filled, frame);
                    slots[filled] = slot;
                    filled += 1;
                }
            }
            let sent = way.send(filled)?;
            all.accepted += sent.accepted;
            all.refused += sent.refused;
            let refused = (0..filled).filter(|i| sent.refused_mask >> i & 1 == 1);
            all.refused_mask |= refused.fold(0, |mask, i| mask | 1 << slots[i]);
        }
        Ok(all)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let count = self.ways.len();
        let from = self.turn;
        // If no frame is waiting, any port returns none.
        let found = (0..count).map(|n| (from + n) % count).find(|way| self.ways[*way].waits());
        let way = found.unwrap_or(from);
        self.turn = (way + 1) % count;
        self.ways[way].receive()
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, VecDeque};

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
        let room = RING_BURSTS * BURST;
        for n in 0..RING_BURSTS - 1 {
            assert_eq!(offer(&mut a, n * BURST..(n + 1) * BURST).refused, 0);
        }
        assert_eq!(offer(&mut a, room - BURST..room - 4).refused, 0);
        assert_eq!(offer(&mut a, room - 4..room + 2), Sent { accepted: 4, refused: 2, refused_mask: 0b11_0000 });
        assert_eq!(offer(&mut a, 0..64), Sent { accepted: 0, refused: 64, refused_mask: u64::MAX });
        let mut all = Vec::new();
        for _ in 0..RING_BURSTS {
            all.extend(take(&mut b));
        }
        assert_eq!(all, (0..room).collect::<Vec<_>>());
        // Slots are reused: this also works the hundredth time.
        for n in 0..100 {
            assert_eq!(offer(&mut a, n..n + 50).accepted, 50);
            let mut found = take(&mut b);
            found.extend(take(&mut b));
            assert_eq!(found, (n..n + 50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_lent_is_not_written_over() {
        let [mut a, mut b] = ports();
        offer(&mut a, 0..BURST);
        let lent = b.receive().unwrap();
        let room = (RING_BURSTS - 1) * BURST;
        (0..RING_BURSTS - 1).for_each(|n| assert_eq!(offer(&mut a, n * BURST..(n + 1) * BURST).refused, 0));
        assert_eq!(offer(&mut a, room..room + 1).refused, 1, "only the lent burst keeps its room");
        assert!(lent.iter().enumerate().all(|(n, f)| usize::from(f.frame[1]) == n));
        let _ = b.receive().unwrap();
        assert_eq!(offer(&mut a, room..room + 1).refused, 0);
    }

    #[test]
    fn two_threads_hand_every_frame_over_once_in_order_and_whole() {
        const FRAMES: u64 = 300_000;
        let [mut a, mut b] = ports();
        let body = |n: u64| -> [u8; 60] { std::array::from_fn(|i| (n.wrapping_mul(0x9e37_79b9) >> (i % 32)) as u8) };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut n = 0;
                while n < FRAMES {
                    // Bursts of all lengths. Refused frames are offered again, together with the frames after them.
                    let frames = (1 + n % BURST as u64).min(FRAMES - n);
                    (0..frames).for_each(|i| a.slots().put(i as usize, &body(n + i)));
                    let sent = a.send(frames as usize).unwrap();
                    n += u64::from(sent.accepted);
                    if sent.refused > 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let mut n = 0;
            let mut last = Instant(0);
            while n < FRAMES {
                let frames = b.receive().unwrap();
                if frames.is_empty() {
                    std::thread::yield_now();
                }
                for arrival in frames.iter() {
                    assert_eq!(arrival.frame, body(n), "frame {n}");
                    assert!(arrival.at >= last);
                    last = arrival.at;
                    n += 1;
                }
            }
            assert!(b.receive().unwrap().is_empty());
        });
    }

    /// Builds a frame of a flow, with its number.
    fn frame(flow: u8, number: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12] = 0x08;
        frame[14] = 0x45;
        (frame[33], frame[40]) = (flow, number);
        frame
    }

    #[test]
    fn each_flow_arrives_whole_and_in_order_at_one_queue() {
        let macs = [MacAddr::local(1), MacAddr::local(2)];
        let [mut near, mut far] = queues(macs, 1_500, SystemClock::start(), [2, 3]);
        assert_eq!(far[2].info().queue, Queue { index: 2, count: 3 });
        let mut came: BTreeMap<u8, (usize, Vec<u8>)> = BTreeMap::new();
        for number in 0..50 {
            for (queue, port) in near.iter_mut().enumerate() {
                // Even flows leave through one queue, odd flows through the other.
                let flows: Vec<u8> = (0..64).filter(|flow| flow % 2 == queue as u8).collect();
                flows.iter().enumerate().for_each(|(slot, flow)| port.slots().put(slot, &frame(*flow, number)));
                assert_eq!(port.send(flows.len()).unwrap().accepted as usize, flows.len());
            }
            for (queue, port) in far.iter_mut().enumerate() {
                loop {
                    let frames = port.receive().unwrap();
                    if frames.is_empty() {
                        break;
                    }
                    for arrival in frames.iter() {
                        let (at, numbers) = came.entry(arrival.frame[33]).or_insert((queue, vec![]));
                        assert_eq!(*at, queue);
                        numbers.push(arrival.frame[40]);
                    }
                }
            }
        }
        assert_eq!(came.len(), 64);
        assert!(came.values().all(|(_, numbers)| *numbers == (0..50).collect::<Vec<_>>()));
        let used: std::collections::BTreeSet<_> = came.values().map(|(queue, _)| *queue).collect();
        assert_eq!(used.len(), 3);
        // The reverse direction.
        far[1].slots().put(0, &frame(9, 9));
        far[1].send(1).unwrap();
        assert_eq!(near.iter_mut().map(|port| port.receive().unwrap().len()).sum::<usize>(), 1);
    }

    #[test]
    fn what_finds_no_room_at_a_queue_is_refused_and_no_other() {
        let macs = [MacAddr::local(1), MacAddr::local(2)];
        let [mut near, mut far] = queues(macs, 1_500, SystemClock::start(), [1, 2]);
        let mut expected = VecDeque::new();
        let mut refused = 0;
        for burst in 0..20u8 {
            (0..BURST).for_each(|slot| near[0].slots().put(slot, &frame(slot as u8, burst)));
            let sent = near[0].send(BURST).unwrap();
            assert_eq!((sent.accepted + sent.refused, sent.refused_mask.count_ones()), (BURST as u32, sent.refused));
            let left = (0..BURST).filter(|slot| sent.refused_mask >> slot & 1 == 0);
            expected.extend(left.map(|slot| (slot as u8, burst)));
            refused += sent.refused;
        }
        assert!(refused > 0);
        let mut came = Vec::new();
        for port in &mut far {
            while let Some(frames) = Some(port.receive().unwrap()).filter(|frames| !frames.is_empty()) {
                came.extend(frames.iter().map(|a| (a.frame[33], a.frame[40])));
            }
        }
        came.sort_unstable();
        let mut expected: Vec<_> = expected.into();
        expected.sort_unstable();
        assert_eq!(came, expected);
    }
}
