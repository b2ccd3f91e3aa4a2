//! The `published:` section: figures that others have published, for comparison. An entry is a table of its own, or
//! figures of a test by router.

use super::errors::{Problems, did_you_mean, quote};
use super::expect::{self, Sizes};
use super::fields::{Fields, items, text};
use super::raw::{Entry, Node, Value};
use drophammer_model::environment::Published;
use drophammer_model::registry::Registry;
use drophammer_model::suite::TestConfig;
use drophammer_model::visible::is_hidden;
use serde_json::json;
use std::collections::HashSet;
use std::ops::Range;

const EXAMPLE: &str = "published: [{test: throughput, title: Routers of 1989, source: a report, columns: [router, 64 bytes], rows: [[A, 5782]]}]";
const FIGURES_EXAMPLE: &str = "{test: throughput, title: Highest rate, source: a report, routers: [A (1989)], figures: {throughput_64_pps: [5782]}}";
const KEYS: [&str; 10] = ["test", "id", "title", "source", "meaning", "columns", "rows", "routers", "figures", "unit"];
/// Most entries.
const MOST_TABLES: usize = 50;
/// Most columns of a table, and most routers of figures.
const MOST_COLUMNS: usize = 20;
/// Most rows of a table, and most figures.
const MOST_ROWS: usize = 200;
/// Longest text or cell, in characters.
pub(super) const LONGEST_TEXT: usize = 200;

/// The JSON schema of the section.
pub(crate) fn schema() -> serde_json::Value {
    let line = json!({ "type": ["string", "number"], "maxLength": LONGEST_TEXT });
    let row = json!({ "type": "array", "minItems": 1, "maxItems": MOST_COLUMNS, "items": line });
    let cells = json!({ "oneOf": [line, row] });
    json!({
        "description": "Figures that others have published: tables that are shown with those of a test, or figures beside those of a test.",
        "type": "array", "minItems": 1, "maxItems": MOST_TABLES, "items": {
            "type": "object", "additionalProperties": false,
            "required": ["test", "title", "source"],
            "oneOf": [{ "required": ["columns", "rows"] }, { "required": ["routers", "figures"] }],
            "properties": {
                "test": { "description": "Name of a test of this suite.", "type": "string" },
                "id": { "description": "Id of the one test of this name that is meant; all of them if left out.", "type": "string" },
                "title": line, "source": line,
                "meaning": { "description": "What the figures mean there.", "type": "string", "maxLength": LONGEST_TEXT },
                "columns": row,
                "rows": { "type": "array", "minItems": 1, "maxItems": MOST_ROWS, "items": row },
                "routers": row,
                "figures": {
                    "description": "A figure of the test, or a cell of one of its tables, and a number or words for each router; \
                                    one value without a list is that of all of them.",
                    "type": "object", "minProperties": 1, "maxProperties": MOST_ROWS, "additionalProperties": cells,
                },
                "unit": { "description": "Unit of the figures, if it is not that of the test.", "type": "string", "maxLength": LONGEST_TEXT },
            },
        },
    })
}

/// Reads the section. `tests` are those tests of the suite that could be read.
pub(crate) fn read(
    node: &Node,
    tests: Option<&[TestConfig]>,
    registry: &Registry,
    problems: &mut Problems,
) -> Option<Vec<Published>> {
    let entries = few(node, "`published`", EXAMPLE, MOST_TABLES, problems)?;
    // Every entry is read, so that all errors are reported.
    let read: Vec<_> = entries.iter().map(|item| entry(item, tests, registry, problems)).collect();
    let read: Vec<Published> = read.into_iter().collect::<Option<_>>()?;
    for (at, later) in read.iter().enumerate() {
        if let Some((key, router)) = read[..at].iter().find_map(|earlier| twice(earlier, later)) {
            let message = format!("an earlier entry has {} of {} too", quote(key), quote(router));
            let help = "leave one of them out, or give the router another name, for instance with the source";
            problems.add(&entries[at].span, message, help);
        }
    }
    Some(read)
}

/// The figure and the router of which both entries have a value: the report has one cell for it.
fn twice<'p>(earlier: &'p Published, later: &'p Published) -> Option<(&'p str, &'p str)> {
    let apart = matches!((&earlier.id, &later.id), (Some(a), Some(b)) if a != b);
    if apart || earlier.test != later.test {
        return None;
    }
    let values = later.figures.iter().flat_map(|(key, _)| later.values(key).map(move |(router, _)| (key, router)));
    values
        .map(|(key, router)| (key.as_str(), router))
        .find(|(key, router)| earlier.values(key).any(|(known, _)| known == *router))
}

/// The items of a list of at most `most`.
pub(super) fn few<'n>(
    node: &'n Node,
    what: &str,
    example: &str,
    most: usize,
    problems: &mut Problems,
) -> Option<&'n [Node]> {
    let items = items(node, what, example, problems)?;
    within(node, what, items.len(), most, problems)?;
    Some(items)
}

pub(super) fn within(node: &Node, what: &str, items: usize, most: usize, problems: &mut Problems) -> Option<()> {
    if items > most {
        problems.add(&node.span, format!("{what} has {items} items"), format!("give {most} at most"));
        return None;
    }
    Some(())
}

/// One line of text.
pub(super) fn line(node: &Node, what: &str, problems: &mut Problems) -> Option<String> {
    one_line(text(node, what, "some text", problems)?, &node.span, what, problems)
}

/// The text, which must be one line and not blank.
pub(super) fn one_line(text: &str, span: &Range<usize>, what: &str, problems: &mut Problems) -> Option<String> {
    let text = text.trim();
    if text.is_empty() || text.contains(is_hidden) || text.chars().count() > LONGEST_TEXT {
        let message = format!("{what} is not one line of 1 to {LONGEST_TEXT} characters");
        problems.add(span, message, "shorten it to one line without control characters");
        return None;
    }
    Some(text.to_owned())
}

/// One line of text, if the key is there: `Some(None)` if it is not.
pub(super) fn optional(fields: Fields, key: &str, problems: &mut Problems) -> Option<Option<String>> {
    match fields.get(key) {
        Some(entry) => Some(Some(line(&entry.value, &quote(key), problems)?)),
        None => Some(None),
    }
}

fn cells(node: &Node, what: &str, problems: &mut Problems) -> Option<Vec<String>> {
    let cells = few(node, what, "[A, 5782]", MOST_COLUMNS, problems)?;
    cells.iter().map(|cell| line(cell, "a cell", problems)).collect()
}

fn entry(node: &Node, tests: Option<&[TestConfig]>, registry: &Registry, problems: &mut Problems) -> Option<Published> {
    let of_figures = matches!(&node.value, Value::Map(entries) if entries.iter().any(|entry| entry.key == "figures"));
    let what = if of_figures { "an entry of `published`" } else { "a table of `published`" };
    let example = if of_figures { FIGURES_EXAMPLE } else { EXAMPLE };
    let fields = Fields::of(node, what, example, problems)?;
    fields.refuse_unknown(what, &KEYS, problems);
    let mut needed = |key: &str| fields.required(key, what, example, problems);
    let (test, title, source) = (needed("test"), needed("title"), needed("source"));
    let (heads, body) =
        if of_figures { (needed("routers"), needed("figures")) } else { (needed("columns"), needed("rows")) };
    let unused = if of_figures { ["columns", "rows"].as_slice() } else { &["routers", "unit"] };
    if let Some(entry) = unused.iter().find_map(|key| fields.get(key)) {
        let message = format!("{what} has no use for {}", quote(&entry.key));
        problems.add(
            &entry.key_span,
            message,
            "give `columns` and `rows`, or `routers` and `figures` with their `unit`",
        );
        return None;
    }
    let test_name = line(test?, "`test`", problems)?;
    let id = optional(fields, "id", problems)?;
    if let Some(tests) = tests
        && !tests.iter().any(|known| known.test == test_name)
    {
        let message = format!("`published` has figures for {}, which is no test of this suite", quote(&test_name));
        problems.add(&test?.span, message, did_you_mean(&test_name, tests.iter().map(|test| test.test.as_str())));
        return None;
    }
    if let (Some(tests), Some(id), Some(entry)) = (tests, &id, fields.get("id")) {
        has_id(id, &entry.value.span, &test_name, tests, problems)?;
    }
    let mut published = Published {
        title: line(title?, "`title`", problems)?,
        source: line(source?, "`source`", problems)?,
        meaning: optional(fields, "meaning", problems)?,
        unit: optional(fields, "unit", problems)?,
        id,
        test: test_name,
        ..Published::default()
    };
    if of_figures {
        published.routers = cells(heads?, "`routers`", problems)?;
        let mut seen = HashSet::new();
        if let Some(again) = published.routers.iter().find(|router| !seen.insert(router.as_str())) {
            let message = format!("{} is in `routers` twice", quote(again));
            problems.add(&heads?.span, message, "give each router once");
            return None;
        }
        published.figures = figures(body?, &published, tests, registry, problems)?;
    } else {
        published.columns = cells(heads?, "`columns`", problems)?;
        published.rows = rows(body?, published.columns.len(), problems)?;
    }
    Some(published)
}

/// `None`, with an error, if no test of this name has the id.
pub(super) fn has_id(
    id: &str,
    span: &Range<usize>,
    test: &str,
    tests: &[TestConfig],
    problems: &mut Problems,
) -> Option<()> {
    let ids: Vec<&str> =
        tests.iter().filter(|known| known.test == test).filter_map(|test| test.id.as_deref()).collect();
    if ids.contains(&id) {
        return Some(());
    }
    let message = format!("no test {} of this suite has the id {}", quote(test), quote(id));
    problems.add(span, message, did_you_mean(id, ids));
    None
}

fn rows(node: &Node, columns: usize, problems: &mut Problems) -> Option<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for node in few(node, "`rows`", "[[A, 5782]]", MOST_ROWS, problems)? {
        let row = cells(node, "a row", problems)?;
        if row.len() != columns {
            let message = format!("this row has {} cells, the table has {columns} columns", row.len());
            problems.add(&node.span, message, "give one cell for each column; write `\"-\"` where there is no figure");
            return None;
        }
        all.push(row);
    }
    Some(all)
}

/// The figures of an entry that is otherwise read. Without tests that could be read, their keys are not checked.
fn figures(
    node: &Node,
    published: &Published,
    tests: Option<&[TestConfig]>,
    registry: &Registry,
    problems: &mut Problems,
) -> Option<Vec<(String, Vec<String>)>> {
    let fields = Fields::of(node, "`figures`", "figures: {throughput_64_pps: [5782]}", problems)?;
    within(node, "`figures`", fields.entries().len(), MOST_ROWS, problems)?;
    if fields.entries().is_empty() {
        problems.add(&node.span, "`figures` is empty", format!("write for instance `{FIGURES_EXAMPLE}`"));
        return None;
    }
    let read: Vec<_> = fields
        .entries()
        .iter()
        .map(|entry| {
            // A size that this run does not send, perhaps because of the command line, is no mistake: the report shows it without ours.
            let key = match (registry.test(&published.test), tests) {
                (Some(spec), Some(_)) => expect::named(entry, spec, &Sizes::Any, problems)?.0,
                _ => entry.key.clone(),
            };
            Some((key, values(entry, &published.routers, problems)?))
        })
        .collect();
    read.into_iter().collect()
}

/// One value for each router; a value without a list is that of all of them.
fn values(entry: &Entry, routers: &[String], problems: &mut Problems) -> Option<Vec<String>> {
    let node = &entry.value;
    if matches!(node.value, Value::Scalar { .. }) {
        return Some(vec![line(node, "a figure", problems)?; routers.len()]);
    }
    let values = cells(node, "a figure", problems)?;
    if values.len() != routers.len() {
        let message = format!("this figure has {} values, there are {} routers", values.len(), routers.len());
        problems.add(&node.span, message, "give one value for each router; write `\"-\"` where there is none");
        return None;
    }
    Some(values)
}
