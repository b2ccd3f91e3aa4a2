//! `drophammer serve` with clients that speak HTTP by hand, on a virtual link in a network namespace.

use crate::common::{NETWORK, Ran, refused, run};
use serde_json::Value;

const CONFIG: &str = include_str!("serve/config.json");

/// A virtual link, and a server with `call METHOD PATH [BODY]`, which prints the body of the answer on one line.
const SERVER: &str = r#"
set -eu
for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6 || true; done
ip link set lo up
ip link add va type veth peer name vb
for link in va vb; do ip link set $link up; done
$D serve --http --listen 127.0.0.1:0 > served 2> said & SERVER=$!
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
    call POST /control/state "{\"traffic\": {\"flow_transmit\": {\"state\": \"$1\", \"flow_names\": [$2]}}}"
}
metrics() { call POST /monitor/metrics '{"flow": {}}'; }
finish() { kill -INT $SERVER; wait $SERVER || echo $? > exit; }
"#;

fn script(body: &str) -> (Ran, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config"), CONFIG).unwrap();
    let ran = Ran::script_in(NETWORK, folder, &format!("{SERVER}{body}"));
    let lines = ran.printed.lines().filter(|line| line.starts_with('{'));
    let answers = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((ran.read("exit"), ran.read("said")), (String::new(), String::new()));
    (ran, answers)
}

/// The row of a flow in an answer with flow metrics.
fn row<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let rows = answer["flow_metrics"].as_array().unwrap_or_else(|| panic!("{answer}"));
    rows.iter().find(|row| row["name"] == name).unwrap()
}

fn count(answer: &Value, name: &str, key: &str) -> u64 {
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
    let sent = count(stopped, "endless", "frames_tx");
    assert!(sent > 0 && row(stopped, "endless")["transmit"] == "stopped");
    assert_eq!((count(stopped, "endless", "frames_rx"), count(stopped, "fixed", "frames_rx")), (sent, 200));
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
        assert!(answer["errors"][0].as_str().unwrap().starts_with(text), "{text}: {answer}");
    }
    assert_eq!(answers[1]["errors"][1], "flows[0].packet[0].gtpv1: not supported");
    assert_eq!(count(answers.last().unwrap(), "fixed", "frames_tx"), 0);
}

#[test]
fn an_address_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&run(&["serve", "--listen", &address]), 3, "cannot listen on");
    refused(&run(&["serve", "--listen", "127.0.0.1:0", "--grpc", &address]), 3, "cannot listen on");
}
