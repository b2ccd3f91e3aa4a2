//! An independent count: the kernel's count at the tester's interfaces during each trial, compared with the tester's.

use crate::format::number;
use drophammer_model::record::TrialRecord;
use drophammer_model::trial::GroupCounts;
use serde_json::{Value, json};

/// Both counts of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    trial: u64,
    /// Frames that the kernel counted more than the tester, negative if fewer.
    sent: i64,
    received: i64,
}

impl Counts {
    /// `None` if the kernel's counters were not read, or the frames of the emulated devices were not counted.
    fn of(record: &TrialRecord) -> Option<Counts> {
        let (result, health) = (&record.result, &record.result.health);
        let kernel = |counter: &str| {
            let own =
                |name: &str| name.strip_prefix('t').and_then(|rest| rest.strip_suffix(counter)).is_some_and(digits);
            let mut values = result.dut_counters.iter().filter(|(name, _)| own(name)).map(|(_, n)| *n).peekable();
            values.peek().is_some().then(|| values.sum::<u64>())
        };
        let sum = |of: fn(&GroupCounts) -> u64| result.groups.iter().map(of).sum::<u64>();
        let sent = sum(|g| g.offered - g.refused) + health.other_sent?;
        let received = sum(|g| {
            g.received + g.duplicated + g.corrupted + g.deviations.values().sum::<u64>() + g.deviating_copies + g.stray
        }) + health.stale
            + health.other_received;
        // A counter that did not grow is missing.
        let off = |kernel: Option<u64>, own: u64| kernel.unwrap_or(0).cast_signed() - own.cast_signed();
        let (kernel_sent, kernel_received) = (kernel(".tx_packets"), kernel(".rx_packets"));
        kernel_sent.or(kernel_received)?;
        Some(Counts { trial: result.trial, sent: off(kernel_sent, sent), received: off(kernel_received, received) })
    }
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// All valid trials with both counts. An invalid one may have ended while frames were under way.
fn counts(trials: &[&TrialRecord]) -> Vec<Counts> {
    trials.iter().filter(|trial| trial.result.validity.is_valid()).filter_map(|trial| Counts::of(trial)).collect()
}

/// Number of trials in which a count agrees to the frame, and the trial with the largest difference.
fn agreement(all: &[Counts], of: fn(&Counts) -> i64) -> (usize, Option<Counts>) {
    let agree = all.iter().filter(|counts| of(counts) == 0).count();
    let worst = all.iter().copied().filter(|counts| of(counts) != 0).max_by_key(|counts| of(counts).unsigned_abs());
    (agree, worst)
}

/// How well both agree, in a sentence; `None` if the kernel does not count for the tester.
pub fn text(trials: &[&TrialRecord]) -> Option<String> {
    let all = counts(trials);
    if all.is_empty() {
        return None;
    }
    let part = |word: &str, of: fn(&Counts) -> i64| {
        let (agree, worst) = agreement(&all, of);
        let off = worst.map_or(String::new(), |worst| {
            let frames = of(&worst);
            let by = number(frames.unsigned_abs() as f64, "");
            let which = if frames > 0 { "more" } else { "fewer" };
            format!(", the kernel counted up to {by} {which} (trial {})", worst.trial)
        });
        format!("{agree} of {} {word}{off}", all.len())
    };
    Some(format!(
        "the kernel's own counters of the tester's interfaces agree to the frame in {}; in {}",
        part("valid trials for frames sent", |counts| counts.sent),
        part("for frames received", |counts| counts.received),
    ))
}

/// As [`text`], for machines; null if the kernel does not count for the tester.
pub fn json(trials: &[&TrialRecord]) -> Value {
    let all = counts(trials);
    let part = |of: fn(&Counts) -> i64| {
        let (agree, worst) = agreement(&all, of);
        json!({ "agree": agree, "most_off": worst.map_or(0, |worst| of(&worst)), "most_off_trial": worst.map(|worst| worst.trial) })
    };
    match all.len() {
        0 => Value::Null,
        trials => {
            json!({ "trials": trials, "sent": part(|counts| counts.sent), "received": part(|counts| counts.received) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(trial: u64, sent: i64, received: i64) -> Counts {
        Counts { trial, sent, received }
    }

    #[test]
    fn the_trial_that_is_most_off_is_named() {
        let all = [off(1, 0, 0), off(2, 3, -1), off(3, -5, 0)];
        assert_eq!(agreement(&all, |counts| counts.sent), (1, Some(off(3, -5, 0))));
        assert_eq!(agreement(&all, |counts| counts.received), (2, Some(off(2, 3, -1))));
        assert_eq!(agreement(&all[..1], |counts| counts.sent), (1, None));
    }

    #[test]
    fn only_interfaces_of_the_tester_count() {
        assert!(digits("0") && digits("11"));
        assert!(!digits("") && !digits("1.d0") && !digits("x"));
    }
}
