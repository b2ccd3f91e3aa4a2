//! A reference device with an emulated host on each port, in virtual time.

#![allow(dead_code, reason = "each test binary uses its part")]

use drophammer_emulation::ping::{Echo, Ping, PingStats};
use drophammer_emulation::protocol::Command;
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_model::trial::Family;
use drophammer_reference::{Config, PortConfig, Route, Router};
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::{MacAddr, ipv4, ipv6, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A frame that departed: instant, port, content.
pub type Sent = (Instant, usize, Vec<u8>);

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

pub struct Bench {
    pub router: Router,
    pub hosts: Vec<Device>,
    /// All frames that the router sent.
    pub sent: Vec<Sent>,
    /// All frames that the hosts sent.
    pub control: Vec<Vec<u8>>,
}

pub fn net4(port: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, port as u8, host)
}

pub fn net6(port: usize, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 2, 0, port as u16, 0, 0, 0, host)
}

/// An address behind the host on `port`.
pub fn behind4(port: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, port as u8, host)
}

pub fn behind6(port: usize, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 2, 0, 0x8000 + port as u16, 0, 0, 0, host)
}

pub fn config(ports: usize) -> Config {
    let mut config = Config { neighbour_lifetime: None, seed: 42, ..Config::default() };
    for i in 0..ports {
        let mut port = PortConfig::new(MacAddr::local(0x100 + i as u64));
        port.ipv4 = Some((net4(i, 1), 24));
        port.ipv6 = Some((net6(i, 1), 64));
        config.ports.push(port);
        config.routes.push(Route {
            prefix: behind4(i, 0).into(),
            prefix_len: 24,
            port: i,
            next_hop: net4(i, 2).into(),
        });
        config.routes.push(Route {
            prefix: behind6(i, 0).into(),
            prefix_len: 64,
            port: i,
            next_hop: net6(i, 2).into(),
        });
    }
    config
}

pub fn host(port: usize) -> Device {
    Device::new(DeviceConfig {
        ipv4: Some(Address { address: net4(port, 2), prefix_len: 24, gateway: net4(port, 1) }),
        ipv6: Some(Address { address: net6(port, 2), prefix_len: 64, gateway: net6(port, 1) }),
        ..DeviceConfig::new(format!("port{port}"), MacAddr::local(0x200 + port as u64), 7)
    })
}

/// Makes a host ping its gateway. False if the host does not use this family.
pub fn ping(host: &mut Device, now: Instant, family: Family) -> bool {
    host.command(now, "ping", &Command::Ping(Echo::gateway(family))).is_ok()
}

pub fn ping_stats(host: &Device, family: Family) -> Option<PingStats> {
    host.protocol::<Ping>().and_then(|ping| ping.stats(family))
}

/// Bytes of bulk data that a host may send at a time.
pub const BUDGET: usize = 64 << 10;

impl Bench {
    /// No neighbour is resolved yet.
    pub fn cold(config: Config) -> Bench {
        let hosts = (0..config.ports.len()).map(host).collect();
        Bench { router: Router::new(config).unwrap(), hosts, sent: Vec::new(), control: Vec::new() }
    }

    /// The hosts have resolved the router, and the router has learned their addresses from that.
    pub fn new(config: Config) -> Bench {
        let mut bench = Bench::cold(config);
        bench.wake_hosts(Instant(0));
        assert!(bench.hosts.iter().all(Device::is_ready));
        (bench.sent, bench.control) = (Vec::new(), Vec::new());
        bench
    }

    /// Polls the hosts and delivers their frames.
    pub fn wake_hosts(&mut self, now: Instant) {
        let mut outgoing = Vec::new();
        for (i, host) in self.hosts.iter_mut().enumerate() {
            host.poll(now, BUDGET, &mut |frame| outgoing.push((i, frame.to_vec())));
        }
        for (i, frame) in outgoing {
            self.router.receive(now, i, &frame);
            self.control.push(frame);
        }
        self.run_until(now);
    }

    /// Polls the router at each of its deadlines until `end`; the hosts receive its frames, and answer.
    pub fn run_until(&mut self, end: Instant) {
        while let Some(at) = self.router.next_deadline().filter(|d| *d <= end) {
            let mut sent = Vec::new();
            self.router.poll(at, &mut |when, port, frame| sent.push((when, port, frame.to_vec())));
            for (when, port, frame) in sent {
                let mut answers = Vec::new();
                self.hosts[port].receive(when, &frame, &mut |answer| answers.push(answer.to_vec()));
                for answer in answers {
                    self.router.receive(when, port, &answer);
                    self.control.push(answer);
                }
                self.sent.push((when, port, frame));
            }
        }
        assert!(self.router.next_deadline().is_none_or(|d| d > end));
    }

    /// Offers a frame at `now` after everything before it has happened.
    pub fn offer(&mut self, now: Instant, port: usize, frame: &[u8]) {
        self.run_until(Instant(now.0.saturating_sub(1)));
        self.router.receive(now, port, frame);
    }

    /// Runs until every frame in the box has departed.
    pub fn finish(&mut self) -> Vec<Sent> {
        self.run_until(Instant(1_000_000 * SECOND));
        assert_eq!(self.router.truth().queued, 0);
        std::mem::take(&mut self.sent)
    }

    pub fn check_sums(&self) {
        let t = self.router.truth();
        assert_eq!(t.received, t.control + t.ignored + t.transit, "{t:?}");
        assert_eq!(t.transit + t.duplicated, t.forwarded + t.dropped.total() + t.queued, "{t:?}");
    }
}

/// Properties of a test frame.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    pub from: usize,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub ttl: u8,
    /// Frame size, FCS included.
    pub size: usize,
}

impl Test {
    pub fn new(from: usize, to: usize, family: Family) -> Test {
        let (source, destination, size): (IpAddr, IpAddr, usize) = match family {
            Family::Ipv4 => (behind4(from, 9).into(), behind4(to, 9).into(), 64),
            Family::Ipv6 => (behind6(from, 9).into(), behind6(to, 9).into(), 84),
        };
        Test { from, source, destination, ttl: 64, size }
    }

    /// A UDP frame whose payload begins with `number`.
    pub fn frame(&self, number: u32) -> Vec<u8> {
        let mut frame = vec![0u8; self.size - 4];
        let destination = MacAddr::local(0x100 + self.from as u64);
        let source = MacAddr::local(0x200 + self.from as u64);
        let ethertype = if self.source.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 };
        ethernet::Repr { destination, source, ethertype }.emit(&mut frame);
        let packet = &mut frame[ethernet::LEN..];
        let ports = udp::Repr { source: 49_152, destination: 9 };
        let ip_len = if self.source.is_ipv4() { ipv4::LEN } else { ipv6::LEN };
        packet[ip_len + udp::LEN..][..4].copy_from_slice(&number.to_be_bytes());
        let payload_len = packet.len() - ip_len;
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let (ttl, protocol) = (self.ttl, 17);
                let ip = ipv4::Repr {
                    tos: 0,
                    identification: number as u16,
                    dont_fragment: true,
                    ttl,
                    protocol,
                    source,
                    destination,
                    payload_len,
                };
                ip.emit(packet);
                ports.emit(&mut packet[ip_len..], ip.pseudo_header_sum());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let (hop_limit, next_header) = (self.ttl, 17);
                let (traffic_class, flow_label) = (0, 0);
                let ip =
                    ipv6::Repr { traffic_class, flow_label, next_header, hop_limit, source, destination, payload_len };
                ip.emit(packet);
                ports.emit(&mut packet[ip_len..], ip.pseudo_header_sum());
            }
            _ => panic!("two families"),
        }
        frame
    }
}

/// A received test frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub number: u32,
    pub ttl: u8,
    /// IP and UDP checksums are correct.
    pub intact: bool,
}

/// Reads a test frame; `None` for anything else.
pub fn read(frame: &[u8]) -> Option<Seen> {
    let (header, packet) = ethernet::Repr::parse(frame).ok()?;
    let (ttl, sum, datagram) = match header.ethertype {
        ethertype::IPV4 => {
            let (ip, payload) = ipv4::Repr::parse(packet).ok()?;
            (ip.ttl, (ip.protocol == 17).then(|| ip.pseudo_header_sum())?, payload)
        }
        ethertype::IPV6 => {
            let (ip, payload) = ipv6::Repr::parse(packet).ok()?;
            (ip.hop_limit, (ip.next_header == 17).then(|| ip.pseudo_header_sum())?, payload)
        }
        _ => return None,
    };
    let number = u32::from_be_bytes(*datagram.get(8..)?.first_chunk()?);
    Some(Seen { number, ttl, intact: udp::Repr::parse(datagram, sum).is_ok() })
}

/// Numbers of the test frames among `sent`, in order.
pub fn numbers(sent: &[Sent]) -> Vec<u32> {
    sent.iter().filter_map(|s| read(&s.2)).map(|s| s.number).collect()
}
