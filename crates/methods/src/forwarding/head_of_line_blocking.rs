//! Head-of-line blocking and backpressure (RFC 2889 section 5.5, RFC 2285 section 3.7): are frames to an uncongested
//! port lost or delayed because another port is congested?
//!
//! Of four ports, the first sends alternately to the third and the fourth, and the second sends only to the fourth,
//! which thus receives one and a half times its line rate. In an earlier trial, the second port sends to the first one
//! instead, so that the router forwards the same number of frames without an overloaded line: loss in that trial is not
//! caused by congestion.

mod blocks;
mod verdict;

use crate::kit::prelude::*;
use blocks::{Aim, Block, blocks};
use drophammer_model::classes::{EgressClasses, Scheduling, ServiceClass, WayOut};
use drophammer_model::quantity::Bandwidth;
use drophammer_model::trial::GroupCounts;
use verdict::{Seen, Uncongested, judge};

/// The test.
pub struct HeadOfLineBlocking;

const TRIAL_DURATION: Param<Duration> =
    Param::new("trial_duration", "500 ms", "30 s", "length of a trial (RFC 2889 section 5.5.2: 30 s)");
const BOTTLENECK: Param<Option<Bandwidth>> = Param::optional(
    "bottleneck",
    "rate of the congested output port, as configured on the router, if links have no speed of their own; each source offers this rate",
);
const QUEUE: Param<u32> = Param::fixed("queue", "256", "queue length of an output port with `bottleneck`, in frames");
const LEAST_DELAY: Param<Duration> = Param::fixed(
    "least_delay",
    "1 ms",
    "frames count as held up if congestion raises the median latency by at least this (RFC 2285 section 3.7.3)",
);

const LOSS: FigureSpec = FigureSpec::lower_by_difference(
    "head_of_line_blocking_{size}_loss_percent",
    "%",
    "loss of frames to the uncongested port in %, in the worst block of four ports",
)
.by(LEAST_LOSS_PERCENT);

static SPEC: TestSpec = TestSpec {
    name: "head_of_line_blocking",
    title: "Head-of-line blocking",
    summary: "whether the router loses or delays frames to a free port because another port is congested, and whether it slows down its sources",
    source: "RFC 2889 section 5.5, RFC 2285 section 3.7",
    params: params![
        &[
            FRAME_SIZES.spec(),
            FAMILIES.spec(),
            BOTTLENECK.spec().needing(&[Need::Classes]),
            QUEUE.spec(),
            LEAST_DELAY.spec(),
            TRIAL_DURATION.spec()
        ],
        &AFTER_TRIAL,
    ],
    figures: &[LOSS.shape()],
    tables: &[TABLE.shape()],
    needs: &[],
};

columns! {
    /// One block of four ports. Rates are per port.
    struct BlockRow {
        frame_size: PacketSize,
        protocol: String,
        ports: String,
        intended_load_pps: f64 = "Intended load of each source" ["fps"],
        offered_load_pps: f64 = "Offered load of each source" ["fps"],
        uncongested_offered: u64 = "Offered, uncongested" ["frames"],
        uncongested_lost: u64 = "Lost, uncongested" ["frames"],
        uncongested_loss_percent: Option<f64> = "Loss, uncongested" ["%"],
        uncongested_pps: f64 = "Forwarding rate, uncongested" ["fps"],
        congested_percent: f64 = "Load of the congested port" ["%"],
        congested_lost: u64 = "Lost, congested" ["frames"],
        congested_loss_percent: Option<f64> = "Loss, congested" ["%"],
        expected_percent: Option<f64> = "Expected loss, congested" ["%"],
        congested_pps: f64 = "Forwarding rate, congested" ["fps"],
        calm_lost: u64 = "Lost without congestion" ["frames"],
        calm_latency_us: Option<f64> = "Median latency without congestion" ["µs"],
        latency_us: Option<f64> = "Median latency, uncongested" ["µs"],
        blocking: String = "Head-of-line blocking",
        backpressure: String,
    }
}

const TABLE: TableSpec<BlockRow> =
    TableSpec::new("head_of_line_blocking", "Effect of a congested port on another port");

fn patterns(params: &Params) -> Vec<Pattern> {
    let pattern = |size| Pattern::one_way(size, FAMILIES.get(params), DRAIN.seconds(params));
    FRAME_SIZES.get(params).into_iter().map(pattern).collect()
}

impl Method for HeadOfLineBlocking {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan::of(params, patterns(params))
            .trials(AIMS.len(), TRIAL_DURATION.seconds(params), 0.5)
            .deviating(common_deviations(params))
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 30.0, "RFC 2889 section 5.5.2"))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        let blocks = blocks(bed.ports().len())?;
        note(
            outcome,
            "One source sends alternately to an uncongested and a congested port, a second one to the congested port, each at line rate. \
             Loss and latency without congestion come from a trial in which the second source sends to the first one instead.",
        );
        let silent = bed.ports().len() % 4;
        if silent > 0 {
            note(outcome, format!("The number of ports is not a multiple of four: the last {silent} stay silent."));
        }
        let each = |bed: &mut dyn Testbed, pattern: &Pattern, outcome: &mut Outcome, _| {
            measure(bed, pattern, params, outcome, &blocks)
        };
        for_each_pattern(bed, patterns(params), outcome, or_spoilt(|pattern| vec![figure(pattern, None)], each))
    }
}

/// The trials, in order.
const AIMS: [Aim; 2] = [Aim::Elsewhere, Aim::Congested];

/// The load of a source, and the rate that the line of a congested port carries, in frames per second.
#[derive(Clone, Copy)]
struct Rates {
    source: FrameRate,
    line_pps: f64,
}

impl Rates {
    /// All sources and lines have the rate of the slowest port (RFC 2889 section 5.5.3: ports of the same speed), or of
    /// the bottleneck.
    fn new(pattern: &Pattern, limits: &Limits, bottleneck: Option<Bandwidth>) -> Result<Rates, TestError> {
        let line_pps = bottleneck.map_or(limits.line.pps(), |rate| {
            rate.0 as f64 / pattern.l1_bps(FrameRate(1.0), drophammer_model::Medium::Ethernet)
        });
        let source = FrameRate(line_pps.min(limits.max.pps()));
        let overload = OVERLOAD * source.pps() / line_pps;
        if overload < LEAST_OVERLOAD {
            return Err(TestError::NotApplicable(format!(
                "the tester can offer {source} per port, which is at most {:.0} % of the congested line; give a lower `bottleneck`",
                overload * 100.0
            )));
        }
        Ok(Rates { source, line_pps })
    }
}

/// Time bins of a trial. Frames that arrive after the last bin only drain a buffer and do not count in a rate.
const BINS: usize = 20;
/// Load of the congested port, as a multiple of the load of one source.
const OVERLOAD: f64 = 1.5;
/// A load below this share of a line does not reliably congest it.
const LEAST_OVERLOAD: f64 = 1.05;

/// One frame size.
fn measure(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
    blocks: &[Block],
) -> Result<(), TestError> {
    let limits = pattern.limits(bed);
    let rates = Rates::new(pattern, &limits, BOTTLENECK.get(params))?;
    let mut drain_s = pattern.drain_s;
    if let Some(rate) = BOTTLENECK.get(params) {
        let queue = QUEUE.get(params);
        // A full queue drains at the rate of the output port.
        drain_s = drain_s.max(2.0 * f64::from(queue) / rates.line_pps);
        let lists: Vec<_> = blocks.iter().map(|block| bottleneck(block.congested, rate, queue)).collect();
        bed.set(Setting::Classes(&lists))?;
        bed.settle(PAUSE.get(params))?;
    }
    let mut results: Vec<TrialResult> = Vec::new();
    for aim in AIMS {
        bed.progress(&format!("head-of-line blocking, {}", pattern.size_text()));
        let mut flows = Vec::new();
        for block in blocks {
            flows.extend(block.flows(bed.ports(), pattern, aim)?);
        }
        let what = if aim == Aim::Congested { "with congestion" } else { "without congestion" };
        let trial = bed.trial(&TrialSpec {
            purpose: format!("head-of-line blocking {}: {what}", pattern.size),
            size: pattern.size.clone(),
            flows,
            // If a router slows down its sources, they offer less; the trial is still valid.
            load: Load::Maximum { limit_pps: rates.source.pps() },
            duration_s: TRIAL_DURATION.seconds(params),
            bin_s: Some(TRIAL_DURATION.seconds(params) / BINS as f64),
            drain_s,
            events: vec![],
        });
        match trial {
            Ok(result) => results.push(result),
            Err(TestError::Unfit(why)) => {
                note_unfit(outcome, pattern, &format!("trial {what} left out,"), rates.source, &why);
                return Err(TestError::Unfit(why));
            }
            Err(other) => return Err(other),
        }
        bed.settle(PAUSE.get(params))?;
    }
    if BOTTLENECK.get(params).is_some() {
        bed.set(Setting::Classes(&[]))?;
    }
    let [calm, loaded] = &results[..] else { return Ok(()) };
    let (least, seconds) = (LEAST_DELAY.get(params), TRIAL_DURATION.seconds(params));
    write(bed, outcome, pattern, &Measured { blocks, rates, calm, loaded, least, seconds }, &limits);
    Ok(())
}

/// An output port of this rate whose second class takes all frames.
fn bottleneck(port: PortIndex, rate: Bandwidth, queue: u32) -> EgressClasses {
    let class = |name: &str, dscp| ServiceClass { name: name.into(), dscp, weight: 1 };
    // Frames that match no class belong to the last one.
    let (at, scheduling) = (WayOut::Port(port), Scheduling::Weights);
    EgressClasses { at, rate, queue, scheduling, classes: vec![class("unused", UNUSED), class("all", 0)] }
}

/// A codepoint that no frame of this test uses.
const UNUSED: u8 = 63;

/// The two trials of a frame size.
struct Measured<'a> {
    blocks: &'a [Block],
    rates: Rates,
    calm: &'a TrialResult,
    loaded: &'a TrialResult,
    least: Duration,
    /// Length of a trial.
    seconds: f64,
}

fn write(bed: &dyn Testbed, outcome: &mut Outcome, pattern: &Pattern, measured: &Measured<'_>, limits: &Limits) {
    let Measured { blocks, rates, calm, loaded, least, seconds } = measured;
    let (mut worst, mut unknown): (Option<f64>, Option<String>) = (None, None);
    for block in *blocks {
        let ports = bed.ports();
        let group = |result: &'_ TrialResult, to| counts(result, &Block::group(ports, to));
        let (free, full) = (group(loaded, block.uncongested), group(loaded, block.congested));
        let free_before = group(calm, block.uncongested);
        let forwarded =
            |counts: &GroupCounts| counts.bins.iter().take(BINS).map(|bin| bin.arrived).sum::<u64>() as f64 / seconds;
        let offered = if loaded.sending_s > 0.0 { full.offered as f64 / loaded.sending_s } else { 0.0 };
        let seen = Seen {
            calm: uncongested(&free_before),
            loaded: uncongested(&free),
            congested_lost: full.lost,
            congested_pps: forwarded(&full),
            line_pps: rates.line_pps,
            offered_pps: offered,
            sources_pps: (block.offered_pps(ports, calm), block.offered_pps(ports, loaded)),
        };
        let verdict = judge(&seen, *least);
        let overload = seen.offered_pps / seen.line_pps;
        let us = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
        let loss = percent_of(free.lost, free.offered);
        let mut marks = Vec::new();
        if rates.source.pps() < rates.line_pps * 0.999 || limits.retreated {
            marks.push(format!(
                "tester-limited: the congested port was offered {:.0} % of its line, not 150 %",
                overload * 100.0
            ));
        }
        if !verdict.congested {
            marks.push("not congested".to_owned());
        }
        if free_before.lost > 0 {
            marks.push(format!(
                "the router loses {} frames to the uncongested port without congestion",
                free_before.lost
            ));
        }
        TABLE.add(
            outcome,
            BlockRow {
                frame_size: pattern.size.clone(),
                protocol: pattern.protocol(),
                ports: block.text(ports),
                intended_load_pps: rates.source.pps(),
                offered_load_pps: seen.sources_pps.1,
                uncongested_offered: free.offered,
                uncongested_lost: free.lost,
                uncongested_loss_percent: loss,
                uncongested_pps: forwarded(&free),
                congested_percent: overload * 100.0,
                congested_lost: full.lost,
                congested_loss_percent: percent_of(full.lost, full.offered),
                expected_percent: (overload > 1.0).then(|| (1.0 - 1.0 / overload) * 100.0),
                congested_pps: seen.congested_pps,
                calm_lost: free_before.lost,
                calm_latency_us: us(seen.calm.median_ns),
                latency_us: us(seen.loaded.median_ns),
                blocking: verdict.blocking.clone(),
                backpressure: verdict.backpressure.clone(),
            },
            [calm.trial, loaded.trial],
            marks,
        );
        let text = block.text(ports);
        note_of(
            outcome,
            pattern,
            format!("{text}: head-of-line blocking {}; backpressure {}", verdict.blocking, verdict.backpressure),
        );
        unknown = unknown.or_else(|| verdict.blocking.strip_prefix("not known: ").map(str::to_owned));
        // A port that was not congested proves nothing, and loss that also occurs without congestion is not caused by
        // blocking.
        worst = worst.into_iter().chain(loss.filter(|_| verdict.counts_loss(&seen))).max_by(f64::total_cmp);
    }
    outcome.ranks.push(match worst {
        Some(_) => figure(pattern, worst),
        None => {
            let lossy = || "the router loses as many of these frames without congestion".to_owned();
            figure(pattern, None).beyond(unknown.unwrap_or_else(lossy))
        }
    });
}

fn figure(pattern: &Pattern, loss: Option<f64>) -> RankFigure {
    let title = format!("Loss to an uncongested port, {}", pattern.size_text());
    LOSS.of(&[("size", &pattern.size)], title, loss)
}

/// Counts of a group; zeros if it is missing.
fn counts(result: &TrialResult, group: &str) -> GroupCounts {
    result.groups.iter().find(|counts| counts.group == group).cloned().unwrap_or_default()
}

fn uncongested(counts: &GroupCounts) -> Uncongested {
    Uncongested { offered: counts.offered, lost: counts.lost, median_ns: counts.latency.percentile(50.0) }
}
