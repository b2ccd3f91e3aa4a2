//! Waits until the DUT has acknowledged all UPDATEs and advertises the expected routes.

use super::{BgpRouting, LOOK, RoutingState};
use drophammer_emulation::bgp::Pressure;
use drophammer_methods::routing::{RESTLESS, WatchIndex};
use drophammer_methods::{Sending, Settled, TestError};
use drophammer_model::Instant;
use drophammer_rig::Hosts;
use std::collections::VecDeque;
use std::time::Duration;

/// Period over which the message about routes that keep changing counts changes.
const LATELY: Duration = Duration::from_secs(1);

/// The best state so far, and when it was reached.
struct Progress {
    /// Highest number of bytes that the DUT's TCP has acknowledged.
    taken: u64,
    /// Lowest number of routes that were missing, unexpected or wrong.
    off: u64,
    at: Instant,
}

impl Progress {
    fn note(&mut self, now: Instant, taken: u64, off: u64) {
        if taken > self.taken || off < self.off {
            *self = Progress { taken: taken.max(self.taken), off: off.min(self.off), at: now };
        }
    }
}

/// Number of UPDATEs received at several instants: all instants of the last second, and one before it.
#[derive(Default)]
struct Lately(VecDeque<(Instant, u64)>);

impl Lately {
    fn note(&mut self, now: Instant, updates: u64) {
        while self.0.get(1).is_some_and(|(at, _)| now.since(*at) >= LATELY) {
            self.0.pop_front();
        }
        self.0.push_back((now, updates));
    }

    fn grown(&self) -> u64 {
        self.0.back().map_or(0, |last| last.1) - self.0.front().map_or(0, |first| first.1)
    }
}

impl BgpRouting<'_> {
    /// Implements [`drophammer_methods::Routing::await_settled`].
    pub(super) fn settled(&mut self, watches: &[WatchIndex], patience: Duration) -> Result<Settled, TestError> {
        let begun = self.instant();
        let before = self.state.pressure(self.bench.rig.hosts(), begun);
        let (mut sent_at, mut moved_at, mut movement) = (None, begun, self.state.movement(self.bench.rig.hosts()));
        let (taken, off) = (self.state.taken(self.bench.rig.hosts()), self.state.off(self.bench.rig.hosts(), watches));
        let mut progress = Progress { taken, off, at: begun };
        let mut lately = Lately::default();
        let (acknowledged, complete) = (self.state.acknowledged(), self.state.complete(watches));
        let cause = loop {
            let end = self.instant() + LOOK;
            if sent_at.is_none() {
                let looked = self.look_until(acknowledged.clone(), end)?;
                sent_at = self.bench.rig.holds(&acknowledged).then_some(looked);
            }
            if sent_at.is_some() {
                self.look_until(complete.clone(), end)?;
            }
            let (now, state) = (self.instant(), &self.state);
            if let Some((peer, cause)) = state.lost(self.bench.rig.hosts()) {
                break format!("the session of {} ended: {cause}", state.peers[peer].name);
            }
            if sent_at.is_some() && self.bench.rig.holds(&complete) {
                break String::new();
            }
            progress.note(now, state.taken(self.bench.rig.hosts()), state.off(self.bench.rig.hosts(), watches));
            lately.note(now, state.updates(self.bench.rig.hosts()));
            let moved = state.movement(self.bench.rig.hosts());
            if moved != movement {
                (moved_at, movement) = (now, moved);
            } else if now.since(moved_at.max(progress.at)) > patience {
                let what = if sent_at.is_none() { "the router takes no more" } else { "nothing more came" };
                break format!("{what} for {} s{}", patience.as_secs_f64(), state.came_back(self.bench.rig.hosts()));
            }
            if now.since(progress.at) > patience * RESTLESS {
                break state.restless(self.bench.rig.hosts(), watches, (now, progress.at), lately.grown());
            }
        };
        let Pressure { held, unanswered, late } = self.state.pressure(self.bench.rig.hosts(), self.instant()) - before;
        let sending =
            Sending { held_s: held.as_secs_f64(), unanswered_s: unanswered.as_secs_f64(), late_s: late.as_secs_f64() };
        self.state.advertising.clear();
        if !cause.is_empty() {
            self.bench.port_works()?;
        }
        let reports: Vec<_> = watches
            .iter()
            .filter_map(|watch| {
                let watch = &self.state.watches[*watch];
                let (routers, router) = self.router(watch.observer)?;
                Some(routers.adj_rib_in(router).report(watch.id))
            })
            .collect();
        let since = |at: Instant| at.since(begun).as_secs_f64();
        let last = reports.iter().filter_map(|r| r.last_at).max().filter(|at| *at > begun);
        Ok(Settled {
            complete: cause.is_empty(),
            last_change_s: last.map_or(0.0, since),
            first_change_s: reports.iter().filter_map(|r| r.first_at).filter(|at| *at > begun).min().map(since),
            sent_s: sent_at.map(since),
            sending,
            cause,
        })
    }
}

impl RoutingState {
    /// Returns which side delayed the sessions with UPDATEs to send, until `now`.
    fn pressure(&self, hosts: &Hosts, now: Instant) -> Pressure {
        let of = |peer: &usize| {
            let (routers, router) = self.router(hosts, *peer)?;
            Some(routers.pressure(router, now))
        };
        self.advertising.iter().filter_map(of).fold(Pressure::default(), |sum, more| sum + more)
    }

    /// Returns the number of bytes that the DUT's TCP has acknowledged.
    fn taken(&self, hosts: &Hosts) -> u64 {
        let of = |peer: &usize| {
            let (routers, router) = self.router(hosts, *peer)?;
            Some(routers.acknowledged_bytes(router))
        };
        self.wanted.iter().filter_map(of).sum()
    }

    /// Returns the number of UPDATEs received.
    fn updates(&self, hosts: &Hosts) -> u64 {
        let of = |peer: &usize| {
            let (routers, router) = self.router(hosts, *peer)?;
            Some(routers.adj_rib_in(router).totals().updates)
        };
        self.wanted.iter().filter_map(of).sum()
    }

    /// Returns the number of routes of `watches` that are missing, unexpected or wrong.
    fn off(&self, hosts: &Hosts, watches: &[WatchIndex]) -> u64 {
        let of = |watch: &WatchIndex| {
            let watch = &self.watches[*watch];
            let (routers, router) = self.router(hosts, watch.observer)?;
            let report = routers.adj_rib_in(router).report(watch.id);
            Some(u64::from(report.missing) + u64::from(report.unexpected) + u64::from(report.wrong))
        };
        watches.iter().filter_map(of).sum()
    }

    /// Returns the message for no progress since the second instant, although routes were still changing at the first.
    fn restless(
        &self,
        hosts: &Hosts,
        watches: &[WatchIndex],
        (now, since): (Instant, Instant),
        updates: u64,
    ) -> String {
        let begin = Instant(now.0.saturating_sub(LATELY.as_nanos() as u64));
        let (mut routes, mut example) = (0, None);
        for watch in watches {
            let watch = &self.watches[*watch];
            let Some((routers, router)) = self.router(hosts, watch.observer) else { continue };
            let (count, first) = routers.adj_rib_in(router).moved_since(watch.id, begin);
            routes += u64::from(count);
            example = example.or(first);
        }
        let example = example.map_or(String::new(), |prefix| format!(", such as {prefix},"));
        format!(
            "no progress for {} s: the router keeps changing routes; in the last second {routes} of these routes{example} came or \
             went, and {updates} UPDATEs came{}",
            now.since(since).as_secs(),
            self.came_back(hosts)
        )
    }
}
