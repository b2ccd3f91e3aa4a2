//! Every transition of one session, with crafted bytes.

mod ends;

use super::*;
use drophammer_wire::bgp::message::{emit_header, kind};
use drophammer_wire::bgp::notification::{fsm, header, open as open_error, update};
use drophammer_wire::bgp::{Capability, Open, frame};
use std::net::Ipv4Addr;

const V4: AfiSafi = AfiSafi::IPV4_UNICAST;

fn at(seconds: f64) -> Instant {
    Instant((seconds * 1e9) as u64)
}

fn config() -> SessionConfig {
    SessionConfig::new(65001, 65000, Ipv4Addr::new(192, 0, 2, 1))
}

/// The peer's OPEN.
fn open() -> Open {
    SessionConfig {
        hold_time: Duration::from_secs(30),
        ..SessionConfig::new(65000, 65001, Ipv4Addr::new(192, 0, 2, 9))
    }
    .open()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN + body.len()];
    emit_header(&mut out, kind, HEADER_LEN + body.len());
    out[HEADER_LEN..].copy_from_slice(body);
    out
}

fn keepalive() -> Vec<u8> {
    message(kind::KEEPALIVE, &[])
}

/// An empty UPDATE: End-of-RIB of IPv4 unicast.
fn update() -> Vec<u8> {
    message(kind::UPDATE, &[0; 4])
}

fn feed(session: &mut Session, now: Instant, bytes: &[u8]) {
    assert_eq!(session.receive(now, bytes, &mut |_, _| Ok(())), bytes.len());
}

/// The messages that it writes: `(type, body)`.
fn written(session: &mut Session, now: Instant) -> Vec<(u8, Vec<u8>)> {
    let mut buffer = vec![0; 20_000];
    let length = session.write(now, &mut buffer);
    let (mut rest, mut messages) = (&buffer[..length], Vec::new());
    while let Some(message) = frame(rest, 4096).unwrap() {
        messages.push((message.kind, message.body.to_vec()));
        rest = &rest[message.message_len()..];
    }
    assert!(rest.is_empty());
    messages
}

fn tcp_actions(session: &mut Session, now: Instant) -> Vec<TcpAction> {
    std::iter::from_fn(|| Some(session.poll(now)).filter(|action| *action != TcpAction::None)).collect()
}

/// A session in `state` at 1 s, with all its messages written.
fn session_in(state: State, config: SessionConfig) -> Session {
    let mut session = Session::new(config);
    if state == State::Idle {
        return session;
    }
    session.start(at(1.));
    tcp_actions(&mut session, at(1.));
    if state == State::Active {
        session.closed(at(1.), Closed::Refused);
        tcp_actions(&mut session, at(1.));
    }
    if state >= State::OpenSent {
        assert!(session.connected(at(1.)));
        written(&mut session, at(1.));
    }
    if state >= State::OpenConfirm {
        feed(&mut session, at(1.), &open().message().unwrap());
        written(&mut session, at(1.));
    }
    if state >= State::Established {
        feed(&mut session, at(1.), &keepalive());
    }
    assert_eq!(session.state(), state);
    session
}

/// Returns the NOTIFICATION that ends the session. Checks that the connection is then closed, and that the session restarts
/// after the IdleHoldTime.
fn ends_with(session: &mut Session, now: Instant) -> (u8, u8, Vec<u8>) {
    assert_eq!(session.state(), State::Idle);
    assert!(tcp_actions(session, now).is_empty(), "not before the NOTIFICATION is written");
    let (kind, body) = written(session, now).pop().unwrap();
    assert_eq!(kind, self::kind::NOTIFICATION);
    assert_eq!(tcp_actions(session, now), [TcpAction::Close]);
    assert_eq!(session.next_deadline(), Some(now + session.config().idle_hold));
    assert_eq!(tcp_actions(session, now + session.config().idle_hold), [TcpAction::Connect]);
    assert_eq!(session.state(), State::Connect);
    (body[0], body[1], body[2..].to_vec())
}

#[test]
fn an_active_speaker_comes_up_step_by_step() {
    let mut session = Session::new(config());
    assert_eq!((session.state(), session.next_deadline()), (State::Idle, None));
    session.start(at(1.));
    assert_eq!((session.state(), session.next_deadline()), (State::Connect, Some(Instant(0))));
    assert_eq!(tcp_actions(&mut session, at(1.)), [TcpAction::Connect]);
    assert!(session.connected(at(2.)));
    assert_eq!(session.state(), State::OpenSent);
    assert_eq!(session.next_deadline(), Some(at(2.) + LARGE_HOLD_TIME));
    let sent = written(&mut session, at(2.));
    assert_eq!((sent.len(), sent[0].0), (1, kind::OPEN));
    assert_eq!(Open::parse(&sent[0].1), Ok(config().open()));
    feed(&mut session, at(3.), &open().message().unwrap());
    assert_eq!(session.state(), State::OpenConfirm);
    assert_eq!(session.negotiated().unwrap().hold, Duration::from_secs(30));
    assert_eq!(written(&mut session, at(3.)), [(kind::KEEPALIVE, vec![])]);
    feed(&mut session, at(4.), &keepalive());
    assert_eq!((session.state(), session.established_at()), (State::Established, Some(at(4.))));
    let states: Vec<_> = session.events().map(|event| (event.at, event.to)).collect();
    let expected = [State::Connect, State::OpenSent, State::OpenConfirm, State::Established];
    assert_eq!(states, [1., 2., 3., 4.].map(at).into_iter().zip(expected).collect::<Vec<_>>());
    assert!(session.events().all(|event| event.cause.is_none()) && session.ended().is_none());
}

#[test]
fn a_passive_speaker_waits_for_ever() {
    let mut session = Session::new(SessionConfig { passive: true, ..config() });
    session.start(at(1.));
    assert_eq!(session.state(), State::Active);
    assert_eq!(tcp_actions(&mut session, at(1.)), [TcpAction::Listen]);
    assert_eq!(session.next_deadline(), None);
    assert!(session.connected(at(500.)));
    assert!(!session.connected(at(500.)), "one is enough");
    session.closed(at(501.), Closed::ByPeer);
    assert_eq!((session.state(), session.ended()), (State::Active, Some(&Cause::TcpClosed)));
    assert_eq!(tcp_actions(&mut session, at(501.)), [TcpAction::Listen]);
    assert_eq!(session.next_deadline(), None);
}

#[test]
fn attempts_are_repeated_with_jitter() {
    let mut session = Session::new(config());
    session.start(at(0.));
    tcp_actions(&mut session, at(0.));
    let mut times = Vec::new();
    for _ in 0..50 {
        let now = session.next_deadline().unwrap();
        assert_eq!(tcp_actions(&mut session, now), [TcpAction::Abort, TcpAction::Connect]);
        assert_eq!((session.state(), session.ended()), (State::Connect, Some(&Cause::TimedOut)));
        times.push(now);
    }
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()).collect();
    assert!(gaps.iter().all(|gap| (3.75..=5.).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap < 4.2) && gaps.iter().any(|gap| *gap > 4.6), "{gaps:?}");
    assert_eq!((session.events().len(), session.events_dropped()), (51, 0));
}

#[test]
fn an_attempt_may_take_longer_than_the_time_between_two() {
    let [connect_timeout, connect_retry] = [20, 1].map(Duration::from_secs);
    let mut session = session_in(State::Connect, SessionConfig { connect_timeout, connect_retry, ..config() });
    assert!(session.next_deadline().unwrap() >= at(16.));
    session.closed(at(2.), Closed::Refused);
    tcp_actions(&mut session, at(2.));
    let next = session.next_deadline().unwrap();
    assert!(next > at(2.) && next <= at(3.));
    assert_eq!(tcp_actions(&mut session, next), [TcpAction::Connect]);
    assert!(session.next_deadline().unwrap() >= next + Duration::from_secs(15));
}

#[test]
fn a_refused_attempt_leads_to_active_and_then_to_the_next_one() {
    let mut session = session_in(State::Connect, config());
    session.closed(at(2.), Closed::Refused);
    assert_eq!((session.state(), session.ended()), (State::Active, Some(&Cause::Refused)));
    assert_eq!(tcp_actions(&mut session, at(2.)), [TcpAction::Listen]);
    let next = session.next_deadline().unwrap();
    assert!(next > at(5.) && next <= at(7.));
    assert_eq!(tcp_actions(&mut session, next), [TcpAction::Connect], "there is no attempt to abort");
    assert_eq!(session.state(), State::Connect);
}

#[test]
fn the_peers_connection_is_taken_while_active() {
    let mut session = session_in(State::Active, config());
    assert!(session.connected(at(2.)));
    assert_eq!(session.state(), State::OpenSent);
}

#[test]
fn connections_are_not_wanted_in_other_states() {
    for state in [State::Idle, State::OpenSent, State::OpenConfirm, State::Established] {
        let mut session = session_in(state, config());
        assert!(!session.connected(at(2.)));
        assert_eq!(session.state(), state);
    }
}

#[test]
fn a_connection_that_is_lost() {
    for (state, after) in [
        (State::Active, State::Active),
        (State::OpenSent, State::Active),
        (State::OpenConfirm, State::Idle),
        (State::Established, State::Idle),
    ] {
        let mut session = session_in(state, config());
        session.closed(at(2.), Closed::Reset);
        assert_eq!(session.state(), after, "from {state:?}");
        if state != State::Active {
            assert_eq!((session.ended(), session.ended_at()), (Some(&Cause::TcpReset), Some(at(2.))));
            assert!(!session.wants_write() && session.negotiated().is_none());
        }
        if after == State::Idle {
            assert_eq!(session.next_deadline(), Some(at(3.)));
            assert_eq!(tcp_actions(&mut session, at(3.)), [TcpAction::Connect]);
        }
    }
}

#[test]
fn messages_that_have_no_business_in_a_state() {
    let opened = open().message().unwrap();
    let refresh = message(kind::ROUTE_REFRESH, &[0, 1, 0, 1]);
    for (state, subcode, bytes) in [
        (State::OpenSent, fsm::OPEN_SENT, keepalive()),
        (State::OpenSent, fsm::OPEN_SENT, update()),
        (State::OpenSent, fsm::OPEN_SENT, refresh.clone()),
        (State::OpenConfirm, fsm::OPEN_CONFIRM, opened.clone()),
        (State::OpenConfirm, fsm::OPEN_CONFIRM, update()),
        (State::OpenConfirm, fsm::OPEN_CONFIRM, refresh),
        (State::Established, fsm::ESTABLISHED, opened),
    ] {
        let mut session = session_in(state, config());
        feed(&mut session, at(2.), &bytes);
        assert_eq!(ends_with(&mut session, at(2.)), (5, subcode, vec![bytes[18]]), "{state:?}");
        assert!(matches!(session.ended(), Some(Cause::Malformed(_))));
    }
}

#[test]
fn a_notification_ends_it_in_any_state_without_an_answer() {
    for state in [State::OpenSent, State::OpenConfirm, State::Established] {
        let mut session = session_in(state, config());
        session.request_refresh(V4);
        feed(&mut session, at(2.), &message(kind::NOTIFICATION, b"\x06\x02\x03bye"));
        let Some(Cause::PeerNotification(notification)) = session.ended() else { panic!("{:?}", session.ended()) };
        assert_eq!((notification.code, notification.subcode, notification.text().as_deref()), (6, 2, Some("bye")));
        assert_eq!((session.state(), written(&mut session, at(2.))), (State::Idle, vec![]));
        assert_eq!(tcp_actions(&mut session, at(2.)), [TcpAction::Close]);
    }
}

#[test]
fn silence_ends_it() {
    for (state, hold) in [(State::OpenSent, 240.), (State::OpenConfirm, 30.), (State::Established, 30.)] {
        let mut session = session_in(state, config());
        let end = at(1. + hold);
        while let Some(next) = session.next_deadline().filter(|next| *next < end) {
            assert_eq!(tcp_actions(&mut session, next), []);
            written(&mut session, next);
        }
        assert_eq!(session.state(), state);
        assert_eq!(tcp_actions(&mut session, end), []);
        assert_eq!(session.ended(), Some(&Cause::HoldTimerExpired(Duration::from_secs_f64(hold))));
        assert_eq!(ends_with(&mut session, end), (4, 0, vec![]));
    }
}

#[test]
fn whatever_is_heard_keeps_it_alive_and_what_is_sent_saves_keepalives() {
    for heard in [keepalive(), update(), message(kind::ROUTE_REFRESH, &[0, 1, 0, 1])] {
        let mut session = session_in(State::Established, config());
        feed(&mut session, at(25.), &heard);
        tcp_actions(&mut session, at(54.9));
        assert_eq!(session.state(), State::Established);
        tcp_actions(&mut session, at(55.));
        assert_eq!(session.state(), State::Idle);
    }
    let mut session = session_in(State::Established, config());
    for second in 2..60 {
        feed(&mut session, at(f64::from(second)), &keepalive());
        session.wrote(at(f64::from(second)));
        tcp_actions(&mut session, at(f64::from(second) + 0.5));
        assert!(!session.wants_write());
    }
    assert_eq!(tcp_actions(&mut session, at(71.)), []);
    assert_eq!(written(&mut session, at(71.)), [(kind::KEEPALIVE, vec![])]);
}

#[test]
fn with_hold_time_zero_nothing_expires() {
    let mut session = session_in(State::Established, SessionConfig { hold_time: Duration::ZERO, ..config() });
    assert_eq!(session.next_deadline(), None);
    assert_eq!(tcp_actions(&mut session, at(1e6)), []);
    assert_eq!((session.state(), session.wants_write()), (State::Established, false));
}

#[test]
fn keepalives_do_not_pile_up() {
    let mut session = session_in(State::Established, config());
    for _ in 0..2 {
        let next = session.next_deadline().unwrap();
        tcp_actions(&mut session, next);
    }
    let now = at(25.);
    assert_eq!(session.write(now, &mut [0; 18]), 0, "whole messages only");
    assert_eq!(written(&mut session, now).len(), 1);
}

#[test]
fn keepalives_are_a_second_apart_or_more() {
    let mut session = session_in(State::Established, SessionConfig { hold_time: Duration::from_secs(3), ..config() });
    for second in 2..50 {
        let now = at(f64::from(second));
        feed(&mut session, at(f64::from(second) - 0.5), &keepalive());
        tcp_actions(&mut session, at(f64::from(second) - 0.001));
        assert!(!session.wants_write(), "{second}");
        tcp_actions(&mut session, now);
        assert_eq!(written(&mut session, now), [(kind::KEEPALIVE, vec![])]);
    }
}

#[test]
fn an_open_that_is_not_acceptable() {
    let cases = [
        (Open { my_as: 65010, capabilities: vec![], ..open() }, open_error::BAD_PEER_AS),
        (Open { capabilities: vec![Capability::FourOctetAs(0)], ..open() }, open_error::BAD_PEER_AS),
        (Open { identifier: Ipv4Addr::UNSPECIFIED, ..open() }, open_error::BAD_IDENTIFIER),
        (Open { hold_time: 2, ..open() }, open_error::UNACCEPTABLE_HOLD_TIME),
        (
            Open { capabilities: vec![Capability::Multiprotocol(AfiSafi::VPNV4)], ..open() },
            open_error::UNSUPPORTED_CAPABILITY,
        ),
    ];
    for (theirs, subcode) in cases {
        let mut session = session_in(State::OpenSent, config());
        feed(&mut session, at(2.), &theirs.message().unwrap());
        let answer = ends_with(&mut session, at(2.));
        assert_eq!((answer.0, answer.1), (2, subcode), "{theirs:?}");
        assert!(session.ended().unwrap().notification().is_some());
    }
    let mut session = session_in(State::OpenSent, config());
    let mut old = open().message().unwrap();
    old[HEADER_LEN] = 3;
    feed(&mut session, at(2.), &old);
    assert_eq!(ends_with(&mut session, at(2.)), (2, open_error::UNSUPPORTED_VERSION, vec![0, 4]));
}

#[test]
fn a_broken_stream_ends_it() {
    for state in [State::OpenSent, State::OpenConfirm, State::Established] {
        for (bytes, answer) in [
            (vec![0; 19], (1, header::NOT_SYNCHRONIZED, vec![])),
            (message(9, &[]), (1, header::BAD_TYPE, vec![9])),
            (message(kind::KEEPALIVE, &[1]), (1, header::BAD_LENGTH, vec![0, 20])),
        ] {
            let mut session = session_in(state, config());
            feed(&mut session, at(2.), &[&bytes[..], b"and what follows"].concat());
            assert_eq!(ends_with(&mut session, at(2.)), answer);
        }
    }
}

#[test]
fn updates_are_handed_over_and_a_bad_one_ends_it() {
    let mut session = session_in(State::Established, config());
    let stream = [update(), keepalive(), message(kind::UPDATE, &[9; 5]), update()].concat();
    let mut bodies = Vec::new();
    let consumed = session.receive(at(2.), &stream[..stream.len() - 1], &mut |body, agreed| {
        assert_eq!(agreed.peer_as, 65000);
        bodies.push(body.to_vec());
        Ok(())
    });
    assert_eq!((consumed, bodies), (stream.len() - 23, vec![vec![0; 4], vec![9; 5]]));
    assert_eq!((session.received().updates, session.received().keepalives), (2, 2));
    let bad = Notification::new(code::UPDATE, update::MALFORMED_AS_PATH, [7]);
    let mut calls = 0;
    let all = session.receive(at(3.), &stream, &mut |_, _| {
        calls += 1;
        Err(bad.clone())
    });
    assert_eq!((all, calls), (stream.len(), 1), "nothing is read after the end");
    assert_eq!(session.ended(), Some(&Cause::Malformed(bad.clone())));
    assert_eq!(ends_with(&mut session, at(3.)), (3, 11, vec![7]));
}

#[test]
fn refreshes_go_both_ways() {
    let mut session = session_in(State::Established, config());
    let stream = [[0, 1, 0, 1], [0, 2, 0, 1], [0, 1, 1, 1], [0, 1, 2, 1], [0, 1, 77, 1]];
    feed(&mut session, at(2.), &stream.map(|body| message(kind::ROUTE_REFRESH, &body)).concat());
    assert!(session.refresh_requested(V4) && !session.refresh_requested(V4), "once asked, once said");
    assert!(!session.refresh_requested(AfiSafi::IPV6_UNICAST), "not agreed on");
    assert!(session.request_refresh(V4) && session.request_refresh(V4) && !session.request_refresh(AfiSafi::VPNV4));
    assert_eq!(written(&mut session, at(2.)), [(kind::ROUTE_REFRESH, vec![0, 1, 0, 1])]);
    assert_eq!((session.sent().route_refreshes, session.received().route_refreshes), (1, 5));
    feed(&mut session, at(3.), &message(kind::ROUTE_REFRESH, &[0, 1, 1]));
    assert_eq!(ends_with(&mut session, at(3.)).0, code::ROUTE_REFRESH);

    let mut session = session_in(State::Established, SessionConfig { route_refresh: false, ..config() });
    assert!(!session.request_refresh(V4));
    feed(&mut session, at(3.), &message(kind::ROUTE_REFRESH, &[0, 1, 0, 1]));
    assert_eq!(ends_with(&mut session, at(3.)), (1, header::BAD_TYPE, vec![5]));
}

#[test]
fn markers_of_refreshes_are_handed_over_in_order() {
    let refresh = |body: [u8; 4]| message(kind::ROUTE_REFRESH, &body);
    // The second marker is of a family that is not negotiated.
    let markers = [[0, 1, 1, 1], [0, 2, 1, 1], [0, 1, 2, 1]].map(refresh);
    let stream = [update(), markers[0].clone(), markers[1].clone(), update(), markers[2].clone()].concat();
    for (capabilities, expected) in [
        (open().capabilities, vec!["update", "begins", "update", "ends"]),
        (vec![Capability::RouteRefresh], vec!["update", "update"]),
    ] {
        let mut session = session_in(State::OpenSent, config());
        feed(&mut session, at(1.), &Open { capabilities, ..open() }.message().unwrap());
        feed(&mut session, at(1.), &keepalive());
        let mut heard = Vec::new();
        let consumed = session.receive_all(at(2.), &stream, &mut |what, _| {
            heard.push(match what {
                Heard::Update(_) => "update",
                Heard::RefreshBegins(V4) => "begins",
                Heard::RefreshEnds(V4) => "ends",
                _ => "of another family",
            });
            Ok(())
        });
        assert_eq!((consumed, heard), (stream.len(), expected));
    }
}
