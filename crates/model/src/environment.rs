//! The conditions of a run, stored with every result.

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
    /// Processors online, and the processors that tester and DUT use.
    pub cpus: String,
    /// Threads of the tester's packet loop. Earlier runs had one and do not record it.
    #[serde(default = "crate::one")]
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

/// Information about the run from the author of the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Facts about the run by name, in the order of the suite: who, where.
    pub facts: Vec<(String, String)>,
    /// Facts about DUTs, by DUT name: serial number, year.
    pub duts: Vec<(String, Vec<(String, String)>)>,
    /// Figures published by others, for comparison.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// Tables that the report combines from the tables of several tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<Digest>,
}

/// A table combined from the tables of several tests: a row for each DUT, or for each DUT and value of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Heading of the table.
    pub title: String,
    /// Key of a column, present in the tables of all `columns`, with one row per value; absent for one row per DUT.
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
    /// Name of the test.
    pub test: String,
    /// Id of the test in the suite, if only one test of this name is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Cells in a table of the test ([`crate::suite::Cells`]).
    pub key: String,
}

/// Figures published by others, as given in the suite: a separate table (`columns` and `rows`), or figures of the test
/// by router (`routers` and `figures`) that the report shows next to the run's figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Name of the test whose figures are compared.
    pub test: String,
    /// Id of the test in the suite ([`crate::suite::TestConfig::id`]), if only one test of this name is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Heading.
    pub title: String,
    /// Source of the figures.
    pub source: String,
    /// Meaning of the figures, if the test measures something else.
    pub meaning: Option<String>,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<String>>,
    /// The routers with these figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routers: Vec<String>,
    /// Key of a figure of the test, or of cells in its tables ([`crate::suite::Cells`]), with a number or words for
    /// each of `routers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<(String, Vec<String>)>,
    /// Unit of `figures`, if it differs from the test's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Published {
    /// Value in `figures` if nothing was published.
    pub const NOTHING: &'static str = "-";

    /// The published values of the figure with this key, with their routers.
    pub fn values(&self, key: &str) -> impl Iterator<Item = (&str, &str)> {
        let of_key = self.figures.iter().filter(move |(known, _)| known == key);
        let pairs = of_key.flat_map(|(_, values)| self.routers.iter().zip(values));
        pairs.map(|(router, value)| (router.as_str(), value.as_str())).filter(|(_, value)| *value != Self::NOTHING)
    }
}

impl About {
    /// True if it contains nothing.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.duts.is_empty() && self.published.is_empty() && self.digests.is_empty()
    }

    /// Facts about the DUT with this name.
    pub fn dut(&self, name: &str) -> &[(String, String)] {
        self.duts.iter().find(|(dut, _)| dut == name).map_or(&[], |(_, facts)| facts)
    }
}

/// A DUT as it was tested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DutRecord {
    /// Name in the suite.
    pub name: String,
    /// Kind (`frr`).
    pub kind: String,
    /// Version as the DUT reports it.
    pub version: String,
    /// Processors, threads and interfaces that it uses.
    pub confinement: String,
    /// Rendered configuration files: file name to text.
    pub config: BTreeMap<String, String>,
    /// True for simulated devices: their figures test the tester and are not results.
    pub simulated: bool,
    /// True if BGP routes are installed in its forwarding plane; `None` without BGP, or if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installs_routes: Option<bool>,
    /// The tester's ports.
    pub ports: Vec<PortRecord>,
}

/// Name of the tester's own loop, without a router, in records.
pub const TESTER: &str = "tester";
/// [`DutRecord::kind`] of the tester's own loop.
pub const TESTER_KIND: &str = "loop";

impl DutRecord {
    /// True if this is the tester's own loop and not a router. `suite` contains the names of the suite's DUTs.
    pub fn is_tester(&self, suite: &[String]) -> bool {
        self.kind == TESTER_KIND && !suite.contains(&self.name)
    }
}

/// One port of the tester.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortRecord {
    /// Name in the suite (`p1`).
    pub name: String,
    /// Name of the interface.
    pub interface: String,
    /// Backend (`af_packet`).
    pub backend: String,
    /// Driver (`veth`).
    pub driver: String,
    /// Queues that the tester uses. Earlier runs had one and do not record it.
    #[serde(default = "crate::one", skip_serializing_if = "crate::is_one")]
    pub queues: u32,
    /// MTU in bytes.
    pub mtu: u32,
    /// Speed to which loads refer, in bit/s.
    pub speed_bps: u64,
    /// Overhead of the line in addition to frames. Earlier runs do not record it: their ports were Ethernet, or their
    /// rates in bits are not exact.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub medium: Medium,
    /// MAC address of the tester's host on this port.
    pub mac: String,
    /// Addresses of the tester's host and of the DUT, per family: `198.18.1.2 -> 198.18.1.1`.
    pub addresses: Vec<String>,
}
