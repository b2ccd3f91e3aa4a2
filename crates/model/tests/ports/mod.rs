//! Ports of a suite, for the tests of several crates.

use drophammer_model::quantity::Bandwidth;
use drophammer_model::suite::{Addressing, PortConfig};
use drophammer_model::trial::AddressRange;
use std::net::IpAddr;

/// Addresses of DUT and host on a link, and 16 destinations in the prefix behind the host.
#[allow(dead_code)] // each test uses its part
pub fn addressing(dut: &str, host: &str, prefix_len: u8, behind: &str, length: u8) -> Addressing {
    let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
    let destinations = AddressRange { first: ip(behind), step: 1, count: 16 };
    Addressing { dut: ip(dut), host: ip(host), prefix_len, behind: (ip(behind), length), destinations }
}

/// Two ports with both families.
pub fn two_ports() -> Vec<PortConfig> {
    let port = |name: &str, ipv4: Addressing, ipv6: Addressing| PortConfig {
        name: name.into(),
        speed: Bandwidth(1_000_000_000),
        medium: Default::default(),
        mtu: 1500,
        ipv4: Some(ipv4),
        ipv6: Some(ipv6),
        bgp: None,
        vlans: Vec::new(),
        labels: Vec::new(),
        pushed: Vec::new(),
        core: Vec::new(),
        customers: 0,
        customer_bfd: false,
        customer_ipv6: true,
        sites_of: None,
    };
    vec![
        port(
            "p1",
            addressing("198.18.1.1", "198.18.1.2", 24, "198.18.64.0", 18),
            addressing("2001:2::1", "2001:2::2", 64, "2001:2:0:8000::", 50),
        ),
        port(
            "p2",
            addressing("198.19.1.1", "198.19.1.2", 24, "198.19.64.0", 18),
            addressing("2001:2:0:1::1", "2001:2:0:1::2", 64, "2001:2:0:c000::", 50),
        ),
    ]
}
