//! Deadlines of many LSPs in one heap, and random times.

use super::lsp::{Lsp, NEVER};
use drophammer_model::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Deadlines by number. Entries that no longer count are skipped when they are due.
#[derive(Default)]
pub(super) struct Deadlines(BinaryHeap<Reverse<(Instant, u32)>>);

impl Deadlines {
    /// The earliest entry.
    pub fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Adds an entry for the LSP if its deadline is earlier than its present entry.
    pub fn schedule(&mut self, number: u32, all: &mut [Lsp]) {
        let lsp = &mut all[number as usize];
        let at = lsp.next.min(lsp.expires);
        if at >= lsp.due {
            return;
        }
        lsp.due = at;
        self.0.push(Reverse((at, number)));
        // Deadlines that keep moving leave old entries behind.
        if self.0.len() > 64 + 2 * all.len() {
            self.0 = (0..).zip(all.iter()).filter(|(_, l)| l.due != NEVER).map(|(i, l)| Reverse((l.due, i))).collect();
        }
    }

    /// Takes an LSP whose entry is due. The caller schedules it again.
    pub fn pop(&mut self, now: Instant, all: &mut [Lsp]) -> Option<u32> {
        while let Some(Reverse((at, number))) = self.0.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.0.pop();
            let lsp = &mut all[number as usize];
            if lsp.due == at {
                lsp.due = NEVER;
                return Some(number);
            }
        }
        None
    }
}

/// Times of refreshes (RFC 2205 section 3.7).
pub(super) struct Jitter {
    random: u64,
    period: Duration,
    /// Share of the period in percent.
    percent: u8,
}

impl Jitter {
    pub fn new(seed: u64, period: Duration, percent: u8) -> Jitter {
        Jitter { random: seed, period, percent }
    }

    /// A random number: SplitMix64.
    pub fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.random;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Time to the next refresh.
    pub fn refresh(&mut self) -> Duration {
        if self.percent == 0 {
            return self.period;
        }
        let share = f64::from(self.percent) / 100.0;
        let fraction = f64::from((self.random() >> 32) as u32) / f64::from(u32::MAX);
        self.period.mul_f64(1.0 - share + 2.0 * share * fraction)
    }
}

/// Lifetime of state that is refreshed every `period` ms (RFC 2205 section 3.7).
pub(super) fn lifetime(keep_multiplier: u8, period: u32) -> Duration {
    // (K + 0.5) * 1.5 is (2 K + 1) * 3 / 4.
    Duration::from_millis((2 * u64::from(keep_multiplier) + 1) * 3 * u64::from(period) / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_those_of_the_rfc() {
        assert_eq!(lifetime(3, 30_000), Duration::from_millis(157_500));
        assert_eq!(lifetime(0, 1000), Duration::from_millis(750));
    }

    #[test]
    fn refreshes_are_spread_over_half_to_one_and_a_half_periods() {
        let mut jitter = Jitter::new(1, Duration::from_secs(30), 50);
        let mut times: Vec<_> = (0..1000).map(|_| jitter.refresh()).collect();
        times.sort();
        assert!(times[0] >= Duration::from_secs(15) && times[0] < Duration::from_millis(15_100));
        assert!(times[999] <= Duration::from_secs(45) && times[999] > Duration::from_millis(44_900));
        let mean = times.iter().sum::<Duration>() / 1000;
        assert!(mean.abs_diff(Duration::from_secs(30)) < Duration::from_secs(1), "{mean:?}");
        assert_eq!(Jitter::new(1, Duration::from_secs(30), 0).refresh(), Duration::from_secs(30));
    }

    #[test]
    fn deadlines_that_move_do_not_pile_up() {
        let (mut deadlines, mut all) = (Deadlines::default(), vec![Lsp::IDLE; 2]);
        for at in (1..10_000).rev() {
            all[1].next = Instant(at);
            deadlines.schedule(1, &mut all);
        }
        assert!(deadlines.0.len() <= 68, "{}", deadlines.0.len());
        assert_eq!((deadlines.pop(Instant(0), &mut all), deadlines.pop(Instant(1), &mut all)), (None, Some(1)));
        assert_eq!((deadlines.pop(Instant(99_999), &mut all), deadlines.next()), (None, None));
    }
}
