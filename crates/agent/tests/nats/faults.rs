//! Faults of hosts, server and network: each trial is complete or void, and traffic stops without its controller.

use crate::anew::Checked;
use crate::bench::{Bed, SILENCE, agent, driver, ensure, rig, sent, spec, until, whole};
use std::time::{Duration, Instant};

/// Tolerance for detecting that traffic has stopped, because the machine may be busy.
const SLACK: Duration = Duration::from_millis(500);

/// Waits until an interface has sent nothing for 200 ms. Returns when it sent the last frame.
fn quiet(interface: &str) -> Result<Instant, String> {
    let (mut last, mut at) = (sent(interface), Instant::now());
    until("quiet", || {
        let now = sent(interface);
        if now != last {
            (last, at) = (now, Instant::now());
        }
        at.elapsed() > Duration::from_millis(200)
    })?;
    Ok(at)
}

pub fn controller_killed() -> Checked {
    // A limit shorter than the default also works.
    stops_within(SILENCE)?;
    stops_within(Duration::from_millis(300))
}

fn stops_within(silence: Duration) -> Checked {
    let bed = Bed::up()?;
    let _agents = [agent(&bed, "host1", "t0", &[])?, agent(&bed, "host2", "t1", &[])?];
    let mut driver = driver(&bed, silence)?;
    until("traffic", || sent("t0") > 1_000 && sent("t1") > 1_000)?;
    let killed = Instant::now();
    driver.0.kill().map_err(|e| e.to_string())?;
    for interface in ["t0", "t1"] {
        let stopped = quiet(interface)?.saturating_duration_since(killed);
        ensure(stopped < silence + SLACK, format!("{interface} sent for {stopped:?} without its controller"))?;
        eprintln!("{interface} stopped {stopped:?} after the controller was killed");
    }
    // The leases expire by themselves, and another controller can use the ports.
    let mut bench = None;
    until("the leases end", || {
        bench = rig(&bed, "the next").ok();
        bench.is_some()
    })?;
    whole(&mut bench.ok_or("no rig")?)
}

pub fn agent_killed() -> Checked {
    let bed = Bed::up()?;
    let _first = agent(&bed, "host1", "t0", &[])?;
    let mut second = agent(&bed, "host2", "t1", &[])?;
    let mut bench = rig(&bed, "tester")?;
    for attempt in 1..=2 {
        bench.start(&spec(Duration::from_secs(600)))?;
        let end = bench.rig.now() + Duration::from_millis(700);
        bench.rig.drive(end, &|| false).map_err(|e| e.to_string())?;
        second.0.kill().map_err(|e| e.to_string())?;
        let Err(why) = bench.finish() else { return Err("a trial without one of its hosts has a result".into()) };
        ensure(why.contains("host2"), format!("attempt {attempt}: {why}"))?;
        let stopped = quiet("t0");
        ensure(stopped.is_ok(), "the other host keeps running")?;
        second = agent(&bed, "host2", "t1", &[])?;
        whole(&mut bench)?;
    }
    Ok(())
}

/// The server is stopped, as if the network were cut: for half a second, for five seconds, and for good.
pub fn server_stopped() -> Checked {
    let bed = Bed::up()?;
    let _agents = [agent(&bed, "host1", "t0", &[])?, agent(&bed, "host2", "t1", &[])?];
    let mut bench = rig(&bed, "tester")?;
    for cut in [Duration::from_millis(500), Duration::from_secs(5)] {
        bench.start(&spec(Duration::from_secs(8)))?;
        let end = bench.rig.now() + Duration::from_secs(1);
        bench.rig.drive(end, &|| false).map_err(|e| e.to_string())?;
        bed.signal("-STOP")?;
        std::thread::sleep(cut);
        bed.signal("-CONT")?;
        match bench.finish() {
            Ok(result) => {
                let counts = (result.offered(), result.received());
                ensure(counts == (32_000, 32_000), format!("{counts:?} after a cut of {cut:?}"))?;
                ensure(cut < SILENCE, "traffic went on without its controller")?;
            }
            Err(why) => eprintln!("cut of {cut:?}: {why}"),
        }
        whole(&mut bench)?;
    }
    bench.start(&spec(Duration::from_secs(600)))?;
    let end = bench.rig.now() + Duration::from_secs(1);
    bench.rig.drive(end, &|| false).map_err(|e| e.to_string())?;
    let cut = Instant::now();
    bed.signal("-STOP")?;
    for interface in ["t0", "t1"] {
        let stopped = quiet(interface)?.saturating_duration_since(cut);
        ensure(stopped < SILENCE + SLACK, format!("{interface} sent for {stopped:?}"))?;
    }
    ensure(bench.finish().is_err(), "a trial that was cut off for good has a result")
}

pub fn server_restarted() -> Checked {
    let bed = Bed::up()?;
    let _agents = [agent(&bed, "host1", "t0", &[])?, agent(&bed, "host2", "t1", &[])?];
    let mut bench = rig(&bed, "tester")?;
    for _ in 0..3 {
        bench.start(&spec(Duration::from_secs(3)))?;
        let end = bench.rig.now() + Duration::from_secs(1);
        bench.rig.drive(end, &|| false).map_err(|e| e.to_string())?;
        drophammer_agent::bed::down(&bed.server.folder).map_err(|e| e.0)?;
        bed.server.up().map_err(|e| e.0)?;
        match bench.finish() {
            Ok(result) => {
                let counts = (result.offered(), result.received());
                ensure(counts == (12_000, 12_000), format!("{counts:?}"))?;
            }
            Err(why) => eprintln!("server restarted: {why}"),
        }
        whole(&mut bench)?;
    }
    let other = rig(&bed, "another").err().ok_or("two controllers hold the same ports")?;
    ensure(other.contains("is held by tester"), other)
}
