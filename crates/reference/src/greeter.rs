//! The SSH server of the device. It only accepts connections and sends its banner (RFC 4253 section 4.2). It receives
//! packets and instants, and returns packets and deadlines.

use crate::interfaces::Interface;
use drophammer_emulation::tcp::{ConnState, ConnectionId, TcpConfig, TcpStack};
use drophammer_model::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(crate) const PORT: u16 = 22;
const BANNER: &[u8] = b"SSH-2.0-drophammer_reference\r\n";
/// Buffer sizes of a connection, in bytes. Received data is never read.
const BUFFER: usize = 4096;

pub(crate) struct Greeter {
    /// One stack per interface.
    stacks: Vec<TcpStack>,
    /// Connections that are waiting for the banner, each with its interface.
    due: BinaryHeap<Reverse<(Instant, usize, ConnectionId)>>,
    ready: Vec<ConnectionId>,
    /// Next deadline of [`Greeter::poll`], cached because it is queried often.
    wake: Option<Instant>,
}

impl Greeter {
    /// A server that listens on all addresses of the device.
    pub fn new(seed: u64, interfaces: &[Interface]) -> Greeter {
        let stack = |interface: &Interface| {
            let mut tcp = TcpConfig::new(interface.mtu, !seed);
            (tcp.send_buffer, tcp.receive_buffer) = (BUFFER, BUFFER);
            let mut stack = TcpStack::new(tcp);
            for own in interface.addresses() {
                stack.add_host(own);
                stack.listen(own, PORT);
            }
            stack
        };
        Greeter {
            stacks: interfaces.iter().map(stack).collect(),
            due: BinaryHeap::new(),
            ready: Vec::new(),
            wake: None,
        }
    }

    /// Takes a packet to [`PORT`] of the device. `answers` returns the time when a new connection gets the banner,
    /// `None` for never.
    pub fn receive(
        &mut self,
        now: Instant,
        interface: usize,
        packet: &[u8],
        answers: &mut dyn FnMut(Instant) -> Option<Instant>,
    ) {
        let stack = &mut self.stacks[interface];
        if !stack.receive(now, packet) {
            return;
        }
        while let Some((_, connection)) = stack.accept_any() {
            if let Some(at) = answers(now) {
                self.due.push(Reverse((at, interface, connection)));
            }
        }
        let mut ready = std::mem::take(&mut self.ready);
        stack.take_ready(&mut ready);
        for connection in &ready {
            if matches!(stack.state(*connection), ConnState::Closed(_) | ConnState::PeerClosed) {
                stack.close(*connection);
                stack.remove(*connection);
            }
        }
        self.ready = ready;
        self.wake = Some(now);
    }

    /// Does everything that is due until `now`; passes each outgoing packet and its interface to `out`.
    pub fn poll(&mut self, now: Instant, out: &mut dyn FnMut(usize, &[u8])) {
        if self.wake.is_none_or(|wake| wake > now) {
            return;
        }
        while let Some(Reverse((_, interface, connection))) =
            self.due.peek().copied().filter(|Reverse((at, ..))| *at <= now)
        {
            self.due.pop();
            self.stacks[interface].send_with(connection, &mut |room| {
                let length = BANNER.len().min(room.len());
                room[..length].copy_from_slice(&BANNER[..length]);
                length
            });
        }
        for (interface, stack) in self.stacks.iter_mut().enumerate() {
            stack.poll(now, &mut |packet| out(interface, packet));
        }
        let tcp = self.stacks.iter().filter_map(TcpStack::next_deadline).min();
        self.wake = self.due.peek().map(|Reverse((at, ..))| *at).into_iter().chain(tcp).min();
    }

    /// The next time when [`Greeter::poll`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.wake
    }
}

/// True if this is a TCP packet for [`PORT`].
pub(crate) fn is_for(packet: &[u8]) -> bool {
    let header = match packet.first().map(|byte| byte >> 4) {
        Some(4) => usize::from(packet[0] & 15) * 4,
        _ => 40,
    };
    packet.get(header + 2..header + 4) == Some(&PORT.to_be_bytes()[..])
}
