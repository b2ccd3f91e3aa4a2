//! BFD for single hops (RFC 5880, RFC 5881): asynchronous mode, without demand mode, echo and authentication.
//!
//! A device has one session per configured peer. [`session`] is the state machine with its timers; this module finds the session of
//! each packet and sends the packets of all sessions. A stopped session sends AdminDown for one detection time, then nothing.
//!
//! A packet counts from its arrival, but what it causes is sent at the next poll: a packet may have waited until somebody read it, and the
//! intervals between sent packets must count from when they leave. So whoever drives a device reads all packets that have arrived before it
//! polls; then a late poll loses no session whose packets came in time. A poll may still be so late that the peer has missed packets of this
//! end. [`Report::own_fault`] counts the sessions that end after that, which says nothing about the peer. Packets of the peer that are missing
//! end no session if others come in time; [`Report::missing`] counts them.

pub mod session;
#[cfg(test)]
mod tests;

pub use session::{Report, SessionConfig};

use crate::agenda::Agenda;
use crate::device::DeviceConfig;
use crate::protocol::{Command, Input, Match, Output, Packet, Protocol, Refused, State as ProtocolState};
use crate::reasons::Reasons;
use drophammer_model::Instant;
use drophammer_wire::bfd::{self, Control, HOP_LIMIT, LEN, SOURCE_PORTS, State};
use session::Session;
use std::collections::HashMap;
use std::net::IpAddr;

/// Its name.
pub const NAME: &str = "bfd";
const MATCHES: [Match; 1] = [Match::UdpPort(bfd::PORT)];

/// BFD of one device.
pub struct Bfd {
    sessions: Vec<Session>,
    by_peer: HashMap<IpAddr, usize>,
    /// Discriminator of session 0. The others follow.
    first_discriminator: u32,
    timers: Agenda<usize>,
    received: u64,
    /// Received packets that were discarded, by reason.
    discarded: Reasons,
}

impl Bfd {
    /// Sessions with these peers, all of them AdminDown until [`Command::Start`].
    ///
    /// # Errors
    /// Two sessions have the same peer, the device has no address of a peer's family, or a multiplier or an interval is
    /// 0.
    pub fn configured(device: &DeviceConfig, sessions: &[SessionConfig]) -> Result<Bfd, Refused> {
        let mut by_peer = HashMap::new();
        for (index, config) in sessions.iter().enumerate() {
            let peer = config.peer;
            let used = if peer.is_ipv4() { device.ipv4.is_some() } else { device.ipv6.is_some() };
            let problem = if !used {
                "the device has no address of this family: give it one"
            } else if config.detect_mult == 0 || config.desired_min_tx == 0 || config.required_min_rx == 0 {
                "multiplier and intervals must be 1 or more"
            } else if by_peer.insert(peer, index).is_some() {
                "there are two sessions with this peer: remove one"
            } else {
                continue;
            };
            return Err(Refused::new(NAME, format!("session with {peer}: {problem}")));
        }
        // Discriminators of devices on one link should differ, and none may be 0.
        let first_discriminator = (device.seed as u32 & 0xfff) << 20 | 1;
        let each = (first_discriminator..).zip(sessions);
        Ok(Bfd {
            sessions: each.map(|(number, config)| Session::new(*config, number, device.seed)).collect(),
            by_peer,
            first_discriminator,
            timers: Agenda::default(),
            received: 0,
            discarded: Reasons::default(),
        })
    }

    /// The sessions, in the order of the configuration.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = Report> {
        self.sessions.iter().map(Session::report)
    }

    /// Received packets that were discarded, by reason.
    pub fn discarded(&self) -> &Reasons {
        &self.discarded
    }

    /// The session of a packet (RFC 5880 section 6.8.6).
    fn find(&self, packet: &Packet<'_>, control: &Control<'_>) -> Result<usize, &'static str> {
        if packet.hop_limit != HOP_LIMIT {
            return Err("TTL is not 255");
        }
        let index = match control.your_discriminator {
            0 => self.by_peer.get(&packet.source).copied().ok_or("unknown peer")?,
            number => number.wrapping_sub(self.first_discriminator) as usize,
        };
        // The discriminator alone selects the session; the source address may change (RFC 5880 section 6.3).
        if index >= self.sessions.len() {
            return Err("unknown discriminator");
        }
        match control.authentication {
            Some(_) => Err("authentication is not configured"),
            None => Ok(index),
        }
    }

    fn take(&mut self, now: Instant, packet: &Packet<'_>) -> Result<usize, &'static str> {
        let control = Control::parse(packet.payload).map_err(|e| e.reason)?;
        let index = self.find(packet, &control)?;
        self.sessions[index].receive(now, &control)?;
        Ok(index)
    }

    /// Sends the packets of a session that are due, and sets its deadline.
    fn serve(&mut self, now: Instant, index: usize, out: &mut Output<'_>) {
        let session = &mut self.sessions[index];
        session.expire(now);
        while let Some(control) = session.transmit(now) {
            let mut bytes = [0; LEN];
            control.emit(&mut bytes);
            let peer = session.config().peer;
            let own = match peer {
                IpAddr::V4(_) => out.addresses().ipv4.map(|a| a.address.into()),
                IpAddr::V6(peer) if peer.is_unicast_link_local() => Some(out.addresses().link_local().into()),
                IpAddr::V6(_) => out.addresses().ipv6.map(|a| a.address.into()),
            };
            // The source port is the same for all packets of a session (RFC 5881 section 4).
            let ports = usize::from(SOURCE_PORTS.end() - SOURCE_PORTS.start()) + 1;
            let port = SOURCE_PORTS.start() + (index % ports) as u16;
            if let Some(own) = own {
                session.sent(out.udp([(own, port), (peer, bfd::PORT)], HOP_LIMIT, &bytes));
            }
        }
        self.schedule(index);
    }

    fn schedule(&mut self, index: usize) {
        match self.sessions[index].next_deadline() {
            Some(at) => self.timers.set(index, at),
            None => drop(self.timers.cancel(&index)),
        }
    }
}

impl Protocol for Bfd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self) -> &[Match] {
        &MATCHES
    }

    fn receive(&mut self, now: Instant, input: Input<'_>, _: &mut Output<'_>) {
        let Input::Datagram { packet, .. } = input else { return };
        self.received += 1;
        match self.take(now, &packet) {
            Ok(index) => self.schedule(index),
            Err(reason) => self.discarded.count(reason),
        }
    }

    fn poll(&mut self, now: Instant, _: usize, out: &mut Output<'_>) {
        while let Some(index) = self.timers.take_due(now) {
            self.serve(now, index, out);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn command(&mut self, now: Instant, command: &Command) -> Result<(), Refused> {
        let change = match command {
            Command::Start => Session::start,
            Command::Stop => Session::stop,
            _ => return Err(Refused::unknown(NAME)),
        };
        for (index, session) in self.sessions.iter_mut().enumerate() {
            change(session, now);
            self.timers.set(index, now);
        }
        Ok(())
    }

    fn state(&self) -> ProtocolState {
        let sum = |of: fn(&Report) -> u64| self.sessions().map(|r| of(&r)).sum();
        let mut counters = vec![
            ("packets_sent", sum(|r| r.sent)),
            ("packets_received", self.received),
            ("packets_discarded", self.discarded.sum()),
            ("sessions_up", sum(|r| r.times_up)),
            ("sessions_down", sum(|r| r.times_down)),
            ("detection_time_expired", sum(|r| r.detections)),
            ("neighbor_signaled_down", sum(|r| r.signaled)),
            ("packets_missing", sum(|r| r.missing)),
            ("own_packets_late", sum(|r| r.own_fault)),
        ];
        counters.extend(self.discarded.iter());
        ProtocolState {
            sessions: self.sessions.len() as u32,
            up: self.sessions().filter(|r| r.state == State::Up).count() as u32,
            counters,
        }
    }
}
