//! The `digest:` section: tables that the report combines from the tables of several tests, as in articles about
//! routers.

use super::errors::{Problems, did_you_mean, list, quote};
use super::expect::{parse_cells, table_of};
use super::fields::{Fields, LONGEST_LINE, few, line, one_line, such_as, text, within};
use super::published::{known_test, of_test};
use super::raw::{Entry, Node, Value};
use drophammer_model::environment::{Digest, DigestColumn};
use drophammer_model::registry::{Registry, TableShape, TestSpec};
use drophammer_model::suite::{Cells, TestConfig};
use serde_json::json;
use std::ops::Range;

const EXAMPLE: &str = "digest: [{title: Rates, by: frame_size, columns: {max: throughput.throughput_pps}}]";
const COLUMNS_EXAMPLE: &str = "columns: {max: throughput.throughput_pps}";
const COLUMN_EXAMPLE: &str = "{test: throughput, id: small, cell: throughput.throughput_pps}";
const CELL_EXAMPLE: &str = "filters[conditions=10, permit=last].throughput_pps";
/// The help for a condition on the DUT.
const BY_DUT: &str = "leave it out: a digest has rows for each DUT";
/// Names of an entry of the section, and of a column of an entry, in messages.
const TABLE: &str = "a table of `digest`";
const COLUMN: &str = "a column of `digest`";
const KEYS: [&str; 3] = ["title", "by", "columns"];
const COLUMN_KEYS: [&str; 3] = ["cell", "test", "id"];
/// Maximum number of tables.
const MOST_TABLES: usize = 20;
/// Maximum number of columns of a table.
const MOST_COLUMNS: usize = 20;

/// The JSON schema of the section.
pub(crate) fn schema() -> serde_json::Value {
    let line = json!({ "type": ["string", "number"], "maxLength": LONGEST_LINE });
    let cell = json!({
        "description": "A column of a table of a test, with conditions in brackets that select rows.",
        "type": "string", "minLength": 1, "examples": [CELL_EXAMPLE],
    });
    let of_test = json!({
        "type": "object", "additionalProperties": false, "required": ["cell"],
        "properties": {
            "cell": cell,
            "test": { "description": "Name of a test of this suite, needed if several tests have the table.", "type": "string" },
            "id": { "description": "Id of one test of this name; default: all of them.", "type": "string" },
        },
    });
    json!({
        "description": "Tables that the report combines from the tables of several tests.",
        "type": "array", "minItems": 1, "maxItems": MOST_TABLES, "items": {
            "type": "object", "additionalProperties": false, "required": ["title", "columns"],
            "properties": {
                "title": line,
                "by": {
                    "description": "Key of a column that all tables have, for one row per DUT and value of this column; default: one row per DUT.",
                    "type": "string",
                },
                "columns": {
                    "description": "Heading and cell of each column.",
                    "type": "object", "minProperties": 1, "maxProperties": MOST_COLUMNS,
                    "additionalProperties": { "oneOf": [cell, of_test] },
                },
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
) -> Option<Vec<Digest>> {
    let entries = few(node, "`digest`", EXAMPLE, MOST_TABLES, problems)?;
    // Reads every entry, to report all errors.
    let read: Vec<_> = entries.iter().map(|item| digest(item, tests, registry, problems)).collect();
    read.into_iter().collect()
}

fn digest(node: &Node, tests: Option<&[TestConfig]>, registry: &Registry, problems: &mut Problems) -> Option<Digest> {
    let fields = Fields::with_keys(node, TABLE, &KEYS, EXAMPLE, problems)?;
    let mut needed = |key: &str| fields.required(key, TABLE, EXAMPLE, problems);
    let (title, body) = (needed("title"), needed("columns"));
    let title = title.and_then(|node| line(node, "`title`", problems));
    let by = fields.optional("by", |node| line(node, "`by`", problems));
    let columns = columns(body?, tests, registry, problems)?;
    let (title, by) = (title?, by?);
    if let (Some(by), Some(entry)) = (&by, fields.get("by")) {
        let has = |table: &TableShape| table.columns.contains(&by.as_str());
        if let Some(table) = columns.iter().filter_map(|(_, table)| *table).find(|table| !has(table)) {
            let message = format!("{} is not a column of the table `{}`", quote(by), table.key);
            let keys = table.columns.iter().copied();
            return problems.refuse(&entry.value.span, message, did_you_mean(by, keys));
        }
    }
    Some(Digest { title, by, columns: columns.into_iter().map(|(column, _)| column).collect() })
}

/// A column; also its table, if the test declares its tables.
type Found = (DigestColumn, Option<&'static TableShape>);

fn columns(
    node: &Node,
    tests: Option<&[TestConfig]>,
    registry: &Registry,
    problems: &mut Problems,
) -> Option<Vec<Found>> {
    let fields = Fields::of(node, "`columns`", COLUMNS_EXAMPLE, problems)?;
    within(node, "`columns`", fields.entries.len(), MOST_COLUMNS, problems)?;
    if fields.entries.is_empty() {
        return problems.refuse(&node.span, "`columns` is empty", such_as(COLUMNS_EXAMPLE));
    }
    let read: Vec<_> = fields.entries.iter().map(|entry| column(entry, tests, registry, problems)).collect();
    read.into_iter().collect()
}

fn column(entry: &Entry, tests: Option<&[TestConfig]>, registry: &Registry, problems: &mut Problems) -> Option<Found> {
    let title = one_line(&entry.key, &entry.key_span, "the heading of a column", problems)?;
    let node = &entry.value;
    let (cell, test, id) = match &node.value {
        Value::Map(_) => {
            let fields = Fields::with_keys(node, COLUMN, &COLUMN_KEYS, COLUMN_EXAMPLE, problems)?;
            (fields.required("cell", COLUMN, COLUMN_EXAMPLE, problems)?, fields.value("test"), fields.value("id"))
        }
        _ => (node, None, None),
    };
    let name = text(cell, COLUMN, CELL_EXAMPLE, problems)?;
    let found = parse_cells(name, &cell.span, || CELL_EXAMPLE.to_owned(), problems)?;
    // Tests that could not be read have errors of their own.
    let Some(tests) = tests else {
        return Some((DigestColumn { title, test: found.table.clone(), id: None, key: found.to_string() }, None));
    };
    let spec = match test {
        Some(node) => registry.test(&known_test(node, "`digest` has a column of", Some(tests), problems)?)?,
        None => test_of(&found, &cell.span, tests, registry, problems)?,
    };
    let id = of_test(id, spec.name, Some(tests), problems)?;
    // If the test does not declare its tables, a wrong name becomes a dash in the report.
    let table = match spec.tables.is_empty() {
        true => None,
        false => Some(table_of(&found, spec, &cell.span, BY_DUT, problems)?),
    };
    Some((DigestColumn { title, test: spec.name.to_owned(), id, key: found.to_string() }, table))
}

/// Returns the only test of this suite that has the table of the cells.
fn test_of<'r>(
    cells: &Cells,
    span: &Range<usize>,
    tests: &[TestConfig],
    registry: &Registry<'r>,
    problems: &mut Problems,
) -> Option<&'r TestSpec> {
    let has_table = |spec: &TestSpec| spec.tables.iter().any(|table| table.key == cells.table);
    let mut own: Vec<&'r TestSpec> = Vec::new();
    for spec in tests.iter().filter_map(|test| registry.test(&test.test)) {
        if !own.iter().any(|known| known.name == spec.name) {
            own.push(spec);
        }
    }
    let having: Vec<&'r TestSpec> = own.iter().copied().filter(|spec| has_table(spec)).collect();
    match having.as_slice() {
        [only] => return Some(*only),
        [] => {}
        [first, ..] => {
            let names = list(having.iter().map(|spec| spec.name));
            let message = format!("{} is a table of the tests {names}", quote(&cells.table));
            let help = format!("name one of them, for instance `{{test: {}, cell: \"{cells}\"}}`", first.name);
            return problems.refuse(span, message, help);
        }
    }
    // The cells name a test: the caller checks its tables, or they are known only after it has run.
    if let Some(spec) = own.iter().find(|spec| spec.name == cells.table) {
        return Some(*spec);
    }
    let elsewhere = registry.tests.iter().find(|spec| has_table(spec) || spec.name == cells.table);
    let (message, help) = match elsewhere {
        Some(spec) => (
            format!("`digest` has a column of {}, which is not a test of this suite", quote(spec.name)),
            format!("add `{}` to `tests`, or leave the column out", spec.name),
        ),
        None => (
            format!("no test of this suite has a table {}", quote(&cells.table)),
            did_you_mean(&cells.table, own.iter().flat_map(|spec| spec.tables).map(|table| table.key)),
        ),
    };
    problems.refuse(span, message, help)
}

#[cfg(test)]
mod tests {
    use super::super::raw;
    use super::*;
    use drophammer_model::suite::Params;

    const RATES: TableShape =
        TableShape { key: "rates", columns: &["frame_size", "rate_pps", "state"], numeric: &[false, true, false] };
    const SHARED: TableShape = TableShape { key: "shared", columns: &["note"], numeric: &[false] };
    const NOTHING: TestSpec =
        TestSpec { name: "", title: "", summary: "", source: "", params: &[], figures: &[], tables: &[], needs: &[] };
    static FIRST: TestSpec = TestSpec { name: "first", tables: &[RATES, SHARED], ..NOTHING };
    static SECOND: TestSpec = TestSpec { name: "second", tables: &[SHARED], ..NOTHING };
    static OPEN: TestSpec = TestSpec { name: "open", ..NOTHING };

    /// The section in a suite with `first` twice, `second` and `open`; or the messages and helps of its errors.
    fn digests(text: &str) -> Result<Vec<Digest>, Vec<String>> {
        let test = |name: &str, id: Option<&str>| TestConfig {
            test: name.into(),
            id: id.map(str::to_owned),
            duts: Vec::new(),
            params: Params::default(),
            expect: Vec::new(),
        };
        let tests = [test("first", None), test("first", Some("again")), test("second", None), test("open", None)];
        let registry = Registry { tests: &[&FIRST, &SECOND, &OPEN], kinds: &[] };
        let mut problems = Problems::default();
        let node = raw::parse(text, &mut problems).unwrap();
        match read(&node, Some(&tests), &registry, &mut problems) {
            Some(read) if problems.len() == 0 => Ok(read),
            _ => Err(problems.first().into_iter().collect()),
        }
    }

    fn column_of(cell: &str) -> Result<DigestColumn, Vec<String>> {
        digests(&format!("[{{title: t, columns: {{max: {cell}}}}}]")).map(|mut all| all.remove(0).columns.remove(0))
    }

    #[test]
    fn the_table_leads_to_the_test() {
        let of = |test: &str, id: Option<&str>, key: &str| DigestColumn {
            title: "max".into(),
            test: test.into(),
            id: id.map(str::to_owned),
            key: key.into(),
        };
        assert_eq!(column_of("rates.rate_pps"), Ok(of("first", None, "rates.rate_pps")));
        // A digest can contain words, and its keys are normalized.
        let key = "rates[frame_size=64].state";
        assert_eq!(column_of("\"rates[ frame_size = 64 ].state\""), Ok(of("first", None, key)));
        let again = "{cell: rates.rate_pps, id: again}";
        assert_eq!(column_of(again), Ok(of("first", Some("again"), "rates.rate_pps")));
        assert_eq!(column_of("{cell: shared.note, test: second}"), Ok(of("second", None, "shared.note")));
        // The tables of this test are known only after it has run.
        assert_eq!(column_of("open.anything"), Ok(of("open", None, "open.anything")));
    }

    #[test]
    fn a_table_of_several_tests_needs_the_name_of_one() {
        let told = column_of("shared.note").unwrap_err().remove(0);
        assert!(told.starts_with("`shared` is a table of the tests `first` and `second`"), "{told}");
        assert!(told.contains("{test: first, cell: \"shared.note\"}"), "{told}");
    }

    #[test]
    fn the_column_of_the_rows_is_one_of_every_table() {
        let with = |columns: &str| digests(&format!("[{{title: t, by: frame_size, columns: {{{columns}}}}}]"));
        assert_eq!(with("a: rates.rate_pps, b: open.x").unwrap()[0].by.as_deref(), Some("frame_size"));
        let told = with("a: rates.rate_pps, b: {cell: shared.note, test: second}").unwrap_err().remove(0);
        assert!(told.starts_with("`frame_size` is not a column of the table `shared` (known: `note`"), "{told}");
    }
}
