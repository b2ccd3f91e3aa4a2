//! The tests of the suite core-2001 on its bed: four routers, fully meshed, with three ports each. Every port sends to
//! every other one. What the routers do is known to the frame.

use super::*;
use drophammer_model::record::TrialRecord;
use drophammer_port::Port;
use drophammer_reference::{Faults, Hold};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::Session;
use drophammer_testbed::config::hosts_and_routers;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated;
use std::collections::BTreeSet;
use std::time::Duration;

/// The ports of the suite.
const OC48: &str = "speed: 2488.32 Mbit/s, medium: ppp-over-sonet";
/// Ports on which exactly 33,000 frames of `ip40` per second are line rate.
const SLOW: &str = "speed: 22.176 Mbit/s";
/// From each port a frame every 454.5 us, 200 frames per second to the routes behind each other port.
const TRAFFIC: &str = "rate: 2200 fps, distribution: fully_meshed, pause: 1 ms, drain: 100 ms";
const SIZES: &str = "frame_sizes: [ip40, imix-2001]";
/// A change takes effect 30.2 ms after its message, 0.44 of the way from one frame of a port to the next. So no frame
/// leaves within 0.2 ms of it, and the time that frames and messages take on their way changes no count.
const DELAYS: &str = ", propagation_delay: 40 ms, fib_delay: 30.2 ms";

/// A suite of these tests on twelve such ports of four such routers.
fn mesh(device: &str, port: &str, tests: &str) -> Suite {
    let ports: String = (1..=12).map(|n| format!("  - {{name: p{n}, {port}}}\n")).collect();
    read_suite(&format!(
        "suite: core\nprofile: quick\nseed: {SEED}\n\
         duts:\n  - {{name: box, kind: reference, topology: {{mesh: 4}}{device}}}\n\
         ports:\n{ports}bgp: {{families: [ipv4]}}\ntests:\n{tests}"
    ))
}

/// Runs it; all of its tests complete.
fn measured(device: &str, port: &str, tests: &str) -> Memory {
    let suite = mesh(device, port, tests);
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    assert_eq!(memory.tests().len(), suite.tests.len());
    for record in memory.tests() {
        assert_eq!(record.status, TestStatus::Completed, "{}: {:?}", record.test, record.outcome.notes);
    }
    memory
}

/// Runs the only test of a suite on a bed in which only the first router has faults.
fn with_faults_of_the_first(suite: &Suite, faults: Faults) -> (Outcome, Memory) {
    let (dut, test) = (&suite.duts[0], &suite.tests[0]);
    let mut parts = simulated::build_system(dut, dut.topology.as_ref().unwrap(), &suite.ports, 1, suite.seed).unwrap();
    let ports = parts.ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect();
    let ports = Ports::One { ports, clock: Box::new(parts.clock) };
    let rig = Rig::new(ports, &hosts_and_routers(&suite.ports, &[Family::Ipv4], suite.seed));
    let mut session = Session::new(suite.seed, suite.profile, 5);
    let mut memory = Memory::default();
    let mut outcome = Outcome::default();
    let mut bed = TestSetup::new(&dut.name, &suite.ports, rig, &mut parts.device, &mut session, &mut memory);
    bed.await_forwarding(&[Family::Ipv4]).unwrap();
    parts.reference.change(|network| network.change(0, |one| one.set_faults(faults))).unwrap();
    drophammer_methods::find(&test.test).unwrap().run(&mut bed, &test.params, &mut outcome).unwrap();
    bed.end_test().unwrap();
    drop(bed);
    (outcome, memory)
}

/// The trials of a test, without probes.
fn trials<'a>(memory: &'a Memory, test: &str) -> Vec<&'a TrialRecord> {
    let of_test = |trial: &&TrialRecord| trial.test == test && !trial.spec.purpose.starts_with("probe");
    memory.trials().into_iter().filter(of_test).collect()
}

fn counter(trial: &TrialRecord, name: &str) -> u64 {
    trial.result.dut_counters.get(name).copied().unwrap_or(0)
}

/// Ways on which the frames of a trial go, and its senders.
fn ways(trial: &TrialRecord) -> (usize, u32) {
    let ways: BTreeSet<_> = trial.spec.flows.iter().map(|flow| (flow.from, flow.to)).collect();
    (ways.len(), trial.result.senders)
}

fn get(outcome: &Outcome, table: &str, row: usize, column: &str) -> f64 {
    crate::common::cell(outcome, table, row, column).unwrap_or_else(|| panic!("row {row} of {table} has no {column}"))
}

fn text<'a>(outcome: &'a Outcome, table: &str, row: usize, column: &str) -> &'a str {
    let table = outcome.tables.iter().find(|t| t.key == table).unwrap();
    let at = table.columns.iter().position(|c| c.key == column).unwrap();
    match &table.rows[row].cells[at] {
        Cell::Text(text) => text,
        other => panic!("{column}: {other:?}"),
    }
}

const LONGEST: &str = "routes: 1200, covering: 120, frames_per_route: 2";
const CHANGES: &str = "routes: 480, interval: 500 ms, cycles: 1, frame_size: ip40";
const FILTERING: &str = "routes: 240, frames_per_route: 1, trial_duration: 200 ms";

#[test]
fn the_tests_of_routes_find_what_the_routers_do() {
    let tests = format!(
        "  - longest_match: {{{LONGEST}, {SIZES}, {TRAFFIC}}}\n  \
         - route_flap: {{flapped: 120, bin: 50 ms, {CHANGES}, {TRAFFIC}}}\n  \
         - convergence_skyline: {{bin: 20 ms, {CHANGES}, {TRAFFIC}}}\n  \
         - route_filtering: {{{FILTERING}, filter_at: [ingress, egress], {SIZES}, {TRAFFIC}}}\n"
    );
    let memory = measured(DELAYS, OC48, &tests);
    for record in memory.tests() {
        assert!(!noted(&record.outcome, &["not ready"]), "{}: {:?}", record.test, record.outcome.notes);
    }
    shorter_masks_draw_no_frame(&memory);
    flapped_routes_lose_what_the_routers_take_to_tell_each_other(&memory);
    the_skyline_has_the_edges_of_all_forwarding_tables(&memory);
    filters_deny_the_half_of_the_routes_behind_each_port(&memory);
}

fn shorter_masks_draw_no_frame(memory: &Memory) {
    let outcome = memory.outcome("longest_match");
    let column = |name| full(outcome, "longest_match", name);
    // Three states with two sizes each. In the last one the longer masks are withdrawn.
    let routes = column("routes");
    assert_eq!((routes.len(), &routes[..4]), (6, &[1_200.0; 4][..]));
    assert!(routes[4] > 0.0 && routes[4] < 1_200.0 && routes[5] == routes[4], "{routes:?}");
    assert_eq!((column("right"), column("wrong"), column("lost")), (column("offered"), vec![0.0; 6], vec![0.0; 6]));
    // All ports together send two frames to each route; the share of each port is rounded to a frame.
    for (offered, routes) in column("offered").into_iter().zip(routes) {
        assert!((offered - 2.0 * routes).abs() <= 12.0, "{offered} to {routes} routes");
    }
    for key in ["longest_match_ipv4_wrong_frames", "longest_match_ipv4_stale_frames"] {
        assert_eq!(figure(outcome, key), Some(0.0), "{key}");
    }
    for key in ["longest_match_ipv4_ip40_percent", "longest_match_ipv4_imix-2001_percent"] {
        assert!((figure(outcome, key).unwrap() - 100.0).abs() < 0.1, "{key}: {:?}", figure(outcome, key));
    }
    let told = ["100 routes behind each of 12 ports", "120 covering prefixes over "];
    assert!(noted(outcome, &told), "{:?}", outcome.notes);
    for trial in trials(memory, "longest_match").iter().take(4) {
        assert_eq!(ways(trial), (132, 12), "{}", trial.spec.purpose);
    }
}

/// Of three ports at a router, the first two have the second path to their routes at the same router. The other routers
/// go on sending there, and nothing is lost. The second path to the routes of the third port is at the next router. It
/// does not advertise that path while it has a better one (RFC 4271 section 9.1). It hears of the withdrawal 40 ms
/// after the router of the port, and the others hear its answer 40 ms later.
fn flapped_routes_lose_what_the_routers_take_to_tell_each_other(memory: &Memory) {
    let outcome = memory.outcome("route_flap");
    let column = |name| full(outcome, "route_flap", name);
    assert_eq!(column("routes"), [360.0, 120.0]);
    // Behind each port 30 stable and 10 flapped routes. So of each 44 frames of a port, sent in 20 ms, three go to the
    // stable and one to the flapped routes behind each other port. All times are multiples of 20 ms.
    let frames = |ms: f64| ms / 20.0;
    assert_eq!(column("offered"), [3.0 * frames(1_500.0) * 132.0, frames(1_500.0) * 132.0]);
    // To the routes of a third port: frames that enter at the next router are lost for 40 ms, from three ports; those
    // that enter elsewhere for 80 ms, from eight ports. There are four such ports.
    let lost = 4.0 * (3.0 * frames(40.0) + 8.0 * frames(80.0));
    assert_eq!((lost, column("lost")), (152.0, vec![0.0, 152.0]));
    assert_eq!(column("received"), [29_700.0, 9_900.0 - lost]);
    // Frames to the routes of a first or second port take the second path for half a second, from all other ports. To
    // those of a third port, the next router takes it 40 ms later, and hears of the return 40 ms late too. The two
    // others take it 80 ms later, and hear of the return 40 ms late. The router of the port takes it 80 ms later.
    let (next, others, own) = (3.0 * frames(500.0), 6.0 * frames(460.0), 2.0 * frames(420.0));
    let alternate = 8.0 * 11.0 * frames(500.0) + 4.0 * (next + others + own);
    assert_eq!((alternate, column("alternate")), (3_220.0, vec![0.0, 3_220.0]));
    let events = |name| full(outcome, "route_flap_events", name);
    assert_eq!((events("stable_lost"), events("flapped_lost")), (vec![0.0; 2], vec![lost, 0.0]));
    // From 30.2 to 110.2 ms after the change, in bins of 50 ms.
    for (found, end) in events("outage_s").into_iter().zip([0.15, 0.0]) {
        about(found, end, 0.0);
    }
    assert_eq!(figure(outcome, "flap_stable_loss_ipv4_percent"), Some(0.0));
    about(figure(outcome, "flap_flapped_loss_ipv4_percent").unwrap(), lost / 99.0, 0.0);
    let told = ["40 routes behind each of 12 ports", "120 of all flapped"];
    assert!(noted(outcome, &told), "{:?}", outcome.notes);
    let [trial] = trials(memory, "route_flap")[..] else { panic!("one trial") };
    assert_eq!(ways(trial), (132, 12));
}

/// A router forwards to the routes behind its own ports 30.2 ms after they came, and to others 40 ms later. When routes
/// go, the router of their port drops the frames to them first, wherever these entered.
fn the_skyline_has_the_edges_of_all_forwarding_tables(memory: &Memory) {
    let outcome = memory.outcome("convergence_skyline");
    let column = |name| column(outcome, "convergence_skyline", name);
    // Ends of bins of 20 ms: up from 30.2 to 70.2 ms, of which the bin to 80 ms has a part; down at 30.2 ms.
    for (name, expected) in [("first_s", [0.04, 0.04]), ("last_s", [0.1, 0.06])] {
        let found = column(name);
        assert_eq!(found.len(), 2, "{name}: {found:?}");
        for (found, expected) in found.into_iter().zip(expected) {
            about(found.unwrap(), expected, 0.0);
        }
    }
    about(figure(outcome, "convergence_up_ipv4_s").unwrap(), 0.1, 0.0);
    about(figure(outcome, "convergence_down_ipv4_s").unwrap(), 0.06, 0.0);
    assert_eq!(column("after_frames"), [Some(0.0); 2]);
    let rates = column("rate_pps");
    about(rates[0].unwrap(), 2_200.0, 0.0);
    assert_eq!(rates[1], None);
    // 24 of 132 ways stay at one router: they pass frames for half a second. The other 108 do for 40 ms less. A port
    // sends 200 frames per second on each way, one in every 5 ms.
    let [trial] = trials(memory, "convergence_skyline")[..] else { panic!("one trial") };
    assert_eq!((ways(trial), trial.result.offered()), ((132, 12), 39_600));
    assert_eq!(trial.result.received(), 24 * 100 + 108 * 92);
}

fn filters_deny_the_half_of_the_routes_behind_each_port(memory: &Memory) {
    let outcome = memory.outcome("route_filtering");
    // Seven cases of each size: none; allow, deny and both on ingress, and on egress.
    assert_eq!(rows(outcome, "route_filtering").len(), 14);
    for row in 0..14 {
        // A rule for each of 10 routes behind each port, or for each of 20. A trial sends 20 frames to either half of
        // the routes, on each of 132 ways.
        let (rules, denied) =
            [(0.0, 0.0), (120.0, 0.0), (120.0, 2_640.0), (240.0, 2_640.0)][[0, 1, 2, 3, 1, 2, 3][row % 7]];
        let get = |column| get(outcome, "route_filtering", row, column);
        let found = ["rules", "permitted", "permitted_lost", "denied", "leaked"].map(get);
        assert_eq!(found, [rules, 5_280.0 - denied, 0.0, denied, 0.0], "row {row}");
        let expected = if denied > 0.0 { 50.0 } else { 100.0 };
        assert_eq!(get("expected_percent"), expected, "row {row}");
        assert!((get("of_baseline_percent") - expected).abs() < 0.5, "row {row}: {}", get("of_baseline_percent"));
    }
    assert_eq!(figure(outcome, "route_filtering_ipv4_leaked"), Some(0.0));
    // Each denied frame is dropped once: at the router where it enters, or at the one where it would leave.
    let denying: Vec<_> = trials(memory, "route_filtering")
        .into_iter()
        .filter(|trial| trial.spec.flows.iter().any(|flow| flow.denied))
        .collect();
    assert_eq!(denying.len(), 8);
    for trial in denying {
        assert_eq!(ways(trial), (132, 12));
        assert_eq!(counter(trial, "truth.dropped.filtered"), 2_640, "{}", trial.spec.purpose);
        for router in 1..=4 {
            assert_eq!(counter(trial, &format!("r{router}.truth.dropped.filtered")), 660, "{}", trial.spec.purpose);
        }
    }
}

#[test]
fn one_frame_that_one_router_leaks_is_found_and_named_by_its_route() {
    let test = format!(
        "  - route_filtering: {{{FILTERING}, filter_at: [egress], actions: [deny], frame_sizes: [ip40], {TRAFFIC}}}\n"
    );
    // The first router denies the frames that eleven ports send to its three: 20 each. The last of them leaks.
    let faults = Faults { filter_leak_every: 660, ..Faults::default() };
    let (outcome, memory) = with_faults_of_the_first(&mesh("", OC48, &test), faults);
    let leaked = |row| get(&outcome, "route_filtering", row, "leaked");
    assert_eq!((leaked(0), leaked(1)), (0.0, 1.0));
    assert_eq!(figure(&outcome, "route_filtering_ipv4_leaked"), Some(1.0));
    assert_eq!(rows(&outcome, "route_filtering_leaks").len(), 1);
    assert_eq!(get(&outcome, "route_filtering_leaks", 0, "frames"), 1.0);
    // Of the 20 routes behind each port the first ten are denied. The first 60 routes are behind the ports of that
    // router.
    let route = text(&outcome, "route_filtering_leaks", 0, "route");
    let index = internet(Family::Ipv4, 240).index_of(&route.parse().unwrap()).unwrap();
    assert!(index < 60 && index % 20 < 10, "{route} is route {index}");
    let denying = memory.trials().into_iter().find(|trial| trial.spec.flows.iter().any(|flow| flow.denied)).unwrap();
    let counters = ["truth.leaked", "r1.truth.leaked", "truth.dropped.filtered"].map(|name| counter(denying, name));
    assert_eq!(counters, [1, 1, 2_639]);
}

#[test]
fn frames_that_the_routers_send_astray_are_counted_at_all_ports() {
    let test = format!("  - longest_match: {{{LONGEST}, {SIZES}, {TRAFFIC}}}\n");
    let memory = measured(", misroute_every: 40", OC48, &test);
    let outcome = memory.outcome("longest_match");
    let astray = full(outcome, "longest_match", "wrong");
    let sum = |rows: &[f64]| rows.iter().sum::<f64>();
    assert!(astray.iter().all(|frames| *frames > 0.0), "{astray:?}");
    assert_eq!(sum(&astray), counted(&memory, "truth.misrouted") as f64);
    assert_eq!(full(outcome, "longest_match", "lost"), [0.0; 6]);
    // Two sizes in each state; in the last one the longer masks are withdrawn.
    assert_eq!(figure(outcome, "longest_match_ipv4_wrong_frames"), Some(sum(&astray[..4])));
    assert_eq!(figure(outcome, "longest_match_ipv4_stale_frames"), Some(sum(&astray[4..])));
}

#[test]
fn the_capacity_is_that_of_the_router_with_a_full_table() {
    let test = "  - bgp_table_capacity: {step: 100, max_routes: 2000, patience: 2 s, hold: 100 ms}\n";
    let memory = measured(", rib_limit: 730, propagation_delay: 30 ms", OC48, test);
    let outcome = memory.outcome("bgp_table_capacity");
    let column = |name| full(outcome, "bgp_table_capacity", name);
    let steps: Vec<f64> = (1..=8).map(|n| f64::from(n) * 100.0).collect();
    assert_eq!((column("routes"), &column("verified")[..7]), (steps.clone(), &steps[..7]));
    assert_eq!((column("verified")[7], column("missing")[7], column("wrong")), (730.0, 70.0, vec![0.0; 8]));
    assert_eq!(column("missing")[..7], [0.0; 7]);
    assert_eq!(figure(outcome, "bgp_capacity_ipv4_routes"), Some(700.0));
    // The router keeps paths in the order in which they come.
    let all = internet(Family::Ipv4, 2_000);
    let first: Vec<String> = (730..735).map(|index| all.prefix(index).to_string()).collect();
    let named = format!("among the missing routes: {}", first.join(", "));
    assert!(noted(outcome, &[named.as_str()]), "{named}: {:?}", outcome.notes);
}

const ORDER: &str = "distribution: fully_meshed, routes: 240, trial_duration: 200 ms, repeats: 1, pause: 1 ms";
const CLASSES: &str = "class_of_service";
const LINKS: &str = "class_of_service_links";
const LOSSES: &str = "class_of_service_losses";
const NAMES: [&str; 3] = ["gold", "silver", "bronze"];
/// Ways on which detours around a link begin, and ways on which they end: 1-2 and 3-4 are down.
const FIRST: [&str; 4] = ["r1 to r4", "r2 to r3", "r3 to r2", "r4 to r1"];
const SECOND: [&str; 4] = ["r4 to r2", "r3 to r1", "r2 to r4", "r1 to r3"];

#[test]
fn order_is_kept_and_each_link_is_shared_by_weight() {
    let tests = format!(
        "  - packet_order: {{{SIZES}, loads: [10], {ORDER}}}\n  \
         - {CLASSES}: {{frame_sizes: [ip40], core_links_down: 2, bottleneck: 2.4192 Mbit/s, calm: 75, \
         overload: [150, 300], queue: 40, trial_duration: 2 s, pause: 1 ms}}\n"
    );
    let memory = measured("", SLOW, &tests);
    order_is_kept(&memory);
    each_link_is_shared_by_weight(&memory);
}

fn order_is_kept(memory: &Memory) {
    let outcome = memory.outcome("packet_order");
    let trials = trials(memory, "packet_order");
    assert_eq!((trials.len(), rows(outcome, "packet_order").len()), (2, 2));
    for (row, trial) in trials.into_iter().enumerate() {
        let get = |column| get(outcome, "packet_order", row, column);
        assert_eq!((ways(trial), trial.result.ways.len()), ((132, 12), 132));
        assert_eq!(get("received"), trial.result.offered() as f64);
        let found = ["loss_percent", "duplicated", "reordered", "max_extent", "out_of_sequence_percent"].map(get);
        assert_eq!(found, [0.0; 5], "row {row}");
        assert_eq!(text(outcome, "packet_order", row, "order"), "kept");
        assert_eq!(text(outcome, "packet_order_onset", row, "begins"), "not up to 10.0 % of line rate");
        // 3,300 frames of `ip40` per second for 200 ms, evenly to eleven ports.
        let even = trial.result.ways.iter().all(|way| (way.offered, way.received) == (60, 60));
        assert!(even || row == 1, "{:?}", trial.result.ways);
    }
    assert!(noted(outcome, &["at 10 %: frames to 240 of 240 routes"]), "{:?}", outcome.notes);
    // Each port verifies the routes behind the eleven others.
    let table = ["routes", "ports", "verified", "before_percent", "after_percent", "sessions_lost"];
    assert_eq!(table.map(|column| get(outcome, "routed", 0, column)), [240.0, 12.0, 2_640.0, 100.0, 100.0, 0.0]);
}

/// The row of a class on the way from one router to another at a load.
fn link_row(outcome: &Outcome, percent: f64, way: &str, class: &str) -> usize {
    let is_it = |row: &usize| {
        let of = |column| text(outcome, LINKS, *row, column);
        get(outcome, LINKS, *row, "load_percent") == percent && (of("way"), of("class")) == (way, class)
    };
    let found = (0..rows(outcome, LINKS).len()).find(is_it);
    found.unwrap_or_else(|| panic!("no row of {class} on {way} at {percent} %"))
}

/// A link carries 2,419,200 / 672 = 3,600 frames per second. A way carries the frames of three ports to three others,
/// and those of one detour: 18/11 of what a port sends. So at 100 % a port sends 2,200 frames per second. In 2 s it
/// sends 100 frames of each class to each other port at 75 %, 200 at 150 % and 400 at 300 %.
fn each_link_is_shared_by_weight(memory: &Memory) {
    let outcome = memory.outcome(CLASSES);
    for table in [CLASSES, LINKS, LOSSES] {
        for row in 0..rows(outcome, table).len() {
            assert_eq!(text(outcome, table, row, "verdict"), "as it must", "row {row} of {table}");
        }
    }
    assert!(noted(outcome, &["Links between routers that are down: 1-2, 3-4."]), "{:?}", outcome.notes);
    assert_eq!(rows(outcome, LINKS).len(), 3 * 8 * 3);
    let of_link = |percent, way: &str, class: &str, column: &str| {
        get(outcome, LINKS, link_row(outcome, percent, way, class), column)
    };
    // Frames of 18 ways between ports. At 75 % none is dropped. At 150 % gold is half of a link, less than its share,
    // and all of it passes.
    for way in FIRST.iter().chain(&SECOND) {
        for class in NAMES {
            let calm = ["came", "dropped"].map(|column| of_link(75.0, way, class, column));
            assert_eq!(calm, [1_800.0, 0.0], "{way}, {class}");
        }
        let gold = ["came", "dropped"].map(|column| of_link(150.0, way, "gold", column));
        assert_eq!(gold, [3_600.0, 0.0], "{way}");
    }
    // Silver and bronze get the rest, four to one. At 300 % each class offers a whole link, and the weights decide. A
    // turn of a link has 19 frames, and some tens pass while its queues fill: less than a percentage point of 7,200.
    for way in FIRST {
        let expected =
            [(150.0, 3_600.0, [50.0, 40.0, 10.0]), (300.0, 7_200.0, [70.0, 20.0, 5.0].map(|n: f64| n / 0.95))];
        for (percent, came, shares) in expected {
            for (class, share) in NAMES.into_iter().zip(shares) {
                // What comes to the first link of a detour has passed no other one.
                assert_eq!(of_link(percent, way, class, "came"), came, "{way}, {class}");
                let found = of_link(percent, way, class, "share_percent");
                assert!((found - share).abs() < 1.0, "{way}, {class} at {percent} %: {found}");
            }
        }
    }
    // The queues dropped each lost frame, and nothing else did.
    let [calm, overloaded, whole] = trials(memory, CLASSES)[..] else { panic!("three trials") };
    for (row, trial) in [calm, overloaded, whole].into_iter().enumerate() {
        assert_eq!((ways(trial), trial.classed, trial.links_down), ((132, 12), true, true));
        assert_eq!(counter(trial, "truth.dropped.egress"), trial.result.lost());
        for at in 3 * row..3 * row + 3 {
            assert_eq!(get(outcome, LOSSES, at, "difference"), 0.0, "row {at}");
        }
    }
    assert_eq!(calm.result.lost(), 0);
    // Nine of eleven other ports are at other routers. Frames between ports of one router pass no classes.
    for (trial, each) in [(calm, 100), (overloaded, 200), (whole, 400)] {
        for class in NAMES {
            let group = |name: &str| trial.result.groups.iter().find(|group| group.group == name).unwrap();
            let (crossing, beside) = (group(class), group(&format!("{class} at one router")));
            assert_eq!((crossing.offered, beside.offered), (12 * 9 * each, 12 * 2 * each), "{class}");
            assert_eq!(beside.lost, 0, "{class}");
        }
    }
    assert_eq!(figure(outcome, "class_of_service_ip40_loss_percent"), Some(0.0));
    assert!(figure(outcome, "class_of_service_ip40_error_points").unwrap() < 1.0);
    // Eight full links, less what crosses two of them: for each of four detours a quarter of a link in gold, 0.15 to
    // 0.25 in silver and up to 0.1 in bronze. Which frames of a class a router drops is not specified. Queues of 40
    // frames that fill or drain are the rest.
    let links = figure(outcome, "class_of_service_ip40_pps").unwrap() / 3_600.0;
    assert!((links - 6.0).abs() < 0.42, "{links}");
}

/// The first router holds four of the 3,600 frames that pass it in the first trial, and two of the 1,800 of the second
/// one. It has numbered the learning frames too, so only a number that divides both gives these counts. A flow sends a
/// frame every 3.33 ms, and every 6.67 ms at half of the load.
#[test]
fn frames_that_one_router_holds_are_out_of_order_where_others_overtake_them() {
    let test = format!("  - packet_order: {{frame_sizes: [ip40], loads: [10, 5], {ORDER}}}\n");
    let faults = Faults { hold: Some(Hold { every: 900, time: Duration::from_millis(5) }), ..Faults::default() };
    let (outcome, memory) = with_faults_of_the_first(&mesh("", SLOW, &test), faults);
    let held: Vec<u64> = memory.trials().iter().map(|trial| counter(trial, "r1.truth.held")).collect();
    assert_eq!(held, [4, 2]);
    for (row, frames, late) in [(0, 7_920.0, 4.0), (1, 3_960.0, 0.0)] {
        let get = |column| get(&outcome, "packet_order", row, column);
        assert_eq!(["received", "loss_percent", "duplicated", "reordered"].map(get), [frames, 0.0, 0.0, late]);
        assert_eq!(get("max_extent"), if late > 0.0 { 1.0 } else { 0.0 });
        assert!((get("reordered_percent") - late / frames * 100.0).abs() < 1e-9, "{}", get("reordered_percent"));
        // The frame that overtakes, the late one, and the one after that.
        let out_of_sequence = get("out_of_sequence_percent");
        assert!((out_of_sequence - 3.0 * late / frames * 100.0).abs() < 1e-9, "{out_of_sequence}");
        assert_eq!(text(&outcome, "packet_order", row, "order"), if late > 0.0 { "changed" } else { "kept" });
    }
    // A flow that passes the router.
    let worst = text(&outcome, "packet_order", 0, "worst_flow");
    assert!(worst.split_whitespace().any(|word| ["p1", "p2", "p3"].contains(&word)), "{worst}");
    let begins = text(&outcome, "packet_order_onset", 0, "begins");
    assert_eq!(begins, "above 5.0 %, at most at 10.0 % of line rate");
    about(figure(&outcome, "reordering_begins_ip40_percent").unwrap(), 10.0, 0.0);
}
