//! The HTML report: one file that needs no network and no script.

mod data;
mod first;
mod losses;
mod plots;
mod tables;
mod trials;

use crate::csv::Names;
use crate::digest::{self, Filled};
use crate::drops::{Account, of_dut};
use crate::ending::{self, Ending};
use crate::format::several;
use crate::grid::Group;
use crate::rank::HOW;
use crate::view::{DutView, Section, View};
use crate::{board, grid, grouped, hosts, kernel_counts, paragraph, published, ways};
use data::Data;
use drophammer_judge::distinct;
use drophammer_model::figure::Decision;
use drophammer_model::quantity::{group_digits, show_duration};
use drophammer_model::visible::visible;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::time::Duration;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");
/// A name with more characters than this gets its own line.
const LONG: usize = 24;
/// The page fetches nothing, whatever a DUT's configuration contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// The whole page; `files` are the CSV files.
pub fn page(view: &View, files: &[(String, String)]) -> String {
    let data = Data::new(files);
    let started = &view.run.started;
    let names = Names::new(view);
    let digests = digest::all(view);
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (started.title) " \u{2013} Drophammer" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (head(view, &digests))
                    (summary(view))
                    @for (at, digest) in digests.iter().enumerate() { (tables::digest(view, (at, digest), &data)) }
                    @for (n, section) in view.all_sections().enumerate() {
                        (self::section(view, (n, section), (&names.tables[n], &names.plots[n]), &data))
                    }
                    (duts(view))
                    (environment(view))
                    (invalid(view))
                    (remarks(view))
                    (data.section())
                    footer { "Made by Drophammer from the stored run." }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    // Characters that reverse the text or have no width would also affect the text around them.
    visible(&markup.into_string(), &['\n', '\t'])
}

fn head(view: &View, digests: &[Filled]) -> Markup {
    let started = &view.run.started;
    let (ended, is_good) = Ending::of(view).text(view);
    let problems = view.problems();
    html! {
        header {
            p.brand { "Drophammer router test" }
            h1 { (started.title) }
            p.chips {
                span class={ "chip " (if is_good { "good" } else { "bad" }) } { (ended) }
                @if view.conformant() { span.chip.good { "RFC durations" } }
                @if let Some(line) = first::criteria(view) { (line) }
            }
            (first::said(view))
            @if !problems.is_empty() {
                details.problems open[problems.len() <= 2] {
                    summary { (several(problems.len(), "problem")) }
                    ul { @for p in &problems { li { (p) } } }
                }
            }
            (first::keys(view))
            p.facts {
                span { "Suite " b { (started.suite) } }
                span { "Profile " b { (started.profile) } }
                span { "Started " b { (started.time) } }
                span { "Seed " b { (started.seed) } }
                span { b { (view.duts.len()) } @if view.duts.len() == 1 { " DUT" } @else { " DUTs" } }
                span { b { (group_digits(view.run.trials.len() as u64)) } " trials" }
            }
            @if let Some(tag) = view.tag() {
                div.tag role="note" {
                    strong { (tag) "." } " Figures from shorter or altered trials are estimates; do not publish them as RFC results."
                    (deviations(view))
                }
            }
            (first::setup(view))
            nav {
                a href="#summary" { "Summary" }
                @for (at, digest) in digests.iter().enumerate() { a href={ "#" (tables::digest_anchor(at)) } { (digest.title) } }
                @for s in view.all_sections() { a href={ "#" (anchor(s)) } { (s.title) } }
                a href="#duts" { "Devices" }
                a href="#environment" { "Environment" }
                a href="#data" { "Data" }
            }
        }
    }
}

/// The reasons why the figures do not conform: each deviation once, with its tests.
fn deviations(view: &View) -> Markup {
    let all = view.deviations();
    html! {
        @if !all.is_empty() { details {
            summary { (several(all.len(), "deviation")) }
            ul { @for (text, tests) in all { li { (text) @if !tests.is_empty() { " " small { (tests.join(", ")) } } } } }
        } }
    }
}

/// Anchor of a section.
fn anchor(section: &Section) -> String {
    format!("test-{}", section.id)
}

fn summary(view: &View) -> Markup {
    let verdicts = view.verdicts();
    html! {
        section #summary {
            h2 { "Summary" }
            @if view.ranking.figures.is_empty() { p.muted { "No test has produced a figure to rank." } }
            @else {
                @for group in &grid::groups(view) { (summary_of(view, group)) }
                p.muted.how {
                    @if view.duts.len() > 1 { (HOW) " " }
                        "Tester-limited: the tester, not the DUT, was the limit. A rate or a size is at least (\u{2265}) this value, a time at most \
                         (\u{2264}), and a loss may be more at a higher load. Limit of the suite: the suite does not ask for more."
                    }
                    @for reason in &ending::nothing_to_measure(view) { p.muted.how { (reason) "." } }
            }
            @if let Some((places, reasons)) = board::places_grid(view) {
                h3 #places { (board::PLACES) }
                (tables::words(&places))
                p.muted.how { (board::HOW) }
                @if !reasons.is_empty() { ul.notes { @for reason in &reasons { li { (reason) } } } }
            }
            @if let Some(facts) = board::facts_grid(view) {
                h3 #facts { (board::FACTS) }
                (tables::words(&facts))
            }
            @if !verdicts.is_empty() {
                h3 { "Verdicts" }
                ul.verdicts { @for (section, dut, v) in verdicts {
                    @let (class, word) = match v.decision() {
                        Decision::Met => ("pass", "\u{2713} pass"),
                        Decision::Missed => ("fail", "\u{2717} fail"),
                        Decision::Undecided => ("undecided", "? undecided"),
                    };
                    li class=(class) {
                        b { (word) }
                        span { (section.title) " on " (dut_name(dut)) ": " (v.criterion) "; found " (v.found) }
                    }
                } }
            }
        }
    }
}

/// The table of a group of figures.
fn summary_of(view: &View, group: &Group) -> Markup {
    let order = &group.duts;
    let beside = published::of_figures(view, group.figures.iter().copied());
    html! {
        div.scroll { table.summary.many[order.len() > 2 || !beside.is_empty()] {
            thead {
                @if !beside.is_empty() {
                    tr.groups { th {} th.n colspan=(order.len()) scope="colgroup" { "measured" } (tables::published_group(&beside)) }
                }
                tr {
                    th scope="col" { "Figure" }
                    @for d in order { th.n scope="col" { (dut_name(&view.duts[*d])) } }
                    (tables::published_heads(&beside))
                }
            }
            tbody {
                @if group.has_overall(view) { tr.overall {
                    th scope="row" { "Overall" small { "mean rank over the tests in which all DUTs have a rank" } }
                    @for d in order { td.n { (overall(view, *d)) } }
                    (tables::published_cells(&beside, None))
                } }
                @for (i, figure) in group.figures.iter().enumerate() {
                    @if i == 0 || group.figures[i - 1].section != figure.section {
                        tr.group { th colspan=(order.len() + beside.routers.len() + 1) scope="colgroup" {
                            a href={ "#" (anchor(&view.sections[figure.section])) } { (view.sections[figure.section].title) }
                        } }
                    }
                    tr {
                        th scope="row" {
                            (figure.title) " " small { (figure.unit) @if !figure.higher_is_better { " \u{b7} less is better" } }
                            @if figure.different_loads {
                                small title="DUTs that were measured at different loads are not compared" { " \u{b7} different loads" }
                            }
                            @if let Some(least) = grid::detectable(figure) {
                                small title="this run would have found a difference of this size with a probability of 90 %" {
                                    " \u{b7} smallest detectable difference: " (least)
                                }
                            }
                        }
                        @for d in order { (tables::figure_cell(view, figure, *d)) }
                        (tables::published_cells(&beside, beside.row(figure)))
                    }
                }
            }
        } }
        (tables::published_notes(&beside))
    }
}

fn dut_name(dut: &DutView) -> Markup {
    // Short names stay on one line. A name that is too long must not widen its column.
    let class = if dut.name.chars().count() > LONG { "who long" } else { "who" };
    html! { span class=(class) { (dut.name) } @if dut.simulated { " " span.sim title="simulated by the tester: its figures test the tester and say nothing about a real router" { "simulated" } } }
}

fn overall(view: &View, dut: usize) -> Markup {
    let o = &view.ranking.overall[dut];
    // If all DUTs share a place, none leads.
    let leads = view.ranking.overall.iter().any(|other| other.rank.is_some_and(|rank| rank > 1));
    html! {
        @match (o.rank, o.mean) {
            _ if !grid::ranked_kind(view, dut) => { span.muted { "not compared" } }
            (Some(rank), Some(mean)) => {
                span class=(if rank == 1 && leads { "place first" } else { "place" }) { @if o.tied { "=" } (rank) }
                small { "mean " (format!("{mean:.2}")) " of " (o.figures) }
            }
            _ => { span.muted { "not compared" } }
        }
    }
}

/// `n` is the index of the section among all sections; `tables` and `plots` are names of CSV files.
fn section(
    view: &View,
    (n, section): (usize, &Section),
    (tables, plots): (&[String], &[String]),
    data: &Data,
) -> Markup {
    let beside = published::in_section(view, n);
    let trials: Vec<_> = section.results.iter().flat_map(|r| r.trials.iter().copied()).collect();
    let invalid = trials.iter().filter(|t| !t.result.validity.is_valid()).count();
    let of_tester = section.results.iter().all(|r| r.dut >= view.duts.len());
    html! {
        section id=(anchor(section)) {
            h2 { (section.title) }
            @if of_tester { p.muted {
                "The highest rate of the tester on a loop without a router. The tester cannot measure a router beyond it; figures close to \
                 it are marked tester-limited."
            } }
            @if let Some(paragraph) = paragraph::of_test(view, section) { p { (paragraph) } }
            @for r in section.results.iter().filter(|r| !r.standing.is_completed()) {
                p.warn { b { (dut_name(view.dut(r.dut))) } ": " (r.standing.text())
                    @if !r.trials.is_empty() { "; " (r.trials.len()) " trials stored" } }
            }
            @if !section.plots.is_empty() {
                div.plots { @for (p, file) in section.plots.iter().zip(plots) { (plots::figure(view, p, &data.link(file, "CSV"))) } }
            }
            @if invalid > 0 { p.muted {
                (invalid) " of " (trials.len()) " trials of this test were invalid because of the tester. \
                 They are not used in any figure" @if section.plots.iter().all(|p| p.invalid.is_empty()) { " or plot" } ". "
                a href="#invalid" { "Reasons" }
            } }
            @for (t, file) in section.tables.iter().zip(tables) { (tables::merged(view, section, t, (file, data))) }
            @if !beside.is_empty() { (tables::beside(view, &view.order_of(section), &beside)) }
            @for published in published::tables(view, section) { (tables::published(published)) }
            @let notes = notes(view, section);
            @if !notes.is_empty() {
                ul.notes { @for (who, note) in notes { li { b { (who) } ": " (note) } } }
            }
            @for (r, ways) in section.results.iter().filter_map(|r| Some((r, ways::text(&r.trials)?))) {
                p.muted { b { (dut_name(view.dut(r.dut))) } ": " (ways) "." }
            }
            @for (r, counts) in section.results.iter().filter_map(|r| Some((r, kernel_counts::text(view, r)?))) {
                p.muted { b { (dut_name(view.dut(r.dut))) } ": " (counts) "." }
            }
            @for r in &section.results {
                (tables::account(&dut_name(view.dut(r.dut)), &Account::of(&r.trials, &view.drops_counted)))
            }
            @for r in &section.results { (losses::section(&dut_name(view.dut(r.dut)), &r.trials)) }
            @if !trials.is_empty() {
                (trials::list(&trials, &view.drops_counted))
            }
            @if section.results.iter().any(|r| r.record.is_some()) {
                details { summary { "Parameters" }
                    @for (r, t) in section.results.iter().filter_map(|r| r.record.map(|t| (r, t))) {
                        h4 { (dut_name(view.dut(r.dut))) " " small { (show_duration(seconds(t.elapsed_s))) } }
                        pre { (serde_json::to_string_pretty(&t.parameters).unwrap_or_default()) }
                    }
                }
            }
        }
    }
}

/// Notes of a section, each once, with the DUTs that it applies to.
fn notes<'a>(view: &View, section: &Section<'a>) -> Vec<(String, &'a str)> {
    let of_result = |r: &crate::view::DutResult<'a>| {
        let dut = r.dut;
        r.record.into_iter().flat_map(|t| &t.outcome.notes).map(move |note| (note.as_str(), dut))
    };
    let who = |duts: Vec<usize>| match distinct(duts) {
        duts if duts.len() > 1 && duts.len() == view.duts.len() => "All DUTs".to_owned(),
        duts => duts.iter().map(|d| view.dut(*d).label()).collect::<Vec<_>>().join(", "),
    };
    grouped(section.results.iter().flat_map(of_result)).into_iter().map(|(note, duts)| (who(duts), note)).collect()
}

/// Converts a stored number of seconds, which may have any value, to a duration.
fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or_default()
}

fn duts(view: &View) -> Markup {
    html! {
        section #duts {
            h2 { "Devices under test" }
            @for dut in &view.duts {
                h3 { (dut_name(dut)) }
                @if dut.records.is_empty() { p.warn { "It did not come up." } }
                @for (n, d) in dut.records.iter().enumerate() {
                    @if n > 0 { h4 { "Configured anew (" (n + 1) ")" } }
                    dl {
                        dt { "Kind" } dd { (d.kind) }
                        dt { "Version" } dd { (tables::or_dash(&d.version)) }
                        dt { "Confinement" } dd { (tables::or_dash(&d.confinement)) }
                        @if let Some(installs) = d.installs_routes {
                            dt { "Installs BGP routes" } dd { (if installs { "yes" } else { "no: control plane only" }) }
                        }
                    }
                    @if !d.ports.is_empty() { (tables::ports(&d.ports)) }
                    @for (name, text) in &d.config {
                        details { summary { code { (name) } } pre { (text) } }
                    }
                }
                (tables::account(&html! { "In all tests" }, &of_dut(view, dut.name)))
            }
        }
    }
}

fn environment(view: &View) -> Markup {
    let e = &view.run.started.environment;
    let memory = if e.memory_bytes == 0 {
        String::new()
    } else {
        format!("{:.1} GiB", e.memory_bytes as f64 / f64::from(1 << 30))
    };
    let rows = [
        ("Drophammer", e.drophammer.clone()),
        ("Kernel", e.kernel.clone()),
        ("Kernel command line", e.kernel_command_line.clone()),
        ("Distribution", e.distribution.clone()),
        ("Processor", e.cpu_model.clone()),
        ("Processors", e.cpus.clone()),
        ("Threads of the tester", e.tester_threads.to_string()),
        ("Memory", memory),
        ("Virtualisation", e.virtualization.clone()),
        ("Clock source", e.clock_source.clone()),
        ("Privilege", e.privilege.clone()),
        ("Load average at start", format!("{}", e.load_average)),
        ("Command", view.run.started.command.join(" ")),
    ];
    let loops = view.tester.iter().flat_map(|t| &t.records);
    html! {
        section #environment {
            h2 { "Environment of the tester" }
            dl {
                @for d in loops.clone() { dt { "Loop of the tester ceiling" } dd { (tables::or_dash(&d.confinement)) } }
                @for (name, value) in rows { dt { (name) } dd { (tables::or_dash(&value)) } }
                @for (name, value) in &e.more { dt { (name) } dd { (tables::or_dash(value)) } }
            }
            @for d in loops.filter(|d| !d.ports.is_empty()) { h3 { "Ports of the loop" } (tables::ports(&d.ports)) }
            @if let Some(hosts) = hosts::grid(&view.run.trials) {
                h3 #hosts { (hosts::TITLE) }
                (tables::words(&hosts))
                p.muted.how { (hosts::HOW) }
            }
        }
    }
}

fn invalid(view: &View) -> Markup {
    let trials = view.invalid_trials();
    html! {
        section #invalid {
            h2 { "Invalid trials" }
            @if trials.is_empty() { p.muted { "None: the tester worked correctly in every trial." } }
            @else {
                p { (trials.len()) " of " (view.run.trials.len()) " trials were invalid because of the tester or the host. They were repeated and are not used in any figure." }
                @if let Some(disturbed) = ending::disturbed_by(view) { p { (disturbed) } }
                details {
                    summary { "Reasons" }
                    ul { @for (t, line) in trials.iter().zip(grid::invalid_lines(view)) {
                        li { (line) " " a href={ "#t" (t.result.trial) } { "conditions" } }
                    } }
                }
            }
        }
    }
}

fn remarks(view: &View) -> Markup {
    let notes = &view.run.notes;
    html! {
        @if !notes.is_empty() {
            section #remarks {
                h2 { "Remarks" }
                ul.notes { @for n in notes {
                    li class=[n.problem.then_some("problem")] {
                        time { (n.time) } " " @if let Some(d) = &n.dut { b { (d) } ": " } (n.text)
                    }
                } }
            }
        }
    }
}
