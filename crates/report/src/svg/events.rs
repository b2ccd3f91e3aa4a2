//! Finds places for the texts of vertical marks, so that no text hides another and no line crosses a text.

use super::escape;
use super::frame::{CHAR, Frame, WIDTH};
use super::scale::Axis;
use crate::format::ellipsis;
use std::cmp::Ordering;
use std::fmt::Write;

/// Rows of texts above the data area.
const ROWS: usize = 4;
/// Height of a row.
const ROW: f64 = 15.0;
/// Longer texts end with an ellipsis; the tooltip has the whole text.
const LONGEST: usize = 46;

/// Class of a guide line, which is not an event and never gets a number.
pub const GUIDE: &str = "guide";

/// A vertical mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub x: f64,
    pub text: String,
    /// Text of the tooltip.
    pub tip: String,
    /// Additional class: a colour, or [`GUIDE`].
    pub class: String,
}

/// Place of the text of a mark.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    row: usize,
    /// True if the text is left of its line.
    left: bool,
}

/// The marks of a plot, each with the place of its text.
#[derive(Debug)]
pub struct Marks<'a> {
    marks: &'a [Mark],
    places: Vec<Option<Place>>,
}

/// Finds a place for each text, in this order. Tries `sides` (true for left) in this order.
fn arrange(lines: &[f64], widths: &[f64], order: &[usize], sides: [bool; 2]) -> Vec<Option<Place>> {
    let span = |i: usize, p: Place| {
        if p.left { (lines[i] - widths[i], lines[i]) } else { (lines[i], lines[i] + widths[i]) }
    };
    let crosses = |line: f64, text: (f64, f64)| text.0 - 2.0 < line && line < text.1;
    let mut places: Vec<Option<Place>> = vec![None; lines.len()];
    for (done, index) in order.iter().enumerate() {
        let line = lines[*index];
        let free = |p: &Place| {
            let own = span(*index, *p);
            let mut others = order[..done].iter().filter_map(|o| places[*o].map(|q| (lines[*o], q, span(*o, q))));
            own.0 >= 0.0
                && own.1 <= WIDTH
                // A line goes down from the row of its text, and must not cross a text in a row below.
                && others.all(|(other, q, text)| match p.row.cmp(&q.row) {
                    Ordering::Equal => own.1 <= text.0 || text.1 <= own.0,
                    Ordering::Greater => !crosses(line, text),
                    Ordering::Less => !crosses(other, own),
                })
        };
        let all = sides.into_iter().flat_map(|left| (0..ROWS).map(move |row| Place { row, left }));
        places[*index] = all.into_iter().find(free);
    }
    places
}

impl<'a> Marks<'a> {
    /// Finds the lowest free place for each text; `left` and `right` bound the data area. A number replaces a text without
    /// a free place, in a separate row below the texts.
    pub fn new(axis: &Axis, marks: &'a [Mark], left: f64, right: f64) -> Marks<'a> {
        let lines: Vec<f64> = marks.iter().map(|m| left + (right - left) * axis.at(m.x)).collect();
        let width = |m: &Mark| ellipsis(&m.text, LONGEST).chars().count() as f64 * CHAR + 10.0;
        let widths: Vec<f64> = marks.iter().map(width).collect();
        let mut rising: Vec<usize> = (0..marks.len()).collect();
        rising.sort_by(|a, b| lines[*a].total_cmp(&lines[*b]).then(a.cmp(b)));
        let falling: Vec<usize> = rising.iter().rev().copied().collect();
        // Texts go right of their lines, from the last to the first, each above the texts that it would reach. Near the
        // right end they go left, from the first to the last. Try with no texts, with only the necessary texts, and with
        // all texts on the left, and take the variant that shows the most texts.
        let at_end = |i: &usize| lines[*i] + widths[*i] > WIDTH;
        let mixed: Vec<usize> =
            rising.iter().filter(|i| at_end(i)).chain(falling.iter().filter(|i| !at_end(i))).copied().collect();
        let tries = [(&falling, [false, true]), (&mixed, [false, true]), (&rising, [true, false])];
        let found = tries.into_iter().map(|(order, sides)| arrange(&lines, &widths, order, sides));
        let unnamed = |places: &Vec<Option<Place>>| places.iter().filter(|p| p.is_none()).count();
        Marks { marks, places: found.min_by_key(unnamed).unwrap_or_default() }
    }

    /// Marks without room for their text, in order of x. The drawing numbers them from 1.
    pub fn numbered(&self) -> Vec<usize> {
        let unnamed = |i: &usize| self.places[*i].is_none() && self.marks[*i].class != GUIDE;
        let mut out: Vec<usize> = (0..self.marks.len()).filter(unnamed).collect();
        out.sort_by(|a, b| self.marks[*a].x.total_cmp(&self.marks[*b].x));
        out
    }

    /// Number of rows of texts and numbers.
    pub fn rows(&self) -> usize {
        let texts = self.places.iter().flatten().map(|p| p.row + 1).max().unwrap_or(0);
        texts + self.numbers_row()
    }

    fn numbers_row(&self) -> usize {
        usize::from(!self.numbered().is_empty())
    }

    /// Draws lines and texts.
    pub fn draw(&self, axis: &Axis, frame: &mut Frame) {
        let numbers = self.numbers_row();
        for (mark, place) in self.marks.iter().zip(&self.places) {
            let x = frame.x(axis.at(mark.x));
            let y = |row: usize| frame.top - 6.0 - (row + numbers) as f64 * ROW;
            let from = place.map_or(frame.top, |p| y(p.row) + 3.0);
            let mut out = format!(
                "<g class=\"event {}\"><path d=\"M{x:.1} {from:.1}V{:.1}\"/><title>{}</title>",
                mark.class,
                frame.bottom,
                escape(&mark.tip)
            );
            if let Some(p) = place {
                let (anchor, x) = if p.left { ("e", x - 4.0) } else { ("s", x + 4.0) };
                let y = y(p.row);
                let text = escape(&ellipsis(&mark.text, LONGEST));
                let _ = write!(out, "<text class=\"tick {anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
            }
            frame.push(&(out + "</g>"));
        }
        // Numbers that would touch become one text: 3–5.
        let numbered = self.numbered();
        let at = |n: usize| frame.x(axis.at(self.marks[numbered[n]].x));
        let mut groups: Vec<(usize, usize, f64)> = Vec::new();
        for n in 0..numbered.len() {
            match groups.last_mut() {
                Some((_, last, end)) if at(n) < *end => {
                    *last = n;
                    *end = end.max(at(n) + 3.0 * CHAR);
                }
                _ => groups.push((n, n, at(n) + 4.0 * CHAR)),
            }
        }
        let texts = groups.into_iter().map(|(a, b, _)| {
            let text = if a == b { format!("{}", a + 1) } else { format!("{}\u{2013}{}", a + 1, b + 1) };
            let x = (at(a) + at(b)) / 2.0;
            format!("<text class=\"tick number m\" x=\"{x:.1}\" y=\"{:.1}\">{text}</text>", frame.top - 4.0)
        });
        let texts: String = texts.collect();
        frame.push(&texts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(xs: &[f64], text: &str) -> Vec<Mark> {
        xs.iter().map(|x| Mark { x: *x, text: text.into(), tip: text.into(), class: String::new() }).collect()
    }

    #[test]
    fn texts_do_not_overlap_and_numbers_replace_texts_without_room() {
        let axis = Axis::linear(0.0, 10.0, 5, true);
        let events = marks(&[1.0, 1.1, 9.9, 1.2, 1.3, 1.4], "withdraw 1000 routes");
        // Of the five on the left, the earliest would need a fifth row. The one on the right has its text on its left.
        let laid = Marks::new(&axis, &events, 50.0, 700.0);
        let rows: Vec<_> = laid.places.iter().map(|p| p.map(|p| (p.row, p.left))).collect();
        let right = |row| Some((row, false));
        assert_eq!(rows, [None, right(3), Some((0, true)), right(2), right(1), right(0)]);
        assert_eq!((laid.numbered(), laid.rows()), (vec![0], 5));
    }

    #[test]
    fn no_line_crosses_a_text_that_is_left_of_its_own_line() {
        let axis = Axis::linear(0.0, 10.0, 5, true);
        let events = marks(&[9.5, 9.9], "re-advertise all");
        let laid = Marks::new(&axis, &events, 50.0, 700.0);
        // Both go left. If the later text were below, the line of the earlier mark would cross it.
        let rows: Vec<_> = laid.places.iter().map(|p| p.map(|p| (p.row, p.left))).collect();
        assert_eq!(rows, [Some((0, true)), Some((1, true))]);
        assert_eq!(laid.rows(), 2);
    }

    #[test]
    fn many_different_marks_never_hide_each_other() {
        let axis = Axis::linear(0.0, 10.0, 5, true);
        let x = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 12) / f64::from(1 << 20) * 10.0;
        for seed in 0..200 {
            let text = |i: u32| "abcdefghijklmnopqrstuvwxyz"[..3 + (i as usize * 7) % 20].to_owned();
            let mark = |i: u32| Mark { x: x(seed * 31 + i), text: text(i), tip: String::new(), class: String::new() };
            let events: Vec<Mark> = (0..3 + seed % 15).map(mark).collect();
            let laid = Marks::new(&axis, &events, 50.0, 700.0);
            let line = |i: usize| 50.0 + 65.0 * events[i].x;
            let named: Vec<(usize, Place)> =
                laid.places.iter().enumerate().filter_map(|(i, p)| p.map(|p| (i, p))).collect();
            assert!(named.len() * 2 > events.len(), "seed {seed}: {} of {}", named.len(), events.len());
            for (i, p) in &named {
                let width = events[*i].text.len() as f64 * CHAR;
                let (from, to) = if p.left { (line(*i) - width, line(*i)) } else { (line(*i), line(*i) + width) };
                assert!(from >= 0.0 && to <= WIDTH);
                for (j, q) in named.iter().filter(|(j, _)| j != i) {
                    assert!(
                        q.row <= p.row || !(from < line(*j) && line(*j) < to),
                        "seed {seed}: a line crosses a text"
                    );
                    assert!(q.row != p.row || (q.left, p.left) != (p.left, q.left) || line(*i) != line(*j));
                }
            }
        }
    }

    #[test]
    fn a_hundred_marks_stay_few_texts() {
        let axis = Axis::linear(0.0, 10.0, 5, true);
        let xs: Vec<f64> = (0..100).map(|i| 5.0 + f64::from(i) * 0.001).collect();
        let events = marks(&xs, "flap");
        let laid = Marks::new(&axis, &events, 50.0, 700.0);
        let mut frame = Frame::new(&axis, laid.rows());
        laid.draw(&axis, &mut frame);
        let svg = frame.finish("t", 10.0);
        assert_eq!(svg.matches("<path").count(), 100);
        assert!(svg.matches("<text").count() < 12, "{}", svg.matches("<text").count());
    }
}
