//! Events of a run as JSON objects, for the page and for `run --json`.

use crate::progress::Counts;
use drophammer_methods::METHODS;
use drophammer_model::record::{Record, TestRecord, TestStatus};
use drophammer_model::trial::{Load, Validity};
use drophammer_testbed::Progress;
use serde_json::{Value, json};

/// The event for a progress message; `None` if a record reports it.
pub fn of_progress(progress: &Progress<'_>) -> Option<Value> {
    Some(match progress {
        Progress::BringUp { dut, kind } => json!({"event": "bring_up", "dut": dut, "kind": kind}),
        Progress::Test { dut, title, number, of, left } => {
            json!({"event": "test", "dut": dut, "title": title, "number": number, "of": of, "left_s": left.as_secs()})
        }
        Progress::Step { what, done, of, left } => {
            json!({"event": "step", "what": what, "done": done, "of": of, "left_s": left.as_secs()})
        }
        Progress::Note { text, problem } => json!({"event": "note", "text": text, "problem": problem}),
        Progress::TrialStarted { .. }
        | Progress::GoesOn { .. }
        | Progress::Traffic { .. }
        | Progress::TrialEnded { .. }
        | Progress::TestEnded { .. } => return None,
    })
}

/// True if a test runs once for all routers, with a record for each.
fn is_joint(test: &TestRecord) -> bool {
    METHODS.iter().any(|method| method.spec().name == test.test && method.is_joint())
}

/// The event for a record; `None` if it has none, or if a progress message reports it.
pub fn of_record(record: &Record) -> Option<Value> {
    Some(match record {
        Record::Started(started) => json!({
            "event": "started", "time": started.time, "suite": started.suite, "title": started.title, "duts": started.duts,
            "tests": started.tests.iter().map(|(name, _)| name).collect::<Vec<_>>(), "rounds": started.rounds,
        }),
        Record::Dut(dut) => json!({"event": "dut", "dut": dut.name, "kind": dut.kind, "version": dut.version}),
        Record::Trial(trial) => {
            let (spec, result) = (&trial.spec, &trial.result);
            let reasons: &[String] = match &result.validity {
                Validity::Valid => &[],
                Validity::Invalid(reasons) => reasons,
            };
            let asked = match &spec.load {
                Load::Constant { rate_pps } => Some(*rate_pps),
                _ => None,
            };
            let counts = Counts::of(spec, result);
            json!({
                "event": "trial", "time": trial.time, "dut": trial.dut, "test": trial.test, "round": trial.round, "attempt": trial.attempt,
                "trial": result.trial, "purpose": spec.purpose, "size": spec.size.to_string(), "asked_fps": asked,
                "offered_fps": result.offered_load().pps(), "offered": counts.offered, "lost": counts.lost,
                "loss_percent": counts.loss_percent(), "denied": counts.denied, "leaked": counts.leaked, "valid": result.validity.is_valid(), "reasons": reasons,
            })
        }
        Record::Test(test) => {
            let (status, cause) = match &test.status {
                TestStatus::Completed | TestStatus::FewerRounds(_) => ("completed", None),
                TestStatus::Failed(cause) | TestStatus::Partly(cause) => ("failed", Some(cause)),
                TestStatus::Unfit(cause) => ("unfit", Some(cause)),
                TestStatus::Interrupted => ("interrupted", None),
                TestStatus::Skipped(cause) => ("skipped", Some(cause)),
                // The suite runs it on other DUTs, so nothing has happened.
                TestStatus::NotAsked => return None,
            };
            let figures = test.outcome.ranks.iter().map(|figure| {
                json!({
                    "key": figure.key, "title": figure.title, "unit": figure.unit, "value": figure.value,
                    "higher_is_better": figure.higher_is_better,
                    "tester_limited": figure.tester_limited,
                    "suite_limited": figure.capped && !figure.tester_limited,
                })
            });
            json!({
                "event": "test_ended", "dut": test.dut, "test": test.test, "joint": is_joint(test), "id": test.id, "title": test.title, "round": test.round,
                "status": status, "cause": cause, "elapsed_s": test.elapsed_s, "figures": figures.collect::<Vec<_>>(),
            })
        }
        Record::Ended(ended) => json!({"event": "ended", "time": ended.time, "interrupted": ended.interrupted}),
        Record::Note(_) | Record::Filter(_) | Record::Classes(_) | Record::CoreLinks(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::outcome::Outcome;

    #[test]
    fn a_test_that_the_suite_runs_on_other_duts_has_no_event() {
        let event = |status| {
            let test = TestRecord {
                dut: "a".into(),
                test: "throughput".into(),
                id: None,
                round: 1,
                title: "Throughput".into(),
                parameters: json!({}),
                elapsed_s: 0.0,
                status,
                outcome: Outcome::default(),
            };
            of_record(&Record::Test(Box::new(test)))
        };
        assert_eq!(event(TestStatus::NotAsked), None);
        assert_eq!(event(TestStatus::Completed).unwrap()["status"], "completed");
    }
}
