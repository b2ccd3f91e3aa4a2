//! What a DUT kind and a DUT that is up can be asked.

use crate::bgp::Speaker;
use crate::cpu;
use crate::process::Daemon;
use crate::router::{self, Route};
use crate::topology::Topology;
use crate::wait::{self, Look};
use crate::{Lab, LabError, probe};
use drophammer_model::environment::DutRecord;
use drophammer_model::registry::KindSpec;
use drophammer_model::suite::{DutConfig, PortConfig};
use drophammer_model::trial::Family;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A kind of DUT. One file in `kinds/` each.
pub trait DutKind: Sync {
    /// Name, parameters, roles and what must be installed.
    fn spec(&self) -> &'static KindSpec;

    /// Brings a DUT up as IPv4 and IPv6 router: port i of the DUT gets `ports[i]`'s DUT address and a route to the
    /// networks behind the emulated router. Returns when it is ready, found by probing. Logs and rendered configuration
    /// go to the existing folder `work_dir`.
    ///
    /// # Errors
    /// [`LabError::NotReady`] with the condition and the last log lines, [`LabError::Stopped`] when `stop` says so, and
    /// whatever else stood in the way. What was brought up until then is gone.
    fn bring_up(
        &self,
        lab: &mut Lab,
        dut: &DutConfig,
        ports: &[PortConfig],
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Dut>, LabError>;
}

/// Where an interface of the tester is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// In the process's own network namespace: open sockets as usual.
    Tester,
    /// On the host: open sockets within [`Lab::in_host_netns`].
    Host,
}

/// The tester's interface of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TesterInterface {
    /// Name: `t0`.
    pub name: String,
    /// Where it is.
    pub netns: Where,
    /// MAC address of the DUT's port where the user stated it; `None`: ask by ARP and ND.
    pub dut_mac: Option<[u8; 6]>,
}

/// A DUT that is up. Dropping it takes it down without waiting for its daemons to end by themselves.
pub trait Dut: Send {
    /// The tester's interfaces in the order of the suite's ports.
    fn interfaces(&self) -> &[TesterInterface];

    /// Kind, version, confinement and configuration; `ports` is left empty for whoever opens the ports.
    fn record(&self) -> DutRecord;

    /// Is it still alive?
    ///
    /// # Errors
    /// [`LabError::DaemonDied`] with exit status and last log lines, [`LabError::Command`].
    fn check(&mut self) -> Result<(), LabError>;

    /// It has been found to forward. What it keeps back until then begins now: the faults of a simulated device.
    ///
    /// # Errors
    /// What it says against that.
    fn forwards(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    /// Processor time of its forwarding and daemons since it was brought up; `None` where not all of it can be read.
    fn cpu_time(&mut self) -> Option<Duration>;

    /// Memory in RAM of each of its daemons in bytes, by name: `zebra`, `bgpd -R`. Empty where it has none, or none that can
    /// be seen.
    fn memory(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Routes that its forwarding plane holds, those to its own addresses and links included: compare with the value
    /// before routes were sent. `None` where that is not known.
    ///
    /// # Errors
    /// Those of reading it.
    fn fib_routes(&mut self, _family: Family) -> Result<Option<u64>, LabError> {
        Ok(None)
    }

    /// All BGP sessions have been ended by their peers: whatever makes it wait before it takes new ones is lifted, as sessions are
    /// to be cleared between tests (RFC 7747 section 4.7).
    ///
    /// # Errors
    /// Those of telling it.
    fn sessions_ended(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    /// Time that the hypervisor took from the DUT's processor since boot; `None` where that is not known.
    fn stolen(&mut self) -> Option<Duration>;

    /// Its counters by name: `d0.rx_packets`, `ip.InHdrErrors`, `softnet.cpu1.dropped` (the last one is of the machine).
    ///
    /// # Errors
    /// Those of reading them.
    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError>;

    /// Frames since it was brought up that it sent and the tester's end of the link had no room for: loss of the tester.
    /// `None` where that is not known.
    ///
    /// # Errors
    /// Those of reading it.
    fn lost_by_tester(&mut self) -> Result<Option<u64>, LabError>;

    /// True when a frame that the tester's interface refuses (`tx_dropped`, `ENOBUFS`) was refused by the DUT's receive
    /// ring, so that it is loss of the DUT: the case of veth.
    fn drops_at_tester_tx_are_dut(&self) -> bool;

    /// Ends it and removes every trace. Waits until daemons have ended.
    ///
    /// # Errors
    /// Those of removing; everything was tried even then.
    fn take_down(self: Box<Self>) -> Result<(), LabError>;
}

/// Time in which a DUT in a namespace must become ready.
pub(crate) const READY: Duration = Duration::from_secs(20);
/// And so much longer for each BGP neighbour: bgpd of FRR took 15 s to read 4,000 on a busy machine.
const NEIGHBOUR: Duration = Duration::from_millis(10);

/// A router in a namespace: links, and daemons that may be none.
pub(crate) struct NamespaceDut {
    topology: Topology,
    daemons: Vec<Daemon>,
    record: DutRecord,
    bgp: Option<Speaker>,
    /// What is run in its namespace once all sessions have ended.
    after_sessions: Vec<Command>,
}

impl NamespaceDut {
    /// Makes the links; addresses are set, routes are not.
    pub(crate) fn links(
        lab: &Lab,
        dut: &DutConfig,
        kind: &KindSpec,
        ports: &[PortConfig],
        version: String,
    ) -> Result<NamespaceDut, LabError> {
        let topology = Topology::make(lab, &dut.name, ports)?;
        let record = DutRecord {
            name: dut.name.clone(),
            kind: kind.name.into(),
            version,
            confinement: topology.confinement().into(),
            ..DutRecord::default()
        };
        let bgp = Speaker::of(ports);
        Ok(NamespaceDut { topology, daemons: Vec::new(), record, bgp, after_sessions: Vec::new() })
    }

    /// Commands for [`Dut::sessions_ended`], made for this DUT's namespace.
    pub(crate) fn after_sessions(&mut self, commands: Vec<Command>) {
        self.after_sessions = commands;
    }

    /// BGP that the ports ask for; whoever starts no daemon for it clears it with [`NamespaceDut::without_bgp`].
    pub(crate) fn bgp(&self) -> Option<&Speaker> {
        self.bgp.as_ref()
    }

    /// This router does not speak BGP, whatever the ports ask for.
    pub(crate) fn without_bgp(&mut self) {
        self.bgp = None;
    }

    pub(crate) fn netns(&self) -> &crate::Netns {
        self.topology.netns()
    }

    /// Stores a rendered configuration with the record and as a file of `work_dir`.
    pub(crate) fn configuration(&mut self, work_dir: &Path, name: &str, text: &str) -> Result<(), LabError> {
        let path = work_dir.join(name);
        std::fs::write(&path, text).map_err(LabError::file("write", &path))?;
        self.record.config.insert(name.into(), text.into());
        Ok(())
    }

    /// Starts a daemon in the DUT's namespace, on the DUT's processor.
    pub(crate) fn daemon(&mut self, name: &str, command: Command, work_dir: &Path) -> Result<(), LabError> {
        let cpu = self.topology.cpu();
        let started = self.netns().run(|| {
            cpu::pin(0, cpu)?;
            Daemon::start(name, command, work_dir)
        })?;
        self.daemons.push(started?);
        Ok(())
    }

    /// Waits until a condition holds while all daemons live; the error carries their last log lines.
    pub(crate) fn wait(
        &mut self,
        stop: &dyn Fn() -> bool,
        mut look: impl FnMut(&NamespaceDut) -> Result<Option<String>, LabError>,
    ) -> Result<(), LabError> {
        // What has many neighbours to read about may take longer.
        let neighbours = self.bgp.as_ref().map_or(0, Speaker::neighbours) as u32;
        let result = wait::until(READY + NEIGHBOUR * neighbours, stop, || {
            self.check_daemons()?;
            Ok(look(self)?.map_or(Look::Ready(()), Look::NotYet))
        });
        result.map_err(|e| {
            let logs: Vec<_> = self.daemons.iter().map(Daemon::log_tail).filter(|l| !l.is_empty()).collect();
            e.with_log(&logs.join("\n"))
        })
    }

    /// Waits until every link has carrier and every route is in the kernel, and BGP listens where the ports
    /// have it: the DUT is ready.
    pub(crate) fn ready(mut self, routes: &[Route], stop: &dyn Fn() -> bool) -> Result<Box<dyn Dut>, LabError> {
        self.wait(stop, |dut| match dut.topology.link_not_up() {
            Some(link) => Ok(Some(format!("{link} has no carrier"))),
            None => match router::missing(dut.netns(), routes)? {
                None => dut.bgp.as_ref().map_or(Ok(None), |bgp| bgp.deaf(dut.netns())),
                missing => Ok(missing),
            },
        })?;
        Ok(Box::new(self))
    }

    /// Asks every process of every daemon; one that has just ended has no answer.
    fn each_process<T>(&self, ask: impl Fn(u32) -> Option<T>) -> Vec<(String, T)> {
        let processes = self.daemons.iter().flat_map(|d| probe::family_tree(d.pid()).into_iter().map(move |p| (d, p)));
        let name = |daemon: &Daemon, pid| match pid == daemon.pid() {
            true => daemon.name().to_owned(),
            false => probe::child_name(daemon.name(), pid),
        };
        processes.filter_map(|(daemon, pid)| Some((name(daemon, pid), ask(pid)?))).collect()
    }

    fn check_daemons(&mut self) -> Result<(), LabError> {
        self.daemons.iter_mut().try_for_each(Daemon::check)
    }
}

impl Dut for NamespaceDut {
    fn interfaces(&self) -> &[TesterInterface] {
        self.topology.interfaces()
    }

    fn record(&self) -> DutRecord {
        self.record.clone()
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.check_daemons()?;
        match self.topology.link_not_up() {
            Some(link) => Err(LabError::Unusable {
                what: format!("{link} of the DUT lost its carrier"),
                remedy: "see the logs of the DUT in the folder of the run".into(),
            }),
            None => Ok(()),
        }
    }

    fn cpu_time(&mut self) -> Option<Duration> {
        let forwarding = self.topology.cpu_time()?;
        self.daemons.iter().try_fold(forwarding, |sum, d| {
            let children = probe::family_tree(d.pid()).into_iter().skip(1);
            Some(sum + probe::process_time(d.pid())? + children.filter_map(probe::process_time).sum())
        })
    }

    fn memory(&mut self) -> Vec<(String, u64)> {
        self.each_process(probe::resident)
    }

    fn fib_routes(&mut self, family: Family) -> Result<Option<u64>, LabError> {
        probe::fib_routes(self.netns(), family)
    }

    fn sessions_ended(&mut self) -> Result<(), LabError> {
        for command in &mut self.after_sessions {
            let done = command.output().map_err(LabError::io("cannot tell the router that its sessions have ended"))?;
            if !done.status.success() {
                return Err(LabError::Unusable {
                    what: format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr).trim()),
                    remedy: "see the logs of the DUT in the folder of the run".into(),
                });
            }
        }
        Ok(())
    }

    fn stolen(&mut self) -> Option<Duration> {
        probe::stolen(self.topology.cpu())
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        self.topology.counters()
    }

    fn lost_by_tester(&mut self) -> Result<Option<u64>, LabError> {
        self.topology.lost_by_tester().map(Some)
    }

    fn drops_at_tester_tx_are_dut(&self) -> bool {
        true
    }

    fn take_down(mut self: Box<Self>) -> Result<(), LabError> {
        // In the reverse order of their start: who was first is the one that others need.
        while let Some(daemon) = self.daemons.pop() {
            daemon.stop();
        }
        self.topology.take_down()
    }
}
