//! A DUT that is several routers of one kind, each in a namespace of its own.

mod links;

use crate::packet_filter::counter_name;
use crate::probe::ThreadTimes;
use crate::snmp::SNMP;
use crate::wait::{self, Look};
use crate::{Dut, DutKind, Lab, LabError, TesterInterface, configuration};
use drophammer_model::classes::EgressClasses;
use drophammer_model::counters::{Counts, DutCounter};
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::suite::DutConfig;
use drophammer_model::topology::{CoreLinkName, System};
use drophammer_model::trial::{Family, PortIndex};
use links::{CoreLinks, router_name};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Time in which the routers of a system must have found each other: what each of them takes comes on top.
const READY: Duration = Duration::from_secs(30);
/// And so much longer for each router.
const EACH: Duration = Duration::from_secs(1);

/// Routers in namespaces, and the links between them.
struct SystemDut {
    name: String,
    system: System,
    core: CoreLinks,
    /// The routers, in order.
    routers: Vec<Box<dyn Dut>>,
    /// The tester's interfaces of all of them.
    interfaces: Vec<TesterInterface>,
    /// For each router: the place among the rules of all filters that each of its own rules has.
    rules: Vec<Vec<usize>>,
    /// What is said of the system.
    text: String,
}

/// Can routers of this kind play these roles? Asks everything that needs no lab.
///
/// # Errors
/// Those of [`DutKind::check`]; [`LabError::Unusable`] for a configuration of the user's, which would be the same for all, and for an SNMP
/// agent.
pub fn check(kind: &dyn DutKind, dut: &DutConfig, system: &System) -> Result<(), LabError> {
    let unusable = |what: &str, remedy: &str| {
        let (what, remedy) = (format!("`{}` is several routers and has {what}", dut.name), remedy.into());
        LabError::Unusable { what, remedy }
    };
    if configuration::is_own(dut) {
        return Err(unusable("a configuration of yours", "leave `config` and `template` out, or `topology`"));
    }
    if SNMP.find(&dut.params) == Some(true) {
        return Err(unusable("`snmp: true`", "leave `snmp` out: there is no single agent to ask"));
    }
    system.routers.iter().enumerate().try_for_each(|(i, router)| kind.check(&member(dut, i), &router.role))
}

/// Router `index` as a DUT by itself.
fn member(dut: &DutConfig, index: usize) -> DutConfig {
    DutConfig { name: router_name(dut, index), topology: None, ..dut.clone() }
}

/// Brings a system up: links first, then router by router. Returns when each router is ready and has its sessions with all others. Each
/// has a folder of its own in `work_dir`: `r1`.
///
/// # Errors
/// Those of [`check`] before anything is started, and those of [`DutKind::bring_up`].
pub fn bring_up(
    kind: &dyn DutKind,
    lab: &mut Lab,
    dut: &DutConfig,
    system: System,
    work_dir: &Path,
    stop: &dyn Fn() -> bool,
) -> Result<Box<dyn Dut>, LabError> {
    check(kind, dut, &system)?;
    let core = CoreLinks::make(lab, dut, &system)?;
    let started = start(kind, lab, dut, &system, work_dir, stop);
    // What has not been started because of an error has no use.
    lab.set_sites(BTreeMap::new());
    let routers = started?;
    let interfaces = routers.iter().flat_map(|router| router.interfaces().to_vec()).collect();
    let rules = vec![Vec::new(); routers.len()];
    let text = links::text(&system);
    let mut up = SystemDut { name: dut.name.clone(), system, core, routers, interfaces, rules, text };
    wait::until(READY + EACH * up.routers.len() as u32, stop, || {
        Ok(up.lacking()?.map_or(Look::Ready(()), Look::NotYet))
    })?;
    Ok(Box::new(up))
}

fn start(
    kind: &dyn DutKind,
    lab: &mut Lab,
    dut: &DutConfig,
    system: &System,
    work_dir: &Path,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Box<dyn Dut>>, LabError> {
    let mut routers = Vec::new();
    for (index, router) in system.routers.iter().enumerate() {
        let folder = work_dir.join(label(index));
        fs::create_dir_all(&folder).map_err(LabError::file("create", &folder))?;
        routers.push(kind.bring_up(lab, &member(dut, index), &router.role, &folder, stop)?);
    }
    Ok(routers)
}

/// `r1`
fn label(index: usize) -> String {
    format!("r{}", index + 1)
}

/// The lists that one router has of those of the system, at interfaces of its own, and the place of each of its rules among all.
pub fn filters_of(lists: &[FilterList], ports: &std::ops::Range<usize>) -> (Vec<FilterList>, Vec<usize>) {
    let (mut own, mut rules) = (Vec::new(), Vec::new());
    let mut first = 0;
    for list in lists {
        let all = list.interfaces.is_empty();
        let at = ports.clone().filter(|port| all || list.interfaces.contains(port)).map(|port| port - ports.start);
        let interfaces: Vec<usize> = at.collect();
        // A list without interfaces would be at those to other routers too.
        if !interfaces.is_empty() {
            rules.extend(first..first + list.rules.len());
            own.push(FilterList { interfaces, ..list.clone() });
        }
        first += list.rules.len();
    }
    (own, rules)
}

impl SystemDut {
    /// All answers added up; `None` where one has none.
    fn sum<T>(&mut self, mut ask: impl FnMut(&mut dyn Dut) -> Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
        let answers: Option<Vec<T>> = self.routers.iter_mut().map(|router| ask(router.as_mut())).collect();
        answers?.into_iter().reduce(add)
    }
}

impl Dut for SystemDut {
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
        match self.core.not_up() {
            None => Ok(()),
            Some(link) => Err(LabError::Unusable {
                what: format!("link {link} between routers of the DUT lost its carrier"),
                remedy: "see the logs of the DUT in the folder of the run".into(),
            }),
        }
    }

    fn cpu_time(&mut self) -> Option<Duration> {
        self.sum(|router| router.cpu_time(), |a, b| a + b)
    }

    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        self.sum(|router| router.threads(), |a, b| [a, b].concat())
    }

    fn memory(&mut self) -> Vec<(String, u64)> {
        let of = |(index, router): (usize, &mut Box<dyn Dut>)| {
            let named =
                router.memory().into_iter().map(move |(name, bytes)| (format!("{}.{name}", label(index)), bytes));
            named.collect::<Vec<_>>()
        };
        self.routers.iter_mut().enumerate().flat_map(of).collect()
    }

    /// The fewest that a router has: all have the same routes to what the tester advertises, and each has links of its own.
    fn fib_routes(&mut self, family: Family) -> Result<Option<u64>, LabError> {
        let counts: Result<Vec<_>, _> = self.routers.iter_mut().map(|router| router.fib_routes(family)).collect();
        Ok(counts?.into_iter().collect::<Option<Vec<u64>>>().and_then(|counts| counts.into_iter().min()))
    }

    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError> {
        for (index, router) in self.routers.iter_mut().enumerate() {
            let (own, rules) = filters_of(lists, &self.system.routers[index].ports);
            router.set_filter(&own)?;
            self.rules[index] = rules;
        }
        Ok(())
    }

    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), LabError> {
        for (router, at) in self.routers.iter_mut().zip(&self.system.routers) {
            let own = lists.iter().filter(|list| at.ports.contains(&list.port));
            let own: Vec<_> =
                own.map(|list| EgressClasses { port: list.port - at.ports.start, ..list.clone() }).collect();
            router.set_classes(&own)?;
        }
        Ok(())
    }

    fn core_links(&self) -> &[CoreLinkName] {
        self.core.names()
    }

    fn set_core_link(&mut self, link: CoreLinkName, up: bool) -> Result<(), LabError> {
        let ends = self.core.ends(link)?;
        self.core.set(link, up)?;
        if !up {
            return Ok(());
        }
        ends.iter().try_for_each(|end| self.routers[end.router].link_returned(end.interface))?;
        wait::until(READY, &|| false, || Ok(self.lacking()?.map_or(Look::Ready(()), Look::NotYet)))
    }

    fn hops(&self, from: PortIndex, to: PortIndex) -> usize {
        self.system.route(from, to, self.core.down()).map_or(1, |path| path.len())
    }

    /// What waits for a link that is down is not missing.
    fn lacking(&mut self) -> Result<Option<String>, LabError> {
        if let Some(link) = self.core.not_up() {
            return Ok(Some(format!("link {link} has no carrier")));
        }
        for (index, router) in self.routers.iter_mut().enumerate() {
            let down = self.core.down().iter().any(|name| name.0 == index + 1 || name.1 == index + 1);
            if let Some(lacking) = if down { None } else { router.lacking()? } {
                return Ok(Some(format!("{}: {lacking}", label(index))));
            }
        }
        Ok(None)
    }

    fn sessions_ended(&mut self) -> Result<(), LabError> {
        self.routers.iter_mut().try_for_each(|router| router.sessions_ended())
    }

    /// All of them work on the same one.
    fn processor(&self) -> Option<usize> {
        let mut processors = self.routers.iter().map(|router| router.processor());
        let first = processors.next()??;
        processors.all(|processor| processor == Some(first)).then_some(first)
    }

    /// Those of a router begin with `r1.`. The tester's interfaces and the machine are no router's, and rules count as those of one router would.
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

    /// Counters of the interfaces to the tester, as one router would have them, and what is dropped between them: added up, for a packet is
    /// dropped once. Other counters of a whole router would count a packet at each router that it passes.
    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        let mut all: Vec<DutCounter> = Vec::new();
        for (router, at) in self.routers.iter_mut().zip(&self.system.routers) {
            for counter in router.known_counters()? {
                let edge = counter.port.and_then(|port| at.ports.clone().nth(port));
                if edge.is_some() {
                    all.push(DutCounter { port: edge, ..counter });
                } else if is_of_drops(counter.counts) {
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

    /// What is lost between two routers is lost by the system.
    fn lost_by_tester(&mut self) -> Result<Option<u64>, LabError> {
        let lost: Result<Vec<_>, _> = self.routers.iter_mut().map(|router| router.lost_by_tester()).collect();
        Ok(lost?.into_iter().collect::<Option<Vec<u64>>>().map(|lost| lost.iter().sum()))
    }

    fn drops_at_tester_tx_are_dut(&self) -> bool {
        true
    }

    fn take_down(mut self: Box<Self>) -> Result<(), LabError> {
        let removed = self.core.remove();
        let ended = self.routers.drain(..).map(|router| router.take_down());
        // All of them, whatever one of them says.
        let ended: Vec<_> = ended.collect();
        ended.into_iter().fold(removed, Result::and)
    }
}

/// Does it count what is dropped?
pub fn is_of_drops(counts: Counts) -> bool {
    use Counts::{InDiscards, InErrors, IpDiscards, IpHeaderErrors, OutDiscards, OutErrors};
    matches!(counts, InDiscards | InErrors | OutDiscards | OutErrors | IpHeaderErrors(_) | IpDiscards(_))
}

/// Is the counter called `name` of this interface?
fn is_of(name: &str, interface: &str) -> bool {
    name.strip_prefix(interface).is_some_and(|rest| rest.starts_with('.'))
}
