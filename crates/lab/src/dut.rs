//! The interface of a DUT that is up, and the router in a namespace.

mod capabilities;
mod daemons;
mod start;

pub use capabilities::{Classes, CoreLinks, Filters, Management, Resets, SystemMember, Usage};
pub use capabilities::{no_classes, no_core_link, no_filters};
pub(crate) use start::READY;

use crate::link_delay;
use crate::management::{self, Asking, ManagementLink};
use crate::packet_filter::{self, FilterStyle};
use crate::process::Daemon;
use crate::router;
use crate::snmp::Agent;
use crate::topology::Topology;
use crate::traffic_classes::{self, Given};
use crate::wait::{self, Look};
use crate::{LabError, probe};
use daemons::Resetting;
use drophammer_model::classes::EgressClasses;
use drophammer_model::counters::DutCounter;
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::management::Question;
use drophammer_model::role::{CorePeer, RouterRole};
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::topology::System;
use drophammer_model::trial::{Family, PortIndex};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// Time for the neighbours of a daemon to leave state Idle after their sessions have ended. FRR needs one second.
const IDLE: Duration = Duration::from_secs(3);

/// Waits while `idle` returns a message. A neighbour that stays idle for longer is left to the next test, which waits
/// for its session.
pub(crate) fn await_no_idle(mut idle: impl FnMut() -> Result<Option<String>, LabError>) -> Result<(), LabError> {
    let waited = wait::until(IDLE, &|| false, || Ok(idle()?.map_or(Look::Ready(()), Look::NotYet)));
    match waited {
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
}

/// The tester's interface of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TesterInterface {
    /// Name: `t0`.
    pub name: String,
    /// Where it is.
    pub netns: Where,
    /// MAC address of the DUT's port if the user gave it; `None`: resolve it by ARP and ND.
    pub dut_mac: Option<[u8; 6]>,
}

/// A DUT that is up. Dropping it takes it down without waiting for its daemons to end by themselves. What only some
/// DUTs can do is a capability: a trait of its own that a method here returns.
pub trait Dut {
    /// The tester's interfaces in the order of the suite's ports; none in virtual time.
    fn interfaces(&self) -> &[TesterInterface] {
        &[]
    }

    /// Kind, version, confinement and configuration, without secrets. `ports` is empty: it is filled in when the ports
    /// are opened.
    fn record(&self) -> DutRecord;

    /// Checks that the DUT is still alive. A simulated DUT always is.
    ///
    /// # Errors
    /// [`LabError::DaemonDied`] with exit status and last log lines, [`LabError::Command`].
    fn check(&mut self) -> Result<(), LabError>;

    /// Called once the DUT has been found to forward. The faults of a simulated device begin now.
    ///
    /// # Errors
    /// Faults that the device refuses.
    fn forwards(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    /// Interface and tunnel counters since the DUT was brought up: router by router, interfaces before tunnels. A DUT
    /// that is one router is the first. `None` if the DUT does not provide them.
    ///
    /// # Errors
    /// Those of reading it.
    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, LabError> {
        Ok(None)
    }

    /// Routes in its forwarding plane, including those to its own addresses and links: compare with the value before
    /// routes were sent. `None` if not known.
    ///
    /// # Errors
    /// Those of reading it.
    fn fib_routes(&mut self, _family: Family) -> Result<Option<u64>, LabError> {
        Ok(None)
    }

    /// Its routers and the links between them, if it is a system of several.
    fn system(&self) -> Option<&System> {
        None
    }

    /// Routers that a frame passes from one port to another: its TTL or hop limit decreases by this number.
    fn hops(&self, _from: PortIndex, _to: PortIndex) -> usize {
        1
    }

    /// True if labels have a TTL of their own (pipe model, RFC 3443). It matters where a frame passes several routers.
    fn labels_are_pipes(&self) -> bool {
        false
    }

    /// All BGP sessions have been ended by their peers. The DUT must accept new ones at once, because sessions are to
    /// be cleared between tests (RFC 7747 section 4.7).
    ///
    /// # Errors
    /// Those of its control program.
    fn sessions_ended(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    /// Its counters by name: `d0.rx_packets`, `ip.InHdrErrors`, `softnet.cpu1.dropped` (the last one counts for the
    /// whole machine).
    ///
    /// # Errors
    /// Those of reading them.
    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        Ok(BTreeMap::new())
    }

    /// True if a counter that [`Dut::counters`] lacks is 0. Otherwise its value is not known.
    fn counters_begin_at_zero(&self) -> bool {
        true
    }

    /// Its counters with a known meaning, from all sources: kernel, SNMP.
    ///
    /// # Errors
    /// Those of reading them.
    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        Ok(DutCounter::all_of("kernel", &self.counters()?))
    }

    /// Frames that it sent since it was brought up and that the tester's end of the link had no room for, by port: loss of
    /// the tester. `None` if not known.
    ///
    /// # Errors
    /// Those of reading it.
    fn lost_by_tester(&mut self) -> Result<Option<Vec<u64>>, LabError> {
        Ok(None)
    }

    /// True if a frame that the tester's interface refuses (`tx_dropped`, `ENOBUFS`) was refused by the DUT's receive
    /// ring and is therefore loss of the DUT. This is so with veth.
    fn drops_at_tester_tx_are_dut(&self) -> bool {
        false
    }

    /// What it uses of processor and memory; `None` if nothing of that is known.
    fn usage(&mut self) -> Option<&mut dyn Usage> {
        None
    }

    /// `None` if it cannot be given packet filters: see [`no_filters`].
    fn filters(&mut self) -> Option<&mut dyn Filters> {
        None
    }

    /// `None` if it cannot be given classes of service: see [`no_classes`].
    fn classes(&mut self) -> Option<&mut dyn Classes> {
        None
    }

    /// `None` if it has no links between routers: see [`no_core_link`].
    fn core_links(&mut self) -> Option<&mut dyn CoreLinks> {
        None
    }

    /// `None` if it answers no questions but pings.
    fn management(&mut self) -> Option<&mut dyn Management> {
        None
    }

    /// `None` if it cannot be one of the routers of a system.
    fn member(&mut self) -> Option<&mut dyn SystemMember> {
        None
    }

    /// How to reset it; `None` if that is not possible.
    fn resets(&mut self) -> Option<&mut dyn Resets> {
        None
    }

    /// Ends it and removes all that belongs to it. Waits until daemons have ended.
    ///
    /// # Errors
    /// Those of removing; the remaining steps are tried even after an error.
    fn take_down(self: Box<Self>) -> Result<(), LabError> {
        Ok(())
    }
}

/// See [`NamespaceDut::ask_sessions`].
type AskIdle = Box<dyn Fn() -> Option<String>>;
type AskSession = Box<dyn Fn(&NamespaceDut, &CorePeer) -> Option<String>>;

/// Adds counters to those of the kernel.
type Count = Box<dyn Fn(&mut BTreeMap<String, u64>) -> Result<(), LabError>>;

/// A router in a namespace: links, and daemons if it has any.
pub(crate) struct NamespaceDut {
    pub(crate) topology: Topology,
    daemons: Vec<Daemon>,
    /// Servers beside the router, such as an SNMP agent: a reset of the router leaves them alone.
    helpers: Vec<Daemon>,
    resetting: Option<Resetting>,
    /// Adds what its daemons count: a reset of the router begins these counters again.
    daemon_counters: Option<Count>,
    /// True if the lab configures its daemons after their start: daemons that are started again would not forward.
    needs_lab: bool,
    record: DutRecord,
    role: RouterRole,
    /// Its management link, if configured, and how it is asked over it.
    management: Option<(ManagementLink, management::Operator)>,
    /// Its SNMP agent, if configured.
    agent: Option<Agent>,
    /// True if it has an SSH server.
    ssh: bool,
    /// Commands to run in its namespace once all sessions have ended.
    after_sessions: Vec<Command>,
    /// Asks its daemon for a neighbour that cannot have a session yet: returns a message while there is one.
    idle: Option<AskIdle>,
    /// Asks its daemon about a session with another router of its system: returns a message while the session is not
    /// up.
    session: Option<AskSession>,
    /// True if the lab sets its routes, not a daemon.
    routes_by_lab: bool,
    /// How filters are installed, and whether there are any whose counters are read.
    filters: FilterStyle,
    counted: bool,
    /// The current classes of service.
    classes: Given,
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

    /// As this machine's kernel counts them, with the bytes that veth interfaces count.
    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, LabError> {
        let mut counters = BTreeMap::new();
        let interfaces = (0..self.role.interfaces.len()).map(router::dut_interface);
        for name in interfaces.chain((0..self.role.tunnels.len()).map(router::tunnel_name)) {
            probe::interface(self.netns(), &name, &mut counters)?;
        }
        Ok(router::counted(&self.role, &counters, 0))
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
        self.idle.as_ref().map_or(Ok(()), |idle| await_no_idle(|| Ok(idle())))
    }

    fn usage(&mut self) -> Option<&mut dyn Usage> {
        Some(self)
    }

    fn filters(&mut self) -> Option<&mut dyn Filters> {
        Some(self)
    }

    fn classes(&mut self) -> Option<&mut dyn Classes> {
        Some(self)
    }

    fn management(&mut self) -> Option<&mut dyn Management> {
        Some(self)
    }

    fn member(&mut self) -> Option<&mut dyn SystemMember> {
        Some(self)
    }

    fn resets(&mut self) -> Option<&mut dyn Resets> {
        let daemons = !self.daemons.is_empty() || self.resetting.is_some();
        if daemons && !self.needs_lab { Some(self) } else { None }
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = self.topology.counters()?;
        self.add_daemon_counters(&mut counters)?;
        if self.counted {
            packet_filter::counters(self.netns(), &mut counters)?;
        }
        self.classes.counters(&traffic_classes::within(self.netns()), &mut counters)?;
        link_delay::count_drops(self.netns(), &self.role, self.topology.delays(), &mut counters)?;
        Ok(counters)
    }

    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        let mut all = DutCounter::all_of("kernel", &self.counters()?);
        let own = probe::interface_counter(self.netns(), "lo", "rx_packets")?;
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
        self.topology.lost_by_tester().map(Some)
    }

    fn drops_at_tester_tx_are_dut(&self) -> bool {
        true
    }

    fn take_down(mut self: Box<Self>) -> Result<(), LabError> {
        // In the reverse order of their start: later daemons need earlier ones.
        while let Some(daemon) = self.helpers.pop().or_else(|| self.daemons.pop()) {
            daemon.stop();
        }
        self.topology.take_down()
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
        self.topology.link_leaves(interface);
        Ok(())
    }

    fn receives_in(&mut self, interface: usize, threads: Vec<(u32, String)>) {
        self.topology.link_returned(interface, threads);
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
        self.classes.set(&traffic_classes::within(self.topology.netns()), &self.role, lists)
    }
}
