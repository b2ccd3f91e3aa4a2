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

/// Maximum number of frames taken from one queue before the hosts are polled. A DUT may send forever.
const MOST_TAKEN: usize = 64 * BURST;

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
            // All frames that have arrived by now are read before the hosts find out which timers have expired by now. So no session ends
            // because its packets waited for this loop.
            let now = self.clock().now();
            let behind = self.take(hosts)?;
            let mut burst = Burst { ports: self, port: 0, filled: 0, refused: &mut refused };
            let next = hosts.poll(now, &mut |port, frame| burst.send(port, frame))?;
            burst.flush()?;
            // These frames are not a measured load, so they wait for room, as in the interface queue of any router. A
            // lost frame would delay TCP by a second.
            let full = refused.give_back(hosts);
            if until.holds(now, hosts) || stopped() {
                return Ok(now);
            }
            if !behind {
                self.rest(if full { now + FULL } else { next.min(until.next(now)) }, None);
            }
        }
    }

    /// Passes received frames to the hosts. Returns true if more may be waiting.
    fn take(&mut self, hosts: &mut Hosts) -> Result<bool, PortError> {
        let (mut ports, mut behind) = (0, false);
        for queue in 0..self.queues() {
            ports += usize::from(self.queue(queue).info().queue.index == 0);
            let index = ports - 1;
            let mut taken = 0;
            loop {
                let frames = self.queue(queue).receive()?;
                // A port may hand out what has arrived in several parts, so only an empty one is the last.
                if frames.is_empty() {
                    break;
                }
                for arrival in frames.iter() {
                    hosts.receive(index, arrival);
                }
                taken += frames.len();
                if taken >= MOST_TAKEN {
                    behind = true;
                    break;
                }
            }
        }
        Ok(behind)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, PortConfig, host_mac};
    use drophammer_port::memory::{self, RING_BURSTS};
    use drophammer_port::{Clock, SystemClock};
    use drophammer_wire::MacAddr;

    #[test]
    fn the_hosts_get_all_frames_that_have_arrived_before_they_are_polled() {
        let clock = SystemClock::start();
        let own = host_mac(1, 0);
        let [near, mut far] = memory::pair([own, MacAddr::local(9)], 1500, clock);
        let mut hosts = Hosts::new(&Config { seed: 1, ports: vec![PortConfig::new("port", own, 1500)] });
        let mut ports = Ports::One { ports: vec![Box::new(near)], clock: Box::new(clock) };
        // The ring hands out its end and its start in two parts.
        let room = RING_BURSTS * BURST;
        let mut sent = 0;
        for frames in [BURST - 1, BURST, BURST, BURST, BURST] {
            for _ in 0..frames {
                far.slots().put(0, &[0xff; 60]);
                sent += far.send(1).unwrap().accepted;
            }
            let once = Until::At(clock.now());
            ports.serve(&mut hosts, &once, &|| false).unwrap();
            assert_eq!(hosts.received(0).frames, u64::from(sent), "one turn of the loop");
        }
        assert!(sent as usize > room);
    }
}
