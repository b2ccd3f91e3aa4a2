//! Configurations as clients write them.

use super::*;
use drophammer_emulation::bgp::EncapsulationKind;
use drophammer_model::mac::MacAddr;
use drophammer_model::routes::AfiSafi;
use drophammer_model::traffic::{Field, Header};
use drophammer_model::trial::Targets;
use drophammer_rig::ProtocolConfig;
use drophammer_wire::bgp::update::Labels;
use serde_json::json;
use std::time::Duration;

fn link() -> Link {
    let speed = Some(Bandwidth(1_000_000_000));
    Link { mtu: 1_500, largest_frame: 1_522, speed, reported: speed, is_virtual: false }
}

fn built(document: Value) -> Result<Built, Vec<String>> {
    build(&Config::read(document)?, &[link(), link()], 7)
}

fn ports() -> Value {
    json!([{"name": "p1", "location": "eth1"}, {"name": "p2", "location": "eth2"}])
}

fn of_flow(flow: Value) -> Result<Built, Vec<String>> {
    let mut whole = json!({"name": "f", "tx_rx": {"port": {"tx_name": "p1", "rx_names": ["p2"]}}});
    whole.as_object_mut().unwrap().extend(flow.as_object().unwrap().clone());
    built(json!({"ports": ports(), "flows": [whole]}))
}

#[test]
fn a_flow_between_ports_is_one_stream() {
    let built = of_flow(json!({
        "packet": [{"ethernet": {"dst": {"value": "00:00:00:00:00:0b"}}}, {"ipv4": {
            "src": {"value": "1.1.1.1"}, "dst": {"increment": {"start": "2.2.2.2", "step": "0.0.0.1", "count": 5}},
        }}, {"udp": {}}],
        "size": {"fixed": 128}, "rate": {"mbps": 1}, "duration": {"fixed_packets": {"packets": 100}},
    }));
    let built = built.unwrap();
    let stream = &built.flows[0].streams[0];
    assert_eq!(stream.spec.sources.first.to_string(), "1.1.1.1");
    let Targets::Addresses(range) = &stream.spec.destinations else { panic!() };
    assert!(range.is_unspecified());
    let Header::Ipv4(ip) = &stream.spec.headers[1] else { panic!() };
    assert_eq!(ip.source, None);
    assert!(matches!(ip.destination, Some(Field::Increment { count: 5, .. })));
    let Program { rate_pps, delay, frames, bursts, gap } = stream.program;
    assert!((rate_pps - 1e6 / (128.0 * 8.0)).abs() < 1e-9);
    assert_eq!((delay, frames, bursts, gap), (Duration::ZERO, Some(100), Some(1), Duration::ZERO));
    assert_eq!((stream.sizes.as_slice(), stream.gateway, built.warnings.len()), (&[128][..], None, 0));
}

#[test]
fn frames_without_room_for_the_signature_are_enlarged_and_told() {
    let built = of_flow(json!({"packet": [{"ethernet": {}}, {"ipv6": {}}, {"tcp": {}}]})).unwrap();
    assert_eq!(built.flows[0].streams[0].sizes, [90]);
    assert!(
        built.warnings[0].starts_with("flows[0].size: frames of 64 bytes are sent with 90 bytes"),
        "{:?}",
        built.warnings
    );
}

#[test]
fn frames_smaller_than_ethernet_has_are_enlarged_and_told() {
    let with = |size: Value| of_flow(json!({"packet": [{"ethernet": {}}, {"ipv4": {}}], "size": size})).unwrap();
    let built = with(json!({"fixed": 40}));
    assert_eq!(built.flows[0].streams[0].sizes, [64]);
    let text = "flows[0].size: Ethernet frames have at least 64 bytes, so frames of 40 bytes are sent with 64";
    assert_eq!(built.warnings, [text]);
    assert!(with(json!({"weight_pairs": {"predefined": "standard_imix"}})).warnings[0].contains("frames of 58 bytes"));
    assert!(with(json!({"fixed": 64})).warnings.is_empty());
}

#[test]
fn lengths_and_shares_are_exact() {
    let seconds = of_flow(json!({"rate": {"pps": 1000}, "duration": {"fixed_seconds": {"seconds": 2.5}}})).unwrap();
    assert_eq!(seconds.flows[0].streams[0].program.frames, Some(2_500));
    let burst = json!({"rate": {"percentage": 10}, "duration": {"burst": {"packets": 10, "bursts": 3, "inter_burst_gap": {"bytes": 1250}}}});
    let program = of_flow(burst).unwrap().flows[0].streams[0].program;
    assert_eq!((program.frames, program.bursts, program.gap), (Some(10), Some(3), Duration::from_micros(10)));
    assert!((program.rate_pps - 148_809.523_8).abs() < 0.001);
}

#[test]
fn a_flow_without_a_receiver_may_arrive_at_any_port_of_its_host() {
    let cut_through = json!({"enable": true, "latency": {"enable": true, "mode": "cut_through"}});
    let ends = json!({"port": {"tx_name": "p2"}});
    let flow = json!({"tx_rx": ends, "metrics": cut_through, "size": {"weight_pairs": {}}});
    let built = of_flow(flow).unwrap();
    let (flow, spec) = (&built.flows[0], &built.flows[0].streams[0].spec);
    assert_eq!((flow.receives, spec.from, spec.to, &spec.also[..], spec.ipdv), (false, 1, 0, &[1][..], false));
    let ports = ["h1/a", "h1/b", "h2/a"].map(|location| json!({"name": location, "location": location}));
    let flow = json!({"name": "f", "tx_rx": {"port": {"tx_name": "h1/a"}}});
    let config = Config::read(json!({"ports": ports, "flows": [flow]})).unwrap();
    let built = build(&config, &[link(); 3], 7).unwrap();
    let spec = &built.flows[0].streams[0].spec;
    assert_eq!((spec.to, &spec.also[..]), (1, &[0][..]));
}

#[test]
fn a_share_of_a_virtual_link_is_one_of_the_speed_that_it_reports() {
    let with = |reported| {
        let link = Link { speed: None, reported, is_virtual: true, ..link() };
        let ends = json!({"port": {"tx_name": "p1", "rx_name": "p2"}});
        let flow = json!({"name": "f", "tx_rx": ends, "rate": {"percentage": 10}});
        build(&Config::read(json!({"ports": ports(), "flows": [flow]})).unwrap(), &[link; 2], 7)
    };
    let built = with(Some(Bandwidth(10_000_000_000))).unwrap();
    assert!((built.flows[0].streams[0].program.rate_pps - 1_488_095.238).abs() < 0.01);
    let text = "flows[0].rate.percentage: port `p1` has no speed of its own, so the rate is a share of the 10 Gbit/s that its virtual link reports; layer1.speed sets another one";
    assert_eq!(built.warnings, [text]);
    let unknown = "flows[0].rate.percentage: the speed of the port is unknown; write layer1.speed";
    assert_eq!(with(None).unwrap_err(), [unknown]);
}

#[test]
fn cut_through_is_until_the_first_bit() {
    let with = |sizes: Value, mode: &str| {
        of_flow(json!({"size": sizes, "metrics": {"enable": true, "latency": {"enable": true, "mode": mode}}}))
    };
    let line = |mode| with(json!({"fixed": 125}), mode).unwrap().flows[0].streams[0].line_ns;
    assert_eq!([line("cut_through"), line("store_forward")], [1_000.0, 0.0]);
    assert_eq!(
        with(json!({"weight_pairs": {}}), "cut_through").unwrap_err(),
        ["flows[0].metrics.latency.mode: cut_through is measured for frames of one size only; use store_forward"]
    );
    assert!(with(json!({"weight_pairs": {}}), "store_forward").is_ok());
}

#[test]
fn rates_of_many_flows_are_not_recorded() {
    let flow = |i: usize| json!({"name": format!("f{i}"), "tx_rx": {"port": {"tx_name": "p1", "rx_name": "p2"}}});
    let with = |flows: usize, enable: bool| {
        let flows: Vec<Value> = (0..flows).map(flow).collect();
        built(json!({"ports": ports(), "flows": flows, "events": {"dp_events": {"enable": enable}}}))
    };
    assert!(with(MOST_RATED, true).is_ok() && with(MOST_RATED + 1, false).is_ok());
    assert_eq!(
        with(MOST_RATED + 1, true).unwrap_err(),
        ["events.dp_events: rates of at most 16 flows (times pairs of ports) are recorded, not of 17"]
    );
}

#[test]
fn tagged_flows_count_by_place_and_have_a_limit() {
    let flow = |i: usize, count: u64| {
        let id = json!({"increment": {"start": 1, "count": count}, "metric_tags": [{"name": "vlan"}]});
        json!({
            "name": format!("f{i}"), "tx_rx": {"port": {"tx_name": "p1", "rx_name": "p2"}},
            "packet": [{"ethernet": {}}, {"vlan": {"id": id}}],
        })
    };
    let with = |counts: &[u64]| {
        let flows: Vec<Value> = counts.iter().enumerate().map(|(i, count)| flow(i, *count)).collect();
        built(json!({"ports": ports(), "flows": flows}))
    };
    let four = with(&[4_096; 4]).unwrap();
    assert_eq!(four.flows.iter().map(|flow| flow.streams[0].spec.cycle).collect::<Vec<_>>(), [4_096; 4]);
    assert_eq!(four.flows[0].tags.combinations[4_094..], [[4_095], [0]]);
    let text =
        "the frames after which tagged fields repeat, of all flows (times pairs of ends) together, are at most 16384";
    assert_eq!(
        with(&[4_096, 4_096, 4_096, 4_096, 1]).unwrap_err(),
        [format!("flows[4].packet: {text}, and 16385 with this flow")]
    );
    assert_eq!(
        with(&[4_097]).unwrap_err(),
        ["flows[0].packet[1].vlan.id.metric_tags[0]: the field repeats after 4097 frames; tags need at most 4096"]
    );
}

fn device(port: &str, own: &str, gateway: &str, n: u8) -> Value {
    json!({
        "name": format!("d{n}"),
        "ethernets": [{
            "name": format!("e{n}"), "connection": {"port_name": port}, "mac": format!("02:00:00:00:00:{n:02x}"),
            "vlans": [{"name": format!("v{n}"), "id": 100}],
            "ipv4_addresses": [{"name": format!("a{n}"), "address": own, "gateway": gateway}],
        }],
        "bgp": {"router_id": own, "ipv4_interfaces": [{"ipv4_name": format!("a{n}"), "peers": [{
            "name": format!("b{n}"), "peer_address": gateway, "as_type": "ebgp", "as_number": 65000 + u32::from(n),
            "v4_routes": [{"name": format!("r{n}"), "addresses": [{"address": format!("{n}0.0.0.0"), "prefix": 24, "count": 10}]}],
        }]}]},
    })
}

#[test]
fn devices_have_sessions_routes_and_flows() {
    let devices = json!([device("p2", "10.0.2.2", "10.0.2.1", 2), device("p1", "10.0.1.2", "10.0.1.1", 1)]);
    let built = built(json!({
        "ports": ports(), "devices": devices,
        "flows": [{
            "name": "f", "packet": [{"ethernet": {}}, {"ipv4": {}}],
            "tx_rx": {"device": {"tx_names": ["a1"], "rx_names": ["r2", "a2"]}}, "duration": {"fixed_packets": {"packets": 5}},
        }],
    }));
    let built = built.unwrap();
    let names: Vec<&str> = built.sessions.iter().map(|session| session.name.as_str()).collect();
    assert_eq!(names, ["b1", "b2"], "in the order of the ports");
    assert_eq!(built.rig.ports[0].devices[1].bgp()[0].dut_as, 0);
    assert_eq!(built.neighbours.iter().map(|n| (n.port, n.device)).collect::<Vec<_>>(), [(1, 1), (0, 1)]);
    let [routes, host] = &built.flows[0].streams[..] else { panic!() };
    assert!(matches!(&routes.spec.destinations, Targets::Routes { count: 10, .. }));
    let Targets::Addresses(range) = &host.spec.destinations else { panic!() };
    assert_eq!(range.first.to_string(), "10.0.2.2");
    assert_eq!([routes, host].map(|stream| stream.program.frames), [Some(3), Some(2)]);
    assert_eq!(routes.gateway, Some(1));
    let (Header::Ethernet(ethernet), Header::Vlan(vlan)) = (&routes.spec.headers[0], &routes.spec.headers[1]) else {
        panic!()
    };
    assert_eq!((&ethernet.destination, vlan.vid.first().get()), (&None, 100));
}

#[test]
fn a_flow_both_ways_has_its_ends_reversed() {
    let devices = json!([device("p1", "10.0.1.2", "10.0.1.1", 1), device("p2", "10.0.2.2", "10.0.2.1", 2)]);
    let built = built(json!({
        "ports": ports(), "devices": devices,
        "flows": [{
            "name": "f", "packet": [{"ethernet": {}}, {"ipv4": {"src": {"value": "1.1.1.1"}, "dst": {"value": "2.2.2.2"}}},
                {"udp": {"src_port": {"value": 5}, "dst_port": {"value": 6}}}],
            "tx_rx": {"device": {"tx_names": ["a1"], "rx_names": ["a2"], "bidirectional": true}},
            "duration": {"fixed_packets": {"packets": 5}},
        }],
    }));
    let built = built.unwrap();
    let [there, back] = &built.flows[0].streams[..] else { panic!() };
    for (stream, ports, source, mac, source_port) in [(there, (0, 1), "1.1.1.1", 1, 5), (back, (1, 0), "2.2.2.2", 2, 6)]
    {
        assert_eq!((stream.spec.from, stream.spec.to, stream.program.frames), (ports.0, ports.1, Some(5)));
        assert_eq!(stream.spec.sources.first.to_string(), source);
        let [Header::Ethernet(ethernet), Header::Vlan(_), Header::Ipv4(_), Header::Udp(udp)] = &stream.spec.headers[..]
        else {
            panic!("{:?}", stream.spec.headers)
        };
        assert_eq!(
            (ethernet.source.clone(), ethernet.destination.clone()),
            (Some(MacAddr([2, 0, 0, 0, 0, mac]).into()), None)
        );
        assert_eq!(udp.source_port, source_port.into());
    }
}

#[test]
fn pairs_of_devices_share_the_values_of_a_flow() {
    let devices = json!([
        device("p1", "10.0.1.2", "10.0.1.1", 1),
        device("p1", "10.0.3.2", "10.0.3.1", 3),
        device("p2", "10.0.2.2", "10.0.2.1", 2),
        device("p2", "10.0.4.2", "10.0.4.1", 4),
    ]);
    let flow = |source_port: Value| {
        let numbers = json!({"src_port": source_port, "dst_port": {"values": [7, 8, 9]}});
        let flow = json!({
            "name": "f", "packet": [{"ethernet": {}}, {"ipv4": {}}, {"udp": numbers}],
            "tx_rx": {"device": {"mode": "one_to_one", "tx_names": ["a1", "a3"], "rx_names": ["a2", "a4"]}},
        });
        built(json!({"ports": ports(), "devices": devices, "flows": [flow]})).unwrap()
    };
    let ports_of = |built: &Built| -> Vec<[Field<u16>; 2]> {
        let udp = |stream: &super::flows::Stream| match stream.spec.headers.last() {
            Some(Header::Udp(udp)) => [udp.source_port.clone(), udp.destination_port.clone()],
            other => panic!("{other:?}"),
        };
        built.flows[0].streams.iter().map(udp).collect()
    };
    let two = flow(json!({"increment": {"start": 5000, "count": 2}}));
    assert_eq!(
        ports_of(&two),
        [[Field::Value(5_000), Field::Values(vec![7, 9, 8])], [Field::Value(5_001), Field::Values(vec![8, 7, 9])]]
    );
    assert_eq!((two.flows[0].streams[1].turn, two.warnings.len()), ((1, 2), 0));
    // Frames of one stream are every second frame of the flow.
    let four = flow(json!({"increment": {"start": 1, "step": 3, "count": 4}}));
    let pair = |start| Field::Increment { start, step: 6, count: 2 };
    assert_eq!(ports_of(&four).into_iter().map(|[source, _]| source).collect::<Vec<_>>(), [pair(1), pair(4)]);
}

#[test]
fn values_follow_the_order_of_the_names_and_not_that_of_the_ports() {
    let devices = json!([device("p1", "10.0.1.2", "10.0.1.1", 1), device("p2", "10.0.2.2", "10.0.2.1", 2)]);
    let flow = json!({
        "name": "f", "packet": [{"ethernet": {}}, {"ipv4": {}}, {"udp": {"src_port": {"values": [7, 8]}}}],
        "tx_rx": {"device": {"mode": "one_to_one", "tx_names": ["a2", "a1"], "rx_names": ["a1", "a2"]}},
    });
    let built = built(json!({"ports": ports(), "devices": devices, "flows": [flow]})).unwrap();
    let found = built.flows[0].streams.iter().map(|stream| match stream.spec.headers.last() {
        Some(Header::Udp(udp)) => (stream.spec.from, stream.turn, udp.source_port.clone()),
        other => panic!("{other:?}"),
    });
    assert_eq!(found.collect::<Vec<_>>(), [(0, (1, 2), Field::Value(8)), (1, (0, 2), Field::Value(7))]);
}

#[test]
fn many_values_are_told_only_if_pairs_must_share_them() {
    let packet = json!([{"ethernet": {}}, {"ipv4": {"dst": {"random": {"min": "10.0.0.0", "max": "10.255.255.255", "count": 100_000}}}}]);
    let one = of_flow(json!({"packet": packet})).unwrap();
    let destination = |built: &Built, stream: usize| match &built.flows[0].streams[stream].spec.headers[1] {
        Header::Ipv4(ip) => ip.destination.clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(destination(&one, 0), Some(Field::Random { count: 100_000, .. })));
    assert_eq!(one.warnings, Vec::<String>::new());
    let mut document = json!({"ports": ports(), "devices": [
        device("p1", "10.0.1.2", "10.0.1.1", 1), device("p1", "10.0.3.2", "10.0.3.1", 3), device("p2", "10.0.2.2", "10.0.2.1", 2),
    ]});
    let ends = json!({"device": {"tx_names": ["d1", "d3"], "rx_names": ["d2"]}});
    let mut packet = packet;
    packet[1]["ipv4"]["dst"]["random"]["count"] = json!(99_999);
    document["flows"] = json!([{"name": "f", "packet": packet, "tx_rx": ends}]);
    let two = built(document).unwrap();
    let told =
        "flows[0].packet: a field has too many values to share them between 2 pairs, so each pair sends all of them";
    assert_eq!(two.warnings, [told]);
}

#[test]
fn devices_without_headers_exchange_empty_packets() {
    let devices = json!([device("p1", "10.0.1.2", "10.0.1.1", 1), device("p2", "10.0.2.2", "10.0.2.1", 2)]);
    let ends = json!({"device": {"tx_names": ["d1"], "rx_names": ["d2"]}});
    let built = built(json!({"ports": ports(), "devices": devices, "flows": [{"name": "f", "tx_rx": ends}]})).unwrap();
    let stream = &built.flows[0].streams[0];
    let Header::Ipv4(ip) = stream.spec.headers.last().unwrap() else { panic!("{:?}", stream.spec.headers) };
    assert_eq!((ip.protocol.clone(), stream.spec.sources.first.to_string()), (Some(61.into()), "10.0.1.2".into()));
}

#[test]
fn contradictions_have_their_path() {
    for (flow, error) in [
        (
            json!({"tx_rx": {"port": {"tx_name": "p9", "rx_name": "p2"}}}),
            "flows[0].tx_rx.port.tx_name: there is no port `p9`",
        ),
        (
            json!({"tx_rx": {"device": {"tx_names": ["x"], "rx_names": ["y"]}}}),
            "flows[0].tx_rx.device.tx_names: there is no device",
        ),
        (json!({"packet": [{"ethernet": {}}, {"udp": {}}]}), "flows[0].packet: "),
        (json!({"packet": [{"ipv4": {}}]}), "flows[0].packet: the first header must be `ethernet`"),
        (json!({"size": {"fixed": 9000}}), "flows[0].size: frames of 9000 bytes are larger than the 1526 bytes"),
    ] {
        let found = of_flow(flow).unwrap_err();
        assert!(found[0].starts_with(error), "{found:?}");
    }
}

/// A device on port `n` with an address, without protocols.
fn host(n: u8) -> Value {
    json!({
        "name": format!("d{n}"),
        "ethernets": [{
            "name": format!("e{n}"), "connection": {"port_name": format!("p{n}")},
            "ipv4_addresses": [{"name": format!("a{n}"), "address": format!("10.0.0.{n}"), "gateway": format!("10.0.0.{}", 3 - n)}],
        }],
        "ipv4_loopbacks": [{"name": format!("l{n}"), "eth_name": format!("e{n}"), "address": format!("{n}.{n}.{n}.{n}")}],
    })
}

#[test]
fn ospf_routers_are_protocols_with_routes_for_flows() {
    let mut device = host(1);
    device["ospfv2"] = json!({
        "name": "o1", "interfaces": [{"name": "i1", "ipv4_name": "a1"}],
        "v4_routes": [{"name": "r1", "addresses": [{"address": "20.0.0.0", "count": 4}]}],
    });
    let flow = json!({
        "name": "f", "packet": [{"ethernet": {}}, {"ipv4": {}}], "tx_rx": {"device": {"tx_names": ["a2"], "rx_names": ["r1"]}},
    });
    let built = built(json!({"ports": ports(), "devices": [device, host(2)], "flows": [flow]})).unwrap();
    let [router] = &built.routers[..] else { panic!() };
    assert_eq!((router.name.as_str(), router.place.port, router.place.device), ("o1", 0, 1));
    assert_eq!(router.routes()[0].0, "r1");
    let [ProtocolConfig::Ospf(config)] = &built.rig.ports[0].devices[1].protocols[..] else { panic!() };
    assert_eq!((config.router_id.to_string().as_str(), config.mtu), ("10.0.0.1", 1_500));
    assert!(matches!(&built.flows[0].streams[0].spec.destinations, Targets::Routes { count: 4, .. }));
}

#[test]
fn lsps_begin_at_addresses_of_the_router_and_flows_take_their_labels() {
    let mut device = host(1);
    let lsp = |n: u8| json!({"name": format!("lsp{n}"), "remote_address": "2.2.2.2", "tunnel_id": n});
    device["rsvp"] = json!({
        "name": "t1", "ipv4_interfaces": [{"ipv4_name": "a1", "neighbor_ip": "10.0.0.2"}],
        "lsp_ipv4_interfaces": [
            {"ipv4_name": "a1", "p2p_ingress_ipv4_lsps": [lsp(1)]}, {"ipv4_name": "l1", "p2p_ingress_ipv4_lsps": [lsp(2)]},
        ],
    });
    let flow = json!({
        "name": "f", "packet": [{"ethernet": {}}, {"vlan": {}}, {"mpls": {}}, {"ipv4": {}}],
        "tx_rx": {"device": {"tx_names": ["lsp2"], "rx_names": ["a2"]}},
    });
    let document = json!({"ports": ports(), "devices": [device, host(2)], "flows": [flow]});
    let whole = built(document.clone()).unwrap();
    let [ProtocolConfig::Rsvp(config)] = &whole.rig.ports[0].devices[1].protocols[..] else { panic!() };
    let senders: Vec<String> = config.ingress.iter().map(|range| range.lsps.sender.to_string()).collect();
    assert_eq!(senders, ["10.0.0.1", "1.1.1.1"]);
    let stream = &whole.flows[0].streams[0];
    assert_eq!(stream.label, Some((2, LspPlace { place: whole.routers[0].place, lsp: 1 })));
    assert_eq!(stream.spec.sources.first.to_string(), "1.1.1.1");
    let mut wrong = document;
    wrong["devices"][0]["rsvp"]["ipv4_interfaces"][0]["neighbor_ip"] = "10.0.0.9".into();
    wrong["devices"][0]["rsvp"]["lsp_ipv4_interfaces"][0]["ipv4_name"] = "a2".into();
    let errors = built(wrong).unwrap_err();
    assert_eq!(
        errors[..2],
        [
            "devices[0].rsvp.ipv4_interfaces[0].neighbor_ip: this must be the gateway of the interface, to which Path messages go",
            "devices[0].rsvp.lsp_ipv4_interfaces: `a2` is not an IPv4 address or loopback of the router's ethernet",
        ]
    );
}

#[test]
fn routes_with_labels_need_the_capability() {
    let with = |capability: Value| {
        let mut device = device("p1", "10.0.1.2", "10.0.1.1", 1);
        let peer = &mut device["bgp"]["ipv4_interfaces"][0]["peers"][0];
        peer["capability"] = capability;
        peer["v4_routes"][0]["mpls_labels"] = json!({"labels": [{"start": 100, "max": 109}]});
        built(json!({"ports": ports(), "devices": [device]}))
    };
    let whole = with(json!({"ipv4_mpls": true})).unwrap();
    assert_eq!(whole.sessions[0].routes[0].encapsulation.kind, EncapsulationKind::Labelled(Labels::Counting(100)));
    assert!(whole.rig.ports[0].devices[1].bgp()[0].families.contains(&AfiSafi::IPV4_LABELLED));
    let errors = with(json!({})).unwrap_err();
    assert!(errors[0].ends_with("`r1` has labels, which need the capability `ipv4_mpls`"), "{errors:?}");
}

#[test]
fn timers_and_the_ttl_of_a_peer_are_those_that_are_used_or_refused() {
    let with = |advanced: Value| {
        let mut device = device("p1", "10.0.1.2", "10.0.1.1", 1);
        device["bgp"]["ipv4_interfaces"][0]["peers"][0]["advanced"] = advanced;
        built(json!({"ports": ports(), "devices": [device]}))
    };
    for accepted in [
        json!({"hold_time_interval": 90, "keep_alive_interval": 30, "time_to_live": 64}),
        json!({"hold_time_interval": 9, "keep_alive_interval": 3}),
        // Clients write the default that they were not given.
        json!({"hold_time_interval": 9, "keep_alive_interval": 30}),
    ] {
        assert!(with(accepted.clone()).is_ok(), "{accepted}");
    }
    let errors = with(json!({"keep_alive_interval": 5, "time_to_live": 1})).unwrap_err();
    let path = "devices[0].bgp.ipv4_interfaces[0].peers[0].advanced";
    let interval = "keep_alive_interval: only a third of the hold time is supported, 30 s; leave it out";
    assert_eq!(errors, [format!("{path}.{interval}"), format!("{path}.time_to_live: only 64 is supported")]);
}

#[test]
fn the_width_of_as_numbers_is_that_of_the_session() {
    let with = |asn: u32, width: &str| {
        let mut device = device("p1", "10.0.1.2", "10.0.1.1", 1);
        let peer = &mut device["bgp"]["ipv4_interfaces"][0]["peers"][0];
        peer["as_number"] = asn.into();
        peer["as_number_width"] = width.into();
        let whole = built(json!({"ports": ports(), "devices": [device]}));
        whole.map(|whole| whole.rig.ports[0].devices[1].bgp()[0].four_octet_as)
    };
    let found = [(70_000, "four"), (65_001, "two")].map(|(asn, width)| with(asn, width));
    assert_eq!(found, [Ok(true), Ok(false)]);
    let path = "devices[0].bgp.ipv4_interfaces[0].peers[0]";
    let text = format!("{path}.as_number: 70000 has more than the two octets of `as_number_width`");
    assert_eq!(with(70_000, "two"), Err(vec![text]));
}

#[test]
fn paths_and_graceful_restart_are_those_of_the_session() {
    let with = |capability: Value| {
        let mut device = device("p1", "10.0.1.2", "10.0.1.1", 1);
        let peer = &mut device["bgp"]["ipv4_interfaces"][0]["peers"][0];
        peer["capability"] = capability;
        peer["graceful_restart"] = json!({"enable_gr": true, "enable_notification": false});
        let mut second = peer["v4_routes"][0].clone();
        second["name"] = "second".into();
        second["add_path"] = json!({"path_id": 7});
        peer["v4_routes"].as_array_mut().unwrap().push(second);
        built(json!({"ports": ports(), "devices": [device]}))
    };
    let whole = with(json!({"ipv4_unicast_add_path": true})).unwrap();
    let ids: Vec<u32> = whole.sessions[0].routes.iter().map(|range| range.encapsulation.path_id).collect();
    assert_eq!((ids, whole.sessions[0].restarts), (vec![1, 7], true));
    let peer = &whole.rig.ports[0].devices[1].bgp()[0];
    assert_eq!(peer.add_path, [AfiSafi::IPV4_UNICAST]);
    let restart = peer.graceful_restart.unwrap();
    assert_eq!(
        (restart.restart_time, restart.notification, restart.restarted),
        (Duration::from_secs(45), false, false)
    );
    let errors = with(json!({})).unwrap_err();
    let text = "`second` has a path identifier, which needs `ipv4_unicast_add_path` and no labels";
    assert!(errors[0].ends_with(text), "{errors:?}");
}
