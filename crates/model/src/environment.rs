//! The conditions of a run. Every result is stored with them.

use crate::medium::Medium;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The tester's machine and program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Program version and, when built from a checkout, its commit.
    pub drophammer: String,
    /// Kernel release and version.
    pub kernel: String,
    /// Kernel command line.
    pub kernel_command_line: String,
    /// Distribution.
    pub distribution: String,
    /// Processor model.
    pub cpu_model: String,
    /// Processors online, and which of them the tester and the DUT use.
    pub cpus: String,
    /// Threads of the tester's packet loop. Earlier runs do not record it; they had one.
    #[serde(default = "one")]
    pub tester_threads: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kind of virtualisation; empty if there is none or it is unknown.
    pub virtualization: String,
    /// Clock source of the kernel.
    pub clock_source: String,
    /// root, or an ordinary user in a user namespace.
    pub privilege: String,
    /// Load average at the start (1 min).
    pub load_average: f64,
    /// Anything else, by name (governor, mitigations, SMT).
    pub more: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

fn is_ethernet(medium: &Medium) -> bool {
    *medium == Medium::Ethernet
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

/// What the author of the suite states: facts by name, in the order of the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Facts about the run: by whom, where.
    pub facts: Vec<(String, String)>,
    /// Facts about single DUTs, by DUT name: serial number, year.
    pub duts: Vec<(String, Vec<(String, String)>)>,
    /// Figures that others have published, for comparison.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// Tables that the report makes out of the tables of several tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<Digest>,
}

/// A table out of the tables of several tests: a row for each DUT, or for each DUT and value of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Heading.
    pub title: String,
    /// Key of the column whose values have a row each, a column of the tables of all `columns`; absent for one row per
    /// DUT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The columns in order.
    pub columns: Vec<DigestColumn>,
}

/// A column of a [`Digest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestColumn {
    /// Heading.
    pub title: String,
    /// The test.
    pub test: String,
    /// The id in the suite of the one test of this name that is meant; absent for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Cells of a table of the test ([`crate::suite::Cells`]).
    pub key: String,
}

/// Figures that others have published, as the suite gives them: a table of its own (`columns` and `rows`), or figures of
/// the test by router (`routers` and `figures`), which stand beside those of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Test whose figures it is shown with.
    pub test: String,
    /// The id in the suite of the one test of this name that is meant ([`crate::suite::TestConfig::id`]); absent for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Heading.
    pub title: String,
    /// Source of the figures.
    pub source: String,
    /// Meaning of the figures, if it differs from what the test measures.
    pub meaning: Option<String>,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<String>>,
    /// The routers whose figures these are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<String>,
    /// Figures: the key of a figure of the test, or of cells of its tables ([`crate::suite::Cells`]), and a number or
    /// words for each of `routers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<(String, Vec<String>)>,
    /// Unit of the values of `figures`, if it is not that of the test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Published {
    /// Stands in `figures` where nothing was published.
    pub const NOTHING: &'static str = "-";

    /// What it says of the figure with this key: the router and its value, where there is one.
    pub fn values(&self, key: &str) -> impl Iterator<Item = (&str, &str)> {
        let of_key = self.figures.iter().filter(move |(known, _)| known == key);
        let pairs = of_key.flat_map(|(_, values)| self.routers.iter().zip(values));
        pairs.map(|(router, value)| (router.as_str(), value.as_str())).filter(|(_, value)| *value != Self::NOTHING)
    }
}

impl About {
    /// True if nothing is stated.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.duts.is_empty() && self.published.is_empty() && self.digests.is_empty()
    }

    /// The facts of the DUT of this name.
    pub fn dut(&self, name: &str) -> &[(String, String)] {
        self.duts.iter().find(|(dut, _)| dut == name).map_or(&[], |(_, facts)| facts)
    }
}

/// One DUT as it was tested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DutRecord {
    /// Name in the suite.
    pub name: String,
    /// Kind (`frr`).
    pub kind: String,
    /// Version as the DUT reports it.
    pub version: String,
    /// How it is confined and reached: processors, threads, interfaces.
    pub confinement: String,
    /// Configuration files as rendered: file name to text.
    pub config: BTreeMap<String, String>,
    /// True for simulated devices: their figures test the tester and are no results.
    pub simulated: bool,
    /// True if its BGP routes enter its forwarding plane; `None` without BGP, or if the tester does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installs_routes: Option<bool>,
    /// Port backend and what each port of the tester is: name, driver, MTU, speed.
    pub ports: Vec<PortRecord>,
}

/// Name of the tester's own loop, without a router, in the records.
pub const TESTER: &str = "tester";
/// [`DutRecord::kind`] of the tester's own loop.
pub const TESTER_KIND: &str = "loop";

impl DutRecord {
    /// True if this is the tester's own loop rather than a router. `suite` has the names of the DUTs of the suite.
    pub fn is_tester(&self, suite: &[String]) -> bool {
        self.kind == TESTER_KIND && !suite.contains(&self.name)
    }
}

/// One port of the tester.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortRecord {
    /// Name in the suite (`p1`).
    pub name: String,
    /// Interface.
    pub interface: String,
    /// Backend (`af_packet`).
    pub backend: String,
    /// Driver (`veth`).
    pub driver: String,
    /// Queues that the tester sends and receives with. Earlier runs do not record it; they had one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub queues: u32,
    /// MTU in bytes.
    pub mtu: u32,
    /// Speed for which loads are computed, in bit/s.
    pub speed_bps: u64,
    /// What the line carries beside frames. Earlier runs do not record it: they had Ethernet, or their rates in bits
    /// are not exact.
    #[serde(default, skip_serializing_if = "is_ethernet")]
    pub medium: Medium,
    /// MAC address of the tester's host on this port.
    pub mac: String,
    /// Address of the tester's host and of the DUT, per family: `198.18.1.2 -> 198.18.1.1`.
    pub addresses: Vec<String>,
}
