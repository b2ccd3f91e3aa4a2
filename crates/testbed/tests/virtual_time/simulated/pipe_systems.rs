//! Labels through several reference devices in virtual time, in both TTL models (RFC 3443): every packet arrives as the
//! suite says for one router, less what the other routers on its path decrement.

use crate::common::*;
use std::collections::BTreeSet;

/// Frames of each flow.
const FRAMES: u64 = 100;

/// Name, headers in front of the packet, and what arrives behind one router in the uniform and in the pipe model.
const FLOWS: [(&str, &str, [&str; 2]); 6] = [
    ("plain", "", ["ttl: 63"; 2]),
    ("swap", "{mpls: {label: 100, ttl: 40}}, ", ["labels: [{label: 200, ttl: 39}], ttl: 64"; 2]),
    (
        "push",
        "{mpls: {label: 102, ttl: 40}}, {mpls: {label: 55, ttl: 9}}, ",
        ["labels: [{label: 300, ttl: 39}, {label: 301, ttl: 39}, {label: 55, ttl: 9}], ttl: 64"; 2],
    ),
    ("pop", "{mpls: {label: 101, ttl: 30}}, ", ["ttl: 29", "ttl: 63"]),
    (
        "pop-one",
        "{mpls: {label: 101, ttl: 30}}, {mpls: {label: 55}}, ",
        ["labels: [{label: 55, ttl: 29}], ttl: 64", "labels: [{label: 55, ttl: 64}], ttl: 64"],
    ),
    // A network for which the router pushes labels.
    (
        "fec",
        "",
        [
            "labels: [{label: 400, ttl: 63}, {label: 401, ttl: 63}], ttl: 63",
            "labels: [{label: 400, ttl: 255}, {label: 401, ttl: 255}], ttl: 63",
        ],
    ),
];

/// Runs these flows; `expected` is the index of the TTL model.
fn run_flows(device: &str, expected: usize) -> Memory {
    let flow = |(name, headers, arrives): &(&str, &str, [&str; 2])| {
        let to = if *name == "fec" { ", destination: 10.99.0.7" } else { "" };
        format!(
            "  - {{name: {name}, from: p1, to: p2, size: 128, rate: 1 kfps, frames: {FRAMES}, headers: [{headers}ipv4, udp], \
             arrives: {{{}}}{to}}}\n",
            arrives[expected]
        )
    };
    let flows: String = FLOWS.iter().map(flow).collect();
    let text = format!(
        "suite: labels\nprofile: quick\nseed: 11\nduts: [{{name: box, kind: reference{device}}}]\n\
         ports:\n  - {{name: p1, speed: 100 Mbit/s, ipv6: off}}\n  - {{name: p2, speed: 100 Mbit/s, ipv6: off, \
         labels: [{{label: 100, out: [200]}}, {{label: 101}}, {{label: 102, out: [300, 301]}}, {{to: 10.99.0.0/24, out: [400, 401]}}]}}\nflows:\n{flows}\
         tests: [{{fixed_rate: {{trial_duration: 200 ms, pause: 1 ms}}}}]\n"
    );
    let mut memory = Memory::default();
    run(&read_suite(&text), &mut memory).unwrap();
    memory
}

/// Flows whose frames did not all arrive as expected.
fn wrong(memory: &Memory) -> BTreeSet<String> {
    let trials = memory.trials();
    let trial = trials.iter().find(|trial| trial.result.groups.iter().any(|group| group.group == "fec")).unwrap();
    let groups = &trial.result.groups;
    assert_eq!(groups.len(), FLOWS.len());
    assert!(groups.iter().all(|group| group.offered == FRAMES), "{groups:?}");
    let wrong = groups.iter().filter(|group| group.received != FRAMES || !group.deviations.is_empty());
    wrong.map(|group| group.group.clone()).collect()
}

#[test]
fn several_routers_count_down_what_the_model_says() {
    for topology in ["", ", topology: {chain: 2}", ", topology: {chain: 4}", ", topology: {mesh: 2}"] {
        for (model, name) in ["uniform", "pipe"].into_iter().enumerate() {
            let memory = run_flows(&format!(", ttl_model: {name}{topology}"), model);
            assert_eq!(wrong(&memory), BTreeSet::new(), "{name}{topology}");
        }
    }
}

#[test]
fn a_device_of_the_other_model_is_found() {
    for (name, other) in [("uniform", 1), ("pipe", 0)] {
        let memory = run_flows(&format!(", ttl_model: {name}, topology: {{chain: 3}}"), other);
        assert_eq!(wrong(&memory), ["pop", "pop-one", "fec"].map(str::to_owned).into(), "{name}");
    }
}
