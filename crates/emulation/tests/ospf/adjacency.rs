//! Neighbours, elections, adjacencies, authentication.

use super::lan::{self, Lan, address, config, from_second, router_id, secs};
use drophammer_emulation::ospf::{InterfaceState, NeighbourState, NetworkType, OspfConfig, Secret};
use drophammer_emulation::protocol::{Command, Protocol};
use drophammer_wire::ospf::exchange::flag;
use drophammer_wire::ospf::{DatabaseDescription, Hello, LsaHeader, LsaKey, kind, lsa_type, option};
use std::net::Ipv4Addr;

use NeighbourState::{Full, TwoWay};
use NetworkType::{Broadcast, PointToPoint};

#[test]
fn two_routers_on_a_point_to_point_network_become_adjacent() {
    let mut lan = Lan::started([1, 2].map(|n| config(n, PointToPoint)).to_vec());
    assert!(lan.run_until(secs(3), Lan::is_full), "{:?}", lan.states(0));
    lan.run(20);
    for which in [0, 1] {
        assert_eq!(lan.ospf(which).interface(), InterfaceState::PointToPoint);
        let state = lan.ospf(which).state();
        assert_eq!((state.sessions, state.up, state.counter("adjacencies_full")), (1, 1, 1));
        assert_eq!(lan.ospf(which).learned_len(), 1, "the other's Router-LSA");
        assert_eq!(lan.ospf(which).rejected().sum(), 0, "{:?}", lan.ospf(which).rejected());
        assert_eq!((state.counter("lsas_retransmitted"), state.counter("unexpected")), (0, 0));
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = lan.counter(from, "router_lsas_sent");
        assert!(sent > 0 && sent == lan.counter(from, "lsas_sent"), "there are no others");
        assert_eq!(lan.counter(to, "router_lsas_received"), sent);
        assert_eq!(lan.counter(to, "lsa_headers_received"), lan.counter(from, "lsa_headers_sent"));
        let (header, body) = lan.ospf(to).learned_lsas(lan.now).next().unwrap();
        assert_eq!((header.key.kind, body.is_empty()), (lsa_type::ROUTER, false));
    }
    // A router that stops announces it.
    lan.command(0, &Command::Stop);
    lan.run_until(lan.now + std::time::Duration::from_millis(10), |_| false);
    assert_eq!((lan.states(0), lan.states(1)), (vec![], vec![NeighbourState::Init]));
    assert_eq!(lan.counter(1, "adjacencies_lost"), 1);
    lan.run(5);
    assert_eq!(lan.states(1), []);
    lan.command(0, &Command::Start);
    lan.run(10);
    assert!(lan.is_settled());
    assert_eq!(lan.counter(1, "adjacencies_full"), 2);
}

#[test]
fn a_silent_neighbour_is_down_after_the_dead_interval() {
    let mut lan = Lan::started([1, 2].map(|n| config(n, PointToPoint)).to_vec());
    lan.run(10);
    lan.cut = vec![1];
    // The last Hello arrived a second ago at most.
    assert!(lan.run_until(secs(15), |lan| lan.states(0).is_empty()));
    assert!(lan.now >= secs(13), "{:?}", lan.now);
    lan.cut.clear();
    lan.run(8);
    assert!(lan.is_full());
}

#[test]
fn five_routers_elect_and_only_the_elected_are_adjacent_to_all() {
    let priority = |n: u8| [1, 0, 7, 7, 3][usize::from(n) - 1];
    let configs: Vec<_> = (1..=5).map(|n| OspfConfig { priority: priority(n), ..config(n, Broadcast) }).collect();
    let mut lan = Lan::started(configs);
    lan.run(20);
    for which in 0..5 {
        assert_eq!(lan.ospf(which).designated(), (address(4), address(3)), "router {}", which + 1);
    }
    let interfaces: Vec<_> = (0..5).map(|which| lan.ospf(which).interface()).collect();
    use InterfaceState::{Backup, Dr, DrOther};
    assert_eq!(interfaces, [DrOther, DrOther, Backup, Dr, DrOther]);
    assert_eq!((lan.states(3), lan.states(2)), (vec![Full; 4], vec![Full; 4]));
    assert_eq!(lan.states(0), [TwoWay, Full, Full, TwoWay]);
    let state = lan.ospf(0).state();
    assert_eq!((state.sessions, state.up), (2, 2), "two routers that stay 2-Way form no adjacency");
    // Every database has five Router-LSAs and a Network-LSA.
    for which in 0..5 {
        let own = lan.progress(which).advertised as usize;
        assert_eq!((lan.ospf(which).learned_len() + own, own), (6, if which == 3 { 2 } else { 1 }));
    }

    // The Backup takes over from the Designated Router. When the old Designated Router, which was alone in the
    // meantime, comes back, the better of the two wins.
    lan.cut = vec![3];
    lan.run(15);
    assert_eq!(lan.ospf(0).designated(), (address(3), address(5)));
    lan.cut.clear();
    lan.run(20);
    for which in 0..5 {
        assert_eq!(lan.ospf(which).designated(), (address(4), address(5)), "router {}", which + 1);
    }
    assert!(lan.is_settled());
    let network_lsas = lan.ospf(0).learned(lan.now).filter(|h| h.key.kind == 2).map(|h| h.key.id);
    assert_eq!(network_lsas.collect::<Vec<_>>(), [address(4)], "the other one is flushed");
}

/// A Hello of the second device, which has heard `neighbours`.
fn hello(options: u8, neighbours: &[[u8; 4]]) -> Vec<u8> {
    let [mask, none] = [[255, 255, 255, 0].into(), Ipv4Addr::UNSPECIFIED];
    let (hello_interval, dead_interval, priority) = (1, 4, 1);
    let hello =
        Hello { mask, hello_interval, options, priority, dead_interval, designated: none, backup: none, neighbours };
    let mut body = Vec::new();
    hello.emit(&mut body);
    body
}

fn description(options: u8, flags: u8, sequence: u32) -> Vec<u8> {
    let mut body = Vec::new();
    DatabaseDescription { mtu: 1500, options, flags, sequence }.emit(&mut body);
    body
}

#[test]
fn as_wide_lsas_are_not_requested_in_a_stub_area() {
    for of_as in [lsa_type::EXTERNAL, lsa_type::OPAQUE_AS] {
        let mut lan = Lan::started(vec![OspfConfig { stub: true, ..config(1, PointToPoint) }]);
        lan.run(5);
        let send = |lan: &mut Lan, kind, body: &[u8]| lan.inject(0, &from_second(kind, body));
        send(&mut lan, kind::HELLO, &hello(0, &[router_id(1).octets()]));
        let first = flag::INIT | flag::MORE | flag::MASTER;
        send(&mut lan, kind::DATABASE_DESCRIPTION, &description(option::OPAQUE, first, 1));
        assert_eq!(lan.states(0), [NeighbourState::Exchange]);
        let mut body = description(option::OPAQUE, flag::MASTER, 2);
        let key = LsaKey { kind: of_as, id: [4, 0, 0, 1].into(), router: router_id(2) };
        LsaHeader { age: 1, options: 0, key, sequence: 1, checksum: 1, length: 20 }.emit(&mut body);
        send(&mut lan, kind::DATABASE_DESCRIPTION, &body);
        assert_eq!((lan.states(0), lan.counter(0, "requests_sent")), (vec![NeighbourState::ExStart], 0), "{of_as}");
        assert_eq!(lan.ospf(0).rejected().get("AS-wide LSA in a Database Description of a stub area"), 1);
    }
}

#[test]
fn a_database_description_shows_that_a_neighbour_hears_this_router() {
    let mut lan = Lan::started(vec![config(1, Broadcast)]);
    lan.run(5);
    assert_eq!(lan.ospf(0).designated(), (address(1), Ipv4Addr::UNSPECIFIED));
    let body = hello(option::EXTERNAL, &[]);
    lan.inject(0, &from_second(kind::HELLO, &body));
    assert_eq!(lan.states(0), [NeighbourState::Init]);
    let body = description(option::EXTERNAL, flag::INIT | flag::MORE | flag::MASTER, 1);
    lan.inject(0, &from_second(kind::DATABASE_DESCRIPTION, &body));
    assert_eq!(lan.states(0), [NeighbourState::Exchange]);
    assert_eq!(lan.ospf(0).designated(), (address(1), address(2)), "NeighborChange");
}

#[test]
fn routers_without_priority_never_become_adjacent() {
    let mut lan = Lan::started([1, 2].map(|n| OspfConfig { priority: 0, ..config(n, Broadcast) }).to_vec());
    lan.run(20);
    assert_eq!((lan.states(0), lan.ospf(0).designated().0), (vec![TwoWay], Ipv4Addr::UNSPECIFIED));
}

#[test]
fn each_mismatch_has_its_reason() {
    let simple = |text: &str| Secret::Simple(text.into());
    let md5 = |key_id, key: &str| Secret::Md5 { key_id, key: key.into() };
    let base = || config(1, Broadcast);
    let cases: Vec<(OspfConfig, OspfConfig, &str)> = vec![
        (base(), OspfConfig { hello_interval: 2, ..config(2, Broadcast) }, "different HelloInterval"),
        (base(), OspfConfig { dead_interval: 5, ..config(2, Broadcast) }, "different RouterDeadInterval"),
        (base(), OspfConfig { area: [0, 0, 0, 1].into(), ..config(2, Broadcast) }, "different area"),
        (
            base(),
            OspfConfig { stub: true, ..config(2, Broadcast) },
            "different E-bit: only one of the routers treats the area as a stub area",
        ),
        (
            base(),
            OspfConfig { router_id: router_id(1), ..config(2, Broadcast) },
            "sender has the router ID or the address of this router",
        ),
        (base(), OspfConfig { secret: simple("a"), ..config(2, Broadcast) }, "different authentication type"),
        (
            OspfConfig { secret: simple("a"), ..base() },
            OspfConfig { secret: simple("b"), ..config(2, Broadcast) },
            "wrong password",
        ),
        (
            OspfConfig { secret: md5(1, "a"), ..base() },
            OspfConfig { secret: md5(2, "a"), ..config(2, Broadcast) },
            "unknown Key ID",
        ),
        (
            OspfConfig { secret: md5(1, "a"), ..base() },
            OspfConfig { secret: md5(1, "b"), ..config(2, Broadcast) },
            "wrong digest",
        ),
    ];
    for (a, b, reason) in cases {
        let mut lan = Lan::started(vec![a, b]);
        lan.run_until(lan::HALF_PAST_TEN, |_| false);
        assert_eq!((lan.states(0), lan.states(1)), (vec![], vec![]), "{reason}");
        for which in [0, 1] {
            let rejected = lan.ospf(which).rejected();
            assert_eq!(
                (rejected.get(reason), rejected.sum()),
                (lan.counter(1 - which, "hellos_sent"), rejected.get(reason))
            );
        }
    }
    let small = OspfConfig { mtu: 1400, ..config(1, PointToPoint) };
    let mut lan = Lan::started(vec![small.clone(), config(2, PointToPoint)]);
    lan.run(10);
    assert_eq!(lan.states(0), [NeighbourState::ExStart]);
    assert!(lan.ospf(0).rejected().get("larger Interface MTU") > 0);
    let mut lan = Lan::started(vec![OspfConfig { ignore_mtu: true, ..small }, config(2, PointToPoint)]);
    lan.run(10);
    assert!(lan.is_settled());
}

#[test]
fn authenticated_routers_become_adjacent_and_old_packets_are_refused() {
    for secret in [Secret::Simple("password".into()), Secret::Md5 { key_id: 9, key: "sixteen bytes...".into() }] {
        let of = |n| OspfConfig { secret: secret.clone(), ..config(n, PointToPoint) };
        let mut lan = Lan::started(vec![of(1), of(2)]);
        lan.run(10);
        assert!(lan.is_settled());
        if matches!(secret, Secret::Md5 { .. }) {
            let (_, old) = lan.frames.iter().find(|(_, frame)| frame[6..12] == [2, 0, 0, 0, 0, 2]).unwrap().clone();
            lan.inject(0, &old);
            assert_eq!(lan.ospf(0).rejected().get("cryptographic sequence number decreases"), 1);
        }
    }
}

#[test]
fn cryptographic_sequence_numbers_do_not_decrease_when_a_run_follows_another() {
    // Two routers on a clock that started at this second.
    let run = |first_sequence: u32| {
        let secret = Secret::Md5 { key_id: 9, key: "key".into() };
        let of = |n| OspfConfig { secret: secret.clone(), first_sequence, ..config(n, PointToPoint) };
        let flooding = OspfConfig { external: Some(lan::externals(2000)), update_gap: 0, ..of(1) };
        let mut lan = Lan::started(vec![flooding, of(2)]);
        lan.run(20);
        assert!(lan.is_settled() && lan.frames.len() > 60, "{} packets", lan.frames.len());
        let sequences = lan.frames.iter().map(|(_, frame)| u32::from_be_bytes(frame[54..58].try_into().unwrap()));
        sequences.collect::<Vec<_>>()
    };
    let (first, second) = (run(1_700_000_000), run(1_700_000_020));
    for sequences in [&first, &second] {
        assert!(sequences.is_sorted());
    }
    assert_eq!((first[0], second[0]), (1_700_000_000, 1_700_000_020));
    assert!(first.last() <= second.first(), "{first:?} {second:?}");
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    use drophammer_emulation::ospf::{Ospf, Shape};
    use drophammer_emulation::{Address, DeviceConfig};
    let of = |n: u8| DeviceConfig::new("d", drophammer_wire::MacAddr::local(n.into()), 1);
    let with =
        DeviceConfig { ipv4: Some(Address { address: address(1), prefix_len: 24, gateway: address(2) }), ..of(1) };
    let refused = |device: &DeviceConfig, config: OspfConfig| Ospf::configured(device, &config).err().unwrap().reason;
    let good = config(1, Broadcast);
    assert!(refused(&of(1), good.clone()).contains("no IPv4 address"));
    assert!(refused(&with, OspfConfig { router_id: Ipv4Addr::UNSPECIFIED, ..good.clone() }).contains("router ID"));
    assert!(refused(&with, OspfConfig { hello_interval: 0, ..good.clone() }).contains("1 s or more"));
    let secret = Secret::Simple("nine chars".into());
    assert!(refused(&with, OspfConfig { secret, ..good.clone() }).contains("more than 8 bytes"));
    let external = Some(super::lan::externals(1));
    assert!(refused(&with, OspfConfig { stub: true, external, ..good.clone() }).contains("stub area"));
    let grid = super::lan::topology(10, Shape::Grid { columns: 0 });
    assert!(refused(&with, OspfConfig { topology: Some(grid), ..good.clone() }).contains("a row of a grid"));
    let many = super::lan::externals(1 << 20);
    let beyond = drophammer_emulation::ospf::Networks { first: [255, 0, 0, 0].into(), ..many.networks };
    let external = Some(drophammer_emulation::ospf::Externals { networks: beyond, ..many });
    assert!(refused(&with, OspfConfig { external, ..good }).contains("beyond 255.255.255.255"));
}
