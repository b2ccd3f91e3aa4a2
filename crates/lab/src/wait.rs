//! Waiting for a condition: the only place in the lab that sleeps, and only between two checks.

use crate::LabError;
use std::time::{Duration, Instant};

/// Time between two checks.
const STEP: Duration = Duration::from_millis(5);

/// Result of a check.
pub(crate) enum Look<T> {
    /// The condition is met.
    Ready(T),
    /// The condition is not met yet, for this reason.
    NotYet(String),
}

/// Checks until the condition is met. Fails with [`LabError::Stopped`] as soon as `stop` returns true, with
/// [`LabError::NotReady`] and the last reason after `limit`, and with any error of `look`.
pub(crate) fn until<T>(
    limit: Duration,
    stop: &dyn Fn() -> bool,
    mut look: impl FnMut() -> Result<Look<T>, LabError>,
) -> Result<T, LabError> {
    let start = Instant::now();
    loop {
        let reason = match look()? {
            Look::Ready(value) => return Ok(value),
            Look::NotYet(reason) => reason,
        };
        if stop() {
            return Err(LabError::Stopped);
        }
        if start.elapsed() >= limit {
            let seconds = start.elapsed().as_secs_f64();
            return Err(LabError::NotReady { condition: reason, seconds, log: String::new() });
        }
        std::thread::sleep(STEP);
    }
}

/// Like [`until`]: waits while `look` returns a message about what is still missing.
pub(crate) fn while_missing(
    limit: Duration,
    stop: &dyn Fn() -> bool,
    mut look: impl FnMut() -> Result<Option<String>, LabError>,
) -> Result<(), LabError> {
    until(limit, stop, || Ok(look()?.map_or(Look::Ready(()), Look::NotYet)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_at_the_third_look() {
        let mut looks = 0;
        let found = until(Duration::from_secs(5), &|| false, || {
            looks += 1;
            Ok(if looks == 3 { Look::Ready(looks) } else { Look::NotYet("few looks".into()) })
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn the_last_reason_is_told() {
        let error = while_missing(Duration::ZERO, &|| false, || Ok(Some("no carrier on d0".into()))).unwrap_err();
        assert!(error.to_string().contains("no carrier on d0"), "{error}");
    }

    #[test]
    fn stop_ends_the_wait() {
        let error = while_missing(Duration::from_secs(60), &|| true, || Ok(Some(String::new()))).unwrap_err();
        assert!(matches!(error, LabError::Stopped));
    }
}
