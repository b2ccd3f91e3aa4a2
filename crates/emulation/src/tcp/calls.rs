//! User calls of the stack: connections, listeners, data.

use super::connection::{Connection, Holder};
use super::host::PORTS;
use super::segment::Tuple;
use super::stack::{Listener, slot_of};
use super::{CloseReason, ConnState, ConnectionId, ListenerId, TcpStack};
use drophammer_model::Instant;
use smoltcp::wire::IpAddress;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

impl TcpStack {
    /// Opens a connection from `local` to `remote`. If the connection is not possible, it ends with
    /// [`CloseReason::Unaddressable`].
    pub fn connect(&mut self, now: Instant, local: IpAddr, remote: SocketAddr) -> ConnectionId {
        self.now = self.now.max(now);
        let tuple = Tuple { local, local_port: 0, remote: remote.ip(), remote_port: remote.port() };
        let Some(tuple) = self.with_port(tuple) else {
            let id = self.insert(tuple, usize::MAX, Holder::User);
            let connection = self.get_mut(id).expect("just made");
            connection.abort(CloseReason::Unaddressable);
            return id;
        };
        let host = self.by_address[&local];
        let id = self.insert(tuple, host, Holder::User);
        self.by_tuple.insert(tuple, id.slot);
        let context = self.hosts[host].interface.context();
        let connection = self.slots[id.slot as usize].connection.as_mut().expect("just made");
        let remote = (IpAddress::from(tuple.remote), tuple.remote_port);
        let local = (IpAddress::from(tuple.local), tuple.local_port);
        if connection.socket_mut().connect(context, remote, local).is_err() {
            connection.abort(CloseReason::Unaddressable);
        }
        connection.observe(false);
        self.touch(id.slot);
        id
    }

    /// The tuple, completed with a free ephemeral port.
    fn with_port(&mut self, tuple: Tuple) -> Option<Tuple> {
        let same_family = tuple.local.is_ipv4() == tuple.remote.is_ipv4();
        let host = &mut self.hosts[*self.by_address.get(&tuple.local)?];
        if !same_family || tuple.remote_port == 0 || tuple.remote.is_unspecified() || tuple.remote.is_multicast() {
            return None;
        }
        (0..PORTS)
            .map(|_| Tuple { local_port: host.next_port(), ..tuple })
            .find(|t| !self.by_tuple.contains_key(t) && !self.by_port.contains_key(&(t.local, t.local_port)))
    }

    /// Accepts connections to `local`:`port`. No host needs to have the address `local` yet. A second call returns the same listener.
    pub fn listen(&mut self, local: IpAddr, port: u16) -> ListenerId {
        let next = ListenerId(self.listeners.len() as u32);
        let id = *self.by_port.entry((local, port)).or_insert(next);
        if id == next {
            self.listeners.push(Listener { local, port, pending: 0 });
        }
        id
    }

    /// The next connection of `listener`, in order of establishment.
    pub fn accept(&mut self, listener: ListenerId) -> Option<ConnectionId> {
        let at = self.accepted.iter().position(|(l, _)| *l == listener)?;
        self.take_accepted(at).map(|(_, id)| id)
    }

    /// The next connection of any listener.
    pub fn accept_any(&mut self) -> Option<(ListenerId, ConnectionId)> {
        self.take_accepted(0)
    }

    fn take_accepted(&mut self, at: usize) -> Option<(ListenerId, ConnectionId)> {
        let (listener, id) = self.accepted.remove(at)?;
        if let Some(listener) = self.listeners.get_mut(listener.0 as usize) {
            listener.pending -= 1;
        }
        self.get_mut(id)?.holder = Holder::User;
        self.mark_ready(id.slot);
        Some((listener, id))
    }

    /// State of the connection; a removed connection is closed.
    pub fn state(&self, id: ConnectionId) -> ConnState {
        self.get(id).map_or(ConnState::Closed(CloseReason::Local), Connection::state)
    }

    /// Local address and port, remote address and port.
    pub fn ends(&self, id: ConnectionId) -> Option<(SocketAddr, SocketAddr)> {
        let tuple = self.get(id)?.tuple;
        Some(((tuple.local, tuple.local_port).into(), (tuple.remote, tuple.remote_port).into()))
    }

    /// Free bytes in the send buffer; 0 if the connection may not send, or may no longer send.
    pub fn can_send(&self, id: ConnectionId) -> usize {
        self.get(id).map_or(0, Connection::can_send)
    }

    /// Bytes that the peer has not acknowledged yet, whether sent or not.
    pub fn unacknowledged(&self, id: ConnectionId) -> usize {
        self.get(id).map_or(0, |c| c.socket().send_queue())
    }

    /// Written bytes that have never been sent. After a [`TcpStack::poll`] they are waiting for the peer, because its
    /// window is closed or lost segments must be resent first.
    pub fn unsent(&self, id: ConnectionId) -> u64 {
        self.get(id).map_or(0, Connection::unsent)
    }

    /// Received bytes that have not been taken yet.
    pub fn can_receive(&self, id: ConnectionId) -> usize {
        self.get(id).map_or(0, |c| c.socket().recv_queue())
    }

    /// Calls `fill` once to write into the send buffer: it gets all free bytes, or at least 64 KiB of them, in one
    /// piece, and returns the number of bytes that it has written at the front. Returns the same number.
    pub fn send_with(&mut self, id: ConnectionId, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> usize {
        let Some(connection) = slot_of(&mut self.slots, id) else { return 0 };
        let sent = connection.send_with(&mut self.stage, fill);
        if sent > 0 {
            self.touch(id.slot);
        }
        sent
    }

    /// Passes received bytes to `take`, in order, until it consumes no more. `take` returns the number of bytes that it
    /// has consumed. It gets the rest again together with later bytes, even where the buffer wraps. Returns the number
    /// of consumed bytes.
    pub fn receive_with(&mut self, id: ConnectionId, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        let Some(connection) = slot_of(&mut self.slots, id) else { return 0 };
        let taken = connection.receive_with(&mut self.stage, take);
        if taken > 0 {
            self.touch(id.slot);
        }
        taken
    }

    /// Lets the peer be silent for `time` before the stack ends the connection, if that is longer than [`super::TcpConfig::timeout`]. For
    /// protocols with timers of their own.
    pub fn be_patient(&mut self, id: ConnectionId, time: Duration) {
        if let Some(connection) = slot_of(&mut self.slots, id) {
            connection.patience = time;
        }
    }

    /// Ends sending: the bytes in the send buffer are still sent, followed by FIN.
    pub fn close(&mut self, id: ConnectionId) {
        let Some(connection) = slot_of(&mut self.slots, id) else { return };
        if connection.state() == ConnState::Connecting {
            return self.abort(id);
        }
        connection.socket_mut().close();
        connection.observe(false);
        self.touch(id.slot);
    }

    /// Ends the connection immediately, with RST.
    pub fn abort(&mut self, id: ConnectionId) {
        if let Some(connection) = slot_of(&mut self.slots, id) {
            connection.abort(CloseReason::Local);
            self.touch(id.slot);
        }
    }

    /// Forgets the connection: `id` becomes invalid. A connection that is closing continues to close; any other
    /// connection is aborted.
    pub fn remove(&mut self, id: ConnectionId) {
        let Some(connection) = slot_of(&mut self.slots, id) else { return };
        if connection.socket().may_send() || connection.state() == ConnState::Connecting {
            connection.abort(CloseReason::Local);
        }
        connection.holder = Holder::Nobody;
        self.touch(id.slot);
        self.settle(id.slot);
    }

    /// Connections that changed, or have new data or room to send, since the last call. Each appears once.
    pub fn ready(&mut self) -> impl Iterator<Item = ConnectionId> + use<> {
        let mut ids = Vec::new();
        self.take_ready(&mut ids);
        ids.into_iter()
    }

    /// Like [`TcpStack::ready`], with reused memory: replaces the content of `ids`.
    pub fn take_ready(&mut self, ids: &mut Vec<ConnectionId>) {
        ids.clear();
        std::mem::swap(ids, &mut self.ready);
        ids.retain(|id| slot_of(&mut self.slots, *id).is_some_and(|c| std::mem::take(&mut c.ready)));
    }

    /// Number of connections, including those without a user.
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
