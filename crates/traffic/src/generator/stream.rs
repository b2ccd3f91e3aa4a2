//! Groups the flows of a port by queue and schedule.

use super::round::weighted_round;
use crate::layout::QueueIndex;
use crate::schedule::Schedule;
use drophammer_model::FrameRate;
use drophammer_model::trial::{FlowDuration, FlowSchedule, Load, PortIndex, TrialSpec};
use std::time::Duration;

/// Flows of one port with the same queue and the same schedule.
pub(crate) struct Stream {
    pub(crate) port: PortIndex,
    /// Queue, counted over all ports.
    pub(crate) queue: QueueIndex,
    /// Indices of the flows in the trial.
    pub(crate) flows: Vec<usize>,
    /// Indices in `flows`, in the order of one round.
    pub(crate) round: Vec<u32>,
    pub(crate) schedule: Schedule,
    /// True for the load that flows without a schedule of their own share.
    pub(crate) shared: bool,
    /// Number of other streams in the queue.
    pub(crate) beside: usize,
    /// Tag of its first template. All templates of a port have different tags.
    pub(crate) tag: u32,
}

impl Stream {
    /// Streams of `port`, by queue: first the flows that share the port's load, if any, then each flow with its own schedule. Flow i leaves by
    /// `queues[i]`. Frames of a shared load leave at the same times with any number of queues.
    pub(crate) fn of_port(spec: &TrialSpec, port: PortIndex, queues: &[Option<QueueIndex>]) -> Vec<Stream> {
        let own = || (0..spec.flows.len()).filter(|flow| spec.flows[*flow].from == port);
        let mut of_port: Vec<QueueIndex> = own().filter_map(|flow| queues[flow]).collect();
        of_port.sort_unstable();
        of_port.dedup();
        let sharing: Vec<usize> = own().filter(|flow| spec.flows[*flow].schedule.is_none()).collect();
        let weights: Vec<f64> = sharing.iter().map(|flow| spec.flows[*flow].weight).collect();
        let round = weighted_round(&weights);
        let schedule = match &spec.load {
            Load::Burst { frames, rate_pps } => Schedule::burst(*frames, FrameRate(*rate_pps)),
            _ => Schedule::steps(&spec.steps()),
        };
        let end = spec.sending_time();
        let mut tag = 0;
        let mut streams = Vec::new();
        for queue in of_port {
            let first = streams.len();
            let mut add = |flows: Vec<usize>, round, schedule, shared| {
                let templates = flows.iter().map(|f| sizes(spec, *f)).sum::<u32>();
                streams.push(Stream { port, queue, flows, round, schedule, shared, beside: 0, tag });
                tag += templates;
            };
            let leaves = |flow: &usize| queues[*flow] == Some(queue);
            let mine: Vec<usize> = sharing.iter().copied().filter(leaves).collect();
            let places = || (0..).zip(&round).filter(|(_, flow)| leaves(&sharing[**flow as usize]));
            if mine.len() == sharing.len() && !mine.is_empty() {
                add(mine, round.clone(), schedule.clone(), true);
            } else if places().next().is_some() {
                let at = |flow: &u32| mine.partition_point(|f| *f < sharing[*flow as usize]) as u32;
                let own_round = places().map(|(_, flow)| at(flow)).collect();
                let part = schedule.part(places().map(|(place, _)| place).collect(), round.len() as u64);
                add(mine, own_round, part, true);
            }
            for flow in own().filter(leaves) {
                if let Some(schedule) = &spec.flows[flow].schedule {
                    add(vec![flow], vec![0], of_flow(schedule, end), false);
                }
            }
            let beside = (streams.len() - first).saturating_sub(1);
            streams[first..].iter_mut().for_each(|stream| stream.beside = beside);
        }
        streams
    }
}

/// Maximum number of templates of a flow.
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
