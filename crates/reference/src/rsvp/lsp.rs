//! LSPs through the device: their state, labels and deadlines.

use super::config::FIRST_LABEL;
use drophammer_model::Instant;
use drophammer_wire::rsvp::{Hop, MAX_LABEL, Sender, Session, Style, Tspec};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// A time that never comes.
pub(super) const NEVER: Instant = Instant(u64::MAX);
/// Number of labels.
const LABELS: u32 = MAX_LABEL + 1 - FIRST_LABEL;

/// Identifies an LSP.
pub(super) type Key = (Session, Sender);

/// The two kinds of state of an LSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Half {
    /// From the previous hop to the next hop, in Paths.
    Path = 0,
    /// From the next hop to the previous hop, in Resvs.
    Resv = 1,
}

/// Both, in order.
pub(super) const HALVES: [Half; 2] = [Half::Path, Half::Resv];

/// State that a neighbour refreshes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// Index of the neighbour.
    pub neighbour: usize,
    /// Epoch and identifier of its message.
    pub id: Option<(u32, u32)>,
    /// How long the state lives without a refresh.
    pub lifetime: Duration,
    pub expires: Instant,
}

/// State that the device refreshes at a neighbour.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    /// Index of the neighbour.
    pub neighbour: usize,
    /// Objects of the message; empty for no message.
    pub objects: Box<[u8]>,
    /// Identifier of the message.
    pub id: Option<u32>,
    /// The neighbour has acknowledged it.
    pub acked: bool,
    /// Transmissions without acknowledgement.
    pub attempts: u8,
    /// When it is sent again.
    pub next: Instant,
}

/// A reservation by the next hop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    /// Label that the next hop hands out.
    pub label: u32,
    pub style: Style,
    /// Logical interface handle in its message.
    pub handle: u32,
}

/// An LSP.
#[derive(Clone, Debug)]
pub(super) struct Lsp {
    pub key: Key,
    /// Label that the device hands out.
    pub label: u32,
    /// RSVP_HOP of the previous hop.
    pub previous: Hop,
    pub tspec: Tspec,
    /// TTL of Paths to the next hop.
    pub ttl: u8,
    pub reservation: Option<Reservation>,
    /// By [`Half`].
    pub heard: [Heard; 2],
    pub sent: [Sent; 2],
    /// Its entry among the deadlines.
    due: Instant,
}

impl Lsp {
    /// An LSP between two neighbours, without any message.
    pub fn new(key: Key, label: u32, previous: Hop, (from, to): (usize, usize)) -> Lsp {
        let heard = |neighbour| Heard { neighbour, id: None, lifetime: Duration::ZERO, expires: NEVER };
        let sent =
            |neighbour| Sent { neighbour, objects: Box::default(), id: None, acked: false, attempts: 0, next: NEVER };
        Lsp {
            key,
            label,
            previous,
            tspec: Tspec::default(),
            ttl: 0,
            reservation: None,
            heard: [heard(from), heard(to)],
            sent: [sent(to), sent(from)],
            due: NEVER,
        }
    }

    /// Index of the next hop.
    pub fn next_hop(&self) -> usize {
        self.sent[Half::Path as usize].neighbour
    }
}

/// All LSPs.
pub(super) struct Lsps {
    slots: Vec<Option<Lsp>>,
    free: Vec<u32>,
    by_key: HashMap<Key, u32>,
    deadlines: BTreeSet<(Instant, u32)>,
    limit: usize,
    /// Number of labels that have been used, and labels that are free again, the oldest first: a label comes back as late as possible.
    fresh: u32,
    freed: VecDeque<u32>,
    pub reserved: u64,
}

impl Lsps {
    /// Room for `limit` LSPs.
    pub fn new(limit: Option<u32>) -> Lsps {
        Lsps {
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            deadlines: BTreeSet::new(),
            limit: limit.unwrap_or(LABELS).min(LABELS) as usize,
            fresh: 0,
            freed: VecDeque::new(),
            reserved: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn find(&self, key: &Key) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// True if an LSP of this session exists.
    pub fn has_session(&self, session: &Session) -> bool {
        self.by_key.keys().any(|(known, _)| known == session)
    }

    /// The LSP in this slot.
    ///
    /// # Panics
    /// If there is none.
    pub fn get(&mut self, slot: u32) -> &mut Lsp {
        self.slots[slot as usize].as_mut().expect("an LSP in the slot")
    }

    /// True if the slot has an LSP.
    pub fn exists(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(Option::is_some)
    }

    /// Slots of all LSPs.
    pub fn all(&self) -> Vec<u32> {
        (0..self.slots.len() as u32).filter(|slot| self.exists(*slot)).collect()
    }

    /// Adds an LSP; `None` if there is no room, or no label.
    pub fn add(&mut self, key: Key, previous: Hop, neighbours: (usize, usize)) -> Option<u32> {
        if self.len() >= self.limit {
            return None;
        }
        let label = if self.fresh < LABELS {
            self.fresh += 1;
            FIRST_LABEL + self.fresh - 1
        } else {
            self.freed.pop_front()?
        };
        let lsp = Some(Lsp::new(key, label, previous, neighbours));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = lsp;
                slot
            }
            None => {
                self.slots.push(lsp);
                self.slots.len() as u32 - 1
            }
        };
        self.by_key.insert(key, slot);
        Some(slot)
    }

    /// Removes an LSP, and frees its label.
    pub fn remove(&mut self, slot: u32) {
        let Some(lsp) = self.slots[slot as usize].take() else { return };
        self.by_key.remove(&lsp.key);
        self.deadlines.remove(&(lsp.due, slot));
        self.freed.push_back(lsp.label);
        self.free.push(slot);
    }

    /// Updates the deadline of an LSP after a change of its times.
    pub fn schedule(&mut self, slot: u32) {
        let lsp = self.slots[slot as usize].as_mut().expect("an LSP in the slot");
        let times = lsp.heard.iter().map(|heard| heard.expires).chain(lsp.sent.iter().map(|sent| sent.next));
        let due = times.min().unwrap_or(NEVER);
        let before = std::mem::replace(&mut lsp.due, due);
        if before != due {
            self.deadlines.remove(&(before, slot));
            if due != NEVER {
                self.deadlines.insert((due, slot));
            }
        }
    }

    /// The earliest deadline, and its LSP.
    pub fn next(&self) -> Option<(Instant, u32)> {
        self.deadlines.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_freed_label_comes_back_last() {
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let key = |tunnel_id| {
            let session = Session { destination: address, tunnel_id, extended_tunnel_id: address };
            (session, Sender { address, lsp_id: 1 })
        };
        let hop = Hop { address, interface: 0 };
        let mut lsps = Lsps::new(Some(2));
        let a = lsps.add(key(1), hop, (0, 1)).unwrap();
        let b = lsps.add(key(2), hop, (0, 1)).unwrap();
        assert_eq!(lsps.add(key(3), hop, (0, 1)), None, "no room");
        lsps.get(a).sent[0].next = Instant(5);
        lsps.schedule(a);
        assert_eq!((lsps.next(), lsps.get(b).label), (Some((Instant(5), a)), FIRST_LABEL + 1));
        lsps.remove(a);
        assert_eq!((lsps.next(), lsps.len(), lsps.find(&key(1))), (None, 1, None));
        let c = lsps.add(key(3), hop, (0, 1)).unwrap();
        assert_eq!(lsps.get(c).label, FIRST_LABEL + 2);
        (lsps.fresh, lsps.limit) = (LABELS, 9);
        let d = lsps.add(key(4), hop, (0, 1)).unwrap();
        assert_eq!(lsps.get(d).label, FIRST_LABEL, "all others have been used");
        assert_eq!(lsps.add(key(5), hop, (0, 1)), None, "no label");
    }
}
