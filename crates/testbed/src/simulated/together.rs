//! Several reference devices that share one virtual time and are not connected to each other.

use super::system::ReferenceSystem;
use super::{config, describe, record, unusable, world};
use drophammer_lab::{Dut, Filters, LabError};
use drophammer_methods::Contestant;
use drophammer_model::environment::DutRecord;
use drophammer_model::filter::FilterList;
use drophammer_model::suite::{DutConfig, PortConfig};
use drophammer_port::simulated::{SimulatedClock, SimulatedPort};
use drophammer_reference::{Faults, Network, NetworkConfig};
use drophammer_wire::MacAddr;
use std::collections::BTreeMap;

/// One of these devices.
struct Member {
    reference: ReferenceSystem,
    index: usize,
    faults: Faults,
    record: DutRecord,
}

impl Dut for Member {
    fn record(&self) -> DutRecord {
        self.record.clone()
    }

    fn check(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn forwards(&mut self) -> Result<(), LabError> {
        let faults = self.faults.clone();
        let begun = self.reference.change(|network| {
            let now = network.now();
            network.change(self.index, |router| router.set_faults(faults.from_instant(now)))
        });
        begun.map_err(|e| unusable(&self.record.name, e))
    }

    fn filters(&mut self) -> Option<&mut dyn Filters> {
        Some(self)
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = BTreeMap::new();
        let truth = self.reference.look(|network| serde_json::to_value(network.routers()[self.index].truth()));
        drophammer_lab::flatten("truth", &truth.unwrap_or_default(), &mut counters);
        Ok(counters)
    }
}

impl Filters for Member {
    fn set_filter(&mut self, lists: &[FilterList]) -> Result<(), LabError> {
        let changed =
            self.reference.change(|network| network.change(self.index, |router| router.set_filter(lists.to_vec())));
        changed.map_err(|e| LabError::Unusable {
            what: format!("{}: {e}", self.record.name),
            remedy: "this is a bug in Drophammer".into(),
        })
    }
}

/// Clock, ports and DUTs of a setup with several reference devices.
pub type BroughtUpTogether = (SimulatedClock, Vec<SimulatedPort>, Vec<Box<dyn Dut>>);

/// Creates several reference devices that share one virtual time. `contestants` lists their ports among `configs`, in
/// the order of `duts`.
///
/// # Errors
/// A device refuses its configuration, or a DUT is a system of several routers.
pub fn bring_up_together(
    duts: &[DutConfig],
    contestants: &[Contestant],
    configs: &[PortConfig],
    seed: u64,
) -> Result<BroughtUpTogether, String> {
    if let Some(dut) = duts.iter().find(|dut| dut.topology.is_some()) {
        return Err(format!("{}: a simulated DUT of several routers cannot be up together with others", dut.name));
    }
    let mut built = NetworkConfig::default();
    let mut edges = vec![(0, 0); configs.len()];
    let mut parts = Vec::new();
    for (index, (dut, one)) in duts.iter().zip(contestants).enumerate() {
        let mut own = config(dut, &configs[one.ports.clone()], seed.wrapping_add(index as u64));
        for (at, port) in own.ports.iter_mut().enumerate() {
            port.mac = MacAddr::local(0xd0_0000_0000 | (index as u64) << 16 | at as u64);
        }
        one.ports.clone().enumerate().for_each(|(at, port)| edges[port] = (index, at));
        let text = describe(&own);
        parts.push((std::mem::take(&mut own.faults), dut, text));
        built.routers.push(own);
        built.routes.push(Vec::new());
    }
    built.edges = edges;
    let reference = ReferenceSystem::new(Network::new(built).map_err(|e| e.to_string())?);
    let (clock, ports) = world(reference.clone(), configs, 1, seed);
    let member = |(index, (faults, dut, text)): (usize, (Faults, &DutConfig, String))| {
        let record = record(dut, "virtual time".into(), [("reference.txt".to_owned(), text)].into());
        Box::new(Member { reference: reference.clone(), index, faults, record }) as Box<dyn Dut>
    };
    Ok((clock, ports, parts.into_iter().enumerate().map(member).collect()))
}
