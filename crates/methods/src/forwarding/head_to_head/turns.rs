//! Departures of several routers' frames at one load.

use crate::kit::prelude::*;
use drophammer_model::trial::{FlowDuration, FlowSchedule, FlowSpec};

/// Gives each sending port this load, and lets the flows send in turn: frames that left at the same instant would wait for each
/// other, always in the same order.
pub(super) fn by_turns(flows: &mut [FlowSpec], rate: FrameRate) {
    let weights: Vec<f64> = flows
        .iter()
        .map(|flow| {
            let port = flows.iter().filter(|other| other.from == flow.from);
            flow.weight / port.map(|other| other.weight).sum::<f64>()
        })
        .collect();
    let step_s = 1.0 / rate.pps() / flows.len().max(1) as f64;
    for (place, (flow, share)) in flows.iter_mut().zip(weights).enumerate() {
        flow.schedule = Some(FlowSchedule {
            rate_pps: rate.pps() * share,
            delay_s: place as f64 * step_s,
            duration: FlowDuration::Continuous,
        });
    }
}
