//! Two joined ports in virtual time, for tests. A port needs some time to send a frame, like a machine that is too slow.

use crate::build::Link;
use drophammer_model::Instant;
use drophammer_port::{BURST, Batch, Clock, Filled, Port, PortCounters, PortError, PortInfo, Received, Sent, memory};
use drophammer_rig::{Ports, host_mac};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// What is known of each port.
pub const LINK: Link = Link { mtu: 1_500, largest_frame: 1_522, speed: None, reported: None, is_virtual: true };
const SLOT: usize = 2_048;

/// How long each copy of a frame takes to the other end; none for a lost frame.
pub type Fate = fn(&[u8]) -> Vec<Duration>;

/// How far the wall clock is ahead of the clock of the ports, in ns, at an instant of the latter.
pub type Wall = fn(Instant) -> i128;

/// The fate of frames that nothing happens to.
pub fn at_once(_: &[u8]) -> Vec<Duration> {
    vec![Duration::ZERO]
}

struct Wire {
    now: Instant,
    /// Time that a port needs to send a frame.
    cost: Duration,
    fate: Fate,
    wall: Wall,
    /// Frames on the way to each port.
    waiting: [Vec<(Vec<u8>, Instant)>; 2],
}

type Shared = Rc<RefCell<Wire>>;

struct WireClock(Shared);

impl Clock for WireClock {
    fn now(&self) -> Instant {
        self.0.borrow().now
    }

    fn wait(&mut self, deadline: Instant) {
        let now = &mut self.0.borrow_mut().now;
        *now = deadline.max(Instant(now.0 + 1));
    }

    fn wall_offset(&self) -> i128 {
        let wire = self.0.borrow();
        (wire.wall)(wire.now)
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

struct WirePort {
    wire: Shared,
    end: usize,
    info: PortInfo,
    slots: Batch,
    lent: (Vec<u8>, Vec<Filled>),
}

impl Port for WirePort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn slots(&mut self) -> &mut Batch {
        &mut self.slots
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let Wire { now, cost, fate, waiting, .. } = &mut *self.wire.borrow_mut();
        for slot in 0..frames {
            *now = *now + *cost;
            let frame = self.slots.frame(slot);
            let copies = fate(frame).into_iter().map(|delay| (frame.to_vec(), *now + delay));
            waiting[1 - self.end].extend(copies);
        }
        Ok(Sent { accepted: frames as u32, ..Sent::default() })
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let Wire { now, waiting, .. } = &mut *self.wire.borrow_mut();
        let (memory, filled) = &mut self.lent;
        filled.clear();
        waiting[self.end].retain(|(frame, at)| {
            let stays = *at > *now || filled.len() == BURST;
            if !stays {
                memory[filled.len() * SLOT..][..frame.len()].copy_from_slice(frame);
                filled.push(Filled::new(frame.len(), *at));
            }
            stays
        });
        Ok(Received::new(memory, SLOT, filled))
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }
}

/// Two joined ports that need `cost` to send a frame.
pub fn ports(seed: u64, cost: Duration, fate: Fate) -> Ports {
    ports_by(seed, cost, fate, |_| 0)
}

/// The same, beside a wall clock.
pub fn ports_by(seed: u64, cost: Duration, fate: Fate, wall: Wall) -> Ports {
    let wire = Rc::new(RefCell::new(Wire { now: Instant(1), cost, fate, wall, waiting: Default::default() }));
    let port = |end: usize| {
        let info = PortInfo::new("wire", &memory::SPEC, "none", host_mac(seed, end), 1_500);
        let lent = (vec![0; SLOT * BURST], Vec::new());
        Box::new(WirePort { wire: wire.clone(), end, info, slots: Batch::new(BURST, SLOT), lent }) as Box<dyn Port>
    };
    Ports::One { ports: vec![port(0), port(1)], clock: Box::new(WireClock(wire.clone())) }
}
