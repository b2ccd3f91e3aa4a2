//! Number of present routes over time, in a bounded number of samples.

use drophammer_model::Instant;

/// Maximum number of samples.
const MOST: usize = 4096;
/// Initial interval between samples in ns.
const FIRST_INTERVAL: u64 = 100_000;

/// Samples at intervals that double when there are too many; the last sample is always the current value.
#[derive(Clone, Debug)]
pub(super) struct Skyline {
    samples: Vec<(Instant, u32)>,
    interval: u64,
}

impl Default for Skyline {
    fn default() -> Skyline {
        Skyline { samples: Vec::new(), interval: FIRST_INTERVAL }
    }
}

impl Skyline {
    /// Records that `present` routes are present from `now` on.
    #[inline]
    pub fn record(&mut self, now: Instant, present: u32) {
        let n = self.samples.len();
        if let Some(before) = n.checked_sub(2).map(|at| self.samples[at].0) {
            // The last sample is replaced until it is far enough from the one before.
            let last = &mut self.samples[n - 1];
            if last.0.0 < before.0.saturating_add(self.interval) {
                *last = (now, present);
                return;
            }
        }
        if let Some(last) = self.samples.last_mut().filter(|last| last.0 == now) {
            last.1 = present;
            return;
        }
        if n == MOST {
            self.interval *= 2;
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.samples.push((now, present));
    }

    /// The samples, in order of time.
    pub fn samples(&self) -> &[(Instant, u32)] {
        &self.samples
    }

    pub fn clear(&mut self) {
        *self = Skyline::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_in_order_and_up_to_date() {
        let mut skyline = Skyline::default();
        for n in 1..=3_000_000u32 {
            skyline.record(Instant(u64::from(n) * 1_000), n);
        }
        let samples = skyline.samples();
        assert!((MOST / 4..=MOST).contains(&samples.len()), "{}", samples.len());
        assert!(samples.is_sorted() && samples.iter().all(|(at, n)| at.0 == u64::from(*n) * 1_000));
        assert_eq!(samples.last(), Some(&(Instant(3_000_000_000), 3_000_000)));
    }
}
