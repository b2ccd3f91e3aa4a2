//! When a router was sending routes.

use drophammer_model::Instant;
use std::collections::VecDeque;

/// Number of periods that are remembered.
const MOST: usize = 64;

/// The last periods in which a router had routes to send, or the DUT's TCP had not acknowledged all of them.
#[derive(Debug, Default)]
pub struct Sending {
    since: Option<Instant>,
    periods: VecDeque<(Instant, Instant)>,
}

impl Sending {
    /// There are routes to send at `now`.
    pub fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Everything has been acknowledged at `now`.
    pub fn end(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            if self.periods.len() == MOST {
                self.periods.pop_front();
            }
            self.periods.push_back((since, now));
        }
    }

    /// Begin and end of each period, the oldest first.
    pub fn periods(&self) -> impl DoubleEndedIterator<Item = (Instant, Instant)> + ExactSizeIterator + '_ {
        self.periods.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_lasts_from_the_first_route_to_the_last_acknowledgment() {
        let mut sending = Sending::default();
        sending.end(Instant(1));
        for n in 0..100 {
            sending.begin(Instant(10 * n));
            sending.begin(Instant(10 * n + 1));
            sending.end(Instant(10 * n + 5));
            sending.end(Instant(10 * n + 6));
        }
        let periods: Vec<_> = sending.periods().collect();
        assert_eq!(
            (periods.len(), periods[0], periods[63]),
            (64, (Instant(360), Instant(365)), (Instant(990), Instant(995)))
        );
    }
}
