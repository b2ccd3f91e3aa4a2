//! Several reference devices as one DUT, in virtual time.
//!
//! Each router has the parameters of the DUT, faults included, but its own MAC addresses and its own seed. BGP sessions
//! between routers use the addresses of their link, not loopback addresses, so they end with the link.

use super::{Reference, class_counters, config, describe, record, unusable, world};
use crate::routing;
use drophammer_lab::{Classes, CoreLinks, Dut, Filters, LabError};
use drophammer_model::classes::EgressClasses;
use drophammer_model::counters::DutCounter;
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::quantity::Instant;
use drophammer_model::router_interfaces::{InterfaceOf, RouterInterface};
use drophammer_model::suite::{DutConfig, PortConfig};
use drophammer_model::topology::{CoreLinkName, Shape, System, SystemRouter, Topology};
use drophammer_model::trial::{Family, PortIndex};
use drophammer_port::simulated::{self, Arrivals, Deliveries, SimulatedClock, SimulatedPort};
use drophammer_reference::{BgpPeer, Config, Faults, LabelRoute, Network, NetworkConfig, RankedRoute, Route, Router};
use drophammer_wire::MacAddr;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

/// The routers as the simulated ports see them. A second handle provides access to the truth.
#[derive(Clone)]
pub struct ReferenceSystem(Rc<RefCell<Network>>);

impl ReferenceSystem {
    pub(super) fn new(network: Network) -> ReferenceSystem {
        ReferenceSystem(Rc::new(RefCell::new(network)))
    }

    /// Gives read access to the routers and their links.
    pub fn look<T>(&self, at: impl FnOnce(&Network) -> T) -> T {
        at(&self.0.borrow())
    }

    /// Gives write access to the routers and their links.
    pub fn change<T>(&self, change: impl FnOnce(&mut Network) -> T) -> T {
        change(&mut self.0.borrow_mut())
    }

    /// Returns the sum of what all routers did. A frame counts at each router that it passes. Sums of instants are meaningless.
    fn truth(&self) -> Value {
        let network = self.0.borrow();
        let of_each = network.routers().iter().map(|router| serde_json::to_value(router.truth()).unwrap_or_default());
        of_each.reduce(added).unwrap_or_default()
    }
}

/// Adds up the numbers of two objects with the same structure.
fn added(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(a), Value::Object(mut b)) => {
            let sum = a.into_iter().map(|(key, value)| {
                let other = b.remove(&key).unwrap_or_default();
                (key, added(value, other))
            });
            Value::Object(sum.collect())
        }
        (Value::Number(a), Value::Number(b)) => (a.as_u64().unwrap_or(0) + b.as_u64().unwrap_or(0)).into(),
        (a, _) => a,
    }
}

impl simulated::Device for ReferenceSystem {
    fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
        self.0.borrow_mut().receive(now, port, frame);
    }

    fn poll(&mut self, now: Instant, deliver: &mut dyn FnMut(Instant, usize, &[u8])) {
        self.0.borrow_mut().give(now, |at, port, frame| deliver(at, port, frame));
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.0.borrow().next_deadline()
    }

    fn next_notice(&self) -> Option<Instant> {
        self.0.borrow().next_notice()
    }

    fn take(&mut self, arrivals: &mut Arrivals<'_>) {
        let mut network = self.0.borrow_mut();
        let before = network.next_notice();
        while let Some(mut frame) = arrivals.next() {
            network.take(frame.at, frame.port, frame.memory());
            if network.next_notice() != before {
                return;
            }
        }
    }

    fn give(&mut self, now: Instant, deliveries: &mut Deliveries<'_>) {
        self.0.borrow_mut().give(now, |at, port, frame| deliveries.hand_over(at, port, frame));
    }

    fn link(&mut self, now: Instant, port: usize, up: bool) {
        self.0.borrow_mut().set_link(now, port, up);
    }
}

/// Returns the configuration of the routers of a system.
///
/// # Errors
/// Ports that do not fit the topology, or BGP sessions that it does not support.
pub fn network(dut: &DutConfig, topology: &Topology, ports: &[PortConfig], seed: u64) -> Result<NetworkConfig, String> {
    let system = System::of(ports, topology).map_err(|e| e.to_string())?;
    let speaks = ports.iter().any(|port| port.bgp.is_some());
    if speaks && topology.shape == Shape::Chain && topology.routers > 2 {
        return Err(
            "simulated routers have sessions only over the links between them: a chain of more than two has no BGP"
                .into(),
        );
    }
    let mut built = NetworkConfig {
        edges: (0..ports.len()).filter_map(|port| system.edge(port)).collect(),
        links: system.links.iter().map(|link| link.ends.map(|end| (end.router, end.interface))).collect(),
        delays: system.links.iter().map(|link| link.delay).collect(),
        losses: system.links.iter().map(|link| link.loss.0).collect(),
        detection: dut.params.duration("core_detection").unwrap_or_default(),
        ..NetworkConfig::default()
    };
    for (index, router) in system.routers.iter().enumerate() {
        let mut one = config(dut, &ports[router.ports.clone()], seed.wrapping_add(index as u64));
        add_core(&mut one, router);
        // The number of a port in the suite is not that at its router.
        one.core = routing::core(&dut.params, &router.role);
        one.loopback = router.role.core.as_ref().map(|core| core.loopback);
        for (at, port) in one.ports.iter_mut().enumerate() {
            port.mac = MacAddr::local(0xd0_0000_0000 | (index as u64) << 16 | at as u64);
        }
        for link in &system.links {
            let Some((own, other)) = link.end_at(index).zip(link.beyond(index)) else { continue };
            let port = &mut one.ports[own.interface];
            port.speed = link.speed;
            port.egress_buffer = dut.params.count("line_buffer").map_or(port.egress_buffer, |frames| frames as usize);
            let Some(bgp) = one.bgp.as_mut().filter(|_| speaks) else { continue };
            // All routers are in one AS, and advertise routes to each other with themselves as next hop.
            bgp.next_hop_self = true;
            let Some(end) = link.end_at(other) else { continue };
            let addresses = system.routers[other].role.interfaces[end.interface].addresses.iter();
            bgp.peers.extend(addresses.map(|at| BgpPeer {
                port: own.interface,
                address: at.address,
                asn: bgp.asn,
                connect: index < other,
                client: false,
            }));
        }
        if let (Some(bgp), Some(member)) = (&mut one.bgp, &router.role.member) {
            bgp.router_id = member.router_id;
        }
        built.routes.push(ranked(router));
        built.routers.push(one);
    }
    Ok(built)
}

/// Adds the ports to the other routers, after the ports to the tester.
fn add_core(one: &mut Config, router: &SystemRouter) {
    let edges = one.ports.len();
    for interface in router.role.interfaces.iter().skip(edges) {
        let mut port = drophammer_reference::PortConfig::new(MacAddr::default());
        port.mtu = interface.mtu;
        for at in &interface.addresses {
            match at.address {
                IpAddr::V4(own) => port.ipv4 = Some((own, at.prefix_len)),
                IpAddr::V6(own) => port.ipv6 = Some((own, at.prefix_len)),
            }
        }
        one.ports.push(port);
    }
    // Sub-interfaces are numbered after the ports.
    let core = one.ports.len() - edges;
    let shift = |port: &mut usize| *port += if *port >= edges { core } else { 0 };
    one.routes.iter_mut().for_each(|route| shift(&mut route.port));
    one.bgp.iter_mut().flat_map(|bgp| &mut bgp.peers).for_each(|peer| shift(&mut peer.port));
    one.labels.iter_mut().for_each(|entry| shift(&mut entry.port));
    // Interfaces of a role are ports here.
    one.tunnels.clone_from(&router.role.tunnels);
    one.policies.clone_from(&router.role.policies);
    let beyond = router.role.labels.iter().filter(|entry| entry.at.port >= edges);
    one.labels.extend(beyond.map(|entry| LabelRoute {
        label: entry.label,
        out: entry.out.clone(),
        port: entry.at.port,
        next_hop: entry.via,
    }));
}

/// Returns the routes through the other routers.
fn ranked(router: &SystemRouter) -> Vec<RankedRoute> {
    let edges = router.ports.len();
    let beyond = router.role.routes.iter().filter(|route| route.at.port >= edges);
    let one = |route: &drophammer_model::role::StaticRoute| RankedRoute {
        route: Route { prefix: route.prefix.0, prefix_len: route.prefix.1, port: route.at.port, next_hop: route.via },
        rank: route.rank,
    };
    beyond.map(one).collect()
}

/// The parts of a simulated test setup of several routers.
pub struct SystemParts {
    /// Virtual time.
    pub clock: SimulatedClock,
    /// Ports.
    pub ports: Vec<SimulatedPort>,
    /// The routers.
    pub reference: ReferenceSystem,
    /// The routers as a DUT.
    pub device: SystemDut,
}

/// Creates the routers and the ports that face them, with `queues` queues each.
///
/// # Errors
/// A router refuses its configuration, or an error of [`network`].
pub fn build(
    dut: &DutConfig,
    topology: &Topology,
    configs: &[PortConfig],
    queues: u32,
    seed: u64,
) -> Result<SystemParts, String> {
    let system = System::of(configs, topology).map_err(|e| e.to_string())?;
    let mut built = network(dut, topology, configs, seed)?;
    let text = |(i, one): (usize, &Config)| (format!("r{}/reference.txt", i + 1), describe(one));
    let texts = built.routers.iter().enumerate().map(text).collect();
    let faults: Vec<Faults> = built.routers.iter_mut().map(|one| std::mem::take(&mut one.faults)).collect();
    let reference = ReferenceSystem::new(Network::new(built).map_err(|e| e.to_string())?);
    let (clock, ports) = world(reference.clone(), configs, queues, seed);
    let record = record(dut, format!("{topology}; virtual time"), texts);
    let rules = vec![Vec::new(); system.routers.len()];
    let (down, device, pipe) = (BTreeSet::new(), reference.clone(), drophammer_lab::is_pipe(&dut.params));
    let device = SystemDut { reference: device, system, faults, record, down, pipe, rules };
    Ok(SystemParts { clock, ports, reference, device })
}

/// Several reference devices as a DUT. Their faults start once they have been found to forward.
pub struct SystemDut {
    reference: ReferenceSystem,
    system: System,
    faults: Vec<Faults>,
    record: DutRecord,
    down: BTreeSet<CoreLinkName>,
    /// True if labels have their own TTL.
    pipe: bool,
    /// For each router: the position of each of its rules among the rules of all filters.
    rules: Vec<Vec<usize>>,
}

impl Dut for SystemDut {
    fn record(&self) -> DutRecord {
        self.record.clone()
    }

    fn check(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn forwards(&mut self) -> Result<(), LabError> {
        let begun: Result<(), String> = self.reference.change(|network| {
            let now = network.now();
            network.lose();
            let mut each = self.faults.iter().enumerate();
            let set = |router: &mut Router, faults: &Faults| router.set_faults(faults.clone().from_instant(now));
            each.try_for_each(|(i, faults)| network.change(i, |router| set(router, faults))).map_err(|e| e.to_string())
        });
        begun.map_err(|e| unusable(&self.record.name, e))
    }

    /// Returns the counters of all routers together, and of each router. The latter have names that start with, for example, `r1.`.
    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = BTreeMap::new();
        drophammer_lab::flatten("truth", &self.reference.truth(), &mut counters);
        self.reference.look(|network| {
            for (i, router) in network.routers().iter().enumerate() {
                let (label, mut own) = (format!("r{}", i + 1), BTreeMap::new());
                let truth = serde_json::to_value(router.truth()).unwrap_or_default();
                drophammer_lab::flatten(&format!("{label}.truth"), &truth, &mut own);
                for port in 0.. {
                    let Some(told) = router.counters(port) else { break };
                    let told = serde_json::to_value(told).unwrap_or_default();
                    drophammer_lab::flatten(&format!("{label}.d{port}"), &told, &mut own);
                    let lost = network.lost_before(i, port);
                    own.extend(lost.map(|frames| (format!("{label}.d{port}.delay_dropped"), frames)));
                }
                own.extend(class_counters(router).into_iter().map(|(name, n)| (format!("{label}.{name}"), n)));
                counters.extend(own);
                if router.filter_matches().len() > drophammer_lab::MOST_FILTER_COUNTERS {
                    continue;
                }
                for (matches, place) in router.filter_matches().iter().zip(&self.rules[i]) {
                    *counters.entry(drophammer_lab::filter_counter(*place)).or_default() += matches;
                }
            }
        });
        Ok(counters)
    }

    fn filters(&mut self) -> Option<&mut dyn Filters> {
        Some(self)
    }

    fn classes(&mut self) -> Option<&mut dyn Classes> {
        Some(self)
    }

    fn core_links(&mut self) -> Option<&mut dyn CoreLinks> {
        Some(self)
    }

    fn system(&self) -> Option<&System> {
        Some(&self.system)
    }

    fn hops(&self, from: PortIndex, to: PortIndex) -> usize {
        self.system.route(from, to, &self.down).map_or(1, |path| path.len())
    }

    fn labels_are_pipes(&self) -> bool {
        self.pipe
    }

    /// Returns the counters as the routers report them, right or wrong.
    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, LabError> {
        let of_routers = |network: &Network| network.routers().iter().enumerate().flat_map(interfaces_of).collect();
        Ok(Some(self.reference.look(of_routers)))
    }

    /// Returns the counters of the ports to the tester, as a single router would report them, and the sum of all
    /// routers' drops, because a packet is dropped only once. Other counters of whole routers are left out, because
    /// they would count a packet at each router that it passes.
    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        let mut all: Vec<DutCounter> = Vec::new();
        self.reference.look(|network| {
            for (router, at) in network.routers().iter().zip(&self.system.routers) {
                for counter in Reference::counters_of(router) {
                    if let Some(port) = counter.port.and_then(|port| at.ports.clone().nth(port)) {
                        all.push(DutCounter { port: Some(port), ..counter });
                    } else if counter.counts.is_drop() {
                        let core = if counter.port.is_some() { "core " } else { "" };
                        let counter = DutCounter { name: format!("{core}{}", counter.name), port: None, ..counter };
                        match all.iter_mut().find(|known| known.is(&counter)) {
                            Some(known) => known.value += counter.value,
                            None => all.push(counter),
                        }
                    }
                }
            }
        });
        Ok(all)
    }

    /// Returns the lowest number of routes of any router.
    fn fib_routes(&mut self, family: Family) -> Result<Option<u64>, LabError> {
        let of = |router: &Router| match family {
            Family::Ipv4 => router.truth().fib.ipv4,
            Family::Ipv6 => router.truth().fib.ipv6,
        };
        Ok(self.reference.look(|network| network.routers().iter().map(of).min()))
    }
}

impl Filters for SystemDut {
    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError> {
        for i in 0..self.system.routers.len() {
            let (own, rules) = drophammer_lab::filters_of(lists, &self.system.routers[i].ports);
            let set = self.reference.change(|network| network.change(i, |router| router.set_filter(own)));
            set.map_err(|e| unusable(&self.record.name, e))?;
            self.rules[i] = rules;
        }
        Ok(())
    }
}

impl Classes for SystemDut {
    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), LabError> {
        for i in 0..self.system.routers.len() {
            let own = self.system.classes_of(i, lists).map_err(|e| unusable(&self.record.name, e))?;
            let set = self.reference.change(|network| network.change(i, |router| router.set_classes(&own)));
            set.map_err(|e| unusable(&self.record.name, e))?;
        }
        Ok(())
    }
}

impl CoreLinks for SystemDut {
    fn set_core_link(&mut self, link: CoreLinkName, up: bool) -> Result<(), LabError> {
        // Parallel links between the same routers have the same name.
        let links = self.system.links.iter().enumerate().filter(|(_, one)| one.name == link);
        let links: Vec<usize> = links.map(|(index, _)| index).collect();
        if links.is_empty() {
            return Err(unusable(&self.record.name, format!("there is no link {link} between routers")));
        }
        if up {
            self.down.remove(&link);
        } else {
            self.down.insert(link);
        }
        self.reference.change(|network| {
            links.iter().for_each(|index| network.set_core_link(network.now(), *index, up));
        });
        Ok(())
    }
}

/// Returns the counters of a router's ports and tunnels. The router's octets at ports include the FCS, which is
/// subtracted here.
fn interfaces_of((router, of): (usize, &Router)) -> Vec<RouterInterface> {
    let ports = (0..).map_while(|port| Some((port, of.counters(port)?))).map(|(port, told)| {
        let (in_packets, out_packets) = (told.in_unicast + told.in_group, told.out_unicast + told.out_group);
        RouterInterface {
            router,
            at: InterfaceOf::Interface(port),
            in_packets,
            out_packets,
            in_bytes: told.in_octets.saturating_sub(FCS * in_packets),
            out_bytes: told.out_octets.saturating_sub(FCS * out_packets),
        }
    });
    let tunnels = (0..).map_while(|tunnel| Some((tunnel, of.tunnel_counters(tunnel)?)));
    let tunnels = tunnels.map(|(tunnel, told)| RouterInterface {
        router,
        at: InterfaceOf::Tunnel(tunnel),
        in_packets: told.in_packets,
        out_packets: told.out_packets,
        in_bytes: told.in_octets,
        out_bytes: told.out_octets,
    });
    ports.chain(tunnels).collect()
}

/// Length of an FCS in bytes.
const FCS: u64 = 4;

/// Clock, ports and DUT of a simulated test setup.
pub type BroughtUp = (SimulatedClock, Vec<SimulatedPort>, Box<dyn Dut>);

/// Creates a simulated test setup with one or several routers.
///
/// # Errors
/// The errors of [`build`] and of [`super::build`].
pub fn bring_up(dut: &DutConfig, configs: &[PortConfig], queues: u32, seed: u64) -> Result<BroughtUp, String> {
    Ok(match &dut.topology {
        None => {
            let parts = super::build(dut, configs, queues, seed)?;
            (parts.clock, parts.ports, Box::new(parts.device))
        }
        Some(topology) => {
            let parts = build(dut, topology, configs, queues, seed)?;
            (parts.clock, parts.ports, Box::new(parts.device))
        }
    })
}
