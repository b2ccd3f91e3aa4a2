//! The report for a terminal.

use crate::format::{plain, plain_lines};
use crate::grid::{self, Grid};
use crate::rank::HOW;
use crate::view::View;
use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};

fn set(grid: &Grid) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(grid.head.iter().map(|h| plain(h)));
    for row in &grid.rows {
        table.add_row(row.iter().map(|c| plain(c)));
    }
    for (index, right) in grid.right.iter().enumerate() {
        if let (true, Some(column)) = (*right, table.column_mut(index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn paint(text: &str, code: &str, color: bool) -> String {
    if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// See [`crate::summary_text`].
pub fn summary(view: &View, color: bool) -> String {
    let started = &view.run.started;
    let mut out = format!("{}\n", paint(&plain(&started.title), "1", color));
    if let Some(tag) = view.tag() {
        out += &format!("{}\n", paint(&plain(&tag), "33", color));
    }
    out += &format!("Run {}: {}\n", plain(&started.suite), plain(&view.state_text()));
    if !view.ranking.figures.is_empty() {
        let mut table = set(&grid::summary(view));
        if color {
            table.enforce_styling();
            colour_best(&mut table, view);
        } else {
            table.force_no_tty();
        }
        out += &format!("{table}\n");
        if view.duts.len() > 1 {
            out += &format!("{}\n", wrap(HOW, 100));
        }
    }
    for (section, dut, v) in view.verdicts() {
        let word = if v.pass { paint("PASS", "32", color) } else { paint("FAIL", "1;31", color) };
        let line = format!("{} on {}: {}; found {}", section.title, dut.label(), v.criterion, v.found);
        out += &format!("{word}  {}\n", plain(&line));
    }
    let problems = view.problems();
    for problem in &problems {
        out += &format!("{} {}\n", paint("!", "1;31", color), plain(problem));
    }
    let invalid = view.invalid_trials().len();
    if invalid > 0 {
        out += &format!("{invalid} of {} trials were invalid and are not part of any figure.\n", view.run.trials.len());
    }
    out
}

/// Bold green for rank 1 of each figure, where there is something to rank.
fn colour_best(table: &mut Table, view: &View) {
    let head = usize::from(view.duts.len() > 1);
    for (index, figure) in view.ranking.figures.iter().enumerate() {
        let Some(row) = table.row_mut(index + head) else { continue };
        let cells: Vec<String> = row.cell_iter().map(Cell::content).collect();
        let mut fresh = comfy_table::Row::new();
        for (column, content) in cells.into_iter().enumerate() {
            let mut cell = Cell::new(content);
            if let Some(dut) = column.checked_sub(2).and_then(|c| view.ranking.order.get(c)) {
                let entry = &figure.entries[*dut];
                if entry.rank == Some(1) && entry.value().is_some() && grid::ranked_kind(view, *dut) {
                    cell = cell.fg(Color::Green).add_attribute(Attribute::Bold);
                }
            }
            fresh.add_cell(cell);
        }
        *row = fresh;
    }
}

/// Breaks at spaces so that lines have at most `width` characters.
fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut line = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if line > 0 && line + 1 + len > width {
            out.push('\n');
            line = 0;
        } else if line > 0 {
            out.push(' ');
            line += 1;
        }
        out.push_str(word);
        line += len;
    }
    out
}

/// The whole report as text.
pub fn report(view: &View) -> String {
    let mut out = summary(view, false);
    for section in &view.sections {
        out += &format!("\n== {} ==\n", plain(&section.title));
        for t in &section.tables {
            out += &format!("\n{}\n{}\n", plain(t.title), set(&grid::table(view, t)));
        }
        for r in &section.results {
            let dut = view.duts[r.dut].label();
            out += &format!("{}: {}; {} trials\n", plain(&dut), plain(&r.standing.text()), r.trials.len());
            for note in r.record.iter().flat_map(|t| &t.outcome.notes) {
                out += &format!("  - {}\n", plain(note));
            }
        }
    }
    out += "\n== Devices under test ==\n";
    for dut in &view.duts {
        out += &format!("{}: {}\n", plain(&dut.label()), plain(&grid::dut_line(dut)));
    }
    let invalid = grid::invalid_lines(view);
    if !invalid.is_empty() {
        out += &format!("\n== Invalid trials ==\n{}\n", plain_lines(&invalid.join("\n")));
    }
    let remarks: Vec<_> = view.run.notes.iter().filter(|n| !n.problem).collect();
    if !remarks.is_empty() {
        out += "\n== Remarks ==\n";
        for n in remarks {
            let dut = n.dut.as_ref().map(|d| format!("{d}: ")).unwrap_or_default();
            out += &format!("{}  {}{}\n", plain(&n.time), plain(&dut), plain(&n.text));
        }
    }
    out
}
