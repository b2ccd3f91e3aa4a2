//! Plots over a continuous x: lines, dots, percentiles, skylines, stairs, sorted curves.

use super::events::{GUIDE, Mark, Marks};
use super::frame::{Frame, dot, marker};
use super::scale::Axis;
use super::sorted::{Figures, GUIDES, value};
use super::thin::{self, Join, MOST_DOTS};
use super::{Drawing, Style, class, escape, style};
use crate::format::number;
use crate::view::MergedPlot;
use drophammer_model::outcome::{Plot, PlotKind, Point, Series};
use std::fmt::Write;

/// A curve with more points than this has no markers, because they would overlap.
const MOST_MARKERS: usize = 60;

pub fn draw(merged: &MergedPlot, many_duts: bool) -> Drawing {
    let plot = &merged.plot;
    let points = || plot.series.iter().flat_map(|s| &s.points).filter(|p| p.x.is_finite() && p.y.is_finite());
    let ys = || points().flat_map(|p| [p.y, p.range.map_or(p.y, |r| r.0), p.range.map_or(p.y, |r| r.1)]);
    let linear = || Axis::linear(ys().fold(0.0, f64::min), ys().fold(0.0, f64::max), 5, true);
    let (y, y_name) = y_axis(plot, Axis::log(ys()).filter(|_| plot.log_y), linear);
    let ends = plot.spans.iter().flat_map(|span| [span.x.0, span.x.1]).filter(|x| x.is_finite());
    let x = x_axis(plot.kind, points().map(|p| p.x).chain(merged.events.iter().map(|e| e.x)).chain(ends));
    let marks = marks(merged, many_duts);
    let sketch = Frame::new(&y, 0);
    let marks = Marks::new(&x, &marks, sketch.left, sketch.right);
    let mut frame = Frame::new(&y, marks.rows());
    frame.y_axis(&y, y_name);
    frame.base();
    frame.x_axis(&x, &plot.x);
    let all: Vec<Curve> = (0..plot.series.len()).map(|i| Curve::new(merged, i, many_duts, (&x, &y, &frame))).collect();
    frame.push(&shades(merged, many_duts, (&x, &y, &frame)));
    // Draw fills first, so that none covers the line of another DUT.
    if plot.kind == PlotKind::Area {
        let foot = frame.y(y.at(0.0));
        let fills: String = all.iter().filter(|c| !c.is_dots() && !c.series.reference).map(|c| c.fill(foot)).collect();
        frame.push(&fills);
    }
    marks.draw(&x, &mut frame);
    // Draw dots next, so that results are on top of trials.
    let mut order: Vec<&Curve> = all.iter().collect();
    order.sort_by_key(|c| (!c.series.dots, !c.series.reference));
    for curve in order {
        let out = if curve.is_dots() { curve.dots(merged) } else { curve.line((&x, &y, &frame)) };
        frame.push(&format!("<g class=\"{}\">{out}</g>", class(curve.look)));
    }
    Drawing { svg: frame.finish(&plot.title, 50.0), numbered: marks.numbered() }
}

/// Narrowest shade, so that a short time can be seen.
const NARROWEST: f64 = 1.5;

/// The shaded ranges, in the colours of their DUTs.
fn shades(merged: &MergedPlot, many_duts: bool, (x, _, frame): Paper) -> String {
    let mut out = String::new();
    for (span, dut) in merged.plot.spans.iter().zip(&merged.span_of) {
        let ((from, to), colour) = (span.x, if many_duts { Some(dut % super::COLOURS) } else { None });
        if !(from.is_finite() && to.is_finite()) {
            continue;
        }
        let (left, top) = (frame.x(x.at(from)), frame.top);
        let (width, height) = ((frame.x(x.at(to)) - left).max(NARROWEST), frame.bottom - top);
        let tip = format!("{}: {} from {} to {}", merged.plot.x, span.text, number(from, ""), number(to, ""));
        let class = class(Style { colour, place: 0 });
        let _ = write!(
            out,
            "<g class=\"{class}\"><rect class=\"span\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"><title>{}</title></rect></g>",
            escape(&tip)
        );
    }
    out
}

/// The events in the colours of their DUTs, and the guides of a sorted curve.
fn marks(merged: &MergedPlot, many_duts: bool) -> Vec<Mark> {
    let class = |duts: &[usize]| match duts {
        [dut] if many_duts => class(Style { colour: Some(dut % super::COLOURS), place: 0 }),
        _ => String::new(),
    };
    let event = |e: &crate::view::MergedEvent| Mark {
        x: e.x,
        text: e.text.clone(),
        tip: format!("{}: {} at {}", merged.plot.x, e.text, number(e.x, "")),
        class: class(&e.owners),
    };
    let guide = |(x, text): (f64, &str)| Mark { x, text: text.into(), tip: text.into(), class: GUIDE.into() };
    let guides = GUIDES.into_iter().filter(|_| merged.plot.kind == PlotKind::Sorted).map(guide);
    merged.events.iter().map(event).chain(guides).collect()
}

/// Axes and the area between them.
type Paper<'a> = (&'a Axis, &'a Axis, &'a Frame);

/// A series with its points in x order, and their pixels.
struct Curve<'a> {
    kind: PlotKind,
    y: &'a str,
    series: &'a Series,
    look: Style,
    points: Vec<&'a Point>,
    pixels: Vec<(f64, f64)>,
    /// Left end of the data area, where stairs start.
    left: f64,
}

impl<'a> Curve<'a> {
    fn new(merged: &'a MergedPlot, index: usize, many_duts: bool, (x, y, frame): Paper) -> Curve<'a> {
        let series = &merged.plot.series[index];
        let mut points: Vec<&Point> = series.points.iter().filter(|p| p.x.is_finite() && p.y.is_finite()).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let pixels = points.iter().map(|p| (frame.x(x.at(p.x)), frame.y(y.at(p.y)))).collect();
        let look = style(merged, index, many_duts);
        Curve { kind: merged.plot.kind, y: &merged.plot.y, series, look, points, pixels, left: frame.left }
    }

    fn is_dots(&self) -> bool {
        self.series.dots || (self.kind == PlotKind::Dots && !self.series.reference)
    }

    fn path(&self) -> String {
        match (self.kind, self.pixels.first()) {
            (PlotKind::Area, _) => thin::path(&self.pixels, Join::After),
            (PlotKind::Steps, Some(first)) => {
                let from_left = [&[(self.left, first.1)], self.pixels.as_slice()].concat();
                thin::path(&from_left, Join::Before)
            }
            _ => thin::path(&self.pixels, Join::Line),
        }
    }

    fn fill(&self, foot: f64) -> String {
        let (Some(first), Some(last)) = (self.pixels.first(), self.pixels.last()) else { return String::new() };
        let (group, place) = (class(self.look), self.look.place.min(2));
        let path = self.path();
        let end = format!("L{:.1} {foot:.1}H{:.1}z", last.0, first.0);
        format!("<g class=\"{group}\"><path class=\"fill p{place}\" d=\"{path}{end}\"/></g>")
    }

    fn dots(&self, merged: &MergedPlot) -> String {
        let invalid = |p: &Point| p.trial.is_some_and(|n| merged.invalid.contains(&n));
        // Dots behind a curve are faint.
        let faint = if self.series.dots && self.kind != PlotKind::Dots { "faint" } else { "" };
        let size = if self.series.dots { 2.4 } else { 3.2 };
        let few = self.points.len() <= MOST_DOTS;
        let mut out = String::new();
        let mut many = Vec::new();
        for (p, (x, y)) in self.points.iter().zip(&self.pixels) {
            match (invalid(p), few) {
                (true, _) => out += &dot("invalid", self.look.place, *x, *y, size, &(self.tip(p) + ", invalid")),
                (false, true) => out += &dot(faint, self.look.place, *x, *y, size, &self.tip(p)),
                (false, false) => many.push((*x, *y)),
            }
        }
        if !many.is_empty() {
            let name = escape(&self.series.name);
            let _ =
                write!(out, "<path class=\"cloud {faint}\" d=\"{}\"><title>{name}</title></path>", thin::dots(&many));
        }
        out
    }

    fn line(&self, (x, y, frame): Paper) -> String {
        let (series, place) = (self.series, self.look.place);
        let line = if series.reference { format!("ref f{}", place.min(1)) } else { format!("line l{}", place.min(4)) };
        let mut out =
            format!("<path class=\"{line}\" d=\"{}\"><title>{}</title></path>", self.path(), escape(&series.name));
        if self.points.len() <= MOST_MARKERS {
            for (p, (px, _)) in self.points.iter().zip(&self.pixels) {
                let Some((low, high)) = p.range else { continue };
                let (a, b, px) = (frame.y(y.at(low)), frame.y(y.at(high)), *px);
                let left = px - 4.0;
                let _ = write!(
                    out,
                    "<path class=\"whisker\" d=\"M{left:.1} {a:.1}h8M{left:.1} {b:.1}h8M{px:.1} {a:.1}V{b:.1}\"/>"
                );
            }
        }
        match self.kind {
            // A skyline needs no markers.
            PlotKind::Area => {}
            PlotKind::Sorted => {
                for (name, p) in Figures::new(series).iter().flat_map(Figures::named) {
                    let Some(p) = p else { continue };
                    let tip = format!("{}: {name} {} at {} %", series.name, value(p.y, self.y), number(p.x, "%"));
                    out += &marker(place, frame.x(x.at(p.x)), frame.y(y.at(p.y)), &tip);
                }
            }
            _ if series.reference || self.points.len() > MOST_MARKERS => {}
            _ => {
                for (p, (px, py)) in self.points.iter().zip(&self.pixels) {
                    out += &marker(place, *px, *py, &self.tip(p));
                }
            }
        }
        out
    }

    fn tip(&self, p: &Point) -> String {
        tip(self.series, p, self.kind)
    }
}

/// The y axis and its title. On a logarithmic axis of times, the ticks have units and the title has none.
pub fn y_axis(plot: &Plot, log: Option<Axis>, linear: impl Fn() -> Axis) -> (Axis, &str) {
    let title = plot.y.as_str();
    let Some(log) = log else { return (linear(), title) };
    for (unit, ns) in [("\u{b5}s", 1e3), ("ms", 1e6), ("s", 1e9)] {
        for end in [format!(", {unit}"), format!(" [{unit}]")] {
            if let Some(name) = title.strip_suffix(end.as_str()) {
                return (log.of_times(ns), name);
            }
        }
    }
    (log, title)
}

fn x_axis(kind: PlotKind, xs: impl Iterator<Item = f64> + Clone) -> Axis {
    if kind == PlotKind::Percentiles {
        let largest = xs.clone().filter(|x| *x < 100.0).fold(0.0, f64::max);
        return Axis::nines(largest, xs.clone().any(|x| x >= 100.0));
    }
    if kind == PlotKind::Sorted {
        return Axis::linear(0.0, 100.0, 5, true);
    }
    let low = xs.clone().fold(f64::INFINITY, f64::min);
    let high = xs.fold(f64::NEG_INFINITY, f64::max);
    if !low.is_finite() {
        return Axis::linear(0.0, 1.0, 6, true);
    }
    // An axis that would start near zero starts at zero. So does the axis of stairs, because the first step starts there.
    let low = if low > 0.0 && (low < high * 0.3 || kind == PlotKind::Steps) { 0.0 } else { low };
    let nice = high <= low;
    Axis::linear(low, high, 8, nice)
}

/// ` (3 to 5)` and `, trial 7`, as far as the point has them.
pub fn range_and_trial(p: &Point) -> (String, String) {
    let range = p.range.map(|(a, b)| format!(" ({} to {})", number(a, ""), number(b, "")));
    (range.unwrap_or_default(), p.trial.map(|t| format!(", trial {t}")).unwrap_or_default())
}

fn tip(series: &Series, p: &Point, kind: PlotKind) -> String {
    let x = match kind {
        PlotKind::Percentiles | PlotKind::Sorted => format!("{} %", number(p.x, "%")),
        _ => number(p.x, ""),
    } + &p.label.as_ref().map(|l| format!(" ({l})")).unwrap_or_default();
    let (range, trial) = range_and_trial(p);
    format!("{}: {x} \u{2192} {}{range}{trial}", series.name, number(p.y, ""))
}
