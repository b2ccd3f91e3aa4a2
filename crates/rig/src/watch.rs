//! What a machine did to one of its processors while a trial ran: time that a hypervisor took, idle time, stalls.
//!
//! A sentinel thread lives on the processor. While a trial runs it asks to be woken every five milliseconds and notes how late that
//! comes. It reads the counters of the processor on the processor itself, because the kernel adds idle time when it ends.

use crate::processors::{self, Processor};
use crate::tasks::Tasks;
use drophammer_port::priority::{before_all, pin};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the sentinel asks to be woken. Each time costs 10 to 25 µs in a virtual machine.
const PERIOD: Duration = Duration::from_millis(5);
/// Stalls whose times are kept.
const MOST_TIMES: usize = 64;
/// It is a stall if the sentinel is woken so much too late.
const STALL: Duration = Duration::from_millis(1);

/// What happened to a processor between two instants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// Time between them.
    pub elapsed: Duration,
    /// Of this: nothing ran. `None` where the kernel does not say.
    pub idle: Option<Duration>,
    /// How often it became idle. `None` where the kernel does not say.
    pub idled: Option<u64>,
    /// Of this: programs ran, the watch and threads of NAPI too, other threads of the kernel not. `None` where the kernel does not say.
    pub programs: Option<Duration>,
    /// The threads of other processes than this one that ran, the longest first: number, name of the program, and for how long.
    pub others: Vec<(u32, String, Duration)>,
    /// Of this: a hypervisor had taken the processor, in steps of 10 ms. `None` where the kernel does not say.
    pub stolen: Option<Duration>,
    /// Of this: it worked for what had interrupted it (softirq), in steps of 10 ms: on a processor whose network interfaces are served by
    /// threads, for other interfaces. `None` where the kernel does not say.
    pub softirq: Option<Duration>,
    /// Is that time missing in the times of threads?
    pub softirq_apart: bool,
    /// Of this: the watch itself ran. `None` where the kernel does not say.
    pub own: Option<Duration>,
    /// Times that no thread of the highest priority could run for 1 ms and more, as far as they fell together with a wish of the
    /// sentinel; `None` where it may not have that priority.
    pub stalls: Option<Stalls>,
    /// When the longest of them began, as far as that is known, and how long they took; in order of time.
    pub stall_times: Vec<(Instant, Duration)>,
}

/// Times in which a processor did not run what it should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// How many.
    pub count: u64,
    /// Together.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

enum Ask {
    Begin,
    End,
}

/// A watch on one processor. It costs nothing until it begins.
#[derive(Debug)]
pub struct Watch {
    ask: Option<Sender<Ask>>,
    answers: Receiver<Option<Watched>>,
    sentinel: Option<JoinHandle<()>>,
}

impl Watch {
    /// A watch on the processor with this number.
    ///
    /// # Errors
    /// The system's: there is no such processor, or this process may not use it.
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

    /// Begins to watch.
    pub fn begin(&self) {
        // It answers when it has looked, so nothing that happens from here on is missed.
        if self.tell(Ask::Begin) {
            let _ = self.answers.recv();
        }
    }

    /// What happened since it began; `None` if it did not.
    pub fn end(&self) -> Option<Watched> {
        if self.tell(Ask::End) { self.answers.recv().ok().flatten() } else { None }
    }

    fn tell(&self, what: Ask) -> bool {
        self.ask.as_ref().is_some_and(|ask| ask.send(what).is_ok())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It ends when nobody can ask it any more.
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
}

impl Look {
    fn take(processor: usize) -> Look {
        let own = processors::own_times().map(|times| times.ran);
        Look { at: Instant::now(), processor: Processor::read(processor), own }
    }
}

/// The life of the sentinel, until nobody can ask it any more.
fn watch(processor: usize, real_time: bool, asked: &Receiver<Ask>, answer: &Sender<Option<Watched>>) {
    let mut pending = None;
    while let Some(ask) = pending.take().or_else(|| asked.recv().ok()) {
        let watched = match ask {
            Ask::End => None,
            Ask::Begin => {
                let tasks = Tasks::read();
                let first = Look::take(processor);
                if answer.send(None).is_err() {
                    return;
                }
                let mut stalls = Stalls::default();
                let mut times = Vec::with_capacity(MOST_TIMES);
                match wait(asked, &mut stalls, &mut times) {
                    // Nobody asked for what came of the last trial.
                    Some(Ask::Begin) => {
                        pending = Some(Ask::Begin);
                        continue;
                    }
                    Some(Ask::End) => {}
                    None => return,
                }
                let last = Look::take(processor);
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

/// Wakes every [`PERIOD`] until it is asked something; `None` if nobody can ask any more.
fn wait(asked: &Receiver<Ask>, stalls: &mut Stalls, times: &mut Vec<(Instant, Duration)>) -> Option<Ask> {
    loop {
        let before = Instant::now();
        match asked.recv_timeout(PERIOD) {
            Err(RecvTimeoutError::Timeout) => {
                let late = before.elapsed().saturating_sub(PERIOD);
                stalls.note(late);
                keep(times, before + PERIOD, late);
            }
            Err(RecvTimeoutError::Disconnected) => return None,
            Ok(ask) => return Some(ask),
        }
    }
}

/// Keeps a stall that began at `from`, if it is one, and is among the longest.
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
        // The time of the burner and what else ran there; idle time is told in steps of 10 ms at worst.
        assert!(rest >= Duration::from_millis(170), "{watched:?}");
        assert!(watched.own.is_none_or(|own| own < Duration::from_millis(50)), "{watched:?}");
        // One that nobody asked for is forgotten.
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
