//! How long to wait for a router that advertises no more routes.

use drophammer_model::Instant;
use std::time::Duration;

/// A router that uses this share of a processor still works, although it advertises nothing. A large router reads all that it got from 1,500
/// neighbours before it advertises the first route.
const WORKS: f64 = 0.2;
/// How often the patience begins again for a router that works: it may also turn in circles.
const AGAIN: u32 = 15;

/// Counts the time since the last change.
pub(crate) struct Patience {
    limit: Duration,
    /// When the last change came.
    moved: Instant,
    /// When the time began that counts.
    since: Instant,
    /// The router's processor time in the middle of that time, and when it was read.
    middle: Option<(Instant, Duration)>,
    /// How often the time may begin again.
    left: u32,
}

impl Patience {
    pub(crate) fn new(now: Instant, limit: Duration) -> Patience {
        Patience { limit, moved: now, since: now, middle: None, left: AGAIN }
    }

    /// Notes a change.
    pub(crate) fn moved(&mut self, now: Instant) {
        *self = Patience::new(now, self.limit);
    }

    /// Time since the last change.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.since(self.moved)
    }

    /// True if the router has had its time: nothing changed, and its processor rested in the second half of it. `cpu` reads the processor
    /// time that the router has used, if that is known; it costs much, so it is called twice at most.
    pub(crate) fn is_over(&mut self, now: Instant, cpu: impl FnOnce() -> Option<Duration>) -> bool {
        let waited = now.since(self.since);
        if waited <= self.limit / 2 || self.middle.is_some() && waited <= self.limit {
            return false;
        }
        let used = cpu();
        let Some((at, before)) = self.middle else {
            self.middle = used.map(|used| (now, used));
            return used.is_none() && waited > self.limit;
        };
        let share = used.map_or(0.0, |used| used.saturating_sub(before).as_secs_f64() / now.since(at).as_secs_f64());
        if share < WORKS || self.left == 0 {
            return true;
        }
        *self = Patience { since: now, middle: None, left: self.left - 1, ..*self };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    /// The second at which patience ends, for a router whose processor time after some seconds is `cpu`.
    fn ends(cpu: impl Fn(u64) -> Option<Duration>) -> Option<u64> {
        let begun = Instant(0);
        let mut patience = Patience::new(begun, LIMIT);
        (1..1_000).find(|second| patience.is_over(begun + Duration::from_secs(*second), || cpu(*second)))
    }

    #[test]
    fn a_router_at_rest_or_unknown_gets_the_time_once() {
        assert_eq!(ends(|_| None), Some(21));
        assert_eq!(ends(|_| Some(Duration::from_secs(7))), Some(21));
        // A tenth of a processor, for KEEPALIVE messages.
        assert_eq!(ends(|second| Some(Duration::from_millis(second * 100))), Some(21));
    }

    #[test]
    fn a_router_that_works_gets_more_until_it_rests() {
        let busy_for = |busy| move |second: u64| Some(Duration::from_secs(second.min(busy)));
        assert_eq!(ends(busy_for(15)), Some(42));
        assert_eq!(ends(busy_for(100)), Some(126));
        assert_eq!(ends(busy_for(u64::MAX)), Some(21 * 16));
    }

    #[test]
    fn a_change_begins_anew() {
        let begun = Instant(0);
        let mut patience = Patience::new(begun, LIMIT);
        let at = |second| begun + Duration::from_secs(second);
        assert!(!patience.is_over(at(19), || None));
        patience.moved(at(19));
        assert!(!patience.is_over(at(39), || None));
        assert_eq!(patience.waited(at(39)), LIMIT);
        assert!(patience.is_over(at(40), || None));
    }
}
