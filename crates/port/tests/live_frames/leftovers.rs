//! A process that is killed while the kernel generates frames for it, and the interface counters that show the effect.

use crate::trial::{Nobody, plan};
use crate::{Bench, Checked, check, flow, spec};
use drophammer_model::trial::{Family, Load};
use drophammer_port::af_packet::AfPacket;
use drophammer_port::live_frames::LiveFrames;
use drophammer_port::{Port, SystemClock};
use drophammer_wire::MacAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// Argument of the process that is killed.
pub const TO_KILL: &str = "--to-be-killed";

/// Number of interfaces in this namespace that ports have created.
fn taps() -> usize {
    let entries = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    entries.lines().filter(|l| l.trim_start().starts_with("dhlive")).count()
}

/// A receive counter of `t1`.
fn statistic(place: usize) -> u64 {
    let lines = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let line = lines.lines().find_map(|l| l.trim_start().strip_prefix("t1:"));
    line.and_then(|l| l.split_whitespace().nth(place)).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Frames that `t1` has received.
pub fn received() -> u64 {
    statistic(1)
}

/// Frames for which the ring of `t1` had no room.
pub fn dropped() -> u64 {
    statistic(3)
}

fn await_that(what: &str, mut is: impl FnMut() -> bool) -> Checked {
    let start = std::time::Instant::now();
    while !is() {
        check(start.elapsed() < Duration::from_secs(20), || format!("{what} did not happen within 20 s"))?;
        std::thread::yield_now();
    }
    Ok(())
}

/// Runs this program again; it sends until it is killed.
pub fn killed(_: &Bench) -> Checked {
    check(taps() == 0, || "there is a tap before".into())?;
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child: Child =
        Command::new(me).arg(TO_KILL).stdout(Stdio::null()).spawn().map_err(|e| format!("this program: {e}"))?;
    let before = received();
    let sent = await_that("the first thousand frames", || received() > before + 1_000);
    let there = taps();
    let ended = child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string());
    sent.and(ended.map(drop))?;
    check(there == 1, || format!("{there} taps while it ran"))?;
    await_that("the end of the tap", || taps() == 0)?;
    let mut last = received();
    await_that("the end of the frames", || {
        std::thread::sleep(Duration::from_millis(50));
        let now = received();
        std::mem::replace(&mut last, now) == now
    })
}

/// Runs in the namespace of the parent, and ends with it.
pub fn send_for_ever() -> ExitCode {
    let clock = SystemClock::start();
    let port = LiveFrames::open("t0", clock).and_then(|port| {
        let bench: [Box<dyn Port>; 2] = [Box::new(port), Box::new(AfPacket::open("lo", clock)?)];
        Ok(bench)
    });
    let Ok(mut ports) = port else { return ExitCode::FAILURE };
    let flows = vec![flow("all", Family::Ipv4, 1_000, 1.0)];
    let spec = spec("64", flows, Load::Constant { rate_pps: 10_000.0 }, 600.0);
    let Ok(plan) = plan(&spec, [0, 1].map(MacAddr::local), 1, 20_000_000) else { return ExitCode::FAILURE };
    let result = drophammer_traffic::run(plan, &mut ports, &mut { clock }, &mut Nobody(None));
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
