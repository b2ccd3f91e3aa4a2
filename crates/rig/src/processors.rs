//! What the kernel counts of processors and threads.

use crate::ports::Ports;
use std::time::Duration;

/// Time of a thread on its processor and before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// It ran.
    pub ran: Duration,
    /// It could have run, but something else did.
    pub waited: Duration,
}

/// Times of the calling thread since it began; `None` where the kernel does not count them.
pub fn own_times() -> Option<Times> {
    times(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Of `/proc/PID/schedstat`: ns that it ran, ns that it waited, how often it ran.
fn times(schedstat: &str) -> Option<Times> {
    let mut numbers = schedstat.split_whitespace().map(|n| n.parse().ok().map(Duration::from_nanos));
    Some(Times { ran: numbers.next()??, waited: numbers.next()?? })
}

/// Counters of a processor since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processor {
    /// Nothing ran. To the microsecond where the kernel counts the states in which it waits (cpuidle), otherwise in steps of 10 ms. To be
    /// read on that processor, where no idle time is under way.
    pub(crate) idle: Option<Duration>,
    /// How often it became idle.
    pub(crate) idled: Option<u64>,
    /// A hypervisor had taken it, in steps of 10 ms.
    pub(crate) stolen: Option<Duration>,
    /// It worked for what had interrupted it (softirq), in steps of 10 ms.
    pub(crate) softirq: Option<Duration>,
    /// Does the kernel measure the time of interrupts, so that the times of threads do not contain it? Otherwise it looks now and then what
    /// is running, and a thread is charged for what interrupts it.
    pub(crate) softirq_apart: bool,
}

impl Processor {
    pub(crate) fn read(processor: usize) -> Processor {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let states = idle_states(processor);
        let idle = states.map(|(time, _)| time).or_else(|| idle_from(&stat, processor));
        Processor {
            idle,
            idled: states.map(|(_, times)| times),
            stolen: stolen_from(&stat, processor),
            softirq: ticks(&stat, processor, 7),
            softirq_apart: interrupts_are_measured(&stat, processor),
        }
    }
}

/// Time in the idle states of a processor, and how often it entered one; `None` where the kernel does not count them.
fn idle_states(processor: usize) -> Option<(Duration, u64)> {
    let states = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{processor}/cpuidle")).ok()?;
    let mut sum = None;
    for state in states.flatten() {
        let read = |name| std::fs::read_to_string(state.path().join(name)).ok()?.trim().parse::<u64>().ok();
        let (time, times) = sum.unwrap_or((Duration::ZERO, 0));
        sum = Some((time + Duration::from_micros(read("time")?), times + read("usage")?));
    }
    sum
}

/// Time that the hypervisor took from the processor of each thread of the tester since boot, in ns; `None` where that is not known.
pub(crate) fn stolen(ports: &Ports) -> Option<Vec<u64>> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let processors = std::iter::once(own_processor()?).chain(ports.further_processors().iter().copied());
    processors.map(|processor| Some(stolen_from(&stat, processor)?.as_nanos() as u64)).collect()
}

/// Time that the hypervisor took from `processor` since boot, by `/proc/stat`.
fn stolen_from(stat: &str, processor: usize) -> Option<Duration> {
    ticks(stat, processor, 8)
}

/// Time that `processor` was idle since boot, by `/proc/stat`, also where it waited for a disk.
fn idle_from(stat: &str, processor: usize) -> Option<Duration> {
    Some(ticks(stat, processor, 4)? + ticks(stat, processor, 5)?)
}

/// Are times of interrupts measured (CONFIG_IRQ_TIME_ACCOUNTING)? A kernel that looks at every tick what is running never finds a hard
/// interrupt, because the tick has to wait until it is over.
fn interrupts_are_measured(stat: &str, processor: usize) -> bool {
    ticks(stat, processor, 6).is_some_and(|irq| !irq.is_zero())
}

/// A column of the line of `processor`: cpuN user nice system idle iowait irq softirq steal, in ticks of 10 ms (USER_HZ is 100 on
/// every Linux of today).
fn ticks(stat: &str, processor: usize, column: usize) -> Option<Duration> {
    let line = stat.lines().find(|l| l.split_whitespace().next() == Some(&format!("cpu{processor}")))?;
    line.split_whitespace().nth(column)?.parse().ok().map(|ticks: u64| Duration::from_millis(10 * ticks))
}

/// Processor that the calling thread runs on.
fn own_processor() -> Option<usize> {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
    let after_name = &stat[stat.rfind(')')? + 2..];
    after_name.split_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_the_processor() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 4705 150 1120 16250 520 0 17 30 0 0\ncpu11 1 1 1 1 1 1 1 7 0 0\nintr 5\n";
        assert_eq!(stolen_from(stat, 1), Some(Duration::from_millis(300)));
        assert_eq!(idle_from(stat, 1), Some(Duration::from_millis(167_700)));
        assert_eq!(stolen_from(stat, 11), Some(Duration::from_millis(70)));
        assert_eq!((stolen_from(stat, 2), idle_from("", 1)), (None, None));
        assert_eq!(
            (ticks(stat, 1, 7), ticks(stat, 11, 7)),
            (Some(Duration::from_millis(170)), Some(Duration::from_millis(10)))
        );
        assert!(!interrupts_are_measured(stat, 1) && interrupts_are_measured(stat, 11));
    }

    #[test]
    fn times_of_a_thread() {
        let two = Times { ran: Duration::from_nanos(1_234), waited: Duration::from_nanos(56) };
        assert_eq!(times("1234 56 7\n"), Some(two));
        assert_eq!((times("1234"), times("a b c"), times("")), (None, None, None));
    }
}
