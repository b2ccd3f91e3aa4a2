//! Runs of suites that clients start.
//!
//! The server knows no tests: a [`Starter`] makes each run a process of its own, with a folder of its own. What clients learn about
//! a run is in that folder: `follow` sends its record as events, `files` sends its files. `rest` has the paths, and refuses what
//! pages of other sites make a browser ask for.

mod files;
mod follow;
mod refusal;
mod rest;

pub use refusal::{Place, Wrong};
pub(crate) use rest::refuse;

use crate::api::{Failure, FailureKind};
use crate::http::Room;
use refusal::Refusal;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Most runs of which clients can ask, including those that have ended. Their folders stay.
const MOST_KNOWN: usize = 1_000;
/// Most clients that follow runs at a time.
const MOST_FOLLOWERS: usize = 64;
/// Most bytes of orders on their way at a time.
const MOST_BYTES: usize = 32 << 20;
/// How often the server looks whether something has happened in a run.
const LOOK: Duration = Duration::from_millis(200);

/// Starts runs.
pub trait Starter: Send + Sync {
    /// Starts a run and waits until it has begun. `arguments` are those of `drophammer run`, without the suite.
    ///
    /// # Errors
    /// Why it is refused. Nothing has been started.
    fn start(&self, suite: &str, arguments: &[String]) -> Result<Arc<dyn Run>, Refused>;
}

/// Why a run did not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The exit code of the run.
    pub code: u8,
    /// What is wrong.
    pub errors: Vec<Wrong>,
}

/// A run in a process of its own.
pub trait Run: Send + Sync {
    /// Its folder, whose name is the id of the run.
    fn folder(&self) -> &Path;

    /// Stops it as Ctrl-C does: what was measured is kept. A second call more than a second later ends it immediately.
    ///
    /// # Errors
    /// Why the process cannot be stopped.
    fn stop(&self) -> Result<(), String>;

    /// How it ended; `None` while it lasts.
    fn ended(&self) -> Option<End>;
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Exit code; `None` if it was killed.
    pub code: Option<u8>,
    /// What that means.
    pub meaning: String,
}

/// All runs of a server.
#[derive(Clone)]
pub struct Runs {
    shared: Arc<Shared>,
}

struct Shared {
    starter: Box<dyn Starter>,
    /// True if the server listens on loopback only.
    on_loopback: bool,
    /// Held while a run starts.
    starting: Mutex<()>,
    /// True once no further run may start.
    ending: AtomicBool,
    /// Runs by id, the newest last.
    known: Mutex<VecDeque<(String, Arc<dyn Run>)>>,
    followers: Arc<Semaphore>,
    room: Room,
}

impl Runs {
    /// No runs yet.
    pub fn new(starter: Box<dyn Starter>, on_loopback: bool) -> Runs {
        Runs {
            shared: Arc::new(Shared {
                starter,
                on_loopback,
                starting: Mutex::default(),
                ending: AtomicBool::new(false),
                known: Mutex::default(),
                followers: Arc::new(Semaphore::new(MOST_FOLLOWERS)),
                room: Room::new(MOST_BYTES),
            }),
        }
    }

    /// Stops all runs, and waits for their reports. No further run starts.
    pub fn end(&self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        // A run that is starting now is known afterwards.
        let _starting = self.shared.starting.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<_> = self.shared.known().iter().map(|(_, run)| run.clone()).collect();
        let lasting: Vec<_> = known.into_iter().filter(|run| run.ended().is_none()).collect();
        for run in &lasting {
            // It fails only for a process that is ending anyway.
            let _ = run.stop();
        }
        while lasting.iter().any(|run| run.ended().is_none()) {
            std::thread::sleep(LOOK);
        }
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, VecDeque<(String, Arc<dyn Run>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &str) -> Result<Arc<dyn Run>, Failure> {
        let run = self.known().iter().find(|(known, _)| known == id).map(|(_, run)| run.clone());
        run.ok_or_else(|| not_found("this server has started no run with this id"))
    }

    /// Starts a run, one at a time: two of them would disturb each other's measurements. Returns its id.
    fn start(&self, suite: &str, arguments: &[String]) -> Result<String, Refusal> {
        let busy = |what: &str| {
            let text = format!("{what}, and this server runs one suite at a time; wait until it has ended, or end it");
            Refusal::from(Failure { code: 409, ..Failure::validation(vec![text]) })
        };
        let _starting = match self.starting.try_lock() {
            Ok(starting) => starting,
            Err(TryLockError::Poisoned(starting)) => starting.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(busy("another run is starting")),
        };
        if self.ending.load(Ordering::Relaxed) {
            return Err(Failure { code: 503, ..Failure::internal("the server is ending") }.into());
        }
        let lasting = self.known().back().filter(|(_, run)| run.ended().is_none()).map(|(id, _)| id.clone());
        if let Some(id) = lasting {
            return Err(busy(&format!("the run {id} has not ended")));
        }
        let run = self.starter.start(suite, arguments).map_err(|Refused { code, errors }| {
            let (code, kind) = match code {
                2 => (400, FailureKind::Validation),
                // The machine lacks something, or somebody else has a port.
                3 => (409, FailureKind::Validation),
                _ => (500, FailureKind::Internal),
            };
            Refusal { code, kind, errors }
        })?;
        let id = run.folder().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut known = self.known();
        if known.len() >= MOST_KNOWN {
            known.pop_front();
        }
        known.push_back((id.clone(), run));
        Ok(id)
    }
}

fn not_found(text: &str) -> Failure {
    Failure { code: 404, ..Failure::validation(vec![text.into()]) }
}

#[cfg(test)]
mod tests;
