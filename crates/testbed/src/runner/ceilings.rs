//! What is measured of the tester itself before, or without, a router.

use crate::bed::Bed;
use crate::observer::{Observer, Progress};
use drophammer_methods::pattern::Pattern;
use drophammer_methods::{TestError, Testbed};
use drophammer_model::outcome::{Column, Outcome, Row, Table};
use drophammer_model::record::{Record, TestRecord, TestStatus, TrialRecord};
use drophammer_model::suite::{DutConfig, ParamValue, Params, Profile, Suite};
use drophammer_model::trial::Load;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Ceilings to measure: one run of the ceiling test per pattern of families and direction, with all sizes of it.
pub(super) fn ceiling_params(suite: &Suite) -> Vec<Params> {
    let mut found: Vec<Params> = Vec::new();
    for test in &suite.tests {
        let Some(sizes) = test.params.sizes("frame_sizes") else { continue };
        let same = |p: &&mut Params| ["families", "direction"].iter().all(|k| p.0.get(*k) == test.params.0.get(*k));
        match found.iter_mut().find(same) {
            Some(params) => {
                if let Some(ParamValue::Sizes(all)) = params.0.get_mut("frame_sizes") {
                    all.extend(sizes.into_iter().filter(|s| !all.contains(s)).collect::<Vec<_>>());
                }
            }
            None => {
                let keep = ["families", "direction", "frame_sizes"];
                let mut params = Params::default();
                for key in keep {
                    if let Some(value) = test.params.0.get(key) {
                        params.0.insert(key.into(), value.clone());
                    }
                }
                let (duration, repeats, drain) = match suite.profile {
                    Profile::Quick => (Duration::from_millis(500), 3, Duration::from_millis(200)),
                    Profile::Conformant => (Duration::from_secs(10), 5, Duration::from_secs(2)),
                };
                params.0.insert("drain".into(), ParamValue::Duration(drain));
                params.0.insert("trial_duration".into(), ParamValue::Duration(duration));
                params.0.insert("repeats".into(), ParamValue::Count(repeats));
                found.push(params);
            }
        }
    }
    found
}

/// Notes what the ceiling's trials found while they are stored.
pub(super) struct CeilingObserver<'a> {
    pub(super) inner: &'a mut dyn Observer,
    pub(super) trials: Vec<TrialRecord>,
}

impl Observer for CeilingObserver<'_> {
    fn record(&mut self, record: &Record) -> Result<(), String> {
        if let Record::Trial(trial) = record {
            self.trials.push((**trial).clone());
        }
        self.inner.record(record)
    }
    fn progress(&mut self, progress: &Progress<'_>) {
        self.inner.progress(progress);
    }
    fn stopped(&self) -> bool {
        self.inner.stopped()
    }
    fn time(&self) -> String {
        self.inner.time()
    }
}

/// What the tester can send through these ports, where no loop tells its ceiling: as much as they take, into the DUT. It
/// bounds the loads that tests ask for; what the tester can receive is not known by it.
pub(super) fn sending_ceilings(bed: &mut Bed<'_>, dut: &DutConfig, suite: &Suite) -> Result<(), TestError> {
    bed.test = "offered_load".into();
    let begun = Instant::now();
    let mut found = BTreeMap::new();
    let columns = [("frame_size", "Frame size", ""), ("protocol", "Protocol", ""), ("offered_pps", "Offered", "fps")];
    let mut table = Table {
        key: "offered_load".into(),
        title: "What the tester can offer on these ports, per sending port".into(),
        columns: columns.iter().map(|(key, title, unit)| Column::new(key, title, unit)).collect(),
        rows: Vec::new(),
    };
    for params in ceiling_params(suite) {
        for size in params.sizes("frame_sizes").unwrap_or_default() {
            let pattern = Pattern::new(size, &params);
            let load = Load::Maximum { limit_pps: pattern.limits(bed).line.pps() };
            let purpose = format!("what the tester can offer, {}", pattern.size_text());
            let seconds = params.duration("trial_duration").unwrap_or_default().as_secs_f64();
            match pattern.trial(bed.ports(), purpose, load, seconds).and_then(|spec| bed.trial(&spec)) {
                Ok(result) => {
                    let offered = result.offered_load();
                    found.insert(pattern.key(), offered);
                    let cells = vec![pattern.size.to_string().into(), pattern.protocol().into(), offered.pps().into()];
                    table.rows.push(Row { cells, trials: vec![result.trial], marks: Vec::new() });
                }
                // A size that these ports cannot carry is the tests' to refuse.
                Err(TestError::NotApplicable(_)) => {}
                Err(e) => return Err(e),
            }
        }
    }
    bed.ceilings = found;
    let record = Record::Test(Box::new(TestRecord {
        dut: dut.name.clone(),
        test: bed.test.clone(),
        title: "Offered load".into(),
        parameters: serde_json::Value::Null,
        elapsed_s: begun.elapsed().as_secs_f64(),
        status: TestStatus::Completed,
        outcome: Outcome { tables: vec![table], ..Outcome::default() },
    }));
    bed.observer().record(&record).map_err(TestError::Store)
}
