//! The comparison of runs for a terminal.

use super::{Compared, Count, Finding, HOW, Line, Verdict};
use crate::format::{DASH, number, plain, shorten};
use crate::rank::Entry;
use crate::text::{CELL, WIDTH, finish, limit_first, narrow_table, paint, wrap};
use comfy_table::{Cell, Color};
use drophammer_judge::distinct;
use drophammer_model::figure::{Figure, RoundFigure};

/// Maximum width of the column of figures, in characters; longer titles continue on a second line.
const FIGURE_WIDTH: u16 = 40;
/// Maximum length of a condition's value, in characters.
const VALUE: usize = 160;

/// See [`Compared::text`].
pub fn text(compared: &Compared, color: bool) -> String {
    let mut out = String::new();
    for run in &compared.runs {
        let line = format!("{}  {}: {}, started {}; {}", run.letter, run.folder, run.suite, run.started, run.state);
        out += &format!("{}\n", wrap(&plain(&line), WIDTH).replace('\n', "\n   "));
    }
    if compared.conditions.is_empty() {
        out += "\nNo recorded condition differs.\n";
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
        for dut in distinct(compared.lines.iter().map(|line| &line.dut)) {
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

/// The figures of one DUT in the first run and in run `run`; empty if neither has any.
fn table(compared: &Compared, dut: &str, run: usize, color: bool) -> String {
    let (a, b) = (&compared.runs[0].letter, &compared.runs[run].letter);
    let head = [plain(dut), a.clone(), b.clone(), format!("{b} against {a}")].map(|cell| shorten(&cell, CELL));
    let mut table = narrow_table(&head);
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
    limit_first(&mut table, FIGURE_WIDTH);
    finish(&mut table, 1..4, color);
    format!("\n{table}\n")
}

/// The median of a run, and its interval below.
pub(super) fn entry(line: &Line, entry: Option<&Entry>) -> String {
    let Some(entry) = entry else { return DASH.into() };
    let shown = |figure| bounds(figure, &|value| number(value, &line.unit));
    let mut lines = vec![entry.summary.map_or_else(|| DASH.into(), |summary| shown(summary.median))];
    let interval = entry.summary.filter(|summary| summary.rounds > 1 && summary.interval != summary.median);
    lines.extend(interval.map(|summary| shown(summary.interval)));
    let failed = entry.rounds.iter().filter(|round| **round == RoundFigure::Failed).count();
    lines.extend((failed > 0).then(|| format!("failed in {failed} of {}", entry.rounds.len())));
    lines.join("\n")
}

/// Result of the comparison: `worse`, the difference, and its interval.
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
        // For differences of 100 % and more, a factor is easier to read.
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

/// A value, or the bounds that are known.
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
