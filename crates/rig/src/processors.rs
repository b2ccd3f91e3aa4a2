//! What the hypervisor took from the tester's processors.

use crate::ports::Ports;

/// Time that it took from the processor of each thread of the tester since boot, in ns; `None` where that is not known.
pub(crate) fn stolen(ports: &Ports) -> Option<Vec<u64>> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let processors = std::iter::once(own_processor()?).chain(ports.further_processors().iter().copied());
    processors.map(|processor| stolen_from(&stat, processor)).collect()
}

/// Time that the hypervisor took from `processor` since boot, in ns, by `/proc/stat`.
fn stolen_from(stat: &str, processor: usize) -> Option<u64> {
    let line = stat.lines().find(|l| l.split_whitespace().next() == Some(&format!("cpu{processor}")))?;
    // cpuN user nice system idle iowait irq softirq steal, in ticks of 10 ms (USER_HZ is 100 on every Linux of today).
    let ticks: u64 = line.split_whitespace().nth(8)?.parse().ok()?;
    Some(ticks * 10_000_000)
}

/// Processor that the calling thread runs on.
fn own_processor() -> Option<usize> {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
    let after_name = &stat[stat.rfind(')')? + 2..];
    after_name.split_whitespace().nth(36)?.parse().ok()
}
