//! The `published:` section: figures published by others, for comparison. An entry is either a table, or figures of a
//! test for each router.

use super::errors::{Problems, did_you_mean, quote};
use super::expect::{self, Sizes};
use super::fields::{Fields, LONGEST_LINE, few, line, such_as, within};
use super::raw::{Entry, Node, Value};
use drophammer_model::environment::Published;
use drophammer_model::registry::Registry;
use drophammer_model::suite::TestConfig;
use serde_json::json;
use std::collections::HashSet;

const EXAMPLE: &str = "published: [{test: throughput, title: Routers of 1989, source: a report, columns: [router, 64 bytes], rows: [[A, 5782]]}]";
const FIGURES_EXAMPLE: &str = "{test: throughput, title: Highest rate, source: a report, routers: [A (1989)], figures: {throughput_64_pps: [5782]}}";
const KEYS: [&str; 10] = ["test", "id", "title", "source", "meaning", "columns", "rows", "routers", "figures", "unit"];
/// Maximum number of entries.
const MOST_TABLES: usize = 50;
/// Maximum number of columns of a table, and of routers of figures.
const MOST_COLUMNS: usize = 20;
/// Maximum number of rows of a table, and of figures.
const MOST_ROWS: usize = 200;

/// The JSON schema of the section.
pub(crate) fn schema() -> serde_json::Value {
    let line = json!({ "type": ["string", "number"], "maxLength": LONGEST_LINE });
    let row = json!({ "type": "array", "minItems": 1, "maxItems": MOST_COLUMNS, "items": line });
    let cells = json!({ "oneOf": [line, row] });
    json!({
        "description": "Figures published by others: tables that the report shows with the tables of a test, or figures that it shows next to the test's own.",
        "type": "array", "minItems": 1, "maxItems": MOST_TABLES, "items": {
            "type": "object", "additionalProperties": false,
            "required": ["test", "title", "source"],
            "oneOf": [{ "required": ["columns", "rows"] }, { "required": ["routers", "figures"] }],
            "properties": {
                "test": { "description": "Name of a test of this suite.", "type": "string" },
                "id": { "description": "Id of one test of this name; default: all of them.", "type": "string" },
                "title": line, "source": line,
                "meaning": { "description": "Meaning of the figures in the source.", "type": "string", "maxLength": LONGEST_LINE },
                "columns": row,
                "rows": { "type": "array", "minItems": 1, "maxItems": MOST_ROWS, "items": row },
                "routers": row,
                "figures": {
                    "description": "A figure of the test, or a cell of one of its tables, and a number or words for each router; \
                                    a value without a list applies to all routers.",
                    "type": "object", "minProperties": 1, "maxProperties": MOST_ROWS, "additionalProperties": cells,
                },
                "unit": { "description": "Unit of the figures, if it differs from the test's.", "type": "string", "maxLength": LONGEST_LINE },
            },
        },
    })
}

/// Reads the section. `tests` are the tests of the suite, if they could be read.
pub(crate) fn read(
    node: &Node,
    tests: Option<&[TestConfig]>,
    registry: &Registry,
    problems: &mut Problems,
) -> Option<Vec<Published>> {
    let entries = few(node, "`published`", EXAMPLE, MOST_TABLES, problems)?;
    // Reads every entry, to report all errors.
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

/// Returns a figure and a router for which both entries have a value, although the report has only one cell.
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

fn cells(node: &Node, what: &str, problems: &mut Problems) -> Option<Vec<String>> {
    let cells = few(node, what, "[A, 5782]", MOST_COLUMNS, problems)?;
    cells.iter().map(|cell| line(cell, "a cell", problems)).collect()
}

fn entry(node: &Node, tests: Option<&[TestConfig]>, registry: &Registry, problems: &mut Problems) -> Option<Published> {
    let of_figures = matches!(&node.value, Value::Map(entries) if entries.iter().any(|entry| entry.key == "figures"));
    let what = if of_figures { "an entry of `published`" } else { "a table of `published`" };
    let example = if of_figures { FIGURES_EXAMPLE } else { EXAMPLE };
    let fields = Fields::with_keys(node, what, &KEYS, example, problems)?;
    let mut needed = |key: &str| fields.required(key, what, example, problems);
    let (test, title, source) = (needed("test"), needed("title"), needed("source"));
    let (heads, body) =
        if of_figures { (needed("routers"), needed("figures")) } else { (needed("columns"), needed("rows")) };
    let unused = if of_figures { ["columns", "rows"].as_slice() } else { &["routers", "unit"] };
    if let Some(entry) = unused.iter().find_map(|key| fields.get(key)) {
        let message = format!("{what} has no use for {}", quote(&entry.key));
        return problems.refuse(
            &entry.key_span,
            message,
            "give `columns` and `rows`, or `routers` and `figures` with their `unit`",
        );
    }
    let test_name = known_test(test?, "`published` has figures for", tests, problems)?;
    let mut optional = |key: &str| fields.optional(key, |node| line(node, &quote(key), problems));
    let (meaning, unit) = (optional("meaning")?, optional("unit")?);
    let mut published = Published {
        title: line(title?, "`title`", problems)?,
        source: line(source?, "`source`", problems)?,
        meaning,
        unit,
        id: of_test(fields.value("id"), &test_name, tests, problems)?,
        test: test_name,
        ..Published::default()
    };
    if of_figures {
        published.routers = cells(heads?, "`routers`", problems)?;
        let mut seen = HashSet::new();
        if let Some(again) = published.routers.iter().find(|router| !seen.insert(router.as_str())) {
            let message = format!("{} is in `routers` twice", quote(again));
            return problems.refuse(&heads?.span, message, "give each router once");
        }
        published.figures = figures(body?, &published, tests, registry, problems)?;
    } else {
        published.columns = cells(heads?, "`columns`", problems)?;
        published.rows = rows(body?, published.columns.len(), problems)?;
    }
    Some(published)
}

/// The name of the test in `node`; an error if this suite has no such test. `what` begins the message.
pub(super) fn known_test(
    node: &Node,
    what: &str,
    tests: Option<&[TestConfig]>,
    problems: &mut Problems,
) -> Option<String> {
    let name = line(node, "`test`", problems)?;
    match tests {
        Some(tests) if !tests.iter().any(|known| known.test == name) => {
            let message = format!("{what} {}, which is not a test of this suite", quote(&name));
            problems.refuse(&node.span, message, did_you_mean(&name, tests.iter().map(|test| test.test.as_str())))
        }
        _ => Some(name),
    }
}

/// The id in `node`, if there is one; an error if no test of this name has this id.
pub(super) fn of_test(
    node: Option<&Node>,
    test: &str,
    tests: Option<&[TestConfig]>,
    problems: &mut Problems,
) -> Option<Option<String>> {
    let Some(node) = node else { return Some(None) };
    let id = line(node, "`id`", problems)?;
    let named = tests.map(|tests| tests.iter().filter(|known| known.test == test));
    let ids: Option<Vec<&str>> = named.map(|tests| tests.filter_map(|test| test.id.as_deref()).collect());
    match ids.filter(|ids| !ids.contains(&id.as_str())) {
        Some(ids) => {
            let message = format!("no test {} of this suite has the id {}", quote(test), quote(&id));
            problems.refuse(&node.span, message, did_you_mean(&id, ids))
        }
        None => Some(Some(id)),
    }
}

fn rows(node: &Node, columns: usize, problems: &mut Problems) -> Option<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for node in few(node, "`rows`", "[[A, 5782]]", MOST_ROWS, problems)? {
        let row = cells(node, "a row", problems)?;
        if row.len() != columns {
            let message = format!("this row has {} cells, the table has {columns} columns", row.len());
            return problems.refuse(
                &node.span,
                message,
                "give one cell for each column; write `\"-\"` where there is no figure",
            );
        }
        all.push(row);
    }
    Some(all)
}

/// Reads the figures of an entry. If the tests could not be read, the keys are not checked.
fn figures(
    node: &Node,
    published: &Published,
    tests: Option<&[TestConfig]>,
    registry: &Registry,
    problems: &mut Problems,
) -> Option<Vec<(String, Vec<String>)>> {
    let fields = Fields::of(node, "`figures`", "figures: {throughput_64_pps: [5782]}", problems)?;
    within(node, "`figures`", fields.entries.len(), MOST_ROWS, problems)?;
    if fields.entries.is_empty() {
        return problems.refuse(&node.span, "`figures` is empty", such_as(FIGURES_EXAMPLE));
    }
    let read: Vec<_> = fields
        .entries
        .iter()
        .map(|entry| {
            // A size that this run does not send is not a mistake, because the command line may have changed the sizes:
            // the report then shows only the published figure.
            let key = match (registry.test(&published.test), tests) {
                (Some(spec), Some(_)) => expect::named(entry, spec, &Sizes::Any, problems)?.0,
                _ => entry.key.clone(),
            };
            Some((key, values(entry, &published.routers, problems)?))
        })
        .collect();
    read.into_iter().collect()
}

/// Reads one value for each router; a value that is not a list applies to all of them.
fn values(entry: &Entry, routers: &[String], problems: &mut Problems) -> Option<Vec<String>> {
    let node = &entry.value;
    if matches!(node.value, Value::Scalar { .. }) {
        return Some(vec![line(node, "a figure", problems)?; routers.len()]);
    }
    let values = cells(node, "a figure", problems)?;
    if values.len() != routers.len() {
        let message = format!("this figure has {} values, there are {} routers", values.len(), routers.len());
        return problems.refuse(
            &node.span,
            message,
            "give one value for each router; write `\"-\"` where there is none",
        );
    }
    Some(values)
}
