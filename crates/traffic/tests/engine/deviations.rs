//! Each sent frame counts once, as received or as lost. Frames that arrived only in another encapsulation are lost.

use crate::common::*;
use drophammer_model::traffic::{Arriving, Deviation};
use drophammer_model::trial::{Family, FlowSpec, Load};
use drophammer_wire::stack::locate;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// How a copy of a frame arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    Whole,
    Tagged,
    Ttl,
}

/// Copies of one frame, each with its delay in µs.
fn copies() -> impl Strategy<Value = Vec<(Copy, u16)>> {
    let copy = prop_oneof![Just(Copy::Whole), Just(Copy::Tagged), Just(Copy::Ttl)];
    proptest::collection::vec((copy, any::<u16>()), 0..4)
}

/// Turns a frame into this copy.
fn changed(copy: Copy, bytes: &mut Vec<u8>) {
    match copy {
        Copy::Whole => {}
        Copy::Tagged => drop(bytes.splice(12..12, [0x81, 0x00, 0, 7])),
        Copy::Ttl => {
            bytes[22] = 9;
            let layers = locate(bytes);
            let sums: Vec<_> = layers.checksums(bytes).collect();
            sums.iter().for_each(|sum| sum.write(bytes));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn received_and_lost_are_all_and_deviating_ones_are_lost(frames in proptest::collection::vec(copies(), 1..120)) {
        // A trial ends when every frame has arrived. A frame that never arrives makes it wait for all copies of the
        // others.
        let frames = [frames, vec![Vec::new()]].concat();
        let plan = frames.clone();
        let mut bench = Bench::new(2, move |f, out| {
            for (i, (copy, delay)) in plan[f.number as usize - 1].iter().enumerate() {
                // Copies of a frame never arrive at the same time.
                let mut copy_of = f.on(1_000 * u64::from(*delay) + i as u64);
                changed(*copy, &mut copy_of.frame);
                out.push(copy_of);
            }
        });
        let sent = frames.len() as u64;
        let arrives = Some(Arriving { ttl: Some(64), ..Arriving::default() });
        let flow = FlowSpec { arrives, ..flow("all", 0, 1, Family::Ipv4, 16, 1.0) };
        let result = bench.run(&spec("128", vec![flow], Load::Constant { rate_pps: sent as f64 * 10.0 }, 0.1));
        let group = &result.groups[0];

        let (mut received, mut deviations, mut further, mut duplicated) = (0, BTreeMap::new(), 0, 0);
        for copies in &frames {
            let mut in_time: Vec<_> = copies.iter().enumerate().collect();
            in_time.sort_by_key(|(i, (_, delay))| 1_000 * u64::from(*delay) + *i as u64);
            let whole = copies.iter().filter(|(copy, _)| *copy == Copy::Whole).count() as u64;
            let deviating = copies.len() as u64 - whole;
            duplicated += whole.saturating_sub(1);
            match in_time.first() {
                _ if whole > 0 => {
                    received += 1;
                    further += deviating;
                }
                None => {}
                Some((_, (copy, _))) => {
                    let kind = if *copy == Copy::Ttl { Deviation::Ttl } else { Deviation::VlanUnexpected };
                    *deviations.entry(kind).or_default() += 1;
                    further += deviating - 1;
                }
            }
        }
        prop_assert_eq!((group.offered, group.received, group.lost), (sent, received, sent - received));
        prop_assert_eq!((&group.deviations, group.deviating_copies), (&deviations, further));
        prop_assert_eq!(group.duplicated, duplicated);
        prop_assert!(deviations.values().sum::<u64>() <= group.lost);
    }
}
