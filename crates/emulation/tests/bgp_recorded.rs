//! Sessions between two real routers, recorded on the wire. Our session takes the place of one router and receives the messages
//! of the other at the recorded times. It must reach the same states and understand every message.

use drophammer_emulation::bgp::{Cause, Session, SessionConfig, State, TcpAction};
use drophammer_model::Instant;
use drophammer_wire::bgp::message::{HEADER_LEN, MAX_LEN, emit_keepalive, kind};
use drophammer_wire::bgp::notification::Notification;
use drophammer_wire::bgp::{AfiSafi, Message, Open, PathDirection, RouteRefresh, frame};
use std::net::Ipv4Addr;
use std::time::Duration;

const V4: AfiSafi = AfiSafi::IPV4_UNICAST;
const V6: AfiSafi = AfiSafi::IPV6_UNICAST;

const RECORDINGS: [(&str, &str); 3] = [
    ("frr bird", include_str!("bgp_recorded/frr-bird.txt")),
    ("frr openbgpd", include_str!("bgp_recorded/frr-openbgpd.txt")),
    ("bird openbgpd", include_str!("bgp_recorded/bird-openbgpd.txt")),
];

struct Line<'a> {
    at: Instant,
    sender: &'a str,
    bytes: Vec<u8>,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let [at, sender, hex] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            Line {
                at: Instant((at.parse::<f64>().unwrap() * 1e9) as u64),
                sender,
                bytes: hex.as_bytes().chunks(2).map(byte).collect(),
            }
        })
        .collect()
}

fn message(bytes: &[u8]) -> Message<'_> {
    let message = frame(bytes, MAX_LEN).unwrap().unwrap();
    assert_eq!(message.message_len(), bytes.len());
    message
}

/// AS and identifier of a speaker in the recording, by its name.
fn speaker(name: &str) -> (u32, Ipv4Addr) {
    match name {
        "frr" => (65100, Ipv4Addr::new(10, 9, 0, 1)),
        "bird" => (4_200_000_002, Ipv4Addr::new(10, 9, 0, 2)),
        "openbgpd" => (65300, Ipv4Addr::new(10, 9, 0, 3)),
        other => panic!("{other}"),
    }
}

/// Our session in the place of `me`.
fn config(me: &str, peer: &str) -> SessionConfig {
    let ((local_as, router_id), (peer_as, _)) = (speaker(me), speaker(peer));
    let families = if [me, peer].contains(&"frr") { vec![V4, V6] } else { vec![V4] };
    let both = PathDirection { receive: true, send: true };
    let hold_time = Duration::from_secs(60);
    SessionConfig {
        passive: true,
        add_path: families.iter().map(|family| (*family, both)).collect(),
        families,
        hold_time,
        ..SessionConfig::new(local_as, peer_as, router_id)
    }
}

#[derive(Default)]
struct Heard {
    updates: Vec<Vec<u8>>,
    refreshes: Vec<AfiSafi>,
    established: Option<Instant>,
}

/// Replays the messages of `peer` in pieces of `chunk` bytes, until the last NOTIFICATION of either side.
fn replay(lines: &[Line<'_>], me: &str, peer: &str, chunk: usize) -> (Session, Heard) {
    let mut session = Session::new(config(me, peer));
    session.start(Instant(0));
    assert_eq!(session.poll(Instant(0)), TcpAction::Listen);
    assert!(session.connected(Instant(0)));
    let (mut heard, mut held, mut buffer) = (Heard::default(), Vec::new(), [0; 4096]);
    for line in lines {
        if line.sender == peer {
            for piece in line.bytes.chunks(chunk) {
                held.extend_from_slice(piece);
                let consumed = session.receive(line.at, &held, &mut |body, _| {
                    heard.updates.push(body.to_vec());
                    Ok(())
                });
                held.drain(..consumed);
            }
            let asked = |family: &AfiSafi| session.refresh_requested(*family);
            heard.refreshes.extend([V4, V6].into_iter().filter(asked));
        }
        while session.poll(line.at) != TcpAction::None {}
        session.write(line.at, &mut buffer);
        heard.established = heard.established.or(session.established_at());
    }
    assert!(held.is_empty());
    (session, heard)
}

#[test]
fn every_message_is_understood_and_written_back_to_the_same_meaning() {
    for (name, text) in RECORDINGS {
        let mut seen = [0; 6];
        for line in lines(text) {
            let message = message(&line.bytes);
            seen[usize::from(message.kind)] += 1;
            let mut out = [0; MAX_LEN];
            let length = match message.kind {
                kind::OPEN => {
                    let open = Open::parse(message.body).unwrap();
                    assert_eq!((open.speaker_as(), open.identifier), speaker(line.sender), "{name}");
                    let again = open.message().unwrap();
                    assert_eq!(Open::parse(&again[HEADER_LEN..]), Ok(open));
                    // FRR puts each capability into a separate parameter.
                    assert_eq!(again == line.bytes, line.sender != "frr", "{name}");
                    continue;
                }
                kind::NOTIFICATION => Notification::parse(message.body).unwrap().emit(&mut out),
                kind::KEEPALIVE => emit_keepalive(&mut out),
                kind::ROUTE_REFRESH => RouteRefresh::parse(message.body).unwrap().emit(&mut out),
                _ => continue,
            };
            assert_eq!(out[..length], line.bytes, "{name}");
        }
        assert!(seen[1] == 2 && seen[2..].iter().all(|count| *count > 0), "{name}: {seen:?}");
    }
}

#[test]
fn our_session_in_the_place_of_either() {
    for (name, text) in RECORDINGS {
        let lines = lines(text);
        let (a, b) = name.split_once(' ').unwrap();
        for (me, peer, chunk) in [(a, b, 1), (b, a, 1), (a, b, 7), (b, a, 10_000)] {
            let (session, heard) = replay(&lines, me, peer, chunk);
            let theirs: Vec<_> =
                lines.iter().filter(|line| line.sender == peer).map(|line| message(&line.bytes)).collect();
            let count = |kind| theirs.iter().filter(|message| message.kind == kind).count() as u64;
            let received = session.received();
            let all = [
                received.opens,
                received.updates,
                received.notifications,
                received.keepalives,
                received.route_refreshes,
            ];
            assert_eq!(all, [1, 2, 3, 4, 5].map(count), "{me} hears {peer}");
            let updates: Vec<_> = theirs.iter().filter(|m| m.kind == kind::UPDATE).map(|m| m.body.to_vec()).collect();
            assert_eq!(heard.updates, updates);
            let first = lines.iter().find(|line| line.sender == peer && line.bytes[18] == kind::KEEPALIVE).unwrap();
            assert_eq!(heard.established, Some(first.at), "{me} hears {peer}");
            let (state, text) = match session.ended() {
                Some(Cause::PeerNotification(notification)) => (State::Idle, notification.text()),
                other => (State::Established, other.map(|cause| panic!("{cause}"))),
            };
            assert_eq!(session.state(), state);
            let last = lines.last().unwrap().sender;
            let bye = if last == "openbgpd" { "obgpd says bye".into() } else { format!("{last} says bye") };
            assert_eq!(text, (last == peer).then_some(bye), "{me} hears {peer}");
        }
    }
}

/// The recording up to its last message, which would end the session.
fn before_the_end(name: &str, me: &str) -> (Session, Heard) {
    let text = RECORDINGS.into_iter().find(|(recorded, _)| *recorded == name).unwrap().1;
    let mut lines = lines(text);
    lines.pop();
    let (a, b) = name.split_once(' ').unwrap();
    replay(&lines, me, if me == a { b } else { a }, 100)
}

#[test]
fn what_is_agreed_with_frr() {
    let (session, heard) = before_the_end("frr bird", "bird");
    let agreed = session.negotiated().unwrap();
    assert_eq!((agreed.peer_as, agreed.peer_id), speaker("frr"));
    assert_eq!((agreed.hold, agreed.keepalive), (Duration::from_secs(9), Duration::from_secs(3)));
    assert_eq!((&agreed.families[..], agreed.four_octet_as, agreed.ibgp), (&[V4, V6][..], true, false));
    assert_eq!((agreed.max_send, agreed.max_receive), (65535, 65535));
    assert!(agreed.route_refresh && agreed.enhanced_route_refresh);
    let restart = agreed.graceful_restart.as_ref().unwrap();
    assert_eq!((restart.restarted, restart.notification, restart.seconds), (true, true, 120));
    assert_eq!(agreed.peer_kept_forwarding(V4), Some(false));
    assert!(agreed.add_path_receive(V4) && agreed.add_path_send(V4), "told to send all paths of IPv4");
    assert_eq!(heard.refreshes, [V4]);
}

#[test]
fn what_is_agreed_with_bird() {
    let (session, heard) = before_the_end("frr bird", "frr");
    let agreed = session.negotiated().unwrap();
    assert_eq!((agreed.peer_as, agreed.peer_id), speaker("bird"));
    assert_eq!((agreed.hold, agreed.max_send), (Duration::from_secs(60), 65535));
    assert!(
        agreed.add_path_send(V4) && !agreed.add_path_receive(V4) && !agreed.add_path_send(V6),
        "receives IPv4 only"
    );
    assert_eq!(agreed.graceful_restart.as_ref().unwrap().seconds, 120);
    assert_eq!((agreed.peer_kept_forwarding(V4), agreed.peer_kept_forwarding(V6)), (Some(false), Some(false)));
    assert_eq!(heard.refreshes, [V4, V6]);
    let (session, _) = before_the_end("bird openbgpd", "openbgpd");
    let agreed = session.negotiated().unwrap();
    assert_eq!((agreed.hold, &agreed.families[..]), (Duration::from_secs(30), &[V4][..]));
}

#[test]
fn what_is_agreed_with_openbgpd() {
    let (session, heard) = before_the_end("bird openbgpd", "bird");
    let agreed = session.negotiated().unwrap();
    assert_eq!((agreed.peer_as, agreed.peer_id), speaker("openbgpd"));
    assert_eq!((agreed.max_send, agreed.max_receive), (4096, 65535), "7.7 does not know longer messages");
    assert!(agreed.add_path_send(V4) && !agreed.add_path_receive(V4));
    assert!(agreed.enhanced_route_refresh);
    assert_eq!((agreed.peer_kept_forwarding(V4), agreed.graceful_restart.is_some()), (None, true));
    assert_eq!(heard.refreshes, [V4]);
    let (session, _) = before_the_end("frr openbgpd", "frr");
    let agreed = session.negotiated().unwrap();
    assert_eq!((agreed.hold, &agreed.families[..]), (Duration::from_secs(30), &[V4, V6][..]));
    assert!(agreed.add_path.is_empty());
}
