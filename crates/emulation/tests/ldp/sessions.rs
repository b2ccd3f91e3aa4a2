//! Sessions of two LSRs with exact counts.

use super::common::*;
use drophammer_emulation::DeviceConfig;
use drophammer_emulation::ldp::{Cause, FecRange, LdpCommand, Lsr, LsrConfig, State};
use drophammer_emulation::protocol::{Command, ProtocolConfig};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use drophammer_wire::ldp::status::code;
use drophammer_wire::ldp::{Label, LdpId, Status};
use std::net::IpAddr;
use std::time::Duration;

fn all_present(world: &World, count: u32) {
    for side in 0..2 {
        let bindings = world.peer(side).bindings();
        let seen = bindings.verification(0).unwrap();
        assert_eq!((seen.present, seen.missing, bindings.others().len()), (count, 0, 0), "side {side}");
        for index in [0, count / 2, count - 1] {
            let (prefix, label) = (fecs(1 - side, count).prefix(index), Label::new([200_000, 100][side] + index));
            assert_eq!(world.lsr(side).label_for(prefix), label);
            assert_eq!(world.lsr(side).fec_of_label(label.unwrap()), Some(prefix));
        }
    }
}

#[test]
fn labels_go_both_ways() {
    for count in [1, 10_000, 100_000] {
        let world = World::up(count);
        all_present(&world, count);
        for name in ["mappings_sent", "mappings_received"] {
            assert_eq!(world.both(name), [u64::from(count); 2], "{name}");
        }
        for name in ["sessions_lost", "malformed", "releases_sent", "withdraws_sent", "sessions_rejected"] {
            assert_eq!(world.both(name), [0, 0], "{name}");
        }
        assert_eq!(world.both("sessions_established"), [1, 1]);
        let peer = world.peer(0);
        assert_eq!(
            (peer.id(), peer.transport(), peer.addresses()),
            (LdpId::platform(LSR[1]), LSR[1], &[IpAddr::from(LINK[1]), LSR[1].into()][..])
        );
        assert_eq!(
            peer.session().map(|s| (s.state(), s.keepalive(), s.max_pdu())),
            Some((State::Operational, Duration::from_secs(180), 4096))
        );
        let (first, last) = peer.bindings().arrivals().unwrap();
        assert!(peer.up_at().unwrap() <= first && first <= last && last < second(5));
        assert!(peer.all_sent() && peer.ended().is_none());
    }
}

#[test]
fn an_idle_session_costs_only_its_signs_of_life() {
    let mut world = World::up(100);
    let (before, hellos) = (world.polls, world.both("hellos_sent"));
    world.run_for(Duration::from_secs(600));
    assert_eq!(world.both("hellos_sent").map(|n| n - hellos[0]), [120, 120]);
    assert_eq!(world.both("sessions_lost"), [0, 0]);
    assert!(world.polls - before < 1500, "{} polls", world.polls - before);
}

#[test]
fn the_smaller_proposals_count() {
    let small = LsrConfig { keepalive: 9, max_pdu: 300, ..config(0, 50) };
    let mut world = World::new([small, config(1, 50)]);
    world.start();
    world.ldp(1, LdpCommand::Advertise { range: 0, part: 0..50 });
    world.run_for(Duration::from_secs(100));
    for side in 0..2 {
        let session = world.peer(side).session().unwrap();
        assert_eq!((session.keepalive(), session.max_pdu()), (Duration::from_secs(9), 300));
    }
    assert_eq!((world.both("sessions_lost"), world.counter(0, "mappings_received")), ([0, 0], 50));
}

#[test]
fn parts_are_withdrawn_and_released() {
    let mut world = World::up(10_000);
    world.ldp(0, LdpCommand::Withdraw { range: 0, part: 1000..4000 });
    world.run_for(Duration::from_secs(1));
    assert_eq!((world.counter(0, "withdraws_sent"), world.counter(1, "withdraws_received")), (3000, 3000));
    assert_eq!((world.counter(1, "releases_sent"), world.counter(0, "releases_received")), (3000, 3000));
    assert_eq!((world.lsr(0).advertised(0), world.peer(1).bindings().len()), (7000, 7000));
    let missing: Vec<_> = world.peer(1).bindings().missing(0).collect();
    assert_eq!((missing[0], missing.len()), (fecs(0, 10_000).prefix(1000), 3000));

    world.ldp(0, LdpCommand::Advertise { range: 0, part: 1000..1001 });
    world.ldp(1, LdpCommand::Release { range: 0, part: 0..2000 });
    world.run_for(Duration::from_secs(1));
    // A label that arrived after the release was requested may or may not be released.
    assert_eq!(world.counter(0, "releases_received"), 3000 + 1000);
    assert_eq!(world.peer(1).bindings().len(), 6001);
    assert_eq!(world.counter(1, "mappings_received"), 10_001);
}

#[test]
fn a_session_that_restarts_advertises_what_is_left() {
    let mut world = World::up(1000);
    world.ldp(1, LdpCommand::Withdraw { range: 0, part: 10..20 });
    world.run_for(Duration::from_secs(1));
    world.command(0, Command::Stop);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.counter(1, "notifications_received_shutdown"), 1);
    assert_eq!(world.both("notifications_sent_shutdown"), [1, 1], "a Shutdown is answered by one");
    assert_eq!((world.both("sessions_lost"), world.state(1).up), ([0, 1], 0));
    assert!(world.peer(1).bindings().is_empty() && world.peer(0).bindings().is_empty(), "labels go with the session");
    let shutdown = Status::new(code::SHUTDOWN);
    assert_eq!(world.peer(1).ended().map(|(_, cause)| cause), Some(Cause::Received(shutdown)));
    world.command(0, Command::Start);
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.both("sessions_established"), [2, 2]);
    assert_eq!((world.peer(0).bindings().len(), world.peer(1).bindings().len()), (990, 1000));
    assert_eq!((world.counter(1, "mappings_sent"), world.counter(0, "mappings_sent")), (1990, 2000));
}

#[test]
fn a_stop_counts_even_if_a_start_follows_at_once() {
    let mut world = World::up(10);
    world.command(0, Command::Stop);
    world.command(0, Command::Start);
    world.run_for(Duration::from_secs(4));
    assert_eq!((world.both("sessions_established"), world.both("sessions_lost")), ([2, 2], [0, 1]));
    assert_eq!(world.counter(0, "notifications_sent_hold_timer_expired"), 0);
    assert_eq!(world.counter(1, "notifications_received_shutdown"), 1);
    assert_eq!([0, 1].map(|side| world.peer(side).bindings().len()), [10, 10]);
}

#[test]
fn hellos_come_three_times_within_the_agreed_hold_time() {
    for short in 0..2 {
        let hold = |side| if side == short { 3 } else { 15 };
        let mut world = World::new([0, 1].map(|side| LsrConfig { hello_hold: hold(side), ..config(side, 1) }));
        world.start();
        world.run_for(Duration::from_secs(100));
        assert_eq!((world.both("adjacencies_lost"), world.both("sessions_established")), ([0, 0], [1, 1]));
        assert!(
            world.both("hellos_sent").iter().all(|sent| (100..=104).contains(sent)),
            "{:?}",
            world.both("hellos_sent")
        );
        // Without the peer, the configured interval counts again.
        world.command(1, Command::Stop);
        world.run_for(Duration::from_secs(4));
        let before = world.counter(0, "hellos_sent");
        world.run_for(Duration::from_secs(100));
        assert_eq!(world.counter(0, "hellos_sent") - before, 20);
    }
}

/// Frames of TCP, or of UDP, are lost.
fn is_udp(frame: &[u8]) -> bool {
    frame[23] == 17
}

#[test]
fn silence_of_the_peer_ends_the_session() {
    let quick = |side| LsrConfig { keepalive: 9, ..config(side, 10) };
    let mut world = World::new([quick(0), quick(1)]);
    world.start();
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.state(0).up, 1);
    let begun = world.now;
    world.lost = |side, frame| side == 1 && !is_udp(frame);
    world.run_for(Duration::from_secs(12));
    let (at, cause) = world.peer(0).ended().unwrap();
    assert_eq!(cause, Cause::Sent(Status::new(code::KEEPALIVE_TIMER_EXPIRED)));
    assert!((6..=9).contains(&at.since(begun).as_secs()), "{:?}", at.since(begun));
    assert_eq!(world.counter(0, "notifications_sent_keepalive_timer_expired"), 1);
    assert_eq!(world.counter(1, "notifications_received_keepalive_timer_expired"), 1);
    world.lost = |_, _| false;
    world.run_for(Duration::from_secs(60));
    assert_eq!([0, 1].map(|side| world.state(side).up), [1, 1]);
    assert_eq!(world.both("sessions_lost"), [1, 1]);
}

#[test]
fn a_keepalive_time_is_not_cut_short_by_tcp() {
    let mut world = World::up(10);
    world.lost = |side, frame| side == 1 && !is_udp(frame);
    let begun = world.now;
    world.run_for(Duration::from_secs(185));
    let (at, cause) = world.peer(0).ended().unwrap();
    assert_eq!(cause, Cause::Sent(Status::new(code::KEEPALIVE_TIMER_EXPIRED)));
    assert!((110..=180).contains(&at.since(begun).as_secs()), "{:?}", at.since(begun));
}

#[test]
fn without_hellos_the_adjacency_ends() {
    let mut world = World::up(10);
    world.lost = |side, frame| side == 1 && is_udp(frame);
    let begun = world.now;
    world.run_for(Duration::from_secs(16));
    let (at, cause) = world.peer(0).ended().unwrap();
    assert_eq!(cause, Cause::Sent(Status::new(code::HOLD_TIMER_EXPIRED)));
    assert!((10..=15).contains(&at.since(begun).as_secs()), "{:?}", at.since(begun));
    assert_eq!((world.state(0).sessions, world.counter(0, "adjacencies_lost")), (0, 1));
    assert_eq!(world.counter(1, "notifications_received_hold_timer_expired"), 1);
    // Side 1, the active side, still receives hellos; side 0 rejects its sessions.
    world.run_for(Duration::from_secs(100));
    let rejected = world.counter(1, "notifications_received_no_hello");
    // Attempts after 1, 16 and 46 s; the next one would be after 106 s.
    assert_eq!((rejected, world.counter(0, "notifications_sent_no_hello")), (3, 3), "the backoff doubles");
    world.lost = |_, _| false;
    world.run_for(Duration::from_secs(121));
    assert_eq!([0, 1].map(|side| world.state(side).up), [1, 1]);
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let device = DeviceConfig::new("bare", MacAddr::local(1), 1);
    let lsr = LsrConfig::new(LSR[0], LSR[0]);
    let refused = ProtocolConfig::Ldp(lsr.clone()).create(&device).err().unwrap();
    assert!(refused.to_string().contains("no IPv4 address"), "{refused}");
    assert!(Lsr::new(&device, LsrConfig { keepalive: 0, ..lsr }).is_err());
    let mut world = World::new([config(0, 10), config(1, 10)]);
    for wrong in [
        LdpCommand::Advertise { range: 1, part: 0..1 },
        LdpCommand::Withdraw { range: 0, part: 5..11 },
        LdpCommand::Release { range: 0, part: 5..5 },
    ] {
        assert!(world.devices[0].command(Instant(0), "ldp", &Command::Ldp(wrong)).is_err());
    }
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.both("hellos_sent"), [0, 0], "silent before it starts");
    let v6 = FecRange::new("2001:db8::/48".parse().unwrap(), 3);
    assert_eq!(v6.prefix(2).to_string(), "2001:db8:2::/48");
}
