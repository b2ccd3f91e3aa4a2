//! What a bench asks of a router in a namespace.

use super::{Dut, NamespaceDut, TesterInterface};
use crate::probe::ThreadTimes;
use crate::snmp::SnmpQuestions;
use crate::{LabError, packet_filter, probe};
use drophammer_model::classes::EgressClasses;
use drophammer_model::counters::DutCounter;
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::trial::Family;
use std::collections::BTreeMap;
use std::time::Duration;

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

    fn cpu_time(&mut self) -> Option<Duration> {
        let forwarding = self.topology.cpu_time()?;
        self.daemons.iter().try_fold(forwarding, |sum, d| {
            let children = probe::family_tree(d.pid()).into_iter().skip(1);
            Some(sum + probe::process_time(d.pid())? + children.filter_map(probe::process_time).sum())
        })
    }

    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        let mut threads = self.topology.threads()?;
        for daemon in &self.daemons {
            threads.extend(probe::process_threads(daemon.pid())?);
            let children = probe::family_tree(daemon.pid()).into_iter().skip(1);
            threads.extend(children.filter_map(probe::process_threads).flatten());
        }
        Some(threads)
    }

    fn memory(&mut self) -> Vec<(String, u64)> {
        self.each_process(probe::resident)
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
        Ok(())
    }

    fn processor(&self) -> Option<usize> {
        self.topology.processor()
    }

    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError> {
        packet_filter::set(self.netns(), &self.role, lists, self.filters)?;
        let rules: usize = lists.iter().map(|list| list.rules.len()).sum();
        self.counted = (1..=packet_filter::MOST_COUNTED).contains(&rules);
        Ok(())
    }

    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), LabError> {
        self.classes.set(self.topology.netns(), &self.role, lists)
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = self.topology.counters()?;
        if self.counted {
            packet_filter::counters(self.netns(), &mut counters)?;
        }
        self.classes.counters(self.netns(), &mut counters)?;
        Ok(counters)
    }

    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        let mut all = DutCounter::all_of("kernel", &self.counters()?);
        let own = probe::interface_counter(self.netns(), "lo", "rx_packets")?;
        all.extend(DutCounter::of_device("kernel", "lo.rx_packets", own));
        if let Some(agent) = &self.agent {
            all.extend(agent.counters(self.netns())?);
        }
        Ok(all)
    }

    fn ask_snmp(&mut self, interval: Duration) -> Result<Option<SnmpQuestions>, LabError> {
        self.agent.as_ref().map(|agent| agent.ask(interval)).transpose()
    }

    fn lost_by_tester(&mut self) -> Result<Option<u64>, LabError> {
        self.topology.lost_by_tester().map(Some)
    }

    fn drops_at_tester_tx_are_dut(&self) -> bool {
        true
    }

    fn take_down(mut self: Box<Self>) -> Result<(), LabError> {
        // In the reverse order of their start: who was first is the one that others need.
        while let Some(daemon) = self.daemons.pop() {
            daemon.stop();
        }
        self.topology.take_down()
    }
}
