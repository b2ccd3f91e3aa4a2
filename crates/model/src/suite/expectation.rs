//! The expected result of a test, and the figure of an earlier run to which the bound refers.

use crate::figure::Figure;
use crate::quantity::grouped_number;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One criterion: `expect: { throughput_64_pps: ">= 100000" }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// Key of a [`crate::outcome::RankFigure`]; with `cells`, a description of the cells.
    pub figure: String,
    /// True for `>=`, false for `<=`.
    pub at_least: bool,
    /// The bound in the unit of the figure; with `baseline`, in per cent of the baseline's figure.
    pub bound: f64,
    /// The only DUT to which it applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut: Option<String>,
    /// Cells of a table, instead of a named figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<Cells>,
    /// The figure of an earlier run of which the bound is a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineFigure>,
}

impl Expectation {
    /// A bound on a named figure, for all DUTs.
    pub fn new(figure: impl Into<String>, at_least: bool, bound: f64) -> Expectation {
        Expectation { figure: figure.into(), at_least, bound, dut: None, cells: None, baseline: None }
    }
}

/// Display form: `throughput_64_pps >= 100000`, `throughput_64_pps >= 95 % of baseline`.
impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.at_least { ">=" } else { "<=" };
        let share = if self.baseline.is_some() { " % of baseline" } else { "" };
        write!(f, "{} {sign} {}{share}", self.figure, self.bound)
    }
}

/// Cells of one column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cells {
    /// Key of the table.
    pub table: String,
    /// Selected rows: those with this value in each of these columns; all rows if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<(String, String)>,
    /// Key of the column.
    pub column: String,
}

/// Numbers are equal up to this relative difference, because tables have more digits than a suite needs to repeat.
const SAME_NUMBER: f64 = 1e-6;

impl Cells {
    /// True if `text` refers to cells of a table and not to a figure.
    pub fn is_meant(text: &str) -> bool {
        text.contains(['[', '.'])
    }

    /// True if the number in a cell equals the `value` in a selection of rows.
    pub fn is_number(number: f64, value: &str) -> bool {
        let same =
            |value: f64| value.is_finite() && (number - value).abs() <= SAME_NUMBER * number.abs().max(value.abs());
        let value = value.trim_end_matches('%').trim_end();
        grouped_number(value).or_else(|| value.parse().ok()).is_some_and(same)
    }
}

/// Quotes a value that contains a separator.
fn quoted(value: &str) -> String {
    if value.contains([',', ']', '=', ' ']) { format!("'{value}'") } else { value.to_owned() }
}

/// Display form: `frame_loss_rate[frame_size=64, load_percent=100].loss_percent`.
impl fmt::Display for Cells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table)?;
        if !self.rows.is_empty() {
            let rows: Vec<_> = self.rows.iter().map(|(column, value)| format!("{column}={}", quoted(value))).collect();
            write!(f, "[{}]", rows.join(", "))?;
        }
        write!(f, ".{}", self.column)
    }
}

/// The inverse of `Display`.
impl FromStr for Cells {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Cells, &'static str> {
        let start = text.find(['[', '.']).ok_or("it has no column after a dot")?;
        let (table, rest) = text.split_at(start);
        let (rows, rest) = match rest.strip_prefix('[') {
            Some(rest) => rows(rest)?,
            None => (Vec::new(), rest),
        };
        let column = rest.trim_start().strip_prefix('.').ok_or("it has no column after a dot")?;
        let cells = Cells { table: table.trim().into(), rows, column: column.trim().into() };
        let is_name = |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let named = cells.rows.iter().map(|(column, _)| column).chain([&cells.table, &cells.column]).all(is_name);
        named.then_some(cells).ok_or("tables and columns have names of letters, digits and `_`")
    }
}

const OPEN: &str = "the `]` after the rows is missing";

/// Conditions on cells of a row: key of the column, and its value.
type Conditions = Vec<(String, String)>;

/// Reads rows up to the closing bracket, after the opening bracket was read. Returns the rows and the rest of the text.
fn rows(mut rest: &str) -> Result<(Conditions, &str), &'static str> {
    let mut rows = Vec::new();
    loop {
        let (column, after) = rest.split_once('=').ok_or("rows are selected by `column=value` in brackets")?;
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('\'') {
            Some(inner) => inner.split_once('\'').ok_or("a quotation mark is not closed")?,
            None => after.split_at(after.find([',', ']']).ok_or(OPEN)?),
        };
        rows.push((column.trim().to_owned(), value.trim().to_owned()));
        let after = after.trim_start();
        if let Some(after) = after.strip_prefix(']') {
            return Ok((rows, after));
        }
        rest = after.strip_prefix(',').ok_or(OPEN)?;
    }
}

/// A figure of an earlier run of which a bound is a share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BaselineFigure {
    /// Number of rounds with the figure; 0 until the earlier run has been read.
    pub rounds: usize,
    /// Smallest and largest possible median; absent if unbounded.
    pub median: (Option<f64>, Option<f64>),
    /// Smallest and largest end of the median's confidence interval; absent if unbounded.
    pub interval: (Option<f64>, Option<f64>),
    /// Name of the DUT in the earlier run.
    pub dut: String,
    /// Title of the figure in the earlier run, with its unit; empty for cells.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Load at which the figure was measured, if it depends on the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_pps: Option<f64>,
    /// Parameters of the test that differed: `duration: 60 s there, 1 s here`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
}

impl BaselineFigure {
    /// The figure with this median and interval over `rounds` rounds. Its numbers are not negative.
    pub fn of(rounds: usize, median: Figure, interval: Figure) -> BaselineFigure {
        let ends =
            |figure: Figure| (Some(figure.low).filter(|v| v.is_finite()), Some(figure.high).filter(|v| v.is_finite()));
        BaselineFigure { rounds, median: ends(median), interval: ends(interval), ..BaselineFigure::default() }
    }

    /// The median.
    pub fn median(&self) -> Figure {
        figure(self.median)
    }

    /// The interval.
    pub fn interval(&self) -> Figure {
        figure(self.interval)
    }
}

fn figure((low, high): (Option<f64>, Option<f64>)) -> Figure {
    Figure { low: low.unwrap_or(f64::NEG_INFINITY), high: high.unwrap_or(f64::INFINITY) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Cells, &'static str> {
        text.parse()
    }

    #[test]
    fn cells_are_read_and_shown_alike() {
        for text in [
            "throughput.throughput_pps",
            "frame_loss_rate[frame_size=64].loss_percent",
            "frame_loss_rate[frame_size=64, load_percent=100].loss_percent",
            "frame_loss_rate[frame_size='imix:7x64,4x570', protocol='IPv4, one way'].loss_percent",
        ] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        let loose = read(" t [ a = 1 ,b=' x ] ' ] . c ").unwrap();
        assert_eq!(loose.rows, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "x ]".to_owned())]);
        assert_eq!((loose.table.as_str(), loose.column.as_str()), ("t", "c"));
    }

    #[test]
    fn what_is_wrong_with_cells_is_said() {
        for (text, why) in [
            ("t", "no column"),
            ("t[a=1]", "no column"),
            ("t[a=1]c", "no column"),
            ("t[].c", "column=value"),
            ("t[a].c", "column=value"),
            ("t[a=1.c", "`]`"),
            ("t[a='1].c", "quotation mark"),
            ("t[a='1'x].c", "`]`"),
            ("t[a=1,].c", "column=value"),
            ("t[=1].c", "letters"),
            ("t.", "letters"),
            (".c", "letters"),
            ("t.c.d", "letters"),
            ("t[Frame size=64].c", "letters"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
    }

    #[test]
    fn numbers_select_rows_by_six_digits() {
        for value in ["33.3333333", "33.333333%", "33.333333 %"] {
            assert!(Cells::is_number(100.0 / 3.0, value), "{value}");
        }
        assert!(
            Cells::is_number(1_000_000.0, "1,000,000") && Cells::is_number(1e6, "1e6") && Cells::is_number(0.0, "0")
        );
        assert!(!Cells::is_number(99.6, "100") && !Cells::is_number(64.0, "sixty-four") && !Cells::is_number(0.0, ""));
        assert!(!Cells::is_number(1.0, "inf") && !Cells::is_number(1.0, "nan"));
    }

    #[test]
    fn criteria_of_earlier_versions_are_read() {
        let old = r#"{"figure":"rate","at_least":true,"bound":5.0,"dut":"frr"}"#;
        let read: Expectation = serde_json::from_str(old).unwrap();
        assert_eq!(read, Expectation { dut: Some("frr".into()), ..Expectation::new("rate", true, 5.0) });
        assert_eq!(
            serde_json::to_string(&read).unwrap(),
            old,
            "a criterion without cells and baseline is stored as before"
        );
    }

    #[test]
    fn an_open_end_of_a_baseline_survives_json() {
        let open = Figure::at_least(5.0);
        let stored = serde_json::to_string(&BaselineFigure::of(1, open, open)).unwrap();
        let read: BaselineFigure = serde_json::from_str(&stored).unwrap();
        assert_eq!((read.rounds, read.median(), read.interval()), (1, Figure::at_least(5.0), Figure::at_least(5.0)));
    }
}
