//! Routes of each kind, and the messages that carry them.

use drophammer_emulation::bgp::{
    AdjRibOut, Encapsulation, EncapsulationKind, Negotiated, NextHops, Packing, RouteSet, SessionConfig, VpnRouteSet,
};
use drophammer_model::Instant;
use drophammer_model::routes::{
    AttributePattern, Change, Counting, FIRST_LABEL as FIRST, GroupSizes, LabelPer, Prefix, PrefixesPerVrf, RouteRange,
    Routes, VpnId, VpnRoutes, VrfRange,
};
use drophammer_model::trial::Family;
use drophammer_wire::bgp::update::Labels;
use drophammer_wire::bgp::{AfiSafi, PathDirection};
use std::net::Ipv4Addr;
use std::sync::Arc;

pub const FIRST_LABEL: u32 = 1000;
pub const PATH_ID: u32 = 77;
pub const TARGET: [u8; 8] = [0, 2, 0xfd, 0xe9, 0, 0, 0, 9];
pub const NEXT_HOP: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);

pub fn agreed(add_path: bool, four_octet_as: bool) -> Negotiated {
    let both = PathDirection { receive: true, send: true };
    let config = |local, peer, id: u32| SessionConfig {
        families: AfiSafi::ALL.to_vec(),
        add_path: if add_path { AfiSafi::ALL.map(|family| (family, both)).to_vec() } else { vec![] },
        ..SessionConfig::new(local, peer, Ipv4Addr::from(id))
    };
    let agreed = Negotiated::from_opens(&config(65_001, 65_000, 1), config(65_000, 65_001, 2).open()).unwrap();
    Negotiated { four_octet_as, max_send: 4096, ..agreed }
}

pub fn next_hops() -> NextHops {
    NextHops {
        ipv4: Some(NEXT_HOP),
        ipv6: Some("2001:2::2".parse().unwrap()),
        link_local: Some("fe80::2".parse().unwrap()),
    }
}

/// Labels and distinguisher, if the family needs them.
pub fn encapsulation(family: AfiSafi) -> Encapsulation {
    let labels = Labels::Counting(FIRST_LABEL);
    let kind = match family.safi {
        1 => EncapsulationKind::Unicast,
        4 => EncapsulationKind::Labelled(labels),
        _ => EncapsulationKind::Vpn { labels, distinguisher: [0, 0, 0xfd, 0xe9, 0, 0, 0, 5], communities: TARGET },
    };
    Encapsulation { kind, path_id: PATH_ID }
}

/// Routes with the prefix lengths of the Internet, or with one length.
pub fn routes(family: AfiSafi, count: u32, seed: u64, internet: bool) -> Arc<Routes> {
    let (ip, first) = if family.afi == 1 { (Family::Ipv4, "20.0.0.0/22") } else { (Family::Ipv6, "2a00::/40") };
    let first: Prefix = first.parse().unwrap();
    let pattern = AttributePattern { routes_per_group: GroupSizes::Fixed(90), ..AttributePattern::internet(seed) };
    let range =
        if internet { RouteRange::internet(ip, count, seed) } else { RouteRange::uniform(first, count, 3, pattern) };
    Arc::new(range.unwrap().into())
}

/// The messages for all routes, in order.
pub fn messages(
    routes: &Arc<Routes>,
    announce: bool,
    packing: Packing,
    encapsulation: Encapsulation,
    agreed: &Negotiated,
) -> Vec<Vec<u8>> {
    let mut adj_rib_out = AdjRibOut::new();
    let change = if announce { Change::Advertise } else { Change::Withdraw };
    adj_rib_out.push(change, RouteSet { routes: routes.clone(), part: 0..routes.len(), packing, encapsulation });
    adj_rib_out.end_of_rib(encapsulation.kind.afi_safi(routes.family()));
    drain(&mut adj_rib_out, agreed, next_hops())
}

/// VRFs with the same prefixes, one set of attributes each, and these route distinguishers and targets.
pub fn vpn_routes(family: AfiSafi, vrfs: u32, per_vrf: u32, ids: VpnId, label_per: LabelPer) -> Arc<VpnRoutes> {
    let first: Prefix = if family.afi == 1 { "20.0.0.0/24" } else { "2a00::/56" }.parse().unwrap();
    let pattern = AttributePattern { routes_per_group: GroupSizes::Fixed(u32::MAX), ..AttributePattern::default() };
    let prefixes = Arc::new(RouteRange::uniform(first, per_vrf, 1, pattern).unwrap().into());
    let common = Counting { first: VpnId::as2(65_000, 9), step: 0 };
    let vrfs = VrfRange {
        count: vrfs,
        distinguisher: Counting::from(ids),
        targets: vec![Counting::from(ids), common],
        first_label: FIRST,
        label_per,
    };
    Arc::new(VpnRoutes::new(vrfs, prefixes, PrefixesPerVrf::Same).unwrap())
}

/// The messages for routes of VRFs, in order.
pub fn vpn_messages(change: Change, set: VpnRouteSet, agreed: &Negotiated, hops: NextHops) -> Vec<Vec<u8>> {
    let mut adj_rib_out = AdjRibOut::new();
    adj_rib_out.push_vpn(change, set);
    drain(&mut adj_rib_out, agreed, hops)
}

/// All messages that wait.
pub fn drain(adj_rib_out: &mut AdjRibOut, agreed: &Negotiated, hops: NextHops) -> Vec<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 40_000]);
    while !adj_rib_out.is_empty() {
        let bytes = adj_rib_out.write(Instant(1), agreed, hops, &mut buffer);
        let mut rest = &buffer[..bytes];
        while let Some(message) = drophammer_wire::bgp::frame(rest, agreed.max_send).unwrap() {
            all.push(rest[..message.message_len()].to_vec());
            rest = &rest[message.message_len()..];
        }
    }
    all
}
