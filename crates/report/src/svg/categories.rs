//! Plots over categories: grouped bars, and ranges from minimum to maximum with the average.

use super::curves::{range_and_trial, y_axis};
use super::frame::{CHAR, Frame};
use super::scale::{Axis, short};
use super::{class, escape, style};
use crate::format::{ellipsis, number};
use crate::grouped;
use crate::view::MergedPlot;
use drophammer_model::outcome::{PlotKind, Point, Series};
use std::fmt::Write;

/// A reference this many times above the measured values is not drawn to scale.
const FAR_ABOVE: f64 = 4.0;
/// Approximate width of one character of the small labels inside the plot, in SVG units.
const SMALL_CHAR: f64 = 6.0;

/// True if a series, other than references, lacks a category that others have.
pub fn gaps(series: &[Series]) -> bool {
    let names = categories(series);
    series.iter().filter(|s| !s.reference && !s.dots).any(|s| names.iter().any(|n| !has(s, n)))
}

fn has(series: &Series, name: &str) -> bool {
    series.points.iter().any(|p| p.y.is_finite() && label_of(p) == name)
}

fn label_of(point: &Point) -> String {
    point.label.clone().unwrap_or_else(|| short(point.x))
}

/// Categories in order of x, each once, at the x where it first appears.
fn categories(series: &[Series]) -> Vec<String> {
    let mut all = grouped(series.iter().flat_map(|s| &s.points).map(|p| (label_of(p), p.x)));
    all.sort_by(|(_, a), (_, b)| a[0].total_cmp(&b[0]));
    all.into_iter().map(|(label, _)| label).collect()
}

pub fn draw(merged: &MergedPlot, many_duts: bool) -> String {
    let plot = &merged.plot;
    let points = || plot.series.iter().flat_map(|s| &s.points).filter(|p| p.y.is_finite());
    let values = || points().flat_map(|p| [p.y, p.range.map_or(p.y, |r| r.0), p.range.map_or(p.y, |r| r.1)]);
    let own = plot.series.iter().filter(|s| !s.reference).flat_map(|s| &s.points);
    let measured = own.map(|p| p.range.map_or(p.y, |r| p.y.max(r.1))).filter(|y| y.is_finite()).fold(0.0, f64::max);
    // A theoretical rate far above the bars would flatten them. So the scale fits the bars and the values close to them,
    // and an arrow with its value shows the reference.
    let near = |s: &&Series| !s.reference || s.points.iter().all(|p| measured <= 0.0 || p.y <= FAR_ABOVE * measured);
    let far = !plot.series.iter().all(|s| near(&s));
    let shown = plot.series.iter().filter(near).flat_map(|s| &s.points);
    let tops = shown.map(|p| p.range.map_or(p.y, |r| p.y.max(r.1))).filter(|y| y.is_finite());
    let high = tops.fold(if far { measured * 1.25 } else { 0.0 }, f64::max);
    let low = values().fold(0.0, f64::min);
    let linear = || Axis::linear(low, high, 5, true);
    // Bars start a whole decade below the lowest value; otherwise the shortest bar would have no height.
    let least = values().filter(|v| *v > 0.0 && plot.kind == PlotKind::Bars).fold(f64::INFINITY, f64::min);
    let foot = least.is_finite().then(|| 10f64.powf((least / 2.0).log10().floor()));
    let (y, y_name) = y_axis(plot, Axis::log(values().chain(foot)).filter(|_| plot.log_y), linear);
    let names = categories(&plot.series);
    let mut frame = Frame::new(&y, 0);
    frame.y_axis(&y, y_name);
    let slot = (frame.right - frame.left) / names.len().max(1) as f64;
    // References are lines across the plot. Each series of a DUT has its own place in each category.
    let bars: Vec<usize> =
        (0..plot.series.len()).filter(|i| !plot.series[*i].reference && !plot.series[*i].dots).collect();
    let group = (slot * 0.78).min(bars.len().max(1) as f64 * 74.0);
    let width = group / bars.len().max(1) as f64;
    let start = |category: usize| frame.left + slot * category as f64 + (slot - group) / 2.0;
    let starts: Vec<f64> = (0..names.len()).map(start).collect();
    let pixel = |frame: &Frame, v: f64| frame.y(y.at(v));
    for (index, series) in plot.series.iter().enumerate() {
        let look = style(merged, index, many_duts);
        let place = bars.iter().position(|b| *b == index);
        let mut out = format!("<g class=\"{}\">", class(look));
        for p in series.points.iter().filter(|p| p.y.is_finite()) {
            let Some(category) = names.iter().position(|n| *n == label_of(p)) else { continue };
            let tip = tip(series, p, &plot.y);
            let at = |v| pixel(&frame, v);
            match place {
                Some(place) => {
                    let x = starts[category] + place as f64 * width;
                    match plot.kind {
                        PlotKind::Ranges => out += &range(p, x, width, &at, &tip),
                        _ => out += &bar(p, x, width, look.place, at(0.0), &at, &tip),
                    }
                }
                None if series.dots => {
                    let own = bars.iter().position(|b| {
                        merged.dut_of[*b] == merged.dut_of[index] && merged.place[*b] == merged.place[index]
                    });
                    let x = starts[category] + own.map_or(group / 2.0, |o| (o as f64 + 0.5) * width);
                    let _ = write!(
                        out,
                        "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2.2\"><title>{}</title></circle>",
                        at(p.y),
                        escape(&tip)
                    );
                }
                None => {}
            }
        }
        // A missing value must look different from 0.
        for (category, name) in names.iter().enumerate() {
            let Some(place) = place.filter(|_| !has(series, name)) else { continue };
            let x = starts[category] + (place as f64 + 0.5) * width;
            let _ = write!(
                out,
                "<text class=\"gap m\" x=\"{x:.1}\" y=\"{:.1}\">n/a<title>{}</title></text>",
                frame.bottom - 5.0,
                escape(&format!("{}, {name}: no value", series.name))
            );
        }
        out += "</g>";
        frame.push(&out);
    }
    for (series, place) in plot.series.iter().zip(&merged.place).filter(|(s, _)| s.reference) {
        let line = reference((series, *place), &names, &starts, group, (&y, &frame), &plot.y);
        frame.push(&line);
    }
    frame.base();
    let below = name_categories(&mut frame, &names, slot);
    frame.x_name(&plot.x, below);
    frame.finish(&plot.title, below + 12.0)
}

fn tip(series: &Series, p: &Point, y: &str) -> String {
    let (range, trial) = range_and_trial(p);
    format!("{}, {}: {}{range} [{y}]{trial}", series.name, label_of(p), number(p.y, ""))
}

fn bar(p: &Point, x: f64, width: f64, place: usize, base: f64, at: &impl Fn(f64) -> f64, tip: &str) -> String {
    let gap = (width * 0.08).min(2.0);
    let (top, bottom) = (at(p.y).min(base), at(p.y).max(base));
    // A bar for 0 is a thin line, so that it differs from a missing bar.
    let height = (bottom - top).max(1.0);
    let inner = width - 2.0 * gap;
    let mut out = format!(
        "<rect class=\"bar p{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{inner:.1}\" height=\"{height:.1}\" rx=\"{:.1}\"><title>{}</title></rect>",
        place.min(3),
        x + gap,
        bottom - height,
        (width * 0.08).min(2.0),
        escape(tip)
    );
    let middle = x + width / 2.0;
    let mut above = top;
    if let Some((low, high)) = p.range {
        let cap = (width * 0.2).min(6.0);
        let (a, b) = (at(low), at(high));
        let _ = write!(
            out,
            "<path class=\"whisker\" d=\"M{:.1} {a:.1}h{c:.1}M{:.1} {b:.1}h{c:.1}M{middle:.1} {a:.1}V{b:.1}\"/>",
            middle - cap,
            middle - cap,
            c = 2.0 * cap
        );
        above = above.min(b);
    }
    let text = short(p.y);
    let length = text.chars().count() as f64;
    if length * SMALL_CHAR * 0.9 + 1.0 <= width {
        let tight = if length * SMALL_CHAR + 4.0 > width { " tight" } else { "" };
        let _ = write!(out, "<text class=\"value m{tight}\" x=\"{middle:.1}\" y=\"{:.1}\">{text}</text>", above - 4.0);
    }
    out
}

fn range(p: &Point, x: f64, width: f64, at: &impl Fn(f64) -> f64, tip: &str) -> String {
    let (low, high) = p.range.unwrap_or((p.y, p.y));
    let body = (width * 0.6).clamp(4.0, 30.0);
    let left = x + (width - body) / 2.0;
    let (top, bottom) = (at(high), at(low));
    format!(
        "<g><title>{}</title><rect class=\"range\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{body:.1}\" height=\"{:.1}\" rx=\"2\"/>\
         <path class=\"average\" d=\"M{:.1} {:.1}h{:.1}\"/></g>",
        escape(tip),
        (bottom - top).max(1.0),
        left - 2.0,
        at(p.y),
        body + 4.0
    )
}

/// A tick across every category at the reference value, joined by a dashed line. If the value is above the scale, an
/// arrow with the value.
fn reference(
    (series, place_of): (&Series, usize),
    names: &[String],
    starts: &[f64],
    group: f64,
    (axis, frame): (&Axis, &Frame),
    unit: &str,
) -> String {
    let (mut out, mut line, mut arrows) = (String::new(), String::new(), String::new());
    let place = |p: &&Point| names.iter().position(|n| *n == label_of(p));
    let mut points: Vec<_> =
        series.points.iter().filter(|p| p.y.is_finite()).filter_map(|p| place(&p).map(|c| (c, p))).collect();
    points.sort_by_key(|(c, _)| *c);
    for (category, p) in points {
        let share = axis.beyond(p.y);
        let (x, y) = (starts[category], frame.y(share));
        let middle = x + group / 2.0;
        let title = format!("<title>{}</title>", escape(&tip(series, p, unit)));
        let _ = write!(line, "{}{middle:.1} {y:.1}", if line.is_empty() { "M" } else { "L" });
        if share > 1.0 {
            // Include the name if there is room. A second reference goes below the first.
            let long = format!("{} {}", short(p.y), series.name);
            let room = (frame.right - frame.left) / names.len().max(1) as f64 - 10.0;
            let wide = long.chars().count() as f64 * SMALL_CHAR + 12.0;
            let (text, x) = if wide <= room { (long, middle - wide / 2.0 + 5.0) } else { (short(p.y), middle) };
            let top = frame.top + place_of as f64 * 15.0;
            let _ = write!(
                arrows,
                "<g>{title}<path class=\"reftick\" d=\"M{x:.1} {:.1}v-11m-4 4.5l4 -4.5l4 4.5\"/>\
                 <text class=\"value s\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                top + 12.0,
                x + 7.0,
                top + 10.0,
                escape(&text)
            );
        } else {
            let _ =
                write!(out, "<path class=\"reftick\" d=\"M{:.1} {y:.1}h{:.1}\">{title}</path>", x - 4.0, group + 8.0);
        }
    }
    // A nested drawing clips the line at the upper end of the scale.
    let (width, height) = (frame.right - frame.left, frame.bottom - frame.top);
    format!(
        "<g class=\"cr\"><svg x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         viewBox=\"{x:.1} {y:.1} {width:.1} {height:.1}\"><path class=\"ref f{style}\" d=\"{line}\"/></svg>{out}{arrows}</g>",
        x = frame.left,
        y = frame.top,
        style = place_of.min(1)
    )
}

/// Writes the names under the axis, slanted if they are too long for their place. Returns the height that they need.
fn name_categories(frame: &mut Frame, names: &[String], slot: f64) -> f64 {
    let longest = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    let slanted = longest as f64 * CHAR > slot - 6.0;
    for (index, name) in names.iter().enumerate() {
        let x = frame.left + slot * (index as f64 + 0.5);
        let shown = ellipsis(name, 22);
        let y = frame.bottom + 18.0;
        let turn = if slanted { format!(" transform=\"rotate(-35 {x:.1} {:.1})\"", y - 4.0) } else { String::new() };
        let anchor = if slanted { "e" } else { "m" };
        frame.push(&format!(
            "<text class=\"tick {anchor}\" x=\"{x:.1}\" y=\"{y:.1}\"{turn}>{}<title>{}</title></text>",
            escape(&shown),
            escape(name)
        ));
    }
    if slanted { 38.0 + longest.min(22) as f64 * CHAR * 0.58 } else { 38.0 }
}
