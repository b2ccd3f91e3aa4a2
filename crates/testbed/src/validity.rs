//! Validity of trials. A trial that the tester itself spoilt is invalid; it does not show loss of the DUT.
//!
//! # Invalid trials
//!
//! `testbed/src/validity.rs` detects faults of the tester: the load was not offered, frames were lost in its own
//! receive path, its processor was not available, or the wall clock was set. An invalid trial is stored with the
//! reasons and repeated (`methods::attempts`): three attempts if the tester is at fault, up to 20 if the host is. The
//! limits are listed in [docs/honesty.md](docs/honesty.md). If the tester cannot offer a load to one DUT, it does not
//! offer it to any later DUT (`methods::HighestLoads`, kept by `runner.rs` for the whole run), so all DUTs are compared
//! at the same load. A trial that a busy host spoilt says nothing about the load.

use drophammer_judge::held_up::{HELD_OFF, HOST_BUSY, STOLEN};
use drophammer_model::quantity::show_duration;
use drophammer_model::suite::Profile;
use drophammer_model::trial::{GroupCounts, Health, Load, TrialResult, TrialSpec, Validity};
use std::time::Duration;

/// Limits of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Maximum share of the intended frames that may remain unsent.
    pub unsent: f64,
    /// Longest time in which the tester does not poll the ports.
    pub gap: Duration,
    /// Maximum share of frames that leave more than 1 ms late. Such frames leave in bunches while the tester catches
    /// up. If the DUT loses some of them, it does not lose them at the intended load.
    pub late: f64,
    /// Limits for the host.
    pub host: HostTolerance,
}

/// Limits for what the host does to the processors of tester and DUT during a trial. A trial that exceeds them is
/// invalid, unless no disturbance could produce its result ([`is_proof`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostTolerance {
    /// Maximum share of the time in which the tester's packet loop waits for its processor.
    pub waited: f64,
    /// Maximum share of the time in which the DUT may have waited for a processor that other programs used, if latency
    /// is measured. For other measurements, short waits do no harm.
    pub dut_waited: f64,
    /// Maximum share of the time in which a thread of the DUT has certainly waited for other programs. Processor time
    /// that others use while the DUT is idle does no harm.
    pub dut_waited_least: f64,
    /// Maximum share of a processor that a hypervisor may take away.
    pub stolen: f64,
    /// Longest time for which the DUT's processor may stand still if more than [`STALL_FRAMES`] frames are due in that time.
    pub stall: Duration,
}

impl HostTolerance {
    /// Tolerates everything, for a machine whose measurements are not compared.
    pub const ANY: HostTolerance = HostTolerance {
        waited: f64::INFINITY,
        dut_waited: f64::INFINITY,
        dut_waited_least: f64::INFINITY,
        stolen: f64::INFINITY,
        stall: Duration::MAX,
    };
}

impl Tolerance {
    /// A conformant trial must offer its load to within 0.1 %; a quick one, on a shared machine, to within 1 %. The
    /// offered load is measured and reported either way.
    pub fn of(profile: Profile) -> Tolerance {
        match profile {
            Profile::Conformant => Tolerance {
                unsent: 0.001,
                gap: Duration::from_millis(20),
                late: 0.1,
                host: HostTolerance {
                    waited: 0.02,
                    dut_waited: 0.1,
                    dut_waited_least: 0.03,
                    stolen: 0.02,
                    stall: Duration::from_millis(3),
                },
            },
            Profile::Quick => Tolerance {
                unsent: 0.01,
                gap: Duration::from_millis(50),
                late: 0.3,
                host: HostTolerance {
                    waited: 0.05,
                    dut_waited: 0.25,
                    dut_waited_least: 0.1,
                    stolen: 0.05,
                    stall: Duration::from_millis(5),
                },
            },
        }
    }
}

/// Steps of the wall clock up to this size arise because two clocks are read one after the other.
const CLOCK_STEP_NS: i64 = 50_000;
/// Traffic of this length may be missing at the ends of a trial, however short the trial is.
const EDGE_S: f64 = 10e-6;

/// Returns the share of frames that left more than 1 ms late.
fn late_share(health: &Health) -> f64 {
    /// Upper end of the histogram class that ends closest to 1 ms.
    const MILLISECOND_NS: u64 = 1 << 20;
    let all: u64 = health.departure_errors.iter().map(|(_, frames)| frames).sum();
    let late = health.departure_errors.iter().filter(|(up_to, _)| *up_to > MILLISECOND_NS).map(|(_, frames)| frames);
    late.sum::<u64>() as f64 / all.max(1) as f64
}

/// Frames per port that may be due while the DUT's processor stands still: half the input queue of a router in a
/// namespace, so that none of them is lost.
const STALL_FRAMES: f64 = 1_024.0;
/// The kernel reports steal time in steps of this size.
const STEAL_STEP_NS: u64 = 10_000_000;

/// Describes what the host did to the processors of tester and DUT beyond `tolerance`. Empty if it did nothing.
fn host_busy(spec: &TrialSpec, result: &TrialResult, latency: bool, tolerance: &HostTolerance) -> Vec<String> {
    // A longer drain for late frames must not raise the limits for the host.
    let mut reasons = disturbances(result, (result.sending_s + spec.drain_s) * 1e9, latency, tolerance);
    if let Some(dut) = &result.health.dut_processor
        && stood_still(result, spec.peak_pps(), tolerance.stall)
    {
        let stall = show_duration(Duration::from_nanos(dut.standstill_ns()));
        reasons.push(format!("{HOST_BUSY}: the DUT's processor stood still for {stall}"));
    }
    reasons
}

/// Like `host_busy`, but for a time without traffic, during which the DUT had other work.
pub(crate) fn disturbed(result: &TrialResult, tolerance: &HostTolerance) -> Vec<String> {
    disturbances(result, result.elapsed_s * 1e9, false, tolerance)
}

/// Describes the waits for processors, and the time that a hypervisor took, within at most `most_ns`.
fn disturbances(result: &TrialResult, most_ns: f64, latency: bool, tolerance: &HostTolerance) -> Vec<String> {
    let health = &result.health;
    let mut reasons = Vec::new();
    let share = |ns: u64, of_ns: f64| ns as f64 / of_ns.max(1.0);
    let mut complain = |what: String, ns: u64, of_ns: f64, tolerated: f64| {
        if share(ns, of_ns) > tolerated {
            let (time, percent) = (show_duration(Duration::from_nanos(ns)), share(ns, of_ns) * 100.0);
            reasons.push(format!("{HOST_BUSY}: {what} for {time} ({percent:.0} % of the time)"));
        }
    };
    let elapsed_ns = (result.elapsed_s * 1e9).min(most_ns);
    if let Some(waited) = health.tester_waited_ns {
        complain("the tester waited for its processor".into(), waited, elapsed_ns, tolerance.waited);
    }
    // A single step may include time that was taken before the trial.
    let beyond_a_step = |stolen: Option<u64>| stolen.filter(|ns| *ns > STEAL_STEP_NS);
    if let Some(stolen) = beyond_a_step(health.tester_stolen_ns) {
        complain(format!("{STOLEN} the tester's processor"), stolen, elapsed_ns, tolerance.stolen);
    }
    let Some(dut) = &health.dut_processor else { return reasons };
    let watched_ns = (dut.elapsed_ns as f64).min(most_ns);
    if let Some(stolen) = beyond_a_step(dut.stolen_ns) {
        complain(format!("{STOLEN} the DUT's processor"), stolen, watched_ns, tolerance.stolen);
    }
    let (waited, tolerated) = match (latency, dut.waited_least_ns) {
        (false, Some(least)) => (Some(least), tolerance.dut_waited_least),
        _ => (dut.waited_ns, tolerance.dut_waited),
    };
    if let Some(waited) = waited {
        let most = dut.longest_foreign.as_ref().map_or(String::new(), |name| format!(" (mainly `{name}`)"));
        let what = format!("other programs{most} kept the DUT off its processor");
        complain(what, waited, watched_ns, tolerated);
    }
    reasons
}

/// True if the DUT's processor stood still for longer than `limit` while more frames were due than its queue certainly stores.
fn stood_still(result: &TrialResult, peak_pps: f64, limit: Duration) -> bool {
    let Some(dut) = &result.health.dut_processor else { return false };
    let stall = Duration::from_nanos(dut.standstill_ns());
    stall > limit && stall.as_secs_f64() * peak_pps > STALL_FRAMES
}

/// Returns the limits for a trial of a test that tolerates stalls of up to `borne`. Marks the result if that lets a stall pass.
///
/// Only trials with events tolerate them, because only their times are read. The other trials of such a test count
/// losses, like the trials that search for its load.
pub(crate) fn bear_stall(
    spec: &TrialSpec,
    result: &mut TrialResult,
    borne: Duration,
    mut tolerance: Tolerance,
) -> Tolerance {
    let limit = tolerance.host.stall;
    if spec.events.is_empty() || borne <= limit {
        return tolerance;
    }
    tolerance.host.stall = borne;
    let stood_still = stood_still(result, spec.peak_pps(), limit);
    if let Some(dut) = &mut result.health.dut_processor {
        dut.stall_tolerated = stood_still;
    }
    tolerance
}

/// True for a trial that determines when frames are lost, or to which destinations.
fn reads_times(spec: &TrialSpec) -> bool {
    !spec.events.is_empty()
        || matches!(spec.load, Load::Steps { .. })
        || spec.flows.iter().any(|flow| flow.per_destination)
}

/// True for a group that lost frames at unknown times.
fn has_unknown_times(group: &GroupCounts) -> bool {
    group.lost > 0 && group.last_loss_ns.is_none()
}

/// Which results of its trials a test uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Only counts of frames.
    Counts,
    /// Counts and times, such as round-trip times of pings or processor time.
    Times,
    /// Latencies, for which every wait of the DUT matters.
    Latency,
}

/// True if a trial proves that the DUT carries its load, whatever the host did: all frames were sent at the load and
/// none was lost. A host takes time from the DUT and never gives it any.
fn is_proof(spec: &TrialSpec, result: &TrialResult, read: Read, unsent: f64) -> bool {
    let Load::Constant { rate_pps } = spec.load else { return false };
    let sent_pps = result.offered() as f64 / result.sending_s.max(1e-9);
    read == Read::Counts
        && !reads_times(spec)
        && spec.bin_s.is_none()
        && result.offered() > 0
        && result.lost() == 0
        && sent_pps >= rate_pps * f64::from(result.senders) * (1.0 - unsent)
}

/// Judges a trial of a test that uses `read`.
pub fn judge(spec: &TrialSpec, result: &TrialResult, read: Read, tolerance: Tolerance) -> Validity {
    let mut reasons = Vec::new();
    let health = &result.health;
    if health.receive_drops > 0 {
        reasons.push(format!("the tester lost {} frames in its own receive path", health.receive_drops));
    }
    if health.copies_apart > 0 {
        reasons.push(format!(
            "copies of {} frames arrived at queues of several threads, so latencies count them more than once; use --threads 1",
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
    if health.refused_by_tester > 0 && reads_times(spec) && result.groups.iter().any(has_unknown_times) {
        reasons.push(format!(
            "the tester's own ring refused {} frames, too many to know the times of the other losses",
            health.refused_by_tester
        ));
    }
    if health.clock_step_ns.abs() > CLOCK_STEP_NS {
        reasons.push(format!("the wall clock was set by {} µs", health.clock_step_ns / 1000));
    }
    let is_proof = is_proof(spec, result, read, tolerance.unsent);
    let gap = Duration::from_nanos(health.max_gap_ns);
    if gap > tolerance.gap && !is_proof {
        reasons.push(format!("{HELD_OFF} for {}", show_duration(gap)));
    }
    let late = late_share(health);
    if matches!(spec.load, Load::Constant { .. } | Load::Steps { .. } | Load::Flows) && late > tolerance.late {
        let percent = late * 100.0;
        reasons
            .push(format!("the tester sent {percent:.0} % of the frames more than 1 ms late, so they came in bunches"));
    }
    if matches!(spec.load, Load::Burst { .. }) {
        let nominal = spec.sending_time().as_secs_f64();
        if result.sending_s > nominal * 1.1 + 200e-6 {
            reasons.push(format!("the burst took {:.3} ms instead of {:.3} ms", result.sending_s * 1e3, nominal * 1e3));
        }
    }
    if !is_proof {
        reasons.extend(host_busy(spec, result, read == Read::Latency, &tolerance.host));
    }
    if reasons.is_empty() { Validity::Valid } else { Validity::Invalid(reasons) }
}

/// Returns the result of a trial that could not be completed.
pub(crate) fn spoilt(trial: u64, spec: &TrialSpec, cause: &str) -> TrialResult {
    let mut groups: Vec<GroupCounts> = Vec::new();
    for flow in spec.flows.iter().filter(|flow| !flow.background) {
        if groups.iter().all(|g| g.group != flow.group) {
            groups.push(GroupCounts { group: flow.group.clone(), ..GroupCounts::default() });
        }
    }
    let reason = format!("{cause}; counts until then are not valid");
    TrialResult {
        trial,
        groups,
        validity: Validity::Invalid(vec![reason]),
        senders: spec.senders().len() as u32,
        ..TrialResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::{AddressRange, FlowSpec, GroupCounts, Health, ProcessorRecord, TimedEvent};

    fn trial(load: Load, sending_s: f64, health: Health) -> (TrialSpec, TrialResult) {
        let hosts = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: 1 };
        let spec = TrialSpec {
            purpose: String::new(),
            size: "64".parse().unwrap(),
            flows: vec![FlowSpec::new("a", 0, 1, hosts, hosts)],
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
            // A trial without loss can be a proof.
            groups: vec![GroupCounts {
                intended: 100_000,
                offered,
                lost: 1,
                last_loss_ns: Some(0),
                ..GroupCounts::default()
            }],
            health,
            senders: 1,
            ..TrialResult::default()
        };
        (spec, result)
    }

    fn judged(load: Load, sending_s: f64, health: Health) -> Validity {
        let (spec, result) = trial(load, sending_s, health);
        judge(&spec, &result, Read::Counts, Tolerance::of(Profile::Conformant))
    }

    #[test]
    fn a_trial_without_loss_is_valid_however_the_host_disturbed_it() {
        // The hypervisor took the processor for half of the time; `spoil` adds one more disturbance.
        let judged = |read: Read, spoil: &dyn Fn(&mut TrialSpec, &mut TrialResult)| {
            let health = Health { max_gap_ns: 60_000_000, tester_stolen_ns: Some(500_000_000), ..Health::default() };
            let (mut spec, mut result) = trial(Load::Constant { rate_pps: 1e5 }, 1.0, health);
            result.groups[0].lost = 0;
            spoil(&mut spec, &mut result);
            judge(&spec, &result, read, Tolerance::of(Profile::Conformant)).is_valid()
        };
        assert!(judged(Read::Counts, &|_, _| ()));
        assert!(!judged(Read::Latency, &|_, _| ()) && !judged(Read::Times, &|_, _| ()));
        type Spoil = (&'static str, &'static dyn Fn(&mut TrialSpec, &mut TrialResult));
        let spoilt: [Spoil; 7] = [
            ("a lost frame", &|_, result| result.groups[0].lost = 1),
            ("frames unsent", &|_, result| (result.health.unsent, result.groups[0].offered) = (900, 99_100)),
            ("a lower load", &|_, result| result.sending_s = 1.01),
            ("its own losses", &|_, result| result.health.receive_drops = 1),
            ("the clock", &|_, result| result.health.clock_step_ns = 60_000),
            ("times over bins", &|spec, _| spec.bin_s = Some(0.1)),
            ("another load", &|spec, _| spec.load = Load::Maximum { limit_pps: 1e5 }),
        ];
        for (what, spoil) in spoilt {
            assert!(!judged(Read::Counts, spoil), "{what}");
        }
    }

    #[test]
    fn only_trials_with_events_bear_a_longer_stall() {
        // Returns true if a trial is valid when it tolerates a stall of up to 60 ms, and true if the result records that it did.
        let judged = |stall_ns, rate_pps, event: bool| {
            let record = ProcessorRecord { longest_stall_ns: stall_ns, ..ProcessorRecord::default() };
            let health = Health { dut_processor: Some(record), ..Health::default() };
            let (mut spec, mut result) = trial(Load::Constant { rate_pps }, 1.0, health);
            if event {
                spec.events.push(TimedEvent::new(0.5, 0, "routes up"));
            }
            let tolerance = Tolerance::of(Profile::Conformant);
            let tolerance = bear_stall(&spec, &mut result, Duration::from_millis(60), tolerance);
            let valid = judge(&spec, &result, Read::Counts, tolerance).is_valid();
            (valid, result.health.dut_processor.is_some_and(|dut| dut.stall_tolerated))
        };
        assert_eq!(judged(60_000_000, 1e6, true), (true, true));
        assert_eq!(judged(60_000_001, 1e6, true), (false, true));
        assert_eq!(judged(60_000_000, 1e6, false), (false, false), "a search counts losses");
        // Every test tolerates such stalls.
        assert_eq!(judged(3_000_000, 1e6, true), (true, false));
        assert_eq!(judged(10_000_000, 1e5, true), (true, false));
    }

    #[test]
    fn a_processor_that_forwards_does_not_stand_still() {
        let judged = |stood_still_ns| {
            let record = ProcessorRecord { longest_stall_ns: 40_000_000, stood_still_ns, ..ProcessorRecord::default() };
            let health = Health { dut_processor: Some(record), ..Health::default() };
            let (spec, result) = trial(Load::Constant { rate_pps: 1e5 }, 1.0, health);
            judge(&spec, &result, Read::Counts, Tolerance::of(Profile::Quick)).is_valid()
        };
        // At this rate, the time for 1,024 frames is longer than the limit.
        assert!(judged(Some(10_240_000)));
        assert!(!judged(Some(10_240_001)), "frames were forwarded in the rest of the stall only");
        assert!(!judged(None), "nothing arrived");
    }

    #[test]
    fn a_trial_that_is_read_for_times_must_tell_when_frames_were_lost() {
        let judged = |change: &dyn Fn(&mut TrialSpec, &mut TrialResult)| {
            let health = Health { refused_by_tester: 70_000, ..Health::default() };
            let (mut spec, mut result) = trial(Load::Constant { rate_pps: 1e5 }, 1.0, health);
            result.groups[0].last_loss_ns = None;
            change(&mut spec, &mut result);
            judge(&spec, &result, Read::Counts, Tolerance::of(Profile::Conformant))
        };
        let event = || TimedEvent::new(0.5, 0, "link down");
        assert!(judged(&|_, _| {}).is_valid(), "only the number of lost frames is read");
        assert!(!judged(&|spec, _| spec.load = Load::Steps { steps: Vec::new() }).is_valid());
        assert!(!judged(&|spec, _| spec.flows[0].per_destination = true).is_valid());
        match judged(&|spec, _| spec.events.push(event())) {
            Validity::Invalid(reasons) => assert!(reasons[0].contains("refused 70000 frames"), "{reasons:?}"),
            Validity::Valid => panic!("must be invalid"),
        }
        let with_event = |change: fn(&mut TrialResult)| {
            judged(&|spec, result| {
                spec.events.push(event());
                change(result);
            })
        };
        assert!(with_event(|result| result.groups[0].last_loss_ns = Some(5)).is_valid(), "the times are known");
        assert!(with_event(|result| result.groups[0].lost = 0).is_valid(), "there are no times");
        assert!(with_event(|result| result.health.refused_by_tester = 0).is_valid(), "the tester refused nothing");
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
        reason(constant(), 1.0, Health { max_gap_ns: 21_000_000, ..Health::default() }, "held off");
        let late =
            |frames| Health { departure_errors: vec![(1_048_575, 90), (2_097_151, frames)], ..Health::default() };
        assert!(judged(constant(), 1.0, late(10)).is_valid());
        reason(constant(), 1.0, late(11), "11 % of the frames more than 1 ms late");
        assert!(judged(Load::Flows, 1.0, late(10)).is_valid());
        reason(Load::Flows, 1.0, late(11), "11 % of the frames more than 1 ms late");
        assert!(judged(Load::Maximum { limit_pps: 1e5 }, 1.0, late(90)).is_valid(), "what is too much comes late");
        // The trial took one second.
        let waited = |ns| Health { tester_waited_ns: Some(ns), ..Health::default() };
        assert!(judged(constant(), 1.0, waited(20_000_000)).is_valid());
        reason(constant(), 1.0, waited(21_000_000), "host busy: the tester waited for its processor for 21 ms");
        let stolen = |ns| Health { tester_stolen_ns: Some(ns), ..Health::default() };
        assert!(judged(constant(), 1.0, stolen(10_000_000)).is_valid());
        reason(constant(), 1.0, stolen(30_000_000), "took the tester's processor");
        let dut = |waited, stolen, stall| {
            let record = ProcessorRecord {
                elapsed_ns: 1_000_000_000,
                foreign_ns: Some(900_000_000),
                waited_ns: Some(waited),
                longest_foreign: Some("cc1".into()),
                stolen_ns: Some(stolen),
                longest_stall_ns: stall,
                ..ProcessorRecord::default()
            };
            Health { dut_processor: Some(record), ..Health::default() }
        };
        assert!(judged(constant(), 1.0, dut(100_000_000, 20_000_000, 3_000_000)).is_valid());
        reason(
            constant(),
            1.0,
            dut(101_000_000, 0, 0),
            "other programs (mainly `cc1`) kept the DUT off its processor for 101 ms",
        );
        // Only waits that are certain count, unless latency is measured.
        let certainly = |least| {
            let mut health = dut(400_000_000, 0, 0);
            health.dut_processor.as_mut().unwrap().waited_least_ns = Some(least);
            health
        };
        assert!(judged(constant(), 1.0, certainly(30_000_000)).is_valid());
        reason(constant(), 1.0, certainly(31_000_000), "for 31 ms");
        let host = Tolerance::of(Profile::Conformant).host;
        let (spec, result) = trial(constant(), 1.0, certainly(0));
        let [latency, loss] = [true, false].map(|latency| host_busy(&spec, &result, latency, &host));
        assert!(latency.len() == 1 && latency[0].contains("for 400 ms") && loss.is_empty(), "{latency:?} {loss:?}");
        reason(constant(), 1.0, dut(0, 30_000_000, 0), "took the DUT's processor");
        assert!(judged(constant(), 1.0, dut(0, 0, 10_000_000)).is_valid(), "1,000 frames wait in the input queue");
        reason(constant(), 1.0, dut(0, 0, 11_000_000), "stood still");
        assert!(judged(Load::Constant { rate_pps: 1e6 }, 1.0, dut(0, 0, 3_000_000)).is_valid());
        reason(Load::Constant { rate_pps: 1e6 }, 1.0, dut(0, 0, 3_000_001), "stood still");
        let burst = || Load::Burst { frames: 100_000, rate_pps: 1e5 };
        assert!(judged(burst(), 1.05, Health::default()).is_valid());
        reason(burst(), 1.2, Health::default(), "burst took");
    }
}
