//! Flows with an alternate port, and the ports where frames of a group arrive.

use crate::common::*;
use drophammer_model::trial::{Family, FlowSpec, GroupCounts, Load, TrialSpec};
use drophammer_traffic::{Layout, Neighbour, Plan, PlanError, Timing};
use drophammer_wire::MacAddr;

/// 1,000 frames in a second from port 0 to port 1, with these alternate ports.
fn alternate(also: Vec<usize>) -> TrialSpec {
    let flow = FlowSpec { also, per_destination: true, ..flow("all", 0, 1, Family::Ipv4, 10, 1.0) };
    let mut spec = spec("64", vec![flow], Load::Constant { rate_pps: 1_000.0 }, 1.0);
    spec.bin_s = Some(0.25);
    spec
}

/// A device whose link to port 1 goes down after 500 frames: 50 are lost, then the others leave by `port`, 2 ms later.
fn rerouted(port: usize) -> Bench {
    Bench::new(4, move |f, out| match f.number {
        ..=500 => out.push(f.on(DELAY)),
        501..=550 => {}
        _ => out.push(Out { port, ..f.on(DELAY + 2 * MS) }),
    })
}

#[test]
fn what_comes_by_the_alternate_path_is_received_with_its_latency_and_in_its_order() {
    let result = rerouted(2).run(&alternate(vec![2]));
    let g = &result.groups[0];
    let expected = GroupCounts {
        received: 950,
        lost: 50,
        in_sequence: 949,
        received_bytes: 950 * 64,
        last_loss_ns: Some(549 * MS),
        arrived_at: vec![0, 500, 450, 0],
        ..all_well(&result, 0, 1_000, 64)
    };
    assert_eq!(*g, expected);
    assert_eq!(g.latency.mean_ns, DELAY as f64 + 450.0 / 950.0 * (2 * MS) as f64);
    // The last two frames of the third bin arrive in the fourth, and so on.
    let bins: Vec<_> = g.bins.iter().map(|b| (b.offered, b.delivered, b.arrived)).take(5).collect();
    assert_eq!(bins, [(250, 250, 250), (250, 250, 250), (250, 200, 198), (250, 250, 250), (0, 0, 2)]);
    let counts = &result.destinations[0];
    assert_eq!((&counts.offered, &counts.received), (&vec![100; 10], &vec![95; 10]));
}

#[test]
fn by_a_port_that_is_no_alternate_they_are_strays() {
    for (port, also) in [(2, vec![]), (3, vec![2]), (0, vec![2, 3])] {
        let result = rerouted(port).run(&alternate(also));
        let g = &result.groups[0];
        assert_eq!((g.received, g.lost, g.stray), (500, 500, 450), "port {port}");
        let mut arrived_at = vec![0, 500, 0, 0];
        arrived_at[port] = 450;
        assert_eq!(g.arrived_at, arrived_at);
        assert_eq!(result.destinations[0].received, vec![50; 10]);
    }
}

#[test]
fn what_comes_by_both_paths_is_a_duplicate_of_itself() {
    let mut bench = Bench::new(4, |f, out| {
        out.push(f.on(DELAY));
        out.push(Out { port: 2, ..f.on(DELAY - 1) });
    });
    let result = bench.run(&alternate(vec![2]));
    let g = &result.groups[0];
    assert_eq!((g.received, g.duplicated, g.stray, g.reordered), (1_000, 1_000, 0, 0));
    assert_eq!(g.arrived_at, [0, 0, 1_000, 0], "the first copy counts");
}

#[test]
fn at_an_alternate_port_the_frame_must_be_for_its_host_too() {
    let mut bench = Bench::new(4, |f, out| {
        let mut frame = f.frame.to_vec();
        frame[..6].copy_from_slice(&MacAddr::local(if f.nth(4) { 1 } else { 2 }).0);
        out.push(Out { port: 2, at: f.at, frame });
    });
    let result = bench.run(&alternate(vec![2]));
    let g = &result.groups[0];
    assert_eq!((g.received, g.stray, g.arrived_at.as_slice()), (750, 250, [0, 0, 1_000, 0].as_slice()));
}

#[test]
fn without_strays_and_alternates_ports_are_not_told_apart() {
    let result = wire().run(&alternate(vec![]));
    assert_eq!(result.groups, [all_well(&result, 0, 1_000, 64)]);
}

#[test]
fn ports_that_one_flow_may_come_by_must_be_on_one_lane_and_exist() {
    let timing = Timing { seed: 7, key: key(1), earlier: vec![], max_backlog_ns: 0, late_ns: 0 };
    let mac = Some(MacAddr::local(1));
    let ports: [_; 4] = std::array::from_fn(|_| Neighbour {
        mac: MacAddr::local(2),
        device_ipv4: mac,
        device_ipv6: mac,
        vlans: Vec::new(),
    });
    let spec = alternate(vec![1, 2]);
    let lanes = Layout::round_robin(4, 4);
    let planned = |spec: &TrialSpec, layout| Plan::on_lanes(spec, &ports, &timing, layout).err();
    assert_eq!(planned(&spec, lanes.clone()), Some(PlanError::Apart { flow: 0, port: 2 }));
    assert_eq!(planned(&spec, lanes.for_flows(&spec.flows)), None);
    let nowhere = planned(&alternate(vec![4]), Layout::one(4));
    assert_eq!(nowhere, Some(PlanError::NoSuchPort { flow: 0, port: 4, ports: 4 }));
}
