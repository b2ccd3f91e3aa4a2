//! Results of one router in one trial.

use super::{BIN_S, WARM_UP_BINS};
use crate::kit::prelude::*;

/// Result of one router in one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) trial: u64,
    /// Per sending port.
    pub(super) offered_pps: f64,
    pub(super) rate_pps: f64,
    pub(super) frames_per_cpu_s: Option<f64>,
    /// Processor time that the router used, in ns.
    pub(super) cpu_ns: Option<u64>,
    /// True if the router lost frames in every time bin.
    pub(super) saturated: bool,
    pub(super) offered: u64,
    pub(super) lost: u64,
}

impl Sample {
    pub(super) fn of(result: &TrialResult) -> Sample {
        let bins = || result.groups.iter().flat_map(|group| group.bins.iter().enumerate());
        let last = (result.sending_s / BIN_S).round() as usize;
        let counted = last.saturating_sub(WARM_UP_BINS);
        let within = |index: usize| (WARM_UP_BINS..last).contains(&index);
        let arrived: u64 = bins().filter(|(index, _)| within(*index)).map(|(_, bin)| bin.arrived).sum();
        let lossy = bins().filter(|(index, bin)| within(*index) && bin.offered > bin.delivered).count();
        let whole_s = BIN_S * counted.max(1) as f64;
        let own_ns = result
            .health
            .dut_used_ns
            .zip(result.health.tester_on_dut_ns)
            .map(|(used, tester)| used.saturating_sub(tester));
        let own_ns = own_ns.filter(|ns| *ns > 0);
        Sample {
            trial: result.trial,
            offered_pps: result.offered_load().pps(),
            rate_pps: arrived as f64 / whole_s / f64::from(result.senders.max(1)),
            frames_per_cpu_s: own_ns.map(|ns| result.received() as f64 / (ns as f64 / 1e9)),
            cpu_ns: own_ns,
            saturated: counted > 0 && lossy >= counted * result.groups.len(),
            offered: result.offered(),
            lost: result.lost(),
        }
    }
}

/// Rates of the trials that count: a router that was not saturated may just forward the whole load. All routers have
/// the same trials, so these rates form pairs.
pub(super) fn rates_of(samples: &[Sample], counted: &[bool]) -> Vec<f64> {
    samples.iter().zip(counted).filter(|(_, counted)| **counted).map(|(sample, _)| sample.rate_pps).collect()
}

/// The trials that are in both lists.
pub(super) fn both(a: &[bool], b: &[bool]) -> Vec<bool> {
    a.iter().zip(b).map(|(a, b)| *a && *b).collect()
}

/// Returns for each trial whether the routers shared the processor evenly. `samples` has one list for each router.
pub(super) fn shared_evenly(samples: &[Vec<Sample>]) -> Vec<bool> {
    let trials = samples.iter().map(Vec::len).min().unwrap_or(0);
    let of_trial = |trial: usize| samples.iter().map(|of_dut| vec![of_dut[trial]]).collect::<Vec<_>>();
    (0..trials).map(|trial| is_even(&shares(&of_trial(trial)))).collect()
}

/// Maximum difference between a router's share of the processor and the even share, as a fraction of the even share.
const EVEN: f64 = 0.1;

/// True unless the routers are known to have got different shares of the processor.
pub(super) fn is_even(shares: &[Option<f64>]) -> bool {
    shares.iter().flatten().all(|share| (share * shares.len() as f64 - 1.0).abs() <= EVEN)
}

/// Each router's share of the processor time of all routers, over all trials; `None` if unknown.
pub(super) fn shares(samples: &[Vec<Sample>]) -> Vec<Option<f64>> {
    let own: Vec<Option<u64>> = samples.iter().map(|of_dut| of_dut.iter().map(|sample| sample.cpu_ns).sum()).collect();
    let all: Option<u64> = own.iter().copied().sum();
    own.iter().map(|own| Some((*own)? as f64 / all.filter(|all| *all > 0)? as f64)).collect()
}

/// Geometric mean, so that figures and ratios agree: the ratio of two geometric means is the geometric mean of the
/// ratios.
pub(super) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let possible = !values.is_empty() && values.iter().all(|value| *value > 0.0);
    possible.then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{Bin, GroupCounts, Health};

    fn bin(offered: u64, delivered: u64, arrived: u64) -> Bin {
        Bin { offered, delivered, arrived }
    }

    fn result(bins: Vec<Bin>, used_ns: Option<u64>) -> TrialResult {
        let offered = bins.iter().map(|bin| bin.offered).sum();
        let received = bins.iter().map(|bin| bin.delivered).sum();
        TrialResult {
            sending_s: 0.5,
            senders: 2,
            groups: vec![GroupCounts { offered, received, lost: offered - received, bins, ..GroupCounts::default() }],
            health: Health { dut_used_ns: used_ns, tester_on_dut_ns: used_ns.map(|ns| ns / 5), ..Health::default() },
            ..TrialResult::default()
        }
    }

    #[test]
    fn queues_that_fill_and_drain_do_not_count() {
        let mut bins = vec![bin(100, 60, 10)];
        bins.extend([bin(100, 60, 60); 4]);
        // Frames that leave the queue after the last departure.
        bins.push(bin(0, 0, 50));
        let sample = Sample::of(&result(bins.clone(), Some(250_000_000)));
        assert_eq!(sample.rate_pps, 60.0 * 4.0 / 0.4 / 2.0);
        assert!(sample.saturated);
        // 300 frames in 200 ms of own time.
        assert_eq!(sample.frames_per_cpu_s, Some(1_500.0));
        bins[3] = bin(100, 100, 60);
        assert!(!Sample::of(&result(bins, None)).saturated, "it had to wait for frames in one bin");
    }

    #[test]
    fn a_trial_in_which_a_router_waited_is_no_pair() {
        let of = |rate_pps| Sample { rate_pps, ..Sample::of(&result(Vec::new(), None)) };
        assert_eq!(rates_of(&[of(1.0), of(2.0), of(3.0)], &[true, false, true]), [1.0, 3.0]);
    }

    #[test]
    fn shares_are_known_only_if_all_are() {
        let of = |ns| Sample { cpu_ns: ns, ..Sample::of(&result(Vec::new(), None)) };
        assert_eq!(shares(&[vec![of(Some(1)), of(Some(2))], vec![of(Some(4)), of(Some(5))]]), [Some(0.25), Some(0.75)]);
        assert_eq!(shares(&[vec![of(Some(1))], vec![of(None)]]), [None, None]);
    }

    #[test]
    fn a_trial_in_which_a_router_had_other_work_is_no_pair() {
        let of = |ns| Sample { cpu_ns: Some(ns), ..Sample::of(&result(Vec::new(), None)) };
        let samples = [vec![of(50), of(60), of(49)], vec![of(50), of(40), of(51)]];
        assert_eq!(shared_evenly(&samples), [true, false, true]);
        assert_eq!(both(&[true, true, false], &shared_evenly(&samples)), [true, false, false]);
    }

    #[test]
    fn a_share_of_a_third_is_even_among_three() {
        assert!(is_even(&[Some(0.31), Some(0.35), Some(0.34)]) && is_even(&[None, None]));
        assert!(!is_even(&[Some(0.44), Some(0.56)]));
    }

    #[test]
    fn a_mean_of_ratios_is_the_ratio_of_means() {
        let (a, b) = (vec![100.0, 150.0, 90.0], vec![50.0, 70.0, 45.0]);
        let ratio = geometric_mean(&a).unwrap() / geometric_mean(&b).unwrap();
        let ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a / b).collect();
        assert!((ratio - geometric_mean(&ratios).unwrap()).abs() < 1e-12);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
    }
}
