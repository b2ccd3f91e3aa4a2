//! Converts records to the lines that are compared.
//!
//! The lines contain only results of a trial or a test, with names that are defined in this file: a change of how
//! records are stored does not change a line. From a trial's specification, they contain purpose, load, duration and
//! number of flows. They omit wall-clock times, effects of the machine on the tester, headings, and the words of notes
//! (but keep the numbers in notes).

use drophammer_model::LatencySummary;
use drophammer_model::outcome::{Cell, Outcome, Plot, Series, Table};
use drophammer_model::record::{Record, TestRecord, TestStatus, TrialRecord};
use drophammer_model::trial::{GroupCounts, Health, Load, Validity};
use serde_json::{Map, Value, json};

/// Lists and maps with more characters than this are abridged.
const BRIEF: usize = 120;
/// Maximum number of rows of a table that each get a line.
const ROWS: usize = 20;

/// Turns records into lines.
pub struct Figures {
    /// True if long lists are written in full, instead of their length and a digest.
    pub full: bool,
}

impl Figures {
    /// Lines of a record; none for the start and the end of a run, and for its description of the device.
    pub fn of(&self, record: &Record) -> Vec<Value> {
        match record {
            Record::Trial(trial) => vec![self.trial(trial)],
            Record::Test(test) => self.test(test),
            Record::Note(note) => {
                vec![json!({"record": "note", "problem": note.problem, "numbers": numbers(&note.text)})]
            }
            Record::Started(_)
            | Record::Dut(_)
            | Record::Filter(_)
            | Record::Classes(_)
            | Record::CoreLinks(_)
            | Record::Ended(_) => Vec::new(),
        }
    }

    /// Replaces a long list or map by its length and a digest.
    fn brief(&self, value: Value) -> Value {
        let text = value.to_string();
        if self.full || text.len() <= BRIEF {
            return value;
        }
        let n = value.as_array().map_or(0, Vec::len) + value.as_object().map_or(0, Map::len);
        json!({"n": n, "fnv": fnv(&text)})
    }

    fn trial(&self, trial: &TrialRecord) -> Value {
        let (spec, result) = (&trial.spec, &trial.result);
        let events: Vec<_> = result.events.iter().map(|e| json!([e.at_s, e.took_s])).collect();
        let of_destinations = |d: &drophammer_model::trial::DestinationSummary| {
            json!([d.flow, d.destinations, d.offered, d.with_loss, d.unreached])
        };
        let destinations: Vec<_> = result.destination_summaries.iter().map(of_destinations).collect();
        let validity = match &result.validity {
            Validity::Valid => json!("valid"),
            Validity::Invalid(why) => json!(why.iter().map(|w| numbers(w)).collect::<Vec<_>>()),
        };
        let mut line = object(json!({
            "record": "trial",
            "trial": result.trial,
            "test": trial.test,
            "purpose": spec.purpose,
            "load": load(&spec.load),
            "duration_s": spec.duration_s,
            "flows": spec.flows.len(),
            "senders": result.senders,
            "sending_s": result.sending_s,
            "receiving_s": result.receiving_s,
            "validity": validity,
            "groups": result.groups.iter().map(|g| self.group(g)).collect::<Vec<_>>(),
            "counters": self.brief(json!(result.dut_counters)),
            "events": self.brief(json!(events)),
            "destinations": self.brief(json!(destinations)),
            "health": self.health(&result.health),
        }));
        if trial.attempt != 1 {
            line.insert("attempt".into(), json!(trial.attempt));
        }
        Value::Object(without_nothing(line))
    }

    fn group(&self, g: &GroupCounts) -> Value {
        let bins: Vec<_> = g.bins.iter().map(|b| json!([b.offered, b.delivered, b.arrived])).collect();
        let line = object(json!({
            "group": g.group,
            "intended": g.intended,
            "offered": g.offered,
            "refused": g.refused,
            "received": g.received,
            "lost": g.lost,
            "duplicated": g.duplicated,
            "reordered": g.reordered,
            "max_reordering_extent": g.max_reordering_extent,
            "reordered_3": g.reordered_3,
            "in_sequence": g.in_sequence,
            "late": g.late,
            "corrupted": g.corrupted,
            "stray": g.stray,
            "received_bytes": g.received_bytes,
            "latency": self.latency(&g.latency),
            "last_loss_ns": g.last_loss_ns,
            "bins": self.brief(json!(bins)),
            "arrived_at": self.brief(json!(g.arrived_at)),
        }));
        Value::Object(without_nothing(line))
    }

    fn latency(&self, l: &LatencySummary) -> Value {
        let percentiles = self.brief(json!(l.percentiles));
        json!({"frames": l.frames, "min_ns": l.min_ns, "mean_ns": l.mean_ns, "max_ns": l.max_ns, "percentiles": percentiles})
    }

    /// The tester's counters, except those that depend on how often its loop runs.
    fn health(&self, h: &Health) -> Value {
        let late: Vec<_> = h.departure_errors.iter().filter(|(ns, _)| *ns > 0).collect();
        let line = object(json!({
            "unsent": h.unsent,
            "receive_drops": h.receive_drops,
            "stale": h.stale,
            "other_received": h.other_received,
            "late_departures": self.brief(json!(late)),
        }));
        Value::Object(without_nothing(line))
    }

    fn test(&self, test: &TestRecord) -> Vec<Value> {
        let (status, cause) = match &test.status {
            TestStatus::Completed => ("completed", Value::Null),
            TestStatus::Partly(why) | TestStatus::FewerRounds(why) => ("partly", numbers(why)),
            TestStatus::Failed(why) => ("failed", numbers(why)),
            TestStatus::Unfit(why) => ("unfit", numbers(why)),
            TestStatus::Interrupted => ("interrupted", Value::Null),
            TestStatus::Skipped(why) => ("skipped", numbers(why)),
            TestStatus::NotAsked => ("not_asked", Value::Null),
        };
        let mut lines = vec![json!({"record": "test", "test": test.test, "status": status, "cause": cause})];
        self.outcome(&test.test, &test.outcome, &mut lines);
        lines
    }

    fn outcome(&self, test: &str, outcome: &Outcome, lines: &mut Vec<Value>) {
        for table in &outcome.tables {
            let mut rows: Vec<Value> = (0..table.rows.len()).map(|row| self.row(test, table, row)).collect();
            let rest = rows.split_off(rows.len().min(if self.full { usize::MAX } else { ROWS }));
            lines.extend(rows);
            if !rest.is_empty() {
                let rest = self.brief(Value::Array(rest));
                lines.push(json!({"record": "further rows", "test": test, "table": table.key, "rows": rest}));
            }
        }
        for plot in &outcome.plots {
            lines.extend(plot.series.iter().map(|series| self.series(test, plot, series)));
            if !plot.events.is_empty() {
                let at: Vec<f64> = plot.events.iter().map(|(x, _)| *x).collect();
                lines.push(json!({"record": "marks", "test": test, "plot": plot.key, "x": self.brief(json!(at))}));
            }
        }
        for r in &outcome.ranks {
            lines.push(json!({
                "record": "figure", "test": test, "figure": r.key, "value": r.value, "higher_is_better": r.higher_is_better,
                "tester_limited": r.tester_limited, "resolution": r.resolution,
            }));
        }
        for v in &outcome.verdicts {
            lines.push(
                json!({"record": "verdict", "test": test, "criterion": v.criterion, "pass": v.pass, "found": v.found}),
            );
        }
        for note in &outcome.notes {
            lines.push(json!({"record": "outcome note", "test": test, "numbers": numbers(note)}));
        }
    }

    fn row(&self, test: &str, table: &Table, index: usize) -> Value {
        let row = &table.rows[index];
        let named = table.columns.iter().zip(&row.cells).map(|(column, cell)| (column.key.clone(), number(cell)));
        let cells: Map<_, _> = named.filter(|(_, value)| !value.is_null()).collect();
        let trials = self.brief(json!(row.trials));
        let line = object(json!({
            "record": "row", "test": test, "table": table.key, "row": index + 1, "cells": cells, "trials": trials, "marks": row.marks,
        }));
        Value::Object(without_nothing(line))
    }

    fn series(&self, test: &str, plot: &Plot, series: &Series) -> Value {
        let points: Vec<_> = series.points.iter().map(|p| json!([p.x, p.y, p.label, p.range, p.trial])).collect();
        json!({
            "record": "series", "test": test, "plot": plot.key, "kind": plot.kind, "log_y": plot.log_y, "series": series.name,
            "reference": series.reference, "dots": series.dots, "points": self.brief(json!(points)),
        })
    }
}

fn number(cell: &Cell) -> Value {
    match cell {
        Cell::None => Value::Null,
        Cell::Count(n) => json!(n),
        Cell::Number(x) => json!(x),
        Cell::Text(text) => json!(text),
    }
}

fn load(load: &Load) -> Value {
    match load {
        Load::Constant { rate_pps } => json!({"constant_pps": rate_pps}),
        Load::Maximum { limit_pps } => json!({"maximum_pps": limit_pps}),
        Load::Steps { steps } => {
            json!({"steps": steps.iter().map(|s| json!([s.duration_s, s.rate_pps])).collect::<Vec<_>>()})
        }
        Load::Burst { frames, rate_pps } => json!({"burst_frames": frames, "rate_pps": rate_pps}),
        Load::Flows => json!("by flow"),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("no object: {other}"),
    }
}

/// The map without counts of 0 and empty lists, which most entries are.
fn without_nothing(map: Map<String, Value>) -> Map<String, Value> {
    let is_nothing = |v: &Value| match v {
        Value::Null => true,
        Value::Number(n) => n.as_u64() == Some(0),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::Bool(_) | Value::String(_) => false,
    };
    map.into_iter().filter(|(_, v)| !is_nothing(v)).collect()
}

/// The numbers in a text, in order. The words can change without a change of a figure.
fn numbers(text: &str) -> Value {
    let parts = text.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    let trimmed = parts.map(|p| p.trim_matches(|c: char| !c.is_ascii_digit()));
    json!(trimmed.filter(|p| !p.is_empty()).collect::<Vec<_>>())
}

/// FNV-1a, 128 bits, in hexadecimal digits.
fn fnv(text: &str) -> String {
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for byte in text.bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    format!("{hash:032x}")
}

#[test]
fn the_digest_is_the_published_one() {
    // http://www.isthe.com/chongo/tech/comp/fnv: the basis, and the test vector of "a".
    assert_eq!(fnv(""), "6c62272e07bb014262b821756295c58d");
    assert_eq!(fnv("a"), "d228cb696f1a8caf78912b704e4a8964");
}

#[test]
fn of_a_text_its_numbers_are_kept() {
    assert_eq!(numbers("In 1.5 s 20,000 of p2's routes, 16.0.0.0/8."), json!(["1.5", "20,000", "2", "16.0.0.0", "8"]));
}
