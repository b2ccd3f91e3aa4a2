//! What a modifier adds to the trials of a pattern.

use crate::attempts::Attempts;
use crate::filter_lists::{Case, Position};
use crate::pattern::Pattern;
use crate::route_tests::one_per_port;
use crate::routing::{Change, Packing, PeerIndex, RouteAction, Routing, TableChoice, WatchIndex};
use crate::testbed::{Setting, TestError, Testbed};
use crate::trial::{TimedActions, Trial};
use drophammer_model::filter::FilterDirection;
use drophammer_model::management::{Inquiry, Question};
use drophammer_model::modifier::Modifier;
use drophammer_model::routes::{AfiSafi, Routes};
use drophammer_model::trial::{Family, GroupCounts, TrialResult, TrialSpec};
use std::sync::Arc;
use std::time::Duration;

/// Interval between two queries to the router (RFC 2544 section 11.2).
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Interval between two route changes, taken from RIP (RFC 2544 appendix C.2.4.5). BGP does not define one.
const UPDATE_EVERY_S: f64 = 30.0;
/// Routes per change: the number that a RIP message carries.
const ROUTES: u32 = 25;
/// Maximum time for the sessions to come up.
const ESTABLISH: Duration = Duration::from_secs(60);
/// Maximum time for the router to re-advertise a change.
const PATIENCE: Duration = Duration::from_secs(30);

/// Counts of a modifier, over all trials of a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub trials: u64,
    /// Test frames sent.
    pub offered: u64,
    /// Additional frames sent.
    pub sent: u64,
    /// Additional frames that came back at any port.
    pub forwarded: u64,
    pub asked: u64,
    pub answered: u64,
    pub updates: u64,
    /// Updates that the DUT re-advertised to another peer.
    pub processed: u64,
    /// Test frames that arrived.
    pub received: u64,
    /// Frames that a rule of a filter matched; `None` if the DUT does not count them.
    pub matched: Option<u64>,
}

/// The routes that change, and whether they are advertised at present.
#[derive(Clone, Debug)]
struct Changing {
    peer: PeerIndex,
    routes: Arc<Routes>,
    watch: WatchIndex,
    advertised: bool,
}

/// The modifier of the running pattern.
#[derive(Clone, Debug)]
pub struct Applied {
    modifier: Modifier,
    changing: Option<Changing>,
    pub(super) seen: Seen,
}

impl Applied {
    /// Prepares the modifier of the pattern.
    pub(super) fn begin(bed: &mut dyn Testbed, pattern: &Pattern) -> Result<Applied, TestError> {
        let mut changing = None;
        match pattern.modifier {
            Modifier::RoutingUpdate => changing = Some(Changing::begin(bed, pattern)?),
            Modifier::Filters { conditions } => install(bed, pattern, conditions)?,
            Modifier::None | Modifier::Broadcast | Modifier::Management => {}
        }
        Ok(Applied { modifier: pattern.modifier, changing, seen: Seen::default() })
    }

    /// Undoes the preparation.
    pub(super) fn end(&self, bed: &mut dyn Testbed, ended: Result<(), TestError>) -> Result<(), TestError> {
        match ended {
            Err(TestError::DutDied(_) | TestError::Interrupted | TestError::Store(_)) => ended,
            _ if self.changing.is_some() => {
                bed.routing()?.reset(PATIENCE)?;
                ended
            }
            _ if matches!(self.modifier, Modifier::Filters { .. }) => {
                bed.set(Setting::Filters(&[]))?;
                ended
            }
            _ => ended,
        }
    }

    /// Runs a trial with the modifier.
    pub(crate) fn trial(
        &mut self,
        bed: &mut (impl Testbed + ?Sized),
        spec: &TrialSpec,
    ) -> Result<TrialResult, TestError> {
        let result = match self.modifier {
            // The frames belong to the flows of the trial, and the filters are already installed.
            Modifier::None | Modifier::Broadcast | Modifier::Filters { .. } => {
                bed.run(&Trial::new(spec.clone()))?.result
            }
            Modifier::Management => self.asked(bed, spec)?,
            Modifier::RoutingUpdate => self.updated(bed, spec)?,
        };
        self.seen.trials += 1;
        self.seen.offered += result.offered();
        self.seen.received += result.sum(|group| group.received);
        if let Some(matched) = matched(&result) {
            *self.seen.matched.get_or_insert(0) += matched;
        }
        self.seen.sent += result.background.iter().map(|counts| counts.offered).sum::<u64>();
        self.seen.forwarded += result.background.iter().map(arrived).sum::<u64>();
        Ok(result)
    }

    /// Runs a trial while the tester queries the router.
    fn asked(&mut self, bed: &mut (impl Testbed + ?Sized), spec: &TrialSpec) -> Result<TrialResult, TestError> {
        // Even a short trial has at least one query.
        let interval = ASK_EVERY.min(spec.sending_time());
        let questions = vec![Question::Ping, Question::Snmp];
        let ask = Some(Inquiry { questions, interval, afterwards: Duration::ZERO });
        let seen = bed.run(&Trial { ask, ..Trial::new(spec.clone()) })?;
        let answered = &seen.answered;
        self.seen.asked += answered.iter().map(|a| a.during.asked + a.afterwards.asked).sum::<u64>();
        self.seen.answered +=
            answered.iter().map(|a| (a.during.times.len() + a.afterwards.times.len()) as u64).sum::<u64>();
        Ok(seen.result)
    }

    /// Runs a trial during which routes change.
    fn updated(&mut self, bed: &mut (impl Testbed + ?Sized), spec: &TrialSpec) -> Result<TrialResult, TestError> {
        let mut trial = Trial::new(spec.clone());
        let Some(changing) = &mut self.changing else { return Ok(bed.run(&trial)?.result) };
        let count = (spec.sending_time().as_secs_f64() / UPDATE_EVERY_S).ceil().max(1.0) as usize;
        let mut attempts = Attempts::begin(bed);
        loop {
            trial.changes = (0..count).map(|number| changing.turn(number as f64 * UPDATE_EVERY_S)).collect();
            let result = bed.attempt(&trial, attempts.number())?.result;
            // Only the final state can be checked.
            let passed = changing.passed_on(bed)?;
            if attempts.passed(bed, &result)? {
                self.seen.updates += count as u64;
                self.seen.processed += if passed { count as u64 } else { 0 };
                return Ok(result);
            }
        }
    }
}

impl Changing {
    /// Brings two sessions up: one peer advertises the routes, the other one receives them.
    fn begin(bed: &mut dyn Testbed, pattern: &Pattern) -> Result<Changing, TestError> {
        if pattern.routes > 0 {
            let why = "`routing_update` needs exclusive use of the emulated routers; remove `routes`";
            return Err(TestError::NotApplicable(why.into()));
        }
        let family = pattern.families.first().copied().unwrap_or(Family::Ipv4);
        let peers = one_per_port(bed, family, 2)?;
        let routing = bed.routing()?;
        let routes = routing.table(&TableChoice::named("internet"), AfiSafi::unicast(family), ROUTES)?;
        routing.establish(&peers[..2], ESTABLISH)?;
        let watch = routing.watch(peers[1], peers[0], &routes);
        Ok(Changing { peer: peers[0], routes, watch, advertised: false })
    }

    /// Advertises or withdraws the routes, whichever changes their state, at this time of the trial.
    fn turn(&mut self, at_s: f64) -> TimedActions {
        self.advertised = !self.advertised;
        let (change, label) = match self.advertised {
            true => (Change::Advertise, "routing update: advertise"),
            false => (Change::Withdraw, "routing update: withdraw"),
        };
        let (routes, part) = (self.routes.clone(), 0..self.routes.len());
        let action = RouteAction::Routes { peer: self.peer, change, routes, part, packing: Packing::default() };
        TimedActions { at_s, label: label.into(), routed: None, actions: vec![action] }
    }

    /// Returns true if the router has re-advertised the current state to the other peer.
    fn passed_on(&self, bed: &mut (impl Testbed + ?Sized)) -> Result<bool, TestError> {
        let routing: &mut dyn Routing = bed.routing()?;
        routing.expect(self.watch, 0..self.routes.len(), self.advertised);
        Ok(routing.await_settled(&[self.watch], PATIENCE)?.complete)
    }
}

/// Installs filters whose last condition permits the frames of the pattern.
fn install(bed: &mut dyn Testbed, pattern: &Pattern, conditions: u64) -> Result<(), TestError> {
    if pattern.routes > 0 || pattern.labels.is_some() {
        let why = "the filters of `modifiers` match only IP packets to the networks behind the ports; remove `routes` and `labels`";
        return Err(TestError::NotApplicable(why.into()));
    }
    let permit = (conditions > 1).then_some(Position::Last);
    let case = Case { conditions, permit, direction: FilterDirection::Ingress };
    let lists = case.lists(&pattern.flows(bed.ports())?, bed.ports());
    bed.set(Setting::Filters(&lists))
}

/// Frames that matched rules of the DUT's filters in a trial; `None` if the DUT counts none.
fn matched(result: &TrialResult) -> Option<u64> {
    let of_rule = |name: &str| name.starts_with("filter") && name.ends_with(".matches");
    let mut rules = result.dut_counters.iter().filter(|(name, _)| of_rule(name)).map(|(_, count)| *count).peekable();
    rules.peek()?;
    Some(rules.sum())
}

/// Frames of this group that arrived at any port, intact or not.
fn arrived(counts: &GroupCounts) -> u64 {
    counts.received + counts.duplicated + counts.corrupted + counts.stray + counts.deviations.values().sum::<u64>()
}
