//! Head to head: one tester floods all routers at the same time and compares them second by second.
//!
//! Other programs and a hypervisor take the same share of the processor from each router, so the ratio of two routers
//! stays constant while their rates change (duet benchmarking: Bulej and others, ICPE 2020). Each trial proves two
//! things: that every router lost frames in every tenth of a second, so none had to wait for frames; and which share of
//! the processor each router got.

mod burdens;
mod delays;
mod sample;
mod turns;

use crate::filter_lists::MOST_CONDITIONS;
use crate::kit::prelude::*;
use crate::route_tests::CONFORMANT;
use crate::route_traffic;
use crate::routed::{self, ROUTES};
use crate::testbed::Contestant;
use burdens::{LEARNED, await_installed, set_filters, with_tables};
use delays::DELAYS;
use drophammer_judge::statistics::{PairedRatio, ratio_of_pairs};
use drophammer_model::outcome::FPS_PER_PORT;
use drophammer_model::trial::FlowSpec;
use sample::{Sample, both, geometric_mean, is_even, rates_of, shared_evenly, shares};

/// The test.
pub struct HeadToHead;

const TRIAL_DURATION: Param<Duration> = Param::fixed("trial_duration", "1 s", "length of a trial, which is one pair");
const TRIALS: Param<u32> = Param::new("trials", "10", "60", "trials per frame size, and for `delay_at`");
const DELAY_AT: Param<Option<FrameRate>> = Param::optional(
    "delay_at",
    "a load, in fps per sending port, at which the latencies of all routers are also compared; choose one that every router carries while it \
     shares the processor",
);

const FILTER_CONDITIONS: Param<Option<u64>> = Param::optional(
    "filter_conditions",
    "number of conditions of a filter that every router has during the trials; the last condition permits the frames",
)
.at_most(MOST_CONDITIONS);

/// Width of the time bins in seconds.
const BIN_S: f64 = 0.1;
/// The first bins of a trial do not count, because queues fill during this time.
const WARM_UP_BINS: usize = 1;
/// The smallest difference that matters: one router varies by this much between bring-ups.
const LEAST: f64 = 0.01;

const RATE: FigureSpec = FigureSpec::higher(
    "head_to_head_{size}_pps",
    FPS_PER_PORT,
    "forwarding rate per sending port in fps, while all routers are flooded and share the processor",
);
const FRAMES_PER_CPU_S: FigureSpec = FigureSpec::higher(
    "head_to_head_{size}_frames_per_cpu_s",
    "frames/s",
    "frames forwarded during the flood per second of the router's own processor time",
);
const LATENCY: FigureSpec = FigureSpec::lower(
    "head_to_head_{size}_latency_us",
    "µs",
    "median latency at `delay_at` in µs, while all routers carry that load",
);
const TABLE_CPU: FigureSpec = FigureSpec::lower(
    "head_to_head_table_{family}_cpu_s",
    "s",
    "processor time to learn and re-advertise the table of `routes`, in s",
);

static SPEC: TestSpec = TestSpec {
    name: "head_to_head",
    title: "Head to head",
    summary: "all routers flooded at the same time: which one forwards more, and by how much, regardless of other work on the machine",
    source: "no RFC; duet benchmarking, Bulej and others (ICPE 2020); maximum offered load of RFC 2285 section 3.5.3",
    params: params![&[
        FRAME_SIZES.spec(),
        FAMILIES.spec(),
        IPV6_SHARE.spec(),
        IPV6_FRAME_SIZE.spec(),
        DIRECTION.spec(),
        TRIAL_DURATION.spec(),
        TRIALS.spec(),
        DELAY_AT.spec(),
        ROUTES.spec().needing(route_traffic::NEEDS),
        FILTER_CONDITIONS.spec().needing(&[Need::Filters]),
        PAUSE.spec(),
        DRAIN.spec(),
    ]],
    figures: &[RATE.shape(), FRAMES_PER_CPU_S.shape(), LATENCY.shape(), TABLE_CPU.shape()],
    tables: &[RATES.shape(), RATIOS.shape(), DELAYS.shape(), LEARNED.shape(), routed::SHAPE],
    needs: &[],
};

columns! {
    /// One frame size on one router, over all trials.
    struct RateRow {
        frame_size: PacketSize,
        protocol: String,
        offered_load_pps: f64 ["fps"],
        forwarding_rate_pps: f64 ["fps"],
        loss_percent: Option<f64> ["%"],
        frames_per_cpu_s: Option<f64> = "Frames per second of processor time" ["frames/s"],
        cpu_share_percent: Option<f64> = "Share of the processor" ["%"],
        saturated: u64 = "Trials in which all were saturated",
        trials: u64,
    }
}

columns! {
    /// One frame size of one router against the first router.
    struct RatioRow {
        frame_size: PacketSize,
        figure: String,
        against: String,
        ratio: f64,
        low: f64 = "At least (99 %)",
        high: f64 = "At most (99 %)",
        pairs: u64,
    }
}

const RATES: TableSpec<RateRow> = TableSpec::new("head_to_head", "Forwarding side by side");
const RATIOS: TableSpec<RatioRow> = TableSpec::new("head_to_head_ratio", "Ratio to the first router at the same time");

const OVER_TIME: PlotSpec =
    PlotSpec::new("head_to_head_rates", "Forwarding side by side, over time", PlotKind::Line, "trial", "fps per port");
const RATIO: PlotSpec =
    PlotSpec::new("head_to_head_ratio", "Ratio to the first router, over time", PlotKind::Line, "trial", "ratio");

impl Method for HeadToHead {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        // Nothing here is compared with the tester's ceiling: if a router is not saturated, its rate is a lower bound.
        Plan::times(params, FRAME_SIZES.get(params).len())
            .trials(steps(params) as usize, TRIAL_DURATION.seconds(params), 1.0)
            .counts_alone()
            .deviating(common_deviations(params))
            .deviating(fewer(params, &TRIALS, "trials per frame size", 60, CONFORMANT))
    }

    fn run(&self, _: &mut dyn Testbed, _: &Params, _: &mut Outcome) -> Result<(), TestError> {
        let why =
            "it compares routers that are up at the same time, but there is only one; add a second router to the suite";
        Err(TestError::NotApplicable(why.into()))
    }

    fn is_joint(&self) -> bool {
        true
    }

    fn run_together(&self, bed: &mut dyn Testbed, params: &Params, outcomes: &mut [Outcome]) -> Result<(), TestError> {
        for outcome in outcomes.iter_mut() {
            RATES.begin(outcome);
            RATIOS.begin(outcome);
            DELAYS.begin(outcome);
            OVER_TIME.begin(outcome);
            RATIO.begin(outcome);
            note(
                outcome,
                "All routers are flooded at the same time and share one processor, so each rate is only a part of what the router would forward \
                 alone. The result of this test is the ratio of two routers.",
            );
        }
        with_tables(bed, params, outcomes, |bed, outcomes| of_sizes(bed, params, outcomes))
    }
}

/// Runs the trials of each frame size.
fn of_sizes(bed: &mut dyn Testbed, params: &Params, outcomes: &mut [Outcome]) -> Result<(), TestError> {
    let sizes = FRAME_SIZES.get(params);
    let mut ended = Ok(());
    for (index, size) in sizes.iter().enumerate() {
        let pattern = Pattern::new(size.clone(), params);
        let size = Size { pattern: &pattern, params };
        match size.measure(bed, outcomes, index == 0) {
            Ok(()) => {}
            Err(TestError::NotApplicable(why)) => {
                outcomes.iter_mut().for_each(|outcome| note_of(outcome, &pattern, format!("not tested: {why}")));
                ended = ended.and(Err(TestError::NotApplicable(why)));
            }
            Err(TestError::Unfit(why)) => ended = ended.and(Err(TestError::Unfit(why))),
            Err(error) => return Err(error),
        }
    }
    let nothing = outcomes.iter().all(|outcome| outcome.ranks.is_empty());
    match ended {
        Err(TestError::NotApplicable(_)) if !nothing => Ok(()),
        other => other,
    }
}

/// Trials for each frame size.
fn steps(params: &Params) -> u32 {
    TRIALS.get(params) * (1 + u32::from(DELAY_AT.get(params).is_some()))
}

/// The results of trials, one per router for each, and the error that stopped them.
type Trials = (Vec<Vec<TrialResult>>, Result<(), TestError>);

/// One frame size.
struct Size<'a> {
    pattern: &'a Pattern,
    params: &'a Params,
}

impl Size<'_> {
    /// A trial of all routers, without a load yet.
    fn trial(&self, bed: &dyn Testbed, purpose: String) -> Result<TrialSpec, TestError> {
        let mut flows: Vec<FlowSpec> = Vec::new();
        for Contestant { name, ports } in &bed.facts().contestants {
            let own = self.pattern.flows(&bed.ports()[ports.clone()])?;
            flows.extend(own.into_iter().map(|flow| FlowSpec {
                group: name.clone(),
                from: flow.from + ports.start,
                to: flow.to + ports.start,
                ..flow
            }));
        }
        Ok(TrialSpec {
            purpose,
            size: self.pattern.size.clone(),
            flows,
            load: Load::Flows,
            duration_s: TRIAL_DURATION.seconds(self.params),
            bin_s: Some(BIN_S),
            drain_s: self.pattern.drain_s,
            events: vec![],
        })
    }

    /// Runs all trials. `prepare` sets the load.
    ///
    /// # Errors
    /// Any error if no trial succeeded; the error of a router that failed, even if trials before it succeeded.
    fn trials(&self, bed: &mut dyn Testbed, what: &str, prepare: impl Fn(&mut TrialSpec)) -> Result<Trials, TestError> {
        let mut results = Vec::new();
        let stopped = (0..TRIALS.get(self.params)).try_for_each(|trial| {
            bed.progress(&format!("{what}, {}", self.pattern.size_text()));
            let purpose = format!("{what} {}: trial {}", self.pattern.size, trial + 1);
            let mut spec = self.trial(bed, purpose)?;
            prepare(&mut spec);
            results.push(bed.run(&Trial { joint: true, ..Trial::new(spec) })?.each);
            bed.settle(PAUSE.get(self.params))
        });
        match stopped {
            Err(error) if results.is_empty() || matches!(error, TestError::DutDied(_) | TestError::Failed(_)) => {
                Err(error)
            }
            stopped => Ok((results, stopped)),
        }
    }

    fn measure(&self, bed: &mut dyn Testbed, outcomes: &mut [Outcome], first: bool) -> Result<(), TestError> {
        set_filters(bed, self)?;
        if first {
            await_installed(bed, self)?;
        }
        self.flood(bed, outcomes)?;
        self.delay(bed, outcomes)
    }

    fn flood(&self, bed: &mut dyn Testbed, outcomes: &mut [Outcome]) -> Result<(), TestError> {
        let names: Vec<String> = bed.facts().contestants.iter().map(|one| one.name.clone()).collect();
        let own = bed.facts().contestants.first().map_or(0..0, |one| one.ports.clone());
        let line = self.pattern.line_rate(&bed.ports()[own]);
        let flood = |spec: &mut TrialSpec| spec.load = Load::Maximum { limit_pps: line.pps() };
        let (results, stopped) = self.trials(bed, "head to head", flood)?;
        let samples: Vec<Vec<Sample>> =
            (0..names.len()).map(|dut| results.iter().map(|trial| Sample::of(&trial[dut])).collect()).collect();
        let saturated: Vec<bool> =
            (0..results.len()).map(|trial| samples.iter().all(|of_dut| of_dut[trial].saturated)).collect();
        let of_all = shares(&samples);
        // An average over all trials would hide trials in which one of the routers had other work.
        let in_trial = shared_evenly(&samples);
        let even = is_even(&of_all) && 2 * in_trial.iter().filter(|even| **even).count() > in_trial.len();
        let shared: Vec<bool> = in_trial.iter().map(|in_trial| !even || *in_trial).collect();
        for (dut, outcome) in outcomes.iter_mut().enumerate() {
            self.write_rates(outcome, &samples[dut], (&saturated, &shared), of_all[dut], even);
            if dut > 0 {
                self.write_ratios(outcome, &names[0], &samples[dut], &samples[0], (&saturated, &shared));
            }
        }
        stopped
    }

    fn write_rates(
        &self,
        outcome: &mut Outcome,
        samples: &[Sample],
        (saturated, shared): (&[bool], &[bool]),
        share: Option<f64>,
        even: bool,
    ) {
        let size = &self.pattern.size;
        let busy_alike: Vec<&Sample> =
            samples.iter().zip(shared).filter_map(|(one, shared)| shared.then_some(one)).collect();
        let per_cpu: Vec<f64> = busy_alike.iter().filter_map(|sample| sample.frames_per_cpu_s).collect();
        let all_saturated = saturated.iter().filter(|all| **all).count();
        let bound = all_saturated * 2 < saturated.len();
        let rates = match bound {
            true => samples.iter().map(|sample| sample.rate_pps).collect(),
            false => rates_of(samples, &both(saturated, shared)),
        };
        if share.is_none() {
            note_of(
                outcome,
                self.pattern,
                "each router's share of the processor is not known, so nothing proves that the shares were equal",
            );
        }
        let mut marks = Vec::new();
        if bound {
            marks.push(format!(
                "tester-limited: all routers were saturated in {all_saturated} of {} trials",
                samples.len()
            ));
        }
        if busy_alike.len() < samples.len() {
            marks.push(format!(
                "the processor was shared evenly in {} of {} trials; only these count",
                busy_alike.len(),
                samples.len()
            ));
        }
        if !even {
            marks.push("the routers did not share the processor evenly".to_owned());
            note_of(
                outcome,
                self.pattern,
                "the routers did not get the same share of the processor, so their rates are not compared; frames per second of \
                 processor time are",
            );
        }
        let per_cpu_mean = (per_cpu.len() == busy_alike.len()).then(|| geometric_mean(&per_cpu)).flatten();
        let of = |count: fn(&Sample) -> u64| samples.iter().map(count).sum::<u64>();
        RATES.add(
            outcome,
            RateRow {
                frame_size: size.clone(),
                protocol: self.pattern.protocol(),
                offered_load_pps: geometric_mean(&samples.iter().map(|s| s.offered_pps).collect::<Vec<_>>())
                    .unwrap_or(0.0),
                forwarding_rate_pps: geometric_mean(&rates).unwrap_or(0.0),
                loss_percent: percent_of(of(|s| s.lost), of(|s| s.offered)),
                frames_per_cpu_s: per_cpu_mean,
                cpu_share_percent: share.map(|share| share * 100.0),
                saturated: all_saturated as u64,
                trials: samples.len() as u64,
            },
            samples.iter().map(|sample| sample.trial).collect::<Vec<_>>(),
            marks,
        );
        for (number, sample) in (1..).zip(samples) {
            OVER_TIME.curve(outcome, &self.pattern.label(), xy_of(f64::from(number), sample.rate_pps, sample.trial));
        }
        let text = self.pattern.size_text();
        let rate = RankFigure {
            least: LEAST,
            tester_limited: bound,
            independent_of_loss: true,
            samples: if bound { Vec::new() } else { rates.clone() },
            ..RATE.of(&[("size", &size)], format!("Forwarding side by side, {text}"), geometric_mean(&rates))
        };
        if even {
            outcome.ranks.push(rate);
        }
        if per_cpu_mean.is_some() {
            let title = format!("Frames per second of processor time side by side, {text}");
            outcome.ranks.push(RankFigure {
                least: LEAST,
                independent_of_loss: true,
                samples: per_cpu,
                ..FRAMES_PER_CPU_S.of(&[("size", &size)], title, per_cpu_mean)
            });
        } else {
            note(
                outcome,
                "The routers' own processor time is not known, so frames per second of processor time are left out.",
            );
        }
    }

    fn write_ratios(
        &self,
        outcome: &mut Outcome,
        against: &str,
        own: &[Sample],
        first: &[Sample],
        (saturated, shared): (&[bool], &[bool]),
    ) {
        let pairs = || own.iter().zip(first);
        let counted = both(saturated, shared);
        let of = |samples| rates_of(samples, &counted);
        let rates: Vec<(f64, f64)> = of(own).into_iter().zip(of(first)).collect();
        let per_cpu: Vec<(f64, f64)> = pairs()
            .zip(shared)
            .filter(|(_, shared)| **shared)
            .filter_map(|((a, b), _)| a.frames_per_cpu_s.zip(b.frames_per_cpu_s))
            .collect();
        let trials: Vec<u64> = own.iter().map(|sample| sample.trial).collect();
        for (figure, pairs) in [("forwarding rate", rates), ("frames per second of processor time", per_cpu)] {
            let Some(PairedRatio { ratio, low, high, pairs, .. }) = ratio_of_pairs(&pairs) else { continue };
            let row = RatioRow {
                frame_size: self.pattern.size.clone(),
                figure: figure.into(),
                against: against.into(),
                ratio,
                low,
                high,
                pairs: pairs as u64,
            };
            RATIOS.add(outcome, row, trials.clone(), []);
        }
        for (number, (a, b)) in (1..).zip(pairs()) {
            if b.rate_pps > 0.0 {
                let point = xy_of(f64::from(number), a.rate_pps / b.rate_pps, a.trial);
                RATIO.curve(outcome, &self.pattern.label(), point);
            }
        }
    }
}
