//! `drophammer blast`: frames from one interface to another, and the results.

mod display;
mod job;
mod links;
mod quiet;
mod reasons;
mod router;
mod stack;
mod template;
mod until_loss;

use crate::args::BlastArgs;
use crate::clock::{LOOK, Lines, secret};
use crate::observer::first_signal;
use crate::output::{err, is_closed, out};
use crate::run::{claim, queues_fit, threads_fit, usable_backend};
use crate::{Ended, Exit, Failure};
use display::Display;
use drophammer_lab::kinds::external::refuse_in_use;
use drophammer_model::beside::OtherTraffic;
use drophammer_model::trial::TrialResult;
use drophammer_port::SystemClock;
use drophammer_port::priority::pin;
use drophammer_rig::{Config, Live, Ports, Rig, RigError, TestTraffic, Timing, TrialKeys, Until};
use job::Job;
use quiet::Silence;
use router::Router;
pub use stack::{MAX_FLOWS, MAX_SOURCES};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time for the other side to answer ARP or Neighbor Discovery.
const ANSWER: Duration = Duration::from_secs(3);
/// Time limit for the lanes to answer a request for counts. They answer within microseconds, unless they lose their
/// processor.
const PATIENCE: Duration = Duration::from_secs(1);
/// A generator that falls behind by at most this much catches up by sending slightly above the requested rate. If it
/// falls behind by more, it leaves frames unsent.
const MAX_BACKLOG_NS: u64 = 20_000_000;
/// A tester that cannot offer the rate stops at most this long after the end of `--for`.
const OVERTIME: Duration = Duration::from_millis(50);
/// Seed of the payload.
const SEED: u64 = 0;
/// A frame counts as late from this latency.
const LATE_NS: u64 = 1_000_000_000;

/// `drophammer blast`.
pub fn run(args: &BlastArgs) -> Ended {
    let mut jobs = Job::read_each(args).map_err(Failure::usage)?;
    // Do this before any thread starts, so that all threads have the handler.
    let (stop, second) = first_signal()?;
    let router = args.dut.as_ref().map(|kind| Router::bring_up(kind, args, &stop)).transpose()?;
    // The router's lab needs a process with a single thread.
    second.listen()?;
    if let Some(router) = &router {
        jobs.iter_mut().for_each(|job| job.ports = router.interfaces().to_vec());
    }
    // The lab itself made the links to its router.
    let _claims = router.is_none().then(|| claim("drophammer blast", &jobs[0].ports)).transpose()?;
    let sent = rig(&mut jobs, args, router.as_ref()).and_then(|mut rig| {
        resolve(&mut rig, &jobs[0], &stop)?;
        match jobs[0].step {
            Some(step) => until_loss::find(&mut rig, &jobs[0], step, args.json, &stop),
            None => blast_each(&mut rig, &jobs, args.json, &stop),
        }
    });
    let exit = sent.unwrap_or_else(Failure::print);
    router.map_or(Ok(exit), |router| router.take_down(exit))
}

/// Timing of a trial. It also serves to recognize frames of earlier trials.
fn timing(keys: &mut TrialKeys) -> Timing {
    let (_, key, earlier) = keys.next_trial();
    Timing { seed: SEED, key, earlier, max_backlog_ns: MAX_BACKLOG_NS, late_ns: LATE_NS }
}

/// The reason why a trial ended without a result.
fn ended(e: RigError) -> Failure {
    match e {
        RigError::Port(e) => Failure::environment(e),
        e => Failure::new(Exit::Failed, e),
    }
}

/// True if at least 99 per cent of the requested frames left, and all frames that left arrived unchanged.
fn flawless(result: &TrialResult) -> bool {
    let damaged = result.lost() + result.sum(|g| g.corrupted) + result.sum(|g| g.stray);
    damaged == 0 && result.health.unsent * 100 <= result.intended()
}

/// Opens the interfaces and puts the hosts behind them. Prints notes about frames that the jobs cannot send on them.
fn rig(jobs: &mut [Job], args: &BlastArgs, router: Option<&Router>) -> Result<Rig, Failure> {
    let backend = usable_backend(&args.backend)?;
    let (threads, queues) = (usize::from(args.threads), u32::from(args.queues));
    let names = jobs[0].ports.clone();
    let fit = threads_fit(threads, names.len(), queues, false).and_then(|()| queues_fit(backend, queues));
    fit.map_err(Failure::usage)?;
    // The lab itself made the links to its router.
    if router.is_none() {
        names.iter().try_for_each(|name| refuse_in_use(name)).map_err(Failure::environment)?;
    }
    let clock = SystemClock::start();
    let interfaces: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ports = drophammer_rig::open(&interfaces, backend, queues, clock, None).map_err(Failure::environment)?;
    let mut mtus = Vec::new();
    for (name, port) in names.iter().zip(ports.iter_mut().step_by(queues.max(1) as usize)) {
        if !drophammer_port::has_carrier(port.as_mut()).map_err(Failure::environment)? {
            let remedy = "plug the cable in, or set the other end of the virtual link up";
            return Err(Failure::environment(format!("interface `{name}` has no carrier; {remedy}")));
        }
        let mtu = port.info().mtu;
        jobs.iter_mut().try_for_each(|job| job.fit(args, name, mtu)).map_err(Failure::usage)?;
        mtus.push(mtu);
    }
    let notes: BTreeSet<String> = jobs.iter().flat_map(Job::notes).collect();
    notes.iter().for_each(|note| err!("note: {note}"));
    let processors = match router {
        Some(router) => router.processors(threads),
        None => processors(threads),
    };
    let processors = processors.map_err(Failure::environment)?;
    let seed = secret();
    // The hosts of all jobs are the same.
    let hosts = mtus.iter().enumerate().map(|(index, mtu)| jobs[0].port_config(seed, index, *mtu));
    let config = Config { seed, ports: hosts.collect() };
    Ok(Rig::new(Ports::real(ports, clock, &processors), &config))
}

/// Processors for `threads` threads; binds the calling thread to the first. A single thread is not bound, and the list
/// is empty.
fn processors(threads: usize) -> Result<Vec<usize>, String> {
    if threads <= 1 {
        return Ok(Vec::new());
    }
    let status = std::fs::read_to_string("/proc/thread-self/status").map_err(|e| e.to_string())?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map_or(Vec::new(), listed);
    let Some(processors) = allowed.get(..threads) else {
        let has = allowed.len();
        return Err(format!(
            "{threads} threads need {threads} processors; this process may use {has}; use --threads 1"
        ));
    };
    pin(processors[0]).map_err(|e| format!("cannot run on processor {}: {e}", processors[0]))?;
    Ok(processors.to_vec())
}

/// Parses a list of numbers in the kernel's format: `0-2,5`.
fn listed(text: &str) -> Vec<usize> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Waits until the other side has answered ARP or Neighbor Discovery on both interfaces.
fn resolve(rig: &mut Rig, job: &Job, stop: &AtomicBool) -> Result<(), Failure> {
    let stopped = || stop.load(Ordering::Relaxed);
    let end = rig.now() + ANSWER;
    rig.serve(&Until::Resolved.or_at(end), &stopped).map_err(Failure::environment)?;
    match rig.unresolved() {
        None => Ok(()),
        Some(_) if stopped() => Err(Failure::new(Exit::Interrupted, "stopped by the user")),
        Some(at) => Err(Failure::environment(job.unanswered(&at))),
    }
}

/// Sends the jobs one after the other, until the user stops the command.
fn blast_each(rig: &mut Rig, jobs: &[Job], json: bool, stop: &AtomicBool) -> Ended {
    let (mut keys, mut exit) = (TrialKeys::new(secret()), Exit::Good);
    // For each interface, the number of frames other than test frames that a summary has reported.
    let mut told = vec![0; jobs[0].ports.len()];
    for (number, job) in jobs.iter().enumerate() {
        if number > 0 && stop.load(Ordering::Relaxed) {
            break;
        }
        if number > 0 && !json {
            out!("");
        }
        if !flawless(&blast(rig, job, &timing(&mut keys), &mut told, json, stop)?) {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// Sends, and shows the results.
fn blast(
    rig: &mut Rig,
    job: &Job,
    timing: &Timing,
    told: &mut [u64],
    json: bool,
    stop: &AtomicBool,
) -> Result<TrialResult, Failure> {
    let live = rig.start_traffic(&job.trial(), timing, Vec::new()).map_err(Failure::environment)?;
    let mut display = Display::new(job, json, rig.now());
    let quiet = AtomicBool::new(false);
    let (result, display) = std::thread::scope(|scope| {
        let quiet = &quiet;
        let watcher = scope.spawn(move || {
            watch(&live, &mut display, job, stop, quiet);
            display
        });
        let result = finish(rig, &|| quiet.load(Ordering::Relaxed));
        (result, watcher.join())
    });
    let Ok(mut display) = display else { return Err(Failure::environment("the display failed")) };
    let (result, others) = result;
    // If a port failed, show the frames up to that time before the error.
    let counted = result.as_ref().ok().cloned().or_else(|| rig.cut_off().map(|counted| *counted));
    let sent = told.iter_mut().enumerate().map(|(port, told)| {
        let all = rig.hosts().sent(port).frames;
        all - std::mem::replace(told, all)
    });
    let sent: Vec<u64> = sent.collect();
    if let Some(counted) = &counted {
        // If standard output is closed, the exit code still reports the result.
        let _ = display.summary(counted, &sent, &others);
    }
    result.map_err(ended)
}

/// Runs the traffic to its end. Returns its result, and the other frames that arrived meanwhile.
fn finish(rig: &mut Rig, stopped: &dyn Fn() -> bool) -> (Result<TrialResult, RigError>, OtherTraffic) {
    rig.observe(&TestTraffic::of_run(SEED), 0, Vec::new());
    let result = rig.finish(stopped);
    let others = rig.observed();
    (result, others)
}

/// Shows a line per second, and ends sending when the user asks for it or the time is over. Sets `quiet` when no more
/// frames can be expected.
fn watch(live: &Live, display: &mut Display<'_>, job: &Job, stop: &AtomicBool, quiet: &AtomicBool) {
    let mut lines = Lines::begin();
    let mut ending = false;
    let end = |ending: &mut bool| {
        if !std::mem::replace(ending, true) {
            live.end_sending();
        }
    };
    let mut silence = Silence::default();
    while !live.is_over() {
        let over = |more| job.duration().is_some_and(|duration| lines.elapsed() >= duration + more);
        // A tester that cannot offer the rate would continue with frames that were due earlier.
        if stop.load(Ordering::Relaxed) || over(OVERTIME) {
            end(&mut ending);
        }
        if (over(Duration::ZERO) || ending)
            && let Some(snapshot) = live.snapshot(PATIENCE)
            && silence.holds(&snapshot)
        {
            quiet.store(true, Ordering::Relaxed);
        }
        if !lines.is_due() {
            std::thread::sleep(LOOK);
        } else if let Some(snapshot) = live.snapshot(PATIENCE)
            && display.line(&snapshot).is_err_and(|e| is_closed(&e))
        {
            end(&mut ending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(listed("\t0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(listed("3"), [3]);
        assert_eq!(listed(""), Vec::<usize>::new());
    }
}
