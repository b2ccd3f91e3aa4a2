//! Sending ahead, for ports in virtual time: the port gets a whole burst, each frame with its own departure time.

use super::PortGenerator;
use drophammer_model::quantity::Instant;
use drophammer_port::{BURST, Port, PortError};

impl PortGenerator {
    /// When the next frame is due, or when the last one has left.
    pub(crate) fn next_event(&self) -> Instant {
        self.next_departure().unwrap_or(self.last_departure)
    }

    /// Hands the next burst to a port that sends ahead, each frame with its departure time, all before `until`; returns
    /// how many frames the port took.
    ///
    /// # Errors
    /// Errors of the port.
    pub(crate) fn send_ahead(&mut self, port: &mut dyn Port, now: Instant, until: Instant) -> Result<usize, PortError> {
        // The previous burst is still being sent, or the trial has not begun.
        if now < self.last_departure.max(self.start) {
            return Ok(0);
        }
        if self.control.is_some() {
            self.next_stretch(now.0 - self.start.0);
        }
        let end = if self.stop_on_time { self.schedule.end_ns() } else { u64::MAX };
        let left = self.schedule.total() - self.index;
        let mut departures = [0; BURST];
        let departures = &mut departures[..BURST.min(usize::try_from(left).unwrap_or(usize::MAX))];
        self.schedule.departures(self.index, departures);
        let mut at = [now; BURST];
        let (mut frames, mut on_time) = (0, 0);
        for (at, departure) in at.iter_mut().zip(departures) {
            if *departure >= end {
                break;
            }
            let leaves = now.max(Instant(self.start.0 + *departure));
            if leaves >= until {
                break;
            }
            *at = leaves;
            match at.0 - self.start.0 - *departure {
                0 => on_time += 1,
                late => self.lateness[(64 - late.leading_zeros()).min(39) as usize] += 1,
            }
            frames += 1;
        }
        self.lateness[0] += on_time;
        if frames == 0 {
            return Ok(0);
        }
        self.fill(port, 0, &at[..frames]);
        let sent = match port.ahead() {
            Some(port) => port.send_at(&at[..frames])?,
            None => port.send(frames)?,
        };
        debug_assert_eq!(sent.refused, 0, "virtual time has no ring that could be full");
        self.account_ahead(&at[..frames]);
        Ok(frames)
    }

    /// Counts the frames of the first slots, whose departure times are `at`.
    fn account_ahead(&mut self, at: &[Instant]) {
        self.index += at.len() as u64;
        self.sent += at.len() as u64;
        self.last_departure = at.last().copied().unwrap_or(self.last_departure);
        if let ([group], None) = (self.groups.as_mut_slice(), self.bin_ns) {
            group.offered += at.len() as u64;
            return;
        }
        for (at, group) in at.iter().zip(&self.slot_groups) {
            let group = &mut self.groups[*group as usize];
            group.offered += 1;
            let elapsed = at.0 - self.start.0;
            if let Some(count) = self.bin_ns.and_then(|ns| group.bins.get_mut((elapsed / ns) as usize)) {
                *count += 1;
            }
        }
    }
}
