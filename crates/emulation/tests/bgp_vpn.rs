//! A PE with many VRFs on one session and its peer, in virtual time: every route arrives with its distinguisher, target and label.

use drophammer_emulation::bgp::{
    BgpCommand, Distinguishers, ExpectationId, Expected, NextHops, Packing, PeerConfig, Routers, VpnPart, VpnRouteSet,
};
use drophammer_emulation::device::{Address, Device, DeviceConfig, DeviceId, Devices};
use drophammer_emulation::protocol::Command;
use drophammer_model::Instant;
use drophammer_model::routes::{
    AttributePattern, Change, Counting, FIRST_LABEL, GroupSizes, LabelPer, PrefixesPerVrf, RouteRange, VpnId,
    VpnRoutes, VrfRange,
};
use drophammer_wire::MacAddr;
use drophammer_wire::bgp::AfiSafi;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const LATENCY: Duration = Duration::from_micros(500);
const AS: u32 = 65_000;

fn address(side: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 1, side as u8 + 1)
}

/// The device of one side: a PE without IPv6 addresses.
fn device(side: usize) -> Device {
    let (own, peer) = (address(side).into(), address(1 - side).into());
    let config = PeerConfig {
        passive: side == 1,
        families: vec![AfiSafi::VPNV4, AfiSafi::VPNV6],
        next_hops: NextHops { ipv4: Some(address(side)), ..NextHops::default() },
        ..PeerConfig::new(own, peer, AS, AS, address(side))
    };
    let mac = MacAddr::local(side as u64 + 1);
    let mut device = Device::new(DeviceConfig {
        ipv4: Some(Address { address: address(side), prefix_len: 24, gateway: address(1 - side) }),
        ..DeviceConfig::new(format!("side {side}"), mac, 1)
    });
    device.add_protocol(Box::new(Routers::new(1, vec![config])));
    device
}

/// VRFs whose routes are all in one attribute group.
fn routes(ipv6: bool, vrfs: u32, per_vrf: u32, label_per: LabelPer) -> Arc<VpnRoutes> {
    let pattern = AttributePattern { routes_per_group: GroupSizes::Fixed(u32::MAX), ..AttributePattern::default() };
    let first = if ipv6 { "2a00::/64" } else { "20.0.0.0/24" };
    let prefixes = RouteRange::uniform(first.parse().unwrap(), per_vrf, 1, pattern).unwrap();
    let vrfs = VrfRange {
        count: vrfs,
        distinguisher: Counting::from(VpnId::as2(65_000, 1)),
        targets: vec![Counting::from(VpnId::as2(65_000, 100_001))],
        first_label: FIRST_LABEL,
        label_per,
    };
    Arc::new(VpnRoutes::new(vrfs, Arc::new(prefixes.into()), PrefixesPerVrf::Same).unwrap())
}

struct World {
    now: Instant,
    ports: [Devices; 2],
    ids: [DeviceId; 2],
    /// Frames in flight, by time of arrival and a number.
    wire: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    frames: u64,
}

impl World {
    /// An established session.
    fn new() -> World {
        let mut ports: [Devices; 2] = Default::default();
        let ids = [0, 1].map(|side| ports[side].add(device(side)).unwrap());
        let mut world = World { now: Instant(1_000_000), ports, ids, wire: BTreeMap::new(), frames: 0 };
        for side in [0, 1] {
            world.ports[side].command(world.now, ids[side], "bgp", &Command::Start).unwrap();
        }
        assert!(world.run(|world| [0, 1].iter().all(|side| world.routers(*side).established(0))));
        world
    }

    fn routers(&self, side: usize) -> &Routers {
        self.ports[side].get(self.ids[side]).protocol().unwrap()
    }

    fn routers_mut(&mut self, side: usize) -> &mut Routers {
        self.ports[side].protocol_mut(self.ids[side]).unwrap()
    }

    /// Runs until `enough`, for a minute at most. Returns whether it became true.
    fn run(&mut self, enough: impl Fn(&World) -> bool) -> bool {
        let end = self.now + Duration::from_secs(60);
        while !enough(self) && self.now < end {
            let World { now, ports, wire, frames, .. } = self;
            let mut next = end;
            for (side, port) in ports.iter_mut().enumerate() {
                port.poll(*now, 64 << 10, &mut |frame| {
                    *frames += 1;
                    wire.insert((*now + LATENCY, *frames), (1 - side, frame.to_vec()));
                });
                next = next.min(port.next_deadline().unwrap_or(end));
            }
            next = next.max(*now + Duration::from_micros(50));
            if let Some(((at, _), _)) = wire.first_key_value() {
                next = next.min(*at);
            }
            *now = next.min(end);
            while let Some(first) = wire.first_entry().filter(|first| first.key().0 <= *now) {
                let ((at, _), (to, frame)) = first.remove_entry();
                ports[to].receive(at, &frame, &mut |answer| {
                    *frames += 1;
                    wire.insert((at + LATENCY, *frames), (1 - to, answer.to_vec()));
                });
            }
        }
        enough(self)
    }

    fn expect(&mut self, routes: &Arc<VpnRoutes>, distinguishers: Distinguishers) -> ExpectationId {
        let next_hop = match routes.afi_safi() {
            AfiSafi::VPNV4 => address(0).into(),
            // RFC 4659 section 3.2.1.2.
            _ => address(0).to_ipv6_mapped().into(),
        };
        let expected = Expected {
            next_hop: Some(next_hop),
            check_attributes: true,
            times: true,
            labels: true,
            ..Expected::default()
        };
        let now = self.now;
        let keys = VpnPart { routes: routes.clone(), distinguishers };
        self.routers_mut(1).adj_rib_in_mut(0).expect_vpn(now, keys, expected)
    }

    fn say(&mut self, change: Change, routes: &Arc<VpnRoutes>, vrfs: Range<u32>, part: Range<u32>) {
        let set = VpnRouteSet { vrfs, part, ..VpnRouteSet::all(routes.clone(), Packing::default()) };
        let command = Command::Bgp(BgpCommand::VpnRoutes { peer: 0, change, set });
        self.ports[0].command(self.now, self.ids[0], "bgp", &command).unwrap();
    }

    fn complete(&mut self, id: ExpectationId) {
        let done =
            self.run(|world| world.routers(1).adj_rib_in(0).is_complete(id) && world.routers(0).all_acknowledged(0));
        assert!(done, "{:?}", self.routers(1).adj_rib_in(0).report(id));
    }
}

/// All routes of all VRFs arrive exactly once and correct, in a bounded number of UPDATEs.
fn all_arrive(
    ipv6: bool,
    vrfs: u32,
    per_vrf: u32,
    label_per: LabelPer,
    updates_per_vrf: u32,
) -> (World, Arc<VpnRoutes>, ExpectationId) {
    let routes = routes(ipv6, vrfs, per_vrf, label_per);
    let mut world = World::new();
    let id = world.expect(&routes, Distinguishers::Configured);
    world.say(Change::Advertise, &routes, 0..vrfs, 0..per_vrf);
    world.complete(id);
    let (report, totals) = (world.routers(1).adj_rib_in(0).report(id), world.routers(1).adj_rib_in(0).totals());
    let all = vrfs * per_vrf;
    assert!(report.is_right(), "{report:?}");
    assert_eq!((report.present, report.received, report.repeated), (all, u64::from(all), 0));
    assert_eq!((totals.updates, totals.unexpected), (u64::from(vrfs * updates_per_vrf), 0));
    let sent = world.routers(0).advertised(0);
    assert_eq!((sent.advertised, sent.sets, sent.skipped), (u64::from(all), u64::from(vrfs), 0));
    let adj_rib_in = world.routers(1).adj_rib_in(0);
    for vrf in 0..vrfs {
        for route in [0, 1, per_vrf / 2, per_vrf - 1] {
            assert_eq!(adj_rib_in.label_of(id, vrf, route), Some(&[routes.label(vrf, route)][..]), "{vrf} {route}");
        }
    }
    assert_eq!((adj_rib_in.label_of(id, vrfs, 0), adj_rib_in.label_of(id, 0, per_vrf)), (None, None));
    (world, routes, id)
}

#[test]
fn vrfs_1504_with_100_routes() {
    all_arrive(false, 1_504, 100, LabelPer::Vrf, 1);
}

#[test]
fn vrfs_1024_with_700_routes() {
    all_arrive(false, 1_024, 700, LabelPer::Route, 3);
}

#[test]
fn vrfs_of_ipv6_over_an_ipv4_core() {
    all_arrive(true, 300, 150, LabelPer::Ce(50), 1);
}

#[test]
fn fifty_thousand_of_800000_routes_flap() {
    let (mut world, routes, id) = all_arrive(false, 80, 10_000, LabelPer::Vrf, 38);
    // First 625 routes of each VRF, then all routes of five VRFs.
    for (vrfs, part) in [(0..80, 1_000..1_625), (7..12, 0..10_000)] {
        let n = (vrfs.len() * part.len()) as u32;
        assert_eq!(n, 50_000);
        let numbers = |vrf: u32| (vrf * 10_000 + part.start) as usize..(vrf * 10_000 + part.end) as usize;
        for (change, present) in [(Change::Withdraw, 750_000), (Change::Advertise, 800_000)] {
            let now = world.now;
            let advertise = change == Change::Advertise;
            world.routers_mut(1).adj_rib_in_mut(0).change_vpn(now, id, vrfs.clone(), part.clone(), advertise);
            let before = world.routers(1).adj_rib_in(0).report(id);
            assert_eq!((before.expected, before.missing + before.unexpected), (present, 50_000));
            world.say(change, &routes, vrfs.clone(), part.clone());
            world.complete(id);
            let adj_rib_in = world.routers(1).adj_rib_in(0);
            let report = adj_rib_in.report(id);
            assert_eq!((report.present, report.missing, report.unexpected, report.wrong), (present, 0, 0, 0));
            assert_eq!(report.received - before.received, if advertise { 50_000 } else { 0 });
            assert_eq!(report.withdrawn - before.withdrawn, if advertise { 0 } else { 50_000 });
            assert_eq!(report.withdrawn_in_error, 0);
            // Exactly these routes were sent, in the order of their VRFs.
            let times = adj_rib_in.times(id).unwrap();
            assert_eq!(times.iter().filter(|at| **at != u32::MAX).count(), 50_000);
            assert!(vrfs.clone().all(|vrf| times[numbers(vrf)].iter().all(|at| *at != u32::MAX)));
            let firsts: Vec<_> = vrfs.clone().map(|vrf| times[numbers(vrf)][0]).collect();
            assert!(firsts.is_sorted() && firsts[0] >= 500, "{firsts:?}");
            assert_eq!(adj_rib_in.label_of(id, vrfs.start, part.start).is_some(), advertise);
        }
    }
    // A route refresh makes the peer send everything again.
    assert!(world.routers_mut(1).request_refresh(0, AfiSafi::VPNV4));
    let refreshed = |world: &World| world.routers(1).adj_rib_in(0).report(id).repeated == 800_000;
    assert!(world.run(refreshed), "{:?}", world.routers(1).adj_rib_in(0).report(id));
    // When the session ends, all routes and labels are removed.
    world.ports[0].command(world.now, world.ids[0], "bgp", &Command::Stop).unwrap();
    assert!(world.run(|world| !world.routers(1).established(0)));
    let adj_rib_in = world.routers(1).adj_rib_in(0);
    assert_eq!((adj_rib_in.present(id), adj_rib_in.label_of(id, 0, 0)), (0, None));
}

#[test]
fn distinguishers_of_the_peer_are_learned_by_target() {
    let expected = routes(false, 50, 20, LabelPer::Vrf);
    let vrfs = VrfRange {
        distinguisher: Counting { first: "192.0.2.9:7".parse().unwrap(), step: 3 },
        first_label: 5_000,
        label_per: LabelPer::Route,
        ..expected.vrfs().clone()
    };
    let theirs = Arc::new(VpnRoutes::new(vrfs, expected.routes().clone(), PrefixesPerVrf::Same).unwrap());
    let mut world = World::new();
    let id = world.expect(&expected, Distinguishers::Learned);
    world.say(Change::Advertise, &theirs, 0..50, 0..20);
    world.complete(id);
    let adj_rib_in = world.routers(1).adj_rib_in(0);
    assert!(adj_rib_in.report(id).is_right() && adj_rib_in.totals().unexpected == 0);
    assert_eq!(adj_rib_in.label_of(id, 49, 19), Some(&[5_999][..]));
    let learned = adj_rib_in.learned_distinguishers(id);
    assert_eq!(learned.len(), 50);
    assert!(learned.iter().all(|(distinguisher, vrf)| theirs.vrf_of_distinguisher(*distinguisher) == Some(*vrf)));
    let now = world.now;
    world.routers_mut(1).adj_rib_in_mut(0).change_vpn(now, id, 3..4, 0..20, false);
    world.say(Change::Withdraw, &theirs, 3..4, 0..20);
    world.complete(id);
    assert_eq!(world.routers(1).adj_rib_in(0).report(id).present, 980);
}
