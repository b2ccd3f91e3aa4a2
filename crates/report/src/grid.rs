//! Tables of text cells for the text and Markdown reports, and the Markdown report.

use crate::conclusion::conclusion;
use crate::csv::Names;
use crate::format::{DASH, cell, heading, number};
use crate::published::{self, BESIDE};
use crate::rank::{HOW, Ranked};
use crate::view::{DutResult, MergedTable, View};
use crate::{board, digest, drops, ending, grouped, hosts, kernel_counts, losses, paragraph, rates, ways};
use drophammer_judge::held_up::reasons;
use drophammer_model::environment::Published;
use drophammer_model::figure::{Decision, Figure};
use drophammer_model::outcome::{Blame, Cell};
use drophammer_model::record::TrialRecord;

/// A table of text cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    pub head: Vec<String>,
    /// For each column, true if it contains numbers.
    pub right: Vec<bool>,
    /// Rows, each with as many cells as `head`.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// A table in which the first column identifies the row and the others contain numbers.
    pub fn of_numbers(head: Vec<String>, rows: Vec<Vec<String>>) -> Grid {
        Grid { right: (0..head.len()).map(|column| column > 0).collect(), head, rows }
    }
}

/// The heading of the first column, then the DUTs of `order`.
pub fn head_of_duts(first: &str, view: &View, order: &[usize]) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(order.iter().map(|dut| view.duts[*dut].label())).collect()
}

/// Figures about the same DUTs.
pub struct Group<'v> {
    /// The DUTs, best first.
    pub duts: Vec<usize>,
    pub figures: Vec<&'v Ranked>,
}

impl Group<'_> {
    /// True if the group has all DUTs of the run, and more than one. Only these have an overall rank in it.
    pub fn has_overall(&self, view: &View) -> bool {
        view.duts.len() > 1 && self.duts.len() == view.duts.len()
    }
}

/// The figures of the run by the DUTs on which the suite runs their tests, in the order of the first figure of each group.
pub fn groups<'v>(view: &'v View) -> Vec<Group<'v>> {
    let duts = |figure: &Ranked| -> Vec<usize> {
        view.ranking.order.iter().copied().filter(|dut| figure.entries[*dut].asked).collect()
    };
    let by_duts = grouped(view.ranking.figures.iter().map(|figure| (duts(figure), figure)));
    by_duts.into_iter().map(|(duts, figures)| Group { duts, figures }).collect()
}

/// The summary of a group: one row per figure, one column per DUT of `order`. `↓` marks figures for which lower values are
/// better.
pub fn summary(view: &View, group: &Group, order: &[usize]) -> Grid {
    let mut rows = Vec::new();
    if group.has_overall(view) {
        let rank = |d: &usize| {
            let o = &view.ranking.overall[*d];
            match (o.rank, o.mean) {
                (Some(rank), Some(mean)) if ranked_kind(view, *d) => {
                    format!("{}{rank} (mean {mean:.2})", if o.tied { "=" } else { "" })
                }
                _ => DASH.into(),
            }
        };
        let mut row = vec!["Overall rank".to_owned()];
        row.extend(order.iter().map(rank));
        rows.push(row);
    }
    for figure in &group.figures {
        let mut row = vec![figure_title(view, figure)];
        row.extend(order.iter().map(|d| summary_cell(view, figure, *d)));
        rows.push(row);
    }
    Grid::of_numbers(head_of_duts("Figure", view, order), rows)
}

/// The summary, with additional columns for figures that others have published, which have no ranks.
fn summary_beside(view: &View, group: &Group) -> (Grid, Vec<String>) {
    let mut table = summary(view, group, &group.duts);
    let beside = published::of_figures(view, group.figures.iter().copied());
    if beside.is_empty() {
        return (table, Vec::new());
    }
    table.head.extend(beside.headings());
    table.right.resize(table.head.len(), true);
    // The figures are the last rows.
    let first = table.rows.len() - group.figures.len();
    for (at, row) in table.rows.iter_mut().enumerate() {
        let figure = at.checked_sub(first).map(|at| group.figures[at]);
        row.extend(beside.texts(figure.and_then(|figure| beside.row(figure))));
    }
    (table, beside.note_lines())
}

/// Heading of [`bits`].
pub const BITS: &str = "Rates in bits, as shares of the line and of all ports together";

/// Figures in frames per second and port, converted to bits of layer 2, to shares of the line, and to the rate of all
/// ports together; `None` without such figures.
pub fn bits(view: &View, order: &[usize]) -> Option<Grid> {
    let rows: Vec<Vec<String>> = view
        .ranking
        .figures
        .iter()
        .filter_map(|figure| {
            let rates: Vec<_> = order.iter().map(|d| rates::of_figure(view, figure, *d)).collect();
            rates.iter().any(Option::is_some).then(|| {
                // The title omits the figure's unit, because the cells have other units.
                let texts = rates.into_iter().map(|rate| rate.map_or(DASH.into(), |rate| rate.text()));
                std::iter::once(distinct_title(view, figure)).chain(texts).collect()
            })
        })
        .collect();
    (!rows.is_empty()).then(|| Grid::of_numbers(head_of_duts("Figure", view, order), rows))
}

/// Title of a figure without its unit. If the suite contains the test twice, the title of the test is appended, because
/// both tests have the figure.
pub fn distinct_title(view: &View, figure: &Ranked) -> String {
    let twin = view.ranking.figures.iter().any(|f| f.key == figure.key && f.section != figure.section);
    let test = if twin { format!(" \u{2013} {}", view.sections[figure.section].title) } else { String::new() };
    format!("{}{test}", figure.title)
}

/// [`distinct_title`] with the unit, and `↓` if lower values are better.
pub fn figure_title(view: &View, figure: &Ranked) -> String {
    let direction = if figure.higher_is_better { "" } else { " \u{2193}" };
    format!("{}{direction}", heading(&distinct_title(view, figure), &figure.unit))
}

/// Explains the marks of bounds in the summary, with a space after each explanation.
pub fn limited_notes(view: &View) -> String {
    let any = |by_suite: bool| {
        let marked = |figure: &Ranked, dut: usize| {
            all_limited(view, figure, dut) && figure.entries[dut].suite_limited() == by_suite
        };
        view.ranking.figures.iter().any(|figure| (0..view.duts.len()).any(|dut| marked(figure, dut)))
    };
    let tester = any(false).then_some("\u{2020} tester-limited, not compared: the tester was the limit for all DUTs. ");
    let suite = any(true).then_some("\u{2021} not compared: the suite asks for no more (`max_routes`, `max_load`). ");
    [tester, suite].into_iter().flatten().collect()
}

/// A cell of the summary: `1,234,567  #1`, or `=1` for a tie.
fn summary_cell(view: &View, figure: &Ranked, dut: usize) -> String {
    let entry = &figure.entries[dut];
    // If the tester was the limit for all DUTs, there is nothing to rank.
    if all_limited(view, figure, dut) {
        let limit = if entry.suite_limited() { " \u{2021}" } else { " \u{2020}" };
        return with_doubt(figure_value(figure, dut) + limit, figure, dut);
    }
    match entry.rank {
        // A single DUT has no rank.
        Some(rank) if ranked_kind(view, dut) => {
            format!("{}  {}{rank}", marked_value(figure, dut), if entry.tied { "=" } else { "#" })
        }
        _ => measured(figure, dut),
    }
}

/// The value, with a note if it is refuted or doubtful.
pub fn measured(figure: &Ranked, dut: usize) -> String {
    with_doubt(marked_value(figure, dut), figure, dut)
}

fn with_doubt(value: String, figure: &Ranked, dut: usize) -> String {
    match doubt_mark(figure, dut) {
        "" => value,
        mark => format!("{value}  {mark}"),
    }
}

/// The mark for a refuted or doubtful value; empty for other values.
pub fn doubt_mark(figure: &Ranked, dut: usize) -> &'static str {
    let entry = &figure.entries[dut];
    match (entry.refuted(), entry.doubtful()) {
        (true, _) => "refuted",
        (false, true) => "doubtful",
        (false, false) => "",
    }
}

/// The reason why a figure of a DUT is not compared with the figures of others. `None` if it is compared, was not
/// measured, or if there is no other DUT of its kind.
pub fn not_compared(view: &View, figure: &Ranked, dut: usize) -> Option<&'static str> {
    let entry = &figure.entries[dut];
    let alone = view
        .duts
        .iter()
        .zip(&figure.entries)
        .filter(|(d, e)| e.asked && d.simulated == view.duts[dut].simulated)
        .count()
        < 2;
    if entry.rank.is_some() || !entry.is_known() || alone {
        return None;
    }
    Some(match entry {
        _ if entry.refuted() => "refuted",
        _ if entry.doubtful() => "doubtful",
        _ if all_limited(view, figure, dut) && entry.suite_limited() => "limit of the suite",
        _ if all_limited(view, figure, dut) => "limits of the tester",
        _ if entry.rounds.len() < 2 => "one round",
        _ if all_failed(view, figure, dut) => "failed on all",
        _ if figure.different_loads => "different loads",
        _ => "no figures to compare with",
    })
}

/// True if there are at least two DUTs of this DUT's kind (real or simulated).
pub fn ranked_kind(view: &View, dut: usize) -> bool {
    view.duts.iter().filter(|d| d.simulated == view.duts[dut].simulated).count() > 1
}

/// True if the tester was the limit for this DUT and for every other DUT of its kind on which the suite runs the test.
pub fn all_limited(view: &View, figure: &Ranked, dut: usize) -> bool {
    let kind = view.duts[dut].simulated;
    let mut of_kind = view.duts.iter().zip(&figure.entries).filter(|(d, e)| d.simulated == kind && e.asked);
    figure.entries[dut].asked && of_kind.all(|(_, entry)| entry.tester_limited())
}

/// True if this DUT and every other DUT of its kind on which the suite runs the test failed in every round that says
/// anything about them. A DUT about which no round says anything has not failed.
pub fn all_failed(view: &View, figure: &Ranked, dut: usize) -> bool {
    let kind = view.duts[dut].simulated;
    let mut of_kind = view.duts.iter().zip(&figure.entries).filter(|(d, e)| d.simulated == kind && e.asked);
    figure.entries[dut].asked && of_kind.all(|(_, entry)| entry.has_only_failed())
}

/// True if a limit of the tester makes a figure a lower bound although lower values are better: a loss of 0 % at the
/// highest load that the tester could offer may be more at a higher load.
pub fn may_be_worse(figure: &Ranked, dut: usize) -> bool {
    let entry = &figure.entries[dut];
    let is_bound = entry.summary.is_some_and(|summary| summary.median.high == f64::INFINITY);
    entry.tester_limited() && is_bound && !figure.higher_is_better
}

/// The mark for a value that looks measured although the tester or the suite was the limit; empty for other values.
pub fn limit_mark(figure: &Ranked, dut: usize) -> &'static str {
    match (may_be_worse(figure, dut), figure.entries[dut].suite_limited()) {
        (false, _) => "",
        (true, false) => " (tester-limited)",
        (true, true) => " (limit of the suite)",
    }
}

/// [`figure_value`] with [`limit_mark`].
pub fn marked_value(figure: &Ranked, dut: usize) -> String {
    figure_value(figure, dut) + limit_mark(figure, dut)
}

/// The value, with `≥` or `≤` if the median over the rounds is a bound, or a text if there is no value. A limited loss
/// has no sign, because `≥ 0 %` has no meaning; add [`limit_mark`] to it.
pub fn figure_value(figure: &Ranked, dut: usize) -> String {
    let entry = &figure.entries[dut];
    if !entry.asked {
        return DASH.into();
    }
    let Some(value) = entry.value() else {
        let nothing = entry.missing().is_some_and(|missing| missing.by == Blame::Nothing);
        return if entry.is_known() || nothing { DASH.into() } else { "not measured".into() };
    };
    if let Some(step) = finest(figure, dut).filter(|step| value < *step) {
        return format!("< {}", number(step, &figure.unit));
    }
    let text = number(value, &figure.unit);
    match entry.summary.map(|summary| summary.median) {
        Some(median) if median.low == f64::NEG_INFINITY => format!("\u{2264} {text}"),
        Some(median) if median.high == f64::INFINITY && figure.higher_is_better => format!("\u{2265} {text}"),
        _ => text,
    }
}

/// The resolution of a time, in the figure's unit.
fn finest(figure: &Ranked, dut: usize) -> Option<f64> {
    let is_time = matches!(figure.unit.as_str(), "s" | "ms" | "µs");
    let resolution = figure.entries[dut].figure.as_ref()?.resolution;
    (is_time && figure.by_difference && resolution > 0.0).then_some(resolution)
}

/// The interval over the rounds: `170,000 to 190,000, 6 rounds`. `None` for one round.
pub fn interval(figure: &Ranked, dut: usize) -> Option<String> {
    let summary = figure.entries[dut].summary.filter(|summary| summary.rounds > 1)?;
    let end = |value: f64| value.is_finite().then(|| number(value, ""));
    let Figure { low, high } = summary.interval;
    let range = match (end(low), end(high)) {
        (Some(low), Some(high)) if low == high => format!("always {low}"),
        (Some(low), Some(high)) => format!("{low} to {high}"),
        (Some(low), None) => format!("{low} or more"),
        (None, Some(high)) => format!("{high} or less"),
        (None, None) => return None,
    };
    Some(format!("{range}, {} rounds", summary.rounds))
}

/// Detectable differences of this ratio or more are not useful to a reader.
const SENSELESS: f64 = 9.0;

/// Minimum number of rounds for which the smallest detectable difference is shown. Two rounds have one degree of
/// freedom, and detect only differences of many times the figure.
const ROUNDS_TO_TELL: usize = 3;

/// The smallest difference that the run could have found: `5.2 %`. `None` for a factor of 10 or more, and for fewer rounds
/// than [`ROUNDS_TO_TELL`].
pub fn detectable(figure: &Ranked) -> Option<String> {
    if figure.entries.iter().map(|entry| entry.rounds.len()).max() < Some(ROUNDS_TO_TELL) {
        return None;
    }
    let least = figure.detectable.filter(|least| figure.by_difference || *least < SENSELESS)?;
    Some(match figure.by_difference {
        true => format!("{} {}", number(least, &figure.unit), figure.unit),
        // From 100 % on, a factor is easier to read.
        false if least < 1.0 => format!("{} %", number(least * 100.0, "")),
        false => format!("a factor of {}", number(1.0 + least, "")),
    })
}

/// True if this DUT is proven to be better than another DUT in this figure, and no DUT is proven to be better than it.
pub fn is_best(figure: &Ranked, dut: usize) -> bool {
    let entry = &figure.entries[dut];
    entry.rank == Some(1) && !entry.better_than.is_empty()
}

/// Table of the figures that others have published.
pub fn published_table(table: &Published) -> Grid {
    Grid::of_numbers(table.columns.clone(), table.rows.clone())
}

/// Heading of a table of published figures, with their source and meaning.
pub fn published_title(table: &Published) -> String {
    let meaning = table.meaning.as_ref().map(|meaning| format!(". {meaning}")).unwrap_or_default();
    format!("{} (published: {}){meaning}", table.title, table.source)
}

/// A merged table with the DUT in the first column and long lists shortened ([`MergedTable::shown`]). If any row has
/// marks, they are in a last column.
pub fn table(view: &View, table: &MergedTable) -> Grid {
    let marked = table.rows.iter().any(|r| !r.marks.is_empty());
    let mut head = vec!["DUT".to_owned()];
    head.extend(table.columns.iter().map(|c| heading(&c.title, &c.unit)));
    let mut right = vec![false];
    right.extend((0..table.columns.len()).map(|c| is_numeric(table, c)));
    if marked {
        head.push("Marks".into());
        right.push(false);
    }
    let rows = table.shown().0.into_iter().map(|r| {
        let mut row = vec![view.dut(r.dut).label()];
        row.extend(r.cells.iter().zip(&table.columns).map(|(value, column)| cell(value, &column.unit)));
        if marked {
            row.push(r.marks.join(", "));
        }
        row
    });
    Grid { rows: rows.collect(), head, right }
}

/// True if a column contains only numbers (and gaps).
pub fn is_numeric(table: &MergedTable, column: usize) -> bool {
    let mut cells = table.rows.iter().filter_map(|r| r.cells.get(column));
    cells.all(|c| !matches!(c, Cell::Text(_)))
}

/// Escapes characters that have a special meaning in Markdown or in HTML within Markdown.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in crate::format::plain(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

impl Grid {
    fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut out = line(self.head.iter().map(|h| escape(h)).collect());
        out += &line(self.right.iter().map(|r| if *r { "---:".into() } else { "---".into() }).collect());
        for row in &self.rows {
            out += &line(row.iter().map(|c| escape(c)).collect());
        }
        out
    }
}

/// The Markdown report.
pub fn markdown(view: &View) -> String {
    let started = &view.run.started;
    let mut out = format!("# {}\n\n", escape(&started.title));
    if let Some(tag) = view.tag() {
        out += &format!("> **{}.** The deviations are listed at the end.\n\n", escape(&tag));
    }
    out += &format!(
        "Suite {}, profile {}, started {}. State: {}.\n\n",
        escape(&started.suite),
        escape(&started.profile),
        escape(&started.time),
        escape(&view.state_text())
    );
    if let Some(trust) = ending::trust(view) {
        out += &format!("{}\n\n", escape(&trust));
    }
    if !view.ranking.figures.is_empty() {
        let limited = limited_notes(view);
        let said: String = conclusion(view).iter().map(|sentence| format!("{}\n", escape(sentence))).collect();
        out += &format!("## Summary\n\n{said}\n");
        for group in groups(view) {
            let (table, notes) = summary_beside(view, &group);
            out += &format!("{}\n", table.markdown());
            note_list(&mut out, &notes);
        }
        out += &format!("{limited}{HOW}\n\n");
        note_list(&mut out, &ending::nothing_to_measure(view));
        if let Some(bits) = bits(view, &view.ranking.order) {
            out += &format!("### {BITS}\n\n{}\n", bits.markdown());
        }
    }
    if let Some((places, reasons)) = board::places_grid(view) {
        out += &format!("## {}\n\n{}\n{}\n\n", board::PLACES, places.markdown(), board::HOW);
        for reason in reasons {
            out += &format!("- {}\n", escape(&reason));
        }
        out.push('\n');
    }
    if let Some(facts) = board::facts_grid(view) {
        out += &format!("## {}\n\n{}\n", board::FACTS, facts.markdown());
    }
    let verdicts = view.verdicts();
    if !verdicts.is_empty() {
        out += "## Verdicts\n\n";
        for (section, dut, v) in verdicts {
            let word = match v.decision() {
                Decision::Met => "pass",
                Decision::Missed => "**FAIL**",
                Decision::Undecided => "**undecided**",
            };
            let texts = [&section.title, &dut.label(), &v.criterion, &v.found].map(|t| escape(t));
            out += &format!("- {word}: {} on {}: {}; found {}\n", texts[0], texts[1], texts[2], texts[3]);
        }
        out.push('\n');
    }
    for digest in digest::all(view) {
        out += &format!("## {}\n\n{}\n", escape(digest.title), digest.grid(view).markdown());
        note_list(&mut out, &digest.notes());
    }
    let names = Names::new(view);
    for (n, section) in view.all_sections().enumerate() {
        out += &format!("## {}\n\n", escape(&section.title));
        if let Some(paragraph) = paragraph::of_test(view, section) {
            out += &format!("{}\n\n", escape(&paragraph));
        }
        for (i, t) in section.tables.iter().enumerate() {
            out += &format!("### {}\n\n{}\n", escape(t.title), table(view, t).markdown());
            for line in t.beyond(view) {
                out += &format!("{} in csv/{}.\n\n", escape(&line), names.tables[n][i]);
            }
        }
        let beside = published::in_section(view, n);
        if !beside.is_empty() {
            out += &format!("### {BESIDE}\n\n{}\n", beside.grid(view, &view.order_of(section)).markdown());
            note_list(&mut out, &beside.note_lines());
        }
        for published in published::tables(view, section) {
            let (title, table) = (escape(&published_title(published)), published_table(published).markdown());
            out += &format!("### {title}\n\n{table}\n");
        }
        for r in &section.results {
            let dut = escape(&view.dut(r.dut).label());
            if !r.standing.is_completed() {
                out += &format!("- {dut}: {} ({} trials stored)\n", escape(&r.standing.text()), r.trials.len());
            }
            for note in r.record.iter().flat_map(|t| &t.outcome.notes) {
                out += &format!("- {dut}: {}\n", escape(note));
            }
            for text in findings(view, r) {
                out += &format!("- {dut}: {}.\n", escape(&text));
            }
        }
        out.push('\n');
    }
    out += "## Devices under test\n\n";
    for dut in view.duts.iter().chain(&view.tester) {
        out += &format!("- **{}**: {}\n", escape(&dut.label()), escape(&dut_line(dut)));
        if let Some(drops) = drops::of_dut(view, dut.name).text() {
            out += &format!("  - in all tests {}.\n", escape(&drops));
        }
    }
    if let Some(hosts) = hosts::grid(&view.run.trials) {
        out += &format!("\n## {}\n\n{}\n{}\n", hosts::TITLE, hosts.markdown(), hosts::HOW);
    }
    list(&mut out, "Deviations from the RFCs", &view.deviation_lines());
    list(&mut out, "Invalid trials", &invalid_lines(view));
    list(&mut out, "Problems", &view.problems());
    out
}

/// The results of the trials of a test on one DUT, as sentences without a full stop.
pub fn findings(view: &View, result: &DutResult) -> Vec<String> {
    let drops = drops::Account::of(&result.trials, &view.drops_counted).text();
    let losses = losses::explained(&result.trials).1.text();
    [losses, ways::text(&result.trials), kernel_counts::text(view, result), drops].into_iter().flatten().collect()
}

/// Writes each note as a paragraph, because a list would hide the note's number.
fn note_list(out: &mut String, notes: &[String]) {
    for note in notes {
        *out += &format!("{}\n\n", escape(note));
    }
}

fn list(out: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        *out += &format!("\n## {title}\n\n");
        for line in lines {
            *out += &format!("- {}\n", escape(line));
        }
    }
}

/// Kind, version and confinement of a DUT on one line.
pub fn dut_line(dut: &crate::view::DutView) -> String {
    let Some(d) = dut.records.first() else { return "did not come up".into() };
    let texts = [&d.kind, &d.version, &d.confinement].map(|text| text.trim());
    texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
}

/// One line per invalid trial.
pub fn invalid_lines(view: &View) -> Vec<String> {
    let line = |t: &&TrialRecord| {
        let TrialRecord { test, dut, attempt, spec, result, .. } = t;
        let (number, purpose, why) = (result.trial, &spec.purpose, reasons(t).join("; "));
        format!("trial {number}, {test} on {dut}, attempt {attempt} ({purpose}): {why}")
    };
    view.invalid_trials().iter().map(line).collect()
}
