//! Routing protocols of the reference device in a suite.

use drophammer_model::label_edge::PROVIDER_AS;
use drophammer_model::role::{RouterRole, VrfRole};
use drophammer_model::suite::{Params, PortConfig};
use drophammer_model::trial::Family;
use drophammer_reference::{Beyond, BgpConfig, BgpFaults, BgpPeer, CoreConfig, IgpFaults, RibLimit};
use std::net::{IpAddr, Ipv4Addr};

/// Returns its sessions, which wait for every peer of every port. `None` if the suite has no BGP.
pub(crate) fn config(p: &Params, ports: &[PortConfig]) -> Option<BgpConfig> {
    let first = ports.iter().find_map(|port| port.bgp.as_ref())?;
    let own = ports.iter().filter_map(|port| port.ipv4.as_ref()).find_map(|a| match a.dut {
        IpAddr::V4(own) => Some(own),
        IpAddr::V6(_) => None,
    });
    let mut peers = Vec::new();
    // Sub-interfaces are numbered after the ports.
    let mut sub_interfaces = ports.len();
    for (index, config) in ports.iter().enumerate() {
        if let Some(bgp) = &config.bgp {
            let client = bgp.is_internal();
            for link in config.peer_links() {
                let port = link.vlan.map_or(index, |i| sub_interfaces + i);
                let peer = |address| BgpPeer { port, address, asn: bgp.asn, connect: false, client };
                peers.extend(link.peers.into_iter().map(peer));
            }
        }
        sub_interfaces += config.vlans.len();
    }
    Some(BgpConfig {
        asn: first.dut_as,
        router_id: own.unwrap_or(Ipv4Addr::new(192, 0, 2, 1)),
        peers,
        next_hop_self: first.next_hop_self,
        hold_time: first.hold,
        protection: first.protection.clone(),
        ..limits(p)
    })
}

/// Adds its sessions as a PE router to `bgp`. They wait for the CE router of each VRF, in each family, and for the PE router behind each core
/// port. Without VRFs, returns `bgp` unchanged. `interfaces` are the interfaces of the sites.
pub(crate) fn with_vpn(
    bgp: Option<BgpConfig>,
    p: &Params,
    role: &RouterRole,
    interfaces: &[usize],
) -> Option<BgpConfig> {
    let Some(core) = role.core.as_ref().filter(|_| !interfaces.is_empty()) else { return bgp };
    let peer = |family: Family, (ce, interface): (&VrfRole, &usize)| {
        let address = ce.link(family)?.ce;
        Some(BgpPeer { port: *interface, address, asn: ce.ce_as, connect: false, client: false })
    };
    let mut bgp = bgp.unwrap_or_else(|| BgpConfig { asn: PROVIDER_AS.into(), ..limits(p) });
    bgp.router_id = core.loopback;
    for family in [Family::Ipv4, Family::Ipv6] {
        bgp.peers.extend(role.vrfs.iter().zip(interfaces).filter_map(|site| peer(family, site)));
    }
    bgp.pe_peers = core.links.iter().filter_map(|link| link.pe).collect();
    Some(bgp)
}

/// Returns a configuration without sessions that has the delays and limits of the parameters.
fn limits(p: &Params) -> BgpConfig {
    let time = |key| p.duration(key).unwrap_or_default();
    let beyond = if p.text("rib_beyond").as_deref() == Some("reset") { Beyond::Reset } else { Beyond::Ignore };
    BgpConfig {
        propagation_delay: time("propagation_delay"),
        fib_delay: time("fib_delay"),
        fib_time_per_route: time("fib_time_per_route"),
        ack_delay: time("ack_delay"),
        rib_limit: p.count("rib_limit").map(|paths| RibLimit { paths: paths as usize, beyond }),
        ..BgpConfig::default()
    }
}

/// Returns OSPF, LDP and BFD on its core links. `None` if the suite has no core ports.
pub(crate) fn core(p: &Params, role: &RouterRole) -> Option<CoreConfig> {
    let time = |key| p.duration(key).unwrap_or_default();
    let (fib_delay, fib_time_per_route) = (time("fib_delay"), time("fib_time_per_route"));
    let label_limit = p.count("label_limit").map(|entries| entries as usize);
    Some(CoreConfig { role: role.core.clone()?, fib_delay, fib_time_per_route, label_limit })
}

/// Returns the configured faults of OSPF, LDP and BFD.
pub(crate) fn core_faults(p: &Params) -> IgpFaults {
    IgpFaults {
        late_lsa_flooding: p.duration("late_lsa_flooding").unwrap_or_default(),
        late_lsa_every: p.count("late_lsa_every").unwrap_or(0),
        bfd_packet_missing: p.count("bfd_packet_missing").unwrap_or(0),
        implicit_null_every: p.count("implicit_null_every").unwrap_or(0),
    }
}

/// Returns the configured faults in handling routes.
pub(crate) fn faults(p: &Params) -> BgpFaults {
    let every = |key| p.count(key).unwrap_or(0);
    let flag = |key| p.flag(key).unwrap_or(false);
    BgpFaults {
        blackhole_every: every("blackhole_every"),
        withdraw_late: p.duration("withdraw_late").unwrap_or_default(),
        wrong_next_hop_every: every("route_wrong_next_hop_every"),
        wrong_as_path_every: every("route_wrong_as_path_every"),
        lost_route_every: every("route_lost_every"),
        never_reads: flag("bgp_never_reads"),
        reads_per_second: every("bgp_reads_per_second"),
        flap_every: every("route_flap_every"),
        flap_interval: p.duration("route_flap_interval").unwrap_or_default(),
        reset_after: every("bgp_reset_after"),
        malformed_after: every("bgp_malformed_after"),
        hold_silence: flag("bgp_hold_silence"),
        leak_vpn_route: flag("leak_vpn_route"),
    }
}
