//! The thread that drives the lent ports. It is the only one that touches them.

use crate::agent::Options;
use crate::message::{Loan, Over, PortFacts};
use drophammer_model::trial::PortIndex;
use drophammer_port::priority::pin;
use drophammer_port::{Port, SystemClock};
use drophammer_rig::{
    Agreed, Capture, Job, LaneCounts, LaneReport, Lent, Live, Ports, Refusals, Relay, Tap, Up, own_times,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// An order to the thread, with the channel for its answer.
pub(crate) enum Work {
    Plan(Box<Job>, oneshot::Sender<Result<(), String>>),
    Start { attempt: u64, agreed: Agreed, live: oneshot::Sender<Result<Live, String>> },
    Report(Refusals, oneshot::Sender<(Vec<LaneReport>, Vec<LaneCounts>)>),
    Link(PortIndex, bool, oneshot::Sender<Result<(), String>>),
}

/// Reports the end of a trial, with its attempt; attempt 0 if the ports failed between trials.
pub(crate) type Ended = Box<dyn Fn(u64, Over) + Send>;

/// A thread that drives open ports.
pub(crate) struct Worker {
    work: Option<mpsc::Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    pub(crate) relay: Arc<Relay>,
    pub(crate) clock: SystemClock,
    pub(crate) facts: Vec<PortFacts>,
}

impl Worker {
    /// Opens the ports of `loan` in a new thread, each with its capture if there is one. Blocks until they are open. `lost` counts frames
    /// of devices for which there was no room.
    pub(crate) fn open(
        options: &Options,
        loan: &Loan,
        captures: Vec<Arc<Capture>>,
        up: Up,
        lost: Arc<AtomicU64>,
        ended: Ended,
    ) -> Result<Worker, String> {
        let clock = SystemClock::with_origin(loan.origin_ns);
        let (work, orders) = mpsc::channel();
        let (opened, is_open) = mpsc::channel();
        let (backend, queues, processors) = (options.backend, options.queues, options.processors.clone());
        let loan = loan.clone();
        let body = move || {
            let open = || -> Result<_, String> {
                if let Some(first) = processors.first() {
                    pin(*first).map_err(|e| format!("the thread cannot run on processor {first}: {e}"))?;
                }
                let names: Vec<&str> = loan.ports.iter().map(|(interface, _)| interface.as_str()).collect();
                let ports = drophammer_rig::open(&names, backend, queues, clock, None).map_err(|e| e.to_string())?;
                let facts = ports.iter().map(|port| port.info()).filter(|info| info.queue.index == 0);
                let facts: Vec<PortFacts> = facts.map(PortFacts::of).collect();
                // The queues of an interface are next to each other.
                let mut captured = captures.into_iter();
                let mut capture = None;
                let tap = |port: Box<dyn Port + Send>| -> Box<dyn Port + Send> {
                    if port.info().queue.index == 0 {
                        capture = captured.next();
                    }
                    match &capture {
                        Some(capture) => Box::new(Tap::new(port, capture.clone())),
                        None => port,
                    }
                };
                let ports = ports.into_iter().map(tap).collect();
                let places: Vec<PortIndex> = loan.ports.iter().map(|(_, place)| *place).collect();
                let ports = Ports::real(ports, clock, &processors);
                let silence = Duration::from_millis(loan.silence_ms);
                let (lent, relay) = Lent::new(ports, &places, loan.all, silence, up).map_err(|e| e.to_string())?;
                Ok((lent, relay, facts))
            };
            match open() {
                Err(e) => _ = opened.send(Err(e)),
                Ok((lent, relay, facts)) => {
                    if opened.send(Ok((relay, facts))).is_ok() {
                        serve(lent, !processors.is_empty(), &lost, &orders, &ended);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("ports".into()).spawn(body).map_err(|e| e.to_string())?;
        let (relay, facts) = is_open.recv().map_err(|_| "the thread of the ports ended".to_owned())??;
        Ok(Worker { work: Some(work), thread: Some(thread), relay, clock, facts })
    }

    /// Sends the thread an order. If a trial is running, it is carried out afterwards.
    pub(crate) fn order(&self, work: Work) -> Result<(), String> {
        let gone = || "the ports of this host failed".to_owned();
        self.work.as_ref().ok_or_else(gone)?.send(work).map_err(|_| gone())?;
        self.relay.ring();
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The thread ends once nobody can send it an order. The caller has already ended the traffic.
        self.work = None;
        self.relay.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Carries out orders. `is_pinned` is true if each thread of the ports stays on its processor.
fn serve(mut lent: Lent, is_pinned: bool, lost: &AtomicU64, orders: &mpsc::Receiver<Work>, ended: &Ended) {
    // Counts of two processors cannot be compared.
    let stolen = |lent: &Lent| if is_pinned { lent.stolen() } else { None };
    loop {
        // If the receiver is gone, nobody waits for the answer.
        match orders.try_recv() {
            Ok(Work::Plan(job, reply)) => _ = reply.send(lent.plan(&job).map_err(|e| e.to_string())),
            Ok(Work::Start { attempt, agreed, live }) => {
                let started = lent.start(agreed).map_err(|e| e.to_string());
                let begun = started.is_ok();
                if live.send(started).is_ok() && begun {
                    let (before, stolen_before) = (own_times(), stolen(&lent));
                    let lost_before = lost.load(Ordering::Relaxed);
                    let driven = lent.run();
                    let waited = before.zip(own_times()).map(|(then, now)| now.waited.saturating_sub(then.waited));
                    let waited_ns = waited.map(|waited| waited.as_nanos() as u64);
                    let stolen_ns = stolen_before.zip(stolen(&lent)).and_then(|(then, now)| most_grown(&then, &now));
                    let lost = lost.load(Ordering::Relaxed) - lost_before;
                    let over = match driven {
                        Ok(refusals) => Over::Good { refusals, waited_ns, stolen_ns, lost },
                        Err(e) => Over::Failed(e.to_string()),
                    };
                    ended(attempt, over);
                }
            }
            Ok(Work::Report(refusals, reply)) => _ = reply.send((lent.reports(&refusals), lent.last_counts())),
            Ok(Work::Link(port, up, reply)) => _ = reply.send(lent.set_link(port, up).map_err(|e| e.to_string())),
            // Only a thread without orders rests.
            Err(TryRecvError::Empty) => {
                if let Err(e) = lent.pass() {
                    return ended(0, Over::Failed(e.to_string()));
                }
            }
            Err(TryRecvError::Disconnected) => return,
        }
    }
}

/// The largest growth of a counter.
fn most_grown(then: &[u64], now: &[u64]) -> Option<u64> {
    then.iter().zip(now).map(|(then, now)| now.saturating_sub(*then)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_from_which_most_was_taken_counts() {
        assert_eq!(most_grown(&[5, 70, 30], &[6, 80, 70]), Some(40));
        assert_eq!(most_grown(&[], &[]), None);
    }
}
