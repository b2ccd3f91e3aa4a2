//! Plots as inline SVG. Colours are classes (`c0` to `c7`) that the page's style sheet gives a colour for light and for
//! dark; so that colour never stands alone, series also differ by dash, marker or shade.

mod categories;
mod curves;
mod frame;
pub mod scale;

use crate::view::MergedPlot;
use drophammer_model::outcome::PlotKind;

/// Colours of the palette.
const COLOURS: usize = 8;

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Class of the colour, 0 to 7; absent for references, which are neutral.
    pub colour: Option<usize>,
    /// Dash, marker and shade, from 0.
    pub place: usize,
}

/// Colour by DUT (the same in every plot of the report) and dash by series; by series where there is but one DUT.
pub fn style(plot: &MergedPlot, series: usize, many_duts: bool) -> Style {
    let place = plot.place.get(series).copied().unwrap_or(0);
    match plot.dut_of.get(series).copied().flatten() {
        None => Style { colour: None, place },
        Some(dut) if many_duts => Style { colour: Some(dut % COLOURS), place },
        Some(_) => Style { colour: Some(place % COLOURS), place: place / COLOURS },
    }
}

/// Do bars or ranges lack a category that others have?
pub fn has_gaps(plot: &MergedPlot) -> bool {
    matches!(plot.plot.kind, PlotKind::Bars | PlotKind::Ranges) && categories::gaps(&plot.plot.series)
}

/// The plot as an `<svg>` element; absent when no series has a point.
pub fn draw(plot: &MergedPlot, many_duts: bool) -> Option<String> {
    if !plot.plot.series.iter().any(|s| s.points.iter().any(|p| p.y.is_finite() && p.x.is_finite())) {
        return None;
    }
    Some(match plot.plot.kind {
        PlotKind::Bars | PlotKind::Ranges => categories::draw(plot, many_duts),
        PlotKind::Line | PlotKind::Dots | PlotKind::Percentiles => curves::draw(plot, many_duts),
    })
}

/// A swatch for the legend: what the series looks like in this kind of plot.
pub fn swatch(plot: &MergedPlot, series: usize, many_duts: bool) -> String {
    let style = style(plot, series, many_duts);
    let class = class(style);
    let dots = plot.plot.series.get(series).is_some_and(|s| s.dots) || plot.plot.kind == PlotKind::Dots;
    let inner = match (plot.plot.kind, style.colour) {
        (PlotKind::Bars | PlotKind::Ranges, Some(_)) if !dots => {
            format!("<rect class=\"bar p{}\" x=\"5\" y=\"2\" width=\"14\" height=\"10\" rx=\"2\"/>", style.place.min(3))
        }
        (_, Some(_)) if dots => frame::dot("", style.place, 12.0, 7.0, 3.0, ""),
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

/// Text within SVG and HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
