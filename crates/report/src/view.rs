//! A run as reports show it: by test, with the tables and plots of all DUTs merged.

use crate::rank::{self, Ranking};
use drophammer_model::environment::DutRecord;
use drophammer_model::outcome::{Cell, Column, Plot, Point, Row, Series, Table};
use drophammer_model::record::{TestRecord, TestStatus, TrialRecord};
use drophammer_store::{Run, RunState};
use std::collections::HashMap;

/// A run as reports show it.
#[derive(Debug)]
pub struct View<'a> {
    /// The run.
    pub run: &'a Run,
    /// DUTs in the order of the suite.
    pub duts: Vec<DutView<'a>>,
    /// Tests in the order of the suite.
    pub sections: Vec<Section<'a>>,
    /// Ranks.
    pub ranking: Ranking,
    trials: HashMap<u64, &'a TrialRecord>,
}

/// One DUT.
#[derive(Debug)]
pub struct DutView<'a> {
    /// Name in the suite.
    pub name: &'a str,
    /// What is known of it, more than once when it was configured anew; empty when it never came up.
    pub records: Vec<&'a DutRecord>,
    /// Simulated by the tester itself.
    pub simulated: bool,
}

impl DutView<'_> {
    /// Name with a visible mark for a simulated device.
    pub fn label(&self) -> String {
        if self.simulated { format!("{} (simulated)", self.name) } else { self.name.to_owned() }
    }
}

/// How a test stands on a DUT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has a record.
    Ended(TestStatus),
    /// It has trials but no record: the run was cut off within it.
    CutOff,
    /// The run ended before its turn.
    NotReached,
    /// The run went to its end without it: the DUT did not come up.
    NotRun,
}

impl Standing {
    /// In words.
    pub fn text(&self) -> String {
        match self {
            Standing::Ended(TestStatus::Completed) => "completed".into(),
            Standing::Ended(TestStatus::Failed(cause)) => format!("failed: {cause}"),
            Standing::Ended(TestStatus::Interrupted) => "stopped by the user".into(),
            Standing::Ended(TestStatus::Skipped(why)) => format!("skipped: {why}"),
            Standing::CutOff => "cut off within this test; only its trials are stored".into(),
            Standing::NotReached => "not reached before the run ended".into(),
            Standing::NotRun => "not run; see the problems".into(),
        }
    }

    /// Did the test run to its end?
    pub fn is_completed(&self) -> bool {
        matches!(self, Standing::Ended(TestStatus::Completed))
    }
}

/// One test on one DUT.
#[derive(Debug)]
pub struct DutResult<'a> {
    /// Index into [`View::duts`].
    pub dut: usize,
    /// Its record, if it has one.
    pub record: Option<&'a TestRecord>,
    /// How it stands.
    pub standing: Standing,
    /// Its trials in order.
    pub trials: Vec<&'a TrialRecord>,
}

/// One test.
#[derive(Debug)]
pub struct Section<'a> {
    /// Machine name, with `-2` when the suite has the test a second time.
    pub id: String,
    /// Machine name of the test.
    pub test: String,
    /// For people.
    pub title: String,
    /// One per DUT, in the order of [`View::duts`].
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
    /// Columns after the DUT: those of the first DUT, then what others have beyond.
    pub columns: Vec<&'a Column>,
    /// Rows by DUT.
    pub rows: Vec<MergedRow<'a>>,
}

/// A row of a merged table.
#[derive(Debug)]
pub struct MergedRow<'a> {
    /// Index into [`View::duts`].
    pub dut: usize,
    /// One per column; [`Cell::None`] where this DUT's table lacks the column.
    pub cells: Vec<&'a Cell>,
    /// Marks, with `invalid trial` added where one of its trials is.
    pub marks: Vec<String>,
    /// Trials behind the row, in its order; numbers without a stored trial are left out.
    pub trials: Vec<&'a TrialRecord>,
    /// The row as stored.
    pub row: &'a Row,
}

/// The same plot of several DUTs.
#[derive(Clone, Debug)]
pub struct MergedPlot {
    /// The plot; series are named `DUT series`, events carry the DUT's name when they are not the same on all.
    pub plot: Plot,
    /// One per series of `plot`: index of the DUT, absent for reference series.
    pub dut_of: Vec<Option<usize>>,
    /// One per series of `plot`: its place within its DUT (0 for the first), without dots and references.
    pub place: Vec<usize>,
}

impl<'a> View<'a> {
    /// Makes the view of a run.
    pub fn new(run: &'a Run) -> View<'a> {
        let trials = run.trials.iter().map(|t| (t.result.trial, t)).collect();
        let duts = duts(run);
        let sections: Vec<_> = section_names(run).into_iter().map(|n| section(run, &duts, &trials, n)).collect();
        let simulated: Vec<bool> = duts.iter().map(|d| d.simulated).collect();
        let ranking = rank::rank(&sections, &simulated);
        View { run, duts, sections, ranking, trials }
    }

    /// The trial of this number.
    pub fn trial(&self, number: u64) -> Option<&'a TrialRecord> {
        self.trials.get(&number).copied()
    }

    /// How far the run came, in one sentence.
    pub fn state_text(&self) -> String {
        match (&self.run.ended, self.run.state()) {
            (Some(e), RunState::Complete) => format!("complete, ended {}", e.time),
            (Some(e), _) => format!("interrupted by the user, ended {}; figures are partial", e.time),
            (None, _) if self.run.running => "still running; figures are partial".into(),
            (None, _) => "cut off: the run has no end record; figures are partial".into(),
        }
    }

    /// Why the figures do not conform to the RFCs, when they do not.
    pub fn tag(&self) -> Option<String> {
        let started = &self.run.started;
        if started.conformant {
            return None;
        }
        let why = if started.deviations.is_empty() {
            "profile ".to_owned() + &started.profile
        } else {
            started.deviations.join("; ")
        };
        Some(format!("Not RFC-conformant: {why}"))
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

    /// What went wrong, as lines: warnings of the reader, problem notes, tests that did not complete.
    pub fn problems(&self) -> Vec<String> {
        let mut out = self.run.warnings.clone();
        for n in self.run.notes.iter().filter(|n| n.problem) {
            out.push(match &n.dut {
                Some(dut) => format!("{}  {dut}: {}", n.time, n.text),
                None => format!("{}  {}", n.time, n.text),
            });
        }
        for section in &self.sections {
            for r in section.results.iter().filter(|r| !r.standing.is_completed()) {
                out.push(format!("{} on {}: {}", section.title, self.duts[r.dut].name, r.standing.text()));
            }
        }
        out
    }

    /// Trials that may not be used, in order.
    pub fn invalid_trials(&self) -> Vec<&'a TrialRecord> {
        self.run.trials.iter().filter(|t| !t.result.validity.is_valid()).collect()
    }
}

fn duts(run: &Run) -> Vec<DutView<'_>> {
    let mut names: Vec<&str> = Vec::new();
    let seen = run.duts.iter().map(|d| d.name.as_str()).chain(run.tests.iter().map(|t| t.dut.as_str()));
    for name in run.started.duts.iter().map(String::as_str).chain(seen) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
        .into_iter()
        .map(|name| {
            let records: Vec<_> = run.duts.iter().filter(|d| d.name == name).collect();
            let simulated = records.iter().any(|d| d.simulated);
            DutView { name, records, simulated }
        })
        .collect()
}

/// `(test, title, occurrence from 0)` of every section.
fn section_names(run: &Run) -> Vec<(String, String, usize)> {
    let mut out: Vec<(String, String, usize)> = Vec::new();
    for (test, title) in &run.started.tests {
        let n = out.iter().filter(|(t, ..)| t == test).count();
        out.push((test.clone(), title.clone(), n));
    }
    let recorded = run.tests.iter().map(|t| (&t.test, &t.title)).chain(run.trials.iter().map(|t| (&t.test, &t.test)));
    for (test, title) in recorded {
        if !out.iter().any(|(t, ..)| t == test) {
            out.push((test.clone(), title.clone(), 0));
        }
    }
    out
}

fn section<'a>(
    run: &'a Run,
    duts: &[DutView<'a>],
    trials: &HashMap<u64, &'a TrialRecord>,
    (test, title, occurrence): (String, String, usize),
) -> Section<'a> {
    let results: Vec<DutResult> = duts
        .iter()
        .enumerate()
        .map(|(dut, view)| {
            let here = |d: &str, t: &str| d == view.name && t == test;
            let record = run.tests.iter().filter(|t| here(&t.dut, &t.test)).nth(occurrence);
            // Trials name their test but not its occurrence; they are all listed with the first.
            let trials: Vec<_> = run.trials.iter().filter(|t| occurrence == 0 && here(&t.dut, &t.test)).collect();
            let standing = match record {
                Some(r) => Standing::Ended(r.status.clone()),
                None if !trials.is_empty() => Standing::CutOff,
                None if run.state() == RunState::Complete => Standing::NotRun,
                None => Standing::NotReached,
            };
            DutResult { dut, record, standing, trials }
        })
        .collect();
    let suffix = if occurrence == 0 { String::new() } else { format!("-{}", occurrence + 1) };
    let number = if occurrence == 0 { String::new() } else { format!(" ({})", occurrence + 1) };
    Section {
        id: format!("{test}{suffix}"),
        title: format!("{title}{number}"),
        tables: merge_tables(&results, trials),
        plots: merge_plots(&results, duts),
        test,
        results,
    }
}

static NOTHING: Cell = Cell::None;

fn merge_tables<'a>(results: &[DutResult<'a>], trials: &HashMap<u64, &'a TrialRecord>) -> Vec<MergedTable<'a>> {
    let mut merged: Vec<MergedTable> = Vec::new();
    let all: Vec<(usize, &'a Table)> = results
        .iter()
        .filter_map(|r| r.record.map(|t| (r.dut, t)))
        .flat_map(|(d, t)| t.outcome.tables.iter().map(move |x| (d, x)))
        .collect();
    for (_, table) in &all {
        let index = merged.iter().position(|m| m.key == table.key).unwrap_or_else(|| {
            merged.push(MergedTable { key: &table.key, title: &table.title, columns: Vec::new(), rows: Vec::new() });
            merged.len() - 1
        });
        for column in &table.columns {
            if !merged[index].columns.iter().any(|c| c.key == column.key) {
                merged[index].columns.push(column);
            }
        }
    }
    for (dut, table) in all {
        let Some(target) = merged.iter_mut().find(|m| m.key == table.key) else { continue };
        for row in &table.rows {
            let cell_of = |c: &&Column| {
                table.columns.iter().position(|own| own.key == c.key).and_then(|i| row.cells.get(i)).unwrap_or(&NOTHING)
            };
            let own: Vec<_> = row.trials.iter().filter_map(|n| trials.get(n).copied()).collect();
            let mut marks = row.marks.clone();
            if own.iter().any(|t| !t.result.validity.is_valid()) {
                marks.push("invalid trial".into());
            }
            let cells = target.columns.iter().map(cell_of).collect();
            target.rows.push(MergedRow { dut, cells, marks, trials: own, row });
        }
    }
    merged
}

fn merge_plots(results: &[DutResult], duts: &[DutView]) -> Vec<MergedPlot> {
    let mut merged: Vec<MergedPlot> = Vec::new();
    let all: Vec<(usize, &Plot)> = results
        .iter()
        .filter_map(|r| r.record.map(|t| (r.dut, t)))
        .flat_map(|(d, t)| t.outcome.plots.iter().map(move |p| (d, p)))
        .collect();
    for (dut, plot) in &all {
        let index = merged.iter().position(|m| m.plot.key == plot.key).unwrap_or_else(|| {
            let empty = Plot { series: Vec::new(), events: Vec::new(), ..(*plot).clone() };
            merged.push(MergedPlot { plot: empty, dut_of: Vec::new(), place: Vec::new() });
            merged.len() - 1
        });
        let target = &mut merged[index];
        // Another DUT may reach further down: one logarithmic axis for all, if any asked for it.
        target.plot.log_y |= plot.log_y;
        for series in &plot.series {
            add_series(target, series, *dut, duts);
        }
        // The same mark on every DUT is drawn once; a mark of one DUT says whose it is.
        let same_key = all.iter().filter(|(_, p)| p.key == plot.key);
        for event in &plot.events {
            let shared = same_key.clone().all(|(_, p)| p.events.contains(event));
            let text = if shared { event.1.clone() } else { format!("{}: {}", duts[*dut].name, event.1) };
            let event = (event.0, text);
            if !target.plot.events.contains(&event) {
                target.plot.events.push(event);
            }
        }
    }
    merged.iter_mut().for_each(references_last);
    merged
}

/// What belongs to no DUT comes after what does, in legend and files.
fn references_last(merged: &mut MergedPlot) {
    let mut order: Vec<usize> = (0..merged.plot.series.len()).collect();
    order.sort_by_key(|i| merged.plot.series[*i].reference);
    let picked = |i: &usize| (merged.plot.series[*i].clone(), merged.dut_of[*i], merged.place[*i]);
    let all: Vec<_> = order.iter().map(picked).collect();
    (merged.plot.series, merged.dut_of, merged.place) = (Vec::new(), Vec::new(), Vec::new());
    for (series, dut, place) in all {
        merged.plot.series.push(series);
        merged.dut_of.push(dut);
        merged.place.push(place);
    }
}

fn add_series(target: &mut MergedPlot, series: &Series, dut: usize, duts: &[DutView]) {
    if series.reference {
        let known = target.plot.series.iter_mut().find(|s| s.reference && s.name == series.name);
        match known {
            // A DUT that got further has more of the same line.
            Some(s) => {
                let new: Vec<Point> = series
                    .points
                    .iter()
                    .filter(|p| !s.points.iter().any(|q| q.x == p.x && q.label == p.label))
                    .cloned()
                    .collect();
                s.points.extend(new);
            }
            None => {
                target.plot.series.push(series.clone());
                target.dut_of.push(None);
                target.place.push(0);
            }
        }
        return;
    }
    // Dots take the place of the curve whose trials they are, if it has their name.
    let own = || (0..target.dut_of.len()).filter(|i| target.dut_of[*i] == Some(dut));
    let same_place = series.dots.then(|| {
        own().find(|i| {
            let curve =
                target.plot.series[*i].name.strip_prefix(duts[dut].label().as_str()).map(str::trim).unwrap_or_default();
            !target.plot.series[*i].dots && series.name.starts_with(curve)
        })
    });
    let next = own().filter(|i| !target.plot.series[*i].dots).count();
    let place = same_place.flatten().map_or(next, |i| target.place[i]);
    let name = format!("{} {}", duts[dut].label(), series.name);
    target.plot.series.push(Series { name: name.trim().to_owned(), ..series.clone() });
    target.dut_of.push(Some(dut));
    target.place.push(place);
}
