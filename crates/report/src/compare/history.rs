//! The figures of a suite over time: compares each run with the previous run.

use super::{Compared, Condition, Count, Finding, Line, RunLine, Verdict, compare_runs, json, text};
use crate::format::{plain, shorten};
use crate::json::escaped;
use crate::rank::Entry;
use crate::text::{CELL, WIDTH, finish, narrow_table, wrap};
use comfy_table::{Cell, Color};
use drophammer_store::Run;
use serde_json::json as value;

/// The rules in one paragraph for the reader.
const HOW: &str = "Each run is compared with the run before, as by `drophammer compare`: the chance of any false result among the comparisons of \
two runs is at most 5 %, so one of twenty changes that are shown may be false. No pair of consecutive runs shows a slow drift: compare the newest run with the first.";
/// Explanation of [`Past::differing`].
const CONDITIONS: &str = "The conditions of some runs differ from the previous run, so a change may have a cause other than the router: \
`drophammer compare A B` names them, where A and B are the folders of two runs.";
/// Length of the longest bar, in characters.
const BAR: f64 = 24.0;

/// Runs of one suite in chronological order.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The suite.
    pub suite: String,
    /// The runs.
    pub runs: Vec<Past>,
    /// The figures of the DUTs, in the order of the first run that has them.
    pub series: Vec<Series>,
}

/// One run of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// The run's folder, state and start.
    pub run: RunLine,
    /// Result of the comparison with the previous run; absent for the first run.
    pub count: Option<Count>,
    /// Conditions that differ from the previous run, with the values of both runs. Empty for the first run.
    pub conditions: Vec<Condition>,
}

impl Past {
    /// `2 conditions differ`; `None` if no condition differs.
    fn differing(&self) -> Option<String> {
        match self.conditions.len() {
            0 => None,
            1 => Some("1 condition differs".into()),
            more => Some(format!("{more} conditions differ")),
        }
    }
}

/// One figure of one DUT.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Test, figure and DUT, with the entries of the newest two runs that have it.
    pub line: Line,
    /// One point per run.
    pub points: Vec<Point>,
}

/// A figure in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// The figure in this run.
    pub entry: Option<Entry>,
    /// Result of the comparison with the previous run; absent in the first run.
    pub finding: Option<Finding>,
}

/// The history of runs of one suite. The runs must be in chronological order.
pub fn history(runs: &[Run]) -> History {
    let suite = runs.first().map_or(String::new(), |run| run.started.suite.clone());
    let mut history = History { suite, runs: Vec::new(), series: Vec::new() };
    if let [first, ..] = runs {
        history.begin(compare_runs(std::slice::from_ref(first)));
    }
    for pair in runs.windows(2) {
        history.add(compare_runs(pair));
    }
    history
}

impl History {
    fn begin(&mut self, first: Compared) {
        self.runs.extend(first.runs.into_iter().map(|run| Past { run, count: None, conditions: Vec::new() }));
        self.series.extend(first.lines.into_iter().map(|line| {
            let point = Point { entry: line.entries.first().cloned().flatten(), finding: None };
            Series { line, points: vec![point] }
        }));
    }

    /// Adds a run that has been compared with the last run.
    fn add(&mut self, mut pair: Compared) {
        let count = pair.count(1);
        let before = self.runs.len();
        let conditions = pair.conditions;
        self.runs.extend(pair.runs.pop().map(|run| Past { run, count: Some(count), conditions }));
        for line in pair.lines {
            let same = |s: &Series| (&s.line.dut, &s.line.test, &s.line.key) == (&line.dut, &line.test, &line.key);
            let point =
                Point { entry: line.entries.get(1).cloned().flatten(), finding: line.findings.first().cloned() };
            let at = self.series.iter().position(same).unwrap_or(self.series.len());
            if at == self.series.len() {
                self.series.push(Series { line: line.clone(), points: Vec::new() });
            }
            let series = &mut self.series[at];
            series.line = line;
            series.points.resize(before, Point::default());
            series.points.push(point);
        }
        let now = self.runs.len();
        self.series.iter_mut().for_each(|series| series.points.resize(now, Point::default()));
    }

    /// True if no figure of the newest run could be compared with the previous run.
    pub fn is_open(&self) -> bool {
        self.runs.last().and_then(|past| past.count).is_some_and(|count| !count.is_something())
    }

    /// Keeps only figures of the DUT `dut` whose title or machine name (`throughput.64_fps`) contains `figure`.
    pub fn keep(&mut self, figure: Option<&str>, dut: Option<&str>) {
        let wanted = |line: &Line| {
            let name = format!("{}.{}", line.test, line.key);
            let is_named = |part: &str| {
                let part = part.to_lowercase();
                line.title.to_lowercase().contains(&part) || name.to_lowercase().contains(&part)
            };
            figure.is_none_or(is_named) && dut.is_none_or(|dut| line.dut == dut)
        };
        self.series.retain(|series| wanted(&series.line));
    }

    /// True if any figure of the newest run is proven to be worse than in the previous run.
    pub fn is_worse(&self) -> bool {
        self.series.iter().filter_map(|series| series.points.last()?.finding.as_ref()).any(Finding::is_worse)
    }

    /// The runs, one line each, with ANSI colours if `color` is set.
    pub fn index(&self, color: bool) -> String {
        let mut table = narrow_table(&["started", "run", "state", "worse", "better"].map(str::to_owned));
        for past in &self.runs {
            let compared = past.count.filter(Count::is_something);
            let count = |of: fn(&Count) -> usize| match (compared, past.count) {
                (Some(count), _) => of(&count).to_string(),
                (None, Some(_)) => "not compared".to_owned(),
                (None, None) => "–".to_owned(),
            };
            let worse = Cell::new(count(|count| count.worse));
            let is_worse = past.count.is_some_and(|count| count.worse > 0);
            let state = [Some(plain(&past.run.state)), past.differing()];
            table.add_row([
                Cell::new(plain(&past.run.started)),
                Cell::new(shorten(&plain(&past.run.folder), CELL)),
                Cell::new(state.into_iter().flatten().collect::<Vec<_>>().join("\n")),
                if is_worse { worse.fg(Color::Red) } else { worse },
                Cell::new(count(|count| count.better)),
            ]);
        }
        finish(&mut table, [3, 4], color);
        let differ = self.runs.iter().any(|past| !past.conditions.is_empty());
        let conditions = if differ { format!("{}\n", wrap(CONDITIONS, WIDTH)) } else { String::new() };
        format!("{}\n{table}\n{conditions}", plain(&self.suite))
    }

    /// Each figure over time, with ANSI colours if `color` is set.
    pub fn text(&self, color: bool) -> String {
        let mut out = String::new();
        for series in &self.series {
            let line = &series.line;
            let most = series.points.iter().filter_map(Point::median).fold(0.0, f64::max);
            let mut table = narrow_table(&["started", "median", "", "against the run before"].map(str::to_owned));
            for (past, point) in self.runs.iter().zip(&series.points) {
                let against = point.finding.as_ref().filter(|_| point.entry.is_some());
                let words = |finding: &Finding| {
                    let is_compared = !matches!(finding.verdict, Verdict::NotCompared(_));
                    let differing = past.differing().filter(|_| is_compared);
                    [Some(text::against(line, finding)), differing].into_iter().flatten().collect::<Vec<_>>().join("\n")
                };
                let cell = Cell::new(against.map_or("–".to_owned(), words));
                table.add_row([
                    Cell::new(plain(&past.run.started)),
                    Cell::new(text::entry(line, point.entry.as_ref())),
                    Cell::new(bar(point.median(), most)),
                    match against.map(|finding| &finding.verdict) {
                        Some(Verdict::Worse) => cell.fg(Color::Red),
                        Some(Verdict::Better) => cell.fg(Color::Green),
                        _ => cell,
                    },
                ]);
            }
            finish(&mut table, [1, 3], color);
            let (title, dut) = (shorten(&plain(&line.title), CELL), shorten(&plain(&line.dut), CELL));
            out += &format!("\n{title}: {dut}\n{table}\n");
        }
        out
    }

    /// The rules, to print below all tables.
    pub fn how() -> String {
        wrap(HOW, WIDTH)
    }

    /// The history as JSON.
    pub fn json(&self) -> serde_json::Value {
        let runs = self.runs.iter().map(|past| {
            let count = past.count;
            let conditions = past.conditions.iter().map(|one| value!({"name": one.name, "values": one.values}));
            value!({
                "folder": past.run.folder, "started": past.run.started, "state": past.run.state,
                "worse": count.map(|count| count.worse), "better": count.map(|count| count.better),
                "conditions": conditions.collect::<Vec<_>>(),
            })
        });
        let series = self.series.iter().map(|series| {
            let line = &series.line;
            let point = |(past, point): (&Past, &Point)| {
                let finding = point.finding.as_ref().map(|finding| json::one(&past.run.folder, finding));
                value!({"run": point.entry.as_ref().map(json::of_run), "against_the_run_before": finding})
            };
            value!({
                "test": line.test, "key": line.key, "title": line.title, "unit": line.unit,
                "higher_is_better": line.higher_is_better, "dut": line.dut,
                "runs": self.runs.iter().zip(&series.points).map(point).collect::<Vec<_>>(),
            })
        });
        value!({"suite": self.suite, "runs": runs.collect::<Vec<_>>(), "figures": series.collect::<Vec<_>>()})
    }
}

/// Several histories as one JSON text, with a line feed at the end.
pub fn json_of(histories: &[History]) -> String {
    let all: Vec<_> = histories.iter().map(History::json).collect();
    escaped(&format!("{:#}\n", value!({"layout": json::LAYOUT, "how": HOW, "suites": all})))
}

impl Finding {
    /// True if the figure is proven to be worse.
    pub fn is_worse(&self) -> bool {
        self.verdict == Verdict::Worse
    }
}

impl Point {
    /// The middle of the median, if both sides are known.
    fn median(&self) -> Option<f64> {
        let median = self.entry.as_ref()?.summary?.median;
        let middle = f64::midpoint(median.low, median.high);
        // If the middle is unknown, the known bound replaces it.
        let known = [middle, median.low, median.high].into_iter().find(|value| value.is_finite());
        known.filter(|value| *value >= 0.0)
    }
}

/// A bar whose length shows the share of `part` in `most`.
fn bar(part: Option<f64>, most: f64) -> String {
    let share = part.map_or(0.0, |part| if most > 0.0 { part / most } else { 0.0 });
    "\u{2587}".repeat((share * BAR).round() as usize)
}
