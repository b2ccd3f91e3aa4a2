//! Tables that collect cells from the tables of several tests, as the suite requests (`digest:`). They affect no rank.

use crate::csv::raw;
use crate::format::{DASH, cell, heading};
use crate::grid::Grid;
use crate::view::{Section, View};
use drophammer_judge::criteria::named_rows;
use drophammer_judge::distinct;
use drophammer_model::environment::{Digest, DigestColumn};
use drophammer_model::outcome::{self, Cell, Table};
use drophammer_model::suite::Cells;
use serde_json::{Value as Json, json};
use std::collections::{HashMap, HashSet};

/// Maximum number of values of the `by` column.
const MOST_VALUES: usize = 200;
/// Marks a value whose row has a mark in the table of its test.
const MARK: &str = " *";
/// Meaning of the mark.
const MARKED: &str = "* The row of this value has a mark in the table of the test: tester-limited, limited by \
                      max_load, doubtful or refuted.";
/// Description of the table.
const HOW: &str = "Each value comes from a table of a test below. The values affect no rank.";

/// A digest with its values.
#[derive(Debug)]
pub struct Filled<'a> {
    pub title: &'a str,
    /// The column that has one row for each of its values; without it, each DUT has one row.
    by: Option<By<'a>>,
    /// Columns whose tests ran; there is at least one.
    pub columns: Vec<Column<'a>>,
    /// Rows, sorted by DUT, then by value.
    pub rows: Vec<Row<'a>>,
    /// Number of values that have no row because there are too many values.
    left_out: usize,
}

#[derive(Debug)]
struct By<'a> {
    key: &'a str,
    /// The column, from the first table that contains it.
    column: &'a outcome::Column,
}

#[derive(Debug)]
pub struct Column<'a> {
    /// The column as the suite requests it.
    pub asked: &'a DigestColumn,
    /// Unit of all values; `None` if the units differ, so that each value shows its own unit.
    unit: Option<&'a str>,
}

#[derive(Debug)]
pub struct Row<'a> {
    /// Index into [`View::duts`].
    pub dut: usize,
    /// The value of the `by` column.
    by: Option<&'a Cell>,
    /// One value per column.
    pub values: Vec<Option<Value<'a>>>,
}

/// A cell in a table of a test.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    cell: &'a Cell,
    unit: &'a str,
    row: &'a outcome::Row,
}

/// Name of the CSV file of the digest with index `at`.
pub fn file(at: usize) -> String {
    format!("digest-{}.csv", at + 1)
}

/// The digests of a run with at least one column and one row.
pub fn all<'a>(view: &'a View) -> Vec<Filled<'a>> {
    view.run.started.about.digests.iter().filter_map(|digest| Filled::new(view, digest)).collect()
}

/// Values, keyed by the text of the `by` cell (empty without a `by` column). `None` if several rows match.
type ByText<'a> = HashMap<String, Option<Value<'a>>>;

/// Reads the values of a column.
struct Reader<'a> {
    asked: &'a DigestColumn,
    cells: Cells,
    sections: Vec<&'a Section<'a>>,
}

impl<'a> Reader<'a> {
    /// `None` if the test did not run.
    fn new(view: &'a View, asked: &'a DigestColumn) -> Option<Reader<'a>> {
        let is_meant = |section: &&Section| match (&asked.id, section.suite_id) {
            _ if section.test != asked.test => false,
            (Some(meant), Some(id)) => meant == id,
            // The records contain the id, and there are no records yet.
            (Some(_), None) => section.results.iter().all(|result| result.record.is_none()),
            (None, _) => true,
        };
        let sections: Vec<&Section> = view.sections.iter().filter(is_meant).collect();
        Some(Reader { asked, cells: asked.key.parse().ok()?, sections }).filter(|reader| !reader.sections.is_empty())
    }

    /// The tables of a DUT from all matching tests.
    fn tables(&self, dut: usize) -> impl Iterator<Item = &'a [Table]> {
        let results =
            self.sections.iter().flat_map(move |section| section.results.iter().filter(move |r| r.dut == dut));
        results.filter_map(|result| result.record).map(|record| record.outcome.tables.as_slice())
    }

    /// The column with this key, and its cell in each selected row of a DUT.
    fn rows(&self, dut: usize, key: &str) -> Vec<(&'a outcome::Column, &'a outcome::Row, &'a Cell)> {
        let cells = Cells { column: key.to_owned(), ..self.cells.clone() };
        let found = self.tables(dut).filter_map(|tables| named_rows(&cells, tables));
        found.flat_map(|(column, rows)| rows.into_iter().map(move |(row, cell)| (column, row, cell))).collect()
    }

    /// The values of a DUT.
    fn values(&self, dut: usize, by: Option<&str>) -> ByText<'a> {
        let found = self.rows(dut, &self.cells.column);
        // A row is the same object in both lists. A table without the `by` column contributes no rows.
        let texts: Option<HashMap<*const outcome::Row, String>> = by.map(|key| {
            let rows = self.rows(dut, key).into_iter();
            rows.map(|(_, row, cell)| (std::ptr::from_ref(row), raw(cell))).collect()
        });
        let mut values = ByText::new();
        for (column, row, cell) in found {
            let text = match &texts {
                Some(texts) => texts.get(&std::ptr::from_ref(row)).cloned(),
                None => Some(String::new()),
            };
            let Some(text) = text else { continue };
            let value = Value { cell, unit: &column.unit, row };
            values.entry(text).and_modify(|earlier| *earlier = None).or_insert(Some(value));
        }
        values
    }
}

/// The values of the `by` column, in the order of the tables.
#[derive(Default)]
struct Values<'a> {
    known: Vec<(String, &'a Cell)>,
    /// The values beyond the first [`MOST_VALUES`].
    beyond: HashSet<String>,
}

impl<'a> Values<'a> {
    /// Adds the values of a table. A value that is not in earlier tables keeps its place in this table.
    fn add(&mut self, cells: impl Iterator<Item = &'a Cell>) {
        let mut next = 0;
        for cell in cells.filter(|cell| **cell != Cell::None) {
            let text = raw(cell);
            match self.known.iter().position(|(known, _)| *known == text) {
                Some(at) => next = at + 1,
                None if self.known.len() < MOST_VALUES => {
                    self.known.insert(next, (text, cell));
                    next += 1;
                }
                None => {
                    self.beyond.insert(text);
                }
            }
        }
    }
}

impl<'a> Filled<'a> {
    fn new(view: &'a View, digest: &'a Digest) -> Option<Filled<'a>> {
        let readers: Vec<Reader> = digest.columns.iter().filter_map(|column| Reader::new(view, column)).collect();
        let duts = 0..view.duts.len();
        let mut keys = Values::default();
        let mut by = None;
        if let Some(key) = digest.by.as_deref() {
            for (reader, dut) in readers.iter().flat_map(|reader| duts.clone().map(move |dut| (reader, dut))) {
                let rows = reader.rows(dut, key);
                by = by.or(rows.first().map(|&(column, ..)| By { key, column }));
                keys.add(rows.into_iter().map(|(.., cell)| cell));
            }
        }
        let left_out = keys.beyond.len();
        let wanted: Vec<(String, Option<&'a Cell>)> = match digest.by {
            Some(_) => keys.known.into_iter().map(|(text, cell)| (text, Some(cell))).collect(),
            None => vec![(String::new(), None)],
        };
        let mut rows: Vec<Row> = Vec::new();
        for dut in duts {
            let values: Vec<ByText> = readers.iter().map(|r| r.values(dut, digest.by.as_deref())).collect();
            rows.extend(wanted.iter().map(|(text, by)| Row {
                dut,
                by: *by,
                values: values.iter().map(|of_column| of_column.get(text).copied().flatten()).collect(),
            }));
        }
        let column = |(at, reader): (usize, &Reader<'a>)| {
            let mut units = rows.iter().filter_map(|row| row.values[at]).map(|value| value.unit);
            let unit = units.next().unwrap_or_default();
            Column { asked: reader.asked, unit: units.all(|other| other == unit).then_some(unit) }
        };
        let columns: Vec<Column> = readers.iter().enumerate().map(column).collect();
        let is_empty = columns.is_empty() || rows.is_empty();
        (!is_empty).then_some(Filled { title: &digest.title, by, columns, rows, left_out })
    }

    /// Headings of the columns that identify a row: the DUT, and the value of the `by` column.
    fn row_heads(&self) -> Vec<String> {
        let by = self.by.as_ref().map(|by| heading(&by.column.title, &by.column.unit));
        std::iter::once("DUT".to_owned()).chain(by).collect()
    }

    /// The value of the `by` column, formatted for people; `None` without such a column.
    pub fn by_text(&self, row: &Row) -> Option<String> {
        let by = self.by.as_ref()?;
        Some(cell(row.by?, &by.column.unit))
    }

    /// Headings of all columns.
    pub fn heads(&self) -> Vec<String> {
        let units = self.columns.iter().map(|column| heading(&column.asked.title, column.unit.unwrap_or_default()));
        self.row_heads().into_iter().chain(units).collect()
    }

    /// The value of each column, formatted for people; a dash for a missing value.
    pub fn texts(&self, row: &Row) -> Vec<String> {
        let text = |(column, value): (&Column, &Option<Value>)| match value {
            Some(value) => value.text(column) + if value.is_marked() { MARK } else { "" },
            None => DASH.to_owned(),
        };
        self.columns.iter().zip(&row.values).map(text).collect()
    }

    /// The table for the text and Markdown reports.
    pub fn grid(&self, view: &View) -> Grid {
        let rows = self.rows.iter().map(|row| {
            let about = std::iter::once(view.duts[row.dut].label()).chain(self.by_text(row));
            about.chain(self.texts(row)).collect()
        });
        Grid { right: self.right(), rows: rows.collect(), head: self.heads() }
    }

    /// For each column, true if it contains only numbers.
    pub fn right(&self) -> Vec<bool> {
        let is_text = |cell: &Cell| matches!(cell, Cell::Text(_));
        let by = self.by.as_ref().map(|_| !self.rows.iter().filter_map(|row| row.by).any(is_text));
        let values = (0..self.columns.len()).map(|at| {
            let mut values = self.rows.iter().filter_map(|row| row.values[at]);
            !values.any(|value| is_text(value.cell))
        });
        std::iter::once(false).chain(by).chain(values).collect()
    }

    /// Notes for the reader.
    pub fn notes(&self) -> Vec<String> {
        let marked = self.rows.iter().flat_map(|row| row.values.iter().flatten()).any(Value::is_marked);
        let title = self.by.as_ref().map_or("", |by| by.column.title.as_str());
        let more = (self.left_out > 0).then(|| format!("{title}: {} more values are left out.", self.left_out));
        std::iter::once(HOW.to_owned()).chain(marked.then(|| MARKED.to_owned())).chain(more).collect()
    }

    /// Heading and rows for a CSV file: numbers as stored, then the marks.
    pub fn csv(&self, view: &View) -> (Vec<String>, Vec<Vec<String>>) {
        let by = self.by.as_ref().map(|by| by.key.to_owned());
        let titles = self.heads().into_iter().skip(self.row_heads().len());
        let head = std::iter::once("dut".to_owned()).chain(by).chain(titles).chain(["marks".to_owned()]).collect();
        let rows = self.rows.iter().map(|row| {
            let value = |(column, value): (&Column, &Option<Value>)| match (value, column.unit) {
                (Some(value), None) if matches!(value.cell, Cell::Count(_) | Cell::Number(_)) => {
                    format!("{} {}", raw(value.cell), value.unit).trim_end().to_owned()
                }
                (Some(value), _) => raw(value.cell),
                (None, _) => String::new(),
            };
            let values: Vec<String> = self.columns.iter().zip(&row.values).map(value).collect();
            let marks = distinct(row.values.iter().flatten().flat_map(Value::marks).map(String::as_str));
            let about = std::iter::once(view.duts[row.dut].name.to_owned()).chain(row.by.map(raw));
            about.chain(values).chain([marks.join("; ")]).collect()
        });
        (head, rows.collect())
    }

    /// The table as JSON.
    pub fn json(&self, view: &View) -> Json {
        let by = self.by.as_ref().map(|by| json!({ "key": by.key, "title": by.column.title, "unit": by.column.unit }));
        let column = |column: &Column| {
            let DigestColumn { title, test, id, key } = column.asked;
            json!({ "title": title, "test": test, "id": id, "key": key, "unit": column.unit })
        };
        let row = |row: &Row| {
            let cell = |value: &Option<Value>| {
                let value = value.as_ref();
                json!({
                    "value": value.map(|value| value.cell),
                    "unit": value.map(|value| value.unit),
                    "marks": value.map(Value::marks).unwrap_or_default(),
                })
            };
            let cells: Vec<Json> = row.values.iter().map(cell).collect();
            json!({ "dut": view.duts[row.dut].name, "by": row.by, "cells": cells })
        };
        json!({
            "title": self.title,
            "by": by,
            "columns": self.columns.iter().map(column).collect::<Vec<_>>(),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "left_out": self.left_out,
        })
    }
}

impl<'a> Value<'a> {
    /// Formats the value as in the table of the test, with its unit if the heading of the column has none.
    fn text(&self, column: &Column) -> String {
        let text = cell(self.cell, self.unit);
        match (column.unit, self.cell) {
            (None, Cell::Count(_) | Cell::Number(_)) => format!("{text} {}", self.unit).trim_end().to_owned(),
            _ => text,
        }
    }

    /// True if something other than the DUT may have limited the figures of its row.
    pub fn is_marked(&self) -> bool {
        let row = self.row;
        *self.cell != Cell::None && (row.is_limited() || row.is_doubtful() || row.is_refuted())
    }

    pub fn marks(&self) -> &'a [String] {
        &self.row.marks
    }
}
