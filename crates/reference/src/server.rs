//! The single server of the device, with its buffer.

use crate::faults::Sag;
use crate::moment::Moment;
use drophammer_model::Instant;
use std::collections::VecDeque;

const SECOND_NS: u128 = 1_000_000_000;

/// Serves frames one after the other, each for `10^9 / capacity` ns.
#[derive(Clone, Debug)]
pub struct Server {
    /// End of service of each frame that waits or is in service.
    ends: VecDeque<Moment>,
    free_at: Moment,
    buffer: usize,
    capacity_pps: Option<u64>,
    rates: Option<Rates>,
}

#[derive(Clone, Copy, Debug)]
struct Rates {
    denominator: u64,
    service: Moment,
    /// The instant of the sag, and the service time from then on.
    sagging: Option<(Moment, Moment)>,
}

impl Rates {
    /// Capacities are 1 to 10^9, so that their product fits the denominator of a [`Moment`].
    fn new(capacity: Option<u64>, sag: Option<Sag>) -> Option<Rates> {
        let slow = sag.map_or(1, |s| s.capacity_pps);
        let fast = match (capacity, sag) {
            (Some(fast), _) => fast,
            (None, None) => return None,
            (None, Some(_)) => 1,
        };
        let denominator = fast * slow;
        let service = match capacity {
            Some(_) => Moment::ratio(SECOND_NS * u128::from(slow), denominator),
            None => Moment::default(),
        };
        let slow_service = Moment::ratio(SECOND_NS * u128::from(fast), denominator);
        Some(Rates { denominator, service, sagging: sag.map(|s| (Moment::at(s.from), slow_service)) })
    }
}

impl Server {
    pub fn new(capacity_pps: Option<u64>, buffer: usize, sag: Option<Sag>) -> Server {
        let ends = VecDeque::with_capacity(buffer.min(65_536));
        let rates = Rates::new(capacity_pps, sag);
        Server { ends, free_at: Moment::default(), buffer, capacity_pps, rates }
    }

    /// Changes the sag. Accepted frames keep their end of service, rounded up to a whole nanosecond.
    pub fn set_sag(&mut self, sag: Option<Sag>) {
        self.free_at = Moment::at(self.free_at.ceil());
        for end in &mut self.ends {
            *end = Moment::at(end.ceil());
        }
        self.rates = Rates::new(self.capacity_pps, sag);
    }

    /// Number of frames that wait or are in service.
    pub fn waiting(&self, now: Instant) -> usize {
        let now = Moment::at(now);
        self.ends.iter().filter(|end| **end > now).count()
    }

    /// Takes a frame whose service takes `more_ns` longer than usual. Returns when its service ends, or `None` if the
    /// buffer is full.
    #[inline(always)]
    pub fn offer(&mut self, now: Instant, more_ns: u64) -> Option<Instant> {
        let Some(rates) = self.rates else { return Some(Instant(now.0.saturating_add(more_ns))) };
        let arrival = Moment::at(now);
        while self.ends.front().is_some_and(|end| *end <= arrival) {
            self.ends.pop_front();
        }
        if self.ends.len() >= self.buffer {
            return None;
        }
        let start = self.free_at.max(arrival);
        let service = rates.sagging.filter(|(from, _)| start >= *from).map_or(rates.service, |(_, slow)| slow);
        let end = start.plus(service, rates.denominator).later(more_ns);
        self.free_at = end;
        self.ends.push_back(end);
        Some(end.ceil())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_third_of_a_second_is_not_lost_to_rounding() {
        let mut server = Server::new(Some(3), 10, None);
        let ends: Vec<_> = (0..6).map(|_| server.offer(Instant(0), 0).unwrap().0).collect();
        assert_eq!(ends, [333_333_334, 666_666_667, 1_000_000_000, 1_333_333_334, 1_666_666_667, 2_000_000_000]);
    }

    #[test]
    fn the_sag_starts_with_the_first_service_at_its_instant() {
        let sag = Some(Sag { from: Instant(2_000), capacity_pps: 500_000 });
        let mut server = Server::new(Some(1_000_000), 10, sag);
        let ends: Vec<_> = (0..4).map(|_| server.offer(Instant(0), 0).unwrap().0).collect();
        assert_eq!(ends, [1_000, 2_000, 4_000, 6_000]);
        let mut unlimited = Server::new(None, 2, sag);
        assert_eq!(unlimited.offer(Instant(1_999), 0), Some(Instant(1_999)));
        let ends: Vec<_> = (0..4).map(|_| unlimited.offer(Instant(2_000), 0).map(|e| e.0)).collect();
        assert_eq!(ends, [Some(4_000), Some(6_000), None, None]);
    }

    proptest! {
        #[test]
        fn a_burst_fills_the_buffer_to_the_frame(capacity in 1u64..=1_000_000_000, buffer in 1usize..300, burst in 0usize..600, at in 0u64..1 << 50) {
            let mut server = Server::new(Some(capacity), buffer, None);
            let taken: Vec<_> = (0..burst).filter_map(|_| server.offer(Instant(at), 0)).collect();
            prop_assert_eq!(taken.len(), burst.min(buffer));
            for (i, end) in taken.iter().enumerate() {
                prop_assert_eq!(u128::from(end.0 - at), (SECOND_NS * (i as u128 + 1)).div_ceil(capacity.into()));
            }
        }

        #[test]
        fn load_at_capacity_is_never_lost(capacity in 1u64..=50_000_000, frames in 1u64..3_000, buffer in 1usize..4) {
            // Frame i arrives at ceil(i / capacity), which is as close as a clock of whole nanoseconds gets to even
            // spacing.
            let mut server = Server::new(Some(capacity), buffer + 1, None);
            for i in 0..frames {
                let at = (u128::from(i) * SECOND_NS).div_ceil(capacity.into()) as u64;
                prop_assert!(server.offer(Instant(at), 0).is_some());
            }
        }

        #[test]
        fn load_above_capacity_loses_what_it_must(capacity in 1_000u64..1_000_000, factor in 2u64..5, buffer in 2usize..50) {
            // In one second, the server serves exactly `capacity` frames and keeps `buffer`. With room for one waiting
            // frame it is never idle.
            let mut server = Server::new(Some(capacity), buffer, None);
            let load = capacity * factor;
            let taken = (0..load).filter(|i| {
                server.offer(Instant((u128::from(*i) * SECOND_NS / u128::from(load)) as u64), 0).is_some()
            }).count() as u64;
            prop_assert!(taken <= capacity + buffer as u64, "{taken} of {load}");
            prop_assert!(taken + 1 >= capacity.min(load), "{taken} of {load}");
        }
    }
}
