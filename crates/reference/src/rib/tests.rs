use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const US: u64 = 1_000;

fn peer(n: u16) -> Peer {
    let address = IpAddr::from([198, 18, n as u8, 2]);
    let scope = Scope::Table(GLOBAL);
    Peer { internal: false, client: false, router_id: 100 + u32::from(n), address, scope, ipv4: true, ipv6: true }
}

fn attributes(peer: PeerId, length: u8, med: Option<u32>) -> Attributes {
    let ases: Vec<u8> =
        (0..length).flat_map(|n| (65_001 + u32::from(peer) + 1_000 * u32::from(n)).to_be_bytes()).collect();
    let mut as_path = vec![2, length];
    as_path.extend(ases);
    let next_hop = IpAddr::from([198, 18, peer as u8, 2]);
    Attributes {
        origin: 0,
        as_path,
        next_hop,
        med,
        local_pref: None,
        originator: None,
        clusters: Vec::new(),
        others: Vec::new(),
    }
}

fn prefix(n: u8) -> Net {
    net(IpAddr::from([10, n, 0, 0]), 16).unwrap()
}

fn number(hop: Hop) -> u32 {
    match hop {
        Hop::Neighbour(number) | Hop::Pe { pe: number, .. } => number,
    }
}

struct Bench {
    rib: Rib,
    /// The routes that each peer has received.
    known: Vec<BTreeMap<Net, AttributesId>>,
    fib: BTreeMap<Net, u32>,
}

impl Bench {
    fn new(timing: Timing, peers: u16, limit: Option<usize>) -> Bench {
        let mut rib = Rib::new(timing, peers.into(), 0, limit);
        (0..peers).for_each(|n| rib.peer_up(Instant(0), n, peer(n)));
        Bench { rib, known: vec![BTreeMap::new(); peers.into()], fib: BTreeMap::new() }
    }

    fn announce(&mut self, now: u64, from: PeerId, n: u8, length: u8) -> bool {
        let id = self.rib.intern(&attributes(from, length, None));
        self.rib.announce(
            Instant(now),
            GLOBAL,
            prefix(n),
            Path {
                attributes: id,
                hop: Some(Hop::Neighbour(from.into())),
                source: Source::peer(from),
                internal: false,
                client: false,
            },
        )
    }

    fn withdraw(&mut self, now: u64, from: PeerId, n: u8) {
        assert!(self.rib.withdraw(Instant(now), GLOBAL, prefix(n), Source::peer(from)));
    }

    /// All messages to a peer until `now`.
    fn tell(&mut self, now: u64, to: PeerId) -> Vec<(Net, Telling)> {
        self.rib.advance(Instant(now));
        let mut told = Vec::new();
        while let Some((_, net, _, _, telling)) = self.rib.next_telling(to) {
            match telling {
                Telling::Announce(a) => self.known[usize::from(to)].insert(net, a),
                Telling::Withdraw => self.known[usize::from(to)].remove(&net),
            };
            told.push((net, telling));
            self.rib.told(to);
        }
        assert_eq!(self.known[usize::from(to)].len(), self.rib.peers[usize::from(to)].1.count);
        told
    }

    fn best(&self, net: Net) -> Option<Path> {
        self.rib.entries[self.rib.find(GLOBAL, net)? as usize].best
    }

    fn install(&mut self, now: u64) -> Vec<(u64, u32, Option<u32>)> {
        self.rib.advance(Instant(now));
        let mut done = Vec::new();
        while let Some((at, change)) = self.rib.take_fib(Instant(now)) {
            let hop = change.hop.map(number);
            match hop {
                Some(hop) => self.fib.insert(change.net, hop),
                None => self.fib.remove(&change.net),
            };
            done.push((at.0, change.number, hop));
        }
        done
    }
}

fn timing(propagation: u64, fib: u64, each: u64) -> Timing {
    let [propagation_delay, fib_delay, fib_time_per_route] = [propagation, fib, each].map(Duration::from_nanos);
    Timing { propagation_delay, fib_delay, fib_time_per_route }
}

#[test]
fn a_route_comes_out_at_its_instant_and_not_where_it_came_from() {
    let mut b = Bench::new(timing(500 * US, 2_000 * US, 10 * US), 3, None);
    assert!(b.announce(1_000, 0, 1, 3) && b.announce(1_000, 0, 2, 3));
    assert_eq!(b.rib.next_deadline(), Some(Instant(501_000)));
    assert_eq!(b.tell(500_999, 1), []);
    let told = b.tell(501_000, 1);
    assert_eq!(told, [(prefix(1), Telling::Announce(0)), (prefix(2), Telling::Announce(0))]);
    assert_eq!((b.tell(501_000, 2), b.tell(501_000, 0)), (told, vec![]));
    assert_eq!(b.install(2_000_999), []);
    assert_eq!(b.install(9_000_000), [(2_001_000, 1, Some(0)), (2_011_000, 2, Some(0))]);
    // Announcing the same again changes nothing; other attributes with the same next hop do not change forwarding.
    assert!(b.announce(10_000_000, 0, 1, 3) && b.announce(10_000_000, 0, 2, 4));
    assert_eq!(b.tell(20_000_000, 1), [(prefix(2), Telling::Announce(1))]);
    assert_eq!(b.install(20_000_000), []);
    b.withdraw(30_000_000, 0, 1);
    let told = b.tell(30_500_000, 2);
    assert_eq!(told, [(prefix(2), Telling::Announce(1)), (prefix(1), Telling::Withdraw)]);
    assert_eq!(b.install(32_000_000), [(32_000_000, 1, None)]);
    assert!(!b.rib.withdraw(Instant(40_000_000), GLOBAL, prefix(1), Source::peer(0)), "nothing to withdraw");
}

#[test]
fn the_best_path_moves_and_falls_back_when_a_session_ends() {
    let mut b = Bench::new(timing(0, 0, 0), 3, None);
    for n in 0..4 {
        b.announce(10, 0, n, 3);
        b.announce(20, 1, n, if n % 2 == 0 { 2 } else { 4 });
    }
    assert_eq!((0..4).map(|n| b.best(prefix(n)).unwrap().source.peer).collect::<Vec<_>>(), [1, 0, 1, 0]);
    let (paths, routes) = (b.rib.paths(), b.rib.routes());
    assert_eq!((paths, routes), (8, 4));
    b.install(20);
    for peer in [0, 1, 2] {
        b.tell(20, peer);
    }
    // Each of the two receives the routes for which the other one is best.
    assert_eq!([0, 1, 2].map(|p: usize| b.known[p].len()), [2, 2, 4]);
    b.rib.peer_down(Instant(30), 1);
    assert_eq!(b.install(30), [(30, 1, Some(0)), (30, 3, Some(0))]);
    assert_eq!(b.tell(30, 0), [(prefix(0), Telling::Withdraw), (prefix(2), Telling::Withdraw)]);
    assert_eq!(b.tell(30, 2).len(), 2, "the alternates");
    assert_eq!((b.rib.paths(), b.rib.routes(), b.best(prefix(0)).unwrap().source.peer), (4, 4, 0));
    // The peer comes back, and all routes are advertised to it again.
    b.rib.peer_up(Instant(40), 1, peer(1));
    b.known[1].clear();
    assert_eq!(b.tell(40, 1).len(), 4);
    assert_eq!(b.tell(40, 1).len(), 0);
}

#[test]
fn a_peer_that_does_not_listen_hears_the_last_word_only() {
    let mut b = Bench::new(timing(0, 0, 0), 2, None);
    b.announce(10, 0, 1, 3);
    b.withdraw(20, 0, 1);
    b.announce(30, 0, 2, 3);
    b.announce(40, 0, 2, 4);
    b.rib.advance(Instant(40));
    assert!(b.rib.has_news(1));
    assert_eq!(b.tell(40, 1), [(prefix(2), Telling::Announce(1))]);
    assert!(!b.rib.has_news(1));
}

#[test]
fn a_full_table_takes_no_further_route_but_changes_of_those_it_has() {
    let mut b = Bench::new(timing(0, 0, 0), 2, Some(3));
    assert_eq!((0..5).filter(|n| b.announce(10, 0, *n, 3)).count(), 3);
    assert!(b.announce(20, 0, 1, 2), "a place that it has");
    assert!(!b.announce(20, 1, 1, 2), "another path for a prefix takes a place too");
    b.withdraw(30, 0, 0);
    assert!(b.announce(40, 1, 1, 2));
    assert_eq!((b.rib.paths(), b.rib.routes()), (3, 2));
}

#[test]
fn a_path_without_a_way_is_kept_and_not_used() {
    let mut b = Bench::new(timing(0, 0, 0), 2, None);
    let id = b.rib.intern(&attributes(0, 1, None));
    assert!(b.rib.announce(
        Instant(1),
        GLOBAL,
        prefix(1),
        Path { attributes: id, hop: None, source: Source::peer(0), internal: false, client: false }
    ));
    assert_eq!((b.best(prefix(1)), b.rib.paths()), (None, 1));
    b.announce(2, 1, 1, 9);
    assert_eq!(b.best(prefix(1)).unwrap().source.peer, 1);
}

#[test]
fn a_vrf_prefers_its_ce_then_the_lowest_next_hop() {
    let mut rib = Rib::new(timing(0, 0, 0), 4, 2, None);
    let (ce, pe) = (Scope::Table(1), Scope::Vrfs);
    rib.peer_up(Instant(0), 0, Peer { scope: ce, ..peer(0) });
    rib.peer_up(Instant(0), 1, Peer { scope: Scope::Table(2), ..peer(1) });
    rib.peer_up(Instant(0), 2, Peer { internal: true, scope: pe, ..peer(2) });
    rib.peer_up(Instant(0), 3, Peer { internal: true, scope: pe, ..peer(3) });
    let (n, next_hops) = (prefix(1), [9u8, 3, 3]);
    let ids = next_hops.map(|host| {
        let next_hop = IpAddr::from([100, 127, 0, host]);
        rib.intern(&Attributes { next_hop, ..attributes(2, 1, None) })
    });
    let own = rib.intern(&attributes(0, 9, None));
    let imported = |i: usize, label: u32| {
        let source = Source { distinguisher: i as u32 + 1, peer: 2 };
        let hop = Some(Hop::Pe { pe: u32::from(i > 0), label });
        Path { attributes: ids[i], hop, source, internal: true, client: false }
    };
    let hop = Some(Hop::Neighbour(7));
    let local = Path { attributes: own, hop, source: Source::peer(0), internal: false, client: false };
    let best = |rib: &Rib| rib.entries[rib.find(1, n).unwrap() as usize].best;
    for i in 0..3 {
        assert!(rib.announce(Instant(1), 1, n, imported(i, 100)));
        assert_eq!(best(&rib), None, "no route to the PE router");
    }
    rib.set_reachable(Instant(1), 0, true);
    assert_eq!(best(&rib), Some(imported(0, 100)), "the only one with a route");
    rib.set_reachable(Instant(1), 1, true);
    assert_eq!(best(&rib), Some(imported(1, 100)), "the lowest next hop, then the first distinguisher");
    // Another label changes forwarding, but not what the CE router hears.
    let told = |rib: &mut Rib, id: PeerId| {
        let mut told = Vec::new();
        while let Some((table, net, _, _, telling)) = rib.next_telling(id) {
            assert_eq!((table, net), (1, n));
            told.push(telling);
            rib.told(id);
        }
        told
    };
    let fib = |rib: &mut Rib| {
        let changes = std::iter::from_fn(|| rib.take_fib(Instant(9)).map(|(_, change)| (change.table, change.hop)));
        changes.last()
    };
    rib.advance(Instant(2));
    assert_eq!(told(&mut rib, 0).len(), 1);
    assert!(rib.announce(Instant(3), 1, n, imported(1, 200)));
    rib.advance(Instant(3));
    assert_eq!((told(&mut rib, 0), fib(&mut rib)), (vec![], Some((1, imported(1, 200).hop))));
    // The path of the CE router, though it is longer: PE routers hear it, and the CE router no longer hears another one.
    assert!(rib.announce(Instant(4), 1, n, local));
    rib.advance(Instant(4));
    assert_eq!(best(&rib), Some(local));
    assert_eq!(told(&mut rib, 0), [Telling::Withdraw]);
    assert_eq!([2, 3].map(|pe| told(&mut rib, pe)), [[Telling::Announce(own)], [Telling::Announce(own)]]);
    // A leaked path is the best one.
    let source = Source { distinguisher: 3 | LEAKED, peer: 2 };
    assert!(rib.announce(Instant(5), 1, n, Path { source, ..imported(0, 5) }));
    assert_eq!(best(&rib).unwrap().source, source);
    // The PE router's session ends, and takes all of its paths with it.
    assert_eq!(rib.paths(), 5);
    rib.peer_down(Instant(6), 2);
    assert_eq!((best(&rib), rib.paths()), (Some(local), 1));
    assert_eq!(told(&mut rib, 1), [], "the other VRF has heard nothing");
}

#[test]
fn a_late_withdrawal_is_late_in_both_tables_and_void_when_the_route_is_back() {
    let mut b = Bench::new(timing(10, 100, 0), 2, None);
    b.rib.set_withdraw_late(Duration::from_nanos(1_000));
    (0..3).for_each(|n| assert!(b.announce(0, 0, n, 3)));
    assert_eq!((b.tell(10, 1).len(), b.install(100).len()), (3, 3));
    (0..3).for_each(|n| b.withdraw(200, 0, n));
    assert_eq!((b.rib.routes(), b.rib.next_deadline()), (0, Some(Instant(1_200))));
    b.announce(300, 0, 1, 3);
    b.announce(300, 0, 2, 3);
    b.withdraw(400, 0, 2);
    assert_eq!(b.tell(1_209, 1), []);
    assert_eq!(b.tell(1_210, 1), [(prefix(0), Telling::Withdraw)]);
    assert_eq!(b.tell(1_409, 1), []);
    assert_eq!(b.tell(1_410, 1), [(prefix(2), Telling::Withdraw)]);
    assert_eq!(b.install(5_000), [(1_300, 1, None), (1_500, 3, None)]);
}

#[test]
fn internal_peers_hear_of_external_routes_only_and_with_all_their_attributes() {
    let mut rib = Rib::new(timing(0, 0, 0), 4, 0, None);
    for n in 0..4 {
        rib.peer_up(Instant(0), n, Peer { internal: n < 2, ipv6: n != 3, ..peer(n) });
    }
    let [plain, with_med] = [None, Some(7)].map(|med| rib.intern(&attributes(0, 2, med)));
    let v6 = net("2001:db8::".parse().unwrap(), 32).unwrap();
    let path = |attributes, peer: PeerId| Path {
        attributes,
        hop: Some(Hop::Neighbour(0)),
        source: Source::peer(peer),
        internal: peer < 2,
        client: false,
    };
    assert!(rib.announce(Instant(1), GLOBAL, prefix(1), path(plain, 0)));
    assert!(rib.announce(Instant(1), GLOBAL, prefix(2), path(with_med, 2)));
    assert!(rib.announce(Instant(1), GLOBAL, v6, path(with_med, 2)));
    rib.advance(Instant(1));
    let mut told = |id| {
        let mut told = Vec::new();
        while let Some((_, net, _, path, telling)) = rib.next_telling(id) {
            assert!(path.is_some_and(|p| p.source.peer != id));
            told.push((net, telling));
            rib.told(id);
        }
        told
    };
    let announced = |net, attributes| (net, Telling::Announce(attributes));
    assert_eq!(told(0), [announced(prefix(2), with_med), announced(v6, with_med)]);
    assert_eq!(told(1), [announced(prefix(2), with_med), announced(v6, with_med)]);
    assert_eq!(told(2), [announced(prefix(1), plain)]);
    assert_eq!(told(3), [announced(prefix(1), plain), announced(prefix(2), plain)], "no IPv6");
}

#[test]
fn routes_are_reflected_for_clients() {
    let mut rib = Rib::new(timing(0, 0, 0), 5, 0, None);
    // Two clients, two other internal peers, an external one.
    for n in 0..5 {
        rib.peer_up(Instant(0), n, Peer { internal: n < 4, client: n < 2, ..peer(n) });
    }
    for n in 0..5 {
        let id =
            rib.intern(&Attributes { originator: (n < 4).then_some(100 + u32::from(n)), ..attributes(0, 2, None) });
        let path = Path {
            attributes: id,
            hop: Some(Hop::Neighbour(0)),
            source: Source::peer(n),
            internal: n < 4,
            client: n < 2,
        };
        assert!(rib.announce(Instant(1), GLOBAL, prefix(n as u8), path));
    }
    rib.advance(Instant(1));
    for (id, from) in
        [(0, vec![1, 2, 3, 4]), (1, vec![0, 2, 3, 4]), (2, vec![0, 1, 4]), (3, vec![0, 1, 4]), (4, vec![0, 1, 2, 3])]
    {
        let mut told = Vec::new();
        while let Some((_, net, _, path, _)) = rib.next_telling(id) {
            assert_eq!(prefix(path.unwrap().source.peer as u8), net);
            told.push(path.unwrap().source.peer);
            rib.told(id);
        }
        assert_eq!(told, from, "peer {id}");
    }
}

#[test]
fn numbers_begin_anew_when_nothing_is_left() {
    let mut b = Bench::new(timing(0, 50, 0), 2, None);
    b.announce(10, 0, 7, 3);
    b.announce(10, 0, 8, 3);
    b.withdraw(20, 0, 7);
    b.withdraw(20, 0, 8);
    assert!(!b.rib.forget(), "the forwarding table still has them");
    b.install(70);
    b.tell(70, 1);
    assert!(b.rib.forget() && !b.rib.forget());
    b.announce(80, 0, 8, 3);
    assert_eq!(b.install(130), [(130, 1, Some(0))]);
}

/// An event.
#[derive(Clone, Debug)]
enum Event {
    Announce(u8, u8, u8, Option<u32>, bool),
    Withdraw(u8, u8),
    Down(u8),
    Up(u8),
    Listen(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let announce = (0u8..4, 0u8..12, 1u8..4, proptest::option::of(0u32..3), prop::bool::weighted(0.9));
    prop_oneof![
        8 => announce.prop_map(|(p, n, l, m, way)| Event::Announce(p, n, l, m, way)),
        4 => (0u8..4, 0u8..12).prop_map(|(p, n)| Event::Withdraw(p, n)),
        1 => (0u8..4).prop_map(Event::Down),
        1 => (0u8..4).prop_map(Event::Up),
        4 => (0u8..4).prop_map(Event::Listen),
    ]
}

proptest! {
    /// Checks that a table that is rebuilt from all paths after each event has the same best paths. In the end every
    /// peer has the routes that it should have, and the forwarding table contains the next hops of the best paths.
    #[test]
    fn it_equals_a_naive_table(
        events in proptest::collection::vec((event(), 0u64..30), 1..150), propagation in 0u64..50, fib in 0u64..50, each in 0u64..9,
        late in 0u64..40,
    ) {
        let mut b = Bench::new(timing(propagation, fib, each), 4, None);
        b.rib.set_withdraw_late(Duration::from_nanos(late));
        let mut up = [true; 4];
        let mut model: BTreeMap<(u8, u8), (Attributes, bool)> = BTreeMap::new();
        let mut now = 0;
        let naive = |model: &BTreeMap<(u8, u8), (Attributes, bool)>, n: u8| {
            let paths: Vec<(u8, Attributes)> =
                model.iter().filter(|((_, own), (_, way))| *own == n && *way).map(|((p, _), (a, _))| (*p, a.clone())).collect();
            let candidates: Vec<_> = paths.iter().map(|(p, a)| {
                let Peer { internal, router_id, address, .. } = peer((*p).into());
                Candidate { rank: a.rank(), internal, router_id, address }
            }).collect();
            decision::best(&candidates).map(|i| paths[i].clone())
        };
        for (event, step) in events {
            now += step;
            match event {
                Event::Announce(p, n, length, med, way) if up[usize::from(p)] => {
                    let told = attributes(p.into(), length, med);
                    let id = b.rib.intern(&told);
                    let hop = way.then_some(Hop::Neighbour(p.into()));
                    let path = Path { attributes: id, hop, source: Source::peer(p.into()), internal: false, client: false };
                    let taken = b.rib.announce(Instant(now), GLOBAL, prefix(n), path);
                    prop_assert!(taken);
                    model.insert((p, n), (told, way));
                }
                Event::Withdraw(p, n) if up[usize::from(p)] => {
                    let there = model.remove(&(p, n)).is_some();
                    prop_assert_eq!(b.rib.withdraw(Instant(now), GLOBAL, prefix(n), Source::peer(p.into())), there);
                }
                Event::Down(p) => {
                    b.rib.peer_down(Instant(now), p.into());
                    up[usize::from(p)] = false;
                    model.retain(|(own, _), _| *own != p);
                    b.known[usize::from(p)].clear();
                }
                Event::Up(p) if !up[usize::from(p)] => {
                    b.rib.peer_up(Instant(now), p.into(), peer(p.into()));
                    up[usize::from(p)] = true;
                }
                Event::Listen(p) => { b.tell(now, p.into()); }
                _ => {}
            }
            for n in 0..12 {
                let found = b.best(prefix(n)).map(|path| (path.source.peer as u8, b.rib.attributes(path.attributes).clone()));
                prop_assert_eq!(found, naive(&model, n));
            }
            prop_assert_eq!(b.rib.paths(), model.len());
        }
        // Let everything arrive that is in flight.
        now += 100_000;
        b.install(now);
        for p in 0..4u8 {
            b.tell(now, p.into());
            for n in 0..12 {
                let should = naive(&model, n).filter(|(from, _)| up[usize::from(p)] && *from != p);
                let should = should.map(|(_, a)| (a.origin, a.as_path));
                let known = b.known[usize::from(p)].get(&prefix(n)).map(|a| b.rib.attributes(*a));
                prop_assert_eq!(known.map(|a| (a.origin, a.as_path.clone())), should);
            }
        }
        let ways: BTreeMap<Net, u32> = (0..12).filter_map(|n| Some((prefix(n), u32::from(naive(&model, n)?.0)))).collect();
        prop_assert_eq!(&b.fib, &ways);
    }
}
