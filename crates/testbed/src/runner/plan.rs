//! What a run will do, in which order, and how long it takes.

use super::method;
use drophammer_methods::fixed_rate::FixedRate;
use drophammer_methods::parameters::FAMILIES;
use drophammer_methods::{Method as _, TrialCount, routed};
use drophammer_model::capabilities::Need;
use drophammer_model::pattern::PatternKey;
use drophammer_model::suite::read::MAX_ROUNDS;
use drophammer_model::suite::{Suite, TestConfig};
use drophammer_model::trial::Family;
use drophammer_traffic::permutation::Permutation;
use std::collections::BTreeSet;
use std::time::Duration;

/// Families that any test of the suite uses.
pub(super) fn families(suite: &Suite) -> Vec<Family> {
    let mut all: Vec<Family> = suite.tests.iter().filter_map(|t| FAMILIES.find(&t.params)).flatten().collect();
    all.extend(suite.tests.iter().flat_map(|t| method(t).patterns(&t.params)).flat_map(|pattern| pattern.families));
    // A test of sessions alone has those of all families.
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

/// How long each test of a suite takes on one DUT, in order, estimated from its parameters, and how many trials it has; `None` where that is
/// not known.
pub fn estimates(suite: &Suite) -> Vec<(Duration, Option<TrialCount>)> {
    let mut known: BTreeSet<PatternKey> = BTreeSet::new();
    let mut tests = Vec::new();
    for test in &suite.tests {
        let (method, params) = (method(test), &test.params);
        // A test searches the throughput that it needs, unless an earlier one has found it.
        let searches = method.searched(params).iter().filter(|pattern| known.insert(pattern.key())).count();
        let time = if searches == 0 { method.estimate_known(params) } else { method.estimate(params) };
        let time = time + Duration::from_secs_f64(routed::estimate_s(params));
        tests.push((time, method.trials(params, searches)));
    }
    tests
}

/// Everything that will be run, with its estimate: `(test index, estimate)`.
pub(super) fn plan(suite: &Suite) -> Vec<(usize, Duration)> {
    let tests: Vec<Duration> = estimates(suite).into_iter().map(|(time, _)| time).collect();
    let turns = suite.rounds as usize * suite.duts.len();
    (0..turns).flat_map(|_| tests.iter().copied().enumerate()).collect()
}

/// What a DUT takes from its start to its first test and from its last test to its end, roughly. User Mode Linux and large
/// configurations take longer.
const AROUND_TESTS: Duration = Duration::from_secs(3);

/// How long a suite takes, estimated from its parameters: a search may need fewer or more trials.
pub fn estimate(suite: &Suite) -> Duration {
    let turns = suite.rounds * suite.duts.len() as u32;
    plan(suite).iter().map(|(_, estimate)| *estimate).sum::<Duration>() + AROUND_TESTS * turns
}

/// Time for trials that the host spoils and that are repeated: as long as the suite itself, or what is left of the time that
/// the user gave.
pub(super) fn time_for_repeats(suite: &Suite) -> Duration {
    let own = estimate(suite);
    suite.time.map_or(own, |time| time.saturating_sub(own))
}

/// The number of rounds that fit into `time` by [`estimate`], but at least `least`.
pub fn rounds_within(suite: &Suite, time: Duration, least: u32) -> u32 {
    let round = estimate(&Suite { rounds: 1, ..suite.clone() });
    let fit = time.as_secs_f64() / round.as_secs_f64().max(1e-3);
    (fit as u32).clamp(least, MAX_ROUNDS as u32)
}

/// DUTs (by their place in the suite) in the order of their turns in round `round` (from 0). The order of the first round is drawn
/// from the seed. After as many rounds as there are DUTs, each has been at every place; then the order is reversed. So
/// neither the time of a round nor the DUT before is always the same.
pub(super) fn order(duts: usize, round: usize, seed: u64) -> Vec<usize> {
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
