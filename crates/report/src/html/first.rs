//! The first screen: the conclusion, how reliable it is, the main figures, and what was tested how.

use crate::conclusion::conclusion;
use crate::format::{ellipsis, number, shorten};
use crate::rank::{Entry, Ranked};
use crate::view::View;
use crate::{ending, grid};
use drophammer_model::environment::PortRecord;
use drophammer_model::figure::Figure;
use drophammer_model::quantity::Bandwidth;
use maud::{Markup, html};

/// Maximum number of figures in drawings.
const DRAWN: usize = 3;
/// Maximum number of ports in the drawing.
const PORTS: usize = 6;
/// Maximum number of DUTs in a drawing; the summary contains all DUTs.
const ROWS: usize = 8;

/// The conclusion, how reliable it is, and what to do next.
pub fn said(view: &View) -> Markup {
    let said = conclusion(view);
    html! {
        @match &said[..] {
            [] => {}
            [only] => p.conclusion { (commands(only)) },
            all => ul.conclusion { @for sentence in all { li { (commands(sentence)) } } },
        }
        @if let Some(trust) = ending::trust(view) {
            @match ending::disturbed_by(view) {
                Some(disturbed) => details.trust {
                    summary { (trust) }
                    p { (disturbed) " " a href="#invalid" { "Reasons" } }
                },
                None => p.trust { (trust) },
            }
        }
        @let steps = ending::next_steps(view);
        @if !steps.is_empty() { p.next { "What to do next" } ul.steps { @for step in steps { li { (commands(&step)) } } } }
    }
}

/// Formats a text that has commands between backticks.
fn commands(text: &str) -> Markup {
    html! { @for (at, part) in text.split('`').enumerate() { @if at % 2 == 1 { code { (part) } } @else { (part) } } }
}

/// The main figures as drawings.
pub fn keys(view: &View) -> Markup {
    let figures = carrying(view);
    html! { @if !figures.is_empty() { div.keys { @for figure in figures { (key(view, figure)) } } } }
}

/// The devices and the ports.
pub fn setup(view: &View) -> Markup {
    html! {
        div.setup {
            (devices(view))
            @if let Some(ports) = view.duts.iter().find_map(|d| d.records.first()).map(|d| &d.ports).filter(|p| !p.is_empty()) {
                (topology(view, ports))
            }
        }
    }
}

/// How many criteria of the suite are met; `None` without criteria.
pub fn criteria(view: &View) -> Option<Markup> {
    let verdicts = view.verdicts();
    let met = verdicts.iter().filter(|(.., v)| v.pass).count();
    (!verdicts.is_empty()).then(|| {
        let class = if met == verdicts.len() { "good" } else { "bad" };
        html! { a class={ "chip " (class) } href="#summary" { (met) " of " (verdicts.len()) " criteria of the suite met" } }
    })
}

/// The main figures: one per test, starting with figures in which DUTs differ.
fn carrying<'a>(view: &'a View) -> Vec<&'a Ranked> {
    let apart = |figure: &Ranked| (0..view.duts.len()).any(|dut| grid::is_best(figure, dut));
    let known = |figure: &&Ranked| figure.entries.iter().any(|entry| entry.value().is_some());
    let (first, then): (Vec<&Ranked>, Vec<&Ranked>) = view.ranking.figures.iter().filter(known).partition(|f| apart(f));
    let mut out: Vec<&Ranked> = Vec::new();
    for figure in first.into_iter().chain(then) {
        if out.len() < DRAWN && !out.iter().any(|f| f.section == figure.section) {
            out.push(figure);
        }
    }
    out
}

/// Width of a drawing in its own units.
const WIDTH: f64 = 388.0;
/// Height of the row of a DUT.
const ROW: f64 = 30.0;
/// Start and end of the scale.
const SCALE: (f64, f64) = (104.0, 286.0);

/// A figure with one row per DUT: a dot per round, a bar for the interval, a mark and the number for the median.
fn key(view: &View, figure: &Ranked) -> Markup {
    let asked = view.ranking.order.iter().copied().filter(|dut| figure.entries[*dut].asked);
    let order: Vec<usize> = asked.take(ROWS).collect();
    let ends = |entry: &Entry| -> Vec<f64> {
        let interval = entry.summary.map(|s| [s.interval.low, s.interval.high]);
        let all = dots(entry).into_iter().chain(entry.value()).chain(interval.into_iter().flatten());
        all.filter(|v| v.is_finite()).collect()
    };
    let most = figure.entries.iter().flat_map(ends).fold(0.0, f64::max);
    let x = |value: f64| {
        let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
        format!("{:.1}", SCALE.0 + (SCALE.1 - SCALE.0) * share)
    };
    let height = order.len() as f64 * ROW + 8.0;
    let title = grid::distinct_title(view, figure);
    let direction = if figure.higher_is_better { "more is better" } else { "less is better" };
    html! {
        figure.key {
            figcaption {
                a href={ "#test-" (view.sections[figure.section].id) } { (title) }
                " " small { (figure.unit) " \u{b7} " (direction) }
            }
            svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(title) {
                @for (row, dut) in order.iter().enumerate() {
                    @let entry = &figure.entries[*dut];
                    @let y = row as f64 * ROW + 18.0;
                    g class={ "c" (dut % 8) } {
                        title { (view.duts[*dut].label()) @if let Some(i) = grid::interval(figure, *dut) { ": " (i) } }
                        text.e x=(SCALE.0 - 10.0) y=(y + 4.0) { (name(view.duts[*dut].name)) }
                        line.base x1=(SCALE.0) x2=(SCALE.1) y1=(y) y2=(y) {}
                        @if let Some(Figure { low, high }) = entry.summary.filter(|s| s.rounds > 1).map(|s| s.interval)
                            && low.is_finite() && high.is_finite()
                        {
                            line.interval x1=(x(low)) x2=(x(high)) y1=(y) y2=(y) {}
                        }
                        @for value in dots(entry) { circle.dot cx=(x(value)) cy=(y) r="2.6" {} }
                        @if let Some(value) = entry.value() {
                            line.median x1=(x(value)) x2=(x(value)) y1=(y - 8.0) y2=(y + 8.0) {}
                        }
                        text.s.number x=(SCALE.1 + 8.0) y=(y + 4.0) { (grid::figure_value(figure, *dut)) }
                        @let marks = [grid::doubt_mark(figure, *dut), grid::limit_mark(figure, *dut).trim_start()];
                        // There is no room for two.
                        @if let Some(mark) = marks.into_iter().find(|mark| !mark.is_empty()) {
                            text.s.gap x=(SCALE.1 + 8.0) y=(y + 15.0) { (mark) }
                        }
                    }
                }
            }
        }
    }
}

/// The figures of the rounds.
pub fn dots(entry: &Entry) -> Vec<f64> {
    let figures = entry.rounds.iter().filter_map(|round| round.figure());
    figures.map(Figure::bound).filter(|value| value.is_finite()).collect()
}

/// Shortens a name so that it fits before the scale.
fn name(text: &str) -> String {
    ellipsis(text, 13)
}

/// The devices with their versions and facts, then the facts of the run.
fn devices(view: &View) -> Markup {
    let about = &view.run.started.about;
    let e = &view.run.started.environment;
    html! {
        dl.devices {
            @for dut in view.duts.iter().take(ROWS) {
                dt { (super::dut_name(dut)) }
                dd {
                    @match dut.records.first() {
                        Some(d) if d.version.trim().is_empty() => { (d.kind) }
                        Some(d) => { (shorten(&d.version, 160)) }
                        None => { "did not come up" }
                    }
                    @for (name, text) in about.dut(dut.name) { " \u{b7} " (name) ": " b { (text) } }
                }
            }
            @if view.duts.len() > ROWS { dt { "\u{2026}" } dd { a href="#duts" { (view.duts.len() - ROWS) " more" } } }
            @for (name, text) in &about.facts { dt { (name) } dd { (text) } }
            @if !e.drophammer.is_empty() { dt { "Tester" } dd {
                "Drophammer " (e.drophammer)
                @for text in [&e.kernel, &e.cpu_model].into_iter().filter(|t| !t.trim().is_empty()) { ", " (shorten(text, 60)) }
            } }
        }
    }
}

/// Draws the ports of the tester, each on a line to the DUT.
fn topology(view: &View, ports: &[PortRecord]) -> Markup {
    let shown = ports.len().min(PORTS);
    let height = 34.0 * shown as f64 + 26.0 + if ports.len() > shown { 18.0 } else { 0.0 };
    let dut = if let [dut] = &view.duts[..] { name(dut.name) } else { format!("{} DUTs in turn", view.duts.len()) };
    let line = |p: &PortRecord| {
        let speed = if p.speed_bps == 0 { String::new() } else { Bandwidth(p.speed_bps).to_string() };
        let parts = [speed.as_str(), p.backend.as_str()];
        let text = parts.into_iter().filter(|t| !t.trim().is_empty()).collect::<Vec<_>>().join(", ");
        text.chars().take(32).collect::<String>()
    };
    html! {
        svg.topology viewBox={ "0 0 440 " (height) } role="img" aria-label="Ports of the tester and the DUT" {
            rect.box x="1" y="1" width="96" height=(height - 2.0) rx="6" {}
            text.m.name x="49" y="17" { "tester" }
            rect.box x="327" y="1" width="112" height=(height - 2.0) rx="6" {}
            text.m.name x="383" y="17" { (dut) }
            @for (i, p) in ports.iter().take(shown).enumerate() {
                @let y = 40.0 + 34.0 * i as f64;
                text.e x="88" y=(y + 4.0) { (name(&p.name)) }
                line.axis x1="97" x2="327" y1=(y) y2=(y) {}
                text.m.gap x="212" y=(y - 5.0) { (line(p)) }
            }
            @if ports.len() > shown { text.m.gap x="212" y=(height - 8.0) { (number((ports.len() - shown) as f64, "")) " more ports" } }
        }
    }
}
