//! Frames that real routers send after they swapped, pushed and removed labels, as decoded by an independent decoder
//! (tshark): labels, TTLs, traffic classes, the bottom of the stack, and the packet below. The routers are User Mode
//! Linux and Open vSwitch.

use crate::anew::{self, Checked};
use crate::common::{Memory, read_suite};
use drophammer_lab::Lab;
use drophammer_lab::kinds::uml;
use drophammer_methods::METHODS;
use drophammer_model::outcome::Outcome;
use drophammer_model::suite::Suite;
use drophammer_model::trial::Family;
use drophammer_port::capture::{Capture, CaptureLimits};
use drophammer_port::{Clock, INTERFACE_BACKENDS, Port, SystemClock};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::validity::HostTolerance;
use drophammer_testbed::{Session, config, real};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Number of frames of each flow.
const FRAMES: usize = 40;

/// A flow, identified by its codepoint, and the labels with which it must leave the router.
struct Case {
    name: &'static str,
    dscp: u8,
    /// Label headers with which the flow is sent.
    sent: &'static str,
    /// Expected labels, TTLs and bottom-of-stack bits, the outermost first, in the format of tshark.
    labels: &'static str,
    ttls: &'static str,
    bottom: &'static str,
    /// Expected TTL of the packet below the labels.
    ip_ttl: &'static str,
}

const CASES: [Case; 5] = [
    Case {
        name: "swap",
        dscp: 11,
        sent: "{mpls: {label: 100, ttl: 40, tc: 5}}, ",
        labels: "200",
        ttls: "39",
        bottom: "1",
        ip_ttl: "64",
    },
    Case {
        name: "swap-and-push",
        dscp: 12,
        sent: "{mpls: {label: 102, ttl: 40}}, {mpls: {label: 55, ttl: 9}}, ",
        labels: "300,301,55",
        ttls: "39,39,9",
        bottom: "0,0,1",
        ip_ttl: "64",
    },
    Case {
        name: "pop",
        dscp: 13,
        sent: "{mpls: {label: 101, ttl: 30}}, ",
        labels: "",
        ttls: "",
        bottom: "",
        ip_ttl: "29",
    },
    Case {
        name: "pop-one",
        dscp: 14,
        sent: "{mpls: {label: 101, ttl: 30}}, {mpls: {label: 55, ttl: 17}}, ",
        labels: "55",
        ttls: "17",
        bottom: "1",
        ip_ttl: "64",
    },
    Case { name: "push", dscp: 15, sent: "", labels: "400,401", ttls: "63,63", bottom: "0,1", ip_ttl: "63" },
];

const FIELDS: [&str; 9] = [
    "ip.dsfield.dscp",
    "mpls.label",
    "mpls.ttl",
    "mpls.bottom",
    "mpls.exp",
    "ip.ttl",
    "ip.checksum.status",
    "udp.checksum.status",
    "_ws.malformed",
];

fn text<E: ToString>(e: E) -> String {
    e.to_string()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

fn suite(dut: &str) -> Suite {
    let flow = |case: &Case| {
        let to = if case.sent.is_empty() { ", destination: 10.99.0.7" } else { "" };
        format!(
            "  - {{name: {}, from: p1, to: p2, size: 128, rate: 200 fps, frames: {FRAMES}, \
             headers: [{}{{ipv4: {{dscp: {}}}}}, udp]{to}}}\n",
            case.name, case.sent, case.dscp
        )
    };
    let flows: String = CASES.iter().map(flow).collect();
    read_suite(&format!(
        "suite: labels\nseed: 11\nduts: [{{name: box, {dut}}}]\n\
         ports:\n  - {{name: p1, speed: 100 Mbit/s, ipv6: off}}\n  - {{name: p2, speed: 100 Mbit/s, ipv6: off, \
         labels: [{{label: 100, out: [200]}}, {{label: 101}}, {{label: 102, out: [300, 301]}}, {{to: 10.99.0.0/24, out: [400, 401]}}]}}\n\
         flows:\n{flows}tests: [{{fixed_rate: {{trial_duration: 400 ms, drain: 500 ms, pause: 1 ms}}}}]\n"
    ))
}

/// Sends the flows through a router, and stores every frame of the second port in `file`.
fn record(lab: &mut Lab, suite: &Suite, folder: &Path, file: &Path) -> Checked {
    let mut dut = real::bring_up(lab, &suite.duts[0], suite, folder, &|| false).map_err(text)?;
    let (clock, interfaces) = (SystemClock::start(), dut.interfaces().to_vec());
    let backend = INTERFACE_BACKENDS.iter().find(|backend| backend.spec.name == "af_packet").ok_or("no backend")?;
    let mut open = real::open(lab, &interfaces, backend, 1, clock)?;
    let second = open.pop().ok_or("no port")?;
    let nothing_left_out = |_: &[u8]| false;
    let (second, status) =
        Capture::start(second, file, CaptureLimits::default(), 0, move || clock.now(), nothing_left_out)
            .map_err(text)?;
    open.push(Box::new(second) as Box<dyn Port + Send>);
    let rig = Rig::new(Ports::real(open, clock, &[]), &config::hosts(&suite.ports, &[Family::Ipv4], suite.seed));
    let mut session = Session::new(suite.seed, suite.profile, u64::from(std::process::id()));
    session.tolerance.host = HostTolerance::ANY;
    let mut memory = Memory::default();
    let mut setup = TestSetup::new("box", &suite.ports, rig, &mut *dut, &mut session, &mut memory);
    setup.await_forwarding(&[Family::Ipv4]).map_err(text)?;
    setup.facts_mut().flows.clone_from(&suite.flows);
    let method = METHODS.iter().find(|method| method.spec().name == "fixed_rate").ok_or("no method")?;
    let ran = method.run(&mut setup, &suite.tests[0].params, &mut Outcome::default()).map_err(text);
    // Closing the port ends its capture.
    drop(setup);
    ran?;
    dut.take_down().map_err(text)?;
    ensure(status.note().is_none(), || format!("{:?}", status.note()))
}

/// The fields of each frame to the test's UDP port in the capture; `None` if tshark is not installed.
fn decode(file: &Path) -> Result<Option<Vec<Vec<String>>>, String> {
    let output = Command::new("tshark")
        .args(["-n", "-Y", "udp.dstport == 9", "-T", "fields", "-E", "separator=/t"])
        .args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"])
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .arg("-r")
        .arg(file)
        .output();
    let output = match output {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(text)?,
    };
    ensure(output.status.success(), || String::from_utf8_lossy(&output.stderr).into_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).replace("True", "1").replace("False", "0");
    Ok(Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()))
}

/// Expected values: `swapped` is the traffic class of a packet of class 5 after its label was swapped, `pushed` is the
/// traffic class of labels that are pushed on a packet of codepoint 15, and `exposed` is the TTL of a label after the
/// label above it, with TTL 30, was removed.
fn leaves(lab: &mut Lab, dut: &str, [swapped, pushed, exposed]: [&str; 3]) -> Checked {
    let folder = tempfile::tempdir().map_err(text)?;
    let (suite, file) = (suite(dut), folder.path().join("p2.pcap"));
    record(lab, &suite, folder.path(), &file)?;
    let Some(frames) = decode(&file)? else {
        println!("    skipped: tshark is not installed");
        return Ok(());
    };
    for case in &CASES {
        let of_case: Vec<_> = frames.iter().filter(|frame| frame[0] == case.dscp.to_string()).collect();
        ensure(of_case.len() == FRAMES, || format!("{dut}: {} frames of {}: {frames:?}", of_case.len(), case.name))?;
        let ttls = if case.name == "pop-one" { exposed } else { case.ttls };
        let class = match case.name {
            "swap" => swapped,
            "push" => pushed,
            _ => "0",
        };
        let labels = case.labels.split(',').filter(|label| !label.is_empty());
        let classes = labels.map(|_| class).collect::<Vec<_>>().join(",");
        let wanted = [case.labels, ttls, case.bottom, &classes, case.ip_ttl, "1", "1", ""];
        for frame in of_case {
            ensure(frame[1..] == wanted, || format!("{dut}, {}: {:?}, not {wanted:?}", case.name, &frame[1..]))?;
        }
        println!("    {dut}: {} leaves with [{}], TTL [{ttls}], class [{classes}]", case.name, case.labels);
    }
    Ok(())
}

/// The tests.
pub fn cases() -> Vec<anew::Case> {
    // Open vSwitch uses the lowest three bits of the codepoint as the traffic class of labels that it pushes.
    let switch = |lab: &mut Lab| leaves(lab, "kind: ovs", ["5", "7", "29"]);
    // Linux sets the traffic class of each label that it adds or swaps to 0, and an exposed label keeps its TTL.
    let guest = |lab: &mut Lab| leaves(lab, "kind: uml, routing: static, memory: 128", ["0", "0", "17"]);
    vec![
        anew::Case::in_lab("tshark_reads_the_labels_that_a_switch_sends", switch).again(),
        anew::Case::in_lab("tshark_reads_the_labels_that_a_guest_sends", guest)
            .again()
            .long()
            .unless(uml::unfit_processor()),
    ]
}
