//! What live counts cost an agent.

use crate::anew::Checked;
use crate::bench::{self, Bed, Bench, PORTS, agents, ensure, sent, spec};
use crate::worked;
use drophammer_model::trial::{Load, TrialSpec};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DURATION: Duration = Duration::from_secs(5);
/// How often a display asks.
const EVERY: Duration = Duration::from_secs(1);
/// Trials of each kind.
const TRIALS: usize = 5;
/// A rate that no port reaches. The thread of a port never sleeps, so only if a frame is always due does its processor
/// time say what a frame costs.
const LIMIT_PPS: f64 = 1e8;
/// Far more than counts cost, because other programs share the processors.
const MOST: f64 = 1.25;

/// Runs a trial. Returns how often the counts of all hosts came, and the processor time of both agents for each frame,
/// in ns.
fn trial(bench: &mut Bench, processes: [u32; 2], asks: bool) -> Result<(usize, f64), String> {
    let spec = TrialSpec { load: Load::Maximum { limit_pps: LIMIT_PPS }, drain_s: 0.2, ..spec(DURATION) };
    let time = || Ok::<_, String>(worked(processes[0])? + worked(processes[1])?);
    bench.when_ready(|bench| {
        let (before, frames) = (time()?, PORTS.map(sent));
        let live = bench.start(&spec)?;
        let over = AtomicBool::new(false);
        let answers = std::thread::scope(|scope| {
            let display = scope.spawn(|| {
                let (mut answers, mut asked) = (0, Instant::now());
                while asks && !over.load(Ordering::Relaxed) {
                    if asked.elapsed() >= EVERY {
                        asked = Instant::now();
                        answers += usize::from(live.snapshot(EVERY).is_some());
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                answers
            });
            let result = bench.finish();
            over.store(true, Ordering::Relaxed);
            let answers = display.join().map_err(|_| "the display failed")?;
            result.map(|_| answers)
        })?;
        let frames: u64 = PORTS.iter().zip(frames).map(|(port, before)| sent(port) - before).sum();
        Ok((answers, (time()? - before).as_nanos() as f64 / frames as f64))
    })
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Agents send as fast as they can. Trials with counts once per second, as `--live` asks for them, and without take
/// turns.
pub fn of_counts() -> Checked {
    let bed = Bed::up()?;
    let agents = agents(&bed)?;
    let processes = [agents[0].0.id(), agents[1].0.id()];
    let mut bench = bench::rig(&bed, "tester")?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for number in 1..=TRIALS {
        let (answers, ns) = trial(&mut bench, processes, true)?;
        ensure(answers >= 3, format!("{answers} counts in {DURATION:?}"))?;
        with.push(ns);
        let (_, none) = trial(&mut bench, processes, false)?;
        without.push(none);
        eprintln!("trial {number}: {ns:.0} ns per frame with {answers} counts, {none:.0} ns without");
    }
    let (with, without) = (median(with), median(without));
    let ratio = with / without;
    eprintln!(
        "processor time of two agents per frame: {with:.0} ns with counts once per second, \
         {without:.0} ns without, {ratio:.3} times"
    );
    ensure(ratio < MOST, format!("counts once per second cost {ratio:.2} times as much as none"))
}
