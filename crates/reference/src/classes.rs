//! Classes of service: one queue and buffer per class, selected by DSCP (RFC 2474), served in turns by weight. The
//! device has classes at its server or at the line of a port ([`crate::class_line`]).

use crate::config::ConfigError;
use crate::moment::Moment;
use drophammer_model::Instant;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A class. The server of the device takes up to `weight` frames of each class in turn, and skips empty queues. It
/// always finishes the frame in service first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Codepoints of its frames. Frames that match no class belong to the last one.
    pub dscp: Vec<u8>,
    /// Maximum number of frames per turn, at least 1.
    pub weight: u32,
    /// Maximum number of frames that are waiting or in service, at least 1; more are dropped (tail drop).
    pub buffer: usize,
    /// Total bytes of these frames, FCS included; `None` for no limit.
    pub buffer_bytes: Option<usize>,
}

/// Counters of a class's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCounters {
    /// Frames served.
    pub served: u64,
    /// Frames dropped because the buffer was full.
    pub dropped: u64,
}

struct Queue {
    class: Class,
    /// Frames waiting or in service.
    frames: usize,
    bytes: usize,
}

/// Service time of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// This many frames per second, regardless of their length.
    Frames(u64),
    /// The time on an Ethernet line with this many bits per second.
    Bits(u64),
}

impl Pace {
    fn denominator(self) -> u64 {
        match self {
            Pace::Frames(per_second) | Pace::Bits(per_second) => per_second,
        }
    }

    /// Service time of a frame of `len` bytes, FCS included.
    fn service(self, len: usize) -> Moment {
        match self {
            Pace::Frames(per_second) => Moment::ratio(1_000_000_000, per_second),
            Pace::Bits(per_second) => crate::egress::time_on_line(len, per_second),
        }
    }
}

/// The server with its queues; `T` is the caller's representation of a frame.
pub(crate) struct Classes<T> {
    queues: Vec<Queue>,
    waiting: Vec<VecDeque<(usize, T)>>,
    pub counters: Vec<ClassCounters>,
    pace: Pace,
    denominator: u64,
    /// Class, length, frame, end of service.
    current: Option<(usize, usize, T, Moment)>,
    /// The class whose turn it is, and the number of its frames that have been served in this turn.
    turn: (usize, u32),
    /// For strict priority: all classes in order. The first class with a waiting frame is served.
    order: Option<Vec<usize>>,
}

impl<T> Classes<T> {
    pub fn new(classes: Vec<Class>, pace: Pace) -> Result<Classes<T>, ConfigError> {
        if classes.iter().any(|c| c.weight == 0 || c.buffer == 0) {
            return Err(ConfigError::Limit("weight or buffer of a class"));
        }
        Ok(Classes {
            waiting: classes.iter().map(|_| VecDeque::new()).collect(),
            counters: vec![ClassCounters::default(); classes.len()],
            queues: classes.into_iter().map(|class| Queue { class, frames: 0, bytes: 0 }).collect(),
            pace,
            denominator: pace.denominator(),
            current: None,
            turn: (0, 0),
            order: None,
        })
    }

    /// Uses strict priority instead of turns: serves the first class in `order` that has a waiting frame. `order` must
    /// contain all classes.
    pub fn in_order(self, order: Vec<usize>) -> Classes<T> {
        Classes { order: Some(order), ..self }
    }

    /// The class of a codepoint.
    pub fn of(&self, dscp: u8) -> usize {
        let named = self.queues.iter().position(|q| q.class.dscp.contains(&dscp));
        named.unwrap_or(self.queues.len() - 1)
    }

    /// Takes a frame of `len` bytes. Before, call [`Classes::next`] for all frames until `now`. Returns the frame if
    /// there is no room for it.
    pub fn offer(&mut self, now: Instant, class: usize, len: usize, frame: T) -> Result<(), T> {
        let queue = &mut self.queues[class];
        let room = queue.class.buffer_bytes.is_none_or(|most| queue.bytes + len <= most);
        if queue.frames >= queue.class.buffer || !room {
            self.counters[class].dropped += 1;
            return Err(frame);
        }
        queue.frames += 1;
        queue.bytes += len;
        self.waiting[class].push_back((len, frame));
        if self.current.is_none() {
            self.start(Moment::at(now));
        }
        Ok(())
    }

    fn start(&mut self, at: Moment) {
        self.current = self.take_next().map(|(class, len, frame)| {
            let end = at.plus(self.pace.service(len), self.denominator);
            (class, len, frame, end)
        });
    }

    /// Takes the frame whose turn it is: its class, its length, and the frame.
    fn take_next(&mut self) -> Option<(usize, usize, T)> {
        if let Some(order) = &self.order {
            let class = *order.iter().find(|class| !self.waiting[**class].is_empty())?;
            let (len, frame) = self.waiting[class].pop_front()?;
            return Some((class, len, frame));
        }
        for _ in 0..=self.queues.len() {
            let (class, had) = self.turn;
            if had < self.queues[class].class.weight
                && let Some((len, frame)) = self.waiting[class].pop_front()
            {
                self.turn.1 += 1;
                return Some((class, len, frame));
            }
            self.turn = ((class + 1) % self.queues.len(), 0);
        }
        None
    }

    /// All frames that are waiting or in service.
    pub fn into_frames(self) -> impl Iterator<Item = T> {
        let waiting = self.waiting.into_iter().flatten().map(|(_, frame)| frame);
        self.current.into_iter().map(|(_, _, frame, _)| frame).chain(waiting)
    }

    /// End of service of the current frame.
    pub fn deadline(&self) -> Option<Instant> {
        self.current.as_ref().map(|c| c.3.ceil())
    }

    /// The next frame whose service ends at or before `now`, and the end of its service.
    pub fn next(&mut self, now: Instant) -> Option<(Instant, T)> {
        self.deadline().filter(|end| *end <= now)?;
        let (class, len, frame, end) = self.current.take()?;
        self.counters[class].served += 1;
        self.queues[class].frames -= 1;
        self.queues[class].bytes -= len;
        self.start(end);
        Some((end.ceil(), frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(dscp: &[u8], weight: u32, buffer: usize, buffer_bytes: Option<usize>) -> Class {
        Class { dscp: dscp.to_vec(), weight, buffer, buffer_bytes }
    }

    #[test]
    fn classes_are_served_by_weight_and_never_idle() {
        let list = vec![class(&[46], 3, 100, None), class(&[10, 12], 2, 100, None), class(&[], 1, 100, None)];
        let mut classes = Classes::new(list, Pace::Frames(3)).unwrap();
        assert_eq!([46, 10, 12, 0, 63].map(|d| classes.of(d)), [0, 1, 1, 2, 2]);
        for n in 0..12 {
            for c in 0..3 {
                classes.offer(Instant(0), c, 64, (c, n)).unwrap();
            }
        }
        let order: Vec<_> = std::iter::from_fn(|| classes.next(Instant(u64::MAX))).collect();
        let turns: Vec<usize> = order.iter().map(|(_, (c, _))| *c).collect();
        assert_eq!(turns[..12], [0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 1, 2]);
        // The first class is done after four turns; then the others share the rest.
        assert_eq!(turns[24..30], [1, 1, 2, 1, 1, 2]);
        assert_eq!(turns[30..], [2; 6]);
        assert!(
            order
                .iter()
                .enumerate()
                .all(|(i, (end, _))| end.0 == (i as u64 + 1) * 1_000_000_000 / 3 + u64::from(i % 3 != 2))
        );
        // The order is kept within each class.
        for c in 0..3 {
            let own: Vec<_> = order.iter().filter(|o| o.1.0 == c).map(|o| o.1.1).collect();
            assert_eq!(own, (0..12).collect::<Vec<_>>());
        }
    }

    #[test]
    fn with_priority_a_class_waits_for_all_before_it() {
        let list = vec![class(&[46], 1, 100, None), class(&[10], 1, 100, None), class(&[], 1, 100, None)];
        let mut classes = Classes::new(list, Pace::Frames(1_000)).unwrap().in_order(vec![1, 0, 2]);
        for n in 0..3 {
            for c in 0..3 {
                classes.offer(Instant(0), c, 64, (c, n)).unwrap();
            }
        }
        // The frame in service, which is of the first class, is finished first.
        let mut served = |n: usize| (0..n).filter_map(|_| classes.next(Instant(u64::MAX))).collect::<Vec<_>>();
        let turns = |served: Vec<(Instant, (usize, i32))>| served.iter().map(|(_, (c, _))| *c).collect::<Vec<_>>();
        assert_eq!(turns(served(5)), [0, 1, 1, 1, 0]);
        classes.offer(Instant(5_000_000), 1, 64, (1, 3)).unwrap();
        let rest: Vec<_> = std::iter::from_fn(|| classes.next(Instant(u64::MAX))).collect();
        assert_eq!(turns(rest.clone()), [0, 1, 2, 2, 2]);
        assert!(rest.iter().zip(6..).all(|((end, _), n)| end.0 == n * 1_000_000), "never idle: {rest:?}");
        assert_eq!(classes.deadline(), None);
    }

    #[test]
    fn each_class_has_its_own_room_in_frames_and_bytes() {
        let list = vec![class(&[46], 1, 3, None), class(&[], 1, 100, Some(300))];
        let mut classes = Classes::new(list, Pace::Frames(1_000_000)).unwrap();
        let taken = |classes: &mut Classes<()>, c: usize, len| {
            (0..10).filter(|_| classes.offer(Instant(0), c, len, ()).is_ok()).count()
        };
        assert_eq!((taken(&mut classes, 0, 1_500), taken(&mut classes, 1, 100)), (3, 3));
        assert_eq!(classes.counters.iter().map(|c| c.dropped).collect::<Vec<_>>(), [7, 7]);
        // After a microsecond one frame of the first class has been served, then one of the second, so there is room
        // for one of each.
        assert_eq!(classes.next(Instant(999)), None);
        assert!(classes.next(Instant(1_000)).is_some() && classes.next(Instant(2_000)).is_some());
        assert_eq!((taken(&mut classes, 0, 64), taken(&mut classes, 1, 101), taken(&mut classes, 1, 100)), (1, 0, 1));
        assert!(Classes::<()>::new(vec![class(&[], 0, 1, None)], Pace::Frames(1)).is_err());
    }
}
