//! Echo requests to the gateway or beyond it, and their round-trip times.

use drophammer_model::Instant;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

/// Maximum number of answers whose times are stored.
const MOST_TIMES: usize = 1 << 16;
/// Maximum number of requests in flight; another request replaces the oldest.
const WINDOW: usize = 64;

/// Counts of echo requests and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingStats {
    /// Requested pings. A ping waits, and does not count as `sent`, until the gateway is resolved.
    pub asked: u64,
    /// Requests sent.
    pub sent: u64,
    /// Requests that were answered; each counts once, even if it is answered again.
    pub received: u64,
    /// Round-trip time of the last answer.
    pub last_rtt: Option<Duration>,
    /// Shortest round-trip time.
    pub min_rtt: Option<Duration>,
    /// Longest round-trip time.
    pub max_rtt: Option<Duration>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trip {
    /// Number of the request among the requests of its family, from 0. The lower half of the number is the sequence
    /// number.
    pub number: u64,
    /// Departure of the request.
    pub departed: Instant,
    /// Time from the departure of the request to the arrival of the reply.
    pub took: Duration,
}

/// A request from another host that this device answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Sender of the request.
    pub source: IpAddr,
    /// Sequence number of the request.
    pub sequence: u16,
    /// Arrival of the request.
    pub arrived: Instant,
    /// Departure of the reply.
    pub departed: Instant,
}

/// The first [`MOST_TIMES`] requests that the device answered.
#[derive(Clone, Debug, Default)]
pub struct Answering {
    served: Vec<Served>,
    /// Number of requests at the end of the list whose replies have not been sent yet.
    waiting: usize,
}

impl Answering {
    /// Records a received request. Its reply is ready.
    pub fn take(&mut self, now: Instant, source: IpAddr, sequence: u16) {
        if self.served.len() < MOST_TIMES {
            self.served.push(Served { source, sequence, arrived: now, departed: now });
            self.waiting += 1;
        }
    }

    /// Records that the waiting replies are sent.
    pub fn depart(&mut self, now: Instant) {
        let from = self.served.len() - std::mem::take(&mut self.waiting);
        self.served[from..].iter_mut().for_each(|one| one.departed = one.arrived.max(now));
    }

    /// True if a reply is waiting.
    pub fn waits(&self) -> bool {
        self.waiting > 0
    }

    /// The answered requests, in the order of arrival.
    pub fn served(&self) -> &[Served] {
        &self.served
    }

    /// Forgets all requests.
    pub fn forget(&mut self) {
        (self.served, self.waiting) = (Vec::new(), 0);
    }
}

/// A request that is waiting to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Destination; `None` for the gateway.
    pub to: Option<IpAddr>,
    /// Number of data bytes.
    pub data: u16,
}

/// The requests of one family.
#[derive(Clone, Debug)]
pub struct Pinger {
    /// Counts of requests and answers.
    pub stats: PingStats,
    /// The requests go to or through this gateway, from the address `own`.
    pub gateway: IpAddr,
    /// See `gateway`.
    pub own: IpAddr,
    /// True if the gateway's link-layer address was unknown at the last attempt.
    pub waits: bool,
    /// The answered requests, in the order of the answers, up to the first [`MOST_TIMES`].
    pub trips: Vec<Trip>,
    identifier: u16,
    due: Instant,
    asked: VecDeque<Asked>,
    sent: Box<[Option<Departed>; WINDOW]>,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Departed {
    number: u64,
    to: IpAddr,
    at: Instant,
}

/// A request to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Destination address.
    pub to: IpAddr,
    /// Identifier of the device.
    pub identifier: u16,
    /// Sequence number.
    pub sequence: u16,
    /// Number of data bytes.
    pub data: usize,
}

impl Pinger {
    /// A pinger that has sent no request yet. `identifier` marks the requests of this device.
    pub fn new(identifier: u16, own: IpAddr, gateway: IpAddr) -> Pinger {
        Pinger {
            stats: PingStats::default(),
            gateway,
            own,
            waits: false,
            trips: Vec::new(),
            identifier,
            due: Instant(0),
            asked: VecDeque::new(),
            sent: Box::new([None; WINDOW]),
        }
    }

    /// Requests another ping.
    pub fn ask(&mut self, now: Instant, asked: Asked) {
        self.stats.asked += 1;
        self.asked.push_back(asked);
        self.due = now;
    }

    /// The time when the last ping was requested.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// True if a request must be sent as soon as the gateway is resolved.
    pub fn is_due(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The next request, to be sent now; `None` if no request is waiting.
    pub fn depart(&mut self, now: Instant) -> Option<Departure> {
        let Asked { to, data } = self.asked.pop_front()?;
        let (number, to) = (self.stats.sent, to.unwrap_or(self.gateway));
        let sequence = number as u16;
        self.sent[usize::from(sequence) % WINDOW] = Some(Departed { number, to, at: now });
        self.stats.sent += 1;
        Some(Departure { to, identifier: self.identifier, sequence, data: data.into() })
    }

    /// Handles a reply from `source`. False if it does not answer a request in flight.
    pub fn arrive(&mut self, now: Instant, source: IpAddr, identifier: u16, sequence: u16) -> bool {
        let slot = &mut self.sent[usize::from(sequence) % WINDOW];
        let own = |at: &Departed| at.number as u16 == sequence && identifier == self.identifier && at.to == source;
        let Some(Departed { number, at, .. }) = slot.filter(own) else {
            return false;
        };
        *slot = None;
        let rtt = now.since(at);
        if self.trips.len() < MOST_TIMES {
            self.trips.push(Trip { number, departed: at, took: rtt });
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
        let gateway: IpAddr = [198, 18, 0, 2].into();
        let beyond: IpAddr = [198, 19, 0, 2].into();
        let mut pinger = Pinger::new(7, [198, 18, 0, 1].into(), gateway);
        pinger.ask(Instant(90), Asked { to: None, data: 56 });
        pinger.ask(Instant(90), Asked { to: Some(beyond), data: 10 });
        let first = Departure { to: gateway, identifier: 7, sequence: 0, data: 56 };
        assert_eq!(pinger.depart(Instant(100)), Some(first));
        assert!(pinger.is_due());
        assert_eq!(pinger.depart(Instant(200)), Some(Departure { to: beyond, sequence: 1, data: 10, ..first }));
        assert!(!pinger.is_due());
        assert_eq!(pinger.depart(Instant(250)), None);
        assert!(!pinger.arrive(Instant(300), gateway, 8, 0), "another's identifier");
        assert!(!pinger.arrive(Instant(300), gateway, 7, 1), "from a host that was not asked");
        assert!(pinger.arrive(Instant(700), beyond, 7, 1));
        assert!(!pinger.arrive(Instant(800), beyond, 7, 1), "a duplicate");
        assert!(pinger.arrive(Instant(110), gateway, 7, 0));
        let ns = |n| Some(Duration::from_nanos(n));
        assert_eq!((pinger.stats.received, pinger.stats.min_rtt, pinger.stats.max_rtt), (2, ns(10), ns(500)));
        assert_eq!(pinger.stats.last_rtt, ns(10));
        let took =
            |number, departed, took| Trip { number, departed: Instant(departed), took: Duration::from_nanos(took) };
        assert_eq!(pinger.trips, [took(1, 200, 500), took(0, 100, 10)]);
    }

    #[test]
    fn the_time_to_answer_ends_when_the_reply_departs() {
        let mut answering = Answering::default();
        let source: IpAddr = [198, 18, 0, 1].into();
        answering.take(Instant(100), source, 3);
        answering.take(Instant(120), source, 4);
        assert!(answering.waits());
        answering.depart(Instant(130));
        assert!(!answering.waits());
        answering.take(Instant(200), source, 5);
        // A frame may have arrived later than the clock was last read.
        answering.depart(Instant(190));
        let times: Vec<_> = answering.served().iter().map(|s| (s.sequence, s.arrived.0, s.departed.0)).collect();
        assert_eq!(times, [(3, 100, 130), (4, 120, 130), (5, 200, 200)]);
        answering.forget();
        assert!(answering.served().is_empty() && !answering.waits());
    }
}
