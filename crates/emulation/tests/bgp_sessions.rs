//! Two sessions exchange messages in virtual time.

use drophammer_emulation::bgp::collision::{Initiator, resolve};
use drophammer_emulation::bgp::{Cause, Closed, Session, SessionConfig, State, TcpAction};
use drophammer_model::Instant;
use drophammer_wire::bgp::notification::{Notification, cease};
use drophammer_wire::bgp::{AfiSafi, PathDirection};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::time::Duration;

const V4: AfiSafi = AfiSafi::IPV4_UNICAST;
const V6: AfiSafi = AfiSafi::IPV6_UNICAST;

fn at(seconds: f64) -> Instant {
    Instant((seconds * 1e9) as u64)
}

fn config(side: usize) -> SessionConfig {
    let asn = [65001, 4_200_000_002];
    let hold_time = Duration::from_secs(9);
    let id = Ipv4Addr::new(192, 0, 2, side as u8 + 1);
    SessionConfig { hold_time, seed: side as u64, ..SessionConfig::new(asn[side], asn[1 - side], id) }
}

/// Two sessions and the connection between them, which delivers bytes without delay.
struct Pair {
    now: Instant,
    sides: [Session; 2],
    /// True while there is a connection.
    linked: bool,
    /// Bytes that each session has not consumed yet.
    arrived: [Vec<u8>; 2],
    /// True if bytes sent by this side are lost, although its transport believes that they were delivered.
    mute: [bool; 2],
    /// True if no connection can be opened.
    cut: bool,
    /// Bytes per delivery.
    chunk: usize,
}

impl Pair {
    fn new(configs: [SessionConfig; 2]) -> Pair {
        let mut pair = Pair {
            now: Instant(0),
            sides: configs.map(Session::new),
            linked: false,
            arrived: [vec![], vec![]],
            mute: [false; 2],
            cut: false,
            chunk: 5,
        };
        pair.sides.iter_mut().for_each(|side| side.start(Instant(0)));
        pair
    }

    fn states(&self) -> [State; 2] {
        [self.sides[0].state(), self.sides[1].state()]
    }

    fn up(&self) -> bool {
        self.states() == [State::Established; 2]
    }

    fn unlink(&mut self, other: Option<(usize, Closed)>) {
        if std::mem::take(&mut self.linked)
            && let Some((side, how)) = other
        {
            if how == Closed::ByPeer {
                self.deliver(side);
            }
            self.sides[side].closed(self.now, how);
        }
        self.arrived = [vec![], vec![]];
    }

    fn deliver(&mut self, side: usize) {
        let mut offered = 0;
        while offered < self.arrived[side].len() {
            offered = (offered + self.chunk).min(self.arrived[side].len());
            let bytes = &self.arrived[side][..offered];
            let consumed = self.sides[side].receive(self.now, bytes, &mut |_, _| panic!("no UPDATE was sent"));
            self.arrived[side].drain(..consumed);
            offered -= consumed;
        }
    }

    /// Runs everything that can happen at this instant.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 100, "it never settles: {:?}", self.states());
            let mut quiet = true;
            for side in [0, 1] {
                if self.linked && self.sides[side].wants_write() {
                    let mut buffer = [0; 4096];
                    let length = self.sides[side].write(self.now, &mut buffer);
                    if !self.mute[side] {
                        self.arrived[1 - side].extend_from_slice(&buffer[..length]);
                    }
                    quiet = false;
                }
                if self.linked {
                    self.deliver(side);
                }
                let action = self.sides[side].poll(self.now);
                // A timer may have queued a message.
                quiet &= action == TcpAction::None && !(self.linked && self.sides[side].wants_write());
                match action {
                    TcpAction::None | TcpAction::Listen => {}
                    TcpAction::Connect if self.linked => {}
                    TcpAction::Connect => {
                        let open = matches!(self.sides[1 - side].state(), State::Connect | State::Active);
                        if self.cut || !open {
                            self.sides[side].closed(self.now, Closed::Refused);
                        } else {
                            self.linked = true;
                            assert!(self.sides.iter_mut().all(|side| side.connected(self.now)));
                        }
                    }
                    TcpAction::Close => self.unlink(Some((1 - side, Closed::ByPeer))),
                    TcpAction::Abort => self.unlink(Some((1 - side, Closed::Reset))),
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn run(&mut self, until: Instant) {
        loop {
            self.settle();
            match self.sides.iter().filter_map(Session::next_deadline).min() {
                Some(next) if next <= until => {
                    assert!(next > self.now, "it would be polled for ever");
                    self.now = next;
                }
                _ => break,
            }
        }
        self.now = until;
        self.settle();
    }
}

#[test]
fn they_come_up_and_keep_each_other_alive() {
    let mut pair = Pair::new([config(0), SessionConfig { passive: true, ..config(1) }]);
    pair.run(at(600.));
    assert!(pair.up());
    assert_eq!(pair.sides[1].established_at(), Some(at(0.)));
    for side in &pair.sides {
        // One every 3 s, minus jitter of up to a quarter, plus the one that accepts the OPEN.
        assert!((201..=267).contains(&side.sent().keepalives), "{:?}", side.sent());
        assert_eq!((side.events_dropped(), side.ended()), (0, None));
    }
    assert_eq!(pair.sides[0].sent().keepalives, pair.sides[1].received().keepalives);
    let [a, b] = pair.sides.map(|side| side.negotiated().cloned().unwrap());
    assert_eq!((a.peer_as, b.peer_as, a.peer_id, b.peer_id), (b.local_as, a.local_as, b.local_id, a.local_id));
    assert_eq!((a.hold, a.keepalive), (Duration::from_secs(9), Duration::from_secs(3)));
}

#[test]
fn a_silent_one_is_noticed_after_the_hold_time_and_comes_back() {
    let mut pair = Pair::new([config(0), config(1)]);
    pair.run(at(100.));
    pair.mute[1] = true;
    pair.run(at(110.));
    assert!(!pair.up());
    let hold = Cause::HoldTimerExpired(Duration::from_secs(9));
    let expired = Notification::bare(4, 0);
    let (since, cause) = pair.sides[0].lost().unwrap();
    assert!(since > at(106.) && since <= at(109.), "9 s after the last KEEPALIVE: {since:?}");
    assert_eq!(cause, &hold);
    assert_eq!(pair.sides[1].lost(), Some((since, &Cause::PeerNotification(expired))));
    pair.mute[1] = false;
    pair.run(at(360.));
    assert!(pair.up());
}

#[test]
fn a_reset_has_its_cause_on_both_sides() {
    let mut pair = Pair::new([config(0), config(1)]);
    pair.run(at(10.));
    let why = Notification::cease(cease::ADMINISTRATIVE_RESET, "new filter");
    pair.sides[0].reset(pair.now, why.clone());
    pair.settle();
    assert_eq!(pair.states(), [State::Idle; 2]);
    assert_eq!(pair.sides[0].ended(), Some(&Cause::SentNotification(why.clone())));
    assert_eq!(pair.sides[1].ended(), Some(&Cause::PeerNotification(why)));
    assert!(pair.sides[1].ended().unwrap().to_string().ends_with("Cease / Administrative Reset (6/4): \"new filter\""));
    pair.run(at(20.));
    assert!(pair.up(), "{:?}", pair.states());
}

#[test]
fn a_stopped_one_stays_down_and_the_other_tries_for_ever() {
    let mut pair = Pair::new([config(0), config(1)]);
    pair.run(at(10.));
    pair.sides[1].stop(pair.now, cease::PEER_DECONFIGURED);
    pair.run(at(70.));
    assert_eq!(pair.sides[1].state(), State::Idle);
    assert_eq!(pair.sides[0].ended(), Some(&Cause::Refused));
    assert!((13..=30).contains(&(pair.sides[0].events().filter(|e| e.cause == Some(Cause::Refused)).count())));
    let now = pair.now;
    pair.sides[1].start(now);
    pair.run(at(80.));
    assert!(pair.up());
}

#[test]
fn a_wrong_as_never_comes_up() {
    let mut pair = Pair::new([SessionConfig { peer_as: 65333, ..config(0) }, config(1)]);
    pair.run(at(60.));
    for side in &pair.sides {
        assert!(side.events().all(|event| event.to != State::Established));
        assert!(side.events().filter(|event| event.to == State::OpenSent).count() >= 5);
    }
    let why = |side: &Session| {
        let rejected = |cause: &Cause| matches!(cause, Cause::Rejected { .. } | Cause::PeerNotification(_));
        side.events().filter_map(|event| event.cause.clone()).find(rejected).unwrap().to_string()
    };
    let ours = "the peer says AS 4200000002, but AS 65333 was expected: OPEN Message Error / Bad Peer AS (2/2)";
    assert_eq!(why(&pair.sides[0]), ours);
    assert_eq!(why(&pair.sides[1]), "the peer ended the session: OPEN Message Error / Bad Peer AS (2/2)");
}

#[test]
fn a_refresh_reaches_the_other() {
    let families = vec![V4, V6];
    let mut pair = Pair::new([0, 1].map(|side| SessionConfig { families: families.clone(), ..config(side) }));
    pair.run(at(5.));
    assert!(pair.sides[0].request_refresh(V6));
    pair.settle();
    assert!(pair.sides[1].refresh_requested(V6) && !pair.sides[1].refresh_requested(V4));
}

/// Passes all messages of `from` to `to`.
fn pass(now: Instant, from: &mut Session, to: &mut Session) {
    let mut buffer = [0; 4096];
    let length = from.write(now, &mut buffer);
    assert_eq!(to.receive(now, &buffer[..length], &mut |_, _| Ok(())), length);
}

#[test]
fn of_two_connections_the_one_of_the_higher_identifier_stays() {
    // [connection][side]; side i opens connection i. Tested with the OPENs on the two connections in either order.
    for ids in [[1, 2], [2, 1], [7, 7]] {
        for first in [0, 1] {
            let speaker = |side: usize| SessionConfig { router_id: Ipv4Addr::new(10, 0, 0, ids[side]), ..config(side) };
            let mut connections = [0, 1].map(|_| [Session::new(speaker(0)), Session::new(speaker(1))]);
            let mut closed = [vec![], vec![]];
            for session in connections.iter_mut().flatten() {
                session.start(at(0.));
                assert!(session.connected(at(0.)));
            }
            for step in 0..6 {
                for connection in [first, 1 - first] {
                    let [a, b] = &mut connections[connection];
                    if step % 2 == 0 {
                        pass(at(1.), a, b)
                    } else {
                        pass(at(1.), b, a)
                    }
                    let [[a0, b0], [a1, b1]] = &mut connections;
                    closed[0].extend(resolve(at(1.), a0, a1));
                    closed[1].extend(resolve(at(1.), b1, b0));
                }
            }
            // Side 1 has the higher AS.
            let stays = usize::from(ids[0] <= ids[1]);
            let [up, down] = [&connections[stays], &connections[1 - stays]];
            assert!(up.iter().all(|session| session.state() == State::Established), "{ids:?} {first}: {closed:?}");
            assert!(down.iter().all(|session| session.state() == State::Idle));
            assert!(down.iter().all(|session| session.ended().unwrap().notification().unwrap().subcode == 7));
            let loser = |side: usize| if side == stays { Initiator::Remote } else { Initiator::Local };
            assert!(closed[0].iter().all(|who| *who == loser(0)) && closed[1].iter().all(|who| *who == loser(1)));
            assert!(!closed[0].is_empty() || !closed[1].is_empty());
        }
    }
}

#[test]
fn an_established_session_is_not_given_up_for_a_newcomer() {
    let mut pair = Pair::new([config(0), config(1)]);
    pair.run(at(5.));
    // The peer with the higher identifier opens another connection.
    let mut newcomer = Session::new(SessionConfig { passive: true, ..config(0) });
    newcomer.start(pair.now);
    assert_eq!(resolve(pair.now, &mut pair.sides[0], &mut newcomer), None, "there is no connection yet");
    newcomer.connected(pair.now);
    assert_eq!(resolve(pair.now, &mut pair.sides[0], &mut newcomer), Some(Initiator::Remote));
    assert_eq!((pair.sides[0].state(), newcomer.state()), (State::Established, State::Idle));
}

fn any_config(side: usize) -> impl Strategy<Value = SessionConfig> {
    let hold = prop_oneof![Just(0u64), 3u64..200];
    let families = proptest::sample::subsequence(vec![V4, V6, AfiSafi::VPNV4], 0..=2);
    let ways = proptest::collection::vec((proptest::sample::select(vec![V4, V6]), any::<(bool, bool)>()), 0..3);
    (hold, families, ways, any::<(bool, bool)>(), any::<u64>(), 1u64..20).prop_map(
        move |(hold, mut families, ways, (extended_messages, route_refresh), seed, idle_hold)| {
            families.retain(|family| *family != V4);
            families.push(V4);
            SessionConfig {
                hold_time: Duration::from_secs(hold),
                families,
                add_path: ways.into_iter().map(|(f, (receive, send))| (f, PathDirection { receive, send })).collect(),
                extended_messages,
                route_refresh,
                seed,
                idle_hold: Duration::from_secs(idle_hold),
                ..config(side)
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_happens_they_agree_and_come_back(
        a in any_config(0), b in any_config(1), passive: bool, chunk in 1usize..100,
        faults in proptest::collection::vec((0u8..6, 0usize..2, 0.1f64..60.), 0..12),
    ) {
        let mut pair = Pair::new([a, SessionConfig { passive, ..b }]);
        pair.chunk = chunk;
        pair.run(at(1.));
        for (fault, side, seconds) in faults {
            pair.mute = [false; 2];
            pair.cut = false;
            match fault {
                0 => pair.mute[side] = true,
                1 => pair.cut = true,
                2 => pair.sides[side].reset(pair.now, Notification::bare(6, 4)),
                3 => pair.sides[side].abort(pair.now),
                4 => {
                    pair.unlink(Some((side, Closed::Reset)));
                    pair.sides[1 - side].closed(pair.now, Closed::Reset);
                }
                _ => {}
            }
            let until = pair.now + Duration::from_secs_f64(seconds);
            pair.run(until);
        }
        (pair.mute, pair.cut) = ([false; 2], false);
        // After a lost OPEN, recovery takes the large hold time. After a lost KEEPALIVE without a hold time, it would
        // take forever.
        let until = pair.now + Duration::from_secs(600);
        if pair.sides.iter().any(|side| side.config().hold_time.is_zero()) {
            pair.sides[0].abort(pair.now);
            pair.sides[1].abort(pair.now);
        }
        pair.run(until);
        prop_assert!(pair.up(), "{:?}", pair.sides.map(|side| side.events().cloned().collect::<Vec<_>>()));
        let [a, b] = pair.sides.map(|side| side.negotiated().cloned().unwrap());
        prop_assert_eq!((a.hold, a.max_send <= b.max_receive, b.max_send <= a.max_receive), (b.hold, true, true));
        prop_assert_eq!((a.route_refresh, a.enhanced_route_refresh), (b.route_refresh, b.enhanced_route_refresh));
        for family in [V4, V6, AfiSafi::VPNV4] {
            prop_assert_eq!(a.has(family), b.has(family));
            prop_assert_eq!(a.add_path_send(family), b.add_path_receive(family));
            prop_assert_eq!(b.add_path_send(family), a.add_path_receive(family));
        }
    }
}
