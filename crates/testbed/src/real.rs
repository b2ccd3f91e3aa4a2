//! Beds on real interfaces: a DUT of the lab, or the loop without DUT.

use crate::bed::Device;
use drophammer_lab::{Dut, Lab, TesterInterface, Where};
use drophammer_model::environment::PortRecord;
use drophammer_model::suite::PortConfig;
use drophammer_port::{Backend, Port, SystemClock};
use drophammer_wire::MacAddr;
use std::collections::BTreeMap;
use std::time::Duration;

/// A DUT of the lab on a bed.
pub struct LabDevice<'a>(pub &'a mut dyn Dut);

impl Device for LabDevice<'_> {
    fn check(&mut self) -> Result<(), String> {
        self.0.check().map_err(|e| e.to_string())
    }

    fn cpu_time(&mut self) -> Option<Duration> {
        self.0.cpu_time()
    }

    fn lost_by_tester(&mut self) -> Option<u64> {
        self.0.lost_by_tester().ok().flatten()
    }

    fn counters(&mut self) -> BTreeMap<String, u64> {
        self.0.counters().unwrap_or_default()
    }
}

/// Opens the tester's interfaces as ports of `backend`.
///
/// # Errors
/// An interface that cannot be opened, with the remedy.
pub fn open(
    lab: &Lab,
    interfaces: &[TesterInterface],
    backend: &Backend,
    clock: SystemClock,
) -> Result<Vec<Box<dyn Port>>, String> {
    interfaces
        .iter()
        .map(|interface| {
            let port = match interface.netns {
                Where::Tester => (backend.open)(&interface.name, clock),
                Where::Host => {
                    lab.in_host_netns(|| (backend.open)(&interface.name, clock)).map_err(|e| e.to_string())?
                }
            };
            Ok(port.map_err(|e| e.to_string())? as Box<dyn Port>)
        })
        .collect()
}

/// What the run records of the ports.
pub fn port_records(configs: &[PortConfig], ports: &[Box<dyn Port>], macs: &[MacAddr]) -> Vec<PortRecord> {
    configs
        .iter()
        .zip(ports)
        .zip(macs)
        .map(|((config, port), mac)| {
            let info = port.info();
            let addresses = [&config.ipv4, &config.ipv6].into_iter().flatten();
            PortRecord {
                name: config.name.clone(),
                interface: info.interface.clone(),
                backend: info.backend.into(),
                driver: info.driver.clone(),
                mtu: info.mtu,
                speed_bps: config.speed.0,
                mac: mac.to_string(),
                addresses: addresses.map(|a| format!("{} -> {}", a.host, a.dut)).collect(),
            }
        })
        .collect()
}
