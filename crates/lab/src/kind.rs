//! What a DUT kind can be asked.

use crate::{Dut, Lab, LabError, kinds};
use drophammer_model::capabilities::{Capabilities, Vlans};
use drophammer_model::registry::KindSpec;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::DutConfig;
use std::path::Path;

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

    /// The role as the namespace's kernel plays it at the links, where the router is one of a system: without addresses where it shall have nothing to do with
    /// them.
    fn of_kernel(&self, role: &RouterRole) -> RouterRole {
        role.clone()
    }

    /// Do its routers delay by themselves what arrives over a link between two of them that has a delay?
    fn delays_links(&self) -> bool {
        false
    }

    /// Has each of its routers a kernel of its own, in which the ends of its links and their queues are? Then a link between two of them is taken down there, by
    /// [`Dut::link_leaves`].
    fn has_own_kernel(&self) -> bool {
        false
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
