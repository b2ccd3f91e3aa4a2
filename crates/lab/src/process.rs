//! Finds, starts, watches and ends programs and daemons.

use crate::wait::{self, Look};
use crate::{LabError, Netns, cpu};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Name of an environment variable that every process of a lab has; see [`crate::sweep`].
pub(crate) const MARK: &str = "DROPHAMMER_LAB";

/// Folders searched after `PATH`: the `PATH` of ordinary users lacks the sbin folders, and FRR has its own folders.
const FOLDERS: [&str; 6] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/usr/lib/frr", "/usr/libexec/frr"];

/// Time for a daemon to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// Path of a program, or [`LabError::MissingProgram`] with its Debian package.
pub(crate) fn find(program: &str, package: &str) -> Result<PathBuf, LabError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0))
        .ok_or_else(|| LabError::MissingProgram { program: program.into(), package: package.into() })
}

/// A command with the mark of the lab, in its own process group, so that a terminal's Ctrl-C does not reach it.
pub(crate) fn command(program: &Path, mark: &str) -> Command {
    let mut command = Command::new(program);
    command.process_group(0).env(MARK, mark).stdin(Stdio::null());
    command
}

/// Number of files that a daemon may open, at least. Shells and the first process of a kernel often allow 1,024: a routing daemon then takes
/// no more than about a thousand sessions, and the limit measured would be the lab's.
const OPEN_FILES: u64 = 65_536;

/// Lets this process, and those that it starts, open [`OPEN_FILES`], or as many as its rights permit.
pub(crate) fn allow_open_files() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    // Only root may raise the hard limit.
    if soft < OPEN_FILES && setrlimit(Resource::RLIMIT_NOFILE, OPEN_FILES, hard.max(OPEN_FILES)).is_err() {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(OPEN_FILES), hard);
    }
}

/// Runs a short command to its end. Returns its standard output, or [`LabError::Command`] with all of its output.
pub(crate) fn output(mut command: Command, stdin: Option<&str>) -> Result<String, LabError> {
    let failed = |command: &Command, status: String, output: String| {
        let command = command_line(command);
        LabError::Command { command, status, output }
    };
    command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| failed(&command, "cannot start".into(), e.to_string()))?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        // A command that ends before it has read everything reports its own error below.
        let _ = pipe.write_all(text.as_bytes());
    }
    let out = child.wait_with_output().map_err(|e| failed(&command, "cannot wait".into(), e.to_string()))?;
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() {
        return Ok(stdout);
    }
    let text = format!("{}{stdout}", String::from_utf8_lossy(&out.stderr));
    Err(failed(&command, out.status.to_string(), text.trim().into()))
}

/// The version text that a program prints, on standard output or standard error.
pub(crate) fn version(mut command: Command, option: &str) -> Result<String, LabError> {
    let name = command_line(&command);
    let out = command.arg(option).output().map_err(LabError::io(format!("cannot start {name}")))?;
    let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    Ok(text.trim().to_owned())
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// True if a child has ended.
fn gone(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

/// Waits at most `limit` for a child to end; true if it did.
fn ends(child: &mut Child, limit: Duration) -> bool {
    wait::while_missing(limit, &|| false, || Ok((!gone(child)).then(String::new))).is_ok()
}

/// Ends a process by SIGKILL, or first by SIGTERM if `polite`. Returns when it has ended.
fn end(child: &mut Child, polite: bool) {
    if gone(child) {
        return;
    }
    if polite {
        let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
        if ends(child, GRACE) {
            return;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// A daemon of a DUT, run in the foreground as our child. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: String,
    child: Child,
    /// The command that starts it, kept for a restart.
    command: Command,
    /// Socket on which the daemon must listen before a restart starts the next daemon.
    listens: Option<PathBuf>,
    log: PathBuf,
}

impl Daemon {
    /// Starts a daemon in a namespace, on processor `cpu`, with its output in `folder/<name>.log`.
    pub(crate) fn start_in(
        netns: &Netns,
        cpu: usize,
        name: &str,
        command: Command,
        folder: &Path,
    ) -> Result<Daemon, LabError> {
        netns.run(|| {
            cpu::pin(0, cpu)?;
            Daemon::start(name, command, folder)
        })?
    }

    /// Like [`Daemon::start_in`], but in the current namespace and on any processor.
    pub(crate) fn start(name: &str, mut command: Command, folder: &Path) -> Result<Daemon, LabError> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).map_err(LabError::file("create", &log))?;
        let copy = file.try_clone().map_err(LabError::file("open", &log))?;
        command.stdin(Stdio::null()).stdout(file).stderr(copy);
        let child = command.spawn().map_err(LabError::io(format!("cannot start {}", command_line(&command))))?;
        Ok(Daemon { name: name.into(), child, command, listens: None, log })
    }

    /// Sets the socket on which the daemon must listen before a restart starts the next daemon.
    pub(crate) fn listens(&mut self, socket: &Path) {
        self.listens = Some(socket.to_owned());
    }

    /// Ends the daemon: if `politely`, by SIGTERM, then by SIGKILL after three seconds; otherwise immediately by
    /// SIGKILL, with all processes of its group.
    pub(crate) fn end(&mut self, politely: bool) {
        if !politely {
            let _ = killpg(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGKILL);
        }
        end(&mut self.child, politely);
    }

    /// Starts the daemon again with the same command; it appends to its log. Call it inside the DUT's namespace, after
    /// the daemon has ended.
    pub(crate) fn start_again(&mut self) -> Result<(), LabError> {
        let line = command_line(&self.command);
        self.child = self.command.spawn().map_err(LabError::io(format!("cannot start {line} again")))?;
        Ok(())
    }

    /// If other daemons need that this one listens, waits for it, at most for `limit`.
    pub(crate) fn await_listening(&mut self, limit: Duration) -> Result<(), LabError> {
        let Some(socket) = self.listens.clone() else { return self.check() };
        wait::while_missing(limit, &|| false, || {
            self.check()?;
            let refused = UnixStream::connect(&socket).err();
            Ok(refused.map(|e| format!("{} does not listen: {e}", self.name)))
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Process id in the PID namespace of the tester.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last lines of the log, indented, after a line with the name of the file.
    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// Returns [`LabError::DaemonDied`] with the last log lines if the daemon no longer runs.
    pub(crate) fn check(&mut self) -> Result<(), LabError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.died(&status.to_string())),
            Err(e) => Err(self.died(&e.to_string())),
        }
    }

    /// Like [`Daemon::check`], for a program that may stop working without ending. In that case its log has a line that
    /// begins with `words`.
    pub(crate) fn check_works(&mut self, words: &str) -> Result<(), LabError> {
        self.check()?;
        match end_of(&self.log).lines().find(|line| line.starts_with(words)) {
            Some(line) => Err(self.died(line)),
            None => Ok(()),
        }
    }

    fn died(&self, status: &str) -> LabError {
        let log = self.log_tail();
        let log = if log.is_empty() { log } else { format!("\n{log}") };
        LabError::DaemonDied { name: self.name.clone(), status: status.into(), log }
    }

    /// Waits at most `limit` for the daemon to end on its own. Call [`Daemon::end`] afterwards.
    pub(crate) fn await_end(&mut self, limit: Duration) {
        ends(&mut self.child, limit);
    }

    /// Ends the daemon by SIGTERM, or by SIGKILL after three seconds.
    pub(crate) fn stop(mut self) {
        end(&mut self.child, true);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end(&mut self.child, false);
    }
}

/// An empty log, opened for appending: a process that outlives its command continues to write to it even after it was
/// rewritten.
fn emptied(log: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(log)?;
    file.set_len(0)?;
    Ok(file)
}

/// Runs a shell command of the user to its end, with its output in `log`. Ends its whole process group with
/// [`LabError::NotReady`] at the limit, and with [`LabError::Stopped`] if the user asks to stop.
pub(crate) fn shell(
    text: &str,
    mark: &str,
    environment: &[(String, String)],
    log: &Path,
    limit: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<ExitStatus, LabError> {
    let file = emptied(log).map_err(LabError::file("create", log))?;
    let copy = file.try_clone().map_err(LabError::file("open", log))?;
    let mut shell = command(&find("sh", "dash")?, mark);
    shell.arg("-c").arg(text).envs(environment.iter().cloned()).stdout(file).stderr(copy);
    let mut child = shell.spawn().map_err(LabError::io(format!("cannot start `{text}`")))?;
    let group = Pid::from_raw(child.id().cast_signed());
    let result = wait::until(limit, stop, || match child.try_wait() {
        Ok(Some(status)) => Ok(Look::Ready(status)),
        Ok(None) => Ok(Look::NotYet(format!("the command `{text}` is still running"))),
        Err(e) => Err(LabError::io(format!("cannot wait for `{text}`"))(e)),
    });
    if result.is_err() {
        let _ = killpg(group, Signal::SIGKILL);
        let _ = child.wait();
    }
    result.map_err(|e| e.with_log(&tail(log)))
}

/// The last 8 KiB of a log.
fn end_of(log: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(8192)))?;
        let mut bytes = Vec::new();
        file.take(8192).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The name of a log and its last 12 lines, from the last 8 KiB; empty if there are none.
pub(crate) fn tail(log: &Path) -> String {
    let text = end_of(log);
    let lines: Vec<_> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    if lines.is_empty() {
        return String::new();
    }
    let last = lines[lines.len().saturating_sub(12)..].iter().map(|l| format!("    {l}")).collect::<Vec<_>>();
    format!("  last lines of {}:\n{}", log.display(), last.join("\n"))
}

/// Daemons with a child, for tests.
#[cfg(test)]
pub(crate) mod tests_support {
    use super::*;

    /// Time limit for something that should take no time.
    const AT_ONCE: Duration = Duration::from_secs(10);

    /// A shell that runs this script.
    pub(crate) fn sh(script: &str) -> Command {
        let mut sh = command(&find("sh", "dash").unwrap(), "test");
        sh.args(["-c", script]);
        sh
    }

    /// Starts a daemon `guest` that runs this shell script, and waits until its log ends with the number of a process,
    /// which it returns.
    pub(crate) fn with_child(script: &str, folder: &Path) -> (Daemon, u32) {
        let daemon = Daemon::start("guest", sh(script), folder).unwrap();
        let told = || {
            let text = std::fs::read_to_string(folder.join("guest.log")).unwrap_or_default();
            let last = text.strip_suffix('\n').and_then(|text| text.lines().last());
            let child = last.and_then(|line| line.parse::<u32>().ok());
            Ok(child.map_or(Look::NotYet("no child".into()), Look::Ready))
        };
        let child = wait::until(AT_ONCE, &|| false, told).unwrap();
        (daemon, child)
    }

    /// Waits until a process ends, whether or not its parent has asked for its status.
    pub(crate) fn await_gone(pid: u32) {
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit(") ").next().unwrap_or_default();
            let gone = state.is_empty() || state.starts_with(['Z', 'X']);
            Ok((!gone).then(|| format!("a process lives: {stat}")))
        };
        wait::while_missing(AT_ONCE, &|| false, gone).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::tests_support::sh;
    use super::*;

    #[test]
    fn daemons_may_open_many_files() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(512), hard).unwrap();
        allow_open_files();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(soft, hard.min(OPEN_FILES));
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let error = find("no-such-router", "no-such-package").unwrap_err().to_string();
        assert!(error.contains("no-such-router") && error.contains("no-such-package"), "{error}");
    }

    #[test]
    fn a_failed_command_tells_what_it_wrote() {
        let error = output(sh("cat >&2; exit 3"), Some("no carrier")).unwrap_err().to_string();
        assert!(error.contains("no carrier") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_daemon_that_ends_is_told_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::start("routed", sh("echo cannot read table; exit 4"), folder.path()).unwrap();
        let look = || Ok(daemon.check().map_or_else(|e| Look::Ready(e.to_string()), |()| Look::NotYet(String::new())));
        let text = wait::until(Duration::from_secs(10), &|| false, look).unwrap();
        assert!(text.contains("routed") && text.contains('4') && text.contains("cannot read table"), "{text}");
    }

    #[test]
    fn a_program_that_works_no_more_is_told_by_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo up; echo 'Kernel panic: BUG!'; exec sleep 600";
        let mut daemon = Daemon::start("guest", sh(script), folder.path()).unwrap();
        let mut look = |words: &'static str| {
            let found = daemon.check_works(words);
            Ok(found.map_or_else(|e| Look::Ready(e.to_string()), |()| Look::NotYet(String::new())))
        };
        let text = wait::until(Duration::from_secs(10), &|| false, || look("Kernel panic")).unwrap();
        assert!(text.starts_with("guest ended by itself (Kernel panic: BUG!)"), "{text}");
        assert!(matches!(look("no such line"), Ok(Look::NotYet(_))));
    }

    #[test]
    fn a_daemon_that_does_not_end_in_time_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let (mut daemon, child) = tests_support::with_child("sleep 600 & echo $!; wait", folder.path());
        daemon.await_end(Duration::from_millis(20));
        daemon.check().unwrap();
        daemon.end(false);
        tests_support::await_gone(child);
    }

    #[test]
    fn a_shell_command_ends_at_its_limit_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("hook.log");
        let error = shell("echo started; sleep 600 & wait", "test", &[], &log, Duration::from_millis(200), &|| false);
        assert!(matches!(error, Err(LabError::NotReady { .. })), "{error:?}");
    }
}
