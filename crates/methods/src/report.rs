//! Writing into an [`Outcome`] as a test goes on, and going through the frame sizes without losing what was found.

use crate::parameters::sizes;
use crate::pattern::Pattern;
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Column, Outcome, Plot, PlotKind, Point, Row, Series, Table};
use drophammer_model::suite::Params;

/// Adds an empty table with columns `(key, title, unit)`.
pub fn table(outcome: &mut Outcome, key: &str, title: &str, columns: &[(&str, &str, &str)]) {
    let columns = columns.iter().map(|(k, t, u)| Column::new(k, t, u)).collect();
    outcome.tables.push(Table { key: key.into(), title: title.into(), columns, rows: Vec::new() });
}

/// Adds a row to the table of this key.
pub fn row(outcome: &mut Outcome, table: &str, row: Row) {
    if let Some(table) = outcome.tables.iter_mut().find(|t| t.key == table) {
        debug_assert_eq!(row.cells.len(), table.columns.len(), "{}", table.key);
        table.rows.push(row);
    }
}

/// Adds an empty plot.
pub fn plot(outcome: &mut Outcome, key: &str, title: &str, kind: PlotKind, x: &str, y: &str, log_y: bool) {
    outcome.plots.push(Plot {
        key: key.into(),
        title: title.into(),
        kind,
        x: x.into(),
        y: y.into(),
        log_y,
        series: Vec::new(),
        events: Vec::new(),
    });
}

/// What a series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesKind {
    /// A figure of the DUT.
    Curve,
    /// Every trial.
    Dots,
    /// The same on every DUT.
    Reference,
}

/// Adds a point to a series of a plot; the series comes into being with its first point.
pub fn point(outcome: &mut Outcome, plot: &str, series: &str, kind: SeriesKind, point: Point) {
    let Some(plot) = outcome.plots.iter_mut().find(|p| p.key == plot) else { return };
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

/// Adds a remark once.
pub fn note(outcome: &mut Outcome, text: impl Into<String>) {
    let text = text.into();
    if !outcome.notes.contains(&text) {
        outcome.notes.push(text);
    }
}

/// Runs `each` for every frame size of the suite. A size that does not apply, or at which the tester was unfit, is noted and
/// the others still run; whatever else goes wrong ends the test.
///
/// # Errors
/// Unfit, when it was at some size; not applicable, when no size was; otherwise what `each` said.
pub fn for_each_size(
    bed: &mut dyn Testbed,
    params: &Params,
    outcome: &mut Outcome,
    mut each: impl FnMut(&mut dyn Testbed, &Pattern, &mut Outcome, u32) -> Result<(), TestError>,
) -> Result<(), TestError> {
    let (mut unfit, mut skipped, mut done) = (None, None, 0);
    for (index, size) in sizes(params).into_iter().enumerate() {
        let pattern = Pattern::new(size, params);
        // Flows are made here so that no trial is run for a size that cannot be.
        let possible = pattern.flows(bed.ports()).map(|_| ());
        match possible.and_then(|()| each(bed, &pattern, outcome, index as u32)) {
            Ok(()) => done += 1,
            Err(TestError::NotApplicable(why)) => {
                note(outcome, format!("{} not tested: {why}", pattern.size_text()));
                skipped.get_or_insert(TestError::NotApplicable(why));
            }
            Err(TestError::Unfit(why)) => {
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

/// Arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Sample standard deviation (n - 1); `None` below two values.
pub fn stdev(values: &[f64]) -> Option<f64> {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// Median; the mean of the middle two when there are two. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Smallest and largest; `None` of nothing.
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
