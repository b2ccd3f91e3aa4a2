//! One local address of smoltcp, and the one-packet device through which smoltcp sends and receives.

use drophammer_model::Instant;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::net::IpAddr;
use std::time::Duration;

/// smoltcp returns instant 0 for "now", and computes some first deadlines as 0 plus at most a minute, so its clock
/// starts well above.
const EPOCH_US: u64 = 100_000_000;

/// Converts our instant (ns) to one of smoltcp (µs, rounded down).
pub(super) fn to_inner(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros((EPOCH_US + now.0 / 1_000).min(i64::MAX as u64) as i64)
}

/// Converts an instant of smoltcp to ours: the first instant that is rounded to it. `None` for "now".
fn to_outer(at: smoltcp::time::Instant) -> Option<Instant> {
    let us = u64::try_from(at.total_micros()).unwrap_or(0).checked_sub(EPOCH_US)?;
    Some(Instant(us.saturating_mul(1_000)))
}

/// How packets are formed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub mtu: usize,
    pub verify_checksums: bool,
}

impl Link {
    fn capabilities(self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities.checksum.tcp = if self.verify_checksums { Checksum::Both } else { Checksum::Tx };
        capabilities
    }
}

/// Passes at most one packet to smoltcp, and takes the packets that it sends.
pub(super) struct Device<'a> {
    pub link: Link,
    pub arrived: Option<&'a [u8]>,
    /// Memory for one outgoing packet, at least as long as the MTU.
    pub scratch: &'a mut [u8],
    pub out: &'a mut dyn FnMut(&[u8]),
    /// Number of packets that may still be sent.
    pub budget: usize,
}

pub(super) struct Receive<'a>(&'a [u8]);

pub(super) struct Transmit<'a> {
    budget: &'a mut usize,
    scratch: &'a mut [u8],
    out: &'a mut dyn FnMut(&[u8]),
}

impl phy::RxToken for Receive<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl phy::TxToken for Transmit<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let packet = &mut self.scratch[..len];
        let result = f(packet);
        (self.out)(packet);
        *self.budget = self.budget.saturating_sub(1);
        result
    }
}

impl Device<'_> {
    fn transmit_token(&mut self) -> Transmit<'_> {
        Transmit { budget: &mut self.budget, scratch: self.scratch, out: self.out }
    }
}

impl phy::Device for Device<'_> {
    type RxToken<'t>
        = Receive<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Transmit<'t>
    where
        Self: 't;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Receive<'_>, Transmit<'_>)> {
        let arrived = self.arrived.take()?;
        Some((Receive(arrived), self.transmit_token()))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Transmit<'_>> {
        (self.budget > 0).then(|| self.transmit_token())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.link.capabilities()
    }
}

/// A local address.
pub(super) struct Host {
    pub address: IpAddr,
    pub interface: Interface,
    /// Next ephemeral port to try.
    port: u16,
}

/// First ephemeral port (RFC 6335 section 6); the last is 65535.
const FIRST_PORT: u16 = 49_152;
pub(super) const PORTS: u32 = 65_536 - FIRST_PORT as u32;

/// Mixes `value` into `seed`: the finaliser of SplitMix64.
fn mix(seed: u64, value: u64) -> u64 {
    let mut z = seed.wrapping_add(value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Host {
    /// Its random choices (sequence numbers, ports) depend only on `seed` and its address.
    pub fn new(address: IpAddr, seed: u64, link: Link) -> Host {
        let words = match address {
            IpAddr::V4(a) => [u64::from(a.to_bits()), 4],
            IpAddr::V6(a) => [(a.to_bits() >> 64) as u64, a.to_bits() as u64],
        };
        let seed = words.into_iter().fold(seed, mix);
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut device = Device { link, arrived: None, scratch: &mut [], out: &mut |_| {}, budget: 0 };
        let mut interface = Interface::new(config, &mut device, to_inner(Instant(0)));
        let bits = if address.is_ipv4() { 32 } else { 128 };
        interface.update_ip_addrs(|addresses| {
            // There is room for two addresses.
            let _ = addresses.push(IpCidr::new(IpAddress::from(address), bits));
        });
        Host { address, interface, port: FIRST_PORT + (seed % u64::from(PORTS)) as u16 }
    }

    /// The next ephemeral port, cyclically.
    pub fn next_port(&mut self) -> u16 {
        let port = self.port;
        self.port = port.checked_add(1).unwrap_or(FIRST_PORT);
        port
    }

    /// The time when one of `sockets` must send, if no packet arrives earlier.
    pub fn poll_at(&mut self, now: Instant, sockets: &SocketSet<'_>) -> Option<Instant> {
        let at = self.interface.poll_at(to_inner(now), sockets)?;
        // The last poll of smoltcp had nothing to send: "now" would repeat forever.
        Some(to_outer(at).filter(|at| *at > now).unwrap_or(now + Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_go_there_and_back() {
        for ns in [0, 1_000, 5_000_000_000] {
            assert_eq!(to_outer(to_inner(Instant(ns))), Some(Instant(ns)));
        }
        assert_eq!(to_inner(Instant(1_999)), to_inner(Instant(1_000)));
        assert_eq!(to_outer(smoltcp::time::Instant::ZERO), None);
        assert!(to_outer(to_inner(Instant(u64::MAX))).is_some());
    }

    #[test]
    fn ports_go_round_and_hosts_differ() {
        let link = Link { mtu: 1500, verify_checksums: true };
        let mut host = Host::new("198.18.0.1".parse().unwrap(), 1, link);
        let mut seen: Vec<u16> = (0..PORTS).map(|_| host.next_port()).collect();
        assert_eq!(host.next_port(), seen[0]);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((seen.len() as u32, seen[0]), (PORTS, FIRST_PORT));
        let first = |address: &str, seed| Host::new(address.parse().unwrap(), seed, link).next_port();
        assert_eq!(first("2001:2::1", 1), first("2001:2::1", 1));
        assert_ne!(first("2001:2::1", 1), first("2001:2::2", 1));
        assert_ne!(first("2001:2::1", 1), first("2001:2::1", 2));
    }
}
