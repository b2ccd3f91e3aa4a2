//! A link between real routers (User Mode Linux) that loses frames at random. In each direction, the number of lost
//! frames must be plausible for this share, and netem must have counted each lost frame.

use crate::anew::{Case, Checked};
use crate::common::program::run_in_lab;
use drophammer_lab::Lab;
use drophammer_lab::kinds::uml;

/// Number of frames from each port to the other.
const FRAMES: u64 = 8_000;
/// Share of these frames that the link loses.
const LOSS: f64 = 0.02;
/// The loss may differ from its mean by this many standard deviations; chance exceeds that once in fifteen thousand
/// times.
const DEVIATIONS: f64 = 4.0;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

fn suite() -> String {
    let flow = |name: &str, from: &str, to: &str| {
        format!(
            "  - {{name: {name}, from: {from}, to: {to}, size: 128, rate: 1600 fps, frames: {FRAMES}, headers: [ipv4, udp]}}\n"
        )
    };
    format!(
        "suite: loss\nprofile: quick\nrounds: 1\n\
         duts: [{{name: box, kind: uml, routing: static, memory: 128, topology: {{loop: 4, wan_delay: 20 ms, wan_loss: {} %}}}}]\n\
         ports:\n  - {{name: p1, speed: 100 Mbit/s, ipv6: off}}\n  - {{name: p2, speed: 100 Mbit/s, ipv6: off}}\n\
         flows:\n{}{}tests: [{{fixed_rate: {{trial_duration: 5500 ms, drain: 1 s, pause: 1 ms}}}}]\n",
        LOSS * 100.0,
        flow("there", "p1", "p2"),
        flow("back", "p2", "p1")
    )
}

fn loses(lab: &mut Lab) -> Checked {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let memory = run_in_lab(lab, &suite(), folder.path())?;
    let status = || format!("{:?}", memory.tests().iter().map(|t| (&t.status, &t.outcome.notes)).collect::<Vec<_>>());
    let trials = memory.trials();
    let trial =
        trials.iter().find(|trial| trial.result.groups.iter().any(|g| g.group == "there")).ok_or_else(status)?;
    let counters = &trial.result.dut_counters;
    let expected = FRAMES as f64 * LOSS;
    let margin = DEVIATIONS * (expected * (1.0 - LOSS)).sqrt();
    for (name, counter) in [("there", "r3.d0.delay_dropped"), ("back", "r2.d2.delay_dropped")] {
        let group = trial.result.groups.iter().find(|g| g.group == name).ok_or("no flow")?;
        let counted = counters.get(counter).copied().unwrap_or_default();
        println!(
            "    {name}: {} of {} lost, {counted} counted, {expected} ± {margin:.0} expected",
            group.lost, group.offered
        );
        ensure(group.offered == FRAMES && (group.lost as f64 - expected).abs() <= margin, || format!("{group:?}"))?;
        ensure(group.lost == counted, || format!("{name}: {} lost, {counted} counted: {counters:?}", group.lost))?;
        let least = group.latency.min_ns;
        ensure(least >= 20_000_000, || format!("{name}: a frame took {least} ns on a link with a delay of 20 ms"))?;
    }
    // The link did not lose the frames that verified that the routers forward.
    let others = counters.iter().filter(|(name, frames)| name.ends_with("_dropped") && **frames > 0);
    let others: Vec<_> = others.filter(|(name, _)| !name.ends_with(".delay_dropped")).collect();
    ensure(others.is_empty(), || format!("{others:?}"))
}

/// The test.
pub fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("a_lossy_link_of_real_routers_loses_its_share", loses)
            .again()
            .long()
            .unless(uml::unfit_processor()),
    ]
}
