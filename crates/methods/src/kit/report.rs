//! Writes results into an [`Outcome`] while a test runs, and iterates over frame sizes without losing results.

use crate::modifiers;
use crate::pattern::Pattern;
use crate::routed::with_routes;
use crate::testbed::{TestError, Testbed};
use drophammer_judge::statistics;
use drophammer_model::outcome::{Outcome, Plot, PlotKind, Point, RankFigure, Series, Span};
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::Params;
use drophammer_model::trial::TrialResult;
use std::fmt::Display;

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeriesKind {
    Curve,
    Dots,
    Reference,
}

/// Declaration of a plot.
#[derive(Clone, Copy, Debug)]
pub struct PlotSpec<'a> {
    /// Key of the plot. The plots of all DUTs with the same key are drawn into one plot.
    pub key: &'a str,
    /// Heading.
    pub title: &'a str,
    /// How to draw.
    pub kind: PlotKind,
    /// Label of the x axis with unit.
    pub x: &'a str,
    /// Label of the y axis with unit.
    pub y: &'a str,
    /// Draw the y axis logarithmically.
    pub log_y: bool,
}

impl<'a> PlotSpec<'a> {
    /// A plot with linear axes. Its fields say what the arguments are.
    pub const fn new(key: &'a str, title: &'a str, kind: PlotKind, x: &'a str, y: &'a str) -> PlotSpec<'a> {
        PlotSpec { key, title, kind, x, y, log_y: false }
    }

    /// The same with a logarithmic y axis.
    pub const fn logarithmic(self) -> PlotSpec<'a> {
        PlotSpec { log_y: true, ..self }
    }

    /// Adds the empty plot.
    pub fn begin(&self, outcome: &mut Outcome) {
        outcome.plots.push(Plot {
            key: self.key.into(),
            title: self.title.into(),
            kind: self.kind,
            x: self.x.into(),
            y: self.y.into(),
            log_y: self.log_y,
            series: Vec::new(),
            events: Vec::new(),
            spans: Vec::new(),
        });
    }

    /// Adds a figure of the DUT to a series. The first point begins the series.
    pub fn curve(&self, outcome: &mut Outcome, series: &str, point: Point) {
        self.point(outcome, series, SeriesKind::Curve, point);
    }

    /// Adds a single trial to a series, drawn as a dot.
    pub fn dot(&self, outcome: &mut Outcome, series: &str, point: Point) {
        self.point(outcome, series, SeriesKind::Dots, point);
    }

    /// Adds a point that is the same on every DUT.
    pub fn reference(&self, outcome: &mut Outcome, series: &str, point: Point) {
        self.point(outcome, series, SeriesKind::Reference, point);
    }

    fn point(&self, outcome: &mut Outcome, series: &str, kind: SeriesKind, point: Point) {
        let Some(plot) = outcome.plots.iter_mut().find(|p| p.key == self.key) else { return };
        let dots = kind == SeriesKind::Dots;
        match plot.series.iter_mut().find(|s| s.name == series && s.dots == dots) {
            Some(found) => found.points.push(point),
            None => plot.series.push(Series {
                name: series.into(),
                reference: kind == SeriesKind::Reference,
                dots,
                points: vec![point],
            }),
        }
    }

    /// Adds a vertical mark at `x`.
    pub fn event(&self, outcome: &mut Outcome, x: f64, text: &str) {
        if let Some(plot) = outcome.plots.iter_mut().find(|p| p.key == self.key) {
            plot.events.push((x, text.into()));
        }
    }

    /// Shades the plot between two values of x.
    pub fn span(&self, outcome: &mut Outcome, x: (f64, f64), text: &str) {
        if let Some(plot) = outcome.plots.iter_mut().find(|p| p.key == self.key) {
            plot.spans.push(Span { x, text: text.into() });
        }
    }
}

/// A point of a curve, without a trial.
pub fn xy(x: f64, y: f64) -> Point {
    Point { x, y, ..Point::default() }
}

/// A point that represents a trial, or is derived from it.
pub fn xy_of(x: f64, y: f64, trial: u64) -> Point {
    Point { x, y, trial: Some(trial), ..Point::default() }
}

/// Loss ratios that differ by less than this, in %, count as equal.
pub const LEAST_LOSS_PERCENT: f64 = 0.0005;

/// Share of `part` in `whole` in %; `None` if `whole` is 0.
pub fn percent_of(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64 * 100.0)
}

/// One figure in % of another; `None` if either is missing or `whole` is 0.
pub fn percent_ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    Some(part? / whole.filter(|whole| *whole > 0.0)? * 100.0)
}

/// The numbers of these trials.
pub fn trials(results: &[TrialResult]) -> Vec<u64> {
    results.iter().map(|result| result.trial).collect()
}

/// Above this loss, the load is higher than the router can carry.
pub const OVERLOADED_PERCENT: f64 = 1.0;

/// Returns true if the router was overloaded in these trials. Full queues then cause the latency of the received
/// frames.
pub fn is_overloaded(results: &[TrialResult]) -> bool {
    loss_percent(results).is_some_and(|percent| percent > OVERLOADED_PERCENT)
}

/// Why the clocks of several hosts do not show the latency of this trial, or of `group` if given; `None` if they do.
pub fn hidden_latency(result: &TrialResult, group: Option<&str>) -> Option<String> {
    let between = result.health.between_hosts.as_ref()?;
    let asked = |name: &&String| match group {
        Some(group) => group == name.as_str(),
        None => result.groups.iter().any(|group| group.group == **name),
    };
    let mut hidden = between.unmeasurable.iter().filter(asked);
    let first = hidden.next()?;
    let more = match hidden.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "the latency of {first}{more} is not measurable between these hosts: it is below the uncertainty of their clocks, or a clock is wrong; \
         use ports of one host"
    ))
}

/// Share of frames lost over all these trials, in %; `None` if none were offered.
pub fn loss_percent(results: &[TrialResult]) -> Option<f64> {
    percent_of(results.iter().map(TrialResult::lost).sum(), results.iter().map(TrialResult::offered).sum())
}

/// Notes which part of a frame size the tester could not offer, and why; `what` is "10 % left out,".
pub fn note_unfit(outcome: &mut Outcome, pattern: &Pattern, what: &str, rate: FrameRate, why: &[String]) {
    let why = why.join("; ");
    note_of(outcome, pattern, format!("{what} the tester could not offer {rate} per port validly ({why})"));
    deviate(outcome, pattern, format!("{rate} per port could not be offered validly"));
}

/// Adds a deviation from the source of the test for a frame size, unless it is already there.
pub fn deviate(outcome: &mut Outcome, pattern: &Pattern, text: impl Display) {
    let text = format!("{}: {text}", pattern.size_text());
    if !outcome.deviations.contains(&text) {
        outcome.deviations.push(text);
    }
}

/// Like [`note`], but for a frame size.
pub fn note_of(outcome: &mut Outcome, pattern: &Pattern, text: impl Display) {
    note(outcome, format!("{}: {text}.", pattern.size_text()));
}

/// Adds a remark, unless it is already there.
pub fn note(outcome: &mut Outcome, text: impl Into<String>) {
    let text = text.into();
    if !outcome.notes.contains(&text) {
        outcome.notes.push(text);
    }
}

/// Runs `each` for every frame size of the suite, with each modifier. If a size does not apply, or the tester was unfit
/// for it, this function adds a note and still runs the other sizes; any other error ends the test.
///
/// # Errors
/// [`TestError::Unfit`] if the tester was unfit for some size; [`TestError::NotApplicable`] if no size applied;
/// otherwise the error of `each`.
pub fn for_each_size(
    bed: &mut dyn Testbed,
    params: &Params,
    outcome: &mut Outcome,
    each: impl FnMut(&mut dyn Testbed, &Pattern, &mut Outcome, u32) -> Result<(), TestError>,
) -> Result<(), TestError> {
    let patterns = modifiers::patterns(params);
    with_routes(bed, params, outcome, |bed, outcome| for_each_pattern(bed, patterns, outcome, each))
}

/// Like [`for_each_size`], but for a list of patterns.
///
/// # Errors
/// Errors of [`for_each_size`].
pub fn for_each_pattern(
    bed: &mut dyn Testbed,
    patterns: Vec<Pattern>,
    outcome: &mut Outcome,
    mut each: impl FnMut(&mut dyn Testbed, &Pattern, &mut Outcome, u32) -> Result<(), TestError>,
) -> Result<(), TestError> {
    for_each_at_low_load(bed, patterns, outcome, |bed, pattern, outcome, index| {
        let ended = each(bed, pattern, outcome, index);
        let limits = pattern.limits(bed);
        if limits.below_line() {
            let text = format!("loads up to {} instead of line rate (RFC 2544 section 20)", limits.max);
            deviate(outcome, pattern, text);
        }
        ended
    })
}

/// Like [`for_each_pattern`], but for a test whose loads stay far below line rate.
///
/// # Errors
/// Errors of [`for_each_size`].
pub fn for_each_at_low_load(
    bed: &mut dyn Testbed,
    patterns: Vec<Pattern>,
    outcome: &mut Outcome,
    mut each: impl FnMut(&mut dyn Testbed, &Pattern, &mut Outcome, u32) -> Result<(), TestError>,
) -> Result<(), TestError> {
    let (mut unfit, mut skipped, mut done) = (None, None, 0);
    for (index, pattern) in patterns.into_iter().enumerate() {
        // Builds the flows now, so that no trial runs for a size that is not possible.
        let possible = pattern.flows(bed.ports()).map(|_| ());
        let ended = possible.and_then(|()| {
            modifiers::with(bed, &pattern, outcome, |bed, outcome| each(bed, &pattern, outcome, index as u32))
        });
        match ended {
            Ok(()) => done += 1,
            Err(TestError::NotApplicable(why)) => {
                deviate(outcome, &pattern, "not tested");
                note(outcome, format!("{} not tested: {why}", pattern.size_text()));
                skipped.get_or_insert(TestError::NotApplicable(why));
            }
            Err(TestError::Unfit(why)) => {
                deviate(outcome, &pattern, "not finished, the tester was unfit");
                note(
                    outcome,
                    format!("{} not finished, the tester was unfit: {}", pattern.size_text(), why.join("; ")),
                );
                unfit.get_or_insert(TestError::Unfit(why));
            }
            Err(other) => return Err(other),
        }
    }
    match (unfit, skipped) {
        (Some(error), _) => Err(error),
        (None, Some(error)) if done == 0 => Err(error),
        _ => Ok(()),
    }
}

/// Runs `each`, which should report the `figures` of its pattern. If some are missing because the tester was unfit,
/// adds them to the outcome without a value and with the reason.
pub fn or_spoilt(
    figures: impl Fn(&Pattern) -> Vec<RankFigure>,
    mut each: impl FnMut(&mut dyn Testbed, &Pattern, &mut Outcome, u32) -> Result<(), TestError>,
) -> impl FnMut(&mut dyn Testbed, &Pattern, &mut Outcome, u32) -> Result<(), TestError> {
    move |bed, pattern, outcome, index| {
        let ended = each(bed, pattern, outcome, index);
        if let Err(TestError::Unfit(why)) = &ended {
            figures(pattern).into_iter().for_each(|figure| push_spoilt(outcome, figure, why));
        }
        ended
    }
}

/// Adds a figure without a value because the tester was unfit, unless the outcome already has this figure.
pub fn push_spoilt(outcome: &mut Outcome, figure: RankFigure, why: &[String]) {
    if outcome.ranks.iter().all(|given| given.key != figure.key) {
        outcome.ranks.push(figure.spoilt(why.join("; ")));
    }
}

/// Arithmetic mean; 0 if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Sample standard deviation (n - 1); `None` for fewer than two values.
pub fn stdev(values: &[f64]) -> Option<f64> {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// Median; for an even number of values, the mean of the two in the middle. `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    statistics::median(&mut values.to_vec())
}

/// Smallest and largest value; `None` if there are none.
pub fn extremes(values: &[f64]) -> Option<(f64, f64)> {
    Some((values.iter().copied().min_by(f64::total_cmp)?, values.iter().copied().max_by(f64::total_cmp)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(stdev(&[2.0, 4.0]), Some(2f64.sqrt()));
        assert_eq!(stdev(&[2.0]), None);
        assert_eq!(extremes(&[2.0, -1.0, 5.0]), Some((-1.0, 5.0)));
    }
}
