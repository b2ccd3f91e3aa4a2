//! A trial on two threads over two veth pairs, each with one end on either thread, counts every frame.

#[path = "../../lab/tests/anew/mod.rs"]
mod anew;

use anew::Case;
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load, TrialSpec};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::{Arrival, Port, PortError, SystemClock};
use drophammer_traffic::{Control, Layout, Neighbour, Plan, SendFrame, Timing, run_lanes};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::TrialKey;
use std::process::ExitCode;

/// No hosts behind these ports.
struct Nobody;

impl Control for Nobody {
    fn receive(&mut self, _: usize, _: Arrival<'_>) -> Result<(), PortError> {
        Ok(())
    }
    fn poll(&mut self, now: Instant, _: &mut SendFrame<'_>) -> Result<Instant, PortError> {
        Ok(Instant(now.0 + 1_000_000_000))
    }
    fn stop(&self) -> bool {
        false
    }
}

const RATE: f64 = 5_000.0;
const SECONDS: f64 = 0.5;

fn spec() -> TrialSpec {
    let flow = |from: usize, to: usize, family| {
        let first = if family == Family::Ipv4 { "198.18.0.1" } else { "2001:2::1" };
        let range = AddressRange { first: first.parse().unwrap(), step: 1, count: 64 };
        let group = format!("{from} to {to}, {family}");
        FlowSpec::new(group, from, to, range, range)
    };
    let pairs = [(0, 1), (1, 0), (2, 3), (3, 2)];
    TrialSpec {
        purpose: "test".into(),
        size: "128".parse().unwrap(),
        flows: pairs.into_iter().flat_map(|(a, b)| [flow(a, b, Family::Ipv4), flow(a, b, Family::Ipv6)]).collect(),
        load: Load::Constant { rate_pps: RATE },
        duration_s: SECONDS,
        bin_s: Some(1.0),
        drain_s: 2.0,
        events: vec![],
    }
}

/// Runs a trial. Returns the number of frames that the links refused: their queues are short, and a busy machine may not empty them.
fn trial(layout: Layout, number: u64) -> Result<u64, String> {
    let clock = SystemClock::start();
    let open = |i| AfPacket::open(&format!("t{i}"), clock).map(|port| Box::new(port) as Box<dyn Port + Send>);
    let mut ports = (0..4).map(open).collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    // No interface has these addresses, so the kernel's own stack drops the frames.
    let neighbour = |i: u64| {
        let device = Some(MacAddr::local(10 + (i ^ 1)));
        Neighbour { mac: MacAddr::local(10 + i), device_ipv4: device, device_ipv6: device, vlans: Vec::new() }
    };
    // On a busy machine, send late frames late rather than skip them.
    let timing = Timing {
        seed: 1,
        key: TrialKey::new(9, number),
        earlier: vec![],
        max_backlog_ns: 60_000_000_000,
        late_ns: 1_000_000_000,
    };
    let plan =
        Plan::on_lanes(&spec(), &[0, 1, 2, 3].map(neighbour), &timing, layout.clone()).map_err(|e| e.to_string())?;
    let mut others: Vec<Nobody> = (1..layout.lanes()).map(|_| Nobody).collect();
    let result = run_lanes(plan, &mut ports, clock, &[], &mut Nobody, &mut others).map_err(|e| e.to_string())?;
    let per_group = (RATE * SECONDS / 2.0) as u64;
    for g in &result.groups {
        let arrived = per_group - g.refused.min(per_group);
        let found = (g.intended, g.offered, g.lost, g.received, g.latency.frames, g.received_bytes);
        let wanted = (per_group, per_group, g.refused, arrived, arrived, arrived * 128);
        let in_order = g.refused > 0 || g.in_sequence == per_group;
        if found != wanted || !in_order || g.duplicated + g.reordered + g.corrupted + g.stray > 0 {
            return Err(format!("{layout:?}: {g:#?}"));
        }
    }
    let health = &result.health;
    if result.groups.len() != 8 || result.senders != 4 || health.unsent + health.receive_drops + health.stale > 0 {
        return Err(format!("{layout:?}: {health:?}"));
    }
    Ok(result.sum(|g| g.refused))
}

/// Runs trials until the links refuse no frame.
fn whole(layout: &Layout, numbers: std::ops::Range<u64>) -> Result<(), String> {
    for number in numbers.clone() {
        match trial(layout.clone(), number)? {
            0 => return Ok(()),
            refused => println!("trial {number} of {numbers:?}: the links refused {refused} frames"),
        }
    }
    Err(format!("{layout:?}: no trial was whole"))
}

fn checked() -> Result<(), String> {
    let lab = Lab::enter(&LabOptions::default()).map_err(|e| e.to_string())?;
    let up = |name: &str| format!("link set {name} arp off multicast off addrgenmode none up");
    let link = |a: &str, b: &str| [format!("link add {a} type veth peer name {b}"), up(a), up(b)];
    let lines = [link("t0", "t1"), link("t2", "t3")].concat();
    lab.tester().and_then(|t| t.ip(&lines)).map_err(|e| e.to_string())?;
    whole(&Layout::one(4), 1..11)?;
    whole(&Layout::round_robin(4, 2), 11..21)
}

fn main() -> ExitCode {
    anew::run(vec![Case::alone("two_threads_count_every_frame", checked)])
}
