//! Priority and processors of a thread.

use crate::af_packet::sys::check;
use std::io;

/// While this exists, the calling thread runs at high priority (nice -20), if permitted. Dropping it restores the old
/// priority. Do not keep it between trials, because processes started then would inherit the priority.
#[derive(Debug)]
pub struct HighPriority {
    before: Option<libc::c_int>,
}

/// Returns the priority of the calling thread. On Linux each thread has its own.
fn get() -> libc::c_int {
    // SAFETY: plain call; 0 means the calling thread. A result of -1 could be an error, but not for the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn set(nice: libc::c_int) -> bool {
    // SAFETY: plain call; 0 means the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

impl HighPriority {
    /// Raises the priority of the calling thread, if permitted.
    pub fn new() -> HighPriority {
        let before = get();
        HighPriority { before: set(-20).then_some(before) }
    }

    /// True if the higher priority was permitted.
    pub fn is_granted(&self) -> bool {
        self.before.is_some()
    }
}

impl Default for HighPriority {
    fn default() -> Self {
        HighPriority::new()
    }
}

impl Drop for HighPriority {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            set(before);
        }
    }
}

/// From now on, the calling thread preempts every ordinary thread on its processor (SCHED_FIFO). Only for threads that rarely run.
///
/// # Errors
/// The operating system's error if it is not permitted.
pub fn before_all() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters are valid; 0 means the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) }).map(drop)
}

/// Pins the calling thread to one processor, given by the kernel's number.
///
/// # Errors
/// The operating system's error if the processor does not exist or this process cannot use it.
pub fn pin(processor: usize) -> io::Result<()> {
    restrict(&[processor])
}

/// Restricts the calling thread to these processors.
///
/// # Errors
/// The operating system's error if a processor does not exist or this process cannot use any of them.
pub(crate) fn restrict(processors: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero set is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if processors.iter().any(|processor| *processor >= libc::CPU_SETSIZE as usize) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the numbers are within the set.
    processors.iter().for_each(|processor| unsafe { libc::CPU_SET(*processor, &mut set) });
    // SAFETY: the set is valid and its size is passed; 0 means the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) }).map(drop)
}

/// Returns the processors that the calling thread can use, in ascending order.
pub fn usable() -> Vec<usize> {
    // SAFETY: an all-zero set is a valid, empty set, which the call fills; 0 means the calling thread.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        set
    };
    // SAFETY: the numbers are within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Sets the length of the calling thread's time slices (0: the default) and its priority (`None`: unchanged), as far as
/// permitted. The length requires Linux 6.12.
pub(crate) fn take_turns(turn_ns: u64, nice: Option<i32>) {
    let mut attributes = Attributes { size: size_of::<Attributes>() as u32, ..Attributes::default() };
    // SAFETY: the kernel fills the struct, whose size is passed; 0 means the calling thread.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, attributes.size, 0) } != 0 {
        return;
    }
    attributes.runtime = turn_ns;
    attributes.nice = nice.unwrap_or(attributes.nice);
    // SAFETY: the kernel reads the struct, whose size is passed.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_is_given_back() {
        let before = get();
        let priority = HighPriority::new();
        assert_eq!(get(), if priority.is_granted() { -20 } else { before });
        drop(priority);
        assert_eq!(get(), before);
    }

    #[test]
    fn a_pinned_thread_stays_where_it_was_put() {
        let before = usable();
        let last = *before.last().unwrap();
        std::thread::spawn(move || {
            pin(last).unwrap();
            assert_eq!(usable(), [last]);
            assert!(pin(libc::CPU_SETSIZE as usize).is_err());
        })
        .join()
        .unwrap();
        assert_eq!(usable(), before, "other threads are left alone");
    }
}
