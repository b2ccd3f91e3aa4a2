//! The comparison of runs for machines.

use super::{Compared, Finding, HOW, Line, Verdict};
use crate::json::{bounds, escaped};
use crate::rank::Entry;
use serde_json::{Value, json};

/// Version of the layout. It increases when a field changes its meaning or disappears.
pub(super) const LAYOUT: u32 = 2;

/// See [`Compared::json`].
pub fn json(compared: &Compared) -> String {
    let runs = compared.runs.iter().enumerate().map(|(index, run)| {
        let count = (index > 0).then(|| compared.count(index));
        json!({
            "run": run.letter,
            "folder": run.folder,
            "suite": run.suite,
            "started": run.started,
            "state": run.state,
            "worse": count.map(|count| count.worse),
            "better": count.map(|count| count.better),
            "undecided": count.map(|count| count.undecided),
            "not_compared": count.map(|count| count.not_compared),
        })
    });
    let conditions =
        compared.conditions.iter().map(|condition| json!({"name": condition.name, "values": condition.values}));
    let value = json!({
        "layout": LAYOUT,
        "how": HOW,
        "runs": runs.collect::<Vec<_>>(),
        "conditions": conditions.collect::<Vec<_>>(),
        "figures": compared.lines.iter().map(|line| figure(compared, line)).collect::<Vec<_>>(),
    });
    escaped(&format!("{value:#}\n"))
}

fn figure(compared: &Compared, line: &Line) -> Value {
    let against = line.findings.iter().zip(&compared.runs[1..]).map(|(finding, run)| one(&run.letter, finding));
    json!({
        "test": line.test,
        "key": line.key,
        "title": line.title,
        "unit": line.unit,
        "higher_is_better": line.higher_is_better,
        "compared_by": if line.by_difference { "difference" } else { "ratio" },
        "dut": line.dut,
        "runs": line.entries.iter().map(|entry| entry.as_ref().map(of_run)).collect::<Vec<_>>(),
        "against": against.collect::<Vec<_>>(),
    })
}

pub(super) fn of_run(entry: &Entry) -> Value {
    json!({
        "rounds": entry.rounds.iter().map(|round| round.figure().map(bounds)).collect::<Vec<_>>(),
        "median": entry.summary.map(|summary| bounds(summary.median)),
        "interval": entry.summary.map(|summary| bounds(summary.interval)),
        "confidence": entry.summary.map(|summary| summary.confidence),
        "tester_limited": entry.limited_by_tester(),
        "suite_limited": entry.suite_limited(),
        "refuted": entry.refuted(),
        "doubtful": entry.doubtful(),
        "load_pps": entry.figure.as_ref().and_then(|figure| figure.load_pps),
    })
}

pub(super) fn one(run: &str, finding: &Finding) -> Value {
    let (verdict, why) = match &finding.verdict {
        Verdict::Better => ("better", None),
        Verdict::Worse => ("worse", None),
        Verdict::Undecided => ("undecided", None),
        Verdict::NotCompared(why) => ("not_compared", Some(why)),
    };
    json!({
        "run": run,
        "verdict": verdict,
        "why": why,
        "p": finding.p,
        "difference": finding.values.map(|values| bounds(values.difference)),
        "interval": finding.values.map(|values| bounds(values.interval)),
    })
}
