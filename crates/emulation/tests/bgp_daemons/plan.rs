//! The scenes of the recordings with two emulated routers and a daemon between them: router 0 advertises routes, the daemon
//! passes them on, and router 1 receives them.

use drophammer_emulation::bgp::{
    AdjRibIn, AdjRibOut, Distinguishers, Encapsulation, EncapsulationKind, ExpectationId, Expected,
    GracefulRestartConfig, NextHops, Packing, RoutePart, RouteSet, RouteSource, SessionConfig, VpnPart, VpnRouteSet,
};
use drophammer_model::Instant;
use drophammer_model::routes::{
    AttributePattern, Change, Counting, GroupSizes, LabelPer, PrefixesPerVrf, RouteAttributes, RouteRange, RouteTable,
    Routes, VpnId, VpnRoutes, VrfRange,
};
use drophammer_model::trial::Family;
use drophammer_wire::bgp::update::Labels;
use drophammer_wire::bgp::{AfiSafi, PathDirection};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A recording contains one of these scenes with one daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Unicast with labels (RFC 8277), both families, reflected: labels are kept.
    Labelled,
    /// VPN routes (RFC 4364, RFC 4659), both families, reflected: labels, distinguisher and targets are kept.
    Vpn,
    /// IPv6 unicast with labels over an IPv4 core (6PE, RFC 4798), reflected: the next hop is an IPv4-mapped address.
    SixPe,
    /// VPN routes of 12 VRFs with the same prefixes, both families over an IPv4 core, reflected. Some of them are withdrawn and
    /// advertised again. OpenBGPD 7.7 counts withdrawals of VPN routes but keeps the routes: it reads their distinguishers 3 bytes too
    /// early, where the label is. Version 7.8 skips the label.
    Vrfs,
    /// Two paths to each prefix, received and sent (RFC 7911).
    Paths,
    /// Thousands of routes in one message (RFC 8654).
    Long,
    /// Router 1 requests all routes again (RFC 2918, RFC 7313).
    Refresh,
    /// Router 0 disappears without a NOTIFICATION, comes back and advertises half of its routes (RFC 4724).
    Restart,
}

/// Name of a recording, daemon, scene.
pub const RECORDINGS: [(&str, &str, Scene); 29] = [
    ("labelled-frr", "frr", Scene::Labelled),
    ("labelled-bird", "bird", Scene::Labelled),
    ("labelled-gobgp", "gobgp", Scene::Labelled),
    ("labelled-freertr", "freertr", Scene::Labelled),
    ("vpn-frr", "frr", Scene::Vpn),
    ("vpn-bird", "bird", Scene::Vpn),
    ("vpn-openbgpd", "openbgpd", Scene::Vpn),
    ("vpn-gobgp", "gobgp", Scene::Vpn),
    ("vpn-freertr", "freertr", Scene::Vpn),
    ("sixpe-frr", "frr", Scene::SixPe),
    ("sixpe-bird", "bird", Scene::SixPe),
    ("sixpe-gobgp", "gobgp", Scene::SixPe),
    ("sixpe-freertr", "freertr", Scene::SixPe),
    ("vrfs-frr", "frr", Scene::Vrfs),
    ("vrfs-bird", "bird", Scene::Vrfs),
    ("vrfs-gobgp", "gobgp", Scene::Vrfs),
    ("vrfs-freertr", "freertr", Scene::Vrfs),
    ("paths-frr", "frr", Scene::Paths),
    ("paths-bird", "bird", Scene::Paths),
    ("paths-openbgpd", "openbgpd", Scene::Paths),
    ("paths-gobgp", "gobgp", Scene::Paths),
    ("long-frr", "frr", Scene::Long),
    ("long-bird", "bird", Scene::Long),
    ("refresh-frr", "frr", Scene::Refresh),
    ("refresh-bird", "bird", Scene::Refresh),
    ("restart-frr", "frr", Scene::Restart),
    ("restart-bird", "bird", Scene::Restart),
    ("restart-openbgpd", "openbgpd", Scene::Restart),
    ("restart-gobgp", "gobgp", Scene::Restart),
];

/// AS of the daemon, and its addresses on the links of the routers.
pub const DAEMON_AS: u32 = 65000;
pub const DAEMON: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 1, 1), Ipv4Addr::new(198, 19, 1, 1)];
/// Addresses of the routers.
pub const ROUTERS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 1, 2), Ipv4Addr::new(198, 19, 1, 2)];
/// Route distinguisher and route target 65000:7.
pub const DISTINGUISHER: [u8; 8] = [0, 0, 0xfd, 0xe8, 0, 0, 0, 7];
pub const TARGET: [u8; 8] = [0, 2, 0xfd, 0xe8, 0, 0, 0, 7];
/// Label of the first route; the labels of the others follow.
pub const LABEL: u32 = 1000;
/// VRFs, and the VRFs and routes that are withdrawn and advertised again.
pub const VRFS: u32 = 12;
pub const FLAPPING: (Range<u32>, Range<u32>) = (3..8, 5..15);

impl Scene {
    pub fn is_internal(self) -> bool {
        matches!(self, Scene::Labelled | Scene::SixPe | Scene::Vpn | Scene::Vrfs)
    }

    pub fn families(self) -> Vec<AfiSafi> {
        match self {
            Scene::Labelled => vec![AfiSafi::IPV4_LABELLED, AfiSafi::IPV6_LABELLED],
            Scene::SixPe => vec![AfiSafi::IPV6_LABELLED],
            Scene::Vpn | Scene::Vrfs => vec![AfiSafi::VPNV4, AfiSafi::VPNV6],
            _ => vec![AfiSafi::IPV4_UNICAST],
        }
    }
}

/// AS of a router.
pub fn asn(scene: Scene, router: usize) -> u32 {
    if scene.is_internal() { DAEMON_AS } else { DAEMON_AS + 1 + router as u32 }
}

pub fn next_hops(scene: Scene, router: usize) -> NextHops {
    let ipv6 = Ipv6Addr::new(0x2001, 2, 0, 1 + router as u16, 0, 0, 0, 2);
    let ipv6 = Some(ipv6).filter(|_| !matches!(scene, Scene::SixPe | Scene::Vrfs));
    NextHops { ipv4: Some(ROUTERS[router]), ipv6, link_local: None }
}

/// The session of a router; `again` means after its restart.
pub fn config(scene: Scene, router: usize, again: bool) -> SessionConfig {
    let id = Ipv4Addr::new(100, 64, router as u8, 1);
    let mut config = SessionConfig::new(asn(scene, router), DAEMON_AS, id);
    config.families = scene.families();
    (config.connect_retry, config.idle_hold) = (Duration::from_millis(200), Duration::from_millis(200));
    if scene == Scene::Paths {
        config.add_path = vec![(AfiSafi::IPV4_UNICAST, PathDirection { receive: router == 1, send: router == 0 })];
    }
    // FRR answers a ROUTE-REFRESH only after its End-of-RIB, which it sends if graceful restart is negotiated.
    if matches!(scene, Scene::Restart | Scene::Refresh) {
        let (restart_time, notification) = (Duration::from_secs(60), false);
        let config_of = GracefulRestartConfig { restart_time, notification, restarted: again, forwarding: again };
        config.graceful_restart = Some(config_of);
    }
    config
}

/// Routes of a scene; `path` selects the second path.
pub fn routes(scene: Scene, family: Family, path: bool) -> Arc<Routes> {
    let internet = |count| Routes::from(RouteRange::internet(family, count, 3).expect("so many there are"));
    Arc::new(match scene {
        Scene::Long => {
            let prefix = |i: u32| format!("20.{}.{}.0/24", i >> 8, i & 255).parse().expect("a prefix");
            let same = RouteAttributes { as_path: vec![64_999], ..Default::default() };
            RouteTable::new("long", family, (0..3000).map(|i| (prefix(i), same.clone()))).into()
        }
        Scene::Paths => {
            let prefix = |i: u32| format!("20.0.{i}.0/24").parse().expect("a prefix");
            let of = |i: u32| RouteAttributes { as_path: vec![64_000 + u32::from(path), i + 1], ..Default::default() };
            RouteTable::new("paths", family, (0..20).map(|i| (prefix(i), of(i)))).into()
        }
        Scene::Vrfs => {
            let first = if family == Family::Ipv4 { "20.0.0.0/24" } else { "2a00::/56" };
            let routes_per_group = GroupSizes::Fixed(u32::MAX);
            let same = AttributePattern { routes_per_group, ..AttributePattern::default() };
            RouteRange::uniform(first.parse().expect("a prefix"), 20, 1, same).expect("so many there are").into()
        }
        _ => internet(40),
    })
}

fn kind(scene: Scene) -> EncapsulationKind {
    let labels = Labels::Counting(LABEL);
    match scene {
        Scene::Labelled | Scene::SixPe => EncapsulationKind::Labelled(labels),
        Scene::Vpn => EncapsulationKind::Vpn { labels, distinguisher: DISTINGUISHER, communities: TARGET },
        _ => EncapsulationKind::Unicast,
    }
}

fn families(scene: Scene) -> &'static [Family] {
    match scene {
        Scene::SixPe => &[Family::Ipv6],
        _ if scene.is_internal() => &[Family::Ipv4, Family::Ipv6],
        _ => &[Family::Ipv4],
    }
}

/// Routes of VRFs: IPv4 with distinguishers 65000:100 and a label per VRF, IPv6 with distinguishers 192.0.2.1:100 and a label per route.
pub fn vrfs(family: Family) -> Arc<VpnRoutes> {
    let (distinguisher, label_per) = match family {
        Family::Ipv4 => ("65000:100", LabelPer::Vrf),
        Family::Ipv6 => ("192.0.2.1:100", LabelPer::Route),
    };
    let vrfs = VrfRange {
        count: VRFS,
        distinguisher: Counting::from(distinguisher.parse().expect("a distinguisher")),
        targets: vec![Counting::from(VpnId::as2(65_000, 500)), Counting { first: VpnId::as2(65_000, 7), step: 0 }],
        first_label: LABEL,
        label_per,
    };
    Arc::new(VpnRoutes::new(vrfs, routes(Scene::Vrfs, family, false), PrefixesPerVrf::Same).expect("they fit"))
}

/// Router 0 withdraws some routes of VRFs, or advertises them again.
pub fn flap(adj_rib_out: &mut AdjRibOut, change: Change) {
    for family in families(Scene::Vrfs) {
        let (vrfs_of, part) = FLAPPING;
        let all = VpnRouteSet::all(vrfs(*family), Packing::default());
        adj_rib_out.push_vpn(change, VpnRouteSet { vrfs: vrfs_of, part, ..all });
    }
}

/// The routes that router 0 advertises once its session is up; `again` means after its restart.
pub fn say(scene: Scene, adj_rib_out: &mut AdjRibOut, again: bool) {
    for family in families(scene) {
        if scene == Scene::Vrfs {
            adj_rib_out.push_vpn(Change::Advertise, VpnRouteSet::all(vrfs(*family), Packing::default()));
            continue;
        }
        let all = routes(scene, *family, false);
        let count = if again { all.len() / 2 } else { all.len() };
        let packing = match scene {
            Scene::Long => Packing { routes_per_update: u16::MAX, ..Packing::default() },
            _ => Packing::default(),
        };
        let mut advertise = |routes, path_id| {
            let encapsulation = Encapsulation { kind: kind(scene), path_id };
            adj_rib_out.push(Change::Advertise, RouteSet { routes, part: 0..count, packing, encapsulation });
        };
        advertise(all, 1);
        if scene == Scene::Paths {
            advertise(routes(scene, *family, true), 2);
        }
        if scene == Scene::Restart {
            adj_rib_out.end_of_rib(AfiSafi::IPV4_UNICAST);
        }
    }
}

/// Sets the expectations of router 1 from now on. The Adj-RIB-In keeps only the last of two paths to a prefix, so attributes are not
/// compared in that scene.
pub fn expect(scene: Scene, adj_rib_in: &mut AdjRibIn, now: Instant) -> Vec<ExpectationId> {
    let one = |family: &Family| {
        let all = routes(scene, *family, false);
        let hops = next_hops(scene, 0);
        let mapped = hops.ipv4.map(|own| own.to_ipv6_mapped());
        let hop: Option<IpAddr> = match (scene.is_internal(), family) {
            (false, _) => Some(DAEMON[1].into()),
            (true, Family::Ipv4) => hops.ipv4.map(Into::into),
            (true, Family::Ipv6) => hops.ipv6.or(mapped).map(Into::into),
        };
        let internal = scene.is_internal();
        let expected = Expected {
            source: if internal {
                RouteSource::Internal(config(scene, 0, false).router_id)
            } else {
                RouteSource::External
            },
            as_path_prefix: if internal { vec![] } else { vec![DAEMON_AS, asn(scene, 0)] },
            next_hop: hop,
            check_attributes: scene != Scene::Paths,
            labels: matches!(scene, Scene::SixPe | Scene::Vrfs),
            ..Expected::default()
        };
        if scene == Scene::Vrfs {
            let distinguishers = match family {
                Family::Ipv4 => Distinguishers::Learned,
                Family::Ipv6 => Distinguishers::Configured,
            };
            return adj_rib_in.expect_vpn(now, VpnPart { routes: vrfs(*family), distinguishers }, expected);
        }
        let distinguisher = (scene == Scene::Vpn).then_some(DISTINGUISHER);
        let (afi_safi, part) = (kind(scene).afi_safi(*family), 0..all.len());
        adj_rib_in.expect_in(now, RoutePart { afi_safi, distinguisher, routes: all, part }, expected)
    };
    families(scene).iter().map(one).collect()
}
