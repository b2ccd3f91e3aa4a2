//! Doubts figures that depend on frames lost while the DUT's processor was idle.
//!
//! A software router that cannot keep up has a busy processor. If many frames are lost while the processor is idle, the
//! router's speed is not the likely cause: for example, bursts of the tester may have overflowed a queue. The figure then
//! shows no limit of the router, so the report marks it and does not rank it.

use drophammer_model::figure::Doubt;
use drophammer_model::modifier::Modifier;
use drophammer_model::outcome::{DOUBTFUL, RankFigure};
use drophammer_model::record::{TestRecord, TrialRecord};
use drophammer_model::size::PacketSize;
use drophammer_model::traffic::Header;
use drophammer_model::trial::{Load, TrialResult};

/// Trials of fewer frames are probes, such as one frame to each neighbour. They are not a load.
const FEWEST: u64 = 100;
/// A trial is lossy if it loses at least this share of its frames. Smaller losses come from queues that overflow while a
/// processor stalls.
const LOSSY: f64 = 0.01;
/// A processor is busy if it works for at least this share of the sending time.
const BUSY: f64 = 0.9;

/// Share of the sending time in which the DUT's processor worked for the DUT, or for others while the DUT waited; `None`
/// if unknown. Programs that run while the DUT has nothing to do are not counted.
fn busy(result: &TrialResult) -> Option<f64> {
    // Earlier versions did not record this field, and measured the share of processor time over a different period.
    result.health.dut_used_ns?;
    // The kernel makes frames in bursts when it is the generator. Bursts can cause loss whatever else ran on the
    // processor, so only the DUT's own share counts.
    let record = result.health.dut_processor.as_ref().filter(|_| result.health.kernel_generators == 0);
    let others = record.map_or(0.0, |processor| {
        let waited = processor.waited_ns.or(processor.foreign_ns).unwrap_or(0);
        let ns = waited + processor.stolen_ns.unwrap_or(0) + processor.watch_ns;
        ns as f64 / processor.elapsed_ns.max(1) as f64
    });
    Some(result.dut_cpu? + others)
}

/// True if a router must drop a packet with this header.
fn expires(header: &Header) -> bool {
    match header {
        Header::Ipv4(ipv4) => ipv4.ttl == 1.into(),
        Header::Ipv6(ipv6) => ipv6.hop_limit == 1.into(),
        _ => false,
    }
}

/// The doubt about a figure that these trials decided: `Some` if the processor was idle in more than half of the lossy
/// trials.
fn doubt<'a>(trials: impl Iterator<Item = &'a TrialRecord>) -> Option<Doubt> {
    let counts = |trial: &&TrialRecord| {
        let result = &trial.result;
        // In bursts and steps, loss depends on queue sizes; while routes change, it depends on missing routes.
        matches!(trial.spec.load, Load::Constant { .. } | Load::Maximum { .. })
            && trial.spec.events.is_empty()
            // An output port with classes drops frames while the processor is idle. So do links that carry the traffic
            // of links that are down.
            && !trial.classed
            // In a joint trial, the processor also worked for the other DUTs.
            && !trial.joint
            && !trial.links_down
            // Frames that the DUT must drop are not lost.
            && trial.spec.flows.iter().all(|flow| !flow.denied)
            && !trial.spec.flows.iter().flat_map(|flow| &flow.headers).any(expires)
            && result.validity.is_valid()
            && result.offered() >= FEWEST
            && result.loss_ratio() >= LOSSY
    };
    let lossy: Vec<&TrialRecord> = trials.filter(counts).collect();
    let idle = |trial: &&&TrialRecord| busy(&trial.result).is_some_and(|busy| busy < BUSY);
    let idle: Vec<&TrialRecord> = lossy.iter().filter(idle).copied().collect();
    if idle.len() * 2 <= lossy.len() {
        return None;
    }
    let worst = idle.into_iter().max_by(|a, b| a.result.loss_ratio().total_cmp(&b.result.loss_ratio()))?;
    let result = &worst.result;
    let cause = match result.health.kernel_generators {
        0 => "something other than its speed may be the cause",
        _ => "bursts of the tester (frames made in the kernel, backend live_frames) may be the cause",
    };
    let text = format!(
        "{:.0} % of the frames were lost while the DUT's processor was {:.0} % busy (trial {}): {cause}",
        result.loss_ratio() * 100.0,
        busy(result)? * 100.0,
        result.trial
    );
    Some(Doubt { round: worst.round, trial: result.trial, text })
}

fn with_filters(rank: &RankFigure) -> bool {
    matches!(Modifier::of_figure(&rank.key), Modifier::Filters { .. })
}

/// True if the trial decided the figure. Trials of a search beyond its lowest lossy load did not, nor did trials with
/// other frame sizes. If the figure is for one load, trials at other loads did not either.
fn decided(rank: &RankFigure, trial: &TrialRecord) -> bool {
    const SAME_LOAD: f64 = 1e-6;
    /// Measured loads within this share had the same intended load.
    const NEAR: f64 = 0.05;
    let size = rank.key.split('_').find_map(|word| word.parse::<PacketSize>().ok());
    let up_to = rank.claim.as_ref().and_then(|claim| claim.missed_pps);
    let near = match (&trial.spec.load, up_to) {
        (Load::Constant { rate_pps }, Some(missed)) => *rate_pps <= missed * (1.0 + SAME_LOAD),
        _ => true,
    };
    let of_load = match (&trial.spec.load, rank.load_pps) {
        (Load::Constant { rate_pps: pps } | Load::Maximum { limit_pps: pps }, Some(load)) => {
            (pps / load - 1.0).abs() <= NEAR
        }
        _ => true,
    };
    // Trials with queries or route changes have events, so they raise no doubt.
    let same =
        (trial.filtered && with_filters(rank)) || Modifier::of_figure(&rank.key) == Modifier::of_frames(&trial.spec);
    near && of_load && same && size.is_none_or(|size| trial.spec.size == size)
}

/// Marks the doubtful figures of `tests`, and their rows in tables. Skips simulated DUTs, which lose frames because
/// they are configured to. A suite can contain a test several times: `occurrence` gives the index, from 0, of a trial's
/// test among the tests of the same name on its DUT in its round.
pub fn mark(
    tests: &mut [TestRecord],
    trials: &[TrialRecord],
    occurrence: &dyn Fn(&TrialRecord) -> usize,
    is_simulated: &dyn Fn(&str) -> bool,
) {
    let same = |a: &TestRecord, b: &TestRecord| (&a.dut, &a.test, a.round) == (&b.dut, &b.test, b.round);
    let before = |at: usize| tests[..at].iter().filter(|earlier| same(earlier, &tests[at])).count();
    let places: Vec<usize> = (0..tests.len()).map(before).collect();
    for (test, place) in tests.iter_mut().zip(places).filter(|(test, _)| !is_simulated(&test.dut)) {
        let own = |trial: &&TrialRecord| {
            let is_of_test = trial.dut == test.dut && trial.test == test.test && trial.round == test.round;
            is_of_test && occurrence(trial) == place
        };
        let own: Vec<&TrialRecord> = trials.iter().filter(own).collect();
        // If the test has the modifier `filters`, trials with filters belong only to the modified figures.
        let modified = test.outcome.ranks.iter().any(with_filters);
        let is_of = |rank: &RankFigure, trial: &TrialRecord| !(modified && trial.filtered) || with_filters(rank);
        for rank in test.outcome.ranks.iter_mut().filter(|rank| !rank.independent_of_loss) {
            rank.doubts = doubt(own.iter().copied().filter(|trial| is_of(rank, trial) && decided(rank, trial)))
                .into_iter()
                .collect();
        }
        for row in test.outcome.tables.iter_mut().flat_map(|table| &mut table.rows) {
            let claims = |rank: &&RankFigure| rank.claim.as_ref().is_some_and(|c| row.trials.contains(&c.trial));
            let claim = test.outcome.ranks.iter().find(claims);
            let counts = |trial: &&TrialRecord| {
                row.trials.contains(&trial.result.trial)
                    && claim.is_none_or(|rank| is_of(rank, trial) && decided(rank, trial))
            };
            let found = doubt(own.iter().copied().filter(counts));
            row.marks.extend(found.map(|doubt| format!("{DOUBTFUL}{}", doubt.text)));
        }
    }
}

/// All doubts if most rounds have one, otherwise none. `rounds` are the rounds that have the figure.
pub(crate) fn together(rounds: &[&RankFigure]) -> Vec<Doubt> {
    let doubtful = rounds.iter().filter(|rank| !rank.doubts.is_empty()).count();
    let most = doubtful * 2 > rounds.len();
    rounds.iter().filter(|_| most).flat_map(|rank| rank.doubts.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::outcome::Outcome;
    use drophammer_model::trial::{ProcessorRecord, Validity};

    fn trial(number: u64, load: Load, received: u64, dut_cpu: Option<f64>) -> TrialRecord {
        let mut trial = crate::made::trial(number, load, 1.0, 1_000, 1_000 - received);
        (trial.result.health.dut_used_ns, trial.result.dut_cpu) = (Some(1), dut_cpu);
        trial
    }

    fn overload(number: u64, received: u64, dut_cpu: f64) -> TrialRecord {
        trial(number, Load::Maximum { limit_pps: 1e6 }, received, Some(dut_cpu))
    }

    fn found(trials: &[TrialRecord]) -> Option<u64> {
        doubt(trials.iter()).map(|doubt| doubt.trial)
    }

    #[test]
    fn loss_while_the_processor_is_idle_is_doubtful() {
        assert_eq!(found(&[overload(7, 200, 0.57)]), Some(7));
        assert_eq!(found(&[overload(7, 200, 0.91)]), None, "it was busy");
        assert_eq!(found(&[overload(7, 995, 0.57)]), None, "hardly any loss");
        assert_eq!(found(&[trial(7, Load::Maximum { limit_pps: 1e6 }, 200, None)]), None, "nobody knows");
        let shared = TrialRecord { joint: true, ..overload(7, 200, 0.5) };
        assert_eq!(found(&[shared]), None, "another DUT used the other half");
        let burst = Load::Burst { frames: 1_000, rate_pps: 1e6 };
        assert_eq!(found(&[trial(7, burst, 200, Some(0.1))]), None, "queues are finite");
        let mut invalid = overload(7, 200, 0.57);
        invalid.result.validity = Validity::Invalid(vec!["late".into()]);
        assert_eq!(found(&[invalid]), None);
        let mut probe = overload(7, 0, 0.02);
        probe.result.groups[0].offered = 2;
        probe.result.groups[0].lost = 2;
        assert_eq!(found(&[probe]), None, "two frames are no load");
        let mut earlier = overload(7, 200, 0.57);
        earlier.result.health.dut_used_ns = None;
        assert_eq!(found(&[earlier]), None, "a share of another period");
    }

    #[test]
    fn a_processor_that_others_used_was_not_idle() {
        let mut shared = overload(7, 200, 0.57);
        let others = |waited_ns| ProcessorRecord {
            elapsed_ns: 1_000,
            foreign_ns: Some(400),
            waited_ns,
            ..ProcessorRecord::default()
        };
        shared.result.health.dut_processor = Some(others(Some(400)));
        assert_eq!(found(&[shared.clone()]), None);
        shared.result.health.dut_processor = Some(others(None));
        assert_eq!(found(&[shared.clone()]), None, "the DUT may have waited all that time");
        shared.result.health.kernel_generators = 2;
        assert_eq!(found(&[shared.clone()]), Some(7), "bursts are a cause of their own");
        shared.result.health.kernel_generators = 0;
        shared.result.health.dut_processor = Some(others(Some(100)));
        assert_eq!(found(&[shared]), Some(7), "they ran while the DUT had nothing to do");
    }

    #[test]
    fn most_of_the_lossy_trials_decide() {
        let trials = [overload(1, 200, 0.5), overload(2, 300, 0.95), overload(3, 1_000, 0.3)];
        assert_eq!(found(&trials), None, "one of two");
        assert_eq!(found(&[trials.as_slice(), &[overload(4, 100, 0.6)]].concat()), Some(4), "the one that lost most");
    }

    /// A test with these figures.
    fn test(keys: &[&str]) -> TestRecord {
        let figure = |key: &&str| RankFigure {
            independent_of_loss: key.contains("per_cpu"),
            ..RankFigure::new(*key, "", "", Some(1.0))
        };
        crate::made::test(1, Outcome { ranks: keys.iter().map(figure).collect(), ..Outcome::default() })
    }

    /// The number of doubts about each figure, based only on this trial.
    fn doubts(mut test: TestRecord, trial: TrialRecord) -> Vec<usize> {
        mark(std::slice::from_mut(&mut test), &[trial], &|_| 0, &|_| false);
        test.outcome.ranks.iter().map(|rank| rank.doubts.len()).collect()
    }

    #[test]
    fn a_figure_that_does_not_depend_on_loss_has_no_doubt() {
        let test = test(&["forwarding_rate_64_pps", "forwarding_rate_64_frames_per_cpu_s"]);
        assert_eq!(doubts(test, overload(7, 200, 0.57)), [1, 0]);
    }

    #[test]
    fn trials_of_another_test_of_the_same_name_decide_nothing() {
        // The processor is idle in the first test and busy in the second.
        let trials = [overload(7, 200, 0.57), overload(8, 200, 0.97), overload(9, 200, 0.97)];
        let mut tests = [(); 2].map(|()| test(&["forwarding_rate_64_pps"]));
        mark(&mut tests, &trials, &|trial| usize::from(trial.result.trial > 7), &|_| false);
        assert_eq!(tests.map(|test| test.outcome.ranks[0].doubts.len()), [1, 0]);
    }

    #[test]
    fn loss_with_filters_is_of_the_figure_with_filters() {
        for (filtered, expected) in [(true, [0, 1]), (false, [1, 0])] {
            let test = test(&["forwarding_rate_64_pps", "forwarding_rate_64_filters_pps"]);
            let trial = TrialRecord { filtered, ..overload(7, 200, 0.57) };
            assert_eq!(doubts(test, trial), expected, "filtered: {filtered}");
        }
    }

    #[test]
    fn trials_at_another_load_decide_nothing() {
        let at = |load_pps: Option<f64>| RankFigure {
            load_pps,
            ..RankFigure::new("latency_64_median_us", "", "", Some(1.0))
        };
        let search = trial(7, Load::Constant { rate_pps: 500_000.0 }, 200, Some(0.5));
        assert!(decided(&at(None), &search) && decided(&at(Some(510_000.0)), &search));
        assert!(!decided(&at(Some(50_000.0)), &search));
        let flood = trial(7, Load::Maximum { limit_pps: 600_000.0 }, 200, Some(0.5));
        assert!(decided(&at(Some(600_000.0)), &flood) && !decided(&at(Some(500_000.0)), &flood));
    }

    #[test]
    fn the_backend_that_makes_bursts_is_named() {
        let mut kernel = overload(7, 200, 0.57);
        let text = |trial: &TrialRecord| doubt(std::iter::once(trial)).unwrap().text;
        let plain = text(&kernel);
        assert!(plain.starts_with("80 % of the frames were lost while the DUT's processor was 57 % busy (trial 7)"));
        assert!(!plain.contains("live_frames"), "{plain}");
        kernel.result.health.kernel_generators = 2;
        assert!(text(&kernel).contains("backend live_frames"));
    }
}
