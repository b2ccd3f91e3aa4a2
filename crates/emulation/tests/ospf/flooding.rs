//! Databases of thousands of LSAs, lost packets, aging, and the last sequence number.

use super::lan::{Lan, config, externals, from_second, router_id, secs, topology};
use drophammer_emulation::ospf::{Expected, NetworkType, Networks, OspfCommand, OspfConfig, Part, Shape};
use drophammer_emulation::protocol::{Command, Protocol};
use drophammer_model::Instant;
use drophammer_wire::ospf::lsa::{self, INITIAL_SEQUENCE, MAX_SEQUENCE};
use drophammer_wire::ospf::{External, LsaHeader, LsaKey, kind};
use std::net::Ipv4Addr;

use NetworkType::{Broadcast, PointToPoint};

/// Router 1 with 2,000 routers, 3,000 networks of other areas and 5,000 external routes.
fn large(network: NetworkType) -> OspfConfig {
    OspfConfig {
        topology: Some(topology(2000, Shape::Random { extra_links: 1000, seed: 7 })),
        inter_area: Some(Networks { first: [40, 0, 0, 0].into(), length: 24, count: 3000, metric: 5 }),
        external: Some(externals(5000)),
        ..config(1, network)
    }
}

#[test]
fn packets_in_fragments_are_put_together() {
    let first = OspfConfig { external: Some(externals(500)), ..config(1, PointToPoint) };
    let mut lan = Lan::started(vec![first, config(2, PointToPoint)]);
    lan.fragment = 400;
    assert!(lan.run_until(secs(30), Lan::is_settled));
    assert_eq!(lan.ospf(1).learned_len(), lan.progress(0).advertised as usize);
    assert_eq!((lan.ospf(0).rejected().sum(), lan.ospf(1).rejected().sum()), (0, 0));
}

fn external_prefix(i: u32) -> Expected {
    Expected::Prefix(format!("{}/24", Ipv4Addr::from_bits((30 << 24) + (i << 8))).parse().unwrap())
}

fn everything() -> Vec<Expected> {
    let stub = |i: u32| Expected::Prefix(format!("{}/24", Ipv4Addr::from_bits((20 << 24) + (i << 8))).parse().unwrap());
    let router = |i: u32| {
        let id = Ipv4Addr::from_bits((10 << 24) + i);
        Expected::Lsa(LsaKey { kind: 1, id, router: id })
    };
    (0..2000).map(stub).chain((0..2000).map(router)).chain((0..5000).map(external_prefix)).collect()
}

#[test]
fn ten_thousand_lsas_arrive_are_changed_and_withdrawn() {
    for network in [PointToPoint, Broadcast] {
        let mut lan = Lan::started(vec![large(network), config(2, network)]);
        let now = lan.now;
        lan.ospf_mut(1).expect(now, everything(), true);
        assert!(lan.run_until(secs(30), |lan| lan.is_settled() && lan.ospf(1).verification().is_right()));
        lan.run(10);
        let network_lsas = usize::from(network == Broadcast);
        let own = lan.progress(0).advertised as usize;
        assert!(own == 10_001 || own == 10_001 + network_lsas);
        assert_eq!(lan.ospf(1).learned_len(), own);
        assert_eq!((lan.ospf(0).rejected().sum(), lan.ospf(1).rejected().sum()), (0, 0));
        // Only LSAs that arrived within MinLSArrival of the previous instance are sent again.
        for which in [0, 1] {
            assert_eq!(lan.counter(which, "lsas_retransmitted"), lan.counter(1 - which, "lsas_too_early"));
        }
        let verification = lan.ospf(1).verification();
        assert_eq!((verification.expected, verification.present, verification.missing), (9000, 9000, 0));

        // Withdraw 1,000 external routes: exactly these disappear.
        let before = (lan.counter(0, "lsas_flushed"), lan.counter(0, "lsas_acknowledged"));
        lan.order(0, OspfCommand::Withdraw(Part::External(1000..2000)));
        lan.run(10);
        assert_eq!(lan.counter(0, "lsas_flushed") - before.0, 1000);
        assert_eq!(lan.counter(0, "lsas_acknowledged") - before.1, 1000);
        assert_eq!((lan.ospf(1).learned_len(), lan.progress(0).advertised as usize), (own - 1000, own - 1000));
        let missing: Vec<_> = lan.ospf(1).expectation().unwrap().missing().collect();
        assert_eq!(missing, (1000..2000).map(external_prefix).collect::<Vec<_>>());

        // They come back, and a change of metrics makes new instances.
        lan.order(0, OspfCommand::Advertise(Part::External(0..5000)));
        lan.run(10);
        assert!(lan.ospf(1).verification().is_right() && lan.is_settled());
        assert_eq!(lan.ospf(1).learned_len(), own);
        let originated = lan.counter(0, "lsas_originated");
        lan.order(0, OspfCommand::Metric(Part::Routers(0..2000), 9));
        lan.order(0, OspfCommand::Metric(Part::Routers(0..2000), 9));
        lan.run(10);
        assert_eq!(lan.counter(0, "lsas_originated") - originated, 2000);
        assert!(lan.ospf(1).verification().is_right() && lan.is_settled());
        let sequences = lan.ospf(1).learned(lan.now).filter(|h| h.key.kind == 1 && h.key.id.octets()[0] == 10);
        assert!(sequences.map(|h| h.sequence).eq(std::iter::repeat_n(INITIAL_SEQUENCE + 1, 2000)));
    }
}

#[test]
fn lost_packets_delay_but_do_not_prevent() {
    // Five packets leave in the two seconds before one is repeated. If every fifth packet were lost, it would always be
    // the repeated one.
    for lose_every in [7, 11] {
        let patient = |config| OspfConfig { dead_interval: 20, ..config };
        let mut lan = Lan::new([large(PointToPoint), config(2, PointToPoint)].map(patient).to_vec());
        lan.lose_every = lose_every;
        let now = lan.now;
        lan.ospf_mut(1).expect(now, everything(), false);
        [0, 1].into_iter().for_each(|which| lan.command(which, &Command::Start));
        let right = |lan: &Lan| lan.is_settled() && lan.ospf(1).verification().is_right();
        assert!(lan.run_until(secs(1500), right), "{lose_every}: {:?}", lan.ospf(1).verification());
        lan.order(0, OspfCommand::Withdraw(Part::External(0..5000)));
        let withdrawn = |lan: &Lan| lan.is_settled() && lan.ospf(1).learned_len() == 5001;
        assert!(
            lan.run_until(lan.now + std::time::Duration::from_secs(600), withdrawn),
            "{}",
            lan.ospf(1).learned_len()
        );
        assert!(lan.counter(0, "lsas_retransmitted") > 0);
    }
}

#[test]
fn acknowledgments_come_before_even_the_shortest_retransmit_interval_ends() {
    let of = |n| OspfConfig { retransmit_interval: 1, ..config(n, PointToPoint) };
    let mut lan = Lan::started(vec![OspfConfig { external: Some(externals(300)), ..of(1) }, of(2)]);
    lan.run(10);
    lan.order(0, OspfCommand::Withdraw(Part::External(0..100)));
    lan.run(10);
    assert!(lan.is_settled());
    assert_eq!([0, 1].map(|which| lan.counter(which, "lsas_retransmitted")), [0, 0]);
    // They still share packets.
    assert!(lan.counter(1, "acks_sent") < 30, "{}", lan.counter(1, "acks_sent"));
}

#[test]
fn idle_routers_are_polled_for_hellos_only_and_refresh_after_half_an_hour() {
    let external = Some(externals(200));
    let mut lan = Lan::started(vec![OspfConfig { external, ..config(1, PointToPoint) }, config(2, PointToPoint)]);
    lan.run(100);
    let (sent, originated) = (lan.counter(0, "updates_sent"), lan.counter(0, "lsas_originated"));
    lan.run(1600);
    assert_eq!((lan.counter(0, "updates_sent"), lan.counter(0, "lsas_originated")), (sent, originated));
    let oldest = lan.ospf(1).learned(lan.now).map(|h| h.age).max().unwrap();
    assert!((1690..=1701).contains(&oldest), "{oldest}");
    lan.run(150);
    assert_eq!(lan.counter(0, "lsas_originated"), originated + 201, "each LSA once");
    assert!(lan.ospf(1).learned(lan.now).all(|h| h.age < 60));
    // An originator that is gone does not refresh: its LSAs reach MaxAge and leave.
    lan.cut = vec![0];
    lan.run(3500);
    assert_eq!((lan.ospf(1).learned_len(), lan.ospf(1).state().up), (201, 0));
    lan.run(150);
    assert_eq!(lan.ospf(1).learned_len(), 0);
}

#[test]
fn what_a_restarted_router_finds_of_its_earlier_life_is_overtaken_or_flushed() {
    let external = Some(externals(100));
    let first = OspfConfig { external, ..config(1, PointToPoint) };
    let mut lan = Lan::started(vec![first.clone(), config(2, PointToPoint)]);
    lan.run(10);
    (0..3).for_each(|n| {
        lan.order(0, OspfCommand::Metric(Part::External(0..100), 30 + n));
        lan.run(10);
    });
    let sequences = |lan: &Lan| -> Vec<i32> {
        lan.ospf(1).learned(lan.now).filter(|h| h.key.kind == 5).map(|h| h.sequence).collect()
    };
    assert_eq!(sequences(&lan), [INITIAL_SEQUENCE + 3; 100]);
    // A new device in its place knows half of the routes, and no sequence numbers.
    let mut after = Lan::new(vec![OspfConfig { external: Some(externals(50)), ..first }]);
    lan.devices[0] = after.devices.remove(0);
    lan.command(0, &Command::Start);
    lan.run(30);
    assert!(lan.is_settled());
    assert_eq!(sequences(&lan), [INITIAL_SEQUENCE + 4; 50]);
    assert_eq!(lan.ospf(0).learned_len(), 1, "the remains are gone here, too");
}

/// An Update with one LSA, from the second device to the first.
fn update(lsa: &[u8]) -> Vec<u8> {
    from_second(kind::LINK_STATE_UPDATE, &[&[0, 0, 0, 1], lsa].concat())
}

/// A Router-LSA without links.
fn router_lsa(of: Ipv4Addr, sequence: i32, age: u16) -> Vec<u8> {
    let key = LsaKey { kind: 1, id: of, router: of };
    let mut bytes = Vec::new();
    LsaHeader { age, options: 2, key, sequence, checksum: 0, length: 0 }.emit(&mut bytes);
    bytes.extend([0; 4]);
    lsa::seal(&mut bytes);
    bytes
}

#[test]
fn after_the_last_sequence_number_an_lsa_is_flushed_and_starts_anew() {
    let mut lan = Lan::started([1, 2].map(|n| config(n, PointToPoint)).to_vec());
    lan.run(20);
    let sequence = |lan: &Lan| {
        let mut all = lan.ospf(1).learned(lan.now).filter(|h| h.key.id == router_id(1));
        all.next().map(|h| h.sequence)
    };
    lan.inject(0, &update(&router_lsa(router_id(1), MAX_SEQUENCE - 1, 5)));
    lan.run(6);
    assert_eq!(sequence(&lan), Some(MAX_SEQUENCE), "newer than the found one");
    // The refresh needs the number after the last.
    assert!(lan.run_until(lan.now + std::time::Duration::from_secs(1850), |lan| sequence(lan) != Some(MAX_SEQUENCE)));
    lan.run(10);
    assert_eq!(sequence(&lan), Some(INITIAL_SEQUENCE));
    assert!(lan.is_settled());
}

#[test]
fn a_found_lsa_with_the_last_sequence_number_is_flushed_itself() {
    let mut lan = Lan::started([1, 2].map(|n| config(n, PointToPoint)).to_vec());
    lan.run(20);
    // The instance with the largest checksum: the second device cannot send a newer one.
    let of = |flags| {
        let mut lsa = router_lsa(router_id(2), MAX_SEQUENCE, 5);
        lsa[20] = flags;
        lsa::seal(&mut lsa);
        lsa
    };
    let found = (0..=255).map(of).max_by_key(|lsa| [lsa[16], lsa[17]]).unwrap();
    lan.inject(0, &update(&found));
    let sequence = |lan: &Lan| {
        let mut all = lan.ospf(0).learned(lan.now).filter(|h| h.key.id == router_id(2));
        all.next().map(|h| h.sequence)
    };
    assert_eq!(sequence(&lan), Some(MAX_SEQUENCE));
    lan.command(1, &Command::Stop);
    lan.run(1);
    lan.command(1, &Command::Start);
    lan.run(30);
    assert!(lan.is_settled());
    assert!(sequence(&lan).is_some_and(|n| n < INITIAL_SEQUENCE + 5), "{:?}", sequence(&lan));
}

#[test]
fn updates_that_come_too_early_or_are_old_or_broken_do_not_change_the_database() {
    let mut lan = Lan::started([1, 2].map(|n| config(n, PointToPoint)).to_vec());
    lan.run(20);
    let stranger = Ipv4Addr::new(9, 9, 9, 9);
    let sequence = |lan: &Lan| lan.ospf(0).learned(lan.now).find(|h| h.key.id == stranger).map(|h| h.sequence);
    let send = |lan: &mut Lan, n: i32, age| lan.inject(0, &update(&router_lsa(stranger, n, age)));
    send(&mut lan, 5, 1);
    send(&mut lan, 6, 1);
    assert_eq!((sequence(&lan), lan.counter(0, "lsas_too_early")), (Some(5), 1), "MinLSArrival");
    lan.run(2);
    send(&mut lan, 6, 1);
    assert_eq!(sequence(&lan), Some(6));
    let updates = lan.counter(0, "updates_sent");
    send(&mut lan, 5, 1);
    send(&mut lan, 5, 1);
    assert_eq!((sequence(&lan), lan.counter(0, "updates_sent") - updates), (Some(6), 1), "sent back once in a second");
    let acks = lan.counter(0, "acks_sent");
    send(&mut lan, 6, 1);
    assert_eq!((lan.counter(0, "lsas_duplicate"), lan.counter(0, "acks_sent") - acks), (1, 1), "acknowledged directly");
    let mut broken = router_lsa(stranger, 7, 1);
    broken[21] ^= 1;
    lan.inject(0, &update(&broken));
    let mut long = router_lsa(stranger, 7, 1);
    long[19] += 4;
    lan.inject(0, &update(&long));
    assert_eq!((sequence(&lan), lan.counter(0, "malformed")), (Some(6), 2));
    let reasons: Vec<_> = lan.ospf(0).rejected().iter().collect();
    assert_eq!(reasons, [("wrong checksum", 1), ("length does not fit", 1)]);
    // Flush it, and flush an LSA that nobody has.
    lan.run(2);
    send(&mut lan, 7, 3600);
    assert_eq!(sequence(&lan), None);
    let acks = lan.counter(0, "acks_sent");
    send(&mut lan, 8, 3600);
    assert_eq!((sequence(&lan), lan.counter(0, "acks_sent") - acks), (None, 1));
    // An age beyond MaxAge counts as MaxAge.
    send(&mut lan, 9, 1);
    lan.run(2);
    assert_eq!(sequence(&lan), Some(9));
    send(&mut lan, 10, 3608);
    lan.run(2);
    assert_eq!((sequence(&lan), lan.counter(0, "malformed")), (None, 2));
}

#[test]
fn lsas_beyond_the_limit_are_acknowledged_and_counted() {
    let few = OspfConfig { most_learned: 100, ..config(2, PointToPoint) };
    let mut lan = Lan::started(vec![large(PointToPoint), few]);
    lan.run(30);
    assert!(lan.is_settled(), "{:?}", lan.progress(0));
    assert!(lan.ospf(1).learned_len() <= 100 && lan.ospf(1).learned_len() > 90);
    assert!(lan.counter(1, "lsas_not_stored") >= 9900);
}

/// An AS-external-LSA of the first device.
fn external_lsa(id: Ipv4Addr, sequence: i32) -> Vec<u8> {
    let key = LsaKey { kind: 5, id, router: router_id(1) };
    let mut bytes = Vec::new();
    LsaHeader { age: 5, options: 2, key, sequence, checksum: 0, length: 0 }.emit(&mut bytes);
    let [mask, forwarding] = [[255, 255, 255, 0], [0; 4]].map(Ipv4Addr::from);
    External { mask, type_2: true, metric: 7, forwarding, tag: 0 }.emit(&mut bytes);
    lsa::seal(&mut bytes);
    bytes
}

#[test]
fn remains_of_an_earlier_life_that_nobody_acknowledges_stay_below_the_limit() {
    let few = OspfConfig { most_learned: 100, ..config(1, PointToPoint) };
    let mut lan = Lan::started(vec![few, config(2, PointToPoint)]);
    lan.run(10);
    lan.cut = vec![1];
    for n in 0..200 {
        lan.inject(0, &update(&external_lsa([40, 0, n, 0].into(), 5)));
    }
    // One is the neighbour's Router-LSA.
    assert_eq!((lan.ospf(0).learned_len(), lan.counter(0, "lsas_not_stored")), (100, 101));
}

#[test]
fn an_lsa_that_is_overtaken_while_it_is_flushed_is_advertised_again() {
    let external = Some(externals(1));
    let mut lan = Lan::started(vec![OspfConfig { external, ..config(1, PointToPoint) }, config(2, PointToPoint)]);
    lan.run(10);
    lan.cut = vec![1];
    lan.order(0, OspfCommand::Withdraw(Part::External(0..1)));
    lan.run(1);
    lan.order(0, OspfCommand::Advertise(Part::External(0..1)));
    lan.inject(0, &update(&external_lsa([30, 0, 0, 0].into(), 5)));
    lan.cut.clear();
    lan.run(20);
    let sequences = lan.ospf(1).learned(lan.now).filter(|h| h.key.kind == 5).map(|h| h.sequence);
    assert_eq!(sequences.collect::<Vec<_>>(), [6]);
    assert!(lan.is_settled());
}

#[test]
fn a_second_life_begins_with_the_same_database() {
    let external = Some(externals(1000));
    let quiet = OspfConfig { external, advertise_at_start: false, ..config(1, Broadcast) };
    let mut lan = Lan::started(vec![quiet, config(2, Broadcast)]);
    lan.run(20);
    assert_eq!(lan.ospf(1).learned(lan.now).filter(|h| h.key.kind == 5).count(), 0);
    lan.order(0, OspfCommand::Advertise(Part::External(0..1000)));
    lan.run(10);
    assert_eq!(lan.ospf(1).learned(lan.now).filter(|h| h.key.kind == 5).count(), 1000);
    assert_eq!(lan.counter(0, "lsas_retransmitted"), lan.counter(1, "lsas_too_early"));
    lan.command(0, &Command::Stop);
    lan.run(10);
    assert_eq!(lan.progress(0).waiting, 0);
    lan.command(0, &Command::Start);
    lan.run(20);
    assert!(lan.is_settled());
    let sequences = lan.ospf(1).learned(lan.now).filter(|h| h.key.kind == 5).map(|h| h.sequence);
    assert!(sequences.eq(std::iter::repeat_n(INITIAL_SEQUENCE + 1, 1000)));
    assert_ne!(lan.now, Instant(0));
}
