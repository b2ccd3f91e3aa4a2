//! Runs a planned trial: one loop that sends what is due, takes what came, and keeps watch over itself. A trial on several
//! threads is several of these loops ([`crate::lanes`]).

use crate::generator::PortGenerator;
use crate::generator::merge::Merge;
use crate::lanes::Board;
use crate::outcome::result;
use crate::plan::{Part, Plan, PlannedEvent};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{PortIndex, TrialResult};
use drophammer_port::{Arrival, Clock, Port, PortError};
use std::ops::Range;
use std::time::Duration;

/// Sends one frame that is not test traffic from a port, and fails as the port does. False when the port had no room for it.
pub type SendFrame<'a> = dyn FnMut(PortIndex, &[u8]) -> Result<bool, PortError> + 'a;

/// Whoever owns the frames that are not test traffic: the emulated hosts and routers. Of a trial on several lanes each lane
/// has one, for its own ports.
pub trait Control {
    /// A frame that is not test traffic came in at `port`; answers are sent when [`Control::poll`] is called.
    ///
    /// # Errors
    /// The port's.
    fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Result<(), PortError>;

    /// Does what is due at `now` (requests, answers that wait), by `send`, and returns when it wants to be called again.
    ///
    /// # Errors
    /// The port's.
    fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError>;

    /// Carries out event number `event` of the trial ([`drophammer_model::trial::TimedEvent`]), which is due at `now`; what it
    /// has to send may go by `send`, or wait for [`Control::poll`], which is called at once. Returns whether it was its
    /// business: of several lanes every one is told. Does nothing unless it is defined.
    ///
    /// # Errors
    /// The port's.
    fn event(&mut self, _now: Instant, _event: usize, _send: &mut SendFrame<'_>) -> Result<bool, PortError> {
        Ok(false)
    }

    /// A link that an event takes down or up: asked for after each event until there is none more. Does nothing unless it is
    /// defined.
    fn link(&mut self) -> Option<(PortIndex, bool)> {
        None
    }

    /// True when the trial is to stop early: the user asked for it. One lane that is told so stops all.
    fn stop(&self) -> bool;
}

/// A gap of the loop that is worth noting.
const LONG_GAP_NS: u64 = 1_000_000;
/// After the last frame is accounted for, duplicates may still come for this long.
const QUIET_NS: u64 = 2_000_000;
/// Bursts taken from one port before the others have their turn.
const RECEIVE_ROUNDS: usize = 4;

/// Watches the loop itself.
#[derive(Default)]
struct Watch {
    last: Option<Instant>,
    max_gap_ns: u64,
    long_gaps_ns: u64,
    other: u64,
}

impl Watch {
    #[inline]
    fn look(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let gap = now.0 - last.0.min(now.0);
            self.max_gap_ns = self.max_gap_ns.max(gap);
            if gap > LONG_GAP_NS {
                self.long_gaps_ns += gap;
            }
        }
        self.last = Some(now);
    }
}

/// How a lane fared.
pub(crate) struct Fared {
    /// Longest time between two looks of the loop, in ns, and the sum of those above 1 ms.
    pub(crate) max_gap_ns: u64,
    pub(crate) long_gaps_ns: u64,
    /// Frames that are not test traffic.
    pub(crate) other: u64,
    /// Frames that the tester lost in its own receive path.
    pub(crate) receive_drops: u64,
    /// Events that it was told, the first ones of the plan.
    pub(crate) events: Vec<Told>,
}

/// An event as a lane was told it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// When that began and ended, in ns after the start.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// Was it its business?
    pub(crate) own: bool,
}

/// A port of a lane.
pub(crate) struct LanePort<'a> {
    /// Which of the trial's.
    pub(crate) index: PortIndex,
    pub(crate) port: &'a mut dyn Port,
}

/// The generators of one port.
struct Sender {
    /// Place of the port among those of the lane.
    place: usize,
    generators: Range<usize>,
    /// Where it has more than one: which is due when.
    merge: Option<Merge>,
}

/// Generators that follow each other and are of the same port.
fn senders(generators: &[PortGenerator], places: &[usize]) -> Vec<Sender> {
    let mut senders: Vec<Sender> = Vec::new();
    for (i, place) in places.iter().enumerate() {
        match senders.last_mut() {
            Some(last) if last.place == *place => last.generators.end = i + 1,
            _ => senders.push(Sender { place: *place, generators: i..i + 1, merge: None }),
        }
    }
    for sender in senders.iter_mut().filter(|s| s.generators.len() > 1) {
        sender.merge = Some(Merge::new(&generators[sender.generators.clone()]));
    }
    senders
}

/// A lane before its trial starts: everything that has to be looked up or allocated is.
pub(crate) struct Ready<'a, 'p> {
    part: &'a mut Part,
    ports: &'a mut [LanePort<'p>],
    /// Place among `ports` of the port of each generator.
    places: Vec<usize>,
    /// Generators of each port that sends, with the place of the port.
    senders: Vec<Sender>,
    drops_before: u64,
    events: &'a [PlannedEvent],
    told: Vec<Told>,
    drain_ns: u64,
}

fn receive_drops(ports: &mut [LanePort<'_>]) -> Result<u64, PortError> {
    ports.iter_mut().try_fold(0, |sum, at| Ok(sum + at.port.counters()?.receive_drops))
}

impl<'a, 'p> Ready<'a, 'p> {
    /// Makes lane `part` over its `ports` ready.
    pub(crate) fn new(
        part: &'a mut Part,
        ports: &'a mut [LanePort<'p>],
        events: &'a [PlannedEvent],
        drain_ns: u64,
    ) -> Result<Ready<'a, 'p>, PortError> {
        ports.iter_mut().for_each(|at| at.port.slots().forget());
        let place = |port| ports.iter().position(|at| at.index == port).expect("a lane has the ports of its senders");
        let places: Vec<usize> = part.generators.iter().map(|g| place(g.port())).collect();
        for (generator, place) in part.generators.iter_mut().zip(&places) {
            generator.prepare_in_kernel(&mut *ports[*place].port)?;
        }
        let drops_before = receive_drops(ports)?;
        let told = Vec::with_capacity(events.len());
        Ok(Ready { part, ports, places, senders: Vec::new(), drops_before, events, told, drain_ns })
    }

    /// Carries the lane's part of the trial out. `board` is how the lanes (this is number `lane`) see each other.
    pub(crate) fn run(
        mut self,
        start: Instant,
        clock: &mut dyn Clock,
        control: &mut dyn Control,
        lane: usize,
        board: &Board,
    ) -> Result<Fared, PortError> {
        self.part.begin(start);
        self.senders = senders(&self.part.generators, &self.places);
        for (generator, place) in self.part.generators.iter().zip(&self.places) {
            generator.start_in_kernel(&mut *self.ports[*place].port);
        }
        let watched = self.turn(start, clock, control, lane, board);
        // Whatever ended the loop, nothing goes on sending behind its back.
        let mut stopped = Ok(());
        for (generator, place) in self.part.generators.iter_mut().zip(&self.places) {
            stopped = stopped.and(generator.stop_in_kernel(&mut *self.ports[*place].port));
        }
        let watch = watched?;
        stopped?;
        Ok(Fared {
            max_gap_ns: watch.max_gap_ns,
            long_gaps_ns: watch.long_gaps_ns,
            other: watch.other,
            receive_drops: receive_drops(self.ports)? - self.drops_before,
            events: self.told,
        })
    }

    /// The loop, until the trial is over.
    fn turn(
        &mut self,
        start: Instant,
        clock: &mut dyn Clock,
        control: &mut dyn Control,
        lane: usize,
        board: &Board,
    ) -> Result<Watch, PortError> {
        let Ready { part, ports, senders, events, told: events_told, drain_ns, .. } = self;
        let drain_ns = *drain_ns;
        let mut watch = Watch::default();
        let mut control_due = Instant(0);
        // When the last lane had nothing more to send.
        let mut done_at: Option<Instant> = None;
        let mut told = false;
        let mut quiet_since: Option<Instant> = None;
        let due = |events: &[PlannedEvent]| events.first().map_or(Instant(u64::MAX), |e| Instant(start.0 + e.at_ns));
        let mut event_due = due(events);
        let virtual_time = clock.is_virtual();
        // Then a burst is handed over at once, each frame with its own instant, and time passes in one go.
        let ahead =
            clock.passes() && ports.iter().all(|at| at.port.sends_ahead()) && senders.iter().all(|s| s.merge.is_none());
        // What came in by an instant of virtual time is taken at that instant, however much it is.
        let rounds = if virtual_time { usize::MAX } else { RECEIVE_ROUNDS };

        loop {
            let now = clock.now();
            if now >= start && done_at.is_none() && !virtual_time {
                watch.look(now);
            }
            // Before the frames that are due at the same instant.
            while now >= event_due {
                let from_ns = clock.now().0 - start.0;
                let own = control.event(now, events[0].event, &mut |port, frame| send_frame(ports, port, frame))?;
                while let Some((index, up)) = control.link() {
                    if let Some(at) = ports.iter_mut().find(|at| at.index == index) {
                        at.port.set_link(up)?;
                    }
                }
                events_told.push(Told { from_ns, to_ns: clock.now().0 - start.0, own });
                *events = &events[1..];
                event_due = due(events);
                control_due = Instant(0);
            }
            let mut busy = 0;
            let mut next = event_due;
            let mut sending = !events.is_empty();
            for Sender { place, generators, merge } in senders.iter_mut() {
                let port = &mut *ports[*place].port;
                if let Some(merge) = merge {
                    let generators = &mut part.generators[generators.clone()];
                    busy += merge.send_due(generators, port, now)?;
                    if let Some(due) = merge.next() {
                        sending = true;
                        next = next.min(due);
                    }
                    continue;
                }
                let generator = &mut part.generators[generators.start];
                if generator.done(now) {
                    continue;
                }
                busy +=
                    if ahead { generator.send_ahead(port, now, event_due)? } else { generator.send_due(port, now)? };
                if !generator.done(now) {
                    sending = true;
                    if virtual_time {
                        next = next.min(generator.next_event());
                    }
                }
            }
            for LanePort { index, port } in ports.iter_mut() {
                for _ in 0..rounds {
                    let frames = port.receive()?;
                    let count = frames.len();
                    part.analyzer.take_burst(
                        *index,
                        count,
                        |i| frames.get(i),
                        |arrival| {
                            watch.other += 1;
                            control_due = Instant(0);
                            control.receive(*index, arrival)
                        },
                    )?;
                    busy += count;
                    if count < drophammer_port::BURST {
                        break;
                    }
                }
            }
            if now >= control_due {
                control_due = control.poll(now, &mut |port, frame| send_frame(ports, port, frame))?;
            }
            if !sending {
                if !told {
                    told = true;
                    board.done(lane, now, part.generators.iter().map(sent_minus_refused).sum());
                }
                board.received(lane, part.analyzer.distinct());
                done_at = done_at.or_else(|| board.all_done());
            }
            if let Some(done) = done_at {
                let accounted = board.accounted();
                if accounted {
                    if now.since(*quiet_since.get_or_insert(now)).as_nanos() as u64 >= QUIET_NS {
                        break;
                    }
                } else if now.0.saturating_sub(done.0) >= drain_ns {
                    break;
                }
                next = next.min(if accounted {
                    now + Duration::from_nanos(QUIET_NS)
                } else {
                    done + Duration::from_nanos(drain_ns)
                });
            }
            if control.stop() {
                board.end();
            }
            if board.ended() {
                break;
            }
            if busy == 0 || virtual_time {
                if done_at.is_none() && !virtual_time {
                    // A departure or an arrival may be due within a microsecond: look again at once.
                    std::hint::spin_loop();
                } else {
                    let next = next.min(control_due.max(now + Duration::from_nanos(1)));
                    if sending && ahead { clock.pass(next) } else { clock.wait(next) }
                }
            }
        }

        Ok(watch)
    }
}

/// Runs `plan`, which is for one lane, over `ports` on the calling thread; `ports[i]` is port i of the plan. Returns the
/// counts with everything measured filled in except trial number, elapsed time, validity and DUT load, which are the
/// caller's.
///
/// # Errors
/// A port that stopped working.
pub fn run(
    mut plan: Plan,
    ports: &mut [Box<dyn Port>],
    clock: &mut dyn Clock,
    control: &mut dyn Control,
) -> Result<TrialResult, PortError> {
    assert_eq!(plan.parts.len(), 1, "a plan for several lanes is run by run_lanes");
    let mut ports: Vec<LanePort<'_>> =
        ports.iter_mut().enumerate().map(|(index, port)| LanePort { index, port: port.as_mut() }).collect();
    let ready = Ready::new(&mut plan.parts[0], &mut ports, &plan.events, plan.drain_ns)?;
    let board = Board::new(1);
    let wall_before = clock.wall_offset();
    let start = clock.now() + lead(clock);
    let fared = ready.run(start, clock, control, 0, &board)?;
    let step = clock.wall_offset() - wall_before;
    Ok(result(&mut plan, &[fared], i64::try_from(step).unwrap_or(i64::MAX)))
}

/// Time from the decision to start until the first departure: frames that wait from before the trial are taken before.
pub(crate) fn lead(clock: &dyn Clock) -> Duration {
    Duration::from_micros(if clock.is_virtual() { 1 } else { 200 })
}

fn send_frame(ports: &mut [LanePort<'_>], port: PortIndex, frame: &[u8]) -> Result<bool, PortError> {
    let Some(at) = ports.iter_mut().find(|at| at.index == port) else { return Ok(true) };
    at.port.slots().put(0, frame);
    at.port.send(1).map(|sent| sent.refused == 0)
}

fn sent_minus_refused(generator: &crate::generator::PortGenerator) -> u64 {
    generator.groups().iter().map(|g| g.offered - g.refused).sum()
}
