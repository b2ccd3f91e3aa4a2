//! Measures the tester itself, before or without a router.

use super::plan::shown;
use super::{RunError, Runner, method, own_delay};
use crate::config::joined_in_pairs;
use crate::kinds::may_have_taps;
use crate::observer::{Observer, Progress};
use crate::records::{problem_of, status_of};
use crate::route_ceiling::{self, Ceilings};
use crate::routers::RouteCeilings;
use crate::setup::{Left, TestSetup};
use crate::{real, simulated};
use drophammer_lab::receiving;
use drophammer_methods::parameters::{
    DIRECTION, DRAIN, EXTENSIONS, FAMILIES, FRAME_SIZES, IPV6_FRAME_SIZE, IPV6_SHARE, LABEL_STACK, LABELS, PAUSE,
};
use drophammer_methods::pattern::{self, Limits, Pattern, load_was_too_high};
use drophammer_methods::ping_delay::OwnDelays;
use drophammer_methods::selftest::TRIAL_DURATION;
use drophammer_methods::table::TableSpec;
use drophammer_methods::tester_ceiling::REPEATS;
use drophammer_methods::{Method, TestError, Testbed, columns, tester_ceiling};
use drophammer_model::environment::{DutRecord, TESTER, TESTER_KIND};
use drophammer_model::outcome::Outcome;
use drophammer_model::param::Percent;
use drophammer_model::quantity::FrameRate;
use drophammer_model::record::{Record, TestRecord, TestStatus, TrialRecord};
use drophammer_model::registry::Arrivals;
use drophammer_model::size::PacketSize;
use drophammer_model::suite::{DutConfig, Params, Profile, Suite, TestConfig};
use drophammer_model::trial::{Family, Load};
use drophammer_port::{Backend, SystemClock};
use drophammer_rig::{Ports, Rig};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

impl Runner<'_, '_, '_> {
    /// Measures the tester's own ceilings on a loop without a DUT, with each backend that the tests use.
    pub(super) fn ceilings(&mut self) -> Result<Ceilings, RunError> {
        let mut all = Ceilings::default();
        // A single port makes no loop, and a test on it needs no ceiling.
        if self.state.suite.ports.len() < 2 {
            return Ok(all);
        }
        let stamped = self.backend_for(Arrivals::Stamped);
        let counted = self.backend_for(Arrivals::Counted);
        if !std::ptr::eq(counted, stamped) {
            let params =
                ceiling_params(self.state.suite, |test| method(test).plan(&test.params).arrivals == Arrivals::Counted);
            if !params.is_empty() {
                all.add(self.ceilings_with(counted, params, false)?);
            }
            // All tests use the same backend on taps.
            let taps = self.state.suite.duts.iter().any(may_have_taps);
            let stamps = |test: &TestConfig| method(test).plan(&test.params).arrivals == Arrivals::Stamped;
            let params = ceiling_params(self.state.suite, |test| taps || stamps(test));
            all.add(self.ceilings_with(stamped, params, true)?);
        } else {
            all.add(self.ceilings_with(stamped, ceiling_params(self.state.suite, |_| true), true)?);
        }
        Ok(all)
    }

    /// Measures the frame ceilings of one backend. `whole` adds the ceilings of routes and the tester's own delays.
    fn ceilings_with(
        &mut self,
        backend: &'static Backend,
        params: Vec<Params>,
        whole: bool,
    ) -> Result<Ceilings, RunError> {
        let suite = self.state.suite;
        let Some(lab) = self.lab() else { return Ok(Ceilings::default()) };
        self.observer.progress(&Progress::BringUp { dut: TESTER, kind: TESTER_KIND });
        let without = match lab.loop_without_dut(&suite.ports) {
            Ok(without) => without,
            Err(e) => {
                self.note(None, &format!("the tester's ceiling could not be measured: {e}"))?;
                return Ok(Ceilings::default());
            }
        };
        if !route_ceiling::pairs(suite).is_empty()
            && let Err(e) = without.keep_segments_apart()
        {
            self.note(None, &format!("the tester's ceiling could not be measured: {e}"))?;
            return Ok(Ceilings::default());
        }
        let clock = SystemClock::start();
        let ports = match real::open_apart(&lab, without.interfaces(), backend, self.state.queues, clock) {
            Ok(ports) => Ports::real(ports, clock, self.state.processors),
            Err(e) => {
                self.note(None, &format!("the tester's ceiling could not be measured: {e}"))?;
                return Ok(Ceilings::default());
            }
        };
        let configs = &suite.ports[..ports.len()];
        let config = joined_in_pairs(configs, suite.seed);
        let record = DutRecord {
            name: TESTER.into(),
            kind: TESTER_KIND.into(),
            version: concat!("Drophammer ", env!("CARGO_PKG_VERSION")).into(),
            confinement: without.confinement().to_owned() + receiving(),
            ports: real::port_records(configs, &ports, &config, 0),
            ..DutRecord::default()
        };
        let name = ports.info(0).backend;
        self.keep(&Record::Dut(record))?;
        let mut watcher = CeilingObserver { inner: self.observer, trials: Vec::new() };
        let mut records = Vec::new();
        let mut interrupted = false;
        let (routes, own_delays) = {
            let rig = Rig::new(ports, &config);
            let device = &mut simulated::NoDut;
            let mut setup = TestSetup::new(TESTER, configs, rig, device, &mut self.state.session, &mut watcher);
            for params in params {
                let title = tester_ceiling::TesterCeiling.spec().title;
                let total = self.state.plan.iter().map(|(_, d)| *d).sum();
                let test = tester_ceiling::TesterCeiling.plan(&params).estimate(0);
                setup.begin_test(&tester_ceiling::TesterCeiling, &params, Left::new(total, test));
                let left = setup.left.now();
                let (_, of) = shown(&self.state.plan, 0);
                setup.observer().progress(&Progress::Test { dut: TESTER, title, number: 0, of, left });
                let mut outcome = Outcome::default();
                let begun = Instant::now();
                let result = tester_ceiling::TesterCeiling.run(&mut setup, &params, &mut outcome);
                interrupted |= matches!(result, Err(TestError::Interrupted));
                let status = status_of(&result);
                let problem = problem_of(&status);
                setup.observer().progress(&Progress::TestEnded { dut: TESTER, title, problem });
                records.push(Record::Test(Box::new(TestRecord {
                    dut: TESTER.into(),
                    round: 1,
                    test: "tester_ceiling".into(),
                    id: None,
                    title: title.into(),
                    parameters: params.to_json(),
                    elapsed_s: begun.elapsed().as_secs_f64(),
                    status,
                    outcome,
                })));
            }
            let after = self.state.plan.iter().map(|(_, d)| *d).sum();
            let mut routes = RouteCeilings::new();
            if whole && !interrupted {
                let (found, record, stopped) = route_ceiling::measure(&mut setup, suite, configs, after);
                interrupted |= stopped;
                records.extend(record);
                routes = found;
            }
            let mut own_delays = OwnDelays::new();
            if whole && !interrupted {
                let (found, record, stopped) = own_delay::measure(&mut setup, suite, configs, after);
                interrupted |= stopped;
                records.extend(record);
                own_delays = found;
            }
            (routes, own_delays)
        };
        let trials = std::mem::take(&mut watcher.trials);
        for record in &records {
            self.keep(record)?;
        }
        if let Err(e) = without.take_down() {
            self.note(None, &format!("the loop could not be removed: {e}"))?;
        }
        if interrupted || self.observer.stopped() {
            return Err(RunError::Interrupted);
        }
        let measured = || trials.iter().map(|t| (&t.spec, &t.result));
        let (frames, orders) = (tester_ceiling::ceilings(measured()), tester_ceiling::orders(measured()));
        Ok(Ceilings { frames: BTreeMap::from([(name.to_owned(), frames)]), orders, own_delays, routes })
    }
}

/// Returns the ceilings to measure: one run of the ceiling test for each pattern of families and direction, with all its sizes.
pub(super) fn ceiling_params(suite: &Suite, of: impl Fn(&TestConfig) -> bool) -> Vec<Params> {
    let mut found: Vec<Params> = Vec::new();
    let tests = suite.tests.iter().filter(|test| of(test));
    let patterns = tests.flat_map(|test| method(test).plan(&test.params).patterns).map(|p| p.on_loop());
    for Pattern { size, families, mix, direction, labels, extensions, .. } in patterns {
        let extensions = (!extensions.is_empty()).then_some(extensions);
        let share = mix.as_ref().map(|mix| Percent(mix.percent(Family::Ipv6)));
        let ipv6_size = mix.map(|mix| mix.ipv6_size);
        let same = |p: &&mut Params| {
            let traffic = (FAMILIES.get(p), IPV6_SHARE.get(p), IPV6_FRAME_SIZE.get(p), DIRECTION.get(p));
            let headers = (pattern::labels(p), EXTENSIONS.get(p));
            traffic == (families.clone(), share, ipv6_size.clone(), direction)
                && headers == (labels, extensions.clone())
        };
        match found.iter_mut().find(same) {
            Some(params) => {
                let mut all = FRAME_SIZES.get(params);
                if !all.contains(&size) {
                    all.push(size);
                }
                FRAME_SIZES.set(params, all);
            }
            None => {
                let (duration, repeats, drain) = match suite.profile {
                    Profile::Quick => (Duration::from_millis(500), 3, Duration::from_millis(200)),
                    Profile::Conformant => (Duration::from_secs(10), 5, Duration::from_secs(2)),
                };
                let mut params = Params::default();
                FRAME_SIZES.set(&mut params, vec![size]);
                FAMILIES.set(&mut params, families);
                IPV6_SHARE.set(&mut params, share);
                IPV6_FRAME_SIZE.set(&mut params, ipv6_size);
                DIRECTION.set(&mut params, direction);
                EXTENSIONS.set(&mut params, extensions);
                LABELS.set(&mut params, labels.map(|labels| labels.operation));
                LABEL_STACK.set(&mut params, labels.map_or(1, |labels| labels.sent.into()));
                TRIAL_DURATION.set(&mut params, duration);
                REPEATS.set(&mut params, repeats);
                DRAIN.set(&mut params, drain);
                // A loop needs no pause to settle.
                PAUSE.set(&mut params, Duration::ZERO);
                found.push(params);
            }
        }
    }
    found
}

/// Collects the trials of the ceiling test while they are stored.
pub(super) struct CeilingObserver<'a> {
    pub(super) inner: &'a mut dyn Observer,
    pub(super) trials: Vec<TrialRecord>,
}

impl Observer for CeilingObserver<'_> {
    fn record(&mut self, record: &Record) -> Result<(), String> {
        if let Record::Trial(trial) = record {
            self.trials.push((**trial).clone());
        }
        self.inner.record(record)
    }
    fn progress(&mut self, progress: &Progress<'_>) {
        self.inner.progress(progress);
    }
    fn stopped(&self) -> bool {
        self.inner.stopped()
    }
    fn time(&self) -> String {
        self.inner.time()
    }
}

columns! {
    /// Result for one frame size.
    struct OfferedRow {
        frame_size: PacketSize,
        protocol: String,
        offered_pps: f64 ["fps"],
    }
}

const OFFERED: TableSpec<OfferedRow> =
    TableSpec::new("offered_load", "What the tester can offer on these ports, per sending port");

/// Returns the ceiling of a tester that was asked for line rate and offered this rate: none if only the line limited it.
fn sending_ceiling(limits: &Limits, offered: FrameRate) -> Option<FrameRate> {
    (!limits.at_line_rate(offered)).then_some(offered)
}

/// Factor by which the load is reduced while the tester cannot receive what the DUT forwards.
const RETREAT: f64 = 0.8;
/// Number of reductions before giving up: down to 3 % of line rate.
const RETREATS: i32 = 16;

/// Calls `offer` with line rate, and with lower rates as long as the load is too high for the tester.
fn retreating<T>(line: FrameRate, mut offer: impl FnMut(f64) -> Result<T, TestError>) -> Result<T, TestError> {
    let mut retreats = 0;
    loop {
        match offer(line.pps() * RETREAT.powi(retreats)) {
            Err(TestError::Unfit(why)) if retreats < RETREATS && load_was_too_high(&why) => retreats += 1,
            other => return other,
        }
    }
}

/// Measures what the tester can send through these ports if no loop provides a ceiling: it sends into the DUT as fast
/// as the ports accept, and less if the tester cannot receive what the DUT forwards. The result limits the loads of
/// tests, unless it is line rate. It does not show what the tester could receive from a faster DUT.
pub(super) fn sending_ceilings(setup: &mut TestSetup<'_>, dut: &DutConfig, suite: &Suite) -> Result<(), TestError> {
    setup.begin_own("offered_load", setup.left);
    let begun = Instant::now();
    let mut found = BTreeMap::new();
    let mut outcome = Outcome::default();
    OFFERED.begin(&mut outcome);
    for params in ceiling_params(suite, |_| true) {
        for size in FRAME_SIZES.get(&params) {
            let pattern = Pattern::new(size, &params);
            let limits = pattern.limits(setup);
            let purpose = format!("what the tester can offer, {}", pattern.size_text());
            let seconds = TRIAL_DURATION.seconds(&params);
            let offered = retreating(limits.line, |limit_pps| {
                let load = Load::Maximum { limit_pps };
                let spec = pattern.trial(setup.ports(), purpose.clone(), load, seconds)?;
                setup.trial(&spec)
            });
            match offered {
                Ok(result) => {
                    let offered = result.offered_load();
                    found.extend(sending_ceiling(&limits, offered).map(|ceiling| (pattern.key(), ceiling)));
                    let row = OfferedRow {
                        frame_size: pattern.size.clone(),
                        protocol: pattern.protocol(),
                        offered_pps: offered.pps(),
                    };
                    OFFERED.add(&mut outcome, row, [result.trial], []);
                }
                // The tests refuse sizes that these ports cannot carry.
                Err(TestError::NotApplicable(_)) => {}
                Err(e) => return Err(e),
            }
        }
    }
    setup.facts_mut().ceilings = found;
    let record = Record::Test(Box::new(TestRecord {
        dut: dut.name.clone(),
        round: setup.bench().session.round,
        test: setup.bench().test.clone(),
        id: None,
        title: "Offered load".into(),
        parameters: serde_json::Value::Null,
        elapsed_s: begun.elapsed().as_secs_f64(),
        status: TestStatus::Completed,
        outcome,
    }));
    setup.observer().record(&record).map_err(TestError::Store)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_judge::held_up::HOST_BUSY;
    use drophammer_model::Medium;

    #[test]
    fn a_tester_that_offers_line_rate_has_no_ceiling() {
        let line = FrameRate(10_000.0);
        let limits = Limits { line, medium: Medium::default(), ceiling: None, max: line, retreated: false };
        assert_eq!(sending_ceiling(&limits, FrameRate(9_995.0)), None);
        assert_eq!(sending_ceiling(&limits, FrameRate(9_900.0)), Some(FrameRate(9_900.0)));
    }

    #[test]
    fn a_tester_that_cannot_receive_line_rate_offers_less() {
        let line = FrameRate(10_000.0);
        let unfit = || TestError::Unfit(vec!["frames were lost in its own receive path".into()]);
        let most = retreating(line, |pps| if pps > 7_000.0 { Err(unfit()) } else { Ok(pps) });
        assert_eq!(most.unwrap().round(), 6_400.0);
        let mut trials = 0;
        let none = retreating(line, |_| -> Result<(), _> {
            trials += 1;
            Err(unfit())
        });
        assert!(matches!(none, Err(TestError::Unfit(_))) && trials == RETREATS + 1, "{none:?}, {trials} trials");
        // A busy host proves nothing about the load.
        let busy =
            retreating(line, |_| -> Result<(), _> { Err(TestError::Unfit(vec![format!("{HOST_BUSY}: rustc")])) });
        assert!(matches!(&busy, Err(TestError::Unfit(why)) if !load_was_too_high(why)), "{busy:?}");
        // Only the tester's own faults depend on the load.
        let died = retreating(line, |pps| match pps < line.pps() {
            true => Ok(()),
            false => Err(TestError::DutDied("killed".into())),
        });
        assert!(matches!(died, Err(TestError::DutDied(_))), "{died:?}");
    }
}
