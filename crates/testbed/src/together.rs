//! Several DUTs that are up at the same time, as one device with all their ports.
//!
//! # Several DUTs at the same time
//!
//! A test whose `Method::is_joint` is true (`head_to_head`) runs once per round for all DUTs (`Method::run_together`,
//! with one outcome for each). `runner/joint.rs` brings up all of them, each at its own ports (`Lab::begin_at_port`),
//! with one rig for all ports. `together.rs` is the `Dut` that combines them; it distributes filters by port. Each DUT
//! learns its table from its own ports (`methods/src/forwarding/head_to_head/burdens.rs`). `bench/joint.rs` splits each
//! trial into one record per DUT, as if the DUT had been alone, and also splits the tester's part of the processor
//! time. Such a trial is valid whatever the host does. `judge::statistics::ratio_of_rounds` compares DUTs by pairs of
//! trials. In virtual time the DUTs are unconnected routers of one `reference::Network`.

use drophammer_lab::{Dut, Filters, LabError, TesterInterface, ThreadTimes, Usage, no_filters};
use drophammer_methods::Contestant;
use drophammer_model::capabilities::Capabilities;
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::suite::PortConfig;
use drophammer_model::trial::PortIndex;
use std::collections::BTreeMap;
use std::time::Duration;

/// The DUTs, in the order of the suite.
pub(crate) struct Together {
    parts: Vec<(Contestant, Box<dyn Dut>)>,
    /// The tester's interfaces in the order of the ports.
    interfaces: Vec<TesterInterface>,
}

impl Together {
    /// Combines the DUTs. The ports of each DUT follow the ports of the previous DUT without a gap.
    pub(crate) fn new(parts: Vec<(Contestant, Box<dyn Dut>)>) -> Together {
        let mut by_port: Vec<_> = parts.iter().collect();
        by_port.sort_by_key(|(contestant, _)| contestant.ports.start);
        let interfaces = by_port
            .into_iter()
            .flat_map(|(contestant, device)| device.interfaces().iter().take(contestant.ports.len()).cloned())
            .collect();
        Together { parts, interfaces }
    }

    /// Returns the DUTs and their ports.
    pub(crate) fn contestants(&self) -> Vec<Contestant> {
        self.parts.iter().map(|(contestant, _)| contestant.clone()).collect()
    }

    /// Returns the record of the DUT with this name.
    pub(crate) fn record_of(&self, name: &str) -> DutRecord {
        let found = self.parts.iter().find(|(contestant, _)| contestant.name == name);
        found.map(|(_, device)| device.record()).unwrap_or_default()
    }

    /// Returns the names of the DUTs that are no longer alive.
    pub(crate) fn dead(&mut self) -> Vec<String> {
        let is_dead = |e: LabError| !matches!(e, LabError::OwnInterface(_));
        let dead = self.parts.iter_mut().filter_map(|(one, device)| {
            let dead = device.check().is_err_and(is_dead);
            dead.then(|| one.name.clone())
        });
        dead.collect()
    }

    /// Returns the DUTs themselves, so that they can be taken down.
    pub(crate) fn into_parts(self) -> impl Iterator<Item = (String, Box<dyn Dut>)> {
        self.parts.into_iter().map(|(contestant, device)| (contestant.name, device))
    }

    /// Asks each DUT. Returns `None` if one of them has no answer.
    fn each<T>(&mut self, ask: impl Fn(&mut dyn Usage) -> Option<T>) -> Option<Vec<T>> {
        self.parts.iter_mut().map(|(_, device)| ask(device.usage()?)).collect()
    }
}

/// Adds the name of the DUT to an error.
fn named(name: &str, e: LabError) -> LabError {
    match e {
        LabError::Unusable { what, remedy } => LabError::Unusable { what: format!("{name}: {what}"), remedy },
        e => e,
    }
}

/// Name of a counter of DUT `part`.
fn counter(part: usize, name: &str) -> String {
    format!("{part}:{name}")
}

/// Returns the counters of DUT `part` among all counters of [`Together`], under the names that they have when the DUT is alone.
pub(crate) fn counters_of(all: &BTreeMap<String, u64>, part: usize) -> BTreeMap<String, u64> {
    let prefix = counter(part, "");
    let own = all.iter().filter_map(|(name, value)| Some((name.strip_prefix(&prefix)?.to_owned(), *value)));
    own.collect()
}

/// Returns the filter lists at the ports of one DUT, as if it were alone.
pub(crate) fn lists_of(lists: &[FilterList], one: &Contestant) -> Vec<FilterList> {
    let own = lists.iter().filter_map(|list| {
        let ports = list.interfaces.iter().filter(|port| one.ports.contains(port));
        let interfaces: Vec<usize> = ports.map(|port| port - one.ports.start).collect();
        (!interfaces.is_empty()).then(|| FilterList { interfaces, ..list.clone() })
    });
    own.collect()
}

impl Dut for Together {
    fn interfaces(&self) -> &[TesterInterface] {
        &self.interfaces
    }

    fn record(&self) -> DutRecord {
        let names: Vec<&str> = self.parts.iter().map(|(contestant, _)| contestant.name.as_str()).collect();
        DutRecord { name: names.join(", "), ..DutRecord::default() }
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.parts.iter_mut().try_for_each(|(one, device)| device.check().map_err(|e| named(&one.name, e)))
    }

    fn forwards(&mut self) -> Result<(), LabError> {
        self.parts.iter_mut().try_for_each(|(one, device)| device.forwards().map_err(|e| named(&one.name, e)))
    }

    fn usage(&mut self) -> Option<&mut dyn Usage> {
        Some(self)
    }

    fn filters(&mut self) -> Option<&mut dyn Filters> {
        Some(self)
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut all = BTreeMap::new();
        for (part, (_, device)) in self.parts.iter_mut().enumerate() {
            // If the DUT were alone, it would be at the first ports of the tester.
            let ends: Vec<String> = device.interfaces().iter().map(|end| end.name.clone()).collect();
            for (name, value) in device.counters()? {
                let own = ends.iter().zip(0..).find_map(|(end, port)| {
                    let rest = name.strip_prefix(end.as_str())?.strip_prefix('.')?;
                    Some(format!("t{port}.{rest}"))
                });
                all.insert(counter(part, &own.unwrap_or(name)), value);
            }
        }
        Ok(all)
    }

    fn counters_begin_at_zero(&self) -> bool {
        self.parts.iter().all(|(_, device)| device.counters_begin_at_zero())
    }

    fn lost_by_tester(&mut self) -> Result<Option<Vec<u64>>, LabError> {
        let mut all = vec![0; self.parts.iter().map(|(one, _)| one.ports.len()).sum()];
        for (one, device) in &mut self.parts {
            let lost = device.lost_by_tester()?.unwrap_or_default();
            one.ports.clone().zip(lost).for_each(|(port, lost)| all[port] = lost);
        }
        Ok(Some(all))
    }

    fn drops_at_tester_tx_are_dut(&self) -> bool {
        self.parts.iter().all(|(_, device)| device.drops_at_tester_tx_are_dut())
    }

    fn hops(&self, from: PortIndex, to: PortIndex) -> usize {
        let at = self.parts.iter().find(|(one, _)| one.ports.contains(&from));
        at.map_or(1, |(one, device)| device.hops(from - one.ports.start, to.saturating_sub(one.ports.start)))
    }

    fn take_down(self: Box<Self>) -> Result<(), LabError> {
        // Takes down all of them, even if one cannot be taken down.
        let results: Vec<_> =
            self.parts.into_iter().map(|(one, device)| device.take_down().map_err(|e| named(&one.name, e))).collect();
        results.into_iter().collect()
    }
}

impl Filters for Together {
    /// Each DUT gets the lists of its own ports.
    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError> {
        self.parts.iter_mut().try_for_each(|(one, device)| {
            let set = device.filters().ok_or_else(no_filters).and_then(|own| own.set_filter(&lists_of(lists, one)));
            set.map_err(|e| named(&one.name, e))
        })
    }
}

impl Usage for Together {
    fn cpu_time(&mut self) -> Option<Duration> {
        Some(self.router_cpu()?.into_iter().sum())
    }

    /// Returns the processor time of each DUT, in the order of the suite.
    fn router_cpu(&mut self) -> Option<Vec<Duration>> {
        self.each(|device| device.cpu_time())
    }

    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        Some(self.each(|device| device.threads())?.concat())
    }

    fn processor(&mut self) -> Option<usize> {
        let all = self.each(|device| device.processor())?;
        all.first().copied().filter(|first| all.iter().all(|processor| processor == first))
    }
}

/// Returns the tester's ports that face `names`, in this order. Each name has its own set of the suite's ports. Each
/// DUT has an even number of ports, because ports work in pairs.
pub(crate) fn ports(configs: &[PortConfig], names: &[&str]) -> (Vec<PortConfig>, Vec<Contestant>) {
    let each = configs.len() / 2 * 2;
    let mut ports = Vec::new();
    let mut contestants = Vec::new();
    for name in names {
        contestants.push(Contestant { name: (*name).to_owned(), ports: ports.len()..ports.len() + each });
        let own =
            // No test of several DUTs at the same time has labels or VPNs.
            configs[..each].iter().map(|port| PortConfig { name: format!("{name}:{}", port.name), ..port.in_front_of(&Capabilities::ROUTER) });
        ports.extend(own);
    }
    (ports, contestants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::NoDut;

    struct Fixed(Vec<TesterInterface>, Duration);

    impl Dut for Fixed {
        fn interfaces(&self) -> &[TesterInterface] {
            &self.0
        }

        fn record(&self) -> DutRecord {
            DutRecord::default()
        }

        fn check(&mut self) -> Result<(), LabError> {
            Ok(())
        }

        fn usage(&mut self) -> Option<&mut dyn Usage> {
            Some(self)
        }

        fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
            let names = [format!("{}.rx_packets", self.0[0].name), "d0.rx_packets".to_owned()];
            Ok(names.map(|name| (name, self.1.as_secs())).into())
        }

        fn lost_by_tester(&mut self) -> Result<Option<Vec<u64>>, LabError> {
            Ok(Some(vec![self.1.as_secs(); 2]))
        }
    }

    impl Usage for Fixed {
        fn cpu_time(&mut self) -> Option<Duration> {
            Some(self.1)
        }
    }

    fn fixed(first: usize, seconds: u64) -> Box<dyn Dut> {
        let interface =
            |i| TesterInterface { name: format!("t{i}"), netns: drophammer_lab::Where::Tester, dut_mac: None };
        Box::new(Fixed((first..first + 2).map(interface).collect(), Duration::from_secs(seconds)))
    }

    fn contestant(name: &str, first: usize) -> Contestant {
        Contestant { name: name.into(), ports: first..first + 2 }
    }

    #[test]
    fn what_each_says_keeps_its_place() {
        // The second DUT of the suite was brought up first.
        let mut all = Together::new(vec![(contestant("a", 2), fixed(2, 7)), (contestant("b", 0), fixed(0, 5))]);
        let names: Vec<_> = all.interfaces().iter().map(|end| end.name.as_str()).collect();
        assert_eq!(names, ["t0", "t1", "t2", "t3"]);
        assert_eq!(all.router_cpu(), Some(vec![Duration::from_secs(7), Duration::from_secs(5)]));
        assert_eq!(all.lost_by_tester().unwrap(), Some(vec![5, 5, 7, 7]));
        let counters = all.counters().unwrap();
        for (part, value) in [(0, 7), (1, 5)] {
            let own = [("t0.rx_packets".to_owned(), value), ("d0.rx_packets".to_owned(), value)].into();
            assert_eq!(counters_of(&counters, part), own);
        }
    }

    /// Every check has this error.
    struct Broken(fn() -> LabError);

    impl Dut for Broken {
        fn record(&self) -> DutRecord {
            DutRecord::default()
        }

        fn check(&mut self) -> Result<(), LabError> {
            Err((self.0)())
        }
    }

    #[test]
    fn only_the_duts_that_died_are_dead() {
        let died = || LabError::Unusable { what: "it ended by itself".into(), remedy: "see its log".into() };
        let mut all = Together::new(vec![
            (contestant("alive", 0), fixed(0, 1)),
            (contestant("dead", 2), Box::new(Broken(died))),
            (contestant("unplugged", 4), Box::new(Broken(|| LabError::OwnInterface("t4".into())))),
        ]);
        assert_eq!(all.dead(), ["dead"]);
    }

    #[test]
    fn nothing_is_known_of_all_if_it_is_not_known_of_one() {
        let mut all = Together::new(vec![(contestant("a", 0), fixed(0, 7)), (contestant("b", 2), Box::new(NoDut))]);
        assert_eq!((all.cpu_time(), all.router_cpu(), all.processor()), (None, None, None));
    }
}
