//! Network namespaces, and threads that enter them.

use crate::LabError;
use crate::enter::Shared;
use crate::mounts;
use crate::process;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

/// Runs `before` and then `work` on a separate thread and returns the result of `work`. A thread can change its
/// namespaces without affecting the others.
pub(crate) fn on_a_thread<T: Send>(
    before: impl FnOnce() -> Result<(), LabError> + Send,
    work: impl FnOnce() -> T + Send,
) -> Result<T, LabError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("lab".into())
            .spawn_scoped(scope, || before().map(|()| work()))
            .map_err(LabError::io("cannot start a thread"))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A network namespace of the lab. It lives as long as this value or a process in it, and has no name in the file system.
#[derive(Debug)]
pub struct Netns {
    shared: Arc<Shared>,
    file: File,
    sys: PathBuf,
    own_sys: bool,
}

impl Netns {
    /// A new, empty namespace with its own view of /sys.
    pub(crate) fn create(shared: &Arc<Shared>, name: &str) -> Result<Netns, LabError> {
        let sys = shared.state.join(format!("sys-{name}"));
        fs::create_dir_all(&sys).map_err(LabError::file("create", &sys))?;
        let make = || -> Result<File, LabError> {
            unshare(CloneFlags::CLONE_NEWNET).map_err(LabError::io("cannot create a network namespace"))?;
            mounts::sysfs(&sys)?;
            own_namespace()
        };
        let file = on_a_thread(|| Ok(()), make)??;
        Ok(Netns { shared: Arc::clone(shared), file, sys, own_sys: true })
    }

    /// The tester's namespace.
    pub(crate) fn tester(shared: &Arc<Shared>) -> Result<Netns, LabError> {
        let file = shared.tester.try_clone().map_err(LabError::io("cannot duplicate a descriptor"))?;
        Ok(Netns { shared: Arc::clone(shared), file, sys: "/sys".into(), own_sys: false })
    }

    /// Another handle to the same namespace. Its files in /sys are visible while the first handle exists.
    pub(crate) fn again(&self) -> Result<Netns, LabError> {
        let file = self.file.try_clone().map_err(LabError::io("cannot duplicate a descriptor"))?;
        Ok(Netns { shared: Arc::clone(&self.shared), file, sys: self.sys.clone(), own_sys: false })
    }

    /// Runs `work` on a thread inside the namespace. Sockets that it opens and processes that it starts belong to the
    /// namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let before = || {
            setns(&self.file, CloneFlags::CLONE_NEWNET)
                .and_then(|()| setns(&self.shared.pids, CloneFlags::CLONE_NEWPID))
                .map_err(LabError::io("cannot enter a namespace of the lab"))
        };
        on_a_thread(before, work)
    }

    /// A command of the lab, to be started inside [`Netns::run`].
    pub(crate) fn command(&self, program: &Path) -> Command {
        process::command(program, &self.shared.mark)
    }

    /// Runs a program of `package` inside the namespace with `stdin` and returns its standard output.
    pub(crate) fn output(
        &self,
        program: &str,
        package: &str,
        args: &[&str],
        stdin: Option<&str>,
    ) -> Result<String, LabError> {
        let path = process::find(program, package)?;
        self.run(|| {
            let mut command = self.command(&path);
            command.args(args);
            process::output(command, stdin)
        })?
    }

    /// Runs lines of ip(8) inside the namespace; stops at the first one that fails.
    pub fn ip(&self, lines: &[String]) -> Result<(), LabError> {
        self.run(|| self.batch(lines))?
    }

    /// Like [`Netns::ip`], but outside the lab's PID namespace, which accepts no new process after its first one has
    /// ended.
    pub(crate) fn ip_unheld(&self, lines: &[String]) -> Result<(), LabError> {
        let before =
            || setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(LabError::io("cannot enter a namespace of the lab"));
        on_a_thread(before, || self.batch(lines))?
    }

    /// Runs lines of ip(8) in the namespace of the calling thread.
    fn batch(&self, lines: &[String]) -> Result<(), LabError> {
        let mut command = self.command(&process::find("ip", "iproute2")?);
        command.args(["-batch", "-"]);
        process::output(command, Some(&(lines.join("\n") + "\n"))).map(drop).map_err(|e| match e {
            // "Command failed -:3" means little without the lines.
            LabError::Command { command, status, output } => {
                LabError::Command { command, status, output: format!("{output}\n    of: {}", lines.join("; ")) }
            }
            other => other,
        })
    }

    /// Runs ip(8) with JSON output: `ip -j ARGS`.
    pub(crate) fn ip_json(&self, args: &[&str]) -> Result<Vec<serde_json::Value>, LabError> {
        let args: Vec<&str> = std::iter::once("-j").chain(args.iter().copied()).collect();
        ip_json(&self.output("ip", "iproute2", &args, None)?)
    }

    /// Writes sysctls inside the namespace: (`net/ipv4/ip_forward`, `1`).
    pub(crate) fn sysctl(&self, settings: &[(String, &str)]) -> Result<(), LabError> {
        self.run(|| {
            settings.iter().try_for_each(|(key, value)| {
                let path = Path::new("/proc/sys").join(key);
                fs::write(&path, value).map_err(|e| setting_refused(&path, e))
            })
        })?
    }

    /// Path of a file in the namespace's /sys.
    pub(crate) fn sys(&self, file: &str) -> PathBuf {
        self.sys.join(file)
    }

    /// The folder in /sys with the interfaces of the namespace.
    pub(crate) fn interfaces(&self) -> PathBuf {
        self.sys.join("class/net")
    }

    /// Path under which other programs can open the namespace while this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// The error for a kernel setting that could not be written. Container runtimes mount `/proc/sys` read-only, even for a
/// container with the capabilities to write there.
fn setting_refused(path: &Path, error: std::io::Error) -> LabError {
    if error.kind() != std::io::ErrorKind::ReadOnlyFilesystem {
        return LabError::file("write", path)(error);
    }
    LabError::forbidden(
        format!("cannot write {}: {error}", path.display()),
        "in a container, make /proc/sys writable: `docker run --privileged`, or `--security-opt \
         systempaths=unconfined` in addition to the capabilities in docs/getting-it.md",
    )
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if self.own_sys {
            // If this fails, the mount ends with the process.
            let _ = mounts::undo(&self.sys);
            let _ = fs::remove_dir(&self.sys);
        }
    }
}

/// True if this machine's kernel has IPv6.
pub(crate) fn kernel_has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// Parses the JSON list that ip(8) prints. For an empty list, ip(8) prints nothing at all.
pub(crate) fn ip_json(text: &str) -> Result<Vec<serde_json::Value>, LabError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).map_err(LabError::io("cannot read the JSON of ip(8)"))
}

/// The calling thread's network namespace.
pub(crate) fn own_namespace() -> Result<File, LabError> {
    let path = Path::new("/proc/thread-self/ns/net");
    File::open(path).map_err(LabError::file("open", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Error;

    #[test]
    fn a_setting_in_a_container_has_its_remedy() {
        let path = Path::new("/proc/sys/net/ipv4/ip_forward");
        let refused = |errno: i32| setting_refused(path, Error::from_raw_os_error(errno)).to_string();
        let read_only = refused(nix::libc::EROFS);
        assert!(read_only.contains("ip_forward") && read_only.contains("help: in a container"), "{read_only}");
        assert!(!refused(nix::libc::EINVAL).contains("help"));
    }
}
