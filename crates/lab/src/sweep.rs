//! Ends processes that an earlier lab may have left.
//!
//! A lab leaves nothing behind by design: its daemons end with its PID namespace, its links with its network
//! namespaces, its files with a tmpfs that only it sees. Only the user's commands, which kind `external` runs outside
//! these namespaces, can remain. Every process of a lab carries a mark in its environment that names the lab's main
//! process. [`sweep`] ends marked processes whose main process has ended. No kind changes a setting of the host today.
//! A kind that needs to do so must first write the old value to a journal file, and restore it here.

use crate::process::MARK;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The mark of a lab: `pid:start time:PID namespace` of its main process.
pub(crate) fn mark() -> String {
    let pid = std::process::id();
    format!("{pid}:{}:{}", start_time(pid).unwrap_or(0), pid_namespace())
}

/// Time at which a process started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, so count the fields after the last parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Identity of our PID namespace: process ids in other namespaces mean nothing here.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

/// True if the main process named by `mark` has certainly ended.
fn orphaned(mark: &str) -> bool {
    let mut parts = mark.split(':').map(|p| p.parse::<u64>().ok());
    let (Some(Some(pid)), Some(Some(start)), Some(Some(namespace))) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Ok(pid) = u32::try_from(pid) else { return false };
    namespace == pid_namespace() && start_time(pid) != Some(start)
}

/// Ends processes that earlier labs left, and returns one line about each. Safe while other labs run, because their
/// main processes are alive.
pub fn sweep() -> Vec<String> {
    let mut found = Vec::new();
    let prefix = format!("{MARK}=");
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        let marked = environment
            .split(|b| *b == 0)
            .any(|variable| String::from_utf8_lossy(variable).strip_prefix(&prefix).is_some_and(orphaned));
        if marked && pid != std::process::id() {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            let ended = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            let how = ended.map_or_else(|e| format!("could not be ended: {e}"), |()| "ended".into());
            found.push(format!("process {pid} ({}): {how}", name.trim()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_marked_processes_of_dead_labs_are_ended() {
        let sleep = |mark: String| Command::new("sleep").arg("600").env(MARK, mark).spawn().unwrap();
        let namespace = pid_namespace();
        let mut gone = sleep(format!("{}:1:{namespace}", std::process::id()));
        let mut alive = sleep(mark());
        let mut elsewhere = sleep(format!("{}:1:1", std::process::id()));
        let found = sweep();
        assert!(found.iter().any(|f| f.contains(&gone.id().to_string())), "{found:?}");
        assert!(!gone.wait().unwrap().success());
        for child in [&mut alive, &mut elsewhere] {
            assert!(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
