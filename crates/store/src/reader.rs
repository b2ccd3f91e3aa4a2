//! Reading a run: complete, interrupted, cut off or still being written.

use crate::regular::read_regular;
use crate::writer::Lock;
use crate::{RECORDS, StoreError};
use drophammer_model::environment::DutRecord;
use drophammer_model::record::{
    ClassRecord, CoreLinkRecord, Ended, FORMAT, FilterRecord, Note, Record, Started, TestRecord, TrialRecord,
};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Maximum size of `run.jsonl` in bytes, far more than a run of many hours needs.
const LONGEST: u64 = 2 << 30;

/// How far a run got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It ran to its end.
    Complete,
    /// The user stopped it; all results up to that point are stored in order.
    Interrupted,
    /// It has no end record: the program was killed, the machine went down, or the run is still running.
    CutOff,
}

impl std::fmt::Display for RunState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RunState::Complete => "complete",
            RunState::Interrupted => "interrupted",
            RunState::CutOff => "cut off",
        })
    }
}

/// The contents of a run folder, each list in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The run's folder.
    pub dir: PathBuf,
    /// Start of the run.
    pub started: Started,
    /// DUTs that came up, one entry per configuration: a DUT that came up again with the same configuration is listed
    /// once.
    pub duts: Vec<DutRecord>,
    /// Trials, including invalid ones.
    pub trials: Vec<TrialRecord>,
    /// Tests that ended, successfully or not.
    pub tests: Vec<TestRecord>,
    /// By trial number: how many tests of the same name ended before it on its DUT in its round, if not 0. A suite can
    /// contain a test twice.
    pub earlier: HashMap<u64, usize>,
    /// Packet filters of the DUTs.
    pub filters: Vec<FilterRecord>,
    /// Classes of service of the DUTs.
    pub classes: Vec<ClassRecord>,
    /// Links between routers of the DUTs that were down.
    pub core_links: Vec<CoreLinkRecord>,
    /// Remarks.
    pub notes: Vec<Note>,
    /// End of the run; absent if it was cut off.
    pub ended: Option<Ended>,
    /// True if a writer held the folder's lock during reading, so the run is still running.
    pub running: bool,
    /// Remarks about the file itself, such as a cut-off last line.
    pub warnings: Vec<String>,
}

impl Run {
    /// State of the run.
    pub fn state(&self) -> RunState {
        match &self.ended {
            Some(e) if e.interrupted => RunState::Interrupted,
            Some(_) => RunState::Complete,
            None => RunState::CutOff,
        }
    }

    /// The trial of this number.
    pub fn trial(&self, number: u64) -> Option<&TrialRecord> {
        self.trials.iter().find(|t| t.result.trial == number)
    }

    /// The index, from 0, of the trial's test among the tests of the same name on the same DUT.
    pub fn occurrence(&self, trial: &TrialRecord) -> usize {
        self.earlier.get(&trial.result.trial).copied().unwrap_or(0)
    }

    /// `(DUT, test)` pairs with trials but without a test record, because the run was cut off during the test.
    pub fn unfinished(&self) -> Vec<(String, String)> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for t in &self.trials {
            let same = |r: &&TestRecord| r.dut == t.dut && r.test == t.test && r.round == t.round;
            let ended = self.tests.iter().filter(same).count() > self.occurrence(t);
            let known = pairs.iter().any(|(d, n)| *d == t.dut && *n == t.test);
            if !ended && !known {
                pairs.push((t.dut.clone(), t.test.clone()));
            }
        }
        pairs
    }
}

/// Opens run folders.
#[derive(Clone, Copy, Debug)]
pub struct RunReader;

impl RunReader {
    /// Reads the run in `dir`. Skips a last line that was cut off in mid-write, and adds a warning.
    ///
    /// # Errors
    /// [`StoreError::NoRun`] if there are no records, [`StoreError::Corrupt`] with the line number for any unreadable
    /// line except a cut-off last line, [`StoreError::Format`] for a newer format, [`StoreError::Io`].
    pub fn open(dir: &Path) -> Result<Run, StoreError> {
        // Checks before reading: if the writer ends in between, it has written its last line.
        let running = Lock::is_held(dir);
        let (path, bytes) = read(dir)?;
        let mut run = parse(dir, &path, &bytes)?;
        run.running = running && run.ended.is_none();
        Ok(run)
    }

    /// Reads a run from the bytes of its records as if they were in `dir`, without reading a file.
    ///
    /// # Errors
    /// Errors of [`RunReader::open`], without [`StoreError::Io`].
    pub fn of_bytes(dir: &Path, bytes: &[u8]) -> Result<Run, StoreError> {
        parse(dir, &dir.join(RECORDS), bytes)
    }

    /// All records of the run in `dir`, in order, without a last line that was cut off in mid-write.
    ///
    /// # Errors
    /// Errors of [`RunReader::open`].
    pub fn records(dir: &Path) -> Result<Vec<Record>, StoreError> {
        let (path, bytes) = read(dir)?;
        // Runs the same checks, because a run that cannot be reported cannot be continued either.
        parse(dir, &path, &bytes)?;
        Ok(lines(&path, &bytes)?.0.into_iter().map(|(_, record)| record).collect())
    }
}

/// Path and bytes of the record file of a run.
fn read(dir: &Path) -> Result<(PathBuf, Vec<u8>), StoreError> {
    let path = dir.join(RECORDS);
    match read_regular(&path, LONGEST) {
        Ok(bytes) => Ok((path, bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let why = format!("there is no {RECORDS} in it; name the folder of a run");
            Err(StoreError::NoRun { path: dir.into(), why })
        }
        Err(e) => Err(StoreError::io("read", &path, &e)),
    }
}

/// Records with their line numbers, and remarks about the file.
type Lines = (Vec<(usize, Record)>, Vec<String>);

/// The records of `run.jsonl`.
fn lines(path: &Path, bytes: &[u8]) -> Result<Lines, StoreError> {
    let mut warnings = Vec::new();
    let mut records = Vec::new();
    for (index, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        let number = index + 1;
        if !line.ends_with(b"\n") {
            // The cause is a kill, or a power failure, which may fill the line with zeros. The writer resumes before this
            // line, even if only the line feed is missing.
            warnings.push(format!("ignored the last record (line {number}): it was cut off in mid-write"));
            continue;
        }
        match serde_json::from_slice::<Record>(line) {
            Ok(record) => records.push((number, record)),
            Err(e) => {
                // If the format is newer, the record may be unknown, but the error must be about the format.
                refuse_newer_format(path, &records)?;
                return Err(StoreError::Corrupt { path: path.into(), line: number, why: e.to_string() });
            }
        }
    }
    refuse_newer_format(path, &records)?;
    Ok((records, warnings))
}

/// Reads the bytes of `run.jsonl`.
fn parse(dir: &Path, path: &Path, bytes: &[u8]) -> Result<Run, StoreError> {
    let corrupt = |line: usize, why: String| StoreError::Corrupt { path: path.into(), line, why };
    let (records, warnings) = lines(path, bytes)?;
    let mut records = records.into_iter();
    let started = match records.next() {
        Some((_, Record::Started(started))) => *started,
        Some((number, _)) => return Err(corrupt(number, "the first record is not the start of a run".into())),
        None => {
            let why = "the program ended before the first record was written".to_owned();
            return Err(StoreError::NoRun { path: dir.into(), why });
        }
    };
    let mut run = Run {
        dir: dir.to_owned(),
        started,
        duts: Vec::new(),
        trials: Vec::new(),
        tests: Vec::new(),
        earlier: HashMap::new(),
        filters: Vec::new(),
        classes: Vec::new(),
        core_links: Vec::new(),
        notes: Vec::new(),
        ended: None,
        running: false,
        warnings,
    };
    let mut numbers = HashSet::new();
    for (number, record) in records {
        if run.ended.is_some() {
            return Err(corrupt(number, "a record after the end of the run".into()));
        }
        match record {
            Record::Started(_) => return Err(corrupt(number, "a second start within one run".into())),
            Record::Dut(dut) => {
                if !run.duts.contains(&dut) {
                    run.duts.push(dut);
                }
            }
            Record::Trial(trial) => {
                // Rows refer to trials by number, so with duplicate numbers a row would show the wrong conditions.
                if !numbers.insert(trial.result.trial) {
                    return Err(corrupt(number, format!("trial {} occurs twice", trial.result.trial)));
                }
                let same = |r: &&TestRecord| r.dut == trial.dut && r.test == trial.test && r.round == trial.round;
                let before = run.tests.iter().filter(same).count();
                if before > 0 {
                    run.earlier.insert(trial.result.trial, before);
                }
                run.trials.push(*trial);
            }
            Record::Test(test) => run.tests.push(*test),
            Record::Note(note) => run.notes.push(note),
            Record::Filter(filter) => run.filters.push(filter),
            Record::Classes(classes) => run.classes.push(classes),
            Record::CoreLinks(links) => run.core_links.push(links),
            Record::Ended(ended) => run.ended = Some(ended),
        }
    }
    // Rounds that were measured again are at the end of the file.
    run.tests.sort_by_key(|test| test.round);
    Ok(run)
}

fn refuse_newer_format(path: &Path, records: &[(usize, Record)]) -> Result<(), StoreError> {
    match records.first() {
        Some((_, Record::Started(s))) if s.format > FORMAT => {
            Err(StoreError::Format { path: path.into(), found: s.format, known: FORMAT })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::RunWriter;
    use drophammer_model::LatencySummary;
    use drophammer_model::outcome::Outcome;
    use drophammer_model::record::TestStatus;
    use drophammer_model::trial::{GroupCounts, Load, TrialResult, TrialSpec, Validity};
    use proptest::prelude::*;
    use std::fs;

    pub(crate) fn started() -> Started {
        Started {
            format: FORMAT,
            time: "2026-11-21T03:44:55Z".into(),
            suite: "quick-look".into(),
            title: "A quick look \u{2013} \"quoted\"\nand broken".into(),
            about: Default::default(),
            profile: "quick".into(),
            conformant: false,
            deviations: vec!["trials of 1 s instead of 60 s".into()],
            seed: u64::MAX,
            duts: vec!["frr".into()],
            tests: vec![("throughput".into(), "Throughput".into())],
            rounds: 1,
            command: vec!["drophammer".into(), "run".into()],
            digest: String::new(),
            environment: Default::default(),
            baseline: None,
        }
    }

    pub(crate) fn note(text: &str) -> Record {
        Record::Note(Note { time: "2026-11-21T03:45:00Z".into(), dut: None, text: text.into(), problem: true })
    }

    fn trial(number: u64) -> Record {
        let latency = LatencySummary {
            frames: 10,
            min_ns: 900,
            mean_ns: 1234.5,
            max_ns: 9_000,
            percentiles: vec![(50.0, 1_000), (100.0, 9_000)],
        };
        let group =
            GroupCounts { group: "IPv4 \u{fc}".into(), offered: 10, received: 10, latency, ..Default::default() };
        Record::Trial(Box::new(TrialRecord {
            dut: "frr".into(),
            round: 1,
            test: "throughput".into(),
            attempt: 1,
            filtered: false,
            filter_rules: None,
            classed: false,
            links_down: false,
            joint: false,
            time: "2026-11-21T03:45:00Z".into(),
            spec: TrialSpec {
                purpose: "bisect".into(),
                size: "imix".parse().unwrap(),
                flows: vec![],
                load: Load::Constant { rate_pps: 10.25 },
                duration_s: 1.0,
                bin_s: None,
                drain_s: 2.0,
                events: vec![],
            },
            flows_left_out: 0,
            result: TrialResult {
                trial: number,
                sending_s: 1.0,
                receiving_s: 1.0,
                elapsed_s: 3.0,
                groups: vec![group],
                validity: Validity::Invalid(vec!["held off".into()]),
                dut_cpu: Some(0.5),
                senders: 2,
                ..TrialResult::default()
            },
        }))
    }

    fn test_record() -> Record {
        Record::Test(Box::new(TestRecord {
            dut: "frr".into(),
            round: 1,
            test: "throughput".into(),
            id: None,
            title: "Throughput".into(),
            parameters: serde_json::json!({"sizes": [64]}),
            elapsed_s: 9.0,
            status: TestStatus::Failed("the DUT died".into()),
            outcome: Outcome::default(),
        }))
    }

    fn records() -> Vec<Record> {
        vec![
            Record::Started(Box::new(started())),
            Record::Dut(DutRecord { name: "frr".into(), ..Default::default() }),
            trial(1),
            note("n\u{e4}chster \u{1f528}"),
            trial(2),
            test_record(),
            Record::Ended(Ended { time: "2026-11-21T03:46:00Z".into(), interrupted: false }),
        ]
    }

    fn count(run: &Run) -> usize {
        1 + run.duts.len() + run.trials.len() + run.tests.len() + run.notes.len() + usize::from(run.ended.is_some())
    }

    fn write_lines(dir: &Path, records: &[Record]) {
        let text: String = records.iter().map(|r| serde_json::to_string(r).unwrap() + "\n").collect();
        fs::write(dir.join(RECORDS), text).unwrap();
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = RunWriter::create_exact(folder.path()).unwrap();
        for (i, record) in records().iter().enumerate() {
            writer.write(record).unwrap();
            let run = RunReader::open(folder.path()).unwrap();
            assert_eq!(count(&run), i + 1, "readable after every record");
            assert_eq!(run.running, i + 1 < records().len());
        }
        assert_eq!(RunReader::records(folder.path()).unwrap(), records());
        let run = RunReader::open(folder.path()).unwrap();
        assert_eq!(run.state(), RunState::Complete);
        assert_eq!(run.trial(2), Some(&run.trials[1]));
        drop(writer);
        assert!(!RunReader::open(folder.path()).unwrap().running);
    }

    #[test]
    fn states_of_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut all = records();
        all.truncate(5);
        write_lines(folder.path(), &all);
        let run = RunReader::open(folder.path()).unwrap();
        assert_eq!(run.state(), RunState::CutOff);
        assert_eq!(run.unfinished(), [("frr".to_owned(), "throughput".to_owned())]);
        all.push(Record::Ended(Ended { time: String::new(), interrupted: true }));
        write_lines(folder.path(), &all);
        assert_eq!(RunReader::open(folder.path()).unwrap().state(), RunState::Interrupted);
    }

    #[test]
    fn trials_belong_to_the_test_that_ends_after_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut all = records();
        let ended = all.pop().unwrap();
        // The same test again on the same DUT: a trial, the end of the test, and a trial without a test record.
        all.extend([trial(3), test_record(), trial(4)]);
        write_lines(folder.path(), &all);
        let run = RunReader::open(folder.path()).unwrap();
        let occurrences: Vec<_> = run.trials.iter().map(|t| run.occurrence(t)).collect();
        assert_eq!(occurrences, [0, 0, 1, 2]);
        assert_eq!(run.unfinished(), [("frr".to_owned(), "throughput".to_owned())]);
        all.extend([test_record(), ended]);
        write_lines(folder.path(), &all);
        assert!(RunReader::open(folder.path()).unwrap().unfinished().is_empty());
    }

    #[test]
    fn damage_is_reported_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let good: Vec<String> = records().iter().map(|r| serde_json::to_string(r).unwrap()).collect();
        let line_of = |lines: &[String]| {
            fs::write(folder.path().join(RECORDS), lines.join("\n") + "\n").unwrap();
            match RunReader::open(folder.path()) {
                Err(StoreError::Corrupt { line, .. }) => line,
                other => panic!("{other:?}"),
            }
        };
        let mut broken = good.clone();
        broken[2].truncate(40);
        assert_eq!(line_of(&broken), 3);
        let mut twice = good.clone();
        twice[4] = twice[2].clone();
        assert_eq!(line_of(&twice), 5);
        let mut last = good.clone();
        last[6] = "{\"record\":\"ended\"".into();
        assert_eq!(line_of(&last), 7, "a last line with a line feed was not cut in mid-write");
        assert_eq!(line_of(&good[1..]), 1);
    }

    #[test]
    fn a_last_line_without_its_line_feed_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let lines: Vec<String> = records().iter().map(|r| serde_json::to_string(r).unwrap()).collect();
        fs::write(folder.path().join(RECORDS), lines.join("\n")).unwrap();
        let run = RunReader::open(folder.path()).unwrap();
        assert_eq!((count(&run), run.state(), run.warnings.len()), (6, RunState::CutOff, 1));
        let read = RunReader::records(folder.path()).unwrap().len();
        assert!(RunWriter::resume(folder.path(), std::slice::from_ref(&(0..read))).is_ok());
    }

    #[test]
    fn a_newer_format_and_an_empty_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(RunReader::open(folder.path()), Err(StoreError::NoRun { .. })));
        let mut newer = started();
        newer.format = FORMAT + 1;
        let text =
            serde_json::to_string(&Record::Started(Box::new(newer))).unwrap() + "\n{\"record\":\"unheard_of\"}\n";
        fs::write(folder.path().join(RECORDS), text).unwrap();
        assert!(matches!(RunReader::open(folder.path()), Err(StoreError::Format { found: 2, .. })));
    }

    #[test]
    fn a_number_that_json_cannot_hold_is_refused_before_it_damages_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = RunWriter::create_exact(folder.path()).unwrap();
        writer.write(&Record::Started(Box::new(started()))).unwrap();
        let Record::Test(mut test) = test_record() else { unreachable!() };
        test.elapsed_s = f64::NAN;
        assert!(matches!(writer.write(&Record::Test(test)), Err(StoreError::Unreadable(_))));
        assert_eq!(count(&RunReader::open(folder.path()).unwrap()), 1);
    }

    proptest! {
        #[test]
        fn any_prefix_yields_its_whole_records(share in 0.0f64..=1.0, zeros in 0usize..64) {
            let text: String = records().iter().map(|r| serde_json::to_string(r).unwrap() + "\n").collect();
            let cut = (text.len() as f64 * share) as usize;
            let mut bytes = text.as_bytes()[..cut].to_vec();
            let expect = bytes.iter().filter(|b| **b == b'\n').count();
            bytes.resize(cut + zeros, 0);
            match parse(Path::new("d"), Path::new("f"), &bytes) {
                Ok(run) => prop_assert_eq!(count(&run), expect),
                Err(StoreError::NoRun { .. }) => prop_assert_eq!(expect, 0),
                Err(other) => prop_assert!(false, "{}", other),
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(Path::new("d"), Path::new("f"), &bytes);
        }
    }
}
