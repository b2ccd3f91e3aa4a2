//! A session (RFC 5036 sections 2.5.3 to 2.5.6 and 3.5).

use super::labels::OwnLabels;
use crate::ospf::spf::Net4;
use drophammer_emulation::tcp::{ConnState, ConnectionId, TcpStack};
use drophammer_model::Instant;
use drophammer_model::routes::Prefix;
use drophammer_wire::ldp::pdu::DEFAULT_MAX;
use drophammer_wire::ldp::status::{Status, code};
use drophammer_wire::ldp::{
    Addresses, FecElement, Fecs, Initialization, Label, LdpId, Message, PduWriter, PrefixFec, frame, kind,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Proposed keepalive time, in seconds.
const KEEPALIVE: u16 = 180;
/// Maximum number of a peer's labels and addresses; more labels are released.
const MOST_LABELS: usize = 400_000;
const MOST_ADDRESSES: usize = 1024;
/// Maximum number of messages that wait for a peer that asks more than it reads.
const MOST_WORK: usize = 1_000_000;
/// Bytes of an Initialization with three capabilities and its header; longer messages do not occur before it.
const SHORTEST_ROOM: usize = 256;

/// A message to be sent.
#[derive(Clone, Debug)]
pub enum Work {
    Initialize,
    KeepAlive,
    Addresses(Vec<[u8; 4]>),
    /// The device's label for a prefix, if it still has one.
    Map(Net4),
    Withdraw(Net4, u32),
    Release(Net4, Label),
    Notify(Status),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for the connection or for the peer's Initialization.
    Initialized,
    /// Has sent its Initialization.
    OpenSent,
    /// Has accepted the peer's Initialization.
    OpenReceived,
    Operational,
}

/// A session over one connection.
pub struct Session {
    pub connection: ConnectionId,
    peer: LdpId,
    active: bool,
    state: State,
    notified: bool,
    keepalive: Duration,
    expires: Instant,
    alive_at: Instant,
    max_pdu: u16,
    message_id: u32,
    pub work: VecDeque<Work>,
    /// The peer's labels and addresses.
    pub remote: BTreeMap<Net4, u32>,
    pub addresses: BTreeSet<Ipv4Addr>,
}

impl Session {
    pub fn new(now: Instant, connection: ConnectionId, peer: LdpId, active: bool) -> Session {
        let keepalive = Duration::from_secs(KEEPALIVE.into());
        Session {
            connection,
            peer,
            active,
            state: State::Initialized,
            notified: false,
            keepalive,
            expires: now + keepalive,
            alive_at: now + keepalive,
            max_pdu: DEFAULT_MAX,
            message_id: 0,
            work: VecDeque::new(),
            remote: BTreeMap::new(),
            addresses: BTreeSet::new(),
        }
    }

    pub fn is_up(&self) -> bool {
        self.state == State::Operational
    }

    /// True if the peer has sent a notification that ended the session.
    pub fn was_notified(&self) -> bool {
        self.notified
    }

    pub fn next_deadline(&self) -> Instant {
        self.expires.min(self.alive_at)
    }

    /// Reads what has arrived. Appends the prefixes of changed labels to `changed`.
    ///
    /// # Errors
    /// The session must end, with this notification.
    pub fn read(
        &mut self,
        now: Instant,
        own: Ipv4Addr,
        stack: &mut TcpStack,
        changed: &mut Vec<Net4>,
        labels: &OwnLabels,
    ) -> Result<(), Option<Status>> {
        if self.active && self.state == State::Initialized && stack.state(self.connection) == ConnState::Established {
            self.work.push_back(Work::Initialize);
            self.state = State::OpenSent;
        }
        let mut outcome = Ok(());
        stack.receive_with(self.connection, &mut |bytes| {
            let mut used = 0;
            while outcome.is_ok() {
                let pdu = match frame(&bytes[used..], self.max_pdu) {
                    Ok(Some(pdu)) => pdu,
                    Ok(None) => break,
                    Err(status) => {
                        outcome = Err(Some(status));
                        break;
                    }
                };
                used += pdu.pdu_len();
                self.expires = now + self.keepalive;
                if pdu.id != self.peer {
                    outcome = Err(Some(Status::new(code::BAD_LDP_IDENTIFIER)));
                }
                for raw in pdu.messages() {
                    let said = raw.and_then(|raw| Ok(raw.parse()?.map(|message| (raw.id, message))));
                    let taken = match said {
                        Ok(Some((id, message))) => self.take(now, own, id, &message, changed, labels),
                        Ok(None) => Ok(()),
                        Err(status) if status.fatal => Err(Some(status)),
                        Err(status) => {
                            self.work.push_back(Work::Notify(status));
                            Ok(())
                        }
                    };
                    if outcome.is_ok() {
                        outcome = taken;
                    }
                    if self.work.len() > MOST_WORK {
                        outcome = Err(Some(Status::new(code::INTERNAL_ERROR)));
                    }
                    if outcome.is_err() {
                        break;
                    }
                }
            }
            used
        });
        outcome
    }

    fn take(
        &mut self,
        now: Instant,
        own: Ipv4Addr,
        id: u32,
        message: &Message<'_>,
        changed: &mut Vec<Net4>,
        labels: &OwnLabels,
    ) -> Result<(), Option<Status>> {
        match (self.state, message) {
            (_, Message::Notification(status)) => {
                self.notified |= status.fatal;
                return if status.fatal { Err(None) } else { Ok(()) };
            }
            (State::Initialized | State::OpenSent, Message::Initialization(theirs)) => {
                let refused = if theirs.receiver != LdpId::platform(own) {
                    code::NO_HELLO
                } else if theirs.keepalive == 0 {
                    code::BAD_KEEPALIVE_TIME
                } else {
                    return {
                        self.keepalive = Duration::from_secs(theirs.keepalive.min(KEEPALIVE).into());
                        self.max_pdu =
                            if theirs.max_pdu <= 255 { DEFAULT_MAX } else { theirs.max_pdu.min(DEFAULT_MAX) };
                        (self.expires, self.alive_at) = (now + self.keepalive, now + self.keepalive / 3);
                        if self.state == State::Initialized {
                            self.work.push_back(Work::Initialize);
                        }
                        self.work.push_back(Work::KeepAlive);
                        self.state = State::OpenReceived;
                        Ok(())
                    };
                };
                return Err(Some(Status::new(refused).about(id, kind::INITIALIZATION)));
            }
            (State::OpenReceived, Message::KeepAlive) => self.state = State::Operational,
            (State::Operational, message) => self.handle(id, message, changed, labels),
            _ => return Err(Some(Status::new(code::SHUTDOWN))),
        }
        Ok(())
    }

    /// Handles a message of an operational session.
    fn handle(&mut self, id: u32, message: &Message<'_>, changed: &mut Vec<Net4>, labels: &OwnLabels) {
        let v4 = |address: IpAddr| if let IpAddr::V4(address) = address { Some(address) } else { None };
        match message {
            Message::Address(list) => {
                let room = MOST_ADDRESSES.saturating_sub(self.addresses.len());
                self.addresses.extend(list.iter().filter_map(v4).take(room));
                changed.extend(self.remote.keys());
            }
            Message::AddressWithdraw(list) => {
                for address in list.iter().filter_map(v4) {
                    self.addresses.remove(&address);
                }
                changed.extend(self.remote.keys());
            }
            Message::LabelMapping { fecs, label, .. } => {
                for net in fecs.prefixes().filter_map(net4) {
                    if self.remote.len() >= MOST_LABELS && !self.remote.contains_key(&net) {
                        self.work.push_back(Work::Release(net, *label));
                        continue;
                    }
                    self.remote.insert(net, label.value());
                    changed.push(net);
                }
            }
            Message::LabelWithdraw { fecs, label } => {
                let same = |known: u32| label.is_none_or(|label| label.value() == known);
                let of_fecs: Vec<Net4> = match fecs.iter().next() {
                    Some(FecElement::Prefix(_)) | None => fecs.prefixes().filter_map(net4).collect(),
                    Some(FecElement::PrefixWildcard { ipv6: true }) => Vec::new(),
                    Some(_) => self.remote.keys().copied().collect(),
                };
                for net in of_fecs {
                    let Some(known) = self.remote.get(&net).copied().filter(|known| same(*known)) else { continue };
                    self.remote.remove(&net);
                    changed.push(net);
                    // A withdrawn label is released (section 3.5.10).
                    self.work.extend(Label::new(known).map(|label| Work::Release(net, label)));
                }
            }
            Message::LabelRequest { fecs } => {
                for net in fecs.prefixes().filter_map(net4) {
                    self.work.push_back(match labels.get(&net) {
                        Some(_) => Work::Map(net),
                        None => Work::Notify(Status::new(code::NO_ROUTE).about(id, kind::LABEL_REQUEST)),
                    });
                }
            }
            _ => {}
        }
    }

    /// Sends a KeepAlive when it is due.
    ///
    /// # Errors
    /// The peer was silent for too long.
    pub fn run_timers(&mut self, now: Instant) -> Result<(), Status> {
        if self.expires <= now {
            return Err(Status::new(code::KEEPALIVE_TIMER_EXPIRED));
        }
        if self.alive_at <= now {
            self.alive_at = now + self.keepalive / 3;
            if self.is_up() {
                self.work.push_back(Work::KeepAlive);
            }
        }
        Ok(())
    }

    /// Writes as many messages as TCP has room for.
    pub fn write(&mut self, now: Instant, own: Ipv4Addr, stack: &mut TcpStack, labels: &OwnLabels) {
        while !self.work.is_empty() && stack.can_send(self.connection) >= SHORTEST_ROOM {
            let sent = stack.send_with(self.connection, &mut |room| {
                let mut pdus = PduWriter::new(room, LdpId::platform(own), self.max_pdu);
                while let Some(work) = self.work.front() {
                    if !say(&mut pdus, self.message_id, work, self.peer, labels) {
                        break;
                    }
                    self.message_id = self.message_id.wrapping_add(1);
                    self.work.pop_front();
                }
                pdus.written()
            });
            if sent == 0 {
                return;
            }
            self.alive_at = now + self.keepalive / 3;
        }
    }
}

/// Writes a message; false if there is no room for it.
fn say(pdus: &mut PduWriter<'_>, last_id: u32, work: &Work, peer: LdpId, labels: &OwnLabels) -> bool {
    let id = last_id.wrapping_add(1);
    let fec = |(address, length): Net4| Prefix::masked(address.into(), length).map(PrefixFec::new);
    let mut about = |net: Net4, of: &dyn Fn(Fecs<'_>, &mut PduWriter<'_>) -> bool| match fec(net) {
        Some(fec) => of(fec.fecs(), pdus),
        None => true,
    };
    match work {
        Work::Initialize => pdus.push(id, &Message::Initialization(Initialization::new(KEEPALIVE, peer))),
        Work::KeepAlive => pdus.push(id, &Message::KeepAlive),
        Work::Addresses(all) => pdus.push(id, &Message::Address(Addresses::ipv4(all))),
        Work::Map(net) => match labels.get(net).and_then(Label::new) {
            Some(label) => {
                about(*net, &|fecs, pdus| pdus.push(id, &Message::LabelMapping { fecs, label, request: None }))
            }
            None => true,
        },
        Work::Withdraw(net, label) => {
            let label = Label::new(*label);
            about(*net, &|fecs, pdus| pdus.push(id, &Message::LabelWithdraw { fecs, label }))
        }
        Work::Release(net, label) => {
            about(*net, &|fecs, pdus| pdus.push(id, &Message::LabelRelease { fecs, label: Some(*label) }))
        }
        Work::Notify(status) => pdus.push(id, &Message::Notification(*status)),
    }
}

/// An IPv4 prefix.
fn net4(prefix: Prefix) -> Option<Net4> {
    match prefix.address() {
        IpAddr::V4(address) => Some((address, prefix.length())),
        IpAddr::V6(_) => None,
    }
}
