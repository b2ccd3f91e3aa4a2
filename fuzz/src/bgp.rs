//! BGP: any bytes are split into the same messages wherever they are cut, what was read means the same when it is written
//! again, and a session takes whatever comes at whatever time.

use super::input::Input;
use drophammer_emulation::bgp::{Closed, GracefulRestartConfig, Session, SessionConfig, State, TcpAction};
use drophammer_model::Instant;
use drophammer_wire::bgp::message::{HEADER_LEN, MAX_LEN, MAX_LEN_EXTENDED, emit_header, kind};
use drophammer_wire::bgp::{AfiSafi, Message, Notification, Open, PathDirection, RouteRefresh, frame, route_refresh};
use std::net::Ipv4Addr;
use std::time::Duration;

/// A stream, or the life of a session.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    if input.flag() { stream(&mut input) } else { session(&mut input) }
}

/// Bytes of a message: a sound header with whatever follows, or anything.
fn message(input: &mut Input) -> Vec<u8> {
    let kind = input.below(7);
    let length = usize::from(input.u8());
    let body = input.bytes(length);
    if kind == 6 {
        return body.to_vec();
    }
    let mut bytes = vec![0; HEADER_LEN];
    emit_header(&mut bytes, kind as u8, HEADER_LEN + body.len());
    bytes.extend_from_slice(body);
    bytes
}

fn stream(input: &mut Input) {
    let max = if input.flag() { MAX_LEN_EXTENDED } else { MAX_LEN };
    let cut = usize::from(input.u8()) + 1;
    let mut bytes = Vec::new();
    while !input.is_empty() && bytes.len() < 10_000 {
        bytes.extend(message(input));
    }
    let (mut at, mut whole) = (0, Vec::new());
    let end = loop {
        match frame(&bytes[at..], max) {
            Ok(Some(message)) => {
                read(message);
                at += message.message_len();
                whole.push(at);
            }
            Ok(None) => break None,
            Err(answer) => break Some(answer),
        }
    };
    // The same again, in pieces.
    let (mut from, mut to, mut pieces) = (0, 0, Vec::new());
    while to < bytes.len() {
        to = (to + cut).min(bytes.len());
        match frame(&bytes[from..to], max) {
            Ok(Some(message)) => {
                from += message.message_len();
                pieces.push(from);
                // Another one may be there already.
                to = from;
            }
            Ok(None) => {}
            Err(answer) => {
                assert_eq!(Some(answer), end);
                break;
            }
        }
    }
    assert_eq!(pieces, whole);
}

fn read(message: Message) {
    match message.kind {
        kind::OPEN => match Open::parse(message.body) {
            // Only what is longer than any OPEN cannot be written again.
            Ok(open) => {
                let again = open.message().map(|bytes| Open::parse(&bytes[HEADER_LEN..]));
                assert!(again.is_ok_and(|again| again == Ok(open)) || message.message_len() > MAX_LEN - 10);
            }
            Err(answer) => tell(&answer),
        },
        kind::NOTIFICATION => tell(&Notification::parse(message.body).unwrap()),
        kind::ROUTE_REFRESH => match RouteRefresh::parse(message.body) {
            Ok(refresh) => {
                let mut again = [0; route_refresh::LEN];
                refresh.emit(&mut again);
                assert_eq!(RouteRefresh::parse(&again[HEADER_LEN..]), Ok(refresh));
            }
            Err(answer) => tell(&answer),
        },
        kind::KEEPALIVE => assert!(message.body.is_empty()),
        kind => assert_eq!(kind, kind::UPDATE),
    }
}

/// Writes a NOTIFICATION, and says it.
fn tell(answer: &Notification) {
    let mut bytes = vec![0xee; answer.message_len()];
    assert_eq!(answer.emit(&mut bytes), bytes.len());
    let again = Notification::parse(frame(&bytes, MAX_LEN).unwrap().unwrap().body).unwrap();
    assert!((again.code, again.subcode) == (answer.code, answer.subcode) && answer.data.starts_with(&again.data));
    assert!(!answer.to_string().is_empty());
    assert!(answer.text().is_none_or(|text| !text.is_empty()));
}

fn config(input: &mut Input) -> SessionConfig {
    let choice = input.u8();
    let bit = |n: u8| choice >> n & 1 == 1;
    let mut config = SessionConfig::new(65001, 65000, Ipv4Addr::new(192, 0, 2, 1));
    config.passive = bit(0);
    config.extended_messages = bit(1);
    config.route_refresh = bit(2);
    if bit(3) {
        config.families = vec![AfiSafi::IPV6_UNICAST, AfiSafi::IPV4_UNICAST];
    }
    if bit(4) {
        config.add_path = vec![(AfiSafi::IPV4_UNICAST, PathDirection { receive: true, send: bit(5) })];
    }
    let restart_time = Duration::from_secs(120);
    let restart = GracefulRestartConfig { restart_time, notification: bit(6), restarted: false, forwarding: bit(7) };
    config.graceful_restart = bit(6).then_some(restart);
    config.hold_time = Duration::from_secs([0, 3, 90, 70_000][input.below(4)]);
    config.connect_retry = Duration::from_millis(input.u16().into());
    config.connect_timeout = config.connect_retry;
    config
}

/// What the peer says: the OPEN that is expected, what keeps a session going, or any message.
fn said(input: &mut Input) -> Vec<u8> {
    let peer = || SessionConfig::new(65000, 65001, Ipv4Addr::new(192, 0, 2, 9));
    match input.below(4) {
        0 => peer().open_message().unwrap(),
        1 => {
            let mut bytes = vec![0; HEADER_LEN];
            emit_header(&mut bytes, kind::KEEPALIVE, HEADER_LEN);
            bytes
        }
        _ => message(input),
    }
}

fn session(input: &mut Input) {
    let mut session = Session::new(config(input));
    let mut now = Instant(1);
    let (mut connected, mut held) = (false, Vec::new());
    session.start(now);
    for _ in 0..500 {
        if input.is_empty() {
            break;
        }
        match input.below(8) {
            0 => now = now + Duration::from_micros(input.u32().into()),
            1 if !connected => connected = session.connected(now),
            2 => {
                let how = [Closed::ByPeer, Closed::Reset, Closed::Refused, Closed::Unreachable, Closed::TimedOut];
                session.closed(now, how[input.below(5)]);
                connected = false;
            }
            3 => {
                let mut room = vec![0; usize::from(input.u8()) * 8];
                let length = session.write(now, &mut room);
                let mut rest = &room[..length];
                while let Some(message) = frame(rest, MAX_LEN).unwrap() {
                    rest = &rest[message.message_len()..];
                }
                assert!(rest.is_empty(), "whole messages only");
            }
            4 => match input.below(4) {
                0 => session.stop(now, 2),
                1 => session.reset(now, Notification::cease(4, "fuzz")),
                2 => session.abort(now),
                _ => session.start(now),
            },
            5 => {
                let family = AfiSafi::new(input.below(3) as u16, 1);
                assert!(!session.request_refresh(family) || session.state() == State::Established);
                session.refresh_requested(family);
                session.wrote(now);
            }
            _ if connected => {
                held.extend(said(input));
                let refused = input.flag();
                let consumed = session.receive(now, &held, &mut |_, agreed| {
                    assert!(agreed.max_receive >= MAX_LEN && !agreed.families.is_empty());
                    if refused { Err(Notification::bare(3, 1)) } else { Ok(()) }
                });
                assert!(consumed <= held.len());
                held.drain(..consumed);
            }
            _ => {}
        }
        for action in std::iter::from_fn(|| Some(session.poll(now)).filter(|action| *action != TcpAction::None)) {
            if matches!(action, TcpAction::Close | TcpAction::Abort) {
                connected = false;
            }
        }
        if !connected {
            held.clear();
        }
        assert!(session.next_deadline().is_none_or(|next| next > now), "it would be polled for ever");
        assert_eq!(session.negotiated().is_some(), session.state() >= State::OpenConfirm);
        assert_eq!(session.established_at().is_some(), session.state() == State::Established);
        assert!(connected || session.state() < State::OpenSent, "{:?} without a connection", session.state());
        assert!(session.events().len() <= 64 && session.ended().is_none_or(|cause| !cause.to_string().is_empty()));
    }
}
