//! Names of cells of tables, in criteria and elsewhere: checks that table and columns exist.

use super::errors::{Problems, did_you_mean, list, quote};
use super::raw::Entry;
use drophammer_model::registry::{TableShape, TestSpec};
use drophammer_model::suite::Cells;
use std::ops::Range;

/// Help for a criterion with a condition on the DUT.
const BY_DUT: &str = "a map gives each DUT its own bound, for instance `{frr: \">= 5\"}`";

/// The cells that the key of a criterion names. All names are checked if the test declares its tables.
pub(crate) fn read(entry: &Entry, spec: &TestSpec, problems: &mut Problems) -> Option<Cells> {
    let span = &entry.key_span;
    let cells = parse(&entry.key, span, || example(spec), problems)?;
    // Otherwise they are checked after the test has run.
    if spec.tables.is_empty() {
        return Some(cells);
    }
    let table = table(&cells, spec, span, BY_DUT, problems)?;
    if !table.numbers().any(|key| key == cells.column) {
        let message = format!("the column {} of the table `{}` holds words", quote(&cells.column), table.key);
        problems.add(span, message, format!("columns with numbers: {}", list(table.numbers())));
        return None;
    }
    Some(cells)
}

/// The cells in a text, of which no name is checked.
pub(crate) fn parse(
    text: &str,
    span: &Range<usize>,
    example: impl FnOnce() -> String,
    problems: &mut Problems,
) -> Option<Cells> {
    match text.parse::<Cells>() {
        Ok(cells) => Some(cells),
        Err(why) => {
            let message = format!("{} names no cells of a table: {why}", quote(text));
            problems.add(span, message, format!("write for instance `{}`", example()));
            None
        }
    }
}

/// The table of the cells; an error if the test does not have it, or if it lacks a column that they name. `by_dut` is
/// the help for a condition on the DUT, which is no column of a table.
pub(crate) fn table(
    cells: &Cells,
    spec: &TestSpec,
    span: &Range<usize>,
    by_dut: &str,
    problems: &mut Problems,
) -> Option<&'static TableShape> {
    let Some(table) = spec.tables.iter().find(|table| table.key == cells.table) else {
        let message = format!("{} is no table of the test `{}`", quote(&cells.table), spec.name);
        problems.add(span, message, did_you_mean(&cells.table, spec.tables.iter().map(|table| table.key)));
        return None;
    };
    let before = problems.len();
    for column in cells.rows.iter().map(|(column, _)| column).chain([&cells.column]) {
        if table.columns.iter().any(|(key, ..)| key == column) {
            continue;
        }
        let message = format!("{} is no column of the table `{}`", quote(column), table.key);
        let help = match column.as_str() {
            "dut" => by_dut.to_owned(),
            _ => did_you_mean(column, table.columns.iter().map(|(key, ..)| *key)),
        };
        problems.add(span, message, help);
    }
    (problems.len() == before).then_some(table)
}

/// An example of cells in the syntax of suites.
fn example(spec: &TestSpec) -> String {
    let of = |table: &TableShape| {
        let number = table.numbers().last()?;
        let first = table.columns.first().map(|(key, ..)| *key).filter(|key| *key != number)?;
        Some(format!("{}[{first}=64].{number}", table.key))
    };
    spec.tables.first().and_then(of).unwrap_or_else(|| "frame_loss_rate[frame_size=64].loss_percent".into())
}
