//! Classes of service on a reference device, whose counts do not depend on how far ahead the clock of virtual time runs.

use crate::common::*;
use drophammer_methods::Testbed;
use drophammer_model::Bandwidth;
use drophammer_model::classes::{EgressClasses, ServiceClass, WayOut};
use drophammer_model::traffic::{Bits, Header, Ipv4, Udp};
use drophammer_model::trial::{Family, FlowSpec, GroupCounts, Load, TrialSpec};
use drophammer_reference::Truth;

const BOTH: [Family; 2] = [Family::Ipv4, Family::Ipv6];

/// Runs six flows, two of each class, over a line that is too narrow. Returns their counts, and the device's own
/// counts.
fn narrow(frame_by_frame: bool) -> (Vec<GroupCounts>, Truth) {
    let suite = suite(", capacity: 90 kfps, buffer: 40, delay: 3 us, jitter: 20 us", "tests: [throughput]\n");
    with_bed(
        &suite,
        &BOTH,
        |_| {},
        |bed, device| {
            if frame_by_frame {
                one_by_one(bed);
            }
            let class = |name: &str, dscp, weight| ServiceClass { name: name.into(), dscp, weight };
            let classes = vec![class("gold", 40, 7), class("silver", 24, 2), class("bronze", 0, 1)];
            let both_ways = [0, 1].map(|port| EgressClasses {
                at: WayOut::Port(port),
                rate: Bandwidth(20_000_000),
                queue: 25,
                scheduling: Default::default(),
                classes: classes.clone(),
            });
            device.set_classes(&both_ways).unwrap();
            let mut flows = Vec::new();
            for (from, to, dscp) in [(0, 1, 40), (0, 1, 24), (0, 1, 0), (1, 0, 40), (1, 0, 24), (1, 0, 0)] {
                let range = |port: usize| bed.ports()[port].addressing(Family::Ipv4).unwrap().destinations;
                let ip = Ipv4 { dscp: Bits::new(dscp).into(), ..Ipv4::default() };
                flows.push(FlowSpec {
                    headers: vec![Header::Ipv4(ip), Header::Udp(Udp::default())],
                    ..FlowSpec::new(format!("{dscp} {from}"), from, to, range(from), range(to))
                });
            }
            let spec = TrialSpec {
                purpose: String::new(),
                size: "imix".parse().unwrap(),
                flows,
                load: Load::Constant { rate_pps: 12_345.6 },
                duration_s: 0.3,
                bin_s: Some(0.001),
                drain_s: 0.2,
                events: vec![],
            };
            let result = bed.trial(&spec).unwrap();
            assert!(result.lost() > 1_000 && result.received() > 1_000);
            (result.groups, device.truth())
        },
    )
}

#[test]
fn classes_do_not_depend_on_how_far_ahead_the_clock_runs() {
    assert_eq!(narrow(false), narrow(true));
}
