//! Processor time of the router for each forwarded frame: the only way to compare routers that are faster than the
//! tester, and steadier than a rate on a busy machine. At maximum load it includes the time spent on lost frames: a
//! router that loses a frame after working on it has wasted that time. The frames per second of processor time, at one
//! load for all routers, do not include it.

use super::{FRAME_NS, FRAMES_PER_CPU_S, PAUSE, REPEATS, TRIAL_DURATION};
use crate::kit::prelude::*;

/// Smaller differences do not matter: batching and caching change the cost of one router by this much between
/// bring-ups.
const LEAST: f64 = 0.1;

columns! {
    /// One frame size at the stated load, over all its trials.
    pub(super) struct ProcessorRow {
        frame_size: PacketSize,
        protocol: String,
        load_pps: f64 ["fps"],
        forwarded: u64 ["frames"],
        loss_percent: Option<f64> ["%"],
        processor_ms: Option<f64> = "Processor time" ["ms"],
        frame_ns: Option<f64> = "Per frame" ["ns"],
        frames_per_cpu_s: Option<f64> = "Frames per second of processor time" ["frames/s"],
        trials: u64,
    }
}

pub(super) const TABLE: TableSpec<ProcessorRow> = TableSpec::new("processor_time", "Processor time for forwarding");

/// Processor time of the DUT in these trials, in seconds, without the work of its processor for the tester's ends of
/// the links; `None` if unknown.
fn processor_s(results: &[TrialResult]) -> Option<f64> {
    let (mut used_ns, mut tester_ns) = (0, 0);
    for result in results {
        used_ns += result.health.dut_used_ns?;
        tester_ns += result.health.tester_on_dut_ns?;
    }
    (used_ns > tester_ns).then(|| (used_ns - tester_ns) as f64 / 1e9)
}

/// Processor time of the DUT for each frame that it forwarded in these trials, in ns.
pub(super) fn frame_ns(results: &[TrialResult]) -> Option<f64> {
    let forwarded: u64 = results.iter().map(TrialResult::received).sum();
    processor_s(results).filter(|_| forwarded > 0).map(|own_s| own_s * 1e9 / forwarded as f64)
}

/// The figure of [`frame_ns`] at maximum load, which was `limit` per sending port.
pub(super) fn at_maximum_load(pattern: &Pattern, limit: FrameRate, frame_ns: Option<f64>) -> RankFigure {
    let title = format!("Processor time per frame at maximum load, {}", pattern.size_text());
    RankFigure {
        load_pps: Some(limit.pps()),
        least: LEAST,
        independent_of_loss: true,
        ..FRAME_NS.of(&[("size", &pattern.size)], title, frame_ns)
    }
}

/// Runs the trials at `rate` per sending port and adds their row and their figure.
pub(super) fn measure(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    outcome: &mut Outcome,
    params: &Params,
    rate: FrameRate,
) -> Result<(), TestError> {
    TABLE.begin(outcome);
    let line = pattern.limits(bed).line;
    // Rounding may put a rate of exactly the line rate slightly above it.
    if rate.pps() > line.pps() * (1.0 + 1e-9) {
        note_of(outcome, pattern, format!("no processor time at {rate} per port: line rate is {line}"));
        return Ok(());
    }
    let mut results: Vec<TrialResult> = Vec::new();
    let stopped = (0..REPEATS.get(params)).try_for_each(|trial| {
        bed.progress(&format!("processor time, {} at {rate}", pattern.size_text()));
        let purpose = format!("forwarding rate {}: {rate}, trial {}", pattern.size, trial + 1);
        let load = Load::Constant { rate_pps: rate.pps() };
        let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
        results.push(bed.trial(&spec)?);
        bed.settle(PAUSE.get(params))
    });
    let stopped = match stopped {
        Err(TestError::Unfit(why)) => {
            note_unfit(outcome, pattern, "processor time left out or cut short,", rate, &why);
            if results.is_empty() {
                outcome.ranks.push(figure(pattern, rate, None).beyond(why.join("; ")));
            }
            Ok(())
        }
        other => other,
    };
    if !results.is_empty() {
        let few = (results.len() < REPEATS.get(params) as usize)
            .then(|| format!("{} of {} trials", results.len(), REPEATS.get(params)));
        write(outcome, pattern, rate, &results, few);
    }
    stopped
}

/// The figure at `rate` per port.
fn figure(pattern: &Pattern, rate: FrameRate, value: Option<f64>) -> RankFigure {
    let title = format!("Frames per second of processor time at {rate} per port, {}", pattern.size_text());
    RankFigure {
        load_pps: Some(rate.pps()),
        least: LEAST,
        independent_of_loss: true,
        ..FRAMES_PER_CPU_S.of(&[("size", &pattern.size)], title, value)
    }
}

fn write(outcome: &mut Outcome, pattern: &Pattern, rate: FrameRate, results: &[TrialResult], few: Option<String>) {
    let forwarded: u64 = results.iter().map(TrialResult::received).sum();
    let loss = loss_percent(results);
    let own_s = processor_s(results);
    let carried = own_s.filter(|_| !is_overloaded(results) && forwarded > 0);
    let value = carried.map(|own_s| forwarded as f64 / own_s);
    let mut marks: Vec<String> = few.into_iter().collect();
    if own_s.is_none() {
        note(
            outcome,
            "The router's processor time, or the tester's share of it, is not known. The tester measures its share as root.",
        );
    } else if carried.is_none() {
        marks.push("overloaded".to_owned());
        let lost = loss.unwrap_or(0.0);
        let why = "part of its processor time went into lost frames, so it has no figure at this load";
        note_of(outcome, pattern, format!("the router lost {lost:.1} % at {rate} per port; {why}"));
    }
    TABLE.add(
        outcome,
        ProcessorRow {
            frame_size: pattern.size.clone(),
            protocol: pattern.protocol(),
            load_pps: rate.pps(),
            forwarded,
            loss_percent: loss,
            processor_ms: own_s.map(|s| s * 1e3),
            frame_ns: value.map(|value| 1e9 / value),
            frames_per_cpu_s: value,
            trials: results.len() as u64,
        },
        trials(results),
        marks,
    );
    let figure = figure(pattern, rate, value);
    outcome.ranks.push(match own_s {
        None => figure.beyond("the router's processor time, or the tester's share of it, is not known; the tester measures its share as root"),
        Some(_) => figure.because("it lost frames at this load"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::GroupCounts;

    fn trial(used_ns: Option<u64>, tester_ns: Option<u64>, received: u64) -> TrialResult {
        let mut result = TrialResult::default();
        (result.health.dut_used_ns, result.health.tester_on_dut_ns) = (used_ns, tester_ns);
        result.groups = vec![GroupCounts { received, ..GroupCounts::default() }];
        result
    }

    #[test]
    fn the_time_of_a_frame_is_without_the_testers_share() {
        let trials = [trial(Some(3_000_000), Some(1_000_000), 1_000), trial(Some(2_500_000), Some(500_000), 1_000)];
        assert_eq!(frame_ns(&trials), Some(2_000.0));
        assert_eq!(frame_ns(&[trial(Some(3_000_000), None, 1_000)]), None, "the tester's share is not known");
        assert_eq!(frame_ns(&[trial(Some(3_000_000), Some(0), 0)]), None, "nothing was forwarded");
    }
}
