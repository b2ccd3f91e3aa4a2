//! ARP for IPv4 (RFC 826): answers for the addresses of its device, and keeps the gateway and other neighbours resolved.

use crate::device::DeviceConfig;
use crate::device::resolution::{Ask, Resolver};
use crate::protocol::{Command, Input, Match, Output, Protocol, Refused, State};
use drophammer_model::Instant;
use drophammer_wire::ethernet::ethertype;
use drophammer_wire::{MacAddr, Malformed, arp};
use std::net::{IpAddr, Ipv4Addr};

const NAME: &str = "arp";

/// ARP of one device.
pub struct Arp {
    /// The device's own address; without an address, ARP is silent.
    own: Option<Ipv4Addr>,
    resolver: Resolver,
    requests_answered: u64,
    requests_sent: u64,
}

impl Arp {
    /// ARP for `device`. It requests the gateway's address at the first poll.
    pub fn new(device: &DeviceConfig) -> Arp {
        let gateway = device.ipv4.map(|a| a.gateway.into());
        Arp {
            own: device.ipv4.map(|a| a.address),
            resolver: Resolver::new(gateway),
            requests_answered: 0,
            requests_sent: 0,
        }
    }

    fn take(&mut self, now: Instant, payload: &[u8], out: &mut Output<'_>) -> Result<(), Malformed> {
        if self.own.is_none() {
            return Ok(());
        }
        let packet = arp::Repr::parse(payload)?;
        if out.addresses().owns_v4(packet.sender_ip) && packet.sender_mac != out.mac() {
            out.conflict();
            return Ok(());
        }
        // Replies, requests and announcements all contain the sender's addresses (RFC 826, "packet reception").
        self.resolver.confirm(now, packet.sender_ip.into(), packet.sender_mac, out.neighbours());
        if packet.operation == arp::Operation::Request && out.addresses().owns_v4(packet.target_ip) {
            self.requests_answered += 1;
            send(out, packet.sender_mac, &arp::Repr::reply_to(&packet, out.mac()));
        }
        Ok(())
    }
}

fn send(out: &mut Output<'_>, to: MacAddr, packet: &arp::Repr) {
    out.frame(to, ethertype::ARP, arp::LEN, |payload| packet.emit(payload));
}

/// The addresses in an ARP broadcast or ND multicast. A port with many devices passes the message only to devices that
/// have one of these addresses, or have it in their neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concerns {
    /// The requested or announced address.
    pub target: IpAddr,
    /// The address of the sender.
    pub sender: IpAddr,
    /// True if the sender announces its own address, which concerns all devices that know this address.
    pub announcement: bool,
}

/// Reads the addresses of the ARP packet `payload`; `None` if it is not valid ARP.
pub fn concerns(payload: &[u8]) -> Option<Concerns> {
    let packet = arp::Repr::parse(payload).ok()?;
    let (target, sender) = (packet.target_ip.into(), packet.sender_ip.into());
    Some(Concerns { target, sender, announcement: target == sender })
}

impl Protocol for Arp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self) -> &[Match] {
        &[Match::EtherType(ethertype::ARP)]
    }

    fn receive(&mut self, now: Instant, input: Input<'_>, out: &mut Output<'_>) {
        if let Input::Frame { payload, .. } = input
            && self.take(now, payload, out).is_err()
        {
            out.malformed();
        }
    }

    fn poll(&mut self, now: Instant, _: usize, out: &mut Output<'_>) {
        let Some(own) = self.own else { return };
        for (address, ask) in self.resolver.poll(now, false, out.neighbours()) {
            let IpAddr::V4(target) = address else { continue };
            let to = match ask {
                Ask::Everybody => MacAddr::BROADCAST,
                Ask::Unicast(mac) => mac,
            };
            self.requests_sent += 1;
            send(out, to, &arp::Repr::request(out.mac(), own, target));
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.resolver.next_deadline()
    }

    fn command(&mut self, _: Instant, _: &Command) -> Result<(), Refused> {
        Err(Refused::unknown(NAME))
    }

    fn state(&self) -> State {
        State {
            sessions: self.resolver.len() as u32,
            up: self.resolver.resolved() as u32,
            counters: vec![("requests_sent", self.requests_sent), ("requests_answered", self.requests_answered)],
        }
    }
}
