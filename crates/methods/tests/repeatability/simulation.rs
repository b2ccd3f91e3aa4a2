//! Simulated runs with known true figures of all DUTs: how often does a report rank equal DUTs apart, do its intervals
//! contain the true value, and which differences does it find?
//!
//! Noise acts on trials. A trial loses the frames that a router of the given capacity cannot forward, and those that do
//! not fit into its queue during a stall. Throughput is searched with these trials as in a run.

use drophammer_judge::statistics::{
    Comparison, Family, Rule, Test, Verdict, compare, compare_by, compare_unpaired, summarize,
};
use drophammer_methods::mlrsearch::{Budget, Measurement, Search, SearchGoal};
use drophammer_model::figure::{Figure, Scale};

/// Pseudo-random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random number, uniform from above 0 to 1.
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }

    /// Random number of events with this `mean`, up to a few dozen.
    fn events(&mut self, mean: f64) -> u32 {
        let (limit, mut product, mut events) = ((-mean).exp(), self.share(), 0);
        while product > limit {
            product *= self.share();
            events += 1;
        }
        events
    }

    fn of<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[(self.next() % values.len() as u64) as usize]
    }
}

/// Disturbances by the machine that runs the routers.
#[derive(Clone, Copy)]
pub struct Noise {
    pub name: &'static str,
    /// Standard deviation of the logarithm of capacity between bring-ups.
    pub bring_up: f64,
    /// Standard deviation of the logarithm of capacity between trials.
    pub trial: f64,
    /// Factor by which the machine changes from the first round to the last, for all DUTs.
    pub drift: f64,
    /// Number of stalls of the router per second.
    pub stalls: f64,
    /// Median length of a stall, in seconds.
    pub stall_s: f64,
    /// Probability that another program uses a third of the processor during a bring-up.
    pub neighbour: f64,
    /// True if capacities are drawn from the recorded capacities.
    pub recorded: bool,
}

const QUIET: Noise = Noise {
    name: "",
    bring_up: 0.01,
    trial: 0.01,
    drift: 1.0,
    stalls: 0.0,
    stall_s: 0.001,
    neighbour: 0.0,
    recorded: false,
};

/// The kinds of noise that are simulated.
pub const NOISES: &[Noise] = &[
    Noise { name: "1 % from bring-up to bring-up", ..QUIET },
    Noise { name: "5 % from bring-up to bring-up", bring_up: 0.05, ..QUIET },
    Noise { name: "machine gets slower by 30 %", drift: 0.7, bring_up: 0.02, ..QUIET },
    Noise { name: "held off twice a second for 1 ms", stalls: 2.0, ..QUIET },
    Noise { name: "held off now and then for 20 ms", stalls: 0.1, stall_s: 0.02, ..QUIET },
    Noise { name: "one bring-up in five beside a neighbour", neighbour: 0.2, bring_up: 0.02, ..QUIET },
    Noise { name: "as recorded with rings of 256 frames", recorded: true, ..QUIET },
];

/// 64-byte throughput in kfps of one router that was brought up eight times in two runs, with a ring of 256 frames as
/// its input queue.
const RECORDED: [f64; 8] = [524.0, 464.0, 277.0, 343.0, 301.0, 161.0, 166.0, 262.0];

/// Input queue of a router, in frames.
const QUEUE: f64 = 2_048.0;
/// Capacity of a normal router, in frames per second.
const CAPACITY: f64 = 500_000.0;
/// Load that the tester can offer.
const LIMIT: f64 = 1_500_000.0;

/// One router during one bring-up.
struct Router {
    capacity: f64,
    noise: Noise,
}

impl Router {
    fn bring_up(truth: f64, noise: Noise, progress: f64, random: &mut Random) -> Router {
        let mut capacity = truth * (noise.bring_up * random.normal()).exp() * noise.drift.powf(progress);
        if random.share() <= noise.neighbour {
            capacity *= 2.0 / 3.0;
        }
        if noise.recorded {
            capacity *= random.of(&RECORDED) / 300.0;
        }
        Router { capacity, noise }
    }

    /// Number of offered frames that are lost in a trial.
    fn trial(&self, duration_s: f64, load: f64, random: &mut Random) -> f64 {
        let capacity = self.capacity * (self.noise.trial * random.normal()).exp();
        let mut lost = ((load - capacity) * duration_s - QUEUE).max(0.0);
        for _ in 0..random.events(self.noise.stalls * duration_s) {
            let stall_s = self.noise.stall_s * random.normal().exp();
            lost += (load * stall_s - QUEUE).max(0.0);
        }
        lost.min(load * duration_s)
    }

    /// Throughput found by a search.
    fn throughput(&self, random: &mut Random) -> Figure {
        let budget = Budget { trial_seconds: 60.0, trials: 60 };
        let mut search = Search::new(vec![SearchGoal::quick()], 1_000.0, LIMIT, budget).expect("a search");
        while let Some((duration_s, load)) = search.next_trial() {
            let intended = (load * duration_s) as u64;
            let lost = self.trial(duration_s, load, random) as u64;
            search.record(Measurement {
                duration_s,
                effective_duration_s: duration_s,
                intended,
                received: intended - lost.min(intended),
                offered_pps: load,
                trial: 0,
            });
        }
        let result = &search.results()[0];
        let found = result.rate_pps().unwrap_or(0.0);
        if found >= LIMIT * 0.999 { Figure::at_least(found) } else { Figure::exactly(found) }
    }

    /// Share of frames lost at twice the capacity of a normal router, in %.
    fn loss(&self, random: &mut Random) -> Figure {
        let load = 2.0 * CAPACITY;
        Figure::exactly(100.0 * self.trial(0.5, load, random) / (load * 0.5))
    }
}

const RATE: Rule = Rule { scale: Scale::Ratio, higher_is_better: true, least: 0.03, resolution: 0.03 };
const LOSS: Rule = Rule { scale: Scale::Difference, higher_is_better: false, least: 1.0, resolution: 0.0 };
/// Frame sizes of a run; each has two ranked figures, throughput and loss.
const SIZES: usize = 3;

/// Result of one run.
#[derive(Default)]
pub struct Run {
    /// Number of pairs of equal DUTs that were ranked apart in a figure.
    pub false_ranks: usize,
    /// Number of figures in which the last DUT was ranked apart from the first, in the right direction.
    pub found: usize,
    /// Number of intervals, and number of intervals that contain the true median.
    pub intervals: usize,
    pub hold: usize,
}

/// Runs a suite on `duts` routers. All are equal except the last, whose capacity is `ratio` times that of the others.
pub fn run(noise: Noise, duts: usize, rounds: usize, ratio: f64, median: f64, random: &mut Random) -> Run {
    // Indexed by DUT, figure and round.
    let mut figures = vec![vec![Vec::new(); 2 * SIZES]; duts];
    for round in 0..rounds {
        let progress = round as f64 / rounds.max(2) as f64;
        for (dut, figures) in figures.iter_mut().enumerate() {
            let truth = if dut + 1 == duts { CAPACITY * ratio } else { CAPACITY };
            let router = Router::bring_up(truth, noise, progress, random);
            for size in 0..SIZES {
                figures[2 * size].push(Some(router.throughput(random)));
                figures[2 * size + 1].push(Some(router.loss(random)));
            }
        }
    }
    let rule = |figure: usize| if figure.is_multiple_of(2) { RATE } else { LOSS };
    let mut pairs: Vec<(usize, usize, usize, Option<Comparison>)> = Vec::new();
    for (a, of_a) in figures.iter().enumerate() {
        for (b, of_b) in figures.iter().enumerate().skip(a + 1) {
            let both = of_a.iter().zip(of_b).enumerate();
            pairs.extend(both.map(|(figure, (of_a, of_b))| (figure, a, b, compare(of_a, of_b, &rule(figure)))));
        }
    }
    let compared: Vec<Comparison> = pairs.iter().filter_map(|pair| pair.3).collect();
    let family = Family::new(&compared.iter().map(|c| c.p).collect::<Vec<_>>());
    let mut out = Run::default();
    let mut index = 0;
    for (_, a, b, comparison) in &pairs {
        let Some(comparison) = comparison else { continue };
        let verdict = family.verdict(index, comparison);
        index += 1;
        let alike = ratio == 1.0 || b + 1 != duts;
        out.false_ranks += usize::from(alike && verdict != Verdict::Undecided);
        let right = if ratio > 1.0 { Verdict::BBetter } else { Verdict::ABetter };
        out.found += usize::from(!alike && *a == 0 && verdict == right);
    }
    for of_dut in &figures[..duts - 1] {
        for figures in of_dut.iter().step_by(2) {
            let known: Vec<Figure> = figures.iter().flatten().copied().collect();
            let interval = summarize(&known).expect("rounds").interval;
            out.intervals += 1;
            out.hold += usize::from((interval.low..=interval.high).contains(&median));
        }
    }
    out
}

/// Median throughput over a large number of bring-ups, which intervals should contain.
pub fn true_median(noise: Noise, random: &mut Random) -> f64 {
    let mut all: Vec<f64> = (0..2_001)
        .map(|_| Router::bring_up(CAPACITY, noise, random.share(), random).throughput(random).bound())
        .collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// For `runs` runs with four DUTs: the share of runs with at least one false rank, the upper bound of that share (95
/// %), and the share of intervals that contain the true value.
pub fn errors(noise: Noise, rounds: usize, runs: usize, seed: u64) -> (f64, f64, f64) {
    let mut random = Random(seed);
    let median = true_median(noise, &mut random);
    let (mut wrong, mut hold, mut intervals) = (0, 0, 0);
    for _ in 0..runs {
        let run = run(noise, 4, rounds, 1.0, median, &mut random);
        wrong += usize::from(run.false_ranks > 0);
        (hold, intervals) = (hold + run.hold, intervals + run.intervals);
    }
    let share = wrong as f64 / runs as f64;
    // Wilson's bound, one-sided 95 %.
    let (z, n) = (1.645f64, runs as f64);
    let middle = share + z * z / (2.0 * n);
    let upper = (middle + z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt()) / (1.0 + z * z / n);
    (share, upper, hold as f64 / intervals as f64)
}

/// Share of throughput and loss figures that distinguish a DUT with `ratio` times the capacity from a normal DUT, with
/// two DUTs.
pub fn power(noise: Noise, rounds: usize, ratio: f64, runs: usize, seed: u64) -> f64 {
    let mut random = Random(seed);
    let found: usize = (0..runs).map(|_| run(noise, 2, rounds, ratio, 0.0, &mut random).found).sum();
    found as f64 / (runs * 2 * SIZES) as f64
}

/// Noise without variation between bring-ups: rounds differ only by their trials.
pub const STILL: Noise = Noise { name: "none from bring-up to bring-up", bring_up: 0.0, ..QUIET };

/// Figures of `duts` routers over the rounds of one run, indexed by router, figure and round.
fn figures_of_a_run(
    noise: Noise,
    duts: usize,
    rounds: usize,
    truth: f64,
    random: &mut Random,
) -> Vec<Vec<Vec<Figure>>> {
    let mut figures = vec![vec![Vec::new(); 2 * SIZES]; duts];
    for round in 0..rounds {
        let progress = round as f64 / rounds.max(2) as f64;
        for figures in &mut figures {
            let router = Router::bring_up(truth, noise, progress, random);
            for size in 0..SIZES {
                figures[2 * size].push(router.throughput(random));
                figures[2 * size + 1].push(router.loss(random));
            }
        }
    }
    figures
}

/// Compares two runs of one suite with two routers, figure by figure, without pairing. The second run has `ratio` times
/// the capacity. Returns (share of pairs of runs with any difference, share of the comparisons that find one).
pub fn between_runs(noise: Noise, rounds: (usize, usize), ratio: f64, runs: usize, seed: u64) -> (f64, f64) {
    let mut random = Random(seed);
    let (mut any, mut found, mut all) = (0, 0, 0);
    for _ in 0..runs {
        let first = figures_of_a_run(noise, 2, rounds.0, CAPACITY, &mut random);
        let second = figures_of_a_run(noise, 2, rounds.1, CAPACITY * ratio, &mut random);
        let pairs = first.iter().flatten().zip(second.iter().flatten()).enumerate();
        let rule = |place: usize| if place.is_multiple_of(2) { RATE } else { LOSS };
        let compared: Vec<_> = pairs.filter_map(|(place, (a, b))| compare_unpaired(a, b, &rule(place))).collect();
        let family = Family::new(&compared.iter().map(|c| c.p).collect::<Vec<_>>());
        let differ = (0..compared.len()).filter(|place| family.is_proven(*place) && compared[*place].matters).count();
        any += usize::from(differ > 0);
        (found, all) = (found + differ, all + compared.len());
    }
    (any as f64 / runs as f64, found as f64 / all.max(1) as f64)
}

/// Rule by which [`lossy`] compares shares of lost frames, in % of a million frames.
const FEW_LOST: Rule = Rule { scale: Scale::Difference, higher_is_better: false, least: 0.0005, resolution: 0.0 };

/// Share of runs that distinguish a router that loses one frame in 100,000 from one that loses none, with a million
/// frames in each round. `astray` is the probability that something other than the routers drops hundreds of frames at
/// a time.
pub fn lossy(test: Test, astray: f64, rounds: usize, runs: usize, seed: u64) -> f64 {
    let mut random = Random(seed);
    let mut found = 0;
    for _ in 0..runs {
        let lost = |mean: f64, random: &mut Random| {
            let beside = if random.share() <= astray { (300.0 * random.normal().exp()).round() } else { 0.0 };
            Some(Figure::exactly((f64::from(random.events(mean)) + beside) / 10_000.0))
        };
        let pairs: Vec<_> = (0..rounds).map(|_| (lost(0.0, &mut random), lost(10.0, &mut random))).collect();
        let (without, with): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let compared = compare_by(test, &without, &with, &FEW_LOST).expect("rounds");
        // Judge it together with two other figures that tie.
        let family = Family::new(&[compared.p, 1.0, 1.0]);
        found += usize::from(family.verdict(0, &compared) == Verdict::ABetter);
    }
    found as f64 / runs as f64
}
