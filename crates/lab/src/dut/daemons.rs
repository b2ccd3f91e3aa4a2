//! The daemons of a router in a namespace: starting, asking and resetting them.

use super::{NamespaceDut, READY, Resets, Usage};
use crate::probe::ThreadTimes;
use crate::process::Daemon;
use crate::{LabError, Netns, cpu, probe};
use drophammer_model::Instant;
use drophammer_model::reset::{ResetDone, ResetKind};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// A reset under way: a thread owns the daemons until it is over. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Resetting {
    /// Dropping it cancels a reset that has not begun.
    go: Option<Sender<()>>,
    thread: Option<JoinHandle<(Vec<Daemon>, ResetDone)>>,
}

impl Drop for Resetting {
    fn drop(&mut self) {
        self.go = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where daemons are started.
struct Place {
    netns: Netns,
    cpu: usize,
}

/// Resets `daemons` after `after`, unless cancelled before.
fn reset(
    mut daemons: Vec<Daemon>,
    place: &Place,
    politely: bool,
    after: Duration,
    go: &Receiver<()>,
) -> (Vec<Daemon>, ResetDone) {
    let asked = std::time::Instant::now();
    // The work of a reset belongs to the DUT. On the tester's processor it would delay frames.
    let _ = cpu::pin(0, place.cpu);
    let names: Vec<_> = daemons.iter().map(|daemon| daemon.name().to_owned()).collect();
    let mut done = ResetDone { began: after, ended: after, what: names.join(", "), problem: None };
    if go.recv_timeout(after) != Err(RecvTimeoutError::Timeout) {
        done.problem = Some("the reset was called off".into());
        return (daemons, done);
    }
    done.began = asked.elapsed();
    // In the reverse order of their start: later daemons need earlier ones. Those that are killed end at the same time.
    for daemon in daemons.iter_mut().rev() {
        daemon.end(politely);
    }
    let again = |daemon: &mut Daemon| {
        place.netns.run(|| {
            cpu::pin(0, place.cpu)?;
            daemon.start_again()
        })??;
        daemon.await_listening(READY)
    };
    done.problem = daemons.iter_mut().try_for_each(again).err().map(|e| e.to_string());
    done.ended = asked.elapsed();
    (daemons, done)
}

impl Resets for NamespaceDut {
    fn begin(&mut self, kind: ResetKind, _now: Instant, after: Duration) -> Result<(), LabError> {
        let politely = match kind {
            ResetKind::Software => true,
            ResetKind::Process => false,
            ResetKind::Link => return Err(cannot("the router does not reset a link by itself")),
        };
        if self.resetting.is_some() {
            return Err(cannot("another reset of the router is under way"));
        }
        let place = Place { netns: self.netns().again()?, cpu: self.topology.cpu() };
        let (go, called_off) = mpsc::channel();
        let daemons = std::mem::take(&mut self.daemons);
        let thread = std::thread::Builder::new()
            .name("reset".into())
            .spawn(move || reset(daemons, &place, politely, after, &called_off))
            .map_err(LabError::io("cannot start a thread"))?;
        self.resetting = Some(Resetting { go: Some(go), thread: Some(thread) });
        Ok(())
    }

    fn done(&mut self, _now: Instant) -> Option<ResetDone> {
        let thread = self.resetting.as_mut()?.thread.take_if(|thread| thread.is_finished())?;
        self.resetting = None;
        match thread.join() {
            Ok((daemons, done)) => {
                self.daemons = daemons;
                Some(done)
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn cannot(what: &str) -> LabError {
    LabError::Unusable { what: what.into(), remedy: "choose other `resets`".into() }
}

impl Usage for NamespaceDut {
    fn cpu_time(&mut self) -> Option<Duration> {
        let forwarding = self.topology.cpu_time()?;
        self.whole()?.try_fold(forwarding, |sum, d| {
            let children = probe::family_tree(d.pid()).into_iter().skip(1);
            Some(sum + probe::process_time(d.pid())? + children.filter_map(probe::process_time).sum())
        })
    }

    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        let mut threads = self.topology.threads()?;
        for daemon in self.whole()? {
            threads.extend(probe::process_threads(daemon.pid())?);
            let children = probe::family_tree(daemon.pid()).into_iter().skip(1);
            threads.extend(children.filter_map(probe::process_threads).flatten());
        }
        Some(threads)
    }

    fn router_memory(&mut self) -> Option<Vec<u64>> {
        let daemons: Option<Vec<u64>> = self.whole()?.map(|daemon| probe::proportional(daemon.pid())).collect();
        daemons.filter(|daemons| !daemons.is_empty()).map(|daemons| vec![daemons.iter().sum()])
    }

    fn memory(&mut self) -> Vec<(String, u64)> {
        self.each_process(probe::resident)
    }

    fn processor(&mut self) -> Option<usize> {
        self.topology.processor()
    }
}

impl NamespaceDut {
    /// Starts a daemon in the DUT's namespace, on the DUT's processor.
    pub(crate) fn daemon(&mut self, name: &str, command: Command, work_dir: &Path) -> Result<(), LabError> {
        let daemon = self.started(name, command, work_dir)?;
        self.daemons.push(daemon);
        Ok(())
    }

    /// As [`NamespaceDut::daemon`], for a server beside the router that a reset of the router leaves alone.
    pub(crate) fn helper(&mut self, name: &str, command: Command, work_dir: &Path) -> Result<(), LabError> {
        let helper = self.started(name, command, work_dir)?;
        self.helpers.push(helper);
        Ok(())
    }

    fn started(&self, name: &str, command: Command, work_dir: &Path) -> Result<Daemon, LabError> {
        let cpu = self.topology.cpu();
        self.netns().run(|| {
            cpu::pin(0, cpu)?;
            Daemon::start(name, command, work_dir)
        })?
    }

    /// Adds what its daemons count at each reading of the counters, except during a reset: these counters begin again
    /// at 0, and a daemon that has ended cannot be asked.
    pub(crate) fn daemons_count(
        &mut self,
        count: impl Fn(&mut BTreeMap<String, u64>) -> Result<(), LabError> + 'static,
    ) {
        self.daemon_counters = Some(Box::new(count));
    }

    pub(super) fn add_daemon_counters(&self, counters: &mut BTreeMap<String, u64>) -> Result<(), LabError> {
        let count = self.daemon_counters.as_ref().filter(|_| self.resetting.is_none());
        count.map_or(Ok(()), |count| count(counters))
    }

    /// All processes of the router. `None` during a reset, which has the daemons: the helpers alone are not the router,
    /// and the times of daemons that are started again begin at 0.
    fn whole(&self) -> Option<impl Iterator<Item = &Daemon>> {
        self.resetting.is_none().then(|| self.processes())
    }

    /// Its daemons in the order of their start, then its helpers.
    pub(super) fn processes(&self) -> impl Iterator<Item = &Daemon> {
        self.daemons.iter().chain(&self.helpers)
    }

    /// Further daemons are started once the last one listens on this socket.
    pub(crate) fn listens(&mut self, socket: &Path) {
        if let Some(daemon) = self.daemons.last_mut() {
            daemon.listens(socket);
        }
    }

    /// Asks every process of every daemon; a process that has just ended gives no answer.
    fn each_process<T>(&self, ask: impl Fn(u32) -> Option<T>) -> Vec<(String, T)> {
        let processes = self.processes().flat_map(|d| probe::family_tree(d.pid()).into_iter().map(move |p| (d, p)));
        let name = |daemon: &Daemon, pid| match pid == daemon.pid() {
            true => daemon.name().to_owned(),
            false => probe::child_name(daemon.name(), pid),
        };
        processes.filter_map(|(daemon, pid)| Some((name(daemon, pid), ask(pid)?))).collect()
    }

    pub(super) fn check_daemons(&mut self) -> Result<(), LabError> {
        self.daemons.iter_mut().chain(&mut self.helpers).try_for_each(Daemon::check)
    }
}
