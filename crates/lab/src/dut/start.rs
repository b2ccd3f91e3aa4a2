//! Creation and start of a router in a namespace, until it is ready.

use super::{Dut, NamespaceDut};
use crate::management::{MANAGEMENT, ManagementLink, Operator};
use crate::packet_filter::{self, FilterStyle};
use crate::process::Daemon;
use crate::snmp::{Agent, SNMP};
use crate::ssh::{self, SSH};
use crate::topology::Topology;
use crate::traffic_classes::Given;
use crate::wait::{self, Look};
use crate::{Lab, LabError, bgp, configuration, router};
use drophammer_model::environment::DutRecord;
use drophammer_model::registry::KindSpec;
use drophammer_model::role::{CorePeer, RouterRole};
use drophammer_model::suite::DutConfig;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Configuration files: name and text of each.
type Files = Vec<(String, String)>;

/// Time in which a DUT in a namespace must become ready.
pub(crate) const READY: Duration = Duration::from_secs(20);
/// Additional time for each BGP neighbour: bgpd of FRR took 15 s to read 4,000 on a busy machine.
const NEIGHBOUR: Duration = Duration::from_millis(10);

impl NamespaceDut {
    /// Makes the links; addresses are set, routes are not. The links of a router of a system already exist.
    pub(crate) fn links(
        lab: &mut Lab,
        dut: &DutConfig,
        kind: &KindSpec,
        role: &RouterRole,
        version: String,
    ) -> Result<NamespaceDut, LabError> {
        let topology = match lab.take_site(&dut.name) {
            Some(topology) => topology,
            None => Topology::make(lab, &dut.name, role)?,
        };
        let record = DutRecord {
            name: dut.name.clone(),
            kind: kind.name.into(),
            version,
            confinement: topology.confinement().into(),
            ..DutRecord::default()
        };
        let (daemons, helpers, after_sessions) = (Vec::new(), Vec::new(), Vec::new());
        let filters = packet_filter::FILTERS.find(&dut.params).unwrap_or(FilterStyle::List);
        let role = role.clone();
        Ok(NamespaceDut {
            topology,
            daemons,
            helpers,
            resetting: None,
            daemon_counters: None,
            needs_lab: false,
            record,
            role,
            after_sessions,
            idle: None,
            session: None,
            routes_by_lab: false,
            management: None,
            agent: None,
            ssh: false,
            filters,
            counted: false,
            classes: Given::default(),
        })
    }

    /// Makes a management link, and starts an SNMP agent and an SSH server, where the suite asks for them.
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

    /// Commands for [`Dut::sessions_ended`], made for this DUT's namespace.
    pub(crate) fn after_sessions(&mut self, commands: Vec<Command>) {
        self.after_sessions = commands;
    }

    /// Sets how its daemon is asked for a neighbour that cannot have a session yet.
    pub(crate) fn idle_neighbours(&mut self, ask: impl Fn() -> Option<String> + 'static) {
        self.idle = Some(Box::new(ask));
    }

    /// Sets how its daemon is asked about a session with another router of its system.
    pub(crate) fn ask_sessions(&mut self, ask: impl Fn(&NamespaceDut, &CorePeer) -> Option<String> + 'static) {
        self.session = Some(Box::new(ask));
    }

    /// Puts the routes of its role into the kernel, for kinds whose daemons do not.
    pub(crate) fn add_routes(&mut self) -> Result<(), LabError> {
        self.routes_by_lab = true;
        self.netns().ip(&router::route_lines(&self.role))
    }

    /// The lab configures its daemons after their start, so they cannot be reset alone.
    pub(crate) fn needs_lab(&mut self) {
        self.needs_lab = true;
    }

    /// The user's configuration decides which routes the kernel gets: do not wait for those of the role.
    pub(crate) fn routes_of_the_user(&mut self) {
        self.role.routes.clear();
    }

    pub(crate) fn netns(&self) -> &crate::Netns {
        self.topology.netns()
    }

    /// Keeps the files that `render` makes of a role, with secrets removed. Returns the folder where daemons find the
    /// complete files: the same folder, or `state`, which is removed with the lab, if a file has a secret.
    pub(crate) fn keep(
        &mut self,
        work_dir: &Path,
        state: &Path,
        role: &RouterRole,
        render: &dyn Fn(&RouterRole) -> Result<Files, LabError>,
    ) -> Result<PathBuf, LabError> {
        let with_policies = |files: Files| files.into_iter().chain(router::policies_file(role)).collect::<Files>();
        // A file of the user's may contain a secret itself.
        let mask = role.mask();
        let mut shown = with_policies(render(&role.without_secrets())?);
        shown.iter_mut().for_each(|(_, text)| *text = mask.text(text).into_owned());
        let folder = configuration::store(work_dir, state, &shown, &with_policies(render(role)?))?;
        self.record.config.extend(shown);
        Ok(folder)
    }

    /// Waits until a condition holds while all daemons live; the error carries their last log lines.
    pub(crate) fn wait(
        &mut self,
        stop: &dyn Fn() -> bool,
        mut look: impl FnMut(&NamespaceDut) -> Result<Option<String>, LabError>,
    ) -> Result<(), LabError> {
        // Reading the configuration of many neighbours takes longer.
        let neighbours = self.role.bgp.as_ref().map_or(0, bgp::neighbours) as u32;
        let result = wait::until(READY + NEIGHBOUR * neighbours, stop, || {
            self.check_daemons()?;
            Ok(look(self)?.map_or(Look::Ready(()), Look::NotYet))
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

    /// A message with what the router itself still lacks, other routers aside.
    pub(super) fn unready(&self) -> Result<Option<String>, LabError> {
        match self.topology.link_not_up() {
            Some(link) => Ok(Some(format!("{link} has no carrier"))),
            None => match router::missing(self.netns(), &self.role)? {
                None => self.role.bgp.as_ref().map_or(Ok(None), |bgp| bgp::deaf(self.netns(), bgp)),
                missing => Ok(missing),
            },
        }
    }
}
