//! Takes what comes in a burst at a time, in two passes. The first looks at every frame and says which are whole and of this
//! trial; what the second needs of their flows comes near meanwhile. The second counts them, in their order.

use super::awaited::{self, Place};
use super::received::Run;
use super::{Analyzer, Class, departure};
use crate::intact::Expected;
use drophammer_model::trial::PortIndex;
use drophammer_port::{Arrival, BURST};

/// A frame after the first pass.
#[derive(Clone, Copy, Default)]
pub(super) struct Looked {
    /// As [`awaited::frame`] makes it.
    frame: u64,
    departure: u64,
    at: u64,
    /// Of its flow among those that are received here; [`UNKNOWN`] if that is not known or the frame is not whole. Then only
    /// the length is known beside it.
    place: u32,
    length: u32,
}

/// No flow has this place: there are 2^20 at most.
const UNKNOWN: u32 = u32::MAX;

impl Analyzer {
    /// Takes `count` frames that arrived at `port`, which `get` gives by their places from 0, in this order. Those that are
    /// not test traffic are handed to `other`.
    ///
    /// # Errors
    /// The first of `other`; no frame behind it is taken then.
    pub fn take_burst<'a, E>(
        &mut self,
        port: PortIndex,
        count: usize,
        get: impl Fn(usize) -> Arrival<'a>,
        mut other: impl FnMut(Arrival<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        for from in (0..count).step_by(BURST) {
            let burst = (count - from).min(BURST);
            self.look(port, burst, |i| get(from + i));
            let mut at = 0;
            loop {
                at += self.count_in_order(port, at..burst);
                if at == burst {
                    break;
                }
                let arrival = get(from + at);
                if self.take_alone(port, at, arrival) == Class::Other {
                    other(arrival)?;
                }
                at += 1;
            }
        }
        Ok(())
    }

    /// Takes a frame that arrived at `port`.
    pub fn take(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Class {
        self.look(port, 1, |_| arrival);
        match self.count_in_order(port, 0..1) {
            0 => self.take_alone(port, 0, arrival),
            _ => Class::Test,
        }
    }

    /// Looks at `count` frames, at most a burst.
    #[inline(always)]
    fn look<'a>(&mut self, port: PortIndex, count: usize, get: impl Fn(usize) -> Arrival<'a>) {
        let expected = Expected { host: self.hosts[port], key: self.key, pattern: &self.pattern };
        let mut touched = 0;
        for (i, looked) in self.looked[..count].iter_mut().enumerate() {
            let Arrival { frame, at } = get(i);
            let signature = expected.signature(frame);
            let place = signature.map_or(UNKNOWN, |s| self.home.place(s.flow));
            // Read here, so that states of many flows come near at once and not one after the other.
            touched ^= self.awaited.get(place as usize).map_or(0, |awaited| awaited.look());
            let (sequence, time) = signature.map_or((0, 0), |s| (s.sequence, s.time));
            *looked = Looked {
                frame: awaited::frame(port, sequence),
                departure: departure(time, at),
                at: at.0,
                place,
                length: frame.len() as u32,
            };
        }
        std::hint::black_box(touched);
    }

    /// Counts frames of those looked at from the first on as long as each is the one that its flow goes on with; returns how
    /// many these were.
    #[inline]
    fn count_in_order(&mut self, port: PortIndex, frames: std::ops::Range<usize>) -> usize {
        let mut at = frames.start;
        loop {
            let counted = self.count_run(port, at..frames.end);
            at += counted;
            if counted == 0 || at == frames.end {
                return at - frames.start;
            }
        }
    }

    /// The same, as long as they belong together.
    #[inline]
    fn count_run(&mut self, port: PortIndex, frames: std::ops::Range<usize>) -> usize {
        let looked = &self.looked[frames];
        let Some(first) = looked.first() else { return 0 };
        let Some(awaited) = self.awaited.get(first.place as usize) else { return 0 };
        self.settled = false;
        let group = awaited.group;
        let mut run = Run::new(group as usize, &mut self.bins, first.departure, first.at);
        let received = &mut self.groups[group as usize];
        let mut count = 0;
        for looked in looked {
            let place = looked.place as usize;
            let Some(awaited) = self.awaited.get_mut(place) else { break };
            if awaited.group != group || !(run.fits(looked.departure, looked.at) || count == 0) {
                break;
            }
            match awaited.take(looked.frame) {
                Place::Other => break,
                Place::InOrder => {}
                Place::InOrderAndLast => self.flows[place].take_note(awaited),
            }
            if let Some(further) = self.further.get_mut(place) {
                further.take(self.flows[place].state.unwrap(looked.frame as u32));
            }
            let latency = looked.at.saturating_sub(looked.departure);
            received.latency(latency);
            run.add(looked.length, latency, self.late_ns, looked.at);
            count += 1;
        }
        // The first one may be out of its order.
        if count > 0 {
            self.add(port, &run);
        }
        count
    }

    /// Counts a distinct intact frame of `group` at the right port.
    pub(super) fn count(&mut self, port: PortIndex, group: usize, arrival: Arrival<'_>, departure: u64) {
        let at = arrival.at.0;
        let mut run = Run::new(group, &mut self.bins, departure, at);
        let latency = at.saturating_sub(departure);
        self.groups[group].latency(latency);
        run.add(arrival.frame.len() as u32, latency, self.late_ns, at);
        self.add(port, &run);
    }

    fn add(&mut self, port: PortIndex, run: &Run) {
        self.groups[run.group].take(run);
        self.arrivals[port].take(run);
        self.distinct += run.frames;
    }

    /// Takes frame `i` of those looked at, which is not whole, not of this trial, not at its port or not in order.
    #[cold]
    fn take_alone(&mut self, port: PortIndex, i: usize, arrival: Arrival<'_>) -> Class {
        self.settled = false;
        let Looked { frame, departure, place, .. } = self.looked[i];
        if (place as usize) < self.flows.len() {
            self.take_of_flow(port, place as usize, frame as u32, departure, true, arrival)
        } else {
            self.take_at_length(port, arrival)
        }
    }
}
