//! From the server to the line.

use super::Router;
use crate::faults::Faults;
use crate::pool::Slot;
use drophammer_model::Instant;
use drophammer_wire::frame::Frame;

impl Router {
    /// Its faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(super) fn discard(&mut self, slot: Slot, cause: impl FnOnce(&mut crate::Drops) -> &mut u64) {
        *cause(&mut self.truth.dropped) += 1;
        self.truth.queued -= 1;
        self.pool.release(slot);
    }

    /// Applies the faults to a frame to a group whose type the device does not know. True if the frame is forwarded.
    pub(super) fn suffers_broadcast(&mut self, now: Instant, port: usize, frame: &mut Frame) -> bool {
        for _ in 0..self.faults.broadcast_services {
            // A frame that finds the buffer full takes no time.
            let _ = self.server.offer(now, 0);
        }
        if !self.faults.broadcast_flooded {
            return false;
        }
        let next = (port + 1) % self.ports.len();
        self.truth.transit += 1;
        self.truth.queued += 1;
        let slot = self.pool.adopt(frame);
        if let Some(at) = self.line(port, next, now, slot) {
            self.departures.schedule_other(at, next, slot, true);
        }
        true
    }

    #[inline]
    pub(super) fn ready(&mut self, end: Instant) -> Instant {
        let aged = self.faults.ageing.map_or(0, |ageing| ageing.delay_ns(end));
        let ready = Instant((end + self.delay).0.saturating_add(aged));
        if self.jitter.is_zero() {
            return ready;
        }
        let width = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        Instant(ready.0.saturating_add(self.delay_random.below(width)))
    }

    #[inline(always)]
    pub(super) fn line(&mut self, ingress: usize, port: usize, ready: Instant, slot: Slot) -> Option<Instant> {
        let out = &mut self.ports[port];
        if out.down {
            self.discard(slot, |d| &mut d.link_down);
            return None;
        }
        if out.classes.is_some() {
            self.queue_on_line(port, ready, slot);
            return None;
        }
        let ready = if self.faults.input_queue == 0 { ready } else { self.leave_input(ingress, port, ready, slot)? };
        let out = &mut self.ports[port];
        let departure = out.line.offer(ready, self.pool.get(slot).len());
        if departure.is_none() {
            out.counters.out_discards += 1;
            self.discard(slot, |d| &mut d.egress);
        }
        departure
    }

    /// When a frame that is ready at `ready` leaves the input queue of the port by which it came
    /// ([`crate::Faults::input_queue`]); `None` if the queue was full.
    #[cold]
    fn leave_input(&mut self, ingress: usize, port: usize, ready: Instant, slot: Slot) -> Option<Instant> {
        let Some(first) = self.ports[ingress].input.behind(ready, self.faults.input_queue) else {
            self.ports[ingress].counters.in_discards += 1;
            self.discard(slot, |d| &mut d.fault_input_queue);
            return None;
        };
        let leave = self.ports[port].line.room_at(first);
        self.ports[ingress].input.push(leave);
        Some(leave)
    }
}
