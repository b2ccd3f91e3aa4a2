//! Descriptions of tests, DUT kinds, port backends, and their parameters.
//!
//! `drophammer list`, `check`, `schema` and the index of the docs are generated from these descriptions, so that a new
//! test needs only one file and one line in a list.

use crate::capabilities::{Capabilities, INSTALL_ROUTES, Need};
use crate::suite::{DutConfig, Params, PortConfig};
use crate::topology::Shape;

/// Type of a parameter, which determines how its YAML is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// List of frame sizes and mixes: `[64, ip40, imix]`.
    Sizes,
    /// List of percentages: `[10, 50, 90, 100]`, each above 0 and at most 100.
    Percents,
    /// One frame size, or a mix: `imix`.
    Size,
    /// One percentage, 0 to 100; `0.5` is half a per cent.
    Percent,
    /// Duration with unit: `60 s`.
    Duration,
    /// Whole number of at least 1.
    Count,
    /// List of whole numbers of at least 1: `[1, 10, 25]`.
    Counts,
    /// Frame rate with unit: `100 kfps`.
    Rate,
    /// Speed of a line with unit: `100 Mbit/s`.
    Speed,
    /// List of classes of service: `[{name: gold, precedence: 5, weight: 70}, {name: bronze, dscp: 8, weight: 5}]`.
    Classes,
    /// A number of links between the routers of a system, or a list of their names: `2`, `[1-2, 3-4]`.
    CoreLinks,
    /// `true` or `false`.
    Flag,
    /// List of `ipv4`, `ipv6`.
    Families,
    /// Whole number from 1 to 65,535, or this word.
    CountOr(&'static str),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// List of some of these words.
    Choices(&'static [&'static str]),
    /// Any text.
    Text,
    /// A shell command.
    Command,
    /// Path of a file; a relative path starts in the folder of the suite file.
    File,
    /// List of interface names.
    Interfaces,
    /// List of the DUT's own interface names, one for each port: `[ge-0/0/0, ge-0/0/1]`.
    DutInterfaces,
    /// List of names of the suite's ports: `[p1, p2]`.
    Ports,
    /// List of names of the suite's flows: `[voice, video]`.
    Flows,
}

/// A parameter of a test or a DUT kind.
#[derive(Clone, Copy, Debug)]
pub struct ParamSpec {
    /// Key in the suite file.
    pub key: &'static str,
    /// Type.
    pub kind: ParamKind,
    /// Default as YAML text, for the profile `quick`; absent for a required or optional parameter.
    pub quick: Option<&'static str>,
    /// Default as YAML text, for the profile `conformant` (RFC durations).
    pub conformant: Option<&'static str>,
    /// True if it is required.
    pub required: bool,
    /// One line of help, with the RFC section of the default.
    pub help: &'static str,
    /// Capabilities that a DUT needs if this parameter has a value.
    pub needs: &'static [Need],
    /// Largest value of a [`ParamKind::Count`], and of each item of [`ParamKind::Counts`].
    pub most: u64,
}

impl ParamSpec {
    /// A parameter with a default for each profile.
    pub const fn new(
        key: &'static str,
        kind: ParamKind,
        quick: &'static str,
        conformant: &'static str,
        help: &'static str,
    ) -> Self {
        ParamSpec {
            key,
            kind,
            quick: Some(quick),
            conformant: Some(conformant),
            required: false,
            help,
            needs: &[],
            most: u64::MAX,
        }
    }

    /// A parameter with the same default for both profiles.
    pub const fn fixed(key: &'static str, kind: ParamKind, default: &'static str, help: &'static str) -> Self {
        ParamSpec::new(key, kind, default, default, help)
    }

    /// A parameter that can be left out.
    pub const fn optional(key: &'static str, kind: ParamKind, help: &'static str) -> Self {
        ParamSpec { key, kind, quick: None, conformant: None, required: false, help, needs: &[], most: u64::MAX }
    }

    /// A parameter that must be present.
    pub const fn required(key: &'static str, kind: ParamKind, help: &'static str) -> Self {
        ParamSpec { key, kind, quick: None, conformant: None, required: true, help, needs: &[], most: u64::MAX }
    }

    /// The same parameter, but with needs in addition to the needs of the test.
    pub const fn needing(self, needs: &'static [Need]) -> Self {
        ParamSpec { needs, ..self }
    }

    /// The same parameter, but with numbers of at most `most`.
    pub const fn at_most(self, most: u64) -> Self {
        ParamSpec { most, ..self }
    }
}

/// A figure to rank by, for `expect:` in suite files.
#[derive(Clone, Copy, Debug)]
pub struct FigureShape {
    /// Key, with `{size}` in place of a frame size: `throughput_{size}_pps`.
    pub key: &'static str,
    /// One line of help.
    pub help: &'static str,
}

impl FigureShape {
    /// True if the figure is a latency of frames, or is based on one. The keys of all such figures, and of no others, contain `latency`.
    pub fn is_latency(&self) -> bool {
        self.key.contains("latency")
    }
}

/// A table that a test may return, for `expect:` in suite files.
#[derive(Clone, Copy, Debug)]
pub struct TableShape {
    /// Key of the table.
    pub key: &'static str,
    /// Key of each column, in order.
    pub columns: &'static [&'static str],
    /// For each column, true if it contains numbers, false if it contains words.
    pub numeric: &'static [bool],
}

impl TableShape {
    /// Keys of the columns that contain numbers.
    pub fn numbers(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().zip(self.numeric).filter(|(_, numeric)| **numeric).map(|(key, _)| *key)
    }
}

/// A test.
#[derive(Clone, Copy, Debug)]
pub struct TestSpec {
    /// Name in suite files and on the command line: `throughput`.
    pub name: &'static str,
    /// Title in reports: `Throughput`.
    pub title: &'static str,
    /// The result of the test, in one line.
    pub summary: &'static str,
    /// Source of the procedure: `RFC 2544 section 26.1, RFC 9971`.
    pub source: &'static str,
    /// Parameters, each from its declaration ([`crate::Param::spec`]).
    pub params: &'static [ParamSpec],
    /// Figures to rank by.
    pub figures: &'static [FigureShape],
    /// Tables that the test returns; empty if they are known only after it has run.
    pub tables: &'static [TableShape],
    /// Required capabilities of a DUT. [`Need::Bgp`] also requires the section `bgp` in the suite.
    pub needs: &'static [Need],
}

impl TestSpec {
    /// Required capabilities of a DUT for a test with these parameters.
    pub fn needs_of(&self, params: &Params) -> Vec<Need> {
        let asked = self.params.iter().filter(|p| !p.needs.is_empty() && params.0.contains_key(p.key));
        let mut needs = self.needs.to_vec();
        for need in asked.flat_map(|p| p.needs) {
            if !needs.contains(need) {
                needs.push(*need);
            }
        }
        needs
    }

    /// True if any figure is a latency of frames, or is based on one.
    pub fn measures_latency(&self) -> bool {
        self.figures.iter().any(FigureShape::is_latency)
    }

    /// True if all figures are latencies of frames, or are based on them.
    pub fn measures_only_latency(&self) -> bool {
        self.measures_latency() && self.figures.iter().all(FigureShape::is_latency)
    }

    /// True if any figure is a time, or is based on a time.
    pub fn measures_times(&self) -> bool {
        let is_time = |key: &str| ["_s", "_ms", "_us", "_ns"].iter().any(|unit| key.ends_with(unit));
        self.figures.iter().any(|figure| figure.is_latency() || is_time(figure.key))
    }
}

/// What a test needs to know about arriving frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Their number.
    Counted,
    /// Also the time of each arrival.
    Stamped,
}

/// A DUT kind.
#[derive(Clone, Copy, Debug)]
pub struct KindSpec {
    /// Name in suite files: `frr`.
    pub name: &'static str,
    /// Description of the kind, in one line.
    pub summary: &'static str,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// Required programs: `(program, Debian package)`.
    pub needs: &'static [(&'static str, &'static str)],
    /// Parameters other than `name` and `kind`.
    pub params: &'static [ParamSpec],
}

impl KindSpec {
    /// What this DUT can do: its kind's capabilities, minus those that its parameters or its topology rule out. Several
    /// routers together have no VPNs with the tester, and only a chain switches labels.
    pub fn capabilities_of(&self, dut: &DutConfig) -> Capabilities {
        let alone = INSTALL_ROUTES.find(&dut.params) == Some(false);
        let of_kind = Capabilities { bgp_forwarding: self.capabilities.bgp_forwarding && !alone, ..self.capabilities };
        let Some(topology) = dut.topology else { return of_kind };
        let core = if topology.shape == Shape::Chain { self.capabilities.core_of_chain } else { &[] };
        Capabilities { core, vrfs: false, ..of_kind }
    }

    /// The ports of a suite in front of this DUT.
    pub fn ports_of(&self, dut: &DutConfig, ports: &[PortConfig]) -> Vec<PortConfig> {
        let capabilities = self.capabilities_of(dut);
        ports.iter().map(|port| port.in_front_of(&capabilities)).collect()
    }
}

/// A port backend.
#[derive(Clone, Copy, Debug)]
pub struct BackendSpec {
    /// Name: `af_packet`.
    pub name: &'static str,
    /// Description and requirements, in one line.
    pub summary: &'static str,
}

/// The tests and DUT kinds that a suite can name. Their specs are in the crates that implement them, so the suite
/// reader gets them as an argument.
#[derive(Clone, Copy, Debug)]
pub struct Registry<'a> {
    /// Tests.
    pub tests: &'a [&'a TestSpec],
    /// DUT kinds.
    pub kinds: &'a [&'a KindSpec],
}

impl<'a> Registry<'a> {
    /// The test with this name.
    pub fn test(&self, name: &str) -> Option<&'a TestSpec> {
        self.tests.iter().copied().find(|t| t.name == name)
    }

    /// Names of the kinds that meet all of these needs.
    pub fn able(&self, needs: &[Need]) -> Vec<&'a str> {
        let able = |k: &&&KindSpec| needs.iter().all(|need| k.capabilities.has(*need));
        self.kinds.iter().filter(able).map(|k| k.name).collect()
    }

    /// The DUT kind with this name.
    pub fn kind(&self, name: &str) -> Option<&'a KindSpec> {
        self.kinds.iter().copied().find(|k| k.name == name)
    }
}
