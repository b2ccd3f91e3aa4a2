//! Counts received frames in bursts, with two passes. The first pass checks every frame, and loads the flow state of
//! intact frames into the cache. The second pass counts the frames in order.

use super::awaited::{self, Place};
use super::received::{Run, on_link};
use super::{AHEAD, Analyzer, Class, Verdict, departure};
use crate::arriving;
use crate::intact::{Expected, Found};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::PortIndex;
use drophammer_port::{Arrival, BURST};
use drophammer_wire::signature::{self, Signature};

/// A frame after the first pass.
#[derive(Clone, Copy, Default)]
struct Looked {
    /// The frame in the form of [`awaited::frame`].
    frame: u64,
    departure: u64,
    at: u64,
    /// Place of the frame's flow among the flows received here. It is beyond their end if the flow is not received here
    /// or the frame is not intact.
    place: u32,
    length: u32,
}

impl Looked {
    /// Creates the entry for a frame of the flow at `place` with the signature `found`.
    #[inline(always)]
    fn of(port: PortIndex, arrival: Arrival<'_>, found: Found, place: u32) -> Looked {
        Looked {
            frame: awaited::frame(port, found.sequence()),
            departure: departure(found.time(), arrival.at, AHEAD),
            at: arrival.at.0,
            place,
            length: arrival.frame.len() as u32,
        }
    }
}

/// Returns by how much a frame arrived before it left. Only frames with a latency of 0 can have done that.
#[cold]
fn early(looked: &[Looked]) -> u64 {
    looked.iter().map(|looked| looked.departure.saturating_sub(looked.at)).max().unwrap_or(0)
}

/// A burst of frames, in cache lines that no other thread writes.
#[repr(align(64))]
pub(super) struct Burst([Looked; BURST]);

impl Default for Burst {
    fn default() -> Burst {
        Burst([Looked::default(); BURST])
    }
}

/// The state of up to this many flows fits into the first-level cache, with room to spare.
const MANY_FLOWS: usize = 512;

impl Analyzer {
    /// Counts `count` frames that arrived at `port`. `get` returns each frame by its index, from 0. `other` gets all
    /// frames that are not test frames.
    ///
    /// # Errors
    /// The first error of `other`. Later frames are not counted in this case.
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
                at += self.count_whole(port, at..burst);
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

    /// Counts a frame that arrived at `port`.
    pub fn take(&mut self, port: PortIndex, arrival: Arrival<'_>) -> Class {
        self.look(port, 1, |_| arrival);
        let stale = self.stale;
        match self.count_whole(port, 0..1) {
            0 => self.take_alone(port, 0, arrival),
            _ if self.stale > stale => Class::Stale,
            _ => Class::Test,
        }
    }

    /// First pass over `count` frames, at most one burst.
    #[inline(always)]
    fn look<'a>(&mut self, port: PortIndex, count: usize, get: impl Fn(usize) -> Arrival<'a>) {
        self.touch(count, &get);
        if self.encapsulations.is_empty() {
            self.look_plain(port, count, get);
        } else {
            self.look_behind(port, count, get);
        }
        if self.ahead > AHEAD {
            self.allow_ahead(count);
        }
    }

    /// Corrects the departures of frames from hosts whose clock may be ahead. It is a pass of its own because the other passes are
    /// faster with a constant.
    #[cold]
    fn allow_ahead(&mut self, count: usize) {
        for looked in &mut self.looked.0[..count] {
            let allowed = departure(looked.departure as u32, Instant(looked.at), self.ahead);
            // Few frames differ, so few flows are looked up.
            if allowed != looked.departure && self.same_clock.get(looked.place as usize) != Some(&true) {
                looked.departure = allowed;
            }
        }
    }

    /// First pass over frames that are expected in plain Ethernet.
    #[inline(always)]
    fn look_plain<'a>(&mut self, port: PortIndex, count: usize, get: impl Fn(usize) -> Arrival<'a>) {
        let expected =
            Expected { host: self.hosts[port], home: self.destinations, key: self.key, pattern: &self.pattern };
        for (i, looked) in self.looked.0[..count].iter_mut().enumerate() {
            let arrival = get(i);
            let found = expected.signature(arrival.frame);
            *looked = Looked::of(port, arrival, found, self.home.place(found.flow()));
        }
    }

    /// First pass over frames that are expected behind tags or labels.
    #[inline(always)]
    fn look_behind<'a>(&mut self, port: PortIndex, count: usize, get: impl Fn(usize) -> Arrival<'a>) {
        let expected =
            Expected { host: self.hosts[port], home: self.destinations, key: self.key, pattern: &self.pattern };
        for (i, looked) in self.looked.0[..count].iter_mut().enumerate() {
            let arrival = get(i);
            let place = |flow| self.home.place(flow);
            let (found, place) = arriving::find(&mut self.encapsulations, &expected, arrival.frame, place);
            *looked = Looked::of(port, arrival, found, place);
        }
    }

    /// Reads the flow state that counting will need, so that with many flows the processor loads it into the cache in
    /// parallel. This is only a hint: it counts nothing, and may read the wrong flow.
    #[inline(always)]
    fn touch<'a>(&self, count: usize, get: &impl Fn(usize) -> Arrival<'a>) {
        if self.awaited.len() < MANY_FLOWS {
            return;
        }
        let mut touched = 0;
        for i in 0..count {
            // Unless the frame is padded, this is the signature.
            let Some(tail) = get(i).frame.last_chunk::<{ signature::LEN }>() else { continue };
            let place = self.home.place(Signature::read(tail).0.flow);
            touched ^= self.awaited.get(place as usize).map_or(0, |awaited| awaited.look());
        }
        std::hint::black_box(touched);
    }

    /// Counts checked frames from the start up to the first frame that is not intact, not from a flow received here, or
    /// not at its own port. Returns their number.
    #[inline]
    fn count_whole(&mut self, port: PortIndex, frames: std::ops::Range<usize>) -> usize {
        let mut at = frames.start;
        loop {
            let counted = self.count_run(port, at..frames.end);
            at += counted;
            if counted == 0 || at == frames.end {
                return at - frames.start;
            }
        }
    }

    /// Like [`Analyzer::count_whole`], but for one run: frames of one group and the same time bins.
    #[inline]
    fn count_run(&mut self, port: PortIndex, frames: std::ops::Range<usize>) -> usize {
        let (looked, awaited) = (&self.looked.0[frames], self.awaited.as_mut_slice());
        let Some(first) = looked.first() else { return 0 };
        let Some(group) = awaited.get(first.place as usize).map(|a| a.group) else { return 0 };
        self.settled = false;
        let (mut taken, mut stale, mut copies, mut copied) = (0, 0, 0, 0);
        let mut run = Run::new(group as usize, &mut self.bins, first.departure, first.at);
        let (latencies, mut ipdv) = self.groups[group as usize].latencies();
        let (flows, extras, late_ns) = (self.flows.as_mut_slice(), self.extras.as_mut_slice(), self.late_ns);
        for looked in looked {
            let place = looked.place as usize;
            let Some(awaited) = awaited.get_mut(place) else { break };
            if awaited.group != group || !run.fits(looked.departure, looked.at) {
                break;
            }
            match awaited.take(looked.frame) {
                Place::InOrder => {}
                Place::InOrderAndLast => flows[place].take_note(awaited),
                Place::Other => match flows[place].take_out_of_order(awaited, looked.frame) {
                    None => break,
                    Some(Verdict::New) => {}
                    Some(verdict) => {
                        taken += 1;
                        if verdict == Verdict::TooOld {
                            stale += 1;
                        } else {
                            copies += 1;
                            copied += on_link(looked.length);
                        }
                        // A run must start with a frame that counts.
                        if run.frames == 0 {
                            break;
                        }
                        continue;
                    }
                },
            }
            taken += 1;
            let latency = looked.at.saturating_sub(looked.departure);
            if let Some(extras) = extras.get_mut(place)
                && let Some(variation) =
                    extras.take(flows[place].state.unwrap(looked.frame as u32), latency, looked.at, looked.length)
                && let Some(ipdv) = &mut ipdv
            {
                ipdv.record(variation);
            }
            latencies.record(latency);
            run.add(looked.length, latency, late_ns, looked.at);
        }
        self.stale += stale;
        if copies > 0 {
            self.arrivals[port].take_copies(copies, copied);
        }
        if run.latency_min == 0 {
            run.early = early(&looked[..taken]);
        }
        // All frames may have been duplicates.
        if run.frames > 0 {
            // The copy allows the sums to stay in registers.
            self.add(port, &{ run });
        }
        taken
    }

    /// Counts a distinct intact frame of `group` at the right port.
    pub(super) fn count(&mut self, port: PortIndex, group: usize, arrival: Arrival<'_>, departure: u64) {
        let at = arrival.at.0;
        let mut run = Run::new(group, &mut self.bins, departure, at);
        let latency = at.saturating_sub(departure);
        self.groups[group].latencies().0.record(latency);
        run.add(arrival.frame.len() as u32, latency, self.late_ns, at);
        run.early = departure.saturating_sub(at);
        self.add(port, &run);
    }

    fn add(&mut self, port: PortIndex, run: &Run) {
        self.groups[run.group].take(run);
        self.arrivals[port].take(run);
        self.distinct += run.frames;
    }

    /// Counts checked frame `i`, which [`Analyzer::count_whole`] did not count.
    #[cold]
    fn take_alone(&mut self, port: PortIndex, i: usize, arrival: Arrival<'_>) -> Class {
        self.settled = false;
        let Looked { frame, departure, place, .. } = self.looked.0[i];
        if (place as usize) < self.flows.len() {
            let flow = self.ids[place as usize];
            let signature = Signature { flow, sequence: frame as u32, time: departure as u32 };
            self.take_of_flow(port, place as usize, signature, true, None, arrival)
        } else {
            self.take_at_length(port, arrival)
        }
    }
}
