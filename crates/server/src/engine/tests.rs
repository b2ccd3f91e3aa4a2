//! Configurations, metrics and events as a client gets them, in virtual time or with a port in memory.

use super::captures::Captures;
use super::wire::{self, LINK, Wall};
use super::*;
use crate::build::build;
use drophammer_model::routes::Change;
use drophammer_port::memory::{self, MemoryPort};
use drophammer_port::{Opened, Port, PortError, pass_on};
use drophammer_rig::{Rig, host_mac};

/// True while the port is open.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// A port that is open only once at a time.
struct Lone(MemoryPort);

impl Port for Lone {
    pass_on!(0: info, slots, send, receive, counters);
}

impl Drop for Lone {
    fn drop(&mut self) {
        IS_OPEN.store(false, Ordering::Relaxed);
    }
}

fn open_lone(names: &[&str], _: u32, clock: SystemClock) -> Opened {
    if IS_OPEN.swap(true, Ordering::Relaxed) {
        return Err(PortError::open(names[0], "it is open"));
    }
    let [port, _] = memory::pair([0, 1].map(|end| host_mac(5, end)), 1_500, clock);
    Ok(vec![Box::new(Lone(port))])
}

static LONE: Backend = Backend { spec: &af_xdp::SPEC, usable: || Ok(()), begin: open_lone, most_queues: 1 };

#[test]
fn a_port_that_is_open_only_once_is_closed_before_a_new_configuration_opens_it() {
    // Other processes run this test in the same namespace.
    let name = format!("lone{}", std::process::id());
    let options = Options {
        backend: &LONE,
        lender: None,
        idle_stop: Some(Duration::from_secs(600)),
        interfaces: [("localhost:5555".to_owned(), name.clone())].into(),
        may_use: |_| Ok(()),
        warn: |text| panic!("{text}"),
    };
    let (clock, seed) = (SystemClock::start(), 5);
    let bench = Bench::open(Config::read(json!({})).unwrap(), &options, clock, seed).unwrap();
    let (document, claims, called) = (json!({}), Claims::new("a test"), Instant::now());
    let mut engine =
        Engine { options, clock, seed, document, bench, claims, called, failure: None, idle_stopped: false };
    let document = json!({"ports": [{"name": "p1", "location": name}]});
    engine.set_config(document.clone()).unwrap();
    engine.set_config(document.clone()).unwrap();
    let mut wrong = document.clone();
    wrong["flows"] = json!([{"name": "f", "tx_rx": {"port": {"tx_name": "p9", "rx_name": "p1"}}}]);
    let failure = engine.set_config(wrong).unwrap_err();
    assert_eq!(failure.errors, ["flows[0].tx_rx.port.tx_name: there is no port `p9`"]);
    assert_eq!(engine.document, document, "it is still in force");
    assert_eq!(engine.bench.own_interfaces().collect::<Vec<_>>(), [name.as_str()]);

    let twice = json!({"ports": [{"name": "p1", "location": name}, {"name": "p2", "location": "localhost:5555"}]});
    let failure = engine.set_config(twice).unwrap_err();
    assert!(failure.errors[0].starts_with("ports[1].location: `localhost:5555` and ports[0].location"), "{failure:?}");
    assert_eq!(engine.document, document, "it is still in force");

    let document = json!({"ports": [{"name": "p1", "location": "localhost:5555"}]});
    engine.set_config(document.clone()).unwrap();
    engine.call(Call::AppendConfig, json!({"config_append_list": [{"flows": []}]})).unwrap();
    assert_eq!(engine.bench.own_interfaces().collect::<Vec<_>>(), [name.as_str()]);
    assert_eq!(engine.bench.metrics(json!({"port": {}})).unwrap()["port_metrics"][0]["location"], "localhost:5555");

    engine.idle_stopped = true;
    let mut transmit = || engine.call(Call::SetControlState, json!({"traffic": {"flow_transmit": {"state": "stop"}}}));
    let text = "no client had called for 10 min, so all flows were stopped; `serve --idle-stop` sets that time";
    assert_eq!(transmit(), Ok(warnings(vec![text.into()])));
    assert_eq!(transmit(), Ok(warnings(Vec::new())), "it is told once");
}

#[test]
fn capabilities_have_every_request_with_its_fields() {
    let bench = bench(&[], &[flow("f", None)], |_| 0);
    let told = capabilities(&bench, &LONE);
    let at = |path: &str| {
        let path = format!("/requests/{}", path.replace('.', "/properties/"));
        told.pointer(&path).unwrap_or_else(|| panic!("{path}: {told:#}"))
    };
    assert_eq!((&told["backend"], &told["backends"][0]["name"]), (&json!("af_xdp"), &json!("af_packet")));
    assert_eq!(told["requests"].as_object().map(|requests| requests.len()), Some(9));
    let state = at("set_control_state.protocol.bgp.peers.state");
    assert_eq!(*state, json!({"enum": ["down", "up"], "default": "down"}));
    let cease = at("set_control_action.protocol.bgp.notification.cease.subcode");
    assert_eq!(cease["enum"].as_array().map(Vec::len), Some(10));
    for kind in at("get_metrics.choice")["enum"].as_array().unwrap() {
        at(&format!("get_metrics.{}", kind.as_str().unwrap()));
    }
    assert_eq!(at("get_metrics.x-drophammer")["type"], "boolean");
    assert_eq!(at("get_states.bgp_prefixes.prefix_filters")["items"]["enum"][3], "ipv6_mpls_unicast");
    assert_eq!(at("update_config.flows.property_names")["items"]["enum"], json!(["rate", "size"]));
    assert_eq!(at("get_capture.port_name")["type"], "string");
}

fn bench(devices: &[Value], flows: &[Value], wall: Wall) -> Bench {
    let config = Config::read(json!({
        "ports": [{"name": "p1", "location": "a"}, {"name": "p2", "location": "b"}], "devices": devices, "flows": flows,
        "events": {"cp_events": {"enable": true}, "dp_events": {"enable": true}},
    }));
    let config = config.unwrap();
    let built = build(&config, &[LINK; 2], 5).unwrap();
    let rig = Rig::new(wire::ports_by(5, Duration::from_micros(1), wire::at_once, wall), &built.rig);
    let captures = Captures::Here(vec![Arc::default(), Arc::default()]);
    Bench::with(config, built, rig, vec![LINK; 2], captures, 5, 0)
}

/// A flow at 1,000 frames per second, without and with a fixed number.
fn flow(name: &str, frames: Option<u64>) -> Value {
    let duration = frames.map_or(json!({"continuous": {}}), |frames| json!({"fixed_packets": {"packets": frames}}));
    json!({
        "name": name, "tx_rx": {"port": {"tx_name": "p1", "rx_name": "p2"}}, "packet": [{"ethernet": {}}, {"ipv4": {}}],
        "rate": {"pps": 1000}, "duration": duration, "metrics": {"enable": true},
    })
}

/// Drives the traffic until this flow sends no more.
fn run(bench: &mut Bench, flow: usize) {
    let begin = bench.rig.now();
    while bench.flows.state(&bench.flows.rows[flow]) != "stopped" {
        assert!(bench.rig.now().since(begin) < Duration::from_secs(60), "it ends");
        bench.turn(Duration::from_millis(10), &|| false).unwrap();
    }
}

/// Drives the traffic to its end.
fn finish(bench: &mut Bench) {
    while bench.flows.are_running() {
        bench.turn(Duration::from_millis(10), &|| false).unwrap();
    }
}

/// Frames that the first port sent and the second one received.
fn sent_and_received(bench: &mut Bench) -> [u64; 2] {
    bench.flows.refresh(&mut bench.rig);
    [bench.port_sums(0)[0], bench.port_sums(1)[1]]
}

#[test]
fn counts_of_ports_begin_with_the_traffic_and_never_run_backwards() {
    let mut bench = bench(&[], &[flow("f", Some(100)), flow("g", Some(40)), flow("endless", None)], |_| 0);
    bench.start_flows(&[0]).unwrap();
    finish(&mut bench);
    assert_eq!(sent_and_received(&mut bench), [100, 100]);
    bench.start_flows(&[1]).unwrap();
    finish(&mut bench);
    assert_eq!(sent_and_received(&mut bench), [40, 40]);
    bench.start_flows(&[0, 2]).unwrap();
    run(&mut bench, 0);
    let before = sent_and_received(&mut bench);
    assert!(before[0] >= 150, "{before:?}");
    bench.start_flows(&[0]).unwrap();
    assert!(sent_and_received(&mut bench)[0] >= before[0]);
    run(&mut bench, 0);
    let after = sent_and_received(&mut bench);
    assert!(after[0] >= before[0] + 150, "{before:?} {after:?}");
}

/// A reason of a flow that is not valid.
const STEP: &str = "the wall clock was set by 60 µs";

/// Why the first two flows are not valid.
fn reasons(bench: &mut Bench) -> [String; 2] {
    let answer = bench.metrics(json!({"choice": "flow", "flow": {}, "x-drophammer": true})).unwrap();
    [0, 1].map(|flow| answer["flow_metrics"][flow]["x-drophammer"]["reasons"].to_string())
}

#[test]
fn a_step_of_the_wall_clock_spoils_the_flows_that_were_sent() {
    let wall: Wall = |now| if now.0 < 50_000_000 { 0 } else { 60_000 };
    let mut bench = bench(&[], &[flow("f", Some(100)), flow("g", Some(100))], wall);
    for flow in [0, 1] {
        bench.start_flows(&[flow]).unwrap();
        finish(&mut bench);
        let [f, g] = reasons(&mut bench);
        assert!(f.contains(STEP) && !g.contains(STEP), "{f} {g}");
    }
}

#[test]
fn a_step_of_the_wall_clock_does_not_spoil_a_flow_that_had_ended_before() {
    let wall: Wall = |now| if now.0 < 2_500_000_000 { 0 } else { 60_000 };
    let mut bench = bench(&[], &[flow("f", Some(100)), flow("g", Some(3_000))], wall);
    bench.start_flows(&[0, 1]).unwrap();
    finish(&mut bench);
    let [f, g] = reasons(&mut bench);
    assert!(f == "[]" && g.contains(STEP), "{f} {g}");
}

#[test]
fn a_port_counts_the_frames_that_arrive_there() {
    let mut flow = flow("f", Some(100));
    flow["tx_rx"] = json!({"port": {"tx_name": "p1", "rx_names": ["p1", "p2"]}});
    let mut bench = bench(&[], &[flow], |_| 0);
    bench.start_flows(&[0]).unwrap();
    finish(&mut bench);
    assert_eq!(bench.flows.rows[0].counts.frames_rx, 100);
    assert_eq!([0, 1].map(|port| bench.port_sums(port)), [[100, 0, 6_400, 0], [0, 100, 0, 6_400]]);
}

#[test]
fn the_order_of_a_flow_to_several_ports_is_not_known() {
    for (receivers, out_of_order) in [(vec!["p2"], json!(0)), (vec!["p1", "p2"], json!(null))] {
        let mut flow = flow("f", Some(100));
        flow["tx_rx"] = json!({"port": {"tx_name": "p1", "rx_names": receivers}});
        let mut bench = bench(&[], &[flow], |_| 0);
        bench.start_flows(&[0]).unwrap();
        finish(&mut bench);
        let answer = bench.metrics(json!({"choice": "flow", "flow": {}, "x-drophammer": true})).unwrap();
        assert_eq!(answer["flow_metrics"][0]["x-drophammer"]["frames_out_of_order"], out_of_order);
    }
}

#[test]
fn a_client_may_ask_for_the_histogram_of_latencies() {
    let mut flow = flow("f", Some(100));
    flow["metrics"] = json!({"enable": true, "latency": {"enable": true}});
    let mut bench = bench(&[], &[flow], |_| 0);
    bench.start_flows(&[0]).unwrap();
    finish(&mut bench);
    let mut asked = |key: &str| {
        let answer = bench.metrics(json!({"choice": "flow", "flow": {}, key: true})).unwrap();
        answer["flow_metrics"][0].clone()
    };
    let plain = asked("x-drophammer");
    assert_eq!(plain["loss"], 0.0, "it is there even if the flow does not ask for it");
    assert_eq!(plain["x-drophammer"]["latency"]["histogram"], json!(null), "{plain}");
    let more = asked("x-drophammer-histogram");
    let latency = &more["x-drophammer"]["latency"];
    let steps = latency["histogram"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| step["frames"].as_u64().unwrap()).sum::<u64>(), 100, "{latency}");
    let ends: Vec<f64> = steps.iter().map(|step| step["up_to_ns"].as_f64().unwrap()).collect();
    assert!(ends.is_sorted() && ends.last().copied() >= latency["maximum_ns"].as_f64(), "{latency}");
}

#[test]
fn a_flow_without_a_receiver_counts_what_it_sends_and_nothing_else() {
    let mut flow = flow("f", Some(100));
    flow["tx_rx"] = json!({"port": {"tx_name": "p1"}});
    flow["metrics"] = json!({"enable": true, "loss": true, "timestamps": true, "latency": {"enable": true}});
    flow["packet"][1]["ipv4"] = json!({"dst": {"values": ["1.1.1.1", "2.2.2.2"], "metric_tags": [{"name": "dst"}]}});
    let mut bench = bench(&[], &[flow], |_| 0);
    bench.start_flows(&[0]).unwrap();
    finish(&mut bench);
    let answer = bench.metrics(json!({"choice": "flow", "flow": {}, "x-drophammer": true})).unwrap();
    let row = &answer["flow_metrics"][0];
    assert_eq!((&row["port_tx"], &row["port_rx"]), (&json!("p1"), &json!("")));
    for (row, sent) in [(row, 100), (&row["tagged_metrics"][0], 50)] {
        let counts = ["frames_tx", "frames_rx", "bytes_rx"].map(|key| row[key].as_u64());
        assert_eq!(counts, [sent, 0, 0].map(Some), "{row}");
        assert_eq!((&row["loss"], &row["latency"]["maximum_ns"]), (&json!(0.0), &json!(0.0)), "{row}");
        assert_eq!(row["timestamps"]["first_timestamp_ns"], 0, "{row}");
    }
    let more = &row["x-drophammer"];
    assert_eq!((&more["reasons"], &more["frames_stray"]), (&json!([]), &json!(0)), "{more}");
    let convergence = bench.metrics(json!({"convergence": {}})).unwrap();
    assert_eq!(convergence["convergence_metrics"][0]["events"], json!([]));
    assert_eq!(sent_and_received(&mut bench), [100, 100], "ports count all frames");
}

#[test]
fn a_resume_of_stopped_flows_is_told() {
    let mut bench = bench(&[], &["f", "g", "h"].map(|name| flow(name, None)), |_| 0);
    bench.start_flows(&[0, 1]).unwrap();
    let mut transmit = |state: &str, names: &[&str]| {
        bench.control(json!({"traffic": {"flow_transmit": {"state": state, "flow_names": names}}}))
    };
    for (state, names) in [("pause", &["f"][..]), ("resume", &["f", "g"]), ("stop", &["f"])] {
        assert_eq!(transmit(state, names), Ok(Vec::new()), "{state} {names:?}");
    }
    let text = "resume has no effect on flows that are stopped, not paused: `f`, `h`; start them";
    assert_eq!(transmit("resume", &[]), Ok(vec![text.to_owned()]));
    assert_eq!([0, 1, 2].map(|row| bench.flows.state(&bench.flows.rows[row])), ["stopped", "started", "stopped"]);
}

#[test]
fn a_start_without_flows_does_nothing() {
    let mut bench = bench(&[], &[], |_| 0);
    let start = json!({"traffic": {"flow_transmit": {"state": "start"}}});
    assert_eq!(bench.control(start), Ok(Vec::new()));
    assert!(!bench.flows.are_running());
}

#[test]
fn an_mtu_that_an_interface_does_not_have_is_ignored_and_told() {
    let config = Config::read(json!({
        "ports": [{"name": "p1", "location": "a"}, {"name": "p2", "location": "b"}],
        "layer1": [{"name": "l1", "port_names": ["p1"], "mtu": 9000}, {"name": "l2", "port_names": ["p2"], "mtu": 1500}],
    }));
    let text = "layer1: the MTU of 9000 bytes of port `p1` is ignored, because a has 1500; `ip link set a mtu 9000` changes that";
    assert_eq!(super::bench::small_mtus(&config.unwrap(), &[LINK; 2]), [text]);
}

#[test]
fn every_number_of_a_port_is_there() {
    let mut bench = bench(&[], &[], |_| 0);
    bench.origin_ns = 1_000_000_000;
    bench.turn(Duration::from_millis(10), &|| false).unwrap();
    let changed = |bench: &mut Bench| {
        let answer = bench.metrics(json!({"port": {}})).unwrap();
        assert_eq!(answer["port_metrics"][1]["speed"], 0, "nobody knows it");
        answer["port_metrics"][1]["last_change"].as_u64().unwrap()
    };
    let first = changed(&mut bench);
    assert!(first >= 1_000_000_000, "{first}");
    bench.turn(Duration::from_secs(1), &|| false).unwrap();
    assert_eq!(changed(&mut bench), first, "the link has not changed");
    bench.carriers[1].0 = Some(false);
    assert!(changed(&mut bench) >= first + 1_000_000_000, "it was down before");
}

#[test]
fn a_request_for_all_captured_frames_is_one_without_a_choice() {
    let mut bench = bench(&[], &[], |_| 0);
    let all = bench.capture(json!({"port_name": "p1", "packets": {"choice": "all"}}));
    assert_eq!(all, bench.capture(json!({"port_name": "p1"})));
    let slice = json!({"port_name": "p1", "packets": {"choice": "slice", "slice": {"initial": {"count": 1}}}});
    assert_eq!(bench.capture(slice).unwrap_err().errors, ["packets.slice: not supported"]);
}

#[test]
fn routes_of_ospf_are_events_if_the_router_runs() {
    let device = json!({
        "name": "d1",
        "ethernets": [{
            "name": "e1", "connection": {"port_name": "p1"},
            "ipv4_addresses": [{"name": "a1", "address": "10.0.0.1", "gateway": "10.0.0.2"}],
        }],
        "ospfv2": {
            "name": "o1", "interfaces": [{"name": "i1", "ipv4_name": "a1"}],
            "v4_routes": [{"name": "r1", "addresses": [{"address": "20.0.0.0", "count": 4}]}],
        },
    });
    let mut bench = bench(&[device], &[flow("f", Some(100))], |_| 0);
    let convergence = |bench: &mut Bench| bench.metrics(json!({"choice": "convergence", "convergence": {}}));
    let events = |bench: &mut Bench| -> Vec<[String; 2]> {
        let answer = convergence(bench).unwrap();
        let events = answer["convergence_metrics"][0]["events"].as_array().unwrap().clone();
        events.iter().map(|event| ["type", "source"].map(|key| event[key].as_str().unwrap().to_owned())).collect()
    };
    let event = |kind: &str| [kind.to_owned(), "r1".to_owned()];
    bench.router_routes(0, 0, Change::Withdraw).unwrap();
    bench.router_routes(0, 0, Change::Advertise).unwrap();
    assert!(events(&mut bench).is_empty(), "the router is stopped");
    bench.start_routers(&[0], true).unwrap();
    bench.router_routes(0, 0, Change::Withdraw).unwrap();
    bench.router_routes(0, 0, Change::Withdraw).unwrap();
    assert_eq!(events(&mut bench), [event("route_withdraw")]);
    bench.router_routes(0, 0, Change::Advertise).unwrap();
    assert_eq!(events(&mut bench), [event("route_withdraw"), event("route_advertise")]);
    bench.flows.rows[0].rates.overflowed = true;
    let failure = convergence(&mut bench).unwrap_err();
    let text = "convergence of `f` is not known: its rate has crossed the threshold more than 1000 times";
    assert!(failure.errors[0].starts_with(text), "{failure:?}");
}
