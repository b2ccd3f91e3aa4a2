//! Ports in virtual time: frames go to a device that lives in the same thread, time jumps from event to event.
//!
//! The device is anything that takes frames and instants and gives frames and instants back ([`Device`]). Generator,
//! analyzer, emulated hosts and tests are the ones that run on real ports; only port and clock differ.

use crate::af_packet::slot_size;
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

    /// The link of a port goes down or comes up.
    fn link(&mut self, now: Instant, port: usize, up: bool) {
        let _ = (now, port, up);
    }

    /// The same without frames on their way out that nobody answers: until then it makes no difference whether it is
    /// polled at each event or once.
    fn next_notice(&self) -> Option<Instant> {
        self.next_deadline()
    }
}

/// Frames that arrive together at the tester.
struct Block {
    memory: Box<[u8]>,
    slots: Vec<(usize, Instant)>,
}

impl Block {
    fn new(slot: usize) -> Block {
        Block { memory: vec![0; BURST * slot].into_boxed_slice(), slots: Vec::with_capacity(BURST) }
    }
}

/// Frames on their way to the device: the slots from `next` on, each with its instant.
struct Burst {
    slots: Batch,
    at: Vec<Instant>,
    next: usize,
}

/// What is between a tester port and the device. Full and spare ones go round, so nothing is allocated for long.
struct Link {
    /// Bytes of a slot, as of any port of this MTU: frames that lie close together stay in the cache.
    slot: usize,
    out: VecDeque<Burst>,
    out_spare: Vec<Burst>,
    back: VecDeque<Block>,
    back_spare: Vec<Block>,
    down: bool,
}

impl Link {
    fn new(slot: usize) -> Link {
        let (out, out_spare, back, back_spare) = (VecDeque::new(), Vec::new(), VecDeque::new(), Vec::new());
        Link { slot, out, out_spare, back, back_spare, down: false }
    }

    fn deliver(&mut self, at: Instant, frame: &[u8]) {
        if self.down {
            return;
        }
        if self.back.back().is_none_or(|b| b.slots.len() == BURST) {
            self.back.push_back(self.back_spare.pop().unwrap_or_else(|| Block::new(self.slot)));
        }
        let Some(block) = self.back.back_mut() else { return };
        let start = block.slots.len() * self.slot;
        let len = frame.len().min(self.slot);
        block.memory[start..start + len].copy_from_slice(&frame[..len]);
        block.slots.push((len, at));
    }

    fn next_out(&self) -> Option<Instant> {
        self.out.front().map(|b| b.at[b.next])
    }
}

struct World {
    now: Instant,
    device: Box<dyn Device>,
    links: Vec<Link>,
}

impl World {
    fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
        let links = &mut self.links;
        self.device.poll(self.now, &mut |at, port, frame| links[port].deliver(at, frame));
    }

    /// When the next frame under way reaches the device, and by which port: the first one of those at the same instant.
    fn next_out(&self) -> Option<(Instant, usize)> {
        let mut first: Option<(Instant, usize)> = None;
        for (port, link) in self.links.iter().enumerate() {
            if let Some(at) = link.next_out()
                && first.is_none_or(|(before, _)| at < before)
            {
                first = Some((at, port));
            }
        }
        first
    }

    /// The next frame under way on `port` reaches the device.
    fn reach(&mut self, port: usize) {
        let link = &mut self.links[port];
        let Some(burst) = link.out.front_mut() else { return };
        self.now = self.now.max(burst.at[burst.next]);
        if !link.down {
            self.device.receive(self.now, port, burst.slots.frame(burst.next));
        }
        burst.next += 1;
        if burst.next == burst.at.len() {
            link.out_spare.extend(link.out.pop_front());
        }
    }

    /// Runs until `deadline`, or the event that `event` tells if that is before. At an instant the device works first, then
    /// takes what reaches it.
    fn run(&mut self, deadline: Instant, event: fn(&dyn Device) -> Option<Instant>) {
        let deadline = deadline.max(Instant(self.now.0 + 1));
        loop {
            let event = event(&*self.device).map(|e| e.max(Instant(self.now.0 + 1)));
            let stop = event.map_or(deadline, |e| e.min(deadline));
            match self.next_out() {
                Some((at, port)) if at < stop => self.reach(port),
                _ => {
                    self.advance(stop);
                    while let Some((at, port)) = self.next_out()
                        && at <= stop
                    {
                        self.reach(port);
                    }
                    return;
                }
            }
        }
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
    /// What was lent last.
    lent: Block,
}

/// A world with one tester port per MAC address; port i faces the device's port i.
pub fn world(device: Box<dyn Device>, macs: &[MacAddr], mtu: u32) -> (SimulatedClock, Vec<SimulatedPort>) {
    let slot = slot_size(mtu);
    let links = macs.iter().map(|_| Link::new(slot)).collect();
    let world = Rc::new(RefCell::new(World { now: Instant(1), device, links }));
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
            slots: Batch::new(BURST, slot),
            lent: Block::new(slot),
        })
        .collect();
    (SimulatedClock(world), ports)
}

impl Clock for SimulatedClock {
    fn now(&self) -> Instant {
        self.0.borrow().now
    }

    fn wait(&mut self, deadline: Instant) {
        self.0.borrow_mut().run(deadline, |device| device.next_deadline());
    }

    fn pass(&mut self, deadline: Instant) {
        self.0.borrow_mut().run(deadline, |device| device.next_notice());
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
        &mut self.slots
    }

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let frames_up = if world.links[self.index].down { 0 } else { frames };
        for i in 0..frames_up {
            world.device.receive(now, self.index, self.slots.frame(i));
        }
        Ok(Sent { accepted: frames as u32, ..Sent::default() })
    }

    fn sends_ahead(&self) -> bool {
        true
    }

    fn send_at(&mut self, at: &[Instant]) -> Result<Sent, PortError> {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        let due = at.iter().take_while(|at| **at <= world.now).count();
        let due_up = if world.links[self.index].down { 0 } else { due };
        for i in 0..due_up {
            world.device.receive(world.now, self.index, self.slots.frame(i));
        }
        if due < at.len() {
            let link = &mut world.links[self.index];
            let spare = link.out_spare.pop();
            let mut burst = spare.unwrap_or_else(|| Burst {
                slots: Batch::new(BURST, link.slot),
                at: Vec::with_capacity(BURST),
                next: 0,
            });
            burst.slots.follow(&self.slots);
            std::mem::swap(&mut burst.slots, &mut self.slots);
            burst.at.clear();
            burst.at.extend_from_slice(at);
            burst.next = due;
            link.out.push_back(burst);
        }
        Ok(Sent { accepted: at.len() as u32, ..Sent::default() })
    }

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let mut world = self.world.borrow_mut();
        let link = &mut world.links[self.index];
        self.lent.slots.clear();
        if let Some(block) = link.back.pop_front() {
            link.back_spare.push(std::mem::replace(&mut self.lent, block));
        }
        Ok(Received::new(&self.lent.memory, self.slots.slot_size(), &self.lent.slots))
    }

    fn counters(&mut self) -> Result<PortCounters, PortError> {
        Ok(PortCounters::default())
    }

    fn set_link(&mut self, up: bool) -> Result<(), PortError> {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        world.links[self.index].down = !up;
        world.device.link(now, self.index, up);
        Ok(())
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
    fn nothing_passes_a_link_that_is_down() {
        let (mut clock, mut ports) = relay();
        let send = |ports: &mut Vec<SimulatedPort>, frame: u8| {
            ports[0].slots().put(0, &[0, frame]);
            assert_eq!(ports[0].send(1).unwrap().accepted, 1);
        };
        for (down, arrives) in [(None, true), (Some(0), false), (None, true), (Some(1), false)] {
            if let Some(port) = down {
                ports[port].set_link(false).unwrap();
            }
            send(&mut ports, 7);
            clock.wait(Instant(clock.now().0 + 100));
            assert_eq!(take(&mut ports[1]).len(), usize::from(arrives));
            if let Some(port) = down {
                ports[port].set_link(true).unwrap();
            }
        }
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

    /// Sends back at once what begins with 1, which somebody may answer; the rest goes on 100 ns later and is not worth a
    /// notice. Keeps what reached it.
    #[derive(Default)]
    struct Echo {
        reached: Rc<RefCell<Vec<(u64, usize, u8)>>>,
        out: Vec<(Instant, usize, Vec<u8>)>,
    }

    impl Device for Echo {
        fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
            self.reached.borrow_mut().push((now.0, port, frame[1]));
            let (delay, to) = if frame[0] == 1 { (0, port) } else { (100, port ^ 1) };
            self.out.push((now + Duration::from_nanos(delay), to, frame.to_vec()));
            self.out.sort();
        }

        fn poll(&mut self, now: Instant, deliver: &mut dyn FnMut(Instant, usize, &[u8])) {
            while self.out.first().is_some_and(|f| f.0 <= now) {
                let (at, port, frame) = self.out.remove(0);
                deliver(at, port, &frame);
            }
        }

        fn next_deadline(&self) -> Option<Instant> {
            self.out.first().map(|f| f.0)
        }

        fn next_notice(&self) -> Option<Instant> {
            self.out.iter().filter(|f| f.2[0] == 1).map(|f| f.0).min()
        }
    }

    #[test]
    fn frames_sent_ahead_reach_the_device_at_their_instants_and_wait_for_answers_before_them() {
        let reached = Rc::default();
        let device = Echo { reached: Rc::clone(&reached), out: Vec::new() };
        let (mut clock, mut ports) = world(Box::new(device), &[MacAddr::local(1), MacAddr::local(2)], 1500);
        assert!(clock.passes() && ports[0].sends_ahead());
        for (port, frames) in [(0, [[0, 10], [1, 11], [0, 12]]), (1, [[0, 20], [0, 21], [0, 22]])] {
            frames.iter().enumerate().for_each(|(i, f)| ports[port].slots().put(i, f));
        }
        assert_eq!(ports[0].send_at(&[1, 20, 40].map(Instant)).unwrap().accepted, 3);
        assert_eq!(ports[1].send_at(&[10, 20, 30].map(Instant)).unwrap().accepted, 3);
        // The echo of 11 leaves at 20 and is looked at a nanosecond later, before anything else arrives.
        clock.pass(Instant(1_000));
        assert_eq!(clock.now(), Instant(21));
        assert_eq!(take(&mut ports[0]), [(20, vec![1, 11])]);
        // A burst of its own is on its way; what is sent now overtakes it.
        ports[0].slots().put(0, &[0, 13]);
        ports[0].send(1).unwrap();
        clock.pass(Instant(1_000));
        assert_eq!((clock.now(), ports[0].send_at(&[]).unwrap().accepted), (Instant(1_000), 0));
        let expected = [(1, 0, 10), (10, 1, 20), (20, 0, 11), (20, 1, 21), (21, 0, 13), (30, 1, 22), (40, 0, 12)];
        assert_eq!(*reached.borrow(), expected);
        assert_eq!(take(&mut ports[1]), [(101, vec![0, 10]), (121, vec![0, 13]), (140, vec![0, 12])]);
        assert_eq!(take(&mut ports[0]), [(110, vec![0, 20]), (120, vec![0, 21]), (130, vec![0, 22])]);
    }

    #[test]
    fn a_batch_that_comes_back_has_forgotten_what_the_port_forgot() {
        let (mut clock, mut ports) = relay();
        let tagged = |port: &mut SimulatedPort| {
            let (slot, same) = port.slots().slot(0, 7, 2);
            slot.copy_from_slice(&[0, 0]);
            same
        };
        let round = |ports: &mut Vec<SimulatedPort>, clock: &mut SimulatedClock| {
            let same = tagged(&mut ports[0]);
            let at = clock.now() + Duration::from_nanos(5);
            ports[0].send_at(&[at]).unwrap();
            while clock.now() < at {
                clock.pass(at);
            }
            same
        };
        // Two batches go round: each is written once.
        assert_eq!([0; 4].map(|_| round(&mut ports, &mut clock)), [false, false, true, true]);
        ports[0].slots().forget();
        assert_eq!([0; 4].map(|_| round(&mut ports, &mut clock)), [false, false, true, true]);
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
