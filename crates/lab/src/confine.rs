//! Confines the forwarding of a DUT in a namespace to one processor.
//!
//! By default a veth pair forwards in the context of the sender: the router's work would run on the tester's processor.
//! Threaded NAPI moves the receive work of an interface into a kernel thread. We can pin this thread, and its processor
//! time counts for the DUT.

use crate::cpu::{self, CpuPlan};
use crate::probe::ThreadTimes;
use crate::wait::{self, Look};
use crate::{LabError, Netns, probe, process};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::process::Command;
use std::time::Duration;

/// How the forwarding of a set of interfaces is confined.
#[derive(Debug)]
pub(crate) struct Confinement {
    /// Description for the record.
    pub(crate) text: String,
    /// Kernel threads that do the receive work, with their names.
    threads: Vec<(u32, String)>,
    /// Processor time of threads that ended with their link; `None` if the interfaces have no threads, or the time of
    /// any thread is not known.
    ended: Option<Duration>,
    /// True if the threads have priority over other work on their processor.
    favoured: bool,
    /// True if the threads are bound to the DUT's processor, and the tester does not share it.
    pub(crate) alone: bool,
}

impl Confinement {
    /// Nothing confined yet.
    pub(crate) fn none() -> Confinement {
        Confinement { text: String::new(), threads: Vec::new(), ended: None, favoured: false, alone: false }
    }

    /// Processor time spent on forwarding; `None` if no kernel threads forward.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        with_times(self.ended?, &self.threads)
    }

    /// Times of the threads that forward; `None` if there are none.
    pub(crate) fn threads(&self) -> Option<Vec<ThreadTimes>> {
        self.ended?;
        self.threads.iter().map(|(pid, _)| probe::thread_times(*pid)).collect()
    }

    /// Saves the processor time of the threads of `interface`. Call it before the link goes down, because the kernel
    /// then ends these threads.
    pub(crate) fn link_leaves(&mut self, interface: &str) {
        let all = std::mem::take(&mut self.threads);
        let (leaving, staying): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, name)| is_of(name, interface));
        self.threads = staying;
        self.ended = self.ended.and_then(|ended| with_times(ended, &leaving));
    }

    /// Confines the threads that the kernel made when the link of `interface` came up again, like their predecessors.
    pub(crate) fn link_returned(&mut self, interface: &str, threads: Vec<(u32, String)>, cpu: usize) {
        if self.ended.is_none() {
            return;
        }
        if threads.is_empty() {
            // Without threads, the receive work runs in the sender's context. An interface that never went down keeps
            // its threads.
            if !self.threads.iter().any(|(_, name)| is_of(name, interface)) {
                (self.ended, self.alone) = (None, false);
            }
            return;
        }
        self.link_leaves(interface);
        for (pid, _) in &threads {
            self.alone &= cpu::pin(*pid, cpu).is_ok();
        }
        self.favoured = self.favoured && favour("-p", threads.iter().map(|(pid, _)| *pid));
        self.threads.extend(threads);
    }
}

/// `sum` plus the processor time of these threads; `None` if any of these times is not known.
fn with_times(sum: Duration, threads: &[(u32, String)]) -> Option<Duration> {
    threads.iter().try_fold(sum, |sum, (pid, _)| Some(sum + probe::thread_time(*pid)?))
}

/// Sets an interface up again, and returns the kernel threads (process id, name) that the kernel created for it.
pub(crate) fn set_up_again(
    netns: &Netns,
    interface: &str,
    lock: Option<&File>,
) -> Result<Vec<(u32, String)>, LabError> {
    let mut made = threads_made(lock, || netns.ip(&[format!("link set {interface} up")]))?;
    // Other routers of a system have threads with the same names.
    made.retain(|thread| is_of(&thread.1, interface));
    Ok(made)
}

/// True if the thread called `name` receives for `interface`.
pub(crate) fn is_of(name: &str, interface: &str) -> bool {
    let named = name.strip_prefix("napi/").and_then(|name| name.strip_prefix(interface));
    named.is_some_and(|number| number.starts_with('-'))
}

/// Confines the receive work of `interfaces` (up, in `netns`) to the DUT's processor: by threaded NAPI, pinned if
/// permitted, or by RPS if its threads cannot be seen (in a container with its own PID namespace).
pub(crate) fn confine(
    netns: &Netns,
    interfaces: &[String],
    root: bool,
    lock: Option<&File>,
    cpus: &CpuPlan,
) -> Result<Confinement, LabError> {
    for name in interfaces {
        // Frames that the DUT itself sends must carry complete checksums.
        netns.output("ethtool", "ethtool", &["-K", name, "tx", "off"], None)?;
    }
    let shared = match cpus.separate() {
        true => "",
        false => "; tester and DUT share the only processor, so each slows the other",
    };
    let threads = threads_made(lock, || {
        interfaces.iter().try_for_each(|name| {
            netns.output("ethtool", "ethtool", &["-K", name, "gro", "on"], None)?;
            write_sys(netns, &format!("class/net/{name}/threaded"), "1")
        })
    })?;
    let Err(why) = complete(&threads, interfaces) else {
        let pinned = threads.iter().try_for_each(|(pid, _)| cpu::pin(*pid, cpus.dut));
        let alone = pinned.is_ok() && cpus.separate();
        let place = match pinned {
            Ok(()) => format!("on processor {}", cpus.dut),
            Err(_) if !root => "on the processor that the scheduler chooses (only root may pin it)".into(),
            Err(e) => format!("on the processor that the scheduler chooses ({e})"),
        };
        let favoured = root && favour("-p", threads.iter().map(|(pid, _)| *pid));
        let priority = if favoured { ", before other work there (nice -20)" } else { "" };
        let text = format!(
            "network namespace; receive work of each interface is a kernel thread (threaded NAPI) {place}{priority}{shared}"
        );
        return Ok(Confinement { text, threads, ended: Some(Duration::ZERO), favoured, alone });
    };
    for name in interfaces {
        write_sys(netns, &format!("class/net/{name}/threaded"), "0")?;
        netns.output("ethtool", "ethtool", &["-K", name, "gro", "off"], None)?;
    }
    let how = match interfaces.iter().try_for_each(|name| steer(netns, name, cpus.dut)) {
        Ok(()) => {
            format!("receive work is steered (RPS) to processor {}, its processor time is not known ({why})", cpus.dut)
        }
        Err(e) => format!("forwarding is NOT confined and runs on the tester's processor ({why}; {e})"),
    };
    Ok(Confinement { text: format!("network namespace; {how}{shared}"), ..Confinement::none() })
}

/// Gives the threads priority over other work on their processor, such as the kernel's softirq thread: if that thread
/// and a forwarding thread alternate, a turn lasts a tick (4 ms at 250 Hz), and a receive ring of 256 frames overflows
/// in that time at 64,000 frames per second. The priority ends with the threads. `which` is an option of renice(1):
/// `-p` for threads, `-g` for groups of processes.
pub(crate) fn favour(which: &str, ids: impl Iterator<Item = u32>) -> bool {
    let Ok(program) = process::find("renice", "bsdutils") else { return false };
    let mut command = Command::new(program);
    command.args(["-n", "-20", which]).args(ids.map(|id| id.to_string()));
    process::output(command, None).is_ok()
}

/// Steers the receive work of all queues of an interface to a processor.
pub(crate) fn steer(netns: &Netns, interface: &str, processor: usize) -> Result<(), LabError> {
    let mut queue = 0;
    loop {
        let file = format!("class/net/{interface}/queues/rx-{queue}/rps_cpus");
        if queue > 0 && !netns.sys(&file).exists() {
            return Ok(());
        }
        write_sys(netns, &file, &cpu::mask(processor))?;
        queue += 1;
    }
}

pub(crate) fn write_sys(netns: &Netns, file: &str, value: &str) -> Result<(), LabError> {
    let path = netns.sys(file);
    fs::write(&path, value).map_err(LabError::file("write", &path))
}

/// Runs `step`, and returns the threads of threaded NAPI (process id, name) that it created.
pub(crate) fn threads_made(
    lock: Option<&File>,
    step: impl FnOnce() -> Result<(), LabError>,
) -> Result<Vec<(u32, String)>, LabError> {
    // Other labs have threads with the same names, so two labs must not look for new ones at the same time.
    let _locked = lock.map(hold).transpose()?;
    let before = napi_threads();
    step()?;
    Ok(napi_threads().into_iter().filter(|t| !before.contains(t)).collect())
}

/// Checks that each interface has its thread.
fn complete(threads: &[(u32, String)], interfaces: &[String]) -> Result<(), String> {
    let has_none = |interface: &&String| !threads.iter().any(|(_, name)| is_of(name, interface));
    let lacking = interfaces.iter().find(has_none);
    lacking.map_or(Ok(()), |name| Err(format!("the kernel thread of {name} cannot be seen from here")))
}

/// All threads of threaded NAPI on this machine: process id, and a name such as `napi/d0-8193`.
pub(crate) fn napi_threads() -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<(u32, String)> = entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            name.starts_with("napi/").then(|| (pid, name.trim().to_owned()))
        })
        .collect();
    found.sort();
    found
}

/// Locks the folder that all labs on this machine share.
fn hold(folder: &File) -> Result<Flock<File>, LabError> {
    // A lock belongs to the open file description, which duplicated descriptors share, so open the folder again.
    let again = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(folder)));
    let mut file = Some(again.map_err(LabError::io("cannot open /run/lock"))?);
    wait::until(Duration::from_secs(20), &|| false, || match file.take() {
        Some(f) => match Flock::lock(f, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Look::Ready(lock)),
            Err((f, nix::Error::EWOULDBLOCK)) => {
                file = Some(f);
                Ok(Look::NotYet("another Drophammer process holds the lock on /run/lock".into()))
            }
            Err((_, e)) => Err(LabError::io("cannot lock /run/lock")(e)),
        },
        None => Err(LabError::io("cannot lock /run/lock")(nix::Error::EBADF)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_needs_its_thread() {
        let thread = |pid, name: &str| (pid, name.to_owned());
        let interfaces = ["d1".to_owned(), "d11".to_owned()];
        assert!(complete(&[thread(7, "napi/d1-8193"), thread(8, "napi/d11-8194")], &interfaces).is_ok());
        let error = complete(&[thread(8, "napi/d11-8194")], &interfaces).unwrap_err();
        assert!(error.contains("of d1 "), "{error}");
    }

    #[test]
    fn the_time_of_a_thread_that_ended_with_its_link_still_counts() {
        let thread = |pid, name: &str| (pid, name.to_owned());
        let start = || Command::new("sleep").arg("600").spawn().unwrap();
        let cpu = CpuPlan::make().unwrap().dut;
        let mut first = start();
        let threads = vec![thread(first.id(), "napi/d1-8193"), thread(std::process::id(), "napi/d11-8194")];
        let mut confinement = Confinement { threads, ended: Some(Duration::ZERO), alone: true, ..Confinement::none() };
        let before = confinement.cpu_time().unwrap();
        confinement.link_leaves("d1");
        first.kill().unwrap();
        first.wait().unwrap();
        let down = confinement.cpu_time().unwrap();
        assert!(down >= before, "{down:?} after {before:?}");
        assert_eq!(confinement.threads, [thread(std::process::id(), "napi/d11-8194")]);

        let mut second = start();
        confinement.link_returned("d1", vec![thread(second.id(), "napi/d1-8195")], cpu);
        // Nothing changes for an interface that was not down.
        confinement.link_returned("d1", Vec::new(), cpu);
        let up = confinement.cpu_time().unwrap();
        assert!(up >= down && confinement.threads.len() == 2 && confinement.alone, "{up:?} after {down:?}");

        confinement.link_leaves("d1");
        confinement.link_returned("d1", Vec::new(), cpu);
        assert!(confinement.cpu_time().is_none() && !confinement.alone, "nobody knows who receives");
        second.kill().unwrap();
        second.wait().unwrap();
    }

    #[test]
    fn two_labs_do_not_look_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(folder.path()).unwrap();
        let first = hold(&file).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| hold(&file).map(drop));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!second.is_finished());
            drop(first);
            second.join().unwrap().unwrap();
        });
    }
}
