//! Judges results by the suite's criteria, for one round and for all rounds.

use crate::distinct;
use crate::statistics::{judge_rounds, judged_interval, summarize};
use drophammer_model::figure::{Decision, Figure, RoundFigure};
use drophammer_model::outcome::{
    Cell, Column, DOUBTFUL, FPS_PER_PORT, Outcome, RankFigure, Row, SAME_LOAD, Table, Verdict,
};
use drophammer_model::quantity::group_digits;
use drophammer_model::record::{TestRecord, TestStatus};
use drophammer_model::suite::{BaselineFigure, Cells, Expectation};
use std::collections::BTreeSet;

/// Maximum number of words listed in a reason.
const MOST_LISTED: usize = 12;
/// Maximum number of characters of a cell in a reason.
const LONGEST: usize = 40;

/// Result of one round for the figure of a criterion.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The figure, or the worst of several cells.
    pub figure: RoundFigure,
    /// Number of cells; 0 for a named figure.
    pub cells: usize,
    /// Why there is no figure, or why it is uncertain.
    pub why: Option<String>,
    /// Title of the figure with its unit; empty for cells, or if there is no figure.
    pub title: String,
    /// Load of the measurement, if the figure depends on the load.
    pub load_pps: Option<f64>,
}

impl Found {
    fn new(figure: RoundFigure) -> Found {
        Found { figure, cells: 0, why: None, title: String::new(), load_pps: None }
    }
}

/// Result of one round for the figure of `expected`.
pub fn in_round(expected: &Expectation, outcome: &Outcome, status: &TestStatus) -> Found {
    match &expected.cells {
        Some(cells) => in_table(cells, expected.at_least, outcome, status),
        None => {
            let rank = outcome.ranks.iter().find(|rank| rank.key == expected.figure);
            rank.map_or_else(|| Found::new(absent(status)), of_rank)
        }
    }
}

fn of_rank(rank: &RankFigure) -> Found {
    let title = format!("{} ({})", rank.title, rank.unit);
    let why = rank.doubts.first().map(|doubt| format!("{DOUBTFUL}{}", doubt.text));
    Found { title, why, load_pps: rank.load_pps, ..Found::new(rank.judged()) }
}

/// A missing figure counts against a DUT only if the DUT failed the test. Otherwise the tester could not measure it, or
/// there was nothing to measure: for example, a DUT that forwards at line rate has no longest burst.
pub(crate) fn absent(status: &TestStatus) -> RoundFigure {
    match status {
        TestStatus::Failed(_) => RoundFigure::Failed,
        _ => RoundFigure::NotMeasured,
    }
}

/// The worst of the selected cells. In a complete test, a selection without cells fails, because a typo in a criterion
/// must not let it pass.
fn in_table(cells: &Cells, at_least: bool, outcome: &Outcome, status: &TestStatus) -> Found {
    if let TestStatus::Failed(_) = status {
        return Found::new(RoundFigure::Failed);
    }
    let whole = *status == TestStatus::Completed;
    let (rows, at) = match selected(cells, &outcome.tables) {
        Ok(selected) => selected,
        Err(why) if whole => return Found { why: Some(why), ..Found::new(RoundFigure::Failed) },
        // The missing part of the test might have contained the cells.
        Err(_) => return Found::new(RoundFigure::NotMeasured),
    };
    let mut worst: Option<Figure> = None;
    let mut uncertain = BTreeSet::new();
    let rest = (!whole).then_some((Figure::unknown(), Some("some rows are missing")));
    let of_rows = rows.iter().map(|row| of_cell(row, at, &cells.column));
    for found in of_rows.chain(rest.map(Ok)) {
        let (figure, why) = match found {
            Ok(found) => found,
            Err(why) => return Found { why: Some(why), cells: rows.len(), ..Found::new(RoundFigure::Failed) },
        };
        uncertain.extend(why);
        let pick: fn(f64, f64) -> f64 = if at_least { f64::min } else { f64::max };
        let both = |worst: Figure| Figure { low: pick(worst.low, figure.low), high: pick(worst.high, figure.high) };
        worst = Some(worst.map_or(figure, both));
    }
    let why = (!uncertain.is_empty()).then(|| uncertain.into_iter().collect::<Vec<_>>().join(", "));
    let figure = worst.map_or(RoundFigure::NotMeasured, RoundFigure::Measured);
    Found { why, cells: rows.len(), ..Found::new(figure) }
}

/// True if a column of this name contains times for which lower is better. For the time that a buffer can hold, higher
/// is better.
fn is_time(column: &str) -> bool {
    let more_is_better = ["buffer", "burst", "at_least"].iter().any(|word| column.contains(word));
    ["_s", "_ms", "_us", "_ns"].iter().any(|unit| column.ends_with(unit)) && !more_is_better
}

/// The bound that a value proves if something other than the DUT may have lost frames: the DUT may be better.
fn of_doubtful(column: &str, value: f64) -> Figure {
    match column {
        _ if is_time(column) || column.contains("loss") || column.contains("lost") => Figure::at_most(value),
        _ if column.ends_with("_pps") => Figure::at_least(value),
        _ => Figure::unknown(),
    }
}

/// The figure of a cell in the column of this name, and why it is uncertain; an error if the cell is not a number.
fn of_cell(row: &Row, at: usize, column: &str) -> Result<(Figure, Option<&'static str>), String> {
    let value = match row.cells.get(at) {
        Some(Cell::Text(text)) => return Err(format!("`{}` is not a number", cut(text, LONGEST))),
        cell => match cell.and_then(number) {
            Some(value) => value,
            None => return Ok((Figure::unknown(), Some("a cell is empty"))),
        },
    };
    Ok(match (row.is_refuted(), row.is_doubtful(), row.is_limited()) {
        (true, ..) => (Figure::unknown(), Some("other trials contradict a row")),
        (_, true, true) => (Figure::unknown(), Some("a row is doubtful")),
        (_, true, false) => (of_doubtful(column, value), Some("a row is doubtful")),
        // Without the limit, the DUT would have been at least as fast.
        (.., true) if is_time(column) => (Figure::at_most(value), Some("the tester or the suite limited a row")),
        (.., true) => (Figure::at_least(value), Some("the tester or the suite limited a row")),
        (false, false, false) => (Figure::exactly(value), None),
    })
}

/// The column that `cells` names, and its cell in each selected row, in the order of the table. `None` if the tables
/// have no such cell.
pub fn named_rows<'t>(cells: &Cells, tables: &'t [Table]) -> Option<(&'t Column, Vec<(&'t Row, &'t Cell)>)> {
    let (rows, at) = selected(cells, tables).ok()?;
    let table = tables.iter().find(|table| table.key == cells.table)?;
    Some((table.columns.get(at)?, rows.into_iter().filter_map(|row| Some((row, row.cells.get(at)?))).collect()))
}

/// The rows that `cells` selects and the index of the column, or why there are none.
fn selected<'t>(cells: &Cells, tables: &'t [Table]) -> Result<(Vec<&'t Row>, usize), String> {
    let Some(table) = tables.iter().find(|table| table.key == cells.table) else {
        let known = tables.iter().map(|table| table.key.clone());
        return Err(format!("there is no table `{}`; the test has {}", cells.table, listed(known, MOST_LISTED)));
    };
    let place = |key: &str| {
        let known = || listed(table.columns.iter().map(|column: &Column| column.key.clone()), MOST_LISTED);
        let at = table.columns.iter().position(|column| column.key == key);
        at.ok_or_else(|| format!("the table `{}` has no column `{key}`; it has {}", table.key, known()))
    };
    let at = place(&cells.column)?;
    let mut rows: Vec<&Row> = table.rows.iter().collect();
    if rows.is_empty() {
        return Err(format!("the table `{}` has no rows", table.key));
    }
    for (column, value) in &cells.rows {
        let by = place(column)?;
        let (same, other): (Vec<&Row>, Vec<&Row>) =
            rows.into_iter().partition(|row| row.cells.get(by).is_some_and(|cell| is(cell, value)));
        if same.is_empty() {
            let others = other.iter().map(|row| row.cells.get(by).map_or_else(String::new, in_cell));
            return Err(format!("no row has {column}={value}, only {}", listed(others, MOST_LISTED)));
        }
        rows = same;
    }
    Ok((rows, at))
}

/// The number in a cell.
pub fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Count(count) => Some(*count as f64),
        Cell::Number(number) => Some(*number),
        Cell::None | Cell::Text(_) => None,
    }
}

/// True if a cell has this value, so that its row is selected.
fn is(cell: &Cell, value: &str) -> bool {
    match cell {
        Cell::None => value.is_empty(),
        Cell::Text(text) => text == value,
        Cell::Count(_) | Cell::Number(_) => number(cell).is_some_and(|number| Cells::is_number(number, value)),
    }
}

fn in_cell(cell: &Cell) -> String {
    match cell {
        Cell::None => "an empty cell".into(),
        Cell::Count(count) => count.to_string(),
        Cell::Number(number) => shown(*number),
        Cell::Text(text) => cut(text, LONGEST),
    }
}

/// The first `longest` characters of a text, with an ellipsis if the text is longer.
pub fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The distinct words in order, at most `most` of them; `none` if there are no words.
pub fn listed(words: impl Iterator<Item = String>, most: usize) -> String {
    let all = distinct(words);
    match all.len() {
        0 => "none".into(),
        n if n > most => format!("{} and {} more", all[..most].join(", "), n - most),
        _ => all.join(", "),
    }
}

/// The distinct criteria of the suite, judged over all rounds. A criterion that is not about a figure is met if every
/// round met it.
pub fn verdicts(rounds: &[&TestRecord]) -> Vec<Verdict> {
    let all = || rounds.iter().flat_map(|record| &record.outcome.verdicts);
    let criteria = distinct(all().map(|verdict| verdict.criterion.as_str()));
    let combined = criteria.into_iter().filter_map(|criterion| {
        let own: Vec<_> = all().filter(|verdict| verdict.criterion == criterion).collect();
        if let Some(expected) = own.iter().find_map(|verdict| verdict.expected.as_ref()) {
            let found: Vec<Found> =
                rounds.iter().map(|record| in_round(expected, &record.outcome, &record.status)).collect();
            return Some(verdict(expected, &found));
        }
        let found = distinct(own.iter().map(|verdict| verdict.found.as_str())).join(", ");
        let pass = own.iter().all(|verdict| verdict.pass);
        let undecided = !pass && own.iter().all(|verdict| verdict.pass || verdict.undecided);
        Some(Verdict { pass, undecided, found, ..(*own.first()?).clone() })
    });
    combined.collect()
}

/// Judges the figures of the rounds by the suite's criterion.
pub fn verdict(expected: &Expectation, rounds: &[Found]) -> Verdict {
    let figures: Vec<RoundFigure> = rounds.iter().map(|round| round.figure).collect();
    let mut found = found(rounds, &figures);
    // A bound of 0 means that something must not happen, so a single round is enough to miss it.
    let happened = |figure: &RoundFigure| matches!(figure, RoundFigure::Measured(figure) if figure.low > 0.0);
    let never = !expected.at_least && expected.bound == 0.0;
    let decision = match &expected.baseline {
        None if never && figures.iter().any(happened) => Decision::Missed,
        None => judge_rounds(&figures, expected.at_least, expected.bound),
        Some(baseline) => {
            let (decision, more) = against(baseline, expected, rounds, &figures);
            found = format!("{found}; {more}");
            decision
        }
    };
    Verdict {
        criterion: expected.to_string(),
        pass: decision == Decision::Met,
        undecided: decision == Decision::Undecided,
        found,
        expected: Some(expected.clone()),
    }
}

/// Compares the rounds with a share of an earlier run's figure, and describes the share that they reach.
///
/// The interval of the ratio ranges from this run's lower end divided by the baseline's upper end to this run's upper
/// end divided by the baseline's lower end. The criterion is met if it holds for the whole interval. This assumes no
/// distribution, and a single round is enough, as for a bound that is a number.
fn against(
    baseline: &BaselineFigure,
    expected: &Expectation,
    rounds: &[Found],
    figures: &[RoundFigure],
) -> (Decision, String) {
    if baseline.rounds == 0 {
        return (Decision::Undecided, "no baseline was read".into());
    }
    let there = in_baseline(baseline);
    let titles = || rounds.iter().map(|round| round.title.as_str()).filter(|title| !title.is_empty());
    if !baseline.title.is_empty() && titles().any(|title| title != baseline.title) {
        let why = format!("the baseline has a different figure of this name: {}", baseline.title);
        return (Decision::Undecided, why);
    }
    if let Some(loads) = other_load(baseline, rounds) {
        let [at, here] = loads.map(|pps| group_digits(pps.round() as u64));
        let why = format!("not compared with {there}, which was measured at another load: {at} fps, not {here} fps");
        return (Decision::Undecided, why);
    }
    // The figure is at least 0, even if nothing else is known.
    let of = baseline.interval();
    let share = expected.bound / 100.0;
    let bound = Figure { low: of.low.max(0.0) * share, high: of.high * share };
    let decision = judge_rounds(figures, expected.at_least, bound);
    let ratio = judged_interval(figures, expected.at_least).and_then(|own| ratio(own, of));
    (decision, ratio.map_or_else(|| there.clone(), |ratio| format!("{ratio} of {there}")))
}

/// The loads of the baseline and of a round, if they differ.
fn other_load(baseline: &BaselineFigure, rounds: &[Found]) -> Option<[f64; 2]> {
    let at = baseline.load_pps?;
    let mut here = rounds.iter().filter_map(|round| round.load_pps);
    here.find(|here| (at - here).abs() > SAME_LOAD * at.max(*here)).map(|here| [at, here])
}

/// Describes the figure of the baseline: `104000 in the baseline`.
fn in_baseline(baseline: &BaselineFigure) -> String {
    let place = if baseline.dut.is_empty() { String::new() } else { format!(" on {}", baseline.dut) };
    format!("{} in the baseline{place}", median_in_words(baseline.median(), baseline.interval(), baseline.rounds))
}

/// Describes the ratio: `93.1 % to 102.9 %`; `None` if nothing is known about it.
fn ratio(own: Figure, of: Figure) -> Option<String> {
    let percent = |a: f64, b: f64| {
        Some(a / b * 100.0).filter(|share| a.is_finite() && b > 0.0 && share.is_finite() && *share >= 0.0)
    };
    let (low, high) = (percent(own.low, of.high).filter(|_| of.high.is_finite()), percent(own.high, of.low));
    Some(match (low, high) {
        (Some(low), Some(high)) if shown(low) == shown(high) => format!("{} %", shown(low)),
        (Some(low), Some(high)) => format!("{} % to {} %", shown(low), shown(high)),
        (Some(low), None) => format!("at least {} %", shown(low)),
        (None, Some(high)) => format!("at most {} %", shown(high)),
        (None, None) => return None,
    })
}

/// The figures in words: `104000`, `at least 104000`, `median 104000, 98000 to 107000 in 6 rounds`.
fn found(rounds: &[Found], figures: &[RoundFigure]) -> String {
    let known: Vec<Figure> = figures.iter().filter_map(|round| round.figure()).collect();
    let mut parts: Vec<String> = Vec::new();
    // Without the unit, a reader could think that the rate of one port is the rate of the whole router.
    let per_port = rounds.iter().any(|round| round.title.ends_with(&format!("({FPS_PER_PORT})")));
    let unit = if per_port { format!(" {FPS_PER_PORT}") } else { String::new() };
    parts.extend(summarize(&known).map(|all| median_in_words(all.median, all.interval, known.len()) + &unit));
    let cells = rounds.iter().map(|round| round.cells).max().unwrap_or(0);
    if cells > 1 && !parts.is_empty() {
        parts.push(format!("the worst of {cells} rows"));
    }
    for (kind, what) in [(RoundFigure::Failed, "failed"), (RoundFigure::NotMeasured, "not measured")] {
        let times = figures.iter().filter(|round| **round == kind).count();
        let explained = rounds.iter().all(|round| round.figure != kind || round.why.is_some());
        match times {
            0 => {}
            _ if times == figures.len() && explained => {}
            _ if times == figures.len() => parts.push(what.into()),
            _ => parts.push(format!("{what} in {times} of {} rounds", figures.len())),
        }
    }
    parts.extend(rounds.iter().filter_map(|round| round.why.clone()).collect::<BTreeSet<_>>());
    if parts.is_empty() { "not measured".into() } else { parts.join(", ") }
}

/// Describes a median: `104000`, `median 104000, 98000 to 107000 in 6 rounds`.
fn median_in_words(median: Figure, interval: Figure, rounds: usize) -> String {
    if rounds == 1 {
        return in_words(median);
    }
    let reach = match (interval.low.is_finite(), interval.high.is_finite()) {
        (true, true) => format!("{} to {}", shown(interval.low), shown(interval.high)),
        _ => in_words(interval),
    };
    format!("median {}, {reach} in {rounds} rounds", in_words(median))
}

/// Formats a figure with six digits. More digits would be noise; with fewer, a figure could look like the bound that it
/// missed.
pub(crate) fn shown(value: f64) -> String {
    format!("{value:.5e}").parse::<f64>().unwrap_or(value).to_string()
}

fn in_words(figure: Figure) -> String {
    match (figure.low.is_finite(), figure.high.is_finite()) {
        _ if figure.is_exact() => shown(figure.low),
        (true, true) => format!("{} to {}", shown(figure.low), shown(figure.high)),
        (true, false) => format!("at least {}", shown(figure.low)),
        (false, true) => format!("at most {}", shown(figure.high)),
        (false, false) => "not known".into(),
    }
}

#[cfg(test)]
mod tests;
