//! The routers of a system: their roles, and that packets reach their destination whichever link is down.
use crate::common::suite;
use drophammer_model::capabilities::Need;
use drophammer_model::classes::{EgressClasses, ServiceClass, WayOut};
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::role::{CoreLink, InterfaceAddress, Place, PolicySource, PolicyTarget, RouterRole, StaticRoute};
use drophammer_model::suite::{LabelConfig, PortConfig};
use drophammer_model::topology::{ALTERNATIVES, CoreLinkName, CoreWay, LOOP_PREFIX, Shape, System, Topology, Wan};
use drophammer_model::trial::Family;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Ports with default addresses, `count` of them, and further lines of the suite.
fn ports(count: usize, more: &str) -> Vec<PortConfig> {
    // The number of ports of a suite is even.
    let even = count.next_multiple_of(2);
    let ports: String = (1..=even).map(|i| format!("  - {{name: p{i}, speed: 1 Gbit/s}}\n")).collect();
    let text = format!("suite: s\nduts: [{{name: f, kind: frr}}]\nports:\n{ports}{more}\ntests: [throughput]\n");
    let mut ports = suite(&text).unwrap().ports;
    ports.truncate(count);
    ports
}

fn mesh(routers: usize) -> Topology {
    Topology { shape: Shape::Mesh, routers, core_speed: None, wan: None }
}

fn chain(routers: usize) -> Topology {
    Topology { shape: Shape::Chain, routers, core_speed: None, wan: None }
}

/// The index of the router of this system that has this core address, and the link of the address.
fn owner(system: &System, address: IpAddr) -> Option<usize> {
    let has = |router: &usize| {
        let member = system.routers[*router].role.member.as_ref().unwrap();
        let core = &system.routers[*router].role.interfaces[member.edges..];
        core.iter().flat_map(|i| &i.addresses).any(|a| a.address == address)
    };
    (0..system.routers.len()).find(has)
}

/// Routers that a packet from router `from` to `prefix` passes before it leaves the system, while the links `down` are
/// down, following only the routes of the roles. `None` if the packet is lost or loops.
fn path(system: &System, from: usize, prefix: (IpAddr, u8), down: &[CoreLinkName]) -> Option<Vec<usize>> {
    let mut path = vec![from];
    loop {
        let at = *path.last().unwrap();
        let role = &system.routers[at].role;
        let member = role.member.as_ref().unwrap();
        // The prefix is on a link of the router, or its own address.
        let connected = |i: usize| role.interfaces[i].addresses.iter().any(|a| covers(prefix, a.address));
        if (0..member.edges).any(connected) || member.loopbacks.iter().any(|a| covers(prefix, *a)) {
            return Some(path);
        }
        let up = |route: &&StaticRoute| {
            let link = system
                .links
                .iter()
                .find(|link| link.end_at(at).is_some_and(|end| Place { port: end.interface, vlan: None } == route.at));
            route.prefix == prefix && link.is_none_or(|link| !down.contains(&link.name))
        };
        let route = role.routes.iter().filter(up).min_by_key(|route| route.rank)?;
        if route.at.port < member.edges {
            return Some(path);
        }
        path.push(owner(system, route.via)?);
        if path.len() > 2 * system.routers.len() {
            return None;
        }
    }
}

fn covers((network, length): (IpAddr, u8), address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(n), IpAddr::V4(a)) => {
            u32::from(n) == u32::from(a) & (!0u32).checked_shl(32 - u32::from(length)).unwrap_or(0)
        }
        (IpAddr::V6(n), IpAddr::V6(a)) => {
            u128::from(n) == u128::from(a) & (!0u128).checked_shl(128 - u32::from(length)).unwrap_or(0)
        }
        _ => false,
    }
}

/// All destinations that routers must reach: the network behind each port, its link, and each loopback address, with
/// the router that has it.
fn targets(system: &System, ports: &[PortConfig]) -> Vec<((IpAddr, u8), usize)> {
    let mut all = Vec::new();
    for (index, router) in system.routers.iter().enumerate() {
        for addressing in ports[router.ports.clone()].iter().flat_map(|p| [p.ipv4.as_ref(), p.ipv6.as_ref()]).flatten()
        {
            all.push((addressing.behind, index));
            let (dut, length) = (addressing.dut, addressing.prefix_len);
            let network: IpAddr = match dut {
                IpAddr::V4(a) => std::net::Ipv4Addr::from(u32::from(a) >> (32 - length) << (32 - length)).into(),
                IpAddr::V6(a) => std::net::Ipv6Addr::from(u128::from(a) >> (128 - length) << (128 - length)).into(),
            };
            all.push(((network, length), index));
        }
        let member = router.role.member.as_ref().unwrap();
        all.extend(member.loopbacks.iter().map(|a| ((*a, if a.is_ipv4() { 32 } else { 128 }), index)));
    }
    all
}

/// Every router reaches all destinations while the links `down` are down, in as many steps as [`System::hops`] says if
/// no link is down.
fn all_reached(system: &System, ports: &[PortConfig], down: &[CoreLinkName]) -> Result<(), TestCaseError> {
    for (prefix, owner) in targets(system, ports) {
        for from in 0..system.routers.len() {
            let path = path(system, from, prefix, down);
            prop_assert!(path.is_some(), "r{} does not reach {prefix:?} at r{} without {down:?}", from + 1, owner + 1);
            let path = path.unwrap();
            prop_assert_eq!(*path.last().unwrap(), owner);
            if down.is_empty() {
                prop_assert_eq!(path.len(), system.topology.hops(from, owner));
            }
        }
    }
    Ok(())
}

/// Links that have no router in common, chosen by `order`.
fn disjoint(system: &System, order: &[usize]) -> Vec<CoreLinkName> {
    let mut used = HashSet::new();
    let drawn = order.iter().map(|i| system.links[i % system.links.len()].name);
    drawn
        .filter(|name| !used.contains(&name.0) && !used.contains(&name.1) && used.insert(name.0) && used.insert(name.1))
        .collect()
}

#[test]
fn a_mesh_of_four_has_the_ports_in_blocks_and_six_links() {
    let ports = ports(8, "");
    let system = System::of(&ports, &mesh(4)).unwrap();
    let dealt: Vec<_> = system.routers.iter().map(|r| r.ports.clone()).collect();
    assert_eq!(dealt, [0..2, 2..4, 4..6, 6..8]);
    let names: Vec<_> = system.links.iter().map(|l| l.name.to_string()).collect();
    assert_eq!(names, ["1-2", "1-3", "1-4", "2-3", "2-4", "3-4"]);
    let role = &system.routers[2].role;
    let member = role.member.as_ref().unwrap();
    assert_eq!((role.interfaces.len(), member.edges, member.number, member.routers), (5, 2, 3, 4));
    assert_eq!(member.loopbacks, ["100.127.255.3", "fd3c:91a7:5e2d:ffff::3"].map(|a| a.parse::<IpAddr>().unwrap()));
    // Its second core interface leads to r2.
    assert_eq!(system.links[3].end_at(2).unwrap().interface, 3);
    let address = role.interfaces[3].addresses[0];
    assert_eq!((address.address.to_string(), address.prefix_len), ("100.64.0.14".into(), 30));
    assert_eq!(owner(&system, "100.64.0.13".parse().unwrap()), Some(1));
    assert!(role.needs().contains(&Need::Systems));
    assert_eq!((system.edge(5), system.edge(8)), (Some((2, 1)), None));
    assert_eq!((system.hops(4, 5), system.hops(0, 5), system.hops(0, 8)), (Some(1), Some(2), None));
    // Around a broken link in the order of the ring: r3 to r1 by r4, then by r2.
    let to: Vec<_> = role.routes.iter().filter(|r| r.prefix == ports[0].ipv4.as_ref().unwrap().behind).collect();
    let via: Vec<_> = to.iter().map(|r| (r.rank, owner(&system, r.via).unwrap())).collect();
    assert_eq!(via, [(0, 0), (1, 3), (2, 1)]);
    // For each family: two own routes, and three to the two links, two networks and loopback of each of three routers.
    assert_eq!(role.routes.len(), 2 * (2 + 3 * 3 * 5));
    assert!(role.routes.is_sorted_by_key(|r| r.via.is_ipv6()));
}

#[test]
fn a_chain_has_its_ports_at_both_ends() {
    let system = System::of(&ports(4, ""), &chain(3)).unwrap();
    let dealt: Vec<_> = system.routers.iter().map(|r| r.ports.clone()).collect();
    assert_eq!(dealt, [0..2, 2..2, 2..4]);
    assert_eq!(system.links.iter().map(|l| l.name.to_string()).collect::<Vec<_>>(), ["1-2", "2-3"]);
    assert_eq!(system.routers[1].role.interfaces.len(), 2);
    assert_eq!((system.hops(0, 1), system.hops(0, 2)), (Some(1), Some(3)));
    assert!(system.routers.iter().flat_map(|r| &r.role.routes).all(|r| r.rank == 0));
}

#[test]
fn links_have_room_for_the_longest_packet_of_any_port() {
    let mut ports = ports(4, "");
    ports[3].mtu = 9000;
    ports.iter_mut().for_each(|p| p.ipv6 = None);
    let speed = "100 Mbit/s".parse().unwrap();
    let system = System::of(&ports, &Topology { core_speed: Some(speed), ..mesh(2) }).unwrap();
    let role = &system.routers[0].role;
    assert_eq!(role.interfaces.iter().map(|i| i.mtu).collect::<Vec<_>>(), [1500, 1500, 9000]);
    assert!(role.interfaces[2].addresses.iter().all(|a| a.address.is_ipv4()), "the suite has no IPv6");
    assert_eq!(role.member.as_ref().unwrap().loopbacks.len(), 1);
    assert_eq!(system.links[0].speed, Some(speed));
    assert_eq!(system.topology.to_string(), "2 routers, fully meshed, core links of 100 Mbit/s");
}

#[test]
fn every_router_has_a_session_with_every_other_one() {
    let ports = ports(4, "bgp: {}");
    let system = System::of(&ports, &chain(3)).unwrap();
    for (index, router) in system.routers.iter().enumerate() {
        let bgp = router.role.bgp.as_ref().unwrap();
        assert_eq!(bgp.groups.len(), 2 * router.ports.len(), "peers of r{}", index + 1);
        let others: Vec<_> = bgp.core.iter().map(|p| (p.number, p.family)).collect();
        let expected = (1..=3).filter(|n| *n != index + 1).flat_map(|n| [(n, Family::Ipv4), (n, Family::Ipv6)]);
        assert_eq!(others, expected.collect::<Vec<_>>());
        for peer in &bgp.core {
            assert!(peer.next_hop_self);
            let back = system.routers[peer.number - 1].role.bgp.as_ref().unwrap();
            assert!(back.core.iter().any(|b| (b.local, b.peer) == (peer.peer, peer.local)));
            assert!(router.role.member.as_ref().unwrap().loopbacks.contains(&peer.local));
        }
        assert!(router.role.peers().all(|p| !bgp.core.iter().any(|c| c.peer == p)), "peers() are the tester's");
    }
    let ids: HashSet<_> = system.routers.iter().map(|r| r.role.member.as_ref().unwrap().router_id).collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn routers_of_a_chain_speak_ospf_and_ldp_with_p_routers_and_with_each_other() {
    use CoreProtocol::{Bfd, Ldp, Ospf};
    let mut ports = ports(4, "");
    (ports[1].core, ports[3].core) = (vec![Ospf, Ldp, Bfd], vec![Ospf]);
    let system = System::of(&ports, &chain(3)).unwrap();
    let cores: Vec<_> = system.routers.iter().map(|router| router.role.core.as_ref().unwrap()).collect();
    let loopbacks: Vec<_> = cores.iter().map(|core| core.loopback.to_string()).collect();
    assert_eq!(loopbacks, ["100.127.255.1", "100.127.255.2", "100.127.255.3"]);
    let links = |router: usize| {
        let link = |l: &CoreLink| (l.port, l.protocols.clone(), l.local.to_string(), l.neighbour_id.to_string());
        cores[router].links.iter().map(link).collect::<Vec<_>>()
    };
    let between = |port, local: &str, other: &str| (port, vec![Ospf, Ldp], local.to_owned(), other.to_owned());
    // A P router behind the port has the number of the port in the suite.
    let edge = (1, vec![Ospf, Ldp, Bfd], "198.19.1.1".to_owned(), "100.127.1.1".to_owned());
    assert_eq!(links(0), [edge, between(2, "100.64.0.1", "100.127.255.2")]);
    assert_eq!(links(1), [between(0, "100.64.0.2", "100.127.255.1"), between(1, "100.64.0.5", "100.127.255.3")]);
    assert_eq!(links(2)[0].3, "100.127.3.1");
    assert_eq!((cores[0].links[0].pe, cores[0].links[1].pe), (Some([100, 127, 1, 2].into()), None));
    assert_eq!((cores[0].links[1].neighbour, cores[0].links[1].prefix_len), ([100, 64, 0, 2].into(), 30));
    for router in &system.routers {
        let core = router.role.core.as_ref().unwrap();
        let has =
            |address: IpAddr| router.role.interfaces.iter().flat_map(|i| &i.addresses).any(|a| a.address == address);
        assert!(core.links.iter().all(|link| has(link.local.into())));
        assert_eq!(router.role.member.as_ref().unwrap().loopbacks[0], IpAddr::V4(core.loopback));
        let block = |prefix: (IpAddr, u8)| covers((Ipv4Addr::new(100, 127, 255, 0).into(), 24), prefix.0);
        assert!(
            !router.role.routes.iter().any(|route| block(route.prefix)),
            "OSPF has the routes to loopback addresses"
        );
    }
    // Every second router has labels for the networks of links, none has some for the networks behind ports.
    let (link, behind) = ((Ipv4Addr::new(198, 18, 1, 0), 24), (Ipv4Addr::new(198, 18, 64, 0), 18));
    let lacks: Vec<_> = cores.iter().map(|c| [link, behind].map(|net| c.unlabelled.contains(&net))).collect();
    assert_eq!(lacks, [[true, true], [false, true], [true, true]]);
}

#[test]
fn packets_keep_their_label_until_they_are_at_the_router_of_the_entry() {
    let mut ports = ports(4, "");
    ports[0].labels = vec![LabelConfig { label: 100, out: vec![] }];
    ports[3].labels = vec![LabelConfig { label: 101, out: vec![201] }];
    for topology in [mesh(4), chain(4)] {
        let system = System::of(&ports, &topology).unwrap();
        for (entry, port) in [(100, 0), (101, 3)] {
            let end = system.edge(port).unwrap();
            for start in 0..4 {
                let (mut at, mut passed) = (start, 0);
                loop {
                    let role = &system.routers[at].role;
                    let entries: Vec<_> = role.labels.iter().filter(|e| e.label == entry).collect();
                    assert_eq!(entries.len(), 1, "{topology}: router {at}");
                    if at == end.0 {
                        assert_eq!((entries[0].at.port, &entries[0].out), (end.1, &ports[port].labels[0].out));
                        break;
                    }
                    assert_eq!(entries[0].out, [entry], "unchanged on the way");
                    let owns = |role: &RouterRole| {
                        role.interfaces.iter().any(|i| i.addresses.iter().any(|a| a.address == entries[0].via))
                    };
                    at = system.routers.iter().position(|router| owns(&router.role)).expect("the next hop is a router");
                    passed += 1;
                    assert!(passed < 4, "{topology}: a circle");
                }
            }
        }
    }
}

#[test]
fn what_does_not_suit_is_refused_with_the_remedy() {
    let refused = |ports: &[PortConfig], topology: Topology, what: &str, remedy: &str| {
        let unsuited = System::of(ports, &topology).unwrap_err();
        assert!(unsuited.what.contains(what) && unsuited.remedy.contains(remedy), "{unsuited}");
    };
    let four = ports(4, "");
    refused(&ports(6, ""), mesh(4), "6 ports for a mesh of 4 routers", "4 or 8 ports");
    refused(&four, mesh(8), "4 ports for a mesh of 8 routers", "8 or 16 ports");
    refused(&four, mesh(65), "65 routers", "2 to 64");
    refused(&four, chain(1), "1 routers", "leave `topology` out");
    refused(&four[..3], chain(2), "3 ports for a chain", "2 or 4 ports");
    refused(&ports(2, "bgp: {internal: [p2]}"), mesh(2), "`p2` are internal", "leave out `internal`");
    for (behind, block) in [("100.70.0.0", "100.64.0.0/10"), ("fd3c:91a7:5e2d:9::", "fd3c:91a7:5e2d::/48")] {
        let mut ports = four.clone();
        let behind: IpAddr = behind.parse().unwrap();
        let family = if behind.is_ipv4() { &mut ports[1].ipv4 } else { &mut ports[1].ipv6 };
        family.as_mut().unwrap().behind = (behind, if behind.is_ipv4() { 24 } else { 64 });
        refused(&ports, mesh(2), block, "other addresses");
        // A default route is less specific than any network on a link.
        let family = if behind.is_ipv4() { &mut ports[1].ipv4 } else { &mut ports[1].ipv6 };
        let any: IpAddr = if behind.is_ipv4() { "0.0.0.0" } else { "::" }.parse().unwrap();
        family.as_mut().unwrap().behind = (any, 0);
        System::of(&ports, &mesh(2)).unwrap();
    }
}

/// Load of each direction of each link, relative to what a port sends to all others.
fn loads(system: &System, down: &[CoreLinkName]) -> Option<Vec<(String, f64)>> {
    let loads = system.full_mesh_loads(&down.iter().copied().collect())?;
    Some(loads.0.into_iter().map(|(way, load)| (format!("{way}"), load)).collect())
}

#[test]
fn links_carry_what_goes_around_others() {
    let (four, twelve) = (ports(4, ""), ports(12, ""));
    let system = System::of(&four, &mesh(4)).unwrap();
    // Each port sends a third to each of the others.
    let all = loads(&system, &[]).unwrap();
    assert!(all.len() == 12 && all.iter().all(|(_, load)| (load - 1.0 / 3.0).abs() < 1e-9), "{all:?}");
    // Without two links that have no router in common, all other links carry twice as much.
    for down in [[(1, 2), (3, 4)], [(1, 3), (2, 4)], [(1, 4), (2, 3)]] {
        let around = loads(&system, &down.map(|(a, b)| CoreLinkName(a, b))).unwrap();
        assert!(
            around.len() == 8 && around.iter().all(|(_, load)| (load - 2.0 / 3.0).abs() < 1e-9),
            "{down:?}: {around:?}"
        );
    }
    // Without two links of a router, its last link carries all of its traffic.
    let around = loads(&system, &[CoreLinkName(1, 2), CoreLinkName(1, 3)]).unwrap();
    assert!(around.iter().any(|(way, load)| way == "r1 to r4" && (load - 1.0).abs() < 1e-9), "{around:?}");
    assert_eq!(loads(&system, &[CoreLinkName(1, 2), CoreLinkName(1, 3), CoreLinkName(1, 4)]), None);
    // Of the traffic of a router's three ports, 2 parts in 11 stay at the router.
    let large = System::of(&twelve, &mesh(4)).unwrap();
    let all = loads(&large, &[]).unwrap();
    assert!(all.iter().all(|(_, load)| (load - 9.0 / 11.0).abs() < 1e-9), "{all:?}");
    let chain = System::of(&four, &chain(3)).unwrap();
    assert!(loads(&chain, &[]).unwrap().iter().all(|(_, load)| (load - 4.0 / 3.0).abs() < 1e-9));
    assert_eq!(loads(&chain, &[CoreLinkName(2, 3)]), None);
}

#[test]
fn links_are_chosen_so_that_the_others_are_overloaded_evenly() {
    let chosen = |routers, count| {
        let system = System::of(&ports(routers, ""), &mesh(routers)).unwrap();
        system.choose_down(count).map(|down| down.into_iter().map(|name| name.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(chosen(4, 0).unwrap(), Vec::<String>::new());
    assert_eq!(chosen(4, 1).unwrap(), ["1-2"]);
    assert_eq!(chosen(4, 2).unwrap(), ["1-2", "3-4"]);
    assert!(chosen(4, 4).unwrap_err().contains("without 4 of its 6 links"));
    assert!(chosen(4, 7).unwrap_err().contains("6 links between routers, not 7"));
    assert!(chosen(20, 8).unwrap_err().contains("name the links"));
    // No direction of a link carries more than its own traffic and the same amount of rerouted traffic.
    let system = System::of(&ports(6, ""), &mesh(6)).unwrap();
    let most = system.full_mesh_loads(&system.choose_down(3).unwrap()).unwrap().most();
    assert!((most - 2.0 / 5.0).abs() < 1e-9, "{most}");
    for (text, name) in [
        ("1-2", Some(CoreLinkName(1, 2))),
        ("4-1", Some(CoreLinkName(1, 4))),
        ("1-1", None),
        ("1-65", None),
        ("0-1", None),
        ("12", None),
    ] {
        assert_eq!(text.parse::<CoreLinkName>().ok(), name, "{text}");
    }
}

#[test]
fn a_router_gets_the_classes_of_its_own_ways_out() {
    let system = System::of(&ports(8, ""), &mesh(4)).unwrap();
    let class = |name: &str, dscp| ServiceClass { name: name.into(), dscp, weight: 1 };
    let list = |at| EgressClasses {
        at,
        rate: "1 Mbit/s".parse().unwrap(),
        queue: 9,
        scheduling: Default::default(),
        classes: vec![class("a", 1), class("b", 2)],
    };
    let way = |from, to| WayOut::Core(CoreWay { from, to });
    let lists = [list(WayOut::Port(5)), list(way(3, 2)), list(way(2, 3))];
    let of = |router| {
        let own = system.classes_of(router, &lists).unwrap();
        own.into_iter().map(|list| list.at).collect::<Vec<_>>()
    };
    assert_eq!((of(0), of(3)), (vec![], vec![]));
    // Port 5 is the second port of r3. The link between r2 and r3 is the second one to other routers for both.
    assert_eq!((of(2), of(1)), (vec![WayOut::Port(1), WayOut::Port(3)], vec![WayOut::Port(3)]));
    assert_eq!(system.class_counter(CoreWay { from: 3, to: 2 }, "gold"), Some("r3.d3.gold".into()));
    assert_eq!(
        (system.interface_of(CoreWay { from: 2, to: 2 }), system.interface_of(CoreWay { from: 0, to: 2 })),
        (None, None)
    );
    assert!(system.classes_of(0, &[list(way(1, 9))]).unwrap_err().contains("r1 to r9"));
}

#[test]
fn many_broken_links_of_several_routers_are_more_than_it_survives() {
    let ports = ports(4, "");
    let system = System::of(&ports, &mesh(4)).unwrap();
    // The chain r1-r2-r3-r4 is left: for r1, r3 sends back to r4, the next router on the ring.
    let down = [CoreLinkName(1, 3), CoreLinkName(1, 4), CoreLinkName(2, 4)];
    assert!(all_reached(&system, &ports, &down).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn packets_find_their_way(
        routers in 2usize..9,
        block in 1usize..3,
        is_mesh: bool,
        order in proptest::collection::vec(0usize..1000, 0..6),
        of in 0usize..64,
        broken in 0usize..=ALTERNATIVES,
    ) {
        let topology = if is_mesh { mesh(routers) } else { chain(routers) };
        let ports = ports(block * if is_mesh { routers } else { 2 }, "");
        let system = System::of(&ports, &topology).unwrap();
        all_reached(&system, &ports, &[])?;

        let mut seen = BTreeSet::new();
        for router in &system.routers {
            let interfaces = router.role.interfaces.iter().flat_map(|i| &i.addresses).map(|a| a.address);
            let loopbacks = router.role.member.iter().flat_map(|m| m.loopbacks.clone());
            for address in interfaces.chain(loopbacks) {
                prop_assert!(seen.insert(address), "{address} twice");
            }
        }

        if is_mesh && routers >= 3 {
            all_reached(&system, &ports, &disjoint(&system, &order))?;
            let of = of % routers;
            let links: Vec<_> = system.links.iter().filter(|l| l.end_at(of).is_some()).map(|l| l.name).collect();
            let broken = broken.min(links.len() - 1);
            let down: Vec<_> = (0..broken).map(|i| links[(i + order.len()) % links.len()]).collect();
            all_reached(&system, &ports, &down)?;
        }
    }
}

#[test]
fn any_single_link_of_a_mesh_may_be_down() {
    for routers in [3, 4, 7] {
        let ports = ports(routers, "");
        let system = System::of(&ports, &mesh(routers)).unwrap();
        for link in &system.links {
            all_reached(&system, &ports, &[link.name]).unwrap();
        }
    }
}

/// True if this address is on the link of an interface.
fn same_link(interface: &InterfaceAddress, address: Ipv4Addr) -> bool {
    let IpAddr::V4(own) = interface.address else { return false };
    (u32::from(own) ^ u32::from(address)) >> (32 - u32::from(interface.prefix_len)) == 0
}

/// The path of a packet to the looping prefix by the roles alone: router by router, until its TTL ends.
fn circle(system: &System, mut router: usize, mut from: PolicySource, ttl: u8) -> Vec<(usize, usize, bool)> {
    let mut hops = Vec::new();
    for _ in 1..ttl {
        let role = &system.routers[router].role;
        let policy = role.policies.iter().find(|policy| policy.from == from);
        let target = match policy {
            Some(policy) => policy.to,
            None => {
                let route = role.routes.iter().find(|r| r.prefix == (LOOP_PREFIX.0.into(), LOOP_PREFIX.1)).unwrap();
                let IpAddr::V4(via) = route.via else { panic!() };
                PolicyTarget::NextHop { via, interface: route.at.port }
            }
        };
        let (via, tunnelled) = match target {
            PolicyTarget::NextHop { via, .. } => (via, false),
            PolicyTarget::Tunnel(index) => (role.tunnels[index].remote, true),
        };
        // The link with the network of the next hop.
        let on = |i: &usize| role.interfaces[*i].addresses.iter().any(|a| same_link(a, via));
        let out = (0..role.interfaces.len()).find(on).unwrap();
        if let PolicyTarget::NextHop { interface, .. } = target {
            assert_eq!(interface, out);
        }
        hops.push((router, out, tunnelled));
        let link =
            system.links.iter().find(|link| link.end_at(router).is_some_and(|end| end.interface == out)).unwrap();
        router = link.beyond(router).unwrap();
        assert_eq!(owner(system, via.into()), Some(router));
        from = if tunnelled {
            let back = system.routers[router].role.tunnels[0];
            assert_eq!((back.local, back.remote), (via, role.tunnels[0].local));
            PolicySource::Tunnel(0)
        } else {
            PolicySource::Interface(link.end_at(router).unwrap().interface)
        };
    }
    hops
}

#[test]
fn packets_to_the_looping_prefix_go_around_until_their_ttl_ends() {
    let (speed, delay) = (Some("44.21 Mbit/s".parse().unwrap()), Some(Duration::from_millis(277)));
    let wan = Some(Wan { speed, delay, loss: None });
    let core_speed = Some("100 Mbit/s".parse().unwrap());
    let topology = Topology { shape: Shape::Loop, routers: 4, core_speed, wan };
    let system = System::of(&ports(2, ""), &topology).unwrap();
    let names: Vec<_> = system.links.iter().map(|link| link.name.to_string()).collect();
    assert_eq!(names, ["1-2", "1-2", "2-3", "3-4", "3-4"]);
    let speeds: Vec<_> = system.links.iter().map(|link| (link.speed.unwrap().0, link.delay.as_millis())).collect();
    assert_eq!(speeds[1..3], [(100_000_000, 0), (44_210_000, 277)]);
    let cycle = system.cycle().unwrap();
    assert_eq!(cycle.iter().map(|hop| hop.router).collect::<Vec<_>>(), [0, 1, 2, 3, 2, 1]);
    for (port, entry) in [(0, 0), (1, 3)] {
        for ttl in [1, 2, 5, 6, 7, 13, 64, 255] {
            let hops = circle(&system, entry, PolicySource::Interface(0), ttl);
            let mut counted = vec![0; cycle.len()];
            for hop in &hops {
                let at = cycle.iter().position(|c| (c.router, c.to, c.to_tunnel) == *hop).unwrap();
                counted[at] += 1;
            }
            assert_eq!(system.passes(port, ttl).unwrap(), counted, "TTL {ttl} from port {port}");
            assert_eq!(counted.iter().sum::<u64>(), u64::from(ttl) - 1);
        }
    }
    // The tunnel does not reduce the MTU.
    let role = &system.routers[2].role;
    assert_eq!((role.interfaces[0].mtu, role.tunnels[0].mtu), (1524, 1500));
    assert!(role.needs().contains(&Need::Tunnels) && role.needs().contains(&Need::PolicyRouting));
    assert!(!system.routers[0].role.needs().contains(&Need::Tunnels));
    assert_eq!(System::of(&ports(2, ""), &chain(4)).unwrap().cycle(), None);
    assert!(System::of(&ports(3, ""), &topology).is_err());
}
