//! Flows that start, stop and pause during traffic (`Live::transmit`, `Rig::transmit`).
//!
//! A command takes effect immediately or at a given time after the start, which is the same instant on all lanes. A
//! flow sends the frames that its schedule contains from the instant it starts until just before the instant it stops.
//! Frames in between are left out: nothing is sent late, and sequence numbers have no gap. Flows that share a schedule
//! keep their own places in it.
//!
//! The time between two changes is a stretch. In a stretch the generator uses a schedule and a round with only the
//! flows that send (`Schedule::only`), so stopped flows add no cost per frame. The loop checks a single word for
//! commands and all other requests. `intended` counts only frames that were due while their flow was sending;
//! `GroupCounts::stopped` lists which flows were stopped and for how long. Traffic ends when its schedule ends, even if
//! no flow sends. The generator in the kernel cannot stop single flows: it refuses such commands, and never gets flows
//! that have a command before the start.

use super::PortGenerator;
use crate::lane_report::{StoppedReport, StretchReport};
use crate::schedule::Schedule;
use crate::transmit::{Command, Transmit, TransmitAction};
use drophammer_model::quantity::Instant;
use std::collections::VecDeque;
use std::ops::Range;

/// Maximum number of stored stretches. Departures in later stretches are computed from the last stored stretch.
pub(crate) const STRETCHES: usize = 256;

/// State of a generator whose flows were started or stopped. Flows are numbered by their places in the generator.
pub(super) struct Controlled {
    /// All frames of all flows.
    base: Schedule,
    /// Flows in the order of one round of `base`.
    base_round: Vec<u32>,
    states: Vec<Transmit>,
    /// Future changes, in order of time.
    pending: VecDeque<Change>,
    /// The first stretches. The last one is current, unless there were more than [`STRETCHES`].
    stretches: Vec<StretchReport>,
    /// First frame of the current stretch, counted among all frames of `base`.
    from: u64,
    /// First index of the current stretch, in its own schedule.
    first: u64,
    /// Number of frames in the previous stretches, by flow.
    planned: Vec<u64>,
    stops: Vec<Stops>,
}

/// An action on some flows of a generator.
struct Change {
    at_ns: u64,
    action: TransmitAction,
    flows: Vec<bool>,
}

/// How often and how long a flow did not send.
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

/// Returns for each place of a round if its flow sends.
fn kept(round: &[u32], states: &[Transmit]) -> Vec<bool> {
    round.iter().map(|flow| states[*flow as usize] == Transmit::Started).collect()
}

/// Returns the places of a round that are kept.
pub(crate) fn only(round: &[u32], keep: &[bool]) -> Vec<u32> {
    round.iter().zip(keep).filter(|(_, keep)| **keep).map(|(flow, _)| *flow).collect()
}

/// Adds the frames with the indices `frames` to their flows. `round` is the order of flows.
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

    /// Returns what flows in these states send from place `from` until `next` or the end: the schedule, the order of
    /// flows, and the first index.
    fn stretch(&self, states: &[Transmit], from: u64, next: Option<&Change>) -> (Schedule, Vec<u32>, u64) {
        let keep = kept(&self.base_round, states);
        let to = next.map_or(u64::MAX, |change| self.base.place_at(change.at_ns).max(from));
        let schedule = self.base.only(&keep, to).ended_by(next.map_or(u64::MAX, |change| change.at_ns));
        let first = schedule.before_place(from);
        (schedule, only(&self.base_round, &keep), first)
    }
}

impl PortGenerator {
    /// Returns the schedule of all flows, whether they send or not.
    pub(super) fn base(&self) -> &Schedule {
        self.control.as_ref().map_or(&self.schedule, |control| &control.base)
    }

    /// Returns the flows in the order of one round of [`PortGenerator::base`].
    pub(super) fn base_round(&self) -> &[u32] {
        self.control.as_ref().map_or(&self.round, |control| &control.base_round)
    }

    /// Applies `command`, which the lane noticed at `now`, to the flows it selects. Frames due before it takes effect still leave.
    pub(crate) fn transmit(&mut self, command: &Command, now: Instant) {
        // A trial may have thousands of generators, and a command for each.
        if !self.flows.iter().any(|flow| command.names(flow.id)) {
            return;
        }
        let flows: Vec<bool> = self.flows.iter().map(|flow| command.names(flow.id)).collect();
        let elapsed = now.0.saturating_sub(self.start.0);
        if command.action == TransmitAction::DropBacklog {
            if !flows.contains(&false) {
                self.drop_backlog(elapsed);
            }
            return;
        }
        let at_ns = command.at.map_or(elapsed, |at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
        if at_ns >= self.base().end_ns() {
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

    /// Returns the first unsent frame of this stretch, counted among all frames of the schedule.
    fn next_place(&self, control: &Controlled) -> u64 {
        if self.index > control.first { self.schedule.place_after(self.index - 1) } else { control.from }
    }

    /// Ends the current stretch at the next change, but not before the frames already sent.
    fn limit(&mut self) {
        let Some(control) = self.control.take() else { return };
        let sent_until = self.next_place(&control);
        (self.schedule, ..) = control.stretch(&control.states, sent_until, control.pending.front());
        self.control = Some(control);
    }

    /// If the current stretch is over at `elapsed` ns, starts the next stretch and returns true.
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

    /// Skips all frames that are due at `elapsed` ns.
    fn drop_backlog(&mut self, elapsed: u64) {
        loop {
            let late = self.schedule.due(elapsed).saturating_sub(self.index);
            if late > 0 {
                self.skip(late);
            }
            if !self.next_stretch(elapsed) {
                return;
            }
        }
    }

    /// True if at `now` no change can follow the current stretch.
    #[cold]
    pub(super) fn is_last_stretch(&self, now: Instant) -> bool {
        self.control.as_ref().is_none_or(|control| {
            let over = now.0.saturating_sub(self.start.0) >= control.base.end_ns();
            control.pending.is_empty() && (over || control.all_send())
        })
    }

    /// Returns when something happens after the current stretch: the next change, or the end of the time for starting
    /// stopped flows.
    #[cold]
    pub(super) fn next_change(&self) -> Option<Instant> {
        let control = self.control.as_ref()?;
        let end = || (!control.all_send()).then_some(control.base.end_ns());
        Some(Instant(self.start.0 + control.pending.front().map(|change| change.at_ns).or_else(end)?))
    }

    /// Returns the number of frames by flow that are due while the flow sends, including pending changes.
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

    /// Returns number and state of each flow at `now`.
    pub(crate) fn transmits(&self, now: Instant) -> impl Iterator<Item = (u32, Transmit)> {
        let done = self.done(now);
        self.flows.iter().enumerate().map(move |(i, flow)| {
            let state = self.control.as_ref().map_or(Transmit::Started, |control| control.states[i]);
            (flow.id, if done { Transmit::Stopped } else { state })
        })
    }

    /// Ends the schedule after `elapsed` ns, but keeps frames that were already sent.
    pub(super) fn end_schedule(&mut self, elapsed: u64) {
        let Some(mut control) = self.control.take() else { return self.schedule.end_at(elapsed, self.index) };
        let at_least = control.base.before_place(self.next_place(&control));
        control.base.end_at(elapsed, at_least);
        let end_ns = control.base.end_ns();
        control.pending.retain(|change| change.at_ns < end_ns);
        self.control = Some(control);
        self.limit();
    }

    /// Returns the stretches of the schedule; empty if no flow was started or stopped.
    pub(super) fn stretches(&self) -> Vec<StretchReport> {
        self.control.as_ref().map_or(Vec::new(), |control| control.stretches.clone())
    }

    /// Returns the flows that did not send all the time.
    pub(super) fn stopped(&self) -> Vec<StoppedReport> {
        let Some(control) = &self.control else { return Vec::new() };
        let end_ns = control.base.end_ns();
        let flows = self.flows.iter().zip(&control.stops).filter(|(_, stops)| stops.count > 0);
        let report = |(flow, stops): (&super::SendFlow, &Stops)| StoppedReport {
            flow: flow.id,
            group: self.groups[flow.group].group,
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
