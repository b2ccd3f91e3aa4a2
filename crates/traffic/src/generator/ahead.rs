//! Sending ahead of time, for ports in virtual time: a burst is handed over at once, every frame with its own instant.

use super::PortGenerator;
use drophammer_model::quantity::Instant;
use drophammer_port::{BURST, Port, PortError};

impl PortGenerator {
    /// When there is something to do again: a frame is due, or all are through.
    pub(crate) fn next_event(&self) -> Instant {
        self.next_departure().unwrap_or(self.last_departure)
    }

    /// Hands over the next burst, every frame with the instant of its departure, which is before `until`, to a port that
    /// sends ahead; returns how many frames it took.
    ///
    /// # Errors
    /// The port's.
    pub(crate) fn send_ahead(&mut self, port: &mut dyn Port, now: Instant, until: Instant) -> Result<usize, PortError> {
        // The burst before is under way yet, or the trial has not begun.
        if now < self.last_departure.max(self.start) {
            return Ok(0);
        }
        let end = if self.stop_on_time { self.schedule.end_ns() } else { u64::MAX };
        let left = self.schedule.total() - self.index;
        let mut at = [now; BURST];
        let mut frames = 0;
        for (i, at) in at.iter_mut().enumerate().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            let departure = self.schedule.departure(self.index + i as u64);
            if departure >= end {
                break;
            }
            let leaves = now.max(Instant(self.start.0 + departure));
            if leaves >= until {
                break;
            }
            *at = leaves;
            let late = at.0 - self.start.0 - departure;
            self.lateness[(64 - late.leading_zeros()).min(39) as usize] += 1;
            frames += 1;
        }
        if frames == 0 {
            return Ok(0);
        }
        self.fill(port, &at[..frames]);
        let sent = port.send_at(&at[..frames])?;
        debug_assert_eq!(sent.refused, 0, "virtual time has no ring that could be full");
        for (i, at) in at[..frames].iter().enumerate() {
            self.account_one(i, *at);
        }
        Ok(frames)
    }

    /// Counts the frame of slot `i`, which leaves at `at`.
    fn account_one(&mut self, i: usize, at: Instant) {
        self.index += 1;
        self.sent += 1;
        self.last_departure = at;
        let group = &mut self.groups[self.slot_groups[i] as usize];
        group.offered += 1;
        let elapsed = at.0 - self.start.0;
        if let Some(count) = self.bin_ns.and_then(|ns| group.bins.get_mut((elapsed / ns) as usize)) {
            *count += 1;
        }
    }
}
