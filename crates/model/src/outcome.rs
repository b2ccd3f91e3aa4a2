//! What a test found: tables, plots, a figure to rank by, verdicts. A report needs nothing else to show a new test.

use crate::doubt::Doubt;
use crate::refutation::{Claim, REFUTED, Refutation};
use crate::statistics::{Decision, Figure, RoundFigure, Rule, Scale};
use crate::suite::Expectation;
use serde::{Deserialize, Serialize};

/// The outcome of one test on one DUT.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Tables; the report puts the same table of several DUTs into one, with the DUT as first column.
    pub tables: Vec<Table>,
    /// Plots; the report merges plots with the same `key` of several DUTs into one.
    pub plots: Vec<Plot>,
    /// Figures by which routers are ranked, in order of importance.
    pub ranks: Vec<RankFigure>,
    /// Pass or fail where the suite states a criterion.
    pub verdicts: Vec<Verdict>,
    /// What the reader must know of these figures ("tester-limited", "irregular: no upper bound", "not conformant").
    pub notes: Vec<String>,
    /// In what the test, as it was done, deviates from its source; [`Started::deviations`](crate::record::Started::deviations) has
    /// what was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deviations: Vec<String>,
}

/// A table of the outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Same key on every DUT.
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
    /// Machine name with unit, for CSV and JSON: `throughput_pps`.
    pub key: String,
    /// Heading for people: `Throughput`.
    pub title: String,
    /// Unit for people: `fps`, `%`, `µs`, or empty.
    pub unit: String,
}

impl Column {
    /// A column from its three texts.
    pub fn new(key: &str, title: &str, unit: &str) -> Self {
        Column { key: key.into(), title: title.into(), unit: unit.into() }
    }
}

/// One row, with the trials that its figures come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Cells in column order.
    pub cells: Vec<Cell>,
    /// Trials behind this row; the report shows their conditions on demand.
    pub trials: Vec<u64>,
    /// Marks for this row ("tester-limited").
    pub marks: Vec<String>,
}

/// How the mark of a row begins whose figures the tester limited.
pub const TESTER_LIMITED: &str = "tester-limited";

impl Row {
    /// Did the tester limit its figures?
    pub fn is_limited(&self) -> bool {
        self.marks.iter().any(|mark| mark.starts_with(TESTER_LIMITED))
    }

    /// Do other trials contradict its figures?
    pub fn is_refuted(&self) -> bool {
        self.marks.iter().any(|mark| mark.contains(REFUTED))
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// Nothing to tell; shown as a dash, never as 0.
    None,
    /// A whole number.
    Count(u64),
    /// A number with a fraction.
    Number(f64),
    /// Words.
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
    /// Same key on every DUT: plots with the same key are drawn into one.
    pub key: String,
    /// Heading.
    pub title: String,
    /// How to draw.
    pub kind: PlotKind,
    /// Label of the x axis with unit.
    pub x: String,
    /// Label of the y axis with unit.
    pub y: String,
    /// Draw the y axis logarithmically.
    pub log_y: bool,
    /// Series of this DUT.
    pub series: Vec<Series>,
    /// Vertical marks: (x, text), for kinds whose x is a number. The same text at nearly the same x on several DUTs is drawn once.
    pub events: Vec<(f64, String)>,
}

/// How a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlotKind {
    /// Bars by category ([`Point::label`]); reference series (same on all DUTs) are drawn as a line.
    Bars,
    /// Bars from minimum to maximum with a mark at the average, by category.
    Ranges,
    /// Connected points in x order.
    Line,
    /// Single points, unconnected.
    Dots,
    /// Latency by percentile: x is the percentile 0 to 100, drawn on an axis of nines: log(1/(1-p)).
    Percentiles,
    /// A skyline, filled: y holds from a point's x to the x of the next one (routes present over time).
    Area,
    /// Stairs: y holds from the x of the point before up to the point's own, the first from the beginning of the axis. So a
    /// point is a step: x what was reached with it (routes), y what it took (time, memory).
    Steps,
    /// A sorted curve: x is a share in %, 0 to 100, y what that share stays within (convergence times of all routes,
    /// ascending). Minimum, median, 99 % and maximum are marked. A curve that ends before 100 % says that the rest never came.
    Sorted,
}

/// One series of a plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name without the DUT ("64 bytes", "theoretical"); the report prepends the DUT.
    pub name: String,
    /// True for what is the same on all DUTs (the theoretical line rate): drawn once.
    pub reference: bool,
    /// Dots behind a curve: every trial, rather than the answer. Drawn faint, unconnected.
    pub dots: bool,
    /// The points.
    pub points: Vec<Point>,
}

/// One point of a series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// x; for categories their order.
    pub x: f64,
    /// y (the average for ranges).
    pub y: f64,
    /// Category, for [`PlotKind::Bars`] and [`PlotKind::Ranges`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Lower and upper end, for [`PlotKind::Ranges`] and error bars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
    /// Trial that this point is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<u64>,
}

/// A figure by which DUTs are ranked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankFigure {
    /// Same key on every DUT, machine name with unit: `throughput_64_pps`.
    pub key: String,
    /// For people: `Throughput, 64 bytes`.
    pub title: String,
    /// Unit for people.
    pub unit: String,
    /// The figure; absent when the DUT could not be measured (it then ranks last).
    pub value: Option<f64>,
    /// Is more better?
    pub higher_is_better: bool,
    /// The tester, or the test's own maximum, set this limit, not the DUT: the figure is a bound.
    pub tester_limited: bool,
    /// A limit that the suite set (`max_load`) came before the DUT's: the figure is a bound, and nobody's fault.
    #[serde(default, skip_serializing_if = "is_false")]
    pub capped: bool,
    /// Step of the measurement: a share of the figure (the width of the search), or in the figure's unit where it is compared by
    /// difference.
    pub resolution: f64,
    /// How figures of this kind are compared.
    #[serde(default, skip_serializing_if = "is_ratio")]
    pub scale: Scale,
    /// Figures that are closer together are no different in practice: a share, or in the figure's unit.
    #[serde(default = "three_percent", skip_serializing_if = "is_three_percent")]
    pub least: f64,
    /// Load at which it was measured, in frames per second per sending port, where the figure is one of that load. Figures of different
    /// loads are not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_pps: Option<f64>,
    /// What the figure says of other loads, where other trials can contradict it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The trials that contradict it. Not stored: they may come after the test.
    #[serde(skip)]
    pub refuted: Vec<Refutation>,
    /// The trials that are a reason to doubt it. Not stored: they follow from the stored trials.
    #[serde(skip)]
    pub doubts: Vec<Doubt>,
    /// What each round says, in order, where the rounds have been put together. Not stored: each round has its own record.
    #[serde(skip)]
    pub rounds: Vec<RoundFigure>,
}

/// Loads that differ by no more than this share are one load.
pub const SAME_LOAD: f64 = 0.05;

/// [`RankFigure::least`] of figures that are compared by ratio, unless the test has a reason for another one.
pub const LEAST_RATIO: f64 = 0.03;

fn three_percent() -> f64 {
    LEAST_RATIO
}

#[allow(clippy::trivially_copy_pass_by_ref, clippy::float_cmp)] // serde hands over a reference; the very default is left out
fn is_three_percent(least: &f64) -> bool {
    *least == LEAST_RATIO
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands over a reference
fn is_ratio(scale: &Scale) -> bool {
    *scale == Scale::Ratio
}

impl RankFigure {
    /// What one round says: the value, or the bound that it is where the tester or the test's own maximum was the limit. `None`
    /// without a value. Rates and sizes are at least that, times at most. Loss is at least that, too: at the load that the
    /// tester could not offer it may be more.
    pub fn figure(&self) -> Option<Figure> {
        let value = self.value.filter(|value| value.is_finite())?;
        Some(match (self.tester_limited || self.capped, self.higher_is_better, self.scale) {
            (false, ..) => Figure::exactly(value),
            (true, true, _) | (true, false, Scale::Difference) => Figure::at_least(value),
            (true, false, Scale::Ratio) => Figure::at_most(value),
        })
    }

    /// The same, with the difference between a DUT that gave no figure and one that was not measured.
    pub fn round(&self) -> RoundFigure {
        self.figure().map_or(RoundFigure::Failed, RoundFigure::Measured)
    }

    /// The same for a criterion. A figure that was refuted is a bound: the DUT does more, or less, than it says, and nobody
    /// knows how much.
    pub fn judged(&self) -> RoundFigure {
        let (more, less) = (self.refuted.iter().any(|r| r.more), self.refuted.iter().any(|r| !r.more));
        match self.round() {
            RoundFigure::Measured(Figure { low, high }) => RoundFigure::Measured(Figure {
                low: if less { f64::NEG_INFINITY } else { low },
                high: if more { f64::INFINITY } else { high },
            }),
            RoundFigure::Failed if more => RoundFigure::NotMeasured,
            other => other,
        }
    }

    /// Were both measured at one load, or are they no figures of a load? By [`SAME_LOAD`].
    pub fn same_load(&self, other: &RankFigure) -> bool {
        match (self.load_pps, other.load_pps) {
            (Some(a), Some(b)) => (a - b).abs() <= SAME_LOAD * a.max(b),
            _ => true,
        }
    }

    /// How it is compared.
    pub fn rule(&self) -> Rule {
        let RankFigure { scale, higher_is_better, least, resolution, .. } = *self;
        Rule { scale, higher_is_better, least, resolution }
    }
}

/// What became of a criterion of the suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was asked: `throughput_64_pps >= 100000`.
    pub criterion: String,
    /// Met for certain?
    pub pass: bool,
    /// Neither met nor missed for certain; `pass` is false then.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undecided: bool,
    /// What was found.
    pub found: String,
    /// The same as `criterion`, to be judged again over all rounds; absent where it is about no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expectation>,
}

impl Verdict {
    /// A verdict that one look decides.
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

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands over a reference
fn is_false(flag: &bool) -> bool {
    !flag
}
