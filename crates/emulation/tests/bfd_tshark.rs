//! tshark decodes every BFD packet of a session that comes up, changes its intervals, loses its peer, and is stopped.

#[path = "../../wire/tests/tshark/mod.rs"]
mod decoder;

use drophammer_emulation::bfd::{Bfd, SessionConfig};
use drophammer_emulation::protocol::Command;
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

/// Device `n`, with a session to the other device over each family.
fn device(n: u8) -> Device {
    let [own, other] = [n, 3 - n].map(|n| [198, 18, 0, n].into());
    let [own6, other6] = [n, 3 - n].map(|n| [0x2001, 2, 0, 0, 0, 0, 0, n.into()].into());
    let config = DeviceConfig {
        ipv4: Some(Address { address: own, prefix_len: 24, gateway: other }),
        ipv6: Some(Address { address: own6, prefix_len: 64, gateway: other6 }),
        ..DeviceConfig::new("d", MacAddr::local(n.into()), n.into())
    };
    let sessions = [IpAddr::V4(other), IpAddr::V6(other6)].map(SessionConfig::new);
    let mut device = Device::new(config.clone());
    device.fix_gateway(MacAddr::local(3 - u64::from(n)));
    device.add_protocol(Box::new(Bfd::configured(&config, &sessions).unwrap()));
    device
}

#[test]
fn tshark_finds_no_error_in_any_packet() {
    let mut devices = [device(1), device(2)];
    let mut packets = Vec::new();
    let mut now = Instant(0);
    let changes = [(0, 0, true), (500, 1, true), (5000, 0, false), (9500, 0, true)];
    let mut changes: VecDeque<_> = changes.map(|(ms, which, start)| (Instant(ms * 1_000_000), which, start)).into();
    while now < Instant(15_000_000_000) {
        while let Some((_, which, start)) = changes.pop_front_if(|(at, ..)| *at <= now) {
            let command = if start { Command::Start } else { Command::Stop };
            devices[which].command(now, "bfd", &command).unwrap();
        }
        let mut frames = VecDeque::new();
        for (from, device) in devices.iter_mut().enumerate() {
            device.poll(now, 1500, &mut |frame| frames.push_back((from, frame.to_vec())));
        }
        while let Some((from, frame)) = frames.pop_front() {
            packets.push((now.0, frame.clone()));
            devices[1 - from].receive(now, &frame, &mut |answer| frames.push_back((1 - from, answer.to_vec())));
        }
        let deadlines = devices.iter().filter_map(Device::next_deadline);
        now = deadlines.chain(changes.front().map(|(at, ..)| *at)).min().unwrap_or(Instant(u64::MAX));
    }
    let frames: Vec<_> = packets.iter().map(|(at, frame)| (*at, frame.as_slice())).collect();
    let fields = ["_ws.malformed", "_ws.expert.severity", "udp.checksum.status", "bfd.sta", "bfd.diag", "bfd.flags.p"];
    let Some(lines) = decoder::decode("all", &frames, &fields) else { return };
    let (mut states, mut diagnostics) = (BTreeSet::new(), BTreeSet::new());
    for line in &lines {
        assert!(line[0].is_empty() && line[1].is_empty() && line[2] == "1", "{line:?}");
        states.insert(line[3].clone());
        diagnostics.insert(line[4].clone());
    }
    assert_eq!(states, ["0x00", "0x01", "0x02", "0x03"].map(str::to_owned).into());
    assert_eq!(diagnostics, ["0x00", "0x03", "0x07"].map(str::to_owned).into());
    assert!(lines.iter().any(|line| line[5] == "1" || line[5] == "True"), "a poll");
}
