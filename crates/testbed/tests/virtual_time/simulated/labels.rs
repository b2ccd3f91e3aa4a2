//! Labels through the reference device, as configured by a suite: swapped, pushed, popped, and every way in which they
//! can be wrong.

use crate::common::*;
use drophammer_methods::Testbed;
use drophammer_model::capabilities::Need;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{FlowConfig, Suite};
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::{Family, FlowSpec, Load, TrialResult, TrialSpec};
use drophammer_reference::{Encapsulation, Faults, Truth};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::Reference;
use std::collections::{BTreeMap, BTreeSet};

const RATE: f64 = 1_000.0;
const FRAMES: u64 = 500;

/// A suite of two ports with label entries, and `flows` of 200 bytes from the first port to the second.
fn labelled(flows: &[(&str, &str, &str)]) -> Suite {
    let flow = |(name, headers, arrives): &(&str, &str, &str)| {
        // A network on whose packets the device pushes labels.
        let to = if *name == "fec" { ", destination: 10.99.0.7" } else { "" };
        format!(
            "  - {{name: {name}, from: p1, to: p2, size: 200, rate: 1 kfps, headers: [{headers}], arrives: {{{arrives}}}{to}}}\n"
        )
    };
    let flows: String = flows.iter().map(flow).collect();
    let text = format!(
        "suite: labels\nseed: 11\nduts:\n  - {{name: box, kind: reference}}\nports:\n  - {{name: p1, speed: 1 Gbit/s}}\n  \
         - {{name: p2, speed: 1 Gbit/s, labels: [{{label: 100, out: [200]}}, {{label: 101}}, {{label: 102, out: [300, 301]}}, {{to: 10.99.0.0/24, out: [400, 401]}}]}}\n\
         flows:\n{flows}tests: [fixed_rate]\n"
    );
    read_suite(&text)
}

fn spec(flow: &FlowConfig) -> FlowSpec {
    FlowSpec {
        headers: flow.headers.clone(),
        arrives: flow.arrives.clone(),
        ..FlowSpec::new(flow.name.clone(), flow.from.port, flow.to.port, flow.source, flow.destination)
    }
}

/// Runs all flows of a suite; also returns the device's counts.
fn flows_through(suite: &Suite, faults: Faults) -> (TrialResult, Truth) {
    with_bed(
        suite,
        &[Family::Ipv4, Family::Ipv6],
        |_| {},
        |bed, reference| {
            let before = reference.truth();
            reference.set_faults(faults).unwrap();
            (trial(bed, suite), since(reference, &before))
        },
    )
}

fn trial(bed: &mut TestSetup<'_>, suite: &Suite) -> TrialResult {
    let flows: Vec<_> = suite.flows.iter().map(spec).collect();
    let result = bed.trial(&TrialSpec {
        purpose: "labels".into(),
        size: "200".parse().unwrap(),
        load: Load::Constant { rate_pps: RATE * flows.len() as f64 },
        flows,
        duration_s: FRAMES as f64 / RATE,
        bin_s: None,
        drain_s: 1.0,
        events: vec![],
    });
    let result = result.unwrap();
    assert!(result.validity.is_valid(), "{:?}", result.validity);
    assert!(result.groups.iter().all(|g| g.offered == FRAMES && g.corrupted + g.stray + g.duplicated == 0));
    result
}

/// The counts that these tests compare.
fn since(reference: &Reference, before: &Truth) -> Truth {
    let mut truth = reference.truth();
    truth.encapsulation -= before.encapsulation;
    truth.ttl_kept -= before.ttl_kept;
    truth.dropped.no_label -= before.dropped.no_label;
    truth.dropped.ttl -= before.dropped.ttl;
    truth
}

const SWAP: (&str, &str, &str) = (
    "swap",
    "{mpls: {label: 100, tc: 5, ttl: 40}}, {ipv4: {ttl: 64}}, udp",
    "labels: [{label: 200, tc: 5, ttl: 39}], ttl: 64",
);
const STACK: (&str, &str, &str) = (
    "stack",
    "{mpls: {label: 102, tc: 2}}, {mpls: {label: 77, ttl: 9}}, ipv6, tcp",
    "labels: [{label: 300, tc: 2, ttl: 63}, {label: 301, tc: 2, ttl: 63}, {label: 77, ttl: 9}], ttl: 64",
);

#[test]
fn labels_are_swapped_pushed_and_taken_off() {
    let flows = [
        SWAP,
        STACK,
        ("pop", "{mpls: {label: 101, ttl: 30}}, {ipv4: {dscp: 46}}, udp", "ttl: 29, dscp: 46"),
        ("pop-ipv6", "{mpls: {label: 101, ttl: 30}}, ipv6, icmp_echo", "ttl: 29"),
        (
            "pop-one",
            "{mpls: {label: 101, ttl: 30}}, {mpls: {label: 55, tc: 1}}, ipv4, udp",
            "labels: [{label: 55, tc: 1, ttl: 29}]",
        ),
        ("plain", "ipv4, udp", "ttl: 63"),
        ("fec", "{ipv4: {ttl: 40}}, udp", "labels: [{label: 400, ttl: 39}, {label: 401, ttl: 39}], ttl: 39"),
    ];
    let suite = labelled(&flows);
    assert!(RouterRole::of(&suite.ports).needs().contains(&Need::Mpls));
    let (result, truth) = flows_through(&suite, Faults::default());
    for group in &result.groups {
        assert_eq!((group.received, &group.deviations), (FRAMES, &BTreeMap::new()), "{}", group.group);
    }
    assert_eq!(truth.dropped.total(), 0);
    // A frame that would be too short for Ethernet without its label is padded; these frames are longer.
    assert!(result.groups.iter().all(|g| g.received_bytes >= FRAMES * 196));
}

#[test]
fn unknown_labels_and_labels_of_the_last_hop_are_dropped() {
    let flows = [
        ("unknown", "{mpls: {label: 99}}, ipv4, udp", "labels: [{label: 99}]"),
        ("old", "{mpls: {label: 100, ttl: 1}}, ipv4, udp", "labels: [{label: 200}]"),
    ];
    let (result, truth) = flows_through(&labelled(&flows), Faults::default());
    assert_eq!((result.received(), truth.dropped.no_label, truth.dropped.ttl), (0, FRAMES, FRAMES));
}

#[test]
fn each_deviation_of_labels_is_found_by_its_kind() {
    let mut kinds = BTreeSet::new();
    let labels = [
        Deviation::Label,
        Deviation::LabelMissing,
        Deviation::LabelUnexpected,
        Deviation::LabelTc,
        Deviation::LabelTtl,
        Deviation::Ttl,
    ];
    for flow in [SWAP, STACK] {
        for change in labels {
            let fault = Encapsulation { every: 20, change };
            let (result, truth) =
                flows_through(&labelled(&[flow]), Faults { encapsulation: Some(fault), ..Faults::default() });
            let group = &result.groups[0];
            assert_eq!(truth.encapsulation, FRAMES / 20, "{}: {change}", group.group);
            assert_eq!(group.deviations, BTreeMap::from([(change, FRAMES / 20)]), "{}", group.group);
            assert_eq!((group.lost, group.deviating_copies), (FRAMES / 20, 0), "{}: {change}", group.group);
            kinds.insert(change);
        }
        let (result, truth) = flows_through(&labelled(&[flow]), Faults { ttl_kept_every: 10, ..Faults::default() });
        assert_eq!(truth.ttl_kept, FRAMES / 10);
        assert_eq!(result.groups[0].deviations, BTreeMap::from([(Deviation::LabelTtl, FRAMES / 10)]));
    }
    assert_eq!(kinds, labels.into());
}

/// `labels` for tests on a mesh of four routers with three ports each, and chains of three: all paths between two ports
/// are label-switched.
fn switched(topology: &str, faults: &str) -> Memory {
    let ports: String = (1..=12)
        .map(|n| {
            format!(
                "  - {{name: p{n}, speed: 10 Mbit/s, ipv6: off, labels: [{{label: {}, out: [{}]}}]}}\n",
                100 + n,
                200 + n
            )
        })
        .collect();
    let text = format!(
        "suite: paths\nseed: 11\nduts:\n  - {{name: box, kind: reference, topology: {{{topology}}}{faults}}}\nports:\n{ports}\
         defaults: {{pause: 1 ms, distribution: fully_meshed}}\n\
         tests:\n  - forwarding_rate: {{frame_sizes: [64], labels: swap, label_stack: 2, trial_duration: 100 ms}}\n"
    );
    let mut memory = Memory::default();
    run(&read_suite_in_rounds(&text, Some(1)), &mut memory).unwrap();
    memory
}

#[test]
fn paths_through_several_routers_are_switched_by_label() {
    for topology in ["mesh: 4", "chain: 3"] {
        let memory = switched(topology, "");
        let trials = memory.trials();
        let trial = &trials.iter().find(|trial| trial.test == "forwarding_rate").unwrap().result;
        let group = &trial.groups[0];
        assert!(group.offered > 100_000 / 10, "{topology}: {}", group.offered);
        assert_eq!((group.received, &group.deviations), (group.offered, &BTreeMap::new()), "{topology}");
    }
    let memory = switched("mesh: 4", ", ttl_kept_every: 10");
    let trials = memory.trials();
    let trial = &trials.iter().find(|trial| trial.test == "forwarding_rate").unwrap().result;
    assert!(trial.groups[0].deviations[&Deviation::LabelTtl] > 0, "{:?}", trial.groups[0].deviations);
}
