//! Devices in a row as P routers, with OSPF and LDP between them: each one swaps the label of a packet for the one that the next one has
//! assigned, and a device that does otherwise is found.

use crate::common::label_chain::{ALL, FECS, WAYS, prepare, send, suite, unclean};
use crate::common::with_system;
use crate::common::{Memory, rows};
use drophammer_methods::find;
use drophammer_methods::igp::{FIRST, FIRST_LABEL, LENGTH};
use drophammer_model::outcome::Outcome;
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::Family;
use drophammer_reference::{Encapsulation, Faults, IgpFaults};
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
    let (suite, mut memory) = (suite("reference", 2), Memory::default());
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

#[test]
fn each_of_three_routers_swaps_to_the_label_of_the_next() {
    let (suite, mut memory) = (suite("reference", 3), Memory::default());
    let params = &suite.tests[0].params;
    with_system(&suite, &[Family::Ipv4], &mut memory, |bed, system| {
        for (ports, row) in WAYS.into_iter().zip([[0, 1, 2], [2, 1, 0]]) {
            let way = prepare(bed, params, ports).unwrap();
            for (fec, (first, last)) in (0..FECS).zip(way.first.iter().zip(&way.second)) {
                // The labels on the links of the tester, and between them on the two inner links.
                let [between, behind, out] = row.map(|router| pushed(system, router, fec));
                assert_eq!((&behind[..], &out[..]), (&[*last][..], &[FIRST_LABEL + fec][..]), "FEC {fec}");
                assert!(
                    between.len() == 1 && between[0] != *first && between != behind,
                    "a router that does not swap would not be seen"
                );
            }
            let forwarded = || row.map(|router| system.look(|network| network.routers()[router].truth().forwarded));
            let before = forwarded();
            assert_eq!(unclean(&send(bed, params, &way).unwrap()), None, "{ports:?}");
            let after = forwarded();
            assert_eq!([0, 1, 2].map(|i| after[i] - before[i]), [ALL; 3]);
        }
    });
}

/// The frames that do not arrive as they should if this router has these faults, by how they differ.
fn found(router: usize, faults: Faults) -> BTreeMap<Deviation, u64> {
    let (suite, mut memory) = (suite("reference", 2), Memory::default());
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

#[test]
fn implicit_null_of_a_router_that_is_not_the_last_one_is_named() {
    let suite = suite("reference", 2);
    let params = &suite.tests[0].params;
    for router in [0, 1] {
        let (mut memory, mut outcome) = (Memory::default(), Outcome::default());
        let nulls = with_system(&suite, &[Family::Ipv4], &mut memory, |bed, system| {
            let igp = IgpFaults { implicit_null_every: 20, ..IgpFaults::default() };
            let faults = Faults { igp, ..Faults::default() };
            system.change(|network| network.change(router, |router| router.set_faults(faults))).unwrap();
            find("ldp_capacity").unwrap().run(bed, params, &mut outcome).unwrap();
            let nulls = system.look(|network| network.routers()[router].truth().igp.labels_null);
            bed.end_test().unwrap();
            nulls
        });
        // It also gives labels to the networks of the P routers.
        assert!((250 / 20..=270 / 20).contains(&nulls), "{nulls}");
        let said = match router {
            // The tester hears it where it sends.
            0 => format!(
                "the router has labels for {} of 250 FECs, and implicit null for {nulls}, as if it were the last router before them",
                250 - nulls
            ),
            // The first router hears it, and removes the label; the tester hears it at the far end. Each FEC gets two frames.
            _ => format!(
                "frames are lost, to some FECs always; the router at port p2 advertises implicit null for {nulls} FECs, as if it were the last \
                 router before them; {} frames arrived otherwise: wrong TTL, as after a label that was removed too early",
                2 * nulls
            ),
        };
        assert_eq!(rows(&outcome, "ldp_capacity")[0].marks, [said], "r{}", router + 1);
        let figure = outcome.ranks.iter().find(|figure| figure.key == "ldp_capacity_fecs").unwrap();
        assert_eq!(figure.value, Some(0.0));
    }
}
