//! `drophammer run --detach`: a run that continues without its terminal.
//!
//! The command starts itself again. The second process first leaves session and terminal, before the lab moves it into
//! namespaces. It prints refusals on the terminal, and writes all later output into the folder of its run. Until then
//! the first process waits at a socket, which is the standard input of the second process. If the socket closes without
//! a message, the run was refused. `drophammer serve` starts runs in the same way (`cli/src/served.rs`).

use crate::args::RunArgs;
use crate::output::out;
use crate::run::{RUNS, from_here};
use crate::running::Held;
use crate::served::{self, Order};
use crate::{Ended, Exit, Failure};
use drophammer_model::suite::Secret;
use drophammer_suite::SuiteErrors;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// File in the folder of the run with the output of the run.
pub const CONSOLE: &str = "console.log";
/// File in the same folder with the output of `--json`.
const EVENTS: &str = "events.jsonl";
/// Option of the second process, after the name of the command.
const OPTION: &str = "--detached";
/// The same for the process of a run that a client of the API has started.
pub const SERVED: &str = "--served";
/// Position of this option among the words of the command line.
const PLACE: usize = 2;

/// The words of this command line as the user wrote them, for the records, without the values of `secret` variables.
pub fn command_line(secret: &[String]) -> Vec<String> {
    without_values(as_written(std::env::args_os()), secret)
}

/// The words with [`Secret::HIDDEN`] in place of the values that `--var` gives to the variables `secret`.
fn without_values(words: Vec<String>, secret: &[String]) -> Vec<String> {
    let mut is_value = false;
    let hide = |word: String| {
        let inline = word.strip_prefix("--var=");
        let of = if std::mem::replace(&mut is_value, word == "--var") { Some(&*word) } else { inline };
        let name = of.and_then(|assignment| assignment.split_once('=')).map(|(name, _)| name.trim());
        match name {
            Some(name) if secret.iter().any(|secret| secret == name) => {
                let option = if inline.is_some() { "--var=" } else { "" };
                format!("{option}{name}={}", Secret::HIDDEN)
            }
            _ => word,
        }
    };
    words.into_iter().map(hide).collect()
}

fn as_written(words: impl Iterator<Item = OsString>) -> Vec<String> {
    let own = |(place, word): &(usize, OsString)| *place == PLACE && (word == OPTION || word == SERVED);
    words.enumerate().filter(|word| !own(word)).map(|(_, word)| word.to_string_lossy().into_owned()).collect()
}

/// The command that the user types: starts the run in the background, and prints its folder. If the run is refused, it
/// prints its own errors.
pub fn start(args: &RunArgs) -> Ended {
    let folder = args.out.as_deref().unwrap_or(Path::new(RUNS));
    let new = if args.resume.is_some() { Vec::new() } else { missing(folder) };
    let failed = |e: io::Error| Failure::environment(format!("--detach: the run cannot be started: {e}"));
    let (mut child, mut told) = again().map_err(failed)?;
    let mut dir = Vec::new();
    told.read_to_end(&mut dir).map_err(failed)?;
    if !dir.is_empty() {
        began(child.id(), &from_here(Path::new(&OsString::from_vec(dir))), args.json);
        return Ok(Exit::Good);
    }
    let status = child.wait().map_err(failed)?;
    for folder in new {
        // This removes only an empty folder.
        let _ = fs::remove_dir(folder);
    }
    match status.code().map(Exit::of) {
        Some(Some(exit)) if exit != Exit::Good => Ok(exit),
        _ => Err(Failure::new(Exit::Failed, format!("--detach: the run ended before it began ({status})"))),
    }
}

/// Starts this program again; returns the socket at which it reports the folder of its run.
fn again() -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut words = std::env::args_os();
    let (name, command) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    // This statement also closes this process's copy of the second end, so that the first process notices when the
    // second ends.
    let child = Command::new(std::env::current_exe()?)
        .arg0(name)
        .arg(command)
        .arg(OPTION)
        .args(words)
        .stdin(OwnedFd::from(theirs))
        .spawn()?;
    Ok((child, ours))
}

/// The part of the path that does not exist yet: this folder and its missing parents, innermost first.
fn missing(folder: &Path) -> Vec<PathBuf> {
    let is_new = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    folder.ancestors().take_while(is_new).map(Path::to_path_buf).collect()
}

/// Reports that the run continues, and how to watch and stop it.
fn began(pid: u32, dir: &Path, json: bool) {
    if json {
        let dir = dir.display().to_string();
        return out!("{}", serde_json::json!({"event": "detached", "folder": dir, "process": pid}));
    }
    let word = quoted(dir);
    out!("the run continues in the background as process {pid}");
    out!("  folder   {word}");
    out!("  watch    drophammer watch {word}");
    out!("  stop     drophammer stop {word}");
}

/// Quotes a path for a shell.
pub fn quoted(path: &Path) -> String {
    drophammer_model::record::quoted(&path.display().to_string())
}

/// The second process, before its run begins.
#[derive(Debug)]
pub struct Detached {
    /// The socket at which the first process waits.
    starter: UnixStream,
}

impl Detached {
    /// Leaves the session, and with it the terminal, of the command that started this process. Fails if no such command did.
    pub fn leave() -> io::Result<Detached> {
        let starter = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        // Fails if standard input is not a socket.
        starter.peer_addr()?;
        dup2_stdin(File::open("/dev/null")?)?;
        setsid()?;
        Ok(Detached { starter })
    }

    /// What the server has sent that started this process.
    pub fn order(&self) -> Result<Order, Failure> {
        Order::read(&self.starter)
    }

    /// Tells the server what is wrong with the suite that it has sent.
    pub fn refuse(&self, errors: &SuiteErrors) {
        served::refuse(&self.starter, errors);
    }

    /// Begins the run in `dir`: records this process there, redirects the output there, and lets the first process end, or with
    /// `served` sets `stop` when it ends. Also sets it if the first process has already ended, because then nobody knows about
    /// this run.
    pub fn begin(mut self, dir: &Path, json: bool, served: bool, stop: &Arc<AtomicBool>) -> io::Result<Held> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).custom_flags(nix::libc::O_NOFOLLOW);
        let console = options.open(dir.join(CONSOLE))?;
        let events = if json { Some(options.open(dir.join(EVENTS))?) } else { None };
        let held = Held::take(dir, true)?;
        dup2_stdout(events.as_ref().unwrap_or(&console))?;
        dup2_stderr(&console)?;
        if served {
            // The server learns that the run has begun; it knows the folder.
            let begun = self.starter.write_all(&served::BEGUN);
            let stop = stop.clone();
            let wait = move || {
                // The server writes nothing more: it returns when the server ends.
                let _ = begun.and_then(|()| self.starter.read(&mut [0]));
                stop.store(true, Ordering::Relaxed);
            };
            std::thread::Builder::new().name("server".into()).spawn(wait)?;
            return Ok(held);
        }
        let told = self.starter.write_all(dir.as_os_str().as_bytes());
        if told.and_then(|()| self.starter.shutdown(Shutdown::Both)).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_of_the_second_process_is_not_the_users() {
        let words = |line: &str| as_written(line.split(' ').map(OsString::from)).join(" ");
        assert_eq!(words("drophammer run --detached x.yaml --detach"), "drophammer run x.yaml --detach");
        assert_eq!(words("drophammer run x.yaml --detach"), "drophammer run x.yaml --detach");
        assert_eq!(words("drophammer run -- --detached"), "drophammer run -- --detached");
        assert_eq!(words("drophammer run --served suite.yaml"), "drophammer run suite.yaml");
    }

    #[test]
    fn values_of_secret_variables_are_not_recorded() {
        let kept =
            |line: &str| without_values(line.split(' ').map(str::to_owned).collect(), &["key".to_owned()]).join(" ");
        assert_eq!(kept("run x.yaml --var key=sesame --var rate=1"), "run x.yaml --var key=<secret> --var rate=1");
        assert_eq!(kept("run x.yaml --var=key=a=b --rounds 2"), "run x.yaml --var=key=<secret> --rounds 2");
        assert_eq!(kept("run key=sesame --var keys=1"), "run key=sesame --var keys=1");
    }

    #[test]
    fn only_folders_that_are_not_there_are_new() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        assert_eq!(missing(&deep), [deep.clone(), folder.path().join("a")]);
        assert_eq!(missing(folder.path()), Vec::<PathBuf>::new());
        assert_eq!(missing(Path::new("no-such/x")), [Path::new("no-such/x"), Path::new("no-such")]);
    }

    #[test]
    fn a_folder_is_one_word_of_a_shell() {
        let of = |text: &str| quoted(Path::new(text));
        assert_eq!(of("drophammer-runs/x-2026"), "drophammer-runs/x-2026");
        assert_eq!(of("my runs/it's"), r"'my runs/it'\''s'");
        assert_eq!(of("$HOME;x"), "'$HOME;x'");
    }
}
