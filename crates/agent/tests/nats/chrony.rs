//! chronyd, as a time source and as its client, both without the right to set the clock. All hosts share the wall clock of
//! this machine, so in truth their clocks do not differ.

use crate::anew::Checked;
use crate::bench::{Bed, ORDINARY, Process, agent, ensure, rig, signal, spec, until};
use crate::{faults, slow};
use drophammer_agent::chrony::wall;
use drophammer_model::trial::{BetweenHosts, TrialResult};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Delay of all messages from the second host.
const WAY: Duration = Duration::from_millis(50);
/// Far less than the uncertainty that this delay alone would cause, and more than that of chrony on a busy machine.
const NARROW_NS: u64 = 10_000_000;

fn daemon(bed: &Bed, name: &str, lines: &str) -> Result<Process, String> {
    let file = |kind: &str| bed.server.folder.join(format!("{name}.{kind}"));
    // Both would have the same socket in the file system, so neither has one: chronyc asks the client over the loopback interface.
    let text = format!("{lines}\nbindcmdaddress /\npidfile {}\n", file("pid").display());
    std::fs::write(file("conf"), text).map_err(|e| e.to_string())?;
    let mut command = Command::new("chronyd");
    // -x: it does not touch the clock. -d: it stays in the foreground.
    command.args(["-x", "-d", "-u", "root", "-f"]).arg(file("conf")).stdin(Stdio::null()).stdout(Stdio::null());
    let started = command.stderr(Stdio::null()).spawn();
    started
        .map(Process)
        .map_err(|e| format!("chronyd: {e}; put it and chronyc into the PATH (`scripts/setup test-long` unpacks both)"))
}

/// Starts a time source and a client that every host of this namespace asks.
fn chrony(bed: &Bed) -> Result<[Process; 2], String> {
    let source = daemon(bed, "source", "local stratum 1\nallow 127.0.0.1\nport 1123\ncmdport 0")?;
    let client = daemon(bed, "client", "server 127.0.0.1 port 1123 minpoll -2 maxpoll -2 iburst\nport 0")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    until("chrony", || runtime.block_on(wall()).is_some_and(|wall| wall.error_ns < NARROW_NS / 4))?;
    Ok([source, client])
}

/// Runs a trial on two hosts with clocks of their own. The wall clock of the second one is ahead by `ahead`; if `far`, its messages
/// are slow.
fn trial(far: bool, ahead: Duration) -> Result<TrialResult, String> {
    let bed = Bed::up()?;
    let _chrony = chrony(&bed)?;
    let relay = slow::relay(bed.server.listen, WAY, Duration::ZERO)?;
    let mut variables = faults::preloaded(&bed)?;
    variables.retain(|(name, _)| *name != "STEP_NS");
    variables.extend([
        ("STEP_NS", ahead.as_nanos().to_string()),
        ("STEP_WALL", "1".into()),
        ("CLOCK", "two".into()),
        // The kernel does not know that this wall clock differs, so it must not stamp arrivals.
        ("STEADY_STAMPS", String::new()),
        (ORDINARY, String::new()),
    ]);
    variables.extend(far.then(|| ("URL", format!("nats://{relay}"))));
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let _first = agent(&bed, "host1", "t0", &[("CLOCK", "one"), (ORDINARY, "")])?;
    let second = agent(&bed, "host2", "t1", &variables)?;
    if !ahead.is_zero() {
        signal(second.0.id(), "-USR1")?;
    }
    let result = rig(&bed, "tester")?.complete(&spec(Duration::from_millis(500)))?;
    ensure((result.offered(), result.received()) == (2_000, 2_000), format!("{:?}", result.groups))?;
    Ok(result)
}

fn between(result: &TrialResult) -> Result<BetweenHosts, String> {
    let between = result.health.between_hosts.clone().ok_or("no conditions between hosts")?;
    eprintln!("{between:?}");
    Ok(between)
}

/// Returns what chrony says about the second host: true if it is contradicted.
fn contradicted(between: &BetweenHosts) -> Result<bool, String> {
    let chrony = between.each.get(1).and_then(|host| host.chrony);
    Ok(chrony.ok_or(format!("chrony says nothing: {between:?}"))?.contradicted)
}

/// Messages alone would leave an uncertainty of 25 ms.
pub fn narrows() -> Checked {
    let between = between(&trial(true, Duration::ZERO)?)?;
    ensure(!contradicted(&between)? && !between.clocks_refuted, format!("{between:?}"))?;
    let second = between.each[1].clock_uncertainty_ns;
    ensure(between.one_way_ns >= WAY.as_nanos() as u64 / 2 && second < NARROW_NS, format!("{between:?}"))
}

/// A wall clock is wrong by a second, which messages show.
pub fn is_contradicted() -> Checked {
    let between = between(&trial(false, Duration::from_secs(1))?)?;
    ensure(contradicted(&between)? && !between.clocks_refuted, format!("{between:?}"))
}

/// A wall clock is wrong by 20 ms, which messages do not show, but frames do.
pub fn is_refuted() -> Checked {
    let result = trial(true, Duration::from_millis(20))?;
    let between = between(&result)?;
    ensure(!contradicted(&between)? && between.clocks_refuted, format!("{between:?}"))?;
    ensure(between.unmeasurable.len() == 2, format!("{between:?}"))?;
    ensure(result.groups.iter().all(|group| group.latency.frames == 0), format!("{:?}", result.groups))
}
