//! VPN-IPv6 routes over an IPv4 core (RFC 4659): VRFs of both families, with one label for both.

use super::VRFS;
use super::world::{CORE, CUSTOMERS, World, dual_stack, from_dut, labelled, prefixes, remote, tagged, to_dut};
use drophammer_emulation::bgp::{Distinguishers, ExpectationId, Expected, Packing, RouteSource, VpnPart};
use drophammer_model::label_edge::{self, CUSTOMER_AS, DUT_LOOPBACK, DUT_TO_CE_IPV6, PROVIDER_AS};
use drophammer_model::routes::{Change, Counting, LabelPer, PrefixesPerVrf, Routes, VpnRoutes, VrfRange};
use drophammer_reference::FIRST_VRF_LABEL;
use drophammer_wire::ipv6;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

const ROUTES: u32 = 12;
/// Router of a CE device whose session is over IPv6.
const IPV6: usize = 1;

/// IPv6 routes of all VRFs, exchanged in both directions.
struct Exchanged {
    world: World,
    local: Arc<Routes>,
    remote: Arc<VpnRoutes>,
    at_pe: ExpectationId,
    at_ces: Vec<ExpectationId>,
}

impl Exchanged {
    fn new() -> Exchanged {
        let mut world = World::new(dual_stack(VRFS));
        let (local, there) = (prefixes("fd00:1::/64", ROUTES), prefixes("fd00:2::/64", ROUTES));
        let remote = remote(VRFS, there.clone(), PrefixesPerVrf::Same);
        let vrfs = VrfRange {
            count: VRFS,
            distinguisher: Counting::from(label_edge::distinguisher(DUT_LOOPBACK, 0)),
            targets: vec![Counting::from(label_edge::target(0))],
            first_label: FIRST_VRF_LABEL,
            label_per: LabelPer::Vrf,
        };
        let routes = Arc::new(VpnRoutes::new(vrfs, local.clone(), PrefixesPerVrf::Same).unwrap());
        let at_pe = Expected {
            source: RouteSource::External,
            as_path_prefix: vec![CUSTOMER_AS],
            next_hop: Some(DUT_LOOPBACK.to_ipv6_mapped().into()),
            check_attributes: true,
            labels: true,
            ..Expected::default()
        };
        let at_ce = Expected {
            as_path_prefix: vec![PROVIDER_AS.into()],
            next_hop: Some(DUT_TO_CE_IPV6.into()),
            labels: false,
            label: None,
            ..at_pe.clone()
        };
        let (now, keys) = (world.now, VpnPart { routes, distinguishers: Distinguishers::Configured });
        let at_pe = world.pe_mut().adj_rib_in_mut(0).expect_vpn(now, keys, at_pe);
        let expects = |world: &mut World, vrf| {
            world.ce_mut(vrf).adj_rib_in_mut(IPV6).expect(now, there.clone(), 0..ROUTES, at_ce.clone())
        };
        let at_ces = (0..VRFS).map(|vrf| expects(&mut world, vrf)).collect();
        for vrf in 0..VRFS {
            world.ce_mut(vrf).adj_rib_out(IPV6).advertise(local.clone(), 0..ROUTES, Packing::default());
        }
        world.pe_says(Change::Advertise, &remote, 0..VRFS, 0..ROUTES);
        let mut all = Exchanged { world, local, remote, at_pe, at_ces };
        assert!(all.complete(), "{:?}", all.world.router.truth());
        all.world.rest();
        all
    }

    /// Runs until all routers have exactly the expected routes, and asserts that their attributes are right.
    fn complete(&mut self) -> bool {
        let Exchanged { world, at_pe, at_ces, .. } = self;
        let ces = |w: &World| (0..).zip(at_ces.iter()).all(|(vrf, id)| w.ce(vrf).adj_rib_in(IPV6).is_complete(*id));
        let done = world.run(|w| w.pe().adj_rib_in(0).is_complete(*at_pe) && ces(w));
        assert!(world.pe().adj_rib_in(0).report(*at_pe).is_right(), "{:?}", world.pe().adj_rib_in(0).report(*at_pe));
        assert!((0..).zip(at_ces).all(|(vrf, id)| world.ce(vrf).adj_rib_in(IPV6).report(*id).is_right()));
        done
    }

    /// A packet between hosts of these routes, to or from a remote site.
    fn packet(&self, out: bool, route: u32, hop_limit: u8) -> Vec<u8> {
        let (local, there) = (&self.local, self.remote.routes());
        let (from, to) = if out { (local, there) } else { (there, local) };
        packet(host(from, 0), host(to, route), hop_limit)
    }
}

fn host(routes: &Routes, route: u32) -> Ipv6Addr {
    let IpAddr::V6(first) = routes.prefix(route).address() else { panic!("IPv6") };
    Ipv6Addr::from_bits(first.to_bits() + 9)
}

/// A packet of 48 bytes without a next header.
fn packet(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8) -> Vec<u8> {
    let mut packet = vec![0; ipv6::LEN + 8];
    let (traffic_class, flow_label, next_header, payload_len) = (0, 0, 59, 8);
    ipv6::Repr { traffic_class, flow_label, next_header, hop_limit, source, destination, payload_len }
        .emit(&mut packet);
    packet
}

#[test]
fn ipv6_routes_of_vrfs_pass_in_both_directions() {
    let mut all = Exchanged::new();
    let truth = all.world.router.truth();
    let count = u64::from(2 * VRFS * ROUTES);
    assert_eq!((truth.bgp.routes_received, truth.bgp.routes_sent, truth.fib.vpn), (count, count, count));
    assert_eq!((truth.bgp.looped, truth.bgp.unreachable, truth.bgp.not_imported, truth.fib.ipv6), (0, 0, 0, 0));
    for vrf in 0..VRFS {
        assert_eq!(all.world.pe().adj_rib_in(0).label_of(all.at_pe, vrf, 0), Some(&[FIRST_VRF_LABEL + vrf][..]));
    }
    // Withdrawals too.
    let (local, remote) = (all.local.clone(), all.remote.clone());
    for present in [false, true] {
        let now = all.world.now;
        all.world.pe_mut().adj_rib_in_mut(0).change_vpn(now, all.at_pe, 1..2, 0..5, present);
        all.world.ce_mut(2).adj_rib_in_mut(IPV6).change(now, all.at_ces[2], 3..10, present);
        let out = all.world.ce_mut(1).adj_rib_out(IPV6);
        if present {
            out.advertise(local.clone(), 0..5, Packing::default());
        } else {
            out.withdraw(local.clone(), 0..5, Packing::default());
        }
        let change = if present { Change::Advertise } else { Change::Withdraw };
        all.world.pe_says(change, &remote, 2..3, 3..10);
        assert!(all.complete());
        all.world.rest();
        assert_eq!(all.world.router.truth().fib.vpn, count - if present { 0 } else { 12 });
    }
}

#[test]
fn ipv6_packets_carry_the_label_of_their_route() {
    let mut all = Exchanged::new();
    for (vrf, route) in [(0, 0), (1, 7), (2, ROUTES - 1)] {
        let frame = tagged(vrf, to_dut(CUSTOMERS), &all.packet(true, route, 64));
        let expected = labelled(from_dut(CORE), &[(all.remote.label(vrf, route), 63)], &all.packet(true, route, 63));
        assert_eq!(all.world.offer(CUSTOMERS, &frame), [(CORE, expected)], "VRF {vrf}");
        let frame = labelled(to_dut(CORE), &[(FIRST_VRF_LABEL + vrf, 40)], &all.packet(false, route, 50));
        let expected = tagged(vrf, from_dut(CUSTOMERS), &all.packet(false, route, 39));
        assert_eq!(all.world.offer(CORE, &frame), [(CUSTOMERS, expected)], "VRF {vrf}");
    }
    assert_eq!(all.world.router.truth().dropped.total(), 0);
    // Packets to an unknown or a special destination do not pass, nor does an expired packet.
    let (from, unknown) = (host(&all.local, 0), "fd00:3::1".parse().unwrap());
    for to in [unknown, "fe80::1".parse().unwrap()] {
        let frame = labelled(to_dut(CORE), &[(FIRST_VRF_LABEL, 64)], &packet(from, to, 64));
        assert_eq!(all.world.offer(CORE, &frame), []);
    }
    let expired = labelled(to_dut(CORE), &[(FIRST_VRF_LABEL, 1)], &all.packet(false, 0, 50));
    assert_eq!(all.world.offer(CORE, &expired), []);
    let truth = all.world.router.truth();
    assert_eq!((truth.dropped.no_route, truth.dropped.ttl), (2, 1));
}

#[test]
fn swapped_labels_concern_ipv6_too() {
    let mut all = Exchanged::new();
    all.world.set_faults(|faults| faults.swap_vpn_labels = true);
    let frame = labelled(to_dut(CORE), &[(FIRST_VRF_LABEL, 40)], &all.packet(false, 3, 50));
    let expected = tagged(1, from_dut(CUSTOMERS), &all.packet(false, 3, 39));
    assert_eq!(all.world.offer(CORE, &frame), [(CUSTOMERS, expected)]);
    assert_eq!(all.world.router.truth().vpn_swapped, 1);
}

#[test]
fn a_session_over_ipv6_takes_its_routes_with_it() {
    let mut all = Exchanged::new();
    let now = all.world.now;
    all.world.pe_mut().adj_rib_in_mut(0).change_vpn(now, all.at_pe, 1..2, 0..ROUTES, false);
    all.world.ce_mut(1).stop(now, IPV6);
    let at_pe = all.at_pe;
    assert!(all.world.run(|w| w.pe().adj_rib_in(0).is_complete(at_pe)));
    let truth = all.world.router.truth();
    assert_eq!((truth.bgp.sessions, truth.fib.vpn), (u64::from(2 * VRFS), u64::from((2 * VRFS - 1) * ROUTES)));
}

/// An UPDATE with fd00:2:0:`n`::/64 of VRF 0 and this next hop, which follows its route distinguisher.
fn update(next_hop: &[u8], n: u8) -> Vec<u8> {
    let rd = label_edge::distinguisher(super::world::pe(), 0).distinguisher();
    let nlri = [&[88 + 64, 0, 0x7d, 0x01][..], &rd, &[0xfd, 0, 0, 2, 0, 0, 0, n]].concat();
    let value = [&[0, 2, 128, next_hop.len() as u8][..], next_hop, &[0], &nlri].concat();
    let target = [&[0xc0, 16, 8][..], &label_edge::target(0).route_target()].concat();
    let reach = [&[0x80, 14, value.len() as u8][..], &value].concat();
    let rest = [&[0x40, 1, 1, 0][..], &[0x40, 2, 0], &[0x40, 5, 4, 0, 0, 0, 100], &target].concat();
    crate::speakers::update(&[], &[reach, rest].concat(), &[])
}

#[test]
fn next_hops_are_ipv4_mapped_addresses() {
    let mut world = World::new(dual_stack(1));
    let mapped = super::world::pe().to_ipv6_mapped().octets();
    let link_local = "fe80::1".parse::<Ipv6Addr>().unwrap().octets();
    let rd = [0; 8];
    for (n, next_hop) in (0..).zip([
        [&rd[..], &mapped].concat(),
        [&rd[..], &mapped, &rd, &link_local].concat(),
        // No path in the core leads to an IPv6 address.
        [&rd[..], &[0x20, 1, 0x0d, 0xb8], &[0; 12]].concat(),
    ]) {
        world.pe_mut().adj_rib_out(0).raw(update(&next_hop, n));
        world.rest();
    }
    let truth = world.router.truth();
    assert_eq!((truth.bgp.paths, truth.fib.vpn, truth.bgp.unreachable, truth.bgp.sessions), (3, 2, 1, 3));
    // A next hop of a wrong length.
    world.pe_mut().adj_rib_out(0).raw(update(&mapped, 4));
    assert!(world.run(|w| w.pe().losses(0).0 == 1));
}
