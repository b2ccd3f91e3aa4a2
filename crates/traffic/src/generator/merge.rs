//! Merges the due frames of several generators of a port into one burst.

use super::PortGenerator;
use drophammer_model::quantity::Instant;
use drophammer_port::{BURST, Port, PortError, Sent};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When to check a generator again after it has reached its catch-up limit.
const RETRY_NS: u64 = 10_000;

/// Due times of the generators of a port. The loop only checks due generators, so a port can have thousands of them.
pub(crate) struct Merge {
    /// Due time and index of each generator that still has something to send.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Frames of each generator in the current burst: place, first slot, number of slots.
    shares: [(usize, usize, usize); BURST],
}

impl Merge {
    /// Creates the due times of `generators`, whose trial has started.
    pub(crate) fn new(generators: &[PortGenerator]) -> Merge {
        let first = |(place, g): (usize, &PortGenerator)| g.next_departure().map(|at| Reverse((at, place)));
        Merge { due: generators.iter().enumerate().filter_map(first).collect(), shares: [(0, 0, 0); BURST] }
    }

    /// Returns the time of the next action; `None` when all have finished.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Sends the due frames of `generators`, which must be the generators given to [`Merge::new`], at most one burst.
    /// Returns their number.
    ///
    /// # Errors
    /// Errors of the port.
    pub(crate) fn send_due(
        &mut self,
        generators: &mut [PortGenerator],
        port: &mut dyn Port,
        now: Instant,
    ) -> Result<usize, PortError> {
        let (mut used, mut filled) = (0, 0);
        while filled < BURST
            && let Some(Reverse((at, place))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            let generator = &mut generators[place];
            let frames = generator.due(now).min(BURST - filled);
            if frames == 0 {
                if !generator.done(now) {
                    let due = generator.next_departure().filter(|at| *at > now);
                    self.due.push(Reverse((due.unwrap_or(Instant(now.0 + RETRY_NS)), place)));
                }
                continue;
            }
            generator.catch_up.take(frames);
            generator.fill(port, filled, &[now; BURST][..frames]);
            self.shares[used] = (place, filled, frames);
            used += 1;
            filled += frames;
        }
        if filled == 0 {
            return Ok(0);
        }
        let sent = port.send(filled)?;
        let device_loss = port.info().refusal_is_device_loss;
        for (place, first, frames) in &self.shares[..used] {
            let generator = &mut generators[*place];
            generator.account(*frames, part(sent, *first, *frames), device_loss, now);
            if let Some(at) = generator.next_departure() {
                self.due.push(Reverse((at, *place)));
            }
        }
        Ok(filled)
    }
}

/// Returns the result for `frames` slots from slot `first` on.
fn part(sent: Sent, first: usize, frames: usize) -> Sent {
    let refused_mask = sent.refused_mask >> first & (u64::MAX >> (BURST - frames));
    let refused = refused_mask.count_ones();
    Sent { accepted: frames as u32 - refused, refused, refused_mask }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_burst_has_its_own_refusals() {
        let sent = Sent { accepted: 60, refused: 4, refused_mask: 1 | 1 << 9 | 1 << 10 | 1 << 63 };
        assert_eq!(part(sent, 0, 64), sent);
        assert_eq!(part(sent, 0, 9), Sent { accepted: 8, refused: 1, refused_mask: 1 });
        assert_eq!(part(sent, 9, 3), Sent { accepted: 1, refused: 2, refused_mask: 3 });
        assert_eq!(part(sent, 63, 1), Sent { accepted: 0, refused: 1, refused_mask: 1 });
    }
}
