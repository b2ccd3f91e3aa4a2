//! The lost frames of a test's trials, with their causes.

use drophammer_judge::losses::{Cause, Told, causes};
use drophammer_model::record::TrialRecord;
use drophammer_model::trial::Load;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A valid trial that lost frames, and the cause of each of its episodes.
pub struct Lossy<'a> {
    /// The trial.
    pub trial: &'a TrialRecord,
    /// In the order of its episodes.
    pub causes: Vec<Cause>,
}

impl Lossy<'_> {
    /// Whether it lost frames for another cause than overload.
    pub fn below_overload(&self) -> bool {
        self.causes.iter().any(|cause| *cause != Cause::Overload)
    }
}

/// The lossy trials of a test on one DUT, and the counts of all of them. Invalid trials show nothing about the DUT.
pub fn explained<'a>(trials: &[&'a TrialRecord]) -> (Vec<Lossy<'a>>, Told) {
    let frames = |trial: &TrialRecord| (trial.spec.size.to_string(), trial.spec.flows.len());
    let valid = || trials.iter().copied().filter(|trial| trial.result.validity.is_valid());
    // The highest load without loss of all trials with the same frames.
    let mut known: BTreeMap<_, f64> = BTreeMap::new();
    for trial in valid().filter(|trial| trial.result.lost() == 0 && trial.result.offered() > 0) {
        if let Load::Constant { rate_pps } = trial.spec.load {
            let most = known.entry(frames(trial)).or_default();
            *most = most.max(rate_pps);
        }
    }
    let (mut lossy, mut told) = (Vec::new(), Told::default());
    for trial in valid() {
        let causes = causes(&trial.spec, &trial.result, known.get(&frames(trial)).copied());
        told.add(&causes);
        if !causes.is_empty() {
            lossy.push(Lossy { trial, causes });
        }
    }
    (lossy, told)
}

/// As [`explained`], in a sentence; `None` if no frames were lost for another cause than overload.
pub fn text(trials: &[&TrialRecord]) -> Option<String> {
    explained(trials).1.text()
}

/// As [`explained`], for machines.
pub fn json(trials: &[&TrialRecord]) -> Value {
    let (lossy, told) = explained(trials);
    let episodes: BTreeMap<&str, usize> = told.episodes.iter().map(|(cause, n)| (cause.key(), *n)).collect();
    let of_trial = |lossy: &Lossy<'_>| json!({ "trial": lossy.trial.result.trial, "causes": lossy.causes.iter().map(|cause| cause.key()).collect::<Vec<_>>() });
    json!({
        "trials": told.trials,
        "below_overload": told.lossy,
        "episodes": episodes,
        "text": told.text(),
        "lossy": lossy.iter().map(of_trial).collect::<Vec<_>>(),
    })
}
