//! Devices of `drophammer serve` with IPv4 and IPv6, back to back: neighbours, pings, BGP, and flows between them.

use crate::serve::{count, script_in};
use crate::serve_frames::frames;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A device on each port, with a session over IPv4 and one over IPv6. `b41` is the session of device 1 over IPv4. It
/// advertises the IPv4 range `r41` and the IPv6 range `x41`; `b61` advertises `r61`. Each range has three prefixes.
const DEVICES: &str = include_str!("serve/devices.json");

/// The prefixes that a peer has learned, of IPv4 and of IPv6.
fn learned<'a>(answer: &'a Value, peer: &str) -> [Vec<&'a str>; 2] {
    let peers = answer["bgp_prefixes"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let found = peers.iter().find(|found| found["bgp_peer_name"] == peer).unwrap_or_else(|| panic!("{answer}"));
    ["ipv4", "ipv6"].map(|version| {
        let rows = found[format!("{version}_unicast_prefixes")].as_array();
        let address = |row: &'a Value| row[format!("{version}_address")].as_str().unwrap();
        rows.into_iter().flatten().map(address).collect()
    })
}

/// Frames of the flows in a capture of a port, counted by their Ethernet header and these bytes.
fn counted(capture: &[u8], bytes: std::ops::Range<usize>) -> BTreeMap<Vec<u8>, u32> {
    let mut counts = BTreeMap::new();
    for frame in frames(capture).iter().filter(|frame| frame.bytes.len() == 128) {
        *counts.entry([&frame.bytes[..14], &frame.bytes[bytes.clone()]].concat()).or_default() += 1;
    }
    counts
}

#[test]
fn devices_with_both_ip_versions_find_each_other_and_exchange_routes_and_frames() {
    let body = r#"
ask() { call POST /monitor/$1 "{\"$2\": {$3}}"; }
# Asks until a word comes this often.
await() { until [ $(ask $1 $2 "$5" | tee last | grep -o $4 | wc -l) = $3 ]; do sleep 0.02; done; cat last; }
set_to() { call POST /control/state "{\"protocol\": {$1}}"; }
ping() { call POST /control/action "{\"protocol\": {\"$1\": {\"ping\": {\"requests\": [$2]}}}}"; }
call POST /config "$(cat devices)"
await states ipv4_neighbors 2 link_layer_address ''
await states ipv6_neighbors 1 link_layer_address '"ethernet_names": ["e2"]'
ping ipv4 '{"src_name": "a41", "dst_ip": "10.0.0.2"}, {"src_name": "a42", "dst_ip": "10.0.0.9"}'
ping ipv6 '{"src_name": "a61", "dst_ip": "2001:db8::2"}, {"src_name": "a62", "dst_ip": "2001:db8::1"}'
await states bgp_prefixes 18 prefix_length ''
ask metrics bgpv6 ''
ask metrics bgpv4 ''
ask states bgp_prefixes '"bgp_peer_names": ["b61"], "ipv6_unicast_filters": [{"addresses": ["2001:db8:2:1::"]}]'
call POST /control/state '{"port": {"capture": {"state": "start"}}}' > /dev/null
transmit start > /dev/null
until ! metrics | tee last | grep -q '"transmit":"started"'; do sleep 0.02; done
transmit stop > /dev/null
metrics
# The shell adds a newline.
for port in p1 p2; do call POST /monitor/capture "{\"port_name\": \"$port\"}" | head -c -1 > $port; done
set_to '"route": {"names": ["r41", "r62"], "state": "withdraw"}' > /dev/null
await states bgp_prefixes 12 prefix_length ''
set_to '"route": {"names": ["r41", "r62"], "state": "advertise"}' > /dev/null
await states bgp_prefixes 18 prefix_length ''
set_to '"bgp": {"peers": {"peer_names": ["b61"], "state": "down"}}' > /dev/null
await states bgp_prefixes 12 prefix_length ''
ask metrics bgpv6 ''
ask metrics bgpv4 ''
set_to '"bgp": {"peers": {"peer_names": ["b61"], "state": "up"}}' > /dev/null
await states bgp_prefixes 18 prefix_length ''
ask metrics bgpv6 ''
finish
"#;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("devices"), DEVICES).unwrap();
    let (ran, answers) = script_in(folder, body, "");
    let [set, near4, near6, ping4, ping6, all, up6, up4, filtered, flows, rest @ ..] = &answers[..] else {
        panic!("{answers:#?}")
    };
    let [withdrawn, again, down, down6, down4, back, back6] = rest else { panic!("{answers:#?}") };
    assert_eq!(set["warnings"], json!([]));
    let neighbours = json!([
        {"ethernet_name": "e1", "ipv4_address": "10.0.0.2", "link_layer_address": "02:00:00:00:00:02"},
        {"ethernet_name": "e2", "ipv4_address": "10.0.0.1", "link_layer_address": "02:00:00:00:00:01"},
    ]);
    assert_eq!(near4["ipv4_neighbors"], neighbours);
    let neighbour =
        json!({"ethernet_name": "e2", "ipv6_address": "2001:db8::1", "link_layer_address": "02:00:00:00:00:01"});
    assert_eq!(near6["ipv6_neighbors"], json!([neighbour]));
    let pings = [
        (ping4, "ipv4", [("a41", "10.0.0.2", "succeeded"), ("a42", "10.0.0.9", "failed")]),
        (ping6, "ipv6", [("a61", "2001:db8::2", "succeeded"), ("a62", "2001:db8::1", "succeeded")]),
    ];
    for (answer, version, expected) in pings {
        let expected = expected.map(|(from, to, result)| json!({"src_name": from, "dst_ip": to, "result": result}));
        assert_eq!(answer["response"]["protocol"][version]["ping"]["responses"], json!(expected), "{answer}");
    }

    let of4 = |n: u32| [0, 1, 2].map(|i| format!("20.{n}.{i}.0"));
    let of6 = |n: u32| ["", ":1", ":2"].map(|part| format!("2001:db8:{n}{part}::"));
    assert_eq!([learned(all, "b41"), learned(all, "b42")], [[of4(2), of6(12)], [of4(1), of6(11)]]);
    assert_eq!([&learned(all, "b61")[1], &learned(all, "b62")[1]], [&of6(2), &of6(1)]);
    let route = json!({
        "ipv6_address": "2001:db8:2:1::", "prefix_length": 64, "ipv6_next_hop": "2001:db8::2", "origin": "igp",
        "multi_exit_discriminator": 5, "as_path": {"segments": [{"type": "as_seq", "as_numbers": [65_002]}]},
        "communities": [{"type": "manual_as_number", "as_number": 65_001, "as_custom": 7}], "extended_communities": [],
    });
    assert_eq!(filtered["bgp_prefixes"], json!([{"bgp_peer_name": "b61", "ipv6_unicast_prefixes": [route]}]));
    // Only the withdrawn ranges are gone, and a session that ends takes its routes with it. Then they are back.
    for (answer, expected) in [(withdrawn, [[3, 3], [0, 3], [0, 0], [0, 3]]), (down, [[3, 3], [3, 3], [0, 0], [0, 0]])]
    {
        let found = ["b41", "b42", "b61", "b62"].map(|peer| learned(answer, peer).map(|list| list.len()));
        assert_eq!(found, expected, "{answer}");
    }
    for answer in [again, back] {
        assert_eq!(answer["bgp_prefixes"], all["bgp_prefixes"]);
    }

    let number = |answer: &Value, list: &str, peer: usize, key: &str| {
        answer[list][peer][key].as_u64().unwrap_or_else(|| panic!("{key}: {answer}"))
    };
    for (answer, list, peers) in [
        (up4, "bgpv4_metrics", [("up", [6, 6, 0, 0]), ("up", [6, 6, 0, 0])]),
        (up6, "bgpv6_metrics", [("up", [3, 3, 0, 0]), ("up", [3, 3, 0, 0])]),
        (down4, "bgpv4_metrics", [("up", [9, 6, 3, 0]), ("up", [6, 9, 0, 3])]),
        (down6, "bgpv6_metrics", [("down", [3, 6, 0, 3]), ("down", [6, 3, 3, 0])]),
        (back6, "bgpv6_metrics", [("up", [6, 9, 0, 3]), ("up", [9, 6, 3, 0])]),
    ] {
        for (peer, (state, counts)) in peers.into_iter().enumerate() {
            let keys = ["routes_advertised", "routes_received", "route_withdraws_sent", "route_withdraws_received"];
            assert_eq!(keys.map(|key| number(answer, list, peer, key)), counts, "{list}: {answer}");
            assert_eq!(answer[list][peer]["session_state"], state, "{list}: {answer}");
        }
    }
    // The peer that is set down says so, and only the other one has lost its session.
    let keys = ["notifications_sent", "notifications_received"];
    assert_eq!([0, 1].map(|peer| keys.map(|key| number(down6, "bgpv6_metrics", peer, key))), [[1, 0], [0, 1]]);
    for (answer, expected) in [(up6, 0), (down6, 1), (back6, 1)] {
        assert_eq!(number(answer, "bgpv6_metrics", 1, "session_flap_count"), expected, "{answer}");
    }

    for name in ["hosts4", "hosts6", "routes4", "routes6"] {
        assert_eq!(["frames_tx", "frames_rx"].map(|key| count(flows, name, key)), [30; 2], "{flows}");
    }
    // Flows between devices have the addresses of these, and go to each prefix of a range in turn.
    let capture = |port: &str| std::fs::read(ran.folder.path().join(port)).unwrap();
    let header =
        |to: u8, from: u8, ethertype: [u8; 2]| [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from][..], &ethertype].concat();
    let networks = [([10, 0, 0], 30), ([20, 2, 0], 10), ([20, 2, 1], 10), ([20, 2, 2], 10)];
    let expected = networks.map(|(network, frames)| ([&header(2, 1, [8, 0])[..], &network].concat(), frames));
    assert_eq!(counted(&capture("p2"), 30..33), BTreeMap::from(expected));
    let networks = [([0, 0], 30), ([1, 0], 10), ([1, 1], 10), ([1, 2], 10)];
    let expected = networks.map(|([site, subnet], frames)| {
        let network = [0x20, 1, 0xd, 0xb8, 0, site, 0, subnet];
        ([&header(1, 2, [0x86, 0xdd])[..], &network].concat(), frames)
    });
    assert_eq!(counted(&capture("p1"), 38..46), BTreeMap::from(expected));
}
