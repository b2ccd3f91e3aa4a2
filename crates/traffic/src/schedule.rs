//! Scheduled departure of each frame of a port.

use drophammer_model::quantity::FrameRate;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One step of constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Step {
    start_ns: f64,
    first: u64,
    frames: u64,
    rate: f64,
}

impl Step {
    #[inline]
    fn departure(&self, index: u64) -> u64 {
        let exact = self.start_ns + (index - self.first) as f64 * 1e9 / self.rate;
        // Rounded up by hand, because without newer instructions the standard library would call a function.
        let below = exact as u64;
        below + u64::from((below as f64) < exact)
    }
}

/// Selects some frames of each round of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Part {
    /// Selected places in a round, ascending; may be empty.
    places: Vec<u64>,
    /// Number of frames in a round.
    round: u64,
}

impl Part {
    /// Returns the number of selected frames among the first `frames` of the whole schedule.
    fn of(&self, frames: u64) -> u64 {
        let rest = frames % self.round;
        frames / self.round * self.places.len() as u64 + self.places.partition_point(|place| *place < rest) as u64
    }

    /// Returns the index in the whole schedule of selected frame `index`.
    #[inline]
    fn whole(&self, index: u64) -> u64 {
        let len = self.places.len() as u64;
        index / len * self.round + self.places[(index % len) as usize]
    }

    fn share(&self) -> f64 {
        self.places.len() as f64 / self.round as f64
    }
}

/// Evenly spaced departures in nanoseconds after the start of the trial, or a part of them. Frame 0 of the whole
/// schedule leaves at 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    steps: Vec<Step>,
    total: u64,
    end_ns: u64,
    /// `None` if the schedule contains all frames of the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<Part>,
}

impl Schedule {
    /// Creates a schedule from `(duration, rate)` steps.
    pub fn steps(steps: &[(Duration, FrameRate)]) -> Schedule {
        let mut out = Schedule { steps: Vec::with_capacity(steps.len()), total: 0, end_ns: 0, part: None };
        let mut start_ns = 0.0;
        for (duration, rate) in steps {
            let frames = rate.frames_in(*duration);
            if frames > 0 {
                out.steps.push(Step { start_ns, first: out.total, frames, rate: rate.pps() });
            }
            out.total += frames;
            start_ns += duration.as_nanos() as f64;
        }
        out.end_ns = start_ns as u64;
        out
    }

    /// Creates a schedule of frames at `rate` from `start` until `end`, at most `frames` of them.
    pub fn flow(start: Duration, end: Duration, rate: FrameRate, frames: Option<u64>) -> Schedule {
        let room = rate.frames_in(end.saturating_sub(start));
        let frames = frames.map_or(room, |frames| frames.min(room));
        let step = Step { start_ns: start.as_nanos() as f64, first: 0, frames, rate: rate.pps() };
        let end_ns = start.as_nanos() as u64 + (frames as f64 * 1e9 / rate.pps()) as u64;
        Schedule { steps: vec![step], total: frames, end_ns, part: None }
    }

    /// Creates a schedule of exactly `frames` frames at `rate`.
    pub fn burst(frames: u64, rate: FrameRate) -> Schedule {
        let step = Step { start_ns: 0.0, first: 0, frames, rate: rate.pps() };
        let end_ns = (frames as f64 * 1e9 / rate.pps()) as u64;
        Schedule { steps: vec![step], total: frames, end_ns, part: None }
    }

    /// Returns the frames at `places` (ascending, at least one, each below `round`) of each round of `round` frames, at
    /// the same times as in this schedule, which must be whole.
    pub(crate) fn part(&self, places: Vec<u64>, round: u64) -> Schedule {
        let part = Part { places, round };
        Schedule { total: part.of(self.total), part: Some(part), ..self.clone() }
    }

    /// True if every departure can be computed, for a schedule from another host.
    pub(crate) fn is_sound(&self) -> bool {
        let step = |step: &Step| {
            step.rate.is_finite() && step.rate > 0.0 && step.start_ns.is_finite() && step.first <= 1 << 48
        };
        let part = |part: &Part| {
            !part.places.is_empty()
                && part.round > 0
                && part.places.is_sorted_by(|a, b| a < b)
                && part.places.last().is_none_or(|last| *last < part.round)
        };
        let steps = &self.steps;
        steps.first().is_none_or(|first| first.first == 0)
            && steps.iter().all(step)
            && steps.is_sorted_by(|a, b| a.first <= b.first)
            && self.part.iter().all(part)
            && self.total <= 1 << 48
            && (self.total == 0 || !steps.is_empty())
    }

    /// True if it contains all frames of its steps.
    pub(crate) fn is_whole(&self) -> bool {
        self.part.is_none()
    }

    /// Returns the first frame that is due at `elapsed_ns` or later, counted among all frames of the steps.
    pub(crate) fn place_at(&self, elapsed_ns: u64) -> u64 {
        elapsed_ns.checked_sub(1).map_or(0, |before| self.due_of_steps(before))
    }

    /// Returns the place after frame `index`, counted among all frames of the steps.
    pub(crate) fn place_after(&self, index: u64) -> u64 {
        self.whole(index) + 1
    }

    /// Returns the number of its frames before `place`, which counts all frames of the steps.
    pub(crate) fn before_place(&self, place: u64) -> u64 {
        self.part.as_ref().map_or(place, |part| part.of(place)).min(self.total)
    }

    /// Returns the frames that `keep` selects from each round, at the same times, up to place `to` among all frames of
    /// the steps. `keep` has the length of a round of this schedule.
    pub(crate) fn only(&self, keep: &[bool], to: u64) -> Schedule {
        let last = self.total.checked_sub(1).map_or(0, |last| self.place_after(last));
        let to = to.min(last);
        let places = || keep.iter().enumerate().filter(|(_, keep)| **keep).map(|(place, _)| place);
        let part = match &self.part {
            None if keep.iter().all(|keep| *keep) => None,
            None => Some(Part { places: places().map(|place| place as u64).collect(), round: keep.len() as u64 }),
            Some(part) => Some(Part { places: places().map(|place| part.places[place]).collect(), round: part.round }),
        };
        let mut only = Schedule { part, ..self.clone() };
        only.total = only.part.as_ref().map_or(to, |part| part.of(to));
        only.end_steps();
        only
    }

    /// Returns the same frames, but ends no later than `elapsed_ns`.
    pub(crate) fn ended_by(self, elapsed_ns: u64) -> Schedule {
        Schedule { end_ns: self.end_ns.min(elapsed_ns), ..self }
    }

    /// Removes frames beyond the total from the steps. For a part, only the total is the limit.
    fn end_steps(&mut self) {
        if self.is_whole() {
            let total = self.total;
            self.steps.retain(|step| step.first < total);
            if let Some(last) = self.steps.last_mut() {
                last.frames = last.frames.min(total - last.first);
            }
        }
    }

    /// Ends the schedule after `elapsed_ns`: frames due later do not leave, except that the first `at_least` frames remain.
    pub fn end_at(&mut self, elapsed_ns: u64, at_least: u64) {
        self.total = self.due(elapsed_ns).max(at_least).min(self.total);
        self.end_steps();
        self.end_ns = self.end_ns.min(elapsed_ns);
    }

    /// Returns the number of frames.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the length in nanoseconds.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns the highest rate, in frames per second.
    pub(crate) fn peak_pps(&self) -> f64 {
        self.steps.iter().map(|step| step.rate).fold(0.0, f64::max) * self.share()
    }

    /// Returns the rate, if it is constant from the first departure, at 0, until the last.
    pub(crate) fn constant_rate(&self) -> Option<f64> {
        match self.steps.as_slice() {
            [step] if step.start_ns == 0.0 && self.is_whole() => Some(step.rate),
            _ => None,
        }
    }

    /// Returns the departure of frame `index` in ns. `index` must be below [`Schedule::total`].
    pub fn departure(&self, index: u64) -> u64 {
        let index = self.whole(index);
        self.step_of(index).departure(index)
    }

    fn share(&self) -> f64 {
        self.part.as_ref().map_or(1.0, Part::share)
    }

    /// Returns the place of frame `index` among all frames of the steps.
    #[inline]
    fn whole(&self, index: u64) -> u64 {
        self.part.as_ref().map_or(index, |part| part.whole(index))
    }

    /// Computes [`Schedule::departure`] for `index` and the following frames.
    pub fn departures(&self, index: u64, out: &mut [u64]) {
        let Some(last) = (out.len() as u64).checked_sub(1) else { return };
        let step = self.step_of(index);
        if self.is_whole() && index + last < step.first + step.frames {
            // Within one step, the divisions run in parallel.
            out.iter_mut().zip(index..).for_each(|(out, index)| *out = step.departure(index));
        } else {
            out.iter_mut().zip(index..).for_each(|(out, index)| *out = self.departure(index));
        }
    }

    /// Returns the rate at the departure of frame `index`, in frames per second.
    #[inline]
    pub fn rate_of(&self, index: u64) -> f64 {
        self.step_of(self.whole(index)).rate * self.share()
    }

    #[inline]
    fn step_of(&self, index: u64) -> &Step {
        let i = self.steps.partition_point(|s| s.first <= index).max(1) - 1;
        &self.steps[i]
    }

    /// Returns the number of frames with a departure at or before `elapsed_ns`.
    #[inline]
    pub fn due(&self, elapsed_ns: u64) -> u64 {
        let due = self.due_of_steps(elapsed_ns);
        self.part.as_ref().map_or(due, |part| part.of(due).min(self.total))
    }

    #[inline]
    fn due_of_steps(&self, elapsed_ns: u64) -> u64 {
        let elapsed = elapsed_ns as f64;
        for step in self.steps.iter().rev() {
            if elapsed >= step.start_ns {
                // The small addend compensates for rounding, so that a frame is due at exactly its own departure.
                let addend = (step.rate * 0.5e-9).min(1e-6);
                let n = ((elapsed - step.start_ns) * step.rate / 1e9 + addend) as u64 + 1;
                let due = step.first + n.min(step.frames);
                // Departures are rounded up to whole nanoseconds, so the addend may make a frame due one nanosecond early.
                let early = due > step.first && step.departure(due - 1) > elapsed_ns;
                return due - u64::from(early);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn due_and_departure_agree(
            rate in prop_oneof![1.0f64..1_000.0, 1.0f64..20_000_000.0], second in 1.0f64..20_000_000.0, at in 0.0f64..1.0, ms in 1u64..1000
        ) {
            let d = Duration::from_millis(ms);
            let s = Schedule::steps(&[(d, FrameRate(rate)), (d, FrameRate(second))]);
            prop_assume!(s.total() > 0);
            let index = ((s.total() - 1) as f64 * at) as u64;
            let t = s.departure(index);
            prop_assert!(s.due(t) > index);
            // Within a step no frame is due a nanosecond early. Where a step starts, the last frame of the previous
            // step may be late.
            if t > 0 && t < d.as_nanos() as u64 {
                prop_assert!(s.due(t - 1) <= index);
            }
            prop_assert_eq!(s.due(s.end_ns()), s.total());
            let mut many = [0; 50];
            let many = &mut many[..(s.total() - index).min(50) as usize];
            s.departures(index, many);
            prop_assert!(many.iter().zip(index..).all(|(at, i)| *at == s.departure(i)));
            prop_assert_eq!(s.total(), FrameRate(rate).frames_in(d) + FrameRate(second).frames_in(d));
        }
    }

    proptest! {
        #[test]
        fn parts_are_the_whole(
            rate in 1.0f64..2_000_000.0, second in 1.0f64..2_000_000.0, ms in 1u64..50,
            owners in proptest::collection::vec(0usize..3, 1..40), elapsed in 0u64..120_000_000
        ) {
            let d = Duration::from_millis(ms);
            let whole = Schedule::steps(&[(d, FrameRate(rate)), (d, FrameRate(second))]);
            let round = owners.len() as u64;
            let places = |owner| -> Vec<u64> { (0..round).filter(|place| owners[*place as usize] == owner).collect() };
            let parts: Vec<_> =
                (0..3).map(places).filter(|own| !own.is_empty()).map(|own| whole.part(own, round)).collect();
            let departures = |s: &Schedule| (0..s.total()).map(|i| s.departure(i)).collect::<Vec<_>>();
            let mut all: Vec<u64> = parts.iter().flat_map(departures).collect();
            all.sort_unstable();
            prop_assert_eq!(all, departures(&whole));
            prop_assert_eq!(parts.iter().map(|p| p.due(elapsed)).sum::<u64>(), whole.due(elapsed));
            let share: f64 = parts.iter().map(Schedule::peak_pps).sum();
            prop_assert!((share - whole.peak_pps()).abs() < 1e-6 * share.max(1.0));
            for part in parts {
                let due = part.due(elapsed);
                prop_assert!((0..due).all(|i| part.departure(i) <= elapsed));
                let mut many = vec![0; part.total() as usize];
                part.departures(0, &mut many);
                prop_assert_eq!(many, departures(&part));
                let mut ended = part.clone();
                ended.end_at(elapsed, 0);
                prop_assert_eq!((ended.total(), ended.due(u64::MAX)), (due, due));
            }
        }
    }

    #[test]
    fn a_schedule_that_ends_early_has_what_is_due_until_then() {
        let second = Duration::from_secs(1);
        let s = Schedule::steps(&[(second, FrameRate(1000.0)), (second, FrameRate(500.0))]);
        let ended = |elapsed_ns, at_least| {
            let mut s = s.clone();
            s.end_at(elapsed_ns, at_least);
            (s.total(), s.end_ns(), s.due(u64::MAX))
        };
        assert_eq!(ended(500_000_000, 0), (501, 500_000_000, 501));
        assert_eq!(ended(1_001_000_000, 0), (1001, 1_001_000_000, 1001));
        assert_eq!(ended(0, 0), (1, 0, 1));
        assert_eq!(ended(0, 700), (700, 0, 700), "these have left");
        assert_eq!(ended(3_000_000_000, 0), (1500, 2_000_000_000, 1500));
    }

    #[test]
    fn a_step_starts_where_the_one_before_ends() {
        let second = Duration::from_secs(1);
        let s = Schedule::steps(&[(second, FrameRate(1000.0)), (second, FrameRate(500.0))]);
        assert_eq!(
            (s.total(), s.departure(999), s.departure(1000), s.departure(1001)),
            (1500, 999_000_000, 1_000_000_000, 1_002_000_000)
        );
        assert_eq!(Schedule::burst(7, FrameRate(1e6)).departure(6), 6_000);
    }
}
