//! Results of the filter test in one case, and figures derived from them.

use super::{DENIED, PERMITTED};
use crate::filter_lists::Case;
use crate::mlrsearch::Irregular;
use crate::throughput_search::{SearchTrial, Searched};
use drophammer_model::outcome::CAPPED;
use drophammer_model::quantity::FrameRate;
use drophammer_model::trial::{FlowSpec, TrialResult};

/// Results with one filter, or without.
pub(super) struct Measured {
    pub(super) case: Option<Case>,
    pub(super) throughput: Option<FrameRate>,
    pub(super) upper: Option<f64>,
    /// Load in frames per second that the router sustains in this case, possibly with some loss.
    pub(super) borne: f64,
    pub(super) tester_limited: bool,
    /// True if the highest load of the suite (`max_load`) was too low to find the limit.
    pub(super) capped: bool,
    /// True if the line cannot carry more.
    pub(super) at_line_rate: bool,
    /// True if the search has a result, also if that is the loss of frames at every load. False if the tester or the
    /// time ended it before: then a missing throughput says nothing about the router.
    pub(super) known: bool,
    pub(super) marks: Vec<String>,
    pub(super) trials: Vec<u64>,
    pub(super) latency: Option<TrialResult>,
    /// Result of the trial with frames to be permitted and frames to be denied, and its flows.
    pub(super) sorting: Option<(TrialResult, Vec<FlowSpec>)>,
}

impl Measured {
    /// The result of a search in this case.
    pub(super) fn of(case: Option<Case>, searched: &Searched) -> Measured {
        let result = searched.results.first();
        let throughput = searched.throughput();
        let unfinished = result.is_none_or(|r| r.irregular.contains(&Irregular::Unfinished));
        // A search that the tester ended before its goal has found a bound.
        let open = searched.unfit.is_some() && unfinished;
        let tester_limited = throughput.is_some_and(|found| open || searched.limits.tester_limited(found));
        let upper = result.and_then(|r| r.upper.as_ref()).map(|bound| bound.load_pps);
        let capped = searched.capped && throughput.is_some() && upper.is_none();
        let at_line_rate = throughput.is_some_and(|found| searched.limits.at_line_rate(found));
        let mut marks = Vec::new();
        marks.extend((at_line_rate && !tester_limited).then(|| "line rate".to_owned()));
        marks.extend(capped.then(|| CAPPED.to_owned()));
        marks.extend(tester_limited.then(|| "tester-limited".to_owned()));
        match (&searched.error, &searched.unfit) {
            (Some(error), _) => marks.push(format!("the search was stopped: {error}")),
            (None, Some((load, why))) => {
                marks.push(format!("the tester could not offer {load} validly: {}", why.join("; ")));
            }
            (None, None) if throughput.is_some() => {}
            // Running out of time does not mean that frames are lost at every load.
            (None, None) if unfinished => marks.push("not found within the time for its search".to_owned()),
            (None, None) => marks.push("loses frames at every load".to_owned()),
        }
        Measured {
            case,
            throughput,
            borne: borne(throughput, &searched.trials),
            upper,
            tester_limited,
            capped,
            at_line_rate,
            known: searched.error.is_none() && (throughput.is_some() || !unfinished),
            marks,
            trials: searched.trials.iter().map(|trial| trial.trial).collect(),
            latency: None,
            sorting: None,
        }
    }

    /// Whether the tester could offer any load in this case.
    pub(super) fn is_tried(&self) -> bool {
        !self.trials.is_empty()
    }

    /// Latency of this percentile in µs: that of the slowest family.
    pub(super) fn latency_us(&self, percentile: f64) -> Option<f64> {
        let groups = self.latency.iter().flat_map(|result| &result.groups);
        groups.filter_map(|group| group.latency.percentile(percentile)).max().map(|ns| ns as f64 / 1e3)
    }

    /// Whether something other than the router ended the search.
    pub(super) fn limited(&self) -> bool {
        self.tester_limited || self.capped || self.at_line_rate
    }

    /// Throughput in % of that without filters; a lower bound if the tester, the line or the suite ended this search.
    /// `None` if one of them ended the search without filters: the true share would be smaller.
    pub(super) fn share(&self, without: &Measured) -> Option<f64> {
        let whole = without.throughput.filter(|whole| !without.limited() && whole.pps() > 0.0)?;
        Some(self.throughput?.pps() / whole.pps() * 100.0)
    }

    /// Offered and received frames of the flows of a group.
    pub(super) fn counts(&self, group: &str) -> Option<(u64, u64)> {
        let (result, _) = self.sorting.as_ref()?;
        result.groups.iter().find(|counts| counts.group == group).map(|counts| (counts.offered, counts.received))
    }

    /// Frames that passed although a filter denies them.
    pub(super) fn leaked(&self) -> Option<u64> {
        self.case.and(self.counts(DENIED)).map(|(_, received)| received)
    }

    /// Frames that did not pass although a filter permits them.
    pub(super) fn permitted_lost(&self) -> Option<u64> {
        self.counts(PERMITTED).map(|(offered, received)| offered - received)
    }
}

/// The load that a router sustains in a case. A router that occasionally loses a frame at any load has almost no
/// throughput, and that load would show nothing: then the load is a quarter of the highest forwarding rate of the
/// search.
fn borne(throughput: Option<FrameRate>, trials: &[SearchTrial]) -> f64 {
    let forwarded = trials.iter().map(|trial| trial.offered.pps() * (1.0 - trial.loss_ratio));
    let highest = forwarded.fold(0.0, f64::max);
    throughput.map_or(0.0, FrameRate::pps).max(highest / 4.0)
}
