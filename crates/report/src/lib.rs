//! Converts a stored run into one HTML file with plots, a text table, Markdown, JSON, CSV and JUnit XML.
//!
//! A report depends only on the stored run, so it can be generated again at any time, also from a run that was cut off.
//!
//! # Parts
//!
//! - `judge::doubt` marks figures that rest on frames lost while the processor was idle; `judge::refutation` marks
//!   those that other trials contradict.
//! - `judge::rounds` puts the records of all rounds together (rows of tables by their keys, `rounds/tables.rs`; points
//!   of curves by category or x, `rounds/plots.rs`). `judge::statistics` makes intervals and comparisons of them,
//!   `report/src/rank.rs` the ranks.
//! - `report/src/ending.rs` says how a run ended, for the first lines of the report and the exit code.
//! - Texts from elsewhere pass `model::visible` and the escapes of each format (`report/tests/reports/hostile.rs`).
//! - `report/src/rates.rs` derives bits and shares of the line from the stored trials.
//! - `report/src/board.rs` makes the places of the DUTs by test, and sets the facts of the DUTs (`about:`) side by
//!   side. `report/src/paragraph.rs` writes a paragraph about each test.
//! - `report/src/published.rs` shows published figures (`published:`) in columns next to the figures of the run, or in
//!   separate tables. Nothing is computed from them.
//! - `report/src/digest.rs` makes the tables that the suite composes of cells of several tests (`digest:`).
//! - `judge::drops` knows which counters of a DUT count drops, and which of them count the same ones.
//!   `report/src/drops.rs` compares their sum with the frames that were lost. `report/src/kernel_counts.rs` compares
//!   the kernel's counters of the tester's interfaces with the tester's own counts.

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
mod html;
mod json;
mod junit;
mod kernel_counts;
mod losses;
mod merge;
mod missing;
mod paragraph;
mod published;
pub mod rank;
mod rates;
pub mod rounds;
mod svg;
mod text;
pub mod view;
mod ways;

use drophammer_model::figure::Decision;
use drophammer_store::Run;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use view::View;

/// Error for a report file that could not be written; one line with path and reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {why}; choose another folder or free some space", .path.display())]
pub struct ReportError {
    /// The file or folder.
    pub path: PathBuf,
    /// The reason.
    pub why: std::io::Error,
}

/// The files of a report, as (path within its folder, text): `report.html`, `report.txt`, `report.md`, `report.json`,
/// `junit.xml` and `csv/*.csv`, in this order.
pub fn rendered(run: &Run) -> Vec<(String, String)> {
    let combined = rounds::combined(run);
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

/// Writes `report.html`, `report.txt`, `report.md`, `report.json`, `junit.xml` and `csv/*.csv` into `dir`, which is
/// created if necessary. Returns the files in that order.
///
/// # Errors
/// [`ReportError`] for the first file that could not be written; a file is either complete or absent.
pub fn write_all(run: &Run, dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let files = rendered(run);
    let make = |path: &Path| fs::create_dir_all(path).map_err(|why| ReportError { path: path.into(), why });
    make(dir)?;
    let csv = dir.join("csv");
    if csv.is_symlink() {
        // The folder may come from elsewhere, and the link lead to the user's own files.
        let why = io::Error::other("it is a link, and a report does not follow links; remove it");
        return Err(ReportError { path: csv, why });
    }
    make(&csv)?;
    let mut paths = Vec::new();
    for (name, content) in files {
        let path = dir.join(name);
        // Written to a temporary file and renamed: an old report stays complete when the disk is full.
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

/// Writes a file that was not there: what is at its place is removed, and a link is not followed.
fn write_new(path: &Path, content: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // A link that somebody makes in the meantime is not followed either.
    File::options().write(true).create_new(true).open(path)?.write_all(content.as_bytes())
}

/// Results of the suite's criteria, each judged over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Criteria {
    /// Certainly met.
    pub met: usize,
    /// Certainly missed.
    pub missed: usize,
    /// Neither of these.
    pub undecided: usize,
}

/// Counts the criteria of a run, as its report shows them.
pub fn criteria(run: &Run) -> Criteria {
    let combined = rounds::combined(run);
    let count = |decision| {
        let verdicts = combined.tests.iter().flat_map(|test| &test.outcome.verdicts);
        verdicts.filter(|verdict| verdict.decision() == decision).count()
    };
    Criteria { met: count(Decision::Met), missed: count(Decision::Missed), undecided: count(Decision::Undecided) }
}

/// How a run ended; its report and the exit code say the same.
pub fn ending(run: &Run) -> ending::Ending {
    ending::Ending::of(&View::new(&rounds::combined(run)))
}

/// The ranked summary for the terminal: state, verdicts, one row per figure, one column per DUT. With ANSI colours when
/// `color`.
pub fn summary_text(run: &Run, color: bool) -> String {
    text::summary(&View::new(&rounds::combined(run)), color)
}

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
