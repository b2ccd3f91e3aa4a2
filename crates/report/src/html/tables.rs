//! Tables of the HTML report.

use super::data::Data;
use super::first::dots;
use super::trials;
use crate::csv::raw;
use crate::digest::{self, Filled};
use crate::drops::Account;
use crate::format::{DASH, cell, number};
use crate::grid::{self, Grid};
use crate::published::{BESIDE, Beside, NOT_RANKED, Row};
use crate::rank::{Entry, Ranked};
use crate::rates;
use crate::view::{MergedTable, Section, View};
use drophammer_model::environment::{PortRecord, Published};
use drophammer_model::outcome::Cell;
use drophammer_model::quantity::{Bandwidth, group_digits};
use maud::{Markup, html};

/// Number of trials that a row lists; a click shows the others.
const FEW: usize = 3;

/// In a table, texts with more characters than this wrap.
const WIDE: usize = 40;

/// Maximum number of drop counters in a table; JSON contains all.
const COUNTERS: usize = 30;

/// The text, or a dash if it is empty.
pub fn or_dash(text: &str) -> &str {
    if text.trim().is_empty() { DASH } else { text }
}

/// A figure of the summary with its rank.
pub fn figure_cell(view: &View, figure: &Ranked, dut: usize) -> Markup {
    let entry = &figure.entries[dut];
    let rank = entry.rank.filter(|_| grid::ranked_kind(view, dut));
    let best = grid::is_best(figure, dut);
    let title = entry.tester_limited().then_some(match (grid::may_be_worse(figure, dut), entry.suite_limited()) {
        (true, false) => "tester-limited: the DUT may do worse at a higher load",
        (true, true) => "the suite asks for no more: the DUT may do worse at a higher load",
        (false, false) => "tester-limited: the DUT may do better",
        (false, true) => "the suite asks for no more: the DUT may do better",
    });
    html! {
        td.n.best[best] title=[title] {
            span.v { (grid::figure_value(figure, dut)) }
            @if entry.suite_limited() { " " small { "limit of the suite" } } @else if entry.tester_limited() { " " small { "tester-limited" } }
            @if entry.refuted() { " " small.refuted title=(refutations(entry)) { "refuted" } }
            @if entry.doubtful() { " " small.refuted title=(doubts(entry)) { "doubtful" } }
            @match rank.filter(|_| !grid::all_limited(view, figure, dut)) {
                Some(rank) => { span.rank title={ "rank " (rank) @if entry.tied { ", shared" } } { @if entry.tied { "=" } (rank) } }
                None if grid::not_compared(view, figure, dut).is_some() && !entry.refuted() && !entry.doubtful() => {
                    small.also { "not compared: " (grid::not_compared(view, figure, dut).unwrap_or_default()) }
                }
                // Aligns the figures in a column of DUTs with and without rank.
                None if view.duts.len() > 1 => { span.rank.none {} }
                None => {}
            }
            @if let Some(rate) = rates::of_figure(view, figure, dut) { small.also { (rate.text()) } }
            @if let Some(interval) = grid::interval(figure, dut) {
                div.rounds title=(interval) { (strip(figure, dut)) small { (interval) } }
            }
        }
    }
}

/// Lists the trials that contradict a figure.
fn refutations(entry: &Entry) -> String {
    let all = entry.figure.iter().flat_map(|figure| &figure.refuted);
    all.map(|refutation| refutation.text.as_str()).collect::<Vec<_>>().join("; ")
}

/// Lists the trials that cast doubt on a figure.
fn doubts(entry: &Entry) -> String {
    let all = entry.figure.iter().flat_map(|figure| &figure.doubts);
    all.map(|doubt| doubt.text.as_str()).collect::<Vec<_>>().join("; ")
}

/// Width and height of [`strip`].
const STRIP: (f64, f64) = (120.0, 12.0);

/// A line from the lowest to the highest value of all DUTs in this figure, with one dot per round and a mark at the
/// median.
fn strip(figure: &Ranked, dut: usize) -> Markup {
    let all = figure.entries.iter().flat_map(dots);
    let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let (width, height) = STRIP;
    let x = |value: f64| match high > low {
        true => 4.0 + (value - low) / (high - low) * (width - 8.0),
        false => width / 2.0,
    };
    let entry = &figure.entries[dut];
    let median = entry.summary.map(|summary| summary.median.bound()).filter(|median| median.is_finite());
    html! {
        svg.strip width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } aria-hidden="true" {
            line x1="0" x2=(width) y1=(height / 2.0) y2=(height / 2.0) {}
            @if let Some(median) = median {
                rect x=(format!("{:.1}", x(median) - 1.0)) y="0" width="2" height=(height) {}
            }
            @for value in dots(entry) { circle cx=(format!("{:.1}", x(value))) cy=(height / 2.0) r="2.5" {} }
        }
    }
}

/// True if a text is too long to determine the width of its column.
fn is_long(cell: &Cell) -> bool {
    matches!(cell, Cell::Text(text) if text.chars().count() > WIDE)
}

/// A merged table. Each row is a `tbody`, with links to its trials in the list of all trials. `file` is the CSV file with
/// all rows.
pub fn merged(view: &View, section: &Section, table: &MergedTable, (file, data): (&str, &Data)) -> Markup {
    let numeric: Vec<bool> = (0..table.columns.len()).map(|c| grid::is_numeric(table, c)).collect();
    let marked = table.rows.iter().any(|r| !r.marks.is_empty());
    let traced = table.rows.iter().any(|r| !r.trials.is_empty());
    let processor = rates::has_processor(section, view, table);
    let (rows, beyond) = (table.shown().0, table.beyond(view));
    html! {
        h3 { (table.title) " " (data.link(file, "CSV")) }
        div.scroll { table.sortable {
            thead { tr {
                th scope="col" { "DUT" }
                @for (c, n) in table.columns.iter().zip(&numeric) {
                    th.n[*n] scope="col" { (c.title) @if !c.unit.is_empty() { " " small { (c.unit) } } }
                }
                @if processor {
                    th.n scope="col" title="frames that the DUT forwarded per second of its processor time in trials at about this rate, without the work for the tester's ends of the links" {
                        (rates::PROCESSOR.1) " " small { (rates::PROCESSOR.2) }
                    }
                }
                @if marked { th scope="col" { "Marks" } }
                @if traced { th.refs scope="col" { "Each trial" } }
            } }
            @for (i, row) in rows.iter().enumerate() { tbody.next[i > 0 && rows[i - 1].dut != row.dut] {
                tr {
                    th scope="row" { (super::dut_name(view.dut(row.dut))) }
                    @for ((value, column), n) in row.cells.iter().zip(&table.columns).zip(&numeric) {
                        td.n[*n].wrap[is_long(value)] data-v=(raw(value)) {
                            (cell(value, &column.unit))
                            @if rates::is_forwarded(column) && let Some(rate) = rates::of_cell(view, row, value) { small.also { (rate.text()) } }
                        }
                    }
                    @if processor {
                        @let frames = Cell::from(rates::per_processor_second(table, row).map(f64::round));
                        td.n data-v=(raw(&frames)) {
                            (cell(&frames, rates::PROCESSOR.2))
                            @if let Some(percent) = rates::tester_percent(table, row) { small.also { "without the tester's " (number(percent, "%")) "\u{a0}%" } }
                        }
                    }
                    @if marked { td.marks { @for m in &row.marks { span class=(mark_class(m)) { (m) } " " } } }
                    @if traced { td.refs {
                        @if row.trials.len() > FEW {
                            details { summary { (row.trials.len()) " trials" } (trials::links(&row.trials)) }
                        } @else { (trials::links(&row.trials)) }
                    } }
                }
            } }
        } }
        @if !beyond.is_empty() {
            p.muted { @for line in &beyond { (line) ". " } "All rows are in " (data.link(file, file)) "." }
        }
    }
}

/// Anchor of a digest.
pub fn digest_anchor(at: usize) -> String {
    format!("digest-{}", at + 1)
}

/// The section of a digest.
pub fn digest(view: &View, (at, digest): (usize, &Filled), data: &Data) -> Markup {
    let right = digest.right();
    // The columns before the values identify the row.
    let names = right.len() - digest.columns.len();
    let marks = |value: &Option<digest::Value>| value.filter(digest::Value::is_marked).map(|v| v.marks().join("; "));
    html! {
        section id=(digest_anchor(at)) {
            h2 { (digest.title) " " (data.link(&digest::file(at), "CSV")) }
            div.scroll { table {
                thead { tr {
                    @for (head, right) in digest.heads().iter().zip(&right) { th.n[*right] scope="col" { (head) } }
                } }
                @for (i, row) in digest.rows.iter().enumerate() { tbody.next[i > 0 && digest.rows[i - 1].dut != row.dut] { tr {
                    th scope="row" { (super::dut_name(&view.duts[row.dut])) }
                    @if let Some(text) = digest.by_text(row) { td.n[right[1]] { (text) } }
                    @for ((text, value), right) in digest.texts(row).iter().zip(&row.values).zip(&right[names..]) {
                        td.n[*right].wrap[text.chars().count() > WIDE] title=[marks(value)] { (text) }
                    }
                } } }
            } }
            @for note in digest.notes() { p.muted { (note) } }
        }
    }
}

/// A sentence about lost frames and drops, and the drops by counter, folded. Empty if no frames were lost.
pub fn account(who: &Markup, account: &Account) -> Markup {
    let shares = account.shares();
    let more = shares.len().saturating_sub(COUNTERS);
    html! {
        @if let Some(text) = account.text() {
            p.muted { b { (who) } ": " (text) "." }
            @if !shares.is_empty() {
                details {
                    summary { "Drops by counter" }
                    div.scroll { table {
                        thead { tr { @for h in ["Counter", "Frames", "Share [%]"] { th scope="col" { (h) } } } }
                        tbody {
                            @for (counter, frames, share) in shares.iter().take(COUNTERS) {
                                tr { th scope="row" { (counter) } td { (group_digits(*frames)) } td { (number(*share, "%")) } }
                            }
                            @for (name, frames) in account.sums() {
                                tr { th scope="row" { (name) } td { (group_digits(frames)) } td {} }
                            }
                        }
                    } }
                    @if more > 0 { p.muted { "The sum includes " (more) " more counters." } }
                }
            }
        }
    }
}

/// A table of text cells; the first column identifies the row.
pub fn words(grid: &Grid) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { @for (column, right) in grid.head.iter().zip(&grid.right) { th.n[*right] scope="col" { (column) } } } }
            tbody { @for row in &grid.rows { tr {
                @for (i, (text, right)) in row.iter().zip(&grid.right).enumerate() {
                    @if i == 0 { th scope="row" { (text) } } @else { td.n[*right] { (text) } }
                }
            } } }
        } }
    }
}

/// Heading above the columns of published figures.
pub fn published_group(beside: &Beside) -> Markup {
    html! { th.pub.first colspan=(beside.routers.len()) scope="colgroup" { (NOT_RANKED) } }
}

/// Names of the columns of published figures.
pub fn published_heads(beside: &Beside) -> Markup {
    html! { @for (at, router) in beside.routers.iter().enumerate() {
        th.n.pub.first[at == 0] scope="col" { (router) @if let Some(n) = beside.column_note(at) { " " sup { (n) } } }
    } }
}

/// The published figures of a row, or dashes.
pub fn published_cells(beside: &Beside, row: Option<&Row>) -> Markup {
    let value = |at: usize| row.and_then(|row| row.values.get(at)?.as_ref());
    html! { @for at in 0..beside.routers.len() { td.n.pub.first[at == 0] { @match value(at) {
        Some(value) => {
            (value.text)
            @if let Some(unit) = value.unit() { " " small { (unit) } }
            @if let Some(n) = beside.value_note(at, value) { " " sup { (n) } }
        }
        None => { span.muted { (DASH) } }
    } } } }
}

/// Sources and meanings of published figures.
pub fn published_notes(beside: &Beside) -> Markup {
    html! { @for (at, note) in beside.notes().iter().enumerate() { p.muted.how.source { sup { (at + 1) } " " (note) } } }
}

/// The figures of a test next to published figures.
pub fn beside(view: &View, order: &[usize], beside: &Beside) -> Markup {
    html! {
        h3 { (BESIDE) }
        div.scroll { table {
            thead {
                tr.groups { th {} th.n colspan=(order.len()) scope="colgroup" { "measured" } (published_group(beside)) }
                tr {
                    th scope="col" { "Figure" }
                    @for dut in order { th.n scope="col" { (super::dut_name(&view.duts[*dut])) } }
                    (published_heads(beside))
                }
            }
            tbody { @for row in &beside.rows { tr {
                th scope="row" { (row.title) }
                @for dut in order { td.n.own { (row.own[*dut]) } }
                (published_cells(beside, Some(row)))
            } } }
        } }
        (published_notes(beside))
    }
}

/// A table of published figures of others.
pub fn published(table: &Published) -> Markup {
    html! {
        h3 { (table.title) " " small { "published: " (table.source) } }
        @if let Some(meaning) = &table.meaning { p.muted { (meaning) } }
        (words(&grid::published_table(table)))
    }
}

fn mark_class(mark: &str) -> &'static str {
    if mark.contains("invalid") { "mark-chip bad" } else { "mark-chip" }
}

/// Driver of a port, and its number of queues if there are several.
fn driver(port: &PortRecord) -> String {
    let driver = or_dash(&port.driver);
    if port.queues > 1 { format!("{driver}, {} queues", port.queues) } else { driver.to_string() }
}

/// Ports of the tester.
pub fn ports(ports: &[PortRecord]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { @for h in ["Port", "Interface", "Backend", "Driver", "MTU", "Speed", "MAC", "Addresses (tester \u{2192} DUT)"] { th scope="col" { (h) } } } }
            tbody { @for p in ports { tr {
                th scope="row" { (p.name) }
                td { (or_dash(&p.interface)) } td { (or_dash(&p.backend)) } td { (driver(p)) }
                td { @if p.mtu == 0 { (DASH) } @else { (p.mtu) } }
                td { @if p.speed_bps == 0 { (DASH) } @else { (Bandwidth(p.speed_bps)) } }
                td { (or_dash(&p.mac)) }
                td { @if p.addresses.is_empty() { (DASH) } @for (i, a) in p.addresses.iter().enumerate() { @if i > 0 { br; } (a) } }
            } } }
        } }
    }
}
