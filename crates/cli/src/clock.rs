//! A secret per run, the time of day, and a clock for displays with a line per second.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two lines.
const LINE: Duration = Duration::from_secs(1);
/// How often commands with such a display check for Ctrl-C.
pub const LOOK: Duration = Duration::from_millis(20);

/// A number that differs from run to run, so that a run does not accept frames of another run.
pub fn secret() -> u64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    nanos ^ u64::from(std::process::id()) << 40
}

/// Seconds since 1970.
pub fn seconds_since_1970() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u32::try_from(d.as_secs()).unwrap_or(u32::MAX))
}

/// Determines when the next line is due.
pub struct Lines {
    begun: Instant,
    /// Lines shown so far.
    shown: u32,
}

impl Lines {
    pub fn begin() -> Lines {
        Lines { begun: Instant::now(), shown: 0 }
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// True if a line is due. Lines that a delayed display missed are skipped.
    pub fn is_due(&mut self) -> bool {
        let elapsed = self.elapsed();
        let is_due = elapsed >= LINE * (self.shown + 1);
        if is_due {
            self.shown = (elapsed.as_nanos() / LINE.as_nanos()) as u32;
        }
        is_due
    }
}
