//! The test `class_of_service` on reference devices in virtual time: shares exact to the frame, and devices that share
//! wrongly.

use crate::common::*;
use drophammer_methods::Testbed;
use drophammer_model::Bandwidth;
use drophammer_model::classes::{EgressClasses, ServiceClass, WayOut};
use drophammer_model::outcome::Cell;
use drophammer_model::record::{ClassRecord, Record, TestStatus};
use drophammer_model::traffic::{Bits, Header, Ipv4, Udp};
use drophammer_model::trial::{Family, FlowSpec, GroupCounts, Load, TrialSpec};
use drophammer_reference::Truth;
use drophammer_rig::Ports;

const BOTH: [Family; 2] = [Family::Ipv4, Family::Ipv6];
const TEST: &str = "class_of_service";

/// The test with these parameters on a device with four ports of 100 Mbit/s (148,809 frames per second).
fn classes(device: &str, params: &str) -> Memory {
    let ports: String = (1..=4).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
    let text = format!(
        "suite: classes\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, delay: 10 us{device}}}\nports:\n{ports}tests:\n  \
         - {TEST}: {{trial_duration: 200 ms, pause: 1 ms, {params}}}\n"
    );
    let mut memory = Memory::default();
    run(&read_suite(&text), &mut memory).unwrap();
    memory
}

fn get(memory: &Memory, row: usize, column: &str) -> f64 {
    let value = cell(memory.outcome(TEST), TEST, row, column);
    value.unwrap_or_else(|| panic!("row {row} has no {column}: {:?}", memory.tests()[0].status))
}

fn verdict(memory: &Memory, row: usize) -> String {
    match rows(memory.outcome(TEST), TEST)[row].cells.last() {
        Some(Cell::Text(text)) => text.clone(),
        other => panic!("{other:?}"),
    }
}

fn rank(memory: &Memory, key: &str) -> f64 {
    let ranks = &memory.outcome(TEST).ranks;
    ranks.iter().find(|r| r.key == key).and_then(|r| r.value).unwrap_or_else(|| panic!("no {key}: {ranks:?}"))
}

fn column(memory: &Memory, rows: [usize; 3], column: &str) -> [f64; 3] {
    rows.map(|row| get(memory, row, column))
}

fn near(found: [f64; 3], expected: [f64; 3], by: f64) {
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= by), "{found:?}, not {expected:?}");
}

/// The records of each change of classes.
fn changes(memory: &Memory) -> Vec<&ClassRecord> {
    memory.records.iter().filter_map(|r| if let Record::Classes(classes) = r { Some(classes) } else { None }).collect()
}

const AS_IT_MUST: &str = "as it must";

#[test]
fn an_overloaded_way_out_is_shared_by_weight_to_the_frame() {
    let memory = classes("", "overload: [150, 300]");
    let (calm, half, full) = ([0, 1, 2], [3, 4, 5], [6, 7, 8]);
    assert!(
        (0..9).all(|row| verdict(&memory, row) == AS_IT_MUST),
        "{:?}",
        (0..9).map(|r| verdict(&memory, r)).collect::<Vec<_>>()
    );
    // 80 % in thirds: no frame waits for longer than for one frame of each other port.
    assert_eq!(column(&memory, calm, "lost"), [0.0; 3]);
    near(column(&memory, calm, "share_percent"), [100.0 / 3.0; 3], 0.01);
    assert!(column(&memory, calm, "latency_max_us").iter().all(|us| *us < 10.0 + 3.0 * 6.72 + 0.1));
    // Each offers half of the output port: gold needs less than its share, and the rest is shared four to one.
    near(column(&memory, half, "share_percent"), [50.0, 40.0, 10.0], 0.02);
    near(column(&memory, half, "expected_percent"), [50.0, 40.0, 10.0], 0.02);
    near(column(&memory, half, "error_points"), [0.0; 3], 0.01);
    assert_eq!(get(&memory, 3, "lost"), 0.0);
    // Each offers the full rate: the ratio is that of the weights.
    near(column(&memory, full, "share_percent"), [70.0, 20.0, 5.0].map(|w| w / 0.95), 0.02);
    for rows in [half, full] {
        let rate: f64 = column(&memory, rows, "received_pps").iter().sum();
        // 100 Mbit/s with 84 bytes per frame on the line; the bounds of a time bin may change the count by a frame.
        assert!((rate - 1e8 / 672.0).abs() < 60.0, "{rate}");
        // A full queue of 256 empties at the rate of its class.
        for row in rows.into_iter().filter(|row| get(&memory, *row, "lost") > 0.0) {
            let wait_us = 256.0 / get(&memory, row, "received_pps") * 1e6;
            let worst = get(&memory, row, "latency_max_us");
            assert!((worst / wait_us - 1.0).abs() < 0.06, "row {row}: {worst}, not {wait_us}");
        }
    }
    assert!(get(&memory, 3, "latency_max_us") < 100.0);
    // The plots draw shares and rates of both overloads.
    for (key, column) in [(TEST, "share_percent"), ("class_of_service_rate", "received_pps")] {
        let plot = memory.outcome(TEST).plots.iter().find(|plot| plot.key == key).unwrap();
        let points = &plot.series.iter().find(|series| series.name == "received").unwrap().points;
        assert_eq!(
            points.iter().map(|p| p.y).collect::<Vec<_>>(),
            (3..9).map(|row| get(&memory, row, column)).collect::<Vec<_>>()
        );
        assert_eq!(points[1].label.as_deref(), Some("ip40: silver at 150 %"), "{key}");
    }

    // The device counts the same frames, class by class.
    for (trial, rows) in memory.trials().into_iter().zip([calm, half, full]) {
        assert!(trial.classed);
        for (row, name) in rows.into_iter().zip(["gold", "silver", "bronze"]) {
            let count = |what: &str| trial.result.dut_counters.get(&format!("d3.{name}.{what}")).copied().unwrap_or(0);
            assert_eq!(
                (count("served") as f64, count("dropped") as f64),
                (get(&memory, row, "received"), get(&memory, row, "lost"))
            );
        }
    }
    assert_eq!((rank(&memory, "class_of_service_ip40_loss_percent"), get(&memory, 3, "reordered")), (0.0, 0.0));
    assert!(rank(&memory, "class_of_service_ip40_error_points") < 0.01);
    assert!((rank(&memory, "class_of_service_ip40_pps") - 1e8 / 672.0).abs() < 60.0);
}

#[test]
fn each_class_has_its_share_of_ipv6() {
    let memory = classes("", "families: [ipv4, ipv6], ipv6_share: 15");
    assert!((0..6).all(|row| verdict(&memory, row) == AS_IT_MUST), "{:?}", memory.outcome(TEST).notes);
    // Which frames of two lengths a full queue refuses depends on their order.
    near(column(&memory, [3, 4, 5], "share_percent"), [50.0, 40.0, 10.0], 0.5);
    for trial in memory.trials() {
        assert_eq!(trial.spec.flows.len(), 12, "two ports, three classes, two families");
        for flow in &trial.spec.flows {
            assert!((flow.weight - if flow.family == Family::Ipv6 { 15.0 } else { 85.0 }).abs() < 1e-9);
        }
    }
    // IP packets of 40 bytes, IPv6 packets of 60: 84 and 98 bytes on the line.
    let line = 1e8 / (8.0 * (0.85 * 84.0 + 0.15 * 98.0));
    let rate = rank(&memory, "class_of_service_ip40_pps");
    assert!((rate / line - 1.0).abs() < 0.01, "{rate}, not {line}");
}

#[test]
fn one_lost_frame_of_gold_is_counted() {
    // 7,938 frames of gold arrive without overload, 14,880 with overload.
    let memory = classes(", class_drop_every: 20000", "");
    assert_eq!(column(&memory, [0, 1, 2], "lost"), [0.0; 3]);
    assert_eq!(get(&memory, 3, "lost"), 1.0);
    assert_eq!(verdict(&memory, 3), "lost 1 frames, though it offers less than its share");
    assert_eq!((verdict(&memory, 4), verdict(&memory, 5)), (AS_IT_MUST.into(), AS_IT_MUST.into()));
    let loss = rank(&memory, "class_of_service_ip40_loss_percent");
    assert!((loss - 100.0 / get(&memory, 3, "offered")).abs() < 1e-9, "{loss}");
    let dropped = memory.trials()[1].result.dut_counters.get("truth.dropped.fault_class").copied();
    assert_eq!(dropped, Some(1));
    // With a higher loss rate, frames are also lost without overload.
    let memory = classes(", class_drop_every: 1000", "");
    assert_eq!(verdict(&memory, 0), "lost 7 frames without overload");
}

#[test]
fn a_ratio_that_is_off_by_a_point_is_found() {
    let weights = "classes: [{name: gold, precedence: 5, weight: 700}, {name: silver, dscp: 24, weight: 200}, {name: bronze, precedence: 0, weight: 50}]";
    // Half of the output port is shared 200 to 60 instead of 50. Turns are of 960 frames, and the measured time ends
    // within a turn.
    let memory = classes(", class_last_weight: 60", weights);
    near(column(&memory, [3, 4, 5], "error_points"), [0.0, -1.54, 1.54], 0.15);
    assert_eq!(verdict(&memory, 3), AS_IT_MUST);
    assert!(verdict(&memory, 4).ends_with("points too low") && verdict(&memory, 5).ends_with("points too high"));
    assert!((rank(&memory, "class_of_service_ip40_error_points") - 1.54).abs() < 0.09);
    // 200 to 54 is within a tolerance of a point, but not of half a point.
    let within = classes(", class_last_weight: 54", weights);
    near(column(&within, [3, 4, 5], "error_points"), [0.0, -0.63, 0.63], 0.25);
    assert!((3..6).all(|row| verdict(&within, row) == AS_IT_MUST));
    let strict = classes(", class_last_weight: 54", &format!("{weights}, tolerance: 0.5"));
    assert!(verdict(&strict, 5).contains("points too high"));
}

#[test]
fn a_device_without_classes_is_found() {
    let memory = classes(", classes_ignored: true", "overload: [170]");
    // Without overload one queue is as good as three.
    assert!((0..3).all(|row| verdict(&memory, row) == AS_IT_MUST));
    let shares = column(&memory, [3, 4, 5], "share_percent");
    assert!(shares.iter().zip([56.7, 34.6, 8.7]).any(|(a, b)| (a - b).abs() > 10.0), "{shares:?}");
    assert!(rank(&memory, "class_of_service_ip40_error_points") > 10.0);
    assert!((3..6).any(|row| verdict(&memory, row) != AS_IT_MUST));
    assert!(rank(&memory, "class_of_service_ip40_loss_percent") > 10.0, "gold is no better than the others");
}

#[test]
fn a_router_that_is_slower_than_its_way_out_is_told_from_one_that_shares_wrongly() {
    // The device forwards two thirds of the rate of the output port, without regard to classes.
    let memory = classes(", capacity: 100 kfps, buffer: 50", "overload: [150]");
    let marks = &rows(memory.outcome(TEST), TEST)[3].marks;
    assert!(marks.iter().any(|mark| mark == "the output port carried 67.2 % of its rate only"), "{marks:?}");
    assert!(verdict(&memory, 3).starts_with("lost ") || verdict(&memory, 3).contains("too low"));
    assert!((rank(&memory, "class_of_service_ip40_pps") - 100_000.0).abs() < 60.0);
}

#[test]
fn a_narrow_way_out_needs_one_sender_and_takes_both_families_and_sizes() {
    let params = "bottleneck: 20 Mbit/s, families: [ipv4, ipv6], frame_sizes: [78, 1518], overload: [240], queue: 20, trial_duration: 1 s";
    let ports: String = (1..=2).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
    let text = format!(
        "suite: classes\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference}}\nports:\n{ports}tests:\n  - {TEST}: {{pause: 1 ms, {params}}}\n"
    );
    let mut memory = Memory::default();
    run(&read_suite(&text), &mut memory).unwrap();
    assert!((0..12).all(|row| verdict(&memory, row) == AS_IT_MUST), "{:?}", memory.tests()[0].outcome.tables);
    near(column(&memory, [3, 4, 5], "share_percent"), [70.0, 20.0, 5.0].map(|w| w / 0.95), 0.1);
    // 20 Mbit/s and 1,538 bytes per frame: 1,625 frames per second.
    let rate: f64 = column(&memory, [9, 10, 11], "received_pps").iter().sum();
    assert!((rate - 20e6 / 8.0 / 1538.0).abs() < 2.0, "{rate}");
    assert_eq!(memory.trials()[0].result.senders, 1);
}

#[test]
fn classes_of_a_suite_are_refused_where_they_stand() {
    let tests: Vec<_> = drophammer_methods::METHODS.iter().map(|m| m.spec()).collect();
    let kinds = drophammer_testbed::kinds::specs();
    let registry = drophammer_model::registry::Registry { tests: &tests, kinds: &kinds };
    let refused = |params: &str| {
        let text = format!(
            "suite: s\nduts: [{{name: box, kind: reference}}]\nports:\n  - {{name: p1, speed: 1 Gbit/s}}\n  - {{name: p2, speed: 1 Gbit/s}}\ntests:\n  - {TEST}: {{{params}}}\n"
        );
        let read = drophammer_suite::read::read(&text, "s.yaml", &registry, &Default::default());
        let error = read.map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("s.yaml:7:"), "{error}");
        error.to_string()
    };
    let gold = "{name: gold, precedence: 5, weight: 70}";
    for (classes, why) in [
        (format!("[{gold}]"), "2 to 8 classes, not 1"),
        (format!("[{gold}, {{name: b, precedence: 8, weight: 1}}]"), "needs a `precedence` from 0 to 7 or a `dscp`"),
        (format!("[{gold}, {{name: b, precedence: 1, dscp: 8, weight: 1}}]"), "not both"),
        (format!("[{gold}, {{name: b, dscp: 64, weight: 1}}]"), "64 does not fit a field of 6 bits"),
        (format!("[{gold}, {{name: b, dscp: 40, weight: 1}}]"), "the same codepoint"),
        (format!("[{gold}, {{name: b, dscp: 1, weight: 0}}]"), "weight 0"),
        (format!("[{gold}, {{name: b, dscp: 1, heavy: 0}}]"), "there is no key `heavy`"),
    ] {
        let said = refused(&format!("classes: {classes}"));
        assert!(said.contains(why), "{said}");
    }
    assert!(refused("bottleneck: 100").contains("is not a line speed"));
}

/// Six flows, two of each class, over a line that is too narrow, and the device's own account.
fn narrow(frame_by_frame: bool) -> (Vec<GroupCounts>, Truth) {
    let suite = suite(", capacity: 90 kfps, buffer: 40, delay: 3 us, jitter: 20 us", "tests: [throughput]\n");
    with_bed(
        &suite,
        &BOTH,
        |_| {},
        |bed, device| {
            if frame_by_frame {
                let Ports::One { ports, .. } = bed.rig().parts().0 else { panic!("virtual time has one thread") };
                *ports = std::mem::take(ports).into_iter().map(|p| Box::new(FrameByFrame(p)) as _).collect();
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

#[test]
fn classes_are_recorded_and_taken_back_whatever_becomes_of_the_test() {
    let whole = classes("", "");
    let lists: Vec<usize> = changes(&whole).iter().map(|record| record.lists.len()).collect();
    assert_eq!(lists, [1, 0]);
    let list = &changes(&whole)[0].lists[0];
    assert_eq!((list.at, list.rate.0, list.queue, list.classes.len()), (WayOut::Port(3), 100_000_000, 256, 3));
    assert_eq!(list.classes[1].dscp, 24);

    let text = |params: &str| {
        let ports: String = (1..=4).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
        read_suite(&format!(
            "suite: classes\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference}}\nports:\n{ports}tests:\n  - {TEST}: {{trial_duration: 50 ms, pause: 1 ms, {params}}}\n"
        ))
    };
    // The user stops the test while the classes are set.
    let mut stopped = Memory { stop_after: Some(1), ..Memory::default() };
    assert!(run(&text(""), &mut stopped).is_err());
    assert_eq!(changes(&stopped).iter().map(|record| record.lists.len()).collect::<Vec<_>>(), [1, 0]);

    for (params, cause) in [
        ("overload: [100]", "`overload` of 100 % is none"),
        ("bottleneck: 1 Gbit/s", "150 % of 1 Gbit/s is more than the other 3 ports can send to port p4"),
    ] {
        let mut memory = Memory::default();
        run(&text(params), &mut memory).unwrap();
        let TestStatus::Skipped(why) = &memory.tests()[0].status else { panic!("{:?}", memory.tests()[0].status) };
        assert!(why.contains(cause), "{why}");
        assert!(changes(&memory).is_empty());
    }
}
