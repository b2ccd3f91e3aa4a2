//! What a DUT can do beyond its core. A kind has such a capability or has not.

use crate::LabError;
use crate::management::Asking;
use crate::probe::ThreadTimes;
use drophammer_model::Instant;
use drophammer_model::classes::EgressClasses;
use drophammer_model::filter::FilterList;
use drophammer_model::management::Question;
use drophammer_model::reset::{ResetDone, ResetKind};
use drophammer_model::topology::CoreLinkName;
use std::time::Duration;

/// A DUT that can be reset.
pub trait Resets {
    /// Begins a reset `after` this time from `now`, and returns at once.
    ///
    /// # Errors
    /// [`LabError::Unusable`] where this cannot be reset, or another reset is under way.
    fn begin(&mut self, kind: ResetKind, now: Instant, after: Duration) -> Result<(), LabError>;

    /// The result, once; `None` while the reset is under way at `now`.
    fn done(&mut self, now: Instant) -> Option<ResetDone>;
}

/// A DUT whose use of processor and memory is known, at least in part.
pub trait Usage {
    /// Processor time of its forwarding and daemons since it was brought up; `None` if part of it cannot be read.
    fn cpu_time(&mut self) -> Option<Duration> {
        None
    }

    /// As [`Usage::cpu_time`] for each router of a system, in order; `None` if it is not known for all of them.
    fn router_cpu(&mut self) -> Option<Vec<Duration>> {
        None
    }

    /// Memory that all processes of each router have in RAM, in bytes, a shared page counted once ([PSS]); one router
    /// if the DUT is no system. `None` if it is not known for all of them, or a router has no processes.
    ///
    /// [PSS]: https://docs.kernel.org/filesystems/proc.html
    fn router_memory(&mut self) -> Option<Vec<u64>> {
        None
    }

    /// Times of the threads of its forwarding and daemons. `None` if the kernel does not count them.
    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        None
    }

    /// Resident memory of each daemon in bytes, by name: `zebra`, `bgpd -R`. Empty if it has none, or none that can be
    /// seen.
    fn memory(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// The processor that does all of its work and none of the tester's; `None` if there is no such processor.
    fn processor(&mut self) -> Option<usize> {
        None
    }
}

/// A DUT that can be given packet filters.
pub trait Filters {
    /// Replaces the packet filters of earlier calls; an empty list removes them. Filters of the DUT's own configuration
    /// stay.
    ///
    /// # Errors
    /// [`LabError::Unusable`] if it rejects these, or one of its routers cannot be given any.
    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError>;
}

/// A DUT without [`Filters`] was to be given some.
pub fn no_filters() -> LabError {
    LabError::Unusable {
        what: "this DUT cannot be given packet filters".into(),
        remedy: "`drophammer list duts` names the kinds that can".into(),
    }
}

/// A DUT that can be given classes of service.
pub trait Classes {
    /// Replaces the classes of service of earlier calls; an empty list removes them.
    ///
    /// # Errors
    /// [`LabError::Unusable`] if it rejects these, or one of its routers cannot be given any.
    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), LabError>;
}

/// A DUT without [`Classes`] was to be given some.
pub fn no_classes() -> LabError {
    LabError::Unusable {
        what: "this DUT cannot be given classes of service".into(),
        remedy: "`drophammer list duts` names the kinds that can".into(),
    }
}

/// A DUT with links between its routers.
pub trait CoreLinks {
    /// Takes a link between two of its routers down at both ends, or up again. Returns when that is done: a link that
    /// is up has its routes again.
    ///
    /// # Errors
    /// [`LabError::Unusable`] if it has no such link; otherwise the reason why the change failed.
    fn set_core_link(&mut self, link: CoreLinkName, up: bool) -> Result<(), LabError>;
}

/// A link of a DUT without [`CoreLinks`] was to be taken down or up.
pub fn no_core_link(link: CoreLinkName) -> LabError {
    LabError::Unusable {
        what: format!("this DUT has no link {link} between routers"),
        remedy: "give the DUT a `topology` with such a link".into(),
    }
}

/// A DUT that answers questions about itself.
pub trait Management {
    /// Asks from now on, every `interval`, those of `questions` that do not need its ports: over a management link, or
    /// an SNMP agent over the loopback of its namespace.
    ///
    /// # Errors
    /// A thread that cannot be started.
    fn ask(&mut self, _questions: &[Question], _interval: Duration) -> Result<Vec<Asking>, LabError> {
        Ok(Vec::new())
    }

    /// True if an SSH server answers at its addresses on the links. The tester asks it over a link, as with pings.
    fn has_ssh(&self) -> bool;
}

/// A router that can be a member of a system of several routers.
pub trait SystemMember {
    /// A message with what it lacks of its role, as far as it can be asked: a link, a route, a session with another
    /// router of its system.
    ///
    /// # Errors
    /// Those of asking.
    fn lacking(&mut self) -> Result<Option<String>, LabError>;

    /// A link to another router of its system goes down: removes from its end what the lab cannot remove from outside,
    /// and keeps what ends with the link.
    ///
    /// # Errors
    /// The reason why that failed.
    fn link_leaves(&mut self, interface: usize) -> Result<(), LabError>;

    /// An end of a link between two routers is up again: these kernel threads (process id, name) receive there.
    fn receives_in(&mut self, _interface: usize, _threads: Vec<(u32, String)>) {}

    /// A link to another router of its system is up again: restores what only the lab can restore.
    ///
    /// # Errors
    /// Those of ip(8).
    fn link_returned(&mut self, interface: usize) -> Result<(), LabError>;
}
