//! Trials that the host disturbed: number and causes.
//!
//! A disturbed trial costs only time: the runner repeats it, and no figure uses it.

use drophammer_model::record::TrialRecord;
use drophammer_model::trial::Validity;
use std::collections::BTreeMap;

/// Start of the reason of a trial that the host, not the tester, made invalid.
pub const HOST_BUSY: &str = "host busy";
/// Start of the reason of a trial in which the tester's loop was stopped for too long.
pub const HELD_OFF: &str = "the tester was held off the processor";
/// Part of the reason of a trial that a hypervisor disturbed.
pub const STOLEN: &str = "a hypervisor took";

/// Number of trials of a DUT that the host made invalid.
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

fn is_of_host(reason: &str) -> bool {
    reason.starts_with(HOST_BUSY) || reason.starts_with(HELD_OFF)
}

/// True if the host alone spoilt a trial with these reasons. The next trial at the same load may succeed.
pub fn by_host_alone(reasons: &[String]) -> bool {
    !reasons.is_empty() && reasons.iter().all(|reason| is_of_host(reason))
}

/// Returns what disturbed a trial with these reasons: the program that ran the longest, or else the kind of
/// disturbance. `None` if the host did not disturb it.
pub fn cause(reasons: &[String]) -> Option<String> {
    let of_host: Vec<&str> = reasons.iter().map(String::as_str).filter(|reason| is_of_host(reason)).collect();
    let kind = if of_host.iter().any(|reason| reason.contains(STOLEN)) { "hypervisor" } else { "unknown" };
    let program = of_host.iter().find_map(|reason| program(reason.split('`').nth(1)?));
    (!of_host.is_empty()).then(|| program.unwrap_or_else(|| kind.to_owned()))
}

/// The name of a thread without its number, so that all workers of a program count as one: `lto cgu.14` becomes `lto
/// cgu`. The digit of `cc1` is part of its name.
fn program(thread: &str) -> Option<String> {
    let mut name = thread;
    loop {
        let shorter = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let bare = shorter.trim_end_matches(['.', ':', '-', '/', '#', ' ']);
        if bare.is_empty() || bare.len() == shorter.len() {
            return (!name.is_empty()).then(|| name.to_owned());
        }
        name = bare;
    }
}

/// The reasons why a trial is invalid; empty for a valid one.
pub fn reasons(trial: &TrialRecord) -> &[String] {
    match &trial.result.validity {
        Validity::Valid => &[],
        Validity::Invalid(reasons) => reasons,
    }
}

/// Each cause of disturbance with the number of trials that it disturbed, the most frequent first.
pub fn causes(trials: &[TrialRecord]) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for cause in trials.iter().filter_map(|trial| cause(reasons(trial))) {
        *counts.entry(cause).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, trials)| std::cmp::Reverse(*trials));
    counts
}

/// Counts the trials of each DUT, in the order of `duts`. Trials of the tester alone do not count.
pub fn held_up(duts: &[&str], trials: &[TrialRecord]) -> Vec<HeldUp> {
    let of = |dut: &&str| {
        let own = || trials.iter().filter(|trial| trial.dut == **dut);
        let invalid = own().filter(|trial| cause(reasons(trial)).is_some()).count();
        HeldUp { dut: (*dut).to_owned(), invalid, trials: own().count() }
    };
    duts.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_the_program_before_the_kind() {
        let stolen = "host busy: a hypervisor took the DUT's processor for 30 ms (6 % of the time)";
        let waited = "host busy: other programs (mainly `lto cgu.14`) kept the DUT off its processor for 511 ms";
        let of = |reasons: &[&str]| cause(&reasons.iter().map(|reason| (*reason).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[stolen]).as_deref(), Some("hypervisor"));
        assert_eq!(of(&[stolen, waited]).as_deref(), Some("lto cgu"));
        assert_eq!(of(&["the tester was held off the processor for 60 ms"]).as_deref(), Some("unknown"));
        assert_eq!(of(&["the tester lost 3 frames in its own receive path"]), None);
        assert_eq!(of(&[]), None);
        assert_eq!(["kworker/1:2", "cc1", "7"].map(|name| program(name).unwrap()), ["kworker", "cc1", "7"]);
    }

    #[test]
    fn a_fault_of_the_tester_is_not_the_hosts() {
        let busy = "host busy: the DUT's processor stood still for 9 ms";
        let alone = |reasons: [&str; 2]| by_host_alone(&reasons.map(str::to_owned));
        assert!(alone([busy, "the tester was held off the processor for 60 ms"]));
        assert!(!alone([busy, "the tester sent 3.00 % less than intended (97 of 100 frames)"]));
        assert!(!by_host_alone(&[]));
    }
}
