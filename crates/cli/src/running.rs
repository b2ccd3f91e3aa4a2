//! The process of a run, recorded in `process.jsonl` in the folder of the run.
//!
//! The first line names the process of the run, the second says how it ended. The process keeps the file locked until
//! it exits. So a locked file means that the run is active, and that the process number in it has not been reused. The
//! kernel releases the lock (flock) however the process ends. The lock of the records (`run.lock`) is not sufficient,
//! because it is free while the report is written.

use crate::Exit;
use drophammer_store::{open_regular, read_regular};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Name of the file.
pub const FILE: &str = "process.jsonl";
/// Maximum number of bytes of the file; two lines need a few hundred.
const LONGEST: u64 = 64 << 10;

/// A process, identified by more than its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pid: u32,
    /// When it started, in clock ticks since the boot: a later process may get the same number.
    start: u64,
    /// The PID namespace of its number: in another container, the number means another process.
    namespace: u64,
    /// The boot of this machine: on a shared disk another machine may hold the lock.
    boot: String,
}

impl Process {
    /// The process that has this number in this namespace now.
    fn of(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Counts fields after the last parenthesis, because the name in parentheses may contain any character.
        let (_, fields) = stat.rsplit_once(')')?;
        let start = fields.split_whitespace().nth(19)?.parse().ok()?;
        let namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        Some(Process { pid, start, namespace, boot })
    }

    fn json(&self) -> Value {
        json!({"pid": self.pid, "start": self.start, "namespace": self.namespace, "boot": self.boot})
    }

    fn read(value: &Value) -> Option<Process> {
        Some(Process {
            pid: value["pid"].as_u64()?.try_into().ok()?,
            start: value["start"].as_u64()?,
            namespace: value["namespace"].as_u64()?,
            boot: value["boot"].as_str()?.to_owned(),
        })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Asks the process to stop, as Ctrl-C does. Call it only while the process holds the lock. Another process with
    /// the same number gets no signal. Errors contain a remedy.
    pub fn interrupt(&self) -> Result<(), String> {
        if Process::of(self.pid).as_ref() != Some(self) {
            return Err("the run is active in another container or on another machine; stop it there".into());
        }
        kill(Pid::from_raw(self.pid.cast_signed()), Signal::SIGTERM).map_err(|e| match e {
            nix::Error::EPERM => format!("process {} is another user's; stop it as that user or as root", self.pid),
            e => format!("process {} cannot be asked to stop: {e}", self.pid),
        })
    }
}

/// The locked file of the process of a run.
#[derive(Debug)]
pub struct Held {
    file: File,
}

impl Held {
    /// Records this process in the folder of its run; `console` if its output goes into a file in that folder. Waits
    /// while an earlier process still writes the report of the same run.
    pub fn take(dir: &Path, console: bool) -> io::Result<Held> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(nix::libc::O_NOFOLLOW);
        let mut file = options.open(dir.join(FILE))?;
        file.lock()?;
        file.set_len(0)?;
        let process = Process::of(std::process::id()).map(|process| process.json());
        writeln!(file, "{}", json!({"process": process, "console": console}))?;
        Ok(Held { file })
    }

    /// Records how the run ended.
    pub fn end(mut self, exit: Exit) {
        // Without this line the run counts as killed. There is no place to report an error.
        let _ = writeln!(self.file, "{}", json!({"exit": exit as u8}));
        // Closing the file is not sufficient: a process that another thread is starting may have a copy of it for a moment.
        let _ = self.file.unlock();
    }
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The run is active, in this process; `None` for the short time before the file names the process.
    Running(Option<Process>),
    /// The run ended with this exit code; `None` if it was killed or the machine went down.
    Ended(Option<u8>),
}

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub state: State,
    /// True if the output of the run goes into a file in its folder.
    pub console: bool,
}

/// Checks whether the run in `dir` is active. The error is [`io::ErrorKind::NotFound`] if no process is recorded there.
pub fn look(dir: &Path) -> io::Result<Found> {
    let path = dir.join(FILE);
    let file = open_regular(&path)?;
    // Check first, then read: when the lock is free, everything has been written.
    let held = match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(e)) => return Err(e),
    };
    let text = String::from_utf8_lossy(&read_regular(&path, LONGEST)?).into_owned();
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |key: &str| lines.iter().find_map(|line| line.get(key));
    let state = match held {
        true => State::Running(of("process").and_then(Process::read)),
        false => State::Ended(of("exit").and_then(Value::as_u64).and_then(|code| code.try_into().ok())),
    };
    Ok(Found { state, console: of("console") == Some(&Value::Bool(true)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_until_its_process_ends() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(look(folder.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
        let held = Held::take(folder.path(), true).unwrap();
        let own = Process::of(std::process::id()).unwrap();
        assert_eq!(look(folder.path()).unwrap(), Found { state: State::Running(Some(own)), console: true });
        held.end(Exit::Undecided);
        assert_eq!(look(folder.path()).unwrap(), Found { state: State::Ended(Some(5)), console: true });
        // A later process of the same run, which gets killed.
        let held = Held::take(folder.path(), false).unwrap();
        assert!(matches!(look(folder.path()).unwrap().state, State::Running(Some(_))));
        held.file.unlock().unwrap();
        assert_eq!(look(folder.path()).unwrap(), Found { state: State::Ended(None), console: false });
    }

    #[test]
    fn a_file_that_is_not_written_yet_or_damaged_names_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let lock = File::create(&path).unwrap();
        lock.lock().unwrap();
        for text in ["", "{\"process\":{\"pid\":", "{\"process\":{\"pid\":-1}}\n", "[]\n7\n"] {
            fs::write(&path, text).unwrap();
            assert_eq!(look(folder.path()).unwrap().state, State::Running(None), "{text}");
        }
        lock.unlock().unwrap();
        fs::write(&path, "{\"exit\":1000}\n").unwrap();
        assert_eq!(look(folder.path()).unwrap().state, State::Ended(None));
    }

    #[test]
    fn a_number_alone_is_no_process() {
        let own = Process::of(std::process::id()).unwrap();
        assert_eq!(Process::read(&own.json()), Some(own.clone()));
        // A signal to the real process would end this test.
        for other in [
            Process { start: own.start + 1, ..own.clone() },
            Process { namespace: own.namespace + 1, ..own.clone() },
            Process { boot: "another".into(), ..own.clone() },
        ] {
            assert!(other.interrupt().unwrap_err().contains("another machine"), "{other:?}");
        }
        assert_eq!(Process::of(u32::MAX), None);
    }
}
