//! Two devices in a row as P routers, with OSPF and LDP between them: the first one swaps the label of a packet for the one that the second
//! one has assigned, and a device that does otherwise is found.

use crate::common::Memory;
use crate::common::label_chain::{ALL, FECS, WAYS, prepare, send, suite, unclean};
use crate::common::with_system;
use drophammer_methods::igp::{FIRST, FIRST_LABEL, LENGTH};
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::Family;
use drophammer_reference::{Encapsulation, Faults};
use drophammer_testbed::simulated::ReferenceSystem;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The labels that a router of the system pushes on a packet to FEC number `fec`.
fn pushed(system: &ReferenceSystem, router: usize, fec: u32) -> Vec<u32> {
    let address = Ipv4Addr::from_bits(FIRST.to_bits() + (fec << (32 - LENGTH)) + 1);
    system.look(|network| network.routers()[router].route_to(address.into())).expect("a route").labels
}

#[test]
fn the_first_router_swaps_to_the_label_of_the_second() {
    let (suite, mut memory) = (suite("reference"), Memory::default());
    let params = &suite.tests[0].params;
    with_system(&suite, &[Family::Ipv4], &mut memory, |bed, system| {
        for ports in WAYS {
            let way = prepare(bed, params, ports).unwrap();
            for (fec, (first, second)) in (0..FECS).zip(way.first.iter().zip(&way.second)) {
                assert_ne!(first, second, "a router that does not swap would not be seen");
                assert_eq!(pushed(system, ports.0, fec), [*second], "FEC {fec}");
                assert_eq!(pushed(system, ports.1, fec), [FIRST_LABEL + fec]);
            }
            assert_eq!(unclean(&send(bed, params, &way).unwrap()), None, "{ports:?}");
        }
    });
}

/// The frames that do not arrive as they should if this router has these faults, by how they differ.
fn found(router: usize, faults: Faults) -> BTreeMap<Deviation, u64> {
    let (suite, mut memory) = (suite("reference"), Memory::default());
    let params = &suite.tests[0].params;
    with_system(&suite, &[Family::Ipv4], &mut memory, |bed, system| {
        let way = prepare(bed, params, WAYS[0]).unwrap();
        system.change(|network| network.change(router, |router| router.set_faults(faults))).unwrap();
        let result = send(bed, params, &way).unwrap();
        let group = &result.groups[0];
        assert_eq!(group.offered, ALL);
        assert_eq!(group.received + group.deviations.values().sum::<u64>(), ALL, "none is lost on the way: {group:?}");
        group.deviations.clone()
    })
}

#[test]
fn a_label_that_is_popped_too_early_is_found() {
    let popped = Faults { label_pop_every: 20, ..Faults::default() };
    // The second router pushes the right label again, but both have counted the packet's own TTL down.
    assert_eq!(found(0, popped.clone()), BTreeMap::from([(Deviation::Ttl, ALL / 20)]));
    assert_eq!(found(1, popped), BTreeMap::from([(Deviation::LabelMissing, ALL / 20)]));
}

#[test]
fn a_swap_to_a_wrong_label_is_found() {
    let change = Deviation::Label;
    let wrong = Faults { encapsulation: Some(Encapsulation { every: 20, change }), ..Faults::default() };
    // The second router has given the wrong label to another FEC, whose label the packet then gets.
    for router in [0, 1] {
        assert_eq!(found(router, wrong.clone()), BTreeMap::from([(change, ALL / 20)]), "r{}", router + 1);
    }
}
