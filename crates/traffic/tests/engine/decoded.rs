//! An independent decoder finds nothing wrong with test frames.

use crate::common::*;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Family, Load};

const FIELDS: [&str; 8] = [
    "frame.protocols",
    "_ws.malformed",
    "_ws.expert.severity",
    "ip.checksum.status",
    "udp.checksum.status",
    "udp.dstport",
    "udp.length",
    "frame.len",
];

/// The fields of each frame; `None` without tshark.
fn decode(name: &str, frames: &[(Instant, Vec<u8>)]) -> Option<Vec<Vec<String>>> {
    let frames: Vec<_> = frames.iter().map(|(at, frame)| (at.0, &frame[..])).collect();
    crate::tshark::decode(name, &frames, &FIELDS)
}

/// True with correct checksums ("1"), no malformation, and no error in tshark's expert information.
fn is_whole(line: &[String]) -> bool {
    const ERROR: u32 = 0x0080_0000;
    let severe = line[2].split(',').filter_map(|s| s.parse::<u32>().ok()).any(|s| s >= ERROR);
    let ip_good = if line[0].contains(":ipv6") { line[3].is_empty() } else { line[3] == "1" };
    line[1].is_empty() && !severe && ip_good && line[4] == "1" && line[5] == "9"
}

#[test]
fn tshark_finds_every_frame_whole() {
    let (mut bench, seen) = noted(|f| (f.at, f.frame.to_vec()));
    for size in ["64", "65", "128", "1517", "1518", "9000", "ip40", "ip41", "imix", "imix-2001"] {
        let flows = vec![flow("IPv4", 0, 1, Family::Ipv4, 1_000, 1.0), flow("IPv6", 0, 1, Family::Ipv6, 1_000, 1.0)];
        let mut spec = spec(size, flows, Load::Burst { frames: 40, rate_pps: 1e5 }, 0.0);
        spec.bin_s = None;
        assert_eq!(bench.run(&spec).received(), 40, "{size}");
    }
    let frames = seen.borrow().clone();
    let Some(lines) = decode("whole", &frames) else { return };
    for (line, frame) in lines.iter().zip(&frames) {
        assert!(is_whole(line), "{line:?}: {:02x?}", frame.1);
        let length: usize = line[6].parse().unwrap();
        let udp = udp_at(&frame.1);
        assert!(udp + length == frame.1.len() || frame.1.len() == 60, "{line:?}");
    }
    for protocol in [":ip:udp", ":ipv6:udp"] {
        assert_eq!(lines.iter().filter(|l| l[0].contains(protocol)).count(), 200, "{protocol}");
    }
    // The decoder does report broken frames.
    let mut broken = frames[..2].to_vec();
    broken.extend_from_within(..1);
    for (_, frame) in &mut broken[..2] {
        let at = signature_at(frame);
        frame[at] ^= 1;
    }
    broken[2].1[22] ^= 1;
    for line in decode("broken", &broken).unwrap() {
        assert!(!is_whole(&line), "{line:?}");
    }
}
