//! What forwarding a frame costs the router's processor, at one load for all routers: the only way to tell routers apart whose limit is
//! beyond the tester. At maximum load it cannot be measured, because a processor also spends time on frames that it then loses.

use super::{PAUSE, REPEATS, TRIAL_DURATION};
use crate::columns;
use crate::pattern::Pattern;
use crate::report::{higher, is_overloaded, loss_percent, note, note_of, note_unfit, trials};
use crate::table::TableSpec;
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, RankFigure};
use drophammer_model::quantity::FrameRate;
use drophammer_model::size::PacketSize;
use drophammer_model::suite::Params;
use drophammer_model::trial::{Load, TrialResult};

/// Differences that matter: batches and caches cost one router as much from one bring-up to the next.
const LEAST: f64 = 0.1;

columns! {
    /// One frame size at the stated load, over all its trials.
    pub(super) struct ProcessorRow {
        frame_size: PacketSize = "Frame size",
        protocol: String = "Protocol",
        load_pps: f64 = "Load" ["fps"],
        forwarded: u64 = "Forwarded" ["frames"],
        loss_percent: Option<f64> = "Loss" ["%"],
        processor_ms: Option<f64> = "Processor time" ["ms"],
        frame_ns: Option<f64> = "Per frame" ["ns"],
        frames_per_cpu_s: Option<f64> = "Frames per second of processor time" ["frames/s"],
        trials: u64 = "Trials",
    }
}

pub(super) const TABLE: TableSpec<ProcessorRow> = TableSpec::new("processor_time", "Processor time of forwarding");

/// Processor time of the DUT in these trials, in seconds, without what its processor did for the tester's ends of the links; `None` where
/// that is not known.
fn processor_s(results: &[TrialResult]) -> Option<f64> {
    let (mut used_ns, mut tester_ns) = (0, 0);
    for result in results {
        used_ns += result.health.dut_used_ns?;
        tester_ns += result.health.tester_on_dut_ns?;
    }
    (used_ns > tester_ns).then(|| (used_ns - tester_ns) as f64 / 1e9)
}

/// Runs the trials at `rate` per sending port and adds their row and their figure. `progress` gets the number of trials that have ended.
pub(super) fn measure(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    outcome: &mut Outcome,
    params: &Params,
    rate: FrameRate,
    mut progress: impl FnMut(&mut dyn Testbed, u32),
) -> Result<(), TestError> {
    TABLE.begin(outcome);
    let line = pattern.limits(bed).line;
    // A rate of exactly the line may be a hair above it after rounding.
    if rate.pps() > line.pps() * (1.0 + 1e-9) {
        note_of(outcome, pattern, format!("no processor time at {rate} per port: line rate is {line}"));
        return Ok(());
    }
    let mut results: Vec<TrialResult> = Vec::new();
    let stopped = (0..REPEATS.get(params)).try_for_each(|trial| {
        progress(bed, trial);
        let purpose = format!("forwarding rate {}: {rate}, trial {}", pattern.size, trial + 1);
        let load = Load::Constant { rate_pps: rate.pps() };
        let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
        results.push(bed.trial(&spec)?);
        bed.settle(PAUSE.get(params))
    });
    let stopped = match stopped {
        Err(TestError::Unfit(why)) => {
            note_unfit(outcome, pattern, "processor time left out or cut short,", rate, &why);
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
    // A figure that cannot be known must not count as one that the router failed to reach.
    if own_s.is_none() {
        return;
    }
    let key = format!("forwarding_rate_{}_frames_per_cpu_s", pattern.size);
    let title = format!("Frames per second of processor time at {rate} per port, {}", pattern.size_text());
    outcome.ranks.push(RankFigure {
        load_pps: Some(rate.pps()),
        least: LEAST,
        independent_of_loss: true,
        ..higher(key, title, "frames/s", value)
    });
}
