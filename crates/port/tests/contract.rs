//! The contract of every backend on real interfaces, tested over a veth pair: every frame arrives once, in order and
//! intact, or is counted.
//!
//! As root it also starts itself as an ordinary user, to check the error messages about missing privileges.

#[path = "../../lab/tests/anew/mod.rs"]
mod anew;
#[path = "contract/discipline.rs"]
mod discipline;
#[path = "contract/queues.rs"]
mod queues;
#[path = "contract/streams.rs"]
mod streams;
#[path = "contract/tags.rs"]
mod tags;
#[path = "contract/taps.rs"]
mod taps;
#[path = "contract/times.rs"]
mod times;

use anew::{Case, Checked};
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::quantity::Instant;
use drophammer_port::af_packet::AfPacket;
use drophammer_port::capture::{Capture, CaptureLimits};
use drophammer_port::unplugged::restore;
use drophammer_port::{BURST, Backend, Clock, INTERFACE_BACKENDS, Port, PortError, SystemClock, set_link};
use drophammer_wire::signature::{LEN, Signature, TEST_PORT, TrialKey};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

type Named = (&'static str, fn(&Bench) -> Checked);

/// The first cases, up to this number, always run.
const ALWAYS: usize = 5;
const CASES: [Named; 19] = [
    ("every_frame_once_in_order_and_whole", every_frame),
    ("what_is_no_test_frame_comes_too", other_frames),
    ("segments_of_a_stream_are_those_of_the_slots", streams::streams),
    ("vlan_tags_are_part_of_the_frame", tags::tags),
    ("a_frame_carries_the_time_of_its_arrival_or_of_its_reading", times::arrivals),
    ("overflow_is_counted", overflow),
    ("the_input_queue_of_a_link_is_used_by_packet_sockets", discipline::through),
    ("what_a_tap_loses_before_the_socket_is_counted", taps::lost),
    ("what_cannot_be_opened_says_why", refusals),
    ("a_port_opens_again_at_once", again),
    ("what_the_device_drops_is_no_frame_for_ever", dropped),
    ("a_link_that_is_taken_down_loses_frames_and_comes_back", unplugged),
    ("a_deleted_interface_is_lost", deleted),
    ("slots_of_another_port_are_not_sent", exchanged),
    ("every_frame_of_every_queue_once_and_each_flow_in_order", queues::every_frame),
    ("what_is_no_test_frame_comes_at_some_queue", queues::other_frames),
    ("overflow_is_counted_at_its_queue", queues::overflow),
    ("a_link_is_down_for_all_queues", queues::unplugged),
    ("queues_that_are_not_there_are_refused", queues::refusals),
];
const KEY: u64 = 11;
/// Argument of the process that runs as an ordinary user.
const AS_USER: &str = "--as-user";

/// Two interfaces, and the way to open ports on them.
struct Bench<'a> {
    lab: &'a Lab,
    name: &'static str,
    backend: &'static Backend,
    clock: SystemClock,
    /// True if ports are captured: all frames are written to files that soon reach their limit.
    captured: bool,
}

/// File for the frames of captured ports.
const NOWHERE: &str = "/dev/null";

impl Bench<'_> {
    fn ip(&self, lines: &[&str]) -> Checked {
        let lines: Vec<String> = lines.iter().map(|l| (*l).to_owned()).collect();
        self.lab.tester().and_then(|t| t.ip(&lines)).map_err(|e| e.to_string())
    }

    fn port(&self, interface: &str) -> Result<Box<dyn Port>, String> {
        let port = self.backend.open(interface, self.clock).map_err(|e| e.to_string())?;
        if !self.captured {
            return Ok(port);
        }
        let (clock, limits) = (self.clock, CaptureLimits { file_bytes: 8 << 20, ..Default::default() });
        let captured = Capture::start(port, Path::new(NOWHERE), limits, 0, move || clock.now(), |_| false);
        Ok(Box::new(captured.map_err(|e| e.to_string())?.0))
    }

    fn pair(&self) -> Result<[Box<dyn Port>; 2], String> {
        Ok([self.port("t0")?, self.port("t1")?])
    }
}

fn check(good: bool, what: impl FnOnce() -> String) -> Checked {
    if good { Ok(()) } else { Err(what()) }
}

/// A test frame without FCS, between MAC addresses of no interface.
fn frame(ipv6: bool, len: usize, flow: u32, sequence: u64) -> Vec<u8> {
    let mut f = vec![0x5a; len];
    f[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    let udp = if ipv6 {
        f[12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, (len - 54) as u8, 17, 64]);
        f[18..20].copy_from_slice(&((len - 54) as u16).to_be_bytes());
        f[20] = 17;
        54
    } else {
        f[12..24].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17]);
        f[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
        34
    };
    f[udp + 2..udp + 4].copy_from_slice(&TEST_PORT.to_be_bytes());
    sign(&mut f, flow, sequence);
    f
}

fn sign(frame: &mut [u8], flow: u32, sequence: u64) {
    let signature = Signature { flow, sequence: sequence as u32, time: (sequence * 977) as u32 };
    let end = frame.len();
    frame[end - LEN..].copy_from_slice(&signature.emit(TrialKey::new(KEY, 1)));
}

/// Sends `count` frames like `template`, numbered from `first`; calls `between` after each burst. Returns what the port
/// accepted.
fn send(
    ports: &mut [Box<dyn Port>; 2],
    from: usize,
    template: &mut [u8],
    count: u64,
    mut between: impl FnMut(&mut dyn Port) -> Checked,
) -> Result<u64, String> {
    let (mut sequence, mut accepted) = (0, 0);
    while sequence < count {
        let burst = (count - sequence).min(BURST as u64) as usize;
        for slot in 0..burst {
            sign(template, 3, sequence);
            ports[from].slots().put(slot, template);
            sequence += 1;
        }
        let sent = ports[from].send(burst).map_err(|e| e.to_string())?;
        check(sent.accepted + sent.refused == burst as u32, || format!("{sent:?} of {burst}"))?;
        check(sent.refused_mask.count_ones() == sent.refused, || format!("{sent:?}"))?;
        accepted += u64::from(sent.accepted);
        between(ports[1 - from].as_mut())?;
    }
    Ok(accepted)
}

/// If no frame has arrived for this long, none is under way, even if the kernel's threads wait for a processor.
const SILENCE: Duration = Duration::from_millis(200);

/// Takes frames until none has arrived for a while; passes each to `see`.
fn take_all(clock: &SystemClock, port: &mut dyn Port, mut see: impl FnMut(Instant, &[u8]) -> Checked) -> Checked {
    let mut last = clock.now();
    loop {
        // If this thread did not get its processor for a while, frames may be waiting.
        let silent = clock.now().since(last) > SILENCE;
        let frames = port.receive().map_err(|e| e.to_string())?;
        if !frames.is_empty() {
            last = clock.now();
        } else if silent {
            return Ok(());
        }
        frames.iter().try_for_each(|a| see(a.at, a.frame))?;
    }
}

/// Number of frames that arrive until none has arrived for a while.
fn count_all(clock: &SystemClock, port: &mut dyn Port) -> Result<u64, String> {
    let mut came = 0;
    take_all(clock, port, |_, _| {
        came += 1;
        Ok(())
    })?;
    Ok(came)
}

/// Sets features of an interface.
fn ethtool(interface: &str, features: &[&str]) -> Checked {
    let status = Command::new("ethtool").args(["-K", interface]).args(features).status();
    check(status.is_ok_and(|s| s.success()), || format!("ethtool -K {interface} {features:?}"))
}

fn unplugged(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    if let Err(e) = set_link(ports[0].as_mut(), false) {
        return check(matches!(e, PortError::Link { .. }) && bench.name != "af_packet", || e.to_string());
    }
    let clock = bench.clock;
    let mut template = frame(false, 60, 3, 0);
    for (up, expected) in [(false, 0), (true, 500), (false, 0), (true, 500)] {
        set_link(ports[0].as_mut(), up).map_err(|e| e.to_string())?;
        let accepted = send(&mut ports, 0, &mut template, 500, |_| Ok(()))?;
        let mut came = 0;
        let (left, right) = ports.split_at_mut(1);
        take_all(&clock, right[0].as_mut(), |_, frame| {
            came += u64::from(frame.len() == 60);
            Ok(())
        })?;
        // The port that takes its own link down receives nothing and returns no error.
        take_all(&clock, left[0].as_mut(), |_, _| Ok(()))?;
        check(accepted == 500 && came == expected, || format!("up {up}: {accepted} accepted, {came} came"))?;
    }
    // A port that is closed leaves its link up, so that it can be opened again.
    set_link(ports[0].as_mut(), false).map_err(|e| e.to_string())?;
    check(restore("t0").is_ok_and(|restored| !restored), || "the link of a living process is brought up".into())?;
    drop(ports);
    bench.pair().map(drop)?;
    // A link that a killed process left down comes up, one that somebody else took down does not.
    let set_down = || bench.ip(&["link set t0 down"]);
    bench.ip(&["link property add dev t0 altname drophammer-down-t0"]).and_then(|()| set_down())?;
    bench.pair().map(drop)?;
    set_down()?;
    check(bench.pair().is_err(), || "an interface that is down was opened".into())?;
    bench.ip(&["link set t0 up"])
}

fn every_frame(bench: &Bench) -> Checked {
    // The port below a capture has passed this with all frames, and these are enough for the file to reach its limit.
    let count = if bench.captured { 50_000 } else { 200_000 };
    let mut ports = bench.pair()?;
    for (from, ipv6, len) in [(0, false, 60), (1, true, 78), (0, true, 1514), (1, false, 1514)] {
        let mut template = frame(ipv6, len, 3, 0);
        let mut expected = template.clone();
        let mut next = 0;
        let begun = bench.clock.now();
        let clock = bench.clock;
        let mut see = |at: Instant, frame: &[u8]| {
            sign(&mut expected, 3, next);
            check(frame == expected, || format!("{from} {len}: frame {next} is another or damaged: {frame:x?}"))?;
            check(at >= begun && at <= clock.now(), || format!("frame {next} came at {at:?}, begun at {begun:?}"))?;
            next += 1;
            Ok(())
        };
        let accepted = send(&mut ports, from, &mut template, count, |port| {
            loop {
                let frames = port.receive().map_err(|e| e.to_string())?;
                frames.iter().try_for_each(|a| see(a.at, a.frame))?;
                if frames.len() < BURST / 2 {
                    return Ok(());
                }
            }
        })?;
        take_all(&bench.clock, ports[1 - from].as_mut(), &mut see)?;
        check(accepted == count && next == count, || format!("{len} bytes: {accepted} accepted, {next} received"))?;
        let back = ports[from].receive().map_err(|e| e.to_string())?.len();
        check(back == 0, || format!("the sender received {back} frames"))?;
        for port in &mut ports {
            let drops = port.counters().map_err(|e| e.to_string())?.receive_drops;
            check(drops == 0, || format!("{drops} drops"))?;
        }
    }
    Ok(())
}

fn other_frames(bench: &Bench) -> Checked {
    let changed = |ipv6: bool, change: &dyn Fn(&mut Vec<u8>)| {
        let mut f = frame(ipv6, 80, 3, 0);
        change(&mut f);
        f
    };
    let others = [
        ("ARP", changed(false, &|f| f[12..14].copy_from_slice(&[0x08, 0x06]))),
        ("another type", changed(false, &|f| f[12..14].copy_from_slice(&[0x88, 0xcc]))),
        ("another UDP port", changed(false, &|f| f[37] = 10)),
        ("ICMP", changed(false, &|f| f[23] = 1)),
        ("IPv4 options", changed(false, &|f| f[14] = 0x46)),
        ("a first fragment", changed(false, &|f| f[20] = 0x20)),
        ("a later fragment", changed(false, &|f| f[21] = 7)),
        ("cut off in the UDP header", changed(false, &|f| f.truncate(40))),
        ("no more than a header", changed(false, &|f| f.truncate(14))),
        ("ICMPv6", changed(true, &|f| f[20] = 58)),
        ("IPv6, another UDP port", changed(true, &|f| f[56] = 1)),
        ("IPv6, cut off", changed(true, &|f| f.truncate(60))),
    ];
    let mut ports = bench.pair()?;
    // Receives the frames that reach the kernel.
    let mut witness = AfPacket::open("t1", bench.clock).map_err(|e| e.to_string())?;
    for (what, other) in &others {
        // Between two test frames, so that the ring is used as well.
        let burst = [frame(false, 60, 3, 1), other.clone(), frame(true, 80, 3, 2)];
        burst.iter().enumerate().for_each(|(i, f)| ports[0].slots().put(i, f));
        let sent = ports[0].send(3).map_err(|e| e.to_string())?;
        check(sent.accepted == 3, || format!("{what}: {sent:?}"))?;
        let mut came: Vec<Vec<u8>> = Vec::new();
        let deadline = bench.clock.now() + Duration::from_secs(10);
        while came.len() < 3 && bench.clock.now() < deadline {
            came.extend(ports[1].receive().map_err(|e| e.to_string())?.iter().map(|a| a.frame.to_vec()));
        }
        let (mut wanted, found) = (burst.to_vec(), came.len());
        came.sort();
        wanted.sort();
        check(came == wanted, || format!("{what}: {found} of 3 frames came: {came:x?}"))?;
    }
    let kernel = count_all(&bench.clock, &mut witness)? as usize;
    let wanted = if bench.name == "af_xdp" { others.len() } else { 3 * others.len() };
    check(kernel == wanted, || format!("the kernel got {kernel} frames instead of {wanted}"))
}

fn overflow(bench: &Bench) -> Checked {
    const COUNT: u64 = 200_000;
    let mut ports = bench.pair()?;
    let mut template = frame(false, 60, 3, 0);
    let accepted = send(&mut ports, 0, &mut template, COUNT, |_| Ok(()))?;
    let (mut received, mut last) = (0, None);
    take_all(&bench.clock, ports[1].as_mut(), |_, frame| {
        let signature = frame[frame.len() - LEN..].try_into().map_err(|_| "short frame".to_owned())?;
        let sequence = Some(Signature::read(signature).0.sequence);
        check(sequence > last, || format!("{sequence:?} after {last:?}"))?;
        last = sequence;
        received += 1;
        Ok(())
    })?;
    let drops = ports[1].counters().map_err(|e| e.to_string())?.receive_drops;
    println!("    {accepted} accepted, {received} received, {drops} counted as dropped");
    check(drops > 0 && received > 0, || "nothing overflowed, so nothing is proven".into())?;
    check(received + drops == accepted, || "these do not add up".into())?;
    // The port continues to work as before.
    send(&mut ports, 0, &mut template, 64, |_| Ok(()))?;
    let after = count_all(&bench.clock, ports[1].as_mut())?;
    check(after == 64, || format!("{after} of 64 frames after the overflow"))
}

fn refusals(bench: &Bench) -> Checked {
    let refused = |interface: &str, word: &str| match bench.backend.open(interface, bench.clock) {
        Err(e @ PortError::Open { .. }) if e.to_string().contains(word) => Ok(()),
        Err(e) => Err(format!("says nothing of `{word}`: {e}")),
        Ok(_) => Err(format!("`{interface}` could be opened")),
    };
    refused("none-such", "no such interface")?;
    bench.ip(&["link set t1 down"])?;
    let down = refused("t1", "it is down");
    bench.ip(&["link set t1 up"])?;
    down?;
    if bench.name == "af_xdp" {
        let _port = bench.port("t0")?;
        refused("t0", "another")?;
    }
    Ok(())
}

fn again(bench: &Bench) -> Checked {
    for round in 0..5 {
        let mut ports = bench.pair()?;
        send(&mut ports, 1, &mut frame(false, 60, 3, 0), 100, |_| Ok(()))?;
        let received = count_all(&bench.clock, ports[0].as_mut())?;
        check(received == 100, || format!("round {round}: {received} of 100"))?;
    }
    Ok(())
}

/// Frames that the device drops must not occupy the port's rings for ever.
fn dropped(bench: &Bench) -> Checked {
    let sender = bench.port("t0")?;
    bench.ip(&["link set t1 down"])?;
    let mut ports = [sender, Box::new(AfPacket::open("lo", bench.clock).map_err(|e| e.to_string())?)];
    let mut template = frame(false, 60, 3, 0);
    let accepted = send(&mut ports, 0, &mut template, 10_000, |_| Ok(()))?;
    bench.ip(&["link set t1 up"])?;
    // Packet sockets see the refusal; af_xdp cannot, so there the frames count as offered.
    let wanted = if bench.name == "af_xdp" { 10_000 } else { 0 };
    check(accepted == wanted, || format!("{accepted} of 10,000 accepted while the link was down"))?;
    ports[1] = bench.port("t1")?;
    let accepted = send(&mut ports, 0, &mut template, 10_000, |_| Ok(()))?;
    let received = count_all(&bench.clock, ports[1].as_mut())?;
    check((accepted, received) == (10_000, 10_000), || format!("then {accepted} accepted, {received} received"))
}

fn deleted(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    bench.ip(&["link delete t0"])?;
    let deadline = bench.clock.now() + Duration::from_secs(30);
    let lost = |result: Result<(), PortError>, what: &str| match result {
        Ok(()) => check(bench.clock.now() < deadline, || format!("{what} still works")).map(|()| false),
        Err(PortError::Lost { .. }) => Ok(true),
        Err(e) => Err(format!("{what}: {e}")),
    };
    while !lost(ports[1].receive().map(drop), "receiving")? {}
    let template = frame(false, 60, 3, 0);
    ports[0].slots().put(0, &template);
    while !lost(ports[0].send(1).map(drop), "sending")? {}
    Ok(())
}

/// Slots are memory that the port passes to the kernel by address: an exchange must be detected before that.
fn exchanged(bench: &Bench) -> Checked {
    let mut ports = bench.pair()?;
    let [a, b] = &mut ports;
    a.slots().put(0, &frame(false, 60, 3, 0));
    std::mem::swap(a.slots(), b.slots());
    let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ports[1].send(1).map_err(|e| e.to_string())));
    let message = match sent {
        Ok(sent) => return Err(format!("they were sent: {sent:?}")),
        Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
    };
    check(message.contains("another port's"), || message)
}

/// As an ordinary user, who may use AF_PACKET in the lab but not `bpf()`.
fn as_user(bench: &Bench) -> Result<bool, String> {
    match bench.backend.open("t0", bench.clock) {
        Ok(_) => Ok(true),
        Err(PortError::Open { reason, .. }) if reason.contains("not permitted") => {
            check(reason.contains("root") && reason.contains("af_packet"), || format!("no remedy: {reason}"))?;
            println!("    refused: {reason}");
            Ok(false)
        }
        Err(e) => Err(e.to_string()),
    }
}

fn links(bench: &Bench) -> Checked {
    let _ = bench.ip(&["link delete t0"]);
    // The kernel's own stack sends nothing, so only sent frames are received.
    let up = ["t0", "t1"].map(|name| format!("link set {name} arp off multicast off addrgenmode none up"));
    bench.ip(&["link add t0 type veth peer name t1", &up[0], &up[1]])?;
    if bench.name == "live_frames" {
        // Both ends accept frames that the kernel generates.
        ["t0", "t1"].into_iter().try_for_each(|interface| ethtool(interface, &["gro", "on"]))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == AS_USER) {
        let lab = Lab::enter(&LabOptions::default()).map_err(|e| format!("the lab cannot be entered: {e}"));
        return match lab.and_then(|lab| INTERFACE_BACKENDS.iter().try_for_each(|backend| is_there(&lab, backend))) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    // The user ID in the kernel's status file shows whether this runs as root.
    let root = std::fs::read_to_string("/proc/self/status").is_ok_and(|s| s.contains("\nUid:\t0\t0\t"));
    let mut all = vec![Case::alone("as an ordinary user", run_as_nobody).unless((!root).then_some("it needs root"))];
    for backend in INTERFACE_BACKENDS {
        let name = backend.spec.name;
        all.push(Case::in_lab(format!("{name} is there or says why not"), move |lab| is_there(lab, backend)));
        let unusable = (backend.usable)().err();
        // The same cases with a capture around the backend, except those about the interfaces themselves.
        for captured in [false, true] {
            let own = |case: &str| {
                case.contains("queue")
                    || ["what_cannot_be_opened_says_why", "a_port_opens_again_at_once"].contains(&case)
            };
            for (at, (case, run)) in CASES.into_iter().enumerate().filter(|(_, (case, _))| !(captured && own(case))) {
                let of = if captured { " captured" } else { "" };
                let whole = Case::in_lab(format!("{case} with {name}{of}"), move |lab| {
                    let bench = Bench { lab, name, backend, clock: SystemClock::start(), captured };
                    links(&bench).and_then(|()| run(&bench))
                });
                let whole = whole.unless(unusable.clone());
                all.push(if at < ALWAYS && !captured { whole } else { whole.long() });
            }
        }
    }
    anew::run(all)
}

/// Checks that a port of the backend opens exactly if the backend says so beforehand.
fn is_there(lab: &Lab, backend: &'static Backend) -> Checked {
    let name = backend.spec.name;
    let bench = Bench { lab, name, backend, clock: SystemClock::start(), captured: false };
    let told = (backend.usable)();
    links(&bench)?;
    let usable = as_user(&bench)?;
    check(usable == told.is_ok(), || format!("{name} is usable: {told:?}, but opened: {usable}"))?;
    check(usable || name != "af_packet", || "refused".into())
}

/// Runs this program as an ordinary user, from a folder that this user can read.
fn run_as_nobody() -> Checked {
    let program = std::env::temp_dir().join(format!("drophammer-contract-{}", std::process::id()));
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    std::fs::copy(me, &program).map_err(|e| e.to_string())?;
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program).arg(AS_USER);
    let status = command.current_dir("/").status();
    std::fs::remove_file(&program).map_err(|e| e.to_string())?;
    let status = status.map_err(|e| format!("setpriv: {e}"))?;
    check(status.success(), || status.to_string())
}
