//! Two hosts that are connected to each other, each with one router.

use drophammer_emulation::bgp::PeerConfig;
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialSpec};
use drophammer_rig::{Address, Config, PortConfig, Timing, TrialKeys, host_mac};
use std::net::Ipv4Addr;
use std::time::Duration;

pub const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
/// Longer than any step of these tests takes, however busy the machine is.
pub const LONG: Duration = Duration::from_secs(60);

/// Each host has the other as its gateway.
pub fn config() -> Config {
    let port = |i: usize| {
        let (address, gateway) = (HOSTS[i], HOSTS[i ^ 1]);
        let mut port = PortConfig::new(&format!("port {i}"), host_mac(5, i), 1_500);
        port.devices[0].ipv4 = Some(Address { address, prefix_len: 24, gateway });
        let asn = |i: usize| 65_001 + i as u32;
        let peer = PeerConfig::new(address.into(), gateway.into(), asn(i), asn(i ^ 1), address);
        port.devices[0].add_bgp([PeerConfig { passive: i == 1, ..peer }]);
        port
    };
    Config { seed: 5, ports: vec![port(0), port(1)] }
}

pub fn timing(keys: &mut TrialKeys) -> Timing {
    let (_, key, earlier) = keys.next_trial();
    // It sends all frames, however late.
    Timing { seed: 1, key, earlier, max_backlog_ns: LONG.as_nanos() as u64, late_ns: LONG.as_nanos() as u64 }
}

/// A trial with this number of frames per second in each direction.
pub fn both_ways(rate_pps: f64, duration: Duration) -> TrialSpec {
    let host = |i: usize| AddressRange { first: HOSTS[i].into(), step: 1, count: 1 };
    TrialSpec {
        purpose: "test".into(),
        size: "64".parse().unwrap(),
        flows: [(0, 1), (1, 0)].map(|(a, b)| FlowSpec::new(format!("{a}{b}"), a, b, host(a), host(b))).into(),
        load: Load::Constant { rate_pps },
        duration_s: duration.as_secs_f64(),
        bin_s: None,
        drain_s: 1.0,
        events: vec![],
    }
}
