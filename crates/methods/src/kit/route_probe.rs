//! Probes: one frame to each of many routes, repeated until all of them arrive. They show that a router forwards to
//! routes that it may have advertised earlier (RFC 7747 section 5.1).

use crate::route_tests::{patience, thousands};
use crate::route_traffic::{self, RouteTrial, Stream, smallest};
use crate::testbed::{TestError, Testbed};
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, TrialResult};
use std::ops::Range;

/// Number of consecutive probes of all routes that must arrive completely.
pub const CLEAN: u32 = 2;
/// The load of a probe is at least this share of the test's load, so that a probe of all routes takes at most
/// [`PROBE_S`] if the test's load permits that.
const PROBE_SHARE: f64 = 0.1;
const PROBE_S: f64 = 2.0;
/// A sample has this share of the routes, in [`PIECES`] pieces from all over the table. It must be small, because the
/// frames take processor time from a router that is installing routes.
const SAMPLE: f64 = 1.0 / 16.0;
const PIECES: u32 = 8;

/// Frames to routes to which the DUT must forward.
pub struct Probe {
    /// Family of the routes.
    pub family: Family,
    /// Streams of frames; the frames of a stream must arrive at its port.
    pub streams: Vec<Stream>,
    /// Load of the test per sending port; a probe has a lower load.
    pub rate: FrameRate,
    /// True to count frames for each route.
    pub per_route: bool,
}

impl Probe {
    /// Sends probes until [`CLEAN`] probes in a row have lost nothing. After a probe of all routes that lost frames, it
    /// sends samples until one of them loses nothing. Returns the last result if the loss did not shrink for the
    /// patience of the test.
    ///
    /// # Errors
    /// Errors of a trial.
    pub fn comes_through(&self, bed: &mut dyn Testbed, params: &Params) -> Result<Option<TrialResult>, TestError> {
        let patience_s = patience(params).as_secs_f64();
        let (all, sample) = (self.trial(self.streams.clone()), self.trial(self.sample()));
        let (mut clean, mut sampling) = (0, false);
        // The smallest loss of all routes and of a sample, and when the loss last shrank.
        let (mut least, mut moved_s) = ([u64::MAX; 2], bed.routing()?.now_s());
        loop {
            let result = route_traffic::run(bed, params, if sampling { &sample } else { &all }, |_| Ok(()))?;
            let lost = result.lost() + result.sum(|group| group.stray);
            let now_s = bed.routing()?.now_s();
            let before = &mut least[usize::from(sampling)];
            if lost < *before {
                (*before, moved_s) = (lost, now_s);
            }
            let stuck = lost > 0 && now_s - moved_s > patience_s;
            if stuck && !sampling {
                return Ok(Some(result));
            }
            clean = if lost == 0 && !sampling { clean + 1 } else { 0 };
            if clean == CLEAN {
                return Ok(None);
            }
            sampling = lost > 0 && !stuck;
        }
    }

    /// A few routes of each stream, spread over its whole range.
    fn sample(&self) -> Vec<Stream> {
        let pieces = |stream: &Stream| {
            let stream = stream.clone();
            sample_of(&stream.part).into_iter().map(move |part| Stream { part, ..stream.clone() })
        };
        self.streams.iter().flat_map(pieces).collect()
    }

    /// One frame to each route of these streams.
    fn trial(&self, streams: Vec<Stream>) -> RouteTrial {
        let family = self.family;
        let routes: u64 = streams.iter().map(|stream| stream.part.len() as u64).sum();
        let frames = |streams: &[Stream]| {
            let of = |port| streams.iter().filter(|s| s.from == port).map(|s| s.part.len()).sum::<usize>();
            streams.iter().map(|stream| of(stream.from)).max().unwrap_or(0) as f64
        };
        let load = self.rate.pps();
        let rate = (load * PROBE_SHARE).max(frames(&self.streams) / PROBE_S).min(load);
        RouteTrial {
            purpose: format!("probe of {} {family} routes", thousands(routes)),
            size: smallest(family),
            rate: FrameRate(rate),
            // One frame to each route; the extra half frame compensates for rounding.
            duration_s: (frames(&streams) + 0.5) / rate,
            streams,
            bin_s: None,
            per_route: self.per_route,
            changes: Vec::new(),
        }
    }
}

/// Returns [`PIECES`] pieces of a part, with [`SAMPLE`] of its routes in total and at least one route in each. The last
/// route is always included.
fn sample_of(part: &Range<u32>) -> Vec<Range<u32>> {
    let count = part.len() as u64;
    let pieces = u64::from(PIECES).min(count);
    let end = |piece: u64| part.start + (count * (piece + 1) / pieces) as u32;
    let length = |piece: u64| (f64::from(end(piece) - part.start) - (count * piece / pieces) as f64) * SAMPLE;
    (0..pieces).map(|piece| end(piece) - (length(piece).ceil() as u32).max(1)..end(piece)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_comes_from_all_over_a_part_and_has_its_last_route() {
        let pieces = sample_of(&(1_000..17_000));
        assert_eq!(pieces.len(), 8);
        assert_eq!(pieces.first(), Some(&(2_875..3_000)));
        assert_eq!(pieces.last(), Some(&(16_875..17_000)));
        assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), 1_000);
        // A part with fewer routes than pieces, and an empty one.
        assert_eq!(sample_of(&(5..8)), [5..6, 6..7, 7..8]);
        assert_eq!(sample_of(&(5..5)), []);
    }
}
