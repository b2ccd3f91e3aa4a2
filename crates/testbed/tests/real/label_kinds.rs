//! Routers that forward by labels: User Mode Linux and Open vSwitch, alone, and two of them in a chain. Labels are
//! swapped, pushed and popped with the right TTL, and the router's treatment of the traffic class is determined.

use crate::anew::Case;
use crate::common::program::run_in_lab_by;
use drophammer_lab::Lab;
use drophammer_lab::kinds::uml;
use drophammer_model::traffic::Deviation;
use drophammer_port::{Backend, INTERFACE_BACKENDS};
use std::collections::BTreeMap;

/// Number of frames of each flow.
const FRAMES: u64 = 100;
/// The flow whose packets must keep their traffic class.
const CLASS: &str = "class";

/// `dut` contains the properties of a DUT other than its name; `pipe` means that its labels have their own TTL.
fn suite(dut: &str, pipe: bool) -> String {
    let of = |uniform: &'static str, other: &'static str| if pipe { other } else { uniform };
    let flow = |(name, headers, arrives): &(&str, &str, &str)| {
        // A network on whose packets the router pushes labels.
        let (headers, to) = match *headers {
            "" => (String::new(), ", destination: 10.99.0.7"),
            labels => (format!("{labels}, "), ""),
        };
        format!(
            "  - {{name: {name}, from: p1, to: p2, size: 128, rate: 200 fps, frames: {FRAMES}, headers: [{headers}ipv4, udp], \
             arrives: {{{arrives}}}{to}}}\n"
        )
    };
    let flows = [
        ("swap", "{mpls: {label: 100, ttl: 40}}", "labels: [{label: 200, ttl: 39}], ttl: 64"),
        (
            "push",
            "{mpls: {label: 102, ttl: 40}}, {mpls: {label: 55, ttl: 9}}",
            "labels: [{label: 300, ttl: 39}, {label: 301, ttl: 39}, {label: 55, ttl: 9}], ttl: 64",
        ),
        ("pop", "{mpls: {label: 101, ttl: 30}}", of("ttl: 29", "ttl: 63")),
        (
            "pop-one",
            "{mpls: {label: 101, ttl: 30}}, {mpls: {label: 55}}",
            of("labels: [{label: 55, ttl: 29}], ttl: 64", "labels: [{label: 55, ttl: 64}], ttl: 64"),
        ),
        (
            "fec",
            "",
            of(
                "labels: [{label: 400, ttl: 63}, {label: 401, ttl: 63}], ttl: 63",
                "labels: [{label: 400, ttl: 255}, {label: 401, ttl: 255}], ttl: 63",
            ),
        ),
        (CLASS, "{mpls: {label: 100, tc: 5}}", "labels: [{label: 200, tc: 5, ttl: 63}], ttl: 64"),
        // A router must not forward any of these.
        ("unknown", "{mpls: {label: 99}}", "labels: [{label: 99}]"),
        ("ends", "{mpls: {label: 100, ttl: 1}}", "labels: [{label: 200}]"),
    ];
    let flows: String = flows.iter().map(flow).collect();
    format!(
        "suite: labels\nprofile: quick\nrounds: 1\nduts: [{{name: box, {dut}}}]\n\
         ports:\n  - {{name: p1, speed: 100 Mbit/s, ipv6: off}}\n  - {{name: p2, speed: 100 Mbit/s, ipv6: off, \
         labels: [{{label: 100, out: [200]}}, {{label: 101}}, {{label: 102, out: [300, 301]}}, {{to: 10.99.0.0/24, out: [400, 401]}}]}}\nflows:\n{flows}\
         tests: [{{fixed_rate: {{trial_duration: 600 ms, drain: 500 ms, pause: 1 ms}}}}]\n"
    )
}

/// `otherwise` lists flows whose packets this router forwards differently from what the flow expects.
fn forwards(lab: &mut Lab, dut: &str, otherwise: &[(&str, Deviation)]) -> Result<(), String> {
    forwards_by(lab, &INTERFACE_BACKENDS[0], dut, otherwise)
}

/// Like [`forwards`], with this backend.
fn forwards_by(
    lab: &mut Lab,
    backend: &'static Backend,
    dut: &str,
    otherwise: &[(&str, Deviation)],
) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let memory = run_in_lab_by(lab, backend, &suite(dut, dut.contains("pipe")), folder.path())?;
    let status =
        || format!("{dut}: {:?}", memory.tests().iter().map(|t| (&t.status, &t.outcome.notes)).collect::<Vec<_>>());
    let trials = memory.trials();
    let trial = trials.iter().find(|trial| trial.result.groups.iter().any(|g| g.group == CLASS)).ok_or_else(status)?;
    for flow in &trial.result.groups {
        let deviation = otherwise.iter().find(|(name, _)| *name == flow.group).map(|(_, deviation)| *deviation);
        let (received, deviations) = match (flow.group.as_str(), deviation) {
            ("unknown" | "ends", _) => (0, BTreeMap::new()),
            (_, Some(deviation)) => (0, BTreeMap::from([(deviation, FRAMES)])),
            _ => (FRAMES, BTreeMap::new()),
        };
        let right = flow.offered == FRAMES && flow.received == received && flow.deviations == deviations;
        if !right || flow.stray + flow.corrupted + flow.duplicated > 0 {
            return Err(format!("{dut}: {received} of {FRAMES} were to arrive with {deviations:?}: {flow:?}"));
        }
    }
    Ok(())
}

/// The tests of each kind of router that forwards by labels.
pub fn cases() -> Vec<Case> {
    let others = |lab: &mut Lab| {
        for links in ["", ", topology: {chain: 2}"] {
            forwards(lab, &format!("kind: ovs{links}"), &[])?;
        }
        forwards(lab, "kind: ovs, ttl_model: pipe", &[])?;
        forwards(lab, "kind: ovs, ttl_model: pipe, topology: {chain: 2}", &[])?;
        forwards(lab, "kind: reference, links: veth", &[])?;
        forwards(lab, "kind: reference, links: veth, ttl_model: pipe", &[])
    };
    // Linux sets the traffic class of every label that it adds or swaps to 0, and an exposed label keeps its TTL.
    let linux = [(CLASS, Deviation::LabelTc), ("pop-one", Deviation::LabelTtl)];
    let guests = move |lab: &mut Lab| {
        for links in ["", ", links: veth", ", topology: {chain: 2}"] {
            forwards(lab, &format!("kind: uml, routing: static, memory: 128{links}"), &linux)?;
        }
        forwards(lab, "kind: uml, routing: static, memory: 128, ttl_model: pipe", &linux[..1])
    };
    // The way of frames with labels differs: one backend receives them beside its ring, one generates only frames without labels in the kernel.
    let by_backend = INTERFACE_BACKENDS.iter().map(|backend| {
        let run = move |lab: &mut Lab| {
            forwards_by(lab, backend, "kind: uml, routing: static, memory: 128, links: veth", &linux)
        };
        let unfit = (backend.usable)().err().or_else(uml::unfit_processor);
        Case::in_lab(format!("a_guest_exchanges_labels_by_{}", backend.spec.name), run).again().long().unless(unfit)
    });
    let all = vec![
        Case::in_lab("routers_exchange_labels_as_they_should", others).again().long(),
        Case::in_lab("guests_exchange_labels_as_they_should", guests).again().long().unless(uml::unfit_processor()),
    ];
    all.into_iter().chain(by_backend).collect()
}
