//! The kernel's counters for processors and threads.

use crate::ports::Ports;
use std::time::Duration;

/// How long a thread ran, and how long it waited for a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time that the thread ran.
    pub ran: Duration,
    /// Time that the thread was runnable while something else ran.
    pub waited: Duration,
}

/// Returns the times of the calling thread since its start; `None` if the kernel does not count them.
pub fn own_times() -> Option<Times> {
    times(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Parses `/proc/PID/schedstat`: run time in ns, waiting time in ns, number of time slices.
fn times(schedstat: &str) -> Option<Times> {
    let mut numbers = schedstat.split_whitespace().map(|n| n.parse().ok().map(Duration::from_nanos));
    Some(Times { ran: numbers.next()??, waited: numbers.next()?? })
}

/// Counters of a processor since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processor {
    /// Idle time. The resolution is a microsecond if the kernel accounts for idle states (cpuidle), otherwise 10 ms.
    /// Read it on that processor: the processor is then not idle.
    pub(crate) idle: Option<Duration>,
    /// Number of times that the processor became idle.
    pub(crate) idled: Option<u64>,
    /// Time taken by a hypervisor, in steps of 10 ms.
    pub(crate) stolen: Option<Duration>,
    /// Time spent in softirqs, in steps of 10 ms.
    pub(crate) softirq: Option<Duration>,
    /// True if the kernel measures the time of interrupts, so that threads' times exclude it. Otherwise it samples, and
    /// charges interrupts to the thread that was running.
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

/// Returns the time in the idle states of a processor, and how often it entered one of them; `None` if the kernel does
/// not count them.
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

/// Returns the time in ns that a hypervisor took from the processor of each of the tester's threads since boot; `None` if unknown.
pub(crate) fn stolen(ports: &Ports) -> Option<Vec<u64>> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let processors = std::iter::once(own_processor()?).chain(ports.further_processors().iter().copied());
    processors.map(|processor| Some(stolen_from(&stat, processor)?.as_nanos() as u64)).collect()
}

/// Returns the time that a hypervisor took from `processor` since boot, according to `/proc/stat`.
fn stolen_from(stat: &str, processor: usize) -> Option<Duration> {
    ticks(stat, processor, 8)
}

/// Returns the time that `processor` was idle since boot, according to `/proc/stat`, including waits for a disk.
fn idle_from(stat: &str, processor: usize) -> Option<Duration> {
    Some(ticks(stat, processor, 4)? + ticks(stat, processor, 5)?)
}

/// True if the kernel measures the time of interrupts (CONFIG_IRQ_TIME_ACCOUNTING). A kernel that samples at each tick
/// never sees a hard interrupt, because the tick is delayed until the interrupt is over.
fn interrupts_are_measured(stat: &str, processor: usize) -> bool {
    ticks(stat, processor, 6).is_some_and(|irq| !irq.is_zero())
}

/// Returns a column of the line for `processor`: cpuN user nice system idle iowait irq softirq steal, in ticks of 10 ms
/// (USER_HZ is 100 on every current Linux).
fn ticks(stat: &str, processor: usize, column: usize) -> Option<Duration> {
    let line = stat.lines().find(|l| l.split_whitespace().next() == Some(&format!("cpu{processor}")))?;
    line.split_whitespace().nth(column)?.parse().ok().map(|ticks: u64| Duration::from_millis(10 * ticks))
}

/// Returns the processor that the calling thread runs on.
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
