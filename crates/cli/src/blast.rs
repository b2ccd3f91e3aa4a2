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

use crate::Exit;
use crate::args::BlastArgs;
use crate::clock::secret;
use crate::observer::first_signal;
use crate::output::{err, is_closed, out};
use crate::run::{fail, queues_fit, threads_fit};
use display::Display;
use drophammer_lab::kinds::external::refuse_in_use;
use drophammer_model::beside::OtherTraffic;
use drophammer_model::trial::TrialResult;
use drophammer_port::auto::AUTO;
use drophammer_port::priority::pin;
use drophammer_port::{Backend, INTERFACE_BACKENDS, SystemClock};
use drophammer_rig::{Config, Live, Ports, Rig, RigError, TestTraffic, Timing, TrialKeys, Until};
use job::Job;
use quiet::Silence;
use router::Router;
pub use stack::{MAX_FLOWS, MAX_SOURCES};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time for the other side to answer ARP or Neighbor Discovery.
const ANSWER: Duration = Duration::from_secs(3);
/// Time between two lines.
const LINE: Duration = Duration::from_secs(1);
/// How often Ctrl-C is checked.
const LOOK: Duration = Duration::from_millis(20);
/// Lanes answer a request for counts within microseconds, unless their processor is taken from them.
const PATIENCE: Duration = Duration::from_secs(1);
/// A generator that was held up for at most this long catches up, slightly above the requested rate; after a longer
/// delay it leaves frames unsent.
const MAX_BACKLOG_NS: u64 = 20_000_000;
/// A tester that cannot offer the rate stops this long after the end of `--for`.
const OVERTIME: Duration = Duration::from_millis(50);
/// Seed of the payload.
const SEED: u64 = 0;
/// A frame is late from this latency on.
const LATE_NS: u64 = 1_000_000_000;

/// `drophammer blast`.
pub fn run(args: &BlastArgs) -> Exit {
    let mut jobs = match Job::read_each(args) {
        Ok(jobs) => jobs,
        Err(e) => return fail(Exit::Usage, e),
    };
    // Before any thread starts, so that all have the handler.
    let (stop, second) = match first_signal() {
        Ok(signals) => signals,
        Err(e) => return fail(Exit::Environment, format!("cannot listen for Ctrl-C: {e}")),
    };
    let router = match args.dut.as_ref().map(|kind| Router::bring_up(kind, args, &stop)).transpose() {
        Ok(router) => router,
        Err(Failure { exit, text }) => return fail(exit, text),
    };
    // The router's lab needs a process with a single thread.
    if let Err(e) = second.listen() {
        return fail(Exit::Environment, format!("cannot listen for Ctrl-C: {e}"));
    }
    if let Some(router) = &router {
        jobs.iter_mut().for_each(|job| job.ports = router.interfaces().to_vec());
    }
    let sent = rig(&mut jobs, args, router.as_ref()).and_then(|mut rig| {
        resolve(&mut rig, &jobs[0], &stop)?;
        match jobs[0].step {
            Some(step) => until_loss::find(&mut rig, &jobs[0], step, args.json, &stop),
            None => blast_each(&mut rig, &jobs, args.json, &stop),
        }
    });
    let exit = sent.unwrap_or_else(|Failure { exit, text }| fail(exit, text));
    router.map_or(exit, |router| router.take_down(exit))
}

/// Timing of a trial, with which frames of earlier trials are recognized.
fn timing(keys: &mut TrialKeys) -> Timing {
    let (_, key, earlier) = keys.next_trial();
    Timing { seed: SEED, key, earlier, max_backlog_ns: MAX_BACKLOG_NS, late_ns: LATE_NS }
}

/// Why a trial ended without a result.
fn ended(e: RigError) -> Failure {
    match e {
        RigError::Port(e) => Failure::environment(e),
        e => Failure { exit: Exit::Failed, text: e.to_string() },
    }
}

/// Whether at least 99 per cent of the requested frames left, and all frames that left arrived unchanged.
fn flawless(result: &TrialResult) -> bool {
    let damaged = result.lost() + result.sum(|g| g.corrupted) + result.sum(|g| g.stray);
    damaged == 0 && result.health.unsent * 100 <= result.intended()
}

/// Why there is no result.
struct Failure {
    exit: Exit,
    text: String,
}

impl Failure {
    fn environment(text: impl std::fmt::Display) -> Failure {
        Failure { exit: Exit::Environment, text: text.to_string() }
    }
}

/// Opens the interfaces and puts the hosts behind them. Notes what of the jobs does not fit the interfaces.
fn rig(jobs: &mut [Job], args: &BlastArgs, router: Option<&Router>) -> Result<Rig, Failure> {
    // The command line accepts no other names, except the automatic choice.
    let backend: &Backend = INTERFACE_BACKENDS.iter().find(|b| b.spec.name == args.backend).unwrap_or(&AUTO);
    (backend.usable)().map_err(Failure::environment)?;
    let (threads, queues) = (usize::from(args.threads), u32::from(args.queues));
    let names = jobs[0].ports.clone();
    let fit = threads_fit(threads, names.len(), queues, false).and_then(|()| queues_fit(backend, queues));
    fit.map_err(|text| Failure { exit: Exit::Usage, text })?;
    // The ends of the links to a router of the lab are made for it.
    if router.is_none() {
        names.iter().try_for_each(|name| refuse_in_use(name)).map_err(Failure::environment)?;
    }
    let clock = SystemClock::start();
    let interfaces: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ports = drophammer_rig::open(&interfaces, backend, queues, clock, None).map_err(Failure::environment)?;
    let mut mtus = Vec::new();
    for (name, port) in names.iter().zip(ports.iter_mut().step_by(queues.max(1) as usize)) {
        if !drophammer_port::has_carrier(port.as_mut()).map_err(Failure::environment)? {
            let text = format!(
                "interface `{name}` has no carrier; plug the cable in, or set the other end of the virtual link up"
            );
            return Err(Failure::environment(text));
        }
        let mtu = port.info().mtu;
        let fit = jobs.iter_mut().try_for_each(|job| job.fit(args, name, mtu));
        fit.map_err(|text| Failure { exit: Exit::Usage, text })?;
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

/// Processors for `threads` threads; binds the calling thread to the first. None for one thread, which is not bound.
fn processors(threads: usize) -> Result<Vec<usize>, String> {
    if threads <= 1 {
        return Ok(Vec::new());
    }
    let status = std::fs::read_to_string("/proc/thread-self/status").map_err(|e| e.to_string())?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map_or(Vec::new(), listed);
    let Some(processors) = allowed.get(..threads) else {
        let has = allowed.len();
        return Err(format!(
            "{threads} threads need {threads} processors; this process may use {has}; say --threads 1"
        ));
    };
    pin(processors[0]).map_err(|e| format!("cannot run on processor {}: {e}", processors[0]))?;
    Ok(processors.to_vec())
}

/// Numbers of a list in the kernel's format: `0-2,5`.
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
        Some(_) if stopped() => Err(Failure { exit: Exit::Interrupted, text: "stopped by the user".into() }),
        Some(at) => Err(Failure::environment(job.unanswered(&at))),
    }
}

/// Sends the jobs one after the other, until the user stops it.
fn blast_each(rig: &mut Rig, jobs: &[Job], json: bool, stop: &AtomicBool) -> Result<Exit, Failure> {
    let (mut keys, mut exit) = (TrialKeys::new(secret()), Exit::Good);
    // Frames other than test frames by interface, told with the summary that comes next.
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
    // Where a port failed, the frames until then are shown before the error.
    let counted = result.as_ref().ok().cloned().or_else(|| rig.cut_off().map(|counted| *counted));
    let sent = told.iter_mut().enumerate().map(|(port, told)| {
        let all = rig.hosts().sent(port).frames;
        all - std::mem::replace(told, all)
    });
    let sent: Vec<u64> = sent.collect();
    if let Some(counted) = &counted {
        // Standard output is closed; the exit code still gives the result.
        let _ = display.summary(counted, &sent, &others);
    }
    result.map_err(ended)
}

/// Drives the traffic to its end; returns its result, and what else came in meanwhile.
fn finish(rig: &mut Rig, stopped: &dyn Fn() -> bool) -> (Result<TrialResult, RigError>, OtherTraffic) {
    rig.observe(&TestTraffic::of_run(SEED), 0, Vec::new());
    let result = rig.finish(stopped);
    let others = rig.observed();
    (result, others)
}

/// Shows a line per second, and stops sending at the user's request or when the time is over. Sets `quiet` when nothing more is to be
/// expected.
fn watch(live: &Live, display: &mut Display<'_>, job: &Job, stop: &AtomicBool, quiet: &AtomicBool) {
    let begun = Instant::now();
    let mut lines = 0;
    let mut ending = false;
    let mut silence = Silence::default();
    while !live.is_over() {
        if stop.load(Ordering::Relaxed) && !ending {
            ending = true;
            live.end_sending();
        }
        let over = job.duration().is_some_and(|duration| begun.elapsed() >= duration);
        // A tester that cannot offer the rate would go on with frames that were due earlier.
        if !ending && job.duration().is_some_and(|duration| begun.elapsed() >= duration + OVERTIME) {
            ending = true;
            live.end_sending();
        }
        if (over || ending)
            && let Some(snapshot) = live.snapshot(PATIENCE)
            && silence.holds(&snapshot)
        {
            quiet.store(true, Ordering::Relaxed);
        }
        if begun.elapsed() < LINE * (lines + 1) {
            std::thread::sleep(LOOK);
            continue;
        }
        lines = (begun.elapsed().as_nanos() / LINE.as_nanos()) as u32;
        if let Some(snapshot) = live.snapshot(PATIENCE)
            && let Err(e) = display.line(&snapshot)
            && is_closed(&e)
            && !ending
        {
            // Standard output is closed.
            ending = true;
            live.end_sending();
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
