//! Did the host hold the DUTs of a run up so often that they cannot be compared?

use crate::record::TrialRecord;
use crate::statistics::compare_failures;
use crate::trial::Validity;

/// How the reason of a trial begins that the host made invalid, and not the tester.
pub const HOST_BUSY: &str = "host busy";
/// Share of invalid trials above which a DUT is not compared.
const MOST: f64 = 0.2;
/// Probability below which the shares of two DUTs are not equal.
const UNEQUAL: f64 = 0.01;
/// Difference of two shares that matters. Among thousands of trials a smaller one is proven too, but invalid trials are repeated, and these are few.
const MATTERS: f64 = 0.05;

/// Trials of a DUT that the host made invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldUp {
    /// The DUT.
    pub dut: String,
    /// Trials that the host made invalid.
    pub invalid: usize,
    /// All trials, repeated ones too.
    pub trials: usize,
}

impl HeldUp {
    /// Void ones of all.
    pub fn share(&self) -> f64 {
        self.invalid as f64 / self.trials.max(1) as f64
    }
}

/// Of each of `duts`, in their order. The trials of others, such as those without a DUT, do not count.
pub fn held_up(duts: &[&str], trials: &[TrialRecord]) -> Vec<HeldUp> {
    let by_host = |trial: &TrialRecord| match &trial.result.validity {
        Validity::Valid => false,
        Validity::Invalid(reasons) => reasons.iter().any(|reason| reason.starts_with(HOST_BUSY)),
    };
    let of = |dut: &&str| {
        let own = trials.iter().filter(|trial| trial.dut == **dut);
        let (mut invalid, mut all) = (0, 0);
        own.for_each(|trial| (invalid, all) = (invalid + usize::from(by_host(trial)), all + 1));
        HeldUp { dut: (*dut).to_owned(), invalid, trials: all }
    };
    duts.iter().map(of).collect()
}

/// Why these DUTs are not to be ranked; `None` if they may be.
pub fn no_ranks(duts: &[HeldUp]) -> Option<String> {
    incomparable(duts).map(|why| format!("{why}; nothing is ranked"))
}

/// Why these DUTs, or one DUT in several runs, are not to be compared; `None` if they may be.
pub fn incomparable(duts: &[HeldUp]) -> Option<String> {
    let text = |one: &HeldUp| format!("{} of {} trials of {}", one.invalid, one.trials, one.dut);
    let too_many: Vec<&HeldUp> = duts.iter().filter(|one| one.share() > MOST).collect();
    if !too_many.is_empty() {
        let all: Vec<String> = too_many.into_iter().map(text).collect();
        return Some(format!("host busy: {} were invalid", all.join(", ")));
    }
    let pairs = duts.iter().enumerate().flat_map(|(i, a)| duts[i + 1..].iter().map(move |b| (a, b)));
    let count = duts.len() * duts.len().saturating_sub(1) / 2;
    for (a, b) in pairs {
        let matters = (a.share() - b.share()).abs() >= MATTERS;
        if matters && compare_failures((a.invalid, a.trials), (b.invalid, b.trials)) * (count as f64) < UNEQUAL {
            return Some(format!("host busy: {} were invalid, but {}: they had unequal conditions", text(a), text(b)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dut: &str, invalid: usize, trials: usize) -> HeldUp {
        HeldUp { dut: dut.into(), invalid, trials }
    }

    #[test]
    fn a_fifth_of_the_trials_is_the_limit() {
        assert_eq!(no_ranks(&[of("a", 20, 100), of("b", 18, 100)]), None);
        let why = no_ranks(&[of("a", 21, 100), of("b", 19, 100)]).expect("too many");
        assert_eq!(why, "host busy: 21 of 100 trials of a were invalid; nothing is ranked");
        assert_eq!(no_ranks(&[of("a", 0, 0)]), None, "without trials there is nothing to doubt");
    }

    #[test]
    fn unequal_conditions_are_no_comparison() {
        assert_eq!(no_ranks(&[of("a", 3, 100), of("b", 0, 100), of("c", 6, 100)]), None, "that is chance");
        // As many trials as suites of an hour have.
        assert_eq!(no_ranks(&[of("a", 4, 471), of("b", 5, 890), of("c", 8, 1_150)]), None, "that is chance");
        assert_eq!(no_ranks(&[of("a", 36, 982), of("b", 13, 883)]), None, "that does not matter");
        assert!(no_ranks(&[of("a", 98, 982), of("b", 13, 883)]).is_some());
        let why = no_ranks(&[of("a", 0, 100), of("b", 15, 100)]).expect("not chance");
        assert!(why.contains("15 of 100 trials of b") && why.contains("0 of 100 trials of a"), "{why}");
    }
}
