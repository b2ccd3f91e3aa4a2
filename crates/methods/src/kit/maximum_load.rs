//! Trials at the highest load that the tester can offer (RFC 2285 section 3.5.3), for tests that combine it with other
//! loads.

use crate::pattern::{Pattern, RETREAT, RETREATS, load_was_too_high};
use crate::testbed::{TestError, Testbed};
use drophammer_model::quantity::FrameRate;

/// Runs a trial with line rate as the limit of its load, or with the highest limit that the tester can offer validly.
/// Returns the result of `run`, and the limit.
///
/// # Errors
/// Errors of `run`; [`TestError::Unfit`] if every limit was too high.
pub(crate) fn at_maximum<T>(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    mut run: impl FnMut(&mut dyn Testbed, FrameRate) -> Result<T, TestError>,
) -> Result<(T, FrameRate), TestError> {
    let limits = pattern.limits(bed);
    let mut limit = bed.known().highest.maximum.get(&pattern.key()).copied().unwrap_or(limits.line);
    let mut retreats = 0;
    loop {
        match run(bed, limit) {
            Err(TestError::Unfit(why)) if retreats < RETREATS => {
                retreats += 1;
                // Line rate can be far higher than what the tester can offer.
                let highest = limits.ceiling.map_or(limit, |c| FrameRate(c.pps().min(limit.pps())));
                limit = highest.scaled(RETREAT);
                if load_was_too_high(&why) {
                    bed.known().highest.maximum.insert(pattern.key(), limit);
                }
            }
            other => return other.map(|done| (done, limit)),
        }
    }
}
