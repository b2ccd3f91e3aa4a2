//! A small registry for the tests of suite reading.
#![allow(dead_code, missing_docs)]

use drophammer_model::capabilities::{Capabilities, Need};
use drophammer_model::registry::{FigureShape, KindSpec, ParamKind, ParamSpec, Registry, TableShape, TestSpec};
use drophammer_model::suite::Suite;
use drophammer_suite::SuiteErrors;
use drophammer_suite::read::{Overrides, read};

const SIZES: ParamSpec = ParamSpec::new(
    "frame_sizes",
    ParamKind::Sizes,
    "[64, 512, 1518]",
    "[64, 128, 256, 512, 1024, 1280, 1518]",
    "sizes",
);
const FAMILIES: ParamSpec = ParamSpec::fixed("families", ParamKind::Families, "[ipv4]", "IP versions");
const DIRECTION: ParamSpec = ParamSpec::fixed(
    "direction",
    ParamKind::Choice(&["bidirectional", "unidirectional"]),
    "bidirectional",
    "who sends",
);
const DURATION: ParamSpec = ParamSpec::new("duration", ParamKind::Duration, "2 s", "60 s", "length of a trial");
const SETTLE: ParamSpec = ParamSpec::new("settle", ParamKind::Duration, "0 s", "5 s", "wait between trials");
const PRECISION: ParamSpec = ParamSpec::new("precision", ParamKind::Percent, "1", "0.5", "width of the search");
const TRIALS: ParamSpec = ParamSpec::new("trials", ParamKind::Count, "2", "20", "repetitions");
const PACKING: ParamSpec = ParamSpec::new("packing", ParamKind::CountOr("fit"), "fit", "500", "at once");
const LOADS: ParamSpec =
    ParamSpec::fixed("loads", ParamKind::Percents, "[10, 50, 90, 100]", "per cent of the throughput");
const FLOOR: ParamSpec = ParamSpec::optional("floor", ParamKind::Rate, "lowest rate");
const VERIFY: ParamSpec = ParamSpec::fixed("verify", ParamKind::Flag, "true", "check payloads");
const RESET: ParamSpec = ParamSpec::required("reset_command", ParamKind::Command, "what resets the DUT");
const COMMON: [ParamSpec; 4] = [SIZES, FAMILIES, DIRECTION, DURATION];

macro_rules! test {
    ($id:ident, $name:literal, [$($param:expr),*], [$($figure:literal),*] $(, $table:expr)?) => {
        static $id: TestSpec = TestSpec {
            name: $name,
            title: $name,
            summary: "A test.",
            source: "RFC 2544",
            params: &[COMMON[0], COMMON[1], COMMON[2], COMMON[3] $(, $param)*],
            figures: &[$(FigureShape { key: $figure, help: "A figure." }),*],
            tables: &[$($table)?],
            needs: &[],
        };
    };
}

const LOSSES: TableShape = TableShape {
    key: "frame_loss_rate",
    columns: &["frame_size", "load_percent", "loss_percent", "latency_us", "remark"],
    numeric: &[false, true, true, true, false],
};

test!(THROUGHPUT, "throughput", [PRECISION, SETTLE, FLOOR, VERIFY], ["throughput_{size}_pps"]);
test!(FORWARDING, "forwarding_rate", [], []);
test!(LOSS, "frame_loss_rate", [LOADS], ["loss_{size}_percent"], LOSSES);
test!(LATENCY, "latency", [LOADS, TRIALS], ["latency_{size}_ns"]);
test!(BACK, "back_to_back", [TRIALS, PACKING], ["burst_{size}_frames"]);
test!(RECOVERY, "system_recovery", [], ["recovery_{size}_s"]);
test!(RESET_TEST, "reset", [RESET], []);

static ROUTES: TestSpec = TestSpec {
    name: "routes",
    title: "routes",
    summary: "A test of BGP.",
    source: "RFC 4271",
    params: &[],
    figures: &[],
    tables: &[],
    needs: &[Need::Bgp],
};

static FRR: KindSpec = KindSpec {
    name: "frr",
    summary: "FRRouting.",
    capabilities: Capabilities { systems: true, ..Capabilities::BGP_ROUTER },
    needs: &[("zebra", "frr")],
    params: &[
        ParamSpec::fixed("threads", ParamKind::Count, "1", "threads"),
        ParamSpec::optional("config", ParamKind::File, "a file"),
    ],
};
static BIRD: KindSpec =
    KindSpec { name: "bird", summary: "BIRD.", capabilities: Capabilities::ROUTER, needs: &[], params: &[] };
static EXTERNAL: KindSpec = KindSpec {
    name: "external",
    summary: "A router on real interfaces.",
    capabilities: Capabilities::ROUTER,
    needs: &[],
    params: &[
        ParamSpec::required("interfaces", ParamKind::Interfaces, "interfaces of the tester"),
        ParamSpec::optional("far_interfaces", ParamKind::DutInterfaces, "interfaces of the DUT"),
        ParamSpec::optional("note", ParamKind::Text, "a remark"),
    ],
};

/// The registry of these tests.
pub const REGISTRY: Registry<'static> = Registry {
    tests: &[&THROUGHPUT, &FORWARDING, &LOSS, &LATENCY, &BACK, &RECOVERY, &RESET_TEST, &ROUTES],
    kinds: &[&FRR, &BIRD, &EXTERNAL],
};

/// Reads `text` without overrides.
pub fn suite(text: &str) -> Result<Suite, SuiteErrors> {
    read(text, "t.yaml", &REGISTRY, &Overrides::default())
}

/// A suite as a new user would write it.
pub const QUICK_LOOK: &str = include_str!("two-routers.yaml");

/// A suite that uses every key.
pub const FULL: &str = r#"suite: full
title: Everything at once
profile: conformant
seed: 7
duts:
  - {name: frr-1, kind: frr, threads: 2, topology: {mesh: 2, core_speed: 100 Mbit/s}}
  - name: rack.router
    kind: external
    interfaces: [eth1, eth2]
    far_interfaces: [ge-0/0/0, 7]
    note: "left, third row"
ports:
  - name: p1
    speed: 2.5 Gbit/s
    mtu: 9000
    ipv4: {dut: 10.0.0.1/30, host: 10.0.0.2, behind: 10.1.0.0/16, destinations: 1000}
    ipv6: {behind: "fd00:1::/32"}
  - name: p2
    speed: 2.5 Gbit/s
    mtu: 9000
    ipv4:
      dut: 10.0.0.5/30
bgp: {dut_as: 65100, tester_as: 4200000000, peers_per_port: 2, families: [ipv6], hold_time: 30 s}
defaults:
  frame_sizes: &sizes [64, ip40, imix]
  families: [ipv6, ipv4]
tests:
  - throughput
  - latency: {loads: [10, 0.5, 100], trials: 3, frame_sizes: *sizes}
  - throughput:
      frame_sizes: ["imix:7x64,4x570", imix-2001, 9018]
      duration: 2 min
      settle: 0 s
      precision: 0.1
      floor: 1.5 kfps
      verify: false
      expect: {throughput_9018_pps: ">= 100 kfps", throughput_imix-2001_pps: "<= 5"}
  - reset: {reset_command: "ssh router reload"}
allow_public_addresses: false
"#;
