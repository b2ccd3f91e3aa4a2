//! Which flows of a port share a schedule.

use crate::schedule::Schedule;
use drophammer_model::FrameRate;
use drophammer_model::trial::{FlowDuration, FlowSchedule, Load, PortIndex, TrialSpec};
use std::time::Duration;

/// Flows of one port that leave by one schedule, in the order of their weights.
pub(crate) struct Stream {
    pub(crate) port: PortIndex,
    /// Their places in the trial.
    pub(crate) flows: Vec<usize>,
    pub(crate) schedule: Schedule,
    /// Is it the load that flows without a schedule of their own share?
    pub(crate) shared: bool,
    /// Is it the only one of its port?
    pub(crate) alone: bool,
    /// Tag of its first template: no two templates of a port have the same.
    pub(crate) tag: u32,
}

impl Stream {
    /// Those of `port`: the flows that share its load, if there are any, then each flow with a schedule of its own.
    pub(crate) fn of_port(spec: &TrialSpec, port: PortIndex) -> Vec<Stream> {
        let own = || (0..spec.flows.len()).filter(|flow| spec.flows[*flow].from == port);
        let sharing: Vec<usize> = own().filter(|flow| spec.flows[*flow].schedule.is_none()).collect();
        let mut streams: Vec<(Vec<usize>, Schedule, bool)> = Vec::new();
        if !sharing.is_empty() {
            let schedule = match &spec.load {
                Load::Burst { frames, rate_pps } => Schedule::burst(*frames, FrameRate(*rate_pps)),
                _ => Schedule::steps(&spec.steps()),
            };
            streams.push((sharing, schedule, true));
        }
        let end = spec.sending_time();
        for flow in own() {
            if let Some(schedule) = &spec.flows[flow].schedule {
                streams.push((vec![flow], of_flow(schedule, end), false));
            }
        }
        let alone = streams.len() == 1;
        let mut tag = 0;
        streams
            .into_iter()
            .map(|(flows, schedule, shared)| {
                let first = tag;
                tag += flows.iter().map(|f| sizes(spec, *f)).sum::<u32>();
                Stream { port, flows, schedule, shared, alone, tag: first }
            })
            .collect()
    }
}

/// Templates of a flow at most.
fn sizes(spec: &TrialSpec, flow: usize) -> u32 {
    spec.flows[flow].size.as_ref().unwrap_or(&spec.size).round().len() as u32
}

fn of_flow(schedule: &FlowSchedule, end: Duration) -> Schedule {
    let start = Duration::from_secs_f64(schedule.delay_s.max(0.0));
    let (end, frames) = match schedule.duration {
        FlowDuration::Continuous => (end, None),
        FlowDuration::Frames(frames) => (end, Some(frames)),
        FlowDuration::Seconds(seconds) => (end.min(start + Duration::from_secs_f64(seconds.max(0.0))), None),
    };
    Schedule::flow(start, end, FrameRate(schedule.rate_pps), frames)
}
