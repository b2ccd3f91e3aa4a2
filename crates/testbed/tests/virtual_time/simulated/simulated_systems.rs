//! Several reference devices as one DUT in virtual time: frames on the links between them are counted exactly and timed
//! to the nanosecond.

use crate::common::*;
use drophammer_methods::{Setting, Testbed};
use drophammer_model::Bandwidth;
use drophammer_model::classes::{EgressClasses, ServiceClass, WayOut};
use drophammer_model::quantity::Instant;
use drophammer_model::record::TestStatus;
use drophammer_model::suite::Suite;
use drophammer_model::topology::{CoreLinkName, CoreWay};
use drophammer_model::traffic::{Bits, Header, Ipv4, Udp};
use drophammer_model::trial::{Family, FlowSpec, Load, TrialResult, TrialSpec};
use drophammer_reference::Truth;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::{self, ReferenceSystem};
use std::collections::VecDeque;

const BOTH: [Family; 2] = [Family::Ipv4, Family::Ipv6];
/// Time that a 64-byte frame takes on a line of 100 Mbit/s.
const ON_LINE_NS: u64 = 6_720;

fn suite(ports: usize, topology: &str, device: &str, rest: &str) -> Suite {
    let ports: String = (1..=ports).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
    read_suite(&format!(
        "suite: systems\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, topology: {{{topology}}}{device}}}\nports:\n{ports}{rest}"
    ))
}

/// Uses a bed with the system of a suite, with its ports unchanged or frame by frame.
fn with_system<T>(
    suite: &Suite,
    frame_by_frame: bool,
    use_it: impl FnOnce(&mut TestSetup<'_>, &ReferenceSystem) -> T,
) -> T {
    crate::common::with_system(suite, &BOTH, &mut Memory::default(), |bed, system| {
        if frame_by_frame {
            one_by_one(bed);
        }
        use_it(bed, system)
    })
}

fn flow(bed: &TestSetup<'_>, family: Family, from: usize, to: usize) -> FlowSpec {
    let range = |port: usize| bed.ports()[port].addressing(family).unwrap().destinations;
    FlowSpec::new(format!("{family} {from}-{to}"), from, to, range(from), range(to))
}

fn spec(flows: Vec<FlowSpec>, rate_pps: f64, duration_s: f64) -> TrialSpec {
    TrialSpec {
        purpose: String::new(),
        size: "64".parse().unwrap(),
        flows,
        load: Load::Constant { rate_pps },
        duration_s,
        bin_s: Some(0.01),
        drain_s: 0.5,
        events: vec![],
    }
}

fn truths(system: &ReferenceSystem) -> Vec<Truth> {
    system.look(|network| network.routers().iter().map(|router| *router.truth()).collect())
}

/// Flows from every port to every other port.
fn full_mesh(bed: &TestSetup<'_>) -> Vec<FlowSpec> {
    let ports = bed.ports().len();
    let pairs = (0..ports).flat_map(|from| (0..ports).filter(move |to| *to != from).map(move |to| (from, to)));
    pairs.flat_map(|(from, to)| BOTH.map(|family| flow(bed, family, from, to))).collect()
}

#[test]
fn a_full_mesh_of_flows_passes_a_mesh_of_four_without_a_loss() {
    let suite = suite(12, "mesh: 4, core_speed: 1 Gbit/s", ", delay: 10 us", "tests: [throughput]\n");
    with_system(&suite, false, |bed, system| {
        let before = truths(system);
        let flows = full_mesh(bed);
        assert_eq!(flows.len(), 264);
        let result = bed.trial(&spec(flows, 11_000.0, 0.2)).unwrap();
        assert_eq!((result.offered(), result.received()), (12 * 2_200, 12 * 2_200));
        assert!(result.groups.iter().all(|group| group.offered == 100 && group.stray + group.reordered == 0));
        for (now, before) in truths(system).iter().zip(&before) {
            // The router's ports send 6,600 frames: 2 of 11 go to ports of the same router, the others to the other
            // three routers. The same number arrives from these routers.
            assert_eq!(now.forwarded - before.forwarded, 6_600 + 5_400);
            assert_eq!(now.dropped, before.dropped);
        }
        // A frame passes one or two routers, each with its delay. The link between them takes 672 ns, and frames may
        // also wait there.
        let latency = |from: usize, to: usize| {
            let group = format!("IPv4 {from}-{to}");
            result.groups.iter().find(|counts| counts.group == group).unwrap().latency.min_ns
        };
        assert_eq!((latency(0, 2), latency(4, 3)), (10_000, 10_000));
        assert_eq!(latency(0, 3), 20_672);
    });
}

#[test]
fn latency_through_a_chain_is_the_sum_of_what_its_routers_and_lines_take() {
    let device = ", delay: 7 us, capacity: 50 kfps";
    for (topology, routers) in [("chain: 2, core_speed: 100 Mbit/s", 2), ("chain: 5, core_speed: 100 Mbit/s", 5)] {
        let suite = suite(2, topology, device, "tests: [throughput]\n");
        with_system(&suite, false, |bed, system| {
            let flows = vec![flow(bed, Family::Ipv4, 0, 1), flow(bed, Family::Ipv4, 1, 0)];
            let before = truths(system);
            // The load is far below capacity in both directions, so a frame waits for at most one frame of the other
            // direction. With one direction only, no frame waits.
            let result = bed.trial(&spec(flows[..1].to_vec(), 1_000.0, 0.3)).unwrap();
            let expected = routers * (20_000 + 7_000) + (routers - 1) * ON_LINE_NS;
            let latency = &result.groups[0].latency;
            assert_eq!((latency.min_ns, latency.max_ns, result.lost()), (expected, expected, 0), "{topology}");
            let both = bed.trial(&spec(flows, 1_000.0, 0.3)).unwrap();
            assert_eq!((both.received(), both.groups[1].latency.min_ns >= expected), (600, true));
            for (now, before) in truths(system).iter().zip(&before) {
                assert_eq!(now.forwarded - before.forwarded, 900);
            }
        });
    }
}

#[test]
fn a_link_over_a_long_distance_delays_each_frame() {
    let suite = suite(2, "loop: 4, wan_delay: 3 ms", ", delay: 7 us", "tests: [throughput]\n");
    let figures = |frame_by_frame| {
        with_system(&suite, frame_by_frame, |bed, _| {
            let flows = vec![flow(bed, Family::Ipv4, 0, 1), flow(bed, Family::Ipv6, 1, 0)];
            let result = bed.trial(&spec(flows, 10_000.0, 0.1)).unwrap();
            for group in &result.groups {
                let latency = &group.latency;
                assert_eq!((latency.min_ns, latency.max_ns, group.lost), (3_028_000, 3_028_000, 0));
            }
            result.groups
        })
    };
    assert_eq!(figures(false), figures(true));
}

#[test]
fn a_lossy_link_loses_exactly_its_share() {
    for (loss, frames, lost) in [("0.1 %", 10_000, 10), ("12.5 %", 4_003, 500), ("0.0001 %", 2_000, 0)] {
        let topology = format!("loop: 4, wan_delay: 3 ms, wan_loss: {loss}");
        let suite = suite(2, &topology, ", delay: 7 us", "tests: [throughput]\n");
        let figures = |frame_by_frame| {
            with_system(&suite, frame_by_frame, |bed, _| {
                let flows = vec![flow(bed, Family::Ipv4, 0, 1), flow(bed, Family::Ipv4, 1, 0)];
                let load = Load::Burst { frames, rate_pps: 10_000.0 };
                let result = bed.trial(&TrialSpec { load, ..spec(flows, 10_000.0, 0.0) }).unwrap();
                for group in &result.groups {
                    assert_eq!((group.offered, group.lost), (frames, lost), "{loss} of {}", group.group);
                }
                // Each direction is counted where the frames should have arrived, and nowhere else.
                let counted = result.dut_counters.iter().filter(|(name, _)| name.ends_with(".delay_dropped"));
                let counted: Vec<_> = counted.map(|(name, frames)| (&name[..5], *frames)).collect();
                let expected = [("r2.d2", lost), ("r3.d0", lost)];
                assert_eq!(counted, if lost > 0 { &expected[..] } else { &[] }, "{:?}", result.dut_counters);
                result.groups
            })
        };
        assert_eq!(figures(false), figures(true));
    }
}

/// Number of frames, out of `frames` sent every `every_ns`, that a line with room for `buffer` frames of `service_ns`
/// each accepts.
fn taken(frames: u64, every_ns: f64, service_ns: u64, buffer: usize) -> u64 {
    let (mut ends, mut free, mut taken) = (VecDeque::new(), 0, 0);
    for n in 0..frames {
        let at = (n as f64 * every_ns) as u64;
        while ends.front().is_some_and(|end| *end <= at) {
            ends.pop_front();
        }
        if ends.len() < buffer {
            free = at.max(free) + service_ns;
            ends.push_back(free);
            taken += 1;
        }
    }
    taken
}

#[test]
fn an_overloaded_link_between_routers_loses_what_it_cannot_carry() {
    let suite = suite(4, "mesh: 2, core_speed: 10 Mbit/s", ", delay: 10 us", "tests: [throughput]\n");
    with_system(&suite, false, |bed, system| {
        let before = truths(system);
        // One direction has 20,000 frames per second, of which 14,880 fit. In the other direction and within a router,
        // nothing is lost.
        let mut flows = vec![flow(bed, Family::Ipv4, 0, 2), flow(bed, Family::Ipv4, 3, 1)];
        flows[1].schedule = Some(drophammer_model::trial::FlowSchedule {
            rate_pps: 10_000.0,
            delay_s: 0.0,
            duration: drophammer_model::trial::FlowDuration::Continuous,
        });
        let result = bed.trial(&spec(flows, 20_000.0, 1.0)).unwrap();
        let [over, under] = [&result.groups[0], &result.groups[1]];
        let expected = taken(20_000, 50_000.0, 67_200, 1_024);
        assert!(expected > 15_800 && expected < 16_000, "{expected}");
        assert_eq!((over.offered, over.received), (20_000, expected));
        assert_eq!((under.offered, under.lost), (10_000, 0));
        let now = truths(system);
        assert_eq!(now[0].dropped.egress - before[0].dropped.egress, 20_000 - expected);
        assert_eq!(now[1].dropped, before[1].dropped);
        // The last frame that fits waits for 1,023 others.
        assert!(over.latency.max_ns <= 20_000 + 1_024 * 67_200 && over.latency.max_ns > 20_000 + 1_022 * 67_200);
    });
}

/// Runs a trial in which a link between two routers goes down at a known instant. Their routes change 10 ms later.
fn failing(frame_by_frame: bool) -> (TrialResult, Vec<Truth>) {
    let suite =
        suite(8, "mesh: 4, core_speed: 100 Mbit/s", ", delay: 10 us, core_detection: 10 ms", "tests: [throughput]\n");
    with_system(&suite, frame_by_frame, |bed, system| {
        let before = truths(system);
        let at = |ms: u64| Instant(bed.routing.bench.rig.now().0 + ms * 1_000_000);
        let (down, up) = (at(300), at(600));
        system.change(|network| {
            network.set_core_link(down, 0, false);
            network.set_core_link(up, 0, true);
        });
        // One flow goes from the first router to the second; the other two use the links of the detour over the fourth
        // router.
        let flows = [(0, 2), (1, 6), (7, 3)].map(|(from, to)| flow(bed, Family::Ipv4, from, to));
        let result = bed.trial(&spec(flows.to_vec(), 10_000.0, 1.0)).unwrap();
        for (now, before) in truths(system).iter().zip(&before) {
            assert_eq!(now.transit - before.transit, now.forwarded + now.dropped.link_down - before.forwarded);
        }
        (result, truths(system))
    })
}

#[test]
fn a_link_that_fails_loses_the_frames_until_the_routes_change() {
    let (result, truths) = failing(false);
    let [hit, beside, back] = [&result.groups[0], &result.groups[1], &result.groups[2]];
    assert_eq!((beside.lost, back.lost), (0, 0));
    // Lost are the frames of 10 ms, and those in flight: in the first router's delay and on the line.
    let window_us: f64 = 10_000.0 + 10.0 + 6.72;
    assert!(
        hit.lost as f64 >= (window_us / 100.0).floor() && hit.lost as f64 <= (window_us / 100.0).ceil(),
        "{}",
        hit.lost
    );
    let ignored = truths[1].ignored;
    assert_eq!(hit.lost, truths[0].dropped.link_down + ignored);
    assert!(ignored <= 1);
    // For 290 ms frames take a detour around the link: one more router and line. The path back from the fourth router
    // does not change.
    assert_eq!(hit.latency.min_ns, 20_000 + ON_LINE_NS);
    assert!(hit.latency.max_ns >= 30_000 + 2 * ON_LINE_NS && hit.latency.max_ns <= 30_000 + 4 * ON_LINE_NS);
    let through_fourth = truths[3].transit;
    assert!((5_700..5_900 + 20_000).contains(&through_fourth), "{through_fourth}");
    // When the link comes up again, nothing is lost, and for 10 ms frames still take the detour.
    assert_eq!(hit.received + hit.lost, 10_000);
    assert_eq!(hit.duplicated + hit.stray, 0);
}

#[test]
fn figures_do_not_depend_on_how_far_ahead_the_clock_runs() {
    // Trial numbers and wall-clock times are not compared.
    let figures = |(result, truths): (TrialResult, Vec<Truth>)| (result.groups, result.receiving_s.to_bits(), truths);
    assert_eq!(figures(failing(false)), figures(failing(true)));
    let crowded = |frame_by_frame| {
        let device = ", delay: 3 us, jitter: 5 us, capacity: 60 kfps, buffer: 30";
        let suite = suite(12, "mesh: 4, core_speed: 20 Mbit/s", device, "tests: [throughput]\n");
        with_system(&suite, frame_by_frame, |bed, system| {
            let class = |name: &str, dscp, weight| ServiceClass { name: name.into(), dscp, weight };
            let classes = vec![class("gold", 40, 3), class("bronze", 0, 1)];
            let list = |at, rate| EgressClasses {
                at,
                rate: Bandwidth(rate),
                queue: 9,
                scheduling: Default::default(),
                classes: classes.clone(),
            };
            let core = WayOut::Core(CoreWay { from: 1, to: 3 });
            bed.set(Setting::Classes(&[list(WayOut::Port(4), 3_000_000), list(core, 5_000_000)])).unwrap();
            let mut flows = full_mesh(bed);
            for flow in flows.iter_mut().filter(|flow| flow.family == Family::Ipv4) {
                let ip = Ipv4 { dscp: Bits::new(40).into(), ..Ipv4::default() };
                flow.headers = vec![Header::Ipv4(ip), Header::Udp(Udp::default())];
            }
            let result = bed.trial(&spec(flows, 20_000.0, 0.1)).unwrap();
            assert!(result.lost() > 1_000 && result.received() > 10_000);
            figures((result, truths(system)))
        })
    };
    assert_eq!(crowded(false), crowded(true));
}

#[test]
fn a_suite_runs_on_systems_and_a_core_link_is_set_by_its_name() {
    let rest = "defaults: {frame_sizes: [64], pause: 1 ms}\ntests:\n  \
                - throughput: {final_trial_duration: 200 ms, search_duration_max: 20 s, width: 0.2, direction: unidirectional}\n  \
                - filters: {final_trial_duration: 50 ms, width: 5, trial_duration: 50 ms, conditions: [1], filter_at: [ingress, egress]}\n  \
                - class_of_service: {trial_duration: 100 ms}\n";
    let suite = suite(4, "mesh: 2", ", capacity: 40 kfps, buffer: 2", rest);
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    for test in memory.tests() {
        assert_eq!(test.status, TestStatus::Completed, "{}", test.test);
    }
    // Each pair of ports is on one router, so each pair has its own 40,000.
    let found = cell(memory.outcome("throughput"), "throughput", 0, "throughput_pps").unwrap();
    assert!((found - 40_000.0).abs() < 250.0, "{found}");
    let counters = &memory.trials().last().unwrap().result.dut_counters;
    assert!(counters.contains_key("r1.truth.transit") && counters.contains_key("r2.d1.gold.served"), "{counters:?}");
    assert_eq!(counters["truth.transit"], counters["r1.truth.transit"] + counters["r2.truth.transit"]);

    let suite = self::suite(4, "mesh: 4", ", delay: 10 us", "tests: [throughput]\n");
    let dut = &suite.duts[0];
    let parts = simulated::build_system(dut, dut.topology.as_ref().unwrap(), &suite.ports, 1, 1).unwrap();
    let mut device: Box<dyn drophammer_lab::Dut> = Box::new(parts.device);
    assert_eq!((device.system().unwrap().links.len(), device.hops(0, 1), device.hops(0, 0)), (6, 2, 1));
    device.core_links().unwrap().set_core_link(CoreLinkName(1, 2), false).unwrap();
    assert_eq!(device.hops(0, 1), 3);
    device.core_links().unwrap().set_core_link(CoreLinkName(1, 2), true).unwrap();
    assert_eq!(device.hops(0, 1), 2);
    assert!(device.core_links().unwrap().set_core_link(CoreLinkName(1, 5), false).is_err());
    assert!(device.record().config.contains_key("r4/reference.txt"));
}

#[test]
fn what_simulated_routers_cannot_do_is_refused() {
    let refused = |topology: &str, bgp: &str| {
        let suite = suite(4, topology, "", &format!("bgp: {bgp}\ntests: [bgp_table_dump]\n"));
        let dut = &suite.duts[0];
        simulated::network(dut, dut.topology.as_ref().unwrap(), &suite.ports, 1).map(|_| ()).unwrap_err()
    };
    assert!(refused("chain: 3", "{}").contains("a chain of more than two has no BGP"));
}

#[test]
fn bgp_goes_from_router_to_router() {
    let rest = "bgp: {}\ndefaults: {rate: 10 kfps, patience: 3 s}\ntests:\n  - bgp_table_dump: {routes: 300}\n  - rib_fib_capacity: {step: 200, max_routes: 400, install: 500 ms}\n";
    for (ports, topology) in [(2, "chain: 2"), (4, "mesh: 4"), (4, "mesh: 2")] {
        let suite = suite(ports, topology, ", delay: 10 us, fib_delay: 1 ms", rest);
        let mut memory = Memory::default();
        run(&suite, &mut memory).unwrap();
        for test in memory.tests() {
            assert_eq!(test.status, TestStatus::Completed, "{topology}: {} {:?}", test.test, test.outcome.notes);
        }
        let held = cell(memory.outcome("rib_fib_capacity"), "rib_fib_capacity", 1, "routes");
        assert_eq!(held, Some(400.0), "{topology}");
    }
}

/// The speed of virtual time through two routers:
/// `cargo test -p drophammer-testbed --test virtual_time simulated_systems::speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let suite = suite(2, "chain: 2, core_speed: 1 Gbit/s", ", delay: 10 us", "tests: [throughput]\n");
    with_system(&suite, false, |bed, _| {
        let flows = vec![flow(bed, Family::Ipv4, 0, 1)];
        let begun = std::time::Instant::now();
        let result = bed.trial(&spec(flows, 100_000.0, 10.0)).unwrap();
        let per_second = result.received() as f64 / begun.elapsed().as_secs_f64();
        println!("{per_second:.0} frames per second through two routers");
        assert_eq!(result.lost(), 0);
    });
}
