//! `drophammer serve` at the level of frames: captures as tshark decodes them, and counts of ports beside the kernel's.

use crate::common::text;
use crate::serve::{count, row, script_in};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// A flow of three frames, and what tshark must find in them.
struct Stack {
    /// Lengths with FCS.
    sizes: [u64; 3],
    /// Headers in JSON.
    packet: &'static str,
    /// Fields of tshark and their values, separated by `|` if the frames have different ones. The first field is the
    /// source, which no other stack has.
    fields: &'static [(&'static str, &'static str)],
}

/// Bytes of a custom header, `CUSTOM` in a stack.
const CUSTOM: &str = "00ff10ef7e0d0a1a8100080086dd45001f8b0000aa55c3dbedb88320deadbeef";

/// All headers that a flow can have.
const STACKS: &[Stack] = &[
    Stack {
        sizes: [128; 3],
        packet: r#"[
            {"ethernet": {"src": {"value": "02:00:00:00:00:01"}, "dst": {"value": "02:00:00:00:00:ff"}}},
            {"vlan": {
                "tpid": {"value": 34984}, "priority": {"value": 5}, "cfi": {"value": 1},
                "id": {"increment": {"start": 100, "step": 10, "count": 3}}
            }},
            {"vlan": {"id": {"value": 7}}},
            {"ipv4": {
                "priority": {"dscp": {"phb": {"value": 46}, "ecn": {"value": 1}}}, "identification": {"value": 4660},
                "dont_fragment": {"value": 1}, "time_to_live": {"value": 9}, "src": {"value": "1.1.1.1"},
                "dst": {"values": ["2.2.2.2", "3.3.3.3", "4.4.4.4"]}
            }},
            {"udp": {"src_port": {"value": 1000}, "dst_port": {"decrement": {"start": 5000, "step": 2, "count": 3}}}}
        ]"#,
        fields: &[
            ("eth.src", "02:00:00:00:00:01"),
            ("eth.dst", "02:00:00:00:00:ff"),
            ("frame.protocols", "eth:ethertype:ieee8021ad:ethertype:vlan:ethertype:ip:udp:data"),
            ("ieee8021ad.priority", "5"),
            ("ieee8021ad.dei", "1"),
            ("ieee8021ad.id", "100|110|120"),
            ("vlan.priority", "0"),
            ("vlan.id", "7"),
            ("ip.dsfield.dscp", "46"),
            ("ip.dsfield.ecn", "1"),
            ("ip.len", "102"),
            ("ip.id", "0x1234"),
            ("ip.flags.df", "1"),
            ("ip.ttl", "9"),
            ("ip.proto", "17"),
            ("ip.src", "1.1.1.1"),
            ("ip.dst", "2.2.2.2|3.3.3.3|4.4.4.4"),
            ("ip.checksum.status", "1"),
            ("udp.srcport", "1000"),
            ("udp.dstport", "5000|4998|4996"),
            ("udp.length", "82"),
            ("udp.checksum.status", "1"),
        ],
    },
    Stack {
        sizes: [200; 3],
        packet: r#"[
            {"ethernet": {"src": {"value": "02:00:00:00:00:02"}}},
            {"mpls": {"label": {"value": 1000}, "traffic_class": {"value": 3}, "time_to_live": {"value": 17}}},
            {"mpls": {"label": {"values": [2000, 3000, 4000]}}},
            {"ipv6": {
                "traffic_class": {"value": 185}, "flow_label": {"value": 74565}, "hop_limit": {"value": 33},
                "src": {"value": "2001:db8::1"},
                "dst": {"increment": {"start": "2001:db8::2", "step": "::1", "count": 3}}
            }},
            {"tcp": {
                "src_port": {"value": 1001}, "dst_port": {"value": 4000}, "seq_num": {"value": 4000000000},
                "ack_num": {"value": 7}, "window": {"value": 512}, "ctl_syn": {"value": 1}, "ctl_ack": {"value": 1},
                "ecn_ns": {"value": 1}
            }}
        ]"#,
        fields: &[
            ("eth.src", "02:00:00:00:00:02"),
            ("eth.dst", "00:00:00:00:00:00"),
            ("frame.protocols", "eth:ethertype:mpls:ipv6:tcp:data"),
            ("mpls.label", "1000,2000|1000,3000|1000,4000"),
            ("mpls.exp", "3,0"),
            ("mpls.bottom", "0,1"),
            ("mpls.ttl", "17,64"),
            ("ipv6.tclass.dscp", "46"),
            ("ipv6.tclass.ecn", "1"),
            ("ipv6.flow", "0x012345"),
            ("ipv6.plen", "134"),
            ("ipv6.nxt", "6"),
            ("ipv6.hlim", "33"),
            ("ipv6.src", "2001:db8::1"),
            ("ipv6.dst", "2001:db8::2|2001:db8::3|2001:db8::4"),
            ("tcp.srcport", "1001"),
            ("tcp.dstport", "4000"),
            ("tcp.seq_raw", "4000000000"),
            ("tcp.ack_raw", "7"),
            ("tcp.flags", "0x0112"),
            ("tcp.window_size_value", "512"),
            ("tcp.checksum.status", "1"),
        ],
    },
    Stack {
        sizes: [150; 3],
        packet: r#"[
            {"ethernet": {"src": {"value": "02:00:00:00:00:03"}}},
            {"ipv4": {"src": {"value": "1.1.1.1"}, "dst": {"value": "2.2.2.2"}}},
            {"gre": {"checksum_present": {"value": 1}}},
            {"ipv6": {"src": {"value": "2001:db8::1"}, "dst": {"value": "2001:db8::2"}}},
            {"icmpv6": {"echo": {
                "type": {"value": 129}, "identifier": {"value": 77},
                "sequence_number": {"increment": {"start": 1, "step": 1, "count": 3}}
            }}}
        ]"#,
        fields: &[
            ("eth.src", "02:00:00:00:00:03"),
            ("frame.protocols", "eth:ethertype:ip:gre:ipv6:icmpv6:data"),
            ("ip.len", "132"),
            ("ip.proto", "47"),
            ("ip.checksum.status", "1"),
            ("gre.proto", "0x86dd"),
            ("gre.flags.checksum", "1"),
            ("gre.checksum.status", "1"),
            ("ipv6.plen", "64"),
            ("ipv6.nxt", "58"),
            ("ipv6.hlim", "64"),
            ("icmpv6.type", "129"),
            ("icmpv6.code", "0"),
            ("icmpv6.echo.identifier", "0x004d"),
            ("icmpv6.echo.sequence_number", "1|2|3"),
            ("icmpv6.checksum.status", "1"),
        ],
    },
    Stack {
        sizes: [180; 3],
        packet: r#"[
            {"ethernet": {"src": {"value": "02:00:00:00:00:04"}}},
            {"ipv4": {"src": {"value": "1.1.1.1"}, "dst": {"value": "2.2.2.2"}}},
            {"udp": {"src_port": {"value": 49152}}},
            {"vxlan": {"vni": {"values": [5, 6, 7]}}},
            {"ethernet": {"src": {"value": "02:00:00:00:01:01"}, "dst": {"value": "02:00:00:00:01:02"}}},
            {"ipv4": {"src": {"value": "3.3.3.3"}, "dst": {"value": "4.4.4.4"}}},
            {"icmp": {"echo": {"identifier": {"value": 88}, "sequence_number": {"value": 9}}}}
        ]"#,
        fields: &[
            ("eth.src", "02:00:00:00:00:04,02:00:00:00:01:01"),
            ("eth.dst", "00:00:00:00:00:00,02:00:00:00:01:02"),
            ("frame.protocols", "eth:ethertype:ip:udp:vxlan:eth:ethertype:ip:icmp:data"),
            ("ip.len", "162,112"),
            ("ip.proto", "17,1"),
            ("ip.src", "1.1.1.1,3.3.3.3"),
            ("ip.dst", "2.2.2.2,4.4.4.4"),
            ("ip.checksum.status", "1,1"),
            ("udp.srcport", "49152"),
            ("udp.dstport", "4789"),
            ("udp.length", "142"),
            ("udp.checksum.status", "1"),
            ("vxlan.vni", "5|6|7"),
            ("icmp.type", "8"),
            ("icmp.code", "0"),
            ("icmp.ident", "88"),
            ("icmp.seq", "9"),
            ("icmp.checksum.status", "1"),
        ],
    },
    Stack {
        sizes: [64; 3],
        packet: r#"[
            {"ethernet": {"src": {"value": "02:00:00:00:00:05"}, "dst": {"value": "ff:ff:ff:ff:ff:ff"}}},
            {"arp": {
                "operation": {"value": 2},
                "sender_hardware_addr": {"value": "02:00:00:00:01:03"}, "sender_protocol_addr": {"value": "1.1.1.1"},
                "target_hardware_addr": {"value": "02:00:00:00:01:04"}, "target_protocol_addr": {"value": "2.2.2.2"}
            }}
        ]"#,
        fields: &[
            ("eth.src", "02:00:00:00:00:05"),
            ("eth.dst", "ff:ff:ff:ff:ff:ff"),
            ("frame.protocols", "eth:ethertype:arp"),
            ("arp.hw.type", "1"),
            ("arp.proto.type", "0x0800"),
            ("arp.hw.size", "6"),
            ("arp.proto.size", "4"),
            ("arp.opcode", "2"),
            ("arp.src.hw_mac", "02:00:00:00:01:03"),
            ("arp.src.proto_ipv4", "1.1.1.1"),
            ("arp.dst.hw_mac", "02:00:00:00:01:04"),
            ("arp.dst.proto_ipv4", "2.2.2.2"),
        ],
    },
    Stack {
        sizes: [99, 100, 101],
        packet: r#"[
            {"ethernet": {"src": {"value": "02:00:00:00:00:06"}, "ether_type": {"value": 34997}}},
            {"custom": {"bytes": "CUSTOM"}}
        ]"#,
        fields: &[
            ("eth.src", "02:00:00:00:00:06"),
            ("eth.type", "0x88b5"),
            ("frame.protocols", "eth:ethertype:data"),
            ("data.len", "81|82|83"),
        ],
    },
];

/// The flow of each stack in both directions, and captures of both ports.
fn both_ways() -> Value {
    let flow = |(i, stack): (usize, &Stack), [from, to]: [&str; 2]| {
        let packet: Value = serde_json::from_str(&stack.packet.replace("CUSTOM", CUSTOM)).unwrap();
        json!({
            "name": format!("{i} to {to}"), "tx_rx": {"port": {"tx_name": from, "rx_name": to}}, "packet": packet,
            "size": {"increment": {"start": stack.sizes[0], "end": stack.sizes[2]}}, "rate": {"pps": 100},
            "duration": {"fixed_packets": {"packets": 3}}, "metrics": {"enable": true},
        })
    };
    let ways = [["p1", "p2"], ["p2", "p1"]];
    let flows: Vec<Value> =
        ways.iter().flat_map(|way| STACKS.iter().enumerate().map(move |stack| flow(stack, *way))).collect();
    json!({
        "ports": [{"name": "p1", "location": "va"}, {"name": "p2", "location": "vb"}],
        "captures": [
            {"name": "cut", "port_names": ["p1"], "format": "pcapng", "packet_size": CUT},
            {"name": "whole", "port_names": ["p2"]},
        ],
        "flows": flows,
    })
}

/// Bytes of each frame in the capture of cut frames.
const CUT: usize = 60;
/// Bytes at the beginning of a frame that are the same in both directions: none of the checksums among them depends on
/// the bytes that identify a frame.
const ALIKE: usize = 48;

/// A frame of a capture.
pub struct Captured {
    at_ns: u64,
    /// Length of the whole frame.
    length: usize,
    pub bytes: Vec<u8>,
}

/// The frames of a pcap file with times in nanoseconds.
pub fn frames(file: &[u8]) -> Vec<Captured> {
    assert_eq!(file[..4], 0xa1b2_3c4d_u32.to_le_bytes());
    let (mut rest, mut frames) = (&file[24..], Vec::new());
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let (at_ns, end) = (u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)), 16 + word(8) as usize);
        frames.push(Captured { at_ns, length: word(12) as usize, bytes: rest[16..end].to_vec() });
        rest = &rest[end..];
    }
    frames
}

/// Frames by their source.
fn by_source(frames: Vec<Captured>) -> BTreeMap<Vec<u8>, Vec<Captured>> {
    let mut sorted: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for frame in frames {
        sorted.entry(frame.bytes[6..12].to_vec()).or_default().push(frame);
    }
    sorted
}

/// What tshark writes about a capture; `None`, with a message, if it is not installed.
fn tshark(capture: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = match Command::new("tshark").arg("-n").args(arguments).arg("-r").arg(capture).output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            println!("NOT CHECKED: tshark is not installed; remedy: scripts/setup test");
            return None;
        }
        other => other.unwrap(),
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(output.stdout)
}

/// Fields of each frame of a capture.
fn decoded<'a>(capture: &Path, fields: &[&'a str]) -> Option<Vec<BTreeMap<&'a str, String>>> {
    let mut arguments = vec!["-T", "fields", "-o", "eth.fcs:Always", "-o", "eth.check_fcs:TRUE"];
    for check in ["ip.check_checksum:TRUE", "udp.check_checksum:TRUE", "tcp.check_checksum:TRUE"] {
        arguments.extend(["-o", check]);
    }
    arguments.extend(fields.iter().flat_map(|field| ["-e", *field]));
    let lines = text(&tshark(capture, &arguments)?);
    // Newer versions write `True` for 1.
    let value = |text: &str| text.replace("True", "1").replace("False", "0");
    let named = |line: &str| fields.iter().copied().zip(line.split('\t').map(value)).collect();
    Some(lines.lines().map(named).collect())
}

#[test]
fn captures_have_all_headers_as_they_were_meant() {
    let body = r#"
call POST /config "$(cat stacks)"
date +%s%N > times
call POST /control/state '{"port": {"capture": {"state": "start"}}}' > /dev/null
transmit start > /dev/null
until ! metrics | tee last | grep -q '"transmit":"started"'; do sleep 0.02; done
transmit stop > /dev/null
metrics
# The shell adds a newline.
for port in p1 p2; do call POST /monitor/capture "{\"port_name\": \"$port\"}" | head -c -1 > $port; done
date +%s%N >> times
finish
"#;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stacks"), both_ways().to_string()).unwrap();
    let (ran, answers) = script_in(folder, body, "");
    let [set, counts] = &answers[..] else { panic!("{answers:#?}") };
    assert_eq!(set["warnings"], json!([]));
    for (i, stack) in STACKS.iter().enumerate() {
        for name in [format!("{i} to p1"), format!("{i} to p2")] {
            let received = ["frames_rx", "bytes_rx"].map(|key| count(counts, &name, key));
            let bytes: u64 = stack.sizes.iter().sum();
            assert_eq!(received, [3, bytes], "{counts}");
            let beyond = &row(counts, &name)["x-drophammer"];
            for key in ["frames_out_of_order", "frames_duplicated", "frames_stray", "frames_corrupted"] {
                assert_eq!(beyond[key], 0, "{beyond}");
            }
        }
    }
    let [cut, whole] = ["p1", "p2"].map(|port| ran.folder.path().join(port));

    let always = ["frame.len", "eth.fcs.status", "_ws.malformed"];
    let fields: BTreeSet<&str> = STACKS.iter().flat_map(|stack| stack.fields).map(|(name, _)| *name).collect();
    let fields: Vec<&str> = fields.into_iter().chain(always).chain(["data.data"]).collect();
    let Some(lines) = decoded(&whole, &fields) else { return };
    for stack in STACKS {
        let own: Vec<_> = lines.iter().filter(|line| line["eth.src"] == stack.fields[0].1).collect();
        assert_eq!(own.len(), 3, "{lines:#?}");
        for (i, line) in own.into_iter().enumerate() {
            for (name, values) in stack.fields {
                assert_eq!(Some(line[*name].as_str()), values.split('|').cycle().nth(i), "{name}: {line:#?}");
            }
            let length = stack.sizes[i].to_string();
            assert_eq!(always.map(|name| line[name].as_str()), [length.as_str(), "1", ""], "{line:#?}");
            assert!(!stack.packet.contains("CUSTOM") || line["data.data"].starts_with(CUSTOM), "{line:#?}");
        }
    }

    let times: Vec<u64> = ran.read("times").lines().map(|line| line.parse().unwrap()).collect();
    assert!(std::fs::read(&cut).unwrap().starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "not pcapng");
    let Some(cut) = tshark(&cut, &["-F", "nsecpcap", "-w", "-"]) else { return };
    let [cut, whole] = [cut, std::fs::read(&whole).unwrap()].map(|file| {
        let frames = frames(&file);
        assert!(frames.iter().map(|frame| frame.at_ns).is_sorted());
        // The server's clock may differ a little from the machine's.
        let within = times[0] - 100_000_000..times[1] + 100_000_000;
        assert!(frames.iter().all(|frame| within.contains(&frame.at_ns)), "{within:?}");
        by_source(frames)
    });
    for i in 0..STACKS.len() {
        let source: [u8; 6] = [2, 0, 0, 0, 0, 1 + i as u8];
        let (whole, cut) = (&whole[&source[..]], &cut[&source[..]]);
        assert_eq!((whole.len(), cut.len()), (3, 3));
        for (whole, cut) in whole.iter().zip(cut) {
            assert_eq!((whole.bytes.len(), cut.length, cut.bytes.len()), (whole.length, whole.length, CUT));
            assert_eq!(whole.bytes[..ALIKE], cut.bytes[..ALIKE], "{source:?}");
        }
    }
}

/// Two devices that ping, and flows of several sizes in both directions; one has no receiver.
fn counted() -> Value {
    let device = |own: u8, far: u8| {
        json!({"name": format!("d{own}"), "ethernets": [{
            "name": format!("e{own}"), "connection": {"port_name": format!("p{own}")},
            "ipv4_addresses": [{
                "name": format!("a{own}"), "address": format!("10.0.0.{own}"), "gateway": format!("10.0.0.{far}"),
            }],
        }]})
    };
    let flow = |name: &str, ends: Value, size: Value, rate: u32| {
        json!({
            "name": name, "tx_rx": {"port": ends}, "packet": [{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}],
            "size": size, "rate": {"pps": rate}, "metrics": {"enable": true},
        })
    };
    let imix = json!({"weight_pairs": {"predefined": "imix"}});
    let mut mix = flow("mix", json!({"tx_name": "p1", "rx_name": "p2"}), imix, 2_000);
    mix["duration"] = json!({"fixed_packets": {"packets": 500}});
    let random = json!({"random": {"min": 64, "max": 300}});
    let back = flow("back", json!({"tx_name": "p2", "rx_name": "p1"}), random, 1_000);
    let nowhere = flow("nowhere", json!({"tx_name": "p1"}), json!({"fixed": 100}), 300);
    json!({
        "ports": [{"name": "p1", "location": "va"}, {"name": "p2", "location": "vb"}],
        "devices": [device(1, 2), device(2, 1)], "flows": [mix, back, nowhere],
    })
}

/// What the kernel says about an interface: frames sent and received, bytes sent and received.
fn kernel(table: &str, interface: &str) -> [u64; 4] {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'));
    let numbers: Vec<u64> = line.unwrap().split_whitespace().map(|number| number.parse().unwrap()).collect();
    [numbers[9], numbers[1], numbers[8], numbers[0]]
}

#[test]
fn ports_count_what_the_kernel_counts() {
    let body = r#"
call POST /config "$(cat counted)" > /dev/null
neighbours() { call POST /monitor/states '{"ipv4_neighbors": {}}' | grep -o link_layer_address | wc -l; }
until [ $(neighbours) = 2 ]; do sleep 0.02; done
mix_ends() { until metrics | grep -q '"name":"mix"[^}]*"transmit":"stopped"'; do sleep 0.02; done; }
look() { cat /proc/net/dev > kernel$1; }
ports() { call POST /monitor/metrics '{"port": {}}'; }
ping='{"src_name": "a1", "dst_ip": "10.0.0.2"}'
look 0
transmit start > /dev/null
call POST /control/action "{\"protocol\": {\"ipv4\": {\"ping\": {\"requests\": [$ping, $ping]}}}}"
mix_ends
# It starts again while others send.
transmit start '"mix"' > /dev/null
mix_ends
transmit stop > /dev/null
look 1
ports
metrics
# It starts again while no other sends.
transmit start '"mix"' > /dev/null
mix_ends
transmit stop > /dev/null
look 2
ports
finish
"#;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("counted"), counted().to_string()).unwrap();
    let (ran, answers) = script_in(folder, body, "");
    let [pings, all, flows, alone] = &answers[..] else { panic!("{answers:#?}") };
    let pings = &pings["response"]["protocol"]["ipv4"]["ping"]["responses"];
    assert_eq!([0, 1].map(|i| &pings[i]["result"]), ["succeeded"; 2], "{pings}");
    let told = |ports: &Value, port: usize| {
        let keys = ["frames_tx", "frames_rx", "bytes_tx", "bytes_rx"];
        keys.map(|key| ports["port_metrics"][port][key].as_u64().unwrap_or_else(|| panic!("{ports}")))
    };
    for (ports, before, after) in [(all, "kernel0", "kernel1"), (alone, "kernel1", "kernel2")] {
        for (port, interface) in ["va", "vb"].into_iter().enumerate() {
            let [before, after] = [before, after].map(|file| kernel(&ran.read(file), interface));
            let [sent, received, sent_bytes, received_bytes] = [0, 1, 2, 3].map(|at| after[at] - before[at]);
            // The kernel does not count the FCS.
            let expected = [sent, received, sent_bytes + 4 * sent, received_bytes + 4 * received];
            assert_eq!(told(ports, port), expected, "{interface}: {ports}");
        }
    }
    // The counts of a flow begin at 0 when it starts.
    for key in ["frames_tx", "frames_rx"] {
        assert_eq!(count(flows, "mix", key), 500, "{flows}");
    }
    assert_eq!(told(alone, 0)[..2], [500, 0], "{alone}");
    assert_eq!(count(flows, "back", "frames_tx"), count(flows, "back", "frames_rx"), "{flows}");
    // Two echo requests, and their replies.
    let [there, back] = [1_000 + count(flows, "nowhere", "frames_tx"), count(flows, "back", "frames_tx")];
    assert_eq!(told(all, 0)[..2], [there + 2, back + 2], "{flows}");
    assert_eq!((&row(flows, "nowhere")["port_rx"], count(flows, "nowhere", "frames_rx")), (&"".into(), 0));
}
