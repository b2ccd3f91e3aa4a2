//! A router in a network namespace: its links, its daemons, and the wait until it is ready.

use crate::bgp;
use crate::configuration;
use crate::cpu;
use crate::dut::{Classes, Dut, Filters, Management, Resets, SystemMember, TesterInterface, Usage, capabilities};
use crate::link_delay;
use crate::links::VethLinks;
use crate::management::{self, Asking, MANAGEMENT, ManagementLink, Operator};
use crate::packet_filter::{self, FilterStyle};
use crate::probe::{self, ThreadTimes};
use crate::process::Daemon;
use crate::snmp::{Agent, SNMP};
use crate::ssh::{self, SSH};
use crate::traffic_classes::{self, Given};
use crate::{Lab, LabError, Netns, router, wait};
use drophammer_model::Instant;
use drophammer_model::classes::EgressClasses;
use drophammer_model::counters::DutCounter;
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::management::Question;
use drophammer_model::registry::KindSpec;
use drophammer_model::reset::{ResetDone, ResetKind};
use drophammer_model::role::{CorePeer, RouterRole};
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::suite::DutConfig;
use drophammer_model::trial::Family;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time limit for a DUT in a namespace to become ready.
pub(crate) const READY: Duration = Duration::from_secs(20);
/// Additional time for each BGP neighbour: bgpd of FRR took 15 s to read 4,000 on a busy machine.
const NEIGHBOUR: Duration = Duration::from_millis(10);

/// Configuration files: name and text of each.
type Files = Vec<(String, String)>;
type AskIdle = Box<dyn Fn() -> Option<String>>;
type AskSession = Box<dyn Fn(&NamespaceDut, &CorePeer) -> Option<String>>;
type AddCounters = Box<dyn Fn(&mut BTreeMap<String, u64>) -> Result<(), LabError>>;

/// A router in a namespace: links, and daemons if it has any.
pub(crate) struct NamespaceDut {
    pub(crate) links: VethLinks,
    daemons: Vec<Daemon>,
    /// Servers that run next to the router, such as an SNMP agent: a reset of the router does not touch them.
    helpers: Vec<Daemon>,
    resetting: Option<Resetting>,
    /// Adds the counters of its daemons, except during a reset: the counters then start at 0 again, and a daemon that
    /// has ended cannot be asked.
    pub(crate) daemon_counters: Option<AddCounters>,
    /// True if the lab configures its daemons after they start: daemons that are restarted would not forward.
    pub(crate) needs_lab: bool,
    record: DutRecord,
    role: RouterRole,
    /// Its management link, if configured, and the operator that asks over it.
    management: Option<(ManagementLink, Operator)>,
    /// Its SNMP agent, if configured.
    agent: Option<Agent>,
    /// True if it has an SSH server.
    ssh: bool,
    /// Commands to run in [`Dut::sessions_ended`], prepared for its namespace.
    pub(crate) after_sessions: Vec<Command>,
    /// Asks its daemon for a neighbour that cannot have a session yet; returns a message if there is one.
    pub(crate) idle: Option<AskIdle>,
    /// Asks its daemon about a session with another router of its system; returns a message if the session is not up.
    pub(crate) session: Option<AskSession>,
    /// True if the lab sets its routes rather than a daemon.
    routes_by_lab: bool,
    /// How filters are installed, and whether their counters are read.
    filters: FilterStyle,
    counted: bool,
    /// The current classes of service.
    classes: Given,
}

impl NamespaceDut {
    /// Makes the links and sets addresses, but no routes. For a router of a system, the links already exist.
    pub(crate) fn with_links(
        lab: &mut Lab,
        dut: &DutConfig,
        kind: &KindSpec,
        role: &RouterRole,
        version: String,
    ) -> Result<NamespaceDut, LabError> {
        let links = match lab.take_site(&dut.name) {
            Some(links) => links,
            None => VethLinks::make(lab, &dut.name, role)?,
        };
        let filters = packet_filter::FILTERS.find(&dut.params).unwrap_or(FilterStyle::List);
        let record = DutRecord {
            name: dut.name.clone(),
            kind: kind.name.into(),
            version,
            confinement: links.confinement().into(),
            config: packet_filter::recorded(filters).into_iter().collect(),
            ..DutRecord::default()
        };
        Ok(NamespaceDut {
            links,
            daemons: Vec::new(),
            helpers: Vec::new(),
            resetting: None,
            daemon_counters: None,
            needs_lab: false,
            record,
            role: role.clone(),
            management: None,
            agent: None,
            ssh: false,
            after_sessions: Vec::new(),
            idle: None,
            session: None,
            routes_by_lab: false,
            filters,
            counted: false,
            classes: Given::default(),
        })
    }

    /// Makes a management link and starts an SNMP agent and an SSH server, if the suite asks for them.
    pub(crate) fn with_agent(
        &mut self,
        lab: &Lab,
        dut: &DutConfig,
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), LabError> {
        if MANAGEMENT.find(&dut.params) == Some(true) {
            let link = ManagementLink::make(lab, self.netns(), &dut.name)?;
            self.record.confinement += &link.text;
            let operator = Operator::link(&link, lab.shared().cpus.for_questions())?;
            self.management = Some((link, operator));
        }
        if SNMP.find(&dut.params) == Some(true) {
            let managed = self.management.is_some();
            let ports = self.role.interfaces.len();
            self.agent = Some(Agent::start(lab, self, &dut.name, ports, managed, work_dir, stop)?);
        }
        if SSH.find(&dut.params) == Some(true) {
            ssh::start(lab, self, &dut.name, work_dir, stop)?;
            self.ssh = true;
        }
        Ok(())
    }

    /// Adds the routes of its role to the kernel, for kinds whose daemons do not do that.
    pub(crate) fn add_routes(&mut self) -> Result<(), LabError> {
        self.routes_by_lab = true;
        self.netns().ip(&router::route_lines(&self.role))
    }

    /// The user's configuration decides which routes the kernel gets: the lab does not wait for the routes of the role.
    pub(crate) fn routes_of_the_user(&mut self) {
        self.role.routes.clear();
    }

    pub(crate) fn netns(&self) -> &Netns {
        self.links.netns()
    }

    /// Writes the files that `render` makes from a role, with secrets removed, and adds them to the record. Returns the
    /// folder with the complete files for the daemons: the same folder, or, if a file has a secret, `state`, which is
    /// removed with the lab.
    pub(crate) fn keep(
        &mut self,
        work_dir: &Path,
        state: &Path,
        role: &RouterRole,
        render: &dyn Fn(&RouterRole) -> Result<Files, LabError>,
    ) -> Result<PathBuf, LabError> {
        let with_policies = |files: Files| files.into_iter().chain(router::policies_file(role)).collect::<Files>();
        // The user's file may itself contain a secret.
        let mask = role.mask();
        let mut shown = with_policies(render(&role.without_secrets())?);
        shown.iter_mut().for_each(|(_, text)| *text = mask.text(text).into_owned());
        let folder = configuration::store(work_dir, state, &shown, &with_policies(render(role)?))?;
        self.record.config.extend(shown);
        Ok(folder)
    }

    /// Starts a daemon in the DUT's namespace, on the DUT's processor.
    pub(crate) fn daemon(&mut self, name: &str, command: Command, work_dir: &Path) -> Result<(), LabError> {
        let daemon = self.started(name, command, work_dir)?;
        self.daemons.push(daemon);
        Ok(())
    }

    /// Like [`NamespaceDut::daemon`], for a server next to the router: a reset of the router does not touch it.
    pub(crate) fn helper(&mut self, name: &str, command: Command, work_dir: &Path) -> Result<(), LabError> {
        let helper = self.started(name, command, work_dir)?;
        self.helpers.push(helper);
        Ok(())
    }

    fn started(&self, name: &str, command: Command, work_dir: &Path) -> Result<Daemon, LabError> {
        Daemon::start_in(self.netns(), self.links.cpu(), name, command, work_dir)
    }

    /// A restart waits until the daemon started last listens on this socket before it starts the next one.
    pub(crate) fn listens(&mut self, socket: &Path) {
        if let Some(daemon) = self.daemons.last_mut() {
            daemon.listens(socket);
        }
    }

    /// Its daemons in the order in which they were started, then its helpers.
    fn processes(&self) -> impl Iterator<Item = &Daemon> {
        self.daemons.iter().chain(&self.helpers)
    }

    /// All processes of the router. `None` during a reset, which owns the daemons: the helpers alone are not the
    /// router, and the processor times of restarted daemons begin at 0.
    fn whole(&self) -> Option<impl Iterator<Item = &Daemon>> {
        self.resetting.is_none().then(|| self.processes())
    }

    fn check_daemons(&mut self) -> Result<(), LabError> {
        self.daemons.iter_mut().chain(&mut self.helpers).try_for_each(Daemon::check)
    }

    /// Waits while `look` returns a message and all daemons are alive; the error carries their last log lines.
    pub(crate) fn wait(
        &mut self,
        stop: &dyn Fn() -> bool,
        mut look: impl FnMut(&NamespaceDut) -> Result<Option<String>, LabError>,
    ) -> Result<(), LabError> {
        // Daemons take longer to read the configuration of many neighbours.
        let neighbours = self.role.bgp.as_ref().map_or(0, bgp::neighbours) as u32;
        let result = wait::while_missing(READY + NEIGHBOUR * neighbours, stop, || {
            self.check_daemons()?;
            look(self)
        });
        result.map_err(|e| {
            let logs: Vec<_> = self.processes().map(Daemon::log_tail).filter(|l| !l.is_empty()).collect();
            e.with_log(&logs.join("\n"))
        })
    }

    /// Waits until the DUT is ready: every link has carrier, every route of the role is in the kernel, and BGP listens
    /// if the role has it.
    pub(crate) fn ready(mut self, stop: &dyn Fn() -> bool) -> Result<Box<dyn Dut>, LabError> {
        self.wait(stop, NamespaceDut::unready)?;
        Ok(Box::new(self))
    }

    /// Returns a message about what the router itself still lacks, regardless of other routers.
    fn unready(&self) -> Result<Option<String>, LabError> {
        if let Some(link) = self.links.link_not_up() {
            return Ok(Some(format!("{link} has no carrier")));
        }
        match router::missing(self.netns(), &self.role)? {
            None => self.role.bgp.as_ref().map_or(Ok(None), |bgp| bgp::deaf(self.netns(), bgp)),
            missing => Ok(missing),
        }
    }
}

impl Dut for NamespaceDut {
    capabilities!(usage: Usage, filters: Filters, classes: Classes, management: Management, member: SystemMember);

    fn interfaces(&self) -> &[TesterInterface] {
        self.links.interfaces()
    }

    fn record(&self) -> DutRecord {
        self.record.clone()
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.check_daemons()?;
        self.links.link_not_up().map_or(Ok(()), |link| Err(LabError::lost_carrier(&link)))
    }

    /// The counters of this machine's kernel, with the bytes that veth interfaces count.
    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, LabError> {
        let mut counters = BTreeMap::new();
        let interfaces = (0..self.role.interfaces.len()).map(router::dut_interface);
        for name in interfaces.chain((0..self.role.tunnels.len()).map(router::tunnel_name)) {
            probe::interface(&self.netns().interfaces(), &name, &mut counters)?;
        }
        Ok(router::counted(&self.role, &counters, 0))
    }

    fn fib_routes(&mut self, family: Family) -> Result<Option<u64>, LabError> {
        self.netns().run(|| probe::fib_routes(family))
    }

    fn sessions_ended(&mut self) -> Result<(), LabError> {
        for command in &mut self.after_sessions {
            let done = command.output().map_err(LabError::io("cannot tell the router that its sessions have ended"))?;
            if !done.status.success() {
                return Err(LabError::unusable(
                    format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr).trim()),
                    "see the logs of the DUT in the folder of the run",
                ));
            }
        }
        self.idle.as_ref().map_or(Ok(()), |idle| crate::dut::await_no_idle(|| Ok(idle())))
    }

    fn resets(&mut self) -> Option<&mut dyn Resets> {
        let daemons = !self.daemons.is_empty() || self.resetting.is_some();
        if daemons && !self.needs_lab { Some(self) } else { None }
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = self.links.counters()?;
        if let Some(add) = self.daemon_counters.as_ref().filter(|_| self.resetting.is_none()) {
            add(&mut counters)?;
        }
        if self.counted {
            packet_filter::counters(self.netns(), &mut counters)?;
        }
        let tc = traffic_classes::within(self.netns());
        self.classes.counters(&tc, &mut counters)?;
        link_delay::count_drops(&tc, &self.role, self.links.delays(), &mut counters)?;
        Ok(counters)
    }

    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        let mut all = DutCounter::all_of("kernel", &self.counters()?);
        let own = probe::interface_counter(&self.netns().interfaces(), "lo", "rx_packets")?;
        all.extend(DutCounter::of_device("kernel", "lo.rx_packets", own));
        let link = self.management.as_ref().map(|(link, _)| link);
        if let Some(link) = link {
            all.extend(DutCounter::of_device("kernel", "management.questions", link.questions()?));
        }
        if let Some(agent) = &self.agent {
            all.extend(agent.counters(self.netns(), link)?);
        }
        Ok(all)
    }

    fn lost_by_tester(&mut self) -> Result<Option<Vec<u64>>, LabError> {
        self.links.lost_by_tester().map(Some)
    }

    fn drops_at_tester_tx_are_dut(&self) -> bool {
        true
    }

    fn take_down(mut self: Box<Self>) -> Result<(), LabError> {
        // In reverse start order: daemons need those that were started before them.
        while let Some(daemon) = self.helpers.pop().or_else(|| self.daemons.pop()) {
            daemon.stop();
        }
        self.links.take_down()
    }
}

impl Management for NamespaceDut {
    fn ask(&mut self, questions: &[Question], interval: Duration) -> Result<Vec<Asking>, LabError> {
        let link = self.management.as_ref().map(|link| &link.1);
        management::ask(link, self.agent.as_ref(), self.ssh, questions, interval)
    }

    fn has_ssh(&self) -> bool {
        self.ssh
    }
}

impl SystemMember for NamespaceDut {
    fn lacking(&mut self) -> Result<Option<String>, LabError> {
        self.check_daemons()?;
        if let Some(missing) = self.unready()? {
            return Ok(Some(missing));
        }
        let (Some(ask), Some(bgp)) = (&self.session, &self.role.bgp) else { return Ok(None) };
        Ok(bgp.core.iter().find_map(|peer| ask(self, peer)))
    }

    fn link_leaves(&mut self, interface: usize) -> Result<(), LabError> {
        self.links.link_leaves(interface);
        Ok(())
    }

    fn receives_in(&mut self, interface: usize, threads: Vec<(u32, String)>) {
        self.links.link_returned(interface, threads);
    }

    fn link_returned(&mut self, interface: usize) -> Result<(), LabError> {
        self.netns().ip(&router::lines_of_link(&self.role, interface, self.routes_by_lab))
    }
}

impl Filters for NamespaceDut {
    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError> {
        packet_filter::set(self.netns(), &self.role, lists, self.filters)?;
        let rules: usize = lists.iter().map(|list| list.rules.len()).sum();
        self.counted = (1..=packet_filter::MOST_COUNTED).contains(&rules);
        Ok(())
    }
}

impl Classes for NamespaceDut {
    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), LabError> {
        self.classes.set(&traffic_classes::within(self.links.netns()), &self.role, lists)
    }
}

impl Usage for NamespaceDut {
    fn cpu_time(&mut self) -> Option<Duration> {
        let forwarding = self.links.cpu_time()?;
        self.whole()?.try_fold(forwarding, |sum, d| {
            let children = probe::family_tree(d.pid()).into_iter().skip(1);
            Some(sum + probe::process_time(d.pid())? + children.filter_map(probe::process_time).sum())
        })
    }

    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        let mut threads = self.links.threads()?;
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

    /// Includes every process of every daemon; leaves out a process that has just ended.
    fn memory(&mut self) -> Vec<(String, u64)> {
        let processes = self.processes().flat_map(|d| probe::family_tree(d.pid()).into_iter().map(move |p| (d, p)));
        let name = |daemon: &Daemon, pid| match pid == daemon.pid() {
            true => daemon.name().to_owned(),
            false => probe::child_name(daemon.name(), pid),
        };
        processes.filter_map(|(daemon, pid)| Some((name(daemon, pid), probe::resident(pid)?))).collect()
    }

    fn processor(&mut self) -> Option<usize> {
        self.links.processor()
    }
}

/// A reset in progress: a thread owns the daemons until it is done. Dropping this value ends them.
#[derive(Debug)]
struct Resetting {
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

/// Resets `daemons` in `netns` on processor `cpu` when `after` has passed, unless the reset is cancelled before.
fn reset(
    mut daemons: Vec<Daemon>,
    (netns, cpu): (&Netns, usize),
    politely: bool,
    after: Duration,
    go: &Receiver<()>,
) -> (Vec<Daemon>, ResetDone) {
    let asked = std::time::Instant::now();
    // The work of a reset belongs to the DUT. On the tester's processor it would delay frames.
    let _ = cpu::pin(0, cpu);
    let names: Vec<_> = daemons.iter().map(|daemon| daemon.name().to_owned()).collect();
    let mut done = ResetDone { began: after, ended: after, what: names.join(", "), problem: None };
    if go.recv_timeout(after) != Err(RecvTimeoutError::Timeout) {
        done.problem = Some("the reset was cancelled".into());
        return (daemons, done);
    }
    done.began = asked.elapsed();
    // In reverse start order: daemons need those that were started before them. If they are killed, all end at the same
    // time.
    for daemon in daemons.iter_mut().rev() {
        daemon.end(politely);
    }
    let again = |daemon: &mut Daemon| {
        netns.run(|| {
            cpu::pin(0, cpu)?;
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
        let cannot = |what: &str| Err(LabError::unusable(what, "choose other `resets`"));
        let politely = match kind {
            ResetKind::Software => true,
            ResetKind::Process => false,
            ResetKind::Link => return cannot("the router does not reset a link by itself"),
        };
        if self.resetting.is_some() {
            return cannot("another reset of the router is in progress");
        }
        let (netns, cpu) = (self.netns().again()?, self.links.cpu());
        let (go, called_off) = mpsc::channel();
        let daemons = std::mem::take(&mut self.daemons);
        let thread = std::thread::Builder::new()
            .name("reset".into())
            .spawn(move || reset(daemons, (&netns, cpu), politely, after, &called_off))
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
