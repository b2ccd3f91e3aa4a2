//! Records made up for tests.

use drophammer_model::outcome::Outcome;
use drophammer_model::record::{TestRecord, TestStatus, TrialRecord};
use drophammer_model::trial::{GroupCounts, Load, TrialResult, TrialSpec};

/// A trial of `seconds` without flows, in which the DUT lost `lost` of `offered` frames.
pub fn trial(number: u64, load: Load, seconds: f64, offered: u64, lost: u64) -> TrialRecord {
    let group = GroupCounts { offered, intended: offered, received: offered - lost, lost, ..GroupCounts::default() };
    TrialRecord {
        dut: "d".into(),
        test: "t".into(),
        round: 1,
        attempt: 1,
        filtered: false,
        filter_rules: None,
        classed: false,
        links_down: false,
        joint: false,
        time: String::new(),
        spec: TrialSpec {
            purpose: String::new(),
            size: "64".parse().unwrap(),
            flows: vec![],
            load,
            duration_s: seconds,
            bin_s: None,
            drain_s: 0.1,
            events: vec![],
        },
        flows_left_out: 0,
        result: TrialResult {
            trial: number,
            sending_s: seconds,
            receiving_s: seconds,
            elapsed_s: seconds,
            groups: vec![group],
            senders: 1,
            ..TrialResult::default()
        },
    }
}

/// A completed test with this outcome.
pub fn test(round: u32, outcome: Outcome) -> TestRecord {
    TestRecord {
        dut: "d".into(),
        test: "t".into(),
        id: None,
        round,
        title: "T".into(),
        parameters: serde_json::Value::Null,
        elapsed_s: 1.0,
        status: TestStatus::Completed,
        outcome,
    }
}
