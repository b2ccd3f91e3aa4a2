//! Devices of several lanes, and full ports.

use super::*;
use crate::config::{DeviceConfig, host_mac};
use drophammer_emulation::device::Address;
use std::net::Ipv4Addr;

#[test]
fn a_lane_passes_what_is_for_the_devices_of_another() {
    let port = |i: usize| {
        let mut port = PortConfig::new("port", host_mac(1, i), 1500);
        let ends = [[198, 18, 1, 1], [198, 18, 1, 2]].map(Ipv4Addr::from);
        port.devices[0].ipv4 = Some(Address { address: ends[i], prefix_len: 24, gateway: ends[i ^ 1] });
        port
    };
    let mut all = Hosts::new(&Config { seed: 1, ports: vec![port(0), port(1)] });
    let mut asked = Vec::new();
    all.poll(Instant(1), &mut |_, frame| {
        asked.push(frame.to_vec());
        Ok(true)
    })
    .unwrap();
    assert_eq!(asked.len(), 2, "each host asks for the other");
    // The request of port 1 arrives at the second queue of port 0, which belongs to another lane.
    let layout = Layout::queues(&[2, 1], 2);
    let mut lanes: Vec<_> = all
        .by_lane(&layout)
        .into_iter()
        .map(|hosts| HostControl { hosts, acts: &[], links: Vec::new(), stopped: || false })
        .collect();
    let poll = |lane: usize, now: u64, lanes: &mut Vec<HostControl<'_, _>>| {
        let mut answers = Vec::new();
        let next = Control::poll(&mut lanes[lane], Instant(now), &mut |port, frame| {
            answers.push((port, frame[20..22].to_vec()));
            Ok(true)
        });
        (answers, next.unwrap())
    };
    Control::receive(&mut lanes[1], 0, Arrival { frame: &asked[1], at: Instant(2) }).unwrap();
    let (answers, _) = poll(1, 3, &mut lanes);
    assert_eq!(answers, []);
    let (answers, next) = poll(0, 4, &mut lanes);
    assert_eq!(answers, [(0, vec![0, 2])], "an ARP reply");
    assert!(next <= Instant(4) + PASSED, "there may be more soon");
    assert_eq!(poll(0, 5, &mut lanes).0, []);
    // `take_passed` takes the frames that the lane left behind.
    Control::receive(&mut lanes[1], 0, Arrival { frame: &asked[1], at: Instant(6) }).unwrap();
    drop(lanes);
    all.take_passed();
    let mut left = 0;
    all.poll(Instant(7), &mut |_, _| {
        left += 1;
        Ok(true)
    })
    .unwrap();
    assert_eq!(left, 1);
}

#[test]
fn what_a_full_port_refuses_waits_for_room() {
    let mut port = PortConfig::new("port", host_mac(1, 0), 1500);
    let (address, gateway) = ([198, 18, 1, 2].into(), [198, 18, 1, 1].into());
    port.devices[0].ipv4 = Some(Address { address, prefix_len: 24, gateway });
    let mut hosts = Hosts::new(&Config { seed: 1, ports: vec![port] });
    let mut poll = |now: u64, room: bool| {
        let mut offered = Vec::new();
        let next = hosts.poll(Instant(now), &mut |_, frame| {
            offered.push(frame.to_vec());
            Ok(room)
        });
        (offered, next.unwrap())
    };
    let (asked, next) = poll(1, false);
    assert_eq!((asked.len(), next), (1, Instant(1) + FULL), "who has the gateway's address?");
    assert_eq!(poll(next.0, false).0, asked);
    assert_eq!(poll(next.0 + 1, true).0, asked);
    assert!(poll(next.0 + 2, true).0.is_empty());
}

#[test]
fn refused_frames_are_sent_first_and_in_their_order() {
    let mut port = PortConfig::new("port", host_mac(1, 0), 1500);
    for vid in 1..=3 {
        let tags = Tags::dot1q(vid).unwrap();
        let mut device = DeviceConfig { tags, ..DeviceConfig::new(&format!("d{vid}"), port.mac()) };
        device.set_address("198.18.1.2".parse().unwrap(), 24, "198.18.1.1".parse().unwrap());
        port.devices.push(device);
    }
    let mut hosts = Hosts::new(&Config { seed: 1, ports: vec![port] });
    let poll = |hosts: &mut Hosts, now: u64| {
        let mut offered = Vec::new();
        hosts
            .poll(Instant(now), &mut |_, frame| {
                offered.push(frame.to_vec());
                Ok(true)
            })
            .unwrap();
        offered
    };
    let asked = poll(&mut hosts, 1);
    assert_eq!((asked.len(), hosts.sent(0).frames), (3, 3), "each device asks for its gateway");
    asked[1..].iter().rev().for_each(|frame| hosts.refused(0, frame));
    assert_eq!(hosts.sent(0).frames, 1);
    assert_eq!(poll(&mut hosts, 2), asked[1..]);
    assert_eq!(hosts.sent(0).frames, 3);
}

#[test]
fn late_polls_are_remembered() {
    let mut port = PortConfig::new("port", host_mac(1, 0), 1500);
    let (address, gateway) = ([198, 18, 1, 2].into(), [198, 18, 1, 1].into());
    port.devices[0].ipv4 = Some(Address { address, prefix_len: 24, gateway });
    let mut hosts = Hosts::new(&Config { seed: 1, ports: vec![port] });
    // The device asks again and again for its gateway, which does not answer.
    let poll = |hosts: &mut Hosts, at: Instant| {
        hosts.poll(at, &mut |_, _| Ok(true)).unwrap();
        hosts.device(0, 0).unwrap().next_deadline().unwrap()
    };
    let due = poll(&mut hosts, Instant(1));
    let due = poll(&mut hosts, due);
    assert_eq!(hosts.late(0), Duration::ZERO);
    let due = poll(&mut hosts, due + Duration::from_millis(700));
    poll(&mut hosts, due + Duration::from_millis(20));
    assert_eq!(hosts.late(0), Duration::from_millis(700));
    hosts.forget_late();
    assert_eq!(hosts.late(0), Duration::ZERO);
}
