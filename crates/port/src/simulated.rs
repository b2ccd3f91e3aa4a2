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
