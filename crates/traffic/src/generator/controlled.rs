//! Start, stop and pause of flows while traffic runs.
//!
//! Between two such changes a generator sends a stretch of its schedule: the frames of the sending flows, at the times at which they
//! leave in the whole schedule. Within a stretch it works as if there were no other flows, so this costs nothing per frame.
//!
//! # Flows that start and stop
//!
//! A flow of traffic under way can be started, stopped, paused and resumed (`Live::transmit`, `Rig::transmit`), at once
//! or at a time after the start, which is the same instant on all lanes. A flow sends the frames that its schedule has
//! from the instant at which it is started until that at which it is stopped, this one excluded. The frames in between
//! are left out: nothing is sent late, and sequence numbers go on without a gap. Flows that share a schedule keep their
//! own places of it. Between two such changes a generator has a schedule and a round of the sending flows alone
//! (`generator/controlled.rs`, `Schedule::only`), so a frame costs nothing more. The loop sees a command by the same
//! word as other requests. `intended` has only what was due while flows were to send; `GroupCounts::stopped` names the
//! flows that were stopped and for how long. Traffic ends with its schedule, whether its flows send or not. Frames made
//! in the kernel cannot be stopped by flow: such a command is refused, and flows with a command before the start are
//! not given to the kernel.

use super::PortGenerator;
use crate::lane_report::{StoppedReport, StretchReport};
use crate::schedule::Schedule;
use crate::transmit::{Command, Transmit, TransmitAction};
use drophammer_model::quantity::Instant;
use std::collections::VecDeque;
use std::ops::Range;

/// Number of stretches that are stored. Departures in further stretches are computed from the last one stored.
pub(crate) const STRETCHES: usize = 256;

/// A generator whose flows were started or stopped. Flows are numbered by their places in the generator.
pub(super) struct Controlled {
    /// All frames of all flows.
    base: Schedule,
    /// Flows in the order of one round of `base`.
    base_round: Vec<u32>,
    states: Vec<Transmit>,
    /// Changes to come, in order of time.
    pending: VecDeque<Change>,
    /// The first stretches. The last of them is the current one, unless there were more than [`STRETCHES`].
    stretches: Vec<StretchReport>,
    /// First place in `base` of the current stretch, among all frames of its steps.
    from: u64,
    /// First index of the current stretch in its own schedule.
    first: u64,
    /// Frames of the previous stretches, by flow.
    planned: Vec<u64>,
    stops: Vec<Stops>,
}

/// An action on some flows of a generator at an instant, in ns after the start.
struct Change {
    at_ns: u64,
    action: TransmitAction,
    flows: Vec<bool>,
}

/// Number and length of the periods in which a flow did not send.
#[derive(Clone, Copy, Default)]
struct Stops {
    count: u64,
    ns: u64,
    since: Option<u64>,
}

impl Change {
    fn apply(&self, states: &mut [Transmit]) {
        let named = states.iter_mut().zip(&self.flows).filter(|(_, named)| **named);
        named.for_each(|(state, _)| *state = self.action.on(*state));
    }
}

/// For each place of a round, whether its flow sends.
fn kept(round: &[u32], states: &[Transmit]) -> Vec<bool> {
    round.iter().map(|flow| states[*flow as usize] == Transmit::Started).collect()
}

/// The round without the places that are not kept.
pub(crate) fn only(round: &[u32], keep: &[bool]) -> Vec<u32> {
    round.iter().zip(keep).filter(|(_, keep)| **keep).map(|(flow, _)| *flow).collect()
}

/// Adds the frames with indices `frames` to their flows, whose order is `round`.
fn add(round: &[u32], frames: Range<u64>, by_flow: &mut [u64]) {
    if frames.is_empty() {
        return;
    }
    let len = round.len() as u64;
    for (place, flow) in round.iter().enumerate() {
        // Frames at this place among the first n.
        let of = |n: u64| n / len + u64::from((place as u64) < n % len);
        by_flow[*flow as usize] += of(frames.end) - of(frames.start);
    }
}

impl Controlled {
    fn all_send(&self) -> bool {
        self.states.iter().all(|state| *state == Transmit::Started)
    }

    /// The frames that flows in these states send from place `from` on, until `next` or the end: their schedule, the order of flows, and
    /// the first index.
    fn stretch(&self, states: &[Transmit], from: u64, next: Option<&Change>) -> (Schedule, Vec<u32>, u64) {
        let keep = kept(&self.base_round, states);
        let to = next.map_or(u64::MAX, |change| self.base.place_at(change.at_ns).max(from));
        let schedule = self.base.only(&keep, to).ended_by(next.map_or(u64::MAX, |change| change.at_ns));
        let first = schedule.before_place(from);
        (schedule, only(&self.base_round, &keep), first)
    }
}

impl PortGenerator {
    /// Schedule of all frames of all flows, whether or not they send.
    pub(super) fn base(&self) -> &Schedule {
        self.control.as_ref().map_or(&self.schedule, |control| &control.base)
    }

    /// Flows in the order of one round of [`PortGenerator::base`].
    pub(super) fn base_round(&self) -> &[u32] {
        self.control.as_ref().map_or(&self.round, |control| &control.base_round)
    }

    /// Applies `command`, which the lane sees at `now`, to the flows that it names. Frames that are due before it takes effect still
    /// leave.
    pub(crate) fn transmit(&mut self, command: &Command, now: Instant) {
        let flows: Vec<bool> = self.flows.iter().map(|flow| command.names(flow.id)).collect();
        let elapsed = now.0.saturating_sub(self.start.0);
        let at_ns = command.at.map_or(elapsed, |at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        if !flows.contains(&true) || at_ns >= self.base().end_ns() {
            return;
        }
        let control = self.control.get_or_insert_with(|| {
            let count = self.flows.len();
            let keep = vec![true; self.round.len()];
            let whole = StretchReport { from: 0, keep, sent: 0, skipped: 0, sequences: vec![0; count] };
            Box::new(Controlled {
                base: self.schedule.clone(),
                base_round: self.round.clone(),
                states: vec![Transmit::Started; count],
                pending: VecDeque::new(),
                stretches: vec![whole],
                from: 0,
                first: 0,
                planned: vec![0; count],
                stops: vec![Stops::default(); count],
            })
        });
        let place = control.pending.partition_point(|change| change.at_ns <= at_ns);
        control.pending.insert(place, Change { at_ns, action: command.action, flows });
        self.limit();
        self.next_stretch(elapsed);
    }

    /// Number, among all frames of the steps, of the first frame of this stretch that has not been sent.
    fn next_place(&self, control: &Controlled) -> u64 {
        if self.index > control.first { self.schedule.place_after(self.index - 1) } else { control.from }
    }

    /// Ends the current stretch at the next change, but not before the frames that it has sent.
    fn limit(&mut self) {
        let Some(control) = self.control.take() else { return };
        let sent_until = self.next_place(&control);
        (self.schedule, ..) = control.stretch(&control.states, sent_until, control.pending.front());
        self.control = Some(control);
    }

    /// If the current stretch is over at `elapsed` ns, begins the one that is due then. Returns true if a new stretch has begun.
    #[cold]
    pub(super) fn next_stretch(&mut self, elapsed: u64) -> bool {
        let mut begun = false;
        while self.control.as_ref().is_some_and(|c| c.pending.front().is_some_and(|change| change.at_ns <= elapsed))
            && (self.index >= self.schedule.total() || self.stop_on_time && elapsed >= self.schedule.end_ns())
            && let Some(mut control) = self.control.take()
        {
            begun = true;
            add(&self.round, control.first..self.schedule.total(), &mut control.planned);
            let at_ns = control.pending.front().map_or(elapsed, |change| change.at_ns);
            control.from = control.base.place_at(at_ns).max(self.next_place(&control));
            while let Some(change) = control.pending.pop_front_if(|change| change.at_ns == at_ns) {
                change.apply(&mut control.states);
            }
            control.note_stops(at_ns);
            (self.schedule, self.round, control.first) =
                control.stretch(&control.states, control.from, control.pending.front());
            self.index = control.first;
            self.round_at = self.index.checked_rem(self.round.len() as u64).unwrap_or(0) as usize;
            if control.stretches.len() < STRETCHES {
                control.stretches.push(StretchReport {
                    from: control.from,
                    keep: kept(&control.base_round, &control.states),
                    sent: self.sent,
                    skipped: self.skipped,
                    sequences: self.flows.iter().map(|flow| flow.next).collect(),
                });
            }
            self.control = Some(control);
        }
        begun
    }

    /// True if no change is left at `now` after the current stretch.
    #[cold]
    pub(super) fn is_last_stretch(&self, now: Instant) -> bool {
        self.control.as_ref().is_none_or(|control| {
            let over = now.0.saturating_sub(self.start.0) >= control.base.end_ns();
            control.pending.is_empty() && (over || control.all_send())
        })
    }

    /// Time of the next action after the current stretch: the next change, or the end of the time in which stopped flows may be
    /// started.
    #[cold]
    pub(super) fn next_change(&self) -> Option<Instant> {
        let control = self.control.as_ref()?;
        let end = || (!control.all_send()).then_some(control.base.end_ns());
        Some(Instant(self.start.0 + control.pending.front().map(|change| change.at_ns).or_else(end)?))
    }

    /// Frames that the schedule contains while their flows send, by flow, without those that pending changes leave out.
    pub(super) fn intended(&self) -> Vec<u64> {
        let mut planned = vec![0; self.flows.len()];
        let Some(control) = &self.control else {
            add(&self.round, 0..self.schedule.total(), &mut planned);
            return planned;
        };
        planned.copy_from_slice(&control.planned);
        add(&self.round, control.first..self.schedule.total(), &mut planned);
        let (mut states, mut from) = (control.states.clone(), self.next_place(control));
        for (i, change) in control.pending.iter().enumerate() {
            change.apply(&mut states);
            let next = control.pending.get(i + 1);
            if next.is_some_and(|next| next.at_ns == change.at_ns) {
                continue;
            }
            from = control.base.place_at(change.at_ns).max(from);
            let (schedule, round, first) = control.stretch(&states, from, next);
            add(&round, first..schedule.total(), &mut planned);
        }
        planned
    }

    /// Number and state of each flow at `now`.
    pub(crate) fn transmits(&self, now: Instant) -> impl Iterator<Item = (u32, Transmit)> {
        let done = self.done(now);
        self.flows.iter().enumerate().map(move |(i, flow)| {
            let state = self.control.as_ref().map_or(Transmit::Started, |control| control.states[i]);
            (flow.id, if done { Transmit::Stopped } else { state })
        })
    }

    /// Ends the schedule after `elapsed` ns; frames that have been sent remain.
    pub(super) fn end_schedule(&mut self, elapsed: u64) {
        let Some(mut control) = self.control.take() else { return self.schedule.end_at(elapsed, self.index) };
        let at_least = control.base.before_place(self.next_place(&control));
        control.base.end_at(elapsed, at_least);
        let end_ns = control.base.end_ns();
        control.pending.retain(|change| change.at_ns < end_ns);
        self.control = Some(control);
        self.limit();
    }

    /// The stretches of the schedule; empty if no flow was started or stopped.
    pub(super) fn stretches(&self) -> Vec<StretchReport> {
        self.control.as_ref().map_or(Vec::new(), |control| control.stretches.clone())
    }

    /// The flows that did not send all the time.
    pub(super) fn stopped(&self) -> Vec<StoppedReport> {
        let Some(control) = &self.control else { return Vec::new() };
        let end_ns = control.base.end_ns();
        let flows = self.flows.iter().zip(&control.stops).filter(|(_, stops)| stops.count > 0);
        let report = |(flow, stops): (&super::SendFlow, &Stops)| StoppedReport {
            flow: flow.id,
            group: flow.group,
            stops: stops.count,
            stopped_ns: stops.ns + stops.since.map_or(0, |since| end_ns.saturating_sub(since)),
            end_ns,
        };
        flows.map(report).collect()
    }
}

impl Controlled {
    /// Records which flows send from `at_ns` on.
    fn note_stops(&mut self, at_ns: u64) {
        for (state, stops) in self.states.iter().zip(&mut self.stops) {
            match (state, stops.since) {
                (Transmit::Started, Some(since)) => {
                    stops.ns += at_ns - since;
                    stops.since = None;
                }
                (Transmit::Paused | Transmit::Stopped, None) => {
                    stops.count += 1;
                    stops.since = Some(at_ns);
                }
                (Transmit::Started, None) | (Transmit::Paused | Transmit::Stopped, Some(_)) => {}
            }
        }
    }
}
