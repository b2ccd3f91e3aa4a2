//! A device in a separate process on a bed, and the counts of tester and device for the same trial.

use super::{Checked, check};
use drophammer_lab::{Dut, Lab, LabError, Links, ProgramDut, Usage};
use drophammer_methods::{METHODS, Testbed};
use drophammer_model::environment::DutRecord;
use drophammer_model::record::Record;
use drophammer_model::registry::Registry;
use drophammer_model::suite::Suite;
use drophammer_model::trial::{Family, FlowSpec, GroupCounts, Load, TrialResult, TrialSpec};
use drophammer_port::priority::HighPriority;
use drophammer_port::{INTERFACE_BACKENDS, SystemClock};
use drophammer_reference::{Config, Faults, PortCounters, Truth};
use drophammer_rig::{Ports, Rig};
use drophammer_suite::{Overrides, read};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::{Observer, Progress, Session, config, device, kinds, real, simulated};
use drophammer_traffic::{Plan, Timing};
use drophammer_wire::signature::TrialKey;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The environment in which a case runs.
pub struct Bench<'a> {
    pub lab: &'a Lab,
    pub links: Links,
}

/// Two ports and a reference device.
pub fn suite() -> Suite {
    let text = "suite: known\nseed: 11\nduts: [{name: box, kind: reference}]\nports: [{name: p1, speed: 1 Gbit/s}, {name: p2, speed: 1 Gbit/s}]\n\
                tests: [throughput]\n";
    let tests: Vec<_> = METHODS.iter().map(|m| m.spec()).collect();
    let kinds = kinds::specs();
    let registry = Registry { tests: &tests, kinds: &kinds };
    let once = Overrides { rounds: Some(1), ..Overrides::default() };
    read::read(text, "known.yaml", &registry, &once).unwrap_or_else(|e| panic!("{e:?}"))
}

/// The device of the bed, to which the bench also sends requests.
struct Shared(Rc<RefCell<ProgramDut>>);

impl Dut for Shared {
    fn record(&self) -> DutRecord {
        self.0.borrow().record()
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.0.borrow_mut().check()
    }

    fn forwards(&mut self) -> Result<(), LabError> {
        self.0.borrow_mut().forwards()
    }

    fn usage(&mut self) -> Option<&mut dyn Usage> {
        Some(self)
    }
}

impl Usage for Shared {
    fn cpu_time(&mut self) -> Option<Duration> {
        self.0.borrow_mut().cpu_time()
    }
}

/// An observer that ignores everything, because the bed's own records are not tested here.
struct Nobody;

impl Observer for Nobody {
    fn record(&mut self, _: &Record) -> Result<(), String> {
        Ok(())
    }

    fn progress(&mut self, _: &Progress<'_>) {}

    fn stopped(&self) -> bool {
        false
    }

    fn time(&self) -> String {
        String::new()
    }
}

/// A device that is up, and the bed that tests it.
pub struct Up<'a> {
    pub bed: TestSetup<'a>,
    device: Rc<RefCell<ProgramDut>>,
    earlier: Vec<TrialKey>,
    links: Links,
}

/// Counts of the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    pub truth: Truth,
    pub ports: [PortCounters; 2],
    /// Longest time for which a frame waited for the device's process since the last query.
    pub longest_wait_ns: u64,
}

/// One trial, as counted by tester and device.
pub struct Story {
    pub result: TrialResult,
    pub before: Told,
    pub after: Told,
    /// Counts of frames are exact unless tester or device are delayed for longer than this.
    exact_ns: u64,
}

/// The basis of a judgement, which determines how delays caused by the machine can spoil the judgement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rests {
    /// Numbers of frames.
    OnCounts,
    /// Arrival times of frames.
    OnTimes,
}

/// First word of a judge's message about a trial that proves nothing because the machine delayed the device.
pub const DISTURBED: &str = "disturbed: ";
/// Tester and device sometimes lose the processor for milliseconds; after a delay of this length, times cannot be
/// judged. Counts stay exact regardless of the delay, unless frames are still in flight when the trial ends.
const HELD_UP_NS: u64 = 50_000_000;
/// Minimum step of the wall clock, the source of the kernel's arrival timestamps, that has a visible effect.
const CLOCK_STEP_NS: u64 = 1_000_000;
/// Maximum number of trials until one is undisturbed.
pub const ATTEMPTS: u32 = 8;

impl Bench<'_> {
    /// Brings up a device, changed by `change`, that never forgets a neighbour. Calls `use_it` when the device
    /// forwards.
    pub fn with(&self, change: impl FnOnce(&mut Config), use_it: impl FnOnce(&mut Up<'_>) -> Checked) -> Checked {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (suite, text) = (suite(), |e: LabError| e.to_string());
        let mut config = simulated::config(&suite.duts[0], &suite.ports, suite.seed);
        config.neighbour_lifetime = None;
        config.delay = Duration::ZERO;
        change(&mut config);
        let (dut, ports) = (&suite.duts[0], &suite.ports);
        let up = device::bring_up_with(self.lab, dut, ports, folder.path(), self.links, config, &|| false);
        let device = Rc::new(RefCell::new(up.map_err(text)?));
        let interfaces = device.borrow().interfaces().to_vec();
        let clock = SystemClock::start();
        let open = real::open(self.lab, &interfaces, &INTERFACE_BACKENDS[0], 1, clock)?;
        let hosts = config::hosts(ports, &[Family::Ipv4, Family::Ipv6], suite.seed);
        let rig = Rig::new(Ports::real(open, clock, &[]), &hosts);
        let mut session = Session::new(suite.seed, suite.profile, u64::from(std::process::id()));
        session.tolerance.host = drophammer_testbed::validity::HostTolerance::ANY;
        let mut observer = Nobody;
        let mut shared = Shared(device.clone());
        let mut bed = TestSetup::new(&dut.name, ports, rig, &mut shared, &mut session, &mut observer);
        bed.await_forwarding(&[Family::Ipv4, Family::Ipv6]).map_err(|e| e.to_string())?;
        let mut up = Up { bed, device: device.clone(), earlier: Vec::new(), links: self.links };
        let result = use_it(&mut up).and_then(|()| device.borrow_mut().check().map_err(text));
        drop(up);
        drop(shared);
        let device = Rc::into_inner(device).ok_or("the device is still in use")?.into_inner();
        result.and(Box::new(device).take_down().map_err(text))
    }
}

impl Up<'_> {
    /// Sends a line to the device.
    pub fn ask(&self, line: &str) -> Result<serde_json::Value, String> {
        self.device.borrow_mut().ask(line).map_err(|e| e.to_string())
    }

    pub fn told(&self) -> Result<Told, String> {
        let all = self.ask("counters")?;
        let port = |i: &str| serde_json::from_value(all[i].clone()).map_err(|e| e.to_string());
        let truth = serde_json::from_value(all["truth"].clone()).map_err(|e| e.to_string())?;
        let longest_wait_ns = self.ask("wait")?.as_u64().ok_or("no longest wait")?;
        Ok(Told { truth, ports: [port("d0")?, port("d1")?], longest_wait_ns })
    }

    /// IPv4 test frames of 64 bytes in one flow from port 0 to port 1, or both families in both directions.
    pub fn spec(&self, both: bool, rate_pps: f64, duration_s: f64) -> TrialSpec {
        let views = self.bed.ports();
        let directions: &[(usize, usize)] = if both { &[(0, 1), (1, 0)] } else { &[(0, 1)] };
        let families: &[Family] = if both { &[Family::Ipv4, Family::Ipv6] } else { &[Family::Ipv4] };
        let flow = |from: usize, to: usize, family: Family| {
            let range = |port: usize| views[port].addressing(family).unwrap().destinations;
            let group = family.to_string();
            FlowSpec::new(group, from, to, range(from), range(to))
        };
        let flows = directions.iter().flat_map(|(from, to)| families.iter().map(|f| flow(*from, *to, *f))).collect();
        let size = if both { "78" } else { "64" };
        TrialSpec {
            purpose: "known answers".into(),
            size: size.parse().unwrap(),
            flows,
            load: Load::Constant { rate_pps },
            duration_s,
            bin_s: None,
            drain_s: 0.25,
            events: vec![],
        }
    }

    /// Runs a trial with these faults from its beginning. Unlike a trial of the bed, it is never repeated and leaves no
    /// frame unsent, even if the machine delays the tester: it catches up at 1.2 times the rate.
    pub fn story(&mut self, spec: &TrialSpec, faults: &Faults) -> Result<Story, String> {
        let bed = &mut self.bed;
        // Earlier requests of the device do not belong to this trial.
        bed.settle(Duration::ZERO).map_err(|e| e.to_string())?;
        let key = TrialKey::new(u64::from(std::process::id()), 1 << 32 | self.earlier.len() as u64);
        let earlier = self.earlier.iter().rev().take(8).copied().collect();
        let timing = Timing { seed: 11, key, earlier, max_backlog_ns: 3_600_000_000_000, late_ns: 1_000_000_000 };
        let plan = Plan::new(spec, &bed.rig().hosts().neighbours(), &timing).map_err(|e| e.to_string())?;
        self.earlier.push(key);
        let before = self.told()?;
        self.ask(&format!("faults {}", serde_json::to_string(faults).map_err(|e| e.to_string())?))?;
        let bed = &mut self.bed;
        let priority = HighPriority::new();
        let result = bed.rig().start_plan(plan, vec![]).and_then(|_| bed.rig().finish(&|| false));
        drop(priority);
        let after = self.told()?;
        self.ask("faults {}")?;
        // On virtual links every lost frame is counted, so only frames that are still in flight are missing. A tap
        // drops frames that a delayed device does not fetch, and nothing counts them.
        let exact_ns = if self.links == Links::Veth { (spec.drain_s * 1e9) as u64 } else { HELD_UP_NS };
        let story = Story { result: result.map_err(|e| e.to_string())?, before, after, exact_ns };
        story.accounted().map_err(|e| story.blamed(e, Rests::OnCounts))?;
        Ok(story)
    }

    /// Repeats [`Up::story`] until a trial loses frames only by the device's faults, at lower rates if the machine is
    /// too busy. Then calls `judge`, which examines counts of frames.
    pub fn undisturbed(&mut self, spec: TrialSpec, faults: &Faults, judge: impl FnMut(&Story) -> Checked) -> Checked {
        self.judged(spec, faults, Rests::OnCounts, judge)
    }

    /// Like [`Up::undisturbed`], for a `judge` that also examines times.
    pub fn undisturbed_in_time(
        &mut self,
        spec: TrialSpec,
        faults: &Faults,
        judge: impl FnMut(&Story) -> Checked,
    ) -> Checked {
        self.judged(spec, faults, Rests::OnTimes, judge)
    }

    fn judged(
        &mut self,
        mut spec: TrialSpec,
        faults: &Faults,
        rests: Rests,
        mut judge: impl FnMut(&Story) -> Checked,
    ) -> Checked {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let verdict = self.story(&spec, faults).and_then(|story| match story.disturbance() {
                None => judge(&story).map_err(|e| story.blamed(e, rests)),
                Some(what) => Err(format!("{DISTURBED}{what}")),
            });
            match verdict {
                Err(e) if e.starts_with(DISTURBED) => last = e,
                other => return other,
            }
            if let Load::Constant { rate_pps } = &mut spec.load {
                *rate_pps *= 0.7;
            }
        }
        Err(format!("no trial of {ATTEMPTS} was undisturbed; the last: {last}"))
    }
}

impl Story {
    pub fn sum(&self, count: impl Fn(&GroupCounts) -> u64) -> u64 {
        self.result.sum(count)
    }

    pub fn offered(&self) -> u64 {
        self.sum(|g| g.offered)
    }

    pub fn received(&self) -> u64 {
        self.sum(|g| g.received)
    }

    /// By how much a figure of the device has increased.
    pub fn grew(&self, figure: impl Fn(&Truth) -> u64) -> u64 {
        figure(&self.after.truth) - figure(&self.before.truth)
    }

    /// Frames that were lost for another reason than the device's faults, because the machine did not keep up.
    pub fn beside(&self) -> u64 {
        self.sum(|g| g.refused) + self.grew(|t| t.receive_overflow + t.transmit_refused)
    }

    /// Formats a complaint. It is marked as the machine's fault if the machine delayed tester or device long enough to
    /// cause it.
    pub fn blamed(&self, complaint: String, rests: Rests) -> String {
        if complaint.starts_with(DISTURBED) {
            return complaint;
        }
        let (health, wait) = (&self.result.health, self.after.longest_wait_ns);
        let (gap, step) = (health.max_gap_ns, health.clock_step_ns);
        // A shorter delay can already overflow a receive ring, which the kernel counts.
        let patience = match rests {
            Rests::OnCounts if health.receive_drops == 0 => self.exact_ns,
            _ => HELD_UP_NS,
        };
        let clock_set = rests == Rests::OnTimes && step.unsigned_abs() > CLOCK_STEP_NS;
        if gap.max(wait) > patience || clock_set {
            return format!(
                "{DISTURBED}tester held up {gap} ns, device {wait} ns, clock set by {step} ns: {complaint}"
            );
        }
        complaint
    }

    fn disturbance(&self) -> Option<String> {
        let (overflow, back) = (self.grew(|t| t.receive_overflow), self.grew(|t| t.transmit_refused));
        let refused = self.sum(|g| g.refused);
        (self.beside() > 0).then(|| {
            format!(
                "of {} frames {refused} were refused by the device's links, {overflow} lost before the device, {back} \
                 refused to it",
                self.offered()
            )
        })
    }

    /// Checks that tester and device account for every frame.
    pub fn accounted(&self) -> Checked {
        let (b, a) = (&self.before.truth, &self.after.truth);
        let health = &self.result.health;
        for g in &self.result.groups {
            check(g.offered == g.received + g.lost && g.refused <= g.lost, || format!("{g:?}"))?;
            check(g.latency.frames == g.received, || format!("{g:?}"))?;
        }
        check(self.offered() == self.result.intended(), || format!("{} frames unsent", health.unsent))?;
        check(health.receive_drops == 0, || format!("the tester lost {}", health.receive_drops))?;
        check(a.queued == 0 && b.queued == 0, || format!("{} frames are still in the device", a.queued))?;
        let transit = self.grew(|t| t.transit);
        let into = self.offered() - self.sum(|g| g.refused) - self.grew(|t| t.receive_overflow);
        check(into == transit, || format!("{into} frames went to the device, which saw {transit}: {a:?}"))?;
        let left = self.grew(|t| t.forwarded);
        let inside = transit + self.grew(|t| t.duplicated) - self.grew(|t| t.dropped.total());
        check(inside == left, || format!("{inside} frames ought to have left the device, which sent {left}: {a:?}"))?;
        let seen = self.received() + self.sum(|g| g.duplicated + g.corrupted + g.stray) + health.stale;
        let back = left - self.grew(|t| t.transmit_refused);
        check(seen == back, || format!("{back} frames came back, {seen} were counted: {:?} {a:?}", self.result))
    }

    /// The account as lines for people.
    pub fn account(&self) -> String {
        let g = |count: fn(&GroupCounts) -> u64| self.sum(count);
        format!(
            "{} offered + {} copies = {} received + {} duplicates + {} corrupted + {} stray + {} stale + {} dropped by the \
             device + {} refused by its links + {} lost before it + {} refused to it",
            self.offered(),
            self.grew(|t| t.duplicated),
            self.received(),
            g(|g| g.duplicated),
            g(|g| g.corrupted),
            g(|g| g.stray),
            self.result.health.stale,
            self.grew(|t| t.dropped.total()),
            g(|g| g.refused),
            self.grew(|t| t.receive_overflow),
            self.grew(|t| t.transmit_refused),
        )
    }
}
