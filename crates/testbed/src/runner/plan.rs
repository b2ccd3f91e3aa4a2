//! The plan of a run: its steps, their order, and how long they take.

use super::method;
use crate::kinds::{is_virtual, not_applicable, placement};
use drophammer_methods::fixed_rate::FixedRate;
use drophammer_methods::parameters::FAMILIES;
use drophammer_methods::{Method as _, TrialCount, routed};
use drophammer_model::capabilities::{Need, Placement};
use drophammer_model::pattern::PatternKey;
use drophammer_model::suite::MAX_ROUNDS;
use drophammer_model::suite::{DutConfig, Suite, TestConfig};
use drophammer_model::trial::Family;
use drophammer_traffic::permutation::Permutation;
use std::collections::BTreeSet;
use std::time::Duration;

/// Returns the families that any test of the suite uses.
pub(super) fn families(suite: &Suite) -> Vec<Family> {
    let mut all: Vec<Family> = suite.tests.iter().filter_map(|t| FAMILIES.find(&t.params)).flatten().collect();
    all.extend(
        suite.tests.iter().flat_map(|t| method(t).plan(&t.params).patterns).flat_map(|pattern| pattern.families),
    );
    // A test that only counts sessions uses the sessions of all families.
    let of_sessions =
        |t: &TestConfig| FAMILIES.find(&t.params).is_none() && method(t).spec().needs.contains(&Need::Bgp);
    if suite.tests.iter().any(of_sessions) {
        all.extend(suite.bgp.iter().flat_map(|bgp| bgp.families.iter().copied()));
    }
    if suite.tests.iter().any(|t| t.test == FixedRate.spec().name) {
        all.extend(suite.flows.iter().map(|flow| flow.family));
    }
    all.sort_unstable();
    all.dedup();
    if all.is_empty() { vec![Family::Ipv4] } else { all }
}

/// Estimates, in order, how long each test of a suite takes on one DUT and how many trials it runs.
pub fn estimates(suite: &Suite) -> Vec<(Duration, TrialCount)> {
    let mut known: BTreeSet<PatternKey> = BTreeSet::new();
    let mut tests = Vec::new();
    for test in &suite.tests {
        let plan = method(test).plan(&test.params);
        // A test searches for the throughput that it needs, unless an earlier test has found it.
        let searches = plan.searched.iter().filter(|pattern| known.insert(pattern.key())).count();
        let time = plan.estimate(searches) + Duration::from_secs_f64(routed::estimate_s(&test.params));
        tests.push((time, plan.trial_count(searches)));
    }
    tests
}

/// How the DUTs of a turn share the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// The turn has one DUT.
    #[default]
    Alone,
    /// All DUTs are up, and each has its own tests. After each step of a test, the machine passes to the next DUT.
    Abreast,
    /// Each test runs once, for all DUTs at the same time.
    Joint,
}

/// A part of a run: some tests on one DUT, or on all DUTs, in one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Round, from 1.
    pub round: u32,
    /// Places in the suite of the DUTs that are up, in the order in which they are brought up.
    pub duts: Vec<usize>,
    /// Places of the tests in the suite, in order.
    pub tests: Vec<usize>,
    /// How the DUTs share the turn.
    pub mode: Mode,
}

impl Turn {
    /// Number of tests. A test that runs on several DUTs at the same time counts once.
    pub(super) fn len(&self) -> usize {
        self.tests.len() * if self.mode == Mode::Abreast { self.duts.len() } else { 1 }
    }

    /// Iterates over the tests in order: their places in the suite, each with its DUT. A test for all DUTs at the same time
    /// has no DUT.
    fn in_order(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        let duts = match self.mode {
            Mode::Joint => vec![None],
            Mode::Alone | Mode::Abreast => self.duts.iter().copied().map(Some).collect(),
        };
        self.tests.iter().flat_map(move |test| duts.clone().into_iter().map(|dut| (*test, dut)))
    }
}

/// True if all DUTs are up at the same time while each runs its own tests. A single round is not compared with another.
/// So it matters little when its figures were measured, and more how much is lost with an interrupted turn. Routers on
/// the user's own interfaces may share these interfaces.
fn is_abreast(suite: &Suite) -> bool {
    let together = |dut: &DutConfig| is_virtual(dut) || placement(dut) == Some(Placement::Lab);
    suite.rounds > 1 && suite.duts.len() > 1 && suite.duts.iter().all(together)
}

/// True if a test runs once for all DUTs of the suite.
fn is_joint(suite: &Suite, test: &TestConfig) -> bool {
    suite.duts.len() > 1 && method(test).is_joint()
}

/// Returns the turns of a run, in order. Each round first tests the DUTs separately, then head to head.
pub(super) fn turns(suite: &Suite) -> Vec<Turn> {
    let (joint, alone): (Vec<usize>, Vec<usize>) =
        (0..suite.tests.len()).partition(|test| is_joint(suite, &suite.tests[*test]));
    let of_round = |round: u32| {
        let order = match suite.rounds {
            // A single round is not compared with another, so it keeps the order of the suite.
            1 => (0..suite.duts.len()).collect(),
            _ => order(suite.duts.len(), round as usize, suite.seed),
        };
        let turn =
            |duts: Vec<usize>, tests: &[usize], mode| Turn { round: round + 1, duts, tests: tests.to_vec(), mode };
        let mut turns: Vec<Turn> = match is_abreast(suite) {
            true => vec![turn(order.clone(), &alone, Mode::Abreast)],
            false => order.iter().map(|dut| turn(vec![*dut], &alone, Mode::Alone)).collect(),
        };
        turns.push(turn(order, &joint, Mode::Joint));
        turns
    };
    (0..suite.rounds).flat_map(of_round).filter(|turn| !turn.tests.is_empty()).collect()
}

/// Returns everything that will be run, with its estimate: `(test index, estimate)`. The estimate is zero for a test that does not apply to its DUT.
pub(super) fn plan(suite: &Suite) -> Vec<(usize, Duration)> {
    let tests: Vec<Duration> = estimates(suite).into_iter().map(|(time, _)| time).collect();
    let applies = |test: usize, dut: usize| {
        let test = &suite.tests[test];
        not_applicable(&suite.duts[dut], method(test).spec(), test).is_none()
    };
    let step = |(test, dut): (usize, Option<usize>)| {
        (test, if dut.is_none_or(|dut| applies(test, dut)) { tests[test] } else { Duration::ZERO })
    };
    turns(suite).iter().flat_map(Turn::in_order).map(step).collect()
}

/// Returns the number of step `number` of a plan (from 1) among those whose test applies to its DUT, and how many those are.
pub(super) fn shown(plan: &[(usize, Duration)], number: usize) -> (usize, usize) {
    let count = |steps: &[(usize, Duration)]| steps.iter().filter(|(_, estimate)| !estimate.is_zero()).count();
    (count(&plan[..number]), count(plan))
}

/// Estimated time from a DUT's start to its first test, plus the time from its last test to its end. User Mode Linux
/// and large configurations take longer.
const AROUND_TESTS: Duration = Duration::from_secs(3);

/// Estimates how long a suite takes from its parameters. A search may need fewer or more trials.
pub fn estimate(suite: &Suite) -> Duration {
    let brought_up: usize = turns(suite).iter().map(|turn| turn.duts.len()).sum();
    plan(suite).iter().map(|(_, estimate)| *estimate).sum::<Duration>() + AROUND_TESTS * brought_up as u32
}

/// Returns the time for repeating trials that the host spoilt: the same time as for the suite itself, or what is left
/// of the time that the user specified.
pub(super) fn time_for_repeats(suite: &Suite) -> Duration {
    let own = estimate(suite);
    suite.time.map_or(own, |time| time.saturating_sub(own))
}

/// Returns the number of rounds that fit into `time` according to [`estimate`], but at least `least`.
pub fn rounds_within(suite: &Suite, time: Duration, least: u32) -> u32 {
    let round = estimate(&Suite { rounds: 1, ..suite.clone() });
    let fit = time.as_secs_f64() / round.as_secs_f64().max(1e-3);
    (fit as u32).clamp(least, MAX_ROUNDS as u32)
}

/// Returns the order of the DUTs (by their place in the suite) in round `round` (from 0). The seed determines the order
/// of the first round. After one round per DUT, each DUT has been at every place; then the order is reversed. So
/// neither the time of a DUT within its round nor the DUT before it is always the same.
fn order(duts: usize, round: usize, seed: u64) -> Vec<usize> {
    let count = duts.max(1);
    let shuffled = Permutation::new(count as u32, seed);
    let mut order: Vec<usize> =
        (0..count).map(|place| shuffled.at(((place + round) % count) as u32) as usize).collect();
    if (round / count) % 2 == 1 {
        order.reverse();
    }
    order.truncate(duts);
    order
}
