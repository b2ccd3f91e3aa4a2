//! A baseline is an earlier run. The bounds of a suite can be shares of the baseline's figures.
//!
//! The figures of the baseline become part of the suite before the run, and then part of the run's records, so a report
//! does not need the other run.

use crate::compare::conditions::{of_dut, of_machine};
use drophammer_judge::criteria::{self, Found, in_round, listed};
use drophammer_judge::distinct;
use drophammer_judge::statistics::summarize;
use drophammer_model::figure::{Figure, RoundFigure};
use drophammer_model::record::{Baseline, Started, TestRecord};
use drophammer_model::suite::{BaselineFigure, Expectation, Suite, TestConfig};
use drophammer_store::Run;
use std::collections::BTreeSet;

/// Maximum number of names or conditions in a sentence.
const MOST_LISTED: usize = 8;
/// Maximum number of characters of a condition's value in a sentence.
const LONGEST: usize = 60;

/// Reads the figures that `suite` needs from the baseline `run` into its criteria. A criterion for all DUTs becomes one
/// criterion for each DUT.
///
/// # Errors
/// One line with a remedy for each figure that is missing in the baseline.
pub fn resolve(suite: &mut Suite, run: &Run) -> Result<(), Vec<String>> {
    let duts = suite.duts.iter().map(|dut| dut.name.clone()).collect();
    let source = Source { run, records: crate::marked(run), duts };
    let mut wrong = Vec::new();
    let mut before: Vec<String> = Vec::new();
    for test in &mut suite.tests {
        let nth = before.iter().filter(|name| **name == test.test).count();
        before.push(test.test.clone());
        let mut resolved = Vec::new();
        for expected in std::mem::take(&mut test.expect) {
            let of = |dut: &String| expected.dut.as_ref().is_none_or(|only| only == dut);
            let duts: Vec<&String> = source.duts.iter().filter(|dut| of(dut)).collect();
            // A criterion for a DUT that will not run is not judged.
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

/// Describes the conditions of a run in words.
fn of_run(started: &Started) -> Vec<(String, String)> {
    let profile = ("Profile".to_owned(), started.profile.clone());
    [profile].into_iter().chain(of_machine(&started.environment)).collect()
}

/// The run that the figures come from.
struct Source<'a> {
    run: &'a Run,
    /// Its tests, with refuted and doubtful figures marked.
    records: Vec<TestRecord>,
    /// DUTs of the suite that will run.
    duts: Vec<String>,
}

impl Source<'_> {
    /// The baseline's figure for a criterion of `test`, which is the `nth` test with its name, on `dut`.
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
            let again = if nth == 0 { "" } else { ", or contains it fewer times than the suite" };
            let has = listed(all.iter().map(|(name, _)| name.clone()), MOST_LISTED);
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
                let keys = own.iter().flat_map(|record| &record.outcome.ranks).map(|rank| rank.key.clone());
                format!("no round measured it; the test has the figures {}", listed(keys, MOST_LISTED))
            });
            return Err(format!(
                "the baseline has no {what}: {why}; choose another run, or give the bound as a number"
            ));
        }
        if ends().any(|end| end < 0.0) {
            let why = "is negative in the baseline, so a share of it means nothing; give the bound as a number";
            return Err(format!("{what} {why}"));
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

    /// The baseline's DUT for a DUT of the suite: the DUT with the same name, or the only DUT if both have only one.
    fn dut(&self, name: &str) -> Result<&str, String> {
        let there = &self.run.started.duts;
        match there.iter().find(|there| *there == name) {
            Some(same) => Ok(same),
            None if there.len() == 1 && self.duts.len() == 1 => Ok(&there[0]),
            None => {
                let has = listed(there.iter().cloned(), MOST_LISTED);
                Err(format!("the baseline has no router `{name}`; it has {has}; give it the same name in both suites"))
            }
        }
    }

    /// The records of the `nth` test with this name, one per round.
    fn rounds(&self, dut: &str, test: &str, nth: usize) -> Vec<&TestRecord> {
        let own = || self.records.iter().filter(move |record| record.dut == dut && record.test == test);
        let rounds: BTreeSet<u32> = own().map(|record| record.round).collect();
        rounds.into_iter().filter_map(|round| own().filter(move |record| record.round == round).nth(nth)).collect()
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
    let cut = |value: &str| match value.lines().next().unwrap_or_default() {
        "" => "nothing".to_owned(),
        line => criteria::cut(line, LONGEST),
    };
    let line = |name: &String| {
        let (there, here) = (find(there, name), find(here, name));
        (there != here).then(|| format!("{name}: {} there, {} here", cut(&there), cut(&here)))
    };
    distinct(there.iter().chain(here).map(|(name, _)| name)).into_iter().filter_map(line).collect()
}

/// Names the baseline in the verdicts that depend on it, and lists the conditions that were different in the baseline.
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
            let mut all = figure.parameters.iter().chain(&of_all).chain(&of_dut).cloned().peekable();
            let other = match all.peek() {
                Some(_) => format!("; other conditions: {}", listed(all, MOST_LISTED)),
                None => String::new(),
            };
            verdict.found += &format!(" ({origin}{other})");
        }
    }
}
