//! Trials during which the DUT is reset.
//!
//! # Resets
//!
//! `Dut::resets` returns `Some` for a DUT that can be reset. `lab/src/namespace_dut.rs` passes the daemons to a thread
//! on the DUT's processor, which stops them at the specified time and starts them again unchanged.
//! `testbed/src/simulated/resettable.rs` replaces the reference device by a new one, which boots for a specified
//! virtual time. `testbed/src/reset.rs` runs the trial, during which emulated routers advertise again what they
//! advertised before their sessions ended (`Routers::keep_routes`).

use crate::bench::{Failure, failed};
use crate::setup::{Planned, TestSetup};
use drophammer_methods::routing::PeerIndex;
use drophammer_methods::{RouteAction, TestError};
use drophammer_model::Instant;
use drophammer_model::reset::{Reset, ResetDone, ResetKind, ResetSeen};
use drophammer_model::trial::{Family, PortIndex, TimedEvent, TrialResult, TrialSpec};
use drophammer_rig::Act;
use std::time::Duration;

/// How often to check the DUT while it comes back.
const LOOK: Duration = Duration::from_millis(5);

/// Name of the event of a reset, except for a link reset.
fn label(kind: ResetKind) -> String {
    format!("{} reset", kind.word())
}

/// Data needed while waiting for the end of a reset.
struct Waiting<'a> {
    /// Start of the traffic.
    started: Instant,
    /// Start of the reset, as far as it is known before its end.
    began: Instant,
    deadline: Instant,
    peers: &'a [PeerIndex],
}

/// A reset in progress.
pub(crate) struct ResetBegun {
    reset: Reset,
    port: PortIndex,
    /// Peers whose sessions are expected to return.
    peers: Vec<PeerIndex>,
    /// Number of times that each session was lost before.
    before: Vec<u32>,
    /// When the reset was requested.
    begun: Instant,
}

impl ResetBegun {
    /// Corrects the time of the reset in the result of a trial whose traffic started at `started`. The router counts
    /// from the request. The traffic starts later, because the trial is planned and counters are read first.
    pub(crate) fn amend(&self, started: Instant, result: &mut TrialResult) {
        let label = label(self.reset.kind);
        let began = (self.begun + Duration::from_secs_f64(self.reset.at_s)).since(started).as_secs_f64();
        result.events.iter_mut().filter(|event| event.label == label).for_each(|event| event.at_s = began);
    }
}

impl TestSetup<'_> {
    /// Adds a reset to the trial, and starts it.
    pub(crate) fn begin_reset(
        &mut self,
        reset: &Reset,
        port: PortIndex,
        planned: &mut Planned,
    ) -> Result<ResetBegun, TestError> {
        let after = Duration::from_secs_f64(reset.at_s);
        let event = |at_s: f64, label: String| TimedEvent::new(at_s, 0, label);
        let link = reset.kind == ResetKind::Link;
        if link {
            let down = reset.down.as_secs_f64();
            let acts = [false, true].map(|up| vec![RouteAction::Link { port, up }]);
            let mut acts = self.routing.acts(&acts)?.into_iter();
            planned.at(event(reset.at_s, "link down".into()), acts.next().unwrap_or_default());
            planned.at(event(reset.at_s + down, "link up".into()), acts.next().unwrap_or_default());
        } else {
            planned.at(event(reset.at_s, label(reset.kind)), Vec::new());
        }
        let peers = self.routing.state.wanted();
        let before = self.losses_of(&peers);
        self.keep_routes(&peers, true);
        let begun = self.rig().now();
        if !link {
            let device = self.routing.bench.device.resets();
            let device =
                device.ok_or_else(|| TestError::NotApplicable("the daemons of this router cannot be restarted".into()));
            device?.begin(reset.kind, begun, after).map_err(failed)?;
        }
        Ok(ResetBegun { reset: *reset, port, peers, before, begun })
    }

    /// Returns the effect of the reset, once the trial with this outcome is over and the DUT has recovered or the
    /// reset's time limit has expired. Emulated routers advertise their routes again when their sessions return.
    pub(crate) fn reset_seen(
        &mut self,
        of: &ResetBegun,
        spec: &TrialSpec,
        outcome: Result<TrialResult, TestError>,
    ) -> Result<(TrialResult, ResetSeen), TestError> {
        let ResetBegun { reset, port, peers, before, begun } = of;
        let (begun, link) = (*begun, reset.kind == ResetKind::Link);
        if link {
            // A trial that is cut short does not reach the event that brings the link up. Its outcome contains the reason.
            let _ = self.rig().command(*port, &Act::Link(true));
        }
        let started = self.rig().started().filter(|started| *started >= begun).unwrap_or(begun);
        let began = if link { started } else { begun } + Duration::from_secs_f64(reset.at_s);
        let waiting = Waiting { started, began, deadline: began + reset.limit, peers };
        let over = if link { Ok(None) } else { self.await_reset(&waiting) };
        let back = match (&outcome, &over) {
            (Ok(_), Ok(_)) => self.await_sessions(&waiting),
            _ => Ok(()),
        };
        self.keep_routes(peers, false);
        let result = outcome?;
        let done = over?;
        back?;
        let lost = self.losses_of(peers).iter().zip(before).filter(|(now, then)| now > then).count() as u64;
        let mut seen = self.seen(reset, *port, &waiting, begun, done, lost);
        let mut families: Vec<Family> = spec.flows.iter().map(|flow| flow.family).collect();
        families.dedup();
        match self.await_forwarding(&families) {
            Err(TestError::Failed(why)) => {
                seen.problem.get_or_insert(why);
            }
            other => other?,
        }
        if seen.began_s < started.0 as f64 / 1e9 {
            let why = format!(
                "the router was reset before the traffic began, because the tester needed more than {} s",
                reset.at_s
            );
            return Err(TestError::Unfit(vec![why + " to prepare the trial"]));
        }
        Ok((result, seen))
    }

    fn losses_of(&self, peers: &[PeerIndex]) -> Vec<u32> {
        peers.iter().map(|peer| self.losses(*peer)).collect()
    }

    fn seen(
        &self,
        reset: &Reset,
        port: PortIndex,
        waiting: &Waiting<'_>,
        begun: Instant,
        done: Option<ResetDone>,
        sessions_lost: u64,
    ) -> ResetSeen {
        let link = reset.kind == ResetKind::Link;
        // The time at which the first daemon was stopped is more accurate than the requested time.
        let began = done.as_ref().map_or(waiting.began, |done| begun + done.began);
        let up: Vec<Option<Instant>> = waiting.peers.iter().map(|peer| self.established_at(*peer)).collect();
        let all_up: Option<Vec<Instant>> = up.into_iter().collect();
        let last = all_up.and_then(|all| all.into_iter().max()).filter(|last| *last > began);
        let late = || format!("the router's daemons did not run again within {} s", reset.limit.as_secs_f64());
        ResetSeen {
            what: match (&done, link) {
                (Some(done), _) => done.what.clone(),
                (None, true) => format!("the link of port {}", self.routing.bench.facts.ports[port].name),
                (None, false) => String::new(),
            },
            began_s: began.0 as f64 / 1e9,
            at_s: began.since(waiting.started).as_secs_f64(),
            restarted_s: done.as_ref().filter(|d| d.problem.is_none()).map(|d| (d.ended - d.began).as_secs_f64()),
            sessions_lost,
            sessions_s: last.filter(|_| sessions_lost > 0).map(|last| last.since(began).as_secs_f64()),
            problem: match &done {
                Some(done) => done.problem.clone(),
                None => (!link).then(late),
            },
        }
    }

    /// Waits until the DUT reports the end of its reset. Returns `None` at the deadline.
    fn await_reset(&mut self, waiting: &Waiting<'_>) -> Result<Option<ResetDone>, TestError> {
        loop {
            let now = self.rig().now();
            let done = self.routing.bench.device.resets().and_then(|device| device.done(now));
            if done.is_some() || now >= waiting.deadline {
                return Ok(done);
            }
            self.look()?;
        }
    }

    /// Waits until all sessions are up, or the deadline has passed.
    fn await_sessions(&mut self, waiting: &Waiting<'_>) -> Result<(), TestError> {
        while self.rig().now() < waiting.deadline && waiting.peers.iter().any(|p| self.established_at(*p).is_none()) {
            self.look()?;
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), TestError> {
        match self.routing.bench.serve(LOOK) {
            Ok(()) | Err(Failure::Port(_)) => Ok(()),
            Err(Failure::Test(e)) => Err(e),
        }
    }

    fn keep_routes(&mut self, peers: &[PeerIndex], keep: bool) {
        for peer in peers {
            if let Some((routers, router)) = self.routing.router_mut(*peer) {
                routers.keep_routes(router, keep);
            }
        }
    }

    fn losses(&self, peer: PeerIndex) -> u32 {
        self.routing.router(peer).map_or(0, |(routers, router)| routers.losses(router).0)
    }

    fn established_at(&self, peer: PeerIndex) -> Option<Instant> {
        let (routers, router) = self.routing.router(peer)?;
        routers.session(router).established_at().filter(|_| routers.established(router))
    }
}
