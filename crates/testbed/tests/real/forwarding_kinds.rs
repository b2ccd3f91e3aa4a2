//! Routers that forward without the kernel: XDP and Open vSwitch. Each frame of both families, in both directions, must
//! arrive as a router should send it, and the router's own counters must show what forwarded it.

use crate::anew::Case;
use crate::common::program::run_in_lab;
use crate::common::read_suite;
use drophammer_lab::Lab;
use drophammer_model::Instant;
use drophammer_model::record::TrialRecord;
use drophammer_model::reset::ResetKind;
use drophammer_model::trial::GroupCounts;
use drophammer_testbed::real;
use std::time::Duration;

/// Number of frames of each flow.
const FRAMES: u64 = 400;

fn suite(kind: &str) -> String {
    let flow = |name: &str, from: &str, to: &str, size: u32, headers: &str, arrives: &str| {
        format!(
            "  - {{name: {name}, from: {from}, to: {to}, size: {size}, rate: 800 fps, frames: {FRAMES}, \
             headers: [{headers}, udp], arrives: {{{arrives}}}}}\n"
        )
    };
    let flows = [
        flow("four", "p1", "p2", 64, "{ipv4: {dscp: 46}}", "ttl: 63, dscp: 46"),
        flow("four-back", "p2", "p1", 1518, "ipv4", "ttl: 63"),
        flow("six", "p1", "p2", 1518, "{ipv6: {flow_label: 7}}", "ttl: 63"),
        flow("six-back", "p2", "p1", 90, "ipv6", "ttl: 63"),
        // The router must not forward these frames, and the kernel drops them.
        flow("ends", "p1", "p2", 128, "{ipv4: {ttl: 1}}", "ttl: 0"),
        flow("ends-six", "p2", "p1", 128, "{ipv6: {hop_limit: 1}}", "ttl: 0"),
    ];
    format!(
        "suite: kinds\nprofile: quick\nrounds: 1\nduts: [{{name: box, kind: {kind}}}]\n\
         ports:\n  - {{name: p1, speed: 100 Mbit/s}}\n  - {{name: p2, speed: 100 Mbit/s}}\nflows:\n{}\
         tests: [{{fixed_rate: {{trial_duration: 600 ms, drain: 500 ms, pause: 1 ms}}}}]\n",
        flows.concat()
    )
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn forwards(lab: &mut Lab, kind: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let memory = run_in_lab(lab, &suite(kind), folder.path())?;
    let status =
        || format!("{kind}: {:?}", memory.tests().iter().map(|t| (&t.status, &t.outcome.notes)).collect::<Vec<_>>());
    let trials = memory.trials();
    let trial = trials.iter().find(|trial| trial.result.groups.iter().any(|g| g.group == "four")).ok_or_else(status)?;
    let counts = |group: &str| -> Result<&GroupCounts, String> {
        trial.result.groups.iter().find(|g| g.group == group).ok_or_else(|| format!("{kind}: no flow {group}"))
    };
    for name in ["four", "four-back", "six", "six-back"] {
        let flow = counts(name)?;
        let right = flow.offered == FRAMES && flow.received == FRAMES && flow.duplicated + flow.reordered == 0;
        ensure(right && flow.corrupted + flow.stray == 0 && flow.deviations.is_empty(), || {
            format!("{kind}: {flow:?}")
        })?;
    }
    for name in ["ends", "ends-six"] {
        let flow = counts(name)?;
        let dropped = flow.received == 0 && flow.deviations.is_empty() && flow.stray == 0;
        ensure(dropped && flow.offered == FRAMES, || format!("{kind} forwards what must end: {flow:?}"))?;
    }
    println!("    {kind}: {:?}", trial.result.dut_counters);
    counted(kind, trial)
}

/// Checks in the router's counters whether the fast path or the kernel forwarded the frames.
fn counted(kind: &str, trial: &TrialRecord) -> Result<(), String> {
    let counter = |name: &str| trial.result.dut_counters.get(name).copied().unwrap_or_default();
    let expected = match kind {
        "xdp" => vec![
            ("xdp.d0.forwarded_ipv4", FRAMES),
            ("xdp.d1.forwarded_ipv4", FRAMES),
            ("xdp.d0.forwarded_ipv6", FRAMES),
            ("xdp.d1.forwarded_ipv6", FRAMES),
            ("xdp.d0.passed_ttl", FRAMES),
            ("xdp.d1.passed_ttl", FRAMES),
        ],
        _ => vec![("ovs.d0.socket_dropped", 0), ("ovs.lookups_lost", 0)],
    };
    for (name, frames) in expected {
        ensure(counter(name) == frames, || format!("{kind}: {name} is {} and not {frames}", counter(name)))?;
    }
    // The kernel received the packets whose TTL ends, and forwarded none of the others.
    ensure(counter("ip.InHdrErrors") >= FRAMES, || format!("{kind}: {:?}", trial.result.dut_counters))?;
    let slow = counter("slow_path.ip.ForwDatagrams");
    ensure(slow <= FRAMES, || format!("{kind}: the kernel forwarded {slow} packets"))?;
    let in_all: u64 = ["d0.rx_packets", "d1.rx_packets"].map(counter).iter().sum();
    ensure((6 * FRAMES..6 * FRAMES + 50).contains(&in_all), || format!("{kind}: {in_all} frames received"))
}

/// A fast path that is ended or killed comes back and answers. The flows that the lab installed in a switch would be
/// lost, so that kind cannot be reset.
fn comes_back(lab: &mut Lab, kind: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let suite = read_suite(&suite(kind));
    let up = real::bring_up(lab, &suite.duts[0], &suite, folder.path(), &|| false);
    let mut dut = up.map_err(|e| e.to_string())?;
    if kind == "ovs" {
        ensure(dut.resets().is_none(), || "a switch without its flows is not a router".into())?;
        return dut.take_down().map_err(|e| e.to_string());
    }
    for how in [ResetKind::Software, ResetKind::Process] {
        let resets = dut.resets().ok_or("the fast path can be reset")?;
        resets.begin(how, Instant(0), Duration::ZERO).map_err(|e| e.to_string())?;
        // Counters that start at 0 again would seem to go backwards, and nothing answers until the process is back.
        let during = dut.counters().map_err(|e| format!("{how:?}: {e}"))?;
        let known = |prefix: &str| during.keys().any(|name| name.starts_with(prefix));
        ensure(known("slow_path.") && !known("xdp."), || format!("{how:?}: {during:?}"))?;
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        let done = loop {
            if let Some(done) = dut.resets().and_then(|resets| resets.done(Instant(0))) {
                break done;
            }
            ensure(std::time::Instant::now() < deadline, || "the reset does not end".into())?;
            std::thread::yield_now();
        };
        // The reset is over when the fast path answers.
        let counters = dut.counters().map_err(|e| e.to_string())?;
        ensure(done.problem.is_none() && counters.contains_key("xdp.d0.forwarded_ipv4"), || {
            format!("{how:?}: {done:?}")
        })?;
        dut.check().map_err(|e| e.to_string())?;
    }
    dut.take_down().map_err(|e| e.to_string())
}

/// A case for each kind of router that forwards outside the kernel's network stack.
pub fn cases() -> Vec<Case> {
    // Only root can load the XDP program.
    let root = nix::unistd::geteuid().is_root();
    let case = |kind: &'static str| {
        let right = move |lab: &mut Lab| forwards(lab, kind).and_then(|()| comes_back(lab, kind));
        Case::in_lab(format!("{kind} forwards each frame right"), right).again()
    };
    vec![case("xdp").unless((!root).then_some("it needs root")), case("ovs")]
}
