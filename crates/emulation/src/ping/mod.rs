//! Ping (RFC 792, RFC 4443): answers echo requests for all addresses of its device, and sends requests to or through the gateway on
//! command.

mod session;

pub use session::{PingStats, Served, Trip};

use crate::device::DeviceConfig;
use crate::protocol::{Command, Input, Match, Output, Packet, Protocol, Refused, State};
use drophammer_model::Instant;
use drophammer_model::size::{ETHERNET_OVERHEAD, MAX_FRAME};
use drophammer_model::trial::Family;
use drophammer_wire::ipv4::protocol;
use drophammer_wire::{Malformed, icmpv4, icmpv6, ipv4, ipv6};
use session::{Answering, Asked, Departure, Pinger};
use std::net::IpAddr;

/// Name of the protocol.
pub const NAME: &str = "ping";
/// Echo requests and replies of both IP versions.
const MATCHES: [Match; 5] = [Match::Icmp(8), Match::Icmp(0), Match::Icmpv6(128), Match::Icmpv6(129), Match::Neighbour];
/// Bytes of data that `ping` sends by default.
const DEFAULT_DATA: u16 = 56;
/// Data of the requests; a request carries the first bytes.
static DATA: [u8; MOST_DATA as usize] = [0x2a; MOST_DATA as usize];
/// Maximum number of data bytes in a request; the tester's largest frame has room for fewer.
pub const MOST_DATA: u16 = MAX_FRAME - ETHERNET_OVERHEAD;

/// One echo request, sent by the next poll or as soon as the gateway is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// IP version.
    pub family: Family,
    /// Destination, reached through the gateway; `None` for the gateway itself.
    pub to: Option<IpAddr>,
    /// Number of data bytes, at most [`MOST_DATA`].
    pub data: u16,
}

impl Echo {
    /// A request to the gateway with the default data of `ping`.
    pub const fn gateway(family: Family) -> Echo {
        Echo { family, to: None, data: DEFAULT_DATA }
    }
}

/// Ping of one device.
pub struct Ping {
    v4: Option<Pinger>,
    v6: Option<Pinger>,
    answering: Answering,
    requests_answered: u64,
}

impl Ping {
    /// Answers requests, and sends requests only on command.
    pub fn new(device: &DeviceConfig) -> Ping {
        let seed = device.seed;
        let identifier = (seed ^ seed >> 16 ^ seed >> 32 ^ seed >> 48) as u16;
        Ping {
            v4: device.ipv4.map(|a| Pinger::new(identifier, a.address.into(), a.gateway.into())),
            v6: device.ipv6.map(|a| Pinger::new(identifier.wrapping_add(1), a.address.into(), a.gateway.into())),
            answering: Answering::default(),
            requests_answered: 0,
        }
    }

    /// Results of the pings of `family`; `None` if the device does not use this family.
    pub fn stats(&self, family: Family) -> Option<PingStats> {
        match family {
            Family::Ipv4 => self.v4.as_ref().map(|p| p.stats),
            Family::Ipv6 => self.v6.as_ref().map(|p| p.stats),
        }
    }

    /// The requests of `family` that were answered, in the order of the answers.
    pub fn trips(&self, family: Family) -> &[Trip] {
        let pinger = match family {
            Family::Ipv4 => &self.v4,
            Family::Ipv6 => &self.v6,
        };
        pinger.as_ref().map_or(&[], |p| &p.trips)
    }

    /// The received requests that the device has answered since [`Ping::forget`], in the order of arrival.
    pub fn served(&self) -> &[Served] {
        self.answering.served()
    }

    /// Clears [`Ping::trips`] and [`Ping::served`], because their lengths are limited.
    pub fn forget(&mut self) {
        self.answering.forget();
        for pinger in [&mut self.v4, &mut self.v6].into_iter().flatten() {
            pinger.trips.clear();
        }
    }

    fn take(&mut self, now: Instant, packet: &Packet<'_>, out: &mut Output<'_>) -> Result<(), Malformed> {
        match (packet.source, packet.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => match icmpv4::Repr::parse(packet.payload)? {
                icmpv4::Repr::EchoRequest { identifier, sequence, data } if out.addresses().owns_v4(destination) => {
                    self.requests_answered += 1;
                    self.answering.take(now, packet.source, sequence);
                    let reply = icmpv4::Repr::EchoReply { identifier, sequence, data };
                    let header = ipv4::Repr {
                        tos: 0,
                        identification: packet.identification,
                        dont_fragment: false,
                        ttl: 64,
                        protocol: protocol::ICMP,
                        source: destination,
                        destination: source,
                        payload_len: reply.message_len(),
                    };
                    out.ipv4(packet.link_source, &header, |payload| reply.emit(payload));
                }
                icmpv4::Repr::EchoReply { identifier, sequence, .. } => {
                    arrive(&mut self.v4, now, packet.source, identifier, sequence);
                }
                _ => {}
            },
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                match icmpv6::Repr::parse(packet.payload, packet.pseudo_sum)? {
                    icmpv6::Repr::EchoRequest { identifier, sequence, data } => {
                        // The answer to a ping to a group comes from the device's own address.
                        let own = out.addresses().ipv6.map_or(destination, |a| a.address);
                        let source_own = if out.addresses().owns_v6(destination) { destination } else { own };
                        self.requests_answered += 1;
                        self.answering.take(now, packet.source, sequence);
                        let reply = icmpv6::Repr::EchoReply { identifier, sequence, data };
                        let header = ipv6::Repr {
                            traffic_class: 0,
                            flow_label: 0,
                            next_header: protocol::ICMPV6,
                            hop_limit: 64,
                            source: source_own,
                            destination: source,
                            payload_len: reply.message_len(),
                        };
                        let sum = header.pseudo_header_sum();
                        out.ipv6(packet.link_source, &header, |payload| reply.emit(payload, sum));
                    }
                    icmpv6::Repr::EchoReply { identifier, sequence, .. } => {
                        arrive(&mut self.v6, now, packet.source, identifier, sequence);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, now: Instant, out: &mut Output<'_>) {
        for pinger in [&mut self.v4, &mut self.v6].into_iter().flatten() {
            while pinger.is_due() {
                let Some(gateway) = out.neighbours().mac(pinger.gateway) else {
                    pinger.waits = true;
                    break;
                };
                let Some(Departure { to, identifier, sequence, data }) = pinger.depart(now) else { break };
                let data = &DATA[..data.min(DATA.len())];
                match (pinger.own, to) {
                    (IpAddr::V4(source), IpAddr::V4(destination)) => {
                        let echo = icmpv4::Repr::EchoRequest { identifier, sequence, data };
                        let header = ipv4::Repr {
                            tos: 0,
                            identification: sequence,
                            dont_fragment: false,
                            ttl: 64,
                            protocol: protocol::ICMP,
                            source,
                            destination,
                            payload_len: echo.message_len(),
                        };
                        out.ipv4(gateway, &header, |payload| echo.emit(payload));
                    }
                    (IpAddr::V6(source), IpAddr::V6(destination)) => {
                        let echo = icmpv6::Repr::EchoRequest { identifier, sequence, data };
                        let header = ipv6::Repr {
                            traffic_class: 0,
                            flow_label: 0,
                            next_header: protocol::ICMPV6,
                            hop_limit: 64,
                            source,
                            destination,
                            payload_len: echo.message_len(),
                        };
                        let sum = header.pseudo_header_sum();
                        out.ipv6(gateway, &header, |payload| echo.emit(payload, sum));
                    }
                    _ => {}
                }
            }
        }
    }
}

fn arrive(pinger: &mut Option<Pinger>, now: Instant, source: IpAddr, identifier: u16, sequence: u16) {
    if let Some(pinger) = pinger {
        pinger.arrive(now, source, identifier, sequence);
    }
}

impl Protocol for Ping {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self) -> &[Match] {
        &MATCHES
    }

    fn receive(&mut self, now: Instant, input: Input<'_>, out: &mut Output<'_>) {
        match input {
            Input::Packet(packet) if self.take(now, &packet, out).is_err() => out.malformed(),
            Input::Neighbour(address) => {
                for pinger in [&mut self.v4, &mut self.v6].into_iter().flatten() {
                    pinger.waits &= pinger.gateway != address;
                }
                self.send(now, out);
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant, _: usize, out: &mut Output<'_>) {
        // Replies to requests since the last poll leave with this poll.
        self.answering.depart(now);
        self.send(now, out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.answering.waits() {
            return Some(Instant(0));
        }
        let due = |pinger: &Option<Pinger>| pinger.as_ref().filter(|p| p.is_due() && !p.waits).map(Pinger::due);
        [due(&self.v4), due(&self.v6)].into_iter().flatten().min()
    }

    fn command(&mut self, now: Instant, command: &Command) -> Result<(), Refused> {
        let Command::Ping(Echo { family, to, data }) = command else { return Err(Refused::unknown(NAME)) };
        if *data > MOST_DATA || to.is_some_and(|to| to.is_ipv4() != (*family == Family::Ipv4)) {
            let why =
                format!("no {family} echo request to {to:?} with {data} bytes of data; at most {MOST_DATA} bytes");
            return Err(Refused::new(NAME, why));
        }
        let pinger = match family {
            Family::Ipv4 => &mut self.v4,
            Family::Ipv6 => &mut self.v6,
        };
        let Some(pinger) = pinger else {
            return Err(Refused::new(NAME, format!("the device has no {family} address: give it one and a gateway")));
        };
        pinger.ask(now, Asked { to: *to, data: *data });
        Ok(())
    }

    fn state(&self) -> State {
        let sum = |of: fn(&PingStats) -> u64| [&self.v4, &self.v6].into_iter().flatten().map(|p| of(&p.stats)).sum();
        State {
            sessions: 0,
            up: 0,
            counters: vec![
                ("requests_answered", self.requests_answered),
                ("requests_sent", sum(|s| s.sent)),
                ("replies_received", sum(|s| s.received)),
            ],
        }
    }
}
