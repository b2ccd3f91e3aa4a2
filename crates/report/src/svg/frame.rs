//! Parts of all plots: frame, axes, grid, markers.

use super::escape;
use super::scale::Axis;
use std::fmt::Write;

/// Width of the drawing in its own units.
pub const WIDTH: f64 = 720.0;
/// Height of the data area.
const DATA_HEIGHT: f64 = 270.0;
/// Approximate width of a character of the label font.
pub const CHAR: f64 = 7.0;

/// A drawing and the ends of its data area.
#[derive(Debug)]
pub struct Frame {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    body: String,
}

impl Frame {
    /// A frame for this y axis, with `event_rows` rows of event labels on top.
    pub fn new(y: &Axis, event_rows: usize) -> Frame {
        let widest = y.ticks.iter().map(|t| t.1.chars().count()).max().unwrap_or(1);
        let left = 14.0 + widest as f64 * CHAR;
        let top = 26.0 + event_rows as f64 * 15.0;
        Frame { left, right: WIDTH - 22.0, top, bottom: top + DATA_HEIGHT, body: String::new() }
    }

    /// Pixel of a share (0 to 1) of the x axis.
    pub fn x(&self, share: f64) -> f64 {
        self.left + (self.right - self.left) * share
    }

    /// Pixel of a share of the y axis.
    pub fn y(&self, share: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * share
    }

    /// Adds raw SVG.
    pub fn push(&mut self, svg: &str) {
        self.body.push_str(svg);
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let _ = write!(self.body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
    }

    /// Horizontal grid lines, tick labels and title of the y axis.
    pub fn y_axis(&mut self, axis: &Axis, title: &str) {
        let (left, right) = (self.left, self.right);
        for (value, label) in &axis.ticks {
            let y = self.y(axis.at(*value));
            let class = if *value == 0.0 { "axis" } else { "grid" };
            let _ = write!(self.body, "<path class=\"{class}\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>");
            self.text("tick e", left - 8.0, y + 4.0, label);
        }
        let _ = write!(self.body, "<text class=\"name\" x=\"2\" y=\"12\">{}</text>", escape(title));
    }

    /// Ticks and title of a continuous x axis.
    pub fn x_axis(&mut self, axis: &Axis, title: &str) {
        let bottom = self.bottom;
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in &axis.ticks {
            let x = self.x(axis.at(*value));
            let _ = write!(self.body, "<path class=\"axis\" d=\"M{x:.1} {bottom:.1}v5\"/>");
            let half = label.chars().count() as f64 * CHAR / 2.0;
            if x - half < free_from {
                continue;
            }
            free_from = x + half + 4.0;
            // The last label stays on the paper.
            self.text("tick m", x.min(WIDTH - half), bottom + 19.0, label);
        }
        self.x_name(title, 38.0);
    }

    /// Title of the x axis, `below` the data area.
    pub fn x_name(&mut self, title: &str, below: f64) {
        self.text("name m", (self.left + self.right) / 2.0, self.bottom + below, title);
    }

    /// The base line.
    pub fn base(&mut self) {
        let _ =
            write!(self.body, "<path class=\"axis\" d=\"M{:.1} {:.1}H{:.1}\"/>", self.left, self.bottom, self.right);
    }

    /// The finished `<svg>` element; `below` is its height under the data area.
    pub fn finish(self, title: &str, below: f64) -> String {
        format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            self.bottom + below,
            escape(title),
            self.body
        )
    }
}

fn tooltip(tip: &str) -> String {
    if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) }
}

/// A dot of a single trial: shape `place`, radius about `r`, a tooltip, and an additional `class`.
pub fn dot(class: &str, place: usize, x: f64, y: f64, r: f64, tip: &str) -> String {
    let title = tooltip(tip);
    let space = if class.is_empty() { "" } else { " " };
    match place % 4 {
        0 => format!("<circle class=\"dot{space}{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\">{title}</circle>"),
        n => {
            let shape = match n {
                1 => format!("M{:.1} {:.1}h{s:.1}v{s:.1}h-{s:.1}z", x - 0.9 * r, y - 0.9 * r, s = 1.8 * r),
                2 => format!("M{x:.1} {:.1}l{:.1} {:.1}h-{:.1}z", y - 1.2 * r, 1.2 * r, 2.0 * r, 2.4 * r),
                _ => format!("M{x:.1} {:.1}l{d:.1} {d:.1}l-{d:.1} {d:.1}l-{d:.1} -{d:.1}z", y - 1.25 * r, d = 1.25 * r),
            };
            format!("<path class=\"dot{space}{class}\" d=\"{shape}\">{title}</path>")
        }
    }
}

/// A marker of shape `place` with a tooltip.
pub fn marker(place: usize, x: f64, y: f64, tip: &str) -> String {
    let title = tooltip(tip);
    match place % 4 {
        0 => format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\">{title}</circle>"),
        1 => format!(
            "<rect class=\"mark\" x=\"{:.1}\" y=\"{:.1}\" width=\"6\" height=\"6\">{title}</rect>",
            x - 3.0,
            y - 3.0
        ),
        2 => format!("<path class=\"mark\" d=\"M{x:.1} {:.1}l4 7h-8z\">{title}</path>", y - 4.2),
        _ => format!("<path class=\"mark\" d=\"M{x:.1} {:.1}l4 4l-4 4l-4-4z\">{title}</path>", y - 4.0),
    }
}
