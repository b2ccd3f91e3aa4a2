//! Runs a planned trial: one loop that sends due frames, takes received ones, and measures its own gaps. A trial on
//! several threads runs several of these loops ([`crate::lanes`]).

use crate::gaps::Watch;
use crate::generator::PortGenerator;
use crate::generator::merge::Merge;
use crate::lane_report::EventReport;
use crate::live::{Board, Requests};
use crate::outcome::merge;
use crate::plan::{Part, Plan, PlannedEvent, QueueIndex, longest_drain};
use crate::traffic::Traffic;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{PortIndex, TrialResult};
use drophammer_port::{Arrival, Clock, Port, PortError};
use std::ops::Range;
use std::time::Duration;

/// Sends one frame that is not a test frame from a port. Returns false if the port has no room for it, and the error of the
/// port if it fails.
pub type SendFrame<'a> = dyn FnMut(PortIndex, &[u8]) -> Result<bool, PortError> + 'a;

/// Handles the frames that are not test frames: the emulated hosts and routers. In a trial on several lanes each lane
/// has one, for its own ports.
pub trait Control {
    /// A frame that is not a test frame arrived at `port`; answers are sent when [`Control::poll`] is called.
    ///
    /// # Errors
    /// Errors of the port.
    fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Result<(), PortError>;

    /// Does what is due at `now` (requests, waiting answers), sends with `send`, and returns when it is to be called
    /// again.
    ///
    /// # Errors
    /// Errors of the port.
    fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError>;

    /// Carries out event number `event` of the trial ([`drophammer_model::trial::TimedEvent`]), which is due at `now`. Its
    /// frames may be sent with `send`, or wait for [`Control::poll`], which is called at once. Every lane is called; returns
    /// whether the event concerns this lane. The default does nothing.
    ///
    /// # Errors
    /// Errors of the port.
    fn event(&mut self, _now: Instant, _event: usize, _send: &mut SendFrame<'_>) -> Result<bool, PortError> {
        Ok(false)
    }

    /// The next link that an event takes down or up; called after each event until it returns `None`. The default returns
    /// `None`.
    fn link(&mut self) -> Option<(PortIndex, bool)> {
        None
    }

    /// True to stop the trial early because the user asked for it. One such lane stops all.
    fn stop(&self) -> bool;
}

/// How long the loop waits for duplicates after the last frame is accounted for.
const QUIET_NS: u64 = 2_000_000;
/// How long the loop does not sleep after the last departure, while frames are awaited at a port that gives them the time
/// of their reading. The latency of a later frame is above this time, of which a nap of the clock is 5 % at most.
const AWAKE_NS: u64 = 20_000_000;
/// Time, in addition to twice the drain, for taking frames that wait at the ports.
const BEHIND_NS: u64 = 60_000_000_000;
/// Bursts taken from one port before the other ports.
const RECEIVE_ROUNDS: usize = 4;

/// A queue of a lane.
pub(crate) struct LanePort<'a> {
    /// Its port, by the port numbers of the trial.
    pub(crate) index: PortIndex,
    /// Its queue, by the numbers of the queues of all ports.
    pub(crate) queue: QueueIndex,
    pub(crate) port: &'a mut dyn Port,
}

/// The generators of one queue.
pub(crate) struct Sender {
    /// Index of the queue among those of the lane.
    place: usize,
    generators: Range<usize>,
    /// With several generators: when each of them is due.
    merge: Option<Merge>,
}

/// True if the time for late frames is over, `since_done_ns` after the last departure. Frames that wait at the ports arrived in time,
/// perhaps while the loop was held up, so they are taken first; but this has a limit, because a device may send for ever.
fn waited_enough(since_done_ns: u64, drain_ns: u64, behind: bool) -> bool {
    since_done_ns >= if behind { drain_ns.saturating_mul(2).saturating_add(BEHIND_NS) } else { drain_ns }
}

/// How long the drain is: `drain_ns` after the last departure. A frame that arrives within it, `arrived_ns` after the last departure,
/// extends it, because more frames may wait in the same queue of the router. A short drain must not turn these into losses.
fn extended(drain_ns: u64, arrived_ns: Option<u64>) -> u64 {
    arrived_ns.unwrap_or(0).saturating_add(drain_ns).min(longest_drain(drain_ns))
}

/// Groups adjacent generators that use the same queue.
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

/// State of a lane's loop between two calls.
#[derive(Default)]
pub(crate) struct LaneState {
    /// For each generator, the index of its queue among the lane's queues.
    places: Vec<usize>,
    /// Generators of each queue that sends, with the index of the queue.
    senders: Vec<Sender>,
    drops_before: u64,
    /// Frames that the tester lost in its own receive path; set when the lane has finished.
    pub(crate) receive_drops: u64,
    pub(crate) watch: Watch,
    /// When the trial started.
    pub(crate) start: Instant,
    /// Events carried out so far; they are the first ones of the plan.
    pub(crate) events: Vec<EventReport>,
    control_due: Instant,
    /// When the last lane finished sending.
    done_at: Option<Instant>,
    /// True if the other lanes have been notified that this one has finished sending.
    announced: bool,
    quiet_since: Option<Instant>,
    /// Frames that had arrived when the loop last looked, and when that number grew last.
    arrived: (u64, Option<Instant>),
    /// Requests that this lane has handled.
    seen: Requests,
    /// True if its part of the trial is over.
    pub(crate) over: bool,
}

fn receive_drops(ports: &mut [LanePort<'_>]) -> Result<u64, PortError> {
    ports.iter_mut().try_fold(0, |sum, at| Ok(sum + at.port.counters()?.receive_drops))
}

impl LaneState {
    /// A finished lane with these counts of the loop itself.
    #[cfg(test)]
    pub(crate) fn through(max_gap_ns: u64, long_gaps_ns: u64, other: u64, receive_drops: u64) -> LaneState {
        let watch = Watch { max_gap_ns, long_gaps_ns, other, ..Watch::default() };
        LaneState { watch, receive_drops, over: true, ..LaneState::default() }
    }

    /// Prepares lane `part` over its `ports`: does all look-ups and allocations.
    pub(crate) fn new(
        part: &mut Part,
        ports: &mut [LanePort<'_>],
        events: usize,
        board: &Board,
    ) -> Result<LaneState, PortError> {
        ports.iter_mut().for_each(|at| at.port.slots().forget());
        let place =
            |queue| ports.iter().position(|at| at.queue == queue).expect("a lane has the queues of its senders");
        let places: Vec<usize> = part.generators.iter().map(|g| place(g.queue())).collect();
        for (generator, place) in part.generators.iter_mut().zip(&places) {
            let port = &mut *ports[*place].port;
            let flows = generator.flow_ids();
            if generator.may_be_in_kernel(port) && board.lend_to_kernel(&flows) {
                generator.prepare_in_kernel(port)?;
                if !generator.is_in_kernel() {
                    board.take_from_kernel(&flows);
                }
            }
        }
        Ok(LaneState {
            places,
            drops_before: receive_drops(ports)?,
            events: Vec::with_capacity(events),
            ..LaneState::default()
        })
    }

    /// Starts the trial at `start`, with the commands that `lane` has received before.
    pub(crate) fn begin(
        &mut self,
        part: &mut Part,
        ports: &mut [LanePort<'_>],
        start: Instant,
        (lane, board): (usize, &Board),
    ) {
        part.begin(start);
        self.start = start;
        self.watch.begin(start);
        for command in board.commands(lane) {
            part.generators.iter_mut().for_each(|generator| generator.transmit(&command, start));
        }
        self.senders = senders(&part.generators, &self.places);
        for (generator, place) in part.generators.iter().zip(&self.places) {
            generator.start_in_kernel(&mut *ports[*place].port);
        }
    }

    /// Runs the lane's part of the trial until `until` at the latest.
    pub(crate) fn drive(
        &mut self,
        part: &mut Part,
        ports: &mut [LanePort<'_>],
        clock: &mut dyn Clock,
        control: &mut dyn Control,
        course: Course<'_>,
    ) -> Result<(), PortError> {
        if self.over {
            return Ok(());
        }
        let through = self.turn(part, ports, clock, control, course);
        if matches!(through, Ok(false)) {
            return Ok(());
        }
        self.over = true;
        self.watch.close(clock.now());
        // However the loop ended, the kernel must not continue to send.
        let mut stopped = Ok(());
        for (generator, place) in part.generators.iter_mut().zip(&self.places) {
            stopped = stopped.and(generator.stop_in_kernel(&mut *ports[*place].port));
        }
        through?;
        stopped?;
        self.receive_drops = receive_drops(ports)? - self.drops_before;
        Ok(())
    }

    /// The loop. Returns true if the trial is over, false if `until` is reached.
    fn turn(
        &mut self,
        part: &mut Part,
        ports: &mut [LanePort<'_>],
        clock: &mut dyn Clock,
        control: &mut dyn Control,
        course: Course<'_>,
    ) -> Result<bool, PortError> {
        let Course { start, until, lane, live, events, drain_ns } = course;
        let LaneState {
            senders,
            watch,
            events: carried_out,
            control_due,
            done_at,
            announced,
            quiet_since,
            arrived,
            seen,
            ..
        } = self;
        let mut events = &events[carried_out.len()..];
        let due = |events: &[PlannedEvent]| events.first().map_or(Instant(u64::MAX), |e| Instant(start.0 + e.at_ns));
        // The next event, or the end of this call.
        let mut wake = due(events).min(until);
        let virtual_time = clock.is_virtual();
        // In this case a burst is handed over at once, each frame with its own departure time, and time advances in one
        // step.
        let ahead = clock.passes()
            && ports.iter_mut().all(|at| at.port.ahead().is_some())
            && senders.iter().all(|s| s.merge.is_none());
        // In virtual time, all frames that have arrived are taken at that instant, however many there are.
        let rounds = if virtual_time { usize::MAX } else { RECEIVE_ROUNDS };
        let at_reading = !virtual_time && ports.iter().any(|at| !at.port.info().stamps_arrivals);
        // In this case the loop does not sleep although everything is sent, because it would make latencies too large.
        let mut awake = false;
        // Requests made between two calls or by an event take effect before anything is sent.
        let mut follow = live.requests() != *seen;

        loop {
            let now = clock.now();
            if now >= start && (done_at.is_none() || awake) && !virtual_time {
                watch.look(now);
            }
            // Events come before the frames that are due at the same instant.
            while now >= wake {
                if now >= until {
                    return Ok(false);
                }
                let from_ns = clock.now().0 - start.0;
                let own = control.event(now, events[0].event, &mut |port, frame| send_frame(ports, port, frame))?;
                while let Some((index, up)) = control.link() {
                    if let Some(at) = ports.iter_mut().find(|at| at.index == index) {
                        drophammer_port::set_link(at.port, up)?;
                    }
                }
                carried_out.push(EventReport { from_ns, to_ns: clock.now().0 - start.0, own });
                events = &events[1..];
                wake = due(events).min(until);
                *control_due = Instant(0);
                follow = true;
            }
            if follow {
                follow = false;
                let requests = live.requests();
                if !requests.is_end() {
                    let before = std::mem::replace(seen, requests);
                    follow_requests(part, ports, senders, now, lane, live, before)?;
                }
            }
            let mut busy = 0;
            let mut next = wake;
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
                let port = &mut *ports[*place].port;
                busy += if ahead { generator.send_ahead(port, now, wake)? } else { generator.send_due(port, now)? };
                if !generator.done(now) {
                    sending = true;
                    if virtual_time {
                        next = next.min(generator.next_event());
                    }
                }
            }
            // Whether frames may still wait at a port after this look.
            let mut behind = false;
            for LanePort { index, queue, port } in ports.iter_mut() {
                for round in 1..=rounds {
                    let frames = port.receive()?;
                    let count = frames.len();
                    behind |= count == drophammer_port::BURST && round == rounds;
                    // The time of reading would hide a silence behind frames that waited at the port.
                    if !at_reading && !virtual_time {
                        watch.arrivals(count, |i| frames.get(i).at);
                    }
                    part.analyzer.take_burst(
                        *queue,
                        count,
                        |i| frames.get(i),
                        |arrival| {
                            watch.other += 1;
                            *control_due = Instant(0);
                            control.receive(*index, arrival)
                        },
                    )?;
                    busy += count;
                    if count < drophammer_port::BURST {
                        break;
                    }
                }
            }
            if now >= *control_due {
                *control_due = control.poll(now, &mut |port, frame| send_frame(ports, port, frame))?;
            }
            if !sending {
                if !*announced {
                    *announced = true;
                    live.done(lane, now, part.generators.iter().map(sent_minus_refused).sum());
                }
                live.received(lane, part.analyzer.distinct());
                *done_at = done_at.or_else(|| live.all_done());
            }
            if let Some(done) = *done_at {
                let accounted = live.accounted();
                let since_done_ns = now.0.saturating_sub(done.0);
                // The drain of all lanes goes on while frames arrive at one of them.
                let distinct = live.distinct();
                if distinct != arrived.0 {
                    *arrived = (distinct, Some(now));
                }
                let drain_ns = extended(drain_ns, arrived.1.map(|at| at.0.saturating_sub(done.0)));
                // Until the pass after the last frame, because a hold-off before that frame was read is noticed there.
                awake = at_reading && quiet_since.is_none() && since_done_ns < AWAKE_NS;
                if accounted {
                    if now.since(*quiet_since.get_or_insert(now)).as_nanos() as u64 >= QUIET_NS {
                        return Ok(true);
                    }
                } else if waited_enough(since_done_ns, drain_ns, behind) {
                    return Ok(true);
                }
                next = next.min(if accounted {
                    now + Duration::from_nanos(QUIET_NS)
                } else {
                    done + Duration::from_nanos(drain_ns)
                });
            }
            if control.stop() {
                live.end();
            }
            let requests = live.requests();
            if requests != *seen {
                let before = std::mem::replace(seen, requests);
                if requests.is_end() {
                    return Ok(true);
                }
                follow_requests(part, ports, senders, now, lane, live, before)?;
                continue;
            }
            if busy == 0 || virtual_time {
                if (done_at.is_none() || awake) && !virtual_time {
                    // A departure or an arrival may be due within a microsecond: look again at once.
                    std::hint::spin_loop();
                } else {
                    let next = next.min((*control_due).max(now + Duration::from_nanos(1)));
                    if sending && ahead { clock.pass(next) } else { clock.wait(next) }
                }
            }
        }
    }
}

/// Carries out the requests since `before`: start or stop of flows, end of sending, counts.
#[cold]
pub(crate) fn follow_requests(
    part: &mut Part,
    ports: &mut [LanePort<'_>],
    senders: &mut [Sender],
    now: Instant,
    lane: usize,
    live: &Board,
    before: Requests,
) -> Result<(), PortError> {
    let requests = live.requests();
    // Commands are behind a lock, which other requests must not wait for.
    let commands = if requests.commands_more_than(before) { live.commands(lane) } else { Vec::new() };
    let ends = requests.is_end_of_sending() && !before.is_end_of_sending();
    if ends || !commands.is_empty() {
        for Sender { place, generators, merge } in senders {
            let generators = &mut part.generators[generators.clone()];
            for generator in generators.iter_mut() {
                commands.iter().for_each(|command| generator.transmit(command, now));
                if ends {
                    generator.end_sending(&mut *ports[*place].port, now)?;
                }
            }
            if let Some(merge) = merge {
                *merge = Merge::new(generators);
            }
        }
    }
    if requests.asks_more_than(before) {
        live.answer(lane, part, now);
    }
    Ok(())
}

/// Parameters of one call of a lane's loop.
#[derive(Clone, Copy)]
pub(crate) struct Course<'a> {
    /// Start of the trial, in the past or the future.
    pub(crate) start: Instant,
    /// The latest end of the call.
    pub(crate) until: Instant,
    /// Number of the lane.
    pub(crate) lane: usize,
    /// What the lanes share.
    pub(crate) live: &'a Board,
    pub(crate) events: &'a [PlannedEvent],
    pub(crate) drain_ns: u64,
}

/// Runs `plan`, which is for one lane, over `ports` on the calling thread; `ports[i]` is queue i of the plan's layout. Returns all
/// measured counts; the caller fills in trial number, elapsed time, validity and DUT load.
///
/// # Errors
/// If a port stopped working.
pub fn run(
    plan: Plan,
    ports: &mut [Box<dyn Port>],
    clock: &mut dyn Clock,
    control: &mut dyn Control,
) -> Result<TrialResult, PortError> {
    let mut traffic = Traffic::new(plan);
    traffic.drive(ports, clock, control, Instant(u64::MAX))?;
    Ok(merge(&traffic.reports()))
}

/// Time from the decision to start to the first departure; in it, frames that waited at the ports from before the trial
/// are taken.
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
