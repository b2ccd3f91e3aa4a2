//! The labels that the device gives out.

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
    next: u32,
    /// Labels that were in use before, the oldest first. They are given out again when all others have been.
    freed: VecDeque<u32>,
    reserved: HashSet<u32>,
}

impl OwnLabels {
    pub fn new(egress: Net4, reserved: &[u32]) -> OwnLabels {
        let reserved = reserved.iter().copied().collect();
        OwnLabels { egress, all: BTreeMap::new(), next: LABELS.start, freed: VecDeque::new(), reserved }
    }

    pub fn len(&self) -> usize {
        self.all.len()
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
        self.freed.extend(self.all.remove(net));
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
}
