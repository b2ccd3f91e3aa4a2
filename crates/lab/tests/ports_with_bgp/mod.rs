//! Ports with BGP, for unit tests and for the tests of the lab.

use drophammer_model::suite::{PortBgp, PortConfig};
use drophammer_model::trial::Family;
use std::time::Duration;

/// Gives each port BGP with `peers` neighbours in each family.
pub(crate) fn with_bgp(mut ports: Vec<PortConfig>, peers: u32) -> Vec<PortConfig> {
    for (port, asn) in ports.iter_mut().zip(65001..) {
        port.bgp = Some(PortBgp {
            asn,
            dut_as: 65000,
            peers,
            vlan_peers: 0,
            hold: Duration::from_secs(90),
            families: vec![Family::Ipv4, Family::Ipv6],
            next_hop_self: false,
            routes: Default::default(),
            protection: Default::default(),
        });
    }
    ports
}
