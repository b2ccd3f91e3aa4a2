//! Results of the filter test in one case, and figures derived from them.

use super::{DENIED, PERMITTED};
use crate::filter_lists::Case;
use crate::kit::prelude::*;
use crate::mlrsearch::Irregular;
use crate::throughput_search::{SearchTrial, Searched};
use drophammer_model::trial::FlowSpec;

/// Results with one filter, or without a filter.
pub(super) struct Measured {
    pub(super) case: Option<Case>,
    pub(super) throughput: Option<FrameRate>,
    pub(super) upper: Option<f64>,
    /// Load in frames per second that the router sustains in this case, possibly with some loss.
    pub(super) borne: f64,
    /// True if the tester or a lack of time ended the search: the throughput is then a lower bound.
    pub(super) tester_limited: bool,
    /// True if the highest load of the suite (`max_load`) was too low to find the limit.
    pub(super) capped: bool,
    /// True if the line cannot carry more.
    pub(super) at_line_rate: bool,
    /// True if the search has a result, even if the result is loss at every load. False if the tester or a lack of time
    /// ended it before: a missing throughput is then no failure of the router.
    pub(super) known: bool,
    pub(super) marks: Vec<String>,
    pub(super) trials: Vec<u64>,
    pub(super) latency: Option<TrialResult>,
    /// Result and flows of the trial with both permitted and denied frames.
    pub(super) sorting: Option<(TrialResult, Vec<FlowSpec>)>,
}

impl Measured {
    /// The result of a search in this case.
    pub(super) fn of(case: Option<Case>, searched: &Searched) -> Measured {
        let result = searched.results.first();
        let throughput = searched.throughput();
        let unfinished = result.is_none_or(|r| r.irregular.contains(&Irregular::Unfinished));
        let bound = searched.lower_bound();
        let capped = bound == Some(LowerBound::MaxLoad);
        let tester_limited = bound.is_some() && !capped;
        let upper = result.and_then(|r| r.upper.as_ref()).map(|bound| bound.load_pps);
        let at_line_rate = throughput.is_some_and(|found| searched.limits.at_line_rate(found));
        let mut marks = Vec::new();
        marks.extend((at_line_rate && !tester_limited).then(|| "line rate".to_owned()));
        marks.extend(bound.map(|bound| bound.to_string()));
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

    /// Returns true if the router loses frames at every load in this case.
    pub(super) fn is_lossy(&self) -> bool {
        self.known && self.throughput.is_none()
    }

    /// Returns true if the tester could offer any load in this case.
    pub(super) fn is_tried(&self) -> bool {
        !self.trials.is_empty()
    }

    /// Latency of this percentile in µs, of the slowest family.
    pub(super) fn latency_us(&self, percentile: f64) -> Option<f64> {
        let measured = self.latency.iter().filter(|result| hidden_latency(result, None).is_none());
        let groups = measured.flat_map(|result| &result.groups);
        groups.filter_map(|group| group.latency.percentile(percentile)).max().map(|ns| ns as f64 / 1e3)
    }

    /// Returns true if something other than the router ended the search.
    pub(super) fn limited(&self) -> bool {
        self.tester_limited || self.capped || self.at_line_rate
    }

    /// Throughput in % of the throughput without filters; a lower bound if the tester, the line or the suite ended this
    /// search. `None` if one of them ended the search without filters: the true share would be smaller.
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

/// The load that a router sustains in a case: its throughput, or a quarter of the highest forwarding rate of the search
/// if the throughput is almost zero, because the router occasionally loses a frame at any load.
fn borne(throughput: Option<FrameRate>, trials: &[SearchTrial]) -> f64 {
    let forwarded = trials.iter().map(|trial| trial.offered.pps() * (1.0 - trial.loss_ratio));
    let highest = forwarded.fold(0.0, f64::max);
    throughput.map_or(0.0, FrameRate::pps).max(highest / 4.0)
}

#[cfg(test)]
mod tests {
    use super::super::ranks::rank;
    use super::*;
    use crate::filter_lists::Position;
    use crate::mlrsearch::{Bound, GoalResult, SearchEnd, SearchGoal};
    use crate::pattern::{Limits, Pattern};
    use drophammer_model::filter::FilterDirection;
    use drophammer_model::outcome::{CAPPED, Outcome, RankFigure};
    use drophammer_model::size::PacketSize;
    use drophammer_model::trial::Family;

    /// A search that ended with these bounds, and why its result is irregular.
    fn searched(lower: f64, upper: Option<f64>, irregular: &[Irregular]) -> Searched {
        let bound = |load_pps| Bound { index: 0, load_pps, offered_pps: load_pps, trials: vec![1] };
        let result = GoalResult {
            goal: SearchGoal::quick(),
            lower: Some(bound(lower)),
            upper: upper.map(bound),
            conditional_throughput_pps: None,
            irregular: irregular.to_vec(),
            inverted: false,
            preliminary: None,
        };
        let (line, medium) = (FrameRate(1_000.0), Default::default());
        Searched {
            results: vec![result],
            trials: Vec::new(),
            superseded: Vec::new(),
            end: SearchEnd::Completed,
            limits: Limits { line, medium, ceiling: None, max: line, retreated: false },
            capped: irregular.contains(&Irregular::NoUpperBound),
            unfit: None,
            error: None,
        }
    }

    /// The share with a filter, and the figures: key, and whether it is a lower bound.
    fn ranked(without: &Searched, with: &Searched) -> (Option<f64>, Vec<(String, bool)>) {
        let case = Case { conditions: 10, permit: Some(Position::Last), direction: FilterDirection::Ingress };
        let all = [Measured::of(None, without), Measured::of(Some(case), with)];
        let pattern = Pattern::one_way("64".parse::<PacketSize>().unwrap(), vec![Family::Ipv4], 0.1);
        let mut outcome = Outcome::default();
        rank(&mut outcome, &pattern, &[case], &all, &Ok(()));
        // Latency and leaks were not measured: their figures only contain the reason.
        assert_eq!(outcome.ranks.len(), 5);
        assert!(outcome.ranks.iter().all(|rank| rank.value.is_some() != rank.missing.is_some()), "{:?}", outcome.ranks);
        let figure = |rank: RankFigure| rank.value.map(|_| (rank.key, rank.tester_limited || rank.capped));
        (all[1].share(&all[0]), outcome.ranks.into_iter().filter_map(figure).collect())
    }

    #[test]
    fn a_search_that_ran_out_of_time_has_found_a_bound() {
        let (pps, percent) = ("filters_64_10_pps".to_owned(), "filters_64_10_percent".to_owned());
        let exact = searched(200.0, Some(202.0), &[]);
        let bound = searched(180.0, Some(220.0), &[Irregular::Unfinished]);
        assert_eq!(ranked(&exact, &exact), (Some(100.0), vec![(pps.clone(), false), (percent.clone(), false)]));
        assert_eq!(ranked(&exact, &bound), (Some(90.0), vec![(pps.clone(), true), (percent, true)]));
        // A lower bound gives no share: the true share may be smaller.
        assert_eq!(ranked(&bound, &exact), (None, vec![(pps, false)]));
        let marks = |searched: &Searched| Measured::of(None, searched).marks;
        assert_eq!(marks(&bound), ["tester-limited: the search for the throughput ended early"]);
        assert!(marks(&exact).is_empty());
        assert_eq!(marks(&searched(500.0, None, &[Irregular::NoUpperBound])), [CAPPED]);
    }
}
