//! Limits how fast a delayed generator catches up.

/// A delayed generator sends at most this many times the requested rate, and no burst longer than [`CATCH_UP_BURST_NS`]
/// of load. A receive ring that copes with the load copes with that.
pub(super) const CATCH_UP_SPEED: f64 = 1.2;
/// Load that may leave in one burst, in ns.
pub(super) const CATCH_UP_BURST_NS: f64 = 200_000.0;
/// Frames that may leave in one burst, whatever the load.
pub(super) const CATCH_UP_FRAMES: f64 = 32.0;

/// A token bucket, filled at [`CATCH_UP_SPEED`] times the load: always full while the generator is on time.
pub(super) struct CatchUp {
    tokens: f64,
    capacity: f64,
    last_ns: u64,
}

impl CatchUp {
    pub(super) fn new(peak_pps: f64) -> CatchUp {
        let capacity = (peak_pps * CATCH_UP_BURST_NS / 1e9).max(CATCH_UP_FRAMES);
        CatchUp { tokens: capacity, capacity, last_ns: 0 }
    }

    /// Number of frames that may leave at `now_ns` at a requested rate of `rate_pps`.
    #[inline]
    pub(super) fn allow(&mut self, rate_pps: f64, now_ns: u64) -> u64 {
        let elapsed = now_ns.saturating_sub(self.last_ns) as f64;
        self.last_ns = now_ns;
        self.tokens = (self.tokens + elapsed * rate_pps * CATCH_UP_SPEED / 1e9).min(self.capacity);
        self.tokens as u64
    }

    #[inline]
    pub(super) fn take(&mut self, frames: usize) {
        self.tokens -= frames as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_generator_catches_up_a_little_faster_than_asked_for() {
        // 1 Mfps: the bucket holds 200 frames. After a gap of 10 ms (10,000 frames late) a look every 10 µs.
        let mut bucket = CatchUp::new(1e6);
        let mut sent = 0u64;
        let mut late = 10_000u64;
        let mut looks = 0;
        while late > 0 {
            let now = 10_000_000 + looks * 10_000;
            late += if looks == 0 { 0 } else { 10 };
            let frames = bucket.allow(1e6, now).min(late);
            assert!(frames <= 200);
            bucket.take(frames as usize);
            sent += frames;
            late -= frames;
            looks += 1;
        }
        // 200 at once, then 12 per look where 10 are due: 9,800 / 2 looks, 49 ms.
        assert!((4_890..=4_910).contains(&looks), "{looks} looks");
        assert_eq!(sent, 10_000 + (looks - 1) * 10);
    }
}
