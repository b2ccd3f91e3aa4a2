//! Merges tables and plots of several DUTs.

use crate::view::{DutResult, DutView, MergedEvent, MergedPlot, MergedRow, MergedTable};
use drophammer_model::outcome::{Cell, Column, Plot, Point, Series, Table};
use drophammer_model::record::TrialRecord;
use std::collections::{HashMap, HashSet};

static NOTHING: Cell = Cell::None;

/// The tables of all results, merged by key.
pub fn merge_tables<'a>(results: &[DutResult<'a>], trials: &HashMap<u64, &'a TrialRecord>) -> Vec<MergedTable<'a>> {
    let mut merged: Vec<MergedTable> = Vec::new();
    let all: Vec<(usize, &'a Table)> = results
        .iter()
        .filter_map(|r| r.record.map(|t| (r.dut, t)))
        .flat_map(|(d, t)| t.outcome.tables.iter().map(move |x| (d, x)))
        .collect();
    for (_, table) in &all {
        let index = merged.iter().position(|m| m.key == table.key).unwrap_or_else(|| {
            merged.push(MergedTable { key: &table.key, title: &table.title, columns: Vec::new(), rows: Vec::new() });
            merged.len() - 1
        });
        for column in &table.columns {
            if !merged[index].columns.iter().any(|c| c.key == column.key) {
                merged[index].columns.push(column);
            }
        }
    }
    for (dut, table) in all {
        let Some(target) = merged.iter_mut().find(|m| m.key == table.key) else { continue };
        for row in &table.rows {
            let cell_of = |c: &&Column| {
                table.columns.iter().position(|own| own.key == c.key).and_then(|i| row.cells.get(i)).unwrap_or(&NOTHING)
            };
            let own: Vec<_> = row.trials.iter().filter_map(|n| trials.get(n).copied()).collect();
            let mut marks = row.marks.clone();
            if own.iter().any(|t| !t.result.validity.is_valid()) {
                marks.push("invalid trial".into());
            }
            let cells = target.columns.iter().map(cell_of).collect();
            target.rows.push(MergedRow { dut, cells, marks, trials: own, row });
        }
    }
    merged
}

/// The plots of all results, merged by key. The tester, if `duts` contains it, is the last.
pub fn merge_plots(results: &[DutResult], duts: &[DutView], trials: &HashMap<u64, &TrialRecord>) -> Vec<MergedPlot> {
    let mut merged: Vec<MergedPlot> = Vec::new();
    let all: Vec<(usize, &Plot)> = results
        .iter()
        .filter_map(|r| r.record.map(|t| (r.dut, t)))
        .flat_map(|(d, t)| t.outcome.plots.iter().map(move |p| (d, p)))
        .collect();
    for (dut, plot) in &all {
        let index = merged.iter().position(|m| m.plot.key == plot.key).unwrap_or_else(|| {
            let empty = Plot { series: Vec::new(), events: Vec::new(), spans: Vec::new(), ..(*plot).clone() };
            merged.push(MergedPlot {
                plot: empty,
                dut_of: Vec::new(),
                place: Vec::new(),
                events: Vec::new(),
                span_of: Vec::new(),
                invalid: HashSet::new(),
            });
            merged.len() - 1
        });
        let target = &mut merged[index];
        // If one DUT needs a logarithmic axis, all share it.
        target.plot.log_y |= plot.log_y;
        for series in &plot.series {
            add_series(target, series, *dut, duts);
        }
        target.span_of.extend(plot.spans.iter().map(|_| *dut));
        target.plot.spans.extend(plot.spans.iter().cloned());
    }
    for m in &mut merged {
        references_last(m);
        let own: Vec<_> = all.iter().filter(|(_, p)| p.key == m.plot.key).copied().collect();
        m.events = merge_events(&own, duts);
        m.plot.events = m.events.iter().map(|e| (e.x, e.text.clone())).collect();
        let shown = m.plot.series.iter().flat_map(|s| &s.points).filter_map(|p| p.trial);
        m.invalid = shown.filter(|n| trials.get(n).is_some_and(|t| !t.result.validity.is_valid())).collect();
    }
    merged
}

/// Events with the same text are merged if they are closer than this share of the x axis.
const SAME_EVENT: f64 = 0.01;

/// The events of several DUTs in one plot, ordered by x. Events with the same text at nearly the same x are merged. An
/// event that not all DUTs have names its DUTs.
fn merge_events(plots: &[(usize, &Plot)], duts: &[DutView]) -> Vec<MergedEvent> {
    let points = plots.iter().flat_map(|(_, p)| &p.series).flat_map(|s| &s.points).map(|p| p.x);
    let events = plots.iter().flat_map(|(_, p)| &p.events).map(|e| e.0);
    let xs = points.chain(events).filter(|x| x.is_finite());
    let (low, high) = xs.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
    let near = (high - low) * SAME_EVENT;
    let mut all: Vec<(usize, f64, &String)> =
        plots.iter().flat_map(|(d, p)| p.events.iter().map(|e| (*d, e.0, &e.1))).filter(|e| e.1.is_finite()).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let mut out: Vec<MergedEvent> = Vec::new();
    let mut latest: HashMap<&String, Vec<usize>> = HashMap::new();
    for (dut, x, label) in all {
        let open = latest.entry(label).or_default();
        // The earliest event without this DUT: two events of one DUT, such as flaps, are never merged, however close
        // they are.
        let joined = open.iter().copied().find(|i: &usize| {
            let e: &MergedEvent = &out[*i];
            x - e.at[0].1 <= near && e.at.iter().all(|(d, at)| *d != dut || *at == x)
        });
        match joined {
            Some(i) if out[i].at.contains(&(dut, x)) => {}
            Some(i) => out[i].at.push((dut, x)),
            None => {
                open.retain(|i| x - out[*i].at[0].1 <= near);
                open.push(out.len());
                let label = label.clone();
                out.push(MergedEvent { x, text: label.clone(), label, at: vec![(dut, x)], owners: Vec::new() });
            }
        }
    }
    for e in &mut out {
        e.x = e.at.iter().map(|(_, x)| x).sum::<f64>() / e.at.len() as f64;
        let owners: HashSet<usize> = e.at.iter().map(|(d, _)| *d).collect();
        if plots.iter().any(|(d, _)| !owners.contains(d)) {
            e.owners = owners.into_iter().collect();
            e.owners.sort_unstable();
            let names: Vec<&str> = e.owners.iter().map(|d| duts[*d].name).collect();
            e.text = format!("{}: {}", names.join(", "), e.label);
        }
    }
    out.sort_by(|a, b| a.x.total_cmp(&b.x));
    out
}

/// Moves series that belong to no DUT to the end, for legend and files.
fn references_last(merged: &mut MergedPlot) {
    let mut order: Vec<usize> = (0..merged.plot.series.len()).collect();
    order.sort_by_key(|i| merged.plot.series[*i].reference);
    merged.plot.series = order.iter().map(|i| merged.plot.series[*i].clone()).collect();
    merged.dut_of = order.iter().map(|i| merged.dut_of[*i]).collect();
    merged.place = order.iter().map(|i| merged.place[*i]).collect();
}

fn add_series(target: &mut MergedPlot, series: &Series, dut: usize, duts: &[DutView]) {
    if series.reference {
        let known = target.plot.series.iter_mut().find(|s| s.reference && s.name == series.name);
        match known {
            // A DUT that got further has more points on this line.
            Some(s) => {
                let known: HashSet<_> = s.points.iter().map(|p| (p.x.to_bits(), p.label.as_ref())).collect();
                let fresh = |p: &&Point| !known.contains(&(p.x.to_bits(), p.label.as_ref()));
                let new: Vec<Point> = series.points.iter().filter(fresh).cloned().collect();
                s.points.extend(new);
            }
            None => {
                let place = target.plot.series.iter().filter(|s| s.reference).count();
                target.plot.series.push(series.clone());
                target.dut_of.push(None);
                target.place.push(place);
            }
        }
        return;
    }
    // Dots have the same place as the curve of their trials, if a curve has their name.
    let own = || (0..target.dut_of.len()).filter(|i| target.dut_of[*i] == Some(dut));
    let same_place = series.dots.then(|| {
        own().find(|i| {
            let curve =
                target.plot.series[*i].name.strip_prefix(duts[dut].label().as_str()).map(str::trim).unwrap_or_default();
            !target.plot.series[*i].dots && series.name.starts_with(curve)
        })
    });
    let next = own().map(|i| target.place[i] + 1).max().unwrap_or(0);
    let place = same_place.flatten().map_or(next, |i| target.place[i]);
    let name = format!("{} {}", duts[dut].label(), series.name);
    target.plot.series.push(Series { name: name.trim().to_owned(), ..series.clone() });
    target.dut_of.push(Some(dut));
    target.place.push(place);
}
