//! LDP as a protocol of a device: hellos, connections, commands.

use super::config::LsrConfig;
use super::counters::Counters;
use super::peer::{Action, Peer, Shared, Work};
use crate::device::DeviceConfig;
use crate::expectation::Bitmap;
use crate::protocol::{Command, Input, Match, Output, Packet, Protocol, Refused, State};
use crate::tcp::{ConnState, ConnectionId, ListenerId, TcpStack};
use drophammer_model::Instant;
use drophammer_model::routes::Prefix;
use drophammer_wire::ldp::pdu::DEFAULT_MAX;
use drophammer_wire::ldp::status::{Status, code};
use drophammer_wire::ldp::{self, Hello, Label, LdpId, Message, PduWriter, frame, parse_hello};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

/// Its name.
pub const NAME: &str = "ldp";
/// Maximum number of peers; hellos of further peers are ignored.
pub const MOST_PEERS: usize = 16;
/// Limits for connections whose peer is not known yet: their number, and how long they may last.
const MOST_STRANGERS: usize = 16;
const STRANGER: Duration = Duration::from_secs(15);
/// TTL of link hellos.
const HELLO_TTL: u8 = 1;

/// Commands of LDP. Ranges are numbered from 0, in the order of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LdpCommand {
    /// Advertises FECs of a range to all peers, now and in later sessions.
    Advertise {
        /// Number of the advertised range.
        range: usize,
        /// Numbers of the FECs.
        part: Range<u32>,
    },
    /// Withdraws the labels of FECs.
    Withdraw {
        /// Number of the advertised range.
        range: usize,
        /// Numbers of the FECs.
        part: Range<u32>,
    },
    /// Releases labels that peers have advertised; the LSR no longer holds them.
    Release {
        /// Number of the expected range.
        range: usize,
        /// Numbers of the FECs.
        part: Range<u32>,
    },
}

/// An LSR.
pub struct Lsr {
    shared: Shared,
    running: bool,
    hello_due: Option<Instant>,
    hello_id: u32,
    /// Configuration sequence number. Each start changes it, so that peers retry immediately (RFC 5036 section 2.5.3).
    sequence: u32,
    listener: Option<ListenerId>,
    peers: Vec<Peer>,
    /// Connections that have sent no PDU yet, and when they are given up.
    strangers: Vec<(ConnectionId, Instant)>,
}

impl Lsr {
    /// A silent LSR on `device`.
    ///
    /// # Errors
    /// The device has no IPv4 address, or the configuration is impossible.
    pub fn new(device: &DeviceConfig, config: LsrConfig) -> Result<Lsr, Refused> {
        config.check().map_err(|reason| Refused::new(NAME, reason))?;
        let Some(own) = device.ipv4 else {
            return Err(Refused::new(NAME, "the device has no IPv4 address: give it one and a gateway"));
        };
        let advertised = config.advertised.iter().map(|range| Bitmap::new(range.fecs.count)).collect();
        Ok(Lsr {
            shared: Shared { config, address: own.address, advertised, counters: Counters::default() },
            running: false,
            hello_due: None,
            hello_id: 0,
            sequence: 0,
            listener: None,
            peers: Vec::new(),
            strangers: Vec::new(),
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &LsrConfig {
        &self.shared.config
    }

    /// Peers whose hellos have arrived, at most [`MOST_PEERS`]. They stay after their adjacency is gone.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// The label for a FEC from the first peer that has advertised one.
    pub fn label_for(&self, prefix: Prefix) -> Option<Label> {
        self.peers.iter().find_map(|peer| peer.bindings().label_for(&prefix))
    }

    /// A FEC for which a peer has advertised this label. Searches all labels.
    pub fn fec_of_label(&self, label: Label) -> Option<Prefix> {
        self.peers.iter().find_map(|peer| peer.bindings().fec_of_label(label))
    }

    /// Number of advertised FECs of a range; 0 if there is no such range.
    pub fn advertised(&self, range: usize) -> u32 {
        self.shared.advertised.get(range).map_or(0, Bitmap::ones)
    }

    /// Sends these messages unchanged to all peers with an Operational session: label requests, or messages that test how a peer
    /// handles errors.
    pub fn say(&mut self, messages: &[Message<'_>]) {
        for peer in self.peers.iter_mut().filter(|peer| peer.is_up()) {
            peer.say(messages);
        }
    }

    fn own(&self) -> LdpId {
        LdpId::platform(self.shared.config.lsr_id)
    }

    /// Handles a datagram to the port of hellos (RFC 5036 section 2.5.5).
    fn hello(&mut self, now: Instant, packet: &Packet<'_>, out: &mut Output<'_>) {
        let IpAddr::V4(source) = packet.source else { return };
        if !self.running || packet.destination != IpAddr::V4(ldp::GROUP) {
            return;
        }
        let (id, hello) = match parse_hello(packet.payload) {
            Ok(said) => said,
            Err(_) => {
                self.shared.counters.malformed += 1;
                self.shared.counters.hellos_ignored += 1;
                out.malformed();
                return;
            }
        };
        if id == self.own() {
            return;
        }
        let known = if hello.targeted { None } else { self.peer_of(now, id) };
        let Some(peer) = known else {
            self.shared.counters.hellos_ignored += 1;
            return;
        };
        self.shared.counters.hellos_received += 1;
        if self.peers[peer].greeted(now, &hello, source, self.shared.config.hello_hold) {
            // The peer must know this LSR before it accepts a connection. From now on, the interval of hellos follows
            // the peer's hold time.
            self.hello_due = Some(now);
        }
    }

    /// Number of the peer with this identifier, which may be new; `None` if there are too many.
    fn peer_of(&mut self, now: Instant, id: LdpId) -> Option<usize> {
        if let Some(known) = self.peers.iter().position(|peer| peer.id() == id) {
            return Some(known);
        }
        let new = || Peer::new(now, id, &self.shared.config);
        if self.peers.len() < MOST_PEERS {
            self.peers.push(new());
            return Some(self.peers.len() - 1);
        }
        let gone = self.peers.iter().position(|peer| !peer.is_adjacent() && peer.connection.is_none())?;
        self.peers[gone] = new();
        Some(gone)
    }

    fn send_hello(&mut self, now: Instant, out: &mut Output<'_>) {
        if self.hello_due.is_none_or(|due| due > now) {
            return;
        }
        let config = &self.shared.config;
        let own = Duration::from_secs(config.hello_interval.into());
        let interval = self.peers.iter().filter_map(Peer::longest_hello_interval).fold(own, Duration::min);
        self.hello_due = Some(now + interval);
        self.hello_id = self.hello_id.wrapping_add(1);
        let hello = Hello::link(config.hello_hold, config.transport_address);
        let hello = Message::Hello(Hello { sequence: Some(self.sequence), ..hello });
        let mut datagram = [0; 64];
        let mut pdus = PduWriter::new(&mut datagram, self.own(), DEFAULT_MAX);
        pdus.push(self.hello_id, &hello);
        let length = pdus.written();
        let ends = [(self.shared.address.into(), ldp::PORT), (ldp::GROUP.into(), ldp::PORT)];
        if out.udp(ends, HELLO_TTL, &datagram[..length]) {
            self.shared.counters.hellos_sent += 1;
        }
    }

    /// Finds the peer of each new connection by the first PDU (RFC 5036 section 2.5.3).
    fn meet_strangers(&mut self, now: Instant, tcp: &mut TcpStack) {
        let own = self.own();
        let Lsr { strangers, peers, shared, running, .. } = self;
        strangers.retain(|(connection, until)| {
            let connection = *connection;
            if !*running {
                tcp.close(connection);
                tcp.remove(connection);
                return false;
            }
            let mut first = Ok(None);
            tcp.receive_with(connection, &mut |bytes| {
                first = frame(bytes, DEFAULT_MAX).map(|pdu| pdu.map(|pdu| pdu.id));
                0
            });
            let refusal = match first {
                Ok(None) if tcp.state(connection) == ConnState::Established && *until > now => return true,
                Ok(None) => None,
                Ok(Some(id)) => {
                    let from = tcp.ends(connection).map(|(_, remote)| remote.ip());
                    let known = peers.iter_mut().find(|peer| from.is_some_and(|from| peer.awaits(shared, id, from)));
                    match known {
                        Some(peer) if peer.connection.is_none() => {
                            peer.accept(now, shared, connection);
                            return false;
                        }
                        Some(_) => Some(Status::new(code::SHUTDOWN)),
                        None => Some(Status::new(code::NO_HELLO)),
                    }
                }
                Err(status) => Some(status),
            };
            if let Some(status) = refusal {
                tcp.send_with(connection, &mut |room| {
                    let mut pdus = PduWriter::new(room, own, DEFAULT_MAX);
                    pdus.push(1, &Message::Notification(status));
                    pdus.written()
                });
                shared.counters.notified(&status);
                shared.counters.sessions_rejected += 1;
            }
            tcp.close(connection);
            tcp.remove(connection);
            false
        });
    }

    fn push_work(&mut self, what: Action, range: usize, part: &Range<u32>) {
        let work = Work { what, range, next: part.start, end: part.end };
        for peer in self.peers.iter_mut().filter(|peer| peer.is_up()) {
            peer.work.push_back(work);
            peer.busy = true;
        }
    }

    fn stop(&mut self) {
        (self.running, self.hello_due) = (false, None);
        self.peers.iter_mut().for_each(Peer::stop);
    }
}

impl Protocol for Lsr {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self) -> &[Match] {
        const MATCHES: [Match; 3] =
            [Match::TcpPort(ldp::PORT), Match::UdpPort(ldp::PORT), Match::Group(IpAddr::V4(ldp::GROUP))];
        &MATCHES
    }

    fn attach(&mut self, tcp: &mut TcpStack) {
        let address: IpAddr = self.shared.config.transport_address.into();
        tcp.add_host(address);
        self.listener = Some(tcp.listen(address, ldp::PORT));
        self.strangers.clear();
        self.peers.iter_mut().for_each(|peer| peer.forget_connection(Instant(0), &mut self.shared));
    }

    fn receive(&mut self, now: Instant, input: Input<'_>, out: &mut Output<'_>) {
        match input {
            Input::Datagram { packet, .. } => self.hello(now, &packet, out),
            Input::Accepted { listener, connection } if self.listener == Some(listener) => {
                if self.running && self.strangers.len() < MOST_STRANGERS {
                    self.strangers.push((connection, now + STRANGER));
                } else {
                    out.tcp.abort(connection);
                    out.tcp.remove(connection);
                }
            }
            Input::Connections(ready) => {
                for peer in &mut self.peers {
                    if peer.connection.is_some_and(|own| ready.contains(&own)) {
                        peer.read(now, &mut self.shared, out.tcp);
                        peer.busy = true;
                    }
                }
                if self.strangers.iter().any(|(own, _)| ready.contains(own)) {
                    self.meet_strangers(now, out.tcp);
                }
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant, budget: usize, out: &mut Output<'_>) {
        self.send_hello(now, out);
        self.meet_strangers(now, out.tcp);
        for peer in &mut self.peers {
            peer.serve(now, &mut self.shared, out.tcp, budget);
        }
        out.send_tcp(now);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let peers = self.peers.iter().filter_map(|peer| peer.next_deadline(&self.shared));
        let strangers = self.strangers.iter().map(|(_, until)| if self.running { *until } else { Instant(0) });
        peers.chain(strangers).chain(self.hello_due).min()
    }

    fn command(&mut self, now: Instant, command: &Command) -> Result<(), Refused> {
        let own = match command {
            Command::Start => {
                if !self.running {
                    (self.running, self.hello_due) = (true, Some(now));
                    self.sequence = self.sequence.wrapping_add(1);
                }
                return Ok(());
            }
            Command::Stop => {
                self.stop();
                return Ok(());
            }
            Command::Ldp(own) => own,
            _ => return Err(Refused::unknown(NAME)),
        };
        let Shared { config, advertised, .. } = &mut self.shared;
        let (LdpCommand::Advertise { range, part }
        | LdpCommand::Withdraw { range, part }
        | LdpCommand::Release { range, part }) = own;
        let count = match own {
            LdpCommand::Release { .. } => config.expected.get(*range).map(|fecs| fecs.count),
            _ => config.advertised.get(*range).map(|range| range.fecs.count),
        };
        if part.is_empty() || count.is_none_or(|count| part.end > count) {
            let reason = match count {
                Some(count) => format!("range {range} has {count} FECs, numbered from 0: it has no part {part:?}"),
                None => format!("there is no range {range} in the configuration"),
            };
            return Err(Refused::new(NAME, reason));
        }
        let what = match own {
            LdpCommand::Advertise { .. } => {
                advertised[*range].set_all(part.clone(), true);
                Action::Map
            }
            LdpCommand::Withdraw { .. } => {
                advertised[*range].set_all(part.clone(), false);
                Action::Withdraw
            }
            LdpCommand::Release { .. } => Action::Release,
        };
        self.push_work(what, *range, part);
        Ok(())
    }

    fn state(&self) -> State {
        State {
            sessions: self.peers.iter().filter(|peer| peer.is_adjacent()).count() as u32,
            up: self.peers.iter().filter(|peer| peer.is_up()).count() as u32,
            counters: self.shared.counters.all(),
        }
    }
}
