//! Figures that others have published, in columns next to the figures of the run. They have no ranks and do not affect
//! ranks.

use crate::format::{DASH, cell, heading, number};
use crate::grid::{self, Grid};
use crate::rank::Ranked;
use crate::view::{Section, View};
use drophammer_judge::criteria::named_rows;
use drophammer_judge::distinct;
use drophammer_model::environment::Published;
use drophammer_model::outcome::{Column, Table};
use drophammer_model::suite::Cells;
use serde_json::{Value as Json, json};

/// Heading of a test's table.
pub const BESIDE: &str = "Beside published figures";
/// Heading of the published columns.
pub const NOT_RANKED: &str = "published by others, not ranked";

/// A published value.
#[derive(Clone, Debug, PartialEq)]
pub struct Value<'a> {
    /// Its entry in the suite.
    pub entry: &'a Published,
    /// The value as written in the suite.
    pub raw: &'a str,
    /// The value for people, without a unit.
    pub text: String,
}

/// A row: a figure of the run, or a cell of its tables.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// Name of the figure or cell in the suite.
    pub key: &'a str,
    /// The figure; absent for a table cell, and if the run has no such figure.
    pub figure: Option<&'a Ranked>,
    /// Title for people, with the unit.
    pub title: String,
    /// Unit of the figure or of the column; `None` if the run has neither.
    pub unit: Option<&'a str>,
    /// Value of each DUT, in the order of the DUTs.
    pub own: Vec<String>,
    /// One value for each of [`Beside::routers`].
    pub values: Vec<Option<Value<'a>>>,
}

/// Figures of a run or of one test, next to what others have published.
#[derive(Clone, Debug, Default)]
pub struct Beside<'a> {
    /// The routers of others, which are the columns.
    pub routers: Vec<&'a str>,
    /// Rows with at least one published value.
    pub rows: Vec<Row<'a>>,
    /// Entries that the values come from; notes number them from 1.
    entries: Vec<&'a Published>,
    /// For each router, the number of its entry, if all of its values come from one entry.
    column_notes: Vec<Option<usize>>,
}

/// Published values for the figures of the summary.
pub fn in_summary<'a>(view: &'a View) -> Beside<'a> {
    of_figures(view, view.ranking.figures.iter())
}

/// As [`in_summary`], for some of the figures.
pub fn of_figures<'a>(view: &'a View, figures: impl Iterator<Item = &'a Ranked>) -> Beside<'a> {
    let of = |figure| Some(of_figure(view, figure, entries(view, view.sections.get(figure.section)?)));
    Beside::of(figures.filter_map(of))
}

/// Published values for the figures and cells of the test at this index in the suite.
pub fn in_section<'a>(view: &'a View, index: usize) -> Beside<'a> {
    let Some(section) = view.sections.get(index) else { return Beside::default() };
    let keys = distinct(entries(view, section).flat_map(|entry| &entry.figures).map(|(key, _)| key.as_str()));
    Beside::of(keys.into_iter().filter_map(|key| row(view, index, section, key)))
}

/// The separate tables for a test. If the suite contains the test several times, entries without an id belong to the
/// first.
pub fn tables<'a>(view: &'a View, section: &Section) -> impl Iterator<Item = &'a Published> {
    let first = section.first;
    entries(view, section).filter(move |entry| entry.figures.is_empty() && (first || entry.id.is_some()))
}

/// The entries about a test: entries with its id, and entries about all tests with its name.
fn entries<'a>(view: &'a View, section: &Section) -> impl Iterator<Item = &'a Published> + Clone {
    let (test, id) = (section.test.clone(), section.suite_id);
    let is_meant =
        move |entry: &&Published| entry.test == test && entry.id.as_deref().is_none_or(|meant| id == Some(meant));
    view.run.started.about.published.iter().filter(is_meant)
}

/// A row with the values by router.
type Found<'a> = (Row<'a>, Vec<(&'a str, Value<'a>)>);

fn row<'a>(view: &'a View, index: usize, section: &Section<'a>, key: &'a str) -> Option<Found<'a>> {
    let entries = entries(view, section);
    let of_key = |section: usize| view.ranking.figures.iter().find(|f| f.section == section && f.key == key);
    if let Some(figure) = of_key(index) {
        return Some(of_figure(view, figure, entries));
    }
    let cells: Option<Cells> = key.parse().ok();
    if let Some((column, own)) = cells.as_ref().and_then(|cells| of_cells(view, section, cells)) {
        let values = values(entries, key, &column.unit);
        let title = cells.map(|cells| title(section, &cells, column)).unwrap_or_default();
        return Some((Row { key, figure: None, title, unit: Some(&column.unit), own, values: Vec::new() }, values));
    }
    // A figure that no matching test has measured appears once, in the first of these tests.
    let is_about = |section: &Section| self::entries(view, section).any(|entry| entry.values(key).next().is_some());
    let mut others = view.sections.iter().enumerate().filter(|(other, section)| *other != index && is_about(section));
    let has_own = |other: usize, section: &Section<'a>| {
        of_key(other).is_some() || cells.as_ref().is_some_and(|cells| of_cells(view, section, cells).is_some())
    };
    let elsewhere = others.any(|(other, section)| other < index || has_own(other, section));
    (!elsewhere).then(|| {
        let own = vec![DASH.to_owned(); view.duts.len()];
        let row = Row { key, figure: None, title: key.to_owned(), unit: None, own, values: Vec::new() };
        (row, values(entries, key, ""))
    })
}

fn of_figure<'a>(view: &'a View, figure: &'a Ranked, entries: impl Iterator<Item = &'a Published>) -> Found<'a> {
    let row = Row {
        key: &figure.key,
        figure: Some(figure),
        title: grid::figure_title(view, figure),
        unit: Some(&figure.unit),
        own: (0..view.duts.len()).map(|dut| grid::measured(figure, dut)).collect(),
        values: Vec::new(),
    };
    (row, values(entries, &figure.key, &figure.unit))
}

/// The column of the cells, and the cells of each DUT as text; `None` if no DUT has them.
fn of_cells<'a>(view: &View, section: &Section<'a>, cells: &Cells) -> Option<(&'a Column, Vec<String>)> {
    let tables = |dut: usize| -> &'a [Table] {
        let result = section.results.iter().find(|result| result.dut == dut);
        result.and_then(|result| result.record).map_or(&[], |record| &record.outcome.tables)
    };
    let found: Vec<_> = (0..view.duts.len()).map(|dut| named_rows(cells, tables(dut))).collect();
    let column = found.iter().flatten().map(|(column, _)| *column).next()?;
    let texts = found.iter().map(|found| {
        let cells = found.iter().flat_map(|(_, rows)| rows).map(|(_, value)| cell(value, &column.unit));
        let texts = distinct(cells);
        if texts.is_empty() { DASH.to_owned() } else { texts.join("; ") }
    });
    Some((column, texts.collect()))
}

/// A title such as `Mean, Frame size 64 bytes [µs]`: the column, then the selection of the rows, in the words of the
/// table.
fn title(section: &Section, cells: &Cells, column: &Column) -> String {
    let table = section.tables.iter().find(|table| table.key == cells.table);
    let of = |key: &str| table.and_then(|table| table.columns.iter().find(|column| column.key == key));
    let mut title = column.title.clone();
    for (key, value) in &cells.rows {
        let (name, unit) = of(key).map_or((key.as_str(), ""), |column| (&column.title, &column.unit));
        title += format!(", {name} {value} {unit}").trim_end();
    }
    heading(&title, &column.unit)
}

fn values<'a>(entries: impl Iterator<Item = &'a Published>, key: &str, unit: &str) -> Vec<(&'a str, Value<'a>)> {
    let of_entry = |entry: &'a Published| {
        let unit = if entry.unit.is_some() { "" } else { unit };
        let one = move |(router, raw): (&'a str, &'a str)| {
            let text = raw.parse::<f64>().map_or_else(|_| raw.to_owned(), |value| number(value, unit));
            (router, Value { entry, raw, text })
        };
        entry.values(key).map(one).collect::<Vec<_>>()
    };
    entries.flat_map(of_entry).collect()
}

impl Value<'_> {
    /// The value, with its unit if it differs from the unit of the figure. Text values have no unit.
    pub fn with_unit(&self) -> String {
        match self.unit() {
            Some(unit) => format!("{} {unit}", self.text),
            None => self.text.clone(),
        }
    }

    /// The unit of a number, if it differs from the unit of the figure.
    pub fn unit(&self) -> Option<&str> {
        self.entry.unit.as_deref().filter(|_| self.raw.parse::<f64>().is_ok())
    }
}

impl<'a> Beside<'a> {
    fn of(found: impl Iterator<Item = Found<'a>>) -> Beside<'a> {
        let found: Vec<_> = found.filter(|(_, values)| !values.is_empty()).collect();
        let routers = distinct(found.iter().flat_map(|(_, values)| values).map(|(router, _)| *router));
        let placed = |(row, values): Found<'a>| {
            let of = |router: &&str| values.iter().find(|(of, _)| of == router).map(|(_, value)| value.clone());
            Row { values: routers.iter().map(of).collect(), ..row }
        };
        let rows: Vec<Row> = found.into_iter().map(placed).collect();
        let mut entries: Vec<&Published> = Vec::new();
        let mut of_routers: Vec<Vec<usize>> = vec![Vec::new(); routers.len()];
        for (router, value) in rows.iter().flat_map(|row| row.values.iter().enumerate()) {
            let Some(value) = value else { continue };
            let known = entries.iter().position(|known| std::ptr::eq(*known, value.entry));
            let number = known.unwrap_or_else(|| {
                entries.push(value.entry);
                entries.len() - 1
            }) + 1;
            if !of_routers[router].contains(&number) {
                of_routers[router].push(number);
            }
        }
        let only = |numbers: Vec<usize>| if let [only] = numbers[..] { Some(only) } else { None };
        Beside { rows, routers, entries, column_notes: of_routers.into_iter().map(only).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The row of a figure.
    pub fn row(&self, figure: &Ranked) -> Option<&Row<'a>> {
        self.rows.iter().find(|row| row.figure.is_some_and(|own| std::ptr::eq(own, figure)))
    }

    /// The notes, each of which gives the source and meaning of an entry.
    pub fn notes(&self) -> Vec<String> {
        self.entries.iter().map(|entry| grid::published_title(entry)).collect()
    }

    /// Number of a column's note, if all of its values come from one entry.
    pub fn column_note(&self, router: usize) -> Option<usize> {
        self.column_notes.get(router).copied().flatten()
    }

    /// Number of a value's note, if the column of the value has none.
    pub fn value_note(&self, router: usize, value: &Value) -> Option<usize> {
        let of_value = || self.entries.iter().position(|known| std::ptr::eq(*known, value.entry)).map(|at| at + 1);
        if self.column_note(router).is_some() { None } else { of_value() }
    }

    /// Headings of the columns in the text and Markdown reports.
    pub fn headings(&self) -> Vec<String> {
        let note = |router| self.column_note(router).map(|n| format!(" [{n}]")).unwrap_or_default();
        self.routers.iter().enumerate().map(|(at, name)| format!("{name}, published{}", note(at))).collect()
    }

    /// The values of a row in the text and Markdown reports; dashes for a figure without published values.
    pub fn texts(&self, row: Option<&Row>) -> Vec<String> {
        let text = |router: usize| {
            let value = row.and_then(|row| row.values.get(router)?.as_ref());
            let note = value.and_then(|value| self.value_note(router, value));
            let note = note.map(|n| format!(" [{n}]")).unwrap_or_default();
            value.map_or(DASH.to_owned(), |value| value.with_unit() + &note)
        };
        (0..self.routers.len()).map(text).collect()
    }

    /// A table with the figures, the values of the DUTs of `order`, and the published values.
    pub fn grid(&self, view: &View, order: &[usize]) -> Grid {
        let mut head = grid::head_of_duts("Figure", view, order);
        head.extend(self.headings());
        let line = |row: &Row| {
            let own = order.iter().map(|dut| row.own[*dut].clone());
            std::iter::once(row.title.clone()).chain(own).chain(self.texts(Some(row))).collect()
        };
        Grid::of_numbers(head, self.rows.iter().map(line).collect())
    }

    /// The notes as lines: `[1] …`.
    pub fn note_lines(&self) -> Vec<String> {
        self.notes().into_iter().enumerate().map(|(at, note)| format!("[{}] {note}", at + 1)).collect()
    }

    /// The published values as JSON, by key.
    pub fn json(&self) -> Vec<Json> {
        let of_row = |row: &Row| json!({ "key": row.key, "title": row.title, "values": self.values_json(row) });
        self.rows.iter().map(of_row).collect()
    }

    /// The published values of one row as JSON.
    pub fn values_json(&self, row: &Row) -> Vec<Json> {
        let json = |(router, value): (&&str, &Option<Value>)| {
            let value = value.as_ref()?;
            let number: Option<f64> = value.raw.parse().ok().filter(|number: &f64| number.is_finite());
            let Published { title, source, meaning, .. } = value.entry;
            Some(json!({
                "router": router,
                "value": number.map_or_else(|| json!(value.raw), |number| json!(number)),
                "unit": value.entry.unit.as_deref().or(row.unit),
                "title": title, "source": source, "meaning": meaning,
            }))
        };
        self.routers.iter().zip(&row.values).filter_map(json).collect()
    }
}
