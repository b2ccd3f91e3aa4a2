//! What a DUT kind and a DUT that is up can be asked.

use crate::cpu;
use crate::packet_filter::{self, FilterStyle};
use crate::probe::ThreadTimes;
use crate::process::Daemon;
use crate::router;
use crate::snmp::{Agent, SNMP, SnmpQuestions};
use crate::topology::Topology;
use crate::wait::{self, Look};
use crate::{Lab, LabError, bgp, configuration, kinds, probe};
use drophammer_model::capabilities::{Capabilities, Vlans};
use drophammer_model::counters::DutCounter;
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::registry::KindSpec;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;
use drophammer_model::trial::Family;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Configuration files: name and text of each.
type Files = Vec<(String, String)>;

/// A kind of DUT. One file in `kinds/` each.
pub trait DutKind: Sync {
    /// Name, parameters, capabilities and what must be installed.
    fn spec(&self) -> &'static KindSpec;

    /// What it can do.
    fn capabilities(&self) -> &'static Capabilities {
        &self.spec().capabilities
    }

    /// What must be installed for a DUT of this configuration, `(program, Debian package)`.
    fn needs(&self, _dut: &DutConfig) -> Vec<(&'static str, &'static str)> {
        self.spec().needs.to_vec()
    }

    /// Configuration files of a DUT in this role, `(name, text)`; nothing is started or written.
    ///
    /// # Errors
    /// [`LabError::Unusable`] with file, line and remedy where the user's configuration cannot be used.
    fn configuration(&self, dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError>;

    /// Starts a DUT in a role that the kind can play: [`DutKind::bring_up`] without its questions beforehand.
    ///
    /// # Errors
    /// Those of [`DutKind::bring_up`].
    fn start(
        &self,
        lab: &mut Lab,
        dut: &DutConfig,
        role: &RouterRole,
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Dut>, LabError>;

    /// The part of a role that the kind plays: all of it, but for BGP where the kind speaks none.
    fn part_of(&self, role: &RouterRole) -> RouterRole {
        let bgp = role.bgp.clone().filter(|_| self.capabilities().bgp);
        RouterRole { bgp, ..role.clone() }
    }

    /// Can a DUT of this configuration play the role? Asks everything that needs no lab, and starts no DUT.
    ///
    /// # Errors
    /// [`LabError::Unusable`] with the need that the kind cannot meet and the kinds that can; those of
    /// [`DutKind::configuration`].
    fn check(&self, dut: &DutConfig, role: &RouterRole) -> Result<(), LabError> {
        kinds::refuse_unless_able(self.spec(), role)?;
        self.configuration(dut, &self.part_of(role)).map(drop)
    }

    /// Brings a DUT up in a role: interface i faces port i of the tester. Returns when it is ready, found by probing. Logs and
    /// rendered configuration go to the existing folder `work_dir`.
    ///
    /// # Errors
    /// Those of [`DutKind::check`] before anything is started, [`LabError::NotReady`] with the condition and the last log lines,
    /// [`LabError::Stopped`] when `stop` says so, and whatever else stood in the way. What was brought up until then is gone.
    fn bring_up(
        &self,
        lab: &mut Lab,
        dut: &DutConfig,
        role: &RouterRole,
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Dut>, LabError> {
        self.check(dut, role)?;
        let tagged = role.interfaces.iter().any(|i| !i.vlans.is_empty());
        if tagged && self.capabilities().vlans == Vlans::HostKernel {
            lab.refuse_without_vlans(self.spec())?;
        }
        self.start(lab, dut, &self.part_of(role), work_dir, stop)
    }
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

/// A DUT that is up. Dropping it takes it down without waiting for its daemons to end by themselves. What a DUT does not know has a
/// default that says so.
pub trait Dut {
    /// The tester's interfaces in the order of the suite's ports; none in virtual time.
    fn interfaces(&self) -> &[TesterInterface] {
        &[]
    }

    /// Kind, version, confinement and configuration, without secrets. `ports` is empty: it is filled in where the ports are opened.
    fn record(&self) -> DutRecord;

    /// Is it still alive? A simulated DUT always is.
    ///
    /// # Errors
    /// [`LabError::DaemonDied`] with exit status and last log lines, [`LabError::Command`].
    fn check(&mut self) -> Result<(), LabError>;

    /// It has been found to forward. The faults of a simulated device begin now.
    ///
    /// # Errors
    /// Faults that the device refuses.
    fn forwards(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    /// Processor time of its forwarding and daemons since it was brought up; `None` where not all of it can be read.
    fn cpu_time(&mut self) -> Option<Duration> {
        None
    }

    /// Times of the threads of its forwarding and daemons. `None` where the kernel does not count them.
    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        None
    }

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

    /// Puts packet filters in place of those that it was given before; none takes them back. What its own configuration filters stays as it is.
    ///
    /// # Errors
    /// [`LabError::Unusable`] where it takes none, and what it says against these.
    fn set_filter(&mut self, _lists: &[FilterList]) -> Result<(), LabError> {
        Err(LabError::Unusable {
            what: "this DUT cannot be given packet filters".into(),
            remedy: "`drophammer list duts` names the kinds that can".into(),
        })
    }

    /// All BGP sessions have been ended by their peers. It must accept new ones at once, because sessions are to be cleared between
    /// tests (RFC 7747 section 4.7).
    ///
    /// # Errors
    /// Those of its control program.
    fn sessions_ended(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    /// The processor on which all of its work is done, and nothing of the tester's; `None` where it has none of its own.
    fn processor(&self) -> Option<usize> {
        None
    }

    /// Its counters by name: `d0.rx_packets`, `ip.InHdrErrors`, `softnet.cpu1.dropped` (the last one is of the machine).
    ///
    /// # Errors
    /// Those of reading them.
    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        Ok(BTreeMap::new())
    }

    /// Those of its counters whose meaning is known, of all that can be asked: kernel, SNMP.
    ///
    /// # Errors
    /// Those of reading them.
    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        Ok(DutCounter::all_of("kernel", &self.counters()?))
    }

    /// Asks its SNMP agent for sysUpTime every `interval` from now on; `None` where it has no agent that is known.
    ///
    /// # Errors
    /// A thread that cannot be started.
    fn ask_snmp(&mut self, _interval: Duration) -> Result<Option<SnmpQuestions>, LabError> {
        Ok(None)
    }

    /// Frames since it was brought up that it sent and the tester's end of the link had no room for: loss of the tester.
    /// `None` where that is not known.
    ///
    /// # Errors
    /// Those of reading it.
    fn lost_by_tester(&mut self) -> Result<Option<u64>, LabError> {
        Ok(None)
    }

    /// True when a frame that the tester's interface refuses (`tx_dropped`, `ENOBUFS`) was refused by the DUT's receive
    /// ring, so that it is loss of the DUT: the case of veth.
    fn drops_at_tester_tx_are_dut(&self) -> bool {
        false
    }

    /// Ends it and removes every trace. Waits until daemons have ended.
    ///
    /// # Errors
    /// Those of removing; everything was tried even then.
    fn take_down(self: Box<Self>) -> Result<(), LabError> {
        Ok(())
    }
}

/// Time in which a DUT in a namespace must become ready.
pub(crate) const READY: Duration = Duration::from_secs(20);
/// And so much longer for each BGP neighbour: bgpd of FRR took 15 s to read 4,000 on a busy machine.
const NEIGHBOUR: Duration = Duration::from_millis(10);

/// A router in a namespace: links, and daemons that may be none.
pub(crate) struct NamespaceDut {
    pub(crate) topology: Topology,
    daemons: Vec<Daemon>,
    record: DutRecord,
    role: RouterRole,
    /// Its SNMP agent, if it is to have one.
    agent: Option<Agent>,
    /// What is run in its namespace once all sessions have ended.
    after_sessions: Vec<Command>,
    /// How it gets filters, and whether it has some whose counters are read.
    filters: FilterStyle,
    counted: bool,
}

impl NamespaceDut {
    /// Makes the links; addresses are set, routes are not.
    pub(crate) fn links(
        lab: &Lab,
        dut: &DutConfig,
        kind: &KindSpec,
        role: &RouterRole,
        version: String,
    ) -> Result<NamespaceDut, LabError> {
        let topology = Topology::make(lab, &dut.name, role)?;
        let record = DutRecord {
            name: dut.name.clone(),
            kind: kind.name.into(),
            version,
            confinement: topology.confinement().into(),
            ..DutRecord::default()
        };
        let (daemons, after_sessions) = (Vec::new(), Vec::new());
        let filters = packet_filter::FILTERS.find(&dut.params).unwrap_or(FilterStyle::List);
        let role = role.clone();
        Ok(NamespaceDut { topology, daemons, record, role, after_sessions, agent: None, filters, counted: false })
    }

    /// Starts an SNMP agent beside it where the suite asks for one.
    pub(crate) fn with_agent(
        &mut self,
        lab: &Lab,
        dut: &DutConfig,
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), LabError> {
        if SNMP.find(&dut.params) == Some(true) {
            let ports = self.role.interfaces.len();
            self.agent = Some(Agent::start(lab, self, &dut.name, ports, work_dir, stop)?);
        }
        Ok(())
    }

    /// Commands for [`Dut::sessions_ended`], made for this DUT's namespace.
    pub(crate) fn after_sessions(&mut self, commands: Vec<Command>) {
        self.after_sessions = commands;
    }

    /// Which routes the kernel gets is the user's business: do not wait for those of the role.
    pub(crate) fn routes_of_the_user(&mut self) {
        self.role.routes.clear();
    }

    pub(crate) fn netns(&self) -> &crate::Netns {
        self.topology.netns()
    }

    /// Keeps the files that `render` makes of a role, without what is secret in it. Returns the folder where daemons find them as they
    /// are: the same, or `state` where a file has a secret, which goes with the lab.
    pub(crate) fn keep(
        &mut self,
        work_dir: &Path,
        state: &Path,
        role: &RouterRole,
        render: &dyn Fn(&RouterRole) -> Result<Files, LabError>,
    ) -> Result<PathBuf, LabError> {
        let shown = render(&role.without_secrets())?;
        let folder = configuration::store(work_dir, state, &shown, &render(role)?)?;
        self.record.config.extend(shown);
        Ok(folder)
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
        let neighbours = self.role.bgp.as_ref().map_or(0, bgp::neighbours) as u32;
        let result = wait::until(READY + NEIGHBOUR * neighbours, stop, || {
            self.check_daemons()?;
            Ok(look(self)?.map_or(Look::Ready(()), Look::NotYet))
        });
        result.map_err(|e| {
            let logs: Vec<_> = self.daemons.iter().map(Daemon::log_tail).filter(|l| !l.is_empty()).collect();
            e.with_log(&logs.join("\n"))
        })
    }

    /// Waits until every link has carrier, every route of the role is in the kernel, and BGP listens where the role has it: the DUT is
    /// ready.
    pub(crate) fn ready(mut self, stop: &dyn Fn() -> bool) -> Result<Box<dyn Dut>, LabError> {
        self.wait(stop, |dut| match dut.topology.link_not_up() {
            Some(link) => Ok(Some(format!("{link} has no carrier"))),
            None => match router::missing(dut.netns(), &dut.role)? {
                None => dut.role.bgp.as_ref().map_or(Ok(None), |bgp| bgp::deaf(dut.netns(), bgp)),
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

    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        let mut threads = self.topology.threads()?;
        for daemon in &self.daemons {
            threads.extend(probe::process_threads(daemon.pid())?);
            let children = probe::family_tree(daemon.pid()).into_iter().skip(1);
            threads.extend(children.filter_map(probe::process_threads).flatten());
        }
        Some(threads)
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

    fn processor(&self) -> Option<usize> {
        self.topology.processor()
    }

    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError> {
        packet_filter::set(self.netns(), &self.role, lists, self.filters)?;
        let rules: usize = lists.iter().map(|list| list.rules.len()).sum();
        self.counted = (1..=packet_filter::MOST_COUNTED).contains(&rules);
        Ok(())
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = self.topology.counters()?;
        if self.counted {
            packet_filter::counters(self.netns(), &mut counters)?;
        }
        Ok(counters)
    }

    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        let mut all = DutCounter::all_of("kernel", &self.counters()?);
        let own = probe::interface_counter(self.netns(), "lo", "rx_packets")?;
        all.extend(DutCounter::of_device("kernel", "lo.rx_packets", own));
        if let Some(agent) = &self.agent {
            all.extend(agent.counters(self.netns())?);
        }
        Ok(all)
    }

    fn ask_snmp(&mut self, interval: Duration) -> Result<Option<SnmpQuestions>, LabError> {
        self.agent.as_ref().map(|agent| agent.ask(interval)).transpose()
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
