//! The `published:` section: tables of published results, for comparison.

use super::TestConfig;
use super::errors::{Problems, did_you_mean, quote};
use super::fields::{Fields, items, text};
use super::raw::Node;
use crate::environment::Published;
use crate::visible::is_hidden;

const EXAMPLE: &str = "published: [{test: throughput, title: Routers of 1989, source: a report, columns: [router, 64 bytes], rows: [[A, 5782]]}]";
const KEYS: [&str; 6] = ["test", "title", "source", "meaning", "columns", "rows"];
/// Most tables.
pub(crate) const MOST_TABLES: usize = 50;
/// Most columns of a table.
pub(crate) const MOST_COLUMNS: usize = 20;
/// Most rows of a table.
pub(crate) const MOST_ROWS: usize = 200;
/// Longest text or cell, in characters.
pub(crate) const LONGEST_TEXT: usize = 200;

/// Reads the section. `tests` are those tests of the suite that could be read.
pub(crate) fn read(node: &Node, tests: Option<&[TestConfig]>, problems: &mut Problems) -> Option<Vec<Published>> {
    few(node, "`published`", EXAMPLE, MOST_TABLES, problems)?.iter().map(|item| table(item, tests, problems)).collect()
}

/// The items of a list of at most `most`.
fn few<'n>(node: &'n Node, what: &str, example: &str, most: usize, problems: &mut Problems) -> Option<&'n [Node]> {
    let items = items(node, what, example, problems)?;
    if items.len() > most {
        problems.add(&node.span, format!("{what} has {} items", items.len()), format!("give {most} at most"));
        return None;
    }
    Some(items)
}

/// One line of text.
fn line(node: &Node, what: &str, problems: &mut Problems) -> Option<String> {
    let text = text(node, what, "some text", problems)?.trim();
    if text.contains(is_hidden) || text.chars().count() > LONGEST_TEXT {
        let message = format!("{what} is not one line of 1 to {LONGEST_TEXT} characters");
        problems.add(&node.span, message, "shorten it to one line without control characters");
        return None;
    }
    Some(text.to_owned())
}

fn table(node: &Node, tests: Option<&[TestConfig]>, problems: &mut Problems) -> Option<Published> {
    let what = "a table of `published`";
    let fields = Fields::of(node, what, EXAMPLE, problems)?;
    fields.refuse_unknown(what, &KEYS, problems);
    let mut needed = |key: &str| fields.required(key, what, EXAMPLE, problems);
    let (test, title, source) = (needed("test"), needed("title"), needed("source"));
    let (columns, rows) = (needed("columns"), needed("rows"));
    let test_name = line(test?, "`test`", problems)?;
    if let Some(tests) = tests
        && !tests.iter().any(|known| known.test == test_name)
    {
        let message = format!("`published` has a table for {}, which is no test of this suite", quote(&test_name));
        problems.add(&test?.span, message, did_you_mean(&test_name, tests.iter().map(|test| test.test.as_str())));
        return None;
    }
    let row = |node: &Node, what: &str, problems: &mut Problems| -> Option<Vec<String>> {
        let cells = few(node, what, "[A, 5782]", MOST_COLUMNS, problems)?;
        cells.iter().map(|cell| line(cell, "a cell", problems)).collect()
    };
    let columns = row(columns?, "`columns`", problems)?;
    let mut all = Vec::new();
    for node in few(rows?, "`rows`", "[[A, 5782]]", MOST_ROWS, problems)? {
        let cells = row(node, "a row", problems)?;
        if cells.len() != columns.len() {
            let message = format!("this row has {} cells, the table has {} columns", cells.len(), columns.len());
            problems.add(&node.span, message, "give one cell for each column; write `\"-\"` where there is no figure");
            return None;
        }
        all.push(cells);
    }
    let meaning = fields.get("meaning").map(|entry| line(&entry.value, "`meaning`", problems));
    let meaning = match meaning {
        Some(text) => Some(text?),
        None => None,
    };
    Some(Published {
        test: test_name,
        title: line(title?, "`title`", problems)?,
        source: line(source?, "`source`", problems)?,
        meaning,
        columns,
        rows: all,
    })
}
