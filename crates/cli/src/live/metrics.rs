//! Metrics of a run, in the text format of Prometheus.

use drophammer_model::environment::TESTER;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::Write as _;

/// Counts and figures of a run.
#[derive(Debug, Default)]
pub struct Metrics {
    suite: String,
    dut: String,
    test: String,
    /// Names of the tests of the suite.
    of_suite: Vec<String>,
    /// Tests that run once for all routers and have ended: name, id and round.
    joint: HashSet<String>,
    tests: u64,
    begun: u64,
    ended: u64,
    failed: u64,
    valid: u64,
    invalid: u64,
    offered: u64,
    lost: u64,
    left_s: f64,
    offered_fps: f64,
    loss_percent: f64,
    now: Option<Now>,
}

/// The current trial.
#[derive(Debug)]
struct Now {
    offered_fps: f64,
    received_fps: f64,
    lost: Option<f64>,
    left_s: f64,
}

impl Metrics {
    /// Counts an event.
    pub fn note(&mut self, event: &Value) {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let count = |key: &str| event[key].as_u64().unwrap_or(0);
        let number = |key: &str| event[key].as_f64().unwrap_or(0.0);
        match event["event"].as_str().unwrap_or_default() {
            "started" => {
                self.suite = text("suite");
                let tests = event["tests"].as_array().into_iter().flatten();
                self.of_suite = tests.filter_map(Value::as_str).map(str::to_owned).collect();
            }
            "test" => {
                (self.dut, self.test) = (text("dut"), text("title"));
                (self.tests, self.left_s) = (count("of"), number("left_s"));
                let begun = count("number");
                // A resumed run continues from this number.
                if self.begun == 0 {
                    self.ended = self.ended.max(begun.saturating_sub(1));
                }
                self.begun = self.begun.max(begun);
            }
            "step" => self.left_s = number("left_s"),
            "rates" => {
                self.now = Some(Now {
                    offered_fps: number("offered_fps"),
                    received_fps: number("received_fps"),
                    lost: event["lost"].as_f64(),
                    left_s: number("left_s"),
                });
            }
            "trial" => {
                self.now = None;
                if event["valid"] == Value::Bool(true) {
                    self.valid += 1;
                    self.offered += count("offered");
                    self.lost += count("lost");
                    (self.offered_fps, self.loss_percent) = (number("offered_fps"), number("loss_percent"));
                } else {
                    self.invalid += 1;
                }
            }
            "test_ended" => {
                self.now = None;
                // Do not count what the tester measures about itself and its ports.
                let test = text("test");
                if event["dut"] == TESTER || !self.of_suite.contains(&test) {
                    return;
                }
                // A skipped test has not run. If another router failed a joint test, that router's event counts.
                if event["status"] == "skipped" {
                    return;
                }
                let key = format!("{test} {} {}", event["id"], event["round"]);
                if event["joint"] == Value::Bool(true) && !self.joint.insert(key) {
                    return;
                }
                self.ended += 1;
                // The tests of a router that does not come up end without having begun.
                self.begun = self.begun.max(self.ended);
                self.tests = self.tests.max(self.begun);
                let incomplete = ["failed", "unfit"].iter().any(|status| event["status"] == *status);
                self.failed += u64::from(incomplete);
            }
            _ => {}
        }
    }

    /// The metrics as text for Prometheus.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, values: &[(&str, f64)]| {
            let _ = writeln!(out, "# HELP drophammer_{name} {help}\n# TYPE drophammer_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(out, "drophammer_{name}{labels} {value}");
            }
        };
        let labels = [("suite", &self.suite), ("dut", &self.dut), ("test", &self.test)];
        let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).join(",");
        let labels = format!("{{{labels}}}");
        metric("running", "gauge", "What is being tested.", &[(labels.as_str(), 1.0)]);
        metric("tests", "gauge", "Tests of the run, over all routers and rounds.", &[("", self.tests as f64)]);
        metric("test_number", "gauge", "Tests that have begun.", &[("", self.begun as f64)]);
        metric("tests_ended_total", "counter", "Tests that have run to an end.", &[("", self.ended as f64)]);
        metric("tests_failed_total", "counter", "Tests that failed or were spoilt.", &[("", self.failed as f64)]);
        let trials = [("{valid=\"true\"}", self.valid as f64), ("{valid=\"false\"}", self.invalid as f64)];
        metric("trials_total", "counter", "Trials; those that are not valid were spoilt by the tester.", &trials);
        metric("frames_offered_total", "counter", "Frames of valid trials.", &[("", self.offered as f64)]);
        metric(
            "frames_lost_total",
            "counter",
            "Frames of valid trials that did not arrive.",
            &[("", self.lost as f64)],
        );
        metric("offered_fps", "gauge", "Frames per second of the last valid trial.", &[("", self.offered_fps)]);
        metric("loss_percent", "gauge", "Loss of the last valid trial.", &[("", self.loss_percent)]);
        metric("left_seconds", "gauge", "Time left, estimated.", &[("", self.left_s)]);
        let of_now = |value: fn(&Now) -> Option<f64>| self.now.as_ref().and_then(value).map(|value| ("", value));
        let mut now = |name: &str, help: &str, value: fn(&Now) -> Option<f64>| {
            // Between trials there is no value, rather than 0.
            metric(name, "gauge", help, of_now(value).as_slice());
        };
        now("trial_offered_fps", "Frames per second offered in the current trial.", |now| Some(now.offered_fps));
        now("trial_received_fps", "Frames per second received in the current trial.", |now| Some(now.received_fps));
        now("trial_lost_frames", "Frames lost in the current trial so far.", |now| now.lost);
        now("trial_left_seconds", "Time until the current trial stops sending.", |now| Some(now.left_s));
        out
    }
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_are_there_while_a_trial_runs() {
        let mut metrics = Metrics::default();
        let rates = json!({"event": "rates", "offered_fps": 50.5, "received_fps": 50.0, "lost": 3, "left_s": 7.5});
        let lines = |metrics: &Metrics| {
            let text = metrics.text();
            let values = text.lines().filter(|line| line.starts_with("drophammer_trial_"));
            values.map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(lines(&metrics).is_empty());
        metrics.note(&rates);
        let all = [
            "drophammer_trial_offered_fps 50.5",
            "drophammer_trial_received_fps 50",
            "drophammer_trial_lost_frames 3",
            "drophammer_trial_left_seconds 7.5",
        ];
        assert_eq!(lines(&metrics), all);
        metrics.note(&json!({"event": "rates", "offered_fps": 1.0, "lost": null}));
        assert!(!lines(&metrics).iter().any(|line| line.contains("lost")), "it is not known");
        metrics.note(&json!({"event": "trial", "valid": true}));
        assert!(lines(&metrics).is_empty());
    }

    #[test]
    fn counters_agree_with_each_other() {
        let value = |metrics: &Metrics, name: &str| {
            let text = metrics.text();
            let line = text.lines().find(|line| line.starts_with(&format!("drophammer_{name} "))).unwrap();
            line.split(' ').next_back().unwrap().parse::<u64>().unwrap()
        };
        let mut metrics = Metrics::default();
        metrics.note(&json!({"event": "started", "tests": ["throughput"]}));
        // The first router does not come up; a resumed run begins with its third test.
        let ended = json!({"event": "test_ended", "dut": "a", "test": "throughput", "status": "failed"});
        metrics.note(&ended);
        assert_eq!(["tests", "test_number", "tests_ended_total"].map(|name| value(&metrics, name)), [1, 1, 1]);
        let mut metrics = Metrics::default();
        metrics.note(&json!({"event": "started", "tests": ["throughput"]}));
        metrics.note(&json!({"event": "test", "dut": "b", "number": 3, "of": 4}));
        assert_eq!(["tests", "test_number", "tests_ended_total"].map(|name| value(&metrics, name)), [4, 3, 2]);
        metrics.note(&ended);
        assert_eq!(["tests", "test_number", "tests_ended_total"].map(|name| value(&metrics, name)), [4, 3, 3]);
    }

    #[test]
    fn a_skipped_test_has_not_ended_and_one_that_was_stopped_has_not_failed() {
        let mut metrics = Metrics::default();
        metrics.note(&json!({"event": "started", "tests": ["throughput"]}));
        for status in ["completed", "skipped", "failed", "unfit", "interrupted"] {
            metrics.note(&json!({"event": "test_ended", "dut": "a", "test": "throughput", "status": status}));
        }
        let text = metrics.text();
        for line in ["drophammer_tests_ended_total 4", "drophammer_tests_failed_total 2"] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_joint_test_that_one_router_failed_has_ended_and_failed() {
        let mut metrics = Metrics::default();
        metrics.note(&json!({"event": "started", "tests": ["head_to_head"]}));
        for (dut, status) in [("a", "skipped"), ("b", "failed")] {
            let ended = json!({"event": "test_ended", "dut": dut, "test": "head_to_head", "round": 1, "joint": true, "status": status});
            metrics.note(&ended);
        }
        assert_eq!((metrics.ended, metrics.failed), (1, 1));
    }

    #[test]
    fn events_are_counted() {
        let mut metrics = Metrics::default();
        for event in [
            json!({"event": "started", "suite": "a \"b\"\n", "tests": ["throughput", "head_to_head"]}),
            // Measurements of the tester about itself and its ports.
            json!({"event": "test", "dut": "tester", "title": "Tester ceiling", "number": 0, "of": 6, "left_s": 40}),
            json!({"event": "test_ended", "dut": "tester", "test": "throughput", "status": "completed"}),
            json!({"event": "test_ended", "dut": "frr", "test": "offered_load", "status": "completed"}),
            json!({"event": "test", "dut": "frr", "title": "Throughput", "number": 1, "of": 6, "left_s": 30}),
            json!({"event": "trial", "valid": true, "offered": 100, "lost": 1, "offered_fps": 50.0, "loss_percent": 1.0}),
            json!({"event": "trial", "valid": false, "offered": 100, "lost": 90}),
            json!({"event": "test_ended", "dut": "frr", "test": "throughput", "round": 1, "joint": false, "status": "completed"}),
            json!({"event": "test", "dut": "frr and bird", "title": "Head to head", "number": 2, "of": 6, "left_s": 30}),
            // One test, with a record for each router.
            json!({"event": "test_ended", "dut": "frr", "test": "head_to_head", "round": 1, "joint": true, "status": "failed"}),
            json!({"event": "test_ended", "dut": "bird", "test": "head_to_head", "round": 1, "joint": true, "status": "failed"}),
        ] {
            metrics.note(&event);
        }
        let text = metrics.text();
        for line in [
            "drophammer_running{suite=\"a \\\"b\\\"\\n\",dut=\"frr and bird\",test=\"Head to head\"} 1",
            "drophammer_tests 6",
            "drophammer_test_number 2",
            "drophammer_tests_ended_total 2",
            "drophammer_tests_failed_total 1",
            "drophammer_trials_total{valid=\"true\"} 1",
            "drophammer_trials_total{valid=\"false\"} 1",
            "drophammer_frames_offered_total 100",
            "drophammer_frames_lost_total 1",
            "drophammer_left_seconds 30",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(
            text.lines()
                .all(|line| line.starts_with('#')
                    || line.split(' ').next_back().is_some_and(|n| n.parse::<f64>().is_ok()))
        );
    }
}
