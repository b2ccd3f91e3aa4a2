//! The line of a port with classes of service: frames wait in one queue per class, which the line serves in turns by
//! weight, or by strict priority.

use crate::classes::{Class, ClassCounters, Classes, Pace};
use crate::config::ConfigError;
use crate::faults::{ClassFaults, is_nth};
use drophammer_model::Instant;
use drophammer_model::classes::{EgressClasses, Scheduling, by_priority};
use std::collections::VecDeque;

/// What happened to a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// The last bit of the frame left the line at this instant.
    Out(Instant, T),
    /// The queue of the frame was full.
    Full(T),
    /// A fault dropped the frame ([`ClassFaults::drop_every`]).
    Fault(T),
}

/// A frame on its way from the server to the line.
struct Coming<T> {
    ready: Instant,
    dscp: u8,
    len: usize,
    frame: T,
}

/// The line; `T` is the caller's representation of a frame.
///
/// Events are computed on request, in chronological order: if a frame becomes ready at the instant when the service of
/// another frame ends, the line is free for it.
pub struct ClassLine<T> {
    classes: Classes<T>,
    names: Vec<String>,
    coming: VecDeque<Coming<T>>,
    last: Instant,
    faults: ClassFaults,
    /// Number of frames of the first class that have arrived so far.
    first: u64,
}

/// Divides all weights by their greatest common divisor, so that turns are as short as possible.
fn reduced(weights: Vec<u32>) -> Vec<u32> {
    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let divisor = weights.iter().copied().fold(0, gcd).max(1);
    weights.into_iter().map(|weight| weight / divisor).collect()
}

impl<T> ClassLine<T> {
    pub fn new(list: &EgressClasses, faults: ClassFaults) -> Result<ClassLine<T>, ConfigError> {
        if !(1..=1_000_000_000_000_000).contains(&list.rate.0) {
            return Err(ConfigError::Limit("rate of classes"));
        }
        let mut weights: Vec<u32> = list.classes.iter().map(|class| class.weight).collect();
        if let (Some(last), true) = (weights.last_mut(), faults.last_weight > 0) {
            *last = faults.last_weight;
        }
        let order = by_priority(&weights);
        let buffer = list.queue as usize;
        let of = |(class, weight): (&drophammer_model::classes::ServiceClass, u32)| Class {
            dscp: vec![class.dscp],
            weight,
            buffer,
            buffer_bytes: None,
        };
        let mut classes: Vec<Class> = list.classes.iter().zip(reduced(weights)).map(of).collect();
        if faults.ignored {
            let all = Class { dscp: Vec::new(), weight: 1, buffer: buffer * classes.len(), buffer_bytes: None };
            classes = vec![all];
        }
        let names = list.classes.iter().take(classes.len()).map(|class| class.name.clone()).collect();
        let in_turns = Classes::new(classes, Pace::Bits(list.rate.0))?;
        let classes = match list.scheduling {
            Scheduling::Priority if !faults.ignored => in_turns.in_order(order),
            _ => in_turns,
        };
        Ok(ClassLine { names, classes, coming: VecDeque::new(), last: Instant(0), faults, first: 0 })
    }

    /// Queues a frame of `len` bytes, FCS included, that is ready at `ready`. A frame that is ready before its
    /// predecessor waits for its predecessor.
    pub fn offer(&mut self, ready: Instant, dscp: u8, len: usize, frame: T) {
        self.last = self.last.max(ready);
        self.coming.push_back(Coming { ready: self.last, dscp, len, frame });
    }

    pub fn next_event(&self) -> Option<Instant> {
        let (ready, done) = (self.coming.front().map(|coming| coming.ready), self.classes.deadline());
        ready.into_iter().chain(done).min()
    }

    /// The next event at or before `now`.
    pub fn step(&mut self, now: Instant) -> Option<Step<T>> {
        loop {
            let ready = self.coming.front().map_or(Instant(u64::MAX), |coming| coming.ready);
            if self.classes.deadline().is_some_and(|done| done <= now && done <= ready) {
                return self.classes.next(now).map(|(at, frame)| Step::Out(at, frame));
            }
            if ready > now {
                return None;
            }
            let Coming { dscp, len, frame, .. } = self.coming.pop_front()?;
            let class = self.classes.of(dscp);
            self.first += u64::from(class == 0);
            if class == 0 && is_nth(self.first, self.faults.drop_every) {
                return Some(Step::Fault(frame));
            }
            if let Err(frame) = self.classes.offer(ready, class, len, frame) {
                return Some(Step::Full(frame));
            }
        }
    }

    /// All frames that are waiting or on the line.
    pub fn into_frames(self) -> impl Iterator<Item = T> {
        self.coming.into_iter().map(|coming| coming.frame).chain(self.classes.into_frames())
    }

    pub fn counters(&self) -> impl Iterator<Item = (&str, ClassCounters)> {
        self.names.iter().map(String::as_str).zip(self.classes.counters.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::Bandwidth;
    use drophammer_model::classes::{ServiceClass, WayOut};

    /// A line on which 84 bytes take 672 ns.
    fn line(weights: [u32; 3], queue: u32, faults: ClassFaults) -> ClassLine<u64> {
        line_by(Scheduling::Weights, weights, queue, faults)
    }

    fn line_by(scheduling: Scheduling, weights: [u32; 3], queue: u32, faults: ClassFaults) -> ClassLine<u64> {
        let names = ["gold", "silver", "bronze"].into_iter().zip([40, 24, 0]).zip(weights);
        let classes = names.map(|((name, dscp), weight)| ServiceClass { name: name.into(), dscp, weight }).collect();
        let (at, rate) = (WayOut::Port(0), Bandwidth(1_000_000_000));
        ClassLine::new(&EgressClasses { at, rate, queue, scheduling, classes }, faults).unwrap()
    }

    /// Offers one frame to each class every `every` ns, `rounds` times. Returns the number of frames of each class that
    /// have left, and the last instant.
    fn out(line: &mut ClassLine<u64>, every: u64, rounds: u64) -> ([u64; 3], Instant) {
        let (mut sum, mut last) = ([0; 3], Instant(0));
        let mut count = |line: &mut ClassLine<u64>, now: Instant| {
            while let Some(step) = line.step(now) {
                if let Step::Out(at, class) = step {
                    assert!(at <= now && at >= last, "in order of time");
                    last = at;
                    sum[class as usize] += 1;
                }
            }
        };
        for n in 0..rounds {
            // The classes take turns to be first; otherwise a single queue would always drop the last one.
            for class in (0..3).map(|i| (i + n) % 3) {
                line.offer(Instant(n * every), [40, 24, 0][class as usize], 64, class);
            }
            // Request events only occasionally; the result is the same.
            if n % 7 == 0 {
                count(line, Instant(n * every));
            }
        }
        count(line, Instant(rounds * every));
        (sum, last)
    }

    #[test]
    fn a_line_that_is_too_narrow_is_shared_by_weight() {
        // The load is 1.5 times what the line carries, and each class offers half of the line rate. Gold gets all that
        // it offers; silver and bronze share the rest four to one.
        let mut shared = line([70, 20, 5], 100, ClassFaults::default());
        let ([gold, silver, bronze], _) = out(&mut shared, 1_344, 10_000);
        let served = gold + silver + bronze;
        assert_eq!(served, 10_000 * 1_344 / 672);
        assert!(
            gold >= 9_999 && silver.abs_diff(8_000) <= 80 && bronze.abs_diff(2_000) <= 80,
            "{gold} {silver} {bronze}"
        );
        let counters: Vec<_> = shared.counters().collect();
        assert_eq!(counters[0], ("gold", ClassCounters { served: gold, dropped: 0 }));
        assert_eq!(counters[2].1.served, bronze);
        // The load is 3 times what the line carries, so each class gets a share by its weight.
        let ([gold, silver, bronze], last) = out(&mut line([70, 20, 5], 100, ClassFaults::default()), 672, 9_500);
        assert!(gold.abs_diff(7_000) <= 20 && silver.abs_diff(2_000) <= 20 && bronze.abs_diff(500) <= 20);
        assert_eq!((gold + silver + bronze, last), (9_500, Instant(9_500 * 672)));
    }

    #[test]
    fn with_priority_the_heaviest_class_is_served_alone() {
        let priority = |weights, faults| line_by(Scheduling::Priority, weights, 100, faults);
        // The load is 1.2 times what the line carries: gold and silver get all that they offer, and bronze gets the
        // rest.
        let ([gold, silver, bronze], _) = out(&mut priority([70, 20, 5], ClassFaults::default()), 1_680, 10_000);
        assert!(gold >= 9_999 && silver >= 9_999 && bronze.abs_diff(5_000) <= 110, "{gold} {silver} {bronze}");
        // The load is 3 times what the line carries: gold gets everything except the frame that was on the line when
        // its first frame arrived.
        let ([gold, silver, bronze], _) = out(&mut priority([70, 20, 5], ClassFaults::default()), 672, 9_500);
        assert!(gold >= 9_490 && silver + bronze <= 10, "{gold} {silver} {bronze}");
        // Faults also show with priority: the last class becomes the first, or there is only one class.
        let heavy = ClassFaults { last_weight: 100, ..ClassFaults::default() };
        let ([gold, _, bronze], _) = out(&mut priority([70, 20, 5], heavy), 672, 9_500);
        assert!(bronze >= 9_490 && gold <= 10, "{gold} {bronze}");
        let none = ClassFaults { ignored: true, ..ClassFaults::default() };
        let ([gold, silver, bronze], _) = out(&mut priority([70, 20, 5], none), 1_344, 9_000);
        assert!(gold < 6_300 && silver.max(bronze) < 6_300, "nobody is better off: {gold} {silver} {bronze}");
    }

    #[test]
    fn faults_change_the_shares() {
        let heavy = ClassFaults { last_weight: 10, ..ClassFaults::default() };
        let ([_, silver, bronze], _) = out(&mut line([70, 20, 5], 100, heavy), 1_344, 9_000);
        assert!((silver as f64 / bronze as f64 - 2.0).abs() < 0.05, "{silver} to {bronze}");
        let none = ClassFaults { ignored: true, ..ClassFaults::default() };
        let ([gold, silver, bronze], _) = out(&mut line([70, 20, 5], 100, none), 1_344, 9_000);
        assert!(gold < 6_300 && silver.max(bronze) < 6_300, "nobody is better off: {gold} {silver} {bronze}");
        let mut drops = line([70, 20, 5], 100, ClassFaults { drop_every: 100, ..ClassFaults::default() });
        drops.offer(Instant(0), 24, 64, 1);
        for n in 0..200 {
            drops.offer(Instant(n), 40, 64, 0);
        }
        let steps: Vec<Step<u64>> = std::iter::from_fn(|| drops.step(Instant(300))).collect();
        assert_eq!(steps.iter().filter(|step| **step == Step::Fault(0)).count(), 2);
        // 198 frames arrived at a queue of 100.
        assert_eq!(steps.iter().filter(|step| **step == Step::Full(0)).count(), 98);
        assert_eq!(drops.into_frames().count(), 101);
    }
}
