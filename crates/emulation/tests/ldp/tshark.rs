//! tshark decodes all messages of two LSRs without an error.

use super::common::*;
use drophammer_emulation::ldp::LdpCommand;
use drophammer_emulation::protocol::Command;
use std::time::Duration;

#[path = "../../../wire/tests/tshark/mod.rs"]
mod decoder;

const FIELDS: [&str; 8] = [
    "_ws.malformed",
    "_ws.expert.severity",
    "ldp.msg.type",
    "ldp.msg.tlv.fec.pfval",
    "ldp.msg.tlv.generic.label",
    "ip.ttl",
    "ip.dst",
    "ip.dsfield.dscp",
];
/// Severity of an error.
const ERROR: u32 = 0x0080_0000;

fn numbers(text: &str) -> Vec<u32> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    text.split(',').filter(|text| !text.is_empty()).map(number).collect()
}

#[test]
fn a_whole_life() {
    let mut world = World::new([config(0, 300), config(1, 300)]);
    world.capture = Some(Vec::new());
    world.start();
    (0..2).for_each(|side| world.ldp(side, LdpCommand::Advertise { range: 0, part: 0..300 }));
    world.run_for(Duration::from_secs(200));
    world.ldp(0, LdpCommand::Withdraw { range: 0, part: 0..10 });
    world.run_for(Duration::from_secs(1));
    world.ldp(0, LdpCommand::Release { range: 0, part: 0..7 });
    world.run_for(Duration::from_secs(1));
    world.command(1, Command::Stop);
    world.run_for(Duration::from_secs(1));
    let frames: Vec<_> = world.capture.iter().flatten().map(|(at, frame)| (*at, &frame[..])).collect();
    let Some(lines) = decoder::decode("ldp", &frames, &FIELDS) else { return };
    let mut kinds = std::collections::BTreeMap::new();
    let mut labels = std::collections::BTreeSet::new();
    for line in &lines {
        assert!(line[0].is_empty() && numbers(&line[1]).iter().all(|severity| *severity < ERROR), "{line:?}");
        numbers(&line[2]).into_iter().for_each(|kind| *kinds.entry(kind).or_insert(0) += 1);
        labels.extend(numbers(&line[4]));
        if line[2] == "256" || line[2] == "0x0100" {
            assert_eq!((&*line[5], &*line[6], &*line[7]), ("1", "224.0.0.2", "48"));
        }
    }
    let count = |kind: u32| kinds.get(&kind).copied().unwrap_or(0);
    assert_eq!([0x001, 0x200, 0x300, 0x400, 0x402, 0x403].map(count), [2, 2, 2, 600, 10, 17], "{kinds:?}");
    assert!(count(0x100) > 80 && count(0x201) >= 6, "{kinds:?}");
    assert_eq!(labels, (100..400).chain(200_000..200_300).collect());
    assert_eq!(world.counter(1, "malformed") + world.counter(0, "malformed"), 0);
}
