//! One peer: its connection, its session, and the messages to it.

use super::{Hops, Sender, Speaker, write};
use crate::config::{BgpConfig, BgpPeer};
use crate::rib::{self, PeerId, Scope};
use drophammer_emulation::bgp::session::{Session, State, TcpAction};
use drophammer_emulation::bgp::{Closed, SessionConfig};
use drophammer_emulation::tcp::{CloseReason, ConnState, ConnectionId};
use drophammer_model::Instant;
use drophammer_wire::bgp::message::{HEADER_LEN, MAX_LEN_EXTENDED, kind};
use drophammer_wire::bgp::notification::{Notification, cease, code};
use drophammer_wire::bgp::{self, AfiSafi};
use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Bytes of UPDATEs to prepare before TCP has room.
const AHEAD: usize = 32 << 10;

pub(super) struct Peer {
    /// Interface of the peer's link.
    pub port: usize,
    pub address: IpAddr,
    client: bool,
    place: Place,
    pub session: Session,
    pub connection: Option<ConnectionId>,
    /// True while the peer's routes are in the table.
    up: bool,
    /// True until the End-of-RIB for the peer has been sent, by family: IPv4, IPv6.
    end_of_rib: [bool; 2],
    /// UPDATEs waiting for room in TCP.
    staged: Vec<u8>,
    /// Number of bytes of `staged` that TCP has taken.
    sent: usize,
    /// Bytes that the device may read, if reading is limited.
    share: Share,
    /// NOTIFICATIONs received so far.
    notifications: u64,
    pub busy: bool,
    pub scheduled: Option<Instant>,
}

/// Where the device's end of a session is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The device's addresses, by family.
    pub own: [Option<IpAddr>; 2],
    /// The tables of the peer.
    pub scope: Scope,
}

/// Interval at which a slow reader reads, in nanoseconds.
const READ_EVERY: u64 = 10_000_000;

/// Limits the bytes that may be read at an instant.
#[derive(Default)]
struct Share {
    bytes: u64,
    /// The interval that `bytes` belongs to.
    interval: u64,
}

impl Share {
    /// The number of bytes that may be read at `now`.
    fn at(&mut self, now: Instant, per_second: u64) -> &mut u64 {
        let intervals = now.0 / READ_EVERY - self.interval;
        self.interval += intervals;
        let each = Share::of(per_second);
        match intervals {
            0 => {}
            1 => self.bytes = (self.bytes + each).min(each.max(MAX_LEN_EXTENDED as u64)),
            // Nothing waited in between, so nothing carries over.
            _ => self.bytes = each,
        }
        &mut self.bytes
    }

    /// The number of bytes in one interval.
    fn of(per_second: u64) -> u64 {
        (per_second / (1_000_000_000 / READ_EVERY)).max(1)
    }

    /// The time when the next share begins.
    fn next(&self) -> Instant {
        Instant((self.interval + 1) * READ_EVERY)
    }
}

impl Peer {
    /// Creates a peer.
    pub fn new(seed: u64, bgp: &BgpConfig, peer: &BgpPeer, place: Place, families: &[AfiSafi]) -> Peer {
        let mut session = SessionConfig::new(bgp.asn, peer.asn, bgp.router_id);
        session.hold_time = bgp.hold_time;
        session.families = families.to_vec();
        session.passive = !peer.connect;
        session.seed = seed;
        if !peer.connect {
            // A passive session may listen again immediately.
            session.idle_hold = Duration::ZERO;
        }
        Peer {
            port: peer.port,
            address: peer.address,
            client: peer.client,
            place,
            session: Session::new(session),
            connection: None,
            up: false,
            end_of_rib: [false; 2],
            staged: Vec::new(),
            sent: 0,
            share: Share::default(),
            notifications: 0,
            busy: false,
            scheduled: None,
        }
    }

    /// True for a PE router, which gets VPN routes.
    fn is_pe(&self) -> bool {
        self.place.scope == Scope::Vrfs
    }

    fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }
}

fn closed(reason: CloseReason) -> Closed {
    match reason {
        CloseReason::Refused => Closed::Refused,
        CloseReason::Reset => Closed::Reset,
        CloseReason::TimedOut => Closed::TimedOut,
        CloseReason::Unaddressable => Closed::Unreachable,
        CloseReason::Peer | CloseReason::Local => Closed::ByPeer,
    }
}

impl Speaker {
    /// Does everything possible for a peer now.
    pub(super) fn serve(&mut self, now: Instant, id: PeerId, hops: Hops<'_>) {
        // One round may make another necessary: an OPEN needs an answer, which may close the connection.
        for _ in 0..16 {
            let before = self.peers[usize::from(id)].session.state();
            self.read(now, id, hops);
            self.follow(now, id);
            self.write(now, id);
            self.carry_out(now, id);
            self.follow(now, id);
            if self.peers[usize::from(id)].session.state() == before {
                break;
            }
        }
        let waits = self.reads_later(id);
        let peer = &mut self.peers[usize::from(id)];
        let reading = waits.then(|| peer.share.next());
        if let Some(at) = peer.session.next_deadline().into_iter().chain(reading).min()
            && peer.scheduled.is_none_or(|before| at < before)
        {
            peer.scheduled = Some(at);
            self.timers.push(Reverse((at.max(now + Duration::from_nanos(1)), id)));
        }
    }

    /// True if there is more data than may be read now.
    fn reads_later(&self, id: PeerId) -> bool {
        let peer = &self.peers[usize::from(id)];
        let slow = self.faults.reads_per_second > 0 && !self.faults.never_reads;
        slow && peer.connection.is_some_and(|c| self.stacks.get(peer.port).can_receive(c) > 0)
    }

    /// Reads received data first, and then handles the end of the connection.
    fn read(&mut self, now: Instant, id: PeerId, hops: Hops<'_>) {
        let Speaker { peers, stacks, table, faults, by_connection, .. } = self;
        let peer = &mut peers[usize::from(id)];
        let Some(connection) = peer.connection else { return };
        let mut most = match faults.reads_per_second {
            0 => None,
            limit => Some(peer.share.at(now, limit)),
        };
        let (port, client, scope, ipv6) = (peer.port, peer.client, peer.place.scope, peer.address.is_ipv6());
        let (session, stack) = (&mut peer.session, stacks.get_mut(peer.port));
        if matches!(stack.state(connection), ConnState::Established) && session.state() == State::Connect {
            session.connected(now);
        }
        if !faults.never_reads {
            let mut hops = hops;
            stack.receive_with(connection, &mut |bytes| {
                let some = most.as_deref().map_or(bytes.len(), |most| bytes.len().min(*most as usize));
                let taken = session.receive(now, &bytes[..some], &mut |body, with| {
                    table.update(Sender { now, peer: id, port, scope, ipv6, client, hops: &mut hops }, body, with)
                });
                if let Some(most) = most.as_deref_mut() {
                    *most -= taken as u64;
                }
                taken
            });
        }
        if let Some(most) = most.as_deref_mut().filter(|_| stack.can_receive(connection) == 0) {
            // An unused share is not carried over.
            *most = (*most).min(Share::of(faults.reads_per_second));
        }
        let heard = session.received().notifications;
        table.truth.notifications_received += heard - peer.notifications;
        peer.notifications = heard;
        let how = match stack.state(connection) {
            ConnState::Connecting | ConnState::Established => return,
            ConnState::PeerClosed if faults.never_reads => return,
            // A slow reader has not reached the end yet.
            ConnState::PeerClosed if most.is_some() && stack.can_receive(connection) > 0 => return,
            ConnState::PeerClosed => Closed::ByPeer,
            ConnState::Closed(reason) => closed(reason),
        };
        session.closed(now, how);
        if stack.state(connection) == ConnState::PeerClosed {
            stack.close(connection);
        }
        stack.remove(connection);
        peer.connection = None;
        by_connection.remove(&(port, connection));
    }

    /// Updates the routing table when the session has come up or ended.
    fn follow(&mut self, now: Instant, id: PeerId) {
        let Speaker { peers, table, .. } = self;
        let peer = &mut peers[usize::from(id)];
        let negotiated = peer.session.negotiated().filter(|_| peer.session.state() == State::Established);
        match (negotiated, peer.up) {
            (Some(with), false) if with.four_octet_as => {
                let told = rib::Peer {
                    internal: with.ibgp,
                    client: peer.client,
                    router_id: with.peer_id.to_bits(),
                    address: peer.address,
                    scope: peer.place.scope,
                    ipv4: with.has(AfiSafi::IPV4_UNICAST) || with.has(AfiSafi::VPNV4),
                    ipv6: with.has(AfiSafi::IPV6_UNICAST) || with.has(AfiSafi::VPNV6),
                };
                table.rib.peer_up(now, id, told);
                table.truth.sessions += 1;
                table.truth.established += 1;
                (peer.up, peer.end_of_rib) = (true, [told.ipv4, told.ipv6]);
            }
            (Some(_), false) => {
                // The device does not support AS paths of 2 octets.
                peer.session.reset(now, Notification::bare(code::CEASE, cease::CONNECTION_REJECTED));
            }
            (None, true) => {
                table.rib.peer_down(now, id);
                table.truth.sessions -= 1;
                peer.up = false;
            }
            _ => {}
        }
        if !peer.up {
            peer.staged.clear();
            peer.sent = 0;
        }
    }

    /// Passes messages to TCP: first the rest of a message that was partly sent, then control messages, then UPDATEs.
    fn write(&mut self, now: Instant, id: PeerId) {
        let Speaker { peers, stacks, table, faults, .. } = self;
        let peer = &mut peers[usize::from(id)];
        let Some(connection) = peer.connection else { return };
        let stack = stacks.get_mut(peer.port);
        if stack.state(connection) == ConnState::Connecting {
            return;
        }
        for family in [AfiSafi::IPV4_UNICAST, AfiSafi::IPV6_UNICAST, AfiSafi::VPNV4, AfiSafi::VPNV6] {
            if peer.up && peer.session.refresh_requested(family) {
                let ipv6 = [AfiSafi::IPV6_UNICAST, AfiSafi::VPNV6].contains(&family);
                table.rib.refresh(id, ipv6);
                peer.end_of_rib[usize::from(ipv6)] = true;
            }
        }
        loop {
            while peer.sent < peer.staged.len() {
                let rest = &peer.staged[peer.sent..];
                let sent = stack.send_with(connection, &mut |room| {
                    let some = rest.len().min(room.len());
                    room[..some].copy_from_slice(&rest[..some]);
                    some
                });
                if sent == 0 {
                    return;
                }
                peer.sent += sent;
            }
            peer.staged.clear();
            peer.sent = 0;
            if peer.session.wants_write() {
                let session = &mut peer.session;
                let (silent, truth) = (faults.hold_silence, &mut table.truth);
                let established = session.established_at().is_some_and(|at| at < now);
                stack.send_with(connection, &mut |room| {
                    let notifications = session.sent().notifications;
                    let mut len = session.write(now, room);
                    truth.notifications_sent += session.sent().notifications - notifications;
                    if silent && established {
                        let whole = len;
                        len = without_keepalives(&mut room[..len]);
                        truth.silenced += ((whole - len) / HEADER_LEN) as u64;
                    }
                    len
                });
                if peer.session.wants_write() {
                    // TCP has no room; it reports when it has room again.
                    return;
                }
            }
            let Some(with) = peer.session.negotiated().filter(|_| peer.up) else { return };
            let way = write::Way {
                peer: id,
                asn: table.asn,
                router_id: table.router_id,
                own: peer.place.own,
                internal: with.ibgp,
                next_hop_self: table.next_hop_self || peer.is_pe(),
                vpn: peer.is_pe(),
                longest: with.max_send,
            };
            write::write(table, &way, faults, &mut peer.staged, AHEAD, now);
            if table.until_malformed == Some(0) {
                table.until_malformed = None;
                table.truth.malformed_sent += 1;
                write::malformed(&mut peer.staged);
            }
            if peer.end_of_rib != [false; 2] && !table.rib.has_news(id) {
                let due = std::mem::take(&mut peer.end_of_rib);
                let vpn = peer.is_pe();
                for ipv6 in [false, true].into_iter().filter(|ipv6| due[usize::from(*ipv6)]) {
                    write::end_of_rib(&mut peer.staged, vpn, ipv6);
                }
            }
            if peer.staged.is_empty() {
                return;
            }
            peer.session.wrote(now);
        }
    }

    /// Executes the session's requests to TCP.
    fn carry_out(&mut self, now: Instant, id: PeerId) {
        let Speaker { peers, stacks, by_connection, .. } = self;
        let peer = &mut peers[usize::from(id)];
        let (port, stack) = (peer.port, stacks.get_mut(peer.port));
        loop {
            match peer.session.poll(now) {
                TcpAction::None => return,
                TcpAction::Listen => {}
                TcpAction::Connect => {
                    if let Some(own) = peer.place.own[usize::from(peer.is_ipv6())] {
                        let connection = stack.connect(now, own, SocketAddr::new(peer.address, bgp::PORT));
                        peer.connection = Some(connection);
                        by_connection.insert((port, connection), id);
                    }
                }
                action @ (TcpAction::Close | TcpAction::Abort) => {
                    let Some(connection) = peer.connection.take() else { continue };
                    by_connection.remove(&(port, connection));
                    if action == TcpAction::Close {
                        stack.close(connection)
                    } else {
                        stack.abort(connection)
                    }
                    stack.remove(connection);
                }
            }
        }
    }
}

/// Removes the KEEPALIVEs from a sequence of whole messages, and returns the length of the rest.
fn without_keepalives(messages: &mut [u8]) -> usize {
    let (mut from, mut to) = (0, 0);
    while let Some(&[high, low, message]) = messages.get(from + HEADER_LEN - 3..).and_then(|m| m.first_chunk()) {
        let len = usize::from(u16::from_be_bytes([high, low]));
        if message != kind::KEEPALIVE {
            messages.copy_within(from..from + len, to);
            to += len;
        }
        from += len.max(HEADER_LEN);
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_wire::bgp::message::emit_header;

    #[test]
    fn keepalives_go_and_the_rest_moves_together() {
        let mut bytes = vec![9; 19 + 23 + 19 + 21];
        for (at, kind, len) in [(0, 4, 19), (19, 5, 23), (42, 4, 19), (61, 3, 21)] {
            emit_header(&mut bytes[at..], kind, len);
        }
        let expected = [&bytes[19..42], &bytes[61..]].concat();
        let len = without_keepalives(&mut bytes);
        assert_eq!(bytes[..len], expected);
        assert_eq!(without_keepalives(&mut []), 0);
    }
}
