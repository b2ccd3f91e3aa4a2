//! The cases: suites and their devices.

use crate::common::{Memory, read_suite, run};
use drophammer_model::suite::Suite;
use std::path::Path;

/// Runs a suite to its end, regardless of the results of its tests.
fn finished(suite: &Suite) -> Memory {
    let mut memory = Memory::default();
    run(suite, &mut memory).unwrap();
    memory
}

/// A suite from `suites/` with one reference device with `params` in place of its routers. In each pair of `cuts`, the
/// first text is replaced by the second.
fn shipped(name: &str, params: &str, cuts: &[(&str, &str)]) -> Vec<Memory> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    on_one_device(&format!("suites/{name}"), &text, params, cuts)
}

/// Like [`shipped`], for a suite with this text.
fn on_one_device(name: &str, text: &str, params: &str, cuts: &[(&str, &str)]) -> Vec<Memory> {
    let mut short = String::from("seed: 11\n");
    let mut in_duts = false;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with("duts:") {
            short += &format!("duts:\n  - {{name: box, kind: reference, {params}}}\n");
            in_duts = true;
        } else if !in_duts || line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            in_duts = false;
            short += line;
            short += "\n";
        }
    }
    for (from, to) in cuts {
        assert!(short.contains(from), "{name} has no `{from}`: adapt this test to it");
        short = short.replace(from, to);
    }
    vec![finished(&read_suite(&short))]
}

/// Runs one suite with the tests of `rest` on a device with `params`.
fn on(params: &str, ports: usize, speed: &str, rest: &str) -> Memory {
    let ports: String = (1..=ports).map(|n| format!("  - {{name: p{n}, speed: {speed}}}\n")).collect();
    finished(&read_suite(&format!(
        "suite: figures\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, {params}}}\nports:\n{ports}{rest}"
    )))
}

pub fn suite_quick_look() -> Vec<Memory> {
    let params = "capacity: 40 kfps, buffer: 100, delay: 20 us, propagation_delay: 3 ms, fib_delay: 5 ms, fib_time_per_route: 2 us";
    let text = include_str!("forwarding-and-routes.yaml");
    on_one_device("forwarding-and-routes.yaml", text, params, &[("speed: 1 Gbit/s", "speed: 100 Mbit/s")])
}

pub fn labels_and_igp() -> Vec<Memory> {
    let on = |params, tests: &str| on(params, 4, "1 Gbit/s, core: [ospf, ldp]", &format!("tests: [{tests}]"));
    let test =
        |protocol| format!("{{igp_convergence: {{prefixes: 50, rate: 20 kfps, window: 1 s, protocol: {protocol}}}}}");
    let capacity = "{ldp_capacity: {step: 20, max_fecs: 60, frames_per_fec: 2, install: 200 ms}}";
    let both = format!("{}, {capacity}", test("ospf"));
    vec![
        on("fib_delay: 30 ms, fib_time_per_route: 1 ms", &both),
        on("label_limit: 43", &format!("{}, {capacity}", test("ldp"))),
    ]
}

pub fn lsps() -> Vec<Memory> {
    let test = "tests: [{lsp_capacity: {step: 20, max_lsps: 60, patience: 1 s}}]";
    let on = |params| on(params, 2, "100 Mbit/s, core: [rsvp]", test);
    vec![on("lsp_limit: 50, rsvp_refresh: 2 s, capacity: 20 kfps, delay: 10 us"), on("forget_lsp_on_refresh: 90")]
}

pub fn vpns() -> Vec<Memory> {
    let on = |params: &str, tests: &str| {
        finished(&read_suite(&format!(
            "suite: figures\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, {params}}}\nports:\n  - {{name: ce, speed: 10 Mbit/s, ipv6: off, \
             customers: 3}}\n  - {{name: core, speed: 10 Mbit/s, ipv6: off, mtu: 1600, core: [ospf, ldp]}}\n{tests}"
        )))
    };
    let tests = "tests:\n  - vpn_scale: {routes: 8, check_rate: 1 kfps, trial_duration: 1 s}\n  - vpn_route_flap: {routes: 8, flapped: 25, rate: 1 kfps, check_rate: 1 kfps, \
                 withdraw_at: 1 s, away: 1 s, return: 1 s}\n";
    let leaky = "tests: [{vpn_scale: {routes: 8, check_rate: 1 kfps, install: 100 ms}}]";
    vec![on("capacity: 5 kfps, buffer: 50, delay: 10 us, fib_delay: 200 ms", tests), on("swap_vpn_labels: true", leaky)]
}

pub fn suite_known_router() -> Vec<Memory> {
    shipped("known-router.yaml", "capacity: 20 kfps, buffer: 2000, delay: 100 us", &[])
}

pub fn suite_bgp() -> Vec<Memory> {
    shipped("bgp.yaml", "propagation_delay: 2 ms, ack_delay: 1 ms", &[])
}

pub fn suite_routes() -> Vec<Memory> {
    let params = "capacity: 60 kfps, buffer: 64, delay: 15 us, propagation_delay: 2 ms, fib_delay: 4 ms, fib_time_per_route: 3 us";
    shipped("routes.yaml", params, &[])
}

pub fn suite_flows() -> Vec<Memory> {
    shipped("flows.yaml", "capacity: 9 kfps, buffer: 40, delay: 15 us, drop_every: 1000", &[])
}

pub fn suite_full_table() -> Vec<Memory> {
    let cuts = [
        ("step: 40000, max_routes: 1000000", "step: 10000, max_routes: 200000"),
        ("step: 250000, max_routes: 1000000", "step: 10000, max_routes: 50000"),
        ("step: 250000, max_routes: 500000", "step: 10000, max_routes: 30000"),
        ("install: 150 s", "install: 2 s"),
        ("routes: 200000, covering: 50000", "routes: 20000, covering: 5000"),
        ("routes: 200000, flapped: 50000, interval: 30 s", "routes: 20000, flapped: 5000, interval: 5 s"),
        ("routes: 200000, interval: 30 s", "routes: 20000, interval: 5 s"),
        ("routes: 20000, rate: 100 kfps, window: 10 s", "routes: 2000, rate: 50 kfps, window: 2 s"),
    ];
    let params =
        "capacity: 70 kfps, buffer: 200, delay: 40 us, fib_limit_ipv4: 40000, propagation_delay: 1 ms, fib_delay: 8 ms";
    shipped("full-table.yaml", params, &cuts)
}

/// The tests of forwarding, with short durations.
const FORWARDING: &str = "  - throughput: {final_trial_duration: 200 ms, search_duration_max: 5 s}
  - forwarding_rate: {repeats: 2, trial_duration: 50 ms}
  - frame_loss_rate: {trial_duration: 50 ms}
  - latency: {loads: [10, 100], trial_duration: 50 ms}
  - back_to_back: {repeats: 2, max_burst_duration: 200 ms}
  - system_recovery: {overload_duration: 100 ms, recovery_duration: 100 ms}
  - tester_ceiling: {trial_duration: 20 ms}
";

pub fn dual_stack_imix() -> Vec<Memory> {
    let rest =
        format!("defaults: {{frame_sizes: [78, imix], families: [ipv4, ipv6], pause: 1 ms}}\ntests:\n{FORWARDING}");
    vec![on("capacity: 9 kfps, buffer: 20, jitter: 30 us", 2, "50 Mbit/s", &rest)]
}

pub fn mixed_families() -> Vec<Memory> {
    let rest = "tests:
  - mixed_families: {ipv6_shares: [15, 100], final_trial_duration: 200 ms, search_duration_max: 5 s, trial_duration: 50 ms, pause: 1 ms}
  - forwarding_rate: {families: [ipv4, ipv6], ipv6_share: 10, frame_sizes: [imix], ipv6_frame_size: 590, repeats: 1, trial_duration: 50 ms}
";
    vec![on("capacity: 9 kfps, buffer: 20, jitter: 30 us, misroute_every: 901", 2, "50 Mbit/s", rest)]
}

pub fn extension_headers() -> Vec<Memory> {
    let rest = |more: &str| {
        format!(
            "tests:\n  - extension_headers: {{final_trial_duration: 200 ms, search_duration_max: 2 s, trial_duration: 50 ms, ask_after: 10 ms, pause: 1 ms, {more}}}\n"
        )
    };
    let on = |params: &str, rest: &str| on(&format!("{params}, capacity: 9 kfps, buffer: 20"), 2, "50 Mbit/s", rest);
    vec![
        on(
            "extension_time: 30 us, jitter: 30 us",
            &rest("frame_sizes: [128], headers: [chain], hop_by_hop_loads: [10]"),
        ),
        on("extension_drop_every: 7", &rest("frame_sizes: [96], headers: [chain], hop_by_hop_loads: [3]")),
    ]
}

pub fn ping_delay() -> Vec<Memory> {
    let rest = "tests:\n  - ping_delay: {frame_sizes: [64, 1518], families: [ipv4, ipv6], pings: 5, pause: 1 ms}\n";
    vec![on("capacity: 9 kfps, buffer: 20, jitter: 30 us, drop_every: 17", 4, "50 Mbit/s", rest)]
}

pub fn sizes() -> Vec<Memory> {
    let rest = format!(
        "defaults: {{frame_sizes: [ip40, 65, 1518], direction: unidirectional, pause: 1 ms}}\ntests:\n{FORWARDING}"
    );
    let v6 = format!("defaults: {{frame_sizes: [82, 1517], families: [ipv6], pause: 1 ms}}\ntests:\n{FORWARDING}");
    vec![on("capacity: 12345 fps, buffer: 7, delay: 250 us", 2, "20 Mbit/s", &rest), on("", 2, "10 Mbit/s", &v6)]
}

pub fn four_ports() -> Vec<Memory> {
    let rest = format!("defaults: {{frame_sizes: [128], families: [ipv4, ipv6], pause: 1 ms}}\ntests:\n{FORWARDING}");
    vec![on("capacity: 30 kfps, buffer: 50, delay: 33 us", 4, "20 Mbit/s", &rest)]
}

/// Three tests of both families and directions, on a device with each of these faults.
fn faulty(params: &[&str], more: &str) -> Vec<Memory> {
    let rest = format!(
        "defaults: {{frame_sizes: [96], families: [ipv4, ipv6], pause: 1 ms}}\ntests:\n  \
         - forwarding_rate: {{repeats: 1, trial_duration: 100 ms}}\n  - frame_loss_rate: {{trial_duration: 100 ms, step: 50}}\n{more}"
    );
    params.iter().map(|params| on(&format!("{params}, capacity: 20 kfps, buffer: 30"), 2, "20 Mbit/s", &rest)).collect()
}

const LATENCY: &str = "  - throughput: {final_trial_duration: 200 ms, search_duration_max: 2 s, expect: {throughput_96_pps: \">= 9 kfps\"}}\n  - latency: {loads: [20, 90], trial_duration: 100 ms}\n";

pub fn drops() -> Vec<Memory> {
    let params = [
        "drop_every: 97",
        "drop_share: 1.5",
        "drop_after: 100 ms, drop_for: 300 ms",
        "low_load_drop_every: 10, low_load: 3 kfps",
        "sag_after: 250 ms, sag_to: 5 kfps",
    ];
    faulty(&params, "  - system_recovery: {overload_duration: 100 ms, recovery_duration: 100 ms}\n")
}

pub fn filters() -> Vec<Memory> {
    let on = |params: &str, rest: &str| on(&format!("{params}, capacity: 20 kfps, buffer: 30"), 2, "20 Mbit/s", rest);
    let of_one = |more: &str| {
        let times = "trial_duration: 50 ms, final_trial_duration: 50 ms, width: 10";
        let size = "defaults: {frame_sizes: [96], direction: unidirectional, pause: 1 ms}";
        format!("{size}\ntests:\n  - filters: {{{times}, {more}}}\n")
    };
    let of_half = |more: &str| {
        let times = "trial_duration: 50 ms, rate: 5 kfps, pause: 1 ms";
        format!("bgp: {}\ntests:\n  - route_filtering: {{routes: 60, {times}, {more}}}\n", "{}")
    };
    let (leaks, denies) = ("filter_leak_every: 100", "filter_deny_every: 100");
    vec![
        on("filter_time_per_rule: 2 us", &of_one("conditions: [1, 10], filter_at: [ingress, egress]")),
        on(leaks, &of_one("conditions: [3], permit: [last]")),
        on(denies, &of_one("conditions: [3], permit: [last]")),
        on("filter_time_per_rule: 2 us", &of_half("filter_at: [ingress, egress]")),
        on(leaks, &of_half("actions: [deny]")),
        on(leaks, &of_half("actions: [both], distribution: fully_meshed, frame_sizes: [imix-2001]")),
        on(denies, &of_half("actions: [both], filter_at: [egress]")),
    ]
}

pub fn classes() -> Vec<Memory> {
    let test =
        |params: &str| format!("tests:\n  - class_of_service: {{trial_duration: 100 ms, pause: 1 ms, {params}}}\n");
    let on = |params: &str, rest: &str| on(params, 4, "20 Mbit/s", rest);
    vec![
        on("delay: 20 us", &test("families: [ipv4, ipv6], frame_sizes: [96, imix], queue: 40, overload: [150, 300]")),
        on("class_last_weight: 8, class_drop_every: 500", &test("bottleneck: 5 Mbit/s")),
        on("classes_ignored: true, capacity: 20 kfps, buffer: 30", &test("")),
    ]
}

/// A congested output port next to a free one, on devices that drop at the output, that block at the input, and whose
/// output port the test limits.
pub fn congestion() -> Vec<Memory> {
    let test =
        |params: &str| format!("tests:\n  - head_of_line_blocking: {{trial_duration: 50 ms, pause: 1 ms, {params}}}\n");
    let on = |params: &str, ports, rest: &str| on(params, ports, "20 Mbit/s", rest);
    let line = "line_speed: 20 Mbit/s, line_buffer: 20, delay: 20 us";
    vec![
        on(line, 4, &test("frame_sizes: [64, imix]")),
        on(&format!("{line}, input_queue: 30"), 8, &test("frame_sizes: [96], families: [ipv4, ipv6]")),
        on("", 6, &test("frame_sizes: [96], bottleneck: 5 Mbit/s, queue: 40")),
    ]
}

/// A steady load on a device that ages, and on a device that does not.
pub fn soak() -> Vec<Memory> {
    let rest = "tests:\n  - soak: {duration: 900 ms, interval: 100 ms, rate: 1 kfps, families: [ipv4, ipv6]}\n";
    vec![
        on("ageing_delay: 200 us, ageing_memory: 3000000, delay: 20 us, drop_every: 300", 2, "20 Mbit/s", rest),
        on("delay: 20 us, jitter: 30 us", 2, "20 Mbit/s", rest),
    ]
}

/// The traffic that RFC 2544 section 11 adds to the test frames.
pub fn modifiers() -> Vec<Memory> {
    let of = |modifiers: &str| {
        let params = format!("frame_sizes: [96], modifiers: [{modifiers}], trial_duration: 50 ms, pause: 1 ms");
        format!("tests:\n  - forwarding_rate: {{repeats: 2, {params}}}\n  - frame_loss_rate: {{step: 50, {params}}}\n")
    };
    let params = "capacity: 15 kfps, buffer: 30, jitter: 20 us, broadcast_services: 10, broadcast_flooded: true";
    let bgp = format!("bgp: {{}}\n{}", of("none, routing_update"));
    vec![
        on(params, 2, "20 Mbit/s", &of("none, broadcast, management")),
        on("capacity: 15 kfps, buffer: 30, propagation_delay: 3 ms", 2, "20 Mbit/s", &bgp),
    ]
}

/// Several routers that act as one.
pub fn systems() -> Vec<Memory> {
    let of = |topology: &str, ports: usize| {
        let rest = "defaults: {frame_sizes: [96], pause: 1 ms}\ntests:\n  - frame_loss_rate: {trial_duration: 100 ms, step: 50}\n  \
                    - latency: {loads: [50], trial_duration: 50 ms}\n";
        let params =
            format!("topology: {{{topology}, core_speed: 10 Mbit/s}}, capacity: 15 kfps, buffer: 30, jitter: 20 us");
        on(&params, ports, "20 Mbit/s", rest)
    };
    let classes = |device: &str, params: &str| {
        let test = format!(
            "tests:\n  - class_of_service: {{core_links_down: {params}, trial_duration: 300 ms, pause: 1 ms, queue: 20}}\n"
        );
        on(&format!("topology: {{mesh: 4, core_speed: 2 Mbit/s}}, core_detection: 5 ms{device}"), 8, "20 Mbit/s", &test)
    };
    vec![
        of("mesh: 4", 12),
        of("chain: 3", 2),
        classes("", "2, families: [ipv4, ipv6], frame_sizes: [96], overload: [150, 300]"),
        classes(", class_last_weight: 8, class_drop_every: 400", "[1-3]"),
        classes(", classes_ignored: true", "1"),
    ]
}

/// Looping packets and their counters, without and with faults.
pub fn loops() -> Vec<Memory> {
    let of = |device: &str, topology: &str, test: &str| {
        let rest = format!("tests:\n  - routing_loop: {{pause: 1 ms, trial_duration: 200 ms, {test}}}\n");
        on(&format!("topology: {{loop: 4{topology}}}, line_buffer: 20{device}"), 2, "20 Mbit/s", &rest)
    };
    let slow = ", core_speed: 20 Mbit/s, wan_speed: 5 Mbit/s";
    vec![
        of(", capacity: 30 kfps, buffer: 50, jitter: 20 us", slow, "frame_sizes: [ip528, ip40], packets: 30"),
        of(
            "",
            &format!("{slow}, wan_delay: 5 ms"),
            "frame_sizes: [ip1498], packets: 10, port: 2, ttl: 33, max_load: 200 fps",
        ),
        of(", tunnel_drop_every: 70, icmp_errors: 20", slow, "frame_sizes: [ip68], packets: 40"),
        of(", tunnel_keeps_ttl: true, counter_error: 7", slow, "frame_sizes: [ip68], packets: 20, max_load: 150 fps"),
    ]
}

pub fn copies_and_strays() -> Vec<Memory> {
    let params = [
        "duplicate_every: 13",
        "corrupt_every: 11",
        "corrupt_every: 11, corrupt_hidden: true",
        "misroute_every: 17",
        "wrong_next_hop_every: 19",
        "own_frames: 3 ms, counter_error: 2",
        "drop_every: 50, duplicate_every: 31, corrupt_every: 41, misroute_every: 23, reorder_every: 29, reorder_by: 4",
    ];
    faulty(&params, "")
}

/// Frames that are not test traffic, on a device that treats them correctly and on devices that do not.
pub fn wrong_frames() -> Vec<Memory> {
    let rest = |families: &str| {
        format!(
            "defaults: {{families: [{families}]}}\ntests:\n  - idle_traffic: {{duration: 3 s}}\n  \
             - error_frames: {{frames: 5, trial_duration: 50 ms, drain: 10 ms, pause: 1 ms}}\n"
        )
    };
    let cases = [("own_frames: 200 ms", "ipv4, ipv6"), ("forwards_wrong: checksum, icmp_twice_every: 6", "ipv4")];
    cases.iter().map(|(params, families)| on(params, 2, "10 Mbit/s", &rest(families))).collect()
}

pub fn order() -> Vec<Memory> {
    faulty(&["reorder_every: 7, reorder_by: 5", "reorder_every: 40", "hold_every: 25, hold_time: 3 ms"], LATENCY)
}

pub fn together() -> Vec<Memory> {
    let text = "suite: known\nprofile: quick\nseed: 11\nduts:\n  - {name: a, kind: reference, capacity: 8 kfps}\n  \
         - {name: b, kind: reference, capacity: 7 kfps, delay: 40 us}\n\
         ports: [{name: p1, speed: 10 Mbit/s}, {name: p2, speed: 10 Mbit/s}]\n\
         tests:\n  - head_to_head: {frame_sizes: [64], trials: 4, trial_duration: 200 ms, delay_at: 1 kfps}\n";
    vec![finished(&read_suite(text))]
}

pub fn times() -> Vec<Memory> {
    faulty(&["delay: 1 ms", "jitter: 400 us", "delay: 100 us, hold_every: 100, hold_time: 1.1 s"], LATENCY)
}

/// The tests of routes, with small tables, and `more` added to the parameters of all tests.
fn routes(more: &str) -> String {
    format!(
        "defaults: {{{more}rate: 10 kfps, patience: 2 s}}\ntests:\n  \
         - bgp_session_capacity: {{step: 2, max_sessions: 4}}\n  \
         - bgp_pass_through: {{samples: 10}}\n  \
         - bgp_table_capacity: {{step: 300, max_routes: 900}}\n  \
         - bgp_table_dump: {{routes: 600}}\n  \
         - bgp_update_rate: {{routes: 200, max_rate: 800}}\n  \
         - rib_fib_capacity: {{step: 300, max_routes: 600, install: 500 ms}}\n  \
         - longest_match: {{routes: 300, covering: 60}}\n  \
         - fib_convergence: {{routes: 100, window: 1 s}}\n  \
         - convergence_skyline: {{routes: 400, interval: 500 ms}}\n  \
         - route_flap: {{routes: 400, flapped: 100, interval: 500 ms}}\n  \
         - link_failover: {{routes: 100, window: 1 s}}\n"
    )
}

pub fn routes_dual_stack() -> Vec<Memory> {
    let rest = format!("bgp: {{peers_per_port: 2}}\n{}", routes("families: [ipv4, ipv6], "));
    let meshed = "longest_match: {routes: 200, covering: 40, distribution: fully_meshed, frame_sizes: [imix-2001]}";
    let rest = format!("{rest}  - {meshed}\n");
    vec![on("propagation_delay: 10 ms, fib_delay: 15 ms, fib_time_per_route: 100 us", 4, "1 Gbit/s", &rest)]
}

pub fn routes_faults() -> Vec<Memory> {
    let rest = format!("bgp: {{peers_per_port: 2}}\n{}", routes("families: [ipv4], "));
    let faults = [
        "blackhole_every: 50",
        "withdraw_late: 100 ms",
        "route_lost_every: 70",
        "route_wrong_next_hop_every: 60, route_wrong_as_path_every: 80",
        "drop_every: 1000, duplicate_every: 900, delay: 200 us",
    ];
    faults.iter().map(|params| on(params, 4, "1 Gbit/s", &rest)).collect()
}

pub fn routes_limits() -> Vec<Memory> {
    let tests = |tests: &str| {
        format!("bgp: {{hold_time: 9 s}}\ndefaults: {{families: [ipv4, ipv6], patience: 1 s}}\ntests:\n{tests}")
    };
    let capacity = tests(
        "  - bgp_table_capacity: {step: 200, max_routes: 1000}\n  - rib_fib_capacity: {step: 200, max_routes: 1000, rate: 10 kfps, install: 500 ms}\n",
    );
    let table = tests("  - bgp_table_capacity: {step: 200, max_routes: 1000}\n  - bgp_table_dump: {routes: 500}\n");
    let two = |params: &str, rest: &str| on(params, 2, "1 Gbit/s", rest);
    vec![
        two("fib_limit: 450", &capacity),
        two("rib_limit: 730", &capacity),
        two("rib_limit: 730, rib_beyond: reset", &table),
        two("route_flap_every: 100, route_flap_interval: 50 ms", &table),
        two("bgp_reads_per_second: 20000", &table),
        two("bgp_reset_after: 333", &table),
        two("bgp_malformed_after: 333", &table),
        two("bgp_hold_silence: true", &table),
        two("bgp_never_reads: true", &table),
    ]
}

/// Internal peers, routes with a single prefix length, and routes from a daemon's MRT file, advertised and withdrawn.
pub fn routes_sources() -> Vec<Memory> {
    let bgps =
        ["{internal: [p2], next_hop_self: true}", "{internal: [p1, p2], peers_per_port: 3}", "{dut_as: 4200000001}"];
    let tables = ["internet", "uniform", "tests/mrt_recorded/bird.mrt"];
    let on_both = |(bgp, table): (&str, &str)| {
        let tests = format!(
            "defaults: {{table: {table}, families: [ipv4, ipv6], patience: 1 s, rate: 20 kfps}}\ntests:\n  \
             - bgp_table_capacity: {{step: 50, max_routes: 150}}\n  - bgp_table_dump: {{routes: 150, repeats: 2}}\n  \
             - rib_fib_capacity: {{step: 75, max_routes: 150, install: 500 ms}}\n  - convergence_skyline: {{routes: 150, interval: 200 ms}}\n"
        );
        let params = "propagation_delay: 700 us, fib_delay: 900 us, delay: 12 us";
        on(params, 2, "1 Gbit/s", &format!("bgp: {bgp}\n{tests}"))
    };
    bgps.into_iter().zip(tables).map(on_both).collect()
}

/// The operator's view: right and wrong counters and answers.
pub fn operation() -> Vec<Memory> {
    let overload = "overload: {max_load: 9 kfps, trial_duration: 200 ms, final_trial_duration: 200 ms, ask_every: 20 ms, ask_after: 100 ms}";
    let counters = "counter_accuracy: {families: [ipv4, ipv6], frames: 1500, load: 8 kfps}";
    let flood = "bgp: {}\ntests:\n  - flood: {frame_sizes: [64], families: [ipv4, ipv6], trial_duration: 200 ms, pause: 1 ms, ask_every: 20 ms, ask_after: 100 ms}\n";
    let on_device = |params: &str, test: &str| {
        let rest = format!("defaults: {{frame_sizes: [594], pause: 1 ms}}\ntests:\n  - {test}\n");
        on(&format!("{params}, capacity: 20 kfps, buffer: 30"), 2, "200 Mbit/s", &rest)
    };
    vec![
        on_device("drop_every: 97, counter_error: 3, counter_error_after: 4000", counters),
        on_device("management_waiting: 25, management_drop_every: 3, management_delay: 2 ms", overload),
        on("management_drop_every: 3", 2, "20 Mbit/s", flood),
    ]
}

/// Order at rising load, and resets of devices that come back, continue, or stay away.
pub fn order_and_resets() -> Vec<Memory> {
    let order = "defaults: {pause: 1 ms}\ntests:\n  - packet_order: {frame_sizes: [ip40, imix], loads: [100, 40, 10], trial_duration: 100 ms, repeats: 2}\n";
    let resets = "bgp: {hold_time: 9 s}\ntests:\n  - reset: {families: [ipv4, ipv6], rate: 2 kfps, routes: 20, window: 10 s, pause: 1 ms, limit: 60 s}\n";
    let alone = "tests:\n  - reset: {rate: 2 kfps, window: 1 s, pause: 1 ms, limit: 2 s}\n";
    vec![
        on("hold_every: 50, hold_time: 200 us, duplicate_every: 33", 2, "20 Mbit/s", order),
        on("boot_time: 300 ms", 2, "20 Mbit/s", resets),
        on("reset_unaffected: true", 2, "20 Mbit/s", alone),
        on("reset_never_back: true", 2, "20 Mbit/s", alone),
    ]
}
