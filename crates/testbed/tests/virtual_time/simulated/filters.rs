//! The test `filters` on reference devices in virtual time: the cost of filters to the rule, and filters that leak,
//! deny too much or are not removed.

use crate::common::*;
use drophammer_model::outcome::Cell;
use drophammer_model::record::{FilterRecord, Record, TrialRecord};

const TABLE: &str = "filters";

/// The test with these parameters on a device that serves 20,000 frames per second.
fn filters(device: &str, params: &str) -> Memory {
    let rest = format!(
        "defaults: {{frame_sizes: [64], pause: 1 ms}}\ntests:\n  - filters: {{final_trial_duration: 500 ms, width: 0.2, trial_duration: 200 ms, {params}}}\n"
    );
    let mut memory = Memory::default();
    let tally = run(&suite(&format!(", capacity: 20 kfps, buffer: 2, delay: 10 us{device}"), &rest), &mut memory);
    let status = memory.tests().last().map(|test| test.status.clone());
    assert_eq!(tally.unwrap().completed, 1, "{device}: {status:?}");
    memory
}

const ONE_WAY: &str = "direction: unidirectional";

fn get(memory: &Memory, row: usize, column: &str) -> Option<f64> {
    cell(memory.outcome("filters"), TABLE, row, column)
}

fn rank(memory: &Memory, key: &str) -> Option<f64> {
    let ranks = &memory.outcome("filters").ranks;
    ranks.iter().find(|r| r.key == key).unwrap_or_else(|| panic!("no {key}: {ranks:?}")).value
}

/// Trials with frames that must be denied, without those that have no filter.
fn sorting(memory: &Memory) -> Vec<&TrialRecord> {
    memory.trials().into_iter().filter(|t| t.spec.flows.iter().any(|flow| flow.denied)).collect()
}

fn counter(trial: &TrialRecord, name: &str) -> u64 {
    trial.result.dut_counters.get(name).copied().unwrap_or(0)
}

fn changes(memory: &Memory) -> Vec<&FilterRecord> {
    memory.records.iter().filter_map(|r| if let Record::Filter(filter) = r { Some(filter) } else { None }).collect()
}

/// Texts of a row.
fn texts(memory: &Memory, table: &str, row: usize) -> Vec<String> {
    let cells = &rows(memory.outcome("filters"), table)[row].cells;
    cells.iter().filter_map(|cell| if let Cell::Text(text) = cell { Some(text.clone()) } else { None }).collect()
}

#[test]
fn each_rule_costs_what_the_device_says() {
    let memory = filters(", filter_time_per_rule: 1 us", ONE_WAY);
    // Service takes 50 µs and 1 µs for every rule that is examined: none, 1, 10 or 1, 25 or 1.
    let cases = [(0, "", 0), (1, "only", 1), (10, "last", 10), (10, "first", 1), (25, "last", 25), (25, "first", 1)];
    assert_eq!(rows(memory.outcome("filters"), TABLE).len(), cases.len());
    for (row, (conditions, permit, looked_at)) in cases.into_iter().enumerate() {
        let get = |column| get(&memory, row, column).unwrap_or_else(|| panic!("row {row} has no {column}"));
        let service_us = 50.0 + f64::from(looked_at);
        assert_eq!(get("conditions"), f64::from(conditions));
        assert_eq!(texts(&memory, TABLE, row).get(3).map_or("", String::as_str), permit);
        let (rate, upper) = (get("throughput_pps"), get("upper_bound_pps"));
        // In half a second the box serves its capacity, and keeps two more and one in service.
        let capacity = 1e6 / service_us;
        assert!(rate >= capacity * 0.998 && rate <= capacity + 6.1, "{conditions} {permit}: {rate}, not {capacity}");
        assert!(upper >= capacity && upper <= rate * 1.0025, "{rate} to {upper}");
        let share = get("of_baseline_percent");
        assert!((share - 5_000.0 / service_us).abs() < 0.3, "{conditions} {permit}: {share} %");
        // At half the lowest throughput nothing waits.
        let latency = get("latency_p50_us");
        assert!((latency - service_us - 10.0).abs() < 0.05 * service_us, "{conditions} {permit}: {latency} us");
        let latency_share = get("latency_percent");
        assert!((latency_share - (service_us + 10.0) / 0.6).abs() < 1.0, "{latency_share} %");
        assert_eq!((get("permitted_lost"), get("denied") > 500.0), (0.0, true));
        let load = 1e6 / 75.0 / 2.0;
        assert!((get("load_pps") - load).abs() < load * 0.01, "{}", get("load_pps"));
    }
    assert_eq!(get(&memory, 0, "leaked"), None);
    assert!((1..6).all(|row| get(&memory, row, "leaked") == Some(0.0)));
    assert_eq!((rank(&memory, "filters_64_leaked"), rank(&memory, "filters_64_denied")), (Some(0.0), Some(0.0)));
    assert_eq!(rank(&memory, "filters_64_10_pps"), get(&memory, 2, "throughput_pps"));
    assert_eq!(rank(&memory, "filters_64_10_percent"), get(&memory, 2, "of_baseline_percent"));
    assert_eq!(rank(&memory, "latency_filters_64_10_percent"), get(&memory, 2, "latency_percent"));

    // The device counts the same frames, rule by rule.
    let sorting = sorting(&memory);
    assert_eq!(sorting.len(), 5);
    for (trial, (conditions, permit, _)) in sorting.into_iter().zip(&cases[1..]) {
        let offered = |group: &str| trial.result.groups.iter().find(|counts| counts.group == group).unwrap().offered;
        assert!(trial.filtered && offered("denied") > 500);
        assert_eq!(counter(trial, "truth.dropped.filtered"), offered("denied"));
        let permitted_by = if *permit == "first" { 0 } else { conditions - 1 };
        assert_eq!(counter(trial, &format!("filter{permitted_by}.matches")), offered("permitted"));
        assert_eq!(counter(trial, &format!("filter{conditions}.matches")), offered("denied"));
        let matched = trial.result.dut_counters.keys().filter(|name| name.ends_with(".matches")).count();
        assert_eq!(matched, 2, "no other rule matches: {:?}", trial.result.dut_counters);
    }
    assert!(memory.outcome("filters").tables.iter().all(|table| table.key != "filters_wrong"));
}

#[test]
fn filters_stand_in_the_way_of_mixed_traffic_as_of_any_other() {
    // One frame of seven is IPv6; service takes 50 us, and 10 us for ten rules.
    let mixed = "families: [ipv4, ipv6], ipv6_share: 15, ipv6_frame_size: 128";
    let memory =
        filters(", filter_time_per_rule: 1 us", &format!("{ONE_WAY}, {mixed}, conditions: [10], permit: [last]"));
    let share = rank(&memory, "filters_64_10_percent").unwrap();
    assert!((share - 5_000.0 / 60.0).abs() < 0.3, "{share} %");
    assert_eq!((rank(&memory, "filters_64_leaked"), rank(&memory, "filters_64_denied")), (Some(0.0), Some(0.0)));
    let sorting = sorting(&memory);
    assert_eq!(sorting.len(), 1);
    let offered = |family: &str, group: &str| -> f64 {
        let of = |flow: &&drophammer_model::trial::FlowSpec| flow.family.to_string() == family && flow.group == group;
        sorting[0].spec.flows.iter().filter(of).map(|flow| flow.weight).sum()
    };
    for group in ["permitted", "denied"] {
        assert_eq!((offered("IPv4", group), offered("IPv6", group)), (85.0, 15.0));
    }
}

#[test]
fn a_filter_that_costs_a_tenth_is_found_to() {
    // 50 µs of 55.55.
    let memory = filters(", filter_time_per_rule: 555 ns", &format!("{ONE_WAY}, conditions: [10], permit: [last]"));
    let share = rank(&memory, "filters_64_10_percent").unwrap();
    assert!((share - 90.0).abs() < 0.3, "{share} %");
    let free = filters("", &format!("{ONE_WAY}, conditions: [10], permit: [last]"));
    let share = rank(&free, "filters_64_10_percent").unwrap();
    assert!((share - 100.0).abs() < 0.3, "{share} %");
}

/// The rate of a router without filters is unknown, and so is the share of it that is left with filters.
#[test]
fn a_baseline_that_is_only_a_bound_gives_no_share() {
    let memory = filters(
        ", filter_time_per_rule: 1 us",
        &format!("{ONE_WAY}, conditions: [10], permit: [last], max_load: 10 kfps"),
    );
    let outcome = memory.outcome("filters");
    for row in 0..2 {
        assert_eq!(get(&memory, row, "throughput_pps"), Some(10_000.0));
        assert_eq!(get(&memory, row, "of_baseline_percent"), None);
    }
    let marks = &rows(outcome, TABLE)[1].marks;
    assert!(marks.iter().any(|mark| mark.starts_with("share unknown")), "{marks:?}");
    let keys: Vec<&str> = outcome.ranks.iter().filter(|r| r.value.is_some()).map(|r| r.key.as_str()).collect();
    assert!(keys.contains(&"filters_64_10_pps") && !keys.contains(&"filters_64_10_percent"), "{keys:?}");
}

#[test]
fn one_leaked_frame_is_counted_and_named() {
    let params = format!("{ONE_WAY}, conditions: [1, 10]");
    let all = |memory: &Memory| -> u64 { sorting(memory).iter().map(|t| counter(t, "truth.dropped.filtered")).sum() };
    let denied = all(&filters("", &params));
    // Only the last frame but one of the last case leaks.
    let memory = filters(&format!(", filter_leak_every: {}", denied - 1), &params);
    assert_eq!(all(&memory), denied - 1);
    assert_eq!(rank(&memory, "filters_64_leaked"), Some(1.0));
    let leaked: Vec<_> = (1..4).map(|row| get(&memory, row, "leaked").unwrap()).collect();
    assert_eq!(leaked, [0.0, 0.0, 1.0]);
    let marks = &rows(memory.outcome("filters"), TABLE)[3].marks;
    assert!(marks.iter().any(|mark| mark == "leaked 1 frames that it denies"), "{marks:?}");
    let wrong = texts(&memory, "filters_wrong", 0);
    assert_eq!(wrong[..5], ["64", "ingress", "first", "leaked", "p1 to p2, IPv4, UDP port 7"]);
    assert!(wrong[5].starts_with("198.19."), "{wrong:?}");
    assert_eq!(rows(memory.outcome("filters"), "filters_wrong").len(), 1);
    let trial = sorting(&memory)[2];
    assert_eq!(counter(trial, "truth.leaked"), 1);
}

#[test]
fn a_filter_that_denies_too_much_is_found_and_named() {
    let memory = filters(", filter_deny_every: 50", &format!("{ONE_WAY}, conditions: [10]"));
    assert!(get(&memory, 0, "throughput_pps").unwrap() > 19_000.0);
    for row in [1, 2] {
        // At a few frames per second a trial may by chance lose none.
        assert!(get(&memory, row, "throughput_pps").is_none_or(|pps| pps < 500.0), "it loses frames at every load");
        let lost = get(&memory, row, "permitted_lost").unwrap();
        assert!(lost >= 2.0, "{lost}");
        assert_eq!(lost as u64, counter(sorting(&memory)[row - 1], "truth.dropped.fault_filter"));
        assert_eq!(get(&memory, row, "leaked"), Some(0.0));
    }
    let denied = (1..3).map(|row| get(&memory, row, "permitted_lost").unwrap()).sum();
    assert_eq!(rank(&memory, "filters_64_denied"), Some(denied));
    let named = texts(&memory, "filters_wrong", 0);
    assert_eq!(named[3..5], ["denied", "p1 to p2, IPv4, UDP port 9"]);
    let frames: f64 = (0..rows(memory.outcome("filters"), "filters_wrong").len())
        .map(|row| cell(memory.outcome("filters"), "filters_wrong", row, "frames").unwrap())
        .sum();
    assert_eq!(frames, denied);
}

#[test]
fn both_directions_families_and_sides_hold() {
    let memory = filters(
        ", filter_time_per_rule: 1 us",
        "families: [ipv4, ipv6], frame_sizes: [78], conditions: [25], filter_at: [ingress, egress]",
    );
    // Of the rules of both families only those of a frame's own family are examined. Both ports share the box.
    for (row, looked_at) in [(1, 25.0), (2, 1.0), (3, 25.0), (4, 1.0)] {
        let share = get(&memory, row, "of_baseline_percent").unwrap();
        assert!((share - 5_000.0 / (50.0 + looked_at)).abs() < 0.5, "row {row}: {share} %");
        assert_eq!((get(&memory, row, "leaked"), get(&memory, row, "permitted_lost")), (Some(0.0), Some(0.0)));
    }
    for trial in sorting(&memory) {
        let denied = trial.result.groups.iter().find(|counts| counts.group == "denied").unwrap();
        assert_eq!((counter(trial, "truth.dropped.filtered"), denied.received), (denied.offered, 0));
    }
    let lists = &changes(&memory)[1].lists;
    assert_eq!((lists.len(), lists[0].rules.len()), (2, 51));
}

#[test]
fn filters_are_recorded_and_taken_back_whatever_becomes_of_the_test() {
    let rest = "defaults: {frame_sizes: [64], pause: 1 ms, direction: unidirectional}\ntests:\n  \
                - filters: {final_trial_duration: 100 ms, trial_duration: 50 ms, conditions: [10], permit: [last]}\n  \
                - forwarding_rate: {trial_duration: 100 ms, repeats: 1}\n";
    let suite = suite(", capacity: 20 kfps, buffer: 2, filter_time_per_rule: 50 us", rest);
    let mut whole = Memory::default();
    assert_eq!(run(&suite, &mut whole).unwrap().completed, 2);
    let rules: Vec<usize> = changes(&whole).iter().map(|filter| filter.lists.len()).collect();
    // None and one for the throughput, the same for the other conditions, none at the end.
    assert_eq!(rules, [0, 1, 0, 1, 0]);
    let rule = |n: usize| changes(&whole)[1].lists[0].rules[n].to_string();
    assert_eq!(rule(0), "deny 198.18.65.1/32 -> 198.18.100.100/32");
    assert_eq!(rule(9), "permit udp 198.18.64.0/18 -> 198.19.64.0/18 port 9");
    assert_eq!(rule(10), "deny any -> any");
    let rate = cell(whole.outcome("forwarding_rate"), "forwarding_rate", 0, "forwarding_rate_pps").unwrap();
    assert!(rate > 19_000.0, "{rate}");

    // The user stops the run while the filter is set.
    let filtered = whole.trials().iter().position(|trial| trial.filtered).unwrap();
    let mut stopped = Memory { stop_after: Some(filtered + 1), ..Memory::default() };
    assert!(run(&suite, &mut stopped).is_err());
    let rules: Vec<usize> = changes(&stopped).iter().map(|filter| filter.lists.len()).collect();
    assert_eq!(rules, [0, 1, 0]);
}

/// The test `route_filtering` on a device that serves 20,000 frames per second, half of which is the load.
fn route_filtering(device: &str, params: &str) -> Memory {
    let rate = if params.contains("rate:") { "" } else { "rate: 10 kfps, " };
    let rest = format!("bgp: {{}}\ntests:\n  - route_filtering: {{routes: 100, pause: 1 ms, {rate}{params}}}\n");
    let mut memory = Memory::default();
    let tally = run(&suite(&format!(", capacity: 20 kfps, buffer: 2, delay: 10 us{device}"), &rest), &mut memory);
    let status = memory.tests().last().map(|test| test.status.clone());
    assert_eq!(tally.unwrap().completed, 1, "{device}: {status:?}");
    memory
}

fn figure(memory: &Memory, key: &str) -> Option<f64> {
    let ranks = &memory.outcome("route_filtering").ranks;
    ranks.iter().find(|r| r.key == key).unwrap_or_else(|| panic!("no {key}: {ranks:?}")).value
}

#[test]
fn half_of_the_routes_pass_and_not_a_frame_of_the_others() {
    let memory = route_filtering("", "filter_at: [ingress, egress]");
    let outcome = memory.outcome("route_filtering");
    let get = |row, column| cell(outcome, "route_filtering", row, column).unwrap();
    assert_eq!(rows(outcome, "route_filtering").len(), 7);
    // None; then on each side: allow, deny, both.
    for (row, rules, expected) in [
        (0, 0.0, 100.0),
        (1, 50.0, 100.0),
        (2, 50.0, 50.0),
        (3, 100.0, 50.0),
        (4, 50.0, 100.0),
        (5, 50.0, 50.0),
        (6, 100.0, 50.0),
    ] {
        assert_eq!((get(row, "rules"), get(row, "expected_percent")), (rules, expected), "row {row}");
        assert!((get(row, "of_baseline_percent") - expected).abs() < 0.2, "{}", get(row, "of_baseline_percent"));
        assert_eq!((get(row, "permitted_lost"), get(row, "leaked")), (0.0, 0.0));
        assert!((get(row, "latency_percent") - 100.0).abs() < 1.0 && get(row, "permitted") >= 2_500.0);
        assert_eq!(get(row, "denied") > 0.0, expected < 100.0);
    }
    // The plots draw both shares, case by case.
    for (key, column) in [("route_filtering", "of_baseline_percent"), ("route_filtering_latency", "latency_percent")] {
        let plot = outcome.plots.iter().find(|plot| plot.key == key).unwrap_or_else(|| panic!("no plot {key}"));
        assert_eq!(plot.series.len(), 1, "{key}");
        let points = &plot.series[0].points;
        assert_eq!(points.iter().map(|p| p.y).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6].map(|row| get(row, column)));
        let labels: Vec<&str> = points.iter().filter_map(|point| point.label.as_deref()).collect();
        let [allow, deny, both] = ["allow, ingress", "deny, ingress", "both, ingress"];
        assert_eq!(labels, ["none", allow, deny, both, "allow, egress", "deny, egress", "both, egress"], "{key}");
    }
    assert_eq!(figure(&memory, "route_filtering_ipv4_leaked"), Some(0.0));
    assert!((figure(&memory, "route_filtering_ipv4_64_percent").unwrap() - 100.0).abs() < 0.5);
    for trial in sorting(&memory) {
        let denied = trial.result.groups.iter().find(|counts| counts.group == "denied").unwrap();
        assert_eq!(counter(trial, "truth.dropped.filtered"), denied.offered);
    }
    assert_eq!(changes(&memory).last().unwrap().lists, []);
}

#[test]
fn one_leaked_frame_of_half_the_routes_is_named_by_its_route() {
    let denied: u64 =
        sorting(&route_filtering("", "actions: [deny]")).iter().map(|t| counter(t, "truth.dropped.filtered")).sum();
    let memory = route_filtering(&format!(", filter_leak_every: {denied}"), "actions: [deny]");
    let outcome = memory.outcome("route_filtering");
    assert_eq!(figure(&memory, "route_filtering_ipv4_leaked"), Some(1.0));
    assert_eq!(cell(outcome, "route_filtering", 1, "leaked"), Some(1.0));
    assert_eq!(rows(outcome, "route_filtering_leaks").len(), 1);
    let Cell::Text(route) = &rows(outcome, "route_filtering_leaks")[0].cells[4] else { panic!("no route") };
    let denies = |rule: &drophammer_model::filter::FilterRule| rule.to_string() == format!("deny any -> {route}");
    assert!(changes(&memory)[1].lists[0].rules.iter().any(denies), "{route}");
}

#[test]
fn leaked_frames_do_not_make_up_for_lost_ones() {
    // All frames that must be denied pass, and every second one that must pass is lost.
    let memory = route_filtering(", filter_leak_every: 1, filter_deny_every: 2", "actions: [deny]");
    let get = |column| cell(memory.outcome("route_filtering"), "route_filtering", 1, column).unwrap();
    assert_eq!((get("leaked"), get("expected_percent")), (get("denied"), 50.0));
    assert!((get("permitted_lost") / get("permitted") - 0.5).abs() < 0.001, "{}", get("permitted_lost"));
    assert!((get("of_baseline_percent") - 75.0).abs() < 0.5, "{}", get("of_baseline_percent"));
    let share = figure(&memory, "route_filtering_ipv4_64_percent").unwrap();
    assert!((share - 50.0).abs() < 0.5, "{share}");
    assert_eq!(figure(&memory, "route_filtering_ipv4_leaked"), Some(get("denied")));
}

const MESHED: &str = "rate: 5 kfps, distribution: fully_meshed, frame_sizes: [ip40, imix-2001]";

#[test]
fn half_of_the_routes_behind_every_port_pass() {
    let memory = route_filtering("", &format!("{MESHED}, filter_at: [ingress, egress]"));
    let outcome = memory.outcome("route_filtering");
    let get = |row, column| cell(outcome, "route_filtering", row, column).unwrap();
    // Seven cases of each size.
    assert_eq!(rows(outcome, "route_filtering").len(), 14);
    for row in 0..14 {
        let (rules, expected) =
            [(0.0, 100.0), (50.0, 100.0), (50.0, 50.0), (100.0, 50.0)][[0, 1, 2, 3, 1, 2, 3][row % 7]];
        assert_eq!((get(row, "rules"), get(row, "routes")), (rules, 100.0), "row {row}");
        assert!((get(row, "expected_percent") - expected).abs() < 0.2, "{}", get(row, "expected_percent"));
        assert!((get(row, "of_baseline_percent") - expected).abs() < 0.5, "{}", get(row, "of_baseline_percent"));
        assert_eq!((get(row, "permitted_lost"), get(row, "leaked")), (0.0, 0.0));
    }
    assert_eq!(figure(&memory, "route_filtering_ipv4_leaked"), Some(0.0));
    for key in ["route_filtering_ipv4_ip40_percent", "route_filtering_ipv4_imix-2001_percent"] {
        assert!((figure(&memory, key).unwrap() - 100.0).abs() < 0.5);
    }
    for trial in sorting(&memory) {
        let denied = trial.result.groups.iter().find(|counts| counts.group == "denied").unwrap();
        assert_eq!(counter(trial, "truth.dropped.filtered"), denied.offered);
    }
    let filters = changes(&memory);
    assert_eq!((filters[1].lists[0].interfaces.len(), filters.last().unwrap().lists.len()), (2, 0));
    // A router that stores rules of one action in a set has at most two of them.
    for list in filters.iter().flat_map(|filter| &filter.lists) {
        assert!(list.rules.is_sorted_by_key(|rule| rule.deny), "{:?}", list.rules);
    }
}

#[test]
fn one_leaked_frame_of_meshed_traffic_is_named_by_its_route() {
    let params = format!("{MESHED}, actions: [both]");
    let denied: u64 = sorting(&route_filtering("", &params)).iter().map(|t| counter(t, "truth.dropped.filtered")).sum();
    let memory = route_filtering(&format!(", filter_leak_every: {denied}"), &params);
    let outcome = memory.outcome("route_filtering");
    assert_eq!(figure(&memory, "route_filtering_ipv4_leaked"), Some(1.0));
    assert_eq!(rows(outcome, "route_filtering_leaks").len(), 1);
    let cells = &rows(outcome, "route_filtering_leaks")[0].cells;
    let (Cell::Text(size), Cell::Text(route)) = (&cells[1], &cells[4]) else { panic!("{cells:?}") };
    let denies = |rule: &drophammer_model::filter::FilterRule| rule.to_string() == format!("deny any -> {route}");
    assert!(size == "imix-2001" && changes(&memory)[1].lists[0].rules.iter().any(denies), "{size} {route}");
}

#[test]
fn rules_that_take_time_lower_the_rate_and_raise_the_latency() {
    // On average 25 rules before the one of a denied route, 50 for a frame that none matches: 50 µs become 100, the load.
    let memory = route_filtering(", filter_time_per_rule: 2 us", "actions: [deny]");
    let outcome = memory.outcome("route_filtering");
    let get = |column| cell(outcome, "route_filtering", 1, column).unwrap();
    // Half of the frames are served, each for 150 µs: 6,667 of 10,000 could be, and 5,000 are offered.
    assert!((get("of_baseline_percent") - 50.0).abs() < 0.5, "{}", get("of_baseline_percent"));
    assert!(get("latency_percent") > 200.0, "{}", get("latency_percent"));
    let drawn = outcome.plots.iter().find(|plot| plot.key == "route_filtering_latency").unwrap();
    assert_eq!([0, 1].map(|at| drawn.series[0].points[at].y), [100.0, get("latency_percent")]);
    let slow = route_filtering(", filter_time_per_rule: 10 us", "actions: [deny]");
    // 550 µs each: 1,818 of 5,000.
    let share = cell(slow.outcome("route_filtering"), "route_filtering", 1, "of_baseline_percent").unwrap();
    assert!((share - 18.18).abs() < 0.5, "{share}");
    assert!((figure(&slow, "route_filtering_ipv4_64_percent").unwrap() - 36.36).abs() < 1.0);
}
