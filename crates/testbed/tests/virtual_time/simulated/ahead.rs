//! In virtual time the generator passes bursts to the port ahead of time, and the clock runs through them. That must
//! not change any figure: here every trial runs both ways, ahead of time and frame by frame.

use crate::common::*;
use drophammer_methods::Testbed;
use drophammer_model::trial::{Family, FlowSpec, Load, LoadStep, TrialResult, TrialSpec};
use drophammer_reference::{Config, Corrupt, Faults, Hold, Misroute, OwnFrames, Reorder, Sag, Truth};
use std::time::Duration;

const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];

/// Runs trials with all kinds of load on a device changed by `change`. Returns the results, and the counts that the
/// device reports.
fn results(frame_by_frame: bool, change: &dyn Fn(&mut Config), faults: &Faults) -> (Vec<TrialResult>, Truth) {
    let suite = suite(", capacity: 90 kfps, buffer: 40, delay: 3 us", "tests: [throughput]\n");
    with_bed(&suite, &FAMILIES, change, |bed, device| {
        if frame_by_frame {
            one_by_one(bed);
        }
        device.set_faults(faults.clone()).unwrap();
        let mut flows = Vec::new();
        for (from, to) in [(0usize, 1usize), (1, 0)] {
            for family in FAMILIES {
                let range = |port: usize| bed.ports()[port].addressing(family).unwrap().destinations;
                let (sources, destinations) = (range(from), range(to));
                let weight = if from == 0 { 1.0 } else { 0.7 };
                flows.push(FlowSpec {
                    weight,
                    ..FlowSpec::new(format!("{family} {from}"), from, to, sources, destinations)
                });
            }
        }
        let step = |rate_pps, duration_s| LoadStep { rate_pps, duration_s };
        let loads = [
            (Load::Constant { rate_pps: 33_333.3 }, 0.13),
            (Load::Constant { rate_pps: 70_001.0 }, 0.05),
            (Load::Constant { rate_pps: 17.0 }, 0.3),
            (Load::Steps { steps: vec![step(80_000.0, 0.02), step(500.0, 0.05)] }, 0.07),
            (Load::Burst { frames: 777, rate_pps: 148_809.5 }, 0.0),
            (Load::Maximum { limit_pps: 120_000.0 }, 0.03),
        ];
        let mut results = Vec::new();
        for (size, (load, duration_s)) in ["64", "imix"].into_iter().flat_map(|s| loads.iter().map(move |l| (s, l))) {
            let spec = TrialSpec {
                purpose: String::new(),
                size: size.parse().unwrap(),
                flows: flows.clone(),
                load: load.clone(),
                duration_s: *duration_s,
                bin_s: Some(0.001),
                drain_s: 0.05,
                events: vec![],
            };
            results.push(bed.trial(&spec).unwrap());
            bed.settle(Duration::from_millis(7)).unwrap();
        }
        (results, device.truth())
    })
}

#[test]
fn bursts_ahead_of_time_change_no_figure() {
    let ms = Duration::from_millis;
    let none = Faults::default;
    type Case<'a> = (&'a dyn Fn(&mut Config), Faults);
    let cases: [Case<'_>; 9] = [
        (&|_| {}, none()),
        (&|c| c.jitter = Duration::from_micros(200), none()),
        (
            &|c| c.ports.iter_mut().for_each(|p| p.speed = Some(drophammer_model::quantity::Bandwidth(30_000_000))),
            none(),
        ),
        // Neighbours are resolved again during the trial, and frames that wait for them are lost or late.
        (&|c| c.neighbour_lifetime = Some(ms(15)), none()),
        (&|_| {}, Faults { reorder: Some(Reorder { every: 7, positions: 3 }), duplicate_every: 11, ..none() }),
        (&|_| {}, Faults { hold: Some(Hold { every: 5, time: ms(2) }), drop_every: 13, ..none() }),
        (&|_| {}, Faults { own_frames: Some(OwnFrames { interval: Duration::from_micros(900), port: 1 }), ..none() }),
        (
            &|_| {},
            Faults {
                sag: Some(Sag { from: drophammer_model::Instant(400_000_000), capacity_pps: 20_000 }),
                drop_share: 0.01,
                ..none()
            },
        ),
        (
            &|_| {},
            Faults {
                corrupt: Some(Corrupt { every: 9, offset: None, fix_checksum: true }),
                misroute: Some(Misroute { every: 10, to_port: 0 }),
                ..none()
            },
        ),
    ];
    for (i, (change, faults)) in cases.iter().enumerate() {
        let (ahead, truth) = results(false, change, faults);
        let (one_by_one, other_truth) = results(true, change, faults);
        for (a, b) in ahead.iter().zip(&one_by_one) {
            assert_eq!(a, b, "case {i}");
        }
        assert_eq!((ahead.len(), truth), (12, other_truth), "case {i}");
        assert!(truth.forwarded > 10_000, "{truth:?}");
    }
}
