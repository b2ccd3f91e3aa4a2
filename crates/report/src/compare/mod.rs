//! Compares several runs: what is better or worse than in the first run, and which conditions differ.
//!
//! 1. Figures of two runs belong together if test, key, DUT name, title, unit and direction are the same.
//! 2. The rounds of different runs are unrelated, so [`compare_unpaired`] compares figures without pairing. If a DUT gave
//!    no figure in some rounds, its failures are compared too.
//! 3. [`Family`] judges all comparisons together. A difference must also be large enough to matter.
//! 4. Runs with fewer than four rounds, refuted and doubtful figures, figures at different loads, and a simulated DUT with
//!    a real one are not compared. The comparison gives the reason.

pub(crate) mod conditions;
pub mod history;
mod json;
mod text;

pub use conditions::Condition;

use crate::rank::{Entry, by_failures, rule};
use crate::view::{DutResult, View};
use crate::{combined, grid};
use drophammer_judge::distinct;
use drophammer_judge::statistics::{Family, UNPAIRED_FROM, Unpaired, compare_unpaired};
use drophammer_model::figure::{Figure, Scale};
use drophammer_model::outcome::RankFigure;
use drophammer_model::quantity::group_digits;
use drophammer_store::Run;

/// The rules in one paragraph for the reader.
pub const HOW: &str = "Each run is compared with run A. The rounds of different runs are not paired: a two-sided t-test of Welch on the rounds \
(on logarithms, or on differences for figures that may be 0) proves a difference, with a chance of at most 5 % of any false one among all \
comparisons (Holm), and only if the difference is large enough to matter (3 % unless stated). The table shows the difference of the means, and \
below it the 95 % interval of this difference alone. A limit of the tester counts as a bound, not as a value. Whatever else changed between the \
runs, such as the host, is part of a difference.";

/// Runs side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The runs. The first one is the reference.
    pub runs: Vec<RunLine>,
    /// Conditions that differ between the runs.
    pub conditions: Vec<Condition>,
    /// One line per figure and DUT, sorted by DUT.
    pub lines: Vec<Line>,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunLine {
    /// `A` for the first run.
    pub letter: String,
    /// The folder of the run.
    pub folder: String,
    /// Name of its suite.
    pub suite: String,
    /// Start time.
    pub started: String,
    /// State of the run.
    pub state: String,
}

/// One figure of one DUT in all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Machine name of the test, with `-2` if the suite has it a second time.
    pub test: String,
    /// Machine name of the figure.
    pub key: String,
    /// Title for people, with unit and direction.
    pub title: String,
    /// Unit.
    pub unit: String,
    /// True if higher values are better.
    pub higher_is_better: bool,
    /// True if the figure is compared by difference instead of by ratio.
    pub by_difference: bool,
    /// The DUT.
    pub dut: String,
    /// Its entry in each run.
    pub entries: Vec<Option<Entry>>,
    /// Result for each run except the first.
    pub findings: Vec<Finding>,
}

/// Comparison of a run with the first one.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Better, worse or not known.
    pub verdict: Verdict,
    /// The difference, if there are figures to compare.
    pub values: Option<Unpaired>,
    /// Probability that this difference is due to chance; absent if there was no comparison.
    pub p: Option<f64>,
}

/// Result of the comparison with the first run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Proven to be better.
    Better,
    /// Proven to be worse.
    Worse,
    /// No relevant difference is proven.
    Undecided,
    /// The figure was not compared, for this reason.
    NotCompared(String),
}

/// The comparisons of a run, counted by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Proven to be better.
    pub better: usize,
    /// Proven to be worse.
    pub worse: usize,
    /// Without a proven difference.
    pub undecided: usize,
    /// Not compared.
    pub not_compared: usize,
}

impl Count {
    /// True if anything was compared.
    pub fn is_something(&self) -> bool {
        self.better + self.worse + self.undecided > 0
    }
}

/// `A`, `B` and so on; after `Z` a number.
fn letter(run: usize) -> String {
    match run {
        0..26 => char::from(b'A' + run as u8).to_string(),
        _ => format!("#{}", run + 1),
    }
}

/// Compares runs with the first one.
pub fn compare_runs(runs: &[Run]) -> Compared {
    let combined: Vec<Run> = runs.iter().map(combined).collect();
    let views: Vec<View> = combined.iter().map(View::new).collect();
    let run = |(index, view): (usize, &View)| RunLine {
        letter: letter(index),
        folder: view.run.dir.display().to_string(),
        suite: view.run.started.suite.clone(),
        started: view.run.started.time.clone(),
        state: view.state_text(),
    };
    let mut lines = lines(&views);
    judge(&mut lines);
    Compared {
        runs: views.iter().enumerate().map(run).collect(),
        conditions: conditions::different(&views, &lines),
        lines,
    }
}

impl Compared {
    /// Counts the results of the comparisons of run `run` (not the first).
    pub fn count(&self, run: usize) -> Count {
        let mut count = Count::default();
        for finding in self.lines.iter().filter_map(|line| line.findings.get(run.checked_sub(1)?)) {
            match finding.verdict {
                Verdict::Better => count.better += 1,
                Verdict::Worse => count.worse += 1,
                Verdict::Undecided => count.undecided += 1,
                Verdict::NotCompared(_) => count.not_compared += 1,
            }
        }
        count
    }

    /// True if any figure is proven to be worse than in the first run.
    pub fn is_worse(&self) -> bool {
        (1..self.runs.len()).any(|run| self.count(run).worse > 0)
    }

    /// True if a run has no figure that could be compared with the first run, so that nothing is known about that run.
    pub fn is_open(&self) -> bool {
        (1..self.runs.len()).any(|run| !self.count(run).is_something())
    }

    /// The comparison as text for the terminal, with ANSI colours if `color` is set.
    pub fn text(&self, color: bool) -> String {
        text::text(self, color)
    }

    /// The comparison as JSON, indented, with a line feed at the end.
    pub fn json(&self) -> String {
        json::json(self)
    }
}

/// All figures of all DUTs, in the order of the first run that has them.
fn lines(views: &[View]) -> Vec<Line> {
    let duts = distinct(views.iter().flat_map(|view| &view.duts).map(|dut| dut.name));
    let figures = distinct(views.iter().flat_map(known));
    let all = duts.iter().flat_map(|dut| figures.iter().map(move |(test, key)| (*dut, *test, *key)));
    all.filter_map(|(dut, test, key)| line(views, dut, test, key)).collect()
}

/// The figures of a run, as test and key.
fn known<'a>(view: &'a View<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    view.ranking.figures.iter().map(|figure| (view.sections[figure.section].id.as_str(), figure.key.as_str()))
}

/// One figure of one DUT; `None` if no run has an entry for it.
fn line(views: &[View], dut: &str, test: &str, key: &str) -> Option<Line> {
    let entries: Vec<Option<Entry>> = views.iter().map(|view| entry(view, dut, test, key)).collect();
    // A run in which the DUT failed has no figure, and so no title or unit.
    let (view, first) = views.iter().zip(&entries).find_map(|(view, entry)| {
        let figure = entry.as_ref()?.figure.as_ref()?;
        Some((view, figure))
    })?;
    let ranked = view.ranking.figures.iter().find(|f| view.sections[f.section].id == test && f.key == key)?;
    let plain = |verdict| Finding { verdict, values: None, p: None };
    let findings = (1..views.len())
        .map(|run| {
            let outage = outage(&entries, run).filter(|_| !are_of_two_kinds(views, dut, run));
            match (outage, comparable(views, &entries, (dut, test), run)) {
                (Some(verdict), _) => plain(verdict),
                (None, Ok((a, b))) => compared(a, b),
                (None, Err(why)) => plain(Verdict::NotCompared(why)),
            }
        })
        .collect();
    Some(Line {
        test: test.to_owned(),
        key: key.to_owned(),
        title: grid::figure_title(view, ranked),
        unit: first.unit.clone(),
        higher_is_better: first.higher_is_better,
        by_difference: first.scale == Scale::Difference,
        dut: dut.to_owned(),
        entries,
        findings,
    })
}

/// The entry of a run for a figure. The failed rounds of a failed test count even if no DUT of the run produced the
/// figure.
fn entry(view: &View, dut: &str, test: &str, key: &str) -> Option<Entry> {
    let place = place(view, dut)?;
    let ranked = view.ranking.figures.iter().find(|f| view.sections[f.section].id == test && f.key == key);
    if let Some(entry) = ranked.and_then(|ranked| ranked.entries.get(place)).filter(|entry| entry.is_known()) {
        return Some(Entry { rank: None, tied: false, better_than: Vec::new(), ..entry.clone() });
    }
    let rounds = result(view, test, place)?.failed_rounds()?;
    Some(Entry::new(None, rounds))
}

fn place(view: &View, dut: &str) -> Option<usize> {
    view.duts.iter().position(|known| known.name == dut)
}

fn result<'v, 'a>(view: &'v View<'a>, test: &str, dut: usize) -> Option<&'v DutResult<'a>> {
    let section = view.sections.iter().find(|section| section.id == test)?;
    section.results.iter().find(|result| result.dut == dut)
}

/// True if the DUT is simulated in the first run and real in run `run`, or the other way round.
fn are_of_two_kinds(views: &[View], dut: &str, run: usize) -> bool {
    // Nothing is known about a DUT that did not come up.
    let simulated = |run: usize| Some(views[run].duts[place(&views[run], dut)?].records.first()?.simulated);
    simulated(0).zip(simulated(run)).is_some_and(|(first, other)| first != other)
}

/// The verdict if a test worked in every round of one run and failed in every round of the other: that needs no
/// statistics. A refuted or doubtful figure does not prove that it worked.
fn outage(entries: &[Option<Entry>], run: usize) -> Option<Verdict> {
    let (a, b) = (entries[0].as_ref()?, entries[run].as_ref()?);
    let is_sound = |entry: &Entry| entry.value().is_some() && !entry.refuted() && !entry.doubtful();
    let works = |entry: &Entry| is_sound(entry) && entry.failures().0 == 0;
    match (works(a) && b.has_only_failed(), a.has_only_failed() && works(b)) {
        (true, _) => Some(Verdict::Worse),
        (_, true) => Some(Verdict::Better),
        _ => None,
    }
}

/// The entries of the first run and of run `run`, or the reason why they cannot be compared.
fn comparable<'a>(
    views: &[View],
    entries: &'a [Option<Entry>],
    (dut, test): (&str, &str),
    run: usize,
) -> Result<(&'a Entry, &'a Entry), String> {
    let both = [0, run];
    let missing = |run: usize| format!("not in {}: {}", letter(run), why_missing(&views[run], dut, test));
    let (a, b) = match (&entries[0], &entries[run]) {
        (Some(a), Some(b)) => (a, b),
        (None, None) => return Err("in neither run".into()),
        (None, Some(_)) => return Err(missing(0)),
        (Some(_), None) => return Err(missing(run)),
    };
    if are_of_two_kinds(views, dut, run) {
        return Err("simulated in one run, real in the other".into());
    }
    for (of, entry) in both.iter().zip([a, b]) {
        if entry.rounds.len() < UNPAIRED_FROM {
            let s = if entry.rounds.len() == 1 { "" } else { "s" };
            let rounds = entry.rounds.len();
            return Err(format!("{} has {rounds} round{s}, and fewer than {UNPAIRED_FROM} prove nothing", letter(*of)));
        }
        if entry.refuted() {
            return Err(format!("other trials of {} contradict it", letter(*of)));
        }
        if entry.doubtful() {
            return Err(format!("in {} frames were lost while the processor was idle", letter(*of)));
        }
    }
    if let (Some(a), Some(b)) = (&a.figure, &b.figure) {
        if let Some(why) = other_figure(a, b) {
            return Err(why);
        }
        if let (false, Some(at_a), Some(at_b)) = (a.same_load(b), a.load_pps, b.load_pps) {
            let load = |pps: f64| group_digits(pps.round() as u64);
            return Err(format!("measured at different loads: {} and {} fps per port", load(at_a), load(at_b)));
        }
    }
    Ok((a, b))
}

/// The reason why a run has no entry for a figure.
fn why_missing(view: &View, dut: &str, test: &str) -> String {
    let Some(place) = place(view, dut) else { return "it has no DUT of this name".into() };
    match result(view, test, place) {
        None => "it has no such test".into(),
        Some(result) if result.standing.is_completed() => "the test gave no such figure".into(),
        Some(result) => result.standing.text(),
    }
}

/// The reason why two figures with the same key are different figures; `None` if they are the same.
fn other_figure(a: &RankFigure, b: &RankFigure) -> Option<String> {
    // Earlier versions did not record that a rate is per port.
    let unit = |figure: &RankFigure| figure.unit.strip_suffix(" per port").unwrap_or(&figure.unit).to_owned();
    let same = unit(a) == unit(b) && a.scale == b.scale && a.higher_is_better == b.higher_is_better;
    match (a.title == b.title, same) {
        (true, true) => None,
        (true, false) => Some("its unit or meaning differs".into()),
        (false, _) => Some(format!("another figure: {}", b.title)),
    }
}

/// The difference of two entries. The verdict is preliminary until [`judge`] has seen all differences.
fn compared(a: &Entry, b: &Entry) -> Finding {
    let rule = rule(a, b);
    let known = |entry: &Entry| -> Vec<Figure> { entry.rounds.iter().filter_map(|round| round.figure()).collect() };
    // The difference of the later run from the first one.
    let values = rule.as_ref().and_then(|rule| compare_unpaired(&known(b), &known(a), rule));
    let better = |is: bool| if is { Verdict::Better } else { Verdict::Worse };
    // Because there are two statistical tests, each probability counts twice.
    let (p, verdict) = match (&values, by_failures(b, a)) {
        (Some(values), None) => (values.p, claim(values)),
        (None, Some((p, b_is_better))) => (p, better(b_is_better)),
        (Some(values), Some((p, _))) if values.p <= p => ((2.0 * values.p).min(1.0), claim(values)),
        (Some(_), Some((p, b_is_better))) => ((2.0 * p).min(1.0), better(b_is_better)),
        (None, None) => {
            let why = format!("fewer than {UNPAIRED_FROM} rounds with a figure prove nothing");
            return Finding { verdict: Verdict::NotCompared(why), values, p: None };
        }
    };
    Finding { verdict, values, p: Some(p) }
}

/// The verdict if the difference is proven.
fn claim(values: &Unpaired) -> Verdict {
    match (values.matters, values.a_is_better) {
        (false, _) => Verdict::Undecided,
        (true, true) => Verdict::Better,
        (true, false) => Verdict::Worse,
    }
}

/// Withdraws verdicts that are not proven when all comparisons are judged together.
fn judge(lines: &mut [Line]) {
    let all: Vec<f64> = lines.iter().flat_map(|line| &line.findings).filter_map(|finding| finding.p).collect();
    let family = Family::new(&all);
    let findings = lines.iter_mut().flat_map(|line| &mut line.findings).filter(|finding| finding.p.is_some());
    for (index, finding) in findings.enumerate() {
        if !family.is_proven(index) {
            finding.verdict = Verdict::Undecided;
        }
    }
}
