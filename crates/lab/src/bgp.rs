//! The role `bgp`: the neighbours that a DUT must know, and whether it listens for them.

use crate::router::word;
use crate::{LabError, Netns};
use drophammer_model::suite::PortConfig;
use drophammer_model::trial::Family;
use minijinja::{Value, context};
use std::net::IpAddr;

/// TCP port of BGP (RFC 4271 section 8.2.1).
const PORT: u16 = 179;

/// BGP of a DUT: what templates see as `bgp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Speaker {
    dut_as: u32,
    /// Hold Time in seconds.
    hold: u64,
    next_hop_self: bool,
    groups: Vec<Group>,
}

/// The neighbours on one port in one family: an AS, reached from one address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    /// `p0_ipv4`
    name: String,
    family: Family,
    asn: u32,
    /// In the DUT's AS: clients of the reflector that it is.
    internal: bool,
    /// The DUT's address.
    local: IpAddr,
    peers: Vec<IpAddr>,
}

impl Speaker {
    /// What the ports ask for; `None` when none has BGP.
    pub(crate) fn of(ports: &[PortConfig]) -> Option<Speaker> {
        let first = ports.iter().find_map(|p| p.bgp.as_ref())?;
        let mut groups = Vec::new();
        for (i, port) in ports.iter().enumerate() {
            let Some(bgp) = &port.bgp else { continue };
            for family in [Family::Ipv4, Family::Ipv6] {
                let peers = port.peers(family);
                let Some(addressing) = port.addressing(family).filter(|_| !peers.is_empty()) else { continue };
                let name = format!("p{i}_{}", word(family));
                let (asn, internal) = (bgp.asn, bgp.is_internal());
                groups.push(Group { name, family, asn, internal, local: addressing.dut, peers });
            }
        }
        let (dut_as, next_hop_self) = (first.dut_as, first.next_hop_self);
        Some(Speaker { dut_as, hold: first.hold.as_secs(), next_hop_self, groups })
    }

    /// What templates see: `dut_as`, `hold` and `keepalive` in seconds, `next_hop_self`, and `groups` with `name`, `family`, `asn`,
    /// `internal`, `local` and `peers`.
    pub(crate) fn context(&self) -> Value {
        let group = |g: &Group| {
            let peers: Vec<String> = g.peers.iter().map(IpAddr::to_string).collect();
            context! {
                name => &g.name, family => word(g.family), asn => g.asn, internal => g.internal,
                local => g.local.to_string(), peers,
            }
        };
        let groups: Vec<Value> = self.groups.iter().map(group).collect();
        // A third of the Hold Time (RFC 4271 section 4.4).
        context! {
            dut_as => self.dut_as, hold => self.hold, keepalive => self.hold / 3, next_hop_self => self.next_hop_self,
            groups,
        }
    }

    /// Addresses of all neighbours.
    pub(crate) fn peers(&self) -> Vec<IpAddr> {
        self.groups.iter().flat_map(|g| g.peers.iter().copied()).collect()
    }

    /// Neighbours on all ports.
    pub(crate) fn neighbours(&self) -> usize {
        self.groups.iter().map(|g| g.peers.len()).sum()
    }

    /// The DUT's own addresses.
    pub(crate) fn locals(&self) -> Vec<IpAddr> {
        self.groups.iter().map(|g| g.local).collect()
    }

    /// In words where nobody listens for BGP although there are neighbours; `None` when all is well.
    pub(crate) fn deaf(&self, netns: &Netns) -> Result<Option<String>, LabError> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
        let tables = netns.run(|| [(Family::Ipv4, read("tcp")), (Family::Ipv6, read("tcp6"))])?;
        let deaf = tables
            .iter()
            .find(|(family, table)| self.groups.iter().any(|g| g.family == *family) && !listening(table, PORT));
        Ok(deaf.map(|(family, _)| format!("nobody listens on TCP port {PORT} over {family}")))
    }
}

/// Is there a listening socket on `port` in this text of `/proc/net/tcp`?
fn listening(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let end = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|address| address.ends_with(&end));
        local && words.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::two_ports_with_bgp;

    #[test]
    fn every_port_and_family_is_a_group() {
        assert_eq!(Speaker::of(&crate::kinds::tests_support::two_ports()), None);
        let speaker = Speaker::of(&two_ports_with_bgp(3)).unwrap();
        let names: Vec<_> = speaker.groups.iter().map(|g| (g.name.as_str(), g.asn, g.peers.len())).collect();
        assert_eq!(names, [("p0_ipv4", 65001, 3), ("p0_ipv6", 65001, 3), ("p1_ipv4", 65002, 3), ("p1_ipv6", 65002, 3)]);
        assert_eq!(speaker.groups[3].peers[2].to_string(), "2001:2:0:1::4");
    }

    #[test]
    fn only_a_socket_that_listens_counts() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";
        let row = |local: &str, state: &str| format!("{head}   0: {local} 00000000:0000 {state} 00000000:00000000\n");
        assert!(listening(&row("00000000:00B3", "0A"), PORT));
        assert!(listening(&row("00000000000000000000000000000000:00B3", "0A"), PORT));
        assert!(!listening(&row("010112C6:00B3", "01"), PORT));
        assert!(!listening(&row("00000000:10B3", "0A"), PORT));
        assert!(!listening(head, PORT));
    }
}
