//! Combines the tables of all rounds into one.

use crate::criteria::{number, shown};
use crate::distinct;
use crate::statistics::median;
use drophammer_model::outcome::{Cell, Column, Row, Table};
use std::collections::{HashMap, HashSet};

/// Columns whose numbers identify rows, as words do.
const KEYS: [&str; 9] = [
    "load_percent",
    "percent",
    "ipv6_percent",
    "conditions",
    "routes",
    "repeat",
    "sessions",
    "intended_rps",
    "header_bytes",
];

/// The table with medians, and a note for the reader. `rounds` has the round of each table. If the rounds have hardly
/// any rows in common, the table contains the rows of all rounds, each with its round number.
pub(super) fn combine(tables: &[&Table], rounds: &[u32]) -> (Table, Option<&'static str>) {
    let first = tables[0];
    if tables.iter().any(|table| table.columns != first.columns) {
        return (first.clone(), Some("rounds have different columns; the rows of one round are shown"));
    }
    let columns = leading_keys(tables);
    let groups = match columns.telling_apart {
        Some(columns) => by_key(tables, columns),
        None => by_place(tables, columns.all),
    };
    let Some(groups) = groups else {
        let note = "rounds have different rows; each row says which round it is from";
        return (Table { rows: of_all(tables, rounds), ..first.clone() }, Some(note));
    };
    let rows = groups.iter().map(|rows| combine_rows(rows, &first.columns, tables.len()));
    (Table { rows: rows.collect(), ..first.clone() }, None)
}

/// The rows of all tables, one table after the other, with the round number as first mark.
fn of_all(tables: &[&Table], rounds: &[u32]) -> Vec<Row> {
    let rows = tables.iter().zip(rounds).flat_map(|(table, round)| table.rows.iter().map(move |row| (row, round)));
    let marked = |(row, round): (&Row, &u32)| {
        let mut row = row.clone();
        row.marks.insert(0, format!("round {round}"));
        row
    };
    rows.map(marked).collect()
}

/// The leading columns that identify a row: the first column, and the words and settings that follow it.
struct LeadingKeys {
    all: usize,
    /// How many of these columns are enough to distinguish all rows of each table; `None` if even all of them are not.
    telling_apart: Option<usize>,
}

fn leading_keys(tables: &[&Table]) -> LeadingKeys {
    let columns = &tables[0].columns;
    let is_setting = |at: usize| KEYS.contains(&&*columns[at].key);
    let has_words = |at: usize| {
        let mut cells = tables.iter().flat_map(|table| &table.rows).filter_map(|row| row.cells.get(at));
        cells.all(|cell| matches!(cell, Cell::Text(_) | Cell::None))
    };
    let all = (0..columns.len()).take_while(|at| *at == 0 || is_setting(*at) || has_words(*at)).count();
    let apart = |count: usize| {
        let differ = |table: &&Table| {
            let mut seen = HashSet::new();
            table.rows.iter().all(|row| seen.insert(key(row, count)))
        };
        tables.iter().all(differ)
    };
    // A load is a key even if each round has only one load.
    let settings = (0..all).rev().find(|at| is_setting(*at)).map_or(1, |last| last + 1);
    LeadingKeys { all, telling_apart: (settings..=all).find(|count| apart(*count)) }
}

/// The first `count` cells of a row as text, because cells cannot be hashed.
fn key(row: &Row, count: usize) -> String {
    format!("{:?}", &row.cells[..count.min(row.cells.len())])
}

/// The rows of each key, in the order of the tables; `None` if the tables have hardly any keys in common.
fn by_key<'t>(tables: &[&'t Table], columns: usize) -> Option<Vec<Vec<&'t Row>>> {
    let mut order: Vec<String> = Vec::new();
    let mut rows: HashMap<String, Vec<&Row>> = HashMap::new();
    for table in tables {
        // A row that is missing from earlier tables keeps its position in this table.
        let mut next = 0;
        for row in &table.rows {
            let key = key(row, columns);
            match order.iter().position(|known| *known == key) {
                Some(at) => next = at + 1,
                None => {
                    order.insert(next, key.clone());
                    next += 1;
                }
            }
            rows.entry(key).or_default().push(row);
        }
    }
    // If each round found its own loads, the rounds have hardly any rows in common.
    let most = tables.iter().map(|table| table.rows.len()).max().unwrap_or(0);
    let common = rows.values().any(|rows| rows.len() > 1) && order.len() <= 2 * most;
    (order.is_empty() || common).then(|| order.iter().filter_map(|key| rows.remove(key)).collect())
}

/// The rows at each position; `None` if the tables have different keys there.
fn by_place<'t>(tables: &[&'t Table], columns: usize) -> Option<Vec<Vec<&'t Row>>> {
    let first = tables[0];
    let is_same = |table: &&Table| {
        let mut pairs = table.rows.iter().zip(&first.rows);
        table.rows.len() == first.rows.len() && pairs.all(|(a, b)| key(a, columns) == key(b, columns))
    };
    let rows = |at: usize| tables.iter().map(|table| &table.rows[at]).collect();
    tables.iter().all(is_same).then(|| (0..first.rows.len()).map(rows).collect())
}

/// Combines the rows of the same key. Each of the `rounds` rounds has at most one.
fn combine_rows(rows: &[&Row], columns: &[Column], rounds: usize) -> Row {
    let mut unsteady = Vec::new();
    let cells = (0..rows[0].cells.len()).map(|at| {
        let cells: Vec<&Cell> = rows.iter().filter_map(|row| row.cells.get(at)).collect();
        let combined = combine_cells(&cells);
        let above = || cells.iter().filter_map(|cell| number(cell)).filter(|number| *number > 0.0);
        // A median of 0 would hide the lossy rounds.
        if number(&combined) == Some(0.0) && above().next().is_some() {
            let (some, most) = (above().count(), shown(above().fold(0.0, f64::max)));
            let (title, unit) = columns.get(at).map_or(("", ""), |column| (&column.title, &column.unit));
            let most = format!("{most} {unit}");
            unsteady.push(format!("{title}: up to {} in {some} of {rounds} rounds", most.trim_end()));
        }
        combined
    });
    let cells = cells.collect();
    let marks = distinct(rows.iter().flat_map(|row| &row.marks));
    let with_rounds = marks.into_iter().map(|mark| {
        let times = rows.iter().filter(|row| row.marks.contains(mark)).count();
        if times == rounds { mark.clone() } else { format!("{mark} ({times} of {rounds} rounds)") }
    });
    let missing = (rows.len() < rounds).then(|| format!("in {} of {rounds} rounds only", rows.len()));
    Row {
        cells,
        trials: rows.iter().flat_map(|row| row.trials.iter().copied()).collect(),
        marks: with_rounds.chain(missing).chain(unsteady).collect(),
    }
}

fn combine_cells(cells: &[&Cell]) -> Cell {
    let texts = distinct(cells.iter().filter_map(|cell| match cell {
        Cell::Text(text) => Some(text.as_str()),
        _ => None,
    }));
    if !texts.is_empty() {
        return Cell::Text(texts.join(" / "));
    }
    let mut numbers: Vec<f64> = cells.iter().filter_map(|cell| number(cell)).collect();
    let whole = cells.iter().all(|cell| matches!(cell, Cell::Count(_) | Cell::None));
    match median(&mut numbers) {
        None => Cell::None,
        Some(median) if whole && median.fract() == 0.0 => Cell::Count(median as u64),
        Some(median) => Cell::Number(median),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::outcome::{CAPPED, TESTER_LIMITED};

    fn table(columns: &[&str], rows: &[&[Cell]]) -> Table {
        Table {
            key: "t".into(),
            title: "T".into(),
            columns: columns.iter().map(|key| Column::new(key, key, "")).collect(),
            rows: rows.iter().map(|cells| Row { cells: cells.to_vec(), ..Row::default() }).collect(),
        }
    }

    fn text(text: &str) -> Cell {
        Cell::Text(text.into())
    }

    fn cells(table: &Table) -> Vec<&[Cell]> {
        table.rows.iter().map(|row| &row.cells[..]).collect()
    }

    #[test]
    fn rows_that_change_places_are_not_mixed() {
        let columns = ["port", "protocol", "frames"];
        let row = |protocol: &str, frames| [text("p1"), text(protocol), Cell::Count(frames)];
        let rounds = [
            table(&columns, &[&row("ARP", 9), &row("MLD", 3)]),
            table(&columns, &[&row("MLD", 7), &row("ARP", 5), &row("LLDP", 1)]),
        ];
        let (combined, note) = combine(&[&rounds[0], &rounds[1]], &[1, 2]);
        assert_eq!(note, None);
        assert_eq!(cells(&combined), [&row("ARP", 7)[..], &row("LLDP", 1), &row("MLD", 5)]);
        assert_eq!(marks(&combined), ["", "in 1 of 2 rounds only", ""]);
    }

    fn marks(table: &Table) -> Vec<String> {
        table.rows.iter().map(|row| row.marks.join(", ")).collect()
    }

    #[test]
    fn a_load_is_a_key_even_if_each_round_has_one() {
        let columns = ["frame_size", "flows", "load_percent", "p50_us"];
        let row = |load: f64, latency: f64| [text("64"), text("IPv4"), Cell::Number(load), Cell::Number(latency)];
        let rounds = [
            table(&columns, &[&row(15.0, 10.0), &row(50.0, 40.0)]),
            table(&columns, &[&row(50.0, 60.0)]),
            table(&columns, &[&row(15.0, 20.0)]),
        ];
        let (combined, _) = combine(&[&rounds[0], &rounds[1], &rounds[2]], &[1, 2, 3]);
        assert_eq!(cells(&combined), [&row(15.0, 15.0)[..], &row(50.0, 50.0)]);
        // Rounds without a common row are not mixed.
        let (combined, note) = combine(&[&rounds[1], &rounds[2]], &[2, 3]);
        assert_eq!(cells(&combined), [&row(50.0, 60.0)[..], &row(15.0, 20.0)]);
        assert_eq!(marks(&combined), ["round 2", "round 3"]);
        assert!(note.is_some_and(|note| note.contains("each row says which round")));
    }

    #[test]
    fn rows_without_keys_belong_together_by_place() {
        let columns = ["frame_size", "verdict", "frames"];
        let row = |verdict: &str, frames| [text("64"), text(verdict), Cell::Count(frames)];
        let first = table(&columns, &[&row("right", 2), &row("right", 4)]);
        let second = table(&columns, &[&row("right", 4), &row("right", 6)]);
        let (combined, note) = combine(&[&first, &second], &[1, 2]);
        assert_eq!((cells(&combined), note), (vec![&row("right", 3)[..], &row("right", 5)], None));
        let other = table(&columns, &[&row("wrong", 4), &row("wrong", 6)]);
        let (combined, note) = combine(&[&first, &other], &[1, 2]);
        assert!(combined.rows.len() == 4 && note.is_some());
    }

    #[test]
    fn a_median_of_zero_shows_the_rounds_above_it() {
        let columns = ["frame_size", "leaked", "rate"];
        let row = |leaked| [text("64"), Cell::Count(leaked), Cell::Number(1.0)];
        let rounds: Vec<Table> = [0, 5, 0].iter().map(|leaked| table(&columns, &[&row(*leaked)])).collect();
        let (combined, _) = combine(&rounds.iter().collect::<Vec<_>>(), &[1, 2, 3, 4, 5, 6]);
        assert_eq!(combined.rows[0].cells, row(0));
        assert_eq!(combined.rows[0].marks, ["leaked: up to 5 in 1 of 3 rounds"]);
    }

    #[test]
    fn a_row_that_some_rounds_limited_is_limited() {
        for mark in [TESTER_LIMITED, CAPPED] {
            let of_round = |frames| table(&["frame_size", "frames"], &[&[text("64"), Cell::Count(frames)]]);
            let mut rounds = [1, 2].map(of_round);
            rounds[1].rows[0].marks.push(mark.into());
            let (combined, _) = combine(&rounds.iter().collect::<Vec<_>>(), &[1, 2]);
            assert_eq!(marks(&combined), [format!("{mark} (1 of 2 rounds)")]);
            assert!(combined.rows[0].is_limited(), "{mark}");
        }
    }

    #[test]
    fn a_median_of_no_loss_shows_the_lossy_rounds() {
        let of_round = |loss| table(&["frame_size", "loss"], &[&[text("64"), Cell::Number(loss)]]);
        let mut rounds = [0.0, 0.0, 0.0, 0.0, 3.1, 2.8].map(of_round);
        rounds.iter_mut().for_each(|round| round.columns[1].unit = "%".into());
        let (combined, _) = combine(&rounds.iter().collect::<Vec<_>>(), &[1, 2, 3, 4, 5, 6]);
        assert_eq!(combined.rows[0].cells, [text("64"), Cell::Number(0.0)]);
        assert_eq!(combined.rows[0].marks, ["loss: up to 3.1 % in 2 of 6 rounds"]);
    }
}
