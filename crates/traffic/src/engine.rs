//! Runs a planned trial in a loop that sends due frames, takes received frames, and measures how long it was held up. A
//! trial on several threads runs one loop per thread ([`crate::lanes`]).

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
use drophammer_port::{Arrival, BURST, Clock, Port, PortError};
use std::ops::Range;
use std::time::Duration;

/// Sends a frame other than a test frame from a port. Returns false if the port has no room.
pub type SendFrame<'a> = dyn FnMut(PortIndex, &[u8]) -> Result<bool, PortError> + 'a;

/// Handles all frames other than test frames: the emulated hosts and routers. Each lane of a trial has one for its own ports.
pub trait Control {
    /// A frame other than a test frame arrived at `port`. Answers are sent when [`Control::poll`] is called.
    ///
    /// # Errors
    /// Errors of the port.
    fn receive(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Result<(), PortError>;

    /// Does the work that is due at `now` (requests, waiting answers), sends with `send`, and returns when to call it again. After the loop
    /// was held up, the frames that arrived meanwhile come first, so that no timer expires because of frames that waited to be read.
    ///
    /// # Errors
    /// Errors of the port.
    fn poll(&mut self, now: Instant, send: &mut SendFrame<'_>) -> Result<Instant, PortError>;

    /// Performs event number `event` of the trial ([`drophammer_model::trial::TimedEvent`]), which is due at `now`. It
    /// can send frames with `send`, or leave them to [`Control::poll`], which is called immediately afterwards. Every
    /// lane gets the call. Returns true if the event concerns this lane. The default does nothing.
    ///
    /// # Errors
    /// Errors of the port.
    fn event(&mut self, _now: Instant, _event: usize, _send: &mut SendFrame<'_>) -> Result<bool, PortError> {
        Ok(false)
    }

    /// Returns the next link that an event takes down or up. Called after each event until it returns `None`.
    fn link(&mut self) -> Option<(PortIndex, bool)> {
        None
    }

    /// True if the user has asked to stop the trial. One lane stops all of them.
    fn stop(&self) -> bool;
}

/// How long the loop waits for duplicates after the last frame is accounted for.
const QUIET_NS: u64 = 2_000_000;
/// How long the loop stays awake after the last departure if a port stamps frames when they are read, not when they
/// arrive. Frames that arrive later have a latency above this time, and a nap adds at most 5 %.
const AWAKE_NS: u64 = 20_000_000;
/// Time limit, in addition to twice the drain, for taking frames that wait at the ports.
const BEHIND_NS: u64 = 60_000_000_000;
/// How long before its start the loop is awake. A thread that sleeps may be woken late on a busy machine.
const SETTLED: Duration = Duration::from_millis(20);
/// A loop that was away for this long first reads what has arrived meanwhile, for at most [`CATCH_UP`], before it polls the control.
const HELD_UP: Duration = Duration::from_millis(20);
const CATCH_UP: Duration = Duration::from_millis(20);
/// How often the first lane reads the wall clock. A clock that was set forward and back again looks right at the end.
const WALL_PERIOD: Duration = Duration::from_millis(20);
/// Number of bursts taken from one port before the next port has its turn.
const RECEIVE_ROUNDS: usize = 4;

/// A queue of a lane.
pub(crate) struct LanePort<'a> {
    /// Index of the port in the trial.
    pub(crate) index: PortIndex,
    /// Index of the queue, counted over all ports.
    pub(crate) queue: QueueIndex,
    pub(crate) port: &'a mut dyn Port,
}

/// The generators of one queue.
pub(crate) struct Sender {
    /// Index of the queue within the lane.
    place: usize,
    generators: Range<usize>,
    /// Due times of the generators, if there are several.
    merge: Option<Merge>,
}

/// True if the time for late frames is over, `since_done_ns` after the last departure. Frames that are still waiting at
/// a port (`behind`) arrived in time, perhaps while the loop was held up. So the loop takes them first, up to a limit,
/// because a device may send forever.
fn waited_enough(since_done_ns: u64, drain_ns: u64, behind: bool) -> bool {
    since_done_ns >= if behind { drain_ns.saturating_mul(2).saturating_add(BEHIND_NS) } else { drain_ns }
}

/// Returns the length of the drain after the last departure: `drain_ns`, restarted by each frame that arrives; the last
/// one arrived `arrived_ns` after the last departure. More frames may be waiting in the same queue of the router, and a
/// short drain must not turn them into losses.
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

/// State of a lane's loop, kept between calls.
#[derive(Default)]
pub(crate) struct LaneState {
    /// For each generator, the index of its queue among the lane's queues.
    places: Vec<usize>,
    /// Generators of each queue that sends frames.
    senders: Vec<Sender>,
    /// Frames that the tester had lost at each queue before the trial.
    drops_before: Vec<u64>,
    /// Frames that the tester lost in its own receive path, by port. Set when the lane has finished.
    pub(crate) receive_drops: Vec<(PortIndex, u64)>,
    pub(crate) watch: Watch,
    /// Start of the trial.
    pub(crate) start: Instant,
    /// Events performed so far, which are the first ones of the plan.
    pub(crate) events: Vec<EventReport>,
    control_due: Instant,
    /// Time of the last pass of the loop.
    passed: Instant,
    /// When a loop that was held up has read enough.
    caught_up: Instant,
    /// Time at which the last lane finished sending.
    done_at: Option<Instant>,
    /// True once this lane has announced to the others that it has finished sending.
    announced: bool,
    quiet_since: Option<Instant>,
    /// Frames of all lanes that had arrived at the last check, and when that number last grew.
    arrived: (u64, Option<Instant>),
    /// Requests that this lane has already handled.
    seen: Requests,
    /// When the first lane next looks at the wall clock, and the smallest and largest [offset](Clock::wall_offset) that it has seen.
    wall_due: Instant,
    pub(crate) wall_offsets: Option<(i128, i128)>,
    /// True once the lane's part of the trial is over.
    pub(crate) over: bool,
}

/// Frames that the tester has lost at each queue since it was opened.
fn drops(ports: &mut [LanePort<'_>]) -> Result<Vec<u64>, PortError> {
    ports.iter_mut().map(|at| Ok(at.port.counters()?.receive_drops)).collect()
}

/// The same since `before`, with its port.
fn drops_since(ports: &mut [LanePort<'_>], before: &[u64]) -> Result<Vec<(PortIndex, u64)>, PortError> {
    let now = drops(ports)?;
    Ok(ports.iter().zip(now.iter().zip(before)).map(|(at, (now, before))| (at.index, now - before)).collect())
}

impl LaneState {
    /// Creates a finished lane with these counts of the loop itself.
    #[cfg(test)]
    pub(crate) fn through(max_gap_ns: u64, long_gaps_ns: u64, other: u64, receive_drops: u64) -> LaneState {
        let watch = Watch { max_gap_ns, long_gaps_ns, other, ..Watch::default() };
        LaneState { watch, receive_drops: vec![(0, receive_drops)], over: true, ..LaneState::default() }
    }

    /// Prepares lane `part` over its `ports`, with all look-ups and allocations.
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
            drops_before: drops(ports)?,
            events: Vec::with_capacity(events),
            ..LaneState::default()
        })
    }

    /// Starts the trial at `start`, and executes the commands that `lane` has received before.
    pub(crate) fn begin(
        &mut self,
        part: &mut Part,
        ports: &mut [LanePort<'_>],
        start: Instant,
        (lane, board): (usize, &Board),
    ) {
        part.begin(start);
        (self.start, self.passed, self.wall_due) = (start, start, start + WALL_PERIOD);
        self.watch.begin(start);
        for command in board.commands(lane) {
            part.generators.iter_mut().for_each(|generator| generator.transmit(&command, start));
        }
        self.senders = senders(&part.generators, &self.places);
        for (generator, place) in part.generators.iter().zip(&self.places) {
            generator.start_in_kernel(&mut *ports[*place].port);
        }
    }

    /// Runs the lane's part of the trial, but no longer than until `until`.
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
        // The kernel must stop sending, however the loop ended.
        let mut stopped = Ok(());
        for (generator, place) in part.generators.iter_mut().zip(&self.places) {
            stopped = stopped.and(generator.stop_in_kernel(&mut *ports[*place].port));
        }
        through?;
        stopped?;
        self.receive_drops = drops_since(ports, &self.drops_before)?;
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
            drops_before,
            watch,
            events: carried_out,
            control_due,
            passed,
            caught_up,
            done_at,
            announced,
            quiet_since,
            arrived,
            seen,
            wall_due,
            wall_offsets,
            ..
        } = self;
        let mut events = &events[carried_out.len()..];
        let due = |events: &[PlannedEvent]| events.first().map_or(Instant(u64::MAX), |e| Instant(start.0 + e.at_ns));
        // The next event, or the end of this call.
        let mut wake = due(events).min(until);
        let virtual_time = clock.is_virtual();
        // True if the loop can hand over a whole burst, each frame with its own departure time, and then advance time in one step.
        let ahead = clock.passes()
            && ports.iter_mut().all(|at| at.port.ahead().is_some())
            && senders.iter().all(|s| s.merge.is_none());
        // In virtual time, the loop takes all frames that have arrived by that instant, however many there are.
        let rounds = if virtual_time { usize::MAX } else { RECEIVE_ROUNDS };
        let at_reading = !virtual_time && ports.iter().any(|at| !at.port.info().stamps_arrivals);
        // True if the loop must not sleep although everything is sent, because a nap would make latencies too high.
        let mut awake = false;
        // Requests made between two calls, or by an event, take effect before the loop sends anything.
        let mut follow = live.requests() != *seen;

        loop {
            let now = clock.now();
            // If every pass takes so long, the control is polled in every second one.
            if now.since(*passed) >= HELD_UP && *caught_up <= *passed && !virtual_time {
                *caught_up = now + CATCH_UP;
            }
            *passed = now;
            if now >= *wall_due && lane == 0 {
                *wall_due = now + WALL_PERIOD;
                let offset = clock.wall_offset();
                let (least, most) = wall_offsets.unwrap_or((offset, offset));
                *wall_offsets = Some((least.min(offset), most.max(offset)));
            }
            if now >= start && (done_at.is_none() || awake) && !virtual_time {
                watch.look(now);
            }
            // Events come before frames that are due at the same instant.
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
                    follow_requests(part, (ports, drops_before), senders, now, lane, live, before)?;
                }
            }
            let (sent, left, mut next) =
                send_due(&mut part.generators, ports, senders, (now, wake), (ahead, virtual_time))?;
            let sending = left || !events.is_empty();
            // Frames that are stamped when they are read would hide a silence.
            let silences = !at_reading && !virtual_time;
            let (received, behind) = receive(part, ports, (watch, silences), rounds, control, control_due)?;
            let busy = sent + received;
            if now >= *control_due && (received == 0 || now >= *caught_up) {
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
                // All lanes keep draining while frames arrive at any of them.
                let all = live.arrived();
                if all != arrived.0 {
                    *arrived = (all, Some(now));
                }
                let drain_ns = extended(drain_ns, arrived.1.map(|at| at.0.saturating_sub(done.0)));
                // Stay awake until the pass after the last frame, which notices if the loop was held up before it read that frame.
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
                follow_requests(part, (ports, drops_before), senders, now, lane, live, before)?;
                continue;
            }
            if busy == 0 || virtual_time {
                if now + SETTLED < start && !virtual_time {
                    // Hosts agree on a start that is some time away. A wait is short, so control is due soon enough.
                    clock.wait((start - SETTLED).min(wake));
                } else if (done_at.is_none() || awake) && !virtual_time {
                    // The next departure or arrival may be less than a microsecond away.
                    std::hint::spin_loop();
                } else {
                    let next = next.min((*control_due).max(now + Duration::from_nanos(1)));
                    if sending && ahead { clock.pass(next) } else { clock.wait(next) }
                }
            }
        }
    }
}

/// Sends all frames due at `now`. Returns the number of frames, true if more will follow, and when to check again: at
/// `wake`, or earlier if frames are due before.
fn send_due(
    generators: &mut [PortGenerator],
    ports: &mut [LanePort<'_>],
    senders: &mut [Sender],
    (now, wake): (Instant, Instant),
    (ahead, virtual_time): (bool, bool),
) -> Result<(usize, bool, Instant), PortError> {
    let (mut sent, mut left, mut next) = (0, false, wake);
    for Sender { place, generators: range, merge } in senders {
        let port = &mut *ports[*place].port;
        if let Some(merge) = merge {
            sent += merge.send_due(&mut generators[range.clone()], port, now)?;
            if let Some(due) = merge.next() {
                left = true;
                next = next.min(due);
            }
            continue;
        }
        let generator = &mut generators[range.start];
        if generator.done(now) {
            continue;
        }
        sent += if ahead { generator.send_ahead(port, now, wake)? } else { generator.send_due(port, now)? };
        if !generator.done(now) {
            left = true;
            if virtual_time {
                next = next.min(generator.next_event());
            }
        }
    }
    Ok((sent, left, next))
}

/// Takes received frames, at most `rounds` bursts from each port. Returns the number of frames, and true if more may be
/// waiting at a port.
fn receive(
    part: &mut Part,
    ports: &mut [LanePort<'_>],
    (watch, silences): (&mut Watch, bool),
    rounds: usize,
    control: &mut dyn Control,
    control_due: &mut Instant,
) -> Result<(usize, bool), PortError> {
    let (mut received, mut behind) = (0, false);
    for LanePort { index, queue, port } in ports {
        for round in 1..=rounds {
            let frames = port.receive()?;
            let count = frames.len();
            behind |= count == BURST && round == rounds;
            if silences {
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
            received += count;
            if count < BURST {
                break;
            }
        }
    }
    Ok((received, behind))
}

/// Executes the requests made since `before`: starts or stops flows, ends sending, returns counts. `drops_before` are the frames that
/// each port had lost before the trial.
#[cold]
pub(crate) fn follow_requests(
    part: &mut Part,
    (ports, drops_before): (&mut [LanePort<'_>], &[u64]),
    senders: &mut [Sender],
    now: Instant,
    lane: usize,
    live: &Board,
    before: Requests,
) -> Result<(), PortError> {
    let requests = live.requests();
    // A lock guards the commands; other requests must not wait for it.
    let commands = if requests.commands_more_than(before) { live.commands(lane) } else { Vec::new() };
    if requests.commands_more_than(before) {
        live.switch_links(ports);
    }
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
        live.answer(lane, part, now, || drops_since(ports, drops_before))?;
    }
    Ok(())
}

/// Parameters of one call of a lane's loop.
#[derive(Clone, Copy)]
pub(crate) struct Course<'a> {
    /// Start of the trial, in the past or the future.
    pub(crate) start: Instant,
    /// Latest time at which the call ends.
    pub(crate) until: Instant,
    /// Number of the lane.
    pub(crate) lane: usize,
    /// State shared by all lanes.
    pub(crate) live: &'a Board,
    pub(crate) events: &'a [PlannedEvent],
    pub(crate) drain_ns: u64,
}

/// Runs `plan`, made for one lane, over `ports` on the calling thread; `ports[i]` is queue i of the plan's layout.
/// Returns the measured counts. The caller fills in trial number, elapsed time, validity and DUT load.
///
/// # Errors
/// A port stopped working.
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

/// Returns the time from the decision to start until the first departure. The loop uses it to take frames that have
/// been waiting at the ports since before the trial.
pub(crate) fn lead(clock: &dyn Clock) -> Duration {
    Duration::from_micros(if clock.is_virtual() { 1 } else { 200 })
}

fn send_frame(ports: &mut [LanePort<'_>], port: PortIndex, frame: &[u8]) -> Result<bool, PortError> {
    let Some(at) = ports.iter_mut().find(|at| at.index == port) else { return Ok(true) };
    at.port.slots().put(0, frame);
    at.port.send(1).map(|sent| sent.refused == 0)
}

fn sent_minus_refused(generator: &PortGenerator) -> u64 {
    generator.groups().iter().map(|g| g.offered - g.refused).sum()
}
