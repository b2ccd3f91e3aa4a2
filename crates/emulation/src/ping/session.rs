//! Echo requests to the gateway: does the DUT still answer, and how fast?

use drophammer_model::Instant;
use std::net::IpAddr;
use std::time::Duration;

/// Answers of which the times are kept.
const MOST_TIMES: usize = 1 << 16;
/// How many requests may be under way before the oldest is forgotten.
const WINDOW: usize = 64;

/// Echo requests and what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingStats {
    /// Pings asked for; those for which the gateway is not yet resolved wait and are not yet `sent`.
    pub asked: u64,
    /// Requests sent.
    pub sent: u64,
    /// Requests that were answered; each counts once.
    pub received: u64,
    /// Round-trip time of the last answer.
    pub last_rtt: Option<Duration>,
    /// Shortest round-trip time.
    pub min_rtt: Option<Duration>,
    /// Longest round-trip time.
    pub max_rtt: Option<Duration>,
}

/// The requests of one family.
#[derive(Clone, Debug)]
pub struct Pinger {
    /// What was counted.
    pub stats: PingStats,
    /// Whom it pings, and from which address.
    pub gateway: IpAddr,
    /// See `gateway`.
    pub own: IpAddr,
    /// The gateway's link-layer address was not known at the last attempt.
    pub waits: bool,
    /// When each request that was answered departed, and its round-trip time; of the first [`MOST_TIMES`] alone.
    pub times: Vec<(Instant, Duration)>,
    identifier: u16,
    due: Instant,
    sent: Box<[Option<(u16, Instant)>; WINDOW]>,
}

impl Pinger {
    /// None sent yet; `identifier` marks the requests as ours.
    pub fn new(identifier: u16, own: IpAddr, gateway: IpAddr) -> Pinger {
        Pinger {
            stats: PingStats::default(),
            gateway,
            own,
            waits: false,
            times: Vec::new(),
            identifier,
            due: Instant(0),
            sent: Box::new([None; WINDOW]),
        }
    }

    /// Wants one more request to be sent.
    pub fn ask(&mut self, now: Instant) {
        self.stats.asked += 1;
        self.due = now;
    }

    /// When the last request was asked for.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Is a request to be sent as soon as the gateway is known?
    pub fn is_due(&self) -> bool {
        self.stats.asked > self.stats.sent
    }

    /// Identifier and sequence number of the request that now departs.
    pub fn depart(&mut self, now: Instant) -> (u16, u16) {
        let sequence = self.stats.sent as u16;
        self.sent[usize::from(sequence) % WINDOW] = Some((sequence, now));
        self.stats.sent += 1;
        (self.identifier, sequence)
    }

    /// A reply came in; false when it answers no request of ours that is still waited for.
    pub fn arrive(&mut self, now: Instant, identifier: u16, sequence: u16) -> bool {
        let slot = &mut self.sent[usize::from(sequence) % WINDOW];
        let Some((_, departed)) = slot.filter(|(s, _)| *s == sequence && identifier == self.identifier) else {
            return false;
        };
        *slot = None;
        let rtt = now.since(departed);
        if self.times.len() < MOST_TIMES {
            self.times.push((departed, rtt));
        }
        let stats = &mut self.stats;
        stats.received += 1;
        stats.last_rtt = Some(rtt);
        stats.min_rtt = Some(stats.min_rtt.map_or(rtt, |m| m.min(rtt)));
        stats.max_rtt = Some(stats.max_rtt.map_or(rtt, |m| m.max(rtt)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_counts_once() {
        let mut pinger = Pinger::new(7, [198, 18, 0, 1].into(), [198, 18, 0, 2].into());
        pinger.stats.asked = 2;
        assert_eq!(pinger.depart(Instant(100)), (7, 0));
        assert!(pinger.is_due());
        assert_eq!(pinger.depart(Instant(200)), (7, 1));
        assert!(!pinger.is_due());
        assert!(!pinger.arrive(Instant(300), 8, 0), "another's identifier");
        assert!(pinger.arrive(Instant(700), 7, 1));
        assert!(!pinger.arrive(Instant(800), 7, 1), "a duplicate");
        assert!(pinger.arrive(Instant(110), 7, 0));
        let ns = |n| Some(Duration::from_nanos(n));
        assert_eq!((pinger.stats.received, pinger.stats.min_rtt, pinger.stats.max_rtt), (2, ns(10), ns(500)));
        assert_eq!(pinger.stats.last_rtt, ns(10));
        let took = |departed, rtt| (Instant(departed), Duration::from_nanos(rtt));
        assert_eq!(pinger.times, [took(200, 500), took(100, 10)]);
    }
}
