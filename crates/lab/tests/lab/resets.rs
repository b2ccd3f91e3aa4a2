//! Daemons that are stopped and come back with the same state.

use super::{Checked, ensure, memory_of, ports, up};
use drophammer_lab::{Dut, Lab, find};
use drophammer_model::Instant;
use drophammer_model::reset::{ResetDone, ResetKind};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, ParamValue, Params};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Names of the daemons and their process ids.
fn daemons(dut: &mut dyn Dut) -> (BTreeSet<String>, usize) {
    let memory = memory_of(dut);
    (memory.iter().map(|(name, _)| name.clone()).collect(), memory.len())
}

fn over(dut: &mut dyn Dut) -> Result<ResetDone, String> {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        let resets = dut.resets().ok_or("it cannot be reset any more")?;
        if let Some(done) = resets.done(Instant(0)) {
            return Ok(done);
        }
        ensure(std::time::Instant::now() < deadline, "the reset ends")?;
        std::thread::yield_now();
    }
}

/// Resets a router of `kind` by asking its daemons to end and by killing them.
pub fn reset(lab: &mut Lab, kind: &str, work: &Path) -> Checked {
    let mut dut = up(lab, kind, work)?;
    let before = daemons(&mut *dut);
    for how in [ResetKind::Software, ResetKind::Process] {
        let after = Duration::from_millis(500);
        dut.resets().ok_or("it can be reset")?.begin(how, Instant(0), after).map_err(|e| e.to_string())?;
        let again = dut.resets().ok_or("it is being reset")?.begin(how, Instant(0), after);
        ensure(again.is_err_and(|e| e.to_string().contains("in progress")), "one reset at a time")?;
        dut.check().map_err(|e| format!("nobody died: {e}"))?;
        let done = over(&mut *dut)?;
        println!("{how:?}: {done:?}");
        ensure(done.problem.is_none() && done.began >= after && done.ended > done.began, "it came back")?;
        ensure(daemons(&mut *dut) == before, "the same daemons")?;
        dut.check().map_err(|e| format!("they live: {e}"))?;
    }
    let link = dut.resets().ok_or("it can be reset")?.begin(ResetKind::Link, Instant(0), Duration::ZERO);
    ensure(link.is_err(), "only the tester resets a link")?;
    // A pending reset ends with the router, and does not begin after it is cancelled.
    let far = Duration::from_secs(600);
    dut.resets().ok_or("it can be reset")?.begin(ResetKind::Process, Instant(0), far).map_err(|e| e.to_string())?;
    let start = std::time::Instant::now();
    dut.take_down().map_err(|e| e.to_string())?;
    ensure(start.elapsed() < far / 10, "taken down immediately")?;
    let none = up(lab, "linux", work)?.resets().is_none();
    ensure(none, "the kernel has no daemon to restart")
}

/// A router of `kind` with an SNMP agent and an SSH server.
fn with_servers(lab: &mut Lab, kind: &str, work: &Path) -> Result<Box<dyn Dut>, String> {
    let params = Params(["snmp", "ssh"].map(|key| (key.to_owned(), ParamValue::Flag(true))).into());
    let config = DutConfig { name: format!("{kind}-served"), kind: kind.into(), params, topology: None };
    let found = find(kind).ok_or("no such kind")?;
    found.bring_up(lab, &config, &RouterRole::of(&ports()), work, &|| false).map_err(|e| e.to_string())
}

/// The SNMP agent and the SSH server are not part of the router: a reset neither ends them nor waits for them.
pub fn beside(lab: &mut Lab, work: &Path) -> Checked {
    let mut linux = with_servers(lab, "linux", work)?;
    ensure(linux.resets().is_none(), "the servers are not daemons of the router")?;
    linux.take_down().map_err(|e| e.to_string())?;
    let mut bird = with_servers(lab, "bird", work)?;
    // The SSH server has further processes while it answers, so only names are compared.
    let runs = |names: &BTreeSet<String>| ["bird", "snmpd", "dropbear"].map(|name| names.contains(name));
    let before = daemons(&mut *bird).0;
    ensure(runs(&before) == [true; 3], &format!("before the reset: {before:?}"))?;
    // Unknown where the kernel does not show the forwarding threads.
    let times = |dut: &mut dyn Dut| {
        dut.usage().map_or((false, false), |usage| (usage.cpu_time().is_some(), usage.threads().is_some()))
    };
    let known = times(&mut *bird);
    let resets = bird.resets().ok_or("it can be reset")?;
    resets.begin(ResetKind::Process, Instant(0), Duration::ZERO).map_err(|e| e.to_string())?;
    let during = daemons(&mut *bird).0;
    ensure(runs(&during) == [false, true, true], &format!("during the reset: {during:?}"))?;
    ensure(
        bird.usage().and_then(|usage| usage.router_memory()).is_none(),
        "the memory of a router without its daemons is not known",
    )?;
    ensure(times(&mut *bird) == (false, false), "the times of a router without its daemons are not known")?;
    let done = over(&mut *bird)?;
    ensure(done.problem.is_none() && done.what == "bird", &format!("{done:?}"))?;
    let after = daemons(&mut *bird).0;
    ensure(runs(&after) == [true; 3], &format!("after the reset: {after:?}"))?;
    ensure(times(&mut *bird) == known, "the times are known again")?;
    bird.known_counters().map_err(|e| format!("the agent answers: {e}"))?;
    bird.take_down().map_err(|e| e.to_string())
}
