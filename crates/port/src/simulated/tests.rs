use super::*;
use crate::{LinkControl, SendAhead};
use drophammer_wire::frame::Frame;
use std::time::Duration;

/// A frame on its way out: the time, the port and the frame.
type Leaving = (Instant, usize, Vec<u8>);

/// Forwards each frame with the delay and through the port that `rule` returns for it. Records all frames that reach
/// it. Frames that start with 1 may be answered.
struct Relay {
    rule: fn(usize, &[u8]) -> (u64, usize),
    reached: Rc<RefCell<Vec<(u64, usize, u8)>>>,
    out: Vec<Leaving>,
}

impl Device for Relay {
    fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
        self.reached.borrow_mut().push((now.0, port, frame[1]));
        let (delay, to) = (self.rule)(port, frame);
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

/// Frames that reached a device.
type ReachedFrames = Rc<RefCell<Vec<(u64, usize, u8)>>>;

/// Creates a device with this rule between two ports, and the list of frames that reach it.
fn world_of(rule: fn(usize, &[u8]) -> (u64, usize)) -> (SimulatedClock, Vec<SimulatedPort>, ReachedFrames) {
    let reached = Rc::default();
    let device = Relay { rule, reached: Rc::clone(&reached), out: Vec::new() };
    let (clock, ports) = world(Box::new(device), &[MacAddr::local(1), MacAddr::local(2)], 1500);
    (clock, ports, reached)
}

/// Forwards every frame to the next port. Its first byte is the delay in ns.
fn relay() -> (SimulatedClock, Vec<SimulatedPort>) {
    let (clock, ports, _) = world_of(|port, frame| (frame[0].into(), port ^ 1));
    (clock, ports)
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
    // The frame that left at 1 is noticed a nanosecond later, but keeps its own time.
    let expected =
        [(2, vec![(1, vec![0, 9])]), (51, vec![(51, vec![50, 9])]), (201, vec![(201, vec![200, 9])]), (1_000, vec![])];
    assert_eq!(seen, expected);
    clock.wait(Instant(5));
    assert_eq!(clock.now(), Instant(1_001), "a deadline that is over still lets time pass");
    assert!(take(&mut ports[0]).is_empty());
}

#[test]
fn frames_sent_ahead_reach_the_device_at_their_instants_and_wait_for_answers_before_them() {
    // Frames that start with 1 return immediately; all others leave 100 ns later without a notice.
    let (mut clock, mut ports, reached) = world_of(|port, f| if f[0] == 1 { (0, port) } else { (100, port ^ 1) });
    assert!(clock.passes() && ports[0].ahead().is_some());
    for (port, frames) in [(0, [[0, 10], [1, 11], [0, 12]]), (1, [[0, 20], [0, 21], [0, 22]])] {
        frames.iter().enumerate().for_each(|(i, f)| ports[port].slots().put(i, f));
    }
    assert_eq!(ports[0].send_at(&[1, 20, 40].map(Instant)).unwrap().accepted, 3);
    assert_eq!(ports[1].send_at(&[10, 20, 30].map(Instant)).unwrap().accepted, 3);
    // The echo of 11 leaves at 20 and is noticed a nanosecond later, before any other frame arrives.
    clock.pass(Instant(1_000));
    assert_eq!(clock.now(), Instant(21));
    assert_eq!(take(&mut ports[0]), [(20, vec![1, 11])]);
    // Another burst is in flight. The frame sent now overtakes it.
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
    // Two batches alternate, and each is written once.
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

/// Keeps the memory of each frame and forwards the frame to the next port 100 ns later. Can request a stop after each frame.
struct Keeper {
    frames: Vec<(Instant, usize, Frame)>,
    together: bool,
}

impl Device for Keeper {
    fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
        let mut copy = Frame::default();
        copy.bytes_mut().extend_from_slice(frame);
        self.frames.push((now + Duration::from_nanos(100), port ^ 1, copy));
    }

    fn poll(&mut self, _: Instant, _: &mut dyn FnMut(Instant, usize, &[u8])) {
        panic!("it hands frames over");
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.frames.first().map(|f| f.0)
    }

    fn next_notice(&self) -> Option<Instant> {
        None
    }

    fn take(&mut self, arrivals: &mut Arrivals<'_>) {
        while let Some(mut frame) = arrivals.next() {
            let memory = std::mem::take(frame.memory());
            self.frames.push((frame.at + Duration::from_nanos(100), frame.port ^ 1, memory));
            if !self.together {
                return;
            }
        }
    }

    fn give(&mut self, now: Instant, deliveries: &mut Deliveries<'_>) {
        let due = self.frames.partition_point(|f| f.0 <= now);
        for (at, port, mut frame) in self.frames.drain(..due) {
            deliveries.hand_over(at, port, &mut frame);
        }
    }
}

#[test]
fn memory_goes_round_and_a_known_body_is_written_once() {
    use crate::Held;
    for together in [true, false] {
        let device = Keeper { frames: Vec::new(), together };
        let (mut clock, mut ports) = world(Box::new(device), &[MacAddr::local(1), MacAddr::local(2)], 1500);
        let (mut held, mut seen) = (Vec::new(), 0);
        for round in 0..20u8 {
            for (slot, len) in [(0, 200), (1, 300), (2, 200)] {
                for port in &mut ports {
                    let (memory, how) = port.slots().slot_of(slot, 1, len as u64, len);
                    if how == Held::Nothing {
                        memory.fill(len as u8);
                    }
                    assert!(memory[64..].iter().all(|b| *b == len as u8));
                    memory[0] = round;
                    held.push(how);
                }
            }
            let at = [5, 5, 7].map(|ns| clock.now() + Duration::from_nanos(ns));
            ports.iter_mut().for_each(|port| assert_eq!(port.send_at(&at).unwrap().accepted, 3));
            let end = clock.now() + Duration::from_nanos(500);
            while clock.now() < end {
                clock.pass(end);
            }
            for port in &mut ports {
                let came = take(port);
                assert_eq!(
                    came.iter().map(|f| (f.0, f.1.len(), f.1[0])).collect::<Vec<_>>(),
                    [(at[0].0 + 100, 200, round), (at[1].0 + 100, 300, round), (at[2].0 + 100, 200, round),]
                );
                seen += came.iter().filter(|f| f.1[64..].iter().all(|b| *b == f.1.len() as u8)).count();
            }
        }
        assert_eq!(seen, 20 * 6);
        // No head is unchanged, and no body is in memory that has never been used.
        assert!(!held.contains(&Held::Frame) && held[..6] == [Held::Nothing; 6]);
        assert!(held.iter().filter(|h| **h == Held::Body).count() > 60, "{held:?}");
    }
}

#[test]
fn a_frame_that_is_handed_over_is_cut_off_like_a_copy_and_lost_where_a_link_is_down() {
    let device = Keeper { frames: Vec::new(), together: true };
    let (mut clock, mut ports) = world(Box::new(device), &[MacAddr::local(1), MacAddr::local(2)], 1500);
    let slot = ports[0].slots().slot_size();
    let mut long = Frame::default();
    long.bytes_mut().resize(slot + 9, 3);
    let world = ports[1].world.clone();
    {
        let World { links, spares, .. } = &mut *world.borrow_mut();
        Deliveries { links, spares }.hand_over(Instant(9), 1, &mut long);
    }
    assert_eq!(take(&mut ports[1]), [(9, vec![3; slot])]);
    ports[0].slots().put(0, &[1, 2]);
    ports[0].send(1).unwrap();
    ports[1].set_link(false).unwrap();
    clock.wait(Instant(1_000));
    assert!(take(&mut ports[1]).is_empty());
}
