//! State and counters of a rig at one moment.

use crate::hosts::RouterPlace;
use drophammer_emulation::bgp::{Routers, State};
use drophammer_model::Instant;
use drophammer_traffic::Snapshot;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counts of ports, flows and sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Time of the counts, on the clock of the ports.
    pub at: Instant,
    /// Traffic counts by flow, group and port; `None` without traffic.
    pub traffic: Option<Snapshot>,
    /// One entry per session.
    pub sessions: Vec<SessionMetrics>,
}

/// State and counters of a BGP session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionMetrics {
    /// State of the session's finite state machine (RFC 4271 section 8.2.2).
    pub state: State,
    /// True if the session is established.
    pub established: bool,
    /// Number of times that the session went down without a request.
    pub losses: u32,
    /// Bytes of UPDATE messages that the session has accepted for sending.
    pub bytes_sent: u64,
    /// UPDATE messages received.
    pub updates_received: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Announced routes in UPDATE messages, including repeated ones.
    pub routes_announced: u64,
    /// Withdrawn routes in UPDATE messages, including repeated ones.
    pub routes_withdrawn: u64,
}

impl SessionMetrics {
    /// Returns the metrics of one of `routers`.
    pub(crate) fn of(routers: &Routers, router: usize) -> SessionMetrics {
        let (received, sent) = (routers.adj_rib_in(router).totals(), routers.advertised(router));
        SessionMetrics {
            state: routers.session(router).state(),
            established: routers.established(router),
            losses: routers.losses(router).0,
            bytes_sent: sent.bytes,
            updates_received: received.updates,
            bytes_received: received.bytes,
            routes_announced: received.announcements,
            routes_withdrawn: received.withdrawals,
        }
    }
}

/// The sessions of a rig, for threads that do not drive it.
#[derive(Clone)]
pub struct SessionWatch(Arc<Board>);

struct Board {
    /// Number of the last request.
    asked: AtomicU64,
    /// Number of the last request that all sessions have answered.
    answered: AtomicU64,
    /// Each session's answer, with the number of the answered request.
    answers: Mutex<Vec<(u64, SessionMetrics)>>,
    changed: Condvar,
}

impl SessionWatch {
    /// Creates a board for this number of sessions.
    pub(crate) fn new(sessions: usize) -> SessionWatch {
        let answers = Mutex::new(vec![Default::default(); sessions]);
        SessionWatch(Arc::new(Board {
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            answers,
            changed: Condvar::new(),
        }))
    }

    /// Requests the metrics of all sessions and waits at most `patience` for the answer. The rig answers when it next
    /// serves its devices: within half a second if a thread drives it, otherwise never. Returns `None` without an
    /// answer.
    pub fn snapshot(&self, patience: Duration) -> Option<Vec<SessionMetrics>> {
        let number = self.0.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let answered = |all: &[(u64, SessionMetrics)]| all.iter().all(|(at, _)| *at >= number);
        let answers = self.0.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.changed.wait_timeout_while(answers, patience, |all| !answered(all));
        let answers = waited.unwrap_or_else(PoisonError::into_inner).0;
        answered(&answers).then(|| answers.iter().map(|(_, metrics)| *metrics).collect())
    }

    /// Answers a pending request for each of `sessions` for which `of` returns metrics.
    pub(crate) fn answer(&self, sessions: &[RouterPlace], of: impl Fn(RouterPlace) -> Option<SessionMetrics>) {
        let asked = self.0.asked.load(Ordering::Relaxed);
        if asked == self.0.answered.load(Ordering::Relaxed) {
            return;
        }
        let mut answers = self.0.answers.lock().unwrap_or_else(PoisonError::into_inner);
        for ((at, answer), place) in answers.iter_mut().zip(sessions).filter(|((at, _), _)| *at < asked) {
            if let Some(metrics) = of(*place) {
                (*at, *answer) = (asked, metrics);
            }
        }
        if answers.iter().all(|(at, _)| *at >= asked) {
            self.0.answered.store(asked, Ordering::Relaxed);
            self.0.changed.notify_all();
        }
    }
}
