//! The faults that act on test frames between the server and the line.

use super::Router;
use super::forward::Served;
use super::header::{Contents, flip};
use crate::egress::Parked;
use crate::encapsulation;
use crate::faults::{REORDER_LIMIT, is_nth};
use crate::pool::Slot;
use drophammer_model::Instant;

impl Router {
    /// Applies the faults to a test frame and passes it to the line.
    #[cold]
    pub(super) fn mistreat(&mut self, served: Served) {
        let Served { slot, arrived, end, ingress, mut port, contents } = served;
        self.truth.test_frames += 1;
        let number = if self.faults.by_port {
            let arrived = &mut self.ports[ingress].test_frames;
            *arrived += 1;
            *arrived
        } else {
            self.truth.test_frames
        };
        // Do this before the drops, because the load counts arrivals.
        let low = self.faults.drop_at_low_load.filter(|f| self.load.is_low(f, arrived));
        if is_nth(number, self.faults.drop_every) {
            return self.discard(slot, |d| &mut d.fault_every);
        }
        if self.faults.drop_share > 0.0 && self.fault_random.chance(self.faults.drop_share) {
            return self.discard(slot, |d| &mut d.fault_share);
        }
        if self.faults.drop_window.is_some_and(|(from, to)| from <= arrived && arrived < to) {
            return self.discard(slot, |d| &mut d.fault_window);
        }
        if low.is_some_and(|f| is_nth(number, f.every)) {
            return self.discard(slot, |d| &mut d.fault_low_load);
        }
        if self.faults.drop_growth.is_some_and(|growth| growth.drops(arrived, &mut self.growth)) {
            return self.discard(slot, |d| &mut d.fault_growth);
        }
        if let Some(corrupt) = self.faults.corrupt.filter(|c| is_nth(number, c.every)) {
            let offset = corrupt.offset.unwrap_or_else(|| self.fault_random.below(1 << 32) as usize);
            self.truth.corrupted += u64::from(flip(self.pool.get_mut(slot).bytes_mut(), offset, corrupt.fix_checksum));
        }
        if let Some(wrong) = self.faults.misroute.filter(|m| is_nth(number, m.every) && m.to_port != port) {
            port = wrong.to_port;
            let mac = self.neighbours.any_on(port);
            let frame = self.pool.get_mut(slot).head_mut();
            frame[6..12].copy_from_slice(&self.ports[port].mac.0);
            if let Some(mac) = mac {
                frame[..6].copy_from_slice(&mac.0);
            }
            self.truth.misrouted += 1;
        }
        if let Some(wrong) = self.faults.wrong_next_hop.filter(|w| is_nth(number, w.every)) {
            self.pool.get_mut(slot).head_mut()[..6].copy_from_slice(&wrong.mac.0);
            self.truth.wrong_next_hop += 1;
        }
        if is_nth(number, self.faults.ttl_kept_every) {
            let frame = self.pool.get_mut(slot).bytes_mut();
            self.truth.ttl_kept += u64::from(encapsulation::undo_decrement(frame));
        }
        if let Some(wrong) = self.faults.encapsulation.filter(|e| is_nth(number, e.every))
            && let Some(changed) = encapsulation::changed(self.pool.get(slot), wrong.change)
        {
            *self.pool.get_mut(slot).bytes_mut() = changed;
            self.truth.encapsulation += 1;
        }
        let copy = is_nth(number, self.faults.duplicate_every).then(|| self.pool.duplicate(slot));
        let ready = self.ready(end);
        if let Some(at) = self.line(ingress, port, ready, slot) {
            if let Some(hold) = self.faults.hold.filter(|h| is_nth(number, h.every)) {
                self.truth.held += 1;
                self.departures.schedule_apart(at + hold.time, port, slot);
            } else if let Some(r) = self.faults.reorder.filter(|r| is_nth(number, r.every) && r.positions > 0) {
                let parked = Parked { slot, to_pass: r.positions, limit: at + REORDER_LIMIT };
                self.ports[port].parked.push_back(parked);
                self.parked += 1;
            } else {
                self.depart(at, port, slot, contents);
                self.pass(port, at);
            }
        }
        if let Some(copy) = copy {
            self.truth.duplicated += 1;
            self.truth.queued += 1;
            if let Some(at) = self.line(ingress, port, ready, copy) {
                self.depart(at, port, copy, contents);
            }
        }
    }

    /// Called when a test frame departs in its turn on `port` at `at`: parked frames that were waiting for only this
    /// frame follow it.
    fn pass(&mut self, port: usize, at: Instant) {
        let parked = &mut self.ports[port].parked;
        let mut i = 0;
        for _ in 0..parked.len() {
            parked[i].to_pass -= 1;
            if parked[i].to_pass > 0 && parked[i].limit > at {
                i += 1;
                continue;
            }
            let Some(frame) = parked.remove(i) else { return };
            self.parked -= 1;
            if frame.to_pass == 0 && frame.limit >= at {
                self.truth.reordered += 1;
            } else {
                self.truth.reorder_expired += 1;
            }
            self.departures.schedule_apart(at.min(frame.limit), port, frame.slot);
        }
    }

    /// Schedules a test frame to depart in its turn.
    fn depart(&mut self, at: Instant, port: usize, slot: Slot, contents: Contents) {
        if contents == Contents::Datagram {
            self.departures.schedule(at, port, slot, false);
        } else {
            self.departures.schedule_other(at, port, slot, true);
        }
    }
}
