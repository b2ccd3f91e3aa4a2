//! May a trial be used? A trial that the tester itself spoilt is invalid, not lossy.

use drophammer_model::quantity::show_duration;
use drophammer_model::suite::Profile;
use drophammer_model::trial::{GroupCounts, Health, Load, TrialResult, TrialSpec, Validity};
use std::collections::BTreeMap;
use std::time::Duration;

/// Limits of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Share of the intended frames that may remain unsent.
    pub unsent: f64,
    /// Longest time without a look at the ports.
    pub gap: Duration,
}

impl Tolerance {
    /// A conformant trial offers its load to 0.1 %; a quick one, on a machine that others share, to 1 %. What was offered
    /// is measured and reported either way.
    pub fn of(profile: Profile) -> Tolerance {
        match profile {
            Profile::Conformant => Tolerance { unsent: 0.001, gap: Duration::from_millis(50) },
            Profile::Quick => Tolerance { unsent: 0.01, gap: Duration::from_millis(100) },
        }
    }
}

/// Steps of the wall clock up to this much come from reading two clocks one after the other.
const CLOCK_STEP_NS: i64 = 50_000;
/// Traffic of this length may be missing at the ends of a trial whatever its size.
const EDGE_S: f64 = 10e-6;

/// Judges a trial.
pub fn judge(spec: &TrialSpec, result: &TrialResult, tolerance: Tolerance) -> Validity {
    let mut reasons = Vec::new();
    let health = &result.health;
    if health.receive_drops > 0 {
        reasons.push(format!("the tester lost {} frames in its own receive path", health.receive_drops));
    }
    if health.copies_apart > 0 {
        reasons.push(format!(
            "copies of {} frames came to queues of several threads, so latencies count them more than once; say --threads 1",
            health.copies_apart
        ));
    }
    let intended = result.intended();
    let edge = spec.peak_pps() * EDGE_S * f64::from(result.senders);
    if health.unsent as f64 > (intended as f64 * tolerance.unsent).max(edge).max(1.0) {
        reasons.push(format!(
            "the tester sent {:.2} % less than intended ({} of {} frames)",
            health.unsent as f64 * 100.0 / intended.max(1) as f64,
            result.offered(),
            intended
        ));
    }
    if health.clock_step_ns.abs() > CLOCK_STEP_NS {
        reasons.push(format!("the wall clock was set by {} µs", health.clock_step_ns / 1000));
    }
    let gap = Duration::from_nanos(health.max_gap_ns);
    if gap > tolerance.gap {
        reasons.push(format!("the tester was held off the processor for {}", show_duration(gap)));
    }
    if matches!(spec.load, Load::Burst { .. }) {
        let nominal = spec.sending_time().as_secs_f64();
        if result.sending_s > nominal * 1.1 + 200e-6 {
            reasons.push(format!("the burst took {:.3} ms instead of {:.3} ms", result.sending_s * 1e3, nominal * 1e3));
        }
    }
    if reasons.is_empty() { Validity::Valid } else { Validity::Invalid(reasons) }
}

/// The result of a trial that could not be brought to its end.
pub(crate) fn spoilt(trial: u64, spec: &TrialSpec, cause: &str) -> TrialResult {
    let mut groups: Vec<GroupCounts> = Vec::new();
    for flow in &spec.flows {
        if groups.iter().all(|g| g.group != flow.group) {
            groups.push(GroupCounts { group: flow.group.clone(), ..GroupCounts::default() });
        }
    }
    let reason = format!("{cause}; what was counted until then is void");
    TrialResult {
        trial,
        sending_s: 0.0,
        receiving_s: 0.0,
        elapsed_s: 0.0,
        groups,
        health: Health::default(),
        validity: Validity::Invalid(vec![reason]),
        dut_cpu: None,
        dut_counters: BTreeMap::new(),
        senders: spec.senders().len() as u32,
        events: vec![],
        destinations: vec![],
        destination_summaries: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{GroupCounts, Health};

    fn judged(load: Load, sending_s: f64, health: Health) -> Validity {
        let spec = TrialSpec {
            purpose: String::new(),
            size: "64".parse().unwrap(),
            flows: vec![],
            load,
            duration_s: 1.0,
            bin_s: None,
            drain_s: 0.0,
            events: vec![],
        };
        let offered = 100_000 - health.unsent;
        let result = TrialResult {
            trial: 1,
            sending_s,
            receiving_s: 1.0,
            elapsed_s: 1.0,
            groups: vec![GroupCounts { intended: 100_000, offered, ..GroupCounts::default() }],
            health,
            validity: Validity::Valid,
            dut_cpu: None,
            dut_counters: Default::default(),
            senders: 1,
            events: vec![],
            destinations: vec![],
            destination_summaries: vec![],
        };
        judge(&spec, &result, Tolerance::of(Profile::Conformant))
    }

    #[test]
    fn each_fault_of_the_tester_has_its_reason() {
        let constant = || Load::Constant { rate_pps: 1e5 };
        let reason = |load, sending_s, health, word: &str| match judged(load, sending_s, health) {
            Validity::Invalid(reasons) => assert!(reasons.len() == 1 && reasons[0].contains(word), "{reasons:?}"),
            Validity::Valid => panic!("{word}: must be invalid"),
        };
        assert!(judged(constant(), 1.0, Health { unsent: 100, ..Health::default() }).is_valid());
        reason(constant(), 1.0, Health { unsent: 101, ..Health::default() }, "less than intended");
        reason(constant(), 1.0, Health { receive_drops: 1, ..Health::default() }, "receive path");
        reason(constant(), 1.0, Health { clock_step_ns: -60_000, ..Health::default() }, "clock");
        reason(constant(), 1.0, Health { max_gap_ns: 51_000_000, ..Health::default() }, "held off");
        let burst = || Load::Burst { frames: 100_000, rate_pps: 1e5 };
        assert!(judged(burst(), 1.05, Health::default()).is_valid());
        reason(burst(), 1.2, Health::default(), "burst took");
    }
}
