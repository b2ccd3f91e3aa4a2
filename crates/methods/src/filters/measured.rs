//! Results of the filter test in one case, and figures derived from them.

use super::{DENIED, PERMITTED};
use crate::filter_lists::Case;
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
    pub(super) marks: Vec<String>,
    pub(super) trials: Vec<u64>,
    pub(super) latency: Option<TrialResult>,
    /// Result of the trial with frames to be permitted and frames to be denied, and its flows.
    pub(super) sorting: Option<(TrialResult, Vec<FlowSpec>)>,
}

impl Measured {
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
