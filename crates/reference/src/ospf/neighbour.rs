//! The neighbour on a link, and the exchange of Database Descriptions and requests with it (RFC 2328 sections 10.6 to 10.9).

use drophammer_model::Instant;
use drophammer_wire::ospf::{DatabaseDescription, LsaHeader, LsaKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

/// State of a neighbour (section 10.1). On a point-to-point link, 2-Way leads to ExStart immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Init,
    ExStart,
    Exchange,
    Loading,
    Full,
}

/// A neighbour.
pub struct Neighbour {
    pub id: Ipv4Addr,
    /// Address from which its packets come.
    pub address: Ipv4Addr,
    pub state: State,
    /// When it is down without another Hello.
    pub inactive_at: Instant,
    /// True if this router is the master of the exchange.
    pub master: bool,
    /// DD sequence number.
    pub sequence: u32,
    /// Headers that have not been sent in Database Descriptions yet.
    pub summary: VecDeque<LsaHeader>,
    /// The last Database Description that was sent: without header, and whether more follow.
    pub sent: Option<(Vec<u8>, bool)>,
    /// The last one that was received.
    pub received: Option<DatabaseDescription>,
    /// When the master repeats its Database Description.
    pub describe_at: Option<Instant>,
    /// LSAs that are newer at the neighbour (Link state request list).
    pub requests: BTreeMap<LsaKey, LsaHeader>,
    /// LSAs of the last Link State Request that are still missing.
    pub requested: BTreeSet<LsaKey>,
    pub request_at: Option<Instant>,
    /// LSAs that it has not acknowledged (Link state retransmission list).
    pub unacknowledged: BTreeSet<LsaKey>,
    pub retransmit_at: Option<Instant>,
}

impl Neighbour {
    pub fn new(id: Ipv4Addr, address: Ipv4Addr, inactive_at: Instant) -> Neighbour {
        Neighbour {
            id,
            address,
            state: State::Init,
            inactive_at,
            master: false,
            sequence: 0,
            summary: VecDeque::new(),
            sent: None,
            received: None,
            describe_at: None,
            requests: BTreeMap::new(),
            requested: BTreeSet::new(),
            request_at: None,
            unacknowledged: BTreeSet::new(),
            retransmit_at: None,
        }
    }

    /// Forgets the exchange, and goes to `state`.
    pub fn reset(&mut self, state: State) {
        let Neighbour { id, address, inactive_at, .. } = *self;
        *self = Neighbour { state, ..Neighbour::new(id, address, inactive_at) };
    }

    /// The LSA is no longer missing.
    pub fn satisfied(&mut self, key: &LsaKey) {
        self.requests.remove(key);
        self.requested.remove(key);
    }

    pub fn next_deadline(&self) -> Instant {
        let timers = [self.describe_at, self.request_at, self.retransmit_at];
        timers.into_iter().flatten().fold(self.inactive_at, Instant::min)
    }
}
