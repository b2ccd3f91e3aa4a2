//! 1,000 devices behind one port, each with its own VLAN tags and a BGP session, against as many peers; in virtual time.

use drophammer_emulation::bgp::{Expected, Packing, PeerConfig, RouteSource, Routers};
use drophammer_emulation::device::{Address, Device, DeviceConfig, DeviceId, Devices, Tag, Tags, tags};
use drophammer_emulation::protocol::{Command, Protocol};
use drophammer_model::Instant;
use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::trial::Family;
use drophammer_wire::MacAddr;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

const DEVICES: u16 = 1_000;
const ROUTES: u32 = 50;
const LATENCY: Duration = Duration::from_micros(500);
const AS: [u32; 2] = [65_001, 65_000];

/// Odd devices are in an 802.1Q VLAN, even devices have two tags.
fn tags_of(n: u16) -> Tags {
    let inner = Tag { tpid: tags::DOT1Q, vid: n % 500 + 1 };
    match n % 2 {
        1 => Tags::new(&[Tag { vid: 2_000 + n, ..inner }]).unwrap(),
        _ => Tags::new(&[Tag { tpid: tags::DOT1AD, vid: 100 + n / 500 }, inner]).unwrap(),
    }
}

/// All devices have the same addresses and differ only in their tags.
fn device(side: usize, n: u16) -> Device {
    let address = |side: usize| Ipv4Addr::new(198, 18, 1, side as u8 + 1);
    let router_id = Ipv4Addr::from_bits(0x0a00_0001 + ((side as u32) << 16) + u32::from(n));
    let (own, dut) = (address(side).into(), address(1 - side).into());
    let peer = PeerConfig { passive: side == 1, ..PeerConfig::new(own, dut, AS[side], AS[1 - side], router_id) };
    let mac = MacAddr::local((side as u64) << 20 | 7);
    let mut device = Device::new(DeviceConfig {
        tags: tags_of(n),
        ipv4: Some(Address { address: address(side), prefix_len: 24, gateway: address(1 - side) }),
        ..DeviceConfig::new(format!("side {side} device {n}"), mac, u64::from(n))
    });
    device.add_protocol(Box::new(Routers::new(u64::from(n), vec![peer]).with_buffer(16 << 10)));
    device
}

fn routes(n: u16) -> Arc<Routes> {
    Arc::new(RouteRange::internet(Family::Ipv4, ROUTES, u64::from(n)).unwrap().into())
}

struct World {
    now: Instant,
    ports: [Devices; 2],
    /// Frames in flight, by time of arrival and a number.
    wire: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    frames: u64,
}

impl World {
    /// Runs until `enough` is true, for at most `time`. Returns whether it became true.
    fn run(&mut self, time: Duration, enough: impl Fn(&[Devices; 2]) -> bool) -> bool {
        let end = self.now + time;
        loop {
            let World { now, ports, wire, frames } = self;
            let mut carry = |at: Instant, to: usize, frame: &[u8]| {
                *frames += 1;
                wire.insert((at + LATENCY, *frames), (to, frame.to_vec()));
            };
            let mut next = end;
            for (side, port) in ports.iter_mut().enumerate() {
                port.poll(*now, 64 << 10, &mut |frame| carry(*now, 1 - side, frame));
                next = next.min(port.next_deadline().unwrap_or(end));
            }
            if enough(ports) {
                return true;
            }
            if *now >= end {
                return false;
            }
            next = next.max(*now + Duration::from_micros(50));
            if let Some(((at, _), _)) = self.wire.first_key_value() {
                next = next.min(*at);
            }
            self.now = next.min(end);
            while let Some(first) = self.wire.first_entry().filter(|first| first.key().0 <= self.now) {
                let ((at, _), (to, frame)) = first.remove_entry();
                let World { ports, wire, frames, .. } = self;
                let claimed = ports[to].receive(at, &frame, &mut |answer| {
                    *frames += 1;
                    wire.insert((at + LATENCY, *frames), (1 - to, answer.to_vec()));
                });
                assert!(claimed, "each frame has its device");
            }
        }
    }
}

fn routers(port: &Devices, id: DeviceId) -> &Routers {
    port.get(id).protocol().unwrap()
}

fn all_up(ports: &[Devices; 2]) -> bool {
    ports.iter().all(|port| port.iter().all(|(_, d)| d.protocol::<Routers>().is_some_and(|r| r.established(0))))
}

#[test]
fn a_thousand_devices_in_vlans_of_their_own_speak_bgp_each_with_its_peer() {
    let began = Wall::now();
    let mut world = World { now: Instant(1_000_000), ports: Default::default(), wire: BTreeMap::new(), frames: 0 };
    let mut ids = Vec::new();
    for n in 0..DEVICES {
        let [a, b] = [0, 1].map(|side| world.ports[side].add(device(side, n)).unwrap());
        assert_eq!(a, b);
        ids.push(a);
    }
    for port in &mut world.ports {
        ids.iter().for_each(|id| port.command(world.now, *id, "bgp", &Command::Start).unwrap());
    }
    assert!(world.run(Duration::from_secs(10), all_up), "all sessions come up");
    let up_at = world.now;

    // Each device advertises a table of its own, which only its peer expects and receives.
    let tables: Vec<_> = (0..DEVICES).map(routes).collect();
    let expected = Expected {
        source: RouteSource::Peer,
        as_path_prefix: vec![AS[0]],
        next_hop: Some(Ipv4Addr::new(198, 18, 1, 1).into()),
        check_attributes: true,
        times: true,
        labels: false,
        label: None,
    };
    let expectations: Vec<_> = ids
        .iter()
        .zip(&tables)
        .map(|(id, table)| {
            let now = world.now;
            let [sender, verifier] = &mut world.ports;
            let adj_rib_out = sender.protocol_mut::<Routers>(*id).unwrap().adj_rib_out(0);
            adj_rib_out.advertise(table.clone(), 0..ROUTES, Packing::default());
            let adj_rib_in = verifier.protocol_mut::<Routers>(*id).unwrap().adj_rib_in_mut(0);
            adj_rib_in.expect(now, table.clone(), 0..ROUTES, expected.clone())
        })
        .collect();
    let complete = |ports: &[Devices; 2]| {
        ids.iter().zip(&expectations).all(|(id, e)| routers(&ports[1], *id).adj_rib_in(0).is_complete(*e))
    };
    assert!(world.run(Duration::from_secs(5), complete), "all routes arrive");
    for (id, expectation) in ids.iter().zip(&expectations) {
        let adj_rib_in = routers(&world.ports[1], *id).adj_rib_in(0);
        let report = adj_rib_in.report(*expectation);
        assert!(report.is_right() && report.present == ROUTES, "{report:?}");
        assert_eq!((report.wrong_next_hop, report.wrong_as_path, report.wrong_attributes), (0, 0, 0));
        assert_eq!((adj_rib_in.totals().unexpected, report.received), (0, u64::from(ROUTES)));
    }

    // Idle for two hold times: KEEPALIVEs keep all sessions up, and nothing else is sent.
    let frames = world.frames;
    world.run(Duration::from_secs(180), |_| false);
    assert!(all_up(&world.ports) && complete(&world.ports));
    let idle = world.frames - frames;
    // A KEEPALIVE each way about every 22 to 30 s with its acknowledgement, and ARP every 20 s with its reply.
    assert!((DEVICES as u64 * 20..DEVICES as u64 * 80).contains(&idle), "{idle} frames in 180 s");

    // One session ends; the others are not affected.
    world.ports[0].command(world.now, ids[7], "bgp", &Command::Stop).unwrap();
    let down = |ports: &[Devices; 2]| !routers(&ports[1], ids[7]).established(0);
    assert!(world.run(Duration::from_secs(1), down));
    for (n, id) in ids.iter().enumerate() {
        let state = routers(&world.ports[1], *id).state();
        assert_eq!(
            (state.sessions, state.up, state.counter("sessions_lost")),
            (1, u32::from(n != 7), u64::from(n == 7))
        );
    }
    println!(
        "{DEVICES} sessions up after {:.3} s of virtual time, {} routes verified, {} frames, {:.1} s of real time",
        up_at.0 as f64 / 1e9,
        u64::from(DEVICES) * u64::from(ROUTES),
        world.frames,
        began.elapsed().as_secs_f64(),
    );
}
