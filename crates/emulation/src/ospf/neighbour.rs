//! A neighbour: its state (RFC 2328 section 10), the database exchange, and the LSAs that it has not acknowledged.

use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use drophammer_wire::ospf::{DatabaseDescription, LsaHeader, LsaKey};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

/// State of a neighbour (section 10.1). Attempt does not occur on these networks, and neighbours that are Down are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeighbourState {
    /// It was heard recently.
    Init,
    /// It hears this router.
    TwoWay,
    /// Master and slave are being chosen.
    ExStart,
    /// Both describe their databases.
    Exchange,
    /// Requested LSAs are missing.
    Loading,
    /// Adjacent.
    Full,
}

/// State of a neighbour, for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourReport {
    /// Router ID.
    pub router_id: Ipv4Addr,
    /// Address of its interface.
    pub address: Ipv4Addr,
    /// State.
    pub state: NeighbourState,
    /// When it became Full; `None` while it is not.
    pub full_at: Option<Instant>,
    /// Number of LSAs that it has not acknowledged.
    pub unacknowledged: usize,
    /// Number of LSAs that it has not sent yet.
    pub requested: usize,
}

#[derive(Debug)]
pub(super) struct Neighbour {
    pub router_id: Ipv4Addr,
    pub address: Ipv4Addr,
    pub mac: MacAddr,
    pub priority: u8,
    pub designated: Ipv4Addr,
    pub backup: Ipv4Addr,
    pub state: NeighbourState,
    pub full_at: Option<Instant>,
    /// The last cryptographic sequence number.
    pub crypto_sequence: u32,
    /// True if this router is the master of the exchange.
    pub is_master: bool,
    pub dd_sequence: u32,
    /// The last Database Description that it sent.
    pub last_received: Option<DatabaseDescription>,
    /// The body of the last Database Description sent to it, and whether more follow.
    pub last_sent: Vec<u8>,
    pub sent_more: bool,
    /// True if it takes opaque LSAs.
    pub opaque: bool,
    /// LSAs that are still to be described to it.
    pub summary: VecDeque<LsaKey>,
    /// LSAs that it has and this router wants.
    pub requests: BTreeMap<LsaKey, LsaHeader>,
    /// LSAs that the outstanding Link State Request asks for.
    pub asked: HashSet<LsaKey>,
    pub unacknowledged: Unacknowledged,
}

impl Neighbour {
    pub fn new(router_id: Ipv4Addr, address: Ipv4Addr, mac: MacAddr, dd_sequence: u32) -> Neighbour {
        Neighbour {
            router_id,
            address,
            mac,
            priority: 0,
            designated: Ipv4Addr::UNSPECIFIED,
            backup: Ipv4Addr::UNSPECIFIED,
            state: NeighbourState::Init,
            full_at: None,
            crypto_sequence: 0,
            is_master: false,
            dd_sequence,
            last_received: None,
            last_sent: Vec::new(),
            sent_more: false,
            opaque: false,
            summary: VecDeque::new(),
            requests: BTreeMap::new(),
            asked: HashSet::new(),
            unacknowledged: Unacknowledged::default(),
        }
    }

    /// Clears all lists of LSAs.
    pub fn forget_lists(&mut self) {
        self.summary.clear();
        self.requests.clear();
        self.asked.clear();
        self.unacknowledged = Unacknowledged::default();
        (self.last_received, self.full_at) = (None, None);
    }

    /// Removes an LSA from the list of requested LSAs.
    pub fn satisfied(&mut self, key: &LsaKey) {
        self.requests.remove(key);
        self.asked.remove(key);
    }

    /// True if it takes LSAs of this type.
    pub fn takes(&self, kind: u8) -> bool {
        kind <= 5 || self.opaque
    }

    pub fn report(&self) -> NeighbourReport {
        NeighbourReport {
            router_id: self.router_id,
            address: self.address,
            state: self.state,
            full_at: self.full_at,
            unacknowledged: self.unacknowledged.len(),
            requested: self.requests.len(),
        }
    }
}

/// The Link state retransmission list (section 10), in the order in which LSAs are due.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    /// When to send each LSA again; `None` until it was sent for the first time.
    due: HashMap<LsaKey, Option<Instant>>,
    /// All intervals are equal, so this is in order. Entries that `due` contradicts are outdated.
    order: VecDeque<(Instant, LsaKey)>,
}

impl Unacknowledged {
    pub fn len(&self) -> usize {
        self.due.len()
    }

    pub fn contains(&self, key: &LsaKey) -> bool {
        self.due.contains_key(key)
    }

    /// Adds an LSA that will be sent soon.
    pub fn add(&mut self, key: LsaKey) {
        self.due.insert(key, None);
        self.drop_outdated();
    }

    /// Records that an LSA was sent at `now`, if it is on the list.
    pub fn sent(&mut self, now: Instant, interval: Duration, key: &LsaKey) {
        if let Some(due) = self.due.get_mut(key) {
            *due = Some(now + interval);
            self.order.push_back((now + interval, *key));
        }
        self.drop_outdated();
    }

    /// Removes an LSA. True if it was on the list.
    pub fn remove(&mut self, key: &LsaKey) -> bool {
        let was = self.due.remove(key).is_some();
        self.drop_outdated();
        was
    }

    fn drop_outdated(&mut self) {
        while self.order.front().is_some_and(|(at, key)| self.due.get(key) != Some(&Some(*at))) {
            self.order.pop_front();
        }
    }

    /// When the first LSA is due.
    pub fn next(&self) -> Option<Instant> {
        self.order.front().map(|(at, _)| *at)
    }

    /// Takes the first LSA that is due; it stays on the list.
    pub fn take_due(&mut self, now: Instant) -> Option<LsaKey> {
        let (_, key) = *self.order.front().filter(|(at, _)| *at <= now)?;
        self.order.pop_front();
        self.drop_outdated();
        Some(key)
    }

    /// Puts back an LSA that was taken but did not fit.
    pub fn put_back(&mut self, key: LsaKey) {
        if let Some(Some(at)) = self.due.get(&key) {
            self.order.push_front((*at, key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lsa_is_due_until_it_is_acknowledged() {
        let key = |n: u8| LsaKey { kind: 5, id: [n, 0, 0, 0].into(), router: [1, 1, 1, 1].into() };
        let interval = Duration::from_nanos(10);
        let mut list = Unacknowledged::default();
        (1..=3).for_each(|n| list.add(key(n)));
        assert_eq!((list.len(), list.next()), (3, None), "nothing was sent");
        (1..=3).for_each(|n| list.sent(Instant(n.into()), interval, &key(n)));
        list.sent(Instant(4), interval, &key(9));
        assert!(list.remove(&key(1)) && !list.remove(&key(9)));
        assert_eq!((list.next(), list.take_due(Instant(11))), (Some(Instant(12)), None));
        assert_eq!(list.take_due(Instant(12)), Some(key(2)));
        list.put_back(key(2));
        assert_eq!(list.take_due(Instant(13)), Some(key(2)));
        list.sent(Instant(13), interval, &key(2));
        // A new instance replaces the old one.
        list.add(key(3));
        list.sent(Instant(14), interval, &key(3));
        assert_eq!((list.take_due(Instant(30)), list.len()), (Some(key(2)), 2));
    }
}
