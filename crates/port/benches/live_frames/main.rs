//! What `live_frames` can do on one veth pair: frames per second that the kernel makes on one processor (nobody reads them),
//! how late they leave at several rates, on a processor of their own and on that of the packet loop, and what arrives when
//! one processor makes and receives.
//!
//! `cargo bench -p drophammer-port --bench live_frames` (as root).

use drophammer_lab::{Lab, LabOptions};
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load, TrialResult, TrialSpec};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::live_frames::LiveFrames;
use drophammer_port::priority::Favoured;
use drophammer_port::{Arrival, Port, PortError, SystemClock};
use drophammer_traffic::{Control, Neighbour, Plan, Timing};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::TrialKey;
use std::process::Command;

const ROUNDS: usize = 5;
const TRIALS: usize = 21;

struct Nobody;

impl Control for Nobody {
    fn receive(&mut self, _: usize, _: Arrival<'_>) -> Result<(), PortError> {
        Ok(())
    }
    fn poll(&mut self, now: Instant, _: &mut drophammer_traffic::SendFrame<'_>) -> Result<Instant, PortError> {
        Ok(Instant(now.0 + 1_000_000_000))
    }
    fn stop(&self) -> bool {
        false
    }
}

fn spec(load: Load, seconds: f64, flows: usize, destinations: u32, size: &str) -> TrialSpec {
    let range = |first: [u8; 4], count| AddressRange { first: first.into(), step: 1, count };
    let flow = FlowSpec {
        group: "all".into(),
        from: 0,
        to: 1,
        also: vec![],
        family: Family::Ipv4,
        sources: range([10, 200, 0, 2], 1),
        destinations: range([10, 0, 0, 0], destinations).into(),
        per_destination: false,
        weight: 1.0,
    };
    TrialSpec {
        purpose: "bench".into(),
        size: size.parse().expect("a size"),
        flows: vec![flow; flows],
        load,
        duration_s: seconds,
        bin_s: None,
        drain_s: 0.0,
        events: vec![],
    }
}

fn run(spec: &TrialSpec, ports: &mut [Box<dyn Port>], clock: SystemClock) -> TrialResult {
    let mac = MacAddr::local;
    let neighbours = [0, 1].map(|i| Neighbour { mac: mac(i), device_ipv4: Some(mac(1 - i)), device_ipv6: None });
    let timing = Timing {
        seed: 1,
        key: TrialKey::new(7, 1),
        earlier: vec![],
        max_backlog_ns: 20_000_000,
        late_ns: 1_000_000_000,
    };
    let plan = Plan::new(spec, &neighbours, &timing).expect("a plan");
    let _favoured = Favoured::new();
    drophammer_traffic::run(plan, ports, &mut { clock }, &mut Nobody).expect("a trial")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor time of the thread that lends the kernel its time, in ns.
fn processor_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        (name.trim() == "live-frames").then(|| times.split(' ').next()?.parse::<u64>().ok())?
    };
    tasks.filter_map(read).sum()
}

fn live(clock: SystemClock, processor: Option<usize>) -> Box<dyn Port> {
    let mut port = LiveFrames::open("t0", clock).unwrap_or_else(|e| panic!("{e}"));
    port.kernel_generator().expect("this backend has one").place(processor, 0.0);
    Box::new(port)
}

fn packets(interface: &str, clock: SystemClock) -> Box<dyn Port> {
    Box::new(AfPacket::open(interface, clock).unwrap_or_else(|e| panic!("{e}")))
}

fn main() {
    let lab = Lab::enter(&LabOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let cpus = lab.cpus();
    lab.pin_current_thread(cpus.tester).unwrap_or_else(|e| panic!("{e}"));
    let lines = [
        "link add t0 type veth peer name t1".into(),
        "link set t0 arp off multicast off addrgenmode none up".into(),
        "link set t1 arp off multicast off addrgenmode none up".into(),
        "link set lo up".into(),
    ];
    lab.tester().and_then(|t| t.ip(&lines)).unwrap_or_else(|e| panic!("{e}"));
    for interface in ["t0", "t1"] {
        let status = Command::new("ethtool").args(["-K", interface, "gro", "on"]).status();
        assert!(status.is_ok_and(|s| s.success()), "ethtool");
    }
    let clock = SystemClock::start();
    let other = cpus.separate().then_some(cpus.dut);

    println!(
        "made on processor {}, read by nobody, median of {ROUNDS} x 1 s: frames per second, frames per second of \
         processor time; the other end's receive work on",
        cpus.dut
    );
    let maximum = || Load::Maximum { limit_pps: 100e6 };
    let cases =
        [("64", 1, 1), ("64", 1, 1_000_000), ("64", 10_000, 1_000_000), ("512", 1, 1_000_000), ("1518", 1, 1_000_000)];
    for (threaded, place) in [("0", "the same processor"), ("1", "a thread of its own")] {
        std::fs::write("/sys/class/net/t1/threaded", threaded).unwrap_or_else(|e| panic!("{e}"));
        for (size, flows, destinations) in cases {
            let mut ports = [live(clock, other), packets("lo", clock)];
            let spec = spec(maximum(), 1.0, flows, destinations, size);
            let rates: Vec<_> = (0..ROUNDS)
                .map(|_| {
                    let before = processor_ns();
                    let result = run(&spec, &mut ports, clock);
                    let offered = result.offered() as f64;
                    (offered / result.sending_s, offered * 1e9 / (processor_ns() - before) as f64)
                })
                .collect();
            println!(
                "  {size:>4} bytes, {flows:>6} flows, {destinations:>9} destinations: {:>10.0} {:>10.0}  {place}",
                median(rates.iter().map(|r| r.0).collect()),
                median(rates.iter().map(|r| r.1).collect())
            );
        }
    }
    println!(
        "how late frames leave, upper ends of powers of two, ns, median of {TRIALS} x 0.2 s, the other end as in the last \
         lines: p50, p99, largest; share unsent"
    );
    for rate_pps in [10e3, 100e3, 1e6, 2e6, 3e6] {
        for (place, processor) in [("its own processor", other), ("the packet loop's", None)] {
            let mut ports = [live(clock, processor), packets("lo", clock)];
            let spec = spec(Load::Constant { rate_pps }, 0.2, 1, 1_000_000, "64");
            let results: Vec<_> = (0..TRIALS).map(|_| run(&spec, &mut ports, clock)).collect();
            let late = |percentile: f64| {
                let of = |r: &TrialResult| r.health.departure_error.iter().find(|(p, _)| *p == percentile).map(|e| e.1);
                median(results.iter().map(|r| of(r).unwrap_or(0) as f64).collect())
            };
            let unsent = |r: &TrialResult| r.health.unsent as f64 / r.intended() as f64;
            println!(
                "  {rate_pps:>9.0} on {place:<17}: {:>9} {:>9} {:>9}  {:.4}",
                late(50.0),
                late(99.0),
                late(100.0),
                median(results.iter().map(unsent).collect())
            );
        }
    }
    std::fs::write("/sys/class/net/t1/threaded", "0").unwrap_or_else(|e| panic!("{e}"));

    println!(
        "made and received on one processor, 64 bytes, 1 s: intended, offered, received, lateness p99, longest gap"
    );
    for rate_pps in [100e3, 200e3, 400e3, 600e3] {
        for live_frames in [true, false] {
            let sender = if live_frames { live(clock, None) } else { packets("t0", clock) };
            let mut ports = [sender, packets("t1", clock)];
            let result = run(&spec(Load::Constant { rate_pps }, 1.0, 1, 1_000_000, "64"), &mut ports, clock);
            println!(
                "  {rate_pps:>9.0} {:<11}: {:>9} {:>9} {:>9} {:>10} {:>10}",
                if live_frames { "live_frames" } else { "af_packet" },
                result.intended(),
                result.offered(),
                result.received(),
                result.health.departure_error.get(1).map_or(0, |(_, ns)| *ns),
                result.health.max_gap_ns
            );
        }
    }
}
