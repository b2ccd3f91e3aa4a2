//! A DUT whose process is stopped for 50 ms in the middle of a trial is late or loses frames. That is the DUT's fault:
//! the trial is valid, and neither the host nor the tester is blamed.

use crate::anew::{self, Checked};
use crate::common::{Memory, read_suite};
use drophammer_lab::{Dut, Lab, ProgramDut};
use drophammer_methods::Testbed;
use drophammer_methods::pattern::Pattern;
use drophammer_model::record::TrialRecord;
use drophammer_model::suite::Suite;
use drophammer_model::trial::{Family, Load, Validity};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::priority::HighPriority;
use drophammer_port::{Port, PortError, Sent, SystemClock, pass_on};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::{Session, config, device};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Time for which the process is stopped.
const STOP: Duration = Duration::from_millis(50);
/// A frame that waited for the process is at least this late; other frames are not.
const LATE_NS: u64 = 40_000_000;
const SECONDS: f64 = 1.0;
/// Maximum number of attempts. Other programs may keep this machine so busy that a trial is rightly invalid and proves
/// nothing.
const TRIES: usize = 20;

struct Case {
    name: &'static str,
    rate_pps: f64,
    stopped: bool,
}

const CASES: [Case; 3] = [
    Case { name: "without_a_stop_no_frame_is_late", rate_pps: 20_000.0, stopped: false },
    Case { name: "a_stop_at_low_load_is_the_devices", rate_pps: 20_000.0, stopped: true },
    Case { name: "a_stop_at_higher_load_is_the_devices", rate_pps: 100_000.0, stopped: true },
];

/// A port that reports when half of the frames of a trial have been sent, and notes when most of them have been sent.
struct Counted {
    inner: AfPacket,
    /// Frames to send until half of them and until most of them have been sent; `None` if nobody waits for that.
    left: Option<[usize; 2]>,
    half_sent: Sender<()>,
    most_sent: Arc<OnceLock<Instant>>,
}

impl Port for Counted {
    pass_on!(inner: info, slots, receive, counters);

    fn send(&mut self, frames: usize) -> Result<Sent, PortError> {
        if let Some(left) = &mut self.left {
            let before = *left;
            left.iter_mut().for_each(|left| *left = left.saturating_sub(frames));
            if before[0] > 0 && left[0] == 0 {
                let _ = self.half_sent.send(());
            }
            if left[1] == 0 {
                let _ = self.most_sent.set(Instant::now());
            }
        }
        self.inner.send(frames)
    }
}

fn check(good: bool, what: impl FnOnce() -> String) -> Checked {
    if good { Ok(()) } else { Err(what()) }
}

fn suite() -> Suite {
    read_suite(
        "suite: stopped\nprofile: quick\nseed: 7\nduts: [{name: box, kind: reference, links: veth}]\nports:\n  \
         - {name: p1, speed: 1 Gbit/s}\n  - {name: p2, speed: 1 Gbit/s}\ntests:\n  - throughput\n",
    )
}

/// The process of the device: the child of this process that was started as the device.
fn device_process() -> Result<u32, String> {
    let me = std::process::id().to_string();
    let is_device = |pid: &u32| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        // The name may contain anything. It is followed by the state, then the parent.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1).map(str::to_owned));
        let started_as = read("cmdline").split(|b| *b == 0).nth(1).map(<[u8]>::to_vec);
        parent.as_ref() == Some(&me) && started_as.as_deref() == Some(device::SUBCOMMAND.as_bytes())
    };
    let all = std::fs::read_dir("/proc").map_err(|e| e.to_string())?.flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(is_device).ok_or_else(|| "the device has no process".into())
}

/// Waits for a message, then stops the process for [`STOP`]. Returns when that time was over.
fn stop_when_told(told: &Receiver<()>, pid: u32) -> Result<Instant, String> {
    let pid = Pid::from_raw(pid.cast_signed());
    // It shares a processor with the tester, which never rests.
    let _priority = HighPriority::new();
    told.recv().map_err(|_| "the trial did not get to its middle")?;
    kill(pid, Signal::SIGSTOP).map_err(|e| format!("SIGSTOP: {e}"))?;
    std::thread::sleep(STOP);
    let over = Instant::now();
    kill(pid, Signal::SIGCONT).map_err(|e| format!("SIGCONT: {e}"))?;
    Ok(over)
}

/// Number of frames that the device itself has lost since it was brought up.
fn lost_by_itself(device: &mut ProgramDut) -> Result<u64, String> {
    let counters = device.counters().map_err(|e| e.to_string())?;
    let count = |name: &str| counters.get(name).copied().ok_or(format!("the device does not count {name}"));
    Ok(count("truth.receive_overflow")? + count("truth.transmit_refused")?)
}

/// A trial, and what happened meanwhile.
struct Seen {
    trial: TrialRecord,
    /// Frames that the device itself lost.
    lost_by_itself: u64,
    /// True if no frame was sent after the stop, so that it cannot show.
    stopped_too_late: bool,
}

/// Runs the first trial of a test with full monitoring of the host.
fn trial(device: &mut ProgramDut, suite: &Suite, case: &Case) -> Result<Seen, String> {
    let clock = SystemClock::start();
    let families = [Family::Ipv4];
    let (half_sent, told) = channel();
    let names: Vec<String> = device.interfaces().iter().map(|interface| interface.name.clone()).collect();
    let all = (case.rate_pps * SECONDS) as usize;
    let most_sent = Arc::new(OnceLock::new());
    let open = |i: usize| -> Result<Box<dyn Port>, String> {
        let inner = AfPacket::open(&names[i], clock).map_err(|e| e.to_string())?;
        let left = (i == 0 && case.stopped).then_some([all / 2, all * 9 / 10]);
        Ok(Box::new(Counted { inner, left, half_sent: half_sent.clone(), most_sent: most_sent.clone() }))
    };
    let ports = Ports::One { ports: vec![open(0)?, open(1)?], clock: Box::new(clock) };
    let rig = Rig::new(ports, &config::hosts(&suite.ports, &families, suite.seed));
    let mut session = Session::new(suite.seed, suite.profile, 5);
    // The trial is not repeated here, because only the first one has a stop.
    let mut memory = Memory { stop_after: Some(1), ..Memory::default() };
    let pid = device_process()?;
    let before = lost_by_itself(device)?;
    let over = std::thread::scope(|scope| {
        let stopping = case.stopped.then(|| scope.spawn(move || stop_when_told(&told, pid)));
        {
            let mut bed = TestSetup::new("box", &suite.ports, rig, device, &mut session, &mut memory);
            let method = drophammer_methods::find("throughput").unwrap();
            let params = drophammer_suite::defaults(method.spec().params, drophammer_model::suite::Profile::Quick);
            bed.begin_test(method, &params, bed.left);
            bed.await_forwarding(&families).map_err(|e| format!("before the trial: {e}"))?;
            let size = "64".parse().map_err(|e| format!("{e:?}"))?;
            let pattern = Pattern::one_way(size, families.to_vec(), 0.3);
            let load = Load::Constant { rate_pps: case.rate_pps };
            let spec = pattern.trial(bed.ports(), case.name.into(), load, SECONDS).map_err(|e| e.to_string())?;
            // The record reports it if other programs spoil the trial.
            let _ = bed.trial(&spec);
        }
        // No sender remains that could request a stop of the process.
        drop(half_sent);
        stopping
            .map(|stopping| stopping.join().map_err(|_| "the thread that stops the device died".to_owned())?)
            .transpose()
    })?;
    let trial = memory.trials().first().map(|trial| (*trial).clone()).ok_or("no trial was stored")?;
    // Frames were sent during the whole stop, or else the machine was too busy to stop the device in time.
    let stopped_too_late = over.is_some_and(|over| most_sent.get().is_none_or(|most_sent| *most_sent < over));
    Ok(Seen { trial, lost_by_itself: lost_by_itself(device)? - before, stopped_too_late })
}

fn judge(case: &Case, Seen { trial, lost_by_itself, .. }: &Seen) -> Checked {
    let group = &trial.result.groups[0];
    let (lost, refused, latest) = (group.lost, group.refused, group.latency.max_ns);
    println!("    valid; {lost} of {} frames lost, the latest came after {latest} ns", group.offered);
    if !case.stopped {
        return check(lost == 0 && latest < LATE_NS, || "late or lossy without a stop".into());
    }
    check(lost > 0 || latest >= LATE_NS, || "the stop does not show".into())?;
    check(lost <= refused + *lost_by_itself, || {
        format!("{lost} frames lost, {refused} refused by the device's link and {lost_by_itself} lost within it")
    })
}

fn run(device: &mut ProgramDut, suite: &Suite, case: &Case) -> Checked {
    let mut last = String::new();
    for attempt in 1..=TRIES {
        let seen = trial(device, suite, case)?;
        let proves = seen.trial.result.validity.is_valid() && !seen.stopped_too_late;
        let result = match &seen.trial.result.validity {
            Validity::Invalid(reasons) => Err(reasons.join("; ")),
            Validity::Valid if seen.stopped_too_late => Err("the stop came after the frames".into()),
            Validity::Valid => judge(case, &seen),
        };
        match (result, proves && case.stopped) {
            (Ok(()), _) => return Ok(()),
            // The result must be a valid trial with a stop.
            (Err(e), true) => return Err(e),
            (Err(e), false) => {
                println!("    attempt {attempt}, again: {e}");
                last = e;
            }
        }
    }
    Err(format!("none of {TRIES} trials was valid; the last: {last}"))
}

fn bring_up(lab: &Lab, suite: &Suite, folder: &Path) -> Result<ProgramDut, String> {
    device::bring_up(lab, &suite.duts[0], &suite.ports, suite.seed, folder, &|| false).map_err(|e| e.to_string())
}

/// A case for each load.
pub fn cases() -> Vec<anew::Case> {
    CASES
        .iter()
        .enumerate()
        .map(|(at, case)| {
            let whole = anew::Case::in_lab(case.name, move |lab| {
                let (suite, folder) = (suite(), tempfile::tempdir().map_err(|e| e.to_string())?);
                let mut device = bring_up(lab, &suite, folder.path())?;
                let result = run(&mut device, &suite, case);
                result.and(Box::new(device).take_down().map_err(|e| e.to_string()))
            });
            if at == 1 { whole } else { whole.long() }
        })
        .collect()
}
