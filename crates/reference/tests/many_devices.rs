//! 1,000 emulated devices behind one port, each with its own VLAN tags and BGP session, against the reference device.

use drophammer_emulation::bgp::{Expected, Packing, PeerConfig, RouteSource, Routers};
use drophammer_emulation::device::{Address, Device, DeviceConfig, DeviceId, Devices, Tag, Tags, tags};
use drophammer_emulation::protocol::Command;
use drophammer_model::Instant;
use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::suite::VlanTag;
use drophammer_model::trial::Family;
use drophammer_reference::{BgpConfig, BgpPeer, Config, PortConfig, Router, SubInterface};
use drophammer_wire::MacAddr;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

const DEVICES: u16 = 1_000;
/// Devices that advertise, and routes of each.
const SENDERS: u16 = 4;
const ROUTES: u32 = 50;
const DUT: u32 = 65_000;
const DUT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);

fn asn(n: u16) -> u32 {
    1_000 + u32::from(n)
}

fn address(n: u16, host: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a40_0000 + 4 * u32::from(n) + host)
}

/// Odd ones are in an 802.1Q VLAN, even ones have two tags.
fn tags_of(n: u16) -> Vec<Tag> {
    let inner = Tag { tpid: tags::DOT1Q, vid: n % 500 + 1 };
    match n % 2 {
        1 => vec![Tag { vid: 2_000 + n, ..inner }],
        _ => vec![Tag { tpid: tags::DOT1AD, vid: 100 + n / 500 }, inner],
    }
}

fn device(n: u16) -> Device {
    let peer = PeerConfig::new(address(n, 2).into(), address(n, 1).into(), asn(n), DUT, address(n, 2));
    let mut device = Device::new(DeviceConfig {
        tags: Tags::new(&tags_of(n)).unwrap(),
        ipv4: Some(Address { address: address(n, 2), prefix_len: 30, gateway: address(n, 1) }),
        ..DeviceConfig::new(format!("device {n}"), MacAddr::local(0x7000 + u64::from(n)), u64::from(n))
    });
    device.add_protocol(Box::new(Routers::new(u64::from(n), vec![peer]).with_buffer(16 << 10)));
    device
}

fn config() -> Config {
    let sub = |n| SubInterface {
        port: 0,
        tags: tags_of(n).into_iter().map(|tag| VlanTag { tpid: tag.tpid, vid: tag.vid }).collect(),
        ipv4: Some((address(n, 1), 30)),
        ipv6: None,
    };
    let peer = |n: u16| BgpPeer {
        port: 1 + usize::from(n),
        address: address(n, 2).into(),
        asn: asn(n),
        connect: false,
        client: false,
    };
    Config {
        ports: vec![PortConfig::new(DUT_MAC)],
        sub_interfaces: (0..DEVICES).map(sub).collect(),
        bgp: Some(BgpConfig { asn: DUT, peers: (0..DEVICES).map(peer).collect(), ..BgpConfig::default() }),
        ..Config::default()
    }
}

struct World {
    now: Instant,
    router: Router,
    devices: Devices,
}

impl World {
    /// Runs until `enough`, for `time` at most. Returns whether it was enough.
    fn run(&mut self, time: Duration, enough: impl Fn(&World) -> bool) -> bool {
        let end = self.now + time;
        loop {
            let World { now, router, devices } = self;
            let now = *now;
            let mut outgoing = Vec::new();
            devices.poll(now, 64 << 10, &mut |frame| outgoing.push(frame.to_vec()));
            let mut sent = Vec::new();
            outgoing.iter().for_each(|frame| router.receive(now, 0, frame));
            router.poll(now, &mut |_, _, frame| sent.push(frame.to_vec()));
            outgoing.clear();
            for frame in &sent {
                assert!(
                    devices.receive(now, frame, &mut |answer| outgoing.push(answer.to_vec())),
                    "each frame has its device"
                );
            }
            outgoing.iter().for_each(|frame| router.receive(now, 0, frame));
            if enough(self) {
                return true;
            }
            if self.now >= end {
                return false;
            }
            let next = self.devices.next_deadline().into_iter().chain(self.router.next_deadline()).min();
            self.now = next.unwrap_or(end).clamp(now + Duration::from_micros(50), end);
        }
    }

    fn routers(&self, id: DeviceId) -> &Routers {
        self.devices.get(id).protocol().unwrap()
    }
}

#[test]
fn a_thousand_emulated_devices_in_vlans_of_their_own_exchange_routes_through_the_device() {
    let mut world =
        World { now: Instant(1_000_000), router: Router::new(config()).unwrap(), devices: Devices::default() };
    let ids: Vec<_> = (0..DEVICES).map(|n| world.devices.add(device(n)).unwrap()).collect();
    for id in &ids {
        world.devices.command(world.now, *id, "bgp", &Command::Start).unwrap();
    }
    let up = |world: &World| world.router.truth().bgp.sessions == u64::from(DEVICES);
    assert!(world.run(Duration::from_secs(10), up), "{:?}", world.router.truth());
    assert!(world.run(Duration::from_secs(1), |w| ids.iter().all(|id| w.routers(*id).established(0))));

    // Each sender has its own table, which must be advertised to all others.
    let now = world.now;
    let mut expectations = Vec::new();
    for sender in 0..SENDERS {
        let table: Arc<Routes> =
            Arc::new(RouteRange::internet(Family::Ipv4, ROUTES, 1 + u64::from(sender)).unwrap().into());
        for (n, id) in (0..DEVICES).zip(&ids) {
            let bgp = world.devices.protocol_mut::<Routers>(*id).unwrap();
            if n == sender {
                bgp.adj_rib_out(0).advertise(table.clone(), 0..ROUTES, Packing::default());
                continue;
            }
            let expected = Expected {
                source: RouteSource::External,
                as_path_prefix: vec![DUT, asn(sender)],
                next_hop: Some(address(n, 1).into()),
                check_attributes: true,
                times: false,
            };
            let expectation = bgp.adj_rib_in_mut(0).expect(now, table.clone(), 0..ROUTES, expected);
            expectations.push((*id, expectation));
        }
    }
    let complete = |w: &World| expectations.iter().all(|(id, e)| w.routers(*id).adj_rib_in(0).is_complete(*e));
    let done = world.run(Duration::from_secs(10), complete);
    let truth = *world.router.truth();
    assert!(done, "{truth:?}");
    for (id, expectation) in &expectations {
        let report = world.routers(*id).adj_rib_in(0).report(*expectation);
        assert!(report.is_right() && report.present == ROUTES, "{report:?}");
    }
    assert_eq!(truth.bgp.paths, u64::from(SENDERS) * u64::from(ROUTES));
    assert_eq!(truth.bgp.routes_sent, truth.bgp.routes * u64::from(DEVICES - 1));
    assert_eq!((truth.unknown_vlan, truth.bgp.sessions, truth.bgp.established), (0, DEVICES.into(), DEVICES.into()));
}
