//! The device as a PE router: routes of VRFs in both directions, labels, isolation, faults.

mod ipv6;
mod world;

use drophammer_emulation::bgp::{Cause, ExpectationId};
use drophammer_emulation::ping::{Echo, Ping};
use drophammer_emulation::protocol::Command;
use drophammer_model::label_edge::{DUT_LOOPBACK, DUT_TO_CE, target};
use drophammer_model::routes::{Change, PrefixesPerVrf, Routes, VpnRoutes};
use drophammer_model::trial::Family;
use drophammer_reference::{BgpConfig, Config, FIRST_VRF_LABEL, LabelRoute, Router};
use netgauze_bgp_pkt::community::{ExtendedCommunity, TransitiveTwoOctetExtendedCommunity};
use netgauze_bgp_pkt::nlri::RouteDistinguisher;
use netgauze_bgp_pkt::path_attribute::{MpReach, MpUnreach, PathAttributeValue};
use netgauze_bgp_pkt::update::BgpUpdateMessage;
use netgauze_bgp_pkt::wire::deserializer::BgpParsingContext;
use netgauze_parse_utils::reader::SliceReader;
use netgauze_parse_utils::traits::ParseFromWithOneInput;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use world::{
    CORE, CUSTOMERS, World, config, from_dut, labelled, packet, prefixes, pushed, remote, route_to_pe, tagged, to_dut,
};

const VRFS: u32 = 3;
const ROUTES: u32 = 20;

/// A world in which all sides have advertised their routes and received the routes of the others.
struct Exchanged {
    world: World,
    local: Arc<Routes>,
    remote: Arc<VpnRoutes>,
    at_pe: ExpectationId,
    at_ces: Vec<ExpectationId>,
}

impl Exchanged {
    fn new(config: Config, routes: u32) -> Exchanged {
        let vrfs = config.vrfs.len() as u32;
        let mut world = World::new(config);
        let (local, remote_prefixes) = (prefixes("20.0.0.0/24", routes), prefixes("30.0.0.0/24", routes));
        let remote = remote(vrfs, remote_prefixes.clone(), PrefixesPerVrf::Same);
        let at_pe = world.pe_expects(vrfs, &local);
        let at_ces = (0..vrfs).map(|vrf| world.ce_expects(vrf, &remote_prefixes, 0..routes)).collect();
        (0..vrfs).for_each(|vrf| world.ce_says(vrf, Change::Advertise, &local, 0..routes));
        world.pe_says(Change::Advertise, &remote, 0..vrfs, 0..routes);
        let mut all = Exchanged { world, local, remote, at_pe, at_ces };
        assert!(all.complete(), "{:?}", all.world.router.truth());
        all.world.rest();
        all.assert_right();
        all
    }

    /// Runs until all expectations are met.
    fn complete(&mut self) -> bool {
        let Exchanged { world, at_pe, at_ces, .. } = self;
        let ces = |w: &World| (0..).zip(at_ces.iter()).all(|(vrf, id)| w.ce(vrf).adj_rib_in(0).is_complete(*id));
        world.run(|w| w.pe().adj_rib_in(0).is_complete(*at_pe) && ces(w))
    }

    /// Asserts that all routers have exactly the expected routes.
    fn assert_right(&self) {
        let pe = self.world.pe().adj_rib_in(0);
        let report = pe.report(self.at_pe);
        assert!(report.is_right() && (report.wrong_target, report.wrong_vrf) == (0, 0), "{report:?}");
        assert_eq!(pe.totals().unexpected, 0);
        for (vrf, id) in (0..).zip(&self.at_ces) {
            let ce = self.world.ce(vrf).adj_rib_in(0);
            assert!(ce.report(*id).is_right(), "VRF {vrf}: {:?}", ce.report(*id));
            assert_eq!(ce.totals().unexpected, 0, "VRF {vrf}");
        }
    }

    fn present(&self, vrf: u32) -> u32 {
        self.world.ce(vrf).adj_rib_in(0).present(self.at_ces[vrf as usize])
    }
}

fn host(routes: &Routes, route: u32) -> Ipv4Addr {
    let IpAddr::V4(first) = routes.prefix(route).address() else { panic!("IPv4") };
    Ipv4Addr::from_bits(first.to_bits() + 9)
}

/// A packet from a local site to a remote one, and back.
fn there(all: &Exchanged, route: u32, ttl: u8) -> Vec<u8> {
    packet(host(&all.local, 0), host(all.remote.routes(), route), ttl)
}

fn back(all: &Exchanged, route: u32, ttl: u8) -> Vec<u8> {
    packet(host(all.remote.routes(), 0), host(&all.local, route), ttl)
}

#[test]
fn routes_of_overlapping_vrfs_pass_in_both_directions() {
    let Exchanged { world, at_pe, .. } = Exchanged::new(config(VRFS), ROUTES);
    let truth = world.router.truth();
    let all = u64::from(2 * VRFS * ROUTES);
    assert_eq!((truth.bgp.routes_received, truth.bgp.routes_sent, truth.bgp.withdrawals_sent), (all, all, 0));
    assert_eq!((truth.bgp.paths, truth.bgp.routes, truth.bgp.fib_changes), (all, all, all));
    assert_eq!((truth.fib.vpn, truth.fib.ipv4), (all, 0));
    let refused = (truth.bgp.looped, truth.bgp.unreachable, truth.bgp.not_imported, truth.bgp.treated_as_withdrawn);
    assert_eq!(refused, (0, 0, 0, 0));
    let pe = world.pe().adj_rib_in(0);
    assert_eq!(pe.totals().updates, u64::from(VRFS) + 1, "one for each VRF, and the End-of-RIB");
    for vrf in 0..VRFS {
        assert_eq!(pe.label_of(at_pe, vrf, 0), Some(&[FIRST_VRF_LABEL + vrf][..]));
        assert_eq!(world.ce(vrf).adj_rib_in(0).totals().announcements, u64::from(ROUTES));
    }
}

#[test]
fn packets_carry_the_labels_of_their_route_and_lose_them_at_the_end() {
    // Labels of the path to the PE router, and true if labels have their own TTL.
    for (transport, pipe) in [(vec![], false), (vec![77], false), (vec![77, 78], true)] {
        let pushed = if transport.is_empty() { vec![] } else { vec![pushed(&transport)] };
        let mut all = Exchanged::new(Config { pushed, pipe, ..config(VRFS) }, ROUTES);
        let before = all.world.router.truth().forwarded;
        for (vrf, route) in [(0, 0), (1, 7), (2, ROUTES - 1)] {
            let frame = tagged(vrf, to_dut(CUSTOMERS), &there(&all, route, 64));
            let ttl = if pipe { 255 } else { 63 };
            let mut labels: Vec<_> = transport.iter().map(|label| (*label, ttl)).collect();
            labels.push((all.remote.label(vrf, route), ttl));
            let expected = labelled(from_dut(CORE), &labels, &there(&all, route, 63));
            assert_eq!(all.world.offer(CUSTOMERS, &frame), [(CORE, expected)], "VRF {vrf}");
            // The last P router has removed the transport label.
            let label = FIRST_VRF_LABEL + vrf;
            let frame = labelled(to_dut(CORE), &[(label, 40)], &back(&all, route, 50));
            let expected = tagged(vrf, from_dut(CUSTOMERS), &back(&all, route, if pipe { 49 } else { 39 }));
            assert_eq!(all.world.offer(CORE, &frame), [(CUSTOMERS, expected)], "VRF {vrf}");
        }
        assert_eq!(all.world.router.truth().forwarded, before + 6);
        assert_eq!(all.world.router.truth().dropped.total(), 0);
    }
}

#[test]
fn what_does_not_belong_to_a_vrf_does_not_pass() {
    let mut world = World::new(config(VRFS));
    let routes = prefixes("30.0.0.0/24", VRFS);
    // Each VRF has one prefix of its own, on both sides.
    let remote = remote(VRFS, routes.clone(), PrefixesPerVrf::Own);
    world.pe_says(Change::Advertise, &remote, 0..VRFS, 0..1);
    let local = prefixes("20.0.0.0/24", VRFS);
    (0..VRFS).for_each(|vrf| world.ce_says(vrf, Change::Advertise, &local, vrf..vrf + 1));
    assert!(world.run(|w| w.router.truth().fib.vpn == u64::from(2 * VRFS)));
    world.rest();
    let source = Ipv4Addr::new(20, 0, 0, 9);
    for (from, to) in (0..VRFS).flat_map(|from| (0..VRFS).map(move |to| (from, to))) {
        let own = u64::from(from != to);
        let before = *world.router.truth();
        let sent = world.offer(CUSTOMERS, &tagged(from, to_dut(CUSTOMERS), &packet(source, host(&routes, to), 64)));
        assert!(sent.iter().all(|(port, _)| (*port == CORE) == (from == to)), "an error goes back to its CE router");
        let inner = packet(Ipv4Addr::new(30, 0, 0, 9), host(&local, to), 64);
        let back = world.offer(CORE, &labelled(to_dut(CORE), &[(FIRST_VRF_LABEL + from, 64)], &inner));
        assert_eq!(back.len() as u64, 1 - own);
        let truth = world.router.truth();
        assert_eq!(truth.dropped.no_route, before.dropped.no_route + 2 * own, "{from} to {to}");
        assert_eq!(truth.forwarded, before.forwarded + 2 * (1 - own));
        assert_eq!(truth.icmp_errors, before.icmp_errors + own);
    }
    // The device's own table has no routes of VRFs, and a VRF has no routes of that table.
    let before = *world.router.truth();
    let [inner, to_p] = [host(&local, 0), world::P].map(|to| packet(source, to, 64));
    let untagged = labelled(to_dut(CORE), &[], &inner);
    let untagged = [&untagged[..12], &[8, 0], &inner[..]].concat();
    world.offer(CORE, &untagged);
    for own in [world::DUT_CORE, DUT_LOOPBACK, world::P] {
        let sent = world.offer(CUSTOMERS, &tagged(0, to_dut(CUSTOMERS), &packet(source, own, 64)));
        assert!(sent.iter().all(|(port, _)| *port == CUSTOMERS));
    }
    assert_eq!(world.router.truth().dropped.no_route, before.dropped.no_route + 4);
    // Unknown labels, a label above another one, an expired label, and labels from a CE router.
    let label = |labels: &[(u32, u8)]| labelled(to_dut(CORE), labels, &to_p);
    let vrf = FIRST_VRF_LABEL;
    for frame in
        [label(&[(vrf + VRFS, 64)]), label(&[(vrf - 1, 64)]), label(&[(vrf, 64), (17, 64)]), label(&[(vrf, 1)])]
    {
        assert_eq!(world.offer(CORE, &frame), []);
    }
    let from_ce = labelled(to_dut(CUSTOMERS), &[(vrf, 64)], &inner);
    let from_ce = [&from_ce[..12], &world::tag(0), &from_ce[12..]].concat();
    assert_eq!(world.offer(CUSTOMERS, &from_ce), []);
    let truth = world.router.truth();
    assert_eq!((truth.dropped.no_label, truth.dropped.malformed, truth.dropped.ttl), (2, 1, 1));
    assert_eq!(truth.ignored, before.ignored + 1);
}

#[test]
fn withdrawals_pass_in_both_directions() {
    let mut all = Exchanged::new(config(VRFS), ROUTES);
    let (local, remote) = (all.local.clone(), all.remote.clone());
    let before = all.world.router.truth().bgp;
    for change in [Change::Withdraw, Change::Advertise] {
        let present = change == Change::Advertise;
        let now = all.world.now;
        all.world.pe_mut().adj_rib_in_mut(0).change_vpn(now, all.at_pe, 1..2, 0..5, present);
        all.world.ce_mut(2).adj_rib_in_mut(0).change(now, all.at_ces[2], 3..10, present);
        all.world.ce_says(1, change, &local, 0..5);
        all.world.pe_says(change, &remote, 2..3, 3..10);
        assert!(all.complete());
        all.world.rest();
        all.assert_right();
        let gone = if present { 0 } else { 12 };
        let truth = all.world.router.truth();
        assert_eq!((truth.bgp.routes, truth.fib.vpn), (before.routes - gone, before.routes - gone));
        let frame = tagged(2, to_dut(CUSTOMERS), &there(&all, 3, 64));
        let to_core = all.world.offer(CUSTOMERS, &frame).iter().filter(|(port, _)| *port == CORE).count();
        assert_eq!(to_core, usize::from(present));
    }
    let after = all.world.router.truth().bgp;
    assert_eq!((after.withdrawals_received, after.withdrawals_sent), (12, 12));
    assert_eq!(after.routes_sent, before.routes_sent + 12);
}

#[test]
fn a_session_that_ends_takes_its_routes_with_it() {
    let mut all = Exchanged::new(config(VRFS), ROUTES);
    let (local, remote) = (all.local.clone(), all.remote.clone());
    // The CE router of VRF 1.
    let now = all.world.now;
    all.world.pe_mut().adj_rib_in_mut(0).change_vpn(now, all.at_pe, 1..2, 0..ROUTES, false);
    all.world.ce_mut(1).stop(now, 0);
    let at_pe = all.at_pe;
    assert!(all.world.run(|w| w.pe().adj_rib_in(0).is_complete(at_pe)));
    assert_eq!(all.world.router.truth().fib.vpn, u64::from((2 * VRFS - 1) * ROUTES));
    assert_eq!(all.world.router.truth().bgp.sessions, u64::from(VRFS));
    let now = all.world.now;
    all.world.pe_mut().adj_rib_in_mut(0).change_vpn(now, all.at_pe, 1..2, 0..ROUTES, true);
    all.world.start(1);
    assert!(all.world.run(World::is_up));
    all.world.ce_says(1, Change::Advertise, &local, 0..ROUTES);
    assert!(all.complete());
    all.assert_right();
    // The PE router.
    let now = all.world.now;
    all.world.pe_mut().stop(now, 0);
    assert!(all.world.run(|w| (0..VRFS).all(|vrf| w.ce(vrf).adj_rib_in(0).totals().withdrawals == u64::from(ROUTES))));
    assert_eq!((0..VRFS).map(|vrf| all.present(vrf)).sum::<u32>(), 0);
    assert_eq!(all.world.router.truth().fib.vpn, u64::from(VRFS * ROUTES));
    let now = all.world.now;
    all.world.pe_mut().start(now, 0);
    assert!(all.world.run(World::is_up));
    all.world.pe_says(Change::Advertise, &remote, 0..VRFS, 0..ROUTES);
    assert!(all.complete());
    all.assert_right();
}

#[test]
fn without_a_route_to_the_pe_its_routes_are_not_used() {
    let mut all = Exchanged::new(config(VRFS), ROUTES);
    type Step = fn(&mut World);
    let ways: [(Step, Step); 2] = [
        (
            |world| assert!(world.router.remove_route(world::pe().into(), 32)),
            |world| world.router.add_route(route_to_pe()).unwrap(),
        ),
        (|world| world.router.set_link(world.now, CORE, false), |world| world.router.set_link(world.now, CORE, true)),
    ];
    for (n, (lose, find)) in (1..).zip(ways) {
        lose(&mut all.world);
        let withdrawn = n * u64::from(ROUTES);
        assert!(all.world.run_for(Duration::from_secs(1), |w| {
            (0..VRFS).all(|vrf| w.ce(vrf).adj_rib_in(0).totals().withdrawals == withdrawn)
        }));
        let truth = all.world.router.truth();
        assert_eq!((truth.fib.vpn, truth.bgp.sessions), (u64::from(VRFS * ROUTES), u64::from(VRFS) + 1));
        assert_eq!(truth.bgp.paths, u64::from(2 * VRFS * ROUTES), "it keeps them");
        find(&mut all.world);
        assert!(all.complete());
        all.assert_right();
        assert_eq!(all.world.router.truth().fib.vpn, u64::from(2 * VRFS * ROUTES));
    }
}

#[test]
fn one_vpn_route_leaks_into_the_next_vrf() {
    let mut all = Exchanged::new(config(VRFS), ROUTES);
    // The label of the route of VRF `of` on packets of VRF `vrf`.
    let label = |all: &mut Exchanged, vrf: u32, route: u32| {
        let sent = all.world.offer(CUSTOMERS, &tagged(vrf, to_dut(CUSTOMERS), &there(all, route, 64)));
        let [(CORE, frame)] = &sent[..] else { panic!("{sent:?}") };
        u32::from_be_bytes([0, frame[14], frame[15], frame[16]]) >> 4
    };
    let own = |all: &Exchanged, vrf, route| all.remote.label(vrf, route);
    // The route leaks whether it is present when the fault begins or comes later, and no other route leaks.
    for later in [false, true] {
        if later {
            let (now, remote) = (all.world.now, all.remote.clone());
            all.world.pe_says(Change::Withdraw, &remote, 0..1, 0..1);
            all.world.ce_mut(0).adj_rib_in_mut(0).change(now, all.at_ces[0], 0..1, false);
            assert!(all.complete());
            all.world.rest();
            assert_eq!(label(&mut all, 1, 0), own(&all, 1, 0), "withdrawn, and its copy with it");
            all.world.pe_says(Change::Advertise, &remote, 0..1, 0..1);
            all.world.ce_mut(0).adj_rib_in_mut(0).change(now, all.at_ces[0], 0..1, true);
            assert!(all.complete());
        } else {
            all.world.set_faults(|faults| faults.bgp.leak_vpn_route = true);
        }
        all.world.rest();
        assert_eq!(label(&mut all, 1, 0), own(&all, 0, 0), "VRF 2 reaches the site of VRF 1");
        for (vrf, route) in (0..VRFS).flat_map(|vrf| (0..ROUTES).map(move |route| (vrf, route))) {
            if (vrf, route) != (1, 0) {
                assert_eq!(label(&mut all, vrf, route), own(&all, vrf, route));
            }
        }
        assert_eq!(all.world.router.truth().bgp.leaked, 1 + u64::from(later));
    }
    all.world.set_faults(|_| {});
    all.world.rest();
    assert_eq!(label(&mut all, 1, 0), own(&all, 1, 0));
    assert_eq!(all.world.router.truth().bgp.paths, u64::from(2 * VRFS * ROUTES));
}

#[test]
fn a_leaked_route_that_the_other_vrf_does_not_have_reaches_its_ce() {
    let mut world = World::new(config(2));
    world.set_faults(|faults| faults.bgp.leak_vpn_route = true);
    let routes = prefixes("30.0.0.0/24", 4);
    let remote = remote(2, routes.clone(), PrefixesPerVrf::Own);
    let expected = [0, 1].map(|vrf| world.ce_expects(vrf, &routes, 2 * vrf..2 * vrf + 2));
    world.pe_says(Change::Advertise, &remote, 0..2, 0..2);
    assert!(world.run(|w| (0..2).all(|vrf| w.ce(vrf).adj_rib_in(0).present(expected[vrf as usize]) == 2)));
    world.rest();
    let unexpected = [0, 1].map(|vrf| world.ce(vrf).adj_rib_in(0).unexpected(9));
    assert_eq!((unexpected[0].len(), unexpected[1].len()), (0, 1));
    assert_eq!(unexpected[1][0].prefix, routes.prefix(0));
    assert_eq!(world.router.truth().fib.vpn, 5);
}

#[test]
fn swapped_labels_exchange_the_packets_of_two_vrfs() {
    let mut all = Exchanged::new(config(VRFS), ROUTES);
    all.world.set_faults(|faults| faults.swap_vpn_labels = true);
    for (label, out) in [(0, 1), (1, 0), (2, 2)] {
        let frame = labelled(to_dut(CORE), &[(FIRST_VRF_LABEL + label, 64)], &back(&all, 3, 64));
        let expected = tagged(out, from_dut(CUSTOMERS), &back(&all, 3, 63));
        assert_eq!(all.world.offer(CORE, &frame), [(CUSTOMERS, expected)]);
    }
    assert_eq!(all.world.router.truth().vpn_swapped, 2);
}

/// Everything about VPN routes in an UPDATE as netgauze-bgp-pkt reads it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    announced: Vec<(u32, u16, String)>,
    withdrawn: Vec<(u16, String)>,
    next_hop: Option<IpAddr>,
    targets: Vec<(u16, u32)>,
}

fn heard_by_netgauze(body: &[u8]) -> Heard {
    let mut context = BgpParsingContext::new(true, HashMap::new(), HashMap::new(), true, true, true, true);
    let update = BgpUpdateMessage::parse(&mut SliceReader::new(body), &mut context).expect("an UPDATE");
    let number = |rd: RouteDistinguisher| match rd {
        RouteDistinguisher::Ipv4Administrator { ip, number } if ip == DUT_LOOPBACK => number,
        other => panic!("{other:?}"),
    };
    let mut heard = Heard::default();
    for attribute in update.path_attributes() {
        match attribute.value() {
            PathAttributeValue::MpReach(MpReach::Ipv4MplsVpnUnicast { next_hop, nlri }) => {
                heard.next_hop = Some(next_hop.next_hop());
                heard.announced.extend(nlri.iter().map(|route| {
                    let [label] = route.label_stack() else { panic!("{route:?}") };
                    let [a, b, c] = *label.value();
                    assert!(label.is_bottom());
                    let label = u32::from_be_bytes([0, a, b, c]) >> 4;
                    (label, number(route.rd()), route.network().address().to_string())
                }));
            }
            PathAttributeValue::MpUnreach(MpUnreach::Ipv4MplsVpnUnicast { nlri }) => {
                assert!(nlri.iter().all(|route| route.label_stack()[0].is_unreach_compatibility()));
                let gone = nlri.iter().map(|route| (number(route.rd()), route.network().address().to_string()));
                heard.withdrawn.extend(gone);
            }
            PathAttributeValue::ExtendedCommunities(communities) => {
                heard.targets.extend(communities.communities().iter().map(|community| match community {
                    ExtendedCommunity::TransitiveTwoOctet(TransitiveTwoOctetExtendedCommunity::RouteTarget {
                        global_admin,
                        local_admin,
                    }) => (*global_admin, *local_admin),
                    other => panic!("{other:?}"),
                }));
            }
            _ => {}
        }
    }
    heard
}

#[test]
fn netgauze_reads_the_vpn_routes_of_the_device() {
    let mut world = World::new(config(2));
    let end_of_rib = world.updates();
    assert_eq!(end_of_rib, [[0, 0, 0, 6, 0x80, 15, 3, 0, 1, 128]]);
    let local = prefixes("20.0.0.0/24", 3);
    world.ce_says(1, Change::Advertise, &local, 0..3);
    world.rest();
    world.ce_says(1, Change::Withdraw, &local, 0..2);
    world.rest();
    let heard: Vec<_> = world.updates().iter().map(|body| heard_by_netgauze(body)).collect();
    let name = |n| format!("20.0.{n}.0/24");
    let announced = Heard {
        announced: (0..3).map(|n| (FIRST_VRF_LABEL + 1, 2, name(n))).collect(),
        next_hop: Some(DUT_LOOPBACK.into()),
        targets: vec![(65_000, 2)],
        ..Heard::default()
    };
    let withdrawn = Heard { withdrawn: (0..2).map(|n| (2, name(n))).collect(), ..Heard::default() };
    assert_eq!(heard, [announced, withdrawn]);
}

/// An UPDATE with a VPN route of the emulated PE router: 30.0.`n`.0/24 of VRF 0.
fn vpn_update(attributes: &[&[u8]], n: u8) -> Vec<u8> {
    let rd = drophammer_model::label_edge::distinguisher(world::pe(), 0).distinguisher();
    let next_hop = [&[0; 8][..], &world::pe().octets()].concat();
    let nlri = [&[88 + 24, 0, 0x7d, 0x01][..], &rd, &[30, 0, n]].concat();
    let value = [&[0, 1, 128, 12][..], &next_hop, &[0], &nlri].concat();
    let reach = [&[0x80, 14, value.len() as u8][..], &value].concat();
    crate::speakers::update(&[], &[&[&reach[..]], attributes].concat().concat(), &[])
}

#[test]
fn malformed_vpn_routes_are_withdrawn_or_end_the_session() {
    let mut world = World::new(config(2));
    let routes = prefixes("30.0.0.0/24", 8);
    let expected = world.ce_expects(0, &routes, 0..8);
    let target = [&[0xc0, 16, 8][..], &target(0).route_target()].concat();
    let [origin, path, local_pref]: [&[u8]; 3] = [&[0x40, 1, 1, 0], &[0x40, 2, 0], &[0x40, 5, 4, 0, 0, 0, 100]];
    let sound: [&[u8]; 4] = [origin, path, local_pref, &target];
    let present = |world: &mut World, bytes: Vec<u8>| {
        world.pe_mut().adj_rib_out(0).raw(bytes);
        world.rest();
        world.ce(0).adj_rib_in(0).present(expected)
    };
    assert_eq!(present(&mut world, vpn_update(&sound, 0)), 1);
    assert_eq!(present(&mut world, vpn_update(&sound, 1)), 2);
    // A wrong ORIGIN, a truncated list and extended communities of a wrong length withdraw the route.
    assert_eq!(present(&mut world, vpn_update(&[&[0x40, 1, 1, 9], path, local_pref, &target], 0)), 1);
    assert_eq!(present(&mut world, vpn_update(&sound, 0)), 2);
    assert_eq!(present(&mut world, vpn_update(&[origin, path, local_pref, &[0xc0, 16, 7, 0, 2, 0, 0, 0, 0, 0]], 0)), 1);
    // A route without a target of this device belongs to no VRF, even if it did before.
    assert_eq!(present(&mut world, vpn_update(&[origin, path, local_pref], 1)), 0);
    let truth = world.router.truth().bgp;
    assert_eq!((truth.treated_as_withdrawn, truth.not_imported, truth.paths, truth.sessions), (2, 1, 0, 3));
    // The device's own AS in the path, and a reserved label.
    let own_as = [0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe8];
    assert_eq!(present(&mut world, vpn_update(&[origin, &own_as, local_pref, &target], 2)), 0);
    let mut reserved = vpn_update(&sound, 3);
    let at = reserved.windows(3).position(|three| three == [0, 0x7d, 0x01]).unwrap();
    reserved[at + 1] = 0;
    reserved[at + 2] = 0x31;
    assert_eq!(present(&mut world, reserved), 0);
    let truth = world.router.truth().bgp;
    assert_eq!((truth.looped, truth.unreachable, truth.paths), (1, 1, 2));
    // A prefix of 33 bits makes the routes of the UPDATE unreadable.
    let mut long = vpn_update(&sound, 4);
    let at = long.windows(3).position(|three| three == [0, 0x7d, 0x01]).unwrap();
    long[at - 1] = 88 + 33;
    world.pe_mut().adj_rib_out(0).raw(long);
    assert!(world.run(|w| w.pe().losses(0).0 == 1));
    let Some(Cause::PeerNotification(why)) = world.pe().losses(0).1 else { panic!("no NOTIFICATION") };
    assert_eq!((why.code, why.subcode, world.router.truth().bgp.paths), (3, 10, 0));
}

#[test]
fn the_loopback_address_and_those_of_all_vrfs_answer_pings() {
    let mut world = World::new(config(VRFS));
    let echo = |to: Ipv4Addr| Command::Ping(Echo { to: Some(to.into()), ..Echo::gateway(Family::Ipv4) });
    let before = world.router.truth().echo_replies;
    let asked =
        [(CUSTOMERS, 0, DUT_TO_CE), (CUSTOMERS, 2, DUT_TO_CE), (CORE, 0, DUT_LOOPBACK), (CORE, 0, world::DUT_CORE)];
    for (n, (port, vrf, to)) in (1..).zip(asked) {
        world.tell(port, vrf, "ping", &echo(to));
        world.rest();
        assert_eq!(world.router.truth().echo_replies, before + n);
        let stats = world.device(port, vrf).protocol::<Ping>().and_then(|ping| ping.stats(Family::Ipv4));
        assert!(stats.is_some_and(|stats| stats.asked > 0 && stats.received == stats.asked), "{stats:?}");
    }
}

#[test]
fn two_hundred_vrfs_with_a_hundred_routes_each() {
    let all = Exchanged::new(config(200), 100);
    assert_eq!(all.world.router.truth().fib.vpn, 2 * 200 * 100);
    assert_eq!(all.world.pe().adj_rib_in(0).totals().updates, 201);
}

#[test]
fn vrfs_that_cannot_be_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = config(2);
        change(&mut config);
        Router::new(config).err().expect("refused").to_string()
    };
    fn bgp(config: &mut Config) -> &mut BgpConfig {
        config.bgp.as_mut().unwrap()
    }
    for (change, part) in [
        ((|c| c.vrfs[1].interfaces = vec![1]) as fn(&mut Config), "sub-interfaces, not ports"),
        (|c| c.vrfs[1].interfaces.clear(), "it has no sub-interface"),
        (|c| c.vrfs[1].interfaces.push(9), "no port 9"),
        (|c| c.vrfs[1].interfaces = vec![2], "another VRF has its sub-interface"),
        (|c| c.vrfs[1].interfaces = vec![3, 3], "or it has it twice"),
        (|c| c.vrfs[1].target = c.vrfs[0].target, "another VRF has its route distinguisher or its route target"),
        (|c| c.vrfs[1].distinguisher = c.vrfs[0].distinguisher, "another VRF has its route distinguisher"),
        (|c| c.sub_interfaces[1].ipv4 = None, "each of its sub-interfaces has an IPv4 address"),
        (|c| c.loopback = None, "cannot be a BGP peer"),
        (|c| bgp(c).pe_peers.push(DUT_LOOPBACK), "cannot be a BGP peer"),
        (|c| bgp(c).pe_peers.push(world::pe()), "cannot be a BGP peer"),
        (
            |c| {
                let next_hop = world::P.into();
                c.labels.push(LabelRoute { label: FIRST_VRF_LABEL + 1, out: vec![], port: CORE, next_hop });
            },
            "a VRF has it",
        ),
        (|c| c.routes[0].port = 2, "no port 2"),
    ] {
        let error = refused(change);
        assert!(error.contains(part), "{error}");
    }
}
