//! Destinations of the frames of a flow, and counts by destination.

use super::{Family, FlowSpec, PortIndex};
use crate::routes::Routes;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;

/// The addresses `first`, `first + step`, ..., computed instead of stored as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    /// First address.
    pub first: IpAddr,
    /// Distance between neighbours; 1 for consecutive hosts, 256 for one host in each /24.
    pub step: u64,
    /// Number of addresses, 1 to 1,000,000.
    pub count: u32,
}

impl AddressRange {
    /// The last address; `None` if the range is empty or leaves the address space.
    pub fn last(&self) -> Option<IpAddr> {
        let offset = u128::from(self.step).checked_mul(u128::from(self.count.checked_sub(1)?))?;
        match self.first {
            IpAddr::V4(first) => {
                let last = u128::from(u32::from(first)).checked_add(offset)?;
                Some(IpAddr::V4(u32::try_from(last).ok()?.into()))
            }
            IpAddr::V6(first) => Some(IpAddr::V6(u128::from(first).checked_add(offset)?.into())),
        }
    }

    /// True for the unspecified address alone, which stands for the addresses of a header.
    pub fn is_unspecified(&self) -> bool {
        self.count == 1 && self.first.is_unspecified()
    }

    /// IP version of its addresses.
    pub fn family(&self) -> Family {
        if self.first.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }
    }
}

/// Destinations of a flow. Every [`Targets::count`] frames reach each destination exactly once, in pseudo-random order
/// (RFC 4814).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Targets {
    /// These addresses.
    Addresses(AddressRange),
    /// An address within each of the routes `first` to `first + count - 1`, a different address in every round
    /// ([`Routes::address`]).
    Routes {
        /// The routes, of one family.
        routes: Arc<Routes>,
        /// The first route.
        first: u32,
        /// Number of routes; 1 to [`MAX_TARGETS`].
        count: u32,
    },
}

/// Maximum number of destinations of a flow.
pub const MAX_TARGETS: u32 = 16_000_000;

impl Targets {
    /// Number of destinations.
    pub fn count(&self) -> u32 {
        match self {
            Targets::Addresses(range) => range.count,
            Targets::Routes { count, .. } => *count,
        }
    }

    /// IP version of the destinations.
    pub fn family(&self) -> Family {
        match self {
            Targets::Addresses(range) => range.family(),
            Targets::Routes { routes, .. } => routes.family(),
        }
    }

    /// True if every destination has an address. False for routes that do not exist or that are not stored in a record.
    pub fn exist(&self) -> bool {
        match self {
            Targets::Addresses(_) => true,
            Targets::Routes { routes, first, count } => {
                let loaded = match &**routes {
                    Routes::Range(_) => true,
                    Routes::Table(table) => table.is_loaded(),
                };
                loaded && first.checked_add(*count).is_some_and(|end| end <= routes.len())
            }
        }
    }
}

impl FlowSpec {
    /// The routes to which the flow sends, and their port, as a key: flows with equal keys share the rounds through
    /// these routes, and reach each route together. `None` for a flow to addresses.
    pub fn route_key(&self) -> Option<(PortIndex, u32, u32, *const Routes)> {
        match &self.destinations {
            Targets::Routes { routes, first, count } => Some((self.to, *first, *count, Arc::as_ptr(routes))),
            Targets::Addresses(_) => None,
        }
    }
}

impl From<AddressRange> for Targets {
    fn from(range: AddressRange) -> Targets {
        Targets::Addresses(range)
    }
}

/// Frames of one flow by destination. All vectors are indexed by the destination's position in [`Targets`], from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationCounts {
    /// Index of the flow in the trial.
    pub flow: usize,
    /// Frames offered, including those that the device's receive ring refused.
    pub offered: Vec<u32>,
    /// Offered frames that arrived intact at a correct port, each counted once.
    pub received: Vec<u32>,
    /// Planned departure of the first lost frame, in µs after the first departure; [`DestinationCounts::NEVER`] if no
    /// frame was lost. Empty if the flow had more frames than the analyzer can distinguish (2^31 divided by the number
    /// of flows), or if the tester's own ring refused more frames than the generator can remember.
    pub first_lost_us: Vec<u32>,
    /// Planned departure of the last lost frame, in the same form.
    pub last_lost_us: Vec<u32>,
}

impl DestinationCounts {
    /// Value if no frame was lost.
    pub const NEVER: u32 = u32::MAX;

    /// Frames lost on the way to destination `i`.
    pub fn lost(&self, i: usize) -> u32 {
        self.offered[i] - self.received[i]
    }

    /// The part of the counts that is stored.
    pub fn summary(&self) -> DestinationSummary {
        let pairs = || self.offered.iter().zip(&self.received);
        DestinationSummary {
            flow: self.flow,
            destinations: self.offered.len() as u64,
            offered: pairs().filter(|(offered, _)| **offered > 0).count() as u64,
            with_loss: pairs().filter(|(offered, received)| received < offered).count() as u64,
            unreached: pairs().filter(|(offered, received)| **offered > 0 && **received == 0).count() as u64,
        }
    }
}

/// Number of destinations of a flow, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationSummary {
    /// Index of the flow in the trial.
    pub flow: usize,
    /// All destinations.
    pub destinations: u64,
    /// Destinations to which at least one frame was offered.
    pub offered: u64,
    /// Destinations that lost at least one frame.
    pub with_loss: u64,
    /// Destinations that lost all their frames.
    pub unreached: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::{RouteRange, RouteTable};
    use crate::trial::{TrialResult, TrialSpec};

    #[test]
    fn records_of_earlier_versions_and_of_this_one_are_read() {
        let range = r#"{"first":"198.18.0.1","step":256,"count":4}"#;
        let read: Targets = serde_json::from_str(range).unwrap();
        let expected = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 256, count: 4 };
        assert_eq!(read, Targets::Addresses(expected));
        assert_eq!(serde_json::to_string(&read).unwrap(), range);

        let routes: Arc<Routes> = Arc::new(RouteRange::internet(Family::Ipv6, 1_000, 3).unwrap().into());
        let part = Targets::Routes { routes, first: 100, count: 900 };
        let text = serde_json::to_string(&part).unwrap();
        assert!(text.len() < 200, "{text}");
        assert_eq!(serde_json::from_str::<Targets>(&text).unwrap(), part);
        assert_eq!((part.count(), part.family(), part.exist()), (900, Family::Ipv6, true));
    }

    #[test]
    fn trials_of_earlier_versions_are_read_and_written_as_they_were() {
        let spec = concat!(
            r#"{"purpose":"old","size":"64","flows":[{"group":"IPv4","from":0,"to":1,"family":"ipv4","#,
            r#""sources":{"first":"198.18.0.1","step":1,"count":16},"destinations":{"first":"198.19.0.1","step":1,"count":256},"#,
            r#""weight":1.0}],"load":{"kind":"constant","rate_pps":1000.0},"duration_s":1.0,"bin_s":null,"drain_s":2.0}"#
        );
        let read: TrialSpec = serde_json::from_str(spec).unwrap();
        assert_eq!((read.flows[0].per_destination, read.flows[0].also.len(), read.events.len()), (false, 0, 0));
        assert_eq!(serde_json::to_string(&read).unwrap(), spec);
        let result = concat!(
            r#"{"trial":1,"sending_s":1.0,"receiving_s":1.0,"elapsed_s":3.0,"groups":[],"health":{"unsent":0,"receive_drops":0,"#,
            r#""max_gap_ns":0,"gaps_over_1ms_ns":0,"departure_error":[],"clock_step_ns":0,"tester_stolen_ns":null,"stale":0,"#,
            r#""other_received":0,"kernel_generators":0},"validity":{"verdict":"valid"},"dut_cpu":null,"senders":2}"#
        );
        let read: TrialResult = serde_json::from_str(result).unwrap();
        assert_eq!((read.events.len(), read.destinations.len(), read.destination_summaries.len()), (0, 0, 0));
        assert_eq!(serde_json::to_string(&read).unwrap(), result);
    }

    #[test]
    fn routes_that_are_not_there_are_no_targets() {
        let routes: Arc<Routes> = Arc::new(RouteRange::internet(Family::Ipv4, 1_000, 3).unwrap().into());
        for (first, count, exist) in [(0, 1_000, true), (1, 1_000, false), (u32::MAX, 2, false), (1_000, 0, true)] {
            assert_eq!(Targets::Routes { routes: routes.clone(), first, count }.exist(), exist, "{first} {count}");
        }
        let table = RouteTable::new("a file", Family::Ipv4, [("16.0.0.0/8".parse().unwrap(), Default::default())]);
        let table: Arc<Routes> = Arc::new(table.into());
        let whole = Targets::Routes { routes: table, first: 0, count: 1 };
        let read: Targets = serde_json::from_str(&serde_json::to_string(&whole).unwrap()).unwrap();
        assert_eq!((whole.exist(), read.count(), read.exist()), (true, 1, false));
    }

    #[test]
    fn a_summary_tells_loss_from_silence_and_from_nothing_offered() {
        let counts = DestinationCounts {
            flow: 3,
            offered: vec![2, 2, 2, 0, 1],
            received: vec![2, 1, 0, 0, 0],
            ..DestinationCounts::default()
        };
        let expected = DestinationSummary { flow: 3, destinations: 5, offered: 4, with_loss: 3, unreached: 2 };
        assert_eq!(counts.summary(), expected);
        assert_eq!((counts.lost(0), counts.lost(2), counts.lost(3)), (0, 2, 0));
    }
}
