//! The role of a DUT follows from the ports of a suite.

mod ports;

use drophammer_model::capabilities::Need;
use drophammer_model::role::{Place, RouterRole};
use drophammer_model::suite::{LabelConfig, PortBgp, VlanConfig, VlanTag};
use drophammer_model::trial::Family;
use ports::{addressing, two_ports};
use std::time::Duration;

#[test]
fn every_port_is_an_interface_with_a_route_behind_it() {
    let role = RouterRole::of(&two_ports());
    assert_eq!((role.interfaces.len(), role.routes.len(), &role.bgp), (2, 4, &None));
    assert_eq!(role.interfaces[1].addresses[1].address.to_string(), "2001:2:0:1::1");
    let families: Vec<bool> = role.routes.iter().map(|r| r.via.is_ipv4()).collect();
    assert_eq!(families, [true, true, false, false]);
    let last = role.routes[3];
    assert_eq!((last.prefix.0.to_string(), last.prefix.1), ("2001:2:0:c000::".into(), 50));
    assert_eq!((last.via.to_string(), last.at), ("2001:2:0:1::2".into(), Place { port: 1, vlan: None }));
    assert_eq!(role.needs(), [Need::Ipv4, Need::Ipv6]);
}

#[test]
fn sub_interfaces_have_addresses_and_routes_of_their_own() {
    let mut ports = two_ports();
    ports.iter_mut().for_each(|p| p.ipv6 = None);
    let tag = |tpid, vid| VlanTag { tpid, vid };
    ports[1].vlans = vec![
        VlanConfig {
            tags: vec![tag(0x8100, 100)],
            ipv4: Some(addressing("10.0.0.1", "10.0.0.2", 24, "10.1.0.0", 24)),
            ipv6: None,
        },
        VlanConfig {
            tags: vec![tag(0x88a8, 100), tag(0x8100, 200)],
            ipv4: None,
            ipv6: Some(addressing("fd00::1", "fd00::2", 64, "fd01::", 64)),
        },
    ];
    let role = RouterRole::of(&ports);
    assert_eq!(role.needs(), [Need::Ipv4, Need::Ipv6, Need::Vlan, Need::Qinq]);
    let places: Vec<_> =
        role.places().map(|(at, tags, addresses)| (at.port, at.vlan, tags.len(), addresses.len())).collect();
    assert_eq!(places, [(0, None, 0, 1), (1, None, 0, 1), (1, Some(0), 1, 1), (1, Some(1), 2, 1)]);
    let at: Vec<_> = role.routes.iter().map(|r| (r.at.port, r.at.vlan)).collect();
    assert_eq!(at, [(0, None), (1, None), (1, Some(0)), (1, Some(1))]);
    assert_eq!(role.tags(role.routes[3].at), [tag(0x88a8, 100), tag(0x8100, 200)]);
    ports[1].vlans.pop();
    assert_eq!(RouterRole::of(&ports).needs(), [Need::Ipv4, Need::Vlan]);
}

#[test]
fn label_entries_lead_to_the_router_behind_their_port() {
    let mut ports = two_ports();
    ports[0].labels = vec![LabelConfig { label: 100, out: vec![200, 300] }];
    ports[1].ipv4 = None;
    ports[1].labels = vec![LabelConfig { label: 101, out: vec![] }];
    let role = RouterRole::of(&ports);
    let found: Vec<_> = role.labels.iter().map(|l| (l.label, l.out.len(), l.via.to_string(), l.at.port)).collect();
    let (first, second) = (100, 101);
    assert_eq!(found, [(first, 2, "198.18.1.2".to_owned(), 0), (second, 0, "2001:2:0:1::2".to_owned(), 1)]);
    assert_eq!(role.needs(), [Need::Ipv4, Need::Ipv6, Need::Mpls]);
}

#[test]
fn every_port_and_family_with_peers_is_a_group() {
    let mut ports = two_ports();
    for (port, asn) in ports.iter_mut().zip([65000, 65002]) {
        let (families, hold) = (vec![Family::Ipv4, Family::Ipv6], Duration::from_secs(90));
        port.bgp = Some(PortBgp {
            asn,
            dut_as: 65000,
            peers: 3,
            vlan_peers: 0,
            hold,
            families,
            next_hop_self: true,
            routes: Default::default(),
            protection: Default::default(),
        });
    }
    ports[1].bgp.as_mut().unwrap().families = vec![Family::Ipv6];
    let role = RouterRole::of(&ports);
    let bgp = role.bgp.as_ref().unwrap();
    assert_eq!((bgp.asn, bgp.hold.as_secs(), bgp.next_hop_self), (65000, 90, true));
    let groups: Vec<_> = bgp.groups.iter().map(|g| (g.at.port, g.family, g.asn, g.internal)).collect();
    let expected = [(0, Family::Ipv4, 65000, true), (0, Family::Ipv6, 65000, true), (1, Family::Ipv6, 65002, false)];
    assert_eq!(groups, expected);
    assert_eq!(
        (bgp.groups[2].local.to_string(), bgp.groups[2].peers[2].to_string()),
        ("2001:2:0:1::1".into(), "2001:2:0:1::4".into())
    );
    assert_eq!(role.peers().count(), 9);
    assert_eq!(role.needs(), [Need::Ipv4, Need::Ipv6]);
}
