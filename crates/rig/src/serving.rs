//! The loop that serves emulated hosts between trials. It receives and sends frames, and sleeps in between.

use crate::bell::Ear;
use crate::hosts::{FULL, Hosts};
use crate::ports::Ports;
use crate::until::Until;
use drophammer_model::Instant;
use drophammer_model::trial::PortIndex;
use drophammer_port::{BURST, Port, PortError, wait};
use std::os::fd::AsFd;
use std::time::Duration;

/// Does not sleep for shorter waits: such a sleep would end late by about its own length.
const SLEEP: Duration = Duration::from_micros(60);

/// Frames of one port that are sent with one call, because the call is most of the cost of a frame.
struct Burst<'a> {
    ports: &'a mut Ports,
    port: PortIndex,
    filled: usize,
    refused: &'a mut Refused,
}

/// Frames for which ports had no room, in sending order.
#[derive(Default)]
struct Refused {
    bytes: Vec<u8>,
    /// Port, and the end of the frame in `bytes`.
    ends: Vec<(PortIndex, usize)>,
}

impl Refused {
    fn push(&mut self, port: PortIndex, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push((port, self.bytes.len()));
    }

    fn give_back(&mut self, hosts: &mut Hosts) -> bool {
        let (mut start, any) = (0, !self.ends.is_empty());
        for (port, end) in self.ends.drain(..) {
            hosts.refused(port, &self.bytes[start..end]);
            start = end;
        }
        self.bytes.clear();
        any
    }
}

impl Burst<'_> {
    /// Always accepts the frame. Frames for which the port has no room end up in [`Refused`].
    fn send(&mut self, port: PortIndex, frame: &[u8]) -> Result<bool, PortError> {
        if port != self.port || self.filled == BURST {
            self.flush()?;
            self.port = port;
        }
        if self.refused.ends.iter().any(|(full, _)| *full == port) {
            self.refused.push(port, frame);
        } else {
            self.ports.get(port).slots().put(self.filled, frame);
            self.filled += 1;
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let filled = std::mem::take(&mut self.filled);
        if filled == 0 {
            return Ok(());
        }
        let port = self.ports.get(self.port);
        let sent = port.send_stream(filled)?;
        for at in (0..filled).filter(|at| sent.refused_mask >> at & 1 == 1) {
            self.refused.push(self.port, port.slots().frame(at));
        }
        Ok(())
    }
}

impl Ports {
    /// Serves `hosts` until `until` is true or `stopped` returns true, and returns the time of that check. Drops frames
    /// that are not for any host.
    pub(crate) fn serve(
        &mut self,
        hosts: &mut Hosts,
        until: &Until,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Instant, PortError> {
        let mut refused = Refused::default();
        loop {
            let now = self.clock().now();
            self.take(hosts)?;
            let mut burst = Burst { ports: self, port: 0, filled: 0, refused: &mut refused };
            let next = hosts.poll(now, &mut |port, frame| burst.send(port, frame))?;
            burst.flush()?;
            // These frames are not a measured load, so they wait for room, as in the interface queue of any router. A
            // lost frame would delay TCP by a second.
            let full = refused.give_back(hosts);
            if until.holds(now, hosts) || stopped() {
                return Ok(now);
            }
            self.rest(if full { now + FULL } else { next.min(until.next(now)) }, None);
        }
    }

    /// Passes received frames to the hosts.
    fn take(&mut self, hosts: &mut Hosts) -> Result<(), PortError> {
        let mut ports = 0;
        for queue in 0..self.queues() {
            ports += usize::from(self.queue(queue).info().queue.index == 0);
            let index = ports - 1;
            loop {
                let frames = self.queue(queue).receive()?;
                for arrival in frames.iter() {
                    hosts.receive(index, arrival);
                }
                if frames.len() < BURST {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits until `until`, or until `ear` is rung or a frame arrives, if the ports can signal that; otherwise for a
    /// moment. This leaves the processor to the DUT, but still reads its frames immediately.
    pub(crate) fn rest(&mut self, until: Instant, ear: Option<&Ear>) {
        if self.clock().is_virtual() {
            return self.clock_mut().wait(until);
        }
        let left = until.since(self.clock().now());
        if left < SLEEP {
            return;
        }
        let readable: Option<Vec<_>> = match self {
            Ports::One { ports, .. } => ports.iter().map(|port| port.readable()).collect(),
            Ports::Lanes { ports, .. } => ports.iter().map(|port| port.readable()).collect(),
            Ports::Far(far) => far.ports.iter().map(|port| port.readable()).collect(),
        };
        match readable {
            // The next receive reports the error.
            Some(mut readable) => {
                readable.extend(ear.map(AsFd::as_fd));
                let _ = wait::until_readable(&readable, left);
            }
            None => self.clock_mut().wait(until),
        }
    }
}
