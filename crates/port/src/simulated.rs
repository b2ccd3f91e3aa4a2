//! Ports in virtual time: frames go to a device that lives in the same thread, time jumps from event to event.
//!
//! The device is anything that takes frames and instants and gives frames and instants back ([`Device`]). Generator,
//! analyzer, emulated hosts and tests are the ones that run on real ports; only port and clock differ.

use crate::{BURST, Batch, Clock, Port, PortCounters, PortError, PortInfo, Received, Sent};
use drophammer_model::quantity::Instant;
use drophammer_model::registry::BackendSpec;
use drophammer_wire::MacAddr;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// This backend.
pub static SPEC: BackendSpec = BackendSpec {
    name: "simulated",
    summary: "virtual time against the reference device; proves the tester, never a result",
};

/// A device in virtual time.
pub trait Device {
    /// A frame (without FCS) reaches the device's port.
    fn receive(&mut self, now: Instant, port: usize, frame: &[u8]);

    /// Lets the device work until `now`; everything that leaves by then goes to `deliver` with its port and the instant
    /// at which it leaves.
    fn poll(&mut self, now: Instant, deliver: &mut dyn FnMut(Instant, usize, &[u8]));

    /// When it has something to do next.
    fn next_deadline(&self) -> Option<Instant>;
}

/// Slot size: a 9,216-byte frame without FCS.
const SLOT: usize = 9_212;

struct Queue {
    frames: VecDeque<(Instant, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

struct World {
    now: Instant,
    device: Box<dyn Device>,
    queues: Vec<Queue>,
}

impl World {
    fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
        let queues = &mut self.queues;
        self.device.poll(self.now, &mut |at, port, frame| {
            let queue = &mut queues[port];
            let mut copy = queue.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(frame);
            queue.frames.push_back((at, copy));
        });
    }
}

/// Virtual time, shared with the ports.
pub struct SimulatedClock(Rc<RefCell<World>>);

/// A port of the simulated world.
pub struct SimulatedPort {
    world: Rc<RefCell<World>>,
    index: usize,
    info: PortInfo,
    slots: Batch,
    memory: Box<[u8]>,
    arrived: Vec<(usize, Instant)>,
}

/// A world with one tester port per MAC address; port i faces the device's port i.
pub fn world(device: Box<dyn Device>, macs: &[MacAddr], mtu: u32) -> (SimulatedClock, Vec<SimulatedPort>) {
    let queues = macs.iter().map(|_| Queue { frames: VecDeque::new(), spare: Vec::new() }).collect();
    let world = Rc::new(RefCell::new(World { now: Instant(1), device, queues }));
    let ports = macs
        .iter()
        .enumerate()
        .map(|(index, mac)| SimulatedPort {
            world: world.clone(),
            index,
            info: PortInfo {
                interface: format!("sim{index}"),
                backend: SPEC.name,
                driver: "virtual time".into(),
                mac: *mac,
                mtu,
                refusal_is_device_loss: false,
            },
            slots: Batch::new(BURST, SLOT),
            memory: vec![0; BURST * SLOT].into_boxed_slice(),
            arrived: Vec::with_capacity(BURST),
        })
        .collect();
    (SimulatedClock(world), ports)
}

impl Clock for SimulatedClock {
    fn now(&self) -> Instant {
        self.0.borrow().now
    }

    fn wait(&mut self, deadline: Instant) {
        let mut world = self.0.borrow_mut();
        let next = match world.device.next_deadline() {
            Some(event) if event < deadline => event,
            _ => deadline,
        };
        let next = next.max(Instant(world.now.0 + 1));
        world.advance(next);
    }

    fn wall_offset(&self) -> i128 {
        0
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

impl Port for SimulatedPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn slots(&mut self) -> &mut Batch {
        &mut self.slots
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        for i in 0..frames {
            world.device.receive(now, self.index, self.slots.frame(i));
        }
        Ok(Sent { accepted: frames as u32, ..Sent::default() })
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let mut world = self.world.borrow_mut();
        let queue = &mut world.queues[self.index];
        self.arrived.clear();
        while self.arrived.len() < BURST {
            let Some((at, frame)) = queue.frames.pop_front() else { break };
            let start = self.arrived.len() * SLOT;
            let len = frame.len().min(SLOT);
            self.memory[start..start + len].copy_from_slice(&frame[..len]);
            self.arrived.push((len, at));
            queue.spare.push(frame);
        }
        Ok(Received::new(&self.memory, SLOT, &self.arrived))
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Sends everything on to the next port after as many ns as its first byte says.
    #[derive(Default)]
    struct Relay(Vec<(Instant, usize, Vec<u8>)>);

    impl Device for Relay {
        fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
            self.0.push((now + Duration::from_nanos(frame[0].into()), port ^ 1, frame.to_vec()));
            self.0.sort();
        }

        fn poll(&mut self, now: Instant, deliver: &mut dyn FnMut(Instant, usize, &[u8])) {
            while self.0.first().is_some_and(|f| f.0 <= now) {
                let (at, port, frame) = self.0.remove(0);
                deliver(at, port, &frame);
            }
        }

        fn next_deadline(&self) -> Option<Instant> {
            self.0.first().map(|f| f.0)
        }
    }

    fn relay() -> (SimulatedClock, Vec<SimulatedPort>) {
        world(Box::new(Relay::default()), &[MacAddr::local(1), MacAddr::local(2)], 1500)
    }

    fn take(port: &mut SimulatedPort) -> Vec<(u64, Vec<u8>)> {
        port.receive().unwrap().iter().map(|a| (a.at.0, a.frame.to_vec())).collect()
    }

    #[test]
    fn time_jumps_from_event_to_event_and_never_stands_still() {
        let (mut clock, mut ports) = relay();
        assert_eq!((clock.now(), clock.is_virtual(), clock.wall_offset()), (Instant(1), true, 0));
        for (slot, delay) in [200, 50, 0].into_iter().enumerate() {
            ports[0].slots().put(slot, &[delay, 9]);
        }
        assert_eq!(ports[0].send(3).unwrap(), Sent { accepted: 3, refused: 0, refused_mask: 0 });
        assert!(take(&mut ports[1]).is_empty(), "nothing arrives while time stands still");
        let mut seen = Vec::new();
        while clock.now() < Instant(1_000) {
            clock.wait(Instant(1_000));
            seen.push((clock.now().0, take(&mut ports[1])));
        }
        // What departed at 1 is looked at a nanosecond later and keeps its own instant.
        let expected = [
            (2, vec![(1, vec![0, 9])]),
            (51, vec![(51, vec![50, 9])]),
            (201, vec![(201, vec![200, 9])]),
            (1_000, vec![]),
        ];
        assert_eq!(seen, expected);
        clock.wait(Instant(5));
        assert_eq!(clock.now(), Instant(1_001), "a deadline that is over still lets time pass");
        assert!(take(&mut ports[0]).is_empty());
    }

    #[test]
    fn a_burst_of_frames_comes_in_bursts_and_whole() {
        let (mut clock, mut ports) = relay();
        let frame = |i: usize| {
            let mut frame = vec![i as u8; 64 + i];
            frame[0] = 7;
            frame
        };
        for round in 0..3 {
            for i in 0..BURST {
                ports[1].slots().put(i, &frame(round * BURST + i));
            }
            ports[1].send(BURST).unwrap();
        }
        clock.wait(Instant(8));
        let mut all = Vec::new();
        for left in [3, 2, 1, 0] {
            let burst = take(&mut ports[0]);
            assert_eq!(burst.len(), if left > 0 { BURST } else { 0 });
            all.extend(burst);
        }
        let mut expected: Vec<_> = (0..3 * BURST).map(|i| (8, frame(i))).collect();
        expected.sort();
        assert_eq!(all, expected);
        assert_eq!(ports[0].counters().unwrap().receive_drops, 0);
    }
}
