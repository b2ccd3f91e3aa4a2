//! Ranks of the DUTs: per figure, and over all figures.
//!
//! The rules, which [`HOW`] explains in the report:
//! 1. The round is the sample: each DUT has one figure per round. [`compare`] compares every two DUTs in each figure. If a
//!    DUT gave no figure in some rounds, its failures are compared too. If DUTs were measured at the same time,
//!    [`ratio_of_rounds`] compares them trial by trial over all rounds; one round is enough for that.
//! 2. [`Family`] judges all comparisons of the run together, so that the chance of any false rank is at most 5 %. A
//!    difference must also be large enough to matter.
//! 3. The rank of a DUT is 1 plus the number of DUTs that are proven to be better. DUTs share a rank if none is proven to
//!    be better.
//! 4. A DUT has no rank in a figure that does not apply to it, that no round measured, or in which all DUTs always
//!    failed. A single round gives no ranks.
//! 5. A figure has no rank if another trial of the same traffic refutes it in any round, or if in most rounds it depends
//!    on frames that were lost while the processor was idle ([`drophammer_judge::doubt`]).
//! 6. Figures at different loads ([`RankFigure::load_pps`]) are not compared.
//! 7. The overall order follows the mean rank over all tests in which every compared DUT has a rank. Each test has one
//!    vote, however many figures it has.
//! 8. Disturbed trials are repeated and no figure uses them, so their share does not affect ranks.
//! 9. Simulated DUTs are ranked only among themselves.

use crate::view::Section;
use drophammer_judge::statistics::{
    Comparison, Family, PairedRatio, Rule, Summary, Verdict, compare, compare_failures, ratio_of_rounds, summarize,
};
use drophammer_model::figure::{Figure, RoundFigure, Scale};
use drophammer_model::outcome::{Missing, RankFigure, are_same_load};

/// The rules in one paragraph for the reader of a report.
pub const HOW: &str = "Rank 1 is best. Two DUTs get different ranks only if their figures of all rounds prove a difference that is large \
    enough to matter (3 % unless stated): by a paired t-test on the rounds, and from ten rounds on also by a sign test, with a chance of at most \
    5 % of any false rank in the whole report (Holm). The rank of a DUT is 1 plus the number of DUTs that are proven to be better, so DUTs that \
    cannot be told apart share a rank. A limit of the tester counts as a bound, not as a value. DUTs that were measured at the same time are \
    compared trial by trial instead. Otherwise a single round gives no ranks. Figures that another trial refutes, figures that rest on frames \
    lost while the DUT's processor was idle, and figures at different loads have no ranks. The overall rank is the order of the mean ranks over \
    all tests, with one vote per test. Simulated DUTs are ranked only among themselves.";

/// A figure of one DUT with its rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// False if the suite does not run the test on this DUT.
    pub asked: bool,
    /// The figure from the test, as the median of all rounds; absent if the test gave none.
    pub figure: Option<RankFigure>,
    /// Result of each round, in order.
    pub rounds: Vec<RoundFigure>,
    /// Median and interval over the rounds.
    pub summary: Option<Summary>,
    /// Rank from 1 among the DUTs of its kind (real or simulated).
    pub rank: Option<u32>,
    /// True if it shares its rank.
    pub tied: bool,
    /// DUTs that it is proven to be better than. A DUT of rank 1 is not necessarily better than a DUT of rank 2: a
    /// third DUT may be.
    pub better_than: Vec<usize>,
}

impl Entry {
    /// An entry without a rank.
    pub(crate) fn new(figure: Option<RankFigure>, rounds: Vec<RoundFigure>) -> Entry {
        let known: Vec<Figure> = rounds.iter().filter_map(|round| round.figure()).collect();
        Entry { asked: true, figure, summary: summarize(&known), rounds, ..Entry::default() }
    }

    /// The reason why it has no value, if the test reported one.
    pub fn missing(&self) -> Option<&Missing> {
        self.figure.as_ref()?.missing.as_ref().filter(|_| self.value().is_none())
    }

    /// The value, if there is one.
    pub fn value(&self) -> Option<f64> {
        self.figure.as_ref().and_then(|f| f.value).filter(|v| v.is_finite())
    }

    /// True if the figure is a bound, because the tester or the suite ended the test before the DUT reached its limit.
    pub fn tester_limited(&self) -> bool {
        self.value().is_some() && self.figure.as_ref().is_some_and(|f| f.tester_limited || f.capped)
    }

    /// True if the figure is a bound because the suite asks for no more (`max_routes`, `max_load`).
    pub fn suite_limited(&self) -> bool {
        self.tester_limited() && self.figure.as_ref().is_some_and(|f| f.capped && !f.tester_limited)
    }

    /// True if the figure is a bound because the tester could not offer or take more.
    pub fn limited_by_tester(&self) -> bool {
        self.tester_limited() && !self.suite_limited()
    }

    /// True if trials with the same traffic contradict the figure. It then has no rank.
    pub fn refuted(&self) -> bool {
        self.figure.as_ref().is_some_and(|f| !f.refuted.is_empty())
    }

    /// True if the figure depends on frames that were lost while the processor was idle. If so, it has no rank.
    pub fn doubtful(&self) -> bool {
        self.figure.as_ref().is_some_and(|f| !f.doubts.is_empty())
    }

    /// True if the figure says anything about the DUT.
    pub fn is_known(&self) -> bool {
        self.rounds.iter().any(|round| *round != RoundFigure::NotMeasured)
    }

    /// The figures of the rounds in which `other` was measured at the same load, or in which the figure does not depend
    /// on a load. Rounds are compared in pairs, and a pair with two different loads says nothing.
    fn figures_comparable_with(&self, other: &Entry) -> Vec<Option<Figure>> {
        let load = |entry: &Entry, at: usize| entry.figure.as_ref()?.round_loads.get(at).copied().flatten();
        let same = |at: usize| are_same_load(load(self, at), load(other, at));
        self.rounds.iter().enumerate().map(|(at, round)| round.figure().filter(|_| same(at))).collect()
    }

    /// The pairs of trials at the same time as `other`, by round. A round with a bound has no pairs.
    fn duets_with(&self, other: &Entry) -> Vec<Vec<(f64, f64)>> {
        let samples = |entry: &Entry, at: usize| -> Vec<f64> {
            let exact = entry.rounds.get(at).and_then(|round| round.figure()).is_some_and(Figure::is_exact);
            let own = entry.figure.as_ref().and_then(|figure| figure.round_samples.get(at));
            own.filter(|_| exact).cloned().unwrap_or_default()
        };
        let of_round = |at: usize| {
            let (own, others) = (samples(self, at), samples(other, at));
            if own.len() == others.len() { own.into_iter().zip(others).collect() } else { Vec::new() }
        };
        (0..self.rounds.len()).map(of_round).collect()
    }

    /// Number of failed rounds, and number of rounds with any result.
    pub(crate) fn failures(&self) -> (usize, usize) {
        let known = self.rounds.iter().filter(|round| **round != RoundFigure::NotMeasured);
        let failed = self.rounds.iter().filter(|round| **round == RoundFigure::Failed);
        (failed.count(), known.count())
    }

    /// True if every round that says anything about the DUT failed.
    pub(crate) fn has_only_failed(&self) -> bool {
        let (failed, known) = self.failures();
        known > 0 && failed == known
    }
}

/// One figure over all DUTs.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Index of its section (test).
    pub section: usize,
    /// Machine name of the test.
    pub test: String,
    /// Machine name.
    pub key: String,
    /// For people.
    pub title: String,
    /// Unit.
    pub unit: String,
    /// True if more is better.
    pub higher_is_better: bool,
    /// One per DUT, in the order of the DUTs.
    pub entries: Vec<Entry>,
    /// Smallest difference that this run would have found with a probability of 90 %: a share, or in the figure's unit if
    /// `by_difference`. Absent if no DUTs were compared.
    pub detectable: Option<f64>,
    /// True if figures are compared by difference instead of by ratio.
    pub by_difference: bool,
    /// Ratios of DUTs that were measured at the same time.
    pub duets: Vec<Duet>,
    /// True if DUTs were measured at different loads. Figures at different loads are not compared.
    pub different_loads: bool,
}

/// Two DUTs that were measured at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Duet {
    /// The first DUT.
    pub a: usize,
    /// The second DUT.
    pub b: usize,
    /// The first over the second.
    pub ratio: PairedRatio,
}

/// Place of one DUT over all figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overall {
    /// Rank from 1 among the DUTs of its kind; absent if there was nothing to compare.
    pub rank: Option<u32>,
    /// True if it shares its rank.
    pub tied: bool,
    /// Mean of the counted ranks, with one vote per test.
    pub mean: Option<f64>,
    /// Number of counted figures.
    pub figures: usize,
}

/// All ranks of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    /// Figures by test, and within a test by importance.
    pub figures: Vec<Ranked>,
    /// One per DUT, in the order of the DUTs.
    pub overall: Vec<Overall>,
    /// DUT indices: real DUTs, then simulated ones, each from best to worst, with DUTs without a rank last.
    pub order: Vec<usize>,
}

/// Probability of finding a difference of [`Ranked::detectable`].
const POWER: f64 = 0.9;

/// Two DUTs in one figure.
struct Pair {
    figure: usize,
    a: usize,
    b: usize,
    comparison: Comparison,
}

/// Ranks DUTs by the figures of all sections; `simulated` has one entry per DUT.
pub fn rank(sections: &[Section], simulated: &[bool]) -> Ranking {
    let mut figures: Vec<Ranked> = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        figures.extend(keys(section).into_iter().map(|figure| ranked(index, section, figure, simulated.len())));
    }
    let mut pairs = Vec::new();
    for (index, figure) in figures.iter().enumerate() {
        for a in 0..simulated.len() {
            for b in (a + 1..simulated.len()).filter(|b| simulated[*b] == simulated[a]) {
                let (one, other) = (&figure.entries[a], &figure.entries[b]);
                let comparison = compared(one, other);
                pairs.extend(comparison.map(|comparison| Pair { figure: index, a, b, comparison }));
            }
        }
    }
    let family = Family::new(&pairs.iter().map(|pair| pair.comparison.p).collect::<Vec<_>>());
    assign(&mut figures, &pairs, &family, simulated);
    for figure in &mut figures {
        let all = (0..figure.entries.len()).flat_map(|a| (a + 1..figure.entries.len()).map(move |b| (a, b)));
        let duet = |(a, b): (usize, usize)| {
            let ratio = ratio_of_rounds(&figure.entries[a].duets_with(&figure.entries[b]))?;
            Some(Duet { a, b, ratio })
        };
        figure.duets = all.filter_map(duet).collect();
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

fn ranked(index: usize, section: &Section<'_>, figure: &RankFigure, duts: usize) -> Ranked {
    let entries = (0..duts).map(|dut| {
        let Some(result) = section.results.iter().find(|result| result.dut == dut) else { return Entry::default() };
        let own = result.record.and_then(|t| t.outcome.ranks.iter().find(|f| f.key == figure.key));
        let rounds = match own {
            Some(own) if own.rounds.is_empty() => vec![own.round()],
            Some(own) => own.rounds.clone(),
            None => result.failed_rounds().unwrap_or_default(),
        };
        Entry::new(own.cloned(), rounds)
    });
    let entries: Vec<Entry> = entries.collect();
    let own: Vec<&RankFigure> = entries.iter().filter_map(|entry| entry.figure.as_ref()).collect();
    let different_loads = own.iter().any(|a| own.iter().any(|b| !a.same_load(b)));
    Ranked {
        section: index,
        test: section.test.clone(),
        key: figure.key.clone(),
        title: figure.title.clone(),
        unit: figure.unit.clone(),
        higher_is_better: figure.higher_is_better,
        entries,
        detectable: None,
        duets: Vec::new(),
        by_difference: figure.scale == Scale::Difference,
        different_loads,
    }
}

/// The comparison of two DUTs in one figure; `None` if they cannot be compared.
fn compared(a: &Entry, b: &Entry) -> Option<Comparison> {
    let at_other_load = a.figure.as_ref().zip(b.figure.as_ref()).is_some_and(|(a, b)| !a.same_load(b));
    if at_other_load || [a, b].iter().any(|entry| entry.refuted() || entry.doubtful()) {
        return None;
    }
    // Two DUTs that always failed have nothing to compare.
    if a.has_only_failed() && b.has_only_failed() {
        return None;
    }
    let rule = rule(a, b)?;
    if let Some(ratio) = ratio_of_rounds(&a.duets_with(b)) {
        return Some(of_duet(&ratio, &rule));
    }
    let (of_a, of_b) = (a.figures_comparable_with(b), b.figures_comparable_with(a));
    let by_value = if are_bounds(&of_a, &of_b) { None } else { compare(&of_a, &of_b, &rule) };
    let Some((p, a_is_better)) = by_failures(a, b) else { return by_value };
    // With two statistical tests, each probability counts twice.
    match by_value {
        Some(by_value) if by_value.p <= p => Some(Comparison { p: (2.0 * by_value.p).min(1.0), ..by_value }),
        _ => Some(Comparison {
            rounds: a.failures().1.min(b.failures().1),
            difference: f64::NAN,
            a_is_better,
            p: (2.0 * p).min(1.0),
            deviation: f64::NAN,
            matters: true,
        }),
    }
}

/// How to compare two entries: with the coarser of the two resolutions.
pub(crate) fn rule(a: &Entry, b: &Entry) -> Option<Rule> {
    let figures = || [&a.figure, &b.figure].into_iter().flatten();
    let mut rule = Rule::from(figures().next()?);
    for figure in figures() {
        rule.resolution = rule.resolution.max(figure.resolution);
        rule.least = rule.least.max(figure.least);
    }
    Some(rule)
}

/// The probability that failures differ this much by chance, and whether `a` failed less often; `None` without failures,
/// or with fewer than two rounds.
pub(crate) fn by_failures(a: &Entry, b: &Entry) -> Option<(f64, bool)> {
    let (a, b) = (a.failures(), b.failures());
    (a.0 + b.0 > 0 && a.1 > 1 && b.1 > 1).then(|| (compare_failures(a, b), a.0 * b.1 < b.0 * a.1))
}

/// The comparison by the ratio of trials at the same time.
fn of_duet(ratio: &PairedRatio, rule: &Rule) -> Comparison {
    Comparison {
        rounds: ratio.observations,
        difference: ratio.ratio - 1.0,
        a_is_better: (ratio.ratio > 1.0) == rule.higher_is_better,
        p: ratio.p,
        deviation: ratio.deviation,
        matters: ratio.ratio.ln().abs() >= rule.least.ln_1p(),
    }
}

/// True if every pair has two bounds on the same side, like two routers that reach at least what the tester can offer.
/// Nothing is known about their difference.
fn are_bounds(a: &[Option<Figure>], b: &[Option<Figure>]) -> bool {
    let mut pairs = a.iter().zip(b).filter_map(|(a, b)| a.zip(*b)).peekable();
    let same_side = |(a, b): (Figure, Figure)| {
        (a.high == f64::INFINITY && b.high == f64::INFINITY)
            || (a.low == f64::NEG_INFINITY && b.low == f64::NEG_INFINITY)
    };
    pairs.peek().is_some() && pairs.all(same_side)
}

/// Assigns ranks and detectable differences.
fn assign(figures: &mut [Ranked], pairs: &[Pair], family: &Family, simulated: &[bool]) {
    for (index, figure) in figures.iter_mut().enumerate() {
        let own = || pairs.iter().enumerate().filter(|(_, pair)| pair.figure == index);
        let verdict = |a: usize, b: usize| {
            own().find(|(_, pair)| (pair.a, pair.b) == (a.min(b), a.max(b))).map(|(at, pair)| {
                match family.verdict(at, &pair.comparison) {
                    Verdict::Undecided => None,
                    Verdict::ABetter => Some(pair.a),
                    Verdict::BBetter => Some(pair.b),
                }
            })
        };
        let ranks: Vec<Option<u32>> = (0..simulated.len())
            .map(|dut| {
                let others = || (0..simulated.len()).filter(move |other| *other != dut);
                // A DUT that was compared with no other has no rank.
                let compared = others().filter_map(|other| verdict(other, dut).map(|better| (other, better)));
                let compared: Vec<(usize, Option<usize>)> = compared.collect();
                if compared.is_empty() || !figure.entries[dut].is_known() {
                    return None;
                }
                u32::try_from(1 + compared.iter().filter(|(other, better)| *better == Some(*other)).count()).ok()
            })
            .collect();
        for (dut, rank) in ranks.iter().enumerate() {
            let worse = (0..simulated.len()).filter(|other| *other != dut && verdict(dut, *other) == Some(Some(dut)));
            figure.entries[dut].better_than = worse.collect();
            let same = |other: usize| other != dut && simulated[other] == simulated[dut] && ranks[other] == *rank;
            figure.entries[dut].rank = *rank;
            figure.entries[dut].tied = rank.is_some() && (0..simulated.len()).any(same);
        }
        let rule = figure.entries.iter().find_map(|entry| entry.figure.as_ref()).map(Rule::from);
        let found = own().filter_map(|(_, pair)| {
            let Comparison { deviation, rounds, .. } = pair.comparison;
            rule?.detectable(deviation, rounds, Family::strictest(pairs.len()), POWER)
        });
        figure.detectable = found.reduce(f64::max);
    }
}

/// Ranks the DUTs of `group` by their mean rank over the figures in which all of them have a rank.
fn rank_overall(figures: &[Ranked], group: &[usize], overall: &mut [Overall]) {
    // Ignore DUTs without any rank, so that the others can still be compared.
    let present: Vec<usize> =
        group.iter().copied().filter(|d| figures.iter().any(|f| f.entries[*d].rank.is_some())).collect();
    let counted: Vec<&Ranked> =
        figures.iter().filter(|f| present.iter().all(|d| f.entries[*d].rank.is_some())).collect();
    let mut tests: Vec<&str> = counted.iter().map(|figure| figure.test.as_str()).collect();
    tests.sort_unstable();
    tests.dedup();
    if tests.is_empty() {
        return;
    }
    let mean = |dut: usize| -> f64 {
        let of_test = |test: &&str| {
            let ranks: Vec<f64> = counted
                .iter()
                .filter(|figure| figure.test == **test)
                .filter_map(|figure| figure.entries[dut].rank.map(f64::from))
                .collect();
            ranks.iter().sum::<f64>() / ranks.len() as f64
        };
        tests.iter().map(of_test).sum::<f64>() / tests.len() as f64
    };
    // Means are sums of fractions, so the last bit must not decide.
    let better = |a: f64, b: f64| a < b - 1e-9;
    for dut in &present {
        let own = mean(*dut);
        let ahead = present.iter().filter(|o| better(mean(**o), own)).count();
        overall[*dut] = Overall {
            rank: u32::try_from(ahead + 1).ok(),
            tied: present.iter().any(|o| o != dut && !better(mean(*o), own) && !better(own, mean(*o))),
            mean: Some(own),
            figures: counted.len(),
        };
    }
}

#[cfg(test)]
mod tests;
