//! Ranks of the DUTs: per figure, and over all figures.
//!
//! How ranks are made ([`HOW`] explains it in the report):
//! 1. For each figure the DUTs are ordered from best to worst. A figure ties with the best of its group when the two are
//!    closer together than the resolution of the figure (the larger of both), as a share of the larger.
//! 2. If the tester was the limit for two DUTs, they tie, with every DUT between them, because both may be better than
//!    measured.
//! 3. A DUT that was tested but has no value ranks last. A DUT that was not tested when the run ended, or that the tester
//!    skipped or could not measure, is not ranked in this figure.
//! 4. After a tie of n DUTs the next rank is n higher (1, 1, 3).
//! 5. The overall order is that of the mean rank over all figures in which every DUT of the comparison was ranked; each
//!    figure counts the same.
//! 6. Simulated DUTs are ranked among themselves only.

use crate::view::{Section, Standing};
use drophammer_model::outcome::RankFigure;
use drophammer_model::record::TestStatus;

/// The rules in one paragraph for the reader of a report.
pub const HOW: &str = "Rank 1 is best. DUTs share a rank if their figures differ by less than the resolution of the measurement \
(10 % in the profile quick, and always at least the width of the search). DUTs limited by the tester also share a rank, with every DUT between \
them. A DUT without a value ranks last. A DUT has no rank in a figure that does not apply or that the tester could not measure. The overall rank \
is the order of the mean ranks over all figures, with equal weights. Simulated DUTs are ranked among themselves only.";

/// A figure of one DUT with its rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The figure as the test gave it; absent when the test gave none.
    pub figure: Option<RankFigure>,
    /// False when the run ended before this DUT's turn.
    pub reached: bool,
    /// Rank from 1 among the DUTs of its kind (real or simulated); absent when not reached.
    pub rank: Option<u32>,
    /// Does it share its rank?
    pub tied: bool,
}

impl Entry {
    /// The value, if there is one.
    pub fn value(&self) -> Option<f64> {
        self.figure.as_ref().and_then(|f| f.value).filter(|v| v.is_finite())
    }

    /// Did the tester set this limit?
    pub fn tester_limited(&self) -> bool {
        self.value().is_some() && self.figure.as_ref().is_some_and(|f| f.tester_limited)
    }
}

/// One figure over all DUTs.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Index of the section (test) it comes from.
    pub section: usize,
    /// Machine name.
    pub key: String,
    /// For people.
    pub title: String,
    /// Unit.
    pub unit: String,
    /// Is more better?
    pub higher_is_better: bool,
    /// One per DUT, in the order of the DUTs.
    pub entries: Vec<Entry>,
}

/// Place of one DUT over all figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overall {
    /// Rank from 1 among the DUTs of its kind; absent when nothing could be compared.
    pub rank: Option<u32>,
    /// Does it share its rank?
    pub tied: bool,
    /// Mean of the ranks that count.
    pub mean: Option<f64>,
    /// Number of ranks that count.
    pub figures: usize,
}

/// All ranks of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    /// Figures in the order of tests and of importance within a test.
    pub figures: Vec<Ranked>,
    /// One per DUT, in the order of the DUTs.
    pub overall: Vec<Overall>,
    /// DUT indices from best to worst, real ones first, those without rank last.
    pub order: Vec<usize>,
}

/// Ranks DUTs by the figures of all sections; `simulated` has one entry per DUT.
pub fn rank(sections: &[Section], simulated: &[bool]) -> Ranking {
    let mut figures = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        for figure in keys(section) {
            let entries = section.results.iter().map(|r| {
                let own = r.record.and_then(|t| t.outcome.ranks.iter().find(|f| f.key == figure.key));
                // A figure without value is the DUT's: it gave none. A figure that is not there says nothing against a
                // DUT (no burst to find where it forwards at line rate; the tester could not measure), unless the
                // test failed with the DUT.
                let failed = matches!(r.standing, Standing::Ended(TestStatus::Failed(_)));
                Entry { figure: own.cloned(), reached: own.is_some() || failed, rank: None, tied: false }
            });
            let mut ranked = Ranked {
                section: index,
                key: figure.key.clone(),
                title: figure.title.clone(),
                unit: figure.unit.clone(),
                higher_is_better: figure.higher_is_better,
                entries: entries.collect(),
            };
            for kind in [false, true] {
                let group: Vec<usize> = (0..simulated.len()).filter(|d| simulated[*d] == kind).collect();
                rank_group(&mut ranked, &group);
            }
            figures.push(ranked);
        }
    }
    let mut overall = vec![Overall::default(); simulated.len()];
    for kind in [false, true] {
        let group: Vec<usize> = (0..simulated.len()).filter(|d| simulated[*d] == kind).collect();
        rank_overall(&figures, &group, &mut overall);
    }
    let mut order: Vec<usize> = (0..simulated.len()).collect();
    order.sort_by_key(|d| (simulated[*d], overall[*d].rank.unwrap_or(u32::MAX), *d));
    Ranking { figures, overall, order }
}

/// The figures of a section, each once, in the order of the first DUT that has it.
fn keys<'a>(section: &Section<'a>) -> Vec<&'a RankFigure> {
    let mut out: Vec<&RankFigure> = Vec::new();
    for figure in section.results.iter().filter_map(|r| r.record).flat_map(|t| &t.outcome.ranks) {
        if !out.iter().any(|f| f.key == figure.key) {
            out.push(figure);
        }
    }
    out
}

/// Ranks the DUTs of `group` in one figure.
fn rank_group(ranked: &mut Ranked, group: &[usize]) {
    let sign = if ranked.higher_is_better { -1.0 } else { 1.0 };
    let mut order: Vec<(usize, f64)> =
        group.iter().filter_map(|d| ranked.entries[*d].value().map(|v| (*d, v))).collect();
    order.sort_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)));
    let limited = |place: usize| ranked.entries[order[place].0].tester_limited();
    let first_limited = (0..order.len()).find(|p| limited(*p));
    let last_limited = (0..order.len()).rev().find(|p| limited(*p));
    let mut starts = Vec::new();
    for place in 0..order.len() {
        let within_limits = matches!((first_limited, last_limited), (Some(a), Some(b)) if a < place && place <= b);
        let close = starts.last().is_some_and(|leader| close(ranked, order[*leader], order[place]));
        if place == 0 || !(within_limits || close) {
            starts.push(place);
        }
    }
    let mut assigned: Vec<(usize, usize)> = Vec::new();
    for (place, (dut, _)) in order.iter().enumerate() {
        let start = starts.iter().rev().find(|s| **s <= place).copied().unwrap_or(0);
        assigned.push((*dut, start + 1));
    }
    let missing = order.len() + 1;
    for dut in group {
        let entry = &ranked.entries[*dut];
        if entry.value().is_none() && entry.reached {
            assigned.push((*dut, missing));
        }
    }
    for (dut, rank) in &assigned {
        ranked.entries[*dut].rank = u32::try_from(*rank).ok();
        ranked.entries[*dut].tied = assigned.iter().filter(|(_, r)| r == rank).count() > 1;
    }
}

/// Are two values closer together than the resolution?
fn close(ranked: &Ranked, a: (usize, f64), b: (usize, f64)) -> bool {
    let resolution = |d: usize| ranked.entries[d].figure.as_ref().map_or(0.0, |f| f.resolution.max(0.0));
    let share = resolution(a.0).max(resolution(b.0));
    // A hair above, so that figures exactly one resolution apart do not hang on the last bit.
    (a.1 - b.1).abs() <= share * a.1.abs().max(b.1.abs()) * (1.0 + 1e-9)
}

/// Mean ranks of the DUTs of `group` over the figures in which all of them took part.
fn rank_overall(figures: &[Ranked], group: &[usize], overall: &mut [Overall]) {
    // A DUT whose turn never came in any test takes no part, so that it does not void the comparison of the others.
    let present: Vec<usize> =
        group.iter().copied().filter(|d| figures.iter().any(|f| f.entries[*d].rank.is_some())).collect();
    let counted: Vec<&Ranked> =
        figures.iter().filter(|f| present.iter().all(|d| f.entries[*d].rank.is_some())).collect();
    if counted.is_empty() {
        return;
    }
    let sum = |d: usize| -> u64 { counted.iter().filter_map(|f| f.entries[d].rank).map(u64::from).sum() };
    for dut in &present {
        let better = present.iter().filter(|o| sum(**o) < sum(*dut)).count();
        overall[*dut] = Overall {
            rank: u32::try_from(better + 1).ok(),
            tied: present.iter().filter(|o| sum(**o) == sum(*dut)).count() > 1,
            mean: Some(sum(*dut) as f64 / counted.len() as f64),
            figures: counted.len(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: Option<f64>, limited: bool) -> Entry {
        let figure = RankFigure {
            key: "k".into(),
            title: "K".into(),
            unit: "fps".into(),
            value,
            higher_is_better: true,
            tester_limited: limited,
            resolution: 0.01,
        };
        Entry { figure: Some(figure), reached: true, rank: None, tied: false }
    }

    fn ranks(entries: Vec<Entry>, higher: bool) -> Vec<Option<u32>> {
        let group: Vec<usize> = (0..entries.len()).collect();
        let mut ranked = Ranked {
            section: 0,
            key: "k".into(),
            title: "K".into(),
            unit: "fps".into(),
            higher_is_better: higher,
            entries,
        };
        rank_group(&mut ranked, &group);
        ranked.entries.iter().map(|e| e.rank).collect()
    }

    #[test]
    fn better_is_first_in_both_directions() {
        let entries = || vec![figure(Some(100.0), false), figure(Some(300.0), false), figure(Some(200.0), false)];
        assert_eq!(ranks(entries(), true), [Some(3), Some(1), Some(2)]);
        assert_eq!(ranks(entries(), false), [Some(1), Some(3), Some(2)]);
    }

    #[test]
    fn within_the_resolution_is_a_tie_with_the_leader_and_does_not_chain() {
        let at = |v: f64| figure(Some(v), false);
        assert_eq!(ranks(vec![at(100.0), at(99.0), at(98.5), at(50.0)], true), [Some(1), Some(1), Some(3), Some(4)]);
        assert_eq!(ranks(vec![at(100.0), at(98.9)], true), [Some(1), Some(2)]);
    }

    #[test]
    fn the_testers_limit_is_a_tie_and_takes_in_what_lies_between() {
        let entries = vec![figure(Some(1000.0), true), figure(Some(950.0), false), figure(Some(900.0), true)];
        assert_eq!(ranks(entries, true), [Some(1), Some(1), Some(1)]);
        let entries = vec![figure(Some(1000.0), true), figure(Some(900.0), true), figure(Some(850.0), false)];
        assert_eq!(ranks(entries, true), [Some(1), Some(1), Some(3)]);
        let entries = vec![figure(Some(1000.0), true), figure(Some(900.0), false)];
        assert_eq!(ranks(entries, true), [Some(1), Some(2)]);
    }

    #[test]
    fn no_value_is_last_and_not_reached_is_not_ranked() {
        let mut late = figure(Some(1.0), false);
        late.figure = None;
        late.reached = false;
        let entries = vec![figure(None, false), figure(Some(5.0), false), figure(None, true), late];
        assert_eq!(ranks(entries, true), [Some(2), Some(1), Some(2), None]);
        assert_eq!(ranks(vec![figure(Some(0.0), false), figure(None, false)], true), [Some(1), Some(2)]);
    }
}
