//! Draws long series in few bytes: only what each column of pixels can show.

use super::frame::WIDTH;
use std::fmt::Write;

/// Series with fewer points than this are drawn point by point.
const LONG: f64 = 3.0 * WIDTH;
/// Up to this many dots are separate shapes with tooltips; more become one path.
pub const MOST_DOTS: usize = 2_000;
/// Dots of a long series share cells of this many pixels.
const CELL: f64 = 3.0;

/// How y changes between two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Linearly.
    Line,
    /// It stays until the next point.
    After,
    /// It changes right after the previous point.
    Before,
}

/// Indices of the pixels to draw, of pixels in x order. Of many pixels in one column, keeps the first, the lowest, the
/// highest and the last, so that no peak is lost.
fn kept(pixels: &[(f64, f64)]) -> Vec<usize> {
    if (pixels.len() as f64) < LONG {
        return (0..pixels.len()).collect();
    }
    let mut out = Vec::new();
    let mut start = 0;
    for column in pixels.chunk_by(|a, b| a.0.round() == b.0.round()) {
        let extreme = |sign: f64| {
            (0..column.len()).min_by(|a, b| (sign * column[*a].1).total_cmp(&(sign * column[*b].1))).unwrap_or(0)
        };
        let mut keep = [0, extreme(1.0), extreme(-1.0), column.len() - 1].map(|i| start + i).to_vec();
        keep.sort_unstable();
        keep.dedup();
        out.append(&mut keep);
        start += column.len();
    }
    out
}

/// The path through pixels in x order.
pub fn path(pixels: &[(f64, f64)], join: Join) -> String {
    let mut out = String::new();
    // Compare coordinates as they are written, to leave out moves of length 0.
    let tenths = |v: f64| (v * 10.0).round();
    let mut last: Option<(f64, f64)> = None;
    for i in kept(pixels) {
        let (x, y) = pixels[i];
        let (across, up) = last.map_or((true, true), |l| (tenths(l.0) != tenths(x), tenths(l.1) != tenths(y)));
        let _ = match (last, join) {
            (None, _) => write!(out, "M{x:.1} {y:.1}"),
            (_, Join::Line) => write!(out, "L{x:.1} {y:.1}"),
            _ if !across && !up => Ok(()),
            _ if !across => write!(out, "V{y:.1}"),
            _ if !up => write!(out, "H{x:.1}"),
            (_, Join::After) => write!(out, "H{x:.1}V{y:.1}"),
            (_, Join::Before) => write!(out, "V{y:.1}H{x:.1}"),
        };
        last = Some((x, y));
    }
    out
}

/// Many dots as one path of points, for a round line cap: the lowest and the highest of each column of pixels, and one per
/// cell between them. Pixels may be in any order.
pub fn dots(pixels: &[(f64, f64)]) -> String {
    let mut all: Vec<(i64, i64, f64, f64)> =
        pixels.iter().map(|(x, y)| (x.round() as i64, (y / CELL) as i64, *x, *y)).collect();
    all.sort_by(|a, b| (a.0).cmp(&b.0).then(a.3.total_cmp(&b.3)));
    let mut taken = std::collections::HashSet::new();
    let mut out = String::new();
    for column in all.chunk_by(|a, b| a.0 == b.0) {
        for (i, (_, cell, x, y)) in column.iter().enumerate() {
            let end = i == 0 || i == column.len() - 1;
            if taken.insert(((*x / CELL) as i64, *cell)) || end {
                let _ = write!(out, "M{x:.1} {y:.1}h0");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_single_peak() {
        let mut pixels: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i) * 0.007, 100.0)).collect();
        pixels[51_234].1 = 3.0;
        for join in [Join::Line, Join::After, Join::Before] {
            let text = path(&pixels, join);
            let peak = if join == Join::Line { " 3.0L" } else { "V3.0" };
            assert!(text.contains(peak), "the peak is gone");
            assert!(text.len() < 60_000, "{} bytes", text.len());
        }
        assert!(path(&pixels, Join::After).len() < 6_000, "a level column is one move");
    }

    #[test]
    fn stairs_change_after_or_before() {
        let pixels = [(0.0, 10.0), (5.0, 20.0), (9.0, 20.0), (9.0, 5.0)];
        assert_eq!(path(&pixels, Join::After), "M0.0 10.0H5.0V20.0H9.0V5.0");
        assert_eq!(path(&pixels, Join::Before), "M0.0 10.0V20.0H5.0H9.0V5.0");
        assert_eq!(path(&pixels, Join::Line), "M0.0 10.0L5.0 20.0L9.0 20.0L9.0 5.0");
    }

    #[test]
    fn many_dots_are_few_bytes_with_their_extremes() {
        // A cloud over the whole area, and one dot far above it.
        let mut pixels: Vec<(f64, f64)> =
            (0..200_000u32).map(|i| (f64::from(i % 700), f64::from(i.wrapping_mul(2_654_435_761) >> 24))).collect();
        pixels.push((333.3, -40.0));
        let text = dots(&pixels);
        assert!(text.contains("M333.3 -40.0h0"));
        assert!(text.len() < 400_000, "{} bytes", text.len());
        assert_eq!(dots(&[(1.0, 2.0), (1.2, 2.1), (1.1, 2.2)]), "M1.0 2.0h0M1.1 2.2h0");
    }
}
