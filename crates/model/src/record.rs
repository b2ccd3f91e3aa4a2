//! The records of a run folder, one JSON object per line, in order of time.
//!
//! `run.jsonl` grows during the run and is readable after a crash: a run without [`Record::Ended`] was cut off.

use crate::classes::EgressClasses;
use crate::environment::{About, DutRecord, Environment};
use crate::filter::FilterList;
use crate::outcome::Outcome;
use crate::topology::CoreLinkName;
use crate::trial::{TrialResult, TrialSpec};
use serde::{Deserialize, Serialize};

/// One line of `run.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// First line of a run.
    Started(Box<Started>),
    /// A DUT is up and ready.
    Dut(DutRecord),
    /// A trial ended.
    Trial(Box<TrialRecord>),
    /// A DUT got or lost packet filters.
    Filter(FilterRecord),
    /// A DUT got or lost classes of service.
    Classes(ClassRecord),
    /// Links between the routers of a DUT went down, or all are up again.
    CoreLinks(CoreLinkRecord),
    /// A test ended on a DUT.
    Test(Box<TestRecord>),
    /// A remark for the reader: a DUT did not come up, a trial was repeated, a warning.
    Note(Note),
    /// Last line of a run that was not cut off.
    Ended(Ended),
}

/// Start of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// Format of the folder. Readers refuse numbers higher than their own.
    pub format: u32,
    /// UTC, RFC 3339.
    pub time: String,
    /// Name of the suite.
    pub suite: String,
    /// Title of the suite.
    pub title: String,
    /// Information about the run and its DUTs from the suite.
    #[serde(default, skip_serializing_if = "About::is_empty")]
    pub about: About,
    /// Profile used.
    pub profile: String,
    /// True if everything in the suite follows the RFCs. Tests may still deviate ([`Outcome::deviations`]). Every
    /// report shows a visible mark in both cases of deviation.
    pub conformant: bool,
    /// Reasons why it is not conformant: `trials of 1 s instead of 60 s`.
    pub deviations: Vec<String>,
    /// Seed of every pseudo-random choice.
    pub seed: u64,
    /// DUT names in the order of the suite.
    pub duts: Vec<String>,
    /// Tests in order: (name, title).
    pub tests: Vec<(String, String)>,
    /// Number of times that each DUT is brought up and runs all tests.
    #[serde(default = "crate::one", skip_serializing_if = "crate::is_one")]
    pub rounds: u32,
    /// Command line.
    pub command: Vec<String>,
    /// Digest of the suite with all changes by command line and profile, to check that a resumed run has the same
    /// suite; empty if the run cannot be resumed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The machine.
    pub environment: Environment,
    /// The earlier run to which bounds of the suite refer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
}

/// The command line that resumes the run in `dir` started with `command`, without options that only determine where
/// results and messages go.
pub fn resumed(command: &[String], dir: &str) -> String {
    const VALUED: [&str; 2] = ["--out", "--resume"];
    const FLAGS: [&str; 5] = ["--plain", "--json", "--detach", "--detached", "--live"];
    let mut words = vec!["drophammer".to_owned()];
    let mut skip = false;
    for word in command.iter().skip(1) {
        let name = word.split('=').next().unwrap_or(word);
        if std::mem::take(&mut skip) || FLAGS.contains(&name) || (VALUED.contains(&name) && name != word) {
            continue;
        }
        if VALUED.contains(&name) {
            skip = true;
            continue;
        }
        words.push(quoted(word));
    }
    words.extend(["--resume".to_owned(), quoted(dir)]);
    words.join(" ")
}

/// Quotes a word for a shell if needed.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// An earlier run to which bounds of a suite refer. Its figures are in the criteria
/// ([`Expectation::baseline`](crate::suite::Expectation::baseline)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// Its folder, as given by the user.
    pub folder: String,
    /// Start, UTC, RFC 3339; empty until the run has been read.
    pub started: String,
    /// Its state: `complete`.
    pub state: String,
    /// Its conditions in words: name and value.
    pub conditions: Vec<(String, String)>,
    /// The conditions of each of its DUTs, by name.
    pub duts: Vec<(String, Vec<(String, String)>)>,
}

/// [`Started::profile`] of a self-test, which no RFC describes.
pub const SELF_TEST: &str = "self-test";

/// The current [`Started::format`].
pub const FORMAT: u32 = 1;

/// One trial and its position in the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// DUT.
    pub dut: String,
    /// Test.
    pub test: String,
    /// Round of the run, from 1.
    #[serde(default = "crate::one", skip_serializing_if = "crate::is_one")]
    pub round: u32,
    /// Number of the attempt at this trial, from 1. It is above 1 if earlier attempts were invalid.
    pub attempt: u32,
    /// True if the DUT had packet filters, which change how it forwards: see the last [`Record::Filter`] before.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub filtered: bool,
    /// Number of filter rules at all interfaces. Absent without filters, and in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_rules: Option<u64>,
    /// True if the DUT had classes of service, which limit output ports and decide which frames are lost: see the last
    /// [`Record::Classes`] before.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub classed: bool,
    /// True if links between the routers of the DUT were down, so that frames took other paths: see the last
    /// [`Record::CoreLinks`] before.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub links_down: bool,
    /// True if other DUTs took part simultaneously and shared the processor.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub joint: bool,
    /// End of the trial, UTC, RFC 3339.
    pub time: String,
    /// The offered traffic. Of more than [`TrialSpec::MOST_STORED`] flows it has every n-th one.
    pub spec: TrialSpec,
    /// Number of flows that `spec` leaves out.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub flows_left_out: u64,
    /// The result.
    pub result: TrialResult,
}

/// The packet filters of a DUT until the next such record, or the end of the test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilterRecord {
    /// DUT.
    pub dut: String,
    /// Test.
    pub test: String,
    /// Round of the run, from 1.
    #[serde(default = "crate::one", skip_serializing_if = "crate::is_one")]
    pub round: u32,
    /// The lists, each with up to [`FilterRecord::MOST_RULES`] rules; empty if the DUT no longer has filters.
    pub lists: Vec<FilterList>,
    /// Number of rules that were left out.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub left_out: u64,
}

impl FilterRecord {
    /// Maximum number of recorded rules of a list.
    pub const MOST_RULES: usize = 1_000;
}

/// The classes of service of a DUT until the next such record, or the end of the test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassRecord {
    /// DUT.
    pub dut: String,
    /// Test.
    pub test: String,
    /// Round of the run, from 1.
    #[serde(default = "crate::one", skip_serializing_if = "crate::is_one")]
    pub round: u32,
    /// The classes of each output port; empty if the DUT no longer has classes.
    pub lists: Vec<EgressClasses>,
}

/// The links between the routers of a DUT that are down until the next such record, or the end of the test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreLinkRecord {
    /// DUT.
    pub dut: String,
    /// Test.
    pub test: String,
    /// Round of the run, from 1.
    #[serde(default = "crate::one", skip_serializing_if = "crate::is_one")]
    pub round: u32,
    /// The links; empty if all are up.
    pub down: Vec<CoreLinkName>,
}

/// One test on one DUT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestRecord {
    /// DUT.
    pub dut: String,
    /// Test.
    pub test: String,
    /// Its id in the suite, if it has one ([`crate::suite::TestConfig::id`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Round of the run, from 1.
    #[serde(default = "crate::one", skip_serializing_if = "crate::is_one")]
    pub round: u32,
    /// Title of the test.
    pub title: String,
    /// Parameters, with defaults filled in.
    pub parameters: serde_json::Value,
    /// Duration in seconds.
    pub elapsed_s: f64,
    /// How it ended.
    pub status: TestStatus,
    /// Its results; partial after an error.
    pub outcome: Outcome,
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", content = "cause", rename_all = "snake_case")]
pub enum TestStatus {
    /// It ran to its end.
    Completed,
    /// It stopped early, for this cause.
    Failed(String),
    /// It ran to its end only in some rounds. Contains their number, and why the other rounds did not. Only for
    /// combined rounds; never stored.
    Partly(String),
    /// Like `Partly`, but the tester spoilt the other rounds, or the test did not apply in them.
    FewerRounds(String),
    /// The tester spoilt it, for these reasons. This proves nothing about the DUT.
    Unfit(String),
    /// The user stopped it.
    Interrupted,
    /// It does not apply to this DUT, for this reason.
    Skipped(String),
    /// The suite runs it on other DUTs only (`duts`).
    NotAsked,
}

/// A remark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// UTC, RFC 3339.
    pub time: String,
    /// The DUT to which it refers, if any.
    pub dut: Option<String>,
    /// The remark.
    pub text: String,
    /// True if something went wrong.
    pub problem: bool,
}

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// UTC, RFC 3339.
    pub time: String,
    /// True if the user stopped the run.
    pub interrupted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_resumes_a_run_can_be_pasted_into_a_shell() {
        let of =
            |words: &[&str], dir: &str| resumed(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), dir);
        let words =
            ["drophammer", "run", "my suite.yaml", "--set", "throughput.expect={a: \"(b)\"}", "--out", "x", "--live"];
        let expected = r#"drophammer run 'my suite.yaml' --set 'throughput.expect={a: "(b)"}' --resume 'it'\''s here'"#;
        assert_eq!(of(&words, "it's here"), expected);
        assert_eq!(of(&["drophammer", "run", "--var", "a=`b`#"], "x-1"), "drophammer run --var 'a=`b`#' --resume x-1");
    }
}
