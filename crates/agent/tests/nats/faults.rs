//! Faults of hosts, server and network: each trial is complete or void, and traffic stops without its controller.

use crate::anew::Checked;
use crate::bench::{
    Bed, Bench, COUNTS, DURATION, LONG, ORDINARY, PORTS, SILENCE, agent, agents, driver, ensure, rig, sent, signal,
    spec, trials, until, whole,
};
use crate::{bounded, slow, twice};
use drophammer_model::trial::GroupCounts;
use drophammer_rig::RigError;
use std::process::Command;
use std::time::{Duration, Instant};

/// Tolerance for detecting that traffic has stopped, because the machine may be busy. An agent that did not know the limit would
/// send far longer: until its ports are no longer leased.
pub const SLACK: Duration = Duration::from_secs(3);
/// Longest time for which a busy machine keeps a sender from sending.
const PAUSE: Duration = Duration::from_millis(500);
/// Steps of a wall clock, each in a trial.
const STEPS: u64 = 10;

/// Waits until none of the interfaces sends any more. Returns how long after `from` each of them sent its last frame.
fn quiet<const N: usize>(interfaces: [&str; N], from: Instant) -> Result<[Duration; N], String> {
    let mut last = interfaces.map(|interface| (sent(interface), from));
    until("quiet", || {
        for (interface, (frames, at)) in interfaces.iter().zip(&mut last) {
            let now = sent(interface);
            if now != *frames {
                (*frames, *at) = (now, Instant::now());
            }
        }
        // A port may begin as late as its start was agreed for.
        from.elapsed() > SILENCE + PAUSE && last.iter().all(|(_, at)| at.elapsed() > PAUSE)
    })?;
    Ok(last.map(|(_, at)| at.saturating_duration_since(from)))
}

/// Waits until both ports are quiet, and fails if one of them has sent for longer than `most` since `from`.
pub fn stop_within(most: Duration, from: Instant) -> Result<[Duration; 2], String> {
    let stopped = quiet(PORTS, from)?;
    ensure(
        stopped.iter().all(|after| *after < most),
        format!("{PORTS:?} sent for {stopped:?} without the controller"),
    )?;
    Ok(stopped)
}

pub fn controller_killed() -> Checked {
    // A limit shorter than the default also works: traffic stops before the default is over. A busy machine can delay that, or have no
    // traffic when the controller is killed, but not every time.
    const TRIES: u32 = 4;
    for (silence, most) in [(SILENCE, SILENCE + SLACK), (Duration::from_millis(300), SILENCE / 2)] {
        let mut tried = 0;
        loop {
            tried += 1;
            let stopped = stops_after(silence)?;
            eprintln!(
                "limit {silence:?}, attempt {tried}: {PORTS:?} stopped {stopped:?} after the controller was killed"
            );
            if stopped.iter().all(|after| *after < most) && stopped.iter().any(|after| !after.is_zero()) {
                break;
            }
            ensure(tried < TRIES, format!("no traffic stopped within {most:?}, in {TRIES} attempts"))?;
        }
    }
    Ok(())
}

/// Kills the controller. Returns how long each port went on sending.
fn stops_after(silence: Duration) -> Result<[Duration; 2], String> {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let mut driver = driver(&bed, silence)?;
    until("traffic", || PORTS.iter().all(|port| sent(port) > 1_000))?;
    let killed = Instant::now();
    driver.0.kill().map_err(|e| e.to_string())?;
    let stopped = stop_within(silence + SLACK, killed)?;
    // The leases expire by themselves, and another controller can use the ports.
    let mut bench = None;
    until("the leases end", || {
        bench = rig(&bed, "the next").ok();
        bench.is_some()
    })?;
    whole(&mut bench.ok_or("no rig")?)?;
    Ok(stopped)
}

pub fn agent_killed() -> Checked {
    let bed = Bed::up()?;
    let _first = agent(&bed, "host1", "t0", &[])?;
    let mut second = agent(&bed, "host2", "t1", &[])?;
    let mut bench = rig(&bed, "tester")?;
    for attempt in 1..=2 {
        bench.under_way(&spec(Duration::from_secs(600)))?;
        second.0.kill().map_err(|e| e.to_string())?;
        let Err(why) = bench.finish() else { return Err("a trial without one of its hosts has a result".into()) };
        ensure(why.contains("host2"), format!("attempt {attempt}: {why}"))?;
        quiet(["t0"], Instant::now()).map_err(|_| "the other host keeps running")?;
        second = agent(&bed, "host2", "t1", &[])?;
        whole(&mut bench)?;
    }
    Ok(())
}

/// The user stops while a trial waits for a host that is gone.
pub fn user_stops() -> Checked {
    let bed = Bed::up()?;
    let _first = agent(&bed, "host1", "t0", &[])?;
    let mut second = agent(&bed, "host2", "t1", &[])?;
    let mut bench = rig(&bed, "tester")?;
    second.0.kill().and_then(|()| second.0.wait()).map_err(|e| e.to_string())?;
    bench.start(&spec(DURATION))?;
    let begun = Instant::now();
    let ended = bench.rig.finish(&|| begun.elapsed() > Duration::from_secs(1));
    ensure(matches!(ended, Err(RigError::Stopped)), format!("{ended:?}"))?;
    // It would wait 45 s for the host.
    ensure(begun.elapsed() < Duration::from_secs(20), format!("stopped after {:?}", begun.elapsed()))?;
    drop(bench);
    let _second = agent(&bed, "host2", "t1", &[])?;
    let mut next = None;
    until("the ports are free", || {
        next = rig(&bed, "the next").ok();
        next.is_some()
    })?;
    whole(next.as_mut().ok_or("no rig")?)
}

/// The server is stopped, as if the network were cut: for half a second, for five seconds, and for good.
pub fn server_stopped() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let mut bench = rig(&bed, "tester")?;
    for cut in [Duration::from_millis(500), Duration::from_secs(5)] {
        bench.under_way(&spec(Duration::from_secs(8)))?;
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
    bench.under_way(&spec(Duration::from_secs(600)))?;
    let cut = Instant::now();
    bed.signal("-STOP")?;
    stop_within(SILENCE + SLACK, cut)?;
    ensure(bench.finish().is_err(), "a trial that was cut off for good has a result")
}

pub fn server_restarted() -> Checked {
    let bed = Bed::up()?;
    let _agents = agents(&bed)?;
    let mut bench = rig(&bed, "tester")?;
    for _ in 0..3 {
        bench.under_way(&spec(Duration::from_secs(3)))?;
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

/// Host 2 reaches the server slowly, and in one direction only, which is the worst case for comparing clocks.
pub fn slow_network() -> Checked {
    let way = Duration::from_millis(50);
    let url = |bed: &Bed, back| slow::relay(bed.server.listen, way, back).map(|address| format!("nats://{address}"));
    let least = way.as_nanos() as u64 / 2;
    {
        let bed = Bed::up()?;
        let one_way = url(&bed, Duration::ZERO)?;
        let host1 = agent(&bed, "host1", "t0", &[("CLOCK", "one")])?;
        let _hosts = [host1, agent(&bed, "host2", "t1", &[("CLOCK", "two"), ("URL", &one_way)])?];
        let result = rig(&bed, "tester")?.complete(&spec(Duration::from_millis(500)))?;
        ensure((result.offered(), result.received()) == (2_000, 2_000), format!("{:?}", result.groups))?;
        let between = result.health.between_hosts.clone().ok_or("no conditions between hosts")?;
        eprintln!("50 ms in one direction: {between:?}");
        // In truth both have one clock, and the estimate is wrong by half of the delay. The figures say so. One direction
        // then seems to arrive before it was sent. The other seems to take at most the uncertainty longer than it did, which
        // a busy machine can lift above the uncertainty.
        ensure(between.clock_uncertainty_ns >= least && between.start_skew_ns >= least, format!("{between:?}"))?;
        ensure(between.one_way_ns >= least && !between.unmeasurable.is_empty(), format!("{between:?}"))?;
        let long = |group: &GroupCounts| group.latency.max_ns > 1_000_000_000;
        ensure(!result.groups.iter().any(long), format!("{:?}", result.groups))?;
        bounded(&result)?;
    }
    let bed = Bed::up()?;
    let both_ways = url(&bed, way)?;
    let _hosts = [agent(&bed, "host1", "t0", &[])?, agent(&bed, "host2", "t1", &[("URL", &both_ways)])?];
    let result = rig(&bed, "tester")?.complete(&spec(Duration::from_millis(500)))?;
    ensure((result.offered(), result.received()) == (2_000, 2_000), format!("{:?}", result.groups))?;
    let between = result.health.between_hosts.clone().ok_or("no conditions between hosts")?;
    eprintln!("50 ms in both directions, one clock: {between:?}");
    ensure((between.clock_uncertainty_ns, between.start_skew_ns) == (0, 0), format!("{between:?}"))?;
    ensure(between.one_way_ns >= 2 * least, format!("{between:?}"))
}

/// Everything is said three times more. Each trial is whole and stored once, and old signs of life are none.
pub fn messages_repeated() -> Checked {
    let bed = Bed::up()?;
    let _again = twice::repeat(&bed)?;
    let _agents = agents(&bed)?;
    let mut bench = rig(&bed, "tester")?;
    for trial in 1..=6 {
        let before = bed.records()?;
        whole(&mut bench)?;
        let records = bed.records()? - before;
        ensure(records == 2, format!("{records} records of trial {trial} on two hosts"))?;
    }
    drop(bench);
    let mut driver = driver(&bed, SILENCE)?;
    let before = PORTS.map(sent);
    until("traffic", || PORTS.iter().zip(before).all(|(port, before)| sent(port) > before + 1_000))?;
    let killed = Instant::now();
    driver.0.kill().map_err(|e| e.to_string())?;
    stop_within(SILENCE + SLACK, killed).map(drop)
}

/// What a process needs so that SIGUSR1 adds a second to its steady clock, which then has a name of its own.
pub fn steps(bed: &Bed) -> Result<Vec<(&'static str, String)>, String> {
    Ok([preloaded(bed)?, vec![("CLOCK", "two".into())]].concat())
}

/// What a process needs so that SIGUSR1 adds a second to its steady clock.
pub fn preloaded(bed: &Bed) -> Result<Vec<(&'static str, String)>, String> {
    let (source, library) = (bed.server.folder.join("step.c"), bed.server.folder.join("step.so"));
    std::fs::write(&source, include_str!("step.c")).map_err(|e| e.to_string())?;
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    ensure(compiled.is_ok_and(|status| status.success()), "cc cannot compile step.c")?;
    let library = library.display().to_string();
    Ok(vec![("LD_PRELOAD", library), ("STEP_NS", "1000000000".into())])
}

/// The steady clock of a host jumps by a second during a trial, as if its virtual machine were moved.
pub fn clock_stepped() -> Checked {
    let bed = Bed::up()?;
    let steps = steps(&bed)?;
    let steps: Vec<(&str, &str)> = steps.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let first = agent(&bed, "host1", "t0", &[("CLOCK", "one")])?;
    let second = agent(&bed, "host2", "t1", &steps)?;
    let mut bench = rig(&bed, "tester")?;
    whole(&mut bench)?;
    for _ in 0..2 {
        bench.under_way(&spec(Duration::from_secs(3)))?;
        signal(second.0.id(), "-USR1")?;
        let void = bench.finish().err().ok_or("a trial in which a clock jumped has a result")?;
        eprintln!("clock stepped: {void}");
        ensure(void.contains("moved against each other by"), void)?;
        whole(&mut bench)?;
    }
    // Between trials, the clock is set again and nothing is void.
    signal(second.0.id(), "-USR1")?;
    let result = bench.complete(&spec(Duration::from_millis(500)))?;
    ensure((result.offered(), result.received()) == (2_000, 2_000), format!("{:?}", result.groups))?;
    let between = result.health.between_hosts.ok_or("no conditions between hosts")?;
    ensure(Duration::from_nanos(between.clock_uncertainty_ns) < LONG / 100, format!("{between:?}"))?;
    drop((first, second));
    Ok(())
}

/// Ten steps of the wall clock of a host by a second, each during a trial, and ten of the controller's: every trial is whole. If
/// frames are stamped by the wall clock, the step is in the health of the trial, which makes it invalid for a test.
pub fn wall_clock_stepped() -> Checked {
    let bed = Bed::up()?;
    let mut steps = preloaded(&bed)?;
    // On a busy machine, threads that may come before everything else would keep heartbeats from being heard.
    steps.extend([("STEP_WALL", "1".into()), (ORDINARY, String::new())]);
    let steps: Vec<(&str, &str)> = steps.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let _first = agent(&bed, "host1", "t0", &[(ORDINARY, "")])?;
    let second = agent(&bed, "host2", "t1", &steps)?;
    let mut bench = rig(&bed, "tester")?;
    for trial in 1..=STEPS {
        let stepped = |bench: &mut Bench| {
            bench.under_way(&spec(DURATION))?;
            signal(second.0.id(), "-USR1")?;
            bench.finish()
        };
        let result = bench.when_ready(stepped)?;
        let counts = (result.intended(), result.offered(), result.received(), result.lost());
        ensure(counts == COUNTS, format!("trial {trial}: {counts:?} {:?}", result.health))?;
        let step_ns = result.health.clock_step_ns;
        ensure(step_ns.abs_diff(1_000_000_000) < 500_000_000, format!("trial {trial}: a step of {step_ns} ns"))?;
    }
    drop(bench);
    let before = sent("t0");
    let mut trials = trials(&bed, &steps)?;
    for step in 0..STEPS {
        // In the middle of each trial. The controller has further trials until it is told that this is enough.
        until("the next trial", || sent("t0") >= before + step * 2_400 + 1_200 || !trials.runs())?;
        ensure(trials.runs(), "the controller has ended early")?;
        signal(trials.0.id(), "-USR1")?;
    }
    // Waiting closes its standard input.
    let ended = trials.0.wait().map_err(|e| e.to_string())?;
    ensure(ended.success(), format!("the controller whose wall clock was stepped: {ended}"))
}
