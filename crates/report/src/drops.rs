//! Compares lost frames with the drops that the DUT's counters report.

use crate::format::{number, several};
use crate::view::View;
use drophammer_judge::drops::{are_counted, drops};
use drophammer_model::quantity::group_digits;
use drophammer_model::record::TrialRecord;
use drophammer_model::trial::GroupCounts;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// Maximum number of counters that a sentence names.
const NAMED: usize = 4;

/// DUTs for which at least one trial has drop counters.
pub fn counted_on(trials: &[TrialRecord]) -> HashSet<&str> {
    let mut duts: HashSet<&str> = HashSet::new();
    for trial in trials {
        if !duts.contains(trial.dut.as_str()) && are_counted(&trial.result.dut_counters) {
            duts.insert(trial.dut.as_str());
        }
    }
    duts
}

/// Drops of a trial by counter; `None` if they are unknown. `counted` are the DUTs whose drops are counted.
fn by_counter(trial: &TrialRecord, counted: &HashSet<&str>) -> Option<BTreeMap<String, u64>> {
    let result = &trial.result;
    let read = counted.contains(trial.dut.as_str()) && !result.dut_counters.is_empty();
    // If all lost frames were refused, the counters cannot add anything.
    let lost = sum(trial, |group| group.lost);
    let refused = lost > 0 && sum(trial, |group| group.refused) == lost;
    (read || refused).then(|| drops(result))
}

/// The sum of all drops of a trial, each drop once; `None` if they are unknown.
pub fn of_trial(trial: &TrialRecord, counted: &HashSet<&str>) -> Option<u64> {
    by_counter(trial, counted).map(|drops| total(&drops))
}

/// The drops of a DUT in all of its tests.
pub fn of_dut(view: &View, dut: &str) -> Account {
    let own: Vec<&TrialRecord> = view.run.trials.iter().filter(|trial| trial.dut == dut).collect();
    Account::of(&own, &view.drops_counted)
}

/// The sum of a count over all groups. It saturates, because a run folder may contain any numbers.
fn sum(trial: &TrialRecord, count: fn(&GroupCounts) -> u64) -> u64 {
    trial.result.groups.iter().map(count).fold(0, u64::saturating_add)
}

fn total(drops: &BTreeMap<String, u64>) -> u64 {
    drops.values().copied().fold(0, u64::saturating_add)
}

fn counted(n: u64, what: &str) -> String {
    several(usize::try_from(n).unwrap_or(usize::MAX), what)
}

/// The lossy trials of a DUT. Invalid trials say nothing about the DUT. Trials with background traffic do not count,
/// because the counters include drops of that traffic, and it is unknown whether it should arrive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Lossy trials whose drops are known.
    trials: u64,
    /// Frames lost in these trials, as counted by the tester.
    lost: u64,
    /// Drops in these trials, by counter.
    drops: BTreeMap<String, u64>,
    /// Number of trials in which drops and lost frames are equal.
    exact: u64,
    /// Lost frames that no counter includes, and drops that exceed the loss of their trial.
    missing: u64,
    beyond: u64,
    /// The trial with the largest difference: its number, lost frames, and drops.
    worst: Option<(u64, u64, u64)>,
    /// Number of lossy trials with unknown drops, and the frames lost in them.
    unknown: (u64, u64),
}

impl Account {
    /// Adds up these trials; `counted` are the DUTs whose drops are counted.
    pub fn of(trials: &[&TrialRecord], counted: &HashSet<&str>) -> Account {
        let mut all = Account::default();
        let valid = trials.iter().filter(|trial| trial.result.validity.is_valid());
        for trial in valid.filter(|trial| trial.result.background.is_empty()) {
            let lost = sum(trial, |group| group.lost);
            if lost == 0 {
                continue;
            }
            match by_counter(trial, counted) {
                Some(drops) => all.add(trial.result.trial, lost, drops),
                None => {
                    let (trials, frames) = all.unknown;
                    all.unknown = (trials + 1, frames.saturating_add(lost));
                }
            }
        }
        all
    }

    fn add(&mut self, trial: u64, lost: u64, drops: BTreeMap<String, u64>) {
        let dropped = total(&drops);
        self.trials += 1;
        self.exact += u64::from(dropped == lost);
        self.lost = self.lost.saturating_add(lost);
        self.missing = self.missing.saturating_add(lost.saturating_sub(dropped));
        self.beyond = self.beyond.saturating_add(dropped.saturating_sub(lost));
        let most = self.worst.map_or(0, |(_, lost, dropped)| lost.abs_diff(dropped));
        if lost.abs_diff(dropped) > most {
            self.worst = Some((trial, lost, dropped));
        }
        for (counter, frames) in drops {
            let all = self.drops.entry(counter).or_default();
            *all = all.saturating_add(frames);
        }
    }

    /// True if no trial lost frames.
    fn is_empty(&self) -> bool {
        self.trials == 0 && self.unknown.0 == 0
    }

    /// Each counter, its drops, and their share of all drops in %, largest first.
    pub fn shares(&self) -> Vec<(&str, u64, f64)> {
        let all = total(&self.drops) as f64;
        let share = |frames: u64| frames as f64 / all * 100.0;
        let each = self.drops.iter().map(|(counter, frames)| (counter.as_str(), *frames, share(*frames)));
        let mut shares: Vec<_> = each.collect();
        shares.sort_by_key(|(_, frames, _)| Reverse(*frames));
        shares
    }

    /// Named sums over the trials with known drops.
    pub fn sums(&self) -> [(&'static str, u64); 4] {
        [
            ("Sum", total(&self.drops)),
            ("Lost, as counted by the tester", self.lost),
            ("Lost, in no counter", self.missing),
            ("Drops beyond the loss", self.beyond),
        ]
    }

    /// The account as a sentence; `None` if no trial lost frames.
    pub fn text(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let mut said = Vec::new();
        if self.trials > 0 {
            said.push(format!("{} lost {}", counted(self.trials, "lossy trial"), counted(self.lost, "frame")));
            let shares = self.shares();
            let name = |(counter, _, share): &(&str, u64, f64)| format!("{counter} {} %", number(*share, "%"));
            let mut named: Vec<String> = shares.iter().take(NAMED).map(name).collect();
            if shares.len() > NAMED {
                named.push("others".into());
            }
            let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
            let (dropped, exact) = (group_digits(total(&self.drops)), group_digits(self.exact));
            let of = group_digits(self.trials);
            said.push(format!(
                "all counters add up to {dropped} drops{named}, equal to the loss in {exact} of {of} trials"
            ));
        }
        if self.missing > 0 {
            said.push(format!("lost frames in no counter: {}", group_digits(self.missing)));
        }
        if self.beyond > 0 {
            said.push(format!("drops beyond the loss: {}", group_digits(self.beyond)));
        }
        if let Some((trial, lost, dropped)) = self.worst {
            let [lost, dropped] = [lost, dropped].map(group_digits);
            said.push(format!("largest difference in trial {trial} ({lost} lost, {dropped} dropped)"));
        }
        let (trials, lost) = self.unknown;
        if trials > 0 {
            let (trials, lost) = (counted(trials, "lossy trial"), counted(lost, "lost frame"));
            said.push(format!("the drops in {trials} with {lost} are unknown"));
        }
        Some(said.join("; "))
    }

    /// The account as JSON; null if no trial lost frames.
    pub fn json(&self) -> Value {
        if self.is_empty() {
            return Value::Null;
        }
        // If there is no trial with known drops, the sums are unknown.
        let known = |frames: u64| (self.trials > 0).then_some(frames);
        let share = |(counter, dropped, share): (&str, u64, f64)| json!({ "counter": counter, "dropped": dropped, "share_percent": share });
        json!({
            "trials": self.trials,
            "lost": known(self.lost),
            "dropped": known(total(&self.drops)),
            "exact": known(self.exact),
            "missing": known(self.missing),
            "beyond": known(self.beyond),
            "worst": self.worst.map(|(trial, lost, dropped)| json!({ "trial": trial, "lost": lost, "dropped": dropped })),
            "counters": (self.trials > 0).then(|| self.shares().into_iter().map(share).collect::<Vec<_>>()),
            "unknown": { "trials": self.unknown.0, "lost": self.unknown.1 },
        })
    }
}

#[cfg(test)]
mod tests;
