//! The interface of a running DUT.

use crate::management::Asking;
use crate::probe::ThreadTimes;
use crate::{LabError, wait};
use drophammer_model::Instant;
use drophammer_model::classes::EgressClasses;
use drophammer_model::counters::DutCounter;
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::management::Question;
use drophammer_model::reset::{ResetDone, ResetKind};
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::topology::{CoreLinkName, System};
use drophammer_model::trial::{Family, PortIndex};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for the neighbours of a daemon to leave state Idle after their sessions have ended. FRR needs one second, GoBGP five.
const IDLE: Duration = Duration::from_secs(10);

/// Waits while `idle` returns a message, for at most [`IDLE`]. If a neighbour stays idle for longer, the next test
/// waits for its session.
pub(crate) fn await_no_idle(idle: impl FnMut() -> Result<Option<String>, LabError>) -> Result<(), LabError> {
    match wait::while_missing(IDLE, &|| false, idle) {
        Err(LabError::NotReady { .. }) => Ok(()),
        other => other,
    }
}

/// Location of a tester interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// In the process's own network namespace: open sockets as usual.
    Tester,
    /// On the host: open sockets within [`crate::Lab::in_host_netns`].
    Host,
    /// On another host, whose agent lends it. The name is `host/interface`.
    Agent,
}

/// The tester's interface of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TesterInterface {
    /// Name: `t0`.
    pub name: String,
    /// The network namespace of the interface.
    pub netns: Where,
    /// MAC address of the DUT's port if the user gave it; `None`: resolve it by ARP and ND.
    pub dut_mac: Option<[u8; 6]>,
}

impl TesterInterface {
    /// An interface in the tester's namespace.
    pub(crate) fn here(name: String) -> TesterInterface {
        TesterInterface { name, netns: Where::Tester, dut_mac: None }
    }
}

/// A running DUT. Dropping it takes it down without waiting for its daemons to end. A feature that only some DUTs
/// support is a capability: a separate trait, which a method of this trait returns.
pub trait Dut {
    /// The tester's interfaces in the order of the suite's ports; none in virtual time.
    fn interfaces(&self) -> &[TesterInterface] {
        &[]
    }

    /// Kind, version, confinement and configuration, without secrets. `ports` is empty until the ports are opened.
    fn record(&self) -> DutRecord;

    /// Checks that the DUT is still alive. A simulated DUT always is.
    ///
    /// # Errors
    /// [`LabError::DaemonDied`] with exit status and last log lines, [`LabError::Command`].
    fn check(&mut self) -> Result<(), LabError>;

    /// The tester calls this when it has verified that the DUT forwards. The faults of a simulated device start at this
    /// call.
    fn forwards(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    /// Interface and tunnel counters since the DUT was brought up: router by router, interfaces before tunnels. A single
    /// router has number 0. `None` if the DUT does not provide them.
    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, LabError> {
        Ok(None)
    }

    /// Number of routes in its forwarding plane. It includes routes to the DUT's own addresses and links, so compare it
    /// with the number from before the tester sent routes. `None` if not known.
    fn fib_routes(&mut self, _family: Family) -> Result<Option<u64>, LabError> {
        Ok(None)
    }

    /// The routers of the DUT and the links between them, if the DUT is a system of several routers.
    fn system(&self) -> Option<&System> {
        None
    }

    /// Number of routers that a frame passes from one port to another. The TTL or hop limit of the frame decreases by
    /// this number.
    fn hops(&self, _from: PortIndex, _to: PortIndex) -> usize {
        1
    }

    /// True if labels have their own TTL (pipe model, RFC 3443). This matters when a frame passes several routers.
    fn labels_are_pipes(&self) -> bool {
        false
    }

    /// Called after the peers have ended all BGP sessions. The DUT needs to accept new sessions immediately, because
    /// the sessions are cleared between tests (RFC 7747 section 4.7).
    fn sessions_ended(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    /// Its counters by name: `d0.rx_packets`, `ip.InHdrErrors`, `softnet.cpu1.dropped` (the last one counts for the
    /// whole machine).
    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        Ok(BTreeMap::new())
    }

    /// True if a counter that is missing from [`Dut::counters`] is 0. If false, the value of such a counter is unknown.
    fn counters_begin_at_zero(&self) -> bool {
        true
    }

    /// Its counters with a known meaning, from all sources (kernel and SNMP).
    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        Ok(DutCounter::all_of("kernel", &self.counters()?))
    }

    /// Frames per port that the DUT has sent since it was brought up but that the tester lost, because they did not fit
    /// into the tester's end of the link. `None` if not known.
    fn lost_by_tester(&mut self) -> Result<Option<Vec<u64>>, LabError> {
        Ok(None)
    }

    /// True if a frame that the tester's interface refuses (`tx_dropped`, `ENOBUFS`) was refused by the DUT's receive
    /// ring, so that the DUT lost it. This is the case with veth.
    fn drops_at_tester_tx_are_dut(&self) -> bool {
        false
    }

    /// The processor time and memory that the DUT uses; `None` if neither is known.
    fn usage(&mut self) -> Option<&mut dyn Usage> {
        None
    }

    /// `None` if it supports no packet filters: see [`no_filters`].
    fn filters(&mut self) -> Option<&mut dyn Filters> {
        None
    }

    /// `None` if it supports no classes of service: see [`no_classes`].
    fn classes(&mut self) -> Option<&mut dyn Classes> {
        None
    }

    /// `None` if it has no links between routers: see [`no_core_link`].
    fn core_links(&mut self) -> Option<&mut dyn CoreLinks> {
        None
    }

    /// `None` if it answers only pings.
    fn management(&mut self) -> Option<&mut dyn Management> {
        None
    }

    /// `None` if it cannot be one of the routers of a system.
    fn member(&mut self) -> Option<&mut dyn SystemMember> {
        None
    }

    /// `None` if it cannot be reset.
    fn resets(&mut self) -> Option<&mut dyn Resets> {
        None
    }

    /// Ends the DUT and removes everything that belongs to it. Waits until its daemons have ended.
    ///
    /// # Errors
    /// The first error; the remaining steps are still tried.
    fn take_down(self: Box<Self>) -> Result<(), LabError> {
        Ok(())
    }
}

/// Implements the methods of [`Dut`] that return these capabilities, for a type that always has them.
macro_rules! capabilities {
    ($($method:ident: $capability:ident),+) => {
        $(fn $method(&mut self) -> Option<&mut dyn $crate::$capability> {
            Some(self)
        })+
    };
}
pub(crate) use capabilities;

/// A DUT that can be reset.
pub trait Resets {
    /// Schedules a reset at `now + after`, and returns immediately.
    ///
    /// # Errors
    /// [`LabError::Unusable`] if the DUT has nothing of this kind to reset, or another reset is in progress.
    fn begin(&mut self, kind: ResetKind, now: Instant, after: Duration) -> Result<(), LabError>;

    /// Returns the result once; `None` while the reset is in progress at `now`.
    fn done(&mut self, now: Instant) -> Option<ResetDone>;
}

/// A DUT whose use of processor and memory is known, at least in part.
pub trait Usage {
    /// Processor time of its forwarding and daemons since it was brought up; `None` if part of it cannot be read.
    fn cpu_time(&mut self) -> Option<Duration> {
        None
    }

    /// Like [`Usage::cpu_time`], for each router of a system, in order; `None` if it is not known for all of them.
    fn router_cpu(&mut self) -> Option<Vec<Duration>> {
        None
    }

    /// RAM in bytes that all processes of each router use; a shared page counts once ([PSS]). A DUT that is not a
    /// system is one router. `None` if it is not known for all of them, or a router has no processes.
    ///
    /// [PSS]: https://docs.kernel.org/filesystems/proc.html
    fn router_memory(&mut self) -> Option<Vec<u64>> {
        None
    }

    /// Times of the threads of its forwarding and daemons. `None` if the kernel does not count them.
    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        None
    }

    /// Resident memory of each daemon in bytes, by name: `zebra`, `bgpd -R`. Empty without daemons, or if they cannot be
    /// seen.
    fn memory(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// The processor that does all of the DUT's work and none of the tester's; `None` if there is no such processor.
    fn processor(&mut self) -> Option<usize> {
        None
    }
}

/// A DUT that supports packet filters.
pub trait Filters {
    /// Replaces the packet filters of earlier calls; an empty list removes them. Filters in the DUT's own configuration
    /// stay.
    ///
    /// # Errors
    /// [`LabError::Unusable`] if the DUT rejects them, or one of its routers supports none.
    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError>;
}

/// The error for a test that sets filters on a DUT without [`Filters`].
pub fn no_filters() -> LabError {
    LabError::unusable("this DUT supports no packet filters", "`drophammer list duts` names the kinds that do")
}

/// A DUT that supports classes of service.
pub trait Classes {
    /// Replaces the classes of service of earlier calls; an empty list removes them.
    ///
    /// # Errors
    /// [`LabError::Unusable`] if the DUT rejects them, or one of its routers supports none.
    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), LabError>;
}

/// The error for a test that sets classes of service on a DUT without [`Classes`].
pub fn no_classes() -> LabError {
    LabError::unusable("this DUT supports no classes of service", "`drophammer list duts` names the kinds that do")
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

/// The error for a test that changes a link of a DUT without [`CoreLinks`].
pub fn no_core_link(link: CoreLinkName) -> LabError {
    LabError::unusable(
        format!("this DUT has no link {link} between routers"),
        "give the DUT a `topology` with such a link",
    )
}

/// A DUT that answers questions about itself.
pub trait Management {
    /// Starts to ask, every `interval`, the questions that do not need the DUT's ports: over a management link, or to
    /// an SNMP agent over the loopback interface of its namespace.
    fn ask(&mut self, _questions: &[Question], _interval: Duration) -> Result<Vec<Asking>, LabError> {
        Ok(Vec::new())
    }

    /// True if an SSH server answers at its addresses on the links. The tester queries it over a link, like pings.
    fn has_ssh(&self) -> bool;
}

/// A router that can be a member of a system of several routers.
pub trait SystemMember {
    /// Returns a message if part of its role is still missing, such as a link, a route, or a session with another
    /// router of its system. It covers only what the router can be asked.
    fn lacking(&mut self) -> Result<Option<String>, LabError>;

    /// Call it before a link to another router of its system goes down. It removes from the router's end of the link
    /// what the lab cannot remove from outside, and saves what would be lost with the link.
    fn link_leaves(&mut self, interface: usize) -> Result<(), LabError>;

    /// Call it when the router's end of a link between two routers is up again. The given kernel threads (process id,
    /// name) receive on it.
    fn receives_in(&mut self, _interface: usize, _threads: Vec<(u32, String)>) {}

    /// Call it when a link to another router of its system is up again. It restores what only the lab can restore.
    fn link_returned(&mut self, interface: usize) -> Result<(), LabError>;
}
