//! The lost frames in a test's trials, and their causes.

use drophammer_judge::losses::{Cause, LossSummary, causes};
use drophammer_model::record::TrialRecord;
use drophammer_model::size::PacketSize;
use drophammer_model::traffic::Header;
use drophammer_model::trial::{Family, Load};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

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

/// What a DUT has to do in a trial, apart from the load. A load says nothing about trials in which it differs.
#[derive(PartialEq, Eq, Hash)]
struct Work<'a> {
    size: &'a PacketSize,
    /// Family, headers and own sizes of each flow.
    flows: Vec<(Family, &'a [Header], Option<&'a PacketSize>)>,
    flows_left_out: u64,
    filter_rules: Option<u64>,
    /// Filters, classes, links that are down, other DUTs at the same time.
    conditions: [bool; 4],
}

impl<'a> Work<'a> {
    fn of(trial: &'a TrialRecord) -> Work<'a> {
        let flows = trial.spec.flows.iter();
        Work {
            size: &trial.spec.size,
            flows: flows.map(|flow| (flow.family, flow.headers.as_slice(), flow.size.as_ref())).collect(),
            flows_left_out: trial.flows_left_out,
            filter_rules: trial.filter_rules,
            conditions: [trial.filtered, trial.classed, trial.links_down, trial.joint],
        }
    }
}

/// The lossy trials of a test on one DUT, and their summary. Invalid trials say nothing about the DUT.
pub fn explained<'a>(trials: &[&'a TrialRecord]) -> (Vec<Lossy<'a>>, LossSummary) {
    let valid = || trials.iter().copied().filter(|trial| trial.result.validity.is_valid());
    // The highest load without loss for each kind of work.
    let mut known: HashMap<Work<'_>, f64> = HashMap::new();
    for trial in valid().filter(|trial| trial.result.lost() == 0 && trial.result.offered() > 0) {
        if let Load::Constant { rate_pps } = trial.spec.load {
            let most = known.entry(Work::of(trial)).or_default();
            *most = most.max(rate_pps);
        }
    }
    let (mut lossy, mut summary) = (Vec::new(), LossSummary::default());
    for trial in valid() {
        let causes = causes(&trial.spec, &trial.result, known.get(&Work::of(trial)).copied());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::trial;
    use drophammer_model::trial::{AddressRange, FlowSpec, LossEpisode, Losses};

    fn flow(source: &str, destination: &str) -> FlowSpec {
        let range = |text: &str| AddressRange { first: text.parse().unwrap(), step: 1, count: 1 };
        FlowSpec::new("flow", 0, 1, range(source), range(destination))
    }

    #[test]
    fn a_load_without_loss_says_nothing_about_other_work() {
        let mut clean = trial(1, "d", "t", 64, 200_000.0, 0);
        clean.spec.flows = vec![flow("198.18.0.2", "198.19.0.2")];
        // A trial at a lower load that lost frames from its beginning to its end.
        let cause = |change: fn(&mut TrialRecord)| {
            let mut lossy = trial(2, "d", "t", 64, 150_000.0, 60_000);
            lossy.spec.flows = clean.spec.flows.clone();
            let whole = LossEpisode { from_ns: 0, to_ns: 1_000_000_000, lost: 60_000, flows: 1, groups: vec![0] };
            lossy.result.losses = Losses { within_ns: 2_000_000, episodes: vec![whole] };
            change(&mut lossy);
            let (found, _) = explained(&[&clean, &lossy]);
            found[0].causes[0]
        };
        assert_eq!(cause(|_| {}), Cause::Unexplained);
        let changes: [fn(&mut TrialRecord); 6] = [
            |trial| trial.spec.size = "128".parse().unwrap(),
            |trial| trial.spec.flows = vec![flow("2001:2::2", "2001:2:0:1::2")],
            |trial| trial.spec.flows[0].headers = vec![Header::Raw(Default::default())],
            |trial| (trial.filtered, trial.filter_rules) = (true, Some(1_000)),
            |trial| trial.classed = true,
            |trial| trial.links_down = true,
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert_eq!(cause(change), Cause::Overload, "change {at}");
        }
    }
}
