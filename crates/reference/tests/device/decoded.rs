//! An independent decoder reads the frames of hosts and router and finds no error.

use crate::common::*;
use drophammer_model::Instant;
use drophammer_model::trial::Family;
use drophammer_reference::{Config, Faults, OwnFrames};
use std::time::Duration;

const FIELDS: [&str; 4] = ["frame.protocols", "_ws.malformed", "_ws.expert.severity", "_ws.expert.message"];

/// Per frame: protocols, malformed?, expert severities, expert messages. `None` where there is no tshark.
fn decode(name: &str, frames: &[(Instant, Vec<u8>)]) -> Option<Vec<Vec<String>>> {
    let frames: Vec<_> = frames.iter().map(|(at, frame)| (at.0, &frame[..])).collect();
    crate::tshark::decode(name, &frames, &FIELDS)
}

/// Severity "error" of the expert system.
const PI_ERROR: u32 = 0x0080_0000;

fn is_wrong(line: &[String]) -> bool {
    let severe = line[2].split(',').filter_map(|s| s.parse::<u32>().ok()).any(|s| s >= PI_ERROR);
    // tshark reports a wrong ICMP checksum only as a warning.
    !line[1].is_empty() || severe || line[0].contains("malformed") || line[3].to_lowercase().contains("bad checksum")
}

#[test]
fn tshark_finds_no_fault() {
    let own_frames = Some(OwnFrames { interval: Duration::from_millis(700), port: 0 });
    let mut config = Config { faults: Faults { own_frames, duplicate_every: 2, ..Faults::default() }, ..config(2) };
    config.neighbour_lifetime = Some(Duration::from_secs(2));
    let mut bench = Bench::cold(config);
    for family in [Family::Ipv4, Family::Ipv6] {
        bench.router.receive(Instant(0), 0, &Test::new(0, 1, family).frame(1));
    }
    bench.wake_hosts(Instant(MS));
    for family in [Family::Ipv4, Family::Ipv6] {
        let good = Test::new(0, 1, family);
        assert!(ping(&mut bench.hosts[0], Instant(MS), family));
        bench.wake_hosts(Instant(2 * MS));
        bench.offer(Instant(SECOND), 0, &good.frame(2));
        bench.offer(Instant(SECOND), 0, &Test { ttl: 1, ..good }.frame(3));
        bench.offer(Instant(SECOND), 0, &Test { size: 1519, ..good }.frame(4));
        let (nowhere, nobody) = match family {
            Family::Ipv4 => ("203.0.113.1".parse().unwrap(), net4(1, 77).into()),
            Family::Ipv6 => ("2001:db8::1".parse().unwrap(), net6(1, 77).into()),
        };
        bench.offer(Instant(SECOND), 0, &Test { destination: nowhere, ..good }.frame(5));
        bench.offer(Instant(SECOND), 0, &Test { destination: nobody, ..good }.frame(6));
    }
    bench.run_until(Instant(10 * SECOND));
    bench.wake_hosts(Instant(21 * SECOND));
    let mut frames: Vec<_> = bench.sent.iter().map(|s| (s.0, s.2.clone())).collect();
    frames.extend(bench.control.iter().map(|f| (Instant(0), f.clone())));
    let Some(lines) = decode("clean", &frames) else { return };
    for (line, frame) in lines.iter().zip(&frames) {
        assert!(!is_wrong(line), "{line:?}: {:02x?}", frame.1);
    }
    for protocol in ["arp", "icmp:", "icmpv6", "lldp", "udp"] {
        let protocol = protocol.trim_end_matches(':');
        let seen = lines.iter().filter(|l| l[0].split(':').any(|p| p == protocol)).count();
        assert!(seen >= 2, "{seen} frames of {protocol}");
    }

    // Proof that the decoder finds errors: a wrong checksum in each protocol that has one, and a truncated frame.
    let mut broken = Vec::new();
    for protocol in ["icmp", "icmpv6", "udp"] {
        let i = lines.iter().position(|l| l[0].ends_with(protocol) || l[0].contains(&format!(":{protocol}:"))).unwrap();
        let (at, mut frame) = frames[i].clone();
        let payload = if frame[12] == 8 { 34 } else { 54 };
        frame[payload + 7] ^= 0x55;
        broken.push((at, frame));
    }
    let lldp = lines.iter().position(|l| l[0].contains("lldp")).unwrap();
    broken.push((Instant(0), frames[lldp].1[..18].to_vec()));
    for (line, (_, frame)) in decode("broken", &broken).unwrap().iter().zip(&broken) {
        assert!(is_wrong(line), "{line:?}: {frame:02x?}");
    }
}
