//! tshark finds no error in a capture of every kind of UPDATE; this test checks properties that tshark does not.

use super::common::*;
use drophammer_emulation::bgp::Packing;
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::checksum;
use std::process::Command;

/// A capture file (libpcap, raw IP) of one TCP connection from port 179 that carries `messages`, each in one or more
/// segments.
fn pcap(messages: &[Vec<u8>]) -> Vec<u8> {
    const RAW_IP: u32 = 101;
    const MSS: usize = 1460;
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, RAW_IP] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    let (mut sequence, mut at) = (1u32, 0u32);
    for segment in messages.iter().flat_map(|message| message.chunks(MSS)) {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 198, 18, 1, 2, 198, 18, 1, 1];
        packet[2..4].copy_from_slice(&(40 + segment.len() as u16).to_be_bytes());
        let sum = checksum::finish(checksum::sum(&packet));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend([0, 179, 0xc0, 0]);
        packet.extend(sequence.to_be_bytes());
        packet.extend([0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend_from_slice(segment);
        sequence += segment.len() as u32;
        at += 1;
        for word in [at / 1000, at % 1000 * 1000, packet.len() as u32, packet.len() as u32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&packet);
    }
    file
}

const FIELDS: [&str; 11] = [
    "_ws.malformed",
    "_ws.expert.severity",
    "bgp.type",
    "bgp.nlri_prefix",
    "bgp.mp_reach_nlri_ipv4_prefix",
    "bgp.mp_reach_nlri_ipv6_prefix",
    "bgp.update.path_attribute.type_code",
    "bgp.rd",
    "bgp.label_stack",
    "bgp.ext_com.value_an4",
    "bgp.update.path_attribute.mp_reach_nlri.next_hop.ipv6",
];

/// The fields of all frames, each a list; `None` without tshark.
pub fn decode(name: &str, messages: &[Vec<u8>]) -> Option<Vec<Vec<String>>> {
    let path = std::env::temp_dir().join(format!("drophammer-bgp-{name}-{}.pcap", std::process::id()));
    std::fs::write(&path, pcap(messages)).unwrap();
    let output = Command::new("tshark")
        .args(["-n", "-T", "fields", "-E", "separator=|"])
        .args(FIELDS.iter().flat_map(|f| ["-e", f]))
        .args(["-o", "tcp.desegment_tcp_streams:TRUE", "-o", "bgp.asn_len:4 octet", "-r"])
        .arg(&path)
        .output();
    std::fs::remove_file(&path).unwrap();
    let output = match output {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && std::env::var_os("CI").is_none() => {
            eprintln!("skipped: tshark is not installed");
            return None;
        }
        other => other.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}

pub fn is_whole(line: &[String]) -> bool {
    const ERROR: u32 = 0x0080_0000;
    line[0].is_empty() && !line[1].split(',').filter_map(|s| s.parse::<u32>().ok()).any(|s| s >= ERROR)
}

pub fn of_field(lines: &[Vec<String>], field: usize) -> Vec<String> {
    let all = lines.iter().flat_map(|line| line[field].split(','));
    all.filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// Checks properties that tshark does not: flags of each attribute, the mandatory attributes, their order.
pub fn check_attributes(message: &[u8], family: AfiSafi, announce: bool) {
    let body = &message[19..];
    let withdrawn = usize::from(u16::from_be_bytes([body[0], body[1]]));
    let length = usize::from(u16::from_be_bytes([body[2 + withdrawn], body[3 + withdrawn]]));
    let mut rest = &body[4 + withdrawn..4 + withdrawn + length];
    let mut kinds = Vec::new();
    while let [flags, kind, ..] = *rest {
        let (head, length) = match flags & 0x10 {
            0 => (3, usize::from(rest[2])),
            _ => (4, usize::from(u16::from_be_bytes([rest[2], rest[3]]))),
        };
        let class = match kind {
            1..=3 => 0x40,
            4 | 14 | 15 => 0x80,
            8 | 16 | 17 | 32 => 0xc0,
            other => panic!("attribute {other}"),
        };
        assert_eq!(flags & 0xe0, class, "flags of attribute {kind}");
        assert!(length > 0 && (flags & 0x10 != 0 || length < 256));
        kinds.push(kind);
        rest = &rest[head + length..];
    }
    assert!(rest.is_empty());
    let mandatory: &[u8] = match (announce, family) {
        (true, AfiSafi::IPV4_UNICAST) => &[1, 2, 3],
        (true, _) => &[14, 1, 2],
        (false, AfiSafi::IPV4_UNICAST) => &[],
        (false, _) => &[15],
    };
    assert_eq!(kinds.iter().copied().filter(|kind| [1, 2, 3, 14, 15].contains(kind)).collect::<Vec<_>>(), mandatory);
    let others: Vec<_> = kinds.iter().filter(|kind| **kind != 14).collect();
    assert!(others.is_sorted(), "{kinds:?}");
}

#[test]
fn tshark_finds_every_update_whole() {
    for (n, family) in AfiSafi::ALL.into_iter().enumerate() {
        for (announce, internet) in [(true, true), (true, false), (false, true)] {
            let routes = routes(family, 700, 5, internet);
            let packing = Packing { routes_per_update: if internet { 0 } else { 20 }, pace: None, prepend: 0 };
            let all = messages(&routes, announce, packing, encapsulation(family), &agreed(false, true));
            all[..all.len() - 1].iter().for_each(|message| check_attributes(message, family, announce));
            let Some(lines) = decode(&format!("{n}-{announce}-{internet}"), &all) else { return };
            for line in &lines {
                assert!(is_whole(line), "{family}: {line:?}");
            }
            assert_eq!(of_field(&lines, 2), vec!["2"; all.len()], "{family}");
            if announce && family == AfiSafi::IPV4_UNICAST {
                let prefixes: Vec<_> = (0..700).map(|i| routes.prefix(i).address().to_string()).collect();
                assert_eq!(of_field(&lines, 3), prefixes);
            }
            if announce && family == AfiSafi::IPV6_UNICAST {
                let prefixes: Vec<_> = (0..700).map(|i| routes.prefix(i).address().to_string()).collect();
                assert_eq!(of_field(&lines, 5), prefixes);
            }
        }
    }
    // Shows that the decoder reports errors.
    let routes = routes(AfiSafi::IPV4_UNICAST, 5, 5, false);
    let kind = encapsulation(AfiSafi::IPV4_UNICAST);
    let mut all = messages(&routes, true, Packing::default(), kind, &agreed(false, true));
    let last = all[0].len() - 4;
    all[0][last] = 77;
    assert!(!decode("broken", &all).unwrap().iter().all(|line| is_whole(line)));
}
