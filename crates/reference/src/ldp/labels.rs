//! The labels that the device gives out.

use crate::faults::is_nth;
use crate::ospf::spf::Net4;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Range;

/// Labels for LDP.
pub const LABELS: Range<u32> = 100_000..500_000;
/// The peer pops the label (RFC 3032).
pub const IMPLICIT_NULL: u32 = 3;

/// Labels by prefix.
pub struct OwnLabels {
    /// The prefix with implicit null.
    egress: Net4,
    all: BTreeMap<Net4, u32>,
    /// Every n-th prefix gets implicit null instead of a label, which is a fault; 0 for none.
    null_every: u64,
    /// Number of prefixes that have asked for a label since then, and number of those in `all` that have implicit null.
    asked: u64,
    nulls: u64,
    next: u32,
    /// Labels that were in use before, the oldest first. They are given out again when all others have been.
    freed: VecDeque<u32>,
    reserved: HashSet<u32>,
}

impl OwnLabels {
    pub fn new(egress: Net4, reserved: &[u32]) -> OwnLabels {
        let reserved = reserved.iter().copied().collect();
        let (all, freed, next) = (BTreeMap::new(), VecDeque::new(), LABELS.start);
        OwnLabels { egress, all, null_every: 0, asked: 0, nulls: 0, next, freed, reserved }
    }

    pub fn set_implicit_null_every(&mut self, every: u64) {
        (self.null_every, self.asked) = (every, 0);
    }

    /// Number of labels, without implicit null.
    pub fn len(&self) -> usize {
        self.all.len() - self.nulls as usize
    }

    /// Number of prefixes with implicit null that should have a label.
    pub fn nulls(&self) -> u64 {
        self.nulls
    }

    pub fn get(&self, net: &Net4) -> Option<u32> {
        if *net == self.egress { Some(IMPLICIT_NULL) } else { self.all.get(net).copied() }
    }

    /// All prefixes with a label, and that with implicit null.
    pub fn nets(&self) -> impl Iterator<Item = Net4> + '_ {
        std::iter::once(self.egress).chain(self.all.keys().copied())
    }

    /// Gives a prefix a label; `None` if none is left.
    pub fn allocate(&mut self, net: Net4) -> Option<u32> {
        self.asked += 1;
        if is_nth(self.asked, self.null_every) {
            self.nulls += 1;
            self.all.insert(net, IMPLICIT_NULL);
            return Some(IMPLICIT_NULL);
        }
        let label = match (self.next..LABELS.end).find(|label| !self.reserved.contains(label)) {
            Some(label) => {
                self.next = label + 1;
                label
            }
            None => self.freed.pop_front()?,
        };
        self.all.insert(net, label);
        Some(label)
    }

    pub fn free(&mut self, net: &Net4) {
        match self.all.remove(net) {
            Some(IMPLICIT_NULL) => self.nulls -= 1,
            label => self.freed.extend(label),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_label_is_the_last_to_be_given_out_again() {
        let net = |n: u32| (n.into(), 32);
        let mut labels = OwnLabels::new(net(1), &[LABELS.start + 1]);
        assert_eq!((labels.get(&net(1)), labels.len()), (Some(IMPLICIT_NULL), 0));
        assert_eq!(labels.allocate(net(2)), Some(LABELS.start));
        assert_eq!(labels.allocate(net(3)), Some(LABELS.start + 2), "one is reserved");
        labels.free(&net(2));
        assert_eq!((labels.get(&net(2)), labels.allocate(net(2))), (None, Some(LABELS.start + 3)));
        labels.next = LABELS.end;
        assert_eq!((labels.allocate(net(4)), labels.allocate(net(5))), (Some(LABELS.start), None));
        assert_eq!(labels.nets().count(), 4);
    }

    #[test]
    fn implicit_null_of_the_fault_takes_no_label() {
        let net = |n: u32| (n.into(), 32);
        let mut labels = OwnLabels::new(net(0), &[]);
        assert_eq!(labels.allocate(net(1)), Some(LABELS.start));
        labels.set_implicit_null_every(2);
        let given: Vec<_> = (2..=5).map(|n| labels.allocate(net(n)).unwrap() - 3).collect();
        assert_eq!(given, [LABELS.start - 2, 0, LABELS.start - 1, 0]);
        assert_eq!((labels.len(), labels.nulls(), labels.get(&net(3))), (3, 2, Some(IMPLICIT_NULL)));
        labels.free(&net(3));
        assert_eq!((labels.len(), labels.nulls(), labels.freed.len()), (3, 1, 0));
        labels.set_implicit_null_every(0);
        assert_eq!(labels.allocate(net(6)), Some(LABELS.start + 3));
    }
}
