//! Latency of a set of frames, as stored and reported.

use serde::{Deserialize, Serialize};

/// Latency of the frames of one group in one trial, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Number of frames; 0 means that nothing arrived and every other field is 0.
    pub frames: u64,
    /// Smallest latency.
    pub min_ns: u64,
    /// Arithmetic mean (from the exact sum, not from the histogram).
    pub mean_ns: f64,
    /// Largest latency.
    pub max_ns: u64,
    /// `(percentile, latency in ns)` with three significant digits, ascending; see [`PERCENTILES`].
    pub percentiles: Vec<(f64, u64)>,
}

/// The percentiles in every summary.
pub const PERCENTILES: [f64; 14] =
    [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0];

/// Inter-packet delay variation of the frames of one group in one trial (RFC 8219 section 7.3.2): the latency of a
/// frame minus that of the previous frame of its flow.
///
/// A pair counts if the second frame arrived directly after the first one; frames of other flows may arrive in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpdvSummary {
    /// Number of pairs; 0 means that every other field is 0.
    pub pairs: u64,
    /// Smallest variation, in ns.
    pub min_ns: i64,
    /// Median variation, in ns, with three significant digits.
    pub median_ns: i64,
    /// Largest variation, in ns.
    pub max_ns: i64,
}

impl LatencySummary {
    /// Latency at `percentile` in ns, if it is stored.
    pub fn percentile(&self, percentile: f64) -> Option<u64> {
        self.percentiles.iter().find(|(p, _)| (p - percentile).abs() < 1e-9).map(|(_, ns)| *ns)
    }
}
