//! Two sets of routers on one link, in virtual time: the second set acts as the DUT.

use super::*;
use crate::bgp::{ExpectationId, Expected, GracefulRestartConfig, Packing, RouteSource};
use crate::compose::Link;
use crate::device::{Address, Device, DeviceConfig};
use crate::protocol::Command;
use crate::tcp::{CloseReason, ConnState, Protection, TcpConfig, link};
use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::trial::Family;
use drophammer_wire::MacAddr;
use drophammer_wire::bgp::message::{MAX_LEN, kind};
use drophammer_wire::bgp::notification::{cease, code};
use drophammer_wire::bgp::{AfiSafi, frame};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;

mod protection;

const HOLD: Duration = Duration::from_secs(9);

type Check = Box<dyn Fn(&[u8])>;
type Change = Box<dyn Fn(&mut [u8])>;

/// The tester and the DUT, and the packets in flight between them.
struct World {
    now: Instant,
    sides: [Side; 2],
    wire: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    latency: Duration,
    packets: u64,
    /// True if the packet with this number is lost.
    lost: fn(u64) -> bool,
    /// Checks each sent packet.
    check: Option<Check>,
    /// Changes each packet in flight.
    change: Option<Change>,
}

/// The device of one side, with access to its routers.
struct Side {
    device: Device,
}

const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 0]), MacAddr([2, 0, 0, 0, 0, 1])];

impl Deref for Side {
    type Target = Routers;

    fn deref(&self) -> &Routers {
        self.device.protocol().unwrap()
    }
}

impl DerefMut for Side {
    fn deref_mut(&mut self) -> &mut Routers {
        self.device.protocol_mut().unwrap()
    }
}

impl Side {
    /// Handles an IP packet; false if it is not TCP for a router of this side.
    fn receive(&mut self, now: Instant, packet: &[u8]) -> bool {
        let mut frame = vec![0; link::frame_len(packet)];
        let own = self.device.mac();
        let ends = Link { source: MACS[usize::from(own == MACS[0])], destination: own };
        link::write_frame(&mut frame, ends, packet);
        let before = self.device.tcp().segments_received();
        // Other packets would get an immediate answer, if any.
        self.device.receive(now, &frame, &mut |_| panic!("an answer that is not TCP's"));
        self.device.tcp().segments_received() > before
    }

    /// Polls the routers, and passes to `out` each IP packet that they send.
    fn poll(&mut self, now: Instant, quota: usize, out: &mut dyn FnMut(&[u8])) {
        self.device.poll(now, quota, &mut |frame| {
            assert_eq!(frame[..6], MACS[usize::from(frame[11] == 0)].0);
            out(&frame[14..]);
        });
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.device.next_deadline()
    }
}

/// Routers of one side. The other `side` has the addresses of the peers.
fn routers(side: u8, count: u16, passive: bool, seed: u64) -> Side {
    protected(side, count, passive, seed, &Protection::default())
}

/// Like [`routers`], with protected sessions.
fn protected(side: u8, count: u16, passive: bool, seed: u64, protection: &Protection) -> Side {
    let address = |side, i: u16| Ipv4Addr::new(198, 18 + side, (i >> 8) as u8, i as u8 + 1);
    let config = |i| PeerConfig {
        hold: HOLD,
        passive,
        protection: protection.clone(),
        ..PeerConfig::new(
            address(side, i).into(),
            address(1 - side, i).into(),
            65_000 + u32::from(side),
            65_001 - u32::from(side),
            Ipv4Addr::new(100, 64 + side, (i >> 8) as u8, i as u8 + 1),
        )
    };
    let own = Address { address: address(side, 0), prefix_len: 8, gateway: address(1 - side, 0) };
    let mac = MACS[usize::from(side)];
    let mut device = Device::new(DeviceConfig { ipv4: Some(own), ..DeviceConfig::new("side", mac, seed) });
    device.fix_gateway(MACS[usize::from(1 - side)]);
    device.add_protocol(Box::new(Routers::new(seed, (0..count).map(config).collect())));
    Side { device }
}

#[test]
fn many_devices_share_the_memory_for_buffers() {
    let address = |n: u8| IpAddr::from([198, 18, 0, n]);
    let peers = |count: u8| {
        let peer = |n| PeerConfig::new(address(n), address(1), 65_000, 65_001, Ipv4Addr::new(198, 18, 0, n));
        (2..2 + count).map(peer).collect::<Vec<_>>()
    };
    let buffer = |tcp_memory: usize, count: u8| {
        let config = DeviceConfig { tcp_memory, ..DeviceConfig::new("d", MACS[0], 1) };
        Routers::configured(&config, &peers(count)).unwrap().buffer
    };
    assert_eq!((buffer(TCP_MEMORY, 1), buffer(TCP_MEMORY, 2)), (512 << 10, 512 << 10), "the largest buffers");
    assert_eq!((buffer(1 << 20, 2), buffer(1 << 20, 4)), (256 << 10, 128 << 10), "two for each session");
    assert_eq!(buffer(0, 1), 16 << 10, "the smallest");
}

impl World {
    fn new(count: u16, passive: [bool; 2], seed: u64) -> World {
        World {
            now: Instant(1_000_000),
            sides: [0, 1].map(|side| routers(side, count, passive[usize::from(side)], seed + u64::from(side))),
            wire: BTreeMap::new(),
            latency: Duration::from_millis(1),
            packets: 0,
            lost: |_| false,
            check: None,
            change: None,
        }
    }

    /// Like [`World::new`], with all routers started.
    fn started(count: u16, passive: [bool; 2]) -> World {
        let mut world = World::new(count, passive, 7);
        let now = world.now;
        for side in &mut world.sides {
            (0..side.len()).for_each(|peer| side.start(now, peer));
        }
        world
    }

    /// Runs both sides until `enough` is true, for `time` at most. Returns whether it became true.
    fn run(&mut self, time: Duration, enough: impl Fn(&[Side; 2]) -> bool) -> bool {
        let end = self.now + time;
        loop {
            let World { now, sides, wire, latency, packets, lost, check, change } = self;
            let mut next = end;
            for (at, side) in sides.iter_mut().enumerate() {
                side.poll(*now, 64 << 10, &mut |packet| {
                    *packets += 1;
                    check.iter().for_each(|check| check(packet));
                    if !lost(*packets) {
                        let mut packet = packet.to_vec();
                        change.iter().for_each(|change| change(&mut packet));
                        wire.insert((*now + *latency, *packets), (1 - at, packet));
                    }
                });
                next = next.min(side.next_deadline().unwrap_or(end));
            }
            if enough(sides) {
                return true;
            }
            if *now >= end {
                return false;
            }
            next = next.max(*now + Duration::from_micros(50));
            if let Some((at, _)) = wire.first_key_value().map(|(key, _)| *key) {
                next = next.min(at);
            }
            *now = next.min(end);
            while let Some(first) = wire.first_entry().filter(|first| first.key().0 <= *now) {
                let (to, packet) = first.remove();
                assert!(sides[to].receive(*now, &packet));
            }
        }
    }

    fn wait(&mut self, seconds: f64) {
        self.run(Duration::from_secs_f64(seconds), |_| false);
    }

    /// Runs until all sessions are up on both sides.
    fn up(&mut self, seconds: f64) -> bool {
        self.run(Duration::from_secs_f64(seconds), all_up)
    }

    /// The DUT's router expects `routes` from its peer.
    fn expect(&mut self, peer: usize, routes: &Arc<Routes>) -> ExpectationId {
        let from = self.sides[0].session(peer).config();
        let expected = Expected {
            source: RouteSource::Peer,
            as_path_prefix: vec![from.local_as],
            next_hop: Some(Ipv4Addr::new(198, 18, (peer >> 8) as u8, peer as u8 + 1).into()),
            check_attributes: true,
            times: true,
            labels: false,
            label: None,
        };
        let now = self.now;
        self.sides[1].adj_rib_in_mut(peer).expect(now, routes.clone(), 0..routes.len(), expected)
    }

    fn advertise(&mut self, peer: usize, routes: &Arc<Routes>) {
        self.sides[0].adj_rib_out(peer).advertise(routes.clone(), 0..routes.len(), Packing::default());
    }
}

fn all_up(sides: &[Side; 2]) -> bool {
    sides.iter().all(|side| (0..side.len()).all(|peer| side.established(peer)))
}

fn routes(count: u32, seed: u64) -> Arc<Routes> {
    Arc::new(RouteRange::internet(Family::Ipv4, count, seed).unwrap().into())
}

#[test]
fn routes_go_from_one_to_the_other_and_are_taken_back() {
    let mut world = World::started(1, [false, true]);
    let all = routes(5_000, 3);
    let id = world.expect(0, &all);
    // Sent as soon as there is a session.
    world.advertise(0, &all);
    assert!(!world.sides[0].all_acknowledged(0));
    assert!(world.run(Duration::from_secs(2), |sides| sides[1].adj_rib_in(0).is_complete(id)));
    let report = world.sides[1].adj_rib_in(0).report(id);
    assert_eq!((report.present, report.missing, report.received), (5_000, 0, 5_000));
    // A MED from the speaker itself is right, but the Adj-RIB-In expects the routes from a router behind it.
    assert_eq!((report.wrong_next_hop, report.wrong_as_path), (0, 0));
    assert!(world.run(Duration::from_secs(1), |sides| sides[0].all_acknowledged(0)), "acknowledged");
    assert_eq!((world.sides[0].advertised(0).advertised, world.sides[1].adj_rib_in(0).totals().unexpected), (5_000, 0));
    // A part is withdrawn again; the withdrawal arrives one latency later.
    let now = world.now;
    world.sides[1].adj_rib_in_mut(0).change(now, id, 1_000..2_000, false);
    world.sides[0].adj_rib_out(0).withdraw(all.clone(), 1_000..2_000, Packing::default());
    assert!(world.run(Duration::from_secs(1), |sides| sides[1].adj_rib_in(0).is_complete(id)));
    let times = world.sides[1].adj_rib_in(0).times(id).unwrap();
    assert!(times.iter().enumerate().all(|(i, us)| *us == if (1_000..2_000).contains(&i) { 1_000 } else { u32::MAX }));
    assert_eq!(world.sides[0].losses(0), (0, None));
}

#[test]
fn who_is_asked_says_again_what_it_has_announced_and_not_withdrawn() {
    let mut world = World::started(1, [false, true]);
    assert!(world.up(4.0));
    let all = routes(5_000, 3);
    world.advertise(0, &all);
    world.sides[0].adj_rib_out(0).withdraw(all.clone(), 1_000..2_000, Packing::default());
    assert!(world.run(Duration::from_secs(1), |sides| sides[0].all_acknowledged(0)));
    world.wait(0.1);
    // An expectation that begins only now has received none of them.
    let id = world.expect(0, &all);
    let now = world.now;
    world.sides[1].adj_rib_in_mut(0).change(now, id, 1_000..2_000, false);
    assert_eq!(world.sides[1].adj_rib_in(0).present(id), 0);
    assert!(!world.sides[1].request_refresh(0, AfiSafi::IPV6_UNICAST), "not agreed on");
    assert!(world.sides[1].request_refresh(0, AfiSafi::IPV4_UNICAST));
    assert!(world.run(Duration::from_secs(1), |sides| sides[1].adj_rib_in(0).is_complete(id)));
    world.wait(0.1);
    assert_eq!(world.sides[1].adj_rib_in(0).present(id), 4_000);
    assert_eq!((world.sides[0].advertised(0).advertised, world.sides[0].advertised(0).withdrawn), (9_000, 1_000));
    // Both support the markers of RFC 7313.
    assert_eq!(world.sides[1].session(0).received().route_refreshes, 2);
    assert_eq!(world.sides[0].losses(0), (0, None));
}

#[test]
fn routes_that_a_refresh_of_the_dut_leaves_out_are_gone() {
    let mut world = World::started(1, [false, true]);
    assert!(world.up(4.0));
    let all = routes(1_000, 3);
    let id = world.expect(0, &all);
    world.advertise(0, &all);
    let has = |count| move |sides: &[Side; 2]| sides[1].adj_rib_in(0).present(id) == count;
    assert!(world.run(Duration::from_secs(1), has(1_000)));
    let marker = |subtype| {
        let mut bytes = vec![0; bgp::route_refresh::LEN];
        bgp::RouteRefresh { family: AfiSafi::IPV4_UNICAST, subtype }.emit(&mut bytes);
        bytes
    };
    let adj_rib_out = world.sides[0].adj_rib_out(0);
    adj_rib_out.raw(marker(bgp::route_refresh::subtype::BEGIN));
    adj_rib_out.advertise(all.clone(), 100..1_000, Packing::default());
    adj_rib_out.raw(marker(bgp::route_refresh::subtype::END));
    assert!(world.run(Duration::from_secs(1), has(900)));
    let report = world.sides[1].adj_rib_in(0).report(id);
    assert_eq!((report.missing, report.repeated, report.withdrawn_in_error), (100, 900, 100));
    assert_eq!(world.sides[1].adj_rib_in(0).missing(id, 1), [all.prefix(0)]);
    assert_eq!(world.sides[1].losses(0), (0, None));
}

#[test]
fn who_is_stopped_says_so_and_stays_down_until_it_is_started() {
    let mut world = World::started(2, [false, false]);
    assert!(world.up(4.0));
    let all = routes(100, 4);
    let id = world.expect(0, &all);
    world.advertise(0, &all);
    assert!(world.run(Duration::from_secs(1), |sides| sides[1].adj_rib_in(0).is_complete(id)));
    let now = world.now;
    world.sides[0].stop(now, 0);
    assert!(!world.sides[0].idle(0), "it has not said it yet");
    assert!(world.run(Duration::from_millis(100), |sides| sides[0].idle(0)));
    world.wait(0.1);
    let (losses, cause) = world.sides[1].losses(0);
    let Some(Cause::PeerNotification(notification)) = cause else { panic!("{cause:?}") };
    assert_eq!((losses, notification.code, notification.subcode), (1, code::CEASE, cease::ADMINISTRATIVE_SHUTDOWN));
    assert_eq!((world.sides[1].adj_rib_in(0).present(id), world.sides[0].losses(0)), (0, (0, None)));
    // The other side tries to connect in vain; the second pair is not affected.
    world.wait(20.0);
    assert!(world.sides[0].idle(0) && !world.sides[1].established(0));
    assert!(world.sides[0].established(1) && world.sides[1].established(1));
    let now = world.now;
    world.sides[0].start(now, 0);
    assert!(world.up(3.0));
    // The other side has forgotten the routes, so they must be advertised again.
    world.wait(1.0);
    assert_eq!(world.sides[1].adj_rib_in(0).present(id), 0);
    world.advertise(0, &all);
    assert!(world.run(Duration::from_secs(1), |sides| sides[1].adj_rib_in(0).is_complete(id)));
    world.sides[1].clear_tables(0);
    assert_eq!(world.sides[1].losses(0), (0, None));
}

#[test]
fn who_is_notified_hears_why_and_the_session_comes_back_with_its_routes() {
    let mut world = World::started(2, [false, true]);
    assert!(world.up(4.0));
    let all = routes(100, 4);
    let id = world.expect(0, &all);
    world.sides[0].keep_routes(0, true);
    world.advertise(0, &all);
    assert!(world.run(Duration::from_secs(1), |sides| sides[1].adj_rib_in(0).is_complete(id)));
    let why = Notification::bare(code::HOLD_TIMER_EXPIRED, 0);
    let notify = |world: &mut World| {
        let command = Command::Bgp(BgpCommand::Notify { peer: 0, notification: why.clone() });
        world.sides[0].device.command(world.now, "bgp", &command).unwrap();
    };
    notify(&mut world);
    assert!(world.run(Duration::from_millis(100), |sides| sides[1].losses(0).0 == 1));
    assert_eq!(world.sides[1].losses(0), (1, Some(&Cause::PeerNotification(why.clone()))));
    assert_eq!(world.sides[0].losses(0), (1, Some(&Cause::SentNotification(why.clone()))));
    assert_eq!(world.sides[1].adj_rib_in(0).present(id), 0);
    // Without a connection there is nobody to tell.
    notify(&mut world);
    assert!(world.run(Duration::from_secs(3), |sides| all_up(sides) && sides[1].adj_rib_in(0).is_complete(id)));
    let (told, heard) = (world.sides[0].session(0).sent(), world.sides[1].session(0).received());
    assert_eq!((told.notifications, heard.notifications, told.opens, heard.opens), (1, 1, 2, 2));
    assert_eq!((world.sides[0].losses(1), world.sides[1].losses(1)), ((0, None), (0, None)));
}

#[test]
fn who_restarts_gracefully_says_so_once_and_marks_the_end_of_its_routes() {
    let graceful = GracefulRestartConfig {
        restart_time: Duration::from_secs(45),
        notification: true,
        restarted: false,
        forwarding: true,
    };
    let all = routes(100, 4);
    for (notification, cause) in [
        (None, Cause::TcpReset),
        (Some(Notification::bare(code::CEASE, 4)), Cause::PeerNotification(Notification::bare(code::CEASE, 4))),
    ] {
        let mut world = World::new(1, [false, false], 7);
        for side in 0..2 {
            let config = PeerConfig { graceful_restart: Some(graceful), ..world.sides[side].peers[0].config().clone() };
            world.sides[side].device.add_protocol(Box::new(Routers::new(side as u64, vec![config])));
            let now = world.now;
            world.sides[side].start(now, 0);
        }
        let id = world.expect(0, &all);
        world.sides[0].keep_routes(0, true);
        world.advertise(0, &all);
        let has_all = |sides: &[Side; 2]| {
            let adj_rib_in = sides[1].adj_rib_in(0);
            adj_rib_in.is_complete(id) && adj_rib_in.end_of_rib(AfiSafi::IPV4_UNICAST).is_some()
        };
        let restarted = |world: &World| {
            let agreed = world.sides[1].session(0).negotiated().unwrap();
            assert_eq!(agreed.peer_kept_forwarding(AfiSafi::IPV4_UNICAST), Some(true));
            agreed.graceful_restart.as_ref().unwrap().restarted
        };
        assert!(world.run(Duration::from_secs(5), has_all) && !restarted(&world));
        let (left, away) = (world.now, Duration::from_secs(20));
        let command = Command::Bgp(BgpCommand::Restart { peer: 0, away, notification });
        world.sides[0].device.command(left, "bgp", &command).unwrap();
        assert!(world.run(Duration::from_millis(100), |sides| sides[1].losses(0).0 == 1));
        assert_eq!(world.sides[1].losses(0), (1, Some(&cause)));
        // The peer connects in vain until then.
        assert!(world.run(Duration::from_secs(30), |sides| sides[0].established(0)));
        assert!((away..away + Duration::from_secs(2)).contains(&world.now.since(left)), "{:?}", world.now.since(left));
        assert!(world.run(Duration::from_secs(1), has_all) && restarted(&world));
        let now = world.now;
        world.sides[0].notify(now, 0, Notification::bare(code::CEASE, 4));
        assert!(world.run(Duration::from_secs(5), |sides| sides[1].losses(0).0 == 2));
        assert!(world.run(Duration::from_secs(5), has_all) && !restarted(&world), "it did not restart this time");
    }
}

#[test]
fn who_is_stopped_and_started_at_once_comes_back() {
    for (stopped, passive) in [(0, [false, true]), (0, [true, false]), (1, [false, false]), (1, [false, true])] {
        // Without a pause, the last message is never sent.
        for pause_us in [None, Some(0.0), Some(50.0), Some(500.0), Some(3_000.0)] {
            let mut world = World::started(1, passive);
            assert!(world.up(4.0));
            let now = world.now;
            world.sides[stopped].stop(now, 0);
            pause_us.into_iter().for_each(|us: f64| world.wait(us / 1e6));
            let now = world.now;
            world.sides[stopped].start(now, 0);
            // The other side detects it, and the session comes up again.
            assert!(
                world.run(Duration::from_secs(1), |sides| sides[1 - stopped].losses(0).0 == 1),
                "{passive:?} {pause_us:?}"
            );
            assert!(world.up(4.0), "{stopped} {passive:?} {pause_us:?}");
            world.wait(30.0);
            assert!(all_up(&world.sides) && world.sides[stopped].losses(0).0 == 0);
        }
    }
}

#[test]
fn of_two_that_connect_at_the_same_time_one_session_comes_about() {
    let mut collisions = 0;
    for seed in 0..20 {
        for later_us in [0.0, 300.0, 1_000.0, 1_500.0, 2_500.0] {
            let mut world = World::new(3, [false, false], seed * 100);
            let told = Rc::new(Cell::new(0));
            let seen = told.clone();
            world.check = Some(Box::new(move |packet| seen.set(seen.get() + notifications(packet))));
            for side in 0..2 {
                let now = world.now;
                (0..3).for_each(|peer| world.sides[side].start(now, peer));
                world.wait(later_us / 1e6);
            }
            assert!(world.up(4.0), "{seed} {later_us}");
            world.wait(30.0);
            let counted = |side: &Side| (0..3).map(|peer| side.session(peer).sent().notifications).sum::<u64>();
            assert_eq!(world.sides.iter().map(counted).sum::<u64>(), told.get(), "{seed} {later_us}");
            collisions += u32::from(told.get() > 0);
            for side in &world.sides {
                (0..3).for_each(|peer| assert_eq!((side.established(peer), side.losses(peer).0), (true, 0)));
                assert_eq!((side.by_connection.len(), side.device.tcp().connections()), (3, 3), "nothing is left over");
            }
        }
    }
    assert!(collisions > 10, "a NOTIFICATION ends the second connection in {collisions} of 100 worlds");
}

/// The NOTIFICATIONs in a packet.
fn notifications(packet: &[u8]) -> u64 {
    let sliced = etherparse::SlicedPacket::from_ip(packet).unwrap();
    let Some(etherparse::TransportSlice::Tcp(tcp)) = &sliced.transport else { panic!("not TCP") };
    let (mut rest, mut count) = (tcp.payload(), 0);
    while let Ok(Some(message)) = frame(rest, MAX_LEN) {
        count += u64::from(message.kind == kind::NOTIFICATION);
        rest = &rest[message.message_len()..];
    }
    count
}

#[test]
fn either_may_wait_for_the_other_but_not_both() {
    for (passive, comes) in [([true, false], true), ([false, true], true), ([true, true], false)] {
        let mut world = World::started(1, passive);
        assert_eq!(world.up(3.0), comes, "{passive:?}");
        if comes {
            world.wait(60.0);
            assert!(all_up(&world.sides));
        }
    }
    // The other side does not listen at first.
    let mut world = World::new(1, [false, true], 5);
    let now = world.now;
    world.sides[0].start(now, 0);
    world.wait(5.0);
    assert!(!world.sides[0].established(0));
    assert!(world.sides[0].session(0).ended().is_some(), "the attempts have failed, and why is known");
    let now = world.now;
    world.sides[1].start(now, 0);
    assert!(world.up(3.0));
}

#[test]
fn two_hundred_speak_at_the_same_time_each_with_its_own() {
    let mut world = World::started(200, [false, false]);
    assert!(world.up(5.0));
    let tables: Vec<_> = (0..200).map(|peer| routes(30, peer)).collect();
    let ids: Vec<_> = tables.iter().enumerate().map(|(peer, table)| world.expect(peer, table)).collect();
    tables.iter().enumerate().for_each(|(peer, table)| world.advertise(peer, table));
    let complete =
        |sides: &[Side; 2]| ids.iter().enumerate().all(|(peer, id)| sides[1].adj_rib_in(peer).is_complete(*id));
    assert!(world.run(Duration::from_secs(2), complete));
    for (peer, id) in ids.iter().enumerate() {
        let (report, totals) = (world.sides[1].adj_rib_in(peer).report(*id), world.sides[1].adj_rib_in(peer).totals());
        assert_eq!((report.present, report.received, totals.unexpected), (30, 30, 0));
        assert_eq!((report.wrong_next_hop, report.wrong_as_path), (0, 0));
    }
    let now = world.now;
    (0..200).step_by(2).for_each(|peer| world.sides[0].stop(now, peer));
    world.wait(40.0);
    for peer in 0..200 {
        let odd = peer % 2 == 1;
        assert_eq!((world.sides[0].established(peer), world.sides[0].idle(peer)), (odd, !odd));
        assert_eq!(world.sides[1].losses(peer).0, u32::from(!odd));
    }
}

#[test]
fn lost_packets_delay_and_nothing_more() {
    // Not periodic: a period could hit the same segment again and again.
    let some: fn(u64) -> bool = |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 == 0;
    let many: fn(u64) -> bool = |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 == 0;
    for lost in [some, many, |n| (20..60).contains(&n)] {
        let mut world = World::started(2, [false, false]);
        world.lost = lost;
        assert!(world.up(40.0));
        let (before, all) = (world.packets, routes(3_000, 8));
        let id = world.expect(1, &all);
        world.advertise(1, &all);
        assert!(world.run(Duration::from_secs(120), |sides| sides[1].adj_rib_in(1).is_complete(id)));
        let report = world.sides[1].adj_rib_in(1).report(id);
        assert_eq!((report.present, report.wrong_as_path, report.received), (3_000, 0, 3_000));
        assert_eq!(world.sides[0].losses(1), (0, None), "{}", world.packets - before);
    }
}

#[test]
fn a_link_that_is_cut_runs_into_the_hold_timer_on_both_sides() {
    let mut world = World::started(1, [false, false]);
    assert!(world.up(4.0));
    let all = routes(50, 9);
    let id = world.expect(0, &all);
    world.advertise(0, &all);
    world.wait(1.0);
    assert_eq!(world.sides[1].adj_rib_in(0).present(id), 50);
    let cut = world.now;
    world.lost = |_| true;
    world.wire.clear();
    world.wait(30.0);
    for side in &world.sides {
        let (losses, cause) = side.losses(0);
        assert_eq!((losses, cause), (1, Some(&Cause::HoldTimerExpired(HOLD))));
    }
    let skyline = world.sides[1].adj_rib_in(0).skyline();
    let (gone, left) = *skyline.last().unwrap();
    // The last KEEPALIVE may be as old as a third of the hold time.
    assert!(
        left == 0 && gone.since(cut) <= HOLD && gone.since(cut) >= HOLD * 2 / 3 - Duration::from_millis(10),
        "{gone:?}"
    );
    world.lost = |_| false;
    assert!(world.up(4.0));
    assert_eq!(world.sides[0].losses(0).0, 1);
}

/// Replaces the routers of one side, and the TCP below them, by routers with these configurations, and starts them.
fn begin(world: &mut World, side: usize, peers: Vec<PeerConfig>) {
    let (now, count) = (world.now, peers.len());
    let at = &mut world.sides[side];
    at.device.add_protocol(Box::new(Routers::new(side as u64, peers)));
    (0..count).for_each(|peer| at.start(now, peer));
}

#[test]
fn a_hold_time_is_not_cut_short_by_tcp() {
    let hold = Duration::from_secs(300);
    let mut world = World::new(1, [false, true], 7);
    for side in 0..2 {
        let config = PeerConfig { hold, ..world.sides[side].peers[0].config().clone() };
        begin(&mut world, side, vec![config]);
    }
    assert!(world.up(4.0));
    world.lost = |_| true;
    world.wire.clear();
    world.wait(310.0);
    for side in &world.sides {
        assert_eq!(side.losses(0), (1, Some(&Cause::HoldTimerExpired(hold))));
    }
}

#[test]
fn a_dut_that_answers_late_is_waited_for() {
    let mut world = World::started(1, [false, true]);
    world.latency = Duration::from_millis(600);
    assert!(world.up(10.0));
}

#[test]
fn a_session_that_is_lost_has_not_acknowledged_its_routes() {
    let mut world = World::started(1, [false, true]);
    assert!(world.up(4.0));
    world.lost = |_| true;
    world.wire.clear();
    world.advertise(0, &routes(100, 4));
    assert!(world.run(Duration::from_secs(20), |sides| sides[0].losses(0).0 == 1));
    world.wait(1.0);
    assert!(!world.sides[0].all_acknowledged(0));
    world.lost = |_| false;
    assert!(world.up(4.0));
    assert!(world.run(Duration::from_secs(1), |sides| sides[0].all_acknowledged(0)), "nothing is left");
    let now = world.now;
    world.sides[0].stop(now, 0);
    assert!(world.run(Duration::from_secs(1), |sides| sides[0].idle(0) && sides[0].all_acknowledged(0)));
}

#[test]
fn connections_belong_to_the_session_of_their_sender() {
    let [router, first, second, stranger] =
        [[198, 18, 0, 1], [198, 19, 0, 1], [198, 19, 0, 2], [198, 19, 0, 3]].map(IpAddr::from);
    let peer = |address, dut, side: u8, id| PeerConfig {
        passive: side == 0,
        ..PeerConfig::new(address, dut, 65_000 + u32::from(side), 0, Ipv4Addr::new(100, 64 + side, 0, id))
    };
    let mut world = World::new(1, [false, false], 7);
    begin(&mut world, 0, vec![peer(router, first, 0, 1), peer(router, second, 0, 1)]);
    begin(&mut world, 1, vec![peer(first, router, 1, 1), peer(second, router, 1, 2), peer(stranger, router, 1, 3)]);
    world.wait(5.0);
    let up = |side: &Side| (0..side.len()).map(|peer| side.established(peer)).collect::<Vec<_>>();
    assert_eq!((up(&world.sides[0]), up(&world.sides[1])), (vec![true, true], vec![true, true, false]));
    for (session, id) in [(0, 1), (1, 2)] {
        let agreed = world.sides[0].session(session).negotiated().unwrap();
        assert_eq!(agreed.peer_id, Ipv4Addr::new(100, 65, 0, id));
    }
}

#[test]
fn a_dut_that_connects_from_another_address_is_named() {
    let [router, right, wrong] = [[198, 18, 0, 1], [198, 19, 0, 1], [198, 19, 0, 9]].map(IpAddr::from);
    let peer = |address, dut, side: u8| PeerConfig {
        passive: side == 0,
        ..PeerConfig::new(address, dut, 65_000 + u32::from(side), 0, Ipv4Addr::new(100, 64 + side, 0, 1))
    };
    let mut world = World::new(1, [false, false], 7);
    begin(&mut world, 0, vec![peer(router, right, 0)]);
    begin(&mut world, 1, vec![peer(wrong, router, 1)]);
    assert!(world.run(Duration::from_secs(5), |sides| sides[0].explain(0, None).is_some()));
    let hint = "a connection from 198.19.0.9 was refused; the router must use 198.19.0.1 (update-source)";
    assert_eq!(world.sides[0].explain(0, None).unwrap(), hint);
    let cause = "the peer refuses TCP connections";
    assert_eq!(world.sides[0].explain(0, Some(&Cause::Refused)).unwrap(), format!("{cause}; {hint}"));
    // The next attempt is later.
    world.wait(0.1);
    begin(&mut world, 1, vec![peer(right, router, 1)]);
    assert!(world.up(4.0));
    assert_eq!(world.sides[0].explain(0, Some(&Cause::Refused)).unwrap(), cause);
    assert_eq!(world.sides[0].explain(0, None), None);
}

#[test]
fn two_sessions_between_the_same_addresses_are_refused() {
    let side = routers(0, 1, false, 1);
    let config = side.peers[0].config().clone();
    let refused = Routers::configured(side.device.config(), &[config.clone(), config]).err().unwrap();
    assert_eq!(refused.reason, "peer 1: peer 0 has a session from 198.18.0.1 to 198.19.0.1 already");
}

#[test]
fn a_dut_that_restarts_silently_replaces_its_session() {
    let graceful_restart = Some(GracefulRestartConfig {
        restart_time: Duration::from_secs(45),
        notification: false,
        restarted: false,
        forwarding: true,
    });
    let mut world = World::new(1, [false, true], 7);
    let configs = [0, 1].map(|side| PeerConfig { graceful_restart, ..world.sides[side].peers[0].config().clone() });
    (0..2).for_each(|side| begin(&mut world, side, vec![configs[side].clone()]));
    assert!(world.up(4.0));
    world.wait(10.0);
    world.wire.clear();
    begin(&mut world, 1, vec![PeerConfig { passive: false, ..configs[1].clone() }]);
    let is_back = |sides: &[Side; 2]| all_up(sides) && sides[0].losses(0).0 == 1;
    assert!(world.run(Duration::from_millis(100), is_back));
    assert_eq!(world.sides[0].losses(0), (1, Some(&Cause::TcpReset)));
    world.wait(30.0);
    assert!(is_back(&world.sides));
    assert_eq!((world.sides[0].by_connection.len(), world.sides[0].device.tcp().connections()), (1, 1));
}

#[test]
fn what_ends_a_session_during_a_collision_ends_both() {
    let [own, dut] = [[198, 18, 0, 1], [198, 19, 0, 1]].map(IpAddr::from);
    let (why, away) = (Notification::bare(code::CEASE, cease::ADMINISTRATIVE_RESET), Duration::from_secs(9));
    type End<'a> = &'a dyn Fn(&mut Peer, Instant);
    let ends: [(&str, End<'_>); 4] = [
        ("stop", &|peer, now| peer.stop(now)),
        ("notify", &|peer, now| peer.notify(now, why.clone())),
        ("restart", &|peer, now| peer.restart(now, away, Some(why.clone()))),
        ("silent restart", &|peer, now| peer.restart(now, away, None)),
    ];
    for (name, end) in ends {
        let mut peer = Peer::new(PeerConfig::new(own, dut, 65_000, 65_001, Ipv4Addr::new(100, 64, 0, 1)), 1);
        // A DUT that opens a connection and accepts one, and sends nothing.
        let mut stacks = [own, dut].map(|address| {
            let mut stack = TcpStack::new(TcpConfig::default());
            stack.add_host(address);
            stack.listen(address, bgp::PORT);
            stack
        });
        let now = Instant(1_000_000);
        let exchange = |peer: &mut Peer, stacks: &mut [TcpStack; 2]| {
            for _ in 0..8 {
                peer.serve(now, &mut stacks[0], 0);
                for at in 0..2 {
                    let mut sent = Vec::new();
                    stacks[at].poll(now, &mut |packet| sent.push(packet.to_vec()));
                    sent.iter().for_each(|packet| assert!(stacks[1 - at].receive(now, packet)));
                }
            }
        };
        peer.session.start(now);
        peer.starts = true;
        let opened = stacks[1].connect(now, dut, port_of(own));
        exchange(&mut peer, &mut stacks);
        let (_, theirs) = stacks[0].accept_any().unwrap();
        peer.take_connection(now, theirs, &mut stacks[0]);
        assert!(peer.connections().iter().all(Option::is_some), "{name}");
        end(&mut peer, now);
        exchange(&mut peer, &mut stacks);
        assert_eq!((peer.session.state(), peer.connections()), (State::Idle, [None, None]), "{name}");
        // Each connection ends with a NOTIFICATION, or without a word.
        let was_reset = stacks[1].state(opened) == ConnState::Closed(CloseReason::Reset);
        let expected = if name == "silent restart" { (true, 0) } else { (false, 2) };
        assert_eq!((was_reset, peer.session.sent().notifications), expected, "{name}");
    }
}

#[test]
fn packets_of_others_are_not_taken() {
    let mut side = routers(0, 1, false, 1);
    let mut packet = [0u8; 40];
    assert!(!side.receive(Instant(5), &packet));
    (packet[0], packet[9]) = (0x45, 6);
    (packet[22], packet[23]) = (0, 179);
    assert!(!side.receive(Instant(6), &packet), "for no router here");
    (packet[0], packet[6]) = (0x60, 6);
    assert!(!side.receive(Instant(7), &packet));
    assert_eq!((side.len(), side.is_empty()), (1, false));
}

#[test]
fn the_time_that_a_window_is_closed_is_held_and_that_of_a_pace_is_nobodys() {
    let mut world = World::started(1, [false, true]);
    assert!(world.up(5.0));
    let all = routes(200_000, 3);
    let id = world.expect(0, &all);
    let begun = world.now;
    // The last message of the handshake may not be acknowledged yet.
    let before = world.sides[0].pressure(0, begun);
    world.advertise(0, &all);
    assert!(world.run(Duration::from_secs(20), |sides| sides[0].all_acknowledged(0)));
    let (took, at) = (world.now.since(begun), world.now);
    let pressure = world.sides[0].pressure(0, at) - before;
    // Each window takes a round trip of 2 ms; no message waits for the last acknowledgement.
    let sum = pressure.held + pressure.unanswered + pressure.late;
    assert!(took > Duration::from_millis(8) && sum <= took, "{pressure:?} of {took:?}");
    assert!(sum + Duration::from_micros(100) >= took, "{pressure:?} of {took:?}");
    assert!(pressure.held > took / 2 && pressure.late < took / 20, "{pressure:?} of {took:?}");
    assert!(pressure.unanswered <= Duration::from_millis(2), "{pressure:?}");
    assert_eq!(world.sides[0].acknowledged_bytes(0), world.sides[0].advertised(0).bytes);
    assert!(world.run(Duration::from_secs(2), |sides| sides[1].adj_rib_in(0).is_complete(id)));
    // Ten messages at intervals of 10 ms.
    let before = world.sides[0].pressure(0, world.now);
    let packing = Packing { routes_per_update: 10, pace: Some(1_000.0), ..Packing::default() };
    world.sides[0].adj_rib_out(0).withdraw(all, 0..100, packing);
    let begun = world.now;
    assert!(world.run(Duration::from_secs(20), |sides| sides[0].all_acknowledged(0)));
    assert!(world.now.since(begun) > Duration::from_millis(90));
    let pressure = world.sides[0].pressure(0, world.now) - before;
    assert_eq!(pressure.held, Duration::ZERO);
    assert_eq!(pressure.unanswered, Duration::from_millis(2), "the last message there and back");
    assert!(pressure.late < Duration::from_millis(1), "{pressure:?}");
}
