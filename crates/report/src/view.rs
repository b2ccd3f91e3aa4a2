//! A run prepared for reports: by test, with the tables and plots of all DUTs merged.

use crate::format::several;
use crate::merge::{merge_plots, merge_tables};
use crate::rank::{self, Ranking};
use crate::{drops, ending, grouped};
use drophammer_judge::distinct;
use drophammer_judge::held_up::{HeldUp, held_up};
use drophammer_model::environment::DutRecord;
use drophammer_model::figure::RoundFigure;
use drophammer_model::outcome::{Cell, Column, Plot, Row};
use drophammer_model::record::{SELF_TEST, TestRecord, TestStatus, TrialRecord};
use drophammer_model::suite::MAX_ROUNDS;
use drophammer_store::{Run, RunState};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// A run prepared for reports.
#[derive(Debug)]
pub struct View<'a> {
    /// The run.
    pub run: &'a Run,
    /// DUTs in the order of the suite.
    pub duts: Vec<DutView<'a>>,
    /// Tests in the order of the suite.
    pub sections: Vec<Section<'a>>,
    /// The tester's own loop without a router, if it was measured. It is not a DUT and has no ranks.
    pub tester: Option<DutView<'a>>,
    /// Tests of the tester itself. Their DUT index is the index after the last DUT.
    pub ceiling: Vec<Section<'a>>,
    /// Ranks of the DUTs.
    pub ranking: Ranking,
    /// Trials of each DUT that the host made invalid.
    pub held_up: Vec<HeldUp>,
    /// DUTs whose drops are counted.
    pub drops_counted: HashSet<&'a str>,
}

/// One DUT.
#[derive(Debug)]
pub struct DutView<'a> {
    /// Name in the suite.
    pub name: &'a str,
    /// Its records, one per configuration; empty if it never came up.
    pub records: Vec<&'a DutRecord>,
    /// True if the tester simulates it.
    pub simulated: bool,
}

impl DutView<'_> {
    /// Name with a visible mark for a simulated device.
    pub fn label(&self) -> String {
        if self.simulated { format!("{} (simulated)", self.name) } else { self.name.to_owned() }
    }
}

/// State of a test on a DUT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has a record.
    Ended(TestStatus),
    /// It has trials but no record, because the run was cut off during it.
    CutOff,
    /// The run ended before its turn.
    NotReached,
    /// The run completed without it: the DUT did not come up.
    NotRun,
}

impl Standing {
    /// The state in words.
    pub fn text(&self) -> String {
        match self {
            Standing::Ended(TestStatus::Completed) => "completed".into(),
            Standing::Ended(TestStatus::Failed(cause)) => format!("failed: {cause}"),
            Standing::Ended(TestStatus::Partly(why)) => format!("completed only {why}"),
            Standing::Ended(TestStatus::FewerRounds(why)) => format!("measured {why}"),
            Standing::Ended(TestStatus::Unfit(why)) => format!("not measured: {why}"),
            Standing::Ended(TestStatus::Interrupted) => "stopped by the user".into(),
            Standing::Ended(TestStatus::Skipped(why)) => format!("skipped: {why}"),
            Standing::Ended(TestStatus::NotAsked) => "the suite runs it on other DUTs only".into(),
            Standing::CutOff => "cut off during this test; only its trials are stored".into(),
            Standing::NotReached => "not reached before the run ended".into(),
            Standing::NotRun => "not run; see the problems".into(),
        }
    }

    /// True if the test ran to its end.
    pub fn is_completed(&self) -> bool {
        matches!(self, Standing::Ended(TestStatus::Completed))
    }

    /// True if the test ran to its end in every round that was neither spoilt by the tester nor skipped.
    pub fn is_measured(&self) -> bool {
        matches!(self, Standing::Ended(TestStatus::Completed | TestStatus::FewerRounds(_)))
    }
}

/// One test on one DUT.
#[derive(Debug)]
pub struct DutResult<'a> {
    /// Index into [`View::duts`].
    pub dut: usize,
    /// Its record over all rounds, if it has one.
    pub record: Option<&'a TestRecord>,
    /// Number of rounds in which the test has ended, for whatever reason; if there are none, the rounds of the suite.
    pub rounds: usize,
    /// State of the test.
    pub standing: Standing,
    /// Its trials in order.
    pub trials: Vec<&'a TrialRecord>,
}

impl DutResult<'_> {
    /// The rounds of a failed test, for a figure that none of them has: failed, or not measured. `None` if the test has
    /// not failed.
    pub fn failed_rounds(&self) -> Option<Vec<RoundFigure>> {
        let failed = matches!(self.standing, Standing::Ended(TestStatus::Failed(_)));
        self.record.filter(|_| failed).map(|record| record.outcome.without_figure.clone())
    }
}

/// One test.
#[derive(Debug)]
pub struct Section<'a> {
    /// Machine name: the test, then its id in the suite, or `2` if the suite has the test a second time.
    pub id: String,
    /// True if it is the first test of its name in the suite.
    pub first: bool,
    /// Machine name of the test.
    pub test: String,
    /// Its id in the suite, if it has one and ran.
    pub suite_id: Option<&'a str>,
    /// For people.
    pub title: String,
    /// One per DUT on which the suite runs the test, in the order of [`View::duts`].
    pub results: Vec<DutResult<'a>>,
    /// Tables, merged.
    pub tables: Vec<MergedTable<'a>>,
    /// Plots, merged.
    pub plots: Vec<MergedPlot>,
}

/// The same table of several DUTs.
#[derive(Debug)]
pub struct MergedTable<'a> {
    /// Key.
    pub key: &'a str,
    /// Heading.
    pub title: &'a str,
    /// Columns after the DUT: the columns of the first DUT, then additional columns of others.
    pub columns: Vec<&'a Column>,
    /// Rows by DUT.
    pub rows: Vec<MergedRow<'a>>,
}

/// A table is a list, such as unreachable prefixes, if no row names a trial and a DUT has more rows than this. Reports for
/// people show this many rows of each DUT. Results, whose rows name trials, are not cut up to [`MOST_ROWS`].
const LIST_ROWS: usize = 20;
/// A table is always a list if a DUT has more rows than this.
const MOST_ROWS: usize = 100;

impl<'a> MergedTable<'a> {
    /// The rows to show, and for each DUT with a long list the number of omitted rows: (DUT, omitted rows).
    pub fn shown(&self) -> (Vec<&MergedRow<'a>>, Vec<(usize, usize)>) {
        let longest = if self.rows.iter().all(|r| r.trials.is_empty()) { LIST_ROWS } else { MOST_ROWS };
        let (mut rows, mut omitted) = (Vec::new(), Vec::new());
        for (dut, own) in grouped(self.rows.iter().map(|row| (row.dut, row))) {
            let most = if own.len() > longest { LIST_ROWS } else { own.len() };
            omitted.extend((most < own.len()).then_some((dut, own.len() - most)));
            rows.extend(own.into_iter().take(most));
        }
        (rows, omitted)
    }

    /// One line about omitted rows for each DUT that has any.
    pub fn beyond(&self, view: &View) -> Vec<String> {
        let line = |(dut, n): (usize, usize)| format!("{}: {}", view.dut(dut).label(), several(n, "more row"));
        self.shown().1.into_iter().map(line).collect()
    }
}

/// A row of a merged table.
#[derive(Debug)]
pub struct MergedRow<'a> {
    /// Index into [`View::duts`].
    pub dut: usize,
    /// One per column; [`Cell::None`] if this DUT's table lacks the column.
    pub cells: Vec<&'a Cell>,
    /// Marks, with `invalid trial` if one of its trials is invalid.
    pub marks: Vec<String>,
    /// Trials of the row, in its order, without numbers that have no stored trial.
    pub trials: Vec<&'a TrialRecord>,
    /// The row as stored.
    pub row: &'a Row,
}

/// An event of one DUT or of several.
#[derive(Clone, Debug, PartialEq)]
pub struct MergedEvent {
    /// X position in the plot: the mean of `at`.
    pub x: f64,
    /// Its text, preceded by the names of its DUTs unless all have it.
    pub text: String,
    /// Its text as stored.
    pub label: String,
    /// Each event that merged into this one: DUT and x.
    pub at: Vec<(usize, f64)>,
    /// The DUTs that have it; empty if all DUTs do.
    pub owners: Vec<usize>,
}

/// The same plot of several DUTs.
#[derive(Clone, Debug)]
pub struct MergedPlot {
    /// The plot. Series are named `DUT series`; events have the DUT's name if some DUTs lack them.
    pub plot: Plot,
    /// One per series of `plot`: index of the DUT, absent for reference series.
    pub dut_of: Vec<Option<usize>>,
    /// One per series of `plot`: its place within its DUT from 0, which a curve shares with its dots; for a reference, its
    /// place among the references.
    pub place: Vec<usize>,
    /// The merged events.
    pub events: Vec<MergedEvent>,
    /// One per shaded range of `plot`: index of the DUT.
    pub span_of: Vec<usize>,
    /// Invalid trials among the points.
    pub invalid: HashSet<u64>,
}

impl<'a> View<'a> {
    /// Builds the view of a run.
    pub fn new(run: &'a Run) -> View<'a> {
        let trials = run.trials.iter().map(|t| (t.result.trial, t)).collect();
        let tester = run.duts.iter().find(|d| d.is_tester(&run.started.duts)).map(|d| d.name.as_str());
        let mut duts = duts(run, tester);
        let routers = duts.len() - usize::from(tester.is_some());
        let make = |members: Range<usize>, suite: &[(String, String)]| -> Vec<Section> {
            let names = section_names(run, &duts[members.clone()], suite);
            let mut made: Vec<Section> = Vec::new();
            for name in names {
                let mut new = section(run, &duts, members.clone(), &trials, name);
                // The id of one test may equal the number of another.
                while made.iter().any(|earlier| earlier.id == new.id) {
                    new.id.push_str("-again");
                }
                made.push(new);
            }
            made
        };
        let sections = make(0..routers, &run.started.tests);
        let mut ceiling = make(routers..duts.len(), &[]);
        // The suite may contain a test that the runner also does without a router.
        for own in ceiling.iter_mut().filter(|c| sections.iter().any(|s: &Section| s.id == c.id)) {
            own.id = format!("loop-{}", own.id);
            own.title = format!("{}, loop without router", own.title);
        }
        let tester = tester.and_then(|_| duts.pop());
        let simulated: Vec<bool> = duts.iter().map(|d| d.simulated).collect();
        let names: Vec<&str> = duts.iter().map(|d| d.name).collect();
        let held_up = held_up(&names, &run.trials);
        let ranking = rank::rank(&sections, &simulated);
        let drops_counted = drops::counted_on(&run.trials);
        View { run, duts, sections, tester, ceiling, ranking, held_up, drops_counted }
    }

    /// The DUT of this index, or the tester for the index after the last DUT.
    pub fn dut(&self, index: usize) -> &DutView<'a> {
        self.duts.get(index).or(self.tester.as_ref()).expect("results are made for known DUTs and the tester only")
    }

    /// The tests of the suite, followed by the tests of the tester itself.
    pub fn all_sections(&self) -> impl Iterator<Item = &Section<'a>> {
        self.sections.iter().chain(&self.ceiling)
    }

    /// For each DUT with trials that the host made invalid, their number: `a 3 of 120 (3 %)`.
    pub fn held_up_text(&self) -> String {
        let some = self.held_up.iter().filter(|one| one.invalid > 0);
        let text =
            |one: &HeldUp| format!("{} {} of {} ({:.0} %)", one.dut, one.invalid, one.trials, one.share() * 100.0);
        some.map(text).collect::<Vec<_>>().join(", ")
    }

    /// State of the run, in one sentence.
    pub fn state_text(&self) -> String {
        match (&self.run.ended, self.run.state()) {
            (Some(e), RunState::Complete) => format!("complete, ended {}", e.time),
            (Some(e), _) => format!("interrupted by the user, ended {}; figures are partial", e.time),
            (None, _) if self.run.running => "still running; figures are partial".into(),
            (None, _) => "cut off: the run has no end record; figures are partial".into(),
        }
    }

    /// True if both the requested and the actual tests followed the RFCs.
    pub fn conformant(&self) -> bool {
        self.run.started.conformant && self.done().is_empty()
    }

    /// A warning if the figures do not conform to the RFCs: `NOT RFC-conformant (profile quick)`.
    pub fn tag(&self) -> Option<String> {
        let started = &self.run.started;
        (!self.conformant() && started.profile != SELF_TEST)
            .then(|| format!("NOT RFC-conformant (profile {})", started.profile))
    }

    /// Deviations from the RFCs during the run: (deviation, title of the test).
    fn done(&self) -> Vec<(String, &str)> {
        let mut out = Vec::new();
        for section in &self.sections {
            for result in &section.results {
                let dut = self.dut(result.dut).name;
                let stated = result.record.iter().flat_map(|record| &record.outcome.deviations);
                out.extend(stated.map(|text| (format!("{dut}: {text}"), section.title.as_str())));
                // The failure of a DUT is not a deviation of the test.
                let ended = &result.standing;
                let whole = matches!(
                    ended,
                    Standing::Ended(TestStatus::Completed | TestStatus::Skipped(_) | TestStatus::Failed(_))
                        | Standing::NotRun
                );
                if !whole {
                    out.push((format!("{dut}: not completed"), section.title.as_str()));
                }
            }
        }
        out
    }

    /// All deviations, each once: (deviation, titles of its tests).
    pub fn deviations(&self) -> Vec<(String, Vec<&str>)> {
        let started = &self.run.started;
        let asked = started.deviations.iter().map(|line| {
            let titles = started.tests.iter().map(|(_, title)| title.as_str());
            let split =
                |t: &'a str| line.strip_prefix(t).and_then(|rest| rest.strip_prefix(": ")).map(|rest| (t, rest));
            let found = titles.into_iter().find_map(split);
            found.map_or((line.clone(), None), |(title, text)| (text.to_owned(), Some(title)))
        });
        let done = self.done().into_iter().map(|(text, title)| (text, Some(title)));
        let by_text = grouped(asked.chain(done)).into_iter();
        by_text.map(|(text, titles)| (text, distinct(titles.into_iter().flatten()))).collect()
    }

    /// [`View::deviations`] as lines: `trials of 1 s instead of 60 s (Throughput, Latency)`.
    pub fn deviation_lines(&self) -> Vec<String> {
        let line = |(text, tests): (String, Vec<&str>)| {
            if tests.is_empty() { text } else { format!("{text} \u{2013} {}", tests.join(", ")) }
        };
        self.deviations().into_iter().map(line).collect()
    }

    /// The DUTs on which the suite runs a test, best first.
    pub fn order_of(&self, section: &Section) -> Vec<usize> {
        let asked = |dut: &usize| section.results.iter().any(|result| result.dut == *dut);
        self.ranking.order.iter().copied().filter(asked).collect()
    }

    /// All verdicts: (section, DUT, verdict).
    pub fn verdicts(&self) -> Vec<(&Section<'a>, &DutView<'a>, &'a drophammer_model::outcome::Verdict)> {
        let mut out = Vec::new();
        for section in &self.sections {
            for result in &section.results {
                let Some(record) = result.record else { continue };
                out.extend(record.outcome.verdicts.iter().map(|v| (section, &self.duts[result.dut], v)));
            }
        }
        out
    }

    /// Problems as lines: warnings of the reader, problem notes, missing figures, tests that did not complete.
    pub fn problems(&self) -> Vec<String> {
        let mut out = self.run.warnings.clone();
        for n in self.run.notes.iter().filter(|n| n.problem) {
            out.push(match &n.dut {
                Some(dut) => format!("{}  {dut}: {}", n.time, n.text),
                None => format!("{}  {}", n.time, n.text),
            });
        }
        out.extend(ending::missing(self));
        for section in self.all_sections() {
            for r in section.results.iter().filter(|r| !r.standing.is_measured()) {
                out.push(format!("{} on {}: {}", section.title, self.dut(r.dut).name, r.standing.text()));
            }
        }
        out
    }

    /// Invalid trials, in order.
    pub fn invalid_trials(&self) -> Vec<&'a TrialRecord> {
        self.run.trials.iter().filter(|t| !t.result.validity.is_valid()).collect()
    }
}

/// DUTs of the suite, then other DUTs from the records, then the tester.
fn duts<'a>(run: &'a Run, tester: Option<&'a str>) -> Vec<DutView<'a>> {
    let seen = run.duts.iter().map(|d| &d.name).chain(run.tests.iter().map(|t| &t.dut));
    let names = distinct(run.started.duts.iter().chain(seen).map(String::as_str));
    let view = |name| {
        let records: Vec<_> = run.duts.iter().filter(|d| d.name == name).collect();
        let simulated = records.iter().any(|d| d.simulated);
        DutView { name, records, simulated }
    };
    names.into_iter().filter(|name| Some(*name) != tester).chain(tester).map(view).collect()
}

/// `(test, title, occurrence from 0)` of every section of these DUTs: the tests of the suite, then other tests from the
/// records.
fn section_names(run: &Run, duts: &[DutView], suite: &[(String, String)]) -> Vec<(String, String, usize)> {
    let mut out: Vec<(String, String, usize)> = Vec::new();
    for (test, title) in suite {
        let n = out.iter().filter(|(t, ..)| t == test).count();
        out.push((test.clone(), title.clone(), n));
    }
    for dut in duts {
        let mut ended: HashMap<&str, usize> = HashMap::new();
        let mut seen: Vec<(&str, &str, usize)> = Vec::new();
        for t in run.tests.iter().filter(|t| t.dut == dut.name) {
            let n = ended.entry(&t.test).or_default();
            seen.push((&t.test, &t.title, *n));
            *n += 1;
        }
        let trials = run.trials.iter().filter(|t| t.dut == dut.name);
        seen.extend(trials.map(|t| (t.test.as_str(), t.test.as_str(), run.occurrence(t))));
        for (test, title, n) in seen {
            if !out.iter().any(|(t, _, m)| t == test && *m == n) {
                let known = out.iter().find(|(t, ..)| t == test).map(|(_, title, _)| title.clone());
                out.push((test.to_owned(), known.unwrap_or_else(|| title.to_owned()), n));
            }
        }
    }
    out
}

fn section<'a>(
    run: &'a Run,
    duts: &[DutView<'a>],
    members: Range<usize>,
    trials: &HashMap<u64, &'a TrialRecord>,
    (test, title, occurrence): (String, String, usize),
) -> Section<'a> {
    let results: Vec<DutResult> = duts
        .iter()
        .enumerate()
        .skip(members.start)
        .take(members.len())
        .map(|(dut, view)| {
            let here = |d: &str, t: &str| d == view.name && t == test;
            let record = run.tests.iter().filter(|t| here(&t.dut, &t.test)).nth(occurrence);
            let own = |t: &&TrialRecord| here(&t.dut, &t.test) && run.occurrence(t) == occurrence;
            let trials: Vec<_> = run.trials.iter().filter(own).collect();
            let standing = match record {
                Some(r) => Standing::Ended(r.status.clone()),
                None if !trials.is_empty() => Standing::CutOff,
                None if run.state() == RunState::Complete => Standing::NotRun,
                None => Standing::NotReached,
            };
            // A damaged record must not use up the memory.
            let rounds = record.map_or(run.started.rounds, |record| record.round).min(MAX_ROUNDS as u32) as usize;
            DutResult { dut, record, rounds, standing, trials }
        })
        .filter(|result| result.standing != Standing::Ended(TestStatus::NotAsked))
        .collect();
    // The id in the suite, or a number if there is no id, distinguishes it from other tests with the same name.
    let number = (occurrence > 0).then(|| (occurrence + 1).to_string());
    let suite_id = results.iter().find_map(|result| result.record?.id.as_deref());
    let mark = suite_id.map(str::to_owned).or(number);
    Section {
        id: mark.as_ref().map_or_else(|| test.clone(), |mark| format!("{test}-{mark}")),
        title: mark.map_or_else(|| title.clone(), |mark| format!("{title} ({mark})")),
        tables: merge_tables(&results, trials),
        plots: merge_plots(&results, duts, trials),
        first: occurrence == 0,
        test,
        suite_id,
        results,
    }
}
