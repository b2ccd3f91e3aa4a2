//! The interface of a DUT kind.

use crate::{Dut, Lab, LabError, kinds};
use drophammer_model::capabilities::{Capabilities, Vlans};
use drophammer_model::registry::KindSpec;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;
use std::path::Path;

/// What a kind needs to start a DUT.
pub struct Start<'a> {
    /// The lab.
    pub lab: &'a mut Lab,
    /// The DUT in the suite.
    pub dut: &'a DutConfig,
    /// The role to play.
    pub role: &'a RouterRole,
    /// Existing folder for logs and rendered configuration.
    pub work_dir: &'a Path,
    /// Returns true once the user asks to stop.
    pub stop: &'a dyn Fn() -> bool,
}

/// A kind of DUT. Each has its own file in `kinds/`.
pub trait DutKind: Sync {
    /// Name, parameters, capabilities and required programs.
    fn spec(&self) -> &'static KindSpec;

    /// Its capabilities.
    fn capabilities(&self) -> &'static Capabilities {
        &self.spec().capabilities
    }

    /// Programs that a DUT of this configuration needs, `(program, Debian package)`.
    fn needs(&self, _dut: &DutConfig) -> Vec<(&'static str, &'static str)> {
        self.spec().needs.to_vec()
    }

    /// Configuration files of a DUT in this role, `(name, text)`. Starts and writes nothing.
    ///
    /// # Errors
    /// [`LabError::Unusable`] with file, line and remedy if the user's configuration cannot be used.
    fn configuration(&self, dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError>;

    /// Starts a DUT in a role that the kind can play: [`DutKind::bring_up`] without its checks.
    fn start(&self, start: Start<'_>) -> Result<Box<dyn Dut>, LabError>;

    /// The part of a role that the kind plays: all of it, except BGP if the kind does not speak BGP.
    fn part_of(&self, role: &RouterRole) -> RouterRole {
        let bgp = role.bgp.clone().filter(|_| self.capabilities().bgp);
        RouterRole { bgp, ..role.clone() }
    }

    /// The role of the namespace's kernel on the links of a router in a system. It has no addresses if the kernel must
    /// not handle the router's packets.
    fn of_kernel(&self, role: &RouterRole) -> RouterRole {
        role.clone()
    }

    /// True if the routers of this kind delay packets themselves when a link has a delay.
    fn delays_links(&self) -> bool {
        false
    }

    /// True if each router of this kind has its own kernel, which contains the ends of its links and their queues. A
    /// link between two such routers is taken down there, by [`crate::SystemMember::link_leaves`].
    fn has_own_kernel(&self) -> bool {
        false
    }

    /// Most memory that each router in this role can take, in MiB, if the kind limits it.
    fn memory_mib(&self, _dut: &DutConfig, _role: &RouterRole) -> Option<u64> {
        None
    }

    /// Checks whether a DUT of this configuration can play the role. Checks everything that does not need a lab, and
    /// starts nothing.
    ///
    /// # Errors
    /// [`LabError::Unusable`] with the need that the kind cannot meet and the kinds that can.
    fn check(&self, dut: &DutConfig, role: &RouterRole) -> Result<(), LabError> {
        kinds::refuse_unless_able(self.spec(), role)?;
        self.configuration(dut, &self.part_of(role)).map(drop)
    }

    /// Refuses a DUT if the host lacks something that can be checked before a lab exists: its interfaces, and the right
    /// to use them. Called in the host's namespaces.
    fn refuse_host(&self, _dut: &DutConfig, _role: &RouterRole) -> Result<(), LabError> {
        Ok(())
    }

    /// Brings a DUT up in a role: interface i faces port i of the tester. Returns when it is ready. Logs and rendered
    /// configuration go to the existing folder `work_dir`.
    ///
    /// # Errors
    /// Those of [`DutKind::check`] before anything is started, [`LabError::NotReady`] with the condition and the last
    /// log lines, [`LabError::Stopped`] when `stop` returns true, and any other failure. Everything that was started
    /// before the error is removed.
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
        self.start(Start { lab, dut, role: &self.part_of(role), work_dir, stop })
    }
}
