//! A device between ports in memory, with faults.

use crate::common::{key, signed};
use drophammer_port::memory::MemoryPort;
use drophammer_port::{BURST, Batch, Port, PortCounters, PortError, PortInfo, Received, Sent, info_and_slots};
use drophammer_traffic::Layout;
use drophammer_wire::MacAddr;
use drophammer_wire::signature::{LEN, Signature};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Each fault hits every n-th frame of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub lose: u64,
    pub twice: u64,
    pub astray: u64,
    pub corrupt: u64,
    /// The frame leaves after its successor.
    pub swap: u64,
    /// The frame is sent once more, as a frame of an earlier trial.
    pub stale: u64,
    /// The device sends a frame of its own.
    pub other: u64,
    /// The port refuses the frame; counted over all flows.
    pub refuse: u64,
}

pub const NO: u64 = u64::MAX;
pub const NONE: Faults =
    Faults { lose: NO, twice: NO, astray: NO, corrupt: NO, swap: NO, stale: NO, other: NO, refuse: NO };

/// How a port fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Never,
    /// It fails before the trial starts.
    Gone,
    /// It fails with an error, or a panic, after this many frames.
    After(u64),
    Panic(u64),
}

/// Frames in flight to each queue.
pub type Ways = Arc<Vec<Mutex<VecDeque<Vec<u8>>>>>;

/// A frame from the device itself, or an answer to it.
pub const OTHER: [u8; 40] = [9; 40];

/// A port connected to the device. The ports of a device may be on different threads.
pub struct Wired {
    pub info: PortInfo,
    pub slots: Batch,
    pub faults: Faults,
    pub failure: Failure,
    /// Port that each flow is sent to.
    pub to: Arc<Vec<usize>>,
    pub ways: Ways,
    pub at: usize,
    /// The last hop to the tester: received frames are in the memory of this port.
    pub step: [MemoryPort; 2],
    /// A frame of each flow that waits for its successor.
    pub held: Vec<Option<Vec<u8>>>,
    pub sent: u64,
    /// Frames sent by all ports, for threads that wait for them.
    pub progress: Arc<AtomicU64>,
    pub answers: Arc<AtomicU64>,
    pub layout: Layout,
}

impl Wired {
    fn put_out(&self, to: usize, frame: &[u8]) {
        let mut frame = frame.to_vec();
        // Like a router, the device replaces its own address by the address of the host at the output port.
        if frame != OTHER {
            frame[..6].copy_from_slice(&MacAddr::local(to as u64).0);
        }
        // The queue depends only on the contents of the frame, so copies arrive at the same queue.
        let queues = self.layout.queues_of(to);
        let sum: usize = frame[14..].iter().map(|b| usize::from(*b)).sum();
        let queue = queues.start + sum % queues.len();
        self.ways[queue].lock().unwrap().push_back(frame);
    }

    fn carry(&mut self, mut frame: Vec<u8>) {
        let tail = frame.len() - LEN;
        let signature = Signature::read(frame[tail..].try_into().unwrap()).0;
        let (flow, n) = (signature.flow as usize, u64::from(signature.sequence) + 1);
        let nth = |every: u64| n.is_multiple_of(every);
        let to = (self.to[flow] + usize::from(nth(self.faults.astray))) % self.layout.ports();
        if nth(self.faults.other) {
            self.put_out(to, &OTHER);
        }
        if nth(self.faults.stale) {
            let mut old = signature;
            // One signature in 65,536 is valid in this trial too; another departure time avoids that.
            while Signature::read(&old.emit(key(1))).1 == Signature::read(&old.emit(key(2))).1 {
                old.time = old.time.wrapping_add(1);
            }
            self.put_out(to, &signed(&frame, old, key(1)));
        }
        if nth(self.faults.lose) {
            return;
        }
        if nth(self.faults.corrupt) {
            frame[tail - 1] ^= 4;
        }
        if nth(self.faults.swap) && self.held[flow].is_none() {
            self.held[flow] = Some(frame);
            return;
        }
        self.put_out(to, &frame);
        if nth(self.faults.twice) {
            self.put_out(to, &frame);
        }
        if let Some(late) = self.held[flow].take() {
            self.put_out(self.to[flow], &late);
        }
    }

    fn lost(&self) -> PortError {
        let source = std::io::Error::other("it was told to");
        PortError::Lost { interface: self.info.interface.clone(), source }
    }
}

impl Port for Wired {
    info_and_slots!();

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut sent = Sent::default();
        for i in 0..frames {
            let frame = self.slots.frame(i).to_vec();
            if frame == OTHER {
                self.answers.fetch_add(1, Relaxed);
                continue;
            }
            self.sent += 1;
            self.progress.fetch_add(1, Relaxed);
            match self.failure {
                Failure::After(n) if self.sent > n => return Err(self.lost()),
                Failure::Panic(n) if self.sent > n => panic!("{} was told to", self.info.interface),
                _ => {}
            }
            if self.sent.is_multiple_of(self.faults.refuse) {
                sent.refused += 1;
                sent.refused_mask |= 1 << i;
            } else {
                sent.accepted += 1;
                self.carry(frame);
            }
        }
        Ok(sent)
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let [near, far] = &mut self.step;
        let mut way = self.ways[self.at].lock().unwrap();
        let count = way.len().min(BURST);
        way.drain(..count).enumerate().for_each(|(i, frame)| near.slots().put(i, &frame));
        drop(way);
        // The port has room for four bursts; at most one is borrowed, and one split at the end of its memory.
        assert_eq!(near.send(count)?.refused, 0);
        far.receive()
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        if self.failure == Failure::Gone { Err(self.lost()) } else { Ok(PortCounters::default()) }
    }
}
