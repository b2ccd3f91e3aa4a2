//! The environment of a test: a bench, the emulated routers, and earlier results.

use crate::bench::{Bench, Failure, Running, failed};
use crate::counted::received_between;
use crate::extra;
use crate::lsps::LspEnds;
use crate::observer::{Observer, Progress};
use crate::routers::BgpRouting;
use crate::session::Session;
use crate::together::lists_of;
use crate::vpns::VpnState;
use drophammer_lab::Dut;
use drophammer_methods::tester_ceiling::ceiling_of;
use drophammer_methods::{
    Facts, Igp, Known, Lsps, Method, Routing, Seen, Setting, TestError, Testbed, Trial, Vpns, igp,
};
use drophammer_model::beside::{ExtraFrame, OtherTraffic};
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::modifier::Modifier;
use drophammer_model::pattern::{Distribution, PatternKey};
use drophammer_model::quantity::{FrameRate, Instant};
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::suite::{Params, PortConfig};
use drophammer_model::trial::{Family, PortIndex, TimedEvent, TrialResult, TrialSpec, Validity};
use drophammer_rig::{Act, Rig};
use std::collections::BTreeMap;
use std::time::Duration;

/// Times from which the remaining time is estimated.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Time of all tests after the current test, and after the same test on the other DUTs that are up.
    pub after: Duration,
    /// Time of the current test on the other DUTs.
    pub others: Duration,
    /// Total time of the current test.
    pub test: Duration,
    /// When the current test started.
    pub since: std::time::Instant,
}

impl Left {
    /// Returns the times for a test that starts now and takes `test`, before other tests that take `after`.
    pub fn new(after: Duration, test: Duration) -> Left {
        Left { after, others: Duration::ZERO, test, since: std::time::Instant::now() }
    }

    /// Returns the time left from now.
    pub fn now(&self) -> Duration {
        self.after + self.others + self.test.saturating_sub(self.since.elapsed())
    }

    /// Excludes the time in which other DUTs were measured.
    fn waited(&mut self, time: Duration) {
        self.since += time;
        self.others = self.others.saturating_sub(time);
    }
}

/// The test setup of one DUT (RFC 2544 section 6).
pub struct TestSetup<'a> {
    /// The bench and its emulated routers.
    pub routing: BgpRouting<'a>,
    /// Ceilings that a valid trial has exceeded since, with its rate.
    pub beaten: BTreeMap<PatternKey, FrameRate>,
    /// Time left for the run without the current test, and estimate and start of the current test.
    pub left: Left,
    pub(crate) known: Known,
    /// The VRFs of the suite.
    pub(crate) vpns: VpnState,
    /// RSVP-TE on two P routers.
    pub(crate) lsps: Option<LspEnds>,
    /// Seconds in which other DUTs were measured.
    waited_s: f64,
}

impl<'a> TestSetup<'a> {
    /// Connects `device` to the ports of `rig`, which the suite configures as `ports`.
    pub fn new(
        dut: &str,
        ports: &[PortConfig],
        rig: Rig,
        device: &'a mut dyn Dut,
        session: &'a mut Session,
        observer: &'a mut dyn Observer,
    ) -> TestSetup<'a> {
        let seed = session.seed;
        let bench = Bench::new(dut, ports, rig, device, session, observer);
        let vpns = VpnState::new(ports, &bench);
        TestSetup {
            routing: BgpRouting::new(bench, ports, seed),
            beaten: BTreeMap::new(),
            left: Left::new(Duration::ZERO, Duration::ZERO),
            known: Known::default(),
            vpns,
            lsps: None,
            waited_s: 0.0,
        }
    }

    /// Returns rig and DUT.
    pub fn bench(&mut self) -> &mut Bench<'a> {
        &mut self.routing.bench
    }

    /// Returns the rig.
    pub fn rig(&mut self) -> &mut Rig {
        &mut self.routing.bench.rig
    }

    /// Returns the observer of the run.
    pub fn observer(&mut self) -> &mut dyn Observer {
        self.routing.bench.observer
    }

    /// Returns the setup's facts for tests.
    pub fn facts_mut(&mut self) -> &mut Facts {
        &mut self.routing.bench.facts
    }

    /// Starts a test with these parameters. `left` contains the time for this test and the tests after it.
    pub fn begin_test(&mut self, method: &dyn Method, params: &Params, left: Left) {
        self.begin_own(method.spec().name, left);
        let (spec, plan) = (method.spec(), method.plan(params));
        let searches = plan.searched.iter().filter(|pattern| !self.known.throughput.contains_key(&pattern.key()));
        let of = plan.trial_count(searches.count()).about;
        self.routing.bench.running = Some(Running { spec, plan, done: 0, of });
    }

    /// Starts trials of the tester itself, which are stored under this name.
    pub fn begin_own(&mut self, name: &str, left: Left) {
        name.clone_into(&mut self.routing.bench.test);
        self.routing.bench.running = None;
        self.left = left;
    }

    /// Removes what the ended test configured on the DUT.
    ///
    /// # Errors
    /// The configuration could not be removed.
    pub fn end_test(&mut self) -> Result<(), TestError> {
        self.lsps = None;
        let down = if self.vpns.is_in_use() { Vpns::take_down(self) } else { Ok(()) };
        down.and(self.routing.bench.end_test())
    }

    /// Announces that test number `number` of this DUT, from 1, is next. Returns when all other DUTs that are up have
    /// finished the test before it.
    pub(crate) fn reach(&mut self, number: usize) {
        if let Some(place) = &self.routing.bench.session.place {
            place.begin(number);
        }
        self.give_way();
    }

    /// Passes the machine to the other DUTs that are up. This DUT's requests are still answered in the meantime.
    fn give_way(&mut self) {
        let Some(place) = self.routing.bench.session.place.clone() else { return };
        let (now, before) = (self.rig().now(), std::time::Instant::now());
        // The next step fails with the same error and reports it.
        if place.hand_over(|| _ = self.routing.bench.serve(Duration::ZERO)) {
            self.waited_s += self.rig().now().since(now).as_secs_f64();
            self.left.waited(before.elapsed());
        }
    }

    /// See [`Bench::await_forwarding`].
    ///
    /// # Errors
    /// The errors of [`Bench::await_forwarding`].
    pub fn await_forwarding(&mut self, families: &[Family]) -> Result<(), TestError> {
        self.routing.bench.await_forwarding(families)
    }
}

impl TestSetup<'_> {
    /// Raises the tester's ceiling if a valid trial has exceeded it: the tester evidently sent and received at this rate.
    fn raise_ceiling(&mut self, spec: &TrialSpec, result: &TrialResult) {
        let pattern = PatternKey::of(spec);
        // The rate does not include additional frames; a mesh has several pairs at each port.
        if pattern.modifier != Modifier::None || pattern.distribution == Distribution::FullyMeshed {
            return;
        }
        let (key, rate) = (pattern.on_loop(), ceiling_of(result));
        if let Some(ceiling) =
            self.routing.bench.facts.ceilings.get_mut(&key).filter(|ceiling| ceiling.pps() < rate.pps())
        {
            *ceiling = rate;
            self.beaten.insert(key, rate);
        }
    }

    /// Lets the device learn its neighbours on a port that failed in the last trial.
    fn recover_port(&mut self, spec: &TrialSpec) -> Result<(), TestError> {
        if !std::mem::take(&mut self.routing.bench.port_failed) {
            return Ok(());
        }
        let mut families: Vec<_> = spec.flows.iter().map(|f| f.family).collect();
        families.sort_unstable();
        families.dedup();
        self.routing.bench.await_forwarding(&families)
    }

    /// Returns the load with all events during it. [`Testbed::attempt`] calls this after reading the counters.
    fn planned(&mut self, trial: &Trial) -> Result<Planned, TestError> {
        let mut planned = Planned { spec: trial.spec.clone(), acts: Vec::new() };
        for change in &trial.changes {
            let event = TimedEvent { routed: change.routed, ..TimedEvent::new(change.at_s, 0, &*change.label) };
            let acts = self.routing.acts(std::slice::from_ref(&change.actions))?;
            planned.at(event, acts.into_iter().flatten().collect());
        }
        Ok(planned)
    }

    /// Compiles the additional frames of the next trial.
    fn take_extra(&mut self, frames: Option<&[ExtraFrame]>) -> Result<(), TestError> {
        let bench = &mut self.routing.bench;
        let largest: Vec<usize> = bench.facts.ports.iter().map(|port| port.largest_frame).collect();
        let compile = |frames| extra::compile_all(frames, &bench.rig.hosts().neighbours(), &largest, bench.extra_key);
        bench.extra = frames.map(compile).transpose().map_err(TestError::NotApplicable)?;
        Ok(())
    }
}

/// Refuses combinations that would give wrong results in a single trial.
fn together(trial: &Trial) -> Result<(), TestError> {
    let refuse = |why: &str| Err(TestError::NotApplicable(why.into()));
    let Trial { spec: _, changes, extra, ask, echo, counters, routers, reset, joint } = trial;
    if ask.is_some() && !echo.is_empty() {
        return refuse("echo requests are distinguished by their numbers, which questions to the router would use too");
    }
    if extra.is_some() && routers.is_some() {
        return refuse("extra frames and the output of routers are observed over different periods");
    }
    let alone = changes.is_empty() && echo.is_empty() && extra.is_none() && ask.is_none();
    if *joint && !(alone && counters.is_none() && routers.is_none() && reset.is_none()) {
        return refuse("a trial of several routers at the same time can only offer a load");
    }
    Ok(())
}

/// A trial with all its events: at event i, the devices perform `acts[i]`.
pub(crate) struct Planned {
    pub(crate) spec: TrialSpec,
    pub(crate) acts: Vec<Vec<(PortIndex, Act)>>,
}

impl Planned {
    /// Adds an event with these acts.
    pub(crate) fn at(&mut self, event: TimedEvent, acts: Vec<(PortIndex, Act)>) {
        self.spec.events.push(TimedEvent { event: self.acts.len(), ..event });
        self.acts.push(acts);
    }
}

impl Testbed for TestSetup<'_> {
    fn facts(&self) -> &Facts {
        &self.routing.bench.facts
    }

    fn attempt(&mut self, trial: &Trial, number: u32) -> Result<Seen, TestError> {
        together(trial)?;
        self.recover_port(&trial.spec)?;
        self.routing.bench.reads_latency = self.known.ongoing.reads_latency;
        if trial.joint {
            let contestants = self.facts().contestants.clone();
            let each = self.routing.bench.joint_attempt(&trial.spec, &contestants, number)?;
            let result =
                each.first().cloned().ok_or_else(|| TestError::NotApplicable("only one router is up".into()))?;
            return Ok(Seen { each, ..result.into() });
        }
        // What starts first ends last: each part sees everything that happens within it.
        let counters = trial.counters.map(|settle| self.first_reading(settle)).transpose()?;
        let mut planned = self.planned(trial)?;
        let numbered = self.begin_echo(&trial.echo, &mut planned)?;
        self.take_extra(trial.extra.as_deref())?;
        let routers = trial.routers.map(|_| self.routers_before()).transpose()?;
        let asked = trial.ask.as_ref().map(|ask| self.begin_asking(ask, &mut planned)).transpose()?;
        let reset = trial.reset.map(|(reset, port)| self.begin_reset(&reset, port, &mut planned)).transpose()?;

        let amend = |started, result: &mut TrialResult| reset.iter().for_each(|reset| reset.amend(started, result));
        let mut outcome = self.routing.bench.attempt(&planned.spec, &planned.acts, number, &amend);

        let bench = &mut self.routing.bench;
        let extra = bench.extra.take().map(|_| std::mem::take(&mut bench.other));
        let mut reset_seen = None;
        if let Some(reset) = &reset {
            let (result, seen) = self.reset_seen(reset, &planned.spec, outcome)?;
            (outcome, reset_seen) = (Ok(result), Some(seen));
        }
        let routers = match routers.zip(trial.routers) {
            Some((before, stillness)) => self.routers_since(before, stillness, &outcome)?,
            None => None,
        };
        let result = outcome?;
        let (routers, beside) = routers.unzip();
        let answered = asked
            .zip(trial.ask.as_ref())
            .map(|(asked, ask)| self.answers_to(asked, ask))
            .transpose()?
            .unwrap_or_default();
        let echoes = self.echo_times(&trial.echo, &numbered)?;
        let counters =
            counters.zip(trial.counters).map(|(before, settle)| self.counters_since(before, settle)).transpose()?;
        if result.validity == Validity::Valid {
            self.raise_ceiling(&planned.spec, &result);
        }
        Ok(Seen {
            result,
            other: extra.or(beside),
            answered,
            echoes,
            counters,
            routers,
            reset: reset_seen,
            each: Vec::new(),
        })
    }

    fn set(&mut self, setting: Setting<'_>) -> Result<(), TestError> {
        let bench = &mut self.routing.bench;
        match setting {
            Setting::Filters(lists) => {
                let contestants = bench.facts.contestants.iter();
                let of_each: Vec<_> = contestants.map(|one| (one.name.clone(), lists_of(lists, one))).collect();
                bench.set_filter(lists, &of_each)
            }
            Setting::Classes(lists) => bench.set_classes(lists),
            Setting::CoreLinks { down, families } => bench.set_core_links(down, families),
            Setting::Aim { port, family, at } => {
                let routed = &mut bench.facts.ports[port].routed;
                match at {
                    Some(targets) => routed.insert(family, targets.clone()),
                    None => routed.remove(&family),
                };
                Ok(())
            }
        }
    }

    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, TestError> {
        self.routing.bench.device.router_interfaces().map_err(failed)
    }

    fn router_cpu(&mut self) -> Option<Vec<Duration>> {
        self.routing.bench.router_cpu()
    }

    fn observe(&mut self, time: Duration) -> Result<OtherTraffic, TestError> {
        let bench = &mut self.routing.bench;
        // These counters only add to an observation that is complete without them.
        let before = bench.device.counters().ok();
        let mut seen = bench.observe(time)?;
        let after = bench.device.counters().ok();
        let ports = bench.facts.ports.len();
        seen.received_by_kernel =
            before.zip(after).and_then(|(before, after)| received_between(ports, &before, &after));
        bench.check_device()?;
        Ok(seen)
    }

    fn routing(&mut self) -> Result<&mut dyn Routing, TestError> {
        if Routing::peers(&self.routing).is_empty() {
            return Err(TestError::NotApplicable("the suite has no BGP; `bgp: {}` adds it".into()));
        }
        Ok(&mut self.routing)
    }

    fn lsps(&mut self) -> Result<&mut dyn Lsps, TestError> {
        self.with_lsps()
    }

    fn vpns(&mut self) -> Result<&mut dyn Vpns, TestError> {
        match self.vpns.exists() {
            true => Ok(self),
            false => Err(TestError::NotApplicable("the suite has no VRFs; give a port `customers: 10`".into())),
        }
    }

    fn igp(&mut self) -> Result<&mut dyn Igp, TestError> {
        igp::core_ports(self, &[CoreProtocol::Ospf], 1)?;
        Ok(self)
    }

    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        match self.routing.bench.serve(time) {
            // The next trial hits the same failure and is then repeated.
            Err(Failure::Port(_)) => {}
            other => other?,
        }
        self.routing.bench.check_device()
    }

    fn now_s(&mut self) -> Option<f64> {
        Some(self.rig().now().since(Instant(0)).as_secs_f64() - self.waited_s)
    }

    fn may_repeat(&mut self, took: Duration) -> bool {
        self.routing.bench.may_repeat(took)
    }

    fn memory(&mut self) -> Vec<(String, u64)> {
        self.routing.bench.device.usage().map(|usage| usage.memory()).unwrap_or_default()
    }

    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn progress(&mut self, what: &str) {
        let running = self.routing.bench.running.as_ref();
        let (done, of) = running.map_or((0, 0), |running| (running.done, running.of));
        if running.is_none_or(|running| running.plan.may_pause) {
            self.give_way();
        }
        self.routing.bench.observer.progress(&Progress::Step { what, done, of, left: self.left.now() });
    }

    fn note(&mut self, text: &str) {
        self.routing.bench.note(text);
    }
}
