//! Plots over a continuous x: lines, dots, percentiles.

use super::frame::{Frame, WIDTH, dot, event_rows, marker};
use super::scale::Axis;
use super::{class, escape, style};
use crate::format::number;
use crate::view::MergedPlot;
use drophammer_model::outcome::{Plot, PlotKind, Point, Series};
use std::fmt::Write;

/// A curve with more points than this has no marker at each: they would merge into a worm.
const MOST_MARKERS: usize = 60;

pub fn draw(merged: &MergedPlot, many_duts: bool) -> String {
    let plot = &merged.plot;
    let points = || plot.series.iter().flat_map(|s| &s.points).filter(|p| p.x.is_finite() && p.y.is_finite());
    let ys = || points().flat_map(|p| [p.y, p.range.map_or(p.y, |r| r.0), p.range.map_or(p.y, |r| r.1)]);
    let linear = || Axis::linear(ys().fold(0.0, f64::min), ys().fold(0.0, f64::max), 5, true);
    let (y, y_name) = y_axis(plot, Axis::log(ys()).filter(|_| plot.log_y), linear);
    let x = x_axis(plot.kind, points().map(|p| p.x).chain(plot.events.iter().map(|e| e.0).filter(|x| x.is_finite())));
    let sketch = Frame::new(&y, 0);
    let rows = event_rows(&x, &plot.events, sketch.left, sketch.right);
    let mut frame = Frame::new(&y, rows.iter().flatten().max().map_or(0, |r| r + 1));
    frame.y_axis(&y, y_name);
    frame.base();
    frame.x_axis(&x, &plot.x);
    frame.events(&x, &plot.events, &rows);
    // Dots first, so that the answers lie on top of the trials.
    let mut order: Vec<usize> = (0..plot.series.len()).collect();
    order.sort_by_key(|i| (!plot.series[*i].dots, !plot.series[*i].reference));
    for index in order {
        let series = &plot.series[index];
        let look = style(merged, index, many_duts);
        let mut shown: Vec<&Point> = series.points.iter().filter(|p| p.x.is_finite() && p.y.is_finite()).collect();
        let at = |p: &Point| (frame.x(x.at(p.x)), frame.y(y.at(p.y)));
        let mut out = format!("<g class=\"{}\">", class(look));
        if series.dots || (plot.kind == PlotKind::Dots && !series.reference) {
            for p in &shown {
                let (px, py) = at(p);
                let size = if series.dots { 2.4 } else { 3.2 };
                let invalid = p.trial.is_some_and(|n| merged.invalid.contains(&n));
                // Behind a curve dots are faint; where they are all there is, they are not.
                let class = match (invalid, series.dots && plot.kind != PlotKind::Dots) {
                    (true, _) => "invalid",
                    (false, true) => "faint",
                    (false, false) => "",
                };
                let tip = tip(series, p, plot.kind) + if invalid { ", invalid" } else { "" };
                out += &dot(class, look.place, px, py, size, &tip);
            }
        } else {
            shown.sort_by(|a, b| a.x.total_cmp(&b.x));
            let pixels: Vec<(f64, f64)> = shown.iter().map(|p| at(p)).collect();
            let line = if series.reference {
                format!("ref f{}", look.place.min(1))
            } else {
                format!("line l{}", look.place.min(4))
            };
            let _ = write!(
                out,
                "<path class=\"{line}\" d=\"{}\"><title>{}</title></path>",
                path(&pixels),
                escape(&series.name)
            );
            for p in shown.iter().filter(|p| p.range.is_some()) {
                let (low, high) = p.range.unwrap_or((p.y, p.y));
                let (px, _) = at(p);
                let (a, b) = (frame.y(y.at(low)), frame.y(y.at(high)));
                let _ = write!(
                    out,
                    "<path class=\"whisker\" d=\"M{:.1} {a:.1}h8M{:.1} {b:.1}h8M{px:.1} {a:.1}V{b:.1}\"/>",
                    px - 4.0,
                    px - 4.0
                );
            }
            if !series.reference && shown.len() <= MOST_MARKERS {
                for (p, (px, py)) in shown.iter().zip(&pixels) {
                    out += &marker(look.place, *px, *py, &tip(series, p, plot.kind));
                }
            }
        }
        out += "</g>";
        frame.push(&out);
    }
    frame.finish(&plot.title, 50.0)
}

/// The y axis and its title. Times on a logarithmic axis have their unit at each tick and none in the title.
pub fn y_axis(plot: &Plot, log: Option<Axis>, linear: impl Fn() -> Axis) -> (Axis, &str) {
    let title = plot.y.as_str();
    let Some(log) = log else { return (linear(), title) };
    for (unit, ns) in [("\u{b5}s", 1e3), ("ms", 1e6)] {
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
    let low = xs.clone().fold(f64::INFINITY, f64::min);
    let high = xs.fold(f64::NEG_INFINITY, f64::max);
    if !low.is_finite() {
        return Axis::linear(0.0, 1.0, 6, true);
    }
    // An axis that begins near zero begins at zero.
    let low = if low > 0.0 && low < high * 0.3 { 0.0 } else { low };
    let nice = high <= low;
    Axis::linear(low, high, 8, nice)
}

fn tip(series: &Series, p: &Point, kind: PlotKind) -> String {
    let x = if kind == PlotKind::Percentiles { format!("{} %", p.x) } else { number(p.x, "") };
    let range = p.range.map(|(a, b)| format!(" ({} to {})", number(a, ""), number(b, ""))).unwrap_or_default();
    let trial = p.trial.map(|t| format!(", trial {t}")).unwrap_or_default();
    format!("{}: {x} \u{2192} {}{range}{trial}", series.name, number(p.y, ""))
}

/// The path through pixels in x order. Where many fall on one column of pixels the first, the lowest, the highest and
/// the last are kept, so that no peak is lost.
fn path(pixels: &[(f64, f64)]) -> String {
    let mut out = String::new();
    let push = |out: &mut String, (x, y): (f64, f64)| {
        let _ = write!(out, "{}{x:.1} {y:.1}", if out.is_empty() { 'M' } else { 'L' });
    };
    if (pixels.len() as f64) < 3.0 * WIDTH {
        for p in pixels {
            push(&mut out, *p);
        }
        return out;
    }
    for column in pixels.chunk_by(|a, b| a.0.round() == b.0.round()) {
        let extreme = |sign: f64| {
            (0..column.len()).min_by(|a, b| (sign * column[*a].1).total_cmp(&(sign * column[*b].1))).unwrap_or(0)
        };
        let mut keep = vec![0, extreme(1.0), extreme(-1.0), column.len() - 1];
        keep.sort_unstable();
        keep.dedup();
        for i in keep {
            push(&mut out, column[i]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_one_peak() {
        let mut pixels: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i) * 0.007, 100.0)).collect();
        pixels[51_234].1 = 3.0;
        let text = path(&pixels);
        assert!(text.contains(" 3.0L"), "the peak is gone");
        assert!(text.len() < 60_000, "{} bytes", text.len());
    }
}
