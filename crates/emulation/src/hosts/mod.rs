//! One emulated host per port: the neighbour that the DUT forwards to.
//!
//! It answers ARP requests (RFC 826) and neighbor solicitations (RFC 4861) for its addresses, its link-local one
//! included, answers pings, and keeps the DUT's address on that port (its gateway) resolved. It takes whole frames
//! without FCS and gives whole frames without FCS. Arbitrary bytes never panic; frames that are not what they claim are
//! counted. After the first frames nothing here allocates.

mod also;
mod gateway;
mod ping;
#[cfg(test)]
mod tests;

pub use also::MOST as MOST_ALSO;
pub use gateway::REFRESH;
pub use ping::PingStats;

use crate::compose::{self, Link};
use crate::tally::Tally;
use also::Also;
use drophammer_model::Instant;
use drophammer_model::trial::Family;
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::icmpv6::ndp;
use drophammer_wire::ipv4::protocol;
use drophammer_wire::{MacAddr, Malformed, arp, icmpv4, icmpv6, ipv4, ipv6};
use gateway::{Ask, Gateway};
use ping::Pinger;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of a host in one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress<A> {
    /// Its own.
    pub address: A,
    /// Length of the prefix that it shares with the gateway.
    pub prefix_len: u8,
    /// The DUT on this link.
    pub gateway: A,
}

/// What a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Ethernet address.
    pub mac: MacAddr,
    /// IPv4, if used.
    pub ipv4: Option<HostAddress<Ipv4Addr>>,
    /// IPv6, if used.
    pub ipv6: Option<HostAddress<Ipv6Addr>>,
    /// Seed of the identifiers that it chooses.
    pub seed: u64,
}

/// One family of a host.
#[derive(Clone, Debug)]
struct Side<A> {
    address: HostAddress<A>,
    gateway: Gateway,
    pinger: Pinger,
}

/// Frames that a host could not take for what they claim to be, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Malformed, or with a wrong checksum.
    pub malformed: u64,
    /// Another station claims an address of this host.
    pub conflicts: u64,
}

/// Where frames go that a host sends.
pub type Out<'a> = &'a mut dyn FnMut(&[u8]);

/// An emulated host.
#[derive(Clone, Debug)]
pub struct HostStack {
    mac: MacAddr,
    link_local: Ipv6Addr,
    v4: Option<Side<Ipv4Addr>>,
    v6: Option<Side<Ipv6Addr>>,
    also: Also,
    tally: Tally,
    oddities: Oddities,
    scratch: Vec<u8>,
}

impl HostStack {
    /// A host that knows nobody yet; it asks for its gateways at the first [`HostStack::poll`].
    pub fn new(config: HostConfig) -> HostStack {
        let identifier = (config.seed ^ config.seed >> 16 ^ config.seed >> 32 ^ config.seed >> 48) as u16;
        HostStack {
            mac: config.mac,
            link_local: ndp::link_local(config.mac),
            v4: config.ipv4.map(|address| Side::new(address, identifier)),
            v6: config.ipv6.map(|address| Side::new(address, identifier.wrapping_add(1))),
            also: Also::default(),
            tally: Tally::default(),
            oddities: Oddities::default(),
            scratch: Vec::with_capacity(2048),
        }
    }

    /// Gives it `count` further addresses, `first` and those that follow: it answers requests, solicitations and pings for
    /// them as for its own. Takes up to [`MOST_ALSO`] at a time; false when the count is 0, too large, or the range leaves the
    /// address space. They have an effect where the host uses their family; the gateway among them stays the gateway.
    pub fn also(&mut self, first: IpAddr, count: u32) -> bool {
        self.also.add(first, count)
    }

    /// Its Ethernet address.
    pub fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Last known Ethernet address of the gateway; `None` until it has answered once, or without this family.
    pub fn gateway_mac(&self, family: Family) -> Option<MacAddr> {
        self.gateway(family).and_then(Gateway::mac)
    }

    /// When the gateway's address was last confirmed by the gateway.
    pub fn gateway_confirmed(&self, family: Family) -> Option<Instant> {
        self.gateway(family).and_then(Gateway::confirmed)
    }

    /// Is the gateway of every family in use known?
    pub fn is_ready(&self) -> bool {
        [Family::Ipv4, Family::Ipv6].into_iter().filter_map(|f| self.gateway(f)).all(|g| g.mac().is_some())
    }

    fn gateway(&self, family: Family) -> Option<&Gateway> {
        match family {
            Family::Ipv4 => self.v4.as_ref().map(|s| &s.gateway),
            Family::Ipv6 => self.v6.as_ref().map(|s| &s.gateway),
        }
    }

    /// Asks for one echo request to the gateway, sent by the next [`HostStack::poll`] or as soon as the gateway is
    /// resolved. False when the host does not use this family.
    pub fn ping(&mut self, now: Instant, family: Family) -> bool {
        let pinger = match family {
            Family::Ipv4 => self.v4.as_mut().map(|s| &mut s.pinger),
            Family::Ipv6 => self.v6.as_mut().map(|s| &mut s.pinger),
        };
        pinger.map(|p| p.ask(now)).is_some()
    }

    /// What came of the pings of `family`; absent when it is not used.
    pub fn ping_stats(&self, family: Family) -> Option<PingStats> {
        match family {
            Family::Ipv4 => self.v4.as_ref().map(|s| s.pinger.stats),
            Family::Ipv6 => self.v6.as_ref().map(|s| s.pinger.stats),
        }
    }

    /// What it saw, by protocol, from the start or the last [`HostStack::clear_tally`].
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Starts counting anew.
    pub fn clear_tally(&mut self) {
        self.tally = Tally::default();
    }

    /// What it could not take.
    pub fn oddities(&self) -> Oddities {
        self.oddities
    }

    /// When [`HostStack::poll`] wants to be called again; `Instant(0)` for at once. `None` without any address.
    pub fn next_deadline(&self) -> Option<Instant> {
        fn of<A>(side: &Option<Side<A>>) -> Option<Instant> {
            side.as_ref().map(|s| if s.ping_can_go() { s.pinger.due() } else { s.gateway.deadline() })
        }
        match (of(&self.v4), of(&self.v6)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Sends what is due: requests for the gateways, pings.
    pub fn poll(&mut self, now: Instant, out: Out<'_>) {
        if let Some(side) = &mut self.v4 {
            let HostAddress { address, gateway, .. } = side.address;
            match side.gateway.poll(now) {
                Some(Ask::Everybody) => {
                    compose::request(&mut self.scratch, self.mac, address, gateway);
                    out(&self.scratch);
                }
                Some(Ask::Unicast(destination)) => {
                    let link = Link { source: self.mac, destination };
                    compose::arp(&mut self.scratch, link, &arp::Repr::request(self.mac, address, gateway));
                    out(&self.scratch);
                }
                None => {}
            }
        }
        if let Some(side) = &mut self.v6 {
            let HostAddress { address, gateway, .. } = side.address;
            match side.gateway.poll(now) {
                Some(Ask::Everybody) => {
                    compose::solicitation(&mut self.scratch, self.mac, address, gateway);
                    out(&self.scratch);
                }
                Some(Ask::Unicast(destination)) => {
                    let link = Link { source: self.mac, destination };
                    let ask = ndp::Repr::NeighborSolicitation { target: gateway, source_mac: Some(self.mac) };
                    compose::icmpv6(&mut self.scratch, link, address, gateway, 255, &icmpv6::Repr::Ndp(ask));
                    out(&self.scratch);
                }
                None => {}
            }
        }
        self.send_pings(now, out);
    }

    fn send_pings(&mut self, now: Instant, out: Out<'_>) {
        // 56 bytes of data, as `ping` sends by default.
        let data = &[0x2a; 56];
        if let Some(side) = &mut self.v4 {
            while let Some(destination) = side.gateway.mac().filter(|_| side.pinger.is_due()) {
                let (identifier, sequence) = side.pinger.depart(now);
                let echo = icmpv4::Repr::EchoRequest { identifier, sequence, data };
                let link = Link { source: self.mac, destination };
                let HostAddress { address, gateway, .. } = side.address;
                compose::icmpv4(&mut self.scratch, link, address, gateway, sequence, &echo);
                out(&self.scratch);
            }
        }
        if let Some(side) = &mut self.v6 {
            while let Some(destination) = side.gateway.mac().filter(|_| side.pinger.is_due()) {
                let (identifier, sequence) = side.pinger.depart(now);
                let echo = icmpv6::Repr::EchoRequest { identifier, sequence, data };
                let link = Link { source: self.mac, destination };
                let HostAddress { address, gateway, .. } = side.address;
                compose::icmpv6(&mut self.scratch, link, address, gateway, 64, &echo);
                out(&self.scratch);
            }
        }
    }

    /// Takes a frame that arrived at `now` and sends what answers it. Test traffic need not come by here.
    pub fn receive(&mut self, now: Instant, frame: &[u8], out: Out<'_>) {
        self.tally.count(frame);
        if self.take(now, frame, out).is_err() {
            self.oddities.malformed += 1;
        }
    }

    fn take(&mut self, now: Instant, frame: &[u8], out: Out<'_>) -> Result<(), Malformed> {
        let (header, payload) = ethernet::Repr::parse(frame)?;
        if header.destination != self.mac && !header.destination.is_group() {
            return Ok(());
        }
        match header.ethertype {
            ethertype::ARP => self.take_arp(now, payload, out),
            ethertype::IPV4 => self.take_ipv4(now, header.source, payload, out),
            ethertype::IPV6 => self.take_ipv6(now, header.source, payload, out),
            _ => Ok(()),
        }
    }

    fn take_arp(&mut self, now: Instant, payload: &[u8], out: Out<'_>) -> Result<(), Malformed> {
        let Some(side) = &mut self.v4 else { return Ok(()) };
        let packet = arp::Repr::parse(payload)?;
        let HostAddress { address: own, gateway, .. } = side.address;
        let owns = |address| address == own || address != gateway && self.also.has_v4(address);
        let (from_own, for_own) = (owns(packet.sender_ip), owns(packet.target_ip));
        if from_own && packet.sender_mac != self.mac {
            self.oddities.conflicts += 1;
            return Ok(());
        }
        // A reply, a request or an announcement: each tells where the sender is (RFC 826, "packet reception").
        if packet.sender_ip == side.address.gateway {
            side.gateway.confirm(now, packet.sender_mac);
        }
        if packet.operation == arp::Operation::Request && for_own {
            let link = Link { source: self.mac, destination: packet.sender_mac };
            compose::arp(&mut self.scratch, link, &arp::Repr::reply_to(&packet, self.mac));
            out(&self.scratch);
        }
        self.send_pings(now, out);
        Ok(())
    }

    fn take_ipv4(&mut self, now: Instant, from: MacAddr, payload: &[u8], out: Out<'_>) -> Result<(), Malformed> {
        let Some(side) = &mut self.v4 else { return Ok(()) };
        // Fragments (which `parse` refuses) are legitimate and of no use here, and so is what is meant for others.
        if payload.len() >= ipv4::LEN {
            let destination = Ipv4Addr::new(payload[16], payload[17], payload[18], payload[19]);
            let mine = destination == side.address.address || self.also.has_v4(destination);
            if !mine || u16::from_be_bytes([payload[6], payload[7]]) & 0x3fff != 0 {
                return Ok(());
            }
        }
        let (ip, message) = ipv4::Repr::parse(payload)?;
        if ip.protocol != protocol::ICMP {
            return Ok(());
        }
        match icmpv4::Repr::parse(message)? {
            icmpv4::Repr::EchoRequest { identifier, sequence, data } => {
                let reply = icmpv4::Repr::EchoReply { identifier, sequence, data };
                let link = Link { source: self.mac, destination: from };
                compose::icmpv4(&mut self.scratch, link, ip.destination, ip.source, ip.identification, &reply);
                out(&self.scratch);
            }
            icmpv4::Repr::EchoReply { identifier, sequence, .. } if ip.source == side.address.gateway => {
                side.pinger.arrive(now, identifier, sequence);
            }
            _ => {}
        }
        Ok(())
    }

    fn take_ipv6(&mut self, now: Instant, from: MacAddr, payload: &[u8], out: Out<'_>) -> Result<(), Malformed> {
        let Some(side) = &mut self.v6 else { return Ok(()) };
        let (ip, message) = ipv6::Repr::parse(payload)?;
        let own = side.address.address;
        if ip.next_header != protocol::ICMPV6 || !(ip.destination.is_multicast() || self.owns(ip.destination)) {
            return Ok(());
        }
        match icmpv6::Repr::parse(message, ip.pseudo_header_sum())? {
            icmpv6::Repr::EchoRequest { identifier, sequence, data } => {
                // A ping to a group is answered by the address of its own.
                let source = if self.owns(ip.destination) { ip.destination } else { own };
                let reply = icmpv6::Repr::EchoReply { identifier, sequence, data };
                let link = Link { source: self.mac, destination: from };
                compose::icmpv6(&mut self.scratch, link, source, ip.source, 64, &reply);
                out(&self.scratch);
            }
            icmpv6::Repr::EchoReply { identifier, sequence, .. } => {
                if let Some(side) = self.v6.as_mut().filter(|s| s.address.gateway == ip.source) {
                    side.pinger.arrive(now, identifier, sequence);
                }
            }
            icmpv6::Repr::Ndp(_) if ip.hop_limit != 255 => {
                return Err(Malformed::new("ndp", "hop limit is not 255"));
            }
            icmpv6::Repr::Ndp(message) => self.take_ndp(now, ip.source, from, message, out),
            _ => {}
        }
        Ok(())
    }

    fn owns(&self, address: Ipv6Addr) -> bool {
        address == self.link_local
            || self.v6.as_ref().is_some_and(|s| s.address.address == address)
            || self.also.has_v6(address) && self.v6.as_ref().is_none_or(|s| s.address.gateway != address)
    }

    fn take_ndp(&mut self, now: Instant, source: Ipv6Addr, from: MacAddr, message: ndp::Repr, out: Out<'_>) {
        let mine = match message {
            ndp::Repr::NeighborSolicitation { target, .. } | ndp::Repr::NeighborAdvertisement { target, .. } => {
                self.owns(target)
            }
            _ => false,
        };
        let Some(side) = &mut self.v6 else { return };
        match message {
            ndp::Repr::NeighborSolicitation { target, source_mac } => {
                if let Some(mac) = source_mac.filter(|_| source == side.address.gateway) {
                    side.gateway.confirm(now, mac);
                }
                if mine {
                    // Duplicate address detection asks from the unspecified address; all nodes get the answer
                    // (RFC 4861 section 7.2.4).
                    let solicited = !source.is_unspecified();
                    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
                    let (to, mac) = if solicited {
                        (source, source_mac.unwrap_or(from))
                    } else {
                        (all_nodes, ndp::multicast_mac(all_nodes))
                    };
                    let (router, over_ride, target_mac) = (false, true, Some(self.mac));
                    let reply = ndp::Repr::NeighborAdvertisement { router, solicited, over_ride, target, target_mac };
                    let link = Link { source: self.mac, destination: mac };
                    compose::icmpv6(&mut self.scratch, link, target, to, 255, &icmpv6::Repr::Ndp(reply));
                    out(&self.scratch);
                }
            }
            ndp::Repr::NeighborAdvertisement { over_ride, target, target_mac, .. } => {
                if mine {
                    self.oddities.conflicts += u64::from(from != self.mac);
                } else if target == side.address.gateway {
                    // A unicast solicitation may be answered without the option: the address is the one asked at. A
                    // different address counts only with the override flag (RFC 4861 section 7.2.5).
                    let known = side.gateway.mac();
                    let told = target_mac.or(known);
                    if let Some(mac) = told.filter(|m| over_ride || known.is_none_or(|k| k == *m)) {
                        side.gateway.confirm(now, mac);
                    }
                }
            }
            ndp::Repr::RouterSolicitation { .. } | ndp::Repr::RouterAdvertisement(_) => {}
        }
        self.send_pings(now, out);
    }
}

impl<A> Side<A> {
    fn new(address: HostAddress<A>, identifier: u16) -> Side<A> {
        Side { address, gateway: Gateway::default(), pinger: Pinger::new(identifier) }
    }

    fn ping_can_go(&self) -> bool {
        self.pinger.is_due() && self.gateway.mac().is_some()
    }
}
