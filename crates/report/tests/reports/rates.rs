//! Rates in bits, as shares of the line, and per second of the DUT's processor time.

use crate::synthetic::{files, rate};
use drophammer_model::medium::Medium;
use drophammer_model::record::TestRecord;
use drophammer_model::trial::{AddressRange, Family, FlowDuration, FlowSchedule, FlowSpec};
use drophammer_store::Run;
use serde_json::Value;

/// A flow from the first port.
fn flow(family: Family) -> FlowSpec {
    let range = |first: &str| AddressRange { first: first.parse().unwrap(), step: 1, count: 1 };
    let (source, destination) = match family {
        Family::Ipv4 => (range("198.18.0.1"), range("198.19.0.1")),
        Family::Ipv6 => (range("2001:2::1"), range("2001:2:1::1")),
    };
    FlowSpec {
        group: family.to_string(),
        from: 0,
        to: 1,
        also: vec![],
        family,
        sources: source,
        destinations: destination.into(),
        cycle: 0,
        per_destination: false,
        ipdv: false,
        weight: 1.0,
        denied: false,
        background: false,
        lenient: false,
        headers: vec![],
        arrives: None,
        size: None,
        schedule: None,
    }
}

/// A run of one DUT whose trials send these families.
fn run(families: &[Family]) -> Run {
    let mut run = crate::synthetic::run(1);
    for t in &mut run.trials {
        t.spec.flows = families.iter().map(|f| flow(*f)).collect();
    }
    run
}

/// The JSON report, the page and the table of throughput as CSV.
fn report(run: &Run) -> (Value, String, String) {
    let [json, html, csv] = files(run, ["report.json", "report.html", "csv/throughput.csv"]);
    (serde_json::from_str(&json).unwrap(), html, csv)
}

fn close(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap_or(f64::NAN);
    assert!((value / expected - 1.0).abs() < 1e-9, "{value} is not {expected}");
}

#[test]
fn ethernet_has_preamble_and_gap_on_the_line_and_the_fcs_in_the_bits() {
    let (json, html, csv) = report(&run(&[Family::Ipv4]));
    let cells = &json["tests"][0]["tables"][0]["rows"][0]["cells"];
    close(&cells["throughput_l2_mbps"], rate(0, 64) * 64.0 * 8.0 / 1e6);
    close(&cells["throughput_line_percent"], rate(0, 64) * 84.0 * 8.0 / 1e10 * 100.0);
    let figure = &json["ranking"]["figures"][0]["duts"][0];
    assert_eq!(json["ranking"]["figures"][0]["key"], "throughput_64_pps");
    close(&figure["l2_mbps"], rate(0, 64) * 64.0 * 8.0 / 1e6);
    close(&figure["line_percent"], rate(0, 64) * 84.0 * 8.0 / 1e10 * 100.0);
    assert_eq!(json["ranking"]["figures"][2]["unit"], "\u{b5}s");
    assert_eq!(json["ranking"]["figures"][2]["duts"][0]["l2_mbps"], Value::Null, "a time has no bits");
    assert!(html.contains("414.3\u{a0}Mbit/s, 5.44\u{a0}% of line"), "{html}");
    for words in files(&run(&[Family::Ipv4]), ["report.txt", "report.md"]) {
        let (_, bits) =
            words.split_once("Rates in bits, as shares of the line and of all ports together").expect("their table");
        assert!(bits.contains("414.3\u{a0}Mbit/s, 5.44\u{a0}% of line"), "{words}");
    }
    assert!(csv.starts_with("dut,frame_bytes,theoretical_pps,offered_pps,throughput_pps,of_line_percent,width_percent,throughput_l2_mbps,throughput_line_percent,frames_per_cpu_s,marks,trials\r\n"), "{csv}");
}

#[test]
fn a_sonet_line_carries_packets_in_ppp() {
    let mut run = run(&[Family::Ipv4]);
    run.duts[0].ports[0].medium = Medium::PppOverSonet { fcs32: true };
    run.duts[0].ports[0].speed_bps = 2_488_320_000;
    let cells = &report(&run).0["tests"][0]["tables"][0]["rows"][0]["cells"];
    // A frame of 64 bytes has a packet of 46; PPP adds 9. SONET keeps 10 of 270 columns.
    let line = 2_488_320_000.0 * 260.0 / 270.0 / (8.0 * 55.0);
    close(&cells["throughput_line_percent"], rate(0, 64) / line * 100.0);
}

#[test]
fn ipv6_frames_that_had_to_grow_count_as_they_are() {
    let cells = &report(&run(&[Family::Ipv4, Family::Ipv6])).0["tests"][0]["tables"][0]["rows"][0]["cells"];
    close(&cells["throughput_l2_mbps"], rate(0, 64) * (64.0 + 78.0) / 2.0 * 8.0 / 1e6);
}

#[test]
fn what_is_not_known_is_left_out() {
    let mut unknown = run(&[Family::Ipv4]);
    unknown.duts[0].ports[0].speed_bps = 0;
    let (json, html, csv) = report(&unknown);
    assert!(json["tests"][0]["tables"][0]["rows"][0]["cells"].get("throughput_l2_mbps").is_none());
    assert!(!html.contains("of line</small>") && !csv.contains("l2_mbps"));
    let mut own = run(&[Family::Ipv4]);
    let schedule = FlowSchedule { rate_pps: 1_000.0, delay_s: 0.0, duration: FlowDuration::Continuous };
    own.trials.iter_mut().for_each(|t| t.spec.flows[0].schedule = Some(schedule));
    assert!(!report(&own).2.contains("l2_mbps"), "flows with rates of their own");
}

#[test]
fn flows_with_sizes_of_their_own_count_with_them() {
    let mut own = run(&[Family::Ipv4]);
    own.trials.iter_mut().for_each(|t| t.spec.flows[0].size = Some("1518".parse().unwrap()));
    let cells = &report(&own).0["tests"][0]["tables"][0]["rows"][0]["cells"];
    // The line of the port with the longer frames is the slower one.
    close(&cells["throughput_l2_mbps"], rate(0, 64) * 1518.0 * 8.0 / 1e6);
    close(&cells["throughput_line_percent"], rate(0, 64) * 1538.0 * 8.0 / 1e10 * 100.0);
}

#[test]
fn processor_time_is_that_of_trials_near_the_figure() {
    let mut made = run(&[Family::Ipv4]);
    let first = made.trials.iter().position(|t| t.result.trial == 1).unwrap();
    let received: u64 = made.trials[first].result.groups.iter().map(|g| g.received).sum();
    // The second trial of the row forwards far less than the figure, so its times and shares must not matter.
    made.trials[first].result.elapsed_s = 77.0;
    made.trials[first].result.sending_s = 1.25;
    made.trials[first].result.dut_cpu = Some(0.1);
    made.trials[first].result.health.dut_used_ns = Some(625_000_000);
    for g in &mut made.trials[first + 1].result.groups {
        g.received /= 2;
    }
    let cells = &report(&made).0["tests"][0]["tables"][0]["rows"][0]["cells"];
    close(&cells["frames_per_cpu_s"], received as f64 / 0.625);
    // A fifth of it was work for the tester.
    made.trials[first].result.health.tester_on_dut_ns = Some(125_000_000);
    let (json, html, csv) = report(&made);
    let cells = &json["tests"][0]["tables"][0]["rows"][0]["cells"];
    close(&cells["frames_per_cpu_s"], received as f64 / 0.5);
    close(&cells["tester_on_dut_percent"], 20.0);
    assert!(csv.contains("tester_on_dut_percent"));
    assert!(html.contains("without the tester's 20") && html.contains("(20\u{a0}%)"));
    for t in &mut made.trials {
        t.result.health.dut_used_ns = None;
    }
    let (json, html, _) = report(&made);
    assert!(json["tests"][0]["tables"][0]["rows"][0]["cells"].get("frames_per_cpu_s").is_none());
    assert!(!html.contains("Per processor second"));
}

#[test]
fn rates_of_a_test_that_the_suite_has_twice_name_the_test() {
    let mut run = run(&[Family::Ipv4]);
    run.started.tests.push(("throughput".into(), "Throughput".into()));
    let second = TestRecord { id: Some("swap".into()), ..run.tests[0].clone() };
    run.tests.push(second);
    let mut own = crate::synthetic::trial(7_000, "linux", "throughput", 64, 3e5, 0);
    own.spec.flows = vec![flow(Family::Ipv4)];
    run.trials.push(own);
    run.earlier.insert(7_000, 1);
    let [markdown] = files(&run, ["report.md"]);
    let (_, bits) =
        markdown.split_once("### Rates in bits, as shares of the line and of all ports together").expect("their table");
    let bits = bits.split("\n## ").next().unwrap();
    for title in ["Throughput, 64 bytes \u{2013} Throughput", "Throughput, 64 bytes \u{2013} Throughput (swap)"] {
        assert_eq!(bits.matches(&format!("| {title} |")).count(), 1, "{title}: {bits}");
    }
}

/// A test of mixes sends frames of one size with different shares of IPv6, so the bits of one mix do not apply to
/// another.
#[test]
fn bits_of_another_mix_of_families_are_not_shown() {
    let mut run = run(&[Family::Ipv4]);
    let second = run.duts[0].ports[0].clone();
    run.duts[0].ports.push(second);
    let back = FlowSpec { from: 1, to: 0, ..flow(Family::Ipv4) };
    run.trials.iter_mut().for_each(|trial| trial.spec.flows.push(back.clone()));
    let entry = |run: &Run| report(run).0["ranking"]["figures"][0]["duts"][0].clone();
    let alike = entry(&run);
    close(&alike["l2_mbps"], rate(0, 64) * 64.0 * 8.0 / 1e6);
    close(&alike["all_ports_pps"], rate(0, 64) * 2.0);
    let of_size = |trial: &&mut drophammer_model::record::TrialRecord| trial.spec.size.to_string() == "64";
    let mixed = run.trials.iter_mut().filter(of_size).last().unwrap();
    mixed.spec.flows = vec![flow(Family::Ipv6), back.clone()];
    let entry_mixed = entry(&run);
    assert_eq!((&entry_mixed["l2_mbps"], &entry_mixed["line_percent"]), (&Value::Null, &Value::Null));
    close(&entry_mixed["all_ports_pps"], rate(0, 64) * 2.0);
    // If the number of sending ports also differs, nothing is known.
    let one_way = run.trials.iter_mut().filter(of_size).last().unwrap();
    one_way.spec.flows = vec![flow(Family::Ipv4)];
    assert_eq!(entry(&run)["all_ports_pps"], Value::Null);
}
