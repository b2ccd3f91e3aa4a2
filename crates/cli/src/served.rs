//! Runs that clients of the API start (`drophammer serve`).
//!
//! The server starts this program again, as `run --detach` does, but it keeps the socket: it sends the suite, learns from it that the
//! run has begun or what is wrong with the suite, and the run stops when the socket closes, that is, when the server ends, however it
//! ends. All other refusals are what the run prints on standard error.

use crate::confined::Confined;
use crate::detach::SERVED;
use crate::{Exit, Failure, diagnostics};
use drophammer_server::runs::{End, Place, Refused, Run, Starter, Wrong};
use drophammer_store::utc_compact;
use drophammer_suite::SuiteErrors;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Name of the suite in messages.
const NAME: &str = "suite.yaml";
/// How long a run may take until it begins: it looks for programs, interfaces and links.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most bytes of what a refused run says, and of the errors of its suite.
const MOST_SAID: u64 = 64 << 10;
const MOST_ERRORS: u64 = 4 << 20;

/// Starts runs of clients.
#[derive(Debug)]
pub struct Served {
    /// The folder with the files that suites may name.
    pub suites: Option<PathBuf>,
    /// The folder of runs.
    pub runs: PathBuf,
    /// True if suites may name any file and run commands.
    pub trusted: bool,
}

/// A run of a client.
struct Process {
    folder: PathBuf,
    child: Mutex<Child>,
    /// The run stops when this closes.
    _socket: UnixStream,
}

impl Starter for Served {
    fn start(&self, suite: &str, arguments: &[String]) -> Result<Arc<dyn Run>, Refused> {
        let failed = |e: io::Error| Refused {
            code: Exit::Store as u8,
            errors: vec![Wrong::of(&format!("the run cannot be started: {e}"))],
        };
        let folder = self.new_folder().map_err(failed)?;
        let begun = self.begin(&folder, suite, arguments);
        if !matches!(begun, Ok(Ok(_))) {
            // This removes only an empty folder.
            let _ = fs::remove_dir(&folder);
        }
        Ok(Arc::new(begun.map_err(failed)??))
    }
}

impl Served {
    /// Makes a folder for a run.
    fn new_folder(&self) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.runs)?;
        let stem = format!("api-{}", utc_compact(SystemTime::now()));
        for n in 1..1_000 {
            let folder = self.runs.join(if n == 1 { stem.clone() } else { format!("{stem}-{n}") });
            match fs::create_dir(&folder) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => return made.and_then(|()| folder.canonicalize()),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Starts this program again and waits until the run has begun.
    fn begin(&self, folder: &Path, suite: &str, arguments: &[String]) -> io::Result<Result<Process, Refused>> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["run", SERVED, NAME, "--plain", "--out"]).arg(folder).args(arguments);
        // Relative paths start there.
        command.current_dir(self.suites.as_deref().unwrap_or(Path::new(".")));
        command.env("NO_COLOR", "1").stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // The end that the child does not use any more closes with it.
        drop(command);
        let said = child.stderr.take().map(listen);
        ours.set_write_timeout(Some(PATIENCE))?;
        ours.set_read_timeout(Some(PATIENCE))?;
        let suites = self.suites.as_ref().map(|folder| folder.to_string_lossy());
        let order = format!("{}\n", json!({"suite": suite, "folder": suites, "trusted": self.trusted}));
        // A run that has refused its arguments does not read any more.
        let _ = ours.write_all(order.as_bytes());
        let (mut first, mut errors) = ([0], Vec::new());
        match ours.read_exact(&mut first) {
            Ok(()) if first == BEGUN => {
                return Ok(Ok(Process { folder: folder.to_owned(), child: Mutex::new(child), _socket: ours }));
            }
            Ok(()) => match rest_of_errors(first, &ours) {
                Ok(list) => errors = list,
                Err(_) => child.kill()?,
            },
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => child.kill()?,
            // It has ended.
            Err(_) => {}
        }
        // A run that still tells something must not wait for a reader.
        drop(ours);
        let status = child.wait()?;
        let said = said.and_then(|said| said.recv_timeout(Duration::from_secs(1)).ok()).unwrap_or_default();
        let code = status.code().and_then(|code| code.try_into().ok()).unwrap_or(Exit::Failed as u8);
        if errors.is_empty() {
            errors = diagnostics::said(&said);
        }
        if errors.is_empty() {
            errors.push(Wrong::of(&format!("the run ended before it began ({status})")));
        }
        Ok(Err(Refused { code, errors }))
    }
}

/// What a run says when it has begun.
pub const BEGUN: [u8; 1] = *b"\n";

/// Reads what a run says about its suite, after the first byte.
fn rest_of_errors(first: [u8; 1], run: &UnixStream) -> io::Result<Vec<Wrong>> {
    let mut list = first.to_vec();
    run.take(MOST_ERRORS).read_to_end(&mut list)?;
    serde_json::from_slice(&list).map_err(io::Error::from)
}

/// Tells the server what is wrong with the suite of this run.
pub fn refuse(mut server: &UnixStream, errors: &SuiteErrors) {
    let mut list: Vec<Wrong> = errors
        .errors
        .iter()
        .map(|error| Wrong {
            message: error.message.clone(),
            remedy: Some(error.help.clone()).filter(|help| !help.is_empty()),
            place: Some(Place { file: error.file.clone(), line: error.line, column: error.column }),
        })
        .collect();
    if errors.omitted > 0 {
        list.push(Wrong::of(&format!("there are {} more errors", errors.omitted)));
    }
    // A server that has ended does not read it.
    let _ = server.write_all(json!(list).to_string().as_bytes());
}

/// Reads what a process says, in a thread, so that it never waits for a reader.
fn listen(mut said: ChildStderr) -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = said.by_ref().take(MOST_SAID).read_to_end(&mut bytes);
        let _ = read.and_then(|_| io::copy(&mut said, &mut io::sink()));
        let _ = tell.send(String::from_utf8_lossy(&bytes).trim().to_owned());
    });
    told
}

impl Run for Process {
    fn folder(&self) -> &Path {
        &self.folder
    }

    fn stop(&self) -> Result<(), String> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // While nobody has asked for its exit code, its number is that of no other process.
        match child.try_wait() {
            Ok(None) => kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).map_err(|e| e.to_string()),
            Ok(Some(_)) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn ended(&self) -> Option<End> {
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
        let code = match status {
            Ok(status) => status?.code(),
            // Nobody knows the exit code.
            Err(_) => None,
        };
        let meaning = match code {
            None => "the run was killed",
            Some(code) => Exit::of(code).map_or("an exit code of another program", Exit::meaning),
        };
        Some(End { code: code.and_then(|code| code.try_into().ok()), meaning: meaning.to_owned() })
    }
}

/// What the server has sent to a run.
#[derive(Debug)]
pub struct Order {
    /// Text of the suite.
    pub suite: String,
    /// What the suite may name; anything if absent.
    pub confined: Option<Confined>,
}

impl Order {
    /// Reads the order from the server.
    pub fn read(server: &UnixStream) -> Result<Order, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::environment(format!("the server sent no suite: {why}"));
        let mut line = String::new();
        BufReader::new(server).read_line(&mut line).map_err(|e| failed(&e))?;
        let order: Value = serde_json::from_str(&line).map_err(|e| failed(&e))?;
        let suite = order["suite"].as_str().ok_or_else(|| failed(&"it has no text"))?.to_owned();
        let folder = order["folder"].as_str().map(PathBuf::from);
        let confined = (order["trusted"] != true).then_some(Confined { folder });
        Ok(Order { suite, confined })
    }
}
