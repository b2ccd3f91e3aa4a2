//! Doubt about figures that rest on trials with lost frames although the DUT's processor was idle.
//!
//! A software router that cannot keep up has a busy processor. If many frames are lost while the processor is idle, the
//! router's speed is not the likely cause: bursts of the tester may have overflowed a queue, for example. The figure is
//! then no limit of the router, so it is marked and not ranked.

use drophammer_model::figure::Doubt;
use drophammer_model::modifier::Modifier;
use drophammer_model::outcome::{DOUBTFUL, RankFigure};
use drophammer_model::record::{TestRecord, TrialRecord};
use drophammer_model::size::PacketSize;
use drophammer_model::traffic::Header;
use drophammer_model::trial::{Load, TrialResult};

/// From this share of lost frames on, a trial counts as lossy. Smaller losses come from queues that overflow while a
/// processor stalls.
const LOSSY: f64 = 0.01;
/// From this share of the time of load on, a processor counts as busy.
const BUSY: f64 = 0.9;

/// Share of the time of load in which the DUT's processor worked for the DUT or was kept from it; `None` if unknown.
/// Other programs that run while the DUT has nothing to do do not count.
fn busy(result: &TrialResult) -> Option<f64> {
    // Records of earlier versions lack this field; their share of processor time is of another period.
    result.health.dut_used_ns?;
    // Frames made in the kernel come in bursts. These can cause loss whatever else ran on the processor, so only the
    // DUT's own share counts.
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

/// The doubt about one figure, from the `trials` that decided it: more than half of the lossy ones had an idle
/// processor.
fn doubt<'a>(trials: impl Iterator<Item = &'a TrialRecord>) -> Option<Doubt> {
    let counts = |trial: &&TrialRecord| {
        let result = &trial.result;
        // Loss in bursts and steps depends on queue sizes, loss during changes of routes on missing routes.
        matches!(trial.spec.load, Load::Constant { .. } | Load::Maximum { .. })
            && trial.spec.events.is_empty()
            // An output port narrowed by classes drops frames while the processor is idle, and so do links that carry
            // the traffic of links that are down.
            && !trial.classed
            // The processor worked for the other DUTs too.
            && !trial.joint
            && !trial.links_down
            // Frames that the DUT must drop are not loss.
            && trial.spec.flows.iter().all(|flow| !flow.denied)
            && !trial.spec.flows.iter().flat_map(|flow| &flow.headers).any(expires)
            && result.validity.is_valid()
            && result.offered() > 0
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
        0 => "something else than its speed may have lost them",
        _ => "bursts of the tester (frames made in the kernel, backend live_frames) may have lost them",
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

/// True if the trial was decisive for the figure. Trials of a search beyond its lowest lossy load were not, nor trials
/// of other frame sizes, nor, if the figure has a load, trials of other loads.
fn decided(rank: &RankFigure, trial: &TrialRecord) -> bool {
    const SAME_LOAD: f64 = 1e-6;
    /// Loads within this share count as the same intended load.
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
    // Trials with queries or changes of routes have events, and raise no doubt.
    let same = match trial.filtered && with_filters(rank) {
        true => true,
        false => Modifier::of_figure(&rank.key) == Modifier::of_frames(&trial.spec),
    };
    near && of_load && same && size.is_none_or(|size| trial.spec.size == size)
}

/// Marks the figures of `tests` that rest on such trials, and their rows in tables. Simulated DUTs are left out,
/// because they lose frames by configuration. A suite may have a test several times: `occurrence` is the index, from 0,
/// of a trial's test among those of the same name on its DUT in its round.
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
        // In a test with the modifier, trials with filters belong to its figures alone.
        let modified = test.outcome.ranks.iter().any(with_filters);
        let is_of = |rank: &RankFigure, trial: &TrialRecord| !(modified && trial.filtered) || with_filters(rank);
        for rank in test.outcome.ranks.iter_mut().filter(|rank| !rank.independent_of_loss) {
            rank.doubts = doubt(own.iter().copied().filter(|trial| is_of(rank, trial) && decided(rank, trial)))
                .into_iter()
                .collect();
        }
        for row in test.outcome.tables.iter_mut().flat_map(|table| &mut table.rows) {
            let claim =
                test.outcome.ranks.iter().find(|r| r.claim.as_ref().is_some_and(|c| row.trials.contains(&c.trial)));
            let of_row = own.iter().copied().filter(|trial| row.trials.contains(&trial.result.trial));
            let found =
                doubt(of_row.filter(|trial| claim.is_none_or(|rank| is_of(rank, trial) && decided(rank, trial))));
            row.marks.extend(found.map(|doubt| format!("{DOUBTFUL}{}", doubt.text)));
        }
    }
}

/// The doubts of all rounds if most of them have one, otherwise none. `rounds` are those that have the figure.
pub(crate) fn together(rounds: &[&RankFigure]) -> Vec<Doubt> {
    let doubtful = rounds.iter().filter(|rank| !rank.doubts.is_empty()).count();
    let most = doubtful * 2 > rounds.len();
    rounds.iter().filter(|_| most).flat_map(|rank| rank.doubts.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{GroupCounts, Health, ProcessorRecord, TrialSpec, Validity};

    fn trial(number: u64, load: Load, received: u64, dut_cpu: Option<f64>) -> TrialRecord {
        let group =
            GroupCounts { offered: 1_000, intended: 1_000, received, lost: 1_000 - received, ..GroupCounts::default() };
        let health = Health { dut_used_ns: Some(1), ..Health::default() };
        TrialRecord {
            dut: "d".into(),
            test: "forwarding_rate".into(),
            round: 1,
            attempt: 1,
            filtered: false,
            filter_rules: None,
            classed: false,
            links_down: false,
            joint: false,
            time: String::new(),
            spec: TrialSpec {
                purpose: String::new(),
                size: "64".parse().unwrap(),
                flows: vec![],
                load,
                duration_s: 1.0,
                bin_s: None,
                drain_s: 0.1,
                events: vec![],
            },
            result: TrialResult {
                trial: number,
                sending_s: 1.0,
                receiving_s: 1.0,
                elapsed_s: 1.2,
                groups: vec![group],
                health,
                dut_cpu,
                senders: 1,
                ..TrialResult::default()
            },
        }
    }

    fn overload(number: u64, received: u64, dut_cpu: f64) -> TrialRecord {
        trial(number, Load::Maximum { limit_pps: 1e6 }, received, Some(dut_cpu))
    }

    fn found(trials: &[TrialRecord]) -> Option<u64> {
        doubt(trials.iter()).map(|doubt| doubt.trial)
    }

    #[test]
    fn loss_beside_an_idle_processor_is_doubtful() {
        assert_eq!(found(&[overload(7, 200, 0.57)]), Some(7));
        assert_eq!(found(&[overload(7, 200, 0.91)]), None, "it was busy");
        assert_eq!(found(&[overload(7, 995, 0.57)]), None, "hardly a loss");
        assert_eq!(found(&[trial(7, Load::Maximum { limit_pps: 1e6 }, 200, None)]), None, "nobody knows");
        let shared = TrialRecord { joint: true, ..overload(7, 200, 0.5) };
        assert_eq!(found(&[shared]), None, "another DUT had the other half");
        let burst = Load::Burst { frames: 1_000, rate_pps: 1e6 };
        assert_eq!(found(&[trial(7, burst, 200, Some(0.1))]), None, "the queue has an end");
        let mut invalid = overload(7, 200, 0.57);
        invalid.result.validity = Validity::Invalid(vec!["late".into()]);
        assert_eq!(found(&[invalid]), None);
        let mut earlier = overload(7, 200, 0.57);
        earlier.result.health.dut_used_ns = None;
        assert_eq!(found(&[earlier]), None, "a share of another time");
    }

    #[test]
    fn a_processor_that_others_had_was_not_idle() {
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
        assert_eq!(found(&[shared.clone()]), None, "it may have waited all that time");
        shared.result.health.kernel_generators = 2;
        assert_eq!(found(&[shared.clone()]), Some(7), "bursts are a cause of their own");
        shared.result.health.kernel_generators = 0;
        shared.result.health.dut_processor = Some(others(Some(100)));
        assert_eq!(found(&[shared]), Some(7), "they ran while it had nothing to do");
    }

    #[test]
    fn most_of_the_lossy_trials_decide() {
        let trials = [overload(1, 200, 0.5), overload(2, 300, 0.95), overload(3, 1_000, 0.3)];
        assert_eq!(found(&trials), None, "one of two");
        assert_eq!(found(&[trials.as_slice(), &[overload(4, 100, 0.6)]].concat()), Some(4), "the one that lost most");
    }

    #[test]
    fn a_figure_that_does_not_depend_on_loss_has_no_doubt() {
        let figure = |key: &str, independent_of_loss: bool| {
            serde_json::json!({
                "key": key, "title": "", "unit": "", "value": 1.0, "higher_is_better": true, "tester_limited": false,
                "resolution": 0.0, "independent_of_loss": independent_of_loss
            })
        };
        let record = serde_json::json!({
            "dut": "d", "test": "forwarding_rate", "title": "", "parameters": {}, "elapsed_s": 1.0,
            "status": {"status": "completed"}, "outcome": {"tables": [], "plots": [], "notes": [], "verdicts": [], "ranks": [
                figure("forwarding_rate_64_pps", false), figure("forwarding_rate_64_frames_per_cpu_s", true)
            ]}
        });
        let mut tests = [serde_json::from_value::<TestRecord>(record).unwrap()];
        mark(&mut tests, &[overload(7, 200, 0.57)], &|_| 0, &|_| false);
        let doubts: Vec<_> = tests[0].outcome.ranks.iter().map(|rank| rank.doubts.len()).collect();
        assert_eq!(doubts, [1, 0]);
    }

    #[test]
    fn trials_of_another_test_of_the_same_name_decide_nothing() {
        let record = |id: &str| {
            serde_json::json!({
                "dut": "d", "test": "forwarding_rate", "id": id, "title": "", "parameters": {}, "elapsed_s": 1.0,
                "status": {"status": "completed"}, "outcome": {"tables": [], "plots": [], "notes": [], "verdicts": [], "ranks": [{
                    "key": "forwarding_rate_64_pps", "title": "", "unit": "", "value": 1.0, "higher_is_better": true,
                    "tester_limited": false, "resolution": 0.0
                }]}
            })
        };
        // The first loses frames beside an idle processor, the second beside a busy one.
        let trials = [overload(7, 200, 0.57), overload(8, 200, 0.97), overload(9, 200, 0.97)];
        let mut tests = ["ip", "push"].map(|id| serde_json::from_value::<TestRecord>(record(id)).unwrap());
        mark(&mut tests, &trials, &|trial| usize::from(trial.result.trial > 7), &|_| false);
        assert_eq!(tests.map(|test| test.outcome.ranks[0].doubts.len()), [1, 0]);
    }

    #[test]
    fn loss_with_filters_is_of_the_figure_with_filters() {
        let figure = |key: &str| {
            serde_json::json!({
                "key": key, "title": "", "unit": "", "value": 1.0, "higher_is_better": true, "tester_limited": false, "resolution": 0.0
            })
        };
        let record = serde_json::json!({
            "dut": "d", "test": "forwarding_rate", "title": "", "parameters": {}, "elapsed_s": 1.0,
            "status": {"status": "completed"}, "outcome": {"tables": [], "plots": [], "notes": [], "verdicts": [], "ranks": [
                figure("forwarding_rate_64_pps"), figure("forwarding_rate_64_filters_pps")
            ]}
        });
        for (filtered, expected) in [(true, [0, 1]), (false, [1, 0])] {
            let mut tests = [serde_json::from_value::<TestRecord>(record.clone()).unwrap()];
            mark(&mut tests, &[TrialRecord { filtered, ..overload(7, 200, 0.57) }], &|_| 0, &|_| false);
            let doubts: Vec<_> = tests[0].outcome.ranks.iter().map(|rank| rank.doubts.len()).collect();
            assert_eq!(doubts, expected, "filtered: {filtered}");
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
