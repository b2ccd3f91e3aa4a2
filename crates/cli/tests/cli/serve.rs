//! `drophammer serve` with clients that speak HTTP by hand, on a virtual link in a network namespace.

use crate::common::{NETWORK, Ran, drophammer, refused, run};
use serde_json::Value;

const CONFIG: &str = include_str!("serve/config.json");
/// Two routers with OSPFv2, RSVP-TE and BGP, back to back.
const ROUTERS: &str = include_str!("serve/routers.json");

/// A virtual link, and a server. [`CALLS`] has `call METHOD PATH [BODY]`, which prints the body of the answer on one line.
const SERVER: &str = r#"
set -eu
for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6 || true; done
ip link set lo up
ip link add va type veth peer name vb
for link in va vb; do ip link set $link up; done
$D serve --http --listen 127.0.0.1:0 ${IDLE-} > served 2> said & SERVER=$!
trap 'kill -9 $SERVER ${OTHER-} 2> /dev/null || :' EXIT
"#;

/// Waits for the server, and makes calls of it.
pub const CALLS: &str = r#"
until grep -q :// served; do kill -0 $SERVER; sleep 0.02; done
PORT=$(grep -o '127.0.0.1:[0-9]*' served | head -1 | cut -d: -f2)
call() {
    exec 3<>/dev/tcp/127.0.0.1/$PORT
    printf '%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' $1 $2 $(printf %s "${3-}" | wc -c) "${3-}" >&3
    cat <&3 | sed '1,/^\r$/d'
    exec 3<&-
    echo
}
transmit() {
    call POST /control/state "{\"traffic\": {\"flow_transmit\": {\"state\": \"$1\", \"flow_names\": [${2-}]}}}"
}
metrics() { call POST /monitor/metrics '{"flow": {}, "x-drophammer": true}'; }
finish() { kill -INT $SERVER; wait $SERVER || echo $? > exit; }
"#;

fn script(body: &str) -> (Ran, Vec<Value>) {
    script_that_says(body, "")
}

/// Like [`script`], for a server that writes this to standard error.
fn script_that_says(body: &str, said: &str) -> (Ran, Vec<Value>) {
    script_in(tempfile::tempdir().unwrap(), body, said)
}

/// Like [`script_that_says`], in a folder with more files.
pub fn script_in(folder: tempfile::TempDir, body: &str, said: &str) -> (Ran, Vec<Value>) {
    std::fs::write(folder.path().join("config"), CONFIG).unwrap();
    std::fs::write(folder.path().join("routers"), ROUTERS).unwrap();
    let idle = if said.is_empty() { "" } else { "IDLE='--idle-stop 300ms'" };
    let ran = Ran::script_in(NETWORK, folder, &format!("{idle}{SERVER}{CALLS}{body}"));
    let lines = ran.printed.lines().filter(|line| line.starts_with('{'));
    let answers = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((ran.read("exit"), ran.read("said")), (String::new(), said.to_owned()));
    (ran, answers)
}

/// The row of a flow in an answer with flow metrics.
pub fn row<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let rows = answer["flow_metrics"].as_array().unwrap_or_else(|| panic!("{answer}"));
    rows.iter().find(|row| row["name"] == name).unwrap()
}

pub fn count(answer: &Value, name: &str, key: &str) -> u64 {
    row(answer, name)[key].as_u64().unwrap_or_else(|| panic!("{key}: {answer}"))
}

#[test]
fn counts_are_exact_whenever_flows_start_stop_and_pause() {
    let body = r#"
call GET /capabilities/version
call POST /config "$(cat config)"
call POST /control/state '{"port": {"capture": {"state": "start"}}}' > /dev/null
transmit start '"endless"' > /dev/null
transmit start '"fixed"' > /dev/null
transmit pause '"fixed"' > /dev/null
metrics
transmit resume '"fixed"' > /dev/null
until metrics | tee last | grep -q '"name":"fixed"[^}]*"transmit":"stopped"'; do sleep 0.02; done
cat last
transmit stop > /dev/null
metrics
call POST /monitor/metrics '{"port": {}}'
call POST /monitor/capture '{"port_name": "p2"}' > capture
transmit start '"fixed"' > /dev/null
transmit stop > /dev/null
metrics
call GET /config
finish
"#;
    let (ran, answers) = script(body);
    let [version, set, paused, over, stopped, ports, again, config] = &answers[..] else { panic!("{answers:#?}") };
    assert_eq!(version["api_spec_version"], ">=1.40.0,<2.0.0");
    assert_eq!(set["warnings"].as_array().unwrap().len(), 0, "{set}");
    assert_eq!(
        (&row(paused, "fixed")["transmit"], &row(paused, "endless")["transmit"]),
        (&"paused".into(), &"started".into())
    );
    assert!(count(paused, "fixed", "frames_tx") < 200);
    for key in ["frames_tx", "frames_rx"] {
        assert_eq!(count(over, "fixed", key), 200, "{over}");
    }
    assert_eq!(count(over, "fixed", "bytes_tx"), 200 * 128);
    assert_eq!(row(over, "fixed")["loss"].as_f64(), Some(0.0));
    assert!(row(over, "fixed")["latency"]["minimum_ns"].as_f64() > Some(0.0), "{over}");
    let [first, last] = ["first_timestamp_ns", "last_timestamp_ns"]
        .map(|key| row(over, "fixed")["timestamps"][key].as_u64().unwrap_or_else(|| panic!("{over}")));
    // 200 frames at 400 per second, and a pause.
    assert!(last >= first + 497_500_000 - 50_000_000 && first > 1_700_000_000_000_000_000, "{over}");
    let sent = count(stopped, "endless", "frames_tx");
    assert!(sent > 0 && row(stopped, "endless")["transmit"] == "stopped");
    assert_eq!((count(stopped, "endless", "frames_rx"), count(stopped, "fixed", "frames_rx")), (sent, 200));
    let beyond = &row(stopped, "fixed")["x-drophammer"];
    for key in ["frames_out_of_order", "frames_duplicated", "frames_stray", "frames_corrupted"] {
        assert_eq!(beyond[key], 0, "{beyond}");
    }
    let figures = ["p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "maximum_ns"].map(|key| beyond["latency"][key].as_f64());
    assert!(figures[0] > Some(0.0) && figures.is_sorted(), "{beyond}");
    // One variation for each pair of consecutive frames; the frames arrive in order.
    assert_eq!(beyond["delay_variation"]["pairs"], 199, "{beyond}");
    // A busy machine may or may not send in time, but an invalid answer always has a reason.
    assert_eq!(beyond["valid"].as_bool(), Some(beyond["reasons"].as_array().unwrap().is_empty()), "{beyond}");
    let port = &ports["port_metrics"][1];
    assert_eq!(port["speed"], 125_000, "kilobytes per second");
    assert_eq!((&port["frames_rx"], &port["frames_tx"], &port["link"]), (&200.into(), &sent.into(), &"up".into()));
    // Header of the file, and header and bytes of each frame with its FCS; the shell adds a newline.
    let capture = std::fs::read(ran.folder.path().join("capture")).unwrap();
    assert_eq!(capture.len(), 24 + 200 * (16 + 128) + 1);
    let first = &capture[24 + 16..];
    assert_eq!((&first[12..16], &first[34..38]), (&[0x81, 0, 0, 7][..], &[2, 2, 2, 2][..]));
    assert!(count(again, "fixed", "frames_tx") < 200, "{again}");
    assert_eq!(count(again, "fixed", "frames_tx"), count(again, "fixed", "frames_rx"));
    assert_eq!(count(again, "endless", "frames_tx"), sent, "it did not start again");
    assert_eq!(*config, serde_json::from_str::<Value>(CONFIG).unwrap());
}

#[test]
fn routers_find_each_other_and_flows_take_the_label_of_their_lsp() {
    let body = r#"
call POST /config "$(cat routers)"
ask() { call POST /monitor/$1 "{\"$2\": {}}"; }
until ask metrics ospfv2 | grep -q '"full_state_count":1.*"full_state_count":1'; do sleep 0.02; done
until ask metrics rsvp | grep -q '"ingress_p2p_lsps_up":2'; do sleep 0.02; done
until ask metrics bgpv4 | grep -q '"routes_received":3'; do sleep 0.02; done
until ask states ospfv2_lsas | tee last | grep -q '"transit".*"transit".*"lsa_id":"30.0.2.0"'; do sleep 0.02; done
cat last
ask metrics ospfv2
ask metrics rsvp
ask states rsvp_lsps
call POST /control/state '{"port": {"capture": {"state": "start"}}}' > /dev/null
transmit start '"f"' > /dev/null
until metrics | tee last | grep -q '"transmit":"stopped"'; do sleep 0.02; done
cat last
call POST /monitor/capture '{"port_name": "p2"}' > capture
call POST /control/state '{"protocol": {"route": {"names": ["inter"], "state": "withdraw"}}}' > /dev/null
until ask states ospfv2_lsas | tee last | grep -q '"network_summary_lsas":\[\].*"network_summary_lsas":\[\]'; do sleep 0.02; done
cat last
call POST /control/state '{"protocol": {"ospfv2": {"routers": {"router_names": ["o1"], "state": "down"}}}}' > /dev/null
until ask metrics ospfv2 | tee last | grep -q '"full_state_count":0.*"full_state_count":0'; do sleep 0.02; done
cat last
call POST /control/state '{"protocol": {"all": {"state": "stop"}}}' > /dev/null
until ask metrics rsvp | tee last | grep -q '"egress_p2p_lsps_up":0.*"egress_p2p_lsps_up":0'; do sleep 0.02; done
cat last
finish
"#;
    let (ran, answers) = script(body);
    let [set, lsas, ospf, rsvp, lsps, flow, withdrawn, down, torn] = &answers[..] else { panic!("{answers:#?}") };
    assert_eq!(set["warnings"].as_array().unwrap().len(), 0, "{set}");
    let learned = &lsas["ospfv2_lsas"][1];
    assert_eq!(learned["router_name"], "o2");
    let ids = |list: &str| -> Vec<&str> {
        let rows = learned[list].as_array().unwrap().iter();
        rows.map(|row| row["header"]["lsa_id"].as_str().unwrap()).collect()
    };
    assert_eq!(ids("network_summary_lsas"), ["20.0.0.0", "20.0.1.0"], "{lsas}");
    assert_eq!(ids("external_as_lsas"), ["30.0.0.0", "30.0.1.0", "30.0.2.0"]);
    assert_eq!(learned["external_as_lsas"][0]["metric_type"], 2);
    assert_eq!(ids("router_lsas"), ["9.9.9.1"]);
    let links = learned["router_lsas"][0]["links"].as_array().unwrap();
    assert!(links.iter().all(|link| link["metric"] == 5 && link["type"] == "transit"), "{lsas}");
    for router in ospf["ospfv2_metrics"].as_array().unwrap() {
        assert_eq!(router.as_object().unwrap().len(), 34);
        assert!(router["lsa_sent"].as_u64() > Some(0) && router["lsa_received"].as_u64() > Some(0), "{router}");
    }
    let [begin, end] = [0, 1].map(|at| &rsvp["rsvp_metrics"][at]);
    assert_eq!(begin.as_object().unwrap().len(), 31);
    assert_eq!(
        (&begin["ingress_p2p_lsps_up"], &end["egress_p2p_lsps_up"], &end["ingress_p2p_lsps_configured"]),
        (&2.into(), &2.into(), &0.into())
    );
    let ends = [0, 1].map(|at| &lsps["rsvp_lsps"][at]["ipv4_lsps"][1]["lsp"]);
    assert_eq!((&ends[0]["label_in"], &ends[0]["session_name"]), (&ends[1]["label_out"], &"lsp2".into()), "{lsps}");
    assert_eq!((count(flow, "f", "frames_tx"), count(flow, "f", "frames_rx")), (50, 50));
    // Ethernet, the label stack entry with its label, bottom of stack and TTL, and IPv4, among frames of the protocols.
    let capture = std::fs::read(ran.folder.path().join("capture")).unwrap();
    let label = u32::try_from(ends[0]["label_in"].as_u64().unwrap()).unwrap();
    let entry = (label << 12 | 1 << 8 | 64).to_be_bytes();
    let expected = [&[0x88, 0x47][..], &entry, &[0x45]].concat();
    assert_eq!(capture.windows(expected.len()).filter(|bytes| **bytes == expected).count(), 50);
    assert_eq!(withdrawn["ospfv2_lsas"][1]["external_as_lsas"].as_array().unwrap().len(), 3);
    assert_eq!(down["ospfv2_metrics"][1]["sessions_flap"], 1);
    assert_eq!(torn["rsvp_metrics"][0]["path_tears_tx"], 2, "{torn}");
}

#[test]
fn captures_keep_the_frames_that_pass_their_filters() {
    let body = r#"
# The frames of the flow go to three addresses in turn, and to two ports in turn.
for mask in '"ffff"' '"ffff", "negate": true' '"0"'; do
    filters='[{"vlan": {"id": {"value": "7", "mask": "fff"}}}, {"ipv4": {"dst": {"value": "02020203", "mask": "ffffffff"}}},
        {"custom": {"offset": 16, "bit_length": 16, "value": "1389", "mask": '$mask'}}]'
    call POST /config "$(sed "s/\"port_names\": \[\"p2\"\]}/\"port_names\": [\"p2\"], \"filters\": $(echo $filters)}/" config)" > set
    if grep -q errors set; then cat set; continue; fi
    call POST /control/state '{"port": {"capture": {"state": "start"}}}' > /dev/null
    transmit start '"fixed"' > /dev/null
    until metrics | grep -q '"name":"fixed"[^}]*"transmit":"stopped"'; do sleep 0.02; done
    transmit stop > /dev/null
    metrics
    call POST /monitor/capture '{"port_name": "p2"}' | wc -c >> sizes
done
finish
"#;
    let (ran, answers) = script(body);
    let [with, negated, refused] = &answers[..] else { panic!("{answers:#?}") };
    assert_eq!([with, negated].map(|answer| count(answer, "fixed", "frames_rx")), [200; 2]);
    // Frames 1, 7, 13 ... and 4, 10, 16 ... of 0 to 199; each with a header of the file, and its FCS. The shell adds a newline.
    let sizes = [34, 33].map(|frames| (24 + frames * (16 + 128) + 1).to_string()).join("\n") + "\n";
    assert_eq!(ran.read("sizes"), sizes);
    let text = refused["errors"][0].as_str().unwrap();
    assert!(text.starts_with("captures[0].filters[2].custom.mask: no bit is compared"), "{text}");
}

#[test]
fn labelled_prefixes_are_learned_and_actions_end_sessions_and_bring_them_back() {
    let body = r#"
sed -i 's/"as_number": 65002,/"as_number": 65002, "advanced": {"passive_mode": true}, "learned_information_filter": {"ipv4_mpls_unicast_prefix": true},/
    s/"as_number": 65001,/"as_number": 65001, "graceful_restart": {"enable_gr": true, "restart_time": 60},/' routers
call POST /config "$(cat routers)" > /dev/null
bgp() { call POST /monitor/metrics '{"bgpv4": {}}'; }
act() { call POST /control/action "{\"protocol\": {\"bgp\": $1}}"; }
until bgp | grep -q '"routes_received":3'; do sleep 0.02; done
call POST /monitor/states '{"bgp_prefixes": {"bgp_peer_names": ["b2"]}}'
call POST /monitor/states '{"bgp_prefixes": {"bgp_peer_names": ["b2"], "prefix_filters": ["ipv4_unicast"]}}'
act '{"initiate_graceful_restart": {"peer_names": ["b2"]}}'
act '{"notification": {"names": ["b1"], "fin_delay": 100}}'
act '{"notification": {"names": ["b1"], "cease": {"subcode": "admin_reset_code6_subcode4"}}}'
until bgp | tee last | grep -q '"session_state":"up","session_flap_count":1,.*"routes_received":6,'; do sleep 0.02; done
cat last
act '{"initiate_graceful_restart": {"peer_names": ["b1"], "restart_delay": 1}}'
act '{"notification": {}}'
until bgp | tee last | grep -q '"session_state":"up","session_flap_count":2,.*"routes_received":9,.*"end_of_rib_received":1'; do sleep 0.02; done
cat last
finish
"#;
    let (_, answers) = script(body);
    let [all, unicast, no_restart, delay, told, back, restarted, down, again] = &answers[..] else {
        panic!("{answers:#?}")
    };
    let learned = all["bgp_prefixes"][0]["ipv4_mpls_unicast_prefixes"].as_array().unwrap_or_else(|| panic!("{all}"));
    let route = |i: u64| (format!("40.0.{i}.0"), 24_i64, serde_json::json!([500 + i]), "10.0.0.1");
    let found = learned.iter().map(|row| {
        let text = |key: &str| row[key].as_str().unwrap_or_else(|| panic!("{key}: {row}"));
        (
            text("ipv4_address").to_owned(),
            row["prefix_length"].as_i64().unwrap(),
            row["labels"].clone(),
            text("ipv4_next_hop"),
        )
    });
    assert_eq!(found.collect::<Vec<_>>(), [0, 1, 2].map(route));
    assert_eq!(unicast["bgp_prefixes"][0], serde_json::json!({"bgp_peer_name": "b2"}), "it learns no others");
    for (answer, code, text) in [
        (no_restart, 400, "protocol.bgp.initiate_graceful_restart.peer_names: `b2` does not offer it"),
        (delay, 400, "protocol.bgp.notification.fin_delay: only 0 is supported"),
        (down, 500, "of the peers have no connection, for example `b"),
    ] {
        let error = answer["errors"][0].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(answer["code"] == code && error.contains(text), "{text}: {answer}");
    }
    assert_eq!((told["warnings"].as_array().unwrap().len(), restarted["warnings"].as_array().unwrap().len()), (0, 0));
    let counts = |answer: &Value, peer: usize| {
        ["notifications_sent", "notifications_received", "session_flap_count", "opens_sent"]
            .map(|key| answer["bgpv4_metrics"][peer][key].as_u64().unwrap_or_else(|| panic!("{key}: {answer}")))
    };
    assert_eq!([counts(back, 0)[..3].to_vec(), counts(back, 1)[..3].to_vec()], [[1, 0, 1], [0, 1, 1]]);
    assert_eq!([counts(again, 0)[..3].to_vec(), counts(again, 1)[..3].to_vec()], [[1, 0, 2], [0, 1, 2]]);
}

/// Six ports in pairs, 200 BGP sessions between devices of both ports of a pair, and 256 flows of 10 frames.
fn large() -> Value {
    use serde_json::json;
    let port = |i: usize| json!({"name": format!("p{i}"), "location": format!("v{i}")});
    let device = |session: usize, side: usize| {
        let name = format!("{session}-{side}");
        let (own, far) = (format!("10.0.{session}.{}", 1 + side), format!("10.0.{session}.{}", 2 - side));
        let routes = json!({
            "name": format!("r{name}"),
            "addresses": [{"address": format!("100.{session}.{}.0", 100 * side), "prefix": 24, "count": 10}],
        });
        json!({
            "name": format!("d{name}"),
            "ethernets": [{
                "name": format!("e{name}"), "connection": {"port_name": format!("p{}", 2 * (session % 3) + side)},
                "ipv4_addresses": [{"name": format!("a{name}"), "address": own, "gateway": far}],
            }],
            "bgp": {"router_id": own, "ipv4_interfaces": [{"ipv4_name": format!("a{name}"), "peers": [{
                "name": format!("b{name}"), "peer_address": far, "as_type": "ebgp", "as_number": 65_001 + side,
                "v4_routes": [routes],
            }]}]},
        })
    };
    let flow = |i: usize| {
        json!({
            "name": format!("f{i}"),
            "tx_rx": {"port": {"tx_name": format!("p{}", i % 6), "rx_name": format!("p{}", (i % 6) ^ 1)}},
            "packet": [{"ethernet": {}}, {"ipv4": {"dst": {"value": format!("20.0.0.{i}")}}}, {"udp": {}}],
            "rate": {"pps": 50}, "duration": {"fixed_packets": {"packets": 10}}, "metrics": {"enable": true},
        })
    };
    let devices: Vec<Value> = (0..200).flat_map(|i| [device(i, 0), device(i, 1)]).collect();
    json!({
        "ports": (0..6).map(port).collect::<Vec<_>>(), "devices": devices, "flows": (0..256).map(flow).collect::<Vec<_>>(),
    })
}

#[test]
fn two_hundred_sessions_come_up_and_flows_on_six_ports_are_counted_exactly() {
    let body = r#"
for i in 0 2 4; do ip link add v$i type veth peer name v$((i + 1)); ip link set v$i up; ip link set v$((i + 1)) up; done
for call in set up start; do date +%s.%N >> times; case $call in
    set) call POST /config "$(cat large)";;
    up) until [ $(call POST /monitor/metrics '{"bgpv4": {}}' | tee last | grep -o '"routes_received":10,' | wc -l) = 400 ]; do sleep 0.1; done; cat last;;
    start) transmit start
        until ! call POST /monitor/metrics '{"flow": {}}' | tee last | grep -q '"transmit":"started"'; do sleep 0.1; done; cat last;;
esac; done
date +%s.%N >> times
call POST /monitor/metrics '{"bgpv4": {}}'
finish
"#;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("large"), large().to_string()).unwrap();
    let (ran, answers) = script_in(folder, body, "");
    let [set, up, start, flows, after] = &answers[..] else {
        panic!("{} answers: {:?}", answers.len(), answers.first())
    };
    let times: Vec<f64> = ran.read("times").lines().map(|line| line.parse().unwrap()).collect();
    let taken: Vec<String> = times.windows(2).map(|pair| format!("{:.1} s", pair[1] - pair[0])).collect();
    eprintln!("setting, sessions and routes, traffic: {}", taken.join(", "));
    assert_eq!(
        (set["warnings"].as_array().map(Vec::len), start["warnings"].as_array().map(Vec::len)),
        (Some(0), Some(0))
    );
    for (moment, peers) in [("before", up), ("after", after)] {
        let peers = peers["bgpv4_metrics"].as_array().unwrap();
        let is_up = |peer: &&Value| peer["session_state"] == "up" && peer["session_flap_count"] == 0;
        assert_eq!((peers.len(), peers.iter().filter(is_up).count()), (400, 400), "{moment} the traffic");
    }
    let rows = flows["flow_metrics"].as_array().unwrap();
    let wrong: Vec<&Value> =
        rows.iter().filter(|row| row["frames_tx"] != 10 || row["frames_rx"] != 10 || row["bytes_rx"] != 640).collect();
    assert_eq!((rows.len(), wrong.len()), (256, 0), "{:?}", wrong.first());
}

/// This many flows of 10 frames at 50 per second, each with latency.
fn many(flows: usize) -> Value {
    use serde_json::json;
    let flow = |i: usize| {
        json!({
            "name": format!("f{i}"), "tx_rx": {"port": {"tx_name": "a", "rx_name": "b"}},
            "packet": [{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}], "rate": {"pps": 50},
            "duration": {"fixed_packets": {"packets": 10}},
            "metrics": {"enable": true, "loss": true, "latency": {"enable": true}},
        })
    };
    let ports = json!([{"name": "a", "location": "va"}, {"name": "b", "location": "vb"}]);
    json!({"ports": ports, "flows": (0..flows).map(flow).collect::<Vec<_>>()})
}

#[test]
fn four_thousand_flows_are_counted_exactly_while_clients_read() {
    const FLOWS: usize = 4_096;
    let body = r#"
memory() { grep -o "$1.*" /proc/$SERVER/status | grep -o '[0-9]*' >> memory; date +%s.%N >> times; }
memory VmRSS
call POST /config "$(cat many)"
memory VmRSS
transmit start > /dev/null
memory VmRSS
until ! metrics | tee last | grep -q '"transmit":"started"'; do echo >> reads; done
transmit stop > /dev/null
memory VmHWM
metrics
finish
"#;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("many"), many(FLOWS).to_string()).unwrap();
    let (ran, answers) = script_in(folder, body, "");
    let [set, flows] = &answers[..] else { panic!("{} answers: {:?}", answers.len(), answers.first()) };
    assert_eq!(set["warnings"].as_array().map(Vec::len), Some(0));
    let rows = flows["flow_metrics"].as_array().unwrap();
    let is_exact = |row: &&Value| row["frames_tx"] == 10 && row["frames_rx"] == 10 && row["bytes_rx"] == 640;
    let exact = rows.iter().filter(is_exact).count();
    let latencies = rows.iter().filter(|row| row["x-drophammer"]["latency"]["p99_ns"].as_f64() > Some(0.0)).count();
    let pairs: u64 = rows.iter().filter_map(|row| row["x-drophammer"]["delay_variation"]["pairs"].as_u64()).sum();
    let numbers = |file: &str| -> Vec<f64> { ran.read(file).lines().map(|line| line.parse().unwrap()).collect() };
    let (memory, times) = (numbers("memory"), numbers("times"));
    let each: Vec<f64> = memory.windows(2).map(|pair| (pair[1] - pair[0]) / FLOWS as f64).collect();
    eprintln!(
        "KiB of memory of each flow: {:.1} in the configuration, {:.1} in traffic, {:.1} more at the peak; {:.1} s to configure, {:.1} s to start, {:.1} s of traffic with {} reads",
        each[0],
        each[1],
        each[2],
        times[1] - times[0],
        times[2] - times[1],
        times[3] - times[2],
        ran.read("reads").lines().count()
    );
    assert_eq!((rows.len(), exact, latencies), (FLOWS, FLOWS, FLOWS), "{:?}", rows.iter().find(|row| !is_exact(row)));
    assert_eq!(pairs, 9 * FLOWS as u64, "the frames of each flow arrive in order");
    assert!(each[1] < 150.0, "{each:?}");
}

#[test]
fn what_is_wrong_is_refused_and_changes_nothing() {
    let body = r#"
call POST /config "$(cat config)" > /dev/null
call POST /config '{"ports": [{"name": "p", "location": "nosuch"}]}'
call POST /config '{"ports": [{"name": "p", "location": "va"}], "lags": [{"name": "l"}], "flows": [{"name": "f", "packet": [{"gtpv1": {}}]}]}'
call POST /config '{"flows"'
transmit start '"nobody"'
call POST /monitor/metrics '{"isis": {}}'
call GET /nowhere
call PATCH /config/delete '{"config_delete_list": [{"flows": ["x"]}]}'
call POST /control/action '{}'
metrics
finish
"#;
    let (_, answers) = script(body);
    let expected = [
        (400, "ports: cannot open interface `nosuch`"),
        (400, "lags: not supported"),
        (400, "the body is not JSON"),
        (400, "traffic.flow_transmit.flow_names: there is no flow `nobody`"),
        (400, "isis: not supported"),
        (404, "there is no such path"),
        (400, "config_delete_list[0].flows: there is no flow `x`"),
        (400, "protocol.ipv4.ping.requests: write 1 to 64 requests"),
    ];
    assert_eq!(answers.len(), expected.len() + 1, "{answers:#?}");
    for (answer, (code, text)) in answers.iter().zip(expected) {
        assert_eq!((answer["code"].as_i64(), &answer["kind"]), (Some(code), &"validation".into()), "{answer}");
        let errors = answer["errors"].as_array().unwrap();
        assert!(errors.iter().any(|error| error.as_str().unwrap().starts_with(text)), "{text}: {answer}");
    }
    assert!(answers[1]["errors"].to_string().contains("flows[0].packet[0].gtpv1: not supported"), "{}", answers[1]);
    assert_eq!(count(answers.last().unwrap(), "fixed", "frames_tx"), 0);
}

#[test]
fn convergence_is_the_time_without_frames() {
    let body = r#"
for link in vc vd; do ip link add $link type veth peer name $link-far; ip link set $link up; ip link set $link-far up; done
ip link add between type bridge
ip link set between up
ip link set vc-far master between
ip link set vd-far master between
sed -i 's/"location": "va"/"location": "vc"/; s/"location": "vb"}/"location": "vd"}, {"name": "p3", "location": "va"}/' config
sed 's/"ports"/"events": {"cp_events": {"enable": true}, "dp_events": {"enable": true}}, "ports"/; s/"packets": 200/"packets": 5000/; s/"pps": "400"/"pps": "1000"/' config > converging
switch() { call POST /control/state "{\"port\": {\"link\": {\"state\": \"$1\", \"port_names\": [\"p3\"]}}}" > /dev/null; }
convergence() { call POST /monitor/metrics '{"convergence": {"flow_names": ["fixed"]}}'; }
call POST /config "$(cat config)" > /dev/null
convergence
call POST /config "$(cat converging)" > /dev/null
transmit start '"fixed"' > /dev/null
until metrics | grep -q '"frames_rx":[1-9][0-9][0-9]'; do sleep 0.02; done
switch down
ip link set vd-far nomaster
until ! call POST /monitor/metrics '{"flow": {"flow_names": ["fixed"]}}' | grep -q '"loss":0.0'; do sleep 0.02; done
ip link set vd-far master between
switch up
until metrics | tee last | grep -q '"name":"fixed"[^}]*"transmit":"stopped"'; do sleep 0.02; done
transmit stop > /dev/null
metrics
convergence
finish
"#;
    let (_, answers) = script(body);
    let [disabled, counts, metrics] = &answers[..] else { panic!("{answers:#?}") };
    assert_eq!(disabled["errors"][0], "convergence: the configuration must enable `events.dp_events`");
    assert_eq!(metrics["choice"], "convergence_metrics");
    let metric = &metrics["convergence_metrics"][0];
    let lost = count(counts, "fixed", "frames_tx") - count(counts, "fixed", "frames_rx");
    let [time, whole] = ["data_plane_convergence_us", "control_plane_data_plane_convergence_us"]
        .map(|key| metric[key].as_f64().unwrap_or_else(|| panic!("{metric}")));
    // There is one frame per millisecond; each of the two ends is exact to a bin.
    let events = metric["events"].as_array().unwrap();
    let of = |kind: &str| -> Vec<&Value> { events.iter().filter(|event| event["type"] == kind).collect() };
    let ([down], [up]) = (&of("link_down")[..], &of("link_up")[..]) else { panic!("{metric}") };
    let (falls, rises) = (of("flow_rx_rate_below_threshold"), of("flow_rx_rate_above_threshold"));
    assert!(lost > 0 && falls.len() == rises.len() && !falls.is_empty(), "{lost} lost: {metric}");
    let ns = |event: &Value, key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{metric}"));
    let begin = |event: &Value| ns(event, "begin_timestamp_ns");
    let dark: u64 = falls.iter().zip(&rises).map(|(fall, rise)| begin(rise) - begin(fall)).sum();
    // On a busy machine, frames leave late and in bunches.
    if row(counts, "fixed")["x-drophammer"]["valid"] == true {
        assert!(dark.abs_diff(lost * 1_000_000) <= 2_000_000 * falls.len() as u64, "{lost} lost: {metric}");
    }
    assert!(begin(down) < begin(up) && ns(down, "end_timestamp_ns") <= begin(up), "{metric}");
    assert!(begin(falls[0]) + 1_000_000 >= begin(down), "{metric}");
    let until_last = |from: u64| (begin(rises.last().unwrap()) - from) as f64 / 1e3;
    assert_eq!((time, whole), (until_last(begin(falls[0])), until_last(begin(down))), "{metric}");
}

#[test]
fn a_client_that_dies_leaves_no_traffic() {
    let body = r#"
call POST /config "$(cat config)" > /dev/null
transmit start '"endless"' > /dev/null
until grep -q 'no client' said; do kill -0 $SERVER; sleep 0.02; done
metrics
transmit stop
transmit stop
finish
"#;
    let said = "warning: no client has called for a while: all flows are stopped\n";
    let (_, answers) = script_that_says(body, said);
    let row = row(&answers[0], "endless");
    assert_eq!((&row["transmit"], row["frames_tx"].as_u64() > Some(0)), (&"stopped".into(), true));
    assert_eq!(row["frames_tx"], row["frames_rx"]);
    let warnings = [1, 2].map(|call| answers[call]["warnings"].as_array().unwrap_or_else(|| panic!("{answers:#?}")));
    let idle = |text: &Value| text.as_str().is_some_and(|text| text.starts_with("no client had called for 300 ms"));
    assert_eq!(warnings.map(|list| list.iter().filter(|text| idle(text)).count()), [1, 0], "{answers:#?}");
}

#[test]
fn a_location_may_stand_for_an_interface() {
    let folder = tempfile::tempdir().unwrap();
    let server = SERVER.replace("$D serve", "$D serve --port localhost:5555=va --port te2=vb");
    let body = r#"
sed -i 's/"location": "va"/"location": "localhost:5555"/; s/"location": "vb"/"location": "te2"/' config
call POST /config "$(cat config)" > /dev/null
transmit start '"fixed"' > /dev/null
until metrics | tee last | grep -q '"name":"fixed"[^}]*"transmit":"stopped"'; do sleep 0.02; done
cat last
call POST /monitor/metrics '{"port": {}}'
finish
"#;
    std::fs::write(folder.path().join("config"), CONFIG).unwrap();
    let ran = Ran::script_in(NETWORK, folder, &format!("{server}{CALLS}{body}"));
    let answers = ran.printed.lines().filter(|line| line.starts_with('{'));
    let answers: Vec<Value> = answers.map(|line| serde_json::from_str(line).unwrap()).collect();
    let [flows, ports] = &answers[..] else { panic!("{answers:#?}") };
    assert_eq!(count(flows, "fixed", "frames_rx"), 200);
    let locations = [0, 1].map(|port| ports["port_metrics"][port]["location"].clone());
    assert_eq!(locations, ["localhost:5555", "te2"]);
}

#[test]
fn a_location_stands_for_one_interface_that_exists() {
    for (locations, code, text) in [
        (&["a=lo", "a=lo"][..], 2, "gives `a` two interfaces"),
        (&["a=nosuch0"], 3, "has no interface nosuch0"),
        (&["localhost:5555"], 2, "`localhost:5555` names no interface"),
    ] {
        let mut words = vec!["serve"];
        words.extend(locations.iter().flat_map(|location| ["--port", *location]));
        refused(&run(&words), code, text);
    }
}

#[test]
fn hostile_clients_get_answers_and_a_port_has_one_owner() {
    let body = r#"
call POST /config "$(cat config)" > /dev/null
deep=$(printf '[%.0s' $(seq 1000))
call POST /config "{\"flows\": $deep"
# A body that is too large is refused before it arrives.
exec 3<>/dev/tcp/127.0.0.1/$PORT
printf 'POST /config HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 999999999999\r\n\r\n' >&3
sed '1,/^\r$/d' <&3; echo
exec 3<&-
# Bodies that never arrive, until there is no room for more.
for n in 4 5 6 7; do
    eval "exec $n<>/dev/tcp/127.0.0.1/$PORT"
    printf 'POST /config HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\n{' >&$n
done
until call POST /config '{"x": 1}' | tee busy | grep -q 503; do sleep 0.02; done
cat busy
for n in 4 5 6 7; do eval "exec $n>&-"; done
until metrics | tee last | grep -q flow_metrics; do sleep 0.02; done
cat last
# A second server.
$D serve --http --listen 127.0.0.1:0 --grpc 127.0.0.1:0 > other 2>> said & OTHER=$!
until grep -q :// other; do kill -0 $OTHER; sleep 0.02; done
PORT=$(grep -o '127.0.0.1:[0-9]*' other | head -1 | cut -d: -f2)
call POST /config "$(cat config)"
kill -INT $SERVER; wait $SERVER || echo $? > exit
call POST /config "$(cat config)"
SERVER=$OTHER
finish
"#;
    let (_, answers) = script(body);
    let [deep, large, busy, served, refused, accepted] = &answers[..] else { panic!("{answers:#?}") };
    assert!(deep["errors"][0].as_str().unwrap().starts_with("the body is not JSON: recursion limit"), "{deep}");
    assert_eq!((large["code"].as_i64(), &large["errors"][0]), (Some(413), &"the body has more than 64 MiB".into()));
    assert_eq!(busy["code"], 503);
    assert_eq!(row(served, "fixed")["transmit"], "stopped");
    assert_eq!(refused["code"], 409);
    let text = refused["errors"][0].as_str().unwrap();
    assert!(text.starts_with("ports[0].location: `va` belongs to serve on 127.0.0.1:"), "{text}");
    assert!(accepted["warnings"].is_array(), "{accepted}");
}

/// A server that ends with this value.
struct Serving(std::process::Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first message of a client of TLS 1.3 (RFC 8446 section 4.1.2).
fn client_hello() -> Vec<u8> {
    let sized = |body: &[u8]| [&(body.len() as u16).to_be_bytes()[..], body].concat();
    // The base point of X25519 is a valid key.
    let share = [&[0, 29][..], &sized(&[&[9][..], &[0; 31]].concat())].concat();
    let extensions: [(u16, Vec<u8>); 4] =
        [(43, vec![2, 3, 4]), (10, sized(&[0, 29])), (13, sized(&[4, 3])), (51, sized(&share))];
    let extensions = extensions.map(|(kind, body)| [&kind.to_be_bytes()[..], &sized(&body)].concat()).concat();
    let hello = [&[3, 3][..], &[7; 32], &[0], &sized(&[0x13, 1]), &[1, 0], &sized(&extensions)].concat();
    let handshake = [&[1, 0][..], &sized(&hello)].concat();
    [&[22, 3, 1][..], &sized(&handshake)].concat()
}

#[test]
fn options_choose_tls_of_each_address() {
    use std::io::{BufRead, BufReader, Read, Write};
    let (here, anywhere) = ("127.0.0.1:0", "0.0.0.0:0");
    for (grpc, options, tls) in [
        (here, &["--http"][..], [false, false]),
        (here, &[], [true, false]),
        (here, &["--grpc-tls"], [true, true]),
        (anywhere, &[], [true, true]),
        (anywhere, &["--http"], [false, true]),
        (anywhere, &["--grpc-plaintext"], [true, false]),
    ] {
        let mut command = drophammer();
        command.args(["serve", "--listen", here, "--grpc", grpc]).args(options);
        let mut serving = Serving(command.stdout(std::process::Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(serving.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let scheme = if tls[0] { "https" } else { "http" };
        let (rest, grpc) = line.split_once(" on ").unwrap().1.split_once(", gRPC on ").unwrap();
        assert_eq!(grpc.contains(" over TLS;"), tls[1], "{options:?}: {line}");
        let unasked = tls[1] && !options.contains(&"--grpc-tls");
        assert_eq!(line.contains("; clients without TLS need --grpc-plaintext;"), unasked, "{options:?}: {line}");
        let rest = rest.strip_prefix(&format!("{scheme}://")).unwrap_or_else(|| panic!("{options:?}: {line}"));
        for (address, tls) in [rest, grpc.split([';', ' ']).next().unwrap()].into_iter().zip(tls) {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            stream.write_all(&client_hello()).unwrap();
            // A server without TLS answers with an error, or closes the connection.
            let mut head = [0; 6];
            let is_hello = stream.read_exact(&mut head).is_ok() && head[0] == 22 && head[5] == 2;
            assert_eq!(is_hello, tls, "{options:?}: {address}: {head:?}");
        }
        let mut stream = std::net::TcpStream::connect(rest).unwrap();
        let request = format!("GET /capabilities/version HTTP/1.0\r\nHost: {rest}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // With TLS, the connection may be reset.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer.starts_with(b"HTTP/1."), !tls[0], "{options:?}: {}", String::from_utf8_lossy(&answer));
    }
}

#[test]
fn an_address_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&run(&["serve", "--listen", &address]), 3, "cannot listen on");
    refused(&run(&["serve", "--listen", "127.0.0.1:0", "--grpc", &address]), 3, "cannot listen on");
}
