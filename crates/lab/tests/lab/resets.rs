//! Daemons that are ended and come back with the same state.

use super::{Checked, ensure, up};
use drophammer_lab::{Dut, Lab};
use drophammer_model::Instant;
use drophammer_model::reset::{ResetDone, ResetKind};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Names of the daemons and their process ids.
fn daemons(dut: &mut dyn Dut) -> (BTreeSet<String>, usize) {
    let memory = dut.memory();
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

/// A router of `kind` whose daemons are asked to end, killed, and left alone.
pub fn reset(lab: &mut Lab, kind: &str, work: &Path) -> Checked {
    let mut dut = up(lab, kind, work)?;
    let before = daemons(&mut *dut);
    for how in [ResetKind::Software, ResetKind::Process] {
        let after = Duration::from_millis(30);
        dut.resets().ok_or("it can be reset")?.begin(how, Instant(0), after).map_err(|e| e.to_string())?;
        let again = dut.resets().ok_or("it is being reset")?.begin(how, Instant(0), after);
        ensure(again.is_err_and(|e| e.to_string().contains("under way")), "one reset at a time")?;
        dut.check().map_err(|e| format!("nobody died: {e}"))?;
        let done = over(&mut *dut)?;
        println!("{how:?}: {done:?}");
        ensure(done.problem.is_none() && done.began >= after && done.ended > done.began, "it came back")?;
        ensure(daemons(&mut *dut) == before, "the same daemons")?;
        dut.check().map_err(|e| format!("they live: {e}"))?;
    }
    let link = dut.resets().ok_or("it can be reset")?.begin(ResetKind::Link, Instant(0), Duration::ZERO);
    ensure(link.is_err(), "a link is the tester's to reset")?;
    // A pending reset does not outlive the router, nor begin after it was cancelled.
    let far = Duration::from_secs(600);
    dut.resets().ok_or("it can be reset")?.begin(ResetKind::Process, Instant(0), far).map_err(|e| e.to_string())?;
    let start = std::time::Instant::now();
    dut.take_down().map_err(|e| e.to_string())?;
    ensure(start.elapsed() < Duration::from_secs(10), "taken down at once")?;
    let none = up(lab, "linux", work)?.resets().is_none();
    ensure(none, "the kernel has no daemon to restart")
}
