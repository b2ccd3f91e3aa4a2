//! Simulated runs on a shared machine, whose speed changes from minute to minute: how often does a report rank equal
//! DUTs apart, and which differences does it find, if DUTs are measured one after another, by turns, or at the same
//! time?
//!
//! The time between two trials determines how much they have in common: the closer they are, the more similar is the
//! speed of the machine.

use super::simulation::Random;
use drophammer_judge::statistics::{
    Comparison, DUET_CONFIDENCE, Family, PairedRatio, Rule, Verdict, compare, ratio_of_rounds,
};
use drophammer_model::figure::{Figure, Scale};

/// What disturbs trials on a shared machine. Deviations are standard deviations of the logarithm of capacity.
#[derive(Clone, Copy)]
pub struct Host {
    pub name: &'static str,
    /// Deviation of the slowdown that affects everything running on the machine at the same time.
    pub slow: f64,
    /// Time in seconds after which the correlation of this slowdown has decreased to 1/e.
    pub correlation_s: f64,
    /// Deviation between trials, independent for each DUT.
    pub fast: f64,
    /// The same for trials in which all DUTs are measured at the same time.
    pub duet: f64,
    /// Deviation of the ratio of two DUTs between bring-ups.
    pub bring_up: f64,
}

pub const QUIET: Host = Host { name: "quiet", slow: 0.0, correlation_s: 1.0, fast: 0.01, duet: 0.01, bring_up: 0.004 };
const BUSY: Host = Host { fast: 0.03, duet: 0.02, ..QUIET };
/// The speed stays the same for about a minute, which is the case that turns are made for.
pub const SLOW: Host = Host { name: "25 %, for about 60 s", slow: 0.25, correlation_s: 60.0, ..BUSY };

/// The machines that are simulated. On the last of them, bring-ups differ by more than a duet assumes.
pub const HOSTS: &[Host] = &[
    QUIET,
    Host { name: "15 %, for about 5 s", slow: 0.15, correlation_s: 5.0, ..BUSY },
    Host { name: "15 %, for about 60 s", slow: 0.15, correlation_s: 60.0, ..BUSY },
    Host { name: "25 %, for about 5 s", slow: 0.25, correlation_s: 5.0, ..BUSY },
    SLOW,
    Host { name: "25 %, for about 60 s, bring-ups 1 %", bring_up: 0.01, ..SLOW },
    Host { name: "25 %, for about 60 s, bring-ups 3 %", bring_up: 0.03, ..SLOW },
];

/// The order in which the DUTs of a round are measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// All tests of one DUT, then all tests of the next DUT.
    OneAfterAnother,
    /// A trial of each DUT, then the next trial of each.
    Turns,
    /// All DUTs at the same time in each trial.
    Duet,
}

/// How a suite is measured.
#[derive(Clone, Copy)]
pub struct Way {
    pub name: &'static str,
    order: Order,
    rounds: usize,
    /// Number of trials of each figure in a round.
    trials: usize,
    trial_s: f64,
}

pub const ONE_AFTER_ANOTHER: Way =
    Way { name: "one after another", order: Order::OneAfterAnother, rounds: 6, trials: 3, trial_s: 0.5 };
pub const TURNS: Way = Way { name: "by turns", order: Order::Turns, ..ONE_AFTER_ANOTHER };
/// With two DUTs, each is measured for 5 s in a round, so the test takes about as long as a duet of 10 s.
pub const MORE_TURNS: Way = Way { name: "by turns, 10 trials", trials: 10, ..TURNS };
pub const DUET: Way = Way { name: "duet", order: Order::Duet, rounds: 5, trials: 10, trial_s: 1.0 };

/// Number of figures of a run: frame sizes of one test.
const SIZES: usize = 3;
/// Time that the start and the end of a DUT take.
const AROUND_TESTS_S: f64 = 3.0;
/// Time between trials, for late frames and the pause.
const BETWEEN_TRIALS_S: f64 = 0.25;
/// Time that other tests of each DUT take in a round.
const OTHER_TESTS_S: f64 = 20.0;

/// The clock of a run, and the current speed of the machine.
struct Clock {
    host: Host,
    now_s: f64,
    /// Logarithm of the speed, which is an Ornstein-Uhlenbeck process.
    slow: f64,
}

impl Clock {
    fn start(host: Host, random: &mut Random) -> Clock {
        Clock { host, now_s: 0.0, slow: host.slow * random.normal() }
    }

    fn pass(&mut self, seconds: f64, random: &mut Random) {
        let kept = (-seconds / self.host.correlation_s).exp();
        self.slow = self.slow * kept + self.host.slow * (1.0 - kept * kept).sqrt() * random.normal();
        self.now_s += seconds;
    }
}

/// Rates of all trials of a run, by DUT, frame size and round.
type Rates = Vec<Vec<Vec<Vec<f64>>>>;

/// One round of a run.
struct Round<'a> {
    way: Way,
    number: usize,
    /// Capacity of each DUT after this bring-up.
    capacities: Vec<f64>,
    rates: &'a mut Rates,
}

impl Round<'_> {
    /// Runs a trial of all these DUTs at the same time.
    fn trial(&mut self, size: usize, duts: &[usize], clock: &mut Clock, random: &mut Random) {
        // The speed in the middle of a trial is used for the whole trial, because trials are far shorter than the
        // changes.
        clock.pass(self.way.trial_s / 2.0, random);
        let own = if self.way.order == Order::Duet { clock.host.duet } else { clock.host.fast };
        for dut in duts {
            let rate = self.capacities[*dut] * (clock.slow + own * random.normal()).exp();
            self.rates[*dut][size][self.number].push(rate);
        }
        clock.pass(self.way.trial_s / 2.0 + BETWEEN_TRIALS_S, random);
    }

    fn run(&mut self, clock: &mut Clock, random: &mut Random) {
        let duts = order(self.capacities.len(), self.number);
        // Groups of DUTs that are up at the same time, and within them groups that are measured at the same time.
        let up: Vec<&[usize]> =
            duts.chunks(if self.way.order == Order::OneAfterAnother { 1 } else { duts.len() }).collect();
        for up in up {
            clock.pass(AROUND_TESTS_S * up.len() as f64, random);
            let together = if self.way.order == Order::Duet { up.len() } else { 1 };
            for size in 0..SIZES {
                for _ in 0..self.way.trials {
                    for duts in up.chunks(together) {
                        self.trial(size, duts, clock, random);
                    }
                }
            }
            clock.pass(OTHER_TESTS_S * up.len() as f64, random);
        }
    }
}

/// Order of the DUTs in a round. As in a real run, each DUT takes each place, then the order is reversed.
fn order(duts: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..duts).map(|place| (place + round) % duts).collect();
    if (round / duts) % 2 == 1 {
        order.reverse();
    }
    order
}

/// Simulates a run with DUTs of these capacities. Returns the rates, and the length of the run in seconds.
fn measure(host: Host, way: Way, truths: &[f64], random: &mut Random) -> (Rates, f64) {
    let mut rates = vec![vec![vec![Vec::new(); way.rounds]; SIZES]; truths.len()];
    let mut clock = Clock::start(host, random);
    // Each of the two DUTs contributes half of the variance of their ratio.
    let bring_up = host.bring_up / 2f64.sqrt();
    for number in 0..way.rounds {
        let capacities = truths.iter().map(|truth| truth * (bring_up * random.normal()).exp()).collect();
        Round { way, number, capacities, rates: &mut rates }.run(&mut clock, random);
    }
    (rates, clock.now_s)
}

/// Rule for rates that are measured alone, and for rates that are measured at the same time.
const RATE: Rule = Rule { scale: Scale::Ratio, higher_is_better: true, least: 0.03, resolution: 0.0 };
const DUET_RATE: Rule = Rule { least: 0.01, ..RATE };

/// Two DUTs in one figure.
struct Pair {
    a: usize,
    b: usize,
    comparison: Comparison,
    /// The ratio of the two, if they were measured in a duet.
    ratio: Option<PairedRatio>,
}

/// Compares two DUTs in a figure, as a report does.
fn pair(way: Way, rates: &Rates, size: usize, a: usize, b: usize) -> Option<Pair> {
    let (of_a, of_b) = (&rates[a][size], &rates[b][size]);
    if way.order == Order::Duet {
        let both = of_a.iter().zip(of_b);
        let rounds: Vec<Vec<(f64, f64)>> =
            both.map(|(a, b)| a.iter().copied().zip(b.iter().copied()).collect()).collect();
        let ratio = ratio_of_rounds(&rounds)?;
        let comparison = Comparison {
            rounds: ratio.observations,
            difference: ratio.ratio - 1.0,
            a_is_better: ratio.ratio > 1.0,
            p: ratio.p,
            deviation: ratio.deviation,
            matters: ratio.ratio.ln().abs() >= DUET_RATE.least.ln_1p(),
        };
        return Some(Pair { a, b, comparison, ratio: Some(ratio) });
    }
    let means = |rounds: &[Vec<f64>]| -> Vec<Option<Figure>> {
        rounds.iter().map(|trials| Some(Figure::exactly(trials.iter().sum::<f64>() / trials.len() as f64))).collect()
    };
    Some(Pair { a, b, comparison: compare(&means(of_a), &means(of_b), &RATE)?, ratio: None })
}

/// Result of one run, in which the last DUT may be slower than the others.
#[derive(Default)]
struct Run {
    /// True if any equal DUTs were ranked apart.
    any_false: bool,
    /// Comparisons of the slower DUT that find it to be slower.
    found: usize,
    /// Number of intervals of equal DUTs, and how many of them do not contain 1.
    intervals: usize,
    missed: usize,
    minutes: f64,
}

fn run(host: Host, way: Way, duts: usize, ratio: f64, random: &mut Random) -> Run {
    let mut truths = vec![1.0; duts];
    truths[duts - 1] = ratio;
    let (rates, seconds) = measure(host, way, &truths, random);
    let of_size = |size| (0..duts).flat_map(move |a| (a + 1..duts).map(move |b| (size, a, b)));
    let pairs: Vec<Pair> =
        (0..SIZES).flat_map(of_size).filter_map(|(size, a, b)| pair(way, &rates, size, a, b)).collect();
    let family = Family::new(&pairs.iter().map(|pair| pair.comparison.p).collect::<Vec<_>>());
    let mut out = Run { minutes: seconds / 60.0, ..Run::default() };
    for (index, pair) in pairs.iter().enumerate() {
        let verdict = family.verdict(index, &pair.comparison);
        if truths[pair.a] != truths[pair.b] {
            out.found += usize::from(verdict == Verdict::ABetter);
            continue;
        }
        out.any_false |= verdict != Verdict::Undecided;
        if let Some(ratio) = pair.ratio {
            out.intervals += 1;
            out.missed += usize::from(ratio.low > 1.0 || ratio.high < 1.0);
        }
    }
    out
}

/// Error rates of runs with equal DUTs.
pub struct Errors {
    /// Share of runs with at least one false rank.
    pub false_ranks: f64,
    /// Share of the intervals that do not contain 1; duets only. It should be at most 1 - [`DUET_CONFIDENCE`].
    pub missed: Option<f64>,
}

/// Maximum share of intervals of duets that may miss.
pub const MISSED_AT_MOST: f64 = 1.0 - DUET_CONFIDENCE;

/// Error rates of runs with four equal DUTs.
pub fn errors(host: Host, way: Way, runs: usize, seed: u64) -> Errors {
    let mut random = Random(seed);
    let (mut wrong, mut intervals, mut missed) = (0, 0, 0);
    for _ in 0..runs {
        let run = run(host, way, 4, 1.0, &mut random);
        wrong += usize::from(run.any_false);
        (intervals, missed) = (intervals + run.intervals, missed + run.missed);
    }
    let missed = (intervals > 0).then(|| missed as f64 / intervals as f64);
    Errors { false_ranks: wrong as f64 / runs as f64, missed }
}

/// Differences that are simulated.
pub const DIFFERENCES: [f64; 7] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5];

/// Share of the figures that detect a DUT that is slower by each of [`DIFFERENCES`], with two DUTs.
pub fn found(host: Host, way: Way, runs: usize, seed: u64) -> [f64; DIFFERENCES.len()] {
    DIFFERENCES.map(|slower| {
        let mut random = Random(seed);
        let found: usize = (0..runs).map(|_| run(host, way, 2, 1.0 - slower, &mut random).found).sum();
        found as f64 / (runs * SIZES) as f64
    })
}

/// Minimum share of the figures that must detect a difference for it to count as found.
pub const POWER: f64 = 0.8;

/// The smallest of [`DIFFERENCES`] that is found, given the result of [`found`].
pub fn smallest(found: &[f64]) -> Option<f64> {
    DIFFERENCES.iter().zip(found).find(|(_, share)| **share >= POWER).map(|(difference, _)| *difference)
}

/// Length in minutes of a run with two DUTs.
pub fn minutes(way: Way) -> f64 {
    run(QUIET, way, 2, 1.0, &mut Random(1)).minutes
}
