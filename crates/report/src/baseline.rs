//! A baseline is an earlier run. Bounds of a suite may be shares of its figures.
//!
//! Its figures become part of the suite before the run, and of the records of the run. So a report needs only these
//! records.

use crate::compare::conditions::{of_dut, of_machine};
use drophammer_judge::criteria::{Found, in_round};
use drophammer_judge::doubt;
use drophammer_judge::refutation;
use drophammer_judge::statistics::summarize;
use drophammer_model::figure::{Figure, RoundFigure};
use drophammer_model::record::{Baseline, Started, TestRecord};
use drophammer_model::suite::{BaselineFigure, Expectation, Suite, TestConfig};
use drophammer_store::Run;
use std::collections::BTreeSet;

/// Maximum number of names, and of conditions, in a sentence.
const MOST_LISTED: usize = 8;
/// Maximum length of a condition's value in a sentence, in characters.
const LONGEST: usize = 60;

/// Reads the figures that `suite` needs from `run`, its baseline, into its criteria. A criterion for all DUTs becomes
/// one for each DUT.
///
/// # Errors
/// One line for each figure that the baseline does not have, with the remedy.
pub fn resolve(suite: &mut Suite, run: &Run) -> Result<(), Vec<String>> {
    let mut records = run.tests.clone();
    refutation::mark(&mut records, &run.trials);
    let is_simulated = |name: &str| run.duts.iter().any(|dut| dut.name == name && dut.simulated);
    doubt::mark(&mut records, &run.trials, &|trial| run.occurrence(trial), &is_simulated);
    let source = Source { run, records, duts: suite.duts.iter().map(|dut| dut.name.clone()).collect() };
    let mut wrong = Vec::new();
    let mut before: Vec<String> = Vec::new();
    for test in &mut suite.tests {
        let nth = before.iter().filter(|name| **name == test.test).count();
        before.push(test.test.clone());
        let mut resolved = Vec::new();
        for expected in std::mem::take(&mut test.expect) {
            let of = |dut: &String| expected.dut.as_ref().is_none_or(|only| only == dut);
            let duts: Vec<&String> = source.duts.iter().filter(|dut| of(dut)).collect();
            // Criteria for a DUT that will not run are not judged.
            if expected.baseline.is_none() || duts.is_empty() {
                resolved.push(expected);
                continue;
            }
            for dut in duts {
                match source.figure(&expected, test, nth, dut) {
                    Ok(figure) => {
                        let (dut, baseline) = (Some(dut.clone()), Some(figure));
                        resolved.push(Expectation { dut, baseline, ..expected.clone() });
                    }
                    Err(why) => wrong.push(why),
                }
            }
        }
        test.expect = resolved;
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let folder = suite.baseline.take().map_or_else(|| run.dir.display().to_string(), |baseline| baseline.folder);
    suite.baseline = Some(Baseline {
        folder,
        started: run.started.time.clone(),
        state: run.state().to_string(),
        conditions: of_run(&run.started),
        duts: run.duts.iter().map(|dut| (dut.name.clone(), of_dut(dut))).collect(),
    });
    Ok(())
}

/// Conditions of a run, in words.
fn of_run(started: &Started) -> Vec<(String, String)> {
    let profile = ("Profile".to_owned(), started.profile.clone());
    [profile].into_iter().chain(of_machine(&started.environment)).collect()
}

/// Origin of the figures.
struct Source<'a> {
    run: &'a Run,
    /// Its tests, with refuted figures marked.
    records: Vec<TestRecord>,
    /// DUTs of the suite that will run.
    duts: Vec<String>,
}

impl Source<'_> {
    /// The baseline's figure for a criterion of `test`, the `nth` test of that name, on `dut`.
    fn figure(
        &self,
        expected: &Expectation,
        test: &TestConfig,
        nth: usize,
        dut: &str,
    ) -> Result<BaselineFigure, String> {
        let there = self.dut(dut)?;
        let (own, all) = (self.rounds(there, &test.test, nth), &self.run.started.tests);
        let what = format!("`{}` of the test `{}` on `{there}`", expected.figure, test.test);
        let Some(first) = own.first() else {
            let again = if nth == 0 { "" } else { ", or not as often as the suite" };
            let has = listed(all.iter().map(|(name, _)| name.as_str()));
            return Err(format!("the baseline has no {what}: it does not have this test{again}; it has {has}"));
        };
        let found: Vec<Found> = own.iter().map(|record| in_round(expected, &record.outcome, &record.status)).collect();
        let known = |found: &Found| match found.figure {
            RoundFigure::Measured(figure) => figure,
            RoundFigure::Failed | RoundFigure::NotMeasured => Figure::unknown(),
        };
        let figures: Vec<Figure> = found.iter().map(known).collect();
        let ends = || figures.iter().flat_map(|figure| [figure.low, figure.high]).filter(|end| end.is_finite());
        if ends().next().is_none() {
            let why = found.iter().find_map(|found| found.why.clone()).unwrap_or_else(|| {
                let keys = own.iter().flat_map(|record| &record.outcome.ranks).map(|rank| rank.key.as_str());
                format!("no round measured it; its figures are {}", listed(keys))
            });
            return Err(format!("the baseline has no {what}: {why}; take another run, or give a bound in numbers"));
        }
        if ends().any(|end| end < 0.0) {
            return Err(format!(
                "{what} is negative in the baseline, so a share of it means nothing; give a bound in numbers"
            ));
        }
        let summary = summarize(&figures).ok_or_else(|| format!("the baseline has no {what}"))?;
        let mut loads: Vec<f64> = found.iter().filter_map(|found| found.load_pps).collect();
        loads.sort_by(f64::total_cmp);
        Ok(BaselineFigure {
            dut: if there == dut { String::new() } else { there.to_owned() },
            title: found.iter().map(|found| found.title.clone()).find(|title| !title.is_empty()).unwrap_or_default(),
            load_pps: loads.get(loads.len() / 2).copied(),
            parameters: other_parameters(&test.params.to_json(), &first.parameters),
            ..BaselineFigure::of(summary.rounds, summary.median, summary.interval)
        })
    }

    /// The baseline's DUT for a DUT of the suite: the one of the same name, or the only one if both have a single DUT.
    fn dut(&self, name: &str) -> Result<&str, String> {
        let there = &self.run.started.duts;
        match there.iter().find(|there| *there == name) {
            Some(same) => Ok(same),
            None if there.len() == 1 && self.duts.len() == 1 => Ok(&there[0]),
            None => {
                let has = listed(there.iter().map(String::as_str));
                Err(format!("the baseline has no router `{name}`; it has {has}; give it the same name in both suites"))
            }
        }
    }

    /// The records of the `nth` test of this name, one per round.
    fn rounds(&self, dut: &str, test: &str, nth: usize) -> Vec<&TestRecord> {
        let own = || self.records.iter().filter(move |record| record.dut == dut && record.test == test);
        let rounds: BTreeSet<u32> = own().map(|record| record.round).collect();
        rounds.into_iter().filter_map(|round| own().filter(move |record| record.round == round).nth(nth)).collect()
    }
}

/// Names, each once; if there are many, the first ones.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut seen = BTreeSet::new();
    let all: Vec<&str> = names.filter(|name| seen.insert(*name)).collect();
    some_of(&all, "none")
}

fn some_of(all: &[&str], none: &str) -> String {
    match all.len() {
        0 => none.to_owned(),
        n if n > MOST_LISTED => format!("{} and {} more", all[..MOST_LISTED].join(", "), n - MOST_LISTED),
        _ => all.join(", "),
    }
}

/// Parameters that differ: `duration: 60 s there, 1 s here`.
fn other_parameters(here: &serde_json::Value, there: &serde_json::Value) -> Vec<String> {
    let words = |value: &serde_json::Value| -> Vec<(String, String)> {
        let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
    };
    different(&words(there), &words(here))
}

/// Conditions that differ: `Kernel: 6.12 there, 6.18 here`.
fn different(there: &[(String, String)], here: &[(String, String)]) -> Vec<String> {
    let find = |all: &[(String, String)], name: &str| {
        all.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let mut seen = BTreeSet::new();
    let names = there.iter().chain(here).map(|(name, _)| name).filter(|name| seen.insert(*name));
    let line = |name: &String| {
        let (there, here) = (find(there, name), find(here, name));
        (there != here).then(|| format!("{name}: {} there, {} here", cut(&there), cut(&here)))
    };
    names.filter_map(line).collect()
}

/// A value shortened for a sentence.
fn cut(value: &str) -> String {
    let line = value.lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.is_empty() => "nothing".into(),
        None => line.to_owned(),
    }
}

/// Names the baseline in the verdicts that depend on it, and the conditions that differed in that run.
pub(crate) fn name_in_verdicts(run: &mut Run) {
    let Some(baseline) = run.started.baseline.clone() else { return };
    let of_all = different(&baseline.conditions, &of_run(&run.started));
    let mut origin = format!("baseline: {} of {}", baseline.folder, baseline.started);
    if baseline.state != drophammer_store::RunState::Complete.to_string() {
        origin += &format!(", {}", baseline.state);
    }
    for test in &mut run.tests {
        let here = run.duts.iter().find(|dut| dut.name == test.dut).map(of_dut);
        for verdict in &mut test.outcome.verdicts {
            let Some(figure) = verdict.expected.as_ref().and_then(|expected| expected.baseline.as_ref()) else {
                continue;
            };
            let name = if figure.dut.is_empty() { &test.dut } else { &figure.dut };
            let there = baseline.duts.iter().find(|(known, _)| known == name).map(|(_, conditions)| conditions);
            let of_dut = match (there, &here) {
                (Some(there), Some(here)) => different(there, here),
                _ => Vec::new(),
            };
            let all: Vec<&str> = figure.parameters.iter().chain(&of_all).chain(&of_dut).map(String::as_str).collect();
            let other =
                if all.is_empty() { String::new() } else { format!("; other conditions: {}", some_of(&all, "")) };
            verdict.found += &format!(" ({origin}{other})");
        }
    }
}
