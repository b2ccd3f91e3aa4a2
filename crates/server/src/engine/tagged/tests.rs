//! Tagged metrics of whole runs in virtual time, as a client gets them.

use super::super::captures::Captures;
use super::super::traffic::Action;
use super::super::wire::{Fate, LINK, at_once, ports};
use super::*;
use crate::build::build;
use crate::grpc::transcode::{from_json, to_json};
use crate::model::Config;
use crate::model::read::Errors;
use drophammer_rig::Rig;
use std::sync::Arc;
use std::time::Duration;

/// Time that a port needs for a frame.
const COST: Duration = Duration::from_micros(1);

fn bench(flows: &[Value], fate: Fate) -> Bench {
    let names = json!([{"name": "p1", "location": "a"}, {"name": "p2", "location": "b"}]);
    let config = Config::read(json!({"ports": names, "flows": flows})).unwrap();
    let built = build(&config, &[LINK; 2], 5).unwrap();
    let rig = Rig::new(ports(5, COST, fate), &built.rig);
    let captures = Captures::Here(vec![Arc::default(), Arc::default()]);
    Bench::with(config, built, rig, vec![LINK; 2], captures, 5, 0)
}

/// Flow `name` at 1,000 frames per second, without and with a fixed number.
fn flow(name: &str, packet: Value, frames: Option<u64>) -> Value {
    let duration = frames.map_or(json!({"continuous": {}}), |frames| json!({"fixed_packets": {"packets": frames}}));
    json!({
        "name": name, "tx_rx": {"port": {"tx_name": "p1", "rx_name": "p2"}}, "packet": packet, "rate": {"pps": 1000},
        "duration": duration, "metrics": {"enable": true, "loss": true, "timestamps": true, "latency": {"enable": true}},
    })
}

/// Headers whose differentiated services codepoint is 10, 20 and 30 by turns, and has the tag `dscp`.
fn marked() -> Value {
    let phb = json!({"values": [10, 20, 30], "metric_tags": [{"name": "dscp"}]});
    json!([{"ethernet": {}}, {"ipv4": {"priority": {"dscp": {"phb": phb}}}}, {"udp": {}}])
}

/// The codepoint of a frame.
fn dscp(frame: &[u8]) -> u8 {
    frame[15] >> 2
}

fn run(bench: &mut Bench) {
    let begin = bench.rig.now();
    while bench.flows.are_running() {
        assert!(bench.rig.now().since(begin) < Duration::from_secs(60), "the flows end");
        bench.turn(Duration::from_millis(10), &|| false).unwrap();
    }
}

fn drive(bench: &mut Bench, time: Duration) {
    let end = bench.rig.now() + time;
    while bench.rig.now() < end {
        bench.turn(Duration::from_millis(10), &|| false).unwrap();
    }
}

/// The metrics of the first flow.
fn metrics(bench: &mut Bench, tagged: Value) -> Value {
    let answer = bench.metrics(json!({"choice": "flow", "flow": {"tagged_metrics": tagged}})).unwrap();
    // gRPC has the same. Its rates are rounded.
    let bytes = from_json("MetricsResponse", &answer).unwrap();
    let again = to_json("MetricsResponse", &bytes).unwrap();
    let tags = |answer: &Value| -> Vec<Value> {
        let list = answer["flow_metrics"][0]["tagged_metrics"].as_array();
        list.into_iter().flatten().map(|metric| metric["tags"].clone()).collect()
    };
    assert_eq!(tags(&again), tags(&answer));
    answer["flow_metrics"][0].clone()
}

/// Value of the only tag, and these numbers of each tagged metric.
fn table<const N: usize>(metric: &Value, keys: [&str; N]) -> Vec<(String, [u64; N])> {
    let row = |tagged: &Value| {
        let value = tagged["tags"][0]["value"]["hex"].as_str().unwrap().to_owned();
        (value, keys.map(|key| tagged[key].as_u64().unwrap()))
    };
    metric["tagged_metrics"].as_array().unwrap().iter().map(row).collect()
}

fn rows<const N: usize>(rows: &[(&str, [u64; N])]) -> Vec<(String, [u64; N])> {
    rows.iter().map(|(value, counts)| ((*value).to_owned(), *counts)).collect()
}

#[test]
fn each_value_has_its_frames_its_loss_and_its_latency() {
    // Frames with 20 are lost, those with 30 take longer and arrive twice.
    let fate = |frame: &[u8]| match dscp(frame) {
        10 => vec![Duration::ZERO],
        20 => vec![],
        _ => vec![Duration::from_micros(300), Duration::from_micros(400)],
    };
    let mut bench = bench(&[flow("f", marked(), Some(100))], fate);
    assert_eq!(metrics(&mut bench, json!({}))["tagged_metrics"], json!([]), "nothing has been sent");
    let empty = metrics(&mut bench, json!({"include_empty_metrics": true}));
    assert_eq!(table(&empty, ["frames_tx"]), rows(&[("a", [0]), ("14", [0]), ("1e", [0])]));
    bench.start_flows(&[0]).unwrap();
    run(&mut bench);
    let all = metrics(&mut bench, Value::Null);
    let counts = ["frames_tx", "frames_rx", "bytes_tx", "bytes_rx"];
    let expected = [("a", [34, 34, 2_176, 2_176]), ("14", [33, 0, 2_112, 0]), ("1e", [33, 33, 2_112, 2_112])];
    assert_eq!(table(&all, counts), rows(&expected));
    assert_eq!(counts.map(|key| all[key].as_u64().unwrap()), [100, 67, 6_400, 4_288]);
    let of = |key: &str| -> Vec<Value> {
        all["tagged_metrics"].as_array().unwrap().iter().map(|tagged| tagged[key].clone()).collect()
    };
    assert_eq!(of("loss"), [0.0, 100.0, 0.0]);
    let latency = |min: f64, mean: f64, max: f64| json!({"minimum_ns": min, "average_ns": mean, "maximum_ns": max});
    let [short, none, long] = &of("latency")[..] else { panic!("{all}") };
    assert_eq!(short, &latency(1_000.0, 1_000.0, 1_000.0));
    assert_eq!((none, long), (&latency(0.0, 0.0, 0.0), &latency(301_000.0, 301_000.0, 301_000.0)));
    assert_eq!(all["latency"], latency(1_000.0, (34.0 * 1_000.0 + 33.0 * 301_000.0) / 67.0, 301_000.0));
    let times = of("timestamps");
    assert_eq!(times[1], json!({"first_timestamp_ns": 0, "last_timestamp_ns": 0}));
    assert_eq!(times[0]["first_timestamp_ns"], all["timestamps"]["first_timestamp_ns"]);
    // The last frame is the 34th with 10.
    let nanoseconds = |of: &Value| ["first_timestamp_ns", "last_timestamp_ns"].map(|key| of[key].as_u64().unwrap());
    let [first, last] = nanoseconds(&times[0]);
    assert_eq!(last - first, 99_000_000);
    let [first, last] = nanoseconds(&times[2]);
    assert_eq!(last - first, 96_000_000);
}

#[test]
fn a_client_gets_the_values_and_the_columns_that_it_asks_for() {
    let mut bench = bench(&[flow("f", marked(), Some(10)), flow("g", json!([{"ethernet": {}}]), Some(1))], at_once);
    bench.start_flows(&[0, 1]).unwrap();
    run(&mut bench);
    let some = metrics(
        &mut bench,
        json!({"metric_names": ["frames_rx"], "filters": [{"name": "dscp", "values": ["1e", "0x0a"]}]}),
    );
    let tags = |value: &str| json!([{"name": "dscp", "value": {"choice": "hex", "hex": value}}]);
    assert_eq!(
        some["tagged_metrics"],
        json!([{"tags": tags("a"), "frames_rx": 4}, {"tags": tags("1e"), "frames_rx": 3}])
    );
    assert_eq!(metrics(&mut bench, json!({"include": false})).get("tagged_metrics"), None);
    let cut = bench
        .metrics(json!({"flow": {"metric_names": ["frames_tx"], "tagged_metrics": {"metric_names": ["bytes_rx"]}}}));
    let cut = &cut.unwrap()["flow_metrics"];
    assert_eq!((cut[0].as_object().unwrap().len(), cut[1].get("tagged_metrics")), (5, None));
    let refused = bench.metrics(json!({"flow": {"tagged_metrics": {"filters": [{"name": "vlan"}]}}})).unwrap_err();
    assert_eq!(refused.errors, ["flow.tagged_metrics.filters[0].name: no flow has the tag `vlan`"]);
    let refused = bench.metrics(json!({"port": {"tagged_metrics": {}}})).unwrap_err();
    assert_eq!(refused.errors, ["port.tagged_metrics: not supported"]);
}

#[test]
fn numbers_of_sent_frames_are_absent_if_nobody_knows_which_were_sent() {
    let mut bench = bench(&[flow("f", marked(), Some(10))], at_once);
    bench.start_flows(&[0]).unwrap();
    run(&mut bench);
    // As if the tester's own port had refused one of them.
    bench.flows.rows[0].counts.frames_tx -= 1;
    let metric = metrics(&mut bench, Value::Null);
    assert_eq!(metric["frames_tx"], 9);
    assert_eq!(table(&metric, ["frames_rx", "bytes_rx"]), rows(&[("a", [4, 256]), ("14", [3, 192]), ("1e", [3, 192])]));
    let keys = metric["tagged_metrics"][0].as_object().unwrap().keys().map(String::as_str);
    let mut keys: Vec<&str> = keys.filter(|key| !key.starts_with("rx_")).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["bytes_rx", "frames_rx", "frames_rx_rate", "latency", "tags", "timestamps"]);
}

#[test]
fn combinations_have_the_bytes_of_their_sizes() {
    let mut packet = marked();
    packet[1]["ipv4"]["time_to_live"] = json!({"values": [64, 63], "metric_tags": [{"name": "upper", "length": 2}]});
    packet[2]["udp"]["dst_port"] = json!({"value": 4_789, "metric_tags": [{"name": "port"}]});
    let mut flow = flow("f", packet, Some(100));
    flow["size"] = json!({"weight_pairs": {"custom": [{"size": 128, "weight": 1}, {"size": 512, "weight": 3}]}});
    let mut bench = bench(&[flow], at_once);
    bench.start_flows(&[0]).unwrap();
    run(&mut bench);
    let metric = metrics(&mut bench, Value::Null);
    let tagged = metric["tagged_metrics"].as_array().unwrap();
    let sizes = bench.built.flows[0].streams[0].sizes.clone();
    assert_eq!(sizes.len(), 4);
    let of = |dscp: u64, upper: u64| {
        let frames = (0..100).filter(|n| [10, 20, 30][n % 3] == dscp && [1, 0][n % 2] == upper);
        let sizes: Vec<u64> = frames.map(|n| sizes[n % 4]).collect();
        (format!("{dscp:x} {upper:x} 12b5"), sizes.len() as u64, sizes.iter().sum::<u64>())
    };
    let expected = [of(10, 1), of(20, 0), of(30, 1), of(10, 0), of(20, 1), of(30, 0)];
    let found = tagged.iter().map(|tagged| {
        let values: Vec<&str> = (0..3).map(|i| tagged["tags"][i]["value"]["hex"].as_str().unwrap()).collect();
        let [frames, received, sent_bytes, bytes] =
            ["frames_tx", "frames_rx", "bytes_tx", "bytes_rx"].map(|key| tagged[key].as_u64().unwrap());
        assert_eq!((frames, sent_bytes), (received, bytes));
        (values.join(" "), frames, bytes)
    });
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert_eq!(expected.iter().map(|(_, frames, _)| frames).sum::<u64>(), 100);
}

#[test]
fn a_flow_that_starts_again_counts_its_values_anew_while_another_sends() {
    let mut bench = bench(&[flow("f", marked(), Some(100)), flow("g", json!([{"ethernet": {}}]), None)], at_once);
    bench.start_flows(&[0, 1]).unwrap();
    drive(&mut bench, Duration::from_millis(50));
    let while_sending = metrics(&mut bench, Value::Null);
    let sum = |metric: &Value, key: &str| -> u64 {
        metric["tagged_metrics"].as_array().unwrap().iter().map(|tagged| tagged[key].as_u64().unwrap()).sum()
    };
    for key in ["frames_tx", "frames_rx", "bytes_tx", "bytes_rx"] {
        assert_eq!(Some(sum(&while_sending, key)), while_sending[key].as_u64(), "{key}");
    }
    assert!(sum(&while_sending, "frames_tx") > 40);
    bench.start_flows(&[0]).unwrap();
    drive(&mut bench, Duration::from_secs(1));
    for running in [true, false] {
        if !running {
            bench.flows.change(&mut bench.rig, Action::Stop, &[1]).unwrap();
        }
        let metric = metrics(&mut bench, Value::Null);
        let mut counts: Vec<u64> = table(&metric, ["frames_rx"]).into_iter().map(|(_, [frames])| frames).collect();
        counts.sort_unstable();
        assert_eq!(counts, [33, 33, 34], "{running}");
        assert_eq!((sum(&metric, "frames_tx"), metric["frames_tx"].as_u64()), (100, Some(100)));
        // Earlier frames of the same traffic had latencies too.
        let latency = &metric["tagged_metrics"][0]["latency"];
        assert_eq!((latency["average_ns"].as_f64(), latency.get("minimum_ns")), (Some(1_000.0), None));
    }
}

#[test]
fn rates_of_values_add_up_to_the_rate_of_the_flow() {
    let mut bench = bench(&[flow("f", marked(), None)], at_once);
    bench.start_flows(&[0]).unwrap();
    drive(&mut bench, Duration::from_secs(3));
    let metric = metrics(&mut bench, Value::Null);
    for key in ["frames_tx_rate", "frames_rx_rate", "tx_l1_rate_bps", "rx_rate_bytes"] {
        let rate = |of: &Value| of[key].as_f64().unwrap();
        let each: Vec<f64> = metric["tagged_metrics"].as_array().unwrap().iter().map(rate).collect();
        let whole = rate(&metric);
        assert!((each.iter().sum::<f64>() - whole).abs() < 1e-6 * whole && whole > 900.0, "{key}: {each:?} {whole}");
        assert!(each.iter().all(|rate| (rate * 3.0 - whole).abs() < 0.01 * whole), "{key}: {each:?}");
    }
}

#[test]
fn bytes_are_those_of_the_frames_at_a_place() {
    let sizes: [u64; 5] = [64, 64, 1_518, 570, 64];
    for cycle in [1, 2, 3, 5, 10] {
        for at in 0..cycle {
            for frames in [0, 1, 4, 5, 6, 23] {
                let expected: u64 = (0..frames).map(|n| sizes[(at + n as usize * cycle) % 5]).sum();
                assert_eq!(bytes(&sizes, at, cycle, frames), expected, "{cycle} {at} {frames}");
            }
        }
    }
}

fn wanted(tagged: Value) -> Result<Wanted, Vec<String>> {
    let errors = Errors::default();
    let mut request = Object::document(json!({ "tagged_metrics": tagged }), &errors);
    let found = Wanted::read(&mut request, &["vlan", "dscp"].into());
    drop(request);
    errors.or(found)
}

#[test]
fn filters_choose_combinations() {
    let tags = Tags { names: vec!["vlan".into(), "dscp".into()], ..Tags::default() };
    let all = [[100, 0], [100, 46], [101, 46]];
    for (filters, chosen) in [
        (json!([]), vec![0, 1, 2]),
        (json!([{"name": "vlan", "values": ["64"]}]), vec![0, 1]),
        (json!([{"name": "vlan", "values": ["0x0064", "7"]}, {"name": "dscp", "values": ["2E"]}]), vec![1]),
        (json!([{"name": "dscp"}]), vec![0, 1, 2]),
    ] {
        let wanted = wanted(json!({ "filters": filters })).unwrap();
        let found: Vec<usize> = (0..3).filter(|i| wanted.has(&tags, &all[*i])).collect();
        assert_eq!(found, chosen);
    }
    let other = Tags { names: vec!["other".into()], ..Tags::default() };
    assert!(!wanted(json!({"filters": [{"name": "dscp"}]})).unwrap().has(&other, &[1]));
}

#[test]
fn mistakes_have_their_path() {
    for (tagged, error) in [
        (json!({"filters": [{"name": "x"}]}), "tagged_metrics.filters[0].name: no flow has the tag `x`"),
        (
            json!({"filters": [{"name": "dscp", "values": ["1", "+g"]}]}),
            "tagged_metrics.filters[0].values[1]: `+g` is not a hexadecimal number",
        ),
        (json!({"exclude": true}), "tagged_metrics.exclude: not supported"),
    ] {
        assert_eq!(wanted(tagged).err(), Some(vec![error.to_owned()]));
    }
}

#[test]
fn streams_that_take_turns_have_every_so_many_places() {
    let tags = Tags { names: vec!["t".into()], combinations: vec![vec![7], vec![8], vec![9]], of_place: vec![0, 1, 2] };
    let tagged = Tagged::new(&tags);
    let place = |offered| PlaceCounts { offered, ..PlaceCounts::default() };
    let places: Places = [(4, vec![place(50), place(60), place(70)]), (5, vec![place(1), place(2), place(3)])].into();
    let streams = [(Some(4), &[100][..], (0, 2)), (Some(5), &[100][..], (1, 2)), (None, &[100][..], (0, 1))];
    // The first stream has frames 0, 2 and 4 of the flow, and the second one frames 1, 3 and 5.
    let offered: Vec<u64> = tagged.whole(&places, streams.into_iter()).iter().map(|counts| counts.frames_tx).collect();
    assert_eq!(offered, [50 + 2, 70 + 1, 60 + 3]);
}
