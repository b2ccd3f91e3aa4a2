//! A secret per run.

use std::time::{SystemTime, UNIX_EPOCH};

/// A number that differs from run to run, so that frames of one run are not taken for those of another.
pub fn secret() -> u64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    nanos ^ u64::from(std::process::id()) << 40
}
