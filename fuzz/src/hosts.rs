//! The emulated device: whatever comes in, it answers with sound frames or not at all, and never asks to be called at once
//! for ever.

use super::frames::{Stations, assert_sound, frame};
use super::input::Input;
use drophammer_emulation::ping::{Echo, Ping};
use drophammer_emulation::protocol::Command;
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_model::trial::Family;
use drophammer_wire::MacAddr;
use std::time::Duration;

/// A host at port 0 of a device, by the input's frames and times.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let stations = Stations {
        macs: [MacAddr::local(1), MacAddr::local(2)],
        ipv4: ["198.18.0.2", "198.18.0.1", "198.18.0.9", "0.0.0.0"].map(|a| a.parse().unwrap()),
        ipv6: ["2001:2::2", "2001:2::1", "2001:2::9", "fe80::1"].map(|a| a.parse().unwrap()),
    };
    let kind = input.u8();
    let (v4, v6) = (kind & 1 == 0, kind & 2 == 0);
    let [address, gateway, ..] = stations.ipv4;
    let [address6, gateway6, ..] = stations.ipv6;
    let mut host = Device::new(DeviceConfig {
        ipv4: v4.then_some(Address { address, prefix_len: 24, gateway }),
        ipv6: v6.then_some(Address { address: address6, prefix_len: 64, gateway: gateway6 }),
        ..DeviceConfig::new("host", stations.macs[0], u64::from(kind))
    });
    let mut now = Instant(1);
    let mut pings = 0;
    let mut heard = 0u64;
    while !input.is_empty() {
        let mut sent = 0;
        let mut out = |frame: &[u8]| {
            assert_sound(frame);
            assert_eq!(frame[6..12], stations.macs[0].0, "it speaks for itself alone");
            sent += 1;
        };
        match input.below(4) {
            0 => {
                now = now + Duration::from_nanos(u64::from(input.u32()));
                host.poll(now, 64 << 10, &mut out);
                assert!(host.next_deadline().is_none_or(|next| next > now), "it would be polled for ever");
                assert!(sent <= 2 + pings, "{sent} frames unasked");
            }
            1 => {
                let family = if input.flag() { Family::Ipv4 } else { Family::Ipv6 };
                pings += u64::from(host.command(now, "ping", &Command::Ping(Echo::gateway(family))).is_ok());
            }
            _ => {
                let frame = frame(&mut input, &stations);
                host.receive(now, &frame, &mut out);
                heard += 1;
                // One answer, and the pings that waited for the gateway.
                assert!(sent <= 1 + pings, "{sent} frames for one");
            }
        }
        for family in [Family::Ipv4, Family::Ipv6] {
            if let Some(stats) = host.protocol::<Ping>().and_then(|ping| ping.stats(family)) {
                assert!(stats.received <= stats.sent && stats.sent <= stats.asked && stats.asked <= pings);
            }
            assert!(host.gateway_mac(family).is_none_or(|mac| !mac.is_group()));
        }
        let odd = host.oddities();
        assert!(odd.malformed + odd.conflicts <= heard);
    }
}
