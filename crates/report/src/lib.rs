//! Converts a stored run into one HTML file with plots, text, Markdown, JSON, CSV and JUnit XML.
//!
//! A report depends only on the stored run, so it can be generated again at any time, even from a run that was cut off.
//!
//! # Parts
//!
//! - `judge::doubt` marks figures that depend on frames lost while the processor was idle. `judge::refutation` marks
//!   figures that other trials contradict.
//! - `judge::rounds` combines the records of all rounds: rows of tables by key (`rounds/tables.rs`), points of curves
//!   by category or x (`judge/src/rounds/plots.rs`). `judge::statistics` computes intervals and comparisons,
//!   `report/src/rank.rs` ranks.
//! - `report/src/ending.rs` says how a run ended, for the first lines of the report and the exit code.
//! - `model::visible` and the escapes of each format make external texts harmless (`report/tests/reports/hostile.rs`).
//! - `report/src/rates.rs` derives bits and shares of the line from the stored trials.
//! - `report/src/board.rs` gives each DUT a place in each test, and compares facts about the DUTs (`about:`).
//!   `report/src/paragraph.rs` writes a paragraph about each test.
//! - `report/src/published.rs` shows published figures (`published:`) next to the figures of the run, or in separate
//!   tables. Nothing is computed from them.
//! - `report/src/hosts.rs` lists the hosts whose agents lent the ports.
//! - `report/src/digest.rs` makes tables from cells of several tests, as the suite requests (`digest:`).
//! - `judge::drops` adds up the drop counters of a DUT. `report/src/drops.rs` compares the sum with the lost frames.
//!   `report/src/kernel_counts.rs` compares the kernel's counters of the tester's interfaces with the tester's counts.

pub mod baseline;
mod board;
pub mod compare;
mod conclusion;
mod csv;
mod digest;
mod drops;
pub mod ending;
mod format;
mod grid;
mod hosts;
mod html;
mod json;
mod junit;
mod kernel_counts;
mod losses;
mod merge;
mod paragraph;
mod published;
pub mod rank;
mod rates;
mod svg;
mod text;
pub mod view;
mod ways;

use drophammer_judge::rounds::combine;
use drophammer_judge::{doubt, refutation};
use drophammer_model::figure::Decision;
use drophammer_model::record::{TestRecord, TestStatus};
use drophammer_store::Run;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use view::View;

/// A report file could not be written. The message is one line with path and reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {why}; choose another folder or free some space", .path.display())]
pub struct ReportError {
    /// The file or folder.
    pub path: PathBuf,
    /// The reason.
    pub why: std::io::Error,
}

/// The tests of a run. Figures that other trials contradict and doubtful figures are marked.
fn marked(run: &Run) -> Vec<TestRecord> {
    let mut records = run.tests.clone();
    refutation::mark(&mut records, &run.trials);
    let is_simulated = |name: &str| run.duts.iter().any(|dut| dut.name == name && dut.simulated);
    doubt::mark(&mut records, &run.trials, &|trial| run.occurrence(trial), &is_simulated);
    records
}

/// The run with one record per DUT and test, which combines all rounds. Refuted and doubtful figures are marked.
/// Verdicts that depend on a baseline name it.
pub fn combined(run: &Run) -> Run {
    let records = marked(run);
    let mut seen: HashMap<(&str, &str, u32), usize> = HashMap::new();
    // If a suite contains a test twice, the second occurrence in a round belongs to the second occurrence in the other
    // rounds.
    let numbered = records.iter().map(|record| {
        let next = seen.entry((&record.dut, &record.test, record.round)).or_default();
        *next += 1;
        ((&record.dut, &record.test, *next), record)
    });
    let mut tests: Vec<(usize, TestRecord)> = grouped(numbered)
        .into_iter()
        .filter_map(|((.., occurrence), rounds)| Some((occurrence, combine(&rounds)?)))
        .collect();
    leave_out_criteria_that_do_not_apply(&mut tests);
    let tests = tests.into_iter().map(|(_, record)| record).collect();
    let mut combined = Run { tests, ..run.clone() };
    baseline::name_in_verdicts(&mut combined);
    combined
}

/// Removes the undecided verdicts of tests that do not apply to their DUT, because there is nothing to judge. They stay
/// if the criterion names this DUT, or if the test applies to no DUT: a criterion must not pass because nothing was
/// measured.
fn leave_out_criteria_that_do_not_apply(tests: &mut [(usize, TestRecord)]) {
    let is_skipped = |record: &TestRecord| matches!(record.status, TestStatus::Skipped(_));
    let applied: HashSet<(String, usize)> = tests
        .iter()
        .filter(|(_, record)| !is_skipped(record))
        .map(|(occurrence, record)| (record.test.clone(), *occurrence))
        .collect();
    for (occurrence, record) in tests.iter_mut().filter(|(_, record)| is_skipped(record)) {
        if applied.contains(&(record.test.clone(), *occurrence)) {
            record.outcome.verdicts.retain(|verdict| {
                let is_decided = verdict.decision() != Decision::Undecided;
                is_decided || verdict.expected.as_ref().is_none_or(|expected| expected.dut.is_some())
            });
        }
    }
}

/// Groups the values by key, in the order in which the keys first appear.
fn grouped<K: PartialEq, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// The files of a report as (path within its folder, text): `report.html`, `report.txt`, `report.md`, `report.json`,
/// `junit.xml` and `csv/*.csv`, in this order.
pub fn rendered(run: &Run) -> Vec<(String, String)> {
    let combined = combined(run);
    let view = View::new(&combined);
    let tables = csv::files(&view);
    let mut files = vec![
        ("report.html".to_owned(), html::page(&view, &tables)),
        ("report.txt".to_owned(), text::report(&view)),
        ("report.md".to_owned(), grid::markdown(&view)),
        ("report.json".to_owned(), json::report(&view)),
        ("junit.xml".to_owned(), junit::report(&view)),
    ];
    files.extend(tables.into_iter().map(|(name, text)| (format!("csv/{name}"), text)));
    files
}

/// Writes the files of [`rendered`] into `dir`, which is created if necessary. Returns their paths.
///
/// # Errors
/// [`ReportError`] for the first file that could not be written. A file is either complete or absent.
pub fn write_all(run: &Run, dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let files = rendered(run);
    let make = |path: &Path| fs::create_dir_all(path).map_err(|why| ReportError { path: path.into(), why });
    make(dir)?;
    let csv = dir.join("csv");
    if csv.is_symlink() {
        // Another user may have made the folder, and the link may point to the user's own files.
        let why = io::Error::other("it is a link, and reports do not follow links; remove it");
        return Err(ReportError { path: csv, why });
    }
    make(&csv)?;
    let mut paths = Vec::new();
    for (name, content) in files {
        let path = dir.join(name);
        // Write to a temporary file and rename it, so that an old report stays complete if the disk is full.
        let beside = path.with_extension("part");
        let written = write_new(&beside, &content).and_then(|()| fs::rename(&beside, &path));
        if let Err(why) = written {
            let _ = fs::remove_file(&beside);
            return Err(ReportError { path, why });
        }
        paths.push(path);
    }
    Ok(paths)
}

/// Writes a new file. Removes an existing file or link first, and does not follow links.
fn write_new(path: &Path, content: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // `create_new` does not follow a link that somebody creates in the meantime.
    File::options().write(true).create_new(true).open(path)?.write_all(content.as_bytes())
}

/// Results of the suite's criteria, each judged over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Criteria {
    /// Certainly met.
    pub met: usize,
    /// Certainly missed.
    pub missed: usize,
    /// Neither certainly met nor certainly missed.
    pub undecided: usize,
}

/// Counts the criteria of a run as its report shows them.
pub fn criteria(run: &Run) -> Criteria {
    let combined = combined(run);
    let count = |decision| {
        let verdicts = combined.tests.iter().flat_map(|test| &test.outcome.verdicts);
        verdicts.filter(|verdict| verdict.decision() == decision).count()
    };
    Criteria { met: count(Decision::Met), missed: count(Decision::Missed), undecided: count(Decision::Undecided) }
}

/// How a run ended, as shown in its report and used for the exit code.
pub fn ending(run: &Run) -> ending::Ending {
    ending::Ending::of(&View::new(&combined(run)))
}

/// The ranked summary for the terminal: state, verdicts, one row per figure, one column per DUT. Uses ANSI colours if
/// `color` is set.
pub fn summary_text(run: &Run, color: bool) -> String {
    text::summary(&View::new(&combined(run)), color)
}

#[cfg(test)]
extern crate self as drophammer_report;
#[cfg(test)]
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_in_the_folder_of_a_run_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let mine = folder.path().join("mine");
        fs::write(&mine, "mine").unwrap();
        let part = folder.path().join("report.part");
        symlink(&mine, &part).unwrap();
        write_new(&part, "a report").unwrap();
        assert!(!part.is_symlink());
        assert_eq!(
            ["mine", "report.part"].map(|f| fs::read_to_string(folder.path().join(f)).unwrap()),
            ["mine", "a report"]
        );
        write_new(&part, "another").unwrap();
        assert_eq!(fs::read_to_string(&part).unwrap(), "another");
    }
}
