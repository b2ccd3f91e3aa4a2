//! Performance of `live_frames` on one veth pair: frames per second that the kernel generates on one processor (without a
//! reader); departure errors at several rates, on a separate processor and on the packet loop's own, compared with a loop
//! that only reads the clock; and frames received when one processor generates and receives.
//!
//! `cargo bench -p drophammer-port --bench live_frames` (as root); `-- capacity`, `-- pacing` or `-- both` for a part.

#[path = "../../tests/trial/mod.rs"]
mod trial;

use drophammer_lab::{Lab, LabOptions};
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialResult, TrialSpec};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::discard::Discard;
use drophammer_port::live_frames::LiveFrames;
use drophammer_port::priority::HighPriority;
use drophammer_port::{Clock, Port, SystemClock};
use drophammer_wire::MacAddr;
use std::process::Command;
use trial::{Nobody, plan};

const ROUNDS: usize = 5;
const TRIALS: usize = 21;

fn spec(load: Load, seconds: f64, flows: usize, destinations: u32, size: &str) -> TrialSpec {
    let range = |first: [u8; 4], count| AddressRange { first: first.into(), step: 1, count };
    let flow = FlowSpec::new("all", 0, 1, range([10, 200, 0, 2], 1), range([10, 0, 0, 0], destinations));
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
    let plan = plan(spec, [0, 1].map(MacAddr::local), 1, 20_000_000).expect("a plan");
    let _priority = HighPriority::new();
    drophammer_traffic::run(plan, ports, &mut { clock }, &mut Nobody(None)).expect("a trial")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor time of the thread that makes the kernel's calls, in ns.
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

/// Departure errors at several rates, compared with a loop that only checks whether a frame is due.
fn pacing(lab: &Lab, clock: SystemClock, other: Option<usize>) {
    let _far = Discard::attach("t1").unwrap_or_else(|e| panic!("{e}"));
    println!(
        "departure errors, ns, median of {TRIALS} x 0.2 s, the other end drops frames immediately: p50, p99, maximum (for \
         frames: upper ends of powers of two); share unsent"
    );
    let print = |rate_pps: f64, who: &str, late: &[[u64; 3]], unsent: f64| {
        let of = |i: usize| median(late.iter().map(|l| l[i] as f64).collect());
        println!("  {rate_pps:>9.0} {who:<30}: {:>9} {:>9} {:>9}  {unsent:.4}", of(0), of(1), of(2));
    };
    for rate_pps in [10e3, 100e3, 1e6, 2e6, 3e6] {
        for (place, processor) in [("frames, its own processor", other), ("frames, the packet loop's", None)] {
            let mut ports = [live(clock, processor), packets("lo", clock)];
            let spec = spec(Load::Constant { rate_pps }, 0.2, 1, 1_000_000, "64");
            let results: Vec<_> = (0..TRIALS).map(|_| run(&spec, &mut ports, clock)).collect();
            let late = |r: &TrialResult| {
                let error = &r.health.departure_error;
                [50.0, 99.0, 100.0].map(|p| error.iter().find(|e| e.0 == p).map_or(0, |e| e.1))
            };
            let unsent = |r: &TrialResult| r.health.unsent as f64 / r.intended() as f64;
            let late: Vec<_> = results.iter().map(late).collect();
            print(rate_pps, place, &late, median(results.iter().map(unsent).collect()));
        }
        // The same number of processor turns without any work: the lower bound for any sender.
        let late = std::thread::scope(|scope| {
            let looks = || {
                if let Some(processor) = other {
                    lab.pin_current_thread(processor).unwrap_or_else(|e| panic!("{e}"));
                }
                let _priority = HighPriority::new();
                (0..TRIALS).map(|_| clock_only(clock, rate_pps)).collect::<Vec<_>>()
            };
            scope.spawn(looks).join().expect("a loop that ends")
        });
        print(rate_pps, "only a clock, its own processor", &late, 0.0);
    }
}

/// Lateness, in ns, of a loop that takes all frames due at `rate_pps` whenever it reads the clock: p50, p99, largest.
fn clock_only(clock: SystemClock, rate_pps: f64) -> [u64; 3] {
    let interval = 1e9 / rate_pps;
    // Not zero, so that the memory is allocated before the loop begins.
    let mut late = vec![1; (0.2 * rate_pps) as usize];
    let start = clock.now().0 + 1_000_000;
    let mut done = 0;
    while done < late.len() {
        let now = clock.now().0;
        while done < late.len() {
            let due = start + (done as f64 * interval) as u64;
            if now < due {
                break;
            }
            late[done] = now - due;
            done += 1;
        }
    }
    late.sort_unstable();
    [late[late.len() / 2], late[late.len() * 99 / 100], late[late.len() - 1]]
}

/// Frames per second that the kernel generates, without a reader.
fn capacity(clock: SystemClock, other: Option<usize>) {
    println!(
        "generated on processor {}, without a reader, median of {ROUNDS} x 1 s: frames per second, frames per second of \
         processor time; the other end's receive work on",
        other.map_or("of the packet loop".into(), |cpu| cpu.to_string())
    );
    let maximum = || Load::Maximum { limit_pps: 100e6 };
    let cases =
        [("64", 1, 1), ("64", 1, 1_000_000), ("64", 10_000, 1_000_000), ("512", 1, 1_000_000), ("1518", 1, 1_000_000)];
    let ends = [
        ("0", false, "the same processor"),
        ("1", false, "its own thread"),
        ("0", true, "the same processor, which drops frames immediately (XDP)"),
    ];
    for (threaded, discards, place) in ends {
        std::fs::write("/sys/class/net/t1/threaded", threaded).unwrap_or_else(|e| panic!("{e}"));
        let _far = discards.then(|| Discard::attach("t1").unwrap_or_else(|e| panic!("{e}")));
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
    std::fs::write("/sys/class/net/t1/threaded", "0").unwrap_or_else(|e| panic!("{e}"));
}

/// One processor generates and receives.
fn made_and_received(clock: SystemClock) {
    println!(
        "generated and received on one processor, 64 bytes, 1 s: intended, offered, received, lateness p99, longest gap"
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

fn main() {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
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
    if wanted("capacity") {
        capacity(clock, other);
    }
    if wanted("pacing") {
        pacing(&lab, clock, other);
    }
    if wanted("both") {
        made_and_received(clock);
    }
}
