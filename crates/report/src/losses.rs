//! The lost frames in a test's trials, and their causes.

use drophammer_judge::losses::{Cause, LossSummary, causes};
use drophammer_model::record::TrialRecord;
use drophammer_model::trial::Load;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A valid trial that lost frames, and the cause of each of its episodes.
pub struct Lossy<'a> {
    pub trial: &'a TrialRecord,
    /// The causes, in the order of the episodes.
    pub causes: Vec<Cause>,
}

impl Lossy<'_> {
    /// True if the trial lost frames for a cause other than overload.
    pub fn below_overload(&self) -> bool {
        self.causes.iter().any(|cause| *cause != Cause::Overload)
    }
}

/// The lossy trials of a test on one DUT, and their summary. Invalid trials say nothing about the DUT.
pub fn explained<'a>(trials: &[&'a TrialRecord]) -> (Vec<Lossy<'a>>, LossSummary) {
    let frames = |trial: &TrialRecord| (trial.spec.size.to_string(), trial.spec.flows.len());
    let valid = || trials.iter().copied().filter(|trial| trial.result.validity.is_valid());
    // The highest load without loss for each kind of frames.
    let mut known: BTreeMap<_, f64> = BTreeMap::new();
    for trial in valid().filter(|trial| trial.result.lost() == 0 && trial.result.offered() > 0) {
        if let Load::Constant { rate_pps } = trial.spec.load {
            let most = known.entry(frames(trial)).or_default();
            *most = most.max(rate_pps);
        }
    }
    let (mut lossy, mut summary) = (Vec::new(), LossSummary::default());
    for trial in valid() {
        let causes = causes(&trial.spec, &trial.result, known.get(&frames(trial)).copied());
        summary.add(&causes);
        if !causes.is_empty() {
            lossy.push(Lossy { trial, causes });
        }
    }
    (lossy, summary)
}

/// The result of [`explained`] as JSON.
pub fn json(trials: &[&TrialRecord]) -> Value {
    let (lossy, summary) = explained(trials);
    let episodes: BTreeMap<&str, usize> = summary.episodes.iter().map(|(cause, n)| (cause.key(), *n)).collect();
    let of_trial = |lossy: &Lossy<'_>| {
        let causes: Vec<&str> = lossy.causes.iter().map(|cause| cause.key()).collect();
        json!({ "trial": lossy.trial.result.trial, "causes": causes })
    };
    json!({
            "trials": summary.trials,
            "below_overload": summary.lossy,
            "episodes": episodes,
            "text": summary.text(),
        "lossy": lossy.iter().map(of_trial).collect::<Vec<_>>(),
    })
}
