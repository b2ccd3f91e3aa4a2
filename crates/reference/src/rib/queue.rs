//! From the best path to the forwarding table: a queue of changes, each with its instant.

use drophammer_model::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Pending changes of the forwarding table, in order. A change that is added at `t` is done at
/// `max(t + delay, previous + each)`: of many changes at the same instant, the first is done after `delay`, and each of
/// the others `each` after the one before.
#[derive(Clone, Debug)]
pub struct FibQueue<T> {
    delay: Duration,
    each: Duration,
    waiting: VecDeque<(Instant, T)>,
    /// The time when the latest change is done, even if it has left the queue.
    last: Option<Instant>,
}

impl<T> FibQueue<T> {
    pub fn new(delay: Duration, each: Duration) -> FibQueue<T> {
        FibQueue { delay, each, waiting: VecDeque::new(), last: None }
    }

    /// Adds a change at `now`; returns the time when it will be done.
    pub fn push(&mut self, now: Instant, change: T) -> Instant {
        let at = (now + self.delay).max(self.last.map_or(Instant(0), |last| last + self.each));
        self.last = Some(at);
        self.waiting.push_back((at, change));
        at
    }

    /// Takes the next change that is done at or before `now`, with its instant.
    pub fn take(&mut self, now: Instant) -> Option<(Instant, T)> {
        self.waiting.pop_front_if(|(at, _)| *at <= now)
    }

    /// The time when the last pending change is done; `None` if none is pending.
    pub fn end(&self) -> Option<Instant> {
        self.waiting.back().map(|w| w.0)
    }

    pub fn backlog(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(queue: &mut FibQueue<u32>) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| queue.take(Instant(u64::MAX))).map(|(at, n)| (at.0, n)).collect()
    }

    #[test]
    fn the_first_takes_the_delay_and_each_further_one_its_time() {
        let mut queue = FibQueue::new(Duration::from_nanos(1_000), Duration::from_nanos(7));
        let done: Vec<_> = (0..3).map(|n| queue.push(Instant(50), n).0).collect();
        assert_eq!(done, [1_050, 1_057, 1_064]);
        assert_eq!((queue.backlog(), queue.end()), (3, Some(Instant(1_064))));
        assert_eq!(queue.take(Instant(1_049)), None);
        assert_eq!(queue.take(Instant(1_050)), Some((Instant(1_050), 0)));
        // In a busy queue, the delay is over before it is a change's turn; in an idle queue, the delay applies again.
        assert_eq!(queue.push(Instant(60), 3).0, 1_071);
        assert_eq!(queue.push(Instant(2_000), 4).0, 3_000);
        assert_eq!(times(&mut queue), [(1_057, 1), (1_064, 2), (1_071, 3), (3_000, 4)]);
        assert_eq!((queue.backlog(), queue.end()), (0, None));
        let mut at_once = FibQueue::new(Duration::ZERO, Duration::ZERO);
        assert_eq!((0..3).map(|n| at_once.push(Instant(9), n).0).collect::<Vec<_>>(), [9, 9, 9]);
    }

    proptest! {
        #[test]
        fn changes_keep_their_order_and_their_distance(
            delay in 0u64..1_000, each in 0u64..100, steps in proptest::collection::vec(0u64..200, 1..200),
        ) {
            let mut queue = FibQueue::new(Duration::from_nanos(delay), Duration::from_nanos(each));
            let mut now = 0;
            let mut expected: Vec<u64> = Vec::new();
            for (n, step) in steps.iter().enumerate() {
                now += step;
                queue.push(Instant(now), n as u32);
                expected.push(expected.last().map_or(now + delay, |last| (now + delay).max(last + each)));
            }
            let expected: Vec<_> = expected.into_iter().zip(0u32..).collect();
            prop_assert_eq!(times(&mut queue), expected);
        }
    }
}
