//! Suites with VLAN sub-interfaces on the reference device: sub-interfaces are emulated, resolved and used like the
//! ports themselves.

use crate::common::*;
use drophammer_methods::routing::TableChoice;
use drophammer_methods::{Packing, RouteAction, TestError, Testbed};
use drophammer_model::routes::{AfiSafi, Change};
use drophammer_model::suite::Suite;
use drophammer_model::trial::Family;
use drophammer_testbed::simulated::{self, NoDut};
use std::time::Duration;

/// One tag and two tags on both ports; the flows cover all kinds of paths.
const SUITE: &str = "suite: vlans\nprofile: quick\nseed: 11\nduts:\n  - {name: box, kind: reference}\n\
    ports:\n  - {name: p1, speed: 100 Mbit/s, vlans: [{id: 100}, {id: [100, 200]}]}\n  \
    - {name: p2, speed: 100 Mbit/s, vlans: [{id: 300}, {id: [7, 8]}]}\n\
    flows:\n  - {name: same, from: p1.100, to: p2.300, size: 128, rate: 1 kfps}\n  \
    - {name: six, from: p2.7.8, to: p1.100.200, size: 128, rate: 1 kfps, headers: [ipv6, udp]}\n  \
    - {name: out, from: p1, to: p2.7.8, size: 128, rate: 1 kfps}\n  \
    - {name: in, from: p1.100.200, to: p2, size: 128, rate: 1 kfps}\n\
    tests:\n  - fixed_rate: {trial_duration: 1 s}\n";

/// Waits until a device with this change forwards, as every run does.
fn bed(suite: &Suite, change: impl FnOnce(&mut drophammer_reference::Config)) -> Result<(), TestError> {
    let families = [Family::Ipv4, Family::Ipv6];
    let mut config = simulated::config(&suite.duts[0], &suite.ports, suite.seed);
    change(&mut config);
    let parts = simulated::build_with(config, &suite.duts[0], &suite.ports, suite.seed).unwrap();
    let ports = one_thread(parts.ports, Box::new(parts.clock));
    with_setup(suite, &families, ports, &mut NoDut, &mut Memory::default(), |setup| {
        assert_eq!(setup.ports()[0].vlans, [vec![100], vec![100, 200]]);
        setup.await_forwarding(&families)
    })
}

#[test]
fn a_sub_interface_that_the_device_lacks_or_does_not_forward_to_is_named() {
    let suite = read_suite(SUITE);
    bed(&suite, |_| {}).unwrap();
    // The last sub-interface of the second port has no address that answers.
    let silent = bed(&suite, |config| config.sub_interfaces[3].ipv6 = None).unwrap_err().to_string();
    assert!(silent.contains("on port p2, VLANs 7.8 within 10 s"), "{silent}");
    // The sub-interface answers, but frames to it are dropped.
    let hole = bed(&suite, |config| config.routes.retain(|route| route.port != 5 || route.prefix.is_ipv6()));
    let hole = hole.unwrap_err().to_string();
    assert!(hole.contains("IPv4 p1.100.200 to p2.7.8: 0 of"), "{hole}");
    assert!(!hole.contains("p1 to p2") && !hole.contains("IPv6") && !hole.contains("p2.7.8 to"), "{hole}");
}

/// Two peers on each of four sub-interfaces, and one on each of two ports.
fn with_peers() -> Suite {
    let bgp = "bgp: {peers_per_vlan: 2}\ntests:\n  - bgp_session_capacity: {step: 50}\n";
    let flows = SUITE.find("flows:").unwrap();
    read_suite(&format!("{}{bgp}", &SUITE[..flows]))
}

#[test]
fn routes_go_from_peers_on_sub_interfaces_to_all_others() {
    let families = [Family::Ipv4, Family::Ipv6];
    with_bed(
        &with_peers(),
        &families,
        |_| {},
        |bed, _| {
            let routing = bed.routing().unwrap();
            let names: Vec<_> = routing.peers().iter().map(|p| format!("{} {}", p.name, p.family)).collect();
            let place =
                |name: &str| names.iter().position(|n| n == name).unwrap_or_else(|| panic!("{name} in {names:?}"));
            assert_eq!((names.len(), place("p1 IPv4"), place("p1 VLAN 100 IPv4")), (20, 0, 2));
            let all: Vec<_> = (0..names.len()).collect();
            routing.establish(&all, Duration::from_secs(10)).unwrap();
            for family in families {
                let at = |name: &str| place(&format!("{name} {family}"));
                let origins = [at("p1 VLAN 100"), at("p1 VLAN 100.200.2")];
                let observers = [at("p2"), at("p2 VLAN 7.8.2")];
                let table = routing.table(&TableChoice::named("internet"), AfiSafi::unicast(family), 2).unwrap();
                let watches = observers.map(|observer| routing.watch(observer, origins[0], &table));
                for (route, peer) in (0..).zip(origins) {
                    watches.iter().for_each(|watch| routing.expect(*watch, route..route + 1, true));
                    let (routes, part, packing) = (table.clone(), route..route + 1, Packing::default());
                    let advertise = RouteAction::Routes { peer, change: Change::Advertise, routes, part, packing };
                    routing.act(&advertise).unwrap();
                }
                let settled = routing.await_settled(&watches, Duration::from_secs(3)).unwrap();
                let seen = watches.map(|watch| routing.verified(watch)).map(|v| (v.present, v.wrong, v.unexpected));
                assert_eq!(seen, [(2, 0, 0); 2], "{family}: {}", settled.cause);
            }
        },
    );
}

#[test]
fn a_device_that_has_its_neighbours_on_the_port_itself_takes_no_session_of_a_sub_interface() {
    let untagged = |config: &mut drophammer_reference::Config| {
        config.bgp.as_mut().unwrap().peers.retain(|peer| peer.port < 2);
    };
    with_bed(&with_peers(), &[Family::Ipv4, Family::Ipv6], untagged, |bed, _| {
        let routing = bed.routing().unwrap();
        let error = routing.establish(&[0, 2], Duration::from_secs(3)).unwrap_err().to_string();
        assert!(error.contains("p1 VLAN 100 (198.18.16.2) is not up"), "{error}");
    });
}
