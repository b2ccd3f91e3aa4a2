//! What the controller has heard of the hosts of a lease.

use crate::message::State;
use drophammer_rig::{LaneCounts, Standing};
use std::collections::VecDeque;
use std::time::Instant;

#[derive(Default)]
pub(crate) struct Heard {
    /// The last state of each host, and when it arrived.
    pub(crate) states: Vec<Option<(Instant, State)>>,
    /// The attempt that runs, if any does.
    pub(crate) running: Option<u64>,
    /// Counts of lanes, with attempt and host.
    pub(crate) counts: VecDeque<(u64, usize, Vec<LaneCounts>)>,
    /// A request of the user that failed: the attempt, the host and the reason.
    pub(crate) unfulfilled: Option<(u64, usize, String)>,
    /// Why the leases were lost.
    pub(crate) lost: Option<String>,
}

impl Heard {
    /// Returns the attempt that runs, and what all hosts together have sent and received in it.
    pub(crate) fn running(&self) -> Option<(u64, Standing)> {
        let attempt = self.running?;
        let standing = |host: &Option<(Instant, State)>| match host {
            Some((_, state)) if state.attempt == attempt => state.standing,
            // Nothing is known of it, so it has not finished.
            _ => Standing::default(),
        };
        Some((attempt, self.states.iter().map(standing).sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_hosts_have_finished_when_each_has_said_so_of_this_attempt() {
        let heard = |attempt, done, sent, distinct| {
            let standing = Standing { done, sent, distinct };
            Some((Instant::now(), State { host: 0, attempt, standing, over: None }))
        };
        let mut all = Heard { states: vec![heard(7, true, 10, 4), heard(6, true, 90, 90), None], ..Heard::default() };
        assert_eq!(all.running(), None);
        all.running = Some(7);
        assert_eq!(all.running(), Some((7, Standing { done: false, sent: 10, distinct: 4 })));
        all.states[1] = heard(7, true, 20, 25);
        assert!(!all.running().unwrap().1.done, "nothing is known of the third host");
        all.states[2] = heard(7, false, 0, 1);
        assert_eq!(all.running(), Some((7, Standing { done: false, sent: 30, distinct: 30 })));
        all.states[2] = heard(7, true, 5, 6);
        assert_eq!(all.running(), Some((7, Standing { done: true, sent: 35, distinct: 35 })));
    }
}
