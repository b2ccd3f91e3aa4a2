//! The records of a run folder, one JSON object per line, in the order of events.
//!
//! `run.jsonl` is written as the run goes on and readable after a crash: a run without [`Record::Ended`] was cut off.

use crate::classes::EgressClasses;
use crate::environment::{About, DutRecord, Environment};
use crate::filter::FilterList;
use crate::outcome::Outcome;
use crate::topology::CoreLinkName;
use crate::trial::{TrialResult, TrialSpec};
use serde::{Deserialize, Serialize};

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands over a reference
fn is_one(number: &u32) -> bool {
    *number == 1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands over a reference
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands over a reference
fn is_false(flag: &bool) -> bool {
    !flag
}

/// One line of `run.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// First line.
    Started(Box<Started>),
    /// A DUT is up and ready.
    Dut(DutRecord),
    /// A trial ended.
    Trial(Box<TrialRecord>),
    /// A DUT got packet filters, or they were removed.
    Filter(FilterRecord),
    /// A DUT got classes of service, or they were removed.
    Classes(ClassRecord),
    /// Links between the routers of a DUT were taken down, or all were brought up again.
    CoreLinks(CoreLinkRecord),
    /// A test ended on a DUT.
    Test(Box<TestRecord>),
    /// Something the reader must know: a DUT did not come up, a trial was repeated, a warning.
    Note(Note),
    /// Last line of a run that was not cut off.
    Ended(Ended),
}

/// Start of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// Format of the folder; readers refuse a larger number than theirs.
    pub format: u32,
    /// UTC, RFC 3339.
    pub time: String,
    /// Name of the suite.
    pub suite: String,
    /// Title of the suite.
    pub title: String,
    /// Information of the suite about itself and its DUTs.
    #[serde(default, skip_serializing_if = "About::is_empty")]
    pub about: About,
    /// Profile used.
    pub profile: String,
    /// True if everything that the suite asks for follows the RFCs. The tests as done may still deviate
    /// ([`Outcome::deviations`]); both put a visible mark into every report.
    pub conformant: bool,
    /// Reasons if it is not conformant: `trials of 1 s instead of 60 s`.
    pub deviations: Vec<String>,
    /// Seed of every pseudo-random choice.
    pub seed: u64,
    /// DUT names in the order of the suite.
    pub duts: Vec<String>,
    /// Tests in order: (name, title).
    pub tests: Vec<(String, String)>,
    /// Number of times that each DUT is brought up and runs through all tests.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub rounds: u32,
    /// Command line.
    pub command: Vec<String>,
    /// Digest of the suite with the changes by command line and profile, to check that a continued run is the same;
    /// empty if the run cannot be continued.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The machine.
    pub environment: Environment,
    /// The earlier run to which bounds of the suite refer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
}

/// The command line that resumes the run in `dir`, which `command` began: without options that only say where results and messages
/// go.
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
        words.push(if word.contains([' ', '"', '$', '*', '<', '>', '|', '&', ';', '\'']) {
            format!("'{}'", word.replace('\'', "'\\''"))
        } else {
            word.clone()
        });
    }
    words.extend(["--resume".to_owned(), dir.to_owned()]);
    words.join(" ")
}

/// An earlier run to which bounds of a suite refer. Its figures are in the criteria
/// ([`Expectation::baseline`](crate::suite::Expectation::baseline)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// Its folder, as named by the user.
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

/// [`Started::profile`] of a self-test, which no RFC covers.
pub const SELF_TEST: &str = "self-test";

/// The current [`Started::format`].
pub const FORMAT: u32 = 1;

/// One trial with its place in the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// DUT.
    pub dut: String,
    /// Test.
    pub test: String,
    /// Round of the run, from 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub round: u32,
    /// Attempt at this trial, from 1; above 1 because an earlier attempt was invalid.
    pub attempt: u32,
    /// The DUT had packet filters, those of the last [`Record::Filter`] before: it forwards differently than without.
    #[serde(default, skip_serializing_if = "is_false")]
    pub filtered: bool,
    /// Number of rules of these filters, at all interfaces together. Absent without filters, and in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_rules: Option<u64>,
    /// The DUT had classes of service, those of the last [`Record::Classes`] before: they limit output ports and decide
    /// which frames are lost.
    #[serde(default, skip_serializing_if = "is_false")]
    pub classed: bool,
    /// Links between the routers of the DUT were down, those of the last [`Record::CoreLinks`] before: frames took
    /// other paths.
    #[serde(default, skip_serializing_if = "is_false")]
    pub links_down: bool,
    /// Other DUTs took part in the same instants, and had their shares of the processor.
    #[serde(default, skip_serializing_if = "is_false")]
    pub joint: bool,
    /// End of the trial, UTC, RFC 3339.
    pub time: String,
    /// What was offered.
    pub spec: TrialSpec,
    /// The result.
    pub result: TrialResult,
}

/// The packet filters of a DUT from here on, until the next record of this kind or the end of the test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilterRecord {
    /// DUT.
    pub dut: String,
    /// Test.
    pub test: String,
    /// Round of the run, from 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub round: u32,
    /// The lists; empty if they were removed. Of a long list only the first [`FilterRecord::MOST_RULES`] rules are
    /// kept.
    pub lists: Vec<FilterList>,
    /// Rules that are not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

impl FilterRecord {
    /// Most rules of a list that are kept.
    pub const MOST_RULES: usize = 1_000;
}

/// The classes of service of a DUT from here on, until the next record of this kind or the end of the test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassRecord {
    /// DUT.
    pub dut: String,
    /// Test.
    pub test: String,
    /// Round of the run, from 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub round: u32,
    /// The classes of each output port; empty if they were removed.
    pub lists: Vec<EgressClasses>,
}

/// The links between the routers of a DUT that are down from here on, until the next record of this kind or the end of the test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreLinkRecord {
    /// DUT.
    pub dut: String,
    /// Test.
    pub test: String,
    /// Round of the run, from 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
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
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub round: u32,
    /// Title for people.
    pub title: String,
    /// Parameters as used, defaults filled in.
    pub parameters: serde_json::Value,
    /// Duration in seconds.
    pub elapsed_s: f64,
    /// How it ended.
    pub status: TestStatus,
    /// Its results, partial after an error.
    pub outcome: Outcome,
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", content = "cause", rename_all = "snake_case")]
pub enum TestStatus {
    /// It ran to its end.
    Completed,
    /// It could not run to its end: the cause.
    Failed(String),
    /// It ran to its end in some rounds, but not in all: in how many it did, and why not in the others. Only for combined rounds;
    /// never stored.
    Partly(String),
    /// It ran to its end in some rounds; the tester spoilt the others, or it did not apply in them. Only for combined rounds;
    /// never stored.
    FewerRounds(String),
    /// The tester spoilt it: the reasons. Nothing is known of the DUT.
    Unfit(String),
    /// The user stopped it.
    Interrupted,
    /// It does not apply to this DUT: the reason.
    Skipped(String),
}

/// A remark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// UTC, RFC 3339.
    pub time: String,
    /// The DUT that it is about, if any.
    pub dut: Option<String>,
    /// The remark.
    pub text: String,
    /// True when something went wrong.
    pub problem: bool,
}

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// UTC, RFC 3339.
    pub time: String,
    /// True when the user stopped it.
    pub interrupted: bool,
}
