//! A DUT that consists of several routers of one kind, each in its own namespace.
//!
//! # Systems of several routers
//!
//! A DUT with `topology` is several routers. `model::topology::System` distributes the ports among them and computes
//! the role of each: edge interfaces first, then those to other routers (`RouterRole::member`), static routes with
//! alternatives (`StaticRoute::rank`), and sessions of internal BGP (`BgpRole::core`). It is a pure function, and
//! `suite/tests/suites/topology.rs` follows its routes with various links down. `lab/src/system.rs` first makes all
//! namespaces and links (`system/core_links.rs`), then hands each namespace to the kind, which starts a router in it
//! (`Lab::take_site`). The system is itself a `Dut`: it adds up what its routers report, or prefixes it with their
//! names. `CoreLinks::set_core_link` takes a link between two of them down. `Dut::hops` says how many routers a frame
//! passes; `Bench` lowers the expected TTL of flows and of extra frames by this number, and waits for late frames
//! longer by the delay of the links (`bench/through.rs`). A link between guests of kind `uml` is taken down inside both
//! guests (`kinds/uml/link_end.rs`), because the guest's driver stops for good when the host's end goes down.
//!
//! A loop (`topology/cycle.rs`) adds routes to its own prefix, a tunnel and policies to the roles
//! (`RouterRole::{tunnels, policies}`), and knows which hops a packet passes (`System::cycle`, `System::passes`).
//! `lab/src/router.rs` sets them with ip(8), in the namespace or in the guest. The kernel of the receiving router
//! implements the delay of a link (`lab/src/link_delay.rs`), so the queue and the speed in front of the line are the
//! same with and without it. `Dut::router_interfaces` returns what each router counts at each interface and tunnel,
//! `Usage::router_cpu` the processor time of each.
//!
//! In a mesh, routes around a link that is down follow a ring: upwards to routers with an odd number, and downwards to
//! the others. One direction per destination keeps the routes free of loops. Using both directions spreads the detours:
//! if two links of a mesh of four are down, all remaining ways carry the same load.
//!
//! Tests see a system as `Testbed::system`, which is `model::topology::System` itself: data, no lab. In
//! `model/src/topology.rs`, a `CoreWay` is one direction of a link between routers. That file also computes the load of
//! each way in a full mesh of flows, and which links may go down so that the others are overloaded evenly
//! (`System::choose_down`). `methods::Setting::CoreLinks` takes a set of links down and all others up
//! (`testbed/src/bench/core_links.rs`). The call names the whole set, so the result does not depend on the state
//! before. It returns when frames between all ports arrive with the TTL that the new routes leave. This condition is
//! the same in both testbeds, so `Dut` does not need to report when routes have settled. `Bench::end_test` brings all
//! links up. `Record::CoreLinks` and `TrialRecord::links_down`
//! name the links that are down.

mod core_links;

use crate::dut::capabilities;
use crate::management::MANAGEMENT;
use crate::packet_filter::counter_name;
use crate::probe::ThreadTimes;
use crate::snmp::SNMP;
use crate::ssh::SSH;
use crate::{Classes, CoreLinks, Dut, DutKind, Filters, Lab, LabError, SystemMember, TesterInterface, Usage};
use crate::{configuration, is_pipe, no_classes, no_filters, wait};
use core_links::{RouterLinks, router_name};
use drophammer_model::classes::EgressClasses;
use drophammer_model::counters::DutCounter;
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::param::Param;
use drophammer_model::role::RouterRole;
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::suite::DutConfig;
use drophammer_model::topology::{CoreEnd, CoreLinkName, System, SystemRouter};
use drophammer_model::trial::{Family, PortIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Time within which the routers of a system must be connected to each other, in addition to the start of each router.
const READY: Duration = Duration::from_secs(30);
/// Additional time for each router.
const EACH: Duration = Duration::from_secs(1);

/// Routers in namespaces, and the links between them.
struct SystemDut {
    name: String,
    system: System,
    core: RouterLinks,
    /// The routers, in order.
    routers: Vec<Box<dyn Dut>>,
    /// The tester's interfaces of all routers.
    interfaces: Vec<TesterInterface>,
    /// For each router, the place of each of its rules among the rules of all filters.
    rules: Vec<Vec<usize>>,
    /// For each router, the interfaces to other routers that have classes of service instead of the queue of their
    /// link.
    classed: Vec<BTreeSet<usize>>,
    /// Description of the system, for the record.
    text: String,
    /// True if labels have their own TTL.
    pipe: bool,
}

/// Checks whether routers of this kind can play these roles, as far as that needs no lab. It refuses an SNMP agent, an
/// SSH server, a management link, and the user's own configuration, which would be the same for all routers.
pub fn check(kind: &dyn DutKind, dut: &DutConfig, system: &System) -> Result<(), LabError> {
    let flag = |param: &Param<bool>| param.find(&dut.params) == Some(true);
    let refused = [
        (configuration::is_own(dut), "a configuration of your own", "leave `config` and `template` out, or `topology`"),
        (flag(&SNMP), "`snmp: true`", "leave `snmp` out: there is no single agent to ask"),
        (flag(&SSH), "`ssh: true`", "leave `ssh` out: there is no single server to ask"),
        (flag(&MANAGEMENT), "`management: true`", "leave `management` out: there is no single router to ask"),
    ];
    if let Some((_, what, remedy)) = refused.into_iter().find(|(is_there, ..)| *is_there) {
        let what = format!("with a `topology`, `{}` cannot have {what}", dut.name);
        return Err(LabError::unusable(what, remedy));
    }
    core_links::refuse_unless_made(kind, system)?;
    system.routers.iter().enumerate().try_for_each(|(i, router)| kind.check(&member(dut, i), &router.role))
}

/// Router `index` as a separate DUT.
fn member(dut: &DutConfig, index: usize) -> DutConfig {
    DutConfig { name: router_name(dut, index), topology: None, ..dut.clone() }
}

/// Brings a system up: links first, then router by router. Returns once each router is ready and has its sessions with
/// all others. Each router has its own folder in `work_dir`, such as `r1`. Errors as in [`DutKind::bring_up`].
pub fn bring_up(
    kind: &dyn DutKind,
    lab: &mut Lab,
    dut: &DutConfig,
    system: System,
    work_dir: &Path,
    stop: &dyn Fn() -> bool,
) -> Result<Box<dyn Dut>, LabError> {
    check(kind, dut, &system)?;
    let by_kernel = |role: RouterRole| !role.tunnels.is_empty() || !role.policies.is_empty();
    if system.routers.iter().any(|router| by_kernel(kind.of_kernel(&router.role))) {
        lab.refuse_without_tunnels(kind.spec())?;
    }
    let core = RouterLinks::make(kind, lab, dut, &system)?;
    let mut start = |(index, router): (usize, &SystemRouter)| {
        let folder = work_dir.join(label(index));
        fs::create_dir_all(&folder).map_err(LabError::file("create", &folder))?;
        kind.bring_up(lab, &member(dut, index), &router.role, &folder, stop)
    };
    let started: Result<Vec<_>, LabError> = system.routers.iter().enumerate().map(&mut start).collect();
    // After an error, this drops the unused namespaces.
    lab.set_sites(BTreeMap::new());
    let routers = started?;
    let interfaces = routers.iter().flat_map(|router| router.interfaces().to_vec()).collect();
    let (rules, classed) = (vec![Vec::new(); routers.len()], vec![BTreeSet::new(); routers.len()]);
    let (text, pipe) = (core_links::text(&system), is_pipe(&dut.params));
    let mut up = SystemDut { name: dut.name.clone(), system, core, routers, interfaces, rules, classed, text, pipe };
    wait::while_missing(READY + EACH * up.routers.len() as u32, stop, || up.lacking())?;
    Ok(Box::new(up))
}

/// `r1` for index 1, and so on.
fn label(index: usize) -> String {
    format!("r{}", index + 1)
}

impl SystemDut {
    /// Returns a message if one of its routers lacks a part of its role. It does not ask a router with a link that is
    /// down, because such a router always lacks something.
    fn lacking(&mut self) -> Result<Option<String>, LabError> {
        if let Some(link) = self.core.not_up() {
            return Ok(Some(format!("link {link} has no carrier")));
        }
        for (index, router) in self.routers.iter_mut().enumerate() {
            let down = self.core.down().iter().any(|name| name.0 == index + 1 || name.1 == index + 1);
            let Some(router) = router.member().filter(|_| !down) else { continue };
            if let Some(lacking) = router.lacking()? {
                return Ok(Some(format!("{}: {lacking}", label(index))));
            }
        }
        Ok(None)
    }

    /// Calls `act` for the routers and interfaces at these ends of links.
    fn at_ends(
        &mut self,
        ends: &[CoreEnd],
        act: impl Fn(&mut dyn SystemMember, usize) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        ends.iter().try_for_each(|end| match self.routers[end.router].member() {
            Some(router) => act(router, end.interface),
            None => Ok(()),
        })
    }

    /// Asks each router, in order; `None` if any router has no answer.
    fn each<T>(&mut self, ask: impl Fn(&mut dyn Usage) -> Option<T>) -> Option<Vec<T>> {
        self.routers.iter_mut().map(|router| ask(router.usage()?)).collect()
    }
}

impl Dut for SystemDut {
    capabilities!(usage: Usage, filters: Filters, classes: Classes, core_links: CoreLinks);

    fn interfaces(&self) -> &[TesterInterface] {
        &self.interfaces
    }

    fn record(&self) -> DutRecord {
        let mut records = self.routers.iter().map(|router| router.record());
        let Some(first) = records.next() else { return DutRecord::default() };
        let mut all = DutRecord {
            name: self.name.clone(),
            confinement: format!("{}; of each router: {}", self.text, first.confinement),
            config: BTreeMap::new(),
            ..first.clone()
        };
        for (index, record) in std::iter::once(first).chain(records).enumerate() {
            let named = record.config.into_iter().map(|(name, text)| (format!("{}/{name}", label(index)), text));
            all.config.extend(named);
        }
        all
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.routers.iter_mut().try_for_each(|router| router.check())?;
        let down = self.core.not_up().map(|link| format!("link {link} between routers"));
        down.map_or(Ok(()), |link| Err(LabError::lost_carrier(&link)))
    }

    fn forwards(&mut self) -> Result<(), LabError> {
        self.routers.iter_mut().try_for_each(|router| router.forwards())
    }

    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, LabError> {
        let mut all = Vec::new();
        for (router, dut) in self.routers.iter_mut().enumerate() {
            // If one router has no counters, the system has none.
            let Some(own) = dut.router_interfaces()? else { return Ok(None) };
            all.extend(own.into_iter().map(|interface| RouterInterface { router, ..interface }));
        }
        Ok(Some(all))
    }

    /// Returns the smallest count of all routers: all have the same routes from the tester, and each also has routes to
    /// its own links.
    fn fib_routes(&mut self, family: Family) -> Result<Option<u64>, LabError> {
        let counts: Result<Vec<_>, _> = self.routers.iter_mut().map(|router| router.fib_routes(family)).collect();
        Ok(counts?.into_iter().collect::<Option<Vec<u64>>>().and_then(|counts| counts.into_iter().min()))
    }

    fn system(&self) -> Option<&System> {
        Some(&self.system)
    }

    fn hops(&self, from: PortIndex, to: PortIndex) -> usize {
        self.system.route(from, to, self.core.down()).map_or(1, |path| path.len())
    }

    fn labels_are_pipes(&self) -> bool {
        self.pipe
    }

    fn sessions_ended(&mut self) -> Result<(), LabError> {
        self.routers.iter_mut().try_for_each(|router| router.sessions_ended())
    }

    /// Counters of a router begin with `r1.`. Counters of the tester's interfaces and of the machine belong to no
    /// router. Rules have the same numbers as on a single router.
    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut all = BTreeMap::new();
        for (index, router) in self.routers.iter_mut().enumerate() {
            let mut own = router.counters()?;
            for (rule, place) in self.rules[index].iter().enumerate() {
                if let Some(matches) = own.remove(&counter_name(rule)) {
                    *all.entry(counter_name(*place)).or_default() += matches;
                }
            }
            for (name, value) in own {
                let of_router = !name.starts_with("softnet.") && !self.interfaces.iter().any(|i| is_of(&name, &i.name));
                all.insert(if of_router { format!("{}.{name}", label(index)) } else { name }, value);
            }
        }
        Ok(all)
    }

    /// Returns the counters of the interfaces to the tester, as on a single router, and the sum of drops between
    /// routers, since a packet is dropped only once. Leaves out other counters, which would count a packet at each
    /// router that it passes.
    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        let mut all: Vec<DutCounter> = Vec::new();
        for (router, at) in self.routers.iter_mut().zip(&self.system.routers) {
            for counter in router.known_counters()? {
                let edge = counter.port.and_then(|port| at.ports.clone().nth(port));
                if edge.is_some() {
                    all.push(DutCounter { port: edge, ..counter });
                } else if counter.counts.is_drop() {
                    let name =
                        if counter.port.is_some() { format!("core.{}", counter.name) } else { counter.name.clone() };
                    let counter = DutCounter { name, port: None, ..counter };
                    match all.iter_mut().find(|known| known.is(&counter)) {
                        Some(known) => known.value += counter.value,
                        None => all.push(counter),
                    }
                }
            }
        }
        Ok(all)
    }

    /// The result lists all ports of the first router, then all ports of the next one, and so on. A frame lost between two routers is
    /// lost by the system.
    fn lost_by_tester(&mut self) -> Result<Option<Vec<u64>>, LabError> {
        let lost: Result<Vec<_>, _> = self.routers.iter_mut().map(|router| router.lost_by_tester()).collect();
        Ok(lost?.into_iter().collect::<Option<Vec<_>>>().map(|lost| lost.concat()))
    }

    fn drops_at_tester_tx_are_dut(&self) -> bool {
        true
    }

    fn take_down(mut self: Box<Self>) -> Result<(), LabError> {
        let removed = self.core.remove();
        let ended = self.routers.drain(..).map(|router| router.take_down());
        // Take down all routers, even after an error.
        let ended: Vec<_> = ended.collect();
        ended.into_iter().fold(removed, Result::and)
    }
}

impl Filters for SystemDut {
    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError> {
        for (index, router) in self.routers.iter_mut().enumerate() {
            let (own, rules) = filters_of(lists, &self.system.routers[index].ports);
            router.filters().ok_or_else(no_filters)?.set_filter(&own)?;
            self.rules[index] = rules;
        }
        Ok(())
    }
}

impl Classes for SystemDut {
    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), LabError> {
        let unusable = |what| LabError::unusable(what, "change the classes of the test in the suite");
        let of_router = |router| self.system.classes_of(router, lists).map_err(unusable);
        let own = (0..self.routers.len()).map(of_router).collect::<Result<Vec<_>, _>>()?;
        for (index, (router, own)) in self.routers.iter_mut().zip(&own).enumerate() {
            let edges = self.system.routers[index].ports.len();
            let core = own.iter().filter_map(|list| list.at.port()).filter(|interface| *interface >= edges);
            // When the classes of an interface are removed, it gets back the queue of its link.
            let before = std::mem::take(&mut self.classed[index]);
            let now: BTreeSet<usize> = core.collect();
            self.classed[index] = before.union(&now).copied().collect();
            router.classes().ok_or_else(no_classes)?.set_classes(own)?;
            before.difference(&now).try_for_each(|interface| self.core.restore_queue_at(index, *interface))?;
            self.classed[index] = now;
        }
        Ok(())
    }
}

impl CoreLinks for SystemDut {
    fn set_core_link(&mut self, link: CoreLinkName, up: bool) -> Result<(), LabError> {
        let ends = self.core.ends(link)?;
        if !up {
            self.at_ends(&ends, |router, interface| router.link_leaves(interface))?;
            return self.core.set(link, up, |_, _| {});
        }
        let SystemDut { core, routers, .. } = self;
        core.set(link, up, |end, threads| {
            if let Some(router) = routers[end.router].member() {
                router.receives_in(end.interface, threads);
            }
        })?;
        self.at_ends(&ends, |router, interface| router.link_returned(interface))?;
        wait::while_missing(READY, &|| false, || self.lacking())
    }
}

impl Usage for SystemDut {
    fn cpu_time(&mut self) -> Option<Duration> {
        Some(self.router_cpu()?.into_iter().sum())
    }

    fn router_cpu(&mut self) -> Option<Vec<Duration>> {
        self.each(|router| router.cpu_time())
    }

    fn router_memory(&mut self) -> Option<Vec<u64>> {
        Some(self.each(|router| router.router_memory())?.concat())
    }

    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        Some(self.each(|router| router.threads())?.concat())
    }

    fn memory(&mut self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for (index, router) in self.routers.iter_mut().enumerate() {
            let own = router.usage().map(|router| router.memory()).unwrap_or_default();
            all.extend(own.into_iter().map(|(name, bytes)| (format!("{}.{name}", label(index)), bytes)));
        }
        all
    }

    /// The processor that all routers share.
    fn processor(&mut self) -> Option<usize> {
        let all = self.each(|router| router.processor())?;
        all.first().copied().filter(|first| all.iter().all(|processor| processor == first))
    }
}

/// The lists of a system that apply to one router, at its own interfaces, and the place of each of the router's rules
/// among all rules.
pub fn filters_of(lists: &[FilterList], ports: &std::ops::Range<usize>) -> (Vec<FilterList>, Vec<usize>) {
    let (mut own, mut rules) = (Vec::new(), Vec::new());
    let mut first = 0;
    for list in lists {
        let all = list.interfaces.is_empty();
        let at = ports.clone().filter(|port| all || list.interfaces.contains(port)).map(|port| port - ports.start);
        let interfaces: Vec<usize> = at.collect();
        // A list without interfaces would also apply at the links to other routers.
        if !interfaces.is_empty() {
            rules.extend(first..first + list.rules.len());
            own.push(FilterList { interfaces, ..list.clone() });
        }
        first += list.rules.len();
    }
    (own, rules)
}

/// True if the counter called `name` belongs to this interface.
fn is_of(name: &str, interface: &str) -> bool {
    name.strip_prefix(interface).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{dut, first_of_mesh, three_ports, two_ports_with_bgp};
    use crate::router::{lines_of_link, route_lines};
    use crate::{find, kinds};
    use drophammer_model::filter::{FilterDirection, FilterRule};
    use drophammer_model::suite::Params;

    /// The role of the first of three fully meshed routers, each with one port.
    fn role(internal: bool) -> RouterRole {
        let mut role = first_of_mesh(&three_ports(two_ports_with_bgp(1)));
        if let Some(bgp) = role.bgp.as_mut().filter(|_| internal) {
            bgp.groups.iter_mut().for_each(|group| group.internal = true);
            bgp.core.iter_mut().for_each(|peer| peer.next_hop_self = false);
        }
        role
    }

    fn files(kind: &str, internal: bool) -> String {
        let dut = dut("m-r1", kind, Params::default());
        let files = find(kind).unwrap().configuration(&dut, &role(internal)).unwrap();
        files.into_iter().map(|(_, text)| text).collect()
    }

    fn count(text: &str, line: &str) -> usize {
        text.lines().filter(|l| *l == line).count()
    }

    #[test]
    fn routes_around_a_broken_link_are_less_preferred() {
        let lines = route_lines(&role(false));
        for line in [
            "route add 198.18.64.0/18 via 198.18.1.2 dev d0",
            "route add 198.19.64.0/18 via 100.64.0.2 dev d1",
            "route add 198.19.64.0/18 via 100.64.0.6 dev d2 metric 1",
            "route add 2001:2:0:c000::/50 via fd3c:91a7:5e2d:2::2 dev d2 metric 1025",
            "route add 100.127.255.3/32 via 100.64.0.6 dev d2",
        ] {
            assert!(lines.iter().any(|l| l == line), "{line} in {lines:#?}");
        }
        let back = lines_of_link(&role(false), 2, true);
        assert_eq!(
            back[..2],
            ["address replace 100.64.0.5/30 dev d2", "address replace fd3c:91a7:5e2d:2::1/64 dev d2 nodad"]
        );
        assert!(back.contains(&"route replace 198.19.64.0/18 via 100.64.0.6 dev d2 metric 1".to_owned()));
        assert!(back[2..].iter().all(|line| line.contains(" dev d2")));
        assert_eq!(lines_of_link(&role(false), 2, false).len(), 2, "a daemon has the routes");
        let frr = files("frr", false);
        assert_eq!(count(&frr, "ip route 198.19.64.0/18 100.64.0.2 d1"), 1);
        assert_eq!(count(&frr, "ip route 198.19.64.0/18 100.64.0.6 d2 2"), 1);
        let bird = files("bird", false);
        assert_eq!(count(&bird, "\t\tpreference 199;") + bird.matches("{ preference 199; };").count(), 2);
        let (first, second) = bird.split_at(bird.find("protocol static static_ipv4_1 {").unwrap());
        assert!(first.contains("route 198.19.64.0/18 via 100.64.0.2;"));
        assert!(second.contains("route 198.19.64.0/18 via 100.64.0.6;"));
    }

    #[test]
    fn routers_of_a_system_are_no_clients_of_each_other() {
        let frr = files("frr", true);
        assert_eq!(count(&frr, " bgp router-id 100.127.255.1"), 1);
        assert_eq!(count(&frr, " neighbor 100.127.255.3 remote-as 65000"), 1);
        assert_eq!(count(&frr, " neighbor fd3c:91a7:5e2d:ffff::2 update-source fd3c:91a7:5e2d:ffff::1"), 1);
        // Only the peers of the tester are clients, and they see the next hop of the origin.
        assert_eq!((frr.matches("route-reflector-client").count(), frr.matches("next-hop-self").count()), (2, 0));
        assert_eq!(files("frr", false).matches("next-hop-self").count(), 4);
        let bird = files("bird", true);
        assert_eq!((bird.matches("rr client;").count(), bird.matches("next hop self").count()), (2, 0));
        assert_eq!(bird.matches("protocol bgp r").count(), 4);
        assert_eq!(files("bird", false).matches("next hop self ebgp;").count(), 4);
        let openbgpd = files("openbgpd", true);
        assert_eq!((openbgpd.matches("route-reflector").count(), openbgpd.matches("set nexthop self").count()), (2, 0));
        assert_eq!(count(&files("openbgpd", false), "match to 100.127.255.3 set nexthop self"), 1);
    }

    #[test]
    fn a_list_goes_to_the_routers_with_its_ports() {
        let list = |interfaces: &[usize], n| FilterList {
            direction: FilterDirection::Ingress,
            interfaces: interfaces.to_vec(),
            rules: vec![FilterRule::DENY_ALL; n],
        };
        let lists = [list(&[0, 3], 2), list(&[2], 1), list(&[], 3)];
        let of = |ports| {
            let (own, rules) = filters_of(&lists, &ports);
            (own.into_iter().map(|list| list.interfaces).collect::<Vec<_>>(), rules)
        };
        assert_eq!(of(0..2), (vec![vec![0], vec![0, 1]], vec![0, 1, 3, 4, 5]));
        assert_eq!(of(2..4), (vec![vec![1], vec![0], vec![0, 1]], vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(of(2..2), (vec![], vec![]), "a router in the middle of a chain");
    }

    #[test]
    fn kinds_in_namespaces_alone_can_be_several() {
        let several: Vec<_> = kinds::KINDS.iter().filter(|k| k.capabilities().systems).map(|k| k.spec().name).collect();
        assert_eq!(several, ["linux", "frr", "bird", "openbgpd", "gobgp", "ovs", "uml"]);
        let refused = find("xdp").unwrap().check(&dut("m", "xdp", Params::default()), &role(false));
        assert!(refused.unwrap_err().to_string().contains("`systems`"));
    }
}
