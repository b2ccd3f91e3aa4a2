//! How the cost of a trial grows with ports, flows and hosts, in virtual time on the reference device: processor time for a bed, for the
//! setup of a trial and for each frame, and the most memory. For hosts, what their reports cost: their size, and the time to read and merge
//! them.
//!
//! `cargo bench -p drophammer-testbed --bench scale [-- TABLE... [ROW...]]`, with the tables `ports`, `flows`, `flows-apart` and `hosts`. Each row runs in a process of its own, so that memory
//! belongs to this row alone. It needs no privilege.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{read_suite, with_bed};
use drophammer_methods::Testbed;
use drophammer_model::FrameRate;
use drophammer_model::trial::{AddressRange, Family, FlowDuration, FlowSchedule, FlowSpec, Load, TrialSpec};
use drophammer_testbed::setup::TestSetup;
use drophammer_traffic::schedule::Schedule;
use drophammer_traffic::{
    Arrived, FlowReport, GroupReport, GroupSentReport, LaneReport, LossRuns, PortArrivals, SenderReport, Trial, merge,
};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

/// Ports of each row; a suite has 64 at most.
const PORTS: [usize; 6] = [2, 4, 8, 16, 32, 64];
/// Flows of each row between four ports; a suite lists 4,096 at most, and `lsp_capacity` sends 16,384.
const FLOWS: [usize; 5] = [10, 100, 1_000, 4_096, 16_384];
/// Hosts of each row.
const HOSTS: [usize; 3] = [10, 100, 1_000];
/// Frames of a long trial.
const FRAMES: usize = 1_000_000;
/// Times that each trial is run.
const ROUNDS: usize = 3;

/// Seconds that a processor has worked for this thread.
fn worked_s() -> f64 {
    // The scheduler updates the figure when the thread yields.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// The least time of some rounds, in s.
fn least_s(mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let begun = worked_s();
        work();
        worked_s() - begun
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// The most memory that this process had, in MiB.
fn most_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
}

/// The tables: name, heading, rows, and what measures a row.
type Table = (&'static str, &'static str, Vec<String>, fn(&str));

fn tables() -> [Table; 4] {
    let all = |counts: &[usize]| counts.iter().map(usize::to_string).collect::<Vec<_>>();
    const PORTS_HEADING: &str =
        "ports, fully meshed | flows | bed, ms | setup of a trial, ms | ns per frame | memory, MiB";
    const FLOWS_HEADING: &str =
        "flows of four ports | groups | bed, ms | setup of a trial, ms | ns per frame | memory, MiB";
    const HOSTS_HEADING: &str = "hosts with two lanes | flows | trial, KiB | report of a lane, KiB | reports, MiB | read, ms | merged, ms | memory, MiB";
    [
        ("ports", PORTS_HEADING, all(&PORTS), |ports| meshed(ports.parse().unwrap())),
        ("flows", FLOWS_HEADING, all(&FLOWS), |flows| of_four_ports(flows.parse().unwrap(), false)),
        ("flows-apart", FLOWS_HEADING, all(&FLOWS), |flows| of_four_ports(flows.parse().unwrap(), true)),
        ("hosts", HOSTS_HEADING, all(&HOSTS), |hosts| reports(hosts.parse().unwrap())),
    ]
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--bench")).collect();
    if words.iter().any(|word| word == "--test" || word == "--list") {
        return;
    }
    let named = |name: &str| words.iter().any(|word| word == name);
    let tables = tables();
    if let [here, name, row] = &words[..]
        && here == "here"
    {
        let (.., measure) = tables.iter().find(|(known, ..)| known == name).unwrap();
        return measure(row);
    }
    let any = tables.iter().any(|(name, ..)| named(name));
    for (name, heading, rows, _) in tables.iter().filter(|(name, ..)| !any || named(name)) {
        println!("\n{name}\n| {heading} |");
        for row in rows.iter().filter(|row| !words.iter().any(|word| word.parse::<usize>().is_ok()) || named(row)) {
            let ended = Command::new(std::env::current_exe().unwrap()).args(["here", name, row]).status();
            if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
                eprintln!("{name} {row} failed: {ended:?}");
                std::process::exit(1);
            }
        }
    }
}

fn suite(ports: usize) -> String {
    let port = |n: usize| format!("  - {{name: p{n}, speed: 10 Gbit/s, ipv6: off}}\n");
    let ports: String = (1..=ports).map(port).collect();
    format!("suite: scale\nduts: [{{name: known, kind: reference}}]\nports:\n{ports}tests: [throughput]\n")
}

fn flow(bed: &TestSetup<'_>, group: String, from: usize, to: usize) -> FlowSpec {
    let range = |port: usize| bed.ports()[port].addressing(Family::Ipv4).unwrap().destinations;
    FlowSpec::new(group, from, to, range(from), range(to))
}

/// Runs a short and a long trial, and prints what they cost: a `trial` has so many frames, and each flow has at least one.
fn row(count: usize, other: usize, bed_s: f64, bed: &mut TestSetup<'_>, trial: impl Fn(usize) -> TrialSpec) {
    let mut run = |spec: &TrialSpec| {
        let result = bed.trial(spec).unwrap();
        assert_eq!((result.lost(), result.health.unsent), (0, 0));
        result.offered()
    };
    let [(few, setup_s), (many, long_s)] = [0, FRAMES].map(|frames| {
        let spec = trial(frames);
        let mut sent = 0;
        let took_s = least_s(|| sent = run(&spec));
        (sent, took_s)
    });
    let per_frame_s = (long_s - setup_s) / (many - few) as f64;
    println!(
        "| {count} | {other} | {:.1} | {:.1} | {:.0} | {:.0} |",
        bed_s * 1e3,
        (setup_s - per_frame_s * few as f64) * 1e3,
        per_frame_s * 1e9,
        most_mib()
    );
}

/// Load of a port in frames per second.
const RATE_PPS: f64 = 100_000.0;

fn spec(flows: Vec<FlowSpec>, load: Load, duration_s: f64) -> TrialSpec {
    let (purpose, size) = ("scale".into(), "64".parse().unwrap());
    TrialSpec { purpose, size, flows, load, duration_s, bin_s: None, drain_s: 0.01, events: vec![] }
}

/// A flow from each port to each other one.
fn meshed(ports: usize) {
    let (suite, begun) = (read_suite(&suite(ports)), worked_s());
    with_bed(
        &suite,
        &[Family::Ipv4],
        |_| {},
        |bed, _| {
            let bed_s = worked_s() - begun;
            let ways = (0..ports).flat_map(|from| (1..ports).map(move |step| (from, (from + step) % ports)));
            let flows: Vec<FlowSpec> = ways.map(|(from, to)| flow(bed, "all".into(), from, to)).collect();
            let (count, load) = (flows.len(), Load::Constant { rate_pps: RATE_PPS });
            row(ports, count, bed_s, bed, |frames| {
                let duration_s = frames.max(count) as f64 / ports as f64 / RATE_PPS;
                spec(flows.clone(), load.clone(), duration_s)
            });
        },
    );
}

/// Flows between four ports: all with the load of their port and in one group, or each `apart`, with a group and a rate of its own, as the
/// flows of a suite.
fn of_four_ports(count: usize, apart: bool) {
    const DURATION_S: f64 = 1.0;
    let (suite, begun) = (read_suite(&suite(4)), worked_s());
    with_bed(
        &suite,
        &[Family::Ipv4],
        |_| {},
        |bed, _| {
            let bed_s = worked_s() - begun;
            let name = |i: usize| if apart { format!("flow {i}") } else { "all".into() };
            let flows: Vec<_> = (0..count).map(|i| flow(bed, name(i), i % 4, (i % 4 + 1 + i / 4 % 3) % 4)).collect();
            row(count, if apart { count } else { 1 }, bed_s, bed, |frames| {
                let of_all_pps = frames.max(count) as f64 / DURATION_S;
                if !apart {
                    return spec(flows.clone(), Load::Constant { rate_pps: of_all_pps / 4.0 }, DURATION_S);
                }
                let rate_pps = of_all_pps / count as f64;
                let schedule = FlowSchedule { rate_pps, delay_s: 0.0, duration: FlowDuration::Continuous };
                let with_rate = |flow: &FlowSpec| FlowSpec { schedule: Some(schedule), ..flow.clone() };
                spec(flows.iter().map(with_rate).collect(), Load::Flows, DURATION_S)
            });
        },
    );
}

/// Ports to which each port sends in the trial of [`reports`].
const WAYS: usize = 10;
/// Frames of each flow there.
const OF_FLOW: u64 = 10_000;

/// Reads and merges the reports of `hosts` hosts, each with one port of two queues on two lanes. Each port sends ten flows to ten others, and
/// frames of each flow arrive at both lanes of its port, every other one at each.
fn reports(hosts: usize) {
    let ways = WAYS.min(hosts - 1);
    let all: Vec<Vec<u8>> =
        (0..2 * hosts).map(|lane| serde_json::to_vec(&report(lane, hosts, ways)).unwrap()).collect();
    let bytes: usize = all.iter().map(Vec::len).sum();
    let mut read: Vec<LaneReport> = Vec::new();
    let read_s = least_s(|| {
        read.clear();
        read.extend(all.iter().map(|bytes| serde_json::from_slice::<LaneReport>(bytes).unwrap()));
    });
    let flows = (hosts * ways) as u64;
    let merged_s = least_s(|| {
        let result = merge(&read);
        assert_eq!((result.offered(), result.lost()), (flows * OF_FLOW, 0));
        assert_eq!((result.health.copies_apart, result.senders as usize), (0, hosts));
    });
    println!(
        "| {hosts} | {flows} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} |",
        trial_bytes(hosts, ways) as f64 / 1024.0,
        bytes as f64 / (2 * hosts) as f64 / 1024.0,
        bytes as f64 / f64::from(1 << 20),
        read_s * 1e3,
        merged_s * 1e3,
        most_mib()
    );
}

/// Bytes of the trial of [`reports`], which each host gets.
fn trial_bytes(hosts: usize, ways: usize) -> usize {
    let range = |port: usize| AddressRange {
        first: IpAddr::from((0xc612_0000 + ((port as u32) << 8)).to_be_bytes()),
        step: 1,
        count: 256,
    };
    let ways = (0..hosts).flat_map(|from| (1..=ways).map(move |step| (from, (from + step) % hosts)));
    let flows = ways.map(|(from, to)| FlowSpec::new("all", from, to, range(from), range(to)));
    let rate_pps = RATE_PPS;
    serde_json::to_vec(&spec(flows.collect(), Load::Constant { rate_pps }, 1.0)).unwrap().len()
}

/// The report of a lane of [`reports`]: even lanes send and receive the even frames.
fn report(lane: usize, hosts: usize, ways: usize) -> LaneReport {
    let (port, half) = (lane / 2, lane % 2);
    let sent: Vec<u32> = (0..ways).filter(|way| way % 2 == half).map(|way| (port * ways + way) as u32).collect();
    let second = Duration::from_secs(1);
    let sender = SenderReport {
        port,
        schedule: Schedule::steps(&[(second, FrameRate((sent.len() as u64 * OF_FLOW) as f64))]),
        round: sent.clone(),
        skips: Vec::new(),
        flows: sent.iter().map(|flow| (*flow, OF_FLOW)).collect(),
        refused: Vec::new(),
        own_refusals: Vec::new(),
        stretches: Vec::new(),
        stopped: Vec::new(),
        groups: vec![GroupSentReport {
            intended: sent.len() as u64 * OF_FLOW,
            offered: sent.len() as u64 * OF_FLOW,
            ..GroupSentReport::default()
        }],
        unsent: 0,
        sending_ns: 1_000_000_000,
        lateness: vec![1; 40],
        in_kernel: false,
    };
    // Flow `way` of a port leads to the port that is so many places further.
    let from = |way: usize| (port + hosts - 1 - way) % hosts;
    let bits = if half == 0 { 0x5555_5555_5555_5555 } else { 0xaaaa_aaaa_aaaa_aaaa };
    // The last word has the frames from 9,984 to 9,999.
    let words = (0..OF_FLOW.div_ceil(64)).map(|word| bits & u64::MAX >> (64 - (OF_FLOW - 64 * word).min(64)));
    let words: Vec<u64> = words.collect();
    let flow = |way: usize| FlowReport {
        flow: from(way) * ways + way,
        group: 0,
        to: port,
        received: OF_FLOW / 2,
        duplicated: 0,
        reordered: 0,
        reordered_3: 0,
        in_sequence: OF_FLOW / 2,
        max_extent: 0,
        next_expected: OF_FLOW - 1 + half as u64,
        missing: Vec::new(),
        losses: LossRuns::default(),
        tells_all: true,
        spread: true,
        arrived: Some(Arrived { from: 0, bits: words.clone() }),
        deviating: None,
        elsewhere: 0,
        has_alternate: false,
        by_place: None,
    };
    let received = ways as u64 * OF_FLOW / 2;
    let mut arrivals = vec![PortArrivals::default(); hosts];
    arrivals[port] = PortArrivals { frames: received, first_ns: 1, last_ns: 1_000_000_000 };
    LaneReport {
        trial: Trial {
            groups: vec!["all".into()],
            background: Vec::new(),
            ports: hosts,
            maximum: false,
            events: Vec::new(),
            destinations: Vec::new(),
        },
        senders: vec![sender],
        groups: vec![GroupReport {
            stray: 0,
            corrupted: 0,
            deviations: vec![0; drophammer_model::traffic::Deviation::ALL.len()],
            deviating_copies: 0,
            late: 0,
            bytes: received * 64,
            bins: Vec::new(),
            elsewhere: vec![0; hosts],
            // A latency of 10 to 14 us with a resolution of 8 ns.
            latencies: (0..500).map(|step| (10_000 + 8 * step, received / 500)).collect(),
            latency_sum_ns: u128::from(received) * 12_000,
            latency_min_ns: 10_000,
            early_ns: 0,
            latency_max_ns: 14_000,
            ipdv: None,
        }],
        flows: (0..ways).map(flow).collect(),
        misdelivered: Vec::new(),
        misdelivered_elsewhere: 0,
        arrivals,
        stale: 0,
        other: 0,
        receive_drops: 0,
        max_gap_ns: 1_000,
        long_gaps_ns: 0,
        longest_gaps: Vec::new(),
        silences: None,
        clock_step_ns: 0,
        events: Vec::new(),
    }
}
