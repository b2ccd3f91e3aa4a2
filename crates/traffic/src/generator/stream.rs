//! Groups the flows of a port by queue and schedule.

use crate::layout::QueueIndex;
use crate::schedule::Schedule;
use drophammer_model::FrameRate;
use drophammer_model::trial::{FlowDuration, FlowSchedule, Load, PortIndex, TrialSpec};
use std::time::Duration;

/// Flows of one port with the same queue and the same schedule.
pub(crate) struct Stream {
    pub(crate) port: PortIndex,
    /// The queue, counted over all ports.
    pub(crate) queue: QueueIndex,
    /// Indices in the trial of the flows.
    pub(crate) flows: Vec<usize>,
    /// Indices in `flows`, in the order of one round.
    pub(crate) round: Vec<u32>,
    pub(crate) schedule: Schedule,
    /// True for the load shared by flows without their own schedule.
    pub(crate) shared: bool,
    /// Number of other streams in the queue.
    pub(crate) beside: usize,
    /// Tag of the stream's first template. All templates of a port have different tags.
    pub(crate) tag: u32,
}

impl Stream {
    /// Returns the streams of `port`, by queue: first the flows that share the port's load, if any, then each flow with
    /// its own schedule. Flow i leaves through `queues[i]`. Frames of a shared load leave at the same times with any
    /// number of queues.
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

/// Returns the maximum number of templates of a flow.
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

/// Longest round. Weights are rounded to multiples of its inverse.
const MAX_ROUND: usize = 10_000;

/// Returns a round: the flow at each place. Flows are spread as evenly as their weights allow.
fn weighted_round(weights: &[f64]) -> Vec<u32> {
    // The same result as below, but faster, because there may be very many flows.
    if weights.windows(2).all(|pair| pair[0] == pair[1]) {
        return (0..weights.len() as u32).collect();
    }
    let smallest = weights.iter().copied().fold(f64::INFINITY, f64::min);
    let sum: f64 = weights.iter().sum();
    let shares: Vec<f64> = weights.iter().map(|w| w / sum).collect();
    // The shortest round that gives each flow an integer number of places, up to a limit.
    let exact = (1..=1000).find(|m| {
        weights.iter().all(|w| {
            let places = w / smallest * f64::from(*m);
            (places - places.round()).abs() < 1e-9 * places.max(1.0)
        })
    });
    let places = exact.map_or(MAX_ROUND, |m| (sum / smallest * f64::from(m)).round() as usize);
    let places = places.min(MAX_ROUND.max(weights.len()));
    let mut used = vec![0.0f64; weights.len()];
    (1..=places)
        .map(|place| {
            let behind = |i: &usize| shares[*i] * place as f64 - used[*i];
            let next = (0..weights.len()).max_by(|a, b| behind(a).total_cmp(&behind(b)).then(b.cmp(a))).unwrap_or(0);
            used[next] += 1.0;
            next as u32
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_become_shares() {
        let round = weighted_round(&[70.0, 20.0, 5.0]);
        let count = |i| round.iter().filter(|f| **f == i).count();
        assert_eq!((round.len(), count(0), count(1), count(2)), (19, 14, 4, 1));
        assert_eq!(weighted_round(&[1.0, 1.0]), vec![0, 1]);
        assert_eq!(weighted_round(&[0.3]), vec![0]);
        // There are too many flows to search for the next one at each place.
        assert_eq!(weighted_round(&vec![0.5; 500_000]).last(), Some(&499_999));
        let odd = weighted_round(&[std::f64::consts::PI, 1.0]);
        let share = odd.iter().filter(|f| **f == 0).count() as f64 / odd.len() as f64;
        assert!((share - std::f64::consts::PI / (std::f64::consts::PI + 1.0)).abs() < 1e-3);
    }
}
