//! Plots as inline SVG. Colours are classes (`c0` to `c7`), for which the page's style sheet has light and dark colours.
//! Series also differ by dash, marker or shade, so that nothing depends on colour alone.

mod categories;
mod curves;
mod events;
mod frame;
pub mod scale;
pub mod sorted;
mod thin;

use crate::view::MergedPlot;
use drophammer_model::outcome::PlotKind;

/// Number of colours.
const COLOURS: usize = 8;

/// How to draw a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Class of the colour, 0 to 7; absent for references, which have a neutral colour.
    pub colour: Option<usize>,
    /// Dash, marker and shade, from 0.
    pub place: usize,
}

/// Colour by DUT (the same in every plot of the report) and dash by series. With a single DUT, colour by series.
pub fn style(plot: &MergedPlot, series: usize, many_duts: bool) -> Style {
    let place = plot.place.get(series).copied().unwrap_or(0);
    match plot.dut_of.get(series).copied().flatten() {
        None => Style { colour: None, place },
        Some(dut) if many_duts => Style { colour: Some(dut % COLOURS), place },
        Some(_) => Style { colour: Some(place % COLOURS), place: place / COLOURS },
    }
}

/// True if bars or ranges lack a category that others have.
pub fn has_gaps(plot: &MergedPlot) -> bool {
    matches!(plot.plot.kind, PlotKind::Bars | PlotKind::Ranges) && categories::gaps(&plot.plot.series)
}

/// A plot as the page shows it.
#[derive(Debug)]
pub struct Drawing {
    /// The `<svg>` element.
    pub svg: String,
    /// Events whose texts do not fit into the drawing, as indices of [`MergedPlot::events`]. The drawing numbers them from 1
    /// in this order.
    pub numbered: Vec<usize>,
}

/// Draws the plot; absent if no series has a point.
pub fn draw(plot: &MergedPlot, many_duts: bool) -> Option<Drawing> {
    if !plot.plot.series.iter().any(|s| s.points.iter().any(|p| p.y.is_finite() && p.x.is_finite())) {
        return None;
    }
    Some(match plot.plot.kind {
        PlotKind::Bars | PlotKind::Ranges => Drawing { svg: categories::draw(plot, many_duts), numbered: vec![] },
        PlotKind::Line
        | PlotKind::Dots
        | PlotKind::Percentiles
        | PlotKind::Area
        | PlotKind::Steps
        | PlotKind::Sorted => curves::draw(plot, many_duts),
    })
}

/// A sample for the legend: how this kind of plot draws the series.
pub fn swatch(plot: &MergedPlot, series: usize, many_duts: bool) -> String {
    let style = style(plot, series, many_duts);
    let class = class(style);
    let dots = plot.plot.series.get(series).is_some_and(|s| s.dots) || plot.plot.kind == PlotKind::Dots;
    let inner = match (plot.plot.kind, style.colour) {
        (PlotKind::Bars | PlotKind::Ranges, Some(_)) if !dots => {
            format!("<rect class=\"bar p{}\" x=\"5\" y=\"2\" width=\"14\" height=\"10\" rx=\"2\"/>", style.place.min(3))
        }
        (_, Some(_)) if dots => frame::dot("", style.place, 12.0, 7.0, 3.0, ""),
        (PlotKind::Area, Some(_)) => {
            let line = "M1 12V4H14V8H23";
            let dash = style.place.min(4);
            format!("<path class=\"fill\" d=\"{line}V13H1z\"/><path class=\"line l{dash}\" d=\"{line}\"/>")
        }
        (PlotKind::Steps, Some(_)) => {
            format!("<path class=\"line l{}\" d=\"M1 11H9V7H16V3H23\"/>", style.place.min(4))
        }
        (_, Some(_)) => format!(
            "<path class=\"line l{}\" d=\"M1 7H23\"/>{}",
            style.place.min(4),
            frame::marker(style.place, 12.0, 7.0, "")
        ),
        (_, None) => format!("<path class=\"ref f{}\" d=\"M1 7H23\"/>", style.place.min(1)),
    };
    format!(
        "<svg class=\"swatch {class}\" viewBox=\"0 0 24 14\" width=\"24\" height=\"14\" aria-hidden=\"true\">{inner}</svg>"
    )
}

/// Class of a series' group.
fn class(style: Style) -> String {
    style.colour.map_or_else(|| "cr".to_owned(), |c| format!("c{c}"))
}

/// Escapes text for SVG and HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
