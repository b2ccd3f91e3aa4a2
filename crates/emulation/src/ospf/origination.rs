//! Origination of LSAs (RFC 2328 section 12.4): the device's own, from its interface and neighbours, and the emulated ones, from the
//! configuration and commands.

use super::config::Part;
use super::neighbour::NeighbourState;
use super::originals::{DEVICE_NETWORK, DEVICE_ROUTER, EMULATED, Originated};
use super::{InterfaceState, LS_REFRESH_TIME, MIN_LS_INTERVAL, MOST_ORIGINATIONS, NAME, Ospf};
use crate::protocol::Refused;
use drophammer_model::Instant;
use drophammer_wire::ospf::body::link;
use drophammer_wire::ospf::lsa::{MAX_AGE, MAX_SEQUENCE};
use drophammer_wire::ospf::{Lsa, LsaHeader, Network, Router, RouterLink};
use std::net::Ipv4Addr;

/// A command of OSPF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OspfCommand {
    /// Advertises a part of the topology or the routes.
    Advertise(Part),
    /// Flushes a part.
    Withdraw(Part),
    /// Changes the metric of a part; for routers, the metric of their stub networks.
    Metric(Part, u32),
}

impl Ospf {
    /// Carries out a command.
    pub(super) fn carry_out(&mut self, now: Instant, command: &OspfCommand) -> Result<(), Refused> {
        let (OspfCommand::Advertise(part) | OspfCommand::Withdraw(part) | OspfCommand::Metric(part, _)) = command;
        let numbers = self.originals.emulated.numbers(part)?;
        if let OspfCommand::Metric(_, metric) = command {
            let most = self.originals.emulated.most_metric(numbers.start);
            if *metric > most {
                return Err(Refused::new(NAME, format!("metric {metric}: the largest one of this part is {most}")));
            }
        }
        for number in numbers.start + EMULATED..numbers.end + EMULATED {
            match command {
                OspfCommand::Advertise(_) => self.advertise(now, number),
                OspfCommand::Withdraw(_) => self.withdraw(now, number),
                OspfCommand::Metric(_, metric) => {
                    if self.originals.set_metric(number, *metric) && self.originals.is_wanted(number) {
                        self.plan(now, number);
                    }
                }
            }
        }
        self.changed = true;
        self.describe(now);
        Ok(())
    }

    fn advertise(&mut self, now: Instant, number: u32) {
        if !self.originals.want(number, true) {
            self.plan(now, number);
        }
    }

    fn withdraw(&mut self, now: Instant, number: u32) {
        self.originals.want(number, false);
        self.originations.cancel(&number);
        self.flush(now, number);
    }

    /// Flushes an LSA that is in the database (section 14.1).
    fn flush(&mut self, now: Instant, number: u32) {
        if !self.originals.flush(number) {
            return;
        }
        self.counters.flushed += 1;
        self.refreshes.cancel(&number);
        self.flood_end(now, number);
    }

    /// Floods an LSA that is being flushed.
    fn flood_end(&mut self, now: Instant, number: u32) {
        if let Some(header) = self.originals.header(now, number) {
            self.dying.insert(header.key);
            self.flood_lsa(now, &header, None);
            self.bury(now, header.key);
        }
    }

    /// Originates an LSA now, or when MinLSInterval has passed since the last time.
    pub(super) fn plan(&mut self, now: Instant, number: u32) {
        if self.state != InterfaceState::Down {
            let earliest = self.originals.originated_at(number).map_or(now, |at| at + MIN_LS_INTERVAL);
            self.originations.set(number, earliest.max(now));
        }
    }

    /// Plans new instances of all LSAs that are wanted.
    pub(super) fn originate_all(&mut self, now: Instant) {
        for number in 0..self.originals.len() {
            if self.originals.is_wanted(number) {
                self.plan(now, number);
            }
        }
    }

    /// Originates the LSAs that are due, up to a limit.
    pub(super) fn originate_due(&mut self, now: Instant) {
        for _ in 0..MOST_ORIGINATIONS {
            let next = self.originations.take_due(now).or_else(|| self.refreshes.take_due(now));
            let Some(number) = next else { break };
            match self.originals.originate(now, number) {
                Originated::New => {
                    self.counters.originated += 1;
                    self.refreshes.set(number, now + LS_REFRESH_TIME);
                    if let Some(header) = self.originals.header(now, number) {
                        self.flood_lsa(now, &header, None);
                    }
                }
                Originated::Wrapped => {
                    self.refreshes.cancel(&number);
                    self.flood_end(now, number);
                }
                Originated::Nothing => {}
            }
        }
    }

    /// Handles a newer instance that a neighbour has of an LSA of this router (section 13.4).
    pub(super) fn overtake(&mut self, now: Instant, lsa: &Lsa<'_>) {
        let header = lsa.header;
        for neighbour in self.neighbours.values_mut() {
            neighbour.unacknowledged.remove(&header.key);
            if neighbour.requests.get(&header.key).is_some_and(|requested| header.newness(requested).is_ge()) {
                neighbour.satisfied(&header.key);
            }
        }
        let number = self.originals.number_of(&header.key);
        if let Some(number) = number {
            self.originals.overtake(number, header.sequence);
        }
        match number {
            Some(number) if header.sequence < MAX_SEQUENCE => match self.originals.is_wanted(number) {
                true => {
                    // If it was being flushed, no neighbour is expected to acknowledge that any more.
                    self.bury(now, header.key);
                    self.plan(now, number);
                }
                false => self.flood_end(now, number),
            },
            None if !self.learned.has_room(&header.key) => self.counters.overflow += 1,
            // This router cannot send a newer instance, so it flushes this one.
            _ => {
                let end = LsaHeader { age: MAX_AGE, ..header };
                self.install(now, end, lsa.body);
                self.flood_lsa(now, &end, None);
                self.bury(now, header.key);
            }
        }
    }

    /// Forgets the LSAs that neighbours have sent. The original LSAs keep their sequence numbers.
    pub(super) fn forget_database(&mut self, now: Instant) {
        self.learned.clear(now);
        self.originations.clear();
        self.refreshes.clear();
        self.flood.clear();
        self.flood_waits = None;
        self.flooding.clear();
        self.acks.clear();
        for key in std::mem::take(&mut self.dying) {
            if let Some(number) = self.originals.number_of(&key) {
                self.originals.flushed(number);
            }
        }
    }

    /// Updates the device's own LSAs after a change of its interface or neighbours.
    pub(super) fn describe(&mut self, now: Instant) {
        if !std::mem::take(&mut self.changed) || self.state == InterfaceState::Down {
            return;
        }
        let router = self.router_body();
        if self.originals.set_body(DEVICE_ROUTER, router) {
            self.plan(now, DEVICE_ROUTER);
        }
        match self.network_body() {
            Some(body) => {
                if self.originals.set_body(DEVICE_NETWORK, body) | !self.originals.want(DEVICE_NETWORK, true) {
                    self.plan(now, DEVICE_NETWORK);
                }
            }
            None => self.withdraw(now, DEVICE_NETWORK),
        }
    }

    /// Section 12.4.1.
    fn router_body(&self) -> Vec<u8> {
        let (mask, metric) = (self.mask, self.config.cost);
        let network = Ipv4Addr::from_bits(self.address.to_bits() & mask.to_bits());
        let stub = RouterLink { id: network, data: mask, kind: link::STUB, metric };
        let full = || self.neighbours.values().filter(|n| n.state == NeighbourState::Full);
        let mut links = Vec::new();
        if self.is_broadcast() {
            let transit = match self.state {
                InterfaceState::Dr => full().next().is_some(),
                InterfaceState::Waiting => false,
                _ => full().any(|n| n.address == self.designated),
            };
            links.push(match transit {
                true => RouterLink { id: self.designated, data: self.address, kind: link::TRANSIT, metric },
                false => stub,
            });
        } else {
            links.extend(full().map(|n| RouterLink {
                id: n.router_id,
                data: self.address,
                kind: link::POINT_TO_POINT,
                metric,
            }));
            links.push(stub);
        }
        if self.originals.len() > EMULATED && self.originals.is_wanted(EMULATED) {
            links.extend(self.originals.emulated.device_link());
        }
        let mut body = Vec::new();
        Router::emit(self.originals.emulated.device_flags(), links.len() as u16, &mut body);
        links.iter().for_each(|link| link.emit(&mut body));
        body
    }

    /// Section 12.4.2: only the Designated Router with an adjacent neighbour originates a Network-LSA.
    fn network_body(&self) -> Option<Vec<u8>> {
        let full = self.neighbours.values().filter(|n| n.state == NeighbourState::Full).map(|n| n.router_id.octets());
        let routers: Vec<[u8; 4]> = [self.config.router_id.octets()].into_iter().chain(full).collect();
        let mut body = Vec::new();
        Network { mask: self.mask, routers: &routers }.emit(&mut body);
        (self.state == InterfaceState::Dr && routers.len() > 1).then_some(body)
    }
}
