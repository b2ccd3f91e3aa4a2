//! Packets with hop-by-hop options, the only header that routers on the path process: their effect on the router.

use super::{HOP_BY_HOP_LOADS, TRIAL_DURATION, latency_us};
use crate::kit::prelude::*;
use crate::overload::{AFTERWARDS, INTERVAL, MANAGEMENT, note_unasked};
use drophammer_model::management::{Answered, Inquiry};
use drophammer_model::pattern::ExtensionHeader;

columns! {
    /// Packets with hop-by-hop options at one load.
    pub(super) struct HopByHopRow {
        frame_size: PacketSize,
        percent: f64 = "Requested load" ["%"],
        offered_pps: f64 = "Offered per port" ["fps"],
        rate_pps: f64 = "Forwarding rate" ["fps"],
        loss_percent: Option<f64> ["%"],
        without_loss_percent: Option<f64> = "Loss without the options" ["%"],
        latency_p50_us: Option<f64> = "Median latency" ["µs"],
        cpu_percent: Option<f64> = "CPU of the router" ["%"],
        without_cpu_percent: Option<f64> = "CPU without the options" ["%"],
        asked: u64 = "Queries",
        answered: u64,
    }
}

pub(super) const TABLE: TableSpec<HopByHopRow> = TableSpec::new("hop_by_hop", "Packets with hop-by-hop options");

/// Sends packets with hop-by-hop options at each load, and compares them with packets without options.
pub(super) fn measure(
    bed: &mut dyn Testbed,
    plain: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let with = Pattern { extensions: vec![ExtensionHeader::HopByHop], ..plain.clone() };
    if let Some(why) = with.flows(bed.ports()).err() {
        note_of(outcome, &with, format!("not tested: {why}"));
        return Ok(());
    }
    for Percent(percent) in &HOP_BY_HOP_LOADS.get(params) {
        let limits = with.limits(bed);
        let wanted = limits.line.pps() * percent / 100.0;
        // The tester may not reach this load.
        let rate_pps = wanted.min(limits.max.pps()).min(plain.limits(bed).max.pps());
        let mut ask = |bed: &mut dyn Testbed, pattern: &Pattern| {
            let what = format!("hop-by-hop options, {percent} % of line rate, {}", pattern.size_text());
            bed.progress(&what);
            let purpose = format!("extension headers {}: {percent} % of line rate", pattern.size_text());
            let load = Load::Constant { rate_pps };
            let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
            let (interval, afterwards) = (INTERVAL.get(params), AFTERWARDS.get(params));
            let ask = Some(Inquiry { questions: MANAGEMENT.get(params), interval, afterwards });
            let asked = bed.run(&Trial { ask, ..Trial::new(spec) });
            bed.settle(PAUSE.get(params))?;
            match asked {
                Ok(seen) => Ok(Some((seen.result, seen.answered))),
                Err(TestError::Unfit(why)) => {
                    let why = why.join("; ");
                    note_of(outcome, pattern, format!("{percent} % left out, the tester was unfit: {why}"));
                    Ok(None)
                }
                Err(other) => Err(other),
            }
        };
        let without = ask(bed, plain)?;
        let Some((result, answered)) = ask(bed, &with)? else { continue };
        note_unasked(outcome, params, &result, &answered);
        let short = (rate_pps < wanted * 0.999).then(|| "the tester cannot offer this load".to_owned());
        let silent = (result.received() == 0).then(|| "forwards no packet with hop-by-hop options".to_owned());
        let without = without.map(|(result, _)| result);
        let cpu = |result: &TrialResult| result.dut_cpu.map(|share| share * 100.0);
        let loss = |result: &TrialResult| percent_of(result.lost(), result.offered());
        let count = |of: fn(&Answered) -> u64| answered.iter().map(of).sum();
        let row = HopByHopRow {
            frame_size: plain.size.clone(),
            percent: *percent,
            offered_pps: result.offered_load().pps(),
            rate_pps: result.forwarding_rate().pps(),
            loss_percent: loss(&result),
            without_loss_percent: without.as_ref().and_then(loss),
            latency_p50_us: latency_us(&result, 50.0),
            cpu_percent: cpu(&result),
            without_cpu_percent: without.as_ref().and_then(cpu),
            asked: count(|one| one.during.asked),
            answered: count(|one| one.during.times.len() as u64),
        };
        let trials = without.iter().chain([&result]).map(|result| result.trial);
        TABLE.add(outcome, row, trials, short.into_iter().chain(silent));
    }
    Ok(())
}
