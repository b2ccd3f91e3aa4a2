//! The test `extension_headers` on reference devices in virtual time that need a known time for extension headers, or
//! lose packets with them.

use crate::common::*;
use drophammer_model::record::TrialRecord;
use drophammer_model::traffic::{Extension, Header};

/// The test with these parameters on a device that serves 20,000 frames per second.
fn extension_headers(device: &str, params: &str) -> Memory {
    let size = if params.contains("frame_sizes") { "" } else { "frame_sizes: [128], " };
    let rest = format!(
        "defaults: {{direction: unidirectional, pause: 1 ms}}\ntests:\n  - extension_headers: {{final_trial_duration: 500 ms, \
         width: 0.2, trial_duration: 200 ms, ask_after: 100 ms, {size}{params}}}\n"
    );
    let mut memory = Memory::default();
    let tally = run(&suite(&format!(", capacity: 20 kfps, buffer: 2, delay: 10 us{device}"), &rest), &mut memory);
    let status = memory.tests().last().map(|test| test.status.clone());
    assert_eq!(tally.unwrap().completed, 1, "{device}: {status:?}");
    memory
}

fn get(memory: &Memory, table: &str, row: usize, column: &str) -> Option<f64> {
    cell(memory.outcome("extension_headers"), table, row, column)
}

fn figure(memory: &Memory, key: &str) -> Option<f64> {
    let ranks = &memory.outcome("extension_headers").ranks;
    ranks.iter().find(|r| r.key == key).unwrap_or_else(|| panic!("no {key}: {ranks:?}")).value
}

fn marks(memory: &Memory, table: &str, row: usize) -> Vec<String> {
    rows(memory.outcome("extension_headers"), table)[row].marks.clone()
}

/// The extension headers of a trial's packets.
fn sent(trial: &TrialRecord) -> Vec<Extension> {
    let headers = trial.spec.flows.iter().flat_map(|flow| &flow.headers);
    headers.flat_map(|h| if let Header::Ipv6(ipv6) = h { ipv6.extensions.clone() } else { vec![] }).collect()
}

#[test]
fn headers_cost_what_the_device_says() {
    // Service takes 50 us, and as much again for extension headers.
    let memory = extension_headers(", extension_time: 50 us", "hop_by_hop_loads: [1]");
    let bytes = [0.0, 8.0, 24.0, 8.0, 40.0];
    assert_eq!(rows(memory.outcome("extension_headers"), "extension_headers").len(), bytes.len());
    for (row, bytes) in bytes.into_iter().enumerate() {
        let share = if row == 0 { 100.0 } else { 50.0 };
        let of = |column| get(&memory, "extension_headers", row, column).unwrap();
        assert_eq!((of("header_bytes"), of("lost")), (bytes, 0.0), "row {row}");
        assert!((of("of_baseline_percent") - share).abs() < 0.5, "row {row}: {}", of("of_baseline_percent"));
        // 60 us without, 110 us with, at a load below both capacities.
        let latency = if row == 0 { 60.0 } else { 110.0 };
        assert!((of("latency_p50_us") - latency).abs() < 0.5, "row {row}: {}", of("latency_p50_us"));
        assert!((of("latency_percent") - latency / 60.0 * 100.0).abs() < 1.0, "row {row}: {}", of("latency_percent"));
    }
    for headers in ["destination_options", "routing", "fragment", "chain"] {
        let share = figure(&memory, &format!("extension_headers_128_{headers}_percent")).unwrap();
        assert!((share - 50.0).abs() < 0.5, "{headers}: {share}");
    }
    // The chain of RFC 5180 section 5.3, in the order of RFC 8200 section 4.1.
    let longest = memory.trials().into_iter().map(sent).max_by_key(Vec::len).unwrap();
    let is = |n: usize, wanted: fn(&Extension) -> bool| wanted(&longest[n]);
    assert!(is(0, |e| matches!(e, Extension::Routing { segments_left: 0, .. })), "{longest:?}");
    assert!(is(1, |e| matches!(e, Extension::Fragment { more: false, .. })), "{longest:?}");
    assert!(is(2, |e| matches!(e, Extension::DestinationOptions { .. })) && longest.len() == 3, "{longest:?}");
}

#[test]
fn a_router_that_drops_packets_with_headers_is_found() {
    let memory = extension_headers(
        ", extension_drop_every: 20",
        "headers: [routing], hop_by_hop_loads: [1, 10], search_duration_max: 600 s",
    );
    assert!(get(&memory, "extension_headers", 0, "throughput_pps").unwrap() > 19_000.0);
    // At a few frames per second a trial may by chance lose none.
    assert!(get(&memory, "extension_headers", 1, "throughput_pps").is_none_or(|pps| pps < 100.0));
    assert!(figure(&memory, "extension_headers_128_routing_percent").unwrap() < 0.5);
    for (row, percent) in [1.0, 10.0].into_iter().enumerate() {
        let of = |column| get(&memory, "hop_by_hop", row, column).unwrap();
        assert_eq!((of("percent"), of("without_loss_percent")), (percent, 0.0));
        assert!((of("loss_percent") - 5.0).abs() < 1.0, "{}", of("loss_percent"));
        assert!(of("asked") >= 4.0 && of("asked") == of("answered"), "{} of {}", of("answered"), of("asked"));
        // 84,459 frames of 128 bytes in a second of 100 Mbit/s.
        assert!((of("offered_pps") - 844.59 * percent).abs() < 844.59 * percent * 0.01, "{}", of("offered_pps"));
    }
    let lost: u64 = memory.trials().into_iter().filter(|t| !sent(t).is_empty()).map(|t| t.result.lost()).sum();
    let dropped = |t: &&TrialRecord| t.result.dut_counters.get("truth.dropped.fault_extension").copied().unwrap_or(0);
    let buffer = |t: &&TrialRecord| t.result.dut_counters.get("truth.dropped.buffer").copied().unwrap_or(0);
    let with: Vec<_> = memory.trials().into_iter().filter(|t| !sent(t).is_empty()).collect();
    assert_eq!(lost, with.iter().map(|t| dropped(t) + buffer(t)).sum::<u64>());
}

#[test]
fn a_router_that_forwards_no_hop_by_hop_options_says_so() {
    let memory = extension_headers(", extension_drop_every: 1", "headers: [fragment], hop_by_hop_loads: [10]");
    assert_eq!(marks(&memory, "hop_by_hop", 0), ["forwards no packet with hop-by-hop options"]);
    assert_eq!(get(&memory, "hop_by_hop", 0, "loss_percent"), Some(100.0));
    assert_eq!(get(&memory, "hop_by_hop", 0, "without_loss_percent"), Some(0.0));
}

#[test]
fn a_router_as_fast_as_the_line_has_no_share() {
    // 8,127 frames of 1,518 bytes are line rate, and the device serves 10,000 of them with headers: their cost does not show.
    let memory =
        extension_headers(", extension_time: 50 us", "frame_sizes: [1518], headers: [chain], hop_by_hop_loads: [1]");
    assert_eq!(marks(&memory, "extension_headers", 0), ["line rate"]);
    assert!(get(&memory, "extension_headers", 1, "throughput_pps").unwrap() > 8_000.0);
    assert_eq!(get(&memory, "extension_headers", 1, "of_baseline_percent"), None);
    let ranks = &memory.outcome("extension_headers").ranks;
    let share = ranks.iter().find(|rank| rank.key == "extension_headers_1518_chain_percent").unwrap();
    let why = share.missing.as_ref().map(|missing| missing.why.as_str());
    assert_eq!((share.value, why), (None, Some("the throughput without headers is only a lower bound")));
}

#[test]
fn headers_that_do_not_fit_are_left_out_and_named() {
    let memory = extension_headers("", "frame_sizes: [96], headers: [fragment, routing], hop_by_hop_loads: [1]")
        .outcome("extension_headers")
        .clone();
    assert_eq!(rows(&memory, "extension_headers").len(), 2);
    let said = "frames with these extension headers have at least 102 bytes, not 96";
    assert!(memory.notes.iter().any(|note| note.contains(said) && note.contains("with routing")), "{:?}", memory.notes);
}
