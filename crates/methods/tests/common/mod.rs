//! A testbed whose results are all known in closed form, and parameters from the defaults that tests declare.

#![allow(dead_code)] // each test program uses only a part

use drophammer_methods::pattern::Pattern;
use drophammer_methods::{CountersSeen, Facts, Known, Method, PortView, Seen, TestError, Testbed, Trial};
use drophammer_model::beside::OtherTraffic;
use drophammer_model::counters::{DutCounter, OtherFrames};
use drophammer_model::echo::EchoTimes;
use drophammer_model::latency::{LatencySummary, PERCENTILES};
use drophammer_model::management::{Answered, Answers, Question};
use drophammer_model::outcome::{Blame, Cell, Outcome, Row};
use drophammer_model::pattern::{Direction, PatternKey};
use drophammer_model::quantity::{Bandwidth, FrameRate};
use drophammer_model::suite::{Addressing, ParamValue, Params, Profile};
use drophammer_model::trial::{
    AddressRange, BetweenHosts, Bin, Family, FlowSpec, GroupCounts, Load, TrialResult, TrialSpec,
};
use std::net::IpAddr;
use std::time::Duration;

/// Within `impl Testbed` of a bed around a [`Fake`]: what that bed says of itself and takes from tests.
macro_rules! as_fake {
    ($inner:tt) => {
        fn facts(&self) -> &drophammer_methods::Facts {
            self.$inner.facts()
        }
        fn known(&mut self) -> &mut drophammer_methods::Known {
            self.$inner.known()
        }
        fn ceiling(
            &self,
            pattern: &drophammer_model::pattern::PatternKey,
        ) -> Option<drophammer_model::quantity::FrameRate> {
            drophammer_methods::Testbed::ceiling(&self.$inner, pattern)
        }
        fn progress(&mut self, what: &str) {
            self.$inner.progress(what);
        }
        fn note(&mut self, text: &str) {
            self.$inner.note(text);
        }
    };
}
pub(crate) use as_fake;

/// A simulated router and tester: every sending port sees `capacity_pps` and a buffer of `buffer` frames.
pub struct Fake {
    pub facts: Facts,
    pub known: Known,
    pub capacity_pps: f64,
    pub buffer: u64,
    /// Share of the offered load above the capacity that is still forwarded (a soft knee).
    pub beyond: f64,
    /// Share of frames lost at any load.
    pub floor: f64,
    /// Smallest latency; see [`Fake::latency`] for the other values.
    pub latency_ns: u64,
    /// Time after an overload during which frames are still lost.
    pub recovery_ns: u64,
    /// Load that the tester reaches with [`Load::Maximum`].
    pub tester_pps: f64,
    /// Share of a constant load that is actually offered.
    pub offer_share: f64,
    pub ceiling: Option<FrameRate>,
    /// Loads above this rate are unfit (the tester drops frames that it receives).
    pub unfit_above_pps: f64,
    /// Constant loads between these two rates (fps) are also unfit.
    pub unfit_band_pps: (f64, f64),
    /// Bursts with more frames than this are unfit.
    pub unfit_above_frames: u64,
    /// The trials with these numbers (from 1) lose one frame in a hundred, regardless of their load.
    pub disturbed: std::ops::Range<u64>,
    /// Time left for repeating trials that the host spoilt.
    pub time_to_repeat: Duration,
    /// Processor time in ns for each received frame, and the part of it that belongs to the tester.
    pub processor_ns: Option<(u64, Option<u64>)>,
    /// True if the ports are on hosts whose clocks do not show the latency.
    pub hides_latency: bool,
    /// If set, the trial with this number (from 1) fails with this error.
    pub fail: Option<(u64, TestError)>,
    pub trials: Vec<(TrialSpec, TrialResult)>,
    /// Number of requested trials, whether valid or not.
    pub asked: u64,
    pub settled: Duration,
    pub progress: Vec<String>,
}

fn addresses(family: Family, port: u8) -> Addressing {
    let ip = |text: String| text.parse::<IpAddr>().unwrap();
    match family {
        Family::Ipv4 => Addressing {
            dut: ip(format!("198.18.{port}.1")),
            host: ip(format!("198.18.{port}.2")),
            prefix_len: 24,
            behind: (ip(format!("198.19.{port}.0")), 24),
            destinations: AddressRange { first: ip(format!("198.19.{port}.1")), step: 1, count: 200 },
        },
        Family::Ipv6 => Addressing {
            dut: ip(format!("2001:2:0:{port}::1")),
            host: ip(format!("2001:2:0:{port}::2")),
            prefix_len: 64,
            behind: (ip(format!("2001:2:1:{port}::")), 64),
            destinations: AddressRange { first: ip(format!("2001:2:1:{port}::1")), step: 1, count: 200 },
        },
    }
}

impl Fake {
    /// Two ports of 1 Gbit/s (64 bytes: 1,488,095 fps), 300,000 fps per port, no buffer, no ceiling.
    pub fn new() -> Self {
        let port = |n: u8| PortView {
            name: format!("p{n}"),
            speed: Bandwidth(1_000_000_000),
            medium: Default::default(),
            mtu: 1500,
            ipv4: Some(addresses(Family::Ipv4, n)),
            ipv6: Some(addresses(Family::Ipv6, n)),
            vlans: vec![],
            labels: Vec::new(),
            pushed: Vec::new(),
            core: Vec::new(),
            customers: 0,
            largest_frame: 1518,
            routed: Default::default(),
        };
        Fake {
            facts: Facts { ports: vec![port(1), port(2)], ..Facts::default() },
            known: Known::default(),
            capacity_pps: 300_000.0,
            buffer: 0,
            beyond: 0.0,
            floor: 0.0,
            latency_ns: 10_000,
            recovery_ns: 0,
            tester_pps: f64::INFINITY,
            offer_share: 1.0,
            ceiling: None,
            unfit_above_pps: f64::INFINITY,
            unfit_band_pps: (0.0, 0.0),
            unfit_above_frames: u64::MAX,
            disturbed: 0..0,
            time_to_repeat: Duration::MAX,
            processor_ns: None,
            hides_latency: false,
            fail: None,
            trials: Vec::new(),
            asked: 0,
            settled: Duration::ZERO,
            progress: Vec::new(),
        }
    }

    /// The minimum is as configured. The median is 1 µs higher, the mean 2 µs, each percentile from 99.9 on 5 µs, and
    /// the maximum 9 µs.
    fn latency(&self, frames: u64) -> LatencySummary {
        if frames == 0 {
            return LatencySummary::default();
        }
        let at = |p: f64| {
            self.latency_ns
                + if p < 50.0 {
                    0
                } else if p < 99.9 {
                    1_000
                } else if p < 100.0 {
                    5_000
                } else {
                    9_000
                }
        };
        LatencySummary {
            frames,
            min_ns: self.latency_ns,
            mean_ns: (self.latency_ns + 2_000) as f64,
            max_ns: self.latency_ns + 9_000,
            percentiles: PERCENTILES.iter().map(|p| (*p, at(*p))).collect(),
        }
    }

    /// For each sending port: frames sent, frames lost, sending time, time of the last loss in ns.
    fn port(&self, spec: &TrialSpec) -> (u64, u64, f64, Option<u64>) {
        let forwarded = |sent: u64, seconds: f64| {
            let capacity = self.capacity_pps * seconds;
            let beyond = self.beyond * (sent as f64 - capacity).max(0.0);
            (capacity + beyond + 1e-6) as u64 + self.buffer.min(sent)
        };
        let share = if self.disturbed.contains(&self.asked) { 0.01 } else { self.floor };
        let floor = |sent: u64| (sent as f64 * share) as u64;
        match &spec.load {
            Load::Constant { rate_pps } => {
                let sent = (rate_pps * self.offer_share * spec.duration_s + 1e-6) as u64;
                let lost = sent.saturating_sub(forwarded(sent, spec.duration_s)).max(floor(sent));
                (sent, lost, spec.duration_s, (lost > 0).then_some((spec.duration_s * 1e9) as u64))
            }
            Load::Maximum { limit_pps } => {
                let sent = (limit_pps.min(self.tester_pps) * spec.duration_s + 1e-6) as u64;
                let lost = sent.saturating_sub(forwarded(sent, spec.duration_s)).max(floor(sent));
                (sent, lost, spec.duration_s, None)
            }
            Load::Flows => panic!("no test of a search has flows with rates of their own"),
            Load::Burst { frames, rate_pps } => {
                let seconds = *frames as f64 / rate_pps;
                (*frames, frames.saturating_sub(forwarded(*frames, seconds)), seconds, None)
            }
            Load::Steps { steps } => {
                let [over, under] = steps[..] else { panic!("two steps") };
                let sent = (over.rate_pps * over.duration_s + 1e-6) as u64;
                let lost = sent.saturating_sub(forwarded(sent, over.duration_s));
                let rest = (under.rate_pps * under.duration_s + 1e-6) as u64;
                let late = (under.rate_pps * self.recovery_ns as f64 / 1e9) as u64;
                let last = (over.duration_s * 1e9).round() as u64 + self.recovery_ns;
                let after = if lost > 0 { late } else { 0 };
                (sent + rest, lost + after, over.duration_s + under.duration_s, (lost > 0).then_some(last))
            }
        }
    }

    fn bins(&self, spec: &TrialSpec) -> Vec<Bin> {
        let (Some(width), Load::Steps { steps }) = (spec.bin_s, &spec.load) else { return Vec::new() };
        let bin = |rate: f64| Bin {
            offered: (rate * width) as u64,
            delivered: (rate.min(self.capacity_pps) * width) as u64,
            arrived: (rate.min(self.capacity_pps) * width) as u64,
        };
        steps.iter().flat_map(|s| vec![bin(s.rate_pps); (s.duration_s / width).round() as usize]).collect()
    }

    fn answer(&self, spec: &TrialSpec) -> TrialResult {
        let (sent, lost, sending_s, last_loss_ns) = self.port(spec);
        let senders = spec.senders();
        let mut groups: Vec<GroupCounts> = Vec::new();
        for sender in &senders {
            let flows: Vec<_> = spec.flows.iter().filter(|f| f.from == *sender).collect();
            let share = |total: u64, i: usize| {
                let n = flows.len() as u64;
                total / n + u64::from((i as u64) < total % n)
            };
            for (i, flow) in flows.iter().enumerate() {
                let (offered, lost) = (share(sent, i), share(lost, i));
                if !groups.iter().any(|g| g.group == flow.group) {
                    groups.push(GroupCounts { group: flow.group.clone(), ..GroupCounts::default() });
                }
                let group = groups.iter_mut().find(|g| g.group == flow.group).unwrap();
                group.intended += offered;
                group.offered += offered;
                group.lost += lost;
                group.received += offered - lost;
                group.last_loss_ns = last_loss_ns;
                group.bins = self.bins(spec);
            }
        }
        for group in &mut groups {
            group.latency = self.latency(group.received);
        }
        // After the sender stops, the buffer drains at the capacity.
        let receiving_s = sending_s.max((sent - lost) as f64 / self.capacity_pps);
        let mut result = TrialResult {
            trial: self.trials.len() as u64 + 1,
            sending_s,
            receiving_s,
            elapsed_s: receiving_s,
            groups,
            senders: senders.len() as u32,
            ..TrialResult::default()
        };
        if self.hides_latency {
            result.groups.iter_mut().for_each(|group| group.latency = LatencySummary::default());
            let unmeasurable = result.groups.iter().map(|group| group.group.clone()).collect();
            result.health.between_hosts = Some(BetweenHosts { unmeasurable, ..BetweenHosts::default() });
        }
        if let Some((used, tester)) = self.processor_ns {
            let received = result.received();
            result.health.dut_used_ns = Some(received * used);
            result.health.tester_on_dut_ns = tester.map(|tester| received * tester);
        }
        result
    }
}

impl Fake {
    fn counters(&self, spec: &TrialSpec, result: &TrialResult) -> CountersSeen {
        let sum = |of: &dyn Fn(&FlowSpec) -> bool, count: &dyn Fn(&GroupCounts) -> u64| -> u64 {
            let groups = spec.flows.iter().filter(|flow| of(flow)).map(|flow| &flow.group);
            groups.filter_map(|name| result.groups.iter().find(|g| g.group == *name)).map(count).sum()
        };
        let ports = self.facts.ports.len();
        let mut after = Vec::new();
        for port in 0..ports {
            let (into, from) = (sum(&|f| f.from == port, &|g| g.offered), sum(&|f| f.to == port, &|g| g.received));
            after.extend(DutCounter::of_port("kernel", "rx_packets", port, into));
            after.extend(DutCounter::of_port("kernel", "tx_packets", port, from));
        }
        let before = after.iter().map(|c| DutCounter { value: 0, ..c.clone() }).collect();
        let others = vec![OtherFrames::default(); ports];
        let unsure = OtherFrames::default();
        CountersSeen { before, after, sent: others.clone(), received: others, unsure }
    }
}

impl Testbed for Fake {
    fn may_repeat(&mut self, took: Duration) -> bool {
        let left = self.time_to_repeat.checked_sub(took);
        self.time_to_repeat = left.unwrap_or_default();
        left.is_some()
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    /// A router whose frame counters are right, and which answers within a millisecond.
    fn attempt(&mut self, trial: &Trial, _: u32) -> Result<Seen, TestError> {
        if trial.extra.as_ref().is_some_and(|extra| !extra.is_empty())
            || trial.routers.is_some()
            || trial.reset.is_some()
            || trial.joint
        {
            return Err(TestError::NotApplicable("this testbed sends test frames only".into()));
        }
        self.asked += 1;
        if let Some((_, error)) = self.fail.clone().filter(|(n, _)| *n == self.asked) {
            return Err(error);
        }
        let spec = &trial.spec;
        let (from, to) = self.unfit_band_pps;
        let unfit = match &spec.load {
            Load::Burst { frames, .. } => *frames > self.unfit_above_frames,
            Load::Constant { rate_pps } => *rate_pps > self.unfit_above_pps || (from..to).contains(rate_pps),
            _ => spec.steps().iter().any(|(_, rate)| rate.pps() > self.unfit_above_pps),
        };
        if unfit {
            return Err(TestError::Unfit(vec!["receive ring overflowed".into()]));
        }
        let result = self.answer(spec);
        self.trials.push((spec.clone(), result.clone()));
        let answers = Answers { asked: 3, times: vec![Duration::from_millis(1); 3] };
        let answered = |question: &Question| Answered {
            question: *question,
            over: "port p1".into(),
            during: answers.clone(),
            afterwards: answers.clone(),
        };
        let own = Duration::from_micros(1);
        let times = EchoTimes { round_trip: Duration::from_nanos(2 * self.latency_ns) + own, own };
        Ok(Seen {
            answered: trial.ask.iter().flat_map(|ask| &ask.questions).map(answered).collect(),
            echoes: vec![Some(times); trial.echo.len()],
            other: trial.extra.as_ref().map(|_| OtherTraffic::default()),
            counters: trial.counters.map(|_| self.counters(spec, &result)),
            ..result.into()
        })
    }

    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        self.settled += time;
        Ok(())
    }

    fn known(&mut self) -> &mut Known {
        &mut self.known
    }

    fn ceiling(&self, _: &PatternKey) -> Option<FrameRate> {
        self.ceiling
    }

    fn progress(&mut self, what: &str) {
        self.progress.push(what.to_owned());
    }

    fn note(&mut self, _: &str) {}
}

/// Defaults of `method` for a profile, overridden by `over`.
pub fn params(method: &dyn Method, conformant: bool, over: &[(&str, ParamValue)]) -> Params {
    let profile = if conformant { Profile::Conformant } else { Profile::Quick };
    let mut params = drophammer_suite::defaults(method.spec().params, profile);
    for (key, value) in over {
        assert!(method.spec().params.iter().any(|p| p.key == *key), "{} has no {key}", method.spec().name);
        params.0.insert((*key).into(), value.clone());
    }
    params
}

/// The parameter for these frame sizes.
pub fn size(text: &str) -> (&'static str, ParamValue) {
    ("frame_sizes", ParamValue::Sizes(text.split(' ').map(|s| s.parse().unwrap()).collect()))
}

/// A cell of the first table.
pub fn any_cell<'a>(outcome: &'a Outcome, row: usize, column: &str) -> &'a Cell {
    let table = &outcome.tables[0];
    let at = table.columns.iter().position(|c| c.key == column).unwrap_or_else(|| panic!("no column {column}"));
    &table.rows[row].cells[at]
}

/// Number in a cell of the first table.
pub fn cell(outcome: &Outcome, row: usize, column: &str) -> Option<f64> {
    match any_cell(outcome, row, column) {
        Cell::Count(n) => Some(*n as f64),
        Cell::Number(x) => Some(*x),
        Cell::None => None,
        Cell::Text(text) => panic!("{column} is the text {text}"),
    }
}

/// Rows of the first table.
pub fn rows(outcome: &Outcome) -> &[Row] {
    &outcome.tables[0].rows
}

/// Value of a rank figure.
pub fn rank(outcome: &Outcome, key: &str) -> Option<f64> {
    outcome.ranks.iter().find(|r| r.key == key).unwrap_or_else(|| panic!("no figure {key}")).value
}

/// Keys of the figures that were not measured, with the reasons. Omits figures that the router failed.
pub fn unmeasured(outcome: &Outcome) -> Vec<(&str, &str)> {
    let missing = outcome.ranks.iter().filter_map(|rank| Some((rank, rank.missing.as_ref()?)));
    missing.filter(|(_, why)| why.by != Blame::Dut).map(|(rank, why)| (rank.key.as_str(), why.why.as_str())).collect()
}

/// The pattern with frames of this size in IPv4, with both ports sending.
pub fn pattern(size: &str) -> PatternKey {
    let one_way = Pattern::one_way(size.parse().unwrap(), vec![Family::Ipv4], 0.0);
    Pattern { direction: Direction::Bidirectional, ..one_way }.key()
}

/// The test with this name.
pub fn method(name: &str) -> &'static dyn Method {
    drophammer_methods::find(name).unwrap()
}

/// Runs the test with the quick profile and the overrides `over`.
pub fn run(name: &str, bed: &mut Fake, over: &[(&str, ParamValue)]) -> (Outcome, Result<(), TestError>) {
    let mut outcome = Outcome::default();
    let params = params(method(name), false, over);
    let end = method(name).run(bed, &params, &mut outcome);
    for table in &outcome.tables {
        assert!(table.rows.iter().all(|r| r.cells.len() == table.columns.len()), "{}", table.key);
    }
    (outcome, end)
}

/// A duration as a parameter value.
pub fn secs(seconds: f64) -> ParamValue {
    ParamValue::Duration(Duration::from_secs_f64(seconds))
}
