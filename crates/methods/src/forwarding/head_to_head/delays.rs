//! Latencies of several routers at one load, measured at the same time.

use super::sample::geometric_mean;
use super::turns::by_turns;
use super::{DELAY_AT, LATENCY, Size, TRIALS};
use crate::kit::prelude::*;

columns! {
    /// Latency of one frame size on one router at the load `delay_at`.
    pub(super) struct DelayRow {
        frame_size: PacketSize,
        protocol: String,
        load_pps: f64 ["fps"],
        median_us: f64 = "Median latency" ["µs"],
        p99_us: Option<f64> = "99 % latency" ["µs"],
        loss_percent: Option<f64> ["%"],
        trials: u64,
    }
}

pub(super) const DELAYS: TableSpec<DelayRow> = TableSpec::new("head_to_head_delay", "Latency side by side");

/// Why there is no figure at a load that the router does not carry.
const FULL_QUEUES: &str = "frames were lost, so this is the latency of full queues";

impl Size<'_> {
    /// The latencies at the load `delay_at`, if the suite asks for them.
    pub(super) fn delay(&self, bed: &mut dyn Testbed, outcomes: &mut [Outcome]) -> Result<(), TestError> {
        let Some(rate) = DELAY_AT.get(self.params) else { return Ok(()) };
        let (results, stopped) = match self.trials(bed, "delay, head to head", |spec| by_turns(&mut spec.flows, rate)) {
            // The rates are known even if this fails.
            Err(TestError::Unfit(why)) => {
                let text = format!(
                    "no latency at {rate}: the tester could not offer this load to all routers ({})",
                    why.join("; ")
                );
                for outcome in outcomes.iter_mut() {
                    note_of(outcome, self.pattern, text.clone());
                    outcome.ranks.push(self.latency(rate, None).beyond(text.clone()));
                }
                return Ok(());
            }
            other => other?,
        };
        for (dut, outcome) in outcomes.iter_mut().enumerate() {
            let own: Vec<&TrialResult> = results.iter().map(|trial| &trial[dut]).collect();
            self.write_delay(outcome, rate, &own);
        }
        match stopped {
            // The latencies of the trials before are known.
            Err(TestError::Unfit(why)) => {
                let (known, all, why) = (results.len(), TRIALS.get(self.params), why.join("; "));
                let text = format!(
                    "latency at {rate} from {known} of {all} trials; then the tester could not offer this load ({why})"
                );
                outcomes.iter_mut().for_each(|outcome| note_of(outcome, self.pattern, text.clone()));
                Ok(())
            }
            stopped => stopped,
        }
    }

    fn write_delay(&self, outcome: &mut Outcome, rate: FrameRate, results: &[&TrialResult]) {
        let at = |percentile: f64| -> Option<Vec<f64>> {
            let of = |result: &&TrialResult| {
                let ns = result.groups.first()?.latency.percentile(percentile)?;
                Some(ns as f64 / 1e3)
            };
            results.iter().map(of).collect()
        };
        let lost = results.iter().map(|result| result.lost()).sum();
        let loss = percent_of(lost, results.iter().map(|result| result.offered()).sum());
        let is_overloaded = loss.is_some_and(|percent| percent > OVERLOADED_PERCENT);
        let (Some(medians), Some(p99)) = (at(50.0), at(99.0)) else {
            let hidden = |result: &&TrialResult| hidden_latency(result, None);
            let figure = self.latency(rate, None);
            outcome.ranks.push(match results.iter().find_map(hidden) {
                Some(_) if is_overloaded => figure.because(FULL_QUEUES),
                Some(why) => figure.beyond(why),
                None => figure.because("no frame arrived in some trial"),
            });
            return;
        };
        let Some(median_us) = geometric_mean(&medians) else { return };
        DELAYS.add(
            outcome,
            DelayRow {
                frame_size: self.pattern.size.clone(),
                protocol: self.pattern.protocol(),
                load_pps: rate.pps(),
                median_us,
                p99_us: geometric_mean(&p99),
                loss_percent: loss,
                trials: results.len() as u64,
            },
            results.iter().map(|result| result.trial).collect::<Vec<_>>(),
            [],
        );
        if is_overloaded {
            outcome.ranks.push(self.latency(rate, None).because(FULL_QUEUES));
            return;
        }
        outcome.ranks.push(RankFigure { samples: medians, ..self.latency(rate, Some(median_us)) });
    }

    /// The figure at `rate` per port.
    fn latency(&self, rate: FrameRate, median_us: Option<f64>) -> RankFigure {
        let title = format!("Median latency side by side at {rate} per port, {}", self.pattern.size_text());
        let figure = LATENCY.of(&[("size", &self.pattern.size)], title, median_us);
        RankFigure { load_pps: Some(rate.pps()), ..figure }
    }
}
