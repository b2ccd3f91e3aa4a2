//! The results of a test: tables, plots, figures to rank by, verdicts. A report needs nothing else to show a new test.
//!
//! # Missing figures
//!
//! A figure without a value contains the reason, and who is to blame ([`Missing`]): the DUT failed, an attempt was
//! spoilt, or this tester or user cannot measure it at all. Only spoilt figures change the exit code. The testbed
//! monitors periods without traffic like trials (`Routing::watch_host`): if the host disturbs them, they are measured
//! again or their results become bounds.

use crate::figure::Doubt;
use crate::figure::{Claim, REFUTED, Refutation};
use crate::figure::{Decision, Figure, RoundFigure, Scale};
use crate::suite::Expectation;
use serde::{Deserialize, Serialize};

/// The outcome of one test on one DUT.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Tables; the report merges the same table of several DUTs into one, with the DUT as first column.
    pub tables: Vec<Table>,
    /// Plots; the report merges plots of several DUTs with the same `key` into one.
    pub plots: Vec<Plot>,
    /// Figures to rank routers by, in order of importance.
    pub ranks: Vec<RankFigure>,
    /// Verdicts on the suite's criteria.
    pub verdicts: Vec<Verdict>,
    /// Remarks for the reader ("tester-limited", "irregular: no upper bound", "not conformant").
    pub notes: Vec<String>,
    /// Deviations of this test from its source; those of the suite are in
    /// [`Started::deviations`](crate::record::Started::deviations).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deviations: Vec<String>,
    /// For combined rounds: the result of each round, in order, for a figure that no round has. Not stored, because
    /// each round has its own record.
    #[serde(skip)]
    pub without_figure: Vec<RoundFigure>,
}

/// A table of the outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Key, the same on every DUT.
    pub key: String,
    /// Heading.
    pub title: String,
    /// Columns in order.
    pub columns: Vec<Column>,
    /// Rows; each as long as `columns`.
    pub rows: Vec<Row>,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Key with unit, for CSV and JSON: `throughput_pps`.
    pub key: String,
    /// Heading: `Throughput`.
    pub title: String,
    /// Unit in the heading: `fps`, `%`, `µs`, or empty.
    pub unit: String,
}

impl Column {
    /// Creates a column from its three texts.
    pub fn new(key: &str, title: &str, unit: &str) -> Self {
        Column { key: key.into(), title: title.into(), unit: unit.into() }
    }
}

/// One row, with the trials from which its figures come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Cells in column order.
    pub cells: Vec<Cell>,
    /// Trials from which this row comes; the report can show their conditions.
    pub trials: Vec<u64>,
    /// Marks for this row ("tester-limited").
    pub marks: Vec<String>,
}

/// Start of the mark of a row if the tester limited its figures.
pub const TESTER_LIMITED: &str = "tester-limited";
/// Unit of frame rates per sending port.
pub const FPS_PER_PORT: &str = "fps per port";
/// Start of the mark of a row if the suite limited its figures.
pub const CAPPED: &str = "limited by max_load";
/// Start of the mark of a doubtful row (`judge::doubt`).
pub const DOUBTFUL: &str = "doubtful: ";

impl Row {
    /// True if the tester or the suite limited its figures.
    pub fn is_limited(&self) -> bool {
        self.marks.iter().any(|mark| mark.starts_with(TESTER_LIMITED) || mark.starts_with(CAPPED))
    }

    /// True if something other than the DUT may have lost frames.
    pub fn is_doubtful(&self) -> bool {
        self.marks.iter().any(|mark| mark.starts_with(DOUBTFUL))
    }

    /// True if other trials contradict its figures.
    pub fn is_refuted(&self) -> bool {
        self.marks.iter().any(|mark| mark.contains(REFUTED))
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// No value. Shown as a dash, never as 0.
    None,
    /// A whole number.
    Count(u64),
    /// A number with a fraction.
    Number(f64),
    /// Text.
    Text(String),
}

impl From<u64> for Cell {
    fn from(n: u64) -> Cell {
        Cell::Count(n)
    }
}
impl From<f64> for Cell {
    fn from(n: f64) -> Cell {
        if n.is_finite() { Cell::Number(n) } else { Cell::None }
    }
}
impl From<&str> for Cell {
    fn from(t: &str) -> Cell {
        Cell::Text(t.into())
    }
}
impl From<String> for Cell {
    fn from(t: String) -> Cell {
        Cell::Text(t)
    }
}
impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(o: Option<T>) -> Cell {
        o.map_or(Cell::None, Into::into)
    }
}

/// A plot of the outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Key, the same on every DUT; plots with the same key are drawn as one.
    pub key: String,
    /// Heading.
    pub title: String,
    /// How to draw.
    pub kind: PlotKind,
    /// Label of the x axis with unit.
    pub x: String,
    /// Label of the y axis with unit.
    pub y: String,
    /// True to draw the y axis logarithmically.
    pub log_y: bool,
    /// Series of this DUT.
    pub series: Vec<Series>,
    /// Vertical marks: (x, text), for kinds with a numeric x. The same text at almost the same x on several DUTs is
    /// drawn once.
    pub events: Vec<(f64, String)>,
    /// Shaded ranges of x, for the same kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
}

/// A shaded range of x in a plot: the time in which the tester did something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// First and last x.
    pub x: (f64, f64),
    /// What it is.
    pub text: String,
}

/// How a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlotKind {
    /// Bars by category ([`Point::label`]), with a reference series as a line.
    Bars,
    /// Bars from minimum to maximum with a mark at the average, by category.
    Ranges,
    /// Connected points in x order.
    Line,
    /// Single points that are not connected.
    Dots,
    /// Latency by percentile: x is the percentile 0 to 100, on an axis of nines, log(1/(1-p)).
    Percentiles,
    /// A filled skyline: y applies from a point's x to the next point's x (routes present over time).
    Area,
    /// Stairs: y applies from the previous point's x, or the beginning of the axis, to the point's own x. So a point is
    /// a step: x is the number reached (routes), y is what it took (time, memory).
    Steps,
    /// A sorted curve: x is a share in %, 0 to 100; y is the value that this share does not exceed (convergence times
    /// of all routes, ascending), with marks at minimum, median, 99 % and maximum. If the curve ends before 100 %, the
    /// rest never arrived.
    Sorted,
}

/// One series of a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name without the DUT ("64 bytes", "theoretical"); the report prepends the DUT.
    pub name: String,
    /// True for a series that is the same on all DUTs (the theoretical line rate) and is drawn once.
    pub reference: bool,
    /// True for faint, unconnected dots behind a curve: the trials, not the result.
    pub dots: bool,
    /// The points.
    pub points: Vec<Point>,
}

/// One point of a series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// x; for categories, their order.
    pub x: f64,
    /// y (the average for ranges).
    pub y: f64,
    /// Category, for [`PlotKind::Bars`] and [`PlotKind::Ranges`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Lower and upper end, for [`PlotKind::Ranges`] and error bars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
    /// The trial of this point, if it comes from a single trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<u64>,
}

/// A figure to rank DUTs by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankFigure {
    /// Key with unit, the same on every DUT: `throughput_64_pps`.
    pub key: String,
    /// Title: `Throughput, 64 bytes`.
    pub title: String,
    /// Unit in texts.
    pub unit: String,
    /// The figure; absent if the DUT could not be measured, so that it ranks last.
    pub value: Option<f64>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
    /// True if a larger figure is better.
    pub higher_is_better: bool,
    /// True if the tester, not the DUT, set the limit: the figure is a bound.
    pub tester_limited: bool,
    /// True if a limit of the suite (`max_load`, `max_routes`) was reached first: the figure is a bound, and nobody is
    /// to blame.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub capped: bool,
    /// Resolution of the measurement: a share of the figure (the width of the search), or a number in its unit if
    /// figures are compared by difference.
    pub resolution: f64,
    /// How to compare these figures.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub scale: Scale,
    /// Smallest difference that matters in practice: a share, or a number in the figure's unit.
    #[serde(default = "three_percent", skip_serializing_if = "is_three_percent")]
    pub least: f64,
    /// Load of the measurement, in frames per second per sending port, if the figure depends on the load. Only figures
    /// at the same load are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_pps: Option<f64>,
    /// Implications of the figure for other loads, if other trials can contradict it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// True if lost frames cannot change the figure, so that they raise no doubt (`judge::doubt`).
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub independent_of_loss: bool,
    /// The figure in each trial, in order, if all DUTs were measured simultaneously: sample i of one DUT pairs with
    /// sample i of another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    /// Trials that contradict the figure. Not stored, because they may be run after the test.
    #[serde(skip)]
    pub refuted: Vec<Refutation>,
    /// Trials that make it doubtful. Not stored, because they follow from the stored trials.
    #[serde(skip)]
    pub doubts: Vec<Doubt>,
    /// The figure of each round, in order, for combined rounds. Not stored, because each round has its own record.
    #[serde(skip)]
    pub rounds: Vec<RoundFigure>,
    /// [`RankFigure::samples`] of each round. Not stored, either.
    #[serde(skip)]
    pub round_samples: Vec<Vec<f64>>,
    /// [`RankFigure::load_pps`] of each round. Not stored, either.
    #[serde(skip)]
    pub round_loads: Vec<Option<f64>>,
}

/// Why a figure has no value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The reason: `not finished before the next event`.
    pub why: String,
    /// Who is to blame.
    pub by: Blame,
}

/// Who is to blame for a figure without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The DUT, which failed.
    Dut,
    /// The tester or its host spoilt every attempt. It may work at another time.
    Spoilt,
    /// The environment: this tester or user cannot measure it at all, for example because it requires root, or a load
    /// that the tester cannot offer.
    Beyond,
    /// Nobody: there is nothing to measure, because the DUT is as fast as the line or the tester.
    Nothing,
}

/// Loads count as the same if they differ by at most this share.
pub const SAME_LOAD: f64 = 0.05;

/// True if two loads are the same (within [`SAME_LOAD`]), or if one of them is absent.
pub fn are_same_load(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= SAME_LOAD * a.max(b),
        _ => true,
    }
}

/// Default of [`RankFigure::least`].
pub const LEAST_RATIO: f64 = 0.03;

fn three_percent() -> f64 {
    LEAST_RATIO
}

#[allow(clippy::trivially_copy_pass_by_ref, clippy::float_cmp)] // serde hands over a reference; the very default is left out
fn is_three_percent(least: &f64) -> bool {
    *least == LEAST_RATIO
}

impl RankFigure {
    /// The result of one round: the value, or a bound if the tester or the suite set the limit. `None` without a value.
    /// Rates and sizes are at least the value, times at most. Loss is also at least the value, because it may be higher
    /// at the load that the tester could not offer.
    pub fn figure(&self) -> Option<Figure> {
        let value = self.value.filter(|value| value.is_finite())?;
        Some(match (self.tester_limited || self.capped, self.higher_is_better, self.scale) {
            (false, ..) => Figure::exactly(value),
            (true, true, _) => Figure::at_least(value),
            // The tester's own time is part of the value.
            (true, false, Scale::Difference) if self.is_time() => Figure::at_most(value),
            (true, false, Scale::Difference) => Figure::at_least(value),
            (true, false, Scale::Ratio) => Figure::at_most(value),
        })
    }

    fn is_time(&self) -> bool {
        matches!(self.unit.as_str(), "s" | "ms" | "µs" | "ns")
    }

    /// Like [`RankFigure::figure`]. Without a value the DUT failed, unless [`Missing`] names another cause.
    pub fn round(&self) -> RoundFigure {
        match (self.figure(), &self.missing) {
            (Some(figure), _) => RoundFigure::Measured(figure),
            (None, Some(Missing { by: Blame::Spoilt | Blame::Beyond | Blame::Nothing, .. })) => {
                RoundFigure::NotMeasured
            }
            (None, _) => RoundFigure::Failed,
        }
    }

    /// A figure compared by ratio, for which lower is better.
    pub fn new(key: impl Into<String>, title: impl Into<String>, unit: &str, value: Option<f64>) -> RankFigure {
        RankFigure {
            key: key.into(),
            title: title.into(),
            unit: unit.into(),
            value,
            missing: None,
            higher_is_better: false,
            tester_limited: false,
            capped: false,
            resolution: 0.0,
            scale: Scale::Ratio,
            least: LEAST_RATIO,
            load_pps: None,
            claim: None,
            independent_of_loss: false,
            samples: Vec::new(),
            refuted: Vec::new(),
            doubts: Vec::new(),
            rounds: Vec::new(),
            round_samples: Vec::new(),
            round_loads: Vec::new(),
        }
    }

    /// The figure without a value, because the DUT failed for this reason.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> RankFigure {
        let missing = self.value.is_none().then(|| Missing { why: why.into(), by: Blame::Dut });
        RankFigure { missing, ..self }
    }

    /// The figure without a value, because tester or host spoilt every attempt for this reason.
    #[must_use]
    pub fn spoilt(self, why: impl Into<String>) -> RankFigure {
        RankFigure { value: None, missing: Some(Missing { why: why.into(), by: Blame::Spoilt }), ..self }
    }

    /// The figure without a value, because it cannot be measured here for this reason.
    #[must_use]
    pub fn beyond(self, why: impl Into<String>) -> RankFigure {
        RankFigure { value: None, missing: Some(Missing { why: why.into(), by: Blame::Beyond }), ..self }
    }

    /// The figure without a value, because there is nothing to measure for this reason.
    #[must_use]
    pub fn nothing(self, why: impl Into<String>) -> RankFigure {
        RankFigure { value: None, missing: Some(Missing { why: why.into(), by: Blame::Nothing }), ..self }
    }

    /// Like [`RankFigure::round`], but for a criterion. A refuted figure is a bound: the DUT does more, or less, by an
    /// unknown amount. A doubtful figure is a bound, too: the DUT may be better.
    pub fn judged(&self) -> RoundFigure {
        let (refuted, doubtful) = (|more| self.refuted.iter().any(|r| r.more == more), !self.doubts.is_empty());
        let more = refuted(true) || doubtful && self.higher_is_better;
        let less = refuted(false) || doubtful && !self.higher_is_better;
        match self.round() {
            RoundFigure::Measured(Figure { low, high }) => RoundFigure::Measured(Figure {
                low: if less { f64::NEG_INFINITY } else { low },
                high: if more { f64::INFINITY } else { high },
            }),
            RoundFigure::Failed if more || doubtful => RoundFigure::NotMeasured,
            other => other,
        }
    }

    /// True if both were measured at the same load (within [`SAME_LOAD`]), or if one of them does not depend on a load.
    pub fn same_load(&self, other: &RankFigure) -> bool {
        are_same_load(self.load_pps, other.load_pps)
    }
}

/// The result of a criterion in the suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The criterion: `throughput_64_pps >= 100000`.
    pub criterion: String,
    /// True if it is certainly met.
    pub pass: bool,
    /// True if it is neither certainly met nor certainly missed; `pass` is then false.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub undecided: bool,
    /// The result in words.
    pub found: String,
    /// The parsed criterion, to judge it again over all rounds; absent if it is not about a figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expectation>,
}

impl Verdict {
    /// A verdict that does not depend on more rounds.
    pub fn decided(criterion: impl Into<String>, pass: bool, found: impl Into<String>) -> Verdict {
        Verdict { criterion: criterion.into(), pass, undecided: false, found: found.into(), expected: None }
    }

    /// Met, missed or undecided.
    pub fn decision(&self) -> Decision {
        match (self.pass, self.undecided) {
            (true, _) => Decision::Met,
            (false, false) => Decision::Missed,
            (false, true) => Decision::Undecided,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_time_is_at_most_and_a_limited_loss_at_least() {
        let limited = |unit| {
            let figure = RankFigure::new("k", "K", unit, Some(800.0));
            RankFigure { tester_limited: true, scale: Scale::Difference, ..figure }.figure()
        };
        for unit in ["s", "ms", "µs", "ns"] {
            assert_eq!(limited(unit), Some(Figure::at_most(800.0)), "{unit}");
        }
        for unit in ["%", "frames", ""] {
            assert_eq!(limited(unit), Some(Figure::at_least(800.0)), "{unit}");
        }
    }
}
