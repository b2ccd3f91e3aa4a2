//! Watches a processor during a trial: time taken by a hypervisor, idle time, stalls.
//!
//! A sentinel thread runs on the processor. During a trial it wakes every five milliseconds and records how late it
//! wakes. It reads the processor's counters on the processor itself, because the kernel adds an idle period only when
//! the period ends.
//!
//! # The watch on the host
//!
//! `rig::Watch` is a thread on one processor that reads the kernel's counters there and notices when it cannot run. It
//! knows nothing about the DUT. `testbed/src/host.rs` places it on the DUT's processor (`Usage::processor`), subtracts
//! the time that the DUT used, and stores the rest with each trial. The kernel's work on that processor for the
//! tester's ends of the links is stored as the tester's share (`port::softirq_time`: softirqs that receive or send
//! frames; threads do the DUT's own receive work). `validity.rs` invalidates a trial by these figures alone, never by
//! its loss. The kernel's wait times include threads of the DUT that wait for each other. If a thread waited longer
//! than all others ran, the host caused the difference (`waited_least_ns`), which invalidates any trial. The kernel's
//! full wait time invalidates a latency trial. `lab/src/autogroup.rs` gives the tester's session priority on the
//! processors. `judge::held_up` counts disturbed trials and names the causes. There is no watch in virtual time, nor
//! without a processor for the DUT alone.

use crate::processors::{self, Processor};
use crate::tasks::Tasks;
use drophammer_port::priority::{before_all, pin};
use drophammer_port::softirq_time::SoftirqTime;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between wake-ups of the sentinel. Each wake-up costs 10 to 25 µs in a virtual machine.
const PERIOD: Duration = Duration::from_millis(5);
/// Maximum number of stalls whose times are stored.
const MOST_TIMES: usize = 64;
/// A wake-up that is late by this much is a stall.
const STALL: Duration = Duration::from_millis(1);

/// Times of a processor between two instants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// Length of the interval.
    pub elapsed: Duration,
    /// Part of the interval in which nothing ran. `None` if the kernel does not report it.
    pub idle: Option<Duration>,
    /// Number of times that the processor became idle. `None` if the kernel does not report it.
    pub idled: Option<u64>,
    /// Part of the interval in which programs ran, including the watch and NAPI threads, but no other kernel threads.
    /// `None` if the kernel does not report it.
    pub programs: Option<Duration>,
    /// Threads of other processes that ran, longest first: thread ID, name of the program, and run time.
    pub others: Vec<(u32, String, Duration)>,
    /// Part of the interval that a hypervisor took, in steps of 10 ms. `None` if the kernel does not report it.
    pub stolen: Option<Duration>,
    /// Part of the interval spent in softirqs, in steps of 10 ms. `None` if the kernel does not report it.
    pub softirq: Option<Duration>,
    /// Part of the interval in which softirqs that receive or send frames held up a thread. On a processor whose
    /// network interfaces are served by threads, these softirqs belong to other interfaces. `None` without the
    /// privilege to measure it.
    pub held_up: Option<Duration>,
    /// True if threads' times exclude softirq time.
    pub softirq_apart: bool,
    /// Part of the interval in which the watch itself ran. `None` if the kernel does not report it.
    pub own: Option<Duration>,
    /// Periods of 1 ms or more in which no thread of the highest priority could run, and in which the sentinel was due
    /// to wake. `None` if the sentinel cannot get that priority.
    pub stalls: Option<Stalls>,
    /// Start and length of the longest stalls, as far as known, in order of time.
    pub stall_times: Vec<(Instant, Duration)>,
}

/// Periods in which a processor did not run the thread that it should have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Number of stalls.
    pub count: u64,
    /// Total length.
    pub total: Duration,
    /// Length of the longest stall.
    pub longest: Duration,
}

enum Ask {
    Begin,
    End,
}

/// A watch on one processor. While it exists, each softirq of the machine takes about ten nanoseconds longer. Before
/// [`Watch::begin`] it costs nothing else.
#[derive(Debug)]
pub struct Watch {
    ask: Option<Sender<Ask>>,
    answers: Receiver<Option<Watched>>,
    sentinel: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts a watch on the processor with this number.
    ///
    /// # Errors
    /// The operating system's error if the processor does not exist or this process is not allowed to use it.
    pub fn on(processor: usize) -> io::Result<Watch> {
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        let (ready, is_ready) = channel();
        let sentinel = std::thread::Builder::new().name(format!("watch-{processor}")).spawn(move || {
            let placed = pin(processor);
            let good = placed.is_ok();
            let real_time = before_all().is_ok();
            if ready.send(placed).is_ok() && good {
                watch(processor, real_time, &asked, &answer);
            }
        })?;
        let gone = || io::Error::other("the watch ended before it began");
        is_ready.recv().map_err(|_| gone())??;
        Ok(Watch { ask: Some(ask), answers, sentinel: Some(sentinel) })
    }

    /// Starts watching.
    pub fn begin(&self) {
        // The sentinel answers after it has read the counters, so from here on it misses nothing.
        if self.tell(Ask::Begin) {
            let _ = self.answers.recv();
        }
    }

    /// Returns the times since [`Watch::begin`]; `None` if the watch had not begun.
    pub fn end(&self) -> Option<Watched> {
        if self.tell(Ask::End) { self.answers.recv().ok().flatten() } else { None }
    }

    fn tell(&self, what: Ask) -> bool {
        self.ask.as_ref().is_some_and(|ask| ask.send(what).is_ok())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The sentinel ends when the channel is closed.
        self.ask = None;
        if let Some(sentinel) = self.sentinel.take() {
            let _ = sentinel.join();
        }
    }
}

/// Counters at one instant.
struct Look {
    at: Instant,
    processor: Processor,
    own: Option<Duration>,
    held_up: Option<Duration>,
}

impl Look {
    fn take(processor: usize, softirq_time: Option<&SoftirqTime>) -> Look {
        let own = processors::own_times().map(|times| times.ran);
        let held_up = softirq_time.map(SoftirqTime::total);
        Look { at: Instant::now(), processor: Processor::read(processor), own, held_up }
    }
}

/// The sentinel's main loop. It ends when the channel is closed.
fn watch(processor: usize, real_time: bool, asked: &Receiver<Ask>, answer: &Sender<Option<Watched>>) {
    let softirq_time = SoftirqTime::on(processor).ok();
    let mut pending = None;
    while let Some(ask) = pending.take().or_else(|| asked.recv().ok()) {
        let watched = match ask {
            Ask::End => None,
            Ask::Begin => {
                let tasks = Tasks::read();
                let first = Look::take(processor, softirq_time.as_ref());
                if answer.send(None).is_err() {
                    return;
                }
                let mut stalls = Stalls::default();
                let mut times = Vec::with_capacity(MOST_TIMES);
                match wait(asked, &mut stalls, &mut times) {
                    // Nobody requested the result of the last trial.
                    Some(Ask::Begin) => {
                        pending = Some(Ask::Begin);
                        continue;
                    }
                    Some(Ask::End) => {}
                    None => return,
                }
                let last = Look::take(processor, softirq_time.as_ref());
                let grown = tasks.map(|tasks| tasks.grown(processor));
                let since = |a: Option<Duration>, b: Option<Duration>| Some(b?.saturating_sub(a?));
                Some(Watched {
                    elapsed: last.at - first.at,
                    idle: since(first.processor.idle, last.processor.idle),
                    idled: first.processor.idled.zip(last.processor.idled).map(|(a, b)| b.saturating_sub(a)),
                    programs: grown.as_ref().map(|grown| grown.all),
                    others: grown.map(|grown| grown.others).unwrap_or_default(),
                    stolen: since(first.processor.stolen, last.processor.stolen),
                    softirq: since(first.processor.softirq, last.processor.softirq),
                    softirq_apart: last.processor.softirq_apart,
                    held_up: since(first.held_up, last.held_up),
                    own: since(first.own, last.own),
                    stalls: real_time.then_some(stalls),
                    stall_times: if real_time { in_order(times) } else { Vec::new() },
                })
            }
        };
        if answer.send(watched).is_err() {
            return;
        }
    }
}

/// Wakes every [`PERIOD`] until a request arrives. Returns `None` if the channel is closed.
fn wait(asked: &Receiver<Ask>, stalls: &mut Stalls, times: &mut Vec<(Instant, Duration)>) -> Option<Ask> {
    loop {
        let before = Instant::now();
        let heard = asked.recv_timeout(PERIOD);
        // A request that arrives while the processor stands still is also read late.
        let late = before.elapsed().saturating_sub(PERIOD);
        stalls.note(late);
        keep(times, before + PERIOD, late);
        match heard {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
            Ok(ask) => return Some(ask),
        }
    }
}

/// Records a stall that started at `from` if it is long enough and among the longest.
fn keep(times: &mut Vec<(Instant, Duration)>, from: Instant, late: Duration) {
    if late < STALL {
        return;
    }
    if times.len() < MOST_TIMES {
        times.push((from, late));
    } else if let Some(shortest) = times.iter_mut().min_by_key(|(_, late)| *late)
        && shortest.1 < late
    {
        *shortest = (from, late);
    }
}

fn in_order(mut times: Vec<(Instant, Duration)>) -> Vec<(Instant, Duration)> {
    times.sort_unstable();
    times
}

impl Stalls {
    fn note(&mut self, late: Duration) {
        if late >= STALL {
            self.count += 1;
            self.total += late;
            self.longest = self.longest.max(late);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_port::priority::usable;

    /// Runs for `time` on `processor`.
    fn burn(processor: usize, time: Duration) {
        std::thread::spawn(move || {
            pin(processor).expect("a processor of ours");
            let start = Instant::now();
            while start.elapsed() < time {}
        })
        .join()
        .expect("it only counts");
    }

    #[test]
    fn time_that_somebody_burns_is_not_idle() {
        let processor = *usable().last().expect("this runs somewhere");
        let watch = Watch::on(processor).expect("a watch");
        assert_eq!(watch.end(), None, "it had not begun");
        watch.begin();
        burn(processor, Duration::from_millis(200));
        let watched = watch.end().expect("it had begun");
        let rest = watched.elapsed - watched.idle.expect("every Linux tells");
        assert!(watched.elapsed >= Duration::from_millis(200), "{watched:?}");
        // The burner and other programs ran there. The resolution of idle time is 10 ms at worst.
        assert!(rest >= Duration::from_millis(170), "{watched:?}");
        assert!(watched.own.is_none_or(|own| own < Duration::from_millis(50)), "{watched:?}");
        // A result that was not requested is discarded.
        watch.begin();
        watch.begin();
        assert!(watch.end().is_some() && watch.end().is_none());
    }

    #[test]
    fn only_what_is_late_by_a_millisecond_is_a_stall() {
        let mut stalls = Stalls::default();
        [0, 999_999, 1_000_000, 4_000_000, 2_000_000].into_iter().for_each(|ns| stalls.note(Duration::from_nanos(ns)));
        assert_eq!(stalls, Stalls { count: 3, total: Duration::from_millis(7), longest: Duration::from_millis(4) });
    }

    #[test]
    fn the_longest_stalls_keep_their_times() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut times = Vec::new();
        keep(&mut times, at(0), Duration::from_micros(999));
        (1..=64).for_each(|ms| keep(&mut times, at(ms), Duration::from_millis(ms)));
        keep(&mut times, at(65), Duration::from_millis(1));
        keep(&mut times, at(66), Duration::from_millis(2));
        let kept: Vec<_> = in_order(times).into_iter().map(|(from, late)| ((from - start).as_millis(), late)).collect();
        assert_eq!(
            (kept.len(), kept[0].0, kept[63]),
            (64, 2, (66, Duration::from_millis(2))),
            "the first was the shortest"
        );
    }

    #[test]
    fn a_processor_that_is_not_there_is_refused() {
        assert!(Watch::on(1_000_000).is_err());
    }
}
