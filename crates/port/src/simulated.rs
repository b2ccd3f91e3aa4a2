//! Ports in virtual time: frames go to a device in the same thread, and time jumps from event to event.
//!
//! A device takes and returns frames with their times ([`Device`]). Generator, analyzer, emulated hosts and tests are
//! the same as on real ports; only port and clock differ.

mod link;

pub use link::{Arrivals, Arriving, Deliveries};

use crate::af_packet::slot_size;
use crate::{
    BURST, Batch, Clock, LinkControl, Port, PortCounters, PortError, PortInfo, Queue, Received, SendAhead, Sent,
};
use drophammer_model::quantity::Instant;
use drophammer_model::registry::BackendSpec;
use drophammer_wire::MacAddr;
use link::{Block, Heads, Link, Spares, next_out};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::rc::Rc;

/// This backend.
pub static SPEC: BackendSpec = BackendSpec {
    name: "simulated",
    summary: "virtual time against the reference device; checks the tester, never a router",
};

/// A device in virtual time.
pub trait Device {
    /// A frame (without FCS) reaches the device's port.
    fn receive(&mut self, now: Instant, port: usize, frame: &[u8]);

    /// Runs the device until `now`. Passes every frame that leaves by then to `deliver`, with its port and its time.
    fn poll(&mut self, now: Instant, deliver: &mut dyn FnMut(Instant, usize, &[u8]));

    /// Returns the time of the device's next action.
    fn next_deadline(&self) -> Option<Instant>;

    /// The link of a port goes down or comes up.
    fn link(&mut self, now: Instant, port: usize, up: bool) {
        let _ = (now, port, up);
    }

    /// Like [`Device::next_deadline`], but ignores frames at their output port that nobody will answer. Until the
    /// returned time, it does not matter if the device is polled once or at each event.
    fn next_notice(&self) -> Option<Instant> {
        self.next_deadline()
    }

    /// Takes frames that reach the device's ports, one after the other, like [`Device::receive`]. Must return after a
    /// frame that may have changed [`Device::next_notice`], because later frames may have to wait.
    fn take(&mut self, arrivals: &mut Arrivals<'_>) {
        if let Some(frame) = arrivals.next() {
            self.receive(frame.at, frame.port, frame.frame());
        }
    }

    /// Like [`Device::poll`], but for a device that hands over frames with their memory.
    fn give(&mut self, now: Instant, deliveries: &mut Deliveries<'_>) {
        self.poll(now, &mut |at, port, frame| deliveries.copy(at, port, frame));
    }
}

struct World {
    now: Instant,
    device: Box<dyn Device>,
    /// One link per port and queue.
    links: Vec<Link>,
    heads: Heads,
    spares: Spares,
}

/// Events for which a clock waits.
struct Awaited {
    /// Time of the next event of the device at which to stop.
    event: fn(&dyn Device) -> Option<Instant>,
    /// Number of frames that can reach the device before this is evaluated again.
    frames: usize,
}

/// Every action of the device.
const ANYTHING: Awaited = Awaited { event: |device| device.next_deadline(), frames: 1 };
/// Only frames that may need an answer.
const NOTICE: Awaited = Awaited { event: |device| device.next_notice(), frames: usize::MAX };

impl World {
    fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
        let mut deliveries = Deliveries { links: &mut self.links, spares: &mut self.spares };
        self.device.give(self.now, &mut deliveries);
    }

    /// Delivers the frames that reach the device before `before`: at least one if there is any, and at most `most`.
    fn reach(&mut self, before: Instant, most: usize) {
        let World { now, device, links, heads, .. } = self;
        device.take(&mut Arrivals::new(links, heads, now, before, most));
    }

    /// Runs until `deadline` or until the event, whichever is earlier. At any point in time, the device acts before it
    /// takes arriving frames.
    fn run(&mut self, deadline: Instant, awaited: &Awaited) {
        let deadline = deadline.max(Instant(self.now.0 + 1));
        loop {
            let event = (awaited.event)(&*self.device).map(|e| e.max(Instant(self.now.0 + 1)));
            let stop = event.map_or(deadline, |e| e.min(deadline));
            if next_out(&self.heads) < stop {
                self.reach(stop, awaited.frames);
                continue;
            }
            self.advance(stop);
            let behind = Instant(stop.0.saturating_add(1));
            while next_out(&self.heads) < behind {
                self.reach(behind, usize::MAX);
            }
            return;
        }
    }
}

/// The virtual time, shared with the ports.
pub struct SimulatedClock(Rc<RefCell<World>>);

/// A port of the simulated world.
pub struct SimulatedPort {
    world: Rc<RefCell<World>>,
    /// The device's port at the other end of the link.
    port: usize,
    /// Index of the port's link.
    link: usize,
    info: PortInfo,
    slots: Batch,
    /// True if slots may have no memory.
    drained: bool,
    /// The frames that were last lent.
    lent: Block,
}

/// Creates a world with one tester port per MAC address. Port i is connected to the device's port i.
pub fn world(device: Box<dyn Device>, macs: &[MacAddr], mtu: u32) -> (SimulatedClock, Vec<SimulatedPort>) {
    world_of_queues(device, macs, mtu, 1)
}

/// Like [`world`], but with `queues` queues, at least one, per tester port. There is one port per queue: all queues of
/// port 0 first, then all queues of port 1, and so on. Addresses and ports determine the queue at which a frame
/// arrives.
pub fn world_of_queues(
    device: Box<dyn Device>,
    macs: &[MacAddr],
    mtu: u32,
    queues: u32,
) -> (SimulatedClock, Vec<SimulatedPort>) {
    let (slot, count) = (slot_size(mtu), queues.max(1));
    let of_all = || (0..macs.len()).flat_map(|port| (0..count).map(move |index| (port, Queue { index, count })));
    let links = of_all().map(|(port, queue)| Link::new(port, queue)).collect();
    let (heads, spares) = (Heads::new(), Spares::new(slot));
    let world = Rc::new(RefCell::new(World { now: Instant(1), device, links, heads, spares }));
    let ports = of_all()
        .enumerate()
        .map(|(link, (port, queue))| SimulatedPort {
            world: world.clone(),
            port,
            link,
            // A simulated link has no MTU.
            info: PortInfo {
                queue,
                largest_frame: slot,
                ..PortInfo::new(&format!("sim{port}"), &SPEC, "virtual time", macs[port], mtu)
            },
            slots: Batch::of_frames(BURST, slot),
            drained: true,
            lent: Block::new(),
        })
        .collect();
    (SimulatedClock(world), ports)
}

impl Clock for SimulatedClock {
    fn now(&self) -> Instant {
        self.0.borrow().now
    }

    fn wait(&mut self, deadline: Instant) {
        self.0.borrow_mut().run(deadline, &ANYTHING);
    }

    fn pass(&mut self, deadline: Instant) {
        self.0.borrow_mut().run(deadline, &NOTICE);
    }

    fn passes(&self) -> bool {
        true
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
        // As late as possible, so that the memory was used recently.
        if std::mem::take(&mut self.drained) {
            self.world.borrow_mut().spares.fill(&mut self.slots);
        }
        &mut self.slots
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let frames_up = if world.links[self.link].down { 0 } else { frames };
        for i in 0..frames_up {
            world.device.receive(now, self.port, self.slots.frame(i));
        }
        Ok(Sent { accepted: frames as u32, ..Sent::default() })
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let mut world = self.world.borrow_mut();
        let World { links, spares, .. } = &mut *world;
        links[self.link].lend(&mut self.lent, spares);
        Ok(Received::owned(&self.lent.frames, &self.lent.slots))
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }

    fn link(&mut self) -> Option<&mut dyn LinkControl> {
        Some(self)
    }

    fn ahead(&mut self) -> Option<&mut dyn SendAhead> {
        Some(self)
    }
}

impl SendAhead for SimulatedPort {
    fn send_at(&mut self, at: &[Instant]) -> Result<Sent, PortError> {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        let due = at.iter().take_while(|at| **at <= world.now).count();
        let due_up = if world.links[self.link].down { 0 } else { due };
        for i in 0..due_up {
            world.device.receive(world.now, self.port, self.slots.frame(i));
        }
        if due < at.len() {
            let first = world.links[self.link].send(&mut self.slots, at, due);
            world.heads.extend(first.map(|at| Reverse((at, self.link))));
            self.drained = true;
        }
        Ok(Sent { accepted: at.len() as u32, ..Sent::default() })
    }
}

impl LinkControl for SimulatedPort {
    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let of_port = world.links.iter_mut().filter(|link| link.port == self.port);
        of_port.for_each(|link| link.down = !up);
        world.device.link(now, self.port, up);
        Ok(())
    }

    fn has_carrier(&mut self) -> Result<bool, PortError> {
        Ok(!self.world.borrow().links[self.link].down)
    }
}

#[cfg(test)]
mod tests;
