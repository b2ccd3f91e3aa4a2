//! The comparison of runs for a terminal.

use super::{Compared, Count, Finding, HOW, Line, Verdict};
use crate::format::{DASH, number, plain, shorten};
use crate::rank::Entry;
use crate::text::{WIDTH, paint, wrap};
use comfy_table::{Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width, presets};
use drophammer_model::figure::{Figure, RoundFigure};

/// Characters of the column of figures; longer titles go on in a second line.
const FIGURE_WIDTH: u16 = 40;
/// Longest value of a condition, in characters.
const VALUE: usize = 160;
/// Longest cell, in characters.
const CELL: usize = 200;

/// See [`Compared::text`].
pub fn text(compared: &Compared, color: bool) -> String {
    let mut out = String::new();
    for run in &compared.runs {
        let line = format!("{}  {}: {}, started {}; {}", run.letter, run.folder, run.suite, run.started, run.state);
        out += &format!("{}\n", wrap(&plain(&line), WIDTH).replace('\n', "\n   "));
    }
    if compared.conditions.is_empty() {
        out += "\nNo condition that is recorded differs.\n";
    } else {
        out += &format!("\n{}\n", paint("Different conditions", "1;33", color));
    }
    for condition in &compared.conditions {
        let values = condition.values.iter().map(|value| value.as_ref().map(|value| shorten(&plain(value), VALUE)));
        let shown = super::Condition { name: shorten(&plain(&condition.name), VALUE), values: values.collect() };
        let line = format!("{}: {}", shown.name, shown.text());
        out += &format!("  {}\n", wrap(&line, WIDTH - 4).replace('\n', "\n    "));
    }
    for run in 1..compared.runs.len() {
        for dut in duts(compared) {
            out += &table(compared, dut, run, color);
        }
    }
    out.push('\n');
    for run in 1..compared.runs.len() {
        let Count { better, worse, undecided, not_compared } = compared.count(run);
        let count = format!("{worse} worse, {better} better, {undecided} without a proven difference");
        let rest = if not_compared > 0 { format!(", {not_compared} not compared") } else { String::new() };
        let line = format!("{} against {}: {count}{rest}.", compared.runs[run].letter, compared.runs[0].letter);
        let code = if worse > 0 { "1;31" } else { "1" };
        out += &format!("{}\n", paint(&line, code, color));
    }
    let points = compared.lines.iter().any(|line| line.by_difference && line.unit == "%");
    let points = if points { " pp: percentage points." } else { "" };
    out += &format!("{}\n", wrap(&format!("{HOW} \u{2193} less is better.{points}"), WIDTH));
    out
}

fn duts(compared: &Compared) -> Vec<&str> {
    let mut duts: Vec<&str> = Vec::new();
    for line in &compared.lines {
        if !duts.contains(&line.dut.as_str()) {
            duts.push(&line.dut);
        }
    }
    duts
}

/// The figures of one DUT in the first run and in run `run`; empty where neither has any.
fn table(compared: &Compared, dut: &str, run: usize, color: bool) -> String {
    let (a, b) = (&compared.runs[0].letter, &compared.runs[run].letter);
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_width(WIDTH as u16);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([plain(dut), a.clone(), b.clone(), format!("{b} against {a}")].map(|cell| shorten(&cell, CELL)));
    let of_dut = || compared.lines.iter().filter(|line| line.dut == dut);
    let known = |line: &&Line| line.entries[0].is_some() || line.entries[run].is_some();
    for line in of_dut().filter(known) {
        let finding = &line.findings[run - 1];
        let mut cells = vec![Cell::new(shorten(&plain(&line.title), CELL))];
        cells.extend([0, run].map(|run| Cell::new(entry(line, line.entries[run].as_ref()))));
        let verdict = Cell::new(against(line, finding));
        cells.push(match finding.verdict {
            Verdict::Worse => verdict.fg(Color::Red),
            Verdict::Better => verdict.fg(Color::Green),
            Verdict::Undecided | Verdict::NotCompared(_) => verdict,
        });
        table.add_row(cells);
    }
    if table.is_empty() {
        return String::new();
    }
    if let Some(figures) = table.column_mut(0) {
        figures.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(FIGURE_WIDTH)));
    }
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    format!("\n{table}\n")
}

/// The median of a run, and its interval below.
pub(super) fn entry(line: &Line, entry: Option<&Entry>) -> String {
    let Some(entry) = entry else { return DASH.into() };
    let mut out = match entry.summary {
        Some(summary) => bounds(summary.median, &|value| number(value, &line.unit)),
        None => DASH.into(),
    };
    match entry.summary {
        Some(summary) if summary.rounds > 1 && summary.interval != summary.median => {
            out += &format!("\n{}", bounds(summary.interval, &|value| number(value, &line.unit)));
        }
        _ => {}
    }
    let rounds = entry.rounds.len();
    match entry.rounds.iter().filter(|round| **round == RoundFigure::Failed).count() {
        0 => {}
        failed => out += &format!("\nfailed in {failed} of {rounds}"),
    }
    out
}

/// Result of the comparison: `worse`, the difference, its interval.
pub(super) fn against(line: &Line, finding: &Finding) -> String {
    let word = match &finding.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "WORSE",
        Verdict::Undecided => "not proven",
        Verdict::NotCompared(why) => return format!("not compared: {}", shorten(&plain(why), CELL)),
    };
    let Some(values) = &finding.values else { return word.into() };
    let change = |value: f64| match (line.by_difference, line.unit.as_str()) {
        (true, "%") => format!("{} pp", signed(value, &number(value.abs(), "%"))),
        (true, unit) => format!("{} {}", signed(value, &number(value.abs(), unit)), plain(unit)),
        // From twice as much on a factor is easier to read.
        (false, _) if value >= 1.0 => format!("{} times", number(1.0 + value, "")),
        (false, _) => format!("{} %", signed(value, &number(100.0 * value.abs(), ""))),
    };
    if !values.difference.low.is_finite() && !values.difference.high.is_finite() {
        return format!("{word}\nbounds say nothing");
    }
    format!("{}  {word}\n{}", bounds(values.difference, &change), bounds(values.interval, &change))
}

/// `+5.2`, `-5.2`.
fn signed(value: f64, size: &str) -> String {
    let sign = if value < 0.0 { "-" } else { "+" };
    if value == 0.0 { size.to_owned() } else { format!("{sign}{size}") }
}

/// A value, or its known bounds.
pub(super) fn bounds(figure: Figure, show: &dyn Fn(f64) -> String) -> String {
    match (figure.low.is_finite(), figure.high.is_finite()) {
        (true, true) => {
            let (low, high) = (show(figure.low), show(figure.high));
            if low == high { low } else { format!("{low} to {high}") }
        }
        (true, false) => format!("\u{2265} {}", show(figure.low)),
        (false, true) => format!("\u{2264} {}", show(figure.high)),
        (false, false) => DASH.into(),
    }
}
