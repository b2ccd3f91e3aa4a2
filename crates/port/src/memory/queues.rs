//! Two joined interfaces in memory with several queues each.
//!
//! A ring has one writer and one reader, so there is one ring from each queue to each queue of the other end. Addresses and
//! ports determine the queue at which a frame arrives.

use super::{MemoryPort, pair};
use crate::spread::queue_of;
use crate::{BURST, Batch, Port, PortCounters, PortError, PortInfo, Queue, Received, Sent, SystemClock};
use drophammer_wire::MacAddr;

/// One queue of an end. Different queues may be used by different threads.
pub struct MemoryQueue {
    info: PortInfo,
    slots: Batch,
    /// One port to each queue of the other end.
    ways: Vec<MemoryPort>,
    /// The one of them that is read first at the next call.
    turn: usize,
}

/// The queues, at least one, of two joined interfaces with these addresses, `m0` and `m1`; they behave like those of
/// [`super::pair`]. Frames with the same addresses and ports that are sent by one queue arrive at one queue, in order.
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
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn slots(&mut self) -> &mut Batch {
        &mut self.slots
    }

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
        // If no frame waits, any of them returns none.
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

    /// A frame of a flow, with its number.
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
                // Even flows leave by one queue, odd ones by the other.
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
    fn what_finds_no_room_is_refused_and_no_other() {
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
