//! Assigns the queues of ports to lanes.

use drophammer_model::trial::{FlowSpec, PortIndex};
use std::ops::Range;

/// Index of a queue, counted over all ports: first the queues of port 0, then the queues of port 1, and so on. If every
/// port has one queue, it is the index of the port.
pub type QueueIndex = usize;

/// Lane of the queues of other hosts.
const ELSEWHERE: usize = usize::MAX;

/// Assigns each queue to the lane that drives it. A lane is one thread: it sends the flows that leave through its
/// queues, and counts the frames that arrive there. The lane of a port's first queue serves the devices behind the
/// port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Lane of each queue.
    lane_of: Vec<usize>,
    /// Port of each queue.
    port_of: Vec<PortIndex>,
    /// First queue of each port, followed by the total number of queues.
    first: Vec<QueueIndex>,
    /// For each port: true if it delivers frames in an unknown order.
    merging: Vec<bool>,
    lanes: usize,
}

impl Layout {
    /// Creates `ports` ports with one queue each, all on one lane.
    pub fn one(ports: usize) -> Layout {
        Layout::round_robin(ports, 1)
    }

    /// Creates ports with one queue each. Port i is on lane i modulo `lanes`. There is at least one lane, and there are
    /// no more lanes than ports.
    pub fn round_robin(ports: usize, lanes: usize) -> Layout {
        Layout::queues(&vec![1; ports], lanes)
    }

    /// Creates ports with `queues[i]` queues (at least one) for port i. Counted over all ports, queue i is on lane i
    /// modulo `lanes`. There is at least one lane, and there are no more lanes than queues.
    pub fn queues(queues: &[usize], lanes: usize) -> Layout {
        let mut first = vec![0];
        let mut port_of = Vec::new();
        for (port, count) in queues.iter().enumerate() {
            port_of.extend(std::iter::repeat_n(port, (*count).max(1)));
            first.push(port_of.len());
        }
        let lanes = lanes.clamp(1, port_of.len().max(1));
        let lane_of = (0..port_of.len()).map(|queue| queue % lanes).collect();
        Layout { lane_of, port_of, first, merging: vec![false; queues.len()], lanes }
    }

    /// Returns the same layout, except that `port` merges frames of several receive queues of a network card, so that
    /// their order of arrival is unknown.
    #[must_use]
    pub fn merging(mut self, port: PortIndex) -> Layout {
        self.merging[port] = true;
        self
    }

    /// Returns the layout of a trial with `ports` ports for a host that has some of them: port i of this layout is port
    /// `places[i]` of the trial. The lanes are the lanes of this host. A port of another host has one queue, on no lane.
    ///
    /// # Panics
    /// If `places` does not name one port of the trial for each port of this layout, in ascending order.
    #[must_use]
    pub fn on_host(&self, places: &[PortIndex], ports: usize) -> Layout {
        assert_eq!(places.len(), self.ports(), "each port has its place in the trial");
        assert!(places.is_sorted_by(|a, b| a < b) && places.last().is_none_or(|last| *last < ports), "places ascend");
        let mut all = Layout { lane_of: Vec::new(), port_of: Vec::new(), first: vec![0], ..self.clone() };
        all.merging = vec![false; ports];
        for port in 0..ports {
            match places.binary_search(&port) {
                Ok(own) => {
                    all.lane_of.extend(self.queues_of(own).map(|queue| self.lane_of[queue]));
                    all.merging[port] = self.merging[own];
                }
                Err(_) => all.lane_of.push(ELSEWHERE),
            }
            all.port_of.resize(all.lane_of.len(), port);
            all.first.push(all.lane_of.len());
        }
        if places.is_empty() {
            all.lanes = 0;
        }
        all
    }

    /// Iterates over the queues of this host, in order.
    pub fn here(&self) -> impl Iterator<Item = QueueIndex> {
        (0..self.queue_count()).filter(|queue| self.lane_of[*queue] != ELSEWHERE)
    }

    /// True if other hosts have no ports of the trial.
    pub(crate) fn is_whole(&self) -> bool {
        !self.lane_of.contains(&ELSEWHERE)
    }

    /// True if this host has `port`.
    pub(crate) fn has(&self, port: PortIndex) -> bool {
        self.queues_of(port).any(|queue| self.lane_of[queue] != ELSEWHERE)
    }

    /// Returns the number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the number of ports.
    pub fn ports(&self) -> usize {
        self.first.len() - 1
    }

    /// Returns the number of queues.
    pub fn queue_count(&self) -> usize {
        self.port_of.len()
    }

    /// Returns the queues of `port`.
    pub fn queues_of(&self, port: PortIndex) -> Range<QueueIndex> {
        self.first[port]..self.first[port + 1]
    }

    /// Returns the port of `queue`.
    pub fn port_of(&self, queue: QueueIndex) -> PortIndex {
        self.port_of[queue]
    }

    /// Returns the lane of `queue`, from 0; a number that no lane has for a queue of another host.
    pub fn lane_of_queue(&self, queue: QueueIndex) -> usize {
        self.lane_of[queue]
    }

    /// Returns the lane, from 0, that serves the devices behind `port`: the lane of the port's first queue.
    pub fn lane_of(&self, port: PortIndex) -> usize {
        self.lane_of[self.first[port]]
    }

    /// True if `lane` has a queue of `port`.
    pub(crate) fn receives(&self, lane: usize, port: PortIndex) -> bool {
        self.queues_of(port).any(|queue| self.lane_of[queue] == lane)
    }

    /// True if the queues of `port` are on several lanes.
    pub fn is_split(&self, port: PortIndex) -> bool {
        self.queues_of(port).any(|queue| self.lane_of[queue] != self.lane_of(port))
    }

    /// True if `port` merges frames of several receive queues.
    pub(crate) fn merges(&self, port: PortIndex) -> bool {
        self.merging[port]
    }

    /// True if the order of some frames may be unknown because a port has several queues, or merges the queues of a card.
    pub(crate) fn may_lose_order(&self) -> bool {
        self.queue_count() > self.ports() || self.merging.contains(&true)
    }

    /// Returns the queue of each flow: the flows of a port use its queues in turn. A flow uses one queue, so its frames
    /// leave in order. `None` for a flow of a port that does not exist.
    pub(crate) fn senders(&self, flows: &[FlowSpec]) -> Vec<Option<QueueIndex>> {
        let mut before = vec![0; self.ports()];
        let queue = |flow: &FlowSpec| {
            let n = before.get_mut(flow.from)?;
            let queues = self.queues_of(flow.from);
            *n += 1;
            Some(queues.start + (*n - 1) % queues.len())
        };
        flows.iter().map(queue).collect()
    }

    /// If one lane must receive `flow` (see [`Layout::for_flows`]), returns its first port with a queue on another
    /// lane. Any other flow is counted by each lane at the lane's own queues.
    pub(crate) fn apart(&self, flow: &FlowSpec) -> Option<PortIndex> {
        let lane = self.lane_of(flow.to);
        let on_it = |port: PortIndex| self.queues_of(port).all(|queue| self.lane_of[queue] == lane);
        one_lane_ports(flow).find(|port| !on_it(*port))
    }

    /// Returns a layout for these flows. One lane must receive a flow that has an alternate path ([`FlowSpec::also`]),
    /// is counted by destination or place, or has its delay variation measured. So all queues where the flow may arrive are on
    /// one lane. There may be fewer lanes than before, but never more.
    pub fn for_flows(&self, flows: &[FlowSpec]) -> Layout {
        let mut lane_of = self.lane_of.clone();
        for flow in flows {
            let mut ports = one_lane_ports(flow).filter(|port| *port < self.ports());
            let Some(to) = ports.next().filter(|port| *port == flow.to) else { continue };
            for queue in ports.chain([to]).flat_map(|port| self.queues_of(port)) {
                let (a, b) = (lane_of[self.first[to]], lane_of[queue]);
                // What two hosts receive, no lane can: the plan refuses it ([`Layout::apart`]).
                if a == ELSEWHERE || b == ELSEWHERE {
                    continue;
                }
                lane_of.iter_mut().filter(|lane| **lane == a.max(b)).for_each(|lane| *lane = a.min(b));
            }
        }
        let mut used = lane_of.clone();
        used.retain(|lane| *lane != ELSEWHERE);
        used.sort_unstable();
        used.dedup();
        for lane in lane_of.iter_mut().filter(|lane| **lane != ELSEWHERE) {
            *lane = used.partition_point(|u| *u < *lane);
        }
        Layout { lane_of, lanes: used.len().max(self.lanes.min(1)), ..self.clone() }
    }
}

/// Iterates over the ports where `flow` may arrive, if one lane must receive it; otherwise empty.
fn one_lane_ports(flow: &FlowSpec) -> impl Iterator<Item = PortIndex> {
    let asked = crate::analyzer::FlowExtras::asked_for(flow);
    std::iter::once(flow.to).chain(flow.also.iter().copied()).filter(move |_| asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::AddressRange;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn flow(to: PortIndex, also: Vec<PortIndex>) -> FlowSpec {
        let range = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: 1 };
        FlowSpec { also, ..FlowSpec::new(String::new(), 0, to, range, range) }
    }

    #[test]
    fn ports_of_one_flow_are_on_one_lane() {
        let lanes = |layout: &Layout| (0..layout.ports()).map(|port| layout.lane_of(port)).collect::<Vec<_>>();
        let four = Layout::round_robin(4, 4);
        assert_eq!(four.for_flows(&[flow(1, vec![])]), four);
        let joined = four.for_flows(&[flow(1, vec![2])]);
        assert_eq!((lanes(&joined), joined.lanes()), (vec![0, 1, 1, 2], 3));
        let all = four.for_flows(&[flow(3, vec![1]), flow(2, vec![0]), flow(0, vec![1])]);
        assert_eq!((lanes(&all), all.lanes()), (vec![0; 4], 1));
    }

    #[test]
    fn a_host_has_the_lanes_of_its_ports() {
        let local = Layout::queues(&[2, 1], 2).merging(1);
        let all = local.on_host(&[1, 3], 4);
        assert_eq!((all.ports(), all.queue_count(), all.lanes()), (4, 5, 2));
        assert_eq!(all.here().collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(all.here().map(|queue| all.lane_of_queue(queue)).collect::<Vec<_>>(), [0, 1, 0]);
        assert_eq!(
            [0, 1, 2, 3].map(|port| (all.is_split(port), all.merges(port))),
            [(false, false), (true, false), (false, false), (false, true)]
        );
        assert_eq!((all.apart(&flow(3, vec![0])), all.apart(&flow(0, vec![2]))), (Some(0), None));
        assert_eq!([0, 1, 2, 3].map(|port| all.has(port)), [false, true, false, true]);
        let joined = all.for_flows(&[flow(1, vec![3])]);
        assert_eq!((joined.lanes(), joined.here().count(), joined.apart(&flow(0, vec![3]))), (1, 3, Some(3)));
        let none = Layout::one(0).on_host(&[], 2);
        assert_eq!((none.lanes(), none.for_flows(&[flow(1, vec![0])]).lanes(), none.is_whole()), (0, 0, false));
        assert!(local.is_whole());
    }

    #[test]
    fn flows_take_the_queues_of_their_port_in_turn() {
        let layout = Layout::queues(&[2, 1, 3], 2);
        assert_eq!((layout.ports(), layout.queue_count(), layout.lanes()), (3, 6, 2));
        assert_eq!((0..3).map(|port| layout.queues_of(port)).collect::<Vec<_>>(), [0..2, 2..3, 3..6]);
        assert_eq!((0..6).map(|queue| layout.port_of(queue)).collect::<Vec<_>>(), [0, 0, 1, 2, 2, 2]);
        assert_eq!((0..6).map(|queue| layout.lane_of_queue(queue)).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
        let from = |from| FlowSpec { from, ..flow(0, vec![]) };
        let flows: Vec<_> = [0, 2, 0, 1, 2, 2, 0, 1, 2, 9].map(from).into();
        let queues = [0, 3, 1, 2, 4, 5, 0, 2, 3].map(Some);
        assert_eq!(layout.senders(&flows), [queues.as_slice(), &[None]].concat());
        assert_eq!([0, 1, 2].map(|port| layout.is_split(port)), [true, false, true]);
    }

    #[test]
    fn one_lane_receives_what_is_counted_by_destination() {
        let layout = Layout::queues(&[2, 2], 2);
        let counted = FlowSpec { per_destination: true, ..flow(1, vec![]) };
        assert_eq!((layout.apart(&counted), layout.apart(&flow(1, vec![]))), (Some(1), None));
        assert_eq!(layout.for_flows(&[flow(1, vec![])]), layout);
        let joined = layout.for_flows(std::slice::from_ref(&counted));
        assert_eq!((joined.lanes(), joined.apart(&counted)), (1, None));
        let three = Layout::queues(&[1, 2], 3).for_flows(std::slice::from_ref(&counted));
        assert_eq!((three.lanes(), three.is_split(1), three.apart(&counted)), (2, false, None));
    }

    proptest! {
        #[test]
        fn no_lane_is_without_port_and_what_was_together_stays(
            ports in 1usize..9, lanes in 1usize..9,
            flows in proptest::collection::vec((0usize..9, proptest::collection::vec(0usize..9, 0..3)), 0..5)
        ) {
            let before = Layout::round_robin(ports, lanes);
            let flows: Vec<_> = flows.into_iter().map(|(to, also)| flow(to, also)).collect();
            let after = before.for_flows(&flows);
            let used: BTreeSet<_> = (0..ports).map(|port| after.lane_of(port)).collect();
            prop_assert_eq!(used, (0..after.lanes()).collect());
            prop_assert_eq!(after.lane_of(0), 0);
            for a in 0..ports {
                for b in 0..ports {
                    prop_assert!(before.lane_of(a) != before.lane_of(b) || after.lane_of(a) == after.lane_of(b));
                }
            }
            for flow in flows.iter().filter(|f| f.to < ports) {
                let mut also = flow.also.iter().filter(|port| **port < ports);
                prop_assert!(also.all(|port| after.lane_of(*port) == after.lane_of(flow.to)));
            }
        }
    }
}
