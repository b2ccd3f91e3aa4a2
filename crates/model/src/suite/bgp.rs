//! BGP between the tester and a DUT, as a suite describes it.

use super::{Addressing, BgpProtection};
use crate::routes::{address, number};
use crate::trial::Family;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Parameters common to all ports (RFC 4271). The DUT is one AS. Each port of the tester is another AS, unless its
/// peers are internal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BgpConfig {
    /// AS number of the DUT.
    pub dut_as: u32,
    /// AS number of the peers on the first port; peers on port i have `tester_as` + i.
    pub tester_as: u32,
    /// Emulated routers on each port, at least 1.
    pub peers_per_port: u32,
    /// Emulated routers on each VLAN sub-interface of the ports.
    #[serde(default)]
    pub peers_per_vlan: u32,
    /// IP versions whose routes BGP exchanges, each over sessions of its own version; at least one.
    pub families: Vec<Family>,
    /// Hold Time that both sides propose (RFC 4271 section 4.2): 3 to 65,535 whole seconds.
    pub hold_time: Duration,
    /// Names of the ports whose peers are in the DUT's AS: clients of the DUT, their route reflector (RFC 4456).
    #[serde(default)]
    pub internal: Vec<String>,
    /// True if the DUT advertises external routes to internal peers with itself as next hop (RFC 4271 section 5.1.3).
    #[serde(default)]
    pub next_hop_self: bool,
    /// Protection of all sessions, which is not recorded.
    #[serde(skip)]
    pub protection: BgpProtection,
}

/// BGP on one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortBgp {
    /// AS number of the tester's peers on this port.
    pub asn: u32,
    /// AS number of the DUT.
    pub dut_as: u32,
    /// Emulated routers on this port: one at the host's address and one at each address that follows it.
    pub peers: u32,
    /// Emulated routers on each VLAN sub-interface of this port, counted the same way.
    #[serde(default)]
    pub vlan_peers: u32,
    /// Hold Time that both sides propose; whole seconds.
    pub hold: Duration,
    /// IP versions whose routes BGP exchanges, each over sessions of its own version.
    pub families: Vec<Family>,
    /// True if the DUT is the next hop of external routes for internal peers.
    #[serde(default)]
    pub next_hop_self: bool,
    /// Protection of the sessions, which is not recorded.
    #[serde(skip)]
    pub protection: BgpProtection,
}

impl PortBgp {
    /// True if the peers are in the DUT's AS and so its clients (RFC 4456).
    pub fn is_internal(&self) -> bool {
        self.asn == self.dut_as
    }

    /// Addresses of `peers` peers on a link with this addressing: the host's address and those that follow it.
    pub fn addresses(addressing: &Addressing, peers: u32) -> impl Iterator<Item = IpAddr> + use<> {
        let (host, first) = (addressing.host, number(addressing.host));
        let family = if host.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
        (0..peers).map(move |i| address(family, first + u128::from(i)))
    }
}
