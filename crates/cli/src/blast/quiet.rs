//! Decides when the wait for late frames can end early.

use drophammer_model::quantity::Instant;
use drophammer_rig::Snapshot;

/// Shortest time without arrivals after which the wait ends, in ns.
const LEAST_NS: u64 = 250_000_000;

/// Measures the time without arrivals. When nothing has arrived for twice the longest latency, no missing frame can
/// still arrive. If no frame of a flow has arrived, its latency is unknown, so its frames may still arrive.
#[derive(Debug, Default)]
pub struct Silence {
    /// Numbers of frames sent and received, and the time when they last changed.
    last: Option<(u64, u64, Instant)>,
}

impl Silence {
    /// True if, at the time of `now`, no more frames can be expected. Call it repeatedly after the planned end of
    /// sending.
    pub fn holds(&mut self, now: &Snapshot) -> bool {
        let all = |counts: &drophammer_rig::FlowCounts| counts.received.frames + counts.received.duplicated;
        let unusual: u64 = now.groups.iter().map(|group| group.corrupted + group.stray).sum();
        let (sent, received) = (now.sum(|f| f.offered), now.sum(all) + unusual);
        let since = match self.last {
            Some((s, r, since)) if (s, r) == (sent, received) => since,
            _ => {
                self.last = Some((sent, received, now.at));
                now.at
            }
        };
        let latency = now.groups.iter().map(|group| group.latency_max_ns).max().unwrap_or(0);
        let seen = now.flows.values().all(|flow| flow.offered == 0 || flow.received.frames > 0);
        seen && now.at.0.saturating_sub(since.0) >= (2 * latency).max(LEAST_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_rig::{FlowCounts, GroupCounts};

    /// Two flows after `ms` milliseconds; the arguments describe what the second flow has received.
    fn at(ms: u64, received: u64, latency_ms: u64) -> Snapshot {
        let mut flow = FlowCounts { offered: 100, ..FlowCounts::default() };
        flow.received.frames = 90;
        let mut second = flow;
        second.received.frames = received;
        let group = GroupCounts { latency_max_ns: latency_ms * 1_000_000, ..GroupCounts::default() };
        let flows = [(0, flow), (1, second)].into();
        Snapshot { at: Instant(ms * 1_000_000), flows, groups: vec![group], ..Snapshot::default() }
    }

    #[test]
    fn the_wait_ends_when_nothing_has_arrived_for_twice_the_longest_latency() {
        let holds = |looks: &[(u64, u64, u64)]| {
            let mut silence = Silence::default();
            let all: Vec<bool> = looks.iter().map(|(ms, n, latency)| silence.holds(&at(*ms, *n, *latency))).collect();
            all
        };
        assert_eq!(holds(&[(0, 50, 1), (249, 50, 1), (250, 50, 1)]), [false, false, true]);
        assert_eq!(holds(&[(0, 50, 1), (90, 51, 1), (300, 51, 1), (340, 51, 1)]), [false, false, false, true]);
        assert_eq!(holds(&[(0, 50, 300), (500, 50, 300), (600, 50, 300)]), [false, false, true]);
        // If no frame of a flow has arrived, its latency is unknown.
        assert_eq!(holds(&[(0, 0, 1), (900, 0, 1)]), [false, false]);
    }
}
