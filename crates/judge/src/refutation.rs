//! Finds trials that contradict the figure of a search on the same DUT in the same round.
//!
//! A search finds that one load meets its goal and a higher load does not. That is a single observation of a DUT. Later
//! tests offer the same traffic at other loads, and their result may differ. The report must then say so.

use drophammer_model::figure::{Claim, REFUTED, Refutation};
use drophammer_model::quantity::group_digits;
use drophammer_model::record::{TestRecord, TrialRecord};
use drophammer_model::trial::{FlowSpec, Load};

/// Loads that differ by at most this share are the same: they may be products of the same numbers in different order.
const SAME_LOAD: f64 = 1e-6;
/// For goals that tolerate lossy trials, a trial is lossy only above this share of lost frames, so that single frames in
/// long trials do not count.
const SINGLE_FRAMES: f64 = 5e-6;

/// The trials at one load.
struct AtLoad<'a> {
    rate_pps: f64,
    trials: Vec<&'a TrialRecord>,
}

impl AtLoad<'_> {
    /// Total trial time in seconds: (full-length trials that are not lossy, lossy trials).
    fn times(&self, claim: &Claim, tolerance: f64) -> (f64, f64) {
        let (mut clean, mut lossy) = (0.0, 0.0);
        for trial in &self.trials {
            let seconds = trial.spec.duration_s;
            if trial.result.loss_ratio() > claim.loss_ratio + tolerance {
                lossy += seconds;
            } else if seconds >= claim.trial_duration_s * (1.0 - SAME_LOAD) {
                clean += seconds;
            }
        }
        (clean, lossy)
    }

    /// True if this load meets the goal, whatever further trials would show.
    fn meets(&self, claim: &Claim) -> bool {
        let (clean, lossy) = self.times(claim, 0.0);
        let whole = (clean + lossy).max(claim.duration_sum_s);
        whole - clean <= whole * claim.exceed_ratio + SAME_LOAD
    }

    /// True if this load misses the goal, whatever further trials would show.
    fn misses(&self, claim: &Claim) -> bool {
        let tolerance = if claim.exceed_ratio > 0.0 { SINGLE_FRAMES } else { 0.0 };
        let (clean, lossy) = self.times(claim, tolerance);
        let whole = (clean + lossy).max(claim.duration_sum_s);
        lossy > whole * claim.exceed_ratio + SAME_LOAD
    }

    fn refutation(&self, more: bool) -> Option<Refutation> {
        let score = |trial: &&&TrialRecord| {
            let loss = trial.result.loss_ratio();
            if more { (-loss, trial.spec.duration_s) } else { (loss, trial.spec.duration_s) }
        };
        let clearest = |a: &&&TrialRecord, b: &&&TrialRecord| {
            let (a, b) = (score(a), score(b));
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        };
        let trial = self.trials.iter().max_by(clearest)?;
        let result = &trial.result;
        let text = format!(
            "trial {}: {} of {} frames lost at {} fps",
            result.trial,
            group_digits(result.lost()),
            group_digits(result.offered()),
            group_digits(self.rate_pps.round() as u64)
        );
        Some(Refutation { round: trial.round, trial: result.trial, more, text })
    }
}

/// True if the frames are the same, regardless of their rate. The rate of background flows depends on the load.
fn same_flows(a: &[FlowSpec], b: &[FlowSpec]) -> bool {
    let tested = |flows: &[FlowSpec]| flows.iter().filter(|flow| !flow.background).count();
    let (tested_a, tested_b) = (a.iter().filter(|flow| !flow.background), b.iter().filter(|flow| !flow.background));
    (tested(a) < a.len()) == (tested(b) < b.len()) && tested_a.eq(tested_b)
}

/// Contradictions to `claim` among `trials`, which are all trials of its DUT and round. There is at most one in each
/// direction: at the highest load that meets the goal, and at the lowest load that misses it.
///
/// The claim's own goal decides. A load contradicts the claim if it has enough time without loss at
/// [`Claim::missed_pps`] or above, or too much time with loss at [`Claim::met_pps`] or below. If the goal tolerates
/// lossy trials, loss refutes it only at loads that are lower by [`Claim::width`].
pub fn refutations(claim: &Claim, trials: &[&TrialRecord]) -> Vec<Refutation> {
    let Some(own) = trials.iter().find(|trial| trial.result.trial == claim.trial) else { return Vec::new() };
    let rate = |trial: &TrialRecord| match trial.spec.load {
        Load::Constant { rate_pps } => Some(rate_pps),
        _ => None,
    };
    let counts = |trial: &&TrialRecord| {
        trial.result.validity.is_valid()
            && trial.result.offered() > 0
            && !claim.superseded.contains(&trial.result.trial)
            && trial.spec.events.is_empty()
            && own.spec.events.is_empty()
            && trial.spec.size == own.spec.size
            && same_flows(&trial.spec.flows, &own.spec.flows)
            && trial.filtered == own.filtered
            // Filters of another test may differ. Within a test, filters are distinguished by their number of rules.
            && (!own.filtered || trial.test == own.test)
            && trial.filter_rules == own.filter_rules
            && trial.classed == own.classed
            && trial.links_down == own.links_down
            && trial.joint == own.joint
    };
    let mut same: Vec<(f64, &TrialRecord)> =
        trials.iter().copied().filter(counts).filter_map(|trial| Some((rate(trial)?, trial))).collect();
    same.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut loads: Vec<AtLoad<'_>> = Vec::new();
    for (rate_pps, trial) in same {
        match loads.last_mut().filter(|last| rate_pps <= last.rate_pps * (1.0 + SAME_LOAD)) {
            Some(last) => last.trials.push(trial),
            None => loads.push(AtLoad { rate_pps, trials: vec![trial] }),
        }
    }
    let from = claim.missed_pps.map_or(f64::INFINITY, |pps| pps * (1.0 - SAME_LOAD));
    let margin = if claim.exceed_ratio > 0.0 { claim.width } else { -SAME_LOAD };
    let up_to = claim.met_pps.map_or(f64::NEG_INFINITY, |pps| pps * (1.0 - margin));
    let more = loads.iter().rev().find(|load| load.rate_pps >= from && load.meets(claim));
    let less = loads.iter().find(|load| load.rate_pps <= up_to && load.misses(claim));
    let less = less.and_then(|load| load.refutation(false));
    more.and_then(|load| load.refutation(true)).into_iter().chain(less).collect()
}

/// Marks the figures of `tests` that `trials` contradict, and their rows in tables. Only trials of the same DUT and
/// round count.
pub fn mark(tests: &mut [TestRecord], trials: &[TrialRecord]) {
    for test in tests.iter_mut().filter(|test| test.outcome.ranks.iter().any(|rank| rank.claim.is_some())) {
        let own = |trial: &&TrialRecord| trial.dut == test.dut && trial.round == test.round;
        let own: Vec<&TrialRecord> = trials.iter().filter(own).collect();
        for rank in &mut test.outcome.ranks {
            let Some(claim) = &rank.claim else { continue };
            rank.refuted = refutations(claim, &own);
            for refutation in &rank.refuted {
                let text = format!("{}{REFUTED}{}", claim.goal, refutation.text);
                let rows = test.outcome.tables.iter_mut().flat_map(|table| &mut table.rows);
                for row in rows.filter(|row| row.trials.contains(&claim.trial)) {
                    row.marks.push(text.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::figure::{Figure, RoundFigure};
    use drophammer_model::outcome::{Outcome, RankFigure, Row, Table};
    use drophammer_model::trial::{AddressRange, Validity};

    /// A trial of `seconds` at `rate_pps` in round 2 that lost `lost` frames.
    fn trial(number: u64, rate_pps: f64, seconds: f64, lost: u64) -> TrialRecord {
        let range = |text: &str| AddressRange { first: text.parse().unwrap(), step: 1, count: 1 };
        let (load, offered) = (Load::Constant { rate_pps }, (rate_pps * seconds) as u64);
        let mut trial = crate::made::trial(number, load, seconds, offered, lost);
        trial.spec.flows.push(FlowSpec::new("IPv4", 0, 1, range("198.18.0.2"), range("198.19.0.2")));
        TrialRecord { round: 2, ..trial }
    }

    /// 104 kfps met the goal in trials of 1 s without loss; 106 kfps lost frames.
    fn strict() -> Claim {
        Claim {
            goal: "NDR(0)".into(),
            trial: 1,
            superseded: vec![],
            met_pps: Some(104_000.0),
            missed_pps: Some(106_000.0),
            width: 0.02,
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            trial_duration_s: 1.0,
            duration_sum_s: 1.0,
        }
    }

    /// Like [`strict`], but for a goal that tolerates loss during half of 1.5 s.
    fn tolerant() -> Claim {
        Claim { exceed_ratio: 0.5, trial_duration_s: 0.5, duration_sum_s: 1.5, ..strict() }
    }

    fn search() -> Vec<TrialRecord> {
        vec![trial(1, 104_000.0, 1.0, 0), trial(2, 106_000.0, 1.0, 900)]
    }

    fn against(claim: &Claim, more: impl IntoIterator<Item = TrialRecord>) -> Vec<Refutation> {
        let all: Vec<TrialRecord> = search().into_iter().chain(more).collect();
        refutations(claim, &all.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_clean_trial_above_refutes() {
        assert_eq!(against(&strict(), []), []);
        let found = against(&strict(), [trial(57, 190_000.0, 1.0, 0), trial(58, 180_000.0, 1.0, 0)]);
        let text = "trial 57: 0 of 190,000 frames lost at 190,000 fps";
        assert_eq!(found, [Refutation { round: 2, trial: 57, more: true, text: text.into() }]);
        assert_eq!(against(&strict(), [trial(57, 190_000.0, 1.0, 1)]), [], "it lost a frame");
        assert_eq!(against(&strict(), [trial(57, 190_000.0, 0.5, 0)]), [], "shorter than the goal's trials");
        assert_eq!(against(&strict(), [trial(57, 105_000.0, 1.0, 0)]), [], "between the bounds");
        let both = [trial(57, 190_000.0, 1.0, 0), trial(58, 190_000.0, 1.0, 40)];
        assert_eq!(against(&strict(), both), [], "another trial at this load lost frames");
    }

    #[test]
    fn loss_below_refutes() {
        let found = against(&strict(), [trial(9, 52_000.0, 0.1, 3)]);
        assert_eq!((found.len(), found[0].more, found[0].trial), (1, false, 9));
        assert_eq!(found[0].text, "trial 9: 3 of 5,200 frames lost at 52,000 fps");
        let both = against(&strict(), [trial(9, 52_000.0, 0.1, 3), trial(10, 200_000.0, 2.0, 0)]);
        assert_eq!(both.iter().map(|r| r.more).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_goal_that_tolerates_lossy_trials_is_refuted_by_its_own_rule() {
        assert_eq!(against(&tolerant(), [trial(9, 190_000.0, 0.5, 0)]), [], "not even half of 1.5 s");
        assert_eq!(against(&tolerant(), [trial(9, 190_000.0, 1.0, 0)]).len(), 1);
        let clean_and_lossy = [trial(9, 190_000.0, 1.0, 0), trial(10, 190_000.0, 1.5, 70)];
        assert_eq!(against(&tolerant(), clean_and_lossy), []);
        assert_eq!(against(&tolerant(), [trial(9, 52_000.0, 0.5, 400)]), [], "a third of the time may be lossy");
        assert_eq!(against(&tolerant(), [trial(9, 52_000.0, 1.0, 400)]).len(), 1);
        assert_eq!(against(&tolerant(), [trial(9, 103_500.0, 1.0, 400)]), [], "closer than the width");
        assert_eq!(against(&tolerant(), [trial(9, 100_000.0, 4.0, 2)]), [], "single frames of a long trial");
    }

    #[test]
    fn only_trials_of_the_same_traffic_count() {
        let clean = || trial(57, 190_000.0, 1.0, 0);
        let changed = |change: fn(&mut TrialRecord)| {
            let mut other = clean();
            change(&mut other);
            against(&strict(), [other])
        };
        assert_eq!(changed(|t| t.spec.size = "128".parse().unwrap()), []);
        assert_eq!(changed(|t| t.spec.flows[0].group = "IPv6".into()), []);
        assert_eq!(changed(|t| t.result.validity = Validity::Invalid(vec!["late".into()])), []);
        assert_eq!(changed(|t| t.spec.load = Load::Maximum { limit_pps: 190_000.0 }), []);
        let superseded = Claim { superseded: vec![57], ..strict() };
        assert_eq!(against(&superseded, [clean()]), []);
        assert_eq!(changed(|_| {}).len(), 1);
    }

    #[test]
    fn only_filters_of_as_many_rules_count() {
        let filtered = |rules, trial: TrialRecord| TrialRecord { filtered: true, filter_rules: rules, ..trial };
        // A search through filters with `own` rules, and a clean trial above it through filters with `other` rules.
        let found = |own, other| {
            let mut all: Vec<TrialRecord> = search().into_iter().map(|trial| filtered(own, trial)).collect();
            all.push(filtered(other, trial(57, 190_000.0, 1.0, 0)));
            refutations(&strict(), &all.iter().collect::<Vec<_>>()).len()
        };
        assert_eq!((found(Some(26), Some(26)), found(Some(26), Some(2)), found(Some(2), Some(26))), (1, 0, 0));
        // Earlier versions did not record the number of rules.
        assert_eq!((found(None, None), found(None, Some(26))), (1, 0));
    }

    #[test]
    fn figures_and_rows_are_marked_by_trials_of_their_own_round() {
        let rank = RankFigure {
            higher_is_better: true,
            resolution: 0.02,
            claim: Some(strict()),
            ..RankFigure::new("throughput_64_pps", "Throughput", "fps", Some(104_000.0))
        };
        let row = Row { cells: vec![], trials: vec![1, 2], marks: vec![] };
        let table = Table { key: "t".into(), title: "T".into(), columns: vec![], rows: vec![row] };
        let outcome = Outcome { tables: vec![table], ranks: vec![rank], ..Outcome::default() };
        let test = crate::made::test(2, outcome);
        let marked = |round, dut: &str| {
            let mut trials = search();
            trials.push(TrialRecord { round, dut: dut.into(), ..trial(57, 190_000.0, 1.0, 0) });
            let mut tests = [test.clone()];
            mark(&mut tests, &trials);
            let [test] = tests;
            test.outcome
        };
        let refuted = marked(2, "d");
        assert_eq!(
            refuted.tables[0].rows[0].marks,
            ["NDR(0) refuted by trial 57: 0 of 190,000 frames lost at 190,000 fps"]
        );
        // The search found 104 kfps, but the DUT can forward more.
        assert_eq!(refuted.ranks[0].judged(), RoundFigure::Measured(Figure::at_least(104_000.0)));
        assert_eq!(refuted.ranks[0].round(), RoundFigure::Measured(Figure::exactly(104_000.0)));
        for other in [marked(3, "d"), marked(2, "e")] {
            assert!(other.ranks[0].refuted.is_empty() && other.tables[0].rows[0].marks.is_empty());
        }
    }
}
