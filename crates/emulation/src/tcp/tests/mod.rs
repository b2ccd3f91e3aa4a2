//! Tests of two stacks with a link between them, in virtual time.

mod hostile;

use super::*;
use drophammer_model::Instant;
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Faults of the link; each value is a share of 1,000 packets.
#[derive(Clone, Copy, Default)]
struct Trouble {
    lost: u64,
    doubled: u64,
    delayed: u64,
}

/// Packets in flight, by arrival and number, and the side at which they arrive.
struct World {
    now: Instant,
    sides: [TcpStack; 2],
    under_way: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    trouble: Trouble,
    random: u64,
    packets: u64,
    trace: DefaultHasher,
    longest: usize,
    /// The side whose packets are all lost.
    silent: Option<usize>,
}

const DELAY: Duration = Duration::from_micros(50);

impl World {
    fn new(config: TcpConfig, trouble: Trouble) -> World {
        let sides = [0, 1].map(|i| TcpStack::new(TcpConfig { seed: config.seed + i, ..config }));
        World {
            now: Instant(0),
            sides,
            under_way: BTreeMap::new(),
            trouble,
            random: config.seed | 1,
            packets: 0,
            trace: DefaultHasher::new(),
            longest: 0,
            silent: None,
        }
    }

    fn chance(&mut self, share: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1_000 < share
    }

    /// Polls both sides and puts their packets on the link.
    fn poll(&mut self) {
        for side in 0..2 {
            let mut sent = Vec::new();
            self.sides[side].poll(self.now, &mut |packet| sent.push(packet.to_vec()));
            for packet in sent {
                self.trace.write(&packet);
                self.trace.write_u64(self.now.0);
                self.packets += 1;
                self.longest = self.longest.max(packet.len());
                etherparse::SlicedPacket::from_ip(&packet).unwrap();
                let Trouble { lost, doubled, delayed } = self.trouble;
                let copies = 1 + usize::from(self.chance(doubled));
                for _ in 0..copies {
                    let late = if self.chance(delayed) { DELAY * 3 } else { Duration::ZERO };
                    if !self.chance(lost) && self.silent != Some(side) {
                        let number = self.under_way.len() as u64 + self.packets * 2;
                        self.under_way.insert((self.now + DELAY + late, number), (1 - side, packet.clone()));
                    }
                }
            }
        }
    }

    /// Advances to the next arrival or deadline. Returns false if there is none until `end`.
    fn step(&mut self, end: Instant) -> bool {
        self.poll();
        let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
        let deadlines = self.sides.iter().filter_map(TcpStack::next_deadline).map(|at| at.max(self.now));
        let Some(next) = deadlines.chain(arrival).min().filter(|at| *at <= end) else { return false };
        self.now = next;
        while let Some(entry) = self.under_way.first_entry().filter(|e| e.key().0 <= next) {
            let (side, packet) = entry.remove();
            assert!(self.sides[side].receive(next, &packet));
        }
        self.poll();
        true
    }

    /// Runs until `done`, but at most for `limit`.
    fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut World) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.step(end), "not within {limit:?}");
        }
    }

    fn connect(&mut self, from: IpAddr, to: SocketAddr) -> ConnectionId {
        self.sides[0].connect(self.now, from, to)
    }

    /// Both ends of a connection from host 1 of side 0 to port 179 of host 1 of side 1.
    fn pair(&mut self, v6: bool) -> [ConnectionId; 2] {
        let (a, b) = (address(0, 1, v6), address(1, 1, v6));
        self.sides[0].add_host(a);
        self.sides[1].add_host(b);
        let listener = self.sides[1].listen(b, 179);
        let active = self.connect(a, (b, 179).into());
        let mut passive = None;
        self.run(Duration::from_secs(30), |world| {
            passive = passive.or_else(|| world.sides[1].accept(listener));
            passive.is_some() && world.sides[0].state(active) == ConnState::Established
        });
        [active, passive.unwrap()]
    }
}

fn address(side: u16, host: u16, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0x2001, 2, 0, side, 0, 0, 0, host).into()
    } else {
        Ipv4Addr::from_bits(0xc612_0000 + (u32::from(side) << 16) + u32::from(host)).into()
    }
}

/// Byte `i` of the stream of `side`.
fn byte(side: usize, i: usize) -> u8 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15 + side as u64).to_be_bytes()[0]
}

/// Sends `len` bytes each way and checks them; they are sent and received as whole messages of 19 bytes.
fn exchange(world: &mut World, ids: [ConnectionId; 2], len: usize, limit: Duration) {
    let (mut sent, mut received) = ([0; 2], [0; 2]);
    world.run(limit, |world| {
        for side in 0..2 {
            let (stack, id) = (&mut world.sides[side], ids[side]);
            while sent[side] < len
                && stack.send_with(id, &mut |room| {
                    let n = (room.len() / 19 * 19).min(len - sent[side]);
                    room[..n].iter_mut().enumerate().for_each(|(i, b)| *b = byte(side, sent[side] + i));
                    sent[side] += n;
                    n
                }) > 0
            {}
            stack.receive_with(id, &mut |bytes| {
                let left = len - received[side];
                let n = if bytes.len() >= left { left } else { bytes.len() / 19 * 19 };
                for (i, b) in bytes[..n].iter().enumerate() {
                    assert_eq!(*b, byte(1 - side, received[side] + i), "byte {} to {side}", received[side] + i);
                }
                received[side] += n;
                n
            });
        }
        received == [len; 2] && (0..2).all(|i| world.sides[i].unacknowledged(ids[i]) == 0)
    });
}

const LONG: Duration = Duration::from_secs(600);

#[test]
fn connects_carries_both_ways_and_closes() {
    for v6 in [false, true] {
        let mut world = World::new(TcpConfig::new(1500, 1), Trouble::default());
        let ids = world.pair(v6);
        let (local, remote) = world.sides[0].ends(ids[0]).unwrap();
        assert_eq!(world.sides[1].ends(ids[1]), Some((remote, local)));
        exchange(&mut world, ids, 3_000_000, Duration::from_secs(2));
        assert_eq!(world.longest, 1500);

        // The last bytes before the close arrive. The other side first sees the end of the data, then the close.
        world.sides[0].send_with(ids[0], &mut |room| {
            room[..3].copy_from_slice(b"bye");
            3
        });
        world.sides[0].close(ids[0]);
        assert_eq!((world.sides[0].state(ids[0]), world.sides[0].can_send(ids[0])), (ConnState::Established, 0));
        world.run(LONG, |world| world.sides[1].state(ids[1]) == ConnState::PeerClosed);
        let mut received = Vec::new();
        world.sides[1].receive_with(ids[1], &mut |bytes| {
            received.extend_from_slice(bytes);
            bytes.len()
        });
        assert_eq!(received, b"bye");
        assert!(world.sides[1].can_send(ids[1]) > 0, "half closed");
        world.sides[1].close(ids[1]);
        world.run(LONG, |world| world.sides[1].state(ids[1]) == ConnState::Closed(CloseReason::Peer));
        world.run(LONG, |world| world.sides[0].state(ids[0]) == ConnState::Closed(CloseReason::Local));
        world.sides[1].remove(ids[1]);
        world.sides[0].remove(ids[0]);
        assert_eq!((world.sides[0].connections(), world.sides[1].connections()), (1, 0), "the first is in TIME-WAIT");
        world.run(LONG, |world| world.sides[0].connections() == 0);
        assert!(!world.step(world.now + LONG), "nothing is left to do");
    }
}

#[test]
fn carries_over_a_bad_link() {
    let trouble = Trouble { lost: 10, doubled: 20, delayed: 100 };
    for (v6, seed) in [(false, 3), (true, 4)] {
        let config = TcpConfig { send_buffer: 32 << 10, ..TcpConfig::new(1280, seed) };
        let mut world = World::new(config, trouble);
        let ids = world.pair(v6);
        exchange(&mut world, ids, 400_000, LONG);
        assert!(world.longest <= 1280);
    }
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let run = |seed| {
        let mut world = World::new(TcpConfig::new(1500, seed), Trouble { lost: 5, doubled: 5, delayed: 50 });
        let ids = world.pair(false);
        exchange(&mut world, ids, 200_000, LONG);
        (world.trace.finish(), world.packets, world.now)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}

#[test]
fn each_end_has_its_reason() {
    let mut world = World::new(TcpConfig::new(1500, 1), Trouble::default());
    let ids = world.pair(false);
    let (a, b) = (address(0, 1, false), address(1, 1, false));
    // There is no listener on this port.
    let refused = world.connect(a, (b, 180).into());
    let state = |world: &mut World, side: usize, id| world.sides[side].state(id);
    assert_eq!(state(&mut world, 0, refused), ConnState::Connecting);
    world.run(LONG, |w| state(w, 0, refused) == ConnState::Closed(CloseReason::Refused));
    // One side aborts: the peer sees a reset, and can still read the data that it received before.
    world.sides[0].send_with(ids[0], &mut |room| {
        room[0] = 42;
        1
    });
    world.run(LONG, |w| w.sides[1].can_receive(ids[1]) == 1);
    world.sides[0].abort(ids[0]);
    assert_eq!(state(&mut world, 0, ids[0]), ConnState::Closed(CloseReason::Local));
    world.run(LONG, |w| state(w, 1, ids[1]) == ConnState::Closed(CloseReason::Reset));
    assert_eq!(world.sides[1].receive_with(ids[1], &mut |bytes| bytes.len()), 1);
    // The host does not exist, or the families differ.
    for (from, to) in [(address(0, 9, false), b), (a, address(1, 1, true))] {
        let id = world.connect(from, (to, 179).into());
        assert_eq!(state(&mut world, 0, id), ConnState::Closed(CloseReason::Unaddressable));
        world.sides[0].remove(id);
    }
    // There is no answer, so the handshake is given up.
    world.silent = Some(1);
    let begun = world.now;
    let lonely = world.connect(a, (b, 179).into());
    world.run(LONG, |w| state(w, 0, lonely) == ConnState::Closed(CloseReason::TimedOut));
    assert_eq!(world.now.since(begun), connection::CONNECT_TIMEOUT);
    [ids[0], refused, lonely].into_iter().for_each(|id| world.sides[0].remove(id));
    assert_eq!(world.sides[0].connections(), 0);
    assert_eq!(state(&mut world, 0, lonely), ConnState::Closed(CloseReason::Local), "removed");
}

#[test]
fn a_peer_that_falls_silent_is_given_up_only_when_something_is_owed() {
    let mut world = World::new(TcpConfig::new(1500, 1), Trouble::default());
    let ids = world.pair(true);
    world.silent = Some(1);
    let begun = world.now;
    while world.step(begun + Duration::from_secs(86_400)) {}
    assert_eq!(world.sides[0].state(ids[0]), ConnState::Established, "a day of silence is not a reason");
    world.now = begun + Duration::from_secs(86_400);
    let asked = world.now;
    world.sides[0].send_with(ids[0], &mut |_| 100);
    world.run(LONG, |w| w.sides[0].state(ids[0]) == ConnState::Closed(CloseReason::TimedOut));
    assert_eq!(world.now.since(asked), connection::TIMEOUT);
}

#[test]
fn a_user_may_be_more_patient_with_a_peer() {
    let mut world = World::new(TcpConfig::new(1500, 1), Trouble::default());
    let ids = world.pair(false);
    let patience = connection::TIMEOUT * 2;
    world.sides[0].be_patient(ids[0], patience);
    world.silent = Some(1);
    let asked = world.now;
    world.sides[0].send_with(ids[0], &mut |_| 100);
    world.run(LONG, |w| w.sides[0].state(ids[0]) == ConnState::Closed(CloseReason::TimedOut));
    assert_eq!(world.now.since(asked), patience);
}

#[test]
fn a_window_that_was_closed_opens_again() {
    let config = TcpConfig { receive_buffer: 4_096, ..TcpConfig::new(1500, 1) };
    let mut world = World::new(config, Trouble::default());
    let ids = world.pair(false);
    world.sides[0].send_with(ids[0], &mut |_| 50_000);
    world.run(LONG, |w| w.sides[1].can_receive(ids[1]) == 4_096);
    let end = world.now + Duration::from_secs(300);
    while world.step(end) {}
    assert_eq!(world.sides[0].state(ids[0]), ConnState::Established, "probed, answered, not given up");
    // Window probes are bytes that were sent, and there are few of them.
    let (unsent, waiting) = (world.sides[0].unsent(ids[0]), world.sides[0].unacknowledged(ids[0]) as u64);
    assert!((50_000 - 4_096 - 1..=50_000 - 4_096).contains(&unsent) && waiting - unsent <= 1, "{unsent} of {waiting}");
    let mut total = 0;
    world.run(LONG, |w| {
        total += w.sides[1].receive_with(ids[1], &mut |bytes| bytes.len());
        total == 50_000
    });
    assert_eq!(world.sides[0].unsent(ids[0]), 0);
}

#[test]
fn many_hosts_connect_to_one_listener_and_idle_for_nothing() {
    const HOSTS: u16 = 1_504;
    let config = TcpConfig { send_buffer: 4 << 10, receive_buffer: 4 << 10, ..TcpConfig::new(1500, 1) };
    let mut world = World::new(config, Trouble::default());
    let server = address(1, 1, false);
    world.sides[1].add_host(server);
    let listener = world.sides[1].listen(server, 179);
    let ids: Vec<_> = (0..HOSTS)
        .map(|i| {
            let host = address(0, 2 + i, false);
            world.sides[0].add_host(host);
            world.connect(host, (server, 179).into())
        })
        .collect();
    let mut accepted = Vec::new();
    world.run(Duration::from_millis(10), |world| {
        accepted.extend(std::iter::from_fn(|| world.sides[1].accept_any()));
        accepted.len() == usize::from(HOSTS)
    });
    world.run(LONG, |world| ids.iter().all(|id| world.sides[0].state(*id) == ConnState::Established));
    assert!(accepted.iter().all(|(l, _)| *l == listener));
    assert_eq!(world.sides[0].hosts().count(), usize::from(HOSTS));
    let ready: Vec<_> = world.sides[0].ready().collect();
    assert_eq!(ready, ids, "each once");
    assert_eq!(world.sides[0].ready().count(), 0);
    // Data from one peer arrives only at its own connection.
    let (_, one) = accepted[700];
    world.sides[1].send_with(one, &mut |_| 19);
    world.run(LONG, |world| world.sides[1].unacknowledged(one) == 0);
    let ready: Vec<_> = world.sides[0].ready().collect();
    assert_eq!(ready.len(), 1);
    assert_eq!(world.sides[0].can_receive(ready[0]), 19);
    while world.step(world.now + Duration::from_secs(60)) {}
    assert_eq!([0, 1].map(|i: usize| world.sides[i].next_deadline()), [None, None]);
}

#[test]
fn a_listener_takes_as_many_as_its_backlog() {
    let mut world = World::new(TcpConfig { backlog: 2, ..TcpConfig::new(1500, 1) }, Trouble::default());
    let (a, b) = (address(0, 1, false), address(1, 1, false));
    world.sides[0].add_host(a);
    world.sides[1].add_host(b);
    let listener = world.sides[1].listen(b, 179);
    assert_eq!(world.sides[1].listen(b, 179), listener);
    let ids = [(); 3].map(|()| world.connect(a, (b, 179).into()));
    while world.step(world.now + Duration::from_millis(10)) {}
    let established = |w: &World| ids.iter().filter(|i| w.sides[0].state(**i) == ConnState::Established).count();
    assert_eq!((established(&world), world.sides[1].connections()), (2, 2));
    assert!(world.sides[1].accept(listener).is_some());
    // The connection that found no room tries again and finds room.
    world.run(LONG, |w| established(w) == 3);
}

#[test]
fn long_segments_and_unfinished_checksums_are_taken_when_asked() {
    for verify in [true, false] {
        let config = TcpConfig { verify_checksums: verify, ..TcpConfig::new(1500, 1) };
        let mut world = World::new(config, Trouble::default());
        let ids = world.pair(false);
        // The next segment of the active side, extended to the maximum length of an IPv4 packet, without a checksum.
        world.sides[0].send_with(ids[0], &mut |_| 1);
        let mut packet = Vec::new();
        world.sides[0].poll(world.now, &mut |p| packet = p.to_vec());
        let payload = 65_535 - packet.len() + 1;
        packet.resize(65_535, 7);
        packet[2..4].copy_from_slice(&[0xff, 0xff]);
        let checksum = etherparse::Ipv4HeaderSlice::from_slice(&packet).unwrap().to_header().calc_header_checksum();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        assert!(world.sides[1].receive(world.now, &packet));
        assert_eq!(world.sides[1].can_receive(ids[1]), if verify { 0 } else { payload });
    }
}

#[test]
fn what_is_for_others_is_ignored() {
    let mut stack = TcpStack::new(TcpConfig::default());
    for address in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1)] {
        stack.add_host(address.into());
    }
    assert_eq!(stack.hosts().count(), 0);
    let mut packet = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4([198, 18, 0, 2], [198, 18, 0, 1], 64);
    builder.tcp(1000, 179, 7, 100).syn().write(&mut packet, b"").unwrap();
    assert!(!stack.receive(Instant(0), &packet));
    stack.add_host(Ipv4Addr::new(198, 18, 0, 1).into());
    assert_eq!(stack.next_deadline(), None);
    assert!(stack.receive(Instant(0), &packet));
    assert_eq!(stack.next_deadline(), Some(Instant(0)));
    let mut answers = Vec::new();
    stack.poll(Instant(0), &mut |p| answers.push(p.to_vec()));
    let sliced = etherparse::SlicedPacket::from_ip(&answers[0]).unwrap();
    let Some(etherparse::TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("not TCP") };
    assert!(tcp.rst() && answers.len() == 1, "no listener");
}

#[test]
fn a_stack_can_go_to_another_thread() {
    fn check<T: Send>() {}
    check::<TcpStack>();
}

#[test]
fn a_poll_with_a_limit_takes_turns() {
    let mut world = World::new(TcpConfig::new(1500, 1), Trouble::default());
    let (a, b) = (address(0, 1, true), address(1, 1, true));
    world.sides[0].add_host(a);
    world.sides[1].add_host(b);
    world.sides[1].listen(b, 179);
    let ids = [(); 3].map(|()| world.connect(a, (b, 179).into()));
    world.run(LONG, |w| ids.iter().all(|id| w.sides[0].state(*id) == ConnState::Established));
    world.run(LONG, |w| w.under_way.is_empty() && w.sides[0].next_deadline() != Some(Instant(0)));
    for id in ids {
        world.sides[0].send_with(id, &mut |_| 14_000);
    }
    let mut ports = Vec::new();
    while world.sides[0].next_deadline() == Some(Instant(0)) {
        let before = ports.len();
        let now = world.now;
        world.sides[0].poll_some(now, 4, &mut |p| ports.push(u16::from_be_bytes([p[40], p[41]])));
        assert!(ports.len() - before <= 4);
    }
    let own = ids.map(|id| world.sides[0].ends(id).unwrap().0.port());
    let turns: Vec<u16> = ports.chunk_by(|a, b| a == b).map(|c| c[0]).collect();
    assert_eq!(
        turns,
        [own[0], own[1], own[2], own[0], own[1], own[2], own[0], own[1], own[2]],
        "4, 4 and 2 packets each"
    );
    assert_eq!(ports.len(), 30);
}
