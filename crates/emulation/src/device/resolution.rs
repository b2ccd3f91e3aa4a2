//! Timers of address resolution, for ARP and Neighbor Discovery: request immediately, repeat with back-off, and refresh an
//! address before it becomes stale.

use super::neighbours::Neighbours;
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Time after which a known address is refreshed, well before the 30 s of RFC 4861 (REACHABLE_TIME).
pub const REFRESH: Duration = Duration::from_secs(20);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// Number of unanswered unicast refreshes before requests are multicast again.
const UNICAST_ATTEMPTS: u32 = 3;
/// Number of unanswered requests after which a neighbour other than the gateway is removed.
const GIVE_UP: u32 = 6;
/// Maximum number of neighbours, not counting the gateway.
const MOST: usize = 4096;

/// The destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Broadcast or solicited-node multicast.
    Everybody,
    /// Unicast to the address known so far.
    Unicast(MacAddr),
}

/// State of the resolution of one neighbour.
#[derive(Clone, Copy, Debug, Default)]
struct Resolution {
    mac: Option<MacAddr>,
    due: Instant,
    attempts: u32,
}

impl Resolution {
    /// Records that the neighbour announced that it is at `mac`.
    fn confirm(&mut self, now: Instant, mac: MacAddr) {
        *self = Resolution { mac: Some(mac), due: now + REFRESH, attempts: 0 };
    }

    /// Returns the destination of a request if one is due, and schedules the next attempt.
    fn poll(&mut self, now: Instant) -> Option<Ask> {
        if now < self.due {
            return None;
        }
        let ask = match self.mac {
            Some(mac) if self.attempts < UNICAST_ATTEMPTS => Ask::Unicast(mac),
            _ => Ask::Everybody,
        };
        let retry = FIRST_RETRY.saturating_mul(1 << self.attempts.min(4)).min(LAST_RETRY);
        self.attempts = self.attempts.saturating_add(1);
        self.due = now + retry;
        Some(ask)
    }
}

/// The neighbours of one family to resolve: the gateway permanently, others while they answer.
#[derive(Debug)]
pub struct Resolver {
    gateway: Option<IpAddr>,
    entries: BTreeMap<IpAddr, Resolution>,
    /// True if no requests must be sent.
    silent: bool,
}

impl Resolver {
    /// Makes a resolver that resolves `gateway` immediately.
    pub fn new(gateway: Option<IpAddr>) -> Resolver {
        Resolver { gateway, entries: gateway.map(|g| (g, Resolution::default())).into_iter().collect(), silent: false }
    }

    /// Number of neighbours that are being resolved or refreshed.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of neighbours that have answered.
    pub fn resolved(&self) -> usize {
        self.entries.values().filter(|e| e.mac.is_some()).count()
    }

    /// The time when the next request is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.entries.values().map(|e| e.due).min().filter(|_| !self.silent)
    }

    /// Records that `address` announced that it is at `mac`. If `address` is being resolved, the result is stored in
    /// `neighbours`; otherwise the announcement is ignored.
    pub fn confirm(&mut self, now: Instant, address: IpAddr, mac: MacAddr, neighbours: &mut Neighbours) {
        if let Some(entry) = self.entries.get_mut(&address)
            && neighbours.confirm(now, address, mac)
        {
            entry.confirm(now, mac);
        }
    }

    /// All requests that are due now, including those for addresses that `neighbours` wants.
    pub fn poll(&mut self, now: Instant, v6: bool, neighbours: &mut Neighbours) -> Vec<(IpAddr, Ask)> {
        let mut asks = Vec::new();
        self.silent = neighbours.is_fixed();
        while let Some(wanted) = neighbours.take_wanted(v6) {
            if self.entries.len() < MOST && !self.silent {
                self.entries.entry(wanted).or_insert(Resolution { due: now, ..Resolution::default() });
            }
        }
        if self.silent {
            return asks;
        }
        let gateway = self.gateway;
        self.entries.retain(|address, entry| {
            if gateway != Some(*address) && entry.attempts >= GIVE_UP && now >= entry.due {
                neighbours.forget(*address);
                return false;
            }
            if let Some(to) = entry.poll(now) {
                asks.push((*address, to));
            }
            true
        });
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn asks_at_once_and_backs_off_to_a_second() {
        let mut station = Resolution::default();
        let mut asked = Vec::new();
        while asked.len() < 7 {
            let now = station.due;
            assert_eq!(station.poll(now), Some(Ask::Everybody));
            assert_eq!(station.poll(now), None);
            asked.push(now);
        }
        assert_eq!(asked, [0, 100, 300, 700, 1500, 2500, 3500].map(ms));
    }

    #[test]
    fn refreshes_by_unicast_then_asks_everybody() {
        let mut station = Resolution::default();
        let mac = MacAddr::local(1);
        station.confirm(ms(5), mac);
        assert_eq!(station.poll(ms(20_004)), None);
        for _ in 0..3 {
            assert_eq!(station.poll(station.due), Some(Ask::Unicast(mac)));
        }
        assert_eq!(station.poll(station.due), Some(Ask::Everybody));
        assert_eq!(station.mac, Some(mac));
        station.confirm(ms(30_000), MacAddr::local(2));
        assert_eq!((station.mac, station.due), (Some(MacAddr::local(2)), ms(50_000)));
    }

    #[test]
    fn the_gateway_is_asked_for_ever_and_others_while_they_answer() {
        let [gateway, other] = [1, 2].map(|n| IpAddr::from([198, 18, 0, n]));
        let (mut resolver, mut neighbours) = (Resolver::new(Some(gateway)), Neighbours::default());
        // A neighbour that is not being resolved is not stored.
        resolver.confirm(ms(1), other, MacAddr::local(2), &mut neighbours);
        assert!(neighbours.is_empty());
        resolver.confirm(ms(1), gateway, MacAddr::BROADCAST, &mut neighbours);
        assert_eq!(resolver.resolved(), 0, "a group is not the address of a neighbour");
        resolver.confirm(ms(1), gateway, MacAddr::local(1), &mut neighbours);
        assert_eq!((resolver.resolved(), resolver.next_deadline()), (1, Some(ms(20_001))));
        resolver.entries.insert(other, Resolution { due: ms(2), ..Resolution::default() });
        let mut asked = Vec::new();
        while asked.len() < 40 {
            let now = resolver.next_deadline().unwrap();
            asked.extend(resolver.poll(now, false, &mut neighbours).into_iter().map(|(address, _)| address));
        }
        assert_eq!(asked.iter().filter(|a| **a == other).count() as u32, GIVE_UP);
        assert_eq!((resolver.len(), neighbours.mac(gateway)), (1, Some(MacAddr::local(1))));
    }
}
