//! The reference device with a reset. A reset replaces the device by a new device with the same configuration, which
//! boots for a known time.

use drophammer_lab::{LabError, Resets};
use drophammer_model::quantity::{Instant, show_duration};
use drophammer_model::reset::{ResetDone, ResetKind};
use drophammer_port::simulated::{self, Arrivals, Deliveries};
use drophammer_reference::{Config, ConfigError, Faults, Router};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// The effect of a reset on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Boot {
    /// Time during which the device does nothing at all.
    pub(super) time: Duration,
    /// True if the device continues as if nothing had happened, sessions included.
    pub(super) unaffected: bool,
    /// True if the device never comes back.
    pub(super) never: bool,
}

/// A requested reset.
struct Plan {
    at: Instant,
    /// The device that replaces the old one.
    fresh: Box<Router>,
}

/// The device and its resets.
pub(super) struct Resettable {
    router: Router,
    config: Config,
    faults: Faults,
    boot: Boot,
    plan: Option<Plan>,
    /// End of the time in which the device is off.
    off_until: Option<Instant>,
    /// The replaced device. Frames that it sent before this instant are still in flight.
    before: Option<(Router, Instant)>,
    /// When the last reset was requested, and when that reset ends.
    asked: Option<(Instant, Instant)>,
}

impl Deref for Resettable {
    type Target = Router;
    fn deref(&self) -> &Router {
        &self.router
    }
}

impl DerefMut for Resettable {
    fn deref_mut(&mut self) -> &mut Router {
        &mut self.router
    }
}

impl Resettable {
    pub(super) fn new(config: Config, boot: Boot) -> Result<Resettable, ConfigError> {
        let mut router = Router::new(config.clone())?;
        router.set_faults(Faults::default())?;
        let faults = Faults::default();
        Ok(Resettable { router, config, faults, boot, plan: None, off_until: None, before: None, asked: None })
    }

    /// Changes the device's faults, from now on and after a reset.
    pub(super) fn set_faults(&mut self, faults: Faults) -> Result<(), ConfigError> {
        self.router.set_faults(faults.clone())?;
        self.faults = faults;
        Ok(())
    }

    /// Applies changes that are due by `now`. True if there were any.
    fn advance(&mut self, now: Instant) -> bool {
        let mut changed = false;
        if let Some(plan) = self.plan.take_if(|plan| plan.at <= now) {
            let at = plan.at;
            if !self.boot.unaffected {
                self.before = Some((std::mem::replace(&mut self.router, *plan.fresh), at));
                self.off_until = Some(if self.boot.never { Instant(u64::MAX) } else { at + self.boot.time });
            }
            changed = true;
        }
        if self.off_until.is_some_and(|until| until <= now) {
            self.off_until = None;
            changed = true;
        }
        changed
    }

    /// Returns the instant of the next change.
    fn next_change(&self) -> Option<Instant> {
        let planned = self.plan.as_ref().map(|plan| plan.at);
        let back = self.off_until.filter(|until| until.0 < u64::MAX);
        [planned, back].into_iter().flatten().min()
    }

    fn next(&self, of: impl Fn(&Router) -> Option<Instant>) -> Option<Instant> {
        let own = if self.off_until.is_some() { None } else { of(&self.router) };
        let before = self.before.as_ref().and_then(|(router, at)| of(router).filter(|next| next < at));
        [own, before, self.next_change()].into_iter().flatten().min()
    }

    pub(super) fn begin(&mut self, now: Instant, after: Duration) -> Result<(), ConfigError> {
        let mut fresh = Box::new(Router::new(self.config.clone())?);
        fresh.set_faults(self.faults.clone())?;
        let at = now + after;
        self.plan = Some(Plan { at, fresh });
        let over = if self.boot.never { Instant(u64::MAX) } else { at + self.boot.time };
        self.asked = Some((now, over));
        Ok(())
    }

    fn done(&mut self, now: Instant) -> Option<ResetDone> {
        let (asked, over) = self.asked.take_if(|(_, over)| *over <= now)?;
        let ended = over.since(asked);
        let began = ended.saturating_sub(self.boot.time);
        Some(ResetDone {
            began,
            ended,
            what: format!("the device boots for {}", show_duration(self.boot.time)),
            problem: None,
        })
    }
}

impl simulated::Device for Resettable {
    fn receive(&mut self, now: Instant, port: usize, frame: &[u8]) {
        self.advance(now);
        if self.off_until.is_none() {
            self.router.receive(now, port, frame);
        }
    }

    fn poll(&mut self, now: Instant, deliver: &mut dyn FnMut(Instant, usize, &[u8])) {
        self.advance(now);
        if let Some((mut before, at)) = self.before.take() {
            before.poll(at, &mut |left, port, frame| {
                if left < at {
                    deliver(left, port, frame);
                }
            });
        }
        if self.off_until.is_none() {
            self.router.poll(now, deliver);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.next(Router::next_deadline)
    }

    fn next_notice(&self) -> Option<Instant> {
        self.next(Router::next_notice)
    }

    fn take(&mut self, arrivals: &mut Arrivals<'_>) {
        while let Some(mut frame) = arrivals.next() {
            let changed = self.advance(frame.at);
            let as_before = self.off_until.is_some() || self.router.take(frame.at, frame.port, frame.memory());
            if changed || !as_before {
                return;
            }
        }
    }

    fn give(&mut self, now: Instant, deliveries: &mut Deliveries<'_>) {
        self.advance(now);
        if let Some((mut before, at)) = self.before.take() {
            before.give(at, |left, port, frame| {
                if left < at {
                    deliveries.hand_over(left, port, frame);
                }
            });
        }
        if self.off_until.is_none() {
            self.router.give(now, |at, port, frame| deliveries.hand_over(at, port, frame));
        }
    }

    fn link(&mut self, now: Instant, port: usize, up: bool) {
        self.advance(now);
        self.router.set_link(now, port, up);
    }
}

impl Resets for super::ReferenceDut {
    fn begin(&mut self, kind: ResetKind, now: Instant, after: Duration) -> Result<(), LabError> {
        let refused = |what: String| LabError::Unusable { what, remedy: "choose other `resets`".into() };
        if kind == ResetKind::Link {
            return Err(refused("the device does not reset a link by itself".into()));
        }
        self.reference.0.borrow_mut().begin(now, after).map_err(|e| refused(e.to_string()))
    }

    fn done(&mut self, now: Instant) -> Option<ResetDone> {
        self.reference.0.borrow_mut().done(now)
    }
}
