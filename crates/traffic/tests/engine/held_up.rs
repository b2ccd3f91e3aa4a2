//! A loop in real time that sleeps or is held up, and a wall clock that somebody sets.

use crate::common::*;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Family, Load, TrialResult};
use drophammer_port::{Arrival, Clock, Port, PortCounters, PortError, PortInfo, Received, pass_on};
use drophammer_traffic::{Control, SendFrame};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// When a loop is held up, and for how long.
type Held = Option<(u64, u64)>;

/// A clock that advances by itself, like a real one. It sleeps in every wait, whether frames arrive or not, and may
/// hold the loop up once.
struct Real<'a> {
    inner: RefCell<&'a mut dyn Clock>,
    held: Rc<Cell<Held>>,
    /// When it slept for the first time.
    first_nap: Cell<Option<u64>>,
    wall: Rc<Cell<i128>>,
}

impl Real<'_> {
    fn advance(&self, ns: u64) -> Instant {
        let mut inner = self.inner.borrow_mut();
        let mut until = inner.now() + Duration::from_nanos(ns);
        if let Some((_, by)) = self.held.get().filter(|(at, _)| until.0 >= *at) {
            self.held.set(None);
            until = until + Duration::from_nanos(by);
        }
        while inner.now() < until {
            inner.wait(until);
        }
        inner.now()
    }
}

impl Clock for Real<'_> {
    fn now(&self) -> Instant {
        self.advance(US)
    }
    fn wait(&mut self, deadline: Instant) {
        let now = self.now();
        self.first_nap.set(self.first_nap.get().or(Some(now.0)));
        self.advance(deadline.0.saturating_sub(now.0).min(MS));
    }
    fn wall_offset(&self) -> i128 {
        self.wall.get()
    }
    fn is_virtual(&self) -> bool {
        false
    }
}

/// A port that says whether it stamps arrivals. It may hold the loop up, and set the wall clock when somebody first
/// reads its counters.
struct Told {
    inner: Box<dyn Port>,
    info: PortInfo,
    came: u64,
    /// How long it holds the loop up that reads the last frame.
    held_reading: u64,
    held: Rc<Cell<Held>>,
    set_by: i128,
    set_meanwhile: i128,
    wall: Rc<Cell<i128>>,
}

impl Port for Told {
    pass_on!(inner: slots, send);

    fn info(&self) -> &PortInfo {
        &self.info
    }
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let frames = self.inner.receive()?;
        let before = self.came;
        self.came += frames.len() as u64;
        for (at, by) in [(FRAMES / 4, self.set_meanwhile), (FRAMES * 3 / 4, -self.set_meanwhile)] {
            if before < at && at <= self.came {
                self.wall.set(self.wall.get() + by);
            }
        }
        if self.came == FRAMES && self.held_reading > 0 {
            self.held.set(Some((0, std::mem::take(&mut self.held_reading))));
        }
        Ok(frames)
    }
    fn counters(&mut self) -> Result<PortCounters, PortError> {
        self.wall.set(self.wall.get() + std::mem::take(&mut self.set_by));
        self.inner.counters()
    }
}

const FRAMES: u64 = 500;

/// A trial of [`FRAMES`] frames in 50 ms. The first one leaves after 0.2 ms.
struct Trial {
    /// Time that frames spend in the device.
    flight: u64,
    /// True if the device loses the last frame.
    loses_last: bool,
    /// Whether the ports stamp arrivals.
    stamps: bool,
    held: Held,
    /// How long the loop is held up while it reads the last frame.
    held_reading: u64,
    /// Step of the wall clock before the trial starts.
    set_by: i128,
    /// Step of the wall clock after a quarter of the frames. After three quarters, it is set back.
    set_meanwhile: i128,
}

const TRIAL: Trial =
    Trial { flight: DELAY, loses_last: false, stamps: true, held: None, held_reading: 0, set_by: 0, set_meanwhile: 0 };

impl Trial {
    /// The result, and the time from the last departure until the loop first slept, if it did.
    fn run(self) -> (TrialResult, Option<u64>) {
        let Trial { flight, loses_last, stamps, held, held_reading, set_by, set_meanwhile } = self;
        let last = Rc::new(Cell::new(0));
        let seen = last.clone();
        let mut bench = Bench::new(2, move |f, out| {
            seen.set(f.at.0);
            if f.number < FRAMES || !loses_last {
                out.push(f.on(flight));
            }
        });
        let (held, wall) = (Rc::new(Cell::new(held)), Rc::new(Cell::new(0)));
        let told = |(i, inner): (usize, Box<dyn Port>)| {
            let set_by = if i == 0 { set_by } else { 0 };
            let (held, wall) = (held.clone(), wall.clone());
            let info = PortInfo { stamps_arrivals: stamps, ..inner.info().clone() };
            Box::new(Told { inner, info, came: 0, held_reading, held, set_by, set_meanwhile, wall }) as Box<dyn Port>
        };
        bench.ports = std::mem::take(&mut bench.ports).into_iter().enumerate().map(told).collect();
        let flows = vec![flow("all", 0, 1, Family::Ipv4, 16, 1.0)];
        let plan = bench.plan(&spec("64", flows, Load::Constant { rate_pps: 10_000.0 }, 0.05));
        let inner = RefCell::new(&mut bench.clock as &mut dyn Clock);
        let mut clock = Real { inner, held, first_nap: Cell::new(None), wall };
        let result = drophammer_traffic::run(plan, &mut bench.ports, &mut clock, &mut bench.control).unwrap();
        let nap = clock.first_nap.get().map(|nap| nap - last.get());
        (result, nap)
    }
}

#[test]
fn the_loop_does_not_sleep_before_frames_that_get_the_time_of_their_reading() {
    let in_flight = Trial { flight: 5 * MS, ..TRIAL };
    let (result, nap) = Trial { stamps: false, ..in_flight }.run();
    assert_eq!((result.received(), result.lost()), (FRAMES, 0));
    assert!(nap.is_some_and(|nap| (5 * MS..6 * MS).contains(&nap)), "{nap:?} ns after the last departure");
    // Frames stamped on arrival may wait.
    let (result, nap) = Trial { stamps: true, ..in_flight }.run();
    assert_eq!((result.received(), result.lost()), (FRAMES, 0));
    assert!(nap.is_some_and(|nap| nap < MS), "{nap:?} ns after the last departure");
}

#[test]
fn the_loop_sleeps_at_last_if_a_frame_is_lost() {
    let (result, nap) = Trial { stamps: false, loses_last: true, ..TRIAL }.run();
    assert_eq!((result.received(), result.lost()), (FRAMES - 1, 1));
    assert!(nap.is_some_and(|nap| (20 * MS..21 * MS).contains(&nap)), "{nap:?} ns after the last departure");
}

#[test]
fn a_hold_off_in_the_drain_is_measured_if_it_changes_latencies() {
    // While the last frames are in flight.
    let under_way = Trial { flight: 5 * MS, held: Some((52 * MS, 30 * MS)), ..TRIAL };
    let reading = Trial { flight: 5 * MS, held_reading: 30 * MS, ..TRIAL };
    for held in [under_way, reading] {
        let (result, _) = Trial { stamps: false, ..held }.run();
        assert_eq!(result.received(), FRAMES);
        assert!((30 * MS..31 * MS).contains(&result.health.max_gap_ns), "{:?}", result.health);
        let (result, _) = Trial { stamps: true, ..held }.run();
        assert!(result.health.max_gap_ns < MS, "{:?}", result.health);
    }
}

#[test]
fn a_hold_off_across_the_start_is_measured_from_the_start() {
    let (result, _) = Trial { held: Some((100 * US, 30 * MS)), ..TRIAL }.run();
    let health = &result.health;
    assert!((29 * MS..30 * MS).contains(&health.max_gap_ns), "{health:?}");
    assert_eq!(health.gap_times.iter().map(|gap| gap.from_ns).collect::<Vec<_>>(), [0]);
    // An undisturbed start is not a gap.
    let (result, _) = TRIAL.run();
    assert!(result.health.max_gap_ns < 100 * US && result.health.gap_times.is_empty(), "{:?}", result.health);
}

#[test]
fn a_clock_step_just_before_the_ports_look_at_the_clock_is_reported() {
    let (result, _) = Trial { set_by: 5_000_000, ..TRIAL }.run();
    assert_eq!(result.health.clock_step_ns, 5_000_000);
    assert_eq!(TRIAL.run().0.health.clock_step_ns, 0);
}

#[test]
fn a_clock_that_is_set_forward_and_back_again_is_reported() {
    for step in [5_000_000, -5_000_000] {
        let (result, _) = Trial { set_meanwhile: step, ..TRIAL }.run();
        assert_eq!(i128::from(result.health.clock_step_ns), step);
    }
}

/// Hosts that note, whenever they are polled, how many frames for them have arrived but have not been read.
struct Attentive {
    arrivals: Rc<RefCell<Vec<u64>>>,
    read: usize,
    polls: Vec<(Instant, usize)>,
    /// How long the loop is held up whenever they have read a frame.
    held: Rc<Cell<Held>>,
    by: u64,
}

impl Control for Attentive {
    fn receive(&mut self, _: usize, _: Arrival<'_>) -> Result<(), PortError> {
        self.read += 1;
        if self.by > 0 {
            self.held.set(Some((0, self.by)));
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, _: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        let arrived = self.arrivals.borrow().iter().filter(|at| **at <= now.0).count();
        self.polls.push((now, arrived.saturating_sub(self.read)));
        Ok(now + Duration::from_millis(1))
    }

    fn stop(&self) -> bool {
        false
    }
}

#[test]
fn hosts_get_the_frames_that_waited_during_a_hold_off_before_their_timers() {
    let arrivals = Rc::new(RefCell::new(Vec::new()));
    let noted = arrivals.clone();
    let mut bench = Bench::new(2, move |f, out| {
        out.push(f.on(DELAY));
        // From the first frame on, the device sends one frame for the hosts every 100 us.
        for i in (1..=450).filter(|_| f.number == 1) {
            let at = Instant(f.at.0 + i * 100 * US);
            noted.borrow_mut().push(at.0);
            out.push(Out { at, port: 1, frame: vec![0xff; 60] });
        }
    });
    let flows = vec![flow("all", 0, 1, Family::Ipv4, 16, 1.0)];
    let plan = bench.plan(&spec("64", flows, Load::Constant { rate_pps: 1_000.0 }, 0.05));
    let inner = RefCell::new(&mut bench.clock as &mut dyn Clock);
    // More frames than one pass reads arrive meanwhile.
    let held = Rc::new(Cell::new(Some((5 * MS, 35 * MS))));
    let mut clock = Real { inner, held: held.clone(), first_nap: Cell::new(None), wall: Rc::default() };
    let mut hosts = Attentive { arrivals, read: 0, polls: Vec::new(), held, by: 0 };
    drophammer_traffic::run(plan, &mut bench.ports, &mut clock, &mut hosts).unwrap();
    assert_eq!(hosts.read, 450);
    let unread: Vec<_> = hosts.polls.iter().filter(|(_, unread)| *unread > 0).collect();
    assert!(unread.is_empty(), "{unread:?}");
    let after = hosts.polls.iter().find(|(at, _)| at.0 > 10 * MS).unwrap().0;
    assert!((40 * MS..42 * MS).contains(&after.0), "{after:?}");
}

#[test]
fn hosts_are_polled_although_every_pass_of_the_loop_takes_long_and_brings_frames() {
    let mut bench = Bench::new(2, move |f, out| {
        out.push(f.on(DELAY));
        for i in (1..=400).filter(|_| f.number == 1) {
            out.push(Out { at: Instant(f.at.0 + i * MS), port: 1, frame: vec![0xff; 60] });
        }
    });
    let flows = vec![flow("all", 0, 1, Family::Ipv4, 16, 1.0)];
    let plan = bench.plan(&spec("64", flows, Load::Constant { rate_pps: 1_000.0 }, 0.4));
    let inner = RefCell::new(&mut bench.clock as &mut dyn Clock);
    let held = Rc::new(Cell::new(None));
    let mut clock = Real { inner, held: held.clone(), first_nap: Cell::new(None), wall: Rc::default() };
    let mut hosts = Attentive { arrivals: Rc::default(), read: 0, polls: Vec::new(), held, by: 25 * MS };
    drophammer_traffic::run(plan, &mut bench.ports, &mut clock, &mut hosts).unwrap();
    assert_eq!(hosts.read, 400);
    let longest = hosts.polls.windows(2).map(|pair| pair[1].0.since(pair[0].0)).max().unwrap();
    assert!(longest < Duration::from_millis(80), "{longest:?}");
}
