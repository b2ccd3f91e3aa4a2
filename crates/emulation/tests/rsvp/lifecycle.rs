//! One or few LSPs: set up, torn down, timed out, refused, lost and restarted.

use super::common::*;
use drophammer_emulation::protocol::Command;
use drophammer_emulation::rsvp::{
    EgressRange, HelloConfig, IngressRange, LabelPolicy, LspRange, MOST_FOREIGN, NAME, Pace, Phase, RefreshReduction,
    ReservationStyle, RsvpCommand, RsvpConfig,
};
use drophammer_wire::rsvp::{Body, Message, Style};
use std::time::Duration;

fn reduced() -> RsvpConfig {
    RsvpConfig { refresh_reduction: Some(RefreshReduction::default()), ..RsvpConfig::default() }
}

/// An ingress of `count` LSPs to the address of a device without ranges.
fn foreign(count: u32, config: RsvpConfig) -> World {
    let lsps =
        LspRange { tunnels_per_endpoint: 60_000, ..LspRange::new(count, [10, 1, 0, 1].into(), [198, 18, 1, 2].into()) };
    let ingress = RsvpConfig { ingress: vec![IngressRange::new(lsps)], ..config.clone() };
    World::of([ingress, RsvpConfig { foreign: LabelPolicy::From(500), ..config }])
}

#[test]
fn lsps_are_set_up_and_torn_down() {
    for config in [RsvpConfig::default(), reduced()] {
        let mut world = World::new(3, config);
        world.set_up(0..3, 0);
        world.run_to(seconds(1.0));
        assert_eq!(world.up(), [3; 2]);
        world.tear_down(1..2, 0);
        world.run_to(seconds(2.0));
        assert_eq!(world.up(), [2; 2]);
        assert_eq!([0, 1, 2].map(|lsp| world.rsvp(INGRESS).label_of(lsp)), [Some(100_000), None, Some(100_002)]);
        assert_eq!(world.rsvp(INGRESS).ingress_phase(1), Phase::Idle);
        world.set_up(1..2, 0);
        world.run_to(seconds(3.0));
        assert_eq!(world.up(), [3; 2]);
        assert_eq!(world.rsvp(INGRESS).up_since(1), Some(seconds(2.0)));
        assert_eq!(world.counter(INGRESS, "path_tear_sent"), 1);
        world.each(&Command::Stop);
        world.run_to(seconds(4.0));
        assert_eq!(world.up(), [0; 2]);
        // Both sides tear down. The ingress is first, so the egress has nothing left to tear down.
        assert_eq!(world.counter(INGRESS, "path_tear_sent"), 4);
        assert!(world.devices.iter().all(|device| device.next_deadline().is_none()), "silent");
    }
}

#[test]
fn a_released_reservation_takes_the_label_and_comes_back_with_the_next_path() {
    for config in [RsvpConfig::default(), reduced()] {
        let mut world = World::new(2, RsvpConfig { jitter_percent: 0, ..config });
        world.set_up(0..2, 0);
        world.run_to(seconds(31.0));
        world.command(EGRESS, RsvpCommand::Release(Pace { lsps: 1..2, per_second: 0 }));
        world.run_to(seconds(32.0));
        assert_eq!((world.up(), world.rsvp(INGRESS).label_of(1)), ([1, 1], None));
        assert_eq!(world.rsvp(INGRESS).ingress_phase(1), Phase::Signalled);
        world.run_to(seconds(92.0));
        assert_eq!((world.up(), world.rsvp(INGRESS).label_of(1)), ([2, 2], Some(100_001)));
        world.assert_conserved();
    }
}

#[test]
fn a_resv_tear_names_the_traffic_that_it_ends() {
    let mut world = World::new(2, RsvpConfig { jitter_percent: 0, ..RsvpConfig::default() });
    world.set_up(0..2, 0);
    world.run_to(seconds(1.0));
    world.log = Some(Vec::new());
    world.command(EGRESS, RsvpCommand::Release(Pace { lsps: 0..2, per_second: 0 }));
    world.run_to(seconds(2.0));
    let mut tears = 0;
    for (_, frame) in world.log.as_ref().unwrap() {
        let message = Message::parse(&frame[34..]).unwrap();
        if let (Body::ResvTear(tear), None) = Body::parse(&message).unwrap() {
            assert!(tear.flows.iter().all(|flow| flow.flowspec.is_some() && flow.label.is_none()));
            tears += 1;
        }
    }
    assert_eq!(tears, 2);
    assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "lsps_lost")), [2, 0], "the egress ended them itself");
}

#[test]
fn reservations_have_the_configured_style() {
    use ReservationStyle::{Asked, FixedFilter, SharedExplicit};
    for (style, expected) in [(Asked, Style::FF), (SharedExplicit, Style::SE), (FixedFilter, Style::FF)] {
        let mut world = World::new(1, RsvpConfig { style, ..RsvpConfig::default() });
        world.log = Some(Vec::new());
        world.set_up(0..1, 0);
        world.run_to(seconds(1.0));
        let style = |(_, frame): &(_, Vec<u8>)| match Body::parse(&Message::parse(frame.get(34..)?).ok()?) {
            Ok((Body::Resv(resv), _)) => Some(resv.style),
            _ => None,
        };
        let styles: Vec<Style> = world.log.as_ref().unwrap().iter().filter_map(style).collect();
        assert_eq!(styles, [expected]);
        assert_eq!(world.rsvp(EGRESS).ends().count(), 1);
    }
}

#[test]
fn state_that_is_not_refreshed_times_out() {
    // R is 10 s: (3 + 0.5) * 1.5 * 10 s = 52.5 s.
    for config in [RsvpConfig::default(), reduced()] {
        let refresh = Duration::from_secs(10);
        let mut world = World::new(4, RsvpConfig { refresh, jitter_percent: 0, ..config });
        world.set_up(0..4, 0);
        world.run_to(seconds(25.0));
        // The last refresh was at 20 s, or later with summaries.
        world.fate = |_, _, _| false;
        world.run_to(seconds(72.4));
        assert_eq!(world.up(), [4; 2]);
        world.run_to(seconds(72.6));
        assert_eq!(world.up(), [0; 2]);
        for counter in ["timeouts", "lsps_lost"] {
            assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, counter)), [4; 2]);
        }
        world.fate = |_, _, _| true;
        world.run_to(seconds(93.0));
        assert_eq!(world.up(), [4; 2], "the ingress continues");
    }
}

#[test]
fn lost_messages_are_sent_again() {
    // Refresh reduction: at 0 s, 0.5 s, 1.5 s; then every refresh period.
    let hello = Some(HelloConfig { interval: Duration::from_secs(3) });
    let config = RsvpConfig { jitter_percent: 0, hello, ..reduced() };
    let mut world = World::new(1, config.clone());
    world.run_to(seconds(1.0));
    world.fate = |_, _, _| false;
    world.set_up(0..1, 0);
    let sent = |world: &mut World, at: f64| {
        world.run_to(seconds(at));
        world.counter(INGRESS, "path_sent")
    };
    let times = [1.0, 1.49, 1.51, 2.49, 2.51, 5.0];
    assert_eq!(times.map(|at| sent(&mut world, at)), [1, 1, 2, 2, 3, 3]);
    assert_eq!(world.counter(INGRESS, "retransmissions"), 2);
    world.fate = |_, _, _| true;
    world.run_to(seconds(6.0));
    assert_eq!(world.up(), [0; 2]);
    world.run_to(seconds(33.0));
    assert_eq!(world.up(), [1; 2]);
    // A lost tear message is also sent again.
    world.fate = |from, _, _| from == EGRESS;
    world.tear_down(0..1, 0);
    world.run_to(seconds(33.1));
    world.fate = |_, _, _| true;
    world.run_to(seconds(34.0));
    assert_eq!(world.up(), [0; 2]);
    assert_eq!(world.counter(INGRESS, "path_tear_sent"), 2);
}

#[test]
fn summaries_are_only_for_neighbours_that_know_them() {
    let lsps = LspRange::new(5, [10, 1, 0, 1].into(), [198, 18, 1, 2].into());
    let ingress = RsvpConfig { ingress: vec![IngressRange::new(lsps)], jitter_percent: 0, ..reduced() };
    let mut world = World::of([ingress, RsvpConfig { jitter_percent: 0, ..RsvpConfig::default() }]);
    world.set_up(0..5, 0);
    world.run_to(seconds(100.0));
    assert_eq!(world.up(), [5; 2]);
    assert_eq!((world.counter(INGRESS, "path_sent"), world.counter(EGRESS, "resv_sent")), (20, 20));
    assert_eq!((world.counter(INGRESS, "srefresh_sent"), world.counter(EGRESS, "ack_sent")), (0, 0));
}

#[test]
fn an_egress_that_forgot_its_state_asks_for_it() {
    let mut world = World::new(1_000, RsvpConfig { jitter_percent: 0, ..reduced() });
    world.set_up(0..1_000, 0);
    world.run_to(seconds(70.0));
    let egress = RsvpConfig { jitter_percent: 0, ..reduced() };
    let lsps = LspRange::new(1_000, [10, 1, 0, 1].into(), [10, 2, 0, 1].into());
    let range = EgressRange { lsps, labels: LabelPolicy::From(700_000) };
    world.devices[EGRESS] = device(2, 1, RsvpConfig { egress: vec![range], ..egress });
    world.devices[EGRESS].command(world.now, NAME, &Command::Start).unwrap();
    world.run_to(seconds(130.0));
    assert_eq!(world.up(), [1_000; 2]);
    assert_eq!(world.rsvp(INGRESS).label_of(999), Some(700_999));
    assert_eq!(world.counter(INGRESS, "nacks_received"), 1_000);
}

#[test]
fn an_ingress_that_forgot_its_state_refuses_reservations() {
    let mut world = World::new(5, RsvpConfig { jitter_percent: 0, ..RsvpConfig::default() });
    world.set_up(0..5, 0);
    world.run_to(seconds(10.0));
    world.devices[INGRESS] = device(1, 2, RsvpConfig::default());
    world.devices[INGRESS].command(world.now, NAME, &Command::Start).unwrap();
    world.run_to(seconds(31.0));
    let errors: Vec<_> = world.rsvp(EGRESS).errors().map(|(e, n)| (e.resv, e.code, e.value, n)).collect();
    assert_eq!(errors, [(true, 3, 0, 5)]);
    world.run_to(seconds(160.0));
    assert_eq!(world.up(), [0; 2], "path state times out");
}

#[test]
fn lsps_wait_for_the_address_of_the_gateway() {
    let mut world = World::new(0, RsvpConfig::default());
    let lsps = LspRange::new(3, [10, 1, 0, 1].into(), [198, 18, 1, 2].into());
    let ingress = RsvpConfig { ingress: vec![IngressRange::new(lsps)], ..RsvpConfig::default() };
    world.devices = [unresolved(1, 2, ingress), unresolved(2, 1, RsvpConfig::default())];
    world.each(&Command::Start);
    world.fate = |_, _, _| false;
    world.set_up(0..3, 1);
    world.run_to(seconds(10.05));
    assert_eq!(world.counter(INGRESS, "path_sent"), 0);
    world.fate = |_, _, _| true;
    // The next request for the address is sent within a second.
    world.run_to(seconds(12.0));
    assert!((1..3).contains(&world.up()[INGRESS]), "one a second from then on");
    world.run_to(seconds(14.0));
    assert_eq!((world.up(), world.counter(INGRESS, "unresolved")), ([3; 2], 0));
}

#[test]
fn a_restart_is_seen_by_hello() {
    let hello = Some(HelloConfig { interval: Duration::from_secs(1) });
    let config = RsvpConfig { hello, ..RsvpConfig::default() };
    let mut world = World::new(10, config.clone());
    world.set_up(0..10, 0);
    world.run_to(seconds(4.5));
    // Each side sends one request per second, and the other side answers.
    assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "hello_sent")), [10; 2]);
    let lsps = LspRange::new(10, [10, 1, 0, 1].into(), [10, 2, 0, 1].into());
    let egress = vec![EgressRange { lsps, labels: LabelPolicy::From(700_000) }];
    world.devices[EGRESS] = device(2, 1, RsvpConfig { egress, ..config });
    world.devices[EGRESS].command(world.now, NAME, &Command::Start).unwrap();
    world.run_to(seconds(5.5));
    assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "lost_neighbours")), [1, 0]);
    assert_eq!((world.up(), world.rsvp(INGRESS).label_of(9)), ([10; 2], Some(700_009)), "set up again at once");
}

#[test]
fn a_silent_neighbour_is_lost() {
    let hello = Some(HelloConfig { interval: Duration::from_secs(1) });
    let mut world = World::new(10, RsvpConfig { hello, jitter_percent: 0, ..RsvpConfig::default() });
    world.set_up(0..10, 0);
    world.run_to(seconds(4.5));
    world.fate = |_, _, _| false;
    world.run_to(seconds(7.4));
    assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "lost_neighbours")), [0; 2]);
    world.run_to(seconds(7.6));
    assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "lost_neighbours")), [1; 2]);
    assert_eq!(world.up(), [0; 2]);
    world.fate = |_, _, _| true;
    world.run_to(seconds(37.4));
    // Both sides come back with a new instance, and have forgotten the old one of their neighbour.
    assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "lost_neighbours")), [1; 2]);
    assert_eq!(world.up(), [0; 2], "the next Path is a refresh");
    world.run_to(seconds(37.6));
    assert_eq!(world.up(), [10; 2]);
}

#[test]
fn foreign_lsps_are_bounded() {
    let most = MOST_FOREIGN as u32;
    let mut world = foreign(most + 5, RsvpConfig { jitter_percent: 0, ..RsvpConfig::default() });
    world.set_up(0..most + 5, 0);
    world.run_to(seconds(1.0));
    assert_eq!(world.up(), [most; 2]);
    assert_eq!((world.rsvp(EGRESS).foreign_len(), world.counter(EGRESS, "foreign_refused")), (MOST_FOREIGN, 5));
    let errors: Vec<_> = world.rsvp(INGRESS).errors().map(|(e, n)| (e.resv, e.code, e.value, n)).collect();
    assert_eq!(errors, [(false, 24, 9, 5)]);
    assert_eq!(world.rsvp(INGRESS).label_of(7), Some(507));
    // An LSP that ends makes room for one that is refreshed.
    world.tear_down(3..4, 0);
    world.run_to(seconds(31.0));
    assert_eq!((world.up(), world.rsvp(INGRESS).label_of(most)), ([most; 2], Some(503)));
    world.assert_conserved();
}

#[test]
fn paths_to_others_are_refused() {
    let lsps = LspRange::new(2, [10, 1, 0, 1].into(), [10, 9, 0, 1].into());
    let ingress = RsvpConfig { ingress: vec![IngressRange::new(lsps)], ..RsvpConfig::default() };
    let mut world = World::of([ingress, RsvpConfig::default()]);
    world.set_up(0..2, 0);
    world.run_to(seconds(1.0));
    let errors: Vec<_> = world.rsvp(INGRESS).errors().map(|(e, n)| (e.resv, e.code, e.value, n)).collect();
    assert_eq!(errors, [(false, 24, 5, 2)]);
    assert_eq!(world.up(), [0; 2]);
}

#[test]
fn reservations_are_confirmed_and_routes_recorded() {
    let lsps = LspRange::new(2, [10, 1, 0, 1].into(), [198, 18, 1, 2].into());
    let range =
        IngressRange { record_route: true, shared_explicit: true, bandwidth: 8_000_000, ..IngressRange::new(lsps) };
    let ingress = RsvpConfig { ingress: vec![range], jitter_percent: 0, ..RsvpConfig::default() };
    let egress =
        RsvpConfig { confirm: true, jitter_percent: 0, foreign: LabelPolicy::ExplicitNull, ..RsvpConfig::default() };
    let mut world = World::of([ingress, egress]);
    world.set_up(0..2, 0);
    world.run_to(seconds(100.0));
    assert_eq!((world.up(), world.rsvp(INGRESS).label_of(1)), ([2; 2], Some(0)));
    // Only the first reservation asks for a confirmation.
    assert_eq!((world.counter(EGRESS, "resv_sent"), world.counter(INGRESS, "resv_conf_sent")), (8, 2));
    assert_eq!(world.counter(EGRESS, "resv_conf_received"), 2);
}

#[test]
fn impossible_commands_are_refused() {
    let mut world = World::new(3, RsvpConfig::default());
    let mut refused = |command| {
        let command = Command::Rsvp(command);
        world.devices[0].command(seconds(0.0), NAME, &command).err().map(|e| e.reason).unwrap_or_default()
    };
    let pace = |lsps, per_second| Pace { lsps, per_second };
    assert!(refused(RsvpCommand::SetUp(pace(0..4, 1))).contains("the device has 3"));
    assert!(refused(RsvpCommand::Release(pace(0..1, 1))).contains("the device has 0"));
    for _ in 0..64 {
        assert_eq!(refused(RsvpCommand::SetUp(pace(0..3, 1))), "");
    }
    assert!(refused(RsvpCommand::TearDown(pace(0..3, 1))).contains("64 commands"));
    world.each(&Command::Stop);
    let stopped = world.devices[0].command(seconds(0.0), NAME, &Command::Rsvp(RsvpCommand::SetUp(pace(0..1, 1))));
    assert!(stopped.unwrap_err().reason.contains("send `Start` first"));
}
