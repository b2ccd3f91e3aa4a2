//! Trial input and trial output (RFC 9971 sections 4.4 and 4.5) and the measurer that turns one into the other.

/// Result of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Intended duration in seconds, as requested.
    pub duration_s: f64,
    /// Duration in seconds that counts for the search: the intended duration, plus the overhead if overhead counts as
    /// trial time.
    pub effective_duration_s: f64,
    /// Intended frames, over all sending ports.
    pub intended: u64,
    /// Frames that arrived.
    pub received: u64,
    /// Measured offered load per sending port in fps.
    pub offered_pps: f64,
    /// Number of the trial in the run, so that readers can find it; arbitrary outside a run.
    pub trial: u64,
}

impl Measurement {
    /// Trial loss ratio, 0 to 1. Intended frames that were never sent count as lost, so a load that the tester could
    /// not offer does not pass.
    pub fn loss_ratio(&self) -> f64 {
        if self.intended == 0 {
            return 0.0;
        }
        self.intended.saturating_sub(self.received) as f64 / self.intended as f64
    }
}

/// Runs trials. Closures `|duration_s, load_pps| -> Result<Measurement, E>` are measurers.
pub trait Measurer {
    /// Error that ends a measurement.
    type Error;

    /// Runs one trial of `duration_s` seconds at `load_pps` frames per second per sending port.
    ///
    /// # Errors
    /// Errors of the trial; the search then ends with its results so far.
    fn measure(&mut self, duration_s: f64, load_pps: f64) -> Result<Measurement, Self::Error>;
}

impl<F, E> Measurer for F
where
    F: FnMut(f64, f64) -> Result<Measurement, E>,
{
    type Error = E;

    fn measure(&mut self, duration_s: f64, load_pps: f64) -> Result<Measurement, E> {
        self(duration_s, load_pps)
    }
}
