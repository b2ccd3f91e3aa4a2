//! Plots of the HTML report: heading, legend, drawing, and events that do not fit into the drawing.

use crate::format::{DASH, number};
use crate::svg::sorted::{Figures, unit, value};
use crate::svg::{self, swatch};
use crate::view::{MergedPlot, View};
use drophammer_model::outcome::PlotKind;
use maud::{Markup, PreEscaped, html};

/// Maximum number of events listed below a drawing because they do not fit into it.
const MOST_EVENTS: usize = 24;

/// A plot with its legend; `link` points to the CSV file of its points.
pub fn figure(view: &View, plot: &MergedPlot, link: &Markup) -> Markup {
    let many = view.duts.len() > 1;
    let drawing = svg::draw(plot, many);
    html! {
        figure {
            figcaption {
                (plot.plot.title) @if plot.plot.log_y { " " small { "logarithmic" } } " " (link)
            }
            p.legend {
                @for i in (0..plot.plot.series.len()).filter(|i| !beside_curve(plot, *i) && !in_figures(plot, *i)) {
                    span { (PreEscaped(swatch(plot, i, many))) (plot.plot.series[i].name) }
                }
                @if (0..plot.plot.series.len()).any(|i| beside_curve(plot, i)) { span { "\u{b7} faint dots: single trials" } }
                @if !plot.invalid.is_empty() { span { "\u{b7} hollow: " (plot.invalid.len()) " invalid trials" } }
                @for text in shaded(plot) { span { "\u{b7} shaded: " (text) } }
                @if svg::has_gaps(plot) { span { "\u{b7} n/a: no value, see the table and the notes" } }
            }
            @match drawing {
                Some(drawing) => {
                    div.scroll { (PreEscaped(drawing.svg)) }
                    (events(plot, &drawing.numbered))
                }
                None => { p.muted { "No points: nothing was measured." } }
            }
            @if plot.plot.kind == PlotKind::Sorted { (figures(plot, many)) }
        }
    }
}

/// Maximum number of texts about shaded ranges in a legend. The tooltip of each range has its own.
const MOST_SHADED: usize = 4;

/// What the shaded ranges are, each text once.
fn shaded(plot: &MergedPlot) -> Vec<&str> {
    let mut texts: Vec<&str> = Vec::new();
    for span in &plot.plot.spans {
        if !texts.contains(&span.text.as_str()) && texts.len() < MOST_SHADED {
            texts.push(&span.text);
        }
    }
    texts
}

/// Events whose texts do not fit into the drawing, with their numbers in the drawing.
fn events(plot: &MergedPlot, numbered: &[usize]) -> Markup {
    let unit = unit(&plot.plot.x);
    html! {
        @if !numbered.is_empty() {
            ol.events { @for i in numbered.iter().take(MOST_EVENTS) {
                li { (plot.events[*i].text) " " small { "at " (number(plot.events[*i].x, "")) " " (unit) } }
            } }
            @if numbered.len() > MOST_EVENTS {
                p.muted { (numbered.len() - MOST_EVENTS) " more events are in the CSV file." }
            }
        }
    }
}

/// The four figures of each sorted curve, and the share that the curve reached if it is below 100 %.
fn figures(plot: &MergedPlot, many: bool) -> Markup {
    let all: Vec<(usize, Figures)> = (0..plot.plot.series.len())
        .filter(|i| in_figures(plot, *i))
        .filter_map(|i| Figures::new(&plot.plot.series[i]).map(|f| (i, f)))
        .collect();
    let partial = all.iter().any(|(_, f)| f.is_partial());
    html! {
        @if !all.is_empty() { div.scroll { table.figures {
            thead { tr {
                th {}
                @for (name, _) in all[0].1.named() { th.n scope="col" { (name) } }
                @if partial { th.n scope="col" { "reached" } }
            } }
            tbody { @for (i, f) in &all { tr {
                th scope="row" { (PreEscaped(swatch(plot, *i, many))) " " (plot.plot.series[*i].name) }
                @for (_, p) in f.named() { td.n {
                    @match p { Some(p) => { (value(p.y, &plot.plot.y)) } None => { (DASH) } }
                } }
                @if partial { td.n { (number(f.maximum.x, "%")) " %" } }
            } } }
        } } }
    }
}

/// True if the table of figures below a sorted plot contains this series. The table then replaces its legend.
fn in_figures(plot: &MergedPlot, index: usize) -> bool {
    let series = &plot.plot.series[index];
    plot.plot.kind == PlotKind::Sorted && !series.dots && !series.reference && Figures::new(series).is_some()
}

/// True if a series is the dots of single trials behind a curve of the same DUT. Such dots need no entry in the legend.
fn beside_curve(plot: &MergedPlot, index: usize) -> bool {
    let curve = |i: usize| plot.dut_of[i] == plot.dut_of[index] && !plot.plot.series[i].dots;
    plot.plot.series[index].dots && (0..plot.plot.series.len()).any(curve)
}
