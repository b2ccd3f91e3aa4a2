//! BGP settings of a router role: variables for configuration templates, and a check that the DUT listens for its
//! peers.

use crate::router::word;
use crate::{LabError, Netns};
use drophammer_model::role::{BgpRole, CorePeer, PeerGroup};
use drophammer_model::suite::Secret;
use drophammer_model::trial::Family;
use minijinja::{Value, context};
use std::fs;
use std::net::IpAddr;

/// TCP port of BGP (RFC 4271 section 8.2.1).
const PORT: u16 = 179;

/// Name of a peer group in configurations: `p0_ipv4`, or `p0v3_ipv4` on the fourth sub-interface.
fn name(group: &PeerGroup) -> String {
    let vlan = group.at.vlan.map_or(String::new(), |i| format!("v{i}"));
    format!("p{}{vlan}_{}", group.at.port, word(group.family))
}

/// Name in configurations of the session with another router of the system: `r2_ipv4`.
pub(crate) fn core_name(peer: &CorePeer) -> String {
    format!("r{}_{}", peer.number, word(peer.family))
}

/// Returns a message if the session with another router of the system is not up. `state` is the session state that the
/// daemon reports.
pub(crate) fn session_down(peer: &CorePeer, state: Option<&str>) -> Option<String> {
    let state = state.map(str::trim).unwrap_or_default();
    let (number, family) = (peer.number, word(peer.family));
    let said = if state.is_empty() { "unknown" } else { state };
    (state != "Established").then(|| format!("the {family} session with r{number} is not up: {said}"))
}

/// Extracts the session state from the output of FRR or OpenBGPD about a neighbour.
pub(crate) fn state_in(told: &str) -> Option<&str> {
    told.lines().find_map(|line| line.trim().strip_prefix("BGP state = "))?.split(',').next()
}

/// The variable `bgp` of templates: `dut_as`, `hold` and `keepalive` in seconds, `next_hop_self`, `routes` (a word of
/// [`RouteKind`](drophammer_model::routes::RouteKind)), `md5` (the key, or none), `gtsm`, `groups` with `name`, `family`, `asn`, `internal`, `local` and `peers`, and `core` with `name`,
/// `family`, `local`, `peer` and `next_hop_self`.
pub(crate) fn context(bgp: &BgpRole) -> Value {
    let group = |g: &PeerGroup| {
        let peers: Vec<String> = g.peers.iter().map(IpAddr::to_string).collect();
        context! {
            name => name(g), family => word(g.family), asn => g.asn, internal => g.internal,
            local => g.local.to_string(), peers,
        }
    };
    let groups: Vec<Value> = bgp.groups.iter().map(group).collect();
    let core = bgp.core.iter().map(|peer| {
        context! {
            name => core_name(peer), family => word(peer.family), local => peer.local.to_string(),
            peer => peer.peer.to_string(), next_hop_self => peer.next_hop_self,
        }
    });
    let core: Vec<Value> = core.collect();
    let hold = bgp.hold.as_secs();
    // A third of the Hold Time (RFC 4271 section 4.4).
    let md5 = bgp.protection.md5.as_ref().map(Secret::expose);
    let (next_hop_self, gtsm) = (bgp.next_hop_self, bgp.protection.gtsm);
    let routes = bgp.routes.word();
    context! { dut_as => bgp.asn, hold, keepalive => hold / 3, next_hop_self, routes, md5, gtsm, groups, core }
}

/// Number of peers on all interfaces.
pub(crate) fn neighbours(bgp: &BgpRole) -> usize {
    bgp.groups.iter().map(|g| g.peers.len()).sum()
}

/// The DUT's own addresses.
pub(crate) fn locals(bgp: &BgpRole) -> Vec<IpAddr> {
    bgp.groups.iter().map(|g| g.local).chain(bgp.core.iter().map(|peer| peer.local)).collect()
}

/// Returns a message if there are peers but no process in `netns` listens for BGP.
pub(crate) fn deaf(netns: &Netns, bgp: &BgpRole) -> Result<Option<String>, LabError> {
    netns.run(|| deaf_here(bgp))
}

/// Like [`deaf`], but in the network namespace of the calling thread.
pub(crate) fn deaf_here(bgp: &BgpRole) -> Option<String> {
    let table = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let spoken = |family| bgp.groups.iter().any(|g| g.family == family) || bgp.core.iter().any(|p| p.family == family);
    let deaf = [(Family::Ipv4, "tcp"), (Family::Ipv6, "tcp6")]
        .into_iter()
        .find(|(family, name)| spoken(*family) && !listening(&table(name), PORT));
    deaf.map(|(family, _)| format!("no process listens on TCP port {PORT} over {family}"))
}

/// True if this text of `/proc/net/tcp` contains a listening socket on `port`.
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
    use drophammer_model::role::{Place, RouterRole};

    #[test]
    fn every_port_and_family_is_a_group() {
        assert_eq!(RouterRole::of(&crate::kinds::tests_support::two_ports()).bgp, None);
        let mut bgp = RouterRole::of(&two_ports_with_bgp(3)).bgp.unwrap();
        let names: Vec<_> = bgp.groups.iter().map(|g| (name(g), g.asn, g.peers.len())).collect();
        let expected = [("p0_ipv4", 65001, 3), ("p0_ipv6", 65001, 3), ("p1_ipv4", 65002, 3), ("p1_ipv6", 65002, 3)];
        assert_eq!(names, expected.map(|(name, asn, peers)| (name.to_owned(), asn, peers)));
        assert_eq!(bgp.groups[3].peers[2].to_string(), "2001:2:0:1::4");
        assert_eq!((neighbours(&bgp), locals(&bgp).len()), (12, 4));
        bgp.groups[0].at = Place { port: 0, vlan: Some(2) };
        assert_eq!(name(&bgp.groups[0]), "p0v2_ipv4");
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
