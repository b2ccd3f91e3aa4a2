//! The loop that serves emulated hosts between trials. It receives and sends frames, and sleeps in between.

use crate::bell::Ear;
use crate::hosts::{FULL, Hosts};
use crate::ports::Ports;
use crate::until::Until;
use drophammer_model::Instant;
use drophammer_model::trial::PortIndex;
use drophammer_port::{BURST, Port, PortError, wait};
use drophammer_traffic::QueueIndex;
use std::ops::Range;
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
    /// Queue through which `port` sends.
    queue: QueueIndex,
    filled: usize,
    refused: &'a mut Refused,
}

/// Frames for which ports had no room: at most one burst for each port.
#[derive(Default)]
struct Refused {
    bytes: Vec<u8>,
    /// Port, and the place of the frame in `bytes`, in sending order.
    frames: Vec<(PortIndex, Range<usize>)>,
    /// Which ports have refused a frame, as far as any has.
    full: Vec<bool>,
}

impl Refused {
    fn push(&mut self, port: PortIndex, frame: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(frame);
        self.frames.push((port, start..self.bytes.len()));
        self.full.resize(self.full.len().max(port + 1), false);
        self.full[port] = true;
    }

    fn is_full(&self, port: PortIndex) -> bool {
        self.full.get(port) == Some(&true)
    }

    /// Returns true if a port had no room.
    fn give_back(&mut self, hosts: &mut Hosts) -> bool {
        let any = !self.frames.is_empty();
        for (port, place) in self.frames.drain(..).rev() {
            hosts.refused(port, &self.bytes[place]);
        }
        self.bytes.clear();
        self.full.clear();
        any
    }
}

impl<'a> Burst<'a> {
    fn new(ports: &'a mut Ports, refused: &'a mut Refused) -> Burst<'a> {
        Burst { ports, port: 0, queue: 0, filled: 0, refused }
    }

    /// False if the port is known to have no room. A frame that it refuses later ends up in [`Refused`].
    fn send(&mut self, port: PortIndex, frame: &[u8]) -> Result<bool, PortError> {
        if port != self.port || self.filled == BURST {
            self.flush()?;
        }
        if self.refused.is_full(port) {
            return Ok(false);
        }
        if self.filled == 0 {
            (self.port, self.queue) = (port, self.ports.first_queue(port));
        }
        self.ports.queue(self.queue).slots().put(self.filled, frame);
        self.filled += 1;
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let filled = std::mem::take(&mut self.filled);
        if filled == 0 {
            return Ok(());
        }
        let port = self.ports.queue(self.queue);
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
            let read = self.take(hosts, MOST_TAKEN)?;
            let for_hosts = read.map_or(now, |read| read.min(now));
            let mut burst = Burst::new(self, &mut refused);
            let next = hosts.poll(for_hosts, &mut |port, frame| burst.send(port, frame))?;
            burst.flush()?;
            // These frames are not a measured load, so they wait for room, as in the interface queue of any router. A
            // lost frame would delay TCP by a second.
            let full = refused.give_back(hosts);
            if until.holds(now, hosts) || stopped() {
                return Ok(now);
            }
            if read.is_none() {
                self.rest(if full { now + FULL } else { next.min(until.next(now)) }, None);
            }
        }
    }

    /// Passes received frames to the hosts. If it has taken `most` frames from a queue, more may be waiting. It then returns the instant up
    /// to which all frames have been taken: for the hosts, it is not later yet.
    fn take(&mut self, hosts: &mut Hosts, most: usize) -> Result<Option<Instant>, PortError> {
        let (mut ports, mut read) = (0, None);
        for queue in 0..self.queues() {
            ports += usize::from(self.queue(queue).info().queue.index == 0);
            let index = ports - 1;
            let (mut taken, mut last) = (0, Instant(0));
            loop {
                let frames = self.queue(queue).receive()?;
                // A port may hand out what has arrived in several parts, so only an empty one is the last.
                if frames.is_empty() {
                    break;
                }
                for arrival in frames.iter() {
                    last = arrival.at;
                    hosts.receive(index, arrival);
                }
                taken += frames.len();
                if taken >= most {
                    read = Some(read.map_or(last, |read: Instant| read.min(last)));
                    break;
                }
            }
        }
        Ok(read)
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

    /// A port without a device that answers, the ports of a rig with it, and the other end.
    fn idle() -> (Hosts, Ports, memory::MemoryPort) {
        let clock = SystemClock::start();
        let own = host_mac(1, 0);
        let [near, far] = memory::pair([own, MacAddr::local(9)], 1500, clock);
        let hosts = Hosts::new(&Config { seed: 1, ports: vec![PortConfig::new("port", own, 1500)] });
        (hosts, Ports::One { ports: vec![Box::new(near)], clock: Box::new(clock) }, far)
    }

    #[test]
    fn while_frames_wait_it_is_not_later_for_the_hosts_than_the_last_frame_that_was_read() {
        let (mut hosts, mut ports, mut far) = idle();
        let before = ports.clock().now();
        let mut between = before;
        for half in 0..2 {
            (0..BURST).for_each(|slot| far.slots().put(slot, &[0xff; 60]));
            assert_eq!(far.send(BURST).unwrap().accepted as usize, BURST);
            if half == 0 {
                between = ports.clock().now();
            }
        }
        let read = ports.take(&mut hosts, BURST).unwrap().unwrap();
        assert!(before <= read && read <= between, "{before:?} {read:?} {between:?}");
        assert_eq!(hosts.received(0).frames, BURST as u64);
        assert_eq!(ports.take(&mut hosts, BURST + 1).unwrap(), None, "no frame is left");
        assert_eq!(hosts.received(0).frames, 2 * BURST as u64);
    }

    #[test]
    fn a_full_port_is_offered_no_more_than_a_burst() {
        let (mut hosts, mut ports, _far) = idle();
        let room = RING_BURSTS * BURST;
        let mut refused = Refused::default();
        let mut burst = Burst::new(&mut ports, &mut refused);
        let mut offered = 0;
        while offered < 3 * room && burst.send(0, &[(offered >> 8) as u8, offered as u8]).unwrap() {
            offered += 1;
        }
        assert!(!burst.send(0, &[0; 60]).unwrap());
        burst.flush().unwrap();
        assert!((room + 1..=room + BURST).contains(&offered), "{offered}");
        let number = |(_, place): &(PortIndex, Range<usize>)| {
            let frame = &refused.bytes[place.clone()];
            usize::from(frame[0]) << 8 | usize::from(frame[1])
        };
        assert_eq!(refused.frames.iter().map(number).collect::<Vec<_>>(), (room..offered).collect::<Vec<_>>());
        // The next turn tries again.
        refused.frames.clear();
        assert!(!refused.give_back(&mut hosts));
        assert!(Burst::new(&mut ports, &mut refused).send(0, &[0; 60]).unwrap());
    }
}
