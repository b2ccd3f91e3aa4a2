//! Frames generated in the kernel, over a veth pair: every one arrives once, in order and intact, equals the frame that
//! user space would have sent, and is counted exactly; nothing is left behind.
//! It needs root and is left out otherwise.

#[path = "../../../lab/tests/anew/mod.rs"]
mod anew;
mod leftovers;
#[path = "../trial/mod.rs"]
mod trial;
#[path = "../../../wire/tests/tshark/mod.rs"]
mod tshark;

use anew::{Case, Checked};
use drophammer_lab::Lab;
use drophammer_model::routes::RouteRange;
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load, Targets, TimedEvent, TrialResult, TrialSpec};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::discard::Discard;
use drophammer_port::kernel_generator::KernelGenerator;
use drophammer_port::live_frames::{self, LiveFrames};
use drophammer_port::priority::HighPriority;
use drophammer_port::{Clock, Port, PortError, Received, SystemClock, pass_on};
use drophammer_wire::MacAddr;
use drophammer_wire::signature::LEN;
use leftovers::{dropped, killed, send_for_ever};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};
use trial::Nobody;

type Named = (&'static str, fn(&Bench) -> Checked);

/// Cases that are short and always run.
const ALWAYS: [&str; 2] = ["the_kernel_makes_the_frames_that_user_space_makes", "a_killed_process_leaves_nothing"];
const CASES: [Named; 11] = [
    ("two_million_frames_arrive", two_million),
    ("the_kernel_makes_the_frames_that_user_space_makes", same_frames),
    ("tshark_finds_every_frame_whole", decoded),
    ("ten_thousand_flows", many_flows),
    ("groups_weights_and_bins_add_up", groups),
    ("bursts_are_exact", bursts),
    ("what_is_left_out_is_unsent", left_out),
    ("a_trial_that_is_stopped_is_counted", stopped),
    ("what_does_not_fit_is_sent_from_user_space", otherwise),
    ("the_far_end_of_benchmarks_sees_what_was_sent", thrown_away),
    ("a_killed_process_leaves_nothing", killed),
];
struct Bench<'a> {
    lab: &'a Lab,
    clock: SystemClock,
}

type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

/// A port that keeps what it receives.
struct Witness {
    port: Box<dyn Port>,
    seen: Seen,
    most: usize,
}

impl Port for Witness {
    pass_on!(port: info, slots, send, counters);

    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let frames = self.port.receive()?;
        let mut seen = self.seen.lock().expect("one thread");
        let room = self.most - seen.len();
        seen.extend(frames.iter().take(room).map(|a| a.frame.to_vec()));
        Ok(frames)
    }
    fn kernel_generator(&mut self) -> Option<&mut dyn KernelGenerator> {
        self.port.kernel_generator()
    }
}

fn check(good: bool, what: impl FnOnce() -> String) -> Checked {
    if good { Ok(()) } else { Err(what()) }
}

fn destinations_of(family: Family, count: u32, step: u64) -> AddressRange {
    let first = match family {
        Family::Ipv4 => "16.0.0.0",
        Family::Ipv6 => "2001:db8:ffff:ffff:ffff:ffff:fff0:0",
    };
    AddressRange { first: first.parse().expect("an address"), step, count }
}

fn flow(group: &str, family: Family, destinations: u32, weight: f64) -> FlowSpec {
    let source = match family {
        Family::Ipv4 => "198.18.0.2",
        Family::Ipv6 => "2001:db8::2",
    };
    let sources = AddressRange { first: source.parse().expect("an address"), step: 1, count: 1 };
    FlowSpec { weight, ..FlowSpec::new(group, 0, 1, sources, destinations_of(family, destinations, 1)) }
}

fn spec(size: &str, flows: Vec<FlowSpec>, load: Load, duration_s: f64) -> TrialSpec {
    let size = size.parse().expect("a size");
    TrialSpec { purpose: "test".into(), size, flows, load, duration_s, bin_s: None, drain_s: 0.5, events: vec![] }
}

impl Bench<'_> {
    fn ip(&self, lines: &[&str]) -> Checked {
        let lines: Vec<String> = lines.iter().map(|l| (*l).to_owned()).collect();
        self.lab.tester().and_then(|t| t.ip(&lines)).map_err(|e| e.to_string())
    }

    fn live(&self, interface: &str) -> Result<Box<dyn Port>, String> {
        Ok(Box::new(LiveFrames::open(interface, self.clock).map_err(|e| e.to_string())?))
    }

    fn packets(&self, interface: &str) -> Result<Box<dyn Port>, String> {
        Ok(Box::new(AfPacket::open(interface, self.clock).map_err(|e| e.to_string())?))
    }

    fn pair(&self) -> Result<Vec<Box<dyn Port>>, String> {
        Ok(vec![self.live("t0")?, self.packets("t1")?])
    }

    fn run(&self, ports: &mut [Box<dyn Port>], spec: &TrialSpec) -> Result<TrialResult, String> {
        self.run_until(ports, spec, Nobody(None))
    }

    fn run_until(
        &self,
        ports: &mut [Box<dyn Port>],
        spec: &TrialSpec,
        mut control: Nobody,
    ) -> Result<TrialResult, String> {
        let plan = trial::plan(spec, [0, 1].map(MacAddr::local), 1, 20_000_000)?;
        let _priority = HighPriority::new();
        drophammer_traffic::run(plan, ports, &mut { self.clock }, &mut control).map_err(|e| e.to_string())
    }

    /// A trial of `frames` frames with full accounting. Frames that were not offered in time are unsent (a busy machine
    /// delays the tester), frames for which the ring of `t1` had no room were dropped there, and all others have arrived
    /// once, in order and intact.
    fn exact(&self, ports: &mut [Box<dyn Port>], spec: &TrialSpec, frames: u64) -> Result<TrialResult, String> {
        let before = dropped();
        let result = self.run(ports, spec)?;
        let dropped = dropped() - before + result.health.receive_drops;
        let health = &result.health;
        let sums = [result.offered() + health.unsent, result.received() + dropped + health.unsent];
        check(sums == [frames; 2] && result.intended() == frames, || format!("{dropped} dropped: {result:#?}"))?;
        let wrong = result.sum(|g| g.duplicated + g.reordered + g.corrupted + g.stray + g.refused);
        check(wrong == 0 && health.stale == 0 && health.kernel_generators == 1, || format!("{result:#?}"))?;
        let followed = result.sum(|g| g.in_sequence);
        check(dropped > 0 || followed == result.received(), || format!("{followed} in sequence: {result:#?}"))?;
        println!("    {frames}: {} offered, {} received, {dropped} dropped", result.offered(), result.received());
        Ok(result)
    }
}

/// With [`Discard`] no frame arrives, and the interface has counted every frame that its ring had room for; without it
/// frames arrive as before.
fn thrown_away(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    let spec = spec("64", vec![flow("all", Family::Ipv4, 1_000, 1.0)], Load::Constant { rate_pps: 100_000.0 }, 0.5);
    let discard = Discard::attach("t1").map_err(|e| e.to_string())?;
    let (before, full) = (leftovers::received(), dropped());
    let result = bench.run(&mut ports, &spec)?;
    let (seen, full) = (leftovers::received() - before, dropped() - full);
    println!("    {} offered, {seen} seen, {full} dropped", result.offered());
    check(result.received() == 0 && seen > 0, || format!("{result:#?}"))?;
    // Frames that the program drops may also count as dropped.
    check(seen <= result.offered() && seen + full >= result.offered(), || format!("{seen} seen, {full} dropped"))?;
    drop(discard);
    bench.exact(&mut ports, &spec, 50_000).map(drop)
}

fn two_million(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    let flows = vec![flow("all", Family::Ipv4, 1_000_000, 1.0)];
    let spec = spec("64", flows, Load::Constant { rate_pps: 200_000.0 }, 5.0);
    let mut received = 0;
    for _ in 0..30 {
        let result = bench.exact(&mut ports, &spec, 1_000_000)?;
        println!(
            "    departure error {:?}, longest gap {} ns",
            result.health.departure_error, result.health.max_gap_ns
        );
        received += result.received();
        if received >= 2_000_000 {
            return Ok(());
        }
    }
    Err(format!("only {received} frames in 150 s"))
}

/// The frame without its time and the fields that depend on it: check and UDP checksum.
fn timeless(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let ipv6 = frame[12] == 0x86;
    let (udp, len) = if ipv6 {
        (54, 40 + u16::from_be_bytes([frame[18], frame[19]]))
    } else {
        (34, u16::from_be_bytes([frame[16], frame[17]]))
    };
    let end = 14 + usize::from(len);
    frame[udp + 6..udp + 8].fill(0);
    frame[end - LEN + 6..end].fill(0);
    frame
}

fn same_frames(bench: &Bench) -> Checked {
    for family in [Family::Ipv4, Family::Ipv6] {
        for size in ["64", "65", "128", "1517", "1518", "ip40", "ip41", "ip1500"] {
            let mut flows = vec![
                flow("one", family, 1_000_000, 2.0),
                flow("two", family, 5, 1.0),
                flow("three", family, 1 << 16, 1.0),
            ];
            flows[1].sources.count = 3;
            flows[1].sources.step = 1 << 40;
            flows[1].destinations = destinations_of(family, 5, u64::MAX).into();
            let spec = spec(size, flows, Load::Constant { rate_pps: 20_000.0 }, 0.05);
            let mut seen = Vec::new();
            for live in [true, false] {
                let kept = Arc::new(Mutex::new(Vec::new()));
                let witness = Witness { port: bench.packets("t1")?, seen: kept.clone(), most: 1_000 };
                let sender = if live { bench.live("t0")? } else { bench.packets("t0")? };
                let result = bench.run(&mut [sender, Box::new(witness)], &spec)?;
                check(result.received() >= 100 && result.health.kernel_generators == u32::from(live), || {
                    format!("{family} {size}: {result:#?}")
                })?;
                let frames: Vec<_> = kept.lock().expect("one thread").iter().map(|f| timeless(f)).collect();
                seen.push(frames);
            }
            for (i, (kernel, user)) in seen[0].iter().zip(&seen[1]).enumerate() {
                check(kernel == user, || format!("{family} {size}, frame {i}:\n{kernel:02x?}\n{user:02x?}"))?;
            }
        }
    }
    Ok(())
}

const FIELDS: [&str; 6] = [
    "_ws.malformed",
    "_ws.expert.severity",
    "ip.checksum.status",
    "udp.checksum.status",
    "udp.dstport",
    "frame.protocols",
];

/// True with correct checksums ("1"), no malformation, and no error of tshark's expert information.
fn is_whole(line: &[String]) -> bool {
    const ERROR: u32 = 0x0080_0000;
    let severe = line[1].split(',').filter_map(|s| s.parse::<u32>().ok()).any(|s| s >= ERROR);
    let ip_good = if line[5].contains(":ipv6") { line[2].is_empty() } else { line[2] == "1" };
    line[0].is_empty() && !severe && ip_good && line[3] == "1" && line[4] == "9"
}

fn decoded(bench: &Bench) -> Checked {
    let kept = Seen::default();
    for (i, (family, size)) in [
        (Family::Ipv4, "64"),
        (Family::Ipv4, "65"),
        (Family::Ipv4, "1518"),
        (Family::Ipv6, "64"),
        (Family::Ipv6, "1517"),
    ]
    .into_iter()
    .enumerate()
    {
        let witness = Witness { port: bench.packets("t1")?, seen: kept.clone(), most: 100 * (i + 1) };
        let mut ports: [Box<dyn Port>; 2] = [bench.live("t0")?, Box::new(witness)];
        let spec =
            spec(size, vec![flow("all", family, 1_000_000, 1.0)], Load::Burst { frames: 100, rate_pps: 20_000.0 }, 0.0);
        bench.exact(&mut ports, &spec, 100)?;
    }
    let mut frames = kept.lock().expect("one thread").clone();
    // Shows that the decoder reports broken frames.
    for at in [24, 48] {
        let mut broken = frames[0].clone();
        broken[at] ^= 1;
        frames.push(broken);
    }
    let timed: Vec<_> = frames.iter().map(|frame| (0, frame.as_slice())).collect();
    let Some(lines) = tshark::decode("frames", &timed, &FIELDS) else { return Ok(()) };
    let (whole, broken) = lines.split_at(500);
    for (line, frame) in whole.iter().zip(&frames) {
        check(is_whole(line), || format!("{line:?}: {frame:02x?}"))?;
    }
    check(broken.len() == 2 && !broken.iter().any(|l| is_whole(l)), || format!("{broken:?}"))
}

fn many_flows(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    for family in [Family::Ipv4, Family::Ipv6] {
        let flows = (0..10_000).map(|_| flow("all", family, 1_000_000, 1.0)).collect();
        let result =
            bench.exact(&mut ports, &spec("128", flows, Load::Constant { rate_pps: 50_000.0 }, 4.0), 200_000)?;
        check(result.received() > 50_000, || format!("{} frames prove little", result.received()))?;
    }
    Ok(())
}

fn groups(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    let flows = vec![
        flow("gold", Family::Ipv4, 1_000, 70.0),
        flow("silver", Family::Ipv4, 1_000, 20.0),
        flow("bronze", Family::Ipv4, 1, 5.0),
    ];
    let mut spec = spec("128", flows, Load::Constant { rate_pps: 95_000.0 }, 1.0);
    spec.bin_s = Some(0.01);
    let result = bench.exact(&mut ports, &spec, 95_000)?;
    let places = result.offered() / 19;
    for (group, share) in result.groups.iter().zip([14, 4, 1]) {
        check(group.intended == share * 5_000, || format!("{group:?}"))?;
        // Whole rounds of 19 places, and a part of one.
        let rounds = share * places..=share * (places + 1);
        check(rounds.contains(&group.offered), || format!("{group:?}"))?;
        let sum = |count: fn(&drophammer_model::trial::Bin) -> u64| group.bins.iter().map(count).sum::<u64>();
        check((sum(|b| b.offered), sum(|b| b.delivered)) == (group.offered, group.received), || format!("{group:?}"))?;
        // A frame carries its departure time: the kernel has counted it in the same bin.
        let same = group.bins.iter().all(|b| b.offered == b.delivered);
        check(same || group.lost > 0, || format!("{:?}", group.bins))?;
    }
    Ok(())
}

fn bursts(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    for (frames, rate_pps) in [(1, 1e6), (100, 1e6), (5_000, 100_000.0)] {
        let flows = vec![flow("all", Family::Ipv6, 1_000, 1.0)];
        let result = bench.exact(&mut ports, &spec("128", flows, Load::Burst { frames, rate_pps }, 0.0), frames)?;
        check(result.offered() == frames, || format!("{result:#?}"))?;
    }
    Ok(())
}

/// A load above the maximum: frames that were not generated count as unsent, never as lost.
fn left_out(bench: &Bench) -> Checked {
    const TRIES: usize = 10;
    let mut ports = bench.pair()?;
    let flows = vec![flow("all", Family::Ipv4, 1, 1.0)];
    let result = bench.run(&mut ports, &spec("64", flows.clone(), Load::Constant { rate_pps: 60e6 }, 0.3))?;
    let counted = [result.intended(), result.offered() + result.health.unsent];
    check(counted == [18_000_000; 2] && result.health.unsent > 0, || format!("{result:#?}"))?;
    println!("    {} of 18,000,000 offered, {} received", result.offered(), result.received());
    // A busy machine may take the processor at the end of a trial, but not of every one.
    for attempt in 1..=TRIES {
        let maximum = spec("64", flows.clone(), Load::Maximum { limit_pps: 60e6 }, 0.3);
        let result = bench.run(&mut ports, &maximum)?;
        let offered = result.offered();
        check(result.health.unsent == 0 && offered > 0 && offered < 18_000_000, || format!("{result:#?}"))?;
        check(result.received() + result.lost() == offered, || format!("{result:#?}"))?;
        println!("    maximum, attempt {attempt}: {offered} offered in {:.4} s", result.sending_s);
        check(result.sending_s >= 0.3, || format!("{} s", result.sending_s))?;
        if result.sending_s < 0.3001 {
            return Ok(());
        }
    }
    Err(format!("no trial of {TRIES} ended in time"))
}

/// Frames in flight when the trial ended are lost, but none is sent afterwards.
fn stopped(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    let spec = spec("64", vec![flow("all", Family::Ipv4, 1, 1.0)], Load::Constant { rate_pps: 10_000.0 }, 600.0);
    let before = leftovers::received() + dropped();
    let until = bench.clock.now() + std::time::Duration::from_millis(300);
    let result = bench.run_until(&mut ports, &spec, Nobody(Some((bench.clock, until))))?;
    let sent = leftovers::received() + dropped() - before;
    check(sent == result.offered() && sent > 0, || format!("{sent} frames sent, {} counted", result.offered()))?;
    check(result.offered() + result.health.unsent == 6_000_000, || format!("{result:#?}"))?;
    // The next trial is not affected.
    let burst = TrialSpec { load: Load::Burst { frames: 50, rate_pps: 1e5 }, ..spec };
    check(bench.exact(&mut ports, &burst, 50)?.offered() == 50, || "the next trial".into())
}

fn otherwise(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    let constant = || Load::Constant { rate_pps: 2_000.0 };
    let one = || vec![flow("all", Family::Ipv4, 10, 1.0)];
    let step = |rate_pps| drophammer_model::trial::LoadStep { duration_s: 0.1, rate_pps };
    let routes = Arc::new(RouteRange::internet(Family::Ipv4, 10, 1).expect("routes").into());
    let routes = Targets::Routes { routes, first: 0, count: 10 };
    let event = TimedEvent::new(0.05, 0, "nothing");
    let specs = [
        ("two families", spec("128", vec![one().remove(0), flow("all", Family::Ipv6, 10, 1.0)], constant(), 0.1)),
        ("a mix of sizes", spec("imix", one(), constant(), 0.1)),
        ("steps", spec("64", one(), Load::Steps { steps: vec![step(1_000.0), step(500.0)] }, 0.0)),
        ("by destination", spec("64", vec![FlowSpec { per_destination: true, ..one().remove(0) }], constant(), 0.1)),
        ("routes", spec("64", vec![FlowSpec { destinations: routes, ..one().remove(0) }], constant(), 0.1)),
        ("an event", TrialSpec { events: vec![event], ..spec("64", one(), constant(), 0.1) }),
    ];
    for (what, spec) in specs {
        let before = dropped();
        let result = bench.run(&mut ports, &spec)?;
        let arrived = result.received() + (dropped() - before) + result.health.receive_drops;
        let good = result.health.kernel_generators == 0 && arrived == result.offered();
        check(good && result.received() > 50, || format!("{what}: {result:#?}"))?;
    }
    // Without a ring at the other end the frames would be lost.
    ethtool(&["-K", "t1", "gro", "off"])?;
    let refused = match LiveFrames::open("t0", bench.clock) {
        Err(e) => e.to_string(),
        Ok(_) => return Err("opened without NAPI at the other end".into()),
    };
    check(refused.contains("gro on"), || refused.clone())?;
    let result = bench.run(&mut ports, &spec("64", one(), constant(), 0.1))?;
    check(result.health.kernel_generators == 0 && result.received() > 50, || format!("{result:#?}"))?;
    let refused = LiveFrames::open("lo", bench.clock).err().map(|e| e.to_string()).unwrap_or_default();
    check(refused.contains("veth only"), || format!("lo: {refused}"))
}

fn ethtool(arguments: &[&str]) -> Checked {
    let status = Command::new("ethtool").args(arguments).status().map_err(|e| format!("ethtool: {e}"))?;
    check(status.success(), || format!("ethtool {arguments:?}: {status}"))
}

fn links(bench: &Bench) -> Checked {
    let _ = bench.ip(&["link delete t0"]);
    let up = ["t0", "t1"].map(|name| format!("link set {name} arp off multicast off addrgenmode none up"));
    bench.ip(&["link add t0 type veth peer name t1", &up[0], &up[1]])?;
    ethtool(&["-K", "t0", "gro", "on"])?;
    ethtool(&["-K", "t1", "gro", "on"])
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == leftovers::TO_KILL) {
        return send_for_ever();
    }
    let case = |(name, run): Named| {
        let whole = Case::in_lab(name, move |lab| {
            let bench = Bench { lab, clock: SystemClock::start() };
            links(&bench).and_then(|()| run(&bench))
        });
        let whole = whole.unless(live_frames::usable().err());
        if ALWAYS.contains(&name) { whole } else { whole.long() }
    };
    anew::run(CASES.into_iter().map(case).collect())
}
