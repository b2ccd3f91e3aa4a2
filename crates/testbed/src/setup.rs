//! The environment of a test: a bench, the emulated routers, and earlier results.

use crate::bench::{Bench, Failure, failed};
use crate::counted::received_between;
use crate::extra;
use crate::observer::{Observer, Progress};
use crate::routers::BgpRouting;
use crate::session::Session;
use crate::together::lists_of;
use drophammer_lab::Dut;
use drophammer_methods::attempts::Attempts;
use drophammer_methods::ping_delay::{OwnDelay, OwnDelays};
use drophammer_methods::tester_ceiling::{LoopOrder, ceiling_of};
use drophammer_methods::{
    CirclingTrial, Contestant, CountedTrial, Known, PortView, RouteAction, Routing, Stillness, TestError, Testbed,
};
use drophammer_model::beside::{ExtraFrame, OtherTraffic};
use drophammer_model::classes::EgressClasses;
use drophammer_model::echo::{EchoRequest, EchoTimes};
use drophammer_model::filter::FilterList;
use drophammer_model::management::{Answered, Inquiry};
use drophammer_model::modifier::Modifier;
use drophammer_model::pattern::{Distribution, PatternKey};
use drophammer_model::quantity::{FrameRate, Instant};
use drophammer_model::record::{Note, Record};
use drophammer_model::reset::{Reset, ResetSeen};
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::suite::{FlowConfig, PortConfig};
use drophammer_model::topology::{CoreLinkName, System};
use drophammer_model::trial::{Family, PortIndex, Targets, TrialResult, TrialSpec};
use drophammer_rig::Rig;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Times for the estimate of the time left.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Time of all tests after the running one, and after the same test on the other DUTs that are up.
    pub after: Duration,
    /// Time of the same test on these.
    pub others: Duration,
    /// Total time of the running one.
    pub test: Duration,
    /// When it started.
    pub since: std::time::Instant,
}

impl Left {
    /// Of a test that starts now and takes `test`, before others that take `after`.
    pub fn new(after: Duration, test: Duration) -> Left {
        Left { after, others: Duration::ZERO, test, since: std::time::Instant::now() }
    }

    /// What is left now.
    pub fn now(&self) -> Duration {
        self.after + self.others + self.test.saturating_sub(self.since.elapsed())
    }

    /// Other DUTs were measured for so long.
    fn waited(&mut self, time: Duration) {
        self.since += time;
        self.others = self.others.saturating_sub(time);
    }
}

/// The test setup of one DUT (RFC 2544 section 6).
pub struct TestSetup<'a> {
    /// The bench and its emulated routers.
    pub routing: BgpRouting<'a>,
    /// Tester ceilings by pattern.
    pub ceilings: BTreeMap<PatternKey, FrameRate>,
    /// Ceilings that a valid trial has beaten since, with its rate.
    pub beaten: BTreeMap<PatternKey, FrameRate>,
    /// Effect of a loop without DUT on the order of frames, by pattern.
    pub orders: BTreeMap<PatternKey, LoopOrder>,
    /// The tester's own delay of pings and test frames at a low load.
    pub own_delays: OwnDelays,
    /// Time left for the run without the running test, and the running test's estimate and start.
    pub left: Left,
    /// Flows that the suite describes.
    pub flows: Vec<FlowConfig>,
    /// The DUTs that are up, if there are several.
    pub contestants: Vec<Contestant>,
    pub(crate) known: Known,
    /// Seconds in which other DUTs were measured.
    waited_s: f64,
}

impl<'a> TestSetup<'a> {
    /// Puts `device` at the ports of `rig`, which the suite configures as `ports`.
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
        TestSetup {
            routing: BgpRouting::new(bench, ports, seed),
            ceilings: BTreeMap::new(),
            beaten: BTreeMap::new(),
            orders: BTreeMap::new(),
            own_delays: OwnDelays::new(),
            left: Left::new(Duration::ZERO, Duration::ZERO),
            flows: Vec::new(),
            contestants: Vec::new(),
            known: Known::default(),
            waited_s: 0.0,
        }
    }

    /// Rig and DUT.
    pub fn bench(&mut self) -> &mut Bench<'a> {
        &mut self.routing.bench
    }

    /// The rig.
    pub fn rig(&mut self) -> &mut Rig {
        &mut self.routing.bench.rig
    }

    /// The observer of the run.
    pub fn observer(&mut self) -> &mut dyn Observer {
        self.routing.bench.observer
    }

    /// Begins a test; `left` gives the time of it and of the tests after it.
    pub fn begin_test(&mut self, name: &str, left: Left) {
        name.clone_into(&mut self.routing.bench.test);
        self.left = left;
    }

    /// Undoes what the ended test configured on the DUT.
    ///
    /// # Errors
    /// It could not be undone.
    pub fn end_test(&mut self) -> Result<(), TestError> {
        self.routing.bench.end_test()
    }

    /// Test number `number` of this DUT, from 1, is the next. Returns when all other DUTs that are up have ended the one before.
    pub(crate) fn reach(&mut self, number: usize) {
        if let Some(place) = &self.routing.bench.session.place {
            place.begin(number);
        }
        self.give_way();
    }

    /// Lets the other DUTs that are up be measured, and answers this one meanwhile.
    fn give_way(&mut self) {
        let Some(place) = self.routing.bench.session.place.clone() else { return };
        let (now, before) = (self.rig().now(), std::time::Instant::now());
        // What fails here fails again in what follows, and is reported then.
        if place.hand_over(|| _ = self.routing.bench.serve(Duration::ZERO)) {
            self.waited_s += self.rig().now().since(now).as_secs_f64();
            self.left.waited(before.elapsed());
        }
    }

    /// As [`Bench::await_forwarding`].
    ///
    /// # Errors
    /// Those of [`Bench::await_forwarding`].
    pub fn await_forwarding(&mut self, families: &[Family]) -> Result<(), TestError> {
        self.routing.bench.await_forwarding(families)
    }
}

impl TestSetup<'_> {
    /// Raises the tester's ceiling where a valid trial has beaten it: the tester did send and receive at this rate.
    fn raise_ceiling(&mut self, spec: &TrialSpec, result: &TrialResult) {
        let pattern = PatternKey::of(spec);
        // Additional frames are not in the rate; a mesh has several pairs at each port.
        if pattern.modifier != Modifier::None || pattern.distribution == Distribution::FullyMeshed {
            return;
        }
        let (key, rate) = (pattern.on_loop(), ceiling_of(result));
        if let Some(ceiling) = self.ceilings.get_mut(&key).filter(|ceiling| ceiling.pps() < rate.pps()) {
            *ceiling = rate;
            self.beaten.insert(key, rate);
        }
    }

    /// Repeats an attempt at a trial while it is spoilt.
    pub(crate) fn repeated<T>(
        &mut self,
        spec: &TrialSpec,
        mut attempt: impl FnMut(&mut Self, u32) -> Result<(T, bool), TestError>,
        result: impl Fn(&T) -> &TrialResult,
    ) -> Result<T, TestError> {
        let mut attempts = Attempts::begin(self);
        loop {
            let (done, port_failed) = attempt(self, attempts.number())?;
            if attempts.passed(self, result(&done))? {
                return Ok(done);
            }
            if port_failed {
                // The device may have to learn its neighbours behind the port again.
                let mut families: Vec<_> = spec.flows.iter().map(|f| f.family).collect();
                families.sort_unstable();
                families.dedup();
                self.routing.bench.await_forwarding(&families)?;
            }
        }
    }
}

impl Testbed for TestSetup<'_> {
    fn ports(&self) -> &[PortView] {
        &self.routing.bench.views
    }

    fn backend(&self) -> &str {
        self.routing.bench.rig.ports.info(0).backend
    }

    fn flows(&self) -> &[FlowConfig] {
        &self.flows
    }

    fn trial(&mut self, spec: &TrialSpec) -> Result<TrialResult, TestError> {
        let attempt = |setup: &mut Self, attempt| setup.routing.bench.attempt(spec, &[], attempt);
        let result = self.repeated(spec, attempt, |result| result)?;
        self.raise_ceiling(spec, &result);
        Ok(result)
    }

    fn contestants(&self) -> &[Contestant] {
        &self.contestants
    }

    fn joint_trial(&mut self, spec: &TrialSpec) -> Result<Vec<TrialResult>, TestError> {
        let contestants = self.contestants.clone();
        let attempt = |setup: &mut Self, attempt| setup.routing.bench.joint_attempt(spec, &contestants, attempt);
        self.repeated(spec, attempt, |results| &results[0])
    }

    fn counted_trial(&mut self, spec: &TrialSpec, settle: Duration) -> Result<CountedTrial, TestError> {
        let attempt = |setup: &mut Self, attempt| setup.counted_attempt(spec, settle, attempt);
        self.repeated(spec, attempt, |counted| &counted.result)
    }

    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, TestError> {
        self.routing.bench.device.router_interfaces().map_err(failed)
    }

    fn router_cpu(&mut self) -> Option<Vec<Duration>> {
        self.routing.bench.device.router_cpu()
    }

    fn circling_trial(&mut self, spec: &TrialSpec, stillness: Stillness) -> Result<CirclingTrial, TestError> {
        let attempt = |setup: &mut Self, attempt| setup.circling_attempt(spec, stillness, attempt);
        self.repeated(spec, attempt, |circling| &circling.result)
    }

    fn trial_beside(
        &mut self,
        spec: &TrialSpec,
        extra: &[ExtraFrame],
    ) -> Result<(TrialResult, OtherTraffic), TestError> {
        let largest: Vec<usize> = (0..self.ports().len()).map(|port| self.largest_frame(port)).collect();
        let bench = &mut self.routing.bench;
        let compiled = extra::compile_all(extra, &bench.rig.hosts.neighbours(), &largest, bench.extra_key)
            .map_err(TestError::NotApplicable)?;
        bench.extra = Some(compiled);
        let result = self.trial(spec);
        let bench = &mut self.routing.bench;
        bench.extra = None;
        Ok((result?, std::mem::take(&mut bench.other)))
    }

    fn observe(&mut self, time: Duration) -> Result<OtherTraffic, TestError> {
        let bench = &mut self.routing.bench;
        // They only stand beside what is seen, which is known without them.
        let before = bench.device.counters().ok();
        let mut seen = bench.observe(time)?;
        let after = bench.device.counters().ok();
        let ports = bench.views.len();
        seen.received_by_kernel =
            before.zip(after).and_then(|(before, after)| received_between(ports, &before, &after));
        bench.check_device()?;
        Ok(seen)
    }

    fn largest_frame(&mut self, port: PortIndex) -> usize {
        let there = port < self.ports().len();
        if there { self.rig().ports.get(port).largest_frame() + extra::FCS } else { 0 }
    }

    fn routing(&mut self) -> Result<&mut dyn Routing, TestError> {
        if Routing::peers(&self.routing).is_empty() {
            return Err(TestError::NotApplicable("the suite has no BGP; `bgp: {}` adds it".into()));
        }
        Ok(&mut self.routing)
    }

    fn routed_trial(
        &mut self,
        spec: &TrialSpec,
        actions: &[Vec<RouteAction>],
        attempt: u32,
    ) -> Result<TrialResult, TestError> {
        let acts = self.routing.acts(actions)?;
        self.routing.bench.attempt(spec, &acts, attempt).map(|(result, _)| result)
    }

    fn filter(&mut self, lists: &[FilterList]) -> Result<(), TestError> {
        let of_each: Vec<_> = self.contestants.iter().map(|one| (one.name.clone(), lists_of(lists, one))).collect();
        self.routing.bench.set_filter(lists, &of_each)
    }

    fn aim(&mut self, port: PortIndex, family: Family, at: Option<Targets>) -> Result<(), TestError> {
        let routed = &mut self.routing.bench.views[port].routed;
        match at {
            Some(targets) => routed.insert(family, targets),
            None => routed.remove(&family),
        };
        Ok(())
    }

    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), TestError> {
        self.routing.bench.set_classes(lists)
    }

    fn system(&self) -> Option<&System> {
        self.routing.bench.device.system()
    }

    fn set_core_links(&mut self, down: &BTreeSet<CoreLinkName>, families: &[Family]) -> Result<(), TestError> {
        self.routing.bench.set_core_links(down, families)
    }

    fn asked_trial(&mut self, spec: &TrialSpec, inquiry: &Inquiry) -> Result<(TrialResult, Vec<Answered>), TestError> {
        let attempt = |setup: &mut Self, attempt| setup.asked_attempt(spec, inquiry, attempt);
        self.repeated(spec, attempt, |(result, _)| result)
    }

    fn echo_trial(
        &mut self,
        spec: &TrialSpec,
        requests: &[EchoRequest],
    ) -> Result<(TrialResult, Vec<Option<EchoTimes>>), TestError> {
        let attempt = |setup: &mut Self, attempt| setup.echo_attempt(spec, requests, attempt);
        self.repeated(spec, attempt, |(result, _)| result)
    }

    fn own_delay(&self, family: Family, frame_bytes: u16) -> Option<OwnDelay> {
        self.own_delays.get(&(family, frame_bytes)).copied()
    }

    fn reset_trial(
        &mut self,
        spec: &TrialSpec,
        reset: &Reset,
        port: PortIndex,
        attempt: u32,
    ) -> Result<(TrialResult, ResetSeen), TestError> {
        self.reset_attempt(spec, reset, port, attempt)
    }

    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        match self.routing.bench.serve(time) {
            // The next trial finds the failure too, and is repeated then.
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
        self.routing.bench.device.memory()
    }

    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn ceiling(&self, pattern: &PatternKey) -> Option<FrameRate> {
        self.ceilings.get(pattern).copied()
    }

    fn loop_order(&self, pattern: &PatternKey) -> Option<LoopOrder> {
        self.orders.get(pattern).copied()
    }

    fn progress(&mut self, what: &str, done: u32, of: u32) {
        if drophammer_methods::find(&self.routing.bench.test).is_none_or(|method| method.may_pause()) {
            self.give_way();
        }
        self.routing.bench.observer.progress(&Progress::Step { what, done, of, left: self.left.now() });
    }

    fn note(&mut self, text: &str) {
        let note = Note {
            time: self.routing.bench.observer.time(),
            dut: Some(self.routing.bench.dut.clone()),
            text: text.to_owned(),
            problem: false,
        };
        // If a remark cannot be stored, the next trial cannot be stored either, and reports that.
        let _ = self.routing.bench.observer.record(&Record::Note(note));
        self.routing.bench.observer.progress(&Progress::Note { text, problem: false });
    }
}
