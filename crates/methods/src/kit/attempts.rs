//! Number of times that a spoilt trial is repeated.

use crate::testbed::{TestError, Testbed};
use drophammer_judge::held_up::by_host_alone;
use drophammer_model::trial::{TrialResult, Validity};
use std::time::Duration;

/// Maximum number of attempts spoilt by the tester itself. After that, a search retreats from a load that the tester
/// cannot offer.
const OWN: u32 = 3;
/// Maximum number of attempts if the host alone spoilt nearly all of them.
const ALL: u32 = 20;
/// Maximum number of attempts if each takes many seconds.
const FEW: u32 = 5;

/// Attempts at one trial.
#[derive(Debug)]
pub struct Attempts {
    number: u32,
    counted: u32,
    most: u32,
    since_s: Option<f64>,
}

impl Attempts {
    /// Call this before the first attempt and before its preparation.
    pub fn begin(bed: &mut (impl Testbed + ?Sized)) -> Attempts {
        Attempts { number: 1, counted: 0, most: ALL, since_s: bed.now_s() }
    }

    /// Like [`Attempts::begin`], for something that takes many seconds and is therefore repeated less often.
    pub fn few(bed: &mut (impl Testbed + ?Sized)) -> Attempts {
        Attempts { most: FEW, ..Attempts::begin(bed) }
    }

    /// Number of the current attempt, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns true if the attempt was valid. If not, the trial must be repeated.
    ///
    /// # Errors
    /// [`TestError::Unfit`] if no more attempts are allowed.
    pub fn passed(&mut self, bed: &mut (impl Testbed + ?Sized), result: &TrialResult) -> Result<bool, TestError> {
        let Validity::Invalid(reasons) = &result.validity else { return Ok(true) };
        if self.again(bed, reasons, result.elapsed_s) { Ok(false) } else { Err(TestError::Unfit(reasons.clone())) }
    }

    /// Returns true if an attempt that was spoilt for these reasons should be repeated. It took `elapsed_s` seconds on
    /// a bed without a clock.
    pub fn again(&mut self, bed: &mut (impl Testbed + ?Sized), reasons: &[String], elapsed_s: f64) -> bool {
        let now_s = bed.now_s();
        let took_s = now_s.zip(self.since_s).map_or(elapsed_s, |(now, since)| now - since);
        self.since_s = now_s;
        let took = Duration::try_from_secs_f64(took_s).unwrap_or_default();
        let excused = by_host_alone(reasons) && bed.may_repeat(took);
        self.counted += u32::from(!excused);
        if self.counted == OWN || self.number == self.most {
            return false;
        }
        self.number += 1;
        true
    }
}
