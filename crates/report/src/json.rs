//! `report.json`: all data for programs, unformatted.

use crate::board::{self, Place};
use crate::rank::HOW;
use crate::rates::{self, Added};
use crate::view::View;
use crate::{digest, drops, ending, hosts, kernel_counts, losses, paragraph, published};
use drophammer_model::figure::Figure;
use drophammer_model::outcome::Column;
use drophammer_model::visible::is_hidden;
use serde_json::{Value, json};
use std::fmt::Write;

/// Version of the layout of `report.json`. It increases when a field changes its meaning or disappears.
const LAYOUT: u32 = 3;

/// The JSON report, indented, with a line feed at the end.
pub fn report(view: &View) -> String {
    let value = json!({
        "layout": LAYOUT,
        "state": view.run.state().to_string(),
        "running": view.run.running,
        "conformant": view.conformant(),
        "deviations": view.deviation_lines(),
        "started": view.run.started,
        "ended": view.run.ended,
        "duts": view.duts.iter().map(|d| json!({
            "name": d.name,
            "simulated": d.simulated,
            "records": d.records,
            "drops": drops::of_dut(view, d.name).json(),
        })).collect::<Vec<_>>(),
        "hosts": hosts::json(&view.run.trials),
        "ranking": ranking(view),
        "held_up": view.held_up.iter().map(|one| json!({"dut": one.dut, "invalid": one.invalid, "trials": one.trials})).collect::<Vec<_>>(),
        "restrictions": ending::host_busy(view),
        "trust": ending::trust(view),
        "disturbed_by": ending::causes_text(view),
        "next_steps": ending::next_steps(view),
        "digests": digest::all(view).iter().map(|digest| digest.json(view)).collect::<Vec<_>>(),
        "tests": view.sections.iter().enumerate().map(|(n, s)| section(view, (n, s))).collect::<Vec<_>>(),
        "tester": view.tester.as_ref().map(|t| json!({
            "name": t.name,
            "records": t.records,
            "tests": (view.sections.len()..).zip(&view.ceiling).map(|s| section(view, s)).collect::<Vec<_>>(),
        })),
        "trials": view.run.trials,
        "notes": view.run.notes,
        "problems": view.problems(),
        "warnings": view.run.warnings,
    });
    escaped(&format!("{value:#}\n"))
}

/// Writes hidden characters in JSON text as escapes such as `\u202e`, so that the text can be shown on a terminal. They
/// occur only in strings, so the values do not change.
pub fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// A number, or an object with the known bounds.
pub fn bounds(figure: Figure) -> Value {
    let end = |value: f64| value.is_finite().then_some(value);
    if figure.is_exact() { json!(figure.low) } else { json!({ "low": end(figure.low), "high": end(figure.high) }) }
}

fn ranking(view: &View) -> Value {
    let name = |d: usize| view.duts[d].name;
    let beside = published::in_summary(view);
    let figures = view.ranking.figures.iter().map(|f| {
        json!({
            "test": view.sections[f.section].id,
            "key": f.key,
            "title": f.title,
            "unit": f.unit,
            "higher_is_better": f.higher_is_better,
            "detectable": f.detectable,
            "duets": f.duets.iter().map(|duet| json!({
                "a": view.duts[duet.a].label(), "b": view.duts[duet.b].label(),
                "ratio": duet.ratio.ratio, "low": duet.ratio.low, "high": duet.ratio.high, "pairs": duet.ratio.pairs,
            })).collect::<Vec<_>>(),
            "published": beside.row(f).map(|row| beside.values_json(row)).unwrap_or_default(),
            "compared_by": if f.by_difference { "difference" } else { "ratio" },
            "duts": f.entries.iter().enumerate().filter(|(_, e)| e.asked).map(|(d, e)| (d, e, rates::of_figure(view, f, d))).map(|(d, e, rate)| json!({
                "dut": name(d),
                "value": e.value(),
                "missing": ending::why_missing(f, d),
                "rounds": e.rounds.iter().map(|round| round.figure().map(bounds)).collect::<Vec<_>>(),
                "median": e.summary.map(|s| bounds(s.median)),
                "interval": e.summary.map(|s| bounds(s.interval)),
                "confidence": e.summary.map(|s| s.confidence),
                "tester_limited": e.limited_by_tester(),
                "suite_limited": e.suite_limited(),
                "refuted": e.figure.iter().flat_map(|f| &f.refuted).map(|r| json!({
                    "round": r.round, "trial": r.trial, "more": r.more, "text": r.text,
                })).collect::<Vec<_>>(),
                "doubts": e.figure.iter().flat_map(|f| &f.doubts).map(|d| json!({
                    "round": d.round, "trial": d.trial, "text": d.text,
                })).collect::<Vec<_>>(),
                "load_pps": e.figure.as_ref().and_then(|f| f.load_pps),
                "resolution": e.figure.as_ref().map(|f| f.resolution),
                "rank": e.rank,
                "tied": e.tied,
                "l2_mbps": rate.and_then(|r| r.l2_mbps),
                "line_percent": rate.and_then(|r| r.line_percent),
                "all_ports_pps": rate.map(|r| r.all_ports_pps),
            })).collect::<Vec<_>>(),
        })
    });
    let overall = view.ranking.order.iter().map(|d| {
        let o = &view.ranking.overall[*d];
        json!({ "dut": name(*d), "simulated": view.duts[*d].simulated, "rank": o.rank, "tied": o.tied, "mean_rank": o.mean, "figures": o.figures })
    });
    let tests = board::places(view).into_iter().map(|line| {
        json!({
            "test": view.sections[line.section].id,
            "best": line.best.iter().map(|d| name(*d)).collect::<Vec<_>>(),
            "duts": line.places.iter().enumerate().map(|(d, place)| match place {
                Place::Ranked(place, tied) => json!({ "dut": name(d), "place": place, "tied": tied }),
                Place::None(why) => json!({ "dut": name(d), "why": why }),
            }).collect::<Vec<_>>(),
        })
    });
    json!({ "how": HOW, "by_test": tests.collect::<Vec<_>>(), "overall": overall.collect::<Vec<_>>(), "figures": figures.collect::<Vec<_>>() })
}

fn section(view: &View, (n, section): (usize, &crate::view::Section)) -> Value {
    let results = section.results.iter().map(|r| {
        json!({
            "dut": view.dut(r.dut).name,
            "completed": r.standing.is_completed(),
            "standing": r.standing.text(),
            "elapsed_s": r.record.map(|t| t.elapsed_s),
            "parameters": r.record.map(|t| &t.parameters),
            "verdicts": r.record.map(|t| &t.outcome.verdicts),
            "notes": r.record.map(|t| &t.outcome.notes),
            "losses": losses::json(&r.trials),
            "kernel_counts": kernel_counts::json(view, r),
            "drops": drops::Account::of(&r.trials, &view.drops_counted).json(),
            "trials": r.trials.iter().map(|t| t.result.trial).collect::<Vec<_>>(),
        })
    });
    let tables = section.tables.iter().map(|t| {
        let added = Added::new(view, section, t);
        let columns: Vec<&Column> = t.columns.iter().copied().chain(&added.columns).collect();
        json!({
            "key": t.key,
            "title": t.title,
            "columns": columns,
            "rows": t.rows.iter().zip(&added.rows).map(|(r, more)| json!({
                "dut": view.dut(r.dut).name,
                "cells": columns.iter().zip(r.cells.iter().copied().chain(more)).map(|(c, v)| (c.key.clone(), json!(v))).collect::<serde_json::Map<_, _>>(),
                "marks": r.marks,
                "trials": r.row.trials,
            })).collect::<Vec<_>>(),
        })
    });
    json!({
        "test": section.test,
        "id": section.id,
        "title": section.title,
        "paragraph": paragraph::of_test(view, section),
        "results": results.collect::<Vec<_>>(),
        "tables": tables.collect::<Vec<_>>(),
        "published": published::in_section(view, n).json(),
        "plots": section.plots.iter().map(|p| &p.plot).collect::<Vec<_>>(),
    })
}
