//! What real clients sent, once more: to a whole server whose two ports are joined in memory.
//!
//! `tests/sessions` has sessions of snappi; the names of the files say which version. A line is one request as REST and
//! as gRPC carry it, with what the script read from the answer (`reads`), and the whole answer. Each session runs over
//! both transports. It proves that
//!
//! - the server accepts the same requests as when they were recorded, and refuses the same ones for the same fields;
//! - everything that the script read comes to be as it was: states, counts of frames and routes, addresses, attributes;
//! - answers still have each field that they had, of the same type.
//!
//! Other values are not compared, because rates, times and counts of KEEPALIVE messages differ from run to run.
//!
//! `tests/recorded` has single requests, without the sessions to which they belonged. They prove only which of them are
//! accepted, and for which fields the others are refused.

use crate::client::{connect, grpc, rest};
use crate::server::{PATIENCE, with_server};
use drophammer_port::{Backend, Opened, Port, SystemClock, memory};
use drophammer_server::grpc::transcode::{from_json, to_json};
use drophammer_wire::MacAddr;
use prost::encoding::decode_varint;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::mem::discriminant;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long to wait before a request is repeated.
const LOOK: Duration = Duration::from_millis(20);

/// Opens the two ends of a cable.
fn open(interfaces: &[&str], _: u32, clock: SystemClock) -> Opened {
    let ends = memory::pair([1, 2].map(MacAddr::local), 1_500, clock);
    Ok(ends.into_iter().take(interfaces.len()).map(|end| Box::new(end) as Box<dyn Port + Send>).collect())
}

static CABLE: Backend = Backend { spec: &memory::SPEC, usable: || Ok(()), begin: open, most_queues: 1 };

/// Locations of ports in the requests.
const LOCATIONS: [&str; 4] = ["eth1", "eth2", "veth-a", "veth-b"];

/// Runs a server while `client` uses its addresses of REST and gRPC.
fn serving(client: impl FnOnce(SocketAddr, SocketAddr)) {
    static SERVERS: AtomicUsize = AtomicUsize::new(0);
    // Other tests and processes claim interfaces in the same namespace.
    let server = format!("{}-{}", std::process::id(), SERVERS.fetch_add(1, Ordering::Relaxed));
    let interfaces = LOCATIONS.map(|location| (location.to_owned(), format!("{location}-{server}")));
    with_server(&CABLE, interfaces.into(), false, None, client);
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// A method of gRPC.
struct Method {
    name: &'static str,
    rest: &'static str,
    /// `None`: the request is empty.
    request: Option<&'static str>,
    /// `None`: the answer is a file.
    answer: Option<&'static str>,
}

const fn method(
    name: &'static str,
    rest: &'static str,
    request: Option<&'static str>,
    answer: Option<&'static str>,
) -> Method {
    Method { name, rest, request, answer }
}

const METHODS: [Method; 11] = [
    method("SetConfig", "POST /config", Some("Config"), Some("Warning")),
    method("GetConfig", "GET /config", None, Some("Config")),
    method("UpdateConfig", "PATCH /config", Some("ConfigUpdate"), Some("Warning")),
    method("AppendConfig", "PATCH /config/append", Some("ConfigAppend"), Some("Warning")),
    method("DeleteConfig", "PATCH /config/delete", Some("ConfigDelete"), Some("Warning")),
    method("SetControlState", "POST /control/state", Some("ControlState"), Some("Warning")),
    method("SetControlAction", "POST /control/action", Some("ControlAction"), Some("ControlActionResponse")),
    method("GetMetrics", "POST /monitor/metrics", Some("MetricsRequest"), Some("MetricsResponse")),
    method("GetStates", "POST /monitor/states", Some("StatesRequest"), Some("StatesResponse")),
    method("GetCapture", "POST /monitor/capture", Some("CaptureRequest"), None),
    method("GetVersion", "GET /capabilities/version", None, Some("Version")),
];

fn method_of(name: &str) -> &'static Method {
    METHODS.iter().find(|method| method.name == name).unwrap()
}

/// The message inside the one that surrounds a request or an answer.
fn inner(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes.strip_prefix(&[10]).unwrap();
    let length = decode_varint(&mut rest).unwrap();
    assert_eq!(length, rest.len() as u64);
    rest
}

/// This JSON as gRPC writes it: 64-bit numbers are text, and empty lists are absent.
fn as_grpc(message: &str, json: &Value) -> Value {
    to_json(message, &from_json(message, json).unwrap()).unwrap()
}

/// An answer.
#[derive(Default)]
struct Answer {
    refused: bool,
    /// Absent if the answer is a file, or a refusal of gRPC.
    json: Option<Value>,
    file: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Transport {
    Rest,
    Grpc,
}

/// An exchange of a session.
struct Exchange {
    method: &'static Method,
    body: Option<Value>,
    message: Vec<u8>,
    refused: bool,
    reads: Vec<(String, Value)>,
    answer: Option<Value>,
}

impl Exchange {
    fn read(line: &str) -> Exchange {
        let mut all: Value = serde_json::from_str(line).unwrap();
        let mut take = |key: &str| all.as_object_mut().unwrap().remove(key);
        let method = method_of(take("grpc").unwrap().as_str().unwrap());
        assert_eq!(take("rest").unwrap(), method.rest);
        let digits = take("message").unwrap();
        let digits = digits.as_str().unwrap();
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let message: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
        let reads = take("reads").unwrap_or_else(|| json!({}));
        let reads = reads.as_object().unwrap().clone().into_iter().collect();
        let exchange = Exchange {
            method,
            body: take("body"),
            message,
            refused: take("status").is_some(),
            reads,
            answer: take("answer"),
        };
        assert_eq!(all, json!({}));
        exchange
    }

    /// Both transports carry the same request.
    fn check_message(&self) {
        match (self.method.request, &self.body) {
            (Some(request), Some(body)) => {
                assert_eq!(to_json(request, inner(&self.message)), Ok(as_grpc(request, body)));
            }
            (request, body) => assert!(request.is_none() && body.is_none() && self.message.is_empty()),
        }
    }

    fn ask(&self, transport: Transport, address: SocketAddr) -> Answer {
        let Method { name, rest: request, answer, .. } = self.method;
        match transport {
            Transport::Rest => {
                let (status, body) = rest(address, request, self.body.as_ref());
                let refused = status != 200;
                match answer.is_some() || refused {
                    true => Answer { refused, json: Some(serde_json::from_slice(&body).unwrap()), file: Vec::new() },
                    false => Answer { file: body, ..Answer::default() },
                }
            }
            Transport::Grpc => {
                let bytes = grpc(connect(address), name, &self.message, None).unwrap();
                match (bytes.get(5..), answer) {
                    (None, _) => Answer { refused: true, ..Answer::default() },
                    (Some(bytes), Some(message)) => {
                        Answer { json: Some(to_json(message, inner(bytes)).unwrap()), ..Answer::default() }
                    }
                    (Some(bytes), None) => Answer { file: inner(bytes).to_vec(), ..Answer::default() },
                }
            }
        }
    }

    /// The first difference of what the script read.
    fn difference(&self, answer: &Answer) -> Option<String> {
        // 64-bit numbers are text in the JSON of gRPC.
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.reads.iter().find_map(|(place, wanted)| {
            let now = match place.as_str() {
                "packets" => json!(packets(&answer.file)),
                _ => {
                    let json = answer.json.as_ref().and_then(|json| json.pointer(&format!("/{place}")));
                    json.cloned().unwrap_or_default()
                }
            };
            (text(&now) != text(wanted)).then(|| format!("{place} is {now}, not {wanted}"))
        })
    }
}

/// Number of packets in a pcap file.
fn packets(file: &[u8]) -> usize {
    let (mut at, mut count) = (24, 0);
    while at < file.len() {
        let length = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap());
        at += 16 + length as usize;
        count += 1;
    }
    assert_eq!(at, file.len());
    count
}

/// The places of fields that `now` lacks, or that have another type there.
fn missing(recorded: &Value, now: &Value, place: &str) -> Vec<String> {
    let below = |key: &str, recorded: &Value, now: Option<&Value>| {
        let place = format!("{place}/{key}");
        match now {
            Some(now) => missing(recorded, now, &place),
            None => vec![place],
        }
    };
    match (recorded, now) {
        (Value::Object(fields), Value::Object(now)) => {
            fields.iter().flat_map(|(key, field)| below(key, field, now.get(key))).collect()
        }
        (Value::Array(list), Value::Array(now)) => {
            list.iter().enumerate().flat_map(|(i, entry)| below(&i.to_string(), entry, now.get(i))).collect()
        }
        _ if discriminant(recorded) == discriminant(now) => Vec::new(),
        _ => vec![place.to_owned()],
    }
}

/// The fields for which a request was refused: what precedes the reasons.
fn fields(refusal: &Value) -> BTreeSet<String> {
    let errors = refusal["errors"].as_array().unwrap().iter();
    errors.map(|error| error.as_str().unwrap().split(": ").next().unwrap().to_owned()).collect()
}

/// Makes the requests of a session, one after the other. A script asks until it reads what it waits for.
fn replay(session: &str, transport: Transport) {
    let text = std::fs::read_to_string(folder("sessions").join(session)).unwrap();
    serving(|rest, grpc| {
        let address = match transport {
            Transport::Rest => rest,
            Transport::Grpc => grpc,
        };
        for (number, line) in (1..).zip(text.lines()) {
            let at = format!("{session}:{number}");
            let exchange = Exchange::read(line);
            exchange.check_message();
            let begun = Instant::now();
            let answer = loop {
                let answer = exchange.ask(transport, address);
                assert_eq!(answer.refused, exchange.refused, "{at}: {:?}", answer.json);
                let Some(why) = exchange.difference(&answer) else { break answer };
                assert!(begun.elapsed() < PATIENCE, "{at}: {why}");
                std::thread::sleep(LOOK);
            };
            let (Some(recorded), Some(now)) = (&exchange.answer, &answer.json) else { continue };
            match (exchange.refused, transport, exchange.method.answer) {
                (true, ..) => assert_eq!(fields(now), fields(recorded), "{at}"),
                (false, Transport::Grpc, Some(message)) => {
                    assert_eq!(missing(&as_grpc(message, recorded), now, ""), [""; 0], "{at}: {now}");
                }
                (false, ..) => assert_eq!(missing(recorded, now, ""), [""; 0], "{at}: {now}"),
            }
        }
    });
}

#[test]
fn flows_of_snappi_over_rest() {
    replay("snappi-1.62-flows.jsonl", Transport::Rest);
}

#[test]
fn flows_of_snappi_over_grpc() {
    replay("snappi-1.62-flows.jsonl", Transport::Grpc);
}

#[test]
fn captures_of_snappi() {
    replay("snappi-1.62-captures.jsonl", Transport::Rest);
    replay("snappi-1.62-captures.jsonl", Transport::Grpc);
}

#[test]
fn routes_of_snappi_over_rest() {
    replay("snappi-1.62-routes.jsonl", Transport::Rest);
}

#[test]
fn routes_of_snappi_over_grpc() {
    replay("snappi-1.62-routes.jsonl", Transport::Grpc);
}

/// A client that is a year older writes fewer defaults; all its other requests are the same.
#[test]
fn routes_of_an_older_snappi() {
    replay("snappi-1.41-routes.jsonl", Transport::Rest);
    replay("snappi-1.41-routes.jsonl", Transport::Grpc);
}

#[test]
fn every_session_is_replayed() {
    let files = std::fs::read_dir(folder("sessions")).unwrap().map(|entry| entry.unwrap().file_name());
    let files: BTreeSet<String> = files.map(|name| name.into_string().unwrap()).collect();
    let replayed = [
        "snappi-1.41-routes.jsonl",
        "snappi-1.62-captures.jsonl",
        "snappi-1.62-flows.jsonl",
        "snappi-1.62-routes.jsonl",
    ];
    assert_eq!(files, BTreeSet::from(replayed.map(str::to_owned)));
}

#[test]
fn an_answer_that_lacks_a_field_is_noticed() {
    let recorded = json!({"rows": [{"count": 1, "name": "a"}], "state": "up"});
    let now = json!({"rows": [{"name": "b", "count": 2, "new": 0}, {}], "state": "down"});
    assert_eq!(missing(&recorded, &now, ""), [""; 0]);
    let now = json!({"rows": [{"name": 7}], "state": "down"});
    assert_eq!(missing(&recorded, &now, ""), ["/rows/0/count", "/rows/0/name"]);
    assert_eq!(missing(&recorded, &json!({"rows": [], "state": null}), ""), ["/rows/0", "/state"]);
}

/// Devices and flows with names that recorded requests use.
fn known() -> Value {
    let address = json!({"name": "d1 ip", "address": "192.0.2.1", "gateway": "192.0.2.254"});
    let peer = json!({"name": "d1 peer", "peer_address": "192.0.2.254", "as_type": "ebgp", "as_number": 65001});
    json!({
        "ports": [{"name": "p1", "location": "eth1"}, {"name": "p2", "location": "eth2"}],
        "devices": [{
            "name": "d1",
            "ethernets": [{
                "name": "d1 eth", "mac": "02:00:00:00:00:01", "connection": {"port_name": "p1"},
                "ipv4_addresses": [address],
            }],
            "bgp": {"router_id": "192.0.2.1", "ipv4_interfaces": [{"ipv4_name": "d1 ip", "peers": [peer]}]},
        }],
        "flows": [{
            "name": "f1", "tx_rx": {"port": {"tx_name": "p1", "rx_name": "p2"}}, "packet": [{"ethernet": {}}],
            "metrics": {"enable": true},
        }],
        "events": {"dp_events": {"enable": true}},
    })
}

/// Requests, and the fields for which they are refused; none: it is accepted.
type Outcomes = [(&'static str, &'static [&'static str])];

/// With [`known`] in force.
const OF_SNAPPI: &Outcomes = &[
    ("snappi-append.AppendConfig", &[]),
    ("snappi-update.UpdateConfig", &[]),
    ("snappi-delete.DeleteConfig", &[]),
    ("snappi-traffic.SetControlState", &[]),
    ("snappi-flow-metrics.GetMetrics", &[]),
    ("snappi-convergence.GetMetrics", &[]),
    ("snappi-bgp-metrics.GetMetrics", &[]),
    ("snappi-ping.SetControlAction", &[]),
    ("snappi-prefixes.GetStates", &[]),
    ("snappi-peers.SetControlState", &[]),
    ("snappi-capture.GetCapture", &["packets.slice"]),
    (
        "snappi-flows.SetConfig",
        &[
            "captures[0].filters[0].ethernet.src.mask",
            "captures[0].filters[1].custom.mask",
            "captures[0].filters[2].ipv4.dst.mask",
            "captures[0].filters[2]",
            "flows[0].packet[2].ipv4.header_checksum.generated",
            "flows[1].payload",
            "flows[2].packet[5].gtpv1",
            "flows[2].packet[5].ethernet",
            "flows[2].packet[7].pfcpause",
            "flows[2].packet[7].ethernet",
            "flows[2].packet[9].ppp",
            "flows[2].packet[10].igmpv1",
            "flows[2].packet[12].gtpv2",
            "flows[2].packet[13].ethernetpause",
            "flows[3].size.increment.step",
            "flows[3].egress_packet",
        ],
    ),
    (
        "snappi-bgp.SetConfig",
        &[
            "devices[0].ethernets[0].ipv4_addresses[0].gateway_mac.value",
            "devices[0].bgp.ipv4_interfaces[0].peers[0].v4_routes[0].extended_communities",
            "devices[0].bgp.ipv4_interfaces[0].peers[0].capability",
            "devices[0].bgp.ipv4_interfaces[0].peers[0].replay_updates",
            "devices[1].ethernets[0].ipv4_addresses[0].gateway_mac.value",
            "devices[1].bgp.ipv4_interfaces[0].peers[0].v4_routes[0].extended_communities",
            "devices[1].bgp.ipv4_interfaces[0].peers[0].capability",
            "devices[1].bgp.ipv4_interfaces[0].peers[0].replay_updates",
        ],
    ),
    (
        "snappi-rsvp-ospf.SetConfig",
        &[
            "devices[0].ospfv2.interfaces[0].srlg_values",
            "devices[0].ospfv2.v4_routes[0].route_origin.external_type_2.flags.a_flag",
            concat!(
                "devices[0].rsvp.lsp_ipv4_interfaces[0].p2p_ingress_ipv4_lsps[0]",
                ".session_attribute.resource_affinities.include_any",
            ),
            "devices[0].rsvp.lsp_ipv4_interfaces[0].p2p_ingress_ipv4_lsps[0].tspec.token_bucket_size",
            "devices[0].rsvp.lsp_ipv4_interfaces[0].p2p_ingress_ipv4_lsps[0].tspec.peak_data_rate",
            "devices[0].rsvp.lsp_ipv4_interfaces[0].p2p_ingress_ipv4_lsps[0].fast_reroute",
        ],
    ),
    // The port has no speed.
    ("gosnappi-config.SetConfig", &["flows[0].rate.percentage"]),
];

/// With the configuration of gosnappi in force.
const OF_GOSNAPPI: &Outcomes = &[
    ("gosnappi-port-metrics.GetMetrics", &[]),
    ("gosnappi-neighbors.GetStates", &[]),
    ("gosnappi-withdraw.SetControlState", &[]),
    // The next ones are about this configuration.
    ("snappi-filters.SetConfig", &[]),
    ("snappi-labelled.GetStates", &[]),
    // Its peer has no other end.
    ("snappi-notification.SetControlAction", &["1 of the peers have no connection, for example `b`"]),
    ("snappi-restart.SetControlAction", &["1 of the peers have no connection, for example `b`"]),
];

/// The recorded request, as REST carries it.
fn single(name: &str) -> Value {
    let file = folder("recorded").join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Makes these requests over REST, one after the other.
fn check_outcomes(address: SocketAddr, outcomes: &Outcomes) {
    for (name, refused) in outcomes {
        let (_, method) = name.split_once('.').unwrap();
        let (status, body) = rest(address, method_of(method).rest, Some(&single(name)));
        let found = if status == 200 { BTreeSet::new() } else { fields(&serde_json::from_slice(&body).unwrap()) };
        let expected: BTreeSet<String> = refused.iter().map(|field| (*field).to_owned()).collect();
        assert_eq!(found, expected, "{name}: {}", String::from_utf8_lossy(&body));
    }
}

#[test]
fn single_requests_are_accepted_or_refused_as_before() {
    serving(|address, _| {
        let set = |config: &Value| {
            let (status, body) = rest(address, "POST /config", Some(config));
            assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        };
        set(&known());
        check_outcomes(address, OF_SNAPPI);
        let mut config = single("gosnappi-config.SetConfig");
        config["layer1"] = json!([{"name": "line", "port_names": ["tx"], "speed": "speed_1_gbps"}]);
        set(&config);
        check_outcomes(address, OF_GOSNAPPI);
    });
    let recorded = std::fs::read_dir(folder("recorded")).unwrap().map(|entry| entry.unwrap().path());
    let recorded = recorded.filter(|file| file.extension().is_some_and(|extension| extension == "json"));
    let recorded: BTreeSet<String> = recorded.map(|file| file.file_stem().unwrap().to_str().unwrap().into()).collect();
    let checked = OF_SNAPPI.iter().chain(OF_GOSNAPPI).map(|(name, _)| (*name).to_owned());
    assert_eq!(checked.collect::<BTreeSet<_>>(), recorded);
}
