//! Replays the corpus of every fuzz target: the properties that the targets (see `fuzz/`) check must be true for all
//! stored inputs.

#[path = "../../../../fuzz/src/lib.rs"]
mod bodies;
#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;

use corpus::replay;
use std::path::PathBuf;

#[test]
fn wire() {
    replay("wire", bodies::wire::run);
}

#[test]
fn analyzer() {
    replay("analyzer", bodies::analyzer::run);
}

#[test]
fn hosts() {
    replay("hosts", bodies::hosts::run);
}

#[test]
fn router() {
    replay("router", bodies::router::run);
}

#[test]
fn bgp() {
    replay("bgp", bodies::bgp::run);
}

#[test]
fn rsvp() {
    replay("rsvp", bodies::rsvp::run);
}

#[test]
fn suite() {
    replay("suite", bodies::suite::run);
}

#[test]
fn bgp_update() {
    replay("bgp_update", bodies::bgp_update::run);
}

#[test]
fn ldp() {
    replay("ldp", bodies::ldp::run);
}

#[test]
fn stack() {
    replay("stack", bodies::stack::run);
}

#[test]
fn pcap() {
    replay("pcap", bodies::pcap::run);
}

#[test]
fn bfd() {
    replay("bfd", bodies::bfd::run);
}

#[test]
fn ospf() {
    replay("ospf", bodies::ospf::run);
}

#[test]
fn every_target_is_replayed() {
    let text = |path: &str| std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let here = text("tests/virtual_time/fuzz_corpora.rs");
    // Crates that read stored runs, messages of the API and messages of other hosts replay the corpus of these targets
    // themselves.
    let there = [
        "../report/tests/reports/corpus.rs",
        "../server/tests/api/malicious_grpc.rs",
        "../server/tests/api/malicious_otg.rs",
        "../agent/tests/corpus.rs",
    ]
    .map(text)
    .concat();
    let targets = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    for entry in std::fs::read_dir(targets).unwrap() {
        let target = entry.unwrap().path();
        let target = target.file_stem().unwrap().to_str().unwrap();
        let replayed = here.contains(&format!("replay(\"{target}\", bodies::{target}::run)"))
            || there.contains(&format!("replay(\"{target}\", {target}::run)"));
        assert!(replayed, "{target} is not replayed");
    }
}
