//! Which lane works which port.

use drophammer_model::trial::{FlowSpec, PortIndex};

/// Which lane works which port. A lane is one thread: it sends the flows that leave its ports and receives those that lead
/// to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    lane_of: Vec<usize>,
    lanes: usize,
}

impl Layout {
    /// `ports` ports on one lane.
    pub fn one(ports: usize) -> Layout {
        Layout::round_robin(ports, 1)
    }

    /// Port i on lane i modulo `lanes`; on no more lanes than there are ports, and on one at least.
    pub fn round_robin(ports: usize, lanes: usize) -> Layout {
        let lanes = lanes.clamp(1, ports.max(1));
        Layout { lane_of: (0..ports).map(|port| port % lanes).collect(), lanes }
    }

    /// Lanes.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Ports.
    pub fn ports(&self) -> usize {
        self.lane_of.len()
    }

    /// Lane, from 0, of `port`, which must be one of them.
    pub fn lane_of(&self, port: PortIndex) -> usize {
        self.lane_of[port]
    }

    /// The same, but with all ports on one lane to which the frames of one of `flows` may lead ([`FlowSpec::also`]): what has
    /// arrived of a flow is known to one lane alone. There may be fewer lanes then, never more.
    pub fn for_flows(&self, flows: &[FlowSpec]) -> Layout {
        let mut lane_of = self.lane_of.clone();
        for flow in flows {
            for port in &flow.also {
                let (Some(a), Some(b)) = (lane_of.get(flow.to).copied(), lane_of.get(*port).copied()) else { continue };
                lane_of.iter_mut().filter(|lane| **lane == a.max(b)).for_each(|lane| *lane = a.min(b));
            }
        }
        let mut used = lane_of.clone();
        used.sort_unstable();
        used.dedup();
        for lane in &mut lane_of {
            *lane = used.partition_point(|u| *u < *lane);
        }
        Layout { lane_of, lanes: used.len().max(1) }
    }
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
