//! Combines the plots of all rounds into one.

use crate::distinct;
use crate::statistics::median;
use drophammer_model::outcome::{Plot, PlotKind, Point, Series};
use std::collections::HashMap;

/// The plot of the medians, with remarks about curves that do not show all rounds.
pub(super) fn combine(plots: &[&Plot]) -> (Plot, Vec<String>) {
    let first = plots[0];
    let names = distinct(plots.iter().flat_map(|plot| &plot.series).map(|series| series.name.as_str()));
    let (mut combined, mut of_one, mut of_most) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        for dots in [false, true] {
            let own: Vec<&Series> = plots
                .iter()
                .filter_map(|plot| plot.series.iter().find(|series| series.name == name && series.dots == dots))
                .collect();
            let Some((series, shows)) = combine_series(&own, first.kind, plots.len()) else { continue };
            match shows {
                Shows::All => {}
                Shows::Most => of_most.push(name),
                Shows::One => of_one.push(name),
            }
            combined.push(series);
        }
    }
    let remarks = [
        remark(&first.title, &of_one, "the rounds have no x in common; the curve shows one round"),
        remark(&first.title, &of_most, "some rounds lack points; the curve shows the points that most rounds have"),
    ];
    let log_y = plots.iter().any(|plot| plot.log_y);
    (Plot { series: combined, log_y, ..first.clone() }, remarks.into_iter().flatten().collect())
}

/// Remark about some curves: `Loss by load, 64 bytes, 128 bytes: the rounds have no x in common; ...`. The only series
/// of a plot may have no name.
fn remark(title: &str, names: &[&str], what: &str) -> Option<String> {
    let named: String = names.iter().filter(|name| !name.is_empty()).map(|name| format!(", {name}")).collect();
    (!names.is_empty()).then(|| format!("{title}{named}: {what}"))
}

/// The rounds that a combined series shows.
enum Shows {
    All,
    /// At each point, most of the rounds.
    Most,
    /// One round, because the rounds have hardly any points in common.
    One,
}

/// Combines the series of the same name. Each of the `rounds` rounds has at most one.
fn combine_series(all: &[&Series], kind: PlotKind, rounds: usize) -> Option<(Series, Shows)> {
    let first = *all.first()?;
    let with = |points: Vec<Point>| Series { points, ..first.clone() };
    if first.reference {
        return Some((first.clone(), Shows::All));
    }
    if first.dots {
        return Some((with(all.iter().flat_map(|series| series.points.iter().cloned()).collect()), Shows::All));
    }
    if kind == PlotKind::Sorted {
        let (points, shows) = sorted(all, rounds);
        return Some((with(points), shows));
    }
    let Some(mut groups) = grouped(all) else { return Some((first.clone(), Shows::One)) };
    if groups.iter().all(|group| group.len() == rounds) {
        return Some((with(groups.iter().map(|group| combine_points(group)).collect()), Shows::All));
    }
    // A point that is missing from the first round belongs between its neighbours.
    groups.sort_by(|a, b| a[0].x.total_cmp(&b[0].x));
    // A point that few rounds have is not typical of the DUT.
    let most = groups.iter().filter(|group| group.len() * 2 > rounds);
    Some((with(most.map(|group| combine_points(group)).collect()), Shows::Most))
}

/// Groups the points of all rounds by category, or by x if they have no category. `None` if the series have hardly any
/// points in common, for example curves over measured times.
fn grouped<'s>(all: &[&'s Series]) -> Option<Vec<Vec<&'s Point>>> {
    let mut groups: Vec<Vec<&'s Point>> = Vec::new();
    let mut places: HashMap<(Option<&str>, u64, usize), usize> = HashMap::new();
    for series in all {
        let mut seen: HashMap<(Option<&str>, u64), usize> = HashMap::new();
        for point in &series.points {
            let label = point.label.as_deref();
            // The x of a category depends on the categories before it, which may be missing from a round.
            let x = if label.is_some() { 0 } else { point.x.to_bits() };
            // A skyline may have several points at the same x.
            let nth = seen.entry((label, x)).or_default();
            let place = *places.entry((label, x, *nth)).or_insert(groups.len());
            *nth += 1;
            match groups.get_mut(place) {
                Some(group) => group.push(point),
                None => groups.push(vec![point]),
            }
        }
    }
    let most = all.iter().map(|series| series.points.len()).max().unwrap_or(0);
    let has_common = groups.iter().any(|group| group.len() > 1) && groups.len() <= 2 * most;
    (groups.is_empty() || all.len() == 1 || has_common).then_some(groups)
}

/// The median of points of several rounds, with their minimum and maximum.
fn combine_points(points: &[&Point]) -> Point {
    let mut values: Vec<f64> = points.iter().map(|point| point.y).collect();
    let y = median(&mut values).unwrap_or(f64::NAN);
    let ends = |pick: fn(&(f64, f64)) -> f64| points.iter().filter_map(move |point| point.range.as_ref().map(pick));
    let least = ends(|range| range.0).chain(values.first().copied()).fold(f64::INFINITY, f64::min);
    let most = ends(|range| range.1).chain(values.last().copied()).fold(f64::NEG_INFINITY, f64::max);
    Point { y, range: Some((least, most)), ..points[0].clone() }
}

/// The median of sorted curves, at the shares of the longest curve. A round has an infinite value at a share that it
/// never reached, so the median ends where most rounds end.
fn sorted(all: &[&Series], rounds: usize) -> (Vec<Point>, Shows) {
    /// 49.999999999 % is one half with a binary rounding error.
    const ROUNDING: f64 = 1e-9;
    let mut curves: Vec<Vec<&Point>> = all.iter().map(|series| series.points.iter().collect()).collect();
    curves.iter_mut().for_each(|curve| curve.sort_by(|a, b| a.x.total_cmp(&b.x)));
    let ends: Vec<f64> = curves.iter().map(|curve| curve.last().map_or(0.0, |point| point.x)).collect();
    let furthest = ends.iter().copied().fold(0.0, f64::max);
    let same_end = all.len() == rounds && ends.iter().all(|end| *end >= furthest - ROUNDING);
    let shows = if same_end { Shows::All } else { Shows::Most };
    let Some(longest) = ends.iter().position(|end| *end == furthest) else { return (Vec::new(), shows) };
    let points = curves[longest].iter().filter_map(|share| {
        let reached = curves.iter().map(|curve| {
            let place = curve.partition_point(|point| point.x < share.x - ROUNDING);
            curve.get(place).map_or(f64::INFINITY, |point| point.y)
        });
        let mut values: Vec<f64> = reached.chain((all.len()..rounds).map(|_| f64::INFINITY)).collect();
        let y = median(&mut values).filter(|y| y.is_finite())?;
        let most = values.iter().copied().rfind(|value| value.is_finite())?;
        Some(Point { y, range: Some((values[0], most)), ..(*share).clone() })
    });
    (points.collect(), shows)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn series(name: &str, points: &[(f64, f64)]) -> Series {
        let points = points.iter().map(|(x, y)| Point { x: *x, y: *y, ..Point::default() }).collect();
        Series { name: name.into(), reference: false, dots: false, points }
    }

    pub(crate) fn plot(kind: PlotKind, series: Vec<Series>) -> Plot {
        let (key, title, x, y) = ("p".into(), "Loss by load".into(), String::new(), String::new());
        Plot { key, title, kind, x, y, log_y: false, series, events: vec![], spans: vec![] }
    }

    /// The points of the only series, and the remarks about it.
    fn of(kind: PlotKind, rounds: Vec<Series>) -> (Vec<Point>, Vec<String>) {
        let plots: Vec<Plot> = rounds.into_iter().map(|one| plot(kind, vec![one])).collect();
        let (mut combined, remarks) = combine(&plots.iter().collect::<Vec<_>>());
        (combined.series.remove(0).points, remarks)
    }

    fn xy(points: &[Point]) -> Vec<(f64, f64)> {
        points.iter().map(|point| (point.x, point.y)).collect()
    }

    #[test]
    fn curves_become_medians_with_least_and_most() {
        let (points, remarks) = of(PlotKind::Line, [9.0, 4.0, 5.0].map(|y| series("s", &[(1.0, y)])).to_vec());
        assert_eq!((points[0].y, points[0].range), (5.0, Some((4.0, 9.0))));
        assert!(remarks.is_empty());
    }

    #[test]
    fn a_round_with_fewer_points_does_not_hide_the_others() {
        let short = series("64 bytes", &[(100.0, 0.0), (80.0, 0.0)]);
        let long = series("64 bytes", &[(100.0, 4.0), (80.0, 2.0), (60.0, 0.0)]);
        let (points, remarks) = of(PlotKind::Line, vec![short.clone(), long.clone(), long.clone()]);
        assert_eq!(xy(&points), [(60.0, 0.0), (80.0, 2.0), (100.0, 4.0)]);
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(remarks[0].starts_with("Loss by load, 64 bytes: some rounds lack points"), "{remarks:?}");
        // A point of only one round of three is left out.
        let (points, _) = of(PlotKind::Line, vec![long, short.clone(), short]);
        assert_eq!(xy(&points), [(80.0, 0.0), (100.0, 0.0)]);
    }

    #[test]
    fn bars_belong_together_by_category() {
        let bars = |bars: &[(f64, &str, f64)]| {
            let mut series = series("throughput", &[]);
            let bar = |(x, label, y): &(f64, &str, f64)| Point {
                x: *x,
                y: *y,
                label: Some((*label).into()),
                ..Point::default()
            };
            series.points = bars.iter().map(bar).collect();
            series
        };
        let whole = |factor: f64| bars(&[(0.0, "64", factor), (1.0, "512", 2.0 * factor), (2.0, "1518", 3.0 * factor)]);
        // One round found no throughput at 512 bytes.
        let without = bars(&[(0.0, "64", 9.0), (2.0, "1518", 9.0)]);
        let (points, remarks) = of(PlotKind::Bars, vec![without.clone(), whole(1.0), whole(2.0)]);
        let found: Vec<_> = points.iter().map(|point| (point.label.as_deref().unwrap(), point.y)).collect();
        assert_eq!(found, [("64", 2.0), ("512", 3.0), ("1518", 6.0)]);
        assert!(remarks[0].starts_with("Loss by load, throughput: some rounds lack points"), "{remarks:?}");
        let (points, _) = of(PlotKind::Bars, vec![without.clone(), whole(1.0), without]);
        assert_eq!(points.len(), 2, "most rounds have no throughput at 512 bytes");
    }

    #[test]
    fn a_curve_of_one_round_says_so() {
        let (points, remarks) =
            of(PlotKind::Area, vec![series("", &[(0.1, 1.0), (0.2, 2.0)]), series("", &[(0.3, 1.0), (0.4, 2.0)])]);
        assert_eq!(xy(&points), [(0.1, 1.0), (0.2, 2.0)]);
        assert_eq!(remarks, ["Loss by load: the rounds have no x in common; the curve shows one round"]);
    }

    #[test]
    fn a_sorted_curve_ends_where_most_rounds_ended() {
        let whole = series("s", &[(25.0, 1.0), (50.0, 2.0), (75.0, 3.0), (100.0, 4.0)]);
        let half = |factor: f64| series("s", &[(25.0, 2.0 * factor), (50.0, 3.0 * factor)]);
        let (points, remarks) = of(PlotKind::Sorted, vec![whole.clone(), half(1.0), half(2.0)]);
        assert_eq!(xy(&points), [(25.0, 2.0), (50.0, 3.0)]);
        assert_eq!(points[1].range, Some((2.0, 6.0)));
        assert!(remarks[0].starts_with("Loss by load, s: some rounds lack points"), "{remarks:?}");
        // A share that one round never reached counts as later than all others.
        let (points, _) = of(PlotKind::Sorted, vec![whole.clone(), half(1.0), whole]);
        assert_eq!(xy(&points), [(25.0, 1.0), (50.0, 2.0), (75.0, 3.0), (100.0, 4.0)]);
    }

    #[test]
    fn a_series_that_a_round_lacks_is_named() {
        let both = plot(PlotKind::Line, vec![series("a", &[(1.0, 2.0)]), series("b", &[(1.0, 2.0)])]);
        let one = plot(PlotKind::Line, vec![series("a", &[(1.0, 4.0)])]);
        let (combined, remarks) = combine(&[&both, &one, &both]);
        assert_eq!(combined.series.iter().map(|series| series.points[0].y).collect::<Vec<_>>(), [2.0, 2.0]);
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(remarks[0].starts_with("Loss by load, b: some rounds lack points"), "{remarks:?}");
        let (combined, _) = combine(&[&both, &one, &one]);
        assert!(combined.series[1].points.is_empty(), "most rounds lack it");
    }
}
