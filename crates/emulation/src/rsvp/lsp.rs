//! The LSPs of a device: what they are called, and their state.

use super::config::{LabelPolicy, LspKey, LspRange, RsvpConfig};
use super::neighbour::MOST_NEIGHBOURS;
use drophammer_model::Instant;
use drophammer_wire::rsvp::{Session, Tspec};
use std::collections::HashMap;

/// Maximum number of LSPs that end at the device and are in no range.
pub const MOST_FOREIGN: usize = 1_000;
/// A time that never comes.
pub(super) const NEVER: Instant = Instant(u64::MAX);

/// State of an LSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// It does not exist.
    Idle,
    /// The ingress has sent a Path, and has no reservation.
    Signalled,
    /// The ingress has a label, or the egress has handed out one.
    Up,
    /// A tear message has been sent, and is not acknowledged.
    Tearing,
}

/// Flags of an LSP.
pub(super) mod lsp_flag {
    /// Its message has the identifier `Lsp::id`.
    pub const HAS_ID: u8 = 1;
    /// The neighbour has acknowledged that message.
    pub const ACKED: u8 = 2;
    /// The neighbour's message has the identifier `Lsp::peer_id`.
    pub const HAS_PEER_ID: u8 = 4;
    /// The Path asks for the style SE, or the Resv has it.
    pub const SHARED: u8 = 8;
    /// The Path records its route.
    pub const RECORD: u8 = 16;
    /// The reservation asks for a confirmation.
    pub const CONFIRM: u8 = 32;
    /// The recorded route should have labels.
    pub const LABELS: u8 = 64;
}

/// Dynamic state of an LSP.
#[derive(Clone, Debug)]
pub(super) struct Lsp {
    /// When its message is sent again.
    pub next: Instant,
    /// When the state that the neighbour refreshes expires.
    pub expires: Instant,
    /// Its earliest valid entry in the heap of deadlines.
    pub due: Instant,
    /// When it came up.
    pub since: Instant,
    /// Identifier of its message.
    pub id: u32,
    /// Identifier of the neighbour's message.
    pub peer_id: u32,
    /// Ingress: the learned label. Egress: the logical interface handle of the previous hop.
    pub word: u32,
    /// Refresh period of the neighbour in ms.
    pub period: u32,
    pub phase: Phase,
    /// See [`lsp_flag`].
    pub flags: u8,
    /// Transmissions of its message that are not acknowledged.
    pub attempts: u8,
    /// The neighbour that sent its state.
    pub neighbour: u8,
    /// Life of the neighbour (between two restarts) in which it sent its state.
    pub life: u8,
}

impl Lsp {
    pub const IDLE: Lsp = Lsp {
        next: NEVER,
        expires: NEVER,
        due: NEVER,
        since: Instant(0),
        id: 0,
        peer_id: 0,
        word: 0,
        period: 0,
        phase: Phase::Idle,
        flags: 0,
        attempts: 0,
        neighbour: 0,
        life: 0,
    };

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn set(&mut self, flag: u8, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }
}

/// All LSPs: those of ingress ranges, those of egress ranges, then foreign ones. Their numbers count across all three.
pub(super) struct Lsps {
    pub all: Vec<Lsp>,
    /// First number and LSPs of each range.
    ingress: Vec<(u32, LspRange)>,
    egress: Vec<(u32, LspRange, LabelPolicy)>,
    /// Number of LSPs in ingress ranges.
    pub ingress_count: u32,
    /// Number of LSPs in ranges.
    pub ranged: u32,
    /// Traffic of LSPs that end here.
    tspecs: Vec<Tspec>,
    foreign: HashMap<LspKey, u32>,
    foreign_keys: Vec<LspKey>,
    foreign_labels: LabelPolicy,
    free: Vec<u32>,
    /// Number of LSPs that are not idle, by the neighbour that sent their state.
    pub of_neighbour: [u32; MOST_NEIGHBOURS],
    pub up: u32,
    /// How often an LSP went down other than by a tear message of this device.
    pub lost: u64,
}

impl Lsps {
    pub fn new(config: &RsvpConfig) -> Lsps {
        let mut ranged = 0;
        let mut first = |range: &LspRange| {
            let first = ranged;
            ranged += range.count;
            first
        };
        let ingress = config.ingress.iter().map(|i| (first(&i.lsps), i.lsps.clone())).collect();
        let ingress_count = first(&LspRange { count: 0, ..LspRange::new(0, [0; 4].into(), [0; 4].into()) });
        let egress: Vec<_> = config.egress.iter().map(|e| (first(&e.lsps), e.lsps.clone(), e.labels)).collect();
        Lsps {
            all: vec![Lsp::IDLE; ranged as usize],
            ingress,
            egress,
            ingress_count,
            ranged,
            tspecs: vec![Tspec::default(); (ranged - ingress_count) as usize],
            foreign: HashMap::new(),
            foreign_keys: Vec::new(),
            foreign_labels: config.foreign,
            free: Vec::new(),
            of_neighbour: [0; MOST_NEIGHBOURS],
            up: 0,
            lost: 0,
        }
    }

    pub fn is_ingress(&self, number: u32) -> bool {
        number < self.ingress_count
    }

    /// Index of the ingress range of an LSP, and its number in it.
    pub fn ingress_range(&self, number: u32) -> (usize, u32) {
        let at = self.ingress.partition_point(|(first, _)| *first <= number) - 1;
        (at, number - self.ingress[at].0)
    }

    pub fn key(&self, number: u32) -> LspKey {
        if self.is_ingress(number) {
            let (at, index) = self.ingress_range(number);
            return self.ingress[at].1.key(index);
        }
        match number.checked_sub(self.ranged) {
            Some(slot) => self.foreign_keys[slot as usize],
            None => {
                let (first, range, _) = self.egress_range(number);
                range.key(number - first)
            }
        }
    }

    fn egress_range(&self, number: u32) -> &(u32, LspRange, LabelPolicy) {
        &self.egress[self.egress.partition_point(|(first, ..)| *first <= number) - 1]
    }

    /// The label that the device hands out for an LSP that ends here.
    pub fn own_label(&self, number: u32) -> u32 {
        match number.checked_sub(self.ranged) {
            Some(slot) => self.foreign_labels.label(slot),
            None => {
                let (first, _, labels) = self.egress_range(number);
                labels.label(number - first)
            }
        }
    }

    pub fn find_ingress(&self, key: &LspKey) -> Option<u32> {
        self.ingress.iter().find_map(|(first, range)| Some(first + range.index(key)?))
    }

    /// True if an LSP that begins here has a Path in this session.
    pub fn has_path(&self, session: &Session) -> bool {
        self.ingress.iter().any(|(first, range)| {
            let index = range.index_in(session);
            index.is_some_and(|index| matches!(self.all[(first + index) as usize].phase, Phase::Signalled | Phase::Up))
        })
    }

    pub fn find_egress(&self, key: &LspKey) -> Option<u32> {
        let ranged = self.egress.iter().find_map(|(first, range, _)| Some(first + range.index(key)?));
        ranged.or_else(|| self.foreign.get(key).copied())
    }

    /// A number for an LSP in no range; `None` if there are too many.
    pub fn add_foreign(&mut self, key: LspKey) -> Option<u32> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.foreign_keys.len() < MOST_FOREIGN => {
                self.all.push(Lsp::IDLE);
                self.tspecs.push(Tspec::default());
                self.foreign_keys.push(key);
                self.all.len() as u32 - 1
            }
            None => return None,
        };
        self.foreign_keys[(number - self.ranged) as usize] = key;
        self.foreign.insert(key, number);
        Some(number)
    }

    /// Number of LSPs in no range.
    pub fn foreign_count(&self) -> usize {
        self.foreign.len()
    }

    /// The traffic of an LSP that ends here.
    pub fn tspec(&mut self, number: u32) -> &mut Tspec {
        &mut self.tspecs[(number - self.ingress_count) as usize]
    }

    /// The state of an LSP is now from this neighbour.
    pub fn set_neighbour(&mut self, number: u32, neighbour: usize) {
        let lsp = &mut self.all[number as usize];
        let before = std::mem::replace(&mut lsp.neighbour, neighbour as u8);
        if lsp.phase != Phase::Idle {
            self.of_neighbour[usize::from(before)] -= 1;
            self.of_neighbour[neighbour] += 1;
        }
    }

    /// Changes the phase of an LSP, and counts those that are up. An idle foreign LSP gives its number back.
    pub fn set_phase(&mut self, number: u32, now: Instant, phase: Phase) {
        let lsp = &mut self.all[number as usize];
        let before = std::mem::replace(&mut lsp.phase, phase);
        let of_neighbour = &mut self.of_neighbour[usize::from(lsp.neighbour)];
        match (before == Phase::Idle, phase == Phase::Idle) {
            (true, false) => *of_neighbour += 1,
            (false, true) => *of_neighbour -= 1,
            _ => {}
        }
        match (before == Phase::Up, phase == Phase::Up) {
            (false, true) => {
                lsp.since = now;
                self.up += 1;
            }
            (true, false) => {
                self.up -= 1;
                self.lost += u64::from(phase != Phase::Tearing);
            }
            _ => {}
        }
        if phase == Phase::Idle {
            (lsp.next, lsp.expires, lsp.attempts, lsp.flags) = (NEVER, NEVER, 0, 0);
            if before != Phase::Idle
                && let Some(slot) = number.checked_sub(self.ranged)
            {
                self.foreign.remove(&self.foreign_keys[slot as usize]);
                self.free.push(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsvp::{EgressRange, IngressRange};

    #[test]
    fn an_lsp_is_small() {
        assert!(size_of::<Lsp>() <= 56);
        assert!(size_of::<Tspec>() <= 20);
    }

    #[test]
    fn numbers_count_across_ranges() {
        let range = |count, sender: u8| LspRange::new(count, [10, sender, 0, 1].into(), [10, 9, 0, 1].into());
        let egress =
            |count, sender, label| EgressRange { lsps: range(count, sender), labels: LabelPolicy::From(label) };
        let ingress = [range(3, 1), range(0, 2), range(2, 3)].map(IngressRange::new).to_vec();
        let egress = vec![egress(0, 4, 100), egress(2, 5, 200), egress(1, 6, 300)];
        let mut lsps = Lsps::new(&RsvpConfig { ingress, egress, ..RsvpConfig::default() });
        assert_eq!((lsps.ingress_count, lsps.ranged), (5, 8));
        for number in 0..5 {
            assert_eq!(lsps.find_ingress(&lsps.key(number)), Some(number));
        }
        assert_eq!([2, 3, 4].map(|number| lsps.ingress_range(number)), [(0, 2), (2, 0), (2, 1)]);
        for (number, label) in [(5, 200), (6, 201), (7, 300)] {
            assert_eq!((lsps.find_egress(&lsps.key(number)), lsps.own_label(number)), (Some(number), label));
        }
        // A foreign LSP gives its number back when it ends.
        let key = range(9, 7).key(3);
        assert_eq!((lsps.find_egress(&key), lsps.add_foreign(key)), (None, Some(8)));
        lsps.set_neighbour(8, 3);
        lsps.set_phase(8, Instant(1), Phase::Up);
        assert_eq!((lsps.up, lsps.key(8), lsps.foreign_count(), lsps.of_neighbour[3]), (1, key, 1, 1));
        lsps.set_neighbour(8, 4);
        assert_eq!((lsps.of_neighbour[3], lsps.of_neighbour[4]), (0, 1));
        lsps.set_phase(8, Instant(2), Phase::Idle);
        assert_eq!((lsps.up, lsps.foreign_count(), lsps.of_neighbour), (0, 0, [0; MOST_NEIGHBOURS]));
        assert_eq!(lsps.add_foreign(range(9, 8).key(0)), Some(8));
    }
}
