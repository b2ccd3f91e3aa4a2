//! Classes of service (core routers, 2001; RFC 4689, RFC 7640): who loses when a way out is too narrow for all that shall leave by it.
//!
//! The router is given classes by codepoint with a weight each, at one way out. All classes offer the same amount. First they offer less than the way
//! out carries, and none may lose a frame. Then they offer more, and what leaves must be shared by weight: a class that wants less than its share
//! loses nothing, and what it leaves is shared by the others.

mod congestion;
mod shares;

pub use shares::shares;

use crate::Method;
use crate::columns;
use crate::parameters::{AFTER_TRIAL, DRAIN, FAMILIES, IPV6_FRAME_SIZE, IPV6_SHARE, PAUSE, beside_s, params, shorter};
use crate::pattern::Pattern;
use crate::report::{
    LEAST_LOSS_PERCENT, PlotSpec, for_each_pattern, higher, lower_by_difference, note, note_of, note_unfit, percent_of,
};
use crate::table::TableSpec;
use crate::testbed::{TestError, Testbed};
use congestion::Congestion;
use drophammer_model::capabilities::Need;
use drophammer_model::classes::{EgressClasses, ServiceClass};
use drophammer_model::outcome::{Outcome, PlotKind, Point};
use drophammer_model::param::{Param, Percent};
use drophammer_model::pattern::{Direction, Distribution};
use drophammer_model::quantity::{Bandwidth, FrameRate};
use drophammer_model::registry::{FigureSpec, TestSpec};
use drophammer_model::size::PacketSize;
use drophammer_model::suite::Params;
use drophammer_model::trial::{Bin, GroupCounts, Load, TrialResult, TrialSpec};
use std::time::Duration;

/// The test.
pub struct ClassOfService;

const SIZES: Param<Vec<PacketSize>> = Param::new(
    "frame_sizes",
    "[ip40]",
    "[ip40]",
    "frame sizes with FCS, or mixes; the source has IP packets of 40 bytes",
);
const CLASSES: Param<Vec<ServiceClass>> = Param::new(
    "classes",
    "[{name: gold, precedence: 5, weight: 70}, {name: silver, precedence: 3, weight: 20}, {name: bronze, precedence: 0, weight: 5}]",
    "[{name: gold, precedence: 5, weight: 70}, {name: silver, precedence: 3, weight: 20}, {name: bronze, precedence: 0, weight: 5}]",
    "the classes: name, IP `precedence` (0 to 7) or `dscp` (0 to 63), and weight; what no class names is of the last one",
);
const BOTTLENECK: Param<Option<Bandwidth>> = Param::optional(
    "bottleneck",
    "rate of the way out that the router is told; without it the `speed` of the port by which frames leave",
);
const OVERLOAD: Param<Vec<u64>> =
    Param::new("overload", "[150]", "[150]", "loads in % of the way out, above 100; figures are of the first one");
const CALM: Param<Percent> =
    Param::new("calm", "80", "80", "load of the trial before the overload, in % of the way out");
const TOLERANCE: Param<Percent> =
    Param::new("tolerance", "1", "1", "percentage points by which the share of a class may be off");
const QUEUE: Param<u32> = Param::new("queue", "256", "256", "frames of each class that may wait");
const TRIAL_DURATION: Param<Duration> =
    Param::new("trial_duration", "2 s", "60 s", "length of a trial (RFC 2544 section 24: 60 s)");

/// Time bins of a trial.
const BINS: usize = 20;
/// Bins at its beginning in which queues fill, so that shares are not yet what they will be.
const FILLING: usize = 2;
/// A way out is full from this share of its rate on.
const FULL: f64 = 0.98;
/// What leaves beyond the rate of the way out by more than this share was not held back by it.
const EXCESS: f64 = 0.01;

static SPEC: TestSpec = TestSpec {
    name: "class_of_service",
    title: "Classes of service",
    summary: "who loses when a way out is overloaded: loss, latency and share of each class, compared with the weights of the classes",
    source: "Light Reading 2001, class of service; RFC 4689, RFC 7640",
    params: params![
        &[
            SIZES.spec(),
            FAMILIES.spec(),
            IPV6_SHARE.spec(),
            IPV6_FRAME_SIZE.spec(),
            CLASSES.spec(),
            BOTTLENECK.spec(),
            OVERLOAD.spec(),
            CALM.spec(),
            TOLERANCE.spec(),
            QUEUE.spec(),
            TRIAL_DURATION.spec()
        ],
        &AFTER_TRIAL,
    ],
    figures: &[
        FigureSpec {
            key: "class_of_service_{size}_loss_percent",
            help: "loss of the class with the highest weight under overload, in %",
        },
        FigureSpec {
            key: "class_of_service_{size}_error_points",
            help: "largest difference between the share of a class and the expected one, in percentage points",
        },
        FigureSpec {
            key: "class_of_service_{size}_pps",
            help: "frames per second of all classes that left by the overloaded way out",
        },
    ],
    needs: &[Need::Classes],
};

columns! {
    /// One class at one load. Rates are of all sending ports together.
    struct ClassRow {
        frame_size: PacketSize = "Frame size",
        protocol: String = "Protocol",
        load_percent: f64 = "Load, of the way out" ["%"],
        class: String = "Class",
        dscp: u64 = "DSCP",
        weight: u64 = "Weight",
        offered: u64 = "Offered" ["frames"],
        offered_pps: f64 = "Offered load" ["fps"],
        received: u64 = "Received" ["frames"],
        received_pps: f64 = "Forwarding rate" ["fps"],
        lost: u64 = "Lost" ["frames"],
        loss_percent: Option<f64> = "Loss" ["%"],
        share_percent: Option<f64> = "Share of all received" ["%"],
        expected_percent: Option<f64> = "Expected share" ["%"],
        error_points: Option<f64> = "Difference" ["points"],
        latency_mean_us: Option<f64> = "Mean latency" ["µs"],
        latency_p99_us: Option<f64> = "99 % latency" ["µs"],
        latency_max_us: Option<f64> = "Worst latency" ["µs"],
        jitter_us: Option<f64> = "Delay variation, 99 %" ["µs"],
        reordered: Option<u64> = "Reordered" ["frames"],
        verdict: String = "Verdict",
    }
}

const TABLE: TableSpec<ClassRow> = TableSpec::new("class_of_service", "Classes of service");
const BARS: PlotSpec = PlotSpec {
    key: "class_of_service",
    title: "Share of each class under overload",
    kind: PlotKind::Bars,
    x: "class",
    y: "% of all frames received",
    log_y: false,
};

/// What stands as verdict on a class that fared as it must.
const AS_WANTED: &str = "as it must";

/// What arrived of each class while the queues were full, and what it offered then, in frames per second.
struct Steady {
    offered: Vec<f64>,
    arrived: Vec<f64>,
}

impl Steady {
    fn of(result: &TrialResult, classes: &[ServiceClass], bin_s: f64) -> Steady {
        let of = |class: &ServiceClass, count: fn(&Bin) -> u64| {
            let bins = group(result, class).map_or(&[][..], |counts| &counts.bins);
            let bins = bins.iter().take(BINS).skip(FILLING);
            bins.map(count).sum::<u64>() as f64 / (bin_s * (BINS - FILLING) as f64)
        };
        Steady {
            offered: classes.iter().map(|class| of(class, |bin| bin.offered)).collect(),
            arrived: classes.iter().map(|class| of(class, |bin| bin.arrived)).collect(),
        }
    }

    /// `(share, expected share)` of each class in per cent of all that arrived; none where nothing did.
    fn shares(&self, classes: &[ServiceClass]) -> Option<Vec<(f64, f64)>> {
        let sum: f64 = self.arrived.iter().sum();
        let weights: Vec<f64> = classes.iter().map(|class| f64::from(class.weight)).collect();
        // Of what the router forwarded in all: how much that is, is another figure.
        let expected = shares(sum, &self.offered, &weights);
        let whole: f64 = expected.iter().sum();
        let percent = |(arrived, expected): (&f64, &f64)| (arrived / sum * 100.0, expected / whole * 100.0);
        (sum > 0.0 && whole > 0.0).then(|| self.arrived.iter().zip(&expected).map(percent).collect())
    }
}

fn group<'r>(result: &'r TrialResult, class: &ServiceClass) -> Option<&'r GroupCounts> {
    result.groups.iter().find(|counts| counts.group == class.name)
}

impl Method for ClassOfService {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        BARS.begin(outcome);
        let overloads = OVERLOAD.get(params);
        if let Some(low) = overloads.iter().find(|percent| **percent <= 100) {
            return Err(TestError::NotApplicable(format!("`overload` of {low} % is none; write loads above 100")));
        }
        note(
            outcome,
            format!(
                "All classes offer the same amount. Shares are of the frames that arrived while the last {} % of a trial were sent: before, \
                 queues fill. An expected share is what the weights give of all that arrived, where no class has more than it offers. Delay \
                 variation is from the least latency to that of 99 % of the frames (RFC 7640).",
                (BINS - FILLING) * 100 / BINS
            ),
        );
        let of_size = |size| Pattern {
            size,
            families: FAMILIES.get(params),
            mix: None,
            direction: Direction::Unidirectional,
            distribution: Distribution::NonMeshed,
            routes: 0,
            drain_s: DRAIN.seconds(params),
        };
        let patterns = SIZES.get(params).into_iter().map(|size| of_size(size).shared_out(params));
        for_each_pattern(bed, patterns.collect(), outcome, |bed, pattern, outcome, index| {
            measure(bed, pattern, params, outcome, index)
        })
    }

    fn estimate(&self, params: &Params) -> Duration {
        let trials = (SIZES.get(params).len() * (1 + OVERLOAD.get(params).len())) as f64;
        Duration::from_secs_f64(trials * TRIAL_DURATION.seconds(params) + beside_s(params, trials, 0.5))
    }

    /// What it offers follows from the way out, not from what the tester can do.
    fn patterns(&self, _params: &Params) -> Vec<Pattern> {
        Vec::new()
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let trial = shorter(params, &TRIAL_DURATION, "trials", 60.0, "RFC 2544 section 24");
        let pause = shorter(params, &PAUSE, "pause", 5.0, "RFC 2544 section 23 e");
        let drain = shorter(params, &DRAIN, "wait for late frames", 2.0, "RFC 2544 section 23 d");
        trial.into_iter().chain(pause).chain(drain).collect()
    }
}

/// One frame size: a trial without overload, then one at each overload.
fn measure(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
    index: u32,
) -> Result<(), TestError> {
    let (classes, overloads) = (CLASSES.get(params), OVERLOAD.get(params));
    let loads: Vec<f64> = std::iter::once(CALM.get(params).0).chain(overloads.iter().map(|n| *n as f64)).collect();
    let most = loads.iter().copied().fold(0.0, f64::max);
    let congestion = Congestion::new(bed.ports(), pattern, params, most)?;
    let flows = congestion.flows(bed.ports(), pattern, &classes)?;
    let queue = QUEUE.get(params);
    let (port, rate) = (congestion.to, congestion.rate);
    bed.set_classes(&[EgressClasses { port, rate, queue, classes: classes.clone() }])?;
    bed.settle(PAUSE.get(params))?;
    note_of(
        outcome,
        pattern,
        format!(
            "{} port{} send to port {}, whose way out has {rate}: {:.0} frames per second",
            congestion.from.len(),
            if congestion.from.len() == 1 { "" } else { "s" },
            bed.ports()[port].name,
            congestion.pps
        ),
    );
    let seconds = TRIAL_DURATION.seconds(params);
    // Queues that are full at the end leave at the rate of the way out.
    let emptied = f64::from(queue) * classes.len() as f64 / congestion.pps;
    let of = (SIZES.get(params).len() * loads.len()) as u32;
    for (at, percent) in loads.iter().copied().enumerate() {
        let what = format!("classes of service {}: {percent} %", pattern.size);
        bed.progress(&what, index * loads.len() as u32 + at as u32, of);
        let rate_pps = congestion.pps * percent / 100.0 / congestion.from.len() as f64;
        let result = bed.trial(&TrialSpec {
            purpose: what,
            size: pattern.size.clone(),
            flows: flows.clone(),
            load: Load::Constant { rate_pps },
            duration_s: seconds,
            bin_s: Some(seconds / BINS as f64),
            drain_s: pattern.drain_s.max(2.0 * emptied),
            events: vec![],
        });
        match result {
            Ok(result) => {
                let trial = Trial { percent, first: at == 1, result, bin_s: seconds / BINS as f64 };
                write(outcome, pattern, &classes, &congestion, TOLERANCE.get(params).0, &trial);
            }
            Err(TestError::Unfit(why)) => {
                note_unfit(outcome, pattern, &format!("{percent} % left out,"), FrameRate(rate_pps), &why);
                if at == 1 {
                    return Err(TestError::Unfit(why));
                }
            }
            Err(other) => return Err(other),
        }
        bed.settle(PAUSE.get(params))?;
    }
    bed.set_classes(&[])
}

/// A trial at one load.
struct Trial {
    percent: f64,
    /// The overload that figures are of.
    first: bool,
    result: TrialResult,
    bin_s: f64,
}

fn write(
    outcome: &mut Outcome,
    pattern: &Pattern,
    classes: &[ServiceClass],
    congestion: &Congestion,
    tolerance: f64,
    trial: &Trial,
) {
    let result = &trial.result;
    let steady = Steady::of(result, classes, trial.bin_s);
    let shares = steady.shares(classes);
    let weights: f64 = classes.iter().map(|class| f64::from(class.weight)).sum();
    let rate: f64 = steady.arrived.iter().sum();
    let overloaded = trial.percent > 100.0;
    let mut errors: Vec<f64> = Vec::new();
    for (i, class) in classes.iter().enumerate() {
        let Some(counts) = group(result, class) else { continue };
        let share = shares.as_ref().map(|shares| shares[i]);
        let error = share.map(|(share, expected)| share - expected);
        errors.extend(error.map(f64::abs));
        // What it wants is less than its weight gives it, whatever the others want.
        let content = steady.offered[i] < congestion.pps * f64::from(class.weight) / weights;
        let mut faults = Vec::new();
        if counts.lost > 0 && !overloaded {
            faults.push(format!("lost {} frames without overload", counts.lost));
        } else if counts.lost > 0 && content {
            faults.push(format!("lost {} frames, though it offers less than its share", counts.lost));
        }
        if let Some(error) = error.filter(|error| error.abs() > tolerance) {
            faults.push(format!(
                "its share is {:.2} points too {}",
                error.abs(),
                if error > 0.0 { "high" } else { "low" }
            ));
        }
        if shares.is_none() {
            faults.push("nothing arrived".into());
        }
        let mut marks = faults.clone();
        if i == 0 && overloaded && rate < congestion.pps * FULL {
            marks.push(format!("the way out carried {:.1} % of its rate only", rate / congestion.pps * 100.0));
        }
        if i == 0 && rate > congestion.pps * (1.0 + EXCESS) {
            marks.push("more left than the way out carries: it was not overloaded".into());
        }
        let wrong: u64 = counts.deviations.values().sum();
        marks.extend((wrong > 0).then(|| format!("{wrong} frames came in another encapsulation, and count as lost")));
        let latency = &counts.latency;
        let us = |ns: f64| (latency.frames > 0).then_some(ns / 1e3);
        let p99 = latency.percentile(99.0);
        TABLE.add(
            outcome,
            ClassRow {
                frame_size: pattern.size.clone(),
                protocol: pattern.protocol(),
                load_percent: trial.percent,
                class: class.name.clone(),
                dscp: class.dscp.into(),
                weight: class.weight.into(),
                offered: counts.offered,
                offered_pps: steady.offered[i],
                received: counts.received,
                received_pps: steady.arrived[i],
                lost: counts.lost,
                loss_percent: percent_of(counts.lost, counts.offered),
                share_percent: share.map(|(share, _)| share),
                expected_percent: share.map(|(_, expected)| expected),
                error_points: error,
                latency_mean_us: us(latency.mean_ns),
                latency_p99_us: p99.and_then(|ns| us(ns as f64)),
                latency_max_us: us(latency.max_ns as f64),
                jitter_us: p99.and_then(|ns| us(ns.saturating_sub(latency.min_ns) as f64)),
                reordered: counts.known_reordered(),
                verdict: if faults.is_empty() { AS_WANTED.into() } else { faults.join("; ") },
            },
            [result.trial],
            marks,
        );
        if let Some((share, expected)) = share.filter(|_| overloaded) {
            let x = trial.percent * classes.len() as f64 + i as f64;
            let label = Some(format!("{}: {} at {} %", pattern.size, class.name, trial.percent));
            BARS.curve(outcome, "received", Point { x, y: share, label: label.clone(), ..Point::default() });
            BARS.reference(outcome, "expected", Point { x, y: expected, label, ..Point::default() });
        }
    }
    // What was not overloaded shows nothing of classes: a loss of 0 would be no merit.
    if trial.first && rate > congestion.pps * (1.0 + EXCESS) {
        note_of(outcome, pattern, "no figures: more left than the way out carries, so it was not overloaded");
    } else if trial.first {
        rank(outcome, pattern, classes, result, rate, errors.into_iter().max_by(f64::total_cmp));
    }
}

/// The figures by which routers are compared.
fn rank(
    outcome: &mut Outcome,
    pattern: &Pattern,
    classes: &[ServiceClass],
    result: &TrialResult,
    rate: f64,
    error: Option<f64>,
) {
    let (size, text) = (&pattern.size, pattern.size_text());
    // The first of those with the highest weight.
    let best = classes.iter().rev().max_by_key(|class| class.weight);
    if let Some(best) = best {
        let loss = group(result, best).and_then(|counts| percent_of(counts.lost, counts.offered));
        let title = format!("Loss of class {} under overload, {text}", best.name);
        let key = format!("class_of_service_{size}_loss_percent");
        outcome.ranks.push(lower_by_difference(key, title, "%", loss, LEAST_LOSS_PERCENT));
    }
    let title = format!("Largest error of a share, {text}");
    let key = format!("class_of_service_{size}_error_points");
    outcome.ranks.push(lower_by_difference(key, title, "points", error, LEAST_POINTS));
    let title = format!("Forwarding rate of an overloaded way out, {text}");
    outcome.ranks.push(higher(format!("class_of_service_{size}_pps"), title, "fps", Some(rate)));
}

/// Errors of shares that are closer together than this, in points, are no different.
const LEAST_POINTS: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::suite::Profile;
    use drophammer_model::trial::{Health, Validity};

    /// A trial of a second at 150 % of 1,000 frames per second, of which so many arrive of each class in each bin of 25 offered ones.
    fn written(arrived: u64) -> Outcome {
        let params = Params::defaults(SPEC.params, Profile::Quick);
        let classes = CLASSES.get(&params);
        let bin = Bin { offered: 25, delivered: arrived, arrived };
        let group = |class: &ServiceClass| GroupCounts {
            group: class.name.clone(),
            offered: 500,
            received: arrived * BINS as u64,
            lost: (25 - arrived) * BINS as u64,
            bins: vec![bin; BINS],
            ..GroupCounts::default()
        };
        let result = TrialResult {
            trial: 1,
            sending_s: 1.0,
            receiving_s: 1.0,
            elapsed_s: 1.0,
            groups: classes.iter().map(group).collect(),
            health: Health::default(),
            validity: Validity::Valid,
            dut_cpu: None,
            dut_counters: Default::default(),
            senders: 1,
            ways: vec![],
            events: vec![],
            destinations: vec![],
            destination_summaries: vec![],
            losses: Default::default(),
        };
        let pattern = Pattern {
            size: "64".parse().unwrap(),
            families: vec![drophammer_model::trial::Family::Ipv4],
            mix: None,
            direction: Direction::Unidirectional,
            distribution: Distribution::NonMeshed,
            routes: 0,
            drain_s: 0.1,
        };
        let congestion = Congestion { from: vec![0], to: 1, rate: Bandwidth(672_000), pps: 1_000.0 };
        let mut outcome = Outcome::default();
        let trial = Trial { percent: 150.0, first: true, result, bin_s: 1.0 / BINS as f64 };
        write(&mut outcome, &pattern, &classes, &congestion, 1.0, &trial);
        outcome
    }

    /// A loss of 0 would be no merit of a way out that was never too narrow.
    #[test]
    fn a_way_out_that_was_not_overloaded_has_no_figures() {
        let all = written(25);
        assert!(all.ranks.is_empty(), "{:?}", all.ranks);
        assert!(all.notes.iter().any(|note| note.contains("more left than the way out carries")), "{:?}", all.notes);
        let held_back = written(16);
        assert_eq!(held_back.ranks.len(), 3, "{:?}", held_back.ranks);
    }
}
