//! The report for a terminal.

use crate::conclusion::conclusion;
use crate::csv::Names;
use crate::ending::{self, Ending};
use crate::format::{self, ellipsis, plain, plain_lines, several};
use crate::grid::{self, Grid, Group};
use crate::published::{self, BESIDE, Beside};
use crate::rank::HOW;
use crate::view::View;
use crate::{board, digest, drops, hosts, paragraph};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width, presets};
use drophammer_model::figure::Decision;
use drophammer_store::RunState;

/// Maximum number of characters of a cell.
pub const CELL: usize = 200;

fn set(grid: &Grid) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    let cell = |text: &String| format::shorten(&plain(text), CELL);
    table.set_header(grid.head.iter().map(cell));
    for row in &grid.rows {
        table.add_row(row.iter().map(cell));
    }
    align_right(&mut table, (0..grid.right.len()).filter(|column| grid.right[*column]));
    table
}

fn align_right(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// An empty table that fits on the terminal.
pub fn narrow_table(head: &[String]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(head);
    fit(&mut table);
    table
}

fn fit(table: &mut Table) {
    table.set_width(WIDTH as u16);
    table.set_content_arrangement(ContentArrangement::Dynamic);
}

/// Aligns the numbers of a table in these columns, and decides whether it has colours.
pub fn finish(table: &mut Table, right: impl IntoIterator<Item = usize>, color: bool) {
    align_right(table, right);
    if color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
}

/// Limits the first column to `width` characters.
pub fn limit_first(table: &mut Table, width: u16) {
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(width)));
    }
}

/// `text` in a colour of the terminal (SGR).
pub fn paint(text: &str, code: &str, color: bool) -> String {
    if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Maximum number of characters of a line of the summary.
pub const WIDTH: usize = 100;
/// Maximum number of characters of the column of figures; longer titles continue on a second line.
const FIGURE_WIDTH: usize = 42;
/// Maximum number of characters of a problem in the summary; the report has the rest.
const PROBLEM_WIDTH: usize = 160;

/// See [`crate::summary_text`].
pub fn summary(view: &View, color: bool) -> String {
    head(view, color) + &problems(view, color, Some(PROBLEM_WIDTH))
}

fn head(view: &View, color: bool) -> String {
    let started = &view.run.started;
    let mut out = format!("{}\n", paint(&wrap(&plain(&started.title), WIDTH), "1", color));
    if let Some(tag) = view.tag() {
        let listed = match view.deviations().len() {
            0 => String::new(),
            n => format!(": {}, listed in the report", several(n, "deviation")),
        };
        out += &format!("{}\n", paint(&plain(&(tag + &listed)), "33", color));
    }
    let (mut ended, is_good) = Ending::of(view).text(view);
    if view.run.state() == RunState::Complete && !is_good {
        ended += &format!("; run {}", view.state_text());
    }
    out +=
        &format!("{}: {}\n", plain(&started.suite), paint(&plain(&ended), if is_good { "32" } else { "1;31" }, color));
    for sentence in conclusion(view).into_iter().chain(ending::trust(view)) {
        out += &format!("{}\n", wrap(&plain(&sentence), WIDTH));
    }
    if !view.ranking.figures.is_empty() {
        for group in &grid::groups(view) {
            let (parts, figure_width) = side_by_side(view, group);
            for order in parts {
                let mut table = set(&grid::summary(view, group, order));
                fit(&mut table);
                if let Some(width) = figure_width {
                    limit_first(&mut table, width + 2);
                }
                finish(&mut table, [], color);
                if color {
                    colour_best(&mut table, view, group, order);
                }
                out += &format!("{table}\n");
            }
        }
        let down =
            if view.ranking.figures.iter().all(|f| f.higher_is_better) { "" } else { "\u{2193} less is better. " };
        let limited = grid::limited_notes(view);
        let how = if view.duts.len() > 1 { HOW } else { "" };
        if !(down.is_empty() && limited.is_empty() && how.is_empty()) {
            out += &format!("{}\n", wrap(&format!("{down}{limited}{how}"), WIDTH));
        }
        for reason in ending::nothing_to_measure(view) {
            out += &format!("{}\n", wrap(&plain(&format!("{reason}.")), WIDTH));
        }
    }
    for (section, dut, v) in view.verdicts() {
        let word = match v.decision() {
            Decision::Met => paint("PASS", "32", color),
            Decision::Missed => paint("FAIL", "1;31", color),
            Decision::Undecided => paint("UNDECIDED", "1;33", color),
        };
        let line = format!("{} on {}: {}; found {}", section.title, dut.label(), v.criterion, v.found);
        out += &format!("{word}  {}\n", wrap(&plain(&line), WIDTH - 6).replace('\n', "\n      "));
    }
    out
}

/// Problems, one line each, of at most `width` characters.
fn problems(view: &View, color: bool, width: Option<usize>) -> String {
    let mut out = String::new();
    for problem in view.problems() {
        let line = plain(&problem);
        let line = width.map_or(line.clone(), |w| ellipsis(&line, w - 2));
        out += &format!("{} {line}\n", paint("!", "1;31", color));
    }
    if let Some(disturbed) = ending::disturbed_by(view) {
        out += &format!("{}\n", wrap(&plain(&disturbed), WIDTH));
    }
    for step in ending::next_steps(view) {
        out += &format!("{}\n", wrap(&format!("Next: {step}"), WIDTH));
    }
    out
}

/// The DUTs of a group, best first, in parts whose columns fit next to the figures. Also the width of the column of figures,
/// if its texts are wider than that.
fn side_by_side<'a>(view: &View, group: &'a Group) -> (Vec<&'a [usize]>, Option<u16>) {
    let order = group.duts.as_slice();
    let all = grid::summary(view, group, order);
    let width = |column: usize| {
        let cells = all.rows.iter().map(|r| r[column].chars().count());
        // A space on either side and a line between columns.
        cells.chain([all.head[column].chars().count()]).max().unwrap_or(0) + 3
    };
    if (0..all.head.len()).map(width).sum::<usize>() < WIDTH {
        return (vec![order], None);
    }
    let figures = width(0).min(FIGURE_WIDTH + 3) + 1;
    let (mut parts, mut start, mut used) = (Vec::new(), 0, figures);
    for place in 0..order.len() {
        let own = width(place + 1);
        if place > start && used + own > WIDTH {
            parts.push(&order[start..place]);
            (start, used) = (place, figures);
        }
        used += own;
    }
    parts.push(&order[start..]);
    (parts, Some(FIGURE_WIDTH as u16))
}

/// Prints the best values in bold green.
fn colour_best(table: &mut Table, view: &View, group: &Group, order: &[usize]) {
    let head = usize::from(group.has_overall(view));
    for (index, figure) in group.figures.iter().enumerate() {
        let Some(row) = table.row_mut(index + head) else { continue };
        let cells: Vec<String> = row.cell_iter().map(Cell::content).collect();
        let mut fresh = comfy_table::Row::new();
        for (column, content) in cells.into_iter().enumerate() {
            let mut cell = Cell::new(content);
            if let Some(dut) = column.checked_sub(1).and_then(|c| order.get(c))
                && grid::is_best(figure, *dut)
            {
                cell = cell.fg(Color::Green).add_attribute(Attribute::Bold);
            }
            fresh.add_cell(cell);
        }
        *row = fresh;
    }
}

/// Breaks a text at spaces into lines of at most `width` characters.
pub fn wrap(text: &str, width: usize) -> String {
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

/// Each note on lines of its own.
fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("{}\n", wrap(&plain(note), WIDTH))).collect()
}

/// Published figures in a separate table, because the lines of the summary are too short for them.
fn beside_published(view: &View, order: &[usize], beside: &Beside, title: &str) -> String {
    if beside.is_empty() {
        return String::new();
    }
    let table = set(&beside.grid(view, order));
    format!("\n{title}\n\n{table}\n{}", notes(&beside.note_lines()))
}

/// The whole report as text.
pub fn report(view: &View) -> String {
    let mut out = head(view, false) + &problems(view, false, None);
    out += &beside_published(view, &view.ranking.order, &published::in_summary(view), &format!("== {BESIDE} =="));
    if let Some(bits) = grid::bits(view, &view.ranking.order) {
        out += &format!("\n== {} ==\n\n{}\n", grid::BITS, set(&bits));
    }
    if let Some((places, reasons)) = board::places_grid(view) {
        out += &format!("\n== {} ==\n\n{}\n{}\n", board::PLACES, set(&places), wrap(board::HOW, WIDTH));
        for reason in reasons {
            out += &format!("  - {}\n", plain(&reason));
        }
    }
    if let Some(facts) = board::facts_grid(view) {
        out += &format!("\n== {} ==\n\n{}\n", board::FACTS, set(&facts));
    }
    for digest in digest::all(view) {
        let (title, table) = (plain(digest.title), set(&digest.grid(view)));
        out += &format!("\n== {title} ==\n\n{table}\n{}", notes(&digest.notes()));
    }
    let names = Names::new(view);
    for (n, section) in view.all_sections().enumerate() {
        out += &format!("\n== {} ==\n", plain(&section.title));
        if let Some(paragraph) = paragraph::of_test(view, section) {
            out += &format!("\n{}\n", wrap(&plain(&paragraph), WIDTH));
        }
        for (i, t) in section.tables.iter().enumerate() {
            out += &format!("\n{}\n{}\n", plain(t.title), set(&grid::table(view, t)));
            for line in t.beyond(view) {
                out += &format!("{} in csv/{}\n", plain(&line), names.tables[n][i]);
            }
        }
        out += &beside_published(view, &view.order_of(section), &published::in_section(view, n), BESIDE);
        for published in published::tables(view, section) {
            let title = wrap(&plain(&grid::published_title(published)), WIDTH);
            out += &format!("\n{title}\n{}\n", set(&grid::published_table(published)));
        }
        for r in &section.results {
            let dut = view.dut(r.dut).label();
            out += &format!("{}: {}; {} trials\n", plain(&dut), plain(&r.standing.text()), r.trials.len());
            for note in r.record.iter().flat_map(|t| &t.outcome.notes) {
                out += &format!("  - {}\n", plain(note));
            }
            for text in grid::findings(view, r) {
                out += &format!("  - {}.\n", plain(&text));
            }
        }
    }
    out += "\n== Devices under test ==\n";
    for dut in view.duts.iter().chain(&view.tester) {
        out += &format!("{}: {}\n", plain(&dut.label()), plain(&grid::dut_line(dut)));
        if let Some(drops) = drops::of_dut(view, dut.name).text() {
            out += &format!("  - in all tests {}.\n", plain(&drops));
        }
    }
    if let Some(hosts) = hosts::grid(&view.run.trials) {
        out += &format!("\n== {} ==\n\n{}\n{}\n", hosts::TITLE, set(&hosts), wrap(hosts::HOW, WIDTH));
    }
    let deviations = view.deviation_lines();
    if !deviations.is_empty() {
        out += &format!("\n== Deviations from the RFCs ==\n{}\n", plain_lines(&deviations.join("\n")));
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
