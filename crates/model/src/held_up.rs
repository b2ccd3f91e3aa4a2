//! Whether the host delayed the DUTs of a run so often that they cannot be compared.

use crate::record::TrialRecord;
use crate::statistics::compare_failures;
use crate::trial::Validity;

/// Start of the reason of a trial that the host, not the tester, made invalid.
pub const HOST_BUSY: &str = "host busy";
/// Share of invalid trials above which a DUT is not compared as usual.
const MOST: f64 = 0.2;
/// Share of invalid trials above which it is not compared at all.
const HOPELESS: f64 = 0.5;
/// Probability below which the shares of two DUTs are taken as different.
const UNEQUAL: f64 = 0.01;
/// Smallest difference of two shares that matters. With thousands of trials smaller ones are significant too, but the
/// few additional invalid trials are repeated anyway.
const MATTERS: f64 = 0.05;

/// Trials of a DUT that the host made invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldUp {
    /// The DUT.
    pub dut: String,
    /// Trials that the host made invalid.
    pub invalid: usize,
    /// All trials, including repeated ones.
    pub trials: usize,
}

impl HeldUp {
    /// Share of invalid trials.
    pub fn share(&self) -> f64 {
        self.invalid as f64 / self.trials.max(1) as f64
    }
}

/// Counts for each of `duts`, in their order. Other trials, such as those without a DUT, do not count.
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

/// How a DUT of a run may be compared with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fairness {
    /// Without restrictions.
    Fair,
    /// The host made more of its trials invalid than chance allows. The disturbance of each valid trial is still within
    /// its limits, so rates that differ by more than [`DISTURBANCE`] may be compared, and nothing else.
    Rates,
    /// Not at all: the host made most of its trials invalid.
    No,
}

/// Share by which the host may lower a rate in a valid trial, at most: the sum of a quick trial's limits for the time
/// that a hypervisor takes from the tester and from the DUT, and for the time that the DUT waits for its processor.
pub const DISTURBANCE: f64 = 0.2;

/// How each of these DUTs may be compared, in their order.
pub fn fairness(duts: &[HeldUp]) -> Vec<Fairness> {
    let pairs = duts.len() * duts.len().saturating_sub(1) / 2;
    let unequal = |a: &HeldUp, b: &HeldUp| {
        let matters = a.share() - b.share() >= MATTERS;
        matters && compare_failures((a.invalid, a.trials), (b.invalid, b.trials)) * (pairs as f64) < UNEQUAL
    };
    let of = |dut: &HeldUp| match dut.share() {
        share if share > HOPELESS => Fairness::No,
        share if share > MOST || duts.iter().any(|other| unequal(dut, other)) => Fairness::Rates,
        _ => Fairness::Fair,
    };
    duts.iter().map(of).collect()
}

/// The restrictions on comparisons in a run of these DUTs; `None` if there are none.
pub fn restrictions(duts: &[HeldUp]) -> Option<String> {
    let fairness = fairness(duts);
    let of = |which: Fairness| {
        let those = duts.iter().zip(&fairness).filter(|(_, fairness)| **fairness == which);
        those.map(|(dut, _)| text(dut)).collect::<Vec<_>>().join(", ")
    };
    let (rates, no) = (of(Fairness::Rates), of(Fairness::No));
    let mut parts = Vec::new();
    if !no.is_empty() {
        parts.push(format!("{no} were invalid, so nothing of it is ranked"));
    }
    if !rates.is_empty() {
        let percent = DISTURBANCE * 100.0;
        parts.push(format!(
            "{rates} were invalid, so it is ranked only by rates that differ by more than {percent:.0} %"
        ));
    }
    (!parts.is_empty()).then(|| format!("host busy: {}", parts.join("; ")))
}

fn text(one: &HeldUp) -> String {
    format!("{} of {} trials of {}", one.invalid, one.trials, one.dut)
}

/// Why these DUTs, or one DUT in several runs, must not be compared; `None` if they may be.
pub fn incomparable(duts: &[HeldUp]) -> Option<String> {
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
        let busy = [of("a", 21, 100), of("b", 19, 100)];
        assert_eq!(fairness(&[of("a", 20, 100), of("b", 18, 100)]), [Fairness::Fair; 2]);
        assert_eq!(fairness(&busy), [Fairness::Rates, Fairness::Fair]);
        let why = restrictions(&busy).expect("too many");
        let rates = "so it is ranked only by rates that differ by more than 20 %";
        assert_eq!(why, format!("host busy: 21 of 100 trials of a were invalid, {rates}"));
        assert_eq!(incomparable(&busy), Some("host busy: 21 of 100 trials of a were invalid".into()));
        assert_eq!(restrictions(&[of("a", 0, 0)]), None, "without trials there is nothing to doubt");
    }

    #[test]
    fn a_dut_whose_trials_were_mostly_invalid_is_not_compared() {
        let duts = [of("a", 51, 100), of("b", 50, 100)];
        assert_eq!(fairness(&duts), [Fairness::No, Fairness::Rates]);
        let why = restrictions(&duts).expect("too many");
        assert!(why.contains("51 of 100 trials of a were invalid, so nothing of it is ranked; 50 of 100"), "{why}");
    }

    #[test]
    fn unequal_conditions_are_no_fair_comparison() {
        let fair =
            |duts: &[HeldUp]| fairness(duts).iter().all(|one| *one == Fairness::Fair) && incomparable(duts).is_none();
        assert!(fair(&[of("a", 3, 100), of("b", 0, 100), of("c", 6, 100)]), "that is chance");
        // Numbers of trials as in suites of an hour.
        assert!(fair(&[of("a", 4, 471), of("b", 5, 890), of("c", 8, 1_150)]), "that is chance");
        assert!(fair(&[of("a", 36, 982), of("b", 13, 883)]), "that does not matter");
        assert!(!fair(&[of("a", 98, 982), of("b", 13, 883)]));
        let duts = [of("a", 0, 100), of("b", 15, 100), of("c", 1, 100)];
        assert_eq!(fairness(&duts), [Fairness::Fair, Fairness::Rates, Fairness::Fair], "the one that was disturbed");
        let why = incomparable(&duts).expect("not chance");
        assert!(why.contains("15 of 100 trials of b") && why.contains("0 of 100 trials of a"), "{why}");
    }
}
