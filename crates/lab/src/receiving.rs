//! Keeps the tester's receive work off the router's processor.
//!
//! The kernel receives a frame from a veth pair in a softirq on the sender's processor, so the tester's work slows the
//! router down, by a different share with each backend. There are two ways to move it to the tester's processors. For
//! packet sockets, the lab uses receive packet steering, which comes after the kernel has taken the arrival timestamp.
//! An XDP program runs before receive packet steering, so the receive work of its interface becomes a kernel thread.
//! The thread has priority over ordinary threads: if it took turns with the packet loop, frames would wait for
//! milliseconds.

use crate::confine::{is_of, napi_threads, steer, threads_made, write_sys};
use crate::dut::{TesterInterface, Where};
use crate::{Lab, LabError, Netns, cpu, probe, process};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The threads that receive for this process. A process has at most one lab.
static RECEIVERS: Mutex<Receivers> = Mutex::new(Receivers { threads: Vec::new(), text: "" });

struct Receivers {
    /// Kernel threads: (process id, name).
    threads: Vec<(u32, String)>,
    /// Description for the record.
    text: &'static str,
}

fn receivers() -> MutexGuard<'static, Receivers> {
    RECEIVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the kernel receives for the ports that were opened last, described for the record; empty if it receives in the
/// sender's context.
pub fn receiving() -> &'static str {
    receivers().text
}

/// Processor time of the kernel threads that receive for the tester.
pub fn receive_time() -> Duration {
    receivers().threads.iter().filter_map(|(pid, _)| probe::thread_time(*pid)).sum()
}

/// Records that the kernel receives in the sender's context for the ports opened next.
pub fn receive_at_sender() {
    let mut receivers = receivers();
    receivers.text = "";
    // Other routers may be up, with threads that still receive from them.
    let alive = napi_threads();
    receivers.threads.retain(|thread| alive.contains(thread));
}

impl Lab {
    /// Moves the receive work of the tester's ends of virtual links to the tester's processors, if the kernel permits
    /// it. Call it after the ports are open, because an XDP program changes how its interface receives.
    pub fn receive_on_tester(&self, interfaces: &[TesterInterface]) -> Result<(), LabError> {
        let shared = self.shared();
        let ours = interfaces.iter().filter(|interface| matches!(interface.netns, Where::Tester));
        let mut ours = ours.map(|interface| interface.name.as_str()).peekable();
        receivers().text = "";
        let processors = shared.receivers();
        if processors.is_empty() || ours.peek().is_none() {
            return Ok(());
        }
        let tester = Netns::tester(shared)?;
        let mut moved = true;
        for (name, processor) in ours.zip(processors.iter().cycle()) {
            moved &= steer(&tester, name, *processor).is_ok();
            moved &= self.thread_on(&tester, name, *processor)?;
        }
        receivers().text = match moved {
            true => "; the tester receives on its own processors",
            false => "; the tester receives partly on the router's processor, because the kernel refuses another one",
        };
        Ok(())
    }

    /// Gives the receive work of `interface` a thread on `processor`, if the driver supports that. Returns false if the
    /// thread cannot be bound to that processor.
    fn thread_on(&self, tester: &Netns, interface: &str, processor: usize) -> Result<bool, LabError> {
        let file = format!("class/net/{interface}/threaded");
        // The kernel refuses this while the interface receives without NAPI. Threads of an earlier port end here.
        if write_sys(tester, &file, "0").is_err() {
            return Ok(true);
        }
        let mut threads = threads_made(self.shared().lock.as_ref(), || write_sys(tester, &file, "1"))?;
        threads.retain(|(_, name)| is_of(name, interface));
        let bound = !threads.is_empty()
            && threads.iter().all(|(pid, _)| cpu::pin(*pid, processor).is_ok() && before_ordinary(*pid));
        if !bound {
            return write_sys(tester, &file, "0").map(|()| false);
        }
        let all = &mut receivers().threads;
        all.retain(|(_, name)| !is_of(name, interface));
        all.extend(threads);
        Ok(true)
    }
}

/// Gives a thread priority over all ordinary threads (SCHED_FIFO).
fn before_ordinary(pid: u32) -> bool {
    let Ok(program) = process::find("chrt", "util-linux") else { return false };
    let mut command = Command::new(program);
    command.args(["--fifo", "--pid", "1", &pid.to_string()]);
    process::output(command, None).is_ok()
}
